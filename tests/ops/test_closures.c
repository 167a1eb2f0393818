/* tests/ops/test_closures.c - what bodies of loops, branches and regions close over: constants that
 * were evaluated before or since, and views that are differentiated by. All expected values are
 * worked out by hand. */
#include "inside.h"

#include "tc_test.h"

static tc_ctx *open_ctx(int native)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = native ? "cpu" : "interp", .no_disk_cache = true, .verify = true};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    return ctx;
}

enum { SCAN, WHILE, COND, CHECKPOINT, KINDS };
static const char *const kinds[] = {"tc_scan", "tc_while", "tc_cond", "tc_checkpoint"};
enum { STEPS = 3 }; /* of tc_scan and tc_while; the others do one */

/* ---- a body: carry * w, or w - carry ---- */

typedef struct closure {
    tc_tensor w;
    bool fresh;    /* w is made again, in the body, */
    double number; /* as this constant, */
    int rank;      /* of shape [] or [3] */
    bool subtracts;
} closure;

static tc_tensor constant(tc_ctx *ctx, double number, int rank)
{
    return rank ? tc_full(ctx, number, TC_F64, 3) : tc_full(ctx, number, TC_F64);
}

static tc_tensor step_of(const closure *c, tc_tensor carry)
{
    tc_tensor w = c->fresh ? constant(carry.ctx, c->number, c->rank) : c->w;
    return c->subtracts ? tc_sub(w, carry) : tc_mul(carry, w);
}

static tc_status scan_body(void *user, const tc_tensor *carry, const tc_tensor *x, tc_tensor *next,
                           tc_tensor *y)
{
    (void)x;
    (void)y;
    next[0] = step_of(user, carry[0]);
    return tc_status_of(next[0]);
}

static tc_status goes_on(void *user, const tc_tensor *carry, tc_tensor *go)
{
    (void)user;
    *go = tc_lt(carry[1], STEPS);
    return TC_OK;
}

static tc_status while_body(void *user, const tc_tensor *carry, tc_tensor *next)
{
    next[0] = step_of(user, carry[0]);
    next[1] = tc_add(carry[1], 1);
    return tc_status_of(next[0]);
}

static tc_status branch(void *user, const tc_tensor *x, tc_tensor *y)
{
    y[0] = step_of(user, x[0]);
    return tc_status_of(y[0]);
}

static tc_status other_branch(void *user, const tc_tensor *x, tc_tensor *y)
{
    (void)user;
    y[0] = tc_neg(x[0]);
    return TC_OK;
}

static tc_tensor through(int kind, closure *c, tc_tensor x)
{
    tc_tensor out[2] = {TC_NONE, TC_NONE};
    switch (kind) {
    case SCAN:
        tc_scan(TC_TENSORS(x), TC_TENSORS_N(NULL, 0), STEPS, false, scan_body, c, out, NULL, 0);
        break;
    case WHILE:
        tc_while(TC_TENSORS(x, tc_full(x.ctx, 0, TC_I32)), 0, goes_on, while_body, c, out);
        break;
    case COND:
        tc_cond(tc_gt(tc_sum(x, TC_ALL, false), 0), TC_TENSORS(x), branch, other_branch, c, out, 1);
        break;
    default: tc_checkpoint(TC_TENSORS(x), branch, c, out, 1); break;
    }
    CHECK_MSG(!tc_status_of(out[0]), "%s: %s", kinds[kind], tc_error(out[0]));
    return out[0];
}

/* What a number of steps make of x. */
static double by_hand(int kind, const closure *c, double x)
{
    for (int i = kind == SCAN || kind == WHILE ? STEPS : 1; i > 0; i--) {
        x = c->subtracts ? c->number - x : x * c->number;
    }
    return x;
}

/* ---- constants that have a value ---- */

enum { EVAL, READ, PRINT, KEEP, DLPACK, PARAM, WAYS };

