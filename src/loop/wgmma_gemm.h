/* loop/wgmma_gemm.h - declares the WGMMA GEMM: parameters of the kernel template (tiles, pipeline
 * stages, epilogue).
 *
 * The kernel is C[batch][m][n] = sum over k of A[batch][m][k] * B[batch][n][k], f32 sums of
 * products of bf16, f16 or rounded f32, followed by any elementwise epilogue. An SM runs one block
 * at a time, whose warps have three roles. One warp (the producer) loads boxes of A and B, 128
 * bytes of k at a time, into a ring of `stages` stages of shared memory. The `consumers` groups of
 * four warps multiply, 64 * sub_rows rows of the tile each, into registers, and leave the
 * accumulators in shared memory (each in a buffer of its own, or all in one, one after the other),
 * rounded as the epilogue's first step requires. The last warps, as groups of `row_threads`
 * threads, each group treated as a vector machine over a row of the tile or one of its `chunks`,
 * run the epilogue on `group_rows` rows at a time while the consumers multiply the next tile: that
 * is the template's epilogue slot. At the block's last tile the consumers help.
 *
 * Two blocks may share a side (cluster multicast): their tiles are neighbours along the other one,
 * and each loads half of the shared side's boxes for both. */
#ifndef TCI_LOOP_WGMMA_GEMM_H
#define TCI_LOOP_WGMMA_GEMM_H

#include "../kernel/match_matrix_unit.h"
#include "schedule_kind.h"

enum {
    TCI_MATRIX_DEPTH_STEP = TCI_MATRIX_LINE / 2, /* halves of k in a stage */
    TCI_MATRIX_STAGES = 12,                      /* at most */
    TCI_MATRIX_WARP = 32,
    TCI_MATRIX_SUB = 64,       /* rows that four warps multiply at once */
    TCI_MATRIX_LAST_WARPS = 3, /* warps that run the epilogue, */
    TCI_MATRIX_MORE_WARPS = 7  /* or this many, where registers suffice */
};

/* Bytes of one stage, of the buffers for accumulators, and of all shared memory with barriers and
 * the rounding up of its start. */
TCI_BLOCK_FN int64_t tci_matrix_stage_bytes(const tci_matrix *x);
TCI_BLOCK_FN int64_t tci_matrix_steps(const tci_matrix *x); /* of k */
TCI_BLOCK_FN int64_t tci_matrix_staged_bytes(const tci_matrix *x);
TCI_BLOCK_FN int64_t tci_matrix_shared_bytes(const tci_matrix *x);
/* True if the consumers hold more accumulators than twelve warps have registers for, at an equal
 * share each. */
TCI_BLOCK_FN bool tci_matrix_is_wide(const tci_matrix *x);
/* The tiles (consumers, sub_rows, columns, shares) that take least time by the model; returns how
 * many. */
TCI_BLOCK_FN int tci_matrix_candidates(const tci_kernel *k, const tci_machine *machine,
                                       int64_t tiles[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS]);
/* The time of a kernel whose contraction has TCI_ORDER_MATRIX or TCI_ORDER_TF32 with a tile
 * (consumers, sub_rows, columns, shares); -1: it does not fit. */
TCI_BLOCK_FN double tci_matrix_ns(const tci_kernel *k, const tci_machine *machine,
                                  const int64_t *tile);
/* Parts that other templates share. The rows of a tile that the epilogue takes at once, for a
 * kernel whose epilogue begins with stage `first`; */
TCI_BLOCK_FN void tci_matrix_set_groups(const tci_kernel *k, int first, tci_matrix *x);
/* where the main loop runs: on a whole number of columns or of groups of rows; */
TCI_BLOCK_FN tci_lin tci_matrix_given(tci_build *b, int axis);
/* the chain after stage `stage`, for the rows at hand. */
TCI_BLOCK_FN void tci_matrix_hole(tci_build *b, const tci_matrix *x, int stage);
/* Its kernel template, for a tile that fits; of the launch, n_tasks and task_ns. */
TCI_BLOCK_FN void tci_matrix_emit(tci_build *b, const tci_machine *machine, const int64_t *tile,
                                  tci_launch *launch);

#endif
