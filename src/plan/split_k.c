/* plan/split_k.c - rewrites contractions with a long K axis: split-K, GEMV as a reduction, and
 * operand reordering.
 *
 * In: a CONTRACT with many products per sum. Out, or NULL to leave it as it is:
 *
 *   rows    every element is used once or a few times (memory-bound), and the reduction is along
 *           the contiguous axis (dot product, GEMV): a SUM of products, with the lanes and parts of
 *           any reduction. On a CPU also sums for which it has no tiles: depthwise filters
 *   sides   M axes and N axes are interleaved in the result, so it cannot be tiled: the same
 *           contraction with each operand's axes adjacent, and the result's axes restored
 *   parts   few results, each of very many products: CONTRACTs that keep an axis of parts,
 *           out[part, ..], each over a range of K; a SUM over the parts; the same for the rest.
 *           The outermost summed axis that leaves a short enough range is cut; axes before it are
 *           parts as they are
 *
 * Design of parts: with fewer results than threads, parts are work for the idle ones. Their cost
 * is estimated first. On a CPU a part has enough products that writing and reading its sum costs a
 * few percent of reading the elements or of multiplying them, and there are never more partial
 * sums than elements. On a GPU (tci_split_k_cycles) with few tiles, the loads of consecutive K
 * slabs are latency-bound, so the number of parts is the one for which a model of such tiles is
 * fastest, with the second kernel and the partial sums included. (Accuracy needs no parts: the
 * class of a long sum, SPLIT, keeps them inside one kernel.)
 *
 * A product of a few rows (except over panels of several points, plan/prepack.c) is as
 * memory-bound as GEMV: its rows are summed the same way, next to each other, so that the larger
 * operand is read from memory once.
 *
 * All follows from shapes, views and the kind of machine. Symbolic sizes are unknown before a run:
 * such contractions stay as they are. */
#include "split_k.h"

#include <math.h>

enum {
    TCI_SPLIT_K_LONG = 1024,        /* products up to which a sum is left whole */
    TCI_SPLIT_K_LONG_ROW = 256,     /* the same where every element is read once */
    TCI_SPLIT_K_LENGTH = 512,       /* products of a part: at least, */
    TCI_SPLIT_K_LENGTH_MOST = 4096, /* and wanted */
    TCI_SPLIT_K_RESULTS = 2048,     /* of a sum whose elements are read once, too few to go round */
    TCI_SPLIT_K_TILED = 16384,      /* of another one, which is made in tiles */
    TCI_SPLIT_K_POINTS = 1 << 22,   /* most partial sums of a GPU, */
    TCI_SPLIT_K_SHORT = 64,         /* of no fewer products, */
    TCI_SPLIT_K_HALVES = 1 << 21,   /* of f16 or bf16 values partial sums that keep it busy, */
    TCI_SPLIT_K_READS = 16,         /* how often such a machine reads elements of rows, */
    TCI_SPLIT_K_FAR_READS = 2,      /* or of more than its caches hold, */
    TCI_SPLIT_K_FAR = 1 << 21,
    TCI_SPLIT_K_READS_HERE = 7, /* and a processor: more often is worth packing them for tiles */
    TCI_SPLIT_K_NEAR = 16384,   /* products of rows that it then reads from its caches */
    TCI_SPLIT_K_ROWS = 8,       /* rows of a tile that packs its operands, at least, */
    TCI_SPLIT_K_COLUMNS = 16,   /* and columns, */
    TCI_SPLIT_K_NEIGHBOURS = 6, /* results side by side for vectors of them, */
    TCI_SPLIT_K_LINE = 16,      /* and products that are contiguous in a row of them */
    TCI_SPLIT_K_FEW = 128,      /* elements of operands for each partial sum, where that can be */
    /* Of the model of blocks, in cycles (measured on an H100, exact f32): */
    TCI_SPLIT_K_BUSY = 12,         /* warps that hide each other's waits, */
    TCI_SPLIT_K_BUSY_FILTERS = 24, /* and those where elements of windows are fetched */
    TCI_SPLIT_K_PLACES = 8192,     /* for sums over more positions than this */
    TCI_SPLIT_K_SLAB = 16,         /* products that a tile takes in at once, */
    TCI_SPLIT_K_WAIT = 800         /* no faster than this, however small it is */
};

/* A range of summed[at]: from `start`, `parts` times `length` elements. */
typedef struct tci_split_k_piece {
    int64_t start, parts, length;
} tci_split_k_piece;

/* ---- what is summed ---- */

