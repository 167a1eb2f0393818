/* tests/engines/test_seam.c - graph-level backends, by one that needs no engine: it reads the model
 * that it is given with tc_onnx_load_memory, and runs it by the interpreter of a context of its
 * own. It counts what it is asked for, and fails where a test wants it to. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include <string.h>

#include "io.h"
#include "tc_onnx.h"
#include "tc_test.h"

/* ---- the backend ---- */

static struct {
    int compiles, frees, runs, from_blobs;
    int threads;
    char option[32];
    bool missing, refuses, fails, takes_no_tanh;
    const char *chokes_on; /* an ONNX operator whose models are refused, or NULL */
    int most_inputs;       /* of a run */
} mock;

typedef struct mock_program {
    tc_ctx *ctx;
    tc_onnx_model *model;
    tc_program *f;
    char blob[16];
} mock_program;

static bool mock_find(void *user, const char *option, char text[TC_GRAPH_TEXT])
{
    (void)user, (void)option;
    snprintf(text, TC_GRAPH_TEXT,
             mock.missing ? "libmock.so is not there: pip install mock" : "libmock.so");
    return !mock.missing;
}

static tc_status mock_version(void *user, const char *option, char text[TC_GRAPH_TEXT])
{
    (void)user;
    snprintf(text, TC_GRAPH_TEXT, "mock 1.2%s%s", *option ? ", " : "", option);
    return TC_OK;
}

static bool mock_supports(void *user, const char *op, tc_dtype dtype)
{
    (void)user, (void)dtype;
    return !mock.takes_no_tanh || strcmp(op, "tanh");
}

static void mock_free(void *user, void *compiled)
{
    mock_program *p = compiled;
    (void)user;
    mock.frees++;
    tc_program_free(p->f);
    tc_onnx_free(p->model);
    tc_ctx_free(p->ctx);
    free(p);
}

static tc_status mock_compile(void *user, const tc_graph_model *m, void **compiled,
                              char text[TC_GRAPH_TEXT])
{
    mock_program *p = calloc(1, sizeof(*p));
    (void)user;
    mock.compiles++;
    mock.threads = m->threads;
    mock.from_blobs += m->blob != NULL && !memcmp(m->blob, "a blob", m->n_blob);
    snprintf(mock.option, sizeof(mock.option), "%s", m->option);
    REQUIRE(p && tc_ctx_make(&p->ctx, &(tc_options){.backend = "interp", .threads = 1}) == TC_OK);
    tc_status status = tc_onnx_load_memory(p->ctx, m->bytes, m->n, NULL, &p->model);
    if (!status) {
        CHECK_EQ_INT(p->model->n_inputs, m->n_inputs);
        status = tc_compile_fn(TC_TENSORS_N(p->model->inputs, p->model->n_inputs),
                               TC_TENSORS_N(p->model->outputs, p->model->n_outputs), NULL, &p->f);
    }
    bool chokes = mock.chokes_on && memmem(m->bytes, m->n, mock.chokes_on, strlen(mock.chokes_on));
    if (status || mock.refuses || chokes) {
        snprintf(text, TC_GRAPH_TEXT, "%s",
                 status ? tc_error(p->ctx) : "node 7 is not to my taste");
        mock_free(NULL, p);
        return TC_ERR_BACKEND;
    }
    *compiled = p;
    return TC_OK;
}

static tc_status mock_run(void *user, void *compiled, const tc_custom_array *inputs, int n_inputs,
                          tc_custom_array *outputs, int n_outputs, char text[TC_GRAPH_TEXT])
{
    mock_program *p = compiled;
    tc_buf in[40], out[8];
    (void)user;
    mock.runs++;
    mock.most_inputs = n_inputs > mock.most_inputs ? n_inputs : mock.most_inputs;
    REQUIRE(n_inputs <= 40 && n_outputs <= 8);
    for (int i = 0; i < n_inputs + n_outputs; i++) {
        const tc_custom_array *a = i < n_inputs ? &inputs[i] : &outputs[i - n_inputs];
        tc_buf *b = i < n_inputs ? &in[i] : &out[i - n_inputs];
        *b = (tc_buf){.data = a->data,
                      .dtype = a->dtype,
                      .n = a->n,
                      .rank = a->rank,
                      .sizes = a->sizes};
    }
    if (mock.fails) {
        snprintf(text, TC_GRAPH_TEXT, "the mock is out of order");
        return TC_ERR_BACKEND;
    }
    tc_status status = tc_run(p->f, (tc_bufs){in, n_inputs}, (tc_bufs){out, n_outputs});
    snprintf(text, TC_GRAPH_TEXT, "%s", status ? tc_program_error(p->f) : "");
    return status;
}

static const void *mock_blob(void *user, void *compiled, size_t *n)
{
    mock_program *p = compiled;
    (void)user;
    *n = 6;
    return memcpy(p->blob, "a blob", 6);
}

static const tc_graph_backend mock_backend = {.name = "mock",
                                              .format = tc_onnx_format,
                                              .find = mock_find,
                                              .version = mock_version,
                                              .supports = mock_supports,
                                              .compile = mock_compile,
                                              .run = mock_run,
                                              .free = mock_free,
                                              .blob = mock_blob};

