/* graph/build.c - node constructors with shape inference and dtype promotion.
 *
 * In: nodes and attributes as a user gives them (negative axes, one -1 in a shape, mixed dtypes,
 * shapes that broadcast). Out: nodes as graph/node.h describes them, with every implied CAST,
 * RESHAPE and EXPAND made explicit; or NULL with g->error and g->message.
 *
 * Design: nothing is implicit in the graph. No later pass knows about broadcasting or promotion.
 *
 * This file has the checks, the dtype rules, elementwise ops and reductions. Movement ops are in
 * graph/movement.c, contractions (matmul, einsum) in graph/einsum.c, composites in ops/composite.c.
 * Identities that are free to detect (a reshape to the same shape) return their input; all others
 * are left to rewrite/. */
#include "build.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef enum tci_build_rule {
    TCI_BUILD_SAME,
    TCI_BUILD_FLOAT,
    TCI_BUILD_COMPARE,
    TCI_BUILD_LOGIC,
    TCI_BUILD_NUMERIC,
    TCI_BUILD_INTEGER,
    TCI_BUILD_WORD
} tci_build_rule;

typedef struct tci_build_row {
    uint8_t arity, rule;
} tci_build_row;

static const tci_build_row tci_build_rows[] = {
#define TCI_ROW(id, name, arity, rule, cost, value, gradient, doc) {arity, TCI_BUILD_##rule},
    TCI_EW_OPS(TCI_ROW)
#undef TCI_ROW
};

typedef enum tci_build_over {
    TCI_BUILD_OVER_SAME,
    TCI_BUILD_OVER_SUM,
    TCI_BUILD_OVER_BOOL,
    TCI_BUILD_OVER_FLOAT,
    TCI_BUILD_OVER_INDEX
} tci_build_over;

/* The rule of each reduction. */
static const uint8_t tci_build_overs[] = {
#define TCI_ROW(id, name, rule, combine, part, gradient, doc) TCI_BUILD_OVER_##rule,
    TCI_REDUCE_OPS(TCI_ROW)
#undef TCI_ROW
};

/* ---- working memory, texts ---- */

enum { TCI_WORDS_ITEM = sizeof(int64_t) }; /* what an item takes, whatever its type */

_Static_assert(sizeof(tci_node *) <= TCI_WORDS_ITEM, "a list of pointers fits");

static void *tci_words_take(tci_graph *g, tci_words *w, int n)
{
    w->n = n;
    w->items = &w->own;
    if (n > TCI_COUNT(w->own.words)) {
        w->items = tci_graph_resize(g, NULL, 0, (size_t)n * TCI_WORDS_ITEM);
    }
    if (w->items && n > 0) {
        memset(w->items, 0, (size_t)n * TCI_WORDS_ITEM);
    }
    return w->items;
}

TCI_FN int64_t *tci_words_get(tci_graph *g, tci_words *w, int n)
{
    return tci_words_take(g, w, n);
}

TCI_FN tci_dim *tci_words_dims(tci_graph *g, tci_words *w, int n)
{
    return tci_words_take(g, w, n);
}

TCI_FN int *tci_words_ints(tci_graph *g, tci_words *w, int n)
{
    return tci_words_take(g, w, n);
}

TCI_FN bool *tci_words_flags(tci_graph *g, tci_words *w, int n)
{
    return tci_words_take(g, w, n);
}

TCI_FN tci_node **tci_words_nodes(tci_graph *g, tci_words *w, int n)
{
    return tci_words_take(g, w, n);
}

TCI_FN tci_node *tci_words_put(tci_graph *g, tci_words *w, tci_node *result)
{
    if (w->items && w->items != (void *)&w->own) {
        tci_graph_resize(g, w->items, (size_t)w->n * TCI_WORDS_ITEM, 0);
    }
    return result;
}

TCI_FN void tci_graph_print_shape(char *text, size_t room, int rank, const tci_dim *shape)
{
    size_t n = 0;
    int i = 0;
    text[n++] = '[';
    for (; i < rank && n + 28 < room; i++) {
        n += (size_t)snprintf(text + n, room - n, "%s%s", i ? ", " : "", TCI_DIM_TEXT(shape[i]));
        n = TCI_MIN(n, room - 8); /* a long expression is cut off */
    }
    snprintf(text + n, room - n, "%s]", i < rank ? ", ..." : "");
}

TCI_FN tci_shape_text tci_shape_text_of(int rank, const tci_dim *shape)
{
    tci_shape_text t;
    tci_graph_print_shape(t.text, sizeof(t.text), rank, shape);
    return t;
}

TCI_FN tci_made_text tci_build_made(const tci_node *n, const char *name)
{
    enum { TCI_BUILD_PATH = 160 }; /* of a longer path its end is told */
    tci_made_text t;
    const char *file = n->site.file;
    size_t length = file ? strlen(file) : 0;
    bool cut = length > TCI_BUILD_PATH;
    if (file) {
        snprintf(t.text, sizeof(t.text), "%.40s (made at %s%s:%d)", name, cut ? "..." : "",
                 cut ? file + length - TCI_BUILD_PATH : file, n->site.line);
    } else {
        snprintf(t.text, sizeof(t.text), "%.40s", name);
    }
    return t;
}

/* ---- checks ---- */

TCI_FN bool tci_build_axis(tci_graph *g, int axis, int rank, int *out)
{
    int n = rank ? rank : 1;
    if (axis < -n || axis >= n) {
        tci_graph_fail(g, TC_ERR_AXIS, "axis %d is out of range for rank %d: allowed are %d to %d",
                       axis, rank, -n, n - 1);
        return false;
    }
    *out = axis < 0 ? axis + n : axis;
    return true;
}

TCI_FN bool tci_build_check_dim(tci_graph *g, const char *what, tci_dim d, tc_status why)
{
    if (tci_dim_is_valid(d) && !(tci_dim_is_known(d) && tci_dim_is_stray(tci_dim_known(d)))) {
        return true;
    }
    tc_status status = tci_dim_fault_status(tci_dim_fault(d));
    tci_graph_fail(g, status == TC_ERR_ARGUMENT ? why : status, "%s is %s", what,
                   tci_dim_fault_text(tci_dim_fault(d)));
    return false;
}

