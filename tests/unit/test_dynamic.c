/* tests/unit/test_dynamic.c - sizes as symbols, from the request to the run: which sizes do buffers
 * have, instances and their lives, memory that runs out, threads. On the interpreter. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "dynamic.h"

#include <pthread.h>

#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        tc_status status_of_call = (call);                                                         \
        CHECK_EQ_INT(status_of_call, TC_OK);                                                       \
    } while (0)

/* ---- the solver alone ---- */

enum { SOLVE_PORTS = 4, SOLVE_RANK = 4, SOLVE_SYMBOLS = 3 };

/* A family that has ports and nothing else; the last of them is the output. */
typedef struct solve_family {
    tci_code code;
    tci_code_port ports[SOLVE_PORTS];
    tci_dim shapes[SOLVE_PORTS][SOLVE_RANK];
    tci_dim symbols[SOLVE_SYMBOLS], user[SOLVE_SYMBOLS];
    int n_ports;
    char text[500];
    int64_t values[SOLVE_SYMBOLS];
} solve_family;

static solve_family solve_begin(void)
{
    solve_family f;
    memset(&f, 0, sizeof(f));
    return f;
}

static tci_dim solve_symbol(solve_family *f, const char *name, int64_t least, int64_t most)
{
    int i = f->code.n_symbols++;
    f->symbols[i] = tci_dim_symbol(NULL, i, least, most);
    f->user[i] = tci_dim_symbol(name, -1, least, most);
    return f->symbols[i];
}

static void solve_port(solve_family *f, tc_dtype dtype, int rank, const tci_dim *shape)
{
    tci_code_port *p = &f->ports[f->n_ports];
    p->dtype = (int8_t)dtype;
    p->rank = rank;
    p->shape = f->shapes[f->n_ports++];
    p->n = 1;
    for (int i = 0; i < rank; i++) {
        p->shape[i] = shape[i];
        p->n = tci_dim_mul(p->n, shape[i]);
    }
}
#define SOLVE_PORT(f, dtype, ...)                                                                  \
    solve_port((f), (dtype), (int)(sizeof((tci_dim[]){__VA_ARGS__}) / sizeof(tci_dim)),            \
               (const tci_dim[]){__VA_ARGS__})

static tc_status solve(solve_family *f, const tc_buf *bufs)
{
    tc_bufs in = {bufs, f->n_ports - 1}, out = {bufs + f->n_ports - 1, 1};
    f->code.inputs = f->ports;
    f->code.n_inputs = in.n;
    f->code.outputs = f->ports + in.n;
    f->code.n_outputs = 1;
    f->code.symbols = f->symbols;
    f->text[0] = 0;
    tci_solver *v = tci_solver_make(&f->code, in.n, 1, f->user);
    REQUIRE(v);
    int64_t *room = tci_heap_get(sizeof(*room) * tci_solver_room(v));
    tc_status status = tci_solver_solve(v, room, &in, &out, f->values, f->text, sizeof(f->text));
    tci_heap_free(room);
    tci_solver_free(v);
    return status;
}
#define SOLVE(f, ...) solve((f), (const tc_buf[]){__VA_ARGS__})
#define FLOATS(n) {NULL, (n), TC_F32, false, 0, NULL, NULL}
#define UNTYPED(n) {NULL, (n), -1, false, 0, NULL, NULL}

TEST(one_size_from_one_number)
{
    solve_family f = solve_begin();
    tci_dim batch = solve_symbol(&f, "batch", 0, 4096);
    SOLVE_PORT(&f, TC_F32, batch, 7);
    SOLVE_PORT(&f, TC_F32, batch);
    for (int64_t n = 0; n <= 4096; n += n < 70 ? 1 : 503) {
        CHECK_OK(SOLVE(&f, FLOATS(n * 7), FLOATS(n)));
        CHECK_EQ_INT(f.values[0], n);
    }
    CHECK_EQ_INT(SOLVE(&f, FLOATS(15), FLOATS(2)), TC_ERR_BUFFER);
    CHECK_STR(f.text, "input 0: given 15 elements for f32 [batch, 7]: no 'batch' in 0 to 4096 gives"
                      " that: 2 makes 14, 3 makes 21");
    CHECK_EQ_INT(SOLVE(&f, FLOATS(7 * 4097), FLOATS(4097)), TC_ERR_BUFFER);
    CHECK_STR(f.text, "input 0: given 28679 elements for f32 [batch, 7]: 'batch' would be 4097,"
                      " expected 0 to 4096");
    CHECK_EQ_INT(SOLVE(&f, FLOATS(21), FLOATS(4)), TC_ERR_BUFFER);
    CHECK_STR(f.text, "output 0: given 4 elements for f32 [batch]: 'batch' would be 4, but input 0"
                      " makes it 3");
    CHECK_EQ_INT(SOLVE(&f, FLOATS(-7), FLOATS(1)), TC_ERR_BUFFER);
    CHECK_EQ_INT(SOLVE(&f, FLOATS(INT64_MAX), FLOATS(1)), TC_ERR_BUFFER);
}

TEST(ranges_that_begin_above_0)
{
    solve_family f = solve_begin();
    tci_dim n = solve_symbol(&f, "n", 3, 5);
    SOLVE_PORT(&f, TC_F32, n, n);
    SOLVE_PORT(&f, TC_F32, 1);
    for (int64_t i = 0; i <= 30; i++) {
        bool fits = i == 9 || i == 16 || i == 25;
        CHECK_EQ_INT(SOLVE(&f, FLOATS(i), FLOATS(1)), fits ? TC_OK : TC_ERR_BUFFER);
    }
    CHECK_EQ_INT(SOLVE(&f, FLOATS(4), FLOATS(1)), TC_ERR_BUFFER);
    CHECK_HAS(f.text, "'n' would be 2, expected 3 to 5");
}

TEST(sizes_that_fall_and_sizes_in_steps)
{
    solve_family f = solve_begin();
    tci_dim n = solve_symbol(&f, "n", 0, 50);
    SOLVE_PORT(&f, TC_F32, tci_dim_add(100, tci_dim_mul(n, -2)), 3);
    SOLVE_PORT(&f, TC_F32, tci_dim_div(n, 4));
    for (int64_t i = 0; i <= 50; i++) {
        CHECK_OK(SOLVE(&f, FLOATS((100 - 2 * i) * 3), FLOATS(i / 4)));
        CHECK_EQ_INT(f.values[0], i);
    }
    CHECK_EQ_INT(SOLVE(&f, FLOATS(3 * 3), FLOATS(12)), TC_ERR_BUFFER);

    solve_family g = solve_begin();
    n = solve_symbol(&g, "n", 0, 50);
    SOLVE_PORT(&g, TC_F32, tci_dim_div(n, 4));
    SOLVE_PORT(&g, TC_F32, tci_dim_div(tci_dim_add(n, 2), 4));
    CHECK_EQ_INT(SOLVE(&g, FLOATS(3), FLOATS(3)), TC_ERR_BUFFER); /* 12 or 13 */
    CHECK_STR(g.text, "'n': not certain from the buffers given, and no size of one would tell;"
                      " expected a program with one more input that has an axis of size 'n'");
    CHECK_OK(SOLVE(&g, FLOATS(12), FLOATS(13))); /* 50, where the range ends */
    CHECK_EQ_INT(g.values[0], 50);
}

