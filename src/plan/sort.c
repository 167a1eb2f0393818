/* plan/sort.c - implements top-k and sort as graph nodes: selection in chunks, or radix sort.
 *
 * In: a TOPK. Out: its indices. Design: an element becomes an unsigned word of the same order (a
 * sort key, tci_build_order_words) with its index appended, so that no two are equal and the
 * smallest come first, for every dtype and direction: one i64 key for words of up to 32 bits, two
 * values for longer ones.
 *
 * Elements that cannot be selected are dropped first, except on GPUs, which need the parallelism:
 *   groups  if k is far less than the axis: of groups of neighbours, the k with the smallest words
 *           contain the first k elements
 *   parts   up to half of the rest: stable compaction of the elements whose word is at most the
 *           k-th smallest one (ops/rank_selection.c)
 * The method that orders the rest depends on k:
 *   ranks   up to TCI_SORT_CHUNK elements: rank (enumeration) sort: the rank of an element is the
 *           number of smaller ones, and the key of rank r is selected by a masked sum. A longer
 *           axis is cut into chunks of 4 k and more, which keep their first k, and so on: some 6 k
 *           comparisons per element
 *   digits  otherwise, and if the axis or k is symbolic: a stable radix sort by TCI_SORT_BITS of
 *           the words at a time, lowest first. An element goes after all smaller digits, equal ones
 *           of earlier chunks and equal ones before it in its chunk: some 80 comparisons per digit
 * Memory is linear in the number of elements. Padding of a last chunk has the greatest word and
 * indices past the axis, so it is never selected. Two-value words are gathered by index and digits
 * are scattered by index, all in range: no run fails here. */
#include "../graph/build.h"
#include "fusion_groups.h"

enum {
    TCI_SORT_RANKED = 128, /* elements that are not parted before, at most */
    TCI_SORT_FEW = 64,     /* k is this many times less: by groups of neighbours, */
    TCI_SORT_GROUP = 16,   /* this many of them */
    TCI_SORT_PART = 2,     /* this many times: by rank */
    TCI_SORT_CHUNK = 1024, /* elements whose ranks are counted, at most, */
    TCI_SORT_SHORT = 256,  /* and where no block of threads does it */
    TCI_SORT_LEAST = 64,   /* and at least, where there are more */
    TCI_SORT_KEEP = 4,     /* they are this many times k */
    TCI_SORT_BITS = 4,     /* of a digit */
    TCI_SORT_WORDS = 64,   /* of a chunk where digits are counted, which a u8 holds */
    TCI_SORT_PLACE = 31    /* bits of a position below the word in a key */
};
static const int64_t tci_sort_most = (int64_t)1 << (TCI_SORT_PLACE - 1); /* elements by keys */

/* The sort of an axis of n elements, after one of `lines`. */
typedef struct tci_sort {
    const tci_algo *a;
    tci_dim lines, n; /* n: positions given so far, those of what fills up too */
    int bits;         /* of a word */
    bool keys;        /* word and position are one value */
} tci_sort;

/* Elements of [lines, ...]: keys and NULL, or words of u64 and positions. */
typedef struct tci_sort_list {
    tci_node *words, *places;
} tci_sort_list;

/* ---- nodes ---- */

static tci_node *tci_sort_built(const tci_sort *s, tci_node *n)
{
    TCI_ASSERT(s->a->s, n != NULL);
    return n;
}

static tci_node *tci_sort_kept(const tci_sort *s, tci_node *n)
{
    tci_algo_force(s->a, n);
    return n;
}

static tci_node *tci_sort_ew(const tci_sort *s, int op, tci_node *a, tci_node *b)
{
    tci_node *in[2] = {a, b};
    return tci_sort_built(s, tci_build_ew(s->a->g, op, in));
}

static tci_node *tci_sort_number(const tci_sort *s, tc_dtype t, uint64_t v)
{
    return tci_sort_built(s, tci_graph_const(s->a->g, t, (tci_value){.u = v}));
}

