/* tests/unit/test_memory.c - the memory of a plan: places of temporaries, in which order steps are
 * done, and what a training step needs of it. */
#include "inside.h"

#include "tc_test.h"
#include "machines.h"

#include <setjmp.h>
#include <time.h>

/* ---- places ---- */

/* Lives as those of a training step: half of them nested in each other; or as they come. */
static void draw_lives(tci_life *lives, int n, int n_steps, bool nested)
{
    for (int i = 0; i < n; i++) {
        int first = (int)tct_random_below(n_steps), length = i % 4 ? 4 : n_steps;
        int last = TCI_MIN(first + (int)tct_random_below(length), n_steps - 1);
        bool mirrored = nested && i % 2 == 0;
        lives[i].first = mirrored ? first / 2 : first;
        lives[i].last = mirrored ? n_steps - 1 - first / 2 : last;
        lives[i].last = tct_random_below(20) ? lives[i].last : -1;
        lives[i].bytes = (1 + tct_random_below(1 << 16)) << (4 * tct_random_below(3));
    }
}

static void check_apart(const tci_life *lives, int n, int64_t bytes)
{
    for (int a = 0; a < n; a++) {
        const tci_life *x = &lives[a];
        int64_t end = x->offset + x->bytes;
        CHECK(x->last < 0 || (x->offset % 64 == 0 && x->offset >= 0 && end <= bytes));
        for (int b = 0; b < a && x->last >= 0; b++) {
            const tci_life *y = &lives[b];
            bool meet = y->last >= 0 && y->first <= x->last && x->first <= y->last;
            CHECK(!meet || end <= y->offset || y->offset + y->bytes <= x->offset);
        }
    }
}

TEST(places_are_near_what_is_needed_at_once)
{
    enum { TRIES = 60 };
    static tci_life lives[300];
    double worst = 1, sum = 0;
    for (int i = 0; i < TRIES; i++) {
        tci_scratch s;
        tci_scratch_init(&s);
        if (setjmp(s.escape)) {
            CHECK_MSG(false, "%s", s.message);
            return;
        }
        int n_steps = 2 + (int)tct_random_below(300);
        int n = 1 + (int)tct_random_below(TCI_COUNT(lives));
        draw_lives(lives, n, n_steps, i % 2);
        int64_t least = tci_plan_least(&s, lives, n, n_steps);
        int64_t bytes = tci_plan_place(&s, lives, n, n_steps, false);
        check_apart(lives, n, bytes);
        CHECK(bytes >= least);
        double ratio = (double)bytes / (double)TCI_MAX(1, least);
        worst = TCI_MAX(worst, ratio);
        sum += ratio;
        tci_scratch_free(&s);
    }
    CHECK_MSG(sum / TRIES <= 1.01 && worst <= 1.15, "mean %.4f, worst %.4f", sum / TRIES, worst);
}

/* What a long chain keeps for its gradient, and what it soon drops: no more than is needed at once,
 * and without looking at each pair. */
TEST(places_of_equal_sizes)
{
    enum { N = 40000 };
    static tci_life lives[N];
    tci_scratch s;
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        CHECK_MSG(false, "%s", s.message);
        return;
    }
    draw_lives(lives, N, N, true);
    for (int i = 0; i < N; i++) {
        lives[i].bytes = 256;
    }
    clock_t begin = clock();
    CHECK_EQ_INT(tci_plan_place(&s, lives, N, N, false), tci_plan_least(&s, lives, N, N));
    double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    CHECK_MSG(seconds < 2, "%.1f s", seconds);
    check_apart(lives, 4000, N * 256);
    tci_scratch_free(&s);
}

/* ---- training steps ---- */

enum { MOST_WEIGHTS = 128, IMAGES = 8, ROWS = 512, WIDE = 64, LAYERS = 4 };

typedef struct network {
    tc_ctx *ctx;
    tci_scratch s;
    tc_tensor weights[MOST_WEIGHTS];
    int n_weights;
} network;

static void begin(network *n)
{
    tc_options o;
    memset(&o, 0, sizeof(o));
    memset(n, 0, sizeof(*n));
    o.backend = "interp";
    CHECK(tc_ctx_make(&n->ctx, &o) == TC_OK);
    tci_scratch_init(&n->s);
}

static void end(network *n)
{
    tci_scratch_free(&n->s);
    tc_ctx_free(n->ctx);
}