/* The same, for which symbolic sizes must not be 0. */
static const tc_graph_backend filled_backend = {.name = "filled",
                                                .format = tc_onnx_format,
                                                .find = mock_find,
                                                .version = mock_version,
                                                .compile = mock_compile,
                                                .run = mock_run,
                                                .free = mock_free,
                                                .needs_elements = true};

/* One of a format without symbolic sizes: its programs are compiled, and not run. */
static tc_status text_compile(void *user, const tc_graph_model *m, void **compiled,
                              char text[TC_GRAPH_TEXT])
{
    (void)user, (void)m, (void)text;
    mock.compiles++;
    *compiled = &mock;
    return TC_OK;
}

static void text_free(void *user, void *compiled)
{
    (void)user, (void)compiled;
}

static const tc_graph_backend text_backend = {.name = "text",
                                              .format = tc_stablehlo_format,
                                              .find = mock_find,
                                              .version = mock_version,
                                              .compile = text_compile,
                                              .run = mock_run,
                                              .free = text_free};

static tc_ctx *ctx;

static void begin(const char *backend, tc_fallback fallback)
{
    static bool registered;
    if (!registered) {
        REQUIRE(tc_register_graph_backend(&filled_backend) == TC_OK);
        REQUIRE(tc_register_graph_backend(&text_backend) == TC_OK);
        REQUIRE(tc_register_graph_backend(&mock_backend) == TC_OK);
        registered = true;
    }
    memset(&mock, 0, sizeof(mock));
    tc_options o = {.backend = backend, .fallback = fallback, .no_disk_cache = true, .threads = 3};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

static void end(void)
{
    tc_ctx_free(ctx);
    ctx = NULL;
}

static const char *explained(tc_program *f)
{
    static char text[4096];
    memset(text, 0, sizeof(text));
    FILE *out = fmemopen(text, sizeof(text) - 1, "w");
    REQUIRE(out != NULL);
    CHECK(tc_explain(f, out) == TC_OK);
    fclose(out);
    return text;
}

/* ---- programs ---- */

TEST(a_program_runs_by_the_engine_and_says_so)
{
    begin("mock:fast", TC_FALLBACK_REFUSE);
    float x[] = {-1, 0, 1, 2}, w[] = {1, 2, 3, 4}, y[4], z[4];
    tc_tensor t = tc_input(ctx, "x", TC_F32, 4);
    tc_tensor p = tc_tanh(tc_mul(t, tc_borrow(ctx, w, TC_F32, 4))), q = tc_add(t, 10);
    tc_program *f = NULL;
    CHECK_MSG(tc_compile_fn(TC_TENSORS(t), TC_TENSORS(p, q), NULL, &f) == TC_OK, "%s",
              tc_error(ctx));
    CHECK(tc_run(f, TC_BUFS(TC_BUF(x, 4)), TC_BUFS(TC_BUF(y, 4), TC_BUF(z, 4))) == TC_OK);
    for (int i = 0; i < 4; i++) {
        CHECK_CLOSE(y[i], tanh(x[i] * w[i]), 1e-6);
        CHECK_CLOSE(z[i], x[i] + 10, 0);
    }
    CHECK_EQ_INT(mock.compiles, 1);
    CHECK_EQ_INT(mock.runs, 1);
    CHECK_EQ_INT(mock.threads, 3);
    CHECK_STR(mock.option, "fast");
    tc_program_info info;
    CHECK(tc_program_get_info(f, &info) == TC_OK);
    CHECK_STR(info.backend, "mock:fast");
    CHECK_EQ_INT(info.n_kernels, 1);
    CHECK_HAS(explained(f), "mock 1.2, fast");
    CHECK_HAS(explained(f), "a model in ONNX");
    tc_program_free(f);
    end();
    tc_shutdown();
    CHECK_EQ_INT(mock.frees, 1);
}

TEST(strided_buffers_are_taken)
{
    begin("mock", TC_FALLBACK_REFUSE);
    float x[] = {1, 2, 3, 4, 5, 6}, y[6] = {0};
    tc_tensor t = tc_input(ctx, "x", TC_F32, 2, 3), r = tc_mul(t, 2);
    tc_program *f = NULL;
    REQUIRE(tc_compile(r, &f) == TC_OK);
    tc_buf transposed = {.data = x,
                         .dtype = TC_F32,
                         .n = 6,
                         .rank = 2,
                         .sizes = (int64_t[]){2, 3},
                         .strides = (int64_t[]){1, 2}};
    CHECK_MSG(tc_run(f, (tc_bufs){&transposed, 1}, TC_BUFS(TC_BUF(y, 6))) == TC_OK, "%s",
              tc_program_error(f));
    const float expected[] = {2, 6, 10, 4, 8, 12};
    for (int i = 0; i < 6; i++) {
        CHECK_CLOSE(y[i], expected[i], 0);
    }
    tc_program_free(f);
    end();
}

TEST(parameters_are_inputs_and_effects_set_them)
{
    begin("mock", TC_FALLBACK_REFUSE);
    float w[] = {1, 2}, x[] = {3, 5}, y[2], now[2];
    tc_tensor t = tc_input(ctx, "x", TC_F32, 2);
    tc_tensor p = tc_param(ctx, w, TC_F32, 2);
    tc_tensor y_of = tc_mul(t, p), step = tc_assign(p, tc_sub(p, t));
    tc_program *f = NULL;
    CHECK_MSG(tc_compile_fn(TC_TENSORS(t), TC_TENSORS(y_of, step), NULL, &f) == TC_OK, "%s",
              tc_error(ctx));
    for (int k = 0; k < 3; k++) {
        CHECK(tc_run(f, TC_BUFS(TC_BUF(x, 2)), TC_BUFS(TC_BUF(y, 2))) == TC_OK);
        CHECK_CLOSE(y[0], (1 - 3 * k) * 3, 0);
    }
    CHECK(tc_read(p, now, 2) == TC_OK);
    CHECK_CLOSE(now[0], -8, 0);
    CHECK_CLOSE(now[1], -13, 0);
    mock.fails = true; /* a run that fails changes nothing */
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, 2)), TC_BUFS(TC_BUF(y, 2))), TC_ERR_BACKEND);
    CHECK(tc_read(p, now, 2) == TC_OK);
    CHECK_CLOSE(now[0], -8, 0);
    CHECK_EQ_INT(mock.compiles, 1);
    tc_program_free(f);
    end();
}

