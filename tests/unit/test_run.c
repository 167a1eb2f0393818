/* tests/unit/test_run.c - programs, calls and the lazy form, on the interpreter: what is bound to
 * what, what may share memory, what outlives what. */
#include "inside.h"
#include "tc_test.h"
#include "same.h"

static tc_ctx *run_ctx(int threads)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = "interp", .no_disk_cache = true, .threads = threads};
    return tc_ctx_make(&ctx, &o) ? NULL : ctx;
}

#define RUN_CTX                                                                                    \
    tc_ctx *ctx = run_ctx(1);                                                                      \
    REQUIRE(ctx)
#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        tc_status status_of_call = (call);                                                         \
        CHECK_EQ_INT(status_of_call, TC_OK);                                                       \
    } while (0)
#define REQUIRE_OK(call) REQUIRE((call) == TC_OK)

static void run_check_floats(const float *given, int n, const float *expected)
{
    for (int i = 0; i < n; i++) {
        CHECK_MSG(given[i] == expected[i], "element %d is %g, expected %g", i, (double)given[i],
                  (double)expected[i]);
    }
}
#define CHECK_FLOATS(given, ...)                                                                   \
    run_check_floats((given), (int)(sizeof((const float[]){__VA_ARGS__}) / sizeof(float)),         \
                     (const float[]){__VA_ARGS__})

/* ---- compile and run ---- */

TEST(inputs_go_by_creation)
{
    RUN_CTX;
    tc_tensor a = tc_input(ctx, "a", TC_F32, 3);
    tc_tensor b = tc_input(ctx, "b", TC_F32, 3);
    tc_program *f = NULL;
    REQUIRE_OK(tc_compile(tc_sub(b, tc_mul(a, 10)), &f));
    float x[3] = {1, 2, 3};
    float y[3] = {100, 200, 300};
    float out[3];
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(x, 3), TC_BUF(y, 3)), TC_BUFS(TC_BUF(out, 3))));
    CHECK_FLOATS(out, 90, 180, 270);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(listed_inputs_go_as_listed_and_may_be_unused)
{
    RUN_CTX;
    tc_tensor a = tc_input(ctx, "a", TC_F32, 2);
    tc_tensor b = tc_input(ctx, "b", TC_F32, 2);
    tc_tensor unused = tc_input(ctx, "unused", TC_I64, 5);
    tc_program *f = NULL;
    REQUIRE_OK(
        tc_compile_fn(TC_TENSORS(b, unused, a), TC_TENSORS(tc_sub(a, b), tc_add(a, b)), NULL, &f));
    float x[2] = {1, 2};
    float y[2] = {10, 20};
    int64_t z[5] = {0};
    float difference[2], sum[2];
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(y, 2), TC_BUF(z, 5), TC_BUF(x, 2)),
                    TC_BUFS(TC_BUF(difference, 2), TC_BUF(sum, 2))));
    CHECK_FLOATS(difference, -9, -18);
    CHECK_FLOATS(sum, 11, 22);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(outputs_may_be_inputs_views_data_and_repeats)
{
    RUN_CTX;
    float held[4] = {5, 6, 7, 8};
    tc_tensor a = tc_input(ctx, "a", TC_F32, 2, 2);
    tc_tensor d = tc_borrow(ctx, held, TC_F32, 4);
    tc_tensor turned = tc_transpose(a, 0, 1);
    tc_tensor y = tc_add(a, 1);
    tc_program *f = NULL;
    REQUIRE_OK(tc_compile_fn(TC_TENSORS(a), TC_TENSORS(a, turned, d, y, y), NULL, &f));
    float x[4] = {1, 2, 3, 4};
    float o[5][4];
    memset(o, 0, sizeof(o));
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(x, 4)),
                    TC_BUFS(TC_BUF(o[0], 4), TC_BUF(o[1], 4), TC_BUF(o[2], 4), TC_BUF(o[3], 4),
                            TC_BUF(o[4], 4))));
    CHECK_FLOATS(o[0], 1, 2, 3, 4);
    CHECK_FLOATS(o[1], 1, 3, 2, 4);
    CHECK_FLOATS(o[2], 5, 6, 7, 8);
    CHECK_FLOATS(o[3], 2, 3, 4, 5);
    CHECK_FLOATS(o[4], 2, 3, 4, 5);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(programs_outlive_their_context)
{
    RUN_CTX;
    float held[2] = {10, 20};
    tc_tensor a = tc_input(ctx, "a", TC_F32, 2);
    tc_tensor y = tc_add(tc_mul(a, 3), tc_copy_in(ctx, held, TC_F32, 2));
    tc_program *f = NULL;
    REQUIRE_OK(tc_compile(y, &f));
    tc_ctx_free(ctx);
    held[0] = held[1] = 0;
    float x[2] = {1, 2};
    float out[2];
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(x, 2)), TC_BUFS(TC_BUF(out, 2))));
    CHECK_FLOATS(out, 13, 26);
    tc_program_free(f);
}

TEST(literals_belong_to_the_program)
{
    RUN_CTX;
    tc_tensor a = tc_input(ctx, "a", TC_F32, 2);
    tc_program *three = NULL;
    tc_program *seven = NULL;
    REQUIRE_OK(tc_compile(tc_mul(a, 3), &three));
    REQUIRE_OK(tc_compile(tc_mul(a, 7), &seven));
    tc_program_info info;
    CHECK_OK(tc_program_get_info(seven, &info));
    CHECK(info.from_memory);
    float x[2] = {1, 2};
    float out[2];
    CHECK_OK(tc_run(three, TC_BUFS(TC_BUF(x, 2)), TC_BUFS(TC_BUF(out, 2))));
    CHECK_FLOATS(out, 3, 6);
    CHECK_OK(tc_run(seven, TC_BUFS(TC_BUF(x, 2)), TC_BUFS(TC_BUF(out, 2))));
    CHECK_FLOATS(out, 7, 14);
    tc_program_free(three);
    tc_program_free(seven);
    tc_ctx_free(ctx);
}