static bool tci_build_check_size(tci_graph *g, int axis, int rank, const tci_dim *shape)
{
    char what[40];
    snprintf(what, sizeof(what), "the size of axis %d", axis);
    if (!tci_build_check_dim(g, what, shape[axis], TC_ERR_SHAPE)) {
        return false;
    }
    if (tci_dim_is_known(shape[axis]) && tci_dtype_is_valid(tci_dim_known(shape[axis]))) {
        /* dtypes are negative numbers */
        tci_graph_fail(
            g, TC_ERR_SHAPE,
            "the size of axis %d is given as the dtype %s: expected a number of elements", axis,
            tci_dtype_get((tc_dtype)tci_dim_known(shape[axis]))->name);
        return false;
    }
    if (!tci_dim_le(0, shape[axis])) {
        tci_graph_fail(g, TC_ERR_SHAPE, "size %s of axis %d %s negative in shape %s%s",
                       TCI_DIM_TEXT(shape[axis]), axis,
                       tci_dim_is_known(shape[axis]) ? "is" : "may be",
                       tci_shape_text_of(rank, shape).text, TCI_LEAST_NOTE(shape[axis], 0));
        return false;
    }
    return true;
}

/* The number of elements, the bytes and the strides of a shape are sizes too. */
static bool tci_build_check_count(tci_graph *g, int rank, const tci_dim *shape, tc_dtype dtype)
{
    tci_dim count = tci_dtype_get(dtype)->bytes;
    for (int i = rank - 1; i >= 0; i--) {
        count = tci_dim_mul(count, shape[i]);
        if (!tci_dim_is_valid(count)) {
            char what[160];
            snprintf(what, sizeof(what), "the number of elements of shape %s",
                     tci_shape_text_of(rank, shape).text);
            return tci_build_check_dim(g, what, count, TC_ERR_SHAPE);
        }
    }
    return true;
}

/* Zero sizes are left out of the product: then no stride computed from the shape overflows either.
 * Of a symbolic size counts the most that it may be. */
TCI_FN bool tci_build_check_shape(tci_graph *g, int rank, const tci_dim *shape, tc_dtype dtype)
{
    int64_t limit = INT64_MAX / TCI_MAX(tci_dtype_get(dtype)->bytes, 8);
    int64_t count = 1;
    for (int i = 0; i < rank; i++) {
        if (!tci_build_check_size(g, i, rank, shape)) {
            return false;
        }
        int64_t size = TCI_MAX(tci_dim_most(shape[i]), 1);
        if (count > limit / size) {
            tci_graph_fail(g, TC_ERR_LIMIT, "shape %s %s more elements than memory can address",
                           tci_shape_text_of(rank, shape).text,
                           tci_build_is_known(rank, shape) ? "has" : "may have");
            return false;
        }
        count *= size;
    }
    return tci_build_is_known(rank, shape) || tci_build_check_count(g, rank, shape, dtype);
}

TCI_FN bool tci_build_is_known(int rank, const tci_dim *shape)
{
    for (int i = 0; i < rank; i++) {
        if (!tci_dim_is_known(shape[i])) {
            return false;
        }
    }
    return true;
}

#ifdef TC_DYNAMIC_SHAPES
/* The only symbol of both; false: there is another or none. */
static bool tci_build_lone_symbol(tci_dim a, tci_dim b, tci_dim *symbol)
{
    int n = 0;
    return tci_dim_symbols(a, symbol, &n, 1) && tci_dim_symbols(b, symbol, &n, 1) && n == 1;
}

/* The least lower bound of `symbol`, above its own, at which the rule holds; -1: none. */
static int64_t tci_build_helps(tci_dim symbol, tci_dim a, tci_dim b, bool (*rule)(tci_dim, tci_dim))
{
    const char *name = tci_dim_name(symbol);
    int64_t least = tci_dim_least(symbol), most = tci_dim_most(symbol);
    for (int64_t value = least + 1; value < most && value - least < 4096; value++) {
        tci_dim there = value;
        if (rule(tci_dim_replace(a, 1, &symbol, &there), tci_dim_replace(b, 1, &symbol, &there))) {
            tci_dim from_there = tci_dim_symbol(name, -1, value, most);
            bool holds = rule(tci_dim_replace(a, 1, &symbol, &from_there),
                              tci_dim_replace(b, 1, &symbol, &from_there));
            if (holds) {
                return value;
            }
        }
    }
    return -1;
}

static bool tci_build_is_same(tci_dim a, tci_dim b)
{
    return a == b;
}

/* Two declarations of one name, the likely mistake, are told apart by their ranges. */
TCI_FN tci_shape_text tci_build_unequal_note(tci_dim a, tci_dim b)
{
    tci_shape_text t = {""};
    const char *name = tci_dim_name(a);
    tci_dim symbol;
    if (tci_dim_is_known(a) && tci_dim_is_known(b)) {
        return t;
    }
    int64_t helps = -1;
    bool compares = tci_dim_is_valid(a) && tci_dim_is_valid(b) && !tci_dim_is_known(a) &&
                    !tci_dim_is_known(b);
    if (compares && tci_build_lone_symbol(a, b, &symbol)) {
        helps = tci_build_helps(symbol, a, b, tci_build_is_same);
    }
    if (helps >= 0) {
        snprintf(t.text, sizeof(t.text), " (equal with TC_DIM(\"%.40s\", %" PRId64 ", ...))",
                 tci_dim_name(symbol), helps);
    } else if (name[0] && strcmp(name, tci_dim_name(b)) == 0) {
        snprintf(t.text, sizeof(t.text),
                 " (%.40s is declared as %" PRId64 "..%" PRId64 " and as %" PRId64 "..%" PRId64 ")",
                 name, tci_dim_least(a), tci_dim_most(a), tci_dim_least(b), tci_dim_most(b));
    } else {
        snprintf(t.text, sizeof(t.text), " (a symbolic size is equal only to itself)");
    }
    return t;
}

