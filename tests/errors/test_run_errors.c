/* tests/errors/test_run_errors.c - misuse of compile, run and the lazy form: the status, and a text
 * that says what was given and what was expected. Afterwards everything made before still works. */
#include "tc.h"
#include "tc_test.h"

typedef struct errors_world {
    tc_ctx *ctx;
    tc_tensor a, b, y;
    /* y = a + b of 8 f32; not in place where it would be wrong: it reads a twice */
    tc_program *f;
    float x[32];
} errors_world;

static bool errors_begin(errors_world *w)
{
    memset(w, 0, sizeof(*w));
    tc_options o = {.backend = "interp", .no_disk_cache = true, .threads = 1};
    if (tc_ctx_make(&w->ctx, &o)) {
        return false;
    }
    w->a = tc_input(w->ctx, "a", TC_F32, 8);
    w->b = tc_input(w->ctx, "b", TC_F32, 8);
    w->y = tc_add(tc_flip(w->a, 0), w->b);
    return tc_compile(w->y, &w->f) == TC_OK;
}

/* The program still runs. */
static void errors_end(errors_world *w)
{
    float out[8];
    w->x[0] = 1;
    CHECK_EQ_INT(tc_run(w->f, TC_BUFS(TC_BUF(w->x, 8), TC_BUF(w->x + 8, 8)),
                        TC_BUFS(TC_BUF(out, 8))),
                 TC_OK);
    CHECK(out[7] == 1 + w->x[15]);
    tc_program_free(w->f);
    tc_ctx_free(w->ctx);
}

/* ---- buffers ---- */

TEST(wrong_number_of_buffers)
{
    errors_world w;
    REQUIRE(errors_begin(&w));
    CHECK_EQ_INT(tc_run(w.f, TC_BUFS(TC_BUF(w.x, 8)), TC_BUFS(TC_BUF(w.x + 16, 8))), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(w.f), "given 1 inputs and 1 outputs, expected 2 and 1; missing input 1 'b'");
    char place[600];
    snprintf(place, sizeof(place), "%s:%d: tc_run: given", __FILE__, __LINE__ - 3);
    CHECK(!strncmp(tc_error(w.f), place, strlen(place)));
    CHECK_EQ_INT(tc_run(w.f, TC_BUFS(), TC_BUFS()), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(w.f), "given 0 inputs and 0 outputs, expected 2 and 1; missing input 0 'a', "
                             "input 1 'b'; missing output 0 (f32 [8])");
    tc_bufs missing = {NULL, 2};
    CHECK_EQ_INT(tc_run(w.f, missing, TC_BUFS(TC_BUF(w.x + 16, 8))), TC_ERR_BUFFER);
    errors_end(&w);
}

/* Names of inputs that are outputs too; the others by dtype and shape. The side that fits is not
 * told. */
TEST(missing_and_surplus_buffers_are_told_by_name)
{
    float x[8] = {0}, y[8], z[1];
    errors_world w;
    tc_program *f;
    REQUIRE(errors_begin(&w));
    tc_tensor sum = tc_sum(w.y, TC_ALL, false);
    REQUIRE(tc_compile_fn(TC_TENSORS(w.a, w.b), TC_TENSORS(w.y, w.b, sum), NULL, &f) == TC_OK);
    tc_bufs in = TC_BUFS(TC_BUF(x, 8), TC_BUF(x, 8)), one = TC_BUFS(TC_BUF(y, 8));
    CHECK_EQ_INT(tc_run(f, in, one), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "given 2 inputs and 1 outputs, expected 2 and 3; missing output 1 'b', "
                           "output 2 (f32 [])");
    CHECK(!strstr(tc_error(f), "'a'"));
    tc_bufs four = TC_BUFS(TC_BUF(y, 8), TC_BUF(y, 8), TC_BUF(z, 1), TC_BUF(z, 1));
    CHECK_EQ_INT(tc_run(f, in, four), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "expected 2 and 3; it has output 0 (f32 [8]), output 1 'b', output 2");
    tc_bufs more = TC_BUFS(TC_BUF(x, 8), TC_BUF(x, 8), TC_BUF(x, 8));
    CHECK_EQ_INT(tc_run(f, more, one), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "given 3 inputs and 1 outputs, expected 2 and 3; it has input 0 'a', "
                           "input 1 'b'; missing output 1 'b'");
    tc_program_free(f);
    errors_end(&w);
}