static tci_node *tci_sort_by(const tci_sort *s, int op, tci_node *a, uint64_t number)
{
    return tci_sort_ew(s, op, a, tci_sort_number(s, (tc_dtype)a->dtype, number));
}

static tci_node *tci_sort_cast(const tci_sort *s, tci_node *x, tc_dtype to)
{
    return tci_sort_built(s, tci_build_cast(s->a->g, x, to));
}

static tci_node *tci_sort_where(const tci_sort *s, tci_node *c, tci_node *a, tci_node *b)
{
    return tci_sort_built(s, tci_build_where(s->a->g, c, a, b));
}

/* x as [lines, rest[0], ...]. */
static tci_node *tci_sort_shape(const tci_sort *s, tci_node *x, int n, const tci_dim *rest)
{
    tci_dim shape[4] = {s->lines, 1, 1, 1};
    for (int i = 0; i < n; i++) {
        shape[1 + i] = rest[i];
    }
    return tci_sort_built(s, tci_build_reshape(s->a->g, x, 1 + n, shape));
}
#define TCI_SORT_SHAPE(s, x, n, ...) tci_sort_shape((s), (x), (n), (const tci_dim[n]){__VA_ARGS__})

/* 0, 1, 2 ... along the last axis. */
static tci_node *tci_sort_ramp(const tci_sort *s, tci_dim n)
{
    return tci_sort_built(s, tci_build_iota(s->a->g, n));
}

/* The sum over axis 2 of four, in the dtype of x: of numbers with one that is not 0, or of ones, no
 * more than the dtype holds. */
static tci_node *tci_sort_sum(const tci_sort *s, tci_node *x)
{
    const int64_t axis = 2;
    const tci_dim shape[3] = {x->shape[0], x->shape[1], x->shape[3]};
    return tci_sort_built(s, tci_graph_node(s->a->g, TCI_OP_SUM, (tc_dtype)x->dtype, 3, shape, 1,
                                            &x, 1, &axis));
}

/* Running sums along the lines. */
static tci_node *tci_sort_scan(const tci_sort *s, tci_node *x)
{
    tci_node *scan = tci_sort_built(s, tci_build_scan(s->a->g, x, 1, false, TCI_MODE_ADD));
    tci_node *parts = tci_plan_scan(s->a, scan);
    return parts ? parts : scan;
}

/* ---- elements ---- */

/* All bits of a word: the greatest. */
static uint64_t tci_sort_ones(const tci_sort *s)
{
    return UINT64_MAX >> (64 - s->bits);
}

/* Words and their positions as elements. */
static tci_sort_list tci_sort_pack(const tci_sort *s, tci_node *words, tci_node *places)
{
    words = tci_sort_cast(s, words, TC_U64);
    if (s->keys) {
        words = tci_sort_by(s, TCI_OP_BITWISE_LEFT_SHIFT, tci_sort_cast(s, words, TC_I64),
                            TCI_SORT_PLACE);
        return (tci_sort_list){tci_sort_ew(s, TCI_OP_ADD, words, places), NULL};
    }
    places = tci_sort_built(s, tci_build_broadcast(s->a->g, places, 2, words->shape));
    return (tci_sort_list){words, places};
}

static tci_node *tci_sort_join(const tci_sort *s, tci_node *a, tci_node *b)
{
    tci_node *both[2] = {a, b};
    return tci_sort_kept(s, tci_sort_built(s, tci_build_cat(s->a->g, both, 2, 1)));
}

/* [lines, size]: after the list elements that are greater than all others. */
static tci_sort_list tci_sort_fill(tci_sort *s, tci_sort_list l, tci_dim size)
{
    tci_dim have = l.words->shape[1], more = tci_dim_sub(size, have);
    if (more != 0) {
        const tci_dim shape[2] = {s->lines, more};
        tci_node *word = tci_sort_number(s, TC_U64, tci_sort_ones(s));
        word = tci_sort_built(s, tci_build_broadcast(s->a->g, word, 2, shape));
        tci_node *places = tci_sort_ew(s, TCI_OP_ADD, tci_sort_ramp(s, more),
                                       tci_sort_built(s,
                                                      tci_build_size_value(s->a->g, s->n, TC_I64)));
        tci_sort_list tail = tci_sort_pack(s, word, places);
        l.words = tci_sort_join(s, l.words, tail.words);
        l.places = s->keys ? NULL : tci_sort_join(s, l.places, tail.places);
        s->n = tci_dim_add(s->n, more);
    }
    return l;
}

