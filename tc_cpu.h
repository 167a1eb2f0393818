/* tc_cpu.h - generated: edit the rooms under src/ and run make. SPDX-License-Identifier: MIT */
/* ---- src/tc_cpu.h ---- */
/* src/tc_cpu.h - amalgamation root of tc_cpu.h, the CPU backend: C source compiled by the system
 * compiler. Included by tc.h. */
/* ---- src/cpu/cpu_features.c ---- */
/* cpu/cpu_features.c - detects the CPU features that this process may use, and derives the compiler
 * flags from them.
 *
 * In: the requested vector width. Out: a tci_target. Design: the process itself is queried.
 * __builtin_cpu_supports reads CPUID and the register state that the operating system saves
 * (XCR0), so the answer is right under valgrind and emulators, where -march=native would name
 * features that the process may not use. A host without that builtin, or on an unknown processor,
 * gets scalar code in plain C. Invariant: flags and features are a function of (arch,
 * vector_bytes, fma, matrix_units, unit_bytes, has_pairs, int_points), never of the model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- src/cpu/cc.h ---- */
/* cpu/cc.h - declares how the system's C compiler is found and called, and the CPU that it compiles
 * for. */
#ifndef TCI_CPU_CC_H
#define TCI_CPU_CC_H


typedef enum tci_cc_kind { TCI_CC_UNKNOWN, TCI_CC_GCC, TCI_CC_CLANG, TCI_CC_TCC } tci_cc_kind;

/* cpu/cpu_features.c. vector_bits as in tc_options. */
TCI_FN void tci_target_detect(tci_target *t, int vector_bits);
/* The compiler's flags for t->features. */
TCI_FN void tci_target_set_flags(tci_target *t);
/* True if this process may run code that was made for a target of these features. */
TCI_FN bool tci_target_runs(const char *features);
/* Why there is no native code on this processor. */
TCI_FN const char *tci_target_why_none(void);

/* cpu/machine.c */
TCI_FN void tci_cpu_machine(tc_machine *m);

/* The compiler that `wanted` names (NULL: cc, gcc, clang, tcc from PATH). False: there is none. */
TCI_FN bool tci_cc_find(const char *wanted, tc_backend_compiler *compiler);
/* Decided by the name and the libraries it links to; nothing is run. */
TCI_FN tci_cc_kind tci_cc_kind_of(const char *path);
/* Whether objects shall have a name in the file system: for debuggers (TC_KEEP), for reports of the
 * address sanitizer. */
TCI_FN bool tci_cc_is_watched(void);
/* Whether objects are instrumented as this process is, so that others cannot load them. */
TCI_FN bool tci_cc_instruments(void);
/* Compiles build->n sources at once, a process each. *why (static text) says what kind of
 * failure it was. */
TCI_FN tc_status tci_cc_build(tc_build *build, const tci_target *target, const char **why);

#endif

/* ---- src/cpu/cpu_features.c, continued ---- */
typedef struct tci_cpu_level {
    int vector_bytes;
    bool fma; /* needs FMA; else the C dialect computes it (emit/c_fallbacks.c) */
    const char *features;
    const char *flags[8];
} tci_cpu_level;

/* Widest first. Every processor with AVX2 has F16C and FMA, but FMA is asked for all the same. */
static const tci_cpu_level tci_cpu_levels[] = {
    {64,
     true,
     "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c",
     {"-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx2", "-mfma", "-mf16c",
      "-mprefer-vector-width=512"}},
    {32, true, "avx2,fma,f16c", {"-mavx2", "-mfma", "-mf16c"}},
    {16, true, "avx,fma", {"-mavx", "-mfma"}},
    {16, false, "sse42", {"-msse4.2"}},
};

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__TINYC__)
enum {
    TCI_CPU_LEAF = 7,       /* of cpuid: the features */
    TCI_CPU_BF16 = 1 << 22, /* edx of page 0 */
    TCI_CPU_TILE = 1 << 24,
    TCI_CPU_BYTES = 1 << 25,
    TCI_CPU_PAIRS = 1 << 5,      /* eax of page 1, */
    TCI_CPU_FOURS = 1 << 4,      /* of AVX2 */
    TCI_CPU_WIDE_FOURS = 1 << 11 /* ecx of page 0, of AVX-512 */
};

