/* loop/gemm_operands.h - declares GEMM operands: which axes of a contraction are M and N. */
#ifndef TCI_LOOP_GEMM_OPERANDS_H
#define TCI_LOOP_GEMM_OPERANDS_H

#include "gemm.h"

enum {
    TCI_AMX_PACKED_SIDE = 16, /* rows, elements or columns of a unit's register */
    TCI_GEMM_COLUMNS = 256,   /* of a block, where its panel leaves this many */
    TCI_GEMM_PAGE = 4096,     /* bytes that all sets of the first cache share */
    TCI_GEMM_WAYS = 8,        /* lines that a set of it holds, at least */
    TCI_GEMM_LINE = 64        /* bytes of a cache line */
};

/* Access pattern of an operand along an axis. */
typedef struct tci_gemm_access {
    bool contiguous; /* each load is contiguous along the axis or does not depend on it */
    bool strided;    /* some load has steps along the axis */
    bool far;        /* and these of a cache line or more */
    bool computed;   /* more than one load, or converted when it is loaded */
} tci_gemm_access;

/* Of all that instruction inst is made of. */
TCI_FN tci_gemm_access tci_gemm_examine(const tci_kernel *k, int inst, int axis);
/* The rows' and the columns' factors and what is to know of them, but for sides of several axes:
 * `vec` is the DOT's factor along the vectors. False: the two do not fit. */
TCI_FN bool tci_gemm_factors(const tci_kernel *k, int lanes, int vec, tci_gemm *p);
/* The columns of the panels that the vector factor is in, one whole vector after the other, or
 * several points in an element; 0: it is in none. */
TCI_FN int64_t tci_gemm_panel(const tci_kernel *k, const tci_gemm *p, bool *paired);
/* Points that an element of its panels may hold, 1: one. */
static inline int tci_gemm_points(const tci_kernel *k, const tci_gemm *p)
{
    return TCI_MAX(k->reds[p->red].points, p->on_unit ? 2 : 1);
}
/* Inner points that a unit takes at once. */
static inline int64_t tci_gemm_step(const tci_kernel *k, const tci_gemm *p)
{
    return TCI_AMX_PACKED_SIDE * tci_gemm_points(k, p);
}
/* Vectors of columns that are multiplied at a point in a cycle: of several points this many for
 * each port. */
TCI_FN int tci_gemm_vectors_per_cycle(const tci_kernel *k, tci_machine machine, const tci_gemm *p);
/* Cycles of packing as many elements of the row factor as vectors have lanes. */
TCI_FN double tci_gemm_row_cycles(const tci_kernel *k, int lanes, const tci_gemm *p);
/* True if the lines that a tile reads through this load, one for each point of the only inner axis,
 * evict each other from a set of the L1 cache or of the TLB. */
TCI_FN bool tci_gemm_has_set_conflicts(const tci_kernel *k, const tci_gemm *p, int load);

#endif