/* Hint that makes `size` at least `needed`: a range for the symbol on which it depends. */
TCI_FN tci_shape_text tci_build_least_note(tci_dim size, int64_t needed)
{
    tci_shape_text t = {""};
    tci_dim symbol;
    bool lone = !tci_dim_is_known(size) && tci_build_lone_symbol(size, size, &symbol);
    int64_t helps = lone ? tci_build_helps(symbol, needed, size, tci_dim_le) : -1;
    if (helps >= 0) {
        snprintf(t.text, sizeof(t.text), ": declare TC_DIM(\"%.40s\", %" PRId64 ", ...)",
                 tci_dim_name(symbol), helps);
    }
    return t;
}
#endif

TCI_FN tci_node *tci_build_node(tci_graph *g, int op, tc_dtype dtype, int rank,
                                const tci_dim *shape, int n_in, tci_node *const *in, int n_attr,
                                const int64_t *attr)
{
    if (!tci_build_check_shape(g, rank, shape, dtype)) {
        return NULL;
    }
    return tci_graph_node(g, op, dtype, rank, shape, n_in, in, n_attr, attr);
}

TCI_FN bool tci_build_same_shape(int rank_a, const tci_dim *a, int rank_b, const tci_dim *b)
{
    return rank_a == rank_b && (!rank_a || !memcmp(a, b, (size_t)rank_a * sizeof(*a)));
}

/* ---- dtypes ---- */

static int tci_build_kind(tc_dtype t)
{
    return tci_dtype_is_float(t) ? 2 : t == TC_BOOL ? 0 : 1;
}

static tc_dtype tci_build_all_meet(const tci_graph *g, tci_node *const *operands, int n)
{
    tc_dtype t = (tc_dtype)operands[0]->dtype;
    for (int i = 1; i < n; i++) {
        t = tci_dtype_promote(g->promotion, t, (tc_dtype)operands[i]->dtype);
    }
    return t;
}

TCI_FN tc_dtype tci_build_common_dtype(const tci_graph *g, tci_node *const *operands, int n)
{
    if (g->promotion == TC_NUMPY) {
        return tci_build_all_meet(g, operands, n);
    }

    tc_dtype sized = TC_DTYPE_COUNT, scalar = TC_DTYPE_COUNT;
    for (int i = 0; i < n; i++) {
        tc_dtype *to = operands[i]->rank ? &sized : &scalar;
        tc_dtype t = (tc_dtype)operands[i]->dtype;
        *to = *to == TC_DTYPE_COUNT ? t : tci_dtype_promote(TC_TORCH, *to, t);
    }
    if (sized == TC_DTYPE_COUNT || scalar == TC_DTYPE_COUNT) {
        return sized == TC_DTYPE_COUNT ? scalar : sized;
    }
    return tci_build_kind(sized) >= tci_build_kind(scalar)
               ? sized
               : tci_dtype_promote(TC_TORCH, sized, scalar);
}

/* Ops whose operands NumPy has in another dtype than others of their rule. */
static tc_dtype tci_build_numpy_operands(int op, tc_dtype common)
{
    switch (op) {
    case TCI_OP_DIV:
    case TCI_OP_RECIPROCAL:
    case TCI_OP_SINC: return tci_dtype_real(TC_NUMPY, common);
    case TCI_OP_HEAVISIDE: return tci_dtype_function(TC_NUMPY, common);
    case TCI_OP_SQUARE:
    case TCI_OP_POW:
    case TCI_OP_REMAINDER:
    case TCI_OP_FLOOR_DIVIDE:
    case TCI_OP_FMOD:
    case TCI_OP_BITWISE_LEFT_SHIFT:
    case TCI_OP_BITWISE_RIGHT_SHIFT: return common == TC_BOOL ? TC_I8 : common;
    default: return common;
    }
}

TCI_FN void tci_build_ew_dtypes(tc_promotion how, int op, tc_dtype common, tc_dtype *operands,
                                tc_dtype *result)
{
    int rule = tci_build_rows[op].rule;
    common = how == TC_NUMPY ? tci_build_numpy_operands(op, common) : common;
    *operands = rule == TCI_BUILD_FLOAT   ? tci_dtype_function(how, common)
                : rule == TCI_BUILD_LOGIC ? TC_BOOL
                                          : common;
    *result = rule == TCI_BUILD_COMPARE || rule == TCI_BUILD_LOGIC ? TC_BOOL : *operands;
}

/* NumPy's float functions of integers: the widest float that one of the operands has by its own
 * width, as hypot of u8 and i8 is f16, though both meet in i16. TC_BOOL: an operand is a float. */
static tc_dtype tci_build_numpy_widest(tci_node *const *operands, int n)
{
    tc_dtype widest = TC_BOOL;
    for (int i = 0; i < n; i++) {
        tc_dtype t = (tc_dtype)operands[i]->dtype, own = tci_dtype_function(TC_NUMPY, t);
        if (tci_dtype_is_float(t)) {
            return TC_BOOL;
        }
        widest = i ? tci_dtype_promote(TC_NUMPY, widest, own) : own;
    }
    return widest;
}

/* The dtype in which the operands of an elementwise op meet. NumPy's exponents of ldexp, which are
 * integers, do not count. */
static tc_dtype tci_build_ew_common(const tci_graph *g, int op, tci_node *const *operands, int n)
{
    bool by_width = g->promotion == TC_NUMPY && n > 1 && op != TCI_OP_LDEXP && op != TCI_OP_DIV &&
                    (tci_build_rows[op].rule == TCI_BUILD_FLOAT || op == TCI_OP_HEAVISIDE);
    tc_dtype widest = by_width ? tci_build_numpy_widest(operands, n) : TC_BOOL;
    if (widest != TC_BOOL) {
        return widest;
    }
    bool only_first = g->promotion == TC_NUMPY && op == TCI_OP_LDEXP &&
                      !tci_dtype_is_float((tc_dtype)operands[1]->dtype);
    return tci_build_common_dtype(g, operands, only_first ? 1 : n);
}

