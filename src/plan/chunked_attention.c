/* plan/chunked_attention.c - rewrites unfused attention as a loop (REPEAT) over blocks of query
 * rows, so that only one [block, keys] array of scores is in memory at a time.
 *
 * In: the outputs of a program and its plan. Out: the same outputs; wherever the plan stores an
 * array of attention scores (plan/attention_recompute.c), a REPEAT that stores one block of its
 * rows:
 *
 *     for each block  s = contract(q[block], k)
 *                     m, l of s;  p = exp(s - m) / l
 *                     o[block] = contract(p, v)
 *
 * Each kernel of such a set sums some axes of the scores, and the rows of the other axes are
 * independent. The loop runs over the longest of these axes. Values from outside that have this
 * axis are split into blocks (xs of the REPEAT); an output of a kernel is concatenated from its
 * blocks. A mask or another array as large as the scores is read at the block's rows; an operand
 * that every block reads in another order, such as k, is copied once. The last block may reach past
 * the end of the axis: the rows beyond it are zeros and are cut off.
 *
 * The blocks are ordinary nodes and each row is computed as before, so this works for every size,
 * dtype, backend and numeric class that has no fused kernel. Products and rows of a block go
 * through memory between its kernels, so a fused kernel, where one exists, is faster. */
#include "../graph/build.h"
#include "../graph/loop_node.h"
#include "relayout.h"
#include "attention_recompute.h"

#include <string.h>

enum {
    TCI_ATTN_BLOCKS_ROWS = 64,        /* of a band, at least, of each element of a batch; */
    TCI_ATTN_BLOCKS_BLOCK_ROWS = 128, /* on a GPU */
    TCI_ATTN_BLOCKS_ALL_ROWS = 512,   /* of all the batch, about: what keeps a machine busy */
    TCI_ATTN_BLOCKS_ALL_BLOCK_ROWS = 2048,
    TCI_ATTN_BLOCKS_LONG = 128,  /* where they are so long */
    TCI_ATTN_BLOCKS_LEAST = 4,   /* of an axis of known size: else they save little */
    TCI_ATTN_BLOCKS_UNKNOWN = 2, /* times fewer rows of one of unknown size */
    TCI_ATTN_BLOCKS_DEEP = 2000  /* nodes below each other that are looked at */
};

/* An axis of a node is that which is cut in bands, one the longest that is summed; -1: none is. */
typedef struct tci_attn_blocks_at {
    tci_node *of;
    int axis, across;
    tci_node *made; /* in the body */
} tci_attn_blocks_at;

typedef struct tci_attn_blocks {
    const tci_algo *a;
    tci_scores p;
    tci_table now;   /* of nodes: what stands for each outside of bands */
    bool *refused;   /* per set; */
    uint64_t *begun; /* and of its kernels */
    int n_deep;
} tci_attn_blocks;

/* One kernel of a set as a loop. */
typedef struct tci_attn_blocks_loop {
    tci_attn_blocks *b;
    const tci_scores_set *set;
    int kernel, axis, across; /* of pairs */
    tci_dim size, rows, n_bands;
    tci_table needs; /* of int: 1: a node above a fold or pair of it, 2: none */
    tci_attn_blocks_at *at;
    int n_at, cap_at;
    tci_node **xs, **x;
    int n_xs, cap_xs, n_x, cap_x;
    tci_node **held, **inner;
    int n_held, cap_held, n_inner, cap_inner;
    tci_node *first; /* BOUND: the first row of the band */
    bool fits;
} tci_attn_blocks_loop;

/* ---- which sets ---- */

/* The axis of a kernel's pairs that is best cut: the longest one that it does not sum and one
 * factor of each contraction has. */
static int tci_attn_blocks_axis(const tci_scores_set *set, int kernel)
{
    const tci_node *pair = set->pairs[0];
    int longest = -1;
    for (int a = 0; a < pair->rank; a++) {
        bool fits = !(set->kernels[kernel].summed >> a & 1);
        for (int i = 0; i < set->n_pairs && fits; i++) {
            const tci_node *n = set->pairs[i];
            if (n->op == TCI_OP_CONTRACT) {
                fits = tci_contract_place(n, 2, a, 0) < 0 || tci_contract_place(n, 2, a, 1) < 0;
            }
        }
        bool longer = longest < 0 ||
                      tci_dim_hint(pair->shape[a]) >= tci_dim_hint(pair->shape[longest]);
        longest = fits && longer ? a : longest;
    }
    return longest;
}

