/* plan/algorithm.c - one node into several, where that is how it should be computed.
 *
 *   large reductions   few results from many elements: cut into chunks, along one reduced axis (for
 *                      blocks of threads columns also along those before it), whose partial results
 *                      a second reduction combines, so that there is parallel work and the order is
 *                      fixed by the shape and the kind of machine; of a sum of exp(x - max) each
 *                      chunk has a max of its own, of squared deviations a mean
 *   wide CAT           more than eight parts: a tree of CATs of eight, each in memory
 *   CONTRACT operands  a computed operand, or one whose vector axis is strided, goes to memory
 *                      first (it is read many times), unless the kernel will pack it and what it
 *                      computes is cheap, or a matrix unit reads it as it lies (or a copy with
 *                      longer rows, where its rows begin at odd places); of f32 where math may
 *                      be fast plan/kmajor.c
 *   CONTRACT with weights  over a copy of these that lies in panels (plan/prepack.c)
 *   CONTRACT of windows  over copies with channels last, for a matrix unit (plan/conv_layout.c)
 *   CONTRACT of windows of 3 x 3  with fewer products, where math may be fast (plan/winograd.c)
 *   long CONTRACT sums of few results in parts (plan/split_k.c), unless a matrix unit makes them;
 *                      with the axes of each operand together where tiles want them so
 *   long SCAN         in parts (plan/scan.c)
 *   TOPK              counts of what is less, or a sort by digits (plan/sort.c)
 *   long SCATTER      by machines of blocks: its index is ordered first (plan/scatter_sort.c)
 * Works on the rewritten graph in place: the replaced node's users are pointed to the new one. */
#include "../graph/build.h"
#include "../kernel/matrix.h"
#include "group.h"
#include "why.h"

enum {
    TCI_ALGO_FEW = 64,            /* results up to which a reduction is cut */
    TCI_ALGO_MANY = 65536,        /* reduced elements from which it is cut */
    TCI_ALGO_CHUNK = 32768,       /* elements a chunk aims at */
    TCI_ALGO_ROWS = 96,           /* rows that keep most of any device busy, a block each */
    TCI_ALGO_BLOCK_LANES = 1024,  /* results that one block makes side by side */
    TCI_ALGO_LONG_COLUMN = 128,   /* elements of a column that is cut, */
    TCI_ALGO_BLOCK_COLUMN = 16,   /* least elements that one thread then folds, */
    TCI_ALGO_COLUMN_LANES = 264 * TCI_ALGO_BLOCK_LANES, /* and lanes that keep any device busy */
    TCI_ALGO_CAT = 8,
    TCI_ALGO_REUSE = 4,           /* times an operand is read before it is worth a copy */
    TCI_ALGO_BACK = 256,       /* results that an element read backwards is for, to be copied */
    TCI_ALGO_PACK_ROWS = 8,       /* that loop/gemm_operands.c asks of a packed contraction */
    TCI_ALGO_PACK_COLUMNS = 16,
    TCI_ALGO_PACK_INNER = 1024,
    TCI_ALGO_PITCH_ROWS = 64,     /* rows of a product that is worth a copy of an operand */
    TCI_ALGO_SCORES = 8,          /* operations between a score and its product, at most */
    TCI_ALGO_PACK_OPS = 4         /* operations of an operand that packing evaluates */
};

TCI_FN tci_node *tci_algo_permute(const tci_algo *a, tci_node *x, const int64_t *perm)
{
    int64_t *whole = TCI_NEW_ARRAY(a->s, int64_t, x->rank);
    tci_dim *shape = TCI_NEW_ARRAY(a->s, tci_dim, x->rank);
    bool same = true;
    for (int i = 0; i < x->rank; i++) {
        whole[i] = x->op == TCI_OP_PERMUTE ? x->attr[perm[i]] : perm[i];
        shape[i] = x->shape[perm[i]];
        same = same && whole[i] == i;
    }
    x = x->op == TCI_OP_PERMUTE ? x->in[0] : x;
    return same ? x
                : tci_graph_node(a->g, TCI_OP_PERMUTE, (tc_dtype)x->dtype, x->rank, shape, 1, &x,
                                 x->rank, whole);
}

/* ---- reductions ---- */

/* d, if it is nearer to want than best and from a fourth of want to below its double. */
static int64_t tci_algo_nearer(int64_t best, int64_t d, int64_t want)
{
    int64_t far = d < want ? want - d : d - want;
    int64_t best_far = best < want ? want - best : best - want;
    bool fits = d >= (want + 3) / 4 && d < 2 * want;
    bool nearer = best == 0 || far < best_far || (far == best_far && d > best);
    return fits && nearer ? d : best;
}

/* Divisors come in pairs: as many steps as the root of n. */
TCI_FN int64_t tci_plan_divisor(int64_t n, int64_t want)
{
    int64_t best = 0;
    for (int64_t d = 1; d <= n / d; d++) {
        if (n % d == 0) {
            best = tci_algo_nearer(best, d, want);
            best = tci_algo_nearer(best, n / d, want);
        }
    }
    return best;
}

static tci_node *tci_algo_pad_axis(const tci_algo *a, tci_node *x, int axis, int64_t size,
                                   tci_node *fill)
{
    tci_dim *shape = tci_scratch_copy(a->s, x->shape, sizeof(tci_dim) * (size_t)x->rank);
    int64_t *before = TCI_NEW_ARRAY(a->s, int64_t, x->rank);
    shape[axis] = size;
    tci_node *in[2] = {x, fill};
    return tci_graph_node(a->g, TCI_OP_PAD, (tc_dtype)x->dtype, x->rank, shape, 2, in, x->rank,
                          before);
}

/* Elements that lie side by side in a row that n reduces. */
static int64_t tci_algo_line(const tci_node *n)
{
    const tci_node *x = n->in[0];
    int64_t line = 1;
    for (int i = n->n_attr - 1, at = x->rank - 1; i >= 0 && n->attr[i] == at; i--, at--) {
        line *= tci_dim_known(x->shape[at]);
    }
    return line;
}

/* Pieces that reduction n is worth on a machine of blocks: up to one it is left whole. Of rows that
 * are many short lines each block has few threads: pieces of whole lines keep more of them busy. */
static int64_t tci_algo_pieces(const tci_node *n, int64_t results, int64_t all)
{
    bool rows = n->attr[n->n_attr - 1] == n->in[0]->rank - 1;
    if (rows && tci_plan_has_lines(results, all / results, tci_algo_line(n))) {
        return TCI_MIN(all / results / tci_algo_line(n), TCI_CLASS_PIECES * 8 / results);
    }
    if (rows && tci_plan_has_rows(results, all / results, tci_algo_line(n))) {
        return 1;
    }
    int64_t blocks = rows ? results : (results + TCI_ALGO_BLOCK_LANES - 1) / TCI_ALGO_BLOCK_LANES;
    int64_t most = all / results / (rows ? TCI_CLASS_PIECE_ROW : TCI_ALGO_BLOCK_COLUMN);
    int64_t busy = rows ? 0 : TCI_ALGO_COLUMN_LANES / results;
    if (!rows && all / results < TCI_ALGO_LONG_COLUMN) {
        return 1;
    }
    return TCI_MIN(most, TCI_MAX(TCI_CLASS_PIECES / blocks, busy));
}

/* The reduced axis that is cut: the largest one that is not the fastest, unless that is the only
 * long one. */
static int tci_algo_longest(const tci_node *n)
{
    const tci_node *x = n->in[0];
    int at = 0;
    for (int i = 1; i < n->n_attr; i++) {
        int64_t size = tci_dim_most(x->shape[n->attr[i]]);
        int64_t best = tci_dim_most(x->shape[n->attr[at]]);
        bool larger = i == n->n_attr - 1 ? (size - 1) / 64 >= best : size > best;
        at = larger ? i : at;
    }
    return at;
}

