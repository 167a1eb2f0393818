/* tests/oracle_sets.h - torch's running values, orders, sets and linear algebra. */
#ifndef TC_TEST_ORACLE_SETS_H
#define TC_TEST_ORACLE_SETS_H

#include "oracle_index.h"

static void orc_running_extreme(orc_case *c)
{
    tc_tensor values, indices, x = orc_tensor(c, "input");
    const int axis = orc_axis_arg(c, "dim", 0);
    if (!strcmp(json_string(c->spec, "op"), "cummax")) {
        tc_cummax(x, axis, &values, &indices);
    } else {
        tc_cummin(x, axis, &values, &indices);
    }
    orc_out(c, values);
    orc_out_index(c, indices);
}

/* A dtype is that of the factors. */
static void orc_cumprod(orc_case *c)
{
    tc_tensor x = orc_in_dtype(c, orc_tensor(c, "input"), "dtype");
    orc_out(c, orc_in_dtype(c, tc_cumprod(x, orc_axis_arg(c, "dim", 0)), "dtype"));
}

/* Of all elements there is no index. */
static void orc_median(orc_case *c)
{
    tc_tensor values, indices, x = orc_tensor(c, "input");
    const bool all = !orc_has(c, "dim");
    x = all ? tc_reshape(x, -1) : x;
    if (!strcmp(json_string(c->spec, "op"), "nanmedian")) {
        tc_nanmedian(x, orc_axis_arg(c, "dim", 0), orc_bool(c, "keepdim"), &values, &indices);
    } else {
        tc_median(x, orc_axis_arg(c, "dim", 0), orc_bool(c, "keepdim"), &values, &indices);
    }
    orc_out(c, values);
    if (!all) {
        orc_out_index(c, indices);
    }
}

static void orc_mode(orc_case *c)
{
    tc_tensor values, indices;
    tc_mode(orc_tensor(c, "input"), orc_axis_arg(c, "dim", -1), orc_bool(c, "keepdim"), &values,
            &indices);
    orc_out(c, values);
    orc_out_index(c, indices);
}

/* A 1-d list of strides, of as many numbers as there are sizes. */
static void orc_as_strided(orc_case *c)
{
    int64_t sizes[ORC_MAX_RANK], strides[ORC_MAX_RANK];
    int n = orc_ints(c, "size", sizes, ORC_MAX_RANK);
    int n_strides = orc_ints(c, "stride", strides, ORC_MAX_RANK);
    orc_out(c, tc_as_strided_at(orc_tensor(c, "input"), n, sizes, n_strides, strides,
                                orc_int(c, "storage_offset", 0), TC_HERE));
}

static void orc_bincount(orc_case *c)
{
    tc_tensor weights = orc_optional(c, "weights");
    tc_tensor r = tc_bincount(orc_tensor(c, "input"), weights, orc_want_size(c, 0, 0));
    orc_out(c, weights.ctx ? tc_cast(r, orc_want_dtype(c, 0)) : r);
}

static void orc_isin(orc_case *c)
{
    tc_tensor list = orc_values_of(c, "test", TC_F64);
    tc_tensor in = tc_isin(orc_values_of(c, "input", tc_dtype_of(list)), list);
    orc_out(c, orc_bool(c, "invert") ? tc_logical_not(in) : in);
}

static void orc_unique(orc_case *c)
{
    tc_tensor values, inverse, counts, x = orc_tensor(c, "input");
    const bool all = !orc_has(c, "dim");
    int64_t sizes[ORC_MAX_RANK];
    const int rank = orc_sizes(x, sizes), axis = all ? 0 : orc_axis(x, orc_int(c, "dim", 0));
    const int64_t size = orc_want_size(c, 0, axis);
    x = all ? tc_reshape(x, -1) : x;
    if (!strcmp(json_string(c->spec, "op"), "unique")) {
        tc_unique(x, axis, size, &values, &inverse, &counts, NULL);
    } else {
        tc_unique_consecutive(x, axis, size, &values, &inverse, &counts, NULL);
    }
    orc_out(c, values);
    if (orc_bool(c, "return_inverse")) {
        orc_out(c, all ? tc_reshape_at(inverse, rank, sizes, TC_HERE) : inverse);
    }
    if (orc_bool(c, "return_counts")) {
        orc_out(c, counts);
    }
}

/* ---- differences ---- */

static tc_tensor orc_from_to(tc_tensor x, int axis, int64_t start, int64_t stop)
{
    return tc_slice(x, axis, start, stop, 1);
}

