/* cuda/queue.c - implements the backend's queues as CUDA streams: launches, recorded sequences
 * (CUDA graphs), copies.
 *
 * In: the calls of the backend interface (api/backend.h). A queue is a stream; NULL is the
 * device's own. A recorded sequence is a CUDA graph of explicit kernel nodes, each with its
 * dependencies, launched by one driver call; a long one is several graphs, one after the other.
 *
 * The driver takes calls from any thread, so nothing here takes a lock. Faults: kernels write to
 * host memory that the device maps (host_alloc), one word per launch; it can be read after the
 * stream is synchronized. */
#include <stdio.h>
#include <string.h>

#include "../base/alloc.h"
#include "device.h"

enum { TCI_CUDA_MAX_ARGUMENTS = 500 }; /* 8-byte words: what every driver takes */

enum { TCI_CUDA_NODES = 4096 }; /* of a graph: the next is queued while it runs */

/* ---- launches ---- */

/* The map of one operand at its address. */
static bool tci_cuda_encode(const tc_launch *launch, const tci_cuda_map *map, int64_t *to)
{
    enum { TCI_CU_SWIZZLE_128B = 3, TCI_CU_L2_PROMOTION_128B = 2 }; /* CU_TENSOR_MAP_... */
    uint64_t dim[5], stride[4];
    unsigned box[5], step[5];
    for (int i = 0; i < 5; i++) {
        dim[i] = (uint64_t)map->dim[i];
        box[i] = (unsigned)((map->box[i] - 1) * map->step[i] + 1);
        step[i] = (unsigned)map->step[i];
        if (i < 4) {
            stride[i] = (uint64_t)map->stride[i];
        }
    }
    char *start = (char *)launch->buffers[map->operand] + map->offset;
    if (map->axes > 0) {
        int low[3], high[3];
        for (int i = 0; i < 3; i++) {
            low[i] = (int)map->low[i];
            high[i] = (int)map->high[i];
        }
        return !tci_cuda_driver()->place_map(to, (int)map->type, (unsigned)map->rank, start, dim,
                                             stride, low, high, (unsigned)map->box[0],
                                             (unsigned)map->box[1], step, 0, TCI_CU_SWIZZLE_128B,
                                             TCI_CU_L2_PROMOTION_128B, 0);
    }
    return !tci_cuda_driver()->tensor_map(to, (int)map->type, (unsigned)map->rank, start, dim,
                                          stride, box, step, 0, TCI_CU_SWIZZLE_128B,
                                          TCI_CU_L2_PROMOTION_128B, 0);
}

/* The kernel's one argument: maps of a template, operands, literals, the fault word, at least one
 * of each (see tci_cuda_head and tci_cuda_wgmma_head). False: it cannot be made. */
static bool tci_cuda_pack(const tc_launch *launch, int64_t *to)
{
    int n_buffers = TCI_MAX(launch->n_buffers, 1), n_literals = TCI_MAX(launch->n_literals, 1);
    const tci_cuda_function *f = launch->function;
    int n_maps = f->is_skeleton ? (int)f->skeleton.n_maps : 0;
    int map_words = n_maps * TCI_CUDA_MAP_WORDS;
    int n_words = map_words + n_buffers + n_literals + 1;
    if (n_words > TCI_CUDA_MAX_ARGUMENTS) {
        return false;
    }
    memset(to, 0, TCI_CUDA_MAX_ARGUMENTS * sizeof(*to));
    for (int i = 0; i < n_maps; i++) {
        if (!tci_cuda_encode(launch, &f->skeleton.maps[i], to + TCI_CUDA_MAP_WORDS * i)) {
            return false;
        }
    }
    to += map_words;
    for (int i = 0; i < launch->n_buffers; i++) {
        to[i] = (int64_t)(uintptr_t)launch->buffers[i];
    }
    for (int i = 0; i < launch->n_literals; i++) {
        to[n_buffers + i] = launch->literals[i];
    }
    to[n_buffers + n_literals] = (int64_t)(uintptr_t)launch->fault;
    return true;
}

