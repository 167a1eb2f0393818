/* graph/verify.c - verifies the invariants of graph/node.h on all nodes that a set of roots needs.
 *
 * In: roots. Out: nothing, or TC_ERR_INTERNAL (longjmp) with a message that names the node and the
 * violation. Runs after each stage if options.verify (TC_VERIFY) is set. One function checks the
 * invariants of every node; one per family checks attributes and shapes. For symbolic sizes only a
 * provable violation is reported, since not every bound of an expression can be proven. */
#include "../ops/communicator.h"
#include "../ops/custom_op.h"
#include "build.h"
#include "loop_node.h"

#include <inttypes.h>
#include <string.h>

typedef struct tci_verify {
    tci_scratch *s;
    const tci_node *n;
} tci_verify;

static void tci_verify_that(const tci_verify *v, bool holds, const char *what)
{
    if (!holds) {
        bool valid = tci_dtype_is_valid(v->n->dtype);
        tci_scratch_fail(v->s, TC_ERR_INTERNAL, "graph: %s %s %s: %s", tci_op_name(v->n->op),
                         valid ? tci_dtype_get((tc_dtype)v->n->dtype)->name : "?",
                         TCI_SHAPE_TEXT(v->n), what);
    }
}

/* a <= b, as far as is known. */
static bool tci_verify_le(tci_dim a, tci_dim b)
{
    return tci_dim_is_valid(a) && tci_dim_is_valid(b) && !tci_dim_lt(b, a);
}

static bool tci_verify_same_shape(const tci_node *a, const tci_node *b)
{
    return tci_build_same_shape(a->rank, a->shape, b->rank, b->shape);
}

/* A word of an attribute is what its kind says. */
static bool tci_verify_word(const tci_attr_info *a, tci_dim word, int rank)
{
    bool plain = tci_dim_is_known(word) && tci_dim_le(0, word);
    switch ((tci_attr_kind)a->kind) {
    case TCI_ATTR_AXIS: return plain && tci_dim_lt(word, rank);
    case TCI_ATTR_SIZE: return tci_verify_le(1, word);
    case TCI_ATTR_PLACE: return tci_dim_is_valid(word);
    case TCI_ATTR_COUNT:
    case TCI_ATTR_LABEL: return plain;
    case TCI_ATTR_FLAG: return plain && tci_dim_le(word, 1);
    case TCI_ATTR_MODE: return plain && tci_dim_lt(word, TCI_MODE_COUNT);
    }
    return false;
}

static void tci_verify_words(const tci_verify *v)
{
    const tci_node *n = v->n;
    int rank = n->n_in ? n->in[0]->rank : 0;
    tci_verify_that(v, tci_op_takes_words(n->op, n->n_attr, rank), "wrong number of attributes");
    for (int i = 0; i < n->n_attr; i++) {
        const tci_attr_info *a = tci_op_attr(n->op, n->n_attr, i);
        if (!tci_verify_word(a, n->attr[i], rank)) {
            tci_verify_that(v, false, tci_scratch_printf(v->s, "%s out of range", a->name));
        }
    }
}

static void tci_verify_every(const tci_verify *v)
{
    const tci_node *n = v->n;
    int64_t count = 1;
    tci_verify_that(v, n->op < TCI_OP_COUNT, "no such op");
    tci_verify_that(v, tci_dtype_is_valid(n->dtype), "no such dtype");
    tci_verify_that(v, n->rank >= 0 && n->n_in >= 0 && n->n_attr >= 0, "negative counts");
    for (int i = 0; i < n->rank; i++) {
        tci_verify_that(v, tci_verify_le(0, n->shape[i]), "a negative size");
        int64_t size = TCI_MAX(tci_dim_most(n->shape[i]), 1);
        tci_verify_that(v, count <= INT64_MAX / size, "the element count overflows");
        count *= size;
    }
    const tci_op_info *row = tci_op_get(n->op);
    tci_verify_that(v, n->n_in >= row->least && n->n_in <= row->most, "wrong number of inputs");
    for (int i = 0; i < n->n_in; i++) {
        tci_verify_that(v, n->in[i] != NULL, "a NULL input");
        tci_verify_that(v, tci_op_get(n->in[i]->op)->results > 0, "an input without a result");
    }
    tci_verify_words(v);
}