TEST(one_program_serves_symbolic_sizes)
{
    begin("mock", TC_FALLBACK_REFUSE);
    tc_tensor t = tc_input(ctx, "x", TC_F32, TC_DIM("n", 1, 16), 2);
    tc_tensor s = tc_add(tc_sum(t, TC_AXES(1), false), 1);
    tc_program *f = NULL;
    CHECK_MSG(tc_compile(s, &f) == TC_OK, "%s", tc_error(s));
    for (int n = 1; f && n <= 5; n += 2) {
        float x[10], y[5];
        for (int i = 0; i < 2 * n; i++) {
            x[i] = (float)i;
        }
        CHECK_MSG(tc_run(f, TC_BUFS(TC_BUF(x, 2 * n)), TC_BUFS(TC_BUF(y, n))) == TC_OK, "%s",
                  tc_program_error(f));
        CHECK_CLOSE(y[n - 1], 4 * n - 2, 0);
    }
    CHECK_EQ_INT(mock.compiles, 1);
    CHECK_EQ_INT(mock.runs, 3);
    tc_program_free(f);
    end();
}

TEST(equal_graphs_share_a_program_and_other_constants_do_not)
{
    begin("mock", TC_FALLBACK_REFUSE);
    float w[] = {1, 2}, v[] = {3, 4}, x[] = {1, 1}, y[2];
    tc_tensor t = tc_input(ctx, "x", TC_F32, 2), a = tc_borrow(ctx, w, TC_F32, 2);
    tc_tensor b = tc_borrow(ctx, v, TC_F32, 2);
    tc_program *f[4] = {NULL};
    CHECK(tc_compile(tc_mul(t, a), &f[0]) == TC_OK);
    CHECK(tc_compile(tc_mul(t, a), &f[1]) == TC_OK);
    CHECK_EQ_INT(mock.compiles, 1);
    CHECK(tc_compile(tc_mul(t, b), &f[2]) == TC_OK);
    CHECK_EQ_INT(mock.compiles, 2);
    CHECK(tc_compile(tc_mul(t, 5.5), &f[3]) == TC_OK);
    CHECK_EQ_INT(mock.compiles, 3);
    CHECK(tc_run(f[2], TC_BUFS(TC_BUF(x, 2)), TC_BUFS(TC_BUF(y, 2))) == TC_OK);
    CHECK_CLOSE(y[1], 4, 0);
    w[0] = 7;
    CHECK(tc_touch(a) == TC_OK);
    CHECK_EQ_INT(tc_run(f[0], TC_BUFS(TC_BUF(x, 2)), TC_BUFS(TC_BUF(y, 2))), TC_ERR_BACKEND);
    CHECK_HAS(tc_program_error(f[0]), "compile it again");
    tc_program_free(f[1]);
    CHECK(tc_compile(tc_mul(t, a), &f[1]) == TC_OK);
    CHECK(tc_run(f[1], TC_BUFS(TC_BUF(x, 2)), TC_BUFS(TC_BUF(y, 2))) == TC_OK);
    CHECK_CLOSE(y[0], 7, 0);
    for (int i = 0; i < 4; i++) {
        tc_program_free(f[i]);
    }
    end();
}

/* ---- refusals ---- */

