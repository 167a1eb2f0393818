/* graph/contraction_descriptor.c - decodes CONTRACT nodes into descriptors (batch, M, N and K axis
 * groups, operands behind views and casts), and rebuilds a contraction with other operands or
 * another axis order.
 *
 * In: CONTRACT nodes. Out: descriptors in scratch memory (contraction_descriptor.h), new nodes. */
#include "contraction_descriptor.h"

enum { TCI_WEIGHTS_DEPTH = 8 }; /* operations between a score and its weight, or a weight and n */

/* ---- values below movement ---- */

TCI_FN bool tci_is_zero(const tci_node *n)
{
    return n->op == TCI_OP_CONST && n->value.f == 0;
}

TCI_FN bool tci_is_known(const tci_node *n)
{
    bool known = tci_build_is_known(n->rank, n->shape);
    for (int i = 0; i < n->n_attr && n->op != TCI_OP_CONTRACT; i++) {
        known = known && tci_dim_is_known(n->attr[i]);
    }
    return known;
}

static bool tci_below_may_pass(const tci_node *n, int through)
{
    if (n->op == TCI_OP_CAST) {
        bool f32 = n->dtype == TC_F32;
        return (through & TCI_THROUGH_CASTS) || (f32 && (through & TCI_THROUGH_F32)) ||
               (f32 && (through & TCI_THROUGH_WIDENING) &&
                tci_dtype_is_half((tc_dtype)n->in[0]->dtype));
    }
    if (n->op == TCI_OP_PAD) {
        return (through & TCI_THROUGH_PADS) ||
               ((through & TCI_THROUGH_ZEROS) && tci_is_zero(n->in[1]));
    }
    return n->op == TCI_OP_WINDOW ? (through & TCI_THROUGH_WINDOWS) != 0
                                  : (through & TCI_THROUGH_VIEWS) && tci_op_is(n->op, TCI_IS_VIEW);
}

TCI_FN tci_node *tci_below(tci_node *n, int through, const tci_table *stored)
{
    while (tci_below_may_pass(n, through) && !(stored && tci_table_has(stored, n)) &&
           (!(through & TCI_THROUGH_KNOWN) || tci_is_known(n))) {
        n = n->in[0];
    }
    return n;
}

TCI_FN int tci_fastest_axis(const tci_node *n)
{
    if (n->op != TCI_OP_PERMUTE) {
        return n->rank - 1;
    }
    int axis = tci_fastest_axis(n->in[0]);
    for (int i = 0; i < n->rank; i++) {
        if (n->attr[i] == axis) {
            return i;
        }
    }
    return axis;
}

/* ---- weights of attention ---- */

/* True if n is made, element by element, of a contraction. */
static bool tci_is_scores(const tci_node *n, int depth)
{
    bool found = n->op == TCI_OP_CONTRACT;
    bool goes = depth < TCI_WEIGHTS_DEPTH && tci_op_is(n->op, TCI_IS_POINTWISE);
    for (int i = 0; i < n->n_in && goes && !found; i++) {
        found = tci_is_scores(n->in[i], depth + 1);
    }
    return found;
}

/* True if n is the weights of attention: normalized exponentials of scores. */
static bool tci_is_weights(const tci_node *n)
{
    while (n->op == TCI_OP_CAST) {
        n = n->in[0];
    }
    for (int i = 0; i < 2 && (n->op == TCI_OP_MUL || n->op == TCI_OP_DIV); i++) {
        const tci_node *e = n->in[i];
        if (e->op == TCI_OP_EXP && e->in[0]->op == TCI_OP_SUB) {
            return tci_is_scores(e->in[0]->in[0], 0);
        }
    }
    return false;
}

static bool tci_is_made_of_weights(const tci_node *n, int depth)
{
    bool found = tci_is_weights(n);
    bool goes = depth < TCI_WEIGHTS_DEPTH && tci_op_is(n->op, TCI_IS_POINTWISE);
    for (int i = 0; i < n->n_in && goes && !found; i++) {
        found = tci_is_made_of_weights(n->in[i], depth + 1);
    }
    return found;
}

TCI_FN bool tci_is_of_weights(const tci_node *n)
{
    return tci_is_made_of_weights(n, 0);
}

/* ---- nodes ---- */

TCI_FN int64_t tci_contract_fresh(const tci_node *n)
{
    int64_t fresh = 0;
    for (int i = 3; i < n->n_attr; i++) {
        fresh = TCI_MAX(fresh, n->attr[i] + 1);
    }
    return fresh;
}

TCI_FN tci_node *tci_contract_of(tci_graph *g, const tci_node *n, tc_dtype t, tci_node *const *in)
{
    return tci_graph_node(g, TCI_OP_CONTRACT, t, n->rank, n->shape, 2, in, n->n_attr, n->attr);
}

TCI_FN tci_contract_form tci_contract_form_of(const tci_node *n)
{
    tci_contract_form f = {.in = {n->in[0], n->in[1]}};
    for (int which = 0; which < 3; which++) {
        f.labels[which] = tci_contract_labels(n, which);
        f.rank[which] = (int)n->attr[which];
    }
    return f;
}

TCI_FN void tci_contract_turn(tci_scratch *s, tci_contract_form *f, int which, const int64_t *order)
{
    int64_t *labels = TCI_NEW_ARRAY(s, int64_t, f->rank[which] + 1);
    for (int i = 0; i < f->rank[which]; i++) {
        labels[i] = f->labels[which][order[i]];
    }
    f->labels[which] = labels;
}

