/* api/quantiles_covariance.c - quantiles, reductions that skip NaN, covariance and correlation.
 *
 * In: handles, axes, the user's call site. Out: a handle to the composition of public ops that
 * defines the op. A quantile interpolates linearly between two elements of the sorted row; its rank
 * is computed in f64, so it is exact for every row that fits in memory. */
#include "composite_helpers.h"

#include "operand.h"

#include <math.h>
#include <string.h>

#pragma push_macro("TC_HERE")
#undef TC_HERE
#define TC_HERE here

/* ---- reductions that skip NaN ---- */

TC_API tc_tensor tc_nansum_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_nansum", x, here)) {
        return m.bad;
    }
    return tci_made_end(&m, tc_sum(tc_where(tc_isnan(x), 0, x), axes, keepdims));
}

TC_API tc_tensor tc_nanmean_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_nanmean", x, here)) {
        return m.bad;
    }
    tc_tensor wide = tci_made_wide(&m, x), missing = tc_isnan(wide);
    tc_tensor count = tc_sum(tc_logical_not(missing), axes, keepdims);
    tc_tensor sum = tc_sum(tc_where(missing, 0, wide), axes, keepdims);
    return tci_made_round(&m, tc_div(sum, tc_cast(count, tc_dtype_of(wide))));
}

TC_API tc_tensor tc_count_nonzero_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_count_nonzero", x, here)) {
        return m.bad;
    }
    return tci_made_end(&m, tc_sum(tc_ne(x, 0), axes, keepdims));
}

/* ---- quantiles ---- */

typedef enum tci_quantile_rule {
    TCI_QUANTILE_LINEAR,
    TCI_QUANTILE_LOWER,
    TCI_QUANTILE_HIGHER,
    TCI_QUANTILE_NEAREST,
    TCI_QUANTILE_MIDPOINT,
    TCI_QUANTILE_RULES
} tci_quantile_rule;

static const char *const tci_quantile_names[TCI_QUANTILE_RULES] = {"linear", "lower", "higher",
                                                                   "nearest", "midpoint"};

/* The rule named by the text (NULL: linear), or TCI_QUANTILE_RULES. */
static tci_quantile_rule tci_quantile_rule_of(const char *name)
{
    int i = 0;
    while (name && i < TCI_QUANTILE_RULES && strcmp(name, tci_quantile_names[i]) != 0) {
        i++;
    }
    return (tci_quantile_rule)i;
}

/* The axes that are reduced, as a mask over those of x. False: *bad is poisoned. */
static bool tci_statistics_mask(const tci_made *m, tc_tensor x, tc_axes axes, int64_t *is_reduced,
                                tc_tensor *bad)
{
    const int rank = tc_rank(x);
    for (int i = 0; i < rank; i++) {
        is_reduced[i] = axes.all;
    }
    for (int i = 0; i < axes.n; i++) {
        const int axis = axes.items[i] < 0 ? axes.items[i] + rank : axes.items[i];
        if (axis < 0 || axis >= rank || is_reduced[axis]) {
            *bad = tci_made_fail(m, TC_ERR_AXIS, "axis %d of rank %d: expected distinct axes of x",
                                 axes.items[i], rank);
            return false;
        }
        is_reduced[axis] = true;
    }
    return true;
}

/* x with the reduced axes merged into one last axis. order, sizes: room for rank + 1 numbers. */
static tc_tensor tci_statistics_rows(tc_tensor x, const int64_t *is_reduced, int64_t *order,
                                     int64_t *sizes, tc_site here)
{
    const int rank = tc_rank(x);
    int kept = 0, n = 0;
    int64_t merged = 1;
    for (int i = 0; i < rank; i++) {
        if (!is_reduced[i]) {
            sizes[kept++] = tc_size(x, i);
            order[n++] = i;
        }
    }
    for (int i = 0; i < rank; i++) {
        if (is_reduced[i]) {
            merged = tc_dim_mul(merged, tc_size(x, i));
            order[n++] = i;
        }
    }
    sizes[kept] = merged;
    return tc_reshape_at(tc_permute_at(x, n, order, here), kept + 1, sizes, here);
}

