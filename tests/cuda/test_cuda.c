/* The CUDA dialect without a GPU: its text is run on the CPU (emulate.h), against the reference
 * cases and the interpreter, and compiled by NVRTC where that library is found. With a GPU the
 * reference cases run on it too. */
#define TC_CUDA
#define TC_IMPLEMENTATION
#include "tc.h"

#include "tc_test.h"

#include "../oracle_run.h"
#include "emulate.h"

static void register_emulation(void)
{
    static bool done;
    if (!done) {
        done = true;
        tc_register_backend(&emu_backend);
    }
}

static tc_ctx *context_of(const char *backend)
{
    tc_options o;
    tc_ctx *ctx = NULL;
    memset(&o, 0, sizeof(o));
    o.backend = backend;
    o.fallback = TC_FALLBACK_REFUSE;
    return tc_ctx_make(&ctx, &o) ? NULL : ctx;
}

/* ---- the same bits as the interpreter ---- */

enum { M = 37, N = 301 };

typedef tc_tensor (*expression)(tc_tensor x);

static tc_tensor chain(tc_tensor x) { return tc_sin(tc_cos(tc_exp(tc_neg(tc_abs(x))))); }
static tc_tensor wide_range(tc_tensor x) { return tc_sin(tc_mul(x, 1e30)); }
static tc_tensor logs(tc_tensor x) { return tc_log(tc_add(tc_square(x), 0.5)); }
static tc_tensor curves(tc_tensor x)
{
    return tc_add(tc_tanh(x), tc_mul(tc_gelu(x), tc_sigmoid(x)));
}
static tc_tensor power(tc_tensor x) { return tc_pow(tc_abs(x), 1.7); }
static tc_tensor transposed(tc_tensor x) { return tc_add(tc_permute(x, 1, 0), 1.0); }
static tc_tensor flipped(tc_tensor x) { return tc_flip(tc_slice(x, 1, 3, TC_END, 2), 1); }
static tc_tensor padded(tc_tensor x) { return tc_relu(tc_pad(x, 1, 5, 7, 0.25)); }
static tc_tensor halves(tc_tensor x) { return tc_cast(tc_mul(tc_cast(x, TC_BF16), 3.0), TC_F32); }
static tc_tensor integers(tc_tensor x)
{
    tc_tensor i = tc_cast(tc_mul(x, 1000.0), TC_I64);
    return tc_cast(tc_add(tc_div(i, 7), tc_remainder(i, 5)), TC_F32);
}
static tc_tensor doubles(tc_tensor x) { return tc_cast(tc_exp(tc_cast(x, TC_F64)), TC_F32); }
static tc_tensor scanned(tc_tensor x) { return tc_cumsum(x, 0); }
static tc_tensor columns(tc_tensor x) { return tc_sum(x, TC_AXES(0), false); }
static tc_tensor product(tc_tensor x) { return tc_matmul(x, tc_permute(x, 1, 0)); }
static tc_tensor reshaped(tc_tensor x) { return tc_reshape(tc_permute(x, 1, 0), M, N); }
static tc_tensor largest(tc_tensor x) { return tc_cast(tc_argmax(x, 1, false), TC_F32); }

static const expression exact[] = {chain,   wide_range, logs,    curves,  power,   transposed,
                                   flipped, padded,     halves,  integers, doubles, scanned,
                                   columns, product,    reshaped, largest};

