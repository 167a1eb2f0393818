/* tests/oracle_shape.h - adapters of movement, contraction, window, index and creation ops;
 * otherwise as oracle_math.h. */
#ifndef TC_TEST_ORACLE_SHAPE_H
#define TC_TEST_ORACLE_SHAPE_H

#include "oracle_math.h"

/* ---- shapes ---- */

static void orc_flatten(orc_case *c) /* also ravel */
{
    tc_tensor x = orc_tensor(c, "input");
    int64_t sizes[ORC_MAX_RANK], out[ORC_MAX_RANK];
    int rank = orc_sizes(x, sizes), n = 0;
    int first = orc_axis(x, orc_int(c, "start_dim", 0)),
        last = orc_axis(x, orc_int(c, "end_dim", -1));
    if (rank && (first < 0 || first >= rank || last < first || last >= rank)) {
        orc_skip(c, "argument start_dim: tc has no such call to refuse it");
        return;
    }
    for (int i = 0; i < rank; i++) {
        if (i > first && i <= last) {
            out[n - 1] = tc_dim_mul(out[n - 1], sizes[i]);
        } else {
            out[n++] = sizes[i];
        }
    }
    if (!rank) {
        out[n++] = 1;
    }
    orc_out(c, tc_reshape_at(x, n, out, TC_HERE));
}

static void orc_unflatten(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input");
    int64_t sizes[ORC_MAX_RANK], parts[ORC_MAX_RANK], out[2 * ORC_MAX_RANK];
    int rank = orc_sizes(x, sizes), n_parts = orc_ints(c, "sizes", parts, ORC_MAX_RANK), n = 0;
    int axis = orc_axis(x, orc_int(c, "dim", 0));
    for (int i = 0; i < rank; i++) {
        for (int k = 0; k < (i == axis ? n_parts : 1); k++) {
            out[n++] = i == axis ? parts[k] : sizes[i];
        }
    }
    orc_out(c, tc_reshape_at(x, n, out, TC_HERE));
}

static void orc_movedim(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input");
    int64_t from[ORC_MAX_RANK], to[ORC_MAX_RANK], order[ORC_MAX_RANK];
    bool taken[ORC_MAX_RANK + 1] = {false};
    int rank = tc_rank(x), n = orc_ints(c, "source", from, ORC_MAX_RANK);
    if (n != orc_ints(c, "destination", to, ORC_MAX_RANK)) {
        orc_skip(c, "argument source: tc_permute takes one order");
        return;
    }
    for (int i = 0; i < rank; i++) {
        order[i] = -1;
    }
    for (int i = 0; i < n; i++) {
        int a = orc_axis(x, from[i]), b = orc_axis(x, to[i]);
        if (a < 0 || a >= rank || b < 0 || b >= rank || taken[a] || order[b] >= 0) {
            orc_skip(c, "argument source: tc_permute takes one order");
            return;
        }
        order[b] = a;
        taken[a] = true;
    }
    for (int i = 0, next = 0; i < rank; i++) {
        while (order[i] < 0 && taken[next]) {
            next++;
        }
        order[i] = order[i] < 0 ? next++ : order[i];
    }
    orc_out(c, tc_permute_at(x, rank, order, TC_HERE));
}

/* T reverses all axes; mT and t swap the last two. */
static void orc_turn(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input");
    bool all = !strcmp(json_string(c->spec, "op"), "T");
    int64_t order[ORC_MAX_RANK];
    int rank = tc_rank(x);
    for (int i = 0; i < rank; i++) {
        order[i] = all ? rank - 1 - i : i;
    }
    if (!all && rank > 1) {
        order[rank - 1] = rank - 2;
        order[rank - 2] = rank - 1;
    }
    orc_out(c, tc_permute_at(x, rank, order, TC_HERE));
}

