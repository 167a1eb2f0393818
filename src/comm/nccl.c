/* comm/nccl.c - collectives on GPUs through NCCL.
 *
 * In: operations on device memory. Out: NCCL's calls on a stream of the communicator.
 *
 * A start makes that stream wait for the work submitted to the device's own queue so far; a wait
 * makes the queue wait for the operation. So kernels between the two overlap with it, and no host
 * thread waits until the end of a run (finish). There the host checks whether the stream is done,
 * whether NCCL or a rank failed, and whether the timeout has expired; then the communicator is
 * aborted, so that the stream ends. ncclCommAbort terminates all kernels of the communicator at
 * once, but returns only when no CUDA graph references it; programs still hold such graphs, so a
 * separate thread calls it, which ends when the last program with the communicator is freed.
 *
 * Where a program is recorded, an operation is captured from the stream and becomes a node of the
 * program's CUDA graph; the wait for it is an empty node.
 *
 * Sends and receives that follow one another are one group, as each alone would wait for the other
 * side. Host-side exchanges go through the base communicator.
 *
 * Communicators that are made here are nonblocking: NCCL connects ranks in a thread of its own, at
 * creation and at the first operation of each kind, and a call that returns "in progress" is polled
 * until it is done. So the base communicator detects a rank that dies during connection setup. */
#include "nccl.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "../api/backend.h"
#include "../base/alloc.h"
#include "api.h"

#ifdef TCI_HAS_CUDA
#include "../cuda/device.h"

enum {
    TCI_NCCL_PAIRS = 32,
    TCI_NCCL_BYTE = 1,
    TCI_NCCL_IN_PROGRESS = 7,
    TCI_NCCL_LINGER_MS = 500,  /* NCCL's error may come before the base sees which rank died */
    TCI_NCCL_DRAIN_MS = 10000, /* of an aborted communicator's stream */
    TCI_NCCL_SPIN_MS = 100,    /* that the end of a run is looked for without a pause */
    TCI_NCCL_PRIORITY = -1000,
    TCI_NCCL_PROCESSORS = 16, /* tc_comm_options.processors */
    TCI_CU_NOT_READY = 600,
    TCI_CU_CAPTURE_RELAXED = 2
};

/* A captured operation, which its node in a recorded graph was made of; newest first. */
typedef struct tci_nccl_child {
    struct tci_nccl_child *next;
    void *graph;
} tci_nccl_child;

typedef struct tci_nccl {
    const tci_nccl_api *api;
    void *comm;
    bool is_ours;  /* else the user's */
    tc_comm *base; /* counted */
    tci_cuda_device *device;
    void *stream, *before, *after; /* after: what was started last */
    int64_t timeout_ms;
    int processors;
    const tc_comm_job *pairs[TCI_NCCL_PAIRS]; /* started, not given to NCCL yet */
    int n_pairs;
    bool has_canceller;
    int aborted;         /* atomic: 1 once */
    bool is_stuck;       /* aborted, but its kernels do not end */
    pthread_t canceller; /* in ncclCommAbort */
    tci_nccl_child *children;
} tci_nccl;

static tci_mutex tci_nccl_lock = TCI_MUTEX_INIT;
static tci_nccl_api tci_nccl_table;
static const tci_nccl_api *tci_nccl_found;

/* ---- the library ---- */

TCI_FN void tci_nccl_use(const tci_nccl_api *api)
{
    pthread_mutex_lock(&tci_nccl_lock);
    tci_nccl_found = api;
    pthread_mutex_unlock(&tci_nccl_lock);
}

