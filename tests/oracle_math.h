/* tests/oracle_math.h - adapters of elementwise, reduction and loss ops: from the names and
 * arguments of the oracle cases to tc calls. One function a family; the table in oracle_ops.h names
 * them.
 *
 * An adapter takes what it needs by name from its case and hands its results to orc_out; what tc
 * cannot say becomes orc_skip. Ops that tc has no call for are here where they are their definition
 * in tc calls. */
#ifndef TC_TEST_ORACLE_MATH_H
#define TC_TEST_ORACLE_MATH_H

#include "oracle_case.h"

static tc_arg orc_of(tc_tensor t)
{
    return tci_arg_tensor(t);
}

/* Operand `name` times the number `factor`, where that is given. */
static tc_arg orc_scaled(orc_case *c, const char *name, const char *factor)
{
    tc_arg v = orc_arg(c, name);
    return orc_has(c, factor) ? orc_of(tc_mul_at(v, orc_arg(c, factor), TC_HERE)) : v;
}

/* ---- elementwise ---- */

static void orc_add(orc_case *c)
{
    orc_out(c, tc_add_at(orc_arg(c, "input"), orc_scaled(c, "other", "alpha"), TC_HERE));
}

static void orc_sub(orc_case *c)
{
    orc_out(c, tc_sub_at(orc_arg(c, "input"), orc_scaled(c, "other", "alpha"), TC_HERE));
}

static void orc_rsub(orc_case *c)
{
    orc_out(c, tc_sub_at(orc_arg(c, "other"), orc_scaled(c, "input", "alpha"), TC_HERE));
}

static void orc_float_power(orc_case *c)
{
    const json *base = orc_value(c, "input");
    tc_arg a = orc_arg(c, "input"), b = orc_arg(c, "other");
    if (orc_is_tensor(base)) {
        a = orc_of(tc_cast(a.tensor, TC_F64));
    } else {
        b = orc_of(tc_cast(b.tensor, TC_F64));
    }
    orc_out(c, tc_pow_at(a, b, TC_HERE));
}

/* Truncated, the quotient of integers is one of exact doubles: no rounding of it reaches the next
 * integer while they stay below 2^53. */
static void orc_div(orc_case *c)
{
    const char *mode = orc_text(c, "rounding_mode", "");
    tc_arg a = orc_lifted(c, orc_arg(c, "input")), b = orc_arg(c, "other");
    tc_tensor quotient = tc_div_at(a, b, TC_HERE), sum = tc_add_at(a, b, TC_HERE);
    bool integers = !orc_is_float(tc_dtype_of(sum)), truncated = !strcmp(mode, "trunc");
    if (mode[0] && !truncated && strcmp(mode, "floor")) {
        orc_skip_argument(c, "rounding_mode", orc_value(c, "rounding_mode"));
    }
    if (mode[0] && !truncated) {
        orc_out(c, tc_floor_divide_at(a, b, TC_HERE));
        return;
    }
    if (truncated && integers) {
        tc_tensor one = tc_full(c->ctx, 1, TC_F64, 1);
        quotient = tc_div_at(orc_of(tc_mul_at(a, orc_of(one), TC_HERE)), b, TC_HERE);
        quotient = tc_reshape_at(quotient, orc_sizes(sum, c->sizes), c->sizes, TC_HERE);
    }
    quotient = truncated ? tc_trunc(quotient) : quotient;
    orc_out(c, truncated && integers ? tc_cast(quotient, tc_dtype_of(sum)) : quotient);
}

static void orc_square(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input");
    if (tc_dtype_of(x) == TC_BOOL) {
        orc_skip(c, "argument input of bool: stays bool in tc, i64 in torch");
    }
    orc_out(c, tc_square(x));
}

static void orc_positive(orc_case *c)
{
    orc_out(c, orc_tensor(c, "input"));
}

static void orc_round(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input");
    double scale = pow(10, orc_number(c, "decimals", 0));
    orc_out(c, scale == 1  ? tc_round(x)
               : scale > 1 ? tc_div(tc_round(tc_mul(x, scale)), scale)
                           : tc_mul(tc_round(tc_div(x, 1 / scale)), 1 / scale));
}

static void orc_isposinf(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input");
    orc_out(c, orc_is_float(tc_dtype_of(x)) ? tc_eq(x, (double)INFINITY) : tc_ne(x, x));
}

static void orc_isneginf(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input");
    orc_out(c, orc_is_float(tc_dtype_of(x)) ? tc_eq(x, -(double)INFINITY) : tc_ne(x, x));
}

