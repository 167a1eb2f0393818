/* examples/fortunes.h - the fortunes of Debian and others, as symbols that models learn.
 * Debian: apt install fortunes-min fortunes */
#ifndef FORTUNES_H
#define FORTUNES_H

#include <stdbool.h>
#include <stdio.h>

#define FORTUNES "/usr/share/games/fortunes/"
enum { SYMBOLS = 96, TEXT_MOST = 2 << 20 };

static unsigned char text[TEXT_MOST]; /* ' ' to '~' are 0 to 94, 95 is a new line */
static int n_text;

static unsigned char to_symbol(int c)
{
    return (unsigned char)(c >= ' ' && c <= '~' ? c - ' ' : SYMBOLS - 1);
}

/* False, said in a line: there is too little text. */
static bool read_fortunes(void)
{
    static const char *const names[] = {"fortunes",  "literature", "computers", "cookie",
                                        "humorists", "science",    "wisdom",    "work"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char path[128];
        snprintf(path, sizeof(path), FORTUNES "%s", names[i]);
        FILE *file = fopen(path, "rb");
        for (int c; file && (c = getc(file)) != EOF && n_text < TEXT_MOST;) {
            text[n_text++] = to_symbol(c == '\t' ? ' ' : c);
        }
        if (file) {
            fclose(file);
        }
    }
    if (n_text < 100000) {
        printf("skipped: too little text in " FORTUNES " (Debian: apt install fortunes)\n");
    }
    return n_text >= 100000;
}

/* n random places from `from` to before `to`. */
static void draw_places(int *where, int n, int from, int to)
{
    static unsigned state = 1;
    for (int i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        where[i] = from + (int)((state >> 8) % (unsigned)(to - from));
    }
}

/* What was given, then what was written. */
static void print_text(const unsigned char *symbols, int n_given, int n_written)
{
    for (int i = 0; i < n_given + n_written; i++) {
        printf("%s%c", i == n_given ? "\n--------\n" : "",
               symbols[i] == SYMBOLS - 1 ? '\n' : ' ' + symbols[i]);
    }
    printf("\n--------\n");
}

#endif
