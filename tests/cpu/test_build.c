/* Builds of several files: how the text of a program is shared out, and what the compiler does with
 * more sources than one. */
#include "inside.h"

#include "../null_backend.c"
#include "tc_test.h"

#include <sys/stat.h>
#include <unistd.h>

/* ---- shared out ---- */

enum { OPS = 3000, MOST_FILES = 64 };

static int n_files;
static size_t lengths[MOST_FILES], largest_kernel;

static tc_status count_files(void *user, tc_build *build)
{
    n_files = build->n;
    for (int i = 0; i < build->n && i < MOST_FILES; i++) {
        lengths[i] = strlen(build->sources[i]);
        const char *last = strstr(build->sources[i], "/* tc_k_"), *next;
        for (; last; last = next) {
            next = strstr(last + 1, "/* tc_k_");
            size_t n = next ? (size_t)(next - last) : strlen(last);
            largest_kernel = n > largest_kernel ? n : largest_kernel;
        }
    }
    return null_compile(user, build);
}

/* Ops that read others before them: many kernels, none like another. */
static tc_tensor many_ops(tc_ctx *ctx, int n)
{
    static tc_tensor v[OPS + 1];
    unsigned draw = 1;
    v[0] = tc_input(ctx, "x", TC_F32, 100);
    for (int i = 1; i <= n; i++) {
        draw = draw * 1664525u + 1013904223u;
        int back = 1 + (int)((draw >> 10) % 20);
        tc_tensor from = v[i > back ? i - back : 0];
        v[i] = i % 2 ? tc_add(v[i - 1], from) : tc_mul(v[i - 1], tc_sub(from, 0.5));
    }
    return v[n];
}

static void count_files_of(tc_ctx *ctx, int n_ops)
{
    tc_program *f;
    n_files = 0;
    largest_kernel = 0;
    REQUIRE(tc_compile(many_ops(ctx, n_ops), &f) == TC_OK);
    tc_program_free(f);
}

TEST(long_text_is_files_of_one_length)
{
    static tc_backend counting;
    tc_options o = {.backend = "counting", .no_disk_cache = true, .compilers = 4};
    tc_ctx *ctx;
    int processors = tci_os_cpu_count(), most = 4;
    counting = null_backend;
    counting.name = "counting";
    counting.compile = count_files;
    REQUIRE(tc_register_backend(&counting) == TC_OK && tc_ctx_make(&ctx, &o) == TC_OK);
    count_files_of(ctx, 20);
    CHECK_EQ_INT(n_files, 1);
    count_files_of(ctx, OPS);
    CHECK_EQ_INT(n_files, processors < most ? processors : most);
    for (int i = 1; i < n_files; i++) {
        long long apart = llabs((long long)lengths[i] - (long long)lengths[0]);
        CHECK_MSG(apart <= (long long)largest_kernel, "%zu and %zu characters", lengths[0],
                  lengths[i]);
    }
    tc_ctx_free(ctx);
    tc_shutdown();
}

/* ---- compiled ---- */

enum { SOURCES = 5 };

static void keep_text(void *arg, const char *text)
{
    tci_str_add(arg, text);
}

/* Builds all sources; number `bad` (-1: none) is no C. */
static tc_status build_all(int bad, tci_str *said, int *n_processes, int *n_objects)
{
    char folder[] = "/tmp/tc-test-build-XXXXXX", outputs[SOURCES][64], texts[SOURCES][64];
    const char *sources[SOURCES], *paths[SOURCES], *why;
    tc_backend_compiler compiler;
    tci_target target;
    tc_build build = {.n = SOURCES,
                      .sources = sources,
                      .outputs = paths,
                      .directory = folder,
                      .timeout_ms = 60000,
                      .say = keep_text,
                      .say_arg = said};
    if (!tci_cc_find(NULL, &compiler) || !mkdtemp(folder)) {
        return TC_ERR_IO;
    }
    memset(&target, 0, sizeof(target));
    build.compiler = compiler.path;
    for (int i = 0; i < SOURCES; i++) {
        snprintf(outputs[i], sizeof(outputs[i]), "%s/tc_%d.so", folder, i);
        snprintf(texts[i], sizeof(texts[i]), i == bad ? "no C" : "int f%d(void) { return %d; }", i,
                 i);
        sources[i] = texts[i];
        paths[i] = outputs[i];
    }
    tc_status status = tci_cc_build(&build, &target, &why);
    *n_processes = build.processes;
    *n_objects = 0;
    for (int i = 0; i < SOURCES; i++) {
        struct stat st;
        char source[64];
        *n_objects += stat(outputs[i], &st) == 0;
        snprintf(source, sizeof(source), "%s/tc_%d.c", folder, i);
        remove(outputs[i]);
        remove(source);
    }
    rmdir(folder);
    return status;
}

TEST(a_build_takes_any_number_of_sources)
{
    int n_processes = 0, n_objects = 0;
    tci_str said = {0};
    CHECK_EQ_INT(build_all(-1, &said, &n_processes, &n_objects), TC_OK);
    CHECK_EQ_INT(n_processes, SOURCES);
    CHECK_EQ_INT(n_objects, SOURCES);
    CHECK_EQ_INT(build_all(3, &said, &n_processes, &n_objects), TC_ERR_COMPILER);
    CHECK_EQ_INT(n_processes, SOURCES);
    CHECK_EQ_INT(n_objects, SOURCES - 1);
    CHECK_HAS(tci_str_text(&said), "tc_3.c");
    tci_str_free(&said);
}

TEST_MAIN
