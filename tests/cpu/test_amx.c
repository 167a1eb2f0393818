/* Contractions on a CPU's matrix unit: the code that plain C stands in for runs everywhere, is
 * compared with the interpreter within the bound of its numeric class, and gives the same bits for
 * any number of threads; where this processor has the unit, it gives those bits too. */
#include "inside.h"

#include "tc_test.h"
#include "same.h"

enum { WIDE = 512 }; /* bits: only such vectors have tiles, whatever TC_VECTOR says */

/* The "cpu" backend with a matrix unit that is not there. */
static tc_status imitation_target(void *user, int vector_bits, tc_backend_target *out)
{
    tci_target t;
    memset(&t, 0, sizeof(t));
    tci_target_detect(&t, vector_bits);
    tc_status status = tci_cpu_backend()->target(user, vector_bits, out);
    char *unit = strstr(out->features, ",amx");
    if (unit) { /* the flags that come without it */
        memmove(unit, unit + 4, strlen(unit + 4) + 1);
    }
    out->matrix_units = 1;
    return status;
}

static tc_status imitation_compile(void *user, tc_build *build)
{
    tci_target t;
    const char *why;
    (void)user;
    tci_target_detect(&t, WIDE);
    t.n_flags -= t.matrix_units;
    return tci_cc_build(build, &t, &why);
}

static void register_imitation(void)
{
    static tc_backend imitation;
    if (!imitation.name) {
        imitation = *tci_cpu_backend();
        imitation.name = "tiles";
        imitation.target = imitation_target;
        imitation.compile = imitation_compile;
        tc_register_backend(&imitation);
    }
}

static bool is_wide(void)
{
    tci_target t;
    tci_target_detect(&t, WIDE);
    return t.vector_bytes == 64;
}

static bool has_unit(void)
{
    tci_target t;
    tci_target_detect(&t, WIDE);
    return t.matrix_units > 0;
}

typedef struct product {
    const char *name;
    int batch, m, n, k;
    bool b_turned, chain; /* chain: bias, gelu and a bf16 result */
    bool fits;            /* the unit takes it */
} product;

static uint16_t *random_halves(int64_t n)
{
    uint16_t *p = malloc((size_t)n * sizeof(*p) + 1);
    REQUIRE(p != NULL);
    for (int64_t i = 0; i < n; i++) {
        float x = (float)tct_random_below(2001) / 1000 - 1;
        uint32_t bits;
        memcpy(&bits, &x, sizeof(bits));
        p[i] = (uint16_t)(bits >> 16);
    }
    return p;
}