TEST(borrowed_memory_is_read_at_each_run)
{
    RUN_CTX;
    float held[6] = {1, 2, 3, 4, 5, 6};
    int64_t sizes[1] = {3};
    int64_t backwards[1] = {-2};
    tc_tensor b = tc_borrow_strided(ctx, held + 5, TC_F32, 1, sizes, backwards);
    tc_program *f = NULL;
    REQUIRE_OK(tc_compile_fn(TC_TENSORS(), TC_TENSORS(tc_add(b, 1)), NULL, &f));
    float out[3];
    CHECK_OK(tc_run(f, TC_BUFS(), TC_BUFS(TC_BUF(out, 3))));
    CHECK_FLOATS(out, 7, 5, 3);
    held[5] = 60;
    CHECK_OK(tc_run(f, TC_BUFS(), TC_BUFS(TC_BUF(out, 3))));
    CHECK_FLOATS(out, 61, 5, 3);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(zero_sizes_need_no_memory)
{
    RUN_CTX;
    tc_tensor a = tc_input(ctx, "a", TC_F32, 0, 4);
    tc_program *f = NULL;
    REQUIRE_OK(
        tc_compile_fn(TC_TENSORS(a), TC_TENSORS(tc_exp(a), tc_sum(a, TC_AXES(0), 0)), NULL, &f));
    float sums[4] = {9, 9, 9, 9};
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF((float *)NULL, 0)),
                    TC_BUFS(TC_BUF((float *)NULL, 0), TC_BUF(sums, 4))));
    CHECK_FLOATS(sums, 0, 0, 0, 0);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(elementwise_programs_work_in_place)
{
    RUN_CTX;
    tc_tensor a = tc_input(ctx, "a", TC_F32, 4);
    tc_program *f = NULL;
    REQUIRE_OK(tc_compile(tc_add(tc_mul(a, a), 1), &f));
    float x[4] = {1, 2, 3, 4};
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(x, 4)), TC_BUFS(TC_BUF(x, 4))));
    CHECK_FLOATS(x, 2, 5, 10, 17);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(untyped_memory_is_counted_in_bytes)
{
    RUN_CTX;
    tc_tensor a = tc_input(ctx, "a", TC_F32, 2);
    tc_program *f = NULL;
    REQUIRE_OK(tc_compile(tc_add(a, a), &f));
    float x[2] = {1, 2};
    float out[2];
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF((void *)x, 8)), TC_BUFS(TC_BUF((char *)out, sizeof(out)))));
    CHECK_FLOATS(out, 2, 4);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF((void *)x, 2)), TC_BUFS(TC_BUF(out, 2))), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "input 0: given 2 bytes of untyped memory, expected 8: 2 of f32");
    char small[2] = {0};
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, 2)), TC_BUFS(TC_BUF(small, 2))), TC_ERR_BUFFER);
    tc_bufs sized = TC_BUFS(TC_BUF_ND((void *)x, 2));
    CHECK_EQ_INT(tc_run(f, sized, TC_BUFS(TC_BUF(out, 2))), TC_ERR_BUFFER);
    CHECK_EQ_INT(tc_read(tc_full(ctx, 1, TC_F32, 2), small, 2), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(ctx), "given room for 2 bytes of untyped memory, expected 8");
    CHECK_OK(tc_read(tc_full(ctx, 1, TC_F32, 2), (void *)out, 8));
    CHECK_FLOATS(out, 1, 1);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- buffers with strides ---- */

typedef struct run_sample {
    float left, right;
    double time;
} run_sample;

TEST(fields_of_structs_and_turned_matrices)
{
    RUN_CTX;
    tc_tensor x = tc_input(ctx, "x", TC_F32, 2, 2), t = tc_input(ctx, "t", TC_F64, 3);
    tc_tensor y = tc_add(tc_mul(x, 10), tc_arange(ctx, 0, 2, 1, TC_F32));
    tc_program *f = NULL;
    REQUIRE_OK(tc_compile_fn(TC_TENSORS(x, t), TC_TENSORS(y, tc_flip(t, 0)), NULL, &f));
    run_sample s[3] = {{1, 2, 0.5}, {3, 4, 1.5}, {5, 6, 2.5}};
    float m[4] = {1, 2, 3, 4};
    const int64_t square[2] = {2, 2}, turned[2] = {1, 2}, row[2] = {-2, -1};
    const int64_t three[1] = {3}, apart[1] = {2};
    double out[6] = {0};
    tc_buf in[2] = {TC_BUF_STRIDED(m, 2, square, turned),
                    TC_BUF_STRIDED(&s[0].time, 1, three, apart)};
    tc_buf to[2] = {TC_BUF_STRIDED(m + 3, 2, square, row),
                    TC_BUF_STRIDED(out + 1, 1, three, apart)};
    for (int i = 0; i < 2; i++) { /* the second finds what the first made */
        CHECK_OK(tc_run(f, TC_BUFS_N(in, 2), TC_BUFS_N(to, 2)));
    }
    CHECK_FLOATS(m, 101, 200, 311, 410);
    CHECK(out[1] == 2.5 && out[3] == 1.5 && out[5] == 0.5 && out[0] == 0 && out[2] == 0);
    CHECK(s[1].left == 3 && s[2].right == 6);
    tc_call *call = NULL;
    REQUIRE_OK(tc_call_make(f, &call));
    CHECK_OK(tc_run_call(call, TC_BUFS_N(in, 2), TC_BUFS_N(to, 2)));
    tc_call_free(call);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(strides_that_do_not_fit)
{
    RUN_CTX;
    tc_tensor x = tc_input(ctx, "x", TC_F32, 4);
    tc_program *f = NULL;
    REQUIRE_OK(tc_compile(tc_add(x, x), &f));
    float in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8] = {0};
    const int64_t four[1] = {4}, five[1] = {5}, two[1] = {2}, none[1] = {0}, far[1] = {INT64_MAX};
    const float *fixed = in;
    tc_bufs to = TC_BUFS(TC_BUF(out, 4)), from = TC_BUFS(TC_BUF(in, 4));
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF_STRIDED(fixed, 1, four, none)), to)); /* one for all */
    CHECK_FLOATS(out, 2, 2, 2, 2);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF_STRIDED(in, 1, five, none)), to), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "input 0: given 5 elements, expected 4 of f32");
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF_STRIDED(in, 1, far, none)), to), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "input 0: given 9223372036854775807 elements, expected 4 of f32");
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF_STRIDED(in, -2, four, two)), to), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "input 0: given strides and no sizes");
    tc_buf odd = TC_BUF_STRIDED(in, 1, four, two);
    odd.dtype = TC_DTYPE_COUNT;
    CHECK_EQ_INT(tc_run(f, TC_BUFS(odd), to), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "input 0: given strides and untyped memory");
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF_STRIDED(in, 1, four, far)), to), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "input 0: given strides and sizes or strides that do not fit");
    CHECK_HAS(tc_error(f), __FILE__);
    CHECK_EQ_INT(tc_run(f, from, TC_BUFS(TC_BUF_STRIDED(out, 1, four, none))), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "no element twice");
    CHECK_EQ_INT(tc_run(f, from, TC_BUFS(TC_BUF_STRIDED(fixed, 1, four, two))), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "output 0: given strides and a pointer to const");
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF_STRIDED((void *)in, 1, four, two)), to), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "untyped memory");
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF_STRIDED((float *)NULL, 1, four, two)), to),
                 TC_ERR_BUFFER);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(), TC_BUFS(TC_BUF_STRIDED(out, 1, four, two))), TC_ERR_BUFFER);
    tc_queue *queue = NULL;
    tc_event *done = NULL;
    REQUIRE_OK(tc_queue_make(&queue));
    CHECK_EQ_INT(tc_run_async(f, queue, TC_BUFS(TC_BUF_STRIDED(in, 1, four, two)), to, &done),
                 TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "input 0: given strides, expected dense memory of 4 f32");
    tc_queue_free(queue);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* An array of arrays has the type of its elements. */
