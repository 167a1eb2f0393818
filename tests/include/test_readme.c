/* tests/include/test_readme.c - README.md and docs/ say what is true: their programs compile and
 * print what is shown, links lead somewhere, and generated parts are fresh.
 *
 * README.md's first ```c block is a program and built as it stands, as a user would. Every other
 * ```c block becomes the body of a function with a fresh context `ctx`; these are linked to the
 * first program, which brings the implementation. A ```text block is what the block before it
 * prints. Needs TC_TEST_CC and TC_TEST_INCLUDE (set by make); runs in the project's root. Also: the
 * map of the code. */
#include "tc.h"

#include "tc_test.h"

#include <glob.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct tct_block {
    const char *file;
    char *text; /* between the fences */
    char language[8];
    int line;
} tct_block;

enum { TCT_MAX_BLOCKS = 1024, TCT_MAX_OUTPUT = 1 << 14 };
static tct_block tct_blocks[TCT_MAX_BLOCKS];
static int tct_n_blocks;
static char tct_dir[64]; /* of this test's files; empty until they are built */

/* The whole file, NUL-terminated; never freed. */
static char *tct_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    char *text = calloc(1, 1 << 18);
    if (f && text) {
        text[fread(text, 1, (1 << 18) - 1, f)] = 0;
        fclose(f);
    }
    return f ? text : NULL;
}