static void orc_squeeze(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input");
    int64_t axes[ORC_MAX_RANK], sizes[ORC_MAX_RANK], out[ORC_MAX_RANK];
    int n = 0, n_axes = orc_has(c, "dim") ? orc_ints(c, "dim", axes, ORC_MAX_RANK) : -1;
    if (n_axes == 1) {
        orc_out(c, tc_squeeze(x, orc_int_of(axes[0])));
        return;
    }
    for (int i = 0, rank = orc_sizes(x, sizes); i < rank; i++) {
        bool drop = n_axes < 0;
        for (int k = 0; k < n_axes; k++) {
            drop = drop || orc_axis(x, axes[k]) == i;
        }
        if (!drop || sizes[i] != 1) {
            out[n++] = sizes[i];
        }
    }
    orc_out(c, tc_reshape_at(x, n, out, TC_HERE));
}

static void orc_broadcast_tensors(orc_case *c)
{
    tc_tensor items[ORC_MAX_TENSORS];
    int64_t sizes[ORC_MAX_RANK];
    int n = orc_tensors(c, "*tensors", items, ORC_MAX_TENSORS);
    tc_tensor all = n ? tc_eq(items[0], items[0]) : TC_NONE;
    for (int i = 1; i < n; i++) {
        all = tc_logical_or(all, items[i]);
    }
    int rank = orc_sizes(all, sizes);
    for (int i = 0; i < n; i++) {
        orc_out(c, tc_expand_at(items[i], rank, sizes, TC_HERE));
    }
}

static void orc_flip(orc_case *c) /* also fliplr and flipud */
{
    const char *op = json_string(c->spec, "op");
    tc_tensor x = orc_tensor(c, "input");
    int64_t axes[ORC_MAX_RANK] = {strcmp(op, "fliplr") ? 0 : 1};
    int n = strcmp(op, "flip") ? 1 : orc_ints(c, "dims", axes, ORC_MAX_RANK);
    for (int i = 0; i < n; i++) {
        x = tc_flip(x, orc_int_of(axes[i]));
    }
    orc_out(c, x);
}

static void orc_roll(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input");
    int64_t shifts[ORC_MAX_RANK], axes[ORC_MAX_RANK], sizes[ORC_MAX_RANK];
    int n = orc_ints(c, "shifts", shifts, ORC_MAX_RANK), rank = orc_sizes(x, sizes);
    bool flat = !orc_has(c, "dims");
    if (!n || (!flat && orc_ints(c, "dims", axes, ORC_MAX_RANK) != n) || (flat && n != 1)) {
        orc_skip(c, "argument shifts: tc_roll takes one, along one axis");
        return;
    }
    x = flat ? tc_reshape(x, -1) : x;
    for (int i = 0; i < n; i++) {
        x = tc_roll(x, shifts[i], flat ? 0 : orc_int_of(axes[i]));
    }
    orc_out(c, flat ? tc_reshape_at(x, rank, sizes, TC_HERE) : x);
}

static void orc_rot90(orc_case *c)
{
    int64_t axes[ORC_MAX_RANK] = {0, 1};
    int n = orc_has(c, "dims") ? orc_ints(c, "dims", axes, ORC_MAX_RANK) : 2;
    if (n != 2) {
        orc_skip(c, "argument dims: tc_rot90 takes two axes");
        return;
    }
    orc_out(c, tc_rot90(orc_tensor(c, "input"), orc_int(c, "k", 1), orc_int_of(axes[0]),
                        orc_int_of(axes[1])));
}

static void orc_pad(orc_case *c) /* also constant_pad_nd; pairs of counts from the last axis on */
{
    tc_tensor x = orc_tensor(c, "input");
    int64_t counts[2 * ORC_MAX_RANK];
    int n = orc_ints(c, "pad", counts, 2 * ORC_MAX_RANK);
    const char *mode = orc_text(c, "mode", "constant");
    bool constant = !strcmp(mode, "constant");
    for (int i = 0; i + 1 < n; i += 2) {
        tc_arg value = orc_scalar(c, "value", 0);
        if (!orc_is_float(tc_dtype_of(x))) {
            value = tci_arg_int((long long)orc_number(c, "value", 0));
        }
        int axis = -1 - i / 2;
        x = constant ? tc_pad_at(x, axis, counts[i], counts[i + 1], value, TC_HERE)
                     : tc_pad_mode(x, axis, counts[i], counts[i + 1], mode);
    }
    orc_out(c, x);
}

