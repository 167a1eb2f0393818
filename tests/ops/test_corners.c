/* Second derivatives of every op that has a gradient (grad_cases.h), at points that hold zeros,
 * equal elements and whole numbers, where rules have branches.
 *
 * With directions u and v, u' H v of the loss is computed four ways: reverse over reverse, forward
 * over reverse, reverse over forward and forward over forward. Each is held against differences of
 * the loss itself. Where the loss is not smooth (a kink, or a value that is not finite) there is
 * nothing to hold it against: that is so where differences to one side, to the other and to both
 * disagree, or change with the step. At every point, smooth or not, the tangent along v is the
 * gradient times v where that is a number. */
#include "inside.h"
#include "tc_test.h"

#include "grad_cases.h"

enum { WAYS = 4, REVERSE = WAYS, FORWARD, OUTPUTS, POINTS = 16, MOST = 256 };

static const char *const way_names[WAYS] = {"reverse over reverse", "forward over reverse",
                                            "reverse over forward", "forward over forward"};

typedef struct corner_run {
    const grad_case *c;
    int64_t counts[MAX_INPUTS];
    double x[MAX_INPUTS][MOST], u[MAX_INPUTS][MOST], v[MAX_INPUTS][MOST];
    tc_program *program; /* x, u, v to the four ways, and to the first derivative along v */
    tc_program *loss;    /* x to the loss */
    int judged;
} corner_run;

/* ---- cases that the others lack ---- */

FN(whole_product)
{
    UNUSED;
    return tc_prod(x[0], TC_ALL, false);
}
FN(running_back)
{
    UNUSED;
    return tc_flip(tc_cumprod(tc_flip(x[0], 0), 0), 0);
}
FN(product_by_rows)
{
    UNUSED;
    return tc_mul(tc_prod(x[0], TC_AXES(1), true), x[0]);
}
FN(products_at_one_place)
{
    tc_tensor i = index_of(ctx, 6, SIZES(1, -1, 1, 1, 0, -2), 1, SIZES(6));
    return tc_scatter_prod(x[0], 0, i, x[1]);
}
FN(power_of_tensors)
{
    UNUSED;
    return tc_pow(x[0], x[1]);
}
FN(transmittance) /* what volume rendering does */
{
    UNUSED;
    return tc_mul(tc_cumprod(tc_sub(1.0, x[0]), 1), x[0]);
}
FN(squares)
{
    UNUSED;
    return tc_det(x[0]);
}
FN(low_rank)
{
    UNUSED;
    return tc_det(tc_add(tc_matmul(x[0], x[1]), x[2]));
}

FN(even_powers)
{
    UNUSED;
    return tc_lp_pool2d(x[0], 4, &(tc_pool){.kernel = {2, 3}, .stride = {1, 2}});
}
FN(square_windows)
{
    UNUSED;
    return tc_lp_pool1d(x[0], 2, &(tc_pool){.kernel = {2}});
}
FN(root_windows)
{
    UNUSED;
    return tc_lp_pool1d(x[0], 1.5, &(tc_pool){.kernel = {3}});
}

static void add_corners(void)
{
    IN(add_case("prod, all", whole_product), 4);
    IN(add_case("cumprod, reversed", running_back), 5, 2);
    IN(add_case("prod by rows", product_by_rows), 2, 4);
    grad_case *c = add_case("scatter_prod, one axis", products_at_one_place);
    IN(c, 3);
    IN(c, 6);
    c = add_case("pow of tensors", power_of_tensors);
    IN(c, 8);
    IN(c, 8);
    c->inputs[0].positive = true;
    IN(add_case("cumprod of 1 - x", transmittance), 2, 4);
    IN(add_case("lp_pool2d, p 4", even_powers), 1, 1, 3, 5);
    IN(add_case("lp_pool1d, p 2", square_windows), 1, 2, 6);
    IN(add_case("lp_pool1d, p 1.5", root_windows), 1, 1, 6);
    IN(add_case("det, 1 x 1", squares), 3, 1, 1);
    IN(add_case("det, 2 x 2", squares), 3, 2, 2);
    IN(add_case("det, 4 x 4", squares), 4, 4);
    c = add_case("det of low rank", low_rank);
    IN(c, 5, 3);
    IN(c, 3, 5);
    IN(c, 5, 5);
}

/* ---- the four ways ---- */

