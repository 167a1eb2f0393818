/* onnx/export.c - tc_export_onnx: writes a graph as an ONNX file (opset 21, IR 10).
 *
 * In: tensors, as tc_compile_fn takes them. Out: the file and, on request, a file of weights, each
 * written atomically.
 *
 * Design: every op is exported as one or a few nodes, as given by the table TCI_OX_WAY_..., which
 * covers every op. Composites with an ONNX operator of the same meaning become that operator,
 * others their expansion. Elementwise ops without an operator become the formula of their row. */
#include "../ops/formula_bytecode.h"
#include "export_direct_ops.h"
#include "import.h"
#include "export_state.h"

#include <math.h>
#include <string.h>

enum { TCI_OX_IR = 10 };

/* ---- constants ---- */

/* Floats to integers saturate in tc, and NaN gives 0; Cast of ONNX leaves that open. */
static const char *tci_ox_cast_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    tci_ow *w = &g->w;
    tc_dtype from = (tc_dtype)n->in[0]->dtype, to = (tc_dtype)n->dtype;
    bool is_signed = to >= TC_I8;
    if (!tci_ox_is_float(from) || tci_ox_is_float(to) || to == TC_BOOL) {
        return tci_ox_to_dtype(g, x, to);
    }
    int bits = 8 * tc_dtype_size(to) - is_signed;
    double above = ldexp(1, bits), least = is_signed ? -above : 0;
    x = from == TC_F64 ? x : tci_ox_to_dtype(g, x, TC_F32);
    from = from == TC_F64 ? from : TC_F32;
    x = TCI_OW(w, "Where", TCI_OW(w, "IsNaN", x), tci_ox_float(g, from, 0), x);
    if (bits <= 16) { /* the bounds are floats */
        return tci_ox_to_dtype(
            g, TCI_OW(w, "Clip", x, tci_ox_float(g, from, least), tci_ox_float(g, from, above - 1)),
            to);
    }
    uint64_t most = ~(uint64_t)0 >> (64 - bits);
    const char *is_high = TCI_OW(w, "GreaterOrEqual", x, tci_ox_float(g, from, above));
    const char *is_low = TCI_OW(w, "Less", x, tci_ox_float(g, from, least));
    const char *high = tci_ox_number(g, to, (tci_value){.u = most});
    const char *low = tci_ox_number(g, to, (tci_value){.u = is_signed ? ~most : 0});
    const char *y = TCI_OW(w, "Where", is_high, high, tci_ox_to_dtype(g, x, to));
    return TCI_OW(w, "Where", is_low, low, y);
}

/* Memory of the graph, as it is now. */
static const char *tci_ox_memory(tci_ox_out_graph *g, tci_node *n)
{
    int64_t bytes;
    const void *data = tci_ox_memory_of(g->walk, n, &bytes);
    return tci_ow_tensor(&g->w, tci_ox_parameter_name(g->walk, n), (tc_dtype)n->dtype, n->rank,
                         tci_dim_words(n->shape), data);
}

/* ---- sizes ---- */

/* A size in the program: the axis of an input that has it. i64, [1]. */
static const char *tci_ox_size_of(tci_ox_out_graph *g, const tci_node *n, tci_dim d)
{
    if (tci_dim_is_known(d)) {
        const int64_t v = tci_dim_known(d);
        return tci_ow_ints(&g->w, 1, &v);
    }
    const tci_ox_walk *all = g->walk;
    for (int i = 0; i < all->n_inputs; i++) {
        for (int a = 0; a < all->inputs[i]->rank; a++) {
            if (all->inputs[i]->shape[a] == d) {
                const char *x = tci_ox_named(all, all->inputs[i]);
                const tci_ow_attr part[] = {TCI_OW_INT("start", a), TCI_OW_INT("end", a + 1)};
                return tci_ow_op(&g->w, "Shape", 1, &x, 2, part);
            }
        }
    }
    tci_ox_refuse(g->walk, n, "a symbolic size that is not that of an input");
    return "";
}

/* A shape as an operand: numbers, or joined of numbers and sizes of inputs. */
static const char *tci_ox_shape_of(tci_ox_out_graph *g, const tci_node *n, int rank,
                                   const tci_dim *sizes)
{
    int symbols = 0;
    for (int i = 0; i < rank; i++) {
        symbols += !tci_dim_is_known(sizes[i]);
    }
    if (!symbols) {
        return tci_ow_ints(&g->w, rank, tci_dim_words(sizes));
    }
    const char **parts = TCI_NEW_ARRAY(g->walk->s, const char *, rank);
    const tci_ow_attr axis = TCI_OW_INT("axis", 0);
    for (int i = 0; i < rank; i++) {
        parts[i] = tci_ox_size_of(g, n, sizes[i]);
    }
    return tci_ow_op(&g->w, "Concat", rank, parts, 1, &axis);
}

/* ---- movement ---- */

static const char *tci_ox_reshape_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    int64_t *to = TCI_NEW_ARRAY(g->walk->s, int64_t, n->rank + 1);
    const tci_ow_attr zeros = TCI_OW_INT("allowzero", 1);
    int open = 0;
    for (int i = 0; i < n->rank; i++) { /* 0 keeps the size of x there, -1 follows */
        const tci_node *from = n->in[0];
        bool known = tci_dim_is_known(n->shape[i]);
        bool same = i < from->rank && from->shape[i] == n->shape[i];
        to[i] = known ? tci_dim_known(n->shape[i]) : same ? 0 : -1;
        open += to[i] == -1;
        open += known && to[i] == 0 ? 2 : 0; /* an empty axis would be taken for one that stays */
    }
    if (open > 1) {
        const char *in[] = {x, tci_ox_shape_of(g, n, n->rank, n->shape)};
        return tci_ow_op(&g->w, "Reshape", 2, in, 1, &zeros);
    }
    return TCI_OW(&g->w, "Reshape", x, tci_ow_ints(&g->w, n->rank, to));
}

