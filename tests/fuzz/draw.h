/* tests/fuzz/draw.h - draws random recipes.
 *
 * A step is drawn with attributes that usually fit its operand; what tc refuses is drawn again.
 * Sizes 0 and 1 are frequent; one graph in fifteen is large enough for several threads. */
#ifndef TC_TEST_FUZZ_DRAW_H
#define TC_TEST_FUZZ_DRAW_H

#include "recipe.h"

enum { FZ_MOST = 4000, FZ_MOST_LARGE = 200000 };

typedef struct fz_draw {
    fz_recipe *f;
    fz_random r;
    fz_graph *g;
    tc_ctx *ctx;
    bool large;
    double most;
    uint64_t turn; /* rows are drawn by seed in turn, so that a short run meets all of them */
} fz_draw;

static int fz_pick(fz_draw *d, int n)
{
    return fz_below(&d->r, n);
}

static bool fz_chance(fz_draw *d, int percent)
{
    return fz_pick(d, 100) < percent;
}

static tc_dtype fz_pick_dtype(fz_draw *d)
{
    static const tc_dtype often[] = {TC_F32, TC_F32, TC_F32, TC_F64,  TC_BF16,
                                     TC_F16, TC_I32, TC_I64, TC_BOOL, TC_U8};
    return fz_chance(d, 80) ? often[fz_pick(d, 10)]
                            : (tc_dtype)(TC_BOOL + fz_pick(d, TC_DTYPE_COUNT - TC_BOOL));
}

static int64_t fz_pick_size(fz_draw *d)
{
    static const int64_t sizes[] = {0, 1, 1, 2, 3, 3, 4, 5, 7, 8, 13, 16, 17, 33, 65};
    static const int64_t large[] = {1, 3, 64, 100, 129, 300, 512, 1000};
    return d->large ? large[fz_pick(d, 8)] : sizes[fz_pick(d, 15)];
}

/* Keeps the step when tc takes it; -1 when not. */
static int fz_keep(fz_draw *d, fz_step *s)
{
    fz_recipe *f = d->f;
    if (f->n == FZ_MAX_STEPS || d->g->n_inputs == FZ_MAX_STEPS) {
        return -1;
    }
    f->steps[f->n] = *s;
    int n_inputs = d->g->n_inputs, n_borrowed = d->g->n_borrowed;
    bool fits = fz_build_step(f, f->n, d->ctx, d->g) && fz_count(&f->steps[f->n]) <= d->most;
    if (!fits) {
        d->g->n_inputs = n_inputs;
        while (d->g->n_borrowed > n_borrowed) {
            free(d->g->borrowed[--d->g->n_borrowed]);
        }
        return -1;
    }
    return f->n++;
}

static int fz_new_leaf(fz_draw *d, tc_dtype t, int rank, const int64_t *sizes)
{
    fz_step s;
    memset(&s, 0, sizeof(s));
    s.kind = fz_chance(d, 25) ? FZ_BORROW : FZ_INPUT;
    s.dtype = t;
    s.rank = rank;
    memcpy(s.sizes, sizes, sizeof(*sizes) * (size_t)rank);
    s.attr[0] = fz_chance(d, 50)   ? FZ_DATA_WHOLE
                : fz_chance(d, 60) ? FZ_DATA_UNIT
                                   : FZ_DATA_CORNERS;
    for (int i = 0; i < rank && s.kind == FZ_BORROW; i++) {
        s.attr[2 + i] = fz_pick(d, 4);
    }
    return fz_keep(d, &s);
}

static int fz_new_index(fz_draw *d, int rank, const int64_t *sizes, int64_t bound)
{
    fz_step s;
    memset(&s, 0, sizeof(s));
    s.kind = FZ_INPUT;
    s.dtype = fz_chance(d, 50) ? TC_I64 : TC_I32;
    s.rank = rank;
    memcpy(s.sizes, sizes, sizeof(*sizes) * (size_t)rank);
    s.attr[0] = FZ_DATA_INDEX;
    s.attr[1] = bound;
    s.attr[2] = fz_chance(d, 3) ? 1 + fz_pick(d, 1000) : 0;
    return fz_keep(d, &s);
}