static tci_node *tci_sort_places(const tci_sort *s, tci_sort_list l)
{
    return s->keys
               ? tci_sort_by(s, TCI_OP_BITWISE_AND, l.words, ((uint64_t)1 << TCI_SORT_PLACE) - 1)
               : l.places;
}

/* ---- ranks ---- */

/* Of each element of [lines, chunks, chunk] how many of its chunk are less. */
static tci_node *tci_sort_ranks(const tci_sort *s, tci_sort_list l, tci_dim chunks, tci_dim chunk)
{
    tci_node *one = TCI_SORT_SHAPE(s, l.words, 3, chunks, 1, chunk);
    tci_node *other = TCI_SORT_SHAPE(s, l.words, 3, chunks, chunk, 1);
    tci_node *less = tci_sort_ew(s, TCI_OP_LT, other, one);
    if (!s->keys) {
        tci_node *place = TCI_SORT_SHAPE(s, l.places, 3, chunks, 1, chunk);
        tci_node *before = TCI_SORT_SHAPE(s, l.places, 3, chunks, chunk, 1);
        tci_node *tie = tci_sort_ew(s, TCI_OP_LOGICAL_AND, tci_sort_ew(s, TCI_OP_EQ, other, one),
                                    tci_sort_ew(s, TCI_OP_LT, before, place));
        less = tci_sort_ew(s, TCI_OP_LOGICAL_OR, less, tie);
    }
    return tci_sort_kept(s, tci_sort_sum(s, tci_sort_cast(s, less, TC_I64)));
}

/* Of x, [lines, chunks, chunk], the first k of each chunk in the order of ranks: one row. */
static tci_node *tci_sort_pick(const tci_sort *s, tci_node *ranks, tci_node *x, tci_dim chunks,
                               tci_dim chunk, int64_t k)
{
    tci_node *hit = tci_sort_ew(s, TCI_OP_EQ, TCI_SORT_SHAPE(s, ranks, 3, chunks, chunk, 1),
                                tci_sort_ramp(s, k));
    x = TCI_SORT_SHAPE(s, x, 3, chunks, chunk, 1);
    x = tci_sort_sum(s, tci_sort_where(s, hit, x, tci_sort_number(s, (tc_dtype)x->dtype, 0)));
    return tci_sort_kept(s, TCI_SORT_SHAPE(s, x, 1, tci_dim_mul(chunks, k)));
}

static tci_sort_list tci_sort_first(const tci_sort *s, tci_sort_list l, int64_t chunk, int64_t k)
{
    tci_dim chunks = tci_dim_div(l.words->shape[1], chunk);
    tci_node *ranks = tci_sort_ranks(s, l, chunks, chunk);
    tci_node *words = tci_sort_pick(s, ranks, l.words, chunks, chunk, k);
    tci_node *places = s->keys ? NULL : tci_sort_pick(s, ranks, l.places, chunks, chunk, k);
    return (tci_sort_list){words, places};
}

static tci_sort_list tci_sort_by_ranks(tci_sort *s, tci_sort_list l, int64_t chunk, int64_t k)
{
    int64_t n = tci_dim_known(l.words->shape[1]);
    while (n > chunk) {
        l = tci_sort_fill(s, l, (n + chunk - 1) / chunk * chunk);
        l = tci_sort_first(s, l, chunk, k);
        n = tci_dim_known(l.words->shape[1]);
    }
    return tci_sort_first(s, l, n, k);
}

/* ---- digits ---- */

