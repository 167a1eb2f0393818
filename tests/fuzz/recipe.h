/* tests/fuzz/recipe.h - random graphs as recipes: lists of steps that can be built again, cut and
 * printed.
 *
 * A step names earlier steps and holds its attributes, so the same recipe gives the same graph in
 * any context. What a step promises to the judge is worked out while it is built:
 *   FZ_SAME   every executor must give the reference evaluator's bits
 *   FZ_NEAR   a float sum in another order, or a composite: close to the reference
 *   FZ_WILD   behind such a value something that magnifies differences: only the executors among
 *             each other are compared
 * A step that no input is needed for may be evaluated while the graph is built, so that steps made
 * before and after that use it.
 *
 * A step with `whole` > 0 holds integers of at most that size (or NaN), so its sums are exact in
 * any order. */
#ifndef TC_TEST_FUZZ_RECIPE_H
#define TC_TEST_FUZZ_RECIPE_H

enum { FZ_MAX_STEPS = 64, FZ_MAX_IN = 4, FZ_MAX_RANK = 8, FZ_MAX_OUT = 4 };

typedef enum fz_kind {
    FZ_INPUT,
    FZ_BORROW,
    FZ_EW,
    FZ_REDUCE,
    FZ_WHERE,
    FZ_CAST,
    FZ_FULL,
    FZ_ARANGE,
    FZ_RANDOM,
    FZ_DROPOUT,
    FZ_RESHAPE,
    FZ_PERMUTE,
    FZ_EXPAND,
    FZ_SQUEEZE,
    FZ_UNSQUEEZE,
    FZ_SLICE,
    FZ_FLIP,
    FZ_PAD,
    FZ_CAT,
    FZ_GATHER,
    FZ_INDEX_SELECT,
    FZ_SCATTER,
    FZ_BITCAST,
    FZ_TOPK,
    FZ_CUMSUM,
    FZ_MATMUL,
    FZ_EINSUM,
    FZ_CONV,
    FZ_POOL,
    FZ_SOFTMAX,
    FZ_LOG_SOFTMAX,
    FZ_MEAN,
    FZ_LAYER_NORM,
    FZ_CROSS_ENTROPY,
    FZ_LINEAR,
    FZ_LOOP,
    FZ_TAME,
    FZ_KIND_COUNT
} fz_kind;

typedef enum fz_loop { FZ_SCAN, FZ_WHILE, FZ_COND, FZ_LOOPS } fz_loop;
typedef enum fz_data { FZ_DATA_WHOLE, FZ_DATA_UNIT, FZ_DATA_CORNERS, FZ_DATA_INDEX } fz_data;
typedef enum fz_trust { FZ_SAME, FZ_NEAR, FZ_WILD } fz_trust;

typedef struct fz_step {
    fz_kind kind;
    int op;                  /* EW, REDUCE: the row */
    int n_in, in[FZ_MAX_IN]; /* earlier steps; -1: number[i] */
    tc_arg number[FZ_MAX_IN];
    int64_t attr[12]; /* axes, sizes; INPUT: data mode and index bound */
    int moment;       /* it is evaluated when so many steps are made, itself the first;
                              * 0: it is not, nor where it needs an input */
    /* of the value: */
    tc_dtype dtype;
    int rank;
    int64_t sizes[FZ_MAX_RANK];
    double whole;
    fz_trust trust;
} fz_step;

typedef struct fz_recipe {
    uint64_t seed;
    fz_step steps[FZ_MAX_STEPS];
    int n;
    int outputs[FZ_MAX_OUT];
    int n_outputs;
    bool open; /* of symbolic sizes: running sums have another order, too */
} fz_recipe;

/* A recipe built in a context. */
typedef struct fz_graph {
    tc_tensor tensors[FZ_MAX_STEPS];
    bool known[FZ_MAX_STEPS]; /* no input is needed for it */
    tc_tensor inputs[FZ_MAX_STEPS];
    int input_steps[FZ_MAX_STEPS];
    void *borrowed[FZ_MAX_STEPS];
    int n_inputs, n_borrowed;
    tc_tensor outputs[FZ_MAX_OUT];
} fz_graph;

