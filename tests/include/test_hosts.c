/* The shipped header on other processors: built by cross compilers, run by qemu's emulators of one
 * process. All interpret; aarch64 also compiles and runs native code, by the same cross compiler.
 * What is not installed is skipped (Debian: gcc-i686-linux-gnu, gcc-arm-linux-gnueabihf,
 * gcc-riscv64-linux-gnu, gcc-aarch64-linux-gnu, each with its libc6-dev-*-cross, and qemu-user).
 * Programs are linked statically, so that they need no files of the other system. */
#include "tc.h"

#include "tc_test.h"

/* Builds the program and runs it in each of the ways, words that are its argument. */
static void run_on(const char *compiler, const char *flags, const char *emulator, const char *ways)
{
    static const char build[] = "-O0 -DTCI_KEEP_OPTIMIZE -w -static tests/include/cases/host.c";
    const char *include = getenv("TC_TEST_INCLUDE");
    char line[1024];
    snprintf(line, sizeof(line), "command -v %s >/dev/null 2>&1", compiler);
    if (system(line)) {
        SKIP("no %s on this machine", compiler);
    }
    snprintf(line, sizeof(line), "command -v %s >/dev/null 2>&1", emulator);
    if (system(line)) {
        SKIP("no %s on this machine", emulator);
    }
    snprintf(line, sizeof(line),
             "T=$(mktemp -d); trap 'rm -rf $T' EXIT; { %s %s %s -I%s -o $T/host -lm -ldl -lpthread"
             " && for way in %s; do TC_CC=%s %s $T/host $way || exit 1; done; } >$T/log 2>&1;"
             " code=$?; [ $code = 0 ] || head -n 30 $T/log; exit $code",
             compiler, flags, build, include && *include ? include : ".", ways, compiler, emulator);
    fflush(stdout);
    CHECK_EQ_INT(system(line), 0);
}

TEST(x86_of_32_bits)
{
    run_on("i686-linux-gnu-gcc", "-msse2 -mfpmath=sse", "qemu-i386", "interp");
}

TEST(arm_of_32_bits)
{
    run_on("arm-linux-gnueabihf-gcc", "", "qemu-arm", "interp");
}

TEST(riscv64)
{
    run_on("riscv64-linux-gnu-gcc", "", "qemu-riscv64", "interp");
}

TEST(aarch64)
{
    run_on("aarch64-linux-gnu-gcc", "", "qemu-aarch64", "interp native");
}

TEST_MAIN
