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
    CHECK_HAS(tc_error(f), "tc_report: '");
    CHECK_HAS(tc_error(f), "none/p.html' cannot be written: No such file or directory");
    CHECK_EQ_INT(tc_report(f, NULL), TC_ERR_ARGUMENT);
    CHECK_STR(tc_error(f), "tc_report: the path is NULL: expected that of a file");
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
    for (const json *k = json_get(j, "kernels")->first; k; k = k->next) {
        CHECK_HAS(json_get(k, "source")->string, json_get(k, "name")->string);
        CHECK_HAS(json_get(k, "kernel")->string, "out");
        CHECK_HAS(json_get(k, "loop")->string, "store");
    }
    json_free(j);
    free(page.data);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

static long long integer(const json *object, const char *key)
{
    const json *v = json_get(object, key);
    return v ? v->integer : -1;
}

/* Bytes of "f32 [32, 8]". */
static long long bytes_of(const char *shape)
{
    long long n = 4;
    CHECK_MSG(!strncmp(shape, "f32 [", 5), "%s", shape);
    for (const char *c = shape + 4; *c && *c != ']'; c += strcspn(c + 1, ",]") + 1) {
        n *= c[1] == ']' ? 1 : atoll(c + 1);
    }
    return n;
}

/* True if the launch has that buffer, as what it writes or reads. */
static bool touches(const json *step, int buffer, bool writes)
{
    for (const json *o = json_get(step, "operands")->first; o; o = o->next) {
        if (integer(o, "buffer") == buffer && integer(o, "write") == writes) {
            return true;
        }
    }
    return false;
}

/* Columns, edges and the memory plan are drawn from the data alone, which are compared here with
 * what follows from shapes and operands. */
TEST(the_data_of_a_page_have_passes_edges_and_a_memory_plan)
{
    begin();
    tc_ctx *ctx;
    tc_options o = default_options();
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_program *f = step(ctx);
    CHECK_EQ_INT(tc_report(f, in_dir("p.html")), TC_OK);
    bytes page = read_file(in_dir("p.html"));
    json *j = data_of(&page);
    REQUIRE(j != NULL);
    const json *steps = json_get(j, "steps"), *buffers = json_get(j, "buffers");
    int forward = 0, products = 0, temps = 0;
    for (const json *s = steps->first; s; s = s->next) {
        const char *region = json_get(s, "region")->string;
        bool back = integer(s, "back");
        forward += !back && !strcmp(region, "head</script>");
        products += !back && integer(s, "flops") == 2 * 32 * 16 * 8; /* x w */
        CHECK_MSG(strncmp(region, "backward", 8) || back, "%s is drawn forward", region);
    }
    CHECK(forward >= 1);
    CHECK_EQ_INT(products, 1);
    for (const json *e = json_get(j, "edges")->first; e; e = e->next) {
        int from = (int)json_at(e, 0)->integer, to = (int)json_at(e, 1)->integer;
        bool found = false;
        for (int b = 0; b < buffers->n; b++) {
            found = found ||
                    (touches(json_at(steps, from), b, true) &&
                     touches(json_at(steps, to), b, false) &&
                     bytes_of(json_string(json_at(buffers, b), "shape")) == json_at(e, 2)->integer);
        }
        CHECK_MSG(from < to && found, "an edge from %d to %d", from, to);
    }
    for (int b = 0; b < buffers->n; b++) {
        const json *x = json_at(buffers, b);
        CHECK_EQ_INT(integer(x, "bytes"), bytes_of(json_string(x, "shape")));
        if (strcmp(json_string(x, "kind"), "temp")) {
            continue;
        }
        int first = -1, last = -1;
        temps++;
        for (int t = 0; t < steps->n; t++) {
            bool uses = touches(json_at(steps, t), b, true) || touches(json_at(steps, t), b, false);
            first = uses && first < 0 ? t : first;
            last = uses ? t : last;
        }
        CHECK_EQ_INT(integer(x, "first"), first);
        CHECK_EQ_INT(integer(x, "last"), last);
        CHECK(integer(x, "offset") + integer(x, "bytes") <= integer(j, "arena"));
        for (int c = 0; c < b; c++) { /* overlapping live ranges: memory apart */
            const json *y = json_at(buffers, c);
            bool at_once = !strcmp(json_string(y, "kind"), "temp") && integer(y, "first") < last &&
                           first < integer(y, "last");
            bool apart = integer(x, "offset") + integer(x, "bytes") <= integer(y, "offset") ||
                         integer(y, "offset") + integer(y, "bytes") <= integer(x, "offset");
            CHECK(!at_once || apart);
        }
    }
    CHECK(temps >= 2);
    json_free(j);
    free(page.data);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

/* A program that changes parameters has all texts too. */
TEST(a_page_of_a_training_step_has_loops)
{
    begin();
    tc_ctx *ctx;
    tc_options o = default_options();
    float w[2][8] = {{0}};
    tc_tensor p[2], g[2], outs[3];
    tc_program *f;
    int n;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    for (int i = 0; i < 2; i++) {
        p[i] = tc_param(ctx, w[i], TC_F32, 8);
    }
    tc_tensor x = tc_input(ctx, "x", TC_F32, 8);
    outs[0] = tc_sum(tc_square(tc_add(tc_mul(x, p[0]), p[1])), TC_ALL, false);
    REQUIRE(tc_grad(outs[0], p, 2, g) == TC_OK);
    REQUIRE(tc_sgd(p, g, 2, 0.1, NULL, outs + 1, &n) == TC_OK && n == 2);
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS_N(outs, 3), NULL, &f) == TC_OK);
    CHECK_EQ_INT(tc_report(f, in_dir("p.html")), TC_OK);
    bytes page = read_file(in_dir("p.html"));
    json *j = data_of(&page);
    REQUIRE(j != NULL);
    for (const json *k = json_get(j, "kernels")->first; k; k = k->next) {
        CHECK_HAS(json_get(k, "loop")->string, "store");
    }
    json_free(j);
    free(page.data);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

