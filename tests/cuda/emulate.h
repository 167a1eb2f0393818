/* tests/cuda/emulate.h - a backend "emulated" that runs the CUDA dialect's text on the CPU.
 *
 * The generated text is compiled as C++ behind a prelude that gives CUDA's words a meaning. A block
 * runs as fibers, one for each of its threads, that switch at barriers and shuffles only, in an
 * order that a seed changes every time; shared memory is static memory. A fiber that ends while
 * others wait at a barrier, or others of its warp at a shuffle, is an error, so control flow that
 * differs inside a block is found; not so one that says that it is one too many (TC_SURPLUS), as
 * barriers do not wait for it. Kernels with a main loop of their own run in the model of
 * model.h instead, which takes three quarters of a second to compile and is left out elsewhere.
 *
 * Variants: with emu_mutations set, a source is compiled once for each of them, changed by it; a
 * launch then runs the one that emu_variant says. So tests plant bugs.
 *
 * Include after tc.h with its implementation and TC_CUDA. */
#ifndef TC_TEST_EMULATE_H
#define TC_TEST_EMULATE_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char emu_prelude[] =
    "#include <ucontext.h>\n#include <stdlib.h>\n#include <stdio.h>\n#include <string.h>\n"
    "#include <math.h>\n"
    "#undef __FMA__\n"
    "#define __global__\n#define __noinline__\n#define __device__\n"
    "#define __forceinline__ inline\n#define __shared__ static\n"
    "#define __launch_bounds__(...)\n#define __cluster_dims__(...)\n#define __constant__\n"
    "#define __grid_constant__\n"
    "#define __align__(n) __attribute__((aligned(n)))\n"
    "static struct { int x, y; } threadIdx, blockIdx, gridDim, blockDim;\n"
    "#define TC_NO_PTX\n"
    "static unsigned short tc_narrow_f32_f16(float a) {\n"
    "    _Float16 h = (_Float16)a;\n    unsigned short bits;\n    memcpy(&bits, &h, 2);\n"
    "    return bits;\n}\n"
    "#ifdef EMU_MODEL\n#include \"model.h\"\n#else\n"
    "static const bool model_runs = false;\nstatic void model_sync_block() {}\n#endif\n"
    "static int emu_threads, emu_waiting, emu_ended, emu_failed, emu_surplus;\n"
    "static unsigned emu_seed = 1;\n"
    "static ucontext_t emu_main, *emu_fibers;\n"
    "static char *emu_state; /* 0 ready, 1 at a barrier, 2 ended, 3 ends as one too many */\n"
    "#define TC_SURPLUS (emu_state[(int)threadIdx.x] = 3)\n"
    "static char *emu_slots;\n"
    "static void __syncthreads() {\n"
    "    if (model_runs) {\n        model_sync_block();\n        return;\n    }\n"
    "    int me = threadIdx.x;\n    emu_state[me] = 1;\n    emu_waiting++;\n"
    "    swapcontext(&emu_fibers[me], &emu_main);\n}\n"
    "static void emu_meet_warp() {\n"
    "    if (model_runs) {\n        model_sync_block();\n        return;\n    }\n"
    "    int me = threadIdx.x;\n"
    "    for (int i = me / 32 * 32; i < me / 32 * 32 + 32 && i < emu_threads; i++) {\n"
    "        emu_failed |= emu_state[i] == 2;\n    }\n"
    "    emu_state[me] = 1;\n    swapcontext(&emu_fibers[me], &emu_main);\n}\n"
    "template <class V> static V __shfl_down_sync(unsigned, V v, int n) {\n"
    "    int me = threadIdx.x;\n"
    "    __builtin_memcpy(emu_slots + 16 * me, &v, sizeof v);\n    emu_meet_warp();\n"
    "    if (me % 32 + n < 32 && me + n < emu_threads) {\n"
    "        __builtin_memcpy(&v, emu_slots + 16 * (me + n), sizeof v);\n    }\n"
    "    emu_meet_warp();\n    return v;\n}\n"
    "template <class V> static V __shfl_sync(unsigned, V v, int n, int width = 32) {\n"
    "    int me = threadIdx.x;\n"
    "    __builtin_memcpy(emu_slots + 16 * me, &v, sizeof v);\n    emu_meet_warp();\n"
    "    __builtin_memcpy(&v, emu_slots + 16 * (me / width * width + n), sizeof v);\n"
    "    emu_meet_warp();\n    return v;\n}\n"
    "static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }\n"
    "static inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }\n"
    "static inline float __int_as_float(int i) { float f; memcpy(&f, &i, 4); return f; }\n"
    "static inline int __float_as_int(float f) { int i; memcpy(&i, &f, 4); return i; }\n"
    "static inline double __longlong_as_double(long long i) { double f; memcpy(&f, &i, 8); "
    "return f; }\n"
    "static inline float __fsqrt_rn(float a) { return sqrtf(a); }\n"
    "static inline double __dsqrt_rn(double a) { return sqrt(a); }\n#include \"unit.h\"\n";
