/* onnx/export_stablehlo_while.c - exports tc's loops (REPEAT nodes: scan, while) as
 * stablehlo.while.
 *
 * In: a REPEAT node and the names of its outer operands. Out: one while whose state is the
 * iteration number, the carries, the inputs and loop invariants (unchanged), a buffer for each
 * output, and one for the rows of each carry if a node of the graph reads them. Nothing is
 * captured, since not all consumers of StableHLO accept captures. */
#include "export_stablehlo.h"
#include "../graph/loop_node.h"

#include <string.h>

typedef struct tci_hlo_state {
    const char **names, **types; /* of the state in the body */
    int n, n_rows;               /* n_rows: 0, or one for each carry */
    int x, held, y, rows;        /* where each kind begins */
} tci_hlo_state;

/* The shape of a value stacked along a new first axis. */
static tci_hlo_shape tci_hlo_stacked(const tci_hlo *h, const tci_node *n, int64_t count)
{
    int64_t *sizes = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 2);
    sizes[0] = count;
    for (int i = 0; i < n->rank; i++) {
        sizes[i + 1] = tci_hlo_size(h, n->shape[i]);
    }
    return tci_hlo_shape_known(h, n->rank + 1, sizes);
}

/* Where the element `at` of a stack begins: its number, then zeros. */
static const char *tci_hlo_corner(tci_hlo *h, const char *at, int rank, tci_str *types)
{
    const tci_hlo_shape point = {0, NULL, ""};
    tci_str names = {.s = h->walk->s};
    const char *zero = rank ? tci_hlo_whole(h, &point, TC_I64, 0) : NULL;
    tci_str_add(&names, at);
    tci_str_add(types, "tensor<i64>");
    for (int i = 0; i < rank; i++) {
        tci_str_printf(&names, ", %s", zero);
        tci_str_add(types, ", tensor<i64>");
    }
    return tci_str_text(&names);
}

/* Element `at` of a stack; n has the element's shape. */
static const char *tci_hlo_element(tci_hlo *h, const tci_node *n, int64_t count, const char *stack,
                                   const char *at)
{
    tc_dtype t = (tc_dtype)n->dtype;
    const tci_hlo_shape all = tci_hlo_stacked(h, n, count), one = tci_hlo_stacked(h, n, 1);
    const tci_hlo_shape own = tci_hlo_shape_of(h, n->rank, n->shape);
    tci_str types = {.s = h->walk->s};
    const char *corner = tci_hlo_corner(h, at, n->rank, &types);
    const char *x = tci_hlo_let(h, "stablehlo.dynamic_slice %s, %s, sizes = %s : (%s, %s) -> %s",
                                stack, corner, tci_hlo_list(h, one.rank, one.sizes),
                                tci_hlo_type(h, t, &all), tci_str_text(&types),
                                tci_hlo_type(h, t, &one));
    return tci_hlo_reshape(h, t, &one, &own, x);
}

/* The stack with x, of n's shape, as element `at`. */
static const char *tci_hlo_put(tci_hlo *h, const tci_node *n, int64_t count, const char *stack,
                               const char *x, const char *at)
{
    tc_dtype t = (tc_dtype)n->dtype;
    const tci_hlo_shape all = tci_hlo_stacked(h, n, count), one = tci_hlo_stacked(h, n, 1);
    const tci_hlo_shape own = tci_hlo_shape_of(h, n->rank, n->shape);
    tci_str types = {.s = h->walk->s};
    const char *corner = tci_hlo_corner(h, at, n->rank, &types);
    x = tci_hlo_reshape(h, t, &own, &one, x);
    return tci_hlo_let(h, "stablehlo.dynamic_update_slice %s, %s, %s : (%s, %s, %s) -> %s", stack,
                       x, corner, tci_hlo_type(h, t, &all), tci_hlo_type(h, t, &one),
                       tci_str_text(&types), tci_hlo_type(h, t, &all));
}

/* The state before the first step. */
static tci_hlo_state tci_hlo_begin(tci_hlo *h, const tci_repeat *r, int64_t length, bool rows,
                                   const char *const *in)
{
    const tci_hlo_shape point = {0, NULL, ""};
    int outside = r->n_carry + r->n_x + r->n_held, n = 0;
    tci_hlo_state s = {.n_rows = rows ? r->n_carry : 0};
    s.x = 1 + r->n_carry;
    s.held = s.x + r->n_x;
    s.y = s.held + r->n_held;
    s.rows = s.y + r->n_y;
    s.n = s.rows + s.n_rows;
    s.names = TCI_NEW_ARRAY(h->walk->s, const char *, s.n);
    s.types = TCI_NEW_ARRAY(h->walk->s, const char *, s.n);
    s.names[n] = tci_hlo_whole(h, &point, TC_I64, 0);
    s.types[n++] = "tensor<i64>";
    for (int i = 0; i < outside; i++, n++) {
        s.names[n] = in[i];
        s.types[n] = tci_hlo_node_type(h, r->init[i]); /* init, xs and held follow each other */
    }
    for (int i = 0; i < r->n_y + s.n_rows; i++, n++) {
        bool is_row = i >= r->n_y;
        const tci_node *one = is_row ? r->next[i - r->n_y] : r->y[i];
        const tci_hlo_shape all = tci_hlo_stacked(h, one, length + is_row);
        s.names[n] = tci_hlo_whole(h, &all, (tc_dtype)one->dtype, 0);
        s.types[n] = tci_hlo_type(h, (tc_dtype)one->dtype, &all);
        if (is_row) {
            const char *at = tci_hlo_whole(h, &point, TC_I64, r->reverse ? length : 0);
            s.names[n] = tci_hlo_put(h, one, length + 1, s.names[n], in[i - r->n_y], at);
        }
    }
    return s;
}