/* Of as many axes as there are sizes that are not 0. */
static tc_tensor weight(network *n, int64_t a, int64_t b, int64_t c, int64_t d)
{
    static const float zeros[1 << 20] = {0};
    int64_t what[5] = {TC_F32, a, b, c, d};
    int rank = 1 + (b > 0) + (c > 0) + (d > 0);
    tc_tensor w = tc_param_at(n->ctx, zeros, rank + 1, what, TC_HERE);
    n->weights[n->n_weights++] = w;
    return w;
}

static tci_plan *plan_of(network *n, tci_node *const *roots, int n_roots, tci_machine machine)
{
    tci_target target;
    memset(&target, 0, sizeof(target));
    tci_request *r = tci_request_make(&n->s, NULL, 0, roots, n_roots, &tci_ctx_of(n->ctx)->options,
                                      "test", &target);
    tci_request_copy copy = tci_request_copy_graph(&n->s, r, NULL);
    tci_node **now = tci_rewrite(&n->s, copy.graph, copy.roots, n_roots);
    tci_plan *p = tci_plan_make(&n->s, copy.graph, copy.inputs, r->n_inputs, copy.literals,
                                r->n_literals, now, n_roots, machine);
    tci_plan_verify(&n->s, p);
    return p;
}

/* The plan of the step that updates all weights by the gradients of a loss. */
static tci_plan *training_step(network *n, tc_tensor loss, tci_machine machine)
{
    tc_tensor grads[MOST_WEIGHTS];
    tci_node *roots[MOST_WEIGHTS + 1];
    CHECK_EQ_INT(tc_grad(loss, n->weights, n->n_weights, grads), TC_OK);
    roots[0] = tci_handle_node(loss);
    for (int i = 0; i < n->n_weights; i++) {
        tc_tensor moved = tc_sub(n->weights[i], tc_mul(grads[i], 0.1));
        roots[i + 1] = tci_handle_node(tc_assign(n->weights[i], moved));
    }
    return plan_of(n, roots, n->n_weights + 1, machine);
}

/* The part of all bytes of parameters whose new values overwrite the old. */
static double updated_in_place(const tci_plan *p)
{
    double in_place = 0, all = 0;
    for (int i = 0; i < p->n_assigns; i++) {
        const tci_buffer *b = &p->buffers[tci_plan_port(p, TCI_BUF_INPUT, p->assigns[i].input)];
        all += (double)b->bytes;
        for (int a = 0; a < p->n_aliases; a++) {
            bool same = p->aliases[a].output == p->assigns[i].output &&
                        p->aliases[a].input == p->assigns[i].input;
            in_place += same ? (double)b->bytes : 0;
        }
    }
    return in_place / all;
}

static tc_tensor convolution(network *n, tc_tensor x)
{
    tc_tensor w = weight(n, tc_size(x, 1), tc_size(x, 1), 3, 3);
    return tc_conv2d(x, w, TC_NONE, &(tc_conv){.padding = {1, 1}});
}

static tc_tensor batch_norm(network *n, tc_tensor x)
{
    tc_tensor g = weight(n, tc_size(x, 1), 1, 1, 0), b = weight(n, tc_size(x, 1), 1, 1, 0);
    tc_tensor var, mean;
    tc_var_mean(x, TC_AXES(0, 2, 3), 0, true, &var, &mean);
    tc_tensor unit = tc_mul(tc_sub(x, mean), tc_rsqrt(tc_add(var, 1e-5)));
    return tc_add(tc_mul(unit, g), b);
}

/* Blocks of two convolutions with a residual connection. */
static tc_tensor residual_blocks(network *n)
{
    tc_tensor x = convolution(n, tc_input(n->ctx, "x", TC_F32, IMAGES, WIDE, 28, 28));
    for (int i = 0; i < LAYERS; i++) {
        tc_tensor y = tc_relu(batch_norm(n, convolution(n, x)));
        x = tc_relu(tc_add(x, batch_norm(n, convolution(n, y))));
    }
    return tc_mean(tc_mul(x, x), TC_ALL, false);
}

static tc_tensor linear(network *n, tc_tensor x, int64_t to)
{
    return tc_add(tc_matmul(x, weight(n, tc_size(x, -1), to, 0, 0)), weight(n, to, 0, 0, 0));
}

static tc_tensor normalized(network *n, tc_tensor x)
{
    tc_tensor g = weight(n, tc_size(x, -1), 0, 0, 0), b = weight(n, tc_size(x, -1), 0, 0, 0);
    return tc_layer_norm(x, TC_AXES(-1), g, b, 1e-5);
}

