/* loop/amx_packed.h - declares the AMX tile GEMM over packed panels of bf16 pairs or groups of four
 * int8 values (VNNI layout). */
#ifndef TCI_LOOP_AMX_PACKED_H
#define TCI_LOOP_AMX_PACKED_H

#include "packing.h"

/* Local arrays for the accumulators of tiles: of all of `group` row tiles where there are several
 * blocks of depth. */
TCI_FN void tci_amx_packed_make(tci_gemm_state *s, int64_t group);
/* Zeros after rows that the kernel keeps, up to a whole step, which are the factor in their
 * layout: those of the tile at hand. */
TCI_FN void tci_amx_packed_end_rows(tci_gemm_state *s);
/* The block's products of the tile, tile of columns `number`: into its accumulators, which are in a
 * row after the other from the element on that is returned, or in the rows that the kernel
 * keeps. */
TCI_FN tci_lin tci_amx_packed_multiply(tci_gemm_state *s, const tci_tile *tile, tci_lin number);

#endif
