/* cuda/backend.c - the "cuda" backend: CUDA source by NVRTC, run by one GPU.
 *
 * In: the calls of the seam (api/backend.h). The one idea: everything goes through one stream of
 * the device's primary context, so order is the order of the calls; a recorded sequence is one
 * CUDA graph of explicit kernel nodes in a chain, launched by one driver call.
 *
 * Faults: kernels write to pinned host words that the device sees; sync, which waits for the
 * stream, hands them on to the words of the launches (tci_cuda.pending).
 * A launch is pending when the driver took it, and until the next sync or the end of its sequence.
 * Invariant: tci_cuda.lock is held while a launch is put into the stream or taken from pending.
 * The calling thread may have another context current (the host uses CUDA as well): every call of
 * the seam makes ours current and then again what was.
 * After a fork the child has no device: every call says so, and none reaches the driver. */
#include "../compile/backend.h"

#include <stdio.h>
#include <string.h>

#include "../base/alloc.h"
#include "../base/os.h"
#include "dialect.h"
#include "load.h"
#include "matrix.h"
#include "nvrtc.h"

enum {
    TCI_CUDA_WORDS = 512,        /* faults between two syncs */
    TCI_CUDA_MAX_ARGUMENTS = 500 /* 8-byte words: what every driver takes */
};

typedef struct tci_cuda_function {
    void *handle;
    int threads;
    bool is_skeleton;        /* its argument begins with encoded tensor maps */
    tci_cuda_skeleton skeleton;
    struct tci_cuda_function *next;
} tci_cuda_function;

typedef struct tci_cuda_module {
    void *handle;
    tci_cuda_function *functions;
} tci_cuda_module;

typedef struct tci_cuda_sequence {
    void *graph, *executable;
    int64_t *word;  /* pinned; NULL: no launch can fault */
    int64_t *fault; /* the caller's */
} tci_cuda_sequence;

static struct {
    tci_mutex lock;
    bool known;
    bool is_lost; /* in a child made by fork */
    const tci_cu *cu;
    void *context, *stream;
    char architecture[48];
    tc_backend_target target;
    int64_t *words; /* pinned, TCI_CUDA_WORDS */
    struct { int64_t *word, *fault; } pending[TCI_CUDA_WORDS]; /* word NULL: it is gone */
    int n_pending;
} tci_cuda = {.lock = TCI_MUTEX_INIT};

static _Thread_local char tci_cuda_error[256];

/* ---- failures ---- */

static tc_status tci_cuda_say(const char *what, const char *detail)
{
    snprintf(tci_cuda_error, sizeof(tci_cuda_error), "%s%s%s", what, detail[0] ? ": " : "", detail);
    return TC_ERR_BACKEND;
}

/* TC_OK when the driver's code is 0. */
static tc_status tci_cuda_check(int code, const char *what)
{
    const char *name = NULL;
    if (code == 0) {
        return TC_OK;
    }
    tci_cuda.cu->error_name(code, &name);
    return tci_cuda_say(what, name ? name : "an unknown error");
}

static const char *tci_cuda_last_error(void *user)
{
    (void)user;
    return tci_cuda_error;
}

/* ---- the device ---- */

/* A process made by fork has no device of its parent's, and no call of the driver may be made in
 * it. */
static tc_status tci_cuda_check_process(void)
{
    return tci_cuda.is_lost
               ? tci_cuda_say("this process was made by fork, and its parent used the GPU before",
                              "CUDA does not survive a fork")
               : TC_OK;
}

/* Makes the device this thread's, if it succeeds until tci_cuda_leave. */
static tc_status tci_cuda_enter(void **before)
{
    tc_status status = tci_cuda_check_process();
    *before = tci_cuda.context;
    if (!status) {
        status = tci_cuda_check(tci_cuda.cu->context_get(before), "cuCtxGetCurrent");
    }
    if (!status && *before != tci_cuda.context) {
        status = tci_cuda_check(tci_cuda.cu->context_set(tci_cuda.context), "cuCtxSetCurrent");
    }
    return status;
}

static void tci_cuda_leave(void *before)
{
    if (before != tci_cuda.context) {
        tci_cuda.cu->context_set(before);
    }
}

