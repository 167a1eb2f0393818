/* How the headers behave in a stranger's program: strict warnings, C and C++, two translation
 * units, everything static, no foreign names, any order of includes, any flags, what the include
 * costs, and the manual's examples. Each test runs the C compiler on files of tests/include/cases.
 * Needs TC_TEST_CC and TC_TEST_INCLUDE (set by make). */
#include "tc.h"

#include "tc_test.h"

#include <sys/resource.h>
#include <unistd.h>

#include "cases/bits.h"

#define STRICT "-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Werror "
#define CXX_STRICT                                                                                 \
    STRICT "-Wold-style-cast -Wcast-qual -Wuseless-cast -Wextra-semi -Wdouble-promotion "          \
           "-Wzero-as-null-pointer-constant "
#define FAST "-O0 -DTCI_KEEP_OPTIMIZE " /* seconds matter: few builds, and quick ones */
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
    CHECK_RUNS("$CC -std=c11 -pedantic " STRICT "$I -fsyntax-only " CASES "declarations.c");
    CHECK_RUNS("$CC -std=c17 " STRICT "$I -fsyntax-only " CASES "declarations.c");
    CHECK_RUNS("$CC -std=gnu11 " STRICT "$I -fsyntax-only " CASES "declarations.c");
    CHECK_RUNS("$CC -std=gnu11 -O2 " STRICT "$I -c " CASES "declarations.c -o $T/declarations.o");
}

TEST(declarations_are_strict_cxx17)
{
    tct_need("g++");
    CHECK_RUNS("g++ -x c++ -std=c++11 " CXX_STRICT "$I -fsyntax-only " CASES "declarations.c");
    CHECK_RUNS("g++ -x c++ -std=c++17 " CXX_STRICT "$I -fsyntax-only " CASES "declarations.c");
    CHECK_RUNS("g++ -std=c++17 -O2 " CXX_STRICT "$I -c " CASES "two_c.cc -o $T/two_c.o");
}

TEST(declarations_are_strict_cxx17_clang)
{
    tct_need("clang++");
    CHECK_RUNS("clang++ -Wno-unknown-warning-option -x c++ -std=c++17 " CXX_STRICT
               "$I -fsyntax-only " CASES "declarations.c");
    CHECK_RUNS("clang++ -Wno-unknown-warning-option -std=c++17 " CXX_STRICT
               "$I -fsyntax-only " CASES "two_c.cc " CASES "operators.cc");
}

/* Silent mistakes of a user's file end its compile, with words that say why. */
#define REFUSES(compiler, macro, words)                                                            \
    CHECK_RUNS("! " compiler " -D" macro " $I -fsyntax-only " CASES "refused.c 2>$T/said &&"       \
               " { grep -q '" words "' $T/said || { cat $T/said; exit 1; }; }")

TEST(mistakes_that_do_not_compile)
{
    CHECK_RUNS("$CC " STRICT "$I -fsyntax-only " CASES "refused.c");
    REFUSES("$CC", "POINTER", "tci_arg_is_a_tensor_or_a_number\\|tci_arg_nothing");
    REFUSES("$CC", "TEXT", "tci_arg_is_a_tensor_or_a_number\\|tci_arg_nothing");
    REFUSES("$CC", "FRACTION", "tci_a_size_is_an_integer");
    REFUSES("$CC", "FRACTION_BEHIND", "tci_a_size_is_an_integer");
    REFUSES("$CC", "BARE_BUFFER", "TC_BUFS_takes_TC_BUF");
    REFUSES("$CC", "BARE_BUFFER_BEHIND", "TC_BUFS_takes_TC_BUF");
    REFUSES("$CC", "ARRAY", "TC_TENSORS_takes_tensors_and_TC_TENSORS_N_an_array");
    tct_need("g++");
    CHECK_RUNS("g++ -x c++ -std=c++11 " STRICT "$I -fsyntax-only " CASES "refused.c");
    REFUSES("g++ -x c++ -std=c++17", "BARE_BUFFER", "tc_buf");
    REFUSES("g++ -x c++ -std=c++17", "BARE_BUFFER_BEHIND", "tc_buf");
    REFUSES("g++ -x c++ -std=c++17", "ARRAY", "tc_tensor");
    REFUSES("g++ -x c++ -std=c++17", "POINTER", "tci_arg");
    REFUSES("g++ -x c++ -std=c++17", "TEXT", "tci_arg");
    REFUSES("g++ -x c++ -std=c++17", "FRACTION", "a size is an integer");
    REFUSES("g++ -x c++ -std=c++17", "FRACTION_BEHIND", "a size is an integer");
}

