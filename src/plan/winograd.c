/* plan/winograd.c - Winograd convolution: rewrites convolutions with 3 x 3 windows as transforms
 * and one batched GEMM with fewer multiplications.
 *
 * In: a CONTRACT of f32 values, one of which is windows of 3 x 3 elements at every position of an
 * image (a convolution of stride 1, or its gradient to the image), on a CPU, under TC_MATH_FAST.
 * Out: the same by Winograd's F(m, 3), m = 2 or 4, or NULL to leave it as it is.
 *
 * Design: the m x m results of a tile of (m + 2) x (m + 2) elements need (m + 2)^2 products, not 9
 * m^2, of sums of the tile and of the filter; over all tiles and channels these are (m + 2)^2
 * GEMMs, [tiles, channels] by [channels, filters]. So there are five kernels:
 *
 *     image    [images, height, width, channels]        a copy with channels last, and padding
 *     parts    [(m + 2)^2, tiles, channels]             sums of each tile's elements
 *     filters  [(m + 2)^2, channels, filters]           once, where the filter is constant
 *     products [(m + 2)^2, tiles, filters]
 *     results  [images, tiles, m, tiles, m, filters]    sums of products
 *
 * Parts, filters and results are CATs of unrolled sums; plan/trial_lowering.c has one kernel store
 * them all, so each element of the image is loaded once.
 *
 * The sums round values up to 10^2 times as large as the elements: the bound in api/types.h
 * (TC_MATH_FAST) is the largest sum, over the parts of a result, of the absolute factors of the
 * three steps (8^2 for F(2, 3), 48^2 for F(4, 3)), for as many roundings as there are channels and
 * steps. m depends on shapes and on whether each run gives the filter. */
#include "../ops/composite.h"
#include "contraction_route.h"

/* Times in those of a product, as measured on one core that has AVX-512 and a second cache of 2 MB:
 * ratios, which every executor must share, not facts of the machine at hand. */
#define TCI_WINOGRAD_GAIN 1.15 /* least, over the direct sum */

enum {
    TCI_WINOGRAD_MOVE = 30, /* to store an element of parts, products or results and read it */
    TCI_WINOGRAD_READ = 19, /* to read an element of the filters, which no cache holds */
    TCI_WINOGRAD_MAKE = 60, /* to make it, */
    TCI_WINOGRAD_LAUNCHES = 1 << 20, /* and for the kernels around the products */
    TCI_WINOGRAD_VECTOR = 16,
    TCI_WINOGRAD_ELEMENTS = 3, /* of a filter along an axis */
    TCI_WINOGRAD_PANEL = 32,   /* filters side by side */
    TCI_WINOGRAD_MOST = 6      /* of a tile along an axis */
};

typedef struct tci_winograd {
    const tci_algo *a;
    tci_graph *g;
    const tci_node *n;
    tci_node *image, *filter;
    /* axes of the image (its number, height, width, channels) and of the filter (height, width,
     * channels, number), and of the result (number, height, width, filters) */
    int image_axes[4], filter_axes[4];
    int64_t places[4];
    int64_t images, channels, filters, sizes[2];
    int m, tile;
    int64_t tiles[2];
} tci_winograd;

/* ---- whether ---- */

static bool tci_winograd_is_known(const tci_node *n)
{
    return tci_build_is_known(n->rank, n->shape) && tci_dim_lt(0, tci_node_count(n));
}

/* Windows of 3 x 3 neighbours at every position of an image of four axes. */
static bool tci_winograd_has_windows(const tci_node *x)
{
    if (x->op != TCI_OP_WINDOW || x->n_attr != 8 || x->in[0]->rank != 4) {
        return false;
    }
    bool fits = true;
    for (int i = 0; i < 8; i += 4) {
        fits = fits && x->attr[i + 1] == TCI_WINOGRAD_ELEMENTS && x->attr[i + 2] == 1 &&
               x->attr[i + 3] == 1;
    }
    return fits;
}

