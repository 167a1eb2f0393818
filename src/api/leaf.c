/* api/leaf.c - leaf tensors: named inputs, zero-copy views of user memory, and copies of it.
 *
 * In: pointers, dtypes, sizes, strides. Out: INPUT and DATA nodes.
 *
 * A DATA node is a storage, element strides, and the offset of element 0...0, so borrowed memory of
 * any layout (broadcast, reversed, a window of a larger array) is read in place. The storage begins
 * at the lowest address that the strides reach. Memory has known sizes; only tc_input has symbolic
 * ones. */
#include "internal.h"

#include <inttypes.h>
#include <string.h>

enum { TCI_LEAF_AXES = 64 };

/* Range of elements of a strided view, relative to element 0...0. */
typedef struct tci_leaf_span {
    int64_t lo, hi; /* hi exclusive; both 0 when there are no elements */
} tci_leaf_span;

static bool tci_leaf_check(tci_frame *f, tc_dtype dtype, int rank, const int64_t *sizes)
{
    return tci_frame_list(f, sizes, rank, "the sizes") &&
           tci_build_check_shape(&f->ctx->graph, rank, tci_dim_list(sizes), dtype);
}

TC_API tc_tensor tc_input_at(tc_ctx *ctx, const char *name, int n, const int64_t *dtype_and_sizes,
                             tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_input", here);
    if (!name) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "the name is NULL");
    }
    if (!tci_frame_dtype(&f, "the name", dtype_and_sizes, n) ||
        !tci_leaf_check(&f, (tc_dtype)dtype_and_sizes[0], n - 1, dtype_and_sizes + 1)) {
        return tci_frame_end(&f, NULL);
    }
    tci_graph *g = &f.ctx->graph;
    size_t bytes = strlen(name) + 1;
    char *copy = tci_graph_resize(g, NULL, 0, bytes);
    if (!copy) {
        return tci_frame_end(&f, NULL);
    }
    memcpy(copy, name, bytes);
    tci_node *x = tci_graph_node(g, TCI_OP_INPUT, (tc_dtype)dtype_and_sizes[0], n - 1,
                                 tci_dim_list(dtype_and_sizes + 1), 0, NULL, 0, NULL);
    if (x) {
        x->name = copy;
    } else {
        tci_graph_resize(g, copy, bytes, 0);
    }
    return tci_frame_end(&f, x);
}

/* False: the extent overflows. */
static bool tci_leaf_span_of(int rank, const int64_t *sizes, const int64_t *strides, int bytes,
                             tci_leaf_span *span)
{
    const int64_t limit = INT64_MAX / 4 / bytes;
    span->lo = span->hi = 0;
    for (int i = 0; i < rank; i++) {
        if (!sizes[i]) {
            span->lo = span->hi = 0;
            return true;
        }
        int64_t steps = sizes[i] - 1, stride = strides[i];
        if (steps && (stride > limit / steps || stride < -(limit / steps))) {
            return false;
        }
        int64_t reach = steps * stride;
        *(reach < 0 ? &span->lo : &span->hi) += reach;
        if (span->lo < -limit || span->hi > limit) {
            return false;
        }
    }
    span->hi++;
    return true;
}

/* Row-major strides of the sizes; shapes were checked, so nothing overflows. */
static void tci_leaf_dense(int rank, const int64_t *sizes, int64_t *strides)
{
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= TCI_MAX(sizes[i], 1);
    }
}

/* Axes of a view that are traversed: those of size 1 go, and one that continues the axis before it
 * is part of that. As their sizes are 2 or more and the elements can be counted there are few. */
typedef struct tci_leaf_walk {
    int n;
    int64_t sizes[TCI_LEAF_AXES], strides[TCI_LEAF_AXES], index[TCI_LEAF_AXES];
} tci_leaf_walk;

/* False: there are no elements. */
static bool tci_leaf_walk_of(tci_leaf_walk *w, int rank, const int64_t *sizes,
                             const int64_t *strides)
{
    w->n = 0;
    for (int i = 0; i < rank; i++) {
        int last = w->n - 1;
        if (!sizes[i]) {
            return false;
        }
        if (sizes[i] == 1) {
            continue;
        }
        if (w->n && w->strides[last] == strides[i] * sizes[i]) {
            w->sizes[last] *= sizes[i];
            w->strides[last] = strides[i];
        } else {
            w->sizes[w->n] = sizes[i];
            w->strides[w->n] = strides[i];
            w->index[w->n++] = 0;
        }
    }
    return true;
}