static void evaluate(tc_tensor t, int way)
{
    double v[3];
    FILE *to = NULL;
    tc_dlpack *dl = NULL;
    tc_status status = TC_ERR_ARGUMENT;
    switch (way) {
    case EVAL: status = tc_eval(t); break;
    case READ: status = tc_read(t, v, tc_count(t)); break;
    case PRINT:
        to = tmpfile();
        REQUIRE(to);
        status = tc_print(to, t);
        fclose(to);
        break;
    case KEEP: status = tc_status_of(tc_retain(tc_keep(t))); break;
    case DLPACK:
        status = tc_to_dlpack(t, &dl);
        if (dl) {
            dl->deleter(dl);
        }
        break;
    default: status = tc_status_of(tc_param_from(t)); break;
    }
    CHECK_MSG(!status, "%s", tc_error(t));
}

static void check_constant(int native, int kind, int way, bool after, closure c)
{
    static const double at[3] = {1, 2, 3};
    double got[3] = {0};
    tc_ctx *ctx = open_ctx(native);
    tc_tensor x = tc_copy_in(ctx, at, TC_F64, 3);
    c.w = constant(ctx, c.number, c.rank);
    if (!after) {
        evaluate(c.w, way);
    }
    tc_tensor y = through(kind, &c, x);
    if (after) {
        evaluate(constant(ctx, c.number, c.rank), way);
    }
    tc_status status = tc_read(y, got, 3);
    CHECK_MSG(!status, "%s, %g of rank %d, way %d: %s", kinds[kind], c.number, c.rank, way,
              tc_error(y));
    for (int i = 0; i < 3; i++) {
        double want = by_hand(kind, &c, at[i]);
        CHECK_MSG(got[i] == want, "%s, %g of rank %d, way %d: %.17g, expected %.17g", kinds[kind],
                  c.number, c.rank, way, got[i], want);
    }
    tc_ctx_free(ctx);
}

TEST(a_constant_that_has_a_value_is_that_in_a_body_too)
{
    static const double numbers[] = {0, 1, -1, 2, 0.5, 0.375};
    for (int kind = 0; kind < KINDS; kind++) {
        for (int i = 0; i < 6 * 2 * 2 * WAYS; i++) {
            closure c = {.number = numbers[i % 6],
                         .rank = i / 6 % 2,
                         .fresh = i / 12 % 2,
                         .subtracts = i % 5 == 0};
            check_constant(false, kind, i / 24, i % 7 < 3, c);
        }
        check_constant(true, kind, READ, true, (closure){.number = 2, .rank = 1, .fresh = true});
    }
}

