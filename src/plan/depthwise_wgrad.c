/* plan/depthwise_wgrad.c - rewrites the weight gradient of a depthwise convolution (NHWC) as a
 * split reduction over image rows.
 *
 * In: a CONTRACT of windows of an image and the gradient of the convolution's output, both
 * channels last, whose result has the window axes and the channels. Out: a SUM of partial results,
 * channels last too; else NULL.
 *
 * Design: a thread has a vector of channels and some window elements
 * (loop/simt_short_reduction.c), for which a segment of a line is unrolled: each element of both
 * operands is read once. A part is some lines, or segments of one, so that there are enough
 * threads. */
#include "contraction_route.h"

enum {
    TCI_DWGRAD_THREADS = 1 << 14,        /* that keep any device busy, with several loads each */
    TCI_DWGRAD_CHAIN = TCI_WINDOW_CHAIN, /* products of a part, at most, */
    TCI_DWGRAD_EVEN = 64,                /* and where there are few */
    TCI_DWGRAD_AXES = 16
};

typedef struct tci_dwgrad {
    const tci_algo *a;
    const tci_node *n;
    int image; /* which operand has the windows */
    int rank;  /* of the windows, */
    int first; /* its elements are the last axes, from this one on */
    int channel;
    int64_t places[TCI_DWGRAD_AXES]; /* of an axis of windows in a part */
} tci_dwgrad;

/* ---- whether ---- */

/* True if the result has the kernel-window axes (which the other operand lacks) and, apart from
 * them, exactly one axis larger than 1: the channels. All other window axes are summed. */
static bool tci_dwgrad_fits(tci_dwgrad *p)
{
    const tci_node *x = p->n->in[p->image], *g = p->n->in[1 - p->image];
    int channels = 0, taken = 0;
    for (int i = 0; i < p->rank; i++) {
        bool kept = !tci_contract_sums_axis(p->n, p->image, i), one = x->shape[i] == 1;
        bool there = tci_contract_place(p->n, p->image, i, 1 - p->image) >= 0;
        if (i >= p->first ? !kept || there : !one && !there) {
            return false;
        }
        bool channel = i < p->first && !one && kept;
        p->channel = channel ? i : p->channel;
        channels += channel;
    }
    for (int i = 0; i < g->rank; i++) {
        int at = tci_contract_place(p->n, 1 - p->image, i, p->image);
        taken += g->shape[i] != 1 && (at < 0 || at >= p->first);
    }
    return channels == 1 && taken == 0 &&
           tci_dim_known(x->shape[p->channel]) % TCI_MATRIX_ALIGN == 0;
}

static bool tci_dwgrad_look(tci_dwgrad *p)
{
    const tci_node *n = p->n;
    bool known = tci_build_is_known(n->rank, n->shape) && n->dtype != TC_F64;
    p->image = tci_below(n->in[0], TCI_THROUGH_CASTS, NULL)->op == TCI_OP_WINDOW ? 0 : 1;
    const tci_node *window = tci_below(n->in[p->image], TCI_THROUGH_CASTS, NULL);
    for (int i = 0; i < 2; i++) {
        known = known && tci_build_is_known(n->in[i]->rank, n->in[i]->shape) &&
                tci_node_count(n->in[i]) != 0;
    }
    if (!known || window->op != TCI_OP_WINDOW || window->rank > TCI_DWGRAD_AXES) {
        return false;
    }
    p->rank = window->rank;
    p->first = window->in[0]->rank;
    return tci_dwgrad_fits(p);
}

/* The axis of the channels in the image behind operand `which`; -1: it is none. */
static int tci_dwgrad_axis(const tci_dwgrad *p, int which, tci_node **image)
{
    tci_node *x = p->n->in[which];
    int at = tci_contract_place(p->n, p->image, p->channel, which);
    *image = tci_plan_image(p->a, x);
    return *image ? tci_plan_image_axis(x, *image, at) : -1;
}

TCI_FN int tci_plan_alone_axis(const tci_algo *a, const tci_node *n, int which, tci_node **image)
{
    tci_dwgrad p = {.a = a, .n = n};
    return tci_dwgrad_look(&p) ? tci_dwgrad_axis(&p, which, image) : -1;
}

static bool tci_dwgrad_has_lines(const tci_dwgrad *p)
{
    bool fits = true;
    for (int i = 0; i < 2; i++) {
        tci_node *image;
        int axis = tci_dwgrad_axis(p, i, &image);
        fits = fits && axis >= 0 && axis == image->rank - 1;
    }
    return fits;
}

/* ---- parts ---- */

/* The largest divisor up to `most`; the next one, up to `limit`, where that is less than half. */
static int64_t tci_dwgrad_divisor(int64_t n, int64_t most, int64_t limit)
{
    int64_t d = TCI_MAX(TCI_MIN(n, most), 1), next = d;
    while (n % d != 0) {
        d--;
    }
    while (n % next != 0) {
        next++;
    }
    return 2 * d < most && next <= limit ? next : d;
}