static void orc_gelu(orc_case *c)
{
    const char *how = orc_text(c, "approximate", "none");
    tc_tensor x = orc_tensor(c, "input");
    if (!strcmp(how, "tanh")) {
        orc_out(c, tc_gelu_tanh(x));
        return;
    }
    if (strcmp(how, "none")) {
        orc_skip_argument(c, "approximate", orc_value(c, "approximate"));
    }
    orc_out(c, tc_gelu(x));
}

static void orc_hardtanh(orc_case *c)
{
    tc_arg low = orc_scalar(c, "min_val", -1), high = orc_scalar(c, "max_val", 1);
    tc_tensor x = orc_tensor(c, "input");
    if (low.f > high.f) {
        orc_skip(c, "argument min_val above max_val: tc has no such call to refuse it");
    }
    if (!orc_is_float(tc_dtype_of(x)) && (low.kind == 3 || high.kind == 3)) {
        orc_skip(c, "argument min_val of floats next to integers");
    }
    orc_out(c, tc_hardtanh_at(orc_of(x), low, high, TC_HERE));
}

static void orc_softsign(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input");
    orc_out(c, tc_div(x, tc_add(tc_abs(x), 1)));
}

static void orc_softshrink(orc_case *c)
{
    if (orc_number(c, "lambd", 0.5) < 0) {
        orc_skip(c, "argument lambd below 0: tc has no such check");
    }
    orc_call(c, "softshrink");
}

/* What is no word is none of the enumerators. */
static tc_reduction orc_reduction(orc_case *c)
{
    const char *how = orc_text(c, "reduction", "mean");
    return !strcmp(how, "mean")   ? TC_REDUCE_MEAN
           : !strcmp(how, "sum")  ? TC_REDUCE_SUM
           : !strcmp(how, "none") ? TC_REDUCE_NONE
                                  : (tc_reduction)(TC_REDUCE_NONE + 1);
}

/* One variance a row in torch: in tc it broadcasts as any operand. */
static void orc_gaussian(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input"), var = orc_tensor(c, "var");
    if (tc_rank(var) + 1 == tc_rank(x)) {
        var = tc_unsqueeze(var, -1);
    }
    orc_out(c, tc_gaussian_nll_loss(x, orc_tensor(c, "target"), var, orc_bool(c, "full"),
                                    orc_number(c, "eps", 1e-6), orc_reduction(c)));
}

static void orc_prelu(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input"), weight = orc_tensor(c, "weight");
    if (tc_rank(weight) == 1 && tc_rank(x) < 2 && tc_size(weight, 0) != 1) {
        orc_skip(c, "argument weight of several channels for an input without channels");
    }
    if (tc_rank(x) == 0 && tc_rank(weight) == 1) {
        weight = tc_squeeze(weight, 0);
    }
    for (int i = 2; tc_rank(weight) >= 1 && i < tc_rank(x); i++) {
        weight = tc_unsqueeze(weight, -1);
    }
    orc_out(c, tc_where(tc_gt(x, 0), x, tc_mul(x, weight)));
}

static void orc_masked_fill(orc_case *c)
{
    tc_arg value = orc_arg(c, "value");
    if (value.kind == 0 && tc_rank(value.tensor) > 0) {
        orc_skip(c, "argument value of one axis: tc broadcasts it");
    }
    orc_out(c, tc_masked_fill_at(orc_tensor(c, "input"), orc_tensor(c, "mask"), value, TC_HERE));
}

/* The dtypes of casts are spelled by the op. A value that the target cannot hold is torch's
 * undefined behaviour, and tc's saturates: such cases carry the flag "special" or are found by the
 * driver. */
static void orc_cast(orc_case *c)
{
    static const struct {
        const char *op;
        tc_dtype dtype;
    } targets[] = {{"float", TC_F32}, {"double", TC_F64}, {"half", TC_F16},  {"bfloat16", TC_BF16},
                   {"int", TC_I32},   {"long", TC_I64},   {"short", TC_I16}, {"byte", TC_U8},
                   {"char", TC_I8},   {"bool", TC_BOOL}};
    const char *op = json_string(c->spec, "op");
    for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
        if (!strcmp(op, targets[i].op)) {
            orc_out(c, tc_cast(orc_tensor(c, "input"), targets[i].dtype));
        }
    }
}

/* ---- reductions ---- */

static void orc_aminmax(orc_case *c)
{
    orc_call(c, "min");
    orc_call(c, "max");
}

