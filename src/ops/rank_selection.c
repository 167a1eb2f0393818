/* ops/rank_selection.c - rank selection (k-th smallest element) without a full sort, by radix
 * selection.
 *
 * In: x and an axis. Out: integer keys in the order of the elements; the key of a rank, and its
 * position; a stable partition of the positions by a mask.
 *
 * The key of rank r is the largest key such that at most r elements are less; its bits are
 * determined from the highest on, each by one count along the axis, without moving elements (radix
 * select). */
#include "composite.h"

/* ---- words ---- */

static tci_node *tci_select_by(tci_graph *g, int op, tci_node *x, uint64_t number)
{
    tci_node *in[2] = {x, NULL};
    in[1] = x ? tci_graph_const(g, (tc_dtype)x->dtype, (tci_value){.u = number}) : NULL;
    return in[1] ? tci_build_ew(g, op, in) : NULL;
}

/* The bits of a float as a word: of a negative one all are turned, of others the first. */
static tci_node *tci_select_float(tci_graph *g, tci_node *x, tc_dtype word, int bits)
{
    uint64_t first = (uint64_t)1 << (bits - 1);
    tci_node *zero = tci_graph_const(g, (tc_dtype)x->dtype, (tci_value){.u = 0});
    tci_node *plain = tci_build_where(g, tci_composite_binary(g, TCI_OP_EQ, x, zero), zero, x);
    tci_node *w = tci_build_bitcast(g, plain, word);
    w = tci_build_where(g, tci_select_by(g, TCI_OP_GE, w, first),
                        tci_composite_unary(g, TCI_OP_BITWISE_NOT, w),
                        tci_select_by(g, TCI_OP_BITWISE_XOR, w, first));
    tci_node *last = tci_graph_const(g, word, (tci_value){.u = UINT64_MAX >> (64 - bits)});
    return tci_build_where(g, tci_composite_unary(g, TCI_OP_ISNAN, x), last, w);
}

TCI_FN tci_node *tci_build_order_words(tci_graph *g, tci_node *x, bool largest)
{
    if (!x) {
        return NULL;
    }
    tc_dtype t = (tc_dtype)x->dtype;
    int bits = 8 * tci_dtype_get(t)->bytes;
    tc_dtype word = bits == 8 ? TC_U8 : bits == 16 ? TC_U16 : bits == 32 ? TC_U32 : TC_U64;
    tci_node *w;
    if (tci_dtype_is_float(t)) {
        w = tci_select_float(g, x, word, bits);
    } else if (tci_dtype_is_signed(t)) {
        w = tci_select_by(g, TCI_OP_BITWISE_XOR, tci_build_bitcast(g, x, word),
                          (uint64_t)1 << (bits - 1));
    } else {
        w = tci_build_cast(g, x, word);
    }
    return largest ? tci_composite_unary(g, TCI_OP_BITWISE_NOT, w) : w;
}

/* ---- ranks ---- */

/* Number of true elements along the axis, in a dtype that holds it: [..., 1, ...]. */
static tci_node *tci_select_count(tci_graph *g, tci_node *truth, int axis)
{
    if (!truth) {
        return NULL;
    }
    bool fits = tci_dim_le(truth->shape[axis], INT32_MAX);
    tci_node *ones = tci_build_cast(g, truth, fits ? TC_I32 : TC_I64);
    const int64_t attr = axis;
    tci_words w;
    tci_dim *shape = tci_words_dims(g, &w, truth->rank);
    if (!ones || !shape) {
        return NULL;
    }
    for (int i = 0; i + 1 < truth->rank; i++) {
        shape[i] = truth->shape[i + (i >= axis)];
    }
    tci_node *r = tci_build_node(g, TCI_OP_SUM, (tc_dtype)ones->dtype, truth->rank - 1, shape, 1,
                                 &ones, 1, &attr);
    return tci_words_put(g, &w, tci_build_unsqueeze(g, r, axis));
}