/* ---- random numbers: one stream a purpose ---- */

typedef struct fz_random {
    uint64_t state;
} fz_random;

static uint64_t fz_next(fz_random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int fz_below(fz_random *r, int n)
{
    return n > 0 ? (int)(fz_next(r) % (uint64_t)n) : 0;
}

/* ---- data ---- */

static bool fz_is_float(tc_dtype t)
{
    return t >= TC_F16 && t <= TC_F64;
}

static double fz_element(fz_random *r, tc_dtype t, const int64_t *attr)
{
    static const double corners[] = {0.0,  -0.0, 1.0,      -1.0,      0.5, 2.0, 1e-40,
                                     -3.5, 1e5,  -1e10,    127,       128, 255, 65504,
                                     3e38, NAN,  INFINITY, -INFINITY, 1.5, 2.5};
    bool is_signed = t >= TC_I8;
    double unit = (double)(fz_next(r) >> 11) * 0x1p-53;
    switch ((fz_data)attr[0]) {
    case FZ_DATA_WHOLE: return t == TC_BOOL ? unit < 0.6 : floor(unit * 7) - (is_signed ? 3 : 0);
    case FZ_DATA_CORNERS: return corners[fz_below(r, (int)(sizeof(corners) / sizeof(double)))];
    case FZ_DATA_INDEX: return floor(unit * 2 * (double)attr[1]) - (double)attr[1];
    default: return fz_is_float(t) ? 4 * unit - 2 : floor(unit * 250) - (is_signed ? 120 : 0);
    }
}

/* The values of an input or borrowed step; depends on the recipe's seed and the step alone. */
static void fz_fill(const fz_recipe *f, int step, void *to, int64_t n)
{
    const fz_step *s = &f->steps[step];
    fz_random r = {f->seed * 0x2545f4914f6cdd1du + (uint64_t)step};
    for (int64_t i = 0; i < n; i++) {
        tci_value v;
        v.f = fz_element(&r, s->dtype, s->attr);
        if (s->attr[0] == FZ_DATA_INDEX && s->attr[2] && i == s->attr[2] % n) {
            v.f = (double)s->attr[1]; /* one that is outside */
        }
        v = tci_value_cast(v, TC_F64, s->dtype);
        tci_value_store(s->dtype, (char *)to + i * tci_dtype_get(s->dtype)->bytes, v);
    }
}

/* ---- one step as a call ---- */

#define FZ_CALL_1(name, a) tc_##name##_at((a)[0], TC_HERE)
#define FZ_CALL_2(name, a) tc_##name##_at((a)[0], (a)[1], TC_HERE)
#define FZ_CALL_3(name, a) tc_##name##_at((a)[0], (a)[1], (a)[2], TC_HERE)

static tc_tensor fz_call_ew(int op, const tc_arg *a)
{
    switch (op) {
#define TCI_ROW(id, name, arity, ...) case TCI_OP_##id: return FZ_CALL_##arity(name, a);
        TCI_EW_OPS(TCI_ROW)
#undef TCI_ROW
    default: return TC_NONE;
    }
}

/* Of a NaN only that it is one is promised: to ops that read signs a 0 stands for it. */
static tc_tensor fz_signed(int op, tc_tensor t)
{
    bool reads = op == TCI_OP_SIGNBIT || op == TCI_OP_COPYSIGN;
    return reads && fz_is_float(tc_dtype_of(t)) ? tc_where(tc_isnan(t), 0, t) : t;
}

static int fz_arity(int op)
{
    switch (op) {
#define TCI_ROW(id, name, arity, ...) case TCI_OP_##id: return arity;
        TCI_EW_OPS(TCI_ROW)
#undef TCI_ROW
    default: return 0;
    }
}

#define FZ_OVER_INDEX(name, x, axes, keep) tc_##name##_at((x), (axes).items[0], (keep), TC_HERE)
#define FZ_OVER_SUM(name, x, axes, keep) tc_##name##_at((x), (axes), (keep), TC_HERE)
#define FZ_OVER_SAME FZ_OVER_SUM
#define FZ_OVER_BOOL FZ_OVER_SUM
#define FZ_OVER_FLOAT FZ_OVER_SUM

/* The sign of a zero that is the largest depends on the order: + 0 settles it. */
static tc_tensor fz_call_reduce(int op, tc_tensor x, tc_axes axes, bool keep)
{
    tc_tensor y = TC_NONE;
    switch (op) {
#define TCI_ROW(id, name, rule, ...)                                                               \
    case TCI_OP_##id: y = FZ_OVER_##rule(name, x, axes, keep); break;
        TCI_REDUCE_OPS(TCI_ROW)
#undef TCI_ROW
    default: break;
    }
    return (op == TCI_OP_MAX || op == TCI_OP_MIN) && fz_is_float(tc_dtype_of(y)) ? tc_add(y, 0) : y;
}

static tc_tensor fz_call_einsum(const fz_step *s, const tc_tensor *t)
{
    static const char *const one[] = {"ii->i", "ii->", "ij->ji", "...i->...", "ij->j", "iji->j"},
                             *const two[] = {"ij,jk->ik",    "ij,ij->",   "ij,kj->ki",
                                             "i,j->ij",      "ij,ij->ij", "bi,bj->bij",
                                             "bij,bjk->bik", "ijk,k->ji"};
    if (s->n_in == 1) {
        return tc_einsum(one[s->attr[0] % 6], TC_TENSORS(t[0]));
    }
    return tc_einsum(two[s->attr[0] % 8], TC_TENSORS(t[0], t[1]));
}

static tc_tensor fz_call_window(const fz_step *s, const tc_tensor *t)
{
    if (s->kind == FZ_POOL) {
        tc_pool o = {.kernel = {s->attr[0], s->attr[1]},
                     .stride = {s->attr[2], s->attr[3]},
                     .padding = {s->attr[4], s->attr[4]},
                     .dilation = {s->attr[5], 1},
                     .ceil_mode = s->attr[6] != 0};
        tc_tensor y = tc_max_pool2d(t[0], &o);
        return fz_is_float(tc_dtype_of(y)) ? tc_add(y, 0) : y;
    }
    tc_conv o = {.stride = {s->attr[0], s->attr[1]},
                 .padding = {s->attr[2], s->attr[3]},
                 .dilation = {s->attr[4], 1},
                 .groups = s->attr[5]};
    return s->attr[7] ? tc_conv_transpose2d(t[0], t[1], TC_NONE, &o)
                      : tc_conv2d(t[0], t[1], TC_NONE, &o);
}

/* Integers of at most 4, or NaN; values alone are looked at, so gradients may stop there. */
static tc_tensor fz_call_tame(tc_tensor x)
{
    return tc_stop_gradient(tc_round(tc_minimum(tc_maximum(x, -4), 4)));
}

static tc_tensor fz_call_move(const fz_step *s, const tc_tensor *t)
{
    const int64_t *a = s->attr;
    tc_tensors list = {t, s->n_in};
    switch (s->kind) {
    case FZ_RESHAPE: return tc_reshape_at(t[0], (int)a[0], a + 1, TC_HERE);
    case FZ_PERMUTE: return tc_permute_at(t[0], (int)a[0], a + 1, TC_HERE);
    case FZ_EXPAND: return tc_expand_at(t[0], (int)a[0], a + 1, TC_HERE);
    case FZ_SQUEEZE: return tc_materialize(tc_squeeze(t[0], (int)a[0]));
    case FZ_UNSQUEEZE: return tc_nofuse(tc_unsqueeze(t[0], (int)a[0]));
    case FZ_SLICE: return tc_slice(t[0], (int)a[0], a[1], a[2], a[3]);
    case FZ_FLIP: return tc_flip(t[0], (int)a[0]);
    case FZ_PAD: return tc_pad_at(t[0], (int)a[0], a[1], a[2], s->number[1], TC_HERE);
    case FZ_CAT: return tc_cat(list, (int)a[0]);
    case FZ_GATHER: return tc_gather(t[0], (int)a[0], t[1]);
    case FZ_INDEX_SELECT: return tc_index_select(t[0], (int)a[0], t[1]);
    default:
        return a[1] == TCI_MODE_SET   ? tc_scatter(t[0], (int)a[0], t[1], t[2])
               : a[1] == TCI_MODE_ADD ? tc_scatter_add(t[0], (int)a[0], t[1], t[2])
               : a[1] == TCI_MODE_MIN ? tc_scatter_min(t[0], (int)a[0], t[1], t[2])
                                      : tc_scatter_max(t[0], (int)a[0], t[1], t[2]);
    }
}

/* attr: axis, how many, whether the largest, whether their places. */
static tc_tensor fz_call_topk(const fz_step *s, tc_tensor x)
{
    tc_tensor values, indices;
    tc_topk(x, (int)s->attr[0], s->attr[1], s->attr[2] != 0, &values, &indices);
    return s->attr[3] ? indices : values;
}

static tc_axes fz_axes(const fz_step *s, int *memory)
{
    tc_axes axes = {memory, (int)s->attr[0], s->attr[0] == 0};
    for (int i = 0; i < axes.n; i++) {
        memory[i] = (int)s->attr[2 + i];
    }
    return axes;
}

static tc_tensor fz_call_over(const fz_step *s, const tc_tensor *t)
{
    int memory[8];
    tc_axes axes = fz_axes(s, memory);
    tc_tensor weight = s->n_in > 1 ? t[1] : TC_NONE, bias = s->n_in > 2 ? t[2] : TC_NONE;
    switch (s->kind) {
    case FZ_REDUCE: return fz_call_reduce(s->op, t[0], axes, s->attr[1] != 0);
    case FZ_MEAN: return tc_mean(t[0], axes, s->attr[1] != 0);
    case FZ_LAYER_NORM: return tc_layer_norm(t[0], axes, weight, bias, 1e-3);
    case FZ_CUMSUM: return tc_cumsum(t[0], (int)s->attr[2]);
    case FZ_SOFTMAX: return tc_softmax(t[0], (int)s->attr[2]);
    case FZ_LOG_SOFTMAX: return tc_log_softmax(t[0], (int)s->attr[2]);
    default: return tc_cross_entropy(t[0], t[1]);
    }
}

/* A strided view of memory: negative strides, gaps and repeated elements. */
static tc_tensor fz_call_borrow(const fz_recipe *f, int step, tc_ctx *ctx, fz_graph *g)
{
    const fz_step *s = &f->steps[step];
    int64_t strides[FZ_MAX_RANK], n = 1, at = 0;
    for (int i = s->rank - 1; i >= 0; i--) {
        int64_t how = s->attr[2 + i], step_of = how == 2 ? 0 : how == 1 ? -n : how == 3 ? 2 * n : n;
        strides[i] = step_of;
        at += step_of < 0 && s->sizes[i] > 0 ? -step_of * (s->sizes[i] - 1) : 0;
        n *= (s->sizes[i] > 0 ? s->sizes[i] : 1) * (how == 3 ? 2 : 1);
    }
    size_t bytes = (size_t)tci_dtype_get(s->dtype)->bytes;
    char *memory = (char *)malloc((size_t)n * bytes + 1);
    fz_fill(f, step, memory, n);
    g->borrowed[g->n_borrowed++] = memory;
    return tc_borrow_strided(ctx, memory + (size_t)at * bytes, s->dtype, s->rank, s->sizes,
                             strides);
}

/* attr: which distribution, the key. */
static tc_tensor fz_call_random(const fz_step *s, tc_ctx *ctx, const int64_t *list)
{
    tc_arg key = tci_arg_int(s->attr[1]), low = tci_arg_int(0), high = tci_arg_int(100);
    int n = s->rank + 1;
    if (fz_is_float(s->dtype)) {
        return s->attr[0] ? tc_randn_at(ctx, key, n, list, TC_HERE)
                          : tc_rand_at(ctx, key, n, list, TC_HERE);
    }
    return s->attr[0] ? tc_randint_at(ctx, key, low, high, n, list, TC_HERE)
                      : tc_random_bits_at(ctx, key, n, list, TC_HERE);
}

static tc_tensor fz_call_leaf(const fz_recipe *f, int step, tc_ctx *ctx, fz_graph *g)
{
    const fz_step *s = &f->steps[step];
    int64_t list[FZ_MAX_RANK + 1] = {s->dtype};
    memcpy(list + 1, s->sizes, sizeof(s->sizes));
    switch (s->kind) {
    case FZ_FULL: return tc_full_at(ctx, s->number[0], s->rank + 1, list, TC_HERE);
    case FZ_ARANGE:
        return tc_arange_at(ctx, s->number[0], s->number[1], s->number[2], s->dtype, TC_HERE);
    case FZ_BORROW: return fz_call_borrow(f, step, ctx, g);
    case FZ_RANDOM: return fz_call_random(s, ctx, list);
    default:
        g->input_steps[g->n_inputs] = step;
        g->inputs[g->n_inputs] = tc_input_at(ctx, "x", s->rank + 1, list, TC_HERE);
        return g->inputs[g->n_inputs++];
    }
}

/* attr: what is asked of a matrix far from singular. */
static tc_tensor fz_call_linear(const fz_step *s, const tc_tensor *t, tc_ctx *ctx)
{
    tc_tensor far = tc_diag(tc_full(ctx, 8, tc_dtype_of(t[0]), tc_size(t[0], -1)), 0);
    tc_tensor a = tc_add(t[0], far);
    switch (s->attr[0]) {
    case 0: return tc_solve(a, t[1]);
    case 1: return tc_solve_triangular(a, t[1], s->attr[1] != 0, true, false);
    case 2: return tc_cholesky(tc_add(tc_matmul(t[0], tc_transpose(t[0], -1, -2)), far), false);
    default: return tc_det(a);
    }
}

/* A loop: its step; what its body closes over, which may be no tensor, and the step of that. */
typedef struct fz_body {
    const fz_step *s, *made;
    tc_tensor closed;
} fz_body;

/* What the body closes over: as it is, a view of it, or a constant that is made again. */
static tc_tensor fz_loop_closed(const fz_body *b)
{
    int64_t list[FZ_MAX_RANK + 1] = {b->made->dtype};
    memcpy(list + 1, b->made->sizes, sizeof(b->made->sizes));
    return b->s->attr[4] == 1 && tc_rank(b->closed) > 0 ? tc_flip(b->closed, -1)
           : b->s->attr[4] == 2 && b->made->kind == FZ_FULL
               ? tc_full_at(b->closed.ctx, b->made->number[0], b->made->rank + 1, list, TC_HERE)
               : b->closed;
}

/* attr: what a step does with the carry, whether the rows are taken from behind, whether the value
 * is what the steps gave or the last carry; and how it uses what the body closes over. */
static tc_status fz_loop_step(void *user, const tc_tensor *carry, const tc_tensor *x,
                              tc_tensor *next, tc_tensor *y)
{
    const fz_body *b = (const fz_body *)user;
    const fz_step *s = b->s;
    switch (s->attr[0]) {
    case 0: next[0] = tc_add(carry[0], x[0]); break;
    case 1: next[0] = tc_sub(x[0], carry[0]); break;
    case 2: next[0] = tc_maximum(carry[0], tc_neg(x[0])); break;
    default: next[0] = tc_where(tc_gt(x[0], carry[0]), tc_flip(x[0], -1), carry[0]); break;
    }
    if (b->closed.ctx) {
        next[0] = tc_add(next[0], fz_loop_closed(b));
    }
    y[0] = s->attr[0] % 2 ? carry[0] : tc_abs(next[0]);
    return TC_OK;
}

/* The same with carry 2 for x, some times, until an element is large. */
static tc_status fz_loop_go(void *user, const tc_tensor *carry, tc_tensor *go)
{
    (void)user;
    *go = tc_logical_and(tc_lt(carry[1], 5), tc_all(tc_le(carry[0], 3), TC_ALL, false));
    return TC_OK;
}

static tc_status fz_loop_on(void *user, const tc_tensor *carry, tc_tensor *next)
{
    tc_tensor y;
    next[1] = tc_add(carry[1], 1);
    next[2] = carry[2];
    return fz_loop_step(user, carry, &carry[2], next, &y);
}

static tc_status fz_branch(void *user, const tc_tensor *x, tc_tensor *y)
{
    tc_tensor carry[2] = {x[0], x[1]}, next;
    tc_status status = fz_loop_step(user, carry, x + 1, &next, y);
    y[0] = next;
    return status;
}

static tc_status fz_other_branch(void *user, const tc_tensor *x, tc_tensor *y)
{
    (void)user;
    y[0] = tc_maximum(x[0], x[1]);
    return TC_OK;
}

/* attr[3]: the kind of loop. */
static tc_tensor fz_call_loop(const fz_recipe *f, const fz_step *s, const tc_tensor *t, tc_ctx *ctx)
{
    tc_tensor last[3], rows, first = tc_squeeze(tc_slice(t[0], 0, 0, 1, 1), 0);
    fz_body body = {s, s, TC_NONE}, *user = &body;
    if (s->n_in > 2) {
        body.made = &f->steps[s->in[2]];
        body.closed = tc_cast(t[2], tc_dtype_of(t[1]));
    }
    switch (s->attr[3]) {
    case FZ_WHILE:
        tc_while(TC_TENSORS(t[1], tc_full(ctx, 0, TC_I32), first), 0, fz_loop_go, fz_loop_on, user,
                 last);
        return last[0];
    case FZ_COND:
        tc_cond(tc_lt(tc_sum(tc_ne(t[1], 0), TC_ALL, false), 3), TC_TENSORS(t[1], first), fz_branch,
                fz_other_branch, user, last, 1);
        return last[0];
    default:
        tc_scan(TC_TENSORS(t[1]), TC_TENSORS(t[0]), 0, s->attr[1] != 0, fz_loop_step, user, last,
                &rows, 1);
        return s->attr[2] ? rows : last[0];
    }
}

static tc_tensor fz_call(const fz_recipe *f, int step, tc_ctx *ctx, fz_graph *g)
{
    const fz_step *s = &f->steps[step];
    tc_tensor t[FZ_MAX_IN];
    tc_arg a[FZ_MAX_IN];
    for (int i = 0; i < s->n_in; i++) {
        t[i] = s->in[i] >= 0 ? g->tensors[s->in[i]] : TC_NONE;
        a[i] = s->in[i] < 0 ? s->number[i]
                            : tci_arg_tensor(s->kind == FZ_EW ? fz_signed(s->op, t[i]) : t[i]);
    }
    switch (s->kind) {
    case FZ_INPUT:
    case FZ_BORROW:
    case FZ_FULL:
    case FZ_ARANGE:
    case FZ_RANDOM: return fz_call_leaf(f, step, ctx, g);
    case FZ_EW: return fz_call_ew(s->op, a);
    case FZ_WHERE: return tc_where_at(a[0], a[1], a[2], TC_HERE);
    case FZ_CAST: return tc_cast(t[0], (tc_dtype)s->attr[0]);
    case FZ_BITCAST: return tc_bitcast(t[0], (tc_dtype)s->attr[0]);
    case FZ_TOPK: return fz_call_topk(s, t[0]);
    case FZ_DROPOUT:
        return tc_dropout_at(t[0], tci_arg_float(0.2 * (double)s->attr[0]), tci_arg_int(s->attr[1]),
                             TC_HERE);
    case FZ_MATMUL: return tc_matmul(t[0], t[1]);
    case FZ_EINSUM: return fz_call_einsum(s, t);
    case FZ_CONV:
    case FZ_POOL: return fz_call_window(s, t);
    case FZ_LINEAR: return fz_call_linear(s, t, ctx);
    case FZ_LOOP: return fz_call_loop(f, s, t, ctx);
    case FZ_TAME: return fz_call_tame(t[0]);
    case FZ_REDUCE:
    case FZ_MEAN:
    case FZ_LAYER_NORM:
    case FZ_CUMSUM:
    case FZ_SOFTMAX:
    case FZ_LOG_SOFTMAX:
    case FZ_CROSS_ENTROPY: return fz_call_over(s, t);
    default: return fz_call_move(s, t);
    }
}

/* ---- what may be promised about the value ---- */

static double fz_whole_ew(const fz_recipe *f, const fz_step *s)
{
    double a = s->in[0] >= 0 ? f->steps[s->in[0]].whole : 0;
    double b = s->n_in > 1 && s->in[1] >= 0 ? f->steps[s->in[1]].whole : 0;
    switch (s->op) {
    case TCI_OP_NEG:
    case TCI_OP_ABS:
    case TCI_OP_RELU:
    case TCI_OP_FLOOR:
    case TCI_OP_CEIL:
    case TCI_OP_TRUNC:
    case TCI_OP_ROUND: return a;
    case TCI_OP_ADD:
    case TCI_OP_SUB: return a > 0 && b > 0 ? a + b : 0;
    case TCI_OP_MUL: return a * b;
    case TCI_OP_MAXIMUM:
    case TCI_OP_MINIMUM: return a > 0 && b > 0 ? (a > b ? a : b) : 0;
    default: return s->dtype == TC_BOOL ? 1 : 0;
    }
}

static double fz_count(const fz_step *s)
{
    double n = 1;
    for (int i = 0; i < s->rank; i++) {
        n *= (double)s->sizes[i];
    }
    return n;
}

static double fz_whole(const fz_recipe *f, const fz_step *s)
{
    double a = s->n_in > 0 && s->in[0] >= 0 ? f->steps[s->in[0]].whole : 0;
    switch (s->kind) {
    case FZ_INPUT: return s->attr[0] == FZ_DATA_WHOLE ? 6 : 0;
    case FZ_BORROW: return s->attr[0] == FZ_DATA_WHOLE ? 6 : 0;
    case FZ_TAME: return 4;
    case FZ_EW: return fz_whole_ew(f, s);
    case FZ_RESHAPE:
    case FZ_PERMUTE:
    case FZ_EXPAND:
    case FZ_SQUEEZE:
    case FZ_UNSQUEEZE:
    case FZ_SLICE:
    case FZ_FLIP:
    case FZ_GATHER:
    case FZ_INDEX_SELECT: return a;
    default: return s->dtype == TC_BOOL ? 1 : 0;
    }
}

static bool fz_is_smooth(const fz_step *s)
{
    switch (s->kind) {
    case FZ_EW:
        return s->op == TCI_OP_NEG || s->op == TCI_OP_ADD || s->op == TCI_OP_SUB ||
               s->op == TCI_OP_RELU || s->op == TCI_OP_ABS;
    case FZ_RESHAPE:
    case FZ_PERMUTE:
    case FZ_EXPAND:
    case FZ_SQUEEZE:
    case FZ_UNSQUEEZE:
    case FZ_SLICE:
    case FZ_FLIP:
    case FZ_PAD:
    case FZ_CAT: return true;
    case FZ_GATHER:
    case FZ_INDEX_SELECT: return true;
    default: return false;
    }
}

/* What the step itself does to the order of float arithmetic. */
static fz_trust fz_own_trust(const fz_recipe *f, const fz_step *s)
{
    const fz_step *x = s->n_in > 0 && s->in[0] >= 0 ? &f->steps[s->in[0]] : NULL;
    bool composite = s->kind == FZ_SOFTMAX || s->kind == FZ_LOG_SOFTMAX ||
                     s->kind == FZ_LAYER_NORM || s->kind == FZ_CROSS_ENTROPY ||
                     (s->kind == FZ_REDUCE && s->op == TCI_OP_DEVSQ);
    bool sums = s->kind == FZ_MEAN || s->kind == FZ_EINSUM || (s->kind == FZ_CONV && s->attr[7]) ||
                (s->kind == FZ_CUMSUM && f->open) ||
                (s->kind == FZ_REDUCE && (s->op == TCI_OP_SUM || s->op == TCI_OP_PROD));
    if (s->kind == FZ_LINEAR) {
        return FZ_WILD;
    }
    if (!x || !fz_is_float(s->dtype) || (!composite && !sums)) {
        return FZ_SAME;
    }
    double largest = s->kind == FZ_REDUCE && s->op == TCI_OP_PROD ? pow(x->whole, fz_count(x))
                                                                  : x->whole * fz_count(x);
    if (x->whole == 0 || largest > 0x1p24) {
        return FZ_WILD;
    }
    for (int k = 1; k < s->n_in; k++) { /* a weight may overflow on the way */
        if (s->in[k] >= 0 && f->steps[s->in[k]].whole == 0 &&
            fz_is_float(f->steps[s->in[k]].dtype)) {
            return FZ_WILD;
        }
    }
    if (composite && (s->dtype == TC_F16 || s->dtype == TC_BF16)) {
        return FZ_WILD; /* one step of the dtype off is far off after a difference */
    }
    return composite ? FZ_NEAR : FZ_SAME;
}

/* Builds step i; false when tc refuses it. */
static bool fz_build_step(fz_recipe *f, int i, tc_ctx *ctx, fz_graph *g)
{
    fz_step *s = &f->steps[i];
    tc_tensor t = fz_call(f, i, ctx, g);
    g->tensors[i] = t;
    if (tc_status_of(t) || tc_rank(t) > FZ_MAX_RANK) {
        return false;
    }
    s->dtype = tc_dtype_of(t);
    s->rank = tc_rank(t);
    for (int d = 0; d < s->rank; d++) {
        s->sizes[d] = tc_size(t, d);
    }
    s->whole = fz_whole(f, s);
    s->trust = fz_own_trust(f, s);
    g->known[i] = s->kind != FZ_INPUT;
    for (int k = 0; k < s->n_in; k++) {
        g->known[i] = g->known[i] && (s->in[k] < 0 || g->known[s->in[k]]);
        fz_trust of_in = s->in[k] >= 0 ? f->steps[s->in[k]].trust : FZ_SAME;
        of_in = of_in == FZ_NEAR && !fz_is_smooth(s) ? FZ_WILD : of_in;
        s->trust = of_in > s->trust ? of_in : s->trust;
    }
    return true;
}

/* Steps that the outputs do not need are left out. */
TCT_UNUSED static bool fz_build(fz_recipe *f, tc_ctx *ctx, fz_graph *g)
{
    bool needed[FZ_MAX_STEPS] = {false};
    memset(g, 0, sizeof(*g));
    for (int i = 0; i < f->n_outputs; i++) {
        needed[f->outputs[i]] = true;
    }
    for (int i = f->n - 1; i >= 0; i--) {
        for (int k = 0; needed[i] && k < f->steps[i].n_in; k++) {
            if (f->steps[i].in[k] >= 0) {
                needed[f->steps[i].in[k]] = true;
            }
        }
    }
    for (int i = 0; i < f->n; i++) {
        if (needed[i] && !fz_build_step(f, i, ctx, g)) {
            return false;
        }
        for (int k = 0; k <= i; k++) {
            bool now = f->steps[k].moment > 0 && k + f->steps[k].moment - 1 == i;
            if (now && needed[k] && g->known[k] && tc_eval(g->tensors[k])) {
                return false;
            }
        }
    }
    for (int i = 0; i < f->n_outputs; i++) {
        g->outputs[i] = g->tensors[f->outputs[i]];
    }
    return true;
}

static void fz_graph_free(fz_graph *g)
{
    for (int i = 0; i < g->n_borrowed; i++) {
        free(g->borrowed[i]);
    }
    g->n_borrowed = 0;
}

#endif