TEST(wrong_dtype_count_or_null)
{
    errors_world w;
    REQUIRE(errors_begin(&w));
    double wide[8];
    tc_bufs out = TC_BUFS(TC_BUF(w.x + 16, 8));
    CHECK_EQ_INT(tc_run(w.f, TC_BUFS(TC_BUF(wide, 8), TC_BUF(w.x, 8)), out), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(w.f), "input 0: given f64, expected f32");
    CHECK_EQ_INT(tc_run(w.f, TC_BUFS(TC_BUF(w.x, 8), TC_BUF(w.x, 7)), out), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(w.f), "input 1: given 7 elements, expected 8 of f32");
    CHECK_EQ_INT(tc_run(w.f, TC_BUFS(TC_BUF(w.x, 8), TC_BUF(w.x, -8)), out), TC_ERR_BUFFER);
    CHECK_EQ_INT(tc_run(w.f, TC_BUFS(TC_BUF((float *)NULL, 8), TC_BUF(w.x, 8)), out),
                 TC_ERR_BUFFER);
    CHECK_HAS(tc_error(w.f), "input 0: given NULL");
    CHECK_EQ_INT(tc_run(w.f, TC_BUFS(TC_BUF(w.x, 8), TC_BUF(w.x, 8)), TC_BUFS(TC_BUF(w.x + 16, 9))),
                 TC_ERR_BUFFER);
    CHECK_HAS(tc_error(w.f), "output 0: given 9 elements, expected 8");
    tc_buf odd = TC_BUF(w.x, 8);
    odd.dtype = 99;
    CHECK_EQ_INT(tc_run(w.f, TC_BUFS(odd, TC_BUF(w.x, 8)), out), TC_ERR_BUFFER);
    errors_end(&w);
}

TEST(output_to_const_memory)
{
    errors_world w;
    REQUIRE(errors_begin(&w));
    const float *readable = w.x + 16;
    CHECK_EQ_INT(tc_run(w.f, TC_BUFS(TC_BUF(w.x, 8), TC_BUF(readable, 8)),
                        TC_BUFS(TC_BUF(readable, 8))),
                 TC_ERR_BUFFER);
    CHECK_HAS(tc_error(w.f), "output 0: given a pointer to const");
    errors_end(&w);
}

TEST(overlaps)
{
    errors_world w;
    REQUIRE(errors_begin(&w));
    tc_bufs in = TC_BUFS(TC_BUF(w.x, 8), TC_BUF(w.x + 8, 8));
    CHECK_EQ_INT(tc_run(w.f, in, TC_BUFS(TC_BUF(w.x + 4, 8))), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(w.f), "output 0: given memory");
    CHECK_HAS(tc_error(w.f), "input 0");
    /* flipped: not in place */
    CHECK_EQ_INT(tc_run(w.f, in, TC_BUFS(TC_BUF(w.x, 8))), TC_ERR_BUFFER);
    CHECK_EQ_INT(tc_run(w.f, in, TC_BUFS(TC_BUF(w.x + 15, 8))), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(w.f), "input 1");
    CHECK_EQ_INT(tc_run(w.f, in, TC_BUFS(TC_BUF(w.x + 16, 8))), TC_OK); /* neighbours do not meet */
    tc_bufs same = TC_BUFS(TC_BUF(w.x, 8), TC_BUF(w.x, 8));
    CHECK_EQ_INT(tc_run(w.f, same, TC_BUFS(TC_BUF(w.x + 16, 8))), TC_OK);
    errors_end(&w);
}

TEST(outputs_that_overlap_and_captured_memory)
{
    errors_world w;
    REQUIRE(errors_begin(&w));
    static float held[8];
    tc_tensor d = tc_borrow(w.ctx, held, TC_F32, 8);
    tc_program *f = NULL;
    REQUIRE(!tc_compile_fn(TC_TENSORS(w.a), TC_TENSORS(tc_add(w.a, tc_flip(d, 0)), tc_neg(w.a)),
                           NULL, &f));
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(w.x, 8)),
                        TC_BUFS(TC_BUF(w.x + 16, 8), TC_BUF(w.x + 20, 8))),
                 TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "output 0");
    CHECK_HAS(tc_error(f), "output 1");
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(w.x, 8)), TC_BUFS(TC_BUF(held, 8), TC_BUF(w.x + 20, 8))),
                 TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "captured");
    tc_program_free(f);
    errors_end(&w);
}

TEST(errors_of_calls_are_their_own)
{
    errors_world w;
    REQUIRE(errors_begin(&w));
    tc_call *one = NULL;
    tc_call *two = NULL;
    REQUIRE(!tc_call_make(w.f, &one) && !tc_call_make(w.f, &two));
    CHECK_EQ_INT(tc_run_call(one, TC_BUFS(), TC_BUFS()), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(one), "tc_run_call: given 0 inputs");
    CHECK_HAS(tc_error(one), "test_run_errors.c:");
    CHECK_STR(tc_error(two), "");
    CHECK_STR(tc_error(w.f), "");
    tc_call_free(one);
    tc_call_free(two);
    errors_end(&w);
}

