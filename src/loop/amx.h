/* loop/amx.h - declares the bf16 AMX tile GEMM (tile registers of 16 x 64 bytes) from operands that
 * are not prepacked. */
#ifndef TCI_LOOP_AMX_H
#define TCI_LOOP_AMX_H

#include "gemm.h"

/* Fills *p: how the kernel is cut into blocks of columns and row tiles. */
TCI_FN void tci_amx_plan(const tci_kernel *k, tci_gemm *p);
/* As tci_gemm_emit. */
TCI_FN void tci_amx_emit(tci_build *b, const tci_gemm *p, tci_lin chunk, int begin, int end);

/* AMX is configured before, and released after, everything in between. */
TCI_FN void tci_amx_begin(tci_build *b);
TCI_FN void tci_amx_end(tci_build *b);
/* A register: cleared, or loaded or stored, 16 rows `stride` elements apart. */
TCI_FN void tci_amx_move(tci_build *b, tci_mem mem, int tile, int base, tci_lin x, int64_t stride);
/* Register `sums` takes in the product of two others. */
TCI_FN void tci_amx_add(tci_build *b, const tci_gemm *p, int sums, int rows, int columns);

#endif
