/* onnx/export_stablehlo_index.c - exports gathers, scatters, sorts and scans (running reductions)
 * as StableHLO.
 *
 * In: GATHER, SCATTER, TOPK and SCAN nodes. Out: gather, scatter and sort of StableHLO; a SCAN as
 * log2(n) shifted copies that are combined (Hillis and Steele, "Data parallel algorithms", 1986).
 * An index that is EXPANDed along an axis selects whole slices there, like rows of an embedding. */
#include "export_stablehlo.h"

/* Layout of the axes of an index tensor. */
typedef struct tci_hlo_places {
    int axis, rank;
    tci_hlo_shape shape; /* of the index as it is indexed with: without the axes of slices */
    const char *name;    /* its name, i64, from 0 on */
    int64_t *slices;
    int n_slices; /* axes that are whole */
    int64_t *points;
    int n_points; /* the others, but `axis` */
} tci_hlo_places;

/* True if axis d of the index is an EXPANDed one as large as x's. */
static bool tci_hlo_is_slice(const tci_hlo *h, const tci_node *index, const tci_node *x, int d,
                             int axis)
{
    return d != axis && index->op == TCI_OP_EXPAND && index->in[0]->shape[d] == 1 &&
           tci_hlo_size(h, index->shape[d]) == tci_hlo_size(h, x->shape[d]);
}

static tci_hlo_places tci_hlo_places_of(tci_hlo *h, const tci_node *x, const tci_node *index,
                                        int axis, const char *name)
{
    tci_scratch *s = h->walk->s;
    tci_hlo_places p = {.axis = axis, .rank = index->rank};
    p.slices = TCI_NEW_ARRAY(s, int64_t, p.rank + 1);
    p.points = TCI_NEW_ARRAY(s, int64_t, p.rank + 1);
    int64_t *kept = TCI_NEW_ARRAY(s, int64_t, p.rank + 1);
    int n = 0;
    for (int d = 0; d < p.rank; d++) {
        bool whole = tci_hlo_is_slice(h, index, x, d, axis);
        if (whole) {
            p.slices[p.n_slices++] = d;
        } else {
            kept[n++] = tci_hlo_size(h, index->shape[d]);
        }
        if (!whole && d != axis) {
            p.points[p.n_points++] = d;
        }
    }
    p.shape = tci_hlo_shape_known(h, n, kept);
    if (p.n_slices) { /* the same elements once; other axes of size 1 may be EXPANDed too */
        const tci_node *from = index->in[0];
        tci_hlo_shape own = tci_hlo_shape_of(h, from->rank, from->shape);
        int64_t *few = TCI_NEW_ARRAY(s, int64_t, p.rank + 1);
        n = 0;
        for (int d = 0; d < p.rank; d++) {
            if (!tci_hlo_is_slice(h, index, x, d, axis)) {
                few[n++] = own.sizes[d];
            }
        }
        const tci_hlo_shape once = tci_hlo_shape_known(h, n, few);
        name = tci_hlo_reshape(h, (tc_dtype)index->dtype, &own, &once, tci_ox_named(h->walk, from));
        name = tci_hlo_broadcast(h, (tc_dtype)index->dtype, &once, &p.shape, NULL, name);
    }
    name = tci_hlo_convert(h, &p.shape, (tc_dtype)index->dtype, TC_I64, name);
    const char *below = tci_hlo_compare(h, "LT", &p.shape, TC_I64, name,
                                        tci_hlo_whole(h, &p.shape, TC_I64, 0));
    const char *size = tci_hlo_whole(h, &p.shape, TC_I64, tci_hlo_size(h, x->shape[axis]));
    const char *from_end = tci_hlo_binary(h, "add", &p.shape, TC_I64, name, size);
    p.name = tci_hlo_select(h, &p.shape, TC_I64, below, from_end, name);
    return p;
}