TEST(null_programs_and_calls)
{
    tc_program *f = NULL;
    tc_call *c = NULL;
    tc_program_info info;
    tc_times times;
    CHECK_EQ_INT(tc_run(f, TC_BUFS(), TC_BUFS()), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_call_make(f, &c), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_run_call(c, TC_BUFS(), TC_BUFS()), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_explain(f, stdout), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_program_get_info(f, &info), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_compile_times(f, &times), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_compile_many(NULL, 1, NULL), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_compile_many(NULL, -1, NULL), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_compile_many(NULL, 0, NULL), TC_OK);
    CHECK_EQ_INT(tc_eval_many((tc_tensors){NULL, 1}), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_register_backend(NULL), TC_ERR_ARGUMENT);
    CHECK(tc_list_backends(NULL, 0) >= 1);
    CHECK_STR(tc_source(f), "");
    CHECK_STR(tc_error(f), "the program is NULL: its compile failed?");
    CHECK_STR(tc_error(c), "the call is NULL: tc_call_make failed?");
    tc_program_free(f);
    tc_call_free(c);
}

/* ---- indices ---- */

TEST(indices_outside_their_axis)
{
    errors_world w;
    REQUIRE(errors_begin(&w));
    tc_tensor index = tc_input(w.ctx, "index", TC_I64, 3);
    tc_program *f = NULL;
    REQUIRE(!tc_compile_fn(TC_TENSORS(w.a, index), TC_TENSORS(tc_index_select(w.a, 0, index)), NULL,
                           &f));
    int64_t good[3] = {0, -1, 7};
    int64_t bad[3] = {0, 8, 1};
    float out[3];
    w.x[0] = 3;
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(w.x, 8), TC_BUF(good, 3)), TC_BUFS(TC_BUF(out, 3))),
                 TC_OK);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(w.x, 8), TC_BUF(bad, 3)), TC_BUFS(TC_BUF(out, 3))),
                 TC_ERR_INDEX);
    CHECK_HAS(tc_error(f), "size 8");
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(w.x, 8), TC_BUF(good, 3)), TC_BUFS(TC_BUF(out, 3))),
                 TC_OK);
    CHECK(out[0] == 3);
    tc_tensor lazy = tc_index_select(tc_copy_in(w.ctx, w.x, TC_F32, 8), 0,
                                     tc_copy_in(w.ctx, bad, TC_I64, 3));
    CHECK_EQ_INT(tc_eval(lazy), TC_ERR_INDEX);
    CHECK_HAS(tc_error(lazy), "size 8");
    tc_program_free(f);
    errors_end(&w);
}

/* A context for tests of the texts; native: by compiled code where a compiler is found. */
static tc_ctx *index_ctx(bool native)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = native ? NULL : "interp", .no_disk_cache = true, .threads = 2};
    CHECK_EQ_INT(tc_ctx_make(&ctx, &o), TC_OK);
    return ctx;
}

/* The error is "FILE:run: tc_run: text", where the text holds the place of a call as %s. */
static void index_check(const char *error, int run, const char *op, const char *format, int made)
{
    char text[600], place[200];
    snprintf(place, sizeof(place), "%s:%d", __FILE__, made);
    int n = snprintf(text, sizeof(text), "%s:%d: %s: ", __FILE__, run, op);
    snprintf(text + n, sizeof(text) - (size_t)n, format, place);
    CHECK_MSG(!strcmp(error, text), "\"%s\", expected \"%s\"", error, text);
}

static const int64_t good_indices[6] = {0, 5, -1, -6, 2, 3};