static float value_of(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static bool is_explained(const tc_program *f, const char *words)
{
    char text[4096] = "";
    FILE *file = tmpfile();
    REQUIRE(file != NULL);
    tc_explain_as(f, file, &(tc_explain_options){.all = true});
    rewind(file);
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    text[n] = 0;
    fclose(file);
    return strstr(text, words) != NULL;
}

/* Runs the product; says whether it was made for the unit. */
static bool run(product p, const char *backend, int threads, const uint16_t *a, const uint16_t *b,
                float *to)
{
    tc_ctx *ctx;
    tc_program *f = NULL;
    tc_options options = {.threads = threads,
                          .backend = backend,
                          .no_disk_cache = true,
                          .verify = true,
                          .vector_bits = WIDE,
                          .fallback = TC_FALLBACK_REFUSE};
    REQUIRE(tc_ctx_make(&ctx, &options) == TC_OK);
    int64_t n_a = (int64_t)p.batch * p.m * p.k, n_b = (int64_t)p.k * p.n;
    tc_tensor x = tc_input(ctx, "x", TC_BF16, p.batch, p.m, p.k);
    tc_tensor y = tc_input(ctx, "y", TC_BF16, p.b_turned ? p.n : p.k, p.b_turned ? p.k : p.n);
    tc_tensor right = tc_cast(p.b_turned ? tc_transpose(y, 0, 1) : y, TC_F32);
    tc_tensor z = tc_matmul(tc_cast(x, TC_F32), right);
    z = p.chain ? tc_cast(tc_cast(tc_gelu(tc_add(z, 0.25)), TC_BF16), TC_F32) : z;
    CHECK_MSG(tc_compile_fn(TC_TENSORS(x, y), TC_TENSORS(z), &options, &f) == TC_OK, "%s: %s",
              p.name, tc_error(z));
    REQUIRE(f != NULL);
    tc_buf in[2] = {{.data = (void *)(uintptr_t)a, .dtype = TC_BF16, .n = n_a},
                    {.data = (void *)(uintptr_t)b, .dtype = TC_BF16, .n = n_b}};
    tc_bufs ins = {in, 2};
    CHECK_MSG(tc_run(f, ins, TC_BUFS(TC_BUF(to, (int64_t)p.batch * p.m * p.n))) == TC_OK, "%s: %s",
              p.name, tc_error(f));
    bool on_unit = is_explained(f, "matrix unit");
    tc_program_free(f);
    tc_ctx_free(ctx);
    return on_unit;
}

/* The bound of the class (kernel/ir.h) on a sum, and what the chain may make of it. */
static bool is_close(product p, const uint16_t *a, const uint16_t *b, int64_t at, float want,
                     float got)
{
    int64_t row = at / p.n, column = at % p.n;
    double all = 0;
    for (int64_t k = 0; k < p.k; k++) {
        int64_t y = p.b_turned ? column * p.k + k : k * p.n + column;
        all += fabs((double)value_of(a[row * p.k + k]) * value_of(b[y]));
    }
    double bound = (2.0 * ((p.k + 15) / 16) + 32) * 0x1p-23 * all;
    bound = p.chain ? 2 * bound + fabs(want) * 0x1p-7 : bound;
    return fabs((double)want - got) <= bound;
}

static void check_product(product p)
{
    int64_t n = (int64_t)p.batch * p.m * p.n;
    uint16_t *a = random_halves((int64_t)p.batch * p.m * p.k);
    uint16_t *b = random_halves((int64_t)p.k * p.n);
    float *want = calloc((size_t)n, sizeof(*want)), *one = calloc((size_t)n, sizeof(*one));
    float *got = calloc((size_t)n, sizeof(*got));
    static const int threads[] = {1, 2, 5};
    REQUIRE(want && one && got);
    run(p, "interp", 1, a, b, want);
    for (int i = 0; i < 3; i++) {
        bool on_unit = run(p, "tiles", threads[i], a, b, i ? got : one);
        CHECK_MSG(on_unit == p.fits, "%s: %s the unit", p.name, on_unit ? "on" : "not on");
        CHECK_MSG(i == 0 || same_bits(TC_F32, one, got, n), "%s, %d threads: other bits than one",
                  p.name, threads[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        bool close = p.fits ? is_close(p, a, b, i, want[i], one[i]) : want[i] == one[i];
        if (!close) {
            CHECK_MSG(false, "%s: element %lld is %g, expected %g", p.name, (long long)i, one[i],
                      want[i]);
            break;
        }
    }
    if (has_unit()) {
        CHECK(run(p, "cpu", 2, a, b, got) == p.fits);
        CHECK_MSG(same_bits(TC_F32, one, got, n), "%s: the unit has other bits", p.name);
    }
    free(a);
    free(b);
    free(want);
    free(one);
    free(got);
}

TEST(products_on_a_matrix_unit)
{
    static const product products[] = {
        {"one block", 1, 128, 128, 128, false, false, true},
        {"blocks of columns", 1, 64, 1120, 96, false, false, true},
        {"deep", 1, 32, 64, 1056, false, true, true},
        {"batched", 3, 64, 96, 160, false, true, true},
        {"odd rows", 1, 100, 256, 128, false, false, true},
        {"odd depth", 1, 128, 256, 120, false, true, true},
        {"two", 1, 2, 256, 4096, false, true, true},
        {"turned right", 1, 128, 128, 128, true, false, true},
        {"turned right, blocks of columns", 1, 64, 1120, 96, true, true, true},
        {"turned right, deep, batched", 2, 64, 160, 1056, true, false, true},
    };
    if (!is_wide()) {
        SKIP("no vectors of 512 bits");
    }
    register_imitation();
    for (size_t i = 0; i < sizeof(products) / sizeof(*products); i++) {
        check_product(products[i]);
    }
}

/* Weights that no run changes are stored in panels, whatever the number of rows, but for steps of
 * k that are not whole. */
static void check_weights(int rows, int depth, bool panels)
{
    enum { COLUMNS = 100 };
    uint16_t *x = random_halves((int64_t)rows * depth), *w = random_halves(COLUMNS * depth);
    uint16_t *y[2] = {random_halves(rows * COLUMNS), random_halves(rows * COLUMNS)};
    for (int i = 0; i < 2; i++) {
        tc_ctx *ctx;
        tc_program *f = NULL;
        tc_options options = {.backend = i ? "tiles" : "interp",
                              .no_disk_cache = true,
                              .verify = true,
                              .vector_bits = WIDE,
                              .threads = 2};
        REQUIRE(tc_ctx_make(&ctx, &options) == TC_OK);
        tc_tensor in = tc_input(ctx, "x", TC_BF16, rows, depth);
        tc_tensor weights = tc_borrow(ctx, w, TC_BF16, COLUMNS, depth);
        REQUIRE(tc_compile(tc_matmul(in, tc_transpose(weights, 0, 1)), &f) == TC_OK);
        tc_buf from = {.data = x, .dtype = TC_BF16, .n = (int64_t)rows * depth};
        tc_buf to = {.data = y[i], .dtype = TC_BF16, .n = (int64_t)rows * COLUMNS};
        CHECK(tc_run(f, TC_BUFS(from), TC_BUFS(to)) == TC_OK);
        CHECK(i == 0 || is_explained(f, "columns in panels") == panels);
        CHECK(i == 0 || is_explained(f, "matrix unit"));
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
    for (int i = 0; i < rows * COLUMNS; i++) {
        float want = value_of(y[0][i]), got = value_of(y[1][i]);
        CHECK_MSG(fabsf(want - got) <= 0x1p-7f * fabsf(want) + 0.01f, "%g, expected %g",
                  (double)got, (double)want);
    }
    free(x);
    free(w);
    free(y[0]);
    free(y[1]);
}

TEST(weights_on_a_matrix_unit)
{
    if (!is_wide()) {
        SKIP("no vectors of 512 bits");
    }
    register_imitation();
    check_weights(2, 8192, true);
    check_weights(64, 224, true);
    check_weights(37, 1088, true);
    check_weights(64, 200, false);
}

/* ---- factors that are packed ---- */

typedef struct window {
    const char *name;
    int rank;      /* of the images */
    bool backward; /* both gradients, else the convolution */
    int n, c, o, size, filter;
    tc_conv options;
    int on_unit; /* its kernels that the unit takes, -1 any number */
} window;

typedef struct arrays {
    uint16_t *in[3]; /* image, filters and, backward, what comes back */
    float *out[2];
    int64_t n_in[3], n_out[2], products;
} arrays;

static int count_on_unit(const tc_program *f)
{
    char text[8192] = "";
    int count = 0;
    FILE *file = tmpfile();
    REQUIRE(file != NULL);
    tc_explain_as(f, file, &(tc_explain_options){.all = true});
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = 0;
    fclose(file);
    for (const char *at = text; (at = strstr(at, ", matrix unit")) != NULL; at++) {
        count++;
    }
    return count;
}

static tc_tensor convolved(const window *w, tc_tensor x, tc_tensor y)
{
    return w->rank == 1   ? tc_conv1d(x, y, TC_NONE, &w->options)
           : w->rank == 2 ? tc_conv2d(x, y, TC_NONE, &w->options)
                          : tc_conv3d(x, y, TC_NONE, &w->options);
}

/* Runs it on what there is, made where there is none; the kernels on the unit. absolute: of the
 * factors' magnitudes. */
static int run_window(const window *w, const char *backend, int threads, bool absolute, arrays *a)
{
    tc_ctx *ctx;
    tc_program *f = NULL;
    tc_options options = {.threads = threads,
                          .backend = backend,
                          .no_disk_cache = true,
                          .verify = true,
                          .vector_bits = WIDE,
                          .fallback = TC_FALLBACK_REFUSE};
    REQUIRE(tc_ctx_make(&ctx, &options) == TC_OK);
    int64_t dims[2][6] = {{TC_BF16, w->n, w->c},
                          {TC_BF16, w->o, w->c / TCI_MAX(w->options.groups, 1)}};
    tc_tensor in[3], wide[3], out[2];
    for (int i = 0; i < 2; i++) {
        for (int d = 0; d < w->rank; d++) {
            dims[i][3 + d] = i ? w->filter : w->size + d;
        }
        in[i] = tc_input_at(ctx, i ? "y" : "x", w->rank + 3, dims[i], TC_HERE);
        wide[i] = tc_cast(absolute ? tc_abs(in[i]) : in[i], TC_F32);
    }
    out[0] = convolved(w, wide[0], wide[1]);
    if (w->backward) {
        int64_t flat[2] = {TC_BF16, tc_count(out[0])};
        in[2] = tc_input_at(ctx, "g", 2, flat, TC_HERE);
        wide[2] = tc_cast(absolute ? tc_abs(in[2]) : in[2], TC_F32);
        tc_tensor all = tc_mul(tc_reshape(out[0], flat[1]), wide[2]);
        REQUIRE(tc_grad(tc_sum(all, TC_ALL, false), wide, 2, out) == TC_OK);
    }
    int n_in = 2 + w->backward, n_out = 1 + w->backward;
    tc_buf ins[3], outs[2];
    for (int i = 0; i < n_in; i++) {
        a->n_in[i] = tc_count(in[i]);
        a->in[i] = a->in[i] ? a->in[i] : random_halves(a->n_in[i]);
        ins[i] = (tc_buf){.data = a->in[i], .dtype = TC_BF16, .n = a->n_in[i]};
    }
    for (int i = 0; i < n_out; i++) {
        a->n_out[i] = tc_count(out[i]);
        a->out[i] = calloc((size_t)a->n_out[i], sizeof(float));
        REQUIRE(a->out[i] != NULL);
        outs[i] = (tc_buf){.data = a->out[i], .dtype = TC_F32, .n = a->n_out[i]};
    }
    a->products = TCI_MAX(a->n_in[1], w->backward ? a->n_in[2] : 0);
    tc_tensors of = {in, n_in}, to = {out, n_out};
    CHECK_MSG(tc_compile_fn(of, to, &options, &f) == TC_OK, "%s: %s", w->name, tc_ctx_error(ctx));
    REQUIRE(f != NULL);
    tc_bufs given = {ins, n_in}, wanted = {outs, n_out};
    CHECK_MSG(tc_run(f, given, wanted) == TC_OK, "%s: %s", w->name, tc_program_error(f));
    int on_unit = count_on_unit(f);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return on_unit;
}

/* Within the bound of the class: `all` are the sums of magnitudes. */
static void compare(const window *w, const arrays *want, const arrays *all, const arrays *got)
{
    for (int o = 0; o < 1 + w->backward; o++) {
        double factor = (2.0 * (double)((want->products + 15) / 16) + 32) * 0x1p-23;
        for (int64_t i = 0; i < want->n_out[o]; i++) {
            double apart = fabs((double)want->out[o][i] - (double)got->out[o][i]);
            if (!(apart <= factor * (double)all->out[o][i])) {
                CHECK_MSG(false, "%s: element %lld of %d is %g, expected %g", w->name, (long long)i,
                          o, (double)got->out[o][i], (double)want->out[o][i]);
                break;
            }
        }
    }
}

static void free_outputs(arrays *a)
{
    free(a->out[0]);
    free(a->out[1]);
    a->out[0] = a->out[1] = NULL;
}

static void check_window(const window *w)
{
    arrays want, all, one, other;
    memset(&want, 0, sizeof(want));
    run_window(w, "interp", 1, false, &want);
    all = one = other = want; /* the same inputs */
    run_window(w, "interp", 1, true, &all);
    int on_unit = run_window(w, "tiles", 1, false, &one);
    CHECK_MSG(on_unit == w->on_unit || w->on_unit < 0, "%s: %d kernels on the unit, expected %d",
              w->name, on_unit, w->on_unit);
    compare(w, &want, &all, &one);
    for (int i = 0; i < 1 + has_unit(); i++) {
        run_window(w, i ? "cpu" : "tiles", 2, false, &other);
        for (int o = 0; o < 1 + w->backward; o++) {
            CHECK_MSG(same_bits(TC_F32, one.out[o], other.out[o], one.n_out[o]),
                      "%s: other bits %s", w->name, i ? "of the unit" : "by two threads");
        }
        free_outputs(&other);
    }
    free_outputs(&want);
    free_outputs(&all);
    free_outputs(&one);
    for (int i = 0; i < 3; i++) {
        free(want.in[i]);
    }
}

TEST(windows_on_a_matrix_unit)
{
    static const window windows[] = {
        {"3x3", 2, false, 2, 16, 32, 17, 3, {.padding = {1, 1}}, 1},
        {"odd everything", 2, false, 1, 13, 33, 19, 3, {.padding = {1, 1}}, 1},
        {"one row more than a tile", 2, false, 2, 33, 33, 43, 1, {.padding = {0}}, 1},
        {"stride and dilation",
         2,
         false,
         2,
         24,
         31,
         37,
         3,
         {.stride = {2, 3}, .padding = {2, 1}, .dilation = {2, 1}},
         1},
        {"groups", 2, false, 1, 64, 64, 20, 3, {.padding = {1, 1}, .groups = 2}, 1},
        {"blocks of depth", 2, false, 1, 96, 40, 14, 3, {.padding = {1, 1}}, 1},
        {"1d", 1, false, 3, 17, 47, 301, 5, {.stride = {2}}, 1},
        {"3d", 3, false, 1, 7, 37, 9, 3, {.padding = {1, 1, 1}}, 1},
        {"7x7 of three", 2, false, 1, 3, 64, 40, 7, {.stride = {2, 2}, .padding = {3, 3}}, 1},
        {"narrow groups", 2, false, 2, 64, 64, 25, 3, {.padding = {1, 1}, .groups = 8}, 1},
        {"each channel alone", 2, false, 1, 64, 64, 20, 3, {.padding = {1, 1}, .groups = 64}, 0},
        {"gradients", 2, true, 2, 32, 33, 17, 3, {.padding = {1, 1}}, 2},
        {"gradients, stride", 2, true, 2, 32, 48, 25, 3, {.stride = {2, 2}, .padding = {1, 1}}, 4},
        {"gradients, 1x1", 2, true, 2, 64, 40, 23, 1, {.padding = {0}}, 2},
        {"gradients, 1d, dilation", 1, true, 3, 32, 24, 211, 5, {.dilation = {3}}, 2},
        {"gradients, groups", 2, true, 1, 64, 64, 20, 3, {.padding = {1, 1}, .groups = 2}, 2},
    };
    if (!is_wide()) {
        SKIP("no vectors of 512 bits");
    }
    register_imitation();
    for (size_t i = 0; i < sizeof(windows) / sizeof(*windows); i++) {
        check_window(&windows[i]);
    }
}

TEST(windows_of_any_sizes_on_a_matrix_unit)
{
    if (!is_wide()) {
        SKIP("no vectors of 512 bits");
    }
    register_imitation();
    for (int i = 0; i < 10; i++) {
        int groups = 1 + (int)tct_random_below(2), filter = 1 + (int)tct_random_below(4);
        window w = {"any",
                    2,
                    i % 2 != 0,
                    1 + (int)tct_random_below(3),
                    groups * (8 + (int)tct_random_below(40)),
                    groups * (15 + (int)tct_random_below(20)),
                    24 + (int)tct_random_below(18),
                    filter,
                    {.groups = groups},
                    -1};
        for (int d = 0; d < 2; d++) {
            w.options.stride[d] = 1 + (int64_t)tct_random_below(2);
            w.options.padding[d] = (int64_t)tct_random_below(3);
            w.options.dilation[d] = 1 + (int64_t)tct_random_below(2);
        }
        check_window(&w);
    }
}

/* ---- rows that are kept ---- */

typedef struct attention {
    const char *name;
    int batch, heads, key_heads, rows, keys, width;
    bool causal;
    enum { NONE, SEEN, ADDED } mask;
    bool wild;     /* values are infinite and NaN here and there */
    bool backward; /* its gradients, else the result */
    int on_unit;   /* kernels of it */
} attention;

enum { N_ATTENTION = 4 };

static int64_t values_of(const attention *c, int which)
{
    int heads = which == 0 ? c->heads : c->key_heads, rows = which == 0 ? c->rows : c->keys;
    return which < 3 ? (int64_t)c->batch * heads * rows * c->width : (int64_t)c->rows * c->keys;
}

static int64_t results_of(const attention *c)
{
    return values_of(c, 0) + (c->backward ? 2 * values_of(c, 1) : 0);
}

/* Of halves, or of bools where the first of each row is true. */
static void *make_mask(const attention *c)
{
    uint16_t *p = random_halves(values_of(c, 3));
    for (int64_t i = 0; i < values_of(c, 3) && c->mask != ADDED; i++) {
        ((uint8_t *)p)[i] = i % c->keys == 0 || tct_random_below(8) > 2;
    }
    return p;
}

static void run_attention(const attention *c, const char *backend, int threads, void **in,
                          uint16_t *to)
{
    tc_ctx *ctx;
    tc_program *f = NULL;
    tc_program_info info = {0};
    tc_options options = {.threads = threads,
                          .backend = backend,
                          .no_disk_cache = true,
                          .verify = true,
                          .vector_bits = WIDE,
                          .fallback = TC_FALLBACK_REFUSE};
    REQUIRE(tc_ctx_make(&ctx, &options) == TC_OK);
    tc_dtype of_mask = c->mask == ADDED ? TC_BF16 : TC_BOOL;
    tc_tensor q = tc_input(ctx, "q", TC_BF16, c->batch, c->heads, c->rows, c->width);
    tc_tensor k = tc_input(ctx, "k", TC_BF16, c->batch, c->key_heads, c->keys, c->width);
    tc_tensor v = tc_input(ctx, "v", TC_BF16, c->batch, c->key_heads, c->keys, c->width);
    tc_tensor m = tc_input(ctx, "m", of_mask, c->rows, c->keys);
    tc_tensor y = tc_scaled_dot_product_attention(q, k, v, c->mask ? m : TC_NONE, c->causal, 0);
    tc_tensor x[] = {q, k, v}, grads[3];
    tc_tensors outs = {c->backward ? grads : &y, c->backward ? 3 : 1};
    REQUIRE(!c->backward || tc_vjp(TC_TENSORS(y), TC_TENSORS(q), x, 3, grads) == TC_OK);
    CHECK_MSG(tc_compile_fn(TC_TENSORS(q, k, v, m), outs, &options, &f) == TC_OK, "%s: %s", c->name,
              tc_error(y));
    REQUIRE(f != NULL);
    tc_buf from[N_ATTENTION];
    for (int i = 0; i < N_ATTENTION; i++) {
        from[i] = (tc_buf){.data = in[i], .dtype = i < 3 ? TC_BF16 : of_mask, .n = values_of(c, i)};
    }
    tc_buf out[3];
    for (int i = 0; i < 3; to += values_of(c, i++)) {
        out[i] = (tc_buf){.data = to, .dtype = TC_BF16, .n = values_of(c, i)};
    }
    tc_bufs ins = {from, N_ATTENTION}, results = {out, outs.n};
    CHECK_MSG(tc_run(f, ins, results) == TC_OK, "%s: %s", c->name, tc_error(f));
    tc_program_get_info(f, &info);
    if (!strcmp(backend, "tiles")) { /* no array of scores; a result of groups may be copied */
        CHECK_MSG(count_on_unit(f) == c->on_unit, "%s: %d kernels on the unit", c->name,
                  count_on_unit(f));
        CHECK_MSG(c->on_unit == 0 || info.arena_bytes <= 2 * results_of(c),
                  "%s: %lld bytes of workspace", c->name, (long long)info.arena_bytes);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

static void check_attention(attention c)
{
    static const char *const backends[] = {"interp", "tiles", "tiles", "cpu"};
    int64_t n = results_of(&c), n_values = values_of(&c, 2);
    uint16_t *y[4];
    void *in[N_ATTENTION];
    for (int i = 0; i < 3; i++) {
        in[i] = random_halves(values_of(&c, i));
    }
    for (int64_t i = 0; i < n_values && c.wild; i++) { /* infinite, NaN */
        int x = (int)tct_random_below(4000);
        ((uint16_t *)in[2])[i] = x == 0 ? 0x7f80 : x == 1 ? 0x7fc0 : ((uint16_t *)in[2])[i];
    }
    in[3] = make_mask(&c);
    for (int i = 0; i < 3 + has_unit(); i++) {
        y[i] = random_halves(n);
        run_attention(&c, backends[i], i == 2 ? 3 : 1, in, y[i]);
        CHECK_MSG(i < 2 || same_bits(TC_BF16, y[1], y[i], n), "%s: %s, other bits", c.name,
                  backends[i]);
    }
    for (int64_t i = 0; i < n; i++) { /* each weight may be rounded to its other neighbour */
        float want = value_of(y[0][i]), got = value_of(y[1][i]);
        bool same = want == got || (isnan(want) && isnan(got));
        bool close = fabsf(want - got) <= 0x1p-7f * (1 + fabsf(want));
        CHECK_MSG(same || close, "%s: %g at %lld, expected %g", c.name, (double)got, (long long)i,
                  (double)want);
    }
    for (int i = 0; i < N_ATTENTION; i++) {
        free(in[i]);
    }
    for (int i = 0; i < 3 + has_unit(); i++) {
        free(y[i]);
    }
}

TEST(attention_on_a_matrix_unit)
{
    static const attention cases[] = {
        {"whole tiles", 2, 2, 2, 128, 128, 64, false, NONE, false, false, 1},
        {"odd everything", 1, 3, 3, 101, 77, 40, false, NONE, false, false, 1},
        {"odd, causal", 1, 2, 2, 101, 163, 40, true, NONE, false, false, 1},
        {"more rows than keys", 1, 2, 2, 203, 75, 33, true, NONE, false, false, 1},
        {"blocks of keys", 1, 1, 1, 70, 1301, 64, false, NONE, false, false, 1},
        {"blocks, causal", 1, 1, 1, 333, 700, 32, true, NONE, false, false, 1},
        {"causal, wild", 1, 2, 2, 193, 193, 64, true, NONE, true, false, 1},
        {"blocks, causal, wild", 1, 1, 1, 350, 720, 48, true, NONE, true, false, 1},
        {"wild", 1, 2, 2, 160, 200, 64, false, NONE, true, false, 1},
        {"groups", 2, 6, 2, 96, 90, 64, true, NONE, false, false, 1},
        {"one head of keys", 1, 4, 1, 65, 130, 80, false, NONE, false, false, 1},
        {"wide heads", 1, 2, 2, 97, 97, 256, true, NONE, false, false, 1},
        {"a mask", 1, 2, 2, 99, 140, 64, false, SEEN, false, false, 1},
        {"a mask, causal", 1, 2, 2, 99, 140, 64, true, SEEN, true, false, 1},
        {"added", 1, 2, 2, 64, 95, 72, false, ADDED, false, false, 1},
        {"one query", 1, 8, 8, 1, 640, 64, false, NONE, false, false, 0},
        {"gradients", 1, 2, 2, 256, 288, 64, false, NONE, false, true, 2},
        {"gradients, odd, causal", 1, 2, 2, 203, 301, 40, true, NONE, false, true, 2},
        {"gradients, more rows", 1, 1, 1, 695, 230, 48, true, NONE, false, true, 2},
        {"gradients, a mask", 1, 2, 2, 202, 199, 33, false, SEEN, false, true, 2},
    };
    if (!is_wide()) {
        SKIP("no vectors of 512 bits");
    }
    register_imitation();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        check_attention(cases[i]);
    }
}

TEST_MAIN
