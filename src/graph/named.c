/* graph/named.c - nodes by name (graph/named.h).
 *
 * In: the name of an op, inputs, attributes by name. Out: what the constructor of that op makes of
 * them. The names are found in the rows of the ops and their attribute lists; lengths and kinds of
 * what is given are checked here by the list alone, and what the words mean by the constructors.
 * One switch over all ops says which constructor that is. */
#include "named.h"

#include <inttypes.h>
#include <string.h>

#include "build.h"

/* A call: the row, and what was given for each attribute of its list, or NULL. */
typedef struct tci_named {
    tci_graph *g;
    int op, n_in;
    tci_node *const *in;
    const tci_attr_list *list;
    const tci_named_attr *given[TCI_ATTRS_MOST];
} tci_named;

/* ---- what was given ---- */

/* Place of an attribute in the list, or -1. A COUNT follows from the others. */
static int tci_named_find(const tci_named *c, const char *name)
{
    for (int i = 0; i < c->list->n; i++) {
        if (!strcmp(c->list->items[i].name, name)) {
            return c->list->items[i].kind == TCI_ATTR_COUNT ? -1 : i;
        }
    }
    return -1;
}

/* How often attribute i stands; -1: as often as it is given. */
static int tci_named_wanted(const tci_named *c, int i)
{
    const tci_attr_info *a = &c->list->items[i];
    int rank = c->n_in ? c->in[0]->rank : 0, first = c->list->n_first;
    switch ((tci_attr_times)a->times) {
    case TCI_ATTR_FIRST:
    case TCI_ATTR_LAST: return 1;
    case TCI_ATTR_EACH: return rank;
    case TCI_ATTR_REST: return i > first && c->given[first] ? c->given[first]->n : -1;
    case TCI_ATTR_ASIDE: break;
    }
    return a->kind == TCI_ATTR_PLACE ? rank : a->kind == TCI_ATTR_SIZE ? -1 : 1;
}

static int tci_named_count(const tci_named *c, const char *name)
{
    int i = tci_named_find(c, name);
    return c->given[i] ? c->given[i]->n : tci_named_wanted(c, i);
}

static tci_dim tci_named_word(const tci_named *c, const char *name, int at)
{
    int i = tci_named_find(c, name);
    return c->given[i] ? c->given[i]->words[at] : c->list->items[i].fallback;
}

/* All words of an attribute; NULL: out of memory. */
static tci_dim *tci_named_words(const tci_named *c, const char *name, tci_words *w)
{
    int n = tci_named_count(c, name);
    tci_dim *words = tci_words_get(c->g, w, n);
    for (int i = 0; words && i < n; i++) {
        words[i] = tci_named_word(c, name, i);
    }
    return words;
}

static int *tci_named_ints(const tci_named *c, const char *name, tci_words *w)
{
    int n = tci_named_count(c, name);
    int *ints = tci_words_ints(c->g, w, n);
    for (int i = 0; ints && i < n; i++) {
        ints[i] = (int)tci_dim_known(tci_named_word(c, name, i));
    }
    return ints;
}

/* ---- checks ---- */

static bool tci_named_fits(const tci_attr_info *a, tci_dim word)
{
    bool plain = tci_dim_is_known(word) && tci_dim_le(INT32_MIN, word) &&
                 tci_dim_le(word, INT32_MAX);
    switch ((tci_attr_kind)a->kind) {
    case TCI_ATTR_SIZE:
    case TCI_ATTR_PLACE: return true;
    case TCI_ATTR_AXIS: return plain;
    case TCI_ATTR_COUNT:
    case TCI_ATTR_LABEL: return plain && tci_dim_le(0, word);
    case TCI_ATTR_FLAG: return plain && (word == 0 || word == 1);
    case TCI_ATTR_DTYPE: return plain && tci_dtype_is_valid(tci_dim_known(word));
    case TCI_ATTR_MODE:
        return plain && tci_dim_le(0, word) && tci_dim_lt(word, TCI_MODE_COUNT);
    }
    return false;
}