/* Fills what n sums; false where an operand lacks one of the labels or a size is unknown. */
static bool tci_split_k_look(tci_split_k *p)
{
    const tci_node *n = p->n;
    p->c = tci_contraction_of(p->s, n);
    p->out = p->c->out;
    p->fresh = tci_contract_fresh(n);
    p->summed = TCI_NEW_ARRAY(p->s, int64_t, p->c->n_axes + 1);
    p->sizes = TCI_NEW_ARRAY(p->s, int64_t, p->c->n_axes + 1);
    for (int k = 0; k < 2; k++) {
        p->in[k] = n->in[k];
        p->labels[k] = tci_scratch_copy(p->s, p->c->in[k].labels,
                                        sizeof(int64_t) * (size_t)n->attr[k]);
    }
    for (int i = 0; i < p->c->n_axes && p->c->is_known; i++) {
        const tci_contract_axis_of *axis = &p->c->axes[i];
        if (axis->group == TCI_AXES_ALONE) {
            return false;
        }
        if (axis->group == TCI_AXES_K) {
            p->sizes[p->n_summed] = tci_dim_known(axis->size);
            p->summed[p->n_summed++] = axis->label;
        }
    }
    return p->c->is_known;
}

TCI_FN double tci_split_k_products(const tci_split_k *p)
{
    double products = 1;
    for (int i = 0; i < p->n_summed; i++) {
        products *= (double)p->sizes[i];
    }
    return products;
}

/* ---- choice ---- */

/* True if the summed axes are the last axes of operand k, in order, and its last axis is contiguous
 * in memory. */
static bool tci_split_k_is_row(const tci_split_k *p, int k)
{
    const tci_node *x = p->in[k];
    if (x->rank < p->n_summed) {
        return false;
    }
    for (int i = 0; i < p->n_summed; i++) {
        if (p->labels[k][x->rank - p->n_summed + i] != p->summed[i]) {
            return false;
        }
    }
    int last = x->rank - 1;
    for (; x->op == TCI_OP_PERMUTE; x = x->in[0]) {
        last = (int)x->attr[last];
    }
    while (last < x->rank - 1 && x->shape[last + 1] == 1) {
        last++;
    }
    return last == x->rank - 1 && x->op != TCI_OP_WINDOW;
}

/* Axes of the result that have one element come first in operand k: they part no neighbours. */
static void tci_split_k_turn_ones(tci_split_k *p, int k)
{
    tci_node *x = p->in[k];
    int64_t *order = TCI_NEW_ARRAY(p->s, int64_t, x->rank);
    int64_t *labels = TCI_NEW_ARRAY(p->s, int64_t, x->rank);
    tci_dim *shape = TCI_NEW_ARRAY(p->s, tci_dim, x->rank);
    int rank = 0;
    bool turned = false;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < x->rank; i++) {
            bool out = tci_build_label(p->out, p->n->rank, p->labels[k][i]) >= 0;
            if ((out && x->shape[i] == 1) == (pass == 0)) {
                turned |= rank != i;
                order[rank] = i;
                labels[rank] = p->labels[k][i];
                shape[rank++] = x->shape[i];
            }
        }
    }
    if (turned) {
        p->labels[k] = labels;
        p->in[k] = tci_graph_node(p->g, TCI_OP_PERMUTE, (tc_dtype)x->dtype, rank, shape, 1, &x,
                                  rank, order);
    }
}

/* The summed axes as one. */
static void tci_split_k_merge(tci_split_k *p)
{
    int64_t size = (int64_t)tci_split_k_products(p);
    for (int k = 0; k < 2 && p->n_summed > 1; k++) {
        tci_node *x = p->in[k];
        int rank = x->rank - p->n_summed + 1;
        tci_dim *shape = tci_scratch_copy(p->s, x->shape, sizeof(tci_dim) * (size_t)rank);
        shape[rank - 1] = size;
        p->in[k] = tci_graph_node(p->g, TCI_OP_RESHAPE, (tc_dtype)x->dtype, rank, shape, 1, &x, 0,
                                  NULL);
    }
    p->n_summed = 1;
    p->sizes[0] = size;
}

/* The least divisor of n from `least` to below its double; 0: there is none. */
static int64_t tci_split_k_divisor(int64_t n, int64_t least)
{
    for (int64_t d = least; d < 2 * least && d <= n; d++) {
        if (n % d == 0) {
            return d;
        }
    }
    return 0;
}

/* Chooses the axis to split, and the length of a part of about `want` products, at least `least`.
 */
