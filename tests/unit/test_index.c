/* Index expressions: no division for an element in the gradient of any movement, window,
 * convolution or pool; work that grows with the graph and not faster; and what the constructors of
 * kernel/ir.h simplify means what it meant. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "tc_test.h"

static tc_ctx *ctx;

static void begin(void)
{
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = "interp";
    o.no_disk_cache = true;
    o.threads = 1;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

/* ---- from a tensor to kernels and loops ---- */

static tci_plan *plan_of(tci_scratch *s, tc_tensor x, tc_tensor y)
{
    const tci_machine machine = {.vector_bytes = 32};
    tci_node *in = tci_handle_node(x), *root = tci_handle_node(y);
    tci_target target;
    memset(&target, 0, sizeof(target));
    target.vector_bytes = machine.vector_bytes;
    CHECK_STR(tc_error(y), "");
    tci_request *r = tci_request_make(s, &in, 1, &root, 1, &tci_ctx_of(ctx)->options, "index",
                                      &target);
    tci_request_copy copy = tci_request_copy_graph(s, r, NULL);
    tci_node **now = tci_rewrite(s, copy.graph, copy.roots, 1);
    return tci_plan_make(s, copy.graph, copy.inputs, r->n_inputs, copy.literals, r->n_literals, now,
                         1, machine);
}

/* Is something divided in x, or in an index in it that is made inside the loop over tasks? */
static bool divides(const tci_loop *l, const bool *divided, int x)
{
    const tci_lx *e = x >= 0 ? &l->lx[x] : NULL;
    if (!e || e->op == TCI_LX_VAR) {
        return e && divided[e->a];
    }
    return e->op == TCI_LX_DIV || e->op == TCI_LX_MOD || divides(l, divided, e->a) ||
           divides(l, divided, e->b);
}

/* Accesses to memory, in loops inside the loop over tasks, whose address takes a division there. (A
 * mask of lanes may: one for a vector.) */
static int inner_divisions(tci_scratch *s, const tci_kernel *k)
{
    const tci_machine machine = {.vector_bytes = 32};
    tci_launch launch;
    const tci_loop *l = tci_loop_schedule(s, k, machine, &launch);
    bool *divided = TCI_NEW_ARRAY(s, bool, l->n_indices + 1);
    int n = 0;
    for (int pass = 0; pass < 2; pass++) { /* blocks are in no order */
        for (int b = 0; b < l->n_blocks; b++) {
            for (int i = 0; i < l->blocks[b].n && l->blocks[b].depth > 1; i++) {
                const tci_lstmt *st = &l->blocks[b].stmts[i];
                bool here = divides(l, divided, st->x);
                if (st->op == TCI_L_INDEX && here) {
                    divided[st->dst] = true;
                }
                n += pass && here && st->op == TCI_L_MEM &&
                     (tci_lmem_uses((tci_mem)st->mem) & TCI_LMEM_ADDRESS);
            }
        }
    }
    return n;
}

static int divisions(const tci_kernel *k)
{
    const bool *live = tci_kernel_live_kx(k, false);
    int n = 0;
    for (int x = 0; x < k->n_kx; x++) {
        n += live[x] && (k->kx[x].op == TCI_KX_DIV || k->kx[x].op == TCI_KX_MOD);
    }
    return n;
}

static void check_plan(tci_scratch *s, tc_tensor x, tc_tensor y, const char *what, bool loops)
{
    tci_plan *plan = plan_of(s, x, y);
    CHECK(plan->n_kernels > 0);
    for (int i = 0; i < plan->n_kernels; i++) {
        const tci_kernel *k = plan->kernels[i];
        tci_str text = {.s = s};
        tci_kernel_print(&text, k);
        CHECK_MSG(divisions(k) == 0, "%s: %d divisions in %s\n%s", what, divisions(k), k->name,
                  tci_str_text(&text));
        int inner = loops ? inner_divisions(s, k) : 0;
        CHECK_MSG(inner == 0, "%s: %d divisions in inner loops of %s\n%s", what, inner, k->name,
                  tci_str_text(&text));
    }
}

