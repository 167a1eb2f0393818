/* plan/small_channel_conv.c - rewrites convolutions of few channels, such as a network's first
 * layer, as implicit GEMM: filter width times channels becomes one padded contiguous run of K.
 *
 * In: a CONTRACT of windows of a bf16 or f16 image, with too few channels for a matrix unit to
 * read, and a filter or the gradient of the convolution's output. Out: the same CONTRACT over
 * copies in which a row of a window is one contiguous run of all its positions and channels: the
 * image with padding, channels last, and zero channels until the step to the next window is a
 * multiple of 16 bytes; the filter likewise. NULL: no such contraction, or too small.
 *
 * Design: the runs of neighbouring windows overlap, but as rows that start at such steps they are
 * ordinary boxes (kernel/tma_boxes.c), each one step of K. Padding is zero in both operands. The
 * gradient of a filter is a product of the same rows and the output's gradient, summed over
 * positions, then over images. */
#include "contraction_route.h"

enum {
    TCI_SMALL_CONV_CHANNELS = 8, /* that are enough without */
    TCI_SMALL_CONV_LEAST =
        28, /* elements of a run: of shorter ones most of a step would be zeros */
    TCI_SMALL_CONV_MOST = 64
};

typedef struct tci_small_conv {
    const tci_algo *a;
    const tci_node *n, *window;
    const tci_contraction *c;
    tci_node *other;                            /* the operand that has none */
    int image;                                  /* which operand has the windows */
    const int64_t *labels, *other_labels, *out; /* of windows: image, channel, y, x, and elements */
    int64_t channels, wide, places;             /* wide: channels with zeros; places: of a run */
} tci_small_conv;

/* Windows over the last two axes of an image [images, channels, height, width], positions of a run
 * side by side. */
static bool tci_small_conv_are_windows(const tci_node *x)
{
    return x->op == TCI_OP_WINDOW && x->in[0]->rank == 4 && x->n_attr == 8 && x->attr[0] == 2 &&
           x->attr[4] == 3 && x->attr[7] == 1 && tci_build_is_known(x->rank, x->shape) &&
           tci_build_is_known(x->in[0]->rank, x->in[0]->shape);
}

/* The bf16 or f16 values that x is, below zeros around them; NULL: none. */
static const tci_node *tci_small_conv_source(tci_node *x)
{
    x = tci_below(tci_below(x, TCI_THROUGH_ZEROS, NULL), TCI_THROUGH_F32, NULL);
    return tci_dtype_is_half((tc_dtype)x->dtype) ? x : NULL;
}

/* Finds the windows and the other operand, four axes of the same halves. */
static bool tci_small_conv_find_operands(tci_small_conv *r)
{
    const tci_node *n = r->n;
    r->image = tci_small_conv_are_windows(tci_below(n->in[0], TCI_THROUGH_F32, NULL)) ? 0 : 1;
    r->window = tci_below(n->in[r->image], TCI_THROUGH_F32, NULL);
    const tci_node *source = tci_small_conv_are_windows(r->window)
                                 ? tci_small_conv_source(r->window->in[0])
                                 : NULL;
    r->other = tci_below(n->in[1 - r->image], TCI_THROUGH_F32, NULL);
    r->labels = r->c->in[r->image].labels;
    r->other_labels = r->c->in[1 - r->image].labels;
    r->out = r->c->out;
    return source && r->other->dtype == source->dtype && r->other->rank == 4 && n->rank == 4 &&
           tci_build_is_known(4, r->other->shape);
}

/* gradient false: true if the other operand has the channels and kernel-window axes, which are
 * summed (a filter). gradient true: true if it has the images and positions, and the result has
 * those axes (the gradient of the output). */
static bool tci_small_conv_are(const tci_small_conv *r, bool gradient)
{
    bool fits = true;
    for (int i = 0; i < 6 && fits; i++) {
        bool element = i == 1 || i > 3;
        fits = (tci_build_label(r->out, 4, r->labels[i]) < 0) == (element != gradient) &&
               (tci_build_label(r->other_labels, 4, r->labels[i]) >= 0) == (element != gradient);
    }
    return fits;
}

/* Computes the length of a run; false if the matrix unit needs no copy, or cannot be used at all.
 */
