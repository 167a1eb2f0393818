/* tests/errors/test_messages.c - mistakes whose texts name the call that the user wrote, the
 * tensors by their roles, what was given and what was expected, with file and line; and which
 * object has the text. */
#include <stdlib.h>

#include "tc.h"
#include "tc_test.h"

#include "io.h"

static tc_ctx *ctx;

static char logged[4096]; /* the lines under "compile" */

static void keep_log(void *user, const char *topic, const char *text)
{
    (void)user;
    size_t n = strlen(logged);
    if (!strcmp(topic, "compile")) {
        snprintf(logged + n, sizeof(logged) - n, "%s\n", text);
    }
}

static void begin_with(const char *schedule)
{
    tc_options o = {.no_disk_cache = true, .threads = 1};
    o.backend = schedule ? "cpu" : "interp"; /* the interpreter has no schedules */
    o.memory_cache_bytes = -1;
    o.schedule = schedule;
    o.log = keep_log;
    logged[0] = 0;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

static void begin(void)
{
    begin_with(NULL);
}

/* text begins with this file's line and the call, and goes on as said. */
static void check_text(int line, const char *text, const char *call, const char *rest)
{
    char want[400];
    bool begins = false;
    /* compilers number the lines of a macro call on several lines differently */
    for (int before = 2; before >= 0; before--) {
        snprintf(want, sizeof(want), "%s:%d: %s: %s", __FILE__, line - before, call, rest);
        begins = begins || !strncmp(text, want, strlen(want));
    }
    CHECK_MSG(begins, "line %d: \"%s\" does not begin with \"%s\"", line, text, want);
}
#define TEXT(t, call, rest) check_text(__LINE__, tc_error(t), (call), (rest))

/* "...(made at FILE:line)" */
static void check_made(const char *text, int line)
{
    char place[300];
    snprintf(place, sizeof(place), "(made at %s:%d)", __FILE__, line);
    CHECK_HAS(text, place);
}

TEST(layers_name_the_weight_and_its_expected_shape)
{
    begin();
    tc_tensor x = tc_ones(ctx, TC_F32, 2, 3), wrong = tc_ones(ctx, TC_F32, 3, 5);
    TEXT(tc_linear(x, wrong, TC_NONE), "tc_linear",
         "x has shape [2, 3], weight [3, 5]: expected weight [out, 3]");
    TEXT(tc_linear(x, tc_ones(ctx, TC_F32, 3), TC_NONE), "tc_linear",
         "x has shape [2, 3], weight [3]: expected weight [out, 3]");
    TEXT(tc_linear(x, tc_ones(ctx, TC_F32, 5, 3), tc_ones(ctx, TC_F32, 4)), "tc_linear",
         "bias has shape [4]: expected [5]");
    tc_tensor q = tc_ones(ctx, TC_F32, 2, 6, 8), k = tc_ones(ctx, TC_F32, 2, 8, 7);
    TEXT(tc_scaled_dot_product_attention(q, k, q, TC_NONE, false, 0),
         "tc_scaled_dot_product_attention",
         "query has shape [2, 6, 8], key [2, 8, 7]: expected key [..., keys, 8]");
    tc_tensor steps = tc_ones(ctx, TC_F32, 5, 2, 3), out;
    tc_tensor ih = tc_ones(ctx, TC_F32, 16, 3), hh = tc_ones(ctx, TC_F32, 16, 4);
    tc_tensor less = tc_ones(ctx, TC_F32, 12, 3), bias = tc_ones(ctx, TC_F32, 15);
    const char *rest = "weight 0 (weight_ih of layer 0) has shape [12, 3]: expected [16, 3] (4 "
                       "gates, states of 4)";
    tc_lstm(steps, TC_NONE, TC_NONE, TC_TENSORS(less, hh), false, false, &out, NULL, NULL);
    TEXT(out, "tc_lstm", rest);
    tc_lstm(steps, TC_NONE, TC_NONE, TC_TENSORS(ih, hh, bias, bias), false, false, &out, NULL,
            NULL);
    CHECK_HAS(tc_error(out), "tc_lstm: weight 2 (bias_ih of layer 0) has shape [15]: expected "
                             "[16]");
    tc_ctx_free(ctx);
}

TEST(products_name_their_operands)
{
    begin();
    tc_tensor x = tc_ones(ctx, TC_F32, 2, 3), v = tc_ones(ctx, TC_F32, 3);
    TEXT(tc_dot(x, x), "tc_dot",
         "a has shape [2, 3], b [2, 3]: expected two vectors of one size "
         "(tc_matmul multiplies matrices)");
    TEXT(tc_dot(v, tc_ones(ctx, TC_F32, 4)), "tc_dot", "a has shape [3], b [4]: expected two");
    TEXT(tc_tensordot(x, x, TC_AXES(0), TC_AXES(1)), "tc_tensordot",
         "a has shape [2, 3], b [2, 3]: axis 0 of a and axis 1 of b have not one size");
    TEXT(tc_qmatmul(x, 1.0, 0, x, 1.0, 0), "tc_qmatmul",
         "a is f32 [2, 3], b f32 [2, 3]: expected "
         "TC_I8 or TC_U8, [..., m, k]");
    tc_ctx_free(ctx);
}

TEST(zeros_and_ones_are_named)
{
    begin();
    int64_t n = 3;
    TEXT(tc_zeros(ctx, 3, 4), "tc_zeros", "given 3 after the context, which is not a dtype");
    TEXT(tc_ones(ctx, n - 1), "tc_ones", "given 2 after the context, which is not a dtype");
    TEXT(tc_zeros(ctx, TC_F32, n - 4), "tc_zeros", "size -1 of axis 0 is negative");
    TEXT(tc_full(ctx, 2, 3), "tc_full", "given 3 after the value, which is not a dtype");
    tc_ctx_free(ctx);
}

TEST(tensors_of_another_kind_are_told_with_the_call_that_made_them)
{
    begin();
    float v[2];
    tc_program *f;
    tc_tensor x = tc_ones(ctx, TC_F32, 2);
    int line = __LINE__ - 1;
    TEXT(tc_assign(x, x), "tc_assign", "cannot assign to the result of tc_ones (made at ");
    check_made(tc_error(tc_assign(x, x)), line);
    TEXT(tc_named(x, "x"), "tc_named", "expected a parameter (tc_param): given one of tc_ones");
    CHECK_EQ_INT(tc_touch(x), TC_ERR_ARGUMENT);
    check_made(tc_error(x), line);
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(x), NULL, &f), TC_ERR_ARGUMENT);
    TEXT(ctx, "tc_compile_fn", "input 0: given the result of tc_ones (made at ");
    tc_tensor in = tc_input(ctx, "in", TC_F32, 2), y = tc_sin(in);
    line = __LINE__ - 1;
    CHECK_EQ_INT(tc_read(y, v, 2), TC_ERR_ARGUMENT);
    check_text(__LINE__ - 1, tc_error(y), "tc_read",
               "the value needs 'in', a tc_input placeholder "
               "(made at ");
    check_made(tc_error(y), line);
    tc_ctx_free(ctx);
}