/* eax, ecx and edx of a page of the features; zeros where there is none. */
static void tci_cpu_features(unsigned page, unsigned *a, unsigned *c, unsigned *d)
{
    unsigned b, most, pages;
    *a = *c = *d = most = 0;
    __asm__ volatile("cpuid" : "+a"(most), "=b"(b), "+c"(*c), "=d"(*d));
    pages = TCI_CPU_LEAF;
    *c = 0;
    __asm__ volatile("cpuid" : "+a"(pages), "=b"(b), "+c"(*c), "=d"(*d));
    if (most >= TCI_CPU_LEAF && pages >= page) {
        *a = TCI_CPU_LEAF;
        *c = page;
        __asm__ volatile("cpuid" : "+a"(*a), "=b"(b), "+c"(*c), "=d"(*d));
    } else {
        *c = *d = 0;
    }
}

/* True if the processor multiplies pairs of bf16 (AVX512_BF16). */
static bool tci_cpu_takes_pairs(void)
{
    unsigned a, c, d;
    tci_cpu_features(1, &a, &c, &d);
    return (a & TCI_CPU_PAIRS) != 0;
}

/* True if this process may use products of bf16 pairs where they pay: with AMX they are slower than
 * f32 products (0.4 of them, on Sapphire Rapids), on Zen 4 and 5 twice as fast. */
static bool tci_cpu_has_pairs(void)
{
    unsigned a, c, d;
    tci_cpu_features(0, &a, &c, &d);
    return !(d & TCI_CPU_TILE) && tci_cpu_takes_pairs();
}

/* Products of integers that a lane of these vectors takes at once: two in all of them, four bytes
 * by VNNI. */
static int tci_cpu_int_points(int vector_bytes)
{
    unsigned a, c, d, wide;
    tci_cpu_features(0, &a, &wide, &d);
    tci_cpu_features(1, &a, &c, &d);
    bool fours = vector_bytes == 64   ? (wide & TCI_CPU_WIDE_FOURS) != 0
                 : vector_bytes == 32 ? (a & TCI_CPU_FOURS) != 0
                                      : false;
    return vector_bytes < 16 ? 0 : fours ? 4 : 2;
}
#else
static bool tci_cpu_takes_pairs(void)
{
    return false;
}

static bool tci_cpu_has_pairs(void)
{
    return false;
}

static int tci_cpu_int_points(int vector_bytes)
{
    (void)vector_bytes;
    return 0;
}
#endif

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__TINYC__)
/* True if this process may use the matrix unit (AMX, bf16): the processor has it, the system saves
 * its registers, and has granted permission to use them, as Linux requires. */
static bool tci_cpu_has_tiles(void)
{
    enum {
        TCI_CPU_KEPT = 3 << 17, /* of xcr0: tile configuration and data */
        TCI_CPU_ASK = 0x1023,   /* ARCH_REQ_XCOMP_PERM */
        TCI_CPU_DATA = 18       /* XFEATURE_XTILEDATA */
    };
    unsigned a, c, d, low, high;
    tci_cpu_features(0, &a, &c, &d);
    if (!(d & TCI_CPU_BF16) || !(d & TCI_CPU_TILE)) {
        return false;
    }
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (low & TCI_CPU_KEPT) == TCI_CPU_KEPT &&
           syscall(SYS_arch_prctl, TCI_CPU_ASK, TCI_CPU_DATA) == 0;
}

/* True if the matrix unit takes bytes too (AMX, int8). */
static bool tci_cpu_has_byte_tiles(void)
{
    unsigned a, c, d;
    tci_cpu_features(0, &a, &c, &d);
    return (d & TCI_CPU_BYTES) != 0;
}
#else
static bool tci_cpu_has_tiles(void)
{
    return false;
}

static bool tci_cpu_has_byte_tiles(void)
{
    return false;
}
#endif

static bool tci_cpu_has_fma(void)
{
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) && !defined(__TINYC__)
    __builtin_cpu_init();
    return __builtin_cpu_supports("fma");
#elif defined(__aarch64__)
    return true;
#else
    return false;
#endif
}

/* Widest vector that the process may use, in bytes; 0: no native code. */
static int tci_cpu_widest(void)
{
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) && !defined(__TINYC__)
    __builtin_cpu_init();
    if (!tci_cpu_has_fma() || !__builtin_cpu_supports("avx2")) {
        return tci_cpu_has_fma() || __builtin_cpu_supports("sse4.2") ? 16 : 0;
    }
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return avx512 ? 64 : 32;
#elif defined(__aarch64__)
    return 16;
