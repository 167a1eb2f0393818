/* Random numbers: the published vectors of Philox4x32-10, the same bits from every executor, what
 * they are a function of, and their distributions. Keys are fixed, so that no test fails by chance;
 * the bounds are five standard deviations. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "../tc_test.h"
#include "same.h"

static tc_ctx *ctx;

static void open_ctx(const char *backend, int vector_bits, int threads)
{
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = backend;
    o.vector_bits = vector_bits;
    o.threads = threads;
    o.no_disk_cache = true;
    o.verify = true;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

/* The generator by its definition, a word at a time: W[] of the paper's Philox4x32-10. */
static void philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t k[2] = {key[0], key[1]};
    memcpy(out, counter, 16);
    for (int i = 0; i < 10; i++) {
        uint64_t p0 = out[0] * UINT64_C(0xD2511F53), p1 = out[2] * UINT64_C(0xCD9E8D57);
        uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ out[1] ^ k[0], (uint32_t)p1,
                            (uint32_t)(p0 >> 32) ^ out[3] ^ k[1], (uint32_t)p0};
        memcpy(out, next, 16);
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
}

static uint32_t word_of(uint64_t key, uint64_t i)
{
    const uint32_t counter[4] = {(uint32_t)(i / 4), (uint32_t)(i / 4 >> 32), 0, 0};
    const uint32_t words[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    uint32_t out[4];
    philox(counter, words, out);
    return out[i % 4];
}

/* counter, key, and the block that Random123's kat_vectors lists for them. */
static const uint32_t published[3][10] = {
    {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
    {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d, 0x41c83b0e,
     0xa20bc7c6, 0x6d5451fd},
    {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09, 0x94fdcceb,
     0x5001e420, 0x24126ea1}};

/* The values of a kernel's instructions, which are constants and prims over earlier ones. */
static tci_value *kernel_values(const tci_kernel *k)
{
    tci_value *values = calloc((size_t)k->n_insts, sizeof(*values));
    for (int i = 0; values && i < k->n_insts; i++) {
        const tci_kinst *inst = &k->insts[i];
        tci_value args[3] = {{0}};
        for (int a = 0; a < inst->n_args; a++) {
            args[a] = values[inst->args[a]];
        }
        tc_dtype t = inst->n_args ? (tc_dtype)k->insts[inst->args[0]].dtype : TC_U32;
        values[i] = inst->op == TCI_K_CONST
                        ? inst->value
                        : tci_prim_eval((tci_prim)inst->prim, t, (tc_dtype)inst->dtype, 0, args);
    }
    return values;
}

TEST(published_vectors)
{
    for (int v = 0; v < 3; v++) {
        const uint32_t *row = published[v];
        uint32_t plain[4];
        philox(row, row + 4, plain);
        tci_scratch s;
        tci_scratch_init(&s);
        tci_kernel *k = tci_kernel_make(&s);
        tci_value key = {.u = row[4] | (uint64_t)row[5] << 32};
        tci_random_block c;
        for (int w = 0; w < 4; w++) {
            c.w[w] = tci_kernel_const(k, TC_U32, (tci_value){.u = row[w]});
        }
        c = tci_random_mix(k, c, tci_kernel_const(k, TC_U64, key));
        tci_value *values = kernel_values(k);
        for (int w = 0; values && w < 4; w++) {
            CHECK_EQ_INT(plain[w], row[6 + w]);
            CHECK_EQ_INT(values[c.w[w]].u, row[6 + w]);
        }
        CHECK(values != NULL);
        free(values);
        tci_scratch_free(&s);
    }
}

TEST(elements_are_words_of_blocks)
{
    static const uint64_t keys[] = {0, 1, 77, UINT64_C(0x8000000000000000), UINT64_MAX};
    enum { N = 1003 };
    static uint32_t words[N];
    static uint64_t pairs[N];
    open_ctx("interp", 0, 1);
    for (int k = 0; k < 5; k++) {
        CHECK_EQ_INT(tc_read(tc_random_bits(ctx, keys[k], TC_U32, 17, 59), words, N), TC_OK);
        CHECK_EQ_INT(tc_read(tc_random_bits(ctx, keys[k], TC_U64, N), pairs, N), TC_OK);
        int wrong = 0;
        for (uint64_t i = 0; i < N; i++) {
            uint64_t pair = word_of(keys[k], 2 * i) | (uint64_t)word_of(keys[k], 2 * i + 1) << 32;
            wrong += words[i] != word_of(keys[k], i) || pairs[i] != pair;
        }
        CHECK_MSG(wrong == 0, "key %d: %d elements differ", k, wrong);
    }
    tc_ctx_free(ctx);
}

/* ---- every executor ---- */

enum { ROWS = 37, COLUMNS = 129, ALL = ROWS * COLUMNS, DRAWS = 16 };

static void draws_of(tc_tensor key, tc_tensor *y)
{
    tc_tensor f32 = tc_rand(ctx, key, TC_F32, ROWS, COLUMNS);
    tc_keys keys = {key, 0};
    y[0] = f32;
    y[1] = tc_rand(ctx, key, TC_F64, ROWS, COLUMNS);
    y[2] = tc_rand(ctx, key, TC_F16, ROWS, COLUMNS);
    y[3] = tc_rand(ctx, key, TC_BF16, ROWS, COLUMNS);
    y[4] = tc_randn(ctx, tc_next_key(&keys), TC_F32, ROWS, COLUMNS);
    y[5] = tc_randn(ctx, tc_next_key(&keys), TC_F64, ALL);
    y[6] = tc_random_bits(ctx, tc_next_key(&keys), TC_U64, ROWS, COLUMNS);
    y[7] = tc_random_bits(ctx, tc_next_key(&keys), TC_U8, ALL);
    y[8] = tc_randint(ctx, key, -3, 1000, TC_I64, ROWS, COLUMNS);
    y[9] = tc_randint(ctx, key, -3, 100, TC_I8, ALL);
    y[10] = tc_dropout(f32, 0.3, tc_next_key(&keys));
    y[11] = tc_bernoulli(f32, tc_next_key(&keys));
    y[12] = tc_permute(f32, 1, 0);
    y[13] = tc_slice(tc_flip(f32, 1), 1, 3, TC_END, 2);
    y[14] = tc_sum(tc_randn(ctx, tc_next_key(&keys), TC_F32, ROWS, COLUMNS), TC_AXES(1), false);
    y[15] = tc_reshape(tc_pad(tc_rand(ctx, key, TC_F32, 5, 7), 1, 2, 3, 0.5), 3, 20);
}

/* Runs all of them by one program each; what they give goes to memory. false: no such backend. */
static bool draw_all(const char *backend, int vector_bits, int threads, char (*memory)[8 * ALL])
{
    tc_tensor y[DRAWS];
    static tc_job jobs[DRAWS];
    static tc_program *programs[DRAWS];
    uint64_t seed = UINT64_C(0x123456789abcdef0);
    open_ctx(backend, vector_bits, threads);
    tc_tensor key = tc_input(ctx, "key", TC_U64);
    draws_of(key, y);
    for (int i = 0; i < DRAWS; i++) {
        CHECK_MSG(!tc_status_of(y[i]), "draw %d: %s", i, tc_error(y[i]));
        tc_job job = {{&key, 1}, {&y[i], 1}, &programs[i], TC_OK};
        jobs[i] = job;
    }
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.fallback = strcmp(backend, "interp") ? TC_FALLBACK_REFUSE : TC_FALLBACK_ALLOW;
    tc_status status = tc_compile_many(jobs, DRAWS, &o);
    for (int i = 0; i < DRAWS; i++) {
        if (!jobs[i].status) {
            tc_buf out = {memory[i], tc_count(y[i]), (int)tc_dtype_of(y[i]), false, 0, NULL, NULL};
            tc_bufs outs = {&out, 1};
            CHECK_EQ_INT(tc_run(programs[i], TC_BUFS(TC_BUF(&seed, 1)), outs), TC_OK);
        }
        tc_program_free(programs[i]);
    }
    if (status != TC_ERR_COMPILER) {
        CHECK_MSG(!status, "%s: %s", backend, tc_error(ctx));
    }
    return !status;
}

TEST(every_executor_draws_the_same_bits)
{
    static char want[DRAWS][8 * ALL], got[DRAWS][8 * ALL], judged[8 * ALL];
    static const struct {
        int bits, threads;
    } ways[] = {{0, 4}, {-1, 1}, {128, 1}, {256, 2}};
    REQUIRE(draw_all("interp", 0, 1, want));
    tc_tensor y[DRAWS];
    draws_of(tc_full(ctx, UINT64_C(0x123456789abcdef0), TC_U64), y);
    for (int i = 0; i < DRAWS; i++) {
        tci_node *root = tci_handle_node(y[i]);
        void *out = judged;
        CHECK_EQ_INT(tci_reference_eval(NULL, NULL, 0, &root, &out, 1, false), TC_OK);
        CHECK_MSG(i == 14 || same_bits(tc_dtype_of(y[i]), want[i], judged, tc_count(y[i])),
                  "draw %d: the reference differs", i);
    }
    tc_ctx_free(ctx);
    for (int way = 0; way < 4; way++) {
        bool works = draw_all("cpu", ways[way].bits, ways[way].threads, got);
        draws_of(tc_full(ctx, 0, TC_U64), y);
        for (int i = 0; works && i < DRAWS; i++) {
            CHECK_MSG(same_bits(tc_dtype_of(y[i]), want[i], got[i], tc_count(y[i])),
                      "draw %d, vectors of %d bits, %d threads: other bits", i, ways[way].bits,
                      ways[way].threads);
        }
        tc_ctx_free(ctx);
        if (!works) {
            SKIP("no C compiler here: interp and reference only");
        }
    }
}

/* ---- what a number is a function of ---- */

TEST(numbers_follow_from_key_and_index)
{
    static float all[1000], some[1000];
    open_ctx("interp", 0, 1);
    tc_tensor x = tc_rand(ctx, 9, TC_F32, 1000);
    CHECK_EQ_INT(tc_read(x, all, 1000), TC_OK);
    CHECK_EQ_INT(tc_read(tc_rand(ctx, 9, TC_F32, 10), some, 10), TC_OK);
    CHECK(same_bits(TC_F32, all, some, 10));
    CHECK_EQ_INT(tc_read(tc_slice(tc_rand(ctx, 9, TC_F32, 25, 8), 0, 3, 7, 1), some, 32), TC_OK);
    CHECK(same_bits(TC_F32, all + 24, some, 32));
    tc_tensor wide = tc_mul(tc_rand(ctx, 9, TC_F32, 10, 1), tc_full(ctx, 1.0, TC_F32, 10, 100));
    CHECK_EQ_INT(tc_read(wide, some, 1000), TC_OK);
    for (int i = 0; i < 1000; i++) {
        CHECK(some[i] == all[i / 100]);
    }
    CHECK_EQ_INT(tc_read(tc_rand(ctx, 10, TC_F32, 1000), some, 1000), TC_OK);
    int same = 0;
    for (int i = 0; i < 1000; i++) {
        same += all[i] == some[i];
    }
    CHECK_MSG(same < 3, "%d of 1000 numbers of another key are the same", same);
    tc_ctx_free(ctx);
}

/* The block of an element beyond 2^34 has a second word. */
TEST(far_elements)
{
    uint32_t got[6];
    open_ctx("interp", 0, 1);
    int64_t first = ((int64_t)5 << 34) - 3;
    tc_tensor x = tc_random_bits(ctx, 3, TC_U32, (int64_t)1 << 40);
    CHECK_EQ_INT(tc_read(tc_slice(x, 0, first, first + 6, 1), got, 6), TC_OK);
    for (int i = 0; i < 6; i++) {
        CHECK_EQ_INT(got[i], word_of(3, (uint64_t)(first + i)));
    }
    tc_ctx_free(ctx);
}

/* Rows within which the low word of the index wraps. */
TEST(far_rows)
{
    const int64_t columns = ((int64_t)1 << 22) - 1;
    for (int way = 0; way < 2; way++) {
        open_ctx(way ? "cpu" : "interp", 0, 1);
        tc_tensor x = tc_random_bits(ctx, 3, TC_U32, (int64_t)1 << 18, columns);
        tc_tensor wide = tc_random_bits(ctx, 3, TC_U64, (int64_t)1 << 18, columns);
        for (int64_t wrap = 1; wrap < 200; wrap += 66) {
            uint32_t got[40];
            uint64_t pairs[40];
            int64_t at = wrap << 32, row = at / columns, from = at % columns - 20;
            REQUIRE(from >= 0 && from + 40 <= columns);
            tc_tensor some = tc_slice(tc_slice(x, 0, row, row + 1, 1), 1, from, from + 40, 1);
            CHECK_EQ_INT(tc_read(some, got, 40), TC_OK);
            some = tc_slice(tc_slice(wide, 0, row, row + 1, 1), 1, from, from + 40, 1);
            CHECK_EQ_INT(tc_read(some, pairs, 40), TC_OK);
            for (int i = 0; i < 40; i++) {
                uint64_t n = (uint64_t)(row * columns + from + i);
                uint64_t pair = word_of(3, 2 * n) | (uint64_t)word_of(3, 2 * n + 1) << 32;
                CHECK_EQ_INT(got[i], word_of(3, n));
                CHECK(pairs[i] == pair);
            }
        }
        tc_ctx_free(ctx);
    }
}

TEST(symbolic_sizes_draw_the_same)
{
    static float all[2][300], some[2][300];
    open_ctx("interp", 0, 1);
    int64_t n = TC_DIM("n", 0, 1000);
    tc_tensor key = tc_input(ctx, "key", TC_U64), x = tc_input(ctx, "x", TC_F32, n, 3);
    tc_tensor y[2] = {tc_dropout(x, 0.5, tc_fold_in(key, 1)), tc_randn(ctx, key, TC_F32, n, 3)};
    tc_program *f = NULL;
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(key, x), TC_TENSORS_N(y, 2), NULL, &f), TC_OK);
    tc_tensor seed = tc_full(ctx, 5, TC_U64), one = tc_full(ctx, 1.0, TC_F32, 100, 3);
    tc_read(tc_dropout(one, 0.5, tc_fold_in(seed, 1)), all[0], 300);
    tc_read(tc_randn(ctx, seed, TC_F32, 100, 3), all[1], 300);
    for (int64_t rows = 1; rows <= 100; rows += 33) {
        static float ones[300];
        uint64_t five = 5;
        for (int i = 0; i < 300; i++) {
            ones[i] = 1;
        }
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(&five, 1), TC_BUF_ND(ones, rows, 3)),
                            TC_BUFS(TC_BUF(some[0], 3 * rows), TC_BUF(some[1], 3 * rows))),
                     TC_OK);
        CHECK(same_bits(TC_F32, all[0], some[0], 3 * rows));
        CHECK(same_bits(TC_F32, all[1], some[1], 3 * rows));
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Of the kernel that drops elements of x[rows, 500]; 0: it is not explained so. */
static int lanes_of_dropout(int64_t rows)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, rows, 500);
    tc_program *f = NULL;
    FILE *out = tmpfile();
    char text[1 << 14];
    int lanes = 0;
    REQUIRE(out &&
            tc_compile_fn(TC_TENSORS(x), TC_TENSORS(tc_dropout(x, 0.5, 7)), NULL, &f) == TC_OK);
    CHECK_EQ_INT(tc_explain_as(f, out, &(tc_explain_options){.all = true}), TC_OK);
    rewind(out);
    text[fread(text, 1, sizeof(text) - 1, out)] = 0;
    fclose(out);
    for (const char *at = strstr(text, "where"); at && !lanes; at = strstr(at + 1, "vector ")) {
        lanes = !strncmp(at, "vector ", 7) ? atoi(at + 7) : 0;
    }
    tc_program_free(f);
    return lanes;
}