static void tci_verify_ew(const tci_verify *v)
{
    const tci_node *n = v->n;
    tc_dtype operands = (tc_dtype)n->in[0]->dtype, want_operands, want;
    tci_build_ew_dtypes(TC_TORCH, n->op, operands, &want_operands, &want);
    tci_verify_that(v, want_operands == operands && want == n->dtype,
                    "dtypes against the op's rule");
    for (int i = 0; i < n->n_in; i++) {
        tci_verify_that(v, n->in[i]->dtype == operands, "operands of several dtypes");
        tci_verify_that(v, tci_verify_same_shape(n->in[i], n), "operands of another shape");
    }
}

/* Attributes [first, first + n_axes) are the reduced axes; the rest of x's axes is the result. */
static void tci_verify_dropped(const tci_verify *v, int first, int n_axes)
{
    const tci_node *n = v->n, *x = n->in[0];
    tci_verify_that(v, n->rank == x->rank - n_axes, "rank against the reduced axes");
    int at = 0, out = 0;
    for (int i = 0; i < x->rank; i++) {
        if (at < n_axes && n->attr[first + at] == i) {
            at++;
        } else {
            tci_verify_that(v, out < n->rank && n->shape[out] == x->shape[i],
                            "a kept axis has another size");
            out++;
        }
    }
    tci_verify_that(v, at == n_axes, "reduced axes not ascending or out of range");
}

static void tci_verify_reduce(const tci_verify *v)
{
    const tci_node *n = v->n;
    tci_verify_that(v, n->n_attr >= 1, "reduces no axis");
    if (tci_op_is(n->op, TCI_IS_ARG)) {
        tci_verify_that(v, n->n_attr == 1 && n->dtype == TC_I64, "an index of one axis is i64");
    } else {
        tci_verify_that(v, n->in[0]->dtype == n->dtype, "changes the dtype");
    }
    tci_verify_dropped(v, 0, n->n_attr);
}

static void tci_verify_leaf(const tci_verify *v)
{
    const tci_node *n = v->n;
    tci_verify_that(v, n->rank == 0 || !tci_op_is(n->op, TCI_IS_NUMBER), "a number is 0-d");
}

static void tci_verify_iota(const tci_verify *v)
{
    tci_verify_that(v, v->n->rank == 1 && v->n->dtype == TC_I64, "a ramp is 1-d and i64");
}

static void tci_verify_random(const tci_verify *v)
{
    const tci_node *n = v->n;
    tci_verify_that(v, n->dtype == TC_U32 || n->dtype == TC_U64, "random bits are u32 or u64");
    for (int i = 0; i < n->n_in; i++) {
        tci_verify_that(v, n->in[i]->dtype == TC_U64 && !n->in[i]->rank, "a key or stream");
    }
}

static void tci_verify_permute(const tci_verify *v)
{
    const tci_node *n = v->n, *x = n->in[0];
    tci_verify_that(v, n->rank == x->rank, "an entry per axis");
    for (int i = 0; i < n->rank; i++) {
        tci_verify_that(v, n->shape[i] == x->shape[n->attr[i]], "size of a moved axis");
        for (int k = 0; k < i; k++) {
            tci_verify_that(v, n->attr[k] != n->attr[i], "an axis twice");
        }
    }
}

/* (size - 1) * step is in [-most, most], as far as is known. */
static bool tci_verify_span(tci_dim size, tci_dim step, tci_dim most)
{
    int64_t steps = tci_dim_known(size) - 1, by = tci_dim_known(step), span;
    bool known = tci_dim_is_known(size) && tci_dim_is_known(step) && tci_dim_is_known(most);
    return !known || (!__builtin_mul_overflow(steps, by, &span) && span <= tci_dim_known(most) &&
                      span >= -tci_dim_known(most));
}

