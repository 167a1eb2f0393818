/* src/tc_cuda.h - amalgamation root of tc_cuda.h: GPU schedules and planner passes, and the CUDA
 * backend (CUDA source compiled by NVRTC). Included by tc.h, with or without tc_cpu.h: under
 * TC_BLOCKS only the schedules and passes, for a user-defined device; under TC_CUDA all of it. */
#include "tc_gpu.h"

#ifdef TCI_HAS_CUDA
#include "cuda/wgmma_gemm.c"
#include "cuda/wgmma_attention.c"
#include "cuda/simt_attention.c"
#include "cuda/flash_attention.c"
#include "cuda/emit_custom_op.c"
#include "cuda/mma_sync.c"
#include "cuda/dialect.c"
#include "cuda/driver_api.c"
#include "cuda/nvrtc.c"
#include "cuda/device.c"
#include "cuda/memory.c"
#include "cuda/queue.c"
#include "cuda/graph_while.c"
#include "cuda/backend.c"
#include "cuda/public_calls.c"
#endif
