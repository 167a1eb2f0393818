/* tests/onnx/test_import.c - ONNX models in, judged by the outputs that the ONNX project gives for
 * them, and models made here. tests/data/onnx/README.md says where cases.safetensors is from. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include <sys/stat.h>

#include "bytes.h"
#include "cases.h"

TEST(kept_cases_give_their_outputs_interpreted)
{
    begin("interp");
    CHECK_EQ_INT(judge_kept(1, false), 319);
    end();
}

TEST(kept_cases_give_their_outputs_as_native_code)
{
    begin("cpu");
    CHECK(judge_kept(tct_soak ? 1 : 8, false) >= 39);
    end();
}

TEST(exported_cases_give_the_same_outputs_when_they_are_loaded_again)
{
    begin("interp");
    int judged = judge_kept(1, true);
    CHECK_MSG(judged >= 270, "%d", judged); /* others have no form, by name */
    end();
    io_clean();
}

TEST(cases_of_the_onnx_project_give_their_outputs)
{
    judge_project("interp");
}

TEST(cases_of_the_onnx_project_give_their_outputs_as_native_code)
{
    if (!tct_soak) {
        SKIP("only in soak");
    }
    judge_project("cpu");
}

/* ---- models made here ---- */

static const char *const one_size[] = {"4", NULL};

static tc_status load(const message *graph, const tc_onnx_options *options, tc_onnx_model **m)
{
    message bytes = model_of(graph);
    return tc_onnx_load_memory(ctx, bytes.at, bytes.n, options, m);
}

TEST(an_op_that_is_not_supported_is_named_with_its_node)
{
    tc_onnx_model *m = NULL;
    message g = {.n = 0};
    begin("interp");
    add_info(&g, 11, "x", 1, one_size);
    add_node(&g, "Relu x > y", -1);
    add_node(&g, "Fancy y > z", -1);
    add_info(&g, 12, "z", 1, one_size);
    CHECK(load(&g, NULL, &m) == TC_ERR_UNSUPPORTED);
    CHECK(m == NULL);
    CHECK_HAS(tc_error(ctx), "node 1 here (Fancy)");
    CHECK_HAS(tc_error(ctx), "test_import.c");
    end();
}

TEST(a_dtype_that_tc_lacks_is_refused_by_name)
{
    tc_onnx_model *m = NULL;
    message g = {.n = 0};
    begin("interp");
    add_info(&g, 11, "x", 17, one_size);
    add_node(&g, "Relu x > y", -1);
    add_info(&g, 12, "y", 17, one_size);
    CHECK(load(&g, NULL, &m) == TC_ERR_UNSUPPORTED);
    CHECK_HAS(tc_error(ctx), "FLOAT8E4M3FN");
    end();
}

TEST(a_graph_that_is_not_in_order_is_refused)
{
    tc_onnx_model *m = NULL;
    message g = {.n = 0};
    begin("interp");
    add_info(&g, 11, "x", 1, one_size);
    add_node(&g, "Add x z > y", -1);
    add_node(&g, "Relu y > z", -1);
    add_info(&g, 12, "z", 1, one_size);
    CHECK(load(&g, NULL, &m) == TC_ERR_IO);
    CHECK_HAS(tc_error(ctx), "cycle");
    end();
}

TEST(data_of_another_length_than_its_sizes_is_refused)
{
    tc_onnx_model *m = NULL;
    message g = {.n = 0};
    float three[3] = {1, 2, 3};
    begin("interp");
    add_tensor(&g, "w", 1, 4, three, sizeof(three));
    add_info(&g, 12, "w", 1, one_size);
    CHECK(load(&g, NULL, &m) == TC_ERR_IO);
    CHECK_HAS(tc_error(ctx), "12 bytes");
    end();
}

