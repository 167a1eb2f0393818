/* grad/vmap.c - vectorization (tc_vmap): a graph for one example becomes a graph for a batch.
 *
 * In: roots over leaves that hold one example each, and nodes that hold all examples of these
 * leaves along a new first axis. Out: nodes that hold all examples of the roots along a first axis.
 *
 * Design: a node that depends on no leaf stays. Any other node becomes the same op with one more
 * leading axis: the same dtype and the same order of every sum, so each example gets the value that
 * the original node computes for it. An operand that stays is broadcast along the new axis (no
 * copy), or used as it is where the op allows that.
 *
 * A branch that examples take differently computes both sides and selects per example. A loop that
 * examples leave at different steps runs until all have left, and keeps the values of those that
 * have.
 *
 * Gradients and vmap need no rules for each other, since both work on nodes. */
#include "vmap.h"

#include <string.h>

#include "../graph/contraction_descriptor.h"
#include "../ops/composite.h"
#include "../ops/custom_op.h"
#include "jvp_vmap_walk.h"

/* How the attributes of a node change when a batch axis is added in front of its operands. */
typedef enum tci_vmap_rule {
    TCI_VMAP_KEEP,   /* they name no axis */
    TCI_VMAP_AXES,   /* those that are axes count one further */
    TCI_VMAP_EACH,   /* there are some for each axis: for this one those that change nothing */
    TCI_VMAP_OWN,    /* tci_vmap_own */
    TCI_VMAP_EXPAND, /* a composite over all examples: what it expands into */
    TCI_VMAP_NEVER   /* a leaf, or of no graph that users make */
} tci_vmap_rule;

static tci_vmap_rule tci_vmap_rule_of(tci_forward *v, const tci_node *n)
{
    switch ((tci_op)n->op) {
        TCI_EW_OPS(TCI_OP_CASE)
    case TCI_OP_WHERE:
    case TCI_OP_CAST:
    case TCI_OP_BITCAST:
    case TCI_OP_RESHAPE:
    case TCI_OP_EXPAND:
    case TCI_OP_LU:
    case TCI_OP_SOLVE:
    case TCI_OP_SOLVE_TRIANGULAR:
    case TCI_OP_CHOLESKY:
    case TCI_OP_STOP_GRADIENT:
    case TCI_OP_WITH_DERIVATIVE:
        return TCI_VMAP_KEEP;
        /* clang-format off */
    TCI_REDUCE_OPS(TCI_OP_CASE)
        /* clang-format on */
    case TCI_OP_CAT:
    case TCI_OP_WINDOW:
    case TCI_OP_GATHER:
    case TCI_OP_SCAN:
    case TCI_OP_TOPK:
    case TCI_OP_SCATTER:
    case TCI_OP_SOFTMAX:
    case TCI_OP_LOG_SOFTMAX:
    case TCI_OP_MEAN: return TCI_VMAP_AXES;
    case TCI_OP_PERMUTE:
    case TCI_OP_SHARD:
    case TCI_OP_SLICE: return TCI_VMAP_EACH;
    case TCI_OP_PAD: return *tci_forward_of(v, n->in[1]) ? TCI_VMAP_OWN : TCI_VMAP_EACH;
    case TCI_OP_BARRIER:
    case TCI_OP_REPEAT:
    case TCI_OP_RESULT:
    case TCI_OP_CUSTOM:
    case TCI_OP_COLLECTIVE:
    case TCI_OP_NAMED:
    case TCI_OP_RANDOM:
    case TCI_OP_CONTRACT: return TCI_VMAP_OWN;
    case TCI_OP_LAYER_NORM: /* eps, weight, bias: one for all examples */
        for (int i = 1; i < n->n_in; i++) {
            if (*tci_forward_of(v, n->in[i])) {
                return TCI_VMAP_EXPAND;
            }
        }
        return TCI_VMAP_AXES;
    case TCI_OP_CROSS_ENTROPY:
    case TCI_OP_CONV_TRANSPOSE: return TCI_VMAP_EXPAND;
    case TCI_OP_INPUT:
    case TCI_OP_DATA:
    case TCI_OP_LITERAL:
    case TCI_OP_CONST:
    case TCI_OP_IOTA:
    case TCI_OP_SEGMENT:
    case TCI_OP_BOUND:
    case TCI_OP_ASSIGN: break;
    }
    return TCI_VMAP_NEVER;
}

/* ---- words ---- */