TCI_FN bool tci_plan_has_lines(tci_dim rows, tci_dim row, tci_dim line)
{
    return tci_dim_lt(line, TCI_CLASS_LINE) && tci_dim_le(rows, 4 * TCI_CLASS_PIECES) &&
           tci_dim_le(tci_dim_mul(line, TCI_CLASS_LINES), row);
}

TCI_FN bool tci_plan_has_rows(tci_dim rows, tci_dim row, tci_dim line)
{
    return line == row && tci_dim_le(TCI_ALGO_ROWS, rows) &&
           tci_dim_le(row, TCI_CLASS_ROW_VECTORS * TCI_VLANES_MAX);
}

/* Where reduction n is cut, and how. */
typedef struct tci_algo_cut_at {
    int at;        /* of the reduced axes */
    int64_t chunk; /* elements of a chunk; 0: it is left whole */
    int before;    /* reduced axes, the outermost ones, of which each place has chunks of its own */
} tci_algo_cut_at;

/* A machine of blocks cuts the outermost axis if it has about as many elements as pieces are
 * wanted, since what lies inside stays one row then, else the longest one of a row, and of columns
 * the first one that has enough with those before it. */
static void tci_algo_cut_for_blocks(const tci_node *n, int64_t pieces, tci_algo_cut_at *cut)
{
    const tci_node *x = n->in[0];
    bool columns = n->attr[n->n_attr - 1] != x->rank - 1;
    int64_t outermost = tci_dim_known(x->shape[n->attr[0]]), places = 1;
    cut->at = 2 * outermost >= pieces || columns ? 0 : cut->at;
    while (columns && cut->at + 1 < n->n_attr &&
           2 * places * tci_dim_known(x->shape[n->attr[cut->at]]) < pieces) {
        places *= tci_dim_known(x->shape[n->attr[cut->at++]]);
        cut->before++;
    }
    int64_t size = places * tci_dim_known(x->shape[n->attr[cut->at]]);
    cut->chunk = pieces > 1 ? TCI_MAX(1, size / pieces) : 0;
}

/* By a processor the longest axis. Sizes that are symbols leave it whole: the order must not follow
 * from what they typically are. */
static tci_algo_cut_at tci_algo_cut_of(const tci_node *n, tci_machine machine)
{
    const tci_node *x = n->in[0];
    tci_dim to = tci_node_count(n), from = tci_node_count(x);
    tci_algo_cut_at cut = {0};
    if (n->n_attr == 0 || !tci_dim_is_known(to) || !tci_dim_is_known(from) || to == 0 ||
        from == 0) {
        return cut;
    }
    const int64_t results = tci_dim_known(to), all = tci_dim_known(from);
    cut.at = tci_algo_longest(n);
    int64_t size = tci_dim_known(x->shape[n->attr[cut.at]]);
    if (machine.block_threads == 0) {
        bool large = results <= TCI_ALGO_FEW && all / results >= TCI_ALGO_MANY;
        cut.chunk = large ? TCI_MAX(1, TCI_ALGO_CHUNK / (all / size)) : 0;
    } else {
        tci_algo_cut_for_blocks(n, tci_algo_pieces(n, results, all), &cut);
        size = tci_dim_known(x->shape[n->attr[cut.at]]);
    }
    cut.chunk = cut.chunk > 0 && (cut.before > 0 || size / cut.chunk >= 2) ? cut.chunk : 0;
    return cut;
}

/* The operand of a reduction that is cut: an axis of chunks before that of their elements. A chunk
 * is reduced along `axes`, and what that leaves, of shape `kept`, along `parts`. */
typedef struct tci_algo_chunks {
    tci_node *x;
    tci_dim *kept;
    int64_t *axes, *parts;
    int n_kept, n_axes, n_parts;
    bool padded;
    tci_association as; /* class of what walks the elements of chunks, on a processor */
} tci_algo_chunks;

/* False: n is better left alone. */
static bool tci_algo_cut(const tci_algo *a, const tci_node *n, tci_algo_chunks *c)
{
    tci_node *x = n->in[0];
    tci_algo_cut_at cut = tci_algo_cut_of(n, a->machine);
    if (cut.chunk == 0) {
        return false;
    }
    int at = cut.at, axis = (int)n->attr[at];
    int64_t size = tci_dim_known(x->shape[axis]), chunk = cut.chunk;
    int64_t even = tci_plan_divisor(size, chunk);
    bool half = tci_dtype_is_half((tc_dtype)x->dtype);
    tc_dtype t = half ? TC_F32 : (tc_dtype)n->dtype;
    c->padded = !even;
    if (a->associations) {
        c->as = tci_association_of(a->s, a->associations, n);
        c->as.run = (int16_t)TCI_MIN(c->as.run, n->n_attr - at);
    }
    if (!even && tci_op_get(n->op)->identity >= TCI_IDENTITY_LOWEST) {
        return false; /* MAX, MIN: nothing to pad with */
    }
    x = tci_build_cast(a->g, x, t);
    if (even) {
        chunk = even;
    } else {
        size = (size + chunk - 1) / chunk * chunk;
        tci_node *fill = tci_graph_const(a->g, t, tci_op_identity(n->op, t));
        x = tci_algo_pad_axis(a, x, axis, size, fill);
    }
    tci_dim *shape = TCI_NEW_ARRAY(a->s, tci_dim, x->rank + 1);
    for (int i = 0; i <= x->rank; i++) {
        shape[i] = i == axis ? size / chunk : i == axis + 1 ? chunk : x->shape[i - (i > axis)];
    }
    c->x = tci_graph_node(a->g, TCI_OP_RESHAPE, t, x->rank + 1, shape, 1, &x, 0, NULL);
    c->n_axes = n->n_attr - cut.before;
    c->n_kept = c->n_parts = 0;
    c->axes = TCI_NEW_ARRAY(a->s, int64_t, c->n_axes);
    c->parts = TCI_NEW_ARRAY(a->s, int64_t, cut.before + 1);
    c->kept = TCI_NEW_ARRAY(a->s, tci_dim, c->x->rank);
    for (int i = 0; i < c->n_axes; i++) {
        c->axes[i] = n->attr[cut.before + i] + (cut.before + i >= at);
    }
    for (int i = 0; i < c->x->rank; i++) {
        if (i == axis || (c->n_parts < cut.before && i == n->attr[c->n_parts])) {
            c->parts[c->n_parts++] = c->n_kept;
        }
        if (tci_build_label(c->axes, c->n_axes, i) < 0) {
            c->kept[c->n_kept++] = shape[i];
        }
    }
    return true;
}

/* Fold n, whose class is `as` unless it has one. */
static tci_node *tci_algo_as(const tci_algo *a, tci_node *n, tci_association as)
{
    tci_association *is = a->associations ? tci_table_at(a->associations, n) : NULL;
    if (is && !is->known) {
        as.axes = is->axes;
        *is = as;
    }
    return n;
}

/* Each chunk of x, which has the shape of c's, by itself. */
static tci_node *tci_algo_chunk_by(const tci_algo *a, const tci_algo_chunks *c, int op, tci_node *x)
{
    tci_node *made = tci_graph_node(a->g, op, (tc_dtype)x->dtype, c->n_kept, c->kept, 1, &x,
                                    c->n_axes, c->axes);
    return tci_algo_as(a, made, c->as);
}

/* What chunks gave, as one, in the place of n but for its dtype. */
static tci_node *tci_algo_join_by(const tci_algo *a, const tci_algo_chunks *c, int op,
                                  tci_node *part, const tci_node *n)
{
    return tci_graph_node(a->g, op, (tc_dtype)part->dtype, n->rank, n->shape, 1, &part, c->n_parts,
                          c->parts);
}

/* Cuts reduction n; NULL when it is better left alone. */
TCI_FN tci_node *tci_plan_split(const tci_algo *a, tci_node *n)
{
    tci_algo_chunks c;
    if (!tci_algo_cut(a, n, &c)) {
        return NULL;
    }
    tci_node *part = tci_algo_chunk_by(a, &c, n->op, c.x);
    return tci_build_cast(a->g, tci_algo_join_by(a, &c, n->op, part, n), (tc_dtype)n->dtype);
}

