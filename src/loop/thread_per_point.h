/* loop/thread_per_point.h - declares the GPU schedule in which one thread computes one output
 * element or a short run of them. */
#ifndef TCI_LOOP_THREAD_PER_POINT_H
#define TCI_LOOP_THREAD_PER_POINT_H

#include "emit_stages.h"

enum { TCI_PER_POINT_THREADS = 256 };

/* Threads are numbered along all outer axes but one, counted as one in row-major order; each has
 * `rows` neighbours along that one. */
typedef struct tci_per_point {
    int n_axes, *axes;
    int64_t size;       /* of those axes; 0: it is no such kernel */
    int row_axis, rows; /* -1, 1: there is none */
    bool by_lane;       /* a vector along the last axis would be read lane by lane */
} tci_per_point;

/* False: not such a kernel, or one that is better made of vectors along the last axis. */
TCI_FN bool tci_per_point_plan(const tci_kernel *k, const tci_machine *machine, tci_per_point *p);
/* Block number `chunk`, rows from rows * row on. */
TCI_FN void tci_per_point_emit(tci_build *b, const tci_per_point *p, tci_lin row, tci_lin chunk);

#endif