static bool tci_nccl_load_driver(void *driver)
{
    const struct {
        void *at;
        const char *symbol;
    } rows[] = {{&tci_nccl_table.stream_query, "cuStreamQuery"},
                {&tci_nccl_table.stream_make, "cuStreamCreateWithPriority"},
                {&tci_nccl_table.capture_begin, "cuStreamBeginCapture_v2"},
                {&tci_nccl_table.capture_end, "cuStreamEndCapture"},
                {&tci_nccl_table.graph_add_child, "cuGraphAddChildGraphNode"},
                {&tci_nccl_table.graph_add_empty, "cuGraphAddEmptyNode"},
                {&tci_nccl_table.graph_free, "cuGraphDestroy"}};
    bool whole = true;
    for (size_t i = 0; i < TCI_COUNT(rows); i++) {
        void *symbol = tci_os_dlsym(driver, rows[i].symbol);
        memcpy(rows[i].at, &symbol, sizeof(symbol));
        whole = whole && symbol;
    }
    return whole;
}

static bool tci_nccl_load(char *why)
{
    char reason[256] = "";
    void *library = tci_os_dlopen("libnccl.so.2", reason);
    void *driver = library ? tci_os_dlopen("libcuda.so.1", reason) : NULL;
    if (!driver) {
        snprintf(why, TC_COMM_WHY, "NCCL cannot be opened: %.200s", reason);
        return false;
    }
    bool whole = true;
#define TCI_ROW(field, symbol, arguments)                                                          \
    *(void **)&tci_nccl_table.field = tci_os_dlsym(library, symbol);                               \
    whole = whole && tci_nccl_table.field;
    TCI_NCCL_ROWS(TCI_ROW)
#undef TCI_ROW
    *(void **)&tci_nccl_table.init_config = tci_os_dlsym(library, "ncclCommInitRankConfig");
    *(void **)&tci_nccl_table.error = tci_os_dlsym(library, "ncclGetErrorString");
    whole = whole && tci_nccl_table.error && tci_nccl_load_driver(driver);
    if (!whole) {
        snprintf(why, TC_COMM_WHY, "libnccl.so.2 lacks functions of NCCL 2.7");
    }
    return whole;
}

TCI_FN const tci_nccl_api *tci_nccl_open(char *why)
{
    pthread_mutex_lock(&tci_nccl_lock);
    if (!tci_nccl_found && tci_nccl_load(why)) {
        tci_nccl_found = &tci_nccl_table;
    }
    const tci_nccl_api *api = tci_nccl_found;
    pthread_mutex_unlock(&tci_nccl_lock);
    return api;
}

static tc_status tci_nccl_check(const tci_nccl *s, int code, const char *what, char *why)
{
    if (code) {
        snprintf(why, TC_COMM_WHY, "%s: %.150s", what, s->api->error(code));
    }
    return code ? TC_ERR_COMM : TC_OK;
}

static tc_status tci_nccl_device(tc_status status, char *why)
{
    if (status) {
        snprintf(why, TC_COMM_WHY, "the GPU failed: %.150s", tci_cuda_last_error(NULL));
    }
    return status ? TC_ERR_COMM : TC_OK;
}

/* ---- operations ---- */

static int tci_nccl_dtype(tc_dtype t)
{
    switch (t) {
    case TC_I8: return 0;
    case TC_BOOL:
    case TC_U8: return TCI_NCCL_BYTE;
    case TC_I32: return 2;
    case TC_U32: return 3;
    case TC_I64: return 4;
    case TC_U64: return 5;
    case TC_F16: return 6;
    case TC_F32: return 7;
    case TC_F64: return 8;
    case TC_BF16: return 9;
    case TC_U16:
    case TC_I16:
    case TCI_DTYPE_BEFORE:
    case TC_DTYPE_COUNT: break;
    }
    return -1;
}

static int tci_nccl_op(tc_comm_how how)
{
    return how == TC_COMM_SUM ? 0 : how == TC_COMM_MAX ? 2 : 3;
}

