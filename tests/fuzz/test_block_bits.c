/* Random programs of float sums (sums.h) planned for machines of blocks of threads, which need not
 * be there: the interpreter runs the plans, in the orders that they give each reduction. On each
 * machine a value must have the same bits whatever shares its kernel: with fusion, without, and as
 * the only output of its program.
 *
 * What fails is told by its seed: TC_TEST_SEED=N runs that program alone, TC_TEST_SOAK=1 many. */
#define TC_CUDA
#include "inside.h"

#include "../tc_test.h"
#include "same.h"
#include "sums.h"

extern int32_t tci_interp_unit_part; /* interp/lower_reductions.c */
extern bool tci_layout_is_off;       /* plan/layout_propagation.c */

enum {
    PROGRAMS = 100,
    PROGRAMS_SOAK = 1000,
    UNITS = 40,
    UNITS_SOAK = 1000,
    ATTENTIONS = 8,
    UNIT_PART = 16,
    REPRODUCIBLE = 12
};

/* ---- machines ---- */

/* A machine with a compiler that is not there. */
static tc_status planned_compiler(void *user, const char *wanted, tc_backend_compiler *compiler)
{
    (void)user;
    (void)wanted;
    (void)compiler;
    return TC_ERR_COMPILER;
}

static tc_status planned_compile(void *user, tc_build *build)
{
    (void)user;
    build->say(build->say_arg, "there is no compiler");
    return TC_ERR_COMPILER;
}

static tc_status planned_module_load(void *user, const void *bytes, size_t n, const char *path,
                                     void **module)
{
    (void)user;
    (void)bytes;
    (void)n;
    (void)path;
    (void)module;
    return TC_ERR_BACKEND;
}

static void *planned_module_find(void *user, void *module, const char *symbol)
{
    (void)user;
    (void)module;
    (void)symbol;
    return NULL;
}

static void planned_module_free(void *user, void *module)
{
    (void)user;
    (void)module;
}

static tc_status planned_target(tc_backend_target *target, int threads, int units, int warp_unit,
                                tc_machine facts)
{
    snprintf(target->features, sizeof(target->features), "planned");
    target->vector_bytes = 16;
    target->block_threads = threads;
    target->matrix_units = units;
    target->warp_unit = warp_unit;
    target->machine = facts;
    target->usable = true;
    return TC_OK;
}

static tc_status small_target(void *user, int bits, tc_backend_target *target)
{
    (void)user;
    (void)bits;
    const tc_machine facts = {.processors = 16,
                              .ghz = 1.2,
                              .subgroup = 32,
                              .memory_gbs = 120,
                              .shared_bytes = 48 << 10,
                              .shared_most = 48 << 10,
                              .cache_bytes = {64 << 10, 64 << 10, 1 << 20}};
    return planned_target(target, 256, 0, TC_WARP_NONE, facts);
}

static tc_status ampere_target(void *user, int bits, tc_backend_target *target)
{
    (void)user;
    (void)bits;
    const tc_machine facts = {.processors = 108,
                              .ghz = 1.4,
                              .subgroup = 32,
                              .memory_gbs = 1900,
                              .shared_bytes = 48 << 10,
                              .shared_most = 163 << 10,
                              .cache_bytes = {192 << 10, 192 << 10, 40 << 20},
                              .matrix_flops = 2048};
    return planned_target(target, 512, 0,
                          TC_WARP_BYTES | TC_WARP_HALVES | TC_WARP_SINGLES | TC_WARP_DOUBLES,
                          facts);
}

static tc_status hopper_target(void *user, int bits, tc_backend_target *target)
{
    (void)user;
    (void)bits;
    const tc_machine facts = {.processors = 132,
                              .ghz = 1.7,
                              .subgroup = 32,
                              .memory_gbs = 4800,
                              .shared_bytes = 48 << 10,
                              .shared_most = 227 << 10,
                              .cache_bytes = {256 << 10, 256 << 10, 50 << 20},
                              .near_bytes = 64,
                              .all_bytes = 6150};
    return planned_target(target, 512, 132, TC_WARP_BYTES | TC_WARP_DOUBLES, facts);
}

