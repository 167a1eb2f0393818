/* onnx/import_shape.c - imports ONNX shape, constant and movement operators (Shape, Range, Reshape,
 * Transpose, Slice, Pad, Concat). */
#include "operator_table.h"
#include "user_call_site.h"

#include <inttypes.h>
#include <string.h>

/* ---- sizes ---- */

/* Sizes of operand 0, which need not be a tensor. */
static const int64_t *tci_ox_sizes_of(const tci_ox_op *o, int *rank)
{
    if (!tci_ox_has(o, 0)) {
        tci_ox_fail(o, TC_ERR_IO, "operand 0 is left out");
    }
    const tci_ox_value *v = o->in[0];
    if (!v->is_made && v->known) {
        *rank = v->known->rank;
        return v->known->sizes;
    }
    if (!v->is_made && v->initializer) {
        *rank = v->initializer->rank;
        return v->initializer->sizes;
    }
    return tci_ox_sizes(o, tci_ox_in(o, 0), rank);
}

TCI_OX_MAKE(shape)
{
    int rank;
    const int64_t *sizes = tci_ox_sizes_of(o, &rank);
    int64_t start = tci_ox_int(o, "start", 0), end = tci_ox_int(o, "end", rank);
    start = start < 0 ? TCI_MAX(start + rank, 0) : TCI_MIN(start, rank);
    end = end < 0 ? TCI_MAX(end + rank, 0) : TCI_MIN(end, rank);
    tci_ox_out_known(o, 0, tci_ox_known_ints(o->s, (int)TCI_MAX(end - start, 0), sizes + start));
}

TCI_OX_MAKE(size)
{
    int rank;
    const int64_t *sizes = tci_ox_sizes_of(o, &rank);
    tci_ox_known *k = tci_ox_known_new(o->s, TC_I64, 0, NULL);
    k->cells[0].i = 1;
    for (int i = 0; i < rank; i++) {
        k->cells[0].i = tc_dim_mul(k->cells[0].i, sizes[i]);
    }
    tci_ox_out_known(o, 0, k);
}

/* ---- constants ---- */

TCI_OX_MAKE(constant)
{
    const tci_onnx_attr *a = o->node->n_attrs ? &o->node->attrs[0] : NULL;
    if (a && a->kind == TCI_ONNX_TENSOR) {
        tci_ox_dtype(o, a->t->type);
        if (tci_ox_wants(o, 0)) {
            o->out[0]->initializer = tci_scratch_copy(o->s, a->t, sizeof(*a->t));
            o->out[0]->initializer->name = o->out[0]->name;
        }
        return;
    }
    bool list = a && (a->kind == TCI_ONNX_INTS || a->kind == TCI_ONNX_FLOATS);
    bool floats = a && (a->kind == TCI_ONNX_FLOATS || a->kind == TCI_ONNX_FLOAT);
    if (!a || (!list && a->kind != TCI_ONNX_INT && a->kind != TCI_ONNX_FLOAT)) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "a constant that is no dense tensor of numbers");
    }
    tci_ox_known *k = tci_ox_known_new(o->s, floats ? TC_F32 : TC_I64, list, (int64_t[]){a->n});
    for (int64_t i = 0; i < k->n; i++) {
        k->cells[i].i = floats ? 0 : list ? a->ints[i] : a->i;
        k->cells[i].f = !floats ? 0 : list ? a->floats[i] : a->f;
    }
    tci_ox_out_known(o, 0, k);
}

TCI_OX_MAKE(constant_of_shape)
{
    int n;
    const int64_t *sizes = tci_ox_need_ints(o, 0, "the shape", &n);
    const tci_onnx_attr *a = tci_ox_attr(o, "value");
    tc_tensor one = tc_full(o->ctx, 0, TC_F32);
    if (a && a->kind == TCI_ONNX_TENSOR) {
        tc_dtype dtype = tci_ox_dtype(o, a->t->type);
        if (a->t->count != 1 || a->t->place) {
            tci_ox_fail(o, TC_ERR_SHAPE, "value has not one element");
        }
        one = tci_ox_known_tensor(o, tci_ox_known_read(o->s, dtype, 0, NULL, a->t->data));
    }
    tci_ox_out(o, 0, tc_expand_at(one, n, sizes, o->here));
}

