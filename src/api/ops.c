/* api/ops.c - the public operations: operands and attributes of the user to nodes.
 *
 * In: handles, C numbers, attributes, the caller's place. Out: a handle to the node, or a poisoned
 * one.
 * The one idea: every call is a frame (api/frame.h) around one function of graph/build.h;
 * elementwise and reducing calls are expanded from the op rows. Only here do numbers exist beside
 * tensors: they are weak (NEP 50), so their dtype follows from the tensors'; below this room they
 * are 0-d nodes. */
#include "calls.h"

#include "frame.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <string.h>

enum { TCI_OPS_BOOL = 1, TCI_OPS_INT = 2, TCI_OPS_FLOAT = 3 }; /* tc_arg.kind */

enum { TCI_OPS_MOST = 5 }; /* operands of an elementwise or built op */
static const char *const tci_ops_nth[TCI_OPS_MOST] = {"operand 1", "operand 2", "operand 3",
                                                      "operand 4", "operand 5"};

/* ---- numbers ---- */

/* The dtype in which tensors of dtype t (TC_DTYPE_COUNT: there are none) meet a number of this
 * kind. */
static tc_dtype tci_ops_weak(tc_dtype t, int kind)
{
    static const tc_dtype alone[] = {TC_DTYPE_COUNT, TC_BOOL, TC_I64, TC_F32};
    if (t == TC_DTYPE_COUNT || kind == 0) {
        return kind ? alone[kind] : t;
    }
    if (kind == TCI_OPS_FLOAT && !tci_dtype_is_float(t)) {
        return TC_F32;
    }
    return kind == TCI_OPS_INT && t == TC_BOOL ? TC_I64 : t;
}

/* tc_arg.i of an unsigned number above INT64_MAX reads negative; its f does not. */
static bool tci_ops_is_huge(const tc_arg *a)
{
    return a->kind == TCI_OPS_INT && a->i < 0 && a->f > 0;
}

static bool tci_ops_is_less(const tc_arg *a, const tc_arg *b) /* of integers */
{
    bool huge = tci_ops_is_huge(b);
    return tci_ops_is_huge(a) == huge ? a->i < b->i : huge;
}

static tci_value tci_ops_value(const tc_arg *a, tc_dtype to)
{
    tci_value f = {.f = a->f}, i = {.i = a->i};
    if (a->kind == TCI_OPS_FLOAT) {
        return tci_value_cast(f, TC_F64, to);
    }
    return tci_value_cast(i, tci_ops_is_huge(a) ? TC_U64 : TC_I64, to);
}

/* A symbolic size that stands as an operand: its value in a run. */
static bool tci_ops_is_symbol(const tc_arg *a)
{
    return a->kind == TCI_OPS_INT && !tci_dim_is_known(a->i) && tci_dim_is_valid(a->i);
}

/* Neither a fault of tc_dim_add and the like nor what C arithmetic made of a symbolic size. */
static bool tci_ops_check_number(tci_frame *f, const tc_arg *a)
{
    bool real = a->kind == TCI_OPS_FLOAT, symbol = tci_ops_is_symbol(a);
    bool stray = real ? tci_dim_is_stray_real(a->f)
                      : a->kind == TCI_OPS_INT && !symbol && tci_dim_is_stray(a->i);
    if (stray) {
        int fault = real ? TCI_DIM_FAULT_STRAY : tci_dim_fault(a->i);
        tci_frame_fail(f, tci_dim_fault_status(fault), "an operand is %s",
                       tci_dim_fault_text(fault));
    }
    return !stray;
}

/* Whether the number is exact in an integer dtype. */
static bool tci_ops_fits(const tc_arg *a, tc_dtype t)
{
    tc_dtype wide = tci_ops_is_huge(a) ? TC_U64 : TC_I64;
    bool same_sign = t == TC_U64 ? wide == TC_U64 || a->i >= 0 : wide == TC_I64;
    return same_sign && tci_value_cast(tci_ops_value(a, t), t, wide).i == a->i;
}

static void tci_ops_refuse_number(tci_frame *f, const tc_arg *a, tc_dtype to, const char *what)
{
    const tci_dtype_info *info = tci_dtype_get(to);
    int shift = 64 - 8 * info->bytes;
    bool is_signed = tci_dtype_is_signed(to);
    int64_t least = is_signed ? INT64_MIN / ((int64_t)1 << shift) : 0;
    uint64_t most = (is_signed ? (uint64_t)INT64_MAX : UINT64_MAX) >> shift;
    char given[32];
    snprintf(given, sizeof(given), tci_ops_is_huge(a) ? "%" PRIu64 : "%" PRId64, a->i);
    tci_frame_fail(f, TC_ERR_DTYPE,
                   "%s: given %s, expected a number that %s holds, %" PRId64 " to %" PRIu64
                   " (a tensor of a wider dtype, or tc_cast, takes others)",
                   what, given, info->name, least, most);
}

/* NULL: the frame or the graph tells why. */
static tci_node *tci_ops_number(tci_frame *f, const tc_arg *a, tc_dtype to, const char *what)
{
    if (!tci_ops_check_number(f, a)) {
        return NULL;
    }
    if (tci_ops_is_symbol(a)) {
        return tci_build_size_value(&f->ctx->graph, a->i, to);
    }
    if (a->kind == TCI_OPS_INT && tci_dtype_is_int(to) && !tci_ops_fits(a, to)) {
        tci_ops_refuse_number(f, a, to, what);
        return NULL;
    }
    return tci_graph_literal(&f->ctx->graph, to, tci_ops_value(a, to));
}

/* A tc_arg may come from another language, so its kind may be any number. */
static bool tci_ops_check_kind(tci_frame *f, const tc_arg *a, const char *what)
{
    if ((unsigned)a->kind > TCI_OPS_FLOAT) {
        tci_frame_fail(f, TC_ERR_ARGUMENT,
                       "%s: given a tc_arg of kind %d, expected 0 (tensor), 1 (bool), 2 (integer) "
                       "or 3 (floating)",
                       what, a->kind);
    }
    return !f->failed;
}

/* The node of an operand that may be a number, which then takes dtype `to`. */
static tci_node *tci_ops_either(tci_frame *f, const tc_arg *a, tc_dtype to, const char *what)
{
    if (f->failed || !tci_ops_check_kind(f, a, what)) {
        return NULL;
    }
    return a->kind ? tci_ops_number(f, a, to, what) : tci_frame_node(f, a->tensor, what);
}

/* An integer, as a number in dtype t or as a tensor. */
static tci_node *tci_ops_whole(tci_frame *f, const tc_arg *a, tc_dtype t, const char *what)
{
    if (!f->failed && a->kind == TCI_OPS_FLOAT) {
        tci_frame_fail(f, TC_ERR_DTYPE, "%s is %g: expected an integer", what, a->f);
    }
    return tci_ops_either(f, a, t, what);
}

/* ---- elementwise ---- */

/* Comparing with a number that the dtype cannot hold is exact all the same: both sides go to a
 * wider one. */
static tc_dtype tci_ops_compare_dtype(tc_dtype t, const tc_arg *args, int n)
{
    for (int i = 0; i < n; i++) {
        if (args[i].kind == TCI_OPS_INT && tci_dtype_is_int(t) && !tci_ops_fits(&args[i], t)) {
            return t == TC_U64 || tci_ops_is_huge(&args[i]) ? TC_F64 : TC_I64;
        }
    }
    return t;
}

/* Nodes of the operands: tensors as they are, numbers in their weak dtype. op < 0: no op's rule.
 * names: of the operands, for messages. */
