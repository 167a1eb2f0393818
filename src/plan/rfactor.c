/* plan/rfactor.c - splits a reduced axis in two and reduces the inner part first (rfactor).
 *
 * In: a reduction of the rewritten graph. Out: one over partial results, or NULL to leave it whole.
 * Design: a reduction of many elements to few results is cut into chunks along one reduced axis (on
 * GPUs, for columns, also along those before it), and a second reduction combines their results.
 * This gives parallel work and an order that the shape and the kind of machine fix. A partial
 * result has what its op needs to be combined: for a sum of exp(x - max) each chunk has its own
 * max, for squared deviations a mean, for ARGMAX an index. Contractions (plan/split_k.c,
 * plan/depthwise_wgrad.c) and scans (plan/split_scan.c) choose the length of their parts by rules
 * of their own; this file builds the nodes. */
#include "rfactor.h"

enum {
    TCI_RFACTOR_FEW = 64,           /* results up to which a reduction is cut */
    TCI_RFACTOR_MANY = 65536,       /* reduced elements from which it is cut */
    TCI_RFACTOR_CHUNK = 32768,      /* elements a chunk aims at */
    TCI_RFACTOR_ROWS = 32,          /* rows that keep most of any device busy, a block each */
    TCI_RFACTOR_BLOCK_LANES = 1024, /* results that one block makes side by side */
    TCI_RFACTOR_LONG_COLUMN = 128,  /* elements of a column that is cut, */
    TCI_RFACTOR_BLOCK_COLUMN = 16,  /* least elements that one thread then folds, */
    TCI_RFACTOR_COLUMN_LANES = 264 * TCI_RFACTOR_BLOCK_LANES, /* lanes for any device */
};

/* d, if it is nearer to want than best and from a fourth of want to below its double. */
static int64_t tci_rfactor_nearer(int64_t best, int64_t d, int64_t want)
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
            best = tci_rfactor_nearer(best, d, want);
            best = tci_rfactor_nearer(best, n / d, want);
        }
    }
    return best;
}

/* Elements that are contiguous in a row that n reduces. */
static int64_t tci_rfactor_line(const tci_node *n)
{
    const tci_node *x = n->in[0];
    int64_t line = 1;
    for (int i = n->n_attr - 1, at = x->rank - 1; i >= 0 && n->attr[i] == at; i--, at--) {
        line *= tci_dim_known(x->shape[at]);
    }
    return line;
}

/* Pieces that reduction n is worth on a GPU: up to one it is left whole. Of rows that are many
 * short lines each block has few threads: pieces of whole lines keep more of them busy. */
static int64_t tci_rfactor_pieces(const tci_node *n, int64_t results, int64_t all)
{
    bool rows = n->attr[n->n_attr - 1] == n->in[0]->rank - 1;
    if (rows && tci_plan_has_lines(results, all / results, tci_rfactor_line(n))) {
        return TCI_MIN(all / results / tci_rfactor_line(n), TCI_CLASS_PIECES * 8 / results);
    }
    if (rows && tci_plan_has_rows(results, all / results, tci_rfactor_line(n))) {
        return 1;
    }
    int64_t blocks = rows ? results : tci_ceil_div(results, TCI_RFACTOR_BLOCK_LANES);
    int64_t most = all / results / (rows ? TCI_CLASS_PIECE_ROW : TCI_RFACTOR_BLOCK_COLUMN);
    int64_t busy = rows ? 0 : TCI_RFACTOR_COLUMN_LANES / results;
    if (!rows && all / results < TCI_RFACTOR_LONG_COLUMN) {
        return 1;
    }
    return TCI_MIN(most, TCI_MAX(TCI_CLASS_PIECES / blocks, busy));
}

/* The reduced axis that is cut: the largest one that is not the fastest, unless that is the only
 * long one. */
static int tci_rfactor_longest(const tci_node *n)
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
    return line == row && tci_dim_le(TCI_RFACTOR_ROWS, rows) &&
           tci_dim_le(row, TCI_CLASS_ROW_VECTORS * TCI_VLANES_MAX);
}