static void tci_cuda_after_fork(void)
{
    tci_cuda.is_lost = tci_cuda.context != NULL;
    if (tci_cuda.is_lost) {
        tci_cuda.target.usable = false;
        snprintf(tci_cuda.target.why, sizeof(tci_cuda.target.why),
                 "CUDA does not survive a fork of a process that used the GPU");
    }
}

static tc_status tci_cuda_open_device(int device)
{
    const tci_cu *cu = tci_cuda.cu;
    tc_status status =
        tci_cuda_check(cu->context_retain(&tci_cuda.context, device), "cuDevicePrimaryCtxRetain");
    void *before;
    status = status ? status : tci_cuda_enter(&before);
    if (status) {
        return status;
    }
    size_t bytes = TCI_CUDA_WORDS * sizeof(int64_t);
    status = tci_cuda_check(cu->stream_create(&tci_cuda.stream, 1), "cuStreamCreate");
    if (!status) {
        status =
            tci_cuda_check(cu->host_alloc((void **)&tci_cuda.words, bytes, 3), "cuMemHostAlloc");
    }
    if (!status) {
        memset(tci_cuda.words, 0, bytes);
    }
    tci_cuda_leave(before);
    return status;
}

static int tci_cuda_attribute(int which, int device)
{
    int value = 0;
    return tci_cuda.cu->device_attribute(&value, which, device) ? 0 : TCI_MAX(value, 0);
}

