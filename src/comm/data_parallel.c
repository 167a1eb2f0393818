/* comm/data_parallel.c - data parallel training: bucketed gradient all-reduce, and optimizer states
 * sharded over the ranks (ZeRO).
 *
 * In: gradients of one graph. Out: the same over all ranks, as ordinary nodes: a bucket is a CAT of
 * flat gradients, one collective, and slices of its result, which are views; or, where the engine
 * supports grouped operations (ncclGroupStart), a collective for each gradient after a barrier of
 * all.
 *
 * Buckets hold gradients that are ready one after the other: they are in the order of the longest
 * path from a leaf to each gradient, which in a backward pass grows from the last layer to the
 * first. The collectives are made in that order, and plan/step_order.c schedules the steps between
 * them by the deadlines that follow. */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "../api/api_call.h"
#include "../api/control_flow.h"
#include "../base/alloc.h"
#include "../ops/communicator.h"
#include "api.h"

enum { TCI_GRADS_BYTES = 25 << 20 };

typedef struct tci_grads {
    tc_comm *comm;
    tc_site here;
    const tc_tensor *grads; /* or new values of shards */
    tc_tensor *out;
    int n, ranks;
    int64_t most; /* bytes of a bucket */
    bool sum;
    const tc_tensor *params; /* of new values of shards: what they are parts of */
    int32_t *order;          /* by readiness */
    tc_tensor *parts;        /* of the bucket being made */
} tci_grads;

/* ---- readiness ---- */

/* Per gradient the longest way from a leaf. False: out of memory. */
static bool tci_grads_depths(const tci_grads *b, int32_t *depths)
{
    tci_scratch s;
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        tci_scratch_free(&s);
        return false;
    }
    tci_node **roots = TCI_NEW_ARRAY(&s, tci_node *, b->n);
    for (int i = 0; i < b->n; i++) {
        roots[i] = tci_handle_node(b->grads[i]);
    }
    tci_node_list list = tci_graph_sort(&s, roots, b->n);
    tci_table depth = tci_table_in(&s, sizeof(int32_t));
    for (int i = 0; i < list.n; i++) {
        int32_t d = 0;
        for (int k = 0; k < list.items[i]->n_in; k++) {
            d = TCI_MAX(d, *(int32_t *)tci_table_at(&depth, list.items[i]->in[k]) + 1);
        }
        *(int32_t *)tci_table_at(&depth, list.items[i]) = d;
    }
    for (int i = 0; i < b->n; i++) {
        depths[i] = *(int32_t *)tci_table_at(&depth, roots[i]);
    }
    tci_scratch_free(&s);
    return true;
}

/* Insertion sort, stable: of equal ones the last parameter first, as backward passes go. */
static bool tci_grads_sort(tci_grads *b)
{
    int32_t *depths = tci_heap_get(sizeof(*depths) * (size_t)b->n);
    bool known = depths && tci_grads_depths(b, depths);
    for (int i = 0; i < b->n && known; i++) {
        int32_t which = b->n - 1 - i;
        int at = i;
        for (; at > 0 && depths[b->order[at - 1]] > depths[which]; at--) {
            b->order[at] = b->order[at - 1];
        }
        b->order[at] = which;
    }
    tci_heap_free(depths);
    return known;
}

/* A gradient larger than a bucket that is ready late, as that of an embedding, goes before those of
 * up to a bucket that are ready before it: they are computed while it travels. */
static void tci_grads_large_first(tci_grads *b)
{
    for (int i = 1; i < b->n; i++) {
        const int32_t large = b->order[i];
        int64_t passed = 0;
        int at = i;
        while (tc_nbytes(b->grads[large]) > b->most && at > 0 && passed <= b->most) {
            passed += tc_nbytes(b->grads[b->order[at - 1]]);
            if (passed <= b->most) {
                b->order[at] = b->order[at - 1];
                at--;
            }
        }
        b->order[at] = large;
    }
}

/* ---- a call ---- */