/* ---- loops ---- */

static tc_status halve(void *user, const tc_tensor *carry, tc_tensor *next)
{
    (void)user;
    next[0] = tc_mul(carry[0], 0.5);
    return TC_OK;
}

static tc_status is_large(void *user, const tc_tensor *carry, tc_tensor *go)
{
    (void)user;
    *go = tc_gt(tc_sum(carry[0], TC_ALL, false), 1);
    return TC_OK;
}

static struct {
    tc_status status;
    char text[600];
    int line;
} within;

static tc_status reads(void *user, const tc_tensor *carry, const tc_tensor *x, tc_tensor *next,
                       tc_tensor *y)
{
    float v[2];
    (void)user;
    next[0] = y[0] = tc_add(carry[0], x[0]);
    within.status = tc_read(next[0], v, 2);
    within.line = __LINE__ - 1;
    snprintf(within.text, sizeof(within.text), "%s", tc_error(next[0]));
    return TC_OK;
}

TEST(loops_that_have_no_gradient_are_named)
{
    begin();
    tc_tensor x = tc_param(ctx, NULL, TC_F32, 2), last, g;
    CHECK_EQ_INT(tc_while(TC_TENSORS(x), 0, is_large, halve, NULL, &last), TC_OK);
    int line = __LINE__ - 1;
    CHECK_EQ_INT(tc_grad(tc_sum(last, TC_ALL, false), &x, 1, &g), TC_ERR_UNSUPPORTED);
    check_text(__LINE__ - 1, tc_error(g), "tc_grad", "tc_while (made at ");
    check_made(tc_error(g), line);
    CHECK_HAS(tc_error(g), "has no gradient, as it stops by its values (tc_jvp goes through it; "
                           "tc_scan");
    tc_ctx_free(ctx);
}

