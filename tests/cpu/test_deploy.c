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

TEST_MAIN