/* Places of a part: as many as leave threads enough, or about as many as there are parts, so that
 * adding these takes no longer than making them. */
static int64_t tci_dwgrad_most(const tci_dwgrad *p)
{
    const tci_node *x = p->n->in[p->image];
    int64_t all = tci_dim_known(tci_node_count(x)), last = tci_dim_known(x->shape[p->rank - 1]);
    int64_t places = 1, even = 1;
    for (int i = 0; i < p->first; i++) {
        places *= i == p->channel ? 1 : tci_dim_known(x->shape[i]);
    }
    while (even < TCI_DWGRAD_EVEN && even * even < places) {
        even++;
    }
    return TCI_MIN(TCI_MAX(all / last / TCI_MATRIX_ALIGN / TCI_DWGRAD_THREADS, even),
                   TCI_DWGRAD_CHAIN);
}

/* From the innermost summed axis on, this many positions. */
static void tci_dwgrad_cut(tci_dwgrad *p)
{
    int64_t most = tci_dwgrad_most(p), limit = TCI_DWGRAD_CHAIN;
    for (int i = p->first - 1; i >= 0; i--) {
        int64_t size = tci_dim_known(p->n->in[p->image]->shape[i]);
        p->places[i] = i == p->channel ? size : tci_dwgrad_divisor(size, most, limit);
        if (i != p->channel) {
            most = p->places[i] < size ? 1 : most / size;
            limit /= p->places[i];
        }
    }
}

/* The axes of n with the channels behind the others: order[i] is the i-th of them. */
static void tci_dwgrad_order(const tci_dwgrad *p, int64_t *order)
{
    int rank = p->n->rank, at = 0;
    for (int i = 0; i < rank; i++) {
        bool channel = tci_contract_place(p->n, 2, i, p->image) == p->channel;
        order[channel ? rank - 1 : at++] = i;
    }
}

static bool tci_dwgrad_route_fits(tci_offer *o)
{
    tci_dwgrad *p = TCI_NEW(o->a->s, tci_dwgrad);
    *p = (tci_dwgrad){.a = o->a, .n = o->n};
    o->found = p;
    return tci_plan_has_image_unit(o->a->machine) && tci_dwgrad_look(p) && tci_dwgrad_has_lines(p);
}

static double tci_dwgrad_cost(const tci_offer *o)
{
    tci_route_work work = tci_route_work_of(o, TCI_BY_VECTORS);
    work.launches++;
    return tci_route_ns(o, work);
}

static tci_node *tci_dwgrad_build(const tci_offer *o)
{
    const tci_algo *a = o->a;
    tci_node *n = o->n;
    tci_dwgrad p = *(const tci_dwgrad *)o->found;
    tci_dwgrad_cut(&p);
    int64_t fresh = tci_contract_fresh(n);
    int64_t *order = TCI_NEW_ARRAY(a->s, int64_t, n->rank);
    int64_t *back = TCI_NEW_ARRAY(a->s, int64_t, n->rank);
    tci_dim *shape = TCI_NEW_ARRAY(a->s, tci_dim, n->rank);
    tci_rfactor_label cuts[TCI_DWGRAD_AXES];
    tci_contract_form f = tci_contract_form_of(n);
    int n_cuts = 0;
    for (int i = 0; i < p.first; i++) {
        int64_t size = tci_dim_known(n->in[p.image]->shape[i]), places = p.places[i];
        if (places < size) {
            cuts[n_cuts++] = (tci_rfactor_label){f.labels[p.image][i], fresh + i, 0, size / places,
                                                 places};
        }
    }
    tci_dwgrad_order(&p, order);
    for (int i = 0; i < n->rank; i++) {
        shape[i] = n->shape[order[i]];
        back[order[i]] = i;
    }
    tci_contract_turn(a->s, &f, 2, order);
    f.in[0] = tci_build_cast(a->g, n->in[0], TC_F32);
    f.in[1] = tci_build_cast(a->g, n->in[1], TC_F32);
    tci_node *sum = tci_rfactor_contract(a, &f, TC_F32, shape, cuts, n_cuts);
    tci_node *cut = n_cuts > 0 ? tci_plan_split(a, sum) : NULL;
    sum = cut ? cut : sum;
    return tci_build_cast(a->g, tci_algo_permute(a, sum, back), (tc_dtype)n->dtype);
}

TCI_BLOCK_FN const tci_route *tci_route_depthwise(void)
{
    static const tci_route row = {"depthwise filter gradient", TCI_SUMS_LINES,  TCI_ROUTE_REORDERS,
                                  tci_dwgrad_route_fits,       tci_dwgrad_cost, tci_dwgrad_build};
    return &row;
}