static bool tci_split_k_choose_axis(tci_split_k *p, int64_t want, int64_t least)
{
    int64_t inner = 1;
    p->at = p->n_summed - 1;
    while (p->at > 0 && inner * p->sizes[p->at] <= want) {
        inner *= p->sizes[p->at--];
    }
    int64_t size = p->sizes[p->at], length = TCI_MAX(want / inner, (least + inner - 1) / inner);
    if (size < 2 * length) {
        length = size;
    } else if (tci_split_k_divisor(size, length)) {
        length = tci_split_k_divisor(size, length);
    }
    p->length = length;
    return p->at > 0 || length < size;
}

/* Number of reads of each element. */
static double tci_split_k_reads(const tci_split_k *p)
{
    double elements = (double)tci_dim_known(tci_node_count(p->in[0])) +
                      (double)tci_dim_known(tci_node_count(p->in[1]));
    return (double)tci_dim_known(tci_node_count(p->n)) * tci_split_k_products(p) / elements;
}

/* Axes of the result that operand k alone has, as one. */
static double tci_split_k_own(const tci_split_k *p, int k)
{
    return p->c->size[k ? TCI_AXES_N : TCI_AXES_M];
}

/* Products of a part that its sum, written and read, costs little of. */
static int64_t tci_split_k_wanted(double reads, int64_t least)
{
    int64_t few = TCI_MAX(TCI_SPLIT_K_LENGTH, TCI_SPLIT_K_FEW * least);
    return reads <= 1 ? TCI_SPLIT_K_LENGTH_MOST /* memory is the limit: long streams */
                      : TCI_MAX(TCI_MIN(TCI_SPLIT_K_LENGTH_MOST, few), least);
}

/* On a CPU: true if there are too few results for all threads, each with enough products
 * that parts of them are worth a kernel of their own. Then how long the parts are. */
static bool tci_split_k_choose(tci_split_k *p)
{
    double products = tci_split_k_products(p), reads = tci_split_k_reads(p);
    double results = (double)tci_dim_known(tci_node_count(p->n));
    double most = reads <= 1 ? TCI_SPLIT_K_RESULTS : TCI_SPLIT_K_TILED;
    int64_t least = (int64_t)ceil(reads);
    return products > TCI_SPLIT_K_LONG && results <= most &&
           products >= 2 * TCI_SPLIT_K_LENGTH_MOST &&
           tci_split_k_choose_axis(p, tci_split_k_wanted(reads, least), least);
}

/* The value that x views or is a function of; NULL: none, or several. */
static const tci_node *tci_split_k_below(const tci_node *x)
{
    return x->n_in == 1 || x->op == TCI_OP_PAD ? x->in[0] : NULL;
}

/* True for the weight gradient of a convolution: sums over all positions of an operand that is read
 * through windows, so that each element takes many instructions to fetch. */
static bool tci_split_k_is_of_filters(const tci_split_k *p)
{
    bool found = false;
    for (int k = 0; k < 2 && tci_split_k_products(p) > TCI_SPLIT_K_PLACES; k++) {
        for (const tci_node *x = p->in[k]; x && !found; x = tci_split_k_below(x)) {
            found = x->op == TCI_OP_WINDOW;
        }
    }
    return found;
}

/* A tile of the larger side and of the smaller one: cycles of a busy processor for a slab of it,
 * warps of its block, and how many a processor holds at once. */
typedef struct tci_split_k_tile {
    int16_t large, small, cycles, warps, resident;
} tci_split_k_tile;

/* Tiles for results with sides so large. */
static const tci_split_k_tile *tci_split_k_tiles(const tci_split_k *p, double large, double small,
                                                 int *n)
{
    static const tci_split_k_tile singles[] = {{128, 128, 2560, 8, 2},
                                               {64, 64, 800, 4, 6},
                                               {128, 16, 570, 4, 12}};
    static const tci_split_k_tile doubles[] = {{64, 32, 400, 2, 8}};
    static const tci_split_k_tile lines[] = {
        {128, 1, 250, 24, 32}}; /* of a matrix, times a vector */
    static const tci_split_k_tile points[] = {{32, 1, 40, 24, 64}}; /* thread_per_point.c */
    bool several = large >= TCI_GATHER_SIDE && small > 1 && p->sum != TC_F64;
    *n = several ? (int)TCI_COUNT(singles) : 1;
    return several ? singles : large < TCI_GATHER_SIDE ? points : small <= 1 ? lines : doubles;
}