/* Indices of symbolic sizes may need two words, but no lane is wider for it. */
TEST(symbolic_sizes_have_as_many_lanes)
{
    open_ctx("cpu", 0, 1);
    int known = lanes_of_dropout(100), any = lanes_of_dropout(TC_DIM("n", 0, 1 << 30));
    CHECK_MSG(known == any, "%d lanes, of symbolic sizes %d", known, any);
    tc_ctx_free(ctx);
}

TEST(equal_draws_are_one_node)
{
    tc_stats before, after;
    open_ctx("interp", 0, 1);
    tc_tensor key = tc_input(ctx, "key", TC_U64);
    tc_randn(ctx, tc_fold_in(key, 0), TC_F32, 10);
    tc_stats(ctx, &before);
    tc_randn(ctx, tc_fold_in(key, 0), TC_F32, 10);
    tc_stats(ctx, &after);
    CHECK_EQ_INT(after.nodes, before.nodes);
    tc_randn(ctx, tc_fold_in(key, 1), TC_F32, 10);
    tc_stats(ctx, &after);
    CHECK(after.nodes > before.nodes);
    tc_ctx_free(ctx);
}

TEST(another_key_needs_no_other_program)
{
    float a[50], b[50], c[50];
    tc_stats before, after;
    open_ctx("interp", 0, 1);
    tc_tensor key = tc_input(ctx, "key", TC_U64), x = tc_rand(ctx, key, TC_F32, 50);
    tc_program *f;
    CHECK_EQ_INT(tc_compile(x, &f), TC_OK);
    tc_stats(ctx, &before);
    uint64_t keys[3] = {11, 12, 11};
    float *out[3] = {a, b, c};
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(&keys[i], 1)), TC_BUFS(TC_BUF(out[i], 50))), TC_OK);
    }
    CHECK(same_bits(TC_F32, a, c, 50) && !same_bits(TC_F32, a, b, 50));
    for (int i = 100; i < 110; i++) { /* numbers in C are no part of a program either */
        CHECK_EQ_INT(tc_read(tc_rand(ctx, i, TC_F32, 50), a, 50), TC_OK);
    }
    tc_stats(ctx, &after);
    CHECK_EQ_INT(after.compiles - before.compiles, 1);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

