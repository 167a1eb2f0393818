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

#include "../base/system_headers.h"
#include "cc.h"

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
