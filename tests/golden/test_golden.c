/* Expected texts of every stage of a few graphs: the kernel IR, the loops and the C source for a
 * machine of 32-byte vectors whatever this one has, the loops and CUDA source for blocks of
 * threads, and OpenCL C; plan, steps and the interpreter's steps of a program of several kernels.
 * The files are in this folder; after a wanted change `make golden` rewrites them, and the diff is
 * for review. */
#define TC_CUDA
#include "inside.h"

#include "../tc_test.h"

#include "../../examples/opencl/tc_opencl.h"

#define FOLDER "tests/golden/"

enum { MOST = 8 }; /* inputs or outputs of a graph */

/* What a text is made for; schedule: of all kernels, where it is not the cheapest one. */
typedef struct made_for {
    tci_machine machine;
    tci_dialect *(*dialect)(tci_scratch *s, int vector_bytes);
    const char *schedule;
} made_for;

static tci_dialect *opencl_dialect(tci_scratch *s, int vector_bytes)
{
    (void)tc_opencl_register;
    return tci_dialect_make(s, &ocl_dialect, vector_bytes);
}

static const made_for cpu = {{.vector_bytes = 32}, tci_dialect_c, NULL};
static const made_for gpu = {{.vector_bytes = TCI_CUDA_THREAD_BYTES,
                              .block_threads = TCI_CUDA_MAX_THREADS,
                              .matrix_units = 132,
                              .warp_unit = TC_WARP_BYTES | TC_WARP_DOUBLES,
                              .facts = {.processors = 132, .all_bytes = 6150}},
                             tci_dialect_cuda,
                             NULL};
static const made_for ampere = {{.vector_bytes = TCI_CUDA_THREAD_BYTES,
                                 .block_threads = TCI_CUDA_MAX_THREADS,
                                 .warp_unit = TC_WARP_HALVES | TC_WARP_SINGLES,
                                 .facts = {.processors = 108, .matrix_flops = 2048}},
                                tci_dialect_cuda,
                                NULL};
static const made_for packing = {{.vector_bytes = 64, .thread_scratch = true}, tci_dialect_c, NULL};
static const made_for panels = {{.vector_bytes = 32, .thread_scratch = true},
                                tci_dialect_c,
                                "packed rows=2 unroll=1 depth=16 columns=16"};
static const made_for pairs = {{.vector_bytes = 64, .thread_scratch = true, .has_pairs = true},
                               tci_dialect_c,
                               "packed rows=2 unroll=1 depth=16 columns=16"};
static const made_for unit = {{.vector_bytes = 64, .thread_scratch = true, .matrix_units = 1},
                              tci_dialect_c,
                              NULL};
static const made_for small = {{.vector_bytes = 16}, tci_dialect_c, NULL};
static const made_for loops = {{.vector_bytes = 32, .thread_scratch = true, .loops = true},
                               tci_dialect_c,
                               NULL};
static const made_for block_loops = {{.vector_bytes = TCI_CUDA_THREAD_BYTES,
                                      .block_threads = TCI_CUDA_MAX_THREADS,
                                      .loops = true,
                                      .facts = {.processors = 132}},
                                     tci_dialect_cuda,
                                     NULL};
static const made_for opencl = {{.vector_bytes = 0}, opencl_dialect, NULL};

/* ---- from a tensor to text ---- */

static void print_kernels(tci_str *out, tci_scratch *s, const tci_plan *plan, made_for on)
{
    tci_dialect *d = on.dialect(s, on.machine.vector_bytes);
    tci_str body = {.s = s}, why = {.s = s};
    for (int i = 0; i < plan->n_kernels; i++) {
        char symbol[32];
        tci_launch launch;
        tci_loop *loop = tci_loop_schedule_as(s, plan->kernels[i], on.machine, on.schedule, &why,
                                              &launch);
        CHECK_MSG(!why.n, "%s: %s", on.schedule, tci_str_text(&why));
        tci_loop_verify(s, loop);
        snprintf(symbol, sizeof(symbol), "kernel_%d", i);
        tci_str_printf(out, "== %s\n", plan->kernels[i]->name);
        tci_kernel_print(out, plan->kernels[i]);
        tci_str_add(out, "== loop\n");
        tci_loop_print(out, loop);
        tci_emit_kernel(&body, d, plan->kernels[i], loop, symbol);
    }
    tci_str_add(out, "== source without its prelude\n");
    tci_str_add(out, tci_str_text(&body));
}