/* Cuts n, the place of the largest or smallest element: each chunk has one, and the first chunk
 * whose element there is that of all tells which place is meant. NULL as above. */
static tci_node *tci_algo_split_arg(const tci_algo *a, tci_node *n)
{
    tci_node *x = n->in[0];
    int op = n->op == TCI_OP_ARGMAX ? TCI_OP_MAX : TCI_OP_MIN, axis = (int)n->attr[0];
    tci_algo_chunks c;
    if (!tci_algo_cut(a, tci_graph_node(a->g, op, (tc_dtype)x->dtype, n->rank, n->shape, 1, &x,
                                        n->n_attr, n->attr), &c)) {
        return NULL;
    }
    tc_dtype t = (tc_dtype)n->dtype;
    tci_node *places = tci_graph_node(a->g, n->op, t, c.n_kept, c.kept, 1, &c.x, c.n_axes, c.axes);
    tci_dim *of_one = tci_scratch_copy(a->s, c.x->shape, sizeof(tci_dim) * (size_t)c.x->rank);
    of_one[axis + 1] = 1;
    tci_node *values = tci_build_reshape(a->g, places, c.x->rank, of_one);
    values = tci_build_gather(a->g, c.x, axis + 1, values);
    values = tci_build_reshape(a->g, values, c.n_kept, c.kept);
    tci_node *chunk = tci_graph_node(a->g, n->op, t, n->rank, n->shape, 1, &values, c.n_parts,
                                     c.parts);
    tci_dim *one = tci_scratch_copy(a->s, c.kept, sizeof(tci_dim) * (size_t)c.n_kept);
    one[axis] = 1;
    tci_node *place = tci_build_gather(a->g, places, axis,
                                       tci_build_reshape(a->g, chunk, c.n_kept, one));
    tci_value length = {.i = tci_dim_known(c.x->shape[axis + 1])};
    tci_node *each = tci_build_broadcast(a->g, tci_graph_const(a->g, t, length), n->rank, n->shape);
    tci_node *before[2] = {chunk, each}, *sum[2];
    sum[0] = tci_build_ew(a->g, TCI_OP_MUL, before);
    sum[1] = tci_build_reshape(a->g, place, n->rank, n->shape);
    return tci_build_ew(a->g, TCI_OP_ADD, sum);
}

/* n as reductions whose order follows from no size, and what that forbids. */
static tci_node *tci_algo_reproducible(const tci_algo *a, tci_node *n)
{
    tci_algo_cut_at cut = tci_algo_cut_of(n, a->machine);
    if (cut.chunk > 0) {
        tci_dim size = n->in[0]->shape[n->attr[cut.at]];
        tci_str_printf(a->orders, "%s: whole, to be reproducible, else %lld parts\n",
                       tci_op_name(n->op), (long long)(tci_dim_known(size) / cut.chunk));
    }
    return tci_class_reproducible(a->s, a->g, n);
}

static tci_node *tci_algo_node(const tci_algo *a, tci_node *n);

/* m over the axes that it was reduced by, as x has them. */
static tci_node *tci_algo_spread(const tci_algo *a, tci_node *m, const tci_node *x, int n_axes,
                                 const int64_t *axes)
{
    tci_dim *ones = tci_scratch_copy(a->s, x->shape, sizeof(tci_dim) * (size_t)x->rank);
    for (int i = 0; i < n_axes; i++) {
        ones[axes[i]] = 1;
    }
    return tci_build_broadcast(a->g, tci_build_reshape(a->g, m, x->rank, ones), x->rank, x->shape);
}

/* exp(x - m), m of x by these axes. */
static tci_node *tci_algo_powers(const tci_algo *a, tci_node *x, tci_node *m, int n_axes,
                                 const int64_t *axes)
{
    tci_node *less[2] = {x, tci_algo_spread(a, m, x, n_axes, axes)};
    tci_node *shifted = tci_build_ew(a->g, TCI_OP_SUB, less);
    return tci_build_ew(a->g, TCI_OP_EXP, &shifted);
}

/* A sum of exp(x - m) whose m, the largest x, is cut: each part has a largest element of its own,
 * so that no part waits for m and x is read once for both. The parts are scaled as they are added;
 * one that is scaled to nothing is nothing, also where it is NaN: all of it is -inf then. */
static tci_node *tci_algo_cut_powers(const tci_algo *a, tci_node *n)
{
    const tci_node *shifted = n->op == TCI_OP_SUM && n->in[0]->op == TCI_OP_EXP ? n->in[0]->in[0]
                                                                                  : n;
    tc_dtype t = (tc_dtype)n->dtype;
    if (shifted->op != TCI_OP_SUB || shifted->dtype != n->dtype || tci_dtype_is_half(t)) {
        return NULL;
    }
    tci_node *x = shifted->in[0];
    tci_node *most = tci_graph_node(a->g, TCI_OP_MAX, t, n->rank, n->shape, 1, &x, n->n_attr,
                                    n->attr);
    tci_node *cut = tci_plan_split(a, most), *sum;
    if (!cut || shifted->in[1] != tci_algo_spread(a, cut, x, n->n_attr, n->attr)) {
        return NULL;
    }
    tci_node *part = cut->in[0];
    x = part->in[0];
    sum = tci_algo_powers(a, x, part, part->n_attr, part->attr);
    sum = tci_graph_node(a->g, TCI_OP_SUM, t, part->rank, part->shape, 1, &sum, part->n_attr,
                         part->attr);
    tci_node *scale = tci_algo_powers(a, part, cut, cut->n_attr, cut->attr);
    tci_node *zero = tci_build_broadcast(a->g, tci_graph_const(a->g, t, (tci_value){.f = 0}),
                                         part->rank, part->shape);
    tci_node *none[2] = {scale, zero}, *scaled[2] = {sum, scale};
    sum = tci_build_where(a->g, tci_build_ew(a->g, TCI_OP_EQ, none), zero,
                          tci_build_ew(a->g, TCI_OP_MUL, scaled));
    tci_dim parts = tci_dim_div(tci_node_count(part), tci_node_count(cut));
    tci_str_printf(a->orders, "sum of exp(x - max): %lld parts, each with a max of its own\n",
                   (long long)tci_dim_known(parts));
    return tci_graph_node(a->g, TCI_OP_SUM, t, n->rank, n->shape, 1, &sum, cut->n_attr, cut->attr);
}

/* The mean of sums over `count` elements each. */
static tci_node *tci_algo_mean(const tci_algo *a, tci_node *sum, tci_dim count)
{
    tci_node *of[2] = {sum, tci_build_size_value(a->g, count, (tc_dtype)sum->dtype)};
    return tci_build_ew(a->g, TCI_OP_DIV, of);
}

/* (x - m) squared, m as x was reduced to it by these axes. */
static tci_node *tci_algo_deviations(const tci_algo *a, tci_node *x, tci_node *m, int n_axes,
                                     const int64_t *axes)
{
    tci_node *off[2] = {x, tci_algo_spread(a, m, x, n_axes, axes)};
    off[0] = tci_build_ew(a->g, TCI_OP_SUB, off);
    return tci_build_ew(a->g, TCI_OP_SQUARE, off);
}

/* The squared deviations of x in n's place, in chunks that are read once: those of each from its
 * own mean, and of these means from that of all, each as often as it has elements. */
