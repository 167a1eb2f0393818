/* How the headers behave in a stranger's program: strict warnings, C and C++, two translation
 * units, everything static, no foreign names, any order of includes. Each test runs the C compiler
 * on files of tests/include/cases. Needs TC_TEST_CC and TC_TEST_INCLUDE (set by make). */
#include "tc.h"

#include "tc_test.h"

#include <unistd.h>

#define STRICT "-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Werror"
#define FAST "-O0 -DTCI_KEEP_OPTIMIZE " /* to compile */
#define CASES "tests/include/cases/"

static const char *tct_env(const char *name, const char *fallback)
{
    const char *value = getenv(name);
    return value && *value ? value : fallback;
}

/* Runs a shell command in which CC, I and T stand for the compiler, -I flags and a scratch folder.
 * The result is its exit code; what it printed goes into the failure text. */
static int tct_shell(const char *command)
{
    char line[4096];
    snprintf(line, sizeof(line),
             "CC='%s'; I='-I%s'; T=$(mktemp -d); trap 'rm -rf $T' EXIT; L='-lm -ldl -lpthread';"
             " { %s ; } >$T/log 2>&1; code=$?; [ $code = 0 ] || head -n 30 $T/log; exit $code",
             tct_env("TC_TEST_CC", "cc"), tct_env("TC_TEST_INCLUDE", "."), command);
    fflush(stdout);
    return system(line);
}

#define CHECK_RUNS(command) CHECK_EQ_INT(tct_shell(command), 0)

static void tct_need(const char *program)
{
    char line[256];
    snprintf(line, sizeof(line), "command -v %s >/dev/null 2>&1", program);
    if (system(line)) {
        SKIP("no %s on this machine", program);
    }
}

TEST(declarations_are_strict_c)
{
    CHECK_RUNS("$CC -std=c11 " STRICT " $I -fsyntax-only " CASES "declarations.c");
    CHECK_RUNS("$CC -std=c17 " STRICT " $I -fsyntax-only " CASES "declarations.c");
    CHECK_RUNS("$CC -std=gnu11 " STRICT " $I -fsyntax-only " CASES "declarations.c");
}

TEST(declarations_are_strict_cxx17)
{
    tct_need("g++");
    CHECK_RUNS("g++ -x c++ -std=c++17 " STRICT " $I -fsyntax-only " CASES "declarations.c");
}

TEST(declarations_are_strict_cxx17_clang)
{
    tct_need("clang++");
    CHECK_RUNS("clang++ -x c++ -std=c++17 " STRICT " $I -fsyntax-only " CASES "declarations.c");
}

TEST(declarations_with_tcc)
{
    tct_need("tcc");
    CHECK_RUNS("tcc $I -c " CASES "declarations.c -o $T/declarations.o");
}

TEST(strict_build_without_a_compiler_at_run_time)
{
    CHECK_RUNS("$CC -std=gnu11 " FAST STRICT " $I " CASES "alone.c -o $T/alone $L &&"
               " PATH=/nowhere $T/alone");
}

TEST(two_translation_units_and_no_foreign_symbol)
{
    CHECK_RUNS("$CC " FAST "$I -c " CASES "two_a.c -o $T/a.o &&"
               " $CC $I $T/a.o " CASES "two_b.c -o $T/two $L && $T/two || exit 1;"
               " nm -g --defined-only $T/a.o | awk '{print $NF}' |"
               " grep -vE '^(tc_|main$)' && exit 1; exit 0");
}

TEST(everything_static)
{
    CHECK_RUNS("$CC " FAST "-DTC_STATIC $I -c " CASES "alone.c -o $T/alone.o || exit 1;"
               " nm -g --defined-only $T/alone.o | grep -v ' main$' | grep . && exit 1; exit 0");
}

TEST(strict_c11_after_other_headers)
{
    CHECK_RUNS("$CC -std=c11 " FAST "$I " CASES "alone.c -o $T/alone $L && $T/alone");
}

TEST(only_prefixed_macros_leak)
{
    CHECK_RUNS("echo '#include \"tc.h\"' >$T/a.c;"
               " printf '#include <stdbool.h>\\n#include <stddef.h>\\n"
               "#include <stdint.h>\\n#include <stdio.h>\\n' >$T/b.c;"
               " for f in a b; do $CC -dM -E $I $T/$f.c | awk '{sub(/\\(.*/, \"\", $2); print $2}'"
               " | sort -u >$T/$f; done;"
               " comm -23 $T/a $T/b | grep -vE '^(TC_|TCI_|tc_)' && exit 1; exit 0");
}

TEST(shipped_headers_are_fresh)
{
    if (access("build/amalgamate", X_OK)) {
        SKIP("build/amalgamate is not built");
    }
    CHECK_RUNS("build/amalgamate --check");
}

TEST(alone_in_an_empty_folder)
{
    if (strcmp(tct_env("TC_TEST_INCLUDE", "."), ".")) {
        SKIP("only the shipped headers stand alone");
    }
    CHECK_RUNS("cp tc.h tc_cpu.h " CASES "alone.c $T && cd $T && $CC alone.c $L && ./a.out");
}

TEST(without_the_cpu_header)
{
    if (strcmp(tct_env("TC_TEST_INCLUDE", "."), ".")) {
        SKIP("only the shipped headers stand alone");
    }
    CHECK_RUNS("cp tc.h " CASES "alone.c $T && cd $T && $CC " FAST "alone.c $L && ./a.out");
}

TEST(optimised_user_builds)
{
    CHECK_RUNS("$CC -O3 -march=native $I " CASES "alone.c -o $T/alone $L && $T/alone");
}

#define STRICT_FLOATS CASES "strict_floats.c"

TEST(floats_stay_strict_under_any_flags)
{
    CHECK_RUNS("F='-O0,-O2,-O3 -march=native,-std=c11 -O2';"
               " $CC --version | grep -q clang ||"
               " F=$F',-O3 -march=native -ffast-math,-Ofast,-O2 -fsingle-precision-constant';"
               " IFS=,; for f in $F; do IFS=' '; echo \"$f\";"
               " $CC -w -fwrapv $f " STRICT_FLOATS " -o $T/a $L && $T/a >$T/got || exit 1;"
               " [ -f $T/want ] || cp $T/got $T/want; cmp $T/want $T/got || exit 1;"
               " done; [ $(head -n 1 $T/want) = 0x0p+0 ]");
}

TEST(clang_with_fast_math_is_refused)
{
    tct_need("clang");
    CHECK_RUNS("! clang -ffast-math -fsyntax-only " STRICT_FLOATS " &&"
               " grep -q 'without -ffast-math' $T/log");
}

TEST_MAIN