/* The elements of sorted rows [..., n] at the positions [..., q] (f64, at least 0), by the rule. */
static tc_tensor tci_quantile_between(tc_tensor sorted, tc_tensor position, tci_quantile_rule rule,
                                      tc_site here)
{
    tc_tensor low = tc_floor(position), fraction = tc_sub(position, low), high = tc_ceil(position);
    low = rule == TCI_QUANTILE_HIGHER    ? high
          : rule == TCI_QUANTILE_NEAREST ? tc_round(position)
                                         : low;
    tc_tensor below = tc_take_along_dim(sorted, tc_cast(low, TC_I64), -1);
    if (rule != TCI_QUANTILE_LINEAR && rule != TCI_QUANTILE_MIDPOINT) {
        return below;
    }
    tc_tensor above = tc_take_along_dim(sorted, tc_cast(high, TC_I64), -1);
    tc_tensor apart = tc_sub(above, below);
    fraction = rule == TCI_QUANTILE_MIDPOINT ? tc_where(tc_eq(fraction, 0), 0.0, 0.5) : fraction;
    tc_tensor own = tc_logical_or(tc_eq(fraction, 0), tc_eq(below, above));
    fraction = tc_cast(fraction, tc_dtype_of(sorted));
    tc_tensor between = tc_add(below, tc_mul(apart, fraction));
    /* next to an infinity: the element itself where the position is its own, or both are equal,
     * else the infinity; numbers that are too far apart for their difference are weighted */
    tc_tensor far = tc_add(tc_mul(below, tc_sub(1, fraction)), tc_mul(above, fraction));
    return tc_where(tc_isfinite(apart), between, tc_where(own, below, far));
}

/* Axes of size 1 where x has reduced ones; first: the axis of the result that stands for axis 0. */
static tc_tensor tci_statistics_keep(tc_tensor y, const int64_t *is_reduced, int rank, int first,
                                     tc_site here)
{
    for (int i = 0; i < rank; i++) {
        y = is_reduced[i] ? tc_unsqueeze(y, first + i) : y;
    }
    return y;
}

/* w: room for 3 (rank + 1) numbers. */
static tc_tensor tci_quantile(const tci_made *m, tc_tensor x, tc_tensor q, tc_axes axes,
                              bool keepdims, tci_quantile_rule rule, bool skip_nan, int64_t *w)
{
    tc_site here = m->here;
    tc_tensor bad;
    const int rank = tc_rank(x);
    int64_t *is_reduced = w, *order = w + rank + 1, *sizes = order + rank + 1;
    if (!tci_statistics_mask(m, x, axes, is_reduced, &bad)) {
        return bad;
    }
    tc_tensor rows = tci_statistics_rows(tci_made_wide(m, x), is_reduced, order, sizes, here);
    const int64_t n = tc_size(rows, -1);
    if (!tci_dim_le(1, n)) {
        return tci_made_fail(m, TC_ERR_SHAPE, "%s elements are reduced: expected at least 1",
                             TCI_DIM_TEXT(n));
    }
    tc_tensor sorted, seen, position;
    tc_sort(rows, -1, false, &sorted, NULL); /* NaN comes last */
    seen = tc_sum(tc_logical_not(tc_isnan(rows)), TC_AXES(-1), true);
    const bool many = tc_rank(q) == 1;
    q = tc_cast(many ? q : tc_unsqueeze(q, 0), TC_F64);
    while (!tc_status_of(q) && tc_rank(q) < tc_rank(rows)) {
        q = tc_unsqueeze(q, 0);
    }
    position = skip_nan ? tc_mul(q, tc_cast(tc_maximum(tc_sub(seen, 1), 0), TC_F64))
                        : tc_mul(q, tc_dim_sub(n, 1));
    tc_tensor inside = tc_logical_and(tc_ge(q, 0), tc_le(q, 1));
    tc_tensor y = tci_quantile_between(sorted, tc_where(inside, position, 0.0), rule, here);
    tc_tensor known = skip_nan ? tc_gt(seen, 0) : tc_eq(seen, n);
    y = tc_where(tc_logical_and(inside, known), y, (double)NAN);
    y = many ? y : tc_squeeze(y, -1);
    for (int i = tc_rank(y) - 1; many && i > 0; i--) { /* the axis of q to the front */
        y = tc_transpose(y, i, i - 1);
    }
    return keepdims ? tci_statistics_keep(y, is_reduced, rank, many, here) : y;
}