static tci_node *tci_algo_devsq_by_chunks(const tci_algo *a, const tci_node *sum,
                                          const tci_algo_chunks *c)
{
    tci_node *part = tci_algo_chunk_by(a, c, TCI_OP_SUM, c->x);
    tci_dim each = tci_dim_div(tci_node_count(c->x), tci_node_count(part));
    tci_dim all = tci_dim_div(tci_node_count(c->x), tci_node_count(sum));
    tci_node *means = tci_algo_mean(a, part, each);
    tci_node *own = tci_algo_deviations(a, c->x, means, c->n_axes, c->axes);
    tci_node *mean = tci_algo_mean(a, tci_algo_join_by(a, c, TCI_OP_SUM, part, sum), all);
    tci_node *far[2] = {tci_algo_deviations(a, means, mean, c->n_parts, c->parts),
                        tci_build_size_value(a->g, each, (tc_dtype)sum->dtype)};
    far[0] = tci_build_ew(a->g, TCI_OP_MUL, far);
    far[1] = tci_algo_chunk_by(a, c, TCI_OP_SUM, own);
    return tci_algo_join_by(a, c, TCI_OP_SUM, tci_build_ew(a->g, TCI_OP_ADD, far), sum);
}

/* The SUM of x over the axes of fold n, of its class. */
static tci_node *tci_algo_sum_like(const tci_algo *a, const tci_node *n, tci_node *x)
{
    tci_node *sum = tci_graph_node(a->g, TCI_OP_SUM, (tc_dtype)x->dtype, n->rank, n->shape, 1, &x,
                                   n->n_attr, n->attr);
    tci_association none = {0};
    return tci_algo_as(a, sum, a->associations ? tci_association_of(a->s, a->associations, n)
                                               : none);
}

/* x less the first element of each of its rows, whose deviations are the same: sums of numbers that
 * are far from 0 would round by more than these are. Sizes that are symbols may be 0: then it is
 * x. */
static tci_node *tci_algo_near_zero(const tci_algo *a, tci_node *x, int n_axes,
                                    const int64_t *axes)
{
    tci_node *first = x;
    for (int i = 0; i < n_axes; i++) {
        if (!tci_dim_is_known(x->shape[axes[i]]) || x->shape[axes[i]] == 0) {
            return x;
        }
        first = tci_build_slice(a->g, first, (int)axes[i], 0, 1, 1);
    }
    tci_node *less[2] = {x, tci_build_broadcast(a->g, first, x->rank, x->shape)};
    return tci_build_ew(a->g, TCI_OP_SUB, less);
}

/* A DEVSQ that would be cut, is to be reproducible over several axes, or is of too many elements to
 * count: as sums, which are joined from sums of parts. */