TEST(arrays_of_arrays_have_a_dtype)
{
    RUN_CTX;
    tc_tensor a = tc_input(ctx, "a", TC_F32, 2, 3);
    tc_program *f = NULL;
    REQUIRE_OK(tc_compile(tc_add(a, a), &f));
    static const float x[2][3] = {{1, 2, 3}, {4, 5, 6}};
    static float out[2][3];
    static int32_t whole[2][3];
    static double wide[1][3];
    CHECK_EQ_INT(TC_BUF(out, 6).dtype, TC_F32);
    CHECK_EQ_INT(TC_BUF(whole, 6).dtype, TC_I32);
    CHECK(TC_BUF(x, 6).is_const && !TC_BUF(out, 6).is_const);
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(x, 6)), TC_BUFS(TC_BUF(out, 6))));
    CHECK(out[1][2] == 12);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(whole, 6)), TC_BUFS(TC_BUF(out, 6))), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "input 0: given i32, expected f32");
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, 6)), TC_BUFS(TC_BUF(wide, 6))), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "output 0: given f64, expected f32");
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(memory_is_aligned_or_refused)
{
    RUN_CTX;
    tc_tensor a = tc_input(ctx, "a", TC_F32, 2), whole;
    tc_program *f = NULL;
    REQUIRE_OK(tc_compile(tc_add(a, a), &f));
    float store[4] = {0}, out[2];
    const float values[2] = {1, 2};
    char *odd = (char *)store + 1;
    memcpy(odd, values, sizeof(values));
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF((void *)odd, 8)), TC_BUFS(TC_BUF(out, 2))),
                 TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "expected an address that is a multiple of 4, as f32 needs");
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(out, 2)), TC_BUFS(TC_BUF((void *)odd, 8))),
                 TC_ERR_BUFFER);
    CHECK_EQ_INT(tc_status_of(tc_borrow(ctx, odd, TC_F32, 2)), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(ctx), "expected an address that is a multiple of 4, as f32 needs");
    whole = tc_copy_in(ctx, odd, TC_F32, 2);
    CHECK_OK(tc_read(whole, out, 2));
    CHECK_FLOATS(out, 1, 2);
    CHECK_EQ_INT(tc_status_of(tc_borrow(ctx, odd, TC_U8, 8)), TC_OK);
    CHECK_OK(tc_read(whole, (void *)(odd + 2), 8));
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- what the log tells ---- */

typedef struct said {
    char cache[1024], recompiles[1024], compile[1024]; /* the last text of each topic */
    int n_fallbacks;
} said;

static void say(void *user, const char *topic, const char *text)
{
    said *s = (said *)user;
    char *to = !strcmp(topic, "cache")        ? s->cache
               : !strcmp(topic, "recompiles") ? s->recompiles
                                              : s->compile;
    snprintf(to, sizeof(s->cache), "%s", text);
    s->n_fallbacks += strstr(text, "interpreting instead of compiling") != NULL;
}

static void log_one(tc_ctx *ctx, tc_dtype dtype, int rows, bool twice)
{
    tc_program *f = NULL;
    tc_tensor x = tc_input(ctx, "x", dtype, rows, 3);
    tc_tensor y = tc_sum(tc_erf(tc_add(x, twice ? x : tc_cos(x))), TC_AXES(0), false);
    REQUIRE_OK(tc_compile(y, &f));
    tc_program_free(f);
}

TEST(the_log_tells_of_caches_and_recompiles)
{
    said s;
    memset(&s, 0, sizeof(s));
    tc_options o = {.backend = "interp", .no_disk_cache = true, .log = say, .log_user = &s};
    tc_ctx *ctx;
    REQUIRE_OK(tc_ctx_make(&ctx, &o));
    log_one(ctx, TC_F32, 41, false);
    CHECK_HAS(s.cache, "not found: compiled anew");
    CHECK_HAS(s.recompiles, "no earlier program resembles it");
    s.recompiles[0] = 0;
    log_one(ctx, TC_F32, 41, false);
    CHECK_HAS(s.cache, "found in memory");
    CHECK_STR(s.recompiles, "");
    log_one(ctx, TC_F32, 43, false);
    CHECK_HAS(s.cache, "not found: compiled anew");
    CHECK_HAS(s.recompiles, "the first other: %0 = input f32 [43, 3] \"x\"; was: %0 = input f32");
    log_one(ctx, TC_F64, 43, false);
    CHECK_HAS(s.recompiles, "input f64 [43, 3] \"x\"; was: %0 = input f32 [43,");
    log_one(ctx, TC_F32, 43, true);
    CHECK_HAS(s.recompiles, "was: %1 = cos f32 [43, 3]");
    tc_ctx_free(ctx);
}

