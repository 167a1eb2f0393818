/* tests/cpu/test_explain.c - tc_explain: a program on one screen, by name and line of the user.
 * Needs a compiler. */
#include "inside.h"

#include "../examples/models/models.h"
#include "cache.h"
#include "json.h"

#include <fcntl.h>

static char text[1 << 18];

static const char *told(const tc_program *f, const tc_explain_options *o)
{
    FILE *out = tmpfile();
    REQUIRE(out != NULL);
    CHECK_EQ_INT(tc_explain_as(f, out, o), TC_OK);
    rewind(out);
    text[fread(text, 1, sizeof(text) - 1, out)] = 0;
    fclose(out);
    return text;
}

static int lines(const char *t)
{
    int n = 0;
    for (; *t; t++) {
        n += *t == '\n';
    }
    return n;
}

/* A program of many kernels; one of them takes most of the time. */
static tc_program *many(tc_ctx *ctx, int *slow_line)
{
    tc_program *f;
    tc_tensor x = tc_input(ctx, "picture", TC_F32, 64, 64), y = x;
    tc_tensor w = tc_named(tc_param(ctx, NULL, TC_F32, 64, 64), "fc.weight");
    for (int i = 0; i < 30; i++) {
        y = tc_materialize(i % 2 ? tc_add(tc_cumsum(y, i % 4 / 2), i) : tc_mul(y, x));
    }
    tc_region_begin(ctx, "slow");
    *slow_line = __LINE__ + 1;
    tc_tensor z = tc_matmul(tc_lgamma(tc_matmul(w, y)), w);
    tc_region_end(ctx);
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(z), &(tc_options){.name = "step", .fusion = -1},
                          &f) == TC_OK);
    return f;
}

