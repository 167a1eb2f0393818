/* plan/scatter_sort.c - rewrites scatter-add on GPUs as a sort of its indices and a segmented
 * reduction.
 *
 * In: a SCATTER with one index per row (constant along the other axes). Out: a SEGMENT that gives
 * each element of x the result of its segment of src in sorted order, in the order of SCATTER
 * (kernel/ir.h): the same bits. A SCATTER iterates over src sequentially; here the elements of x
 * are parallel, and src is read once, wherever the index points.
 *
 * The order is a stable sort of the index: unique sort keys (index, position) packed into one
 * integer, i32 if they fit. Its kernels are ordinary ones. The cheaper of two algorithms is taken:
 *
 *   ranks    all words are compared with all, n * n comparisons, in three kernels:
 *     words    are made
 *     counts   for each word, of the greater ones in each chunk of words
 *     words    move to the positions that follow from the counts, by disjoint stores
 *   digits   TCI_ORDER_BITS of the index at a time, lowest first (radix sort), five kernels each:
 *     digits   of the words in their present order; the first pass makes the words too
 *     counts   of each digit in each chunk, by comparing the chunk with every digit
 *     begins   of each digit in each chunk: prefix sums of the counts over digits and chunks
 *     ranks    the number of equal digits before it in the chunk, by comparing again
 *     words    move to their positions, begin + rank
 *
 * The cost model assumes 2 us per small kernel, and the same time for TCI_ORDER_COMPARED i32
 * comparisons: an H100 issues their 2.5 instructions in two of three cycles. So ranks serve up to
 * some 5000 indices of 8 bits, and 10000 to 14000 of more. A chunk is sized so that neither
 * comparisons nor prefix sums take long. The start of an element's segment is found by binary
 * search in the sorted words. Nodes are hash-consed, so SCATTERs with the same index share its
 * sort.
 *
 * Example: the gradient of 8192 rows of 512 floats read from a table of 32000 moves at least 82
 * MB; 4 small kernels precede it. */
#include "../graph/build.h"
#include "fusion_groups.h"

enum {
    TCI_ORDER_READS = 512,   /* least elements of src along the axis */
    TCI_ORDER_CHUNK = 256,   /* words, at least; twice and four times as many where there are */
    TCI_ORDER_CHUNKS = 1024, /* more chunks than this */
    TCI_ORDER_NEAR = 8,      /* neighbours of a chunk of ranks */
    TCI_ORDER_COMPARED = 1 << 24, /* comparisons in the time of a small kernel */
    TCI_ORDER_BITS = 8,
    TCI_ORDER_RANK_KERNELS = 3,
    TCI_ORDER_DIGIT_KERNELS = 5 /* of each digit */
};
static const int64_t tci_order_most = (int64_t)1 << 30;

typedef struct tci_order {
    const tci_algo *a;
    tci_scratch *s;
    tci_graph *g;
    int64_t keys;             /* indices are below it; what fills up the last chunk has it */
    int64_t n, chunk, chunks; /* words */
    tc_dtype word;
    int low; /* bits of a word below its index: those of positions */
} tci_order;

/* ---- nodes ---- */

static tci_node *tci_order_built(const tci_order *o, tci_node *n)
{
    TCI_ASSERT(o->s, n != NULL);
    return n;
}

static tci_node *tci_order_number(const tci_order *o, tc_dtype t, int64_t x)
{
    tci_value v = {.i = x};
    return tci_order_built(o, tci_graph_const(o->g, t, v));
}

static tci_node *tci_order_ew(const tci_order *o, int op, tci_node *a, tci_node *b)
{
    tci_node *in[2] = {a, b};
    return tci_order_built(o, tci_build_ew(o->g, op, in));
}

static tci_node *tci_order_cast(const tci_order *o, tci_node *x, tc_dtype t)
{
    return tci_order_built(o, tci_build_cast(o->g, x, t));
}

static tci_node *tci_order_shape(const tci_order *o, tci_node *x, int rank, const tci_dim *shape)
{
    return tci_order_built(o, tci_build_reshape(o->g, x, rank, shape));
}
#define TCI_ORDER_SHAPE(o, x, n, ...)                                                              \
    tci_order_shape((o), (x), (n), (const tci_dim[n]){__VA_ARGS__})

static tci_node *tci_order_ramp(const tci_order *o, tc_dtype t, int64_t n)
{
    return tci_order_cast(o, tci_order_built(o, tci_build_iota(o->g, n)), t);
}