static tc_tensor dot(tc_ctx *ctx, const tc_tensor *a, const tc_tensor *b, int n)
{
    tc_tensor sum = tc_full(ctx, 0.0, TC_F64);
    for (int i = 0; i < n; i++) {
        sum = tc_add(sum, tc_sum(tc_mul(a[i], b[i]), TC_ALL, false));
    }
    return sum;
}

static tc_tensor forward_of(tc_tensor y, const tc_tensor *x, const tc_tensor *along, int n)
{
    tc_tensor tangent;
    tc_jvp(TC_TENSORS(y), ((tc_tensors){x, n}), ((tc_tensors){along, n}), &tangent);
    return tangent;
}

static tc_tensor way(tc_ctx *ctx, int which, tc_tensor loss, const tc_tensor *x, const tc_tensor *u,
                     const tc_tensor *v, int n)
{
    tc_tensor first[MAX_INPUTS], second[MAX_INPUTS], along;
    if (which < 2) {
        tc_grad(loss, x, n, first);
        along = dot(ctx, first, v, n);
    } else {
        along = forward_of(loss, x, v, n);
    }
    if (which % 2) {
        return forward_of(along, x, u, n);
    }
    tc_grad(along, x, n, second);
    return dot(ctx, second, u, n);
}

static bool prepare(corner_run *r, tc_ctx *ctx)
{
    const grad_case *c = r->c;
    tc_tensor in[3 * MAX_INPUTS], out[OUTPUTS], first[MAX_INPUTS];
    int n = c->n_inputs;
    for (int i = 0; i < 3 * n; i++) {
        int64_t list[6] = {TC_F64};
        memcpy(list + 1, c->inputs[i % n].sizes, sizeof(int64_t) * (size_t)c->inputs[i % n].rank);
        in[i] = tc_input_at(ctx, "x", 1 + c->inputs[i % n].rank, list, TC_HERE);
        r->counts[i % n] = tc_count(in[i]);
        REQUIRE(tc_count(in[i]) <= MOST);
    }
    tc_tensor loss = weighted(ctx, build_case(ctx, c, in));
    for (int i = 0; i < WAYS; i++) {
        out[i] = way(ctx, i, loss, in, in + n, in + 2 * n, n);
        if (tc_status_of(out[i]) == TC_ERR_UNSUPPORTED) {
            return false;
        }
    }
    tc_grad(loss, in, n, first);
    out[REVERSE] = dot(ctx, first, in + 2 * n, n);
    out[FORWARD] = forward_of(loss, in, in + 2 * n, n);
    tc_status status = tc_compile_fn(TC_TENSORS_N(in, 3 * n), TC_TENSORS_N(out, OUTPUTS), NULL,
                                     &r->program);
    CHECK_MSG(status == TC_OK, "%s: %s", c->name, tc_error(ctx));
    if (status == TC_OK) {
        status = tc_compile_fn(TC_TENSORS_N(in, n), TC_TENSORS(loss), NULL, &r->loss);
        CHECK_MSG(status == TC_OK, "%s: %s", c->name, tc_error(ctx));
    }
    return status == TC_OK;
}

/* ---- differences ---- */

/* The loss at x + a u + b v. */
static double loss_at(corner_run *r, double a, double b)
{
    static double moved[MAX_INPUTS][MOST];
    tc_buf in[MAX_INPUTS];
    double loss = NAN;
    for (int i = 0; i < r->c->n_inputs; i++) {
        for (int64_t k = 0; k < r->counts[i]; k++) {
            moved[i][k] = r->x[i][k] + a * r->u[i][k] + b * r->v[i][k];
        }
        in[i] = TC_BUF(moved[i], r->counts[i]);
    }
    tc_status status = tc_run(r->loss, (tc_bufs){in, r->c->n_inputs}, TC_BUFS(TC_BUF(&loss, 1)));
    CHECK_MSG(status == TC_OK, "%s: %s", r->c->name, tc_error(r->loss));
    return loss;
}

static double one_side(corner_run *r, double h)
{
    return (loss_at(r, h, h) - loss_at(r, h, 0) - loss_at(r, 0, h) + loss_at(r, 0, 0)) / (h * h);
}

static double both_sides(corner_run *r, double h)
{
    return (loss_at(r, h, h) - loss_at(r, h, -h) - loss_at(r, -h, h) + loss_at(r, -h, -h)) /
           (4 * h * h);
}

static bool close_to(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * (1 + fabs(a) + fabs(b)); /* false of NaN */
}