#define PLANNED(called, targets) \
    {.name = (called), .dialect = "cuda", .target = (targets), .compiler = planned_compiler, \
     .compile = planned_compile, .module_load = planned_module_load, \
     .module_find = planned_module_find, .module_free = planned_module_free}
static tc_backend machines[] = {PLANNED("small GPU", small_target), PLANNED("A100", ampere_target),
                                PLANNED("H200", hopper_target)};
enum { MACHINES = sizeof(machines) / sizeof(machines[0]) };

static void register_machines(void)
{
    for (int i = 0; i < MACHINES && !machines[i].own_dialect; i++) {
        machines[i].own_dialect = tci_cuda_words();
        REQUIRE(tc_register_backend(&machines[i]) == TC_OK);
    }
}

/* ---- comparison ---- */

/* Runs f, which gives outputs [first, first + n) of p. */
static void run_one(program *p, tc_program *f, int first, int n, void *const *out)
{
    tc_buf in[MOST_INPUTS], to[MOST_OUTPUTS];
    for (int i = 0; i < p->n_inputs; i++) {
        in[i] = (tc_buf){.data = p->data[i],
                         .n = tc_count(p->inputs[i]),
                         .dtype = (int)tc_dtype_of(p->inputs[i])};
    }
    for (int i = 0; i < n; i++) {
        tc_tensor y = p->outputs[first + i];
        to[i] = (tc_buf){.data = out[first + i], .n = tc_count(y), .dtype = (int)tc_dtype_of(y)};
    }
    tc_status status = tc_run(f, TC_BUFS_N(in, p->n_inputs), TC_BUFS_N(to, n));
    CHECK_MSG(status == TC_OK, "TC_TEST_SEED=%llu: %s", (unsigned long long)p->seed, tc_error(f));
}

static void compare(const program *p, int i, const tc_options *o, const char *who)
{
    tc_tensor y = p->outputs[i];
    int64_t at = same_until(tc_dtype_of(y), p->want[i], p->got[i], tc_count(y));
    CHECK_MSG(at < 0, "TC_TEST_SEED=%llu: %s%s, %s: output %d differs at %lld of %lld (%s)",
              (unsigned long long)p->seed, o->backend, p->fast ? " fast" : "", who, i,
              (long long)at, (long long)tc_count(y), p->text);
}

/* Outputs [first, first + n) of p in one program. */
static void run_as(program *p, const tc_options *o, int first, int n, void *const *out,
                   const char *who)
{
    tc_program *f = NULL;
    tc_job job = {{p->inputs, p->n_inputs}, {p->outputs + first, n}, &f, TC_OK};
    tc_compile_many(&job, 1, o);
    CHECK_MSG(job.status == TC_OK, "TC_TEST_SEED=%llu: %s, %s: %s (%s)",
              (unsigned long long)p->seed, o->backend, who, tc_status_text(job.status), p->text);
    if (f) {
        run_one(p, f, first, n, out);
    }
    for (int i = 0; i < n && f && out == p->got; i++) {
        compare(p, first + i, o, who);
    }
    tc_program_free(f);
}

/* Layouts of images follow from the convolutions of a program, and orders from them
 * (docs/numerics.md): with convolutions a value next to others and alone is compared as it is
 * written. The same program has the same layouts with fusion and without. */