/* batch * 3 * height * 64 alone says neither; the output of a strided convolution does. */
TEST(two_sizes_from_products)
{
    solve_family f = solve_begin();
    tci_dim batch = solve_symbol(&f, "batch", 0, 4096), height = solve_symbol(&f, "height", 1, 512);
    tci_dim half = tci_dim_add(tci_dim_div(tci_dim_add(height, -1), 2), 1);
    SOLVE_PORT(&f, TC_F32, batch, 3, height, 64);
    SOLVE_PORT(&f, TC_F32, batch, 8, half, 32);
    int64_t cases[6][2] = {{1, 1}, {2, 7}, {31, 64}, {64, 31}, {4096, 512}, {13, 511}};
    for (int i = 0; i < 6; i++) {
        int64_t b = cases[i][0], h = cases[i][1];
        int64_t n = b * 3 * h * 64, m = b * 8 * ((h - 1) / 2 + 1) * 32;
        tc_status status = SOLVE(&f, FLOATS(n), FLOATS(m));
        if (status == TC_OK) {
            CHECK(f.values[0] == b && f.values[1] == h);
        } else { /* even heights: the output is half in both, so nothing tells */
            CHECK(h % 2 == 0);
            CHECK_STR(f.text, "'batch', 'height': not certain from the numbers of elements given;"
                              " expected the sizes of input 0, as TC_BUF_ND(pointer, sizes...)");
        }
        int64_t sizes[4] = {b, 3, h, 64};
        CHECK_OK(SOLVE(&f, {NULL, n, TC_F32, false, 4, sizes, NULL}, FLOATS(m)));
        CHECK(f.values[0] == b && f.values[1] == h);
    }
    CHECK_OK(SOLVE(&f, FLOATS(0), FLOATS(0))); /* nothing is written: any height does */
    CHECK_EQ_INT(f.values[0], 0);
    CHECK_EQ_INT(SOLVE(&f, FLOATS(3 * 64 * 7), FLOATS(8 * 32)), TC_ERR_BUFFER);
    CHECK_HAS(f.text, "the numbers of elements given fit no 'batch', 'height'");
}

/* 3 * ceil(n / 3) - n goes up and down: whatever fits is found, and no valid run is refused. */
TEST(sizes_that_go_up_and_down)
{
    for (int k = 0; k < 3; k++) {
        solve_family f = solve_begin();
        int64_t most = k ? (int64_t)1 << 40 : 100;
        tci_dim n = solve_symbol(&f, "n", 0, most);
        tci_dim missing = tci_dim_sub(tci_dim_mul(tci_dim_ceil_div(n, 3), 3), n);
        SOLVE_PORT(&f, TC_F32, missing, 5);
        SOLVE_PORT(&f, TC_F32, k == 2 ? tci_dim_sub(n, tci_dim_div(n, 3)) : n); /* or 2n / 3 */
        for (int64_t i = 0; i <= 100; i++) {
            int64_t all = i < 90 ? i : most - i, rest = (all + 2) / 3 * 3 - all;
            int64_t other = k == 2 ? all - all / 3 : all;
            tc_status status = SOLVE(&f, FLOATS(rest * 5), FLOATS(other));
            CHECK_MSG(status == TC_OK && f.values[0] == all, "%lld: %s", (long long)all, f.text);
            status = SOLVE(&f, FLOATS(rest * 5 + 1), FLOATS(other));
            CHECK_EQ_INT(status, TC_ERR_BUFFER);
        }
        CHECK_EQ_INT(SOLVE(&f, FLOATS(15), FLOATS(6)), TC_ERR_BUFFER);
        CHECK_HAS(f.text, k ? "'n' would be " : "input 0: given 15 elements for f32 [");
    }
    solve_family g = solve_begin(); /* it alone tells nothing, but takes no time to say so */
    tci_dim n = solve_symbol(&g, "n", 0, (int64_t)1 << 40);
    SOLVE_PORT(&g, TC_F32, tci_dim_sub(tci_dim_mul(tci_dim_ceil_div(n, 3), 3), n));
    SOLVE_PORT(&g, TC_F32, 1);
    CHECK_EQ_INT(SOLVE(&g, FLOATS(2), FLOATS(1)), TC_ERR_BUFFER);
    CHECK_HAS(g.text, "'n': not certain from the buffers given, and no size of one would tell");
    CHECK_EQ_INT(SOLVE(&g, FLOATS(3), FLOATS(1)), TC_ERR_BUFFER);
}

TEST(three_sizes_from_their_products)
{
    solve_family f = solve_begin();
    tci_dim a = solve_symbol(&f, "a", 1, 100000), b = solve_symbol(&f, "b", 1, 100000),
            c = solve_symbol(&f, "c", 1, 100000);
    SOLVE_PORT(&f, TC_F32, a, b);
    SOLVE_PORT(&f, TC_F32, b, c);
    SOLVE_PORT(&f, TC_F32, a, c);
    CHECK_OK(SOLVE(&f, FLOATS(1200 * 7), FLOATS(7 * 90), FLOATS(1200 * 90)));
    CHECK(f.values[0] == 1200 && f.values[1] == 7 && f.values[2] == 90);
    CHECK_EQ_INT(SOLVE(&f, FLOATS(1200 * 7), FLOATS(7 * 90), FLOATS(1200 * 90 + 1)), TC_ERR_BUFFER);
}

TEST(given_sizes_must_be_those_of_the_port)
{
    solve_family f = solve_begin();
    tci_dim batch = solve_symbol(&f, "batch", 1, 8);
    SOLVE_PORT(&f, TC_F32, batch, 4);
    SOLVE_PORT(&f, TC_F32, tci_dim_mul(batch, 2));
    int64_t sizes[2] = {3, 4}, other[1] = {8}, many[2] = {9, 4};
    CHECK_OK(SOLVE(&f, {NULL, 12, TC_F32, false, 2, sizes, NULL}, FLOATS(6)));
    CHECK_EQ_INT(f.values[0], 3);
    CHECK_EQ_INT(SOLVE(&f, {NULL, 12, TC_F32, false, 2, sizes, NULL},
                       {NULL, 8, TC_F32, false, 1, other, NULL}),
                 TC_ERR_BUFFER);
    CHECK_STR(f.text, "output 0: given size 8 on axis 0 of f32 [2*batch]: 'batch' would be 4, but"
                      " input 0 makes it 3");
    CHECK_EQ_INT(SOLVE(&f, {NULL, 36, TC_F32, false, 2, many, NULL}, FLOATS(6)), TC_ERR_BUFFER);
    CHECK_STR(f.text, "input 0: given size 9 on axis 0 of f32 [batch, 4]: 'batch' would be 9,"
                      " expected 1 to 8");
    CHECK_EQ_INT(SOLVE(&f, {NULL, 8, TC_F32, false, 1, other, NULL}, FLOATS(6)), TC_ERR_BUFFER);
    CHECK_STR(f.text, "input 0: given 1 sizes, expected f32 [batch, 4]");
}

