/* The caches on disk and in memory under use and abuse, and compilers that misbehave. Needs a
 * compiler. */
#define _GNU_SOURCE
#include "tc.h"

#include "json.h"
#include "tc_test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 500 };

/* ---- a private directory for each test ---- */

static char dir[512];
static char saved_path[4096];
static char usual_cache[600];

static void end(void);

static void begin(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(dir, sizeof(dir), "%s/tc-test-XXXXXX", base && *base ? base : "/tmp");
    REQUIRE(mkdtemp(dir));
    snprintf(usual_cache, sizeof(usual_cache), "%s/cache", dir);
    snprintf(saved_path, sizeof(saved_path), "%s", getenv("PATH") ? getenv("PATH") : "");
    tc_shutdown(); /* what earlier tests left in memory */
}

static const char *in_dir(const char *name) /* valid until the 32nd next call */
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
static void hide_compilers(bool hidden)
{
    setenv("PATH", hidden ? "/nonexistent" : saved_path, 1);
}

static tc_options default_options(void)
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

static tc_stats stats_now(tc_ctx *ctx)
{
    tc_stats stats;
    memset(&stats, 0, sizeof(stats));
    CHECK_EQ_INT(tc_stats(ctx, &stats), TC_OK);
    return stats;
}

/* -(x + x) + which, or so: the number of terms makes it another program. */
static tc_tensor expression(tc_ctx *ctx, int which)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, COUNT);
    tc_tensor y = x;
    for (int i = 0; i <= which; i++) {
        y = tc_neg(tc_add(y, x));
    }
    return y;
}

static float expected(int which, float x)
{
    float y = x;
    for (int i = 0; i <= which; i++) {
        y = -(y + x);
    }
    return y;
}

static bool run_is_correct(tc_program *f, int which)
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

static void keep_explain(outcome *r, const tc_program *f)
{
    FILE *text = tmpfile();
    REQUIRE(text);
    CHECK_EQ_INT(tc_explain(f, text), TC_OK);
    rewind(text);
    r->explain[fread(r->explain, 1, sizeof(r->explain) - 1, text)] = 0;
    fclose(text);
}

/* In a fresh context, and (fresh) with nothing in memory. */
static outcome attempt(const tc_options *o, int which, bool fresh)
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
static void check_ran(int line, outcome r, const char *backend)
{
    CHECK_MSG(r.status == TC_OK, "line %d: status %d: %s", line, r.status, r.error);
    CHECK_MSG(r.correct, "line %d: wrong result", line);
    CHECK_MSG(!strcmp(r.backend, backend), "line %d: ran on '%s'", line, r.backend);
}

/* ---- files ---- */

typedef struct bytes { unsigned char *data; size_t n; } bytes;

static bytes read_file(const char *path)
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

static void write_file(const char *path, const void *data, size_t n, mode_t mode)
{
    unlink(path);
    FILE *f = fopen(path, "wb");
    REQUIRE(f);
    CHECK_EQ_INT(fwrite(data, 1, n, f), n);
    fclose(f);
    CHECK_EQ_INT(chmod(path, mode), 0);
}

static void write_script(const char *path, const char *text)
{
    write_file(path, text, strlen(text), 0700);
}

/* The first file of the cache whose name begins and ends so. "" when there is none. */
static const char *find_file(const char *folder, const char *begins, const char *ends)
{
    static char found[1024];
    DIR *d = opendir(folder);
    struct dirent *e;
    found[0] = 0;
    while (d && (e = readdir(d)) != NULL) {
        size_t n = strlen(e->d_name);
        if (!strncmp(e->d_name, begins, strlen(begins)) && n >= strlen(ends)
            && !strcmp(e->d_name + n - strlen(ends), ends)) {
            snprintf(found, sizeof(found), "%s/%s", folder, e->d_name);
        }
    }
    if (d) {
        closedir(d);
    }
    return found;
}

/* Entries of a folder whose names begin and end so. */
static int count_entries(const char *folder, const char *begins, const char *ends)
{
    DIR *d = opendir(folder);
    struct dirent *e;
    int n = 0;
    while (d && (e = readdir(d)) != NULL) {
        size_t length = strlen(e->d_name);
        n += !strncmp(e->d_name, begins, strlen(begins)) && length >= strlen(ends)
             && !strcmp(e->d_name + length - strlen(ends), ends);
    }
    if (d) {
        closedir(d);
    }
    return n;
}

static long long folder_bytes(const char *folder, int *n_files)
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

/* ---- use ---- */

TEST(memory_then_disk_then_compiler)
{
    begin();
    tc_options o = default_options();
    outcome first = attempt(&o, 0, true);
    CHECK_RAN(first, "cpu");
    CHECK_EQ_INT(first.used.compiler_runs, 1);
    CHECK_EQ_INT(first.used.misses, 1);
    CHECK_EQ_INT(first.used.kernels_built, 1);
    outcome again = attempt(&o, 0, false);
    CHECK_RAN(again, "cpu");
    CHECK_EQ_INT(again.used.memory_hits, 1);
    CHECK_EQ_INT(again.used.compiles, 0);
    hide_compilers(true);
    outcome disk = attempt(&o, 0, true);
    CHECK_RAN(disk, "cpu");
    CHECK_EQ_INT(disk.used.disk_hits, 1);
    CHECK_EQ_INT(disk.used.compiles + disk.used.compiler_runs + disk.used.misses, 0);
    end();
}

TEST(what_is_computed_once_comes_from_disk)
{
    float held[COUNT], in[COUNT], out[3][COUNT];
    begin();
    tc_options o = default_options();
    for (int i = 0; i < COUNT; i++) {
        held[i] = (float)i / 64;
        in[i] = 1;
    }
    for (int round = 0; round < 2; round++) {
        tc_ctx *ctx;
        tc_program *f;
        tc_program_info info;
        tc_shutdown();
        REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        tc_tensor w = tc_borrow(ctx, held, TC_F32, COUNT);
        REQUIRE(tc_compile(tc_mul(tc_input(ctx, "x", TC_F32, COUNT), tc_exp(w)), &f) == TC_OK);
        CHECK_EQ_INT(tc_program_get_info(f, &info), TC_OK);
        CHECK(info.from_disk == (round == 1) && info.n_once == 1 && info.n_steps == 2);
        for (int i = 0; i < 2; i++) {
            CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, COUNT)),
                                TC_BUFS(TC_BUF(out[round + i], COUNT))), TC_OK);
        }
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
    CHECK(!memcmp(out[0], out[1], sizeof(out[0])) && !memcmp(out[0], out[2], sizeof(out[0])));
    CHECK_CLOSE(out[2][64], 2.7182818, 1e-6);
    end();
}

TEST(no_disk_cache_leaves_no_file)
{
    begin();
    int n;
    tc_options o = default_options();
    o.no_disk_cache = true;
    outcome r = attempt(&o, 0, true);
    CHECK_RAN(r, "cpu");
    folder_bytes(in_dir("cache"), &n);
    CHECK_EQ_INT(n, 0);
    outcome again = attempt(&o, 0, false);
    CHECK_EQ_INT(again.used.memory_hits, 1);
    CHECK_EQ_INT(attempt(&o, 0, true).used.compiler_runs, 1);
    end();
}

