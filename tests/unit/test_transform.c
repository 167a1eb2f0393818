/* tc_vjp, tc_jvp, tc_stop_gradient, tc_vmap: their meaning apart from the rules of ops
 * (ops/test_transform.c), what they leave of a graph, and what is refused. */
#include "inside.h"
#include "tc_test.h"

static tc_ctx *make(const char *backend)
{
    tc_ctx *ctx;
    const tc_options o = {.backend = backend, .verify = true};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    return ctx;
}

static tc_tensor ramp(tc_ctx *ctx, int n)
{
    return tc_add(tc_mul(tc_arange(ctx, 0, n, 1, TC_F32), 0.25), -0.5);
}

static void check_same(int line, tc_tensor got, tc_tensor want)
{
    static float a[4096], b[4096];
    int64_t n = tc_count(want);
    REQUIRE(n >= 0 && n <= TCI_COUNT(a));
    CHECK_MSG(tc_rank(got) == tc_rank(want) && tc_count(got) == n, "line %d: rank %d, %lld: %s",
              line, tc_rank(got), (long long)tc_count(got), tc_error(got));
    CHECK_MSG(tc_read(tc_cast(got, TC_F32), a, n) == TC_OK, "line %d: %s", line, tc_error(got.ctx));
    CHECK_MSG(tc_read(tc_cast(want, TC_F32), b, n) == TC_OK, "line %d: %s", line,
              tc_error(want.ctx));
    for (int64_t i = 0; i < n; i++) {
        if (!(fabsf(a[i] - b[i]) <= 1e-5f * (1 + fabsf(b[i])))) {
            CHECK_MSG(false, "line %d: element %lld is %g, expected %g", line, (long long)i,
                      (double)a[i], (double)b[i]);
            return;
        }
    }
}
#define CHECK_SAME(got, want) check_same(__LINE__, (got), (want))

/* ---- gradients ---- */

TEST(cotangents_of_several_results)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = ramp(ctx, 6), grads[2], want[2];
    tc_tensor a = tc_sin(x), b = tc_sum(tc_mul(x, a), TC_ALL, false), u = tc_cos(x);
    const tc_tensor of[2] = {x, a};
    REQUIRE(tc_vjp(TC_TENSORS(a, b, a), TC_TENSORS(u, tc_full(ctx, 2, TC_F64), u), of, 2, grads) ==
            TC_OK);
    tc_tensor fixed = tc_stop_gradient(u); /* u depends on x, but as a cotangent it is given */
    tc_tensor loss = tc_add(tc_mul(tc_sum(tc_mul(a, fixed), TC_ALL, false), 2), tc_mul(b, 2));
    REQUIRE(tc_grad(loss, of, 2, want) == TC_OK);
    CHECK_SAME(grads[0], want[0]);
    CHECK_SAME(grads[1], want[1]);
    tc_ctx_free(ctx);
}

TEST(tangents_of_several_results)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = ramp(ctx, 6), v = tc_cos(x), out[3];
    tc_tensor y = tc_square(x), z = tc_exp(y), other = ramp(ctx, 3);
    REQUIRE(tc_jvp(TC_TENSORS(z, x, other), TC_TENSORS(x), TC_TENSORS(v), out) == TC_OK);
    CHECK_SAME(out[0], tc_mul(tc_mul(z, tc_mul(x, 2)), v));
    CHECK_SAME(out[1], v);
    CHECK_SAME(out[2], tc_mul(other, 0));
    /* y is an input too, that depends on x: both count */
    REQUIRE(tc_jvp(TC_TENSORS(z), TC_TENSORS(x, y), TC_TENSORS(v, v), out) == TC_OK);
    CHECK_SAME(out[0], tc_mul(z, tc_add(tc_mul(tc_mul(x, 2), v), v)));
    tc_ctx_free(ctx);
}