static void tci_verify_slice(const tci_verify *v)
{
    const tci_node *n = v->n, *x = n->in[0];
    tci_verify_that(v, n->rank == x->rank, "start and step per axis");
    for (int i = 0; i < n->rank; i++) {
        tci_dim start = n->attr[2 * i], step = n->attr[2 * i + 1], size = n->shape[i];
        if (tci_dim_le(1, size)) {
            tci_dim end = tci_dim_sub(x->shape[i], 1);
            tci_verify_that(v, tci_verify_le(start, end) && tci_verify_span(size, step, end),
                            "reaches outside of its input");
            tci_dim last = tci_dim_add(start, tci_dim_mul(tci_dim_sub(size, 1), step));
            bool inside = tci_verify_le(0, start) && tci_verify_le(start, end) &&
                          tci_verify_le(0, last) && tci_verify_le(last, end);
            tci_verify_that(v, inside, "reaches outside of its input");
        }
    }
}

static void tci_verify_expand(const tci_verify *v)
{
    const tci_node *n = v->n, *x = n->in[0];
    tci_verify_that(v, n->rank == x->rank, "keeps the rank");
    for (int i = 0; i < n->rank && i < x->rank; i++) {
        tci_verify_that(v, x->shape[i] == n->shape[i] || x->shape[i] == 1,
                        "repeats an axis longer than 1");
    }
}

static void tci_verify_window(const tci_verify *v)
{
    const tci_node *n = v->n, *x = n->in[0];
    int n_windows = n->rank - x->rank;
    tci_verify_that(v, n_windows >= 0 && n->n_attr == 4 * n_windows, "four words per window");
    for (int i = 0; i < n_windows; i++) {
        const tci_dim *a = tci_node_dims(n) + 4 * i;
        tci_verify_that(v, n->shape[x->rank + i] == a[1], "size of a window's axis");
        const int64_t axis = tci_dim_known(a[0]);
        tci_dim size = n->shape[axis], end = tci_dim_sub(x->shape[axis], 1);
        tci_verify_that(v,
                        size == 0 ||
                            (tci_verify_span(size, a[2], end) && tci_verify_span(a[1], a[3], end)),
                        "reaches outside of its input");
        tci_dim last = tci_dim_add(tci_dim_mul(tci_dim_sub(size, 1), a[2]),
                                   tci_dim_mul(tci_dim_sub(a[1], 1), a[3]));
        tci_verify_that(v, size == 0 || tci_verify_le(last, end), "reaches outside of its input");
    }
}

static void tci_verify_reshape(const tci_verify *v)
{
    tci_verify_that(v, tci_node_count(v->n) == tci_node_count(v->n->in[0]),
                    "changes the element count");
}

static void tci_verify_pad(const tci_verify *v)
{
    const tci_node *n = v->n;
    tci_verify_that(v, n->rank == n->in[0]->rank, "a count per axis");
    tci_verify_that(v, !n->in[1]->rank && n->in[1]->dtype == n->dtype,
                    "the fill is 0-d and of the same dtype");
}

/* Movement: the dtype, then what is its own. */
static void tci_verify_move(const tci_verify *v, void (*own)(const tci_verify *v))
{
    tci_verify_that(v, v->n->dtype == v->n->in[0]->dtype, "changes the dtype");
    own(v);
}

static void tci_verify_cat(const tci_verify *v)
{
    const tci_node *n = v->n;
    tci_dim size = 0;
    for (int i = 0; i < n->n_in; i++) {
        const tci_node *x = n->in[i];
        tci_verify_that(v, x->rank == n->rank && x->dtype == n->dtype,
                        "operands of another rank or dtype");
        for (int d = 0; d < n->rank; d++) {
            tci_verify_that(v, d == n->attr[0] || x->shape[d] == n->shape[d],
                            "operands of other sizes");
        }
        size = tci_dim_add(size, x->shape[n->attr[0]]);
    }
    tci_verify_that(v, size == n->shape[n->attr[0]], "size of the joined axis");
}

static void tci_verify_gather(const tci_verify *v)
{
    const tci_node *n = v->n;
    const tci_node *x = n->in[0], *index = n->in[1];
    tci_verify_that(v, n->dtype == x->dtype && tci_dtype_is_int((tc_dtype)index->dtype), "dtypes");
    tci_verify_that(v, tci_verify_same_shape(n, index) && x->rank == n->rank,
                    "has the shape of the index");
    for (int d = 0; d < n->rank; d++) {
        tci_verify_that(v, d == n->attr[0] || tci_verify_le(n->shape[d], x->shape[d]),
                        "index longer than x");
    }
}

