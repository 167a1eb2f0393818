/* comm/partition.c - tc_shard and tc_partition: SPMD partitioning of a graph by sharding
 * annotations (comm/partition.h).
 *
 * In: tensors over global (unsharded) inputs and parameters, some of them marked. Out: the tensors
 * of one rank, over its shards.
 *
 * Design: one traversal from leaves to roots. The rule of each op gives the sharding of its result
 * (partition_rules.c); where a consumer needs another sharding, collectives are inserted:
 * all_reduce for a partial sum (reduce_scatter if the consumer wants shards), all_gather for shards
 * (all_to_all to reshard along another axis). A replicated value is sharded by a slice.
 *
 * A parameter without a mark is sharded as in an earlier call, else as the value that is assigned
 * to it: the state of optimizers follows their gradients. Dry runs of the traversal find that
 * first. */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "../api/api_call.h"
#include "../base/alloc.h"
#include "api.h"
#include "partition.h"

enum { TCI_PART_WALKS = 8 };

/* This rank's part of a parameter, made once for all calls. */
typedef struct tci_part_param {
    struct tci_part_param *next;
    tc_tensor whole, own;
    uint64_t versions[2]; /* of both when the part was made */
    int rank;
    int64_t comms[]; /* numbers, per axis */
} tci_part_param;

static tci_mutex tci_part_lock = TCI_MUTEX_INIT;
static tci_part_param *tci_part_params;

/* ---- splits ---- */

TCI_FN tci_node *tci_part_built(tci_part *v, tci_node *n)
{
    if (!n) {
        tci_scratch_fail(v->s, v->g->error ? v->g->error : TC_ERR_INTERNAL, "%s", v->g->message);
    }
    return n;
}

TCI_FN tci_part_value *tci_part_of(tci_part *v, const tci_node *n)
{
    tci_part_value *value = tci_table_at(&v->values, n);
    return value->as ? value->as : value;
}

TCI_FN int8_t *tci_part_none(tci_part *v, int rank)
{
    return TCI_NEW_ARRAY(v->s, int8_t, rank + 1);
}

TCI_FN bool tci_part_uses(const int8_t *split, int rank, int comm)
{
    for (int d = 0; d < rank; d++) {
        if (split[d] == comm + 1) {
            return true;
        }
    }
    return false;
}

TCI_FN bool tci_part_fits(const tci_part *v, tci_dim size, int split)
{
    return tci_dim_divides(v->comms[split - 1]->size, size);
}

TCI_FN tci_dim *tci_part_shape(tci_part *v, const tci_node *n, const int8_t *split)
{
    tci_dim *shape = TCI_NEW_ARRAY(v->s, tci_dim, n->rank + 1);
    for (int d = 0; d < n->rank; d++) {
        shape[d] = split[d] ? tci_dim_div(n->shape[d], v->comms[split[d] - 1]->size) : n->shape[d];
    }
    return shape;
}

/* ---- collectives ---- */

/* The node of a public call's result. */
static tci_node *tci_part_taken(tci_part *v, tc_tensor made)
{
    char text[512];
    tci_node *n = tci_handle_node(made);
    if (!n) {
        tc_status status = tci_handle_error(made, text, sizeof(text));
        tci_scratch_fail(v->s, status ? status : TC_ERR_INTERNAL, "%s", text);
    }
    return n;
}

TCI_FN tci_node *tci_part_reduce(tci_part *v, tci_node *n, int comm, tc_comm_how how, tc_site site)
{
    tc_tensor x = tci_handle_make(v->ctx, n, site);
    return tci_part_taken(v, tc_comm_all_reduce_at(v->comms[comm], x, how, site));
}

/* A partial sum becomes a sum, in parts where they are wanted. */
static tci_node *tci_part_summed(tci_part *v, tci_node *n, uint32_t partial, int8_t *split,
                                 const int8_t *want, tc_site site)
{
    for (int c = 0; c < v->n_comms; c++) {
        int at = -1;
        for (int d = 0; d < n->rank && partial >> c & 1; d++) {
            at = want[d] == c + 1 && !split[d] ? d : at;
        }
        if (at >= 0) {
            tc_tensor x = tci_handle_make(v->ctx, n, site);
            n = tci_part_taken(v, tc_comm_reduce_scatter_at(v->comms[c], x, at, TC_COMM_SUM, site));
            split[at] = (int8_t)(c + 1);
        } else if (partial >> c & 1) {
            n = tci_part_reduce(v, n, c, TC_COMM_SUM, site);
        }
    }
    return n;
}