/* Neither the disk cache nor kernels built by another program hide how a kernel runs. */
TEST(a_program_from_a_cache_has_the_texts_of_a_compiled_one)
{
    begin();
    bytes pages[2];
    for (int i = 0; i < 2; i++) {
        tc_ctx *ctx;
        tc_options o = default_options();
        REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        tc_program *f = step(ctx);
        CHECK_EQ_INT(f->from_disk, i);
        CHECK_EQ_INT(tc_report(f, in_dir("p.html")), TC_OK);
        pages[i] = read_file(in_dir("p.html"));
        tc_program_free(f);
        tc_ctx_free(ctx);
        tc_shutdown();
    }
    json *a = data_of(&pages[0]), *b = data_of(&pages[1]);
    REQUIRE(a && b);
    const json *p = json_get(a, "kernels")->first, *q = json_get(b, "kernels")->first;
    for (; p && q; p = p->next, q = q->next) {
        static const char *const texts[] = {"name", "kernel", "loop", "source"};
        for (int i = 0; i < 4; i++) {
            CHECK_STR(json_get(p, texts[i])->string, json_get(q, texts[i])->string);
        }
    }
    CHECK(!p && !q);
    for (int i = 0; i < 2; i++) {
        json_free(i ? b : a);
        free(pages[i].data);
    }
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
    tc_program *f = step(ctx), *g;
    tc_options same = {.name = "a step"}; /* another program of that name has a page of its own */
    tc_tensor x = tc_input(ctx, "x", TC_F32, 4);
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(tc_exp(x)), &same, &g) == TC_OK);
    bytes index = read_file(in_dir("dump/index.html"));
    index.data[index.n] = 0;
    char last[100] = "";
    int pages = 0;
    for (char *at = (char *)index.data; (at = strstr(at, "<a href=\"a_step-")); pages++) {
        char page[100], path[120];
        CHECK(sscanf(at, "<a href=\"%90[^\"]\">a step</a>", page) == 1 && strcmp(page, last));
        snprintf(path, sizeof(path), "dump/%s", page);
        CHECK_EQ_INT(access(in_dir(path), F_OK), 0);
        snprintf(last, sizeof(last), "%s", page);
        at++;
    }
    CHECK_EQ_INT(pages, 2);
    CHECK_EQ_INT(access(in_dir("dump/a_step/plan.dot"), F_OK), 0);
    free(index.data);
    tc_program_free(f);
    tc_program_free(g);
    tc_ctx_free(ctx);
    end();
}

