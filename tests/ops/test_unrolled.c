/* Graphs that grow with a number of steps: unrolled recurrences, long chains, long sums. With eight
 * times the steps a plan has some eight times the launches, flops, bytes and workspace, and the
 * same few kernels. Nothing is compiled or timed, all is counted. The values are those of the
 * reference evaluator, bit for bit. */
#include "inside.h"

#include "../null_backend.c"
#include "tc_test.h"

enum { ROWS = 16, WIDE = 32, MAX_OUT = 8, MAX_STEPS = 10000, MAX_READ = 200 };

static tc_ctx *ctx;
static float numbers[MAX_READ * ROWS * WIDE];

static void open_ctx(const char *backend)
{
    static bool registered;
    tc_options o;
    memset(&o, 0, sizeof(o));
    if (!registered) {
        REQUIRE(tc_register_backend(&null_backend) == TC_OK);
        registered = true;
    }
    for (int i = 0; i < MAX_READ * ROWS * WIDE; i++) {
        numbers[i] = ((float)((unsigned)i * 2654435761u >> 8) / 8388608.0f - 1) * 0.4f;
    }
    o.backend = backend;
    o.no_disk_cache = true;
    o.threads = 1;
    o.verify = true;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

static tc_tensor given(int rows, int columns)
{
    return tc_copy_in(ctx, numbers, TC_F32, rows, columns);
}

/* ---- graphs ---- */

typedef struct graph {
    tc_tensor out[MAX_OUT];
    int n;
} graph;

/* The results: the last state, or the gradients of its weighted sum. */
static graph results(tc_tensor state, const tc_tensor *params, int n)
{
    graph g = {.n = n ? n : 1};
    g.out[0] = state;
    if (n > 0) {
        tc_tensor weights = given(ROWS, WIDE);
        CHECK_MSG(!tc_grad(tc_sum(tc_mul(state, weights), TC_ALL, false), params, n, g.out), "%s",
                  tc_error(ctx));
    }
    return g;
}

static tc_tensor gate(tc_tensor z, int i)
{
    return tc_slice(z, 1, i * WIDE, (i + 1) * WIDE, 1);
}

static graph lstm(int steps, bool grad)
{
    tc_tensor w = given(WIDE, 4 * WIDE), h = given(ROWS, WIDE), c = h, params[] = {w, h};
    for (int t = 0; t < steps; t++) {
        tc_tensor z = tc_matmul(h, w);
        tc_tensor keep = tc_mul(tc_sigmoid(gate(z, 0)), c);
        c = tc_add(keep, tc_mul(tc_sigmoid(gate(z, 1)), tc_tanh(gate(z, 2))));
        h = tc_mul(tc_sigmoid(gate(z, 3)), tc_tanh(c));
    }
    return results(h, params, grad ? 2 : 0);
}

/* Each step reads its own slice of the sequence, and its own rows of what was computed for all. */
static graph sequence(int steps, bool grad)
{
    tc_tensor all = tc_copy_in(ctx, numbers, TC_F32, steps, ROWS, WIDE);
    tc_tensor w = given(WIDE, 4 * WIDE), u = given(WIDE, 4 * WIDE), v = given(WIDE, WIDE);
    tc_tensor h = given(ROWS, WIDE), c = h, params[] = {w, u, v};
    tc_tensor rows = tc_tanh(tc_matmul(tc_reshape(all, steps * ROWS, WIDE), v));
    for (int t = 0; t < steps; t++) {
        tc_tensor x = tc_reshape(tc_slice(all, 0, t, t + 1, 1), ROWS, WIDE);
        tc_tensor z = tc_add(tc_matmul(x, u), tc_matmul(h, w));
        c = tc_add(tc_mul(tc_sigmoid(gate(z, 0)), c),
                   tc_mul(tc_sigmoid(gate(z, 1)), tc_tanh(gate(z, 2))));
        h = tc_mul(tc_sigmoid(gate(z, 3)), tc_tanh(c));
        h = tc_add(h, tc_slice(rows, 0, t * ROWS, (t + 1) * ROWS, 1));
    }
    return results(h, params, grad ? 3 : 0);
}

/* An average of the products, carried on and read by every step. */
static graph average(int steps, bool grad)
{
    tc_tensor w = given(WIDE, WIDE), h = given(ROWS, WIDE), c = h, params[] = {w, h};
    for (int t = 0; t < steps; t++) {
        c = tc_add(tc_mul(c, 0.9), tc_mul(tc_matmul(h, w), 0.1));
        h = tc_tanh(c);
    }
    return results(h, params, grad ? 2 : 0);
}

static graph residual(int steps, bool grad)
{
    tc_tensor w = given(WIDE, WIDE), h = given(ROWS, WIDE), params[] = {w, h};
    for (int t = 0; t < steps; t++) {
        h = tc_add(h, tc_tanh(tc_matmul(h, w)));
    }
    return results(h, params, grad ? 2 : 0);
}

/* A state without products, whose sizes each step are results of their own. */
static graph sizes(int steps, bool grad)
{
    tc_tensor a = given(ROWS, WIDE), c = given(ROWS, WIDE), all = c, params[] = {a};
    for (int t = 0; t < steps; t++) {
        c = tc_add(tc_mul(c, a), given(ROWS, WIDE));
        all = tc_add(all, tc_mul(c, tc_max(c, TC_AXES(1), true)));
    }
    return results(all, params, grad ? 1 : 0);
}

/* Each step reads its neighbours. */
static graph stencil(int steps, bool grad)
{
    tc_tensor h = given(ROWS, WIDE), params[] = {h};
    for (int t = 0; t < steps; t++) {
        tc_tensor left = tc_pad(tc_slice(h, 1, 1, TC_END, 1), 1, 0, 1, 0);
        h = tc_mul(tc_sin(tc_add(h, left)), 0.5);
    }
    return results(h, params, grad ? 1 : 0);
}

static graph chain(int steps, bool grad)
{
    tc_tensor x = given(ROWS, WIDE), y = x, params[] = {x};
    for (int t = 0; t < steps; t++) {
        y = t % 3 == 0 ? tc_sin(y) : t % 3 == 1 ? tc_mul(y, 1.1) : tc_add(y, x);
    }
    return results(y, params, grad ? 1 : 0);
}

static graph leaves(int steps, bool grad)
{
    tc_tensor sum = given(ROWS, WIDE), first = sum;
    for (int t = 1; t < steps; t++) {
        sum = tc_add(sum, given(ROWS, WIDE));
    }
    return results(sum, &first, grad ? 1 : 0);
}

typedef graph (*grow)(int steps, bool grad);
/* steps: from which a plan is more than one kernel, whose pieces grow in number and not in size. */
static const struct kind {
    const char *name;
    grow make;
    int steps;
} kinds[] = {{"lstm", lstm, 25},         {"sequence", sequence, 25}, {"average", average, 25},
             {"residual", residual, 25}, {"sizes", sizes, 100},      {"stencil", stencil, 25},
             {"chain", chain, 300},      {"leaves", leaves, 300}};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* ---- counts ---- */

typedef struct counts {
    tc_program_info info;
    long long moved, source, largest; /* largest: characters of a function */
    char *why;
} counts;

static long long largest_function(const char *source)
{
    long long most = 0;
    for (const char *at = strstr(source, "\n}\n"), *end; at; at = end) {
        end = strstr(at + 1, "\n}\n");
        most = end && end - at > most ? end - at : most;
    }
    return most;
}

static counts count(graph g)
{
    counts c = {.why = calloc(1, 1 << 20)};
    tc_program *f;
    tc_status status = tc_compile_fn((tc_tensors){0}, (tc_tensors){g.out, g.n}, NULL, &f);
    CHECK_MSG(!status, "%s", tc_error(ctx));
    if (status) {
        return c;
    }
    CHECK_EQ_INT(tc_program_get_info(f, &c.info), TC_OK);
    c.moved = c.info.bytes_read + c.info.bytes_written;
    c.source = (long long)strlen(tc_source(f));
    c.largest = largest_function(tc_source(f));
    FILE *text = tmpfile();
    if (text) {
        CHECK_EQ_INT(tc_explain_as(f, text, &(tc_explain_options){.all = true}), TC_OK);
        rewind(text);
        c.why[fread(c.why, 1, (1 << 20) - 1, text)] = 0;
        fclose(text);
    }
    tc_program_free(f);
    return c;
}

static counts count_fresh(grow make, int steps, bool grad)
{
    open_ctx("null");
    counts c = count(make(steps, grad));
    free(c.why);
    c.why = NULL;
    tc_ctx_free(ctx);
    return c;
}

/* Eight times the steps are some eight times the plan; a square would be 64 times. */
static void check_growth(const char *name, const char *what, long long once, long long eight)
{
    CHECK_MSG(eight <= 11 * once, "%s: %lld %s, with eight times the steps %lld", name, once, what,
              eight);
}

static void check_growth_of(const char *name, grow make, int steps, bool grad)
{
    counts one = count_fresh(make, steps, grad), eight = count_fresh(make, 8 * steps, grad);
    check_growth(name, "launches", one.info.n_steps, eight.info.n_steps);
    check_growth(name, "flops", one.info.flops, eight.info.flops);
    check_growth(name, "bytes", one.moved, eight.moved);
    check_growth(name, "bytes of workspace", one.info.arena_bytes, eight.info.arena_bytes);
    /* Steps share their kernels, sums over all of them are split and have some more: the gradients
     * of `sizes` have 28 kernels where fewer steps have 21. */
    CHECK_MSG(eight.info.n_kernels <= 28, "%s: %d kernels, then %d", name, one.info.n_kernels,
              eight.info.n_kernels);
    /* where the kernels fill two files there are two preludes */
    CHECK_MSG(eight.source <= 4 * one.source, "%s: %lld characters, then %lld", name, one.source,
              eight.source);
}

TEST(plans_grow_as_their_steps)
{
    for (int k = 0; k < KINDS; k++) {
        check_growth_of(kinds[k].name, kinds[k].make, kinds[k].steps, false);
    }
}

TEST(plans_of_gradients_grow_as_their_steps)
{
    for (int k = 0; k < KINDS; k++) {
        check_growth_of(kinds[k].name, kinds[k].make, kinds[k].steps, true);
    }
}

/* A product and what follows it: two kernels a step, and the cell is among what the second
 * writes. */
TEST(an_lstm_is_two_kernels_again_and_again)
{
    for (int steps = 10; steps <= 200; steps += 95) {
        counts c = count_fresh(lstm, steps, false);
        CHECK_EQ_INT(c.info.n_steps, 2 * steps);
        CHECK_EQ_INT(c.info.n_kernels, 3); /* nothing reads the last step's cell */
        long long products = 2LL * ROWS * WIDE * 4 * WIDE, gates = 200LL * ROWS * WIDE;
        CHECK_MSG(c.info.flops <= steps * (products + gates), "%lld flops in %d steps",
                  (long long)c.info.flops, steps);
        CHECK_MSG(c.info.arena_bytes <= 10 * ROWS * WIDE * 4, "%lld bytes of workspace",
                  (long long)c.info.arena_bytes);
    }
    counts c = count_fresh(lstm, 200, true);
    CHECK_MSG(c.info.n_steps <= 5 * 200 + 8, "%d launches with gradients", c.info.n_steps);
}

/* ---- kernels that would be too large ---- */

TEST(a_long_chain_is_cut_in_few_pieces)
{
    enum { LENGTH = 9000 };
    open_ctx("null");
    counts c = count(chain(LENGTH, false));
    CHECK_MSG(c.info.n_steps >= LENGTH / 400 && c.info.n_steps <= LENGTH / 60, "%d launches",
              c.info.n_steps);
    CHECK_MSG(c.info.n_kernels <= 4, "%d kernels", c.info.n_kernels);
    /* each piece reads x and what the piece before it wrote */
    long long most = 3LL * c.info.n_steps * ROWS * WIDE * 4;
    CHECK_MSG(c.moved <= most, "%lld bytes by %d launches", c.moved, c.info.n_steps);
    CHECK_MSG(c.info.arena_bytes <= 2 * ROWS * WIDE * 4, "%lld bytes of workspace",
              (long long)c.info.arena_bytes);
    CHECK_HAS(c.why, "gets memory: the kernel would be too large, and the fewest bytes cross here");
    free(c.why);
    tc_ctx_free(ctx);
}

/* Ops in no order, so that no two pieces are alike: the text grows as the chain. */
static graph mixed(int steps, bool grad)
{
    tc_tensor x = given(ROWS, WIDE), y = x;
    unsigned draw = 1;
    for (int t = 0; t < steps; t++) {
        draw = draw * 1664525u + 1013904223u;
        switch (draw >> 29) {
        case 0: y = tc_sin(y); break;
        case 1: y = tc_add(y, x); break;
        case 2: y = tc_maximum(y, x); break;
        case 3: y = tc_neg(y); break;
        case 4: y = tc_sqrt(tc_abs(y)); break;
        default: y = tc_mul(y, x); break;
        }
    }
    return results(y, &x, grad ? 1 : 0);
}

TEST(the_text_of_a_long_chain_grows_as_the_chain)
{
    counts one = count_fresh(mixed, 500, false), eight = count_fresh(mixed, 4000, false);
    check_growth("mixed", "characters", one.source, eight.source);
    check_growth("mixed", "flops", one.info.flops, eight.info.flops);
}

/* Ops that read what the twenty before them gave: no two pieces are alike, and values cross every
 * cut. */
static graph branching(int steps, bool grad)
{
    static tc_tensor v[MAX_STEPS + 1];
    unsigned draw = 1;
    v[0] = given(ROWS, WIDE);
    for (int t = 1; t <= steps; t++) {
        draw = draw * 1664525u + 1013904223u;
        int back = 1 + (int)((draw >> 10) % 20), from = t - back < 0 ? 0 : t - back;
        v[t] = t % 2 ? tc_add(v[t - 1], v[from]) : tc_mul(v[t - 1], tc_sub(v[from], 0.5));
    }
    return results(v[steps], v, grad ? 1 : 0);
}

/* A compiler takes more than twice the time and memory for a function of twice the size, so there
 * are more of them and not larger ones. */
TEST(kernels_of_branching_ops_grow_in_number_and_not_in_size)
{
    counts one = count_fresh(branching, 1250, false), all = count_fresh(branching, 10000, false);
    check_growth("branching", "characters", one.source, all.source);
    check_growth("branching", "kernels", one.info.n_kernels, all.info.n_kernels);
    check_growth("branching", "bytes", one.moved, all.moved);
    CHECK_MSG(all.largest <= one.largest * 5 / 4 && all.largest <= 64 * 1024,
              "functions of up to %lld characters, then %lld", one.largest, all.largest);
}

TEST(a_sum_of_thousands_of_leaves_is_cut)
{
    enum { LEAVES = 3000 };
    open_ctx("null");
    counts c = count(leaves(LEAVES, false));
    CHECK_MSG(c.info.n_steps >= LEAVES / 64 && c.info.n_steps <= LEAVES / 50, "%d launches",
              c.info.n_steps);
    CHECK_MSG(c.info.n_kernels <= 3, "%d kernels", c.info.n_kernels);
    long long most = (LEAVES + 2LL * c.info.n_steps) * ROWS * WIDE * 4;
    CHECK_MSG(c.moved <= most, "%lld bytes by %d launches", c.moved, c.info.n_steps);
    free(c.why);
    tc_ctx_free(ctx);
}

/* Blocks that spread one value over many and gather it again: cut where one value crosses. */
TEST(a_kernel_is_cut_at_its_waist)
{
    enum { BLOCKS = 30, BREADTH = 20 };
    open_ctx("null");
    tc_tensor x = given(ROWS, WIDE);
    for (int b = 0; b < BLOCKS; b++) {
        tc_tensor part[BREADTH], sum;
        for (int i = 0; i < BREADTH; i++) {
            part[i] = tc_sin(tc_mul(x, 2.5 + i));
        }
        sum = part[0];
        for (int i = 1; i < BREADTH; i++) {
            sum = tc_add(sum, part[i]);
        }
        x = sum;
    }
    graph g = {{x}, 1};
    counts c = count(g);
    CHECK_MSG(c.info.n_steps > 1, "%d launches", c.info.n_steps);
    CHECK_EQ_INT(c.moved, 2LL * c.info.n_steps * ROWS * WIDE * 4);
    free(c.why);
    tc_ctx_free(ctx);
}

/* A costly value read by several kernels is written once, a cheap one is not written. */
TEST(costly_values_are_stored)
{
    open_ctx("null");
    tc_tensor x = given(64, 64);
    for (int costly = 0; costly < 2; costly++) {
        tc_tensor v = costly ? tc_exp(x) : tc_mul(x, 2);
        graph g = {{tc_sum(v, TC_AXES(0), false), tc_sum(v, TC_AXES(1), false), tc_cumsum(v, 0)},
                   3};
        counts c = count(g);
        bool stored = strstr(c.why, "gets memory: several kernels read it") != NULL;
        CHECK_MSG(stored == (costly != 0), "%s", c.why);
        CHECK_MSG((c.info.arena_bytes >= 64 * 64 * 4) == (costly != 0), "%lld bytes of workspace",
                  (long long)c.info.arena_bytes);
        free(c.why);
    }
    tc_ctx_free(ctx);
}

/* ---- values ---- */

static void check_bits(const char *name, graph g)
{
    static float got[MAX_OUT][WIDE * 4 * WIDE], want[MAX_OUT][WIDE * 4 * WIDE];
    tci_node *roots[MAX_OUT];
    void *memory[MAX_OUT];
    tc_buf out[MAX_OUT];
    tc_program *f;
    for (int i = 0; i < g.n; i++) {
        roots[i] = tci_handle_node(g.out[i]);
        memory[i] = want[i];
        out[i] = TC_BUF(got[i], tc_count(g.out[i]));
    }
    REQUIRE(tci_reference_eval(NULL, NULL, 0, roots, memory, g.n, false) == TC_OK);
    tc_status status = tc_compile_fn((tc_tensors){0}, (tc_tensors){g.out, g.n}, NULL, &f);
    CHECK_MSG(!status, "%s", tc_error(ctx));
    if (status) {
        return;
    }
    CHECK_MSG(!tc_run(f, (tc_bufs){0}, (tc_bufs){out, g.n}), "%s", tc_error(f));
    for (int i = 0; i < g.n; i++) {
        size_t bytes = (size_t)tc_count(g.out[i]) * sizeof(float);
        CHECK_MSG(!memcmp(got[i], want[i], bytes), "%s: result %d is not the reference's", name, i);
    }
    tc_program_free(f);
}

TEST(values_are_the_reference_s_bit_for_bit)
{
    open_ctx("interp");
    for (int k = 0; k < KINDS; k++) {
        check_bits(kinds[k].name, kinds[k].make(13, false));
        if (kinds[k].make != sizes) { /* has sums of rows, whose order is another */
            check_bits(kinds[k].name, kinds[k].make(13, true));
        }
    }
    check_bits("a long chain", chain(1000, false));
    check_bits("a long chain", chain(700, true));
    check_bits("mixed", mixed(1500, false));
    check_bits("leaves", leaves(300, false));
    tc_ctx_free(ctx);
}

TEST_MAIN
