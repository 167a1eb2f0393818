/* graph/loop_node.c - builds REPEAT nodes, the structured loops of the graph (scan, while, cond,
 * checkpoint), and hoists loop-invariant code out of their bodies.
 *
 * In: the nodes of a body as the user made them over BOUND nodes; they may use any tensor outside.
 * Out: a REPEAT whose body is closed.
 *
 * Design: a node belongs to the body if it depends on a BOUND node of this loop. An operand that
 * does not is hoisted (loop-invariant code motion): it is computed once, outside, and a BOUND node
 * represents it in the body. Body nodes therefore always depend on the iteration; none can be
 * evaluated or differentiated by itself.
 *
 * In the graph of a compiled program, constants and movement ops are moved back into bodies
 * (tci_repeat_sink): they are free there and would need memory outside. This happens in the
 * program's own copy of the graph, after differentiation.
 *
 * A loop of one iteration is inlined: its body over its operands. */
#include "loop_node.h"

#include "build.h"

TCI_FN tci_repeat tci_repeat_of(const tci_node *n)
{
    tci_repeat r = {(int)n->attr[0],
                    (int)n->attr[1],
                    (int)n->attr[2],
                    (int)n->attr[3],
                    tci_node_dims(n)[4],
                    n->attr[5] != 0,
                    (int)n->attr[6] - 1,
                    NULL,
                    NULL,
                    NULL,
                    NULL,
                    NULL,
                    NULL,
                    NULL,
                    NULL};
    r.init = n->in;
    r.xs = r.init + r.n_carry;
    r.held = r.xs + r.n_x;
    r.carry = r.held + r.n_held;
    r.x = r.carry + r.n_carry;
    r.inner = r.x + r.n_x;
    r.next = r.inner + r.n_held;
    r.y = r.next + r.n_carry;
    return r;
}

TCI_FN tci_node *tci_build_bound(tci_graph *g, tc_dtype dtype, int rank, const tci_dim *shape)
{
    return tci_graph_node(g, TCI_OP_BOUND, dtype, rank, shape, 0, NULL, 0, NULL);
}

static tci_node *tci_repeat_built(tci_scratch *s, tci_graph *g, tci_node *n)
{
    if (!n) {
        tci_scratch_fail(s, g->error, "%s", g->message);
    }
    return n;
}

/* ---- a body is closed ---- */

typedef struct tci_repeat_close {
    tci_scratch *s;
    tci_graph *g;
    tci_table needs; /* a set: nodes that need the step */
    tci_table now;   /* of nodes: what stands in the body for each; NULL: not looked at */
    tci_node **held, **inner;
    int n_held, cap_held, n_inner, cap_inner;
} tci_repeat_close;

/* n is held; `inner` stands for it, or a BOUND node that is made. */
static tci_node *tci_repeat_hold(tci_repeat_close *c, tci_node *n, tci_node *inner)
{
    inner = inner ? inner
                  : tci_repeat_built(c->s, c->g,
                                     tci_build_bound(c->g, (tc_dtype)n->dtype, n->rank, n->shape));
    TCI_PUSH(c->s, c->held, c->n_held, c->cap_held, n);
    TCI_PUSH(c->s, c->inner, c->n_inner, c->cap_inner, inner);
    return inner;
}

/* n over what stands for its inputs, made where n was. */
static tci_node *tci_repeat_over(const tci_repeat_close *c, tci_node *n)
{
    tci_graph *g = c->g;
    tci_stamp stamp = tci_graph_stamp_as(g, n);
    tci_node *over = tci_graph_rebuild(c->s, g, n, &c->now);
    tci_graph_restamp(g, stamp);
    return tci_repeat_built(c->s, g, over);
}

/* n, which does not need the step, as the body has it. */
static tci_node *tci_repeat_outer(tci_repeat_close *c, tci_node *n)
{
    tci_node **now = tci_table_at(&c->now, n);
    *now = *now ? *now : tci_repeat_hold(c, n, NULL);
    return *now;
}

/* n, which needs the step; so far as its inputs go all are in place. What a REPEAT within has below
 * its outside is its own. */