static void tci_verify_scatter(const tci_verify *v)
{
    const tci_node *n = v->n, *x = n->in[0], *index = n->in[1], *src = n->in[2];
    tci_verify_that(v, n->dtype == x->dtype && n->dtype == src->dtype, "one dtype");
    tci_verify_that(v, tci_dtype_is_int((tc_dtype)index->dtype), "an integer index");
    tci_verify_that(v, n->attr[1] != TCI_MODE_ADD || !tci_dtype_is_half((tc_dtype)n->dtype),
                    "halves are not added up");
    tci_verify_that(v,
                    tci_verify_same_shape(n, x) && tci_verify_same_shape(index, src) &&
                        index->rank == n->rank,
                    "has the shape of x, an index for each element of src");
    tci_verify_that(v,
                    n->attr[2] == 0 || (n->attr[1] == TCI_MODE_SET && n->n_in == 3 &&
                                        tci_verify_same_shape(index, x)),
                    "stores that are apart are to all of x");
    tci_verify_that(v, n->n_in == 3 || (n->in[3]->dtype == TC_BOOL && n->in[3]->rank == 0),
                    "one bool says whether anything is stored");
    for (int d = 0; d < n->rank; d++) {
        tci_verify_that(v, d == n->attr[0] || tci_verify_le(index->shape[d], n->shape[d]),
                        "index longer than x");
    }
}

static void tci_verify_segment(const tci_verify *v)
{
    const tci_node *n = v->n, *x = n->in[0], *src = n->in[1], *order = n->in[2], *starts = n->in[3];
    tci_verify_that(v, n->dtype == x->dtype && n->dtype == src->dtype, "one dtype");
    tci_verify_that(v, order->dtype == TC_I64 && starts->dtype == TC_I64, "an order of i64");
    tci_verify_that(v, tci_verify_same_shape(n, x) && src->rank == n->rank, "has the shape of x");
    tci_verify_that(v,
                    order->rank == 1 && starts->rank == 1 &&
                        starts->shape[0] == tci_dim_add(n->shape[n->attr[0]], 1),
                    "a start for each element along the axis, and the end");
    for (int d = 0; d < n->rank; d++) {
        tci_verify_that(v, d == n->attr[0] || src->shape[d] == n->shape[d], "src of other sizes");
    }
}

/* The size that a label of the result or of an operand has, or -1. */
static tci_dim tci_verify_label_size(const tci_node *x, const int64_t *labels, int64_t label)
{
    for (int i = 0; i < x->rank; i++) {
        if (labels[i] == label) {
            return x->shape[i];
        }
    }
    return -1;
}

static void tci_verify_contract(const tci_verify *v)
{
    const tci_node *n = v->n;
    const tci_node *a = n->in[0], *b = n->in[1];
    bool ranks = n->attr[0] == a->rank && n->attr[1] == b->rank && n->attr[2] == n->rank;
    tci_verify_that(v, ranks && n->n_attr == 3 + a->rank + b->rank + n->rank,
                    "ranks against the attributes");
    bool wide = tci_dtype_is_half((tc_dtype)a->dtype) && n->dtype == TC_F32;
    tci_verify_that(v,
                    a->dtype == b->dtype && (a->dtype == n->dtype || wide) && n->dtype != TC_BOOL,
                    "one dtype, not bool, or f32 of halves");
    const int64_t *la = n->attr + 3, *lb = la + a->rank, *out = lb + b->rank;
    for (int i = 0; i < a->rank; i++) {
        tci_dim size = tci_verify_label_size(b, lb, la[i]);
        tci_verify_that(v, size == -1 || size == a->shape[i], "a label of two sizes");
        for (int k = 0; k < i; k++) {
            tci_verify_that(v, la[k] != la[i], "a label twice in one operand");
        }
    }
    for (int i = 0; i < n->rank; i++) {
        tci_dim in_a = tci_verify_label_size(a, la, out[i]),
                in_b = tci_verify_label_size(b, lb, out[i]);
        tci_verify_that(v, in_a == n->shape[i] || (in_a == -1 && in_b == n->shape[i]),
                        "size of a result's label");
    }
}

