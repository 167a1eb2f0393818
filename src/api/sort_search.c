/* api/sort_search.c - public ops: sort, argsort, topk, order statistics (kthvalue, median, mode),
 * cumulative ops, histograms, unique and isin.
 *
 * In: handles, axes, the user's call site. Out: handles to the nodes, or poisoned ones; of several
 * results only the requested ones. */
#include "operand.h"
#include "ops.h"

/* ---- orders ---- */

/* The results of tc_topk, or with k NULL of tc_sort: the indices, or the values at them. */
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

/* Values along an axis, and their indices. */
#define TCI_OPS_PLACED(name, takes, ...)                                                           \
    TC_API void tc_##name##_at takes                                                               \
    {                                                                                              \
        TCI_OPS_STORE(values, "tc_" #name, tci_build_##name(g, node, __VA_ARGS__, keepdims, true)) \
        TCI_OPS_STORE(indices, "tc_" #name,                                                        \
                      tci_build_##name(g, node, __VA_ARGS__, keepdims, false))                     \
    }
TCI_OPS_PLACED(kthvalue,
               (tc_tensor x, int64_t k, int axis, bool keepdims, tc_tensor *values,
                tc_tensor *indices, tc_site here),
               axis, k)
TCI_OPS_PLACED(median,
               (tc_tensor x, int axis, bool keepdims, tc_tensor *values, tc_tensor *indices,
                tc_site here),
               axis)
TCI_OPS_PLACED(nanmedian,
               (tc_tensor x, int axis, bool keepdims, tc_tensor *values, tc_tensor *indices,
                tc_site here),
               axis)
TCI_OPS_PLACED(mode,
               (tc_tensor x, int axis, bool keepdims, tc_tensor *values, tc_tensor *indices,
                tc_site here),
               axis)
#undef TCI_OPS_PLACED

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

/* ---- running values ---- */

TCI_OPS_ONE(cumsum, (tc_tensor x, int axis, tc_site here), tci_build_scan, node, axis, false,
            TCI_MODE_ADD)
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

/* ---- counts and sets ---- */

TCI_OPS_ONE(histc, (tc_tensor x, int64_t bins, double low, double high, tc_site here),
            tci_build_histc, node, bins, low, high)

TC_API tc_tensor tc_bincount_at(tc_tensor x, tc_tensor weights, int64_t size, tc_site here)
{
    tci_frame f;
    tci_node *n = tci_ops_one(&f, "tc_bincount", x, here);
    tci_node *w = n ? tci_frame_optional(&f, weights, "the weights") : NULL;
    return tci_frame_end(&f, f.failed ? NULL : tci_build_bincount(&f.ctx->graph, n, w, size));
}

TCI_OPS_BOTH(isin, x, list, (tc_tensor x, tc_tensor list, tc_site here), tci_build_isin, node,
             other)

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