static int fz_random_leaf(fz_draw *d)
{
    int64_t sizes[FZ_MAX_RANK];
    int rank = d->large ? 1 + fz_pick(d, 2) : fz_pick(d, 5);
    double n = 1;
    for (int i = 0; i < rank; i++) {
        sizes[i] = fz_pick_size(d);
        sizes[i] = n * (double)sizes[i] > d->most / 4 ? 1 : sizes[i];
        n *= (double)sizes[i];
    }
    return fz_new_leaf(d, fz_pick_dtype(d), rank, sizes);
}

/* Any earlier step, rather a late one. */
static int fz_any(fz_draw *d)
{
    int n = d->f->n, at = fz_chance(d, 60) ? n - 1 - fz_pick(d, n < 4 ? n : 4) : fz_pick(d, n);
    return at;
}

/* A step that broadcasts with `other`: one of the same shape, or a new leaf with some axes of 1. */
static int fz_mate(fz_draw *d, int other)
{
    const fz_step *o = &d->f->steps[other];
    int64_t sizes[FZ_MAX_RANK];
    for (int tries = 0; tries < 6; tries++) {
        int i = fz_any(d);
        const fz_step *s = &d->f->steps[i];
        if (s->rank == 0 ||
            (s->rank == o->rank && !memcmp(s->sizes, o->sizes, sizeof(*sizes) * (size_t)o->rank))) {
            return i;
        }
    }
    int skip = fz_chance(d, 30) && o->rank > 0 ? fz_pick(d, o->rank + 1) : 0;
    for (int i = skip; i < o->rank; i++) {
        sizes[i - skip] = fz_chance(d, 25) ? 1 : o->sizes[i];
    }
    return fz_new_leaf(d, fz_chance(d, 60) ? o->dtype : fz_pick_dtype(d), o->rank - skip, sizes);
}

static tc_arg fz_number(fz_draw *d)
{
    static const double numbers[] = {0, 1, -1, 2, 0.5, 3, -0.25, 7, 1e-3, 100};
    double v = numbers[fz_pick(d, 10)];
    return v == floor(v) && fz_chance(d, 60) ? tci_arg_int((long long)v) : tci_arg_float(v);
}

static int fz_pick_axis(fz_draw *d, const fz_step *x)
{
    int rank = x->rank > 0 ? x->rank : 1, axis = fz_pick(d, rank);
    return fz_chance(d, 40) ? axis - rank : axis;
}

static int64_t fz_size_at(const fz_step *x, int64_t axis)
{
    return x->rank == 0 ? 1 : x->sizes[axis < 0 ? axis + x->rank : axis];
}

/* attr: how many, keepdims, then the axes; none: all. */
static void fz_draw_axes(fz_draw *d, fz_step *s, const fz_step *x)
{
    s->attr[1] = fz_chance(d, 30);
    if (fz_chance(d, 15)) {
        return;
    }
    for (int i = 0; i < x->rank && s->attr[0] < 4; i++) {
        if (fz_chance(d, 45)) {
            s->attr[2 + s->attr[0]++] = fz_chance(d, 30) ? i - x->rank : i;
        }
    }
}

/* A float that sums are exact over, most of the time. */
static int fz_tamed(fz_draw *d, int x)
{
    fz_step s;
    if (!fz_is_float(d->f->steps[x].dtype) || d->f->steps[x].whole > 0 || fz_chance(d, 15)) {
        return x;
    }
    memset(&s, 0, sizeof(s));
    s.kind = FZ_TAME;
    s.n_in = 1;
    s.in[0] = x;
    int tamed = fz_keep(d, &s);
    return tamed < 0 ? x : tamed;
}