/* Each part to its rank. */
static int tci_nccl_parts(const tci_nccl *s, const tc_comm_job *j)
{
    size_t part = (size_t)(j->n * tc_dtype_size(j->dtype) / s->base->size);
    int code = s->api->group_start();
    for (int r = 0; r < s->base->size && !code; r++) {
        code = s->api->send((const char *)j->in + (size_t)r * part, part, TCI_NCCL_BYTE, r, s->comm,
                            s->stream);
        code = code ? code
                    : s->api->recv((char *)j->out + (size_t)r * part, part, TCI_NCCL_BYTE, r,
                                   s->comm, s->stream);
    }
    int end = s->api->group_end();
    return code ? code : end;
}

static int tci_nccl_call_one(const tci_nccl *s, const tc_comm_job *j)
{
    static const uint8_t one = 1;
    const tc_backend_queues *q = j->device->queues;
    const int t = tci_nccl_dtype(j->dtype), op = tci_nccl_op(j->how);
    const size_t n = (size_t)j->n, bytes = n * (size_t)tc_dtype_size(j->dtype);
    switch (j->verb) {
    case TC_COMM_ALL_REDUCE: return s->api->all_reduce(j->in, j->out, n, t, op, s->comm, s->stream);
    case TC_COMM_REDUCE_SCATTER:
        return s->api->reduce_scatter(j->in, j->out, n / (size_t)s->base->size, t, op, s->comm,
                                      s->stream);
    case TC_COMM_ALL_GATHER:
        return s->api->all_gather(j->in, j->out, bytes, TCI_NCCL_BYTE, s->comm, s->stream);
    case TC_COMM_BROADCAST:
        return s->api->broadcast(j->in, j->out, bytes, TCI_NCCL_BYTE, j->peer, s->comm, s->stream);
    case TC_COMM_ALL_TO_ALL: return tci_nccl_parts(s, j);
    case TC_COMM_SEND:
        q->copy(j->device->user, s->stream, j->out, j->in, (int64_t)bytes);
        return s->api->send(j->in, bytes, TCI_NCCL_BYTE, j->peer, s->comm, s->stream);
    case TC_COMM_RECV:
        return s->api->recv(j->out, bytes, TCI_NCCL_BYTE, j->peer, s->comm, s->stream);
    case TC_COMM_BARRIER:
    case TC_COMM_VERB_COUNT: break;
    }
    q->copy(j->device->user, s->stream, j->out, &one, 1); /* of a barrier: true */
    return s->api->all_reduce(j->out, j->out, 1, TCI_NCCL_BYTE, 2, s->comm, s->stream);
}

/* The operation and those that begin with it, as one group. Returns NCCL's code. */
static int tci_nccl_call(const tci_nccl *s, const tc_comm_job *job)
{
    int code = job->with ? s->api->group_start() : 0;
    for (const tc_comm_job *j = job; j && !code; j = j->with) {
        code = tci_nccl_call_one(s, j);
    }
    int end = job->with ? s->api->group_end() : 0;
    return code ? code : end;
}

static void tci_nccl_nap(void)
{
    struct timespec t = {0, 20000};
    nanosleep(&t, NULL);
}

/* NCCL failed: the base's reason, which names a rank, if it comes soon; else NCCL's. */
static tc_status tci_nccl_explain(const tci_nccl *s, int code, const char *what, char *why)
{
    const tc_comm_engine *base = s->base->engine;
    const int64_t begin = tci_os_now_ns();
    while (base->look && tci_os_now_ns() - begin < TCI_NCCL_LINGER_MS * (int64_t)1000000) {
        if (base->look(s->base->state, why)) {
            return TC_ERR_COMM;
        }
        tci_nccl_nap();
    }
    return tci_nccl_check(s, code, what, why);
}

/* True, with the reason: a rank is gone, or the time from begin_ns on is over. */
static bool tci_nccl_is_over(const tci_nccl *s, int64_t begin_ns, char *why)
{
    const tc_comm_engine *base = s->base->engine;
    if (base->look && base->look(s->base->state, why)) {
        return true;
    }
    bool over = tci_os_now_ns() - begin_ns > tci_comm_limit_ns(s->timeout_ms);
    if (over) {
        snprintf(why, TC_COMM_WHY,
                 "another rank did not come within %lld ms (NCCL does not tell which)",
                 (long long)s->timeout_ms);
    }
    return over;
}

