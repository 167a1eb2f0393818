/* debug/log.c - writes log lines by topic: to the user's callback (options.log), and to stderr
 * (TC_LOG).
 *
 * In: topics and texts. Out: calls of the callback, lines on stderr. Nothing is written unless
 * requested, and a failure here does not affect the compile. */
#include "log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "../base/alloc.h"
#include "../base/env.h"

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
