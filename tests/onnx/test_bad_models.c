/* tests/onnx/test_bad_models.c - ONNX files that are not written by mistake: nested too deep,
 * recursive, of gigabytes, with lengths that are not there. Each is refused with a text, fast.
 * tests/onnx/test_import.c has random damage, cycles and data of a wrong length. */
#include "inside.h"

#include <sys/stat.h>
#include <unistd.h>

#include "bytes.h"
#include "io.h"
#include "tc_onnx.h"
#include "tc_test.h"

static tc_ctx *ctx;
static const char *const one_size[] = {"4", NULL};

static void begin(void)
{
    tc_options o = {.backend = "interp", .threads = 1};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

static void end(void)
{
    tc_ctx_free(ctx);
    io_clean();
}

static void refused(const void *bytes, size_t n, tc_status status, const char *text)
{
    tc_onnx_model *m = NULL;
    CHECK_EQ_INT(tc_onnx_load_memory(ctx, bytes, n, NULL, &m), status);
    CHECK(m == NULL);
    CHECK_HAS(tc_error(ctx), text);
}

/* The graph as attribute `name` of a node If, which is the graph that comes back. */
static message within(const message *inner)
{
    message attr = {.n = 0}, node = {.n = 0}, g = {.n = 0};
    add_text(&attr, 1, "then_branch");
    add_message(&attr, 6, inner);
    add_number(&attr, 20, 5);
    add_text(&node, 1, "c");
    add_text(&node, 2, "y");
    add_text(&node, 4, "If");
    add_message(&node, 5, &attr);
    add_message(&g, 1, &node);
    return g;
}

TEST(graphs_that_nest_deep_are_refused)
{
    begin();
    message g = {.n = 0};
    add_node(&g, "Relu x > y", -1);
    for (int i = 0; i < 60; i++) {
        g = within(&g);
    }
    message m = model_of(&g);
    refused(m.at, m.n, TC_ERR_IO, "32 deep");
    end();
}

/* Each function calls itself twice: without a bound 2^depth nodes. */
TEST(functions_that_call_themselves_are_refused)
{
    begin();
    message g = {.n = 0}, node = {.n = 0}, f = {.n = 0}, call = {.n = 0}, m;
    add_info(&g, 11, "x", 1, one_size);
    add_text(&node, 1, "x");
    add_text(&node, 2, "y");
    add_text(&node, 4, "Twice");
    add_text(&node, 7, "own");
    add_message(&g, 1, &node);
    add_info(&g, 12, "y", 1, one_size);
    m = model_of(&g);
    add_text(&f, 1, "Twice");
    add_text(&f, 4, "a");
    add_text(&f, 5, "b");
    for (int i = 0; i < 2; i++) {
        call.n = 0;
        add_text(&call, 1, i ? "t" : "a");
        add_text(&call, 2, i ? "b" : "t");
        add_text(&call, 4, "Twice");
        add_text(&call, 7, "own");
        add_message(&f, 7, &call);
    }
    add_text(&f, 10, "own");
    add_message(&m, 25, &f);
    refused(m.at, m.n, TC_ERR_LIMIT, "nest more than");
    end();
}

/* A field of 2 GiB, and one whose length is above any address, in files of some bytes. */
TEST(lengths_that_are_not_there_are_refused)
{
    static const uint64_t lengths[] = {0x7fffffff, 0xffffffff, UINT64_MAX, (uint64_t)1 << 62};
    begin();
    for (int i = 0; i < 4; i++) {
        message m = {.n = 0};
        add_number(&m, 1, 10);
        add_varint(&m, 7 << 3 | 2);
        add_varint(&m, lengths[i]);
        add_number(&m, 1, 1);
        refused(m.at, m.n, TC_ERR_IO, "");
    }
    unsigned char endless[64]; /* a varint without an end */
    memset(endless, 0xff, sizeof(endless));
    refused(endless, sizeof(endless), TC_ERR_IO, "");
    end();
}

/* Tensors whose sizes are far more than the file: nothing of their size is asked for. */
TEST(tensors_larger_than_memory_are_refused)
{
    static const int64_t sizes[][2] = {{INT64_MAX, 1},
                                       {1 << 30, 1 << 30},
                                       {-1, 4},
                                       {(int64_t)1 << 62, 4}};
    begin();
    for (int i = 0; i < 4; i++) {
        message g = {.n = 0}, t = {.n = 0};
        add_number(&t, 1, (uint64_t)sizes[i][0]);
        add_number(&t, 1, (uint64_t)sizes[i][1]);
        add_number(&t, 2, 1);
        add_text(&t, 8, "w");
        add_bytes(&t, 9, "12345678", 8);
        add_message(&g, 5, &t);
        add_info(&g, 12, "w", 1, one_size);
        message m = model_of(&g);
        tc_onnx_model *model = NULL;
        CHECK(tc_onnx_load_memory(ctx, m.at, m.n, NULL, &model) != TC_OK);
        CHECK(model == NULL && *tc_error(ctx));
    }
    end();
}

/* Sparse: 3 GiB of zeros after a good beginning, or before the end of the last field. */
TEST(files_of_gigabytes_are_refused)
{
    tc_onnx_model *m = NULL;
    begin();
    message bytes = {.n = 0};
    add_number(&bytes, 1, 10);
    add_varint(&bytes, 7 << 3 | 2);
    add_varint(&bytes, (uint64_t)3 << 30);
    for (int whole = 0; whole < 2; whole++) {
        io_spill(io_path("large.onnx"), bytes.at, bytes.n);
        off_t end_at = (off_t)((uint64_t)3 << 30) + (whole ? (off_t)bytes.n : 0);
        if (truncate(io_path("large.onnx"), end_at)) {
            end();
            SKIP("no sparse files here");
        }
        CHECK_EQ_INT(tc_onnx_load(ctx, io_path("large.onnx"), NULL, &m), TC_ERR_IO);
        CHECK(m == NULL);
        CHECK_HAS(tc_error(ctx), "large.onnx");
        CHECK_HAS(tc_error(ctx), whole ? "number 0" : "longer than the whole");
    }
    end();
}

/* Found by make fuzz-files. */
TEST(nodes_without_a_first_output_are_refused_or_make_nothing)
{
    static const char *const lines[] = {"Identity x", "Identity x > ", "Constant", "Relu x"};
    begin();
    for (int i = 0; i < 8; i++) {
        message g = {.n = 0}, node = {.n = 0}, t = {.n = 0}, attr = {.n = 0};
        add_info(&g, 11, "x", 1, one_size);
        if (i < 4) {
            add_node(&g, lines[i], -1);
        } else { /* an unnamed output before a named one, or alone */
            add_text(&node, 1, "x");
            add_text(&node, 2, "");
            if (i % 2) {
                add_text(&node, 2, "z");
            }
            add_text(&node, 4, i < 6 ? "Identity" : "Constant");
            add_number(&t, 1, 1);
            add_number(&t, 2, 1);
            add_bytes(&t, 9, "1234", 4);
            add_text(&attr, 1, "value");
            add_message(&attr, 5, &t);
            add_number(&attr, 20, 4);
            add_message(&node, 5, &attr);
            add_message(&g, 1, &node);
        }
        add_node(&g, "Relu x > y", -1);
        add_info(&g, 12, "y", 1, one_size);
        message m = model_of(&g);
        tc_onnx_model *model = NULL;
        tc_status status = tc_onnx_load_memory(ctx, m.at, m.n, NULL, &model);
        CHECK((status == TC_OK) == (model != NULL) && status != TC_ERR_INTERNAL);
        tc_onnx_free(model);
    }
    end();
}

/* Attributes of 64 bits are not cut to 32: 2^32 is neither 0 nor, in a text, another number. */
TEST(attributes_beyond_32_bits_are_refused)
{
    static const struct {
        const char *nodes[2];
        const char *attribute;
        int64_t more; /* than 2^32 */
        tc_status status;
        const char *text;
    } rows[] = {
        {{"Concat x x > y"}, "axis", 0, TC_ERR_AXIS, "axis 4294967296 of 1 axes"},
        {{"Split x > y z"}, "axis", 0, TC_ERR_AXIS, "axis 4294967296 of 1 axes"},
        {{"Softmax x > y"}, "axis", 0, TC_ERR_AXIS, "4294967296"},
        {{"Cast x to=7 > at", "GatherND x at > y"}, "batch_dims", 0, TC_ERR_SHAPE, "4294967296"},
        {{"HannWindow n > y"}, "periodic", 0, TC_ERR_LIMIT, "a window of 4294967301 elements"},
        {{"DepthToSpace i > y"}, "blocksize", 2, TC_ERR_SHAPE, "4 axes in blocks of 4294967298"},
        {{"SpaceToDepth i > y"}, "blocksize", 2, TC_ERR_SHAPE, "4 axes in blocks of 4294967298"},
        {{"LRN i > y"}, "size", 1, TC_ERR_ARGUMENT, "size 4294967297"},
    };
    static const char *const image[] = {"1", "4", "4", "4", NULL};
    const int64_t window = ((int64_t)1 << 32) + 5;
    begin();
    for (int i = 0; i < TCI_COUNT(rows); i++) {
        message g = {.n = 0};
        add_info(&g, 11, "x", 1, one_size);
        add_info(&g, 11, "i", 1, image);
        add_tensor(&g, "n", 7, -1, &window, sizeof(window));
        for (int k = 0; k < 2 && rows[i].nodes[k]; k++) {
            bool last = k == 1 || !rows[i].nodes[k + 1];
            add_wide_node(&g, rows[i].nodes[k], last ? rows[i].attribute : NULL,
                          ((int64_t)1 << 32) + rows[i].more);
        }
        add_info(&g, 12, "y", 1, NULL);
        message m = model_of(&g);
        refused(m.at, m.n, rows[i].status, rows[i].text);
    }
    end();
}

/* A Scan of 2^32 + 1 operands would be one of 1. */
TEST(a_scan_of_more_operands_than_it_has_is_refused)
{
    message g = {.n = 0}, body = {.n = 0}, node = {.n = 0}, attr = {.n = 0};
    begin();
    add_info(&g, 11, "x", 1, one_size);
    add_info(&body, 11, "e", 1, NULL);
    add_node(&body, "Relu e > r", -1);
    add_info(&body, 12, "r", 1, NULL);
    add_text(&node, 1, "x");
    add_text(&node, 2, "y");
    add_text(&node, 4, "Scan");
    add_int(&node, "num_scan_inputs", ((int64_t)1 << 32) + 1);
    add_text(&attr, 1, "body");
    add_message(&attr, 6, &body);
    add_number(&attr, 20, 5);
    add_message(&node, 5, &attr);
    add_message(&g, 1, &node);
    add_info(&g, 12, "y", 1, one_size);
    message m = model_of(&g);
    refused(m.at, m.n, TC_ERR_IO, "1 operands, 4294967297 of them scanned");
    end();
}

TEST(runs_with_other_shapes_are_refused)
{
    tc_onnx_model *m = NULL;
    tc_program *f = NULL;
    float x[8] = {0}, y[8] = {0};
    begin();
    message g = {.n = 0};
    add_info(&g, 11, "x", 1, one_size);
    add_node(&g, "Relu x > y", -1);
    add_info(&g, 12, "y", 1, one_size);
    message model = model_of(&g);
    REQUIRE(tc_onnx_load_memory(ctx, model.at, model.n, NULL, &m) == TC_OK);
    REQUIRE(tc_compile_fn(TC_TENSORS_N(m->inputs, 1), TC_TENSORS_N(m->outputs, 1), NULL, &f) ==
            TC_OK);
    CHECK(tc_run(f, TC_BUFS(TC_BUF(x, 4)), TC_BUFS(TC_BUF(y, 4))) == TC_OK);
    CHECK(tc_run(f, TC_BUFS(TC_BUF(x, 3)), TC_BUFS(TC_BUF(y, 4))) != TC_OK);
    CHECK_HAS(tc_program_error(f), "x");
    CHECK(tc_run(f, TC_BUFS(TC_BUF(x, 8)), TC_BUFS(TC_BUF(y, 4))) != TC_OK);
    CHECK(tc_run(f, TC_BUFS(TC_BUF(x, 4)), TC_BUFS(TC_BUF(y, 5))) != TC_OK);
    CHECK(tc_run(f, TC_BUFS(TC_BUF(x, 4), TC_BUF(x, 4)), TC_BUFS(TC_BUF(y, 4))) != TC_OK);
    tc_program_free(f);
    tc_onnx_free(m);
    end();
}

TEST_MAIN