/* A call of NCCL returned `code`: waits until it is no longer in progress. */
static tc_status tci_nccl_settle(const tci_nccl *s, int code, const char *what, char *why)
{
    const int64_t begin = tci_os_now_ns();
    while (code == TCI_NCCL_IN_PROGRESS) {
        if (tci_nccl_is_over(s, begin, why)) {
            return TC_ERR_COMM;
        }
        tci_nccl_nap();
        int failed = s->api->async_error(s->comm, &code);
        code = failed ? failed : code;
    }
    return code ? tci_nccl_explain(s, code, what, why) : TC_OK;
}

/* Kernels before it come first. */
static tc_status tci_nccl_behind(const tci_nccl *s, const tc_comm_job *j, char *why)
{
    const tc_backend_queues *q = j->device->queues;
    tc_status status = q->event_record(j->device->user, NULL, s->before);
    status = status ? status : q->event_wait(j->device->user, s->stream, s->before);
    return tci_nccl_device(status, why);
}

static tc_status tci_nccl_give_pairs(tci_nccl *s, char *why)
{
    if (!s->n_pairs) {
        return TC_OK;
    }
    int code = s->api->group_start();
    for (int i = 0; i < s->n_pairs && !code; i++) {
        code = tci_nccl_call(s, s->pairs[i]);
    }
    int end = s->api->group_end();
    s->n_pairs = 0;
    return tci_nccl_settle(s, code ? code : end, "ncclSend and ncclRecv", why);
}

static tc_status tci_nccl_begin(tci_nccl *s, tc_comm_job *job, char *why)
{
    bool pair = tci_comm_verb_is_pair(job->verb);
    tc_status status = TC_OK;
    for (const tc_comm_job *j = job; j; j = j->with) {
        if (tci_comm_verb_reduces(j->verb) && tci_nccl_dtype(j->dtype) < 0) {
            snprintf(why, TC_COMM_WHY, "NCCL has no %s, expected another dtype (tc_cast)",
                     tc_dtype_name(j->dtype));
            return TC_ERR_COMM;
        }
    }
    if (!pair || s->n_pairs == TCI_NCCL_PAIRS) {
        status = tci_nccl_give_pairs(s, why);
    }
    status = status ? status : tci_nccl_behind(s, job, why);
    if (!status && pair) {
        s->pairs[s->n_pairs++] = job;
    } else if (!status) {
        status = tci_nccl_settle(s, tci_nccl_call(s, job), "NCCL refused the operation", why);
    }
    return status;
}

/* The context of the GPU is the thread's meanwhile. */
static tc_status tci_nccl_start(void *state, tc_comm_job *job, char *why)
{
    tci_nccl *s = state;
    tci_cuda_stay in = tci_cuda_enter(s->device);
    tc_status status = in.status ? tci_nccl_device(in.status, why) : tci_nccl_begin(s, job, why);
    tci_cuda_leave(&in, TC_OK);
    return status;
}

static tc_status tci_nccl_wait(void *state, tc_comm_job *job, char *why)
{
    tci_nccl *s = state;
    const tc_backend_queues *q = job->device->queues;
    tci_cuda_stay in = tci_cuda_enter(s->device);
    tc_status status = in.status ? tci_nccl_device(in.status, why) : tci_nccl_give_pairs(s, why);
    tci_cuda_leave(&in, TC_OK);
    if (!status) {
        status = q->event_record(job->device->user, s->stream, s->after);
        status = status ? status : q->event_wait(job->device->user, NULL, s->after);
        status = tci_nccl_device(status, why);
    }
    return status;
}