static void index_of_an_input(bool native)
{
    tc_ctx *ctx = index_ctx(native);
    float x[12] = {0}, out[6];
    int64_t which[6], other[6];
    memcpy(which, good_indices, sizeof(which));
    memcpy(other, good_indices, sizeof(other));
    tc_tensor data = tc_input(ctx, "data", TC_F32, 6), i = tc_input(ctx, "which", TC_I64, 2, 3);
    tc_tensor j = tc_input(ctx, "", TC_I64, 6), flat = tc_reshape(tc_cast(i, TC_I32), 6);
    tc_tensor a = tc_index_select(data, 0, flat);
    int made_a = __LINE__ - 1;
    tc_tensor b = tc_gather(data, 0, tc_flip(tc_flip(j, 0), 0));
    int made_b = __LINE__ - 1;
    tc_tensor y = tc_add(a, b);
    tc_program *f = NULL;
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(data, i, j), TC_TENSORS(y), NULL, &f), TC_OK);
    tc_bufs in = TC_BUFS(TC_BUF(x, 6), TC_BUF(which, 6), TC_BUF(other, 6));
    tc_bufs to = TC_BUFS(TC_BUF(out, 6));
    CHECK_EQ_INT(tc_run(f, in, to), TC_OK);
    which[5] = 6;
    CHECK_EQ_INT(tc_run(f, in, to), TC_ERR_INDEX);
    int run = __LINE__ - 1;
    index_check(tc_error(f), run, "tc_run",
                "index 6 (element [1, 2] of input 1 \"which\") is outside axis 0 of size 6 in "
                "tc_index_select made at %s: expected -6 to 5",
                made_a);
    which[5] = 3;
    which[4] = -7;
    CHECK_EQ_INT(tc_run(f, in, to), TC_ERR_INDEX);
    CHECK_HAS(tc_error(f), "index -7 (element [1, 1] of input 1 \"which\") is outside axis 0");
    which[4] = ((int64_t)1 << 32) + 6; /* what is read is what the cast leaves of it */
    CHECK_EQ_INT(tc_run(f, in, to), TC_ERR_INDEX);
    CHECK_HAS(tc_error(f), "index 6 (element [1, 1] of input 1 \"which\", cast) is outside");
    which[4] = 2;
    other[3] = 6; /* the flips are computed, but the other reading was all inside */
    CHECK_EQ_INT(tc_run(f, in, to), TC_ERR_INDEX);
    run = __LINE__ - 1;
    index_check(tc_error(f), run, "tc_run",
                "a computed index is outside axis 0 of size 6 in tc_gather made at %s: expected "
                "-6 to 5",
                made_b);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Indices with others next to them: those of the input are looked through, what pads is not. */
static void index_with_padding(bool native)
{
    tc_ctx *ctx = index_ctx(native);
    float x[6] = {0}, out[9];
    int64_t which[6], fill = 1;
    memcpy(which, good_indices, sizeof(which));
    tc_tensor data = tc_input(ctx, "data", TC_F32, 6), i = tc_input(ctx, "which", TC_I64, 6);
    tc_tensor own = tc_input(ctx, "fill", TC_I64), of = tc_pad(i, 0, 1, 2, own);
    tc_tensor y = tc_gather(data, 0, of);
    int made = __LINE__ - 1;
    tc_program *f = NULL;
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(data, i, own), TC_TENSORS(y), NULL, &f), TC_OK);
    tc_bufs in = TC_BUFS(TC_BUF(x, 6), TC_BUF(which, 6), TC_BUF(&fill, 1));
    tc_bufs to = TC_BUFS(TC_BUF(out, 9));
    CHECK_EQ_INT(tc_run(f, in, to), TC_OK);
    which[4] = 9;
    CHECK_EQ_INT(tc_run(f, in, to), TC_ERR_INDEX);
    CHECK_HAS(tc_error(f), "index 9 (element 4 of input 1 \"which\") is outside axis 0");
    which[4] = 2;
    fill = -7;
    CHECK_EQ_INT(tc_run(f, in, to), TC_ERR_INDEX);
    int run = __LINE__ - 1;
    index_check(tc_error(f), run, "tc_run",
                "a computed index is outside axis 0 of size 6 in tc_gather made at %s: expected "
                "-6 to 5",
                made);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(an_index_of_an_input_is_named)
{
    index_of_an_input(false);
    index_of_an_input(true);
    index_with_padding(false);
    index_with_padding(true);
}