static void check_on(program *p, const char *machine)
{
    const bool images = strstr(p->text, "conv") != NULL;
    tc_options o = {.backend = machine,
                    .fallback = TC_FALLBACK_ALLOW,
                    .no_disk_cache = true,
                    .verify = true,
                    .math = p->fast ? TC_MATH_FAST : TC_MATH_EXACT,
                    .threads = 1};
    for (int off = 0; off <= images; off++) {
        tci_layout_is_off = off > 0;
        o.fusion = 0;
        run_as(p, &o, 0, p->n_outputs, p->want, "with fusion");
        for (int i = 0; i < p->n_outputs && p->n_outputs > 1 && off == images; i++) {
            run_as(p, &o, i, 1, p->got, "the only output");
        }
        o.fusion = -1;
        run_as(p, &o, 0, p->n_outputs, p->got, "fusion -1");
    }
    tci_layout_is_off = false;
}

TEST(bits_depend_on_no_kernel_of_blocks_of_threads)
{
    const char *one = getenv("TC_TEST_SEED");
    int n = one ? 1 : tct_soak ? PROGRAMS_SOAK : PROGRAMS;
    uint64_t first = one ? strtoull(one, NULL, 0) : tct_seed * 9000011;
    static program p;
    register_machines();
    for (int at = 0; at < n; at++) {
        tc_ctx *ctx;
        REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
        draw(&p, ctx, first + (uint64_t)at, (first + (uint64_t)at) % 2);
        for (int m = 0; m < MACHINES; m++) {
            check_on(&p, machines[m].name);
        }
        drop(&p);
        tc_ctx_free(ctx);
    }
}

static void check_drawn(uint64_t seed, void (*draw_one)(program *, tc_ctx *, uint64_t))
{
    static program p;
    tc_ctx *ctx;
    REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
    tci_interp_unit_part = UNIT_PART;
    draw_one(&p, ctx, seed);
    for (int m = 0; m < MACHINES; m++) {
        check_on(&p, machines[m].name);
    }
    drop(&p);
    tci_interp_unit_part = 0;
    tc_ctx_free(ctx);
}

TEST(bits_of_matrix_units_depend_on_no_kernel)
{
    const char *one = getenv("TC_TEST_SEED");
    int n = one ? 1 : tct_soak ? UNITS_SOAK : UNITS;
    uint64_t first = one ? strtoull(one, NULL, 0) : tct_seed * 7000003;
    register_machines();
    for (int at = 0; at < n; at++) {
        check_drawn(first + (uint64_t)at, draw_units);
    }
}

TEST(bits_of_attention_depend_on_no_reader_of_its_scores)
{
    const char *one = getenv("TC_TEST_SEED");
    int n = one ? 1 : tct_soak ? UNITS_SOAK : ATTENTIONS;
    uint64_t first = one ? strtoull(one, NULL, 0) : tct_seed * 3000017;
    register_machines();
    for (int at = 0; at < n; at++) {
        check_drawn(first + (uint64_t)at, draw_attention);
    }
}

/* A matrix of which a program reads the transpose alone is computed transposed. */
TEST(sums_of_a_transpose_depend_on_no_other_reader)
{
    static program p;
    tc_ctx *ctx;
    REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
    register_machines();
    memset(&p, 0, sizeof(p));
    p.ctx = ctx;
    const int64_t a[2] = {640, 256}, b[2] = {256, 40};
    tc_tensor c = tc_matmul(input(&p, TC_F32, 2, a), input(&p, TC_F32, 2, b));
    tc_tensor turned = tc_transpose(c, 0, 1);
    add_output(&p, tc_sum(turned, TC_ALL, false));
    add_output(&p, tc_mean(tc_relu(turned), TC_AXES(0), false));
    add_output(&p, tc_sum(c, TC_AXES(1), false));
    for (int m = 0; m < MACHINES; m++) {
        check_on(&p, machines[m].name);
    }
    check_on(&p, "interp");
    drop(&p);
    tc_ctx_free(ctx);
}

/* Programs in which kernels of attention's gradients once followed from other gradients, or from
 * other readers of the scores. */
TEST(gradients_of_attention_depend_on_no_other_gradient)
{
    static const uint64_t seeds[] = {7000120,  14000012, 14000169,  14000191,
                                     14000323, 91000233, 105000084, 112000185};
    register_machines();
    for (size_t at = 0; at < sizeof(seeds) / sizeof(seeds[0]); at++) {
        check_drawn(seeds[at], draw_units);
    }
}