static void tci_verify_same_as_input(const tci_verify *v)
{
    const tci_node *n = v->n;
    tci_verify_that(v, n->dtype == n->in[0]->dtype && tci_verify_same_shape(n, n->in[0]),
                    "unlike its input");
}

static void tci_verify_scan(const tci_verify *v)
{
    const tci_node *n = v->n, *starts = n->n_in > 1 ? n->in[1] : NULL;
    tci_verify_same_as_input(v);
    tci_verify_that(v, n->rank > 0, "it has an axis");
    tci_verify_that(v, n->attr[2] != TCI_MODE_SET, "combines what it runs over");
    for (int i = 0; n->n_attr > 3 && i < n->rank; i++) {
        bool fits = i == n->attr[0] ? !starts && tci_dim_divides(n->attr[3], n->shape[i])
                                    : i < n->attr[0] || n->shape[i] == 1;
        tci_verify_that(v, fits, "so many linked parts of neighbours");
    }
    if (!starts) {
        return;
    }
    bool same = starts->rank == n->rank &&
                starts->dtype == tci_dtype_get((tc_dtype)n->dtype)->compute;
    for (int i = 0; same && i < n->rank; i++) {
        same = i == n->attr[0] ? tci_verify_le(1, starts->shape[i]) &&
                                     tci_dim_divides(starts->shape[i], n->shape[i])
                               : starts->shape[i] == n->shape[i];
    }
    tci_verify_that(v, same, "a start for each part of the axis");
}

static void tci_verify_where(const tci_verify *v)
{
    const tci_node *n = v->n;
    tci_verify_that(v,
                    n->in[0]->dtype == TC_BOOL && n->in[1]->dtype == n->dtype &&
                        n->in[2]->dtype == n->dtype,
                    "dtypes");
    for (int i = 0; i < 3; i++) {
        tci_verify_that(v, tci_verify_same_shape(n->in[i], n), "operands of another shape");
    }
}

static void tci_verify_assign(const tci_verify *v)
{
    const tci_node *n = v->n;
    tci_verify_that(v, n->in[0]->op == TCI_OP_DATA && !n->n_users, "an effect on a leaf");
    for (int i = 0; i < 2; i++) {
        tci_verify_that(v, n->in[i]->dtype == n->dtype && tci_verify_same_shape(n->in[i], n),
                        "the value is unlike the parameter");
    }
}

/* b is like a, or like one of its elements along the first axis. */
static void tci_verify_like(const tci_verify *v, const tci_node *a, int skipped, const tci_node *b)
{
    tci_verify_that(v,
                    a->dtype == b->dtype && a->rank == b->rank + skipped &&
                        tci_build_same_shape(b->rank, a->shape + skipped, b->rank, b->shape),
                    "a value unlike the one that stands for it");
}

/* The body of r needs nothing but its own BOUND nodes. */
static void tci_verify_closed(const tci_verify *v, const tci_repeat *r)
{
    tci_table own = tci_table_in(v->s, sizeof(bool));
    int n_bound = r->n_carry + r->n_x + r->n_held;
    for (int i = 0; i < n_bound; i++) {
        tci_verify_that(v, r->carry[i]->op == TCI_OP_BOUND, "a body that is given a value");
        tci_table_add(&own, r->carry[i]);
    }
    tci_node_list list = tci_graph_sort_outside(v->s, r->next, r->n_carry + r->n_y);
    for (int i = 0; i < list.n; i++) {
        int op = list.items[i]->op;
        bool leaf = tci_op_is(op, TCI_IS_LEAF);
        tci_verify_that(v,
                        !leaf || tci_op_is(op, TCI_IS_NUMBER) || op == TCI_OP_IOTA ||
                            tci_table_has(&own, list.items[i]),
                        "a body that is not closed");
    }
}

