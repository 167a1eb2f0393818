/* Convolutions with fewer products (plan/winograd.c): the same function, in f64, for every size,
 * padding and number of channels; within the stated bound in f32; the same bits from the
 * interpreter and from code of any width; taken only where math may be fast. */
#include "inside.h"

#include "../tc_test.h"

typedef struct conv {
    int images, channels, filters, height, width, pad;
} conv;

static int places(conv c, int size)
{
    return size + 2 * c.pad - 2;
}

static int64_t n_image(conv c)
{
    return (int64_t)c.images * c.channels * c.height * c.width;
}
static int64_t n_filter(conv c)
{
    return (int64_t)c.filters * c.channels * 9;
}
static int64_t n_result(conv c)
{
    return (int64_t)c.images * c.filters * places(c, c.height) * places(c, c.width);
}

static float *floats(int64_t n)
{
    float *p = malloc((size_t)n * sizeof(*p));
    for (int64_t i = 0; i < n; i++) {
        p[i] = (float)(2 * tct_random_unit() - 1);
    }
    return p;
}

/* What tc_math promises: how far a result is from the exact one, at most. */
static double bound(conv c, const float *x, const float *w, int filter, int m)
{
    double most = 0, sum = 0;
    for (int64_t i = 0; i < n_image(c); i++) {
        most = fmax(most, fabs(x[i]));
    }
    for (int i = 0; i < c.channels; i++) {
        double largest = 0;
        for (int e = 0; e < 9; e++) {
            largest = fmax(largest, fabs(w[((int64_t)filter * c.channels + i) * 9 + e]));
        }
        sum += largest;
    }
    return (c.channels + 32) * (m == 2 ? 0x1p-18 : 0x1p-12) * most * sum;
}

static int filter_of(conv c, int64_t i)
{
    return (int)(i / ((int64_t)places(c, c.height) * places(c, c.width)) % c.filters);
}

/* ---- one by one, as the judge computes them ---- */

typedef struct rewritten {
    tci_scratch s;
    tci_graph g;
    tci_node *in[2], *direct, *fast;
} rewritten;

static tci_node *leaf(tci_graph *g, const tci_dim *shape)
{
    tci_node *x = tci_graph_node(g, TCI_OP_INPUT, TC_F32, 4, shape, 0, NULL, 0, NULL);
    x->value.i = g->n_nodes;
    return x;
}

static void rewrite(rewritten *r, conv c, int m)
{
    const tci_dim image[4] = {c.images, c.channels, c.height, c.width};
    const tci_dim filter[4] = {c.filters, c.channels, 3, 3};
    const tc_conv options = {.padding = {c.pad, c.pad}};
    tci_str orders = {.s = &r->s};
    tci_table forced = tci_table_in(&r->s, sizeof(bool));
    const tci_algo a = {.s = &r->s,
                        .g = &r->g,
                        .machine = {.vector_bytes = 32},
                        .orders = &orders,
                        .forced = &forced};
    tci_graph_init(&r->g, &r->s, NULL);
    r->in[0] = leaf(&r->g, image);
    r->in[1] = leaf(&r->g, filter);
    /* behind the node that keeps the call's name */
    r->direct = tci_build_conv(&r->g, 2, r->in[0], r->in[1], NULL, &options)->in[0];
    r->fast = tci_plan_winograd_by(&a, r->direct, m);
}

static void check_rewritten(conv c, int m)
{
    rewritten r = {0};
    tci_scratch_init(&r.s);
    if (setjmp(r.s.escape)) {
        CHECK_MSG(false, "%s", r.s.message);
        return;
    }
    rewrite(&r, c, m);
    REQUIRE(r.fast != NULL);
    float *x = floats(n_image(c)), *w = floats(n_filter(c));
    float *out[3];
    for (int i = 0; i < 3; i++) {
        out[i] = floats(n_result(c));
    }
    const void *in[2] = {x, w};
    tci_node *roots[2] = {r.direct, r.fast};
    void *wide[2] = {out[0], out[1]}, *narrow[1] = {out[2]};
    CHECK(tci_reference_eval(r.in, in, 2, roots, wide, 2, true) == TC_OK);
    CHECK(tci_reference_eval(r.in, in, 2, &r.fast, narrow, 1, false) == TC_OK);
    for (int64_t i = 0; i < n_result(c); i++) {
        double off = fabs((double)out[1][i] - out[0][i]), far = fabs((double)out[2][i] - out[0][i]);
        bool fits = far <= bound(c, x, w, filter_of(c, i), m);
        if (off > 0x1p-23 * fmax(1, fabs(out[0][i])) || !fits) {
            CHECK_MSG(false, "%d x %d x %d x %d to %d, padded by %d, F(%d, 3): %g and %g, not %g",
                      c.images, c.channels, c.height, c.width, c.filters, c.pad, m, out[1][i],
                      out[2][i], out[0][i]);
            break;
        }
    }
    free(x);
    free(w);
    for (int i = 0; i < 3; i++) {
        free(out[i]);
    }
    tci_scratch_free(&r.s);
}

TEST(every_size_and_padding_is_the_same_convolution)
{
    static const int channels[] = {1, 3, 17}, filters[] = {1, 5, 32};
    for (int i = 0; i < 60; i++) {
        conv c = {1 + i % 3,
                  channels[tct_random_below(3)],
                  filters[tct_random_below(3)],
                  1 + tct_random_below(9),
                  1 + i % 9,
                  i % 4};
        if (places(c, c.height) > 0 && places(c, c.width) > 0) {
            check_rewritten(c, 2);
            check_rewritten(c, 4);
        }
    }
}

