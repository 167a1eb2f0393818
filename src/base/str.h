/* base/str.h - growable string buffer. On out-of-memory `failed` is set and sticky, and further
 * writes do nothing; with a scratch arena the error longjmps instead (base/alloc.h). */
#ifndef TCI_BASE_STR_H
#define TCI_BASE_STR_H

#include "alloc.h"

typedef struct tci_str {
    char *text;     /* always NUL-terminated once anything was written; NULL before */
    size_t n, cap;  /* bytes, without the NUL */
    tci_scratch *s; /* NULL: heap, release with tci_str_free */
    bool failed;
} tci_str;

TCI_FN void tci_str_free(tci_str *b);
TCI_FN void tci_str_add(tci_str *b, const char *text);
TCI_FN void tci_str_add_n(tci_str *b, const void *bytes, size_t n);
TCI_FN void tci_str_printf(tci_str *b, const char *format, ...) TCI_PRINTF(2, 3);
TCI_FN const char *tci_str_text(const tci_str *b); /* never NULL */
/* Bytes of the character of UTF-8 that begins the n > 0 bytes; 0: none does. */
TCI_FN int tci_str_utf8(const char *text, size_t n);
/* The text with '?' for each control character, so that it stays on its line. */
TCI_FN void tci_str_add_line(tci_str *b, const char *text);

#endif