static void orc_any_all(orc_case *c) /* torch answers u8 for u8 */
{
    orc_call(c, json_string(c->spec, "op"));
    if (tc_dtype_of(orc_tensor(c, "x")) == TC_U8) {
        c->outputs[0] = tc_cast(c->outputs[0], TC_U8);
    }
}

static void orc_argmin_argmax(orc_case *c)
{
    bool min = !strcmp(json_string(c->spec, "op"), "argmin");
    tc_tensor x = orc_tensor(c, "input");
    int axis = orc_axis_arg(c, "dim", 0);
    if (!orc_has(c, "dim")) {
        x = tc_reshape(x, -1);
    }
    bool keep = orc_bool(c, "keepdim") && orc_has(c, "dim");
    orc_out_index(c, min ? tc_argmin(x, axis, keep) : tc_argmax(x, axis, keep));
}

/* max and min: of two tensors, over everything, or over an axis with the positions. */
static void orc_min_max(orc_case *c)
{
    bool min = !strcmp(json_string(c->spec, "op"), "min");
    tc_tensor x = orc_tensor(c, "x");
    const json *second = orc_value(c, "axes") ? orc_value(c, "axes") : orc_value(c, "other");
    if (orc_is_tensor(second)) {
        orc_out(c, min ? tc_minimum(x, orc_tensor_of(c, second))
                       : tc_maximum(x, orc_tensor_of(c, second)));
        return;
    }
    orc_call(c, min ? "min" : "max");
    if (second) {
        int axis = orc_axis_arg(c, "axes", 0);
        bool keep = orc_bool(c, "keepdims");
        orc_out_index(c, min ? tc_argmin(x, axis, keep) : tc_argmax(x, axis, keep));
    }
}

/* var, std, var_mean and std_mean; unbiased (also as the second positional argument) is a
 * correction of 1. */
static void orc_var(orc_case *c)
{
    int memory[ORC_MAX_RANK];
    const char *op = json_string(c->spec, "op");
    const json *dim = orc_value(c, "dim");
    double correction = orc_number(c, "correction", 1);
    tc_axes axes = TC_ALL;
    if (dim && dim->kind == JSON_BOOL) {
        correction = dim->integer;
    } else {
        axes = orc_axes(c, "dim", memory);
    }
    if (orc_has(c, "unbiased")) {
        correction = orc_bool(c, "unbiased");
    }
    bool keep = orc_bool(c, "keepdim");
    tc_tensor x = orc_tensor(c, "input"), v, mean;
    tc_var_mean(x, axes, correction, keep, &v, &mean);
    orc_out(c, op[0] == 's' ? tc_std(x, axes, correction, keep) : v);
    if (strstr(op, "_mean")) {
        orc_out(c, mean);
    }
}

/* sort, argsort, msort */
static void orc_sort(orc_case *c)
{
    const char *op = json_string(c->spec, "op");
    tc_tensor v, i;
    tc_sort(orc_tensor(c, "input"), orc_axis_arg(c, "dim", op[0] == 'm' ? 0 : -1),
            orc_bool(c, "descending"), &v, &i);
    if (op[0] != 'a') {
        orc_out(c, v);
    }
    if (op[0] == 'm') {
        return;
    }
    if (orc_bool(c, "stable")) {
        orc_out(c, i);
    } else {
        orc_out_index(c, i);
    }
}

static void orc_topk(orc_case *c)
{
    tc_tensor v, i;
    tc_topk(orc_tensor(c, "input"), orc_axis_arg(c, "dim", -1), orc_int(c, "k", 1),
            !orc_has(c, "largest") || orc_bool(c, "largest"), &v, &i);
    orc_out(c, v);
    orc_out_index(c, i);
}

/* The last of the k smallest. */
static void orc_kthvalue(orc_case *c)
{
    int axis = orc_axis_arg(c, "dim", -1);
    int64_t k = orc_int(c, "k", 1);
    tc_tensor both[2];
    tc_topk(orc_tensor(c, "input"), axis, k, false, &both[0], &both[1]);
    for (int i = 0; i < 2; i++) {
        tc_tensor last = both[i];
        if (tc_rank(last)) {
            last = tc_slice(last, axis, k - 1, k, 1);
            last = orc_bool(c, "keepdim") ? last : tc_squeeze(last, axis);
        }
        i ? orc_out_index(c, last) : orc_out(c, last);
    }
}

static void orc_nansum(orc_case *c)
{
    int memory[ORC_MAX_RANK];
    tc_tensor x = orc_in_dtype(c, orc_tensor(c, "input"), "dtype");
    orc_out(c, tc_sum(tc_where(tc_isnan(x), 0, x), orc_axes(c, "dim", memory),
                      orc_bool(c, "keepdim")));
}