/* Floats from a known number on by 1 to a symbolic size. */
static bool tci_ox_range_symbolic(tci_ox_op *o, tc_dtype d)
{
    const tci_ox_known *limit = tci_ox_need(o, 1, "limit");
    double from = tci_ox_need_real(o, 0, "start"), by = tci_ox_need_real(o, 2, "delta");
    if (limit->n != 1 || limit->cells[0].den != 1 || from != 0 || by != 1) {
        return false;
    }
    tci_ox_out(o, 0, tc_cast(tc_arange(o->ctx, 0, limit->cells[0].i, 1, TC_I64), d));
    return true;
}

TCI_OX_MAKE(range)
{
    tc_dtype d = tc_dtype_of(tci_ox_in(o, 0));
    if (tci_ox_is_float(d) && tci_ox_range_symbolic(o, d)) {
        return;
    }
    if (tci_ox_is_float(d)) {
        double from = tci_ox_need_real(o, 0, "start"), by = tci_ox_need_real(o, 2, "delta");
        tci_ox_out(o, 0, tc_arange(o->ctx, from, tci_ox_need_real(o, 1, "limit"), by, d));
        return;
    }
    int64_t from = tci_ox_need_int(o, 0, "start"), by = tci_ox_need_int(o, 2, "delta");
    tci_ox_out(o, 0, tc_arange(o->ctx, from, tci_ox_need_int(o, 1, "limit"), by, d));
}

TCI_OX_MAKE(eye_like)
{
    tc_tensor x = tci_ox_in(o, 0);
    tc_dtype d = tci_ox_attr(o, "dtype") ? tci_ox_dtype(o, tci_ox_int(o, "dtype", 1))
                                         : tc_dtype_of(x);
    tc_tensor row = tc_add(tci_ox_places(o, tc_size(x, 0), 2, 0), tci_ox_int(o, "k", 0));
    tci_ox_out(o, 0, tc_cast(tc_eq(row, tci_ox_places(o, tc_size(x, 1), 2, 1)), d));
}

/* ---- other sizes ---- */

TCI_OX_MAKE(identity)
{
    if (tci_ox_wants(o, 0) && tci_ox_has(o, 0)) {
        const char *name = o->out[0]->name;
        *o->out[0] = *o->in[0];
        o->out[0]->name = name;
    }
}

TCI_FN const int64_t *tci_ox_list(const tci_ox_op *o, int i, const char *name, int *n)
{
    *n = 0;
    return tci_ox_has(o, i) ? tci_ox_need_ints(o, i, name, n) : tci_ox_ints(o, name, n);
}

TCI_OX_MAKE(reshape)
{
    int n, rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *want = tci_ox_list(o, 1, "shape", &n);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    int64_t *to = TCI_NEW_ARRAY(o->s, int64_t, n + 1);
    bool zero = tci_ox_int(o, "allowzero", 0) != 0;
    for (int i = 0; i < n && want; i++) {
        to[i] = want[i] == 0 && !zero && i < rank ? sizes[i] : want[i];
    }
    tci_ox_out(o, 0, tci_ox_shape_as(o, x, n, to));
}

TCI_OX_MAKE(flatten)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    int64_t axis = tci_ox_int(o, "axis", 1), parts[2] = {1, 1};
    axis = axis == rank ? rank : tci_ox_axis(o, axis, rank);
    for (int i = 0; i < rank; i++) {
        parts[i >= axis] = tc_dim_mul(parts[i >= axis], sizes[i]);
    }
    tci_ox_out(o, 0, tci_ox_shape_as(o, x, 2, parts));
}