TEST(gradients_stop)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = ramp(ctx, 6), g, t, still = tc_stop_gradient(tc_square(x));
    REQUIRE(tc_grad(tc_sum(tc_mul(still, x), TC_ALL, false), &x, 1, &g) == TC_OK);
    CHECK_SAME(g, tc_square(x));
    REQUIRE(tc_jvp(TC_TENSORS(tc_mul(still, x)), TC_TENSORS(x), TC_TENSORS(tc_exp(x)), &t) ==
            TC_OK);
    CHECK_SAME(t, tc_mul(tc_square(x), tc_exp(x)));
    tc_tensor whole = tc_arange(ctx, 0, 3, 1, TC_I32);
    CHECK(tc_stop_gradient(whole).id == whole.id);
    tc_ctx_free(ctx);
}

static tc_program_info plan_of(tc_tensors inputs, tc_tensors outputs)
{
    tc_program *f;
    tc_program_info info = {0};
    tc_status status = tc_compile_fn(inputs, outputs, NULL, &f);
    CHECK_MSG(status == TC_OK, "%s", tc_error(outputs.items[0]));
    if (status == TC_OK) {
        tc_program_get_info(f, &info);
        tc_program_free(f);
    }
    return info;
}

/* Two layers: as many kernels and flops as the derivative written by hand has. */
TEST(forward_mode_does_no_more_than_by_hand)
{
    tc_ctx *ctx = make("interp");
    tc_tensor in[4] = {tc_input(ctx, "x", TC_F32, 32, 64), tc_input(ctx, "w", TC_F32, 64, 128),
                       tc_input(ctx, "w2", TC_F32, 128, 16), tc_input(ctx, "v", TC_F32, 32, 64)};
    tc_tensor h = tc_matmul(in[0], in[1]), y = tc_matmul(tc_gelu(h), in[2]), t;
    REQUIRE(tc_jvp(TC_TENSORS(y), TC_TENSORS(in[0]), TC_TENSORS(in[3]), &t) == TC_OK);
    tc_tensor th = tc_matmul(in[3], in[1]);
    tc_tensor size = tc_minimum(tc_abs(h), 100), square = tc_square(size);
    /* the rounding of the square */
    tc_tensor off = tc_fma(-0.5, tc_fma(size, size, tc_neg(square)), 1);
    tc_tensor part = tc_mul(tc_mul(h, 0.39894228040143268), tc_exp(tc_mul(square, -0.5)));
    tc_tensor phi = tc_mul(tc_erfc(tc_mul(h, -0.70710678118654752)), 0.5);
    part = tc_mul(part, off);
    tc_tensor hand = tc_matmul(tc_mul(th, tc_add(phi, part)), in[2]);
    tc_program_info a = plan_of(TC_TENSORS_N(in, 4), TC_TENSORS(y, t));
    tc_program_info b = plan_of(TC_TENSORS_N(in, 4), TC_TENSORS(y, hand));
    CHECK_EQ_INT(a.n_kernels, b.n_kernels);
    CHECK_MSG((double)a.flops <= 1.001 * (double)b.flops, "%lld flops, %lld by hand",
              (long long)a.flops, (long long)b.flops);
    CHECK_EQ_INT(a.bytes_read + a.bytes_written, b.bytes_read + b.bytes_written);
    tc_ctx_free(ctx);
}

/* The dead half of a transposed rule is not in the program. */
TEST(tangents_of_a_norm_are_one_kernel)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = tc_input(ctx, "x", TC_F32, 16, 64), v = tc_input(ctx, "v", TC_F32, 16, 64), t;
    tc_tensor y = tc_layer_norm(x, TC_AXES(-1), TC_NONE, TC_NONE, 1e-5);
    REQUIRE(tc_jvp(TC_TENSORS(y), TC_TENSORS(x), TC_TENSORS(v), &t) == TC_OK);
    CHECK_EQ_INT(plan_of(TC_TENSORS(x, v), TC_TENSORS(y, t)).n_kernels, 1);
    tc_ctx_free(ctx);
}

/* ---- gradients against differences ---- */