TEST(a_program_is_compiled_after_its_constants_were_read)
{
    tc_ctx *ctx = open_ctx(false);
    closure c = {.number = 1, .fresh = true, .subtracts = true};
    tc_tensor one = tc_param_from(tc_ones(ctx, TC_F64)), x = tc_input(ctx, "x", TC_F64, 3);
    tc_program *f = NULL;
    double in[3] = {1, 2, 3}, out[3] = {0};
    tc_tensor y = tc_mul(through(SCAN, &c, x), one);
    REQUIRE(tc_compile(y, &f) == TC_OK);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 3)), TC_BUFS(TC_BUF(out, 3))), TC_OK);
    for (int i = 0; i < 3; i++) {
        CHECK_CLOSE(out[i], 1 - in[i], 0); /* 1 - (1 - (1 - x)) */
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* The loss does not depend on a: its gradient is zeros, which are a constant. */
TEST(gradients_of_a_branch_are_read_one_after_the_other)
{
    tc_ctx *ctx = open_ctx(false);
    double at[3] = {1, 2, 3}, g[2][3];
    closure c = {.number = 2, .fresh = true};
    tc_tensor by[2] = {tc_copy_in(ctx, at, TC_F64, 3), tc_copy_in(ctx, at, TC_F64, 3)}, grads[2];
    tc_tensor loss = tc_sum(through(COND, &c, by[1]), TC_ALL, false);
    REQUIRE(tc_grad(loss, by, 2, grads) == TC_OK);
    for (int i = 0; i < 2; i++) {
        CHECK_MSG(!tc_read(grads[i], g[i], 3), "%s", tc_error(grads[i]));
        for (int k = 0; k < 3; k++) {
            CHECK_CLOSE(g[i][k], 2 * i, 0);
        }
    }
    tc_ctx_free(ctx);
}

/* Factors of matrices and recurrent layers are made of bodies. */
TEST(factors_and_layers_are_made_after_constants_were_read)
{
    static const double numbers[] = {0, 1, -1, 2, 0.5};
    tc_ctx *ctx = open_ctx(false);
    for (int i = 0; i < 5; i++) {
        evaluate(tc_full(ctx, numbers[i], TC_F64), READ);
        evaluate(tc_full(ctx, numbers[i], TC_F64, 3), READ);
    }
    double at[9] = {4, 2, 1, 2, 5, 3, 1, 3, 6}, got[9];
    tc_tensor a = tc_copy_in(ctx, at, TC_F64, 3, 3), p[3], back[3];
    tc_qr(a, &p[0], &p[1]);
    back[0] = tc_matmul(p[0], p[1]);
    tc_svd(a, &p[0], &p[1], &p[2]);
    back[1] = tc_matmul(tc_mul(p[0], p[1]), p[2]);
    tc_eigh(a, &p[0], &p[1]);
    back[2] = tc_matmul(tc_mul(p[1], p[0]), tc_transpose(p[1], 0, 1));
    for (int k = 0; k < 3; k++) {
        CHECK_MSG(!tc_read(back[k], got, 9), "%d: %s", k, tc_error(back[k]));
        for (int i = 0; i < 9; i++) {
            CHECK_CLOSE(got[i], at[i], 1e-12);
        }
    }
    /* weights of 0: all gates are 1/2, so an lstm's cell is c / 2, a gru's state h / 2 */
    tc_tensor x = tc_full(ctx, 1, TC_F64, 1, 1, 2), h = tc_full(ctx, 0.5, TC_F64, 1, 1, 2), y, c;
    tc_tensor w[2] = {tc_zeros(ctx, TC_F64, 8, 2), tc_zeros(ctx, TC_F64, 6, 2)};
    evaluate(w[0], EVAL);
    evaluate(w[1], EVAL);
    tc_lstm(x, h, h, TC_TENSORS(w[0], w[0]), false, false, &y, NULL, &c);
    CHECK_MSG(!tc_read(c, got, 2), "%s", tc_error(c));
    CHECK_CLOSE(got[0], 0.25, 0);
    tc_gru(x, h, TC_TENSORS(w[1], w[1]), false, false, &y, NULL);
    CHECK_MSG(!tc_read(y, got, 2), "%s", tc_error(y));
    CHECK_CLOSE(got[0], 0.25, 0);
    tc_ctx_free(ctx);
}

/* ---- views that are differentiated by ---- */

enum {
    LEAF,
    SLICE,
    RESHAPE,
    PERMUTE,
    FLIP,
    EXPAND,
    SELECT,
    OF_PARAM,
    OF_PRODUCT,
    FULL,
    PAD,
    FORMS
};

/* A tensor of [2] that is 0.75, 0.75, or 0.75, -0.5. */
static tc_tensor make(tc_ctx *ctx, int form)
{
    static const double v[4] = {9, 0.75, -0.5, 8}, swapped[2] = {-0.5, 0.75}, twice[2] = {1.5, -1};
    tc_tensor pair = tc_copy_in(ctx, v + 1, TC_F64, 1, 2);
    switch (form) {
    case LEAF: return tc_copy_in(ctx, v + 1, TC_F64, 2);
    case SLICE: return tc_range(tc_copy_in(ctx, v, TC_F64, 4), 0, 1, 3);
    case RESHAPE: return tc_reshape(pair, 2);
    case PERMUTE: return tc_reshape(tc_permute(pair, 1, 0), 2);
    case FLIP: return tc_flip(tc_copy_in(ctx, swapped, TC_F64, 2), 0);
    case EXPAND: return tc_expand(tc_copy_in(ctx, v + 1, TC_F64, 1), 2);
    case SELECT: return tc_select(tc_cat(TC_TENSORS(pair, pair), 0), 0, 1);
    case OF_PARAM: return tc_range(tc_param(ctx, v, TC_F64, 4), 0, 1, 3);
    case OF_PRODUCT: return tc_flip(tc_mul(tc_copy_in(ctx, swapped, TC_F64, 2), 1), 0);
    case FULL: return tc_full(ctx, 0.75, TC_F64, 2);
    default: return tc_pad(tc_mul(tc_copy_in(ctx, twice, TC_F64, 1), 0.5), 0, 0, 1, -0.5);
    }
}

static void check_view(int native, int kind, int form)
{
    static const double s[2] = {3, 5};
    tc_ctx *ctx = open_ctx(native);
    tc_tensor x = tc_copy_in(ctx, s, TC_F64, 2), g = TC_NONE, h = TC_NONE, t = TC_NONE;
    closure c = {.w = make(ctx, form)};
    tc_tensor y = through(kind, &c, x);
    double w[2], got[3][2] = {{0}};
    int n = kind == SCAN || kind == WHILE ? STEPS : 1;
    CHECK_EQ_INT(tc_read(c.w, w, 2), TC_OK);
    CHECK_MSG(!tc_jvp(TC_TENSORS(y), TC_TENSORS(c.w), TC_TENSORS(tc_full(ctx, 7, TC_F64, 2)), &t) &&
                  !tc_read(t, got[2], 2),
              "%s", tc_error(t));
    if (kind == WHILE) {
        CHECK_EQ_INT(tc_grad(tc_sum(y, TC_ALL, false), &c.w, 1, &g), TC_ERR_UNSUPPORTED);
    } else {
        CHECK_MSG(!tc_grad(tc_sum(y, TC_ALL, false), &c.w, 1, &g) && !tc_read(g, got[0], 2), "%s",
                  tc_error(g));
        CHECK_MSG(!tc_grad(tc_sum(g, TC_ALL, false), &c.w, 1, &h) && !tc_read(h, got[1], 2), "%s",
                  tc_error(h));
    }
    for (int i = 0; i < 2; i++) { /* y = s w^n */
        double slope = n * s[i] * pow(w[i], n - 1), bend = n * (n - 1) * s[i] * pow(w[i], n - 2);
        CHECK_MSG(got[2][i] == 7 * slope, "%s, form %d: tangent %.17g, expected %.17g", kinds[kind],
                  form, got[2][i], 7 * slope);
        CHECK_MSG(kind == WHILE || got[0][i] == slope, "%s, form %d: slope %.17g, expected %.17g",
                  kinds[kind], form, got[0][i], slope);
        CHECK_MSG(kind == WHILE || got[1][i] == bend, "%s, form %d: second %.17g, expected %.17g",
                  kinds[kind], form, got[1][i], bend);
    }
    tc_ctx_free(ctx);
}

TEST(derivatives_by_views_that_a_body_closes_over)
{
    for (int kind = 0; kind < KINDS; kind++) {
        for (int form = 0; form < FORMS; form++) {
            check_view(false, kind, form);
        }
        check_view(true, kind, SLICE);
    }
}

/* A view of the body's own is the tensor that the same view outside is. */
static tc_status own_view(void *user, const tc_tensor *x, tc_tensor *y)
{
    y[0] = tc_mul(x[0], tc_range(*(const tc_tensor *)user, 0, 1, 3));
    return tc_status_of(y[0]);
}

/* By a view and by what it is a view of; and, through a first gradient by the one, by the other. */
TEST(derivatives_by_a_view_and_by_its_source)
{
    tc_ctx *ctx = open_ctx(false);
    double at[4] = {2, 3, 5, 7}, s[2] = {4, 6}, g[4], v[2], mixed[2];
    tc_tensor flat = tc_copy_in(ctx, at, TC_F64, 4), view = tc_range(flat, 0, 1, 3), y, by[2], of;
    tc_tensor x = tc_copy_in(ctx, s, TC_F64, 2), grads[2], second;
    REQUIRE(tc_checkpoint(TC_TENSORS(x), own_view, &flat, &y, 1) == TC_OK);
    by[0] = flat;
    by[1] = view;
    REQUIRE(tc_grad(tc_sum(tc_square(y), TC_ALL, false), by, 2, grads) == TC_OK); /* (s w)^2 */
    of = tc_sum(grads[0], TC_ALL, false);
    REQUIRE(tc_grad(of, &view, 1, &second) == TC_OK);
    CHECK_MSG(!tc_read(grads[0], g, 4) && !tc_read(grads[1], v, 2), "%s", tc_error(ctx));
    CHECK_MSG(!tc_read(second, mixed, 2), "%s", tc_error(second));
    for (int i = 0; i < 4; i++) {
        double want = i == 1 || i == 2 ? 2 * s[i - 1] * s[i - 1] * at[i] : 0;
        CHECK_CLOSE(g[i], want, 0);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_CLOSE(v[i], 2 * s[i] * s[i] * at[i + 1], 0);
        CHECK_CLOSE(mixed[i], 2 * s[i] * s[i], 0);
    }
    tc_ctx_free(ctx);
}

/* The gradient by a view of a flat array is the part of that by the array. */
TEST(gradients_of_layers_by_sliced_weights)
{
    enum { X = 3, H = 2, G = 4 * H, FLAT = G * X + G * H };
    tc_ctx *ctx = open_ctx(false);
    double at[FLAT], steps[5 * 2 * X], by_view[G * H], by_flat[FLAT];
    for (int i = 0; i < FLAT; i++) {
        at[i] = (i * 7 % 11 - 5) / 8.0;
    }
    for (int i = 0; i < 5 * 2 * X; i++) {
        steps[i] = (i * 5 % 13 - 6) / 8.0;
    }
    for (int gru = 0; gru < 2; gru++) {
        int g = gru ? 3 * H : G, n = g * X;
        tc_tensor flat = tc_copy_in(ctx, at, TC_F64, FLAT), y, grads[2];
        tc_tensor x = tc_copy_in(ctx, steps, TC_F64, 5, 2, X);
        tc_tensor ih = tc_reshape(tc_range(flat, 0, 0, n), g, X);
        tc_tensor hh = tc_reshape(tc_range(flat, 0, n, n + g * H), g, H), by[2] = {hh, flat};
        if (gru) {
            tc_gru(x, TC_NONE, TC_TENSORS(ih, hh), false, false, &y, NULL);
        } else {
            tc_lstm(x, TC_NONE, TC_NONE, TC_TENSORS(ih, hh), false, false, &y, NULL, NULL);
        }
        REQUIRE(tc_grad(tc_sum(tc_square(y), TC_ALL, false), by, 2, grads) == TC_OK);
        REQUIRE(!tc_read(grads[0], by_view, g * H) && !tc_read(grads[1], by_flat, FLAT));
        double sum = 0;
        for (int i = 0; i < g * H; i++) {
            CHECK_CLOSE(by_view[i], by_flat[n + i], 1e-15);
            sum += fabs(by_view[i]);
        }
        CHECK_MSG(sum > 0.01, "gru %d: a gradient of %g", gru, sum);
    }
    tc_ctx_free(ctx);
}

/* ---- where movement is computed ---- */

/* A bias that a step broadcasts is stored, and its gradient summed, as the vector that it is. */
static tc_status biased(void *user, const tc_tensor *carry, const tc_tensor *x, tc_tensor *next,
                        tc_tensor *y)
{
    (void)y;
    next[0] = tc_tanh(tc_add(tc_mul(carry[0], x[0]), *(const tc_tensor *)user));
    return TC_OK;
}

TEST(a_broadcast_that_a_body_closes_over_takes_no_memory)
{
    enum { ROWS = 512, WIDE = 64 };
    for (int grad = 0; grad < 2; grad++) {
        tc_ctx *ctx = open_ctx(false);
        tc_tensor x = tc_input(ctx, "x", TC_F32, 8), bias = tc_input(ctx, "b", TC_F32, WIDE), y, g;
        tc_tensor init = tc_input(ctx, "h", TC_F32, ROWS, WIDE);
        REQUIRE(tc_scan(TC_TENSORS(init), TC_TENSORS(x), 0, false, biased, &bias, &y, NULL, 0) ==
                TC_OK);
        REQUIRE(tc_grad(tc_sum(y, TC_ALL, false), &bias, 1, &g) == TC_OK);
        tc_program *f = NULL;
        tc_program_info info;
        REQUIRE(tc_compile(grad ? g : y, &f) == TC_OK);
        REQUIRE(tc_program_get_info(f, &info) == TC_OK);
        /* the carry takes turns in two rows; gradients read the rows of all steps, and the carry
         * of the way back takes turns too */
        int64_t rows = grad ? 9 + 2 : 2, most = rows * ROWS * WIDE * 4 + 64 * WIDE * 4 + 4096;
        CHECK_MSG(info.arena_bytes <= most, "%lld bytes of workspace, expected at most %lld",
                  (long long)info.arena_bytes, (long long)most);
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

TEST_MAIN