static bool tci_ops_operands(tci_frame *f, int op, const tc_arg *args, int n,
                             const char *const *names, tci_node **nodes)
{
    tci_node *tensors[3];
    int n_tensors = 0, kind = 0;
    for (int i = 0; i < n; i++) {
        if (args[i].kind) {
            kind = TCI_MAX(kind, args[i].kind);
        } else {
            nodes[i] = tci_frame_node(f, args[i].tensor, names[i]);
            tensors[n_tensors++] = nodes[i];
        }
    }
    if (f->failed || !kind) {
        return !f->failed;
    }
    tc_dtype common = n_tensors ? tci_build_common_dtype(tensors, n_tensors) : TC_DTYPE_COUNT;
    tc_dtype dtype = tci_ops_weak(common, kind), result;
    if (op >= 0) {
        tci_build_ew_dtypes(op, dtype, &dtype, &result);
        tc_dtype wider = result == TC_BOOL ? tci_ops_compare_dtype(dtype, args, n) : dtype;
        for (int i = 0; wider != dtype && i < n; i++) {
            nodes[i] = args[i].kind ? NULL : tci_build_cast(&f->ctx->graph, nodes[i], wider);
        }
        dtype = wider;
    }
    for (int i = 0; i < n; i++) {
        if (args[i].kind) {
            nodes[i] = tci_ops_number(f, &args[i], dtype, names[i]);
        }
        if (!nodes[i]) {
            return false;
        }
    }
    return true;
}

/* Finds the context among the operands; numbers alone have none. */
static tci_frame tci_ops_begin(const char *name, const tc_arg *args, int n, tc_site here)
{
    tci_frame f = tci_frame_begin(name, here);
    const tc_arg *first = NULL;
    for (int i = n - 1; i >= 0; i--) {
        first = args[i].kind ? first : &args[i];
    }
    for (int i = 0; i < n; i++) {
        if (!args[i].kind) {
            tci_frame_use(&f, args[i].tensor);
        }
    }
    if (!first) {
        f.failed = true;
        f.bad.id = TCI_NULL_NUMBERS;
    } else if (!f.ctx) {
        tci_frame_node(&f, first->tensor, "the operand"); /* says why it has no context */
    }
    for (int i = 0; i < n; i++) {
        tci_ops_check_kind(&f, &args[i], tci_ops_nth[i]);
    }
    return f;
}

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

typedef struct tci_ops_built_row {
    const char *name;
    bool is_float;
    struct {
        const char *name;
        double otherwise; /* the number that TC_NONE stands for; NaN: none */
    } operands[TCI_OPS_MOST];
} tci_ops_built_row;

