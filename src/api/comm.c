/* api/comm.c - implements the public collective ops (tc_comm_all_reduce and others): each call
 * builds a COLLECTIVE node.
 *
 * In: a communicator and a tensor. Out: COLLECTIVE nodes, whose axis 0 indexes the ranks, wrapped
 * in transposes and reshapes. A reduction that engines do not offer (product; reduce-scatter of
 * minimum and maximum) is a reduction in the graph over gathered values. */
#include "comm.h"

#include "api_call.h"

/* A call under way: the operation, and x's node. NULL: the frame failed. */
static tci_node *tci_comm_begin(tci_frame *f, tc_comm *comm, tc_tensor x, tc_comm_verb verb,
                                tci_comm_step *c)
{
    tci_frame_use(f, x);
    tci_node *n = tci_frame_node(f, x, "the tensor");
    tc_comm *own = tci_comm_of(comm);
    if (n && !own) {
        tci_frame_fail(f, TC_ERR_HANDLE, "the communicator is NULL, or was freed by tc_comm_free");
    } else if (n && own->failed) {
        tci_frame_fail(f, TC_ERR_COMM, "communicator %d failed before: %s", (int)own->number,
                       own->error);
    }
    if (f->failed) {
        return NULL;
    }
    *c = (tci_comm_step){.verb = (uint8_t)verb,
                         .how = TC_COMM_SUM,
                         .ranks = own->size,
                         .comm = own->number};
    return n;
}

static bool tci_comm_axis(tci_frame *f, const tci_node *x, int axis, int *at)
{
    *at = axis < 0 ? axis + x->rank : axis;
    if (*at < 0 || *at >= x->rank) {
        tci_frame_fail(f, TC_ERR_AXIS, "axis %d of a tensor of rank %d", axis, x->rank);
    }
    return !f->failed;
}

static bool tci_comm_peer(tci_frame *f, const tc_comm *comm, int peer, bool other, tci_comm_step *c)
{
    if (peer < 0 || peer >= c->ranks || (other && peer == comm->rank)) {
        tci_frame_fail(f, TC_ERR_ARGUMENT, "rank %d of a communicator of %d ranks%s", peer,
                       (int)c->ranks, other ? ", expected another rank than this one" : "");
    }
    c->peer = peer;
    return !f->failed;
}

/* bool has extremes alone. */
static bool tci_comm_takes(tci_frame *f, const tci_node *x, tc_comm_how how)
{
    if ((int)how < 0 || how > TC_COMM_MEAN) {
        tci_frame_fail(f, TC_ERR_ARGUMENT, "reduction %d, expected one of tc_comm_how", (int)how);
    } else if (x->dtype == TC_BOOL && how != TC_COMM_MIN && how != TC_COMM_MAX &&
               how != TC_COMM_MEAN) {
        tci_frame_fail(f, TC_ERR_DTYPE, "the %s of bool, expected numbers (tc_cast), or min or max",
                       tci_comm_how_name(how));
    }
    return !f->failed;
}

/* ---- axes ---- */

/* [.., d, ..] with the parts of axis `at` in front: [ranks, .., d / ranks, ..] */
static tci_node *tci_comm_part(tci_frame *f, tci_node *x, int at, int ranks)
{
    tci_graph *g = &f->ctx->graph;
    tci_words w, o;
    tci_dim part = tci_dim_div(x->shape[at], ranks);
    if (tci_dim_is_valid(part) && tci_dim_mul(part, ranks) != x->shape[at]) {
        tci_frame_fail(f, TC_ERR_SHAPE,
                       "axis %d of %s in %d parts, one for each rank: expected a "
                       "size that is a multiple of %d",
                       at, TCI_SHAPE_TEXT(x), ranks, ranks);
        return NULL;
    }
    tci_dim *shape = tci_words_dims(g, &w, x->rank + 1);
    int *order = shape ? tci_words_ints(g, &o, x->rank + 1) : NULL;
    if (!order) {
        return NULL;
    }
    for (int d = 0; d < x->rank + 1; d++) {
        shape[d] = d == at ? (tci_dim)(int64_t)ranks : d == at + 1 ? part : x->shape[d - (d > at)];
        order[d] = d == 0 ? at : d - (d <= at);
    }
    tci_node *n = tci_build_reshape(g, x, x->rank + 1, shape);
    n = tci_words_put(g, &w, n);
    return tci_words_put(g, &o, tci_build_permute(g, n, n ? n->rank : 0, order));
}