static bool tci_build_check_dtype(tci_graph *g, tc_dtype t)
{
    if (!tci_dtype_is_valid(t)) {
        tci_graph_fail(g, TC_ERR_DTYPE, "%d is not a dtype", (int)t);
    }
    return tci_dtype_is_valid(t);
}

TCI_FN tci_node *tci_build_cast(tci_graph *g, tci_node *x, tc_dtype to)
{
    if (!x || !tci_build_check_dtype(g, to)) {
        return NULL;
    }
    if (x->dtype == to) {
        return x;
    }
    if (x->op == TCI_OP_CONST) {
        return tci_graph_const(g, to, tci_value_cast(x->value, (tc_dtype)x->dtype, to));
    }
    return tci_graph_node(g, TCI_OP_CAST, to, x->rank, x->shape, 1, &x, 0, NULL);
}

TCI_FN tci_node *tci_build_real(tci_graph *g, tci_node *x)
{
    return x ? tci_build_cast(g, x, tci_dtype_real(g->promotion, (tc_dtype)x->dtype)) : NULL;
}

TCI_FN tci_node *tci_build_bitcast(tci_graph *g, tci_node *x, tc_dtype to)
{
    if (!x || !tci_build_check_dtype(g, to)) {
        return NULL;
    }
    const tci_dtype_info *from = tci_dtype_get((tc_dtype)x->dtype), *info = tci_dtype_get(to);
    if (from->bytes != info->bytes || x->dtype == TC_BOOL || to == TC_BOOL) {
        tci_graph_fail(g, TC_ERR_DTYPE,
                       "the bits of %s (%d bytes) are none of %s (%d bytes): expected dtypes of "
                       "one size, neither of them bool (tc_cast converts values)",
                       from->name, from->bytes, info->name, info->bytes);
        return NULL;
    }
    if (x->dtype == to) {
        return x;
    }
    return tci_graph_node(g, TCI_OP_BITCAST, to, x->rank, x->shape, 1, &x, 0, NULL);
}

/* ---- elementwise ---- */

/* Merges x's shape into the broadcast shape (right-aligned, `rank` axes, 1 where nothing is known
 * yet). */
static bool tci_build_merge(tci_graph *g, int rank, tci_dim *shape, const tci_node *x,
                            const tci_node *first)
{
    for (int i = 0; i < x->rank; i++) {
        tci_dim *have = &shape[rank - x->rank + i];
        tci_dim size = x->shape[i];
        if (*have != size && *have != 1 && size != 1) {
            tci_graph_fail(g, TC_ERR_SHAPE,
                           "shapes %s and %s do not broadcast: axis %d is %s against %s%s",
                           TCI_SHAPE_TEXT(first), TCI_SHAPE_TEXT(x), rank - x->rank + i,
                           TCI_DIM_TEXT(*have), TCI_DIM_TEXT(size), TCI_UNEQUAL_NOTE(*have, size));
            return false;
        }
        *have = *have == 1 ? size : *have;
    }
    return true;
}

TCI_FN tci_node *tci_build_broadcast(tci_graph *g, tci_node *x, int rank, const tci_dim *shape)
{
    if (!x || tci_build_same_shape(x->rank, x->shape, rank, shape)) {
        return x;
    }
    if (x->rank < rank) {
        tci_words w;
        tci_dim *ones = tci_words_dims(g, &w, rank);
        if (!ones) {
            return NULL;
        }
        for (int i = 0; i < rank; i++) {
            int from = i - (rank - x->rank);
            ones[i] = from < 0 ? 1 : x->shape[from];
        }
        x = tci_words_put(g, &w,
                          tci_graph_node(g, TCI_OP_RESHAPE, (tc_dtype)x->dtype, rank, ones, 1, &x,
                                         0, NULL));
        if (!x || tci_build_same_shape(x->rank, x->shape, rank, shape)) {
            return x;
        }
    }
    return tci_build_node(g, TCI_OP_EXPAND, (tc_dtype)x->dtype, rank, shape, 1, &x, 0, NULL);
}

/* The broadcast node of `op` over n operands that already have their dtypes. */
static tci_node *tci_build_aligned(tci_graph *g, int op, tc_dtype dtype, int n,
                                   tci_node *const *operands)
{
    tci_node *in[3];
    const tci_node *first = operands[0];
    tci_words w;
    int rank = 0;
    for (int i = 0; i < n; i++) {
        rank = TCI_MAX(rank, operands[i]->rank);
        first = operands[i]->rank > first->rank ? operands[i] : first;
    }
    tci_dim *shape = tci_words_dims(g, &w, rank);
    if (!shape) {
        return NULL;
    }
    for (int i = 0; i < rank; i++) {
        shape[i] = 1;
    }
    for (int i = 0; i < n; i++) {
        const tci_node *against = i == 1 ? operands[0] : first;
        if (!tci_build_merge(g, rank, shape, operands[i], against)) {
            return tci_words_put(g, &w, NULL);
        }
    }
    for (int i = 0; i < n; i++) {
        in[i] = tci_build_broadcast(g, operands[i], rank, shape);
        if (!in[i]) {
            return tci_words_put(g, &w, NULL);
        }
    }
    return tci_words_put(g, &w, tci_graph_node(g, op, dtype, rank, shape, n, in, 0, NULL));
}

/* Rounding an integer to an integer, and powers that are exact in other words. NULL: no such case.
 */
static tci_node *tci_build_ew_special(tci_graph *g, int op, tc_dtype operands, tci_node *const *in)
{
    bool is_float = tci_dtype_is_float(operands);
    if (!is_float &&
        (op == TCI_OP_FLOOR || op == TCI_OP_CEIL || op == TCI_OP_TRUNC || op == TCI_OP_ROUND)) {
        return in[0];
    }
    if (op != TCI_OP_POW || in[1]->op != TCI_OP_CONST) {
        return NULL;
    }
    double power = is_float ? in[1]->value.f : (double)in[1]->value.i;
    if (power == 2.0) {
        return tci_build_aligned(g, TCI_OP_SQUARE, operands, 1, in);
    }
    if (power == -1.0 && is_float) {
        return tci_build_aligned(g, TCI_OP_RECIPROCAL, operands, 1, in);
    }
    return power == 1.0 ? in[0] : NULL;
}

