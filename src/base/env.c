/* base/env.c - reads the environment variables of base/env.h.
 *
 * In: the rows. Out: their values, as text, number or list of words. Nothing is kept: a context
 * asks once for what is a field of its options, and copies. In a setuid process every variable
 * reads as unset. */
#include "env.h"
#include "os.h"
#include "posix.h"

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