/* The operation as a graph of its own. */
static tc_status tci_nccl_capture(tci_nccl *s, const tc_comm_job *j, void **graph)
{
    int code = s->api->capture_begin(s->stream, TCI_CU_CAPTURE_RELAXED);
    if (code) {
        return tci_cuda_check(code, "cuStreamBeginCapture");
    }
    char why[TC_COMM_WHY] = "";
    tc_status status = tci_nccl_settle(s, tci_nccl_call(s, j), "NCCL refused to be captured", why);
    code = s->api->capture_end(s->stream, graph);
    if (status) {
        char text[2 * TC_COMM_WHY];
        snprintf(text, sizeof(text), "%s at %s:%d on rank %d of %d: %s", j->name,
                 j->site.file ? j->site.file : "?", j->site.line, s->base->rank, s->base->size,
                 why);
        tci_cuda_say(text, "");
        return TC_ERR_COMM;
    }
    return tci_cuda_check(code, "cuStreamEndCapture");
}

static tc_status tci_nccl_add_child(tci_nccl *s, const tc_comm_job *j, void *graph,
                                    void *const *after, size_t n_after, void **node)
{
    tci_nccl_child *child = tci_heap_get(sizeof(*child));
    if (!child) {
        return TC_ERR_MEMORY;
    }
    tc_status status = tci_nccl_capture(s, j, &child->graph);
    if (!status) {
        status = tci_cuda_check(s->api->graph_add_child(node, graph, after, n_after, child->graph),
                                "cuGraphAddChildGraphNode");
    }
    if (!child->graph) {
        tci_heap_free(child);
        return status;
    }
    child->next = s->children;
    s->children = child;
    return status;
}

/* A member of tc_comm_engine; the context is the thread's. */
static tc_status tci_nccl_node(void *state, tc_comm_job *job, void *graph, void *const *after,
                               size_t n_after, void **node)
{
    tci_nccl *s = state;
    return job ? tci_nccl_add_child(s, job, graph, after, n_after, node)
               : tci_cuda_check(s->api->graph_add_empty(node, graph, after, n_after),
                                "cuGraphAddEmptyNode");
}

/* One look at the device's own queue, which waits for all that was started. TC_OK with *done
 * false: it goes on. */
static tc_status tci_nccl_look(const tci_nccl *s, bool *done, char *why)
{
    int code = 0, query = s->api->stream_query(s->device->stream);
    *done = query == 0;
    if (query != 0 && query != TCI_CU_NOT_READY) {
        snprintf(why, TC_COMM_WHY, "the GPU failed: driver error %d", query);
        return TC_ERR_COMM;
    }
    if (__atomic_load_n(&s->aborted, __ATOMIC_ACQUIRE)) {
        snprintf(why, TC_COMM_WHY, "the communicator was aborted");
        return TC_ERR_COMM;
    }
    tc_status status = tci_nccl_check(s, s->api->async_error(s->comm, &code), "NCCL", why);
    bool failed = !status && code != 0 && code != TCI_NCCL_IN_PROGRESS;
    return failed ? tci_nccl_explain(s, code, "NCCL failed", why) : status;
}

/* A rank is gone, but it may have ended after the last operation while kernels still run here. */
static bool tci_nccl_ends_soon(const tci_nccl *s)
{
    const int64_t begin = tci_os_now_ns();
    int query = TCI_CU_NOT_READY;
    while (query == TCI_CU_NOT_READY &&
           tci_os_now_ns() - begin < TCI_NCCL_LINGER_MS * (int64_t)1000000) {
        tci_nccl_nap();
        query = s->api->stream_query(s->device->stream);
    }
    return query == 0;
}