/* Runs a shell command; what it prints goes to `output`. The result is its exit code. */
static int tct_shell(char output[TCT_MAX_OUTPUT], const char *format, ...)
{
    char command[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof(command), format, args);
    va_end(args);
    fflush(stdout);
    FILE *pipe = popen(command, "r");
    if (!pipe) {
        return -1;
    }
    output[fread(output, 1, TCT_MAX_OUTPUT - 1, pipe)] = 0;
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void tct_read_blocks_of(const char *path)
{
    char *at = tct_file(path);
    int line = 1;
    bool inside = false;
    for (char *end; at && (end = strchr(at, '\n')); at = end + 1, line++) {
        bool fence = !strncmp(at, "```", 3);
        if (fence && inside) {
            *at = 0;
        } else if (fence && tct_n_blocks < TCT_MAX_BLOCKS) {
            tct_block *b = &tct_blocks[tct_n_blocks++];
            snprintf(b->language, sizeof(b->language), "%.*s", (int)(end - at) - 3, at + 3);
            b->file = path;
            b->text = end + 1;
            b->line = line + 1;
        }
        inside = inside != fence;
    }
}

static void tct_read_blocks(void)
{
    static glob_t docs;
    tct_n_blocks = 0;
    tct_read_blocks_of("README.md");
    REQUIRE(glob("docs/*.md", 0, NULL, &docs) == 0);
    for (size_t i = 0; i < docs.gl_pathc; i++) {
        tct_read_blocks_of(docs.gl_pathv[i]);
    }
    REQUIRE(tct_n_blocks < TCT_MAX_BLOCKS);
}

static bool tct_is_fragment(const tct_block *b)
{
    return !strcmp(b->language, "c") && !strstr(b->text, "int main(");
}

/* first.c: the first program. rest.c: a function a fragment, chosen by argument; without one, the
 * first program runs. */
static bool tct_write_sources(void)
{
    char path[128];
    FILE *first, *rest;
    snprintf(path, sizeof(path), "%s/first.c", tct_dir);
    first = fopen(path, "w");
    snprintf(path, sizeof(path), "%s/rest.c", tct_dir);
    rest = fopen(path, "w");
    if (!first || !rest || !tct_n_blocks || !strstr(tct_blocks[0].text, "int main(")) {
        return false;
    }
    fputs(tct_blocks[0].text, first);
    fputs("#include \"tc_engines.h\"\n#include \"tc_comm.h\"\n", first); /* optional headers */
    fputs("#include \"tc_engines.h\"\n#include \"tc_comm.h\"\n", rest);
    fputs("#include <stdlib.h>\n#include <string.h>\n", rest);
    fputs("int readme_first(void);\n", rest);
    for (int i = 0; i < tct_n_blocks; i++) {
        if (tct_is_fragment(&tct_blocks[i])) {
            fprintf(rest, "static int fragment_%d(tc_ctx *ctx)\n{\n(void)ctx;\n#line %d \"%s\"\n%s",
                    i, tct_blocks[i].line, tct_blocks[i].file, tct_blocks[i].text);
            fputs("return 0;\n}\n", rest);
        }
    }
    fputs("int main(int argc, char **argv)\n{\n    tc_ctx *ctx;\n"
          "    int n = argc > 1 ? atoi(argv[1]) : -1;\n"
          "    int code = n < 0 ? readme_first() : (int)tc_ctx_make(&ctx, NULL);\n",
          rest);
    for (int i = 0; i < tct_n_blocks; i++) {
        if (tct_is_fragment(&tct_blocks[i])) {
            fprintf(rest, "    code = n == %d ? fragment_%d(ctx) : code;\n", i, i);
        }
    }
    fputs("    return code;\n}\n", rest);
    return fclose(first) == 0 && fclose(rest) == 0;
}

static const char *tct_env(const char *name, const char *fallback)
{
    const char *value = getenv(name);
    return value && *value ? value : fallback;
}

static void tct_remove(void)
{
    static char output[TCT_MAX_OUTPUT];
    tct_shell(output, "rm -rf %s", tct_dir);
}

/* Builds DIR/readme once for all tests; DIR is removed when the program ends. */
static void tct_build(void)
{
    static char output[TCT_MAX_OUTPUT];
    const char *cc = tct_env("TC_TEST_CC", "cc"), *include = tct_env("TC_TEST_INCLUDE", ".");
    if (tct_dir[0]) {
        return;
    }
    snprintf(tct_dir, sizeof(tct_dir), "/tmp/tc-readme-XXXXXX");
    REQUIRE(mkdtemp(tct_dir));
    atexit(tct_remove);
    tct_read_blocks();
    REQUIRE(tct_write_sources());
    int code = tct_shell(output,
                         "{ %s -O0 -DTCI_KEEP_OPTIMIZE -DTC_DYNAMIC_SHAPES -Dmain=readme_first"
                         " -I%s -c %s/first.c"
                         " -o %s/first.o && %s -std=gnu11 -Wall -Wextra -Wno-unused -Werror"
                         " -DTC_DYNAMIC_SHAPES -I%s"
                         " %s/rest.c %s/first.o -o %s/readme -lm -ldl -lpthread; } 2>&1",
                         cc, include, tct_dir, tct_dir, cc, include, tct_dir, tct_dir, tct_dir);
    if (code) {
        printf("%s\n", output);
    }
    REQUIRE(code == 0);
}

/* Every fragment runs and prints what the README shows, under the settings given as a prefix of the
 * command. */
static void tct_run_fragments(const char *settings)
{
    static char output[TCT_MAX_OUTPUT];
    int n = 0;
    tct_build();
    for (int i = 0; i < tct_n_blocks; i++) {
        const tct_block *b = &tct_blocks[i];
        if (!tct_is_fragment(b)) {
            continue;
        }
        int code = tct_shell(output, "%s %s/readme %d 2>&1", settings, tct_dir, i);
        CHECK_MSG(code == 0, "%s:%d: ended with code %d: %s", b->file, b->line, code, output);
        if (i + 1 < tct_n_blocks && !strcmp(b[1].language, "text")) {
            CHECK_MSG(!strcmp(output, b[1].text), "%s:%d: printed\n%sexpected\n%s", b->file,
                      b->line, output, b[1].text);
        }
        n++;
    }
    CHECK(n >= 5);
}

TEST(pieces_print_what_is_shown)
{
    tct_run_fragments("");
}

TEST(pieces_print_the_same_interpreted)
{
    tct_run_fragments("TC_BACKEND=interp");
}

/* Programs in docs/: as they stand, with the first program's implementation, which has symbolic
 * sizes. They may include examples/models. */
TEST(whole_programs_print_what_is_shown)
{
    static char output[TCT_MAX_OUTPUT];
    int n = 0;
    tct_build();
    for (int i = 1; i < tct_n_blocks; i++) {
        const tct_block *b = &tct_blocks[i];
        if (strcmp(b->language, "c") != 0 || tct_is_fragment(b)) {
            continue;
        }
        char path[128];
        snprintf(path, sizeof(path), "%s/whole.c", tct_dir);
        FILE *f = fopen(path, "w");
        REQUIRE(f);
        fputs(b->text, f);
        fclose(f);
        int code = tct_shell(output,
                             "%s -std=gnu11 -Wall -Wextra -Werror -I%s -I."
                             " -DTC_DYNAMIC_SHAPES= %s %s/first.o -o %s/whole -lm -ldl"
                             " -lpthread 2>&1",
                             tct_env("TC_TEST_CC", "cc"), tct_env("TC_TEST_INCLUDE", "."), path,
                             tct_dir, tct_dir);
        CHECK_MSG(code == 0, "%s:%d: %s", b->file, b->line, output);
        code = code ? code : tct_shell(output, "%s/whole 2>&1", tct_dir);
        CHECK_MSG(code == 0, "%s:%d: ended with code %d: %s", b->file, b->line, code, output);
        if (i + 1 < tct_n_blocks && !strcmp(b[1].language, "text")) {
            CHECK_MSG(!strcmp(output, b[1].text), "%s:%d: printed\n%sexpected\n%s", b->file,
                      b->line, output, b[1].text);
        }
        n++;
    }
    CHECK(n >= 1);
}

/* The program of docs/debugging.md that crashes, built as DIR/whole. False: it is not there. */
static bool tct_build_crash(void)
{
    static char output[TCT_MAX_OUTPUT];
    char path[128];
    tct_build();
    for (int i = 1; i < tct_n_blocks; i++) {
        const tct_block *b = &tct_blocks[i];
        if (strcmp(b->language, "c") != 0 || tct_is_fragment(b) || !strstr(b->text, "PROT_NONE")) {
            continue;
        }
        snprintf(path, sizeof(path), "%s/whole.c", tct_dir);
        FILE *f = fopen(path, "w");
        REQUIRE(f);
        fputs(b->text, f);
        fclose(f);
        return tct_shell(output,
                         "%s -std=gnu11 -g -I%s -DTC_DYNAMIC_SHAPES= %s %s/first.o -o %s/whole "
                         "-lm -ldl -lpthread 2>&1",
                         tct_env("TC_TEST_CC", "cc"), tct_env("TC_TEST_INCLUDE", "."), path,
                         tct_dir, tct_dir) == 0;
    }
    return false;
}

TEST(gdb_stops_in_a_kernel_by_its_name)
{
    static char output[TCT_MAX_OUTPUT];
    if (tct_shell(output, "gdb --version 2>&1")) {
        SKIP("gdb is not found");
    }
    REQUIRE(tct_build_crash());
    for (int i = 0; i < 2; i++) { /* the second time the cache has it */
        tct_shell(
            output,
            "cd %s && TMPDIR=%s TC_KEEP=1 gdb -batch -ex run -ex bt --args ./whole plain 2>&1",
            tct_dir, tct_dir);
        if (strstr(output, "ptrace") || strstr(output, "Could not trace")) {
            SKIP("gdb may not trace here");
        }
        CHECK_HAS(output, "received signal SIGSEGV");
        CHECK_HAS(output, "tc_k_exp_sin_");
        CHECK_HAS(output, "/tc_0.c:");
        CHECK_HAS(output, "in main (");
    }
}

TEST(perf_shows_kernels_by_their_names)
{
    static char output[TCT_MAX_OUTPUT];
    static const char program[] =
        "#include \"tc.h\"\nstatic float in[4096], out[4096];\nint main(void)\n{\ntc_ctx *ctx;\n"
        "tc_program *f;\nif (tc_ctx_make(&ctx, NULL) || tc_compile(tc_tan(tc_input(ctx, \"x\", "
        "TC_F32, 4096)), &f)) {\nreturn 1;\n}\nfor (int i = 0; i < 20000; i++) {\ntc_run(f, "
        "TC_BUFS(TC_BUF(in, 4096)), TC_BUFS(TC_BUF(out, 4096)));\n}\nreturn 0;\n}\n";
    char path[128];
    tct_build();
    snprintf(path, sizeof(path), "%s/perf.c", tct_dir);
    FILE *f = fopen(path, "w");
    REQUIRE(f);
    fputs(program, f);
    fclose(f);
    REQUIRE(!tct_shell(output,
                       "%s -std=gnu11 -I%s -DTC_DYNAMIC_SHAPES= %s %s/first.o -o %s/perf -lm -ldl "
                       "-lpthread 2>&1",
                       tct_env("TC_TEST_CC", "cc"), tct_env("TC_TEST_INCLUDE", "."), path, tct_dir,
                       tct_dir));
    if (tct_shell(output,
                  "cd %s && TMPDIR=%s TC_KEEP=1 perf record -o perf.data ./perf >/dev/null 2>&1 && "
                  "perf report --stdio -i perf.data 2>/dev/null | grep -v '^#' | head -40",
                  tct_dir, tct_dir)) {
        SKIP("perf does not record here");
    }
    CHECK_HAS(output, "tc_k_tan_");
}

TEST(first_program_prints_what_is_said)
{
    static char output[TCT_MAX_OUTPUT], wanted[TCT_MAX_OUTPUT + 32];
    tct_build();
    REQUIRE(tct_shell(output, "%s/readme 2>&1", tct_dir) == 0);
    output[strcspn(output, "\n")] = 0;
    snprintf(wanted, sizeof(wanted), "It prints `%s`.", output);
    char *readme = tct_file("README.md");
    CHECK_HAS(output, "on cpu");
    CHECK_MSG(strstr(readme, wanted), "README.md does not have \"%s\"", wanted);
    free(readme);

    char *where = strstr(output, "cpu");
    REQUIRE(where);
    *where = 0; /* without a compiler the same but for the name of the backend */
    snprintf(wanted, sizeof(wanted), "%sinterp\n", output);
    CHECK(tct_shell(output, "TC_NO_CACHE=1 PATH=/nowhere %s/readme 2>&1", tct_dir) == 0);
    CHECK_STR(output, wanted);
}

TEST(cxx_pieces_compile)
{
    static char output[TCT_MAX_OUTPUT];
    const char *include = tct_env("TC_TEST_INCLUDE", ".");
    tct_build();
    if (tct_shell(output, "command -v c++")) {
        SKIP("no c++ on this machine");
    }
    for (int i = 0; i < tct_n_blocks; i++) {
        if (!strcmp(tct_blocks[i].language, "cpp")) {
            char path[128];
            snprintf(path, sizeof(path), "%s/piece.cc", tct_dir);
            FILE *f = fopen(path, "w");
            REQUIRE(f);
            fputs(tct_blocks[i].text, f);
            fclose(f);
            int code = tct_shell(output,
                                 "c++ -std=c++17 -Wall -Wextra -Werror -fsyntax-only -I%s"
                                 " %s 2>&1",
                                 include, path);
            CHECK_MSG(code == 0, "%s:%d: %s", tct_blocks[i].file, tct_blocks[i].line, output);
        }
    }
}

TEST(generated_parts_are_fresh)
{
    static char output[TCT_MAX_OUTPUT];
    tct_build();
    int code = tct_shell(output,
                         "{ %s -std=gnu11 tools/readme.c -o %s/tool &&"
                         " %s/tool --check; } 2>&1",
                         tct_env("TC_TEST_CC", "cc"), tct_dir, tct_dir);
    CHECK_MSG(code == 0, "%s", output);
}

/* docs/ops.md has a prototype or a row of every public call: of NAME_at as NAME where that is the
 * macro for it. */
TEST(every_public_call_is_in_the_reference)
{
    static char output[TCT_MAX_OUTPUT];
    int code = tct_shell(output,
                         "n=0; for name in $(cat src/api/*.h | awk '/^TC_API/ { on = 1 } on {"
                         " if (match($0, /tc_[a-z0-9_]*[(]/)) {"
                         " print substr($0, RSTART, RLENGTH - 1); on = 0 } }'); do"
                         " n=$((n + 1)); grep -qE \"[ *\\`](${name}|${name%%_at})[(]\""
                         " docs/ops.md || echo $name; done; [ $n -gt 400 ]");
    CHECK_MSG(code == 0 && !output[0], "docs/ops.md lacks: %s", output);
}

/* docs/limits.md denies nothing that the declarations have. */
TEST(limits_are_those_of_the_declarations)
{
    static const char *const missing[][2] = {
        {"no sorting", "tc_sort"}, {"no random numbers", "tc_rand"}, {"no scatter", "tc_scatter"},
        {"no FFT", "tc_fft"},      {"no complex", "TC_C64"},         {"one GPU", "tc_cuda_device"}};
    char *limits = tct_file("docs/limits.md"), *calls = tct_file("docs/ops.md");
    char *types = tct_file("src/api/types.h"), *cuda = tct_file("src/api/cuda.h");
    REQUIRE(limits);
    for (size_t i = 0; i < sizeof(missing) / sizeof(*missing); i++) {
        const char *name = missing[i][1];
        bool there = strstr(calls, name) || strstr(types, name) || strstr(cuda, name);
        bool denied = strstr(limits, missing[i][0]) != NULL;
        CHECK_MSG(there != denied, "docs/limits.md says \"%s\", and %s is %s", missing[i][0], name,
                  there ? "there" : "not there");
    }
    CHECK_HAS(calls, "tc_gather");
    free(limits);
    free(calls);
    free(types);
    free(cuda);
}

/* Defaults in the text are those of the code. */
TEST(defaults_are_those_of_the_code)
{
    static char output[TCT_MAX_OUTPUT];
    int code = tct_shell(output, "n=$(sed -n 's/.*TCI_DISK_DEFAULT_MB = \\([0-9]*\\).*/\\1/p'"
                                 " src/compile/disk_cache.c); [ -n \"$n\" ] || exit 1;"
                                 " for f in docs/cache-and-security.md src/base/env.h"
                                 " src/api/types.h; do"
                                 " grep -qE \"$n MiB|MiB \\(default $n\" $f ||"
                                 " echo \"$f: $n\"; done");
    CHECK(code == 0);
    CHECK_MSG(!output[0], "does not say what the cap of the disk cache is: %s", output);
}

/* src/ROOMS.md, which is generated, has a line for every room; the cells of the map are short. */
TEST(the_map_has_every_room_and_short_cells)
{
    static char output[TCT_MAX_OUTPUT];
    int code = tct_shell(output, "for f in src/*/*.[ch]; do n=${f##*/};"
                                 " grep -qF -e \"- \\`$n\\`\""
                                 " -e \"- \\`${n%%.*}.c\\`, \\`.h\\`\""
                                 " src/ROOMS.md || echo \"$f\"; done;"
                                 " awk -F'|' '/^[|]/ { for (i = 2; i < NF; i++) {"
                                 " if (length($i) > 302)"
                                 " { print FILENAME \":\" FNR \": a cell of \" length($i) } } }'"
                                 " src/README.md");
    CHECK(code == 0);
    CHECK_MSG(!output[0], "not so:\n%s", output);
}

/* What README.md, the map and the manual call by a name of tc's is in the code by that name. */
TEST(names_in_the_documents_are_in_the_code)
{
    static char output[TCT_MAX_OUTPUT];
    tct_build();
    int code = tct_shell(output,
                         "cat src/*.h src/*/*.[ch] | grep -v '^ \\*' >%s/code || exit 1;"
                         " { grep -ohE '`(tc|tci|TC|TCI)_[A-Za-z_0-9]+[`(]' README.md"
                         " docs/*.md src/README.md bench/README.md;"
                         " grep -ohE '(tc|TC)_[A-Za-z_0-9]+\\(' src/api/manual.h; } |"
                         " tr -d '`(' | sort -u >%s/names;"
                         " [ $(wc -l <%s/names) -gt 100 ] || exit 1;"
                         " while read n; do case $n in *_|*_xxx*|*_ID) continue;; esac;"
                         " grep -qw \"$n\" %s/code || echo \"$n\"; done <%s/names",
                         tct_dir, tct_dir, tct_dir, tct_dir, tct_dir);
    CHECK(code == 0);
    CHECK_MSG(!output[0], "not in the code:\n%s", output);
}

/* Names of C files: all in src/README.md and the glossary, in other documents those in backticks.
 * Not files of the repository: what tc writes (source.c), what a reader makes (net.c, net.h), and
 * what tests/patches add (exchange.c). */
TEST(files_in_the_documents_are_there)
{
    static char output[TCT_MAX_OUTPUT];
    tct_build();
    int code = tct_shell(
        output,
        "{ ls *.h; find src tests tools examples bench -name '*.[ch]'; } >%s/files;"
        " { grep -ohE '`[A-Za-z0-9_./-]+\\.[ch]`' docs/*.md | tr -d '`';"
        " grep -ohE '[A-Za-z0-9_/]+\\.[ch]\\b' src/README.md docs/glossary.md; } |"
        " sort -u >%s/names;"
        " [ $(wc -l <%s/names) -gt 100 ] || exit 1;"
        " while read n; do case $n in source.c|net.[ch]|exchange.c) continue;;"
        " esac; grep -qE \"(^|/)$n\\$\" %s/files || echo \"$n\"; done <%s/names",
        tct_dir, tct_dir, tct_dir, tct_dir, tct_dir);
    CHECK(code == 0);
    CHECK_MSG(!output[0], "not in the repository:\n%s", output);
}

/* Every relative link of README.md, docs/ and examples/README.md leads to a file; one that names a
 * heading, to a heading of that file. */
TEST(links_lead_somewhere)
{
    static char output[TCT_MAX_OUTPUT];
    int code = tct_shell(
        output, "for f in README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs/*.md"
                " examples/README.md src/README.md tests/README.md; do"
                " [ -f \"$f\" ] || continue; d=$(dirname \"$f\");"
                " grep -oE '\\]\\([^)# ]*(#[^)]*)?\\)' \"$f\" | sed 's/^](//; s/)$//' | sort -u |"
                " while read l; do case $l in http*|'') continue;; esac; p=${l%%#*};"
                " t=$d/$p; [ -n \"$p\" ] || t=$f; [ -e \"$t\" ] || { echo \"$f: $l\"; continue; };"
                " case $l in *#*) a=${l#*#}; sed -n 's/^#* //p' \"$t\" | tr 'A-Z ' 'a-z-' |"
                " tr -d '`.,:()/*?' | grep -qx -- \"$a\" ||"
                " echo \"$f: $l: no such heading\";; esac;"
                " done; done");
    CHECK(code == 0);
    CHECK_MSG(!output[0], "links that lead nowhere:\n%s", output);
}

/* Each example says how it is built, by its own name. */
TEST(examples_say_how_they_are_built)
{
    static char output[TCT_MAX_OUTPUT];
    int code = tct_shell(output, "for f in examples/*.c examples/*/*.c; do"
                                 " grep -qF \"cc -O2 -I. $f -lm -ldl -lpthread\" $f ||"
                                 " echo \"$f\"; done;"
                                 " for f in examples/*.cc; do"
                                 " grep -q \"c++ .*-I. $f tc.o -lm\" $f || echo \"$f\"; done");
    CHECK(code == 0);
    CHECK_MSG(!output[0], "do not say how they are built:\n%s", output);
}

/* Each example says in its head what it prints, and examples/README.md has a line for it. */
TEST(examples_say_what_they_print)
{
    static char output[TCT_MAX_OUTPUT];
    int code = tct_shell(output, "for f in examples/[0-9]*.c examples/[0-9]*.cc; do"
                                 " n=${f##*/};"
                                 " sed -n '/^#/q; p' $f | grep -qE '(^|[ .])Prints ' &&"
                                 " grep -qF \"](${n})\" examples/README.md || echo \"$f\"; done");
    CHECK(code == 0);
    CHECK_MSG(!output[0], "do not say what they print, or have no line:\n%s", output);
}

/* bench/README.md has a word for every benchmark. */
TEST(benchmarks_are_named)
{
    static char output[TCT_MAX_OUTPUT];
    int code = tct_shell(output, "for f in bench/*.c bench/*.py; do grep -qF -e \"| ${f##*/} |\""
                                 " bench/README.md || echo \"$f\"; done");
    CHECK(code == 0);
    CHECK_MSG(!output[0], "bench/README.md does not name\n%s", output);
}

TEST_MAIN