/* The longest axis that it sums. */
static int tci_attn_blocks_across(const tci_scores_set *set, int kernel)
{
    const tci_node *pair = set->pairs[0];
    int longest = -1;
    for (int a = 0; a < pair->rank; a++) {
        bool longer = longest < 0 ||
                      tci_dim_hint(pair->shape[a]) > tci_dim_hint(pair->shape[longest]);
        longest = set->kernels[kernel].summed >> a & 1 && longer ? a : longest;
    }
    return longest;
}

/* Rows of a band, such that all that is computed at once keeps a machine busy. Of a size that is a
 * symbol the last band may be mostly rows that are cut off: on a CPU, where it costs little,
 * they are shorter. */
static int64_t tci_attn_blocks_rows(const tci_attn_blocks *b, const tci_scores_set *set, int kernel)
{
    const tci_node *pair = set->pairs[0];
    int axis = tci_attn_blocks_axis(set, kernel), across = tci_attn_blocks_across(set, kernel);
    bool blocks = b->a->machine.block_threads > 0, known = tci_dim_is_known(pair->shape[across]);
    int64_t rows = blocks ? TCI_ATTN_BLOCKS_BLOCK_ROWS : TCI_ATTN_BLOCKS_ROWS;
    double all = blocks ? TCI_ATTN_BLOCKS_ALL_BLOCK_ROWS : TCI_ATTN_BLOCKS_ALL_ROWS,
           at_once = (double)rows;
    for (int a = 0; a < pair->rank; a++) {
        at_once *= a != axis && a != across ? (double)TCI_MAX(tci_dim_hint(pair->shape[a]), 1) : 1;
    }
    if (known && tci_dim_lt(pair->shape[across], TCI_ATTN_BLOCKS_LONG)) {
        all *= (double)TCI_ATTN_BLOCKS_LONG /
               (double)TCI_MAX(tci_dim_known(pair->shape[across]), 1);
    }
    for (; at_once < all; at_once *= 2) {
        rows *= 2;
    }
    return blocks || tci_dim_is_known(pair->shape[axis]) ? rows : rows / TCI_ATTN_BLOCKS_UNKNOWN;
}

/* True if the plan stores a buffer of n elements, the size of the score matrix. */
static bool tci_attn_blocks_is_stored(const tci_plan *p, tci_dim n)
{
    for (int b = 0; b < p->n_buffers; b++) {
        if (p->buffers[b].kind == TCI_BUF_TEMP && p->buffers[b].n == n) {
            return true;
        }
    }
    return false;
}

/* True if the score matrix is stored, and its blocks would be smaller in all kernels. */
static bool tci_attn_blocks_is_worth(const tci_attn_blocks *b, const tci_scores_set *set,
                                     const tci_plan *p)
{
    bool fits = set->fits && tci_attn_blocks_is_stored(p, tci_node_count(set->pairs[0]));
    for (int k = 0; k < set->n_kernels && fits; k++) {
        int axis = tci_attn_blocks_axis(set, k);
        fits = axis >= 0 && tci_attn_blocks_across(set, k) >= 0;
        tci_dim size = fits ? set->pairs[0]->shape[axis] : 0;
        int64_t rows = fits ? tci_attn_blocks_rows(b, set, k) : 0;
        fits = fits && (tci_dim_is_known(size) ? !tci_dim_lt(size, rows * TCI_ATTN_BLOCKS_LEAST)
                                               : rows < tci_dim_most(size));
    }
    return fits;
}

/* ---- nodes of a body ---- */

static tci_node *tci_attn_blocks_now(tci_attn_blocks *b, tci_node *n);

/* n, or a failure of the whole kernel. */
static tci_node *tci_attn_blocks_built(tci_attn_blocks_loop *l, tci_node *n)
{
    l->fits = l->fits && n;
    return n;
}