static tci_node *tci_repeat_inner(tci_repeat_close *c, tci_node *n)
{
    int n_outside = tci_node_n_outside(n);
    for (int i = 0; i < n->n_in; i++) {
        tci_node *in = n->in[i];
        if (i >= n_outside) {
            tci_table_put(&c->now, in, in);
        } else if (!tci_table_has(&c->needs, in)) {
            tci_repeat_outer(c, in);
        }
    }
    return tci_repeat_over(c, n);
}

static void tci_repeat_close_body(tci_repeat_close *c, const tci_repeat *r, tci_node **body)
{
    int n = r->n_carry + r->n_y;
    for (int i = 0; i < r->n_carry + r->n_x + r->n_held; i++) {
        int x = i - r->n_carry, held = x - r->n_x;
        tci_node *bound = x < 0 ? r->carry[i] : held < 0 ? r->x[x] : r->inner[held];
        tci_table_add(&c->needs, bound);
        tci_table_put(&c->now, bound, bound);
    }
    tci_node_list list = tci_graph_sort_outside(c->s, body, n);
    for (int i = 0; i < list.n; i++) {
        tci_node *x = list.items[i];
        bool needs = false;
        for (int k = 0; k < tci_node_n_outside(x); k++) {
            needs = needs || tci_table_has(&c->needs, x->in[k]);
        }
        if (needs) {
            tci_table_add(&c->needs, x);
            tci_table_put(&c->now, x, tci_repeat_inner(c, x));
        }
    }
    for (int i = 0; i < n; i++) {
        body[i] = tci_table_has(&c->needs, body[i]) ? tci_table_get(&c->now, body[i])
                                                    : tci_repeat_outer(c, body[i]);
    }
}

/* ---- the node ---- */

static bool tci_repeat_check_carry(tci_graph *g, const tci_repeat *r, int i)
{
    const tci_node *a = r->carry[i], *b = r->next[i];
    if (a->dtype != b->dtype) {
        tci_graph_fail(g, TC_ERR_DTYPE,
                       "carry %d is %s before a step and %s after it: expected the same dtype "
                       "(tc_cast makes it one)",
                       i, tci_dtype_get((tc_dtype)a->dtype)->name,
                       tci_dtype_get((tc_dtype)b->dtype)->name);
        return false;
    }
    if (!tci_build_same_shape(a->rank, a->shape, b->rank, b->shape)) {
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "carry %d has shape %s before a step and %s after it: expected the same", i,
                       TCI_SHAPE_TEXT(a), TCI_SHAPE_TEXT(b));
        return false;
    }
    return true;
}

/* r with this body and the held values of c. */
static tci_node *tci_repeat_node(const tci_repeat_close *c, const tci_repeat *r, tci_node **body)
{
    int n_body = r->n_carry + r->n_y, n = 0;
    const struct {
        tci_node *const *items;
        int n;
    } lists[] = {{r->init, r->n_carry},  {r->xs, r->n_x}, {c->held, c->n_held},
                 {r->carry, r->n_carry}, {r->x, r->n_x},  {c->inner, c->n_held},
                 {body, n_body}};
    tci_node **in = TCI_NEW_ARRAY(c->s, tci_node *, 2 * (r->n_carry + r->n_x + c->n_held) + n_body);
    for (int i = 0; i < TCI_COUNT(lists); i++) {
        for (int k = 0; k < lists[i].n; k++) {
            in[n++] = lists[i].items[k];
        }
    }
    const tci_dim attr[7] = {r->n_carry, r->n_x,          c->n_held,   r->n_y,
                             r->length,  (int)r->reverse, r->stops + 1};
    return tci_graph_node(c->g, TCI_OP_REPEAT, TC_BOOL, 0, NULL, n, in, 7, tci_dim_words(attr));
}