#define TCI_OPS_IS_FLOAT_SAME false
#define TCI_OPS_IS_FLOAT_FLOAT true
#define TCI_OPS_IS_FLOAT_LOSS true
#define TCI_MUST(name, kind) {#name, (double)NAN},
#define TCI_MAY(name, kind, number) {#name, (number)},
static const tci_ops_built_row tci_ops_built_rows[] = {
#define TCI_ROW(id, name, arity, kind, operands, formula, doc)                                     \
    {"tc_" #name, TCI_OPS_IS_FLOAT_##kind, {operands}},
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
    tc_dtype common = tci_ops_weak(tci_build_common_dtype(tensors, n_tensors), kind);
    return row->is_float && !tci_dtype_is_float(common) ? TC_F32 : common;
}

/* Numbers are made in the dtype that the formula is computed in: they are not rounded before. */
static tc_tensor tci_ops_built(tci_built built, const tc_arg *given, int n, tc_reduction how,
                               tc_site here)
{
    const tci_ops_built_row *row = &tci_ops_built_rows[built];
    tc_arg args[TCI_OPS_MOST];
    tci_node *nodes[TCI_OPS_MOST];
    for (int i = 0; i < n; i++) {
        double number = row->operands[i].otherwise;
        bool left_out = !given[i].kind && tci_is_none(given[i].tensor) && number == number;
        args[i] = !left_out                          ? given[i]
                  : number == (double)(int)number ? tci_arg_int((int)number)
                                                     : tci_arg_float(number);
    }
    tci_frame f = tci_ops_begin(row->name, args, n, here);
    tc_dtype result = f.failed ? TC_F32 : tci_ops_built_dtype(&f, row, args, n, nodes);
    tc_dtype math = (tc_dtype)tci_dtype_get(result)->compute;
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
    tci_node *r = tci_build_reduction(g, tci_build_formula(g, built, nodes, math), (int)how);
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
#define TCI_OPS_HOW_SAME TC_REDUCE_NONE
#define TCI_OPS_HOW_FLOAT TC_REDUCE_NONE
#define TCI_OPS_HOW_LOSS reduction
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

/* ---- calls of one tensor ---- */

/* Begins a frame and finds the node of its one tensor; NULL when it failed. */
static tci_node *tci_ops_one(tci_frame *f, const char *name, tc_tensor x, tc_site here)
{
    *f = tci_frame_begin(name, here);
    tci_frame_use(f, x);
    return tci_frame_node(f, x, tci_ops_nth[0]);
}

/* The same for calls with a list of axes. */
static tci_node *tci_ops_over(tci_frame *f, const char *name, tc_tensor x, tc_axes axes,
                              tc_site here)
{
    tci_node *n = tci_ops_one(f, name, x, here);
    return n && (axes.all || tci_frame_list(f, axes.items, axes.n, "the axes")) ? n : NULL;
}

/* The same for calls with a list of sizes or of axes in order. */
static tci_node *tci_ops_shaped(tci_frame *f, const char *name, tc_tensor x, int n,
                                const int64_t *list, const char *what, tc_site here)
{
    tci_node *x_node = tci_ops_one(f, name, x, here);
    return x_node && tci_frame_list(f, list, n, what) ? x_node : NULL;
}

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

TC_API tc_tensor tc_cast_at(tc_tensor x, tc_dtype dtype, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_cast", x, here);
    return tci_frame_end(&f, n ? tci_build_cast(&f.ctx->graph, n, dtype) : NULL);
}

TC_API tc_tensor tc_bitcast_at(tc_tensor x, tc_dtype dtype, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_bitcast", x, here);
    return tci_frame_end(&f, n ? tci_build_bitcast(&f.ctx->graph, n, dtype) : NULL);
}

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
    return tc_sqrt_at(TC_ARG(var), here);
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

/* What tc_topk gives, or with k NULL tc_sort: the indices, or the values there. */
static tc_tensor tci_ops_ordered(const char *name, tc_tensor x, int axis, const int64_t *k,
                                 bool largest, bool values, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, name, x, here), *r = NULL;
    int at;
    if (n && tci_build_axis(&f.ctx->graph, axis, n->rank, &at)) {
        tci_dim all = n->rank ? n->shape[at] : 1;
        r = tci_build_topk(&f.ctx->graph, n, at, k ? *k : all, largest);
        r = r && values ? tci_build_gather(&f.ctx->graph, n, at, r) : r;
    }
    return tci_frame_end(&f, r);
}

static void tci_ops_order(const char *name, tc_tensor x, int axis, const int64_t *k, bool largest,
                          tc_tensor *values, tc_tensor *indices, tc_site here)
{
    if (values) {
        *values = tci_ops_ordered(name, x, axis, k, largest, true, here);
    }
    if (indices) {
        *indices = tci_ops_ordered(name, x, axis, k, largest, false, here);
    }
}

TC_API void tc_topk_at(tc_tensor x, int axis, int64_t k, bool largest, tc_tensor *values,
                       tc_tensor *indices, tc_site here)
{
    tci_ops_order("tc_topk", x, axis, &k, largest, values, indices, here);
}

TC_API void tc_sort_at(tc_tensor x, int axis, bool descending, tc_tensor *values,
                       tc_tensor *indices, tc_site here)
{
    tci_ops_order("tc_sort", x, axis, NULL, descending, values, indices, here);
}

TC_API tc_tensor tc_argsort_at(tc_tensor x, int axis, bool descending, tc_site here)
{
    return tci_ops_ordered("tc_argsort", x, axis, NULL, descending, false, here);
}

TC_API tc_tensor tc_cumsum_at(tc_tensor x, int axis, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_cumsum", x, here);
    return tci_frame_end(&f, n ? tci_build_scan(&f.ctx->graph, n, axis, false, TCI_MODE_ADD)
                              : NULL);
}

TC_API tc_tensor tc_softmax_at(tc_tensor x, int axis, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_softmax", x, here);
    return tci_frame_end(&f, n ? tci_build_softmax(&f.ctx->graph, n, axis, false) : NULL);
}

TC_API tc_tensor tc_log_softmax_at(tc_tensor x, int axis, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_log_softmax", x, here);
    return tci_frame_end(&f, n ? tci_build_softmax(&f.ctx->graph, n, axis, true) : NULL);
}

TC_API tc_tensor tc_reshape_at(tc_tensor x, int rank, const int64_t *sizes, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_shaped(&f, "tc_reshape", x, rank, sizes, "the sizes", here);
    const tci_dim *shape = tci_dim_list(sizes);
    return tci_frame_end(&f, n ? tci_build_reshape(&f.ctx->graph, n, rank, shape) : NULL);
}

TC_API tc_tensor tc_permute_at(tc_tensor x, int n, const int64_t *order, tc_site here)
{
    tci_frame f;
    tci_words w;
    tci_node *node = tci_ops_shaped(&f, "tc_permute", x, n, order, "the order", here);
    int *axes = node ? tci_words_ints(&f.ctx->graph, &w, n) : NULL;
    if (!axes) {
        return tci_frame_end(&f, NULL);
    }
    for (int i = 0; i < n; i++) {
        /* No tensor has so many axes: the builder refuses it with the others that are out of range.
         */
        axes[i] = order[i] < INT_MIN || order[i] > INT_MAX ? INT_MAX : (int)order[i];
    }
    tci_node *r = tci_build_permute(&f.ctx->graph, node, n, axes);
    return tci_frame_end(&f, tci_words_put(&f.ctx->graph, &w, r));
}

TC_API tc_tensor tc_transpose_at(tc_tensor x, int axis_a, int axis_b, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_transpose", x, here);
    return tci_frame_end(&f, n ? tci_build_transpose(&f.ctx->graph, n, axis_a, axis_b) : NULL);
}

TC_API tc_tensor tc_expand_at(tc_tensor x, int rank, const int64_t *sizes, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_shaped(&f, "tc_expand", x, rank, sizes, "the sizes", here);
    const tci_dim *shape = tci_dim_list(sizes);
    return tci_frame_end(&f, n ? tci_build_expand(&f.ctx->graph, n, rank, shape) : NULL);
}

TC_API tc_tensor tc_squeeze_at(tc_tensor x, int axis, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_squeeze", x, here);
    return tci_frame_end(&f, n ? tci_build_squeeze(&f.ctx->graph, n, axis) : NULL);
}

TC_API tc_tensor tc_unsqueeze_at(tc_tensor x, int axis, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_unsqueeze", x, here);
    return tci_frame_end(&f, n ? tci_build_unsqueeze(&f.ctx->graph, n, axis) : NULL);
}

/* A number below 0 counts from the end; an expression has one meaning, at whatever value. */
static bool tci_ops_check_bound(tci_frame *f, const char *what, tci_dim v)
{
    if (tci_dim_is_known(v) || !tci_dim_is_valid(v) || tci_dim_le(0, v)) {
        return true; /* or the builder tells */
    }
    tci_frame_fail(f, TC_ERR_ARGUMENT,
                   "the %s, %s, may be negative, and only a number counts from the end (tc_dim_max "
                   "with 0 cuts it off)%s",
                   what, TCI_DIM_TEXT(v), TCI_LEAST_NOTE(v, 0));
    return false;
}

TC_API tc_tensor tc_slice_at(tc_tensor x, int axis, int64_t start, int64_t stop, int64_t step,
                             tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_slice", x, here);
    if (n && !(tci_ops_check_bound(&f, "start", start) && tci_ops_check_bound(&f, "stop", stop))) {
        n = NULL;
    }
    return tci_frame_end(&f, n ? tci_build_slice(&f.ctx->graph, n, axis, start, stop, step) : NULL);
}

TC_API tc_tensor tc_flip_at(tc_tensor x, int axis, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_flip", x, here);
    return tci_frame_end(&f, n ? tci_build_flip(&f.ctx->graph, n, axis) : NULL);
}

/* ---- calls of several operands ---- */

TC_API tc_tensor tc_pad_at(tc_tensor x, int axis, int64_t before, int64_t after, tc_arg value,
                           tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_pad", x, here);
    tci_node *fill = n ? tci_ops_either(&f, &value, (tc_dtype)n->dtype, "the pad value") : NULL;
    return tci_frame_end(&f,
                         fill ? tci_build_pad(&f.ctx->graph, n, axis, before, after, fill) : NULL);
}

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

/* Two tensors and a builder of two nodes. */
static tc_tensor tci_ops_pair(const char *name, tc_tensor a, tc_tensor b, tc_site here,
                              tci_node *(*build)(tci_graph *g, tci_node *a, tci_node *b))
{
    tci_frame f = tci_frame_begin(name, here);
    tci_frame_use(&f, a);
    tci_frame_use(&f, b);
    tci_node *na = tci_frame_node(&f, a, tci_ops_nth[0]);
    tci_node *nb = tci_frame_node(&f, b, tci_ops_nth[1]);
    return tci_frame_end(&f, f.failed ? NULL : build(&f.ctx->graph, na, nb));
}

TC_API tc_tensor tc_cross_entropy_at(tc_tensor logits, tc_tensor target, tc_site here)
{
    return tci_ops_pair("tc_cross_entropy", logits, target, here, tci_build_cross_entropy);
}

static tc_tensor tci_ops_single(const char *name, tc_tensor x, tc_site here,
                                tci_node *(*build)(tci_graph *, tci_node *))
{
    tci_frame f = tci_frame_begin(name, here);
    tci_frame_use(&f, x);
    tci_node *n = tci_frame_node(&f, x, tci_ops_nth[0]);
    return tci_frame_end(&f, f.failed ? NULL : build(&f.ctx->graph, n));
}

TC_API tc_tensor tc_stop_gradient_at(tc_tensor x, tc_site here)
{
    return tci_ops_single("tc_stop_gradient", x, here, tci_build_stop_gradient);
}

static tci_node *tci_ops_materialize(tci_graph *g, tci_node *x)
{
    return tci_build_barrier(g, x, NULL, 0);
}

TC_API tc_tensor tc_materialize_at(tc_tensor x, tc_site here)
{
    return tci_ops_single("tc_materialize", x, here, tci_ops_materialize);
}

TC_API tc_tensor tc_nofuse_at(tc_tensor x, tc_site here)
{
    return tci_ops_single("tc_nofuse", x, here, tci_build_nofuse);
}

TC_API tc_tensor tc_matmul_at(tc_tensor a, tc_tensor b, tc_site here)
{
    return tci_ops_pair("tc_matmul", a, b, here, tci_build_matmul);
}

static tci_node *tci_ops_build_bmm(tci_graph *g, tci_node *a, tci_node *b)
{
    if (a->rank != 3 || b->rank != 3 || a->shape[0] != b->shape[0]) {
        tci_graph_fail(g, TC_ERR_SHAPE, "shapes %s and %s: expected [n, i, k] and [n, k, j]",
                       TCI_SHAPE_TEXT(a), TCI_SHAPE_TEXT(b));
        return NULL;
    }
    return tci_build_matmul(g, a, b);
}

TC_API tc_tensor tc_bmm_at(tc_tensor a, tc_tensor b, tc_site here)
{
    return tci_ops_pair("tc_bmm", a, b, here, tci_ops_build_bmm);
}

/* x and an index along an axis. */
static tc_tensor
tci_ops_indexed(const char *name, tc_tensor x, int axis, tc_tensor index, tc_site here,
                tci_node *(*build)(tci_graph *g, tci_node *x, int axis, tci_node *index))
{
    tci_frame f = tci_frame_begin(name, here);
    tci_frame_use(&f, x);
    tci_frame_use(&f, index);
    tci_node *nx = tci_frame_node(&f, x, tci_ops_nth[0]);
    tci_node *ni = tci_frame_node(&f, index, "the index");
    return tci_frame_end(&f, f.failed ? NULL : build(&f.ctx->graph, nx, axis, ni));
}

TC_API tc_tensor tc_gather_at(tc_tensor x, int axis, tc_tensor index, tc_site here)
{
    return tci_ops_indexed("tc_gather", x, axis, index, here, tci_build_gather);
}

TC_API tc_tensor tc_index_select_at(tc_tensor x, int axis, tc_tensor index, tc_site here)
{
    return tci_ops_indexed("tc_index_select", x, axis, index, here, tci_build_index_select);
}

/* x, an index along an axis, and what to put there. */
static tc_tensor tci_ops_put(const char *name, tc_tensor x, int axis, tc_tensor index,
                             tc_tensor src, tci_mode mode, tc_site here,
                             tci_node *(*build)(tci_graph *g, tci_node *x, int axis,
                                                tci_node *index, tci_node *src, tci_mode mode))
{
    tci_frame f = tci_frame_begin(name, here);
    tci_frame_use(&f, x);
    tci_frame_use(&f, index);
    tci_frame_use(&f, src);
    tci_node *nx = tci_frame_node(&f, x, tci_ops_nth[0]);
    tci_node *ni = tci_frame_node(&f, index, "the index");
    tci_node *ns = tci_frame_node(&f, src, "src");
    return tci_frame_end(&f, f.failed ? NULL : build(&f.ctx->graph, nx, axis, ni, ns, mode));
}

#define TCI_OPS_PUT(name, mode, build)                                                             \
    TC_API tc_tensor tc_##name##_at(tc_tensor x, int axis, tc_tensor index, tc_tensor src,         \
                                    tc_site here)                                                  \
    {                                                                                              \
        return tci_ops_put("tc_" #name, x, axis, index, src, TCI_MODE_##mode, here, build);        \
    }
TCI_OPS_PUT(scatter, SET, tci_build_scatter)
TCI_OPS_PUT(scatter_add, ADD, tci_build_scatter)
TCI_OPS_PUT(scatter_min, MIN, tci_build_scatter)
TCI_OPS_PUT(scatter_max, MAX, tci_build_scatter)
TCI_OPS_PUT(scatter_prod, MUL, tci_build_scatter)
TCI_OPS_PUT(index_add, ADD, tci_build_index_put)
#undef TCI_OPS_PUT

/* ---- calls that are one builder ---- */

static tci_node *tci_ops_build_bucketize(tci_graph *g, tci_node *x, tci_node *boundaries,
                                         bool right)
{
    return tci_build_searchsorted(g, boundaries, x, right);
}

/* A builder of one tensor and what comes behind it. */
#define TCI_OPS_ONE(name, takes, build, ...)                                                       \
    TC_API tc_tensor tc_##name##_at takes                                                          \
    {                                                                                              \
        tci_frame f;                                                                               \
        tci_node *node = tci_ops_one(&f, "tc_" #name, x, here);                                    \
        return tci_frame_end(&f, node ? build(&f.ctx->graph, __VA_ARGS__) : NULL);                 \
    }
/* The same of two tensors. */
#define TCI_OPS_BOTH(name, a, b, takes, build, ...)                                                \
    TC_API tc_tensor tc_##name##_at takes                                                          \
    {                                                                                              \
        tci_frame f = tci_frame_begin("tc_" #name, here);                                          \
        tci_frame_use(&f, a);                                                                      \
        tci_frame_use(&f, b);                                                                      \
        tci_node *node = tci_frame_node(&f, a, tci_ops_nth[0]);                                    \
        tci_node *other = tci_frame_node(&f, b, tci_ops_nth[1]);                                   \
        return tci_frame_end(&f, f.failed ? NULL : build(&f.ctx->graph, __VA_ARGS__));             \
    }
/* One of the results of a call on `node`, if it is wanted. */
#define TCI_OPS_STORE(to, name, built)                                                             \
    if (to) {                                                                                      \
        tci_frame f;                                                                               \
        tci_node *node = tci_ops_one(&f, name, x, here);                                           \
        tci_graph *g = node ? &f.ctx->graph : NULL;                                                \
        *(to) = tci_frame_end(&f, node ? (built) : NULL);                                          \
    }

TCI_OPS_ONE(roll, (tc_tensor x, int64_t shift, int axis, tc_site here), tci_build_roll, node, shift,
            axis)
TCI_OPS_ONE(rot90, (tc_tensor x, int64_t k, int axis_a, int axis_b, tc_site here), tci_build_rot90,
            node, k, axis_a, axis_b)
TCI_OPS_ONE(unfold, (tc_tensor x, int axis, int64_t size, int64_t step, tc_site here),
            tci_build_unfold, node, axis, size, step)
TCI_OPS_ONE(pad_mode, (tc_tensor x, int axis, int64_t before, int64_t after, const char *mode,
                       tc_site here), tci_build_pad_mode, node, axis, before, after, mode)
TCI_OPS_ONE(pixel_shuffle, (tc_tensor x, int64_t upscale_factor, tc_site here),
            tci_build_pixel_shuffle, node, upscale_factor)
TCI_OPS_ONE(pixel_unshuffle, (tc_tensor x, int64_t downscale_factor, tc_site here),
            tci_build_pixel_unshuffle, node, downscale_factor)
TCI_OPS_ONE(diagonal, (tc_tensor x, int64_t offset, int axis_a, int axis_b, tc_site here),
            tci_build_diagonal, node, offset, axis_a, axis_b)
TCI_OPS_ONE(diag, (tc_tensor x, int64_t offset, tc_site here), tci_build_diag, node, offset)
TCI_OPS_ONE(diag_embed, (tc_tensor x, int64_t offset, int axis_a, int axis_b, tc_site here),
            tci_build_diag_embed, node, offset, axis_a, axis_b)
TCI_OPS_ONE(tril, (tc_tensor x, int64_t diagonal, tc_site here), tci_build_triangle, node, diagonal,
            true)
TCI_OPS_ONE(triu, (tc_tensor x, int64_t diagonal, tc_site here), tci_build_triangle, node, diagonal,
            false)
TCI_OPS_BOTH(slice_scatter, x, src, (tc_tensor x, tc_tensor src, int axis, int64_t start,
                                     int64_t stop, int64_t step, tc_site here),
             tci_build_slice_scatter, node, other, axis, start, stop, step)
TCI_OPS_BOTH(select_scatter, x, src, (tc_tensor x, tc_tensor src, int axis, int64_t index,
                                      tc_site here),
             tci_build_select_scatter, node, other, axis, index)
TCI_OPS_BOTH(diagonal_scatter, x, src, (tc_tensor x, tc_tensor src, int64_t offset, int axis_a,
                                        int axis_b, tc_site here),
             tci_build_diagonal_scatter, node, other, offset, axis_a, axis_b)
TCI_OPS_BOTH(take_along_dim, x, index, (tc_tensor x, tc_tensor index, int axis, tc_site here),
             tci_build_take_along_dim, node, other, axis)
TCI_OPS_BOTH(searchsorted, sorted, values, (tc_tensor sorted, tc_tensor values, bool right,
                                            tc_site here),
             tci_build_searchsorted, node, other, right)
TCI_OPS_BOTH(bucketize, x, boundaries, (tc_tensor x, tc_tensor boundaries, bool right,
                                        tc_site here),
             tci_ops_build_bucketize, node, other, right)

TC_API tc_tensor tc_masked_scatter_at(tc_tensor x, tc_tensor mask, tc_tensor src, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_masked_scatter", here);
    tci_frame_use(&f, x);
    tci_frame_use(&f, mask);
    tci_frame_use(&f, src);
    tci_node *nx = tci_frame_node(&f, x, tci_ops_nth[0]);
    tci_node *nm = tci_frame_node(&f, mask, "the mask");
    tci_node *ns = tci_frame_node(&f, src, "src");
    return tci_frame_end(&f, f.failed ? NULL : tci_build_masked_scatter(&f.ctx->graph, nx, nm, ns));
}

/* Both masks broadcast with x, so its elements are counted as often as they are taken. */
static tci_node *tci_ops_build_masked_count(tci_graph *g, tci_node *x, tci_node *mask)
{
    tci_node *both = tci_build_where(g, mask, x, x);
    return both ? tci_build_true_count(g, tci_build_broadcast(g, mask, both->rank, both->shape))
                : NULL;
}

TC_API void tc_masked_select_at(tc_tensor x, tc_tensor mask, int64_t size, tc_tensor *values,
                                tc_tensor *count, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_masked_select", here);
    tci_frame_use(&f, x);
    tci_frame_use(&f, mask);
    tci_node *nx = tci_frame_node(&f, x, tci_ops_nth[0]);
    tci_node *nm = tci_frame_node(&f, mask, "the mask");
    tc_tensor found = tci_frame_end(
        &f, f.failed ? NULL : tci_build_masked_select(&f.ctx->graph, nx, nm, size));
    if (values) {
        *values = found;
    }
    if (count) {
        *count = tc_status_of(found)
                     ? found
                     : tci_ops_pair("tc_masked_select", x, mask, here, tci_ops_build_masked_count);
    }
}

TC_API void tc_nonzero_at(tc_tensor x, int64_t size, tc_tensor *indices, tc_tensor *count,
                          tc_site here)
{
    TCI_OPS_STORE(indices, "tc_nonzero", tci_build_nonzero(g, node, size))
    TCI_OPS_STORE(count, "tc_nonzero",
                  tci_build_nonzero(g, node, size) ? tci_build_true_count(g, node) : NULL)
}

TC_API tc_tensor tc_index_fill_at(tc_tensor x, int axis, tc_tensor index, tc_arg value,
                                  tc_site here)
{
    tci_frame f = tci_frame_begin("tc_index_fill", here);
    tci_frame_use(&f, x);
    tci_frame_use(&f, index);
    tci_node *nx = tci_frame_node(&f, x, tci_ops_nth[0]);
    tci_node *ni = tci_frame_node(&f, index, "the index");
    tci_node *nv = nx ? tci_ops_either(&f, &value, (tc_dtype)nx->dtype, "the value") : NULL;
    return tci_frame_end(&f,
                         nv ? tci_build_index_fill(&f.ctx->graph, nx, axis, ni, nv) : NULL);
}

TC_API tc_tensor tc_repeat_interleave_at(tc_tensor x, tc_arg repeats, int axis, int64_t size,
                                         tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_repeat_interleave", x, here), *r = NULL;
    if (n && tci_ops_check_kind(&f, &repeats, "the repeats") && repeats.kind == TCI_OPS_INT) {
        r = tci_build_repeat_each(&f.ctx->graph, n, axis, repeats.i);
    } else if (!f.failed) {
        tci_node *each = tci_ops_whole(&f, &repeats, TC_I64, "the repeats");
        r = each ? tci_build_repeat_interleave(&f.ctx->graph, n, each, axis, size) : NULL;
    }
    return tci_frame_end(&f, r);
}

/* ---- running values, orders, sets ---- */

TCI_OPS_ONE(cumprod, (tc_tensor x, int axis, tc_site here), tci_build_scan, node, axis, false,
            TCI_MODE_MUL)
TCI_OPS_ONE(logcumsumexp, (tc_tensor x, int axis, tc_site here), tci_build_logcumsumexp, node, axis)

#define TCI_OPS_RUNNING(name, mode)                                                                \
    TC_API void tc_##name##_at(tc_tensor x, int axis, tc_tensor *values, tc_tensor *indices,       \
                               tc_site here)                                                       \
    {                                                                                              \
        TCI_OPS_STORE(values, "tc_" #name, tci_build_scan(g, node, axis, false, mode))             \
        TCI_OPS_STORE(indices, "tc_" #name,                                                        \
                      tci_build_running_place(g, tci_build_scan(g, node, axis, false, mode)))      \
    }
TCI_OPS_RUNNING(cummax, TCI_MODE_MAX)
TCI_OPS_RUNNING(cummin, TCI_MODE_MIN)
#undef TCI_OPS_RUNNING

TC_API void tc_aminmax_at(tc_tensor x, tc_axes axes, bool keepdims, tc_tensor *least,
                          tc_tensor *most, tc_site here)
{
    if (least) {
        *least = tc_min_at(x, axes, keepdims, here);
    }
    if (most) {
        *most = tc_max_at(x, axes, keepdims, here);
    }
}

TC_API void tc_kthvalue_at(tc_tensor x, int64_t k, int axis, bool keepdims, tc_tensor *values,
                           tc_tensor *indices, tc_site here)
{
    TCI_OPS_STORE(values, "tc_kthvalue", tci_build_kthvalue(g, node, axis, k, keepdims, true))
    TCI_OPS_STORE(indices, "tc_kthvalue", tci_build_kthvalue(g, node, axis, k, keepdims, false))
}

TC_API void tc_median_at(tc_tensor x, int axis, bool keepdims, tc_tensor *values,
                         tc_tensor *indices, tc_site here)
{
    TCI_OPS_STORE(values, "tc_median", tci_build_median(g, node, axis, keepdims, true))
    TCI_OPS_STORE(indices, "tc_median", tci_build_median(g, node, axis, keepdims, false))
}

TC_API void tc_nanmedian_at(tc_tensor x, int axis, bool keepdims, tc_tensor *values,
                            tc_tensor *indices, tc_site here)
{
    TCI_OPS_STORE(values, "tc_nanmedian", tci_build_nanmedian(g, node, axis, keepdims, true))
    TCI_OPS_STORE(indices, "tc_nanmedian", tci_build_nanmedian(g, node, axis, keepdims, false))
}

TC_API void tc_mode_at(tc_tensor x, int axis, bool keepdims, tc_tensor *values,
                       tc_tensor *indices, tc_site here)
{
    TCI_OPS_STORE(values, "tc_mode", tci_build_mode(g, node, axis, keepdims, true))
    TCI_OPS_STORE(indices, "tc_mode", tci_build_mode(g, node, axis, keepdims, false))
}

TCI_OPS_ONE(histc, (tc_tensor x, int64_t bins, double low, double high, tc_site here),
            tci_build_histc, node, bins, low, high)

TC_API tc_tensor tc_bincount_at(tc_tensor x, tc_tensor weights, int64_t size, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_bincount", x, here);
    tci_node *w = n ? tci_frame_optional(&f, weights, "the weights") : NULL;
    return tci_frame_end(&f, f.failed ? NULL : tci_build_bincount(&f.ctx->graph, n, w, size));
}

TC_API tc_tensor tc_isin_at(tc_tensor x, tc_tensor list, tc_site here)
{
    return tci_ops_pair("tc_isin", x, list, here, tci_build_isin);
}

#define TCI_OPS_SETS(name, consecutive)                                                            \
    TC_API void tc_##name##_at(tc_tensor x, int axis, int64_t size, tc_tensor *values,             \
                               tc_tensor *inverse, tc_tensor *counts, tc_tensor *count,            \
                               tc_site here)                                                       \
    {                                                                                              \
        tc_tensor *const results[4] = {values, inverse, counts, count};                            \
        for (int i = 0; i < 4; i++) {                                                              \
            TCI_OPS_STORE(results[i], "tc_" #name,                                                 \
                          tci_build_unique(g, node, axis, size, consecutive, i))                   \
        }                                                                                          \
    }
TCI_OPS_SETS(unique, false)
TCI_OPS_SETS(unique_consecutive, true)
#undef TCI_OPS_SETS

/* ---- matrices ---- */

TC_API tc_tensor tc_solve_at(tc_tensor a, tc_tensor b, tc_site here)
{
    return tci_ops_pair("tc_solve", a, b, here, tci_build_solve);
}

TCI_OPS_BOTH(solve_triangular, a, b, (tc_tensor a, tc_tensor b, bool upper, bool left,
                                      bool unitriangular, tc_site here),
             tci_build_solve_triangular, node, other, upper, left, unitriangular)
TCI_OPS_ONE(cholesky, (tc_tensor x, bool upper, tc_site here), tci_build_cholesky, node, upper)
TCI_OPS_ONE(inv, (tc_tensor x, tc_site here), tci_build_inv, node)
TCI_OPS_ONE(det, (tc_tensor x, tc_site here), tci_build_det, node, TCI_DET_VALUE)
TCI_OPS_ONE(matrix_power, (tc_tensor x, int64_t n, tc_site here), tci_build_matrix_power, node, n)

TC_API void tc_slogdet_at(tc_tensor x, tc_tensor *sign, tc_tensor *logabsdet, tc_site here)
{
    TCI_OPS_STORE(sign, "tc_slogdet", tci_build_det(g, node, TCI_DET_SIGN))
    TCI_OPS_STORE(logabsdet, "tc_slogdet", tci_build_det(g, node, TCI_DET_LOG))
}

/* ---- images ---- */

typedef tci_node *tci_ops_convolve(tci_graph *g, int n, tci_node *x, tci_node *w, tci_node *bias,
                                   const tc_conv *options);

static tc_tensor tci_ops_conv(const char *name, int n, tc_tensor x, tc_tensor weight,
                              tc_tensor bias, const tc_conv *options, tc_site here,
                              tci_ops_convolve *build)
{
    tci_frame f = tci_frame_begin(name, here);
    tci_frame_use(&f, x);
    tci_frame_use(&f, weight);
    tci_node *nx = tci_frame_node(&f, x, tci_ops_nth[0]);
    tci_node *nw = tci_frame_node(&f, weight, "the weight");
    tci_node *nb = tci_frame_optional(&f, bias, "the bias");
    return tci_frame_end(&f, f.failed ? NULL : build(&f.ctx->graph, n, nx, nw, nb, options));
}

#define TCI_OPS_IMAGES(n)                                                                          \
    TC_API tc_tensor tc_conv##n##d_at(tc_tensor x, tc_tensor weight, tc_tensor bias,               \
                                      const tc_conv *options, tc_site here)                        \
    {                                                                                              \
        return tci_ops_conv("tc_conv" #n "d", n, x, weight, bias, options, here, tci_build_conv);  \
    }                                                                                              \
    TC_API tc_tensor tc_conv_transpose##n##d_at(tc_tensor x, tc_tensor weight, tc_tensor bias,     \
                                                const tc_conv *options, tc_site here)              \
    {                                                                                              \
        return tci_ops_conv("tc_conv_transpose" #n "d", n, x, weight, bias, options, here,         \
                            tci_build_conv_transpose);                                             \
    }                                                                                              \
    TCI_OPS_ONE(max_pool##n##d, (tc_tensor x, const tc_pool *options, tc_site here),               \
                tci_build_max_pool, n, node, options)                                              \
    TC_API void tc_max_pool##n##d_with_indices_at(tc_tensor x, const tc_pool *options,             \
                                                  tc_tensor *values, tc_tensor *indices,           \
                                                  tc_site here)                                    \
    {                                                                                              \
        TCI_OPS_STORE(values, "tc_max_pool" #n "d_with_indices",                                   \
                      tci_build_max_pool(g, n, node, options))                                     \
        TCI_OPS_STORE(indices, "tc_max_pool" #n "d_with_indices",                                  \
                      tci_build_max_pool_indices(g, n, node, options))                             \
    }                                                                                              \
    TCI_OPS_ONE(avg_pool##n##d, (tc_tensor x, const tc_pool *options, tc_site here),               \
                tci_build_avg_pool, n, node, options)                                              \
    TCI_OPS_ONE(lp_pool##n##d, (tc_tensor x, double p, const tc_pool *options, tc_site here),      \
                tci_build_lp_pool, n, node, p, options)                                            \
    TCI_OPS_ONE(adaptive_avg_pool##n##d,                                                           \
                (tc_tensor x, int n_sizes, const int64_t *sizes, tc_site here),                    \
                tci_build_adaptive_avg_pool, n, node, n_sizes, tci_dim_list(sizes))                \
    TCI_OPS_ONE(adaptive_max_pool##n##d,                                                           \
                (tc_tensor x, int n_sizes, const int64_t *sizes, tc_site here),                    \
                tci_build_adaptive_max_pool, n, node, n_sizes, tci_dim_list(sizes))                \
    TC_API void tc_adaptive_max_pool##n##d_with_indices_at(tc_tensor x, tc_tensor *values,         \
                                                           tc_tensor *indices, int n_sizes,        \
                                                           const int64_t *sizes, tc_site here)     \
    {                                                                                              \
        TCI_OPS_STORE(values, "tc_adaptive_max_pool" #n "d_with_indices",                          \
                      tci_build_adaptive_max_pool(g, n, node, n_sizes, tci_dim_list(sizes)))       \
        TCI_OPS_STORE(indices, "tc_adaptive_max_pool" #n "d_with_indices",                         \
                      tci_build_adaptive_max_pool_indices(g, n, node, n_sizes,                     \
                                                          tci_dim_list(sizes)))                    \
    }
