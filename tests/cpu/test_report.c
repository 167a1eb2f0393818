/* tests/cpu/test_report.c - tc_report: one page with all data, which a browser opens. Needs a
 * compiler; the last test Chromium. */
#include "inside.h"

#include "cache.h"
#include "json.h"

#include <unistd.h>

static tc_program *step(tc_ctx *ctx)
{
    tc_program *f;
    tc_tensor x = tc_input(ctx, "x", TC_F32, 32, 16), w = tc_input(ctx, "w", TC_F32, 16, 8), g;
    tc_region_begin(ctx, "head</script>");
    tc_tensor y = tc_softmax(tc_matmul(x, w), -1);
    tc_region_end(ctx);
    REQUIRE(tc_grad(tc_sum(tc_mul(y, y), TC_ALL, false), &w, 1, &g) == TC_OK);
    tc_options o = {.name = "a step", .fusion = -1};
    REQUIRE(tc_compile_fn(TC_TENSORS(x, w), TC_TENSORS(y, g), &o, &f) == TC_OK);
    return f;
}

/* The data of a page. */
static json *data_of(bytes *page)
{
    static const char mark[] = "application/json\">";
    page->data[page->n] = 0;
    char *at = strstr((char *)page->data, mark), *end = at ? strstr(at, "</script>") : NULL;
    REQUIRE(at && end);
    *end = 0;
    return json_parse(at + sizeof(mark) - 1);
}

TEST(a_page_has_each_launch_with_its_line_and_source)
{
    begin();
    tc_ctx *ctx;
    tc_options o = default_options();
    int back = 0;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_program *f = step(ctx);
    CHECK_EQ_INT(tc_report(f, in_dir("p.html")), TC_OK);
    CHECK_EQ_INT(tc_report(f, in_dir("none/p.html")), TC_ERR_IO);
    CHECK_EQ_INT(tc_report(NULL, in_dir("p.html")), TC_ERR_ARGUMENT);
    bytes page = read_file(in_dir("p.html"));
    CHECK(!strstr((char *)page.data, "http://") && !strstr((char *)page.data, "https://"));
    json *j = data_of(&page);
    REQUIRE(j && j->kind == JSON_OBJECT);
    CHECK_STR(json_get(j, "name")->string, "a step");
    CHECK_EQ_INT(json_get(j, "steps")->n, f->code->n_steps);
    CHECK_EQ_INT(json_get(j, "kernels")->n, f->code->n_kernels);
    CHECK(json_get(j, "edges")->n >= 1);
    for (const json *s = json_get(j, "steps")->first; s; s = s->next) {
        back += json_get(s, "back")->integer != 0;
        CHECK(json_get(s, "nodes")->n >= 1);
    }
    CHECK(back >= 1 && back < f->code->n_steps);
    CHECK_HAS(json_get(json_get(j, "kernels")->first, "source")->string, "void tc_k_");
    json_free(j);
    free(page.data);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

TEST(dumps_have_a_page_for_each_program_and_an_index)
{
    begin();
    tc_ctx *ctx;
    tc_options o = default_options();
    o.dump = "html,dot";
    o.dump_dir = in_dir("dump");
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_program *f = step(ctx);
    bytes index = read_file(in_dir("dump/index.html"));
    index.data[index.n] = 0;
    CHECK_HAS((char *)index.data, "<a href=\"a_step.html\">");
    CHECK_EQ_INT(access(in_dir("dump/a_step.html"), F_OK), 0);
    CHECK_EQ_INT(access(in_dir("dump/a_step/plan.dot"), F_OK), 0);
    free(index.data);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

TEST(a_browser_draws_the_page_without_errors)
{
    char command[2000], text[100] = "";
    if (system("command -v chromium >/dev/null 2>&1")) {
        SKIP("Chromium is not found");
    }
    begin();
    tc_ctx *ctx;
    tc_options o = default_options();
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_program *f = step(ctx);
    CHECK_EQ_INT(tc_report(f, in_dir("p.html")), TC_OK);
    snprintf(command, sizeof(command),
             "timeout 60 chromium --headless --no-sandbox --disable-gpu --user-data-dir=%s "
             "--dump-dom file://%s 2>/dev/null | grep -c '<rect'",
             in_dir("profile"), in_dir("p.html"));
    FILE *p = popen(command, "r");
    REQUIRE(p != NULL);
    text[fread(text, 1, sizeof(text) - 1, p)] = 0;
    pclose(p);
    if (!text[0]) {
        SKIP("Chromium does not run here");
    }
    CHECK_MSG(atoi(text) >= 1, "no box was drawn: %s", text);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

TEST_MAIN