/* Cycles of the busiest of a machine's processors for this many parts on a GPU (loop/simt_gemm.c):
 * a slab of all its tiles takes what they compute, longer where few warps hide each other's waits,
 * or what those that it holds at once wait for memory. */
static double tci_split_k_cycles(const tci_split_k *p, double parts)
{
    double large = TCI_MAX(tci_split_k_own(p, 0), tci_split_k_own(p, 1));
    double small = TCI_MIN(tci_split_k_own(p, 0), tci_split_k_own(p, 1));
    double results = (double)tci_dim_known(tci_node_count(p->n)), least = HUGE_VAL;
    double enough = tci_split_k_is_of_filters(p) ? TCI_SPLIT_K_BUSY_FILTERS : TCI_SPLIT_K_BUSY;
    double slabs = ceil(tci_split_k_products(p) / parts / TCI_SPLIT_K_SLAB);
    int n_tiles;
    const tci_split_k_tile *tiles = tci_split_k_tiles(p, large, small, &n_tiles);
    for (int i = 0; i < n_tiles; i++) {
        const tci_split_k_tile *t = &tiles[i];
        double tiled = ceil(large / t->large) * ceil(small / t->small) / (large * small);
        tiled = results * (large < TCI_GATHER_SIDE ? 1.0 / t->large : tiled);
        double each = ceil(parts * tiled / TCI_SPLIT_K_PROCESSORS);
        double busy = TCI_MIN(each, t->resident) * t->warps / enough;
        double slab = each * t->cycles / (0.5 + 0.5 * TCI_MIN(busy, 1));
        slab = TCI_MAX(slab, ceil(each / t->resident) * TCI_SPLIT_K_WAIT);
        least = TCI_MIN(least, slabs * slab);
    }
    double moved = 2 * parts * results * tci_dtype_get(p->sum)->bytes / TCI_SPLIT_K_CYCLE_BYTES;
    return parts > 1 ? least + TCI_SPLIT_K_LAUNCH + moved : least;
}

/* True if the operands are f16 or bf16, for which matrix units use other tiles than the model's. */
static bool tci_split_k_are_halves(const tci_split_k *p)
{
    bool halves = true;
    for (int k = 0; k < 2; k++) {
        bool half = false;
        for (const tci_node *x = p->in[k]; x && !half; x = tci_split_k_below(x)) {
            half = tci_dtype_is_half((tc_dtype)x->dtype);
        }
        halves = halves && half;
    }
    return halves;
}

/* Of such halves: parts no shorter than units are worth, however many partial sums there are. */
static bool tci_split_k_choose_of_halves(tci_split_k *p)
{
    double products = tci_split_k_products(p), reads = tci_split_k_reads(p);
    double results = (double)tci_dim_known(tci_node_count(p->n));
    int64_t least = (int64_t)ceil(TCI_MIN(reads, TCI_SPLIT_K_LENGTH));
    int64_t most = (int64_t)TCI_MAX(products * results / TCI_SPLIT_K_HALVES,
                                    TCI_SPLIT_K_LEAST_HALVES);
    int64_t want = TCI_MAX(TCI_MIN(tci_split_k_wanted(reads, least), most), least);
    return products > TCI_SPLIT_K_LONG && tci_split_k_choose_axis(p, want, least);
}

/* On GPUs: the number of parts, a power of two, that is clearly faster than fewer ones. */
static bool tci_split_k_choose_of_blocks(tci_split_k *p)
{
    double products = tci_split_k_products(p), best = 1;
    if (tci_split_k_are_halves(p)) {
        return tci_split_k_choose_of_halves(p);
    }
    double results = (double)tci_dim_known(tci_node_count(p->n));
    for (double parts = 2; parts <= TCI_SPLIT_K_MANY && parts * TCI_SPLIT_K_SHORT <= products &&
                           parts * results <= TCI_SPLIT_K_POINTS;
         parts *= 2) {
        best = tci_split_k_cycles(p, parts) < 0.9 * tci_split_k_cycles(p, best) ? parts : best;
    }
    return best > 1 &&
           tci_split_k_choose_axis(p, (int64_t)ceil(products / best), TCI_SPLIT_K_SHORT);
}

/* ---- nodes ---- */