/* The gradient of the sum of squares of y. */
static void check_gradient(tc_tensor x, tc_tensor y, const char *what, bool loops)
{
    static tci_scratch s;
    tc_tensor g;
    CHECK_MSG(!tc_status_of(y), "%s: %s", what, tc_error(y));
    CHECK_EQ_INT(tc_grad(tc_sum(tc_square(y), TC_ALL, false), &x, 1, &g), TC_OK);
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        CHECK_MSG(false, "%s: %s", what, s.message);
    } else {
        check_plan(&s, x, g, what, loops);
    }
    tci_scratch_free(&s);
}

/* ---- no division for an element ---- */

typedef struct window_case {
    int kernel, stride, padding, dilation;
} window_case;

/* Every combination that fits `size`, one at a time; false after the last. */
static bool next_case(window_case *c, int size)
{
    static const int kernels[] = {1, 2, 3, 5}, strides[] = {1, 2, 3, 4};
    static int at;
    for (; at < 4 * 4 * 3 * 3; at++) {
        c->kernel = kernels[at % 4];
        c->stride = strides[at / 4 % 4];
        c->padding = at / 16 % 3;
        c->dilation = at / 48 + 1;
        if (c->padding <= c->kernel / 2 && size + 2 * c->padding > c->dilation * (c->kernel - 1)) {
            at++;
            return true;
        }
    }
    at = 0;
    return false;
}

static const char *case_text(const char *what, window_case c, int64_t size)
{
    static char text[120];
    snprintf(text, sizeof(text), "%s of %d, stride %d, padding %d, dilation %d, size %lld", what,
             c.kernel, c.stride, c.padding, c.dilation, (long long)size);
    return text;
}

static tc_tensor pool_of(tc_tensor x, window_case c)
{
    const tc_pool o = {.kernel = {c.kernel, c.kernel},
                       .stride = {c.stride, c.stride},
                       .padding = {c.padding, c.padding},
                       .dilation = {c.dilation, c.dilation}};
    return tc_max_pool2d(x, &o);
}

static tc_tensor conv_of(tc_tensor x, tc_tensor w, window_case c, int groups)
{
    const tc_conv o = {.stride = {c.stride, c.stride},
                       .padding = {c.padding, c.padding},
                       .dilation = {c.dilation, c.dilation},
                       .groups = groups};
    return tc_conv2d(x, w, TC_NONE, &o);
}

TEST(gradients_of_pools_divide_no_index)
{
    static const int sizes[] = {12, 13, 32};
    for (int i = 0; i < 3; i++) {
        window_case c;
        while (next_case(&c, sizes[i])) {
            begin();
            tc_tensor x = tc_input(ctx, "x", TC_F32, 2, 3, sizes[i], sizes[i]);
            check_gradient(x, pool_of(x, c), case_text("pool", c, sizes[i]), true);
            tc_ctx_free(ctx);
        }
    }
}

TEST(gradients_of_convolutions_divide_no_index)
{
    static const int sizes[] = {12, 13, 32};
    for (int i = 0; i < 3; i++) {
        window_case c;
        while (next_case(&c, sizes[i])) {
            for (int groups = 1; groups <= 2; groups++) {
                begin();
                tc_tensor x = tc_input(ctx, "x", TC_F32, 2, 4, sizes[i], sizes[i]);
                tc_tensor w = tc_full(ctx, 0.5, TC_F32, 6, 4 / groups, c.kernel, c.kernel);
                check_gradient(x, conv_of(x, w, c, groups), case_text("conv", c, sizes[i]), true);
                tc_ctx_free(ctx);
            }
        }
    }
}

TEST(gradients_of_movements_divide_no_index)
{
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 6, 35);
    check_gradient(x, tc_slice(x, 1, 1, 30, 3), "slice with a step", true);
    check_gradient(x, tc_slice(x, 1, 33, 2, -4), "slice backwards", true);
    check_gradient(x, tc_slice(x, 1, 0, TC_END, 5), "slice with a step that divides", true);
    check_gradient(x, tc_flip(x, 1), "flip", true);
    check_gradient(x, tc_pad(x, 1, 2, -3, 1), "pad", true);
    check_gradient(x, tc_reshape(tc_transpose(x, 0, 1), 14, 15), "sizes that do not nest", true);
    check_gradient(x, tc_reshape(tc_slice(x, 1, 0, 30, 1), 9, 20), "reshape of a part", true);
    check_gradient(x, tc_cat(TC_TENSORS(x, tc_mul(x, 2)), 1), "cat", true);
    check_gradient(x, tc_expand(tc_unsqueeze(x, 0), 4, 6, 35), "expand", true);
    check_gradient(x, tc_cumsum(x, 1), "cumsum", true);
    check_gradient(x, tc_reshape(tc_pad(tc_slice(x, 1, 0, TC_END, 2), 1, 1, 2, 0), 7, 18),
                   "slice, pad, reshape", true);
    tc_ctx_free(ctx);
}