/* Where reduction n is cut, and how. */
typedef struct tci_rfactor_cut_at {
    int at;        /* of the reduced axes */
    int64_t chunk; /* elements of a chunk; 0: it is left whole */
    int before;    /* reduced axes, the outermost ones: each position has chunks of its own */
} tci_rfactor_cut_at;

/* A GPU cuts the outermost axis if it has about as many elements as pieces are wanted, since what
 * is inside stays one row then, else the longest one of a row, and of columns the first one that
 * has enough with those before it. */
static void tci_rfactor_cut_for_blocks(const tci_node *n, int64_t pieces, tci_rfactor_cut_at *cut)
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

/* On a CPU the longest axis. Sizes that are symbols leave it whole: the order must not follow
 * from what they typically are. */
static tci_rfactor_cut_at tci_rfactor_cut_of(const tci_node *n, tci_machine machine)
{
    const tci_node *x = n->in[0];
    tci_dim to = tci_node_count(n), from = tci_node_count(x);
    tci_rfactor_cut_at cut = {0};
    if (n->n_attr == 0 || !tci_dim_is_known(to) || !tci_dim_is_known(from) || to == 0 ||
        from == 0) {
        return cut;
    }
    const int64_t results = tci_dim_known(to), all = tci_dim_known(from);
    cut.at = tci_rfactor_longest(n);
    int64_t size = tci_dim_known(x->shape[n->attr[cut.at]]);
    if (machine.block_threads == 0) {
        bool large = results <= TCI_RFACTOR_FEW && all / results >= TCI_RFACTOR_MANY;
        cut.chunk = large ? TCI_MAX(1, TCI_RFACTOR_CHUNK / (all / size)) : 0;
    } else {
        tci_rfactor_cut_for_blocks(n, tci_rfactor_pieces(n, results, all), &cut);
        size = tci_dim_known(x->shape[n->attr[cut.at]]);
    }
    cut.chunk = cut.chunk > 0 && (cut.before > 0 || size / cut.chunk >= 2) ? cut.chunk : 0;
    return cut;
}

/* The operand of a reduction that is cut: an axis of chunks before that of their elements. A chunk
 * is reduced along `axes`, and what that leaves, of shape `kept`, along `parts`. */
typedef struct tci_rfactor_chunks {
    tci_node *x;
    tci_dim *kept;
    int64_t *axes, *parts;
    int n_kept, n_axes, n_parts;
    bool padded;
    tci_association as; /* class of what traverses the elements of chunks, on a CPU */
} tci_rfactor_chunks;

/* True if what a reduction is made of has its class: on a CPU. Chunks that GPUs reduce are
 * rows of another length. */
static bool tci_rfactor_hands_on(const tci_algo *a)
{
    return a->associations && a->machine.block_threads == 0;
}

TCI_FN tci_node *tci_rfactor_axis(const tci_algo *a, tci_node *x, int axis, int64_t length)
{
    tci_dim *shape = TCI_NEW_ARRAY(a->s, tci_dim, x->rank + 1);
    for (int i = 0; i <= x->rank; i++) {
        shape[i] = i == axis       ? tci_dim_div(x->shape[axis], length)
                   : i == axis + 1 ? length
                                   : x->shape[i - (i > axis)];
    }
    return tci_graph_node(a->g, TCI_OP_RESHAPE, (tc_dtype)x->dtype, x->rank + 1, shape, 1, &x, 0,
                          NULL);
}

/* False: n is better left alone. */
static bool tci_rfactor_cut(const tci_algo *a, const tci_node *n, tci_rfactor_chunks *c)
{
    tci_node *x = n->in[0];
    tci_rfactor_cut_at cut = tci_rfactor_cut_of(n, a->machine);
    if (cut.chunk == 0) {
        return false;
    }
    int at = cut.at, axis = (int)n->attr[at];
    int64_t size = tci_dim_known(x->shape[axis]), chunk = cut.chunk;
    int64_t even = tci_plan_divisor(size, chunk);
    bool half = tci_dtype_is_half((tc_dtype)x->dtype);
    tc_dtype t = half ? TC_F32 : (tc_dtype)n->dtype;
    c->padded = !even;
    if (tci_rfactor_hands_on(a)) {
        c->as = tci_association_of(a->associations, n, false);
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
    c->x = tci_rfactor_axis(a, x, axis, chunk);
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
            c->kept[c->n_kept++] = c->x->shape[i];
        }
    }
    return true;
}