TEST(gradients_are_checked)
{
    tc_ctx *ctx = make("interp");
    tc_gradcheck_report r;
    tc_tensor x = tc_reshape(tc_sin(tc_mul(ramp(ctx, 24), 5)), 4, 6), w = tc_cos(ramp(ctx, 6));
    tc_tensor w16 = tc_cast(tc_mul(w, 1.5), TC_F16);
    tc_tensor y = tc_layer_norm(tc_mul(x, w16), TC_AXES(-1), w, TC_NONE, 1e-5);
    y = tc_softmax(tc_add(y, tc_cast(tc_cast(tc_mul(x, 100), TC_I32), TC_F32)), 0);
    CHECK_EQ_INT(tc_gradcheck(y, TC_TENSORS(x, w, w16), NULL, &r), TC_OK);
    CHECK_MSG(r.error < 1e-6 && r.checked == 24 + 6 + 6, "%g, %lld", r.error, (long long)r.checked);
    CHECK_STR(r.op, "");
    const tc_gradcheck_options few = {.most = 5};
    CHECK_EQ_INT(tc_gradcheck(y, TC_TENSORS(x), &few, &r), TC_OK);
    CHECK_EQ_INT(r.checked, 5);
    tc_ctx_free(ctx);
}

TEST(wrong_gradients_have_a_place)
{
    tc_ctx *ctx = make("interp");
    tc_gradcheck_report r;
    const float data[6] = {0.5f, -2, 3, 0, 0.25f, 1};
    tc_tensor x = tc_copy_in(ctx, data, TC_F32, 6), other = tc_exp(ramp(ctx, 6));
    const int line = __LINE__ + 1;
    tc_tensor y = tc_tanh(tc_mul(tc_relu(tc_mul(x, 2)), other)); /* a kink at 0 */
    CHECK_EQ_INT(tc_gradcheck(tc_sum(y, TC_ALL, false), TC_TENSORS(other, x), NULL, &r),
                 TC_ERR_GRADIENT);
    CHECK_EQ_INT(r.input, 1);
    CHECK_EQ_INT(r.element, 3);
    CHECK(r.gradient == 0 && fabs(r.difference) > 0.1);
    CHECK_STR(r.op, "tc_relu");
    CHECK_HAS(r.file, "test_transform.c");
    CHECK_EQ_INT(r.line, line);

    y = tc_add(tc_sin(x), tc_mul(tc_stop_gradient(tc_square(other)), x)); /* a rule that is wrong */
    CHECK_EQ_INT(tc_gradcheck(y, TC_TENSORS(x, other), NULL, NULL), TC_ERR_GRADIENT);
    CHECK_HAS(tc_error(y), "of input 1 has the gradient 0, differences say ");
    CHECK_HAS(tc_error(y), "the first whose rule does not hold is tc_stop_gradient at ");
    CHECK_EQ_INT(tc_gradcheck(y, TC_TENSORS(), NULL, NULL), TC_ERR_ARGUMENT);
    tc_tensor in = tc_input(ctx, "in", TC_F32, 6);
    CHECK_EQ_INT(tc_gradcheck(tc_mul(x, in), TC_TENSORS(x), NULL, NULL), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_gradcheck(tc_arange(ctx, 0, 3, 1, TC_I32), TC_TENSORS(x), NULL, NULL),
                 TC_ERR_DTYPE);
    tc_ctx_free(ctx);
}

/* ---- examples ---- */

/* Each of n slices of every input by itself, side by side. */
static tc_tensor one_by_one(tc_function f, void *user, tc_tensors in, int n)
{
    tc_tensor all = TC_NONE;
    for (int e = 0; e < n; e++) {
        tc_tensor x[4], y;
        for (int i = 0; i < in.n; i++) {
            x[i] = tc_squeeze(tc_slice(in.items[i], 0, e, e + 1, 1), 0);
        }
        f(x, &y, user);
        y = tc_unsqueeze(y, 0);
        all = e ? tc_cat(TC_TENSORS(all, y), 0) : y;
    }
    return all;
}

static void check_examples(int line, tc_function f, void *user, tc_tensors in, int n)
{
    tc_tensor y;
    tc_status status = tc_vmap(f, user, in, NULL, &y, NULL, 1);
    CHECK_MSG(status == TC_OK, "line %d: %s", line, tc_error(y));
    check_same(line, y, one_by_one(f, user, in, n));
}
#define CHECK_EXAMPLES(f, user, in, n) check_examples(__LINE__, (f), (user), in, (n))