static const char *tci_ox_expand_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    tci_dim *to = TCI_NEW_ARRAY(g->walk->s, tci_dim, n->rank + 1);
    for (int i = 0; i < n->rank; i++) { /* 1 leaves an axis as it is */
        to[i] = n->in[0]->shape[i] == n->shape[i] ? 1 : n->shape[i];
    }
    return TCI_OW(&g->w, "Expand", x, tci_ox_shape_of(g, n, n->rank, to));
}

static const char *tci_ox_slice_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    int64_t *words = TCI_NEW_ARRAY(g->walk->s, int64_t, 4 * n->rank + 1);
    int64_t *starts = words, *ends = words + n->rank, *axes = ends + n->rank;
    int64_t *steps = axes + n->rank;
    int k = 0;
    for (int i = 0; i < n->rank; i++) {
        int64_t start = n->attr[2 * i], step = n->attr[2 * i + 1];
        tci_dim size = n->shape[i], whole = n->in[0]->shape[i];
        if (start == 0 && step == 1 && size == whole) {
            continue;
        }
        bool to_end = step == 1 && tci_dim_add(start, size) == whole;
        bool flips = step == -1 && size == whole; /* of any size */
        if (!tci_dim_is_known(step) || (!flips && !tci_dim_is_known(start)) ||
            (!flips && !to_end && !tci_dim_is_known(size))) {
            tci_ox_refuse(g->walk, n, "symbolic bounds");
        }
        starts[k] = flips ? INT64_MAX : start;
        ends[k] = flips ? INT64_MIN : to_end ? INT64_MAX : start + tci_dim_known(size) * step;
        ends[k] = step < 0 && ends[k] < 0 ? INT64_MIN : ends[k];
        axes[k] = i;
        steps[k++] = step;
    }
    return TCI_OW(&g->w, "Slice", x, tci_ow_ints(&g->w, k, starts), tci_ow_ints(&g->w, k, ends),
                  tci_ow_ints(&g->w, k, axes), tci_ow_ints(&g->w, k, steps));
}

static const char *tci_ox_pad_out(tci_ox_out_graph *g, const tci_node *n, const char *x,
                                  const char *fill)
{
    int64_t *pads = TCI_NEW_ARRAY(g->walk->s, int64_t, 2 * n->rank + 1);
    for (int i = 0; i < n->rank; i++) {
        tci_dim after = tci_dim_sub(n->shape[i], tci_dim_add(n->in[0]->shape[i], n->attr[i]));
        if (!tci_dim_is_known(n->attr[i]) || !tci_dim_is_known(after)) {
            tci_ox_refuse(g->walk, n, "symbolic padding");
        }
        pads[i] = n->attr[i];
        pads[i + n->rank] = tci_dim_known(after);
    }
    return TCI_OW(&g->w, "Pad", x, tci_ow_ints(&g->w, 2 * n->rank, pads), fill);
}

/* Windows along an axis are a Gather of positions, whose second axis then moves to the end. */
static const char *tci_ox_window_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    int windows = n->n_attr / 4, rank = n->in[0]->rank;
    for (int i = 0; i < windows; i++, rank++) {
        const int64_t *a = n->attr + 4 * i;
        int64_t axis = a[0], k = a[1];
        if (!tci_dim_is_known(n->shape[axis])) {
            tci_ox_refuse(g->walk, n, "windows over a symbolic size");
        }
        int64_t steps = tci_dim_known(n->shape[axis]);
        int64_t *places = TCI_NEW_ARRAY(g->walk->s, int64_t, steps *k + 1);
        int64_t *order = TCI_NEW_ARRAY(g->walk->s, int64_t, rank + 1);
        for (int64_t j = 0; j < steps * k; j++) {
            places[j] = j / k * a[2] + j % k * a[3];
        }
        for (int d = 0; d <= rank; d++) {
            order[d] = d <= axis ? d : d < rank ? d + 1 : axis + 1;
        }
        const int64_t grid[] = {steps, k};
        const char *in[] = {x, tci_ow_tensor(&g->w, NULL, TC_I64, 2, grid, places)};
        const tci_ow_attr along = TCI_OW_INT("axis", axis);
        const tci_ow_attr perm = TCI_OW_INTS("perm", rank + 1, order);
        x = tci_ow_op(&g->w, "Gather", 2, in, 1, &along);
        x = tci_ow_op(&g->w, "Transpose", 1, &x, 1, &perm);
    }
    return x;
}

static const char *tci_ox_iota_out(tci_ox_out_graph *g, const tci_node *n)
{
    const int64_t zero = 0, one = 1;
    if (!tci_dim_is_known(n->shape[0])) {
        const char *end = TCI_OW(&g->w, "Squeeze", tci_ox_size_of(g, n, n->shape[0]));
        return TCI_OW(&g->w, "Range", tci_ow_tensor(&g->w, NULL, TC_I64, 0, NULL, &zero), end,
                      tci_ow_tensor(&g->w, NULL, TC_I64, 0, NULL, &one));
    }
    int64_t *list = TCI_NEW_ARRAY(g->walk->s, int64_t, tci_dim_known(n->shape[0]) + 1);
    for (int64_t i = 0; i < tci_dim_known(n->shape[0]); i++) {
        list[i] = i;
    }
    return tci_ow_ints(&g->w, (int)tci_dim_known(n->shape[0]), list);
}

/* ---- reductions and contractions ---- */