TEST(a_gradient_of_a_gradient_divides_no_index)
{
    window_case c;
    while (next_case(&c, 13)) {
        begin();
        tc_tensor x = tc_input(ctx, "x", TC_F32, 1, 2, 13, 13), g;
        tc_tensor y = conv_of(x, tc_full(ctx, 0.5, TC_F32, 2, 2, c.kernel, c.kernel), c, 1);
        tc_tensor third = tc_mul(y, tc_square(y));
        CHECK_EQ_INT(tc_grad(tc_sum(third, TC_ALL, false), &x, 1, &g), TC_OK);
        check_gradient(x, g, case_text("conv, twice", c, 13), true);
        tc_ctx_free(ctx);
    }
}

TEST(symbolic_sizes_divide_no_index)
{
    window_case c;
    while (next_case(&c, 13)) {
        begin();
        int64_t n = TC_DIM("n", 13, 500);
        tc_tensor x = tc_input(ctx, "x", TC_F32, 2, 3, n, n);
        tc_tensor w = tc_full(ctx, 0.5, TC_F32, 2, 3, c.kernel, c.kernel);
        check_gradient(x, pool_of(x, c), case_text("pool", c, -1), false);
        check_gradient(x, conv_of(x, w, c, 1), case_text("conv", c, -1), false);
        tc_ctx_free(ctx);
    }
}

/* ---- work ---- */

/* reshape(transpose()) with sizes that do not nest, `depth` times: bytes that planning takes, and
 * the size of all index expressions. */
static size_t chain_work(int depth, int *size)
{
    static const int64_t shapes[3][2] = {{6, 35}, {14, 15}, {10, 21}};
    static tci_scratch s;
    begin();
    tc_tensor x = tc_input(ctx, "x", TC_F32, 6, 35), y = x;
    for (int i = 1; i <= depth; i++) {
        y = tc_reshape(tc_transpose(y, 0, 1), shapes[i % 3][0], shapes[i % 3][1]);
    }
    *size = 0;
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        CHECK_MSG(false, "%s", s.message);
    } else {
        tci_plan *plan = plan_of(&s, x, y);
        for (int i = 0; i < plan->n_kernels; i++) {
            const bool *live = tci_kernel_live_kx(plan->kernels[i], false);
            for (int e = 0; e < plan->kernels[i]->n_kx; e++) {
                *size += live[e];
            }
            inner_divisions(&s, plan->kernels[i]);
        }
    }
    size_t bytes = s.bytes;
    tci_scratch_free(&s);
    tc_ctx_free(ctx);
    return bytes;
}

TEST(work_grows_with_a_chain_of_reshapes_and_not_faster)
{
    int small, large, huge;
    size_t bytes = chain_work(30, &small), twice = chain_work(60, &large);
    CHECK_MSG(twice <= 3 * bytes, "%zu bytes for 30, %zu for 60", bytes, twice);
    CHECK_MSG(large <= 3 * small, "%d expressions for 30, %d for 60", small, large);
    CHECK_MSG(small <= 40 * 30, "%d expressions for 30", small);
    bytes = chain_work(1920, &huge);
    CHECK_MSG(bytes <= 64 * 3 * twice, "%zu bytes for 60, %zu for 1920", twice, bytes);
}

/* ---- the constructors ---- */

enum { AXES = 3, DRAWN = 40 };
static const int64_t axis_sizes[AXES] = {2, 5, 6};

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

static uint32_t draw(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % n;
}

static int64_t value_of(const tci_kernel *k, int x, const int64_t *at)
{
    const tci_kx *e = &k->kx[x];
    switch (e->op) {
    case TCI_KX_CONST: return e->c;
    case TCI_KX_AXIS: return at[e->c];
    case TCI_KX_ADD: return value_of(k, e->a, at) + value_of(k, e->b, at);
    case TCI_KX_MUL: return value_of(k, e->a, at) * e->c;
    case TCI_KX_DIV: return floor_div(value_of(k, e->a, at), e->c);
    default: {
        int64_t a = value_of(k, e->a, at);
        return a - e->c * floor_div(a, e->c);
    }
    }
}

