/* bench/note.h - the line on a kernel's schedule that tc_explain writes, as numbers:
 *
 *     schedule HASH: FORM NUMBERS in TIME of one thread by the model, at best TIME (...) */
#ifndef BENCH_NOTE_H
#define BENCH_NOTE_H

#include <math.h>

enum { NOTE_FORM = 24 };

/* A time as tc_explain writes it, in ns. */
static double note_time(const char *text, const char *before)
{
    char unit[3] = "";
    double t = 0;
    const char *at = strstr(text, before);
    if (!at || sscanf(at + strlen(before), "%lf %2[a-z]", &t, unit) != 2) {
        return 0;
    }
    return t * (!strcmp(unit, "us") ? 1e3 : !strcmp(unit, "ms") ? 1e6 : 1);
}

/* ns by the model, and ns that no schedule can be faster than: arithmetic of one of so many
 * processors, or memory. form: NOTE_FORM characters. */
static void note_read(const char *line, double processors, double *model, double *least, char *form)
{
    *model = note_time(line, " in ");
    *least = fmax(note_time(line, "(arithmetic ") * processors, note_time(line, ", memory "));
    sscanf(strstr(line, ": ") + 2, "%23s", form);
}

#endif