TCI_OPS_IMAGES(1)
TCI_OPS_IMAGES(2)
TCI_OPS_IMAGES(3)
#undef TCI_OPS_IMAGES

TCI_OPS_ONE(im2col, (tc_tensor x, const tc_pool *options, tc_site here), tci_build_im2col, node,
            options)
TCI_OPS_ONE(col2im, (tc_tensor x, int n, const int64_t *sizes, const tc_pool *options,
                     tc_site here), tci_build_col2im, node, n, tci_dim_list(sizes),
            options)
TCI_OPS_ONE(interpolate, (tc_tensor x, const tc_interpolation *options, tc_site here),
            tci_build_interpolate, node, options)

TCI_OPS_BOTH(grid_sample, x, grid, (tc_tensor x, tc_tensor grid, const char *mode,
                                    const char *padding_mode, bool align_corners, tc_site here),
             tci_build_grid_sample, node, other, mode, padding_mode, align_corners)

/* ---- lists ---- */

/* The nodes of a list, in w (freed by tci_words_put); NULL when the frame failed. */
static tci_node **tci_ops_list(tci_frame *f, tc_tensors xs, tci_words *w)
{
    w->items = NULL;
    if (xs.n < 1 || !xs.items) {
        f->failed = true; /* without a tensor there is no context to keep a text in */
        f->bad.id = TCI_NULL_EMPTY;
        return NULL;
    }
    for (int i = 0; i < xs.n; i++) {
        tci_frame_use(f, xs.items[i]);
    }
    for (int i = 0; i < xs.n; i++) {
        char what[32];
        snprintf(what, sizeof(what), "operand %d", i + 1);
        if (!tci_frame_node(f, xs.items[i], what)) {
            return NULL;
        }
    }
    tci_node **nodes = tci_words_nodes(&f->ctx->graph, w, xs.n);
    for (int i = 0; nodes && i < xs.n; i++) {
        nodes[i] = tci_handle_node(xs.items[i]);
    }
    return nodes;
}