TEST(keys_of_keys_differ)
{
    enum { N = 400 };
    static uint64_t made[2 * N + 2];
    open_ctx("interp", 0, 1);
    tc_tensor key = tc_full(ctx, 7, TC_U64);
    tc_keys keys = {key, 0};
    tc_read(tc_random_bits(ctx, key, TC_U64, 2), made, 2);
    for (int i = 0; i < N; i++) {
        tc_tensor next = tc_next_key(&keys);
        CHECK_EQ_INT(tc_read(next, &made[2 + 2 * i], 1), TC_OK);
        CHECK_EQ_INT(tc_read(tc_fold_in(next, 3), &made[3 + 2 * i], 1), TC_OK);
    }
    qsort(made, 2 * N + 2, sizeof(made[0]), by_number);
    for (int i = 1; i < 2 * N + 2; i++) {
        CHECK(made[i] != made[i - 1]);
    }
    CHECK_EQ_INT((int64_t)keys.given, N);
    tc_ctx_free(ctx);
}

/* A counter that is a parameter: each run of one program draws what the next key gives. */
TEST(a_program_advances_its_own_counter)
{
    float got[8], want[8];
    uint64_t zero = 0;
    open_ctx("interp", 0, 1);
    tc_tensor count = tc_param(ctx, &zero, TC_U64), key = tc_full(ctx, 21, TC_U64);
    tc_tensor x = tc_rand(ctx, tc_fold_in(key, count), TC_F32, 8);
    tc_tensor more = tc_assign(count, tc_add(count, 1));
    tc_program *f;
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(), TC_TENSORS(x, more), NULL, &f), TC_OK);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ_INT(tc_run(f, TC_BUFS(), TC_BUFS(TC_BUF(got, 8))), TC_OK);
        CHECK_EQ_INT(tc_read(tc_rand(ctx, tc_fold_in(key, i), TC_F32, 8), want, 8), TC_OK);
        CHECK(same_bits(TC_F32, got, want, 8));
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- distributions ---- */

