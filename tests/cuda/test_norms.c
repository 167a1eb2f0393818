/* tests/cuda/test_norms.c - norms over places on blocks of threads: how many launches they are, and
 * their values and gradients against f64, for rows far from 0 and near it; plans for blocks of
 * threads run by the interpreter. */
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"

#include "emulate.h"

/* Plans as the emulation does and compiles nothing, so the interpreter runs the same kernels. */
static tc_status planned_target(void *user, int vector_bits, tc_backend_target *target)
{
    tc_status status = emu_target(user, vector_bits, target);
    snprintf(target->features, sizeof(target->features), "planned");
    target->usable = true;
    return status;
}

static tc_status planned_compile(void *user, tc_build *build)
{
    (void)user;
    (void)build;
    return TC_ERR_COMPILER;
}

static tc_ctx *planned_context(void)
{
    static tc_backend planned;
    tc_ctx *ctx = NULL;
    if (!planned.name) {
        planned = *emulation();
        planned.name = "planned";
        planned.target = planned_target;
        planned.compile = planned_compile;
        tc_register_backend(&planned);
    }
    tc_options o = {.backend = "planned", .verify = true, .fallback = TC_FALLBACK_ALLOW};
    return tc_ctx_make(&ctx, &o) ? NULL : ctx;
}

enum { N = 32, C = 64, SIDE = 14, PLACES = SIDE * SIDE, ALL = N * C * PLACES };

static float number(int i, float mean)
{
    return mean + (float)((i * 7919) % 2003 - 1001) / 577.0f;
}

/* A batch norm, as networks write it; its gradients to x and to the scale, of a sum that weighs
 * each result. */
typedef struct norm {
    tc_tensor in[3]; /* x, scale, weights of the results */
    tc_tensor out[3];
} norm;

static norm make_norm(tc_ctx *ctx)
{
    norm m;
    m.in[0] = tc_input(ctx, "x", TC_F32, N, C, SIDE, SIDE);
    m.in[1] = tc_input(ctx, "scale", TC_F32, 1, C, 1, 1);
    m.in[2] = tc_input(ctx, "weights", TC_F32, N, C, SIDE, SIDE);
    tc_tensor mean = tc_mean(m.in[0], TC_AXES(0, 2, 3), true), off = tc_sub(m.in[0], mean);
    tc_tensor var = tc_mean(tc_square(off), TC_AXES(0, 2, 3), true);
    m.out[0] = tc_mul(tc_mul(off, tc_rsqrt(tc_add(var, 1e-5))), m.in[1]);
    return m;
}

static int launches_of(tc_program *f)
{
    tc_program_info info;
    tc_program_get_info(f, &info);
    return info.n_steps;
}

/* Results of channel c in f64. */
static void expect_channel(int c, const float *x, const float *g, float scale, double *y,
                           double *dx, double *dscale)
{
    double mean = 0, var = 0, sum_g = 0, sum_gx = 0, count = N * PLACES;
    for (int i = 0; i < N * PLACES; i++) {
        mean += x[(i / PLACES * C + c) * PLACES + i % PLACES] / count;
    }
    for (int i = 0; i < N * PLACES; i++) {
        double off = x[(i / PLACES * C + c) * PLACES + i % PLACES] - mean;
        var += off * off / count;
        sum_g += g[(i / PLACES * C + c) * PLACES + i % PLACES];
        sum_gx += g[(i / PLACES * C + c) * PLACES + i % PLACES] * off;
    }
    double r = 1 / sqrt(var + 1e-5);
    for (int i = 0; i < N * PLACES; i++) {
        int at = (i / PLACES * C + c) * PLACES + i % PLACES;
        double off = x[at] - mean;
        y[at] = off * r * scale;
        dx[at] = scale * r * (g[at] - sum_g / count - off * r * r * sum_gx / count);
    }
    dscale[c] = sum_gx * r;
}

static double far_off(const float *got, const double *want, int n)
{
    double most = 1e-30, off = 0;
    for (int i = 0; i < n; i++) {
        most = fmax(most, fabs(want[i]));
        off = got[i] == got[i] ? fmax(off, fabs(got[i] - want[i])) : INFINITY;
    }
    return off / most;
}

