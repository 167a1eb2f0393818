/* Reference cases computed elsewhere (tests/data/opinfo.*), replayed through the public calls on
 * every backend, calls that must be refused among them; and the driver itself on files that are not
 * what it expects. The same code serves build/oracle, which takes any manifest. */
#include "tc.h"

#include "tc_test.h"

#include "oracle_run.h"

#include <unistd.h>

#define DATA "tests/data/opinfo"

typedef struct od {
    char *text;
    json *manifest;
    st_file arrays;
} od;

static void od_close(od *d)
{
    st_close(&d->arrays);
    json_free(d->manifest);
    free(d->text);
}

static bool od_open(od *d, const char *json_path, const char *data_path)
{
    size_t bytes = 0;
    memset(d, 0, sizeof(*d));
    d->text = json_read_file(json_path, &bytes);
    d->manifest = d->text ? json_parse(d->text) : NULL;
    if (!d->manifest || !st_open(&d->arrays, data_path)) {
        od_close(d);
        memset(d, 0, sizeof(*d));
        return false;
    }
    return true;
}

/* Cases of ops in the table are to pass; what is left out has a reason and is one in twenty. */
static void od_replay(const char *backend)
{
    static od d;
    static orc_run r; /* static: they survive the jump of a REQUIRE */
    REQUIRE(od_open(&d, DATA ".json", DATA ".safetensors"));
    memset(&r, 0, sizeof(r));
    r.manifest = d.manifest;
    r.arrays = &d.arrays;
    r.backend = backend;
    r.quiet = true;
    bool works = orc_replay(&r);
    od_close(&d);
    if (!works) {
        SKIP("no backend %s here", backend);
    }
    printf("ops/oracle: %d reference cases passed on %s, %d skipped\n", r.passed, backend,
           r.skipped);
    CHECK_EQ_INT(r.failed, 0);
    CHECK_MSG(r.passed >= 1100, "only %d cases passed", r.passed);
    CHECK_MSG(r.passed >= 19 * r.skipped, "%d cases of %d are skipped", r.skipped,
              r.passed + r.skipped);
}

static bool od_has_compiler(void)
{
    tc_options o;
    tc_ctx *ctx;
    tc_program *f = NULL;
    memset(&o, 0, sizeof(o));
    o.backend = "cpu";
    o.fallback = TC_FALLBACK_REFUSE;
    if (tc_ctx_make(&ctx, &o)) {
        return false;
    }
    bool works = !tc_compile(tc_neg(tc_input(ctx, "x", TC_F32, 3)), &f);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return works;
}

TEST(reference_cases_on_interp)
{
    od_replay("interp");
}

TEST(reference_cases_on_cpu)
{
    if (!od_has_compiler()) {
        SKIP("no C compiler here");
    }
    od_replay("cpu");
}

/* ---- the driver ---- */

/* Replays a manifest given as text against the arrays of the data file. */
static orc_run od_text(const char *text)
{
    static orc_run r;
    st_file arrays;
    memset(&r, 0, sizeof(r));
    json *manifest = json_parse(text);
    CHECK_MSG(manifest != NULL, "not JSON: %s", text);
    if (!manifest || !st_open(&arrays, DATA ".safetensors")) {
        CHECK(!manifest);
        json_free(manifest);
        return r;
    }
    r.manifest = manifest;
    r.arrays = &arrays;
    r.backend = "interp";
    r.silent = true;
    CHECK(orc_replay(&r));
    st_close(&arrays);
    json_free(manifest);
    return r;
}

TEST(a_wrong_result_is_a_failure)
{
    orc_run r = od_text("{\"cases\": ["
                        "{\"id\": 1, \"op\": \"zeros\", \"args\": [[2]], \"kwargs\": {}, "
                        "\"outs\": [{\"t\": \"none\", \"d\": \"f32\", \"s\": [2]}]},\n"
                        "{\"id\": 2, \"op\": \"zeros\", \"args\": [[2]], \"kwargs\": {}, "
                        "\"outs\": [{\"t\": \"none\", \"d\": \"f32\", \"s\": [3]}]}],\n"
                        "\"errors\": [{\"op\": \"ones\", \"args\": [[2]], \"kwargs\": {}, "
                        "\"regex\": \"anything\"}]}");
    CHECK_EQ_INT(r.failed, 3);
    CHECK_EQ_INT(r.passed + r.skipped, 0);
}

TEST(unknown_ops_and_arguments_are_skipped)
{
    orc_run r = od_text("{\"cases\": [{\"op\": \"no_such_op\", \"args\": [], \"outs\": []},"
                        "{\"op\": \"zeros\", \"args\": [[2]], \"kwargs\": {\"new\": 1}},"
                        "{\"op\": \"zeros\", \"args\": [[2], 1, 2, 3, 4, 5, 6, 7], \"outs\": []},"
                        "{\"op\": \"zeros\", \"args\": [\"x\"], \"outs\": []},"
                        "{\"op\": \"neg\", \"args\": [{\"t\": \"a\", \"d\": \"c64\", \"s\": [2]}]},"
                        "{\"op\": \"sum\", \"args\": [3, {\"slice\": [1]}]},"
                        "{}, 4, null, [], {\"op\": 3}]}");
    CHECK_EQ_INT(r.failed, 0);
    CHECK_EQ_INT(r.passed, 0);
    CHECK_EQ_INT(r.skipped, 11);
}

TEST(broken_files_are_refused)
{
    static const char *const texts[] = {"",          "{",         "[1,",  "{\"a\"",
                                        "{\"a\":}",  "\"\\u12\"", "[1]]", "nul",
                                        "{\"a\" 1}", "\"\\x\"",   "tru"};
    static char deep[100001];
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        json *v = json_parse(texts[i]);
        CHECK_MSG(v == NULL, "%s was read", texts[i]);
        json_free(v);
    }
    memset(deep, '[', sizeof(deep) - 1);
    CHECK(json_parse(deep) == NULL);
    static const char *const headers[] = {
        "[]",
        "{\"a\":1}",
        "{\"a\":{\"data_offsets\":[0,4]}}",
        "{",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,99]}}"};
    char path[] = "/tmp/tc_test_oracle_XXXXXX";
    int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    close(fd);
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        st_file f;
        char length[8] = {(char)strlen(headers[i])};
        FILE *file = fopen(path, "wb");
        REQUIRE(file != NULL);
        fwrite(length, 1, 8, file);
        fwrite(headers[i], 1, strlen(headers[i]), file);
        fwrite(length, 1, 8, file);
        fclose(file);
        CHECK_MSG(!st_open(&f, path), "%s was read", headers[i]);
    }
    remove(path);
}

TEST_MAIN
