/* compile/schedule_file.c - reads a file that forces schedules on kernels.
 *
 * In: a file of lines "KERNEL: SCHEDULE"; # begins a comment line. KERNEL is the name of a kernel
 * or the first digits, at least eight, of the hash of its canonical text; tc_explain shows both.
 * Out: the text of the schedule for a kernel. The first matching line counts; loop/schedule.c
 * checks whether the schedule fits. */
#include "schedule_file.h"

#include <string.h>

#include "../base/os.h"
#include "../debug/log.h"

enum { TCI_FORCED_DIGITS = 8 };

TCI_FN bool tci_forced_read(tci_str *out, const tc_options *o)
{
    int code;
    return !o->schedule || !o->schedule[0] || tci_os_read_file(o->schedule, out, &code);
}

TCI_FN bool tci_forced_names(const char *word, size_t n, const char *name, const char *hex)
{
    size_t length = strlen(name);
    /* also as tables of kernels show it, with the digits that make the function's name its own */
    bool full = n == length + 1 + TCI_FORCED_DIGITS && word[length] == '_';
    bool by_name = (length == n || full) && !memcmp(word, name, length);
    return by_name || (n >= TCI_FORCED_DIGITS && n <= strlen(hex) && !memcmp(word, hex, n));
}

/* One line that is neither blank nor a remark. schedule NULL: it has no colon. */
typedef struct tci_forced_line {
    const char *name, *schedule;
    size_t n_name, n_schedule;
    int number;
} tci_forced_line;

/* Moves on in *text; false: there are no more. line->number is that of the line before. */
static bool tci_forced_next(const char **text, tci_forced_line *line)
{
    while (**text) {
        size_t n = strcspn(*text, "\n"), blank = TCI_MIN(strspn(*text, " \t\r"), n);
        const char *at = *text + blank, *end = *text + n, *colon = memchr(*text, ':', n);
        *text = end + (*end != 0);
        line->number++;
        if (at < end && *at != '#') {
            line->name = at;
            line->n_name = strcspn(at, ": \t\r\n");
            line->schedule = colon ? colon + 1 : NULL;
            line->n_schedule = colon ? (size_t)(end - colon - 1) : 0;
            return true;
        }
    }
    return false;
}

TCI_FN const char *tci_forced_find(tci_scratch *s, const char *text, const char *name,
                                   tci_hash hash)
{
    char hex[33];
    tci_forced_line line = {0};
    tci_hash_hex(hash, hex);
    while (tci_forced_next(&text, &line)) {
        if (line.schedule && tci_forced_names(line.name, line.n_name, name, hex)) {
            return tci_scratch_printf(s, "%.*s", (int)line.n_schedule, line.schedule);
        }
    }
    return NULL;
}

TCI_FN void tci_forced_check(const tc_options *o, const char *text,
                             bool (*has)(const void *kernels, const char *word, size_t n),
                             const void *kernels)
{
    tci_forced_line line = {0};
    while (tci_forced_next(&text, &line)) {
        int n = (int)TCI_MIN(line.n_name, 60);
        if (!line.schedule) {
            tci_log(o, "compile",
                    "line %d of '%.200s', \"%.*s\", has no colon: expected KERNEL: "
                    "SCHEDULE",
                    line.number, o->schedule, n, line.name);
        } else if (!has(kernels, line.name, line.n_name)) {
            tci_log(o, "compile",
                    "line %d of '%.200s' names '%.*s': no kernel compiled now has "
                    "that name, or a hash that begins so",
                    line.number, o->schedule, n, line.name);
        }
    }
}