TEST(one_screen_tells_names_lines_and_reasons)
{
    begin();
    tc_ctx *ctx;
    tc_options o = default_options();
    char want[100];
    int line;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_program *f = many(ctx, &line);
    told(f, NULL);
    CHECK_MSG(lines(text) <= 60, "%d lines", lines(text));
    CHECK_HAS(text, "step: ");
    CHECK_HAS(text, "  input 0: f32 [64, 64] picture\n");
    CHECK_HAS(text, "fc.weight f32 [64, 64]");
    CHECK(!strstr(text, "input 1"));
    snprintf(want, sizeof(want), "test_explain.c:%d tc_matmul, slow", line);
    CHECK_HAS(text, want);
    CHECK_HAS(text, "not fused:\n");
    CHECK_HAS(text, "options.fusion keeps ops apart; together would save ");
    CHECK(!strchr(text, '\t'));
    told(f, &(tc_explain_options){.all = true});
    CHECK_HAS(text, "launches:\n  ");
    CHECK_HAS(text, "not fused, and why:\n");
    CHECK(!strchr(text, '\t'));
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

TEST(rows_are_sorted_and_cut_as_asked)
{
    begin();
    tc_ctx *ctx;
    tc_options o = default_options();
    int line;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_program *f = many(ctx, &line);
    json *j = json_parse(told(f, &(tc_explain_options){.json = true, .sort = TC_BY_FLOPS}));
    REQUIRE(j && j->kind == JSON_OBJECT);
    CHECK_STR(json_get(j, "program")->string, "step");
    const json *kernels = json_get(j, "kernels");
    double last = INFINITY, launches = 0;
    REQUIRE(kernels && kernels->n > 5);
    for (const json *k = kernels->first; k; k = k->next) {
        CHECK(json_get(k, "flops")->number <= last);
        last = json_get(k, "flops")->number;
        launches += json_get(k, "calls")->number;
    }
    CHECK_EQ_INT(launches, f->code->n_steps - f->code->n_init);
    CHECK_STR(json_get(json_get(j, "inputs")->first, "name")->string, "picture");
    CHECK(json_get(j, "not_fused")->n >= 1);
    json_free(j);
    j = json_parse(told(f, &(tc_explain_options){.json = true, .sort = TC_BY_ORDER, .most = 3}));
    REQUIRE(j);
    CHECK_EQ_INT(json_get(j, "kernels")->n, 3);
    json_free(j);
    j = json_parse(told(f, &(tc_explain_options){.json = true, .measure_ms = 50}));
    REQUIRE(j);
    for (const json *k = json_get(j, "kernels")->first; k; k = k->next) {
        CHECK(json_get(k, "measured_ns")->number > 0);
    }
    json_free(j);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

/* The lazy form: which call compiled which part. */
TEST(a_variable_writes_each_program_with_the_call_that_made_it)
{
    begin();
    tc_ctx *ctx;
    tc_options o = default_options();
    float value;
    char want[100];
    setenv("TC_EXPLAIN", in_dir("explain.txt"), 1);
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor x = tc_sum(tc_arange(ctx, 0, 100, 1, TC_F32), TC_ALL, 0);
    int line = __LINE__ + 1;
    CHECK_EQ_INT(tc_read(x, &value, 1), TC_OK);
    CHECK_EQ_INT(tc_read(tc_mul(x, 2), &value, 1), TC_OK);
    unsetenv("TC_EXPLAIN");
    bytes b = read_file(in_dir("explain.txt"));
    b.data[b.n] = 0;
    snprintf(want, sizeof(want), "made by tc_read at test_explain.c:%d\n", line);
    CHECK_HAS((char *)b.data, want);
    snprintf(want, sizeof(want), "made by tc_read at test_explain.c:%d\n", line + 1);
    CHECK_HAS((char *)b.data, want);
    free(b.data);
    tc_ctx_free(ctx);
    end();
}

static void triple_run(void *user, const tc_custom_array *x, int n, tc_custom_array *y)
{
    (void)user, (void)n;
    for (int64_t i = 0; i < y->n; i++) {
        ((float *)y->data)[i] = 3 * ((const float *)x[0].data)[i];
    }
}

/* TC_EXPLAIN=- writes to stderr; a function of the user's has its own name there. */
TEST(a_dash_writes_to_stderr_and_custom_ops_have_their_names)
{
    static const tc_custom_op triple = {.name = "my_triple", .version = 1, .run = triple_run};
    begin();
    tc_ctx *ctx;
    tc_program *f;
    tc_options o = default_options();
    char want[100];
    o.name = "customs";
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 50);
    tc_tensor y = tc_add(tc_custom(&triple, TC_TENSORS(tc_sin(x))), 1);
    fflush(stderr);
    int fd = open(in_dir("stderr"), O_WRONLY | O_CREAT, 0600), saved = dup(2), line;
    setenv("TC_EXPLAIN", "-", 1);
    dup2(fd, 2);
    line = __LINE__ + 1;
    tc_status status = tc_compile(y, &f);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    close(fd);
    unsetenv("TC_EXPLAIN");
    REQUIRE(status == TC_OK);
    bytes b = read_file(in_dir("stderr"));
    b.data[b.n] = 0;
    snprintf(want, sizeof(want), "== program customs, made by tc_compile at test_explain.c:%d\n",
             line);
    CHECK_HAS((char *)b.data, want);
    CHECK_HAS((char *)b.data, "my_triple");
    free(b.data);
    json *j = json_parse(told(f, &(tc_explain_options){.json = true, .sort = TC_BY_ORDER}));
    REQUIRE(j != NULL);
    int custom = 0;
    for (const json *k = json_get(j, "kernels")->first; k; k = k->next) {
        custom += !strcmp(json_get(k, "name")->string, "my_triple");
    }
    CHECK_EQ_INT(custom, 1);
    json_free(j);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

/* The last lines of tc_recompile_report, of what they say of the lazy form. */
static const char *cuts_of(const tc_ctx *ctx)
{
    static char text[20000];
    FILE *file = fmemopen(text, sizeof(text), "w");
    REQUIRE(file != NULL);
    CHECK_EQ_INT(tc_recompile_report(ctx, file), TC_OK);
    fclose(file);
    return text;
}

/* A network of examples/models whose loss, result and largest element are asked for on
 * lines of their own: its values depend on parameters, so each of these computes it all. */
TEST(the_report_says_which_lines_cut_a_network_and_what_is_computed_again)
{
    begin();
    enum { SIDE = 64, CLASSES = 10 };
    tc_ctx *ctx;
    tc_options o = {.backend = "interp", .no_disk_cache = true, .threads = 1};
    static float image[3 * SIDE * SIDE], result[CLASSES], top, loss;
    char want[120];
    tc_tensor logits;
    setenv("TC_EXPLAIN", in_dir("explain.txt"), 1);
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    nn_model model = {.ctx = ctx, .settings = "width_divisor=4 classes=10"};
    const nn_network *network = nn_find("squeezenet1_1");
    int line = 0;
    for (int i = 0; i < 2; i++) {
        tc_tensor x = tc_copy_in(ctx, image, TC_F32, 1, 3, SIDE, SIDE);
        network->build(nn_top(&model), &x, &logits);
        tc_tensor p = tc_softmax(logits, -1), most = tc_max(p, TC_ALL, false);
        line = __LINE__ + 1;
        CHECK_MSG(tc_read(p, result, CLASSES) == TC_OK, "%s", tc_error(p));
        CHECK_EQ_INT(tc_read(most, &top, 1), TC_OK);
        CHECK_EQ_INT(tc_eval(tc_neg(tc_log(most))), TC_OK);
    }
    const char *text = cuts_of(ctx);
    CHECK_HAS(text, "cuts the graph at 3 lines into 3 programs; 2 of them compute most of another");
    CHECK_HAS(text, "and are computed in both");
    bytes b = read_file(in_dir("explain.txt"));
    b.data[b.n] = 0;
    for (int i = 0; i < 3; i++) {
        const char *call = i == 2 ? "tc_eval" : "tc_read";
        snprintf(want, sizeof(want), "test_explain.c:%d: %s: 1 program, ", line + i, call);
        CHECK_HAS(text, want);
        snprintf(want, sizeof(want), "made by %s at test_explain.c:%d\n", call, line + i);
        CHECK_HAS((char *)b.data, want);
    }
    free(b.data);
    unsetenv("TC_EXPLAIN");
    nn_free(&model);
    tc_ctx_free(ctx);
    tc_shutdown();
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK); /* the same with a value that is kept */
    model = (nn_model){.ctx = ctx, .settings = "width_divisor=4 classes=10"};
    tc_tensor x = tc_copy_in(ctx, image, TC_F32, 1, 3, SIDE, SIDE);
    REQUIRE(tc_scope_begin(ctx) == TC_OK);
    network->build(nn_top(&model), &x, &logits);
    tc_tensor p = tc_keep(tc_softmax(logits, -1));
    CHECK_EQ_INT(tc_read(p, result, CLASSES), TC_OK);
    CHECK_EQ_INT(tc_read(tc_max(p, TC_ALL, false), &loss, 1), TC_OK);
    CHECK(loss == top);
    CHECK_HAS(cuts_of(ctx), "cuts the graph at 2 lines into 2 programs\n");
    CHECK_EQ_INT(tc_scope_end(ctx), TC_OK);
    nn_free(&model);
    tc_ctx_free(ctx);
    end();
}

TEST_MAIN
