/* api/cuda.h - public API of the CUDA backend: allocates, frees and copies GPU memory, and wraps a
 * user-supplied CUDA stream as a queue. Declared under TC_CUDA.
 *
 * tc_run accepts pointers to it like any others, through TC_BUF((float *)memory, n): inputs are
 * then not copied to the device, nor outputs back. Pointers of the CUDA runtime and driver are
 * accepted as well. Programs of "cpu" and "interp", and calls that copy on the host (tc_read,
 * tc_copy_in, tc_param_write, buffers with strides), refuse such memory with TC_ERR_BUFFER, once a
 * program or call of tc has found the GPU. */
#ifndef TC_API_CUDA_H
#define TC_API_CUDA_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- memory and streams of CUDA: with TC_CUDA ---- */

/* bytes >= 0, aligned to 256. TC_ERR_ARGUMENT: less, or memory is NULL; TC_ERR_BACKEND: no GPU
 * works here; TC_ERR_MEMORY. The caller frees. */
TC_API tc_status tc_cuda_alloc(int64_t bytes, void **memory);
/* On the GPU of that number (tc_options.device); programs of other devices copy that memory. */
TC_API tc_status tc_cuda_alloc_on(int device, int64_t bytes, void **memory);
TC_API void tc_cuda_free(void *memory); /* NULL is ignored */
/* Copies between host and device memory in any direction. Returns when the copy is complete.
 * TC_ERR_ARGUMENT: bytes < 0, or NULL with bytes > 0; TC_ERR_BACKEND: no usable GPU, or the driver
 * fails. */
TC_API tc_status tc_cuda_copy(void *to, const void *from, int64_t bytes);
/* Makes a queue (tc_run_async) whose kernels go to an existing CUDA stream of the GPU of that
 * number: a CUstream or cudaStream_t, NULL for the legacy default stream. Work submitted to the
 * stream before tc_run_async executes before the run, later work after it. Outputs in host memory
 * are complete when the event is, as with other queues. The stream must outlive the queue, which
 * runs programs of that GPU only; the caller frees the queue with tc_queue_free. TC_ERR_BACKEND: no
 * such usable GPU; TC_ERR_MEMORY. */
TC_API tc_status tc_cuda_queue(int device, void *stream, tc_queue **queue);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