/* Where the elements with these digits go. */
static tci_node *tci_sort_targets(const tci_sort *s, tci_node *digits, tci_dim chunks)
{
    const int64_t n = (int64_t)1 << TCI_SORT_BITS;
    const int turn[3] = {0, 2, 1};
    tci_graph *g = s->a->g;
    tci_node *one = TCI_SORT_SHAPE(s, digits, 3, chunks, 1, TCI_SORT_WORDS);
    tci_node *other = TCI_SORT_SHAPE(s, digits, 3, chunks, TCI_SORT_WORDS, 1);
    tci_node *each = tci_sort_cast(s, tci_sort_ramp(s, n), TC_U8);
    tci_node *counts = tci_sort_cast(s, tci_sort_ew(s, TCI_OP_EQ, other, each), TC_U8);
    counts = tci_sort_cast(s, tci_sort_sum(s, counts), TC_I64);
    counts = tci_sort_built(s, tci_build_permute(g, counts, 3, turn));
    counts = tci_sort_kept(s, TCI_SORT_SHAPE(s, counts, 1, tci_dim_mul(chunks, n)));
    tci_node *ends = tci_sort_kept(s, tci_sort_scan(s, counts));
    tci_node *begins = TCI_SORT_SHAPE(s, tci_sort_ew(s, TCI_OP_SUB, ends, counts), 2, n, chunks);
    begins = tci_sort_built(s, tci_build_permute(g, begins, 3, turn));
    tci_node *ramp = tci_sort_cast(s, tci_sort_ramp(s, TCI_SORT_WORDS), TC_U8);
    const tci_dim column[2] = {TCI_SORT_WORDS, 1};
    tci_node *down = tci_sort_built(s, tci_build_reshape(g, ramp, 2, column));
    tci_node *same = tci_sort_ew(s, TCI_OP_LOGICAL_AND, tci_sort_ew(s, TCI_OP_EQ, other, one),
                                 tci_sort_ew(s, TCI_OP_LT, down, ramp));
    tci_node *before = tci_sort_cast(s, tci_sort_sum(s, tci_sort_cast(s, same, TC_U8)), TC_I64);
    tci_node *row = TCI_SORT_SHAPE(s, digits, 2, chunks, TCI_SORT_WORDS);
    tci_node *begin = tci_sort_built(s, tci_build_gather(g, begins, 2, row));
    tci_node *to = tci_sort_ew(s, TCI_OP_ADD, begin, before);
    return tci_sort_kept(s, TCI_SORT_SHAPE(s, to, 1, tci_dim_mul(chunks, TCI_SORT_WORDS)));
}

/* The list in order: keys are moved, of two values the positions. */
static tci_sort_list tci_sort_by_digits(tci_sort *s, tci_sort_list l)
{
    const int64_t apart[3] = {1, TCI_MODE_SET, 1};
    tci_dim chunks = tci_dim_ceil_div(l.words->shape[1], TCI_SORT_WORDS);
    l = tci_sort_fill(s, l, tci_dim_mul(chunks, TCI_SORT_WORDS));
    tci_node *moved = s->keys ? l.words : l.places;
    for (int bit = 0; bit < s->bits; bit += TCI_SORT_BITS) {
        tci_node *digits = moved;
        if (!s->keys) {
            digits = tci_sort_built(s, tci_build_gather(s->a->g, l.words, 1, moved));
        }
        digits = tci_sort_by(s, TCI_OP_BITWISE_RIGHT_SHIFT, digits,
                             (uint64_t)(bit + (s->keys ? TCI_SORT_PLACE : 0)));
        digits = tci_sort_by(s, TCI_OP_BITWISE_AND, digits, ((uint64_t)1 << TCI_SORT_BITS) - 1);
        digits = tci_sort_kept(s, tci_sort_cast(s, digits, TC_U8));
        tci_node *in[3] = {moved, tci_sort_targets(s, digits, chunks), moved};
        moved = tci_sort_kept(s,
                              tci_sort_built(s, tci_graph_node(s->a->g, TCI_OP_SCATTER, TC_I64, 2,
                                                               moved->shape, 3, in, 3, apart)));
    }
    *(s->keys ? &l.words : &l.places) = moved;
    return l;
}