/* The sums of one piece: those of summed axes before `at` are parts as they are. */
static tci_node *tci_split_k_sum(const tci_split_k *p, tci_split_k_piece c)
{
    const tci_contract_form f = {.in = {p->in[0], p->in[1]},
                                 .labels = {p->labels[0], p->labels[1], p->out},
                                 .rank = {p->in[0]->rank, p->in[1]->rank, p->n->rank}};
    tci_rfactor_label *cuts = TCI_NEW_ARRAY(p->s, tci_rfactor_label, p->at + 1);
    for (int i = 0; i < p->at; i++) {
        cuts[i] = (tci_rfactor_label){p->summed[i], p->summed[i], 0, p->sizes[i], 1};
    }
    cuts[p->at] = (tci_rfactor_label){p->summed[p->at], p->fresh, c.start, c.parts, c.length};
    return tci_rfactor_contract(p->a, &f, p->sum, p->n->shape, cuts, p->at + 1);
}

/* Adds the sums of a piece, unless it is empty, to those before it. */
static tci_node *tci_split_k_add(const tci_split_k *p, tci_node *before, tci_split_k_piece c)
{
    if (c.parts * c.length == 0) {
        return before;
    }
    tci_node *in[2] = {before, tci_split_k_sum(p, c)};
    return !before
               ? in[1]
               : tci_graph_node(p->g, TCI_OP_ADD, p->sum, p->n->rank, p->n->shape, 2, in, 0, NULL);
}

static tci_node *tci_split_k_cast(const tci_split_k *p, tci_node *x, tc_dtype t)
{
    return x->dtype == t ? x
                         : tci_graph_node(p->g, TCI_OP_CAST, t, x->rank, x->shape, 1, &x, 0, NULL);
}

/* Operands of the dtype of the sums. */
static void tci_split_k_widen(tci_split_k *p)
{
    for (int k = 0; k < 2; k++) {
        p->in[k] = tci_split_k_cast(p, p->in[k], p->sum);
    }
}

/* Fills what n is; false where it is left alone whatever its sizes. */
TCI_FN bool tci_split_k_begin(tci_split_k *p)
{
    tc_dtype t = (tc_dtype)p->n->dtype;
    p->sum = tci_dtype_is_half(t) ? TC_F32 : t;
    return tci_split_k_look(p) && tci_node_count(p->n) != 0;
}

/* ---- rows ---- */

/* True if each row of the larger operand is read so few times, and then from cache, that the sums
 * stream that operand. On GPUs, where memory is far, tiles read it once. */
static bool tci_split_k_are_rows(const tci_split_k *p)
{
    double reads = tci_split_k_reads(p);
    if (p->a->machine.block_threads > 0) {
        tci_dim elements = tci_dim_max(tci_node_count(p->in[0]), tci_node_count(p->in[1]));
        bool far = tci_dim_le(TCI_SPLIT_K_FAR, elements) && p->n->rank > 0 &&
                   tci_dim_le(TCI_GATHER_SIDE, p->n->shape[p->n->rank - 1]);
        return reads <= (far ? TCI_SPLIT_K_FAR_READS : TCI_SPLIT_K_READS);
    }
    bool several = tci_plan_points(p->c, &p->a->machine) > 0;
    int most = several ? TCI_SCORES_ROWS - 1 : TCI_SPLIT_K_READS_HERE;
    return reads <= 1 || (reads <= most && tci_split_k_products(p) <= TCI_SPLIT_K_NEAR);
}

/* Operand k with an axis for each one of the result, then the summed ones. */
static tci_node *tci_split_k_spread(const tci_split_k *p, int k, const tci_dim *whole)
{
    const tci_node *n = p->n;
    tci_node *x = p->in[k];
    int rank = 0, all = n->rank + p->n_summed;
    int64_t *order = TCI_NEW_ARRAY(p->s, int64_t, x->rank);
    tci_dim *turned = TCI_NEW_ARRAY(p->s, tci_dim, x->rank);
    tci_dim *shape = TCI_NEW_ARRAY(p->s, tci_dim, all);
    for (int i = 0; i < all; i++) {
        int64_t label = i < n->rank ? p->out[i] : p->summed[i - n->rank];
        int at = tci_build_label(p->labels[k], x->rank, label);
        shape[i] = at < 0 ? 1 : x->shape[at];
        if (at >= 0) {
            turned[rank] = x->shape[at];
            order[rank++] = at;
        }
    }
    x = tci_graph_node(p->g, TCI_OP_PERMUTE, p->sum, x->rank, turned, 1, &x, x->rank, order);
    x = tci_graph_node(p->g, TCI_OP_RESHAPE, p->sum, all, shape, 1, &x, 0, NULL);
    return tci_graph_node(p->g, TCI_OP_EXPAND, p->sum, all, whole, 1, &x, 0, NULL);
}