static bool fz_takes_floats(int op)
{
#define TCI_ROW(id, name, arity, rule, ...) #rule,
    static const char *const rules[] = {TCI_EW_OPS(TCI_ROW)};
#undef TCI_ROW
    return strcmp(rules[op], "INTEGER") && strcmp(rules[op], "WORD");
}

static void fz_draw_ew(fz_draw *d, fz_step *s)
{
    s->op = d->turn % 2 ? fz_pick(d, TCI_OP_EW_END) : (int)((d->f->seed + d->turn) % TCI_OP_EW_END);
    d->turn++;
    s->n_in = fz_arity(s->op);
    s->in[0] = fz_any(d);
    if (!fz_takes_floats(s->op) && fz_is_float(d->f->steps[s->in[0]].dtype)) {
        fz_step x = d->f->steps[s->in[0]];
        tc_dtype t = (tc_dtype)(TC_U8 + fz_pick(d, TC_I64 - TC_U8 + 1));
        int whole = fz_new_leaf(d, t, x.rank, x.sizes);
        s->in[0] = whole < 0 ? s->in[0] : whole;
    }
    for (int i = 1; i < s->n_in; i++) {
        s->in[i] = fz_mate(d, s->in[0]);
        if (fz_chance(d, 20)) {
            s->in[i] = -1;
            s->number[i] = fz_number(d);
        }
    }
    if (s->n_in == 2 && fz_chance(d, 30)) {
        int first = s->in[0];
        tc_arg number = s->number[0];
        s->in[0] = s->in[1];
        s->number[0] = s->number[1];
        s->in[1] = first;
        s->number[1] = number;
    }
}

static void fz_draw_reshape(fz_draw *d, fz_step *s, const fz_step *x)
{
    int64_t n = (int64_t)fz_count(x);
    int rank = fz_pick(d, 4);
    s->attr[0] = rank;
    for (int i = 0; i < rank; i++) {
        int64_t size = i + 1 == rank ? n : fz_pick(d, 6);
        while (i + 1 < rank && size > 0 && n % size) {
            size--;
        }
        s->attr[1 + i] = size > 0 ? size : n == 0 ? 0 : 1;
        n = s->attr[1 + i] ? n / s->attr[1 + i] : 0;
    }
    if (rank && fz_count(x) > 0 && fz_chance(d, 30)) {
        s->attr[1 + fz_pick(d, rank)] = -1;
    }
}

static void fz_draw_order(fz_draw *d, fz_step *s, const fz_step *x)
{
    s->attr[0] = x->rank;
    for (int i = 0; i < x->rank; i++) {
        int at = fz_pick(d, i + 1);
        s->attr[1 + i] = s->attr[1 + at];
        s->attr[1 + at] = i;
    }
}

static void fz_draw_move(fz_draw *d, fz_step *s)
{
    s->n_in = 1;
    s->in[0] = fz_any(d);
    const fz_step *x = &d->f->steps[s->in[0]];
    s->attr[0] = fz_pick_axis(d, x);
    int64_t size = fz_size_at(x, s->attr[0]);
    switch (s->kind) {
    case FZ_RESHAPE: fz_draw_reshape(d, s, x); break;
    case FZ_PERMUTE: fz_draw_order(d, s, x); break;
    case FZ_EXPAND:
        s->attr[0] = x->rank + fz_chance(d, 40);
        for (int i = 0, more = (int)s->attr[0] - x->rank; i < s->attr[0]; i++) {
            int64_t own = i < more ? 1 : x->sizes[i - more];
            s->attr[1 + i] = own == 1 ? fz_pick_size(d) : fz_chance(d, 50) && i >= more ? -1 : own;
        }
        break;
    case FZ_UNSQUEEZE:
        s->attr[0] = fz_pick(d, x->rank + 1) - (fz_chance(d, 30) ? x->rank + 1 : 0);
        break;
    case FZ_SLICE:
        s->attr[3] = fz_chance(d, 30) ? -1 - fz_pick(d, 3) : 1 + fz_pick(d, 3);
        s->attr[1] = s->attr[3] < 0 ? size - fz_pick(d, 3) : fz_pick(d, 4) - fz_pick(d, 2) * 2;
        s->attr[2] = fz_chance(d, 40) ? TC_END : fz_pick(d, (int)size + 3) - fz_pick(d, 4);
        break;
    case FZ_PAD:
        s->n_in = 2;
        s->in[1] = -1;
        s->number[1] = fz_number(d);
        s->attr[1] = fz_pick(d, 6) - 2;
        s->attr[2] = fz_pick(d, 6) - 2;
        break;
    case FZ_TOPK:
        s->attr[1] = fz_pick(d, (int)size + 1);
        s->attr[2] = fz_pick(d, 2);
        s->attr[3] = fz_pick(d, 2);
        break;
    default: break;
    }
}

