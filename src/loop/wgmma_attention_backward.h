/* loop/wgmma_attention_backward.h - declares the gradients of fused attention on WGMMA: parameters
 * of the kernel template (tiles, consumer warps, pipeline stages).
 *
 * A block takes tiles of rows, 64 for each of its consumers, groups of four warps. One thread of
 * four more warps loads the two operands of the block's row tile, and then for each step its two
 * operand tiles, into a ring buffer. A consumer multiplies them into registers, two products, and
 * computes from these the weights and the gradients of scores; rounded, these are directly the
 * first operands of the products with the steps. If only weights are needed, there is one product,
 * and only the steps have the other operand. Per-query values (m, l, ...) are evaluated once: of
 * rows by the consumers, of steps by another of the four warps, which stores them next to the step.
 * After the last step the accumulators are left in shared memory, one product after the other, as
 * in loop/wgmma_gemm.h, where the same warps run the rest of the kernel on their rows; two
 * consumers take turns if there is no shared memory for the accumulators of both.
 *
 * Blocks (tci_loop.scores): per-query values; if keys are masked out, their score; the score of any
 * key; if keys are masked out, of a visible one; unless only weights are needed, the gradient of a
 * score; with two last products, the rows of the second. The rows of the first are the epilogue
 * slot. */
#ifndef TCI_LOOP_WGMMA_ATTENTION_BACKWARD_H
#define TCI_LOOP_WGMMA_ATTENTION_BACKWARD_H

#include "../kernel/match_attention_backward.h"
#include "wgmma_attention.h"

enum { TCI_BACKWARD_TILES = 8 };

/* Bytes in shared memory: of the factors of a tile's rows, of those of a step and of its values, of
 * what is left of the accumulators, and of all with barriers and the rounding up of its start. The
 * second factors are after the first. */
TCI_FN int64_t tci_attn_grad_rows_bytes(const tci_attn_grad *x);
TCI_FN int64_t tci_attn_grad_step_bytes(const tci_attn_grad *x);
TCI_FN int64_t tci_attn_grad_values_bytes(const tci_attn_grad *x);
TCI_FN int64_t tci_attn_grad_staged_bytes(const tci_attn_grad *x);
TCI_FN int64_t tci_attn_grad_shared_bytes(const tci_attn_grad *x);
/* True if consumers store their accumulators in turns. */
static inline bool tci_attn_grad_turns(const tci_attn_grad *x)
{
    return x->out[0].buffers < x->out[0].consumers;
}
/* Parts that the SIMT form shares: columns of the last products, and how their rows are spread over
 * threads; the blocks, and the epilogue slot. */
TCI_FN void tci_attn_grad_columns(const tci_kernel *k, tci_attn_grad *x);
TCI_FN void tci_attn_grad_holes(tci_build *b, tci_attn_grad *x);
/* The numbers of a tile worth weighing (consumers, rows of a step); how many. */
TCI_FN int tci_attn_grad_tiles(int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS]);
/* The time of a kernel with such a tile; -1: it does not fit. */
TCI_FN double tci_attn_grad_ns(const tci_kernel *k, const tci_machine *machine,
                               const int64_t *tile);
/* Its kernel template, for a tile that fits; of the launch, n_tasks and task_ns. */
TCI_FN void tci_attn_grad_emit(tci_build *b, const tci_machine *machine, const int64_t *tile,
                               tci_launch *launch);

#endif
