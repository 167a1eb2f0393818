/* tests/cuda/matrix_context.h - what the tests of matrix units share. */
#ifndef TC_TEST_MATRIX_CONTEXT_H
#define TC_TEST_MATRIX_CONTEXT_H

#include "emulate.h"
#include "nvrtc_text.h"

static void register_emulation(void)
{
    static bool done;
    if (!done) {
        done = true;
        tc_register_backend(emulation());
    }
}

/* The context, or NULL where there is no C++ compiler. matrix: as in tc_options. */
static tc_ctx *open_context_for(const char *backend, int matrix, tc_math math)
{
    tc_options o;
    tc_ctx *ctx = NULL;
    register_emulation();
    memset(&o, 0, sizeof(o));
    o.backend = backend;
    o.matrix = matrix;
    o.math = math;
    o.fallback = TC_FALLBACK_REFUSE;
    o.no_disk_cache = true;
    o.verify = true;
    return tc_ctx_make(&ctx, &o) ? NULL : ctx;
}

static tc_ctx *open_context(const char *backend, int matrix)
{
    return open_context_for(backend, matrix, TC_MATH_EXACT);
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
    static char text[100000];
    FILE *file = tmpfile();
    memset(text, 0, sizeof(text));
    if (file) {
        tc_explain_as(f, file, &(tc_explain_options){.all = true});
        rewind(file);
        size_t n = fread(text, 1, sizeof(text) - 1, file);
        text[n] = 0;
        fclose(file);
    }
    return text;
}

/* Each of a program's files, for the card that has the unit. */
static void check_by_nvrtc(tc_program *program)
{
    check_text_by_nvrtc(program, "--gpu-architecture=sm_90a");
}

#endif