/* The SUM of the products over the summed axes. */
static tci_node *tci_split_k_sum_of_products(const tci_split_k *p)
{
    const tci_node *n = p->n;
    int all = n->rank + p->n_summed;
    int64_t *axes = TCI_NEW_ARRAY(p->s, int64_t, p->n_summed + 1);
    tci_dim *whole = TCI_NEW_ARRAY(p->s, tci_dim, all);
    for (int i = 0; i < all; i++) {
        whole[i] = i < n->rank ? n->shape[i] : p->sizes[i - n->rank];
    }
    for (int i = 0; i < p->n_summed; i++) {
        axes[i] = n->rank + i;
    }
    tci_node *in[2] = {tci_split_k_spread(p, 0, whole), tci_split_k_spread(p, 1, whole)};
    tci_node *product = tci_graph_node(p->g, TCI_OP_MUL, p->sum, all, whole, 2, in, 0, NULL);
    return tci_graph_node(p->g, TCI_OP_SUM, p->sum, n->rank, n->shape, 1, &product, p->n_summed,
                          axes);
}

/* True if a CPU has neither tiles nor vectors of neighbouring results: for filters of depthwise or
 * grouped convolutions, whose sums run along rows of images. */
static bool tci_split_k_have_no_tiles(const tci_split_k *p)
{
    int rank = p->n->rank;
    return p->a->machine.block_threads == 0 && rank > 0 && p->n_summed > 1 &&
           TCI_MIN(tci_split_k_own(p, 0), tci_split_k_own(p, 1)) < TCI_SPLIT_K_ROWS &&
           tci_dim_lt(p->n->shape[rank - 1], TCI_SPLIT_K_NEIGHBOURS) &&
           p->sizes[p->n_summed - 1] >= TCI_SPLIT_K_LINE;
}

/* Operand k as it is in memory: what permutes its axes, unless it is a copy, is left out, also
 * below a cast. */
static void tci_split_k_unpermute(tci_split_k *p, int k)
{
    tci_node *whole = p->in[k], *x = whole;
    bool below = x->op == TCI_OP_CAST && !tci_table_has(p->a->forced, x);
    x = below && x->in[0]->op == TCI_OP_PERMUTE ? x->in[0] : x;
    for (; x->op == TCI_OP_PERMUTE && !tci_table_has(p->a->forced, x); x = x->in[0]) {
        int64_t *labels = TCI_NEW_ARRAY(p->s, int64_t, x->rank);
        for (int i = 0; i < x->rank; i++) {
            labels[x->attr[i]] = p->labels[k][i];
        }
        p->labels[k] = labels;
    }
    p->in[k] = tci_split_k_cast(p, x, (tc_dtype)whole->dtype);
}

/* The order of n's axes in which those that only the smaller operand has are after the others, so
 * that rows that read the same are neighbours; false: it is that already. */
static bool tci_split_k_order(const tci_node *n, int64_t *order)
{
    int small = tci_dim_lt(tci_node_count(n->in[0]), tci_node_count(n->in[1])) ? 0 : 1, at = 0;
    bool moves = false;
    for (int rows = 0; rows < 2; rows++) {
        for (int i = 0; i < n->rank; i++) {
            bool lacks = tci_contract_place(n, 2, i, 1 - small) < 0;
            if ((lacks && tci_dim_lt(1, n->shape[i])) == (rows == 1)) {
                moves = moves || at != i;
                order[at++] = i;
            }
        }
    }
    return moves;
}

/* r, whose axes are those of n in that order, with these put back. */
static tci_node *tci_split_k_put_back(const tci_algo *a, const tci_node *n, tci_node *r,
                                      const int64_t *order)
{
    int64_t *back = TCI_NEW_ARRAY(a->s, int64_t, n->rank);
    for (int i = 0; i < n->rank; i++) {
        back[order[i]] = i;
    }
    return tci_graph_node(a->g, TCI_OP_PERMUTE, (tc_dtype)r->dtype, n->rank, n->shape, 1, &r,
                          n->rank, back);
}

static tci_node *tci_split_k_rows(const tci_algo *a, const tci_node *n);

/* Contraction n as rows over its axes in that order, and these put back. */
static tci_node *tci_split_k_ordered(const tci_algo *a, const tci_node *n, const int64_t *order)
{
    tci_node *r = tci_split_k_rows(a, tci_contract_in_order(a->s, a->g, n, n->in, order));
    return r ? tci_split_k_put_back(a, n, r, order) : NULL;
}

