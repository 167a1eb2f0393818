/* tests/cuda/fake_driver.h - a CUDA driver for machines without one: memory is the host's, launches
 * are only counted. Any call can be made to fail (fake_fail_in), a graph to meet an index outside
 * its axis (fake_fault). fake_install puts it in the place of the opened library. Include after
 * tc.h with its implementation and TC_CUDA. */
#ifndef TC_TEST_FAKE_DRIVER_H
#define TC_TEST_FAKE_DRIVER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fake_process, fake_calls_in_child, fake_graph_launches, fake_launches, fake_copies;
static int fake_nodes;
enum { FAKE_DEVICES = 2 };
static int fake_contexts[FAKE_DEVICES]; /* the devices': their addresses */
#define fake_context fake_contexts[0]
static _Thread_local void *fake_current;           /* the thread's context */
static int fake_context_sets, fake_context_misses; /* misses: another context was current */
static int fake_context_waits;
static int64_t fake_pages;       /* of 2 MB, of memory that is longer than 1 MB */
static const char *fake_fail_in; /* this function fails, ... */
static int fake_fail_after;      /* ... when it was called so many times */
static const char *fake_hidden;  /* memory that the host cannot read */
static size_t fake_hidden_bytes;
static int64_t *fake_word, fake_fault; /* the last one made; what graphs write to it */
/* What a module says of a kernel with a main loop of its own; NULL: it has none. */
static const tci_cuda_skeleton *fake_skeleton;
static int fake_shared_bytes; /* that were asked for it */
static tci_cu_kernel_params fake_last_node;
static struct {
    void *address;
    uint64_t dim[5], stride[4];
    unsigned rank, box[5];
} fake_maps[2];
static int fake_n_maps;
/* What streams were given, in order: 'k' a kernel or graph, 'c' a copy, 'r' an event recorded,
 * 'w' an event waited for. */
typedef struct fake_work {
    char what;
    void *stream, *event;
    int context;
    float first; /* of what is copied */
} fake_work;
static fake_work fake_log[4096];
static int fake_n_log; /* the last 4096 are kept */
#define FAKE_LOG(i) fake_log[(i) % 4096]
static int fake_n_streams, fake_n_events, fake_host_blocks; /* alive */
/* Nodes of the last graph: how many, and on which earlier ones each depends. */
static struct {
    int n_after, after[16];
} fake_graph[512];
static int fake_n_graph, fake_conditionals;

/* In a child made by fork the real driver fails or hangs: any call there is a mistake. Not 0: the
 * call does nothing and returns that. */
static int fake_enter(const char *function)
{
    if (fake_process == 0) {
        fake_process = (int)getpid();
    }
    fake_calls_in_child += fake_process != (int)getpid();
    return fake_fail_in && !strcmp(function, fake_fail_in) && fake_fail_after-- == 0 ? 700 : 0;
}

/* What needs the device's context as the thread's. */
static int fake_enter_inside(const char *function)
{
    bool inside = false;
    for (int i = 0; i < FAKE_DEVICES; i++) {
        inside = inside || fake_current == &fake_contexts[i];
    }
    fake_context_misses += !inside;
    return fake_enter(function);
}

static void fake_give(char what, void *stream, void *event)
{
    int i = __atomic_fetch_add(&fake_n_log, 1, __ATOMIC_RELAXED);
    FAKE_LOG(i) = (fake_work){what, stream, event, (int)((int *)fake_current - fake_contexts), 0};
}

#define FAKE_ENTER() if (fake_enter(__func__ + 5)) return 700 /* without fake_ */
#define FAKE_ENTER_INSIDE() if (fake_enter_inside(__func__ + 5)) return 700

