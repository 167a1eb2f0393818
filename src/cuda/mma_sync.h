/* cuda/mma_sync.h - declares the CUDA code generator of the GEMM on mma.sync, the warp-level
 * tensor-core instruction. */
#ifndef TCI_CUDA_MMA_SYNC_H
#define TCI_CUDA_MMA_SYNC_H

#include "../base/str.h"
#include "../loop/intrinsics.h"

/* The text of an access: see tci_cuda_rows in cuda/dialect.c. */
typedef struct tci_cuda_row {
    uint8_t mem;
    const char *name, *text;
} tci_cuda_row;

/* The row of a statement of mma.sync; NULL: it is none. */
TCI_FN const tci_cuda_row *tci_cuda_warps_row(tci_mem m);
/* Definitions that the rows share. */
TCI_FN void tci_cuda_warps_prelude(tci_str *out);

#endif
