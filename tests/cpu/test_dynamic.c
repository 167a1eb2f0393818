/* tests/cpu/test_dynamic.c - sizes as symbols in native code: one compile is right for every size,
 * with the bits of the interpreter and of programs made for one size; warm starts; threads. Needs a
 * compiler. */
#define _GNU_SOURCE
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "dynamic.h"

#include <unistd.h>

#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        tc_status status_of_call = (call);                                                         \
        CHECK_EQ_INT(status_of_call, TC_OK);                                                       \
    } while (0)

static tc_stats dyn_stats(tc_ctx *ctx)
{
    tc_stats stats;
    tc_stats(ctx, &stats);
    return stats;
}

/* The sizes of run i. */
static int64_t dyn_batch(const dyn_case *c, int i)
{
    return c->has_height ? TCI_MIN(dyn_sizes[i], 64) : dyn_sizes[i];
}

static int64_t dyn_height(const dyn_case *c, int i)
{
    return c->has_height ? 1 + (i * 29) % 64 : 1;
}

TEST(any_size_is_right)
{
    for (int k = 0; k < DYN_CASES; k++) {
        const dyn_case *c = &dyn_cases[k];
        tc_ctx *ctx = dyn_ctx("cpu", 2, NULL), *fixed = dyn_ctx("interp", 1, NULL);
        REQUIRE(ctx && fixed);
        tc_stats before = dyn_stats(ctx);
        tc_program *f = dyn_compile(ctx, c, TC_DIM("batch", 0, 5000), TC_DIM("height", 1, 600));
        tc_stats compiled = dyn_stats(ctx);
        CHECK(compiled.compiler_runs > before.compiler_runs);
        for (int i = 0; i < 7 && f; i++) {
            dyn_check_at(fixed, c, f, dyn_batch(c, i), dyn_height(c, i));
        }
        CHECK_EQ_INT(dyn_stats(ctx).compiler_runs, compiled.compiler_runs);
        tc_program_info info = {0};
        CHECK_OK(tc_program_get_info(f, &info));
        CHECK_STR(info.backend, "cpu");
        tc_program_free(f);
        tc_ctx_free(fixed);
        tc_ctx_free(ctx);
    }
}

/* Weights of known sizes are packed once for all sizes of the rest. */
TEST(weights_in_panels)
{
    static float w[100 * 70], x[40 * 70], got[40 * 100], want[40 * 100];
    tc_ctx *ctx = dyn_ctx("cpu", 2, NULL);
    tc_program *f = NULL, *g = NULL;
    REQUIRE(ctx != NULL);
    for (int i = 0; i < 100 * 70; i++) {
        w[i] = (float)(i % 37 - 18) / 16;
        x[i % (40 * 70)] = (float)(i % 23 - 11) / 8;
    }
    tc_tensor in = tc_input(ctx, "x", TC_F32, TC_DIM("rows", 8, 64), 70);
    tc_tensor given = tc_input(ctx, "w", TC_F32, 100, 70);
    tc_tensor kept = tc_borrow(ctx, w, TC_F32, 100, 70);
    CHECK_OK(tc_compile(tc_matmul(in, tc_transpose(kept, 0, 1)), &f));
    CHECK_OK(tc_compile(tc_matmul(in, tc_transpose(given, 0, 1)), &g));
    REQUIRE(f && g);
    for (int rows = 8; rows <= 40; rows += 16) {
        CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(x, rows * 70)), TC_BUFS(TC_BUF(got, rows * 100))));
        CHECK_OK(tc_run(g, TC_BUFS(TC_BUF(x, rows * 70), TC_BUF(w, 100 * 70)),
                        TC_BUFS(TC_BUF(want, rows * 100))));
        CHECK(!memcmp(got, want, sizeof(float) * (size_t)rows * 100));
    }
    tc_program_info info = {0};
    CHECK_OK(tc_program_get_info(f, &info));
    CHECK_EQ_INT(info.n_once, 1);
    CHECK(info.kept_bytes >= (int64_t)sizeof(w));
    tc_program_free(f);
    tc_program_free(g);
    /* what a run's arena takes is not known, so nothing is known to fit */
    tc_options within = {.memory_limit = 1 << 20};
    tc_tensor y = tc_matmul(tc_matmul(in, tc_transpose(kept, 0, 1)), kept);
    CHECK_OK(tc_compile_fn(TC_TENSORS(in), TC_TENSORS(y), &within, &f));
    CHECK_OK(tc_program_get_info(f, &info));
    CHECK_EQ_INT(info.kept_bytes, 0);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Rows of any number, times what a run gives, of a depth that is a symbol too, or weights. */