TEST(a_seeded_cache_serves_read_only)
{
    begin();
    tc_options o = default_options();
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    int before, after;
    long long bytes_before = folder_bytes(in_dir("cache"), &before);
    CHECK_EQ_INT(chmod(in_dir("cache"), 0500), 0);
    o.cache_read_only = true;
    hide_compilers(true);
    outcome r = attempt(&o, 0, true);
    CHECK_RAN(r, "cpu");
    CHECK_EQ_INT(r.used.disk_hits, 1);
    hide_compilers(false);
    outcome other = attempt(&o, 1, true);
    CHECK_RAN(other, "cpu");
    CHECK_EQ_INT(folder_bytes(in_dir("cache"), &after), bytes_before);
    CHECK_EQ_INT(after, before);
    end();
}

TEST(a_kernel_of_another_program_is_found_again)
{
    begin();
    tc_options o = default_options();
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    unlink(find_file(in_dir("cache"), "tc-p-", ".bin"));
    hide_compilers(true);
    outcome r = attempt(&o, 0, true);
    CHECK_RAN(r, "cpu");
    CHECK_EQ_INT(r.used.misses, 1);
    CHECK_EQ_INT(r.used.kernel_hits, 1);
    CHECK_EQ_INT(r.used.compiler_runs, 0);
    outcome again = attempt(&o, 0, true);
    CHECK_EQ_INT(again.used.disk_hits, 1);
    end();
}

TEST(many_programs_share_one_compiler)
{
    begin();
    tc_options o = default_options();
    tc_ctx *ctx;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_stats before = stats_now(ctx);
    tc_tensor y[6], x[6];
    tc_program *f[6];
    tc_job jobs[6];
    for (int i = 0; i < 6; i++) {
        x[i] = tc_input(ctx, "x", TC_F32, COUNT);
        y[i] = x[i];
        for (int k = 0; k <= i % 5; k++) { /* the last is the first once more */
            y[i] = tc_neg(tc_add(y[i], x[i]));
        }
        memset(&jobs[i], 0, sizeof(jobs[i]));
        jobs[i].inputs.items = &x[i];
        jobs[i].inputs.n = 1;
        jobs[i].outputs.items = &y[i];
        jobs[i].outputs.n = 1;
        jobs[i].program = &f[i];
    }
    CHECK_EQ_INT(tc_compile_many(jobs, 6, NULL), TC_OK);
    tc_stats after = stats_now(ctx);
    CHECK_EQ_INT(after.compiler_runs - before.compiler_runs, 1);
    CHECK_EQ_INT(after.kernels_built - before.kernels_built, 5);
    for (int i = 0; i < 6; i++) {
        CHECK(run_is_correct(f[i], i % 5));
        tc_program_free(f[i]);
    }
    tc_ctx_free(ctx);
    end();
}

/* ---- damage ---- */

/* Every byte of the header, then strides through the rest; sizes and counts lie everywhere. */
static size_t next_place(size_t at)
{
    return at < 96 ? at + 1 : at + 1 + at / 16;
}

/* Flips bits and cuts the one file of that name. `gone` is removed before each attempt. Nothing
 * may crash, give a wrong result, or be believed. */
static void damage(const char *begins, const char *ends, const char *gone)
{
    begin();
    tc_options o = default_options();
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    const char *found = find_file(in_dir("cache"), begins, ends);
    REQUIRE(found[0]);
    char path[1024], gone_path[1024] = "";
    snprintf(path, sizeof(path), "%s", found);
    bytes good = read_file(path);
    if (gone) {
        snprintf(gone_path, sizeof(gone_path), "%s", find_file(in_dir("cache"), gone, ".bin"));
        REQUIRE(gone_path[0]);
    }
    hide_compilers(true);
    int tried = 0;
    for (size_t at = 0; at < good.n; at = next_place(at)) {
        for (int cut = 0; cut < 2; cut++) {
            bytes bad = good;
            bad.data = malloc(good.n);
            memcpy(bad.data, good.data, good.n);
            if (cut) {
                bad.n = at;
            } else {
                bad.data[at] ^= (unsigned char)(1 << tct_random_below(8));
            }
            write_file(path, bad.data, bad.n, 0600);
            free(bad.data);
            unlink(gone_path);
            outcome r = attempt(&o, 0, true);
            CHECK_MSG(r.status == TC_OK && r.correct, "%s at %zu: status %d %s", cut ? "cut"
                      : "flip", at, r.status,
                      r.error);
            CHECK_MSG(r.used.cache_rejects >= 1, "%s at %zu was believed", cut ? "cut" : "flip",
                      at);
            CHECK_MSG(access(path, F_OK) != 0 || r.used.kernel_hits, "%s at %zu was left", cut
                      ? "cut" : "flip", at);
            tried++;
        }
    }
    CHECK(tried > 200);
    write_file(path, good.data, good.n, 0600);
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    free(good.data);
    end();
}

TEST(a_damaged_program_entry_is_refused)
{
    damage("tc-p-", ".bin", NULL);
}

TEST(a_damaged_kernel_entry_is_refused)
{
    damage("tc-k-", ".bin", "tc-p-");
}

TEST(a_damaged_object_file_is_refused)
{
    begin();
    tc_options o = default_options();
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    char path[1024];
    snprintf(path, sizeof(path), "%s", find_file(in_dir("cache"), "tc-m-", ".so"));
    bytes good = read_file(path);
    hide_compilers(true);
    for (size_t at = 0; at < good.n; at += good.n / 97 + 1) {
        good.data[at] ^= 4;
        write_file(path, good.data, good.n, 0600);
        good.data[at] ^= 4;
        outcome r = attempt(&o, 0, true);
        CHECK_RAN(r, "interp");
        CHECK(r.used.cache_rejects >= 1);
    }
    write_file(path, good.data, good.n / 2, 0600);
    CHECK_RAN(attempt(&o, 0, true), "interp");
    unlink(path);
    outcome gone = attempt(&o, 0, true); /* evicted, say: a miss like any other */
    CHECK_RAN(gone, "interp");
    CHECK_EQ_INT(gone.used.cache_rejects, 0);
    hide_compilers(false);
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    free(good.data);
    end();
}

TEST(an_entry_of_another_program_is_not_believed)
{
    begin();
    tc_options o = default_options();
    char mine[1024];
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    snprintf(mine, sizeof(mine), "%s", find_file(in_dir("cache"), "tc-p-", ".bin"));
    bytes entry = read_file(mine);
    unlink(mine);
    CHECK_RAN(attempt(&o, 3, true), "cpu");
    char other[1024];
    snprintf(other, sizeof(other), "%s", find_file(in_dir("cache"), "tc-p-", ".bin"));
    write_file(other, entry.data, entry.n, 0600); /* whole and sound, but under a foreign key */
    outcome r = attempt(&o, 3, true);
    CHECK_RAN(r, "cpu");
    CHECK_EQ_INT(r.used.disk_hits, 0);
    free(entry.data);
    end();
}

/* ---- plants ---- */