/* True if the image axes without window are one that is kept and one that is summed. */
static bool tci_winograd_image_axes(tci_winograd *w, const tci_node *x, int windows)
{
    const tci_node *n = w->n;
    w->image_axes[1] = (int)tci_dim_known(x->attr[0]);
    w->image_axes[2] = (int)tci_dim_known(x->attr[4]);
    w->image_axes[0] = w->image_axes[3] = -1;
    for (int i = 0; i < 6; i++) {
        bool kept = tci_contract_place(n, windows, i, 2) >= 0;
        bool shared = tci_contract_place(n, windows, i, 1 - windows) >= 0;
        bool place = i == w->image_axes[1] || i == w->image_axes[2];
        if (kept == shared || (place && !kept) || (i >= 4 && kept)) {
            return false;
        }
        if (i < 4 && !place) {
            w->image_axes[kept ? 0 : 3] = i;
        }
    }
    for (int i = 0; i < 3 && w->image_axes[0] >= 0; i++) {
        w->places[i] = tci_contract_place(n, windows, w->image_axes[i], 2);
    }
    return w->image_axes[0] >= 0 && w->image_axes[3] >= 0;
}

/* True if the filter has the kernel-window axes, the channels and one axis of its own; other axes
 * have size 1. */
static bool tci_winograd_filter_axes(tci_winograd *w, int windows)
{
    const tci_node *n = w->n, *f = w->filter;
    const int64_t summed[3] = {4, 5, w->image_axes[3]};
    bool fits = true;
    int own = -1;
    for (int i = 0; i < f->rank; i++) {
        int of = tci_build_label(summed, 3, tci_contract_place(n, 1 - windows, i, windows));
        if (of >= 0) {
            w->filter_axes[of] = i;
        } else if (own < 0 || f->shape[i] != 1) {
            fits = fits && (own < 0 || f->shape[own] == 1);
            own = i;
        }
    }
    w->filter_axes[3] = own;
    w->places[3] = own >= 0 ? tci_contract_place(n, 1 - windows, own, 2) : -1;
    return fits && w->places[3] >= 0;
}

static bool tci_winograd_is_conv(tci_winograd *w, int windows)
{
    const tci_node *n = w->n, *x = n->in[windows];
    w->filter = n->in[1 - windows];
    if (!tci_winograd_has_windows(x) || !tci_winograd_is_known(x) || !tci_winograd_is_known(n) ||
        !tci_winograd_image_axes(w, x, windows) || !tci_winograd_filter_axes(w, windows)) {
        return false;
    }
    w->image = x->in[0];
    w->images = tci_dim_known(x->shape[w->image_axes[0]]);
    w->channels = tci_dim_known(x->shape[w->image_axes[3]]);
    w->filters = tci_dim_known(w->filter->shape[w->filter_axes[3]]);
    for (int i = 0; i < 2; i++) {
        w->sizes[i] = tci_dim_known(x->shape[w->image_axes[1 + i]]);
    }
    return true;
}

static void tci_winograd_by(tci_winograd *w, int m)
{
    w->m = m;
    w->tile = m + TCI_WINOGRAD_ELEMENTS - 1;
    for (int i = 0; i < 2; i++) {
        w->tiles[i] = (w->sizes[i] + m - 1) / m;
    }
}

/* True if each run has another filter. */
static bool tci_winograd_is_given(const tci_winograd *w)
{
    const tci_node *f = tci_below(w->filter, TCI_THROUGH_MOVEMENT, NULL);
    bool given = f->op != TCI_OP_DATA;
    for (int i = 0; i < w->a->n_changed; i++) {
        given = given || w->a->changed[i] == f;
    }
    return given;
}

/* Elements of this many as vectors hold. */
static double tci_winograd_whole(int64_t n)
{
    return (double)((n + TCI_WINOGRAD_VECTOR - 1) / TCI_WINOGRAD_VECTOR * TCI_WINOGRAD_VECTOR);
}

