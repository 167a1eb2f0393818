/* Code for x86-64-v2, which has no FMA, computes fused multiply-adds in software: compared with
 * libm's fma on special and random values, values whose sum is nearly halfway between two numbers,
 * and values whose result is subnormal; and whole programs with the interpreter and x86-64-v3. */
#include "tc.h"

#include "networks.h"
#include "same.h"

#include <float.h>

enum { N = 1 << 18 };

static uint64_t state = 88172645463325252u;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Programs of x86-64-v2 run here. */
static void need_v2(void)
{
#if !defined(__x86_64__)
    SKIP("code of x86-64");
#else
    if (!__builtin_cpu_supports("sse4.2")) {
        SKIP("needs SSE4.2");
    }
#endif
}

static double special(uint64_t i, bool f32)
{
    static const double both[] = {0.0, -0.0, 1, -1, 0.5, 3, INFINITY, -INFINITY, NAN, 1.5, -2};
    static const double of_f32[] = {FLT_MIN,       -FLT_MIN,      FLT_MAX,         -FLT_MAX,
                                    0x1p-149,      -0x1p-149,     0x1.fffffcp-127, 0x1.000002p0,
                                    0x1.fffffep-1, 0x1p-75,       0x1p-74,         0x1p64,
                                    0x1p63,        -0x1p-150 * 2, 0x1p24};
    static const double of_f64[] = {DBL_MIN,
                                    -DBL_MIN,
                                    DBL_MAX,
                                    -DBL_MAX,
                                    0x1p-1074,
                                    -0x1p-1074,
                                    0x1.ffffffffffffep-1023,
                                    0x1.0000000000001p0,
                                    0x1.fffffffffffffp-1,
                                    0x1p-537,
                                    0x1p-538,
                                    0x1p512,
                                    0x1p511,
                                    0x1p-900,
                                    0x1p999};
    uint64_t n = sizeof(both) / sizeof(*both), more = sizeof(of_f32) / sizeof(*of_f32);
    i %= n + more;
    return i < n ? both[i] : f32 ? of_f32[i - n] : of_f64[i - n];
}

static double any_bits(bool f32)
{
    uint64_t bits = next_random();
    uint32_t low = (uint32_t)(bits >> 32);
    float x;
    double y;
    memcpy(&x, &low, sizeof(x));
    memcpy(&y, &bits, sizeof(y));
    y = f32 ? (double)x : y;
    return y == y ? y : NAN;
}

/* a * b is about half a unit in the last place of c, a little more or less, or exactly. */
static void near_half(bool f32, int exponent, double v[3])
{
    int bits = f32 ? 24 : 53;
    double unit = ldexp(1, 1 - bits);
    double j = (double)(next_random() % 64), k = (double)(next_random() % 64);
    double sign = next_random() & 1 ? -1 : 1;
    v[2] = ldexp(1 + unit * (double)(next_random() % 1024), exponent);
    v[0] = sign * (1 + unit * j);
    v[1] = ldexp(1 - unit / 2 * k, exponent - bits);
}

static void draw(bool f32, int64_t i, double v[3])
{
    int span = f32 ? 280 : 2100;
    if (i < 26 * 26 * 26) {
        for (int k = 0; k < 3; k++, i /= 26) {
            v[k] = special((uint64_t)i, f32);
        }
    } else if (i % 4 == 0) {
        near_half(f32, (int)(next_random() % (uint64_t)span) - span / 2, v);
    } else if (i % 4 == 1) { /* the same among the subnormal numbers */
        near_half(f32, 0, v);
        v[0] = ldexp(v[0], f32 ? -75 : -537);
        v[1] = ldexp(v[1], f32 ? -75 + 24 : -538 + 53);
        v[2] = ldexp((double)(1 + (next_random() >> (f32 ? 42 : 13))), f32 ? -149 : -1074);
    } else {
        int like = (int)(next_random() % 3);
        for (int k = 0; k < 3; k++) {
            v[k] = i % 4 == 2 || k != like ? any_bits(f32) : special(next_random(), f32);
        }
        if (i % 8 == 3) { /* exponents that meet */
            v[2] = -v[0] * v[1] * (1 + ldexp((double)(next_random() % 3) - 1, f32 ? -24 : -53));
        }
    }
}

