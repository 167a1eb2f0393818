/* cuda/public_calls.c - implements api/cuda.h: allocates, frees and copies GPU memory, and wraps a
 * CUDA stream as a queue.
 *
 * In: sizes, pointers, streams of the caller. Out: memory of a device, queues. */
#include <string.h>

#include "../compile/backend_registry.h"
#include "../run/async_queue.h"
#include "device.h"

#define TCI_CUDA_LEGACY ((void *)(uintptr_t)1) /* CU_STREAM_LEGACY */

static bool tci_cuda_works(tci_cuda_device *d)
{
    tc_backend_target target;
    memset(&target, 0, sizeof(target));
    if (d) {
        tci_cuda_target(d, 0, &target);
    }
    if (target.usable) {
        tci_backend_has_memory("cuda");
    }
    return target.usable;
}

TC_API tc_status tc_cuda_alloc_on(int device, int64_t bytes, void **memory)
{
    tci_cuda_device *d = tci_cuda_get(device);
    if (!memory || bytes < 0) {
        return TC_ERR_ARGUMENT;
    }
    *memory = NULL;
    if (!tci_cuda_works(d)) {
        return TC_ERR_BACKEND;
    }
    *memory = tci_cuda_get_memory(d, TCI_MAX(bytes, (int64_t)1));
    return *memory ? TC_OK : TC_ERR_MEMORY;
}

TC_API tc_status tc_cuda_alloc(int64_t bytes, void **memory)
{
    return tc_cuda_alloc_on(0, bytes, memory);
}

/* The driver knows whose it is. */
TC_API void tc_cuda_free(void *memory)
{
    if (memory && tci_cuda_works(tci_cuda_get(0))) {
        tci_cuda_free_memory(NULL, memory);
    }
}

TC_API tc_status tc_cuda_copy(void *to, const void *from, int64_t bytes)
{
    if (bytes < 0 || (bytes > 0 && (!to || !from))) {
        return TC_ERR_ARGUMENT;
    }
    if (!tci_cuda_works(tci_cuda_get(0))) {
        return TC_ERR_BACKEND;
    }
    return bytes ? tci_cuda_copy(NULL, to, from, bytes) : TC_OK;
}

TC_API tc_status tc_cuda_queue(int device, void *stream, tc_queue **queue)
{
    tci_cuda_device *d = tci_cuda_get(device);
    if (!queue) {
        return TC_ERR_ARGUMENT;
    }
    *queue = NULL;
    if (!tci_cuda_works(d)) {
        return TC_ERR_BACKEND;
    }
    const tc_backend *backend = tci_cuda_backend()->device(NULL, device);
    *queue = tci_queue_over(backend, stream ? stream : TCI_CUDA_LEGACY);
    return *queue ? TC_OK : TC_ERR_MEMORY;
}

#undef TCI_CUDA_LEGACY