static int64_t *tci_vmap_words(const tci_forward *v, const tci_node *n, tci_vmap_rule rule,
                               int *count)
{
    const tci_attr_list *list = tci_op_get(n->op)->attrs;
    int more = rule == TCI_VMAP_EACH ? list->n_group : 0;
    int64_t *words = TCI_NEW_ARRAY(v->s, int64_t, n->n_attr + more + 1);
    for (int i = 0; i < n->n_attr; i++) {
        bool is_axis = tci_op_attr(n->op, n->n_attr, i)->kind == TCI_ATTR_AXIS;
        words[more + i] = n->attr[i] + (is_axis ? 1 : 0);
    }
    if (n->op == TCI_OP_SLICE) { /* from 0 on, by 1; in other lists 0 stands for no change */
        words[1] = 1;
    }
    *count = n->n_attr + more;
    return words;
}

/* Whether operand i of n is taken as it is where it is the same for all examples. */
static bool tci_vmap_may_stay(const tci_node *n, int i)
{
    return i > 0 && (n->op == TCI_OP_PAD || n->op == TCI_OP_LAYER_NORM);
}

static tci_node *tci_vmap_same(tci_forward *v, tci_node *n, tci_vmap_rule rule)
{
    int n_words;
    int64_t *words = tci_vmap_words(v, n, rule, &n_words);
    tci_node **in = TCI_NEW_ARRAY(v->s, tci_node *, n->n_in);
    for (int i = 0; i < n->n_in; i++) {
        bool stays = tci_vmap_may_stay(n, i) && !*tci_forward_of(v, n->in[i]);
        in[i] = stays ? n->in[i] : tci_forward_all(v, n->in[i]);
    }
    return tci_forward_built(v,
                             tci_build_node(v->g, n->op, (tc_dtype)n->dtype, n->rank + 1,
                                            tci_forward_shape(v, n), n->n_in, in, n_words, words));
}

/* ---- rules of their own ---- */

/* A label that nothing has, in front of the operands that differ and of the result. */
static tci_node *tci_vmap_contract(tci_forward *v, tci_node *n)
{
    int64_t *words = TCI_NEW_ARRAY(v->s, int64_t, n->n_attr + 3);
    int at = 3;
    tci_node *in[2];
    for (int part = 0; part < 3; part++) {
        tci_node *many = part < 2 ? *tci_forward_of(v, n->in[part]) : n;
        words[part] = n->attr[part] + (many ? 1 : 0);
        if (many) {
            words[at++] = tci_contract_fresh(n);
        }
        for (int64_t i = 0; i < n->attr[part]; i++) {
            words[at++] = tci_contract_labels(n, part)[i];
        }
        if (part < 2) {
            in[part] = many ? many : n->in[part];
        }
    }
    return tci_forward_built(v, tci_build_node(v->g, n->op, (tc_dtype)n->dtype, n->rank + 1,
                                               tci_forward_shape(v, n), 2, in, at, words));
}

/* A fill for each example: it goes where the padded `true` does not. */
static tci_node *tci_vmap_pad(tci_forward *v, tci_node *n)
{
    int n_words;
    int64_t *words = tci_vmap_words(v, n, TCI_VMAP_EACH, &n_words);
    const tci_dim *shape = tci_forward_shape(v, n);
    tci_node *x = tci_forward_all(v, n->in[0]), *fill = tci_forward_all(v, n->in[1]);
    tci_dim *line = TCI_NEW_ARRAY(v->s, tci_dim, n->rank + 1);
    for (int i = 0; i <= n->rank; i++) {
        line[i] = i ? 1 : v->count;
    }
    tci_node *number = tci_composite_number(v->g, (tc_dtype)n->dtype, 0);
    tci_node *yes = tci_graph_const(v->g, TC_BOOL, (tci_value){.i = 1});
    yes = tci_forward_built(v, tci_build_broadcast(v->g, yes, x->rank, x->shape));
    tci_node *no = tci_forward_built(v, tci_graph_const(v->g, TC_BOOL, (tci_value){.i = 0}));
    tci_node *values[2] = {x, tci_forward_built(v, number)}, *places[2] = {yes, no};
    tci_node *padded = tci_build_node(v->g, TCI_OP_PAD, (tc_dtype)n->dtype, n->rank + 1, shape, 2,
                                      values, n_words, words);
    tci_node *inside = tci_build_node(v->g, TCI_OP_PAD, TC_BOOL, n->rank + 1, shape, 2, places,
                                      n_words, words);
    fill = tci_build_reshape(v->g, fill, n->rank + 1, line);
    return tci_forward_built(v, tci_build_where(v->g, inside, padded, fill));
}

static tci_node *tci_vmap_barrier(tci_forward *v, tci_node *n)
{
    tci_node **in = TCI_NEW_ARRAY(v->s, tci_node *, n->n_in);
    for (int i = 0; i < n->n_in; i++) {
        tci_node *many = *tci_forward_of(v, n->in[i]);
        in[i] = many ? many : n->in[i];
    }
    tci_node *x = tci_forward_built(v, tci_build_barrier(v->g, in[0], in + 1, n->n_in - 1,
                                                         n->attr[0]));
    return in[0] == n->in[0] ? v->rules->whole(v, x) : x; /* what differs may only be waited for */
}