TEST(a_class_outside_the_logits_is_named)
{
    tc_ctx *ctx = index_ctx(false);
    float x[8] = {0}, loss;
    uint8_t classes[2] = {3, 4};
    tc_tensor logits = tc_input(ctx, "logits", TC_F32, 2, 4), t = tc_input(ctx, "t", TC_U8, 2);
    tc_tensor y = tc_cross_entropy(logits, t);
    int made = __LINE__ - 1;
    tc_program *f = NULL;
    REQUIRE(!tc_compile(y, &f));
    tc_bufs in = TC_BUFS(TC_BUF(x, 8), TC_BUF(classes, 2)), to = TC_BUFS(TC_BUF(&loss, 1));
    CHECK_EQ_INT(tc_run(f, in, to), TC_ERR_INDEX);
    int run = __LINE__ - 1;
    index_check(tc_error(f), run, "tc_run",
                "index 4 (element 1 of input 1 \"t\") is outside axis 1 of size 4 in "
                "tc_cross_entropy made at %s: expected -4 to 3",
                made);
    tc_call *call = NULL;
    REQUIRE(!tc_call_make(f, &call));
    CHECK_EQ_INT(tc_run_call(call, in, to), TC_ERR_INDEX);
    CHECK_HAS(tc_error(call), "tc_run_call: index 4 (element 1 of input 1 \"t\") is outside");
    tc_call_free(call);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Computed, all of one size: whichever it was, it is among those that are named. */
TEST(readings_that_nothing_tells_apart_are_all_named)
{
    tc_ctx *ctx = index_ctx(false);
    float x[24] = {0}, out[5];
    int64_t at[5] = {0, 1, 2, 3, 4}, step = 1;
    tc_tensor data = tc_input(ctx, "data", TC_F32, 5), i = tc_input(ctx, "i", TC_I64, 5);
    tc_tensor s = tc_input(ctx, "s", TC_I64), y = data;
    tc_program *f = NULL;
    for (int n = 1; n <= 4; n++) {
        const tc_site here = {__FILE__, 1000 + n}; /* each has a line of its own */
        int made = 1000 + (n < 3 ? n : 3);
        y = tc_add(tc_gather_at(y, 0, tc_add(i, tc_mul(s, n)), here), 1);
        REQUIRE(!tc_compile_fn(TC_TENSORS(data, i, s), TC_TENSORS(y), NULL, &f));
        tc_bufs in = TC_BUFS(TC_BUF(x, 5), TC_BUF(at, 5), TC_BUF(&step, 1));
        CHECK_EQ_INT(tc_run(f, in, TC_BUFS(TC_BUF(out, 5))), TC_ERR_INDEX);
        char text[200];
        snprintf(text, sizeof(text), "axis 0 of size 5 in tc_gather made at %s:%d%s", __FILE__,
                 made,
                 n == 1   ? ": expected -5 to 4"
                 : n == 4 ? "; or 1 more of that size"
                          : "");
        CHECK_HAS(tc_error(f), text);
        CHECK_HAS(tc_error(f), n == 1 ? "a computed index is" : "an index is outside an axis of");
        tc_program_free(f);
    }
    tc_ctx_free(ctx);
}

/* The text of a run of f over which, whose indices are bad. */
static const char *index_text(tc_tensor which, tc_tensor y, tc_program **f)
{
    static const int64_t bad[3] = {0, 9, 1};
    static float out[12];
    *f = NULL;
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(which), TC_TENSORS(y), NULL, f), TC_OK);
    int64_t n = tc_size(y, 0) * tc_size(y, 1);
    CHECK_EQ_INT(tc_run(*f, TC_BUFS(TC_BUF(bad, 3)), TC_BUFS(TC_BUF(out, n))), TC_ERR_INDEX);
    return tc_error(*f);
}

static void index_in_call(tc_tensor which, tc_tensor y, int axis, const char *call, int line)
{
    char text[400];
    tc_program *f;
    snprintf(text, sizeof(text),
             "index 9 (element 1 of input 0 \"which\") is outside axis %d of size %d in %s made at "
             "%s:%d: expected",
             axis, 3 + axis, call, __FILE__, line);
    CHECK_HAS(index_text(which, y, &f), text);
    tc_program_free(f);
}

TEST(the_index_and_the_axis_are_those_of_the_call)
{
    static const float v[12] = {0};
    tc_ctx *ctx = index_ctx(false);
    tc_tensor i = tc_input(ctx, "which", TC_I64, 3), x = tc_copy_in(ctx, v, TC_F32, 3, 4);
    tc_tensor s = tc_copy_in(ctx, v, TC_F32, 3, 3);
    index_in_call(i, tc_index(x, TC_TENSORS(i)), 0, "tc_index", __LINE__);
    index_in_call(i, tc_index(x, TC_TENSORS(TC_NONE, i)), 1, "tc_index", __LINE__);
    tc_tensor put = tc_index_put(x, TC_TENSORS(TC_NONE, i), s, false);
    index_in_call(i, put, 1, "tc_index_put", __LINE__ - 1);
    put = tc_index_put(x, TC_TENSORS(i), x, true);
    index_in_call(i, put, 0, "tc_index_put", __LINE__ - 1);
    tc_ctx_free(ctx);
}

/* Equal calls before these are in no program that runs. */
TEST(the_call_that_is_named_is_in_the_program)
{
    static const float v[12] = {0};
    tc_ctx *ctx = index_ctx(false);
    tc_tensor i = tc_input(ctx, "which", TC_I64, 3), x = tc_copy_in(ctx, v, TC_F32, 3, 4);
    tc_tensor column = tc_reshape(i, 3, 1);
    tc_index_put(x, TC_TENSORS(i), x, false);
    tc_index(x, TC_TENSORS(i));
    index_in_call(i, tc_embedding(i, x), 0, "tc_embedding", __LINE__);
    tc_gather(x, 1, column);
    index_in_call(i, tc_take_along_dim(x, column, 1), 1, "tc_take_along_dim", __LINE__);
    tc_ctx_free(ctx);
}

