/* plan/order.c - a SCATTER as stretches of an order, for machines of blocks.
 *
 * In: a SCATTER whose index is the same for all lines. Out: the SEGMENT that gives each element of
 * x what a stretch of src's order holds for it, in the order that SCATTER has (kernel/ir.h): the
 * same bits. A SCATTER goes along src one element after the other; here elements of x go side by
 * side, and src is read once, wherever the index sends it.
 *
 * The order is a sort of the index that keeps what is equal in its order, of words (index, place),
 * by TCI_ORDER_BITS of the index at a time, least first. Its kernels are ordinary ones:
 *   counts   of each digit in each chunk of words, by comparing the chunk with every digit
 *   begins   of each digit in each chunk: running sums of the counts over digits and chunks
 *   ranks    how many equal digits come before in the chunk, by comparing again
 *   words    to their places, begin and rank: stores that are apart
 * A chunk has so many words that neither comparing nor running sums take long. Where the stretch of
 * an element starts is searched for in the sorted words, by halves. Equal nodes are one, so several
 * SCATTERs over one index share its order.
 *
 * What to expect: the gradient of 8192 rows read from a table of 32000, 512 floats each, reads and
 * writes 82 MB at least; before it come 11 small kernels, of which the launches are most. */
#include "../graph/build.h"
#include "group.h"

enum {
    TCI_ORDER_READS = 512,     /* least elements of src along the axis */
    TCI_ORDER_BITS = 8,
    TCI_ORDER_CHUNK = 256,     /* words, at least; twice and four times as many where there are */
    TCI_ORDER_CHUNKS = 1024,   /* more chunks than this */
    TCI_ORDER_HIGH = 32        /* bits of a word below its index */
};
static const int64_t tci_order_most = (int64_t)1 << 30;