TCI_OX_MAKE(squeeze)
{
    int n, rank, left = 0;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *axes = tci_ox_list(o, 1, "axes", &n);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    int64_t *to = TCI_NEW_ARRAY(o->s, int64_t, rank + 1);
    for (int i = 0; i < rank; i++) {
        bool goes = !axes && sizes[i] == 1;
        for (int j = 0; j < n; j++) {
            goes = goes || tci_ox_axis(o, axes[j], rank) == i;
        }
        to[left] = sizes[i];
        left += !goes;
    }
    tci_ox_out(o, 0, tci_ox_shape_as(o, x, left, to));
}

TCI_OX_MAKE(unsqueeze)
{
    int n, rank, at = 0;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *axes = tci_ox_list(o, 1, "axes", &n);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    int64_t *to = TCI_NEW_ARRAY(o->s, int64_t, rank + n + 1);
    for (int i = 0; i < rank + n; i++) {
        bool is_new = false;
        for (int j = 0; j < n; j++) {
            is_new = is_new || tci_ox_axis(o, axes[j], rank + n) == i;
        }
        to[i] = is_new || at == rank ? 1 : sizes[at++];
    }
    tci_ox_out(o, 0, tci_ox_shape_as(o, x, rank + n, to));
}

TCI_OX_MAKE(expand)
{
    int n, rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *want = tci_ox_need_ints(o, 1, "the shape", &n);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    int all = TCI_MAX(n, rank);
    int64_t *to = TCI_NEW_ARRAY(o->s, int64_t, all + 1);
    for (int i = 0; i < all; i++) {
        int64_t a = i >= all - rank ? sizes[i - (all - rank)] : 1;
        int64_t b = i >= all - n ? want[i - (all - n)] : 1;
        to[i] = b == 1 ? a : b;
    }
    tci_ox_out(o, 0, tc_expand_at(x, all, to, o->here));
}

TCI_OX_MAKE(tile)
{
    int n;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *repeats = tci_ox_need_ints(o, 1, "the repeats", &n);
    tci_ox_out(o, 0, tc_tile_at(x, n, repeats, o->here));
}

TCI_OX_MAKE(transpose)
{
    int n, rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *order = tci_ox_ints(o, "perm", &n);
    tci_ox_sizes(o, x, &rank);
    int64_t *back = TCI_NEW_ARRAY(o->s, int64_t, rank + 1);
    for (int i = 0; i < rank; i++) {
        back[i] = rank - 1 - i;
    }
    if (order && n != rank) {
        tci_ox_fail(o, TC_ERR_AXIS, "perm has %d axes of %d", n, rank);
    }
    tci_ox_out(o, 0, tci_ox_move(o, x, order ? order : back));
}

/* ---- parts ---- */

TCI_OX_MAKE(concat)
{
    int rank;
    tc_tensor *xs = TCI_NEW_ARRAY(o->s, tc_tensor, o->n_in + 1);
    for (int i = 0; i < o->n_in; i++) {
        xs[i] = tci_ox_in(o, i);
    }
    tci_ox_sizes(o, tci_ox_in(o, 0), &rank);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", 1), rank);
    tci_ox_out(o, 0, tc_cat(TC_TENSORS_N(xs, o->n_in), axis));
}

TCI_OX_MAKE(split)
{
    int n, rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *sizes = tci_ox_list(o, 1, "split", &n);
    const int64_t *all = tci_ox_sizes(o, x, &rank);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", 0), rank);
    int64_t parts = tci_ox_int(o, "num_outputs", o->n_out), at = 0;
    if (parts < 1 || (sizes && n < o->n_out)) {
        tci_ox_fail(o, TC_ERR_ARGUMENT, "%d outputs of %d parts", o->n_out, n);
    }
    int64_t each = tc_dim_div(tc_dim_add(all[axis], parts - 1), parts);
    for (int i = 0; i < o->n_out; i++) {
        int64_t end = sizes ? tc_dim_add(at, sizes[i])
                            : tc_dim_min(tc_dim_add(at, each), all[axis]);
        if (o->out[i]) {
            tci_ox_out(o, i, tc_slice(x, axis, at, end, 1));
        }
        at = end;
    }
}