/* Of operands of dtype `common`: bool or floats where the rule has none. */
static bool tci_build_ew_takes(tci_graph *g, int op, tc_dtype common)
{
    int rule = tci_build_rows[op].rule;
    bool no_bool = rule == TCI_BUILD_NUMERIC || rule == TCI_BUILD_WORD;
    bool no_float = rule == TCI_BUILD_INTEGER || rule == TCI_BUILD_WORD;
    const char *given = common == TC_BOOL && no_bool             ? "bool"
                        : tci_dtype_is_float(common) && no_float ? tci_dtype_get(common)->name
                                                                 : NULL;
    if (given) {
        tci_graph_fail(g, TC_ERR_DTYPE, "%s has no %s: given %s, expected %s (tc_cast makes them)",
                       given, tci_op_name(op), given,
                       !no_float ? "integers or floats"
                       : no_bool ? "integers"
                                 : "integers or bool");
    }
    return !given;
}

/* u64 and a signed dtype meet in f64, which does not hold them; integers are compared as integers.
 * A negative number is less than all that are unsigned, others are compared as u64. */
static bool tci_build_is_mixed(int op, tci_node *const *operands)
{
    if (tci_build_rows[op].rule != TCI_BUILD_COMPARE || tci_build_rows[op].arity != 2) {
        return false;
    }
    tc_dtype a = (tc_dtype)operands[0]->dtype, b = (tc_dtype)operands[1]->dtype;
    tc_dtype other = a == TC_U64 ? b : a;
    return (a == TC_U64 || b == TC_U64) && tci_dtype_is_int(other) && tci_dtype_is_signed(other);
}

static tci_node *tci_build_compare_mixed(tci_graph *g, int op, tci_node *const *operands)
{
    const int at = operands[0]->dtype == TC_U64; /* which is signed */
    tci_node *in[2] = {operands[0], operands[1]};
    tci_node *sign[2] = {operands[at],
                         tci_graph_const(g, (tc_dtype)operands[at]->dtype, (tci_value){.i = 0})};
    bool less = op == TCI_OP_LT || op == TCI_OP_LE, more = op == TCI_OP_GT || op == TCI_OP_GE;
    bool negative = op == TCI_OP_NE || (at == 0 ? less : more); /* the result where it is */
    in[at] = tci_build_cast(g, in[at], TC_U64);
    tci_node *result = in[at] ? tci_build_aligned(g, op, TC_BOOL, 2, in) : NULL;
    return tci_build_where(g, sign[1] ? tci_build_ew(g, TCI_OP_LT, sign) : NULL,
                           tci_graph_const(g, TC_BOOL, (tci_value){.i = negative}), result);
}

TCI_FN tci_node *tci_build_ew(tci_graph *g, int op, tci_node *const *operands)
{
    int n = tci_build_rows[op].arity;
    tci_node *in[3];
    for (int i = 0; i < n; i++) {
        if (!operands[i]) {
            return NULL;
        }
    }
    if (tci_build_is_mixed(op, operands)) {
        return tci_build_compare_mixed(g, op, operands);
    }
    tc_dtype dtype, result;
    tc_dtype common = tci_build_ew_common(g, op, operands, n);
    tci_build_ew_dtypes(g->promotion, op, common, &dtype, &result);
    if (!tci_build_ew_takes(g, op, dtype)) {
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        in[i] = tci_build_cast(g, operands[i], dtype);
        if (!in[i]) {
            return NULL;
        }
    }
    tci_node *special = tci_build_ew_special(g, op, dtype, in);
    return special ? special : tci_build_aligned(g, op, result, n, in);
}

TCI_FN tci_node *tci_build_where(tci_graph *g, tci_node *c, tci_node *a, tci_node *b)
{
    if (!c || !a || !b) {
        return NULL;
    }
    tci_node *values[2] = {a, b};
    tc_dtype dtype = tci_build_common_dtype(g, values, 2);
    tci_node *in[3] = {tci_build_cast(g, c, TC_BOOL), tci_build_cast(g, a, dtype),
                       tci_build_cast(g, b, dtype)};
    if (!in[0] || !in[1] || !in[2]) {
        return NULL;
    }
    return tci_build_aligned(g, TCI_OP_WHERE, dtype, 3, in);
}

/* ---- reductions and scans ---- */

/* Marks the chosen axes in picked[rank]; the count of them, or -1. */
static int tci_build_pick_axes(tci_graph *g, const tci_node *x, tc_axes axes, int64_t *picked)
{
    int n = 0;
    if (axes.all) {
        for (int i = 0; i < x->rank; i++) {
            picked[i] = 1;
        }
        return x->rank;
    }
    for (int i = 0; i < axes.n; i++) {
        int axis;
        if (!tci_build_axis(g, axes.items[i], x->rank, &axis)) {
            return -1;
        }
        if (i && !x->rank) {
            tci_graph_fail(g, TC_ERR_AXIS, "axis %d is given twice", axes.items[i]);
            return -1;
        }
        if (x->rank && picked[axis]) {
            tci_graph_fail(g, TC_ERR_AXIS, "axis %d is given twice (as %d)", axis, axes.items[i]);
            return -1;
        }
        if (x->rank) {
            picked[axis] = 1;
            n++;
        }
    }
    return n;
}

/* The node of a reducing op: drops the picked axes; attributes are those axes, ascending. */
static tci_node *tci_build_drop_axes(tci_graph *g, int op, tc_dtype dtype, tci_node *x,
                                     const int64_t *picked, int n_picked)
{
    tci_words w;
    int64_t *dropped = tci_words_get(g, &w, x->rank);
    if (!dropped) {
        return NULL;
    }
    tci_dim *kept = (tci_dim *)(dropped + n_picked);
    int n_kept = 0, n_dropped = 0;
    for (int i = 0; i < x->rank; i++) {
        if (picked[i]) {
            dropped[n_dropped++] = i;
        } else {
            kept[n_kept++] = x->shape[i];
        }
    }
    return tci_words_put(g, &w,
                         tci_build_node(g, op, dtype, n_kept, kept, 1, &x, n_dropped, dropped));
}