TEST(untyped_numbers_count_bytes)
{
    solve_family f = solve_begin();
    tci_dim n = solve_symbol(&f, "n", 0, 1000);
    SOLVE_PORT(&f, TC_F32, n);
    SOLVE_PORT(&f, TC_F32, n, 2);
    CHECK_OK(SOLVE(&f, UNTYPED(64), FLOATS(32)));
    CHECK_EQ_INT(f.values[0], 16);
    CHECK_OK(SOLVE(&f, UNTYPED(64), UNTYPED(128)));
    CHECK_EQ_INT(f.values[0], 16);
    CHECK_EQ_INT(SOLVE(&f, UNTYPED(64), FLOATS(128)), TC_ERR_BUFFER);
    CHECK_EQ_INT(SOLVE(&f, UNTYPED(65), UNTYPED(130)), TC_ERR_BUFFER); /* no whole elements */
    CHECK_HAS(f.text, "input 0: given 65 bytes of untyped memory for f32 [n]");
    CHECK_OK(SOLVE(&f, UNTYPED(0), UNTYPED(0)));
    CHECK_EQ_INT(f.values[0], 0);
}

/* A random family of n symbols, small enough to try every value, and what a run would give it. */
enum { DRAWN_MOST = 6 };

typedef struct solve_drawn {
    solve_family f;
    int n;
    int64_t least[SOLVE_SYMBOLS];
    tc_buf bufs[SOLVE_PORTS];
} solve_drawn;

static tci_dim solve_draw_size(tci_dim s)
{
    switch (tct_random_below(7)) {
    case 5: return tci_dim_sub(tci_dim_mul(tci_dim_ceil_div(s, 3), 3), s); /* up and down */
    case 6: return tci_dim_max(tci_dim_sub(4, s), tci_dim_sub(s, 1));
    case 0: return tci_dim_add(s, tct_random_below(3));
    case 1: return tci_dim_div(tci_dim_add(s, 1), 2);
    case 2: return tci_dim_mul(s, 1 + tct_random_below(3));
    case 3: return 1 + tct_random_below(4);
    default: return s;
    }
}

static solve_drawn solve_draw(void)
{
    static const char *const names[SOLVE_SYMBOLS] = {"a", "b", "c"};
    solve_drawn d;
    memset(&d, 0, sizeof(d));
    d.n = 1 + tct_random_below(SOLVE_SYMBOLS);
    tci_dim symbols[SOLVE_SYMBOLS];
    int64_t truth[SOLVE_SYMBOLS] = {0};
    for (int i = 0; i < d.n; i++) {
        d.least[i] = tct_random_below(2);
        symbols[i] = solve_symbol(&d.f, names[i], d.least[i], DRAWN_MOST);
        truth[i] = d.least[i] + tct_random_below((int)(DRAWN_MOST + 1 - d.least[i]));
    }
    int n_ports = 2 + tct_random_below(2);
    bool wrong = tct_random_below(8) == 0;
    for (int p = 0; p < n_ports; p++) {
        tci_dim shape[3];
        for (int a = 0; a < 3; a++) {
            shape[a] = solve_draw_size(symbols[tct_random_below(d.n)]);
        }
        solve_port(&d.f, TC_F32, 3, shape);
        bool open = !tci_dim_is_known(d.f.ports[p].n); /* known ones are checked by the run */
        int64_t count = tci_dim_value(d.f.ports[p].n, truth) + (wrong && p == 0 && open);
        bool untyped = tct_random_below(4) == 0;
        d.bufs[p] = (tc_buf){.n = untyped ? count * 4 : count, .dtype = untyped ? -1 : TC_F32};
    }
    return d;
}

/* How many values fit; the last of them. */
static int solve_try_all(const solve_drawn *d, int64_t fit[SOLVE_SYMBOLS])
{
    int n_fit = 0;
    int64_t v[SOLVE_SYMBOLS] = {0}, n_all = d->n == 1 ? 7 : d->n == 2 ? 49 : 343;
    for (int64_t all = 0; all < n_all; all++) {
        bool fits = true;
        for (int64_t i = 0, rest = all; i < d->n; i++, rest /= 7) {
            v[i] = rest % 7;
            fits = fits && v[i] >= d->least[i];
        }
        for (int p = 0; p < d->f.n_ports && fits; p++) {
            int64_t count = tci_dim_value(d->f.ports[p].n, v);
            fits = d->bufs[p].n == (d->bufs[p].dtype == -1 ? count * 4 : count);
        }
        if (fits) {
            n_fit++;
            memcpy(fit, v, sizeof(v));
        }
    }
    return n_fit;
}

/* The solver finds the only solution, and never takes one of several. */
TEST(solutions_are_those_of_trying_everything)
{
    int n_certain = 0, n_open = 0, n_none = 0;
    for (int round = 0; round < (tct_soak ? 20000 : 2000); round++) {
        solve_drawn d = solve_draw();
        for (int p = 0; p < d.f.n_ports; p++) { /* it was copied */
            d.f.ports[p].shape = d.f.shapes[p];
        }
        int64_t fit[SOLVE_SYMBOLS] = {0};
        int n_fit = solve_try_all(&d, fit);
        tc_status status = solve(&d.f, d.bufs);
        bool empty = d.bufs[d.f.n_ports - 1].n == 0;
        CHECK_MSG(status == (n_fit == 1 || (n_fit && empty) ? TC_OK : TC_ERR_BUFFER),
                  "round %d: %d fit, status %d: %s", round, n_fit, (int)status, d.f.text);
        if (status == TC_OK && n_fit == 1) {
            CHECK_MSG(!memcmp(fit, d.f.values, sizeof(*fit) * (size_t)d.n), "round %d", round);
        }
        n_certain += n_fit == 1;
        n_open += n_fit > 1;
        n_none += n_fit == 0;
    }
    CHECK(n_certain > 200 && n_open > 200 && n_none > 100);
}

/* ---- programs ---- */

enum { MANY_SYMBOLS = 150 };

