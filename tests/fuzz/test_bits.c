/* Random programs of float sums (contractions, convolutions, products of bytes, statistics, norms,
 * softmax, pools, running sums and their gradients, between movement and elementwise ops): results
 * on a processor must have the same bits whatever shares a kernel and whatever instructions there
 * are. Every program is planned for the interpreter and for processors of several vector widths,
 * with fusion and without, without matrix units, and some are compiled.
 *
 * What fails is told by its seed: TC_TEST_SEED=N runs that program alone, TC_TEST_SOAK=1 many. */
#include "tc.h"

#include "../tc_test.h"
#include "same.h"
#include "sums.h"

enum { PROGRAMS = 150, PROGRAMS_SOAK = 6000 };

/* ---- ways ---- */

typedef struct way {
    const char *name;
    tc_options options;
    bool native;
} way;

#define PLANNED(bits) .backend = "cpu", .cc = "no-such-compiler", .vector_bits = (bits)
static const way ways[] = {
    {"interp", {.backend = "interp"}, false},
    {"interp, fusion -1", {.backend = "interp", .fusion = -1}, false},
    {"planned for cpu", {PLANNED(0)}, false},
    {"planned for cpu, 128 bits", {PLANNED(128)}, false},
    {"planned for cpu, 256 bits, fusion -1", {PLANNED(256), .fusion = -1}, false},
    {"planned for cpu, matrix -1", {PLANNED(0), .matrix = -1}, false},
    {"planned for cpu, scalar", {PLANNED(-1)}, false},
    {"cpu", {.backend = "cpu"}, true},
    {"cpu, fusion -1", {.backend = "cpu", .fusion = -1}, true},
    {"cpu, 128 bits", {.backend = "cpu", .vector_bits = 128}, true},
    {"cpu, 256 bits", {.backend = "cpu", .vector_bits = 256}, true},
    {"cpu, scalar", {.backend = "cpu", .vector_bits = -1}, true},
#if defined(__x86_64__)
    {"cpu, without FMA", {.backend = "cpu", .machine = "x86-64-v2"}, true},
#endif
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]) };

/* ---- comparison ---- */

static void run_one(program *p, tc_program *f, void *const *out)
{
    tc_buf in[MOST_INPUTS], to[MOST_OUTPUTS];
    for (int i = 0; i < p->n_inputs; i++) {
        in[i] = (tc_buf){.data = p->data[i],
                         .n = tc_count(p->inputs[i]),
                         .dtype = (int)tc_dtype_of(p->inputs[i])};
    }
    for (int i = 0; i < p->n_outputs; i++) {
        to[i] = (tc_buf){.data = out[i],
                         .n = tc_count(p->outputs[i]),
                         .dtype = (int)tc_dtype_of(p->outputs[i])};
    }
    tc_status status = tc_run(f, TC_BUFS_N(in, p->n_inputs), TC_BUFS_N(to, p->n_outputs));
    CHECK_MSG(status == TC_OK, "TC_TEST_SEED=%llu: %s", (unsigned long long)p->seed, tc_error(f));
}

static void compare(const program *p, const char *who)
{
    for (int i = 0; i < p->n_outputs; i++) {
        tc_tensor y = p->outputs[i];
        int64_t at = same_until(tc_dtype_of(y), p->want[i], p->got[i], tc_count(y));
        CHECK_MSG(at < 0,
                  "TC_TEST_SEED=%llu: %s: output %d differs from interp's at %lld of %lld "
                  "(%s)",
                  (unsigned long long)p->seed, who, i, (long long)at, (long long)tc_count(y),
                  p->text);
    }
}

static void run_way(program *p, int n, int which)
{
    tc_job jobs[BATCH];
    tc_program *programs[BATCH];
    for (int i = 0; i < n; i++) {
        jobs[i] = (tc_job){{p[i].inputs, p[i].n_inputs},
                           {p[i].outputs, p[i].n_outputs},
                           &programs[i],
                           TC_OK};
        programs[i] = NULL;
    }
    tc_options o = ways[which].options;
    o.no_disk_cache = true;
    o.fallback = ways[which].native ? TC_FALLBACK_REFUSE : TC_FALLBACK_ALLOW;
    tc_compile_many(jobs, n, &o);
    for (int i = 0; i < n; i++) {
        CHECK_MSG(jobs[i].status == TC_OK, "TC_TEST_SEED=%llu: %s: %s (%s)",
                  (unsigned long long)p[i].seed, ways[which].name, tc_status_text(jobs[i].status),
                  p[i].text);
        if (programs[i]) {
            run_one(&p[i], programs[i], which ? p[i].got : p[i].want);
        }
        if (programs[i] && which) {
            compare(&p[i], ways[which].name);
        }
        tc_program_free(programs[i]);
    }
}

static bool has_compiler(void)
{
    tc_options o = {.backend = "cpu", .fallback = TC_FALLBACK_REFUSE};
    tc_ctx *ctx;
    tc_program *f = NULL;
    bool has = !tc_ctx_make(&ctx, &o) && !tc_compile(tc_neg(tc_input(ctx, "x", TC_F32, 3)), &f);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return has;
}

TEST(bits_depend_on_no_kernel_and_no_instruction)
{
    const char *one = getenv("TC_TEST_SEED");
    int n = one ? 1 : tct_soak ? PROGRAMS_SOAK : PROGRAMS;
    uint64_t first = one ? strtoull(one, NULL, 0) : tct_seed * 7000003;
    bool native = has_compiler();
    static program programs[BATCH];
    for (int at = 0; at < n; at += BATCH) {
        tc_ctx *ctx;
        int count = n - at < BATCH ? n - at : BATCH;
        REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
        for (int i = 0; i < count; i++) {
            draw(&programs[i], ctx, first + (uint64_t)(at + i), false);
        }
        for (int w = 0; w < WAYS; w++) {
            /* a short run compiles each batch one way */
            bool mine = one || tct_soak || w % 3 == at / BATCH % 3;
            if (ways[w].native ? native && mine : true) {
                run_way(programs, count, w);
            }
        }
        for (int i = 0; i < count; i++) {
            drop(&programs[i]);
        }
        tc_ctx_free(ctx);
    }
}

TEST_MAIN
