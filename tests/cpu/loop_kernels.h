/* tests/cpu/loop_kernels.h - kernels of kernel IR built by hand, compiled for several vector widths
 * and compared with the interpreter. After inside.h and tc_test.h. */
#ifndef TC_TEST_LOOP_KERNELS_H
#define TC_TEST_LOOP_KERNELS_H

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include "same.h"

enum { MAX_KERNELS = 1200, PAGE = 4096 };

static tci_scratch scratch;
static tci_kernel *kernels[MAX_KERNELS];
static char names[MAX_KERNELS][64];
static const char *forced[MAX_KERNELS]; /* schedule's text; NULL: the cheapest */
static int n_kernels;
static uint64_t seed;
static void *work; /* of the one thread */

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* ---- building kernels ---- */

static tci_kernel *begin_kernel(const char *name)
{
    tci_kernel *k = tci_kernel_make(&scratch);
    snprintf(k->name, sizeof(k->name), "tc_k_%s", name);
    return k;
}

static void end_kernel(tci_kernel *k)
{
    int64_t points = 1, bytes = 0;
    for (int a = 0; a < k->n_axes; a++) {
        points *= k->axes[a].size;
    }
    for (int i = 0; i < k->n_operands; i++) {
        bytes += k->operands[i].n * tci_dtype_get((tc_dtype)k->operands[i].dtype)->bytes;
    }
    k->flops = points * (1 + k->n_insts);
    k->bytes = bytes;
    if (n_kernels < MAX_KERNELS) {
        snprintf(names[n_kernels], sizeof(names[0]), "%s", k->name);
        kernels[n_kernels++] = k;
    }
}

static tc_dtype compute_of(tc_dtype t)
{
    return (tc_dtype)tci_dtype_get(t)->compute;
}

static int axis_x(tci_kernel *k, int axis, int64_t stride)
{
    return tci_kx_mul(k, tci_kx_axis(k, axis), stride);
}

static int load_at(tci_kernel *k, int operand, int x)
{
    tci_kinst i = {0};
    i.op = TCI_K_LOAD;
    i.dtype = (int8_t)compute_of((tc_dtype)k->operands[operand].dtype);
    i.x = x;
    i.imm = operand;
    i.guard = -1;
    return tci_kernel_inst(k, i);
}

static int guarded_load(tci_kernel *k, int operand, int x, int gx, int64_t lo, int64_t hi,
                        double fill)
{
    tci_kinst i = {0};
    tci_kguard g = {gx, lo, hi};
    i.op = TCI_K_LOAD;
    i.dtype = (int8_t)compute_of((tc_dtype)k->operands[operand].dtype);
    i.x = x;
    i.imm = operand;
    i.guard = k->n_guards;
    i.n_guards = 1;
    if (tci_dtype_is_float((tc_dtype)i.dtype)) {
        i.value.f = fill;
    } else {
        i.value.i = (int64_t)fill;
    }
    TCI_PUSH(&scratch, k->guards, k->n_guards, k->cap_guards, g);
    return tci_kernel_inst(k, i);
}

static int index_of(tci_kernel *k, int x)
{
    tci_kinst i = {0};
    i.op = TCI_K_INDEX;
    i.dtype = TC_I64;
    i.x = x;
    i.guard = -1;
    return tci_kernel_inst(k, i);
}

static int literal(tci_kernel *k, int slot, tc_dtype t)
{
    tci_kinst i = {0};
    i.op = TCI_K_LIT;
    i.dtype = (int8_t)t;
    i.x = i.guard = -1;
    i.imm = slot;
    k->n_literals = TCI_MAX(k->n_literals, slot + 1);
    return tci_kernel_inst(k, i);
}

static int fault(tci_kernel *k, int index, int64_t size)
{
    tci_kinst i = {0};
    i.op = TCI_K_FAULT;
    i.dtype = TC_I64;
    i.n_args = 1;
    i.args[0] = index;
    i.x = i.guard = -1;
    i.imm = size;
    k->faults = true;
    return tci_kernel_inst(k, i);
}

static int op1(tci_kernel *k, tci_prim p, int a)
{
    return tci_kernel_prim(k, p, (tc_dtype)k->insts[a].dtype, 1, a, -1, -1);
}