/* A program has as many symbols as it uses. */
TEST(more_symbols_than_there_are_bits)
{
    static float memory[MANY_SYMBOLS][3], out[3 * MANY_SYMBOLS];
    tc_tensor parts[MANY_SYMBOLS];
    tc_buf in[MANY_SYMBOLS];
    tc_ctx *ctx = dyn_ctx("interp", 1, NULL);
    REQUIRE(ctx);
    for (int i = 0; i < MANY_SYMBOLS; i++) {
        char name[8];
        snprintf(name, sizeof(name), "n%d", i);
        tc_tensor x = tc_input(ctx, name, TC_F32, TC_DIM(name, 0, 3));
        parts[i] = tc_expand(tc_sum(x, TC_ALL, false), 1);
        memory[i][0] = memory[i][1] = memory[i][2] = (float)i;
        in[i] = TC_BUF(memory[i], i % 4);
    }
    tc_program *f = NULL;
    tc_tensors list = {parts, MANY_SYMBOLS};
    CHECK_EQ_INT(tc_compile(tc_cat(list, 0), &f), TC_OK);
    REQUIRE(f);
    tc_bufs all = {in, MANY_SYMBOLS};
    CHECK_EQ_INT(tc_run(f, all, TC_BUFS(TC_BUF(out, MANY_SYMBOLS))), TC_OK);
    for (int i = 0; i < MANY_SYMBOLS; i++) {
        CHECK_EQ_INT((int)out[i], i * (i % 4));
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

static int64_t dyn_compiles(tc_ctx *ctx)
{
    tc_stats stats;
    tc_stats(ctx, &stats);
    return stats.compiles;
}

TEST(any_size_is_right_on_the_interpreter)
{
    for (int c = 0; c < DYN_CASES; c++) {
        const dyn_case *at = &dyn_cases[c];
        tc_ctx *ctx = dyn_ctx("interp", 1, NULL), *fixed = dyn_ctx("interp", 1, NULL);
        REQUIRE(ctx && fixed);
        tc_program *f = dyn_compile(ctx, at, TC_DIM("batch", 0, 5000), TC_DIM("height", 1, 600));
        if (f) {
            for (int i = 0; i < 7; i++) {
                int64_t height = at->has_height ? 1 + (i * 29) % 64 : 1;
                int64_t batch = at->has_height ? TCI_MIN(dyn_sizes[i], 64) : dyn_sizes[i];
                dyn_check_at(fixed, at, f, batch, height);
            }
            dyn_check_at(fixed, at, f, 3, at->has_height ? 513 : 1);
        }
        tc_program_free(f);
        tc_ctx_free(fixed);
        tc_ctx_free(ctx);
    }
}

/* Contractions of the graph as it is planned, by what an example of the batch takes. */
static int64_t dyn_contracted(tc_tensor y, int64_t batch)
{
    tc_options o = {.backend = "interp"};
    tci_node *root = tci_handle_node(y);
    volatile int64_t n = 0; /* of products */
    tci_scratch s;
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        CHECK_MSG(false, "%s", s.message);
    } else {
        tci_request *r = tci_request_make(&s, NULL, 0, &root, 1, &o, NULL, NULL);
        tci_request_copy copy = tci_request_copy_graph(&s, r, NULL);
        tci_node **now = tci_rewrite(&s, copy.graph, copy.roots, 1);
        tci_node_list list = tci_graph_sort(&s, now, 1);
        for (int i = 0; i < list.n; i++) {
            const tci_node *c = list.items[i];
            if (c->op == TCI_OP_CONTRACT) {
                tci_dim all = tci_dim_mul(tci_node_count(c), tci_node_count(c->in[1]));
                n += tci_dim_hint(all) / batch;
            }
        }
    }
    tci_scratch_free(&s);
    return n;
}

/* Of a symbolic batch no more is computed than of one that is known. */
TEST(parts_of_contractions_over_a_symbolic_batch)
{
    tc_ctx *ctx = dyn_ctx("interp", 1, NULL);
    tc_tensor in[DYN_INPUTS];
    REQUIRE(ctx);
    int64_t batch = TC_DIM("batch", 1, 5000), typical = tci_dim_hint((tci_dim)batch);
    tc_tensor x = tc_input(ctx, "x", TC_F32, batch, 5);
    tc_tensor whole = tc_matmul(x, tc_zeros(ctx, TC_F32, 5, 9));
    CHECK_EQ_INT(dyn_contracted(whole, typical), 9 * 5 * 9);
    CHECK_EQ_INT(dyn_contracted(tc_slice(whole, 1, 2, 8, 1), typical), 6 * 5 * 6);
    CHECK_EQ_INT(dyn_contracted(dyn_parts(ctx, batch, 1, in), typical),
                 dyn_contracted(dyn_parts(ctx, 64, 1, in), 64));
    tc_ctx_free(ctx);
}

TEST(one_compile_serves_all_sizes)
{
    tc_ctx *ctx = dyn_ctx("interp", 1, NULL);
    REQUIRE(ctx);
    int64_t before = dyn_compiles(ctx);
    const dyn_case *c = &dyn_cases[1];
    tc_program *f = dyn_compile(ctx, c, TC_DIM("batch", 0, 4998), 1);
    REQUIRE(f);
    for (int i = 0; i < 7; i++) {
        dyn_memory m = dyn_fill(c, dyn_sizes[i], 1);
        CHECK_OK(dyn_run(f, &m));
        dyn_drop(&m);
    }
    CHECK_EQ_INT(dyn_compiles(ctx), before + 1);
    /* names are in no key: another name is the same code */
    tc_program *g = dyn_compile(ctx, c, TC_DIM("rows", 0, 4998), 1);
    CHECK_EQ_INT(dyn_compiles(ctx), before + 1);
    dyn_memory m = dyn_fill(c, 4999, 1);
    CHECK_EQ_INT(dyn_run(g, &m), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(g), "'rows' would be 4999, expected 0 to 4998");
    CHECK_EQ_INT(dyn_run(f, &m), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "'batch' would be 4999, expected 0 to 4998");
    dyn_drop(&m);
    /* another range is another program */
    tc_program *h = dyn_compile(ctx, c, TC_DIM("rows", 0, 4999), 1);
    CHECK_EQ_INT(dyn_compiles(ctx), before + 2);
    tc_program_free(f);
    tc_program_free(g);
    tc_program_free(h);
    tc_ctx_free(ctx);
}

static int dyn_instances(const tc_program *f)
{
    int n = 0;
    for (const tci_instance *x = f->dynamic->first; x; x = x->next) {
        n++;
    }
    return n;
}

TEST(instances_are_kept_and_the_oldest_go)
{
    const dyn_case *c = &dyn_cases[0];
    tc_ctx *ctx = dyn_ctx("interp", 1, NULL);
    REQUIRE(ctx);
    tc_program *f = dyn_compile(ctx, c, TC_DIM("batch", 0, 5000), 1);
    REQUIRE(f);
    dyn_memory m[20];
    for (int i = 0; i < 20; i++) {
        m[i] = dyn_fill(c, 2 + i, 1);
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 20; i++) {
            CHECK_OK(dyn_run(f, &m[i]));
            CHECK_EQ_INT(f->dynamic->first->values[0], 2 + i);
        }
        CHECK_EQ_INT(dyn_instances(f), TCI_DYNAMIC_KEPT);
    }
    /* those that are kept come back without a request for memory, after one round of each */
    for (int round = 0; round < 3; round++) {
        long count = tci_test_alloc_count;
        for (int i = 20 - TCI_DYNAMIC_KEPT; i < 20; i++) {
            CHECK_OK(dyn_run(f, &m[i]));
        }
        CHECK_MSG(round == 0 || tci_test_alloc_count == count, "%ld requests",
                  (long)tci_test_alloc_count - count);
    }
    for (int i = 0; i < 20; i++) {
        dyn_drop(&m[i]);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(calls_bind_anew_when_sizes_change)
{
    const dyn_case *c = &dyn_cases[0];
    tc_ctx *ctx = dyn_ctx("interp", 1, NULL);
    REQUIRE(ctx);
    tc_program *f = dyn_compile(ctx, c, TC_DIM("batch", 0, 5000), 1);
    REQUIRE(f);
    tc_call *call = NULL;
    CHECK_OK(tc_call_make(f, &call));
    tc_program_free(f); /* calls stay usable */
    REQUIRE(call);
    for (int i = 0; i < 40; i++) {
        int64_t batch = i * 7 % 12;
        dyn_memory m = dyn_fill(c, batch, 1);
        CHECK_OK(tc_run_call(call,
                             TC_BUFS(TC_BUF(m.in[0], m.n_in[0]), TC_BUF(m.in[1], m.n_in[1]),
                                     TC_BUF(m.in[2], m.n_in[2])),
                             TC_BUFS(TC_BUF(m.out, m.n_out))));
        CHECK(m.out[m.n_out] == -77);
        CHECK(batch == 0 || m.out[m.n_out - 1] != -77);
        dyn_drop(&m);
    }
    float x[7] = {0}, y[1] = {0}, z[7] = {0}, out[14];
    CHECK_EQ_INT(tc_run_call(call, TC_BUFS(TC_BUF(x, 7), TC_BUF(y, 1), TC_BUF(z, 7)),
                             TC_BUFS(TC_BUF(out, 14))),
                 TC_ERR_BUFFER);
    CHECK_HAS(tc_error(call), "'batch' would be 2, but input 0 makes it 1");
    CHECK_EQ_INT(tc_run_call(call, TC_BUFS(TC_BUF(x, 7), TC_BUF(y, 1), TC_BUF(z, 6)),
                             TC_BUFS(TC_BUF(out, 7))),
                 TC_ERR_BUFFER);
    CHECK_HAS(tc_error(call), "input 2: given 6 elements, expected 7 of f32, shape [7]");
    CHECK_EQ_INT(tc_run_call(call, TC_BUFS(TC_BUF(x, 7), TC_BUF(y, 1)), TC_BUFS(TC_BUF(out, 7))),
                 TC_ERR_BUFFER);
    CHECK_HAS(tc_error(call), "given 2 inputs and 1 outputs, expected 3 and 1");
    tc_call_free(call);
    tc_ctx_free(ctx);
}

TEST(other_checks_of_buffers_stay)
{
    tc_ctx *ctx = dyn_ctx("interp", 1, NULL);
    REQUIRE(ctx);
    tc_tensor x = tc_input(ctx, "x", TC_F32, TC_DIM("n", 1, 100));
    tc_program *f = NULL;
    CHECK_OK(tc_compile(tc_add(tc_flip(x, 0), x), &f));
    REQUIRE(f);
    float in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8];
    double wide[8] = {0};
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(in, 4)), TC_BUFS(TC_BUF(out, 4))));
    CHECK(out[0] == 5 && out[3] == 5);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(wide, 4)), TC_BUFS(TC_BUF(out, 4))), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "input 0: given f64, expected f32");
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF((float *)NULL, 4)), TC_BUFS(TC_BUF(out, 4))),
                 TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "input 0: given NULL, expected 4 f32, shape [4]");
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 4)), TC_BUFS(TC_BUF((const float *)out, 4))),
                 TC_ERR_BUFFER);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 4)), TC_BUFS(TC_BUF(in + 2, 4))), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "overlaps");
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF_ND(in, 8)), TC_BUFS(TC_BUF((void *)out, 32))));
    CHECK(out[0] == 9 && out[7] == 9);
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF_ND(in, 2)), TC_BUFS(TC_BUF_ND(out, 2))));
    CHECK(out[0] == 3 && out[1] == 3 && out[2] == 9);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Sizes that are given are held against the shape where that is known, too. */