static bool tci_named_check_words(const tci_named *c, int i)
{
    const tci_attr_info *a = &c->list->items[i];
    int n = c->given[i]->n, wanted = tci_named_wanted(c, i);
    if (n < 0 || (wanted >= 0 && n != wanted)) {
        tci_graph_fail(c->g, TC_ERR_ARGUMENT, "'%s' of %s is given %d times: expected %d", a->name,
                       tci_op_name(c->op), n, wanted);
        return false;
    }
    for (int k = 0; k < n; k++) {
        if (tci_attr_is_dim(a) &&
            !tci_build_check_dim(c->g, a->name, c->given[i]->words[k], TC_ERR_ARGUMENT)) {
            return false;
        }
        if (!tci_named_fits(a, c->given[i]->words[k])) {
            tci_graph_fail(c->g, TC_ERR_ARGUMENT, "'%s' of %s is %s: expected %s", a->name,
                           tci_op_name(c->op), TCI_DIM_TEXT(c->given[i]->words[k]),
                           a->kind == TCI_ATTR_FLAG    ? "0 or 1"
                           : a->kind == TCI_ATTR_DTYPE ? "a dtype"
                       : a->kind == TCI_ATTR_MODE  ? "a mode of stores"
                           : a->kind == TCI_ATTR_LABEL ? "a number from 0 on"
                                                       : "an axis");
            return false;
        }
    }
    return true;
}

/* Sorts what is given into the list. */
static bool tci_named_take(tci_named *c, int n_attrs, const tci_named_attr *attrs)
{
    for (int i = 0; i < n_attrs; i++) {
        int at = tci_named_find(c, attrs[i].name);
        if (at < 0 || c->given[at]) {
            tci_graph_fail(c->g, TC_ERR_ARGUMENT,
                           at < 0 ? "%s has no attribute '%.60s'"
                                  : "%s is given the attribute '%.60s' twice",
                           tci_op_name(c->op), attrs[i].name);
            return false;
        }
        c->given[at] = &attrs[i];
    }
    for (int i = 0; i < c->list->n; i++) {
        const tci_attr_info *a = &c->list->items[i];
        if (!c->given[i] && a->fallback == TCI_ATTR_NEEDED) {
            tci_graph_fail(c->g, TC_ERR_ARGUMENT, "%s needs the attribute '%s'", tci_op_name(c->op),
                           a->name);
            return false;
        }
        if (c->given[i] && !tci_named_check_words(c, i)) {
            return false;
        }
    }
    return true;
}

static bool tci_named_check_inputs(const tci_named *c)
{
    const tci_op_info *row = tci_op_get(c->op);
    if (c->n_in < row->least || c->n_in > row->most) {
        tci_graph_fail(c->g, TC_ERR_ARGUMENT, "%s is given %d inputs: expected %d%s", row->name,
                       c->n_in, row->least, row->most > row->least ? " or more" : "");
        return false;
    }
    for (int i = 0; i < c->n_in; i++) {
        if (!c->in[i]) {
            return false;
        }
    }
    return true;
}

/* ---- ops whose words are more than one list ---- */

static tci_node *tci_named_shaped(const tci_named *c)
{
    tci_words w;
    tci_dim *shape = tci_named_words(c, "shape", &w);
    int rank = tci_named_count(c, "shape");
    if (!shape) {
        return NULL;
    }
    return tci_words_put(c->g, &w,
                         c->op == TCI_OP_RESHAPE
                             ? tci_build_reshape(c->g, c->in[0], rank, shape)
                             : tci_build_expand(c->g, c->in[0], rank, shape));
}

static tci_node *tci_named_random(const tci_named *c)
{
    tci_words w;
    tci_dim *shape = tci_named_words(c, "shape", &w);
    tc_dtype dtype = (tc_dtype)tci_named_word(c, "dtype", 0);
    if (!shape) {
        return NULL;
    }
    return tci_words_put(c->g, &w,
                         tci_build_random(c->g, c->in[0], c->in[1], dtype,
                                          tci_named_count(c, "shape"), shape));
}

static tci_node *tci_named_permute(const tci_named *c)
{
    tci_words w;
    int *order = tci_named_ints(c, "order", &w);
    if (!order) {
        return NULL;
    }
    return tci_words_put(c->g, &w, tci_build_permute(c->g, c->in[0], c->in[0]->rank, order));
}