enum { MANY = 1 << 18 };
static double numbers[MANY];

static void draw_numbers(tc_tensor x)
{
    CHECK_MSG(!tc_read(tc_cast(x, TC_F64), numbers, MANY), "%s", tc_error(x));
}

/* Mean, variance and the product of neighbours, in standard deviations of themselves. */
static void check_moments(const char *what, double mean, double variance, double fourth)
{
    double sum = 0, squares = 0, products = 0, n = MANY;
    for (int i = 0; i < MANY; i++) {
        double d = numbers[i] - mean;
        sum += d;
        squares += d * d;
        products += i ? d * (numbers[i - 1] - mean) : 0;
    }
    double of_sum = sum / sqrt(n * variance);
    double of_squares = (squares - n * variance) / sqrt(n * (fourth - variance * variance));
    double of_products = products / sqrt(n) / variance;
    CHECK_MSG(fabs(of_sum) < 5, "%s: the mean is %g standard deviations off", what, of_sum);
    CHECK_MSG(fabs(of_squares) < 5, "%s: the variance is %g off", what, of_squares);
    CHECK_MSG(fabs(of_products) < 5, "%s: neighbours correlate by %g", what, of_products);
}

/* Of n equally likely classes, by the share of the distribution below a number. */
static void check_classes(const char *what, int n, double (*share)(double x))
{
    static int count[1024];
    double chi = 0, each = (double)MANY / n;
    memset(count, 0, sizeof(count));
    for (int i = 0; i < MANY; i++) {
        int at = (int)floor(share(numbers[i]) * n);
        CHECK(at >= 0 && at < n);
        count[at < 0 ? 0 : at < n ? at : n - 1]++;
    }
    for (int i = 0; i < n; i++) {
        chi += (count[i] - each) * (count[i] - each) / each;
    }
    double off = (chi - (n - 1)) / sqrt(2.0 * (n - 1));
    CHECK_MSG(fabs(off) < 5, "%s: chi square %g over %d classes", what, chi, n);
}