static void tci_verify_repeat(const tci_verify *v)
{
    const tci_node *n = v->n;
    const int64_t *a = n->attr, most = n->n_in;
    bool fits = a[0] <= most && a[1] <= most && a[2] <= most && a[3] <= most && a[6] <= most;
    fits = fits && 2 * (a[0] + a[1] + a[2]) + a[0] + a[3] == most;
    tci_verify_that(v, fits, "operands unlike its words");
    tci_repeat r = tci_repeat_of(n);
    int n_bound = r.n_carry + r.n_x + r.n_held;
    tci_verify_that(v, tci_verify_le(0, r.length), "a negative length");
    for (int i = 0; i < n_bound; i++) {
        bool is_x = i >= r.n_carry && i < r.n_carry + r.n_x;
        tci_verify_that(v, !is_x || (r.init[i]->rank > 0 && r.init[i]->shape[0] == r.length),
                        "another length than its inputs");
        tci_verify_like(v, r.init[i], is_x, r.carry[i]);
    }
    for (int i = 0; i < r.n_carry; i++) {
        tci_verify_like(v, r.carry[i], 0, r.next[i]);
    }
    tci_verify_that(v, r.stops < r.n_carry, "stops by a carry that is not there");
    if (r.stops >= 0) {
        const tci_node *go = r.carry[r.stops];
        tci_verify_that(v, go->dtype == TC_BOOL && !go->rank && !r.n_x && !r.n_y,
                        "stops by no 0-d bool, or walks along something");
    }
    tci_verify_closed(v, &r);
}

static void tci_verify_result(const tci_verify *v)
{
    const tci_node *n = v->n;
    tci_verify_that(v, n->in[0]->op == TCI_OP_REPEAT && n->n_in == 1 && n->n_attr == 1,
                    "not of a repetition");
    tci_repeat r = tci_repeat_of(n->in[0]);
    bool there = n->attr[0] < tci_repeat_n_results(&r);
    int i = there ? (int)n->attr[0] : 0, rows = i - r.n_carry - r.n_y;
    tci_verify_that(v, there && (r.stops < 0 || i < r.n_carry), "a result that is not there");
    tci_verify_like(v, n, i >= r.n_carry, rows < 0 ? r.next[i] : r.next[rows]);
    tci_verify_that(v, i < r.n_carry || n->shape[0] == tci_dim_add(r.length, rows >= 0),
                    "not all steps");
}

static void tci_verify_cast(const tci_verify *v)
{
    tci_verify_that(v, tci_verify_same_shape(v->n, v->n->in[0]), "changes the shape");
}

static void tci_verify_bitcast(const tci_verify *v)
{
    tc_dtype from = (tc_dtype)v->n->in[0]->dtype, to = (tc_dtype)v->n->dtype;
    tci_verify_cast(v);
    tci_verify_that(v, tci_dtype_get(from)->bytes == tci_dtype_get(to)->bytes, "sizes of dtypes");
    tci_verify_that(v, from != TC_BOOL && to != TC_BOOL, "a bool has no bits");
}

static void tci_verify_mean(const tci_verify *v)
{
    tci_verify_dropped(v, 0, v->n->n_attr);
}

static void tci_verify_layer_norm(const tci_verify *v)
{
    const tci_node *n = v->n;
    int64_t n_in = 2 + n->attr[n->n_attr - 2] + n->attr[n->n_attr - 1];
    tci_verify_that(v, n->n_attr == 3 + n->attr[0], "axes against their count");
    tci_verify_that(v, n->n_in == n_in, "inputs against the attributes");
    tci_verify_same_as_input(v);
}

static void tci_verify_cross_entropy(const tci_verify *v)
{
    tci_verify_that(v, !v->n->rank, "the loss is 0-d");
}

/* A row more than the square that it is of. */
static void tci_verify_lu(const tci_verify *v)
{
    const tci_node *n = v->n, *x = n->in[0];
    tci_verify_that(v,
                    n->rank == x->rank && n->rank >= 2 &&
                        n->shape[n->rank - 1] == x->shape[n->rank - 1] &&
                        n->shape[n->rank - 2] == tci_dim_add(n->shape[n->rank - 1], 1),
                    "no row more than columns");
}

static void tci_verify_solved(const tci_verify *v)
{
    const tci_node *n = v->n, *b = n->in[n->n_in - 1];
    tci_verify_that(v,
                    n->dtype == b->dtype && tci_verify_same_shape(n, b) && n->rank >= 2 &&
                        n->in[0]->rank == n->rank &&
                        n->in[0]->shape[n->rank - 1] == n->shape[n->rank - 2],
                    "unlike its right side");
}