TEST(products_of_bytes)
{
    enum { COLUMNS = 100, DEPTH = 70, MOST = 40 };
    static int8_t w[COLUMNS * DEPTH], x[MOST * DEPTH];
    static int32_t got[2][MOST * COLUMNS];
    tc_ctx *ctx = dyn_ctx("cpu", 2, NULL);
    tc_program *f[2] = {NULL, NULL};
    REQUIRE(ctx != NULL);
    for (int i = 0; i < COLUMNS * DEPTH; i++) {
        w[i] = (int8_t)tct_random_below(256);
        x[i % (MOST * DEPTH)] = (int8_t)tct_random_below(256);
    }
    int64_t rows = TC_DIM("rows", 8, 64), depth = TC_DIM("depth", 1, 128);
    tc_tensor in[2] = {tc_input(ctx, "x", TC_I8, rows, depth),
                       tc_input(ctx, "y", TC_I8, rows, DEPTH)};
    tc_tensor right[2] = {tc_input(ctx, "w", TC_I8, COLUMNS, depth),
                          tc_borrow(ctx, w, TC_I8, COLUMNS, DEPTH)};
    for (int i = 0; i < 2; i++) {
        tc_tensor y = tc_matmul(tc_cast(in[i], TC_I32),
                                tc_cast(tc_transpose(right[i], 0, 1), TC_I32));
        CHECK_OK(tc_compile(y, &f[i]));
    }
    REQUIRE(f[0] && f[1]);
    for (int n = 8; n <= MOST; n += 16) {
        CHECK_OK(tc_run(f[0], TC_BUFS(TC_BUF(x, n * DEPTH), TC_BUF(w, COLUMNS * DEPTH)),
                        TC_BUFS(TC_BUF(got[0], n * COLUMNS))));
        CHECK_OK(tc_run(f[1], TC_BUFS(TC_BUF(x, n * DEPTH)), TC_BUFS(TC_BUF(got[1], n * COLUMNS))));
        for (int i = 0; i < n * COLUMNS; i++) {
            int32_t want = 0;
            for (int j = 0; j < DEPTH; j++) {
                want += x[i / COLUMNS * DEPTH + j] * w[i % COLUMNS * DEPTH + j];
            }
            CHECK(got[0][i] == want && got[1][i] == want);
        }
    }
    tc_program_free(f[0]);
    tc_program_free(f[1]);
    tc_ctx_free(ctx);
}

/* A computed index is checked where there is an element, in vectors and one by one: not in the
 * lanes that a row of unknown size leaves empty. */
TEST(indices_of_rows_of_any_length)
{
    static float table[64], got[8], want;
    for (int bits = 0; bits <= 512; bits = bits ? 2 * bits : 128) {
        tc_options o = {.backend = "cpu", .no_disk_cache = true, .vector_bits = bits ? bits : -1};
        tc_ctx *ctx = NULL;
        tc_program *f = NULL;
        REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        for (int i = 0; i < 64; i++) {
            table[i] = (float)(i * 7 % 11);
        }
        int64_t n = TC_DIM("n", 1, 1024);
        tc_tensor x = tc_input(ctx, "x", TC_F32, n);
        tc_tensor row = tc_arange(ctx, 0, tc_size(x, 0), 1, TC_I64);
        tc_tensor at = tc_add(row, tc_mul(tc_unsqueeze(row, -1), 8));
        tc_tensor y = tc_sum(tc_index(tc_copy_in(ctx, table, TC_F32, 64), TC_TENSORS(at)),
                             TC_AXES(1), false);
        CHECK_OK(tc_compile(tc_add(y, x), &f));
        for (int m = 1; f && m <= 8; m++) {
            static float zeros[8];
            CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(zeros, m)), TC_BUFS(TC_BUF(got, m))));
            for (int i = 0; i < m; i++) {
                want = 0;
                for (int j = 0; j < m; j++) {
                    want += table[8 * i + j];
                }
                CHECK_CLOSE(got[i], want, 0);
            }
        }
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

