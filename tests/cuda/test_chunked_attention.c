/* Attention that no kernel of a GPU takes, in bands of rows: no array of scores, and the
 * results of the interpreter, run by the emulation. */
#define TC_DYNAMIC_SHAPES
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"

#include "emulate.h"

typedef struct attention {
    const char *name;
    tc_dtype dtype;
    int heads, size;
    bool symbolic, reproducible, fast, grad, drops;
} attention;

/* Plans as the emulation does, but compiles nothing: the interpreter runs the same kernels. */
static tc_status planned_compile(void *user, tc_build *build)
{
    (void)user;
    (void)build;
    return TC_ERR_COMPILER;
}

static tc_status planned_target(void *user, int vector_bits, tc_backend_target *target)
{
    tc_status status = emu_target(user, vector_bits, target);
    snprintf(target->features, sizeof(target->features), "planned");
    return status;
}

static void register_backends(void)
{
    static bool done;
    static tc_backend planned;
    if (!done) {
        done = true;
        tc_register_backend(emulation());
        planned = *emulation();
        planned.name = "planned";
        planned.target = planned_target;
        planned.compile = planned_compile;
        tc_register_backend(&planned);
    }
}

static tc_ctx *open_context(attention c, const char *backend)
{
    tc_ctx *ctx;
    tc_options o = {.backend = backend,
                    .threads = 1,
                    .reproducible = c.reproducible,
                    .math = c.fast ? TC_MATH_FAST : TC_MATH_EXACT,
                    .no_disk_cache = true,
                    .verify = true};
    register_backends();
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    return ctx;
}

static tc_program *compile(tc_ctx *ctx, attention c, int64_t rows)
{
    tc_program *f = NULL;
    tc_tensor x[3], to[4];
    for (int i = 0; i < 3; i++) {
        x[i] = tc_input(ctx, "x", c.dtype, c.heads, rows, c.size);
    }
    tc_tensor g = tc_input(ctx, "g", c.dtype, c.heads, rows, c.size);
    tc_tensor scores = tc_mul(tc_matmul(x[0], tc_transpose(x[1], -2, -1)), 0.25);
    tc_tensor weights = tc_softmax(scores, -1);
    weights = c.drops ? tc_dropout(weights, 0.25, 7) : weights;
    to[0] = tc_matmul(weights, x[2]);
    REQUIRE(!c.grad || tc_vjp(TC_TENSORS(to[0]), TC_TENSORS(g), x, 3, to + 1) == TC_OK);
    tc_status status = tc_compile_fn(TC_TENSORS(x[0], x[1], x[2], g),
                                     (tc_tensors){to, c.grad ? 4 : 1}, NULL, &f);
    CHECK_MSG(status == TC_OK, "%s: %s", c.name, tc_error(ctx));
    REQUIRE(f != NULL);
    return f;
}

/* Results, one after the other; the caller frees them. */
static float *run(tc_program *f, attention c, int rows, tc_program_info *info)
{
    int64_t n = (int64_t)c.heads * rows * c.size, n_out = c.grad ? 4 : 1;
    float *in = malloc((size_t)(4 * n) * 4), *out = calloc((size_t)(n_out * n), 4);
    tc_buf from[4], to[4];
    for (int64_t i = 0; i < 4 * n; i++) {
        in[i] = (float)(i * 37 % 101) / 51 - 1;
    }
    for (int i = 0; i < 4; i++) {
        from[i] = (tc_buf){.data = in + i * n, .dtype = c.dtype, .n = n};
        to[i] = (tc_buf){.data = out + (i < n_out ? i * n : 0), .dtype = c.dtype, .n = n};
    }
    tc_status status = tc_run(f, (tc_bufs){from, 4}, (tc_bufs){to, (int)n_out});
    CHECK_MSG(status == TC_OK, "%s: %s", c.name, tc_error(f));
    tc_program_get_info(f, info);
    free(in);
    return out;
}

TEST(no_array_of_scores_is_kept)
{
    static const attention cases[] = {
        {"f32, symbols", TC_F32, 16, 8, true, false, false, false, false},
        {"f32 grad, symbols", TC_F32, 16, 8, true, false, false, true, false},
        {"f32 grad, reproducible", TC_F32, 16, 64, false, true, false, true, false},
        {"f32, fast", TC_F32, 16, 128, false, false, true, false, false},
        {"f32 grad, fast", TC_F32, 16, 64, false, false, true, true, false},
        {"f32 grad, fast, long heads", TC_F32, 16, 192, false, false, true, true, false},
        {"dropped", TC_F32, 16, 64, false, false, false, false, true},
        {"bf16 grad, dropped", TC_BF16, 16, 64, false, false, false, true, true},
        {"f64", TC_F64, 16, 64, false, false, false, false, false},
        {"f64 grad", TC_F64, 16, 64, false, false, false, true, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const attention c = cases[i];
        const int rows = c.symbolic ? 771 : 2048;
        tc_program_info info = {0};
        tc_ctx *ctx = open_context(c, "planned");
        tc_program *f = compile(ctx, c, c.symbolic ? TC_DIM("rows", 1, 1 << 20) : rows);
        tc_program_get_info(f, &info);
        free(c.symbolic ? run(f, c, rows, &info) : NULL);
        int64_t bytes = c.dtype == TC_F64 ? 8 : c.dtype == TC_F32 ? 4 : 2;
        int64_t most = bytes * c.heads * rows * rows; /* of one array; there were two */
        CHECK_MSG(info.arena_bytes <= most, "%s: %lld bytes of workspace, more than %lld", c.name,
                  (long long)info.arena_bytes, (long long)most);
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

TEST(bands_give_the_results_of_known_sizes)
{
    static const attention cases[] = {
        {"f32 grad, symbols", TC_F32, 16, 4, true, false, false, true, false},
        {"dropped, symbols", TC_F32, 16, 4, true, false, false, false, true},
        {"f32 grad, reproducible symbols", TC_F32, 16, 4, true, true, false, true, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const attention c = cases[i];
        tc_ctx *ctx = open_context(c, "emulated"), *interp = open_context(c, "interp");
        tc_program *f = compile(ctx, c, TC_DIM("rows", 1, 1 << 20));
        for (int rows = 1; rows < 140; rows += 65 + rows) { /* 1, 67 */
            tc_program_info info;
            tc_program *h = compile(interp, c, rows);
            float *got = run(f, c, rows, &info), *want = run(h, c, rows, &info);
            int64_t n = (int64_t)(c.grad ? 4 : 1) * c.heads * rows * c.size;
            float most = 0;
            for (int64_t k = 0; k < n; k++) {
                float off = fabsf(got[k] - want[k]) / (1 + fabsf(want[k]));
                most = off > most || isnan(off) ? off : most;
            }
            CHECK_MSG(c.reproducible ? !memcmp(got, want, (size_t)n * 4) : most <= 1e-5f,
                      "%s of %d rows: off by %g", c.name, rows, (double)most);
            free(got);
            free(want);
            tc_program_free(h);
        }
        tc_program_free(f);
        tc_ctx_free(ctx);
        tc_ctx_free(interp);
    }
}

TEST_MAIN