/* The name of a program is one name of a file, whatever it has in it. */
TEST(a_name_cannot_leave_the_dump_folder)
{
    begin();
    static const struct {
        const char *name, *folder;
    } rows[] = {{"../../escaped", "_._.._escaped"}, {"a/b", "a_b"}, {"..", "_."}, {"", NULL}};
    tc_ctx *ctx;
    tc_options o = default_options();
    o.backend = "interp";
    o.dump = "plan,html";
    o.dump_dir = in_dir("a/b/dump");
    CHECK_EQ_INT(mkdir(in_dir("a"), 0700) || mkdir(in_dir("a/b"), 0700), 0);
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        tc_program *f;
        char path[200];
        tc_options named = {.name = rows[i].name};
        tc_tensor x = tc_input(ctx, "x", TC_F32, 20 + (int)i);
        REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(tc_exp(x)), &named, &f) == TC_OK);
        if (rows[i].folder) {
            snprintf(path, sizeof(path), "a/b/dump/%s/plan.txt", rows[i].folder);
            CHECK_MSG(access(in_dir(path), F_OK) == 0, "%s", path);
        }
        tc_program_free(f);
    }
    char command[1200], found[400] = "";
    snprintf(command, sizeof(command),
             "cd %s && find . -name 'plan.txt' -o -name '*.html' | "
             "grep -v '^./a/b/dump/'",
             in_dir("."));
    FILE *p = popen(command, "r");
    REQUIRE(p != NULL);
    found[fread(found, 1, sizeof(found) - 1, p)] = 0;
    pclose(p);
    CHECK_STR(found, "");
    tc_ctx_free(ctx);
    end();
}

TEST(the_graph_of_a_plan_has_kernels_with_their_work_and_edges_with_bytes)
{
    begin();
    enum { M = 8, K = 16, N = 4 };
    tc_ctx *ctx;
    tc_program *f;
    tc_options o = default_options();
    char want[100];
    o.dump = "dot";
    o.dump_dir = in_dir("dump");
    o.name = "dots";
    o.fusion = -1;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor a = tc_input(ctx, "a", TC_F32, M, K), b = tc_input(ctx, "b", TC_F32, K, N);
    REQUIRE(tc_compile(tc_cumsum(tc_matmul(a, b), 1), &f) == TC_OK);
    bytes dot = read_file(in_dir("dump/dots/plan.dot"));
    dot.data[dot.n] = 0;
    CHECK_HAS((char *)dot.data, "digraph plan {\n");
    CHECK_HAS((char *)dot.data, "s0 [label=\"0 tc_k_");
    snprintf(want, sizeof(want), "\\n%.3g flops, %.3g bytes\"];", 2.0 * M * K * N,
             4.0 * (M * K + K * N + M * N));
    CHECK_HAS((char *)dot.data, want);
    snprintf(want, sizeof(want), "s0 -> s1 [label=\"%d\"];", 4 * M * N);
    CHECK_HAS((char *)dot.data, want);
    free(dot.data);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

/* A program of many launches, which the interpreter runs: nothing is compiled. */
static tc_program *deep(tc_ctx *ctx, int layers)
{
    tc_program *f;
    tc_tensor x = tc_input(ctx, "x", TC_F32, 8, 8), y = x, g;
    for (int i = 0; i < layers; i++) {
        char name[32];
        snprintf(name, sizeof(name), "layer%d.relu", i / 20);
        tc_region_begin(ctx, name);
        y = tc_relu(tc_add(tc_matmul(y, y), i));
        tc_region_end(ctx);
    }
    REQUIRE(tc_grad(tc_sum(y, TC_ALL, false), &x, 1, &g) == TC_OK);
    tc_options o = {.name = "deep", .fusion = -1};
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y, g), &o, &f) == TC_OK);
    return f;
}

/* After the page's own script: clicks on the first box, on a region and next to them, and writes
 * what then stands where, with the milliseconds until all was drawn and the errors. */
static const char clicks[] =
    "<script>window.onload=function(){\n"
    "function q(s){return document.querySelectorAll(s)}\n"
    "function click(e){e.dispatchEvent(new MouseEvent('click',{bubbles:true}))}\n"
    "var r={boxes:q('.k').length,paths:q('path').length,home:q('#side')[0].textContent};\n"
    "click(q('.k rect')[0]);r.side=q('#side')[0].textContent;\n"
    "click(q('.r rect')[0]);r.folded=q('.k').length;click(q('#map')[0]);\n"
    "r.after=q('#side')[0].textContent;r.ms=Math.round(performance.now());r.errors=errors;\n"
    "document.documentElement.innerHTML='RESULT'+JSON.stringify(r).replace(/&/g,'').replace(/</g,"
    "'')+'END'}</script></body></html>";

