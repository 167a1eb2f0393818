/* api/split_stack.c - public ops that split a tensor or join tensors: split, chunk, unbind, stack.
 *
 * In: a tensor, or a list of tensors. Out: slices of it, stored in the caller's array, or their
 * concatenation. Design: all are movement ops, so a piece is a view: consumers index into the
 * original tensor, and nothing is copied. The caller passes the number of pieces, which is the size
 * of its array; every op reports a mismatch as an error. */
#include "composite_helpers.h"

#include "../base/alloc.h"

#pragma push_macro("TC_HERE")
#undef TC_HERE
#define TC_HERE here

/* False: x has no such axis, and the pieces are poisoned. */
static bool tci_pieces_begin(tci_made *m, const char *name, tc_tensor x, int axis, tc_tensor *parts,
                             int n, tc_site here)
{
    tc_tensor whole = TC_NONE;
    bool begun = tci_made_begin(m, name, x, here) && tci_made_list(m, parts, n, "the parts");
    if (begun) {
        whole = tc_slice(x, axis, 0, TC_END, 1);
        m->bad = tc_status_of(whole) ? tci_made_end(m, whole) : whole;
        begun = !tc_status_of(whole);
    }
    for (int i = 0; !begun && parts && i < n; i++) {
        parts[i] = m->bad;
    }
    return begun;
}

static void tci_pieces_refuse(const tci_made *m, tc_tensor x, int axis, const char *pieces,
                              tc_tensor *parts, int n)
{
    const int64_t size = tc_size(x, axis);
    tc_tensor bad = tci_made_fail(m, TC_ERR_ARGUMENT, "axis %d has size %s: %s do not make it up",
                                  axis, TCI_DIM_TEXT(size), pieces);
    for (int i = 0; i < n; i++) {
        parts[i] = bad;
    }
}

/* Each of `size` elements, but for what the axis lacks. */
static void tci_pieces_cut(const tci_made *m, tc_tensor x, int64_t size, int axis, tc_tensor *parts,
                           int n)
{
    tc_site here = m->here;
    for (int i = 0; i < n; i++) {
        parts[i] = tc_slice(x, axis, tc_dim_mul(i, size), tc_dim_mul(i + 1, size), 1);
    }
    tci_made_end(m, x);
}

TC_API void tc_split_at(tc_tensor x, int64_t size, int axis, tc_tensor *parts, int n, tc_site here)
{
    tci_made m;
    if (!tci_pieces_begin(&m, "tc_split", x, axis, parts, n, here)) {
        return;
    }
    const int64_t length = tc_size(x, axis);
    const bool whole = n == 1 && tci_dim_le(length, size);
    if (n < 1 || !tci_dim_le(1, size) ||
        !(whole || (tci_dim_lt(tc_dim_mul(n - 1, size), length) &&
                    tci_dim_le(length, tc_dim_mul(n, size))))) {
        char pieces[120];
        snprintf(pieces, sizeof(pieces), "%d pieces of %s", n, TCI_DIM_TEXT(size));
        tci_pieces_refuse(&m, x, axis, pieces, parts, n);
        return;
    }
    tci_pieces_cut(&m, x, size, axis, parts, n);
}

TC_API void tc_split_with_sizes_at(tc_tensor x, int n, const int64_t *sizes, int axis,
                                   tc_tensor *parts, tc_site here)
{
    tci_made m;
    int64_t end = 0;
    if (!tci_pieces_begin(&m, "tc_split_with_sizes", x, axis, parts, n, here)) {
        return;
    }
    if (!tci_made_list(&m, sizes, n, "the sizes")) {
        for (int i = 0; i < n; i++) {
            parts[i] = m.bad;
        }
        return;
    }
    for (int i = 0; i < n; i++) {
        end = tci_dim_le(0, sizes[i]) && end >= 0 ? tc_dim_add(end, sizes[i]) : -1;
    }
    if (end != tc_size(x, axis)) {
        tci_pieces_refuse(&m, x, axis, "the sizes", parts, n);
        return;
    }
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        end = tc_dim_add(at, sizes[i]);
        parts[i] = tc_slice(x, axis, at, end, 1);
        at = end;
    }
    tci_made_end(&m, x);
}

TC_API void tc_chunk_at(tc_tensor x, int chunks, int axis, tc_tensor *parts, tc_site here)
{
    tci_made m;
    if (!tci_pieces_begin(&m, "tc_chunk", x, axis, parts, chunks, here)) {
        return;
    }
    if (chunks < 1) {
        tci_made_fail(&m, TC_ERR_ARGUMENT, "%d chunks: expected 1 or more", chunks);
        return;
    }
    const int64_t size = tc_dim_div(tc_dim_add(tc_size(x, axis), chunks - 1), chunks);
    tci_pieces_cut(&m, x, size, axis, parts, chunks);
}