/* The parameters that both ways of launching pass to the driver. False: the launch is too large. */
static bool tci_cuda_describe(const tc_launch *launch, bool is_packed, tci_cu_kernel_params *k)
{
    const tci_cuda_function *f = launch->function;
    int64_t blocks = launch->task_end - launch->task_begin;
    memset(k, 0, sizeof(*k));
    k->function = f->handle;
    k->grid_x = (unsigned)blocks;
    k->grid_y = k->grid_z = k->block_y = k->block_z = 1;
    k->block_x = (unsigned)f->threads;
    if (f->is_skeleton) {
        k->block_x = (unsigned)f->skeleton.block_x;
        k->block_y = (unsigned)f->skeleton.block_y;
        k->shared_bytes = (unsigned)f->skeleton.shared_bytes;
    }
    if (!is_packed || launch->task_begin != 0 || blocks > INT32_MAX) {
        tci_cuda_say("a kernel has more operands or blocks than a launch can have, or an operand "
                     "that a tensor map cannot describe",
                     "");
        return false;
    }
    return true;
}

static void *tci_cuda_stream(const tci_cuda_stay *in, void *queue)
{
    return queue ? queue : in->d->stream;
}

static tc_status tci_cuda_launch_inside(const tci_cuda_stay *in, const tc_launch *launch,
                                        void *stream)
{
    _Alignas(64) int64_t arguments[TCI_CUDA_MAX_ARGUMENTS]; /* of tensor maps */
    tci_cu_kernel_params k;
    bool is_packed = tci_cuda_pack(launch, arguments);
    if (!tci_cuda_describe(launch, is_packed, &k)) {
        return TC_ERR_LIMIT;
    }
    void *params[] = {arguments}; /* the driver knows its size and alignment from the kernel */
    return tci_cuda_check(in->cu->launch(k.function, k.grid_x, 1, 1, k.block_x, k.block_y, 1,
                                         k.shared_bytes, stream, params, NULL),
                          "cuLaunchKernel");
}

static tc_status tci_cuda_queue_launch(void *user, void *queue, const tc_launch *launch)
{
    if (launch->task_end == launch->task_begin) {
        return TC_OK;
    }
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    void *stream = tci_cuda_stream(&in, queue);
    return tci_cuda_leave(&in, in.status ? TC_OK : tci_cuda_launch_inside(&in, launch, stream));
}

static tc_status tci_cuda_queue_sync(void *user, void *queue)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in, in.cu->stream_wait(tci_cuda_stream(&in, queue)), "a kernel failed");
}

/* ---- sequences ---- */

TCI_FN tci_cuda_sequence *tci_cuda_sequence_make(int n)
{
    tci_cuda_sequence *s = tci_heap_get(sizeof(*s) + sizeof(*s->graphs) * (size_t)n);
    if (s) {
        s->n = n;
        s->graphs = (tci_cuda_graph *)(s + 1);
    }
    return s;
}

TCI_FN void tci_cuda_sequence_free(void *user, void *sequence)
{
    tci_cuda_sequence *s = sequence;
    if (!s) {
        return;
    }
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    for (int i = 0; i < s->n && !in.status; i++) {
        if (s->graphs[i].executable) {
            in.cu->graph_exec_free(s->graphs[i].executable);
        }
        if (s->graphs[i].graph) {
            in.cu->graph_free(s->graphs[i].graph);
        }
    }
    tci_cuda_leave(&in, TC_OK);
    tci_heap_free(s);
}