static tci_node *tci_order_sum(const tci_order *o, tci_node *x, int axis)
{
    tc_axes axes = {&axis, 1, false};
    return tci_order_built(o, tci_build_reduce(o->g, TCI_OP_SUM, x, axes, false));
}

static tci_node *tci_order_kept(const tci_order *o, tci_node *n)
{
    tci_algo_force(o->a, n);
    return n;
}

/* Words at these positions, each of which is there once. */
static tci_node *tci_order_put(const tci_order *o, tci_node *words, tci_node *places)
{
    tci_node *in[3] = {words, places, words};
    const int64_t attr[3] = {0, TCI_MODE_SET, 1};
    return tci_order_kept(o, tci_graph_node(o->g, TCI_OP_SCATTER, o->word, 1, words->shape, 3, in,
                                            3, attr));
}

/* ---- by ranks ---- */

/* [chunks, n]: for each word -1 for each greater one of the chunk. A difference whose sign is
 * shifted down takes two instructions with the sum, a comparison three; words are not negative, so
 * none overflows. A chunk is not one range, but of every o->chunks * TCI_ORDER_NEAR words this many
 * neighbours: rows that are so short are summed by a lane each (plan/reduction_order.c), which has
 * a word of its own in a register and meets what all lanes read. */
static tci_node *tci_order_greater(const tci_order *o, tci_node *words)
{
    int sign = 8 * tci_dtype_get(o->word)->bytes - 1;
    tci_node *one = TCI_ORDER_SHAPE(o, words, 4, 1, 1, 1, o->n);
    tci_node *other = TCI_ORDER_SHAPE(o, words, 4, o->chunk / TCI_ORDER_NEAR, o->chunks,
                                      TCI_ORDER_NEAR, 1);
    tci_node *greater = tci_order_ew(o, TCI_OP_BITWISE_RIGHT_SHIFT,
                                     tci_order_ew(o, TCI_OP_SUB, one, other),
                                     tci_order_number(o, o->word, sign));
    greater = tci_order_cast(o, greater, TC_I32);
    const tci_dim shape[2] = {o->chunks, o->n};
    const int64_t axes[2] = {0, 2};
    return tci_order_kept(o,
                          tci_graph_node(o->g, TCI_OP_SUM, TC_I32, 2, shape, 1, &greater, 2, axes));
}

static tci_node *tci_order_by_ranks(const tci_order *o, tci_node *words)
{
    tci_node *greater = tci_order_greater(o, words);
    tci_node *places = tci_order_number(o, TC_I32, o->n - 1);
    for (int64_t i = 0; i < o->chunks; i++) {
        tci_node *here = tci_order_built(o, tci_build_slice(o->g, greater, 0, i, i + 1, 1));
        places = tci_order_ew(o, TCI_OP_ADD, places, TCI_ORDER_SHAPE(o, here, 1, o->n));
    }
    return tci_order_put(o, words, places);
}

/* ---- by digits ---- */

/* Where the first word of each digit of each chunk goes, [chunks, chunk] as `digit` has them: the
 * words of lesser digits, and those of the same one in earlier chunks, come before it, which is a
 * running sum over digits, and of each over its chunks. */
static tci_node *tci_order_begins(const tci_order *o, tci_node *digit)
{
    int64_t n = (int64_t)1 << TCI_ORDER_BITS;
    tci_node *each = TCI_ORDER_SHAPE(o, tci_order_ramp(o, TC_I32, n), 3, n, 1, 1);
    tci_node *here = TCI_ORDER_SHAPE(o, digit, 3, 1, o->chunks, o->chunk);
    tci_node *counts = tci_order_sum(o, tci_order_ew(o, TCI_OP_EQ, here, each), 2);
    counts = TCI_ORDER_SHAPE(o, tci_order_kept(o, counts), 1, n * o->chunks);
    tci_node *sums = tci_order_built(o, tci_build_scan(o->g, counts, 0, false, TCI_MODE_ADD));
    tci_node *in_parts = tci_plan_scan(o->a, sums);
    sums = tci_order_kept(o, in_parts ? in_parts : sums);
    tci_node *zero = tci_order_number(o, (tc_dtype)sums->dtype, 0);
    sums = tci_order_built(o, tci_build_slice(o->g, sums, 0, 0, n * o->chunks - 1, 1));
    tci_node *before = tci_order_built(o, tci_build_pad(o->g, sums, 0, 1, 0, zero));
    tci_node *row = TCI_ORDER_SHAPE(o, tci_order_cast(o, digit, TC_I64), 2, o->chunks, o->chunk);
    tci_node *chunk = TCI_ORDER_SHAPE(o, tci_order_ramp(o, TC_I64, o->chunks), 2, o->chunks, 1);
    tci_node *at = tci_order_ew(o, TCI_OP_MUL, row, tci_order_number(o, TC_I64, o->chunks));
    at = TCI_ORDER_SHAPE(o, tci_order_ew(o, TCI_OP_ADD, at, chunk), 1, o->n);
    at = tci_order_built(o, tci_build_gather(o->g, before, 0, at));
    return TCI_ORDER_SHAPE(o, at, 2, o->chunks, o->chunk);
}