TCI_FN tci_node *tci_build_word_of_rank(tci_graph *g, tci_node *words, int axis, tci_node *rank)
{
    tci_words w;
    tci_dim *line = words ? tci_words_dims(g, &w, words->rank) : NULL;
    if (!line || !rank) {
        return NULL;
    }
    tc_dtype t = (tc_dtype)words->dtype;
    for (int i = 0; i < words->rank; i++) {
        line[i] = i == axis ? 1 : words->shape[i];
    }
    tci_node *r = tci_graph_const(g, t, (tci_value){.u = 0});
    r = tci_words_put(g, &w, tci_build_broadcast(g, r, words->rank, line));
    for (int bit = 8 * tci_dtype_get(t)->bytes - 1; r && bit >= 0; bit--) {
        tci_node *next = tci_select_by(g, TCI_OP_BITWISE_OR, r, (uint64_t)1 << bit);
        tci_node *less = tci_select_count(g, tci_composite_binary(g, TCI_OP_LT, words, next), axis);
        r = tci_build_where(g, tci_composite_binary(g, TCI_OP_LE, less, rank), next, r);
    }
    return r;
}

/* Of what is equal the first ones have the lesser ranks. */
TCI_FN tci_node *tci_build_until_rank(tci_graph *g, tci_node *words, int axis, tci_node *rank,
                                      tci_node **last)
{
    tci_node *word = tci_build_word_of_rank(g, words, axis, rank);
    tci_node *less = tci_composite_binary(g, TCI_OP_LT, words, word);
    tci_node *level = tci_composite_binary(g, TCI_OP_EQ, words, word);
    tci_node *nth = level ? tci_build_scan(g, level, axis, false, TCI_MODE_ADD) : NULL;
    tci_node *left = tci_composite_binary(g, TCI_OP_SUB, rank, tci_select_count(g, less, axis));
    left = tci_composite_binary(g, TCI_OP_ADD, left, tci_composite_whole(g, 1));
    if (last) {
        *last = tci_composite_binary(g, TCI_OP_LOGICAL_AND, level,
                                     tci_composite_binary(g, TCI_OP_EQ, nth, left));
    }
    level = tci_composite_binary(g, TCI_OP_LOGICAL_AND, level,
                                 tci_composite_binary(g, TCI_OP_LE, nth, left));
    return tci_composite_binary(g, TCI_OP_LOGICAL_OR, less, level);
}

TCI_FN tci_node *tci_build_place_of_rank(tci_graph *g, tci_node *words, int axis, tci_node *rank)
{
    tci_node *last = NULL;
    tc_axes one = {&axis, 1, false};
    tci_build_until_rank(g, words, axis, rank, &last);
    return last ? tci_build_reduce(g, TCI_OP_ARGMAX, tci_build_cast(g, last, TC_I32), one, true)
                : NULL;
}

/* ---- what comes first ---- */

/* The true ones go to the front from the first on, the others to the back from there: all positions
 * are taken, each once. */
TCI_FN tci_node *tci_build_true_first(tci_graph *g, tci_node *truth, int axis)
{
    if (!truth) {
        return NULL;
    }
    const tci_dim n = truth->shape[axis];
    tci_node *one = tci_composite_whole(g, 1);
    tci_node *ends = tci_build_scan(g, truth, axis, false, TCI_MODE_ADD);
    tci_node *place = tci_composite_ramp(g, n, truth->rank, axis);
    tci_node *others = tci_composite_binary(g, TCI_OP_SUB, place, ends);
    others = tci_composite_binary(g, TCI_OP_SUB, tci_build_size_value(g, tci_dim_sub(n, 1), TC_I64),
                                  others);
    tci_node *to = tci_build_where(g, truth, tci_composite_binary(g, TCI_OP_SUB, ends, one),
                                   others);
    place = tci_build_broadcast(g, place, truth->rank, truth->shape);
    if (!to || !place) {
        return NULL;
    }
    tci_node *in[3] = {place, to, place};
    const int64_t attr[3] = {axis, TCI_MODE_SET, 1};
    return tci_build_node(g, TCI_OP_SCATTER, TC_I64, place->rank, place->shape, 3, in, 3, attr);
}