static const char emu_runner[] =
    "static void (*emu_kernel)(const void *);\nstatic const void *emu_args;\n"
    "static void emu_fiber() {\n    int me = threadIdx.x;\n    emu_kernel(emu_args);\n"
    "    emu_surplus += emu_state[me] == 3;\n"
    "    emu_state[me] = emu_state[me] == 3 ? 3 : 2;\n"
    "    emu_ended++;\n    swapcontext(&emu_fibers[me], &emu_main);\n}\n"
    "static void emu_phase(int *order) {\n"
    "    for (int i = emu_threads - 1; i > 0; i--) {\n"
    "        emu_seed = emu_seed * 1664525u + 1013904223u;\n"
    "        int j = (int)(emu_seed >> 8) % (i + 1), t = order[i];\n"
    "        order[i] = order[j];\n        order[j] = t;\n    }\n"
    "    emu_waiting = 0;\n"
    "    for (int i = 0; i < emu_threads; i++) {\n"
    "        if (emu_state[order[i]] < 2) {\n"
    "            emu_state[order[i]] = 0;\n            threadIdx.x = order[i];\n"
    "            swapcontext(&emu_main, &emu_fibers[order[i]]);\n        }\n    }\n"
    "    emu_failed |= emu_waiting && emu_ended > emu_surplus;\n}\n"
    "extern \"C\" int emu_run(void (*kernel)(const void *), const void *args, int blocks, int "
    "threads) {\n"
    "    const size_t stack = 1 << 16;\n"
    "    char *stacks = (char *)malloc(stack * threads);\n"
    "    int *order = (int *)malloc(sizeof(int) * threads);\n"
    "    emu_fibers = (ucontext_t *)malloc(sizeof(ucontext_t) * threads);\n"
    "    emu_state = (char *)malloc(threads);\n    emu_slots = (char *)malloc(16 * threads);\n"
    "    emu_threads = threads;\n    emu_kernel = kernel;\n    emu_args = args;\n"
    "    blockDim.x = threads;\n    gridDim.x = blocks;\n"
    "    for (int b = 0; b < blocks && !emu_failed; b++) {\n"
    "        blockIdx.x = b;\n        emu_ended = emu_surplus = 0;\n"
    "        for (int i = 0; i < threads; i++) {\n"
    "            getcontext(&emu_fibers[i]);\n"
    "            emu_fibers[i].uc_stack.ss_sp = stacks + stack * i;\n"
    "            emu_fibers[i].uc_stack.ss_size = stack;\n            emu_fibers[i].uc_link = 0;\n"
    "            makecontext(&emu_fibers[i], emu_fiber, 0);\n"
    "            emu_state[i] = 0;\n            order[i] = i;\n        }\n"
    "        while (emu_ended < threads && !emu_failed) {\n            emu_phase(order);\n        "
    "}\n"
    "    }\n"
    "    free(stacks);\n    free(order);\n    free(emu_fibers);\n    free(emu_state);\n"
    "    free(emu_slots);\n    return emu_failed;\n}\n";

enum { EMU_VARIANTS = 32, EMU_WORDS = 544 };