static const char *tci_ox_reduce_as(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                    const char *x)
{
    const tci_ow_attr keeps = TCI_OW_INT("keepdims", 0);
    const char *in[] = {x, tci_ow_ints(&g->w, n->n_attr, n->attr)};
    if (!n->n_attr) {
        return TCI_OW(&g->w, "Identity", x);
    }
    return tci_ow_op(&g->w, op, 2, in, 1, &keeps);
}

/* Of the dtype of the result: sums of integers widen. */
static const char *tci_ox_sum_out(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                  const char *x)
{
    x = n->in[0]->dtype == n->dtype ? x : tci_ox_to_dtype(g, x, (tc_dtype)n->dtype);
    return tci_ox_reduce_as(g, op, n, x);
}

static const char *tci_ox_any_out(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                  const char *x)
{
    x = tci_ox_to_dtype(g, x, TC_BOOL); /* what is not 0 is 1 */
    x = tci_ox_reduce_as(g, op, n, tci_ox_to_dtype(g, x, TC_I32));
    /* of no elements ReduceMax is the smallest i32: false, as ReduceMin, the largest, is true */
    return TCI_OW(&g->w, "Greater", x, tci_ox_number(g, TC_I32, (tci_value){.u = 0}));
}

static const char *tci_ox_devsq_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    const tci_ow_attr keeps = TCI_OW_INT("keepdims", 1);
    x = n->in[0]->dtype == n->dtype ? x : tci_ox_to_dtype(g, x, (tc_dtype)n->dtype);
    const char *in[] = {x, tci_ow_ints(&g->w, n->n_attr, n->attr)};
    const char *mean = tci_ow_op(&g->w, "ReduceMean", 2, in, 1, &keeps);
    const char *d = TCI_OW(&g->w, "Sub", x, mean);
    return tci_ox_reduce_as(g, "ReduceSumSquare", n, d);
}

/* The mean of each channel of images, [batch, channels, places], leaves as a pool, for which
 * engines keep their own layout of images. */
static const char *tci_ox_mean_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    const tci_node *from = n->in[0];
    bool pools = n->dtype == TC_F32 && from->dtype == TC_F32 && from->rank >= 4 &&
                 from->rank <= 2 + TCI_OX_SPATIAL && n->n_attr == from->rank - 2;
    for (int i = 0; i < n->n_attr && pools; i++) {
        pools = n->attr[i] == 2 + i;
    }
    return pools ? TCI_OW(&g->w, "Squeeze", TCI_OW(&g->w, "GlobalAveragePool", x),
                          tci_ow_ints(&g->w, n->n_attr, n->attr))
                 : tci_ox_reduce_as(g, "ReduceMean", n, x);
}

/* x, of n's dtype, in a dtype that ArgMax and TopK take. */
static const char *tci_ox_ordered_type(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    return n->dtype == TC_BOOL   ? tci_ox_to_dtype(g, x, TC_I32)
           : n->dtype == TC_BF16 ? tci_ox_to_dtype(g, x, TC_F32)
                                 : x;
}

static const char *tci_ox_arg_out(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                  const char *x)
{
    const tci_ow_attr attrs[] = {TCI_OW_INT("axis", n->attr[0]), TCI_OW_INT("keepdims", 0)};
    x = tci_ox_ordered_type(g, n->in[0], x);
    return tci_ow_op(&g->w, op, 1, &x, 2, attrs);
}

/* Running products and extremes: combined with the element 1, 2, 4, ... positions earlier. */
static const char *tci_ox_joined_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    static const char *const ops[] = {[TCI_MODE_ADD] = "Add",
                                      [TCI_MODE_MIN] = "Min",
                                      [TCI_MODE_MAX] = "Max",
                                      [TCI_MODE_MUL] = "Mul"};
    int64_t axis = n->attr[0], *pads = TCI_NEW_ARRAY(g->walk->s, int64_t, 2 * n->rank);
    tc_dtype t = (tc_dtype)n->dtype;
    if (!tci_dim_is_known(n->shape[axis]) || t == TC_BOOL) {
        tci_ox_refuse(g->walk, n, "a running product or extreme of a symbolic size or of bool");
    }
    for (int64_t by = 1; by < tci_dim_known(n->shape[axis]); by *= 2) {
        const tci_ow_attr mode = TCI_OW_TEXT("mode", "edge");
        pads[axis] = n->attr[1] ? -by : by;
        pads[n->rank + axis] = -pads[axis];
        /* of extremes an element may be met twice; of products the padding is 1 */
        bool extreme = n->attr[2] != TCI_MODE_MUL;
        const char *at = tci_ow_ints(&g->w, 2 * n->rank, pads), *fill = tci_ox_float(g, t, 1);
        const char *with[] = {x, at, fill};
        const char *far = tci_ow_op(&g->w, "Pad", extreme ? 2 : 3, with, extreme, &mode);
        x = TCI_OW(&g->w, ops[n->attr[2]], far, x);
    }
    return x;
}

static const char *tci_ox_scan_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    const tci_ow_attr back = TCI_OW_INT("reverse", n->attr[1]);
    const int64_t axis = n->attr[0];
    x = n->in[0]->dtype == n->dtype ? x : tci_ox_to_dtype(g, x, (tc_dtype)n->dtype);
    const char *in[] = {x, tci_ow_tensor(&g->w, NULL, TC_I64, 0, NULL, &axis)};
    return n->attr[2] == TCI_MODE_ADD ? tci_ow_op(&g->w, "CumSum", 2, in, 1, &back)
                                      : tci_ox_joined_out(g, n, x);
}

static const char *tci_ox_topk_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    const tci_ow_attr attrs[] = {TCI_OW_INT("axis", n->attr[0]), TCI_OW_INT("largest", n->attr[1])};
    const char *in[] = {tci_ox_ordered_type(g, n->in[0], x),
                        tci_ox_size_of(g, n, n->shape[n->attr[0]])};
    const char *out[] = {tci_ow_name(&g->w), tci_ow_name(&g->w)};
    tci_ow_node(&g->w, "TopK", 2, in, 2, out, 2, attrs);
    return out[1];
}

