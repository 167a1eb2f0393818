/* loop/flash_attention.h - declares the schedules of fused attention and its gradients on GPUs
 * (kernel/match_attention.h): on tensor cores (WGMMA) or on SIMT threads.
 *
 * A block takes tiles of rows, one after the other, and streams the other side in steps.
 *
 * On tensor cores a tile has 64 rows for each of its `consumers` groups of four warps. One thread
 * of four more warps loads the rows of a tile and then, step by step, the operands of the steps
 * into rings. A consumer multiplies them into registers and computes the weights, or the gradients
 * of scores, from these; rounded, they are directly the first operand of the last products.
 *   Online: each score is exponentiated relative to the row's maximum so far, the sums of a step
 * are made while the exponentials of the next one are, and they are divided after the last step.
 *   Otherwise values of a query alone are evaluated once: of rows by the consumers, of steps by
 * another of the four warps, which stores them next to the step.
 *   After the last step the sums are left in shared memory, one product after the other, as in
 * loop/wgmma_gemm.h, where the same warps run the rest of the kernel on their rows; the consumers
 * of a gradient take turns if there is no memory for the sums of all.
 *
 * On threads, for f32 and for half precision without tensor cores, a block of TCI_FLASH_THREADS
 * threads has all of the above in shared memory as f32. Half a warp has every eighth row, each of
 * its lanes every 16th element of the step; sums are one chain. Scores pass between lanes through
 * shared memory of their own.
 *
 * Slots (tci_loop.scores), in this order: unless online, the values of a query, and, if keys are
 * cut off, their score; the score of any key; if keys are cut off, the score of a key that the
 * query sees; with two first products, the gradient of a score; with two last products, the rows of
 * the second. The rows of the first, and the stores of row statistics, are the epilogue slot. */
#ifndef TCI_LOOP_FLASH_ATTENTION_H
#define TCI_LOOP_FLASH_ATTENTION_H

#include "../kernel/match_attention.h"
#include "wgmma_gemm.h"

enum {
    TCI_FLASH_THREADS = 128,
    TCI_FLASH_LANES = 16, /* that share a row, */
    TCI_FLASH_GROUPS = TCI_FLASH_THREADS / TCI_FLASH_LANES,
    TCI_FLASH_PAD = 4 /* and elements after each row in shared memory: banks differ */
};

/* Slot of a chain, as if all were there. */
enum {
    TCI_ATTENTION_SLOT_VALUES,
    TCI_ATTENTION_SLOT_OFF,
    TCI_ATTENTION_SLOT_SCORE,
    TCI_ATTENTION_SLOT_SEEN,
    TCI_ATTENTION_SLOT_CHANGE,
    TCI_ATTENTION_SLOT_ROWS,
    TCI_ATTENTION_N_SLOTS
};

/* Elements of a row in memory are loaded 64 at a time: the number of such slabs. */
static inline int tci_attention_slabs(int64_t size)
{
    return (int)((size + TCI_MATRIX_DEPTH_STEP - 1) / TCI_MATRIX_DEPTH_STEP);
}

/* Columns in memory of what the last product of an online chain takes; keys have d. */
static inline int64_t tci_attention_value_columns(const tci_attention *x)
{
    return x->only_rows ? TCI_MIN(x->in[1].k, x->in[0].k) : x->in[1].k;
}

/* True if consumers store their sums in turns. */
static inline bool tci_attention_leaves_in_turns(const tci_attention *x)
{
    return x->out[0].buffers < x->out[0].consumers;
}

/* True if the chain has that slot. */
TCI_FN bool tci_attention_has_slot(const tci_attention *x, int slot);
/* Bytes of shared memory on tensor cores: of a tile's rows, of operand i of a step, of a step's
 * values, and of the sums that are left. */
TCI_FN int64_t tci_attention_rows_bytes(const tci_attention *x);
TCI_FN int64_t tci_attention_step_bytes(const tci_attention *x, int i);
TCI_FN int64_t tci_attention_values_bytes(const tci_attention *x);
TCI_FN int64_t tci_attention_staged_bytes(const tci_attention *x);
/* On threads: floats between the rows of this many elements, and elements of a row of operand i. */
TCI_FN int tci_attention_pitch(int64_t size);
TCI_FN int64_t tci_attention_width(const tci_attention *x, int i);
/* Bytes of all shared memory, on either. */
TCI_FN int64_t tci_attention_shared_bytes(const tci_attention *x);
/* The tiles worth weighing: (consumers, rows of a step, whether consumers take turns) or, by
 * threads, (rows, rows of a step); how many. */
TCI_FN int tci_attention_tiles(const tci_kernel *k, bool by_threads,
                               int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS]);
/* The time of a kernel of attention with such a tile; -1: it does not fit. */
TCI_FN double tci_attention_ns(const tci_kernel *k, const tci_machine *machine, bool by_threads,
                               const int64_t *tile);
/* Its kernel template, for a tile that fits; of the launch, n_tasks and task_ns. */
TCI_FN void tci_attention_emit(tci_build *b, const tci_machine *machine, bool by_threads,
                               const int64_t *tile, tci_launch *launch);

#endif