/* The plan of the outputs; inputs are in order. Appends the rewritten graph to `out`. */
static tci_plan *plan_of(tci_str *out, tc_tensors inputs, tc_tensors outputs, made_for on)
{
    tci_scratch *s = out->s;
    tci_machine machine = on.machine;
    tci_node *in[MOST], *roots[MOST];
    tci_target target;
    memset(&target, 0, sizeof(target));
    target.vector_bytes = machine.vector_bytes;
    target.block_threads = machine.block_threads;
    for (int i = 0; i < inputs.n; i++) {
        in[i] = tci_handle_node(inputs.items[i]);
    }
    for (int i = 0; i < outputs.n; i++) {
        roots[i] = tci_handle_node(outputs.items[i]);
    }
    tci_request *r = tci_request_make(s, in, inputs.n, roots, outputs.n,
                                      &tci_ctx_of(outputs.items[0].ctx)->options, "golden",
                                      &target);
    tci_request_copy copy = tci_request_copy_graph(s, r, NULL);
    tci_node **now = tci_rewrite(s, copy.graph, copy.roots, outputs.n);
    if (!machine.block_threads) { /* it is the same for both */
        tci_str_add(out, "== graph\n");
        tci_graph_print(out, s, now, outputs.n);
    }
    tci_plan *plan = tci_plan_make(s, copy.graph, copy.inputs, r->n_inputs, copy.literals,
                                   r->n_literals, now, outputs.n, machine);
    tci_plan_verify(s, plan);
    return plan;
}

/* Graph and groups. In scratch. */
static const char *groups_of(tci_scratch *s, tc_tensors inputs, tc_tensors outputs, made_for on)
{
    tci_str *out = TCI_NEW(s, tci_str);
    out->s = s;
    tci_plan *plan = plan_of(out, inputs, outputs, on);
    tci_str_add(out, "== groups\n");
    tci_fusion_print(out, plan->fusion);
    return tci_str_text(out);
}

/* Graph, plan, kernels, loops and source. In scratch. */
static const char *text_of(tci_scratch *s, tc_tensors inputs, tc_tensors outputs, made_for on)
{
    tci_str *out = TCI_NEW(s, tci_str);
    out->s = s;
    tci_plan *plan = plan_of(out, inputs, outputs, on);
    if (!on.machine.block_threads) {
        tci_str_add(out, "== plan\n");
        tci_plan_print(out, plan);
    }
    print_kernels(out, s, plan, on);
    return tci_str_text(out);
}

/* ---- against the file ---- */

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    long n = -1;
    if (file && !fseek(file, 0, SEEK_END) && (n = ftell(file)) >= 0 && !fseek(file, 0, SEEK_SET)) {
        text = (char *)calloc(1, (size_t)n + 1);
    }
    if (text && fread(text, 1, (size_t)n, file) != (size_t)n) {
        text[0] = 0;
    }
    if (file) {
        fclose(file);
    }
    return text;
}

static void compare_lines(const char *name, const char *got, const char *want)
{
    int line = 1;
    const char *got_line = got, *want_line = want;
    for (; *got && *got == *want; got++, want++) {
        if (*got == '\n') {
            line++;
            got_line = got + 1;
            want_line = want + 1;
        }
    }
    if (*got != *want) {
        CHECK_MSG(false, "%s%s.txt, line %d is \"%.*s\", expected \"%.*s\"", FOLDER, name, line,
                  (int)strcspn(got_line, "\n"), got_line, (int)strcspn(want_line, "\n"), want_line);
    }
}

