/* api/segment.c - segment_reduce (reduces consecutive segments of an axis, given their lengths) and
 * unravel_index (flat to multi-dimensional indices).
 *
 * In: handles, the user's call site. Out: a handle to the composition of public ops that defines
 * the op. The segment of an element is the number of segments that end at or before it (a search in
 * the cumulative sum of lengths), so a segmented reduction is a scatter by segment numbers. */
#include "composite_helpers.h"

#include <math.h>
#include <string.h>

#pragma push_macro("TC_HERE")
#undef TC_HERE
#define TC_HERE here

typedef enum tci_segment_kind {
    TCI_SEGMENT_SUM,
    TCI_SEGMENT_MEAN,
    TCI_SEGMENT_MAX,
    TCI_SEGMENT_MIN,
    TCI_SEGMENT_PROD,
    TCI_SEGMENT_KINDS
} tci_segment_kind;

static tci_segment_kind tci_segment_kind_of(const char *name)
{
    static const char *const names[TCI_SEGMENT_KINDS] = {"sum", "mean", "max", "min", "prod"};
    int i = 0;
    while (i < TCI_SEGMENT_KINDS && (!name || strcmp(name, names[i]) != 0)) {
        i++;
    }
    return (tci_segment_kind)i;
}

/* The value of an empty segment. */
static double tci_segment_initial(tci_segment_kind kind)
{
    switch (kind) {
    case TCI_SEGMENT_MAX: return -(double)INFINITY;
    case TCI_SEGMENT_MIN: return (double)INFINITY;
    case TCI_SEGMENT_PROD: return 1;
    case TCI_SEGMENT_SUM:
    case TCI_SEGMENT_MEAN:
    case TCI_SEGMENT_KINDS: break;
    }
    return 0;
}

/* rows [k, ...] reduced into `into` [n + 1, ...] by the number [k, 1, ...] of the segment of each
 * row. */
static tc_tensor tci_segment_scatter(tc_tensor into, tc_tensor number, tc_tensor rows,
                                     tci_segment_kind kind, tc_site here)
{
    number = tci_made_like(number, rows, here);
    switch (kind) {
    case TCI_SEGMENT_MAX: return tc_scatter_max(into, 0, number, rows);
    case TCI_SEGMENT_MIN: return tc_scatter_min(into, 0, number, rows);
    case TCI_SEGMENT_PROD: return tc_scatter_prod(into, 0, number, rows);
    case TCI_SEGMENT_SUM:
    case TCI_SEGMENT_MEAN:
    case TCI_SEGMENT_KINDS: break;
    }
    return tc_scatter_add(into, 0, number, rows);
}

static tc_tensor tci_segment_reduce(const tci_made *m, tc_tensor x, tci_segment_kind kind,
                                    tc_tensor lengths, int axis)
{
    tc_site here = m->here;
    const int64_t n = tc_size(lengths, 0);
    tc_tensor rows = tc_transpose(tci_made_wide(m, x), 0, axis);
    tc_tensor place = tc_arange(m->ctx->handle, 0, tc_size(rows, 0), 1, TC_I64);
    tc_tensor ends = tc_cumsum(tc_cast(lengths, TC_I64), 0);
    tc_tensor number = tc_searchsorted(ends, place, true); /* n: beyond the last segment */
    while (tc_rank(number) < tc_rank(rows) && !tc_status_of(number)) {
        number = tc_unsqueeze(number, -1);
    }
    const double initial = tci_segment_initial(kind);
    tc_tensor into = tc_pad(tc_slice(rows, 0, 0, 0, 1), 0, 0, tc_dim_add(n, 1), initial);
    /* a row beyond the last segment is neutral: an extreme that is NaN has NaN gradients */
    rows = tc_where(tc_lt(number, n), rows, initial);
    tc_tensor y = tc_slice(tci_segment_scatter(into, number, rows, kind, here), 0, 0, n, 1);
    if (kind == TCI_SEGMENT_MEAN) {
        tc_tensor count = tc_cast(lengths, tc_dtype_of(y));
        while (tc_rank(count) < tc_rank(y) && !tc_status_of(count)) {
            count = tc_unsqueeze(count, -1);
        }
        y = tc_div(y, count);
    }
    return tc_transpose(y, 0, axis);
}

TC_API tc_tensor tc_segment_reduce_at(tc_tensor x, const char *reduce, tc_tensor lengths, int axis,
                                      tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_segment_reduce", x, here)) {
        return m.bad;
    }
    const tci_segment_kind kind = tci_segment_kind_of(reduce);
    if (kind == TCI_SEGMENT_KINDS) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT,
                             "reduce is \"%.40s\": expected sum, mean, max, min or prod",
                             reduce ? reduce : "NULL");
    }
    if (tc_status_of(lengths)) {
        return tci_made_end(&m, lengths);
    }
    if (tc_rank(lengths) != 1 || !tci_dtype_is_int(tc_dtype_of(lengths)) || tc_rank(x) < 1) {
        return tci_made_fail(&m, TC_ERR_SHAPE,
                             "x has rank %d, lengths are %s of rank %d: expected "
                             "an axis of x, and one integer for each segment",
                             tc_rank(x), tci_dtype_get(tc_dtype_of(lengths))->name,
                             tc_rank(lengths));
    }
    return tci_made_round(&m, tci_segment_reduce(&m, x, kind, lengths, axis));
}

TC_API tc_tensor tc_unravel_index_at(tc_tensor index, int n, const int64_t *sizes, tc_site here)
{
    tci_made m;
    if (!tci_made_begin(&m, "tc_unravel_index", index, here)) {
        return m.bad;
    }
    if (!tci_made_list(&m, sizes, n, "sizes")) {
        return m.bad;
    }
    if (!tci_dtype_is_int(tc_dtype_of(index)) || n < 1) {
        return tci_made_fail(&m, n < 1 ? TC_ERR_ARGUMENT : TC_ERR_DTYPE,
                             "index is %s, for an "
                             "array of rank %d: expected integers, and rank 1 or more",
                             tci_dtype_get(tc_dtype_of(index))->name, n);
    }
    tc_tensor left = tc_cast(index, TC_I64), parts = TC_NONE;
    int64_t all = 1;
    for (int i = 0; i < n; i++) {
        all = tc_dim_mul(all, sizes[i]);
    }
    left = tc_where(tc_lt(left, 0), tc_add(left, all), left);
    for (int i = n - 1; i >= 0; i--) {
        tc_tensor part = tc_unsqueeze(i ? tc_remainder(left, sizes[i]) : left, 0);
        parts = i == n - 1 ? part : tc_cat(TC_TENSORS(part, parts), 0);
        left = tc_floor_divide(left, sizes[i]);
    }
    return tci_made_end(&m, parts);
}

#pragma pop_macro("TC_HERE")