static void orc_diff(orc_case *c)
{
    const int axis = orc_axis_arg(c, "dim", -1);
    const int64_t n = orc_int(c, "n", 1);
    tc_tensor x = orc_tensor(c, "input");
    if (n < 0) {
        orc_skip(c, "argument n=-1: tc has no such call to refuse it");
    }
    if (n > 0 && orc_has(c, "prepend")) {
        x = tc_cat(TC_TENSORS(orc_tensor(c, "prepend"), x), axis);
    }
    if (n > 0 && orc_has(c, "append")) {
        x = tc_cat(TC_TENSORS(x, orc_tensor(c, "append")), axis);
    }
    for (int64_t i = 0; i < n; i++) {
        tc_tensor next = orc_from_to(x, axis, 1, TC_END), own = orc_from_to(x, axis, 0, -1);
        x = tc_dtype_of(x) == TC_BOOL ? tc_ne(next, own) : tc_sub(next, own);
    }
    orc_out(c, x);
}

/* The areas between neighbours; their sum, or running sum. */
static void orc_trapezoid(orc_case *c)
{
    const int axis = orc_axis_arg(c, "dim", -1);
    tc_tensor y = orc_tensor(c, "input");
    tc_tensor two = tc_add(orc_from_to(y, axis, 1, TC_END), orc_from_to(y, axis, 0, -1));
    if (orc_has(c, "x")) {
        tc_tensor x = orc_tensor(c, "x");
        const int own = tc_rank(x) == 1 ? 0 : axis;
        tc_tensor dx = tc_sub(orc_from_to(x, own, 1, TC_END), orc_from_to(x, own, 0, -1));
        if (tc_rank(x) == 1 && axis != -1 && axis != tc_rank(y) - 1) {
            int64_t sizes[ORC_MAX_RANK];
            for (int i = 0; i < tc_rank(y); i++) {
                sizes[i] = i == orc_axis(y, axis) ? tc_size(dx, 0) : 1;
            }
            dx = tc_reshape_at(dx, tc_rank(y), sizes, TC_HERE);
        }
        two = tc_mul(two, dx);
    } else if (orc_has(c, "dx")) {
        two = tc_mul_at(TC_ARG(two), orc_arg(c, "dx"), TC_HERE);
    }
    two = tc_div(two, 2);
    orc_out(c, strstr(json_string(c->spec, "op"), "cumulative") ? tc_cumsum(two, axis)
                                                                : tc_sum(two, TC_AXES(axis), 0));
}

/* ---- matrices ---- */

static void orc_kron(orc_case *c)
{
    tc_tensor a = orc_tensor(c, "input"), b = orc_tensor(c, "other");
    const int rank = tc_rank(a) > tc_rank(b) ? tc_rank(a) : tc_rank(b);
    int64_t sizes[ORC_MAX_RANK], apart[2][2 * ORC_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        int at_a = i - (rank - tc_rank(a)), at_b = i - (rank - tc_rank(b));
        int64_t n = at_a < 0 ? 1 : tc_size(a, at_a), m = at_b < 0 ? 1 : tc_size(b, at_b);
        apart[0][2 * i] = n;
        apart[1][2 * i + 1] = m;
        apart[0][2 * i + 1] = apart[1][2 * i] = 1;
        sizes[i] = tc_dim_mul(n, m);
    }
    tc_tensor product = tc_mul(tc_reshape_at(a, 2 * rank, apart[0], TC_HERE),
                               tc_reshape_at(b, 2 * rank, apart[1], TC_HERE));
    orc_out(c, tc_reshape_at(product, rank, sizes, TC_HERE));
}

/* a1 b2 - a2 b1, and so on around. */
static void orc_cross(orc_case *c)
{
    tc_tensor a = orc_tensor(c, "input"), b = orc_tensor(c, "other");
    int axis = orc_axis_arg(c, "dim", -1);
    if (!orc_has(c, "dim") && !strcmp(json_string(c->spec, "op"), "cross")) {
        for (axis = 0; axis + 1 < tc_rank(a) && tc_size(a, axis) != 3; axis++) {
        }
    }
    orc_out(c, tc_sub(tc_mul(tc_roll(a, -1, axis), tc_roll(b, -2, axis)),
                      tc_mul(tc_roll(a, -2, axis), tc_roll(b, -1, axis))));
}

static void orc_solve(orc_case *c)
{
    tc_tensor a = orc_tensor(c, "input"), b = orc_tensor(c, "b");
    if (orc_has(c, "left") && !orc_bool(c, "left")) {
        tc_tensor x = tc_solve(tc_transpose(a, -1, -2), tc_transpose(b, -1, -2));
        orc_out(c, tc_transpose(x, -1, -2));
        return;
    }
    orc_out(c, tc_solve(a, b));
}

static void orc_slogdet(orc_case *c)
{
    tc_tensor sign, log;
    tc_slogdet(orc_tensor(c, "input"), &sign, &log);
    orc_out(c, sign);
    orc_out(c, log);
}

#endif