TEST(a_shape_that_follows_from_an_input_wants_its_value)
{
    static const char *const list[] = {"2", NULL};
    static const int64_t shape[] = {2, 2}, two = 2, four = 4;
    tc_onnx_model *m = NULL;
    message g = {.n = 0};
    begin("interp");
    add_info(&g, 11, "x", 1, one_size);
    add_info(&g, 11, "shape", 7, list);
    add_node(&g, "Reshape x shape > y", -1);
    add_info(&g, 12, "y", 1, NULL);
    CHECK(load(&g, NULL, &m) == TC_ERR_UNSUPPORTED);
    CHECK_HAS(tc_error(ctx), "input shape");
    tc_onnx_input told[] = {{"shape", 1, &two, shape}, {"x", 1, &four, NULL}};
    tc_onnx_options o = {.inputs = told, .n_inputs = 2};
    REQUIRE(load(&g, &o, &m) == TC_OK);
    CHECK_EQ_INT(m->n_inputs, 1); /* the shape is a constant now */
    CHECK_STR(m->input_names[0], "x");
    CHECK_EQ_INT(tc_rank(m->outputs[0]), 2);
    tc_onnx_free(m);
    end();
}

/* y = reshape(x, [n / 2, 2 m]) by Shape, Gather, Div, Mul and Concat; z = sum of y along axis 1. */
static message halved(void)
{
    static const char *const sizes[] = {"n", "m", NULL}, *const open[] = {"p", "q", NULL};
    const int64_t zero = 0, one = 1, two = 2;
    message g = {.n = 0};
    add_info(&g, 11, "x", 1, sizes);
    add_tensor(&g, "zero", 7, 1, &zero, 8);
    add_tensor(&g, "one", 7, 1, &one, 8);
    add_tensor(&g, "two", 7, 1, &two, 8);
    add_node(&g, "Shape x > s", -1);
    add_node(&g, "Gather s zero > n", 0);
    add_node(&g, "Gather s one > m", 0);
    add_node(&g, "Div n two > p", -1);
    add_node(&g, "Mul m two > q", -1);
    add_node(&g, "Concat p q > to", 0);
    add_node(&g, "Reshape x to > y", -1);
    add_info(&g, 12, "y", 1, open);
    return g;
}

TEST(shape_arithmetic_with_symbolic_sizes_leaves_one_program)
{
    tc_onnx_model *m = NULL;
    message g = halved();
    begin("interp");
    tc_onnx_size even[] = {{"n", tc_dim_mul(TC_DIM("pairs", 1, 100), 2)}};
    tc_onnx_options o = {.sizes = even, .n_sizes = 1, .largest = 50};
    CHECK_MSG(load(&g, &o, &m) == TC_OK, "%s", tc_error(ctx));
    REQUIRE(m != NULL);
    tc_program *f = NULL;
    REQUIRE(tc_compile_fn(TC_TENSORS_N(m->inputs, 1), TC_TENSORS_N(m->outputs, 1), NULL, &f) ==
            TC_OK);
    for (int n = 2; n <= 6; n += 2) {
        float x[18], y[18];
        for (int i = 0; i < n * 3; i++) {
            x[i] = (float)i;
        }
        tc_bufs in = TC_BUFS(TC_BUF_ND(x, n, 3));
        CHECK_EQ_INT(tc_output_size(f, in, 0, 0), n / 2);
        CHECK_EQ_INT(tc_output_size(f, in, 0, 1), 6);
        CHECK_MSG(tc_run(f, in, TC_BUFS(TC_BUF(y, n * 3))) == TC_OK, "%s", tc_error(f));
        CHECK(!memcmp(x, y, sizeof(*x) * (size_t)(n * 3)));
    }
    tc_program_free(f);
    tc_onnx_free(m);
    end();
}

TEST(initializers_become_parameters_with_gradients)
{
    const float w[] = {1, 2, 3, 4};
    tc_onnx_model *m = NULL;
    message g = {.n = 0};
    begin("interp");
    add_info(&g, 11, "x", 1, one_size);
    add_tensor(&g, "w", 1, 4, w, sizeof(w));
    add_node(&g, "Mul x w > y", -1);
    add_info(&g, 12, "y", 1, one_size);
    tc_onnx_options o = {.parameters = true};
    REQUIRE(load(&g, &o, &m) == TC_OK);
    REQUIRE(m->n_parameters == 1);
    CHECK_STR(tc_name_of(m->parameters[0]), "w");
    tc_tensor loss = tc_sum(m->outputs[0], TC_ALL, false), grad;
    REQUIRE(tc_grad(loss, m->parameters, 1, &grad) == TC_OK);
    tc_program *f = NULL;
    REQUIRE(tc_compile(grad, &f) == TC_OK);
    float x[] = {5, 6, 7, 8}, got[4];
    REQUIRE(tc_run(f, TC_BUFS(TC_BUF(x, 4)), TC_BUFS(TC_BUF(got, 4))) == TC_OK);
    CHECK(!memcmp(x, got, sizeof(x)));
    tc_program_free(f);
    tc_onnx_free(m);
    end();
}

