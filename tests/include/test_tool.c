/* tests/include/test_tool.c - the command line of tc (tools/tc.c): doctor, cache, report. Needs a
 * compiler. */
#include "tc.h"

#include "tc_test.h"

#include <unistd.h>

static char folder[256];

/* Runs a shell command in which T is a scratch folder that lives for all tests and tc is the tool;
 * what it prints goes to $T/out. The exit status. */
static int tool(const char *command)
{
    char line[4096];
    const char *cc = getenv("TC_TEST_CC");
    snprintf(line, sizeof(line),
             "CC='%s'; T='%s'; export TC_CACHE_DIR=$T/cache; { %s ; } >$T/out"
             " 2>&1",
             cc && *cc ? cc : "cc", folder, command);
    fflush(stdout);
    int status = system(line);
    return status < 0 || !WIFEXITED(status) ? -1 : WEXITSTATUS(status);
}

/* What the last command printed, NUL-terminated. */
static const char *printed(void)
{
    static char text[1 << 16];
    char path[300];
    snprintf(path, sizeof(path), "%s/out", folder);
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    text[n] = 0;
    if (file) {
        fclose(file);
    }
    return text;
}

static void remove_folder(void)
{
    char line[300];
    snprintf(line, sizeof(line), "rm -rf '%s'", folder);
    if (system(line)) {
        perror(line);
    }
}

static void need_tool(void)
{
    const char *base = getenv("TMPDIR");
    if (folder[0]) {
        return;
    }
    snprintf(folder, sizeof(folder), "%s/tc-tool-XXXXXX", base && *base ? base : "/tmp");
    REQUIRE(mkdtemp(folder));
    atexit(remove_folder);
    int status = tool("$CC -std=gnu11 -O0 -w -I. tools/tc.c -o $T/tc -lm -ldl -lpthread");
    CHECK_MSG(status == 0, "the tool does not compile: %.500s", printed());
}

/* A program of one kernel, compiled with these options into the cache of the tool's commands. */
static void compile_one(tc_options o)
{
    char cache[300];
    tc_ctx *ctx;
    tc_program *f;
    snprintf(cache, sizeof(cache), "%s/cache", folder);
    o.cache_dir = cache;
    o.backend = "cpu";
    o.fallback = TC_FALLBACK_REFUSE;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64);
    REQUIRE(tc_compile(tc_exp(tc_add(x, 1)), &f) == TC_OK);
    tc_program_free(f);
    tc_ctx_free(ctx);
    tc_shutdown();
}

TEST(doctor_tells_what_works_and_tries_it)
{
    need_tool();
    CHECK_MSG(tool("$T/tc doctor") == 0, "%.1000s", printed());
    CHECK_HAS(printed(), "tc " TC_VERSION "\n");
    CHECK_HAS(printed(), "C compilers on PATH:\n  cc     /");
    CHECK_HAS(printed(), "\nbackends:\n  interp   usable: runs kernels without a compiler\n");
    CHECK_HAS(printed(), "\n  cpu      usable: ");
    CHECK_HAS(printed(), "; compiler /");
    CHECK_HAS(printed(), "\nNVRTC: this build has no CUDA\n");
    CHECK_HAS(printed(), "\nself-test:\n");
    CHECK_HAS(printed(), "\n  cpu      ok (error ");
    CHECK_HAS(printed(), "/cache, at most ");
    CHECK_HAS(printed(), "  interp   ok (error ");
    CHECK_HAS(printed(), "all that is here works\n");
}

TEST(doctor_tells_that_the_compiler_is_missing)
{
    need_tool();
    CHECK_EQ_INT(tool("PATH=/nonexistent $T/tc doctor"), 1);
    CHECK_HAS(printed(), "  cc     not found\n");
    CHECK_HAS(printed(), "  interp   ok (error ");
    CHECK_HAS(printed(), "no C compiler on PATH");
    CHECK_HAS(printed(), "something that is here does not work\n");
}