static bool tci_small_conv_measure(tci_small_conv *r)
{
    int64_t step = tci_dim_known(r->window->attr[6]);
    r->channels = tci_dim_known(r->window->shape[1]);
    r->places = tci_dim_known(r->window->attr[5]);
    r->wide = r->channels;
    while (r->wide < TCI_SMALL_CONV_CHANNELS &&
           (step * r->wide % TCI_MATRIX_ALIGN != 0 || r->wide * r->places < TCI_SMALL_CONV_LEAST)) {
        r->wide++;
    }
    int64_t run = r->wide * r->places, deep = run * tci_dim_known(r->window->attr[1]);
    return r->channels < TCI_SMALL_CONV_CHANNELS && step * r->wide % TCI_MATRIX_ALIGN == 0 &&
           run >= TCI_SMALL_CONV_LEAST && run <= TCI_SMALL_CONV_MOST && deep >= TCI_MATRIX_DEPTH &&
           r->c->is_known && 2 * r->c->products >= TCI_MATRIX_FLOPS;
}

/* ---- the copies ---- */

/* x, which is that of tci_small_conv_source, as the halves that it is. */
static tci_node *tci_small_conv_narrow(const tci_small_conv *r, tci_node *x)
{
    tci_node *cast = tci_below(x, TCI_THROUGH_ZEROS, NULL);
    return tci_relayout_over(r->a, x, cast, tci_below(cast, TCI_THROUGH_F32, NULL));
}

/* x in memory with its axes in that order, with zeros along its last axis until it is `wide`, and
 * along the axis before that until rows of both are whole 16 bytes; without the latter, as it is
 * read. */
static tci_node *tci_small_conv_copy(const tci_small_conv *r, tci_node *x, const int64_t *perm)
{
    int64_t longer = tci_dim_known(x->shape[perm[2]]);
    while (longer * r->wide % TCI_MATRIX_ALIGN != 0) {
        longer++;
    }
    if (tci_dim_known(x->shape[perm[3]]) != r->wide) {
        tci_value zero = {.u = 0};
        x = tci_algo_pad_axis(r->a, x, (int)perm[3], r->wide,
                              tci_graph_const(r->a->g, (tc_dtype)x->dtype, zero));
    }
    return tci_relayout(r->a, x, (tci_relayout_to){perm, (int)perm[2], longer, true, false});
}

/* Windows of the image's copy: image, y, x, and of an element its row, position and channel. */
static tci_node *tci_small_conv_windows(const tci_small_conv *r)
{
    const tci_node *w = r->window;
    const int64_t last[4] = {0, 2, 3, 1}, order[6] = {0, 1, 2, 4, 5, 3};
    tci_node *x = tci_small_conv_copy(r, tci_small_conv_narrow(r, w->in[0]), last);
    const tci_dim shape[6] = {w->shape[0], w->shape[2], w->shape[3],
                              r->wide,     w->shape[4], w->shape[5]};
    int64_t *attr = tci_scratch_copy(r->a->s, w->attr, sizeof(int64_t) * 8);
    attr[0] = 1;
    attr[4] = 2;
    x = tci_graph_node(r->a->g, TCI_OP_WINDOW, (tc_dtype)x->dtype, 6, shape, 1, &x, 8, attr);
    return tci_algo_permute(r->a, x, order);
}

/* The contraction of the windows and that operand, whose labels are given, as are its result's. */
static tci_node *tci_small_conv_contract(const tci_small_conv *r, tc_dtype t, tci_node *other,
                                         const int64_t *other_labels, int rank,
                                         const tci_dim *shape, const int64_t *out)
{
    const tci_node *n = r->n;
    const int64_t order[6] = {0, 2, 3, 4, 5, 1};
    tci_contract_form f = tci_contract_form_of(n);
    tci_contract_turn(r->a->s, &f, r->image, order);
    f.labels[1 - r->image] = other_labels;
    f.labels[2] = out;
    f.rank[2] = rank;
    f.in[r->image] = tci_build_cast(r->a->g, tci_small_conv_windows(r),
                                    (tc_dtype)n->in[r->image]->dtype);
    f.in[1 - r->image] = tci_build_cast(r->a->g, other, (tc_dtype)n->in[1 - r->image]->dtype);
    return tci_contract_make(r->a->s, r->a->g, &f, t, shape);
}

