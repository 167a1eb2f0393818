/* loop/wgmma_attention.h - declares fused attention on WGMMA: parameters of the kernel template
 * (tiles, consumer warps, pipeline stages).
 *
 * A block takes tiles of queries, 64 for each of its `consumers` groups of four warps. One thread
 * of four more warps loads the queries of a tile and then, step by step, keys and values into
 * rings. A consumer multiplies queries and keys into registers, passes each score through the
 * kernel's expression (the slot for scores), and exponentiates the step's scores relative to the
 * row's maximum so far; rounded, these are directly the first operand of the product with the
 * values. The accumulators of a step are updated while the exponentials of the next one are
 * computed. After the last step they are divided and left in shared memory as in loop/wgmma_gemm.h,
 * where the same warps run the rest of the kernel on their rows. */
#ifndef TCI_LOOP_WGMMA_ATTENTION_H
#define TCI_LOOP_WGMMA_ATTENTION_H

#include "../kernel/match_attention.h"
#include "wgmma_gemm.h"

enum { TCI_ATTENTION_TILES = 6 };

/* Elements of a row in memory are loaded 64 at a time: how many such slabs. */
static inline int tci_attention_slabs(int64_t size)
{
    return (int)((size + TCI_MATRIX_DEPTH_STEP - 1) / TCI_MATRIX_DEPTH_STEP);
}

/* Columns of values in memory; keys have d. */
static inline int64_t tci_attention_value_columns(const tci_attention *x)
{
    return x->is_rows ? TCI_MIN(x->result.n, x->scores.k) : x->result.n;
}

/* Bytes in shared memory: of the queries, of one step's keys, of its values, of what is left of the
 * accumulators, and of all with barriers and the rounding up of its start. */
TCI_FN int64_t tci_attention_queries_bytes(const tci_attention *x);
TCI_FN int64_t tci_attention_keys_bytes(const tci_attention *x);
TCI_FN int64_t tci_attention_values_bytes(const tci_attention *x);
TCI_FN int64_t tci_attention_shared_bytes(const tci_attention *x);
/* Parts that the form by threads shares. What a product has of tiles of so many rows; columns of
 * the values, and how a row of the result is spread over threads; */
TCI_FN void tci_attention_tiles(tci_matrix *x, int rows);
TCI_FN void tci_attention_columns(tci_matrix *x);
/* values `makes` of a point, of which these are `given`, as a block of its own, which knows the
 * axes that it asks for; */
TCI_FN tci_loop *tci_attention_hole(tci_build *of, const tci_matrix *x, uint64_t axes,
                                    const int32_t *given, int n_given, const int32_t *makes,
                                    int n_makes);
/* the blocks for scores, the values of a row, and the epilogue slot. */
TCI_FN void tci_attention_holes(tci_build *b, tci_attention *x);
/* The time of a kernel of attention with a tile (consumers, keys of a step, whether they take
 * turns); -1: it does not fit. */
TCI_FN double tci_attention_ns(const tci_kernel *k, const tci_machine *machine,
                               const int64_t *tile);
/* Its kernel template, for a tile that fits; of the launch, n_tasks and task_ns. */
TCI_FN void tci_attention_emit(tci_build *b, const tci_machine *machine, const int64_t *tile,
                               tci_launch *launch);

#endif