/* Compares with the file of that name, or writes it. */
static void check_file(const char *name, const char *got)
{
    char path[200];
    const char *how = getenv("TC_TEST_GOLDEN");
    snprintf(path, sizeof(path), FOLDER "%s.txt", name);
    if (how && !strcmp(how, "update")) {
        FILE *file = fopen(path, "wb");
        CHECK_MSG(file && fputs(got, file) >= 0, "%s cannot be written", path);
        if (file) {
            fclose(file);
        }
    } else {
        char *want = read_file(path);
        CHECK_MSG(want != NULL, "%s is missing: make golden writes it", path);
        if (want) {
            compare_lines(name, got, want);
        }
        free(want);
    }
}

typedef const char *(*maker)(tci_scratch *s, tc_tensors inputs, tc_tensors outputs, made_for on);

static void check_text(const char *name, tc_tensors inputs, tc_tensors outputs, made_for on,
                       maker make)
{
    static tci_scratch s;
    for (int i = 0; i < outputs.n; i++) {
        tc_tensor y = outputs.items[i];
        CHECK_MSG(!tc_status_of(y), "%s: %s", name, tc_error(y));
        if (tc_status_of(y)) {
            return;
        }
    }
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        CHECK_MSG(false, "%s: %s", name, s.message);
        tci_scratch_free(&s);
        return;
    }
    check_file(name, make(&s, inputs, outputs, on));
    tci_scratch_free(&s);
}

static void check_on(const char *name, tc_tensors inputs, tc_tensor y, made_for on)
{
    check_text(name, inputs, TC_TENSORS(y), on, text_of);
}

static void check_golden(const char *name, tc_tensors inputs, tc_tensor y)
{
    check_on(name, inputs, y, cpu);
}

/* ---- the graphs ---- */

static tc_ctx *open_ctx(void)
{
    tc_ctx *ctx;
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = "interp";
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    return ctx;
}

TEST(elementwise)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 10000);
    check_golden("sincos", TC_TENSORS(x), tc_sin(tc_cos(x)));
    tc_ctx_free(ctx);
}

TEST(rows)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64, 100), w = tc_input(ctx, "w", TC_F32, 100),
              b = tc_input(ctx, "b", TC_F32, 100);
    check_golden("softmax", TC_TENSORS(x), tc_softmax(x, -1));
    check_golden("layer_norm", TC_TENSORS(x, w, b), tc_layer_norm(x, TC_AXES(-1), w, b, 1e-5));
    check_golden("flip_sum", TC_TENSORS(x), tc_sum(tc_flip(x, 1), TC_AXES(1), false));
    check_golden("scan", TC_TENSORS(x), tc_cumsum(tc_mul(x, 2), 1));
    tc_ctx_free(ctx);
}

TEST(movement)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 40, 60), y = tc_input(ctx, "y", TC_F32, 60, 40);
    check_golden("permute_add", TC_TENSORS(x, y), tc_add(tc_permute(x, 1, 0), y));
    check_golden("slice_relu", TC_TENSORS(x), tc_relu(tc_slice(x, 0, 10, 30, 2)));
    tc_ctx_free(ctx);
}

TEST(contraction)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 32, 64), w = tc_input(ctx, "w", TC_F32, 64, 48),
              b = tc_input(ctx, "b", TC_F32, 48);
    check_golden("layer", TC_TENSORS(x, w, b), tc_relu(tc_add(tc_matmul(x, w), b)));
    tc_ctx_free(ctx);
}

/* ---- groups ---- */

static void check_groups(const char *name, tc_tensors inputs, tc_tensors outputs)
{
    check_text(name, inputs, outputs, packing, groups_of);
}

