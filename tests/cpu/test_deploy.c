/* tests/cpu/test_deploy.c - caches for machines without a compiler: exported, read-only, with
 * programs for several machines. Results are judged by plain C. */
#include "inside.h"

#include "cache.h"

/* A context on a cache that is only read, with no compiler at hand and nothing in memory. */
static tc_options deployed(const char *folder)
{
    tc_options o = default_options();
    o.cache_dir = folder;
    o.cache_read_only = true;
    tc_shutdown();
    hide_compilers(true);
    return o;
}

static void fill(tc_ctx **ctx, const tc_options *o, int which)
{
    hide_compilers(false);
    CHECK_RAN(attempt(o, which, true), "cpu");
    REQUIRE(tc_ctx_make(ctx, o) == TC_OK);
}

TEST(an_exported_cache_serves_without_a_compiler)
{
    begin();
    tc_ctx *ctx;
    tc_options o = default_options();
    fill(&ctx, &o, 3);
    CHECK_EQ_INT(tc_cache_export(ctx, in_dir("out/cache")), TC_OK); /* which makes the folders */
    CHECK_EQ_INT(tc_cache_export(ctx, in_dir("out/cache")), TC_OK); /* again: the same */
    tc_ctx_free(ctx);
    CHECK_EQ_INT(count_entries(in_dir("out/cache"), "tc-p-", ".bin"), 1);
    CHECK_EQ_INT(count_entries(in_dir("out/cache"), "tc-m-", ".so"), 1);
    CHECK_EQ_INT(count_entries(in_dir("out/cache"), "tc-t-", ".bin"), 1);
    o = deployed(in_dir("out/cache"));
    outcome r = attempt(&o, 3, true);
    CHECK_RAN(r, "cpu");
    CHECK(r.used.disk_hits == 1 && r.used.compiles == 0 && r.used.compiler_runs == 0);
    r = attempt(&o, 4, true); /* was not exported */
    CHECK_RAN(r, "interp");
    end();
}

/* The exporting machine as it would be with other caches: the record of its target differs. */
TEST(code_of_a_machine_with_other_caches_serves)
{
    begin();
    tc_ctx *ctx;
    tc_options o = default_options();
    fill(&ctx, &o, 2);
    tc_ctx_free(ctx);
    REQUIRE(mkdir(in_dir("other"), 0700) == 0);
    const tci_backend *b = tci_backend_pick(&o);
    tci_target *mine = (tci_target *)(uintptr_t)&b->target;
    char record[sizeof(mine->record)];
    memcpy(record, mine->record, sizeof(record));
    snprintf(mine->record, sizeof(mine->record), "another machine");
    fill(&ctx, &o, 2);
    CHECK_EQ_INT(tc_cache_export(ctx, in_dir("out")), TC_OK);
    tc_ctx_free(ctx);
    memcpy(mine->record, record, sizeof(record));
    /* without the program of this machine's own record */
    char command[2048];
    snprintf(command, sizeof(command), "rm -rf '%s'", usual_cache);
    REQUIRE(system(command) == 0);
    o = deployed(in_dir("out"));
    outcome r = attempt(&o, 2, true);
    CHECK_RAN(r, "cpu");
    CHECK(r.used.disk_hits == 1 && r.used.compiles == 0);
    end();
}

TEST(an_export_that_cannot_be_is_refused)
{
    begin();
    tc_ctx *ctx;
    tc_options o = default_options();
    fill(&ctx, &o, 1);
    CHECK_EQ_INT(tc_cache_export(ctx, NULL), TC_ERR_ARGUMENT);
    REQUIRE(mkdir(in_dir("open"), 0700) == 0 && chmod(in_dir("open"), 0777) == 0);
    CHECK_EQ_INT(tc_cache_export(ctx, in_dir("open")), TC_ERR_IO);
    CHECK_HAS(tc_ctx_error(ctx), "others may write to it");
    CHECK_HAS(tc_ctx_error(ctx), "test_deploy.c:");
    CHECK_EQ_INT(tc_cache_export(NULL, in_dir("out")), TC_ERR_HANDLE);
    tc_ctx_free(ctx);
    o.no_disk_cache = true;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    CHECK_EQ_INT(tc_cache_export(ctx, in_dir("out")), TC_ERR_IO);
    CHECK_HAS(tc_ctx_error(ctx), "there is no disk cache");
    tc_ctx_free(ctx);
    end();
}

