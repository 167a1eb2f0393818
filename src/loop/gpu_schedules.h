/* loop/gpu_schedules.h - declares the schedule kinds of GPUs; the table is empty in builds without
 * GPU support.
 *
 * The files of src/tc_gpu.h are included only in builds with a GPU backend. Without them
 * plan/no_gpu.c answers that no such schedule exists. */
#ifndef TCI_LOOP_GPU_SCHEDULES_H
#define TCI_LOOP_GPU_SCHEDULES_H

#include "schedule_kind.h"

/* True if the files of src/tc_gpu.h are part of this build. */
TCI_FN bool tci_blocks_are_joined(void);
/* The schedules of GPUs, and of their warps (loop/mma_gemm.c); each ends with NULL. */
TCI_FN const tci_form *const *tci_block_forms(void);
TCI_FN const tci_form *const *tci_mma_forms(void);
/* The cheapest tile of loop/simt_gemm.c for the contraction, in nanoseconds; -1: none fits. */
TCI_FN double tci_products_least_ns(const tci_query *a);

/* Shared by GPU and CPU schedules. loop/tile_schedules.c: True if vectors run along the last outer
 * axis of more than one MAP. */
TCI_FN bool tci_tile_is_kernel(const tci_query *a);
TCI_FN bool tci_tile_has_dot(const tci_kernel *k);
/* Lanes of the vectors along the vector axis, for each of its elements. */
TCI_FN double tci_tile_lost(const tci_query *a, int64_t lanes);
/* Cost of a contraction that reads its operands in place: on GPUs, no less than in tiles, which
 * have been faster wherever there are rows and columns for them. */
TCI_FN double tci_tile_in_place(const tci_query *a, double ns);
/* loop/pointwise_schedules.c: factor for vectors of a block along an axis so short that most lanes
 * are empty. */
TCI_FN double tci_map_idle_lanes_factor(const tci_query *a);
/* loop/row_schedule.c: blocks of this many rows each. */
TCI_FN int64_t tci_rows_blocks(const tci_query *a, int64_t rows);
/* As tci_query_ns, where this many threads take a row: with what else each of them does, and no
 * sooner than one of them is done. */
TCI_FN double tci_rows_ns(const tci_query *a, int64_t threads, double flops, double bytes);
/* The time in which the blocks of a device start, of this many rows each. */
TCI_FN double tci_rows_start_ns(const tci_query *a, int64_t rows);

#endif