/* What the driver tells of the device; what it does not tell stays 0. */
static void tci_cuda_machine(int device, tc_machine *m)
{
    enum { /* CU_DEVICE_ATTRIBUTE_... */
        TCI_CU_SHARED = 8,          /* MAX_SHARED_MEMORY_PER_BLOCK */
        TCI_CU_WARP = 10,           /* WARP_SIZE */
        TCI_CU_CLOCK = 13,          /* CLOCK_RATE, kHz */
        TCI_CU_PROCESSORS = 16,     /* MULTIPROCESSOR_COUNT */
        TCI_CU_MEMORY_CLOCK = 36,   /* MEMORY_CLOCK_RATE, kHz */
        TCI_CU_BUS = 37,            /* GLOBAL_MEMORY_BUS_WIDTH, bits */
        TCI_CU_CACHE = 38,          /* L2_CACHE_SIZE */
        TCI_CU_REGISTERS = 82,      /* MAX_REGISTERS_PER_MULTIPROCESSOR */
        TCI_CU_SHARED_MOST = 97     /* MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
    };
    m->processors = tci_cuda_attribute(TCI_CU_PROCESSORS, device);
    m->ghz = tci_cuda_attribute(TCI_CU_CLOCK, device) * 1e-6;
    m->registers = tci_cuda_attribute(TCI_CU_REGISTERS, device);
    m->cache_bytes[2] = tci_cuda_attribute(TCI_CU_CACHE, device);
    double bytes = tci_cuda_attribute(TCI_CU_BUS, device) / 8; /* twice a clock */
    m->memory_gbs = 2e-6 * bytes * tci_cuda_attribute(TCI_CU_MEMORY_CLOCK, device);
    m->subgroup = tci_cuda_attribute(TCI_CU_WARP, device);
    m->shared_bytes = tci_cuda_attribute(TCI_CU_SHARED, device);
    m->shared_most = tci_cuda_attribute(TCI_CU_SHARED_MOST, device);
}

/* Fills tci_cuda.target; usable only when everything works. */
static void tci_cuda_detect(void)
{
    enum { TCI_CU_MAJOR = 75, TCI_CU_MINOR = 76 }; /* COMPUTE_CAPABILITY_... */
    tc_backend_target *t = &tci_cuda.target;
    const char *why = "";
    int device = 0, driver = 0;
    tci_cuda.cu = tci_cu_get(&why);
    if (!tci_cuda.cu) {
        snprintf(t->why, sizeof(t->why), "no CUDA driver: %.100s", why);
        return;
    }
    const tci_cu *cu = tci_cuda.cu;
    tc_status status = tci_cuda_check(cu->init(0), "cuInit");
    if (!status) {
        status = tci_cuda_check(cu->device_get(&device, 0), "cuDeviceGet");
    }
    if (!status) {
        cu->driver_version(&driver);
        status = tci_cuda_open_device(device);
    }
    if (status) {
        snprintf(t->why, sizeof(t->why), "%.120s", tci_cuda_error);
        return;
    }
    int major = tci_cuda_attribute(TCI_CU_MAJOR, device);
    int minor = tci_cuda_attribute(TCI_CU_MINOR, device);
    tci_cuda_machine(device, &t->machine);
    int processors = t->machine.processors;
    snprintf(tci_cuda.architecture, sizeof(tci_cuda.architecture), "--gpu-architecture=sm_%d%d%s",
             major, minor, major == 9 ? "a" : "");
    t->matrix_units = major == 9 && cu->tensor_map ? processors : 0;
    snprintf(t->features, sizeof(t->features), "cuda sm_%d%d, %d processors, driver %d", major,
             minor, processors, driver);
    t->usable = true;
}

static tc_status tci_cuda_target(void *user, int vector_bits, tc_backend_target *target)
{
    (void)user;
    (void)vector_bits;
    pthread_mutex_lock(&tci_cuda.lock);
    if (!tci_cuda.known) {
        tci_cuda.known = true;
        tci_cuda.target.vector_bytes = TCI_CUDA_THREAD_BYTES;
        tci_cuda.target.block_threads = TCI_CUDA_MAX_THREADS;
        tci_cuda_detect();
    }
    *target = tci_cuda.target;
    pthread_mutex_unlock(&tci_cuda.lock);
    return TC_OK;
}

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

static tc_status tci_cuda_compile(void *user, tc_build *build)
{
    const char *why = "";
    (void)user;
    tc_status status = tci_nvrtc_build(build, tci_cuda.architecture, &why);
    if (status) {
        tci_cuda_say(why, "");
    }
    return status;
}

/* ---- modules ---- */

static tc_status tci_cuda_load_image(const void *cubin, void **handle)
{
    void *before;
    tc_status status = tci_cuda_enter(&before);
    if (status) {
        return status;
    }
    status = tci_cuda_check(tci_cuda.cu->module_load(handle, cubin), "cuModuleLoadData");
    tci_cuda_leave(before);
    return status;
}

static tc_status tci_cuda_module_load(void *user, const void *cubin, size_t n, const char *path,
                                      void **module)
{
    (void)user;
    (void)n; /* a cubin says how long it is */
    (void)path;
    *module = NULL;
    tci_cuda_module *m = tci_heap_get(sizeof(*m));
    if (!m) {
        return TC_ERR_MEMORY;
    }
    tc_status status = tci_cuda_load_image(cubin, &m->handle);
    if (status) {
        tci_heap_free(m);
        return status;
    }
    *module = m;
    return TC_OK;
}

/* What the module says of a kernel with a main loop of its own, where it is one. */
static bool tci_cuda_read_skeleton(const tci_cuda_module *m, const char *symbol,
                                   tci_cuda_function *f)
{
    enum { TCI_CU_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 }; /* CU_FUNC_ATTRIBUTE_... */
    const tci_cu *cu = tci_cuda.cu;
    tci_cuda_skeleton *k = &f->skeleton;
    char name[256];
    tci_cu_ptr at = 0;
    size_t bytes = 0;
    snprintf(name, sizeof(name), "%s_skeleton", symbol);
    if (cu->module_global(&at, &bytes, m->handle, name)) {
        return true;
    }
    f->is_skeleton = true;
    return bytes == sizeof(*k) &&
           !cu->copy((tci_cu_ptr)(uintptr_t)k, at, bytes, tci_cuda.stream) &&
           !cu->stream_wait(tci_cuda.stream) &&
           !cu->function_set(f->handle, TCI_CU_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)k->shared_bytes);
}

static bool tci_cuda_describe_function(const tci_cuda_module *m, const char *symbol,
                                       tci_cuda_function *f)
{
    /* CU_FUNC_ATTRIBUTE_...: what __launch_bounds__ said */
    enum { TCI_CU_MAX_THREADS_PER_BLOCK = 0 };
    const tci_cu *cu = tci_cuda.cu;
    void *before;
    if (tci_cuda_enter(&before)) {
        return false;
    }
    bool found =
        !cu->module_find(&f->handle, m->handle, symbol) &&
        !cu->function_attribute(&f->threads, TCI_CU_MAX_THREADS_PER_BLOCK, f->handle) &&
        tci_cuda_read_skeleton(m, symbol, f);
    tci_cuda_leave(before);
    return found;
}