/* The status of the first that failed; it is put into out[0], for tc_error. */
static tc_status tci_grads_judge(tc_tensor *out, int n)
{
    char text[8];
    for (int i = 0; i < n; i++) {
        tc_status status = tci_handle_error(out[i], text, sizeof(text));
        if (status) {
            out[0] = out[i];
            return status;
        }
    }
    return TC_OK;
}

static tc_status tci_grads_begin(tci_grads *b, tc_comm *comm, const tc_tensor *grads, int n,
                                 const tc_buckets *o, tc_tensor *out, tc_site here)
{
    char text[8];
    *b = (tci_grads){.comm = comm,
                     .here = here,
                     .grads = grads,
                     .out = out,
                     .n = n,
                     .ranks = tc_comm_size(comm),
                     .sum = o && o->sum,
                     .most = o && o->bytes > 0 ? o->bytes : TCI_GRADS_BYTES};
    if (!grads || !out || n < 1 || b->ranks < 1) {
        return b->ranks < 1 ? TC_ERR_HANDLE : TC_ERR_ARGUMENT;
    }
    for (int i = 0; i < n; i++) {
        tc_status status = tci_handle_error(grads[i], text, sizeof(text));
        if (status || !tci_dtype_is_float(tc_dtype_of(grads[i]))) {
            out[0] = grads[i];
            return status ? status : TC_ERR_DTYPE;
        }
    }
    b->order = tci_heap_get(sizeof(*b->order) * (size_t)n);
    b->parts = tci_heap_get(sizeof(*b->parts) * (size_t)n);
    if (!b->order || !b->parts || !tci_grads_sort(b)) {
        return TC_ERR_MEMORY;
    }
    tci_grads_large_first(b);
    return TC_OK;
}

static void tci_grads_end(tci_grads *b)
{
    tci_heap_free(b->order);
    tci_heap_free(b->parts);
}

static int64_t tci_grads_count(tc_tensor x)
{
    return tc_nbytes(x) / tc_dtype_size(tc_dtype_of(x));
}

/* Elements of one rank's part. */
static int64_t tci_grads_part(const tci_grads *b, tc_tensor x)
{
    return (tci_grads_count(x) + b->ranks - 1) / b->ranks;
}

static const tc_tensor *tci_grads_at(const tci_grads *b, int place)
{
    return &b->grads[b->order[place]];
}

/* Bytes that a bucket from position `begin` on may have. Nothing is left to compute while the very
 * last one travels, so where buckets cost no copies the last bucket becomes several smaller. */
static int64_t tci_grads_most(const tci_grads *b, int begin)
{
    enum { TCI_GRADS_LAST = 4 }; /* buckets in place of the last one */
    int64_t left = 0;
    for (int i = begin; i < b->n; i++) {
        left += tc_nbytes(*tci_grads_at(b, i));
    }
    bool last = b->comm->engine->groups && begin > 0 && left <= b->most;
    return last ? b->most / TCI_GRADS_LAST : b->most;
}

/* One bucket from position `begin` on: where it ends. */
static int tci_grads_bucket(const tci_grads *b, int begin)
{
    const int64_t most = tci_grads_most(b, begin);
    int64_t bytes = 0;
    int end = begin;
    bool more = true;
    while (more) {
        bytes += tc_nbytes(*tci_grads_at(b, end));
        end++;
        more = end < b->n && bytes < most && tc_nbytes(*tci_grads_at(b, end)) <= b->most &&
               tc_dtype_of(*tci_grads_at(b, end)) == tc_dtype_of(*tci_grads_at(b, begin));
    }
    return end;
}

static tc_tensor tci_grads_flat(const tci_grads *b, tc_tensor x)
{
    const int64_t n = tci_grads_count(x);
    return tc_reshape_at(x, 1, &n, b->here);
}

static tc_tensor tci_grads_like(const tci_grads *b, tc_tensor flat, tc_tensor like)
{
    int64_t sizes[64];
    int rank = tc_rank(like);
    for (int d = 0; d < rank && d < 64; d++) {
        sizes[d] = tc_size(like, d);
    }
    return tc_reshape_at(flat, rank, sizes, b->here);
}

