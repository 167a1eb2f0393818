/* grad/vmap.c - a graph over one example as the same graph over many.
 *
 * In: roots over leaves that stand for one example each, and nodes with all examples of the leaves
 * along an axis in front. Out: nodes with all examples of the roots along an axis in front.
 * The one idea: a node that depends on no leaf stays as it is, any other is its own op once more
 * with one axis in front: same dtype, same order of every sum over an example, so what is computed
 * for an example is what the node computes for it. An operand that stays is repeated along that
 * axis, which copies nothing, or left as it is where the op asks for no more.
 *
 * Gradients need nothing for this, nor does it for gradients: both see only nodes. */
#include "vmap.h"

#include <string.h>

#include "../graph/table.h"
#include "../ops/composite.h"

/* How the words of a node change when an axis is put in front of its operands. */
typedef enum tci_vmap_rule {
    TCI_VMAP_KEEP,   /* they name no axis */
    TCI_VMAP_AXES,   /* those that are axes count one further */
    TCI_VMAP_EACH,   /* there are some for each axis: for this one those that change nothing */
    TCI_VMAP_OWN,    /* tci_vmap_own */
    TCI_VMAP_EXPAND, /* a composite over all examples: what it expands into */
    TCI_VMAP_NEVER   /* a leaf, or of no graph that users make */
} tci_vmap_rule;

typedef struct tci_vmap {
    tci_scratch *s;
    tci_graph *g;
    tci_dim count;
    tci_table many; /* of tci_node *: with the axis in front; NULL: it stays */
    tci_table done;
} tci_vmap;

static tci_node **tci_vmap_of(tci_vmap *v, const tci_node *n)
{
    return (tci_node **)tci_table_at(&v->many, n);
}

static tci_node *tci_vmap_built(const tci_vmap *v, tci_node *n)
{
    if (!n) {
        tci_scratch_fail(v->s, v->g->error ? v->g->error : TC_ERR_INTERNAL, "%s", v->g->message);
    }
    return n;
}

/* n's shape with the axis of examples in front. */
static tci_dim *tci_vmap_shape(const tci_vmap *v, const tci_node *n)
{
    tci_dim *shape = TCI_NEW_ARRAY(v->s, tci_dim, n->rank + 1);
    shape[0] = v->count;
    memcpy(shape + 1, n->shape, sizeof(*shape) * (size_t)n->rank);
    return shape;
}

/* All examples of n, whether they differ or not. */
static tci_node *tci_vmap_all(tci_vmap *v, tci_node *n)
{
    tci_node *many = *tci_vmap_of(v, n);
    return many ? many
                : tci_vmap_built(v, tci_build_broadcast(v->g, n, n->rank + 1,
                                                        tci_vmap_shape(v, n)));
}

static tci_vmap_rule tci_vmap_rule_of(tci_vmap *v, const tci_node *n)
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
    case TCI_OP_STOP_GRADIENT: return TCI_VMAP_KEEP;
    TCI_REDUCE_OPS(TCI_OP_CASE)
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
    case TCI_OP_SLICE: return TCI_VMAP_EACH;
    case TCI_OP_PAD: return *tci_vmap_of(v, n->in[1]) ? TCI_VMAP_OWN : TCI_VMAP_EACH;
    case TCI_OP_BARRIER:
    case TCI_OP_RANDOM:
    case TCI_OP_CONTRACT: return TCI_VMAP_OWN;
    case TCI_OP_LAYER_NORM: /* eps, weight, bias: one for all examples */
        for (int i = 1; i < n->n_in; i++) {
            if (*tci_vmap_of(v, n->in[i])) {
                return TCI_VMAP_EXPAND;
            }
        }
        return TCI_VMAP_AXES;
    case TCI_OP_CROSS_ENTROPY: return TCI_VMAP_EXPAND;
    case TCI_OP_INPUT:
    case TCI_OP_DATA:
    case TCI_OP_LITERAL:
    case TCI_OP_CONST:
    case TCI_OP_IOTA:
    case TCI_OP_SEGMENT:
    case TCI_OP_BOUND:
    case TCI_OP_REPEAT:
    case TCI_OP_RESULT:
    case TCI_OP_CUSTOM:
    case TCI_OP_ASSIGN: break;
    }
    return TCI_VMAP_NEVER;
}