static void *tci_cuda_module_find(void *user, void *module, const char *symbol)
{
    tci_cuda_module *m = module;
    tci_cuda_function *f = tci_heap_get(sizeof(*f));
    (void)user;
    if (!f) {
        return NULL;
    }
    if (!tci_cuda_describe_function(m, symbol, f)) {
        tci_heap_free(f);
        return NULL;
    }
    pthread_mutex_lock(&tci_cuda.lock);
    f->next = m->functions;
    m->functions = f;
    pthread_mutex_unlock(&tci_cuda.lock);
    return f;
}

static void tci_cuda_module_free(void *user, void *module)
{
    tci_cuda_module *m = module;
    (void)user;
    void *before;
    if (!tci_cuda_enter(&before)) {
        tci_cuda.cu->module_free(m->handle);
        tci_cuda_leave(before);
    }
    while (m->functions) {
        tci_cuda_function *next = m->functions->next;
        tci_heap_free(m->functions);
        m->functions = next;
    }
    tci_heap_free(m);
}

/* ---- launches ---- */

/* The map of one operand at its address. */
static bool tci_cuda_encode(const tc_launch *launch, const tci_cuda_map *map, int64_t *to)
{
    enum { TCI_CU_SWIZZLE_128B = 3, TCI_CU_L2_PROMOTION_128B = 2 }; /* CU_TENSOR_MAP_... */
    uint64_t dim[5], stride[4];
    unsigned box[5], step[5];
    for (int i = 0; i < 5; i++) {
        dim[i] = (uint64_t)map->dim[i];
        box[i] = (unsigned)((map->box[i] - 1) * map->step[i] + 1);
        step[i] = (unsigned)map->step[i];
        if (i < 4) {
            stride[i] = (uint64_t)map->stride[i];
        }
    }
    char *start = (char *)launch->buffers[map->operand] + map->offset;
    return !tci_cuda.cu->tensor_map(to, (int)map->type, (unsigned)map->rank, start, dim, stride,
                                    box, step, 0, TCI_CU_SWIZZLE_128B, TCI_CU_L2_PROMOTION_128B, 0);
}

/* The kernel's one argument: maps of a skeleton, operands, literals, the fault word, at least one
 * of each (see tci_cuda_head and tci_cuda_matrix_head). False: it cannot be made. */
static bool tci_cuda_pack(const tc_launch *launch, int64_t *word, int64_t *to)
{
    int n_buffers = TCI_MAX(launch->n_buffers, 1), n_literals = TCI_MAX(launch->n_literals, 1);
    const tci_cuda_function *f = launch->function;
    int n_maps = f->is_skeleton ? TCI_CUDA_MAPS : 0, map_words = n_maps * TCI_CUDA_MAP_WORDS;
    int n_words = map_words + n_buffers + n_literals + 1;
    if (n_words > TCI_CUDA_MAX_ARGUMENTS) {
        return false;
    }
    memset(to, 0, TCI_CUDA_MAX_ARGUMENTS * sizeof(*to));
    for (int i = 0; i < n_maps; i++) {
        if (!tci_cuda_encode(launch, &f->skeleton.maps[i], to + TCI_CUDA_MAP_WORDS * i)) {
            return false;
        }
    }
    to += map_words;
    for (int i = 0; i < launch->n_buffers; i++) {
        to[i] = (int64_t)(uintptr_t)launch->buffers[i];
    }
    for (int i = 0; i < launch->n_literals; i++) {
        to[n_buffers + i] = launch->literals[i];
    }
    to[n_buffers + n_literals] = (int64_t)(uintptr_t)word;
    return true;
}

/* What both ways of launching tell the driver. False: the launch is larger than it can be. */
static bool tci_cuda_describe(const tc_launch *launch, bool is_packed, tci_cu_kernel_params *k)
{
    const tci_cuda_function *f = launch->function;
    int64_t blocks = launch->task_end - launch->task_begin;
    memset(k, 0, sizeof(*k));
    k->function = f->handle;
    k->grid_x = (unsigned)blocks;
    k->grid_y = k->grid_z = k->block_y = k->block_z = 1;
    k->block_x = (unsigned)f->threads;
    if (f->is_skeleton) {
        k->block_x = (unsigned)f->skeleton.block_x;
        k->block_y = (unsigned)f->skeleton.block_y;
        k->shared_bytes = (unsigned)f->skeleton.shared_bytes;
    }
    if (!is_packed || launch->task_begin != 0 || blocks > INT32_MAX) {
        tci_cuda_say("a kernel has more operands or blocks than a launch can have, or an operand "
                     "that a tensor map cannot describe", "");
        return false;
    }
    return true;
}