static double share_uniform(double x)
{
    return x;
}
static double share_of_ten(double x)
{
    return (x + 4.5) / 10;
}
static double share_normal(double x)
{
    return 0.5 * erfc(-x * 0.70710678118654752);
}

TEST(uniform_numbers)
{
    static const struct {
        tc_dtype t;
        int digits;
    } dtypes[] = {{TC_F32, 24}, {TC_F64, 53}, {TC_F16, 11}, {TC_BF16, 8}};
    open_ctx("interp", 0, 1);
    for (int i = 0; i < 4; i++) {
        double last = ldexp(1, -dtypes[i].digits), center = 0.5 - last / 2;
        draw_numbers(tc_rand(ctx, 40 + i, dtypes[i].t, MANY));
        bool fits = true;
        for (int k = 0; k < MANY; k++) {
            double whole = numbers[k] / last;
            fits &= numbers[k] >= 0 && numbers[k] < 1 && whole == floor(whole);
        }
        CHECK_MSG(fits, "%d digits: a number outside of [0, 1), or with more digits",
                  dtypes[i].digits);
        check_moments("uniform", center, 1.0 / 12, 1.0 / 80);
        check_classes("uniform", dtypes[i].digits > 8 ? 1024 : 256, share_uniform);
    }
    tc_ctx_free(ctx);
}