TEST(groups_of_rows)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64, 100), w = tc_input(ctx, "w", TC_F32, 100),
              b = tc_input(ctx, "b", TC_F32, 100), g = tc_input(ctx, "g", TC_F32, 64, 100);
    check_groups("groups_softmax", TC_TENSORS(x), TC_TENSORS(tc_softmax(x, -1)));
    tc_tensor y = tc_layer_norm(x, TC_AXES(-1), w, b, 1e-5), of[3] = {x, w, b}, grads[3];
    REQUIRE(tc_grad(tc_sum(tc_mul(y, g), TC_ALL, false), of, 3, grads) == TC_OK);
    check_groups("groups_layer_norm", TC_TENSORS(x, w, b, g),
                 TC_TENSORS(y, grads[0], grads[1], grads[2]));
    tc_ctx_free(ctx);
}

/* One step of training a network of two layers. */
TEST(groups_of_a_step)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 128, 100), w1 = tc_input(ctx, "w1", TC_F32, 100, 64),
              b1 = tc_input(ctx, "b1", TC_F32, 64), w2 = tc_input(ctx, "w2", TC_F32, 64, 10),
              b2 = tc_input(ctx, "b2", TC_F32, 10), t = tc_input(ctx, "t", TC_I64, 128), grads[4];
    tc_tensor hidden = tc_relu(tc_add(tc_matmul(x, w1), b1));
    tc_tensor loss = tc_cross_entropy(tc_add(tc_matmul(hidden, w2), b2), t);
    tc_tensor old[4] = {w1, b1, w2, b2}, now[5] = {loss};
    REQUIRE(tc_grad(loss, old, 4, grads) == TC_OK);
    for (int i = 0; i < 4; i++) {
        now[i + 1] = tc_sub(old[i], tc_mul(grads[i], 0.1));
    }
    check_groups("groups_step", TC_TENSORS(x, w1, b1, w2, b2, t),
                 TC_TENSORS(now[0], now[1], now[2], now[3], now[4]));
    tc_ctx_free(ctx);
}

TEST(groups_of_attention)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor q = tc_input(ctx, "q", TC_F32, 4, 512, 64),
              k = tc_input(ctx, "k", TC_F32, 4, 512, 64),
              v = tc_input(ctx, "v", TC_F32, 4, 512, 64);
    tc_tensor scores = tc_mul(tc_matmul(q, tc_transpose(k, 1, 2)), 0.125);
    check_groups("groups_attention", TC_TENSORS(q, k, v),
                 TC_TENSORS(tc_matmul(tc_softmax(scores, -1), v)));
    tc_ctx_free(ctx);
}

/* Convolution, batch normalization with known statistics, ReLU. */
TEST(groups_of_a_convolution)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 2, 16, 28, 28),
              w = tc_input(ctx, "w", TC_F32, 32, 16, 3, 3),
              m = tc_input(ctx, "m", TC_F32, 32, 1, 1), s = tc_input(ctx, "s", TC_F32, 32, 1, 1),
              b = tc_input(ctx, "b", TC_F32, 32, 1, 1);
    tc_tensor y = tc_conv2d(x, w, TC_NONE, &(tc_conv){.padding = {1, 1}});
    y = tc_relu(tc_add(tc_mul(tc_sub(y, m), s), b));
    check_groups("groups_conv", TC_TENSORS(x, w, m, s, b), TC_TENSORS(y));
    tc_ctx_free(ctx);
}

/* Rows by number, then others of those, and their sums. */
TEST(groups_of_gathers)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 1000, 64), i = tc_input(ctx, "i", TC_I64, 300),
              j = tc_input(ctx, "j", TC_I64, 200);
    tc_tensor rows = tc_mul(tc_index_select(x, 0, i), 2);
    tc_tensor y = tc_exp(tc_index_select(rows, 0, j));
    check_groups("groups_gather", TC_TENSORS(x, i, j), TC_TENSORS(tc_sum(y, TC_AXES(1), false)));
    tc_ctx_free(ctx);
}