TEST(given_sizes_where_none_is_open)
{
    tc_ctx *ctx = dyn_ctx("interp", 1, NULL);
    REQUIRE(ctx);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 2, 3);
    tc_program *f = NULL;
    CHECK_OK(tc_compile(tc_neg(x), &f));
    REQUIRE(f);
    float in[6] = {1, 2, 3, 4, 5, 6}, out[6] = {0};
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF_ND(in, 2, 3)), TC_BUFS(TC_BUF_ND(out, 2, 3))));
    CHECK(out[5] == -6);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF_ND(in, 3, 2)), TC_BUFS(TC_BUF(out, 6))), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "input 0: given sizes [3, 2], expected [2, 3]");
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 6)), TC_BUFS(TC_BUF_ND(out, 6))), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "output 0: given sizes [6], expected [2, 3]");
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF_ND(in, INT64_MAX, 8)), TC_BUFS(TC_BUF(out, 6))),
                 TC_ERR_BUFFER);
    CHECK_EQ_INT(tc_output_size(f, TC_BUFS(TC_BUF(in, 6)), 0, -1), 3);
    CHECK_EQ_INT(tc_output_count(f, TC_BUFS(TC_BUF(in, 6)), 0), 6);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(sizes_of_outputs_before_a_run)
{
    tc_ctx *ctx = dyn_ctx("interp", 1, NULL);
    REQUIRE(ctx);
    const dyn_case *c = &dyn_cases[3];
    tc_program *f = dyn_compile(ctx, c, TC_DIM("batch", 0, 64), TC_DIM("height", 1, 64));
    REQUIRE(f);
    float *none = NULL;
    tc_buf x = TC_BUF_ND(none, 5, 3, 9, DYN_WIDTH), w = TC_BUF(none, 108), b = TC_BUF(none, 4);
    CHECK_EQ_INT(tc_output_size(f, TC_BUFS(x, w, b), 0, 0), 5);
    CHECK_EQ_INT(tc_output_size(f, TC_BUFS(x, w, b), 0, -2), 5);
    CHECK_EQ_INT(tc_output_count(f, TC_BUFS(x, w, b), 0), 5 * 4 * 5 * 3);
    tc_buf counted = TC_BUF(none, 5 * 3 * 9 * DYN_WIDTH);
    CHECK_EQ_INT(tc_output_count(f, TC_BUFS(counted, w, b), 0), -1);
    CHECK_HAS(tc_error(f), "tc_output_count: 'batch', 'height': not certain");
    CHECK_EQ_INT(tc_output_size(f, TC_BUFS(x, w, b), 1, 0), -1);
    CHECK_HAS(tc_error(f), "given output 1, expected 0 to 0");
    CHECK_EQ_INT(tc_output_size(f, TC_BUFS(x, w, b), 0, 4), -1);
    CHECK_HAS(tc_error(f), "given axis 4 of a tensor of rank 4");
    CHECK_EQ_INT(tc_output_size(f, TC_BUFS(x, w), 0, 0), -1);
    CHECK_EQ_INT(tc_output_size(NULL, TC_BUFS(x, w), 0, 0), -1);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(sizes_that_no_buffer_tells)
{
    tc_ctx *ctx = dyn_ctx("interp", 1, NULL);
    REQUIRE(ctx);
    tc_tensor ones = tc_full(ctx, 1.5, TC_F32, TC_DIM("n", 0, 9), 3);
    tc_tensor sum = tc_sum(ones, TC_ALL, false);
    tc_program *f = NULL;
    CHECK_EQ_INT(tc_compile(sum, &f), TC_ERR_SHAPE);
    CHECK(!f);
    CHECK_HAS(tc_error(sum), "'n' is the size of no axis of an input or output");
    float out[6] = {0}, total = 0;
    CHECK_OK(tc_compile_fn(TC_TENSORS(), TC_TENSORS(sum, ones), NULL, &f)); /* an output does */
    CHECK_OK(tc_run(f, TC_BUFS(), TC_BUFS(TC_BUF(&total, 1), TC_BUF(out, 6))));
    CHECK(out[5] == 1.5f && total == 9);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Buffers have numbers; and what a floor hides, no size of a buffer tells. */
TEST(sizes_that_buffers_cannot_have)
{
    tc_ctx *ctx = dyn_ctx("interp", 1, NULL);
    REQUIRE(ctx);
    float in[16] = {1, 1, 1}, out[16];
    int64_t n = TC_DIM("n", 1, 64);
    tc_tensor x = tc_input(ctx, "x", TC_F32, n);
    tc_program *f = NULL, *g = NULL, *h = NULL;
    CHECK_OK(tc_compile(tc_neg(x), &f));
    const char *text = "given a symbolic size, expected the number that it is in this run for f32";
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, n)), TC_BUFS(TC_BUF(out, 8))), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), text);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF_ND(in, n)), TC_BUFS(TC_BUF(out, 8))), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), text);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 8)), TC_BUFS(TC_BUF(out, n / 8))), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), text);
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(in, 8)), TC_BUFS(TC_BUF(out, 8))));
    tc_tensor y = tc_input(ctx, "y", TC_F32, tc_dim_div(n, 4)), z = tc_mul(y, n);
    CHECK_OK(tc_compile_fn(TC_TENSORS(y), TC_TENSORS(z), NULL, &g));
    CHECK_EQ_INT(tc_run(g, TC_BUFS(TC_BUF_ND(in, 3)), TC_BUFS(TC_BUF(out, 3))), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(g), "'n': not certain from the buffers given, and no size of one would tell;"
                           " expected a program with one more input that has an axis of size 'n'");
    CHECK_OK(tc_compile_fn(TC_TENSORS(y, x), TC_TENSORS(z), NULL, &h)); /* as it says */
    CHECK_OK(tc_run(h, TC_BUFS(TC_BUF(in, 3), TC_BUF(in, 13)), TC_BUFS(TC_BUF(out, 3))));
    CHECK(out[0] == 13);
    tc_program_free(f);
    tc_program_free(g);
    tc_program_free(h);
    tc_ctx_free(ctx);
}