/* The tensor says that its data is 16 bytes from offset 0 of `place`. */
static message external(const char *place)
{
    message g = {.n = 0}, t = {.n = 0}, entry = {.n = 0};
    add_number(&t, 1, 4);
    add_number(&t, 2, 1);
    add_text(&t, 8, "w");
    add_text(&entry, 1, "location");
    add_text(&entry, 2, place);
    add_message(&t, 13, &entry);
    add_number(&t, 14, 1);
    add_message(&g, 5, &t);
    add_info(&g, 12, "w", 1, one_size);
    return g;
}

TEST(external_data_is_read_from_the_models_directory_alone)
{
    const float w[] = {1, 2, 3, 4};
    float got[4] = {0};
    tc_onnx_model *m = NULL;
    begin("interp");
    message g = external("w.bin"), model = model_of(&g);
    io_spill(io_path("net.onnx"), model.at, model.n);
    CHECK(tc_onnx_load(ctx, io_path("net.onnx"), NULL, &m) == TC_ERR_IO);
    io_spill(io_path("w.bin"), w, 12);
    CHECK(tc_onnx_load(ctx, io_path("net.onnx"), NULL, &m) == TC_ERR_IO);
    CHECK_HAS(tc_error(ctx), "16 bytes");
    io_spill(io_path("w.bin"), w, 16);
    CHECK_MSG(tc_onnx_load(ctx, io_path("net.onnx"), NULL, &m) == TC_OK, "%s", tc_error(ctx));
    REQUIRE(m != NULL);
    CHECK(tc_read(m->outputs[0], got, 4) == TC_OK && !memcmp(w, got, 16));
    tc_onnx_free(m);
    m = NULL;
    static const char *const outside[] = {"../w.bin", "/etc/passwd", "a/../../w.bin", ".."};
    for (int i = 0; i < TCI_COUNT(outside); i++) {
        g = external(outside[i]);
        model = model_of(&g);
        io_spill(io_path("net.onnx"), model.at, model.n);
        CHECK(tc_onnx_load(ctx, io_path("net.onnx"), NULL, &m) == TC_ERR_IO);
        CHECK_HAS(tc_error(ctx), "outside");
    }
    CHECK(tc_onnx_load_memory(ctx, model.at, model.n, NULL, &m) == TC_ERR_UNSUPPORTED);
    end();
    io_clean();
}

TEST(bad_calls_are_refused)
{
    tc_onnx_model *m = NULL;
    begin("interp");
    CHECK(tc_onnx_load(ctx, "no such file", NULL, &m) == TC_ERR_IO);
    CHECK_HAS(tc_error(ctx), "no such file");
    CHECK(tc_onnx_load(ctx, NULL, NULL, &m) == TC_ERR_IO);
    CHECK(tc_onnx_load(ctx, "x", NULL, NULL) == TC_ERR_ARGUMENT);
    CHECK(tc_onnx_load(NULL, "x", NULL, &m) == TC_ERR_HANDLE);
    CHECK(tc_onnx_load(ctx, "tests", NULL, &m) == TC_ERR_IO);
    CHECK(tc_onnx_load_memory(ctx, NULL, 10, NULL, &m) == TC_ERR_IO);
    CHECK(tc_onnx_op_name(-1) == NULL && tc_onnx_op_how(10000) == NULL);
    end();
}

TEST(rows_are_in_the_order_in_which_they_are_searched)
{
    for (int i = 1; tc_onnx_op_name(i); i++) {
        CHECK_MSG(strcmp(tc_onnx_op_name(i - 1), tc_onnx_op_name(i)) < 0, "%s", tc_onnx_op_name(i));
    }
}