/* bound: of errors, relative to the largest value of each result. */
static void check_norm(float mean, double bound)
{
    static float x[ALL], g[ALL], scale[C], y[ALL], dx[ALL], dscale[C];
    static double want_y[ALL], want_dx[ALL], want_dscale[C];
    tc_ctx *ctx = planned_context();
    REQUIRE(ctx != NULL);
    norm m = make_norm(ctx);
    tc_program *f = NULL;
    CHECK_EQ_INT(tc_grad(tc_sum(tc_mul(m.out[0], m.in[2]), TC_ALL, false), m.in, 2, m.out + 1),
                 TC_OK);
    for (int i = 0; i < ALL; i++) {
        x[i] = number(i, mean);
        g[i] = number(3 * i + 1, 0.25f);
    }
    for (int c = 0; c < C; c++) {
        scale[c] = number(5 * c, 1);
        expect_channel(c, x, g, scale[c], want_y, want_dx, want_dscale);
    }
    tc_status status = tc_compile_fn(TC_TENSORS(m.in[0], m.in[1], m.in[2]),
                                     TC_TENSORS(m.out[0], m.out[1], m.out[2]), NULL, &f);
    CHECK_MSG(!status, "%s", tc_error(ctx));
    REQUIRE(!status);
    status = tc_run(f, TC_BUFS(TC_BUF(x, ALL), TC_BUF(scale, C), TC_BUF(g, ALL)),
                    TC_BUFS(TC_BUF(y, ALL), TC_BUF(dx, ALL), TC_BUF(dscale, C)));
    CHECK_MSG(!status, "%s", tc_error(f));
    double off[3] = {far_off(y, want_y, ALL), far_off(dx, want_dx, ALL),
                     far_off(dscale, want_dscale, C)};
    CHECK_MSG(off[0] <= bound && off[1] <= bound && off[2] <= bound,
              "about %g: off by %g, %g and %g", (double)mean, off[0], off[1], off[2]);
    CHECK_MSG(launches_of(f) <= 5, "%d launches", launches_of(f));
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Sums of parts, of all, and the values: one launch each, and the gradients' two more. */
TEST(values_and_gradients_of_norms_over_places)
{
    check_norm(0, 2e-6);
    check_norm(-3, 4e-6);
    check_norm(300, 4e-4);
}

/* Mean and squares are of one pass, whichever axis the channels are. */
TEST(norms_over_places_are_three_launches)
{
    for (int last = 0; last < 2; last++) {
        tc_ctx *ctx = planned_context();
        tc_program *f = NULL;
        REQUIRE(ctx != NULL);
        tc_tensor x = last ? tc_input(ctx, "x", TC_F32, N, SIDE, SIDE, C)
                           : tc_input(ctx, "x", TC_F32, N, C, SIDE, SIDE);
        tc_axes axes = last ? TC_AXES(0, 1, 2) : TC_AXES(0, 2, 3);
        tc_tensor off = tc_sub(x, tc_mean(x, axes, true));
        tc_tensor y = tc_mul(off, tc_rsqrt(tc_add(tc_mean(tc_square(off), axes, true), 1e-5)));
        tc_status status = tc_compile(y, &f);
        CHECK_MSG(!status, "%s", tc_error(ctx));
        CHECK_EQ_INT(status ? 0 : launches_of(f), 3);
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

/* Few rows that a block's registers hold are not cut. */
TEST(norms_of_few_rows_are_one_launch)
{
    tc_ctx *ctx = planned_context();
    tc_program *f = NULL;
    REQUIRE(ctx != NULL);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64, 8192);
    tc_tensor y = tc_mul(x, tc_rsqrt(tc_add(tc_mean(tc_square(x), TC_AXES(1), true), 1e-6)));
    tc_status status = tc_compile(y, &f);
    CHECK_MSG(!status, "%s", tc_error(ctx));
    CHECK_EQ_INT(status ? 0 : launches_of(f), 1);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST_MAIN