TEST(damaged_entries_are_left_behind)
{
    begin();
    tc_ctx *ctx;
    tc_options o = default_options();
    fill(&ctx, &o, 1);
    fill(&ctx, &o, 5);
    const char *program = find_file(usual_cache, "tc-p-", ".bin");
    bytes b = read_file(program);
    b.data[b.n - 1] ^= 1;
    write_file(program, b.data, b.n, 0600);
    free(b.data);
    CHECK_EQ_INT(tc_cache_export(ctx, in_dir("out")), TC_OK);
    CHECK_EQ_INT(count_entries(in_dir("out"), "tc-p-", ".bin"), 1);
    tc_ctx_free(ctx);
    end();
}

/* ---- machines that are not here ---- */

/* Writes a record; returns its path. */
static const char *record(const char *name, const char *text)
{
    const char *path = in_dir(name);
    write_file(path, text, strlen(text), 0600);
    return path;
}

/* One that no processor of today is. */
static const char *future(void)
{
    return record("future.txt", "tc machine 1\n# of tomorrow\nbackend cpu\n"
                                "features avx2,fma,f16c,future vector=32\nvector_bytes 32\n"
                                "int_points 2\nprocessors 64\nghz 5.25\ncache1_bytes 65536\n");
}

TEST(the_record_of_this_machine_names_this_machine)
{
    begin();
    const char *path = in_dir("here.txt");
    FILE *f = fopen(path, "w");
    REQUIRE(f);
    CHECK_EQ_INT(tc_machine_write(NULL, f), TC_OK);
    CHECK_EQ_INT(tc_machine_write(NULL, NULL), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_machine_write(&(tc_options){.backend = "interp"}, f), TC_ERR_BACKEND);
    fclose(f);
    tc_options o = default_options();
    CHECK_RAN(attempt(&o, 1, true), "cpu");
    o.machine = path;
    outcome r = attempt(&o, 1, false);
    CHECK_RAN(r, "cpu");
    CHECK_EQ_INT(r.used.memory_hits, 1); /* the very same key */
    /* and so through text once more */
    const char *again = in_dir("again.txt");
    f = fopen(again, "w");
    REQUIRE(f);
    CHECK_EQ_INT(tc_machine_write(&o, f), TC_OK);
    fclose(f);
    bytes a = read_file(path), b = read_file(again);
    CHECK(a.n == b.n && !memcmp(a.data, b.data, a.n));
    free(a.data);
    free(b.data);
    end();
}

TEST(a_program_for_a_greater_machine_is_compiled_and_not_run)
{
    begin();
    tc_ctx *ctx;
    tc_options o = default_options();
    o.machine = future();
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_program *f, *g;
    float in[COUNT] = {0}, out[COUNT];
    REQUIRE(tc_compile(expression(ctx, 1), &f) == TC_OK);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, COUNT)), TC_BUFS(TC_BUF(out, COUNT))),
                 TC_ERR_UNSUPPORTED);
    CHECK_HAS(tc_error(f), "compiled for another machine (options.machine)");
    CHECK_HAS(tc_source(f), "avx2,fma,f16c,future");
    CHECK_EQ_INT(tc_program_save(f, in_dir("future.tcp"), NULL), TC_OK);
    CHECK_EQ_INT(tc_program_load(ctx, in_dir("future.tcp"), NULL, &g), TC_ERR_UNSUPPORTED);
    CHECK_HAS(tc_ctx_error(ctx), "its machine code needs avx2,fma,f16c,future");
    tc_program_free(f);
    /* nor is a value computed by such code */
    tc_tensor y = tc_mul(tc_copy_in(ctx, in, TC_F32, COUNT), 3);
    CHECK_EQ_INT(tc_read(y, out, COUNT), TC_ERR_UNSUPPORTED);
    tc_ctx_free(ctx);
    end();
}

