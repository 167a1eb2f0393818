/* tests/tc_test.h - the test harness: one program holds any number of tests.
 *
 *     #include "tc.h"
 *     #include "tc_test.h"
 *     TEST(adds_scalars) { CHECK_EQ_INT(1 + 1, 2); }
 *     TEST_MAIN
 *
 * A failed CHECK is printed and counted, the test goes on; a failed REQUIRE ends the test.
 * SKIP("why") ends it as skipped. The program takes --list, --filter TEXT, --seed N and --soak; the
 * last line it prints is what tests/run.sh adds up. */
#ifndef TC_TEST_H
#define TC_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__GNUC__) || defined(__clang__)
#define TCT_UNUSED __attribute__((unused))
#define TCT_NORETURN __attribute__((unused, noreturn))
#define TCT_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define TCT_UNUSED
#define TCT_NORETURN
#define TCT_PRINTF(fmt, args)
#endif

typedef struct tct_test {
    const char *name;
    void (*run)(void);
    int line;
    struct tct_test *next;
} tct_test;

static tct_test *tct_first; /* by line; needs no order of constructors: NULL before any code runs */
static int tct_failures;    /* of the test that runs now */
static jmp_buf tct_end;     /* leaves it */
static char tct_skip_reason[256];
static const char *tct_name = "";
static uint64_t tct_seed = 1, tct_random_state;
static bool tct_soak; /* the long form of tests that have one */

static void tct_add(tct_test *t)
{
    tct_test **at = &tct_first;
    while (*at && (*at)->line < t->line) {
        at = &(*at)->next;
    }
    t->next = *at;
    *at = t;
}

#define TEST(name)                                                                                 \
    static void tct_run_##name(void);                                                              \
    static tct_test tct_test_##name = {#name, tct_run_##name, __LINE__, NULL};                     \
    __attribute__((constructor)) static void tct_add_##name(void)                                  \
    {                                                                                              \
        tct_add(&tct_test_##name);                                                                 \
    }                                                                                              \
    static void tct_run_##name(void)

/* "unit" of ".../tests/unit/test_base.c". */
static const char *tct_part(void)
{
    static char path[1024];
    snprintf(path, sizeof(path), "%s", __BASE_FILE__);
    char *end = strrchr(path, '/');
    if (!end) {
        return path;
    }
    *end = 0;
    char *start = strrchr(path, '/');
    return start ? start + 1 : path;
}

/* Ends a forked process; make coverage keeps what it has run. */
#ifdef TCT_COVERAGE
void __gcov_dump(void);
#else
#define __gcov_dump() ((void)0)
#endif
TCT_NORETURN static void tct_exit(int code)
{
    __gcov_dump();
    _exit(code);
}

TCT_PRINTF(3, 4)
TCT_UNUSED static void tct_fail(const char *file, int line, const char *format, ...)
{
    va_list args;
    if (++tct_failures > 10) {
        return; /* the first ten tell the story */
    }
    printf("%s/%s: FAIL %s:%d: ", tct_part(), tct_name, file, line);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    fflush(stdout);
}

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            tct_fail(__FILE__, __LINE__, "%s", #condition);                                        \
        }                                                                                          \
    } while (0)
/* The same with text of one's own, as for printf. */
#define CHECK_MSG(condition, ...)                                                                  \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            tct_fail(__FILE__, __LINE__, __VA_ARGS__);                                             \
        }                                                                                          \
    } while (0)
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            tct_fail(__FILE__, __LINE__, "%s", #condition);                                        \
            longjmp(tct_end, 1);                                                                   \
        }                                                                                          \
    } while (0)