static tc_tensor tci_grads_joined(const tci_grads *b, int n, int axis)
{
    return n == 1 ? b->parts[0] : tc_cat_at((tc_tensors){b->parts, n}, axis, b->here);
}

/* Makes the nodes of all buckets, unless status is an error; ends the call. */
static tc_status tci_grads_make(tci_grads *b, tc_status status,
                                void (*make)(tci_grads *b, int begin, int end))
{
    for (int begin = 0, end; begin < b->n && !status; begin = end) {
        end = tci_grads_bucket(b, begin);
        make(b, begin, end);
    }
    tci_grads_end(b);
    return status ? status : tci_grads_judge(b->out, b->n);
}

/* ---- all_reduce ---- */

/* Where the engine takes several operations as one: an all_reduce for each gradient of the bucket,
 * which all begin when the last one is computed, and no copies. */
static void tci_grads_reduce_each(tci_grads *b, int begin, int end)
{
    for (int i = begin; i < end; i++) {
        b->parts[i - begin] = b->grads[b->order[i]];
    }
    tc_barrier_at((tc_tensors){b->parts, end - begin}, b->parts, b->here);
    for (int i = begin; i < end; i++) {
        b->out[b->order[i]] = tc_comm_all_reduce_at(b->comm, b->parts[i - begin],
                                                    b->sum ? TC_COMM_SUM : TC_COMM_MEAN, b->here);
    }
}

static void tci_grads_reduce_joined(tci_grads *b, int begin, int end)
{
    int64_t at = 0;
    for (int i = begin; i < end; i++) {
        tc_tensor g = b->grads[b->order[i]];
        b->parts[i - begin] = end - begin > 1 ? tci_grads_flat(b, g) : g;
    }
    tc_tensor all = tc_comm_all_reduce_at(b->comm, tci_grads_joined(b, end - begin, 0),
                                          b->sum ? TC_COMM_SUM : TC_COMM_MEAN, b->here);
    for (int i = begin; i < end; i++) {
        tc_tensor g = b->grads[b->order[i]];
        int64_t n = tci_grads_count(g);
        b->out[b->order[i]] = end - begin == 1
                                  ? all
                                  : tci_grads_like(b, tc_slice_at(all, 0, at, at + n, 1, b->here),
                                                   g);
        at += n;
    }
}

static void tci_grads_reduce(tci_grads *b, int begin, int end)
{
    if (b->comm->engine->groups && end - begin > 1) {
        tci_grads_reduce_each(b, begin, end);
    } else {
        tci_grads_reduce_joined(b, begin, end);
    }
}

TC_API tc_status tc_all_reduce_grads_at(tc_comm *comm, const tc_tensor *grads, int n,
                                        const tc_buckets *buckets, tc_tensor *out, tc_site here)
{
    tci_grads b;
    tc_status status = tci_grads_begin(&b, comm, grads, n, buckets, out, here);
    return tci_grads_make(&b, status, tci_grads_reduce);
}

/* ---- parts of ranks ---- */

/* [ranks, part] of x, filled up with zeros. */
static tc_tensor tci_grads_parted(const tci_grads *b, tc_tensor x)
{
    const int64_t sizes[2] = {b->ranks, tci_grads_part(b, x)};
    const int64_t more = sizes[0] * sizes[1] - tci_grads_count(x);
    tc_tensor flat = tci_grads_flat(b, x);
    if (more) {
        flat = tc_pad_at(flat, 0, 0, more, TC_ARG(0), b->here);
    }
    return tc_reshape_at(flat, 2, sizes, b->here);
}

TC_API tc_status tc_zero_shards_at(tc_comm *comm, const tc_tensor *params, int n, tc_tensor *shards,
                                   tc_site here)
{
    tci_grads b;
    tc_status status = tci_grads_begin(&b, comm, params, n, NULL, shards, here);
    for (int i = 0; i < n && !status; i++) {
        int64_t part = tci_grads_part(&b, params[i]), rank = tc_comm_rank(comm);
        tc_tensor own = tc_slice_at(tci_grads_parted(&b, params[i]), 0, rank, rank + 1, 1, here);
        shards[i] = tc_param_from_at(tc_reshape_at(own, 1, &part, here), here);
        status = tci_grads_judge(&shards[i], 1);
    }
    tci_grads_end(&b);
    return status;
}