TEST(parameters_are_changed_at_any_size)
{
    tc_ctx *ctx = dyn_ctx("interp", 1, NULL);
    REQUIRE(ctx);
    float start[3] = {10, 20, 30}, x[15], value[3];
    tc_tensor p = tc_param(ctx, start, TC_F32, 3);
    tc_tensor in = tc_input(ctx, "x", TC_F32, TC_DIM("batch", 0, 8), 3);
    tc_tensor sums = tc_sum(tc_mul(in, p), TC_AXES(0), false);
    tc_tensor update = tc_assign(p, tc_add(p, sums));
    tc_program *f = NULL;
    CHECK_OK(tc_compile_fn(TC_TENSORS(in), TC_TENSORS(sums, update), NULL, &f));
    REQUIRE(f);
    for (int i = 0; i < 15; i++) {
        x[i] = 0.5f;
    }
    float expected[3] = {10, 20, 30}, out[3];
    for (int batch = 0; batch <= 5; batch++) {
        CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(x, batch * 3)), TC_BUFS(TC_BUF(out, 3))));
        CHECK_OK(tc_read(p, value, 3));
        for (int i = 0; i < 3; i++) {
            float sum = 0.5f * (float)batch * expected[i];
            CHECK_CLOSE(out[i], sum, 1e-6);
            expected[i] += sum;
            CHECK_CLOSE(value[i], expected[i], 1e-6);
        }
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(ports_have_the_sizes_of_the_user)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = "interp", .no_disk_cache = true, .threads = 1};
    CHECK_OK(tc_ctx_make(&ctx, &o));
    REQUIRE(ctx);
    int64_t batch = TC_DIM("batch", 1, 50);
    tc_tensor x = tc_input(ctx, "x", TC_F32, batch, 8), y = tc_cat(TC_TENSORS(x, x), 0);
    tc_program *f = NULL;
    tc_port in = {0}, out = {0};
    CHECK_OK(tc_compile(y, &f));
    REQUIRE(f);
    CHECK_OK(tc_program_get_input(f, 0, &in));
    CHECK_OK(tc_program_get_output(f, 0, &out));
    CHECK(in.sizes[0] == batch && in.sizes[1] == 8 && out.sizes[0] == tc_dim_mul(batch, 2));
    CHECK_EQ_INT(tc_program_find_input(f, "x"), 0);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Rows in pairs, and their sum: [n, m] gives [n / 2 + 1, m], the last row of zeros. */
static bool pairs_shape(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
{
    (void)user;
    out->sizes[0] = tc_dim_add(tc_dim_div(in[0].sizes[0], 2), 1);
    return n == 1 && in[0].rank == 2 && in[0].dtype == TC_F32 &&
           in[0].n == tc_dim_mul(in[0].sizes[0], in[0].sizes[1]);
}

static void pairs_run(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
{
    const float *x = in[0].data;
    float *y = out->data;
    int64_t m = in[0].sizes[1];
    (void)user;
    (void)n;
    for (int64_t i = 0; i < out->sizes[0] - 1; i++) {
        for (int64_t j = 0; j < m; j++) {
            y[i * m + j] = x[2 * i * m + j] + x[(2 * i + 1) * m + j];
        }
    }
    for (int64_t j = 0; j < m; j++) {
        y[out->n - m + j] = (float)in[0].n;
    }
}

static bool doubled_shape(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
{
    (void)user;
    (void)n;
    uint64_t size = (uint64_t)in[0].sizes[0];
    out->sizes[0] = (int64_t)(2 * size); /* which is no arithmetic of symbolic sizes */
    return true;
}

static void check_custom_of_any_size(const char *backend, const char *dir, bool from_disk)
{
    static const tc_custom_op pairs = {.name = "pairs", .shape = pairs_shape, .run = pairs_run};
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = backend,
                    .threads = 1,
                    .verify = true,
                    .memory_cache_bytes = -1,
                    .no_disk_cache = !dir,
                    .cache_dir = dir};
    CHECK_OK(tc_ctx_make(&ctx, &o));
    REQUIRE(ctx);
    tc_tensor x = tc_input(ctx, "x", TC_F32, TC_DIM("batch", 0, 50), 3);
    tc_tensor y = tc_mul(tc_custom(&pairs, TC_TENSORS(tc_add(x, 1))), 2);
    tc_program *f = NULL;
    CHECK_OK(tc_compile(y, &f));
    REQUIRE(f);
    tc_program_info info;
    CHECK_OK(tc_program_get_info(f, &info));
    CHECK(info.from_disk == from_disk || strcmp(info.backend, "cpu"));
    static const int sizes[] = {4, 7, 0, 4, 50};
    for (int s = 0; s < 5; s++) {
        int n = sizes[s], rows = n / 2 + 1;
        float in[150], out[78];
        for (int i = 0; i < 3 * n; i++) {
            in[i] = (float)(i % 11);
        }
        CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(in, 3 * n)), TC_BUFS(TC_BUF(out, 3 * rows))));
        for (int i = 0; i < 3 * rows; i++) {
            int at = i / 3 * 6 + i % 3;
            float sum = i / 3 < n / 2 ? in[at] + in[at + 3] + 2 : (float)(3 * n);
            CHECK_MSG(out[i] == 2 * sum, "%s, %d rows, %d: %g, expected %g", backend, n, i,
                      (double)out[i], (double)(2 * sum));
        }
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(custom_ops_are_given_the_sizes_of_the_run)
{
    char dir[] = "/tmp/tc-test-dynamic-XXXXXX", command[64];
    check_custom_of_any_size("interp", NULL, false);
    check_custom_of_any_size("cpu", NULL, false);
    REQUIRE(mkdtemp(dir));
    check_custom_of_any_size("cpu", dir, false);
    check_custom_of_any_size("cpu", dir, true);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    CHECK_EQ_INT(system(command), 0);
}

TEST(shape_rules_compute_with_symbolic_sizes)
{
    static const tc_custom_op doubled = {.name = "doubled",
                                         .shape = doubled_shape,
                                         .run = pairs_run};
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = "interp", .no_disk_cache = true, .threads = 1};
    CHECK_OK(tc_ctx_make(&ctx, &o));
    REQUIRE(ctx);
    tc_tensor x = tc_input(ctx, "x", TC_F32, TC_DIM("batch", 0, 50), 3);
    tc_tensor y = tc_custom(&doubled, TC_TENSORS(x));
    CHECK_EQ_INT(tc_status_of(y), TC_ERR_SHAPE);
    CHECK_HAS(tc_error(y), "the size of axis 0 is no valid symbolic size");
    tc_ctx_free(ctx);
}