TEST(values_within_a_body_are_not_there)
{
    begin();
    tc_tensor last, y;
    float v[2];
    tc_tensor start = tc_zeros(ctx, TC_F32, 2), rows = tc_ones(ctx, TC_F32, 3, 2);
    CHECK_EQ_INT(tc_scan(TC_TENSORS(start), TC_TENSORS(rows), 0, false, reads, NULL, &last, &y, 1),
                 TC_OK);
    CHECK_EQ_INT(within.status, TC_ERR_ARGUMENT);
    check_text(within.line, within.text, "tc_read", "");
    CHECK_HAS(within.text, "a body only builds; what it makes leaves it as the next carry or an "
                           "output, to be read after the loop");
    CHECK_EQ_INT(tc_read(last, v, 2), TC_OK);
    CHECK(v[0] == 3);
    tc_ctx_free(ctx);
}

/* ---- programs and exports ---- */

static void copies(void *user, const tc_custom_array *a, int n, tc_custom_array *result)
{
    (void)user;
    (void)n;
    memcpy(result->data, a[0].data, sizeof(float) * (size_t)a[0].n);
}

TEST(exports_tell_the_line_of_a_custom_op)
{
    static const tc_custom_op op = {.name = "copies", .run = copies};
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 2);
    tc_tensor own = tc_custom(&op, TC_TENSORS(x));
    char place[300];
    snprintf(place, sizeof(place), "(the tensor was made at %s:%d)", __FILE__, __LINE__ - 2);
    CHECK_EQ_INT(tc_export_c(TC_TENSORS(x), TC_TENSORS(tc_neg(x), tc_add(own, 1)), NULL,
                             io_path("messages.c")),
                 TC_ERR_UNSUPPORTED);
    CHECK_HAS(tc_error(ctx), "given a custom op");
    CHECK_HAS(tc_error(ctx), place);
    tc_ctx_free(ctx);
}

TEST(what_is_null_is_said_to_be)
{
    tc_program *f = NULL;
    CHECK_EQ_INT(tc_run(f, TC_BUFS(), TC_BUFS()), TC_ERR_ARGUMENT);
    CHECK_STR(tc_error(f), "the program is NULL: its compile failed?");
    CHECK_STR(tc_error((tc_call *)NULL), "the call is NULL: tc_call_make failed?");
    CHECK_STR(tc_error((tc_event *)NULL), "the event is NULL: tc_run_async failed?");
}

TEST(parameters_tell_why_they_were_not_written)
{
    begin();
    float wrong[3] = {0};
    double right[3] = {1, 2, 3}, got[3];
    tc_tensor p = tc_param(ctx, NULL, TC_F64, 3);
    CHECK_EQ_INT(tc_param_write(p, wrong, 3), TC_ERR_BUFFER);
    check_text(__LINE__ - 1, tc_error(p), "tc_param_write", "given memory of f32, expected f64");
    CHECK_STR(tc_error(ctx), tc_error(p));
    CHECK_EQ_INT(tc_param_write(p, right, 2), TC_ERR_BUFFER);
    check_text(__LINE__ - 1, tc_error(p), "tc_param_write", "given 2 elements, expected 3");
    CHECK_EQ_INT(tc_param_write(p, right, 3), TC_OK);
    CHECK_EQ_INT(tc_read(p, got, 3), TC_OK);
    CHECK(got[2] == 3);
    tc_ctx_free(ctx);
}

/* ---- which object tells: the rows of the table in docs/errors.md ---- */

static tc_status fails(void *user, const tc_tensor *carry, const tc_tensor *x, tc_tensor *next,
                       tc_tensor *y)
{
    (void)user, (void)carry, (void)x, (void)next, (void)y;
    return TC_ERR_ARGUMENT;
}