static void orc_nanmean(orc_case *c)
{
    int memory[ORC_MAX_RANK];
    tc_axes axes = orc_axes(c, "dim", memory);
    bool keep = orc_bool(c, "keepdim");
    tc_tensor x = orc_in_dtype(c, orc_tensor(c, "input"), "dtype"), bad = tc_isnan(x);
    tc_tensor sum = tc_sum(tc_where(bad, 0, x), axes, keep);
    orc_out(c, tc_div(sum, tc_sum(tc_logical_not(bad), axes, keep)));
}

static void orc_count_nonzero(orc_case *c)
{
    int memory[ORC_MAX_RANK];
    orc_out(c, tc_sum(tc_ne(orc_tensor(c, "input"), 0), orc_axes(c, "dim", memory), false));
}

/* norm and linalg.vector_norm */
static void orc_norm(orc_case *c)
{
    int memory[ORC_MAX_RANK];
    const json *order = orc_value(c, "ord");
    bool named = order && order->kind == JSON_STRING;
    tc_tensor x = orc_in_dtype(c, orc_tensor(c, "input"), "dtype");
    if (named && !strcmp(order->string, "nuc")) { /* of a matrix: its singular values' sum */
        tc_tensor u, s, vh;
        tc_svd(x, &u, &s, &vh);
        orc_out(c, tc_sum(s, TC_AXES(-1), false));
        return;
    }
    orc_out(c, tc_norm(x, named ? 2 : orc_number(c, "ord", 2), orc_axes(c, "dim", memory),
                       orc_bool(c, "keepdim")));
}

static void orc_local_response_norm(orc_case *c)
{
    if (!orc_is_float(tc_dtype_of(orc_tensor(c, "x")))) {
        orc_skip(c, "argument input of integers: f32 in tc");
    }
    orc_call(c, "local_response_norm");
}

static void orc_cdist(orc_case *c)
{
    orc_out(c, tc_cdist(orc_tensor(c, "input"), orc_tensor(c, "other"), orc_number(c, "p", 2)));
}

/* The native one gives what it normalized by too, which nothing has in evaluation. */
static void orc_batch_norm(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input"), mean, var;
    bool training = orc_bool(c, "training");
    if (tc_rank(x) < 2) {
        orc_skip(c, "argument input without an axis of channels");
        return;
    }
    double eps = orc_number(c, "eps", 1e-5);
    int64_t sizes[ORC_MAX_RANK], count = orc_spec_sizes(c->input_specs[0], sizes);
    if (training && count == 2 * sizes[1]) {
        orc_skip(c, "ill conditioned: of two values a channel both gradients cancel");
    }
    orc_out(c, tc_batch_norm(x, orc_optional(c, "mean"), orc_optional(c, "var"),
                             orc_optional(c, "weight"), orc_optional(c, "bias"), training, eps));
    if (strcmp(json_string(c->spec, "op"), "native_batch_norm")) {
        return;
    }
    if (training) {
        tc_tensor rows = tc_reshape(tc_transpose(x, 0, 1), tc_size(x, 1), -1);
        tc_var_mean(rows, TC_AXES(1), 0, false, &var, &mean);
        orc_out(c, mean);
        orc_out(c, tc_rsqrt(tc_add(var, eps)));
    } else {
        orc_out(c, tc_full(c->ctx, 0, tc_dtype_of(x), 0));
        orc_out(c, tc_full(c->ctx, 0, tc_dtype_of(x), 0));
    }
}

static void orc_instance_norm(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input");
    tc_tensor weight = orc_optional(c, "weight"), bias = orc_optional(c, "bias");
    double eps = orc_number(c, "eps", 1e-5);
    if (orc_has(c, "use_input_stats") && !orc_bool(c, "use_input_stats")) {
        orc_out(c, tc_batch_norm(x, orc_tensor(c, "running_mean"), orc_tensor(c, "running_var"),
                                 weight, bias, false, eps));
        return;
    }
    orc_out(c, tc_instance_norm(x, weight, bias, eps));
}

/* ---- softmax and normalization ---- */

/* softmin, and the masked ones. */
static void orc_softmax(orc_case *c)
{
    const char *op = json_string(c->spec, "op");
    tc_tensor x = orc_tensor(c, "input");
    int axis = orc_axis_arg(c, "dim", 0);
    x = orc_in_dtype(c, strstr(op, "softmin") ? tc_neg(x) : x, "dtype");
    if (orc_has(c, "mask")) {
        x = tc_where(orc_tensor(c, "mask"), x, -(double)INFINITY);
    }
    orc_out(c, strstr(op, "log_softmax") ? tc_log_softmax(x, axis) : tc_softmax(x, axis));
}