static tci_node *tci_named_over_axes(const tci_named *c)
{
    tci_words w;
    int *list = tci_named_ints(c, "axes", &w);
    tc_axes axes = {list, tci_named_count(c, "axes"), false};
    bool keepdims = tci_named_word(c, "keepdims", 0) != 0;
    if (!list) {
        return NULL;
    }
    return tci_words_put(c->g, &w,
                         c->op == TCI_OP_MEAN
                             ? tci_build_mean(c->g, c->in[0], axes, keepdims)
                             : tci_build_reduce(c->g, c->op, c->in[0], axes, keepdims));
}

static tci_node *tci_named_slice(const tci_named *c)
{
    tci_node *r = c->in[0];
    for (int i = 0; r && i < c->in[0]->rank; i++) {
        r = tci_build_slice(c->g, r, i, tci_named_word(c, "start", i), tci_named_word(c, "stop", i),
                            tci_named_word(c, "step", i));
    }
    return r;
}

static tci_node *tci_named_pad(const tci_named *c)
{
    tci_words w, v;
    tci_dim *before = tci_named_words(c, "before", &w);
    tci_dim *after = before ? tci_named_words(c, "after", &v) : NULL;
    tci_node *r = NULL;
    if (after) {
        r = tci_build_pad_axes(c->g, c->in[0], before, after, c->in[1]);
        tci_words_put(c->g, &v, r);
    }
    return before ? tci_words_put(c->g, &w, r) : NULL;
}

static tci_node *tci_named_window(const tci_named *c)
{
    int n = tci_named_count(c, "axis"), axis = 0;
    tci_words w;
    tci_dim *spec = tci_words_get(c->g, &w, 4 * n);
    bool valid = true;
    if (!spec) {
        return NULL;
    }
    for (int i = 0; valid && i < n; i++) {
        valid = tci_build_axis(c->g, (int)tci_dim_known(tci_named_word(c, "axis", i)),
                               c->in[0]->rank, &axis) &&
                c->in[0]->rank > 0;
        spec[4 * i] = axis;
        spec[4 * i + 1] = tci_named_word(c, "kernel", i);
        spec[4 * i + 2] = tci_named_word(c, "stride", i);
        spec[4 * i + 3] = tci_named_word(c, "dilation", i);
    }
    return tci_words_put(c->g, &w, valid ? tci_build_window(c->g, c->in[0], n, spec) : NULL);
}

static bool tci_named_repeats(const int *labels, int n)
{
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < i; k++) {
            if (labels[k] == labels[i]) {
                return true;
            }
        }
    }
    return false;
}

/* The labels of a, b and the result in one list. */
static tci_node *tci_named_contract(const tci_named *c)
{
    tci_node *a = c->in[0], *b = c->in[1];
    int n = tci_named_count(c, "labels"), rank_out = n - a->rank - b->rank;
    tci_words w;
    int *labels = tci_named_ints(c, "labels", &w);
    if (!labels) {
        return NULL;
    }
    int *of_b = labels + a->rank, *out = of_b + b->rank;
    bool valid = rank_out >= 0 && !tci_named_repeats(labels, a->rank) &&
                 !tci_named_repeats(of_b, b->rank) && !tci_named_repeats(out, rank_out);
    if (!valid) {
        tci_graph_fail(c->g, TC_ERR_ARGUMENT,
                       "contract of shapes %s and %s is given %d labels: expected one for each "
                       "axis of both and of the result, none twice in one of them",
                       TCI_SHAPE_TEXT(a), TCI_SHAPE_TEXT(b), n);
    }
    return tci_words_put(c->g, &w,
                         valid ? tci_build_contract(c->g, a, labels, b, of_b, rank_out, out)
                               : NULL);
}

static tci_node *tci_named_layer_norm(const tci_named *c)
{
    bool has_weight = tci_named_word(c, "has_weight", 0) != 0;
    bool has_bias = tci_named_word(c, "has_bias", 0) != 0;
    tci_words w;
    if (c->n_in != 2 + has_weight + has_bias) {
        tci_graph_fail(c->g, TC_ERR_ARGUMENT, "layer_norm is given %d inputs: expected x, eps%s%s",
                       c->n_in, has_weight ? ", a weight" : "", has_bias ? ", a bias" : "");
        return NULL;
    }
    int *list = tci_named_ints(c, "axes", &w);
    tc_axes axes = {list, tci_named_count(c, "axes"), false};
    tci_node *weight = has_weight ? c->in[2] : NULL;
    tci_node *bias = has_bias ? c->in[2 + has_weight] : NULL;
    if (!list) {
        return NULL;
    }
    return tci_words_put(c->g, &w,
                         tci_build_layer_norm(c->g, c->in[0], axes, weight, bias, c->in[1]));
}