TEST(a_run_that_fails_has_the_engines_words)
{
    begin("mock", TC_FALLBACK_REFUSE);
    float x[] = {1}, y[1];
    tc_tensor t = tc_input(ctx, "x", TC_F32, 1);
    tc_program *f = NULL;
    REQUIRE(tc_compile(tc_exp(t), &f) == TC_OK);
    mock.fails = true;
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, 1)), TC_BUFS(TC_BUF(y, 1))), TC_ERR_BACKEND);
    CHECK_HAS(tc_program_error(f), "mock: the mock is out of order");
    mock.fails = false;
    CHECK(tc_run(f, TC_BUFS(TC_BUF(x, 1)), TC_BUFS(TC_BUF(y, 1))) == TC_OK);
    tc_program_free(f);
    end();
}

/* Status and text of y's compile. */
static void refused(tc_tensor y, tc_status status, const char *text)
{
    tc_program *f = NULL;
    CHECK_EQ_INT(tc_compile(y, &f), status);
    CHECK_HAS(tc_error(y), text);
    tc_program_free(f);
}

TEST(what_the_engine_refuses_is_refused_with_its_words)
{
    begin("mock", TC_FALLBACK_REFUSE);
    tc_tensor t = tc_input(ctx, "x", TC_F32, 3);
    mock.refuses = true;
    refused(tc_exp(t), TC_ERR_BACKEND, "mock: node 7 is not to my taste");
    mock.refuses = false;
    mock.missing = true;
    refused(tc_exp(t), TC_ERR_BACKEND, "pip install mock");
    mock.missing = false;
    mock.takes_no_tanh = true;
    refused(tc_tanh(t), TC_ERR_UNSUPPORTED, "mock does not take tc_tanh of f32, made at");
    refused(tc_gcd(tc_cast(t, TC_U64), 12), TC_ERR_UNSUPPORTED, "has no form in ONNX");
    end();
}

TEST(what_the_engine_refuses_is_compiled_by_tc_where_that_is_allowed)
{
    begin("mock", TC_FALLBACK_ALLOW);
    float x[] = {1, 2, 3}, y[3];
    tc_tensor t = tc_input(ctx, "x", TC_F32, 3);
    tc_program *f = NULL;
    mock.refuses = true;
    CHECK_MSG(tc_compile(tc_add(t, 1), &f) == TC_OK, "%s", tc_error(ctx));
    CHECK(tc_run(f, TC_BUFS(TC_BUF(x, 3)), TC_BUFS(TC_BUF(y, 3))) == TC_OK);
    CHECK_CLOSE(y[2], 4, 0);
    tc_program_info info;
    CHECK(tc_program_get_info(f, &info) == TC_OK);
    CHECK(strcmp(info.backend, "mock") != 0);
    CHECK_HAS(explained(f), "node 7 is not to my taste");
    CHECK_EQ_INT(mock.runs, 0);
    tc_program_free(f);
    end();
}

/* ---- split graphs ---- */

/* Compiles outputs of ctx for the mock, which takes parts of them, and runs them; NULL: it failed.
 * The interpreter's results of the same graph are in want. */
static tc_program *split(tc_tensors inputs, tc_tensors outputs, tc_bufs in, tc_bufs out,
                         tc_bufs want)
{
    tc_program *f = NULL, *plain = NULL;
    if (tc_compile_fn(inputs, outputs, &(tc_options){.backend = "interp"}, &plain) ||
        tc_run(plain, in, want)) {
        CHECK_MSG(false, "%s", tc_error(ctx));
    }
    tc_program_free(plain);
    if (tc_compile_fn(inputs, outputs, NULL, &f) || tc_run(f, in, out)) {
        CHECK_MSG(false, "%s", f ? tc_program_error(f) : tc_error(ctx));
        tc_program_free(f);
        return NULL;
    }
    return f;
}

TEST(a_graph_with_an_op_that_the_engine_lacks_is_split)
{
    begin("mock", TC_FALLBACK_ALLOW);
    float x[] = {-1, 0, 1, 2}, w[] = {1, 2, 3, 4}, y[4], want[4];
    tc_tensor t = tc_input(ctx, "x", TC_F32, 4);
    tc_tensor weights = tc_borrow(ctx, w, TC_F32, 4);
    tc_tensor r = tc_add(tc_abs(tc_tanh(tc_mul(tc_exp(t), weights))), 3.25);
    mock.takes_no_tanh = true;
    tc_program *f = split(TC_TENSORS(t), TC_TENSORS(r), TC_BUFS(TC_BUF(x, 4)),
                          TC_BUFS(TC_BUF(y, 4)), TC_BUFS(TC_BUF(want, 4)));
    REQUIRE(f != NULL);
    CHECK_EQ_INT(mock.compiles, 2);
    CHECK_EQ_INT(mock.runs, 2);
    for (int i = 0; i < 4; i++) {
        CHECK_CLOSE(y[i], want[i], 0);
        CHECK_CLOSE(y[i], fabs(tanh(exp(x[i]) * w[i])) + 3.25, 1e-5);
    }
    const char *text = explained(f);
    CHECK_HAS(text, "part 1 of 2: 2 nodes, 1 input, 1 result, on mock: mock 1.2");
    CHECK_HAS(text, "part 2 of 2: 2 nodes, 1 input, 1 result, on mock: mock 1.2");
    CHECK_HAS(text, "the rest, 1 node, by tc");
    CHECK_HAS(text, "mock does not take tc_tanh of f32, made at");
    w[1] = 7; /* the first part has a copy of w */
    CHECK(tc_touch(weights) == TC_OK);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, 4)), TC_BUFS(TC_BUF(y, 4))), TC_ERR_BACKEND);
    CHECK_HAS(tc_program_error(f), "compile it again");
    tc_program_free(f);
    end();
}