/* Of integers: which NaN a float is differs between executors. */
static void fz_draw_bitcast(fz_draw *d, fz_step *s)
{
    s->n_in = 1;
    s->in[0] = fz_any(d);
    tc_dtype from = d->f->steps[s->in[0]].dtype;
    int bytes = tci_dtype_get(from)->bytes;
    if (from == TC_BOOL || fz_is_float(from)) {
        s->n_in = -1;
        return;
    }
    do {
        s->attr[0] = fz_pick_dtype(d);
    } while (s->attr[0] == TC_BOOL || tci_dtype_get((tc_dtype)s->attr[0])->bytes != bytes);
}

static void fz_draw_cat(fz_draw *d, fz_step *s)
{
    s->n_in = 1 + fz_pick(d, 3);
    s->in[0] = fz_any(d);
    s->attr[0] = fz_pick_axis(d, &d->f->steps[s->in[0]]);
    for (int i = 1; i < s->n_in; i++) {
        fz_step x = d->f->steps[s->in[0]];
        int axis = (int)(s->attr[0] < 0 ? s->attr[0] + x.rank : s->attr[0]);
        s->in[i] = s->in[0];
        if (fz_chance(d, 70) && x.rank > 0) {
            x.sizes[axis] = fz_pick_size(d) % 20;
            s->in[i] = fz_new_leaf(d, x.dtype, x.rank, x.sizes);
        }
        s->in[i] = s->in[i] < 0 ? s->in[0] : s->in[i];
    }
}

static void fz_draw_gather(fz_draw *d, fz_step *s)
{
    int64_t sizes[FZ_MAX_RANK];
    s->n_in = 2;
    s->in[0] = fz_any(d);
    fz_step x = d->f->steps[s->in[0]];
    s->attr[0] = fz_pick_axis(d, &x);
    int64_t bound = fz_size_at(&x, s->attr[0]);
    int axis = (int)(s->attr[0] < 0 ? s->attr[0] + x.rank : s->attr[0]);
    for (int i = 0; i < x.rank; i++) {
        sizes[i] = i == axis ? fz_pick_size(d) : fz_chance(d, 70) ? x.sizes[i] : x.sizes[i] / 2;
    }
    int64_t one[1] = {bound ? fz_pick_size(d) : 0};
    if (bound == 0 && x.rank > 0) {
        sizes[axis] = 0;
    }
    s->in[1] = s->kind != FZ_INDEX_SELECT ? fz_new_index(d, x.rank, sizes, bound)
                                          : fz_new_index(d, 1, one, bound);
    if (s->kind == FZ_SCATTER) {
        s->n_in = 3;
        s->in[2] = fz_new_leaf(d, x.dtype, x.rank, sizes);
        s->attr[1] = fz_pick(d, TCI_MODE_COUNT);
    }
}