/* Cost in products. It depends so little on the machine that all machines decide alike. */
static double tci_winograd_cost(const tci_winograd *w)
{
    double sums = w->tile * w->tile, c = tci_winograd_whole(w->channels);
    double k = tci_winograd_whole(w->filters), places = (double)(w->sizes[0] * w->sizes[1]);
    double tiles = (double)w->images * (double)(w->tiles[0] * w->tiles[1]);
    double moved = (sums * tiles + (double)w->images * places) * (c + k);
    double filters = sums * (double)w->channels * (double)w->filters;
    double each = TCI_WINOGRAD_READ + (tci_winograd_is_given(w) ? TCI_WINOGRAD_MAKE : 0);
    return sums * tiles * (double)w->channels * k + TCI_WINOGRAD_MOVE * moved + each * filters +
           TCI_WINOGRAD_LAUNCHES;
}

/* Vectors run along the positions of an image. */
static double tci_winograd_direct(const tci_winograd *w)
{
    double places = (double)w->images * tci_winograd_whole(w->sizes[0] * w->sizes[1]);
    double filters = TCI_WINOGRAD_ELEMENTS * TCI_WINOGRAD_ELEMENTS * (double)w->channels *
                     (double)w->filters;
    return filters * (places + TCI_WINOGRAD_READ);
}

/* Chooses m; false: the direct sum is better. */
static bool tci_winograd_pays(tci_winograd *w)
{
    double cost[2];
    for (int i = 0; i < 2; i++) {
        tci_winograd_by(w, 2 << i);
        cost[i] = tci_winograd_cost(w);
    }
    tci_winograd_by(w, cost[0] < cost[1] ? 2 : 4);
    return TCI_WINOGRAD_GAIN * TCI_MIN(cost[0], cost[1]) <= tci_winograd_direct(w);
}

/* ---- sums of elements, along one axis ---- */

static tci_node *tci_winograd_add(const tci_winograd *w, tci_node *a, tci_node *b)
{
    return tci_composite_binary(w->g, TCI_OP_ADD, a, b);
}

static tci_node *tci_winograd_sub(const tci_winograd *w, tci_node *a, tci_node *b)
{
    return tci_composite_binary(w->g, TCI_OP_SUB, a, b);
}

static tci_node *tci_winograd_times(const tci_winograd *w, tci_node *a, double factor)
{
    return tci_composite_binary(w->g, TCI_OP_MUL, a, tci_composite_number(w->g, TC_F32, factor));
}

static void tci_winograd_part(const tci_winograd *w, tci_node *const *d, tci_node **to)
{
    if (w->m == 2) {
        to[0] = tci_winograd_sub(w, d[0], d[2]);
        to[1] = tci_winograd_add(w, d[1], d[2]);
        to[2] = tci_winograd_sub(w, d[2], d[1]);
        to[3] = tci_winograd_sub(w, d[1], d[3]);
        return;
    }
    tci_node *even = tci_winograd_sub(w, d[4], tci_winograd_times(w, d[2], 4));
    tci_node *odd = tci_winograd_sub(w, d[3], tci_winograd_times(w, d[1], 4));
    tci_node *near = tci_winograd_sub(w, d[4], d[2]);
    tci_node *twice = tci_winograd_times(w, tci_winograd_sub(w, d[3], d[1]), 2);
    tci_node *first = tci_winograd_times(w, tci_winograd_sub(w, d[0], d[2]), 4);
    to[0] = tci_winograd_add(w, first, near);
    to[1] = tci_winograd_add(w, even, odd);
    to[2] = tci_winograd_sub(w, even, odd);
    to[3] = tci_winograd_add(w, near, twice);
    to[4] = tci_winograd_sub(w, near, twice);
    to[5] = tci_winograd_sub(w, tci_winograd_sub(w, d[5], d[3]), tci_winograd_times(w, twice, 2));
}