static bool tci_attn_blocks_needs(tci_attn_blocks_loop *l, const tci_node *n)
{
    const tci_scores *p = &l->b->p;
    const tci_scores_set *set;
    int *known = tci_table_at(&l->needs, n);
    if (*known || tci_scores_of(p, n)->at < tci_scores_of(p, l->set->pairs[0])->at) {
        return *known == 1;
    }
    const tci_scores_end *end = tci_scores_end_of(p, n, &set);
    bool needs = tci_scores_of(p, n)->set == l->set->number;
    bool ends = end && set == l->set;
    needs = needs || (ends && end->kernel == l->kernel);
    l->fits = l->fits && ++l->b->n_deep < TCI_ATTN_BLOCKS_DEEP;
    for (int i = 0; i < n->n_in && !needs && !ends && l->fits; i++) {
        needs = tci_attn_blocks_needs(l, n->in[i]);
    }
    l->b->n_deep--;
    *known = needs ? 1 : 2;
    return needs;
}

/* True if n is computed from indices and constants alone. */
static bool tci_attn_blocks_is_free(const tci_node *n, int depth)
{
    bool made = tci_op_is(n->op, TCI_IS_POINTWISE) || n->op == TCI_OP_RESHAPE ||
                n->op == TCI_OP_EXPAND;
    bool is_free = n->op == TCI_OP_IOTA || tci_op_is(n->op, TCI_IS_NUMBER) ||
                   (made && depth < TCI_SCORES_KERNELS);
    for (int i = 0; i < n->n_in && is_free; i++) {
        is_free = tci_attn_blocks_is_free(n->in[i], depth + 1);
    }
    return is_free;
}

static tci_node *tci_attn_blocks_number(tci_attn_blocks_loop *l, tci_dim x)
{
    return tci_attn_blocks_built(l, tci_build_size_value(l->b->a->g, x, TC_I64));
}

/* The rows of the band, along the axis that it cuts. */
static tci_node *tci_attn_blocks_index(tci_attn_blocks_loop *l)
{
    tci_graph *g = l->b->a->g;
    tci_node *in[2] = {tci_build_iota(g, l->rows), NULL};
    if (!l->first) {
        tci_node *numbers = tci_build_iota(g, l->n_bands);
        l->first = tci_attn_blocks_built(l, tci_build_bound(g, TC_I64, 0, NULL));
        TCI_PUSH(l->b->a->s, l->xs, l->n_xs, l->cap_xs, tci_attn_blocks_built(l, numbers));
        TCI_PUSH(l->b->a->s, l->x, l->n_x, l->cap_x, l->first);
    }
    tci_node *by[2] = {l->first, tci_attn_blocks_number(l, l->rows)};
    in[1] = l->fits ? tci_build_ew(g, TCI_OP_MUL, by) : NULL;
    return tci_attn_blocks_built(l, l->fits && in[1] ? tci_build_ew(g, TCI_OP_ADD, in) : NULL);
}

/* Elements of n, which is in memory, or made where they are read, at the rows of the band. */
static tci_node *tci_attn_blocks_read(tci_attn_blocks_loop *l, tci_node *n, int axis)
{
    tci_graph *g = l->b->a->g;
    tci_node *at[2] = {tci_attn_blocks_index(l),
                       tci_attn_blocks_number(l, tci_dim_sub(l->size, 1))};
    tci_node *index = l->fits ? tci_build_ew(g, TCI_OP_MINIMUM, at) : NULL;
    return tci_attn_blocks_built(l, index ? tci_build_index_select(g, n, axis, index) : NULL);
}

