/* The table "Where do I add ..." of src/README.md, held to: tests/patches has an example change of
 * each row that has a small one. It changes no other file than its row names; all together, applied
 * to a copy of the project, build there without a warning and do what tests/patches/test_patched.c
 * and the expectations of tests/ops/test_ops.c say; and their headers are another build, whose code
 * is never taken for this one's. */
#include "tc.h"

#include "../tc_test.h"

/* Runs a shell command, in which CC is the compiler and T a scratch folder; what it printed is seen
 * where it fails. */
static int tct_shell(const char *command)
{
    char line[4096];
    const char *cc = getenv("TC_TEST_CC");
    snprintf(line, sizeof(line),
             "CC='%s'; T=$(mktemp -d build/patched-XXXXXX) || exit 1; trap 'rm -rf $T' EXIT;"
             " unset MAKEFLAGS MAKELEVEL MFLAGS MAKEOVERRIDES;"
             " ( %s ) >$T/log 2>&1; code=$?; [ $code = 0 ] || tail -n 40 $T/log; exit $code",
             cc && *cc ? cc : "cc", command);
    fflush(stdout);
    return system(line);
}

#define CHECK_RUNS(command) CHECK_EQ_INT(tct_shell(command), 0)

static void tct_need_patch(void)
{
    if (system("command -v patch >/dev/null 2>&1")) {
        SKIP("no patch on this machine");
    }
}

/* A row says `patches/NAME`, and of each file that the patch changes the path or, where another
 * file of the folder stands before it, the name. */
TEST(each_patch_changes_what_its_row_names)
{
    CHECK_RUNS("n=0; for p in tests/patches/*.patch; do n=$((n + 1));"
               " name=$(basename $p .patch);"
               " grep \"^| .*patches/$name[ |]\" src/README.md >$T/row ||"
               " { echo \"no row names patches/$name\"; exit 1; };"
               " for f in $(sed -n 's,^+++ b/,,p' $p); do case $f in"
               " src/README.md | src/tc.h |"
               " src/base/bits.[ch]) [ $name = room ] && continue ;; esac;"
               " grep -q -e \"[ (]${f#src/}\" -e \"[ (]$f\" $T/row ||"
               " grep -q \"[ (]$(basename $f)\" $T/row ||"
               " { echo \"$p changes $f: not in its row\"; exit 1; }; done; done; [ $n -ge 12 ]");
}

TEST(each_patch_applies_alone)
{
    tct_need_patch();
    CHECK_RUNS("for p in tests/patches/*.patch; do"
               " patch -p1 -F0 --dry-run -s <$p || { echo $p; exit 1; }; done");
}

TEST(all_patches_build_and_do_what_they_should)
{
    tct_need_patch();
    CHECK_RUNS("mkdir $T/copy && cp -R Makefile src tools tests $T/copy && cd $T/copy &&"
               " for p in tests/patches/*.patch; do patch -p1 -F0 -s <$p || exit 1; done;"
               " M=\"make -j2 CC=$CC\"; W='-Wall -Wextra -Werror'; O='-O0 -DTCI_KEEP_OPTIMIZE';"
               " $M src/cuda/device.c.room &&"
               " [ \"$(grep -m1 TCI_BUILD tc.h)\" != \"$(grep -m1 TCI_BUILD ../../../tc.h)\" ] &&"
               " $M test OPT=\"$O\" WARN=\"$W\""
               " TESTS=patches/test_patched && $M test OPT=\"$O\" WARN=\"$W\" TESTS=ops/test_ops"
               " TEST_ARGS='--filter e_rows'");
}

TEST_MAIN
