/* tests/cuda/matrix_context.h - what the tests of matrix units share. */
#ifndef TC_TEST_MATRIX_CONTEXT_H
#define TC_TEST_MATRIX_CONTEXT_H

#include "emulate.h"

static void register_emulation(void)
{
    static bool done;
    if (!done) {
        done = true;
        tc_register_backend(emulation());
    }
}

/* The context, or NULL where there is no C++ compiler. matrix: as in tc_options. */
static tc_ctx *open_context(const char *backend, int matrix)
{
    tc_options o;
    tc_ctx *ctx = NULL;
    register_emulation();
    memset(&o, 0, sizeof(o));
    o.backend = backend;
    o.matrix = matrix;
    o.fallback = TC_FALLBACK_REFUSE;
    o.no_disk_cache = true;
    o.verify = true;
    return tc_ctx_make(&ctx, &o) ? NULL : ctx;
}

static bool can_emulate(void)
{
    tc_backend_target target;
    memset(&target, 0, sizeof(target));
    emu_target(NULL, 0, &target);
    return target.usable;
}

/* What tc_explain says of the program; static memory. */
static const char *explained(tc_program *f)
{
    static char text[4000];
    FILE *file = tmpfile();
    memset(text, 0, sizeof(text));
    if (file) {
        tc_explain(f, file);
        rewind(file);
        size_t n = fread(text, 1, sizeof(text) - 1, file);
        text[n] = 0;
        fclose(file);
    }
    return text;
}

/* ---- NVRTC ---- */

static void keep_log(void *arg, const char *text)
{
    tci_str_add((tci_str *)arg, text);
}

/* NVRTC takes the program's source and says nothing: a line "(C75..." of ptxas says that products
 * wait for each other where they need not, "spill" that registers do not suffice. */
static void check_by_nvrtc(tc_program *program)
{
    char folder[] = "/tmp/tc-test-matrix-XXXXXX", path[80], kept[90];
    const char *why = "", *outputs[1] = {path}, *sources[1] = {tc_source(program)};
    tci_str log = {0};
    tc_build build;
    REQUIRE(mkdtemp(folder));
    memset(&build, 0, sizeof(build));
    snprintf(path, sizeof(path), "%s/cubin", folder);
    snprintf(kept, sizeof(kept), "%s.cu", path);
    build.n = 1;
    build.sources = sources;
    build.outputs = outputs;
    build.keep = true; /* the log is told also when all is well */
    build.say = keep_log;
    build.say_arg = &log;
    tc_status status = tci_nvrtc_build(&build, "--gpu-architecture=sm_90a", &why);
    const char *error = strstr(tci_str_text(&log), "error");
    CHECK_MSG(status == TC_OK, "%s: %.300s", why, error ? error : "");
    const char *about = strstr(tci_str_text(&log), "(C7");
    CHECK_MSG(!about, "ptxas says %.300s", about);
    CHECK(log.n > 0);
    tci_str_free(&log);
    remove(path);
    remove(kept);
    remove(folder);
}

#endif