TEST(cache_lists_shows_and_clears_entries)
{
    char show[64];
    need_tool();
    compile_one((tc_options){0});
    CHECK_EQ_INT(tool("$T/tc cache list"), 0);
    CHECK_HAS(printed(), "program ");
    CHECK_HAS(printed(), "/cache: 1 programs, ");
    const char *source = strstr(printed(), ".c\n"); /* tc-m-HASH.c */
    REQUIRE(source != NULL);
    while (source[-1] != ' ') {
        source--;
    }
    snprintf(show, sizeof(show), "$T/tc cache show %.16s", source);
    CHECK_EQ_INT(tool(show), 0);
    CHECK_HAS(printed(), "void tc_k_");
    CHECK_EQ_INT(tool("$T/tc cache show $(cd $T/cache && ls tc-p-* | cut -c6-20)"), 0);
    CHECK_HAS(printed(), "1 launch of 1 kernel on cpu;");
    CHECK_HAS(printed(), "schedule ");
    CHECK_EQ_INT(tool("$T/tc cache show 0000000000000000000"), 1);
    CHECK_HAS(printed(), "no program or source '0000000000000000000' is in ");
    CHECK_EQ_INT(tool("$T/tc cache clear"), 0);
    CHECK_HAS(printed(), "; all removed\n");
    CHECK_EQ_INT(tool("$T/tc cache list"), 0);
    CHECK_HAS(printed(), "/cache: 0 programs, 0 kernels, 0 objects");
}

/* A program of another folder's cache is found there by a machine without a compiler. */
TEST(cache_export_copies_what_a_machine_without_a_compiler_needs)
{
    char other[300];
    tc_ctx *ctx;
    tc_program *f;
    tc_program_info info;
    need_tool();
    compile_one((tc_options){0});
    CHECK_EQ_INT(tool("$T/tc cache export $T/copy"), 0);
    CHECK_HAS(printed(), "/copy: 1 programs, 1 kernels, 2 objects");
    CHECK_EQ_INT(tool("ls $T/copy"), 0);
    CHECK_HAS(printed(), "tc-p-");
    CHECK_HAS(printed(), "tc-m-");
    CHECK_EQ_INT(tool("$T/tc cache clear"), 0);
    snprintf(other, sizeof(other), "%s/copy", folder);
    tc_options o = {.backend = "cpu",
                    .cache_dir = other,
                    .cc = "/no/compiler",
                    .fallback = TC_FALLBACK_REFUSE};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor y = tc_exp(tc_add(tc_input(ctx, "x", TC_F32, 64), 1));
    CHECK_MSG(tc_compile(y, &f) == TC_OK, "%s", tc_error(y));
    CHECK(tc_program_get_info(f, &info) == TC_OK && info.from_disk);
    tc_program_free(f);
    tc_ctx_free(ctx);
    tc_shutdown();
    CHECK_EQ_INT(tool("$T/tc cache export /proc/none"), 1);
    CHECK_HAS(printed(), "/proc/none");
    CHECK_EQ_INT(tool("$T/tc cache export"), 2);
    CHECK_HAS(printed(), "usage: tc cache list");
}

TEST(report_links_all_that_was_dumped)
{
    char dump[300];
    need_tool();
    snprintf(dump, sizeof(dump), "%s/dump", folder);
    compile_one((tc_options){.dump = "all", .dump_dir = dump});
    CHECK_EQ_INT(tool("$T/tc report $T/dump"), 0);
    CHECK_HAS(printed(), "/dump/index.html\n");
    CHECK_EQ_INT(tool("cat $T/dump/index.html"), 0);
    CHECK_HAS(printed(), "<a href=\"graph.txt\">graph.txt</a>");
    CHECK_HAS(printed(), "<a href=\"source.c\">source.c</a>");
}

TEST(mistakes_are_told_with_the_usage)
{
    need_tool();
    CHECK_EQ_INT(tool("$T/tc"), 2);
    CHECK_HAS(printed(), "usage: tc doctor | cache ");
    CHECK_EQ_INT(tool("$T/tc cache polish"), 2);
    CHECK_HAS(printed(), "usage: tc cache list");
    CHECK_EQ_INT(tool("$T/tc cache show"), 2);
    CHECK_EQ_INT(tool("$T/tc report $T/nothing"), 1);
    CHECK_HAS(printed(), "is no folder: expected one that TC_DUMP wrote");
    CHECK_EQ_INT(tool("TC_CACHE_DIR=/proc/none $T/tc cache list"), 1);
    CHECK_HAS(printed(), "there is no cache");
}

TEST_MAIN
