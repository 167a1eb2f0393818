/* base/env.c - reads the environment variables of base/env.h.
 *
 * In: the table of variables. Out: their values, as text, number or list of words. Nothing is
 * cached: a context reads the variables that are fields of its options once, and copies them. In a
 * setuid process every variable reads as unset. */
#include "env.h"
#include "os.h"
#include "system_headers.h"

static const char *const tci_env_names[] = {
#define TCI_ROW(id, name, doc) name,
    TCI_ENV_ROWS(TCI_ROW)
#undef TCI_ROW
};

TCI_FN const char *tci_env_get(tci_env id)
{
    const char *value = tci_os_getenv(tci_env_names[id]);
    return value && *value ? value : NULL;
}

TCI_FN int64_t tci_env_int(tci_env id, int64_t fallback)
{
    const char *text = tci_env_get(id);
    if (!text) {
        return fallback;
    }
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    return errno || *end ? fallback : (int64_t)value;
}

TCI_FN bool tci_env_has_word(tci_env id, const char *word)
{
    const char *at = tci_env_get(id);
    size_t n = strlen(word);
    while (at) {
        size_t length = strcspn(at, ",");
        if ((length == n && !memcmp(at, word, n)) || (length == 3 && !memcmp(at, "all", 3))) {
            return true;
        }
        at = at[length] ? at + length + 1 : NULL;
    }
    return false;
}

TCI_FN int tci_env_word(tci_env id, const char *words)
{
    const char *value = tci_env_get(id);
    for (int i = 0; value && words; i++) {
        size_t n = strcspn(words, ",");
        if (strlen(value) == n && !memcmp(value, words, n)) {
            return i;
        }
        words = words[n] ? words + n + 1 : NULL;
    }
    return -1;
}

/* Whether one of the words at text is none of the list: *n is its length. NULL: all are. */
static const char *tci_env_odd_word(const char *text, const char *list, size_t *n)
{
    while (*text) {
        *n = strcspn(text, ",");
        const char *at = list;
        bool known = *n == 3 && !memcmp(text, "all", 3);
        while (at && !known) {
            size_t length = strcspn(at, ",");
            known = *n == length && !memcmp(text, at, length);
            at = at[length] ? at + length + 1 : NULL;
        }
        if (!known) {
            return text;
        }
        text += *n + (text[*n] != 0);
    }
    return NULL;
}

TCI_FN bool tci_env_is_wrong(tci_env id, char *text, size_t room)
{
    static const tci_env numbers[] = {
        TCI_ENV_HELP,    TCI_ENV_CC_TIMEOUT, TCI_ENV_CACHE_MB, TCI_ENV_MEMORY_CACHE_MB,
        TCI_ENV_THREADS, TCI_ENV_NO_CACHE,   TCI_ENV_KEEP,     TCI_ENV_VECTOR,
        TCI_ENV_MATRIX,  TCI_ENV_FUSION,     TCI_ENV_VERIFY,   TCI_ENV_REPRODUCIBLE};
    const char *value = tci_env_get(id);
    for (int i = 0; value && i < TCI_COUNT(numbers); i++) {
        if (numbers[i] == id && tci_env_int(id, 0) != tci_env_int(id, 1)) {
            snprintf(text, room, "%s is '%.40s': expected a number, taken as not set",
                     tci_env_names[id], value);
            return true;
        }
    }
    if (value && id == TCI_ENV_STANCE && tci_env_word(id, TCI_ENV_STANCES) < 0) {
        snprintf(text, room, "%s is '%.40s': expected one of %s, taken as not set",
                 tci_env_names[id], value, TCI_ENV_STANCES);
        return true;
    }
    const char *words = id == TCI_ENV_LOG     ? TCI_ENV_TOPICS
                        : id == TCI_ENV_DUMP  ? TCI_ENV_STAGES
                        : id == TCI_ENV_CHECK ? TCI_ENV_CHECKS ",0,1"
                                              : NULL;
    size_t n = 0;
    const char *odd = value && words ? tci_env_odd_word(value, words, &n) : NULL;
    if (odd) {
        snprintf(text, room, "%s has '%.*s': expected words of %s or all", tci_env_names[id],
                 (int)TCI_MIN(n, 40), odd, words);
    }
    return odd != NULL;
}

extern char **environ;

TCI_FN const char *tci_env_unknown(int *at)
{
    while (environ && environ[*at] && !tci_os_is_setuid()) {
        const char *text = environ[(*at)++];
        size_t n = strcspn(text, "=");
        bool known = strncmp(text, "TC_", 3) != 0 || !strncmp(text, "TC_TEST_", 8);
        for (int i = 0; i < TCI_ENV_COUNT && !known; i++) {
            known = strlen(tci_env_names[i]) == n && !memcmp(tci_env_names[i], text, n);
        }
        if (!known) {
            return text;
        }
    }
    return NULL;
}

TCI_FN void tci_env_help_once(void)
{
    static atomic_flag printed = ATOMIC_FLAG_INIT;
    if (!tci_env_int(TCI_ENV_HELP, 0) || atomic_flag_test_and_set(&printed)) {
        return;
    }
    fprintf(stderr, "tc: environment variables (fields of tc_options win over them)\n");
#define TCI_ROW(id, name, doc) fprintf(stderr, "  %-16s %s\n", name, doc);
    TCI_ENV_ROWS(TCI_ROW)
#undef TCI_ROW
}