TCI_FN tc_status tci_cuda_add_node(void *graph, const tc_launch *launch, void **nodes, int first,
                                   int i, void **after)
{
    _Alignas(64) int64_t arguments[TCI_CUDA_MAX_ARGUMENTS];
    tci_cu_kernel_params k;
    size_t n_after = 0;
    if (launch->task_end == launch->task_begin) {
        return TC_OK;
    }
    for (int j = 0; j < launch->n_after; j++) {
        after[n_after] = launch->after[j] < first ? NULL : nodes[launch->after[j]];
        n_after += after[n_after] != NULL;
    }
    if (launch->node) {
        return launch->node(launch->comm, launch->job, graph, after, n_after, &nodes[i]);
    }
    bool is_packed = tci_cuda_pack(launch, arguments);
    if (!tci_cuda_describe(launch, is_packed, &k)) {
        return TC_ERR_LIMIT;
    }
    void *params[] = {arguments};
    k.params = params;
    return tci_cuda_check(tci_cuda_driver()->graph_add_kernel(&nodes[i], graph, after, n_after, &k),
                          "cuGraphAddKernelNode");
}

/* Launches [first, last) of those. after: an array of as many entries. */
static tc_status tci_cuda_make_graph(tci_cuda_graph *g, const tc_launch *launches, void **nodes,
                                     void **after, int first, int last)
{
    enum { TCI_CU_USE_NODE_PRIORITY = 8 }; /* CUDA_GRAPH_INSTANTIATE_FLAG_... */
    const tci_cu *cu = tci_cuda_driver();
    unsigned flags = 0;
    tc_status status = tci_cuda_check(cu->graph_create(&g->graph, 0), "cuGraphCreate");
    for (int i = first; i < last && !status; i++) {
        status = tci_cuda_add_node(g->graph, &launches[i], nodes, first, i, after);
        flags |= launches[i].node ? TCI_CU_USE_NODE_PRIORITY : 0;
    }
    if (!status) {
        status = tci_cuda_check(cu->graph_instantiate(&g->executable, g->graph, flags),
                                "cuGraphInstantiate");
    }
    return status;
}

static tc_status tci_cuda_make_graphs(tci_cuda_sequence *s, const tc_launch *launches, int n)
{
    void **nodes = tci_heap_get(sizeof(*nodes) * 2 * (size_t)TCI_MAX(n, 1));
    tc_status status = nodes ? TC_OK : TC_ERR_MEMORY;
    for (int i = 0; i < s->n && !status; i++) {
        int first = i * TCI_CUDA_NODES;
        status = tci_cuda_make_graph(&s->graphs[i], launches, nodes, nodes + n, first,
                                     TCI_MIN(n, first + TCI_CUDA_NODES));
    }
    tci_heap_free(nodes);
    return status;
}

TCI_FN tc_status tci_cuda_record(void *user, const tc_launch *launches, int n, void **sequence)
{
    tci_cuda_sequence *s = tci_cuda_sequence_make(
        TCI_MAX((n + TCI_CUDA_NODES - 1) / TCI_CUDA_NODES, 1));
    *sequence = NULL;
    if (!s) {
        return TC_ERR_MEMORY;
    }
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    tc_status status = in.status ? TC_OK : tci_cuda_make_graphs(s, launches, n);
    status = tci_cuda_leave(&in, status);
    if (status) {
        tci_cuda_sequence_free(user, s);
        s = NULL;
    }
    *sequence = s;
    return status;
}

static tc_status tci_cuda_queue_replay(void *user, void *queue, void *sequence)
{
    const tci_cuda_sequence *s = sequence;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    void *stream = tci_cuda_stream(&in, queue);
    tc_status status = TC_OK;
    for (int i = 0; i < s->n && !in.status && !status; i++) {
        status = tci_cuda_check(in.cu->graph_launch(s->graphs[i].executable, stream),
                                "cuGraphLaunch");
    }
    return tci_cuda_leave(&in, status);
}

/* ---- copies ---- */

static tc_status tci_cuda_queue_copy(void *user, void *queue, void *to, const void *from,
                                     int64_t bytes)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in,
                       in.cu->copy((tci_cu_ptr)(uintptr_t)to, (tci_cu_ptr)(uintptr_t)from,
                                   (size_t)bytes, tci_cuda_stream(&in, queue)),
                       "cuMemcpyAsync");
}

TCI_FN tc_status tci_cuda_copy_within(void *user, void *to, const void *from, int64_t bytes)
{
    return tci_cuda_queue_copy(user, NULL, to, from, bytes);
}