/* ---- words ---- */

static int64_t *tci_vmap_words(const tci_vmap *v, const tci_node *n, tci_vmap_rule rule, int *count)
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

static tci_node *tci_vmap_same(tci_vmap *v, tci_node *n, tci_vmap_rule rule)
{
    int n_words;
    int64_t *words = tci_vmap_words(v, n, rule, &n_words);
    tci_node **in = TCI_NEW_ARRAY(v->s, tci_node *, n->n_in);
    for (int i = 0; i < n->n_in; i++) {
        bool stays = tci_vmap_may_stay(n, i) && !*tci_vmap_of(v, n->in[i]);
        in[i] = stays ? n->in[i] : tci_vmap_all(v, n->in[i]);
    }
    return tci_vmap_built(v, tci_build_node(v->g, n->op, (tc_dtype)n->dtype, n->rank + 1,
                                            tci_vmap_shape(v, n), n->n_in, in, n_words, words));
}

/* ---- rules of their own ---- */

/* A label that nothing has, in front of the operands that differ and of the result. */
static tci_node *tci_vmap_contract(tci_vmap *v, tci_node *n)
{
    int64_t *words = TCI_NEW_ARRAY(v->s, int64_t, n->n_attr + 3), fresh = 0;
    const int64_t *from = n->attr + 3;
    int at = 3;
    tci_node *in[2];
    for (int i = 3; i < n->n_attr; i++) {
        fresh = TCI_MAX(fresh, n->attr[i] + 1);
    }
    for (int part = 0; part < 3; part++) {
        tci_node *many = part < 2 ? *tci_vmap_of(v, n->in[part]) : n;
        words[part] = n->attr[part] + (many ? 1 : 0);
        if (many) {
            words[at++] = fresh;
        }
        for (int64_t i = 0; i < n->attr[part]; i++) {
            words[at++] = *from++;
        }
        if (part < 2) {
            in[part] = many ? many : n->in[part];
        }
    }
    return tci_vmap_built(v, tci_build_node(v->g, n->op, (tc_dtype)n->dtype, n->rank + 1,
                                            tci_vmap_shape(v, n), 2, in, at, words));
}

/* A fill for each example: it goes where the padded `true` does not. */
static tci_node *tci_vmap_pad(tci_vmap *v, tci_node *n)
{
    int n_words;
    int64_t *words = tci_vmap_words(v, n, TCI_VMAP_EACH, &n_words);
    const tci_dim *shape = tci_vmap_shape(v, n);
    tci_node *x = tci_vmap_all(v, n->in[0]), *fill = tci_vmap_all(v, n->in[1]);
    tci_dim *line = TCI_NEW_ARRAY(v->s, tci_dim, n->rank + 1);
    for (int i = 0; i <= n->rank; i++) {
        line[i] = i ? 1 : v->count;
    }
    tci_node *number = tci_composite_number(v->g, (tc_dtype)n->dtype, 0);
    tci_node *yes = tci_graph_const(v->g, TC_BOOL, (tci_value){.i = 1});
    yes = tci_vmap_built(v, tci_build_broadcast(v->g, yes, x->rank, x->shape));
    tci_node *no = tci_vmap_built(v, tci_graph_const(v->g, TC_BOOL, (tci_value){.i = 0}));
    tci_node *values[2] = {x, tci_vmap_built(v, number)}, *places[2] = {yes, no};
    tci_node *padded = tci_build_node(v->g, TCI_OP_PAD, (tc_dtype)n->dtype, n->rank + 1, shape, 2,
                                      values, n_words, words);
    tci_node *inside = tci_build_node(v->g, TCI_OP_PAD, TC_BOOL, n->rank + 1, shape, 2, places,
                                      n_words, words);
    fill = tci_build_reshape(v->g, fill, n->rank + 1, line);
    return tci_vmap_built(v, tci_build_where(v->g, inside, padded, fill));
}

