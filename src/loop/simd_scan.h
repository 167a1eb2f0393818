/* loop/simd_scan.h - declares inclusive scans (prefix sums) vectorized along their axis. */
#ifndef TCI_LOOP_SIMD_SCAN_H
#define TCI_LOOP_SIMD_SCAN_H

#include "reduction_step.h"
#include "stage_tile.h"
#include "vectorize.h"

TCI_FN void tci_stage_scan_inner(tci_build *b, int stage, int next_axis);
/* The same where vecs are bindings of the one axis, all of it: it is read before any is stored. */
TCI_FN void tci_scan_vectors(tci_build *b, int stage, int n, const tci_bind **vecs);

#endif