TEST(the_implementation_is_not_for_cxx)
{
    tct_need("g++");
    CHECK_RUNS("! g++ -x c++ -DTC_IMPLEMENTATION $I -fsyntax-only " CASES "refused.c 2>$T/said &&"
               " [ $(grep -c error: $T/said) = 1 ] && grep -q 'in one .c file' $T/said");
}

TEST(c89_is_refused_in_one_line)
{
    CHECK_RUNS("echo '#include \"tc.h\"' >$T/old.c && ! $CC -std=c89 $I -fsyntax-only $T/old.c"
               " 2>$T/said && [ $(grep -c error: $T/said) = 1 ] && grep -q 'std=gnu11' $T/said");
}

TEST(declarations_with_tcc)
{
    tct_need("tcc");
    CHECK_RUNS("tcc $I -c " CASES "declarations.c -o $T/declarations.o");
}

/* Every example of api/manual.h; and those that print, but for what depends on the machine, print
 * what their comments say. */
TEST(examples_of_the_manual_compile_and_print_what_they_say)
{
    CHECK_RUNS("( mkdir $T/manual &&"
               " awk -v dir=$T/manual -f " CASES "manual.awk src/api/manual.h || exit 1;"
               " for c in $T/manual/*[0-9].c; do $CC -std=c11 -Wall -Wextra -Werror"
               " -Wno-unused-variable -Wno-unused-parameter -Wno-unused-but-set-variable $I"
               " -fsyntax-only $c || { cat $c; exit 1; }; done;"
               " echo '#define TC_IMPLEMENTATION\n#include \"tc.h\"' >$T/tc.c &&"
               " $CC " FAST "$I -c $T/tc.c -o $T/tc.o || exit 1;"
               " for want in $T/manual/*.want; do e=${want%.want}; m=$e.main.c; [ -f $m ] || m=;"
               " $CC -O0 $I $e.c $m $T/tc.o $L -o $T/example && $T/example >$T/printed || exit 1;"
               " cmp $T/printed $want || { cat $e.c $T/printed; exit 1; }; done )");
}

TEST(every_environment_variable_is_documented)
{
    CHECK_RUNS("sed -n 's/^ *X([A-Z_]*, \"\\([A-Z_]*\\)\".*/\\1/p' src/base/env.h >$T/names;"
               " [ $(wc -l <$T/names) -gt 15 ] || exit 1;"
               " for name in $(cat $T/names); do grep -q \"$name\" docs/environment.md ||"
               " { echo $name; exit 1; }; done");
}

/* Least processor time of several runs, in ms. */
static double tct_least_ms(const char *command)
{
    double least = 1e9;
    for (int i = 0; i < 7; i++) {
        struct rusage a, b;
        getrusage(RUSAGE_CHILDREN, &a);
        CHECK_EQ_INT(system(command), 0);
        getrusage(RUSAGE_CHILDREN, &b);
        double s = (double)(b.ru_utime.tv_sec - a.ru_utime.tv_sec) +
                   (double)(b.ru_stime.tv_sec - a.ru_stime.tv_sec);
        double us = (double)(b.ru_utime.tv_usec - a.ru_utime.tv_usec) +
                    (double)(b.ru_stime.tv_usec - a.ru_stime.tv_usec);
        least = fmin(least, 1e3 * s + 1e-3 * us);
    }
    return least;
}

/* The time is printed; what is held to is what makes it: the text that is left of the header. */
static void tct_include_cost(const char *compiler)
{
    char with[512], without[512];
    snprintf(with, sizeof(with), "echo '#include \"tc.h\"' | %s -I%s -S - -o /dev/null", compiler,
             tct_env("TC_TEST_INCLUDE", "."));
    snprintf(without, sizeof(without), "echo 'int x;' | %s -S - -o /dev/null", compiler);
    printf("include: tc.h adds %.1f ms to %s\n", tct_least_ms(with) - tct_least_ms(without),
           compiler);
    snprintf(with, sizeof(with),
             "test $(echo '#include \"tc.h\"' | %s -I%s -E -P - | wc -c) -lt 102400", compiler,
             tct_env("TC_TEST_INCLUDE", "."));
    CHECK_MSG(system(with) == 0, "%s: the declarations are longer than 100 KiB", compiler);
}