#else
    return 0;
#endif
}

/* True if the process may run code of that level, in vectors of at most this many bytes. */
static bool tci_cpu_takes_level(const tci_cpu_level *level, int vector_bytes)
{
    return level->vector_bytes <= vector_bytes && (!level->fma || tci_cpu_has_fma());
}

TCI_FN const char *tci_target_why_none(void)
{
#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) && !defined(__TINYC__)
    return "the processor has no SSE4.2";
#elif defined(__x86_64__)
    return "the compiler of this library cannot ask what the processor has (gcc and clang can)";
#else
    return "native code is for x86-64 and aarch64, and this processor is another";
#endif
}

/* True if the comma-separated list has that word of n characters. */
static bool tci_cpu_list_has(const char *list, const char *word, size_t n)
{
    while (*list) {
        size_t length = strcspn(list, ", ");
        if (length == n && !memcmp(list, word, n)) {
            return true;
        }
        list += length;
        if (*list != ',') {
            return false;
        }
        list++;
    }
    return false;
}

TCI_FN void tci_target_set_flags(tci_target *t)
{
    static const struct {
        const char *word, *flag;
    } more[] = {{"amx", "-DTC_AMX=1"}, {"vnni", "-DTC_FOURS=1"}, {"bf16", "-DTC_PAIRS=1"}};
    t->n_flags = 0;
    for (int i = 0; i < TCI_COUNT(tci_cpu_levels) && !t->n_flags; i++) {
        const tci_cpu_level *level = &tci_cpu_levels[i];
        size_t n = strcspn(level->features, ",");
        for (int k = 0; tci_cpu_list_has(t->features, level->features, n) &&
                        k < TCI_COUNT(level->flags) && level->flags[k];
             k++) {
            t->flags[t->n_flags++] = level->flags[k];
        }
    }
    for (int i = 0; i < TCI_COUNT(more); i++) {
        if (tci_cpu_list_has(t->features, more[i].word, strlen(more[i].word))) {
            t->flags[t->n_flags++] = more[i].flag;
        }
    }
}

/* Scalar code (vector_bits -1) keeps the flags of the machine's own level up to AVX2: the
 * instruction for fma needs them. */
TCI_FN void tci_target_detect(tci_target *t, int vector_bits)
{
    memset(t, 0, sizeof *t);
    int widest = tci_cpu_widest();
    t->usable = widest > 0;
    t->vector_bytes = vector_bits > 0   ? TCI_MIN(widest, vector_bits / 8)
                      : vector_bits < 0 ? 0
                                        : widest;
#if defined(__aarch64__)
    snprintf(t->arch, sizeof t->arch, "aarch64");
    t->vector_bytes = t->vector_bytes >= 16 ? 16 : 0;
    snprintf(t->features, sizeof t->features, "neon,fma vector=%d", t->vector_bytes);
#else
    snprintf(t->arch, sizeof t->arch, "%s", t->usable ? "x86-64" : "c");
    int level_bytes = t->vector_bytes ? t->vector_bytes : TCI_MIN(widest, 32);
    const char *features = "none";
    const tci_cpu_level *level = tci_cpu_levels, *end = level + TCI_COUNT(tci_cpu_levels);
    while (level < end && !tci_cpu_takes_level(level, level_bytes)) {
        level++;
    }
    if (level < end) {
        features = level->features;
    }
    t->vector_bytes = level < end && t->vector_bytes ? level->vector_bytes : 0;
    t->matrix_units = t->vector_bytes == 64 && tci_cpu_has_tiles();
    t->unit_bytes = t->matrix_units && tci_cpu_has_byte_tiles();
    t->int_points = level < end && level->fma ? tci_cpu_int_points(t->vector_bytes) : 0;
    t->has_pairs = t->vector_bytes == 64 && tci_cpu_has_pairs();
    snprintf(t->features, sizeof t->features, "%s%s%s%s%s vector=%d", features,
             t->matrix_units ? ",amx" : "", t->unit_bytes ? ",bytes" : "",
             t->has_pairs ? ",bf16" : "", t->int_points == 4 ? ",vnni" : "", t->vector_bytes);
#endif
    tci_target_set_flags(t);
}

/* ---- code of another machine ---- */

/* True if the process may use one feature of code with such vectors: the code that is made here
 * would use it, or a lower level has it (AVX under AVX2). */