static const char *tci_ox_scatter_out(tci_ox_out_graph *g, const tci_node *n, const char *const *in)
{
    static const char *const modes[] = {[TCI_MODE_SET] = "none",
                                        [TCI_MODE_ADD] = "add",
                                        [TCI_MODE_MIN] = "min",
                                        [TCI_MODE_MAX] = "max",
                                        [TCI_MODE_MUL] = "mul"};
    const tci_ow_attr attrs[] = {TCI_OW_INT("axis", n->attr[0]),
                                 TCI_OW_TEXT("reduction", modes[n->attr[1]])};
    bool joins_bool = n->dtype == TC_BOOL && n->attr[1] != TCI_MODE_SET; /* 0 and 1 in order */
    const char *x = joins_bool ? tci_ox_to_dtype(g, in[0], TC_I32) : in[0];
    const char *src = joins_bool ? tci_ox_to_dtype(g, in[2], TC_I32) : in[2];
    const char *with[] = {x, tci_ox_to_dtype(g, in[1], TC_I64), src};
    x = tci_ow_op(&g->w, "ScatterElements", 3, with, 2, attrs);
    return joins_bool ? tci_ox_to_dtype(g, x, TC_BOOL) : x;
}

/* ---- elementwise ops ---- */

/* The value column of an elementwise row, in f32 for f16 and bf16. */
static const char *tci_ox_formula_out(tci_ox_out_graph *g, const tci_node *n, const char *const *in)
{
    const char *stack[TCI_FORMULA_DEPTH + 1], *operands[3];
    tc_dtype types[TCI_FORMULA_DEPTH + 1]; /* of the stack: d, or bool of conditions */
    tc_dtype of = (tc_dtype)n->in[0]->dtype, d = tci_dtype_is_half(of) ? TC_F32 : of;
    int top = 0;
    for (int i = 0; i < n->n_in; i++) {
        operands[i] = d == of ? in[i] : tci_ox_to_dtype(g, in[i], d);
    }
    for (const uint8_t *word = tci_formula_value(n->op); *word != TCI_W_END; word++) {
        const char *made;
        tc_dtype type = d;
        if (*word >= TCI_W_A && *word <= TCI_W_C) {
            made = operands[*word - TCI_W_A];
        } else if (*word >= TCI_W_K) {
            made = tci_ox_float(g, d, tci_formula_number(*word));
        } else {
            top -= tci_formula_value_operands(*word);
            type = types[top + (*word == TCI_P_SELECT)];
            made = tci_ox_word(g, type, *word, stack + top);
            bool asks = *word == TCI_P_EQ || *word == TCI_P_LT || *word == TCI_P_LE;
            type = asks || *word == TCI_W_MINUS ? TC_BOOL : type;
        }
        if (!made) {
            tci_ox_refuse(g->walk, n, "");
        }
        types[top] = type;
        stack[top++] = made;
    }
    return d == of || n->dtype == TC_BOOL ? stack[0] : tci_ox_to_dtype(g, stack[0], of);
}

/* The ONNX operator of an elementwise op, alike in all dtypes that it takes; NULL: the formula. */
static const char *tci_ox_operator_of(const tci_node *n)
{
    bool is_bool = n->in[0]->dtype == TC_BOOL;
    switch ((int)n->op) {
    case TCI_OP_RECIPROCAL: return "Reciprocal";
    case TCI_OP_SIGMOID: return "Sigmoid";
    case TCI_OP_GELU: return "Gelu";
    case TCI_OP_RELU: return tci_ox_is_float((tc_dtype)n->dtype) ? "Relu" : NULL;
    case TCI_OP_ASIN: return "Asin";
    case TCI_OP_ACOS: return "Acos";
    case TCI_OP_ATAN: return "Atan";
    case TCI_OP_ASINH: return "Asinh";
    case TCI_OP_ACOSH: return "Acosh";
    case TCI_OP_ATANH: return "Atanh";
    case TCI_OP_LOG1PEXP: return "Softplus";
    case TCI_OP_SIGN: return is_bool ? "Identity" : "Sign";
    case TCI_OP_MAXIMUM: return is_bool ? "Or" : "Max";
    case TCI_OP_MINIMUM: return is_bool ? "And" : "Min";
    case TCI_OP_GT: return is_bool ? NULL : "Greater";
    case TCI_OP_GE: return is_bool ? NULL : "GreaterOrEqual";
    case TCI_OP_LOGICAL_NOT: return "Not";
    case TCI_OP_LOGICAL_AND: return "And";
    case TCI_OP_LOGICAL_OR: return "Or";
    case TCI_OP_LOGICAL_XOR: return "Xor";
    default: return NULL;
    }
}

/* Of floats: what is left of a truncated division, moved to the sign of the divisor. */
static const char *tci_ox_remainder_out(tci_ox_out_graph *g, tc_dtype d, const char *const *in)
{
    tci_ow *w = &g->w;
    const tci_ow_attr fmod = TCI_OW_INT("fmod", 1);
    const char *zero = tci_ox_float(g, d, 0), *r = tci_ow_op(w, "Mod", 2, in, 1, &fmod);
    const char *below = TCI_OW(w, "Less", in[1], zero);
    const char *other = TCI_OW(w, "Xor", TCI_OW(w, "Less", r, zero), below);
    const char *moves = TCI_OW(w, "And", other, TCI_OW(w, "Not", TCI_OW(w, "Equal", r, zero)));
    return TCI_OW(w, "Where", moves, TCI_OW(w, "Add", r, in[1]), r);
}

/* Quotients and remainders of integers. ONNX leaves a division by 0 undefined, and engines are
 * killed by it and by that of the least number by -1; here it gives 0, and the latter wraps. */