TEST(including_the_declarations_costs_little)
{
    char c[256];
    snprintf(c, sizeof(c), "%s -x c", tct_env("TC_TEST_CC", "cc"));
    tct_include_cost(c);
    if (!system("command -v g++ >/dev/null 2>&1")) {
        tct_include_cost("g++ -x c++ -std=c++17");
    }
    if (!system("command -v clang++ >/dev/null 2>&1")) {
        tct_include_cost("clang++ -x c++ -std=c++17");
    }
}

TEST(strict_implementation)
{
    CHECK_RUNS("$CC -std=gnu11 " STRICT "$I -fsyntax-only " CASES "alone.c");
    CHECK_RUNS("$CC -std=c11 -pedantic " STRICT "$I -fsyntax-only " CASES "alone.c");
    CHECK_RUNS("$CC -std=gnu17 -DTC_STATIC " STRICT "$I -fsyntax-only " CASES "alone.c");
}

TEST(alone_in_an_empty_folder_also_without_a_compiler_at_run_time)
{
    CHECK_RUNS("cp " CASES "alone.c $T; [ \"$I\" != -I. ] || { cp tc.h tc_cpu.h $T; I=; };"
               " P=$(pwd); cd $T && $CC -std=c11 " FAST "${I:+-I$P/${I#-I}} alone.c $L &&"
               " ./a.out && PATH=/nowhere ./a.out");
}

TEST(translation_units_in_c_and_cxx_and_no_foreign_symbol)
{
    tct_need("g++");
    CHECK_RUNS("$CC " FAST "$I -c " CASES "two_a.c -o $T/a.o &&"
               " $CC $I -c " CASES "two_b.c -o $T/b.o &&"
               " g++ -std=c++17 " CXX_STRICT "$I $T/a.o $T/b.o " CASES "two_c.cc " CASES
               "operators.cc -o $T/two $L &&"
               " $T/two || exit 1;"
               " nm -g --defined-only $T/a.o | awk '{print $NF}' |"
               " grep -vE '^(tc_|main$)' && exit 1; exit 0");
}

/* Where only some translation units define TC_DYNAMIC_SHAPES they do not link. */
TEST(symbolic_sizes_in_all_units_or_in_none)
{
    tct_need("g++");
    CHECK_RUNS("for d in '' -DTC_DYNAMIC_SHAPES; do"
               " $CC " FAST "$d $I -c tests/tc_impl.c -o $T/impl$d.o &&"
               " $CC -std=c11 " STRICT "$d $I -c " CASES "dims.c -o $T/c$d.o &&"
               " g++ -x c++ " CXX_STRICT "$d $I -c " CASES "dims.c -o $T/cxx$d.o || exit 1;"
               " for u in c cxx; do $CC $T/$u$d.o $T/impl$d.o -o $T/ok $L && $T/ok || exit 1;"
               " done; done; D=-DTC_DYNAMIC_SHAPES; for u in c cxx; do"
               " $CC $T/$u$D.o $T/impl.o -o $T/no $L >$T/why 2>&1 && exit 1;"
               " grep -q 'tc_ctx_make_dynamic_shapes' $T/why || exit 1;"
               " $CC $T/$u.o $T/impl$D.o -o $T/no $L >$T/why 2>&1 && exit 1;"
               " grep -q 'tc_ctx_make_fixed_shapes' $T/why || exit 1; done");
    CHECK_RUNS("$CC -DCASE_FORGETS $I -fsyntax-only " CASES "dims.c >$T/why 2>&1 && exit 1;"
               " grep -q TC_DIM_needs_TC_DYNAMIC_SHAPES_before_tc_h $T/why");
}

TEST(everything_static_and_no_cpu_header)
{
    CHECK_RUNS("cp " CASES "alone.c $T; [ \"$I\" != -I. ] || { cp tc.h $T; I=; };"
               " P=$(pwd); cd $T && [ -z \"$I\" ] || I=\"-DTC_NO_CPU -I$P/${I#-I}\";"
               " $CC " FAST "-DTC_STATIC $I -c alone.c && $CC alone.o $L && ./a.out || exit 1;"
               " nm -g --defined-only alone.o | grep -v ' main$' | grep . && exit 1; exit 0");
}