/* Bits do not depend on who runs the kernels, nor on how many threads. */
TEST(the_bits_of_the_interpreter)
{
    for (int k = 0; k < DYN_CASES; k++) {
        const dyn_case *c = &dyn_cases[k];
        tc_ctx *ctx[3] = {dyn_ctx("interp", 1, NULL), dyn_ctx("cpu", 1, NULL),
                          dyn_ctx("cpu", 3, NULL)};
        tc_program *f[3];
        for (int j = 0; j < 3; j++) {
            REQUIRE(ctx[j]);
            f[j] = dyn_compile(ctx[j], c, TC_DIM("batch", 0, 5000), TC_DIM("height", 1, 600));
            REQUIRE(f[j]);
        }
        for (int i = 0; i < 7; i++) {
            dyn_memory m[3];
            for (int j = 0; j < 3; j++) {
                m[j] = dyn_fill(c, dyn_batch(c, i), dyn_height(c, i));
                CHECK_OK(dyn_run(f[j], &m[j]));
                CHECK_MSG(same_bits(TC_F32, m[j].out, m[0].out, m[0].n_out + 1),
                          "%s at %lld, %lld: other bits", c->name, (long long)dyn_batch(c, i),
                          (long long)dyn_height(c, i));
            }
            for (int j = 0; j < 3; j++) {
                dyn_drop(&m[j]);
            }
        }
        for (int j = 0; j < 3; j++) {
            tc_program_free(f[j]);
            tc_ctx_free(ctx[j]);
        }
    }
}

static void dyn_run_all(tc_program *const *f, int first_size)
{
    for (int k = 0; k < DYN_CASES; k++) {
        const dyn_case *c = &dyn_cases[k];
        for (int i = first_size; i < 6 && f[k]; i++) {
            dyn_memory m = dyn_fill(c, dyn_batch(c, i), dyn_height(c, i));
            tc_status status = dyn_run(f[k], &m);
            CHECK_MSG(status == TC_OK, "%s: %s", c->name, tc_error(f[k]));
            CHECK(m.out[m.n_out] == -77 && (m.n_out == 0 || m.out[m.n_out - 1] != -77));
            dyn_drop(&m);
        }
    }
}

/* Programs, then kernels alone, come from disk with all that a run of any size needs. */
TEST(warm_starts)
{
    char dir[] = "/tmp/tc-dynamic-XXXXXX", command[96];
    REQUIRE(mkdtemp(dir));
    for (int pass = 0; pass < 3; pass++) {
        const tc_options o = {.backend = "cpu", .threads = 1, .verify = true, .cache_dir = dir};
        tc_ctx *ctx;
        REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        if (pass == 2) { /* programs are gone: their kernels are found one by one */
            snprintf(command, sizeof(command), "rm %s/tc-p-*", dir);
            CHECK_EQ_INT(system(command), 0);
        }
        tc_stats before = dyn_stats(ctx);
        tc_program *f[DYN_CASES];
        for (int k = 0; k < DYN_CASES; k++) {
            f[k] = dyn_compile(ctx, &dyn_cases[k], TC_DIM("batch", 0, 4090),
                               TC_DIM("height", 1, 600));
        }
        dyn_run_all(f, 0);
        tc_stats after = dyn_stats(ctx);
        int64_t runs = after.compiler_runs - before.compiler_runs;
        CHECK(pass ? runs == 0 : runs >= DYN_CASES);
        CHECK_EQ_INT(after.disk_hits - before.disk_hits, pass == 1 ? DYN_CASES : 0);
        CHECK_EQ_INT(after.cache_rejects, before.cache_rejects);
        CHECK(pass != 2 || after.kernel_hits - before.kernel_hits >= DYN_CASES);
        for (int k = 0; k < DYN_CASES; k++) {
            tc_program_free(f[k]);
        }
        tc_ctx_free(ctx);
        tc_shutdown(); /* as in a new process: nothing is in memory */
    }
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    CHECK_EQ_INT(system(command), 0);
}