TEST(each_failure_is_told_by_the_object_of_the_table)
{
    begin();
    tc_tensor x = tc_ones(ctx, TC_F32, 2), in = tc_input(ctx, "in", TC_F32, 2), y = tc_neg(in);
    tc_tensor one, two, effects[4];
    tc_program *f, *none;
    tc_file *file;
    tc_call *call;
    tc_event *event;
    tc_queue *queue;
    float v[2] = {1, 2};
    int n;
    tc_topk(x, 0, 3, true, &one, &two);
    TEXT(one, "tc_topk", "k is 3");
    CHECK_STR(tc_error(two), tc_error(one));
    CHECK(tc_scan(TC_TENSORS(x), TC_TENSORS(x), 0, false, fails, NULL, &one, &two, 1) != TC_OK);
    TEXT(one, "tc_scan", "");
    CHECK_STR(tc_error(two), tc_error(one));
    CHECK(tc_grad(x, &x, 1, &one) != TC_OK);
    TEXT(one, "tc_grad", "");
    CHECK(tc_eval(y) != TC_OK);
    TEXT(y, "tc_eval", "the value needs 'in'");
    CHECK(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), NULL, &none) != TC_OK);
    TEXT(y, "tc_compile_fn", "input 0");
    CHECK_STR(tc_error(ctx), tc_error(y));
    CHECK(tc_file_open(ctx, "/nowhere/file", &file) != TC_OK);
    TEXT(ctx, "tc_file_open", "'/nowhere/file'");
    CHECK(tc_save(ctx, "/nowhere/file.npz") != TC_OK);
    TEXT(ctx, "tc_save", "");
    CHECK(tc_sgd(&x, &x, 1, 0.1, NULL, effects, &n) != TC_OK);
    TEXT(ctx, "tc_sgd", "number 0 is no parameter");
    CHECK(tc_scope_end(ctx) != TC_OK);
    TEXT(ctx, "tc_scope_end", "no scope is open");
    REQUIRE(tc_compile(y, &f) == TC_OK && tc_call_make(f, &call) == TC_OK);
    CHECK(tc_run(f, TC_BUFS(), TC_BUFS()) != TC_OK);
    TEXT(f, "tc_run", "given 0 inputs");
    CHECK(tc_run_call(call, TC_BUFS(), TC_BUFS(TC_BUF(v, 2))) != TC_OK);
    TEXT(call, "tc_run_call", "given 0 inputs and 1");
    REQUIRE(tc_queue_make(&queue) == TC_OK);
    CHECK(tc_run_async(f, queue, TC_BUFS(), TC_BUFS(), &event) != TC_OK);
    TEXT(f, "tc_run_async", "given 0 inputs");
    tc_queue_free(queue);
    tc_call_free(call);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- files ---- */

TEST(arrays_that_a_file_lacks_are_told_with_the_nearest_name)
{
    begin();
    tc_file *file;
    const char *path = io_path("messages.safetensors");
    tc_tensor a = tc_ones(ctx, TC_F32, 2), b = tc_zeros(ctx, TC_F32, 2);
    const char *const names[2] = {"layer1.weight", "layer1.bias"};
    REQUIRE(tc_file_write(ctx, path, names, TC_TENSORS(a, b), NULL) == TC_OK);
    REQUIRE(tc_file_open(ctx, path, &file) == TC_OK);
    tc_tensor missing = tc_file_copy_in(ctx, file, "layer1.weigth");
    char rest[400];
    snprintf(rest, sizeof(rest),
             "'%s' has no array 'layer1.weigth' (the nearest of its names is "
             "'layer1.weight')",
             path);
    check_text(__LINE__ - 6, tc_error(missing), "tc_file_copy_in", rest);
    tc_file_close(file);
    tc_ctx_free(ctx);
    io_clean();
}

/* ---- settings ---- */

TEST(schedules_that_name_nothing_are_logged)
{
    const char *path = io_path("messages.txt");
    FILE *out = fopen(path, "w");
    REQUIRE(out != NULL);
    fprintf(out, "# a remark\n\nsome_kernel: 8\nno colon\n");
    fclose(out);
    begin_with(path);
    float v[2];
    CHECK_EQ_INT(tc_read(tc_sin(tc_ones(ctx, TC_F32, 2)), v, 2), TC_OK);
    CHECK_HAS(logged, "messages.txt' names 'some_kernel': no kernel compiled now has that name");
    CHECK_HAS(logged, "line 4 of '");
    CHECK_HAS(logged, "\"no\", has no colon: expected KERNEL: SCHEDULE");
    CHECK(!strstr(logged, "line 1 of") && !strstr(logged, "line 2 of"));
    tc_ctx_free(ctx);
    io_clean();
}

TEST(variables_that_are_set_to_what_they_cannot_be_are_logged)
{
    setenv("TC_THREADS", "abc", 1);
    setenv("TC_DUMP", "plan,kernels", 1);
    begin();
    CHECK_HAS(logged, "TC_THREADS is 'abc': expected a number, taken as not set\n");
    CHECK_HAS(logged, "TC_DUMP has 'kernels': expected words of graph,");
    unsetenv("TC_THREADS");
    unsetenv("TC_DUMP");
    tc_ctx_free(ctx);
    setenv("TC_LOG", "cache,bogus", 1); /* also on stderr, as that is where it was asked for */
    begin();
    CHECK_HAS(logged, "TC_LOG has 'bogus': expected words of compile,cache,fusion,recompiles,"
                      "source,kernels or all\n");
    unsetenv("TC_LOG");
    tc_ctx_free(ctx);
    begin();
    CHECK_STR(logged, "");
    tc_ctx_free(ctx);
}

TEST_MAIN