/* Axis of the index tensor, without those of slices, that corresponds to axis d of the node. */
static int64_t tci_hlo_index_axis(const tci_hlo_places *p, int64_t d)
{
    int64_t at = d;
    for (int i = 0; i < p->n_slices; i++) {
        at -= p->slices[i] < d;
    }
    return at;
}

/* x cut to the sizes that the index has off the axis. */
static const char *tci_hlo_cut(tci_hlo *h, const tci_node *n, const tci_hlo_shape *from,
                               const tci_hlo_shape *to, const char *x)
{
    int64_t *start = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 1);
    int64_t *step = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 1);
    bool same = true;
    for (int i = 0; i < n->rank; i++) {
        step[i] = 1;
        same = same && from->sizes[i] == to->sizes[i];
    }
    return same ? x : tci_hlo_slice(h, (tc_dtype)n->dtype, from, to, start, step, x);
}

TCI_FN const char *tci_hlo_gather_out(tci_hlo *h, const tci_node *n, const char *const *in)
{
    tci_scratch *s = h->walk->s;
    int axis = (int)n->attr[0];
    const tci_hlo_shape whole = tci_hlo_shape_of(h, n->rank, n->in[0]->shape);
    const tci_hlo_places p = tci_hlo_places_of(h, n->in[0], n->in[1], axis, in[1]);
    int64_t *sizes = TCI_NEW_ARRAY(s, int64_t, n->rank + 1);
    int64_t *slice = TCI_NEW_ARRAY(s, int64_t, n->rank + 1);
    if (!whole.sizes[axis]) { /* nothing can be read: the result is empty */
        const tci_hlo_shape none = tci_hlo_shape_of(h, n->rank, n->shape);
        return tci_hlo_whole(h, &none, (tc_dtype)n->dtype, 0);
    }
    int64_t *batch = TCI_NEW_ARRAY(s, int64_t, n->rank + 1);
    for (int d = 0; d < n->rank; d++) {
        sizes[d] = d == axis ? whole.sizes[d] : tci_hlo_size(h, n->shape[d]);
        slice[d] = 1;
    }
    for (int i = 0; i < p.n_slices; i++) {
        slice[p.slices[i]] = sizes[p.slices[i]];
    }
    for (int i = 0; i < p.n_points; i++) {
        batch[i] = tci_hlo_index_axis(&p, p.points[i]);
    }
    const tci_hlo_shape from = tci_hlo_shape_known(h, n->rank, sizes);
    const char *x = tci_hlo_cut(h, n, &whole, &from, in[0]);
    return tci_hlo_let(h,
                       "\"stablehlo.gather\"(%s, %s) <{dimension_numbers = #stablehlo.gather<"
                       "offset_dims = %s, collapsed_slice_dims = [%d], operand_batching_dims = %s, "
                       "start_indices_batching_dims = %s, start_index_map = [%d], "
                       "index_vector_dim = %d>, indices_are_sorted = false, slice_sizes = %s}> : "
                       "(%s, %s) -> %s",
                       x, p.name, tci_hlo_list(h, p.n_slices, p.slices), axis,
                       tci_hlo_list(h, p.n_points, p.points), tci_hlo_list(h, p.n_points, batch),
                       axis, p.shape.rank, tci_hlo_array(h, n->rank, slice),
                       tci_hlo_type(h, (tc_dtype)n->dtype, &from),
                       tci_hlo_type(h, TC_I64, &p.shape), tci_hlo_node_type(h, n));
}