static const char *tci_ox_integer_division(tci_ox_out_graph *g, const tci_node *n,
                                           const char *const *in)
{
    tci_ow *w = &g->w;
    const tci_ow_attr mode = TCI_OW_INT("fmod", n->op == TCI_OP_FMOD);
    const tc_dtype d = (tc_dtype)n->in[0]->dtype;
    const char *zero = tci_ox_float(g, d, 0), *none = TCI_OW(w, "Equal", in[1], zero),
               *turned = NULL;
    const char *safe[] = {in[0], TCI_OW(w, "Where", none, tci_ox_float(g, d, 1), in[1])};
    if (d >= TC_I8) {
        turned = TCI_OW(w, "Equal", in[1], tci_ox_float(g, d, -1));
        safe[1] = TCI_OW(w, "Where", turned, tci_ox_float(g, d, 1), safe[1]);
    }
    const char *rest = tci_ow_op(w, "Mod", 2, safe, 1, &mode); /* by 1: 0, as by 0 and -1 */
    if (n->op != TCI_OP_FLOOR_DIVIDE) {
        return rest;
    }
    const char *y = TCI_OW(w, "Div", TCI_OW(w, "Sub", in[0], rest), safe[1]);
    y = turned ? TCI_OW(w, "Where", turned, TCI_OW(w, "Sub", zero, in[0]), y) : y;
    return TCI_OW(w, "Where", none, zero, y);
}

static const char *tci_ox_elementwise_out(tci_ox_out_graph *g, const tci_node *n,
                                          const char *const *in)
{
    const tci_ow_attr fmod = TCI_OW_INT("fmod", 1);
    const char *op = tci_ox_operator_of(n);
    bool floats = tci_ox_is_float((tc_dtype)n->in[0]->dtype);
    bool divides = n->op == TCI_OP_REMAINDER || n->op == TCI_OP_FLOOR_DIVIDE;
    if (!floats && (divides || n->op == TCI_OP_FMOD)) {
        return tci_ox_integer_division(g, n, in);
    } else if (n->op == TCI_OP_FMOD) {
        return tci_ow_op(&g->w, "Mod", 2, in, 1, &fmod);
    } else if (divides) {
        if (n->op == TCI_OP_FLOOR_DIVIDE) {
            return TCI_OW(&g->w, "Floor", TCI_OW(&g->w, "Div", in[0], in[1]));
        }
        return tci_ox_remainder_out(g, (tc_dtype)n->dtype, in);
    } else if (n->op == TCI_OP_NE) {
        return TCI_OW(&g->w, "Not", TCI_OW(&g->w, "Equal", in[0], in[1]));
    } else if (n->op == TCI_OP_ISNAN && floats) {
        return TCI_OW(&g->w, "IsNaN", in[0]);
    } else if (n->op == TCI_OP_ISINF && floats) {
        return TCI_OW(&g->w, "IsInf", in[0]);
    }
    return op ? tci_ow_op(&g->w, op, n->n_in, in, 0, NULL) : tci_ox_formula_out(g, n, in);
}

/* ---- all ops ---- */

/* Export form of each special and composite op: "": as nodes, in tci_ox_special_out or
 * tci_ox_composite_out; TCI_OX_EXPANDS: as its expansion; otherwise the reason why it cannot be
 * exported. A row of ops/table.h that is missing here does not compile. */
#define TCI_OX_EXPANDS "expands"
#define TCI_OX_WAY_INPUT "an input that is not among those given"
#define TCI_OX_WAY_DATA ""
#define TCI_OX_WAY_LITERAL ""
#define TCI_OX_WAY_CONST ""
#define TCI_OX_WAY_IOTA ""
#define TCI_OX_WAY_RANDOM ""
#define TCI_OX_WAY_WHERE ""
#define TCI_OX_WAY_CAST ""
#define TCI_OX_WAY_BITCAST ""
#define TCI_OX_WAY_RESHAPE ""
#define TCI_OX_WAY_PERMUTE ""
#define TCI_OX_WAY_EXPAND ""
#define TCI_OX_WAY_SLICE ""
#define TCI_OX_WAY_PAD ""
#define TCI_OX_WAY_CAT ""
#define TCI_OX_WAY_WINDOW ""
#define TCI_OX_WAY_GATHER ""
#define TCI_OX_WAY_SCAN ""
#define TCI_OX_WAY_TOPK ""
#define TCI_OX_WAY_SCATTER ""
#define TCI_OX_WAY_SEGMENT "only plans have it"
#define TCI_OX_WAY_CONTRACT ""
#define TCI_OX_WAY_BOUND ""
#define TCI_OX_WAY_REPEAT ""
#define TCI_OX_WAY_RESULT ""
#define TCI_OX_WAY_CUSTOM "an op of the user's own"
#define TCI_OX_WAY_COLLECTIVE "collectives have a communicator of the process"
#define TCI_OX_WAY_BARRIER ""
#define TCI_OX_WAY_ASSIGN "an effect"
#define TCI_OX_WAY_SOFTMAX ""
#define TCI_OX_WAY_LOG_SOFTMAX ""
#define TCI_OX_WAY_MEAN ""
#define TCI_OX_WAY_LAYER_NORM ""
#define TCI_OX_WAY_CROSS_ENTROPY TCI_OX_EXPANDS
#define TCI_OX_WAY_LU TCI_OX_EXPANDS
#define TCI_OX_WAY_SOLVE TCI_OX_EXPANDS
#define TCI_OX_WAY_SOLVE_TRIANGULAR TCI_OX_EXPANDS
#define TCI_OX_WAY_CHOLESKY TCI_OX_EXPANDS
#define TCI_OX_WAY_STOP_GRADIENT ""
#define TCI_OX_WAY_WITH_DERIVATIVE ""
#define TCI_OX_WAY_SHARD ""
#define TCI_OX_WAY_NAMED ""
#define TCI_OX_WAY_CONV_TRANSPOSE ""

