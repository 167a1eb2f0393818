/* src/tc_cuda.h - root of tc_cuda.h: schedules and passes of GPUs, and the CUDA backend. Included
 * by tc.h, with or without tc_cpu.h: under TC_BLOCKS the schedules and passes for a user-defined
 * device, under TC_CUDA the CUDA backend too, which compiles CUDA source with NVRTC. */
#include "tc_blocks.h"

#ifdef TCI_HAS_CUDA
#include "cuda/wgmma.c"
#include "cuda/wgmma_attention.c"
#include "cuda/wgmma_attention_backward.c"
#include "cuda/custom_op.c"
#include "cuda/simt_attention.c"
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