static int fake_cuInit(unsigned flags)
{
    FAKE_ENTER();
    return flags != 0;
}
static int fake_cuGetErrorName(int code, const char **name)
{
    (void)code;
    FAKE_ENTER();
    *name = "CUDA_ERROR_FAKE";
    return 0;
}
static int fake_cuDriverGetVersion(int *version)
{
    FAKE_ENTER();
    *version = 13000;
    return 0;
}
static int fake_cuDeviceGet(int *device, int i)
{
    FAKE_ENTER();
    *device = i;
    return i >= FAKE_DEVICES ? 101 : 0;
}
static int fake_cuDeviceGetName(char *name, int n, int device)
{
    (void)device;
    FAKE_ENTER();
    snprintf(name, (size_t)n, "fake");
    return 0;
}
static int fake_cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    FAKE_ENTER();
    switch (attribute) {
    case 8: *value = 48 << 10; break; /* MAX_SHARED_MEMORY_PER_BLOCK */
    case 10: *value = 32; break;      /* WARP_SIZE */
    case 13: *value = 1500000; break; /* CLOCK_RATE */
    case 36: *value = 2000000; break; /* MEMORY_CLOCK_RATE */
    case 37: *value = 4096; break;    /* GLOBAL_MEMORY_BUS_WIDTH */
    case 75: *value = 9; break;       /* COMPUTE_CAPABILITY_MAJOR */
    default: *value = 0;
    }
    return 0;
}
static int fake_cuDevicePrimaryCtxRetain(void **context, int device)
{
    FAKE_ENTER();
    *context = &fake_contexts[device];
    return 0;
}
static int fake_cuCtxGetCurrent(void **context)
{
    FAKE_ENTER();
    *context = fake_current;
    return 0;
}
static int fake_cuCtxSetCurrent(void *context)
{
    FAKE_ENTER();
    fake_current = context;
    fake_context_sets++;
    return 0;
}
static int fake_cuCtxSynchronize(void)
{
    FAKE_ENTER_INSIDE();
    fake_context_waits++;
    return 0;
}
static int fake_cuStreamCreate(void **stream, unsigned flags)
{
    (void)flags;
    FAKE_ENTER_INSIDE();
    *stream = malloc(1);
    fake_n_streams++;
    return *stream == NULL;
}
static int fake_cuStreamDestroy_v2(void *stream)
{
    FAKE_ENTER_INSIDE();
    fake_n_streams--;
    free(stream);
    return 0;
}
static int fake_cuStreamSynchronize(void *stream)
{
    FAKE_ENTER_INSIDE();
    return stream == NULL;
}
static int fake_cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    FAKE_ENTER_INSIDE();
    fake_give('w', stream, event);
    return flags != 0;
}
static int fake_cuEventCreate(void **event, unsigned flags)
{
    FAKE_ENTER_INSIDE();
    *event = calloc(1, sizeof(int));
    fake_n_events++;
    return flags != 0 || !*event;
}
static int fake_cuEventDestroy_v2(void *event)
{
    FAKE_ENTER_INSIDE();
    fake_n_events--;
    free(event);
    return 0;
}
static int fake_cuEventRecord(void *event, void *stream)
{
    static int clock;
    FAKE_ENTER_INSIDE();
    fake_give('r', stream, event);
    *(int *)event = ++clock;
    return 0;
}
static int fake_cuEventSynchronize(void *event)
{
    FAKE_ENTER_INSIDE();
    return *(int *)event == 0;
}
static int fake_cuEventElapsedTime(float *ms, void *from, void *to)
{
    FAKE_ENTER_INSIDE();
    *ms = (float)(*(int *)to - *(int *)from);
    return 0;
}
static int fake_cuModuleLoadData(void **module, const void *image)
{
    FAKE_ENTER_INSIDE();
    *module = &fake_process;
    return image == NULL;
}
static int fake_cuModuleGetFunction(void **function, void *module, const char *name)
{
    (void)name;
    FAKE_ENTER_INSIDE();
    *function = module;
    return 0;
}
static int fake_cuModuleUnload(void *module)
{
    FAKE_ENTER_INSIDE();
    return module != &fake_process;
}
static int fake_cuFuncGetAttribute(int *value, int attribute, void *function)
{
    (void)attribute;
    (void)function;
    FAKE_ENTER_INSIDE();
    *value = 256;
    return 0;
}
static int fake_cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                               unsigned by, unsigned bz, unsigned shared, void *stream,
                               void **params, void **extra)
{
    (void)function, (void)shared, (void)params, (void)extra;
    FAKE_ENTER_INSIDE();
    fake_give('k', stream, NULL);
    fake_launches++;
    return gx * gy * gz * bx * by * bz == 0;
}
static int fake_cuMemAlloc_v2(tci_cu_ptr *p, size_t n)
{
    FAKE_ENTER_INSIDE();
    size_t pages = n > 1 << 20 ? (n + (2 << 20) - 1) >> 21 : 0;
    char *block = (char *)aligned_alloc(256, 256 + ((n + 255) & ~(size_t)255));
    if (!block) {
        return 2;
    }
    memset(block, 0, 256 + n);
    memcpy(block, &pages, sizeof(pages));
    fake_pages += (int64_t)pages;
    *p = (tci_cu_ptr)(size_t)(block + 256);
    return 0;
}
static int fake_cuMemGetInfo_v2(size_t *left, size_t *all)
{
    FAKE_ENTER_INSIDE();
    *all = (size_t)80 << 30;
    *left = *all - ((size_t)fake_pages << 21);
    return 0;
}
static int fake_cuMemFree_v2(tci_cu_ptr p)
{
    FAKE_ENTER_INSIDE();
    if (p) {
        char *block = (char *)(size_t)p - 256;
        fake_pages -= *(int64_t *)block;
        free(block);
    }
    return 0;
}
static int fake_cuMemHostAlloc(void **p, size_t n, unsigned flags)
{
    (void)flags;
    FAKE_ENTER_INSIDE();
    *p = calloc(1, n);
    fake_word = *p;
    fake_host_blocks++;
    return *p == NULL;
}
static int fake_cuMemFreeHost(void *p)
{
    FAKE_ENTER_INSIDE();
    fake_host_blocks--;
    free(p);
    return 0;
}
static int fake_cuMemcpyAsync(tci_cu_ptr to, tci_cu_ptr from, size_t n, void *stream)
{
    FAKE_ENTER_INSIDE();
    fake_give('c', stream, NULL);
    memcpy(&FAKE_LOG(fake_n_log - 1).first, (const void *)(size_t)from,
           n < sizeof(float) ? n : sizeof(float));
    memmove((void *)(size_t)to, (const void *)(size_t)from, n);
    fake_copies++;
    return 0;
}
static int fake_cuPointerGetAttribute(void *value, int attribute, tci_cu_ptr p)
{
    const char *at = (const char *)(size_t)p;
    bool hidden = at >= fake_hidden && at < fake_hidden + fake_hidden_bytes;
    FAKE_ENTER_INSIDE();
    if (attribute == 4) { /* where the host has it */
        *(const void **)value = at;
        return hidden ? 1 : 0;
    }
    *(unsigned *)value = attribute == 9 ? 0 : hidden ? 2 : 1; /* the device's, the host's */
    return 0;
}
static int fake_cuGraphCreate(void **graph, unsigned flags)
{
    (void)flags;
    FAKE_ENTER_INSIDE();
    *graph = &fake_process;
    fake_n_graph = 0;
    return 0;
}
static int fake_cuGraphAddKernelNode_v2(void **node, void *graph, void *const *after,
                                        size_t n_after, const tci_cu_kernel_params *params)
{
    (void)graph;
    FAKE_ENTER_INSIDE();
    *node = &fake_graph[fake_n_graph];
    fake_graph[fake_n_graph].n_after = (int)n_after;
    for (size_t i = 0; i < n_after && i < 16; i++) {
        fake_graph[fake_n_graph].after[i] = (int)((char *)after[i] - (char *)fake_graph) /
                                            (int)sizeof(fake_graph[0]);
    }
    fake_n_graph = (fake_n_graph + 1) % 512;
    fake_last_node = *params;
    fake_nodes++;
    return 0;
}
static int fake_cuGraphConditionalHandleCreate(unsigned long long *handle, void *graph,
                                               void *context, unsigned first, unsigned flags)
{
    (void)graph;
    (void)context;
    (void)first;
    (void)flags;
    FAKE_ENTER_INSIDE();
    *handle = 1;
    return 0;
}
/* A conditional node: its body is a graph too. */
static int fake_cuGraphAddNode(void **node, void *graph, void *const *after, size_t n_after,
                               tci_cu_conditional *c)
{
    static void *bodies[1] = {&fake_process};
    (void)graph;
    (void)after;
    FAKE_ENTER_INSIDE();
    if (sizeof(*c) != 256 || c->type != 13 || c->n_bodies != 1 || n_after != 1) {
        return 1; /* as the driver's header has it */
    }
    *node = &fake_graph[0];
    c->bodies = bodies;
    fake_conditionals++;
    return 0;
}
static int fake_cuGraphInstantiateWithFlags(void **executable, void *graph,
                                            unsigned long long flags)
{
    (void)flags;
    FAKE_ENTER_INSIDE();
    *executable = graph;
    return 0;
}
static int fake_cuGraphLaunch(void *executable, void *stream)
{
    (void)executable;
    FAKE_ENTER_INSIDE();
    fake_give('k', stream, NULL);
    fake_graph_launches++;
    if (fake_fault) {
        *fake_word = fake_fault;
    }
    return 0;
}
static int fake_cuGraphExecDestroy(void *executable)
{
    FAKE_ENTER_INSIDE();
    return executable != &fake_process;
}
static int fake_cuGraphDestroy(void *graph)
{
    FAKE_ENTER_INSIDE();
    return graph != &fake_process;
}