/* ---- both ---- */

/* The first k of the list, in order. */
static tci_sort_list tci_sort_list_first(tci_sort *s, tci_sort_list l, tci_dim k)
{
    tci_dim n = l.words->shape[1];
    bool known = tci_dim_is_known(n) && tci_dim_is_known(k);
    int64_t wanted = known ? TCI_SORT_KEEP * tci_dim_known(k) : INT64_MAX;
    int64_t chunk = TCI_SORT_LEAST;
    int64_t short_row = s->keys ? TCI_SORT_SHORT : TCI_SORT_SHORT / 2;
    int64_t most = s->a->machine.block_threads > 0 ? TCI_SORT_CHUNK : short_row;
    while (chunk < wanted && chunk < most) {
        chunk *= 2;
    }
    if (known && (wanted <= chunk || tci_dim_le(n, most))) {
        return tci_sort_by_ranks(s, l, chunk, tci_dim_known(k));
    }
    l = tci_sort_by_digits(s, l);
    tci_node **moved = s->keys ? &l.words : &l.places;
    *moved = tci_sort_built(s, tci_build_slice(s->a->g, *moved, 1, 0, k, 1));
    return l;
}

/* ---- what is left before that: positions in their order, and words there ---- */

/* Reads x at positions, [lines, ...]. */
static tci_node *tci_sort_read(const tci_sort *s, tci_node *x, tci_node *places)
{
    return tci_sort_built(s, tci_build_gather(s->a->g, x, 1, places));
}

/* The positions of those of the first k ranks. */
static tci_node *tci_sort_selected(const tci_sort *s, tci_node *words, int64_t k)
{
    tci_node *rank = tci_sort_number(s, TC_I64, (uint64_t)k - 1);
    tci_node *all = tci_build_until_rank(s->a->g, words, 1, rank, NULL);
    all = tci_sort_built(s, tci_build_true_first(s->a->g, tci_sort_built(s, all), 1));
    return tci_sort_built(s, tci_build_slice(s->a->g, tci_sort_kept(s, all), 1, 0, k, 1));
}

/* The k groups of neighbours with the least words have the first k elements: their positions, some
 * after the axis, and *words there. */
static tci_node *tci_sort_grouped(const tci_sort *s, tci_node **words, int64_t k)
{
    tci_graph *g = s->a->g;
    const int64_t axis = 2, n = tci_dim_known((*words)->shape[1]);
    const int64_t groups = (n + TCI_SORT_GROUP - 1) / TCI_SORT_GROUP;
    const tci_dim shape[2] = {s->lines, groups}, each[3] = {s->lines, k, TCI_SORT_GROUP};
    tci_node *last = tci_sort_number(s, (tc_dtype)(*words)->dtype, tci_sort_ones(s));
    tci_node *all = tci_sort_built(s, tci_build_pad(g, *words, 1, 0, groups * TCI_SORT_GROUP - n,
                                                    last));
    all = TCI_SORT_SHAPE(s, all, 2, groups, TCI_SORT_GROUP);
    tci_node *least = tci_sort_built(s, tci_graph_node(g, TCI_OP_MIN, (tc_dtype)all->dtype, 2,
                                                       shape, 1, &all, 1, &axis));
    tci_node *top = tci_sort_selected(s, tci_sort_kept(s, least), k);
    top = TCI_SORT_SHAPE(s, top, 2, k, 1);
    tci_node *rows = tci_sort_built(s, tci_build_broadcast(g, top, 3, each));
    *words = TCI_SORT_SHAPE(s, tci_sort_read(s, all, rows), 1, k * TCI_SORT_GROUP);
    tci_sort_kept(s, *words);
    top = tci_sort_ew(s, TCI_OP_ADD, tci_sort_by(s, TCI_OP_MUL, top, TCI_SORT_GROUP),
                      tci_sort_ramp(s, TCI_SORT_GROUP));
    return TCI_SORT_SHAPE(s, top, 1, k * TCI_SORT_GROUP);
}