TCI_FN void tci_contract_lead(tci_scratch *s, tci_contract_form *f, int which, int64_t label)
{
    int64_t *labels = TCI_NEW_ARRAY(s, int64_t, f->rank[which] + 1);
    labels[0] = label;
    for (int i = 0; i < f->rank[which]; i++) {
        labels[i + 1] = f->labels[which][i];
    }
    f->labels[which] = labels;
    f->rank[which]++;
}

TCI_FN tci_node *tci_contract_make(tci_scratch *s, tci_graph *g, const tci_contract_form *f,
                                   tc_dtype t, const tci_dim *shape)
{
    int n = 3;
    int64_t *attr = TCI_NEW_ARRAY(s, int64_t, 3 + f->rank[0] + f->rank[1] + f->rank[2]);
    for (int which = 0; which < 3; which++) {
        attr[which] = f->rank[which];
        for (int i = 0; i < f->rank[which]; i++) {
            attr[n++] = f->labels[which][i];
        }
    }
    return tci_graph_node(g, TCI_OP_CONTRACT, t, f->rank[2], shape, 2, f->in, n, attr);
}

TCI_FN tci_node *tci_contract_in_order(tci_scratch *s, tci_graph *g, const tci_node *n,
                                       tci_node *const *in, const int64_t *order)
{
    tci_contract_form f = tci_contract_form_of(n);
    f.in[0] = in[0];
    f.in[1] = in[1];
    tci_dim *shape = TCI_NEW_ARRAY(s, tci_dim, n->rank + 1);
    for (int i = 0; i < n->rank; i++) {
        shape[i] = n->shape[order[i]];
    }
    tci_contract_turn(s, &f, 2, order);
    return tci_contract_make(s, g, &f, (tc_dtype)n->dtype, shape);
}

/* ---- the descriptor ---- */

static tci_contract_axis_of *tci_contraction_axis(tci_contraction *c, int64_t label)
{
    for (int i = 0; i < c->n_axes; i++) {
        if (c->axes[i].label == label) {
            return &c->axes[i];
        }
    }
    c->axes[c->n_axes] = (tci_contract_axis_of){.label = label, .at = {-1, -1, -1}};
    return &c->axes[c->n_axes++];
}

static void tci_contraction_place(tci_contraction *c, int which, const tci_node *x)
{
    for (int i = 0; i < x->rank; i++) {
        tci_contract_axis_of *axis = tci_contraction_axis(c, tci_contract_labels(c->n, which)[i]);
        axis->size = x->shape[i];
        axis->at[which] = i;
    }
    c->is_known = c->is_known && tci_build_is_known(x->rank, x->shape);
}

static tci_axes tci_contraction_group(const tci_contract_axis_of *axis)
{
    bool both = axis->at[0] >= 0 && axis->at[1] >= 0;
    return axis->at[2] < 0    ? (both ? TCI_AXES_K : TCI_AXES_ALONE)
           : both             ? TCI_AXES_BATCH
           : axis->at[0] >= 0 ? TCI_AXES_M
                              : TCI_AXES_N;
}

static void tci_contraction_operand(tci_contraction *c, int which)
{
    tci_node *x = c->n->in[which];
    tci_node *to = tci_below(x, TCI_THROUGH_ALL, NULL);
    const tci_node *window = x;
    while (window != to && window->op != TCI_OP_WINDOW) {
        window = window->in[0];
    }
    double others = c->size[which ? TCI_AXES_M : TCI_AXES_N];
    c->in[which] = (tci_contract_operand){.node = x,
                                          .labels = tci_contract_labels(c->n, which),
                                          .source = to,
                                          .window = window == to ? NULL : window,
                                          .dtype = (tc_dtype)to->dtype,
                                          .fastest = tci_fastest_axis(x),
                                          .bytes = tci_node_value_bytes(to),
                                          .reads = others};
}

TCI_FN const tci_contraction *tci_contraction_of(tci_scratch *s, const tci_node *n)
{
    tci_contraction *c = TCI_NEW(s, tci_contraction);
    *c = (tci_contraction){.n = n,
                           .out = tci_contract_labels(n, 2),
                           .columns = -1,
                           .is_known = true,
                           .products = 1};
    c->axes = TCI_NEW_ARRAY(s, tci_contract_axis_of, n->n_attr);
    tci_contraction_place(c, 2, n);
    tci_contraction_place(c, 0, n->in[0]);
    tci_contraction_place(c, 1, n->in[1]);
    for (int g = 0; g < TCI_AXES_COUNT; g++) {
        c->size[g] = 1;
    }
    for (int i = 0; i < c->n_axes; i++) {
        tci_contract_axis_of *axis = &c->axes[i];
        axis->group = (uint8_t)tci_contraction_group(axis);
        c->size[axis->group] *= (double)tci_dim_hint(axis->size);
        c->products *= (double)tci_dim_hint(axis->size);
    }
    uint8_t last = n->rank > 0 ? c->axes[n->rank - 1].group : TCI_AXES_BATCH;
    c->columns = last == TCI_AXES_M ? 0 : last == TCI_AXES_N ? 1 : -1;
    tci_contraction_operand(c, 0);
    tci_contraction_operand(c, 1);
    return c;
}
