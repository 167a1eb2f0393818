/* cuda/backend.c - implements the "cuda" backend: CUDA source by NVRTC; one backend per GPU.
 *
 * In: the calls of the backend interface (api/backend.h) other than launches (cuda/queue.c):
 * compiling, modules. Out: the backend of each device. */
#include "../compile/backend_registry.h"

#include <stdio.h>
#include <string.h>

#include "../base/alloc.h"
#include "../base/os.h"
#include "device.h"
#include "dialect.h"
#include "nvrtc.h"

typedef struct tci_cuda_module {
    void *handle;
    tci_cuda_function *functions; /* atomic: pushed in front */
} tci_cuda_module;

/* ---- compiling ---- */

/* The library is not opened for this: a warm start never needs it. */
static tc_status tci_cuda_compiler(void *user, const char *wanted, tc_backend_compiler *compiler)
{
    const char *why = "";
    (void)user;
    (void)wanted; /* a C compiler */
    memset(compiler, 0, sizeof(*compiler));
    if (tci_cuda_check_process()) {
        return TC_ERR_COMPILER; /* what it makes could not be loaded */
    }
    snprintf(compiler->path, sizeof(compiler->path), "%s", tci_nvrtc_path());
    compiler->vector_bytes = TCI_CUDA_THREAD_BYTES;
    if (compiler->path[0] && tci_os_stat(compiler->path, &compiler->bytes, &compiler->mtime_ns)) {
        return TC_OK;
    }
    if (tci_nvrtc_get(&why)) {
        return TC_OK;
    }
    tci_cuda_say("NVRTC cannot be opened", why);
    return TC_ERR_COMPILER;
}

/* Values read from a target's features. */
typedef struct tci_cuda_facts {
    int capability, processors, driver;
} tci_cuda_facts;

static bool tci_cuda_read_facts(const char *features, tci_cuda_facts *f)
{
    return sscanf(features, "cuda sm_%d, %d processors, driver %d", &f->capability, &f->processors,
                  &f->driver) == 3;
}

/* Of the target's architecture, which need not be that of a device here. Hopper's matrix units are
 * of its very architecture. */
static tc_status tci_cuda_compile(void *user, tc_build *build)
{
    const char *why = "the target is no GPU of CUDA";
    char option[48];
    tci_cuda_facts target;
    tc_status status = TC_ERR_COMPILER;
    (void)user;
    if (tci_cuda_read_facts(build->features, &target)) {
        snprintf(option, sizeof(option), "--gpu-architecture=sm_%d%s", target.capability,
                 target.capability / 10 == 9 ? "a" : "");
        status = tci_nvrtc_build(build, option, &why);
    }
    if (status) {
        tci_cuda_say(why, "");
    }
    return status;
}

/* A cubin runs on devices of its generation that are no older (CUDA programming guide, "Binary
 * Compatibility"); on Hopper on the very one. */
static bool tci_cuda_runs(void *user, const char *features)
{
    tci_cuda_facts code, mine;
    const tci_cuda_device *d = tci_cuda_of(user);
    if (!d->target.usable || !tci_cuda_read_facts(features, &code) ||
        !tci_cuda_read_facts(d->target.features, &mine)) {
        return false;
    }
    bool same = code.capability / 10 == mine.capability / 10 &&
                (code.capability / 10 == 9 ? code.capability == mine.capability
                                           : code.capability <= mine.capability);
    return same && code.processors <= mine.processors && code.driver <= mine.driver;
}

/* ---- modules ---- */

static tc_status tci_cuda_module_load(void *user, const void *cubin, size_t n, const char *path,
                                      void **module)
{
    (void)n; /* a cubin says how long it is */
    (void)path;
    *module = NULL;
    tci_cuda_module *m = tci_heap_get(sizeof(*m));
    if (!m) {
        return TC_ERR_MEMORY;
    }
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    tc_status status = TCI_CUDA_DO(&in, in.cu->module_load(&m->handle, cubin), "cuModuleLoadData");
    if (status) {
        tci_heap_free(m);
        return status;
    }
    *module = m;
    return TC_OK;
}

/* Reads a module's description of a kernel with its own main loop, if it is one. */
static bool tci_cuda_read_skeleton(const tci_cuda_device *d, const tci_cuda_module *m,
                                   const char *symbol, tci_cuda_function *f)
{
    enum { TCI_CU_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 }; /* CU_FUNC_ATTRIBUTE_... */
    const tci_cu *cu = tci_cuda_driver();
    tci_cuda_skeleton *k = &f->skeleton;
    char name[256];
    tci_cu_ptr at = 0;
    size_t bytes = 0;
    snprintf(name, sizeof(name), "%s_skeleton", symbol);
    if (cu->module_global(&at, &bytes, m->handle, name)) {
        return true;
    }
    f->is_skeleton = true;
    return bytes == sizeof(*k) && !cu->copy((tci_cu_ptr)(uintptr_t)k, at, bytes, d->stream) &&
           !cu->stream_wait(d->stream) && k->n_maps <= TCI_CUDA_MAPS &&
           !cu->function_set(f->handle, TCI_CU_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)k->shared_bytes);
}

static bool tci_cuda_describe_function(const tci_cuda_device *d, const tci_cuda_module *m,
                                       const char *symbol, tci_cuda_function *f)
{
    /* CU_FUNC_ATTRIBUTE_...: what __launch_bounds__ said */
    enum { TCI_CU_MAX_THREADS_PER_BLOCK = 0 };
    tci_cuda_stay in = tci_cuda_enter(d);
    bool found = !in.status && !in.cu->module_find(&f->handle, m->handle, symbol) &&
                 !in.cu->function_attribute(&f->threads, TCI_CU_MAX_THREADS_PER_BLOCK, f->handle) &&
                 tci_cuda_read_skeleton(d, m, symbol, f);
    tci_cuda_leave(&in, TC_OK);
    return found;
}

