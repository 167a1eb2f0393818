/* tests/cuda/fake_driver.h - a CUDA driver for machines without one: memory is the host's, launches
 * are only counted. fake_install puts it in the place of the opened library. Include after tc.h
 * with its implementation and TC_CUDA. */
#ifndef TC_TEST_FAKE_DRIVER_H
#define TC_TEST_FAKE_DRIVER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fake_process, fake_calls_in_child, fake_graph_launches, fake_launches, fake_copies;
static int fake_nodes;
/* What a module says of a kernel with a main loop of its own; NULL: it has none. */
static const tci_cuda_skeleton *fake_skeleton;
static int fake_shared_bytes;                 /* that were asked for it */
static tci_cu_kernel_params fake_last_node;
static struct { void *address; uint64_t dim[5], stride[4]; unsigned rank, box[5]; } fake_maps[2];
static int fake_n_maps;

/* In a child made by fork the real driver fails or hangs: any call there is a mistake. */
static int fake_call(void)
{
    if (fake_process == 0) {
        fake_process = (int)getpid();
    }
    fake_calls_in_child += fake_process != (int)getpid();
    return 0;
}

static int fake_cuInit(unsigned flags) { return fake_call() + (flags != 0); }
static int fake_cuGetErrorName(int code, const char **name)
{
    (void)code;
    *name = "CUDA_ERROR_FAKE";
    return fake_call();
}
static int fake_cuDriverGetVersion(int *version)
{
    *version = 13000;
    return fake_call();
}
static int fake_cuDeviceGet(int *device, int i)
{
    *device = i;
    return fake_call();
}
static int fake_cuDeviceGetName(char *name, int n, int device)
{
    (void)device;
    snprintf(name, (size_t)n, "fake");
    return fake_call();
}
static int fake_cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == 75 ? 9 : 0;
    return fake_call();
}
static int fake_cuDevicePrimaryCtxRetain(void **context, int device)
{
    (void)device;
    *context = &fake_process;
    return fake_call();
}
static int fake_cuCtxSetCurrent(void *context) { return fake_call() + (context != &fake_process); }
static int fake_cuStreamCreate(void **stream, unsigned flags)
{
    (void)flags;
    *stream = &fake_process;
    return fake_call();
}
static int fake_cuStreamSynchronize(void *stream)
{
    return fake_call() + (stream != &fake_process);
}
static int fake_cuModuleLoadData(void **module, const void *image)
{
    *module = &fake_process;
    return fake_call() + (image == NULL);
}
static int fake_cuModuleGetFunction(void **function, void *module, const char *name)
{
    (void)name;
    *function = module;
    return fake_call();
}
static int fake_cuModuleUnload(void *module) { return fake_call() + (module != &fake_process); }
static int fake_cuFuncGetAttribute(int *value, int attribute, void *function)
{
    (void)attribute;
    (void)function;
    *value = 256;
    return fake_call();
}
static int fake_cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                               unsigned by, unsigned bz, unsigned shared, void *stream,
                               void **params, void **extra)
{
    (void)function, (void)shared, (void)stream, (void)params, (void)extra;
    fake_launches++;
    return fake_call() + (gx * gy * gz * bx * by * bz == 0);
}
static int fake_cuMemAlloc_v2(tci_cu_ptr *p, size_t n)
{
    *p = (tci_cu_ptr)(size_t)calloc(1, n);
    return fake_call() + (*p == 0);
}
static int fake_cuMemFree_v2(tci_cu_ptr p)
{
    free((void *)(size_t)p);
    return fake_call();
}
static int fake_cuMemHostAlloc(void **p, size_t n, unsigned flags)
{
    (void)flags;
    *p = calloc(1, n);
    return fake_call() + (*p == NULL);
}
static int fake_cuMemFreeHost(void *p)
{
    free(p);
    return fake_call();
}
static int fake_cuMemcpyAsync(tci_cu_ptr to, tci_cu_ptr from, size_t n, void *stream)
{
    (void)stream;
    memmove((void *)(size_t)to, (const void *)(size_t)from, n);
    fake_copies++;
    return fake_call();
}
static int fake_cuPointerGetAttribute(void *value, int attribute, tci_cu_ptr p)
{
    (void)attribute, (void)p;
    *(unsigned *)value = 1; /* the host's */
    return fake_call();
}
static int fake_cuGraphCreate(void **graph, unsigned flags)
{
    (void)flags;
    *graph = &fake_process;
    return fake_call();
}
static int fake_cuGraphAddKernelNode_v2(void **node, void *graph, void *const *after,
                                        size_t n_after, const tci_cu_kernel_params *params)
{
    (void)graph, (void)after, (void)n_after;
    *node = &fake_process;
    fake_last_node = *params;
    fake_nodes++;
    return fake_call();
}
static int fake_cuGraphInstantiateWithFlags(void **executable, void *graph,
                                            unsigned long long flags)
{
    (void)flags;
    *executable = graph;
    return fake_call();
}
static int fake_cuGraphLaunch(void *executable, void *stream)
{
    (void)executable, (void)stream;
    fake_graph_launches++;
    return fake_call();
}
static int fake_cuGraphExecDestroy(void *executable)
{
    return fake_call() + (executable != &fake_process);
}
static int fake_cuGraphDestroy(void *graph)
{
    return fake_call() + (graph != &fake_process);
}

