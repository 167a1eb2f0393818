/* ops/composite.c - composite ops (softmax, mean, layer_norm, cross_entropy, formula rows): builds
 * them and expands them into primitive ops.
 *
 * There are two kinds. Composite rows (softmax, log_softmax, mean, layer_norm, cross_entropy) stay
 * one node until the compile, where tci_expand_composite replaces them; the planner or a backend
 * may handle them whole. The others (convolution_pooling.c, resample.c) are expanded as they are
 * built. Fusion, printing and differentiation of a composite follow from its expansion.
 *
 * A composite computes in the op-math dtype (f32 for f16 and bf16) and rounds once, at its end. */
#include "composite.h"

#include "formula_bytecode.h"

#include <math.h>

/* ---- helpers ---- */

TCI_FN tc_dtype tci_composite_math(const tci_node *n)
{
    return (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute;
}

TCI_FN tci_node *tci_composite_unary(tci_graph *g, int op, tci_node *a)
{
    return tci_build_ew(g, op, &a);
}

TCI_FN tci_node *tci_composite_binary(tci_graph *g, int op, tci_node *a, tci_node *b)
{
    tci_node *in[2] = {a, b};
    return tci_build_ew(g, op, in);
}

TCI_FN tci_node *tci_composite_number(tci_graph *g, tc_dtype dtype, double v)
{
    tci_value f = {.f = v}, i = {.i = (int64_t)v};
    return tci_graph_const(g, dtype, tci_dtype_is_float(dtype) ? f : i);
}

TCI_FN tci_node *tci_composite_whole(tci_graph *g, int64_t v)
{
    return tci_graph_const(g, TC_I64, (tci_value){.i = v});
}

TCI_FN tci_node *tci_composite_ramp(tci_graph *g, tci_dim n, int rank, int axis)
{
    tci_words w;
    tci_dim *shape = tci_words_dims(g, &w, rank);
    if (!shape) {
        return NULL;
    }
    for (int i = 0; i < rank; i++) {
        shape[i] = i == axis ? n : 1;
    }
    return tci_words_put(g, &w, tci_build_reshape(g, tci_build_iota(g, n), rank, shape));
}

TCI_FN tci_node *tci_composite_lowest(tci_graph *g, tc_dtype t)
{
    tci_value v = {.i = 0};
    if (tci_dtype_is_float(t)) {
        v.f = -(double)INFINITY;
    } else if (tci_dtype_is_signed(t)) {
        v.i = -((int64_t)1 << (8 * tci_dtype_get(t)->bytes - 2)) * 2;
    }
    return tci_graph_const(g, t, v);
}

/* value, differentiated as f, which broadcasts to its shape. */
static tci_node *tci_composite_as(tci_graph *g, tci_node *f, tci_node *value)
{
    f = tci_build_expand(g, f, value->rank, value->shape);
    return tci_build_with_derivative(g, f, value);
}

/* One word of a formula over the nodes it takes. */
static tci_node *tci_composite_formula_word(tci_graph *g, int word, tci_node *const *operands,
                                            tci_node *const *args, tc_dtype t)
{
    switch (word) {
    case TCI_W_A: return operands[0];
    case TCI_W_B: return operands[1];
    case TCI_W_C: return operands[2];
    case TCI_W_D: return operands[3];
    case TCI_W_E: return operands[4];
    case TCI_W_STOP: return tci_build_stop_gradient(g, args[0]);
    case TCI_W_AS: return tci_composite_as(g, args[0], args[1]);
    case TCI_OP_WHERE: return tci_build_where(g, args[0], args[1], args[2]);
    default: break;
    }
    return word >= TCI_W_K ? tci_composite_number(g, t, tci_formula_number(word))
                           : tci_build_ew(g, word, args);
}

TCI_FN tci_node *tci_build_formula(tci_graph *g, tci_built built, tci_node *const *operands,
                                   tc_dtype t)
{
    tci_node *stack[TCI_FORMULA_DEPTH] = {NULL};
    int n = 0;
    for (const uint8_t *w = tci_formula_built(built); *w != TCI_W_END; w++) {
        n -= tci_formula_gradient_operands(*w);
        stack[n] = tci_composite_formula_word(g, *w, operands, stack + n, t);
        if (!stack[n]) {
            return NULL;
        }
        n++;
    }
    return stack[0];
}

TCI_FN tci_node *tci_build_reduction(tci_graph *g, tci_node *x, int how)
{
    tc_axes all = {NULL, 0, true};
    if (how < TC_REDUCE_MEAN || how > TC_REDUCE_NONE) {
        tci_graph_fail(g, TC_ERR_ARGUMENT,
                       "the reduction is %d: expected TC_REDUCE_MEAN, TC_REDUCE_SUM or "
                       "TC_REDUCE_NONE",
                       how);
        return NULL;
    }
    return !x || how == TC_REDUCE_NONE ? x
           : how == TC_REDUCE_SUM      ? tci_build_reduce(g, TCI_OP_SUM, x, all, false)
                                       : tci_build_mean(g, x, all, false);
}

/* Reduces over axes given as attributes. */
static tci_node *tci_composite_reduce(tci_graph *g, int op, tci_node *x, const int64_t *axes, int n,
                                      bool keepdims)
{
    tci_words w;
    int *list = x ? tci_words_ints(g, &w, n) : NULL;
    if (!list) {
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        list[i] = (int)axes[i];
    }
    tc_axes a = {list, n, false};
    return tci_words_put(g, &w, tci_build_reduce_some(g, op, x, a, keepdims));
}

static tci_dim tci_composite_count(const tci_node *x, const int64_t *axes, int n)
{
    tci_dim count = 1;
    for (int i = 0; i < n; i++) {
        count = tci_dim_mul(count, x->shape[axes[i]]);
    }
    return count;
}

static tci_node *tci_composite_mean(tci_graph *g, tci_node *x, const int64_t *axes, int n,
                                    bool keepdims)
{
    if (!x) {
        return NULL;
    }
    tci_node *count = tci_build_size_value(g, tci_composite_count(x, axes, n), (tc_dtype)x->dtype);
    return tci_composite_binary(g, TCI_OP_DIV,
                                tci_composite_reduce(g, TCI_OP_SUM, x, axes, n, keepdims), count);
}

/* The log-softmax, or the softmax, of x in x's dtype. */
static tci_node *tci_composite_softmax(tci_graph *g, tci_node *x, int64_t axis, bool log)
{
    if (!x) {
        return NULL;
    }
    if (tci_node_count(x) == 0) {
        return tci_build_broadcast(g, tci_composite_number(g, (tc_dtype)x->dtype, 0.0), x->rank,
                                   x->shape);
    }
    tci_node *largest = tci_composite_reduce(g, TCI_OP_MAX, x, &axis, 1, true);
    tci_node *shifted = tci_composite_binary(g, TCI_OP_SUB, x, largest);
    tci_node *powers = tci_composite_unary(g, TCI_OP_EXP, shifted);
    tci_node *sum = tci_composite_reduce(g, TCI_OP_SUM, powers, &axis, 1, true);
    if (log) {
        return tci_composite_binary(g, TCI_OP_SUB, shifted,
                                    tci_composite_unary(g, TCI_OP_LOG, sum));
    }
    tci_node *one = tci_composite_number(g, (tc_dtype)x->dtype, 1.0); /* one division a row */
    return tci_composite_binary(g, TCI_OP_MUL, powers,
                                tci_composite_binary(g, TCI_OP_DIV, one, sum));
}

/* ---- builders of composite nodes ---- */

TCI_FN tci_node *tci_build_softmax(tci_graph *g, tci_node *x, int axis, bool log)
{
    int at;
    int op = log ? TCI_OP_LOG_SOFTMAX : TCI_OP_SOFTMAX;
    if (!x || !tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    x = tci_build_real(g, x);
    tci_dim one = 1;
    tci_node *line = x && !x->rank ? tci_build_reshape(g, x, 1, &one) : x;
    if (!line) {
        return NULL;
    }
    int64_t attr = at;
    tci_node *r = tci_graph_node(g, op, (tc_dtype)line->dtype, line->rank, line->shape, 1, &line, 1,
                                 &attr);
    return tci_build_reshape(g, r, x->rank, x->shape);
}

/* weight or bias: its sizes must be those of the normalized axes. */
static bool tci_composite_norm_check(tci_graph *g, const char *what, const tci_node *p,
                                     const tci_node *x, const int64_t *axes, int n)
{
    bool fits = !p || p->rank == n;
    for (int i = 0; p && fits && i < n; i++) {
        fits = p->shape[i] == x->shape[axes[i]];
    }
    if (!fits) {
        tci_words w;
        tci_dim *sizes = tci_words_dims(g, &w, n);
        for (int i = 0; sizes && i < n; i++) {
            sizes[i] = x->shape[axes[i]];
        }
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "the %s has shape %s: expected %s, the sizes of the normalized axes", what,
                       TCI_SHAPE_TEXT(p), tci_shape_text_of(sizes ? n : 0, sizes).text);
        tci_words_put(g, &w, NULL);
    }
    return fits;
}

/* Normalizes the axes to ascending order without doubles: attr = n, axes, has_weight, has_bias. */
static bool tci_composite_norm_axes(tci_graph *g, const tci_node *x, tc_axes axes, int64_t *attr)
{
    int n = 0;
    for (int d = 0; d < x->rank; d++) {
        int uses = axes.all;
        for (int i = 0; !axes.all && i < axes.n; i++) {
            int at;
            if (!tci_build_axis(g, axes.items[i], x->rank, &at)) {
                return false;
            }
            uses += at == d;
        }
        if (uses > 1) {
            tci_graph_fail(g, TC_ERR_AXIS, "axis %d is given twice", d);
            return false;
        }
        if (uses) {
            attr[1 + n++] = d;
        }
    }
    attr[0] = n;
    if (!n) {
        tci_graph_fail(g, TC_ERR_AXIS, "no axes to normalize over: expected at least one");
    }
    return n > 0;
}

TCI_FN tci_node *tci_build_layer_norm(tci_graph *g, tci_node *x, tc_axes axes, tci_node *weight,
                                      tci_node *bias, tci_node *eps)
{
    if (!x || !eps) {
        return NULL;
    }
    if (eps->rank) {
        tci_graph_fail(g, TC_ERR_SHAPE, "eps has rank %d: expected a number or a 0-d tensor",
                       eps->rank);
        return NULL;
    }
    x = tci_build_real(g, x);
    tci_words w;
    if (!x || !tci_words_get(g, &w, x->rank + 3)) {
        return NULL;
    }
    int64_t *attr = w.items;
    tci_node *in[4] = {x, tci_build_cast(g, eps, TC_F64), NULL, NULL};
    int n_in = 2;
    bool fits = in[1] && tci_composite_norm_axes(g, x, axes, attr);
    int n = (int)attr[0];
    fits = fits && tci_composite_norm_check(g, "weight", weight, x, attr + 1, n) &&
           tci_composite_norm_check(g, "bias", bias, x, attr + 1, n);
    if (!fits) {
        return tci_words_put(g, &w, NULL);
    }
    attr[1 + n] = weight != NULL;
    attr[2 + n] = bias != NULL;
    if (weight) {
        in[n_in++] = weight;
    }
    if (bias) {
        in[n_in++] = bias;
    }
    return tci_words_put(g, &w,
                         tci_graph_node(g, TCI_OP_LAYER_NORM, (tc_dtype)x->dtype, x->rank, x->shape,
                                        n_in, in, 3 + n, attr));
}

TCI_FN tci_node *tci_build_cross_entropy(tci_graph *g, tci_node *logits, tci_node *target)
{
    if (!logits || !target) {
        return NULL;
    }
    int axis = logits->rank > 1 ? 1 : 0;
    bool fits = logits->rank >= 1 && target->rank == logits->rank - 1;
    for (int i = 0; fits && i < target->rank; i++) {
        fits = target->shape[i] == logits->shape[i + (i >= axis)];
    }
    if (!fits) {
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "logits have shape %s, target %s: expected the target to have the logits' "
                       "sizes "
                       "without axis %d, the classes",
                       TCI_SHAPE_TEXT(logits), TCI_SHAPE_TEXT(target), axis);
        return NULL;
    }
    if (!tci_dtype_is_int((tc_dtype)target->dtype)) {
        tci_graph_fail(g, TC_ERR_DTYPE,
                       "the target has dtype %s: expected class indices of an integer dtype",
                       tci_dtype_get((tc_dtype)target->dtype)->name);
        return NULL;
    }
    if (logits->shape[axis] == 0 && tci_node_count(target) != 0) {
        tci_graph_fail(g, TC_ERR_SHAPE, "the logits have no classes: axis %d has size 0", axis);
        return NULL;
    }
    if (!tci_build_can_read(g, "the logits", logits, axis, tci_node_count(target))) {
        return NULL;
    }
    tci_node *in[2] = {tci_build_real(g, logits), target};
    if (!in[0]) {
        return NULL;
    }
    tci_node *r = tci_graph_node(g, TCI_OP_CROSS_ENTROPY, (tc_dtype)in[0]->dtype, 0, NULL, 2, in, 0,
                                 NULL);
    return tci_graph_claim(g, r);
}