TEST(files_that_others_may_write_are_refused)
{
    begin();
    static const mode_t modes[] = {0620, 0602, 0666};
    tc_options o = default_options();
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    char path[1024];
    snprintf(path, sizeof(path), "%s", find_file(in_dir("cache"), "tc-p-", ".bin"));
    bytes good = read_file(path);
    for (int i = 0; i < 3; i++) {
        write_file(path, good.data, good.n, modes[i]);
        outcome r = attempt(&o, 0, true);
        CHECK_RAN(r, "cpu");
        CHECK_EQ_INT(r.used.disk_hits, 0);
        CHECK(r.used.cache_rejects >= 1);
    }
    write_file(in_dir("elsewhere"), good.data, good.n, 0600);
    unlink(path);
    CHECK_EQ_INT(symlink(in_dir("elsewhere"), path), 0);
    outcome link = attempt(&o, 0, true);
    CHECK_RAN(link, "cpu");
    CHECK_EQ_INT(link.used.disk_hits, 0);
    unlink(path);
    CHECK_EQ_INT(mkfifo(path, 0600), 0); /* opening it must not wait */
    outcome fifo = attempt(&o, 0, true);
    CHECK_RAN(fifo, "cpu");
    CHECK_EQ_INT(fifo.used.disk_hits, 0);
    free(good.data);
    end();
}

TEST(files_of_other_users_are_refused)
{
    if (geteuid() != 0) {
        SKIP("only root can give a file away");
    }
    begin();
    tc_options o = default_options();
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    const char *path = find_file(in_dir("cache"), "tc-p-", ".bin");
    CHECK_EQ_INT(chown(path, 12345, 12345), 0);
    outcome r = attempt(&o, 0, true);
    CHECK_RAN(r, "cpu");
    CHECK_EQ_INT(r.used.disk_hits, 0);
    CHECK_EQ_INT(chown(in_dir("cache"), 12345, 12345), 0);
    outcome foreign = attempt(&o, 0, true);
    CHECK_RAN(foreign, "cpu");
    CHECK_EQ_INT(foreign.used.disk_hits, 0);
    CHECK_EQ_INT(foreign.used.compiler_runs, 1);
    end();
}

TEST(a_directory_that_others_may_write_is_not_used)
{
    begin();
    int n;
    tc_options o = default_options();
    CHECK_EQ_INT(mkdir(in_dir("cache"), 0700), 0);
    CHECK_EQ_INT(chmod(in_dir("cache"), 0777), 0);
    outcome r = attempt(&o, 0, true);
    CHECK_RAN(r, "cpu"); /* memory only */
    folder_bytes(in_dir("cache"), &n);
    CHECK_EQ_INT(n, 0);
    write_file(in_dir("file"), "x", 1, 0600);
    o.cache_dir = in_dir("file"); /* no directory at all */
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    o.cache_dir = "/proc/tc-cannot-be-made";
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    end();
}

/* ---- room ---- */

TEST(the_oldest_entries_go_when_the_cap_is_reached)
{
    begin();
    int n;
    tc_options o = default_options();
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    long long one = folder_bytes(in_dir("cache"), &n);
    write_file(in_dir("cache/precious"), "mine", 4, 0600);
    o.cache_bytes = one * 5 / 2;
    long long evictions = 0;
    for (int i = 1; i < 5; i++) {
        outcome r = attempt(&o, i, true);
        CHECK_RAN(r, "cpu");
        evictions += r.used.evictions;
        CHECK(folder_bytes(in_dir("cache"), &n) <= o.cache_bytes);
    }
    CHECK(evictions > 0);
    CHECK_EQ_INT(access(in_dir("cache/precious"), F_OK), 0);
    CHECK_EQ_INT(attempt(&o, 4, true).used.disk_hits, 1);
    CHECK_EQ_INT(attempt(&o, 0, true).used.disk_hits, 0);
    end();
}

TEST(a_full_disk_does_no_harm)
{
    begin();
    tc_options o = default_options();
    int ended = -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = {2000, 2000}; /* bytes of a file: the compiler's do not fit either */
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        outcome r = attempt(&o, 0, true);
        bool good = r.status == TC_OK && r.correct && !strcmp(r.backend, "interp");
        outcome again = attempt(&o, 0, false);
        _exit(good && again.correct && again.used.memory_hits == 1 ? 0 : 1);
    }
    CHECK_EQ_INT(waitpid(child, &ended, 0), child);
    CHECK_EQ_INT(ended, 0);
    outcome after = attempt(&o, 0, true); /* nothing half-written stands in the way */
    CHECK_RAN(after, "cpu");
    CHECK_EQ_INT(after.used.cache_rejects, 0);
    end();
}

/* ---- places that do not hold code ---- */

/* Runs body in a child that may mount over folders of its own. */
static void in_child_with_mounts(int (*body)(void))
{
    enum { NO_MOUNTS = 77 };
    int ended = -1;
    fflush(stdout);
    tc_shutdown();
    pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
            _exit(NO_MOUNTS);
        }
        int result = body();
        fflush(stdout);
        _exit(result || tct_failures);
    }
    CHECK_EQ_INT(waitpid(child, &ended, 0), child);
    if (WIFEXITED(ended) && WEXITSTATUS(ended) == NO_MOUNTS) {
        end();
        SKIP("nothing can be mounted here");
    }
    CHECK_EQ_INT(ended, 0);
}

static int mount_folder(const char *name, unsigned long flags, const char *options)
{
    return mkdir(in_dir(name), 0700) || mount("tmpfs", in_dir(name), "tmpfs", flags, options);
}