/* Caller holds the lock. */
static void tci_cuda_collect(void)
{
    for (int i = 0; i < tci_cuda.n_pending; i++) {
        int64_t *word = tci_cuda.pending[i].word;
        if (word && *word) {
            *tci_cuda.pending[i].fault = *word;
            *word = 0;
        }
    }
    tci_cuda.n_pending = 0;
}

/* A place in the list of pending faults; waits for the stream when it is full. */
static tc_status tci_cuda_reserve(void)
{
    tc_status status = TC_OK;
    if (tci_cuda.n_pending == TCI_CUDA_WORDS) {
        status = tci_cuda_check(tci_cuda.cu->stream_wait(tci_cuda.stream), "cuStreamSynchronize");
        tci_cuda_collect();
    }
    return status;
}

/* Caller holds the lock and reserved a place. A launch that the driver refused writes no fault. */
static void tci_cuda_note(int code, int64_t *word, int64_t *fault)
{
    if (code == 0 && word) {
        tci_cuda.pending[tci_cuda.n_pending].word = word;
        tci_cuda.pending[tci_cuda.n_pending++].fault = fault;
    }
}

static tc_status tci_cuda_launch_locked(const tc_launch *launch)
{
    _Alignas(64) int64_t arguments[TCI_CUDA_MAX_ARGUMENTS]; /* of tensor maps */
    int64_t *word = NULL;
    tci_cu_kernel_params k;
    if (launch->fault) {
        tc_status status = tci_cuda_reserve();
        if (status) {
            return status;
        }
        word = &tci_cuda.words[tci_cuda.n_pending];
    }
    bool is_packed = tci_cuda_pack(launch, word, arguments);
    if (!tci_cuda_describe(launch, is_packed, &k)) {
        return TC_ERR_LIMIT;
    }
    void *params[] = {arguments}; /* the driver knows its size and alignment from the kernel */
    int code = tci_cuda.cu->launch(k.function, k.grid_x, 1, 1, k.block_x, k.block_y, 1,
                                   k.shared_bytes, tci_cuda.stream, params, NULL);
    tci_cuda_note(code, word, launch->fault);
    return tci_cuda_check(code, "cuLaunchKernel");
}

static tc_status tci_cuda_launch(void *user, const tc_launch *launch)
{
    (void)user;
    if (launch->task_end == launch->task_begin) {
        return TC_OK;
    }
    void *before;
    tc_status status = tci_cuda_enter(&before);
    if (status) {
        return status;
    }
    pthread_mutex_lock(&tci_cuda.lock);
    status = tci_cuda_launch_locked(launch);
    pthread_mutex_unlock(&tci_cuda.lock);
    tci_cuda_leave(before);
    return status;
}

static tc_status tci_cuda_sync(void *user)
{
    void *before;
    (void)user;
    tc_status status = tci_cuda_enter(&before);
    if (status) {
        return status;
    }
    pthread_mutex_lock(&tci_cuda.lock);
    status = tci_cuda_check(tci_cuda.cu->stream_wait(tci_cuda.stream), "a kernel failed");
    tci_cuda_collect();
    pthread_mutex_unlock(&tci_cuda.lock);
    tci_cuda_leave(before);
    return status;
}

/* ---- sequences ---- */

/* A run that failed may not have come to its sync. */
static void tci_cuda_forget(const int64_t *word)
{
    pthread_mutex_lock(&tci_cuda.lock);
    for (int i = 0; i < tci_cuda.n_pending; i++) {
        if (tci_cuda.pending[i].word == word) {
            tci_cuda.pending[i].word = NULL;
        }
    }
    pthread_mutex_unlock(&tci_cuda.lock);
}