static void tci_winograd_filter(const tci_winograd *w, tci_node *const *f, tci_node **to)
{
    tci_node *ends = tci_winograd_add(w, f[0], f[2]);
    double share = w->m == 2 ? 1.0 / 2 : -1.0 / 6;
    to[0] = w->m == 2 ? f[0] : tci_winograd_times(w, f[0], 1.0 / 4);
    to[1] = tci_winograd_times(w, tci_winograd_add(w, ends, f[1]), share);
    to[2] = tci_winograd_times(w, tci_winograd_sub(w, ends, f[1]), share);
    if (w->m == 4) {
        tci_node *even = tci_winograd_add(w, f[0], tci_winograd_times(w, f[2], 4));
        tci_node *odd = tci_winograd_times(w, f[1], 2);
        to[3] = tci_winograd_times(w, tci_winograd_add(w, even, odd), 1.0 / 24);
        to[4] = tci_winograd_times(w, tci_winograd_sub(w, even, odd), 1.0 / 24);
    }
    to[w->tile - 1] = f[2];
}

static void tci_winograd_result(const tci_winograd *w, tci_node *const *p, tci_node **to)
{
    tci_node *even = tci_winograd_add(w, p[1], p[2]), *odd = tci_winograd_sub(w, p[1], p[2]);
    to[0] = tci_winograd_add(w, p[0], even);
    if (w->m == 2) {
        to[1] = tci_winograd_sub(w, odd, p[3]);
        return;
    }
    tci_node *far_even = tci_winograd_add(w, p[3], p[4]), *far = tci_winograd_sub(w, p[3], p[4]);
    to[0] = tci_winograd_add(w, to[0], far_even);
    to[1] = tci_winograd_add(w, odd, tci_winograd_times(w, far, 2));
    to[2] = tci_winograd_add(w, even, tci_winograd_times(w, far_even, 4));
    to[3] = tci_winograd_add(w, tci_winograd_add(w, odd, tci_winograd_times(w, far, 8)), p[5]);
}

/* ---- and along both ---- */

typedef void tci_winograd_sums(const tci_winograd *w, tci_node *const *from, tci_node **to);

/* from: n x n nodes; to: `made` x `made`. */
static void tci_winograd_transform_2d(const tci_winograd *w, tci_winograd_sums *sums, int n,
                                      int made, tci_node *const *from, tci_node **to)
{
    tci_node *column[TCI_WINOGRAD_MOST], *sum[TCI_WINOGRAD_MOST];
    tci_node *rows[TCI_WINOGRAD_MOST * TCI_WINOGRAD_MOST];
    for (int j = 0; j < n; j++) {
        for (int i = 0; i < n; i++) {
            column[i] = from[i * n + j];
        }
        sums(w, column, sum);
        for (int i = 0; i < made; i++) {
            rows[i * n + j] = sum[i];
        }
    }
    for (int i = 0; i < made; i++) {
        sums(w, rows + i * n, to + i * made);
    }
}

/* Each in this shape, whose first axis is theirs, as one value in memory. */
static tci_node *tci_winograd_stack(const tci_winograd *w, tci_node **parts, int rank,
                                    const tci_dim *shape)
{
    for (int i = 0; i < w->tile * w->tile; i++) {
        parts[i] = tci_build_reshape(w->g, parts[i], rank, shape);
    }
    tci_node *all = tci_build_cat(w->g, parts, w->tile * w->tile, 0);
    tci_algo_force(w->a, all);
    return all;
}

/* Elements of x from start[i] on along axis i, `count[i]` of them, `step` apart along positions. */
static tci_node *tci_winograd_slice(const tci_winograd *w, tci_node *x, const int *start,
                                    const tci_dim *count, int step)
{
    int64_t attr[8];
    for (int i = 0; i < 4; i++) {
        attr[2 * i] = start[i];
        attr[2 * i + 1] = i == 1 || i == 2 ? step : 1;
    }
    return tci_graph_node(w->g, TCI_OP_SLICE, TC_F32, 4, count, 1, &x, 8, attr);
}

/* ---- nodes ---- */