/* ---- joining and cutting ---- */

/* x with at least so many axes: the first two new ones in front, if so asked, the others behind. */
static tc_tensor orc_of_rank(tc_tensor x, int least, bool front)
{
    for (int rank = tc_rank(x); rank >= 0 && rank < least; rank++) {
        x = tc_unsqueeze(x, front && rank < 2 ? 0 : -1);
    }
    return x;
}

/* cat, stack, hstack, vstack, dstack and column_stack. */
static void orc_cat(orc_case *c)
{
    const char *op = json_string(c->spec, "op");
    tc_tensor items[ORC_MAX_TENSORS];
    int n = orc_tensors(c, "tensors", items, ORC_MAX_TENSORS), least = 0;
    int axis = orc_axis_arg(c, "dim", 0);
    least = op[0] == 'v' || !strcmp(op, "column_stack") ? 2
            : op[0] == 'd'                              ? 3
            : op[0] == 'h'                              ? 1
                                                        : 0;
    for (int i = 0; i < n; i++) {
        if (!strcmp(op, "cat") && tc_rank(items[i]) == 1 && !tc_size(items[i], 0) && n > 1) {
            int kept = i ? 0 : 1; /* torch leaves out empty vectors whatever the others are */
            if (tc_rank(items[kept]) != 1) {
                items[i] = tc_slice(items[kept], axis, 0, 0, 1);
            }
        }
        items[i] = orc_of_rank(items[i], least, op[0] != 'c');
    }
    if (op[0] == 'h') {
        axis = n && tc_rank(items[0]) > 1 ? 1 : 0;
    }
    axis = op[0] == 'd' ? 2 : !strcmp(op, "column_stack") ? 1 : axis;
    tc_tensors list = {items, n};
    orc_out(c, tc_cat(list, axis));
}

/* Parts that end at the n marks along an axis, and the rest. */
static void orc_parts(orc_case *c, const tc_tensor *parts, int n)
{
    for (int i = 0; i < n; i++) {
        orc_out(c, parts[i]);
    }
}

/* Whether the parameter `how` is a number above 0 or a list of some. */
static bool orc_splits(orc_case *c)
{
    const json *how = orc_value(c, "how");
    if (!how || orc_is_tensor(how)) {
        orc_skip(c, "argument indices as a tensor");
        return false;
    }
    return true;
}

/* split (by size or sizes), split_with_sizes, chunk. */
static void orc_split(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input"), parts[ORC_MAX_TENSORS];
    int axis = orc_axis_arg(c, "dim", 0), n = 1;
    if (!orc_splits(c)) {
        return;
    }
    if (orc_value(c, "how")->kind == JSON_LIST) {
        int64_t sizes[ORC_MAX_TENSORS];
        n = orc_ints(c, "how", sizes, ORC_MAX_TENSORS);
        tc_split_with_sizes(x, n, sizes, axis, parts);
        orc_parts(c, parts, n);
        return;
    }
    const int64_t how = orc_int(c, "how", 1), size = orc_size(c, x, axis);
    const bool by_size = !strcmp(json_string(c->spec, "op"), "split");
    const int64_t step = by_size ? how : how > 0 ? (size + how - 1) / how : 0;
    n = step > 0 && size > step ? orc_int_of((size + step - 1) / step) : 1;
    if (by_size) {
        tc_split(x, how, axis, parts, n);
    } else { /* torch has no chunks of nothing, but for one */
        tc_chunk(x, orc_int_of(how), axis, parts);
        n = how > 0 ? n : 0;
    }
    orc_parts(c, parts, n);
}