/* ---- gradients end here, or go another way ---- */

TCI_FN tci_node *tci_build_stop_gradient(tci_graph *g, tci_node *x)
{
    if (!x || !tci_dtype_is_float((tc_dtype)x->dtype)) {
        return x;
    }
    return tci_graph_node(g, TCI_OP_STOP_GRADIENT, (tc_dtype)x->dtype, x->rank, x->shape, 1, &x, 0,
                          NULL);
}

TCI_FN tci_node *tci_build_with_derivative(tci_graph *g, tci_node *f, tci_node *value)
{
    tci_node *in[2] = {f, value};
    return f && value ? tci_build_node(g, TCI_OP_WITH_DERIVATIVE, (tc_dtype)f->dtype, f->rank,
                                       f->shape, 2, in, 0, NULL)
                      : NULL;
}

/* ---- results that keep the name of their call ---- */

TCI_FN tci_node *tci_build_named(tci_graph *g, tci_call_name call, tci_node *r, int n,
                                 tci_node *const *operands, int n_words, const int64_t *words)
{
    tci_node *in[1 + TCI_NAMED_OPERANDS] = {r};
    int64_t attrs[1 + TCI_NAMED_WORDS] = {call};
    if (!r || n > TCI_NAMED_OPERANDS || n_words > TCI_NAMED_WORDS ||
        !tci_dtype_is_float((tc_dtype)r->dtype) || tci_op_is(r->op, TCI_IS_LEAF)) {
        return r;
    }
    for (int i = 0; i < n; i++) {
        in[1 + i] = operands[i];
    }
    for (int i = 0; i < n_words; i++) {
        attrs[1 + i] = words[i];
    }
    return tci_build_node(g, TCI_OP_NAMED, (tc_dtype)r->dtype, r->rank, r->shape, 1 + n, in,
                          1 + n_words, attrs);
}