/* Instances hold their family: it may leave the cache, and the program its user. */
TEST(instances_outlive_the_cache)
{
    const dyn_case *c = &dyn_cases[0];
    tc_ctx *ctx = dyn_ctx("cpu", 1, NULL);
    REQUIRE(ctx);
    tc_program *f = dyn_compile(ctx, c, TC_DIM("batch", 0, 77), 1);
    tc_call *call = NULL;
    REQUIRE(f && tc_call_make(f, &call) == TC_OK);
    dyn_memory m = dyn_fill(c, 5, 1);
    CHECK_OK(dyn_run(f, &m));
    tc_program_free(f);
    tc_ctx_free(ctx);
    tci_cache_trim();
    for (int i = 0; i < 2; i++) {
        CHECK_OK(tc_run_call(call,
                             TC_BUFS(TC_BUF(m.in[0], m.n_in[0]), TC_BUF(m.in[1], m.n_in[1]),
                                     TC_BUF(m.in[2], m.n_in[2])),
                             TC_BUFS(TC_BUF(m.out, m.n_out))));
        CHECK(m.out[34] != -77 && m.out[35] == -77);
    }
    tc_call_free(call);
    dyn_drop(&m);
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define STACK_BYTES (1 << 20) /* frames of a sanitizer are larger */
#else
#define STACK_BYTES (64 << 10)
#endif

static void *compile_all(void *user)
{
    tc_ctx *ctx = dyn_ctx(user, 1, NULL);
    int64_t batch = TC_DIM("batch", 0, 4001), height = TC_DIM("height", 1, 600), n = batch;
    for (int i = 0; i < 30; i++) { /* and sizes within sizes */
        n = tc_dim_max(tc_dim_div(tc_dim_add(n, height), 2), tc_dim_sub(n, i + 1));
    }
    tc_tensor x = tc_input(ctx, "x", TC_F32, batch), y = tc_input(ctx, "y", TC_F32, height);
    tc_tensor z = tc_expand(tc_add(tc_sum(x, TC_ALL, false), tc_sum(y, TC_ALL, false)), n);
    tc_program *f = NULL;
    tc_status status = ctx ? tc_compile(tc_exp(z), &f) : TC_ERR_MEMORY;
    tc_program_free(f);
    for (int k = 0; k < DYN_CASES && status == TC_OK; k++) {
        const dyn_case *c = &dyn_cases[k];
        f = dyn_compile(ctx, c, batch, height);
        dyn_memory m = dyn_fill(c, 5, c->has_height ? 7 : 1);
        status = f ? dyn_run(f, &m) : TC_ERR_ARGUMENT;
        dyn_drop(&m);
        tc_program_free(f);
    }
    tc_ctx_free(ctx);
    return status == TC_OK ? user : NULL;
}

/* As on threads of musl, and of servers that have many. */
TEST(compiles_on_a_stack_of_64_kb)
{
    static char names[2][8] = {"cpu", "interp"};
    for (int i = 0; i < 2; i++) {
        pthread_attr_t attr;
        pthread_t thread;
        void *result = NULL;
        REQUIRE(!pthread_attr_init(&attr) && !pthread_attr_setstacksize(&attr, STACK_BYTES));
        REQUIRE(!pthread_create(&thread, &attr, compile_all, names[i]));
        CHECK(!pthread_join(thread, &result) && result == names[i]);
        pthread_attr_destroy(&attr);
    }
}

TEST_MAIN
