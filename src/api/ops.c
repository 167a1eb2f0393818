/* api/ops.c - public ops generated from rows of ops/table.h: elementwise ops and reductions. Others
 * are in files of their families, such as api/lstsq_pinv_expm.c and api/losses.c.
 *
 * In: handles, C numbers, attributes, the user's call site. Out: a handle to the node, or a
 * poisoned one. Every call is a frame (api/api_call.h) around one function of graph/build.h,
 * whose operands are resolved by api/operand.h; calls that differ only in their names are table
 * rows. */
#include "op_signatures.h"

#include "operand.h"

#include <math.h>

/* ---- elementwise ---- */

static tc_tensor tci_ops_ew(int op, const char *name, const tc_arg *args, int n, tc_site here)
{
    tci_frame f = tci_ops_begin(name, args, n, here);
    tci_node *nodes[3];
    bool ok = tci_ops_operands(&f, op, args, n, tci_ops_nth, nodes);
    return tci_frame_end(&f, ok ? tci_build_ew(&f.ctx->graph, op, nodes) : NULL);
}

#define TCI_OPS_EW_1(op, name)                                                                     \
    TC_API tc_tensor tc_##name##_at(tc_arg a, tc_site here)                                        \
    {                                                                                              \
        return tci_ops_ew(op, "tc_" #name, &a, 1, here);                                           \
    }
#define TCI_OPS_EW_2(op, name)                                                                     \
    TC_API tc_tensor tc_##name##_at(tc_arg a, tc_arg b, tc_site here)                              \
    {                                                                                              \
        const tc_arg args[2] = {a, b};                                                             \
        return tci_ops_ew(op, "tc_" #name, args, 2, here);                                         \
    }
#define TCI_OPS_EW_3(op, name)                                                                     \
    TC_API tc_tensor tc_##name##_at(tc_arg a, tc_arg b, tc_arg c, tc_site here)                    \
    {                                                                                              \
        const tc_arg args[3] = {a, b, c};                                                          \
        return tci_ops_ew(op, "tc_" #name, args, 3, here);                                         \
    }
#define TCI_ROW(id, name, arity, rule, cost, value, gradient, doc)                                 \
    TCI_OPS_EW_##arity(TCI_OP_##id, name)
TCI_EW_OPS(TCI_ROW)
#undef TCI_ROW
#undef TCI_OPS_EW_1
#undef TCI_OPS_EW_2
#undef TCI_OPS_EW_3

/* ---- calls that follow from built rows ---- */

typedef enum tci_ops_rule {
    TCI_OPS_RULE_SAME,
    TCI_OPS_RULE_FLOAT,
    TCI_OPS_RULE_LOSS,
    TCI_OPS_RULE_LOSS_WIDE
} tci_ops_rule;
typedef struct tci_ops_built_row {
    char name[36]; /* no pointers, which a program would relocate when it starts */
    tci_ops_rule rule;
    struct {
        char name[16];
        double otherwise; /* the number that TC_NONE stands for; NaN: none */
    } operands[TCI_OPS_MOST];
} tci_ops_built_row;

#define TCI_MUST(name, kind) {#name, (double)NAN},
#define TCI_MAY(name, kind, number) {#name, (number)},
static const tci_ops_built_row tci_ops_built_rows[] = {
#define TCI_ROW(id, name, arity, kind, operands, formula, doc)                                     \
    {"tc_" #name, TCI_OPS_RULE_##kind, {operands}},
    TCI_BUILT_OPS(TCI_ROW)
#undef TCI_ROW
};
#undef TCI_MUST
#undef TCI_MAY

/* The dtype of the result: that in which tensors, and numbers by their kind, meet. */
static tc_dtype tci_ops_built_dtype(tci_frame *f, const tci_ops_built_row *row, const tc_arg *args,
                                    int n, tci_node **nodes)
{
    tci_node *tensors[TCI_OPS_MOST];
    int n_tensors = 0, kind = 0;
    for (int i = 0; i < n; i++) {
        if (args[i].kind) {
            kind = TCI_MAX(kind, args[i].kind);
        } else {
            nodes[i] = tci_frame_node(f, args[i].tensor, row->operands[i].name);
            tensors[n_tensors++] = nodes[i];
        }
    }
    if (f->failed) {
        return TC_F32;
    }
    const tci_graph *g = &f->ctx->graph;
    tc_dtype common = tci_ops_weak(g->promotion, tci_build_common_dtype(g, tensors, n_tensors),
                                   kind);
    return row->rule == TCI_OPS_RULE_SAME    ? common
           : row->rule == TCI_OPS_RULE_FLOAT ? tci_dtype_function(g->promotion, common)
                                             : tci_dtype_real(g->promotion, common);
}

/* Fails the frame if tensors that the call must be given, such as input and target, have different
 * shapes and axes: broadcasting [N] with [N, 1] would average the N x N pairs. */
static void tci_ops_same_shape(tci_frame *f, const tci_ops_built_row *row, const tc_arg *args,
                               int n, tci_node *const *nodes)
{
    int first = -1;
    for (int i = 0; i < n && !f->failed && isnan(row->operands[i].otherwise); i++) {
        if (args[i].kind || !nodes[i]->rank) {
            continue;
        }
        first = first < 0 ? i : first;
        const tci_node *a = nodes[first], *b = nodes[i];
        if (!tci_build_same_shape(a->rank, a->shape, b->rank, b->shape)) {
            tci_frame_fail(f, TC_ERR_SHAPE,
                           "%s has shape %s, %s %s: expected one shape (tc_reshape drops and adds "
                           "axes of size 1, tc_expand repeats elements)",
                           row->operands[first].name, TCI_SHAPE_TEXT(a), row->operands[i].name,
                           TCI_SHAPE_TEXT(b));
        }
    }
}

/* Numbers are made in the dtype that the formula is computed in: they are not rounded before. */
static tc_tensor tci_ops_built(tci_built built, const tc_arg *given, int n, tc_reduction how,
                               tc_site here)
{
    static const uint8_t named[TCI_COUNT(tci_ops_built_rows)] = {/* tci_call_name + 1; 0: none */
#define TCI_ROW(id) [TCI_BUILT_##id] = TCI_NAMED_##id + 1,
                                                                 TCI_NAMED_BUILT(TCI_ROW)
#undef TCI_ROW
    };
    const tci_ops_built_row *row = &tci_ops_built_rows[built];
    tc_arg args[TCI_OPS_MOST];
    tci_node *nodes[TCI_OPS_MOST];
    for (int i = 0; i < n; i++) {
        double number = row->operands[i].otherwise;
        bool left_out = !given[i].kind && tci_is_none(given[i].tensor) && number == number;
        args[i] = !left_out                       ? given[i]
                  : number == (double)(int)number ? tci_arg_int((int)number)
                                                  : tci_arg_float(number);
    }
    tci_frame f = tci_ops_begin(row->name, args, n, here);
    tc_dtype result = f.failed ? TC_F32 : tci_ops_built_dtype(&f, row, args, n, nodes);
    tc_dtype math = (tc_dtype)tci_dtype_get(result)->compute;
    if (!f.failed && row->rule == TCI_OPS_RULE_LOSS) {
        tci_ops_same_shape(&f, row, args, n, nodes);
    }
    for (int i = 0; i < n && !f.failed; i++) {
        nodes[i] = args[i].kind ? tci_ops_number(&f, &args[i], math, row->operands[i].name)
                                : tci_build_cast(&f.ctx->graph, nodes[i], math);
        if (!nodes[i]) {
            return tci_frame_end(&f, NULL);
        }
    }
    if (f.failed) {
        return tci_frame_end(&f, NULL);
    }
    tci_graph *g = &f.ctx->graph;
    tci_node *r = tci_build_formula(g, built, nodes, math);
    r = named[built] ? tci_build_named(g, (tci_call_name)(named[built] - 1), r, n, nodes, 0, NULL)
                     : r;
    r = tci_build_reduction(g, r, (int)how);
    return tci_frame_end(&f, tci_build_cast(g, r, result));
}

#define TCI_OPS_TAKES_1 tc_arg a
#define TCI_OPS_TAKES_2 TCI_OPS_TAKES_1, tc_arg b
#define TCI_OPS_TAKES_3 TCI_OPS_TAKES_2, tc_arg c
#define TCI_OPS_TAKES_4 TCI_OPS_TAKES_3, tc_arg d
#define TCI_OPS_TAKES_5 TCI_OPS_TAKES_4, tc_arg e
#define TCI_OPS_LIST_1 a
#define TCI_OPS_LIST_2 TCI_OPS_LIST_1, b
#define TCI_OPS_LIST_3 TCI_OPS_LIST_2, c
#define TCI_OPS_LIST_4 TCI_OPS_LIST_3, d
#define TCI_OPS_LIST_5 TCI_OPS_LIST_4, e
#define TCI_OPS_REDUCTION_SAME
#define TCI_OPS_REDUCTION_FLOAT
#define TCI_OPS_REDUCTION_LOSS , tc_reduction reduction
#define TCI_OPS_REDUCTION_LOSS_WIDE TCI_OPS_REDUCTION_LOSS
#define TCI_OPS_HOW_SAME TC_REDUCE_NONE
#define TCI_OPS_HOW_FLOAT TC_REDUCE_NONE
#define TCI_OPS_HOW_LOSS reduction
#define TCI_OPS_HOW_LOSS_WIDE TCI_OPS_HOW_LOSS
#define TCI_ROW(id, name, arity, row_kind, operands, formula, doc)                                 \
    TC_API tc_tensor tc_##name##_at(TCI_OPS_TAKES_##arity TCI_OPS_REDUCTION_##row_kind,          \
                                    tc_site here)                                                  \
    {                                                                                              \
        const tc_arg args[] = {TCI_OPS_LIST_##arity};                                              \
        return tci_ops_built(TCI_BUILT_##id, args, arity, TCI_OPS_HOW_##row_kind, here);           \
    }
TCI_BUILT_OPS(TCI_ROW)
#undef TCI_ROW

TC_API tc_tensor tc_where_at(tc_arg c, tc_arg a, tc_arg b, tc_site here)
{
    const tc_arg all[3] = {c, a, b};
    tci_frame f = tci_ops_begin("tc_where", all, 3, here);
    tci_node *nodes[3] = {NULL, NULL, NULL};
    bool ok = !f.failed;
    if (ok) {
        nodes[0] = tci_ops_either(&f, &c, TC_BOOL, tci_ops_nth[0]);
        ok = nodes[0] && tci_ops_operands(&f, -1, all + 1, 2, tci_ops_nth + 1, nodes + 1);
    }
    return tci_frame_end(&f,
                         ok ? tci_build_where(&f.ctx->graph, nodes[0], nodes[1], nodes[2]) : NULL);
}

/* ---- over axes ---- */

#define TCI_OPS_REDUCE_AXES(op, name)                                                        \
    TC_API tc_tensor tc_##name##_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here)  \
    {                                                                                        \
        tci_frame f;                                                                         \
        tci_node *n = tci_ops_over(&f, "tc_" #name, x, axes, here);                          \
        return tci_frame_end(                                                                \
            &f, n ? tci_build_reduce(&f.ctx->graph, op, n, axes, keepdims) : NULL);          \
    }
#define TCI_OPS_REDUCE_SAME TCI_OPS_REDUCE_AXES
#define TCI_OPS_REDUCE_SUM TCI_OPS_REDUCE_AXES
#define TCI_OPS_REDUCE_BOOL TCI_OPS_REDUCE_AXES
#define TCI_OPS_REDUCE_FLOAT TCI_OPS_REDUCE_AXES
#define TCI_OPS_REDUCE_INDEX(op, name)                                                       \
    TC_API tc_tensor tc_##name##_at(tc_tensor x, int axis, bool keepdims, tc_site here)      \
    {                                                                                        \
        tci_frame f;                                                                         \
        tci_node *n = tci_ops_one(&f, "tc_" #name, x, here);                                 \
        tc_axes axes = {&axis, 1, false};                                                    \
        return tci_frame_end(                                                                \
            &f, n ? tci_build_reduce(&f.ctx->graph, op, n, axes, keepdims) : NULL);          \
    }
#define TCI_ROW(id, name, rule, combine, part, gradient, doc)                                      \
    TCI_OPS_REDUCE_##rule(TCI_OP_##id, name)
TCI_REDUCE_OPS(TCI_ROW)
#undef TCI_ROW
#undef TCI_OPS_REDUCE_AXES
#undef TCI_OPS_REDUCE_SAME
#undef TCI_OPS_REDUCE_SUM
#undef TCI_OPS_REDUCE_BOOL
#undef TCI_OPS_REDUCE_FLOAT
#undef TCI_OPS_REDUCE_INDEX

TC_API tc_tensor tc_mean_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_over(&f, "tc_mean", x, axes, here);
    return tci_frame_end(&f, n ? tci_build_mean(&f.ctx->graph, n, axes, keepdims) : NULL);
}

static tc_tensor tci_ops_var(const char *name, tc_tensor x, tc_axes axes, double correction,
                             bool keepdims, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_over(&f, name, x, axes, here);
    if (n && !isfinite(correction)) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "given correction %g: expected a finite number",
                       correction);
        n = NULL;
    }
    n = n ? tci_build_var(&f.ctx->graph, n, axes, correction, keepdims) : NULL;
    return tci_frame_end(&f, n);
}

TC_API tc_tensor tc_var_at(tc_tensor x, tc_axes axes, double correction, bool keepdims,
                           tc_site here)
{
    return tci_ops_var("tc_var", x, axes, correction, keepdims, here);
}

TC_API tc_tensor tc_std_at(tc_tensor x, tc_axes axes, double correction, bool keepdims,
                           tc_site here)
{
    tc_tensor var = tci_ops_var("tc_std", x, axes, correction, keepdims, here);
    tc_arg one = tci_arg_float(1), zero = tci_arg_float(0);
    tc_arg none = TC_ARG(tc_eq_at(TC_ARG(var), zero, here)); /* there the gradient is 0 */
    tc_arg some = TC_ARG(tc_where_at(none, one, TC_ARG(var), here));
    return tc_where_at(none, zero, TC_ARG(tc_sqrt_at(some, here)), here);
}

TC_API void tc_var_mean_at(tc_tensor x, tc_axes axes, double correction, bool keepdims,
                           tc_tensor *var, tc_tensor *mean, tc_site here)
{
    tc_tensor v = tci_ops_var("tc_var_mean", x, axes, correction, keepdims, here);
    tci_frame f;
    if (var) {
        *var = v;
    }
    if (mean) {
        tci_node *n = tci_ops_over(&f, "tc_var_mean", x, axes, here);
        *mean = tci_frame_end(&f, n ? tci_build_mean(&f.ctx->graph, n, axes, keepdims) : NULL);
    }
}

TCI_OPS_ONE(softmax, (tc_tensor x, int axis, tc_site here), tci_build_softmax, node, axis, false)
TCI_OPS_ONE(log_softmax, (tc_tensor x, int axis, tc_site here), tci_build_softmax, node, axis, true)

TC_API tc_tensor tc_layer_norm_at(tc_tensor x, tc_axes axes, tc_tensor weight, tc_tensor bias,
                                  tc_arg eps, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_over(&f, "tc_layer_norm", x, axes, here);
    tci_node *w = tci_frame_optional(&f, weight, "the weight");
    tci_node *b = tci_frame_optional(&f, bias, "the bias");
    tci_node *e = tci_ops_either(&f, &eps, TC_F64, "eps");
    return tci_frame_end(&f,
                         f.failed ? NULL : tci_build_layer_norm(&f.ctx->graph, n, axes, w, b, e));
}

/* ---- others ---- */

TCI_OPS_ONE(cast, (tc_tensor x, tc_dtype dtype, tc_site here), tci_build_cast, node, dtype)
TCI_OPS_ONE(bitcast, (tc_tensor x, tc_dtype dtype, tc_site here), tci_build_bitcast, node, dtype)
TCI_OPS_ONE(stop_gradient, (tc_tensor x, tc_site here), tci_build_stop_gradient, node)
TCI_OPS_ONE(materialize, (tc_tensor x, tc_site here), tci_build_barrier, node, NULL, 0, false)
TCI_OPS_ONE(nofuse, (tc_tensor x, tc_site here), tci_build_nofuse, node)
TCI_OPS_BOTH(cross_entropy, logits, target, (tc_tensor logits, tc_tensor target, tc_site here),
             tci_build_cross_entropy, node, other)
