/* api/cuda.h - memory of the GPU, for programs of the "cuda" backend. Declared under TC_CUDA.
 *
 * tc_run takes pointers to it like any others, through TC_BUF((float *)memory, n): inputs are then
 * not copied to the device nor outputs back. Pointers of the CUDA runtime and driver do as well. */
#ifndef TC_API_CUDA_H
#define TC_API_CUDA_H

#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bytes >= 0, aligned to 256. TC_ERR_BACKEND: no GPU works here; TC_ERR_MEMORY. The caller
 * frees. */
TC_API tc_status tc_cuda_alloc(int64_t bytes, void **memory);
TC_API void tc_cuda_free(void *memory); /* NULL is fine */
/* Either side may be memory of the host or of the device. Returns when the bytes are there. */
TC_API tc_status tc_cuda_copy(void *to, const void *from, int64_t bytes);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