/* NULL: what differs is only waited for. */
static tci_node *tci_vmap_barrier(tci_vmap *v, tci_node *n)
{
    tci_node **in = TCI_NEW_ARRAY(v->s, tci_node *, n->n_in), *x = *tci_vmap_of(v, n->in[0]);
    for (int i = 0; i < n->n_in; i++) {
        tci_node *many = *tci_vmap_of(v, n->in[i]);
        in[i] = many ? many : n->in[i];
    }
    return x ? tci_vmap_built(v, tci_build_barrier(v->g, x, in + 1, n->n_in - 1)) : NULL;
}

static tci_node *tci_vmap_own(tci_vmap *v, tci_node *n)
{
    if (n->op == TCI_OP_PAD) {
        return tci_vmap_pad(v, n);
    }
    if (n->op == TCI_OP_CONTRACT) {
        return tci_vmap_contract(v, n);
    }
    if (n->op == TCI_OP_BARRIER) {
        return tci_vmap_barrier(v, n);
    }
    TCI_ASSERT(v->s, n->op == TCI_OP_RANDOM);
    tci_node *streams = *tci_vmap_of(v, n->in[1]);
    return tci_vmap_built(
        v, tci_build_random_each(v->g, tci_vmap_all(v, n->in[0]), streams ? streams : n->in[1],
                                 (tc_dtype)n->dtype, n->rank + 1, tci_vmap_shape(v, n)));
}

/* ---- the walk ---- */

static bool tci_vmap_differs(tci_vmap *v, const tci_node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        if (*tci_vmap_of(v, n->in[i])) {
            return true;
        }
    }
    return false;
}

static tci_node *tci_vmap_visit(tci_vmap *v, tci_node *root);

static tci_node *tci_vmap_node(tci_vmap *v, tci_node *n)
{
    tci_vmap_rule rule = tci_vmap_rule_of(v, n);
    switch (rule) {
    case TCI_VMAP_KEEP:
    case TCI_VMAP_AXES:
    case TCI_VMAP_EACH: return tci_vmap_same(v, n, rule);
    case TCI_VMAP_OWN: return tci_vmap_own(v, n);
    case TCI_VMAP_EXPAND:
        return tci_vmap_visit(v, tci_vmap_built(v, tci_expand_composite(v->g, n)));
    case TCI_VMAP_NEVER: break;
    }
    tci_scratch_fail(v->s, TC_ERR_UNSUPPORTED,
                     "%s (made in %.120s, line %d) cannot be done for many examples at once",
                     tci_op_name(n->op), n->site.file ? n->site.file : "?", n->site.line);
    return NULL;
}

/* The expansion of a composite may be made of nodes that a walk comes to later. */
static tci_node *tci_vmap_visit(tci_vmap *v, tci_node *root)
{
    tci_node_list list = tci_graph_sort_rest(v->s, &v->done, &root, 1);
    for (int i = 0; i < list.n; i++) {
        tci_node *n = list.items[i];
        if (tci_table_add(&v->done, n) && tci_vmap_differs(v, n)) {
            tc_site site = v->g->site;
            v->g->site = n->site;
            *tci_vmap_of(v, n) = tci_vmap_node(v, n);
            v->g->site = site;
        }
    }
    return *tci_vmap_of(v, root);
}

TCI_FN void tci_vmap_build(tci_scratch *s, tci_graph *g, tci_dim count, tci_node *const *leaves,
                           tci_node *const *examples, int n_leaves, tci_node *const *roots, int n,
                           tci_node **many)
{
    tci_vmap v = {s, g, count, tci_table_in(s, sizeof(tci_node *)), tci_table_in(s, sizeof(bool))};
    for (int i = 0; i < n_leaves; i++) {
        *tci_vmap_of(&v, leaves[i]) = examples[i];
    }
    for (int i = 0; i < n; i++) {
        many[i] = tci_vmap_visit(&v, roots[i]);
    }
}