/* The coordinates of each update: those of the axes of points, and the index. i64, [..., k]. */
static const char *tci_hlo_coordinates(tci_hlo *h, const tci_hlo_places *p, int64_t *to,
                                       tci_hlo_shape *shape)
{
    tci_scratch *s = h->walk->s;
    int rank = p->shape.rank, n = 0;
    int64_t *sizes = TCI_NEW_ARRAY(s, int64_t, rank + 2);
    const char **parts = TCI_NEW_ARRAY(s, const char *, rank + 2);
    const char **types = TCI_NEW_ARRAY(s, const char *, rank + 2);
    for (int d = 0; d < rank; d++) {
        sizes[d] = p->shape.sizes[d];
    }
    sizes[rank] = 1;
    const tci_hlo_shape one = tci_hlo_shape_known(h, rank + 1, sizes);
    for (int i = 0; i < p->n_points; i++, n++) {
        to[n] = p->points[i];
        parts[n] = tci_hlo_let(h, "stablehlo.iota dim = %lld : %s",
                               (long long)tci_hlo_index_axis(p, to[n]),
                               tci_hlo_type(h, TC_I64, &one));
    }
    to[n] = p->axis;
    parts[n++] = tci_hlo_reshape(h, TC_I64, &p->shape, &one, p->name);
    for (int i = 0; i < n; i++) {
        types[i] = tci_hlo_type(h, TC_I64, &one);
    }
    int64_t *joined = TCI_NEW_ARRAY(s, int64_t, rank + 2);
    for (int d = 0; d <= rank; d++) {
        joined[d] = d < rank ? sizes[d] : n;
    }
    *shape = tci_hlo_shape_known(h, rank + 1, joined);
    return tci_hlo_join(h, rank, n, parts, types, tci_hlo_type(h, TC_I64, shape));
}

/* The statement of a region that joins a and b by a mode. */
static const char *tci_hlo_mode(tci_hlo *h, int mode, tc_dtype t, const char *a, const char *b)
{
    static const int ops[] = {[TCI_MODE_ADD] = TCI_OP_SUM,
                              [TCI_MODE_MIN] = TCI_OP_MIN,
                              [TCI_MODE_MAX] = TCI_OP_MAX,
                              [TCI_MODE_MUL] = TCI_OP_PROD};
    const tci_hlo_shape point = {0, NULL, ""};
    return mode == TCI_MODE_SET ? b
                                : tci_hlo_binary(h, tci_hlo_joins(ops[mode], t), &point, t, a, b);
}

TCI_FN const char *tci_hlo_scatter_out(tci_hlo *h, const tci_node *n, const char *const *in)
{
    tci_scratch *s = h->walk->s;
    tc_dtype t = (tc_dtype)n->dtype;
    const tci_hlo_places p = tci_hlo_places_of(h, n, n->in[1], (int)n->attr[0], in[1]);
    int64_t *to = TCI_NEW_ARRAY(s, int64_t, n->rank + 1);
    tci_hlo_shape shape;
    const char *at = tci_hlo_coordinates(h, &p, to, &shape), *dtype = tci_hlo_dtype(t);
    const char *r = tci_hlo_name(h), *a = tci_hlo_name(h), *b = tci_hlo_name(h);
    int k = p.n_points + 1;
    int64_t *inserted = TCI_NEW_ARRAY(s, int64_t, n->rank + 1);
    for (int i = 0, d = 0; d < n->rank; d++) {
        bool whole = false;
        for (int j = 0; j < p.n_slices; j++) {
            whole = whole || p.slices[j] == d;
        }
        if (!whole) {
            inserted[i++] = d;
        }
    }
    tci_str_printf(&h->out,
                   "  %s = \"stablehlo.scatter\"(%s, %s, %s) <{scatter_dimension_numbers "
                   "= #stablehlo.scatter<update_window_dims = %s, inserted_window_dims = %s, "
                   "scatter_dims_to_operand_dims = %s, index_vector_dim = %d>, indices_are_sorted "
                   "= false, unique_indices = false}> ({\n  ^bb0(%s: tensor<%s>, %s: tensor<%s>"
                   "):\n",
                   r, in[0], at, in[2], tci_hlo_list(h, p.n_slices, p.slices),
                   tci_hlo_list(h, k, inserted), tci_hlo_list(h, k, to), shape.rank - 1, a, dtype,
                   b, dtype);
    const char *y = tci_hlo_mode(h, (int)n->attr[1], t, a, b);
    tci_str_printf(&h->out, "  stablehlo.return %s : tensor<%s>\n  }) : (%s, %s, %s) -> %s\n", y,
                   dtype, tci_hlo_node_type(h, n), tci_hlo_type(h, TC_I64, &shape),
                   tci_hlo_node_type(h, n->in[2]), tci_hlo_node_type(h, n));
    return r;
}