static tc_status tci_nccl_finish(void *state, char *why)
{
    tci_nccl *s = state;
    const int64_t begin = tci_os_now_ns();
    bool done = false;
    tci_cuda_stay in = tci_cuda_enter(s->device);
    tc_status status = tci_nccl_device(in.status, why);
    while (!done && !status) {
        status = tci_nccl_look(s, &done, why);
        if (!status && !done && tci_nccl_is_over(s, begin, why)) {
            done = tci_nccl_ends_soon(s);
            status = done ? TC_OK : TC_ERR_COMM;
        }
        if (!done && tci_os_now_ns() - begin > TCI_NCCL_SPIN_MS * (int64_t)1000000) {
            tci_nccl_nap();
        }
    }
    tci_cuda_leave(&in, TC_OK);
    return status;
}

static tc_status tci_nccl_exchange(void *state, const void *mine, void *all, int64_t bytes,
                                   int64_t limit_ms, const char *what, char *why)
{
    tci_nccl *s = state;
    char text[512];
    tc_status status = tci_comm_claim_engine(s->base, text);
    if (status) {
        snprintf(why, TC_COMM_WHY, "%.250s", text);
        return status;
    }
    status = s->base->engine->exchange(s->base->state, mine, all, bytes, limit_ms, what, why);
    tci_comm_unclaim(s->base);
    return status;
}

static void *tci_nccl_cancel(void *state)
{
    tci_nccl *s = state;
    s->api->cancel(s->comm);
    return NULL;
}

/* Until both streams are done, so that no later call blocks on them. */
static void tci_nccl_drain(tci_nccl *s)
{
    const int64_t begin = tci_os_now_ns();
    s->is_stuck = true;
    while (s->is_stuck && tci_os_now_ns() - begin < TCI_NCCL_DRAIN_MS * (int64_t)1000000) {
        s->is_stuck = s->api->stream_query(s->device->stream) == TCI_CU_NOT_READY ||
                      s->api->stream_query(s->stream) == TCI_CU_NOT_READY;
        if (s->is_stuck) {
            tci_nccl_nap();
        }
    }
}

/* Kernels of NCCL that wait for a rank end, and so does the stream. */
static void tci_nccl_abort(void *state, const char *why)
{
    tci_nccl *s = state;
    tci_comm_fail(s->base, why);
    tci_cuda_stay in = tci_cuda_enter(s->device);
    const bool first = !__atomic_exchange_n(&s->aborted, 1, __ATOMIC_ACQ_REL);
    if (!in.status && s->is_ours && first) {
        s->has_canceller = pthread_create(&s->canceller, NULL, tci_nccl_cancel, s) == 0;
        if (!s->has_canceller) {
            s->api->cancel(s->comm);
        }
        tci_nccl_drain(s);
    }
    s->n_pairs = 0;
    tci_cuda_leave(&in, TC_OK);
}

static void tci_nccl_free_children(tci_nccl *s, bool frees)
{
    while (s->children) {
        tci_nccl_child *next = s->children->next;
        if (frees) {
            s->api->graph_free(s->children->graph);
        }
        tci_heap_free(s->children);
        s->children = next;
    }
}

/* ncclCommDestroy waits for the other ranks of the host, ncclCommAbort for none. */
static void tci_nccl_end(tci_nccl *s)
{
    const tc_comm_engine *base = s->base->engine;
    char why[TC_COMM_WHY];
    if (base->look && base->look(s->base->state, why)) {
        s->api->cancel(s->comm);
    } else {
        s->api->destroy(s->comm);
    }
}

static void tci_nccl_free(void *state)
{
    tci_nccl *s = state;
    const tc_backend_queues *q = tci_cuda_queues();
    if (!s->device) {
        tci_comm_release(s->base);
        tci_heap_free(s);
        return;
    }
    tci_cuda_stay in = tci_cuda_enter(s->device);
    tci_nccl_free_children(s, !in.status); /* graphs before the communicator that they are of */
    if (!in.status && s->comm && s->is_ours && !s->aborted) {
        tci_nccl_end(s);
    }
    tci_cuda_leave(&in, TC_OK);
    if (s->has_canceller && s->is_stuck) { /* it and its stream are given up */
        pthread_detach(s->canceller);
        tci_comm_release(s->base);
        return;
    }
    if (s->has_canceller) {
        pthread_join(s->canceller, NULL);
    }
    if (s->before) {
        q->event_free(s->device, s->before);
    }
    if (s->after) {
        q->event_free(s->device, s->after);
    }
    if (s->stream) {
        q->free(s->device, s->stream);
    }
    tci_comm_release(s->base);
    tci_heap_free(s);
}

