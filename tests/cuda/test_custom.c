/* tests/cuda/test_custom.c - ops of the user's own in programs of a GPU: by a text in CUDA C++,
 * which the emulation runs, NVRTC compiles where it is found and a GPU runs where there is one; and
 * by calls of the host between launches. Against the interpreter, which calls the C functions. */
#define TC_DYNAMIC_SHAPES
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"

#include "emulate.h"

static void register_emulation(void)
{
    static bool done;
    if (!done) {
        done = true;
        tc_register_backend(emulation());
    }
}

static tc_ctx *begin(const char *backend, const char *dir)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = backend,
                    .no_disk_cache = !dir,
                    .cache_dir = dir,
                    .verify = true,
                    .memory_cache_bytes = dir ? -1 : 0,
                    .fallback = TC_FALLBACK_REFUSE};
    register_emulation();
    return tc_ctx_make(&ctx, &o) ? NULL : ctx;
}

/* ---- the ops ---- */

static int calls;

/* a * x + y, element by element. */
static void axpy_run(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
{
    const float *a = in[0].data, *x = in[1].data, *y = in[2].data;
    float *to = out->data;
    (void)user;
    (void)n;
    calls++;
    for (int64_t i = 0; i < out->n; i++) {
        float product = *a * x[i];
        to[i] = product + y[i];
    }
}

static bool axpy_shape(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
{
    (void)user;
    out->rank = in[1].rank;
    for (int i = 0; n == 3 && i < out->rank; i++) {
        out->sizes[i] = in[1].sizes[i];
    }
    return n == 3 && in[0].rank == 0 && in[1].n == in[2].n;
}

static const char axpy_text[] =
    "__device__ void run(const tc_custom_array *in, int n, tc_custom_array *out)\n"
    "{\n"
    "    const float *x = (const float *)in[1].data, *y = (const float *)in[2].data;\n"
    "    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < out->n && n == 3 && in[0].dtype == TC_F32) {\n"
    "        float product = *(const float *)in[0].data * x[i];\n"
    "        ((float *)out->data)[i] = product + y[i];\n"
    "    }\n"
    "}\n";
static const tc_custom_op axpy = {
    .name = "axpy", .shape = axpy_shape, .run = axpy_run, .cuda = axpy_text, .cuda_threads = 64};
static const tc_custom_op axpy_on_host = {.name = "axpy on the host",
                                          .shape = axpy_shape,
                                          .run = axpy_run};

/* The largest of each row of i32 less the first: a block for each row, which its threads share. */
static bool spans_shape(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
{
    (void)user;
    out->rank = 1;
    return n == 1 && in[0].rank == 2 && in[0].dtype == TC_I32;
}

static void spans_run(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
{
    const int32_t *x = in[0].data;
    int64_t m = in[0].sizes[1];
    (void)user;
    (void)n;
    calls++;
    for (int64_t r = 0; r < out->n; r++) {
        int32_t most = x[r * m];
        for (int64_t i = 0; i < m; i++) {
            most = TCI_MAX(most, x[r * m + i]);
        }
        ((int32_t *)out->data)[r] = most - x[r * m];
    }
}

static const tc_custom_op spans = {
    .name = "spans \"of\" rows",
    .shape = spans_shape,
    .run = spans_run,
    .cuda = "static __device__ int larger(int a, int b) { return a > b ? a : b; }\n"
            "__device__ void run(const tc_custom_array *in, int, tc_custom_array *out)\n"
            "{\n"
            "    __shared__ int most[32];\n"
            "    const long long m = in[0].sizes[1];\n"
            "    const int *x = (const int *)in[0].data + blockIdx.x * m;\n"
            "    int mine = x[0];\n"
            "    for (long long i = threadIdx.x; i < m; i += blockDim.x) {\n"
            "        mine = larger(mine, x[i]);\n"
            "    }\n"
            "    most[threadIdx.x] = mine;\n"
            "    __syncthreads();\n"
            "    if (threadIdx.x == 0) {\n"
            "        for (int i = 1; i < 32; i++) {\n"
            "            mine = larger(mine, most[i]);\n"
            "        }\n"
            "        ((int *)out->data)[blockIdx.x] = mine - x[0];\n"
            "    }\n"
            "}\n",
    .cuda_threads = 32,
    .cuda_elements = 1};

/* ---- programs ---- */

enum { N = 5, M = 70 };

/* Calls between kernels, one result twice. */
static tc_program *compile_between(tc_ctx *ctx, const tc_custom_op *op, int64_t rows)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, rows, M), a = tc_input(ctx, "a", TC_F32);
    tc_tensor y = tc_custom(op, TC_TENSORS(a, tc_add(x, 1), tc_neg(x)));
    tc_tensor s = tc_custom(&spans, TC_TENSORS(tc_cast(tc_mul(y, 8), TC_I32)));
    tc_program *f = NULL;
    CHECK_MSG(tc_compile_fn(TC_TENSORS(x, a), TC_TENSORS(tc_mul(y, 2), y, s, s), NULL, &f) == TC_OK,
              "%s", tc_error(ctx));
    return f;
}

typedef struct results {
    float twice[2 * N * M], once[2 * N * M];
    int32_t spans[2][2 * N];
} results;

static void run_between(tc_program *f, int rows, results *r)
{
    float in[2 * N * M], a = 0.75f;
    memset(r, 0, sizeof(*r));
    for (int i = 0; i < rows * M; i++) {
        in[i] = (float)(i * 37 % 101) / 7;
    }
    CHECK_MSG(!tc_run(f, TC_BUFS(TC_BUF(in, rows * M), TC_BUF(&a, 1)),
                      TC_BUFS(TC_BUF(r->twice, rows * M), TC_BUF(r->once, rows * M),
                              TC_BUF(r->spans[0], rows), TC_BUF(r->spans[1], rows))),
              "%s", tc_program_error(f));
}

static void check_explained(tc_program *f, const tc_custom_op *op)
{
    char text[20000] = "";
    FILE *file = fmemopen(text, sizeof(text), "w");
    REQUIRE(f && file);
    tc_explain_as(f, file, &(tc_explain_options){.all = true});
    fclose(file);
    CHECK_HAS(text, op->cuda ? "the user's text of 'axpy', blocks of 64 threads, each for 64 el"
                             : "called by the host: operands are copied there");
}

static void check_between(const char *backend, const tc_custom_op *op, int64_t rows, int n_calls)
{
    tc_ctx *ctx = begin(backend, NULL), *plain = begin("interp", NULL);
    REQUIRE(ctx && plain);
    tc_program *f = compile_between(ctx, op, rows), *g = compile_between(plain, op, rows);
    check_explained(f, op);
    for (int i = 0; i < 4 && f && g; i++) {
        int n = tci_dim_is_known(rows) ? N : i % 3 * N;
        results got, expected;
        calls = 0;
        run_between(f, n, &got);
        CHECK_EQ_INT(calls, n_calls);
        run_between(g, n, &expected);
        CHECK_MSG(!memcmp(&got, &expected, sizeof(got)), "%s, %s, %d rows", backend, op->name, n);
    }
    tc_program_free(f);
    tc_program_free(g);
    tc_ctx_free(ctx);
    tc_ctx_free(plain);
}

TEST(texts_and_calls_between_kernels)
{
    check_between("emulated", &axpy, N, 0);
    check_between("emulated", &axpy_on_host, N, 1);
}

TEST(texts_and_calls_are_given_the_sizes_of_the_run)
{
    check_between("emulated", &axpy, TC_DIM("rows", 0, 50), 0);
    check_between("emulated", &axpy_on_host, TC_DIM("rows", 0, 50), 1);
}

static tc_status step_of(void *user, const tc_tensor *carry, const tc_tensor *x, tc_tensor *next,
                         tc_tensor *y)
{
    *y = tc_custom(user, TC_TENSORS(*x, *carry, tc_mul(*carry, 0.5)));
    *next = tc_sub(*y, 1);
    return TC_OK;
}

TEST(in_each_step_of_a_repetition)
{
    enum { STEPS = 6, WIDE = 100 };
    const tc_custom_op *const ops[2] = {&axpy, &axpy_on_host};
    for (int i = 0; i < 2; i++) {
        float got[2][STEPS][WIDE];
        for (int side = 0; side < 2; side++) {
            tc_ctx *ctx = begin(side ? "interp" : "emulated", NULL);
            REQUIRE(ctx);
            tc_tensor first = tc_arange(ctx, 0, WIDE, 1, TC_F32), last, ys;
            tc_tensor x = tc_sin(tc_arange(ctx, 0, STEPS, 1, TC_F32));
            CHECK_EQ_INT(tc_scan(TC_TENSORS(first), TC_TENSORS(x), 0, false, step_of,
                                 (void *)(uintptr_t)ops[i], &last, &ys, 1),
                         TC_OK);
            calls = 0;
            CHECK_MSG(!tc_read(ys, got[side], STEPS * WIDE), "%s", tc_error(ctx));
            CHECK_EQ_INT(calls, side || i ? STEPS : 0);
            tc_ctx_free(ctx);
        }
        CHECK(!memcmp(got[0], got[1], sizeof(got[0])));
    }
}

/* ---- what is told ---- */

static const tc_custom_op wrong = {.name = "wrong",
                                   .shape = axpy_shape,
                                   .run = axpy_run,
                                   .cuda = "__device__ void run(const tc_custom_array *in, int,\n"
                                           "                    tc_custom_array *out)\n"
                                           "{\n    *out = no_such_thing;\n}\n"};

TEST(a_text_that_does_not_compile_is_the_users)
{
    register_emulation();
    tc_options o = {.backend = "emulated", .no_disk_cache = true}; /* may fall back, and does not */
    tc_ctx *ctx = NULL;
    REQUIRE(!tc_ctx_make(&ctx, &o));
    tc_tensor x = tc_input(ctx, "x", TC_F32, 4), one = tc_full(ctx, 1, TC_F32);
    tc_program *f = NULL;
    CHECK_EQ_INT(tc_compile(tc_sin(tc_custom(&wrong, TC_TENSORS(one, x, x))), &f), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(ctx), "the CUDA source of custom op 'wrong' does not compile");
    CHECK_HAS(tc_error(ctx), "wrong:4:");
    CHECK_HAS(tc_error(ctx), "no_such_thing");
    tc_ctx_free(ctx);
}

/* In a process another text is another version; what is stored says which. */
TEST(a_text_on_disk)
{
    char dir[] = "/tmp/tc-test-cuda-custom-XXXXXX", command[64];
    REQUIRE(mkdtemp(dir));
    for (int i = 0; i < 3; i++) {
        const tc_custom_op op = {.name = "stored",
                                 .version = i / 2,
                                 .shape = axpy_shape,
                                 .run = axpy_run,
                                 .cuda = i < 2 ? axpy_text
                                               : "__device__ void run(const tc_custom_array *, int,"
                                                 " tc_custom_array *out) {\n"
                                                 "    ((float *)out->data)[threadIdx.x] = 7;\n}\n",
                                 .cuda_threads = 4};
        float x[4] = {1, 2, 3, 4}, got[4];
        tc_program_info info;
        tc_program *f = NULL;
        tc_ctx *ctx = begin("emulated", dir);
        REQUIRE(ctx);
        tc_tensor a = tc_input(ctx, "a", TC_F32, 4), two = tc_full(ctx, 2, TC_F32);
        CHECK_MSG(!tc_compile(tc_custom(&op, TC_TENSORS(two, a, a)), &f), "%s", tc_error(ctx));
        REQUIRE(f && !tc_program_get_info(f, &info));
        CHECK_MSG(info.from_disk == (i == 1), "%d", i);
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, 4)), TC_BUFS(TC_BUF(got, 4))), TC_OK);
        CHECK(got[0] == (i < 2 ? 3 : 7) && got[3] == (i < 2 ? 12 : 7));
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
    snprintf(command, sizeof(command), "rm -r %s", dir);
    CHECK_EQ_INT(system(command), 0);
}