TEST(one_cache_serves_several_machines)
{
    begin();
    if (!tci_backend_runs(tci_backend_pick(&(tc_options){.backend = "cpu"}),
                          "avx2,fma,f16c vector=32")) {
        SKIP("needs AVX2");
    }
    static const char *const names[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-amx"};
    tc_options o = default_options();
    tc_ctx *ctx;
    tc_program *f;
    for (int i = 0; i < 5; i++) {
        o.machine = i < 4 ? names[i] : future();
        tc_shutdown();
        hide_compilers(false);
        REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        REQUIRE(tc_compile(expression(ctx, 1), &f) == TC_OK);
        tc_program_free(f);
        if (i < 4) {
            tc_ctx_free(ctx);
        }
    }
    REQUIRE(tc_compile(expression(ctx, 2), &f) == TC_OK); /* for `future` alone */
    tc_program_free(f);
    CHECK_EQ_INT(tc_cache_export(ctx, in_dir("out")), TC_OK);
    CHECK_EQ_INT(count_entries(in_dir("out"), "tc-t-", ".bin"), 5);
    tc_ctx_free(ctx);
    o = deployed(in_dir("out"));
    outcome r = attempt(&o, 1, true);
    CHECK_RAN(r, "cpu");
    CHECK(r.used.disk_hits == 1 && r.used.compiles == 0 && r.used.compiler_runs == 0);
    bool wide = tci_backend_runs(tci_backend_pick(&(tc_options){.backend = "cpu"}),
                                 "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c vector=64");
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    REQUIRE(tc_compile(expression(ctx, 1), &f) == TC_OK);                  /* from memory now */
    CHECK_HAS(tc_source(f), wide ? "avx512f" : "avx2,fma,f16c vector=32"); /* the most it can use */
    tc_program_free(f);
    tc_ctx_free(ctx);
    CHECK_RAN(attempt(&o, 2, true), "interp"); /* what is only there for a greater machine */
    /* as on a machine of each record that this one can stand for */
    for (int i = 0; i < (wide ? 3 : 2); i++) {
        o = deployed(in_dir("out"));
        o.machine = names[i];
        r = attempt(&o, 1, true);
        CHECK_RAN(r, "cpu");
        CHECK(r.used.disk_hits == 1 && r.used.compiles == 0);
    }
    end();
}

static void check_machine_refused(const char *machine, const char *backend, const char *text)
{
    tc_options o = default_options();
    tc_ctx *ctx;
    tc_program *f;
    o.machine = machine;
    o.backend = backend;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    CHECK_EQ_INT(tc_compile(expression(ctx, 0), &f), TC_ERR_BACKEND);
    CHECK_HAS(tc_ctx_error(ctx), text);
    tc_ctx_free(ctx);
}

TEST(the_machine_comes_from_the_environment_too)
{
    begin();
    tc_options o = default_options();
    CHECK_EQ_INT(setenv("TC_MACHINE", future(), 1), 0);
    tc_ctx *ctx;
    tc_program *f;
    float in[COUNT] = {0}, out[COUNT];
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    REQUIRE(tc_compile(expression(ctx, 4), &f) == TC_OK);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, COUNT)), TC_BUFS(TC_BUF(out, COUNT))),
                 TC_ERR_UNSUPPORTED);
    tc_program_free(f);
    tc_ctx_free(ctx);
    CHECK_EQ_INT(unsetenv("TC_MACHINE"), 0);
    end();
}

TEST(records_that_are_not_understood_are_refused_by_line)
{
    begin();
    check_machine_refused(in_dir("none.txt"), NULL, "No such file");
    check_machine_refused("x86-64", NULL, "no SSE4.2");
    check_machine_refused("sm_80", "cpu", "sm_80");
    check_machine_refused(record("a.txt", "hello\n"), NULL, "line 1, 'hello', is not understood");
    check_machine_refused(record("b.txt", "tc machine 1\nbackend cpu\ncores 4\n"), NULL,
                          "line 3, 'cores', is not understood");
    check_machine_refused(record("c.txt", "tc machine 1\nbackend cpu\nprocessors -4\n"), NULL,
                          "line 3");
    check_machine_refused(record("d.txt", "tc machine 1\nbackend cpu\nfeatures a*/b\n"), NULL,
                          "line 3");
    check_machine_refused(record("e.txt", "tc machine 1\nfeatures avx2\n"), NULL, "no backend");
    check_machine_refused(record("f.txt", "tc machine 1\nbackend cpu\nfeatures fma vector=24\n"
                                          "vector_bytes 24\n"),
                          NULL, "0, 16, 32 or 64");
    check_machine_refused(record("g.txt", ""), NULL, "g.txt");
    end();
}

TEST_MAIN
