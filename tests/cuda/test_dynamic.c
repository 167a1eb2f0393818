/* tests/cuda/test_dynamic.c - sizes as symbols in the CUDA dialect, run by the emulation: one
 * compile is right for every size, with the bits of the interpreter on the same plan, through
 * device memory.
 */
#define TC_DYNAMIC_SHAPES
#define TC_CUDA
#include "inside.h"

#include "../dynamic.h"
#include "any_loop_cases.h"
#include "emulate.h"

/* Plans as the emulation does and compiles nothing: the interpreter runs the same kernels. */
static tc_status planned_target(void *user, int vector_bits, tc_backend_target *target)
{
    tc_status status = emu_target(user, vector_bits, target);
    snprintf(target->features, sizeof(target->features), "planned");
    return status;
}

static tc_status planned_compile(void *user, tc_build *build)
{
    (void)user;
    (void)build;
    return TC_ERR_COMPILER;
}

static void register_emulation(void)
{
    static bool done;
    static tc_backend planned;
    if (!done) {
        done = true;
        tc_register_backend(emulation());
        planned = *emulation();
        planned.name = "planned";
        planned.target = planned_target;
        planned.compile = planned_compile;
        tc_register_backend(&planned);
    }
}

TEST(any_size_is_right)
{
    register_emulation();
    for (int k = 0; k < DYN_CASES; k++) {
        const dyn_case *c = &dyn_cases[k];
        tc_ctx *ctx = dyn_ctx("emulated", 1, NULL), *planned = dyn_ctx("planned", 1, NULL);
        REQUIRE(ctx && planned);
        tc_stats before, after;
        tc_stats(ctx, &before);
        tc_program *f = dyn_compile(ctx, c, TC_DIM("batch", 0, 5000), TC_DIM("height", 1, 600));
        tc_program *g = dyn_compile(planned, c, TC_DIM("batch", 0, 5000), TC_DIM("height", 1, 600));
        tc_stats(ctx, &after);
        CHECK(after.compiler_runs > before.compiler_runs);
        int64_t launched = emu_launches;
        for (int i = 0; i < 6 && f && g; i++) { /* sizes up to 64 */
            int64_t batch = dyn_sizes[i], height = c->has_height ? 1 + (i * 29) % 64 : 1;
            dyn_check_at(planned, c, f, batch, height);
            dyn_memory m = dyn_fill(c, batch, height), n = dyn_fill(c, batch, height);
            CHECK_EQ_INT(dyn_run(f, &m), TC_OK);
            CHECK_EQ_INT(dyn_run(g, &n), TC_OK);
            CHECK_MSG(same_bits(TC_F32, m.out, n.out, m.n_out + 1), "%s at %lld, %lld: other bits",
                      c->name, (long long)batch, (long long)height);
            dyn_drop(&m);
            dyn_drop(&n);
        }
        CHECK(emu_launches > launched);
        tc_stats(ctx, &before);
        CHECK_EQ_INT(before.compiler_runs, after.compiler_runs);
        tc_program_free(f);
        tc_program_free(g);
        tc_ctx_free(ctx);
        tc_ctx_free(planned);
    }
    CHECK_EQ_INT(emu_allocations, 0); /* instances gave their device memory back */
}

/* Rows are longer than their elements; the pitch follows from the sizes. */
TEST(repetitions_of_any_size)
{
    register_emulation();
    for (int i = 0; i < ANY_CASES; i++) {
        int n_out;
        tc_ctx *ctx = any_ctx("emulated", NULL);
        tc_program *any = any_compile(ctx, &any_cases[i], -1, -1, &n_out);
        any_compare(&any_cases[i], any, "interp", ANY_SIZES - 1); /* it is slow */
        tc_program_free(any);
        tc_ctx_free(ctx);
    }
    CHECK_EQ_INT(emu_allocations, 0);
}

/* A long running sum of a known size is linked (plan/split_scan.c) next to values of symbolic
 * size: each instance has memory for its words. */
TEST(parts_are_linked_next_to_any_size)
{
    enum { LONG = 40000, MOST = 300 };
    static float x[LONG], z[MOST], y[LONG + 1];
    register_emulation();
    tc_ctx *ctx = dyn_ctx("emulated", 1, NULL);
    REQUIRE(ctx);
    tc_tensor sums = tc_cumsum(tc_input(ctx, "x", TC_F32, LONG), 0);
    tc_tensor more = tc_sum(tc_input(ctx, "z", TC_F32, TC_DIM("batch", 0, MOST)), TC_ALL, true);
    tc_program *f = NULL;
    REQUIRE(tc_compile(tc_cat(TC_TENSORS(sums, more), 0), &f) == TC_OK);
    for (int run = 0; run < 6; run++) {
        int batch = 17 * (run % 3), wrong = 0;
        float sum = 0;
        for (int i = 0; i < LONG; i++) {
            x[i] = (float)((i * 7 + run) % 5 - 2);
        }
        for (int i = 0; i < batch; i++) {
            z[i] = 1;
        }
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, LONG), TC_BUF(z, batch)),
                            TC_BUFS(TC_BUF(y, LONG + 1))),
                     TC_OK);
        for (int i = 0; i < LONG; i++) {
            sum += x[i];
            wrong += y[i] != sum;
        }
        CHECK_MSG(!wrong && y[LONG] == (float)batch, "run %d: %d differ", run, wrong);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    CHECK_EQ_INT(emu_allocations, 0);
}

TEST_MAIN