TCI_FN void tci_leaf_copy(char *to, const char *from, size_t bytes, int rank, const int64_t *sizes,
                          const int64_t *strides)
{
    tci_leaf_walk w;
    if (!tci_leaf_walk_of(&w, rank, sizes, strides)) {
        return;
    }
    bool dense = w.n && w.strides[w.n - 1] == 1;
    size_t run = bytes * (dense ? (size_t)w.sizes[w.n - 1] : 1);
    int top = dense ? w.n - 2 : w.n - 1;
    int64_t at = 0; /* in elements */
    for (int i = 0; i >= 0; to += run) {
        memcpy(to, from + at * (int64_t)bytes, run);
        for (i = top; i >= 0; i--) {
            at += w.strides[i];
            if (++w.index[i] < w.sizes[i]) {
                break;
            }
            at -= w.strides[i] * w.sizes[i];
            w.index[i] = 0;
        }
    }
}

TCI_FN tci_node *tci_leaf_data(tci_graph *g, tc_dtype dtype, int rank, const int64_t *sizes,
                               tci_storage *storage, const int64_t *strides, int64_t offset)
{
    size_t bytes = (size_t)rank * sizeof(*strides);
    tci_dim *own = strides && rank ? tci_graph_resize(g, NULL, 0, bytes) : NULL;
    bool ok = storage && (own || !strides || !rank);
    const tci_dim *shape = tci_dim_list(sizes);
    tci_node *x = ok ? tci_graph_node(g, TCI_OP_DATA, dtype, rank, shape, 0, NULL, 0, NULL) : NULL;
    if (!x) {
        if (own) {
            tci_graph_resize(g, own, bytes, 0);
        }
        tci_storage_release(storage);
        if (!storage) {
            tci_graph_fail(g, TC_ERR_MEMORY, "out of memory for the tensor's data");
        }
        return NULL;
    }
    if (own) {
        memcpy(own, strides, bytes);
    }
    x->storage = storage;
    x->strides = own;
    x->offset = offset;
    return x;
}

/* Memory has sizes that are numbers. */
static bool tci_leaf_is_known(tci_frame *f, int rank, const int64_t *sizes)
{
    for (int i = 0; i < rank; i++) {
        if (!tci_dim_is_known(sizes[i])) {
            tci_frame_fail(f, TC_ERR_SHAPE,
                           "size %s of axis %d has no value before a run: expected a number (or a "
                           "tc_input)",
                           TCI_DIM_TEXT(sizes[i]), i);
            return false;
        }
    }
    return true;
}

static bool tci_leaf_has_data(tci_frame *f, const void *data, tc_dtype dtype, int64_t n)
{
    if (!data && n) {
        tci_frame_fail(f, TC_ERR_ARGUMENT,
                       "the data pointer is NULL: expected %" PRId64 " elements of %s", n,
                       tci_dtype_get(dtype)->name);
    }
    return !f->failed;
}

/* Common part of leaves with memory: checks, and the extent of the view. False: failed. */
static bool tci_leaf_view(tci_frame *f, const void *data, tc_dtype dtype, int rank,
                          const int64_t *sizes, const int64_t *strides, tci_words *dense,
                          tci_leaf_span *span)
{
    int64_t given = dtype;
    if (!tci_frame_dtype(f, "the data", &given, 1) || !tci_leaf_check(f, dtype, rank, sizes) ||
        !tci_leaf_is_known(f, rank, sizes)) {
        return false;
    }
    int64_t *own = tci_words_get(&f->ctx->graph, dense, rank);
    if (!own) {
        return false;
    }
    tci_leaf_dense(rank, sizes, own);
    bool fits = tci_leaf_span_of(rank, sizes, strides ? strides : own, tci_dtype_get(dtype)->bytes,
                                 span);
    if (!fits) {
        tci_frame_fail(f, TC_ERR_LIMIT, "the strides reach beyond what memory can address");
    }
    if (!fits || !tci_leaf_has_data(f, data, dtype, span->hi - span->lo)) {
        tci_words_put(&f->ctx->graph, dense, NULL);
        return false;
    }
    return true;
}

