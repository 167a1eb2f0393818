/* ops/random.c - random numbers: distributions as elementwise ops over the bits of RANDOM nodes.
 *
 * In: a key (0-d, of an integer dtype), a dtype, a shape. Out: nodes.
 *
 * Design: a RANDOM node is a pure function of a key, a stream and the index of an element
 * (kernel/random.c), so the distributions are ordinary elementwise nodes over it; fusion, gradients
 * and backends need nothing special. Identical draws from the same key are one node. Different
 * numbers require a different key, which tci_build_fold_in derives from a key.
 *
 * A draw that needs more bits than a RANDOM node has takes the second half from stream 1. Derived
 * keys come from a key space of their own: they are drawn with rotated constants. */
#include "../graph/build.h"

#define TCI_RANDOM_KEYS UINT64_C(0xa3c59ac2f0e1d4b7) /* turned in a key that makes keys */

static tci_node *tci_random_ew(tci_graph *g, int op, tci_node *a, tci_node *b)
{
    tci_node *in[2] = {a, b};
    return tci_build_ew(g, op, in);
}

static tci_node *tci_random_int(tci_graph *g, int op, tci_node *a, uint64_t b)
{
    return a ? tci_random_ew(g, op, a, tci_graph_const(g, (tc_dtype)a->dtype, (tci_value){.u = b}))
             : NULL;
}

static tci_node *tci_random_float(tci_graph *g, int op, tci_node *a, double b)
{
    if (!a) {
        return NULL;
    }
    tci_value v = tci_value_cast((tci_value){.f = b}, TC_F64, (tc_dtype)a->dtype);
    return tci_random_ew(g, op, a, tci_graph_const(g, (tc_dtype)a->dtype, v));
}

/* ---- keys ---- */

/* x in dtype `to`, if it is one number of the same kind. */
static tci_node *tci_random_scalar(tci_graph *g, const char *what, tci_node *x, tc_dtype to)
{
    bool is_float = tci_dtype_is_float(to);
    bool fits = x && (is_float ? tci_dtype_is_float((tc_dtype)x->dtype)
                               : tci_dtype_is_int((tc_dtype)x->dtype));
    if (x && (x->rank || !fits)) {
        tci_graph_fail(g, x->rank ? TC_ERR_SHAPE : TC_ERR_DTYPE,
                       "%s is %s of shape %s: expected %s, as a number or a 0-d tensor", what,
                       tci_dtype_get((tc_dtype)x->dtype)->name, TCI_SHAPE_TEXT(x),
                       is_float ? "a float" : "an integer");
        return NULL;
    }
    return tci_build_cast(g, x, to);
}

TCI_FN tci_node *tci_build_random(tci_graph *g, tci_node *key, tci_node *stream, tc_dtype dtype,
                                  int rank, const tci_dim *shape)
{
    tci_node *in[2] = {tci_random_scalar(g, "the key", key, TC_U64),
                       tci_random_scalar(g, "the number", stream, TC_U64)};
    if (!in[0] || !in[1]) {
        return NULL;
    }
    if (dtype != TC_U32 && dtype != TC_U64) {
        tci_graph_fail(g, TC_ERR_DTYPE, "random bits are u32 or u64: given %s",
                       tci_dtype_get(dtype)->name);
        return NULL;
    }
    return tci_build_node(g, TCI_OP_RANDOM, dtype, rank, shape, 2, in, 0, NULL);
}

/* ---- a key for each slice: the same function, as elementwise nodes ---- */

typedef struct tci_random_words {
    tci_node *w[4]; /* u32: low and high of the block's number, low and high of the stream */
} tci_random_words;

static tci_node *tci_random_half(tci_graph *g, tci_node *x, bool high) /* of u64 */
{
    return tci_build_cast(g, high ? tci_random_int(g, TCI_OP_BITWISE_RIGHT_SHIFT, x, 32) : x,
                          TC_U32);
}

/* kernel/random.c says what a round is. */
static tci_random_words tci_random_rounds(tci_graph *g, tci_random_words c, tci_node *key)
{
    tci_node *key0 = tci_random_half(g, key, false), *key1 = tci_random_half(g, key, true);
    for (int round = 0; round < 10; round++) {
        tci_node *low0 = tci_random_int(g, TCI_OP_MUL, c.w[0], 0xd2511f53u);
        tci_node *high0 = tci_random_int(g, TCI_OP_MUL_HIGH, c.w[0], 0xd2511f53u);
        tci_node *low1 = tci_random_int(g, TCI_OP_MUL, c.w[2], 0xcd9e8d57u);
        tci_node *high1 = tci_random_int(g, TCI_OP_MUL_HIGH, c.w[2], 0xcd9e8d57u);
        tci_node *mixed1 = tci_random_ew(g, TCI_OP_BITWISE_XOR, high1, c.w[1]);
        tci_node *mixed0 = tci_random_ew(g, TCI_OP_BITWISE_XOR, high0, c.w[3]);
        c = (tci_random_words){{tci_random_ew(g, TCI_OP_BITWISE_XOR, mixed1, key0), low1,
                                tci_random_ew(g, TCI_OP_BITWISE_XOR, mixed0, key1), low0}};
        key0 = tci_random_int(g, TCI_OP_ADD, key0, 0x9e3779b9u);
        key1 = tci_random_int(g, TCI_OP_ADD, key1, 0xbb67ae85u);
    }
    return c;
}