/* ---- programs ---- */

/* What the spine dumps of a program: its rewritten graph, its plan, the interpreter's steps, what a
 * run does. */
static void check_program(const char *name, tc_tensors inputs, tc_tensors outputs)
{
    static const char *const stages[] = {"rewrite", "plan", "interp", "steps"};
    char folder[] = "/tmp/tc_test_golden_XXXXXX", path[100], text[30000];
    size_t n = 0;
    REQUIRE(mkdtemp(folder) != NULL);
    tc_program *f = NULL;
    tc_options options = {.backend = "interp",
                          .no_disk_cache = true,
                          .dump = "rewrite,plan,interp,steps",
                          .dump_dir = folder};
    CHECK_MSG(!tc_compile_fn(inputs, outputs, &options, &f), "%s",
              tc_ctx_error(outputs.items[0].ctx));
    for (int i = 0; i < TCI_COUNT(stages); i++) {
        snprintf(path, sizeof(path), "%s/%s.txt", folder, stages[i]);
        char *part = read_file(path);
        CHECK_MSG(part != NULL, "%s is missing", path);
        n += (size_t)snprintf(text + n, sizeof(text) - n, "== %s\n%s", stages[i], part ? part : "");
        REQUIRE(n < sizeof(text));
        free(part);
        remove(path);
    }
    CHECK(!remove(folder));
    check_file(name, text);
    tc_program_free(f);
}

/* Constants in another form are made once, rows may be missing, a parameter changes. */
TEST(several_kernels)
{
    tc_ctx *ctx = open_ctx();
    float table[8 * 6] = {1}, zeros[6] = {0};
    tc_tensor x = tc_input(ctx, "x", TC_F32, 10, 6), i = tc_input(ctx, "i", TC_I64, 4);
    tc_tensor scaled = tc_exp(tc_borrow(ctx, table, TC_F32, 8, 6));
    tc_tensor product = tc_matmul(x, tc_transpose(scaled, 0, 1));
    tc_tensor chosen = tc_index_select(tc_softmax(product, 1), 0, i);
    tc_tensor seen = tc_param(ctx, zeros, TC_F32, 6);
    tc_tensor now = tc_assign(seen, tc_add(seen, tc_sum(x, TC_AXES(0), false)));
    check_program("program", TC_TENSORS(x, i), TC_TENSORS(chosen, now));
    tc_ctx_free(ctx);
}

/* ---- kernels of other forms ---- */

TEST(indices)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 40, 16), y = tc_input(ctx, "y", TC_F32, 8, 16),
              i = tc_input(ctx, "i", TC_I64, 8);
    check_golden("gather", TC_TENSORS(x, i), tc_mul(tc_index_select(x, 0, i), 2));
    check_golden("scatter_add", TC_TENSORS(x, i, y), tc_index_add(x, 0, i, y));
    /* places along a row that follow from the index: all lanes at once, before those are walked */
    tc_tensor image = tc_reshape(x, 1, 1, 40, 16);
    check_golden("resize", TC_TENSORS(x),
                 tc_interpolate(image, &(tc_interpolation){.mode = "bilinear", .size = {40, 32}}));
    /* of a search each step reads where the one before it says: its lanes are made once */
    tc_tensor edges = tc_input(ctx, "edges", TC_F32, 7), v = tc_input(ctx, "v", TC_F32, 64);
    check_golden("search", TC_TENSORS(edges, v), tc_searchsorted(edges, v, false));
    tc_ctx_free(ctx);
}

TEST(joined_and_padded)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 24), y = tc_input(ctx, "y", TC_F32, 40);
    check_golden("cat", TC_TENSORS(x, y), tc_neg(tc_cat(TC_TENSORS(x, y), 0)));
    check_golden("pad", TC_TENSORS(x), tc_exp(tc_pad(x, 0, 8, 5, 1)));
    /* parts of a padded row that are inside are summed without masks */
    tc_tensor z = tc_input(ctx, "z", TC_F32, 2, 65537);
    check_golden("sum_padded", TC_TENSORS(z), tc_sum(z, TC_AXES(1), false));
    tc_ctx_free(ctx);
}

