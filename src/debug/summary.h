/* debug/summary.h - declares the program summary of tc_explain (text and JSON), and its table of
 * kernels (one row per kernel), which profiles and HTML reports print too. */
#ifndef TCI_DEBUG_SUMMARY_H
#define TCI_DEBUG_SUMMARY_H

#include "../run/runtime_structs.h"

/* One kernel of a program, with all its launches in a run. */
typedef struct tci_summary_row {
    int32_t kernel, step; /* the first launch of it */
    int64_t calls;        /* launches in a run */
    double ns;            /* of all of them: by the model, or measured */
    double bytes, flops;  /* of all of them */
} tci_summary_row;

/* A row for each kernel that each run launches, in order; rows has room for code->n_kernels. */
TCI_FN int tci_summary_rows(const tc_program *f, tci_summary_row *rows);
/* Sorts and returns how many of n rows `most` shows. */
TCI_FN int tci_summary_sort(const tc_program *f, tci_summary_row *rows, int n, tc_sort sort,
                            int most);
/* Time of one launch by the model. */
TCI_FN double tci_summary_model_ns(const tci_code_kernel *k);
/* "12.3 us", of 8 characters. */
TCI_FN void tci_summary_time(tci_str *out, double ns);
/* "f32 [2, 3]" */
TCI_FN void tci_summary_shape(tci_str *out, int dtype, int rank, const tci_dim *shape);
/* A string of JSON with its quotes; U+FFFD for each byte that is not UTF-8. */
TCI_FN void tci_summary_json_text(tci_str *out, const char *text);
/* The name of captured leaf i of the program; "" where it has none. */
TCI_FN const char *tci_summary_captured(const tc_program *f, int i);
/* NULL: it runs as one recorded sequence (a CUDA graph); else why not. Only of code with a
 * device. */
TCI_FN const char *tci_summary_not_recorded(const tc_program *f);
/* The whole text, or a JSON object. */
TCI_FN void tci_summary_text(tci_str *out, const tc_program *f, const tc_explain_options *o);
TCI_FN void tci_summary_json(tci_str *out, const tc_program *f, const tc_explain_options *o);
/* TC_EXPLAIN: the program was made by the call `op` at that place. */
TCI_FN void tci_summary_announce(const tc_program *f, const char *op, tc_site here);

#endif
