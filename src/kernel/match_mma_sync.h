/* kernel/match_mma_sync.h - declares the matcher that finds the M, N and K axes of a GEMM kernel
 * and decides whether mma.sync can compute it. */
#ifndef TCI_KERNEL_MATCH_MMA_SYNC_H
#define TCI_KERNEL_MATCH_MMA_SYNC_H

#include "ir.h"
#include "machine.h"

/* A factor, and the outer axes that it has and the other factor lacks, counted as one in row-major
 * order. */
typedef struct tci_gemm_kernel_axes {
    int inst;
    int n_axes, *axes;
    int64_t size; /* of all axes */
} tci_gemm_kernel_axes;

typedef struct tci_gemm_kernel_sides {
    tci_gemm_kernel_axes rows, columns; /* the columns have the last axis */
    int64_t depth;                      /* of the contracted axes, counted as one */
} tci_gemm_kernel_sides;

/* A kernel whose first stage is a DOT of two factors and whose others are pointwise, of sizes that
 * are ints. */
TCI_BLOCK_FN bool tci_gemm_kernel_find(const tci_kernel *k, tci_gemm_kernel_sides *p);
/* Description of a warp's matrix instruction. */
typedef struct tci_mma_sync_unit {
    int insts[2];       /* the factors of rows and columns, bytes often before they are widened, */
    tc_dtype dtypes[2]; /* and their dtypes: one of TC_F16, TC_BF16, TC_F64, TC_F32, which is
                         * rounded (TF32), or each one of TC_I8, TC_U8 */
    tc_dtype sums;      /* TC_F32, TC_F64, TC_I32 */
    bool is_exact;      /* these are the same in any order */
} tci_mma_sync_unit;
/* False: by threads. */
TCI_FN bool tci_mma_sync_takes(const tci_kernel *k, const tci_machine *machine,
                               tci_mma_sync_unit *unit);

#endif