/* Of a special or composite op. */
static const char *tci_ox_way_of(int op)
{
    static const char *const ways[] = {
#define TCI_ROW(id, ...) [TCI_OP_##id - TCI_OP_REDUCE_END] = TCI_OX_WAY_##id,
        TCI_SPECIAL_OPS(TCI_ROW) TCI_COMPOSITE_OPS(TCI_ROW)
#undef TCI_ROW
    };
    return ways[op - TCI_OP_REDUCE_END];
}

static const char *tci_ox_layer_norm_out(tci_ox_out_graph *g, const tci_node *n,
                                         const char *const *in)
{
    int axes = (int)n->attr[0];
    bool has_weight = n->attr[1 + axes], has_bias = n->attr[2 + axes];
    const tci_node *eps = n->in[1], *x = n->in[0];
    bool number = eps->op == TCI_OP_CONST || eps->op == TCI_OP_LITERAL, last = has_weight;
    for (int i = 0; i < axes; i++) {
        last = last && n->attr[1 + i] == x->rank - axes + i;
    }
    if (!last || !number) {
        return NULL;
    }
    const tci_ow_attr attrs[] = {TCI_OW_INT("axis", x->rank - axes),
                                 TCI_OW_FLOAT("epsilon", eps->value.f)};
    const char *with[] = {in[0], in[2], has_bias ? in[3] : NULL};
    return tci_ow_op(&g->w, "LayerNormalization", has_bias ? 3 : 2, with, 2, attrs);
}

/* A composite by its own operator; NULL: as what it expands into. */
static const char *tci_ox_composite_out(tci_ox_out_graph *g, const tci_node *n,
                                        const char *const *in)
{
    switch ((int)n->op) {
    case TCI_OP_SOFTMAX:
    case TCI_OP_LOG_SOFTMAX: {
        const tci_ow_attr axis = TCI_OW_INT("axis", n->attr[0]);
        return tci_ow_op(&g->w, n->op == TCI_OP_SOFTMAX ? "Softmax" : "LogSoftmax", 1, in, 1,
                         &axis);
    }
    case TCI_OP_MEAN: return tci_ox_mean_out(g, n, in[0]);
    case TCI_OP_LAYER_NORM: return tci_ox_layer_norm_out(g, n, in);
    case TCI_OP_CONV_TRANSPOSE: return tci_ox_conv_transpose_out(g, n, in);
    case TCI_OP_NAMED:
        return tci_ox_named_operands(n, g->most) ? tci_ox_named_out(g, n, in) : in[0];
    case TCI_OP_STOP_GRADIENT:
    case TCI_OP_SHARD: return in[0];
    case TCI_OP_WITH_DERIVATIVE: return in[1];
    default: return NULL;
    }
}

static const char *tci_ox_special_out(tci_ox_out_graph *g, tci_node *n, const char *const *in)
{
    tci_ow *w = &g->w;
    tci_ox_select select;
    if (tci_ox_find_select(n, &select)) {
        return tci_ox_select_out(g, &select, n, in);
    }
    switch ((int)n->op) {
    case TCI_OP_DATA: return tci_ox_memory(g, n);
    case TCI_OP_LITERAL:
    case TCI_OP_CONST: return tci_ox_number(g, (tc_dtype)n->dtype, n->value);
    case TCI_OP_IOTA: return tci_ox_iota_out(g, n);
    case TCI_OP_RANDOM: return tci_ox_random_out(g, n, in);
    case TCI_OP_WHERE: return tci_ox_where_out(g, (tc_dtype)n->dtype, in);
    case TCI_OP_CAST: return tci_ox_cast_out(g, n, in[0]);
    case TCI_OP_RESHAPE: return tci_ox_reshape_out(g, n, in[0]);
    case TCI_OP_PERMUTE: {
        const tci_ow_attr perm = TCI_OW_INTS("perm", n->rank, n->attr);
        return tci_ow_op(w, "Transpose", 1, in, 1, &perm);
    }
    case TCI_OP_EXPAND: return tci_ox_expand_out(g, n, in[0]);
    case TCI_OP_SLICE: return tci_ox_slice_out(g, n, in[0]);
    case TCI_OP_PAD: return tci_ox_pad_out(g, n, in[0], in[1]);
    case TCI_OP_CAT: {
        const tci_ow_attr axis = TCI_OW_INT("axis", n->attr[0]);
        return tci_ow_op(w, "Concat", n->n_in, in, 1, &axis);
    }
    case TCI_OP_WINDOW: return tci_ox_window_out(g, n, in[0]);
    case TCI_OP_GATHER: return tci_ox_gather_out(g, n, in);
    case TCI_OP_BITCAST: {
        const tci_ow_attr to = TCI_OW_INT("to", tci_onnx_type_of((tc_dtype)n->dtype));
        g->opset = TCI_OX_OPSET_BITCAST;
        return tci_ow_op(w, "BitCast", 1, in, 1, &to);
    }
    case TCI_OP_SCAN: return tci_ox_scan_out(g, n, in[0]);
    case TCI_OP_TOPK: return tci_ox_topk_out(g, n, in[0]);
    case TCI_OP_SCATTER: return tci_ox_scatter_out(g, n, in);
    case TCI_OP_CONTRACT: return tci_ox_contract_out(g, n, in);
    case TCI_OP_REPEAT: return tci_ox_repeat_out(g, n, in);
    case TCI_OP_RESULT: return tci_ox_result_out(g, n);
    case TCI_OP_BARRIER: return in[0];
    default: return NULL;
    }
}