static const tc_comm_engine tci_nccl_engine = {"nccl",
                                               "cuda",
                                               tci_nccl_start,
                                               tci_nccl_wait,
                                               tci_nccl_exchange,
                                               NULL,
                                               tci_nccl_abort,
                                               tci_nccl_free,
                                               tci_nccl_finish,
                                               tci_nccl_node,
                                               NULL,
                                               true};

/* ---- communicators ---- */

/* With few blocks, as kernels lose an SM to each, and these not in clusters, which wait until
 * several neighbouring SMs are free. */
static int tci_nccl_call_init(tci_nccl *s, tci_nccl_id id)
{
    const tci_nccl_config config = {.size = sizeof(config),
                                    .magic = TCI_NCCL_MAGIC,
                                    .version = TCI_NCCL_CONFIG_VERSION,
                                    .blocking = 0,
                                    .cluster = 0,
                                    .min_blocks = TCI_NCCL_UNDEFINED,
                                    .max_blocks = s->processors};
    const tc_comm *base = s->base;
    return s->api->init_config ? s->api->init_config(&s->comm, base->size, id, base->rank, &config)
                               : s->api->init(&s->comm, base->size, id, base->rank);
}

/* A rank, as the others are told of it. */
typedef struct tci_nccl_hello {
    tci_nccl_id id; /* rank 0's counts */
    tc_status status;
    char why[108]; /* where it cannot take part */
} tci_nccl_hello;

/* All ranks report whether they can take part, so that one without a GPU or NCCL is no hang. */
static tc_status tci_nccl_meet(tc_comm *base, tci_nccl_hello *mine, char *why)
{
    tci_nccl_hello *all = tci_heap_get(sizeof(*all) * (size_t)base->size);
    tc_status status = all ? base->engine->exchange(base->state, mine, all, sizeof(*mine),
                                                    base->options.timeout_ms, "tc_comm_nccl", why)
                           : TC_ERR_MEMORY;
    if (status) { /* ranks are out of step */
        tci_comm_fail(base, all ? why : "out of memory");
    }
    for (int r = 0; r < base->size && !status; r++) {
        status = all[r].status;
        if (status) {
            snprintf(why, TC_COMM_WHY, "rank %d: %.100s", r, all[r].why);
        }
    }
    mine->id = all ? all[0].id : mine->id;
    tci_heap_free(all);
    return status;
}

/* NCCL's communicator of the ranks of base. */
static tc_status tci_nccl_init(tci_nccl *s, tci_nccl_id id, char *why)
{
    tc_status status = tci_nccl_settle(s, tci_nccl_call_init(s, id), "ncclCommInitRank", why);
    if (status && s->comm) {
        s->aborted = 1;
        s->api->cancel(s->comm);
    }
    return status;
}

static tc_status tci_nccl_open_device(tci_nccl *s, int device, char *why)
{
    tc_backend_target target;
    const tc_backend_queues *q = tci_cuda_queues();
    s->device = tci_cuda_get(device);
    if (!s->device) {
        snprintf(why, TC_COMM_WHY, "there is no GPU %d", device);
        return TC_ERR_COMM;
    }
    tc_status status = tci_cuda_target(s->device, 0, &target);
    tci_cuda_stay in = tci_cuda_enter(s->device); /* the driver takes the highest for a lower one */
    status = tci_cuda_leave(&in, status || in.status
                                     ? status
                                     : tci_cuda_check(s->api->stream_make(&s->stream, 1,
                                                                          TCI_NCCL_PRIORITY),
                                                      "cuStreamCreateWithPriority"));
    status = status ? status : q->event_make(s->device, &s->before);
    status = status ? status : q->event_make(s->device, &s->after);
    return tci_nccl_device(status, why);
}