static bool tci_cpu_may_use(const tci_target *mine, const char *word, size_t n)
{
    bool has = tci_cpu_list_has(mine->features, word, n);
    for (int i = 0; i < TCI_COUNT(tci_cpu_levels) && !has; i++) {
        has = tci_cpu_takes_level(&tci_cpu_levels[i], tci_cpu_widest()) &&
              tci_cpu_list_has(tci_cpu_levels[i].features, word, n);
    }
    bool is_pairs = n == 4 && !memcmp(word, "bf16", n);
    return has || (is_pairs && mine->vector_bytes == 64 && tci_cpu_takes_pairs());
}

TCI_FN bool tci_target_runs(const char *features)
{
    tci_target mine;
    const char *at = strstr(features, "vector=");
    long vector_bytes = at ? strtol(at + strlen("vector="), NULL, 10) : -1;
    if (vector_bytes < 0 || vector_bytes > tci_cpu_widest()) {
        return false;
    }
    tci_target_detect(&mine, vector_bytes ? (int)vector_bytes * 8 : -1);
    for (at = features; *at && *at != ' ';) {
        size_t n = strcspn(at, ", ");
        if (!tci_cpu_may_use(&mine, at, n)) {
            return false;
        }
        at += n + (at[n] == ',');
    }
    return mine.usable && mine.vector_bytes == vector_bytes;
}
/* ---- src/cpu/machine.c ---- */
/* cpu/machine.c - detects the processor: its caches, and how many of its cores the process may
 * use.
 *
 * In: /sys, the affinity mask. Out: a tc_machine, 0 where unknown. Sizes are rounded to a power of
 * two, so that processors of one model have equal keys. The size of a shared cache is capped
 * (TCI_CPU_SHARED_MOST). */
#include <fcntl.h>
#include <string.h>


enum {
    TCI_CPU_CACHES = 8,            /* entries of /sys that are looked at */
    TCI_CPU_SHARED_MOST = 32 << 20 /* bytes of the last level that are counted on */
};

