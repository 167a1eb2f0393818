/* debug/dump.c - writes log lines and stage dumps.
 *
 * In: topics and texts from compile/. Out: calls of the user's log callback, lines on stderr if
 * TC_LOG requests them, and files in the dump directory if TC_DUMP or options.dump does. Nothing is
 * written unless requested, and a failure here does not affect the compile. */
#include "dump.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include "../base/env.h"
#include "../base/private_dir.h"

TCI_FN bool tci_log_wants(const tc_options *o, const char *topic)
{
    return o->log || tci_env_has_word(TCI_ENV_LOG, topic);
}

TCI_FN void tci_log(const tc_options *o, const char *topic, const char *format, ...)
{
    if (!tci_log_wants(o, topic)) {
        return;
    }
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = n >= 0 ? tci_heap_resize(NULL, (size_t)n + 1) : NULL;
    if (text) {
        vsnprintf(text, (size_t)n + 1, format, again);
        if (o->log) {
            o->log(o->log_user, topic, text);
        }
        if (tci_env_has_word(TCI_ENV_LOG, topic)) {
            fprintf(stderr, "tc %s: %s\n", topic, text);
        }
        tci_heap_free(text);
    }
    va_end(again);
}

/* Misspelt names, once a process. */
static void tci_log_unknown(const tc_options *o)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    int at = 0;
    if (!tci_log_wants(o, "compile") || atomic_flag_test_and_set(&told)) {
        return;
    }
    for (const char *name; (name = tci_env_unknown(&at));) {
        tci_log(o, "compile", "%.*s is no variable of tc: TC_HELP=1 lists them",
                (int)TCI_MIN(strcspn(name, "="), (size_t)60), name);
    }
}

TCI_FN void tci_log_environment(const tc_options *o)
{
    static int told[TCI_ENV_COUNT]; /* atomic, once a process; not every CPU exchanges a byte */
    char text[200];
    tci_log_unknown(o);
    for (int i = 0; i < TCI_ENV_COUNT; i++) {
        bool unheard = i == TCI_ENV_LOG && !tci_env_has_word(TCI_ENV_LOG, "compile");
        if (!(unheard || tci_log_wants(o, "compile")) ||
            !tci_env_is_wrong((tci_env)i, text, sizeof(text)) ||
            __atomic_exchange_n(&told[i], 1, __ATOMIC_RELAXED)) {
            continue;
        }
        tci_log(o, "compile", "%s", text);
        if (unheard) {
            fprintf(stderr, "tc compile: %s\n", text);
        }
    }
}

/* ---- dumps ---- */

/* "graph,plan" has "plan"; "all" has everything. */
TCI_FN bool tci_dump_list_has(const char *list, const char *word)
{
    size_t n = strlen(word);
    while (list) {
        size_t length = strcspn(list, ",");
        if ((length == n && !memcmp(list, word, n)) || (length == 3 && !memcmp(list, "all", 3))) {
            return true;
        }
        list = list[length] ? list + length + 1 : NULL;
    }
    return false;
}

TCI_FN bool tci_dump_wants(const tci_dump *d, const char *stage)
{
    return d->stages && tci_dump_list_has(d->stages, stage);
}

/* Makes the part after the last '/' a plain file name. */
static void tci_dump_clean_name(tci_str *path)
{
    char *name = path->failed ? NULL : strrchr(path->text, '/');
    for (char *c = name ? name + 1 : NULL; c && *c; c++) {
        bool plain = (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') ||
                     (*c >= 'A' && *c <= 'Z') || *c == '-' || *c == '_' ||
                     (*c == '.' && c > name + 1);
        *c = plain ? *c : '_';
    }
}

TCI_FN void tci_dump_begin(tci_dump *d, const tc_options *o)
{
    static int count;
    memset(d, 0, sizeof(*d));
    d->stages = o->dump && o->dump[0] ? o->dump : NULL;
    if (!d->stages) {
        return;
    }
    const char *base = o->dump_dir && o->dump_dir[0] ? o->dump_dir : "./tc_dump";
    int number = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    tci_str path = {0}, why = {0};
    tci_str_add(&path, base);
    if (o->name) {
        tci_str_printf(&path, "/%.80s", o->name);
        tci_dump_clean_name(&path);
    } else if (number > 1) {
        tci_str_printf(&path, "/%d", number);
    }
    tci_dir dir;
    if (path.failed || !tci_dir_open(&dir, path.text, TCI_DIR_NOTES, &why)) {
        tci_log(o, "compile", "no dump: %s", tci_str_text(&why));
        d->stages = NULL;
    } else { /* not kept open: a batch may be large */
        tci_str_add(&d->dir, dir.path.text);
        tci_dir_close(&dir);
    }
    tci_str_free(&path);
    tci_str_free(&why);
}

TCI_FN void tci_dump_end(tci_dump *d)
{
    tci_str_free(&d->dir);
    d->stages = NULL;
}

TCI_FN void tci_dump_file(const tci_dump *d, const char *file, const tci_str *text)
{
    tci_str path = {0};
    tci_str_printf(&path, "%s/%s", tci_str_text(&d->dir), file);
    if (!path.failed && !text->failed) {
        tci_os_publish(path.text, tci_str_text(text), text->n, NULL);
    }
    tci_str_free(&path);
}