TEST(a_loop_whose_results_are_not_read_is_said_once)
{
    said s;
    memset(&s, 0, sizeof(s));
    tc_options o = {.backend = "interp", .no_disk_cache = true, .log = say, .log_user = &s};
    tc_ctx *ctx;
    REQUIRE_OK(tc_ctx_make(&ctx, &o));
    for (int twice = 0; twice < 2; twice++) {
        tc_scope_begin(ctx);
        tc_tensor x = tc_full(ctx, 1, TC_F32, 3);
        for (int i = 0; i < 100000; i++) {
            x = tc_add(x, (double)i + 0.25);
        }
        CHECK_EQ_INT(tc_status_of(x), TC_OK);
        tc_scope_end(ctx);
        if (!twice) {
            CHECK_HAS(s.compile, "test_run.c:");
            CHECK_HAS(s.compile, "tensors are alive in this context");
            CHECK_HAS(s.compile, "tc_keep");
            s.compile[0] = 0;
        }
    }
    CHECK_STR(s.compile, "");
    tc_ctx_free(ctx);
}

TEST(a_fallback_is_said_once)
{
    said s;
    memset(&s, 0, sizeof(s));
    tc_options o = {.backend = "cpu",
                    .cc = "/no/such/compiler",
                    .no_disk_cache = true,
                    .log = say,
                    .log_user = &s};
    tc_ctx *ctx;
    tc_program *f = NULL, *again = NULL;
    REQUIRE_OK(tc_ctx_make(&ctx, &o));
    tc_tensor y = tc_erf(tc_cos(tc_input(ctx, "x", TC_F32, 47)));
    REQUIRE_OK(tc_compile(y, &f));
    REQUIRE_OK(tc_compile(y, &again));
    CHECK_EQ_INT(s.n_fallbacks, 1);
    FILE *out = tmpfile();
    REQUIRE(out != NULL);
    char text[4096] = "";
    CHECK_OK(tc_explain_as(f, out, &(tc_explain_options){.all = true}));
    rewind(out);
    text[fread(text, 1, sizeof(text) - 1, out)] = 0;
    fclose(out);
    CHECK_HAS(text, "interpreted instead of compiled, because:");
    if (!strstr(text, "processor")) { /* whether it has what code needs is asked first */
        CHECK_HAS(text, "/no/such/compiler");
    }
    tc_program_free(f);
    tc_program_free(again);
    tc_ctx_free(ctx);
}

/* One line keeps n states in a loop; each reads itself and the states that `reads` has bits for. */
enum { KEPT_STATES = 5, KEPT_ROUNDS = 60 };

static void keep_states(int n, const unsigned *reads, bool first)
{
    RUN_CTX;
    tc_tensor s[KEPT_STATES], next[KEPT_STATES];
    double want[KEPT_STATES], wanted[KEPT_STATES];
    int64_t nodes = 0;
    for (int i = 0; i < n; i++) {
        want[i] = i + 1;
        s[i] = tc_add(tc_full(ctx, i, TC_F64, 8), 1);
    }
    for (int round = 0; round < KEPT_ROUNDS; round++) {
        tc_scope_begin(ctx);
        for (int i = 0; i < n; i++) {
            next[i] = s[i];
            wanted[i] = want[i];
            for (int j = 0; j < n; j++) {
                bool has = (reads[i] >> j & 1) != 0;
                next[i] = has ? tc_sub(tc_mul(s[j], 0.5), next[i]) : next[i];
                wanted[i] = has ? want[j] * 0.5 - wanted[i] : wanted[i];
            }
            next[i] = tc_mul(next[i], 0.25);
            wanted[i] *= 0.25;
        }
        if (first) {
            CHECK_OK(tc_eval_many(TC_TENSORS_N(next, n)));
        }
        for (int i = 0; i < n; i++) {
            s[i] = tc_keep(next[i]);
            want[i] = wanted[i];
        }
        tc_scope_end(ctx);
        tc_stats stats;
        REQUIRE_OK(tc_stats(ctx, &stats));
        nodes = round == 9 ? stats.nodes : nodes;
        CHECK_MSG(round < 9 || stats.nodes == nodes, "%d states, round %d: %d nodes, %d before", n,
                  round, (int)stats.nodes, (int)nodes);
    }
    for (int i = 0; i < n; i++) {
        double out[8] = {0};
        CHECK_OK(tc_read(s[i], out, 8));
        CHECK_MSG(out[7] == want[i], "state %d is %g, expected %g", i, out[7], want[i]);
    }
    tc_ctx_free(ctx);
}

TEST(kept_states_that_read_each_other_stay_flat)
{
    static const unsigned couplings[][KEPT_STATES] = {
        {0, 0, 0, 0, 0},      /* each alone */
        {2, 4, 8, 16, 1},     /* the next one */
        {16, 1, 2, 4, 8},     /* the one before */
        {31, 31, 31, 31, 31}, /* all */
        {4, 0, 1, 1, 1},      /* some, the first above all */
        {16, 16, 16, 16, 0},  /* the last */
    };
    for (size_t c = 0; c < sizeof(couplings) / sizeof(*couplings); c++) {
        for (int n = 1; n <= KEPT_STATES; n++) {
            keep_states(n, couplings[c], (c + (size_t)n) % 2 == 0);
        }
    }
}