static tci_node *tci_build_keepdims(tci_graph *g, tci_node *r, const tci_node *x,
                                    const int64_t *picked)
{
    tci_words w;
    tci_dim *shape = tci_words_dims(g, &w, x->rank);
    if (!shape) {
        return NULL;
    }
    for (int i = 0; i < x->rank; i++) {
        shape[i] = picked[i] ? 1 : x->shape[i];
    }
    return tci_words_put(g, &w, tci_build_reshape(g, r, x->rank, shape));
}

/* max, min, argmax and argmin have no value over nothing. */
static bool tci_build_has_identity(tci_graph *g, int op, const tci_node *x, const int64_t *picked)
{
    tci_dim results = 1;
    int empty = -1;
    for (int i = 0; i < x->rank; i++) {
        if (!picked[i]) {
            results = tci_dim_mul(results, x->shape[i]);
        } else if (!tci_dim_le(1, x->shape[i])) {
            empty = i;
        }
    }
    /* Results that are a multiple of the size are none where the size is 0. */
    if (empty < 0 || results == 0 ||
        (x->shape[empty] != 0 && tci_dim_divides(x->shape[empty], results))) {
        return true;
    }
    if (tci_dim_is_known(x->shape[empty])) {
        tci_graph_fail(g, TC_ERR_SHAPE,
                       "%s over axis %d of shape %s, which has size 0, has no value",
                       tci_op_name(op), empty, TCI_SHAPE_TEXT(x));
    } else {
        tci_graph_fail(g, TC_ERR_SHAPE, "%s over axis %d of shape %s has no value where %s is 0%s",
                       tci_op_name(op), empty, TCI_SHAPE_TEXT(x), TCI_DIM_TEXT(x->shape[empty]),
                       TCI_LEAST_NOTE(x->shape[empty], 1));
    }
    return false;
}

static tci_node *tci_build_reduce_picked(tci_graph *g, int op, tci_node *x, const int64_t *picked,
                                         int n_picked)
{
    switch ((tci_build_over)tci_build_overs[op - TCI_OP_EW_END]) {
    case TCI_BUILD_OVER_SAME: break;
    case TCI_BUILD_OVER_SUM:
        x = tci_build_cast(g, x, tci_dtype_sum(g->promotion, (tc_dtype)x->dtype));
        break;
    case TCI_BUILD_OVER_BOOL: x = tci_build_cast(g, x, TC_BOOL); break;
    case TCI_BUILD_OVER_FLOAT: x = tci_build_real(g, x); break;
    case TCI_BUILD_OVER_INDEX: return tci_build_drop_axes(g, op, TC_I64, x, picked, n_picked);
    }
    if (!x || !n_picked) {
        tci_node *self[2] = {x, x};
        return x && op == TCI_OP_DEVSQ ? tci_build_ew(g, TCI_OP_SUB, self) : x;
    }
    return tci_build_drop_axes(g, op, (tc_dtype)x->dtype, x, picked, n_picked);
}

/* argmax and argmin take one axis: over all of x they are those of the flat x. */
static tci_node *tci_build_arg(tci_graph *g, int op, tci_node *x, tc_axes axes, bool keepdims)
{
    const int first[1] = {0};
    tc_axes axis = {first, 1, false};
    tci_dim flat = -1;
    int rank = keepdims ? x->rank : 0;
    if (!axes.all && axes.n != 1) {
        tci_graph_fail(g, TC_ERR_AXIS, "%s takes one axis: given %d", tci_op_name(op), axes.n);
        return NULL;
    }
    int checked;
    if (!axes.all && !tci_build_axis(g, axes.items[0], x->rank, &checked)) {
        return NULL;
    }
    tci_words w;
    tci_dim *ones = tci_words_dims(g, &w, rank);
    if (!ones) {
        return NULL;
    }
    for (int i = 0; i < rank; i++) {
        ones[i] = 1;
    }
    tci_node *line = tci_build_reshape(g, x, 1, tci_node_count(x) == 0 ? (tci_dim[1]){0} : &flat);
    tci_node *r = tci_build_reduce(g, op, line, axis, false);
    return tci_words_put(g, &w, tci_build_reshape(g, r, rank, ones));
}

static tci_node *tci_build_reduce_axes(tci_graph *g, int op, tci_node *x, tc_axes axes,
                                       bool keepdims, bool needs_one)
{
    if (!x) {
        return NULL;
    }
    if (tci_op_is(op, TCI_IS_ARG) && (axes.all || !x->rank || axes.n != 1)) {
        return tci_build_arg(g, op, x, axes, keepdims);
    }
    tci_words w;
    int64_t *picked = tci_words_get(g, &w, x->rank);
    if (!picked) {
        return NULL;
    }
    int n_picked = tci_build_pick_axes(g, x, axes, picked);
    bool valid = n_picked >= 0 && (!needs_one || tci_build_has_identity(g, op, x, picked));
    tci_node *r = valid ? tci_build_reduce_picked(g, op, x, picked, n_picked) : NULL;
    if (r && keepdims) {
        r = tci_build_keepdims(g, r, x, picked);
    }
    return tci_words_put(g, &w, r);
}

TCI_FN tci_node *tci_build_reduce(tci_graph *g, int op, tci_node *x, tc_axes axes, bool keepdims)
{
    bool needs_one = tci_op_get(op)->identity >= TCI_IDENTITY_LOWEST;
    return tci_build_reduce_axes(g, op, x, axes, keepdims, needs_one);
}

TCI_FN tci_node *tci_build_reduce_some(tci_graph *g, int op, tci_node *x, tc_axes axes,
                                       bool keepdims)
{
    return tci_build_reduce_axes(g, op, x, axes, keepdims, false);
}

/* The axes of x, in w; x itself becomes a float. *n: their number, -1 on error. */
static int64_t *tci_build_float_axes(tci_graph *g, tci_node **x, tc_axes axes, tci_words *w, int *n)
{
    w->items = NULL;
    *x = tci_build_real(g, *x);
    int64_t *picked = *x ? tci_words_get(g, w, (*x)->rank) : NULL;
    *n = picked ? tci_build_pick_axes(g, *x, axes, picked) : -1;
    return picked;
}