/* Programs whose contractions lost their matrix unit: a widening of halves, or a permutation that
 * another kernel divides less by, had memory; or padded rows were looked for in padding that was
 * rebuilt over a copy of scores. */
TEST(matrix_units_read_through_what_others_store)
{
    static const uint64_t seeds[] = {84000144, 14000387, 21000108, 21000028};
    register_machines();
    for (size_t at = 0; at < sizeof(seeds) / sizeof(seeds[0]); at++) {
        check_drawn(seeds[at], draw_units);
    }
}

/* Compiled only, as a product is large where BF16x3 pays. */
TEST(bf16x3_keeps_its_matrix_unit_with_fusion_off)
{
    const tc_options o = {.backend = "H200",
                          .fallback = TC_FALLBACK_ALLOW,
                          .no_disk_cache = true,
                          .verify = true,
                          .math = TC_MATH_FAST,
                          .fusion = -1};
    tc_ctx *ctx;
    tc_program *f = NULL;
    register_machines();
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor a = tc_input(ctx, "a", TC_F32, 4, 640, 100);
    tc_tensor b = tc_input(ctx, "b", TC_F32, 4, 100, 640);
    CHECK_MSG(tc_compile(tc_matmul(a, b), &f) == TC_OK, "%s", tc_error(ctx));
    tc_program_free(f);
    tc_ctx_free(ctx);
}

static void check_reproducible(program *p)
{
    for (int m = 0; m < MACHINES; m++) {
        tc_options o = {.backend = machines[m].name,
                        .fallback = TC_FALLBACK_ALLOW,
                        .no_disk_cache = true,
                        .reproducible = true,
                        .threads = 1};
        run_as(p, &o, 0, p->n_outputs, m ? p->got : p->want, "with fusion");
        for (int i = 0; i < p->n_outputs && p->n_outputs > 1; i++) {
            run_as(p, &o, i, 1, p->got, "the only output");
        }
    }
}

/* Layouts of images follow from the other convolutions of a program, orders from the machine: not
 * where sums are to be reproducible. In the first programs they do without that option. */
TEST(reproducible_bits_depend_on_no_layout_and_no_machine)
{
    static const uint64_t seeds[] = {105000171, 112000285, 180000367};
    enum { SEEDS = sizeof(seeds) / sizeof(seeds[0]) };
    const char *one = getenv("TC_TEST_SEED");
    int n = one ? 1 : SEEDS + (tct_soak ? UNITS : REPRODUCIBLE);
    uint64_t first = one ? strtoull(one, NULL, 0) : tct_seed * 5000011 - SEEDS;
    static program p;
    register_machines();
    for (int at = 0; at < n; at++) {
        tc_ctx *ctx;
        REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
        draw_units(&p, ctx, !one && at < SEEDS ? seeds[at] : first + (uint64_t)at);
        check_reproducible(&p);
        drop(&p);
        tc_ctx_free(ctx);
    }
}

/* A product of which only a slice is read is computed for the slice alone, in parts that its shape
 * gives: one row of 640, whose sums have 2,048 products. */
TEST(reproducible_bits_depend_on_no_slice_of_a_product)
{
    static program p;
    tc_ctx *ctx;
    REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
    register_machines();
    memset(&p, 0, sizeof(p));
    p.ctx = ctx;
    const int64_t a[2] = {640, 2048}, b[2] = {2048, 64};
    tc_tensor c = tc_matmul(input(&p, TC_F32, 2, a), input(&p, TC_F32, 2, b));
    add_output(&p, tc_slice(c, 0, 0, 1, 1));
    add_output(&p, tc_sum(c, TC_AXES(0), false));
    check_reproducible(&p);
    drop(&p);
    tc_ctx_free(ctx);
}

TEST_MAIN