TEST(many_programs_at_once)
{
    RUN_CTX;
    tc_tensor a = tc_input(ctx, "a", TC_F32, 2);
    tc_tensor stranger = tc_input(ctx, "b", TC_F32, 2);
    tc_tensor outs[3] = {tc_add(a, a), tc_add(a, stranger), tc_mul(a, a)};
    tc_program *f[3];
    tc_job jobs[3];
    memset(f, 0xff, sizeof(f));
    for (int i = 0; i < 3; i++) {
        jobs[i] = (tc_job){{&a, 1}, {&outs[i], 1}, &f[i], TC_OK};
    }
    CHECK_EQ_INT(tc_compile_many(jobs, 3, NULL), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(jobs[0].status, TC_OK);
    CHECK_EQ_INT(jobs[1].status, TC_ERR_ARGUMENT);
    CHECK_EQ_INT(jobs[2].status, TC_OK);
    CHECK(f[0] && !f[1] && f[2]);
    CHECK_HAS(tc_ctx_error(ctx), "'b'");
    CHECK_HAS(tc_error(outs[1]), "'b'");
    float x[2] = {3, 4};
    float out[2];
    CHECK_OK(tc_run(f[2], TC_BUFS(TC_BUF(x, 2)), TC_BUFS(TC_BUF(out, 2))));
    CHECK_FLOATS(out, 9, 16);
    CHECK_OK(tc_compile_many(NULL, 0, NULL));
    tc_program_free(f[0]);
    tc_program_free(f[2]);
    tc_ctx_free(ctx);
}

TEST(calls_outlive_the_users_hold_of_the_program)
{
    RUN_CTX;
    tc_tensor a = tc_input(ctx, "a", TC_F32, 2);
    tc_program *f = NULL;
    tc_call *c = NULL;
    REQUIRE_OK(tc_compile(tc_exp(a), &f));
    REQUIRE_OK(tc_call_make(f, &c));
    tc_ctx_free(ctx);
    tc_program_free(f);
    float x[2] = {0, 0};
    float out[2];
    CHECK_OK(tc_run_call(c, TC_BUFS(TC_BUF(x, 2)), TC_BUFS(TC_BUF(out, 2))));
    CHECK_FLOATS(out, 1, 1);
    CHECK_STR(tc_error(c), "");
    tc_call_free(c);
    tc_call_free(NULL);
    tc_program_free(NULL);
}

TEST(threads_give_the_same_bits)
{
    enum { N = 100000 };
    static float x[N], one[N], four[N];
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i % 1000) * 0.01f;
    }
    float sums[2];
    for (int pass = 0; pass < 2; pass++) {
        tc_ctx *ctx = run_ctx(pass ? 4 : 1);
        REQUIRE(ctx);
        tc_tensor a = tc_input(ctx, "a", TC_F32, N);
        tc_tensor y = tc_exp(tc_sin(a));
        tc_program *f = NULL;
        REQUIRE_OK(tc_compile_fn(TC_TENSORS(a), TC_TENSORS(y, tc_sum(y, TC_ALL, 0)), NULL, &f));
        CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(x, N)),
                        TC_BUFS(TC_BUF(pass ? four : one, N), TC_BUF(&sums[pass], 1))));
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
    CHECK(same_bits(TC_F32, one, four, N));
    CHECK(same_bits(TC_F32, &sums[0], &sums[1], 1));
}