/* ---- control flow whose conditions only a run knows ---- */

static const char *const no_sizes[] = {NULL};

/* A graph as an attribute of the last node that is being made. */
static void add_body(message *node, const char *name, const message *body)
{
    message attr = {.n = 0};
    add_text(&attr, 1, name);
    add_message(&attr, 6, body);
    add_number(&attr, 20, 5);
    add_message(node, 5, &attr);
}

TEST(an_if_that_a_run_decides_reads_values_around_it)
{
    tc_onnx_model *m = NULL;
    message g = {.n = 0}, yes = {.n = 0}, no = {.n = 0}, node = {.n = 0};
    begin("interp");
    add_info(&g, 11, "c", 9, no_sizes);
    add_info(&g, 11, "x", 1, one_size);
    add_node(&g, "Neg x > minus", -1);
    add_node(&yes, "Add x x > a", -1);
    add_info(&yes, 12, "a", 1, one_size);
    add_node(&no, "Mul minus x > b", -1);
    add_info(&no, 12, "b", 1, one_size);
    add_text(&node, 1, "c");
    add_text(&node, 2, "y");
    add_text(&node, 4, "If");
    add_body(&node, "then_branch", &yes);
    add_body(&node, "else_branch", &no);
    add_message(&g, 1, &node);
    add_info(&g, 12, "y", 1, one_size);
    CHECK_MSG(load(&g, NULL, &m) == TC_OK, "%s", tc_error(ctx));
    REQUIRE(m != NULL);
    CHECK_EQ_INT(m->n_inputs, 2);
    tc_program *f = NULL;
    REQUIRE(tc_compile_fn(TC_TENSORS_N(m->inputs, 2), TC_TENSORS_N(m->outputs, 1), NULL, &f) ==
            TC_OK);
    for (int i = 0; i < 2; i++) {
        bool c = i == 0;
        float x[] = {1, 2, 3, 4}, y[4];
        CHECK(tc_run(f, TC_BUFS(TC_BUF(&c, 1), TC_BUF(x, 4)), TC_BUFS(TC_BUF(y, 4))) == TC_OK);
        for (int j = 0; j < 4; j++) {
            CHECK(y[j] == (c ? 2 * x[j] : -x[j] * x[j]));
        }
    }
    tc_program_free(f);
    tc_onnx_free(m);
    end();
}

/* while (v < limit) v += v, at most `most` times. */
static message doubling(void)
{
    message g = {.n = 0}, body = {.n = 0}, node = {.n = 0};
    const int64_t always = 1;
    add_info(&g, 11, "most", 7, no_sizes);
    add_info(&g, 11, "v", 1, no_sizes);
    add_info(&g, 11, "limit", 1, no_sizes);
    add_tensor(&g, "go", 9, -1, &always, 1);
    add_info(&body, 11, "i", 7, no_sizes);
    add_info(&body, 11, "goes", 9, no_sizes);
    add_info(&body, 11, "was", 1, no_sizes);
    add_node(&body, "Add was was > now", -1);
    add_node(&body, "Less now limit > more", -1);
    add_info(&body, 12, "more", 9, no_sizes);
    add_info(&body, 12, "now", 1, no_sizes);
    add_text(&node, 1, "most");
    add_text(&node, 1, "go");
    add_text(&node, 1, "v");
    add_text(&node, 2, "y");
    add_text(&node, 4, "Loop");
    add_body(&node, "body", &body);
    add_message(&g, 1, &node);
    add_info(&g, 12, "y", 1, no_sizes);
    return g;
}