/* Axis `axis` of n as two, bands and their rows, and the bands first; or back. */
static tci_node *tci_attn_blocks_turn(tci_attn_blocks_loop *l, tci_node *n, int axis, bool back)
{
    tci_scratch *s = l->b->a->s;
    tci_graph *g = l->b->a->g;
    int rank = n->rank + !back, made = 0;
    int *order = TCI_NEW_ARRAY(s, int, rank + 1);
    tci_dim *shape = TCI_NEW_ARRAY(s, tci_dim, rank + 1);
    tci_dim all = tci_dim_mul(l->rows, l->n_bands), zero = 0;
    tci_node *fill = tci_attn_blocks_built(l,
                                           tci_graph_const(g, (tc_dtype)n->dtype, (tci_value){0}));
    for (int i = 0; i < rank; i++) {
        order[i] = back        ? i < axis    ? i + 1
                                 : i == axis ? 0
                                             : i
                   : i == 0    ? axis
                   : i <= axis ? i - 1
                               : i;
    }
    if (back) {
        n = tci_build_permute(g, n, rank, order);
        for (int i = 0; i < rank && n; i++) {
            shape[made] = i == axis ? all : n->shape[i];
            made += i != axis + 1;
        }
        n = n ? tci_build_reshape(g, n, made, shape) : NULL;
        return tci_attn_blocks_built(
            l, n ? tci_build_pad(g, n, axis, zero, tci_dim_sub(l->size, all), fill) : NULL);
    }
    n = tci_build_pad(g, n, axis, zero, tci_dim_sub(all, l->size), fill);
    for (int i = 0; i < rank && n; i++) {
        shape[i] = i == axis ? l->n_bands : i == axis + 1 ? l->rows : n->shape[i - (i > axis)];
    }
    n = n ? tci_build_reshape(g, n, rank, shape) : NULL;
    return tci_attn_blocks_built(l, n ? tci_build_permute(g, n, rank, order) : NULL);
}

/* A BOUND node for the band of n, each of which is contiguous outside. */
static tci_node *tci_attn_blocks_x(tci_attn_blocks_loop *l, tci_node *n, int axis)
{
    tci_scratch *s = l->b->a->s;
    tci_node *xs = tci_attn_blocks_turn(l, n, axis, false);
    tci_node *x = xs ? tci_attn_blocks_built(l, tci_build_bound(l->b->a->g, (tc_dtype)n->dtype,
                                                                n->rank, xs->shape + 1))
                     : NULL;
    TCI_PUSH(s, l->xs, l->n_xs, l->cap_xs, xs);
    TCI_PUSH(s, l->x, l->n_x, l->cap_x, x);
    return x;
}

static tci_node *tci_attn_blocks_of(tci_attn_blocks_loop *l, tci_node *n, int axis, int across);

/* Where an axis of n is in its input `which`: -1: it is not, -2: that is not known. */
static int tci_attn_blocks_in(const tci_node *n, int which, int axis)
{
    const tci_node *in = n->in[which];
    if (axis < 0) {
        return -1;
    }
    if (n->op == TCI_OP_CONTRACT) {
        return tci_contract_place(n, 2, axis, which);
    }
    if (tci_op_is_reduce(n->op)) {
        for (int i = 0; i < n->n_attr; i++) {
            axis += n->attr[i] <= axis;
        }
        return axis;
    }
    int same = in->shape[TCI_MIN(axis, TCI_MAX(in->rank - 1, 0))] == n->shape[axis] ? axis : -1;
    return n->op == TCI_OP_PERMUTE                ? (int)n->attr[axis]
           : n->op == TCI_OP_EXPAND               ? same
           : n->op != TCI_OP_RESHAPE              ? axis
           : n->shape[axis] == 1                  ? -1
           : tci_plan_image_reshaped(n, axis) < 0 ? -2
                                                  : tci_plan_image_reshaped(n, axis);
}

/* Operand `which` of contraction n, `in`, which is the same for all bands. Where a symbol says how
 * many columns it has no loop packs it, so it is in memory with them in a row: once, not in each
 * band (plan/decompose.c). */