TEST(normal_numbers)
{
    open_ctx("interp", 0, 1);
    for (int i = 0; i < 2; i++) {
        draw_numbers(tc_randn(ctx, 50 + i, i ? TC_F64 : TC_F32, MANY));
        double largest = 0;
        for (int k = 0; k < MANY; k++) {
            largest = fabs(numbers[k]) > largest ? fabs(numbers[k]) : largest;
        }
        CHECK_MSG(largest > 4 && largest < 7, "the largest is %g", largest);
        check_moments("normal", 0, 1, 3);
        check_classes("normal", 512, share_normal);
    }
    tc_ctx_free(ctx);
}

TEST(integers_and_coins)
{
    open_ctx("interp", 0, 1);
    draw_numbers(tc_randint(ctx, 60, -4, 6, TC_I32, MANY));
    check_moments("integers", 0.5, 8.25, 120.8625);
    check_classes("integers", 10, share_of_ten);
    tc_tensor low = tc_full(ctx, -4, TC_I64), high = tc_full(ctx, 6, TC_I64);
    static double first[MANY];
    memcpy(first, numbers, sizeof(first));
    draw_numbers(tc_randint(ctx, 60, low, high, TC_I32, MANY));
    CHECK(!memcmp(first, numbers, sizeof(first)));
    draw_numbers(tc_randint(ctx, 60, high, low, TC_I32, MANY));
    CHECK(numbers[0] == 6 && numbers[MANY - 1] == 6);
    draw_numbers(tc_randint(ctx, 60, INT64_MIN, INT64_MAX, TC_I64, MANY));
    for (int i = 0; i < MANY; i++) {
        numbers[i] = ldexp(numbers[i], -64) + 0.5;
    }
    check_classes("wide integers", 1024, share_uniform);
    draw_numbers(tc_bernoulli(tc_full(ctx, 0.3, TC_F32, MANY), 61));
    check_moments("coins", 0.3, 0.21, 0.3 * 0.7 * (0.343 + 0.027));
    tc_ctx_free(ctx);
}