/* Where `bit` is set in the index the one, elsewhere the other. */
static tci_node *tci_random_choose(tci_graph *g, tci_node *index, uint64_t bit, tci_node *set,
                                   tci_node *clear)
{
    tci_node *masked = tci_random_int(g, TCI_OP_BITWISE_AND, index, bit);
    return tci_build_where(g, masked ? tci_random_int(g, TCI_OP_NE, masked, 0) : NULL, set, clear);
}

/* x, a number for each slice or for all, with axes of size 1 behind. */
static tci_node *tci_random_slices(tci_graph *g, tci_node *x, int rank)
{
    tci_words w;
    tci_dim *shape = x ? tci_words_dims(g, &w, rank) : NULL;
    if (!shape) {
        return NULL;
    }
    for (int i = 0; i < rank; i++) {
        shape[i] = i ? 1 : x->rank ? x->shape[0] : 1;
    }
    return tci_words_put(g, &w, tci_build_reshape(g, x, rank, shape));
}

TCI_FN tci_node *tci_build_random_each(tci_graph *g, tci_node *keys, tci_node *streams,
                                       tc_dtype dtype, int rank, const tci_dim *shape)
{
    tci_dim count = 1;
    for (int i = 1; i < rank; i++) {
        count = tci_dim_mul(count, shape[i]);
    }
    bool wide = dtype == TC_U64;
    tci_node *index = tci_build_cast(g, tci_build_iota(g, count), TC_U64);
    index = tci_build_reshape(g, index, rank - 1, shape + 1);
    tci_node *block = tci_random_int(g, TCI_OP_BITWISE_RIGHT_SHIFT, index, wide ? 1 : 2);
    tci_node *key = tci_random_slices(g, keys, rank), *stream = tci_random_slices(g, streams, rank);
    tci_random_words c = {{tci_random_half(g, block, false), tci_random_half(g, block, true),
                           tci_random_half(g, stream, false), tci_random_half(g, stream, true)}};
    c = tci_random_rounds(g, c, key);
    tci_node *low = tci_random_choose(g, index, 1, c.w[wide ? 2 : 1], c.w[0]);
    tci_node *high = tci_random_choose(g, index, 1, c.w[3], c.w[wide ? 1 : 2]);
    if (wide) {
        high = tci_random_int(g, TCI_OP_BITWISE_LEFT_SHIFT, tci_build_cast(g, high, TC_U64), 32);
        low = tci_random_ew(g, TCI_OP_BITWISE_OR, tci_build_cast(g, low, TC_U64), high);
    } else {
        low = tci_random_choose(g, index, 2, high, low);
    }
    return tci_build_broadcast(g, low, rank, shape);
}

static tci_node *tci_random_draw(tci_graph *g, tci_node *key, uint64_t stream, tc_dtype dtype,
                                 int rank, const tci_dim *shape)
{
    tci_node *number = tci_graph_const(g, TC_U64, (tci_value){.u = stream});
    return tci_build_random(g, key, number, dtype, rank, shape);
}

TCI_FN tci_node *tci_build_fold_in(tci_graph *g, tci_node *key, tci_node *number)
{
    key = tci_random_scalar(g, "the key", key, TC_U64);
    key = tci_random_int(g, TCI_OP_BITWISE_XOR, key, TCI_RANDOM_KEYS);
    return key ? tci_build_random(g, key, number, TC_U64, 0, NULL) : NULL;
}

/* ---- distributions ---- */

static bool tci_random_takes(tci_graph *g, tc_dtype dtype, bool floats)
{
    bool fits = floats ? tci_dtype_is_float(dtype) : tci_dtype_is_int(dtype);
    if (!fits) {
        tci_graph_fail(g, TC_ERR_DTYPE, "given dtype %s, expected %s", tci_dtype_get(dtype)->name,
                       floats ? "a float dtype" : "an integer dtype");
    }
    return fits;
}