static tci_node *tci_attn_blocks_operand(tci_attn_blocks_loop *l, const tci_node *n, int which,
                                         tci_node *in)
{
    tci_scratch *s = l->b->a->s;
    tci_graph *g = l->b->a->g;
    int at = n->rank > 0 ? tci_contract_axis(n, which, n->attr[n->n_attr - 1]) : -1;
    bool once = l->b->a->machine.block_threads == 0 && at >= 0 &&
                !tci_dim_is_known(n->shape[n->rank - 1]) && at != tci_fastest_axis(in);
    int64_t *perm = TCI_NEW_ARRAY(s, int64_t, in->rank + 1);
    int *back = TCI_NEW_ARRAY(s, int, in->rank + 1);
    if (!once) {
        return in;
    }
    for (int i = 0; i < in->rank; i++) {
        perm[i < at ? i : i > at ? i - 1 : in->rank - 1] = i;
        back[i] = i < at ? i : i > at ? i - 1 : in->rank - 1;
    }
    tci_node *held = tci_algo_permute(l->b->a, in, perm);
    int k = 0;
    while (k < l->n_held && l->held[k] != held) {
        k++;
    }
    if (k == l->n_held) {
        tci_node *inner = tci_build_bound(g, (tc_dtype)held->dtype, held->rank, held->shape);
        TCI_PUSH(s, l->held, l->n_held, l->cap_held, held);
        TCI_PUSH(s, l->inner, l->n_inner, l->cap_inner, tci_attn_blocks_built(l, inner));
    }
    return l->fits ? tci_attn_blocks_built(l, tci_build_permute(g, l->inner[k], in->rank, back))
                   : NULL;
}

/* n over the bands of its inputs; NULL: it is not made so. */
static tci_node *tci_attn_blocks_over(tci_attn_blocks_loop *l, tci_node *n, int axis, int across)
{
    tci_scratch *s = l->b->a->s;
    bool moves = n->op == TCI_OP_EXPAND || n->op == TCI_OP_RESHAPE || n->op == TCI_OP_PERMUTE;
    bool fits = moves || tci_op_is(n->op, TCI_IS_POINTWISE) ||
                (tci_attn_blocks_needs(l, n) &&
                 (n->op == TCI_OP_CONTRACT || tci_op_is_reduce(n->op)));
    tci_node **in = TCI_NEW_ARRAY(s, tci_node *, n->n_in + 1);
    tci_dim *shape = TCI_NEW_ARRAY(s, tci_dim, n->rank + 1);
    for (int i = 0; i < n->n_in && fits; i++) {
        fits = tci_attn_blocks_in(n, i, axis) != -2 && tci_attn_blocks_in(n, i, across) != -2 &&
               (!tci_op_is(n->op, TCI_IS_POINTWISE) || n->in[i]->rank == n->rank);
    }
    for (int i = 0; i < n->n_in && fits; i++) {
        int in_axis = tci_attn_blocks_in(n, i, axis);
        in[i] = tci_attn_blocks_of(l, n->in[i], in_axis, tci_attn_blocks_in(n, i, across));
        bool same = in[i] && n->op == TCI_OP_CONTRACT && in_axis < 0;
        in[i] = same ? tci_attn_blocks_operand(l, n, i, in[i]) : in[i];
        fits = in[i] != NULL;
    }
    for (int i = 0; i < n->rank; i++) {
        shape[i] = i == axis ? l->rows : n->shape[i];
    }
    return fits ? tci_graph_node(l->b->a->g, n->op, (tc_dtype)n->dtype, n->rank, shape, n->n_in, in,
                                 n->n_attr, n->attr)
                : NULL;
}

static tci_node *tci_attn_blocks_make(tci_attn_blocks_loop *l, tci_node *n, int axis, int across)
{
    bool needs = tci_attn_blocks_needs(l, n), is_free = tci_attn_blocks_is_free(n, 0);
    if (n->op == TCI_OP_IOTA) {
        return tci_attn_blocks_index(l);
    }
    tci_node *made = NULL;
    if (needs || across >= 0 || is_free) {
        made = tci_attn_blocks_over(l, n, axis, across);
    }
    l->fits = l->fits && (made || !needs);
    if (made || !l->fits) {
        return made;
    }
    n = tci_attn_blocks_now(l->b, n);
    tci_attn_blocks_built(l, n);
    return !n            ? NULL
           : across >= 0 ? tci_attn_blocks_read(l, n, axis)
                         : tci_attn_blocks_x(l, n, axis);
}