/* u' H v by differences, extrapolated to a step of 0; NaN: not smooth there. */
static double by_differences(corner_run *r)
{
    const double h = 2e-3;
    double wide = both_sides(r, h), near = both_sides(r, h / 2);
    double up = 2 * one_side(r, h / 2) - one_side(r, h);
    double down = 2 * one_side(r, -h / 2) - one_side(r, -h);
    double want = near + (near - wide) / 3;
    bool smooth = close_to(wide, near, 1e-4) && close_to(up, want, 1e-4) &&
                  close_to(down, want, 1e-4);
    return smooth ? want : NAN;
}

/* ---- points ---- */

/* Elements of point `at`: all 0, all equal, zeros among others, whole numbers and halves; or of one
 * input alone, while the others have nothing special, all of them or one. */
static void draw(corner_run *r, int at)
{
    static const double few[] = {0, 0, 1, -1, 0.5, 0.5, -2, 2};
    const bool alone = at >= POINTS / 2;
    const int n = r->c->n_inputs, chosen = tct_random_below(n), kind = at % (POINTS / 2);
    for (int i = 0; i < n; i++) {
        const int one = tct_random_below((int)r->counts[i] + 1);
        for (int64_t k = 0; k < r->counts[i]; k++) {
            double any = 0.2 + 1.5 * tct_random_unit();
            double x = kind == 0   ? 0
                       : kind == 1 ? 0.5
                       : kind == 2 ? 1
                       : kind < 5  ? (tct_random_below(2) ? any : 0)
                       : kind == 5 ? (k == one ? 0 : any)
                                   : few[tct_random_below(TCI_COUNT(few))];
            x = alone && i != chosen ? any : x;
            r->x[i][k] = r->c->inputs[i].positive && x < 0 ? -x : x;
            r->u[i][k] = 2 * tct_random_unit() - 1;
            r->v[i][k] = 2 * tct_random_unit() - 1;
        }
    }
}

static void judge(corner_run *r, int at)
{
    tc_buf in[3 * MAX_INPUTS], out[OUTPUTS];
    double got[OUTPUTS];
    int n = r->c->n_inputs;
    draw(r, at);
    double want = by_differences(r);
    for (int i = 0; i < n; i++) {
        in[i] = TC_BUF(r->x[i], r->counts[i]);
        in[n + i] = TC_BUF(r->u[i], r->counts[i]);
        in[2 * n + i] = TC_BUF(r->v[i], r->counts[i]);
    }
    for (int i = 0; i < OUTPUTS; i++) {
        out[i] = TC_BUF(&got[i], 1);
    }
    tc_status status = tc_run(r->program, (tc_bufs){in, 3 * n}, (tc_bufs){out, OUTPUTS});
    CHECK_MSG(status == TC_OK, "%s: %s", r->c->name, tc_error(r->program));
    CHECK_MSG(status || !isfinite(got[REVERSE]) || close_to(got[FORWARD], got[REVERSE], 1e-9),
              "%s, point %d: the tangent is %.9g, the gradient times v %.9g", r->c->name, at,
              got[FORWARD], got[REVERSE]);
    if (status != TC_OK || isnan(want)) {
        return;
    }
    r->judged++;
    for (int i = 0; i < WAYS; i++) {
        CHECK_MSG(close_to(got[i], want, 4e-4), "%s, point %d, %s: %.9g, differences say %.9g",
                  r->c->name, at, way_names[i], got[i], want);
    }
}

static void check_backend(const char *backend, bool products_alone)
{
    tc_ctx *ctx;
    const tc_options o = {.backend = backend};
    static corner_run r;
    if (tc_ctx_make(&ctx, &o)) {
        SKIP("no backend %s here", backend);
    }
    add_all();
    int first = n_cases;
    add_corners();
    for (int i = products_alone ? first : 0; i < n_cases; i++) {
        memset(&r, 0, sizeof(r));
        r.c = &cases[i];
        tc_scope_begin(ctx);
        if (prepare(&r, ctx)) {
            for (int at = 0; at < POINTS; at++) {
                judge(&r, at);
            }
            CHECK_MSG(i < first || r.judged > 1, "%s: judged at %d points", r.c->name, r.judged);
        }
        tc_program_free(r.program);
        tc_program_free(r.loss);
        tc_scope_end(ctx);
    }
    memset(&cases[first], 0, sizeof(cases[0]) * (size_t)(n_cases - first));
    n_cases = first;
    tc_ctx_free(ctx);
}

TEST(second_derivatives_equal_differences_at_corners_interp)
{
    check_backend("interp", false);
}
TEST(second_derivatives_of_products_at_zeros_cpu)
{
    check_backend("cpu", true);
}

TEST_MAIN