/* More than 16 buffers: overlaps are then found by sorting. */
TEST(many_buffers)
{
    enum { N = 40 };
    RUN_CTX;
    tc_tensor in[N], out[N];
    for (int i = 0; i < N; i++) {
        in[i] = tc_input(ctx, "x", TC_F32, 4);
        out[i] = tc_add(in[i], i);
    }
    tc_program *f = NULL;
    REQUIRE_OK(tc_compile_fn((tc_tensors){in, N}, (tc_tensors){out, N}, NULL, &f));
    static float x[N][4], y[N][4];
    tc_buf from[N], to[N];
    for (int i = 0; i < N; i++) {
        x[i][0] = x[i][3] = (float)i;
        from[i] = TC_BUF(x[i], 4);
        to[i] = TC_BUF(y[N - 1 - i], 4);
    }
    tc_bufs ins = {from, N};
    tc_bufs outs = {to, N};
    CHECK_OK(tc_run(f, ins, outs));
    CHECK_EQ_INT(y[0][3], 2 * (N - 1));
    from[7] = from[9]; /* inputs may share */
    CHECK_OK(tc_run(f, ins, outs));
    to[20] = to[21];
    CHECK_EQ_INT(tc_run(f, ins, outs), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "output 20");
    CHECK_HAS(tc_error(f), "output 21");
    to[20] = TC_BUF(&x[30][1], 4);
    CHECK_EQ_INT(tc_run(f, ins, outs), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "output 20");
    for (int i = 0; i < N; i++) {
        from[i] = to[i] = TC_BUF(x[i], 4); /* each in place */
    }
    CHECK_OK(tc_run(f, ins, outs));
    to[3] = TC_BUF(x[4], 4);
    CHECK_EQ_INT(tc_run(f, ins, outs), TC_ERR_BUFFER);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(the_float_environment_of_the_caller_survives)
{
#if defined(__x86_64__)
    RUN_CTX;
    tc_tensor a = tc_input(ctx, "a", TC_F32, 1);
    tc_program *f = NULL;
    REQUIRE_OK(tc_compile(tc_mul(a, 0.5), &f));
    float x = 1e-40f;
    float out = 0;
    uint32_t host = 0x9fc0, usual = 0x1f80, after;
    __asm__ __volatile__("ldmxcsr %0" : : "m"(host));
    tc_status status = tc_run(f, TC_BUFS(TC_BUF(&x, 1)), TC_BUFS(TC_BUF(&out, 1)));
    __asm__ __volatile__("stmxcsr %0" : "=m"(after));
    __asm__ __volatile__("ldmxcsr %0" : : "m"(usual));
    CHECK_EQ_INT(status, TC_OK);
    CHECK_EQ_INT(after & ~0x3fu, host);
    uint32_t bits;
    memcpy(&bits, &out, sizeof(bits));
    CHECK_EQ_INT(bits, 0x8b61); /* half of the subnormal 0x116c2 */
    tc_program_free(f);
    tc_ctx_free(ctx);
#else
    SKIP("x86-64 only");
#endif
}

/* ---- look inside ---- */

TEST(info_and_explain)
{
    RUN_CTX;
    tc_tensor a = tc_input(ctx, "a", TC_F32, 1000);
    tc_program *f = NULL;
    REQUIRE_OK(tc_compile(tc_cos(tc_add(a, 4)), &f));
    tc_program_info info;
    CHECK_OK(tc_program_get_info(f, &info));
    CHECK_EQ_INT(info.n_inputs, 1);
    CHECK_EQ_INT(info.n_outputs, 1);
    CHECK_EQ_INT(info.n_kernels, 1);
    CHECK_EQ_INT(info.bytes_written, 4000);
    CHECK_EQ_INT(info.bytes_read, 4000);
    CHECK_STR(info.backend, "interp");
    CHECK(tc_source(f) != NULL);
    FILE *out = tmpfile();
    REQUIRE(out);
    CHECK_OK(tc_explain_as(f, out, &(tc_explain_options){.all = true}));
    CHECK(ftell(out) > 40);
    fclose(out);
    tc_times times;
    CHECK_OK(tc_compile_times(f, &times));
    CHECK(times.total > 0);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- the lazy form ---- */

TEST(eval_holds_the_value)
{
    RUN_CTX;
    float held[3] = {1, 2, 3};
    tc_tensor b = tc_borrow(ctx, held, TC_F32, 3);
    tc_tensor y = tc_mul(b, 2);
    CHECK_OK(tc_eval(y));
    held[0] = 50; /* without tc_touch nothing is computed again */
    float out[3];
    CHECK_OK(tc_read(y, out, 3));
    CHECK_FLOATS(out, 2, 4, 6);
    tc_tensor z = tc_add(y, 1); /* an evaluated node is a leaf */
    CHECK_OK(tc_read(z, out, 3));
    CHECK_FLOATS(out, 3, 5, 7);
    CHECK_OK(tc_touch(b));
    CHECK_OK(tc_read(z, out, 3));
    CHECK_FLOATS(out, 101, 5, 7);
    CHECK_OK(tc_read(y, out, 3));
    CHECK_FLOATS(out, 100, 4, 6);
    tc_ctx_free(ctx);
}

TEST(eval_many_shares_a_program)
{
    RUN_CTX;
    float held[2] = {1, 2};
    tc_tensor b = tc_copy_in(ctx, held, TC_F32, 2);
    tc_tensor y = tc_add(b, 5);
    tc_tensor z = tc_mul(y, y);
    CHECK_OK(tc_eval_many(TC_TENSORS(y, z, y, b)));
    float out[2];
    CHECK_OK(tc_read(z, out, 2));
    CHECK_FLOATS(out, 36, 49);
    CHECK_OK(tc_eval_many(TC_TENSORS()));
    tc_ctx_free(ctx);
}

TEST(read_copies_any_layout)
{
    RUN_CTX;
    float held[6] = {1, 2, 3, 4, 5, 6};
    int64_t sizes[2] = {3, 2};
    int64_t strides[2] = {1, 3};
    float out[6];
    CHECK_OK(tc_read(tc_borrow_strided(ctx, held, TC_F32, 2, sizes, strides), out, 6));
    CHECK_FLOATS(out, 1, 4, 2, 5, 3, 6);
    int64_t still[2] = {0, -1};
    CHECK_OK(tc_read(tc_borrow_strided(ctx, held + 1, TC_F32, 2, sizes, still), out, 6));
    CHECK_FLOATS(out, 2, 1, 2, 1, 2, 1);
    CHECK_OK(tc_read(tc_full(ctx, 2.5, TC_F32, 2), out, 2));
    CHECK_FLOATS(out, 2.5f, 2.5f);
    float scalar;
    CHECK_OK(tc_read(tc_sum(tc_copy_in(ctx, held, TC_F32, 6), TC_ALL, 0), &scalar, 1));
    CHECK(scalar == 21);
    tc_ctx_free(ctx);
}

/* A kernel has so many stages and no more: their schedule looks at every value for each. */
TEST(long_rows_of_reductions_are_cut_into_kernels)
{
    RUN_CTX;
    enum { ROUNDS = 300 };
    float in[2][8], out[2][8];
    tc_tensor x = tc_input(ctx, "x", TC_F32, 2, 8);
    tc_tensor y = x;
    for (int i = 0; i < ROUNDS; i++) {
        y = tc_add(tc_sub(y, tc_mean(y, TC_AXES(-1), 1)), x);
    }
    for (int i = 0; i < 16; i++) {
        in[i / 8][i % 8] = (float)(i % 8);
    }
    tc_program *f;
    tc_program_info info;
    REQUIRE_OK(tc_compile(y, &f));
    CHECK_OK(tc_program_get_info(f, &info));
    CHECK(info.n_kernels > 4 && info.n_kernels < ROUNDS);
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(&in[0][0], 16)), TC_BUFS(TC_BUF(&out[0][0], 16))));
    for (int i = 0; i < 16; i++) { /* each round adds x less its mean */
        float value = (float)(i % 8);
        CHECK_CLOSE(out[i / 8][i % 8], value + ROUNDS * (value - 3.5f), 1e-3);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(a_loop_in_scopes_stays_flat)
{
    RUN_CTX;
    float start[4] = {0, 0, 0, 0};
    tc_tensor x = tc_copy_in(ctx, start, TC_F32, 4);
    int64_t early_bytes = 0;
    tc_stats stats;
    for (int i = 0; i < 2000; i++) {
        REQUIRE_OK(tc_scope_begin(ctx));
        x = tc_keep(tc_add(x, 1));
        REQUIRE_OK(tc_scope_end(ctx));
        if (i == 100) {
            CHECK_OK(tc_stats(ctx, &stats));
            early_bytes = stats.graph_bytes;
        }
    }
    CHECK_OK(tc_stats(ctx, &stats));
    CHECK_EQ_INT(stats.graph_bytes, early_bytes);
    float out[4];
    CHECK_OK(tc_read(x, out, 4));
    CHECK_FLOATS(out, 2000, 2000, 2000, 2000);
    tc_ctx_free(ctx);
}

/* A plan that is made again, because what a RESHAPE reads gets memory, finds its numbers again. */
TEST(numbers_of_a_plan_that_is_made_twice)
{
    tc_options o = {.backend = "interp", .no_disk_cache = true};
    tc_ctx *ctx;
    tc_program *f;
    tc_program_info info;
    float in[12], other[12], out[12];
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4), b = tc_input(ctx, "b", TC_F32, 2, 6);
    tc_tensor a = tc_add(tc_mul(tc_exp(tc_mul(x, 0.25)), 3.5), 10);
    tc_tensor y = tc_reshape(tc_transpose(a, 0, 1), 6, 2);
    y = tc_add(tc_mul(tc_reshape(tc_transpose(tc_mul(y, 7), 0, 1), 4, 3), 5), 20);
    y = tc_add(tc_reshape(tc_transpose(y, 0, 1), 6, 2), tc_transpose(b, 0, 1));
    REQUIRE(tc_compile(y, &f) == TC_OK);
    for (int i = 0; i < 12; i++) {
        in[i] = (float)i;
        other[i] = (float)(100 * i);
    }
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 12), TC_BUF(other, 12)), TC_BUFS(TC_BUF(out, 12))),
                 TC_OK);
    tc_program_get_info(f, &info);
    CHECK_MSG(info.n_kernels > 1, "no value was stored: this tests nothing");
    for (int i = 0; i < 12; i++) {
        int j = i % 4 * 3 + i / 4; /* of [4, 3], turned */
        int k = j % 6 * 2 + j / 6; /* of [6, 2], turned */
        int l = k % 3 * 4 + k / 3; /* of x, turned */
        double v = (exp(l * 0.25) * 3.5 + 10) * 7 * 5 + 20 + 100 * (i % 2 * 6 + i / 2);
        CHECK_CLOSE(out[i], v, 1e-6);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(what_a_program_takes_and_gives)
{
    RUN_CTX;
    tc_tensor a = tc_input(ctx, "a", TC_F32, 3, 4), n = tc_input(ctx, "n", TC_I64);
    tc_tensor w = tc_param(ctx, NULL, TC_F32, 3, 4), y = tc_mul(a, n);
    tc_program *f = NULL;
    tc_port port = {0};
    REQUIRE_OK(tc_compile_fn(TC_TENSORS(n, a), TC_TENSORS(tc_assign(w, y), tc_cast(y, TC_F64), a),
                             NULL, &f));
    tc_ctx_free(ctx);
    CHECK_OK(tc_program_get_input(f, 1, &port));
    CHECK(!strcmp(port.name, "a") && port.dtype == TC_F32 && port.rank == 2);
    CHECK(port.sizes[0] == 3 && port.sizes[1] == 4);
    CHECK_OK(tc_program_get_input(f, 0, &port));
    CHECK(!strcmp(port.name, "n") && port.dtype == TC_I64 && port.rank == 0);
    CHECK_OK(tc_program_get_output(f, 0, &port));
    CHECK(!strcmp(port.name, "") && port.dtype == TC_F64 && port.rank == 2 && port.sizes[1] == 4);
    CHECK_OK(tc_program_get_output(f, 1, &port));
    CHECK(!strcmp(port.name, "a") && port.dtype == TC_F32);
    CHECK_EQ_INT(tc_program_get_input(f, 2, &port), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_program_get_output(f, 2, &port), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_program_get_output(f, -1, &port), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_program_get_input(f, 0, NULL), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_program_get_input(NULL, 0, &port), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_program_find_input(f, "a"), 1);
    CHECK_EQ_INT(tc_program_find_input(f, "n"), 0);
    CHECK_EQ_INT(tc_program_find_input(f, ""), -1);
    CHECK_EQ_INT(tc_program_find_input(f, NULL), -1);
    CHECK_EQ_INT(tc_program_find_input(NULL, "a"), -1);
    tc_program_free(f);
}

/* ---- errors by thread ---- */

typedef struct run_thread {
    tc_program *f;
    int n; /* elements that it gives: 4 are right */
    char before[300], after[300];
} run_thread;

static void *run_in_thread(void *arg)
{
    run_thread *t = arg;
    float in[16] = {0}, out[4];
    snprintf(t->before, sizeof(t->before), "%s", tc_error(t->f));
    tc_run(t->f, TC_BUFS(TC_BUF(in, t->n)), TC_BUFS(TC_BUF(out, 4)));
    snprintf(t->after, sizeof(t->after), "%s", tc_error(t->f));
    return NULL;
}

/* A thread that is new sees no other thread's error, whatever number the system gives it, and the
 * texts of threads that are gone do not add up. */
TEST(errors_of_dead_threads_are_not_seen)
{
    tc_ctx *ctx = run_ctx(1);
    REQUIRE(ctx);
    tc_program *f;
    REQUIRE(tc_compile(tc_neg(tc_input(ctx, "x", TC_F32, 4)), &f) == TC_OK);
    run_thread mine = {.f = f, .n = 7};
    run_in_thread(&mine);
    CHECK_HAS(mine.after, "given 7 elements");
    for (int i = 0; i < 200; i++) {
        pthread_t thread;
        run_thread t = {.f = f, .n = i % 3 ? 1 + i % 3 : 4};
        REQUIRE(pthread_create(&thread, NULL, run_in_thread, &t) == 0);
        pthread_join(thread, NULL);
        CHECK_STR(t.before, "");
        char expected[64];
        snprintf(expected, sizeof(expected), "given %d elements", t.n);
        CHECK(t.n == 4 ? !t.after[0] : strstr(t.after, expected) != NULL);
    }
    CHECK_HAS(tc_error(f), "given 7 elements"); /* this one lives */
#if defined(__linux__)
    CHECK_MSG(f->errors.n <= 32, "%d texts are kept", f->errors.n);
#endif
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- outputs with strides ---- */

/* By marking: do two elements of b, or (other not NULL) one of each, have a byte in common? */
static bool meets_by_marks(const tc_buf *b, const tc_buf *other)
{
    static unsigned char marks[4096];
    const tc_buf *both[2] = {b, other};
    bool meets = false;
    memset(marks, 0, sizeof(marks));
    for (int k = 0; k < 2 && both[k]; k++) {
        const tc_buf *a = both[k];
        int bytes = tc_dtype_size((tc_dtype)a->dtype);
        for (int64_t e = 0; e < a->n; e++) {
            int64_t at = e, rest = e;
            if (a->strides) {
                at = 0;
                for (int d = a->rank - 1; d >= 0; d--) {
                    at += rest % a->sizes[d] * a->strides[d];
                    rest /= a->sizes[d];
                }
            }
            size_t byte = (size_t)((const char *)a->data - (const char *)b->data) +
                          (size_t)(at * bytes) + 2048;
            for (int i = 0; i < bytes; i++) {
                unsigned char *mark = &marks[byte + (size_t)i];
                meets = meets || (*mark && (!other || *mark != k + 1));
                *mark = (unsigned char)(k + 1);
            }
        }
    }
    return meets;
}

/* Every layout of up to three axes of sizes 1 to 4 and strides -7 to 7. */
TEST(elements_that_meet_are_found_exactly)
{
    static float memory[1];
    long n = 0, met = 0;
    for (int shape = 0; shape < 64; shape++) {
        const int64_t sizes[3] = {1 + shape % 4, 1 + shape / 4 % 4, 1 + shape / 16};
        for (int k = 0; k < 15 * 15 * 15; k++) {
            const int64_t strides[3] = {k % 15 - 7, k / 15 % 15 - 7, k / 225 - 7};
            tc_buf b = TC_BUF_STRIDED(memory, 3, sizes, strides);
            bool expected = meets_by_marks(&b, NULL), got = tci_overlap_itself(&b);
            CHECK_MSG(got == expected, "sizes %d %d %d, strides %d %d %d: %d", (int)sizes[0],
                      (int)sizes[1], (int)sizes[2], (int)strides[0], (int)strides[1],
                      (int)strides[2], got);
            n++;
            met += got;
        }
    }
    CHECK(met > n / 4 && met < n * 3 / 4);
}

/* Pairs at random: f32 and f64, dense or with strides, at any distance in bytes. */
TEST(two_outputs_that_meet_are_found_exactly)
{
    static char memory[512];
    long met = 0;
    enum { TRIES = 100000 };
    for (int k = 0; k < TRIES; k++) {
        int64_t sizes[2][3], strides[2][3];
        tc_buf b[2];
        for (int i = 0; i < 2; i++) {
            for (int d = 0; d < 3; d++) {
                sizes[i][d] = 1 + (int64_t)(tct_random() % 4);
                strides[i][d] = (int64_t)(tct_random() % 15) - 7;
            }
            b[i] = tci_buf_sized((tc_buf){.data = memory, .dtype = i ? TC_F64 : TC_F32}, 3,
                                 sizes[i]);
            b[i].strides = tct_random() % 4 ? strides[i] : NULL;
        }
        b[0].data = memory + 200;
        b[1].data = memory + tct_random() % 400;
        bool expected = meets_by_marks(&b[0], &b[1]), got = tci_overlap_each_other(&b[0], &b[1]);
        CHECK_MSG(got == expected, "try %d: %d", k, got);
        met += got;
    }
    CHECK(met > TRIES / 8 && met < TRIES * 7 / 8);
}

/* Large layouts: what is legal however it interleaves, and what the simple bound decides. */
TEST(large_layouts_of_outputs)
{
    static const struct {
        int rank;
        int64_t sizes[4], strides[4];
        bool meets;
    } rows[] = {{2, {1 << 20, 1 << 20}, {1 << 20, 1}, false},
                {2, {1 << 20, 1 << 20}, {1, 1 << 20}, false},
                {2, {1 << 20, 1 << 20}, {-(1 << 20), -1}, false},
                {2, {1 << 20, 1 << 20}, {(1 << 20) - 1, 1}, true},
                {2, {1000003, 1000033}, {1000033, 1000003}, false}, /* coprime: they interleave */
                {2, {1000004, 1000034}, {1000033, 1000003}, true},  /* the first that meet */
                {2, {2, 1 << 30}, {3, 2}, false},                   /* odd and even places */
                {2, {2, 1 << 30}, {4, 2}, true},
                {3, {1000, 1000, 1000}, {1000000, 1000, 1}, false},
                {3, {1000, 1000, 1001}, {1000000, 1000, 1}, true},
                {4, {3, 1, 1 << 20, 5}, {1 << 26, 7, 8, 1}, false},
                {3, {1 << 20, 1 << 20, 2}, {2, 1 << 21, 1}, false}};
    static float memory[1];
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        tc_buf b = TC_BUF_STRIDED(memory, rows[i].rank, rows[i].sizes, rows[i].strides);
        CHECK_MSG(tci_overlap_itself(&b) == rows[i].meets, "row %d", (int)i);
    }
    /* no search is long: the answer of such a layout may be unknown, but is there at once */
    const int64_t sizes[5] = {999, 1001, 1003, 1007, 1009};
    const int64_t strides[5] = {30030001, 30030011, 30030019, 30030053, 30030061};
    tc_buf hard = TC_BUF_STRIDED(memory, 5, sizes, strides);
    int64_t before = tci_os_now_ns();
    (void)tci_overlap_itself(&hard);
    CHECK(tci_os_now_ns() - before < (int64_t)2 * 1000000000);
}

TEST(a_run_refuses_outputs_that_meet)
{
    tc_ctx *ctx = run_ctx(1);
    REQUIRE(ctx);
    tc_program *f;
    tc_tensor x = tc_input(ctx, "x", TC_F32, 2, 3);
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(tc_neg(x), tc_mul(x, 2)), NULL, &f) == TC_OK);
    float in[6] = {1, 2, 3, 4, 5, 6}, out[16] = {0};
    const int64_t sizes[2] = {2, 3}, good[2] = {3, 2}, bad[2] = {2, 1}, even[2] = {6, 2};
    tc_buf a = TC_BUF_STRIDED(out, 2, sizes, even), b = TC_BUF_STRIDED(out + 1, 2, sizes, even);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 6)), TC_BUFS(a, b)), TC_OK);
    CHECK(out[0] == -1 && out[1] == 2 && out[10] == -6 && out[11] == 12);
    a = TC_BUF_STRIDED(out, 2, sizes, good);
    b = TC_BUF_STRIDED(out + 8, 2, sizes, good);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 6)), TC_BUFS(a, b)), TC_OK);
    CHECK(out[3] == -4 && out[2] == -2 && out[15] == 12);
    b = TC_BUF_STRIDED(out + 8, 2, sizes, bad);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 6)), TC_BUFS(a, b)), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "output 1: given strides and two elements in one place");
    b = TC_BUF_STRIDED(out + 2, 2, sizes, good);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 6)), TC_BUFS(a, b)), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "output 1: given strides over elements of output 0");
    b = TC_BUF(out + 7, 6);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 6)), TC_BUFS(a, b)), TC_ERR_BUFFER);
    b = TC_BUF(out + 8, 6);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 6)), TC_BUFS(a, b)), TC_OK);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST_MAIN
