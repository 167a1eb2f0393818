/* onnx/export_loop.c - exports loops (REPEAT nodes) as ONNX Loop.
 *
 * In: a REPEAT node and the names of its outer operands. Out: one Loop whose body reads the inputs
 * at the iteration number, and loop invariants by their outer names. Elements of outputs, and the
 * rows of carries, are scan outputs, in the order of the iterations. */
#include "export_state.h"
#include "../graph/loop_node.h"

/* The scan outputs of a reversed loop, last step first. */
static const char *tci_ox_in_order(tci_ox_out_graph *g, const tci_repeat *r, const char *x)
{
    const int64_t start = INT64_MAX, end = INT64_MIN, axis = 0, step = -1;
    return r->reverse ? TCI_OW(&g->w, "Slice", x, tci_ow_ints(&g->w, 1, &start),
                               tci_ow_ints(&g->w, 1, &end), tci_ow_ints(&g->w, 1, &axis),
                               tci_ow_ints(&g->w, 1, &step))
                      : x;
}

/* The rows of a carry: what it was at the start, and after each step. */
static const char *tci_ox_stacked(tci_ox_out_graph *g, const tci_repeat *r, const char *init,
                                  const char *steps)
{
    const int64_t zero = 0;
    const tci_ow_attr axis = TCI_OW_INT("axis", 0);
    const char *first = TCI_OW(&g->w, "Unsqueeze", init, tci_ow_ints(&g->w, 1, &zero));
    const char *both[] = {r->reverse ? tci_ox_in_order(g, r, steps) : first,
                          r->reverse ? first : steps};
    return tci_ow_op(&g->w, "Concat", 2, both, 1, &axis);
}

/* Writes the body; `graph` is then its GraphProto. in: names of operands outside. outputs: how many
 * results it has. */
static void tci_ox_loop_body(tci_ox_out_graph *g, const tci_repeat *r, const char *const *in,
                             int outputs, tci_str *graph)
{
    tci_ox_walk *walk = g->walk;
    tci_ow *w = &g->w;
    tci_str outer = w->graph;
    tci_ox_left *left = walk->left;
    uint32_t n_left = walk->n_left;
    const char *step = tci_ow_name(w), *goes = tci_ow_name(w), *at = step;
    walk->left = NULL; /* a body is closed */
    walk->n_left = 0;
    w->graph = (tci_str){.s = walk->s};
    tci_ow_info(w, 11, step, TC_I64, 0, NULL);
    tci_ow_info(w, 11, goes, TC_BOOL, 0, NULL);
    for (int i = 0; i < r->n_carry; i++) {
        const char *name = tci_ow_name(w);
        tci_ow_info(w, 11, name, (tc_dtype)r->carry[i]->dtype, r->carry[i]->rank,
                    r->carry[i]->shape);
        tci_ox_set_name(walk, r->carry[i], name);
    }
    if (r->reverse) {
        int64_t last = tci_dim_known(r->length) - 1;
        at = TCI_OW(w, "Sub", tci_ow_tensor(w, NULL, TC_I64, 0, NULL, &last), step);
    }
    for (int i = 0; i < r->n_x; i++) {
        tci_ox_set_name(walk, r->x[i], TCI_OW(w, "Gather", in[r->n_carry + i], at));
    }
    for (int i = 0; i < r->n_held; i++) {
        tci_ox_set_name(walk, r->inner[i], in[r->n_carry + r->n_x + i]);
    }
    const char *next = r->stops >= 0 ? tci_ox_walk_to(walk, r->next[r->stops]) : goes;
    const char *name = TCI_OW(w, "Identity", next);
    tci_ow_info(w, 12, name, TC_BOOL, 0, NULL);
    for (int i = 0; i < outputs; i++) { /* carries, outputs, rows */
        const tci_node *y = i < r->n_carry            ? r->next[i]
                            : i < r->n_carry + r->n_y ? r->y[i - r->n_carry]
                                                      : r->next[i - r->n_carry - r->n_y];
        const char *from = tci_ox_walk_to(walk, (tci_node *)(uintptr_t)y);
        name = TCI_OW(w, "Identity", from);
        tci_ow_info(w, 12, name, (tc_dtype)y->dtype, y->rank, y->shape);
    }
    tci_ow_text(&w->graph, 2, "body");
    *graph = w->graph;
    w->graph = outer;
    walk->left = left;
    walk->n_left = n_left;
}

TCI_FN const char *tci_ox_repeat_out(tci_ox_out_graph *g, tci_node *n, const char *const *in)
{
    const tci_repeat r = tci_repeat_of(n);
    tci_scratch *s = g->walk->s;
    int n_rows = tci_ox_rows_are_read(g->walk, n) ? r.n_carry : 0, k = 0;
    int outputs = r.n_carry + r.n_y + n_rows;
    const char yes = 1, **with = TCI_NEW_ARRAY(s, const char *, r.n_carry + 2);
    tci_str graph;
    if (!tci_dim_is_known(r.length)) {
        tci_ox_refuse(g->walk, n, "a symbolic number of steps");
    }
    int64_t length = tci_dim_known(r.length);
    with[k++] = tci_ow_tensor(&g->w, NULL, TC_I64, 0, NULL, &length);
    with[k++] = r.stops >= 0 ? in[r.stops] : tci_ow_tensor(&g->w, NULL, TC_BOOL, 0, NULL, &yes);
    for (int i = 0; i < r.n_carry; i++) {
        with[k++] = in[i];
    }
    tci_ox_loop_body(g, &r, in, outputs, &graph);
    const tci_ow_attr body = TCI_OW_GRAPH("body", &graph);
    tci_ox_left_loop loop = {n, TCI_NEW_ARRAY(s, const char *, tci_repeat_n_results(&r) + 1)};
    for (int i = 0; i < outputs; i++) {
        loop.results[i] = tci_ow_name(&g->w);
    }
    tci_ow_node(&g->w, "Loop", k, with, outputs, loop.results, 1, &body);
    for (int i = 0; i < r.n_y; i++) {
        const char **y = &loop.results[r.n_carry + i];
        *y = tci_ox_in_order(g, &r, *y);
    }
    for (int i = 0; i < n_rows; i++) {
        const char **rows = &loop.results[r.n_carry + r.n_y + i];
        *rows = tci_ox_stacked(g, &r, in[i], *rows);
    }
    TCI_PUSH(s, g->loops, g->n_loops, g->cap_loops, loop);
    return ""; /* a loop has no value of its own */
}

TCI_FN const char *tci_ox_result_out(tci_ox_out_graph *g, const tci_node *n)
{
    for (int i = g->n_loops - 1; i >= 0; i--) {
        if (g->loops[i].repeat == n->in[0]) {
            return g->loops[i].results[n->attr[0]];
        }
    }
    return NULL;
}