/* From now on the system makes no files in memory. False: that cannot be had. */
static bool forbid_memory_files(void)
{
#if defined(SYS_memfd_create) && defined(__linux__)
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* the number of the call */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog filter = {4, rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
           && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
#else
    return true;
#endif
}

static int try_noexec_places(void)
{
    int n;
    char sound_cache[600];
    tc_options o = default_options();
    snprintf(sound_cache, sizeof(sound_cache), "%s", in_dir("sound"));
    if (mount_folder("cache", MS_NOEXEC, "mode=0700")
        || mount_folder("temporary", MS_NOEXEC, "mode=0700")) {
        return 1;
    }
    outcome memory_only = attempt(&o, 0, true); /* what may not hold code is no cache */
    CHECK_RAN(memory_only, "cpu");
    folder_bytes(in_dir("cache"), &n);
    CHECK_EQ_INT(n, 0);
    setenv("TMPDIR", in_dir("temporary"), 1);
    for (int keep = 0; keep < 2; keep++) { /* built there, loaded from memory */
        setenv("TC_KEEP", keep ? "1" : "0", 1);
        CHECK_RAN(attempt(&o, 0, true), "cpu");
    }
    unsetenv("TC_KEEP");
    tc_options sound = default_options();
    sound.cache_dir = sound_cache;
    CHECK_RAN(attempt(&sound, 0, true), "cpu");
    CHECK_EQ_INT(attempt(&sound, 0, true).used.disk_hits, 1);
    if (!forbid_memory_files()) {
        return 0;
    }
    CHECK_EQ_INT(attempt(&sound, 0, true).used.disk_hits, 1); /* loaded by its name */
    outcome nowhere = attempt(&o, 1, true);
    CHECK_RAN(nowhere, "interp");
    CHECK_HAS(nowhere.explain, "interpreted instead of compiled");
    CHECK_HAS(nowhere.explain, "cannot be loaded");
    CHECK_EQ_INT(nowhere.used.interpreted, 1);
    o.fallback = TC_FALLBACK_REFUSE;
    outcome refused = attempt(&o, 1, true);
    CHECK_EQ_INT(refused.status, TC_ERR_COMPILER);
    CHECK_HAS(refused.error, "cannot be loaded");
    CHECK_RAN(attempt(&sound, 1, true), "cpu"); /* only the place of the build is noexec */
    CHECK_EQ_INT(attempt(&sound, 1, true).used.disk_hits, 1);
    return 0;
}

TEST(noexec_places_are_no_caches)
{
    begin();
    in_child_with_mounts(try_noexec_places);
    end();
}

static int try_full_places(void)
{
    tc_options o = default_options();
    if (mount_folder("cache", 0, "mode=0700,size=8k")
        || mount_folder("temporary", 0, "mode=0700,size=8k")) {
        return 1;
    }
    outcome memory_only = attempt(&o, 0, true);
    CHECK_RAN(memory_only, "cpu");
    CHECK_STR(find_file(in_dir("cache"), "tc-", ".tmp"), "");
    outcome again = attempt(&o, 0, true);
    CHECK_RAN(again, "cpu");
    CHECK_EQ_INT(again.used.disk_hits + again.used.cache_rejects, 0);
    setenv("TMPDIR", in_dir("temporary"), 1);
    outcome nowhere = attempt(&o, 0, true); /* neither source nor object file fits */
    CHECK_RAN(nowhere, "interp");
    CHECK_HAS(nowhere.explain, "interpreted instead of compiled");
    return 0;
}

TEST(full_places_do_no_harm)
{
    begin();
    in_child_with_mounts(try_full_places);
    end();
}

TEST(a_read_only_place_is_only_read)
{
    begin();
    tc_options o = default_options();
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    char seeded[600];
    snprintf(seeded, sizeof(seeded), "%s", in_dir("cache"));
    int ended = -1;
    fflush(stdout);
    tc_shutdown();
    pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)
            || mount(seeded, seeded, NULL, MS_BIND, NULL)
            || mount(NULL, seeded, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL)) {
            _exit(0);
        }
        outcome known = attempt(&o, 0, true);
        outcome other = attempt(&o, 1, true);
        bool good = known.correct && known.used.disk_hits == 1 && other.correct
                    && !strcmp(other.backend, "cpu") && other.used.compiler_runs == 1;
        _exit(!good);
    }
    CHECK_EQ_INT(waitpid(child, &ended, 0), child);
    CHECK_EQ_INT(ended, 0);
    end();
}

TEST(names_with_spaces_and_quotes_are_only_names)
{
    begin();
    tc_options o = default_options();
    o.cache_dir = in_dir("a b'c\"d;$(touch pwned)");
    setenv("TMPDIR", in_dir("t m'p"), 1);
    CHECK_EQ_INT(mkdir(in_dir("t m'p"), 0700), 0);
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    CHECK_EQ_INT(attempt(&o, 0, true).used.disk_hits, 1);
    o.cc = "cc; touch pwned";
    outcome r = attempt(&o, 1, true);
    CHECK_RAN(r, "interp");
    CHECK_HAS(r.explain, "cc; touch pwned");
    CHECK(access("pwned", F_OK) != 0);
    unsetenv("TMPDIR");
    end();
}

TEST(a_linked_directory_of_others_is_not_used)
{
    if (geteuid() != 0) {
        SKIP("only root can give a directory away");
    }
    begin();
    int n;
    tc_options o = default_options();
    CHECK_EQ_INT(mkdir(in_dir("theirs"), 0755), 0);
    CHECK_EQ_INT(chown(in_dir("theirs"), 12345, 12345), 0);
    CHECK_EQ_INT(symlink(in_dir("theirs"), in_dir("cache")), 0);
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    folder_bytes(in_dir("theirs"), &n);
    CHECK_EQ_INT(n, 0);
    CHECK_EQ_INT(unlink(in_dir("cache")), 0);
    CHECK_EQ_INT(mkdir(in_dir("open"), 0700), 0); /* anybody could swap what lies in it */
    CHECK_EQ_INT(chmod(in_dir("open"), 0777), 0);
    o.cache_dir = in_dir("open/cache");
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    folder_bytes(o.cache_dir, &n);
    CHECK_EQ_INT(n, 0);
    end();
}

TEST(code_for_other_features_is_not_loaded)
{
    begin();
    tc_options narrow = default_options();
    tc_options scalar = default_options();
    narrow.vector_bits = 128;
    scalar.vector_bits = -1;
    CHECK_RAN(attempt(&narrow, 0, true), "cpu");
    char wide_entry[1024];
    snprintf(wide_entry, sizeof(wide_entry), "%s", find_file(in_dir("cache"), "tc-p-", ".bin"));
    bytes entry = read_file(wide_entry);
    unlink(wide_entry);
    outcome r = attempt(&scalar, 0, true);
    CHECK_RAN(r, "cpu");
    CHECK_EQ_INT(r.used.disk_hits + r.used.kernel_hits, 0);
    CHECK_EQ_INT(r.used.compiler_runs, 1);
    write_file(find_file(in_dir("cache"), "tc-p-", ".bin"), entry.data, entry.n, 0600);
    outcome planted = attempt(&scalar, 0, true); /* sound, but of the other features */
    CHECK_RAN(planted, "cpu");
    CHECK_EQ_INT(planted.used.disk_hits, 0);
    free(entry.data);
    end();
}

/* ---- races ---- */

TEST(racing_processes_all_get_it_right)
{
    begin();
    enum { PROCESSES = 8 };
    tc_options o = default_options();
    pid_t children[PROCESSES];
    fflush(stdout);
    tc_shutdown();
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            outcome r = attempt(&o, 0, true);
            _exit(r.status == TC_OK && r.correct && !strcmp(r.backend, "cpu") ? 0 : 1);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int ended = -1;
        CHECK_EQ_INT(waitpid(children[i], &ended, 0), children[i]);
        CHECK_EQ_INT(ended, 0);
    }
    CHECK_STR(find_file(in_dir("cache"), "tc-", ".tmp"), "");
#if defined(__SANITIZE_ADDRESS__)
    int most = PROCESSES; /* an instrumented object names its source file */
#else
    int most = 1; /* all made the same object */
#endif
    int objects = count_entries(in_dir("cache"), "tc-m-", ".so");
    CHECK(objects >= 1 && objects <= most);
    CHECK_EQ_INT(count_entries(in_dir("cache"), "tc-m-", ".c"), objects);
    hide_compilers(true);
    outcome r = attempt(&o, 0, true);
    CHECK_RAN(r, "cpu");
    CHECK_EQ_INT(r.used.disk_hits, 1);
    end();
}

static void *compile_in_thread(void *arg)
{
    const tc_options *o = arg;
    tc_ctx *ctx;
    bool good = false;
    if (tc_ctx_make(&ctx, o) == TC_OK) {
        tc_program *f;
        if (tc_compile(expression(ctx, 0), &f) == TC_OK) {
            good = run_is_correct(f, 0);
            tc_program_free(f);
        }
        tc_ctx_free(ctx);
    }
    return good ? arg : NULL;
}