static int op2(tci_kernel *k, tci_prim p, int a, int b)
{
    return tci_kernel_prim(k, p, (tc_dtype)k->insts[a].dtype, 2, a, b, -1);
}

static int cast(tci_kernel *k, int a, tc_dtype to)
{
    return tci_kernel_prim(k, TCI_P_CAST, to, 1, a, -1, -1);
}

static int select3(tci_kernel *k, int m, int a, int b)
{
    return tci_kernel_prim(k, TCI_P_SELECT, (tc_dtype)k->insts[a].dtype, 3, m, a, b);
}

static int constant(tci_kernel *k, tc_dtype t, double c)
{
    tci_value v = {0};
    if (tci_dtype_is_float(t)) {
        v.f = c;
    } else {
        v.i = (int64_t)c;
    }
    return tci_kernel_const(k, t, v);
}

static int add_stage(tci_kernel *k, tci_kstage_kind kind, int n, const int *axes)
{
    tci_kstage st = {(uint8_t)kind, n, TCI_NEW_ARRAY(&scratch, int32_t, n + 1), 0, -1, -1};
    for (int i = 0; i < n; i++) {
        st.axes[i] = axes[i];
    }
    TCI_PUSH(&scratch, k->stages, k->n_stages, k->cap_stages, st);
    return k->n_stages - 1;
}

static int add_red(tci_kernel *k, tci_red_op op, int stage, int a, int b)
{
    bool rows = k->vector == TCI_VEC_INNER;
    tci_kred r = {.op = (uint8_t)op, .dtype = k->insts[a].dtype, .stage = stage, .in = {a, b, -1}};
    r.part = (uint8_t)(tci_red_parts(op) - 1);
    bool scan = k->stages[stage].kind == TCI_STAGE_SCAN;
    r.order = !rows ? TCI_ORDER_CHAIN : scan ? TCI_ORDER_BLOCK_SCAN : TCI_ORDER_LANES;
    r.order_n = rows ? TCI_VLANES : 0;
    TCI_PUSH(&scratch, k->reds, k->n_reds, k->cap_reds, r);
    tci_kinst i = {0};
    i.op = TCI_K_RED;
    i.dtype = (int8_t)tci_red_dtype(op, r.part, (tc_dtype)r.dtype);
    i.x = i.guard = -1;
    i.imm = k->n_reds - 1;
    int inst = tci_kernel_inst(k, i);
    k->reds[k->n_reds - 1].inst = inst;
    return inst;
}

static void add_store(tci_kernel *k, int stage, int operand, int x, int value)
{
    tci_kstore st = {stage, operand, x, value, TCI_MODE_SET, -1, false};
    TCI_PUSH(&scratch, k->stores, k->n_stores, k->cap_stores, st);
}

/* ---- running ---- */

typedef struct operand_memory {
    char *map;
    size_t map_bytes;
    char *data;
} operand_memory;