static void tci_grads_scatter(tci_grads *b, int begin, int end)
{
    int64_t at = 0;
    for (int i = begin; i < end; i++) {
        b->parts[i - begin] = tci_grads_parted(b, b->grads[b->order[i]]);
    }
    tc_tensor own = tc_comm_reduce_scatter_at(b->comm, tci_grads_joined(b, end - begin, 1), 0,
                                              b->sum ? TC_COMM_SUM : TC_COMM_MEAN, b->here);
    for (int i = begin; i < end; i++) {
        int64_t part = tci_grads_part(b, b->grads[b->order[i]]);
        tc_tensor mine = tc_slice_at(own, 1, at, at + part, 1, b->here);
        b->out[b->order[i]] = tc_reshape_at(mine, 1, &part, b->here);
        at += part;
    }
}

TC_API tc_status tc_zero_grads_at(tc_comm *comm, const tc_tensor *grads, int n,
                                  const tc_buckets *buckets, tc_tensor *shard_grads, tc_site here)
{
    tci_grads b;
    tc_status status = tci_grads_begin(&b, comm, grads, n, buckets, shard_grads, here);
    return tci_grads_make(&b, status, tci_grads_scatter);
}

/* The value that the effects assign to a parameter. TC_NONE: none does. */
static tc_tensor tci_grads_assigned(tc_tensor param, const tc_tensor *effects, int n, tc_site here)
{
    const tci_node *p = tci_handle_node(param);
    for (int i = 0; p && i < n; i++) {
        const tci_node *e = tci_handle_node(effects[i]);
        if (e && e->op == TCI_OP_ASSIGN && e->in[0]->storage == p->storage) {
            return tci_handle_make(tci_ctx_of(param.ctx), e->in[1], here);
        }
    }
    return TC_NONE;
}

/* New values of shards to whole parameters: the effects of bucket [begin, end). */
static void tci_grads_gather(tci_grads *b, int begin, int end)
{
    int64_t at = 0;
    for (int i = begin; i < end; i++) {
        const int64_t sizes[2] = {1, tci_grads_count(b->grads[b->order[i]])};
        b->parts[i - begin] = tc_reshape_at(b->grads[b->order[i]], 2, sizes, b->here);
    }
    tc_tensor all = tc_comm_all_gather_at(b->comm, tci_grads_joined(b, end - begin, 1), 0, b->here);
    for (int i = begin; i < end; i++) {
        tc_tensor param = b->params[b->order[i]];
        int64_t part = tci_grads_part(b, param);
        tc_tensor own = tc_slice_at(all, 1, at, at + part, 1, b->here);
        tc_tensor flat = tc_slice_at(tci_grads_flat(b, own), 0, 0, tci_grads_count(param), 1,
                                     b->here);
        b->out[b->order[i]] = tc_assign_at(param, tci_grads_like(b, flat, param), b->here);
        at += part;
    }
}

TC_API tc_status tc_zero_effects_at(tc_comm *comm, const tc_tensor *params, const tc_tensor *shards,
                                    int n, const tc_buckets *buckets, tc_tensor *effects,
                                    int *n_effects, tc_site here)
{
    tci_grads b;
    if (!params || !shards || !effects || !n_effects || n < 1) {
        return TC_ERR_ARGUMENT;
    }
    tc_tensor *values = tci_heap_get(sizeof(*values) * (size_t)n);
    tc_status status = values ? TC_OK : TC_ERR_MEMORY;
    for (int i = 0; i < n && !status; i++) {
        values[i] = tci_grads_assigned(shards[i], effects, *n_effects, here);
        status = tci_is_none(values[i]) ? TC_ERR_ARGUMENT : TC_OK;
    }
    if (!status) {
        status = tci_grads_begin(&b, comm, values, n, buckets, effects + *n_effects, here);
        b.params = params;
        status = tci_grads_make(&b, status, tci_grads_gather);
        *n_effects += status ? 0 : n;
    }
    tci_heap_free(values);
    return status;
}