TEST(a_split_graph_is_refused_where_no_fallback_is_allowed)
{
    begin("mock", TC_FALLBACK_REFUSE);
    tc_tensor t = tc_input(ctx, "x", TC_F32, 4);
    mock.takes_no_tanh = true;
    refused(tc_add(tc_tanh(tc_exp(t)), 1), TC_ERR_UNSUPPORTED, "mock does not take tc_tanh");
    CHECK_EQ_INT(mock.compiles, 0);
    end();
}

static void twice_run(void *user, const tc_custom_array *inputs, int n, tc_custom_array *result)
{
    (void)user, (void)n;
    for (int64_t i = 0; i < result->n; i++) {
        ((float *)result->data)[i] = 2 * ((const float *)inputs[0].data)[i];
    }
}

TEST(a_function_of_the_users_is_called_by_tc)
{
    begin("mock", TC_FALLBACK_ALLOW);
    float x[] = {1, 2, 3}, y[3], want[3];
    tc_tensor t = tc_input(ctx, "x", TC_F32, 3);
    static const tc_custom_op twice = {.name = "twice", .run = twice_run};
    tc_tensor r = tc_add(tc_exp(t), tc_custom(&twice, TC_TENSORS(tc_mul(t, t))));
    tc_program *f = split(TC_TENSORS(t), TC_TENSORS(r), TC_BUFS(TC_BUF(x, 3)),
                          TC_BUFS(TC_BUF(y, 3)), TC_BUFS(TC_BUF(want, 3)));
    REQUIRE(f != NULL);
    CHECK_EQ_INT(mock.runs, 2); /* exp and the product; the sum */
    for (int i = 0; i < 3; i++) {
        CHECK_CLOSE(y[i], want[i], 0);
        CHECK_CLOSE(y[i], exp(x[i]) + 2 * x[i] * x[i], 1e-5);
    }
    tc_program_free(f);
    end();
}

TEST(a_node_at_which_the_engine_refuses_the_model_is_found_and_computed_by_tc)
{
    tc_shutdown(); /* what other tests compiled is freed */
    begin("mock", TC_FALLBACK_ALLOW);
    float x[] = {1, 2, 3}, y[3], want[3];
    tc_tensor t = tc_input(ctx, "x", TC_F32, 3);
    tc_tensor r = tc_sqrt(tc_abs(tc_sin(tc_add(tc_mul(t, t), 1))));
    mock.chokes_on = "Sin";
    tc_program *f = split(TC_TENSORS(t), TC_TENSORS(r), TC_BUFS(TC_BUF(x, 3)),
                          TC_BUFS(TC_BUF(y, 3)), TC_BUFS(TC_BUF(want, 3)));
    REQUIRE(f != NULL);
    CHECK_EQ_INT(mock.runs, 2);
    for (int i = 0; i < 3; i++) {
        CHECK_CLOSE(y[i], want[i], 0);
    }
    CHECK_HAS(explained(f), "node 7 is not to my taste");
    CHECK_HAS(explained(f), "the rest, 1 node, by tc");
    tc_program_free(f);
    end();
    tc_shutdown();
    CHECK_EQ_INT(mock.frees, mock.compiles); /* probes and refused programs too */
}

TEST(a_part_may_have_many_inputs_and_results_of_several_dtypes)
{
    begin("mock", TC_FALLBACK_ALLOW);
    float x[30][3], a[3], wa[3];
    double b[3], wb[3];
    bool c[3], wc[3];
    int64_t d[1], wd[1];
    tc_tensor t[30], sum = TC_NONE;
    tc_buf in[30];
    for (int i = 0; i < 30; i++) {
        t[i] = tc_input(ctx, "x", TC_F32, 3);
        for (int k = 0; k < 3; k++) {
            x[i][k] = (float)(i + k) / 7;
        }
        in[i] = TC_BUF(x[i], 3);
        sum = i ? tc_add(sum, tc_mul(t[i], i)) : t[0];
    }
    mock.takes_no_tanh = true;
    tc_tensor wide = tc_cast(sum, TC_F64), less = tc_lt(sum, 200);
    tc_tensor most = tc_argmax(sum, 0, false);
    tc_tensors outputs = TC_TENSORS(
        tc_tanh(sum), tc_tanh(wide), less,
        tc_add(most, tc_cast(tc_sum(tc_tanh(tc_cast(less, TC_F32)), TC_ALL, false), TC_I64)));
    tc_program *f = split(TC_TENSORS_N(t, 30), outputs, TC_BUFS_N(in, 30),
                          TC_BUFS(TC_BUF(a, 3), TC_BUF(b, 3), TC_BUF(c, 3), TC_BUF(d, 1)),
                          TC_BUFS(TC_BUF(wa, 3), TC_BUF(wb, 3), TC_BUF(wc, 3), TC_BUF(wd, 1)));
    REQUIRE(f != NULL);
    CHECK_EQ_INT(mock.most_inputs, 30);
    for (int i = 0; i < 3; i++) {
        CHECK_CLOSE(a[i], wa[i], 0);
        CHECK_CLOSE(b[i], wb[i], 0);
        CHECK_EQ_INT(c[i], wc[i]);
    }
    CHECK_EQ_INT(d[0], wd[0]);
    tc_program_free(f);
    end();
}