TCI_FN tc_status tci_cuda_copy(void *user, void *to, const void *from, int64_t bytes)
{
    tc_status status = tci_cuda_queue_copy(user, NULL, to, from, bytes);
    if (status) {
        return status;
    }
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in, in.cu->stream_wait(in.d->stream), "cuStreamSynchronize");
}

/* ---- the device's own queue ---- */

TCI_FN tc_status tci_cuda_launch(void *user, const tc_launch *launch)
{
    return tci_cuda_queue_launch(user, NULL, launch);
}

TCI_FN tc_status tci_cuda_replay(void *user, void *sequence)
{
    return tci_cuda_queue_replay(user, NULL, sequence);
}

TCI_FN tc_status tci_cuda_sync(void *user)
{
    return tci_cuda_queue_sync(user, NULL);
}

/* ---- queues ---- */

static tc_status tci_cuda_queue_make(void *user, void **queue)
{
    *queue = NULL;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in, in.cu->stream_create(queue, 1), "cuStreamCreate");
}

static void tci_cuda_queue_free(void *user, void *queue)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    if (!in.status) {
        in.cu->stream_free(queue);
    }
    tci_cuda_leave(&in, TC_OK);
}

/* ---- events ---- */

static tc_status tci_cuda_event_make(void *user, void **event)
{
    *event = NULL;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in, in.cu->event_create(event, 0), "cuEventCreate");
}

static void tci_cuda_event_free(void *user, void *event)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    if (!in.status) {
        in.cu->event_free(event);
    }
    tci_cuda_leave(&in, TC_OK);
}

static tc_status tci_cuda_event_record(void *user, void *queue, void *event)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in, in.cu->event_record(event, tci_cuda_stream(&in, queue)),
                       "cuEventRecord");
}

static tc_status tci_cuda_event_wait(void *user, void *queue, void *event)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in, in.cu->stream_after(tci_cuda_stream(&in, queue), event, 0),
                       "cuStreamWaitEvent");
}

static tc_status tci_cuda_event_sync(void *user, void *event)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    return TCI_CUDA_DO(&in, in.cu->event_wait(event), "a kernel failed");
}

static tc_status tci_cuda_event_elapsed(void *user, void *from, void *to, double *ms)
{
    float elapsed = 0;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    tc_status status = TCI_CUDA_DO(&in, in.cu->event_elapsed(&elapsed, from, to),
                                   "cuEventElapsedTime");
    *ms = elapsed;
    return status;
}

/* ---- memory of the host that the device sees ---- */

static void *tci_cuda_host_alloc(void *user, int64_t bytes)
{
    enum { TCI_CU_PORTABLE_MAPPED = 3 }; /* CU_MEMHOSTALLOC_... */
    void *memory = NULL;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    tc_status status = TCI_CUDA_DO(
        &in, in.cu->host_alloc(&memory, (size_t)bytes, TCI_CU_PORTABLE_MAPPED), "cuMemHostAlloc");
    return status ? NULL : memory;
}

static void tci_cuda_host_free(void *user, void *memory)
{
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    if (!in.status) {
        in.cu->host_free(memory);
    }
    tci_cuda_leave(&in, TC_OK);
}

TCI_FN const tc_backend_queues *tci_cuda_queues(void)
{
    static const tc_backend_queues queues = {
        .make = tci_cuda_queue_make,
        .free = tci_cuda_queue_free,
        .launch = tci_cuda_queue_launch,
        .replay = tci_cuda_queue_replay,
        .copy = tci_cuda_queue_copy,
        .sync = tci_cuda_queue_sync,
        .event_make = tci_cuda_event_make,
        .event_free = tci_cuda_event_free,
        .event_record = tci_cuda_event_record,
        .event_wait = tci_cuda_event_wait,
        .event_sync = tci_cuda_event_sync,
        .event_elapsed = tci_cuda_event_elapsed,
        .host_alloc = tci_cuda_host_alloc,
        .host_free = tci_cuda_host_free,
    };
    return &queues;
}