static void tci_cuda_sequence_free(void *user, void *sequence)
{
    tci_cuda_sequence *s = sequence;
    (void)user;
    if (!s) {
        return;
    }
    if (s->word) {
        tci_cuda_forget(s->word);
    }
    void *before;
    bool lives = !tci_cuda_enter(&before);
    if (lives && s->executable) {
        tci_cuda.cu->graph_exec_free(s->executable);
    }
    if (lives && s->graph) {
        tci_cuda.cu->graph_free(s->graph);
    }
    if (lives && s->word) {
        tci_cuda.cu->host_free(s->word);
    }
    if (lives) {
        tci_cuda_leave(before);
    }
    tci_heap_free(s);
}

/* A chain: each node waits for the one before. */
static tc_status tci_cuda_add_nodes(tci_cuda_sequence *s, const tc_launch *launches, int n)
{
    _Alignas(64) int64_t arguments[TCI_CUDA_MAX_ARGUMENTS]; /* of tensor maps */
    tci_cu_kernel_params k;
    void *last = NULL;
    for (int i = 0; i < n; i++) {
        const tc_launch *launch = &launches[i];
        void *node = NULL;
        if (launch->task_end == launch->task_begin) {
            continue;
        }
        bool is_packed = tci_cuda_pack(launch, launch->fault ? s->word : NULL, arguments);
        if (!tci_cuda_describe(launch, is_packed, &k)) {
            return TC_ERR_LIMIT;
        }
        void *params[] = {arguments};
        k.params = params;
        tc_status status = tci_cuda_check(
            tci_cuda.cu->graph_add_kernel(&node, s->graph, &last, last != NULL, &k),
            "cuGraphAddKernelNode");
        if (status) {
            return status;
        }
        last = node;
    }
    return tci_cuda_check(tci_cuda.cu->graph_instantiate(&s->executable, s->graph, 0),
                          "cuGraphInstantiate");
}

static tc_status tci_cuda_make_graph(tci_cuda_sequence *s, const tc_launch *launches, int n)
{
    tc_status status = tci_cuda_check(tci_cuda.cu->graph_create(&s->graph, 0), "cuGraphCreate");
    for (int i = 0; i < n && !status; i++) {
        if (launches[i].fault && !s->word) {
            status = tci_cuda_check(tci_cuda.cu->host_alloc((void **)&s->word, sizeof(*s->word), 3),
                                    "cuMemHostAlloc");
            s->fault = launches[i].fault;
        }
    }
    if (!status && s->word) {
        *s->word = 0;
    }
    return status ? status : tci_cuda_add_nodes(s, launches, n);
}

static tc_status tci_cuda_record(void *user, const tc_launch *launches, int n, void **sequence)
{
    tci_cuda_sequence *s = tci_heap_get(sizeof(*s));
    void *before;
    if (!s) {
        return TC_ERR_MEMORY;
    }
    tc_status status = tci_cuda_enter(&before);
    if (!status) {
        status = tci_cuda_make_graph(s, launches, n);
        tci_cuda_leave(before);
    }
    if (status) {
        tci_cuda_sequence_free(user, s);
        s = NULL;
    }
    *sequence = s;
    return status;
}

static tc_status tci_cuda_replay(void *user, void *sequence)
{
    const tci_cuda_sequence *s = sequence;
    (void)user;
    void *before;
    tc_status status = tci_cuda_enter(&before);
    if (status) {
        return status;
    }
    pthread_mutex_lock(&tci_cuda.lock);
    status = s->word ? tci_cuda_reserve() : TC_OK;
    if (!status) {
        int code = tci_cuda.cu->graph_launch(s->executable, tci_cuda.stream);
        tci_cuda_note(code, s->word, s->fault);
        status = tci_cuda_check(code, "cuGraphLaunch");
    }
    pthread_mutex_unlock(&tci_cuda.lock);
    tci_cuda_leave(before);
    return status;
}

/* ---- memory ---- */

static void *tci_cuda_alloc(void *user, int64_t bytes)
{
    tci_cu_ptr p = 0;
    void *before;
    (void)user;
    tc_status status = tci_cuda_enter(&before);
    if (!status) {
        status = tci_cuda_check(tci_cuda.cu->alloc(&p, (size_t)bytes), "cuMemAlloc");
        tci_cuda_leave(before);
    }
    return status ? NULL : (void *)(uintptr_t)p;
}

static void tci_cuda_free(void *user, void *memory)
{
    void *before;
    (void)user;
    if (!tci_cuda_enter(&before)) {
        tci_cuda.cu->free((tci_cu_ptr)(uintptr_t)memory);
        tci_cuda_leave(before);
    }
}