/* n in the body, where `axis` is cut in bands; NULL: it cannot be, or memory ran out. */
static tci_node *tci_attn_blocks_of(tci_attn_blocks_loop *l, tci_node *n, int axis, int across)
{
    if (tci_scores_of(&l->b->p, n)->set == l->set->number) {
        axis = l->axis;
        across = l->across;
    }
    for (int i = 0; i < l->n_at; i++) {
        if (l->at[i].of == n && l->at[i].axis == axis && l->at[i].across == across) {
            return l->at[i].made;
        }
    }
    l->fits = l->fits && ++l->b->n_deep < TCI_ATTN_BLOCKS_DEEP &&
              (axis >= 0 || !tci_attn_blocks_needs(l, n));
    tci_node *made = !l->fits    ? NULL
                     : axis >= 0 ? tci_attn_blocks_make(l, n, axis, across)
                                 : tci_attn_blocks_now(l->b, n);
    l->b->n_deep--;
    tci_attn_blocks_at at = {n, axis, across, made};
    TCI_PUSH(l->b->a->s, l->at, l->n_at, l->cap_at, at);
    if (made) {
        made->site = made->site.file ? made->site : n->site;
    }
    return tci_attn_blocks_built(l, made);
}

/* ---- a kernel ---- */

/* The axis of an end that is cut. */
static int tci_attn_blocks_out(const tci_attn_blocks_loop *l, const tci_scores_end *end)
{
    const tci_node *n = end->node, *pair = l->set->pairs[end->pair];
    int axis = l->axis;
    if (!end->folds) {
        return tci_contract_place(n, n->in[1] == pair, axis, 2);
    }
    for (int i = n->n_attr - 1; i >= 0; i--) {
        axis -= n->attr[i] < l->axis;
    }
    return axis;
}

/* Replaces the ends of a kernel by results of its loop. */
static void tci_attn_blocks_run(tci_attn_blocks *b, const tci_scores_set *set, int kernel)
{
    tci_scratch *s = b->a->s;
    tci_graph *g = b->a->g;
    int axis = tci_attn_blocks_axis(set, kernel), n = 0;
    tci_attn_blocks_loop l = {.b = b,
                              .set = set,
                              .kernel = kernel,
                              .axis = axis,
                              .across = tci_attn_blocks_across(set, kernel),
                              .fits = true,
                              .size = set->pairs[0]->shape[axis],
                              .rows = tci_attn_blocks_rows(b, set, kernel),
                              .needs = tci_table_in(s, sizeof(int))};
    l.n_bands = tci_dim_ceil_div(l.size, l.rows);
    if (b->a->machine.block_threads == 0 && tci_dim_is_known(l.size)) { /* as even as can be */
        l.rows = tci_dim_ceil_div(l.size, l.n_bands);
    }
    tci_node **y = TCI_NEW_ARRAY(s, tci_node *, set->n_ends + 1);
    for (int e = 0; e < set->n_ends && l.fits; e++) {
        if (set->ends[e].kernel == kernel) {
            y[n++] = tci_attn_blocks_of(&l, set->ends[e].node,
                                        tci_attn_blocks_out(&l, &set->ends[e]), -1);
        }
    }
    const tci_repeat r = {.n_x = l.n_x,
                          .n_held = l.n_held,
                          .n_y = n,
                          .length = l.n_bands,
                          .stops = -1,
                          .xs = l.xs,
                          .held = l.held,
                          .x = l.x,
                          .inner = l.inner,
                          .y = y};
    tci_node *repeat = l.fits && n > 0 ? tci_build_repeat(s, g, &r) : NULL;
    repeat = repeat ? tci_repeat_sink(s, g, repeat) : NULL;
    tci_attn_blocks_built(&l, repeat);
    n = 0;
    for (int e = 0; e < set->n_ends && l.fits; e++) {
        if (set->ends[e].kernel == kernel) {
            tci_node *result = tci_attn_blocks_built(&l, tci_build_result(g, repeat, n++));
            int out = tci_attn_blocks_out(&l, &set->ends[e]);
            result = result ? tci_attn_blocks_turn(&l, result, out, true) : NULL;
            tci_table_put(&b->now, set->ends[e].node, result);
        }
    }
    b->refused[set->number - 1] |= !l.fits;
}

/* ---- the graph around ---- */