static operand_memory make_memory(size_t bytes)
{
    operand_memory m;
    m.map_bytes = (bytes + 2 * PAGE - 1) / PAGE * PAGE + PAGE;
    m.map = mmap(NULL, m.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(m.map + m.map_bytes - PAGE, PAGE, PROT_NONE);
    m.data = m.map + m.map_bytes - PAGE - bytes;
    return m;
}

static void fill_operand(tc_dtype t, char *data, int64_t n)
{
    int bytes = tci_dtype_get(t)->bytes;
    for (int64_t i = 0; i < n; i++) {
        uint64_t r = next_random();
        tci_value v = {0};
        if (tci_dtype_is_float(t)) {
            v.f = (double)((int64_t)(r >> 20 & 0xffff) - 0x8000) / 4096.0;
            v.f = (r & 127) == 1 ? NAN : (r & 127) == 2 ? -0.0 : (r & 127) == 3 ? 0.0 : v.f;
        } else {
            v.i = t == TC_BOOL ? (int64_t)(r & 1)
                               : (int64_t)(r >> 32 & 63) - (tci_dtype_is_signed(t) ? 32 : 0);
        }
        tci_value_store(t, data + i * bytes, v);
    }
}

static void compare_outputs(int i, const char *how, const operand_memory *got, char **expected)
{
    const tci_kernel *k = kernels[i];
    for (int o = 0; o < k->n_operands; o++) {
        tc_dtype t = (tc_dtype)k->operands[o].dtype;
        int bytes = tci_dtype_get(t)->bytes;
        for (int64_t e = 0; k->operands[o].is_output && e < k->operands[o].n; e++) {
            const char *a = got[o].data + e * bytes, *b = expected[o] + e * bytes;
            if (!same_bits(t, a, b, 1)) {
                tci_value x = tci_value_load(t, a), y = tci_value_load(t, b);
                CHECK_MSG(false,
                          "%s (%s): output %d element %lld is %g (%llx), interpreted %g (%llx)",
                          names[i], how, o, (long long)e, tci_dtype_is_float(t) ? x.f : (double)x.i,
                          (unsigned long long)x.u, tci_dtype_is_float(t) ? y.f : (double)y.i,
                          (unsigned long long)y.u);
                break;
            }
        }
    }
}

static void run_kernel(int i, const char *how, tci_kernel_fn fn, int64_t n_tasks)
{
    const tci_kernel *k = kernels[i];
    operand_memory memory[16];
    char *expected[16];
    void *bufs[17];
    int64_t lits[4], fault_got = 0, fault_expected = 0;
    seed = 1000003u * (uint64_t)(i + 1) + 7;
    for (int o = 0; o < k->n_operands; o++) {
        size_t bytes = (size_t)k->operands[o].n *
                       tci_dtype_get((tc_dtype)k->operands[o].dtype)->bytes;
        memory[o] = make_memory(bytes);
        expected[o] = calloc(bytes + 64, 1);
        memset(memory[o].data, 0x5a, bytes);
        memset(expected[o], 0x5a, bytes);
        if (!k->operands[o].is_output) {
            fill_operand((tc_dtype)k->operands[o].dtype, memory[o].data, k->operands[o].n);
            memcpy(expected[o], memory[o].data, bytes);
        }
        bufs[o] = expected[o];
    }
    for (int j = 0; j < k->n_literals; j++) {
        tci_value v = {.f = 1.25 + j};
        for (int n = 0; n < k->n_insts; n++) {
            if (k->insts[n].op == TCI_K_LIT && k->insts[n].imm == j &&
                !tci_dtype_is_float((tc_dtype)k->insts[n].dtype)) {
                v.i = 3 + j;
            }
        }
        lits[j] = v.i;
    }
    tci_interp *p = tci_interp_make(k);
    void *workspace = NULL;
    REQUIRE(p && posix_memalign(&workspace, 64, tci_interp_workspace(p) + 64) == 0);
    REQUIRE(work || posix_memalign(&work, 64, TCI_WORK_MOST) == 0);
    tci_interp_run(p, workspace, bufs, lits, &fault_expected, 0, tci_interp_tasks(p));
    for (int o = 0; o < k->n_operands; o++) {
        bufs[o] = memory[o].data;
    }
    bufs[k->n_operands] = work;
    if (n_tasks > 0) {
        fn(bufs, lits, &fault_got, n_tasks / 3, n_tasks);
        if (n_tasks / 3 > 0) {
            fn(bufs, lits, &fault_got, 0, n_tasks / 3);
        }
    }
    compare_outputs(i, how, memory, expected);
    CHECK_MSG(fault_got == fault_expected, "%s (%s): fault %lld, interpreted %lld", names[i], how,
              (long long)fault_got, (long long)fault_expected);
    for (int o = 0; o < k->n_operands; o++) {
        munmap(memory[o].map, memory[o].map_bytes);
        free(expected[o]);
    }
    free(workspace);
    tci_interp_free(p);
}

static bool compile(const char *compiler, int vector_bytes, const char *base, int64_t *n_tasks)
{
    char path[300], command[900];
    tci_dialect *d = tci_dialect_c(&scratch, vector_bytes);
    tci_str body = {.s = &scratch}, text = {.s = &scratch};
    for (int i = 0; i < n_kernels; i++) {
        char symbol[32];
        tci_launch launch;
        tci_machine machine = {.vector_bytes = vector_bytes, .thread_scratch = true};
        tci_str why = {.s = &scratch};
        tci_loop *l = tci_loop_schedule_as(&scratch, kernels[i], machine, forced[i], &why, &launch);
        CHECK_MSG(why.n == 0, "%s, %s: %s", names[i], forced[i], tci_str_text(&why));
        CHECK_MSG(!forced[i] || !strncmp(launch.why, forced[i], strlen(forced[i])),
                  "%s: forced %s, was given %s", names[i], forced[i], launch.why);
        tci_loop_verify(&scratch, l);
        snprintf(symbol, sizeof(symbol), "k%d", i);
        tci_emit_kernel(&body, d, kernels[i], l, symbol);
        n_tasks[i] = launch.n_tasks;
    }
    d->prelude(d, &text);
    tci_str_add(&text, tci_str_text(&body));
    snprintf(path, sizeof(path), "%s.c", base);
    FILE *f = fopen(path, "w");
    if (!f) {
        return false;
    }
    fputs(tci_str_text(&text), f);
    fclose(f);
    const char *machine = vector_bytes == 64
                              ? "-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c"
                          : vector_bytes == 32 ? "-mavx2 -mfma -mf16c"
                                               : "-mfma";
    snprintf(command, sizeof(command),
             "%s -O1 -ffp-contract=off -fwrapv -fno-strict-aliasing -fPIC -shared -nostdlib -w %s "
             "-o %s.so %s.c 2>%s.log",
             compiler, machine, base, base, base);
    return system(command) == 0;
}

/* Compiles all kernels built so far for one width and compares each with the interpreter. */
static void judge(const char *compiler, int vector_bytes)
{
    char directory[] = "/tmp/tc_loop_XXXXXX", base[200], how[64];
    int64_t *n_tasks = calloc(MAX_KERNELS, sizeof(*n_tasks));
    REQUIRE(mkdtemp(directory) && n_tasks);
    snprintf(base, sizeof(base), "%s/k", directory);
    snprintf(how, sizeof(how), "%s, %d bytes", compiler, vector_bytes);
    bool built = compile(compiler, vector_bytes, base, n_tasks);
    CHECK_MSG(built, "%s fails on %s.c", how, base);
    if (built) {
        char path[300];
        snprintf(path, sizeof(path), "%s.so", base);
        void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        CHECK_MSG(handle != NULL, "%s: %s", how, dlerror());
        for (int i = 0; handle && i < n_kernels; i++) {
            char symbol[32];
            snprintf(symbol, sizeof(symbol), "k%d", i);
            union {
                void *object;
                tci_kernel_fn fn;
            } u = {dlsym(handle, symbol)};
            CHECK(u.object != NULL);
            if (u.object) {
                run_kernel(i, how, u.fn, n_tasks[i]);
            }
        }
        if (tct_failures == 0) {
            char command[300];
            snprintf(command, sizeof(command), "rm -rf %s", directory);
            CHECK(system(command) == 0);
        }
    }
    free(n_tasks);
}

static bool have_compiler(const char *name)
{
    char command[100];
    snprintf(command, sizeof(command), "%s --version >/dev/null 2>&1", name);
    return system(command) == 0;
}

static void judge_all(void)
{
    const char *compiler = have_compiler("gcc") ? "gcc" : have_compiler("clang") ? "clang" : NULL;
    if (!compiler) {
        SKIP("no C compiler");
    }
    judge(compiler, 0);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        judge(compiler, 16);
        judge(compiler, 32);
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) {
        judge(compiler, 64);
        if (have_compiler("clang") && tct_soak) {
            judge("clang", 64);
            judge("clang", 0);
        }
    }
#endif
    tci_scratch_free(&scratch);
}

#define BEGIN()                                                                                    \
    do {                                                                                           \
        n_kernels = 0;                                                                             \
        memset(forced, 0, sizeof(forced));                                                         \
        tci_scratch_init(&scratch);                                                                \
        if (setjmp(scratch.escape)) {                                                              \
            CHECK_MSG(false, "escaped: %s", scratch.message);                                      \
            return;                                                                                \
        }                                                                                          \
    } while (0)

#endif