/* A bound as tc_slice takes it. */
static int64_t tci_ox_bound(int64_t at, int64_t step, bool is_start)
{
    const int64_t far = INT64_C(1) << 40;
    if (!tci_dim_is_known(at) || (at < far && at > -far)) {
        return at;
    }
    if (at > 0) {
        return !is_start ? step > 0 ? TC_END : far : step > 0 ? far : -1;
    }
    return is_start ? step > 0 ? 0 : -far : step < 0 ? TC_END : 0;
}

TCI_OX_MAKE(slice)
{
    int n, n_ends, n_axes = 0, n_steps = 0, rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *starts = tci_ox_list(o, 1, "starts", &n);
    const int64_t *ends = tci_ox_list(o, 2, "ends", &n_ends);
    const int64_t *axes = tci_ox_list(o, 3, "axes", &n_axes);
    const int64_t *steps = tci_ox_list(o, 4, "steps", &n_steps);
    tci_ox_sizes(o, x, &rank);
    if (!starts || !ends || n_ends != n || (axes && n_axes != n) || (steps && n_steps != n)) {
        tci_ox_fail(o, TC_ERR_SHAPE, "starts, ends, axes and steps do not have one length");
    }
    for (int i = 0; i < n; i++) {
        int64_t step = steps ? steps[i] : 1;
        int axis = tci_ox_axis(o, axes ? axes[i] : i, rank);
        if (step < 0 && ends[i] < 0 && tci_dim_is_known(tc_size(x, axis)) &&
            ends[i] < -tc_size(x, axis)) {
            x = tc_slice(x, axis, tci_ox_bound(starts[i], step, true), TC_END, step);
            continue;
        }
        x = tc_slice(x, axis, tci_ox_bound(starts[i], step, true),
                     tci_ox_bound(ends[i], step, false), step);
    }
    tci_ox_out(o, 0, x);
}

/* Operand i as 0-d, or a number of attribute `name`. */
static tc_tensor tci_ox_pad_value(const tci_ox_op *o, tc_dtype d)
{
    if (tci_ox_has(o, 2)) {
        return tc_reshape_at(tci_ox_in(o, 2), 0, NULL, o->here);
    }
    return tc_full(o->ctx, tci_ox_real(o, "value", 0), d);
}

TCI_OX_MAKE(pad)
{
    int n, n_axes = 0, rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *pads = tci_ox_list(o, 1, o->opset < 2 ? "paddings" : "pads", &n);
    const int64_t *axes = tci_ox_has(o, 3) ? tci_ox_need_ints(o, 3, "the axes", &n_axes) : NULL;
    const char *mode = tci_ox_text(o, "mode", "constant");
    tci_ox_sizes(o, x, &rank);
    n_axes = axes ? n_axes : rank;
    if (!pads || n != 2 * n_axes) {
        tci_ox_fail(o, TC_ERR_SHAPE, "%d pads for %d axes", n, n_axes);
    }
    const char *how = !strcmp(mode, "wrap") ? "circular" : mode;
    how = !strcmp(mode, "edge") ? "replicate" : how;
    bool constant = !strcmp(mode, "constant");
    tc_tensor value = constant ? tci_ox_pad_value(o, tc_dtype_of(x)) : TC_NONE;
    for (int i = 0; i < n_axes; i++) {
        int axis = tci_ox_axis(o, axes ? axes[i] : i, rank);
        int64_t a = pads[i], b = pads[i + n_axes];
        if (a == 0 && b == 0) {
            continue;
        }
        if (constant) {
            x = tc_pad(x, axis, a, b, value);
            continue;
        }
        bool crops = (tci_dim_is_known(a) && a < 0) || (tci_dim_is_known(b) && b < 0);
        if (crops) {
            x = tc_pad(x, axis, tc_dim_min(a, 0), tc_dim_min(b, 0), 0);
        }
        x = tc_pad_mode(x, axis, crops ? tc_dim_max(a, 0) : a, crops ? tc_dim_max(b, 0) : b, how);
    }
    tci_ox_out(o, 0, x);
}