TCI_FN tci_node *tci_build_repeat(tci_scratch *s, tci_graph *g, const tci_repeat *r)
{
    int n_body = r->n_carry + r->n_y;
    for (int i = 0; i < r->n_carry; i++) {
        if (!tci_repeat_check_carry(g, r, i)) {
            return NULL;
        }
    }
    tci_repeat_close c = {.s = s,
                          .g = g,
                          .needs = tci_table_in(s, sizeof(bool)),
                          .now = tci_table_in(s, sizeof(tci_node *))};
    tci_node **body = TCI_NEW_ARRAY(s, tci_node *, n_body + 1);
    for (int i = 0; i < r->n_held; i++) {
        TCI_PUSH(s, c.held, c.n_held, c.cap_held, r->held[i]);
        TCI_PUSH(s, c.inner, c.n_inner, c.cap_inner, r->inner[i]);
    }
    for (int i = 0; i < n_body; i++) {
        body[i] = i < r->n_carry ? r->next[i] : r->y[i - r->n_carry];
    }
    tci_repeat_close_body(&c, r, body);
    return tci_repeat_node(&c, r, body);
}

TCI_FN tci_node *tci_build_result(tci_graph *g, tci_node *repeat, int result)
{
    tci_repeat r = tci_repeat_of(repeat);
    tci_words w;
    const int64_t attr[1] = {result};
    bool is_last = result < r.n_carry, is_output = !is_last && result < r.n_carry + r.n_y;
    const tci_node *one = is_last     ? r.next[result]
                          : is_output ? r.y[result - r.n_carry]
                                      : r.next[result - r.n_carry - r.n_y];
    tci_dim *shape = tci_words_dims(g, &w, one->rank + 1);
    if (!shape) {
        return NULL;
    }
    shape[0] = tci_dim_add(r.length, is_output ? 0 : 1);
    for (int i = 0; i < one->rank; i++) {
        shape[i + !is_last] = one->shape[i];
    }
    return tci_words_put(g, &w,
                         tci_build_node(g, TCI_OP_RESULT, (tc_dtype)one->dtype,
                                        one->rank + !is_last, shape, 1, &repeat, 1, attr));
}

/* ---- numbers and movement go into a body ---- */

enum { TCI_REPEAT_VIEWS = 64 }; /* nested: more are held */

static bool tci_repeat_sinks(const tci_node *n)
{
    return tci_op_is(n->op, TCI_IS_NUMBER | TCI_IS_VIEW | TCI_IS_DRAWN) || n->op == TCI_OP_IOTA;
}

/* n, which r holds or which such a node is made of, as the body has it; inner: the BOUND node that
 * stands for it, or NULL. */
static tci_node *tci_repeat_sunk(tci_repeat_close *c, tci_node *n, tci_node *inner, int depth)
{
    tci_node **now = tci_table_at(&c->now, n);
    if (*now) {
        return *now;
    }
    if (!tci_repeat_sinks(n) || depth == TCI_REPEAT_VIEWS) {
        return *now = tci_repeat_hold(c, n, inner);
    }
    for (int i = 0; i < n->n_in; i++) {
        tci_repeat_sunk(c, n->in[i], NULL, depth + 1);
    }
    return *now = tci_repeat_over(c, n);
}

/* The body's nodes over what stands in it for the held values; body: its results, old and new. */
static void tci_repeat_sink_body(tci_repeat_close *c, const tci_repeat *r, tci_node **body)
{
    tci_table number = tci_table_in(c->s, sizeof(int)); /* of a held value's BOUND node, and 1 */
    int n = r->n_carry + r->n_y;
    for (int i = 0; i < r->n_held; i++) {
        *(int *)tci_table_at(&number, r->inner[i]) = i + 1;
    }
    for (int i = 0; i < r->n_carry + r->n_x; i++) {
        tci_table_put(&c->now, r->carry[i], r->carry[i]);
    }
    tci_node_list list = tci_graph_sort_outside(c->s, body, n);
    for (int i = 0; i < list.n; i++) {
        tci_node *x = list.items[i], **now = tci_table_at(&c->now, x);
        int held = *(int *)tci_table_at(&number, x) - 1;
        for (int k = tci_node_n_outside(x); k < x->n_in; k++) {
            tci_table_put(&c->now, x->in[k], x->in[k]);
        }
        if (held >= 0) {
            *now = tci_repeat_sunk(c, r->held[held], x, 0);
        } else if (!*now) {
            *now = tci_repeat_over(c, x);
            *now = x->op == TCI_OP_REPEAT ? tci_repeat_sink(c->s, c->g, *now) : *now;
        }
    }
    for (int i = 0; i < n; i++) {
        body[i] = tci_table_get(&c->now, body[i]);
    }
}