TEST(parts_are_convex)
{
    /* the engine's product needs tanh(exp(x)) and exp(x): one part of both would need itself */
    begin("mock", TC_FALLBACK_ALLOW);
    float x[] = {0.1f, 0.2f}, y[2], want[2];
    tc_tensor t = tc_input(ctx, "x", TC_F32, 2), e = tc_exp(t);
    mock.takes_no_tanh = true;
    tc_tensor r = tc_mul(tc_add(e, tc_tanh(e)), tc_tanh(tc_sub(e, tc_tanh(tc_sqrt(e)))));
    tc_program *f = split(TC_TENSORS(t), TC_TENSORS(r), TC_BUFS(TC_BUF(x, 2)),
                          TC_BUFS(TC_BUF(y, 2)), TC_BUFS(TC_BUF(want, 2)));
    REQUIRE(f != NULL);
    CHECK_EQ_INT(mock.runs, 3);
    CHECK_CLOSE(y[0], want[0], 0);
    CHECK_CLOSE(y[1], want[1], 0);
    tc_program_free(f);
    end();
}

TEST(a_training_step_is_split_and_its_effects_are_tcs)
{
    begin("mock", TC_FALLBACK_ALLOW);
    float w[] = {1, 2}, x[] = {3, 5}, y[1], now[2];
    tc_tensor t = tc_input(ctx, "x", TC_F32, 2), p = tc_param(ctx, w, TC_F32, 2);
    tc_tensor loss = tc_sum(tc_mul(tc_tanh(tc_mul(t, p)), 2), TC_ALL, false);
    tc_tensor g;
    REQUIRE(tc_grad(loss, &p, 1, &g) == TC_OK);
    tc_tensor step = tc_assign(p, tc_sub(p, tc_mul(g, 0.5)));
    tc_program *f = NULL;
    mock.takes_no_tanh = true;
    CHECK_MSG(tc_compile_fn(TC_TENSORS(t), TC_TENSORS(loss, step), NULL, &f) == TC_OK, "%s",
              tc_error(ctx));
    double own[] = {1, 2};
    for (int k = 0; k < 3; k++) {
        double expected = 0;
        CHECK_MSG(tc_run(f, TC_BUFS(TC_BUF(x, 2)), TC_BUFS(TC_BUF(y, 1))) == TC_OK, "%s",
                  tc_program_error(f));
        for (int i = 0; i < 2; i++) {
            double h = tanh(own[i] * x[i]);
            expected += 2 * h;
            own[i] -= 0.5 * 2 * (1 - h * h) * x[i];
        }
        CHECK_CLOSE(y[0], expected, 1e-5);
    }
    CHECK(mock.runs >= 6);
    CHECK(tc_read(p, now, 2) == TC_OK);
    CHECK_CLOSE(now[0], own[0], 1e-5);
    CHECK_CLOSE(now[1], own[1], 1e-5);
    mock.fails = true; /* a part that fails changes nothing */
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, 2)), TC_BUFS(TC_BUF(y, 1))), TC_ERR_BACKEND);
    CHECK_HAS(tc_program_error(f), "mock: the mock is out of order");
    CHECK(tc_read(p, now, 2) == TC_OK);
    CHECK_CLOSE(now[0], own[0], 1e-5);
    tc_program_free(f);
    end();
}

static tc_status decay(void *user, const tc_tensor *carry, const tc_tensor *x, tc_tensor *next,
                       tc_tensor *y)
{
    (void)y;
    next[0] = tc_add(tc_mul(carry[0], 0.5), *(bool *)user ? tc_tanh(x[0]) : x[0]);
    return TC_OK;
}

TEST(a_loop_is_on_one_side)
{
    for (int k = 0; k < 2; k++) {
        begin("mock", TC_FALLBACK_ALLOW);
        float x[] = {1, 2, 3, 4, 5, 6}, y[2], want[2];
        bool with_tanh = k;
        tc_tensor t = tc_input(ctx, "x", TC_F32, 3, 2), last;
        mock.takes_no_tanh = true;
        tc_tensor zero = tc_mul(tc_slice(t, 0, 0, 1, 1), 0);
        CHECK(tc_scan(TC_TENSORS(tc_reshape(zero, 2)), TC_TENSORS(tc_exp(t)), 0, false, decay,
                      &with_tanh, &last, NULL, 0) == TC_OK);
        tc_tensor r = tc_add(tc_tanh(last), tc_sqrt(last));
        tc_program *f = split(TC_TENSORS(t), TC_TENSORS(r), TC_BUFS(TC_BUF(x, 6)),
                              TC_BUFS(TC_BUF(y, 2)), TC_BUFS(TC_BUF(want, 2)));
        REQUIRE(f != NULL);
        CHECK_CLOSE(y[0], want[0], 0);
        CHECK_CLOSE(y[1], want[1], 0);
        CHECK_HAS(explained(f), with_tanh ? "loop_add_mul_tanh" : "the rest, 1 node, by tc");
        CHECK_HAS(explained(f), with_tanh ? "the rest, 3 nodes, by tc" : "part 1 of 2: 7 nodes");
        tc_program_free(f);
        end();
    }
}