static tci_node *tci_vmap_random(tci_forward *v, tci_node *n)
{
    tci_node *streams = *tci_forward_of(v, n->in[1]);
    return tci_forward_built(
        v, tci_build_random_each(v->g, tci_forward_all(v, n->in[0]), streams ? streams : n->in[1],
                                 (tc_dtype)n->dtype, n->rank + 1, tci_forward_shape(v, n)));
}

/* ---- loops and branches ---- */

static tci_node *tci_vmap_both(tci_forward *v, int op, tci_node *a, tci_node *b)
{
    tci_node *in[2] = {a, b};
    return tci_forward_built(v, tci_build_ew(v->g, op, in));
}

/* Of each example a where go [count] is true, else b. */
static tci_node *tci_vmap_choose(tci_forward *v, tci_node *go, tci_node *a, tci_node *b)
{
    tci_dim *line = TCI_NEW_ARRAY(v->s, tci_dim, a->rank);
    for (int i = 0; i < a->rank; i++) {
        line[i] = i ? 1 : v->count;
    }
    go = tci_forward_built(v, tci_build_reshape(v->g, go, a->rank, line));
    return tci_forward_built(v, tci_build_where(v->g, go, a, b));
}

/* True if n, a REPEAT, is a branch that examples take differently. It then has no companion of its
 * own. */
static bool tci_vmap_is_choice(tci_forward *v, const tci_node *n, const tci_repeat *r)
{
    return r->stops >= 0 && r->length == 1 && *tci_forward_of(v, n->in[r->stops]);
}

/* True if any example continues. */
static tci_node *tci_vmap_any(tci_forward *v, tci_node *go)
{
    const tc_axes all = {NULL, 0, true};
    return tci_forward_built(v, tci_build_reduce(v->g, TCI_OP_ANY, go, all, false));
}

static tci_node *tci_vmap_repeat(tci_forward *v, tci_node *n)
{
    const tci_repeat repeat = tci_repeat_of(n), *r = &repeat;
    if (tci_vmap_is_choice(v, n, r)) {
        return n;
    }
    tci_forward_loop *l = tci_forward_find_loop(v, n, false);
    if (r->stops < 0 || !l->has[r->stops]) {
        return tci_forward_repeat(v, n, l);
    }
    l = tci_forward_find_loop(v, n, true);
    tci_node *go = l->bound[r->stops];
    for (int i = 0; i < r->n_carry; i++) {
        tci_node *next = l->made[i] ? l->made[i] : v->rules->whole(v, r->next[i]);
        l->made[i] = i == r->stops ? tci_vmap_both(v, TCI_OP_LOGICAL_AND, go, next)
                                   : tci_vmap_choose(v, go, next, l->bound[i]);
    }
    l->go_init = tci_vmap_any(v, tci_forward_all(v, r->init[r->stops]));
    l->go_bound = tci_forward_built(v, tci_build_bound(v->g, TC_BOOL, 0, NULL));
    l->go_next = tci_vmap_any(v, l->made[r->stops]);
    return tci_forward_repeat(v, n, l);
}

static tci_node *tci_vmap_of_result(tci_forward *v, tci_node *n)
{
    const tci_repeat r = tci_repeat_of(n->in[0]);
    if (!tci_vmap_is_choice(v, n->in[0], &r)) {
        return tci_forward_result(v, n);
    }
    tci_node *taken = tci_repeat_over_others(v->s, v->g, &r, r.init)[n->attr[0]];
    tci_forward_visit(v, taken);
    return tci_vmap_choose(v, *tci_forward_of(v, r.init[r.stops]), tci_forward_all(v, taken),
                           tci_forward_all(v, r.init[n->attr[0]]));
}

/* ---- user functions ---- */

