/* api/shape_bucketing.h - shape bucketing of a tc_jit (tc_jit_options.bucket): runs on zero-padded
 * copies of the user's buffers. */
#ifndef TCI_API_SHAPE_BUCKETING_H
#define TCI_API_SHAPE_BUCKETING_H

#include "auto_dynamic_shapes.h"

enum { TCI_BUCKET_BUFFERS = 32, TCI_BUCKET_AXES = 128 }; /* of all inputs and outputs */

/* Inputs or outputs with their padded sizes. */
typedef struct tci_bucket_list {
    tc_buf items[TCI_BUCKET_BUFFERS];
    int64_t sizes[TCI_BUCKET_AXES];
    int n, n_axes;
} tci_bucket_list;

/* The inputs with every size that is not fixed rounded up to a power of two; data is NULL. False:
 * there are too many. */
TCI_FN bool tci_bucket_round(const tci_general *g, const tc_bufs *inputs, tci_bucket_list *padded);
/* The outputs of a program of these padded inputs, likewise; why: what is wrong with the user's
 * outputs, which have sizes, none above the padded ones. */
TCI_FN bool tci_bucket_outputs(const tc_program *f, const tc_bufs *outputs, tci_bucket_list *padded,
                               char *why, size_t room);
/* Bytes of all padded buffers, each in lines of 64. */
TCI_FN size_t tci_bucket_bytes(const tci_bucket_list *list);
/* Places the padded buffers at `memory`; fills: with the user's elements, and zeros. */
TCI_FN char *tci_bucket_place(tci_bucket_list *padded, const tc_bufs *user, char *memory,
                              bool fills);
/* The user's outputs become the first elements of the padded ones along each axis. */
TCI_FN void tci_bucket_cut(const tci_bucket_list *padded, const tc_bufs *user);

#endif
