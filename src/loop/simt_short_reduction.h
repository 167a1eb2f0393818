/* loop/simt_short_reduction.h - declares the GPU schedule of short reductions along a contiguous
 * last axis (pooling, depthwise convolution, few channels): one vector of outputs per thread. */
#ifndef TCI_LOOP_SIMT_SHORT_REDUCTION_H
#define TCI_LOOP_SIMT_SHORT_REDUCTION_H

#include "emit_stages.h"

enum {
    TCI_WINDOW_THREADS = 128, /* of a block */
    TCI_WINDOW_ROWS = 8       /* points of a thread, at most */
};

/* A thread has a vector along the last outer axis, and `rows` neighbours along the one before. */
typedef struct tci_short_reduction {
    int lanes, row_axis, rows; /* -1, 1: there is no such axis */
    int64_t size;              /* threads */
} tci_short_reduction;

/* Fills *p; rows 0: as many as are worth it. False: not such a kernel, or not this many rows. */
TCI_FN bool tci_short_reduction_plan(const tci_kernel *k, const tci_machine *machine, int64_t rows,
                                     tci_short_reduction *p);
/* Block number `block`. */
TCI_FN void tci_short_reduction_emit(tci_build *b, const tci_short_reduction *p, tci_lin block);

#endif