#define CHECK_EQ_INT(a, b) tct_eq_int(__FILE__, __LINE__, #a, (long long)(a), (long long)(b))
#define CHECK_STR(a, b) tct_str(__FILE__, __LINE__, #a, (a), (b))
/* text contains part */
#define CHECK_HAS(text, part) tct_has(__FILE__, __LINE__, #text, (text), (part))
/* |a - b| <= tolerance * max(1, |b|); NaN equals NaN, infinities exactly */
#define CHECK_CLOSE(a, b, tolerance)                                                               \
    tct_close(__FILE__, __LINE__, #a, (double)(a), (double)(b), (double)(tolerance))
#define SKIP(...)                                                                                  \
    do {                                                                                           \
        snprintf(tct_skip_reason, sizeof(tct_skip_reason), __VA_ARGS__);                           \
        longjmp(tct_end, 2);                                                                       \
    } while (0)

TCT_UNUSED
static void tct_eq_int(const char *file, int line, const char *what, long long a, long long b)
{
    if (a != b) {
        tct_fail(file, line, "%s is %lld, expected %lld", what, a, b);
    }
}

TCT_UNUSED
static void tct_str(const char *file, int line, const char *what, const char *a, const char *b)
{
    if (!a || strcmp(a, b)) {
        tct_fail(file, line, "%s is \"%s\", expected \"%s\"", what, a ? a : "(null)", b);
    }
}

TCT_UNUSED
static void tct_has(const char *file, int line, const char *what, const char *a, const char *b)
{
    if (!a || !strstr(a, b)) {
        tct_fail(file, line, "%s is \"%s\", expected \"%s\" in it", what, a ? a : "(null)", b);
    }
}

TCT_UNUSED
static void tct_close(const char *file, int line, const char *what, double a, double b,
                      double tolerance)
{
    bool same = (isnan(a) && isnan(b)) || a == b;
    if (!same && !(fabs(a - b) <= tolerance * (fabs(b) > 1 ? fabs(b) : 1))) {
        tct_fail(file, line, "%s is %.17g, expected %.17g within %g", what, a, b, tolerance);
    }
}

/* Random numbers that depend on --seed and the test alone. */
TCT_UNUSED static uint64_t tct_random(void)
{
    uint64_t z = tct_random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

TCT_UNUSED static int tct_random_below(int n)
{
    return (int)(tct_random() % (uint64_t)n);
}

TCT_UNUSED static double tct_random_unit(void) /* in [0, 1) */
{
    return (double)(tct_random() >> 11) * 0x1p-53;
}

static double tct_now_s(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Compiler processes of this program so far. */
static long long tct_compiler_runs(void)
{
    long long runs = 0;
#if defined(TC_H) && !defined(TC_TEST_NO_STATS)
    tc_ctx *ctx;
    tc_options options;
    memset(&options, 0, sizeof(options));
    options.backend = "interp";
    if (tc_ctx_make(&ctx, &options) == TC_OK) {
        tc_stats stats;
        runs = tc_stats(ctx, &stats) == TC_OK ? (long long)stats.compiler_runs : 0;
        tc_ctx_free(ctx);
    }
#endif
    return runs;
}

static int tct_usage(void)
{
    printf("usage: [--list] [--filter TEXT] [--seed N] [--soak]\n");
    return 2;
}

static int tct_main(int argc, char **argv)
{
    static int passed, failed, skipped; /* static: they survive the longjmp of a test */
    static const char *filter = "";
    static bool list;
    double start_s = tct_now_s();
    tct_soak = getenv("TC_TEST_SOAK") != NULL;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--list") || !strcmp(argv[i], "--soak")) {
            list = list || argv[i][2] == 'l';
            tct_soak = tct_soak || argv[i][2] == 's';
        } else if (i + 1 < argc && !strcmp(argv[i], "--filter")) {
            filter = argv[++i];
        } else if (i + 1 < argc && !strcmp(argv[i], "--seed")) {
            tct_seed = strtoull(argv[++i], NULL, 0);
        } else {
            return tct_usage();
        }
    }
    for (tct_test *t = tct_first; t; t = t->next) {
        if (list) {
            printf("%s\n", t->name);
        }
        if (list || !strstr(t->name, filter)) {
            continue;
        }
        tct_name = t->name;
        tct_failures = 0;
        tct_random_state = tct_seed;
        int how = setjmp(tct_end);
        if (!how) {
            t->run();
        }
        skipped += how == 2 && !tct_failures;
        passed += how == 0 && !tct_failures;
        failed += tct_failures > 0;
        if (tct_failures) {
            printf("%s/%s: %d failed checks, seed %llu\n", tct_part(), t->name, tct_failures,
                   (unsigned long long)tct_seed);
        } else if (how == 2) {
            printf("%s/%s: SKIP %s\n", tct_part(), t->name, tct_skip_reason);
        }
    }
    if (!list) {
        printf("tc-test: %d passed, %d failed, %d skipped, %lld compiler runs, %.2f s\n", passed,
               failed, skipped, tct_compiler_runs(), tct_now_s() - start_s);
    }
    return failed != 0;
}

#define TEST_MAIN                                                                                  \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        return tct_main(argc, argv);                                                               \
    }

#endif