/* Blocks of a transformer: 4 heads over sequences of 128 rows. */
static tc_tensor transformer_blocks(network *n)
{
    enum { T = 128, HEADS = 4 };
    tc_tensor x = linear(n, tc_input(n->ctx, "x", TC_F32, ROWS / T, T, 2 * WIDE), 2 * WIDE);
    for (int i = 0; i < LAYERS; i++) {
        tc_tensor y = normalized(n, x), parts[3];
        for (int j = 0; j < 3; j++) {
            tc_tensor heads = tc_reshape(linear(n, y, 2 * WIDE), ROWS / T, T, HEADS, -1);
            parts[j] = tc_permute(heads, 0, 2, 1, 3);
        }
        tc_tensor scores = tc_mul(tc_matmul(parts[0], tc_transpose(parts[1], -1, -2)), 0.2);
        y = tc_permute(tc_matmul(tc_softmax(scores, -1), parts[2]), 0, 2, 1, 3);
        x = tc_add(x, linear(n, tc_reshape(y, ROWS / T, T, 2 * WIDE), 2 * WIDE));
        y = tc_gelu(linear(n, normalized(n, x), 8 * WIDE));
        x = tc_add(x, linear(n, y, 2 * WIDE));
    }
    return tc_mean(tc_mul(x, x), TC_ALL, false);
}

static tc_tensor perceptron(network *n)
{
    tc_tensor x = tc_input(n->ctx, "x", TC_F32, ROWS, WIDE);
    for (int i = 0; i < 2 * LAYERS; i++) {
        x = tc_tanh(linear(n, x, WIDE));
    }
    return tc_mean(tc_mul(x, x), TC_ALL, false);
}

/* Of each layer the way back reads some values that the way forward made; at its peak a step needs
 * these, and a few more for the layer at hand. By blocks of threads those may be sums of parts of a
 * contraction that is too small for all of a device. */
enum { PARTS_PERCENT = 15 };
TEST(training_steps_keep_little_more_than_the_way_back_reads)
{
    static const struct {
        const char *name;
        tc_tensor (*make)(network *n);
        double bytes; /* of what the way back reads */
        double most;  /* times that */
    } cases[] = {
        {"perceptron", perceptron, 4. * ROWS * WIDE * 2 * LAYERS, 1.3},
        /* what two convolutions read and make */
        {"residual blocks", residual_blocks, 4 * 4. * IMAGES * WIDE * 28 * 28 * LAYERS, 1.6},
        /* two norms, q, k, v, what comes out of the heads, the same before and after gelu */
        {"transformer", transformer_blocks, 4. * ROWS * 2 * WIDE * 14 * LAYERS, 1.55},
    };
    for (int i = 0; i < TCI_COUNT(cases) * TEST_MACHINES; i++) {
        int c = i / TEST_MACHINES, m = i % TEST_MACHINES;
        network n;
        begin(&n);
        if (setjmp(n.s.escape)) {
            CHECK_MSG(false, "%s", n.s.message);
            return;
        }
        tci_plan *p = training_step(&n, cases[c].make(&n), test_machines[m].machine);
        bool apart = test_machines[m].machine.block_threads > 0;
        double ratio = (double)p->arena_least / cases[c].bytes;
        double most = cases[c].most + (apart ? PARTS_PERCENT / 100. : 0);
        CHECK_MSG(ratio <= most, "%s on %s: %.2f times what the way back reads", cases[c].name,
                  test_machines[m].name, ratio);
        CHECK_MSG(updated_in_place(p) > 0.98, "%s on %s: %.3f of the parameters in place",
                  cases[c].name, test_machines[m].name, updated_in_place(p));
        CHECK_MSG(apart || (double)p->arena_bytes <= 1.05 * (double)p->arena_least,
                  "%s: an arena of %lld bytes, %lld needed at once", cases[c].name,
                  (long long)p->arena_bytes, (long long)p->arena_least);
        end(&n);
    }
}

/* ---- the cheapest cut ---- */

enum { CUT_VERTICES = 7, CUT_TRIES = 400 };

/* Bits of the vertices that v's edges go to; that of the sink is CUT_VERTICES. */
typedef struct cut_case {
    unsigned to[CUT_VERTICES + 1]; /* the last is the source */
    int64_t cost[CUT_VERTICES];
} cut_case;