/* Its gradient writes where it reads. */
TEST(a_call_with_several_readings_is_named_once)
{
    static const float v[12] = {0};
    tc_ctx *ctx = index_ctx(false);
    tc_tensor i = tc_input(ctx, "which", TC_I64, 3), x = tc_copy_in(ctx, v, TC_F32, 3, 4), g;
    tc_tensor loss = tc_cross_entropy_loss(x, i, TC_NONE, -100, TC_REDUCE_SUM, 0);
    int line = __LINE__ - 1;
    char text[400];
    tc_program *f;
    REQUIRE(!tc_grad(loss, &x, 1, &g));
    snprintf(
        text, sizeof(text),
        "tc_run: a computed index is outside axis 1 of size 4 in tc_cross_entropy_loss made at "
        "%s:%d: expected -4 to 3",
        __FILE__, line);
    CHECK_HAS(index_text(i, tc_add(g, loss), &f), text);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Another gather has the size of the axis, other indices, and nothing outside. */
TEST(memory_of_the_user_holds_the_index)
{
    tc_ctx *ctx = index_ctx(false);
    float x[6] = {0}, out[4];
    int32_t at[8] = {9, 0, 9, 1, 9, 6, 9, 2};
    tc_tensor data = tc_copy_in(ctx, x, TC_F32, 6);
    int64_t size = 4, back = -2;
    tc_tensor odd = tc_borrow_strided(ctx, at + 7, TC_I32, 1, &size, &back);
    int leaf = __LINE__ - 1;
    tc_tensor fine = tc_copy_in(ctx, good_indices, TC_I64, 4);
    tc_tensor sum = tc_add(tc_gather(data, 0, fine), tc_gather(data, 0, odd));
    int made = __LINE__ - 1;
    char text[700];
    CHECK_EQ_INT(tc_read(sum, out, 4), TC_ERR_INDEX);
    snprintf(text, sizeof(text),
             "tc_read: index 6 (element 1 of the tensor made at %s:%d) is outside axis 0 of size 6 "
             "in tc_gather made at %s:%d: expected -6 to 5 (the tensor was made at",
             __FILE__, leaf, __FILE__, made);
    CHECK_HAS(tc_error(sum), text);
    at[5] = 5;
    CHECK_EQ_INT(tc_touch(odd), TC_OK);
    CHECK_EQ_INT(tc_read(sum, out, 4), TC_OK);
    tc_ctx_free(ctx);
}

/* A later kernel writes its output over the index: the memory no longer holds what was read. */
TEST(an_index_that_was_written_over_is_not_told)
{
    tc_ctx *ctx = index_ctx(false);
    float x[12] = {0}, out[12];
    int64_t at[4] = {0, 4, 1, 2};
    tc_tensor data = tc_input(ctx, "data", TC_F32, 4, 3), i = tc_input(ctx, "i", TC_I64, 4);
    tc_tensor rows = tc_index_select(data, 0, i);
    tc_program *f = NULL;
    REQUIRE(!tc_compile_fn(TC_TENSORS(data, i), TC_TENSORS(rows, tc_add(i, 70)), NULL, &f));
    tc_bufs in = TC_BUFS(TC_BUF(x, 12), TC_BUF(at, 4));
    CHECK_EQ_INT(tc_run(f, in, TC_BUFS(TC_BUF(out, 12), TC_BUF(at, 4))), TC_ERR_INDEX);
    CHECK(at[0] == 70); /* it was */
    CHECK_HAS(tc_error(f), "tc_run: an index of input 1 \"i\" is outside axis 0 of size 4");
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- compile ---- */

TEST(compile_refuses_bad_handles)
{
    errors_world w;
    REQUIRE(errors_begin(&w));
    tc_tensor null = {0, 0, 0};
    tc_program *f = (tc_program *)(void *)&w;
    CHECK_EQ_INT(tc_compile(null, &f), TC_ERR_HANDLE);
    CHECK(!f);
    tc_tensor poisoned = tc_add(w.a, tc_input(w.ctx, "odd", TC_F32, 3));
    CHECK_EQ_INT(tc_compile(poisoned, &f), TC_ERR_SHAPE);
    CHECK_HAS(tc_error(poisoned), "test_run_errors.c");
    CHECK_EQ_INT(tc_compile(w.y, NULL), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(w.a, w.b), TC_TENSORS(), NULL, &f), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_scope_begin(w.ctx), TC_OK);
    tc_tensor dead = tc_neg(w.a);
    CHECK_EQ_INT(tc_scope_end(w.ctx), TC_OK);
    CHECK_EQ_INT(tc_compile(dead, &f), TC_ERR_HANDLE);
    CHECK_HAS(tc_error(dead), "dead");
    errors_end(&w);
}

TEST(compile_names_the_input_that_is_missing_or_wrong)
{
    errors_world w;
    REQUIRE(errors_begin(&w));
    tc_program *f = NULL;
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(w.a), TC_TENSORS(w.y), NULL, &f), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(w.y), "'b'");
    CHECK_HAS(tc_error(w.ctx), "tc_compile_fn");
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(w.a, w.b, w.a), TC_TENSORS(w.y), NULL, &f),
                 TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(w.y), "twice");
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(w.a, w.y), TC_TENSORS(w.y), NULL, &f), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(w.y), "input 1");
    CHECK_HAS(tc_error(w.y), "add");
    CHECK(!f);
    errors_end(&w);
}

