/* Routes of contractions that are measured (options.tune_ms): the faster one is taken, whatever the
 * model says, with the same bits, and later programs find what was measured. A backend is the
 * cpu's, where the first kernel that is measured alone takes long. */
#include "inside.h"

#include "../tc_test.h"

#include <unistd.h>

enum { N = 96 };
static char folder[64];
static float weights[N * N], x[N * N];
static bool is_slow; /* whether that kernel does */
static int n_slow;   /* how often it was called */

/* In the place of the kernel, which is the model's choice: the plan of that comes first. */
static void slow(void *const *operands, const int64_t *literals, int64_t *fault, int64_t begin,
                 int64_t end)
{
    (void)operands, (void)literals, (void)fault, (void)begin, (void)end;
    n_slow++;
    usleep(2000);
}

static void *find(void *user, void *module, const char *symbol)
{
    union {
        void (*call)(void *const *, const int64_t *, int64_t *, int64_t, int64_t);
        void *object;
    } u = {slow};
    bool first = is_slow && !strcmp(symbol, "tc_trial_0");
    return first ? u.object : tci_cpu_backend()->module_find(user, module, symbol);
}

static void begin(void)
{
    static tc_backend slowed;
    tc_options o = {.backend = "slowed", .fallback = TC_FALLBACK_REFUSE, .no_disk_cache = true};
    tc_ctx *ctx = NULL;
    tc_program *f = NULL;
    if (!slowed.name) {
        slowed = *tci_cpu_backend();
        slowed.name = "slowed";
        slowed.module_find = find;
        REQUIRE(tc_register_backend(&slowed) == TC_OK);
    }
    snprintf(folder, sizeof(folder), "/tmp/tc_routes_XXXXXX");
    REQUIRE(mkdtemp(folder) != NULL);
    bool works = tc_ctx_make(&ctx, &o) == TC_OK &&
                 tc_compile(tc_neg(tc_input(ctx, "x", TC_F32, 3)), &f) == TC_OK;
    tc_program_free(f);
    tc_ctx_free(ctx);
    if (!works) {
        SKIP("no C compiler");
    }
    for (int i = 0; i < N * N; i++) {
        weights[i] = (float)(i % 11) * 0.3f - 1;
        x[i] = (float)(i % 5) * 0.7f - 1;
    }
    n_slow = 0;
    is_slow = true;
}

static void end(void)
{
    char command[100];
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    CHECK(system(command) == 0);
}

static tc_options options(void)
{
    return (tc_options){.backend = "slowed",
                        .fallback = TC_FALLBACK_REFUSE,
                        .cache_dir = folder,
                        .threads = 1,
                        .tune_ms = 60000};
}

/* Writes x w, w being the program's own, and the line of tc_explain on how it is computed; `also`:
 * there is another output, so it is another program. */
static void run(const tc_options *o, bool also, float *out, char *line)
{
    char text[16000];
    float sum[1];
    tc_ctx *ctx = NULL;
    tc_program *f = NULL;
    REQUIRE(tc_ctx_make(&ctx, o) == TC_OK);
    tc_tensor a = tc_input(ctx, "a", TC_F32, N, N), b = tc_borrow(ctx, weights, TC_F32, N, N);
    tc_tensor outputs[2] = {tc_matmul(a, b), tc_sum(a, TC_ALL, false)};
    tc_buf results[2] = {TC_BUF(out, N * N), TC_BUF(sum, 1)};
    const int n = also ? 2 : 1;
    REQUIRE(tc_compile_fn(TC_TENSORS(a), TC_TENSORS_N(outputs, n), NULL, &f) == TC_OK);
    CHECK(tc_run(f, TC_BUFS(TC_BUF(x, N * N)), TC_BUFS_N(results, n)) == TC_OK);
    FILE *file = tmpfile();
    REQUIRE(file != NULL);
    CHECK(tc_explain_as(f, file, &(tc_explain_options){.all = true}) == TC_OK);
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = 0;
    fclose(file);
    const char *at = strstr(text, "contract_96x96x96: ");
    REQUIRE(at != NULL);
    snprintf(line, 400, "%.*s", (int)strcspn(at, "\n"), at);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(a_route_that_is_faster_when_measured_is_taken_with_the_same_bits)
{
    static float want[N * N], got[N * N];
    char line[400];
    begin();
    tc_options o = options();
    o.tune_ms = 0;
    run(&o, false, want, line);
    CHECK_HAS(line, "contract_96x96x96: prepacked, ");
    CHECK(!strstr(line, "measured"));
    CHECK_EQ_INT(n_slow, 0);

    o = options();
    run(&o, false, got, line);
    CHECK(n_slow > 0);
    CHECK_HAS(line, "contract_96x96x96: plain, ");
    CHECK_HAS(line, " us by the model; measured ");
    CHECK_HAS(line, " us by prepacked (the model's choice), ");
    CHECK_HAS(line, " us by plain; prepacked ");
    CHECK(!memcmp(want, got, sizeof(want)));
    end();
}

/* What was measured is found by other programs: on disk, and with no disk in memory. */
TEST(measured_routes_are_remembered)
{
    static float got[N * N];
    for (int memory = 0; memory < 2; memory++) {
        char first[400], second[400];
        begin();
        tc_options o = options();
        o.memory_cache_bytes = memory ? 0 : -1;
        o.no_disk_cache = memory != 0;
        run(&o, false, got, first);
        is_slow = false;
        n_slow = 0;
        run(&o, true, got, second);
        CHECK_HAS(first, "contract_96x96x96: plain, ");
        CHECK_STR(second, first);
        CHECK_EQ_INT(n_slow, 0);
        end();
    }
}

TEST(a_route_that_the_user_names_is_not_measured)
{
    static float got[N * N];
    char line[400], path[100];
    begin();
    tc_options o = options();
    snprintf(path, sizeof(path), "%s/schedules", folder);
    FILE *file = fopen(path, "w");
    REQUIRE(file != NULL);
    fprintf(file, "contract_96x96x96: prepacked\n");
    fclose(file);
    o.schedule = path;
    run(&o, false, got, line);
    CHECK_HAS(line, "contract_96x96x96: prepacked, ");
    CHECK(!strstr(line, "measured"));
    end();
}

TEST_MAIN