static void check_fma(bool f32, int64_t n)
{
    static double in[3][N];
    static float in32[3][N];
    static double got[N], want[N];
    static float got32[N], want32[N];
    tc_options o = {.backend = "cpu", .fallback = TC_FALLBACK_REFUSE, .machine = "x86-64-v2"};
    for (int64_t i = 0; i < n; i++) {
        double v[3];
        draw(f32, i, v);
        for (int k = 0; k < 3; k++) {
            in[k][i] = v[k];
            in32[k][i] = (float)v[k];
        }
        want[i] = fma(in[0][i], in[1][i], in[2][i]);
        want32[i] = fmaf(in32[0][i], in32[1][i], in32[2][i]);
    }
    tc_ctx *ctx;
    tc_program *f = NULL;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_dtype t = f32 ? TC_F32 : TC_F64;
    tc_tensor x = tc_input(ctx, "x", t, n), y = tc_input(ctx, "y", t, n),
              z = tc_input(ctx, "z", t, n);
    tc_status status = tc_compile(tc_fma(x, y, z), &f);
    CHECK_MSG(status == TC_OK, "%s", tc_ctx_error(ctx));
    if (f) {
        tc_buf to = {.data = f32 ? (void *)got32 : got, .n = n, .dtype = (int)t}, from[3];
        for (int k = 0; k < 3; k++) {
            from[k] = (tc_buf){.data = f32 ? (void *)in32[k] : in[k], .n = n, .dtype = (int)t};
        }
        CHECK_EQ_INT(tc_run(f, TC_BUFS_N(from, 3), TC_BUFS_N(&to, 1)), TC_OK);
        int64_t at = f32 ? same_until(t, got32, want32, n) : same_until(t, got, want, n);
        CHECK_MSG(at < 0, "fma(%a, %a, %a) is %a, got %a (%lld of %lld)",
                  f32 ? in32[0][at] : in[0][at], f32 ? in32[1][at] : in[1][at],
                  f32 ? in32[2][at] : in[2][at], f32 ? want32[at] : want[at],
                  f32 ? got32[at] : got[at], (long long)at, (long long)n);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(fma_without_the_instruction_has_its_bits)
{
    need_v2();
    state ^= tct_seed * 0x9e3779b97f4a7c15u;
    for (int i = 0; i < 2; i++) {
        check_fma(i, N);
        check_fma(i, N - 1); /* the last ones by themselves */
    }
}

/* ---- programs ---- */

/* Outputs of the network for that machine; NULL: by the interpreter. */
static float **run_on(net *n, const char *machine)
{
    tc_options o = {.backend = machine ? "cpu" : "interp",
                    .fallback = TC_FALLBACK_REFUSE,
                    .threads = 2,
                    .machine = machine,
                    .no_disk_cache = true};
    tc_buf bufs[NET_PARAMS];
    tc_program *f = NULL;
    float **values = calloc((size_t)n->n_out + 1, sizeof(*values));
    for (int i = 0; i < n->n_out; i++) {
        values[i] = malloc((size_t)tc_nbytes(n->out[i]) + 1);
        bufs[i] = (tc_buf){.data = values[i], .n = tc_nbytes(n->out[i]), .dtype = -1};
    }
    bool works = !tc_compile_fn(TC_TENSORS_N(n->in, n->n_in), TC_TENSORS_N(n->out, n->n_out), &o,
                                &f) &&
                 !tc_run(f, TC_BUFS_N(n->in_bufs, n->n_in), TC_BUFS_N(bufs, n->n_out));
    CHECK_MSG(works, "%s", f ? tc_program_error(f) : tc_error(n->model.ctx));
    tc_program_free(f);
    return values;
}

static void check_network(const char *name, bool train)
{
    net *n = net_make(name, train, 3, false);
    float **want = run_on(n, NULL), **got = run_on(n, "x86-64-v2");
    bool wider = false;
#if defined(__x86_64__)
    wider = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    float **other = run_on(n, wider ? "x86-64-v3" : "x86-64-v2");
    for (int i = 0; i < n->n_out; i++) {
        int64_t count = tc_count(n->out[i]);
        CHECK_MSG(same_until(TC_F32, got[i], want[i], count) < 0, "%s: output %d", name, i);
        CHECK_MSG(same_until(TC_F32, got[i], other[i], count) < 0, "%s: output %d", name, i);
    }
    net_free_values(n, want);
    net_free_values(n, got);
    net_free_values(n, other);
    net_free(n);
}

TEST(networks_for_machines_without_fma_have_the_same_bits)
{
    need_v2();
    check_network("squeezenet1_1", false); /* convolutions */
    check_network("gpt2", true);           /* products, softmax, norms, gelu, gradients */
}

TEST_MAIN