TEST(compile_refuses_two_contexts)
{
    errors_world w, v;
    REQUIRE(errors_begin(&w) && errors_begin(&v));
    tc_program *f = NULL;
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(w.a, w.b), TC_TENSORS(w.y, v.y), NULL, &f),
                 TC_ERR_HANDLE);
    CHECK_HAS(tc_error(w.y), "two contexts");
    CHECK_EQ_INT(tc_eval_many(TC_TENSORS(w.y, v.y)), TC_ERR_HANDLE);
    errors_end(&v);
    errors_end(&w);
}

TEST(options_are_checked)
{
    errors_world w;
    REQUIRE(errors_begin(&w));
    tc_program *f = NULL;
    tc_options unknown = {.backend = "abacus"};
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(w.a, w.b), TC_TENSORS(w.y), &unknown, &f),
                 TC_ERR_BACKEND);
    CHECK_HAS(tc_error(w.y), "abacus");
    tc_options small = {.memory_limit = 16};
    tc_tensor s = tc_cumsum(tc_softmax(tc_cumsum(w.a, 0), 0), 0); /* needs room in between */
    tc_status status = tc_compile_fn(TC_TENSORS(w.a), TC_TENSORS(s), &small, &f);
    tc_program *roomy = NULL;
    tc_program_info info;
    REQUIRE(!tc_compile_fn(TC_TENSORS(w.a), TC_TENSORS(s), NULL, &roomy) &&
            !tc_program_get_info(roomy, &info));
    CHECK_EQ_INT(status, info.arena_bytes > 16 ? TC_ERR_LIMIT : TC_OK);
    tc_program_free(roomy);
    tc_program_free(f);
    errors_end(&w);
}

/* ---- the lazy form ---- */

TEST(eval_refuses_inputs)
{
    errors_world w;
    REQUIRE(errors_begin(&w));
    CHECK_EQ_INT(tc_eval(w.y), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(w.y), "'a'");
    CHECK_HAS(tc_error(w.y), "tc_run");
    CHECK_EQ_INT(tc_eval(w.a), TC_ERR_ARGUMENT);
    tc_tensor null = {0, 0, 0};
    CHECK_EQ_INT(tc_eval(null), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_eval_many(TC_TENSORS(tc_full(w.ctx, 1, TC_F32, 2), null)), TC_ERR_HANDLE);
    errors_end(&w);
}

/* "FILE:call: op: part ... (the tensor was made at FILE:made)" */
static void check_places(int line, const char *text, int call, const char *op, const char *part,
                         int made)
{
    char front[400], back[400];
    snprintf(front, sizeof(front), "%s:%d: %s: %s", __FILE__, call, op, part);
    snprintf(back, sizeof(back), "(the tensor was made at %s:%d)", __FILE__, made);
    CHECK_MSG(!strncmp(text, front, strlen(front)), "line %d: \"%s\" lacks \"%s\"", line, text,
              front);
    CHECK_MSG(strstr(text, back) != NULL, "line %d: \"%s\" lacks \"%s\"", line, text, back);
}

TEST(errors_name_the_call_and_the_tensor)
{
    errors_world w;
    REQUIRE(errors_begin(&w));
    int made = __LINE__ + 1;
    tc_tensor needs = tc_exp(w.a), t = tc_full(w.ctx, 1, TC_F32, 4);
    tc_program *f;
    float out[4];
    tc_eval(needs);
    check_places(__LINE__, tc_error(needs), __LINE__ - 1, "tc_eval", "the value needs 'a'", made);
    tc_eval_many(TC_TENSORS(needs));
    check_places(__LINE__, tc_error(needs), __LINE__ - 1, "tc_eval_many", "the value", made);
    tc_read(t, out, 3);
    check_places(__LINE__, tc_error(t), __LINE__ - 1, "tc_read", "given room for 3", made);
    tc_compile_fn(TC_TENSORS(), TC_TENSORS(needs), NULL, &f);
    check_places(__LINE__, tc_error(needs), __LINE__ - 1, "tc_compile_fn", "", made);
    tc_scope_begin(w.ctx);
    tc_tensor kept = tc_keep(needs);
    check_places(__LINE__, tc_error(kept), __LINE__ - 1, "tc_keep", "the value needs 'a'", made);
    tc_scope_end(w.ctx);
    CHECK_HAS(tc_error(kept), "the value needs 'a'");
    CHECK_EQ_INT(tc_compile(t, NULL), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(t), ": tc_compile: given NULL, expected a place for the program");
    CHECK_EQ_INT(tc_print(stdout, needs), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(needs), ": tc_print: the value needs 'a'");
    errors_end(&w);
}

