/* cuda/driver_api.h - declares the CUDA driver and NVRTC as tables of functions, opened at run
 * time: no CUDA headers. Names and values: CUDA 13 driver API reference. */
#ifndef TCI_CUDA_DRIVER_API_H
#define TCI_CUDA_DRIVER_API_H

#include <stddef.h>

#include "../api/backend.h"
#include "../base/platform.h"

typedef unsigned long long tci_cu_ptr; /* device address */

typedef struct tci_cu_kernel_params { /* CUDA_KERNEL_NODE_PARAMS_v2 */
    void *function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void **params;
    void **extra;
    void *kernel, *context;
} tci_cu_kernel_params;

typedef struct tci_cu_conditional { /* CUgraphNodeParams of a conditional node */
    int type, reserved[3];
    unsigned long long handle;
    int kind; /* CUgraphConditionalNodeType */
    unsigned n_bodies;
    void **bodies; /* out: a graph */
    void *context;
    long long rest[26]; /* of a union of 29 words, and one more */
} tci_cu_conditional;

/* X(field, symbol, arguments) */
#define TCI_CU_ROWS(X)                                                                            \
    X(init, "cuInit", (unsigned))                                                                 \
    X(error_name, "cuGetErrorName", (int, const char **))                                         \
    X(driver_version, "cuDriverGetVersion", (int *))                                              \
    X(device_get, "cuDeviceGet", (int *, int))                                                    \
    X(device_name, "cuDeviceGetName", (char *, int, int))                                         \
    X(device_attribute, "cuDeviceGetAttribute", (int *, int, int))                                \
    X(context_retain, "cuDevicePrimaryCtxRetain", (void **, int))                                 \
    X(context_get, "cuCtxGetCurrent", (void **))                                                  \
    X(context_set, "cuCtxSetCurrent", (void *))                                                   \
    X(context_wait, "cuCtxSynchronize", (void))                                                   \
    X(stream_create, "cuStreamCreate", (void **, unsigned))                                       \
    X(stream_free, "cuStreamDestroy_v2", (void *))                                                \
    X(stream_wait, "cuStreamSynchronize", (void *))                                               \
    X(stream_after, "cuStreamWaitEvent", (void *, void *, unsigned))                              \
    X(event_create, "cuEventCreate", (void **, unsigned))                                         \
    X(event_free, "cuEventDestroy_v2", (void *))                                                  \
    X(event_record, "cuEventRecord", (void *, void *))                                            \
    X(event_wait, "cuEventSynchronize", (void *))                                                 \
    X(event_elapsed, "cuEventElapsedTime", (float *, void *, void *))                             \
    X(module_load, "cuModuleLoadData", (void **, const void *))                                   \
    X(module_find, "cuModuleGetFunction", (void **, void *, const char *))                        \
    X(module_free, "cuModuleUnload", (void *))                                                    \
    X(function_attribute, "cuFuncGetAttribute", (int *, int, void *))                             \
    X(launch, "cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned,        \
                                 unsigned, unsigned, void *, void **, void **))                   \
    X(memory_left, "cuMemGetInfo_v2", (size_t *, size_t *))                                        \
    X(alloc, "cuMemAlloc_v2", (tci_cu_ptr *, size_t))                                             \
    X(free, "cuMemFree_v2", (tci_cu_ptr))                                                         \
    X(host_alloc, "cuMemHostAlloc", (void **, size_t, unsigned))                                  \
    X(host_free, "cuMemFreeHost", (void *))                                                       \
    X(copy, "cuMemcpyAsync", (tci_cu_ptr, tci_cu_ptr, size_t, void *))                            \
    X(pointer_attribute, "cuPointerGetAttribute", (void *, int, tci_cu_ptr))                      \
    X(graph_create, "cuGraphCreate", (void **, unsigned))                                         \
    X(graph_add_kernel, "cuGraphAddKernelNode_v2",                                                \
      (void **, void *, void *const *, size_t, const tci_cu_kernel_params *))                     \
    X(graph_instantiate, "cuGraphInstantiateWithFlags", (void **, void *, unsigned long long))    \
    X(graph_launch, "cuGraphLaunch", (void *, void *))                                            \
    X(graph_exec_free, "cuGraphExecDestroy", (void *))                                            \
    X(graph_free, "cuGraphDestroy", (void *))                                                     \
    X(module_global, "cuModuleGetGlobal_v2", (tci_cu_ptr *, size_t *, void *, const char *))      \
    X(function_set, "cuFuncSetAttribute", (void *, int, int))

/* Functions of drivers since 12.0, and 12.4: NULL in older ones. */
#define TCI_CU_NEWER_ROWS(X)                                                                      \
    X(tensor_map, "cuTensorMapEncodeTiled",                                                       \
      (void *, int, unsigned, void *, const uint64_t *, const uint64_t *, const unsigned *,       \
       const unsigned *, int, int, int, int))                                                     \
    X(place_map, "cuTensorMapEncodeIm2col",                                                       \
      (void *, int, unsigned, void *, const uint64_t *, const uint64_t *, const int *,            \
       const int *, unsigned, unsigned, const unsigned *, int, int, int, int))                    \
    X(graph_handle, "cuGraphConditionalHandleCreate",                                             \
      (unsigned long long *, void *, void *, unsigned, unsigned))                                 \
    X(graph_add, "cuGraphAddNode",                                                                \
      (void **, void *, void *const *, size_t, tci_cu_conditional *))

#define TCI_NVRTC_ROWS(X)                                                                         \
    X(version, "nvrtcVersion", (int *, int *))                                                    \
    X(create, "nvrtcCreateProgram",                                                               \
      (void **, const char *, const char *, int, const char *const *, const char *const *))       \
    X(compile, "nvrtcCompileProgram", (void *, int, const char *const *))                         \
    X(log_size, "nvrtcGetProgramLogSize", (void *, size_t *))                                     \
    X(log, "nvrtcGetProgramLog", (void *, char *))                                                \
    X(cubin_size, "nvrtcGetCUBINSize", (void *, size_t *))                                        \
    X(cubin, "nvrtcGetCUBIN", (void *, char *))                                                   \
    X(destroy, "nvrtcDestroyProgram", (void **))

#define TCI_ROW(field, symbol, arguments) int (*field) arguments;
typedef struct tci_cu {
    TCI_CU_ROWS(TCI_ROW)
    TCI_CU_NEWER_ROWS(TCI_ROW)
} tci_cu;
typedef struct tci_nvrtc {
    TCI_NVRTC_ROWS(TCI_ROW)
} tci_nvrtc;
#undef TCI_ROW

/* A fork finds the lock of this file free. */
TCI_FN void tci_cu_keep_over_fork(void);
/* Process lifetime, opened at the first call; NULL: *why says why. Both from any thread. */
TCI_FN const tci_cu *tci_cu_get(const char **why);
TCI_FN const tci_nvrtc *tci_nvrtc_get(const char **why);
/* The file that tci_nvrtc_get would open, found without opening it: "" when nothing is found. */
TCI_FN const char *tci_nvrtc_path(void);

#endif