TEST(memory_limit_is_that_of_the_sizes)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = "interp",
                    .no_disk_cache = true,
                    .threads = 1,
                    .memory_limit = 40000};
    CHECK_OK(tc_ctx_make(&ctx, &o));
    REQUIRE(ctx);
    tc_tensor x = tc_input(ctx, "x", TC_F32, TC_DIM("batch", 1, 5000), 64);
    tc_tensor w = tc_input(ctx, "w", TC_F32, 64, 64);
    tc_tensor y = tc_matmul(tc_matmul(x, w), w);
    tc_program *f = NULL;
    CHECK_OK(tc_compile_fn(TC_TENSORS(x, w), TC_TENSORS(y), NULL, &f));
    REQUIRE(f);
    float *in = calloc(1000 * 64, 4), *out = calloc(1000 * 64, 4), *weights = calloc(64 * 64, 4);
    tc_program_info info;
    CHECK_OK(tc_program_get_info(f, &info));
    CHECK_EQ_INT(info.arena_bytes, 0);
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(in, 100 * 64), TC_BUF(weights, 4096)),
                    TC_BUFS(TC_BUF(out, 100 * 64))));
    CHECK_OK(tc_program_get_info(f, &info));
    CHECK_EQ_INT(info.arena_bytes, 100 * 64 * 4);
    CHECK_EQ_INT(info.bytes_written, 100 * 64 * 4);
    CHECK_EQ_INT(info.flops, 2 * 2 * 100 * 64 * 64);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 1000 * 64), TC_BUF(weights, 4096)),
                        TC_BUFS(TC_BUF(out, 1000 * 64))),
                 TC_ERR_LIMIT);
    CHECK_HAS(tc_error(f), "the program needs 256000 bytes of workspace, expected at most"
                           " memory_limit = 40000 for batch = 1000");
    CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(in, 10 * 64), TC_BUF(weights, 4096)),
                    TC_BUFS(TC_BUF(out, 10 * 64))));
    free(in);
    free(out);
    free(weights);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(explain_names_the_sizes)
{
    tc_ctx *ctx = dyn_ctx("interp", 1, NULL);
    REQUIRE(ctx);
    tc_program *f = dyn_compile(ctx, &dyn_cases[3], TC_DIM("batch", 0, 64), TC_DIM("height", 1, 9));
    REQUIRE(f);
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    REQUIRE(out);
    CHECK_OK(tc_explain_as(f, out, &(tc_explain_options){.all = true}));
    fclose(out);
    CHECK_HAS(text, "sizes: batch (s0) from 0 to 64, height (s1) from 1 to 9\n");
    CHECK_HAS(text, "input 0: f32 [s0{0..64}, 3, s1{1..9}, 6]");
    free(text);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- threads ---- */

enum { DYN_THREADS = 6, DYN_ROUNDS = 60 };

typedef struct dyn_job {
    tc_program *f;
    int index, bad;
} dyn_job;

static void *dyn_work(void *arg)
{
    dyn_job *job = arg;
    const dyn_case *c = &dyn_cases[0];
    for (int round = 0; round < DYN_ROUNDS; round++) {
        int64_t batch = 1 + (job->index * 5 + round * 3) % 23; /* more sizes than are kept */
        dyn_memory m = dyn_fill(c, batch, 1);
        if (dyn_run(job->f, &m) != TC_OK || m.out[m.n_out] != -77) {
            job->bad = __LINE__;
        }
        for (int64_t j = 0; j < m.n_out; j++) {
            float x = m.in[0][j], y = m.in[1][j / 7], z = m.in[2][j % 7];
            if (!(fabsf(m.out[j] - (sinf(x) * y + expf(z * 0.25f))) < 1e-5f)) {
                job->bad = __LINE__;
            }
        }
        dyn_drop(&m);
    }
    return NULL;
}

TEST(threads_run_different_sizes_at_once)
{
    tc_ctx *ctx = dyn_ctx("interp", 2, NULL);
    REQUIRE(ctx);
    tc_program *f = dyn_compile(ctx, &dyn_cases[0], TC_DIM("batch", 0, 5000), 1);
    REQUIRE(f);
    dyn_job jobs[DYN_THREADS];
    pthread_t threads[DYN_THREADS];
    for (int i = 0; i < DYN_THREADS; i++) {
        jobs[i] = (dyn_job){f, i, 0};
        REQUIRE(!pthread_create(&threads[i], NULL, dyn_work, &jobs[i]));
    }
    for (int i = 0; i < DYN_THREADS; i++) {
        pthread_join(threads[i], NULL);
        CHECK_MSG(!jobs[i].bad, "thread %d failed at line %d", i, jobs[i].bad);
    }
    CHECK(dyn_instances(f) <= TCI_DYNAMIC_KEPT);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- indices outside their axis ---- */

static tc_status dyn_pick(tc_program *f, int64_t rows, const int32_t *which, const int32_t *where)
{
    float x[16] = {0}, out[4], first;
    tc_bufs in = TC_BUFS(TC_BUF(x, rows), TC_BUF_ND(which, 1, 4), TC_BUF_ND(where, 2, 2));
    return tc_run(f, in, TC_BUFS(TC_BUF(out, 4), TC_BUF(&first, 1)));
}

TEST(an_index_outside_a_symbolic_axis_is_named)
{
    tc_ctx *ctx = dyn_ctx("interp", 1, NULL);
    REQUIRE(ctx);
    int64_t rows = TC_DIM("rows", 1, 16), n = TC_DIM("n", 1, 4);
    tc_tensor x = tc_input(ctx, "x", TC_F32, rows);
    tc_tensor which = tc_input(ctx, "which", TC_I32, 1, 4), where = tc_input(ctx, "", TC_I32, 2, n);
    tc_tensor y = tc_index_select(x, 0, tc_reshape(which, 4));
    int made = __LINE__ - 1;
    tc_tensor doubled = tc_reshape(tc_cat(TC_TENSORS(x, x), 0), 2, rows);
    tc_tensor z = tc_sum(tc_gather(doubled, 1, where), TC_ALL, false);
    tc_program *f = NULL;
    REQUIRE(!tc_compile_fn(TC_TENSORS(x, which, where), TC_TENSORS(y, z), NULL, &f));
    int32_t inside[4] = {0, -1, 1, 2}, outside[4] = {0, 1, 5, -6}, far[4] = {0, 0, -9, 0};
    char text[300];
    CHECK_OK(dyn_pick(f, 6, outside, inside));
    for (int64_t size = 3; size <= 5; size++) { /* another instance each */
        CHECK_EQ_INT(dyn_pick(f, size, outside, inside), TC_ERR_INDEX);
        snprintf(text, sizeof(text),
                 "tc_run: index 5 (element [0, 2] of input 1 \"which\") is outside axis 0 of size"
                 " %d (rows) in tc_index_select made at %s:%d: expected %d to %d",
                 (int)size, __FILE__, made, -(int)size, (int)size - 1);
        CHECK_HAS(tc_error(f), text);
        CHECK_EQ_INT(dyn_pick(f, size, inside, far), TC_ERR_INDEX);
        snprintf(text, sizeof(text),
                 "index -9 (element [1, 0] of input 2) is outside axis 1 of size %d (rows) in "
                 "tc_gather made at",
                 (int)size);
        CHECK_HAS(tc_error(f), text);
        CHECK_OK(dyn_pick(f, size, inside, inside));
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- memory runs out at the n-th request ---- */

static void dyn_arm(long at, bool sticky)
{
    tci_test_alloc_count = 0;
    tci_test_alloc_sticky = sticky;
    tci_test_alloc_fail_at = at;
}

/* Returns whether some call was refused. */
static bool dyn_walk_once(long at)
{
    bool refused = false;
    tc_ctx *ctx = NULL;
    tc_program *f = NULL;
    tc_call *call = NULL;
    tc_options o = {.backend = "interp", .no_disk_cache = true, .threads = 1};
    if (tc_ctx_make(&ctx, &o)) {
        return true;
    }
    tc_tensor in[DYN_INPUTS];
    tc_tensor y = dyn_layer(ctx, TC_DIM("batch", 0, 5000), 1, in);
    tc_status status = tc_compile_fn(TC_TENSORS(in[0], in[1], in[2]), TC_TENSORS(y), NULL, &f);
    CHECK_MSG(status == TC_OK || status == TC_ERR_MEMORY, "request %ld: %s", at, tc_error(ctx));
    refused = status != TC_OK;
    if (f && tc_call_make(f, &call)) {
        refused = true;
    }
    for (int i = 0; i < 6 && f; i++) {
        const dyn_case *c = &dyn_cases[1];
        dyn_memory m = dyn_fill(c, 1 + i % 3, 1);
        status = dyn_run(f, &m);
        CHECK_MSG(status == TC_OK || status == TC_ERR_MEMORY, "request %ld: %s", at, tc_error(f));
        CHECK_MSG(status != TC_OK || (m.out[0] >= 0 && m.out[m.n_out - 1] <= 1),
                  "request %ld: the values are wrong", at);
        refused = refused || status != TC_OK;
        if (call) {
            status = tc_run_call(call,
                                 TC_BUFS(TC_BUF(m.in[0], m.n_in[0]), TC_BUF(m.in[1], m.n_in[1]),
                                         TC_BUF(m.in[2], m.n_in[2])),
                                 TC_BUFS(TC_BUF(m.out, m.n_out)));
            CHECK(status == TC_OK || status == TC_ERR_MEMORY);
            refused = refused || status != TC_OK;
        }
        dyn_drop(&m);
    }
    tc_call_free(call);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return refused;
}

static void dyn_try_all(bool sticky)
{
    dyn_arm(0, false);
    for (int i = 0; i < 40; i++) { /* freed contexts wait before their memory is used again */
        CHECK(!dyn_walk_once(0));
        tci_cache_trim();
    }
    long live = tci_test_alloc_live, at = 1;
    for (bool over = false; !over && tct_failures < 10; at++) {
        dyn_arm(at, sticky);
        bool refused = dyn_walk_once(at);
        over = tci_test_alloc_count < at;
        dyn_arm(0, false);
        CHECK_MSG(!refused || !over, "request %ld: refused without a failed allocation", at);
        tci_cache_trim();
        CHECK_MSG(tci_test_alloc_live <= live, "request %ld: %ld blocks are left, expected %ld", at,
                  (long)tci_test_alloc_live, live);
    }
    CHECK_MSG(at > 60, "only %ld requests were tried", at);
}

/* ---- repetitions ---- */

static tc_status halve_add(void *user, const tc_tensor *c, const tc_tensor *x, tc_tensor *next,
                           tc_tensor *y)
{
    (void)user;
    (void)y;
    next[0] = tc_add(tc_mul(c[0], 0.5), x[0]);
    return TC_OK;
}

TEST(a_repetition_among_symbolic_sizes)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = "interp", .no_disk_cache = true, .verify = 1};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    float in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, steps[3] = {1, 2, 4}, out[8];
    tc_tensor x = tc_input(ctx, "x", TC_F32, TC_DIM("n", 1, 100)), last;
    tc_tensor xs = tc_copy_in(ctx, steps, TC_F32, 3), sum = tc_sum(x, TC_ALL, false);
    CHECK_OK(tc_scan(TC_TENSORS(sum), TC_TENSORS(xs), 0, false, halve_add, NULL, &last, NULL, 0));
    tc_program *f = NULL;
    CHECK_OK(tc_compile(tc_mul(x, last), &f));
    REQUIRE(f);
    for (int n = 8; n > 0; n -= 3) {
        float carry = (float)(n * (n + 1)) / 2;
        for (int i = 0; i < 3; i++) {
            carry = carry * 0.5f + steps[i];
        }
        CHECK_OK(tc_run(f, TC_BUFS(TC_BUF(in, n)), TC_BUFS(TC_BUF(out, n))));
        for (int i = 0; i < n; i++) {
            CHECK_CLOSE(out[i], in[i] * carry, 1e-6);
        }
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(memory_that_runs_out_once)
{
    dyn_try_all(false);
}

TEST(memory_that_stays_gone)
{
    dyn_try_all(true);
}

TEST_MAIN
