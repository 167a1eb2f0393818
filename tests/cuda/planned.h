/* tests/cuda/planned.h - contexts of the emulation, and of a backend that plans as it does and
 * leaves the kernels to the interpreter. */
#ifndef TC_TEST_PLANNED_H
#define TC_TEST_PLANNED_H

#include "emulate.h"

/* Plans as the emulation does and compiles nothing, so the interpreter runs the same kernels: the
 * order of a row's reduction depends on the machine that it is planned for. */
TCT_UNUSED static tc_status planned_target(void *user, int vector_bits, tc_backend_target *target)
{
    tc_status status = emu_target(user, vector_bits, target);
    snprintf(target->features, sizeof(target->features), "planned");
    target->usable = true;
    return status;
}

TCT_UNUSED static tc_status planned_compile(void *user, tc_build *build)
{
    (void)user;
    (void)build;
    return TC_ERR_COMPILER;
}

TCT_UNUSED static void register_emulation(void)
{
    static bool done;
    static tc_backend planned;
    if (!done) {
        done = true;
        tc_register_backend(emulation());
        planned = *emulation();
        planned.name = "planned";
        planned.target = planned_target;
        planned.compile = planned_compile;
        tc_register_backend(&planned);
    }
}

TCT_UNUSED static tc_ctx *context_for(const char *backend, bool reproducible)
{
    tc_options o;
    tc_ctx *ctx = NULL;
    memset(&o, 0, sizeof(o));
    o.backend = backend;
    o.reproducible = reproducible;
    o.fallback = strcmp(backend, "planned") ? TC_FALLBACK_REFUSE : TC_FALLBACK_ALLOW;
    return tc_ctx_make(&ctx, &o) ? NULL : ctx;
}

TCT_UNUSED static tc_ctx *context_of(const char *backend)
{
    return context_for(backend, false);
}

/* What tc_explain says about the launches. */
TCT_UNUSED static bool explains(const tc_program *f, const char *note)
{
    char *text = NULL;
    size_t n = 0;
    FILE *file = open_memstream(&text, &n);
    tc_explain_as(f, file, &(tc_explain_options){.all = true});
    fclose(file);
    bool found = strstr(text, note) != NULL;
    free(text);
    return found;
}

#endif