/* Calls that give out a status and no handle, each failing with a text that has `i` in it. */
static tc_status errors_fail(const errors_world *w, tc_tensor p, tc_tensor bad, int which, int i)
{
    char path[64];
    tc_file *file;
    tc_program *f;
    tc_dlpack *dl;
    tc_tensor effects[8];
    int n = 0;
    snprintf(path, sizeof(path), "/none/%d.npy", i);
    const char *name = path;
    switch (which) {
    case 0: return tc_file_open(w->ctx, path, &file);
    case 1: return tc_load(w->ctx, path);
    case 2: return tc_save(w->ctx, path);
    case 3: return tc_file_write(w->ctx, path, &name, TC_TENSORS(bad), NULL);
    case 4: return tc_param_write(p, w->x, i + 10);
    case 5: return tc_sgd(&p, &bad, 1, 0.1, NULL, effects, &n);
    case 6: return tc_export_c(TC_TENSORS(w->a), TC_TENSORS(w->y), NULL, path);
    case 7: return tc_read(bad, (float *)w->x, i + 10);
    case 8: return tc_eval(w->a);
    case 9: return tc_compile(bad, NULL);
    case 10: return tc_run(w->f, TC_BUFS(TC_BUF(w->x, i + 9)), TC_BUFS());
    case 11: return tc_to_dlpack(w->a, &dl);
    default: return tc_compile_fn(TC_TENSORS(w->b), TC_TENSORS(w->y), NULL, &f);
    }
}

/* No handle could be asked for their texts, so nothing of them is kept. */
TEST(calls_that_fail_with_a_status_keep_nothing)
{
    enum { CALLS = 13, TIMES = 300 };
    errors_world w;
    REQUIRE(errors_begin(&w));
    tc_tensor p = tc_param(w.ctx, NULL, TC_F32, 2), bad = tc_zeros(w.ctx, TC_F32, 3);
    for (int which = 0; which < CALLS; which++) {
        tc_stats before, after;
        for (int i = 0; i < TIMES; i++) {
            tc_status status = errors_fail(&w, p, bad, which, i);
            CHECK_MSG(status != TC_OK, "call %d", which);
            CHECK_MSG(tc_error(w.ctx)[0] || which == 9 || which == 10, "call %d says why", which);
            if (i == 20) {
                CHECK_EQ_INT(tc_stats(w.ctx, &before), TC_OK);
            }
        }
        CHECK_EQ_INT(tc_stats(w.ctx, &after), TC_OK);
        CHECK_MSG(after.graph_bytes == before.graph_bytes, "call %d: %lld bytes more", which,
                  (long long)(after.graph_bytes - before.graph_bytes));
    }
    errors_end(&w);
}

TEST(read_checks_its_buffer)
{
    errors_world w;
    REQUIRE(errors_begin(&w));
    tc_tensor t = tc_full(w.ctx, 1, TC_F32, 4);
    float out[4];
    double wide[4];
    const float *readable = out;
    CHECK_EQ_INT(tc_read(t, out, 3), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(t), "given room for 3 elements, expected 4");
    CHECK_EQ_INT(tc_read(t, wide, 4), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(t), "given memory of f64, expected f32");
    CHECK_EQ_INT(tc_read(t, readable, 4), TC_ERR_BUFFER);
    CHECK_EQ_INT(tc_read(t, (float *)NULL, 4), TC_ERR_BUFFER);
    CHECK_EQ_INT(tc_read(t, out, 4), TC_OK);
    CHECK_EQ_INT(tc_print(NULL, t), TC_ERR_ARGUMENT);
    CHECK_HAS(tc_error(t), "test_run_errors.c:");
    CHECK_HAS(tc_error(t), "tc_print: given a NULL file");
    FILE *unwritable = fopen("/dev/null", "r");
    REQUIRE(unwritable != NULL);
    CHECK_EQ_INT(tc_print(unwritable, t), TC_ERR_IO);
    CHECK_HAS(tc_error(t), "cannot be written");
    fclose(unwritable);
    errors_end(&w);
}

TEST_MAIN
