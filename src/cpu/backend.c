/* cpu/backend.c - implements the "cpu" backend: the system's C compiler and host threads.
 *
 * It is the first backend behind the interface of api/backend.h. Kernels are plain host functions,
 * so there is no launch, no device memory and nothing to wait for. */
#include "../compile/backend_registry.h"

#include <string.h>

#include "../base/object_loader.h"
#include "cc.h"

static _Thread_local char tci_cpu_error[512];

static void tci_cpu_say(const char *text, const char *detail)
{
    snprintf(tci_cpu_error, sizeof(tci_cpu_error), "%s%s", text, detail);
}

static tc_status tci_cpu_target(void *user, int vector_bits, tc_backend_target *out)
{
    tci_target t;
    (void)user;
    memset(&t, 0, sizeof(t));
    tci_target_detect(&t, vector_bits);
    size_t n = strlen(t.features);
    snprintf(t.features + n, sizeof(t.features) - n, "%s", tci_cc_instruments() ? " asan" : "");
    memcpy(out->features, t.features, sizeof(out->features));
    out->vector_bytes = t.vector_bytes;
    out->usable = t.usable;
    out->matrix_units = t.matrix_units;
    out->has_pairs = t.has_pairs;
    out->unit_bytes = t.unit_bytes;
    out->int_points = t.int_points;
    tci_cpu_machine(&out->machine);
    if (!out->usable) {
        snprintf(out->why, sizeof(out->why), "%s", tci_target_why_none());
    }
    return TC_OK;
}

static tc_status tci_cpu_compiler(void *user, const char *wanted, tc_backend_compiler *compiler)
{
    (void)user;
    if (tci_cc_find(wanted, compiler)) {
        return TC_OK;
    }
    if (wanted && wanted[0]) {
        tci_cpu_say("no such compiler: ", wanted);
    } else {
        tci_cpu_say("no C compiler on PATH (tried cc, gcc, clang, tcc)", "");
    }
    return TC_ERR_COMPILER;
}

static tc_status tci_cpu_compile(void *user, tc_build *build)
{
    const char *why;
    tci_target target;
    (void)user;
    memset(&target, 0, sizeof(target));
    snprintf(target.features, sizeof(target.features), "%s", build->features);
    tci_target_set_flags(&target);
    tc_status status = tci_cc_build(build, &target, &why);
    if (status != TC_OK) {
        tci_cpu_say(why, "");
    }
    return status;
}

static tc_status tci_cpu_module_load(void *user, const void *bytes, size_t n, const char *path,
                                     void **module)
{
    char why[256];
    (void)user;
    *module = tci_object_load(bytes, n, path, tci_cc_is_watched(), why);
    if (!*module) {
        tci_cpu_say(why, "");
    }
    return *module ? TC_OK : TC_ERR_BACKEND;
}

static void *tci_cpu_module_find(void *user, void *module, const char *symbol)
{
    (void)user;
    return tci_os_dlsym(module, symbol);
}

static void tci_cpu_module_free(void *user, void *module)
{
    (void)user;
    tci_os_dlclose(module);
}

/* Instrumented code needs a process that is, and no other. */
static bool tci_cpu_runs(void *user, const char *features)
{
    (void)user;
    return (strstr(features, " asan") != NULL) == tci_cc_instruments() && tci_target_runs(features);
}

static const char *tci_cpu_last_error(void *user)
{
    (void)user;
    return tci_cpu_error;
}

TCI_FN const tc_backend *tci_cpu_backend(void)
{
    static const tc_backend backend = {
        .name = "cpu",
        .dialect = "c",
        .target = tci_cpu_target,
        .compiler = tci_cpu_compiler,
        .compile = tci_cpu_compile,
        .module_load = tci_cpu_module_load,
        .module_find = tci_cpu_module_find,
        .module_free = tci_cpu_module_free,
        .last_error = tci_cpu_last_error,
        .runs = tci_cpu_runs,
    };
    return &backend;
}
