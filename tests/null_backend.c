/* tests/null_backend.c - the smallest backend, and the model for a new one: it compiles nothing and
 * launches nothing, but keeps count of what it was asked for.
 *
 * It has memory of its own (host memory, as it happens), so that every function of the seam is
 * used. A real backend compiles build->sources to build->outputs, loads them, and starts kernels in
 * `launch`. */
#include "tc.h"

#include <stdlib.h>
#include <string.h>

typedef struct null_counts {
    int compiled, loaded, freed, launched, synced, uploads, downloads;
    int blocks; /* of device memory alive */
} null_counts;
static null_counts null_seen;

static tc_status null_target(void *user, int vector_bits, tc_backend_target *target)
{
    (void)user;
    (void)vector_bits;
    strcpy(target->features, "null");
    target->vector_bytes = 0;
    target->usable = true;
    return TC_OK;
}

static tc_status null_compiler(void *user, const char *wanted, tc_backend_compiler *compiler)
{
    (void)user;
    (void)wanted;
    /* a compiler that is gone invalidates nothing */
    strcpy(compiler->path, "/nonexistent/null-compiler");
    return TC_OK;
}

static tc_status null_compile(void *user, tc_build *build)
{
    (void)user;
    for (int i = 0; i < build->n; i++) {
        FILE *f = fopen(build->outputs[i], "wb");
        if (!f) {
            return TC_ERR_IO;
        }
        fputs("null object", f);
        fclose(f);
        null_seen.compiled++;
    }
    build->say(build->say_arg, "null compiler: nothing to do");
    return TC_OK;
}

static tc_status null_module_load(void *user, const void *bytes, size_t n, const char *path,
                                  void **module)
{
    (void)user;
    (void)path;
    if (n != strlen("null object") || memcmp(bytes, "null object", n)) {
        return TC_ERR_BACKEND;
    }
    *module = &null_seen;
    null_seen.loaded++;
    return TC_OK;
}

static void *null_module_find(void *user, void *module, const char *symbol)
{
    (void)user;
    (void)symbol;
    return module;
}

static void null_module_free(void *user, void *module)
{
    (void)user;
    (void)module;
    null_seen.freed++;
}

static tc_status null_launch(void *user, const tc_launch *launch)
{
    (void)user;
    null_seen.launched += launch->function != NULL;
    return TC_OK;
}

static tc_status null_sync(void *user)
{
    (void)user;
    null_seen.synced++;
    return TC_OK;
}

static void *null_alloc(void *user, int64_t bytes)
{
    (void)user;
    void *memory = aligned_alloc(64, ((size_t)bytes + 63) & ~(size_t)63);
    null_seen.blocks += memory ? 1 : 0;
    return memory;
}

static void null_free(void *user, void *memory)
{
    (void)user;
    null_seen.blocks -= memory ? 1 : 0;
    free(memory);
}

static tc_status null_upload(void *user, void *to_device, const void *from, int64_t bytes)
{
    (void)user;
    memcpy(to_device, from, (size_t)bytes);
    null_seen.uploads++;
    return TC_OK;
}

static tc_status null_download(void *user, void *to, const void *from_device, int64_t bytes)
{
    (void)user;
    (void)to;
    (void)from_device;
    (void)bytes;
    null_seen.downloads++;
    return TC_OK;
}

static const char *null_last_error(void *user)
{
    (void)user;
    return "";
}

static const tc_backend null_backend = {
    .name = "null",
    .dialect = "c",
    .target = null_target,
    .compiler = null_compiler,
    .compile = null_compile,
    .module_load = null_module_load,
    .module_find = null_module_find,
    .module_free = null_module_free,
    .launch = null_launch,
    .sync = null_sync,
    .alloc = null_alloc,
    .free = null_free,
    .upload = null_upload,
    .download = null_download,
    .last_error = null_last_error,
};
