/* api/operand.c - converts operands of public ops to nodes (api/operand.h).
 *
 * C numbers next to tensors are weak (NEP 50): their dtype follows from the tensors; an integer
 * that this dtype cannot hold is refused. */
#include "operand.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "../ops/math.h"

/* ---- numbers ---- */

TCI_FN tc_dtype tci_ops_weak(tc_promotion how, tc_dtype t, int kind)
{
    t = kind && t == TC_DTYPE_COUNT ? TC_BOOL : t;
    if (kind == TCI_OPS_FLOAT) {
        return tci_dtype_real(how, t);
    }
    return kind == TCI_OPS_INT && t == TC_BOOL ? TC_I64 : t;
}

TCI_FN bool tci_ops_is_huge(const tc_arg *a)
{
    return a->kind == TCI_OPS_INT && a->i < 0 && a->f > 0;
}

TCI_FN bool tci_ops_is_less(const tc_arg *a, const tc_arg *b) /* of integers */
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

TCI_FN bool tci_ops_is_symbol(const tc_arg *a)
{
    return a->kind == TCI_OPS_INT && !tci_dim_is_known(a->i) && tci_dim_is_valid(a->i);
}

TCI_FN bool tci_ops_check_number(tci_frame *f, const tc_arg *a)
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

TCI_FN bool tci_ops_fits(const tc_arg *a, tc_dtype t)
{
    tc_dtype wide = tci_ops_is_huge(a) ? TC_U64 : TC_I64;
    bool same_sign = t == TC_U64 ? wide == TC_U64 || a->i >= 0 : wide == TC_I64;
    return same_sign && tci_value_cast(tci_ops_value(a, t), t, wide).i == a->i;
}

/* The same of a floating number, after truncation. */
static bool tci_ops_real_fits(double x, tc_dtype t)
{
    int bits = 8 * tci_dtype_get(t)->bytes - tci_dtype_is_signed(t);
    double end = ldexp(1, bits), whole = trunc(x);
    return whole < end && whole >= (tci_dtype_is_signed(t) ? -end : 0);
}

static void tci_ops_refuse_number(tci_frame *f, const tc_arg *a, tc_dtype to, const char *what)
{
    const tci_dtype_info *info = tci_dtype_get(to);
    int shift = 64 - 8 * info->bytes;
    bool is_signed = tci_dtype_is_signed(to);
    int64_t least = is_signed ? INT64_MIN / ((int64_t)1 << shift) : 0;
    uint64_t most = (is_signed ? (uint64_t)INT64_MAX : UINT64_MAX) >> shift;
    char given[32];
    if (a->kind == TCI_OPS_FLOAT) {
        snprintf(given, sizeof(given), "%g", a->f);
    } else {
        snprintf(given, sizeof(given), tci_ops_is_huge(a) ? "%" PRIu64 : "%" PRId64, a->i);
    }
    tci_frame_fail(f, TC_ERR_DTYPE,
                   "%s: given %s, expected a number that %s holds, %" PRId64 " to %" PRIu64
                   " (a tensor of a wider dtype, or tc_cast, takes others)",
                   what, given, info->name, least, most);
}

TCI_FN tci_node *tci_ops_number(tci_frame *f, const tc_arg *a, tc_dtype to, const char *what)
{
    if (!tci_ops_check_number(f, a)) {
        return NULL;
    }
    if (tci_ops_is_symbol(a)) {
        return tci_build_size_value(&f->ctx->graph, a->i, to);
    }
    bool real = a->kind == TCI_OPS_FLOAT, whole = a->kind == TCI_OPS_INT;
    if (tci_dtype_is_int(to) &&
        ((whole && !tci_ops_fits(a, to)) || (real && !tci_ops_real_fits(a->f, to)))) {
        tci_ops_refuse_number(f, a, to, what);
        return NULL;
    }
    return tci_graph_literal(&f->ctx->graph, to, tci_ops_value(a, to));
}

TCI_FN bool tci_ops_check_kind(tci_frame *f, const tc_arg *a, const char *what)
{
    if ((unsigned)a->kind > TCI_OPS_FLOAT) {
        tci_frame_fail(f, TC_ERR_ARGUMENT,
                       "%s: given a tc_arg of kind %d, expected 0 (tensor), 1 (bool), 2 (integer) "
                       "or 3 (floating)",
                       what, a->kind);
    }
    return !f->failed;
}

TCI_FN tci_node *tci_ops_either(tci_frame *f, const tc_arg *a, tc_dtype to, const char *what)
{
    if (f->failed || !tci_ops_check_kind(f, a, what)) {
        return NULL;
    }
    return a->kind ? tci_ops_number(f, a, to, what) : tci_frame_node(f, a->tensor, what);
}

TCI_FN tci_node *tci_ops_whole(tci_frame *f, const tc_arg *a, tc_dtype t, const char *what)
{
    if (!f->failed && a->kind == TCI_OPS_FLOAT) {
        tci_frame_fail(f, TC_ERR_DTYPE, "%s is %g: expected an integer", what, a->f);
    }
    return tci_ops_either(f, a, t, what);
}

/* ---- of elementwise calls ---- */

/* Comparing with a number that the dtype cannot hold is exact all the same: the number has a wider
 * one, and the tensors have that too where it holds them. Otherwise one is u64 and the other
 * signed, which the builder compares exactly (graph/build.c). */