/* The SUM of rows of products that contraction n is; NULL: it is none. */
static tci_node *tci_split_k_rows(const tci_algo *a, const tci_node *n)
{
    tci_split_k p = {.a = a, .s = a->s, .g = a->g, .n = n};
    int64_t *order = TCI_NEW_ARRAY(a->s, int64_t, n->rank + 1);
    if (!tci_split_k_begin(&p) || tci_split_k_products(&p) <= TCI_SPLIT_K_LONG_ROW) {
        return NULL;
    }
    if (tci_split_k_have_no_tiles(&p)) {
        tci_split_k_widen(&p);
        return tci_split_k_sum_of_products(&p);
    }
    if (!tci_split_k_are_rows(&p)) {
        return NULL;
    }
    if (tci_split_k_order(n, order)) {
        return tci_split_k_ordered(a, n, order);
    }
    for (int k = 0; k < 2; k++) {
        tci_split_k_unpermute(&p, k);
    }
    tci_split_k_turn_ones(&p, 0);
    tci_split_k_turn_ones(&p, 1);
    if (!tci_split_k_is_row(&p, 0) || !tci_split_k_is_row(&p, 1)) {
        return NULL;
    }
    tci_split_k_widen(&p);
    tci_split_k_merge(&p);
    return tci_split_k_sum_of_products(&p);
}

static bool tci_split_k_rows_fit(tci_offer *o)
{
    o->found = tci_split_k_rows(o->a, o->n);
    return o->found != NULL;
}

static double tci_split_k_rows_cost(const tci_offer *o)
{
    return tci_route_ns(o, tci_route_work_of(o, TCI_BY_VECTORS));
}

static tci_node *tci_split_k_rows_build(const tci_offer *o)
{
    tci_node *rows = o->found;
    tci_node *cut = rows->op == TCI_OP_SUM ? tci_plan_split(o->a, rows) : NULL;
    tci_relayout_store(o->a, o->n->in[0]);
    tci_relayout_store(o->a, o->n->in[1]);
    return tci_build_cast(o->a->g, cut ? cut : rows, (tc_dtype)o->n->dtype);
}

TCI_FN const tci_route *tci_route_gemv(void)
{
    static const tci_route row = {
        "rows of products",   TCI_SUMS_ROWS,         TCI_ROUTE_SPLITS | TCI_ROUTE_REORDERS,
        tci_split_k_rows_fit, tci_split_k_rows_cost, tci_split_k_rows_build};
    return &row;
}

/* ---- sides ---- */

/* The operand that alone has axis i of the result; 2: both have it, or its size is 1. */
static int tci_split_k_side(const tci_split_k *p, int i)
{
    uint8_t group = p->c->axes[i].group;
    return p->n->shape[i] == 1 || group == TCI_AXES_BATCH ? 2 : group == TCI_AXES_N;
}

/* The order of axes in which those of each operand are together; found: it. */
static bool tci_split_k_sides_fit(tci_offer *o)
{
    const tci_algo *a = o->a;
    const tci_node *n = o->n;
    tci_split_k p = {.a = a, .s = a->s, .g = a->g, .n = n};
    int64_t *order = TCI_NEW_ARRAY(a->s, int64_t, n->rank + 1);
    o->found = order;
    if (a->machine.block_threads > 0 || !a->machine.thread_scratch || n->rank == 0 ||
        !tci_split_k_begin(&p) || tci_split_k_products(&p) < TCI_SPLIT_K_LINE) {
        return false;
    }
    int side[3] = {2, 0, 0}, at = 0, i = n->rank - 1;
    double together = 1;
    while (i > 0 && tci_split_k_side(&p, i) == 2) {
        i--;
    }
    side[2] = tci_split_k_side(&p, i); /* the columns, last as they are */
    side[1] = 1 - side[2];
    for (; i >= 0 && tci_split_k_side(&p, i) != side[1]; i--) {
        together *= tci_split_k_side(&p, i) == side[2] ? (double)tci_dim_known(n->shape[i]) : 1;
    }
    if (side[2] == 2 || together >= TCI_SPLIT_K_COLUMNS ||
        tci_split_k_own(&p, side[2]) < TCI_SPLIT_K_COLUMNS ||
        tci_split_k_own(&p, side[1]) < TCI_SPLIT_K_ROWS) {
        return false;
    }
    for (int s = 0; s < 3; s++) {
        for (int j = 0; j < n->rank; j++) {
            if (tci_split_k_side(&p, j) == side[s]) {
                order[at++] = j;
            }
        }
    }
    return true;
}