TC_API tc_tensor tc_cat_at(tc_tensors xs, int axis, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_cat", here);
    tci_words w;
    tci_node **nodes = tci_ops_list(&f, xs, &w);
    if (!nodes) {
        return tci_frame_end(&f, NULL);
    }
    tci_node *r = tci_build_cat(&f.ctx->graph, nodes, xs.n, axis);
    return tci_frame_end(&f, tci_words_put(&f.ctx->graph, &w, r));
}

TC_API tc_tensor tc_einsum_at(const char *spec, tc_tensors xs, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_einsum", here);
    tci_words w;
    tci_node **nodes = tci_ops_list(&f, xs, &w);
    if (!nodes) {
        return tci_frame_end(&f, NULL);
    }
    tci_node *r = tci_build_einsum(&f.ctx->graph, spec, nodes, xs.n);
    return tci_frame_end(&f, tci_words_put(&f.ctx->graph, &w, r));
}

/* Of indices that may be left out (TC_NONE); NULL when the frame failed. */
static tci_node **tci_ops_indices(tci_frame *f, tc_tensors indices, tci_words *w)
{
    w->items = NULL;
    if (f->failed || !tci_frame_list(f, indices.items, indices.n, "the indices")) {
        return NULL;
    }
    tci_node **nodes = tci_words_nodes(&f->ctx->graph, w, indices.n);
    for (int i = 0; nodes && i < indices.n; i++) {
        nodes[i] = tci_frame_optional(f, indices.items[i], "an index");
    }
    return f->failed ? NULL : nodes;
}