static int fake_cuModuleGetGlobal_v2(tci_cu_ptr *p, size_t *n, void *module, const char *name)
{
    size_t length = strlen(name), end = strlen("_skeleton");
    (void)module;
    *p = (tci_cu_ptr)(size_t)fake_skeleton;
    *n = sizeof(*fake_skeleton);
    bool found = fake_skeleton && length > end && !strcmp(name + length - end, "_skeleton");
    return fake_call() + (found ? 0 : 500);
}
static int fake_cuFuncSetAttribute(void *function, int attribute, int value)
{
    (void)function;
    fake_shared_bytes = attribute == 8 ? value : fake_shared_bytes;
    return fake_call();
}
static int fake_cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address,
                                       const uint64_t *dim, const uint64_t *stride,
                                       const unsigned *box, const unsigned *step, int interleave,
                                       int swizzle, int promotion, int fill)
{
    bool good = type == 9 && step[0] == 1 && step[1] == 1 && !interleave && swizzle == 3 &&
                promotion == 2 && !fill && (size_t)map % 64 == 0 && (size_t)address % 16 == 0;
    fake_maps[fake_n_maps % 2].address = address;
    fake_maps[fake_n_maps % 2].rank = rank;
    memcpy(fake_maps[fake_n_maps % 2].dim, dim, rank * sizeof(*dim));
    memcpy(fake_maps[fake_n_maps % 2].stride, stride, (rank - 1) * sizeof(*stride));
    memcpy(fake_maps[fake_n_maps++ % 2].box, box, rank * sizeof(*box));
    memset(map, 0x11 * fake_n_maps, 128);
    return fake_call() + !good;
}

/* False: the backend calls something that is not here. */
static bool fake_install(void)
{
    bool complete = true;
    tci_cu_tables.cu = (tci_cu){
        .init = fake_cuInit,
        .error_name = fake_cuGetErrorName,
        .driver_version = fake_cuDriverGetVersion,
        .device_get = fake_cuDeviceGet,
        .device_name = fake_cuDeviceGetName,
        .device_attribute = fake_cuDeviceGetAttribute,
        .context_retain = fake_cuDevicePrimaryCtxRetain,
        .context_set = fake_cuCtxSetCurrent,
        .stream_create = fake_cuStreamCreate,
        .stream_wait = fake_cuStreamSynchronize,
        .module_load = fake_cuModuleLoadData,
        .module_find = fake_cuModuleGetFunction,
        .module_free = fake_cuModuleUnload,
        .function_attribute = fake_cuFuncGetAttribute,
        .launch = fake_cuLaunchKernel,
        .alloc = fake_cuMemAlloc_v2,
        .free = fake_cuMemFree_v2,
        .host_alloc = fake_cuMemHostAlloc,
        .host_free = fake_cuMemFreeHost,
        .copy = fake_cuMemcpyAsync,
        .pointer_attribute = fake_cuPointerGetAttribute,
        .graph_create = fake_cuGraphCreate,
        .graph_add_kernel = fake_cuGraphAddKernelNode_v2,
        .graph_instantiate = fake_cuGraphInstantiateWithFlags,
        .graph_launch = fake_cuGraphLaunch,
        .graph_exec_free = fake_cuGraphExecDestroy,
        .graph_free = fake_cuGraphDestroy,
        .module_global = fake_cuModuleGetGlobal_v2,
        .function_set = fake_cuFuncSetAttribute,
        .tensor_map = fake_cuTensorMapEncodeTiled,
    };
    tci_cu_tables.cu_known = tci_cu_tables.cu_works = true;
#define FAKE_ROW(field, symbol, arguments) complete = complete && tci_cu_tables.cu.field != NULL;
    TCI_CU_ROWS(FAKE_ROW)
#undef FAKE_ROW
    return complete;
}

#endif