/* NULL: no NCCL, or no memory. */
static tci_nccl *tci_nccl_new(tc_comm *base, const tc_comm_options *o, char *why)
{
    const tci_nccl_api *api = tci_nccl_open(why);
    tci_nccl *s = api ? tci_heap_get(sizeof(*s)) : NULL;
    if (s) {
        *s = (tci_nccl){.api = api,
                        .base = tci_comm_retain(base->number),
                        .timeout_ms = o->timeout_ms > 0 ? o->timeout_ms : TCI_COMM_TIMEOUT_MS,
                        .processors = o->processors};
    } else if (api) {
        snprintf(why, TC_COMM_WHY, "out of memory");
    }
    return s;
}

/* This rank's part before it meets the others; comm NULL: NCCL's communicator is made here. */
static tc_status tci_nccl_set_up(tci_nccl *s, void *comm, int device, tci_nccl_hello *mine,
                                 char *why)
{
    tc_status status = tci_nccl_open_device(s, device, why);
    s->is_ours = !comm;
    s->comm = comm;
    if (!status && !comm && s->base->rank == 0) {
        status = tci_nccl_check(s, s->api->get_id(&mine->id), "ncclGetUniqueId", why);
    }
    return status;
}

static tc_status tci_nccl_make(tc_comm *base, void *comm, int device,
                               const tc_comm_options *options, tc_comm **out, char *why)
{
    tc_comm_options o = options ? *options : (tc_comm_options){.timeout_ms = 0};
    o.processors = o.processors > 0 ? o.processors : TCI_NCCL_PROCESSORS;
    tci_nccl_hello mine = {.status = TC_ERR_COMM};
    tci_nccl *s = tci_nccl_new(base, &o, why);
    mine.status = s ? tci_nccl_set_up(s, comm, device, &mine, why) : TC_ERR_COMM;
    snprintf(mine.why, sizeof(mine.why), "%.100s", why);
    tc_status status = tci_nccl_meet(base, &mine, why);
    if (!status && !comm) {
        tci_cuda_stay in = tci_cuda_enter(s->device);
        status = in.status ? in.status : tci_nccl_init(s, mine.id, why);
        tci_cuda_leave(&in, TC_OK);
    }
    if (!status) {
        status = tc_comm_of_engine(&tci_nccl_engine, s, base->rank, base->size, &o, out);
    }
    if (status && s) {
        tci_nccl_free(s);
    }
    return status;
}
#endif

TC_API tc_status tc_comm_of_nccl(void *nccl_comm, tc_comm *base, int device,
                                 const tc_comm_options *options, tc_comm **out)
{
    char why[512] = "";
    tc_comm *own = tci_comm_of(base);
    if (!out || !own) {
        return !out ? TC_ERR_ARGUMENT : TC_ERR_HANDLE;
    }
    *out = NULL;
#ifdef TCI_HAS_CUDA
    tc_status status = tci_comm_claim(own, why);
    if (!status) {
        status = tci_nccl_make(own, nccl_comm, device, options, out, why);
        tci_comm_unclaim(own);
    }
#else
    (void)nccl_comm, (void)device, (void)options;
    tc_status status = TC_ERR_UNSUPPORTED;
    snprintf(why, sizeof(why), "NCCL needs TC_CUDA, which is not defined");
#endif
    tci_comm_tell(status ? why : "");
    return status;
}

TC_API tc_status tc_comm_nccl(tc_comm *base, int device, const tc_comm_options *options,
                              tc_comm **out)
{
    return tc_comm_of_nccl(NULL, base, device, options, out);
}