static double tci_split_k_sides_cost(const tci_offer *o)
{
    tci_route_work work = tci_route_work_of(o, TCI_BY_VECTORS);
    work.bytes += 2 * tci_node_value_bytes(o->n);
    work.launches++;
    return tci_route_ns(o, work);
}

static tci_node *tci_split_k_sides_build(const tci_offer *o)
{
    const tci_algo *a = o->a;
    tci_node *r = tci_contract_in_order(a->s, a->g, o->n, o->n->in, o->found);
    r = a->router->contract(a, r);
    tci_algo_force(a, r);
    return tci_split_k_put_back(a, o->n, r, o->found);
}

TCI_FN const tci_route *tci_route_grouped(void)
{
    static const tci_route row = {
        "axes of operands together", TCI_SUMS_INNER,         TCI_ROUTE_SPLITS,
        tci_split_k_sides_fit,       tci_split_k_sides_cost, tci_split_k_sides_build};
    return &row;
}

/* ---- parts ---- */

/* True if both operands are of one half dtype on a GPU: a matrix unit multiplies them as they are,
 * and a widening that is stored would hide them from it. */
static bool tci_split_k_stays_half(const tci_split_k *p)
{
    return p->a->machine.block_threads > 0 && tci_dtype_is_half((tc_dtype)p->in[0]->dtype) &&
           p->in[0]->dtype == p->in[1]->dtype;
}

/* The sum of parts, as they were chosen. */
TCI_FN tci_node *tci_split_k_made(tci_split_k *p)
{
    double products = tci_split_k_products(p);
    if (!tci_split_k_stays_half(p)) {
        tci_split_k_widen(p);
    }
    int64_t size = p->sizes[p->at];
    tci_split_k_piece whole = {0, size / p->length, p->length};
    tci_split_k_piece rest = {size - size % p->length, 1, size % p->length};
    tci_node *sum = tci_split_k_add(p, tci_split_k_add(p, NULL, whole), rest);
    int64_t inner = 1, chains = whole.parts + (rest.length > 0);
    for (int i = 0; i < p->n_summed; i++) {
        inner *= i > p->at ? p->sizes[i] : 1;
        chains *= i < p->at ? p->sizes[i] : 1;
    }
    tci_str_printf(p->a->orders, "contract of %lld products a sum: %lld parts of %lld\n",
                   (long long)products, (long long)chains, (long long)(p->length * inner));
    return tci_split_k_cast(p, sum, (tc_dtype)p->n->dtype);
}

static bool tci_split_k_find(tci_split_k *p)
{
    return tci_split_k_begin(p) &&
           (p->a->machine.block_threads > 0 ? tci_split_k_choose_of_blocks(p)
                                            : tci_split_k_choose(p));
}

TCI_FN tci_node *tci_plan_parts(const tci_algo *a, tci_node *n)
{
    tci_split_k p = {.a = a, .s = a->s, .g = a->g, .n = n};
    return tci_split_k_find(&p) ? tci_split_k_made(&p) : NULL;
}

/* Partial sums, written and read. */
TCI_FN double tci_split_k_moved(const tci_split_k *p)
{
    double parts = tci_split_k_products(p) / (double)TCI_MAX(p->length, 1);
    for (int i = p->at + 1; i < p->n_summed; i++) {
        parts /= (double)TCI_MAX(p->sizes[i], 1);
    }
    return 2 * parts * (double)tci_dim_known(tci_node_count(p->n)) * tci_dtype_get(p->sum)->bytes;
}

static bool tci_split_k_fit(tci_offer *o)
{
    tci_split_k *p = TCI_NEW(o->a->s, tci_split_k);
    *p = (tci_split_k){.a = o->a, .s = o->a->s, .g = o->a->g, .n = o->n};
    o->found = p;
    return tci_split_k_find(p);
}

static double tci_split_k_cost(const tci_offer *o)
{
    tci_route_work work = tci_route_work_of(o, TCI_BY_VECTORS);
    work.bytes += tci_split_k_moved(o->found);
    work.launches++;
    return tci_route_ns(o, work);
}

static tci_node *tci_split_k_build(const tci_offer *o)
{
    tci_node *parts = tci_plan_parts(o->a, tci_route_plain(o->a, o->n));
    TCI_ASSERT(o->a->s, parts != NULL);
    return parts;
}

TCI_FN const tci_route *tci_route_split_k(void)
{
    static const tci_route row = {
        "split-K",       TCI_SUMS_PARTS,   TCI_ROUTE_SPLITS | TCI_ROUTE_REORDERS,
        tci_split_k_fit, tci_split_k_cost, tci_split_k_build};
    return &row;
}