/* Factors packed into panels, which tiles of registers read. */
TEST(panels)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 64, 32), w = tc_input(ctx, "w", TC_F32, 32, 32);
    check_on("panels", TC_TENSORS(x, w), tc_matmul(x, w), panels);
    tc_ctx_free(ctx);
}

TEST(convolution)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 1, 2, 8, 8),
              w = tc_input(ctx, "w", TC_F32, 3, 2, 3, 3);
    check_golden("convolution", TC_TENSORS(x, w),
                 tc_conv2d(x, w, TC_NONE, &(tc_conv){.padding = {1, 1}}));
    tc_ctx_free(ctx);
}

/* bf16 factors in the tiles of a processor's matrix unit. */
TEST(tiles)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_BF16, 128, 96), w = tc_input(ctx, "w", TC_BF16, 96, 96);
    check_on("tiles", TC_TENSORS(x, w), tc_cast(tc_matmul(x, w), TC_BF16), unit);
    tc_ctx_free(ctx);
}

/* The same in panels of pairs; the last one is half a pair. */
TEST(pairs)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_BF16, 32, 35), w = tc_input(ctx, "w", TC_BF16, 35, 32);
    check_on("pairs", TC_TENSORS(x, w), tc_matmul(x, w), pairs);
    tc_ctx_free(ctx);
}

/* The prelude of vectors whose fma is computed in software where the processor has none. */
static const char *soft_fma_text(tci_scratch *s, tc_tensors inputs, tc_tensors outputs, made_for on)
{
    (void)inputs, (void)outputs;
    tci_dialect *d = on.dialect(s, on.machine.vector_bytes);
    tci_str *out = TCI_NEW(s, tci_str);
    out->s = s;
    d->prim(d, TCI_P_FMA, TC_F32, TC_F32, 4, 0);
    d->prim(d, TCI_P_FMA, TC_F64, TC_F64, 2, 0);
    d->prelude(d, out);
    return tci_str_text(out);
}

TEST(fma_in_software)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 37);
    check_text("soft_fma", TC_TENSORS(x), TC_TENSORS(x), small, soft_fma_text);
    tc_ctx_free(ctx);
}

TEST(gradient)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 10), g;
    REQUIRE(tc_grad(tc_sum(tc_exp(tc_mul(x, x)), TC_ALL, false), &x, 1, &g) == TC_OK);
    check_golden("gradient", TC_TENSORS(x), g);
    tc_ctx_free(ctx);
}

static tc_status filter(void *user, const tc_tensor *carry, const tc_tensor *x, tc_tensor *next,
                        tc_tensor *y)
{
    (void)user;
    y[0] = tc_add(tc_mul(x[0], 0.3), carry[0]);
    next[0] = tc_sub(carry[1], tc_mul(y[0], 0.7));
    next[1] = tc_mul(x[0], 0.1);
    return TC_OK;
}

/* The filter has its carries in cells; a cell of a network has them in rows, where vectors are. */
static tc_status recur(void *user, const tc_tensor *carry, const tc_tensor *x, tc_tensor *next,
                       tc_tensor *y)
{
    tc_tensor sum = tc_matmul(*(const tc_tensor *)user, carry[0]);
    (void)y;
    next[0] = tc_maximum(tc_add(x[0], sum), 0);
    return TC_OK;
}

