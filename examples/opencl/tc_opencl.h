/* tc_opencl.h - an OpenCL backend for tc, written as a user would write one: only public calls.
 *
 *     #include "tc.h"
 *     #include "tc_opencl.h"
 *     ...
 *     const char *why;
 *     if (tc_opencl_register(&why)) { ... }          // then options.backend = "opencl"
 *
 * What OpenCL C spells otherwise than C is the tc_dialect below; the rest is the seam of
 * api/backend.h. libOpenCL is opened at run time. It takes the first device that has doubles and
 * shared virtual memory (OpenCL 2.0 or 3.0), because kernels get plain pointers into an arena. One
 * queue, one work-item a task: right everywhere and fast nowhere. Link with -ldl -lpthread.
 *
 * Every launch gets a block of device memory: word 0 takes the fault, the literals follow it.
 * Blocks are kept in a list and given back by `sync`, which first carries faults to the host. */
#ifndef TC_OPENCL_H
#define TC_OPENCL_H

#include "tc.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* X(result, name, parameters): what is used of libOpenCL. Handles are pointers. */
#define OCL_ROWS(X)                                                                                \
    X(int, clGetPlatformIDs, (unsigned, void **, unsigned *))                                      \
    X(int, clGetDeviceIDs, (void *, uint64_t, unsigned, void **, unsigned *))                      \
    X(int, clGetDeviceInfo, (void *, unsigned, size_t, void *, size_t *))                          \
    X(void *, clCreateContext, (const intptr_t *, unsigned, void *const *, void *, void *, int *)) \
    X(void *, clCreateCommandQueue, (void *, void *, uint64_t, int *))                             \
    X(void *, clCreateProgramWithSource, (void *, unsigned, const char **, const size_t *, int *)) \
    X(void *, clCreateProgramWithBinary,                                                           \
      (void *, unsigned, void *const *, const size_t *, const unsigned char **, int *, int *))     \
    X(int, clBuildProgram, (void *, unsigned, void *const *, const char *, void *, void *))        \
    X(int, clGetProgramBuildInfo, (void *, void *, unsigned, size_t, void *, size_t *))            \
    X(int, clGetProgramInfo, (void *, unsigned, size_t, void *, size_t *))                         \
    X(int, clReleaseProgram, (void *))                                                             \
    X(void *, clCreateKernel, (void *, const char *, int *))                                       \
    X(int, clReleaseKernel, (void *))                                                              \
    X(int, clSetKernelArgSVMPointer, (void *, unsigned, const void *))                             \
    X(int, clEnqueueNDRangeKernel,                                                                 \
      (void *, void *, unsigned, const size_t *, const size_t *, const size_t *, unsigned,         \
       void *, void *))                                                                            \
    X(int, clFinish, (void *))                                                                     \
    X(void *, clSVMAlloc, (void *, uint64_t, size_t, unsigned))                                    \
    X(void, clSVMFree, (void *, void *))                                                           \
    X(int, clEnqueueSVMMemcpy,                                                                     \
      (void *, unsigned, void *, const void *, size_t, unsigned, void *, void *))

enum {                       /* of CL/cl.h */
       OCL_ALL_DEVICES = -1, /* as 64 bits */
       OCL_DEVICE_NAME = 0x102B,
       OCL_DRIVER_VERSION = 0x102D,
       OCL_DEVICE_DOUBLES = 0x1032,
       OCL_DEVICE_SVM = 0x1053,
       OCL_BUILD_LOG = 0x1183,
       OCL_BINARY_SIZES = 0x1165,
       OCL_BINARIES = 0x1166
};

typedef struct ocl_block { /* of one launch that may still run */
    struct ocl_block *next;
    int64_t *words; /* device memory */
    int64_t *fault; /* of the host, or NULL */
} ocl_block;

typedef struct ocl_module {
    void *program;
    void **kernels;
    int n_kernels; /* handed out by module_find */
} ocl_module;

static struct ocl_state {
    pthread_mutex_t lock;
    bool asked;
    char why[128], features[128];
    void *device, *context, *queue;
    ocl_block *blocks;
    char error[512];
#define OCL_ROW(result, name, parameters) result (*name) parameters;
    OCL_ROWS(OCL_ROW)
#undef OCL_ROW
} ocl = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- the language ---- */