TCI_FN tci_node *tci_build_random_bits(tci_graph *g, tci_node *key, tc_dtype dtype, int rank,
                                       const tci_dim *shape)
{
    if (!key || !tci_random_takes(g, dtype, false)) {
        return NULL;
    }
    tc_dtype drawn = tci_dtype_get(dtype)->bytes == 8 ? TC_U64 : TC_U32;
    return tci_build_cast(g, tci_random_draw(g, key, 0, drawn, rank, shape), dtype);
}

/* The upper bits, as many as the dtype has digits, times the weight of the last: every result is
 * exact and none is 1. */
TCI_FN tci_node *tci_build_rand(tci_graph *g, tci_node *key, tc_dtype dtype, int rank,
                                const tci_dim *shape)
{
    if (!key || !tci_random_takes(g, dtype, true)) {
        return NULL;
    }
    bool wide = dtype == TC_F64;
    int digits = wide ? 53 : dtype == TC_F32 ? 24 : dtype == TC_F16 ? 11 : 8;
    tc_dtype math = (tc_dtype)tci_dtype_get(dtype)->compute;
    tci_node *bits = tci_random_draw(g, key, 0, wide ? TC_U64 : TC_U32, rank, shape);
    uint64_t rest = (uint64_t)((wide ? 64 : 32) - digits);
    bits = tci_random_int(g, TCI_OP_BITWISE_RIGHT_SHIFT, bits, rest);
    bits = tci_build_cast(g, bits, wide ? TC_I64 : TC_I32); /* which converts in fewer steps */
    double last = 1.0 / (double)((int64_t)1 << digits);
    return tci_build_cast(g, tci_random_float(g, TCI_OP_MUL, tci_build_cast(g, bits, math), last),
                          dtype);
}

/* Box and Muller's: the radius sqrt(-2 log u) with u in (0, 1], and the cosine of an angle. A whole
 * word each: the largest radius is 6.7, of f64 9.5. */
TCI_FN tci_node *tci_build_randn(tci_graph *g, tci_node *key, tc_dtype dtype, int rank,
                                 const tci_dim *shape)
{
    if (!key || !tci_random_takes(g, dtype, true)) {
        return NULL;
    }
    const double turn = 6.283185307179586;
    bool wide = dtype == TC_F64;
    tc_dtype math = (tc_dtype)tci_dtype_get(dtype)->compute;
    tci_node *u = tci_random_draw(g, key, 0, TC_U64, rank, shape);
    tci_node *v = wide ? tci_random_draw(g, key, 1, TC_U64, rank, shape)
                       : tci_random_int(g, TCI_OP_BITWISE_RIGHT_SHIFT, u, 32);
    u = wide ? u : tci_build_cast(g, u, TC_U32);
    v = wide ? v : tci_build_cast(g, v, TC_U32);
    double last = wide ? 0x1p-64 : 0x1p-32;
    u = tci_random_float(g, TCI_OP_MUL, tci_build_cast(g, u, math), last);
    u = tci_random_float(g, TCI_OP_ADD, u, last / 2);
    tci_node *square = tci_random_float(g, TCI_OP_MUL, tci_build_ew(g, TCI_OP_LOG, &u), -2.0);
    v = tci_build_cast(g, tci_build_cast(g, v, wide ? TC_I64 : TC_I32), math);
    v = tci_random_float(g, TCI_OP_MUL, v, turn * last);
    tci_node *radius = tci_build_ew(g, TCI_OP_SQRT, &square);
    tci_node *cosine = tci_build_ew(g, TCI_OP_COS, &v);
    return tci_build_cast(g, tci_random_ew(g, TCI_OP_MUL, radius, cosine), dtype);
}

/* low + floor(b * (high - low) / 2^64) of 64 random bits b: no number is more likely than another
 * by more than one part in 2^64 / (high - low). */
TCI_FN tci_node *tci_build_randint(tci_graph *g, tci_node *key, tci_node *low, tci_node *high,
                                   tc_dtype dtype, int rank, const tci_dim *shape)
{
    if (!key || !low || !high || !tci_random_takes(g, dtype, false)) {
        return NULL;
    }
    tc_dtype wide = dtype == TC_U64 ? TC_U64 : TC_I64;
    low = tci_random_scalar(g, "low", low, wide);
    high = low ? tci_random_scalar(g, "high", high, wide) : NULL;
    tci_node *bits = high ? tci_random_draw(g, key, 0, TC_U64, rank, shape) : NULL;
    if (!bits) {
        return NULL;
    }
    tci_node *zero = tci_graph_const(g, wide, (tci_value){.i = 0});
    tci_node *span = tci_build_where(g, tci_random_ew(g, TCI_OP_LT, low, high),
                                     tci_random_ew(g, TCI_OP_SUB, high, low), zero);
    span = tci_build_cast(g, span, TC_U64);
    tci_node *above = tci_build_cast(g, tci_random_ew(g, TCI_OP_MUL_HIGH, bits, span), wide);
    return tci_build_cast(g, tci_random_ew(g, TCI_OP_ADD, low, above), dtype);
}