/* Fold n, whose class is `as` unless it has one. */
static tci_node *tci_rfactor_as(const tci_algo *a, tci_node *n, tci_association as)
{
    if (tci_rfactor_hands_on(a)) {
        tci_association_as(a->associations, n, as);
    }
    return n;
}

/* Each chunk of x, which has the shape of c's, by itself. */
static tci_node *tci_rfactor_chunk_by(const tci_algo *a, const tci_rfactor_chunks *c, int op,
                                      tci_node *x)
{
    tci_node *made = tci_graph_node(a->g, op, (tc_dtype)x->dtype, c->n_kept, c->kept, 1, &x,
                                    c->n_axes, c->axes);
    return tci_rfactor_as(a, made, c->as);
}

/* Combines the results of all chunks to one value that replaces n, except for its dtype. */
static tci_node *tci_rfactor_join_by(const tci_algo *a, const tci_rfactor_chunks *c, int op,
                                     tci_node *part, const tci_node *n)
{
    return tci_graph_node(a->g, op, (tc_dtype)part->dtype, n->rank, n->shape, 1, &part, c->n_parts,
                          c->parts);
}

TCI_FN bool tci_rfactor_cuts(const tci_algo *a, const tci_node *n)
{
    return tci_rfactor_cut(a, n, &(tci_rfactor_chunks){0});
}

/* Cuts reduction n; NULL when it is better left alone. */
TCI_FN tci_node *tci_plan_split(const tci_algo *a, tci_node *n)
{
    tci_rfactor_chunks c;
    if (!tci_rfactor_cut(a, n, &c)) {
        return NULL;
    }
    tci_node *part = tci_rfactor_chunk_by(a, &c, n->op, c.x);
    return tci_build_cast(a->g, tci_rfactor_join_by(a, &c, n->op, part, n), (tc_dtype)n->dtype);
}

/* Cuts n, an ARGMAX or ARGMIN: each chunk has an index, and the first chunk whose element there is
 * the overall result gives the index. NULL as above. */