/* Cuts that are not wanted are undone, or moved to the axis where they are. */
static tci_node *tci_part_joined(tci_part *v, tci_node *n, int8_t *split, const int8_t *want,
                                 tc_site site)
{
    for (int d = 0; d < n->rank; d++) {
        int c = split[d] - 1, to = -1;
        if (c < 0 || split[d] == want[d]) {
            continue;
        }
        for (int k = 0; k < n->rank; k++) {
            to = want[k] == c + 1 && !split[k] ? k : to;
        }
        tc_tensor x = tci_handle_make(v->ctx, n, site);
        x = to >= 0 ? tc_comm_all_to_all_at(v->comms[c], x, to, d, site)
                    : tc_comm_all_gather_at(v->comms[c], x, d, site);
        n = tci_part_taken(v, x);
        split[d] = 0;
        if (to >= 0) {
            split[to] = (int8_t)(c + 1);
        }
    }
    return n;
}

static tci_node *tci_part_cut(tci_part *v, tci_node *n, const int8_t *split, const int8_t *want)
{
    for (int d = 0; d < n->rank; d++) {
        if (want[d] && !split[d]) {
            const tc_comm *c = v->comms[want[d] - 1];
            tci_dim part = tci_dim_div(n->shape[d], c->size);
            n = tci_part_built(v, tci_build_slice(v->g, n, d, tci_dim_mul(part, c->rank),
                                                  tci_dim_mul(part, c->rank + 1), 1));
        }
    }
    return n;
}

/* True if slices alone make `want` of `split`. */
static bool tci_part_is_coarser(const int8_t *split, const int8_t *want, int rank)
{
    bool coarser = true;
    for (int d = 0; d < rank; d++) {
        coarser = coarser && (!split[d] || split[d] == want[d]);
    }
    return coarser;
}

TCI_FN tci_node *tci_part_want(tci_part *v, tci_node *n, const int8_t *want)
{
    tci_part_value *value = tci_part_of(v, n);
    if (v->dry) {
        return n;
    }
    tci_node *made = value->node;
    int8_t *split = tci_part_none(v, n->rank);
    uint32_t partial = value->partial;
    memcpy(split, value->split, (size_t)n->rank);
    for (const tci_part_form *f = value->forms; f; f = f->next) {
        if (!memcmp(f->split, want, (size_t)n->rank)) {
            return f->node;
        }
        if (tci_part_is_coarser(f->split, want, n->rank)) {
            made = f->node;
            partial = 0;
            memcpy(split, f->split, (size_t)n->rank);
        }
    }
    bool moves = partial || !tci_part_is_coarser(split, want, n->rank);
    made = tci_part_summed(v, made, partial, split, want, n->site);
    made = tci_part_joined(v, made, split, want, n->site);
    made = tci_part_cut(v, made, split, want);
    if (moves) {
        tci_part_form *form = TCI_NEW_ARRAY(v->s, tci_part_form, 1);
        int8_t *kept = tci_part_none(v, n->rank);
        memcpy(kept, want, (size_t)n->rank);
        *form = (tci_part_form){value->forms, kept, made};
        value->forms = form;
    }
    return made;
}

/* ---- traversal ---- */

TCI_FN void tci_part_reach(tci_part *v, tci_node *n)
{
    tci_node_list list = tci_graph_sort(v->s, &n, 1);
    for (int i = 0; i < list.n; i++) {
        if (!tci_part_of(v, list.items[i])->split) {
            tci_stamp before = tci_graph_stamp_as(v->g, list.items[i]);
            tci_part_visit(v, list.items[i]);
            tci_graph_restamp(v->g, before);
        }
    }
}