/* ---- logcumsumexp ---- */

/* Step h = 1, 2, 4, ... combines each element with the one h before it (a Hillis-Steele scan).
 * Elements without one stay, and -0 becomes 0 as in a sum. */
TCI_FN tci_node *tci_build_logcumsumexp(tci_graph *g, tci_node *x, int axis)
{
    int at;
    if (!x || !tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    tc_dtype t = tci_dtype_real(g->promotion, (tc_dtype)x->dtype);
    if (!x->rank) {
        return tci_build_cast(g, x, t);
    }
    const tci_dim n = x->shape[at];
    tci_node *r = tci_build_cast(g, tci_build_cast(g, x, t), (tc_dtype)tci_dtype_get(t)->compute);
    for (int64_t h = 1; r && h < tci_dim_most(n); h *= 2) {
        tci_node *none = tci_composite_lowest(g, (tc_dtype)r->dtype);
        tci_node *before = tci_build_pad(g, r, at, h, -h, none);
        tci_node *zero = tci_composite_number(g, (tc_dtype)r->dtype, 0);
        tci_node *some = tci_composite_binary(g, TCI_OP_GE, tci_composite_ramp(g, n, x->rank, at),
                                              tci_composite_whole(g, h));
        r = tci_build_where(g, some, tci_composite_binary(g, TCI_OP_LOGADDEXP, before, r),
                            tci_composite_binary(g, TCI_OP_ADD, r, zero));
    }
    return tci_build_cast(g, r, t);
}

/* ---- expansions: one function a row, pasted from its id ---- */

static tci_node *tci_expand_SOFTMAX(tci_graph *g, tci_node *n)
{
    tci_node *x = tci_build_cast(g, n->in[0], tci_composite_math(n));
    return tci_composite_softmax(g, x, n->attr[0], false);
}

static tci_node *tci_expand_LOG_SOFTMAX(tci_graph *g, tci_node *n)
{
    tci_node *x = tci_build_cast(g, n->in[0], tci_composite_math(n));
    return tci_composite_softmax(g, x, n->attr[0], true);
}

static tci_node *tci_expand_MEAN(tci_graph *g, tci_node *n)
{
    tci_node *x = tci_build_cast(g, n->in[0], tci_composite_math(n));
    return tci_composite_mean(g, x, n->attr, n->n_attr, false);
}

/* Two passes: the mean, then the mean square of what is left. */
static tci_node *tci_expand_LAYER_NORM(tci_graph *g, tci_node *n)
{
    int n_axes = (int)n->attr[0];
    const int64_t *axes = n->attr + 1;
    bool has_weight = n->attr[1 + n_axes] != 0, has_bias = n->attr[2 + n_axes] != 0;
    tc_dtype math = tci_composite_math(n);
    tci_node *x = tci_build_cast(g, n->in[0], math), *eps = tci_build_cast(g, n->in[1], math);
    tci_node *centred = tci_composite_binary(g, TCI_OP_SUB, x,
                                             tci_composite_mean(g, x, axes, n_axes, true));
    tci_node *squares = tci_composite_unary(g, TCI_OP_SQUARE, centred);
    tci_node *variance = tci_composite_mean(g, squares, axes, n_axes, true);
    tci_node *scale = tci_composite_unary(g, TCI_OP_RSQRT,
                                          tci_composite_binary(g, TCI_OP_ADD, variance, eps));
    tci_node *r = tci_composite_binary(g, TCI_OP_MUL, centred, scale);
    tci_words w;
    tci_dim *shape = tci_words_dims(g, &w, n->rank);
    if (!shape) {
        return NULL;
    }
    for (int i = 0; i < n->rank; i++) {
        shape[i] = 1;
    }
    for (int i = 0; i < n_axes; i++) {
        shape[axes[i]] = n->shape[axes[i]];
    }
    for (int k = 0; k < 2; k++) {
        if (k ? has_bias : has_weight) {
            tci_node *p = tci_build_cast(g, n->in[2 + (k && has_weight)], math);
            r = tci_composite_binary(g, k ? TCI_OP_ADD : TCI_OP_MUL, r,
                                     tci_build_reshape(g, p, n->rank, shape));
        }
    }
    return tci_words_put(g, &w, r);
}

static tci_node *tci_expand_CROSS_ENTROPY(tci_graph *g, tci_node *n)
{
    tci_node *logits = tci_build_cast(g, n->in[0], tci_composite_math(n)), *target = n->in[1];
    int axis = n->in[0]->rank > 1 ? 1 : 0;
    tci_node *logs = tci_composite_softmax(g, logits, axis, true);
    tci_node *picked = tci_build_gather(g, logs, axis, tci_build_unsqueeze(g, target, axis));
    tc_axes all = {NULL, 0, true};
    tci_node *sum = tci_build_reduce(g, TCI_OP_SUM, picked, all, false);
    if (!sum) {
        return NULL;
    }
    tci_node *count = tci_build_size_value(g, tci_node_count(target), (tc_dtype)sum->dtype);
    return tci_composite_unary(g, TCI_OP_NEG, tci_composite_binary(g, TCI_OP_DIV, sum, count));
}

static tci_node *tci_expand_STOP_GRADIENT(tci_graph *g, tci_node *n)
{
    (void)g;
    return n->in[0];
}

static tci_node *tci_expand_SHARD(tci_graph *g, tci_node *n)
{
    (void)g;
    return n->in[0];
}

static tci_node *tci_expand_NAMED(tci_graph *g, tci_node *n)
{
    (void)g;
    return n->in[0];
}

static tci_node *tci_expand_WITH_DERIVATIVE(tci_graph *g, tci_node *n)
{
    (void)g;
    return n->in[1];
}

TCI_FN tci_node *tci_expand_composite(tci_graph *g, tci_node *n)
{
    tc_site site = g->site;
    tci_node *r = n;
    g->site = n->site;
    switch (n->op) {
#define TCI_ROW(id, ...)                                                                           \
    case TCI_OP_##id:                                                                              \
        r = tci_expand_##id(g, n);                                                                 \
        break;
        TCI_COMPOSITE_OPS(TCI_ROW)
#undef TCI_ROW
    }
    r = tci_build_cast(g, r, (tc_dtype)n->dtype);
    g->site = site;
    return r;
}