/* Joins the parts of [ranks, .., d, ..] along axis `at`, counted without the axis of ranks. */
static tci_node *tci_comm_join(tci_frame *f, tci_node *x, int at)
{
    tci_graph *g = &f->ctx->graph;
    tci_words w, o;
    if (!x) {
        return NULL;
    }
    tci_dim *shape = tci_words_dims(g, &w, x->rank);
    int *order = shape ? tci_words_ints(g, &o, x->rank) : NULL;
    if (!order) {
        return NULL;
    }
    for (int d = 0; d < x->rank; d++) {
        order[d] = d == at ? 0 : d + (d < at);
    }
    for (int d = 0; d < x->rank - 1; d++) {
        shape[d] = d == at ? tci_dim_mul(x->shape[d + 1], x->shape[0]) : x->shape[d + 1];
    }
    tci_node *n = tci_words_put(g, &o, tci_build_permute(g, x, x->rank, order));
    return tci_words_put(g, &w, tci_build_reshape(g, n, x->rank - 1, shape));
}

/* ---- reductions ---- */

/* A reduction over the axis of ranks. */
static tci_node *tci_comm_fold(tci_frame *f, tci_node *x, tc_comm_how how)
{
    static const int ops[] = {TCI_OP_SUM, TCI_OP_PROD, TCI_OP_MIN, TCI_OP_MAX};
    const int first[] = {0};
    tci_graph *g = &f->ctx->graph;
    tci_node *n = x ? tci_build_reduce(g, ops[how], x, (tc_axes){first, 1, false}, false) : NULL;
    return n ? tci_build_cast(g, n, (tc_dtype)x->dtype) : NULL; /* integers are summed wide */
}

/* x as its dtype is averaged. */
static tci_node *tci_comm_averaged(tci_frame *f, tci_node *x, tc_comm_how how)
{
    bool casts = how == TC_COMM_MEAN && !tci_dtype_is_float((tc_dtype)x->dtype);
    return casts ? tci_build_cast(&f->ctx->graph, x, TC_F32) : x;
}

static tci_node *tci_comm_mean(tci_frame *f, tci_node *sum, int ranks)
{
    tci_graph *g = &f->ctx->graph;
    tci_node *in[2] = {sum, NULL};
    in[1] = sum ? tci_build_size_value(g, (tci_dim)(int64_t)ranks, (tc_dtype)sum->dtype) : NULL;
    return in[1] ? tci_build_ew(g, TCI_OP_DIV, in) : NULL;
}

TC_API tc_tensor tc_comm_all_reduce_at(tc_comm *comm, tc_tensor x, tc_comm_how how, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_comm_all_reduce", here);
    tci_comm_step c;
    tci_node *n = tci_comm_begin(&f, comm, x, TC_COMM_ALL_REDUCE, &c);
    if (!n || !tci_comm_takes(&f, n, how)) {
        return tci_frame_end(&f, NULL);
    }
    n = tci_comm_averaged(&f, n, how);
    if (how == TC_COMM_PROD) {
        c.verb = TC_COMM_ALL_GATHER;
        return tci_frame_end(&f,
                             tci_comm_fold(&f, tci_build_collective(&f.ctx->graph, &c, n), how));
    }
    c.how = (uint8_t)(how == TC_COMM_MEAN ? TC_COMM_SUM : how);
    n = tci_build_collective(&f.ctx->graph, &c, n);
    return tci_frame_end(&f, how == TC_COMM_MEAN ? tci_comm_mean(&f, n, c.ranks) : n);
}