static void fz_draw_over(fz_draw *d, fz_step *s)
{
    s->n_in = 1;
    s->op = TCI_OP_EW_END + (int)((d->f->seed + d->turn) % (TCI_OP_REDUCE_END - TCI_OP_EW_END));
    s->in[0] = fz_tamed(d, fz_any(d));
    fz_step x = d->f->steps[s->in[0]];
    fz_draw_axes(d, s, &x);
    bool arg = s->kind == FZ_REDUCE && (s->op == TCI_OP_ARGMAX || s->op == TCI_OP_ARGMIN);
    if (arg || s->kind == FZ_CUMSUM || s->kind == FZ_SOFTMAX || s->kind == FZ_LOG_SOFTMAX) {
        s->attr[0] = 1;
        s->attr[2] = fz_pick_axis(d, &x);
    }
    if (s->kind == FZ_LAYER_NORM && x.rank > 0) {
        int n = 1 + fz_pick(d, x.rank);
        s->attr[0] = n;
        for (int i = 0; i < n; i++) {
            s->attr[2 + i] = x.rank - n + i;
        }
        for (int k = 0, more = fz_pick(d, 3); k < more; k++) {
            s->in[s->n_in] = fz_new_leaf(d, x.dtype, n, x.sizes + x.rank - n);
            s->n_in += s->in[s->n_in] >= 0;
        }
    }
    if (s->kind == FZ_CROSS_ENTROPY) {
        int64_t sizes[FZ_MAX_RANK];
        int axis = x.rank > 1 ? 1 : 0, n = 0;
        for (int i = 0; i < x.rank; i++) {
            sizes[n] = x.sizes[i];
            n += i != axis;
        }
        s->n_in = 2;
        s->in[1] = fz_new_index(d, n, sizes, fz_size_at(&x, axis));
    }
}

static void fz_draw_product(fz_draw *d, fz_step *s)
{
    int64_t sizes[FZ_MAX_RANK];
    s->in[0] = fz_tamed(d, fz_any(d));
    fz_step x = d->f->steps[s->in[0]];
    s->n_in = 1;
    s->attr[0] = fz_pick(d, 48);
    if (s->kind == FZ_EINSUM && fz_chance(d, 30)) {
        return;
    }
    int rank = x.rank > 0 && fz_chance(d, 30) ? 1 : x.rank;
    memcpy(sizes, x.sizes, sizeof(sizes));
    if (s->kind == FZ_MATMUL && rank > 0) {
        sizes[rank > 1 ? rank - 2 : 0] = x.sizes[x.rank - 1];
        if (rank > 1) {
            sizes[rank - 1] = 1 + fz_pick(d, 20);
        }
    } else if (rank == 2 && fz_chance(d, 50)) {
        sizes[0] = x.sizes[x.rank - 1];
        sizes[1] = 1 + fz_pick(d, 20);
    }
    s->n_in = 2;
    s->in[1] = fz_chance(d, 20) ? s->in[0] : fz_new_leaf(d, x.dtype, rank, sizes);
}

static void fz_draw_window(fz_draw *d, fz_step *s)
{
    int64_t sizes[4] = {1 + fz_pick(d, 2), 1 + fz_pick(d, 4), 3 + fz_pick(d, 8), 3 + fz_pick(d, 8)};
    tc_dtype t = s->kind == FZ_CONV ? (fz_chance(d, 70) ? TC_F32 : TC_BF16) : fz_pick_dtype(d);
    s->n_in = 1;
    s->in[0] = fz_new_leaf(d, t, 4, sizes);
    for (int i = 0; i < 2; i++) {
        s->attr[i] = 1 + fz_pick(d, 2);
        s->attr[2 + i] = 1 + fz_pick(d, 2);
    }
    s->attr[4] = fz_pick(d, 2);
    s->attr[5] = 1;
    s->attr[6] = fz_pick(d, 2);
    if (s->kind == FZ_CONV) {
        int groups = fz_chance(d, 30) ? (int)sizes[1] : 1;
        int64_t of[4] = {groups * (1 + fz_pick(d, 3)), sizes[1] / groups, 1 + fz_pick(d, 3),
                         1 + fz_pick(d, 3)};
        s->attr[5] = groups;
        s->attr[7] = s->attr[6] && s->attr[3] == 2; /* transposed, without padding */
        if (s->attr[7]) {
            s->attr[2] = s->attr[3] = 0;
            of[1] = of[0] / groups;
            of[0] = sizes[1];
        }
        s->in[s->n_in++] = fz_new_leaf(d, t, 4, of);
    }
}