TC_API tc_tensor tc_index_at(tc_tensor x, tc_tensors indices, tc_site here)
{
    tci_frame f;
    tci_words w;
    tci_node *n = tci_ops_one(&f, "tc_index", x, here), *r = NULL;
    tci_node **nodes = n ? tci_ops_indices(&f, indices, &w) : NULL;
    if (nodes) {
        r = tci_words_put(&f.ctx->graph, &w,
                          tci_build_index(&f.ctx->graph, n, nodes, indices.n));
    }
    return tci_frame_end(&f, r);
}

TC_API tc_tensor tc_index_put_at(tc_tensor x, tc_tensors indices, tc_tensor src, bool accumulate,
                                 tc_site here)
{
    tci_words w;
    tci_frame f = tci_frame_begin("tc_index_put", here);
    tci_frame_use(&f, x);
    tci_frame_use(&f, src);
    tci_node *n = tci_frame_node(&f, x, tci_ops_nth[0]), *r = NULL;
    tci_node *values = tci_frame_node(&f, src, "src");
    tci_node **nodes = tci_ops_indices(&f, indices, &w);
    if (nodes) {
        r = tci_words_put(&f.ctx->graph, &w,
                          tci_build_index_put_many(&f.ctx->graph, n, nodes, indices.n, values,
                                                   accumulate));
    }
    return tci_frame_end(&f, r);
}