/* The set that fits and whose pair or end n is; NULL: none. */
static const tci_scores_set *tci_attn_blocks_set_of(const tci_attn_blocks *b, const tci_node *n,
                                                    int *kernel)
{
    const tci_scores_set *set = NULL;
    const tci_scores_end *end = tci_scores_end_of(&b->p, n, &set);
    int number = tci_scores_of(&b->p, n)->set;
    *kernel = end ? end->kernel : -1;
    return end ? set : number > 0 && b->p.sets[number - 1].fits ? &b->p.sets[number - 1] : NULL;
}

/* n outside of bands; NULL: some kernel needs what it makes itself, but not row by row. */
static tci_node *tci_attn_blocks_now(tci_attn_blocks *b, tci_node *n)
{
    int kernel;
    const tci_scores_set *set = tci_attn_blocks_set_of(b, n, &kernel);
    tci_node *made = *(tci_node **)tci_table_at(&b->now, n);
    if (made) {
        return made;
    }
    if (set) {
        uint64_t bit = kernel < 0 ? b->begun[set->number - 1] : (uint64_t)1 << kernel;
        bool again = (b->begun[set->number - 1] & bit) != 0;
        b->begun[set->number - 1] |= bit;
        if (!again && kernel >= 0) {
            tci_attn_blocks_run(b, set, kernel);
        }
        made = tci_table_get(&b->now, n);
        b->refused[set->number - 1] |= !made;
        return made;
    }
    bool fits = ++b->n_deep < TCI_ATTN_BLOCKS_DEEP;
    for (int i = 0; i < n->n_in && fits; i++) {
        fits = tci_attn_blocks_now(b, n->in[i]) != NULL;
    }
    b->n_deep--;
    made = fits ? tci_graph_rebuild(b->a->s, b->a->g, n, &b->now) : NULL;
    if (made) {
        made->site = made->site.file ? made->site : n->site;
        tci_table_put(&b->now, n, made);
    }
    return made;
}

/* All nodes, in their order, so that none is far below what asks for it. */
static bool tci_attn_blocks_build(tci_attn_blocks *b)
{
    int kernel;
    b->now = tci_table_in(b->a->s, sizeof(tci_node *));
    memset(b->begun, 0, sizeof(*b->begun) * (size_t)b->p.n_sets);
    for (int i = 0; i < b->p.list.n; i++) {
        tci_node *n = b->p.list.items[i];
        const tci_scores_set *set = tci_attn_blocks_set_of(b, n, &kernel);
        if ((!set || kernel >= 0) && !tci_attn_blocks_now(b, n)) {
            return false;
        }
    }
    return true;
}

/* Drops sets that do not pay. Returns the number of sets left. */
static int tci_attn_blocks_choose(tci_attn_blocks *b, const tci_plan *p)
{
    int n = 0;
    for (int i = 0; i < b->p.n_sets; i++) {
        tci_scores_set *set = &b->p.sets[i];
        set->fits = !b->refused[i] && tci_attn_blocks_is_worth(b, set, p);
        n += set->fits;
    }
    return n;
}

TCI_FN bool tci_plan_chunked_attention(const tci_algo *a, const tci_plan *p, tci_node **outputs,
                                       int n_outputs)
{
    tci_scores_refused none = tci_scores_none(a->s);
    tci_attn_blocks b = {.a = a, .p = {.a = a, .refused = &none, .bands = true}};
    if (a->machine.no_fusion) {
        return false;
    }
    tci_scores_look(&b.p, outputs, n_outputs);
    b.refused = TCI_NEW_ARRAY(a->s, bool, b.p.n_sets + 1);
    b.begun = TCI_NEW_ARRAY(a->s, uint64_t, b.p.n_sets + 1);
    bool made = false;
    for (int n = tci_attn_blocks_choose(&b, p), more = n + 1; !made && n > 0 && n < more;) {
        more = n;
        made = tci_attn_blocks_build(&b);
        n = made ? n : tci_attn_blocks_choose(&b, p);
    }
    for (int i = 0; i < n_outputs && made; i++) {
        outputs[i] = tci_table_get(&b.now, outputs[i]);
    }
    return made;
}