/* ---- where there is more than the emulation ---- */

static tc_status nvrtc_compile(void *user, tc_build *build)
{
    const char *why;
    (void)user;
    return tci_nvrtc_build(build, "--gpu-architecture=sm_90a", &why);
}

static tc_status nvrtc_load(void *user, const void *bytes, size_t n, const char *path,
                            void **module)
{
    (void)user;
    (void)bytes;
    (void)path;
    *module = &calls;
    return n > 0 ? TC_OK : TC_ERR_BACKEND;
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
        SKIP("no NVRTC");
    }
    static tc_backend backend;
    backend = *emulation();
    backend.name = "nvrtc";
    backend.compile = nvrtc_compile;
    backend.module_load = nvrtc_load;
    backend.module_find = nvrtc_find;
    backend.module_free = nvrtc_free;
    tc_register_backend(&backend);
    tc_ctx *ctx = begin("nvrtc", NULL);
    REQUIRE(ctx);
    tc_program_free(compile_between(ctx, &axpy, N));
    tc_program_free(compile_between(ctx, &axpy, TC_DIM("rows", 0, 50)));
    tc_program *f = NULL;
    tc_tensor x = tc_input(ctx, "x", TC_F32, 4), one = tc_full(ctx, 1, TC_F32);
    CHECK_EQ_INT(tc_compile(tc_custom(&wrong, TC_TENSORS(one, x, x)), &f), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(ctx), "wrong(4): error: identifier \"no_such_thing\" is undefined");
    tc_ctx_free(ctx);
}

TEST(on_a_gpu)
{
    tc_ctx *ctx = begin("cuda", NULL);
    tc_program *f = NULL;
    if (!ctx || tc_compile(tc_neg(tc_input(ctx, "x", TC_F32, 4)), &f)) {
        tc_ctx_free(ctx);
        SKIP("no GPU");
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    check_between("cuda", &axpy, N, 0);
    check_between("cuda", &axpy_on_host, N, 1);
    check_between("cuda", &axpy, TC_DIM("rows", 0, 50), 0);
    check_between("cuda", &axpy_on_host, TC_DIM("rows", 0, 50), 1);
}

TEST_MAIN