static tci_node *tci_rfactor_split_arg(const tci_algo *a, tci_node *n)
{
    tci_node *x = n->in[0];
    int op = n->op == TCI_OP_ARGMAX ? TCI_OP_MAX : TCI_OP_MIN, axis = (int)n->attr[0];
    tci_rfactor_chunks c;
    if (!tci_rfactor_cut(a,
                         tci_graph_node(a->g, op, (tc_dtype)x->dtype, n->rank, n->shape, 1, &x,
                                        n->n_attr, n->attr),
                         &c)) {
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
static tci_node *tci_rfactor_reproducible(const tci_algo *a, tci_node *n)
{
    tci_rfactor_cut_at cut = tci_rfactor_cut_of(n, a->machine);
    if (cut.chunk > 0) {
        tci_dim size = n->in[0]->shape[n->attr[cut.at]];
        tci_str_printf(a->orders, "%s: whole, to be reproducible, else %lld parts\n",
                       tci_op_name(n->op), (long long)(tci_dim_known(size) / cut.chunk));
    }
    return tci_class_reproducible(a->s, a->g, n);
}

/* m over the axes that it was reduced by, as x has them. */
static tci_node *tci_rfactor_spread(const tci_algo *a, tci_node *m, const tci_node *x, int n_axes,
                                    const int64_t *axes)
{
    tci_dim *ones = tci_scratch_copy(a->s, x->shape, sizeof(tci_dim) * (size_t)x->rank);
    for (int i = 0; i < n_axes; i++) {
        ones[axes[i]] = 1;
    }
    return tci_build_broadcast(a->g, tci_build_reshape(a->g, m, x->rank, ones), x->rank, x->shape);
}

/* exp(x - m), m of x by these axes. */
static tci_node *tci_rfactor_powers(const tci_algo *a, tci_node *x, tci_node *m, int n_axes,
                                    const int64_t *axes)
{
    tci_node *less[2] = {x, tci_rfactor_spread(a, m, x, n_axes, axes)};
    tci_node *shifted = tci_build_ew(a->g, TCI_OP_SUB, less);
    return tci_build_ew(a->g, TCI_OP_EXP, &shifted);
}

/* A sum of exp(x - m) whose m, the largest x, is cut: each part has a largest element of its own,
 * so that no part waits for m and x is read once for both. The parts are scaled as they are added;
 * one that is scaled to nothing is nothing, also where it is NaN: all of it is -inf then. */
static tci_node *tci_rfactor_cut_powers(const tci_algo *a, tci_node *n)
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
    if (!cut || shifted->in[1] != tci_rfactor_spread(a, cut, x, n->n_attr, n->attr)) {
        return NULL;
    }
    tci_node *part = cut->in[0];
    x = part->in[0];
    sum = tci_rfactor_powers(a, x, part, part->n_attr, part->attr);
    sum = tci_graph_node(a->g, TCI_OP_SUM, t, part->rank, part->shape, 1, &sum, part->n_attr,
                         part->attr);
    tci_node *scale = tci_rfactor_powers(a, part, cut, cut->n_attr, cut->attr);
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
static tci_node *tci_rfactor_mean(const tci_algo *a, tci_node *sum, tci_dim count)
{
    tci_node *of[2] = {sum, tci_build_size_value(a->g, count, (tc_dtype)sum->dtype)};
    return tci_build_ew(a->g, TCI_OP_DIV, of);
}

/* (x - m) squared, m as x was reduced to it by these axes. */
static tci_node *tci_rfactor_deviations(const tci_algo *a, tci_node *x, tci_node *m, int n_axes,
                                        const int64_t *axes)
{
    tci_node *off[2] = {x, tci_rfactor_spread(a, m, x, n_axes, axes)};
    off[0] = tci_build_ew(a->g, TCI_OP_SUB, off);
    return tci_build_ew(a->g, TCI_OP_SQUARE, off);
}

/* The squared deviations of x in n's place, in chunks that are read once: those of each from its
 * own mean, and of these means from that of all, each as often as it has elements. */
static tci_node *tci_rfactor_devsq_by_chunks(const tci_algo *a, const tci_node *sum,
                                             const tci_rfactor_chunks *c)
{
    tci_node *part = tci_rfactor_chunk_by(a, c, TCI_OP_SUM, c->x);
    tci_dim each = tci_dim_div(tci_node_count(c->x), tci_node_count(part));
    tci_dim all = tci_dim_div(tci_node_count(c->x), tci_node_count(sum));
    tci_node *means = tci_rfactor_mean(a, part, each);
    if (a->machine.block_threads > 0) {
        tci_algo_force(a, means); /* divided once: the few threads that join them would wait */
    }
    tci_node *own = tci_rfactor_deviations(a, c->x, means, c->n_axes, c->axes);
    tci_node *mean = tci_rfactor_mean(a, tci_rfactor_join_by(a, c, TCI_OP_SUM, part, sum), all);
    tci_node *far[2] = {tci_rfactor_deviations(a, means, mean, c->n_parts, c->parts),
                        tci_build_size_value(a->g, each, (tc_dtype)sum->dtype)};
    far[0] = tci_build_ew(a->g, TCI_OP_MUL, far);
    far[1] = tci_rfactor_chunk_by(a, c, TCI_OP_SUM, own);
    return tci_rfactor_join_by(a, c, TCI_OP_SUM, tci_build_ew(a->g, TCI_OP_ADD, far), sum);
}

/* True if `over` is m, which has the shape of reduction n, along the axes that n reduces. */
static bool tci_rfactor_is_spread(tci_scratch *s, const tci_node *over, const tci_node *m,
                                  const tci_node *n)
{
    int *at = TCI_NEW_ARRAY(s, int, over->rank + 1);
    bool spread = tci_broadcast_source(s, over, at) == m;
    for (int i = 0, kept = 0; i < over->rank && spread; i++) {
        const bool reduced = tci_build_label(n->attr, n->n_attr, i) >= 0;
        spread = at[i] == (reduced || over->shape[i] == 1 ? -1 : kept);
        kept += !reduced;
    }
    return spread;
}

/* A sum of (x - m) squared whose m, the mean of x, is cut, on GPUs: each part has a mean of its
 * own, so that no part waits for m and x is read once for both. */
static tci_node *tci_rfactor_cut_squares(const tci_algo *a, tci_node *n)
{
    const tci_node *square = n->in[0];
    const tci_node *off = square->op == TCI_OP_SQUARE ||
                                  (square->op == TCI_OP_MUL && square->in[0] == square->in[1])
                              ? square->in[0]
                              : n;
    const tc_dtype t = (tc_dtype)n->dtype;
    tci_rfactor_chunks chunks;
    if (a->machine.block_threads == 0 || n->op != TCI_OP_SUM || off->op != TCI_OP_SUB ||
        off->dtype != n->dtype || tci_dtype_is_half(t)) {
        return NULL;
    }
    tci_node *x = off->in[0];
    tci_node *sum = tci_graph_node(a->g, TCI_OP_SUM, t, n->rank, n->shape, 1, &x, n->n_attr,
                                   n->attr);
    if (!tci_rfactor_cut(a, sum, &chunks) || chunks.padded) {
        return NULL;
    }
    tci_node *cut = tci_plan_split(a, sum);
    tci_node *mean = tci_rfactor_mean(a, cut, tci_dim_div(tci_node_count(x), tci_node_count(sum)));
    if (!tci_rfactor_is_spread(a->s, off->in[1], mean, n)) {
        return NULL;
    }
    tci_dim parts = tci_dim_div(tci_node_count(cut->in[0]), tci_node_count(cut));
    tci_str_printf(a->orders,
                   "sum of (x - mean) squared: %lld parts, each with a mean of its own\n",
                   (long long)tci_dim_known(parts));
    return tci_rfactor_devsq_by_chunks(a, sum, &chunks);
}

/* The SUM of x over the axes of fold n, of its class. */
static tci_node *tci_rfactor_sum_like(const tci_algo *a, const tci_node *n, tci_node *x)
{
    tci_node *sum = tci_graph_node(a->g, TCI_OP_SUM, (tc_dtype)x->dtype, n->rank, n->shape, 1, &x,
                                   n->n_attr, n->attr);
    tci_association none = {0};
    return tci_rfactor_as(a, sum,
                          tci_rfactor_hands_on(a) ? tci_association_of(a->associations, n, false)
                                                  : none);
}

/* x less the first element of each of its rows, whose deviations are the same: sums of numbers that
 * are far from 0 would round by more than these are. Sizes that are symbols may be 0: then it is
 * x. */
static tci_node *tci_rfactor_near_zero(const tci_algo *a, tci_node *x, int n_axes,
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
static tci_node *tci_rfactor_devsq(const tci_algo *a, tci_node *n)
{
    const tc_dtype t = (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute;
    tci_node *x = tci_build_cast(a->g, n->in[0], t);
    tci_rfactor_chunks chunks;
    tci_dim count = 1;
    if (n->n_attr == 0) {
        return NULL;
    }
    for (int i = 0; i < n->n_attr; i++) {
        count = tci_dim_mul(count, x->shape[n->attr[i]]);
    }
    tci_node *sum = tci_rfactor_sum_like(a, n, x);
    bool cut = tci_rfactor_cut(a, sum, &chunks), fixed = a->machine.reproducible;
    if ((fixed ? n->n_attr == 1 : !cut) && tci_dim_le(count, INT32_MAX)) {
        return NULL; /* that is what a COUNT holds */
    }
    x = tci_rfactor_near_zero(a, x, n->n_attr, n->attr);
    sum = tci_rfactor_sum_like(a, n, x);
    cut = tci_rfactor_cut(a, sum, &chunks);
    if (cut && !fixed && !chunks.padded) {
        sum = tci_rfactor_devsq_by_chunks(a, sum, &chunks);
        return tci_build_cast(a->g, sum, (tc_dtype)n->dtype);
    }
    tci_node *mean = tci_rfactor_mean(a, tci_rfactor(a, sum), count);
    sum = tci_rfactor_sum_like(a, n, tci_rfactor_deviations(a, x, mean, n->n_attr, n->attr));
    return tci_build_cast(a->g, tci_rfactor(a, sum), (tc_dtype)n->dtype);
}

/* ---- contractions ---- */

/* The cut of that label; NULL: it has no parts of several elements. */
static const tci_rfactor_label *tci_rfactor_find(const tci_rfactor_label *cuts, int n,
                                                 int64_t label)
{
    for (int i = 0; i < n; i++) {
        if (cuts[i].label == label && cuts[i].of_parts != label) {
            return &cuts[i];
        }
    }
    return NULL;
}

/* Operand `which` of f with the range of each axis that a cut names, and several parts of it as
 * an axis before that of their elements. */
static void tci_rfactor_operand(const tci_algo *a, tci_contract_form *f, int which,
                                const tci_rfactor_label *cuts, int n_cuts)
{
    tci_node *x = f->in[which];
    int rank = 0;
    tci_dim *shape = TCI_NEW_ARRAY(a->s, tci_dim, x->rank + n_cuts);
    int64_t *labels = TCI_NEW_ARRAY(a->s, int64_t, x->rank + n_cuts);
    for (int i = 0, whole = x->rank; i < whole; i++) {
        const tci_rfactor_label *cut = tci_rfactor_find(cuts, n_cuts, f->labels[which][i]);
        if (cut && cut->parts * cut->length != x->shape[i]) {
            x = tci_build_slice(a->g, x, i, cut->start, cut->start + cut->parts * cut->length, 1);
        }
        if (cut && cut->parts > 1) {
            labels[rank] = cut->of_parts;
            shape[rank++] = cut->parts;
        }
        labels[rank] = f->labels[which][i];
        shape[rank++] = cut ? cut->length : x->shape[i];
    }
    f->in[which] = rank == x->rank ? x
                                   : tci_graph_node(a->g, TCI_OP_RESHAPE, (tc_dtype)x->dtype, rank,
                                                    shape, 1, &x, 0, NULL);
    f->labels[which] = labels;
    f->rank[which] = rank;
}

TCI_FN tci_node *tci_rfactor_contract(const tci_algo *a, const tci_contract_form *form, tc_dtype t,
                                      const tci_dim *shape, const tci_rfactor_label *cuts,
                                      int n_cuts)
{
    tci_contract_form f = *form;
    int rank = form->rank[2], n = 0;
    tci_dim *whole = TCI_NEW_ARRAY(a->s, tci_dim, rank + n_cuts + 1);
    int64_t *axes = TCI_NEW_ARRAY(a->s, int64_t, n_cuts + 1);
    int64_t *labels = TCI_NEW_ARRAY(a->s, int64_t, rank + n_cuts + 1);
    for (int i = 0; i < n_cuts; i++) {
        if (cuts[i].parts > 1 || cuts[i].of_parts == cuts[i].label) {
            labels[n] = cuts[i].of_parts;
            whole[n] = cuts[i].parts;
            axes[n] = n;
            n++;
        }
    }
    for (int i = 0; i < rank; i++) {
        labels[n + i] = form->labels[2][i];
        whole[n + i] = shape[i];
    }
    f.labels[2] = labels;
    f.rank[2] = n + rank;
    tci_rfactor_operand(a, &f, 0, cuts, n_cuts);
    tci_rfactor_operand(a, &f, 1, cuts, n_cuts);
    tci_node *parts = tci_contract_make(a->s, a->g, &f, t, whole);
    return n == 0 ? parts : tci_graph_node(a->g, TCI_OP_SUM, t, rank, shape, 1, &parts, n, axes);
}

/* ---- the pass ---- */

/* n, a reduction, in place of it: one of partial results where it is cut, else n itself. */
TCI_FN tci_node *tci_rfactor(const tci_algo *a, tci_node *n)
{
    tci_node *made = NULL;
    if (n->op == TCI_OP_DEVSQ) {
        made = tci_rfactor_devsq(a, n);
    } else if (tci_op_is(n->op, TCI_IS_ARG)) {
        made = tci_rfactor_split_arg(a, n);
    } else if (a->machine.reproducible) {
        made = tci_rfactor_reproducible(a, n);
    } else {
        made = tci_rfactor_cut_powers(a, n);
        made = made ? made : tci_rfactor_cut_squares(a, n);
        made = made ? made : tci_plan_split(a, n);
    }
    return made ? made : n;
}