TEST(racing_threads_compile_once)
{
    begin();
    enum { THREADS = 8 };
    tc_options o = default_options();
    pthread_t threads[THREADS];
    tc_ctx *ctx;
    o.no_disk_cache = true;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_stats before = stats_now(ctx);
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, compile_in_thread, &o) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        CHECK(result != NULL);
    }
    tc_stats after = stats_now(ctx);
    CHECK_EQ_INT(after.compiles - before.compiles, 1);
    CHECK_EQ_INT(after.compiler_runs - before.compiler_runs, 1);
    CHECK_EQ_INT(after.memory_hits - before.memory_hits, THREADS - 1);
    tc_ctx_free(ctx);
    end();
}

/* ---- fork ---- */

static bool large_run_is_correct(tc_program *f)
{
    enum { LARGE = 1 << 20 };
    float *x = malloc(LARGE * sizeof(float));
    float *y = malloc(LARGE * sizeof(float));
    bool good = x && y;
    for (int i = 0; good && i < LARGE; i++) {
        x[i] = (float)i;
    }
    good = good && tc_run(f, TC_BUFS(TC_BUF(x, LARGE)), TC_BUFS(TC_BUF(y, LARGE))) == TC_OK;
    for (int i = 0; good && i < LARGE; i++) {
        good = y[i] == -(x[i] + 3);
    }
    free(x);
    free(y);
    return good;
}

TEST(a_forked_child_runs_and_compiles)
{
    begin();
    tc_options o = default_options();
    tc_ctx *ctx;
    tc_program *f;
    int ended = -1;
    o.threads = 4;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 1 << 20);
    REQUIRE(tc_compile(tc_neg(tc_add(x, 3)), &f) == TC_OK);
    CHECK(large_run_is_correct(f)); /* the workers exist now */
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        bool good = large_run_is_correct(f);
        o.threads = 1;
        outcome fresh = attempt(&o, 2, false);
        good = good && fresh.correct && !strcmp(fresh.backend, "cpu");
        tc_program_free(f);
        tc_ctx_free(ctx);
        tc_shutdown();
        _exit(!good);
    }
    CHECK_EQ_INT(waitpid(child, &ended, 0), child);
    CHECK_EQ_INT(ended, 0);
    CHECK(large_run_is_correct(f));
    tc_program_free(f);
    tc_ctx_free(ctx);
    end();
}

static void *compile_much(void *arg)
{
    int *stop = arg;
    tc_options o = default_options();
    o.backend = "interp";
    o.no_disk_cache = true;
    while (!__atomic_load_n(stop, __ATOMIC_RELAXED)) {
        (void)attempt(&o, (int)(tct_random() % 50), false);
    }
    return NULL;
}

/* A fork finds the locks of other threads in any state. */
TEST(a_child_forked_amid_compiles_is_not_stuck)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    SKIP("the sanitizer's own allocator may be locked in the child");
#endif
    begin();
    int stop = 0;
    pthread_t busy;
    tc_options o = default_options();
    o.backend = "interp";
    o.no_disk_cache = true;
    REQUIRE(pthread_create(&busy, NULL, compile_much, &stop) == 0);
    for (int i = 0; i < 200; i++) {
        int ended = -1;
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            _exit(!attempt(&o, i % 50, false).correct);
        }
        CHECK_EQ_INT(waitpid(child, &ended, 0), child);
        CHECK_EQ_INT(ended, 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    pthread_join(busy, NULL);
    end();
}

/* ---- compilers ---- */

TEST(a_missing_compiler_means_the_interpreter)
{
    begin();
    tc_options o = default_options();
    o.cc = "/no/such/compiler";
    outcome r = attempt(&o, 0, true);
    CHECK_RAN(r, "interp");
    CHECK_EQ_INT(r.used.interpreted, 1);
    CHECK_EQ_INT(r.used.compiler_runs, 0);
    CHECK_HAS(r.explain, "interpreted instead of compiled");
    CHECK_HAS(r.explain, "/no/such/compiler");
    outcome again = attempt(&o, 0, false);
    CHECK_RAN(again, "interp");
    CHECK_EQ_INT(again.used.memory_hits, 1);
    o.fallback = TC_FALLBACK_REFUSE;
    outcome refused = attempt(&o, 0, false);
    CHECK_EQ_INT(refused.status, TC_ERR_COMPILER);
    CHECK_HAS(refused.error, "/no/such/compiler");
    o.cc = NULL;
    hide_compilers(true);
    outcome nowhere = attempt(&o, 0, true);
    CHECK_EQ_INT(nowhere.status, TC_ERR_COMPILER);
    CHECK_HAS(nowhere.error, "PATH");
    end();
}

/* Runs with a compiler that is this script: first with fallback, then without. */
static outcome with_script(const char *script, tc_options *o)
{
    o->cc = in_dir("mycc");
    setenv("TMPDIR", dir, 1); /* what a failure keeps goes with the test */
    write_script(o->cc, script);
    outcome r = attempt(o, 0, true);
    CHECK_RAN(r, "interp");
    CHECK_EQ_INT(r.used.interpreted, 1);
    o->fallback = TC_FALLBACK_REFUSE;
    outcome refused = attempt(o, 0, true);
    CHECK_EQ_INT(refused.status, TC_ERR_COMPILER);
    unsetenv("TMPDIR");
    return refused;
}

TEST(a_failing_compiler_is_quoted_and_its_source_kept)
{
    begin();
    tc_options o = default_options();
    outcome r = with_script("#!/bin/sh\necho kaboom from $0 >&2\nexit 3\n", &o);
    CHECK_HAS(r.error, "kaboom");
    CHECK_HAS(r.error, "mycc");
    CHECK_HAS(r.error, "code 3");
    const char *kept = strstr(r.error, "kept in ");
    REQUIRE(kept);
    char folder[512];
    snprintf(folder, sizeof(folder), "%s", kept + 8);
    folder[strcspn(folder, "\n ")] = 0;
    CHECK(find_file(folder, "tc_0", ".c")[0]);
    CHECK(find_file(folder, "build", ".log")[0]);
    end();
}

TEST(a_killed_compiler_has_failed)
{
    begin();
    tc_options o = default_options();
    outcome r = with_script("#!/bin/sh\necho half; kill -9 $$\n", &o);
    CHECK_HAS(r.error, "half");
    CHECK_HAS(r.error, "code 137");
    end();
}

TEST(a_compiler_that_cannot_be_started_is_missing)
{
    begin();
    tc_options o = default_options();
    outcome r = with_script("#!/no/such/interpreter\n", &o);
    CHECK_HAS(r.error, "cannot be started");
    CHECK_EQ_INT(r.used.compiler_runs, 0);
    end();
}

TEST(the_environment_names_the_compiler)
{
    begin();
    tc_options o = default_options();
    write_script(in_dir("other-cc"), "#!/bin/sh\ntouch \"${0%/*}/used\"\nexec cc \"$@\"\n");
    setenv("TC_CC", in_dir("other-cc"), 1);
    outcome r = attempt(&o, 0, true);
    CHECK_RAN(r, "cpu");
    CHECK_EQ_INT(access(in_dir("used"), F_OK), 0);
    unsetenv("TC_CC");
    outcome usual = attempt(&o, 0, true); /* what one compiler made is not another's */
    CHECK_RAN(usual, "cpu");
    CHECK_EQ_INT(usual.used.disk_hits + usual.used.kernel_hits, 0);
    CHECK_EQ_INT(usual.used.compiler_runs, 1);
    end();
}