TCI_OX_MAKE(center_crop_pad)
{
    int n, n_axes, rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *want = tci_ox_need_ints(o, 1, "the shape", &n);
    const int64_t *axes = tci_ox_ints(o, "axes", &n_axes);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    for (int i = 0; i < n; i++) {
        int axis = tci_ox_axis(o, axes && i < n_axes ? axes[i] : i, rank);
        int64_t more = tc_dim_sub(want[i], sizes[axis]);
        if (tci_dim_least(more) >= 0) {
            int64_t before = tc_dim_div(more, 2);
            x = tc_pad(x, axis, before, tc_dim_sub(more, before), 0);
        } else if (tci_dim_most(more) <= 0) {
            int64_t start = tc_dim_div(tc_dim_sub(0, more), 2);
            x = tc_slice(x, axis, start, tc_dim_add(start, want[i]), 1);
        } else {
            tci_ox_fail(o, TC_ERR_UNSUPPORTED, "axis %d is cut or padded as its size says", axis);
        }
    }
    tci_ox_out(o, 0, x);
}

/* ---- blocks ---- */

TCI_OX_MAKE(depth_to_space)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *z = tci_ox_sizes(o, x, &rank), b = tci_ox_int(o, "blocksize", 0);
    if (rank != 4 || b < 1 || b > TCI_OX_LIST_MOST) {
        tci_ox_fail(o, TC_ERR_SHAPE, "%d axes in blocks of %" PRId64, rank, b);
    }
    int64_t c = tc_dim_div(z[1], b * b);
    bool crd = !strcmp(tci_ox_text(o, "mode", "DCR"), "CRD");
    tc_tensor y = crd ? tc_permute(tc_reshape(x, z[0], c, b, b, z[2], z[3]), 0, 1, 4, 2, 5, 3)
                      : tc_permute(tc_reshape(x, z[0], b, b, c, z[2], z[3]), 0, 3, 4, 1, 5, 2);
    tci_ox_out(o, 0, tc_reshape(y, z[0], c, tc_dim_mul(z[2], b), tc_dim_mul(z[3], b)));
}

TCI_OX_MAKE(space_to_depth)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *z = tci_ox_sizes(o, x, &rank), b = tci_ox_int(o, "blocksize", 0);
    if (rank != 4 || b < 1 || b > TCI_OX_LIST_MOST) {
        tci_ox_fail(o, TC_ERR_SHAPE, "%d axes in blocks of %" PRId64, rank, b);
    }
    int64_t h = tc_dim_div(z[2], b), w = tc_dim_div(z[3], b);
    tc_tensor y = tc_reshape(x, z[0], z[1], h, b, w, b);
    bool crd = !strcmp(tci_ox_text(o, "mode", "DCR"), "CRD");
    y = crd ? tc_permute(y, 0, 1, 3, 5, 2, 4) : tc_permute(y, 0, 3, 5, 1, 2, 4);
    tci_ox_out(o, 0, tc_reshape(y, z[0], tc_dim_mul(z[1], b * b), h, w));
}

TCI_OX_MAKE(trilu)
{
    tc_tensor x = tci_ox_in(o, 0);
    int64_t k = tci_ox_has(o, 1) ? tci_ox_need_int(o, 1, "k") : 0;
    tci_ox_out(o, 0, tci_ox_int(o, "upper", 1) ? tc_triu(x, k) : tc_tril(x, k));
}

TCI_OX_MAKE(dropout)
{
    tc_tensor x = tci_ox_in(o, 0);
    double ratio = tci_ox_has(o, 1) && tci_ox_has(o, 2) ? tci_ox_need_real(o, 1, "the ratio") : 0;
    if (tci_ox_has(o, 2) && tci_ox_need_int(o, 2, "training_mode") && ratio != 0) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "dropout in training draws random numbers");
    }
    tci_ox_out(o, 0, x);
    if (tci_ox_wants(o, 1)) {
        int rank;
        const int64_t *sizes = tci_ox_sizes(o, x, &rank);
        tc_dtype d = o->opset < 10 ? tc_dtype_of(x) : TC_BOOL;
        tci_ox_out(o, 1, tc_expand_at(tc_full(o->ctx, 1, d), rank, sizes, o->here));
    }
}