static void tci_part_add_comm(tci_part *v, int64_t number)
{
    for (int c = 0; c < v->n_comms; c++) {
        if (v->comms[c]->number == number) {
            return;
        }
    }
    tc_comm *comm = v->n_comms < TCI_PART_COMMS ? tci_comm_retain(number) : NULL;
    if (!comm) {
        tci_scratch_fail(v->s, v->n_comms < TCI_PART_COMMS ? TC_ERR_COMM : TC_ERR_LIMIT,
                         "communicator %d of a mark was freed, or the marks have more than %d",
                         (int)number, TCI_PART_COMMS);
    }
    v->comms[v->n_comms++] = comm;
}

/* ---- parts of parameters ---- */

static bool tci_part_is_param(const tci_node *n)
{
    return n->op == TCI_OP_DATA && n->storage->param;
}

static uint64_t tci_part_version(const tci_node *n)
{
    return __atomic_load_n(&n->storage->version, __ATOMIC_ACQUIRE);
}

/* Forgets the parts whose parameters are gone. Called under the lock. */
static void tci_part_forget(void)
{
    for (tci_part_param **at = &tci_part_params; *at;) {
        tci_part_param *p = *at;
        if (tci_handle_node(p->whole) && tci_handle_node(p->own)) {
            at = &p->next;
        } else {
            *at = p->next;
            tci_heap_free(p);
        }
    }
}

static tc_tensor tci_part_known(const tci_part *v, const tci_node *n, const int8_t *split)
{
    tc_tensor found = TC_NONE;
    pthread_mutex_lock(&tci_part_lock);
    tci_part_forget();
    for (const tci_part_param *p = tci_part_params; p; p = p->next) {
        bool same = tci_handle_node(p->whole)->storage == n->storage && p->rank == n->rank;
        for (int d = 0; d < n->rank && same; d++) {
            same = p->comms[d] == (split[d] ? v->comms[split[d] - 1]->number : 0);
        }
        found = same ? p->own : found;
    }
    pthread_mutex_unlock(&tci_part_lock);
    return found;
}

/* The communicators, per axis, over which an earlier call cut the parameter last. False: none
 * did. */
static bool tci_part_cut_before(const tci_node *n, int64_t *comms)
{
    const tci_part_param *p = NULL;
    pthread_mutex_lock(&tci_part_lock);
    tci_part_forget();
    for (p = tci_part_params; p; p = p->next) {
        if (tci_handle_node(p->whole)->storage == n->storage && p->rank == n->rank) {
            memcpy(comms, p->comms, sizeof(*comms) * (size_t)n->rank);
            break;
        }
    }
    pthread_mutex_unlock(&tci_part_lock);
    return p != NULL;
}

/* Fails where the parameter's newest value is in another part than `own`. */
static void tci_part_check_stale(tci_part *v, const tci_node *n, const tci_node *own)
{
    bool stale = false;
    pthread_mutex_lock(&tci_part_lock);
    tci_part_forget();
    for (const tci_part_param *p = tci_part_params; p; p = p->next) {
        const tci_node *whole = tci_handle_node(p->whole), *part = tci_handle_node(p->own);
        stale = stale || (whole->storage == n->storage && part != own &&
                          tci_part_version(whole) == p->versions[0] &&
                          tci_part_version(part) != p->versions[1]);
    }
    pthread_mutex_unlock(&tci_part_lock);
    if (stale) {
        tci_scratch_fail(v->s, TC_ERR_ARGUMENT,
                         "a parameter %s was trained in parts that an earlier tc_partition cut "
                         "otherwise; expected the same marks and communicators, or a parameter "
                         "that was given the value since (tc_assign)",
                         TCI_SHAPE_TEXT(n));
    }
}

/* 1 + the position of a communicator of the traversal; 0: it has none. */
static int8_t tci_part_split_of(const tci_part *v, int64_t number)
{
    int8_t split = 0;
    for (int c = 0; c < v->n_comms; c++) {
        split = v->comms[c]->number == number ? (int8_t)(c + 1) : split;
    }
    return split;
}

static int8_t **tci_part_leaf_split(tci_part *v, const tci_node *leaf)
{
    return tci_table_at(&v->leaves, leaf);
}