TEST(a_hanging_compiler_is_killed)
{
    begin();
    tc_options o = default_options();
    o.cc_timeout_s = 1; /* the clock allows five times as much */
    outcome r = with_script("#!/bin/sh\nsleep 1000 &\nsleep 1000\n", &o);
    CHECK_HAS(r.error, "killed after 5 s");
    end();
}

TEST(a_compiler_may_use_so_much_processor_time)
{
    begin();
    tc_options o = default_options();
    o.cc_timeout_s = 1234;
    outcome r = with_script("#!/bin/sh\nsleep 0.5\necho may use $(ulimit -t)\nexit 7\n", &o);
    CHECK_HAS(r.error, "may use 1234");
    CHECK_HAS(r.error, "ended with code 7");
    CHECK_HAS(r.error, "s of processor time (of 1234 s)");
    end();
}

TEST(a_compiler_may_print_megabytes)
{
    begin();
    tc_options o = default_options();
    outcome r = with_script("#!/bin/sh\nhead -c 8000000 /dev/zero | tr '\\0' 'x'\nexit 1\n", &o);
    CHECK(strlen(r.error) < 8192);
    CHECK_HAS(r.error, "xxxx");
    end();
}

TEST(a_compiler_that_leaves_nothing_or_garbage_has_failed)
{
    begin();
    tc_options o = default_options();
    outcome nothing = with_script("#!/bin/sh\nexit 0\n", &o);
    CHECK_HAS(nothing.error, "no object file");
    tc_options again = default_options();
    outcome garbage =
        with_script("#!/bin/sh\nwhile [ \"$1\" != -o ]; do shift; done\necho garbage > \"$2\"\n",
                    &again);
    CHECK_HAS(garbage.error, "cannot be loaded");
    end();
}

TEST(a_replaced_compiler_invalidates_what_it_made)
{
    begin();
    tc_options o = default_options();
    o.cc = in_dir("gcc-like");
    write_script(o.cc, "#!/bin/sh\nexec cc \"$@\"\n");
    outcome r = attempt(&o, 0, true);
    CHECK_RAN(r, "cpu");
    CHECK_EQ_INT(r.used.compiler_runs, 1);
    CHECK_EQ_INT(attempt(&o, 0, true).used.disk_hits, 1);
    write_script(o.cc, "#!/bin/sh\n# newer\nexec cc \"$@\"\n");
    outcome replaced = attempt(&o, 0, true);
    CHECK_RAN(replaced, "cpu");
    CHECK_EQ_INT(replaced.used.disk_hits, 0);
    CHECK_EQ_INT(replaced.used.compiler_runs, 1);
    CHECK_EQ_INT(replaced.used.cache_rejects, 0);
    unlink(o.cc); /* gone: what it made still serves */
    CHECK_EQ_INT(attempt(&o, 0, true).used.disk_hits, 1);
    end();
}

/* ---- objects that are not whole ---- */

/* A compiler that makes an object and does `then` to it ($o). */
static const char *spoiling_script(const char *then)
{
    static char text[1024];
    snprintf(text, sizeof(text),
             "#!/bin/sh\nfor a; do [ \"$p\" = -o ] && o=$a; p=$a; done\n%s\n", then);
    return text;
}

TEST(objects_cut_short_do_no_harm)
{
    begin();
    static const int percents[] = {3, 30, 60, 90, 99};
    for (int i = 0; i < 5; i++) {
        char then[256];
        tc_options o = default_options();
        snprintf(then, sizeof(then),
                 "cc \"$@\"; s=$(wc -c <\"$o\"); head -c $((s * %d / 100)) \"$o\" >\"$o.x\"; "
                 "mv \"$o.x\" \"$o\"", percents[i]);
        outcome r = with_script(spoiling_script(then), &o);
        CHECK_HAS(r.error, "cannot be loaded");
    }
    CHECK_STR(find_file(in_dir("cache"), "tc-m-", ".so"), "");
    end();
}

/* The host hears nothing of how a compiler ended. */
TEST(a_compiler_that_dies_unheard_does_no_harm)
{
    begin();
    void (*old)(int) = signal(SIGCHLD, SIG_IGN);
    tc_options o = default_options();
    outcome r = with_script(spoiling_script("cc \"$@\"; head -c 6000 \"$o\" >\"$o.x\"; "
                                            "mv \"$o.x\" \"$o\"; kill -9 $$"),
                            &o);
    CHECK_HAS(r.error, "cannot be loaded");
    signal(SIGCHLD, old);
    end();
}

TEST(what_a_compiler_leaves_must_be_a_file)
{
    static const char *const tricks[] = {
        "mkfifo \"$o\"; sleep 1000 >\"$o\" &", "mkfifo \"$o\"", "mkdir \"$o\"",
        "ln -s /dev/zero \"$o\"",
        "cc \"$@\"; mv \"$o\" \"$o.x\"; ln -s \"$o.x\" \"$o\"",
        "cc \"$@\"; chmod 0666 \"$o\""};
    begin();
    for (int i = 0; i < 6; i++) {
        tc_options o = default_options();
        outcome r = with_script(spoiling_script(tricks[i]), &o);
        CHECK_HAS(r.error, "no object file");
    }
    end();
}

/* ---- what is left behind ---- */

/* A compiler that kills the program which started it. */
TEST(the_next_compile_removes_what_a_killed_one_left)
{
    begin();
    setenv("TMPDIR", dir, 1);
    write_script(in_dir("killer"), "#!/bin/sh\nkill -9 $PPID\nsleep 1000\n");
    for (int i = 0; i < 3; i++) {
        int ended = -1;
        fflush(stdout);
        tc_shutdown();
        pid_t child = fork();
        if (child == 0) {
            tc_options o = default_options();
            o.cc = in_dir("killer");
            (void)attempt(&o, 0, true);
            _exit(0);
        }
        CHECK_EQ_INT(waitpid(child, &ended, 0), child);
        CHECK(WIFSIGNALED(ended) && WTERMSIG(ended) == SIGKILL);
        CHECK_EQ_INT(count_entries(dir, "tc-b-", ""), 1); /* its own */
    }
    tc_options o = default_options();
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    CHECK_EQ_INT(count_entries(dir, "tc-b-", ""), 0);
    unsetenv("TMPDIR");
    end();
}

TEST(only_the_last_failures_are_kept)
{
    begin();
    tc_options o = default_options();
    o.cc = in_dir("mycc");
    setenv("TMPDIR", dir, 1);
    write_script(o.cc, "#!/bin/sh\nexit 1\n");
    for (int i = 0; i < 20; i++) {
        CHECK_RAN(attempt(&o, i, true), "interp");
    }
    CHECK_EQ_INT(count_entries(dir, "tc-b-", ""), 16);
    setenv("TC_KEEP", "1", 1);
    o.cc = NULL;
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    unsetenv("TC_KEEP");
    CHECK_RAN(attempt(&o, 1, true), "cpu");
    CHECK_EQ_INT(count_entries(dir, "tc-kept-", ""), 1);
    unsetenv("TMPDIR");
    end();
}