static void tci_verify_cholesky(const tci_verify *v)
{
    const tci_node *n = v->n;
    tci_verify_same_as_input(v);
    tci_verify_that(v, n->rank >= 2 && n->shape[n->rank - 1] == n->shape[n->rank - 2],
                    "no square matrices");
}

static void tci_verify_conv_transpose(const tci_verify *v)
{
    const tci_node *n = v->n, *x = n->in[0], *w = n->in[1];
    const bool ranks = n->rank >= 3 && x->rank == n->rank && w->rank == n->rank &&
                       n->n_attr == 1 + 3 * (n->rank - 2);
    tci_verify_that(v, ranks, "ranks against the attributes");
    tci_verify_that(v,
                    n->shape[0] == x->shape[0] && x->shape[1] == w->shape[0] &&
                        n->shape[1] == tci_dim_mul(w->shape[1], n->attr[0]),
                    "images or channels");
}

static void tci_verify_topk(const tci_verify *v)
{
    const tci_node *n = v->n, *x = n->in[0];
    tci_verify_that(v, n->dtype == TC_I64 && n->rank == x->rank, "not i64, or of another rank");
    for (int d = 0; d < n->rank; d++) {
        tci_verify_that(v,
                        d == n->attr[0] ? tci_verify_le(n->shape[d], x->shape[d])
                                        : n->shape[d] == x->shape[d],
                        "more than there are");
    }
}

static void tci_verify_custom(const tci_verify *v)
{
    bool known = v->n->n_in <= TC_CUSTOM_MOST && v->n->rank <= TC_CUSTOM_MOST;
    bool split = v->n->attr[0] >= TCI_CUSTOM_SPLIT; /* of an engine */
    tci_verify_that(v, split || (known && tci_custom_get(v->n->attr[0])),
                    "a custom op that is not registered");
}

static void tci_verify_collective(const tci_verify *v)
{
    const tci_node *n = v->n, *x = n->in[0];
    const int64_t verb = n->attr[TCI_COLLECTIVE_VERB], ranks = n->attr[TCI_COLLECTIVE_RANKS];
    int more = verb == TC_COMM_ALL_GATHER, less = verb == TC_COMM_REDUCE_SCATTER;
    tci_verify_that(v,
                    verb >= 0 && verb < (int64_t)TC_COMM_VERB_COUNT && ranks > 0 &&
                        n->attr[TCI_COLLECTIVE_PEER] >= 0 && n->attr[TCI_COLLECTIVE_PEER] < ranks &&
                        n->attr[TCI_COLLECTIVE_HOW] < TC_COMM_MEAN,
                    "no such collective");
    if (verb == TC_COMM_BARRIER) {
        tci_verify_that(v, n->dtype == TC_BOOL && n->rank == 0, "no 0-d bool");
        return;
    }
    tci_verify_that(v, n->dtype == x->dtype && n->rank + less == x->rank + more,
                    "unlike its input");
    tci_verify_that(v, !more || n->shape[0] == ranks, "no axis of ranks");
    tci_verify_that(v, !(less || verb == TC_COMM_ALL_TO_ALL) || x->shape[0] == ranks,
                    "its input has no axis of ranks");
    for (int d = more; d < n->rank; d++) {
        tci_verify_that(v, n->shape[d] == x->shape[d - more + less], "of another shape");
    }
}

static void tci_verify_composite(const tci_verify *v, void (*own)(const tci_verify *v))
{
    const tci_node *n = v->n;
    tci_verify_that(v, tci_dtype_is_float((tc_dtype)n->dtype) && n->dtype == n->in[0]->dtype,
                    "float, as its input");
    own(v);
}