TCI_FN tci_node *tci_build_mean(tci_graph *g, tci_node *x, tc_axes axes, bool keepdims)
{
    tci_words w;
    int n;
    int64_t *picked = tci_build_float_axes(g, &x, axes, &w, &n);
    tci_node *r = n < 0    ? NULL
                  : n == 0 ? x
                           : tci_build_drop_axes(g, TCI_OP_MEAN, (tc_dtype)x->dtype, x, picked, n);
    if (r && keepdims) {
        r = tci_build_keepdims(g, r, x, picked);
    }
    return tci_words_put(g, &w, r);
}

/* max(count - correction, 0) in dtype t, of as many elements as the picked axes have. */
static tci_node *tci_build_freedom(tci_graph *g, const tci_node *x, const int64_t *picked,
                                   double correction, tc_dtype t)
{
    tci_dim count = 1;
    for (int i = 0; i < x->rank; i++) {
        count = picked[i] ? tci_dim_mul(count, x->shape[i]) : count;
    }
    if (tci_dim_is_known(count)) {
        double rest = (double)tci_dim_known(count) - correction;
        return tci_graph_const(g, t, (tci_value){.f = TCI_MAX(rest, 0)});
    }
    tci_node *in[2] = {tci_build_size_value(g, count, TC_F64),
                       tci_graph_const(g, TC_F64, (tci_value){.f = correction})};
    in[0] = tci_build_ew(g, TCI_OP_SUB, in);
    in[1] = tci_graph_const(g, TC_F64, (tci_value){.f = 0});
    return tci_build_cast(g, tci_build_ew(g, TCI_OP_MAXIMUM, in), t);
}

TCI_FN tci_node *tci_build_var(tci_graph *g, tci_node *x, tc_axes axes, double correction,
                               bool keepdims)
{
    tci_words w;
    int n;
    int64_t *picked = tci_build_float_axes(g, &x, axes, &w, &n);
    if (n < 0) {
        return tci_words_put(g, &w, NULL);
    }
    tc_dtype t = (tc_dtype)tci_dtype_get((tc_dtype)x->dtype)->compute;
    tci_node *in[2] = {tci_build_reduce(g, TCI_OP_DEVSQ, tci_build_cast(g, x, t), axes, keepdims),
                       tci_build_freedom(g, x, picked, correction, t)};
    tci_node *r = in[0] && in[1] ? tci_build_ew(g, TCI_OP_DIV, in) : NULL;
    return tci_words_put(g, &w, r ? tci_build_cast(g, r, (tc_dtype)x->dtype) : NULL);
}

TCI_FN tci_node *tci_build_scan(tci_graph *g, tci_node *x, int axis, bool reverse, tci_mode mode)
{
    int at;
    if (!x || !tci_build_axis(g, axis, x->rank, &at)) {
        return NULL;
    }
    if (mode == TCI_MODE_ADD || mode == TCI_MODE_MUL) {
        x = tci_build_cast(g, x, tci_dtype_sum(g->promotion, (tc_dtype)x->dtype));
    }
    if (!x || !x->rank) {
        return x;
    }
    int64_t attr[3] = {at, reverse, mode};
    return tci_graph_node(g, TCI_OP_SCAN, (tc_dtype)x->dtype, x->rank, x->shape, 1, &x, 3, attr);
}

TCI_FN tci_node *tci_build_running_place(tci_graph *g, tci_node *scan)
{
    if (!scan || !scan->rank) {
        return scan ? tci_graph_const(g, TC_I64, (tci_value){.i = 0}) : NULL;
    }
    const int axis = (int)tci_dim_known(scan->attr[0]);
    tci_words w;
    tci_dim *line = tci_words_dims(g, &w, scan->rank);
    if (!line) {
        return NULL;
    }
    for (int i = 0; i < scan->rank; i++) {
        line[i] = i == axis ? scan->shape[i] : 1;
    }
    tci_node *ramp = tci_build_reshape(g, tci_build_iota(g, line[axis]), scan->rank, line);
    tci_node *both[2] = {scan->in[0], scan}, *x = scan->in[0];
    tci_node *hits[2] = {tci_build_ew(g, TCI_OP_EQ, both), NULL};
    if (tci_dtype_is_float((tc_dtype)x->dtype)) { /* NaN is the result from then on */
        hits[1] = tci_build_ew(g, TCI_OP_ISNAN, &x);
        hits[0] = tci_build_ew(g, TCI_OP_LOGICAL_OR, hits);
    }
    tci_node *none = tci_graph_const(g, TC_I64, (tci_value){.i = 0});
    ramp = tci_build_where(g, hits[0], ramp, none);
    return tci_words_put(g, &w, tci_build_scan(g, ramp, axis, scan->attr[1] != 0, TCI_MODE_MAX));
}

TCI_FN tci_node *tci_build_topk(tci_graph *g, tci_node *x, int axis, tci_dim k, bool largest)
{
    int at;
    tci_words w;
    if (!x || !tci_build_axis(g, axis, x->rank, &at) ||
        !tci_build_check_dim(g, "k", k, TC_ERR_ARGUMENT)) {
        return NULL;
    }
    tci_dim size = x->rank ? x->shape[at] : 1;
    if (!tci_dim_le(x->rank ? 0 : 1, k) || !tci_dim_le(k, size)) {
        tci_graph_fail(g, TC_ERR_ARGUMENT,
                       "k is %s: expected %d to %s, the size of axis %d of %s%s", TCI_DIM_TEXT(k),
                       x->rank ? 0 : 1, TCI_DIM_TEXT(size), at, TCI_SHAPE_TEXT(x),
                       tci_dim_is_known(k) ? TCI_LEAST_NOTE(size, tci_dim_known(k)) : "");
        return NULL;
    }
    if (!x->rank) {
        return tci_graph_const(g, TC_I64, (tci_value){.i = 0});
    }
    tci_dim *shape = tci_words_dims(g, &w, x->rank);
    const int64_t attr[2] = {at, largest};
    if (!shape) {
        return NULL;
    }
    for (int i = 0; i < x->rank; i++) {
        shape[i] = i == at ? k : x->shape[i];
    }
    return tci_words_put(g, &w,
                         tci_build_node(g, TCI_OP_TOPK, TC_I64, x->rank, shape, 1, &x, 2, attr));
}