TEST(old_temporaries_of_the_cache_are_removed)
{
    begin();
    tc_options o = default_options();
    struct timespec old[2] = {{time(NULL) - 7200, 0}, {time(NULL) - 7200, 0}};
    CHECK_EQ_INT(mkdir(in_dir("cache"), 0700), 0);
    write_file(in_dir("cache/tc-p-x.bin.1.2.tmp"), "old", 3, 0600);
    write_file(in_dir("cache/tc-p-y.bin.1.2.tmp"), "new", 3, 0600);
    CHECK_EQ_INT(utimensat(AT_FDCWD, in_dir("cache/tc-p-x.bin.1.2.tmp"), old, 0), 0);
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    CHECK(access(in_dir("cache/tc-p-x.bin.1.2.tmp"), F_OK) != 0);
    CHECK_EQ_INT(access(in_dir("cache/tc-p-y.bin.1.2.tmp"), F_OK), 0); /* being written, maybe */
    end();
}

/* ---- places that others can change ---- */

TEST(a_cache_below_what_others_may_write_is_not_used)
{
    static const mode_t modes[] = {0770, 0707, 0777, 0775};
    begin();
    int n;
    tc_options o = default_options();
    CHECK_EQ_INT(mkdir(in_dir("up"), 0700), 0);
    o.cache_dir = in_dir("up/deep/cache");
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    CHECK_EQ_INT(attempt(&o, 0, true).used.disk_hits, 1);
    for (int i = 0; i < 4; i++) {
        CHECK_EQ_INT(chmod(in_dir("up"), modes[i]), 0);
        outcome r = attempt(&o, 0, true);
        CHECK_RAN(r, "cpu"); /* memory only */
        CHECK_EQ_INT(r.used.disk_hits, 0);
    }
    CHECK_EQ_INT(chmod(in_dir("up"), 01777), 0); /* as /tmp: others cannot touch what is ours */
    CHECK_EQ_INT(attempt(&o, 0, true).used.disk_hits, 1);
    if (geteuid() == 0) {
        CHECK_EQ_INT(chown(in_dir("up"), 12345, 12345), 0);
        CHECK_EQ_INT(chmod(in_dir("up"), 0755), 0);
        CHECK_EQ_INT(attempt(&o, 0, true).used.disk_hits, 0);
        o.cache_dir = in_dir("up/new");
        CHECK_RAN(attempt(&o, 0, true), "cpu");
        folder_bytes(in_dir("up/new"), &n);
        CHECK_EQ_INT(n, 0);
    }
    end();
}

TEST(nothing_is_built_where_others_may_write)
{
    begin();
    tc_options o = default_options();
    setenv("TMPDIR", in_dir("tmp"), 1);
    setenv("TC_KEEP", "1", 1); /* leaves traces */
    for (int open = 0; open < 2; open++) {
        CHECK(mkdir(in_dir("tmp"), 0700) == 0 || open);
        CHECK_EQ_INT(chmod(in_dir("tmp"), open ? 01777 : 0777), 0);
        o.cc = in_dir("cc");
        write_script(o.cc, "#!/bin/sh\necho \"$TMPDIR\" >\"${0%/*}/said\"\nexec cc \"$@\"\n");
        CHECK_RAN(attempt(&o, open, true), "cpu");
        bytes said = read_file(in_dir("said")); /* where it put its own temporaries */
        said.data[said.n ? said.n - 1 : 0] = 0;
        bool there = !strncmp((char *)said.data, in_dir("tmp/"), strlen(in_dir("tmp/")));
        CHECK_MSG(there == (open == 1), "TMPDIR was %s", (char *)said.data);
        struct stat st;
        CHECK(stat((char *)said.data, &st) == 0 && (st.st_mode & 0777) == 0700);
        char command[1024];
        snprintf(command, sizeof(command), "rm -rf '%s'", (char *)said.data);
        CHECK(strstr((char *)said.data, "/tc-kept-") && system(command) == 0);
        free(said.data);
    }
    unsetenv("TC_KEEP");
    unsetenv("TMPDIR");
    end();
}

/* ---- the cap of the memory cache ---- */

TEST(the_memory_cache_keeps_to_its_cap)
{
    begin();
    enum { PROGRAMS = 60, HELD = 5 };
    tc_options o = default_options();
    o.backend = "interp";
    o.no_disk_cache = true;
    o.memory_cache_bytes = 1 << 20;
    tc_ctx *ctx;
    tc_program *held[HELD];
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_stats before = stats_now(ctx);
    CHECK_EQ_INT(before.memory_entries, 0);
    CHECK_EQ_INT(before.memory_bytes, 0);
    for (int i = 0; i < PROGRAMS; i++) {
        tc_program *f;
        REQUIRE(tc_compile(expression(ctx, i), &f) == TC_OK);
        if (i < HELD) {
            held[i] = f;
        } else {
            tc_program_free(f);
        }
        CHECK(stats_now(ctx).memory_bytes <= o.memory_cache_bytes);
    }
    tc_stats after = stats_now(ctx);
    CHECK(after.memory_entries >= HELD && after.memory_entries < PROGRAMS);
    CHECK_EQ_INT(after.memory_entries + after.memory_evictions - before.memory_evictions,
                 PROGRAMS);
    CHECK(attempt(&o, PROGRAMS - 1, false).used.memory_hits == 1); /* used last */
    CHECK(attempt(&o, 0, false).used.memory_hits == 1);            /* in use, so kept */
    CHECK(attempt(&o, HELD, false).used.memory_hits == 0);         /* used longest ago */
    o.memory_cache_bytes = -1;
    CHECK_EQ_INT(attempt(&o, PROGRAMS, false).used.memory_hits, 0);
    CHECK_EQ_INT(stats_now(ctx).memory_entries, HELD); /* only what programs use */
    for (int i = 0; i < HELD; i++) {
        CHECK(run_is_correct(held[i], i));
        tc_program_free(held[i]);
    }
    CHECK_EQ_INT(stats_now(ctx).memory_entries, 0);
    CHECK_EQ_INT(stats_now(ctx).memory_bytes, 0);
    tc_ctx_free(ctx);
    end();
}

/* Native code: what is dropped is unloaded, but for modules that other programs share. */
TEST(modules_live_as_long_as_their_programs)
{
    begin();
    enum { PROGRAMS = 6 };
    tc_options o = default_options();
    o.no_disk_cache = true;
    o.memory_cache_bytes = -1;
    tc_ctx *ctx;
    tc_program *f[PROGRAMS];
    tc_job jobs[PROGRAMS];
    tc_tensor x[PROGRAMS], y[PROGRAMS];
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    memset(jobs, 0, sizeof(jobs));
    for (int i = 0; i < PROGRAMS; i++) { /* all in one module */
        y[i] = x[i] = tc_input(ctx, "x", TC_F32, COUNT);
        for (int k = 0; k <= i; k++) {
            y[i] = tc_neg(tc_add(y[i], x[i]));
        }
        jobs[i].inputs = (tc_tensors){&x[i], 1};
        jobs[i].outputs = (tc_tensors){&y[i], 1};
        jobs[i].program = &f[i];
    }
    CHECK_EQ_INT(tc_compile_many(jobs, PROGRAMS, NULL), TC_OK);
    int64_t all = stats_now(ctx).memory_bytes;
    for (int i = 0; i < PROGRAMS; i++) {
        CHECK(run_is_correct(f[PROGRAMS - 1], PROGRAMS - 1));
        CHECK(run_is_correct(f[i], i));
        CHECK_EQ_INT(stats_now(ctx).memory_entries, PROGRAMS - i);
        CHECK(stats_now(ctx).memory_bytes > 0);
        tc_program_free(f[i]);
        CHECK(stats_now(ctx).memory_bytes < all);
    }
    CHECK_EQ_INT(stats_now(ctx).memory_bytes, 0);
    tc_ctx_free(ctx);
    end();
}