/* The first line of a small file of /sys; false: there is none. */
static bool tci_cpu_read(int index, const char *name, char *text, size_t room)
{
    char path[100];
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, room - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* "1024K" */
static int64_t tci_cpu_size(const char *text)
{
    char *end;
    int64_t size = strtol(text, &end, 10);
    return *end == 'M' ? size << 20 : *end == 'K' ? size << 10 : size;
}

static int64_t tci_cpu_power(int64_t size)
{
    int64_t power = 1;
    while (2 * power <= size) {
        power *= 2;
    }
    return size > 0 ? power : 0;
}

TCI_FN void tci_cpu_machine(tc_machine *m)
{
    m->processors = tci_os_cpu_count();
    for (int i = 0; i < TCI_CPU_CACHES; i++) {
        char level[32], type[32], size[32];
        if (!tci_cpu_read(i, "level", level, sizeof(level)) ||
            !tci_cpu_read(i, "type", type, sizeof(type)) ||
            !tci_cpu_read(i, "size", size, sizeof(size))) {
            break;
        }
        int at = level[0] - '1';
        if (at >= 0 && at < 3 && strncmp(type, "Instruction", 11) != 0) {
            m->cache_bytes[at] = tci_cpu_power(tci_cpu_size(size));
        }
    }
    m->cache_bytes[2] = TCI_MIN(m->cache_bytes[2], (int64_t)TCI_CPU_SHARED_MOST);
}
/* ---- src/cpu/cc.c ---- */
/* cpu/cc.c - finds and runs the system's C compiler.
 *
 * In: source texts and the paths of the objects wanted. Out: shared objects, or a status with the
 * command and the compiler's messages. No shell is involved: every argument is an element of a
 * vector.
 *
 * Flags. Flags that decide results are fixed: no contraction, wrapping integers, no strict
 * aliasing, no errno. gcc runs at -O1 plus four passes of -O2 (tci_cc_gcc_flags), which compiles a
 * sixth faster than -O2 and gives the same speed on code that is explicitly vectorized. Of these,
 * -fexpensive-optimizations fuses the multiply-adds of tiles, and without -fcaller-saves the rare
 * call of a slow path keeps every constant of a loop in memory. clang inlines only from -O2; its
 * loops must not become calls of memset and memcpy. On x86 with 16 vector registers gcc may not
 * hoist loop invariants: it does so whether or not registers are left, and then spills accumulators
 * of a tile (a convolution with a bias took twice as long). A quick build is -Og: for 40 kernels it
 * takes 0.37 of the CPU time (-O0: 0.30, -O1: 0.92).
 *
 * Generated code includes nothing and calls nothing but compiler helpers, so no libc is linked.
 * Nothing unwinds through a kernel: unwind tables, a fortieth of the time, are omitted unless the
 * user debugs. tcc silently ignores vector types, so its sources are scalar
 * (tc_backend_compiler.vector_bytes).
 *
 * A host built with the address sanitizer gets instrumented kernels if the compiler is of the same
 * kind: overruns inside kernels are then reported too. This is one of the features in every key,
 * since the loader of any other process would abort at such an object. */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>


#if defined(__SANITIZE_ADDRESS__)
#define TCI_CC_HOST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TCI_CC_HOST_ASAN 1
#endif
#endif
#ifndef TCI_CC_HOST_ASAN
#define TCI_CC_HOST_ASAN 0
#endif
#ifdef __clang__
#define TCI_CC_HOST_KIND TCI_CC_CLANG
#else
#define TCI_CC_HOST_KIND TCI_CC_GCC
#endif

/* WALL: how much longer than its CPU time a compiler may take by the clock. */
enum { TCI_CC_MAX_ARGS = 64, TCI_CC_LOG_BYTES = 1 << 16, TCI_CC_WALL = 5 };

/* ---- which compiler ---- */

static const char *tci_cc_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static tci_cc_kind tci_cc_kind_of_name(const char *name)
{
    if (strstr(name, "clang")) {
        return TCI_CC_CLANG;
    }
    if (strstr(name, "tcc")) {
        return TCI_CC_TCC;
    }
    return strstr(name, "gcc") ? TCI_CC_GCC : TCI_CC_UNKNOWN;
}

TCI_FN tci_cc_kind tci_cc_kind_of(const char *path)
{
    tci_cc_kind kind = tci_cc_kind_of_name(tci_cc_base_name(path));
    if (kind == TCI_CC_UNKNOWN) { /* "cc": see where it leads */
        char *real = realpath(path, NULL);
        kind = real ? tci_cc_kind_of_name(tci_cc_base_name(real)) : kind;
        free(real);
    }
    return kind;
}

TCI_FN bool tci_cc_find(const char *wanted, tc_backend_compiler *compiler)
{
    static const char *const usual[] = {"cc", "gcc", "clang", "tcc"};
    tci_str path = {0};
    bool found = false;
    if (wanted && wanted[0]) {
        found = tci_os_find_program(wanted, &path);
    } else {
        for (int i = 0; i < TCI_COUNT(usual) && !found; i++) {
            found = tci_os_find_program(usual[i], &path);
        }
    }
    memset(compiler, 0, sizeof(*compiler));
    found = found && !path.failed && path.n < sizeof(compiler->path) &&
            tci_os_stat(path.text, &compiler->bytes, &compiler->mtime_ns);
    if (found) {
        memcpy(compiler->path, path.text, path.n + 1);
        tci_cc_kind kind = tci_cc_kind_of(path.text);
        compiler->vector_bytes = kind == TCI_CC_TCC ? 0 : 64;
        compiler->has_quick = kind == TCI_CC_GCC;
    }
    tci_str_free(&path);
    return found;
}

TCI_FN bool tci_cc_instruments(void)
{
    return TCI_CC_HOST_ASAN;
}

TCI_FN bool tci_cc_is_watched(void)
{
    return TCI_CC_HOST_ASAN || tci_env_int(TCI_ENV_KEEP, 0);
}

/* ---- one process ---- */

typedef struct tci_cc_task {
    const char *args[TCI_CC_MAX_ARGS];
    int n_args;
    tci_command command;
    tci_str source_path, log; /* heap */
    tci_spawn result;
    int exit_code;
    const tc_build *build;
    int number; /* of the file, from 1 */
    pthread_t thread;
    bool threaded; /* thread runs it */
} tci_cc_task;

static void tci_cc_arg(tci_cc_task *t, const char *arg)
{
    if (t->n_args < TCI_CC_MAX_ARGS - 1) {
        t->args[t->n_args++] = arg;
    }
}

/* Lists that end in NULL. */
static const char *const tci_cc_gcc_flags[] = {"-O1",      "-fexpensive-optimizations",
                                               "-fgcse",   "-fcaller-saves",
                                               "-fipa-ra", NULL};
static const char *const tci_cc_gcc_quick[] = {"-Og", NULL};
static const char *const tci_cc_gcc_few_registers[] = {"-fno-move-loop-invariants", NULL};
static const char *const tci_cc_clang_flags[] = {"-O2", "-fno-builtin-memset",
                                                 "-fno-builtin-memcpy", NULL};
static const char *const tci_cc_other_flags[] = {"-O2", NULL};
static const char *const tci_cc_common_flags[] = {
    "-fPIC",           "-ffp-contract=off",    "-fwrapv", "-fno-strict-aliasing",
    "-fno-math-errno", "-fno-stack-protector", "-w",      NULL};

/* Constants in the pages of the code. A page of constants alone may never be asked for, where all
 * that is read of it is masked; and while it is not there each such read takes a hundred times as
 * long. */
#if defined(__ELF__)
#define TCI_CC_NEAR_CONSTANTS "-Wl,-z,noseparate-code"
#else
#define TCI_CC_NEAR_CONSTANTS "-w"
#endif

static void tci_cc_list(tci_cc_task *t, const char *const *list)
{
    for (; *list; list++) {
        tci_cc_arg(t, *list);
    }
}

static void tci_cc_fill_args(tci_cc_task *t, const tc_build *build, const tci_target *target,
                             const char *output)
{
    tci_cc_kind kind = tci_cc_kind_of(build->compiler);
    bool asan = TCI_CC_HOST_ASAN && kind == TCI_CC_HOST_KIND;
    tci_cc_arg(t, build->compiler);
    tci_cc_arg(t, "-shared");
    if (kind == TCI_CC_TCC) {
        tci_cc_arg(t, "-nostdlib");
        tci_cc_arg(t, "-w");
    } else {
        tci_cc_list(t, kind == TCI_CC_GCC     ? build->quick ? tci_cc_gcc_quick : tci_cc_gcc_flags
                       : kind == TCI_CC_CLANG ? tci_cc_clang_flags
                                              : tci_cc_other_flags);
        tci_cc_list(t, tci_cc_common_flags);
        if (kind == TCI_CC_GCC && target->vector_bytes < 64 && !strcmp(target->arch, "x86-64")) {
            tci_cc_list(t, tci_cc_gcc_few_registers);
        }
        for (int i = 0; i < target->n_flags; i++) {
            tci_cc_arg(t, target->flags[i]);
        }
        tci_cc_arg(t, asan ? "-fsanitize=address" : "-nostdlib");
    }
    if (build->keep) {
        tci_cc_arg(t, "-g");
    } else if (kind != TCI_CC_TCC && !asan) {
        tci_cc_arg(t, "-fno-asynchronous-unwind-tables");
    }
    tci_cc_arg(t, "-o");
    tci_cc_arg(t, output);
    if (kind != TCI_CC_TCC) {
        tci_cc_arg(t, TCI_CC_NEAR_CONSTANTS);
        tci_cc_arg(t, "-x");
        tci_cc_arg(t, "c");
    }
    tci_cc_arg(t, t->source_path.text);
    if (kind != TCI_CC_TCC) {
        tci_cc_arg(t, "-x");
        tci_cc_arg(t, "none");
        tci_cc_arg(t, "-lgcc");
    }
    t->args[t->n_args] = NULL;
}

static void *tci_cc_run(void *arg)
{
    tci_cc_task *t = arg;
    int64_t begin_ns = tci_os_now_ns();
    t->result = tci_os_run(&t->command, &t->log, &t->exit_code);
    if (t->build->built) {
        t->build->built(t->build->built_arg);
    }
    const char *file = strrchr(tci_str_text(&t->source_path), '/');
    char name[80];
    snprintf(name, sizeof(name), "compiler %s", file ? file + 1 : "");
    tci_profile_phase(name, begin_ns, tci_os_now_ns());
    return NULL;
}

/* ---- a build ---- */

static bool tci_cc_write_source(tci_cc_task *t, const tc_build *build, int i)
{
    tci_str text = {0};
    tci_str_printf(&text, "%s\n" TCI_OBJECT_END_LINE, build->sources[i]);
    tci_str_printf(&t->source_path, "%s/tc_%d.c", build->directory, i);
    bool good = !text.failed && !t->source_path.failed &&
                tci_os_publish(t->source_path.text, text.text, text.n, NULL);
    tci_str_free(&text);
    return good;
}

static void tci_cc_fill_command(tci_cc_task *t, const tc_build *build)
{
    t->build = build;
    t->command.argv = t->args;
    t->command.cpu_s = ((int64_t)build->timeout_ms + 999) / 1000;
    t->command.wall_ms = (int64_t)build->timeout_ms * TCI_CC_WALL;
    t->command.log_limit = TCI_CC_LOG_BYTES;
    t->command.temp_dir = build->directory; /* others may reach the usual one */
    t->command.cancel = build->cancel;
}

/* The thread of one of the other processes. */
static void *tci_cc_thread(void *arg)
{
    const tci_cc_task *t = arg;
    tci_profile_role("C compiler", t->number);
    return tci_cc_run(arg);
}

/* The other processes run in parallel with the first, each from a thread that lives as long as it
 * does; one without a thread runs when the first has ended. */
static void tci_cc_run_all(tci_cc_task *tasks, int n)
{
    for (int i = 1; i < n; i++) {
        tasks[i].number = i + 1;
        tasks[i].threaded = pthread_create(&tasks[i].thread, NULL, tci_cc_thread, &tasks[i]) == 0;
    }
    for (int i = 0; i < n; i++) {
        if (!tasks[i].threaded) {
            tci_cc_run(&tasks[i]);
        }
    }
    for (int i = 0; i < n; i++) {
        if (tasks[i].threaded) {
            pthread_join(tasks[i].thread, NULL);
        }
    }
}

/* The command, what it printed, and how it ended. */
static const char *tci_cc_tell(const tci_cc_task *t, tc_build *build)
{
    tci_str text = {0};
    const char *why = NULL;
    for (int i = 0; i < t->n_args; i++) {
        tci_str_printf(&text, "%s%s", i ? " " : "", t->args[i]);
    }
    tci_str_printf(&text, "\n%s", tci_str_text(&t->log));
    if (t->result == TCI_SPAWN_MISSING) {
        why = "the compiler cannot be started";
        tci_str_printf(&text, "\n%s", why);
    } else if (t->result == TCI_SPAWN_TIMEOUT) {
        why = "the compiler took too long";
        tci_str_printf(&text, "\nkilled after %.3g s", (double)t->command.wall_ms / 1000);
    } else if (t->result == TCI_SPAWN_FAILED) {
        why = "the compiler failed";
        tci_str_printf(&text, "\nended with code %d after %.3g s of processor time (of %lld s)",
                       t->exit_code, (double)t->command.used_ns / 1e9, (long long)t->command.cpu_s);
    }
    build->say(build->say_arg, tci_str_text(&text));
    tci_str_free(&text);
    return why;
}

TCI_FN tc_status tci_cc_build(tc_build *build, const tci_target *target, const char **why)
{
    int n = build->n;
    tci_cc_task *tasks = tci_heap_get((size_t)n * sizeof(*tasks));
    bool written = true;
    *why = NULL;
    if (!tasks) {
        *why = "out of memory for the compiler's processes";
        return TC_ERR_MEMORY;
    }
    for (int i = 0; i < n && written; i++) {
        tci_cc_fill_command(&tasks[i], build);
        written = tci_cc_write_source(&tasks[i], build, i);
        if (written) {
            tci_cc_fill_args(&tasks[i], build, target, build->outputs[i]);
        }
    }
    if (written) {
        tci_cc_run_all(tasks, n);
        for (int i = 0; i < n; i++) {
            build->processes += tasks[i].result != TCI_SPAWN_MISSING;
            const char *this_why = tci_cc_tell(&tasks[i], build);
            *why = *why ? *why : this_why;
        }
    } else {
        *why = "the source cannot be written";
        build->say(build->say_arg, *why);
    }
    for (int i = 0; i < n; i++) {
        tci_str_free(&tasks[i].source_path);
        tci_str_free(&tasks[i].log);
    }
    tci_heap_free(tasks);
    return !written ? TC_ERR_IO : *why ? TC_ERR_COMPILER : TC_OK;
}

#undef TCI_CC_HOST_ASAN
#undef TCI_CC_HOST_KIND
/* ---- src/cpu/backend.c ---- */
/* cpu/backend.c - implements the "cpu" backend: the system's C compiler and host threads.
 *
 * It is the first backend behind the interface of api/backend.h. Kernels are plain host functions,
 * so there is no launch, no device memory and nothing to wait for. */

#include <string.h>


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
