/* loop/row_buffer.h - declares the lowering of reductions that keep inner axes: each row of results
 * goes to a local array that later fused stages read, one outer iteration at a time. */
#ifndef TCI_LOOP_ROW_BUFFER_H
#define TCI_LOOP_ROW_BUFFER_H

#include "reduction_step.h"
#include "stage_op_count.h"
#include "causal_bound.h"
#include "stage_tile.h"
#include "vectorize.h"

enum { TCI_KEEP_TILE = 2 /* vectors: a row of symbolic length is padded to whole ones of these */ };

/* The rows that arrays hold: n points of the outer axis `axis` (-1: the one that is bound). */
typedef struct tci_row_buffer_rows {
    int axis;
    tci_dim n;
    bool thread_scratch; /* arrays are in the thread's work memory */
} tci_row_buffer_rows;
/* Declares an array for every row, and, where they hold several, for every other result. */
TCI_FN void tci_row_buffer_arrays(tci_build *b, tci_row_buffer_rows rows);
/* Bytes of those arrays for one point, where none takes the place of another. */
TCI_FN tci_dim tci_row_buffer_bytes(const tci_kernel *k, int64_t lanes);
/* A stage that keeps axes. */
TCI_FN void tci_row_buffer_reduce(tci_build *b, int stage);

#endif