static tc_tensor tci_quantile_call(const char *name, tc_tensor x, tc_arg q, tc_axes axes,
                                   bool keepdims, const char *interpolation, bool skip_nan,
                                   tc_site here)
{
    tci_made m;
    tci_words w;
    if (!tci_made_begin(&m, name, x, here)) {
        return m.bad;
    }
    if (!tci_made_list(&m, axes.items, axes.n, "axes")) {
        return m.bad;
    }
    const tci_quantile_rule rule = tci_quantile_rule_of(interpolation);
    if (rule == TCI_QUANTILE_RULES) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT,
                             "interpolation is \"%.40s\": expected linear, lower, higher, nearest "
                             "or midpoint",
                             interpolation);
    }
    const double number = q.kind == TCI_OPS_FLOAT ? q.f : (double)q.i;
    if (q.kind && !(number >= 0 && number <= 1)) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT, "q is %g: expected numbers in [0, 1]", number);
    }
    const int64_t f64[1] = {TC_F64};
    tc_tensor at = q.kind ? tc_full_at(m.ctx->handle, q, 1, f64, here) : q.tensor;
    if (tc_status_of(at)) {
        return tci_made_end(&m, at);
    }
    if (tc_rank(at) > 1) {
        return tci_made_fail(&m, TC_ERR_SHAPE,
                             "q has rank %d: expected a number, a 0-d or a 1-d "
                             "tensor",
                             tc_rank(at));
    }
    int64_t *room = tci_words_get(&m.ctx->graph, &w, 3 * (tc_rank(x) + 1));
    tc_tensor y = room ? tci_quantile(&m, x, at, axes, keepdims, rule, skip_nan, room)
                       : tci_made_fail(&m, TC_ERR_MEMORY, "out of memory");
    tci_words_put(&m.ctx->graph, &w, NULL);
    return tci_made_round(&m, y);
}

TC_API tc_tensor tc_quantile_at(tc_tensor x, tc_arg q, tc_axes axes, bool keepdims,
                                const char *interpolation, tc_site here)
{
    return tci_quantile_call("tc_quantile", x, q, axes, keepdims, interpolation, false, here);
}

TC_API tc_tensor tc_nanquantile_at(tc_tensor x, tc_arg q, tc_axes axes, bool keepdims,
                                   const char *interpolation, tc_site here)
{
    return tci_quantile_call("tc_nanquantile", x, q, axes, keepdims, interpolation, true, here);
}

/* ---- covariance ---- */