static tc_dtype tci_ops_compare_dtype(tc_dtype t, const tc_arg *args, int n, tc_dtype *number)
{
    *number = t;
    for (int i = 0; i < n; i++) {
        if (args[i].kind == TCI_OPS_INT && tci_dtype_is_int(t) && !tci_ops_fits(&args[i], t)) {
            bool huge = tci_ops_is_huge(&args[i]);
            *number = huge ? TC_U64 : TC_I64;
            return t == TC_U64 || (huge && tci_dtype_is_signed(t)) ? t : *number;
        }
    }
    return t;
}

/* A floating number that integers are compared with, as the operand `at` of two: the number of the
 * same result that an integer dtype holds, so that the comparison is exact. x < 2.5 is x < 3, and
 * x == 2.5 is x == NaN. A number that no integer dtype reaches is infinite. */
static tc_arg tci_ops_compared(int op, const tc_arg *a, int at)
{
    const bool ordered = op == TCI_OP_LT || op == TCI_OP_LE || op == TCI_OP_GT || op == TCI_OP_GE;
    if (a->kind != TCI_OPS_FLOAT || (!ordered && op != TCI_OP_EQ && op != TCI_OP_NE)) {
        return *a;
    }
    const bool up = at == 1 ? op == TCI_OP_LT || op == TCI_OP_GE
                            : op == TCI_OP_GT || op == TCI_OP_LE;
    const double whole = up ? ceil(a->f) : floor(a->f), inf = (double)INFINITY;
    if (isnan(whole) || (!ordered && whole != a->f)) {
        return tci_arg_float((double)NAN);
    }
    if (whole >= 0x1p64 || whole < -0x1p63) {
        return tci_arg_float(whole > 0 ? inf : -inf);
    }
    return whole >= 0x1p63 ? tci_arg_uint((uint64_t)whole) : tci_arg_int((int64_t)whole);
}

/* Exponents that are a few products are part of the program. */
static tci_node *tci_ops_exponent(tci_frame *f, tci_node *b)
{
    bool plain = b && b->op == TCI_OP_LITERAL && tci_dtype_is_float((tc_dtype)b->dtype) &&
                 tci_power_is_plain(b->value.f);
    return plain ? tci_graph_const(&f->ctx->graph, (tc_dtype)b->dtype, b->value) : b;
}

TCI_FN bool tci_ops_operands(tci_frame *f, int op, const tc_arg *args, int n,
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
    const tc_promotion how = f->ctx->graph.promotion;
    tc_dtype common = n_tensors ? tci_build_common_dtype(&f->ctx->graph, tensors, n_tensors)
                                : TC_DTYPE_COUNT;
    tc_arg compared[2];
    if (n == 2 && n_tensors == 1 && kind == TCI_OPS_FLOAT && !tci_dtype_is_float(common)) {
        const int at = args[0].kind ? 0 : 1;
        if (!tci_ops_check_number(f, &args[at])) {
            return false;
        }
        compared[1 - at] = args[1 - at];
        compared[at] = tci_ops_compared(op, &args[at], at);
        kind = compared[at].kind;
        args = compared;
    }
    tc_dtype dtype = tci_ops_weak(how, common, kind), result;
    if (op >= 0) {
        tci_build_ew_dtypes(how, op, dtype, &dtype, &result);
        tc_dtype number = dtype;
        tc_dtype wider = result == TC_BOOL ? tci_ops_compare_dtype(dtype, args, n, &number) : dtype;
        for (int i = 0; wider != dtype && i < n; i++) {
            nodes[i] = args[i].kind ? NULL : tci_build_cast(&f->ctx->graph, nodes[i], wider);
        }
        dtype = number;
    }
    for (int i = 0; i < n; i++) {
        if (args[i].kind) {
            nodes[i] = tci_ops_number(f, &args[i], dtype, names[i]);
            nodes[i] = op == TCI_OP_POW && i == 1 ? tci_ops_exponent(f, nodes[i]) : nodes[i];
        }
        if (!nodes[i]) {
            return false;
        }
    }
    return true;
}

TCI_FN tci_frame tci_ops_begin(const char *name, const tc_arg *args, int n, tc_site here)
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

/* ---- tensors ---- */

TCI_FN tci_node *tci_ops_one(tci_frame *f, const char *name, tc_tensor x, tc_site here)
{
    *f = tci_frame_begin(name, here);
    tci_frame_use(f, x);
    return tci_frame_node(f, x, tci_ops_nth[0]);
}

TCI_FN tci_node *tci_ops_over(tci_frame *f, const char *name, tc_tensor x, tc_axes axes,
                              tc_site here)
{
    tci_node *n = tci_ops_one(f, name, x, here);
    return n && (axes.all || tci_frame_list(f, axes.items, axes.n, "the axes")) ? n : NULL;
}

TCI_FN tci_node *tci_ops_shaped(tci_frame *f, const char *name, tc_tensor x, int n,
                                const int64_t *list, const char *what, tc_site here)
{
    tci_node *x_node = tci_ops_one(f, name, x, here);
    return x_node && tci_frame_list(f, list, n, what) ? x_node : NULL;
}

TCI_FN tci_node **tci_ops_list(tci_frame *f, tc_tensors xs, tci_words *w)
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