typedef struct emu_function {
    void (*kernel[EMU_VARIANTS])(const void *);
    int (*run)(void (*)(const void *), const void *, int, int);
    int threads, cluster;              /* blocks that run together */
    const tci_cuda_skeleton *skeleton; /* of a kernel with a main loop of its own, or NULL */
    const char *(*model)(void (*)(const void *), const void *, int, int, int, int, long, unsigned);
} emu_function;

typedef struct emu_mutation {
    const char *from, *to;
} emu_mutation;

static pthread_mutex_t emu_lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t emu_launches, emu_kernels, emu_skeletons;
static const emu_mutation *emu_mutations; /* the last one's `from` is NULL */
static int emu_variant;
static unsigned emu_model_seed = 1;
static char emu_why[200] = "threads of a block took different ways to a barrier";

static tc_status emu_target(void *user, int vector_bits, tc_backend_target *target)
{
    (void)user;
    (void)vector_bits;
    snprintf(target->features, sizeof(target->features), "emulated");
    target->vector_bytes = 16;
    target->block_threads = 512;
    target->matrix_units = 2;
    target->usable = system("c++ --version >/dev/null 2>&1") == 0;
    snprintf(target->why, sizeof(target->why), "there is no C++ compiler");
    return TC_OK;
}

static tc_status emu_compiler(void *user, const char *wanted, tc_backend_compiler *compiler)
{
    (void)user;
    (void)wanted;
    snprintf(compiler->path, sizeof(compiler->path), "c++");
    compiler->vector_bytes = 16;
    return TC_OK;
}

/* For each kernel: an entry that takes a pointer, its threads, and the blocks of a cluster. */
static void emu_write_entries(FILE *file, const char *source)
{
    const char *mark = "__launch_bounds__(";
    for (const char *at = strstr(source, mark); at; at = strstr(at + 1, mark)) {
        const char *before = at;
        int threads = 0, cluster = 1;
        char name[200] = "";
        const char *after = strchr(at, ')');
        while (before > source && before[-1] != '\n') {
            before--;
        }
        sscanf(before, "extern \"C\" __global__ void __cluster_dims__(%d", &cluster);
        sscanf(at, "__launch_bounds__(%d", &threads);
        if (threads > 0 && after && sscanf(after, ") %199[a-zA-Z0-9_](", name) == 1) {
            fprintf(file,
                    "extern \"C\" int %s_threads = %d;\nextern \"C\" int %s_cluster = %d;\n"
                    "extern \"C\" void %s_entry(const void *args) {\n"
                    "    %s(*(const %s_args *)args);\n}\n",
                    name, threads, name, cluster, name, name, name);
        }
    }
}

/* source with every `from` replaced; heap. */
static char *emu_replace(const char *source, const char *from, const char *to)
{
    size_t n = strlen(source), n_from = strlen(from), n_to = strlen(to);
    char *out = (char *)malloc(n * (n_to + 1) / (n_from ? n_from : 1) + n + 1), *at = out;
    while (*source) {
        if (n_from && !strncmp(source, from, n_from)) {
            memcpy(at, to, n_to);
            at += n_to;
            source += n_from;
        } else {
            *at++ = *source++;
        }
    }
    *at = 0;
    return out;
}

/* The source as it is, or its variants, each in a namespace and with names of its own. */
static void emu_write_source(FILE *file, const char *source)
{
    if (!emu_mutations) {
        fputs(source, file);
        emu_write_entries(file, source);
    }
    for (int i = 0; emu_mutations && emu_mutations[i].from; i++) {
        char name[32];
        snprintf(name, sizeof(name), "tc_v%d_", i);
        char *changed = emu_replace(source, emu_mutations[i].from, emu_mutations[i].to);
        CHECK_MSG(!emu_mutations[i].from[0] || strcmp(changed, source), "not in the text: %s",
                  emu_mutations[i].from);
        char *named = emu_replace(changed, "tc_k_", name);
        fprintf(file, "namespace v%d {\n%s", i, named);
        emu_write_entries(file, named);
        fputs("}\n", file);
        free(changed);
        free(named);
    }
}

/* Whether any of the sources, which share a prelude, has a main loop of its own. */
static bool emu_wants_model(const tc_build *build)
{
    bool wants = false;
    for (int i = 0; i < build->n; i++) {
        wants = wants || strstr(build->sources[i], "_skeleton[]");
    }
    return wants;
}

