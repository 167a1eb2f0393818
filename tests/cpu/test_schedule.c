/* Schedules through the public calls: what tc_explain shows of them, forcing them from a file,
 * measuring them. */
#include "tc.h"

#include "../tc_test.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 96 };
static char folder[64], logged[4000];

static void log_line(void *user, const char *topic, const char *text)
{
    (void)user;
    if (!strcmp(topic, "compile") && strlen(logged) + strlen(text) < sizeof(logged) - 1) {
        strcat(logged, text);
    }
}

static tc_options options(void)
{
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = "cpu";
    o.fallback = TC_FALLBACK_REFUSE;
    o.cache_dir = folder;
    o.threads = 1;
    o.log = log_line;
    return o;
}

static void need_compiler(void)
{
    tc_options o = options();
    tc_ctx *ctx = NULL;
    tc_program *f = NULL;
    snprintf(folder, sizeof(folder), "/tmp/tc_schedule_XXXXXX");
    REQUIRE(mkdtemp(folder) != NULL);
    logged[0] = 0;
    bool works = tc_ctx_make(&ctx, &o) == TC_OK &&
                 tc_compile(tc_neg(tc_input(ctx, "x", TC_F32, 3)), &f) == TC_OK;
    tc_program_free(f);
    tc_ctx_free(ctx);
    if (!works) {
        SKIP("no C compiler");
    }
}

static void end(void)
{
    char command[100];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    CHECK(system(command) == 0);
}

/* Compiles y = relu(a b), runs it into out, and puts what tc_explain says into text. */
static void run(const tc_options *o, float *out, char *text, size_t room)
{
    static float a[N * N], b[N * N];
    tc_ctx *ctx = NULL;
    tc_program *f = NULL;
    for (int i = 0; i < N * N; i++) {
        a[i] = (float)(i % 13) * 0.37f - 1;
        b[i] = (float)(i % 7) * 0.11f - 0.3f;
    }
    REQUIRE(tc_ctx_make(&ctx, o) == TC_OK);
    tc_tensor x = tc_input(ctx, "a", TC_F32, N, N), y = tc_input(ctx, "b", TC_F32, N, N);
    REQUIRE(tc_compile(tc_relu(tc_matmul(x, y)), &f) == TC_OK);
    CHECK(tc_run(f, TC_BUFS(TC_BUF(a, N * N), TC_BUF(b, N * N)), TC_BUFS(TC_BUF(out, N * N))) ==
          TC_OK);
    FILE *file = tmpfile();
    REQUIRE(file != NULL);
    CHECK(tc_explain_as(f, file, &(tc_explain_options){.all = true}) == TC_OK);
    rewind(file);
    text[fread(text, 1, room - 1, file)] = 0;
    fclose(file);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Kernel and schedule of its first line "schedule HASH: FORM NUMBERS in ...". */
static void first_schedule(const char *text, char *hash, char *schedule)
{
    const char *at = strstr(text, "schedule ");
    REQUIRE(at != NULL);
    REQUIRE(sscanf(at, "schedule %8[0-9a-f]: %200[^,]", hash, schedule) == 2);
    char *in = strstr(schedule, " in ");
    REQUIRE(in != NULL);
    *in = 0;
}

static void write_file(char *path, const char *format, const char *a, const char *b)
{
    snprintf(path, 100, "%s/schedules", folder);
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL);
    fprintf(file, format, a, b);
    fclose(file);
}

TEST(explained)
{
    static float out[N * N];
    char text[8000], hash[9], schedule[300];
    need_compiler();
    tc_options o = options();
    run(&o, out, text, sizeof(text));
    first_schedule(text, hash, schedule);
    CHECK_HAS(text, " by the model, at best ");
    CHECK_HAS(text, "; then ");
    end();
}

TEST(forced_by_hash_and_by_name)
{
    static float want[N * N], got[N * N];
    char text[8000], hash[9], schedule[300], path[100];
    need_compiler();
    tc_options o = options();
    run(&o, want, text, sizeof(text));
    first_schedule(text, hash, schedule);
    int lanes = 1;
    const char *at = strstr(text, "vector ");
    if (at) {
        sscanf(at, "vector %d", &lanes);
    }
    char tile[100];
    snprintf(tile, sizeof(tile), "tile rows=3 unroll=1 lanes=%d threads=1", lanes);
    CHECK(strcmp(schedule, tile) != 0);
    write_file(path, "# a remark\n%s: %s\n", hash, tile);
    o.schedule = path;
    run(&o, got, text, sizeof(text));
    CHECK_HAS(text, tile);
    CHECK_HAS(text, ", tile 3x1");
    CHECK(!memcmp(want, got, sizeof(want)));

    const char *name = strstr(text, "launches:"); /* above it names have part of the hash */
    char kernel[64];
    name = name ? strstr(name, "tc_k_") : NULL;
    REQUIRE(name && sscanf(name, "%63[a-z0-9_]", kernel) == 1);
    snprintf(tile, sizeof(tile), "tile rows=2 unroll=2 lanes=%d threads=1", lanes);
    write_file(path, "%s: %s\n", kernel, tile); /* the text decides, not the file's name */
    run(&o, got, text, sizeof(text));
    CHECK_HAS(text, tile);
    CHECK(!memcmp(want, got, sizeof(want)));
    CHECK(!strstr(logged, "is not scheduled"));
    end();
}