/* Reductions; composites and elementwise ops have functions of their own. */
static const char *tci_ox_reduction_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    tci_ox_sliding w;
    if (tci_ox_find_pool(n, &w) && tci_ox_pool_fits(&w, n)) {
        return tci_ox_pool_out(g, &w, n, x);
    }
    switch ((int)n->op) {
    case TCI_OP_SUM: return tci_ox_sum_out(g, "ReduceSum", n, x);
    case TCI_OP_PROD: return tci_ox_sum_out(g, "ReduceProd", n, x);
    case TCI_OP_MAX: return tci_ox_reduce_as(g, "ReduceMax", n, x);
    case TCI_OP_MIN: return tci_ox_reduce_as(g, "ReduceMin", n, x);
    case TCI_OP_ANY: return tci_ox_any_out(g, "ReduceMax", n, x);
    case TCI_OP_ALL: return tci_ox_any_out(g, "ReduceMin", n, x);
    case TCI_OP_DEVSQ: return tci_ox_devsq_out(g, n, x);
    case TCI_OP_ARGMAX: return tci_ox_arg_out(g, "ArgMax", n, x);
    case TCI_OP_ARGMIN: return tci_ox_arg_out(g, "ArgMin", n, x);
    default: return NULL; /* a row without a form */
    }
}

/* ---- the model ---- */

static bool tci_ox_is_empty(const tci_node *n)
{
    bool known = true, none = false;
    for (int i = 0; i < n->rank; i++) {
        known = known && tci_dim_is_known(n->shape[i]);
        none = none || n->shape[i] == 0;
    }
    return known && none;
}

/* True if n adds up no elements: it is all zeros. */
static bool tci_ox_adds_nothing(const tci_node *n)
{
    bool none = (n->op == TCI_OP_SUM || n->op == TCI_OP_CONTRACT) && tci_is_known(n);
    return none && (tci_ox_is_empty(n->in[0]) || tci_ox_is_empty(n->in[n->n_in - 1]));
}

/* Engines differ in what they make of empty axes, so they get what follows from them. */
static const char *tci_ox_zeros_out(tci_ox_out_graph *g, const tci_node *n)
{
    const char *zero = tci_ox_float(g, (tc_dtype)n->dtype, 0);
    return tci_ox_is_empty(n) ? tci_ow_tensor(&g->w, NULL, (tc_dtype)n->dtype, n->rank,
                                              tci_dim_words(n->shape), "")
                              : TCI_OW(&g->w, "Expand", zero,
                                       tci_ow_ints(&g->w, n->rank, tci_dim_words(n->shape)));
}

static const char *tci_ox_leave(tci_ox_walk *w, tci_node *n, const char *const *in)
{
    tci_ox_out_graph *g = (tci_ox_out_graph *)w->to;
    const char *way = n->op >= TCI_OP_REDUCE_END ? tci_ox_way_of(n->op) : "";
    if (tci_node_is_value(n)) { /* evaluated already: a constant */
        return tci_ox_memory(g, n);
    } else if (*way && strcmp(way, TCI_OX_EXPANDS)) {
        tci_ox_refuse(w, n, way);
    } else if (tci_ox_is_empty(n) || tci_ox_adds_nothing(n)) {
        return tci_ox_zeros_out(g, n);
    } else if (tci_op_is_ew(n->op)) {
        return tci_ox_elementwise_out(g, n, in);
    } else if (tci_op_is_reduce(n->op)) {
        return tci_ox_reduction_out(g, n, in[0]);
    } else if (tci_op_is_composite(n->op)) {
        return tci_ox_composite_out(g, n, in);
    }
    return tci_ox_special_out(g, n, in);
}

/* True if x is a RESHAPE that puts axes of 1 in front of others. */
static bool tci_ox_is_led_by_ones(const tci_node *x)
{
    const tci_node *from = x->op == TCI_OP_RESHAPE && !tci_node_is_value(x) ? x->in[0] : NULL;
    const int more = from ? x->rank - from->rank : -1;
    bool led = more >= 0;
    for (int i = 0; i < more; i++) {
        led = led && x->shape[i] == 1;
    }
    return led && tci_build_same_shape(from->rank, from->shape, from->rank, x->shape + more);
}

/* Operands broadcast: an EXPAND, and the axes of 1 that a RESHAPE puts in front, are left out where
 * another operand has the axis in full. Returns how many operands there are. */
static int tci_ox_unexpanded(tci_ox_walk *w, const tci_node *n, tci_node *const **list)
{
    tci_node **in = TCI_NEW_ARRAY(w->s, tci_node *, n->n_in + 1);
    bool *whole = TCI_NEW_ARRAY(w->s, bool, n->rank + 1);
    for (int i = 0; i < n->n_in; i++) {
        in[i] = n->in[i];
        bool expands = in[i]->op == TCI_OP_EXPAND && !tci_node_is_value(in[i]);
        for (int d = 0; d < n->rank && in[i]->rank == n->rank; d++) {
            whole[d] = whole[d] || (expands ? in[i]->in[0] : in[i])->shape[d] == n->shape[d];
        }
    }
    for (int d = 0; d < n->rank; d++) {
        if (!whole[d]) {
            return 0;
        }
    }
    int n_short = 0; /* one operand keeps the rank */
    for (int i = n->n_in - 1; i >= 0; i--) {
        in[i] = in[i]->op == TCI_OP_EXPAND && !tci_node_is_value(in[i]) ? in[i]->in[0] : in[i];
        if (n_short < n->n_in - 1 && tci_ox_is_led_by_ones(in[i])) {
            in[i] = in[i]->in[0];
            n_short++;
        } else if (in[i]->rank < n->rank) {
            n_short++;
        }
    }
    *list = in;
    return n->n_in;
}