TEST(a_loop_ends_by_its_condition_or_by_its_count)
{
    static const float limits[] = {100, 100, 3};
    static const int64_t counts[] = {50, 4, 50};
    static const float expected[] = {128, 16, 4};
    tc_onnx_model *m = NULL;
    message g = doubling();
    begin("interp");
    CHECK_MSG(load(&g, NULL, &m) == TC_OK, "%s", tc_error(ctx));
    REQUIRE(m != NULL);
    tc_program *f = NULL;
    REQUIRE(tc_compile_fn(TC_TENSORS_N(m->inputs, 3), TC_TENSORS_N(m->outputs, 1), NULL, &f) ==
            TC_OK);
    for (int i = 0; i < 3; i++) {
        float one = i == 2 ? 2 : 1, y = 0;
        tc_bufs in = TC_BUFS(TC_BUF(&counts[i], 1), TC_BUF(&one, 1), TC_BUF(&limits[i], 1));
        CHECK_MSG(tc_run(f, in, TC_BUFS(TC_BUF(&y, 1))) == TC_OK, "%s", tc_error(f));
        CHECK_MSG(y == expected[i], "%g", (double)y);
    }
    tc_program_free(f);
    tc_onnx_free(m);
    end();
}

/* for (i = 0; i < steps; i++) v += v * x, as PyTorch exports a loop of TorchScript: the body
 * returns a constant of the graph around it as the condition. */
static message growing(const int64_t *steps)
{
    message g = {.n = 0}, body = {.n = 0}, node = {.n = 0};
    const int64_t always = 1;
    add_info(&g, 11, "x", 1, no_sizes);
    add_tensor(&g, "steps", 7, -1, steps, 8);
    add_tensor(&g, "always", 9, -1, &always, 1);
    add_info(&body, 11, "i", 7, no_sizes);
    add_info(&body, 11, "goes", 9, no_sizes);
    add_info(&body, 11, "was", 1, no_sizes);
    add_node(&body, "Mul was x > more", -1);
    add_node(&body, "Add was more > now", -1);
    add_node(&body, "Identity always > goes_on", -1);
    add_info(&body, 12, "goes_on", 9, no_sizes);
    add_info(&body, 12, "now", 1, no_sizes);
    add_text(&node, 1, "steps");
    add_text(&node, 1, "always");
    add_text(&node, 1, "x");
    add_text(&node, 2, "y");
    add_text(&node, 4, "Loop");
    add_body(&node, "body", &body);
    add_message(&g, 1, &node);
    add_info(&g, 12, "y", 1, no_sizes);
    return g;
}

TEST(a_loop_whose_condition_is_a_constant_around_it_has_a_gradient)
{
    static const int64_t counts[] = {3, 70}; /* unrolled; a tc_scan */
    for (int i = 0; i < TCI_COUNT(counts); i++) {
        tc_onnx_model *m = NULL;
        tc_program *f = NULL;
        tc_tensor slope;
        message g = growing(&counts[i]);
        float x = 0.125f, y = 0, dx = 0;
        double n = (double)counts[i];
        begin("interp");
        CHECK_MSG(load(&g, NULL, &m) == TC_OK, "%s", tc_error(ctx));
        REQUIRE(m != NULL);
        CHECK_MSG(tc_grad(m->outputs[0], m->inputs, 1, &slope) == TC_OK, "%s", tc_error(ctx));
        REQUIRE(tc_compile_fn(TC_TENSORS_N(m->inputs, 1), TC_TENSORS(m->outputs[0], slope), NULL,
                              &f) == TC_OK);
        CHECK(tc_run(f, TC_BUFS(TC_BUF(&x, 1)), TC_BUFS(TC_BUF(&y, 1), TC_BUF(&dx, 1))) == TC_OK);
        double grown = pow(1.125, n), grown_slope = grown + 0.125 * n * grown / 1.125;
        CHECK_MSG(fabs((double)y / (0.125 * grown) - 1) < 1e-5, "%g", (double)y);
        CHECK_MSG(fabs((double)dx / grown_slope - 1) < 1e-5, "%g", (double)dx);
        tc_program_free(f);
        tc_onnx_free(m);
        end();
    }
}

/* ---- results whose size follows from values ---- */

enum { COUNTED_NODES = 5 };

/* Inputs x (float[6]) and c (bool[6]), and a constant "one", before these nodes; lines end at
 * NULL. */
static message counted(const char *const *lines)
{
    static const char *const six[] = {"6", NULL};
    static const float one = 1;
    message g = {.n = 0};
    add_info(&g, 11, "x", 1, six);
    add_info(&g, 11, "c", 9, six);
    add_tensor(&g, "one", 1, -1, &one, 4);
    for (int i = 0; i < COUNTED_NODES && lines[i]; i++) {
        add_node(&g, lines[i], -1);
    }
    return g;
}