/* In order with the launches. Takes no lock of this room: callers may hold locks of their own. */
static tc_status tci_cuda_move(void *to, const void *from, int64_t bytes, bool waits)
{
    void *before;
    tc_status status = tci_cuda_enter(&before);
    if (status) {
        return status;
    }
    status = tci_cuda_check(tci_cuda.cu->copy((tci_cu_ptr)(uintptr_t)to,
                                              (tci_cu_ptr)(uintptr_t)from, (size_t)bytes,
                                              tci_cuda.stream),
                            "cuMemcpyAsync");
    if (!status && waits) {
        status = tci_cuda_check(tci_cuda.cu->stream_wait(tci_cuda.stream), "cuStreamSynchronize");
    }
    tci_cuda_leave(before);
    return status;
}

static tc_status tci_cuda_copy_within(void *user, void *to, const void *from, int64_t bytes)
{
    (void)user;
    return tci_cuda_move(to, from, bytes, false);
}

static tc_status tci_cuda_copy(void *to, const void *from, int64_t bytes)
{
    return tci_cuda_move(to, from, bytes, true);
}

static tc_status tci_cuda_upload(void *user, void *to_device, const void *from, int64_t bytes)
{
    (void)user;
    return tci_cuda_copy(to_device, from, bytes);
}

static tc_status tci_cuda_download(void *user, void *to, const void *from_device, int64_t bytes)
{
    (void)user;
    return tci_cuda_copy(to, from_device, bytes);
}

static bool tci_cuda_is_device(void *user, const void *memory)
{
    /* CU_POINTER_ATTRIBUTE_..., CU_MEMORYTYPE_... */
    enum { TCI_CU_MEMORY_TYPE = 2, TCI_CU_DEVICE = 2 };
    unsigned type = 0;
    void *before;
    (void)user;
    if (tci_cuda_enter(&before)) {
        return false;
    }
    int code = tci_cuda.cu->pointer_attribute(&type, TCI_CU_MEMORY_TYPE,
                                              (tci_cu_ptr)(uintptr_t)memory);
    tci_cuda_leave(before);
    return !code && type == TCI_CU_DEVICE;
}

/* ---- what users call (api/cuda.h) ---- */

static bool tci_cuda_works(void)
{
    tc_backend_target target;
    tci_cuda_target(NULL, 0, &target);
    return target.usable;
}

TC_API tc_status tc_cuda_alloc(int64_t bytes, void **memory)
{
    if (!memory || bytes < 0) {
        return TC_ERR_ARGUMENT;
    }
    *memory = NULL;
    if (!tci_cuda_works()) {
        return TC_ERR_BACKEND;
    }
    *memory = tci_cuda_alloc(NULL, TCI_MAX(bytes, 1));
    return *memory ? TC_OK : TC_ERR_MEMORY;
}

TC_API void tc_cuda_free(void *memory)
{
    if (memory && tci_cuda_works()) {
        tci_cuda_free(NULL, memory);
    }
}

TC_API tc_status tc_cuda_copy(void *to, const void *from, int64_t bytes)
{
    if (bytes < 0 || (bytes > 0 && (!to || !from))) {
        return TC_ERR_ARGUMENT;
    }
    if (!tci_cuda_works()) {
        return TC_ERR_BACKEND;
    }
    return bytes ? tci_cuda_copy(to, from, bytes) : TC_OK;
}

/* Called once, before anything else of this backend. The order in which the locks are announced is
 * that in which they are taken: for the target the driver is looked up. */
TCI_FN const tc_backend *tci_cuda_backend(void)
{
    static tc_backend backend = {
        .name = "cuda",
        .dialect = "cuda",
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
        .upload = tci_cuda_upload,
        .download = tci_cuda_download,
        .record = tci_cuda_record,
        .replay = tci_cuda_replay,
        .sequence_free = tci_cuda_sequence_free,
        .copy = tci_cuda_copy_within,
        .is_device = tci_cuda_is_device,
        .last_error = tci_cuda_last_error,
    };
    backend.own_dialect = tci_cuda_words();
    tci_os_keep_over_fork(&tci_cuda.lock, tci_cuda_after_fork);
    tci_cu_keep_over_fork();
    return &backend;
}