/* ---- dropout ---- */

TEST(dropout_drops_and_scales)
{
    enum { N = 1000 };
    static float x[N], y[N], dx[N], u[N];
    open_ctx("interp", 0, 1);
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i + 1);
    }
    x[3] = INFINITY;
    tc_tensor in = tc_copy_in(ctx, x, TC_F32, N), out = tc_dropout(in, 0.25, 70), grad;
    tc_tensor loss = tc_sum(tc_mul(out, 3), TC_ALL, false);
    CHECK_EQ_INT(tc_grad(loss, &in, 1, &grad), TC_OK);
    tc_read(out, y, N);
    tc_read(grad, dx, N);
    tc_read(tc_rand(ctx, 70, TC_F32, N), u, N);
    for (int i = 0; i < N; i++) {
        bool kept = u[i] >= 0.25f;
        float scale = 1.0f / 0.75f;
        CHECK(y[i] == (kept ? x[i] * scale : 0) && dx[i] == (kept ? 3 * scale : 0));
    }
    tc_tensor p = tc_full(ctx, 0.25, TC_F32), all = tc_dropout(in, 1, 70);
    tc_read(tc_dropout(in, p, 70), u, N);
    CHECK(same_bits(TC_F32, u, y, N));
    CHECK_EQ_INT(tc_dropout(in, 0, 70).id, in.id);
    tc_read(all, y, N);
    for (int i = 0; i < N; i++) {
        CHECK(y[i] == 0);
    }
    tc_ctx_free(ctx);
}

/* The elements that go do not depend on the dtype of x. */
TEST(dropout_of_other_dtypes)
{
    static double want[1000], got[1000];
    open_ctx("interp", 0, 1);
    for (int t = TC_F16; t <= TC_F64; t++) {
        tc_tensor x = tc_full(ctx, 1, (tc_dtype)t, 1000);
        CHECK_EQ_INT(tc_read(tc_cast(tc_dropout(x, 0.5, 3), TC_F64), got, 1000), TC_OK);
        CHECK_EQ_INT(tc_dtype_of(tc_dropout(x, 0.5, 3)), t);
        CHECK(t == TC_F16 || !memcmp(want, got, sizeof(got)));
        memcpy(want, got, sizeof(got));
    }
    tc_ctx_free(ctx);
}

/* A layer forward and backward, dropped out or not: kernels and workspace. */
static tc_program_info layer_info(double p)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, 1000, 100), key = tc_input(ctx, "key", TC_U64);
    tc_tensor w[2] = {tc_input(ctx, "w", TC_F32, 100, 200), tc_input(ctx, "v", TC_F32, 200, 10)};
    tc_tensor grads[2], y = tc_dropout(tc_relu(tc_matmul(x, w[0])), p, key);
    tc_tensor loss = tc_sum(tc_square(tc_matmul(y, w[1])), TC_ALL, false);
    tc_program_info info;
    memset(&info, 0, sizeof(info));
    CHECK_EQ_INT(tc_grad(loss, w, 2, grads), TC_OK);
    tc_program *f;
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(x, key, w[0], w[1]), TC_TENSORS(loss, grads[0], grads[1]),
                               NULL, &f),
                 TC_OK);
    CHECK_EQ_INT(tc_program_get_info(f, &info), TC_OK);
    tc_program_free(f);
    return info;
}

