/* tests/cpu/cache.h - what the tests of caches and compilers share: a private directory for each
 * test, one compile and run with all that it counted, files. Begin a test with begin(). */
#ifndef TC_TEST_CPU_CACHE_H
#define TC_TEST_CPU_CACHE_H

#include "tc.h"

#include "tc_test.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COUNT = 500 };

/* ---- a private directory for each test ---- */

static char dir[512];
static char saved_path[4096];
static char usual_cache[600];

static void begin(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(dir, sizeof(dir), "%s/tc-test-XXXXXX", base && *base ? base : "/tmp");
    REQUIRE(mkdtemp(dir));
    snprintf(usual_cache, sizeof(usual_cache), "%s/cache", dir);
    snprintf(saved_path, sizeof(saved_path), "%s", getenv("PATH") ? getenv("PATH") : "");
    tc_shutdown(); /* what earlier tests left in memory */
}

TCT_UNUSED static const char *in_dir(const char *name) /* valid until the 32nd next call */
{
    static char paths[32][sizeof(dir) + 256];
    static int turn;
    char *path = paths[turn++ % 32];
    snprintf(path, sizeof(paths[0]), "%s/%.200s", dir, name);
    return path;
}

static void end(void)
{
    char command[2048];
    setenv("PATH", saved_path, 1);
    snprintf(command, sizeof(command), "chmod -R u+rwx '%s'; rm -rf '%s'", dir, dir);
    CHECK_EQ_INT(system(command), 0);
}

/* As on a machine without a compiler. Not part of any key. */
TCT_UNUSED static void hide_compilers(bool hidden)
{
    setenv("PATH", hidden ? "/nonexistent" : saved_path, 1);
}

TCT_UNUSED static tc_options default_options(void)
{
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = "cpu";
    o.threads = 1;
    o.cache_dir = usual_cache;
    return o;
}

/* ---- one compile and run ---- */

typedef struct outcome {
    tc_status status;
    bool correct;
    char backend[16];
    char error[4096];
    char explain[4096];
    tc_stats used; /* by this attempt alone */
} outcome;

TCT_UNUSED static tc_stats stats_now(tc_ctx *ctx)
{
    tc_stats stats;
    memset(&stats, 0, sizeof(stats));
    CHECK_EQ_INT(tc_stats(ctx, &stats), TC_OK);
    return stats;
}

/* -(x + x) + which, or so: the number of terms makes it another program. */
TCT_UNUSED static tc_tensor expression(tc_ctx *ctx, int which)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, COUNT);
    tc_tensor y = x;
    for (int i = 0; i <= which; i++) {
        y = tc_neg(tc_add(y, x));
    }
    return y;
}

TCT_UNUSED static float expected(int which, float x)
{
    float y = x;
    for (int i = 0; i <= which; i++) {
        y = -(y + x);
    }
    return y;
}

TCT_UNUSED static bool run_is_correct(tc_program *f, int which)
{
    float in[COUNT], out[COUNT];
    for (int i = 0; i < COUNT; i++) {
        in[i] = (float)i - 100.25f;
        out[i] = -1;
    }
    if (tc_run(f, TC_BUFS(TC_BUF(in, COUNT)), TC_BUFS(TC_BUF(out, COUNT)))) {
        return false;
    }
    for (int i = 0; i < COUNT; i++) {
        if (out[i] != expected(which, in[i])) {
            return false;
        }
    }
    return true;
}

TCT_UNUSED static void keep_explain(outcome *r, const tc_program *f)
{
    FILE *text = tmpfile();
    REQUIRE(text);
    CHECK_EQ_INT(tc_explain_as(f, text, &(tc_explain_options){.all = true}), TC_OK);
    rewind(text);
    r->explain[fread(r->explain, 1, sizeof(r->explain) - 1, text)] = 0;
    fclose(text);
}