/* One more expression over those drawn so far, whose values at every point are in `values`. */
static int draw_next(tci_kernel *k, uint32_t *state, const int *drawn, int n, int64_t (*values)[60],
                     int64_t *of)
{
    int a = (int)draw(state, (uint32_t)n), b = (int)draw(state, (uint32_t)n);
    uint32_t op = draw(state, 5);
    int64_t c = op == 1 ? (int64_t)draw(state, 13) - 6 : 1 + draw(state, 12);
    for (int p = 0; p < 60; p++) {
        int64_t x = values[a][p], y = values[b][p];
        of[p] = op == 0 ? x + y : op == 1 ? x * c : op == 2 ? x + c : floor_div(x, c);
        of[p] = op == 4 ? x - c * floor_div(x, c) : of[p];
    }
    switch (op) {
    case 0: return tci_kx_add(k, drawn[a], drawn[b]);
    case 1: return tci_kx_mul(k, drawn[a], c);
    case 2: return tci_kx_add(k, drawn[a], tci_kx_const(k, c));
    case 3: return tci_kx_div(k, drawn[a], c);
    default: return tci_kx_mod(k, drawn[a], c);
    }
}

/* Values of drawn expressions that are wrong or out of their range. */
static int count_wrong(tci_kernel *k, uint32_t seed)
{
    static int64_t values[AXES + DRAWN][60];
    int drawn[AXES + DRAWN], wrong = 0;
    for (int i = 0; i < AXES; i++) {
        tci_kernel_axis(k, axis_sizes[i], false);
        drawn[i] = tci_kx_axis(k, i);
    }
    for (int p = 0; p < 60; p++) {
        values[0][p] = p / 30;
        values[1][p] = p / 6 % 5;
        values[2][p] = p % 6;
    }
    for (int n = AXES; n < AXES + DRAWN; n++) {
        drawn[n] = draw_next(k, &seed, drawn, n, values, values[n]);
        const tci_kx *e = &k->kx[drawn[n]];
        for (int p = 0; p < 60; p++) {
            const int64_t at[AXES] = {p / 30, p / 6 % 5, p % 6};
            int64_t want = values[n][p];
            wrong += value_of(k, drawn[n], at) != want || want < e->lo || want > e->hi;
        }
    }
    return wrong;
}

TEST(what_is_simplified_means_what_it_meant)
{
    static tci_scratch s;
    static uint32_t seed; /* it outlives a jump */
    for (seed = 0; seed < 400; seed++) {
        tci_scratch_init(&s);
        REQUIRE(!setjmp(s.escape));
        int wrong = count_wrong(tci_kernel_make(&s), seed);
        CHECK_MSG(wrong == 0, "seed %u: %d values are wrong or out of range", seed, wrong);
        tci_scratch_free(&s);
    }
}

TEST(what_a_reshape_takes_apart_is_put_together)
{
    static tci_scratch s;
    tci_scratch_init(&s);
    REQUIRE(!setjmp(s.escape));
    tci_kernel *k = tci_kernel_make(&s);
    tci_kernel_axis(k, 35, false);
    int a = tci_kx_axis(k, 0), x = tci_kx_add(k, tci_kx_mul(k, a, 3), tci_kx_const(k, 1));
    int q = tci_kx_div(k, x, 12), r = tci_kx_mod(k, tci_kx_div(k, x, 4), 3);
    int t = tci_kx_mod(k, x, 4);
    CHECK(k->kx[q].op == TCI_KX_DIV && divisions(k) == 0);
    int sum = tci_kx_add(k, tci_kx_mul(k, q, 12), tci_kx_add(k, tci_kx_mul(k, r, 4), t));
    CHECK_EQ_INT(sum, x);
    CHECK_EQ_INT(tci_kx_div(k, tci_kx_mul(k, a, 13), 6), /* 13 a / 6 = 2 a + a / 6 */
                 tci_kx_add(k, tci_kx_mul(k, a, 2), tci_kx_div(k, a, 6)));
    CHECK_EQ_INT(tci_kx_mod(k, tci_kx_mod(k, a, 12), 4), tci_kx_mod(k, a, 4));
    CHECK_EQ_INT(tci_kx_div(k, tci_kx_bound(k, a, 6, 11), 6), tci_kx_const(k, 1));
    tci_scratch_free(&s);
}

TEST_MAIN