static void tci_verify_node(const tci_verify *v)
{
    tci_verify_every(v);
    switch ((tci_op)v->n->op) {
        TCI_EW_OPS(TCI_OP_CASE) tci_verify_ew(v);
        break;
        TCI_REDUCE_OPS(TCI_OP_CASE) tci_verify_reduce(v);
        break;
    case TCI_OP_INPUT:
    case TCI_OP_DATA:
    case TCI_OP_LITERAL:
    case TCI_OP_CONST: tci_verify_leaf(v); break;
    case TCI_OP_IOTA: tci_verify_iota(v); break;
    case TCI_OP_RANDOM: tci_verify_random(v); break;
    case TCI_OP_WHERE: tci_verify_where(v); break;
    case TCI_OP_CAST: tci_verify_cast(v); break;
    case TCI_OP_BITCAST: tci_verify_bitcast(v); break;
    case TCI_OP_RESHAPE: tci_verify_move(v, tci_verify_reshape); break;
    case TCI_OP_PERMUTE: tci_verify_move(v, tci_verify_permute); break;
    case TCI_OP_EXPAND: tci_verify_move(v, tci_verify_expand); break;
    case TCI_OP_SLICE: tci_verify_move(v, tci_verify_slice); break;
    case TCI_OP_PAD: tci_verify_move(v, tci_verify_pad); break;
    case TCI_OP_CAT: tci_verify_cat(v); break;
    case TCI_OP_WINDOW: tci_verify_move(v, tci_verify_window); break;
    case TCI_OP_GATHER: tci_verify_gather(v); break;
    case TCI_OP_SCAN: tci_verify_scan(v); break;
    case TCI_OP_SCATTER: tci_verify_scatter(v); break;
    case TCI_OP_SEGMENT: tci_verify_segment(v); break;
    case TCI_OP_CONTRACT: tci_verify_contract(v); break;
    case TCI_OP_BOUND: break;
    case TCI_OP_REPEAT: tci_verify_repeat(v); break;
    case TCI_OP_RESULT: tci_verify_result(v); break;
    case TCI_OP_ASSIGN: tci_verify_assign(v); break;
    case TCI_OP_SOFTMAX:
    case TCI_OP_LOG_SOFTMAX:
    case TCI_OP_STOP_GRADIENT: tci_verify_composite(v, tci_verify_same_as_input); break;
    case TCI_OP_CHOLESKY: tci_verify_composite(v, tci_verify_cholesky); break;
    case TCI_OP_WITH_DERIVATIVE:
        tci_verify_composite(v, tci_verify_same_as_input);
        tci_verify_like(v, v->n, 0, v->n->in[1]);
        break;
    case TCI_OP_SHARD: tci_verify_same_as_input(v); break;
    case TCI_OP_LU: tci_verify_composite(v, tci_verify_lu); break;
    case TCI_OP_SOLVE:
    case TCI_OP_SOLVE_TRIANGULAR: tci_verify_composite(v, tci_verify_solved); break;
    case TCI_OP_BARRIER: tci_verify_like(v, v->n, 0, v->n->in[0]); break;
    case TCI_OP_MEAN: tci_verify_composite(v, tci_verify_mean); break;
    case TCI_OP_LAYER_NORM: tci_verify_composite(v, tci_verify_layer_norm); break;
    case TCI_OP_CROSS_ENTROPY: tci_verify_composite(v, tci_verify_cross_entropy); break;
    case TCI_OP_NAMED:
        tci_verify_composite(v, tci_verify_same_as_input);
        tci_verify_that(v, v->n->attr[0] >= 0 && v->n->attr[0] < TCI_NAMED_COUNT, "no such call");
        break;
    case TCI_OP_CONV_TRANSPOSE: tci_verify_composite(v, tci_verify_conv_transpose); break;
    case TCI_OP_TOPK: tci_verify_topk(v); break;
    case TCI_OP_CUSTOM: tci_verify_custom(v); break;
    case TCI_OP_COLLECTIVE: tci_verify_collective(v); break;
    }
}

/* tci_graph_sort lists inputs first by construction, and would not end on a cycle it cannot meet:
 * nodes are made after their inputs and never changed. */
TCI_FN void tci_graph_verify(tci_scratch *s, tci_node *const *roots, int n_roots)
{
    tci_node_list list = tci_graph_sort(s, roots, n_roots);
    for (int i = 0; i < list.n; i++) {
        tci_verify v = {s, list.items[i]};
        tci_verify_node(&v);
    }
}