/* The split that a parameter without a mark has from an earlier call. */
static void tci_part_inherit(tci_part *v, const tci_node *n)
{
    int64_t *numbers = TCI_NEW_ARRAY(v->s, int64_t, n->rank + 1);
    int8_t *split = tci_part_none(v, n->rank);
    bool is = tci_part_cut_before(n, numbers);
    for (int d = 0; d < n->rank && is; d++) {
        tc_comm *c = numbers[d] ? tci_comm_retain(numbers[d]) : NULL;
        is = !numbers[d] || c;
        if (c) {
            tci_comm_release(c);
            tci_part_add_comm(v, numbers[d]);
            split[d] = tci_part_split_of(v, numbers[d]);
        }
    }
    if (is) {
        *tci_part_leaf_split(v, n) = split;
    }
}

/* The communicators of all marks, and the splits of leaves that have one. */
static void tci_part_find_marks(tci_part *v, const tci_node_list *list)
{
    for (int i = 0; i < list->n; i++) {
        const tci_node *n = list->items[i];
        for (int d = 0; n->op == TCI_OP_SHARD && d < n->n_attr; d++) {
            if (n->attr[d]) {
                tci_part_add_comm(v, n->attr[d]);
            }
        }
    }
    for (int i = 0; i < list->n; i++) {
        const tci_node *n = list->items[i];
        bool leaf = n->op == TCI_OP_SHARD &&
                    (n->in[0]->op == TCI_OP_INPUT || n->in[0]->op == TCI_OP_DATA);
        if (!leaf || *tci_part_leaf_split(v, n->in[0])) {
            continue;
        }
        int8_t *split = tci_part_none(v, n->rank);
        for (int d = 0; d < n->rank; d++) {
            split[d] = tci_part_split_of(v, n->attr[d]);
        }
        *tci_part_leaf_split(v, n->in[0]) = split;
    }
    for (int i = 0; i < list->n; i++) {
        const tci_node *n = list->items[i];
        if (tci_part_is_param(n) && !*tci_part_leaf_split(v, n)) {
            tci_part_inherit(v, n);
        }
    }
}

static bool tci_part_is_cut(const int8_t *split, int rank)
{
    for (int d = 0; d < rank; d++) {
        if (split[d]) {
            return true;
        }
    }
    return false;
}

static void tci_part_begin_walk(tci_part *v, bool dry)
{
    v->values = tci_table_in(v->s, sizeof(tci_part_value));
    v->dry = dry;
}

/* One dry traversal. True if an unmarked parameter got the split of the value assigned to it. */
static bool tci_part_infer(tci_part *v, const tci_node_list *list)
{
    bool found = false;
    tci_part_begin_walk(v, true);
    for (int i = 0; i < list->n; i++) {
        tci_node *n = list->items[i];
        int8_t *split = (n->op == TCI_OP_INPUT || n->op == TCI_OP_DATA) ? *tci_part_leaf_split(v, n)
                                                                        : NULL;
        if (split) {
            *tci_part_of(v, n) = (tci_part_value){.node = n, .split = split};
        } else if (!tci_part_of(v, n)->split) {
            tci_part_visit(v, n);
        }
        if (n->op == TCI_OP_ASSIGN && !*tci_part_leaf_split(v, n->in[0]) &&
            n->in[1]->rank == n->rank &&
            tci_part_is_cut(tci_part_of(v, n->in[1])->split, n->rank)) {
            *tci_part_leaf_split(v, n->in[0]) = tci_part_of(v, n->in[1])->split;
            found = true;
        }
    }
    return found;
}

/* ---- leaves ---- */

static tci_node *tci_part_input(tci_part *v, const tci_node *n, const int8_t *split)
{
    int64_t *words = TCI_NEW_ARRAY(v->s, int64_t, n->rank + 1);
    const tci_dim *shape = tci_part_shape(v, n, split);
    words[0] = n->dtype;
    for (int d = 0; d < n->rank; d++) {
        words[d + 1] = tci_dim_words(shape)[d];
    }
    return tci_part_taken(v, tc_input_at(v->ctx->handle, n->name, n->rank + 1, words, n->site));
}