/* Whether each way through these edges meets a vertex of `cut`; edges go from low to high. */
static bool is_parted(const cut_case *c, unsigned cut)
{
    unsigned reached = c->to[CUT_VERTICES];
    for (int v = 0; v < CUT_VERTICES; v++) {
        reached |= (reached & ~cut) >> v & 1 ? c->to[v] : 0;
    }
    return !(reached >> CUT_VERTICES & 1);
}

static int64_t cost_of(const cut_case *c, unsigned cut)
{
    int64_t cost = 0;
    for (int v = 0; v < CUT_VERTICES; v++) {
        cost += cut >> v & 1 ? c->cost[v] : 0;
    }
    return cost;
}

static unsigned found_cut(tci_scratch *s, const cut_case *c)
{
    tci_mincut *cut = tci_mincut_make(s, CUT_VERTICES);
    unsigned found = 0;
    for (int v = 0; v <= CUT_VERTICES; v++) { /* the source is number CUT_VERTICES there too */
        for (int to = 0; to <= CUT_VERTICES; to++) {
            if (c->to[v] >> to & 1) {
                tci_mincut_join(cut, v, to < CUT_VERTICES ? to : CUT_VERTICES + 1,
                                TCI_MINCUT_NEVER);
            }
        }
        if (v < CUT_VERTICES) {
            tci_mincut_cost(cut, v, c->cost[v]);
        }
    }
    CHECK(tci_mincut_solve(cut));
    for (int v = 0; v < CUT_VERTICES; v++) {
        found |= (unsigned)tci_mincut_is_in(cut, v) << v;
    }
    return found;
}

TEST(no_cut_is_cheaper)
{
    tci_scratch s;
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        CHECK_MSG(false, "%s", s.message);
        return;
    }
    for (int i = 0; i < CUT_TRIES; i++) {
        cut_case c;
        for (int v = 0; v <= CUT_VERTICES; v++) {
            unsigned all = (2u << CUT_VERTICES) - 1;
            unsigned later = v < CUT_VERTICES ? all << (v + 1) : all;
            c.to[v] = (unsigned)tct_random() & (unsigned)tct_random() & later & all;
            c.to[v] &= v < CUT_VERTICES ? all : all >> 1; /* no way has no vertex */
        }
        for (int v = 0; v < CUT_VERTICES; v++) {
            c.cost[v] = (int64_t)(tct_random() % 20);
        }
        int64_t least = INT64_MAX;
        for (unsigned cut = 0; cut < 1u << CUT_VERTICES; cut++) {
            least = is_parted(&c, cut) ? TCI_MIN(least, cost_of(&c, cut)) : least;
        }
        unsigned found = found_cut(&s, &c);
        CHECK_MSG(is_parted(&c, found) && cost_of(&c, found) == least,
                  "%d: %x costs %lld, not %lld", i, found, (long long)cost_of(&c, found),
                  (long long)least);
    }
    tci_scratch_free(&s);
}

/* Ways as long as a program, and a cut in the middle of each stretch. */
TEST(a_cut_of_a_long_chain)
{
    enum { LONG = 20000, STRETCH = 10 };
    tci_scratch s;
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        CHECK_MSG(false, "%s", s.message);
        return;
    }
    tci_mincut *c = tci_mincut_make(&s, LONG);
    for (int v = 0; v < LONG; v++) {
        tci_mincut_cost(c, v, v % STRETCH == STRETCH / 2 ? 7 : 100);
        tci_mincut_join(c, v ? v - 1 : LONG, v, TCI_MINCUT_NEVER);
        if (v % STRETCH == 0) { /* what is not done again */
            tci_mincut_join(c, LONG, v, TCI_MINCUT_NEVER);
        } else if (v % STRETCH == STRETCH - 1) { /* what is read */
            tci_mincut_join(c, v, LONG + 1, TCI_MINCUT_NEVER);
        }
    }
    CHECK(tci_mincut_solve(c));
    for (int v = 0; v < LONG; v++) {
        CHECK(tci_mincut_is_in(c, v) == (v % STRETCH == STRETCH / 2));
    }
    tci_scratch_free(&s);
}

/* ---- launches side by side ---- */

/* Memory that is used again makes a launch wait for those that used it before: it shall be so where
 * it comes after them anyway, and not where it does not. */