/* Opens the report of f in Chromium, with `clicks` behind it and a list of errors before it; NULL:
 * the browser does not run here. */
static json *browse(const tc_program *f)
{
    static const char before[] = "<script>var errors=[];window.onerror=function(e){errors.push("
                                 "String(e))}</script>";
    char command[2000];
    bytes out;
    CHECK_EQ_INT(tc_report(f, in_dir("p.html")), TC_OK);
    bytes page = read_file(in_dir("p.html"));
    page.data[page.n] = 0;
    char *body = strstr((char *)page.data, "<body>"), *rest = strstr((char *)page.data, "</body>");
    REQUIRE(body && rest);
    FILE *file = fopen(in_dir("clicked.html"), "w");
    REQUIRE(file != NULL);
    fprintf(file, "%.*s<body>%s%.*s%s", (int)(body - (char *)page.data), (char *)page.data, before,
            (int)(rest - body - 6), body + 6, clicks);
    fclose(file);
    free(page.data);
    snprintf(command, sizeof(command),
             "timeout 60 chromium --headless --no-sandbox --disable-gpu --user-data-dir=%s "
             "--dump-dom file://%s >%s 2>/dev/null",
             in_dir("profile"), in_dir("clicked.html"), in_dir("dom.txt"));
    if (system(command)) {
        return NULL;
    }
    out = read_file(in_dir("dom.txt"));
    out.data[out.n] = 0;
    char *at = strstr((char *)out.data, "RESULT{"), *end = at ? strstr(at, "END") : NULL;
    json *j = NULL;
    CHECK_MSG(at && end, "the page did not answer: %.200s", (char *)out.data);
    if (at && end) {
        *end = 0;
        j = json_parse(at + 6);
    }
    free(out.data);
    return j;
}

TEST(a_click_in_a_browser_shows_nodes_lines_and_source)
{
    if (system("command -v chromium >/dev/null 2>&1")) {
        SKIP("Chromium is not found");
    }
    begin();
    tc_ctx *ctx;
    tc_options o = default_options();
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_program *f = step(ctx);
    json *j = browse(f);
    if (!j) {
        SKIP("Chromium does not run here");
    }
    CHECK_EQ_INT(json_get(j, "errors")->n, 0);
    CHECK_EQ_INT(json_get(j, "boxes")->integer, f->code->n_steps);
    CHECK(json_get(j, "paths")->integer >= 1);
    CHECK(json_get(j, "folded")->integer < f->code->n_steps);
    CHECK_HAS(json_get(j, "home")->string, "a step");
    CHECK_HAS(json_get(j, "home")->string, "compiler ");
    CHECK_HAS(json_get(j, "home")->string, "tc_compile_fn: 1 program"); /* history */
    CHECK_HAS(json_get(j, "side")->string, "tc_k_");
    CHECK_HAS(json_get(j, "side")->string, "test_report.c:");
    CHECK_HAS(json_get(j, "side")->string, "void tc_k_");
    CHECK_HAS(json_get(j, "side")->string, "store p"); /* the loop */
    CHECK_STR(json_get(j, "after")->string, json_get(j, "home")->string);
    json_free(j);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

TEST(a_browser_draws_a_thousand_launches_in_two_seconds)
{
    if (system("command -v chromium >/dev/null 2>&1")) {
        SKIP("Chromium is not found");
    }
    begin();
    tc_ctx *ctx;
    tc_options o = default_options();
    o.backend = "interp";
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_program *f = deep(ctx, 300);
    json *j = browse(f);
    if (!j) {
        SKIP("Chromium does not run here");
    }
    CHECK(f->code->n_steps >= 1000);
    CHECK_EQ_INT(json_get(j, "errors")->n, 0);
    CHECK_EQ_INT(json_get(j, "boxes")->integer, f->code->n_steps);
    double load = 0;
    bool busy = getloadavg(&load, 1) == 1 && load > (double)sysconf(_SC_NPROCESSORS_ONLN);
    CHECK_MSG(busy || json_get(j, "ms")->integer < 2000, "drawn in %lld ms",
              (long long)json_get(j, "ms")->integer);
    json_free(j);
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

TEST_MAIN