static const tc_dialect ocl_dialect = {
    .prelude = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
               "#pragma OPENCL FP_CONTRACT OFF\n"
               "#define static\n#define inline\n#define half tc_half\n#define __FMA__ 1\n"
               "#define __builtin_fmaf(a, b, c) fma((float)(a), (float)(b), (float)(c))\n"
               "#define __builtin_fma(a, b, c) fma((double)(a), (double)(b), (double)(c))\n",
    .space = "__global ",
    .long_has_64_bits = true,
    .operand = "b#",
    .head = "__kernel void $n($(__global char *b#, $)__global long *words)\n{\n"
            "    __global long *const fault = words, *const lits = words + 1;\n"
            "    const long task_begin = get_global_id(0), task_end = task_begin + 1;\n"};

/* ---- the device ---- */

static bool ocl_open(void)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW);
    if (!library) {
        return false;
    }
    bool whole = true;
#define OCL_ROW(result, name, parameters)                                                          \
    *(void **)&ocl.name = dlsym(library, #name);                                                   \
    whole = whole && ocl.name != NULL;
    OCL_ROWS(OCL_ROW)
#undef OCL_ROW
    return whole;
}

static uint64_t ocl_number(void *device, unsigned what)
{
    uint64_t number = 0;
    return ocl.clGetDeviceInfo(device, what, sizeof(number), &number, NULL) ? 0 : number;
}

static bool ocl_choose(void)
{
    void *platforms[8], *devices[16];
    unsigned n_platforms = 0, n_devices = 0;
    if (ocl.clGetPlatformIDs(8, platforms, &n_platforms)) {
        return false;
    }
    for (unsigned p = 0; p < n_platforms && p < 8; p++) {
        if (ocl.clGetDeviceIDs(platforms[p], (uint64_t)OCL_ALL_DEVICES, 16, devices, &n_devices)) {
            continue;
        }
        for (unsigned d = 0; d < n_devices && d < 16; d++) {
            if (ocl_number(devices[d], OCL_DEVICE_DOUBLES) &&
                ocl_number(devices[d], OCL_DEVICE_SVM)) {
                ocl.device = devices[d];
                return true;
            }
        }
    }
    return false;
}

/* Under the lock. What is wrong, or "". */
static const char *ocl_start(void)
{
    char name[64] = "", driver[32] = "";
    if (!ocl_open()) {
        return "libOpenCL.so.1 is not here, or older than OpenCL 2.0";
    }
    if (!ocl_choose()) {
        return "no OpenCL device has doubles and shared virtual memory";
    }
    ocl.clGetDeviceInfo(ocl.device, OCL_DEVICE_NAME, sizeof(name) - 1, name, NULL);
    ocl.clGetDeviceInfo(ocl.device, OCL_DRIVER_VERSION, sizeof(driver) - 1, driver, NULL);
    snprintf(ocl.features, sizeof(ocl.features), "opencl %s %s", name, driver);
    ocl.context = ocl.clCreateContext(NULL, 1, &ocl.device, NULL, NULL, NULL);
    ocl.queue = ocl.context ? ocl.clCreateCommandQueue(ocl.context, ocl.device, 0, NULL) : NULL;
    return ocl.queue ? "" : "the OpenCL device cannot be used";
}

static tc_status ocl_target(void *user, int vector_bits, tc_backend_target *target)
{
    (void)user;
    (void)vector_bits;
    pthread_mutex_lock(&ocl.lock);
    if (!ocl.asked) {
        ocl.asked = true;
        snprintf(ocl.why, sizeof(ocl.why), "%s", ocl_start());
    }
    target->usable = !ocl.why[0];
    memcpy(target->why, ocl.why, sizeof(target->why));
    memcpy(target->features, ocl.features, sizeof(target->features));
    pthread_mutex_unlock(&ocl.lock);
    return TC_OK;
}

static tc_status ocl_fail(const char *what, int code)
{
    snprintf(ocl.error, sizeof(ocl.error), "OpenCL: %s failed (%d)", what, code);
    return TC_ERR_BACKEND;
}

static const char *ocl_last_error(void *user)
{
    (void)user;
    return ocl.error;
}

/* ---- compiling and loading ---- */

