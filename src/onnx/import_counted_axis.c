/* onnx/import_counted_axis.c - imports ONNX operators whose operands have a data-dependent size
 * (results of NonZero, Compress, Unique): padded tensors with a run-time count of valid elements.
 *
 * A counted value is a padded tensor with a count along one axis (is_cut). These operators compute
 * on the padded tensor and pass the count on: movement ops that keep the axis, elementwise ops,
 * gathering at counted indices, and sums over the axis. All other readers are refused by
 * tci_ox_tensor.
 *
 * In: an operator with a counted operand. Out: its results, with their count; elements beyond the
 * count are 0, as sums over the axis need it. */
#include "operator_table.h"
#include "user_call_site.h"

#include <string.h>

typedef enum tci_ox_counted_rule {
    TCI_OX_COUNTED_EACH, /* elementwise, by broadcasting */
    TCI_OX_COUNTED_PERMUTE,
    TCI_OX_COUNTED_SQUEEZE,
    TCI_OX_COUNTED_UNSQUEEZE,
    TCI_OX_COUNTED_SLICE,
    TCI_OX_COUNTED_SPLIT,
    TCI_OX_COUNTED_GATHER,
    TCI_OX_COUNTED_GATHER_ND,
    TCI_OX_COUNTED_SUM
} tci_ox_counted_rule;

static const struct {
    const char *op;
    tci_ox_counted_rule rule;
} tci_ox_counted_rules[] = {
    {"Transpose", TCI_OX_COUNTED_PERMUTE},   {"Squeeze", TCI_OX_COUNTED_SQUEEZE},
    {"Unsqueeze", TCI_OX_COUNTED_UNSQUEEZE}, {"Slice", TCI_OX_COUNTED_SLICE},
    {"Split", TCI_OX_COUNTED_SPLIT},         {"Gather", TCI_OX_COUNTED_GATHER},
    {"GatherND", TCI_OX_COUNTED_GATHER_ND},  {"ReduceSum", TCI_OX_COUNTED_SUM}};

static const char tci_ox_counted_each[] =
    " Abs Add And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil Clip Cos Div Equal Erf Exp "
    "Floor Greater GreaterOrEqual Less LessOrEqual Log Max Min Mod Mul Neg Not Or Pow Reciprocal "
    "Relu Round Sigmoid Sign Sin Sqrt Sub Sum Tanh Where Xor ";

/* The rule of an operator; -1: it has none. */
static int tci_ox_counted_rule_of(const char *op)
{
    char word[24];
    for (int i = 0; i < TCI_COUNT(tci_ox_counted_rules); i++) {
        if (!strcmp(op, tci_ox_counted_rules[i].op)) {
            return (int)tci_ox_counted_rules[i].rule;
        }
    }
    snprintf(word, sizeof(word), " %.20s ", op);
    return strstr(tci_ox_counted_each, word) ? TCI_OX_COUNTED_EACH : -1;
}

static bool tci_ox_is_in(const tci_ox_op *o, const int64_t *axes, int n, int rank, int axis)
{
    bool is = false;
    for (int i = 0; i < n; i++) {
        is = is || tci_ox_axis(o, axes[i], rank) == axis;
    }
    return is;
}

/* An elementwise result of `rank` axes: all operands that reach the axis are counted in the same
 * way, or have one element along it. -1: they do not fit. */
static int tci_ox_counted_broadcast(const tci_ox_op *o, const bool *cut, int first, int rank)
{
    const tci_ox_value *c = o->in[first];
    int from_last = tc_rank(c->t) - c->axis;
    for (int i = 0; i < o->n_in; i++) {
        const tci_ox_value *v = o->in[i];
        if (!v) {
            continue;
        }
        tc_tensor t = tci_ox_in(o, i);
        int reach = tc_rank(t) - from_last;
        bool alike = cut[i] && reach == v->axis && v->count.id == c->count.id;
        if (!alike && (cut[i] || (reach >= 0 && tc_size(t, reach) != 1))) {
            return -1;
        }
    }
    return rank - from_last;
}

/* The counted axis of result 0 (of all, of Split), -1: that operator cannot keep it; *sums: the
 * result has no such axis any more. */