static void at_indices(const tc_tensor *x, tc_tensor *y, void *user)
{
    (void)user;
    y[0] = tc_scatter_max(tc_gather(x[0], 1, x[1]), 1, x[1], tc_mul(x[0], -1));
}

static void largest(const tc_tensor *x, tc_tensor *y, void *user)
{
    tc_tensor values, places;
    tc_topk(x[0], -1, 2, true, &values, &places);
    y[0] = tc_add(values, tc_add(places, tc_argmax(x[0], 1, true)));
    (void)user;
}

static void words(const tc_tensor *x, tc_tensor *y, void *user)
{
    tc_tensor bits = tc_bitwise_xor(tc_cast(tc_mul(x[0], 8), TC_I32), 5);
    y[0] = tc_add(tc_any(tc_gt(x[0], 0.3), TC_AXES(1), true), bits);
    (void)user;
}

static void classes(const tc_tensor *x, tc_tensor *y, void *user)
{
    (void)user;
    y[0] = tc_cross_entropy(x[0], tc_squeeze(tc_slice(x[1], 1, 0, 1, 1), 1));
}

TEST(examples_of_what_has_no_gradient)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = tc_reshape(tc_sin(tc_mul(ramp(ctx, 60), 9)), 4, 3, 5);
    tc_tensor i = tc_remainder(tc_mul(tc_arange(ctx, 0, 60, 1, TC_I64), 7), 5);
    i = tc_reshape(i, 4, 3, 5);
    CHECK_EXAMPLES(at_indices, NULL, TC_TENSORS(x, i), 4);
    CHECK_EXAMPLES(largest, NULL, TC_TENSORS(x), 4);
    CHECK_EXAMPLES(words, NULL, TC_TENSORS(x), 4);
    tc_tensor turned = tc_transpose(x, 1, 2); /* 5 targets of 3 classes */
    CHECK_EXAMPLES(classes, NULL, TC_TENSORS(turned, tc_remainder(tc_transpose(i, 1, 2), 3)), 4);
    tc_ctx_free(ctx);
}

static void draws(const tc_tensor *x, tc_tensor *y, void *user)
{
    const tc_dtype t = *(const tc_dtype *)user;
    tc_ctx *ctx = x[0].ctx;
    tc_tensor bits = tc_random_bits(ctx, tc_fold_in(x[0], 3), t, 3, 7);
    tc_tensor halves = tc_bitwise_xor(bits, tc_bitwise_right_shift(bits, 16));
    y[0] = tc_bitwise_and(halves, 0xffff);
}

static void noise(const tc_tensor *x, tc_tensor *y, void *user)
{
    (void)user;
    y[0] = tc_add(x[0], tc_rand(x[0].ctx, 17, TC_F32, 5));
}

/* A key for each example gives the numbers that the key gives alone; one key the same to all. */
TEST(examples_of_random_numbers)
{
    tc_ctx *ctx = make("interp");
    tc_tensor keys = tc_mul(tc_arange(ctx, 1, 6, 1, TC_U64), 0x123456789abcd), y;
    const tc_dtype dtypes[] = {TC_U32, TC_U64};
    for (int i = 0; i < 2; i++) {
        CHECK_EXAMPLES(draws, (void *)(uintptr_t)&dtypes[i], TC_TENSORS(keys), 5);
    }
    tc_tensor x = tc_reshape(ramp(ctx, 15), 3, 5);
    REQUIRE(tc_vmap(noise, NULL, TC_TENSORS(x), NULL, &y, NULL, 1) == TC_OK);
    CHECK_SAME(tc_sub(y, x), tc_expand(tc_rand(ctx, 17, TC_F32, 5), 3, 5));
    tc_ctx_free(ctx);
}

static void outer_row(const tc_tensor *x, tc_tensor *y, void *user)
{
    const tc_tensor *other = user;
    y[0] = tc_mul(x[0], *other);
}

static void outer(const tc_tensor *x, tc_tensor *y, void *user)
{
    tc_tensor all = x[1];
    (void)user;
    tc_vmap(outer_row, (void *)(uintptr_t)&x[0], TC_TENSORS(all), NULL, y, NULL, 1);
}