/* The compiler is part of the driver, which `features` names. */
static tc_status ocl_compiler(void *user, const char *wanted, tc_backend_compiler *compiler)
{
    (void)user;
    (void)wanted;
    snprintf(compiler->path, sizeof(compiler->path), "%s", ocl.features);
    return TC_OK;
}

static void ocl_say_log(void *program, tc_build *build)
{
    size_t n = 0;
    ocl.clGetProgramBuildInfo(program, ocl.device, OCL_BUILD_LOG, 0, NULL, &n);
    char *text = n ? calloc(n + 1, 1) : NULL;
    if (text && !ocl.clGetProgramBuildInfo(program, ocl.device, OCL_BUILD_LOG, n, text, NULL)) {
        build->say(build->say_arg, text);
    }
    free(text);
}

static tc_status ocl_write_binary(void *program, const char *path)
{
    size_t n = 0;
    FILE *file = NULL;
    tc_status status = TC_ERR_BACKEND;
    ocl.clGetProgramInfo(program, OCL_BINARY_SIZES, sizeof(n), &n, NULL);
    unsigned char *bytes = n ? malloc(n) : NULL;
    if (bytes && !ocl.clGetProgramInfo(program, OCL_BINARIES, sizeof(bytes), &bytes, NULL)) {
        file = fopen(path, "wb");
        status = file && fwrite(bytes, 1, n, file) == n ? TC_OK : TC_ERR_IO;
    }
    if (file && fclose(file)) {
        status = TC_ERR_IO;
    }
    free(bytes);
    return status;
}

static tc_status ocl_compile(void *user, tc_build *build)
{
    static const char options[] = "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt";
    tc_status status = TC_OK;
    (void)user;
    build->say(build->say_arg, options);
    for (int i = 0; i < build->n && status == TC_OK; i++) {
        const char *source = build->sources[i];
        void *program = ocl.clCreateProgramWithSource(ocl.context, 1, &source, NULL, NULL);
        if (!program) {
            return TC_ERR_MEMORY;
        }
        bool failed = ocl.clBuildProgram(program, 1, &ocl.device, options, NULL, NULL) != 0;
        ocl_say_log(program, build);
        status = failed ? TC_ERR_COMPILER : ocl_write_binary(program, build->outputs[i]);
        ocl.clReleaseProgram(program);
    }
    return status;
}

static tc_status ocl_module_load(void *user, const void *bytes, size_t n, const char *path,
                                 void **module)
{
    ocl_module *m = calloc(1, sizeof(*m));
    const unsigned char *binary = bytes;
    int code = -1;
    (void)user;
    (void)path;
    if (m) {
        m->program = ocl.clCreateProgramWithBinary(ocl.context, 1, &ocl.device, &n, &binary, NULL,
                                                   &code);
        code = m->program ? ocl.clBuildProgram(m->program, 1, &ocl.device, "", NULL, NULL) : code;
    }
    *module = m;
    if (code) {
        free(m);
        return ocl_fail("loading a program", code);
    }
    return TC_OK;
}

static void *ocl_module_find(void *user, void *module, const char *symbol)
{
    ocl_module *m = module;
    (void)user;
    pthread_mutex_lock(&ocl.lock);
    void **more = realloc(m->kernels, sizeof(*more) * (size_t)(m->n_kernels + 1));
    void *kernel = more ? ocl.clCreateKernel(m->program, symbol, NULL) : NULL;
    m->kernels = more ? more : m->kernels;
    if (kernel) {
        m->kernels[m->n_kernels++] = kernel;
    }
    pthread_mutex_unlock(&ocl.lock);
    return kernel;
}

static void ocl_module_free(void *user, void *module)
{
    ocl_module *m = module;
    (void)user;
    for (int i = 0; i < m->n_kernels; i++) {
        ocl.clReleaseKernel(m->kernels[i]);
    }
    ocl.clReleaseProgram(m->program);
    free(m->kernels);
    free(m);
}

/* ---- memory ---- */

static void *ocl_alloc(void *user, int64_t bytes)
{
    (void)user;
    return ocl.clSVMAlloc(ocl.context, 1 /* read and write */, (size_t)(bytes ? bytes : 64), 64);
}

static void ocl_free(void *user, void *memory)
{
    (void)user;
    ocl.clFinish(ocl.queue);
    ocl.clSVMFree(ocl.context, memory);
}

