/* src/tc_cuda.h - root of the CUDA backend: CUDA source by NVRTC. Brought in by tc.h under TC_CUDA,
 * with or without tc_cpu.h. */
#include "cuda/matrix.c"
#include "cuda/attention.c"
#include "cuda/backward.c"
#include "cuda/custom.c"
#include "cuda/flash.c"
#include "cuda/dialect.c"
#include "cuda/load.c"
#include "cuda/nvrtc.c"
#include "cuda/device.c"
#include "cuda/queue.c"
#include "cuda/loop.c"
#include "cuda/backend.c"