/* tensor_split, hsplit, vsplit: by the ends of pieces, or so many that are as even as can be. */
static void orc_tensor_split(orc_case *c)
{
    const char *op = json_string(c->spec, "op");
    tc_tensor x = orc_tensor(c, "input");
    int axis = op[0] == 'h' ? tc_rank(x) > 1 : op[0] == 'v' ? 0 : orc_axis_arg(c, "dim", 0), n = 0;
    int64_t ends[ORC_MAX_TENSORS], size = orc_size(c, x, axis), from = 0, k = 0;
    if (!orc_splits(c)) {
        return;
    }
    if (orc_value(c, "how")->kind == JSON_LIST) {
        n = orc_ints(c, "how", ends, ORC_MAX_TENSORS);
    } else {
        k = orc_int(c, "how", 1);
        if (k <= 0 || (op[0] != 't' && size % k)) {
            orc_skip(c, "argument sections: tc has no such call to refuse it");
            return;
        }
        for (; n < k - 1 && n < ORC_MAX_TENSORS; n++) {
            ends[n] = (n ? ends[n - 1] : 0) + size / k + (n < size % k);
        }
    }
    for (int i = 0; i <= n; i++) {
        int64_t to = i < n ? ends[i] : TC_END;
        orc_out(c, tc_slice(x, axis, from, to, 1));
        from = to;
    }
}

static void orc_unbind(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input"), parts[ORC_MAX_TENSORS];
    int axis = orc_axis_arg(c, "dim", 0);
    int64_t size = orc_size(c, x, axis);
    int n = size < 0 ? 1 : size < ORC_MAX_TENSORS ? (int)size : ORC_MAX_TENSORS;
    tc_unbind(x, axis, parts, n);
    orc_parts(c, parts, n);
}

static void orc_narrow(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input");
    int axis = orc_axis_arg(c, "dim", 0);
    int64_t length = orc_int(c, "length", 0), size = orc_size(c, x, axis);
    if (orc_is_tensor(orc_value(c, "start")) && length >= 0) {
        tc_tensor places = tc_arange(c->ctx, 0, length, 1, TC_I64);
        tc_tensor start = orc_tensor(c, "start");
        if (tc_rank(start)) {
            orc_skip(c, "argument start of an axis: tc_add broadcasts it");
        }
        orc_out(c, tc_index_select(x, axis, tc_add(places, start)));
        return;
    }
    int64_t start = orc_int(c, "start", 0);
    start += start < 0 ? size : 0;
    if (tc_rank(x) == 0 || length < 0 || start < 0 || start > size - length) {
        orc_skip(c, "argument length: tc_slice cuts it to the axis");
    }
    orc_out(c, tc_slice(x, axis, start, start + length, 1));
}

static void orc_atleast(orc_case *c)
{
    tc_tensor items[ORC_MAX_TENSORS];
    int least = json_string(c->spec, "op")[8] - '0';
    const json *first = orc_value(c, "*tensors");
    int n = orc_tensors(c, "*tensors", items, ORC_MAX_TENSORS);
    for (int i = 0; first && i < n; i++) {
        orc_out(c, orc_of_rank(items[i], least, true));
    }
}

static void orc_meshgrid(orc_case *c)
{
    tc_tensor items[ORC_MAX_TENSORS], grids[ORC_MAX_TENSORS];
    tc_tensors list = {items, orc_tensors(c, "*tensors", items, ORC_MAX_RANK)};
    tc_meshgrid(list, !strcmp(orc_text(c, "indexing", "ij"), "xy"), grids);
    for (int i = 0; i < list.n; i++) {
        orc_out(c, grids[i]);
    }
}

/* ---- products ---- */