/* ---- a size as a value ---- */

/* A symbolic one is the last element of a ramp that is one longer; where it may be negative, that
 * of what it is above its least, and the least added. */
TCI_FN tci_node *tci_build_size_value(tci_graph *g, tci_dim size, tc_dtype dtype)
{
    if (tci_dim_is_known(size)) {
        tci_value f = {.f = (double)tci_dim_known(size)}, i = {.i = tci_dim_known(size)};
        return tci_graph_const(g, dtype, tci_dtype_is_float(dtype) ? f : i);
    }
    int64_t least = TCI_MIN(tci_dim_least(size), 0);
    tci_dim above = tci_dim_sub(size, least);
    tci_node *ramp = tci_build_iota(g, tci_dim_add(above, 1));
    tci_node *last = tci_build_slice(g, ramp, 0, above, INT64_MAX, 1);
    tci_node *value[2] = {tci_build_reshape(g, last, 0, NULL), NULL};
    if (least < 0) {
        value[1] = tci_graph_const(g, TC_I64, (tci_value){.i = least});
        value[0] = tci_build_ew(g, TCI_OP_ADD, value);
    }
    return tci_build_cast(g, value[0], dtype);
}

/* ---- effects ---- */

TCI_FN tci_node *tci_build_param_assign(tci_graph *g, tci_node *param, tci_node *value)
{
    if (!param || !value) {
        return NULL;
    }
    if (param->op != TCI_OP_DATA || !param->storage || !param->storage->param) {
        tci_graph_fail(g, TC_ERR_ARGUMENT,
                       "cannot assign to the result of %s: expected one of tc_param",
                       TCI_MAKER(param));
        return NULL;
    }
    if (value->dtype != param->dtype) {
        tci_graph_fail(g, TC_ERR_DTYPE,
                       "the value is %s, the parameter %s: expected one dtype (tc_cast converts)",
                       tci_dtype_get((tc_dtype)value->dtype)->name,
                       tci_dtype_get((tc_dtype)param->dtype)->name);
        return NULL;
    }
    bool fits = value->rank <= param->rank;
    for (int i = 1; fits && i <= value->rank; i++) {
        tci_dim size = value->shape[value->rank - i];
        fits = size == 1 || size == param->shape[param->rank - i];
    }
    if (!fits) {
        tci_graph_fail(g, TC_ERR_SHAPE, "the value has shape %s, the parameter %s",
                       TCI_SHAPE_TEXT(value), TCI_SHAPE_TEXT(param));
        return NULL;
    }
    tci_node *in[2] = {param, tci_build_broadcast(g, value, param->rank, param->shape)};
    return in[1] ? tci_graph_node(g, TCI_OP_ASSIGN, (tc_dtype)param->dtype, param->rank,
                                  param->shape, 2, in, 0, NULL)
                 : NULL;
}

/* ---- barriers ---- */

enum { TCI_BUILD_MOVES = 64 }; /* nested, below which a barrier is put */

TCI_FN tci_node *tci_build_barrier(tci_graph *g, tci_node *x, tci_node *const *others, int n,
                                   bool sinks)
{
    bool in_memory = x && (tci_op_is(x->op, TCI_IS_MEMORY) || tci_node_is_value(x));
    if (!x || tci_op_is(x->op, TCI_IS_NUMBER) || (in_memory && n == 0)) {
        return x;
    }
    tci_words w;
    tci_node **in = tci_words_nodes(g, &w, n + 1);
    if (!in) {
        return NULL;
    }
    in[0] = x;
    for (int i = 0; i < n; i++) {
        in[i + 1] = others[i];
    }
    const int64_t attr[1] = {sinks};
    return tci_words_put(g, &w,
                         tci_graph_node(g, TCI_OP_BARRIER, (tc_dtype)x->dtype, x->rank, x->shape,
                                        n + 1, in, 1, attr));
}

/* The source of x below movement, after a barrier, with the movement on top. */
static tci_node *tci_build_barrier_below(tci_graph *g, tci_node *x)
{
    tci_node *moved[TCI_BUILD_MOVES], *below = x;
    int n_moved = 0;
    while (below && n_moved < TCI_BUILD_MOVES && !tci_node_is_value(below) &&
           (below->op == TCI_OP_RESHAPE || below->op == TCI_OP_PERMUTE ||
            below->op == TCI_OP_EXPAND)) {
        moved[n_moved++] = below;
        below = below->in[0];
    }
    below = tci_build_barrier(g, below, NULL, 0, false);
    while (below && n_moved > 0) {
        const tci_node *m = moved[--n_moved];
        below = tci_graph_node(g, m->op, (tc_dtype)m->dtype, m->rank, m->shape, 1, &below,
                               m->n_attr, m->attr);
    }
    return below;
}

TCI_FN tci_node *tci_build_nofuse(tci_graph *g, tci_node *x)
{
    if (!x || x->n_in == 0 || tci_node_is_value(x) || x->op == TCI_OP_RESULT) {
        return tci_build_barrier(g, x, NULL, 0, false);
    }
    tci_words w;
    tci_node **in = tci_words_nodes(g, &w, x->n_in);
    bool made = in != NULL;
    for (int i = 0; i < x->n_in && made; i++) {
        in[i] = tci_build_barrier_below(g, x->in[i]);
        made = in[i] != NULL;
    }
    if (!in) {
        return NULL;
    }
    tci_node *own = made ? tci_graph_node(g, x->op, (tc_dtype)x->dtype, x->rank, x->shape, x->n_in,
                                          in, x->n_attr, x->attr)
                         : NULL;
    return tci_build_barrier(g, tci_words_put(g, &w, own), NULL, 0, false);
}