static tci_node *tci_small_conv_forward(const tci_small_conv *r)
{
    const int64_t summed[3] = {r->labels[4], r->labels[5], r->labels[1]};
    int64_t perm[4] = {0, 0, 0, 0}, labels[4];
    for (int i = 0; i < 4; i++) {
        int at = tci_build_label(summed, 3, r->other_labels[i]);
        perm[at + 1] = i; /* the filters' own axis, found nowhere, is the first */
    }
    for (int i = 0; i < 4; i++) {
        labels[i] = r->other_labels[perm[i]];
    }
    return tci_small_conv_contract(r, (tc_dtype)r->n->dtype, tci_small_conv_copy(r, r->other, perm),
                                   labels, 4, r->n->shape, r->out);
}

/* Of the gradient of what a filter gave, with its filters last in memory: that of the filter, in
 * rows of windows, without the rows of channels that are zeros. Each image is a part
 * of the sum. */
static tci_node *tci_small_conv_gradient(const tci_small_conv *r)
{
    const int64_t places[3] = {r->labels[0], r->labels[2], r->labels[3]}, images = 0;
    int64_t perm[4] = {0, 0, 0, 0}, labels[4], back[4], whole[8] = {0, 1, 0, 1, 0, 1, 0, 1};
    tci_dim shape[5] = {r->window->shape[0]};
    for (int i = 0; i < 4; i++) {
        int at = tci_build_label(places, 3, r->other_labels[i]);
        perm[at < 0 ? 3 : at] = i;
    }
    for (int i = 0; i < 4; i++) {
        labels[i] = r->other_labels[perm[i]];
    }
    const int64_t out[5] = {places[0], r->labels[4], labels[3], r->labels[5], r->labels[1]};
    for (int i = 0; i < 4; i++) {
        int from = tci_build_label(r->out, 4, out[1 + i]);
        shape[1 + i] = i < 3 ? r->n->shape[from] : r->wide;
        back[from] = i;
    }
    const tci_relayout_to filters_last = {.order = perm, .is_turned = true};
    tci_node *other = tci_relayout(r->a, r->other, filters_last);
    tci_node *n = tci_small_conv_contract(r, TC_F32, other, labels, 5, shape, out);
    n = tci_graph_node(r->a->g, TCI_OP_SUM, TC_F32, 4, shape + 1, 1, &n, 1, &images);
    shape[4] = r->channels;
    n = tci_graph_node(r->a->g, TCI_OP_SLICE, TC_F32, 4, shape + 1, 1, &n, 8, whole);
    return tci_build_cast(r->a->g, tci_algo_permute(r->a, n, back), (tc_dtype)r->n->dtype);
}

static bool tci_small_conv_fits(tci_offer *o)
{
    tci_small_conv *r = TCI_NEW(o->a->s, tci_small_conv);
    *r = (tci_small_conv){.a = o->a, .n = o->n, .c = o->c};
    o->found = r;
    return tci_plan_has_image_unit(o->a->machine) && o->n->dtype != TC_F64 &&
           tci_small_conv_find_operands(r) && tci_small_conv_measure(r) &&
           (tci_small_conv_are(r, false) || tci_small_conv_are(r, true));
}

/* Zeros are multiplied as channels are. */
static double tci_small_conv_cost(const tci_offer *o)
{
    const tci_small_conv *r = o->found;
    return tci_route_copies_ns(o, TCI_BY_UNIT) * (double)r->wide / (double)r->channels;
}

static tci_node *tci_small_conv_build(const tci_offer *o)
{
    const tci_small_conv *r = o->found;
    return tci_small_conv_are(r, false) ? tci_small_conv_forward(r) : tci_small_conv_gradient(r);
}

TCI_BLOCK_FN const tci_route *tci_route_few_channels(void)
{
    static const tci_route row = {"few channels as runs", TCI_SUMS_UNIT_RUNS,
                                  TCI_ROUTE_REORDERS,     tci_small_conv_fits,
                                  tci_small_conv_cost,    tci_small_conv_build};
    return &row;
}