static tc_status tci_part_remember(tci_part *v, tci_node *n, const int8_t *split, tc_tensor own)
{
    tci_part_param *p = tci_heap_get(sizeof(*p) + sizeof(int64_t) * (size_t)n->rank);
    if (!p) {
        return TC_ERR_MEMORY;
    }
    p->whole = tci_handle_make(v->ctx, n, n->site);
    p->own = own;
    p->versions[0] = tci_part_version(n);
    p->versions[1] = tci_part_version(tci_handle_node(own));
    p->rank = n->rank;
    for (int d = 0; d < n->rank; d++) {
        p->comms[d] = split[d] ? v->comms[split[d] - 1]->number : 0;
    }
    pthread_mutex_lock(&tci_part_lock);
    p->next = tci_part_params;
    tci_part_params = p;
    pthread_mutex_unlock(&tci_part_lock);
    return TC_OK;
}

/* A parameter's part is a parameter; of other memory it is a view. */
static tci_node *tci_part_data(tci_part *v, tci_node *n, const int8_t *split)
{
    tci_node *own = tci_part_cut(v, n, tci_part_none(v, n->rank), split);
    if (!tci_part_is_param(n)) {
        return own;
    }
    tc_tensor known = tci_part_known(v, n, split);
    tci_node *part = tci_is_none(known) ? NULL : tci_handle_node(known);
    tci_part_check_stale(v, n, part);
    if (part) {
        return part;
    }
    tc_tensor made = tc_param_from_at(tci_handle_make(v->ctx, own, n->site), n->site);
    const char *name = tci_param_name_of(n->storage);
    part = tci_part_taken(v, made);
    if ((name && !tci_param_name(part->storage, name)) || tci_part_remember(v, n, split, made)) {
        tci_scratch_fail(v->s, TC_ERR_MEMORY, "out of memory for the part of a parameter");
    }
    return part;
}

/* All ranks make the parts of all marked leaves in the same order. */
static void tci_part_make_leaves(tci_part *v, const tci_node_list *list)
{
    for (int i = 0; i < list->n; i++) {
        tci_node *n = list->items[i];
        int8_t *split = (n->op == TCI_OP_INPUT || n->op == TCI_OP_DATA) ? *tci_part_leaf_split(v, n)
                                                                        : NULL;
        if (split && tci_part_is_cut(split, n->rank)) {
            tci_part_value *value = tci_part_of(v, n);
            value->node = n->op == TCI_OP_INPUT ? tci_part_input(v, n, split)
                                                : tci_part_data(v, n, split);
            value->split = split;
        } else if (tci_part_is_param(n)) {
            tci_part_check_stale(v, n, NULL);
        }
    }
}

/* ---- calls ---- */

static void tci_part_walk(tci_part *v, tci_node *const *roots, int n)
{
    tci_node_list list = tci_graph_sort(v->s, roots, n);
    v->leaves = tci_table_in(v->s, sizeof(int8_t *));
    tci_part_find_marks(v, &list);
    for (int i = 0; i < TCI_PART_WALKS && tci_part_infer(v, &list); i++) {
    }
    tci_part_begin_walk(v, false);
    tci_part_make_leaves(v, &list);
    for (int i = 0; i < list.n; i++) {
        tci_part_reach(v, list.items[i]);
    }
}

/* The part of a mark, a leaf or an effect; the whole of any other node. */
static tci_node *tci_part_root(tci_part *v, tci_node *n)
{
    bool own = n->op == TCI_OP_SHARD || n->op == TCI_OP_INPUT || n->op == TCI_OP_DATA ||
               n->op == TCI_OP_ASSIGN;
    return own ? tci_part_of(v, n)->node : tci_part_want(v, n, tci_part_none(v, n->rank));
}

/* A tci_part_body of tc_partition. */
static void tci_part_all(void *walk, tci_frame *f, tci_scratch *s, tci_node **roots, int n,
                         tc_tensor *out)
{
    tci_part *v = walk;
    v->s = s;
    v->g = &f->ctx->graph;
    v->ctx = f->ctx;
    tci_part_walk(v, roots, n);
    for (int i = 0; i < n; i++) {
        out[i] = tci_handle_make(v->ctx, tci_part_root(v, roots[i]), f->here);
        tci_part_taken(v, out[i]);
    }
    for (int c = 0; c < v->n_comms; c++) { /* offsets of parts are numbers of the graph */
        v->comms[c]->options.may_differ = true;
    }
}