/* The last axes that normalized_shape names; false when it does not fit. */
static bool orc_normalized_axes(orc_case *c, tc_tensor x, int *memory, tc_axes *axes)
{
    int64_t sizes[ORC_MAX_RANK];
    int n = orc_ints(c, "normalized_shape", sizes, ORC_MAX_RANK);
    bool fits = n > 0 && n <= tc_rank(x);
    for (int i = 0; fits && i < n; i++) {
        memory[i] = i - n;
        fits = tc_size(x, i - n) == sizes[i];
    }
    axes->items = memory;
    axes->n = n;
    axes->all = false;
    if (!fits) {
        orc_skip(c, "argument normalized_shape: tc takes axes instead");
    }
    return fits;
}

static void orc_layer_norm(orc_case *c)
{
    int memory[ORC_MAX_RANK];
    tc_axes axes;
    tc_tensor x = orc_tensor(c, "input");
    if (!orc_normalized_axes(c, x, memory, &axes)) {
        return;
    }
    double eps = orc_number(c, "eps", 1e-5);
    orc_out(c, tc_layer_norm(x, axes, orc_optional(c, "weight"), orc_optional(c, "bias"), eps));
    if (!strcmp(json_string(c->spec, "op"), "native_layer_norm")) {
        orc_out(c, tc_mean(x, axes, true));
        orc_out(c, tc_rsqrt(tc_add(tc_var(x, axes, 0, true), eps)));
    }
}

static void orc_rms_norm(orc_case *c)
{
    int memory[ORC_MAX_RANK];
    tc_axes axes;
    tc_tensor x = orc_tensor(c, "input");
    if (!orc_normalized_axes(c, x, memory, &axes)) {
        return;
    }
    double eps = orc_number(c, "eps", 1.1920928955078125e-7);
    orc_out(c, tc_rms_norm(x, axes, orc_optional(c, "weight"), eps));
}

/* ---- losses ---- */

/* batchmean: the sum over the size of axis 0 */
static void orc_kl_div(orc_case *c)
{
    bool batch = !strcmp(orc_text(c, "reduction", "mean"), "batchmean");
    tc_tensor x = orc_tensor(c, "input");
    tc_tensor y = tc_kl_div(x, orc_tensor(c, "target"), orc_bool(c, "log_target"),
                            batch ? TC_REDUCE_SUM : orc_reduction(c));
    orc_out(c, batch ? tc_div(y, tc_size(x, 0)) : y);
}

static void orc_class_loss(orc_case *c)
{
    bool raw = strstr(json_string(c->spec, "op"), "cross_entropy") != NULL;
    tc_tensor x = orc_tensor(c, "input"), target = orc_tensor(c, "target");
    int64_t ignored = orc_int(c, "ignore_index", -100);
    bool mean = !strcmp(orc_text(c, "reduction", "mean"), "mean");
    double smoothing = orc_number(c, "label_smoothing", 0);
    bool plain = mean && !orc_has(c, "weight") && ignored < 0 && smoothing == 0;
    if (!raw) {
        orc_out(c, tc_nll_loss(x, target, orc_optional(c, "weight"), ignored, orc_reduction(c)));
    } else if (plain && !orc_is_float(tc_dtype_of(target))) {
        orc_out(c, tc_cross_entropy(x, target));
    } else {
        orc_out(c, tc_cross_entropy_loss(x, target, orc_optional(c, "weight"), ignored,
                                         orc_reduction(c), smoothing));
    }
}

/* A list of lengths, or a tensor. */
static tc_tensor orc_lengths(orc_case *c, const char *name)
{
    int64_t items[ORC_MAX_TENSORS];
    if (orc_is_tensor(orc_value(c, name))) {
        return orc_tensor(c, name);
    }
    int n = orc_ints(c, name, items, ORC_MAX_TENSORS);
    return tc_copy_in(c->ctx, items, TC_I64, n);
}

static void orc_ctc_loss(orc_case *c)
{
    if (c->symbolic) {
        orc_skip(c, "a repetition of a symbolic number of steps");
        return;
    }
    orc_out(c, tc_ctc_loss(orc_tensor(c, "input"), orc_tensor(c, "target"),
                           orc_lengths(c, "input_lengths"), orc_lengths(c, "target_lengths"),
                           orc_int(c, "blank", 0), orc_reduction(c), orc_bool(c, "zero_infinity")));
}

#endif