static int tci_ox_counted_axis(const tci_ox_op *o, int rule, const bool *cut, int first, bool *sums)
{
    const tci_ox_value *c = o->in[first];
    int rank = tc_rank(c->t), axis = c->axis, n = 0, to = -1, before = 0;
    const int64_t *list = rule == TCI_OX_COUNTED_PERMUTE ? tci_ox_ints(o, "perm", &n)
                          : rule == TCI_OX_COUNTED_SLICE ? tci_ox_list(o, 3, "axes", &n)
                          : rule == TCI_OX_COUNTED_SQUEEZE || rule == TCI_OX_COUNTED_UNSQUEEZE ||
                                  rule == TCI_OX_COUNTED_SUM
                              ? tci_ox_list(o, 1, "axes", &n)
                              : NULL;
    switch ((tci_ox_counted_rule)rule) {
    case TCI_OX_COUNTED_EACH:
        return o->out[0] ? tci_ox_counted_broadcast(o, cut, first, tc_rank(o->out[0]->t)) : -1;
    case TCI_OX_COUNTED_PERMUTE:
        for (int i = 0; i < rank; i++) {
            to = (list ? list[i] : rank - 1 - i) == axis ? i : to;
        }
        return to;
    case TCI_OX_COUNTED_SQUEEZE:
        for (int i = 0; i < axis; i++) {
            before += tci_ox_is_in(o, list, n, rank, i);
        }
        return list && !tci_ox_is_in(o, list, n, rank, axis) ? axis - before : -1;
    case TCI_OX_COUNTED_UNSQUEEZE:
        for (int i = 0; i < rank + n; i++) {
            bool is_new = tci_ox_is_in(o, list, n, rank + n, i);
            to = !is_new && before == axis ? i : to;
            before += !is_new;
        }
        return to;
    case TCI_OX_COUNTED_SLICE: return list && !tci_ox_is_in(o, list, n, rank, axis) ? axis : -1;
    case TCI_OX_COUNTED_SPLIT:
        return tci_ox_axis(o, tci_ox_int(o, "axis", 0), rank) != axis ? axis : -1;
    case TCI_OX_COUNTED_GATHER:
        return first == 1 && !cut[0]
                   ? axis + tci_ox_axis(o, tci_ox_int(o, "axis", 0), tc_rank(tci_ox_in(o, 0)))
                   : -1;
    case TCI_OX_COUNTED_GATHER_ND:
        return first == 1 && !cut[0] && axis < rank - 1 && !tci_ox_int(o, "batch_dims", 0) ? axis
                                                                                           : -1;
    case TCI_OX_COUNTED_SUM:
        *sums = n ? tci_ox_is_in(o, list, n, rank, axis)
                  : !tci_ox_int(o, "noop_with_empty_axes", 0);
        return -1;
    }
    return -1;
}

/* t with `rest`, 0 or 1, beyond the count along an axis. */
static tc_tensor tci_ox_counted_mask(const tci_ox_op *o, tc_tensor t, tc_tensor count, int axis,
                                     int rest)
{
    tc_tensor valid = tc_lt(tci_ox_places(o, tc_size(t, axis), tc_rank(t), axis), count);
    return tc_dtype_of(t) == TC_BOOL ? tc_logical_and(t, valid) : tc_where(valid, t, rest);
}

TCI_FN void tci_ox_out_counted(const tci_ox_op *o, int i, tc_tensor t, tc_tensor count, int axis)
{
    tci_ox_out(o, i, tci_ox_counted_mask(o, t, count, axis, 0));
    if (tci_ox_wants(o, i)) {
        o->out[i]->is_cut = true;
        o->out[i]->count = count;
        o->out[i]->axis = axis;
    }
}

/* The operator on padded tensors: its counted operands are copies without a count. Elementwise ops
 * read 1 in the padding, where each of them and its gradient are finite. */
static tci_ox_op tci_ox_counted_padded(const tci_ox_op *o, int rule, const bool *cut)
{
    tci_ox_op padded = *o;
    padded.in = TCI_NEW_ARRAY(o->s, tci_ox_value *, o->n_in);
    for (int i = 0; i < o->n_in; i++) {
        const tci_ox_value *v = o->in[i];
        padded.in[i] = o->in[i];
        if (cut[i]) {
            tci_ox_value *copy = tci_ox_value_new(o->s, v->name);
            *copy = *v;
            copy->is_cut = false;
            if (rule == TCI_OX_COUNTED_EACH) {
                copy->t = tci_ox_counted_mask(o, v->t, v->count, v->axis, 1);
            }
            padded.in[i] = copy;
        }
    }
    return padded;
}

TCI_FN bool tci_ox_make_counted(tci_ox_op *o)
{
    int rule = tci_ox_counted_rule_of(o->node->op), first = -1;
    bool *cut = TCI_NEW_ARRAY(o->s, bool, o->n_in + 1), sums = false;
    for (int i = o->n_in - 1; i >= 0; i--) {
        cut[i] = o->in[i] && o->in[i]->is_cut;
        first = cut[i] ? i : first;
    }
    if (first < 0 || rule < 0) {
        return false;
    }
    tci_ox_op padded = tci_ox_counted_padded(o, rule, cut);
    o->row->make(&padded);
    const tci_ox_value *from = o->in[first];
    int axis = tci_ox_counted_axis(&padded, rule, cut, first, &sums);
    if (axis < 0 && !sums) {
        tci_ox_tensor(o, o->in[first]); /* fails: it is counted */
    }
    for (int i = 0; i < o->n_out && !sums; i++) {
        if (o->out[i]) {
            tci_ox_out_counted(o, i, o->out[i]->t, from->count, axis);
        }
    }
    return true;
}