TCI_FN tci_node *tci_repeat_sink(tci_scratch *s, tci_graph *g, tci_node *n)
{
    const tci_repeat r = tci_repeat_of(n);
    tci_repeat_close c = {.s = s, .g = g, .now = tci_table_in(s, sizeof(tci_node *))};
    size_t bytes = sizeof(tci_node *) * (size_t)(r.n_carry + r.n_y);
    tci_node **body = tci_scratch_copy(s, r.next, bytes);
    tci_repeat_sink_body(&c, &r, body);
    tci_stamp stamp = tci_graph_stamp_as(g, n);
    n = tci_repeat_built(s, g, tci_repeat_node(&c, &r, body));
    tci_graph_restamp(g, stamp);
    return n;
}

/* ---- a body over other nodes ---- */

TCI_FN tci_node **tci_repeat_over_others(tci_scratch *s, tci_graph *g, const tci_repeat *r,
                                         tci_node *const *given)
{
    int n_bound = r->n_carry + r->n_x + r->n_held, n_body = r->n_carry + r->n_y;
    tci_node **made = TCI_NEW_ARRAY(s, tci_node *, n_body + 1);
    tci_table now = tci_table_in(s, sizeof(tci_node *));
    tci_node_list list = tci_graph_sort_outside(s, r->next, n_body);
    for (int i = 0; i < n_bound; i++) {
        tci_table_put(&now, r->carry[i], given[i]);
    }
    for (int i = 0; i < list.n; i++) {
        tci_node *n = list.items[i], **at = tci_table_at(&now, n);
        if (*at) { /* a BOUND node */
            continue;
        }
        for (int k = tci_node_n_outside(n); k < n->n_in; k++) {
            tci_table_put(&now, n->in[k], n->in[k]);
        }
        tci_stamp stamp = tci_graph_stamp_as(g, n);
        tci_table_put(&now, n, tci_repeat_built(s, g, tci_graph_rebuild(s, g, n, &now)));
        tci_graph_restamp(g, stamp);
    }
    for (int i = 0; i < n_body; i++) {
        made[i] = tci_table_get(&now, r->next[i]);
    }
    return made;
}

/* n after a first axis of one element, or without it. */
static tci_node *tci_repeat_row_of(tci_scratch *s, tci_graph *g, tci_node *n, bool add)
{
    tci_dim *shape = TCI_NEW_ARRAY(s, tci_dim, n->rank + 2);
    shape[0] = 1;
    for (int i = 0; i < n->rank; i++) {
        shape[i + 1] = n->shape[i];
    }
    return tci_repeat_built(
        s, g, tci_build_reshape(g, n, add ? n->rank + 1 : n->rank - 1, add ? shape : n->shape + 1));
}

TCI_FN tci_node **tci_repeat_results(tci_scratch *s, tci_graph *g, const tci_node *repeat)
{
    tci_repeat r = tci_repeat_of(repeat);
    int n_outside = tci_node_n_outside(repeat), n_body = r.n_carry + r.n_y;
    tci_node **given = TCI_NEW_ARRAY(s, tci_node *, n_outside + 1);
    tci_node **results = TCI_NEW_ARRAY(s, tci_node *, tci_repeat_n_results(&r) + 1);
    TCI_ASSERT(s, tci_repeat_is_once(&r));
    for (int i = 0; i < n_outside; i++) {
        bool is_x = i >= r.n_carry && i < r.n_carry + r.n_x;
        given[i] = is_x ? tci_repeat_row_of(s, g, r.init[i], false) : r.init[i];
    }
    tci_node **made = tci_repeat_over_others(s, g, &r, given);
    for (int i = 0; i < n_body; i++) {
        results[i] = i < r.n_carry ? made[i] : tci_repeat_row_of(s, g, made[i], true);
    }
    for (int i = 0; i < r.n_carry; i++) {
        tci_node *rows[2] = {tci_repeat_row_of(s, g, r.init[i], true),
                             tci_repeat_row_of(s, g, made[i], true)};
        int first = r.reverse ? 1 : 0;
        tci_node *in_order[2] = {rows[first], rows[1 - first]};
        results[n_body + i] = tci_repeat_built(s, g, tci_build_cat(g, in_order, 2, 0));
    }
    return results;
}
