/* ops/op_info.c - builds the table of op properties (ops/op_info.h) from the rows of ops/table.h.
 */
#include "op_info.h"

#include <math.h>

/* ---- attribute lists ---- */

#define TCI_ATTR_LISTS(X)                                                                          \
    X(NONE) X(AXIS) X(AXES) X(SCAN) X(SCATTER) X(SEGMENT) X(ORDER)                                 \
    X(SLICE) X(PAD) X(WINDOW) X(CONTRACT) X(LAYER_NORM) X(TOPK) X(CUSTOM) X(BARRIER)               \
    X(REPEAT) X(RESULT) X(SOLVE) X(TRIANGLE) X(COLLECTIVE) X(SHARD) X(CONV_TRANSPOSE) X(NAMED)

#define TCI_ATTR_ROW(name, kind, times)                                                            \
    {#name, TCI_ATTR_##kind, TCI_ATTR_##times},
#define TCI_ATTR_IS_FIRST(name, kind, times) +(TCI_ATTR_##times == TCI_ATTR_FIRST)
#define TCI_ATTR_IS_GROUP(name, kind, times)                                                       \
    +(TCI_ATTR_##times == TCI_ATTR_EACH || TCI_ATTR_##times == TCI_ATTR_REST)
#define TCI_ATTR_IS_EACH(name, kind, times) +(TCI_ATTR_##times == TCI_ATTR_EACH)
#define TCI_ATTR_IS_LAST(name, kind, times) +(TCI_ATTR_##times == TCI_ATTR_LAST)

/* Each ends with a row that no list counts, so that an empty one is an array too. */
#define TCI_ROW(list)                                                                              \
    static const tci_attr_info tci_attrs_of_##list[] = {TCI_ATTRS_##list(TCI_ATTR_ROW){            \
        NULL, 0, 0}};                                                                              \
    static const tci_attr_list tci_attrs_##list = {                                                \
        tci_attrs_of_##list,                                                                       \
        0 TCI_ATTRS_##list(TCI_ATTR_IS_FIRST),                                                     \
        0 TCI_ATTRS_##list(TCI_ATTR_IS_GROUP),                                                     \
        0 TCI_ATTRS_##list(TCI_ATTR_IS_LAST),                                                      \
        (0 TCI_ATTRS_##list(TCI_ATTR_IS_EACH)) > 0};
TCI_ATTR_LISTS(TCI_ROW)
#undef TCI_ROW

TCI_FN const tci_attr_info *tci_op_attr(int op, int n, int word)
{
    const tci_attr_list *l = tci_op_get(op)->attrs;
    int end = n - l->n_last;
    if (word < l->n_first) {
        return &l->items[word];
    }
    if (word >= end) {
        return word < n ? &l->items[l->n_first + l->n_group + word - end] : NULL;
    }
    return l->n_group ? &l->items[l->n_first + (word - l->n_first) % l->n_group] : NULL;
}

TCI_FN bool tci_op_takes_words(int op, int n, int rank)
{
    const tci_attr_list *l = tci_op_get(op)->attrs;
    int group = n - l->n_first - l->n_last;
    return group >= 0 && (!l->n_group ? group == 0
                          : l->each   ? group == l->n_group * rank
                                      : group % l->n_group == 0);
}

/* ---- ops ---- */

/* The cost column: flops, and what else it says. */
enum {
    TCI_INFO_FLOPS_EXACT = 1,
    TCI_INFO_FLOPS_PLAIN = 1,
    TCI_INFO_FLOPS_ROOT = 4,
    TCI_INFO_FLOPS_CALL = 20,
    TCI_INFO_FLOPS_DRAWN = 100,
    TCI_INFO_EW = TCI_IS_POINTWISE | TCI_IS_STORABLE,
    TCI_INFO_FACTS_EXACT = TCI_INFO_EW | TCI_IS_EXACT,
    TCI_INFO_FACTS_PLAIN = TCI_INFO_EW,
    TCI_INFO_FACTS_ROOT = TCI_INFO_EW,
    TCI_INFO_FACTS_CALL = TCI_INFO_EW
};

/* Of a special row. */
#define TCI_INFO_FLOPS(facts)                                                                      \
    ((facts) & TCI_IS_DRAWN ? TCI_INFO_FLOPS_DRAWN : ((facts) & TCI_IS_STORABLE) != 0)

/* The column of most operands. */
enum { TCI_INFO_0, TCI_INFO_1, TCI_INFO_2, TCI_INFO_3, TCI_INFO_4, TCI_INFO_MANY = INT32_MAX };

/* The rule column of the reductions. */
enum {
    TCI_INFO_REDUCE_SAME = TCI_IS_FOLD,
    TCI_INFO_REDUCE_SUM = TCI_IS_FOLD,
    TCI_INFO_REDUCE_BOOL = TCI_IS_FOLD,
    TCI_INFO_REDUCE_FLOAT = TCI_IS_FOLD,
    TCI_INFO_REDUCE_INDEX = TCI_IS_ARG
};

/* The identity of the first part of each combine row. */
enum {
#define TCI_P1(t, identity) TCI_IDENTITY_##identity
#define TCI_P2(t, identity, ...) TCI_IDENTITY_##identity
#define TCI_P4(t, identity, ...) TCI_IDENTITY_##identity
#define TCI_ROW(id, name, parts, element, combine) TCI_INFO_OVER_##id = parts,
    TCI_COMBINES(TCI_ROW)
#undef TCI_ROW
#undef TCI_P1
#undef TCI_P2
#undef TCI_P4
};

static const tci_op_info tci_op_rows[] = {
#define TCI_ROW(id, name, arity, rule, cost, value, gradient, doc)                                 \
    [TCI_OP_##id] = {#name, TCI_INFO_FACTS_##cost, TCI_INFO_FLOPS_##cost, arity,                   \
                     arity, 1, 0, 0, 0, &tci_attrs_NONE},
    TCI_EW_OPS(TCI_ROW)
#undef TCI_ROW
#define TCI_ROW(id, name, rule, combine, part, gradient, doc)                                      \
    [TCI_OP_##id] = {#name, TCI_INFO_REDUCE_##rule, 0, 1, 1, 1, TCI_INFO_OVER_##combine,           \
                     TCI_RED_##combine, part, &tci_attrs_AXES},
        TCI_REDUCE_OPS(TCI_ROW)
#undef TCI_ROW
#define TCI_ROW(id, name, least, most, facts, attributes, gradient, doc)                           \
    [TCI_OP_##id] = {#name, facts, TCI_INFO_FLOPS(facts), least, TCI_INFO_##most,                  \
                     ((facts) & TCI_IS_EFFECT) == 0, 0, 0, 0, &tci_attrs_##attributes},
            TCI_SPECIAL_OPS(TCI_ROW)
#undef TCI_ROW
#define TCI_ROW(id, name, least, most, attributes, gradient, doc)                                  \
    [TCI_OP_##id] = {#name, 0, 0, least, TCI_INFO_##most, 1, 0, 0, 0, &tci_attrs_##attributes},
                TCI_COMPOSITE_OPS(TCI_ROW)
#undef TCI_ROW
};

_Static_assert(TCI_COUNT(tci_op_rows) == TCI_OP_COUNT, "a row for each op");

TCI_FN const tci_op_info *tci_op_get(int op)
{
    return &tci_op_rows[op];
}

TCI_FN const char *tci_op_name(int op)
{
    return op >= 0 && op < TCI_OP_COUNT ? tci_op_rows[op].name : "?";
}

TCI_FN bool tci_op_is(int op, unsigned facts)
{
    return (tci_op_rows[op].facts & facts) != 0;
}

TCI_FN int tci_mode_fold(int mode)
{
    static const int folds[] = {
#define TCI_ROW(id, word, fold, pair) [TCI_MODE_##id] = TCI_OP_##fold,
        TCI_COMBINE_MODES(TCI_ROW)
#undef TCI_ROW
    };
    return folds[mode];
}

TCI_FN int tci_mode_pair(int mode)
{
    static const int pairs[] = {
#define TCI_ROW(id, word, fold, pair) [TCI_MODE_##id] = TCI_OP_##pair,
        TCI_COMBINE_MODES(TCI_ROW)
#undef TCI_ROW
    };
    return pairs[mode];
}

static tci_value tci_op_extreme(tc_dtype t, bool highest)
{
    tci_value v = {.i = 0};
    int bits = 8 * tci_dtype_get(t)->bytes;
    if (tci_dtype_is_float(t)) {
        v.f = highest ? (double)INFINITY : -(double)INFINITY;
    } else if (tci_dtype_is_signed(t)) {
        v.i = highest ? INT64_MAX >> (64 - bits) : INT64_MIN >> (64 - bits);
    } else if (highest) {
        v.u = t == TC_BOOL ? 1 : UINT64_MAX >> (64 - bits);
    }
    return v;
}

TCI_FN tci_value tci_identity_value(tci_identity identity, tc_dtype t)
{
    tci_value v = {.i = 0};
    if (identity == TCI_IDENTITY_LOWEST || identity == TCI_IDENTITY_HIGHEST) {
        return tci_op_extreme(t, identity == TCI_IDENTITY_HIGHEST);
    }
    if (tci_dtype_is_float(t)) {
        v.f = identity == TCI_IDENTITY_1;
    } else {
        v.i = identity == TCI_IDENTITY_1;
    }
    return v;
}

TCI_FN tci_value tci_op_identity(int op, tc_dtype t)
{
    return tci_identity_value((tci_identity)tci_op_rows[op].identity, t);
}