TCI_FN tci_node *tci_leaf_borrow(tci_frame *f, const void *data, tc_dtype dtype, int rank,
                                 const int64_t *sizes, const int64_t *strides, tci_owner *owner)
{
    tci_words dense;
    tci_leaf_span span;
    if (!tci_leaf_view(f, data, dtype, rank, sizes, strides, &dense, &span)) {
        return NULL;
    }
    tci_graph *g = &f->ctx->graph;
    if (!tci_dtype_is_aligned(dtype, data)) {
        const tci_dtype_info *info = tci_dtype_get(dtype);
        tci_frame_fail(f, TC_ERR_ARGUMENT,
                       "the data is at %p: expected an address that is a multiple of %d, as %s "
                       "needs (tc_copy_in takes any)",
                       data, info->align, info->name);
        return tci_words_put(g, &dense, NULL);
    }
    bool is_dense = !strides || !rank ||
                    !memcmp(strides, dense.items, (size_t)rank * sizeof(*strides));
    int bytes = tci_dtype_get(dtype)->bytes;
    const char *lowest = data ? (const char *)data + span.lo * bytes : NULL;
    tci_storage *storage = tci_storage_borrow(lowest, (span.hi - span.lo) * bytes);
    tci_node *x = tci_leaf_data(g, dtype, rank, sizes, storage, is_dense ? NULL : strides,
                                -span.lo);
    if (x) {
        storage->owner = owner;
    }
    return tci_words_put(g, &dense, x);
}

TCI_FN bool tci_leaf_is_memory_of(tci_frame *f, const tc_buf *data, tc_dtype dtype)
{
    bool half = tci_dtype_is_valid(dtype) && tci_dtype_is_half(dtype) && data->dtype == TC_U16;
    bool bytes = data->dtype == TC_U8 || data->dtype == -1;
    if (tci_dtype_is_valid(dtype) && data->dtype != (int)dtype && !half && !bytes) {
        bool known = tci_dtype_is_valid(data->dtype);
        tci_frame_fail(f, TC_ERR_DTYPE,
                       "given memory of %s, expected %s (a void * is memory of any dtype)",
                       known ? tci_dtype_get((tc_dtype)data->dtype)->name : "no known dtype",
                       tci_dtype_get(dtype)->name);
    }
    return !f->failed;
}

TC_API tc_tensor tc_borrow_as_at(tc_ctx *ctx, tc_buf data, tc_dtype dtype, int rank,
                                 const int64_t *sizes, const int64_t *strides, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_borrow", here);
    bool fits = tci_leaf_is_memory_of(&f, &data, dtype);
    return tci_frame_end(&f, fits
                                 ? tci_leaf_borrow(&f, data.data, dtype, rank, sizes, strides, NULL)
                                 : NULL);
}

TC_API tc_tensor tc_borrow_at(tc_ctx *ctx, const void *data, tc_dtype dtype, int rank,
                              const int64_t *sizes, const int64_t *strides, tc_site here)
{
    return tc_borrow_as_at(ctx, TC_BUF(data, 0), dtype, rank, sizes, strides, here);
}

TCI_FN tci_node *tci_leaf_copy_in(tci_frame *f, const void *data, tc_dtype dtype, int rank,
                                  const int64_t *sizes, const int64_t *strides)
{
    tci_words dense;
    tci_leaf_span span;
    if (!tci_leaf_view(f, data, dtype, rank, sizes, strides, &dense, &span)) {
        return NULL;
    }
    tci_graph *g = &f->ctx->graph;
    const char *device = tci_backend_hides(data);
    if (device) {
        tci_frame_fail(f, TC_ERR_BUFFER,
                       "given memory of a %s device, expected memory of the host "
                       "(programs of that device take what tc_borrow made of it)",
                       device);
        return tci_words_put(g, &dense, NULL);
    }
    size_t bytes = tci_dtype_get(dtype)->bytes;
    int64_t count = span.hi > span.lo;
    for (int i = 0; i < rank; i++) {
        count *= sizes[i];
    }
    tci_storage *storage = tci_storage_make(count * (int64_t)bytes);
    if (storage && count) {
        tci_leaf_copy(storage->data, data, bytes, rank, sizes, strides ? strides : dense.items);
    }
    return tci_words_put(g, &dense, tci_leaf_data(g, dtype, rank, sizes, storage, NULL, 0));
}