TEST(fused_loops)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 100), zero = tc_full(ctx, 0, TC_F32), y;
    REQUIRE(!tc_scan(TC_TENSORS(zero, zero), TC_TENSORS(x), 0, false, filter, NULL, NULL, &y, 1));
    check_on("loop", TC_TENSORS(x), y, loops);
    check_on("cuda_loop", TC_TENSORS(x), y, block_loops);
    tc_tensor w = tc_input(ctx, "w", TC_F32, 16, 16), xs = tc_input(ctx, "xs", TC_F32, 9, 16),
              h = tc_input(ctx, "h", TC_F32, 16), last;
    REQUIRE(!tc_scan(TC_TENSORS(h), TC_TENSORS(xs), 0, true, recur, &w, &last, NULL, 0));
    check_on("loop_rows", TC_TENSORS(w, xs, h), last, loops);
    tc_ctx_free(ctx);
}

TEST(opencl_kernels)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 6, 10);
    check_on("opencl", TC_TENSORS(x), tc_sum(tc_mul(x, x), TC_AXES(1), false), opencl);
    tc_ctx_free(ctx);
}

/* ---- blocks of threads ---- */

TEST(blocks_of_threads)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 300, 1100), w = tc_input(ctx, "w", TC_F32, 1100),
              b = tc_input(ctx, "b", TC_F32, 1100), m = tc_input(ctx, "m", TC_F32, 128, 96),
              n = tc_input(ctx, "n", TC_F32, 96, 128), v = tc_input(ctx, "v", TC_F32, 10000);
    check_on("cuda_gelu", TC_TENSORS(v), tc_gelu(v), gpu);
    check_on("cuda_softmax", TC_TENSORS(x), tc_softmax(x, -1), gpu);
    tc_tensor far = tc_input(ctx, "far", TC_F32, 1100, 50000);
    check_on("cuda_softmax_far", TC_TENSORS(far), tc_softmax(far, -1), gpu);
    check_on("cuda_layer_norm", TC_TENSORS(x, w, b), tc_layer_norm(x, TC_AXES(-1), w, b, 1e-5),
             gpu);
    check_on("cuda_sum_columns", TC_TENSORS(x), tc_sum(x, TC_AXES(0), false), gpu);
    check_on("cuda_sum_all", TC_TENSORS(x), tc_sum(x, TC_ALL, false), gpu);
    check_on("cuda_transpose", TC_TENSORS(x), tc_add(tc_permute(x, 1, 0), 1), gpu);
    check_on("cuda_scan", TC_TENSORS(x), tc_cumsum(tc_mul(x, 2), 1), gpu);
    check_on("cuda_flip", TC_TENSORS(x), tc_relu(tc_flip(x, 1)), gpu);
    check_on("cuda_layer", TC_TENSORS(m, n), tc_relu(tc_matmul(m, n)), gpu);
    tc_tensor image = tc_input(ctx, "image", TC_F32, 2, 16, 9, 9);
    tc_tensor filter = tc_input(ctx, "filter", TC_F32, 48, 16, 3, 3);
    const tc_conv how = {.padding = {1, 1}, .stride = {2, 2}};
    check_on("cuda_convolution", TC_TENSORS(image, filter), tc_conv2d(image, filter, TC_NONE, &how),
             gpu);
    tc_ctx_free(ctx);
}

TEST(matrix_units)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor a = tc_input(ctx, "a", TC_BF16, 3, 500, 256),
              b = tc_input(ctx, "b", TC_BF16, 3, 256, 776), c = tc_input(ctx, "c", TC_BF16, 776);
    check_on("cuda_matrix", TC_TENSORS(a, b, c), tc_relu(tc_add(tc_matmul(a, b), c)), gpu);
    tc_ctx_free(ctx);
}

TEST(matrix_units_of_warps)
{
    tc_ctx *ctx = open_ctx();
    tc_tensor a = tc_input(ctx, "a", TC_F16, 500, 256), b = tc_input(ctx, "b", TC_F16, 192, 256);
    check_on("cuda_warps", TC_TENSORS(a, b), tc_relu(tc_matmul(a, tc_transpose(b, 0, 1))), ampere);
    tc_ctx_free(ctx);
}

TEST_MAIN