TEST(files_are_left_out)
{
    CHECK_RUNS("$CC -std=gnu11 " STRICT "-DTC_NO_IO $I -fsyntax-only " CASES "alone.c &&"
               " $CC " FAST "-DTC_NO_IO -DTC_NO_NAMES $I -c tests/tc_impl.c -o $T/none.o &&"
               " nm $T/none.o | grep -E 'tci?_(file|io|np[yz]|gguf|save|load)' && exit 1;"
               " nm $T/none.o | grep -E 'tc_op_|tci_named|tci?_expr_' && exit 1;"
               " echo 'int x = sizeof(tc_array);' >$T/a.c;"
               " $CC $I -include tc.h -fsyntax-only $T/a.c || exit 1;"
               " ! $CC -DTC_NO_IO $I -include tc.h -fsyntax-only $T/a.c || exit 1;"
               " echo 'const void *f(void) { return tc_op_name(0); }' >$T/a.c;"
               " $CC $I -include tc.h -fsyntax-only $T/a.c || exit 1;"
               " ! $CC -Werror -DTC_NO_NAMES $I -include tc.h -fsyntax-only $T/a.c");
}

/* Programs run, and the calls that are left out say so; the object is 40 kB smaller at least. */
TEST(debugging_is_left_out)
{
    CHECK_RUNS("$CC " FAST "-Wall -Wextra -Werror -DTC_NO_DEBUG $I -c tests/tc_impl.c "
               "-o $T/none.o || exit 1;"
               " nm $T/none.o | grep -E 'tci_(timeline|ring|minify_shrink)' && exit 1;"
               " echo 'int main(void) { tc_ctx *c; tc_program *f; tc_profile *p; float x = 0, y; '"
               "'if (tc_ctx_make(&c, 0) || tc_compile(tc_exp(tc_input(c, \"x\", TC_F32, 1)), &f)) '"
               "'return 1; tc_mark_begin(\"a\"); tc_mark_end(); '"
               "'return tc_run(f, TC_BUFS(TC_BUF(&x, 1)), TC_BUFS(TC_BUF(&y, 1))) || y != 1 || '"
               "'tc_profile_begin(0, &p) != TC_ERR_UNSUPPORTED || '"
               "'tc_report(f, \"r.html\") != TC_ERR_UNSUPPORTED; }' >$T/a.c;"
               " $CC $I -include tc.h $T/a.c $T/none.o $L -o $T/a.out && $T/a.out");
}

/* Without tc_cpu.h nothing is native: the log, tc_explain and the error of who insists name it. */
TEST(a_missing_cpu_header_is_named)
{
    CHECK_RUNS("cp " CASES "no_cpu.c $T; [ \"$I\" != -I. ] || { cp tc.h $T; I=; };"
               " P=$(pwd); cd $T && [ -z \"$I\" ] || I=\"-DTC_NO_CPU -I$P/${I#-I}\";"
               " $CC " FAST "$I no_cpu.c $L && TC_LOG=compile ./a.out >out 2>said &&"
               " for f in out said; do echo $f:; cat $f; done &&"
               " [ $(grep -c 'interpreting.*tc_cpu.h was not next to tc.h' said) = 1 ] &&"
               " grep -A1 '^interpreted instead of compiled' out | grep -q tc_cpu.h &&"
               " grep -q \"no backend 'cpu': expected interp (tc_cpu.h\" out");
}

TEST(cuda_without_the_cpu_header)
{
    CHECK_RUNS("cp " CASES "cuda_only.c $T; [ \"$I\" != -I. ] || { cp tc.h tc_cuda.h $T; I=; };"
               " P=$(pwd); cd $T && [ -z \"$I\" ] || I=\"-DTC_NO_CPU -I$P/${I#-I}\";"
               " $CC -std=gnu11 " FAST STRICT "$I cuda_only.c $L && ./a.out");
}

/* Schedules of blocks of threads are joined where a device asks for them, and change no plan of a
 * processor. A device that lacks them, or a dialect for them, is refused with the reason. */