static int fake_cuModuleGetGlobal_v2(tci_cu_ptr *p, size_t *n, void *module, const char *name)
{
    size_t length = strlen(name), end = strlen("_skeleton");
    (void)module;
    FAKE_ENTER_INSIDE();
    *p = (tci_cu_ptr)(size_t)fake_skeleton;
    *n = sizeof(*fake_skeleton);
    bool found = fake_skeleton && length > end && !strcmp(name + length - end, "_skeleton");
    return found ? 0 : 500;
}
static int fake_cuFuncSetAttribute(void *function, int attribute, int value)
{
    (void)function;
    FAKE_ENTER_INSIDE();
    fake_shared_bytes = attribute == 8 ? value : fake_shared_bytes;
    return 0;
}
static int fake_cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address,
                                       const uint64_t *dim, const uint64_t *stride,
                                       const unsigned *box, const unsigned *step, int interleave,
                                       int swizzle, int promotion, int fill)
{
    bool good = type == 9 && step[0] == 1 && step[1] >= 1 && !interleave && swizzle == 3 &&
                promotion == 2 && !fill && (size_t)map % 64 == 0 && (size_t)address % 16 == 0;
    FAKE_ENTER_INSIDE();
    fake_maps[fake_n_maps % 2].address = address;
    fake_maps[fake_n_maps % 2].rank = rank;
    memcpy(fake_maps[fake_n_maps % 2].dim, dim, rank * sizeof(*dim));
    memcpy(fake_maps[fake_n_maps % 2].stride, stride, (rank - 1) * sizeof(*stride));
    memcpy(fake_maps[fake_n_maps++ % 2].box, box, rank * sizeof(*box));
    memset(map, 0x11 * fake_n_maps, 128);
    return !good;
}