/* Convolutions and pools are written from what is below windows and padding, gathers of slices from
 * the list of indices, elementwise ops from what is below broadcasts, named calls from the call's
 * operands. */
static int tci_ox_needs(tci_ox_walk *w, tci_node *n, tci_node *const **list)
{
    tci_ox_conv c;
    tci_ox_sliding p;
    tci_ox_select s;
    tci_node **two = TCI_NEW_ARRAY(w->s, tci_node *, 2);
    *list = two;
    if (tci_op_is_reduce(n->op) && tci_ox_find_pool(n, &p) && tci_ox_pool_fits(&p, n)) {
        two[0] = p.x;
        return 1;
    } else if (tci_ox_find_conv(w->s, n, &c) && tci_ox_conv_fits(&c)) {
        two[0] = c.w.x;
        two[1] = c.f;
        return 2;
    } else if (tci_ox_find_select(n, &s)) {
        two[0] = s.x;
        two[1] = s.list;
        return 2;
    } else if (n->op == TCI_OP_NAMED) {
        int count = tci_ox_named_operands(n, ((tci_ox_out_graph *)w->to)->most);
        *list = n->in + (count > 0);
        return count ? count : 1;
    } else if (tci_op_is_ew(n->op) || n->op == TCI_OP_WHERE) {
        return tci_ox_unexpanded(w, n, list);
    }
    return 0;
}

static void tci_ox_write_model(tci_ox_out_graph *g, tci_str *file)
{
    tci_str opset = {.s = g->walk->s};
    tci_ow_number(file, 1, TCI_OX_IR);
    tci_ow_text(file, 2, "tc");
    tci_ow_text(file, 3, TC_VERSION);
    tci_ow_bytes(file, 7, tci_str_text(&g->w.graph), g->w.graph.n);
    tci_ow_number(&opset, 2, (uint64_t)g->opset);
    tci_ow_bytes(file, 8, tci_str_text(&opset), opset.n);
}

static void tci_ox_export_graph(tci_ox_out_graph *g, tci_node *const *outputs, int n,
                                const tc_onnx_export *how)
{
    tci_ox_walk *w = g->walk;
    for (int i = 0; i < w->n_inputs; i++) {
        const tci_node *x = w->inputs[i];
        const char *name = tci_ox_input_name(w, i);
        tci_ox_set_name(w, x, name);
        tci_ow_info(&g->w, 11, name, (tc_dtype)x->dtype, x->rank, x->shape);
    }
    for (int i = 0; i < n; i++) {
        const char *from = tci_ox_walk_to(w, outputs[i]);
        const char *name = how && how->output_names && how->output_names[i]
                               ? how->output_names[i]
                               : tci_scratch_printf(w->s, "output%d", i);
        tci_ow_node(&g->w, "Identity", 1, &from, 1, &name, 0, NULL);
        tci_ow_info(&g->w, 12, name, (tc_dtype)outputs[i]->dtype, outputs[i]->rank,
                    outputs[i]->shape);
    }
    tci_ow_text(&g->w.graph, 2, "tc");
}

static void tci_ox_check_opset(tci_scratch *s, int opset)
{
    if (opset && (opset < TCI_OX_OPSET || opset > TCI_OX_OPSET_LAST)) {
        tci_scratch_fail(s, TC_ERR_ARGUMENT, "opset %d: expected 0 or %d to %d", opset,
                         (int)TCI_OX_OPSET, (int)TCI_OX_OPSET_LAST);
    }
}

TCI_FN void tci_ox_write_onnx(tci_ox_walk *w, tci_node *const *outputs, int n,
                              const tc_onnx_export *how, const char *data_name, tci_str *model,
                              tci_str *weights)
{
    tci_ox_out_graph g = {.walk = w,
                          .opset = TCI_OX_OPSET,
                          .most = how && how->opset ? how->opset : TCI_OX_OPSET};
    tci_ox_check_opset(w->s, g.most);
    g.w.s = g.w.graph.s = g.w.weights.s = w->s;
    g.w.external = how && how->external ? data_name : NULL;
    w->to = &g;
    w->leave = tci_ox_leave;
    w->needs = tci_ox_needs;
    tci_ox_export_graph(&g, outputs, n, how);
    tci_ox_write_model(&g, model);
    *weights = g.w.weights;
    if (model->n > INT32_MAX) {
        tci_scratch_fail(w->s, TC_ERR_LIMIT,
                         "the file would have %zu bytes: protobuf ends at 2 "
                         "GiB (tc_onnx_export.external puts weights in a file of their own)",
                         model->n);
    }
}

static void tci_ox_export_file(tci_ox_walk *w, tci_node *const *outputs, int n,
                               const tci_ox_export *e)
{
    const char *path = (const char *)e->to, *slash = path ? strrchr(path, '/') : NULL;
    const tc_onnx_export *how = (const tc_onnx_export *)e->how;
    tci_str file = {.s = w->s}, weights = {.s = w->s};
    if (!path) {
        tci_scratch_fail(w->s, TC_ERR_ARGUMENT, "the path is NULL");
    }
    const char *data_name = tci_scratch_printf(w->s, "%s.data", slash ? slash + 1 : path);
    tci_ox_write_onnx(w, outputs, n, how, data_name, &file, &weights);
    if (how && how->external) {
        tci_ox_put_file(w, tci_scratch_printf(w->s, "%s.data", path), &weights);
    }
    tci_ox_put_file(w, path, &file);
}

TC_API tc_status tc_export_onnx_at(tc_tensors inputs, tc_tensors outputs, const tc_onnx_export *how,
                                   const char *path, tc_site here)
{
    const tci_ox_export e = {"tc_export_onnx",  "ONNX", inputs, outputs, how, (void *)path,
                             tci_ox_export_file};
    return tci_ox_export_call(&e, here);
}