static tc_status emu_compile(void *user, tc_build *build)
{
    (void)user;
    for (int i = 0; i < build->n; i++) {
        char path[600], command[2000];
        snprintf(path, sizeof(path), "%s/emu_%d.cc", build->directory, i);
        FILE *file = fopen(path, "w");
        if (!file) {
            return TC_ERR_IO;
        }
        fputs(emu_wants_model(build) ? "#define EMU_MODEL\n" : "", file);
        fputs(emu_prelude, file);
        fputs(emu_runner, file);
        emu_write_source(file, build->sources[i]);
        fclose(file);
        snprintf(command, sizeof(command),
                 "c++ -std=c++17 -w -O1 -mfma -ffp-contract=off -fno-strict-aliasing -fwrapv -fPIC "
                 "-Itests/cuda -shared -o '%s' '%s' -lm >'%s.log' 2>&1",
                 build->outputs[i], path, path);
        build->processes++;
        int failed = system(command);
        remove(path);
        if (failed) {
            char said[2100] = "";
            strncat(path, ".log", sizeof(path) - strlen(path) - 1);
            FILE *log = fopen(path, "r");
            size_t n = log ? fread(said, 1, sizeof(said) - 1, log) : 0;
            said[n] = 0;
            if (log) {
                fclose(log);
            }
            build->say(build->say_arg, said);
            build->refused = i;
            return TC_ERR_COMPILER;
        }
        strncat(path, ".log", sizeof(path) - strlen(path) - 1);
        remove(path);
    }
    return TC_OK;
}

static tc_status emu_module_load(void *user, const void *bytes, size_t n, const char *path,
                                 void **module)
{
    (void)user;
    (void)bytes;
    (void)n;
    *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return *module ? TC_OK : TC_ERR_BACKEND;
}

/* NAME, or the same name in variant i. */
static void *emu_symbol(void *module, int variant, const char *symbol, const char *end)
{
    char name[256];
    if (emu_mutations) {
        snprintf(name, sizeof(name), "tc_v%d_%s%s", variant, symbol + strlen("tc_k_"), end);
    } else {
        snprintf(name, sizeof(name), "%s%s", symbol, end);
    }
    return variant == 0 || emu_mutations ? dlsym(module, name) : NULL;
}

static void *emu_module_find(void *user, void *module, const char *symbol)
{
    (void)user;
    emu_function *f = (emu_function *)calloc(1, sizeof(*f)); /* lives as long as the process */
    for (int i = 0; i < EMU_VARIANTS; i++) {
        *(void **)&f->kernel[i] = emu_symbol(module, i, symbol, "_entry");
    }
    int *threads = (int *)emu_symbol(module, 0, symbol, "_threads");
    int *cluster = (int *)emu_symbol(module, 0, symbol, "_cluster");
    *(void **)&f->run = dlsym(module, "emu_run");
    *(void **)&f->model = dlsym(module, "model_run");
    f->skeleton = (const tci_cuda_skeleton *)emu_symbol(module, 0, symbol, "_skeleton");
    if (!f->kernel[0] || !threads || !cluster || !f->run || (f->skeleton && !f->model)) {
        free(f);
        return NULL;
    }
    f->threads = *threads;
    f->cluster = *cluster;
    emu_kernels++;
    emu_skeletons += f->skeleton != NULL;
    return f;
}

static void emu_module_free(void *user, void *module)
{
    (void)user;
    dlclose(module);
}

/* The arguments are laid out as tci_cuda_head and tci_cuda_wgmma_head declare them; a tensor map
 * is an address and where its description is. False: there are too many. */