/* ---- made from nothing ---- */

static tc_tensor tci_ops_triangle(const char *name, tc_ctx *ctx, int64_t rows, int64_t columns,
                                  int64_t offset, bool lower, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, name, here);
    return tci_frame_end(&f, f.failed ? NULL
                                      : tci_build_triangle_indices(&f.ctx->graph, rows, columns,
                                                                   offset, lower));
}

TC_API tc_tensor tc_tril_indices_at(tc_ctx *ctx, int64_t rows, int64_t columns, int64_t offset,
                                    tc_site here)
{
    return tci_ops_triangle("tc_tril_indices", ctx, rows, columns, offset, true, here);
}

TC_API tc_tensor tc_triu_indices_at(tc_ctx *ctx, int64_t rows, int64_t columns, int64_t offset,
                                    tc_site here)
{
    return tci_ops_triangle("tc_triu_indices", ctx, rows, columns, offset, false, here);
}

/* base 0: evenly spaced numbers themselves. */
static tc_tensor tci_ops_spaced(const char *name, tc_ctx *ctx, const tc_arg *ends, int64_t steps,
                                double base, tc_dtype dtype, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, name, here);
    if (!f.failed && (!tci_dtype_is_valid(dtype) || dtype == TC_BOOL)) {
        tci_frame_fail(&f, TC_ERR_DTYPE, "expected an integer or float dtype");
    }
    tci_node *nodes[2];
    for (int i = 0; i < 2; i++) {
        nodes[i] = tci_ops_either(&f, &ends[i], TC_F64, i ? "the last" : "the first");
    }
    return tci_frame_end(&f, f.failed ? NULL
                                      : tci_build_linspace(&f.ctx->graph, nodes[0], nodes[1],
                                                           steps, base, dtype));
}

TC_API tc_tensor tc_linspace_at(tc_ctx *ctx, tc_arg start, tc_arg stop, int64_t steps,
                                tc_dtype dtype, tc_site here)
{
    const tc_arg ends[2] = {start, stop};
    return tci_ops_spaced("tc_linspace", ctx, ends, steps, 0, dtype, here);
}

TC_API tc_tensor tc_logspace_at(tc_ctx *ctx, tc_arg start, tc_arg stop, int64_t steps, double base,
                                tc_dtype dtype, tc_site here)
{
    const tc_arg ends[2] = {start, stop};
    return tci_ops_spaced("tc_logspace", ctx, ends, steps, base, dtype, here);
}

TC_API tc_tensor tc_full_at(tc_ctx *ctx, tc_arg value, int n, const int64_t *dtype_and_sizes,
                            tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_full", here);
    if (!tci_frame_dtype(&f, "the value", dtype_and_sizes, n)) {
        return tci_frame_end(&f, NULL);
    }
    tc_dtype dtype = (tc_dtype)dtype_and_sizes[0];
    tci_node *fill = tci_ops_either(&f, &value, dtype, "the value");
    if (fill && fill->rank) {
        tci_frame_fail(&f, TC_ERR_SHAPE, "the value has rank %d: expected a number or a 0-d tensor",
                       fill->rank);
    }
    tci_graph *g = &f.ctx->graph;
    const tci_dim *sizes = tci_dim_list(dtype_and_sizes + 1);
    bool ok = fill && !f.failed && tci_build_check_shape(g, n - 1, sizes, dtype);
    tci_node *r = ok ? tci_build_cast(g, fill, dtype) : NULL;
    return tci_frame_end(&f, r ? tci_build_broadcast(g, r, n - 1, sizes) : NULL);
}

/* ---- random numbers ---- */

/* A draw of a dtype and sizes. */
typedef tci_node *tci_ops_draw(tci_graph *g, tci_node *key, tc_dtype dtype, int rank,
                               const tci_dim *shape);

static tc_tensor tci_ops_random(const char *name, tc_ctx *ctx, const tc_arg *key, int n,
                                const int64_t *list, tc_site here, tci_ops_draw *build)
{
    tci_frame f = tci_frame_on(ctx, name, here);
    bool ok = tci_frame_dtype(&f, "the key", list, n);
    tci_node *k = ok ? tci_ops_whole(&f, key, TC_U64, "the key") : NULL;
    const tci_dim *sizes = tci_dim_list(list + 1);
    return tci_frame_end(&f, k ? build(&f.ctx->graph, k, (tc_dtype)list[0], n - 1, sizes) : NULL);
}

TC_API tc_tensor tc_random_bits_at(tc_ctx *ctx, tc_arg key, int n, const int64_t *dtype_and_sizes,
                                   tc_site here)
{
    return tci_ops_random("tc_random_bits", ctx, &key, n, dtype_and_sizes, here,
                          tci_build_random_bits);
}

TC_API tc_tensor tc_rand_at(tc_ctx *ctx, tc_arg key, int n, const int64_t *dtype_and_sizes,
                            tc_site here)
{
    return tci_ops_random("tc_rand", ctx, &key, n, dtype_and_sizes, here, tci_build_rand);
}

TC_API tc_tensor tc_randn_at(tc_ctx *ctx, tc_arg key, int n, const int64_t *dtype_and_sizes,
                             tc_site here)
{
    return tci_ops_random("tc_randn", ctx, &key, n, dtype_and_sizes, here, tci_build_randn);
}

/* That numbers lie between the ends, and that the dtype holds them. */
static bool tci_ops_check_ends(tci_frame *f, const tc_arg *low, const tc_arg *high, tc_dtype dtype)
{
    bool numbers = low->kind && high->kind && !tci_ops_is_symbol(low) && !tci_ops_is_symbol(high);
    if (f->failed || !tci_dtype_is_int(dtype) || !numbers) {
        return !f->failed;
    }
    tc_arg last = *high;
    last.i = (int64_t)((uint64_t)last.i - 1);
    if (!tci_ops_is_less(low, high)) {
        tci_frame_fail(f, TC_ERR_ARGUMENT,
                       "low is %.0f and high %.0f: expected a low less than high", low->f, high->f);
    } else if (!tci_ops_fits(low, dtype) || !tci_ops_fits(&last, dtype)) {
        tci_frame_fail(f, TC_ERR_ARGUMENT,
                       "low is %.0f and high %.0f: expected numbers that %s holds", low->f, high->f,
                       tci_dtype_get(dtype)->name);
    }
    return !f->failed;
}

