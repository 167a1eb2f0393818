/* graph/scatter.c - constructors of SCATTER nodes: writes at indices, the counterpart of GATHER.
 *
 * In: x, an index, and the source elements. Out: SCATTER nodes over one shape, with the dtype of x.
 * The differences between the public calls are resolved here: parts of src that no index names are
 * sliced off, a 1-d index is broadcast over whole slices, sums of f16 and bf16 are computed in f32
 * and rounded once. */
#include "build.h"

/* ---- checks ---- */

static bool tci_scatter_check(tci_graph *g, const tci_node *x, int at, const tci_node *index,
                              const tci_node *src)
{
    bool fits = x->rank == index->rank && x->rank == src->rank;
    if (x->dtype != src->dtype) {
        tci_graph_fail(g, TC_ERR_DTYPE, "x is %s and src %s: expected one dtype (tc_cast converts)",
                       tci_dtype_get((tc_dtype)x->dtype)->name,
                       tci_dtype_get((tc_dtype)src->dtype)->name);
        return false;
    }
    for (int i = 0; fits && i < x->rank; i++) {
        fits = tci_dim_le(index->shape[i], src->shape[i]) &&
               (i == at || tci_dim_le(index->shape[i], x->shape[i]));
    }
    if (!fits) {
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "index of shape %s does not fit x of shape %s and src of shape %s: expected "
                       "equal ranks, sizes no larger than src's and, off axis %d, no larger than "
                       "x's",
                       TCI_SHAPE_TEXT(index), TCI_SHAPE_TEXT(x), TCI_SHAPE_TEXT(src), at);
    }
    return fits;
}

/* ---- nodes ---- */

static tci_node *tci_scatter_node(tci_graph *g, tci_node *x, int at, tci_node *index, tci_node *src,
                                  tci_mode mode)
{
    tc_dtype t = (tc_dtype)x->dtype;
    for (int i = 0; src && i < x->rank; i++) {
        src = tci_build_slice(g, src, i, 0, index->shape[i], 1);
    }
    if ((mode == TCI_MODE_ADD || mode == TCI_MODE_MUL) && tci_dtype_is_half(t)) {
        x = tci_build_cast(g, x, TC_F32);
        src = tci_build_cast(g, src, TC_F32);
    }
    tci_node *in[3] = {x, index, src};
    const int64_t attr[3] = {at, mode, 0};
    if (!x || !src) {
        return NULL;
    }
    tci_node *r = tci_build_node(g, TCI_OP_SCATTER, (tc_dtype)x->dtype, x->rank, x->shape, 3, in, 3,
                                 attr);
    return tci_build_cast(g, tci_graph_claim(g, r), t);
}

TCI_FN tci_node *tci_build_scatter(tci_graph *g, tci_node *x, int axis, tci_node *index,
                                   tci_node *src, tci_mode mode)
{
    int at;
    if (!x || !index || !src || !tci_build_check_index(g, index) ||
        !tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    if (!x->rank) { /* counts as one axis of one element, as GATHER takes it */
        tci_dim one = 1;
        tci_node *line = tci_build_reshape(g, x, 1, &one);
        index = index->rank ? index : tci_build_reshape(g, index, 1, &one);
        src = src->rank ? src : tci_build_reshape(g, src, 1, &one);
        return tci_build_reshape(g, tci_build_scatter(g, line, 0, index, src, mode), 0, NULL);
    }
    if (!tci_scatter_check(g, x, at, index, src) ||
        !tci_build_can_read(g, "x", x, at, tci_node_count(index))) {
        return NULL;
    }
    return tci_scatter_node(g, x, at, index, src, mode);
}

TCI_FN tci_node *tci_build_index_put(tci_graph *g, tci_node *x, int axis, tci_node *index,
                                     tci_node *src, tci_mode mode)
{
    int at;
    tci_words w;
    if (!x || !index || !src || !tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    tci_dim n = tci_node_count(index);
    bool fits = index->rank <= 1 && src->rank == x->rank && (x->rank || n == 1);
    for (int i = 0; fits && i < x->rank; i++) {
        fits = src->shape[i] == (i == at ? n : x->shape[i]);
    }
    if (!fits) {
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "index of shape %s and src of shape %s do not fit x of shape %s: expected "
                       "an index of one axis, and src like x but along axis %d as long as index",
                       TCI_SHAPE_TEXT(index), TCI_SHAPE_TEXT(src), TCI_SHAPE_TEXT(x), at);
        return NULL;
    }
    tci_dim *line = tci_words_dims(g, &w, x->rank);
    if (!line) {
        return NULL;
    }
    for (int i = 0; i < x->rank; i++) {
        line[i] = i == at ? n : 1;
    }
    index = tci_build_reshape(g, index, x->rank, line);
    index = tci_build_expand(g, index, x->rank, src->shape);
    return tci_words_put(g, &w, tci_build_scatter(g, x, axis, index, src, mode));
}
