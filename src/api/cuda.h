/* api/cuda.h - GPU memory, for programs of the "cuda" backend. Declared under TC_CUDA.
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

/* bytes >= 0, aligned to 256. TC_ERR_ARGUMENT: less, or memory is NULL; TC_ERR_BACKEND: no GPU
 * works here; TC_ERR_MEMORY. The caller frees. */
TC_API tc_status tc_cuda_alloc(int64_t bytes, void **memory);
/* On the GPU of that number (tc_options.device); elsewhere programs copy what is stored there. */
TC_API tc_status tc_cuda_alloc_on(int device, int64_t bytes, void **memory);
TC_API void tc_cuda_free(void *memory); /* NULL is fine */
/* Either side may be memory of the host or of the device. Returns when the bytes are there.
 * TC_ERR_ARGUMENT: bytes < 0, or NULL where there are some; TC_ERR_BACKEND: no GPU works here, or
 * it refuses. */
TC_API tc_status tc_cuda_copy(void *to, const void *from, int64_t bytes);
/* A queue (tc_run_async) whose kernels go to a CUDA stream of the user on the GPU of that number: a
 * CUstream or cudaStream_t, NULL for the legacy default stream. What is on the stream before
 * tc_run_async comes before the run, what comes later after it. Outputs in host memory are there
 * when the event is reached, as ever. The stream outlives the queue, which runs programs of that
 * GPU alone; the caller frees it with tc_queue_free. TC_ERR_BACKEND: no such GPU works here;
 * TC_ERR_MEMORY. */
TC_API tc_status tc_cuda_queue(int device, void *stream, tc_queue **queue);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