/* In a fresh context, and (fresh) with nothing in memory. */
TCT_UNUSED static outcome attempt(const tc_options *o, int which, bool fresh)
{
    outcome r;
    tc_ctx *ctx;
    memset(&r, 0, sizeof(r));
    if (fresh) {
        tc_shutdown();
    }
    r.status = tc_ctx_make(&ctx, o);
    if (r.status) {
        return r;
    }
    tc_stats before = stats_now(ctx);
    tc_tensor y = expression(ctx, which);
    tc_program *f;
    r.status = tc_compile(y, &f);
    if (r.status == TC_OK) {
        tc_program_info info;
        CHECK_EQ_INT(tc_program_get_info(f, &info), TC_OK);
        snprintf(r.backend, sizeof(r.backend), "%s", info.backend);
        r.correct = run_is_correct(f, which);
        keep_explain(&r, f);
        tc_program_free(f);
    } else {
        snprintf(r.error, sizeof(r.error), "%s", tc_error(y));
    }
    tc_stats after = stats_now(ctx);
#define USED(field) r.used.field = after.field - before.field
    USED(compiles);
    USED(compiler_runs);
    USED(kernels_built);
    USED(memory_hits);
    USED(disk_hits);
    USED(misses);
    USED(kernel_hits);
    USED(evictions);
    USED(cache_rejects);
    USED(interpreted);
#undef USED
    tc_ctx_free(ctx);
    return r;
}

#define CHECK_RAN(outcome, backend) check_ran(__LINE__, (outcome), (backend))
TCT_UNUSED static void check_ran(int line, outcome r, const char *backend)
{
    CHECK_MSG(r.status == TC_OK, "line %d: status %d: %s", line, r.status, r.error);
    CHECK_MSG(r.correct, "line %d: wrong result", line);
    CHECK_MSG(!strcmp(r.backend, backend), "line %d: ran on '%s'", line, r.backend);
}

/* ---- files ---- */

typedef struct bytes {
    unsigned char *data;
    size_t n;
} bytes;

TCT_UNUSED static bytes read_file(const char *path)
{
    bytes b = {NULL, 0};
    FILE *f = fopen(path, "rb");
    REQUIRE(f);
    fseek(f, 0, SEEK_END);
    b.n = (size_t)ftell(f);
    rewind(f);
    b.data = malloc(b.n + 1);
    CHECK_EQ_INT(fread(b.data, 1, b.n, f), b.n);
    fclose(f);
    return b;
}

TCT_UNUSED static void write_file(const char *path, const void *data, size_t n, mode_t mode)
{
    unlink(path);
    FILE *f = fopen(path, "wb");
    REQUIRE(f);
    CHECK_EQ_INT(fwrite(data, 1, n, f), n);
    fclose(f);
    CHECK_EQ_INT(chmod(path, mode), 0);
}

TCT_UNUSED static void write_script(const char *path, const char *text)
{
    write_file(path, text, strlen(text), 0700);
}

/* The first file of the cache whose name begins and ends so. "" when there is none. */
TCT_UNUSED static const char *find_file(const char *folder, const char *begins, const char *ends)
{
    static char found[1024];
    DIR *d = opendir(folder);
    struct dirent *e;
    found[0] = 0;
    while (d && (e = readdir(d)) != NULL) {
        size_t n = strlen(e->d_name);
        if (!strncmp(e->d_name, begins, strlen(begins)) && n >= strlen(ends) &&
            !strcmp(e->d_name + n - strlen(ends), ends)) {
            snprintf(found, sizeof(found), "%s/%s", folder, e->d_name);
        }
    }
    if (d) {
        closedir(d);
    }
    return found;
}

/* Entries of a folder whose names begin and end so. */
TCT_UNUSED static int count_entries(const char *folder, const char *begins, const char *ends)
{
    DIR *d = opendir(folder);
    struct dirent *e;
    int n = 0;
    while (d && (e = readdir(d)) != NULL) {
        size_t length = strlen(e->d_name);
        n += !strncmp(e->d_name, begins, strlen(begins)) && length >= strlen(ends) &&
             !strcmp(e->d_name + length - strlen(ends), ends);
    }
    if (d) {
        closedir(d);
    }
    return n;
}

TCT_UNUSED static long long folder_bytes(const char *folder, int *n_files)
{
    DIR *d = opendir(folder);
    struct dirent *e;
    struct stat st;
    long long total = 0;
    *n_files = 0;
    while (d && (e = readdir(d)) != NULL) {
        char path[1024];
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        if (lstat(path, &st) == 0 && S_ISREG(st.st_mode)) {
            total += st.st_size;
            (*n_files)++;
        }
    }
    if (d) {
        closedir(d);
    }
    return total;
}

#endif