TC_API void tc_unbind_at(tc_tensor x, int axis, tc_tensor *parts, int n, tc_site here)
{
    tci_made m;
    if (!tci_pieces_begin(&m, "tc_unbind", x, axis, parts, n, here)) {
        return;
    }
    if (tc_size(x, axis) != n) {
        char pieces[48];
        snprintf(pieces, sizeof(pieces), "%d pieces", n);
        tci_pieces_refuse(&m, x, axis, pieces, parts, n);
        return;
    }
    for (int i = 0; i < n; i++) {
        parts[i] = tc_select(x, axis, i);
    }
    tci_made_end(&m, x);
}

TC_API tc_tensor tc_select_at(tc_tensor x, int axis, int64_t index, tc_site here)
{
    tci_made m;
    tc_tensor y;
    if (!tci_pieces_begin(&m, "tc_select", x, axis, &y, 1, here)) {
        return y;
    }
    const int64_t size = tc_size(x, axis);
    const bool back = tci_dim_is_known(index) && index < 0;
    const int64_t at = back ? tc_dim_add(size, index) : index;
    if (!tci_dim_le(0, at) || !tci_dim_lt(at, size)) {
        return tci_made_fail(&m, TC_ERR_ARGUMENT, "there is no element %s of axis %d of size %s",
                             TCI_DIM_TEXT(index), axis, TCI_DIM_TEXT(size));
    }
    return tci_made_end(&m, tc_squeeze(tc_slice(x, axis, at, tc_dim_add(at, 1), 1), axis));
}

TC_API tc_tensor tc_stack_at(tc_tensors xs, int axis, tc_site here)
{
    tci_made m;
    if (xs.n < 1 || !xs.items) {
        return tc_cat(xs, axis); /* which tells that there is none */
    }
    if (!tci_made_begin(&m, "tc_stack", xs.items[0], here)) {
        return m.bad;
    }
    const tci_node *first = tci_handle_node(xs.items[0]);
    for (int i = 1; i < xs.n && first; i++) {
        const tci_node *x = tci_handle_node(xs.items[i]);
        if (x && !tci_build_same_shape(x->rank, x->shape, first->rank, first->shape)) {
            return tci_made_fail(&m, TC_ERR_SHAPE,
                                 "operand %d has shape %s and operand 1 %s: expected one shape",
                                 i + 1, TCI_SHAPE_TEXT(x), TCI_SHAPE_TEXT(first));
        }
    }
    tc_tensor *items = (tc_tensor *)tci_heap_get((size_t)xs.n * sizeof(*items));
    if (!items) {
        return tci_made_fail(&m, TC_ERR_MEMORY, "out of memory");
    }
    for (int i = 0; i < xs.n; i++) {
        items[i] = tc_unsqueeze(xs.items[i], axis);
    }
    tc_tensor y = tc_cat(TC_TENSORS_N(items, xs.n), axis);
    tci_heap_free(items);
    return tci_made_end(&m, y);
}

TC_API tc_tensor tc_tile_at(tc_tensor x, int n, const int64_t *repeats, tc_site here)
{
    tci_made m;
    tci_words w;
    if (!tci_made_begin(&m, "tc_tile", x, here) || !tci_made_list(&m, repeats, n, "the repeats")) {
        return m.bad;
    }
    const int own = tc_rank(x), rank = TCI_MAX(own, n);
    int64_t *line = tci_words_get(&m.ctx->graph, &w, 5 * rank); /* [1, a, 1, b, ...] */
    if (!line) {
        return tci_made_fail(&m, TC_ERR_MEMORY, "out of memory");
    }
    int64_t *spread = line + 2 * rank, *sizes = spread + 2 * rank;
    for (int i = 0; i < rank; i++) {
        const int of_x = i - (rank - own), of_n = i - (rank - n);
        line[2 * i] = 1;
        line[2 * i + 1] = of_x < 0 ? 1 : tc_size(x, of_x);
        spread[2 * i] = of_n < 0 ? 1 : repeats[of_n];
        spread[2 * i + 1] = line[2 * i + 1];
        sizes[i] = tc_dim_mul(spread[2 * i], line[2 * i + 1]);
    }
    bool fits = true;
    for (int i = 0; i < n; i++) {
        fits = fits && tci_dim_le(0, repeats[i]);
    }
    tc_tensor y = tc_expand_at(tc_reshape_at(x, 2 * rank, line, here), 2 * rank, spread, here);
    y = fits ? tc_reshape_at(y, rank, sizes, here)
             : tci_made_fail(&m, TC_ERR_ARGUMENT, "a number of repeats is negative");
    tci_words_put(&m.ctx->graph, &w, NULL);
    return tci_made_end(&m, y);
}

#pragma pop_macro("TC_HERE")