static void fz_draw_linear(fz_draw *d, fz_step *s)
{
    const int n = 1 + fz_pick(d, 5);
    const int64_t a[3] = {1 + fz_pick(d, 2), n, n}, b[3] = {a[0], n, 1 + fz_pick(d, 4)};
    const tc_dtype t = fz_chance(d, 70) ? TC_F32 : fz_chance(d, 50) ? TC_F64 : TC_BF16;
    s->n_in = 2;
    s->attr[0] = fz_pick(d, 4);
    s->attr[1] = fz_pick(d, 2);
    s->in[0] = fz_new_leaf(d, t, 3, a);
    s->in[1] = fz_new_leaf(d, t, 3, b);
}

/* A constant of the dtype of another step, and of its shape or of shape []. */
static int fz_new_constant(fz_draw *d, int like)
{
    fz_step s = {.kind = FZ_FULL};
    const fz_step *x = &d->f->steps[like];
    s.dtype = x->dtype;
    s.rank = fz_chance(d, 50) ? x->rank : 0;
    memcpy(s.sizes, x->sizes, sizeof(s.sizes));
    s.number[0] = fz_number(d);
    return fz_keep(d, &s);
}

/* Over the rows of x, with a carry like one of them. */
static void fz_draw_loop(fz_draw *d, fz_step *s)
{
    s->in[0] = fz_any(d);
    fz_step x = d->f->steps[s->in[0]];
    s->n_in = x.rank > 0 ? 2 : -1;
    s->in[1] = x.rank > 0 ? fz_new_leaf(d, x.dtype, x.rank - 1, x.sizes + 1) : -1;
    s->attr[0] = fz_pick(d, 4);
    s->attr[1] = fz_pick(d, 2);
    s->attr[2] = fz_pick(d, 2);
    s->attr[3] = fz_pick(d, FZ_LOOPS);
    if (s->n_in == 2 && s->in[1] >= 0 && fz_chance(d, 70)) {
        s->attr[4] = fz_pick(d, 3);
        s->in[2] = fz_chance(d, 50) ? fz_new_constant(d, s->in[1]) : fz_mate(d, s->in[1]);
        s->n_in += s->in[2] >= 0;
    }
}

static void fz_draw_made(fz_draw *d, fz_step *s)
{
    s->dtype = fz_pick_dtype(d);
    s->number[0] = fz_number(d);
    if (s->kind == FZ_ARANGE) {
        s->number[1] = tci_arg_int(fz_pick(d, 20));
        s->number[2] = fz_chance(d, 70) ? tci_arg_int(1 + fz_pick(d, 2)) : tci_arg_float(0.5);
        return;
    }
    s->attr[0] = fz_pick(d, 2);
    s->attr[1] = fz_pick(d, 1000);
    s->rank = fz_pick(d, 3);
    for (int i = 0; i < s->rank; i++) {
        s->sizes[i] = fz_pick_size(d) % 34;
    }
}