static void orc_inner(orc_case *c)
{
    tc_tensor a = orc_tensor(c, "input"), b = orc_tensor(c, "other");
    if (!tc_rank(a) || !tc_rank(b)) {
        orc_out(c, tc_mul(a, b));
        return;
    }
    int64_t sizes[2 * ORC_MAX_RANK];
    int n = 0;
    for (int i = 0; i + 1 < tc_rank(a); i++) {
        sizes[n++] = tc_size(a, i);
    }
    for (int i = 0; i + 1 < tc_rank(b); i++) {
        sizes[n++] = tc_size(b, i);
    }
    int64_t k = tc_size(a, -1);
    tc_tensor p = tc_reshape(a, k ? tc_count(a) / k : 0, k),
              q = tc_reshape(b, k ? tc_count(b) / k : 0, k);
    orc_out(c, tc_reshape_at(tc_einsum("ik,jk->ij", TC_TENSORS(p, q)), n, sizes, TC_HERE));
}

/* beta * input + alpha * product: addmm, addmv, addbmm, baddbmm, addr. */
static void orc_add_product(orc_case *c)
{
    const char *op = json_string(c->spec, "op");
    tc_tensor a = orc_tensor(c, "a"), b = orc_tensor(c, "b"), product;
    bool fractions = orc_scalar(c, "alpha", 1).kind == 3 || orc_scalar(c, "beta", 1).kind == 3;
    if (fractions && !orc_is_float(tc_dtype_of(a))) {
        orc_skip_argument(c, "alpha next to integers", orc_value(c, "alpha"));
    }
    if (!strcmp(op, "addbmm")) {
        product = tc_einsum("bik,bkj->ij", TC_TENSORS(a, b));
    } else {
        product = !strcmp(op, "addr") ? tc_mul(tc_unsqueeze(a, -1), b) : tc_matmul(a, b);
    }
    if (orc_has(c, "alpha")) {
        product = tc_mul_at(orc_of(product), orc_arg(c, "alpha"), TC_HERE);
    }
    tc_tensor input = orc_tensor(c, "input");
    if (tc_dtype_of(input) == TC_BOOL && (orc_has(c, "alpha") || orc_has(c, "beta"))) {
        orc_skip(c, "argument alpha of an integer next to bools: they become numbers in tc");
    }
    if (orc_has(c, "beta") && orc_number(c, "beta", 1) == 0) { /* nor do NaNs of input count */
        tc_tensor never = tc_full(c->ctx, 0, TC_BOOL);
        orc_out(c, tc_add(tc_where(never, input, 0), product));
        return;
    }
    orc_out(c, tc_add_at(orc_scaled(c, "input", "beta"), orc_of(product), TC_HERE));
}

static void orc_tensordot(orc_case *c)
{
    const json *dims = orc_value(c, "dims");
    tc_tensor a = orc_tensor(c, "input"), b = orc_tensor(c, "other");
    int of_a[ORC_MAX_RANK], of_b[ORC_MAX_RANK], n[2] = {0, 0};
    if (dims && dims->kind == JSON_LIST) {
        for (int which = 0; which < 2; which++) {
            const json *list = json_at(dims, which);
            n[which] = list && list->n < ORC_MAX_RANK ? list->n : 0;
            for (int i = 0; i < n[which]; i++) {
                (which ? of_b : of_a)[i] = orc_int_of(json_at(list, i)->integer);
            }
        }
    } else { /* the last axes of a, the first ones of b */
        n[0] = n[1] = orc_axis_arg(c, "dims", 2);
        for (int i = 0; i < n[0] && i < ORC_MAX_RANK; i++) {
            of_a[i] = i - n[0];
            of_b[i] = i;
        }
    }
    orc_out(c, tc_tensordot(a, b, TC_AXES_N(of_a, n[0]), TC_AXES_N(of_b, n[1])));
}

static void orc_linear(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input"), weight = orc_tensor(c, "weight");
    tc_tensor y = tc_matmul(x, tc_rank(weight) > 1 ? tc_transpose(weight, 0, 1) : weight);
    orc_out(c, orc_has(c, "bias") ? tc_add(y, orc_tensor(c, "bias")) : y);
}