/* z is made of a counted y: their sums, from onnxruntime 1.32. */
static const struct {
    const char *nodes[COUNTED_NODES];
    double z, y;
} counted_sums[] = {
    {{"Compress x c > y", "Mul y y > z"}, 8.5, 1},
    {{"Compress x c > y", "Add y y > z"}, 2, 1},
    {{"Compress x c > y", "Exp y > z"}, 9.09871292, 1},
    {{"Compress x c > y", "Cos y > z"}, -0.274672449, 1},
    {{"Compress x c > y", "Add y one > z"}, 4, 1},
    {{"Compress x c > y", "Div y y > z"}, 3, 1},
    {{"Compress x c > y", "Pow y y > z"}, 3.92423439, 1},
    {{"Compress x c > y", "Reciprocal y > z"}, 0.833333373, 1},
    {{"Compress x c > y", "Less y one > l", "Not l > m", "Cast m to=1 > z"}, 2, 1},
    {{"NonZero x > i", "Gather x i axis=0 > y", "Mul y y > z"}, 33.5, 8},
    {{"NonZero x > i", "Transpose i > j", "GatherND x j > y", "Max y one y > z"}, 11, 8},
    {{"Unique x > y f g k", "Gather x f > z"}, 6.5, 6.5},
    {{"Unique x sorted=0 > y f g k", "Mul y y > z"}, 31.25, 6.5},
    {{"Unique x > u y g k", "Add y y > z"}, 22, 11},
    {{"Unique x > u f g y", "Mul y y > z"}, 8, 6},
};

TEST(elements_beyond_a_count_add_nothing_to_sums)
{
    static const float x[] = {4, 1.5f, 0, -2, 1.5f, 3};
    static const bool c[] = {false, true, false, true, true, false};
    for (int i = 0; i < 2 * TCI_COUNT(counted_sums); i++) {
        const int row = i / 2;
        tc_onnx_model *m = NULL;
        tc_program *f = NULL;
        float z = 0, y = 0;
        begin(i % 2 ? "cpu" : "interp");
        message g = counted(counted_sums[row].nodes);
        add_node(&g, "ReduceSum z keepdims=0 > sum_z", -1);
        add_node(&g, "ReduceSum y keepdims=0 > sum_y", -1);
        add_node(&g, "Cast sum_z to=1 > a", -1);
        add_node(&g, "Cast sum_y to=1 > b", -1);
        add_info(&g, 12, "a", 1, no_sizes);
        add_info(&g, 12, "b", 1, no_sizes);
        CHECK_MSG(load(&g, NULL, &m) == TC_OK, "row %d: %s", row, tc_error(ctx));
        REQUIRE(m != NULL);
        REQUIRE(tc_compile_fn(TC_TENSORS_N(m->inputs, 2), TC_TENSORS_N(m->outputs, 2), NULL, &f) ==
                TC_OK);
        CHECK_MSG(tc_run(f, TC_BUFS(TC_BUF(x, 6), TC_BUF(c, 6)),
                         TC_BUFS(TC_BUF(&z, 1), TC_BUF(&y, 1))) == TC_OK,
                  "row %d: %s", row, tc_error(f));
        CHECK_MSG(fabs((double)z - counted_sums[row].z) < 1e-5, "row %d: %.9g", row, (double)z);
        CHECK_MSG(fabs((double)y - counted_sums[row].y) < 1e-5, "row %d: %.9g", row, (double)y);
        tc_program_free(f);
        tc_onnx_free(m);
        end();
    }
}