/* ---- the ops ---- */

static tci_node *tci_named_make(const tci_named *c)
{
    tci_graph *g = c->g;
    tci_node *const *in = c->in;
    bool has_axis = c->op == TCI_OP_SCATTER ||
                    (c->list->n == 1 && tci_named_find(c, "axis") == 0);
    int axis = has_axis ? (int)tci_dim_known(tci_named_word(c, "axis", 0)) : 0;
    switch ((tci_op)c->op) {
    TCI_EW_OPS(TCI_OP_CASE) return tci_build_ew(g, c->op, in);
    TCI_REDUCE_OPS(TCI_OP_CASE)
    case TCI_OP_MEAN: return tci_named_over_axes(c);
    case TCI_OP_INPUT:
    case TCI_OP_DATA:
    case TCI_OP_LITERAL:
    case TCI_OP_CONST: break;
    case TCI_OP_SEGMENT:
        tci_graph_fail(g, TC_ERR_ARGUMENT,
                       "%s is made while planning: nothing makes one by its name",
                       tci_op_name(c->op));
        return NULL;
    case TCI_OP_IOTA: return tci_build_iota(g, tci_named_word(c, "length", 0));
    case TCI_OP_RANDOM: return tci_named_random(c);
    case TCI_OP_WHERE: return tci_build_where(g, in[0], in[1], in[2]);
    case TCI_OP_CAST: return tci_build_cast(g, in[0], (tc_dtype)tci_named_word(c, "dtype", 0));
    case TCI_OP_BITCAST:
        return tci_build_bitcast(g, in[0], (tc_dtype)tci_named_word(c, "dtype", 0));
    case TCI_OP_RESHAPE:
    case TCI_OP_EXPAND: return tci_named_shaped(c);
    case TCI_OP_PERMUTE: return tci_named_permute(c);
    case TCI_OP_SLICE: return tci_named_slice(c);
    case TCI_OP_PAD: return tci_named_pad(c);
    case TCI_OP_CAT: return tci_build_cat(g, in, c->n_in, axis);
    case TCI_OP_WINDOW: return tci_named_window(c);
    case TCI_OP_GATHER: return tci_build_gather(g, in[0], axis, in[1]);
    case TCI_OP_SCAN: return tci_build_scan(g, in[0], axis);
    case TCI_OP_SCATTER: /* whether stores are apart is not for users to say */
        return tci_build_scatter(g, in[0], axis, in[1], in[2],
                                 (tci_mode)tci_dim_known(tci_named_word(c, "mode", 0)));
    case TCI_OP_CONTRACT: return tci_named_contract(c);
    case TCI_OP_ASSIGN: return tci_build_param_assign(g, in[0], in[1]);
    case TCI_OP_SOFTMAX:
    case TCI_OP_LOG_SOFTMAX:
        return tci_build_softmax(g, in[0], axis, c->op == TCI_OP_LOG_SOFTMAX);
    case TCI_OP_LAYER_NORM: return tci_named_layer_norm(c);
    case TCI_OP_CROSS_ENTROPY: return tci_build_cross_entropy(g, in[0], in[1]);
    }
    tci_graph_fail(g, TC_ERR_ARGUMENT, "%s is a leaf: nothing makes one by its name",
                   tci_op_name(c->op));
    return NULL;
}

TCI_FN tci_node *tci_build_named(tci_graph *g, const char *op, int n_in, tci_node *const *in,
                                 int n_attrs, const tci_named_attr *attrs)
{
    tci_named c = {.g = g, .op = tci_op_find(op), .n_in = n_in, .in = in};
    if (c.op < 0) {
        tci_graph_fail(g, TC_ERR_ARGUMENT, "there is no op '%.60s'", op);
        return NULL;
    }
    c.list = tci_op_get(c.op)->attrs;
    bool valid = tci_named_check_inputs(&c) && tci_named_take(&c, n_attrs, attrs);
    return valid ? tci_named_make(&c) : NULL;
}