TCI_FN tci_node *tci_leaf_zeros(tci_frame *f, tc_dtype dtype, int rank, const int64_t *sizes)
{
    if (f->failed || !tci_leaf_check(f, dtype, rank, sizes) || !tci_leaf_is_known(f, rank, sizes)) {
        return NULL;
    }
    int64_t bytes = tci_dtype_get(dtype)->bytes;
    for (int i = 0; i < rank; i++) {
        bytes *= sizes[i];
    }
    tci_storage *storage = tci_storage_make(bytes);
    if (storage) {
        memset(storage->data, 0, (size_t)bytes);
    }
    return tci_leaf_data(&f->ctx->graph, dtype, rank, sizes, storage, NULL, 0);
}

TC_API tc_tensor tc_copy_in_as_at(tc_ctx *ctx, tc_buf data, tc_dtype dtype, int rank,
                                  const int64_t *sizes, const int64_t *strides, tc_site here)
{
    tci_frame f = tci_frame_on(ctx, "tc_copy_in", here);
    bool fits = tci_leaf_is_memory_of(&f, &data, dtype);
    return tci_frame_end(&f, fits ? tci_leaf_copy_in(&f, data.data, dtype, rank, sizes, strides)
                                  : NULL);
}

TC_API tc_tensor tc_copy_in_at(tc_ctx *ctx, const void *data, tc_dtype dtype, int rank,
                               const int64_t *sizes, const int64_t *strides, tc_site here)
{
    return tc_copy_in_as_at(ctx, TC_BUF(data, 0), dtype, rank, sizes, strides, here);
}

/* ---- tc_touch ---- */

/* The set of x and what was made of it. Inputs are older than their users and outer scopes older
 * than inner ones, so one traversal from the oldest node to the newest sees every input before its
 * users. False: out of memory. */
static bool tci_leaf_find_stale(tci_table *stale, const tci_node *x, tci_node *const *newest_first,
                                uint32_t n)
{
    bool ok = true;
    for (uint32_t k = n; ok && k-- > 0;) {
        const tci_node *at = newest_first[k];
        bool is_stale = at == x;
        for (int i = 0; i < at->n_in && !is_stale; i++) {
            is_stale = tci_table_has(stale, at->in[i]);
        }
        ok = !is_stale || tci_table_add(stale, at);
    }
    return ok;
}

/* Forgets the values that were computed from x: all, or none when memory runs out. */
static bool tci_leaf_forget(tci_graph *g, tci_node *x)
{
    size_t bytes = (size_t)g->n_nodes * sizeof(tci_node *);
    tci_node **newest_first = tci_graph_resize(g, NULL, 0, bytes);
    if (!newest_first) {
        return false;
    }
    uint32_t n = 0;
    for (int s = g->n_scopes - 1; s >= 0; s--) {
        for (tci_node *at = g->scope_heads[s]; at; at = at->scope_next) {
            newest_first[n++] = at;
        }
    }
    tci_table stale = tci_table_on(g, sizeof(bool));
    bool ok = tci_leaf_find_stale(&stale, x, newest_first, n);
    for (uint32_t k = 0; ok && k < n; k++) {
        tci_node *at = newest_first[k];
        if (at != x && at->storage && tci_table_has(&stale, at)) {
            tci_storage_release(at->storage);
            at->storage = NULL;
        }
    }
    tci_table_free(&stale);
    tci_graph_resize(g, newest_first, bytes, 0);
    return ok;
}

TC_API tc_status tc_touch_at(tc_tensor t, tc_site here)
{
    tci_node *x = tci_handle_node(t);
    if (!x) {
        return tc_status_of(t);
    }
    if (x->op != TCI_OP_DATA) {
        return tci_fail(t, "tc_touch", here, TC_ERR_ARGUMENT,
                        "expected a tensor of tc_borrow or tc_copy_in: given one of %s",
                        TCI_MAKER(x));
    }
    tc_status status = tci_param_touch(x->storage);
    if (status) {
        return tci_fail(t, "tc_touch", here, status, "the device that has the value failed");
    }
    return tci_leaf_forget(&tci_ctx_of(t.ctx)->graph, x)
               ? TC_OK
               : tci_fail(t, "tc_touch", here, TC_ERR_MEMORY, "out of memory");
}