TEST(operators_that_need_all_elements_refuse_a_counted_axis)
{
    static const char *const nodes[][COUNTED_NODES] = {
        {"Compress x c > y", "Softmax y > z"},
        {"Compress x c > y", "CumSum y one > z"},
        {"Compress x c > y", "Concat y y axis=0 > z"},
        {"Compress x c > y", "MatMul y y > z"},
        {"Compress x c > y", "ReduceMean y > z"},
        {"Compress x c > y", "ReduceMax y > z"},
        {"Compress x c > y", "ReduceMin y > z"},
        {"Compress x c > y", "ReduceProd y > z"},
        {"Compress x c > y", "ReduceSum y noop_with_empty_axes=1 > z"},
        {"Compress x c > y", "ArgMax y > z"},
        {"Compress x c > y", "Shape y > z"},
        {"Compress x c > y", "Size y > z"},
        {"Compress x c > y", "Add x y > z"},
        {"Compress x c > y", "Split y num_outputs=2 > z w"},
        {"Unique x > u y g k", "Gather y y > z"},
        {"Unique x > u y g k", "Gather u y > z"},
        {"Unique x > u f g k", "TopK u one > z w"},
        {"NonZero x > i", "Flatten i > z"},
        {"NonZero x > i", "Squeeze i > z"},
        {"Compress x c > y", "NonZero y > z"},
    };
    for (int i = 0; i < TCI_COUNT(nodes); i++) {
        tc_onnx_model *m = NULL;
        begin("interp");
        message g = counted(nodes[i]);
        add_info(&g, 12, "z", 1, no_sizes);
        CHECK_MSG(load(&g, NULL, &m) == TC_ERR_UNSUPPORTED, "row %d: %s", i, tc_error(ctx));
        CHECK_HAS(tc_error(ctx), "has a size that depends on values");
        tc_onnx_free(m);
        end();
    }
}

TEST(a_body_that_is_wrong_is_named)
{
    tc_onnx_model *m = NULL;
    message g = {.n = 0}, yes = {.n = 0}, no = {.n = 0}, node = {.n = 0};
    begin("interp");
    add_info(&g, 11, "c", 9, no_sizes);
    add_info(&g, 11, "x", 1, one_size);
    add_node(&yes, "Fancy x > a", -1);
    add_info(&yes, 12, "a", 1, one_size);
    add_node(&no, "Neg x > b", -1);
    add_info(&no, 12, "b", 1, one_size);
    add_text(&node, 1, "c");
    add_text(&node, 2, "y");
    add_text(&node, 4, "If");
    add_body(&node, "then_branch", &yes);
    add_body(&node, "else_branch", &no);
    add_message(&g, 1, &node);
    add_info(&g, 12, "y", 1, one_size);
    CHECK(load(&g, NULL, &m) == TC_ERR_UNSUPPORTED);
    CHECK_HAS(tc_error(ctx), "(Fancy)");
    end();
}

/* Whatever the bytes are, a status comes back; models that are still good are built. */
TEST(damaged_models_are_refused_or_are_graphs)
{
    tc_file *file = NULL;
    int rounds = tct_soak ? 400 : 12, refused = 0, built = 0;
    begin("interp");
    REQUIRE(tc_file_open(ctx, CASES, &file) == TC_OK);
    for (int i = 0; tc_file_array(file, i); i++) {
        const tc_array *a = tc_file_array(file, i);
        if (!strstr(a->name, "|model")) {
            continue;
        }
        int64_t n;
        unsigned char *bytes = read_array(file, a, &n), *copy = malloc((size_t)n);
        for (int r = 0; r < rounds; r++) {
            tc_onnx_model *m = NULL;
            size_t length = (size_t)n;
            memcpy(copy, bytes, (size_t)n);
            for (int k = (int)(tct_random() % 4); k >= 0; k--) {
                copy[tct_random() % (uint64_t)n] = (unsigned char)tct_random();
            }
            length = r % 3 == 0 ? (size_t)(tct_random() % (uint64_t)n) : length;
            REQUIRE(tc_scope_begin(ctx) == TC_OK);
            tc_onnx_options o = {.largest = 8};
            tc_status status = tc_onnx_load_memory(ctx, copy, length, &o, &m);
            CHECK_MSG(status != TC_ERR_INTERNAL, "%s: %s", a->name, tc_error(ctx));
            CHECK((status == TC_OK) == (m != NULL));
            built += status == TC_OK;
            refused += status != TC_OK;
            tc_onnx_free(m);
            CHECK(tc_scope_end(ctx) == TC_OK);
        }
        free(bytes);
        free(copy);
    }
    CHECK(refused > built / 4 && built > 100);
    tc_file_close(file);
    end();
}

TEST_MAIN
