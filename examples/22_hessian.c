/* 22_hessian.c - a Hessian times a vector, and Newton's method with nothing else.
 *
 * tc_jvp of a gradient is the Hessian times a direction: forward over backward, twice or so the
 * work of the gradient, and no matrix of n * n second derivatives anywhere. The equations H d = -g
 * of a Newton step are then solved by conjugate gradients (Hestenes and Stiefel, 1952), whose only
 * use of H is that product. The function is Rosenbrock's in many dimensions, whose narrow valley
 * stops plain gradient descent; the product is held against differences of gradients first.
 *
 * Prints the time of a gradient and of a product, their error, and the steps, loss and gradient of
 * Newton's method.
 *
 * Build, from the project's root: cc -O2 -I. examples/22_hessian.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "example.h"

enum { N = 2000, NEWTON = 60, SOLVE = 60 };
static double x[N], g[N], v[N], hv[N], up[N], down[N], loss;

/* sum(100 (x[i + 1] - x[i]^2)^2 + (1 - x[i])^2) */
static tc_tensor rosenbrock(tc_tensor at)
{
    tc_tensor a = tc_slice(at, 0, 0, N - 1, 1), b = tc_slice(at, 0, 1, N, 1);
    tc_tensor valley = tc_mul(tc_square(tc_sub(b, tc_square(a))), 100);
    return tc_sum(tc_add(valley, tc_square(tc_sub(1, a))), TC_ALL, false);
}

static double dot(const double *a, const double *b)
{
    double sum = 0;
    for (int i = 0; i < N; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static void gradient(tc_program *f, double *to)
{
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(x, N)), TC_BUFS(TC_BUF(&loss, 1), TC_BUF(to, N))), f);
}

static void product(tc_program *f)
{
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(x, N), TC_BUF(v, N)), TC_BUFS(TC_BUF(hv, N))), f);
}

/* d with H d = -g nearly; ends where H bends the other way, or the rest is small. */
static void solve(tc_program *hessian, double *d)
{
    static double rest[N];
    for (int i = 0; i < N; i++) {
        d[i] = 0;
        rest[i] = v[i] = -g[i];
    }
    double size = dot(rest, rest), first = size;
    for (int k = 0; k < SOLVE && size > 1e-6 * first; k++) {
        product(hessian);
        double bend = dot(v, hv);
        if (bend <= 0) {
            break;
        }
        double step = size / bend, before = size;
        for (int i = 0; i < N; i++) {
            d[i] += step * v[i];
            rest[i] -= step * hv[i];
        }
        size = dot(rest, rest);
        for (int i = 0; i < N; i++) {
            v[i] = rest[i] + size / before * v[i];
        }
    }
}

/* The largest difference between H v and the change of the gradient along v. */
static double check(tc_program *first, tc_program *hessian)
{
    const double h = 1e-5;
    double worst = 0;
    for (int i = 0; i < N; i++) {
        v[i] = sin(i * 0.7);
    }
    product(hessian);
    for (int i = 0; i < N; i++) {
        x[i] += h * v[i];
    }
    gradient(first, up);
    for (int i = 0; i < N; i++) {
        x[i] -= 2 * h * v[i];
    }
    gradient(first, down);
    for (int i = 0; i < N; i++) {
        x[i] += h * v[i];
        double want = (up[i] - down[i]) / (2 * h);
        worst = fmax(worst, fabs(hv[i] - want) / (1 + fabs(want)));
    }
    return worst;
}

int main(void)
{
    static double d[N], old[N];
    tc_ctx *ctx;
    CHECK_OK(tc_ctx_make(&ctx, NULL), ctx);
    tc_tensor at = tc_input(ctx, "x", TC_F64, N), along = tc_input(ctx, "v", TC_F64, N);
    tc_tensor f = rosenbrock(at), slope, bent;
    CHECK_OK(tc_grad(f, &at, 1, &slope), slope);
    CHECK_OK(tc_jvp(TC_TENSORS(slope), TC_TENSORS(at), TC_TENSORS(along), &bent), bent);
    tc_program *first, *hessian;
    CHECK_OK(tc_compile_fn(TC_TENSORS(at), TC_TENSORS(f, slope), NULL, &first), f);
    CHECK_OK(tc_compile_fn(TC_TENSORS(at, along), TC_TENSORS(bent), NULL, &hessian), bent);

    for (int i = 0; i < N; i++) {
        x[i] = 0.5 + 0.4 * cos(i);
    }
    double worst = check(first, hessian), gradient_us, product_us;
    BEST_US(gradient_us, gradient(first, g));
    BEST_US(product_us, product(hessian));
    printf("%d variables: gradient %.1f us, Hessian times vector %.1f us, off by %.1e\n", N,
           gradient_us, product_us, worst);

    int steps = 0;
    gradient(first, g);
    for (; steps < NEWTON && dot(g, g) > 1e-18; steps++) {
        double start = loss, t = 1;
        solve(hessian, d);
        memcpy(old, x, sizeof(x));
        do { /* half the step until the function falls */
            for (int i = 0; i < N; i++) {
                x[i] = old[i] + t * d[i];
            }
            gradient(first, g);
            t /= 2;
        } while (loss >= start && t > 1e-9);
    }
    printf("Newton: %d steps, loss %.2e, gradient %.1e\n", steps, loss, sqrt(dot(g, g)));
    bool ok = worst < 1e-6 && dot(g, g) < 1e-12;
    tc_program_free(first);
    tc_program_free(hessian);
    tc_ctx_free(ctx);
    printf("%s\n", ok ? "ok" : "FAILED");
    return ok ? 0 : 1;
}
