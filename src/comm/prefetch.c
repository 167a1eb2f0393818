/* comm/prefetch.c - tc_prefetch: all-gathers sharded parameters just before each use and drops them
 * after it (FSDP, arXiv 2304.11277).
 *
 * In: a graph with all_gathers of parameters. Out: the same values; a gather whose uses are far
 * apart, as in a layer's forward and backward pass, is made once for each, so that its result is
 * freed between them; and a gather starts when the uses of an earlier one begin. A reduce_scatter
 * starts when an earlier one is done, so that unsharded gradients do not accumulate.
 *
 * Design: uses in the order of their depth (the longest path from a leaf) are the order in which
 * layers run. Each gather serves one contiguous range of uses in that order; a BARRIER delays its
 * operand until the first use of the gather `ahead` + 1 positions earlier. Every edge goes from a
 * lower position to a higher one, so there is no cycle. */
#include <stdio.h>
#include <string.h>

#include "../api/api_call.h"
#include "../graph/contraction_descriptor.h"
#include "api.h"
#include "partition.h"

enum { TCI_FETCH_BETWEEN = 2 }; /* uses of other gathers between two of one that are far apart */

/* A node that uses a gather: directly, or through views and casts. */
typedef struct tci_fetch_use {
    tci_node *gather, *user;
    int32_t depth;
    int32_t stretch; /* of the gather's uses: the position of its first in the list */
} tci_fetch_use;

/* A gather of one range of uses. */
typedef struct tci_fetch_event {
    tci_node *gather, *first; /* its first user */
    tci_node *made;
} tci_fetch_event;

typedef struct tci_fetch {
    tci_scratch *s;
    tci_graph *g;
    int ahead;
    tci_table depths;   /* int32_t */
    tci_table gathers;  /* of a gather, its views and their casts: tci_node *, the gather */
    tci_table now;      /* of nodes that were built again */
    tci_node_list list; /* by depth */
    tci_fetch_use *uses;
    int n_uses, cap_uses;
    tci_fetch_event *events;
    int n_events;
    tci_node **scatters;
    int n_scatters, cap_scatters; /* reduce_scatters, by depth */
} tci_fetch;

static int32_t *tci_fetch_depth(tci_fetch *f, const tci_node *n)
{
    return tci_table_at(&f->depths, n);
}

static tci_node **tci_fetch_gather(tci_fetch *f, const tci_node *n)
{
    return tci_table_at(&f->gathers, n);
}

/* ---- uses ---- */

static bool tci_fetch_is(const tci_node *n, tc_comm_verb verb)
{
    return n->op == TCI_OP_COLLECTIVE && n->attr[TCI_COLLECTIVE_VERB] == (int64_t)verb;
}

static bool tci_fetch_is_gather(tci_node *n)
{
    return tci_fetch_is(n, TC_COMM_ALL_GATHER) &&
           tci_below(n->in[0], TCI_THROUGH_ALL, NULL)->op == TCI_OP_DATA;
}

static void tci_fetch_look(tci_fetch *f, tci_node *n)
{
    int32_t depth = 0;
    for (int i = 0; i < n->n_in; i++) {
        depth = TCI_MAX(depth, *tci_fetch_depth(f, n->in[i]) + 1);
    }
    *tci_fetch_depth(f, n) = depth;
    if (tci_fetch_is(n, TC_COMM_REDUCE_SCATTER)) {
        TCI_PUSH(f->s, f->scatters, f->n_scatters, f->cap_scatters, n);
    }
    bool passes = n->n_in && (tci_op_is(n->op, TCI_IS_VIEW) || n->op == TCI_OP_CAST);
    *tci_fetch_gather(f, n) = tci_fetch_is_gather(n) ? n
                              : passes               ? *tci_fetch_gather(f, n->in[0])
                                                     : NULL;
    for (int i = 0; i < n->n_in && !*tci_fetch_gather(f, n); i++) {
        tci_node *gather = *tci_fetch_gather(f, n->in[i]);
        if (gather) {
            const tci_fetch_use use = {.gather = gather, .user = n, .depth = depth};
            TCI_PUSH(f->s, f->uses, f->n_uses, f->cap_uses, use);
        }
    }
}