static bool emu_pack(const emu_function *f, const tc_launch *launch, int64_t *args)
{
    int n_buffers = launch->n_buffers > 1 ? launch->n_buffers : 1;
    int n_literals = launch->n_literals > 1 ? launch->n_literals : 1;
    int n_maps = f->skeleton ? (int)f->skeleton->n_maps : 0;
    if (TCI_CUDA_MAP_WORDS * n_maps + n_buffers + n_literals + 1 > EMU_WORDS) {
        return false;
    }
    memset(args, 0, EMU_WORDS * sizeof(*args));
    for (int i = 0; i < n_maps; i++, args += TCI_CUDA_MAP_WORDS) {
        const tci_cuda_map *map = &f->skeleton->maps[i];
        char *start = (char *)launch->buffers[map->operand] + map->offset;
        args[0] = (int64_t)(uintptr_t)start;
        args[1] = (int64_t)(uintptr_t)map;
    }
    memcpy(args, launch->buffers, (size_t)launch->n_buffers * sizeof(void *));
    if (launch->n_literals) {
        memcpy(args + n_buffers, launch->literals, (size_t)launch->n_literals * sizeof(int64_t));
    }
    memcpy(args + n_buffers + n_literals, &launch->fault, sizeof(void *));
    return true;
}

static tc_status emu_launch(void *user, const tc_launch *launch)
{
    _Alignas(64) int64_t args[EMU_WORDS];
    const emu_function *f = (const emu_function *)launch->function;
    int blocks = (int)(launch->task_end - launch->task_begin);
    const char *why = NULL;
    (void)user;
    if (!emu_pack(f, launch, args)) {
        return TC_ERR_LIMIT;
    }
    pthread_mutex_lock(&emu_lock);
    emu_launches++;
    if (f->skeleton) {
        why = f->model(f->kernel[emu_variant], args, blocks, f->cluster, (int)f->skeleton->block_x,
                       (int)f->skeleton->block_y, (long)f->skeleton->shared_bytes, emu_model_seed);
    } else if (f->run(f->kernel[emu_variant], args, blocks, f->threads)) {
        why = "threads of a block took different ways to a barrier";
    }
    if (why) {
        snprintf(emu_why, sizeof(emu_why), "%s", why);
    }
    pthread_mutex_unlock(&emu_lock);
    return why ? TC_ERR_BACKEND : TC_OK;
}

static tc_status emu_sync(void *user)
{
    (void)user;
    return TC_OK;
}

static const char *emu_last_error(void *user)
{
    (void)user;
    return emu_why;
}

/* Memory of the device: the host's, but not the caller's. */
static int64_t emu_uploads, emu_downloads, emu_allocations;

static void *emu_alloc(void *user, int64_t bytes)
{
    (void)user;
    __atomic_add_fetch(&emu_allocations, 1, __ATOMIC_RELAXED);
    return aligned_alloc(64, ((size_t)bytes + 63) / 64 * 64);
}

static void emu_free(void *user, void *memory)
{
    (void)user;
    __atomic_sub_fetch(&emu_allocations, 1, __ATOMIC_RELAXED);
    free(memory);
}

static tc_status emu_upload(void *user, void *to, const void *from, int64_t bytes)
{
    (void)user;
    __atomic_add_fetch(&emu_uploads, 1, __ATOMIC_RELAXED);
    memcpy(to, from, (size_t)bytes);
    return TC_OK;
}

static tc_status emu_download(void *user, void *to, const void *from, int64_t bytes)
{
    (void)user;
    __atomic_add_fetch(&emu_downloads, 1, __ATOMIC_RELAXED);
    memcpy(to, from, (size_t)bytes);
    return TC_OK;
}

static tc_status emu_copy(void *user, void *to, const void *from, int64_t bytes)
{
    (void)user;
    memmove(to, from, (size_t)bytes);
    return TC_OK;
}

static const tc_backend *emulation(void)
{
    static tc_backend emu_backend = {
        .name = "emulated",
        .dialect = "cuda",
        .target = emu_target,
        .compiler = emu_compiler,
        .compile = emu_compile,
        .module_load = emu_module_load,
        .module_find = emu_module_find,
        .module_free = emu_module_free,
        .launch = emu_launch,
        .sync = emu_sync,
        .alloc = emu_alloc,
        .free = emu_free,
        .upload = emu_upload,
        .download = emu_download,
        .copy = emu_copy,
        .last_error = emu_last_error,
    };
    emu_backend.own_dialect = tci_cuda_words();
    return &emu_backend;
}

#endif