/* ---- programs ---- */

typedef struct how {
    const char *backend;
    tc_math math;
    int vector_bits, threads;
    bool reproducible, gradient; /* to the image, of results as large as it */
} how;

/* Runs c with w as captured memory; `said`: whether tc_explain names Winograd. */
static void run(conv c, how h, const float *x, const float *w, float *y, bool *said)
{
    tc_ctx *ctx;
    tc_program *f = NULL;
    char line[512];
    tc_options options = {.backend = h.backend,
                          .math = h.math,
                          .vector_bits = h.vector_bits,
                          .threads = h.threads,
                          .reproducible = h.reproducible};
    tc_conv padded = {.padding = {c.pad, c.pad}};
    REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
    int from = h.gradient ? c.filters : c.channels, to = h.gradient ? c.channels : c.filters;
    tc_tensor in = tc_input(ctx, "x", TC_F32, c.images, from, c.height, c.width), out;
    tc_tensor filter = tc_borrow(ctx, w, TC_F32, c.filters, c.channels, 3, 3);
    if (h.gradient) {
        tc_tensor image = tc_input(ctx, "i", TC_F32, c.images, to, c.height, c.width);
        tc_tensor result = tc_conv2d(image, filter, TC_NONE, &padded);
        CHECK(tc_vjp(TC_TENSORS(result), TC_TENSORS(in), &image, 1, &out) == TC_OK);
    } else {
        out = tc_conv2d(in, filter, TC_NONE, &padded);
    }
    CHECK_MSG(tc_compile_fn(TC_TENSORS(in), TC_TENSORS(out), &options, &f) == TC_OK, "%s",
              tc_error(out));
    int64_t n_in = (int64_t)c.images * from * c.height * c.width;
    int64_t n_out = h.gradient ? (int64_t)c.images * to * c.height * c.width : n_result(c);
    CHECK(tc_run(f, TC_BUFS(TC_BUF((float *)(uintptr_t)x, n_in)), TC_BUFS(TC_BUF(y, n_out))) ==
          TC_OK);
    FILE *file = tmpfile();
    REQUIRE(file != NULL);
    tc_explain_as(f, file, &(tc_explain_options){.all = true});
    rewind(file);
    *said = false;
    while (fgets(line, sizeof(line), file)) {
        *said = *said || strstr(line, "Winograd F(");
    }
    fclose(file);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

static void check_programs(conv c, bool gradient, bool taken)
{
    const how ways[] = {{"cpu", TC_MATH_EXACT, 0, 1, false, gradient},
                        {"interp", TC_MATH_FAST, 0, 1, false, gradient},
                        {"cpu", TC_MATH_FAST, 0, 1, false, gradient},
                        {"cpu", TC_MATH_FAST, 256, 3, false, gradient},
                        {"cpu", TC_MATH_FAST, 0, 1, true, gradient}};
    enum { n_ways = sizeof(ways) / sizeof(*ways) };
    float *x = floats(n_image(c) > n_result(c) ? n_image(c) : n_result(c));
    float *w = floats(n_filter(c)), *y[n_ways];
    int64_t n = gradient ? n_image(c) : n_result(c);
    for (int i = 0; i < n_ways; i++) {
        bool said;
        y[i] = floats(n);
        run(c, ways[i], x, w, y[i], &said);
        bool fast = ways[i].math == TC_MATH_FAST && !ways[i].reproducible;
        CHECK_MSG(said == (taken && fast), "%d channels, way %d: taken %d", c.channels, i, said);
    }
    double off = 0, most = 0;
    bool same = true;
    for (int64_t i = 0; i < n; i++) {
        same = same && y[2][i] == y[1][i] && y[3][i] == y[1][i];
        off = fmax(off, fabs((double)y[1][i] - y[0][i]));
        most = fmax(most, fabs(y[0][i]));
    }
    CHECK_MSG(same, "%d channels: not the same bits", c.channels);
    CHECK_MSG(off <= 0x1p-16 * most, "off by %g of %g", off, most);
    for (int i = 0; i < n_ways; i++) {
        free(y[i]);
    }
    free(x);
    free(w);
}

TEST(programs_agree_and_take_it_where_it_pays)
{
    check_programs((conv){1, 64, 64, 28, 27, 1}, false, true);
    check_programs((conv){2, 192, 40, 17, 18, 2}, false, true);
    check_programs((conv){1, 256, 128, 14, 14, 1}, false, true);
    check_programs((conv){1, 256, 512, 7, 7, 1}, false, true); /* vectors of 16 places: 64 of 49 */
    check_programs((conv){1, 3, 32, 20, 20, 1}, false, false); /* sums cost more than products */
    check_programs((conv){1, 64, 64, 28, 28, 1}, true, true);
}

/* A filter that each run gives is transformed in each run, which must be counted. */
TEST(a_given_filter_costs)
{
    rewritten r = {0};
    tci_scratch_init(&r.s);
    if (setjmp(r.s.escape)) {
        CHECK_MSG(false, "%s", r.s.message);
        return;
    }
    rewrite(&r, (conv){1, 256, 256, 14, 14, 1}, 0);
    CHECK(r.fast == NULL);
    rewrite(&r, (conv){8, 64, 64, 56, 56, 1}, 0);
    CHECK(r.fast != NULL);
    tci_scratch_free(&r.s);
}

TEST_MAIN