TC_API tc_tensor tc_randint_at(tc_ctx *ctx, tc_arg key, tc_arg low, tc_arg high, int n,
                               const int64_t *dtype_and_sizes, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_randint", here);
    if (!tci_frame_dtype(&f, "high", dtype_and_sizes, n)) {
        return tci_frame_end(&f, NULL);
    }
    tc_dtype dtype = (tc_dtype)dtype_and_sizes[0], wide = dtype == TC_U64 ? TC_U64 : TC_I64;
    tci_node *k = tci_ops_whole(&f, &key, TC_U64, "the key");
    tci_node *ends[2] = {NULL, NULL};
    if (tci_ops_check_ends(&f, &low, &high, dtype)) {
        ends[0] = tci_ops_whole(&f, &low, wide, "low");
        ends[1] = tci_ops_whole(&f, &high, wide, "high");
    }
    tci_node *r = f.failed ? NULL
                           : tci_build_randint(&f.ctx->graph, k, ends[0], ends[1], dtype, n - 1,
                                               tci_dim_list(dtype_and_sizes + 1));
    return tci_frame_end(&f, r);
}

TC_API tc_tensor tc_fold_in_at(tc_arg key, tc_arg number, tc_site here)
{
    const tc_arg both[2] = {key, number};
    tci_frame f = tci_ops_begin("tc_fold_in", both, 2, here);
    tci_node *k = f.failed ? NULL : tci_ops_whole(&f, &key, TC_U64, "the key");
    tci_node *n = f.failed ? NULL : tci_ops_whole(&f, &number, TC_U64, "the number");
    return tci_frame_end(&f, f.failed ? NULL : tci_build_fold_in(&f.ctx->graph, k, n));
}

TC_API tc_tensor tc_bernoulli_at(tc_tensor p, tc_arg key, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_bernoulli", p, here);
    tci_node *k = n ? tci_ops_whole(&f, &key, TC_U64, "the key") : NULL;
    return tci_frame_end(&f, k ? tci_build_bernoulli(&f.ctx->graph, n, k) : NULL);
}

TC_API tc_tensor tc_dropout_at(tc_tensor x, tc_arg p, tc_arg key, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_dropout", x, here);
    tc_arg part = p.kind ? tci_arg_float(p.kind == TCI_OPS_FLOAT ? p.f : (double)p.i) : p;
    if (n && p.kind && !(part.f >= 0 && part.f <= 1)) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "p is %g: expected a number in [0, 1]", part.f);
    }
    bool wide = n && n->dtype == TC_F64;
    tci_node *q = n ? tci_ops_either(&f, &part, wide ? TC_F64 : TC_F32, "p") : NULL;
    tci_node *k = n ? tci_ops_whole(&f, &key, TC_U64, "the key") : NULL;
    return tci_frame_end(&f, f.failed ? NULL : tci_build_dropout(&f.ctx->graph, n, q, k));
}

/* How many of start, start + step, ... lie before stop; -1: too many, or not finite. */
static tci_dim tci_ops_arange_count(const tc_arg *start, const tc_arg *stop, const tc_arg *step)
{
    bool whole =
        start->kind == TCI_OPS_INT && stop->kind == TCI_OPS_INT && step->kind == TCI_OPS_INT;
    if (tci_ops_is_symbol(start) || tci_ops_is_symbol(stop)) {
        tci_dim way = tci_dim_sub(stop->i, start->i);
        way = step->i > 0 ? way : tci_dim_neg(way);
        tci_dim steps = tci_dim_div(tci_dim_sub(way, 1), step->i > 0 ? step->i : -step->i);
        return tci_dim_max(tci_dim_add(steps, 1), 0);
    }
    if (whole) {
        bool up = step->i > 0 || tci_ops_is_huge(step);
        const tc_arg *low = up ? start : stop, *high = up ? stop : start;
        if (!tci_ops_is_less(low, high)) {
            return 0;
        }
        uint64_t way = (uint64_t)high->i - (uint64_t)low->i;
        uint64_t stride = up ? (uint64_t)step->i : 0 - (uint64_t)step->i;
        uint64_t n = (way - 1) / stride + 1;
        bool wrapped = tci_ops_is_huge(high) && low->f < 0 && way <= (uint64_t)high->i;
        return wrapped || n > INT64_MAX ? -1 : (int64_t)n;
    }
    double n = ceil((stop->f - start->f) / step->f);
    if (!(n < 4.0e18) || !isfinite(start->f) || !isfinite(step->f)) {
        return -1;
    }
    return n > 0 ? (int64_t)n : 0;
}

/* A ramp between symbolic sizes has whole steps of a known size. */
static bool tci_ops_arange_can(const tc_arg *start, const tc_arg *stop, const tc_arg *step)
{
    const int64_t limit = INT64_MAX / 8;
    bool whole =
        start->kind == TCI_OPS_INT && stop->kind == TCI_OPS_INT && step->kind == TCI_OPS_INT;
    if (!tci_ops_is_symbol(start) && !tci_ops_is_symbol(stop) && !tci_ops_is_symbol(step)) {
        return true;
    }
    return whole && step->i <= limit && step->i >= -limit;
}

/* In integers a ramp is one of whole numbers: start and step without their fractions, as in torch.
 * How many there are, those say that were given. */
static void tci_ops_arange_whole(tc_arg *a)
{
    if (a->kind == TCI_OPS_FLOAT && isfinite(a->f) && fabs(a->f) < 9.0e18) {
        *a = tci_arg_int((long long)a->f);
    }
}

/* A bool counts as the integer it is. */
static tc_arg tci_ops_arange_number(tc_arg a)
{
    return a.kind == TCI_OPS_BOOL ? tci_arg_int(a.i) : a;
}

static bool tci_ops_arange_check(tci_frame *f, const tc_arg *args)
{
    static const char *const names[] = {"start", "stop", "step"};
    for (int i = 0; i < 3; i++) {
        if (tci_ops_check_kind(f, &args[i], names[i]) && !args[i].kind) {
            tci_frame_fail(f, TC_ERR_ARGUMENT, "%s: given a tensor, expected a number", names[i]);
        }
    }
    return !f->failed;
}

TC_API tc_tensor tc_arange_at(tc_ctx *ctx, tc_arg start, tc_arg stop, tc_arg step, tc_dtype dtype,
                              tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_arange", here);
    start = tci_ops_arange_number(start);
    stop = tci_ops_arange_number(stop);
    step = tci_ops_arange_number(step);
    const tc_arg args[3] = {start, stop, step};
    if (!tci_ops_arange_check(&f, args)) {
        return tci_frame_end(&f, NULL);
    }
    if (!tci_dtype_is_valid(dtype) || dtype == TC_BOOL) {
        tci_frame_fail(&f, TC_ERR_DTYPE, "expected an integer or float dtype");
    } else if (step.f == 0.0) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "the step is 0");
    } else if (!tci_ops_check_number(&f, &start) || !tci_ops_check_number(&f, &stop) ||
               !tci_ops_check_number(&f, &step)) {
        f.failed = true; /* and the reason is told */
    } else if (!tci_ops_arange_can(&start, &stop, &step)) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT,
                       "start or stop is a symbolic size: expected integers, and a step that is a "
                       "number");
    }
    tci_dim n = f.failed ? 0 : tci_ops_arange_count(&start, &stop, &step);
    if (n == -1) {
        tci_frame_fail(&f, TC_ERR_LIMIT, "from %g to %g by %g are too many elements", start.f,
                       stop.f, step.f);
    }
    if (f.failed) {
        return tci_frame_end(&f, NULL);
    }
    tci_graph *g = &f.ctx->graph;
    if (tci_dtype_is_int(dtype)) {
        tci_ops_arange_whole(&start);
        tci_ops_arange_whole(&step);
    }
    bool whole = start.kind == TCI_OPS_INT && step.kind == TCI_OPS_INT && tci_dtype_is_int(dtype);
    tc_dtype math = whole ? TC_I64 : TC_F64;
    if (whole) { /* sums wrap, so those of the same bits as signed numbers are the same */
        start = tci_arg_int(start.i);
        step = tci_arg_int(step.i);
    }
    tci_node *steps[2] = {tci_build_cast(g, tci_build_iota(g, n), math),
                          tci_ops_number(&f, &step, math, "step")};
    tci_node *sum[2] = {tci_build_ew(g, TCI_OP_MUL, steps),
                        tci_ops_number(&f, &start, math, "start")};
    return tci_frame_end(&f, tci_build_cast(g, tci_build_ew(g, TCI_OP_ADD, sum), dtype));
}