TEST(programs_of_engines_are_not_written_to_files)
{
    for (int k = 0; k < 2; k++) {
        begin("mock", TC_FALLBACK_ALLOW);
        mock.takes_no_tanh = k;
        tc_program *f = NULL;
        tc_tensor t = tc_input(ctx, "x", TC_F32, 3);
        REQUIRE(tc_compile(tc_add(tc_tanh(tc_exp(t)), 1), &f) == TC_OK);
        CHECK_EQ_INT(tc_program_save(f, io_path("engine.tcp"), NULL), TC_ERR_UNSUPPORTED);
        CHECK_HAS(tc_program_error(f), "an engine");
        tc_program_free(f);
        end();
    }
    io_clean();
}

TEST(a_split_program_serves_symbolic_sizes)
{
    begin("mock", TC_FALLBACK_ALLOW);
    mock.takes_no_tanh = true;
    tc_tensor t = tc_input(ctx, "x", TC_F32, TC_DIM("n", 1, 16), 2);
    tc_tensor e = tc_exp(t), s = tc_sum(e, TC_AXES(1), false);
    tc_program *f = NULL;
    tc_tensors outputs = TC_TENSORS(tc_tanh(e), tc_add(tc_tanh(s), tc_cast(tc_lt(s, 3), TC_F32)));
    CHECK_MSG(tc_compile_fn(TC_TENSORS(t), outputs, NULL, &f) == TC_OK, "%s", tc_error(ctx));
    for (int n = 1; f && n <= 7; n += 3) {
        float x[14], y[14], z[7];
        for (int i = 0; i < 2 * n; i++) {
            x[i] = (float)(i - 3) / 5;
        }
        CHECK_MSG(tc_run(f, TC_BUFS(TC_BUF(x, 2 * n)), TC_BUFS(TC_BUF(y, 2 * n), TC_BUF(z, n))) ==
                      TC_OK,
                  "%s", tc_program_error(f));
        for (int i = 0; i < 2 * n; i++) {
            CHECK_CLOSE(y[i], tanh(exp(x[i])), 1e-6);
        }
        double sum = exp(x[2 * n - 2]) + exp(x[2 * n - 1]);
        CHECK_CLOSE(z[n - 1], tanh(sum) + (sum < 3), 1e-6);
    }
    CHECK(mock.runs >= 3);
    tc_program_free(f);
    end();
}

/* ---- sizes ---- */

/* exp and sum of x [rows, 2]; the text of tc_explain. */
static const char *sums_explained(const char *backend, tc_fallback fallback, int64_t rows)
{
    begin(backend, fallback);
    tc_tensor x = tc_input(ctx, "x", TC_F32, rows, 2), e = tc_exp(x);
    tc_program *f = NULL;
    const char *text;
    tc_status status = tc_compile_fn(TC_TENSORS(x), TC_TENSORS(e, tc_sum(e, TC_AXES(0), false)),
                                     NULL, &f);
    if (status) {
        CHECK_EQ_INT(status, TC_ERR_UNSUPPORTED);
        CHECK_HAS(tc_error(ctx),
                  "filled does not take tc_sum of f32 of an operand that may have no "
                  "elements, made at ");
        end();
        return "refused";
    }
    int n = rows == 0 ? 0 : 3;
    float in[] = {1, 2, 3, 4, 5, 6}, out[6], sum[2] = {7, 7};
    CHECK_MSG(tc_run(f, TC_BUFS(TC_BUF(in, 2 * n)), TC_BUFS(TC_BUF(out, 2 * n), TC_BUF(sum, 2))) ==
                  TC_OK,
              "%s", tc_program_error(f));
    CHECK_CLOSE(sum[0], n ? exp(1) + exp(3) + exp(5) : 0, 1e-6);
    CHECK_CLOSE(sum[1], n ? exp(2) + exp(4) + exp(6) : 0, 1e-6);
    text = explained(f);
    tc_program_free(f);
    end();
    return text;
}