static void both(const tc_tensor *x, tc_tensor *y, void *user)
{
    tc_ctx *ctx = user;
    y[0] = tc_sum(x[0], TC_ALL, false);
    y[1] = tc_full(ctx, 3, TC_F32, 2);
    y[2] = tc_full(ctx, 4, TC_F32, 2);
}

TEST(examples_within_examples)
{
    tc_ctx *ctx = make("interp");
    tc_tensor a = ramp(ctx, 4), b = tc_sin(ramp(ctx, 3)), y[3];
    REQUIRE(tc_vmap(outer, NULL, TC_TENSORS(a, b), ((const int[]){0, TC_UNMAPPED}), y, NULL, 1) ==
            TC_OK);
    CHECK_SAME(y[0], tc_einsum("i,j->ij", TC_TENSORS(a, b)));
    /* what is the same for all is repeated, unless it is said to be */
    REQUIRE(tc_vmap(both, ctx, TC_TENSORS(a), NULL, y, ((const int[]){0, 1, TC_UNMAPPED}), 3) ==
            TC_OK);
    CHECK_SAME(y[0], a);
    CHECK_SAME(y[1], tc_full(ctx, 3, TC_F32, 2, 4));
    CHECK_SAME(y[2], tc_full(ctx, 4, TC_F32, 2));
    tc_ctx_free(ctx);
}

/* ---- programs ---- */

static void slope_of(const tc_tensor *x, tc_tensor *y, void *user)
{
    (void)user;
    tc_grad(tc_sum(tc_square(tc_tanh(tc_matmul(x[1], x[0]))), TC_ALL, false), &x[1], 1, &y[0]);
}