/* By the op's own rule, or call after call. */
static tci_node *tci_vmap_custom(tci_forward *v, tci_node *n)
{
    const tci_custom *c = tci_custom_get(n->attr[0]);
    tci_node *one = n, **many = TCI_NEW_ARRAY(v->s, tci_node *, n->n_in);
    tci_node **in = TCI_NEW_ARRAY(v->s, tci_node *, n->n_in);
    tci_node **xs = TCI_NEW_ARRAY(v->s, tci_node *, n->n_in);
    tci_node **x = TCI_NEW_ARRAY(v->s, tci_node *, n->n_in);
    tci_repeat r = {.n_y = 1, .length = v->count, .stops = -1, .xs = xs, .x = x, .y = &one};
    for (int i = 0; i < n->n_in; i++) {
        many[i] = c->vmap ? tci_forward_all(v, n->in[i]) : *tci_forward_of(v, n->in[i]);
        in[i] = n->in[i];
        if (many[i] && !c->vmap) {
            in[i] = tci_forward_built(v, tci_build_bound(v->g, (tc_dtype)in[i]->dtype, in[i]->rank,
                                                         in[i]->shape));
            xs[r.n_x] = many[i];
            x[r.n_x++] = in[i];
        }
    }
    if (c->vmap) {
        return tci_forward_built(v, c->vmap(c, v->g, n, many, tci_forward_shape(v, n)));
    }
    one = tci_forward_built(v, tci_graph_node(v->g, n->op, (tc_dtype)n->dtype, n->rank, n->shape,
                                              n->n_in, in, n->n_attr, n->attr));
    tci_node *repeat = tci_forward_built(v, tci_build_repeat(v->s, v->g, &r));
    return tci_forward_built(v, tci_build_result(v->g, repeat, 0));
}

/* The axis of examples is after that of ranks while they exchange parts. */
static tci_node *tci_vmap_collective(tci_forward *v, tci_node *n)
{
    const tc_comm_verb verb = (tc_comm_verb)n->attr[TCI_COLLECTIVE_VERB];
    bool in = verb == TC_COMM_REDUCE_SCATTER || verb == TC_COMM_ALL_TO_ALL;
    bool out = verb == TC_COMM_ALL_GATHER || verb == TC_COMM_ALL_TO_ALL;
    tci_node *x = tci_forward_all(v, n->in[0]);
    x = in ? tci_forward_built(v, tci_build_transpose(v->g, x, 0, 1)) : x;
    tci_node *y = tci_forward_built(v, tci_build_collective_like(v->g, n, verb, x));
    return verb == TC_COMM_BARRIER ? v->rules->whole(v, y)
           : out                   ? tci_forward_built(v, tci_build_transpose(v->g, y, 0, 1))
                                   : y;
}

/* ---- traversal ---- */

static tci_node *tci_vmap_own(tci_forward *v, tci_node *n)
{
    switch (n->op) {
    case TCI_OP_PAD: return tci_vmap_pad(v, n);
    case TCI_OP_CONTRACT: return tci_vmap_contract(v, n);
    case TCI_OP_BARRIER: return tci_vmap_barrier(v, n);
    case TCI_OP_REPEAT: return tci_vmap_repeat(v, n);
    case TCI_OP_RESULT: return tci_vmap_of_result(v, n);
    case TCI_OP_CUSTOM: return tci_vmap_custom(v, n);
    case TCI_OP_COLLECTIVE: return tci_vmap_collective(v, n);
    case TCI_OP_NAMED: return tci_forward_all(v, n->in[0]); /* of all examples it is another call */
    default: TCI_ASSERT(v->s, n->op == TCI_OP_RANDOM); return tci_vmap_random(v, n);
    }
}

static tci_node *tci_vmap_node(tci_forward *v, tci_node *n)
{
    tci_vmap_rule rule = tci_vmap_rule_of(v, n);
    switch (rule) {
    case TCI_VMAP_KEEP:
    case TCI_VMAP_AXES:
    case TCI_VMAP_EACH: return tci_vmap_same(v, n, rule);
    case TCI_VMAP_OWN: return tci_vmap_own(v, n);
    case TCI_VMAP_EXPAND:
        return tci_forward_visit(v, tci_forward_built(v, tci_expand_composite(v->g, n)));
    case TCI_VMAP_NEVER: break;
    }
    tci_scratch_fail(v->s, TC_ERR_UNSUPPORTED, "%s cannot be done for many examples at once",
                     TCI_MAKER(n));
    return NULL;
}

/* n repeated. */
static tci_node *tci_vmap_whole(tci_forward *v, tci_node *n)
{
    return tci_forward_built(v, tci_build_broadcast(v->g, n, n->rank + 1, tci_forward_shape(v, n)));
}

static const tci_forward_rules tci_vmap_rules = {tci_vmap_node, tci_vmap_whole, 1, true};

TCI_FN void tci_vmap_build(tci_scratch *s, tci_graph *g, tci_dim count, tci_node *const *leaves,
                           tci_node *const *examples, int n_leaves, tci_node *const *roots, int n,
                           tci_node **many)
{
    tci_forward v = tci_forward_begin(s, g, &tci_vmap_rules, count);
    for (int i = 0; i < n_leaves; i++) {
        *tci_forward_of(&v, leaves[i]) = examples[i];
    }
    for (int i = 0; i < n; i++) {
        many[i] = tci_forward_visit(&v, roots[i]);
    }
}
