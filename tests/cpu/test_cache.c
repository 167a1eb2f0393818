/* The cache on disk: what comes from it and what does not, entries that are damaged or foreign, its
 * cap. Needs a compiler. */
#include "cache.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* Filled with a compiler that was named, a cache serves programs that name none, or another, on a
 * machine that may have none at all. */
TEST(a_cache_serves_however_its_compiler_was_asked_for)
{
    begin();
    static const char *const asked[] = {NULL, "cc", "/nowhere/cc", "/nowhere/clang"};
    tc_options filling = default_options();
    write_script(in_dir("named-cc"), "#!/bin/sh\nexec cc \"$@\"\n");
    filling.cc = in_dir("named-cc");
    CHECK_EQ_INT(attempt(&filling, 0, true).used.compiler_runs, 1);
    for (int i = 0; i < 8; i++) {
        tc_options o = default_options();
        o.cache_read_only = true;
        o.fallback = TC_FALLBACK_REFUSE;
        o.cc = asked[i % 4];
        hide_compilers(i >= 4);
        outcome r = attempt(&o, 0, true);
        CHECK_RAN(r, "cpu");
        CHECK_EQ_INT(r.used.disk_hits, 1);
        CHECK_EQ_INT(r.used.compiler_runs, 0);
    }
    end();
}

/* tcc's code is scalar: it serves where there is no better compiler. */
TEST(code_without_vectors_serves_only_where_no_vectors_can_be_had)
{
    begin();
    tc_options plain = default_options(), o = default_options();
    write_script(in_dir("like-tcc"), "#!/bin/sh\nexec cc -O1 -fPIC \"$@\"\n");
    plain.cc = in_dir("like-tcc");
    CHECK_EQ_INT(attempt(&plain, 0, true).used.compiler_runs, 1);
    CHECK_EQ_INT(attempt(&plain, 0, true).used.disk_hits, 1);
    hide_compilers(true);
    outcome r = attempt(&o, 0, true);
    CHECK_RAN(r, "cpu");
    CHECK_EQ_INT(r.used.disk_hits, 1);
    hide_compilers(false);
    outcome better = attempt(&o, 0, true);
    CHECK_EQ_INT(better.used.compiler_runs, 1);
    CHECK_EQ_INT(attempt(&o, 0, true).used.disk_hits, 1);
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
                                TC_BUFS(TC_BUF(out[round + i], COUNT))),
                         TC_OK);
        }
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
    CHECK(!memcmp(out[0], out[1], sizeof(out[0])) && !memcmp(out[0], out[2], sizeof(out[0])));
    CHECK_CLOSE(out[2][64], 2.7182818, 1e-6);
    end();
}

/* Programs of two lengths over one weight: also where they come from disk, one module each. */
TEST(weights_are_packed_once_for_programs_of_two_lengths)
{
    enum { SIDE = 128, LONG = 48, SHORT = 40 };
    static float w[SIDE * SIDE], in[LONG * SIDE], out[LONG * SIDE];
    begin();
    tc_options o = default_options();
    for (int i = 0; i < SIDE * SIDE; i++) {
        w[i] = (float)(i % 7 - 3);
    }
    for (int i = 0; i < LONG * SIDE; i++) {
        in[i] = (float)(i % 5 - 2);
    }
    for (int round = 0; round < 2; round++) {
        tc_ctx *ctx;
        tc_program *f[2];
        tc_program_info info;
        tc_shutdown();
        REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        tc_tensor weight = tc_param(ctx, w, TC_F32, SIDE, SIDE);
        for (int i = 0; i < 2; i++) {
            tc_tensor x = tc_input(ctx, "x", TC_F32, i ? SHORT : LONG, SIDE);
            REQUIRE(tc_compile(tc_matmul(x, tc_transpose(weight, 0, 1)), &f[i]) == TC_OK);
        }
        CHECK_EQ_INT(tc_program_get_info(f[0], &info), TC_OK);
        if (!info.n_once) {
            SKIP("no weights are packed on this machine");
        }
        CHECK_EQ_INT(info.from_disk, round);
        for (int i = 0; i < 4; i++) {
            int rows = i % 2 ? SHORT : LONG;
            CHECK_EQ_INT(tc_run(f[i % 2], TC_BUFS(TC_BUF(in, rows * SIDE)),
                                TC_BUFS(TC_BUF(out, rows * SIDE))),
                         TC_OK);
            int values = i == 2 ? 2 : 1; /* f[1] holds that of the old weight until it runs */
            CHECK_EQ_INT(stats_now(ctx).kept_bytes, values * info.kept_bytes);
            for (int at = 0; at < rows * SIDE; at += 11) {
                float sum = 0; /* whole numbers: exact in any order */
                for (int k = 0; k < SIDE; k++) {
                    sum += in[at / SIDE * SIDE + k] * w[at % SIDE * SIDE + k];
                }
                CHECK(out[at] == sum);
            }
            if (i == 1) {
                w[0] += 1;
                CHECK_EQ_INT(tc_param_write(weight, w, SIDE * SIDE), TC_OK);
                tc_program_free(f[0]); /* its code may go, what it packed serves the other */
                tc_tensor x = tc_input(ctx, "x", TC_F32, LONG, SIDE);
                REQUIRE(tc_compile(tc_matmul(x, tc_transpose(weight, 0, 1)), &f[0]) == TC_OK);
            }
        }
        tc_program_free(f[0]);
        tc_program_free(f[1]);
        CHECK_EQ_INT(stats_now(ctx).kept_bytes, 0);
        tc_ctx_free(ctx);
    }
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

TEST(a_variable_set_later_changes_no_context)
{
    begin();
    tc_ctx *ctx;
    tc_program *f;
    tc_options o = default_options();
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    setenv("TC_NO_CACHE", "1", 1);
    setenv("TC_CC", "/no/such/compiler", 1);
    REQUIRE(tc_compile(expression(ctx, 0), &f) == TC_OK);
    unsetenv("TC_NO_CACHE");
    unsetenv("TC_CC");
    CHECK_EQ_INT(count_entries(in_dir("cache"), "tc-p-", ".bin"), 1);
    tc_program_free(f);
    tc_ctx_free(ctx);
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

/* Every byte of the header, then strides through the rest; sizes and counts are everywhere. */
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
            CHECK_MSG(r.status == TC_OK && r.correct, "%s at %zu: status %d %s",
                      cut ? "cut" : "flip", at, r.status, r.error);
            CHECK_MSG(r.used.cache_rejects >= 1, "%s at %zu was believed", cut ? "cut" : "flip",
                      at);
            CHECK_MSG(access(path, F_OK) != 0 || r.used.kernel_hits, "%s at %zu was left",
                      cut ? "cut" : "flip", at);
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
        tct_exit(good && again.correct && again.used.memory_hits == 1 ? 0 : 1);
    }
    CHECK_EQ_INT(waitpid(child, &ended, 0), child);
    CHECK_EQ_INT(ended, 0);
    outcome after = attempt(&o, 0, true); /* nothing half-written stands in the way */
    CHECK_RAN(after, "cpu");
    CHECK_EQ_INT(after.used.cache_rejects, 0);
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

TEST_MAIN