TEST(only_what_runs_side_by_side_keeps_memory_of_its_own)
{
    for (int ways = 1; ways <= 2; ways++) {
        network n;
        tci_node *roots[2];
        begin(&n);
        if (setjmp(n.s.escape)) {
            CHECK_MSG(false, "%s", n.s.message);
            return;
        }
        for (int way = 0; way < ways; way++) {
            tc_tensor x = tc_input(n.ctx, "x", TC_F32, ROWS, WIDE);
            for (int i = 0; i < 4 * LAYERS; i++) {
                x = tc_tanh(linear(&n, x, WIDE));
            }
            roots[way] = tci_handle_node(x);
        }
        tci_plan *p = plan_of(&n, roots, ways, test_machines[TEST_H200].machine);
        double ratio = (double)p->arena_bytes / (double)p->arena_least;
        CHECK_MSG(ways == 1 ? ratio < 1.05 : ratio > 2, "%d ways: %.2f of what is needed at once",
                  ways, ratio);
        end(&n);
    }
}

/* ---- computed again ---- */

/* Less memory at once where much waits, by what elementwise ops make; never more. */
TEST(what_waits_is_computed_again)
{
    static const struct {
        const char *name;
        tc_tensor (*make)(network *n);
        double most; /* of the workspace without */
    } cases[] = {{"perceptron", perceptron, 1},
                 {"residual blocks", residual_blocks, 0.75},
                 {"transformer", transformer_blocks, 0.8}};
    for (int c = 0; c < TCI_COUNT(cases); c++) {
        double bytes[TC_REMAT_ALL + 1] = {0};
        for (int mode = TC_REMAT_NONE; mode <= TC_REMAT_ALL; mode++) {
            tci_machine machine = test_machines[0].machine;
            network n;
            begin(&n);
            if (setjmp(n.s.escape)) {
                CHECK_MSG(false, "%s", n.s.message);
                return;
            }
            machine.remat = (tc_remat)mode;
            bytes[mode] = (double)training_step(&n, cases[c].make(&n), machine)->arena_bytes;
            end(&n);
        }
        CHECK_MSG(bytes[1] <= cases[c].most * bytes[0] && bytes[2] <= bytes[1],
                  "%s: %.1f MB, %.1f, %.1f", cases[c].name, bytes[0] / 1e6, bytes[1] / 1e6,
                  bytes[2] / 1e6);
    }
}

enum { AGAIN_ROWS = 96, AGAIN_WIDE = 256, AGAIN_LAYERS = 5 };

/* Where the network has a repetition: nowhere; after its loss; in a layer, so that the way back has
 * one too, which reads what is computed again; and after its gradients. */
enum { NO_LOOP, ON_LOSS, IN_LAYER, ON_GRADIENTS, AGAIN_LOOPS };

static tc_status halve(void *user, const tc_tensor *carry, const tc_tensor *x, tc_tensor *next,
                       tc_tensor *y)
{
    (void)x;
    (void)y;
    tc_tensor half = tc_full(carry[0].ctx, 0.5, TC_F32);
    next[0] = tc_sin(tc_mul(carry[0], user ? *(const tc_tensor *)user : half));
    return tc_status_of(next[0]);
}

static tc_tensor halve_thrice(tc_tensor x, tc_tensor *by)
{
    tc_tensor last;
    CHECK_MSG(!tc_scan(TC_TENSORS(x), TC_TENSORS_N(NULL, 0), 3, false, halve, by, &last, NULL, 0),
              "%s", tc_error(last));
    return last;
}

/* The gradients of the weights of some layers of matmul, layer_norm and gelu. */
static tc_program *again_program(tc_ctx *ctx, tc_remat remat, int loop)
{
    tc_tensor in[1 + AGAIN_LAYERS] = {tc_input(ctx, "x", TC_F32, AGAIN_ROWS, AGAIN_WIDE)};
    tc_tensor x = in[0], grads[AGAIN_LAYERS];
    for (int i = 0; i < AGAIN_LAYERS; i++) {
        in[1 + i] = tc_input(ctx, "w", TC_F32, AGAIN_WIDE, AGAIN_WIDE);
        x = tc_layer_norm(tc_matmul(x, in[1 + i]), TC_AXES(-1), TC_NONE, TC_NONE, 1e-5);
        x = tc_sin(tc_gelu(x));
        if (loop == IN_LAYER && i == 2) {
            tc_tensor mean = tc_mean(x, TC_AXES(0), false), by = tc_tanh(mean);
            x = tc_mul(x, halve_thrice(mean, &by));
        }
    }
    tc_tensor loss = tc_sum(tc_square(x), TC_ALL, false);
    loss = loop == ON_LOSS ? halve_thrice(loss, NULL) : loss;
    CHECK_EQ_INT(tc_grad(loss, in + 1, AGAIN_LAYERS, grads), TC_OK);
    for (int i = 0; i < AGAIN_LAYERS && loop == ON_GRADIENTS; i++) {
        grads[i] = halve_thrice(grads[i], NULL);
    }
    const tc_options o = {.remat = remat};
    tc_program *f;
    tc_status status = tc_compile_fn(TC_TENSORS_N(in, 1 + AGAIN_LAYERS),
                                     TC_TENSORS_N(grads, AGAIN_LAYERS), &o, &f);
    CHECK_MSG(status == TC_OK, "%s", tc_error(grads[0]));
    return f;
}