TEST(nodes_that_read_no_elements_are_tcs)
{
    int64_t some = TC_DIM("some", 1, 8), any = TC_DIM("any", 0, 8);
    CHECK_HAS(sums_explained("filled", TC_FALLBACK_ALLOW, 3), "the whole graph");
    CHECK_HAS(sums_explained("filled", TC_FALLBACK_ALLOW, some), "the whole graph");
    CHECK_HAS(sums_explained("filled", TC_FALLBACK_ALLOW, any), "the rest, 1 node, by tc");
    CHECK_HAS(sums_explained("mock", TC_FALLBACK_REFUSE, any), "the whole graph");
    CHECK_HAS(sums_explained("mock", TC_FALLBACK_ALLOW, 0), "the rest, 1 node, by tc");
    CHECK_STR(sums_explained("filled", TC_FALLBACK_REFUSE, any), "refused");
}

TEST(a_format_without_symbolic_sizes_refuses_them)
{
    float w[8] = {0, 1, 2, 3, 4, 5, 6, 7}, x[3] = {1, 2, 3}, y[3], z = 0;
    tc_program *f = NULL;
    begin("text", TC_FALLBACK_REFUSE);
    tc_tensor t = tc_input(ctx, "x", TC_F32, TC_DIM("n", 1, 8));
    CHECK_EQ_INT(tc_compile(tc_exp(t), &f), TC_ERR_UNSUPPORTED);
    CHECK_HAS(tc_error(ctx), "text does not take tc_exp of f32 with the symbolic size n, made at ");
    CHECK_EQ_INT(tc_compile(t, &f), TC_ERR_UNSUPPORTED);
    CHECK_HAS(tc_error(ctx), "the size n is symbolic: StableHLO is exported for known sizes");
    end();
    begin("text", TC_FALLBACK_ALLOW);
    t = tc_input(ctx, "x", TC_F32, TC_DIM("n", 1, 7));
    tc_tensor last = tc_select(tc_borrow(ctx, w, TC_F32, 8), 0, tc_size(t, 0)); /* w[n] */
    CHECK_MSG(tc_compile_fn(TC_TENSORS(t), TC_TENSORS(tc_mul(t, 2), last), NULL, &f) == TC_OK, "%s",
              tc_error(ctx));
    REQUIRE(f != NULL);
    CHECK(tc_run(f, TC_BUFS(TC_BUF(x, 3)), TC_BUFS(TC_BUF(y, 3), TC_BUF(&z, 1))) == TC_OK);
    CHECK(y[0] == 2 && y[1] == 4 && y[2] == 6 && z == 3);
    CHECK_EQ_INT(mock.compiles, 0);
    tc_program_free(f);
    end();
}

/* ---- the registry ---- */

TEST(backends_are_listed_with_what_was_found)
{
    begin("mock", TC_FALLBACK_ALLOW);
    const char *names[32];
    int n = tc_list_backends(names, 32);
    CHECK_STR(names[n - 1], "mock");
    const tc_backend_entry *e = tc_backend_at(n - 1);
    REQUIRE(e != NULL);
    CHECK_STR(e->name, "mock");
    CHECK(e->usable);
    CHECK_STR(e->found, "libmock.so");
    CHECK(tc_backend_at(n) == NULL);
    CHECK_EQ_INT(mock.compiles, 0);
    end();
}

TEST(a_name_that_is_taken_or_malformed_is_refused)
{
    begin("mock", TC_FALLBACK_ALLOW);
    tc_graph_backend b = mock_backend;
    CHECK_EQ_INT(tc_register_graph_backend(&b), TC_ERR_ARGUMENT);
    const char *const bad[] = {"cpu", "interp", "cuda", "", "a:b", "sixteen_letters_", NULL};
    for (int i = 0; i < 7; i++) {
        b.name = bad[i];
        CHECK_EQ_INT(tc_register_graph_backend(&b), TC_ERR_ARGUMENT);
    }
    b.name = "mock2";
    b.run = NULL;
    CHECK_EQ_INT(tc_register_graph_backend(&b), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_register_graph_backend(NULL), TC_ERR_ARGUMENT);
    tc_ctx *none = NULL;
    CHECK_EQ_INT(tc_ctx_make(&none, &(tc_options){.backend = "mock2"}), TC_ERR_BACKEND);
    end();
}

TEST(the_engines_blob_is_found_on_disk)
{
    begin("mock", TC_FALLBACK_REFUSE);
    end();
    for (int k = 0; k < 2; k++) {
        tc_options o = {.backend = "mock",
                        .fallback = TC_FALLBACK_REFUSE,
                        .cache_dir = io_path("cache")};
        REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        tc_tensor t = tc_input(ctx, "x", TC_F32, 3);
        float w[] = {1, 2, 3}, x[] = {1, 1, 1}, y[3];
        tc_program *f = NULL;
        tc_tensor r = tc_add(t, tc_borrow(ctx, w, TC_F32, 3));
        CHECK_MSG(tc_compile(r, &f) == TC_OK, "%s", tc_error(ctx));
        CHECK_EQ_INT(mock.from_blobs, k);
        CHECK(tc_run(f, TC_BUFS(TC_BUF(x, 3)), TC_BUFS(TC_BUF(y, 3))) == TC_OK);
        CHECK_CLOSE(y[2], 4, 0);
        tc_program_free(f);
        end();
    }
    io_clean();
}

TEST_MAIN