/* Counting sort by depth, stable. */
static void tci_fetch_sort(tci_fetch *f)
{
    int32_t most = 0;
    for (int i = 0; i < f->list.n; i++) {
        most = TCI_MAX(most, *tci_fetch_depth(f, f->list.items[i]));
    }
    int32_t *at = TCI_NEW_ARRAY(f->s, int32_t, most + 2);
    tci_node **sorted = TCI_NEW_ARRAY(f->s, tci_node *, f->list.n + 1);
    for (int i = 0; i < f->list.n; i++) {
        at[*tci_fetch_depth(f, f->list.items[i]) + 1]++;
    }
    for (int d = 0; d < most; d++) {
        at[d + 1] += at[d];
    }
    for (int i = 0; i < f->list.n; i++) {
        sorted[at[*tci_fetch_depth(f, f->list.items[i])]++] = f->list.items[i];
    }
    f->list.items = sorted;
}

/* The last use of the gather before use u in the list; -1: u is its first. */
static int tci_fetch_previous(const tci_fetch *f, int u)
{
    int i = u - 1;
    while (i >= 0 && f->uses[i].gather != f->uses[u].gather) {
        i--;
    }
    return i;
}

/* Uses are in the order of depth: the ranges of each gather. */
static void tci_fetch_find_events(tci_fetch *f)
{
    f->events = TCI_NEW_ARRAY(f->s, tci_fetch_event, f->n_uses + 1);
    for (int u = 0; u < f->n_uses; u++) {
        tci_fetch_use *use = &f->uses[u];
        int before = tci_fetch_previous(f, u), between = 0;
        for (int i = before + 1; i < u && before >= 0; i++) {
            between += f->uses[i].depth > f->uses[before].depth && f->uses[i].depth < use->depth;
        }
        if (before >= 0 && between < TCI_FETCH_BETWEEN) {
            use->stretch = f->uses[before].stretch;
        } else {
            use->stretch = f->n_events;
            f->events[f->n_events++] = (tci_fetch_event){use->gather, use->user, NULL};
        }
    }
}

/* ---- the graph once more ---- */

static tci_node *tci_fetch_built(tci_fetch *f, tci_node *n)
{
    if (!n) {
        tci_scratch_fail(f->s, f->g->error ? f->g->error : TC_ERR_INTERNAL, "%s", f->g->message);
    }
    return n;
}

static tci_node *tci_fetch_now(tci_fetch *f, tci_node *n);

/* A node that uses several gathers does not wait for itself, and none waits for a node that has no
 * value: a loop, whose results are other nodes, or an effect. */
static bool tci_fetch_may_wait(const tci_node *user, const tci_node *before)
{
    return before != user && before->op != TCI_OP_REPEAT && !tci_op_is(before->op, TCI_IS_EFFECT);
}

static tci_node *tci_fetch_event_made(tci_fetch *f, int e)
{
    tci_fetch_event *event = &f->events[e];
    if (!event->made) {
        const tci_comm_step step = tci_build_comm_step(event->gather);
        tci_node *x = event->gather->in[0];
        int before = e - 1 - f->ahead;
        while (before >= 0 && !tci_fetch_may_wait(event->first, f->events[before].first)) {
            before--;
        }
        if (before >= 0) {
            tci_node *after = tci_fetch_now(f, f->events[before].first);
            x = tci_fetch_built(f, tci_build_barrier(f->g, x, &after, 1, false));
        }
        event->made = tci_fetch_built(f, tci_build_collective(f->g, &step, x));
    }
    return event->made;
}

/* A gather, or views and casts of it, as range e has it. */
static tci_node *tci_fetch_viewed(tci_fetch *f, tci_node *n, int e)
{
    if (n == f->events[e].gather) {
        return tci_fetch_event_made(f, e);
    }
    tci_table_put(&f->now, n->in[0], tci_fetch_viewed(f, n->in[0], e));
    for (int i = 1; i < n->n_in; i++) {
        tci_table_put(&f->now, n->in[i], n->in[i]);
    }
    return tci_fetch_built(f, tci_graph_rebuild(f->s, f->g, n, &f->now));
}

