/* tests/include/test_install.c - make install, and small programs that find what it installs
 * through pkg-config and through CMake. */
#include "tc.h"

#include "tc_test.h"

#include <unistd.h>

/* Runs a shell command in which T is a scratch folder that lives for all tests. */
static int tct_shell(const char *command)
{
    static char line[4096];
    const char *cc = getenv("TC_TEST_CC");
    snprintf(line, sizeof(line),
             "CC='%s'; T=/tmp/tc-install-%d; mkdir -p $T; { %s ; } >$T/log"
             " 2>&1; code=$?; [ $code = 0 ] || tail -n 30 $T/log; exit $code",
             cc && *cc ? cc : "cc", (int)getpid(), command);
    fflush(stdout);
    return system(line);
}

#define APP                                                                                        \
    "printf '#include <tc.h>\\n#include <string.h>\\n"                                             \
    "int main(void) { tc_ctx *c; float y = 0;"                                                     \
    " if (strcmp(tc_version(), TC_VERSION) || tc_ctx_make(&c, NULL)) return 1;"                    \
    " tc_read(tc_sqrt(tc_full(c, 4, TC_F32)), &y, 1); tc_ctx_free(c);"                             \
    " return y != 2; }\\n' >$T/app.c; "

static bool installed;

static void remove_installed(void)
{
    char line[64];
    snprintf(line, sizeof(line), "rm -rf /tmp/tc-install-%d", (int)getpid());
    if (system(line)) {
        perror(line);
    }
}

static void need_installed(void)
{
    if (!installed) {
        atexit(remove_installed);
        CHECK_EQ_INT(tct_shell("MAKEFLAGS= make -s install CC=\"$CC\" PREFIX=$T/usr LIB_CFLAGS='-O0"
                               " -DTCI_KEEP_OPTIMIZE' DEFINES=-DTC_DYNAMIC_SHAPES"),
                     0);
        installed = true;
    }
}

static bool have(const char *program)
{
    char line[128];
    snprintf(line, sizeof(line), "command -v %s >/dev/null 2>&1", program);
    return system(line) == 0;
}

TEST(programs_find_the_library_through_pkg_config)
{
    need_installed();
    if (!have("pkg-config")) {
        SKIP("no pkg-config on this machine");
    }
    CHECK_EQ_INT(tct_shell(APP "export PKG_CONFIG_PATH=$T/usr/lib/pkgconfig;"
                               " [ $(pkg-config --modversion tc) = $(sed -n"
                               " 's/^#define TC_VERSION \"\\(.*\\)\"/\\1/p' $T/usr/include/tc.h) ]"
                               " || exit 1;"
                               " $CC $(pkg-config --cflags tc) $T/app.c $(pkg-config --libs tc)"
                               " -o $T/app &&"
                               " LD_LIBRARY_PATH=$T/usr/lib $T/app &&"
                               " $CC $(pkg-config --cflags tc) $T/app.c $T/usr/lib/libtc.a"
                               " -lm -ldl -lpthread -o $T/app && $T/app"),
                 0);
}

TEST(programs_find_the_library_through_cmake)
{
    need_installed();
    if (!have("cmake")) {
        SKIP("no cmake on this machine");
    }
    CHECK_EQ_INT(tct_shell(APP "printf 'cmake_minimum_required(VERSION 3.10)\\nproject(app C)\\n"
                               "find_package(tc 0.9 REQUIRED)\\nadd_executable(a app.c)\\n"
                               "target_link_libraries(a tc::tc)\\nadd_executable(b app.c)\\n"
                               "target_link_libraries(b tc::static)\\n' >$T/CMakeLists.txt;"
                               " MAKEFLAGS= cmake -S $T -B $T/b -DCMAKE_PREFIX_PATH=$T/usr &&"
                               " MAKEFLAGS= cmake --build $T/b && $T/b/a && $T/b/b"),
                 0);
}

TEST(only_public_names_are_exported)
{
    need_installed();
    CHECK_EQ_INT(tct_shell("nm -D --defined-only $T/usr/lib/libtc.so | awk '{ print $NF }' |"
                           " grep -v '^tc_' && exit 1; exit 0"),
                 0);
}

TEST_MAIN