/* The image with channels last and whole tiles. */
static tci_node *tci_winograd_image(const tci_winograd *w)
{
    tci_node *x = w->image, *zero = tci_composite_number(w->g, TC_F32, 0);
    tci_dim none[4] = {0}, after[4] = {0}, shape[4];
    for (int i = 0; i < 4; i++) {
        shape[i] = x->shape[i];
    }
    for (int i = 0; i < 2; i++) {
        int axis = w->image_axes[1 + i];
        shape[axis] = w->tiles[i] * w->m + TCI_WINOGRAD_ELEMENTS - 1;
        after[axis] = tci_dim_sub(shape[axis], x->shape[axis]);
    }
    x = x->op == TCI_OP_PAD
            ? tci_graph_node(w->g, TCI_OP_PAD, TC_F32, 4, shape, 2, x->in, 4, x->attr)
            : tci_build_pad_axes(w->g, x, none, after, zero);
    const int64_t order[4] = {w->image_axes[0], w->image_axes[1], w->image_axes[2],
                              w->image_axes[3]};
    return tci_relayout(w->a, x, (tci_relayout_to){.order = order, .is_turned = true});
}

static tci_node *tci_winograd_parts(const tci_winograd *w)
{
    tci_node *x = tci_winograd_image(w), *d[TCI_WINOGRAD_MOST * TCI_WINOGRAD_MOST];
    tci_node *parts[TCI_WINOGRAD_MOST * TCI_WINOGRAD_MOST];
    const tci_dim count[4] = {w->images, w->tiles[0], w->tiles[1], w->channels};
    const tci_dim shape[3] = {1, w->images * w->tiles[0] * w->tiles[1], w->channels};
    for (int i = 0; i < w->tile * w->tile; i++) {
        const int start[4] = {0, i / w->tile, i % w->tile, 0};
        d[i] = tci_winograd_slice(w, x, start, count, w->m);
    }
    tci_winograd_transform_2d(w, tci_winograd_part, w->tile, w->tile, d, parts);
    return tci_winograd_stack(w, parts, 3, shape);
}

/* Filters that are contiguous: a product reads them from one end of memory to the other. */
static int64_t tci_winograd_columns(const tci_winograd *w)
{
    return w->filters % TCI_WINOGRAD_PANEL == 0 ? TCI_WINOGRAD_PANEL : w->filters;
}

static tci_node *tci_winograd_filters(const tci_winograd *w)
{
    enum { n = TCI_WINOGRAD_ELEMENTS };
    int64_t *order = TCI_NEW_ARRAY(w->a->s, int64_t, w->filter->rank);
    int at = 4;
    tci_node *f = w->filter, *d[n * n], *parts[TCI_WINOGRAD_MOST * TCI_WINOGRAD_MOST];
    const int64_t columns = tci_winograd_columns(w), panels = w->filters / columns;
    const tci_dim shape[5] = {n, n, w->channels, panels, columns};
    const tci_dim panel[4] = {1, panels, w->channels, columns};
    for (int i = 0; i < f->rank; i++) {
        bool named = false;
        for (int j = 0; j < 4; j++) {
            named = named || w->filter_axes[j] == i;
        }
        if (!named) {
            order[at++] = i;
        }
    }
    for (int j = 0; j < 4; j++) {
        order[j] = w->filter_axes[j];
    }
    f = tci_relayout(w->a, f, (tci_relayout_to){.order = order, .is_turned = true});
    f = tci_build_reshape(w->g, f, 5, shape);
    for (int i = 0; i < n * n; i++) {
        tci_node *row = tci_build_slice(w->g, f, 0, i / n, i / n + 1, 1);
        row = tci_build_slice(w->g, row, 1, i % n, i % n + 1, 1);
        d[i] = tci_build_transpose(w->g, tci_build_reshape(w->g, row, 3, shape + 2), 0, 1);
    }
    tci_winograd_transform_2d(w, tci_winograd_filter, n, w->tile, d, parts);
    return tci_winograd_stack(w, parts, 4, panel);
}