/* The backward pass draws the mask again: no kernel makes it, and it takes no memory. One more
 * kernel at most, where the cost model keeps a product apart from the draws behind it. */
TEST(no_mask_is_stored)
{
    open_ctx("interp", 0, 1);
    tc_program_info without = layer_info(0), with = layer_info(0.1);
    int64_t product = with.n_kernels > without.n_kernels ? 4 * 1000 * 200 : 0;
    CHECK(with.n_kernels <= without.n_kernels + 1);
    CHECK(with.arena_bytes <= without.arena_bytes + product);
    CHECK_EQ_INT(with.bytes_written, without.bytes_written);
    tc_ctx_free(ctx);
}

/* ---- misuse ---- */

TEST(what_does_not_fit_is_refused)
{
    open_ctx("interp", 0, 1);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 4), i = tc_input(ctx, "i", TC_I32, 4);
    tc_tensor key = tc_input(ctx, "key", TC_I32), real = tc_input(ctx, "real", TC_F32);
    const struct {
        tc_tensor t;
        tc_status why;
        const char *text;
    } cases[] = {
        {tc_rand(ctx, 1, TC_I32, 4), TC_ERR_DTYPE, "expected a float dtype"},
        {tc_randn(ctx, 1, TC_BOOL, 4), TC_ERR_DTYPE, "expected a float dtype"},
        {tc_random_bits(ctx, 1, TC_F32, 4), TC_ERR_DTYPE, "expected an integer dtype"},
        {tc_randint(ctx, 1, 0, 4, TC_F32, 4), TC_ERR_DTYPE, "expected an integer dtype"},
        {tc_randint(ctx, 1, 4, 4, TC_I32, 4), TC_ERR_ARGUMENT, "expected a low less than high"},
        {tc_randint(ctx, 1, 0, 257, TC_U8, 4), TC_ERR_ARGUMENT, "expected numbers that u8 holds"},
        {tc_randint(ctx, 1, -1, 5, TC_U8, 4), TC_ERR_ARGUMENT, "expected numbers that u8 holds"},
        {tc_randint(ctx, 1, real, 5, TC_U8, 4), TC_ERR_DTYPE, "low is f32 of shape []"},
        {tc_rand(ctx, 1.5, TC_F32, 4), TC_ERR_DTYPE, "the key is 1.5: expected an integer"},
        {tc_rand(ctx, -1, TC_F32, 4), TC_ERR_DTYPE, "expected a number that u64 holds"},
        {tc_rand(ctx, x, TC_F32, 4), TC_ERR_SHAPE, "the key is f32 of shape [4]"},
        {tc_rand(ctx, real, TC_F32, 4), TC_ERR_DTYPE, "the key is f32 of shape []"},
        {tc_rand(ctx, key, TC_F32, -4), TC_ERR_SHAPE, "negative"},
        {tc_bernoulli(i, 1), TC_ERR_DTYPE, "expected a float dtype"},
        {tc_dropout(i, 0.5, 1), TC_ERR_DTYPE, "expected a float dtype"},
        {tc_dropout(x, 1.5, 1), TC_ERR_ARGUMENT, "p is 1.5: expected a number in [0, 1]"},
        {tc_dropout(x, NAN, 1), TC_ERR_ARGUMENT, "expected a number in [0, 1]"},
        {tc_dropout(x, x, 1), TC_ERR_SHAPE, "p is f32 of shape [4]"},
        {tc_fold_in(1, 2), TC_ERR_HANDLE, "numbers"},
        {tc_fold_in(real, 2), TC_ERR_DTYPE, "the key is f32 of shape []"},
        {tc_fold_in(key, x), TC_ERR_SHAPE, "the number is f32 of shape [4]"},
    };
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        CHECK_MSG(tc_status_of(cases[c].t) == cases[c].why &&
                      strstr(tc_error(cases[c].t), cases[c].text),
                  "case %d: %s", (int)c, tc_error(cases[c].t));
    }
    CHECK(!tc_status_of(tc_rand(ctx, key, TC_F32, 4)));
    CHECK(!tc_status_of(tc_randint(ctx, 1, 0, 256, TC_U8, 0)));
    tc_ctx_free(ctx);
}

TEST_MAIN