/* Rows are variables, columns observations with the weights `counts` and `importance`. */
static tc_tensor tci_covariance(const tci_made *m, tc_tensor x, double correction, tc_tensor counts,
                                tc_tensor importance)
{
    tc_site here = m->here;
    const int64_t n = tc_size(x, 1);
    tc_tensor weight = TC_NONE, total = tc_full(m->ctx->handle, n, TC_F64), norm = total, mean;
    const tc_dtype t = tc_dtype_of(x);
    if (!tci_is_none(counts)) {
        weight = tc_cast(counts, t);
    }
    if (!tci_is_none(importance)) {
        tc_tensor given = tc_cast(importance, t);
        weight = tci_is_none(weight) ? given : tc_mul(weight, given);
    }
    if (tci_is_none(weight)) {
        mean = tc_mean(x, TC_AXES(1), true);
        norm = tc_cast(tc_sub(total, correction), t);
    } else {
        total = tc_sum(weight, TC_ALL, false);
        mean = tc_div(tc_sum(tc_mul(x, weight), TC_AXES(1), true), total);
        tc_tensor less = tci_is_none(importance)
                             ? tc_full(m->ctx->handle, correction, t)
                             : tc_mul(tc_div(tc_sum(tc_mul(weight, tc_cast(importance, t)), TC_ALL,
                                                    false),
                                             total),
                                      correction);
        norm = tc_sub(total, less);
    }
    tc_tensor centred = tc_sub(x, mean);
    tc_tensor weighted = tci_is_none(weight) ? centred : tc_mul(centred, weight);
    return tc_div(tc_matmul(weighted, tc_transpose(centred, 0, 1)), tc_maximum(norm, 0));
}

/* x as a matrix of variables by observations; false: *bad tells. */
static bool tci_covariance_begin(tci_made *m, const char *name, tc_tensor x, tc_tensor *rows,
                                 tc_tensor *bad, tc_site here)
{
    if (!tci_made_begin(m, name, x, here)) {
        *bad = m->bad;
        return false;
    }
    if (tc_rank(x) > 2) {
        *bad = tci_made_fail(m, TC_ERR_SHAPE,
                             "x has rank %d: expected variables as rows and "
                             "observations as columns, or one row of them",
                             tc_rank(x));
        return false;
    }
    *rows = tci_made_wide(m, x);
    while (!tc_status_of(*rows) && tc_rank(*rows) < 2) {
        *rows = tc_unsqueeze(*rows, 0);
    }
    return true;
}

TC_API tc_tensor tc_cov_at(tc_tensor x, double correction, tc_tensor fweights, tc_tensor aweights,
                           tc_site here)
{
    tci_made m;
    tc_tensor rows, bad;
    if (!tci_covariance_begin(&m, "tc_cov", x, &rows, &bad, here)) {
        return bad;
    }
    const tc_tensor weights[2] = {fweights, aweights};
    for (int i = 0; i < 2; i++) {
        const bool given = !tci_is_none(weights[i]) && !tc_status_of(weights[i]);
        if (given && (tc_rank(weights[i]) != 1 || tc_size(weights[i], 0) != tc_size(rows, 1))) {
            return tci_made_fail(&m, TC_ERR_SHAPE, "%s: expected one for each of %s observations",
                                 i ? "aweights" : "fweights", TCI_DIM_TEXT(tc_size(rows, 1)));
        }
    }
    tc_tensor y = tci_covariance(&m, rows, correction, fweights, aweights);
    return tci_made_round(&m, tc_rank(x) < 2 ? tc_reshape_at(y, 0, NULL, here) : y);
}

TC_API tc_tensor tc_corrcoef_at(tc_tensor x, tc_site here)
{
    tci_made m;
    tc_tensor rows, bad;
    if (!tci_covariance_begin(&m, "tc_corrcoef", x, &rows, &bad, here)) {
        return bad;
    }
    tc_tensor y = tci_covariance(&m, rows, 1, TC_NONE, TC_NONE);
    tc_tensor deviation = tc_sqrt(tc_diagonal(y, 0, 0, 1));
    y = tc_div(tc_div(y, tc_unsqueeze(deviation, 1)), tc_unsqueeze(deviation, 0));
    y = tc_clamp(y, -1.0, 1.0);
    return tci_made_round(&m, tc_rank(x) < 2 ? tc_reshape_at(y, 0, NULL, here) : y);
}

#pragma pop_macro("TC_HERE")
