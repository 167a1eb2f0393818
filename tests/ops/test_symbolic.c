/* Reference cases with every size a symbol: inputs of shape [a, b] are declared as
 * [TC_DIM, TC_DIM], and each run says the sizes. Equal sizes share a symbol, so that ops which want
 * them equal see that they are; sizes of 1 stay, as a symbol does not broadcast. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "tc_test.h"

#include "oracle_run.h"

#define DATA "tests/data/opinfo"

static void os_replay(const char *backend)
{
    static orc_run r; /* static: they survive the jump of a REQUIRE */
    static st_file arrays;
    size_t bytes = 0;
    char *text = json_read_file(DATA ".json", &bytes);
    json *manifest = text ? json_parse(text) : NULL;
    REQUIRE(manifest != NULL && st_open(&arrays, DATA ".safetensors"));
    memset(&r, 0, sizeof(r));
    r.manifest = manifest;
    r.arrays = &arrays;
    r.backend = backend;
    r.quiet = true;
    r.symbolic = true;
    bool works = orc_replay(&r);
    st_close(&arrays);
    json_free(manifest);
    free(text);
    if (!works) {
        SKIP("no backend %s here", backend);
    }
    printf("ops/symbolic: %d reference cases passed on %s, %d left out\n", r.passed, backend,
           r.skipped);
    CHECK_EQ_INT(r.failed, 0);
    CHECK_MSG(r.passed >= 950, "only %d cases passed", r.passed);
}

TEST(symbolic_cases_on_interp)
{
    os_replay("interp");
}

TEST(symbolic_cases_on_cpu)
{
    os_replay("cpu");
}

TEST_MAIN
