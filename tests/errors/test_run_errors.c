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
    CHECK_HAS(tc_error(w.f), "given 1 inputs and 1 outputs, expected 2 and 1");
    char place[600];
    snprintf(place, sizeof(place), "%s:%d: tc_run: given", __FILE__, __LINE__ - 3);
    CHECK(!strncmp(tc_error(w.f), place, strlen(place)));
    CHECK_EQ_INT(tc_run(w.f, TC_BUFS(), TC_BUFS()), TC_ERR_BUFFER);
    tc_bufs missing = {NULL, 2};
    CHECK_EQ_INT(tc_run(w.f, missing, TC_BUFS(TC_BUF(w.x + 16, 8))), TC_ERR_BUFFER);
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
    CHECK_STR(tc_error(f), "");
    CHECK_STR(tc_error(c), "");
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
    tc_tensor lazy =
        tc_index_select(tc_copy_in(w.ctx, w.x, TC_F32, 8), 0, tc_copy_in(w.ctx, bad, TC_I64, 3));
    CHECK_EQ_INT(tc_eval(lazy), TC_ERR_INDEX);
    CHECK_HAS(tc_error(lazy), "size 8");
    tc_program_free(f);
    errors_end(&w);
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
