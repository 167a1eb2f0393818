/* loop/mma_gemm.h - declares the mma.sync GEMM: shared-memory panels, accumulators in the registers
 * of warps. */
#ifndef TCI_LOOP_MMA_GEMM_H
#define TCI_LOOP_MMA_GEMM_H

#include "gpu_schedules.h"

#endif