static tci_node *tci_algo_devsq(const tci_algo *a, tci_node *n)
{
    const tc_dtype t = (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute;
    tci_node *x = tci_build_cast(a->g, n->in[0], t);
    tci_algo_chunks chunks;
    tci_dim count = 1;
    if (n->n_attr == 0) {
        return NULL;
    }
    for (int i = 0; i < n->n_attr; i++) {
        count = tci_dim_mul(count, x->shape[n->attr[i]]);
    }
    tci_node *sum = tci_algo_sum_like(a, n, x);
    bool cut = tci_algo_cut(a, sum, &chunks), fixed = a->machine.reproducible;
    if ((fixed ? n->n_attr == 1 : !cut) && tci_dim_le(count, INT32_MAX)) {
        return NULL; /* that is what a COUNT holds */
    }
    x = tci_algo_near_zero(a, x, n->n_attr, n->attr);
    sum = tci_algo_sum_like(a, n, x);
    cut = tci_algo_cut(a, sum, &chunks);
    if (cut && !fixed && !chunks.padded) {
        sum = tci_algo_devsq_by_chunks(a, sum, &chunks);
        return tci_build_cast(a->g, sum, (tc_dtype)n->dtype);
    }
    tci_node *mean = tci_algo_mean(a, tci_algo_node(a, sum), count);
    sum = tci_algo_sum_like(a, n, tci_algo_deviations(a, x, mean, n->n_attr, n->attr));
    return tci_build_cast(a->g, tci_algo_node(a, sum), (tc_dtype)n->dtype);
}

/* ---- concatenations ---- */

static tci_node *tci_algo_cat(const tci_algo *a, tci_node *n)
{
    int axis = (int)n->attr[0], parts = n->n_in;
    tci_node **list = tci_scratch_copy(a->s, n->in, sizeof(tci_node *) * (size_t)parts);
    while (parts > TCI_ALGO_CAT) {
        int made = 0;
        for (int i = 0; i < parts; i += TCI_ALGO_CAT) {
            int take = TCI_MIN(TCI_ALGO_CAT, parts - i);
            tci_dim *shape = tci_scratch_copy(a->s, n->shape, sizeof(tci_dim) * (size_t)n->rank);
            shape[axis] = 0;
            for (int j = 0; j < take; j++) {
                shape[axis] = tci_dim_add(shape[axis], list[i + j]->shape[axis]);
            }
            tci_node *part = list[i];
            if (take > 1) {
                part = tci_graph_node(a->g, TCI_OP_CAT, (tc_dtype)n->dtype, n->rank, shape, take,
                                      list + i, 1, n->attr);
                tci_algo_force(a, part);
            }
            list[made++] = part;
        }
        parts = made;
    }
    return tci_graph_node(a->g, TCI_OP_CAT, (tc_dtype)n->dtype, n->rank, n->shape, parts, list, 1,
                          n->attr);
}

/* ---- contractions ---- */

static bool tci_algo_has_known_sizes(const tci_node *n)
{
    bool known = true;
    for (int i = 0; i < n->rank; i++) {
        known = known && tci_dim_is_known(n->shape[i]);
    }
    return known;
}

static bool tci_algo_is_view(const tci_node *n)
{
    return tci_op_is(n->op, TCI_IS_VIEW) || n->op == TCI_OP_CAST;
}

/* Is n padding of what lies in memory with its channels last? Lanes along these share its
 * guards. */
static bool tci_algo_pads_images(const tci_algo *a, const tci_node *n)
{
    bool pads = n->op == TCI_OP_PAD;
    for (n = pads ? n->in[0] : n; tci_algo_is_view(n) && !tci_table_has(a->images, n);) {
        n = n->in[0];
    }
    return pads && tci_table_has(a->images, n);
}

/* Forces what an operand computes into memory: the first value below its views, or of the
 * conversions among them the one to the fewest bytes. */
static void tci_algo_store_operand(const tci_algo *a, tci_node *n)
{
    tci_node *least = NULL;
    for (; tci_algo_is_view(n) && !tci_table_has(a->forced, n); n = n->in[0]) {
        int bytes = tci_dtype_get((tc_dtype)n->dtype)->bytes;
        int most = tci_dtype_get((tc_dtype)(least ? least : n->in[0])->dtype)->bytes;
        least = n->op == TCI_OP_CAST && bytes < most ? n : least;
    }
    if (!tci_op_is(n->op, TCI_IS_MEMORY | TCI_IS_NUMBER) && !tci_algo_pads_images(a, n)) {
        tci_algo_force(a, least ? least : n);
    }
}

/* ADD, SUB, MUL and the like over leaves, seen through views: how many, or too many. pads: padding
 * is one of them. */
static int tci_algo_cheap_ops(const tci_node *n, bool pads)
{
    while (tci_algo_is_view(n)) {
        n = n->in[0];
    }
    bool given = tci_op_is(n->op, TCI_IS_MEMORY | TCI_IS_NUMBER);
    bool cheap = n->op == TCI_OP_ADD || n->op == TCI_OP_SUB || n->op == TCI_OP_MUL ||
                 n->op == TCI_OP_NEG || n->op == TCI_OP_RELU || (pads && n->op == TCI_OP_PAD);
    int ops = given ? 0 : cheap ? 1 : TCI_ALGO_PACK_OPS + 1;
    for (int i = 0; cheap && i < n->n_in && ops <= TCI_ALGO_PACK_OPS; i++) {
        ops += tci_algo_cheap_ops(n->in[i], pads);
    }
    return ops;
}

static bool tci_algo_has_label(const int64_t *labels, int64_t n, int64_t label)
{
    for (int64_t i = 0; i < n; i++) {
        if (labels[i] == label) {
            return true;
        }
    }
    return false;
}

/* Will the kernel of contraction n pack its operands? One has the last output axis, the other the
 * rows (the last output axis that the first one lacks), and both have all that is summed. */
static bool tci_algo_packs(const tci_node *n, tci_machine machine)
{
    const int64_t *a = n->attr + 3, *b = a + n->attr[0], *out = b + n->attr[1];
    int64_t rank_a = n->attr[0], rank_b = n->attr[1], rank = n->attr[2], inner = 1, first = 0;
    if (!machine.has_work || rank < 2 || n->dtype == TC_BOOL ||
        tci_dim_hint(n->shape[rank - 1]) < TCI_ALGO_PACK_COLUMNS) {
        return false;
    }
    bool in_a = tci_algo_has_label(a, rank_a, out[rank - 1]);
    bool in_b = tci_algo_has_label(b, rank_b, out[rank - 1]);
    const int64_t *vec = in_a ? a : b;
    int64_t row = rank - 2;
    while (row >= 0 && (n->shape[row] == 1 ||
                        tci_algo_has_label(vec, in_a ? rank_a : rank_b, out[row]))) {
        row--;
    }
    int least = tci_plan_points(n, machine) > 0 ? TCI_PAIRS_ROWS : TCI_ALGO_PACK_ROWS;
    if (in_a == in_b || row < 0 || tci_dim_hint(n->shape[row]) < least) {
        return false;
    }
    for (int64_t i = 0; i < rank_a; i++) {
        if (!tci_algo_has_label(out, rank, a[i])) {
            inner *= first ? tci_dim_hint(n->in[0]->shape[i]) : 1;
            first = 1;
            if (!tci_algo_has_label(b, rank_b, a[i])) {
                return false;
            }
        }
    }
    for (int64_t i = 0; i < rank_b; i++) {
        if (!tci_algo_has_label(out, rank, b[i]) && !tci_algo_has_label(a, rank_a, b[i])) {
            return false;
        }
    }
    return first && inner <= TCI_ALGO_PACK_INNER;
}

/* The labels of operand `which` of contraction n. */
static const int64_t *tci_algo_labels(const tci_node *n, int which)
{
    return n->attr + 3 + (which > 0 ? n->attr[0] : 0) + (which > 1 ? n->attr[1] : 0);
}

static bool tci_algo_is_in(const tci_node *n, int which, int64_t label)
{
    return tci_algo_has_label(tci_algo_labels(n, which), n->attr[which], label);
}

TCI_FN int tci_plan_fastest_axis(const tci_node *n)
{
    int axis = n->rank - 1;
    const tci_node *chain[16];
    int depth = 0;
    while (n->op == TCI_OP_PERMUTE && depth < TCI_COUNT(chain)) {
        chain[depth++] = n;
        n = n->in[0];
    }
    axis = n->rank - 1;
    while (depth > 0) {
        const tci_node *p = chain[--depth];
        for (int i = 0; i < p->rank; i++) {
            if (p->attr[i] == axis) {
                axis = i;
                break;
            }
        }
    }
    return axis;
}

/* Will a block of threads make tiles of contraction n, reading each operand through its own index
 * expression (loop/simt_gemm.c)? That has the rows, columns and products for it. */
static bool tci_algo_gathers(const tci_node *n, tci_machine machine)
{
    double own[2] = {1, 1}, depth = 1;
    const int64_t *out = tci_algo_labels(n, 2);
    if (machine.block_threads < TCI_GATHER_THREADS || n->dtype == TC_BOOL || n->rank < 2 ||
        !tci_algo_has_known_sizes(n) || !tci_algo_has_known_sizes(n->in[0]) ||
        !tci_algo_has_known_sizes(n->in[1])) {
        return false;
    }
    for (int i = 0; i < n->rank; i++) {
        bool in_a = tci_algo_is_in(n, 0, out[i]), in_b = tci_algo_is_in(n, 1, out[i]);
        own[in_b] *= in_a != in_b ? (double)tci_dim_known(n->shape[i]) : 1;
    }
    for (int which = 0; which < 2; which++) {
        const int64_t *labels = tci_algo_labels(n, which);
        for (int i = 0; i < n->attr[which]; i++) {
            bool summed = !tci_algo_has_label(out, n->rank, labels[i]);
            if (summed && !tci_algo_is_in(n, 1 - which, labels[i])) {
                return false;
            }
            depth *= summed && which == 0 ? (double)tci_dim_known(n->in[0]->shape[i]) : 1;
        }
    }
    int columns = tci_algo_is_in(n, 1, out[n->rank - 1]); /* the operand that has them */
    int64_t fastest = tci_algo_labels(n, columns)[tci_plan_fastest_axis(n->in[columns])];
    bool streams = !tci_algo_has_label(out, n->rank, fastest);
    return own[columns] >= TCI_GATHER_SIDE && depth >= TCI_GATHER_DEPTH &&
           own[1 - columns] >= (streams ? TCI_GATHER_FEW : TCI_GATHER_SIDE);
}

/* Is there padding below the movements over an operand? */
static bool tci_algo_is_padded(const tci_node *n)
{
    while (tci_algo_is_view(n)) {
        n = n->in[0];
    }
    return n->op == TCI_OP_PAD;
}

/* Will the threads of a block each take points of contraction n, wherever those lie
 * (loop/thread_per_point.c)? */
static bool tci_algo_spreads(const tci_node *n, tci_machine machine)
{
    bool known = tci_algo_has_known_sizes(n) && tci_algo_has_known_sizes(n->in[0]) &&
                 tci_algo_has_known_sizes(n->in[1]);
    return known && machine.block_threads >= TCI_GATHER_THREADS && n->dtype != TC_BOOL &&
           n->rank > 0 &&
           (tci_dim_lt(n->shape[n->rank - 1], TCI_SPREAD_SHORT) || tci_algo_is_padded(n->in[0]) ||
            tci_algo_is_padded(n->in[1]));
}

/* ---- matrix units ---- */

/* The bf16 or f16 value behind an operand that could lie in memory as it is read: below movements
 * and a widening, unless one of these lies in memory. NULL: there is none. */
static tci_node *tci_algo_half_source(const tci_algo *a, tci_node *n)
{
    while (tci_algo_is_view(n) && !tci_table_has(a->forced, n)) {
        bool narrows = n->op == TCI_OP_CAST && tci_dtype_is_half((tc_dtype)n->dtype);
        bool widens = n->op == TCI_OP_CAST && n->dtype == TC_F32 &&
                      tci_dtype_is_half((tc_dtype)n->in[0]->dtype);
        if (narrows) {
            break;
        }
        if (n->op == TCI_OP_CAST && !widens) {
            return NULL;
        }
        n = n->in[0];
    }
    bool fits = n->rank > 0 && tci_algo_has_known_sizes(n);
    return tci_dtype_is_half((tc_dtype)n->dtype) && fits ? n : NULL;
}

/* The last axis of n with more than one element, or its last one. */
static int tci_algo_last_axis(const tci_node *n)
{
    int last = n->rank - 1;
    while (last > 0 && n->shape[last] == 1) {
        last--;
    }
    return n->shape[last] == 1 ? n->rank - 1 : last;
}

/* Do its rows begin where a matrix unit reads them, or can a copy with longer rows take its place?
 * Only movements that leave rows whole may lie between; on a CPU it would be packed anyway. */
static bool tci_algo_can_pitch(const tci_node *n, const tci_node *source, tci_machine machine,
                               int64_t rows)
{
    bool whole = machine.block_threads > 0 && rows >= TCI_ALGO_PITCH_ROWS;
    int align = tci_matrix_align(source->dtype);
    if (tci_dim_known(source->shape[tci_algo_last_axis(source)]) % align == 0) {
        return true;
    }
    for (; n != source; n = n->in[0]) {
        whole = whole && (n->op == TCI_OP_PERMUTE || n->op == TCI_OP_CAST);
    }
    return whole;
}

/* Is n made, element by element, of a contraction? */
static bool tci_algo_is_scores(const tci_node *n, int depth)
{
    bool found = n->op == TCI_OP_CONTRACT;
    bool goes = depth < TCI_ALGO_SCORES && tci_op_is(n->op, TCI_IS_POINTWISE);
    for (int i = 0; i < n->n_in && goes && !found; i++) {
        found = tci_algo_is_scores(n->in[i], depth + 1);
    }
    return found;
}

/* Is n the weights of attention, which one kernel makes of its scores (plan/pattern.c)? */
static bool tci_algo_is_weights(const tci_node *n)
{
    while (n->op == TCI_OP_CAST) {
        n = n->in[0];
    }
    for (int i = 0; i < 2 && (n->op == TCI_OP_MUL || n->op == TCI_OP_DIV); i++) {
        const tci_node *e = n->in[i];
        if (e->op == TCI_OP_EXP && e->in[0]->op == TCI_OP_SUB) {
            return tci_algo_is_scores(e->in[0]->in[0], 0);
        }
    }
    return false;
}

/* Is n made of them, element by element, as the changes of scores are? */
static bool tci_algo_is_of_weights(const tci_node *n, int depth)
{
    bool found = tci_algo_is_weights(n);
    bool goes = depth < TCI_ALGO_SCORES && tci_op_is(n->op, TCI_IS_POINTWISE);
    for (int i = 0; i < n->n_in && goes && !found; i++) {
        found = tci_algo_is_of_weights(n->in[i], depth + 1);
    }
    return found;
}

TCI_FN tci_node *tci_plan_with_pitch(const tci_algo *a, tci_node *n, int align)
{
    int last = tci_algo_last_axis(n);
    tci_dim longer = tci_dim_mul(tci_dim_ceil_div(n->shape[last], align), align);
    if (longer == n->shape[last]) {
        tci_algo_force(a, n);
        return n;
    }
    tci_value zero = {.u = 0};
    tci_node *fill = tci_graph_const(a->g, (tc_dtype)n->dtype, zero);
    tci_node *copy = tci_algo_pad_axis(a, n, last, tci_dim_known(longer), fill);
    int64_t *attr = TCI_NEW_ARRAY(a->s, int64_t, 2 * n->rank);
    for (int i = 0; i < n->rank; i++) {
        attr[2 * i + 1] = 1;
    }
    tci_algo_force(a, copy);
    return tci_graph_node(a->g, TCI_OP_SLICE, (tc_dtype)n->dtype, n->rank, n->shape, 1, &copy,
                          2 * n->rank, attr);
}

/* Operand n with that copy below it, where its source needs one: weights of attention, and what is
 * made of them, are in no memory. */
static tci_node *tci_algo_pitch(const tci_algo *a, tci_node *n, tci_node *source)
{
    if (n != source) {
        tci_node *in = tci_algo_pitch(a, n->in[0], source);
        return in == n->in[0] ? n
                              : tci_graph_node(a->g, n->op, (tc_dtype)n->dtype, n->rank, n->shape,
                                               1, &in, n->n_attr, n->attr);
    }
    if (tci_algo_is_of_weights(n, 0)) {
        tci_algo_force(a, n);
        return n;
    }
    return tci_plan_with_pitch(a, n, tci_matrix_align(n->dtype));
}

/* The size of a label in a list of them; 1 where it is not there. */
static int64_t tci_algo_label_size(const int64_t *labels, const tci_node *of, int64_t label)
{
    for (int i = 0; i < of->rank; i++) {
        if (labels[i] == label) {
            return tci_dim_known(of->shape[i]);
        }
    }
    return 1;
}

/* Is contraction n, as far as the graph tells, one for a matrix unit? loop/matrix.c, which sees the
 * kernel, decides. */
static bool tci_algo_on_matrix_unit(const tci_algo *algo, const tci_node *n)
{
    const int64_t *a = n->attr + 3, *b = a + n->attr[0], *out = b + n->attr[1];
    tci_machine machine = algo->machine;
    int64_t rank_a = n->attr[0], rank_b = n->attr[1], rank = n->attr[2];
    if (machine.matrix_units == 0 || machine.reproducible || rank < 2 || n->dtype == TC_F64) {
        return false;
    }
    const tci_node *x = tci_algo_half_source(algo, n->in[0]);
    const tci_node *y = tci_algo_half_source(algo, n->in[1]);
    bool in_a = tci_algo_has_label(a, rank_a, out[rank - 1]);
    bool in_b = tci_algo_has_label(b, rank_b, out[rank - 1]);
    bool known = tci_algo_has_known_sizes(n) && tci_algo_has_known_sizes(n->in[1]);
    if (!known || !x || !y || x->dtype != y->dtype || in_a == in_b) {
        return false;
    }
    int64_t rows = 1, depth = 1;
    for (int i = 0; i < rank - 1; i++) {
        bool here = tci_algo_has_label(in_a ? b : a, in_a ? rank_b : rank_a, out[i]);
        bool there = tci_algo_has_label(in_a ? a : b, in_a ? rank_a : rank_b, out[i]);
        rows = here && !there ? TCI_MAX(rows, tci_dim_known(n->shape[i])) : rows;
    }
    for (int i = 0; i < rank_a; i++) {
        depth *= tci_algo_has_label(out, rank, a[i]) ? 1 : tci_algo_label_size(b, n->in[1], a[i]);
    }
    double flops = 2.0 * (double)tci_dim_known(tci_node_count(n)) * (double)depth;
    bool whole = rows % TCI_MATRIX_WHOLE == 0 && depth % TCI_MATRIX_WHOLE == 0 &&
                 tci_dim_known(n->shape[rank - 1]) % TCI_MATRIX_WHOLE == 0;
    if (machine.block_threads == 0 && (x->dtype != TC_BF16 || !whole)) {
        return false;
    }
    if (!tci_algo_can_pitch(n->in[0], x, machine, rows) ||
        !tci_algo_can_pitch(n->in[1], y, machine, rows)) {
        return false;
    }
    return rows >= TCI_MATRIX_FEW && tci_dim_known(n->shape[rank - 1]) >= TCI_MATRIX_COLUMNS &&
           depth >= TCI_MATRIX_DEPTH && flops >= TCI_MATRIX_FLOPS;
}

/* Operand `which` with its vector axis (the contraction's last output axis) made the fastest, as a
 * stored permutation; the labels follow. Unchanged when it already is, or is read too few times. */
static tci_node *tci_algo_operand_order(const tci_algo *a, const tci_node *n, int which,
                                        int64_t *labels)
{
    tci_node *x = n->in[which];
    int64_t last = n->attr[n->n_attr - 1];
    bool blocks = a->machine.block_threads > 0; /* whose threads read neighbours side by side */
    double times = 1;
    int at = -1;
    for (int i = 0; i < x->rank; i++) {
        at = labels[i] == last ? i : at;
    }
    for (int i = 0; i < n->rank; i++) {
        bool own = blocks ? i == n->rank - 1
                          : tci_algo_has_label(labels, x->rank, tci_algo_labels(n, 2)[i]);
        times *= own ? 1 : (double)tci_dim_hint(n->shape[i]);
    }
    if (n->rank == 0 || at < 0 || at == tci_plan_fastest_axis(x) || x->op == TCI_OP_WINDOW ||
        x->op == TCI_OP_EXPAND || n->shape[n->rank - 1] == 1 || times < TCI_ALGO_REUSE) {
        return x;
    }
    int64_t *perm = TCI_NEW_ARRAY(a->s, int64_t, x->rank);
    int64_t *moved = TCI_NEW_ARRAY(a->s, int64_t, x->rank);
    tci_dim *shape = TCI_NEW_ARRAY(a->s, tci_dim, x->rank);
    int to = 0;
    for (int i = 0; i < x->rank; i++) {
        if (i != at) {
            perm[to++] = i;
        }
    }
    perm[to] = at;
    for (int i = 0; i < x->rank; i++) {
        shape[i] = x->shape[perm[i]];
        moved[i] = labels[perm[i]];
    }
    for (int i = 0; i < x->rank; i++) {
        labels[i] = moved[i];
    }
    x = tci_graph_node(a->g, TCI_OP_PERMUTE, (tc_dtype)x->dtype, x->rank, shape, 1, &x, x->rank,
                       perm);
    tci_algo_force(a, x);
    return x;
}

/* A half as f32, or a small integer as i32? */
static bool tci_algo_widens(tc_dtype from, tc_dtype to)
{
    bool small = tci_dtype_is_int(from) && tci_dtype_get(from)->bytes <= 2;
    return (to == TC_F32 && tci_dtype_is_half(from)) || (to == TC_I32 && small);
}

TCI_FN tci_node *tci_plan_narrow(const tci_algo *a, tci_node *n)
{
    if (tci_table_has(a->forced, n) || !tci_algo_is_view(n)) {
        return NULL;
    }
    if (n->op == TCI_OP_CAST) {
        bool widens = tci_algo_widens((tc_dtype)n->in[0]->dtype, (tc_dtype)n->dtype);
        return widens ? n->in[0] : NULL;
    }
    tci_node *in = tci_plan_narrow(a, n->in[0]);
    return in ? tci_graph_node(a->g, n->op, (tc_dtype)in->dtype, n->rank, n->shape, 1, &in,
                               n->n_attr, n->attr)
              : NULL;
}

/* Operand n with zeros around what is given in halves, or in small integers, rather than around
 * what is widened of it: the same values, and a copy of fewer bytes, of which lanes may take
 * several products at once. */
static tci_node *tci_algo_pad_narrow(const tci_algo *a, tci_node *n)
{
    tci_value zero = {.u = 0};
    tci_node *in = n->n_in > 0 ? n->in[0] : NULL;
    if (tci_table_has(a->forced, n)) {
        return n;
    }
    if (tci_algo_is_view(n)) {
        in = tci_algo_pad_narrow(a, in);
        return in == n->in[0] ? n
                              : tci_graph_node(a->g, n->op, (tc_dtype)n->dtype, n->rank, n->shape,
                                               1, &in, n->n_attr, n->attr);
    }
    tci_node *given = n->op == TCI_OP_PAD ? tci_plan_narrow(a, in) : NULL;
    if (!given || n->in[1]->op != TCI_OP_CONST || n->in[1]->value.u != 0) {
        return n;
    }
    tc_dtype narrow = (tc_dtype)given->dtype;
    tci_node *padded[2] = {given, tci_graph_const(a->g, narrow, zero)};
    in = tci_graph_node(a->g, TCI_OP_PAD, narrow, n->rank, n->shape, 2, padded, n->n_attr, n->attr);
    return tci_build_cast(a->g, in, (tc_dtype)n->dtype);
}

/* The same contraction of other operands. */
static tci_node *tci_algo_contract_of(const tci_algo *a, tci_node *n, tci_node *const *in,
                                      const int64_t *attr)
{
    bool same = in[0] == n->in[0] && in[1] == n->in[1];
    return same ? n
                : tci_graph_node(a->g, TCI_OP_CONTRACT, (tc_dtype)n->dtype, n->rank, n->shape, 2,
                                 in, n->n_attr, attr);
}

/* Is operand n read backwards, as the filters are for the gradient to an image? */
static bool tci_algo_goes_back(const tci_algo *a, const tci_node *n)
{
    bool back = false;
    for (; tci_algo_is_view(n) && !tci_table_has(a->forced, n); n = n->in[0]) {
        for (int i = 0; n->op == TCI_OP_SLICE && i < n->rank; i++) {
            back = back || tci_dim_lt(n->attr[2 * i + 1], 0);
        }
    }
    return back;
}

/* Operand `which`, whose rows loops pack again for each block of columns: one that is read
 * backwards as a copy, in which what is summed lies together, and forwards. */
static tci_node *tci_algo_rows_forward(const tci_algo *a, const tci_node *n, int which)
{
    tci_node *x = n->in[which];
    tci_node *from = tci_dtype_is_half((tc_dtype)x->dtype) ? x : tci_plan_narrow(a, x);
    const int64_t *labels = tci_algo_labels(n, which);
    double times = 1;
    for (int i = 0; i < n->rank; i++) {
        bool own = tci_algo_is_in(n, which, tci_algo_labels(n, 2)[i]);
        times *= own ? 1 : (double)tci_dim_hint(n->shape[i]);
    }
    if (!from || tci_algo_is_in(n, which, n->attr[n->n_attr - 1]) || times < TCI_ALGO_BACK ||
        !tci_algo_has_known_sizes(x) || !tci_algo_goes_back(a, x)) {
        return x;
    }
    int64_t *perm = TCI_NEW_ARRAY(a->s, int64_t, x->rank);
    int64_t *back = TCI_NEW_ARRAY(a->s, int64_t, x->rank);
    tci_dim *shape = TCI_NEW_ARRAY(a->s, tci_dim, x->rank);
    int at = 0;
    for (int summed = 0; summed < 2; summed++) {
        for (int i = 0; i < x->rank; i++) {
            if (tci_algo_is_in(n, 2, labels[i]) != (summed > 0)) {
                back[i] = at;
                shape[at] = x->shape[i];
                perm[at++] = i;
            }
        }
    }
    from = tci_graph_node(a->g, TCI_OP_PERMUTE, (tc_dtype)from->dtype, x->rank, shape, 1, &from,
                          x->rank, perm);
    tci_algo_force(a, from);
    from = tci_graph_node(a->g, TCI_OP_PERMUTE, (tc_dtype)from->dtype, x->rank, x->shape, 1, &from,
                          x->rank, back);
    return tci_build_cast(a->g, from, (tc_dtype)x->dtype);
}

/* Contraction n, which no matrix unit takes, with operands in the order that its loops read. */
static tci_node *tci_algo_operands(const tci_algo *a, tci_node *n)
{
    if (a->machine.block_threads == 0) {
        tci_node *padded[2] = {tci_algo_pad_narrow(a, n->in[0]), tci_algo_pad_narrow(a, n->in[1])};
        n = tci_algo_contract_of(a, n, padded, n->attr);
        tci_node *forward[2] = {tci_algo_rows_forward(a, n, 0), tci_algo_rows_forward(a, n, 1)};
        n = tci_algo_contract_of(a, n, forward, n->attr);
    }
    int64_t *attr = tci_scratch_copy(a->s, n->attr, sizeof(int64_t) * (size_t)n->n_attr);
    tci_node *in[2];
    bool gathers = tci_algo_gathers(n, a->machine) || tci_algo_spreads(n, a->machine);
    bool packs = gathers || tci_algo_packs(n, a->machine);
    for (int i = 0; i < 2; i++) {
        if (!packs || tci_algo_cheap_ops(n->in[i], gathers) > TCI_ALGO_PACK_OPS) {
            tci_algo_store_operand(a, n->in[i]);
        }
    }
    if (gathers || (packs && tci_dim_is_known(n->shape[n->rank - 1]))) { /* of known columns */
        return n;
    }
    in[0] = tci_algo_operand_order(a, n, 0, attr + 3);
    in[1] = tci_algo_operand_order(a, n, 1, attr + 3 + attr[0]);
    return tci_algo_contract_of(a, n, in, attr);
}

/* Contraction n for a matrix unit; NULL: none takes it. */
static tci_node *tci_algo_by_unit(const tci_algo *a, tci_node *n)
{
    tci_node *runs = tci_plan_runs(a, n);
    if (runs) {
        return runs;
    }
    if (!tci_algo_on_matrix_unit(a, n)) {
        tci_node *single = tci_table_has(a->whole, n) ? NULL : tci_plan_single(a, n);
        return single ? single : tci_plan_images(a, n);
    }
    tci_node *in[2];
    for (int i = 0; i < 2; i++) {
        in[i] = tci_algo_pitch(a, n->in[i], tci_algo_half_source(a, n->in[i]));
    }
    return in[0] == n->in[0] && in[1] == n->in[1]
               ? n
               : tci_graph_node(a->g, TCI_OP_CONTRACT, (tc_dtype)n->dtype, n->rank, n->shape, 2,
                                in, n->n_attr, n->attr);
}

/* Contraction n of weights that no run changes, in panels of several points; NULL: it is
 * none of these. */
static tci_node *tci_algo_in_panels(const tci_algo *a, tci_node *n)
{
    tci_node *panels = tci_plan_panels(a, n, true);
    for (int i = 0; i < 2 && panels; i++) {
        tci_algo_store_operand(a, n->in[i]);
    }
    return panels ? tci_plan_signs(a, panels) : NULL;
}

static tci_node *tci_algo_contract(const tci_algo *a, tci_node *n)
{
    bool whole = tci_table_has(a->whole, n);
    tci_node *made = a->machine.matrix_units > 0 ? tci_algo_in_panels(a, n) : NULL;
    made = made ? made : tci_algo_by_unit(a, n);
    if (made) {
        return made;
    }
    tci_node *halves = whole ? NULL : tci_plan_halves(a, n);
    made = halves ? tci_algo_by_unit(a, halves) : NULL;
    if (made) {
        tci_str_add(a->orders, "contract of f32: of bf16 halves, low high + high low + high high, "
                               "as math may be fast\n");
        return made;
    }
    made = tci_plan_winograd(a, n);
    made = made ? made : tci_plan_alone(a, n);
    if (made) {
        return made;
    }
    if (whole) {
        return tci_algo_operands(a, n);
    }
    tci_node *plain = tci_plan_uncentred(a, n);
    if (plain && (a->machine.block_threads > 0 || tci_algo_packs(plain, a->machine))) {
        return tci_plan_centre(a, n, tci_algo_contract(a, plain));
    }
    tci_node *rows = tci_plan_rows(a, n);
    if (a->machine.reproducible) {
        tci_str unused = {.s = a->s};
        tci_algo silent = *a;
        silent.orders = &unused;
        bool other = rows || tci_plan_parts(&silent, n);
        tci_str_add(a->orders, other ? "contract: whole, to be reproducible, else parts\n" : "");
        return tci_algo_operands(a, n);
    }
    tci_node *several = rows ? tci_algo_in_panels(a, n) : NULL;
    if (several) {
        return several;
    }
    if (rows) {
        tci_node *cut = rows->op == TCI_OP_SUM ? tci_plan_split(a, rows) : NULL;
        tci_algo_store_operand(a, n->in[0]);
        tci_algo_store_operand(a, n->in[1]);
        rows = cut ? cut : rows;
        return rows->dtype == n->dtype ? rows
                                       : tci_graph_node(a->g, TCI_OP_CAST, (tc_dtype)n->dtype,
                                                        n->rank, n->shape, 1, &rows, 0, NULL);
    }
    int64_t *order = TCI_NEW_ARRAY(a->s, int64_t, n->rank + 1);
    tci_node *sides = tci_plan_sides(a, n, order);
    if (sides) {
        return tci_plan_put_back(a, n, tci_algo_contract(a, sides), order);
    }
    n = tci_algo_operands(a, n);
    tci_node *parts = tci_plan_parts(a, n);
    bool packs = !parts && tci_algo_packs(n, a->machine);
    tci_node *panels = packs ? tci_plan_panels(a, n, false) : NULL;
    n = panels ? panels : n;
    return parts ? parts : tci_plan_signs(a, n);
}

/* ---- calls ---- */

/* A function of the user's, or a communicator, reads dense memory. */
static tci_node *tci_algo_call(const tci_algo *a, tci_node *n)
{
    tci_node **in = TCI_NEW_ARRAY(a->s, tci_node *, n->n_in);
    for (int i = 0; i < n->n_in; i++) {
        tci_node *x = n->in[i];
        if (tci_plan_source(x)->strides) { /* a leaf's; what looks at it is no leaf */
            x = tci_graph_node(a->g, TCI_OP_RESHAPE, (tc_dtype)x->dtype, x->rank, x->shape, 1, &x,
                               0, NULL);
        }
        if (!tci_plan_is_leaf(x)) {
            tci_algo_force(a, x);
        }
        in[i] = x;
    }
    return tci_graph_node(a->g, n->op, (tc_dtype)n->dtype, n->rank, n->shape, n->n_in, in,
                          n->n_attr, n->attr);
}

/* Reproducible: communicators only move floats, which are summed in the order of ranks here. */
static tci_node *tci_algo_collective(const tci_algo *a, tci_node *n)
{
    const int64_t verb = n->attr[TCI_COLLECTIVE_VERB];
    const int first[] = {0};
    if (!a->machine.reproducible || !tci_comm_verb_reduces((int)verb) ||
        n->attr[TCI_COLLECTIVE_HOW] != TC_COMM_SUM || !tci_dtype_is_float((tc_dtype)n->dtype)) {
        return tci_algo_call(a, n);
    }
    tci_node *all = tci_build_collective_like(
        a->g, n, verb == TC_COMM_ALL_REDUCE ? TC_COMM_ALL_GATHER : TC_COMM_ALL_TO_ALL, n->in[0]);
    all = tci_algo_call(a, all);
    tci_node *sum = tci_build_reduce(a->g, TCI_OP_SUM, all, (tc_axes){first, 1, false}, false);
    tci_node *made = tci_algo_reproducible(a, sum);
    return made ? made : sum;
}

/* ---- the pass ---- */

static tci_node *tci_algo_node(const tci_algo *a, tci_node *n)
{
    tci_node *made = NULL;
    if (n->op == TCI_OP_DEVSQ) {
        made = tci_algo_devsq(a, n);
    } else if (tci_op_is_reduce(n->op) && !tci_op_is(n->op, TCI_IS_ARG) &&
               a->machine.reproducible) {
        made = tci_algo_reproducible(a, n);
    } else if (tci_op_is(n->op, TCI_IS_ARG)) {
        made = tci_algo_split_arg(a, n);
    } else if (tci_op_is_reduce(n->op)) {
        made = tci_algo_cut_powers(a, n);
        made = made ? made : tci_plan_split(a, n);
    } else if (n->op == TCI_OP_CAT && n->n_in > TCI_ALGO_CAT) {
        made = tci_algo_cat(a, n);
    } else if (n->op == TCI_OP_CONTRACT) {
        made = tci_algo_contract(a, n);
    } else if (n->op == TCI_OP_SCAN) {
        made = tci_plan_scan(a, n);
    } else if (n->op == TCI_OP_SCATTER) {
        made = tci_plan_order(a, n);
    } else if (n->op == TCI_OP_TOPK) {
        made = tci_plan_topk(a, n);
    } else if (n->op == TCI_OP_CUSTOM) {
        made = tci_algo_call(a, n);
    } else if (n->op == TCI_OP_COLLECTIVE) {
        made = tci_algo_collective(a, n);
    }
    return made ? made : n;
}

TCI_FN void tci_plan_algorithm(const tci_algo *a, tci_node **roots, int n_roots)
{
    tci_node_list list = tci_graph_sort(a->s, roots, n_roots);
    tci_table now = tci_table_in(a->s, sizeof(tci_node *));
    for (int i = 0; i < list.n; i++) {
        tci_node *n = list.items[i], *over = tci_graph_rebuild(a->s, a->g, n, &now);
        bool forced = tci_table_has(a->forced, n);
        if (forced) {
            tci_algo_force(a, over); /* it may be a node that was there before */
        }
        if (tci_table_has(a->whole, n)) {
            tci_table_add(a->whole, over);
        }
        if (tci_table_has(a->images, n)) {
            tci_table_add(a->images, over);
        }
        over->site = over->site.file ? over->site : n->site;
        over = tci_algo_node(a, over);
        if (forced) {
            tci_algo_force(a, over); /* or one that only shows what it was made of */
        }
        tci_table_put(&now, n, over);
    }
    for (int i = 0; i < n_roots; i++) {
        roots[i] = tci_table_get(&now, roots[i]);
    }
}
