/* compile/forced.c - schedules that a file forces on kernels.
 *
 * In: a file of lines "KERNEL: SCHEDULE"; # begins a line that is none. KERNEL is the name of a
 * kernel or the first digits, eight at least, of the hash of its canonical text, as tc_explain
 * shows both. Out: the schedule's text for a kernel. The first line that names it counts; whether
 * the schedule fits is for loop/schedule.c to say. */
#include "forced.h"

#include <string.h>

#include "../base/os.h"

enum { TCI_FORCED_DIGITS = 8 };

TCI_FN bool tci_forced_read(tci_str *out, const tc_options *o)
{
    int code;
    return !o->schedule || !o->schedule[0] || tci_os_read_file(o->schedule, out, &code);
}

static bool tci_forced_names(const char *word, size_t n, const char *name, const char *hex)
{
    bool by_name = strlen(name) == n && !memcmp(word, name, n);
    return by_name || (n >= TCI_FORCED_DIGITS && n <= strlen(hex) && !memcmp(word, hex, n));
}

TCI_FN const char *tci_forced_find(tci_scratch *s, const char *text, const char *name,
                                   tci_hash hash)
{
    char hex[33];
    tci_hash_hex(hash, hex);
    while (*text) {
        size_t n = strcspn(text, "\n"), blank = strspn(text, " \t");
        size_t word = strcspn(text + TCI_MIN(blank, n), ": \t\n");
        const char *colon = memchr(text, ':', n);
        if (colon && text[blank] != '#' &&
            tci_forced_names(text + blank, word, name, hex)) {
            return tci_scratch_printf(s, "%.*s", (int)(text + n - colon - 1), colon + 1);
        }
        text += n + (text[n] != 0);
    }
    return NULL;
}