static void check_again(const char *backend, int loop)
{
    static float x[AGAIN_ROWS * AGAIN_WIDE], w[AGAIN_WIDE * AGAIN_WIDE];
    static float got[TC_REMAT_ALL + 1][AGAIN_LAYERS][AGAIN_WIDE * AGAIN_WIDE];
    const tc_options o = {.backend = backend, .verify = true};
    int64_t bytes[TC_REMAT_ALL + 1];
    tc_ctx *ctx;
    char text[1 << 16] = "";
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    for (int i = 0; i < TCI_COUNT(x); i++) {
        x[i] = (float)sin(i * 0.37);
    }
    for (int i = 0; i < TCI_COUNT(w); i++) {
        w[i] = (float)cos(i * 0.73) * 0.1f;
    }
    for (int mode = TC_REMAT_NONE; mode <= TC_REMAT_ALL; mode++) {
        tc_program *f = again_program(ctx, (tc_remat)mode, loop);
        tc_program_info info;
        tc_buf in[1 + AGAIN_LAYERS] = {TC_BUF(x, TCI_COUNT(x))}, out[AGAIN_LAYERS];
        for (int i = 0; i < AGAIN_LAYERS; i++) {
            in[1 + i] = TC_BUF(w, TCI_COUNT(w));
            out[i] = TC_BUF(got[mode][i], TCI_COUNT(w));
        }
        REQUIRE(tc_program_get_info(f, &info) == TC_OK);
        bytes[mode] = info.arena_bytes;
        CHECK_EQ_INT(tc_run(f, (tc_bufs){in, 1 + AGAIN_LAYERS}, (tc_bufs){out, AGAIN_LAYERS}),
                     TC_OK);
        CHECK_MSG(!memcmp(got[mode], got[0], sizeof(got[0])), "mode %d on %s, loop %d: other bits",
                  mode, backend, loop);
        FILE *shown = tmpfile();
        REQUIRE(shown && tc_explain_as(f, shown, &(tc_explain_options){.all = true}) == TC_OK);
        rewind(shown);
        text[fread(text, 1, sizeof(text) - 1, shown)] = 0;
        fclose(shown);
        bool told = strstr(text, "computed again, for less memory:\n  ") != NULL;
        CHECK_MSG(told == (mode != TC_REMAT_NONE), "mode %d: %s", mode, text);
        tc_program_free(f);
    }
    CHECK_HAS(text, " MB instead of ");
    /* gradients that wait for their loops need as much as what the forward pass stores */
    double most = loop == ON_GRADIENTS ? 1 : 0.9;
    bool less = (double)bytes[1] <= most * (double)bytes[0] && bytes[2] <= bytes[1] &&
                (double)bytes[2] < 0.9 * (double)bytes[0];
    CHECK_MSG(less, "loop %d: %lld, %lld, %lld bytes", loop, (long long)bytes[0],
              (long long)bytes[1], (long long)bytes[2]);
    tc_ctx_free(ctx);
}

TEST(computed_again_it_has_the_same_bits_interp)
{
    check_again("interp", NO_LOOP);
}
TEST(computed_again_it_has_the_same_bits_cpu)
{
    check_again("cpu", NO_LOOP);
}

TEST(values_outside_of_repetitions_are_computed_again)
{
    for (int loop = NO_LOOP + 1; loop < AGAIN_LOOPS; loop++) {
        check_again("interp", loop);
    }
    check_again("cpu", IN_LAYER);
}

TEST_MAIN