/* All values of y at this input; the caller frees. */
static float *values_of(const char *backend, expression e, const float *x, int64_t *n)
{
    tc_ctx *ctx = context_of(backend);
    if (!ctx) {
        return NULL;
    }
    tc_tensor y = e(tc_input(ctx, "x", TC_F32, M, N));
    tc_program *f = NULL;
    *n = tc_nbytes(y) / 4;
    float *out = (float *)calloc((size_t)*n, sizeof(float));
    tc_status status = tc_compile(y, &f);
    CHECK_MSG(status == TC_OK, "%s: %s", backend, tc_error(y));
    if (!status) {
        status = tc_run(f, TC_BUFS(TC_BUF(x, M * N)), TC_BUFS(TC_BUF(out, *n)));
        CHECK_MSG(status == TC_OK, "%s: %s", backend, tc_error(f));
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    return out;
}

static void fill(float *x)
{
    for (int i = 0; i < M * N; i++) {
        x[i] = (float)((i * 7919) % 2003 - 1001) / 157.0f;
    }
    x[5] = NAN;
    x[700] = INFINITY;
    x[701] = -INFINITY;
    x[702] = -0.0f;
    x[703] = 1e-42f;
}

TEST(results_have_the_bits_of_the_interpreter)
{
    static float x[M * N];
    register_emulation();
    tc_ctx *probe = context_of("emulated");
    if (!probe) {
        SKIP("there is no C++ compiler");
    }
    tc_ctx_free(probe);
    fill(x);
    for (size_t i = 0; i < sizeof(exact) / sizeof(exact[0]); i++) {
        int64_t n = 0;
        float *want = values_of("interp", exact[i], x, &n);
        float *got = values_of("emulated", exact[i], x, &n);
        int wrong = 0;
        for (int64_t j = 0; want && got && j < n; j++) {
            bool nan = want[j] != want[j] && got[j] != got[j];
            wrong += !nan && memcmp(&want[j], &got[j], sizeof(float)) != 0;
        }
        CHECK_MSG(want && got && wrong == 0, "expression %d: %d of %d values differ", (int)i, wrong,
                  (int)n);
        free(want);
        free(got);
    }
}

/* ---- rows: many lanes meet ---- */

TEST(row_reductions_of_every_length)
{
    register_emulation();
    tc_ctx *ctx = context_of("emulated");
    if (!ctx) {
        SKIP("there is no C++ compiler");
    }
    enum { ROWS = 3, LENGTHS = 9 };
    static const int lengths[LENGTHS] = {1, 2, 31, 64, 65, 513, 1000, 4096, 5001};
    tc_program *programs[LENGTHS];
    tc_tensor x[LENGTHS], y[LENGTHS];
    tc_job jobs[LENGTHS];
    memset(jobs, 0, sizeof(jobs));
    for (int i = 0; i < LENGTHS; i++) {
        x[i] = tc_input(ctx, "x", TC_F32, ROWS, lengths[i]);
        y[i] = tc_softmax(x[i], -1);
        jobs[i].inputs = (tc_tensors){&x[i], 1};
        jobs[i].outputs = (tc_tensors){&y[i], 1};
        jobs[i].program = &programs[i];
    }
    tc_status status = tc_compile_many(jobs, LENGTHS, NULL);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    for (int i = 0; i < LENGTHS && programs[i]; i++) {
        int n = ROWS * lengths[i];
        float *in = (float *)malloc((size_t)n * 4), *out = (float *)malloc((size_t)n * 4);
        for (int j = 0; j < n; j++) {
            in[j] = (float)(j % 23) * 0.25f;
        }
        CHECK_EQ_INT(tc_run(programs[i], TC_BUFS(TC_BUF(in, n)), TC_BUFS(TC_BUF(out, n))), TC_OK);
        for (int r = 0; r < ROWS; r++) {
            double sum = 0, worst = 0;
            for (int j = 0; j < lengths[i]; j++) {
                sum += exp((double)in[r * lengths[i] + j]);
            }
            for (int j = 0; j < lengths[i]; j++) {
                double want = exp((double)in[r * lengths[i] + j]) / sum;
                worst = fmax(worst, fabs(out[r * lengths[i] + j] - want) / want);
            }
            CHECK_MSG(worst < 1e-5, "rows of %d: off by %g", lengths[i], worst);
        }
        free(in);
        free(out);
        tc_program_free(programs[i]);
    }
    tc_ctx_free(ctx);
}

/* ---- reference cases ---- */

static void replay(const char *backend)
{
    static orc_run r;
    static st_file arrays;
    size_t bytes = 0;
    char *text = json_read_file("tests/data/opinfo.json", &bytes);
    json *manifest = text ? json_parse(text) : NULL;
    REQUIRE(manifest && st_open(&arrays, "tests/data/opinfo.safetensors"));
    memset(&r, 0, sizeof(r));
    r.manifest = manifest;
    r.arrays = &arrays;
    r.backend = backend;
    r.quiet = true;
    CHECK(orc_replay(&r));
    printf("cuda/%s: %d reference cases passed, %d skipped\n", backend, r.passed, r.skipped);
    CHECK_EQ_INT(r.failed, 0);
    CHECK(r.passed > 1000);
    st_close(&arrays);
    json_free(manifest);
    free(text);
}

TEST(reference_cases_on_the_emulation)
{
    register_emulation();
    tc_ctx *probe = context_of("emulated");
    if (!probe) {
        SKIP("there is no C++ compiler");
    }
    tc_ctx_free(probe);
    replay("emulated");
    printf("cuda: %d kernels emulated in %d launches\n", (int)emu_kernels, (int)emu_launches);
}

TEST(reference_cases_on_a_gpu)
{
    tc_backend_target target;
    memset(&target, 0, sizeof(target));
    tci_cuda_target(NULL, 0, &target);
    if (!target.usable) {
        SKIP("%s", target.why);
    }
    replay("cuda");
}

/* ---- NVRTC: the text is compiled, nothing is run ---- */

static tc_status nvrtc_target(void *user, int vector_bits, tc_backend_target *target)
{
    emu_target(user, vector_bits, target);
    snprintf(target->features, sizeof(target->features), "compiled for sm_90a");
    target->usable = true;
    return TC_OK;
}

static int64_t nvrtc_programs;

static tc_status nvrtc_compile(void *user, tc_build *build)
{
    const char *why = "";
    (void)user;
    tc_status status = tci_nvrtc_build(build, "--gpu-architecture=sm_90a", &why);
    nvrtc_programs += build->n;
    CHECK_MSG(status == TC_OK, "%s", why);
    return status;
}

static int nothing;

static tc_status nvrtc_load(void *user, const char *path, void **module)
{
    (void)user;
    (void)path;
    *module = &nothing;
    return TC_OK;
}

static void *nvrtc_find(void *user, void *module, const char *symbol)
{
    (void)user;
    (void)symbol;
    return module;
}

static void nvrtc_free(void *user, void *module)
{
    (void)user;
    (void)module;
}

TEST(nvrtc_takes_the_text)
{
    const char *why = "";
    if (!tci_nvrtc_get(&why)) {
        SKIP("NVRTC cannot be opened: %s", why);
    }
    static tc_backend backend;
    backend = emu_backend;
    backend.name = "nvrtc";
    backend.target = nvrtc_target;
    backend.compile = nvrtc_compile;
    backend.module_load = nvrtc_load;
    backend.module_find = nvrtc_find;
    backend.module_free = nvrtc_free;
    REQUIRE(tc_register_backend(&backend) == TC_OK);
    tc_ctx *ctx = context_of("nvrtc");
    enum { COUNT = sizeof(exact) / sizeof(exact[0]) };
    tc_tensor x[COUNT], y[COUNT];
    tc_program *programs[COUNT];
    tc_job jobs[COUNT];
    memset(jobs, 0, sizeof(jobs));
    for (int i = 0; i < COUNT; i++) {
        x[i] = tc_input(ctx, "x", TC_F32, M, N);
        y[i] = tc_softmax(tc_cast(exact[i](x[i]), TC_F32), -1);
        jobs[i].inputs = (tc_tensors){&x[i], 1};
        jobs[i].outputs = (tc_tensors){&y[i], 1};
        jobs[i].program = &programs[i];
    }
    tc_status status = tc_compile_many(jobs, COUNT, NULL);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    printf("cuda: %d programs of NVRTC\n", (int)nvrtc_programs);
    for (int i = 0; i < COUNT; i++) {
        tc_program_free(programs[i]);
    }
    tc_ctx_free(ctx);
}

TEST_MAIN