/* One step more, or nothing. */
static void fz_draw_step(fz_draw *d)
{
    fz_step s;
    memset(&s, 0, sizeof(s));
    int first = d->f->n;
    s.kind = fz_chance(d, 40)   ? FZ_EW
             : fz_chance(d, 20) ? FZ_REDUCE
                                : (fz_kind)(FZ_REDUCE + fz_pick(d, FZ_TAME - FZ_REDUCE));
    switch (s.kind) {
    case FZ_EW: fz_draw_ew(d, &s); break;
    case FZ_WHERE:
        s.n_in = 3;
        s.in[1] = fz_any(d);
        s.in[0] = fz_mate(d, s.in[1]);
        s.in[2] = fz_mate(d, s.in[1]);
        break;
    case FZ_CAST:
        s.n_in = 1;
        s.in[0] = fz_any(d);
        s.attr[0] = fz_pick_dtype(d);
        break;
    case FZ_BITCAST: fz_draw_bitcast(d, &s); break;
    case FZ_FULL:
    case FZ_ARANGE:
    case FZ_RANDOM: fz_draw_made(d, &s); break;
    case FZ_DROPOUT:
        s.n_in = 1;
        s.in[0] = fz_any(d);
        s.attr[0] = fz_pick(d, 6);
        s.attr[1] = fz_pick(d, 1000);
        break;
    case FZ_CAT: fz_draw_cat(d, &s); break;
    case FZ_GATHER:
    case FZ_INDEX_SELECT:
    case FZ_SCATTER: fz_draw_gather(d, &s); break;
    case FZ_REDUCE:
    case FZ_MEAN:
    case FZ_LAYER_NORM:
    case FZ_CUMSUM:
    case FZ_SOFTMAX:
    case FZ_LOG_SOFTMAX:
    case FZ_CROSS_ENTROPY: fz_draw_over(d, &s); break;
    case FZ_MATMUL:
    case FZ_EINSUM: fz_draw_product(d, &s); break;
    case FZ_CONV:
    case FZ_POOL: fz_draw_window(d, &s); break;
    case FZ_LINEAR: fz_draw_linear(d, &s); break;
    case FZ_LOOP: fz_draw_loop(d, &s); break;
    default: fz_draw_move(d, &s); break;
    }
    for (int i = 0; i < s.n_in; i++) {
        if (s.in[i] < 0 && s.number[i].kind == 0) {
            s.n_in = -1; /* an operand could not be made */
        }
    }
    if (s.n_in < 0 || fz_keep(d, &s) < 0) {
        d->f->n = first; /* leaves drawn for it go too */
        while (d->g->n_inputs && d->g->input_steps[d->g->n_inputs - 1] >= first) {
            d->g->n_inputs--;
        }
    }
}

/* The recipe of a seed. ctx is for trial. */
static void fz_draw_recipe(fz_recipe *f, uint64_t seed, tc_ctx *ctx)
{
    fz_graph g;
    fz_draw d = {f, {seed}, &g, ctx, false, FZ_MOST, 0};
    memset(f, 0, sizeof(*f));
    memset(&g, 0, sizeof(g));
    f->seed = seed;
    d.large = fz_pick(&d, 15) == 0;
    d.most = d.large ? FZ_MOST_LARGE : FZ_MOST;
    int leaves = 1 + fz_pick(&d, 2), steps = 3 + fz_pick(&d, 12), most = FZ_MAX_STEPS - 8;
    for (int i = 0; i < leaves; i++) {
        (void)fz_random_leaf(&d);
    }
    if (!f->n) {
        int64_t one[1] = {1};
        (void)fz_new_leaf(&d, TC_F32, 1, one);
    }
    leaves = f->n;
    for (int tries = 0; f->n < leaves + steps && f->n < most && tries < 60; tries++) {
        fz_draw_step(&d);
    }
    f->n_outputs = 1 + fz_pick(&d, FZ_MAX_OUT);
    for (int i = 0; i < f->n_outputs; i++) {
        f->outputs[i] = i ? fz_pick(&d, f->n) : f->n - 1;
    }
    for (int i = 0; i < f->n; i++) {
        f->steps[i].moment = fz_chance(&d, 40) ? 1 + fz_pick(&d, 4) : 0;
    }
    fz_graph_free(&g);
}

#endif