typedef struct tci_order {
    const tci_algo *a;
    tci_scratch *s;
    tci_graph *g;
    int64_t keys;              /* indices are below it; what fills up the last chunk has it */
    int64_t n, chunk, chunks;  /* words */
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

static tci_node *tci_order_shape(const tci_order *o, tci_node *x, int64_t a, int64_t b, int64_t c)
{
    const tci_dim shape[3] = {a, b, c};
    return tci_order_built(o, tci_build_reshape(o->g, x, c ? 3 : b ? 2 : 1, shape));
}

static tci_node *tci_order_ramp(const tci_order *o, tc_dtype t, int64_t n)
{
    return tci_order_built(o, tci_build_cast(o->g, tci_build_iota(o->g, n), t));
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

/* ---- the sort ---- */

/* Where the first word of each digit of each chunk goes, [chunks, chunk] as `digit` has them: the
 * words of lesser digits, and those of the same one in earlier chunks, come before it, which is a
 * running sum over digits, and of each over its chunks. */
static tci_node *tci_order_begins(const tci_order *o, tci_node *digit)
{
    int64_t n = (int64_t)1 << TCI_ORDER_BITS;
    tci_node *each = tci_order_shape(o, tci_order_ramp(o, TC_I32, n), n, 1, 1);
    tci_node *here = tci_order_shape(o, digit, 1, o->chunks, o->chunk);
    tci_node *counts = tci_order_sum(o, tci_order_ew(o, TCI_OP_EQ, here, each), 2);
    counts = tci_order_shape(o, tci_order_kept(o, counts), n * o->chunks, 0, 0);
    tci_node *sums = tci_order_built(o, tci_build_scan(o->g, counts, 0, false, TCI_MODE_ADD));
    tci_node *in_parts = tci_plan_scan(o->a, sums);
    sums = tci_order_kept(o, in_parts ? in_parts : sums);
    tci_node *zero = tci_order_number(o, (tc_dtype)sums->dtype, 0);
    sums = tci_order_built(o, tci_build_slice(o->g, sums, 0, 0, n * o->chunks - 1, 1));
    tci_node *before = tci_order_built(o, tci_build_pad(o->g, sums, 0, 1, 0, zero));
    tci_node *row = tci_order_built(o, tci_build_cast(o->g, digit, TC_I64));
    row = tci_order_shape(o, row, o->chunks, o->chunk, 0);
    tci_node *chunk = tci_order_shape(o, tci_order_ramp(o, TC_I64, o->chunks), o->chunks, 1, 0);
    tci_node *at = tci_order_ew(o, TCI_OP_MUL, row, tci_order_number(o, TC_I64, o->chunks));
    at = tci_order_shape(o, tci_order_ew(o, TCI_OP_ADD, at, chunk), o->n, 0, 0);
    return tci_order_shape(o, tci_order_built(o, tci_build_gather(o->g, before, 0, at)), o->chunks,
                           o->chunk, 0);
}

/* Words in the order of the digit at `shift`, equal ones as they were. */
static tci_node *tci_order_by_digit(const tci_order *o, tci_node *words, int shift)
{
    tci_node *digit = tci_order_ew(o, TCI_OP_BITWISE_RIGHT_SHIFT, words,
                                   tci_order_number(o, TC_I64, shift));
    digit = tci_order_ew(o, TCI_OP_BITWISE_AND, digit,
                         tci_order_number(o, TC_I64, (1 << TCI_ORDER_BITS) - 1));
    digit = tci_order_kept(o, tci_order_built(o, tci_build_cast(o->g, digit, TC_I32)));
    tci_node *one = tci_order_shape(o, digit, o->chunks, o->chunk, 1);
    tci_node *other = tci_order_shape(o, digit, o->chunks, 1, o->chunk);
    tci_node *ramp = tci_order_ramp(o, TC_I32, o->chunk);
    tci_node *earlier = tci_order_ew(o, TCI_OP_LT, tci_order_shape(o, ramp, 1, 1, o->chunk),
                                     tci_order_shape(o, ramp, 1, o->chunk, 1));
    tci_node *equal = tci_order_ew(o, TCI_OP_EQ, one, other);
    tci_node *rank = tci_order_sum(o, tci_order_ew(o, TCI_OP_LOGICAL_AND, equal, earlier), 2);
    tci_node *place = tci_order_ew(o, TCI_OP_ADD, tci_order_begins(o, digit), rank);
    tci_node *in[3] = {words, tci_order_shape(o, place, o->n, 0, 0), words};
    const int64_t attr[3] = {0, TCI_MODE_SET, 1};
    return tci_order_kept(o, tci_graph_node(o->g, TCI_OP_SCATTER, TC_I64, 1, words->shape, 3, in, 3,
                                            attr));
}

/* Sorted words of an index of one axis; of what is not there the index is o->keys. */
static tci_node *tci_order_words(const tci_order *o, tci_node *index)
{
    tci_node *fill = tci_order_number(o, TC_I64, o->keys);
    tci_node *keys = tci_order_built(o, tci_build_pad(o->g, index, 0, 0,
                                                      o->n - tci_dim_known(index->shape[0]), fill));
    tci_node *high = tci_order_ew(o, TCI_OP_BITWISE_LEFT_SHIFT, keys,
                                  tci_order_number(o, TC_I64, TCI_ORDER_HIGH));
    tci_node *words = tci_order_ew(o, TCI_OP_ADD, high, tci_order_ramp(o, TC_I64, o->n));
    tci_order_kept(o, words);
    for (int bit = 0; o->keys >> bit > 0; bit += TCI_ORDER_BITS) {
        words = tci_order_by_digit(o, words, TCI_ORDER_HIGH + bit);
    }
    return words;
}

/* For each of 0 .. o->keys how many sorted keys are less. */
static tci_node *tci_order_starts(const tci_order *o, tci_node *keys)
{
    tci_node *key = tci_order_ramp(o, TC_I64, o->keys + 1);
    tci_node *all = tci_order_number(o, TC_I64, o->n), *one = tci_order_number(o, TC_I64, 1);
    tci_node *less = tci_order_ew(o, TCI_OP_MUL, key, tci_order_number(o, TC_I64, 0));
    int64_t step = 1;
    while (2 * step <= o->n) {
        step *= 2;
    }
    for (; step > 0; step /= 2) {
        tci_node *more = tci_order_ew(o, TCI_OP_ADD, less, tci_order_number(o, TC_I64, step));
        tci_node *last = tci_order_ew(o, TCI_OP_SUB, tci_order_ew(o, TCI_OP_MINIMUM, more, all),
                                      one);
        tci_node *found = tci_order_built(o, tci_build_gather(o->g, keys, 0, last));
        tci_node *there = tci_order_ew(o, TCI_OP_LOGICAL_AND,
                                       tci_order_ew(o, TCI_OP_LE, more, all),
                                       tci_order_ew(o, TCI_OP_LT, found, key));
        less = tci_order_built(o, tci_build_where(o->g, there, more, less));
    }
    return tci_order_kept(o, less);
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
    return same ? tci_order_shape(o, index, tci_dim_known(index->shape[axis]), 0, 0) : NULL;
}

TCI_FN tci_node *tci_plan_order(const tci_algo *a, tci_node *n)
{
    tci_order o = {.a = a, .s = a->s, .g = a->g, .chunk = TCI_ORDER_CHUNK};
    bool ordered = a->machine.block_threads > 0 && n->n_in == 3;
    tci_node *index = ordered ? tci_order_index(&o, n) : NULL;
    int64_t reads = index ? tci_dim_known(index->shape[0]) : 0;
    o.keys = index ? tci_dim_known(n->shape[tci_dim_known(n->attr[0])]) : 0;
    if (reads < TCI_ORDER_READS || reads > tci_order_most || o.keys > tci_order_most) {
        return NULL;
    }
    while (o.chunk < 4 * TCI_ORDER_CHUNK && o.chunk * TCI_ORDER_CHUNKS < reads) {
        o.chunk *= 2;
    }
    o.chunks = tci_dim_known(tci_dim_ceil_div(reads, o.chunk));
    o.n = o.chunks * o.chunk;
    /* reading 0, 1, 2 ... at the index checks it, and counts from the end where it is negative */
    tci_node *ramp = tci_order_ramp(&o, TC_I64, o.keys);
    tci_node *words = tci_order_built(&o, tci_build_gather(a->g, ramp, 0, index));
    words = tci_order_words(&o, words);
    tci_node *high = tci_order_number(&o, TC_I64, TCI_ORDER_HIGH);
    tci_node *low = tci_order_number(&o, TC_I64, ((int64_t)1 << TCI_ORDER_HIGH) - 1);
    tci_node *keys = tci_order_ew(&o, TCI_OP_BITWISE_RIGHT_SHIFT, words, high);
    tci_node *in[4] = {n->in[0], n->in[2], tci_order_ew(&o, TCI_OP_BITWISE_AND, words, low),
                       tci_order_starts(&o, keys)};
    tci_str_printf(a->orders, "scatter of %lld: elements of an axis of %lld side by side\n",
                   (long long)reads, (long long)o.keys);
    return tci_graph_node(a->g, TCI_OP_SEGMENT, (tc_dtype)n->dtype, n->rank, n->shape, 4, in, 2,
                          n->attr);
}