static tc_status ocl_copy(void *to, const void *from, int64_t bytes, bool wait)
{
    int code = bytes
                   ? ocl.clEnqueueSVMMemcpy(ocl.queue, wait, to, from, (size_t)bytes, 0, NULL, NULL)
                   : 0;
    return code ? ocl_fail("a copy", code) : TC_OK;
}

static tc_status ocl_transfer(void *user, void *to, const void *from, int64_t bytes)
{
    (void)user;
    return ocl_copy(to, from, bytes, true);
}

static tc_status ocl_copy_within(void *user, void *to, const void *from, int64_t bytes)
{
    (void)user;
    return ocl_copy(to, from, bytes, false);
}

/* ---- runs ---- */

/* Device memory that holds 0 and the literals of a launch, on the list; NULL: out of memory. */
static ocl_block *ocl_block_make(const tc_launch *launch)
{
    size_t bytes = sizeof(int64_t) * (size_t)(1 + launch->n_literals);
    int64_t *words = calloc(1, bytes);
    ocl_block *block = calloc(1, sizeof(*block));
    int64_t *memory = words && block ? ocl_alloc(NULL, (int64_t)bytes) : NULL;
    if (memory) {
        memcpy(words + 1, launch->literals, bytes - sizeof(*words));
        ocl_copy(memory, words, (int64_t)bytes, true);
        *block = (ocl_block){ocl.blocks, memory, launch->fault};
        ocl.blocks = block;
    } else {
        free(block);
    }
    free(words);
    return memory ? ocl.blocks : NULL;
}

static tc_status ocl_launch(void *user, const tc_launch *launch)
{
    size_t first = (size_t)launch->task_begin, n = (size_t)(launch->task_end - launch->task_begin);
    int code = 0;
    (void)user;
    pthread_mutex_lock(&ocl.lock); /* a kernel's arguments are state of the kernel */
    ocl_block *block = ocl_block_make(launch);
    for (int i = 0; block && i < launch->n_buffers && !code; i++) {
        code = ocl.clSetKernelArgSVMPointer(launch->function, (unsigned)i, launch->buffers[i]);
    }
    if (block && !code) {
        code = ocl.clSetKernelArgSVMPointer(launch->function, (unsigned)launch->n_buffers,
                                            block->words);
    }
    if (block && !code && n) {
        code = ocl.clEnqueueNDRangeKernel(ocl.queue, launch->function, 1, &first, &n, NULL, 0, NULL,
                                          NULL);
    }
    pthread_mutex_unlock(&ocl.lock);
    return !block ? TC_ERR_MEMORY : code ? ocl_fail("a launch", code) : TC_OK;
}

static tc_status ocl_sync(void *user)
{
    (void)user;
    pthread_mutex_lock(&ocl.lock);
    int code = ocl.clFinish(ocl.queue);
    while (ocl.blocks) {
        ocl_block *block = ocl.blocks;
        int64_t fault = 0;
        ocl.blocks = block->next;
        ocl_copy(&fault, block->words, sizeof(fault), true);
        if (fault && block->fault) {
            *block->fault = fault;
        }
        ocl.clSVMFree(ocl.context, block->words);
        free(block);
    }
    pthread_mutex_unlock(&ocl.lock);
    return code ? ocl_fail("clFinish", code) : TC_OK;
}

/* Makes the backend "opencl" known. TC_ERR_BACKEND: no device can be used, and *why (borrowed) says
 * so. */
static tc_status tc_opencl_register(const char **why)
{
    static const tc_backend backend = {
        .name = "opencl",
        .dialect = "opencl c",
        .own_dialect = &ocl_dialect,
        .target = ocl_target,
        .compiler = ocl_compiler,
        .compile = ocl_compile,
        .module_load = ocl_module_load,
        .module_find = ocl_module_find,
        .module_free = ocl_module_free,
        .launch = ocl_launch,
        .sync = ocl_sync,
        .alloc = ocl_alloc,
        .free = ocl_free,
        .upload = ocl_transfer,
        .download = ocl_transfer,
        .copy = ocl_copy_within,
        .last_error = ocl_last_error,
    };
    tc_backend_target target = {.usable = false};
    ocl_target(NULL, 0, &target);
    *why = ocl.why;
    return target.usable ? tc_register_backend(&backend) : TC_ERR_BACKEND;
}

#endif