/* Words in the order of the digit at `shift`, equal ones as they were. */
static tci_node *tci_order_by_digit(const tci_order *o, tci_node *words, int shift)
{
    tci_node *digit = tci_order_ew(o, TCI_OP_BITWISE_RIGHT_SHIFT, words,
                                   tci_order_number(o, o->word, shift));
    digit = tci_order_ew(o, TCI_OP_BITWISE_AND, digit,
                         tci_order_number(o, o->word, (1 << TCI_ORDER_BITS) - 1));
    digit = tci_order_kept(o, tci_order_cast(o, digit, TC_I32));
    tci_node *one = TCI_ORDER_SHAPE(o, digit, 3, o->chunks, o->chunk, 1);
    tci_node *other = TCI_ORDER_SHAPE(o, digit, 3, o->chunks, 1, o->chunk);
    tci_node *ramp = tci_order_ramp(o, TC_I32, o->chunk);
    tci_node *earlier = tci_order_ew(o, TCI_OP_LT, TCI_ORDER_SHAPE(o, ramp, 3, 1, 1, o->chunk),
                                     TCI_ORDER_SHAPE(o, ramp, 3, 1, o->chunk, 1));
    tci_node *equal = tci_order_ew(o, TCI_OP_EQ, one, other);
    tci_node *rank = tci_order_sum(o, tci_order_ew(o, TCI_OP_LOGICAL_AND, equal, earlier), 2);
    tci_node *places = tci_order_ew(o, TCI_OP_ADD, tci_order_begins(o, digit), rank);
    return tci_order_put(o, words, TCI_ORDER_SHAPE(o, places, 1, o->n));
}

/* ---- either way ---- */

/* True if comparing all words with all is cheaper than the kernels of radix digits beyond those of
 * ranks. Words of two registers take twice as long (4.4 instructions). */
static bool tci_order_has_ranks(const tci_order *o, int digits)
{
    int more = TCI_ORDER_DIGIT_KERNELS * digits - TCI_ORDER_RANK_KERNELS;
    int64_t compared = TCI_ORDER_COMPARED / (o->word == TC_I32 ? 1 : 2);
    return o->n * o->n <= more * compared;
}

/* Sorted words of an index of one axis; of what is not there the index is o->keys. */
static tci_node *tci_order_words(const tci_order *o, tci_node *index)
{
    tci_node *fill = tci_order_number(o, o->word, o->keys);
    tci_node *keys = tci_order_built(o, tci_build_pad(o->g, index, 0, 0,
                                                      o->n - tci_dim_known(index->shape[0]), fill));
    tci_node *high = tci_order_ew(o, TCI_OP_BITWISE_LEFT_SHIFT, keys,
                                  tci_order_number(o, o->word, o->low));
    tci_node *words = tci_order_ew(o, TCI_OP_ADD, high, tci_order_ramp(o, o->word, o->n));
    tci_order_kept(o, words);
    int digits = 0;
    while (o->keys >> digits * TCI_ORDER_BITS > 0) {
        digits++;
    }
    if (tci_order_has_ranks(o, digits)) {
        return tci_order_by_ranks(o, words);
    }
    for (int i = 0; i < digits; i++) {
        words = tci_order_by_digit(o, words, o->low + i * TCI_ORDER_BITS);
    }
    return words;
}

