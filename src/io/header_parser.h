/* io/header_parser.h - parser of text headers: JSON of safetensors files, Python literals of NumPy
 * files. */
#ifndef TCI_IO_HEADER_PARSER_H
#define TCI_IO_HEADER_PARSER_H

#include "tensor_file.h"

/* A text within the file's scratch. Nothing in it nests without end, so nothing here recurses. What
 * does not fit leaves by tci_io_bad. */
typedef struct tci_head {
    tc_file *file;
    const char *at, *end;
} tci_head;

/* Blanks are skipped in front of each. */
TCI_FN bool tci_head_take(tci_head *s, char c); /* whether it comes next; then it is behind us */
TCI_FN void tci_head_need(tci_head *s, char c);
TCI_FN bool tci_head_word(tci_head *s, const char *word); /* the same of a word */
TCI_FN int64_t tci_head_size(tci_head *s);                /* digits: a whole number of 0 or more */
TCI_FN const char *tci_head_json(tci_head *s);   /* a string of JSON: in the scratch, UTF-8 */
TCI_FN const char *tci_head_python(tci_head *s); /* a string of Python without escapes */
/* "[3, 4]", or "(3, 4,)" between those two: how many, *sizes in the scratch. */
TCI_FN int tci_head_sizes(tci_head *s, char open, char close, const int64_t **sizes);
TCI_FN void tci_head_end(tci_head *s); /* nothing but blanks is left */

#endif
