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

/* ---- numbers ---- */

/* From [-1, 1), the same sequence in every run. */
TCT_UNUSED static double next_value(void)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (double)(state >> 8) / (1 << 23) - 1;
}

/* The bits of x in f16 (half) or bf16. */
TCT_UNUSED static uint16_t to_half(double x, bool half)
{
    uint32_t bits;
    float f = half ? (float)x : tci_round_bf16((float)x);
    memcpy(&bits, &f, sizeof(bits));
    return half ? tci_f32_to_f16_bits(f) : (uint16_t)(bits >> 16);
}

TCT_UNUSED static double of_half(uint16_t h, bool half)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return (double)(half ? tci_f16_bits_to_f32(h) : f);
}

#endif