static void tci_part_enter(tci_frame *f, tci_scratch *s, tci_part_body body, void *walk,
                           const tc_tensor *tensors, int n, tc_tensor *out)
{
    if (setjmp(s->escape)) {
        tci_frame_fail(f, s->why, "%s", s->message);
        f->ctx->graph.error = TC_OK;
        return;
    }
    tci_node **roots = TCI_NEW_ARRAY(s, tci_node *, n + 1);
    for (int i = 0; i < n; i++) {
        roots[i] = tci_handle_node(tensors[i]);
    }
    body(walk, f, s, roots, n, out);
}

TCI_FN tc_status tci_part_call(const char *name, tc_site here, tci_part_body body, void *walk,
                               const tc_tensor *tensors, int n, tc_tensor *out)
{
    if (!tensors || !out || n < 1) {
        return TC_ERR_ARGUMENT;
    }
    tci_frame f = tci_frame_begin(name, here);
    tci_scratch s;
    tci_scratch_init(&s);
    for (int i = 0; i < n; i++) {
        tci_frame_use(&f, tensors[i]);
    }
    for (int i = 0; i < n; i++) {
        tci_frame_node(&f, tensors[i], "a tensor");
    }
    if (!f.failed) {
        tci_part_enter(&f, &s, body, walk, tensors, n, out);
    }
    tci_scratch_free(&s);
    if (f.failed) {
        out[0] = tci_frame_end(&f, NULL);
        char text[8];
        return tci_handle_error(out[0], text, sizeof(text));
    }
    tci_frame_leave(&f);
    return TC_OK;
}

TC_API tc_status tc_partition_at(const tc_tensor *tensors, int n, tc_tensor *out, tc_site here)
{
    tci_part v = {.n_comms = 0};
    tc_status status = tci_part_call("tc_partition", here, tci_part_all, &v, tensors, n, out);
    for (int c = 0; c < v.n_comms; c++) {
        tci_comm_release(v.comms[c]);
    }
    return status;
}

/* The communicator's number of an axis, 0 for TC_WHOLE; -1: the frame is failed. */
static int64_t tci_part_mark_of(tci_frame *f, const tci_node *n, const tc_mesh *mesh, int d,
                                int axis)
{
    const tc_comm *c = axis >= 0 && axis < mesh->n ? tci_comm_of(mesh->comms[axis]) : NULL;
    if (axis == TC_WHOLE) {
        return 0;
    }
    if (!c) {
        tci_frame_fail(f, axis < 0 || axis >= mesh->n ? TC_ERR_ARGUMENT : TC_ERR_HANDLE,
                       "axis %d is cut over axis %d of a mesh of %d communicators, expected "
                       "TC_WHOLE, or one that was not freed",
                       d, axis, mesh->n);
    } else if (!tci_dim_divides(c->size, n->shape[d])) {
        tci_frame_fail(f, TC_ERR_SHAPE,
                       "axis %d of %s is cut in %d parts, expected a size that is "
                       "a multiple of %d",
                       d, TCI_SHAPE_TEXT(n), c->size, c->size);
    }
    return f->failed ? -1 : c->number;
}

TC_API tc_tensor tc_shard_at(tc_tensor x, const tc_mesh *mesh, const int *axes, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_shard", here);
    tci_words w;
    tci_frame_use(&f, x);
    tci_node *n = tci_frame_node(&f, x, "the tensor");
    if (n && (!mesh || !mesh->comms || !axes)) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "the mesh, its communicators or the axes are NULL");
    }
    int64_t *words = f.failed ? NULL : tci_words_get(&f.ctx->graph, &w, n->rank + 1);
    for (int d = 0; words && d < n->rank && !f.failed; d++) {
        words[d] = tci_part_mark_of(&f, n, mesh, d, axes[d]);
        for (int k = 0; k < d && !f.failed && words[d]; k++) {
            if (words[k] == words[d]) {
                tci_frame_fail(&f, TC_ERR_ARGUMENT,
                               "axes %d and %d are cut over one communicator, "
                               "expected one for each",
                               k, d);
            }
        }
    }
    tci_node *made = NULL;
    if (words) {
        made = f.failed ? NULL
                        : tci_build_node(&f.ctx->graph, TCI_OP_SHARD, (tc_dtype)n->dtype, n->rank,
                                         n->shape, 1, &n, n->rank, words);
        tci_words_put(&f.ctx->graph, &w, NULL);
    }
    return tci_frame_end(&f, made);
}