/* The range in which n uses the gather. */
static int tci_fetch_stretch(const tci_fetch *f, const tci_node *gather, const tci_node *n)
{
    for (int u = 0; u < f->n_uses; u++) {
        if (f->uses[u].gather == gather && f->uses[u].user == n) {
            return f->uses[u].stretch;
        }
    }
    return -1;
}

/* The operand of a reduce_scatter waits for the one `ahead` + 1 positions before it. */
static void tci_fetch_limit(tci_fetch *f, tci_node *n)
{
    int k = 0;
    while (k < f->n_scatters && f->scatters[k] != n) {
        k++;
    }
    if (k > f->ahead && k < f->n_scatters) {
        tci_node *before = tci_fetch_now(f, f->scatters[k - 1 - f->ahead]);
        tci_node *x = tci_table_get(&f->now, n->in[0]);
        tci_table_put(&f->now, n->in[0],
                      tci_fetch_built(f, tci_build_barrier(f->g, x, &before, 1, false)));
    }
}

/* All nodes of less depth were built. */
static tci_node *tci_fetch_now(tci_fetch *f, tci_node *n)
{
    tci_node **made = tci_table_at(&f->now, n);
    if (*made || *tci_fetch_gather(f, n)) {
        return *made;
    }
    for (int i = 0; i < n->n_in; i++) {
        tci_node *gather = *tci_fetch_gather(f, n->in[i]);
        if (gather) {
            tci_node *x = tci_fetch_viewed(f, n->in[i], tci_fetch_stretch(f, gather, n));
            tci_table_put(&f->now, n->in[i], x);
        }
    }
    tci_stamp before = tci_graph_stamp_as(f->g, n);
    if (tci_fetch_is(n, TC_COMM_REDUCE_SCATTER)) {
        tci_fetch_limit(f, n);
    }
    *made = tci_fetch_built(f, tci_graph_rebuild(f->s, f->g, n, &f->now));
    tci_graph_restamp(f->g, before);
    return *made;
}

static void tci_fetch_walk(tci_fetch *f, tci_node *const *roots, int n)
{
    f->depths = tci_table_in(f->s, sizeof(int32_t));
    f->gathers = tci_table_in(f->s, sizeof(tci_node *));
    f->now = tci_table_in(f->s, sizeof(tci_node *));
    f->list = tci_graph_sort(f->s, roots, n);
    for (int i = 0; i < f->list.n; i++) {
        tci_fetch_look(f, f->list.items[i]);
    }
    tci_fetch_sort(f);
    f->n_uses = f->n_scatters = 0;
    for (int i = 0; i < f->list.n; i++) { /* once more, in the order of depth */
        tci_fetch_look(f, f->list.items[i]);
    }
    tci_fetch_find_events(f);
    for (int i = 0; i < f->list.n; i++) {
        tci_fetch_now(f, f->list.items[i]);
    }
}

/* A tci_part_body of tc_prefetch. */
static void tci_fetch_all(void *walk, tci_frame *frame, tci_scratch *s, tci_node **roots, int n,
                          tc_tensor *out)
{
    tci_fetch *f = walk;
    f->s = s;
    f->g = &frame->ctx->graph;
    tci_fetch_walk(f, roots, n);
    for (int i = 0; i < n; i++) { /* a root that is a gather stays that */
        tci_node *made = *tci_fetch_gather(f, roots[i]) ? roots[i] : tci_fetch_now(f, roots[i]);
        out[i] = tci_handle_make(frame->ctx, made, frame->here);
    }
}

TC_API tc_status tc_prefetch_at(const tc_tensor *tensors, int n, int ahead, tc_tensor *out,
                                tc_site here)
{
    tci_fetch walk = {.ahead = ahead};
    return ahead < 0 ? TC_ERR_ARGUMENT
                     : tci_part_call("tc_prefetch", here, tci_fetch_all, &walk, tensors, n, out);
}