TEST(a_device_of_blocks_asks_for_their_schedules)
{
    CHECK_RUNS("build() { $CC " FAST "$I $1 " CASES "blocks.c -o $T/$2 $L || exit 1; };"
               " show() { TC_LOG=compile $T/$1 2>$T/$1.log >$T/$1.raw || exit 1;"
               " sed 's/^compile: .*//' $T/$1.raw >$T/$1.out; };"
               " build '' without; build -DTC_BLOCKS with; show without; show with;"
               " for f in without with; do sed '/^== the device/,$d' $T/$f.out >$T/$f.plan; done;"
               " cat $T/*.log; cmp $T/without.plan $T/with.plan || exit 1;"
               " grep -q '^[0-9]* launches' $T/with.plan || exit 1;"
               " grep -q 'define TC_BLOCKS where TC_IMPLEMENTATION' $T/without.log || exit 1;"
               " grep -q 'its dialect does not have' $T/with.log");
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

/* A mistake in a column of the op rows is named with its file and line, and nothing is written. */
TEST(the_joiner_names_a_wrong_word_of_an_op_row)
{
    if (access("build/amalgamate", X_OK)) {
        SKIP("build/amalgamate is not built");
    }
    CHECK_RUNS("mkdir -p $T/src/ops; P=$(pwd); cd $T; try() {"
               " sed \"$1\" $P/src/ops/table.h >src/ops/table.h;"
               " cmp -s src/ops/table.h $P/src/ops/table.h && exit 1;"
               " line=$(grep -n \"$2\" src/ops/table.h | head -n 1 | cut -d: -f1);"
               " $P/build/amalgamate >out 2>&1 && exit 1; cat out;"
               " grep -q \"^amalgamate: src/ops/table.h:$line: row $3\" out || exit 1; };"
               " try 's/SIN(A), */SINUS(A),/' 'SINUS(A)'"
               " 'SIN, value column: SINUS: no such word';"
               " try 's/DIV(K(1), SQRT(A))/DIV(K(1))/' 'X(RSQRT' 'RSQRT, value column: ): exp';"
               " try 's/DA(MUL(G, Y))/DA(MUL(G, B))/' 'X(EXP'"
               " 'EXP, gradient column: B: the row';"
               " try 's/SUB(K(1), SQUARE(Y))/SUB(K(one), SQUARE(Y))/' 'K(one)'"
               " 'TANH, gradient column: one: K takes a number';"
               " try 's/DAB(MUL(G, B)/DIM(MUL(G, B)/' 'X(MUL,' 'MUL, gradient column: DIM: exp';"
               " try 's/MODULO(A, B)/LANE1(A, B)/' 'X(REMAINDER'"
               " 'REMAINDER, value column: LANE1';"
               " try 's/AXES, EXPANSION/AXES, EXPANDED/' 'X(MEAN'"
               " 'MEAN, gradient column: EXPANDED: expected OWN';"
               " [ ! -e src/ops/formula.gen.h ]");
}

/* The flags of a user who wants speed, and macros of all kinds: the bits stay those of this
 * program. Optimising the whole implementation takes long: -O3 is in the long form only. */
TEST(any_flags_and_macros_give_the_same_bits)
{
    char path[] = "/tmp/tc-bits-XXXXXX", command[512];
    static char expected[40000], got[40000];
    int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    CHECK_RUNS("$CC -std=gnu11 -Werror $I -fsyntax-only " CASES "bits.c");
    snprintf(command, sizeof(command),
             "$CC %s -march=native -ffp-contract=fast $I " CASES "bits.c -o $T/bits $L &&"
             " $T/bits >%s",
             tct_soak ? "-O3" : "-O1 -DTCI_KEEP_OPTIMIZE", path);
    CHECK_RUNS(command);
    FILE *file = fdopen(fd, "r");
    REQUIRE(file != NULL);
    size_t n = fread(got, 1, sizeof(got) - 1, file);
    fclose(file);
    unlink(path);
    got[n] = 0;
    bits_text(expected, sizeof(expected));
    CHECK(strlen(expected) > 1000);
    CHECK_STR(got, expected);
}

/* Every word in capitals that the rooms use and the system's headers do not, as a user's macro: it
 * does no harm and is still there afterwards. What breaks here wants a prefix, or is the operand of
 * a macro that neither pastes it nor makes a string of it. */
TEST(no_macro_of_a_user_gets_into_the_implementation)
{
    CHECK_RUNS("W=A-Za-z0-9_; export LC_ALL=C;"
               " cat src/*/*.[ch] | tr -c $W '\\n' | grep -E '^[A-Z][A-Z0-9_]*$' |"
               " grep -vE '^TCI?_' | sort -u >$T/words;"
               " echo '#include \"src/base/system_headers.h\"' | $CC -std=gnu11 -E -dD -I. -x c - |"
               " tr -c $W '\\n' | sort -u >$T/system;"
               " comm -23 $T/words $T/system | sed 's/.*/#define & (1 2 3)/' >$T/a.c;"
               " [ $(wc -l <$T/a.c) -gt 100 ] || exit 1;"
               " sed 's/.define \\([A-Z0-9_]*\\).*/\\n#ifndef \\1\\n#error \\1\\n#endif/' $T/a.c"
               " >$T/b.c;"
               " printf '#define TC_IMPLEMENTATION\\n#include \"tc.h\"\\n' >>$T/a.c;"
               " cat $T/b.c >>$T/a.c;"
               " for d in '' '-DTC_CUDA -DTC_DYNAMIC_SHAPES'; do"
               " $CC -std=gnu11 -Werror $d $I -fsyntax-only $T/a.c || exit 1; done");
}

/* The inner loops of the interpreter, the recipes and the helpers, optimised and not: same bits. */
TEST(the_interpreter_has_the_same_bits_at_any_optimisation)
{
    CHECK_RUNS("for f in -O0 -O2 '-O0 -DTCI_KEEP_OPTIMIZE'; do"
               " $CC -std=gnu11 $f $I " CASES "bits.c -o $T/bits $L &&"
               " $T/bits >$T/got || exit 1; [ $(wc -c <$T/got) -gt 1000 ] || exit 1;"
               " [ -f $T/want ] || cp $T/got $T/want; cmp $T/want $T/got || exit 1; done");
}

/* What the header costs a program that uses little of it. */
TEST(the_smallest_program_is_small)
{
#if !defined(__x86_64__)
    SKIP("measured on x86-64");
#endif
    CHECK_RUNS("$CC --version | grep -q clang && most=2200000 || most=2000000;"
               " $CC -O2 -s $I " CASES "alone.c -o $T/alone $L && wc -c <$T/alone &&"
               " [ $(wc -c <$T/alone) -le $most ]");
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

/* Every level of x86-64 and what came after it: flags of a user's processor, which -march=native
 * may turn on, never stop the implementation. Those that this compiler does not know are left
 * out. */
TEST(flags_of_any_processor)
{
#if !defined(__x86_64__)
    SKIP("flags of x86-64");
#endif
    CHECK_RUNS("echo 'int x;' >$T/a.c; known=0;"
               " for f in -march=x86-64 -march=x86-64-v2 -march=x86-64-v3 -march=x86-64-v4"
               " -march=znver3 -march=znver4 -march=znver5 -march=sapphirerapids"
               " -march=graniterapids -march=sierraforest -mavx512fp16 -mavx512bf16"
               " -mavx512vp2intersect -mavxvnni"
               " -mavxvnniint8 -mavxneconvert -mavxifma -mgfni -mamx-tile -mamx-bf16"
               " -mamx-int8 -mamx-fp16 -mfma4 -mxop -mavx10.1 -mavx10.2 -mapxf; do"
               " $CC $f -fsyntax-only $T/a.c 2>/dev/null || continue; known=$((known + 1));"
               " $CC -w -O2 $f $I -fsyntax-only tests/tc_impl.c || { echo \"$f\"; exit 1; };"
               " done; [ $known -ge 10 ]");
}

/* Excess precision would change results: refused, with what to do. */
TEST(excess_precision_is_refused)
{
#if !defined(__x86_64__) || defined(__clang__)
    SKIP("-mfpmath=387 is gcc's, on x86");
#endif
    CHECK_RUNS("! $CC -mfpmath=387 -w $I -fsyntax-only tests/tc_impl.c >$T/why 2>&1 &&"
               " grep -q 'evaluated in their own type' $T/why");
}

TEST(clang_with_fast_math_is_refused)
{
    tct_need("clang");
    CHECK_RUNS("! clang -ffast-math -fsyntax-only " STRICT_FLOATS " &&"
               " grep -q 'without -ffast-math' $T/log");
}

TEST_MAIN