static int fake_cuTensorMapEncodeIm2col(void *map, int type, unsigned rank, void *address,
                                        const uint64_t *dim, const uint64_t *stride, const int *low,
                                        const int *high, unsigned channels, unsigned places,
                                        const unsigned *step, int interleave, int swizzle,
                                        int promotion, int fill)
{
    const unsigned box[5] = {channels, places, 1, 1, 1};
    bool good = rank >= 3 && channels == 64 && low[0] <= 0 && high[0] <= 0;
    return fake_cuTensorMapEncodeTiled(map, type, rank, address, dim, stride, box, step, interleave,
                                       swizzle, promotion, fill) ||
           !good;
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
        .context_get = fake_cuCtxGetCurrent,
        .context_set = fake_cuCtxSetCurrent,
        .context_wait = fake_cuCtxSynchronize,
        .stream_create = fake_cuStreamCreate,
        .stream_free = fake_cuStreamDestroy_v2,
        .stream_wait = fake_cuStreamSynchronize,
        .stream_after = fake_cuStreamWaitEvent,
        .event_create = fake_cuEventCreate,
        .event_free = fake_cuEventDestroy_v2,
        .event_record = fake_cuEventRecord,
        .event_wait = fake_cuEventSynchronize,
        .event_elapsed = fake_cuEventElapsedTime,
        .module_load = fake_cuModuleLoadData,
        .module_find = fake_cuModuleGetFunction,
        .module_free = fake_cuModuleUnload,
        .function_attribute = fake_cuFuncGetAttribute,
        .launch = fake_cuLaunchKernel,
        .memory_left = fake_cuMemGetInfo_v2,
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
        .place_map = fake_cuTensorMapEncodeIm2col,
        .graph_handle = fake_cuGraphConditionalHandleCreate,
        .graph_add = fake_cuGraphAddNode,
    };
    tci_cu_tables.cu_known = tci_cu_tables.cu_works = true;
#define FAKE_ROW(field, symbol, arguments) complete = complete && tci_cu_tables.cu.field != NULL;
    TCI_CU_ROWS(FAKE_ROW)
#undef FAKE_ROW
    return complete;
}

#endif