static void *compile_under_pressure(void *arg)
{
    tc_options o = default_options();
    bool good = true;
    o.no_disk_cache = true;
    o.memory_cache_bytes = 60000;
    for (int i = 0; i < 60 && good; i++) {
        o.backend = i % 4 ? "interp" : "cpu";
        int which = i % 4 ? i * 5 % 12 : i / 4 % 3;
        outcome r = attempt(&o, which, false);
        good = r.status == TC_OK && r.correct;
    }
    return good ? arg : NULL;
}

TEST(threads_may_share_a_memory_cache_that_is_too_small)
{
    begin();
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, compile_under_pressure, dir) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        CHECK(result != NULL);
    }
    end();
}

/* ---- cancelled threads ---- */

static void *compile_and_stop(void *arg)
{
    (void)compile_in_thread(arg);
    pthread_testcancel();
    return NULL;
}

/* Others wait for what a thread compiles, so it is cancelled afterwards. */
TEST(a_cancelled_thread_finishes_its_compile)
{
    begin();
    tc_options o = default_options();
    pthread_t thread;
    void *result = NULL;
    o.no_disk_cache = true;
    o.cc = in_dir("slow"); /* is seen to run, then waits until the thread was cancelled */
    CHECK_EQ_INT(mkfifo(in_dir("begun"), 0600) + mkfifo(in_dir("go"), 0600), 0);
    write_script(o.cc, "#!/bin/sh\necho >\"${0%/*}/begun\"\nread x <\"${0%/*}/go\"\n"
                       "exec cc \"$@\"\n");
    REQUIRE(pthread_create(&thread, NULL, compile_and_stop, &o) == 0);
    char byte;
    int fd = open(in_dir("begun"), O_RDONLY);
    CHECK_EQ_INT(read(fd, &byte, 1), 1);
    CHECK_EQ_INT(pthread_cancel(thread), 0);
    close(fd);
    fd = open(in_dir("go"), O_WRONLY);
    CHECK_EQ_INT(write(fd, "x\n", 2), 2);
    close(fd);
    CHECK_EQ_INT(pthread_join(thread, &result), 0);
    CHECK(result == PTHREAD_CANCELED);
    outcome r = attempt(&o, 0, false);
    CHECK_RAN(r, "cpu");
    CHECK_EQ_INT(r.used.memory_hits, 1); /* what it compiled is there */
    end();
}

/* ---- what is shown on request ---- */

static int n_logged;
static void count_log(void *user, const char *topic, const char *text)
{
    (void)user;
    n_logged += !strcmp(topic, "compile") && text[0] != 0;
}

TEST(dumps_logs_and_source)
{
    begin();
    static const char *const files[] = {"graph.txt", "graph.dot", "rewrite.txt",
                                        "groups.txt", "plan.txt", "kernel.txt",
                                        "loop.txt", "source.c", "build.log"};
    tc_options o = default_options();
    o.dump = "all";
    o.dump_dir = in_dir("dump");
    o.log = count_log;
    o.verify = true;
    n_logged = 0;
    outcome r = attempt(&o, 0, true);
    CHECK_RAN(r, "cpu");
    CHECK(n_logged >= 1);
    for (int i = 0; i < (int)(sizeof(files) / sizeof(files[0])); i++) {
        CHECK_MSG(find_file(in_dir("dump"), files[i], "")[0], "%s is missing", files[i]);
    }
    o.dump = NULL;
    for (int fresh = 0; fresh < 2; fresh++) { /* made here; then read back from the disk cache */
        tc_ctx *ctx;
        tc_program *f;
        tc_shutdown();
        REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        REQUIRE(tc_compile(expression(ctx, 0), &f) == TC_OK);
        CHECK_HAS(tc_source(f), "tc_k_");
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
    end();
}

TEST(a_trace_is_json_at_any_moment)
{
    begin();
    tc_options o = default_options();
    o.trace = in_dir("trace.json");
    CHECK_RAN(attempt(&o, 0, true), "cpu");
    bytes b = read_file(o.trace);
    b.data[b.n] = 0;
    CHECK_HAS((char *)b.data, "\"name\":\"compiler\"");
    CHECK_HAS((char *)b.data, "\"cat\":\"kernel\"");
    CHECK(b.data[0] == '[' && b.n > 3 && !strcmp((char *)b.data + b.n - 3, "\n]\n"));
    json *events = json_parse((char *)b.data);
    REQUIRE(events && events->kind == JSON_LIST && events->n > 3);
    for (const json *e = events->first; e; e = e->next) {
        const json *phase = json_get(e, "ph"), *name = json_get(e, "name");
        const json *at = json_get(e, "ts"), *duration = json_get(e, "dur");
        CHECK(phase && phase->kind == JSON_STRING && !strcmp(phase->string, "X"));
        CHECK(name && name->kind == JSON_STRING && name->string[0]);
        CHECK(at && at->kind == JSON_NUMBER && at->number >= 0);
        CHECK(duration && duration->kind == JSON_NUMBER && duration->number >= 0);
        CHECK(json_get(e, "pid") && json_get(e, "tid"));
    }
    json_free(events);
    free(b.data);
    end();
}

/* What the environment asks for, seen from outside. */
TEST(the_environment_asks_for_logs_dumps_and_traces)
{
    begin();
    int ended = -1;
    fflush(stdout);
    tc_shutdown();
    pid_t child = fork();
    if (child == 0) {
        int fd = open(in_dir("stderr"), O_WRONLY | O_CREAT, 0600);
        dup2(fd, 2);
        setenv("TC_LOG", "all", 1);
        setenv("TC_DUMP", "plan,source", 1);
        setenv("TC_DUMP_DIR", in_dir("dump"), 1);
        setenv("TC_TRACE", in_dir("trace.json"), 1);
        tc_options o = default_options();
        outcome r = attempt(&o, 0, true);
        _exit(!r.correct);
    }
    CHECK_EQ_INT(waitpid(child, &ended, 0), child);
    CHECK_EQ_INT(ended, 0);
    bytes log = read_file(in_dir("stderr"));
    log.data[log.n] = 0;
    CHECK_HAS((char *)log.data, "tc compile: ");
    CHECK_HAS((char *)log.data, "tc source: ");
    const char *dump = in_dir("dump"); /* a later program of the process has a folder of its own */
    dump = find_file(dump, "plan", ".txt")[0] ? dump : in_dir("dump/2");
    CHECK(find_file(dump, "plan", ".txt")[0]);
    CHECK(find_file(dump, "source", ".c")[0]);
    CHECK(!find_file(dump, "loop", ".txt")[0]);
    CHECK_EQ_INT(access(in_dir("trace.json"), F_OK), 0);
    free(log.data);
    end();
}

TEST_MAIN