TEST(refused_with_a_reason)
{
    static float want[N * N], got[N * N];
    char text[8000], hash[9], schedule[300], now[300], path[100];
    need_compiler();
    tc_options o = options();
    run(&o, want, text, sizeof(text));
    first_schedule(text, hash, schedule);
    write_file(path, "%s: %s\n", hash, "square stream=0");
    o.schedule = path;
    run(&o, got, text, sizeof(text));
    CHECK_HAS(logged, "is not scheduled as ' square stream=0': it does not fit");
    first_schedule(text, hash, now);
    CHECK_STR(now, schedule);
    CHECK(!memcmp(want, got, sizeof(want)));

    logged[0] = 0;
    write_file(path, "%s: %s\n", hash, "tail rows=1");
    run(&o, got, text, sizeof(text));
    CHECK_HAS(logged, "there is no form 'tail'");

    logged[0] = 0;
    CHECK(unlink(path) == 0);
    run(&o, got, text, sizeof(text));
    CHECK_HAS(logged, "cannot be read");
    CHECK(!memcmp(want, got, sizeof(want)));
    end();
}

/* y = x w for weights w that the program has: "prepacked" or, where the file says so, "plain". */
TEST(a_route_is_forced_by_the_name_of_its_contraction)
{
    static float w[N * N], x[N * N], out[2][N * N];
    static const char *const routes[] = {"prepacked", "plain"};
    char path[100];
    need_compiler();
    tc_options o = options();
    for (int i = 0; i < N * N; i++) {
        w[i] = (float)(i % 11) * 0.3f - 1;
        x[i] = (float)(i % 5) * 0.7f - 1;
    }
    for (int i = 0; i < 2; i++) {
        char text[8000], line[100];
        tc_ctx *ctx = NULL;
        tc_program *f = NULL;
        write_file(path, "contract_96x96x96: %s%s\n", routes[i], "");
        o.schedule = path;
        REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        tc_tensor a = tc_input(ctx, "a", TC_F32, N, N), b = tc_borrow(ctx, w, TC_F32, N, N);
        REQUIRE(tc_compile(tc_matmul(a, b), &f) == TC_OK);
        CHECK(tc_run(f, TC_BUFS(TC_BUF(x, N * N)), TC_BUFS(TC_BUF(out[i], N * N))) == TC_OK);
        FILE *file = tmpfile();
        REQUIRE(file != NULL);
        CHECK(tc_explain_as(f, file, &(tc_explain_options){.all = true}) == TC_OK);
        rewind(file);
        text[fread(text, 1, sizeof(text) - 1, file)] = 0;
        fclose(file);
        snprintf(line, sizeof(line), "contract_96x96x96: %s, ", routes[i]);
        CHECK_HAS(text, line);
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
    CHECK(!memcmp(out[0], out[1], sizeof(out[0])));
    CHECK(!strstr(logged, "names 'contract_"));
    end();
}

static int64_t compiler_runs(void)
{
    tc_stats stats;
    tc_ctx *ctx = NULL;
    tc_options o = options();
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    CHECK(tc_stats_get(ctx, &stats) == TC_OK);
    tc_ctx_free(ctx);
    return stats.compiler_runs;
}

/* Once; then the winner comes from the disk cache. */
TEST(measured)
{
    static float want[N * N], got[N * N];
    char text[8000], hash[9], schedule[300], again[300];
    need_compiler();
    tc_options o = options();
    run(&o, want, text, sizeof(text));
    CHECK(!strstr(text, "measured"));
    o.tune_ms = 20000;
    o.memory_cache_bytes = -1;
    int64_t before = compiler_runs();
    run(&o, got, text, sizeof(text));
    CHECK_EQ_INT(compiler_runs() - before, 2); /* the candidates, the program */
    CHECK_HAS(text, "; measured ");
    CHECK_HAS(text, "the model's choice");
    CHECK_HAS(logged, "schedules were measured");
    CHECK(!memcmp(want, got, sizeof(want)));
    first_schedule(text, hash, schedule);

    before = compiler_runs();
    run(&o, got, text, sizeof(text));
    CHECK_EQ_INT(compiler_runs() - before, 0);
    first_schedule(text, hash, again);
    CHECK_STR(again, schedule);
    CHECK(!memcmp(want, got, sizeof(want)));
    end();
}

/* No time to measure anything: the model's choice. */
TEST(a_cap_of_a_millisecond)
{
    static float want[N * N], got[N * N];
    char text[8000];
    need_compiler();
    tc_options o = options();
    run(&o, want, text, sizeof(text));
    o.tune_ms = 1;
    int64_t before = compiler_runs();
    run(&o, got, text, sizeof(text));
    CHECK_EQ_INT(compiler_runs() - before, 1);
    CHECK(!strstr(text, "; measured "));
    CHECK(!memcmp(want, got, sizeof(want)));
    end();
}

TEST_MAIN