static void check_program(const char *backend)
{
    enum { EXAMPLES = 10, ROWS = 3, COLUMNS = 4 };
    tc_ctx *ctx = make(backend);
    tc_tensor many = tc_input(ctx, "many", TC_F32, COLUMNS, EXAMPLES), slopes, sum, whole;
    tc_tensor w = tc_input(ctx, "w", TC_F32, ROWS, COLUMNS);
    REQUIRE(tc_vmap(slope_of, NULL, TC_TENSORS(many, w), ((const int[]){1, TC_UNMAPPED}), &slopes,
                    NULL, 1) == TC_OK);
    tc_tensor y = tc_square(tc_tanh(tc_matmul(w, many)));
    REQUIRE(tc_grad(tc_sum(y, TC_ALL, false), &w, 1, &whole) == TC_OK);
    sum = tc_sub(tc_sum(slopes, TC_AXES(0), false), whole);
    tc_program *f;
    tc_status status = tc_compile_fn(TC_TENSORS(many, w), TC_TENSORS(slopes, sum), NULL, &f);
    CHECK_MSG(status == TC_OK, "%s", tc_error(slopes));
    float in[EXAMPLES * COLUMNS], weights[ROWS * COLUMNS], rest[ROWS * COLUMNS];
    float out[EXAMPLES * ROWS * COLUMNS];
    for (int i = 0; i < TCI_COUNT(in); i++) {
        in[i] = (float)sin(i * 1.7);
    }
    for (int i = 0; i < TCI_COUNT(weights); i++) {
        weights[i] = (float)cos(i * 0.9);
    }
    CHECK(tc_run(f, TC_BUFS(TC_BUF(in, TCI_COUNT(in)), TC_BUF(weights, TCI_COUNT(weights))),
                 TC_BUFS(TC_BUF(out, TCI_COUNT(out)), TC_BUF(rest, TCI_COUNT(rest)))) == TC_OK);
    for (int i = 0; i < TCI_COUNT(rest); i++) {
        CHECK_MSG(fabsf(rest[i]) < 1e-5f, "%d: %g", i, (double)rest[i]);
    }
    CHECK(fabsf(out[5]) > 1e-3f);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(programs_of_examples_interp)
{
    check_program("interp");
}
TEST(programs_of_examples_cpu)
{
    check_program("cpu");
}

/* ---- what is refused ---- */

static void assigns(const tc_tensor *x, tc_tensor *y, void *user)
{
    y[0] = tc_assign(*(const tc_tensor *)user, x[0]);
}

static void reads(const tc_tensor *x, tc_tensor *y, void *user)
{
    float value[3];
    *(tc_status *)user = tc_read(x[0], value, 3);
    y[0] = x[0];
}

static void makes_nothing(const tc_tensor *x, tc_tensor *y, void *user)
{
    (void)x;
    (void)y;
    (void)user;
}

static void fails(const tc_tensor *x, tc_tensor *y, void *user)
{
    (void)user;
    y[0] = tc_reshape(x[0], 7);
}

/* ---- loops and branches ---- */

/* A filter with an output per step: what it carries, and an integer that counts. */
static tc_status filter_step(void *user, const tc_tensor *carry, const tc_tensor *x,
                             tc_tensor *next, tc_tensor *y)
{
    const tc_tensor *w = user;
    next[0] = tc_tanh(tc_add(tc_mul(carry[0], *w), x[0]));
    next[1] = tc_add(carry[1], 1);
    y[0] = tc_mul(next[0], tc_add(tc_cast(carry[1], TC_F32), 1));
    return TC_OK;
}

enum { STEPS = 4, WIDE = 3 };

static void filter(tc_tensor xs, tc_tensor w, bool reverse, tc_tensor *last, tc_tensor *ys)
{
    tc_tensor init[2] = {tc_full(xs.ctx, 0.25, TC_F32, WIDE), tc_full(xs.ctx, 0, TC_I32)};
    tc_tensor end[2];
    CHECK_EQ_INT(tc_scan(TC_TENSORS(init[0], init[1]), TC_TENSORS(xs), 0, reverse, filter_step, &w,
                         end, ys, 1),
                 TC_OK);
    *last = end[0];
}

/* A tangent against the gradient: u . (J t) is (J' u) . t. */
TEST(tangents_go_through_repetitions)
{
    tc_ctx *ctx = make("interp");
    tc_tensor xs = tc_reshape(ramp(ctx, STEPS * WIDE), STEPS, WIDE), w = ramp(ctx, WIDE);
    tc_tensor t[2] = {tc_cos(xs), tc_sin(w)};
    for (int reverse = 0; reverse < 2; reverse++) {
        tc_tensor y[2], dy[2], g[2];
        filter(xs, w, reverse, &y[0], &y[1]);
        REQUIRE(!tc_jvp(TC_TENSORS(y[0], y[1]), TC_TENSORS(xs, w), TC_TENSORS(t[0], t[1]), dy));
        tc_tensor u[2] = {tc_exp(ramp(ctx, WIDE)), tc_sub(1, xs)};
        const tc_tensor at[2] = {xs, w};
        REQUIRE(!tc_vjp(TC_TENSORS(y[0], y[1]), TC_TENSORS(u[0], u[1]), at, 2, g));
        tc_tensor forward = tc_add(tc_sum(tc_mul(u[0], dy[0]), TC_ALL, false),
                                   tc_sum(tc_mul(u[1], dy[1]), TC_ALL, false));
        tc_tensor back = tc_add(tc_sum(tc_mul(t[0], g[0]), TC_ALL, false),
                                tc_sum(tc_mul(t[1], g[1]), TC_ALL, false));
        CHECK_SAME(forward, back);
    }
    tc_ctx_free(ctx);
}

static tc_status below_100(void *user, const tc_tensor *carry, tc_tensor *go)
{
    (void)user;
    *go = tc_lt(tc_sum(carry[0], TC_ALL, false), 100);
    return TC_OK;
}

static tc_status doubled(void *user, const tc_tensor *carry, tc_tensor *next)
{
    (void)user;
    next[0] = tc_mul(carry[0], 2);
    return TC_OK;
}

static tc_status squares(void *user, const tc_tensor *x, tc_tensor *y)
{
    (void)user;
    y[0] = tc_square(x[0]);
    return TC_OK;
}

/* Twice until it is 100 or more: y = x 2^k, so dy = 2^k. */
static void grown(const tc_tensor *x, tc_tensor *y, void *user)
{
    (void)user;
    tc_while(TC_TENSORS(x[0]), 0, below_100, doubled, NULL, &y[0]);
}

static void branched(const tc_tensor *x, tc_tensor *y, void *user)
{
    (void)user;
    tc_cond(tc_lt(tc_sum(x[0], TC_ALL, false), 2), TC_TENSORS(x[0]), doubled, squares, NULL, y, 1);
}

static void filtered(const tc_tensor *x, tc_tensor *y, void *user)
{
    filter(x[0], x[1], user != NULL, &y[0], &y[1]);
}

static tc_tensor row(tc_tensor x, int i)
{
    return tc_reshape_at(tc_slice(x, 0, i, i + 1, 1), tc_rank(x) - 1,
                         tc_rank(x) > 2 ? (const int64_t[]){STEPS, WIDE} : (const int64_t[]){WIDE},
                         TC_HERE);
}

TEST(tangents_of_loops_that_stop_and_of_branches)
{
    tc_ctx *ctx = make("interp");
    for (int large = 0; large < 2; large++) {
        tc_tensor x = tc_add(ramp(ctx, WIDE), large ? 30 : 0.5), y, dy, t = tc_cos(x);
        grown(&x, &y, NULL);
        REQUIRE(!tc_jvp(TC_TENSORS(y), TC_TENSORS(x), TC_TENSORS(t), &dy));
        CHECK_SAME(dy, tc_mul(t, large ? 2 : 256)); /* sums of 89.25 and 0.75 */
        branched(&x, &y, NULL);
        REQUIRE(!tc_jvp(TC_TENSORS(y), TC_TENSORS(x), TC_TENSORS(t), &dy));
        CHECK_SAME(dy, tc_mul(tc_mul(t, 2), large ? x : tc_add(tc_mul(x, 0), 1)));
    }
    tc_ctx_free(ctx);
}

/* Each example by itself: examples leave the loop at different steps and take other branches. */
static void check_mapped(const char *backend, tc_function f, tc_tensor x, tc_tensor w, int n,
                         void *user)
{
    tc_tensor many[2], one[2];
    int examples = (int)tc_size(x, 0);
    CHECK_MSG(!tc_vmap(f, user, TC_TENSORS(x, w), ((const int[]){0, TC_UNMAPPED}), many, NULL, n),
              "%s: %s", backend, tc_error(many[0]));
    for (int i = 0; i < examples; i++) {
        const tc_tensor in[2] = {row(x, i), w};
        f(in, one, user);
        for (int k = 0; k < n; k++) {
            CHECK_SAME(row(many[k], i), one[k]);
        }
    }
}

static void slope_of_filter(const tc_tensor *x, tc_tensor *y, void *user)
{
    filtered(x, y, user);
    tc_grad(tc_add(tc_sum(y[0], TC_ALL, false), tc_sum(y[1], TC_ALL, false)), &x[0], 1, &y[0]);
}

TEST(examples_go_through_repetitions)
{
    for (int native = 0; native < 2; native++) {
        const char *backend = native ? "cpu" : "interp";
        tc_ctx *ctx = make(backend);
        tc_tensor rows = tc_reshape(ramp(ctx, 4 * WIDE), 4, WIDE), w = ramp(ctx, WIDE);
        tc_tensor xs = tc_reshape(ramp(ctx, 4 * STEPS * WIDE), 4, STEPS, WIDE);
        check_mapped(backend, filtered, tc_sin(xs), w, 2, NULL);
        check_mapped(backend, filtered, tc_sin(xs), w, 2, ctx);
        check_mapped(backend, slope_of_filter, tc_sin(xs), w, 1, NULL);
        rows = tc_add(tc_square(rows), 0.5);
        check_mapped(backend, grown, rows, w, 1, NULL);
        check_mapped(backend, branched, rows, w, 1, NULL);
        tc_ctx_free(ctx);
    }
}

static void grown_between(const tc_tensor *x, tc_tensor *y, void *user)
{
    const tc_tensor half = tc_mul(x[0], 0.5);
    grown(&half, y, user);
    y[0] = tc_mul(y[0], 0.25);
}

/* An axis of size 1 that no root of a group reads is no axis of its rows. */
TEST(examples_of_one_element_go_through_a_loop)
{
    tc_ctx *ctx;
    tc_options o = {.backend = "interp", .no_disk_cache = true, .verify = true};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    const float at[3] = {6, 80, 14}, want[3] = {48, 40, 28}; /* 3 2^6 / 4, 40 2^2 / 4, 7 2^4 / 4 */
    tc_tensor y;
    CHECK_EQ_INT(tc_vmap(grown_between, NULL, TC_TENSORS(tc_copy_in(ctx, at, TC_F32, 3, 1)), NULL,
                         &y, NULL, 1),
                 TC_OK);
    float got[3] = {0};
    tc_status status = tc_read(y, got, 3);
    CHECK_MSG(status == TC_OK, "%s", tc_error(y));
    for (int i = 0; i < 3; i++) {
        CHECK_CLOSE(got[i], want[i], 0);
    }
    tc_ctx_free(ctx);
}

TEST(misuse_has_a_text)
{
    tc_ctx *ctx = make("interp");
    tc_tensor x = tc_reshape(ramp(ctx, 6), 2, 3), y[2], whole = tc_arange(ctx, 0, 2, 1, TC_I32);
    tc_tensor p = tc_param(ctx, NULL, TC_F32, 3);
    CHECK_EQ_INT(tc_jvp(TC_TENSORS(x), TC_TENSORS(x), TC_TENSORS(), y), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(y[0]), "given 0 tangents for 1 inputs");
    CHECK_EQ_INT(tc_vjp(TC_TENSORS(x), TC_TENSORS(ramp(ctx, 2)), &x, 1, y), TC_ERR_SHAPE);
    CHECK_HAS(tc_error(y[0]), "cotangent 0 has shape [2]: expected [2, 3], that of result 0");
    CHECK_EQ_INT(tc_jvp(TC_TENSORS(whole), TC_TENSORS(x), TC_TENSORS(x), y), TC_ERR_DTYPE);
    CHECK_HAS(tc_error(y[0]), "result 0 is i32: only floats have gradients");
    CHECK_EQ_INT(tc_jvp(TC_TENSORS(tc_bitcast(tc_bitcast(x, TC_I32), TC_F32)), TC_TENSORS(x),
                        TC_TENSORS(x), y),
                 TC_OK); /* integers are between: it does not change */

    CHECK_EQ_INT(tc_vmap(NULL, NULL, TC_TENSORS(x), NULL, y, NULL, 1), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_vmap(both, ctx, TC_TENSORS(x, whole), ((const int[]){1, 0}), y, NULL, 1),
                 TC_ERR_SHAPE);
    CHECK_HAS(tc_error(y[0]), "axis 0 of input 1 has 2 elements, the inputs before 3");
    CHECK_EQ_INT(tc_vmap(both, ctx, TC_TENSORS(x), ((const int[]){2}), y, NULL, 1), TC_ERR_AXIS);
    CHECK_EQ_INT(tc_vmap(both, ctx, TC_TENSORS(x), ((const int[]){TC_UNMAPPED}), y, NULL, 1),
                 TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_vmap(noise, ctx, TC_TENSORS(tc_expand(ramp(ctx, 5), 2, 5)), NULL, y,
                         ((const int[]){TC_UNMAPPED}), 1),
                 TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(y[0]), "output 0 differs between examples");
    CHECK_EQ_INT(tc_vmap(fails, NULL, TC_TENSORS(x), NULL, y, NULL, 1), TC_ERR_SHAPE);
    CHECK_HAS(tc_error(y[0]), "tc_reshape");
    CHECK_EQ_INT(tc_vmap(makes_nothing, NULL, TC_TENSORS(x), NULL, y, NULL, 1), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_vmap(assigns, &p, TC_TENSORS(x), NULL, y, NULL, 1), TC_ERR_UNSUPPORTED);
    CHECK_HAS(tc_error(y[0]), "tc_assign (made at ");
    CHECK_HAS(tc_error(y[0]), "cannot be done for many examples at once");
    tc_status status = TC_OK;
    CHECK_EQ_INT(tc_vmap(reads, &status, TC_TENSORS(x), NULL, y, NULL, 1), TC_OK);
    CHECK_EQ_INT(status, TC_ERR_ARGUMENT);
    tc_ctx_free(ctx);
}

TEST_MAIN