/* For each of 0 .. o->keys how many sorted keys are less. */
static tci_node *tci_order_starts(const tci_order *o, tci_node *keys)
{
    tci_node *key = tci_order_ramp(o, o->word, o->keys + 1);
    tci_node *all = tci_order_number(o, o->word, o->n), *one = tci_order_number(o, o->word, 1);
    tci_node *less = tci_order_ew(o, TCI_OP_MUL, key, tci_order_number(o, o->word, 0));
    int64_t step = 1;
    while (2 * step <= o->n) {
        step *= 2;
    }
    for (; step > 0; step /= 2) {
        tci_node *more = tci_order_ew(o, TCI_OP_ADD, less, tci_order_number(o, o->word, step));
        tci_node *last = tci_order_ew(o, TCI_OP_SUB, tci_order_ew(o, TCI_OP_MINIMUM, more, all),
                                      one);
        tci_node *found = tci_order_built(o, tci_build_gather(o->g, keys, 0, last));
        tci_node *there = tci_order_ew(o, TCI_OP_LOGICAL_AND, tci_order_ew(o, TCI_OP_LE, more, all),
                                       tci_order_ew(o, TCI_OP_LT, found, key));
        less = tci_order_built(o, tci_build_where(o->g, there, more, less));
    }
    return tci_order_cast(o, tci_order_kept(o, less), TC_I64);
}

/* ---- the node ---- */

/* The index of SCATTER n as one axis, where all lines have the same; NULL: they have not. */
static tci_node *tci_order_index(const tci_order *o, const tci_node *n)
{
    tci_node *index = n->in[1];
    int axis = (int)tci_dim_known(n->attr[0]);
    bool same = true;
    for (int i = 0; i < n->rank; i++) {
        same = same && tci_dim_is_known(n->shape[i]) && tci_dim_is_known(index->shape[i]) &&
               (i == axis || n->shape[i] == index->shape[i]);
    }
    index = index->op == TCI_OP_EXPAND ? index->in[0] : index;
    for (int i = 0; i < n->rank; i++) {
        same = same && (i == axis ? index->shape[i] == n->in[1]->shape[i] : index->shape[i] == 1);
    }
    return same ? TCI_ORDER_SHAPE(o, index, 1, index->shape[axis]) : NULL;
}

/* Chunks and words of this many indices. */
static void tci_order_measure(tci_order *o, int64_t reads)
{
    o->chunk = TCI_ORDER_CHUNK;
    while (o->chunk < 4 * TCI_ORDER_CHUNK && o->chunk * TCI_ORDER_CHUNKS < reads) {
        o->chunk *= 2;
    }
    o->chunks = tci_dim_known(tci_dim_ceil_div(reads, o->chunk));
    o->n = o->chunks * o->chunk;
    while ((int64_t)1 << o->low < o->n) {
        o->low++;
    }
    o->word = o->keys < INT32_MAX >> o->low ? TC_I32 : TC_I64;
}

TCI_FN tci_node *tci_plan_order(const tci_algo *a, tci_node *n)
{
    tci_order o = {.a = a, .s = a->s, .g = a->g};
    bool ordered = a->machine.block_threads > 0 && n->n_in == 3;
    tci_node *index = ordered ? tci_order_index(&o, n) : NULL;
    int64_t reads = index ? tci_dim_known(index->shape[0]) : 0;
    o.keys = index ? tci_dim_known(n->shape[tci_dim_known(n->attr[0])]) : 0;
    if (reads < TCI_ORDER_READS || reads > tci_order_most || o.keys > tci_order_most) {
        return NULL;
    }
    tci_order_measure(&o, reads);
    /* reading 0, 1, 2 ... at the index checks it, and counts from the end where it is negative */
    tci_node *ramp = tci_order_ramp(&o, o.word, o.keys);
    tci_node *words = tci_order_built(&o, tci_build_gather(a->g, ramp, 0, index));
    words = tci_order_words(&o, words);
    tci_node *below = tci_order_number(&o, o.word, ((int64_t)1 << o.low) - 1);
    tci_node *order = tci_order_ew(&o, TCI_OP_BITWISE_AND, words, below);
    tci_node *keys = tci_order_ew(&o, TCI_OP_BITWISE_RIGHT_SHIFT, words,
                                  tci_order_number(&o, o.word, o.low));
    tci_node *in[4] = {n->in[0], n->in[2], tci_order_cast(&o, order, TC_I64),
                       tci_order_starts(&o, keys)};
    tci_str_printf(a->orders, "scatter of %lld: elements of an axis of %lld side by side\n",
                   (long long)reads, (long long)o.keys);
    return tci_graph_node(a->g, TCI_OP_SEGMENT, (tc_dtype)n->dtype, n->rank, n->shape, 4, in, 2,
                          n->attr);
}