static void orc_bilinear(orc_case *c)
{
    tc_tensor y = tc_einsum("...i,oij,...j->...o",
                            TC_TENSORS(orc_tensor(c, "input1"), orc_tensor(c, "weight"),
                                       orc_tensor(c, "input2")));
    orc_out(c, orc_has(c, "bias") ? tc_add(y, orc_tensor(c, "bias")) : y);
}

static void orc_vecdot(orc_case *c)
{
    int axis = orc_axis_arg(c, "dim", -1);
    orc_out(c,
            tc_sum(tc_mul(orc_tensor(c, "input"), orc_tensor(c, "other")), TC_AXES(axis), false));
}

static void orc_trace(orc_case *c)
{
    tc_tensor matrix = tc_einsum("ij->ij", TC_TENSORS(orc_tensor(c, "input"))); /* of two axes */
    orc_out(c, tc_sum(tc_diagonal(matrix, 0, 0, 1), TC_ALL, false));
}

static void orc_multi_dot(orc_case *c)
{
    tc_tensor items[ORC_MAX_TENSORS];
    int n = orc_tensors(c, "tensors", items, ORC_MAX_TENSORS);
    for (int i = 1; i < n; i++) {
        items[0] = tc_matmul(items[0], items[i]);
    }
    orc_out(c, n ? items[0] : TC_NONE);
}

static void orc_attention(orc_case *c)
{
    if (orc_number(c, "dropout_p", 0) != 0) {
        orc_skip_argument(c, "dropout_p", orc_value(c, "dropout_p"));
    }
    orc_out(c,
            tc_scaled_dot_product_attention(orc_tensor(c, "query"), orc_tensor(c, "key"),
                                            orc_tensor(c, "value"), orc_optional(c, "attn_mask"),
                                            orc_bool(c, "is_causal"), orc_number(c, "scale", 0)));
}

/* ---- indices ---- */

/* Without an axis: counted through all of x. */
static void orc_take_along_dim(orc_case *c)
{
    if (orc_has(c, "axis")) {
        orc_call(c, "take_along_dim");
        return;
    }
    orc_out(c, tc_gather(tc_reshape(orc_tensor(c, "x"), -1), 0,
                         tc_reshape(orc_tensor(c, "index"), -1)));
}

/* Rows of x along the axis, by an index of any shape, which takes the place of that axis. */
static tc_tensor orc_rows(tc_tensor x, int axis, tc_tensor index)
{
    int64_t sizes[2 * ORC_MAX_RANK];
    int n = 0;
    for (int i = 0; i < tc_rank(x); i++) {
        for (int k = 0; k < (i == axis ? tc_rank(index) : 1); k++) {
            sizes[n++] = i == axis ? tc_size(index, k) : tc_size(x, i);
        }
    }
    return tc_reshape_at(tc_index_select(x, axis, tc_reshape(index, -1)), n, sizes, TC_HERE);
}

static void orc_take(orc_case *c)
{
    orc_out(c, orc_rows(tc_reshape(orc_tensor(c, "input"), -1), 0, orc_tensor(c, "index")));
}

/* Rows of a table, those longer than max_norm made that long before they are read; no gradient
 * sees it, as in torch. */
static tc_tensor orc_renormed(orc_case *c, tc_tensor weight)
{
    if (!orc_has(c, "max_norm")) {
        return weight;
    }
    double most = orc_number(c, "max_norm", 1);
    tc_tensor length = tc_norm(weight, orc_number(c, "norm_type", 2), TC_AXES(-1), true);
    tc_tensor factor = tc_where(tc_gt(length, most), tc_div(most, tc_add(length, 1e-7)), 1);
    return tc_add(weight, tc_stop_gradient(tc_sub(tc_mul(weight, factor), weight)));
}

static void orc_embedding(orc_case *c)
{
    tc_tensor weight = orc_renormed(c, orc_tensor(c, "input"));
    if (tc_rank(weight) != 2) {
        orc_skip(c, "argument weight of %d axes: tc_index_select takes them", tc_rank(weight));
    }
    orc_out(c, orc_rows(weight, 0, orc_tensor(c, "index")));
}