/* 1 where a uniform number is below p. */
TCI_FN tci_node *tci_build_bernoulli(tci_graph *g, tci_node *p, tci_node *key)
{
    if (!p || !key || !tci_random_takes(g, (tc_dtype)p->dtype, true)) {
        return NULL;
    }
    tc_dtype math = (tc_dtype)tci_dtype_get((tc_dtype)p->dtype)->compute;
    tci_node *u = tci_build_rand(g, key, math, p->rank, p->shape);
    tci_node *below = u ? tci_random_ew(g, TCI_OP_LT, u, tci_build_cast(g, p, math)) : NULL;
    return tci_build_cast(g, below, (tc_dtype)p->dtype);
}

/* -log(1 - u) of a uniform number u, in the shape and compute dtype of p. */
static tci_node *tci_random_waiting(tci_graph *g, tci_node *p, tci_node *key)
{
    if (!p || !key || !tci_random_takes(g, (tc_dtype)p->dtype, true)) {
        return NULL;
    }
    tc_dtype math = (tc_dtype)tci_dtype_get((tc_dtype)p->dtype)->compute;
    tci_node *u = tci_build_rand(g, key, math, p->rank, p->shape);
    tci_node *less = u ? tci_build_ew(g, TCI_OP_NEG, &u) : NULL;
    tci_node *log = less ? tci_build_ew(g, TCI_OP_LOG1P, &less) : NULL;
    return log ? tci_build_ew(g, TCI_OP_NEG, &log) : NULL;
}

TCI_FN tci_node *tci_build_exponential(tci_graph *g, tci_node *rate, tci_node *key)
{
    tci_node *wait = tci_random_waiting(g, rate, key);
    tci_node *wide = wait ? tci_build_cast(g, rate, (tc_dtype)wait->dtype) : NULL;
    return wide ? tci_build_cast(g, tci_random_ew(g, TCI_OP_DIV, wait, wide), (tc_dtype)rate->dtype)
                : NULL;
}

/* The inverse of the distribution function: the trial in which log(1 - u) / log(1 - p) ends. */
TCI_FN tci_node *tci_build_geometric(tci_graph *g, tci_node *p, tci_node *key)
{
    tci_node *wait = tci_random_waiting(g, p, key);
    tci_node *wide = wait ? tci_build_cast(g, p, (tc_dtype)wait->dtype) : NULL;
    tci_node *rate = wide ? tci_build_ew(g, TCI_OP_NEG, &wide) : NULL;
    rate = rate ? tci_build_ew(g, TCI_OP_LOG1P, &rate) : NULL;
    rate = rate ? tci_build_ew(g, TCI_OP_NEG, &rate) : NULL;
    tci_node *trials = rate ? tci_random_ew(g, TCI_OP_DIV, wait, rate) : NULL;
    trials = trials ? tci_build_ew(g, TCI_OP_CEIL, &trials) : NULL;
    tci_node *one = trials ? tci_graph_const(g, (tc_dtype)trials->dtype, (tci_value){.f = 1.0})
                           : NULL;
    trials = one ? tci_random_ew(g, TCI_OP_MAXIMUM, trials, one) : NULL;
    return trials ? tci_build_cast(g, trials, (tc_dtype)p->dtype) : NULL;
}

/* The uniform number is of f32 whatever x is, so that the same elements go. */
TCI_FN tci_node *tci_build_dropout(tci_graph *g, tci_node *x, tci_node *p, tci_node *key)
{
    if (!x || !p || !key || !tci_random_takes(g, (tc_dtype)x->dtype, true)) {
        return NULL;
    }
    tc_dtype math = (tc_dtype)tci_dtype_get((tc_dtype)x->dtype)->compute;
    tci_node *part = tci_random_scalar(g, "p", p, math);
    tci_node *u = part ? tci_build_rand(g, key, TC_F32, x->rank, x->shape) : NULL;
    if (!u || (part->op == TCI_OP_CONST && part->value.f == 0.0)) {
        return u ? x : NULL;
    }
    tci_node *keep = tci_random_ew(g, TCI_OP_GE, u, tci_build_cast(g, p, TC_F32));
    tci_node *one = tci_graph_const(g, math, (tci_value){.f = 1.0});
    tci_node *scale = tci_random_ew(g, TCI_OP_DIV, one, tci_random_ew(g, TCI_OP_SUB, one, part));
    tci_node *kept = tci_random_ew(g, TCI_OP_MUL, tci_build_cast(g, x, math), scale);
    tci_node *zero = tci_graph_const(g, math, (tci_value){.f = 0.0});
    return tci_build_cast(g, tci_build_where(g, keep, kept, zero), (tc_dtype)x->dtype);
}