static tci_node *tci_sort_least(const tci_sort *s, tci_node *words)
{
    const int64_t axis = 1;
    const tci_dim shape[1] = {s->lines};
    tci_node *r = tci_sort_built(s, tci_graph_node(s->a->g, TCI_OP_ARGMIN, TC_I64, 1, shape, 1,
                                                   &words, 1, &axis));
    return TCI_SORT_SHAPE(s, r, 1, 1);
}

/* The positions of what the first k of *words are among, which it is then; NULL: of all of them. */
static tci_node *tci_sort_left(const tci_sort *s, tci_node **words, int64_t k)
{
    tci_node *places = NULL;
    if (k > 0 && tci_dim_known((*words)->shape[1]) / k >= TCI_SORT_FEW) {
        places = tci_sort_grouped(s, words, k);
    }
    const int64_t n = tci_dim_known((*words)->shape[1]);
    if (k > 0 && n > TCI_SORT_RANKED && n / k >= TCI_SORT_PART) {
        tci_node *own = tci_sort_selected(s, *words, k);
        places = places ? tci_sort_read(s, places, own) : own;
        *words = tci_sort_read(s, *words, own);
    }
    return places;
}

/* Positions of the first k of words [lines, ...]. */
static tci_node *tci_sort_first_places(tci_sort *s, tci_node *words, tci_dim k)
{
    tci_node *places = NULL;
    if (s->a->machine.block_threads == 0 && tci_dim_is_known(s->n) && tci_dim_is_known(k)) {
        if (k == 1) {
            return tci_sort_least(s, words);
        }
        if (!tci_dim_le(s->n, TCI_SORT_RANKED)) {
            places = tci_sort_left(s, &words, tci_dim_known(k));
        }
    }
    s->n = words->shape[1];
    tci_sort_list l = tci_sort_pack(s, words, tci_sort_ramp(s, s->n));
    tci_sort_kept(s, l.words);
    tci_node *r = tci_sort_places(s, tci_sort_list_first(s, l, k));
    return places ? tci_sort_read(s, places, r) : r;
}

/* ---- the node ---- */

/* The axes of x with `axis` the last; back: where they were. */
static tci_node *tci_sort_turned(const tci_sort *s, tci_node *x, int axis, bool back)
{
    int *order = TCI_NEW_ARRAY(s->a->s, int, x->rank);
    for (int i = 0; i < x->rank; i++) {
        int from = i < axis ? i : i == x->rank - 1 ? axis : i + 1;
        order[back ? from : i] = back ? i : from;
    }
    return tci_sort_built(s, tci_build_permute(s->a->g, x, x->rank, order));
}

TCI_FN tci_node *tci_plan_topk(const tci_algo *a, tci_node *n)
{
    tci_node *x = n->in[0];
    int axis = (int)n->attr[0], last = n->rank - 1;
    tci_sort s = {.a = a, .lines = 1, .n = x->shape[axis]};
    s.bits = 8 * tci_dtype_get((tc_dtype)x->dtype)->bytes;
    s.keys = s.bits <= 32 && tci_dim_le(s.n, tci_sort_most);
    for (int i = 0; i < x->rank; i++) {
        s.lines = i == axis ? s.lines : tci_dim_mul(s.lines, x->shape[i]);
    }
    x = tci_sort_turned(&s, x, axis, false);
    tci_dim *shape = tci_scratch_copy(a->s, x->shape, sizeof(*shape) * (size_t)x->rank);
    shape[last] = n->shape[axis];
    tci_node *words = tci_build_order_words(a->g, TCI_SORT_SHAPE(&s, x, 1, s.n), n->attr[1] != 0);
    if (axis != last && a->machine.block_threads == 0) {
        tci_sort_kept(&s, words); /* lines are read often, and are contiguous then */
    }
    tci_node *r = tci_sort_first_places(&s, tci_sort_built(&s, words), n->shape[axis]);
    return tci_sort_turned(&s, tci_sort_built(&s, tci_build_reshape(a->g, r, n->rank, shape)), axis,
                           true);
}