/* How gradients are stored, and that they are divided by how often a row is read, is no part of
 * tc's call. */
static void orc_embedding_bag(orc_case *c)
{
    orc_out(c, tc_embedding_bag(orc_tensor(c, "index"), orc_renormed(c, orc_tensor(c, "weight")),
                                orc_optional(c, "offsets"), orc_text(c, "mode", "mean"),
                                orc_optional(c, "per_sample_weights"),
                                orc_bool(c, "include_last_offset"),
                                orc_has(c, "padding_idx") ? orc_int(c, "padding_idx", 0) : TC_END));
}

static void orc_one_hot(orc_case *c)
{
    int64_t n = orc_int(c, "num_classes", -1);
    if (n < 0) {
        orc_skip(c, "argument num_classes=-1: a shape that depends on data");
    }
    tc_tensor classes = tc_arange(c->ctx, 0, n < 0 ? 1 : n, 1, TC_I64);
    orc_out(c, tc_cast(tc_eq(tc_unsqueeze(orc_tensor(c, "input"), -1), classes), TC_I64));
}

/* ---- made from nothing ---- */

static void orc_arange(orc_case *c)
{
    bool one = !orc_has(c, "end");
    tc_arg start = one ? tci_arg_int(0) : orc_arg(c, "start");
    tc_arg stop = orc_arg(c, one ? "start" : "end"), step = orc_scalar(c, "step", 1);
    bool floats = start.kind == 3 || stop.kind == 3 || step.kind == 3;
    tc_dtype dtype = orc_dtype_arg(c, "dtype", floats ? TC_F32 : TC_I64);
    orc_out(c, tc_arange_at(c->ctx, start, stop, step, dtype, TC_HERE));
}

/* full, ones, zeros, and their _like and new_ forms, whose dtype is that of the first argument. */
static void orc_full(orc_case *c)
{
    const char *op = json_string(c->spec, "op");
    int64_t sizes[ORC_MAX_RANK + 1];
    bool like = strstr(op, "_like") != NULL, has_source = like || !strncmp(op, "new_", 4);
    tc_dtype otherwise = has_source ? tc_dtype_of(orc_tensor(c, "input")) : TC_F32;
    int n = like ? orc_sizes(orc_tensor(c, "input"), sizes + 1)
                 : orc_ints(c, "size", sizes + 1, ORC_MAX_RANK);
    tc_arg value = strstr(op, "ones") ? tci_arg_int(1) : tci_arg_int(0);
    if (strstr(op, "full")) {
        value = orc_arg(c, "value");
        otherwise = has_source        ? otherwise
                    : value.kind == 1 ? TC_BOOL
                    : value.kind == 2 ? TC_I64
                                      : TC_F32;
    }
    sizes[0] = orc_dtype_arg(c, "dtype", otherwise);
    if (sizes[0] == TC_BOOL && value.kind != 0) {
        value = tci_arg_bool(value.kind == 3 ? value.f != 0 : value.i != 0);
    } else if (!orc_is_float((tc_dtype)sizes[0]) && value.kind == 3) {
        value = tci_arg_int((long long)value.f);
    }
    orc_out(c, tc_full_at(c->ctx, value, n + 1, sizes, TC_HERE));
}

static void orc_eye(orc_case *c)
{
    int64_t n = orc_int(c, "n", 0), m = orc_int(c, "m", n);
    if (n < 0 || m < 0) {
        orc_out(c, tc_full(c->ctx, 0, TC_F32, n, m));
        return;
    }
    tc_tensor row = tc_unsqueeze(tc_arange(c->ctx, 0, n, 1, TC_I64), 1);
    tc_tensor same = tc_eq(row, tc_arange(c->ctx, 0, m, 1, TC_I64));
    orc_out(c, tc_cast(same, orc_dtype_arg(c, "dtype", TC_F32)));
}

#endif