/* [images, height, width, filters], of whole tiles. */
static tci_node *tci_winograd_results(const tci_winograd *w, tci_node *products)
{
    const tci_dim each[6] = {w->images, w->tiles[0], 1, w->tiles[1], 1, w->filters};
    const tci_dim shape[4] = {w->images, w->tiles[0] * w->m, w->tiles[1] * w->m, w->filters};
    tci_node *p[TCI_WINOGRAD_MOST * TCI_WINOGRAD_MOST], *y[TCI_WINOGRAD_MOST * TCI_WINOGRAD_MOST];
    for (int i = 0; i < w->tile * w->tile; i++) {
        p[i] = tci_build_reshape(w->g, tci_build_slice(w->g, products, 0, i, i + 1, 1), 6, each);
    }
    tci_winograd_transform_2d(w, tci_winograd_result, w->tile, w->m, p, y);
    for (int i = 0; i < w->m; i++) {
        y[i] = tci_build_cat(w->g, y + i * w->m, w->m, 4);
    }
    tci_node *all = tci_build_cat(w->g, y, w->m, 2);
    tci_algo_force(w->a, all);
    return tci_build_reshape(w->g, all, 4, shape);
}

/* The result's own axes, without what follows the last places. */
static tci_node *tci_winograd_as(const tci_winograd *w, tci_node *y)
{
    const tci_node *n = w->n;
    const int start[4] = {0};
    const tci_dim count[4] = {w->images, w->sizes[0], w->sizes[1], w->filters};
    int order[4], at = 0;
    y = tci_winograd_slice(w, y, start, count, 1);
    for (int i = 0; i < n->rank; i++) { /* the others have size 1 */
        int axis = tci_build_label(w->places, 4, i);
        if (axis >= 0) {
            order[at++] = axis;
        }
    }
    return tci_build_reshape(w->g, tci_build_permute(w->g, y, 4, order), n->rank, n->shape);
}

static tci_node *tci_winograd_build(const tci_winograd *w)
{
    enum { sum, tile, channel, panel, column }; /* labels */
    static const int parts[3] = {sum, tile, channel}, filters[4] = {sum, panel, channel, column};
    static const int products[4] = {sum, tile, panel, column};
    tci_str_printf(w->a->orders,
                   "convolution: Winograd F(%d, 3), %d products for %d results, as "
                   "math may be fast\n",
                   w->m, w->tile * w->tile, w->m * w->m);
    tci_node *sums = tci_build_contract(w->g, tci_winograd_parts(w), parts, tci_winograd_filters(w),
                                        filters, 4, products);
    return tci_winograd_as(w, tci_winograd_results(w, sums));
}

static bool tci_winograd_takes(tci_winograd *w)
{
    return w->n->dtype == TC_F32 && w->n->in[0]->dtype == TC_F32 &&
           (tci_winograd_is_conv(w, 0) || tci_winograd_is_conv(w, 1));
}

TCI_FN tci_node *tci_plan_winograd_by(const tci_algo *a, tci_node *n, int m)
{
    tci_winograd w = {.a = a, .g = a->g, .n = n};
    if (!tci_winograd_takes(&w) || (m == 0 && !tci_winograd_pays(&w))) {
        return NULL;
    }
    if (m > 0) {
        tci_winograd_by(&w, m);
    }
    return tci_winograd_build(&w);
}

/* ---- the route ---- */

static bool tci_winograd_fits(tci_offer *o)
{
    tci_winograd *w = TCI_NEW(o->a->s, tci_winograd);
    *w = (tci_winograd){.a = o->a, .g = o->a->g, .n = o->n};
    o->found = w;
    return o->a->machine.block_threads == 0 && o->a->machine.is_fast && tci_winograd_takes(w) &&
           tci_winograd_pays(w);
}

/* Products, as that model counts them. */
static double tci_winograd_ns(const tci_offer *o)
{
    tci_route_work work = tci_route_work_of(o, TCI_BY_VECTORS);
    work.products = tci_winograd_cost(o->found);
    return tci_route_ns(o, work);
}

static tci_node *tci_winograd_route(const tci_offer *o)
{
    return tci_winograd_build(o->found);
}

TCI_FN const tci_route *tci_route_winograd(void)
{
    static const tci_route row = {"Winograd",        TCI_SUMS_FAST,   TCI_ROUTE_REORDERS,
                                  tci_winograd_fits, tci_winograd_ns, tci_winograd_route};
    return &row;
}