static void *tci_cuda_module_find(void *user, void *module, const char *symbol)
{
    tci_cuda_module *m = module;
    tci_cuda_function *f = tci_heap_get(sizeof(*f));
    if (!f) {
        return NULL;
    }
    if (!tci_cuda_describe_function(tci_cuda_of(user), m, symbol, f)) {
        tci_heap_free(f);
        return NULL;
    }
    f->next = __atomic_load_n(&m->functions, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&m->functions, &f->next, f, false, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED)) {
    }
    return f;
}

static void tci_cuda_module_free(void *user, void *module)
{
    tci_cuda_module *m = module;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    if (!in.status) {
        in.cu->module_free(m->handle);
    }
    tci_cuda_leave(&in, TC_OK);
    while (m->functions) {
        tci_cuda_function *next = m->functions->next;
        tci_heap_free(m->functions);
        m->functions = next;
    }
    tci_heap_free(m);
}

/* ---- memory ---- */

/* Memory of another device is copied like the host's. */
static bool tci_cuda_is_device(void *user, const void *memory)
{
    /* CU_POINTER_ATTRIBUTE_..., CU_MEMORYTYPE_... */
    enum { TCI_CU_MEMORY_TYPE = 2, TCI_CU_ORDINAL = 9, TCI_CU_DEVICE = 2 };
    unsigned type = 0;
    int ordinal = -1;
    tci_cu_ptr p = (tci_cu_ptr)(uintptr_t)memory;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    bool is_own = !in.status && !in.cu->pointer_attribute(&type, TCI_CU_MEMORY_TYPE, p) &&
                  type == TCI_CU_DEVICE && !in.cu->pointer_attribute(&ordinal, TCI_CU_ORDINAL, p) &&
                  ordinal == in.d->index;
    tci_cuda_leave(&in, TC_OK);
    return is_own;
}

static bool tci_cuda_is_hidden(void *user, const void *memory)
{
    /* CU_POINTER_ATTRIBUTE_..., CU_MEMORYTYPE_... */
    enum { TCI_CU_MEMORY_TYPE = 2, TCI_CU_HOST_POINTER = 4, TCI_CU_DEVICE = 2 };
    unsigned type = 0;
    void *host = NULL;
    tci_cu_ptr p = (tci_cu_ptr)(uintptr_t)memory;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    bool is_hidden = !in.status && !in.cu->pointer_attribute(&type, TCI_CU_MEMORY_TYPE, p) &&
                     type == TCI_CU_DEVICE && /* managed memory has an address for the host too */
                     in.cu->pointer_attribute(&host, TCI_CU_HOST_POINTER, p);
    tci_cuda_leave(&in, TC_OK);
    return is_hidden;
}

/* ---- the seam ---- */

static const tc_backend *tci_cuda_device_backend(void *user, int index);

static tc_status tci_cuda_memory_left(void *user, int64_t *free_bytes, int64_t *all_bytes)
{
    size_t left = 0, all = 0;
    tci_cuda_stay in = tci_cuda_enter(tci_cuda_of(user));
    tc_status status = TCI_CUDA_DO(&in, in.cu->memory_left(&left, &all), "cuMemGetInfo");
    *free_bytes = (int64_t)left;
    *all_bytes = (int64_t)all;
    return status;
}

static void tci_cuda_fill_backend(tc_backend *b, int index)
{
    tci_cuda_device *d = tci_cuda_get(index);
    snprintf(d->name, sizeof(d->name), index ? "cuda:%d" : "cuda", index);
    *b = (tc_backend){
        .name = d->name,
        .dialect = "cuda",
        .own_dialect = tci_cuda_words(),
        .user = d,
        .target = tci_cuda_target,
        .compiler = tci_cuda_compiler,
        .compile = tci_cuda_compile,
        .module_load = tci_cuda_module_load,
        .module_find = tci_cuda_module_find,
        .module_free = tci_cuda_module_free,
        .launch = tci_cuda_launch,
        .sync = tci_cuda_sync,
        .alloc = tci_cuda_alloc,
        .free = tci_cuda_free,
        .upload = tci_cuda_copy,
        .download = tci_cuda_copy,
        .record = tci_cuda_record,
        .replay = tci_cuda_replay,
        .sequence_free = tci_cuda_sequence_free,
        .record_loop = tci_cuda_record_loop,
        .copy = tci_cuda_copy_within,
        .is_device = tci_cuda_is_device,
        .last_error = tci_cuda_last_error,
        .queues = tci_cuda_queues(),
        .device = tci_cuda_device_backend,
        .is_hidden = tci_cuda_is_hidden,
        .memory_left = tci_cuda_memory_left,
        .runs = tci_cuda_runs,
    };
}

/* Filled by tci_cuda_backend, before anybody can ask for one. */
static tc_backend tci_cuda_backends[TCI_CUDA_DEVICES];

static const tc_backend *tci_cuda_device_backend(void *user, int index)
{
    (void)user;
    return tci_cuda_get(index) ? &tci_cuda_backends[index] : NULL;
}

/* Called once, before anything else of this backend. The order in which the locks are announced is
 * that in which they are taken: for the target the driver is looked up. */
TCI_FN const tc_backend *tci_cuda_backend(void)
{
    for (int i = 0; i < TCI_CUDA_DEVICES && !tci_cuda_backends[i].name; i++) {
        tci_cuda_fill_backend(&tci_cuda_backends[i], i);
    }
    tci_cuda_keep_over_fork();
    tci_cu_keep_over_fork();
    return &tci_cuda_backends[0];
}