/* Values and positions in order, by a stable sort; then the first of the positions. */
TCI_FN const char *tci_hlo_topk_out(tci_hlo *h, const tci_node *n, const char *x)
{
    const tci_hlo_shape shape = tci_hlo_shape_of(h, n->rank, n->in[0]->shape);
    const tci_hlo_shape point = {0, NULL, ""}, to = tci_hlo_shape_of(h, n->rank, n->shape);
    tc_dtype t = (tc_dtype)n->in[0]->dtype;
    const char *type = tci_hlo_type(h, t, &shape), *places = tci_hlo_type(h, TC_I64, &shape);
    const char *at = tci_hlo_let(h, "stablehlo.iota dim = %lld : %s", (long long)n->attr[0],
                                 places);
    const char *r = tci_hlo_name(h), *a = tci_hlo_name(h), *b = tci_hlo_name(h);
    const char *dtype = tci_hlo_dtype(t);
    tci_str_printf(&h->out,
                   "  %s:2 = \"stablehlo.sort\"(%s, %s) <{dimension = %lld : i64, "
                   "is_stable = true}> ({\n  ^bb0(%s: tensor<%s>, %s: tensor<%s>, %s: tensor<i64>, "
                   "%s: tensor<i64>):\n",
                   r, x, at, (long long)n->attr[0], a, dtype, b, dtype, tci_hlo_name(h),
                   tci_hlo_name(h));
    const char *before = tci_hlo_before(h, &point, t, n->attr[1], n->attr[1], a, b);
    tci_str_printf(&h->out, "  stablehlo.return %s : tensor<i1>\n  }) : (%s, %s) -> (%s, %s)\n",
                   before, type, places, type, places);
    return tci_hlo_cut(h, n, &shape, &to, tci_scratch_printf(h->walk->s, "%s#1", r));
}

/* Combined with the element 1, 2, 4, ... positions earlier. Sums of f16 and bf16 are f32. */
TCI_FN const char *tci_hlo_scan_out(tci_hlo *h, const tci_node *n, const char *x)
{
    static const int ops[] = {[TCI_MODE_ADD] = TCI_OP_SUM,
                              [TCI_MODE_MIN] = TCI_OP_MIN,
                              [TCI_MODE_MAX] = TCI_OP_MAX,
                              [TCI_MODE_MUL] = TCI_OP_PROD};
    const tci_hlo_shape shape = tci_hlo_shape_of(h, n->rank, n->shape), point = {0, NULL, ""};
    int axis = (int)n->attr[0], op = ops[n->attr[2]];
    bool adds = op == TCI_OP_SUM || op == TCI_OP_PROD;
    tc_dtype t = adds && tci_dtype_is_half((tc_dtype)n->dtype) ? TC_F32 : (tc_dtype)n->dtype;
    const char *none = tci_hlo_splat(h, &point, t, tci_hlo_identity(op, t));
    x = tci_hlo_convert(h, &shape, (tc_dtype)n->in[0]->dtype, t, x);
    for (int64_t by = 1; by < shape.sizes[axis]; by *= 2) {
        int64_t *before = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 1);
        before[axis] = n->attr[1] ? -by : by;
        const char *far = tci_hlo_pad(h, t, &shape, &shape, before, none, x);
        x = tci_hlo_binary(h, tci_hlo_joins(op, t), &shape, t, far, x);
    }
    return tci_hlo_convert(h, &shape, t, (tc_dtype)n->dtype, x);
}