/* The body: names of the state after a step, given those before it. */
static void tci_hlo_body(tci_hlo *h, const tci_repeat *r, int64_t length, const tci_hlo_state *s,
                         const char **names)
{
    const tci_hlo_shape point = {0, NULL, ""};
    tci_ox_walk *w = h->walk;
    tci_ox_left *outer = w->left;
    uint32_t n_outer = w->n_left;
    const char *at = names[0];
    w->left = NULL; /* a body is closed */
    w->n_left = 0;
    if (r->reverse) {
        at = tci_hlo_binary(h, "subtract", &point, TC_I64,
                            tci_hlo_whole(h, &point, TC_I64, length - 1), at);
    }
    for (int i = 0; i < r->n_carry; i++) {
        tci_ox_set_name(w, r->carry[i], names[1 + i]);
    }
    for (int i = 0; i < r->n_x; i++) {
        tci_ox_set_name(w, r->x[i], tci_hlo_element(h, r->x[i], length, names[s->x + i], at));
    }
    for (int i = 0; i < r->n_held; i++) {
        tci_ox_set_name(w, r->inner[i], names[s->held + i]);
    }
    const char *one = tci_hlo_whole(h, &point, TC_I64, 1);
    const char *above = tci_hlo_binary(h, "add", &point, TC_I64, at, one);
    for (int i = 0; i < r->n_y; i++) {
        names[s->y + i] = tci_hlo_put(h, r->y[i], length, names[s->y + i],
                                      tci_ox_walk_to(w, r->y[i]), at);
    }
    for (int i = 0; i < r->n_carry; i++) {
        names[1 + i] = tci_ox_walk_to(w, r->next[i]);
    }
    for (int i = 0; i < s->n_rows; i++) {
        names[s->rows + i] = tci_hlo_put(h, r->next[i], length + 1, names[s->rows + i],
                                         names[1 + i], r->reverse ? at : above);
    }
    names[0] = tci_hlo_binary(h, "add", &point, TC_I64, names[0], one);
    w->left = outer;
    w->n_left = n_outer;
}

/* "a, b, c" */
static const char *tci_hlo_all(const tci_hlo *h, int n, const char *const *items)
{
    tci_str text = {.s = h->walk->s};
    for (int i = 0; i < n; i++) {
        tci_str_printf(&text, "%s%s", i ? ", " : "", items[i]);
    }
    return tci_str_text(&text);
}

/* The while; s->names are then those of its results. */
static void tci_hlo_while(tci_hlo *h, const tci_repeat *r, int64_t length, tci_hlo_state *s)
{
    const tci_hlo_shape point = {0, NULL, ""};
    const char **names = TCI_NEW_ARRAY(h->walk->s, const char *, s->n), *made = tci_hlo_name(h);
    const char *types = tci_hlo_all(h, s->n, s->types);
    tci_str_printf(&h->out, "  %s:%d = stablehlo.while(", made, s->n);
    for (int i = 0; i < s->n; i++) {
        names[i] = tci_hlo_name(h);
        tci_str_printf(&h->out, "%s%s = %s", i ? ", " : "", names[i], s->names[i]);
        s->names[i] = tci_scratch_printf(h->walk->s, "%s#%d", made, i);
    }
    tci_str_printf(&h->out, ") : %s\n  cond {\n", types);
    const char *goes = tci_hlo_compare(h, "LT", &point, TC_I64, names[0],
                                       tci_hlo_whole(h, &point, TC_I64, length));
    if (r->stops >= 0) {
        goes = tci_hlo_binary(h, "and", &point, TC_BOOL, goes, names[1 + r->stops]);
    }
    tci_str_printf(&h->out, "  stablehlo.return %s : tensor<i1>\n  } do {\n", goes);
    tci_hlo_body(h, r, length, s, names);
    tci_str_printf(&h->out, "  stablehlo.return %s : %s\n  }\n", tci_hlo_all(h, s->n, names),
                   types);
}

TCI_FN const char *tci_hlo_repeat_out(tci_hlo *h, tci_node *n, const char *const *in)
{
    const tci_repeat r = tci_repeat_of(n);
    int64_t length = tci_hlo_size(h, r.length);
    bool rows = tci_ox_rows_are_read(h->walk, n);
    tci_hlo_state s = tci_hlo_begin(h, &r, length, rows, in);
    if (length > 0) {
        tci_hlo_while(h, &r, length, &s);
    }
    tci_hlo_loop loop = {n, TCI_NEW_ARRAY(h->walk->s, const char *, tci_repeat_n_results(&r))};
    for (int i = 0; i < r.n_carry; i++) {
        loop.results[i] = s.names[1 + i];
        loop.results[r.n_carry + r.n_y + i] = s.n_rows ? s.names[s.rows + i] : NULL;
    }
    for (int i = 0; i < r.n_y; i++) {
        loop.results[r.n_carry + i] = s.names[s.y + i];
    }
    TCI_PUSH(h->walk->s, h->loops, h->n_loops, h->cap_loops, loop);
    return ""; /* a loop has no value of its own */
}

TCI_FN const char *tci_hlo_result_out(tci_hlo *h, const tci_node *n)
{
    for (int i = h->n_loops - 1; i >= 0; i--) {
        if (h->loops[i].repeat == n->in[0]) {
            return h->loops[i].results[n->attr[0]];
        }
    }
    return NULL;
}