TC_API tc_tensor tc_comm_reduce_scatter_at(tc_comm *comm, tc_tensor x, int axis, tc_comm_how how,
                                           tc_site here)
{
    tci_frame f = tci_frame_begin("tc_comm_reduce_scatter", here);
    tci_comm_step c;
    int at;
    tci_node *n = tci_comm_begin(&f, comm, x, TC_COMM_REDUCE_SCATTER, &c);
    if (!n || !tci_comm_takes(&f, n, how) || !tci_comm_axis(&f, n, axis, &at)) {
        return tci_frame_end(&f, NULL);
    }
    n = tci_comm_averaged(&f, n, how);
    n = n ? tci_comm_part(&f, n, at, c.ranks) : NULL;
    bool sums = how == TC_COMM_SUM || how == TC_COMM_MEAN;
    if (!sums) {
        c.verb = TC_COMM_ALL_TO_ALL;
    }
    n = tci_build_collective(&f.ctx->graph, &c, n);
    return tci_frame_end(&f, !sums                 ? tci_comm_fold(&f, n, how)
                             : how == TC_COMM_MEAN ? tci_comm_mean(&f, n, c.ranks)
                                                   : n);
}

/* ---- movement ---- */

TC_API tc_tensor tc_comm_all_gather_at(tc_comm *comm, tc_tensor x, int axis, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_comm_all_gather", here);
    tci_comm_step c;
    int at;
    tci_node *n = tci_comm_begin(&f, comm, x, TC_COMM_ALL_GATHER, &c);
    if (!n || !tci_comm_axis(&f, n, axis, &at)) {
        return tci_frame_end(&f, NULL);
    }
    return tci_frame_end(&f, tci_comm_join(&f, tci_build_collective(&f.ctx->graph, &c, n), at));
}

TC_API tc_tensor tc_comm_broadcast_at(tc_comm *comm, tc_tensor x, int root, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_comm_broadcast", here);
    tci_comm_step c;
    tci_node *n = tci_comm_begin(&f, comm, x, TC_COMM_BROADCAST, &c);
    bool fits = n && tci_comm_peer(&f, comm, root, false, &c);
    return tci_frame_end(&f, fits ? tci_build_collective(&f.ctx->graph, &c, n) : NULL);
}

TC_API tc_tensor tc_comm_all_to_all_at(tc_comm *comm, tc_tensor x, int cut, int join, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_comm_all_to_all", here);
    tci_comm_step c;
    int from, to;
    tci_node *n = tci_comm_begin(&f, comm, x, TC_COMM_ALL_TO_ALL, &c);
    if (!n || !tci_comm_axis(&f, n, cut, &from) || !tci_comm_axis(&f, n, join, &to)) {
        return tci_frame_end(&f, NULL);
    }
    n = tci_comm_part(&f, n, from, c.ranks);
    return tci_frame_end(&f, tci_comm_join(&f, tci_build_collective(&f.ctx->graph, &c, n), to));
}

TC_API tc_tensor tc_comm_send_at(tc_comm *comm, tc_tensor x, int to, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_comm_send", here);
    tci_comm_step c;
    tci_node *n = tci_comm_begin(&f, comm, x, TC_COMM_SEND, &c);
    bool fits = n && tci_comm_peer(&f, comm, to, true, &c);
    return tci_frame_end(&f, fits ? tci_build_collective(&f.ctx->graph, &c, n) : NULL);
}

TC_API tc_tensor tc_comm_recv_at(tc_comm *comm, tc_tensor like, int from, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_comm_recv", here);
    tci_comm_step c;
    tci_node *n = tci_comm_begin(&f, comm, like, TC_COMM_RECV, &c);
    bool fits = n && tci_comm_peer(&f, comm, from, true, &c);
    return tci_frame_end(&f, fits ? tci_build_collective(&f.ctx->graph, &c, n) : NULL);
}

TC_API tc_tensor tc_comm_barrier_at(tc_comm *comm, tc_tensor x, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_comm_barrier", here);
    tci_comm_step c;
    tci_node *n = tci_comm_begin(&f, comm, x, TC_COMM_BARRIER, &c);
    tci_node *all = n ? tci_build_collective(&f.ctx->graph, &c, n) : NULL;
    tci_graph *g = &f.ctx->graph;
    const tci_value nothing = {.u = 0};
    tci_node *zero = all ? tci_graph_const(g, (tc_dtype)n->dtype, nothing) : NULL;
    return tci_frame_end(&f, zero ? tci_build_where(g, all, n, zero) : NULL); /* it is true */
}
