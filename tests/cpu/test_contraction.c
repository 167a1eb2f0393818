/* Contractions on the CPU: bits equal to the interpreter's naive loop for every shape, packing,
 * width and number of threads; and one kernel each, whatever is fused into operands and result. */
#include "inside.h"

#include "../tc_test.h"
#include "same.h"

enum {
    A_TURNED = 1, /* given as its transpose */
    B_TURNED = 2,
    EPILOGUE = 4,   /* bias, gelu, residual */
    B_COMPUTED = 8, /* b * s + t */
    A_COMPUTED = 16,
    B_BF16 = 32, /* cast while packing */
    WEIGHTS = 64 /* b is the program's own where it is compiled */
};

typedef struct product {
    const char *name;
    int m, n, k, how;
    int vector_bits; /* 0: those of the machine */
} product;

static float *random_floats(int64_t n)
{
    static uint32_t state = 12345;
    float *p = malloc((size_t)n * sizeof(*p) + 1);
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        p[i] = (float)(int)(state >> 20) / 1024.0f - 2.0f;
    }
    return p;
}

/* weights: b, which the program captures; NULL: it is given in each run. */
static tc_program *compile_product(tc_ctx *ctx, product p, const float *weights,
                                   const tc_options *options)
{
    bool at = p.how & A_TURNED, bt = p.how & B_TURNED;
    tc_dtype type = p.how & B_BF16 ? TC_BF16 : TC_F32;
    tc_tensor a = tc_input(ctx, "a", TC_F32, at ? p.k : p.m, at ? p.m : p.k);
    tc_tensor given = tc_input(ctx, "b", type, bt ? p.n : p.k, bt ? p.k : p.n), b = given;
    b = weights ? tc_borrow(ctx, weights, TC_F32, bt ? p.n : p.k, bt ? p.k : p.n) : b;
    tc_tensor bias = tc_input(ctx, "bias", TC_F32, p.n);
    tc_tensor residual = tc_input(ctx, "residual", TC_F32, p.m, p.n);
    tc_tensor x = at ? tc_transpose(a, 0, 1) : a, y = bt ? tc_transpose(b, 0, 1) : b;
    y = p.how & B_BF16 ? tc_cast(y, TC_F32) : y;
    y = p.how & B_COMPUTED ? tc_add(tc_mul(y, 1.5), 0.25) : y;
    x = p.how & A_COMPUTED ? tc_add(tc_mul(x, 0.75), 0.125) : x;
    tc_tensor z = tc_matmul(x, y);
    z = p.how & EPILOGUE ? tc_add(tc_gelu(tc_add(z, bias)), residual) : z;
    tc_program *f = NULL;
    CHECK_MSG(tc_compile_fn(TC_TENSORS(a, given, bias, residual), TC_TENSORS(z), options, &f) ==
                  TC_OK,
              "%s: %s", p.name, tc_error(z));
    return f;
}

static bool explains(tc_program *f, const char *words)
{
    static char text[1 << 14];
    FILE *file = tmpfile();
    REQUIRE(file != NULL);
    tc_explain_as(f, file, &(tc_explain_options){.all = true});
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = 0;
    fclose(file);
    return strstr(text, words) != NULL;
}

static void check_product(product p)
{
    static const int threads[] = {1, 2, 5, 16};
    int64_t n_a = (int64_t)p.m * p.k, n_b = (int64_t)p.k * p.n, n_c = (int64_t)p.m * p.n;
    float *a = random_floats(n_a), *b = random_floats(n_b), *bias = random_floats(p.n);
    float *residual = random_floats(n_c), *want = random_floats(n_c), *got = random_floats(n_c);
    uint16_t *half = malloc((size_t)n_b * sizeof(*half) + 1);
    for (int64_t i = 0; i < n_b; i++) {
        uint32_t bits;
        memcpy(&bits, &b[i], sizeof(bits));
        half[i] = (uint16_t)(bits >> 16);
    }
    tc_buf second = TC_BUF(b, n_b);
    if (p.how & B_BF16) {
        second = (tc_buf){.data = half, .dtype = TC_BF16, .n = n_b};
    }
    tc_bufs in = TC_BUFS(TC_BUF(a, n_a), second, TC_BUF(bias, p.n), TC_BUF(residual, n_c));
    for (int run = -1; run < (int)(sizeof(threads) / sizeof(*threads)); run++) {
        tc_ctx *ctx;
        tc_options options = {.threads = run < 0 ? 1 : threads[run],
                              .backend = run < 0 ? "interp" : "cpu",
                              .vector_bits = p.vector_bits};
        REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
        bool weights = run >= 0 && (p.how & WEIGHTS);
        tc_program *f = compile_product(ctx, p, weights ? b : NULL, &options);
        REQUIRE(f != NULL);
        float *to = run < 0 ? want : got;
        CHECK_MSG(tc_run(f, in, TC_BUFS(TC_BUF(to, n_c))) == TC_OK, "%s: %s", p.name, tc_error(f));
        CHECK_MSG(run < 0 || explains(f, "1 launch of "), "%s: more than one launch", p.name);
        CHECK_MSG(!weights || explains(f, ", columns in panels\n"), "%s: packs weights", p.name);
        CHECK_MSG(weights || run < 0 || explains(f, "1 launch of 1 kernel "),
                  "%s: more than one kernel", p.name);
        CHECK_MSG(run < 0 || same_bits(TC_F32, want, got, n_c),
                  "%s, %d threads: other bits than interpreted", p.name, options.threads);
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
    free(a);
    free(b);
    free(bias);
    free(residual);
    free(want);
    free(got);
    free(half);
}

TEST(packed_products)
{
    static const product products[] = {
        {"whole tiles, two blocks", 512, 512, 700, 0, 0},
        {"tails on every side", 131, 333, 401, 0, 0},
        {"one row tile", 9, 640, 500, 0, 0},
        {"few rows, whole tiles", 32, 1024, 512, 0, 0},
        {"few rows, tails", 33, 1003, 301, EPILOGUE, 0},
        {"few rows, turned right", 20, 530, 600, B_TURNED, 0},
        {"epilogue", 300, 530, 400, EPILOGUE, 0},
        {"turned left", 133, 517, 411, A_TURNED, 0},
        {"turned right", 133, 517, 411, B_TURNED, 0},
        {"turned both, epilogue", 65, 300, 500, A_TURNED | B_TURNED | EPILOGUE, 0},
        {"computed right", 70, 90, 110, B_COMPUTED, 0},
        {"computed both, turned", 70, 130, 450, A_COMPUTED | B_COMPUTED | A_TURNED | B_TURNED, 0},
        {"cast while packing", 60, 100, 500, B_BF16 | EPILOGUE, 0},
        {"all at once", 77, 300, 390,
         A_TURNED | B_TURNED | EPILOGUE | B_COMPUTED | A_COMPUTED | B_BF16, 0},
    };
    for (size_t i = 0; i < sizeof(products) / sizeof(*products); i++) {
        check_product(products[i]);
    }
}

TEST(products_with_weights)
{
    static const product products[] = {
        {"weights, whole panels", 131, 384, 384, WEIGHTS | B_TURNED, 0},
        {"weights, parts of sums", 64, 256, 1300, WEIGHTS | EPILOGUE, 0},
        {"weights, the last panel in parts", 8, 1003, 300, WEIGHTS | B_TURNED | EPILOGUE, 0},
        {"weights, one row more", 37, 65, 129, WEIGHTS, 0},
        {"weights, computed", 40, 200, 96, WEIGHTS | B_COMPUTED | B_TURNED, 0},
        {"weights, 256 bits", 67, 300, 500, WEIGHTS | EPILOGUE | B_TURNED, 256},
        {"weights, 128 bits", 67, 300, 500, WEIGHTS | A_TURNED, 128},
    };
    for (size_t i = 0; i < sizeof(products) / sizeof(*products); i++) {
        check_product(products[i]);
    }
}

/* What a program keeps of weights [100, 70] for so many rows; 0: it packs them in each run. */
static int64_t kept_for(tc_ctx *ctx, tc_tensor weights, int64_t rows, bool is_assigned)
{
    tc_program *f = NULL;
    tc_program_info info = {.n_once = -1};
    tc_tensor x = tc_input(ctx, "x", TC_F32, rows, 70);
    tc_tensor y = tc_matmul(x, tc_transpose(weights, 0, 1));
    tc_tensor next = is_assigned ? tc_assign(weights, tc_mul(weights, 2)) : y;
    tc_status status = is_assigned ? tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y, next), NULL, &f)
                                   : tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), NULL, &f);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    tc_program_get_info(f, &info);
    CHECK_EQ_INT(info.n_once, info.kept_bytes > 0);
    tc_program_free(f);
    return info.kept_bytes;
}

TEST(weights_are_packed_once_where_that_pays)
{
    tc_ctx *ctx;
    tc_options options = {.vector_bits = 256, .verify = true};
    float *w = random_floats(100 * 70), *x = random_floats(16 * 70);
    static float got[16 * 100], want[16 * 100];
    REQUIRE(tc_ctx_make(&ctx, &options) == TC_OK);
    tc_tensor weights = tc_param(ctx, w, TC_F32, 100, 70);
    CHECK_EQ_INT(kept_for(ctx, weights, 16, false), 4 * 112 * 70); /* panels of 16 columns */
    CHECK_EQ_INT(kept_for(ctx, weights, 16, true), 0);             /* a run changes them */
    CHECK_EQ_INT(kept_for(ctx, weights, 400, false), 4 * 112 * 70);
    CHECK_EQ_INT(kept_for(ctx, weights, 5000, false), 0);   /* packing costs next to nothing, */
    tc_tensor straight = tc_param(ctx, w, TC_F32, 70, 100); /* sooner where nothing turns */
    CHECK_EQ_INT(kept_for(ctx, tc_transpose(straight, 0, 1), 200, false), 4 * 112 * 70);
    CHECK_EQ_INT(kept_for(ctx, tc_transpose(straight, 0, 1), 400, false), 0);
    CHECK_EQ_INT(kept_for(ctx, tc_transpose(straight, 0, 1), 32, false), 0);
    tc_program *f = NULL, *g = NULL;
    tc_tensor in = tc_input(ctx, "x", TC_F32, 16, 70);
    tc_tensor given = tc_input(ctx, "w", TC_F32, 100, 70);
    REQUIRE(tc_compile(tc_matmul(in, tc_transpose(weights, 0, 1)), &f) == TC_OK);
    REQUIRE(tc_compile(tc_matmul(in, tc_transpose(given, 0, 1)), &g) == TC_OK);
    for (int round = 0; round < 3; round++) {
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, 16 * 70)), TC_BUFS(TC_BUF(got, 16 * 100))), TC_OK);
        CHECK_EQ_INT(tc_run(g, TC_BUFS(TC_BUF(x, 16 * 70), TC_BUF(w, 100 * 70)),
                            TC_BUFS(TC_BUF(want, 16 * 100))),
                     TC_OK);
        CHECK(same_bits(TC_F32, want, got, 16 * 100));
        w[round * 70] += 1;
        CHECK_EQ_INT(tc_param_write(weights, w, 100 * 70), TC_OK);
    }
    tc_program_free(f);
    tc_program_free(g);
    tc_ctx_free(ctx);
    free(w);
    free(x);
}

/* Panels of halves are as wide as those of the compute dtype; values widen as they are read. */
static void check_half_weights(tc_dtype dtype, int vector_bits)
{
    enum { ROWS = 40, COLUMNS = 100, DEPTH = 203 };
    static uint16_t x[ROWS * DEPTH], w[COLUMNS * DEPTH], y[2][ROWS * COLUMNS];
    for (int i = 0; i < COLUMNS * DEPTH; i++) {
        w[i] = (uint16_t)((i % 2 << 15) | (0x3c00 + i * 7919 % 1021));
        x[i % (ROWS * DEPTH)] = (uint16_t)(0x3c00 + i * 31 % 509);
    }
    for (int i = 0; i < 2; i++) {
        tc_ctx *ctx;
        tc_program *f = NULL;
        tc_program_info info;
        tc_options options = {.backend = i ? "cpu" : "interp", .vector_bits = vector_bits};
        REQUIRE(tc_ctx_make(&ctx, &options) == TC_OK);
        tc_tensor in = tc_input(ctx, "x", dtype, ROWS, DEPTH);
        tc_tensor weights = tc_borrow(ctx, w, dtype, COLUMNS, DEPTH);
        REQUIRE(tc_compile(tc_matmul(in, tc_transpose(weights, 0, 1)), &f) == TC_OK);
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF((void *)x, sizeof(x))),
                            TC_BUFS(TC_BUF((void *)y[i], sizeof(y[i])))),
                     TC_OK);
        CHECK(i == 0 || explains(f, ", columns in panels\n"));
        tc_program_get_info(f, &info);
        CHECK(i == 0 || info.kept_bytes >= (int64_t)sizeof(w));
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
    CHECK(!memcmp(y[0], y[1], sizeof(y[0])));
}

TEST(weights_of_halves)
{
    check_half_weights(TC_BF16, 0);
    check_half_weights(TC_F16, 0);
    check_half_weights(TC_BF16, 256);
}

/* Bytes kept by 16 rows times weights within the limit; the product goes to `got`. */
static int64_t kept_within(tc_ctx *ctx, tc_tensor weights, int64_t limit, tc_tensor in, float *x,
                           float *got)
{
    tc_options options;
    tc_program *f = NULL;
    tc_program_info info = {.kept_bytes = -1};
    memset(&options, 0, sizeof(options));
    options.memory_limit = limit;
    tc_tensor y = tc_matmul(in, tc_transpose(weights, 0, 1));
    CHECK_MSG(tc_compile_fn(TC_TENSORS(in), TC_TENSORS(y), &options, &f) == TC_OK, "%s",
              tc_error(ctx));
    if (f) {
        tc_program_get_info(f, &info);
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, 16 * 70)), TC_BUFS(TC_BUF(got, 1600))), TC_OK);
    }
    tc_program_free(f);
    return info.kept_bytes;
}

/* What the copies would take beyond the limit is not copied. */
TEST(weights_are_packed_within_the_limit_of_memory)
{
    enum { PANELS = 4 * 112 * 70 };
    tc_ctx *ctx;
    tc_options options = {.vector_bits = 256, .verify = true};
    float *w = random_floats(100 * 70), *x = random_floats(16 * 70);
    static float got[1600], want[1600];
    REQUIRE(tc_ctx_make(&ctx, &options) == TC_OK);
    tc_tensor weights = tc_param(ctx, w, TC_F32, 100, 70);
    tc_tensor in = tc_input(ctx, "x", TC_F32, 16, 70);
    CHECK_EQ_INT(kept_within(ctx, weights, 0, in, x, want), PANELS);
    CHECK_EQ_INT(kept_within(ctx, weights, PANELS, in, x, got), PANELS);
    CHECK(same_bits(TC_F32, want, got, 1600));
    CHECK_EQ_INT(kept_within(ctx, weights, PANELS - 1, in, x, got), 0);
    CHECK(same_bits(TC_F32, want, got, 1600));
    tc_ctx_free(ctx);
    free(w);
    free(x);
}

#ifdef __x86_64__
/* Does the run before, done again over work memory full of numbers too small to be normal, meet
 * one of them? MXCSR says so. */
static bool meets_small_numbers(tc_program *f)
{
    uint32_t csr = 0x1f80;
    tc_call *c = tci_call_take(f);
    for (int64_t i = 0; i < f->work_bytes * f->max_threads / 4; i++) {
        ((int32_t *)(void *)c->work)[i] = 1;
    }
    __asm__ __volatile__("ldmxcsr %0" : : "m"(csr) : "memory");
    for (int i = 0; i < f->code->n_steps; i++) {
        const tci_run_step *step = &f->steps[i];
        step->fn(c->slots + step->first_slot, step->literals, c->faults, 0, step->n_tasks);
    }
    __asm__ __volatile__("stmxcsr %0" : "=m"(csr) : : "memory");
    tci_call_give(f, c);
    return csr & 2;
}

/* Lanes of a tile that no column has are not computed with what lay there before. */
static void check_lanes(int vector_bits)
{
    tc_ctx *ctx;
    tc_program *f = NULL;
    float *x = random_floats(64 * 49), *w = random_floats(64 * 64 * 9);
    static float y[64 * 49];
    tc_options options = {.vector_bits = vector_bits, .threads = 1};
    REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
    tc_tensor in[2] = {tc_input(ctx, "x", TC_F32, 1, 64, 7, 7),
                       tc_input(ctx, "w", TC_F32, 64, 64, 3, 3)};
    tc_tensor out = tc_conv2d(in[0], in[1], TC_NONE, &(tc_conv){.padding = {1, 1}});
    REQUIRE(tc_compile_fn((tc_tensors){in, 2}, TC_TENSORS(out), &options, &f) == TC_OK);
    tc_bufs from = TC_BUFS(TC_BUF(x, 64 * 49), TC_BUF(w, 64 * 64 * 9));
    CHECK_EQ_INT(tc_run(f, from, TC_BUFS(TC_BUF(y, 64 * 49))), TC_OK);
    CHECK_MSG(!meets_small_numbers(f), "%d bits", vector_bits);
    tc_program_free(f);
    tc_ctx_free(ctx);
    free(x);
    free(w);
}

TEST(lanes_without_columns_hold_nothing)
{
    check_lanes(0);
    check_lanes(256);
    check_lanes(128);
}
#endif

TEST(products_in_place)
{
    static const product products[] = {
        {"square", 64, 64, 64, 0, 0},
        {"odd", 37, 41, 43, EPILOGUE, 0},
        {"one row", 1, 300, 200, 0, 0},
        {"one column", 200, 1, 300, 0, 0},
    };
    for (size_t i = 0; i < sizeof(products) / sizeof(*products); i++) {
        check_product(products[i]);
    }
}

TEST(packed_on_narrow_vectors)
{
    check_product((product){"256 bits", 67, 300, 500, EPILOGUE | B_TURNED, 256});
    check_product((product){"128 bits", 67, 300, 500, A_TURNED, 128});
}

typedef struct other {
    const char *name;
    tc_tensor (*make)(tc_tensor a, tc_tensor b);
    int64_t a[4], b[4], out;
    bool pads; /* a padded copy of the image is a kernel of its own */
} other;

static tc_tensor make_batched(tc_tensor a, tc_tensor b)
{
    return tc_matmul(a, b);
}

static tc_tensor make_summed_twice(tc_tensor a, tc_tensor b)
{
    return tc_einsum("abij,bkaj->ik", TC_TENSORS(a, b));
}

static tc_tensor make_scores(tc_tensor a, tc_tensor b)
{
    return tc_einsum("bhqd,bhkd->bhqk", TC_TENSORS(a, b));
}

static tc_tensor make_convolution(tc_tensor x, tc_tensor w)
{
    tc_conv o = {.stride = {2, 2}, .padding = {1, 1}, .dilation = {1, 1}, .groups = 1};
    return tc_relu(tc_conv2d(x, w, TC_NONE, &o));
}

static tc_tensor make_grouped(tc_tensor x, tc_tensor w)
{
    tc_conv o = {.stride = {1, 2}, .padding = {2, 0}, .dilation = {1, 1}, .groups = 3};
    return tc_conv2d(x, w, TC_NONE, &o);
}

static tc_tensor make_dilated(tc_tensor x, tc_tensor w)
{
    tc_conv o = {.stride = {1, 1}, .padding = {2, 3}, .dilation = {2, 3}, .groups = 1};
    return tc_gelu(tc_conv2d(x, w, TC_NONE, &o));
}

/* Gradients of a strided convolution: the transposed convolution of the image, and the products
 * that sum over the image for the weights. */
static tc_tensor make_gradient(tc_tensor x, tc_tensor w, bool of_image)
{
    tc_conv o = {.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 1}, .groups = 1};
    tc_tensor y = tc_conv2d(x, w, TC_NONE, &o), g = TC_NONE;
    tc_tensor loss = tc_sum(tc_mul(y, y), TC_ALL, false);
    tc_grad(loss, of_image ? &x : &w, 1, &g);
    return g;
}

static tc_tensor make_image_gradient(tc_tensor x, tc_tensor w)
{
    return make_gradient(x, w, true);
}

static tc_tensor make_weights_gradient(tc_tensor x, tc_tensor w)
{
    return make_gradient(x, w, false);
}

/* Images of one size, where the filter's is odd. */
static tc_tensor make_same(tc_tensor x, tc_tensor w)
{
    tc_conv o = {.padding = {tc_size(w, 2) / 2, tc_size(w, 3) / 2}};
    return tc_conv2d(x, w, TC_NONE, &o);
}

static tc_tensor make_same_gradient(tc_tensor x, tc_tensor w, bool of_image)
{
    tc_tensor y = make_same(x, w), g = TC_NONE;
    tc_grad(tc_sum(tc_mul(y, y), TC_ALL, false), of_image ? &x : &w, 1, &g);
    return g;
}

static tc_tensor make_same_image_gradient(tc_tensor x, tc_tensor w)
{
    return make_same_gradient(x, w, true);
}

static tc_tensor make_same_weights_gradient(tc_tensor x, tc_tensor w)
{
    return make_same_gradient(x, w, false);
}

/* Each channel alone. */
static tc_tensor make_alone(tc_tensor x, tc_tensor w)
{
    int64_t size = tc_size(w, 2);
    tc_conv o = {.padding = {size / 2, size / 2}, .groups = tc_size(w, 0)};
    return tc_conv2d(x, w, TC_NONE, &o);
}

static tc_tensor make_alone_weights_gradient(tc_tensor x, tc_tensor w)
{
    tc_tensor g = TC_NONE;
    tc_grad(tc_sum(tc_mul(make_alone(x, w), x), TC_ALL, false), &w, 1, &g);
    return g;
}

static tc_tensor make_alone_image_gradient(tc_tensor x, tc_tensor w)
{
    tc_tensor g = TC_NONE;
    tc_grad(tc_sum(tc_mul(make_alone(x, w), tc_stop_gradient(x)), TC_ALL, false), &x, 1, &g);
    return g;
}

/* Windows that share no places. */
static tc_tensor make_patches(tc_tensor x, tc_tensor w)
{
    tc_conv o = {.stride = {tc_size(w, 2), tc_size(w, 3)}};
    return tc_conv2d(x, w, TC_NONE, &o);
}

static tc_tensor make_alone_strided(tc_tensor x, tc_tensor w)
{
    tc_conv o = {.stride = {2, 3}, .padding = {2, 1}, .groups = tc_size(w, 0)};
    return tc_conv2d(x, w, TC_NONE, &o);
}

/* Windows where only every other row of places reads the same rows. */
static tc_tensor make_alone_dilated(tc_tensor x, tc_tensor w)
{
    tc_conv o = {.padding = {4, 4}, .dilation = {2, 3}, .groups = tc_size(w, 0)};
    return tc_conv2d(x, w, TC_NONE, &o);
}

static tc_tensor make_alone_far(tc_tensor x, tc_tensor w)
{
    tc_conv o = {.stride = {3, 1}, .padding = {4, 4}, .dilation = {2, 1}, .groups = tc_size(w, 0)};
    return tc_conv2d(x, w, TC_NONE, &o);
}

/* Of what is given as the image's own half, so that nothing else is computed. */
static tc_tensor make_strided_image_gradient(tc_tensor x, tc_tensor w)
{
    tc_conv o = {.stride = {2, 2}, .padding = {1, 1}};
    tc_tensor y = tc_conv2d(x, w, TC_NONE, &o), g = TC_NONE;
    tc_tensor half = tc_slice(tc_slice(x, 2, 0, TC_END, 2), 3, 0, TC_END, 2);
    tc_grad(tc_sum(tc_mul(y, tc_stop_gradient(half)), TC_ALL, false), &x, 1, &g);
    return g;
}

static tc_tensor make_transposed_weights_gradient(tc_tensor x, tc_tensor w)
{
    tc_conv o = {.stride = {2, 2}, .padding = {1, 1}};
    tc_tensor y = tc_conv_transpose2d(x, w, TC_NONE, &o), g = TC_NONE;
    tc_grad(tc_sum(tc_mul(y, y), TC_ALL, false), &w, 1, &g);
    return g;
}

static void check_other(const other *o, int vector_bits)
{
    int64_t n_a = o->a[0] * o->a[1] * o->a[2] * o->a[3];
    int64_t n_b = o->b[0] * o->b[1] * o->b[2] * o->b[3];
    float *a = random_floats(n_a), *b = random_floats(n_b);
    float *to[3] = {random_floats(o->out), random_floats(o->out), random_floats(o->out)};
    for (int run = 0; run < 3; run++) {
        tc_ctx *ctx;
        tc_program *f = NULL;
        tc_options options = {.threads = run == 2 ? 3 : 1,
                              .backend = run ? "cpu" : "interp",
                              .vector_bits = vector_bits};
        REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
        tc_tensor x = tc_input(ctx, "x", TC_F32, o->a[0], o->a[1], o->a[2], o->a[3]);
        tc_tensor y = tc_input(ctx, "y", TC_F32, o->b[0], o->b[1], o->b[2], o->b[3]);
        tc_tensor z = o->make(x, y);
        CHECK_MSG(tc_compile_fn(TC_TENSORS(x, y), TC_TENSORS(z), &options, &f) == TC_OK, "%s: %s",
                  o->name, tc_error(z));
        REQUIRE(f != NULL);
        CHECK_MSG(tc_run(f, TC_BUFS(TC_BUF(a, n_a), TC_BUF(b, n_b)),
                         TC_BUFS(TC_BUF(to[run], o->out))) == TC_OK,
                  "%s: %s", o->name, tc_error(f));
        CHECK_MSG(!run || o->pads || explains(f, "1 launch of 1 kernel "),
                  "%s: more than one kernel", o->name);
        CHECK_MSG(same_bits(TC_F32, to[0], to[run], o->out),
                  "%s, run %d: other bits than interpreted", o->name, run);
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
    free(a);
    free(b);
    free(to[0]);
    free(to[1]);
    free(to[2]);
}

TEST(other_contractions)
{
    static const other others[] = {
        {"batched", make_batched, {2, 3, 40, 300}, {2, 3, 300, 500}, 2 * 3 * 40 * 500, false},
        {"two summed axes and a third",
         make_summed_twice,
         {5, 3, 30, 40},
         {3, 70, 5, 40},
         30 * 70,
         false},
        {"scores", make_scores, {1, 2, 100, 64}, {1, 2, 130, 64}, 2 * 100 * 130, false},
        {"few rows, batched",
         make_batched,
         {1, 3, 27, 310},
         {1, 3, 310, 1100},
         3 * 27 * 1100,
         false},
        {"strided convolution",
         make_convolution,
         {1, 24, 66, 66},
         {20, 24, 3, 3},
         20 * 33 * 33,
         true},
        {"convolution of groups",
         make_grouped,
         {2, 24, 40, 41},
         {36, 8, 5, 3},
         2 * 36 * 40 * 20,
         true},
        {"dilated convolution", make_dilated, {1, 20, 50, 50}, {17, 20, 3, 3}, 17 * 50 * 50, true},
        {"gradient of the image",
         make_image_gradient,
         {2, 12, 34, 35},
         {18, 12, 3, 4},
         2 * 12 * 34 * 35,
         true},
        {"gradient of the weights",
         make_weights_gradient,
         {2, 12, 34, 35},
         {18, 12, 3, 4},
         18 * 12 * 3 * 4,
         true},
        {"small images, many channels",
         make_same,
         {3, 70, 7, 7},
         {65, 70, 3, 3},
         3 * 65 * 7 * 7,
         true},
        {"narrow images", make_same, {1, 30, 50, 5}, {37, 30, 5, 3}, 37 * 50 * 5, true},
        {"gradient of the weights, large images",
         make_same_weights_gradient,
         {2, 9, 45, 43},
         {20, 9, 3, 3},
         20 * 9 * 3 * 3,
         true},
        {"gradient of the image, small images",
         make_same_image_gradient,
         {2, 33, 9, 9},
         {40, 33, 3, 3},
         2 * 33 * 9 * 9,
         true},
        {"channels alone, small images",
         make_alone,
         {3, 20, 14, 14},
         {20, 1, 7, 7},
         3 * 20 * 14 * 14,
         true},
        {"channels alone, odd images",
         make_alone,
         {2, 19, 13, 29},
         {19, 1, 3, 3},
         2 * 19 * 13 * 29,
         true},
        {"channels alone, gradient of the weights",
         make_alone_weights_gradient,
         {2, 20, 23, 29},
         {20, 1, 3, 3},
         20 * 3 * 3,
         true},
        {"transposed, gradient of the weights",
         make_transposed_weights_gradient,
         {2, 19, 14, 13},
         {19, 9, 4, 4},
         19 * 9 * 4 * 4,
         true},
        {"gradient of the image, parts of sums",
         make_same_image_gradient,
         {1, 40, 14, 14},
         {300, 40, 3, 3},
         40 * 14 * 14,
         true},
        {"gradient of the image, large windows",
         make_same_image_gradient,
         {1, 37, 14, 15},
         {20, 37, 7, 5},
         37 * 14 * 15,
         true},
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        check_other(&others[i], 0);
    }
}

/* Filters that are turned when they are packed, of inner points that vectors divide and that they
 * do not; and rows of a tile that meet the same rows of an image. */
TEST(windows_on_vectors_of_any_width)
{
    static const other others[] = {
        {"patches", make_patches, {2, 3, 66, 70}, {64, 3, 16, 16}, 2 * 64 * 4 * 4, false},
        {"patches of few channels",
         make_patches,
         {1, 2, 105, 103},
         {37, 2, 7, 5},
         37 * 15 * 20,
         false},
        {"patches in parts", make_patches, {1, 5, 52, 65}, {40, 5, 13, 13}, 40 * 4 * 5, false},
        {"patches of many channels",
         make_patches,
         {1, 67, 22, 18},
         {48, 67, 3, 2},
         48 * 7 * 9,
         false},
        {"channels alone", make_alone, {2, 5, 31, 29}, {5, 1, 7, 7}, 2 * 5 * 31 * 29, true},
        {"channels alone, one row", make_alone, {2, 5, 1, 40}, {5, 1, 5, 3}, 2 * 5 * 42, true},
        {"channels alone, strided",
         make_alone_strided,
         {2, 9, 33, 70},
         {9, 1, 5, 4},
         2 * 9 * 17 * 23,
         true},
        {"channels alone, dilated",
         make_alone_dilated,
         {1, 7, 30, 41},
         {7, 1, 5, 3},
         7 * 30 * 43,
         true},
        {"channels alone, strided and dilated",
         make_alone_far,
         {1, 7, 41, 37},
         {7, 1, 5, 9},
         7 * 14 * 37,
         true},
        {"channels alone, wide", make_alone, {1, 4, 20, 70}, {4, 1, 5, 5}, 4 * 20 * 70, true},
        {"channels alone, gradient of the image",
         make_alone_image_gradient,
         {2, 6, 29, 23},
         {6, 1, 5, 5},
         2 * 6 * 29 * 23,
         true},
        {"groups", make_grouped, {1, 6, 31, 50}, {9, 2, 7, 4}, 9 * 29 * 24, true},
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        for (int bits = 128; bits <= 512; bits *= 2) {
            check_other(&others[i], bits);
        }
    }
}

/* What tc_explain says of a convolution of two images of these channels. */
static bool convolution_explains(tc_tensor (*make)(tc_tensor, tc_tensor), int64_t channels,
                                 const int64_t w_shape[4], int64_t size, const char *text)
{
    tc_ctx *ctx;
    tc_program *f = NULL;
    tc_options options = {.threads = 1, .backend = "cpu"};
    CHECK(tc_ctx_make(&ctx, NULL) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 2, channels, size, size);
    tc_tensor w = tc_input(ctx, "w", TC_F32, w_shape[0], w_shape[1], w_shape[2], w_shape[3]);
    tc_tensor y = make(x, w);
    CHECK_MSG(tc_compile_fn(TC_TENSORS(x, w), TC_TENSORS(y), &options, &f) == TC_OK, "%s",
              tc_error(y));
    bool says = f && explains(f, text);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return says;
}

static tc_tensor make_transposed(tc_tensor x, tc_tensor w)
{
    tc_conv o = {.padding = {1, 1}};
    return tc_conv_transpose2d(x, w, TC_NONE, &o);
}

static tc_tensor make_transposed_halves(tc_tensor x, tc_tensor w)
{
    return make_transposed(tc_cast(x, TC_BF16), tc_cast(w, TC_BF16));
}

/* Filters of halves that are packed for each block of columns are not read backwards each time. */
TEST(filters_of_halves_are_turned_once)
{
    static const int64_t shape[] = {64, 64, 3, 3};
    CHECK(convolution_explains(make_transposed_halves, 64, shape, 14, "tc_k_conv_transpose_cast"));
}

/* Rows of filters are read in place, also where their windows are turned and their axes stand
 * in another order; those whose lines would push each other out of the first cache are packed, as
 * the 14 of a tile of wide vectors would. */
TEST(filters_are_read_in_place)
{
    static const int64_t few[] = {64, 64, 3, 3}, far[] = {64, 1024, 3, 3};
    static const int64_t many[] = {1024, 1024, 3, 3};
    CHECK(convolution_explains(make_same, 64, few, 14, ", rows in place"));
    CHECK(!convolution_explains(make_same, 1024, far, 14, "vector 16 lanes") ||
          !convolution_explains(make_same, 1024, far, 14, ", rows in place"));
    CHECK(convolution_explains(make_transposed, 64, few, 14, ", rows in place"));
    CHECK(convolution_explains(make_transposed, 1024, many, 14, ", rows in place"));
}

/* Rows of small images are chains side by side; filters of channels alone are sums of rows; and
 * those of a transposed convolution have rows and columns though its axes alternate. */
TEST(convolutions_with_few_neighbours)
{
    static const int64_t alone[] = {32, 1, 7, 7}, filters[] = {32, 1, 3, 3};
    static const int64_t turned[] = {64, 64, 4, 4};
    CHECK(!convolution_explains(make_alone, 32, alone, 14, "vector 16 lanes") ||
          convolution_explains(make_alone, 32, alone, 14, ", tile 14x1"));
    CHECK(convolution_explains(make_alone_weights_gradient, 32, filters, 28, "class LANES"));
    CHECK(convolution_explains(make_transposed_weights_gradient, 64, turned, 14, ", packed "));
}

/* Filters of patches are turned in squares, whatever shape their windows have, and those that near
 * memory does not hold are not; an image's rows are read once where rows of a tile meet the same
 * ones, and not where they meet different ones. */
TEST(convolutions_read_what_is_near)
{
    static const int64_t patches[] = {64, 3, 16, 16}, odd[] = {64, 3, 17, 18};
    static const int64_t large[] = {512, 512, 3, 3};
    static const int64_t alone[] = {32, 1, 7, 7}, flat[] = {32, 1, 1, 9};
    CHECK(convolution_explains(make_patches, 3, patches, 224, ", columns turned"));
    CHECK(convolution_explains(make_patches, 3, odd, 224, ", columns turned"));
    CHECK(!convolution_explains(make_same, 512, large, 7, ", columns turned"));
    CHECK(convolution_explains(make_alone, 32, alone, 14, ", windows in turns"));
    CHECK(convolution_explains(make_alone, 32, alone, 56, ", windows in turns"));
    CHECK(convolution_explains(make_alone_dilated, 32, alone, 14, ", windows in turns"));
    CHECK(convolution_explains(make_alone_image_gradient, 32, alone, 14, ", windows in turns"));
    CHECK(convolution_explains(make_alone_strided, 32, alone, 14, ", windows in turns"));
    CHECK(!convolution_explains(make_alone, 32, flat, 14, ", windows in turns"));
    CHECK(!convolution_explains(make_patches, 3, odd, 224, ", windows in turns"));
}

/* A transposed convolution: x [n, c, h, w], filters [c, o / groups, kh, kw]. */
typedef struct spread {
    int64_t n, c, h, w, o, kh, kw;
    int64_t stride[2], padding[2], dilation[2], more[2], groups;
} spread;

/* Element by element, in double: y's places. */
static void spread_plainly(const spread *s, const float *x, const float *f, double *y, int64_t yh,
                           int64_t yw)
{
    int64_t in = s->c / s->groups, out = s->o / s->groups;
    for (int64_t i = 0; i < s->n * s->c * s->h * s->w; i++) {
        int64_t at_w = i % s->w, at_h = i / s->w % s->h, c = i / (s->w * s->h) % s->c;
        int64_t image = i / (s->w * s->h * s->c);
        for (int64_t j = 0; j < out * s->kh * s->kw; j++) {
            int64_t row = at_h * s->stride[0] + j / s->kw % s->kh * s->dilation[0] - s->padding[0];
            int64_t column = at_w * s->stride[1] + j % s->kw * s->dilation[1] - s->padding[1];
            int64_t o = c / in * out + j / (s->kh * s->kw);
            if (row >= 0 && row < yh && column >= 0 && column < yw) {
                y[((image * s->o + o) * yh + row) * yw + column] += (double)x[i] *
                                                                    f[c * out * s->kh * s->kw + j];
            }
        }
    }
}

/* The op itself, or the gradient of the convolution that it is the transposed one of. */
static tc_tensor make_spread(const spread *s, tc_tensor x, tc_tensor f, bool of_gradient,
                             tc_tensor image)
{
    tc_conv o = {.groups = s->groups};
    for (int i = 0; i < 2; i++) {
        o.stride[i] = s->stride[i];
        o.padding[i] = s->padding[i];
        o.dilation[i] = s->dilation[i];
        o.output_padding[i] = of_gradient ? 0 : s->more[i];
    }
    if (!of_gradient) {
        return tc_conv_transpose2d(x, f, TC_NONE, &o);
    }
    tc_tensor g = TC_NONE;
    tc_grad(tc_sum(tc_mul(tc_conv2d(image, f, TC_NONE, &o), x), TC_ALL, false), &image, 1, &g);
    return g;
}

static void check_spread(const spread *s, bool of_gradient, int number)
{
    int64_t size[2], taps[2] = {s->kh, s->kw}, from[2] = {s->h, s->w};
    for (int i = 0; i < 2; i++) {
        size[i] = (from[i] - 1) * s->stride[i] + (taps[i] - 1) * s->dilation[i] + 1 -
                  2 * s->padding[i] + s->more[i];
    }
    int64_t n_x = s->n * s->c * s->h * s->w, n_f = s->c * (s->o / s->groups) * s->kh * s->kw;
    int64_t n_y = s->n * s->o * size[0] * size[1];
    float *x = random_floats(n_x), *f = random_floats(n_f), *y = random_floats(n_y);
    double *want = calloc((size_t)n_y, sizeof(double));
    spread_plainly(s, x, f, want, size[0], size[1]);
    tc_ctx *ctx;
    tc_program *p = NULL;
    REQUIRE(tc_ctx_make(&ctx, &(tc_options){.threads = 2, .backend = "cpu"}) == TC_OK);
    tc_tensor in = tc_input(ctx, "x", TC_F32, s->n, s->c, s->h, s->w);
    tc_tensor filters = tc_input(ctx, "f", TC_F32, s->c, s->o / s->groups, s->kh, s->kw);
    tc_tensor image = tc_input(ctx, "i", TC_F32, s->n, s->o, size[0], size[1]);
    tc_tensor r = make_spread(s, in, filters, of_gradient, image);
    CHECK_MSG(tc_compile_fn(TC_TENSORS(in, filters, image), TC_TENSORS(r), NULL, &p) == TC_OK,
              "%d: %s", number, tc_error(r));
    REQUIRE(p != NULL);
    float *unused = random_floats(n_y);
    CHECK_MSG(tc_run(p, TC_BUFS(TC_BUF(x, n_x), TC_BUF(f, n_f), TC_BUF(unused, n_y)),
                     TC_BUFS(TC_BUF(y, n_y))) == TC_OK,
              "%d: %s", number, tc_error(p));
    int64_t wrong = 0;
    for (int64_t i = 0; i < n_y; i++) {
        wrong += !(fabs(y[i] - want[i]) <= 1e-4 * (1 + fabs(want[i])));
    }
    CHECK_MSG(wrong == 0, "%d%s: %d of %d differ", number, of_gradient ? ", gradient" : "",
              (int)wrong, (int)n_y);
    tc_program_free(p);
    tc_ctx_free(ctx);
    free(x);
    free(f);
    free(y);
    free(want);
    free(unused);
}

/* Phases of all kinds: some with fewer taps, some with none; cut in the midst of a place, at both
 * ends; whose number the size of the image does not divide. */
TEST(transposed_convolutions)
{
    static const spread spreads[] = {
        {2, 9, 7, 8, 10, 3, 3, {2, 2}, {1, 1}, {1, 1}, {1, 1}, 1},
        {1, 8, 9, 20, 9, 3, 3, {2, 2}, {1, 1}, {1, 1}, {0, 1}, 1},
        {2, 6, 8, 19, 8, 4, 4, {2, 2}, {1, 1}, {1, 1}, {0, 0}, 2},
        {1, 5, 7, 17, 12, 5, 5, {3, 2}, {2, 2}, {1, 1}, {1, 1}, 1},
        {1, 4, 9, 11, 6, 7, 7, {2, 4}, {3, 3}, {1, 1}, {1, 3}, 1},
        {2, 6, 6, 18, 6, 3, 3, {2, 2}, {1, 1}, {1, 1}, {1, 1}, 6},
        {1, 3, 9, 10, 5, 3, 3, {2, 3}, {2, 3}, {2, 2}, {1, 1}, 1},
        {1, 3, 12, 13, 5, 2, 3, {3, 3}, {4, 5}, {1, 1}, {2, 2}, 1},
        {1, 4, 10, 9, 3, 1, 1, {2, 2}, {0, 0}, {1, 1}, {1, 1}, 1},
        {1, 2, 5, 40, 4, 1, 9, {1, 4}, {0, 4}, {1, 1}, {0, 3}, 1},
    };
    for (int i = 0; i < (int)(sizeof(spreads) / sizeof(*spreads)); i++) {
        check_spread(&spreads[i], false, i);
        check_spread(&spreads[i], true, i);
    }
}

/* The gradient of a strided image is computed at its places alone: its four phases are products of
 * one launch, between one that pads and one that stores them together. */
TEST(phases_take_turns)
{
    static const int64_t f[] = {32, 32, 3, 3};
    CHECK(convolution_explains(make_strided_image_gradient, 32, f, 28, "of 3 kernels"));
    CHECK(!convolution_explains(make_strided_image_gradient, 32, f, 28, "vector 16 lanes") ||
          convolution_explains(make_strided_image_gradient, 32, f, 28, ", 2 in turns"));
}

/* Columns are packed by each call, and yet a thread takes its share of the tasks bit by bit where
 * there are many threads, so that others can help it. */
/* Small whole numbers, whose sums are exact in every dtype: few rows, and few results of very many
 * products. */
static void check_whole_numbers(tc_dtype stored, tc_dtype sum, int m, int n, int k)
{
    tc_ctx *ctx;
    tc_program *f = NULL;
    double *got = malloc((size_t)(m * n) * sizeof(*got));
    int8_t *a = malloc((size_t)(m * k)), *b = malloc((size_t)(n * k));
    for (int i = 0; i < m * k; i++) {
        a[i] = (int8_t)(i * 5 % 11 - 5);
    }
    for (int i = 0; i < n * k; i++) {
        b[i] = (int8_t)(i * 3 % 7 - 3);
    }
    CHECK(tc_ctx_make(&ctx, &(tc_options){.threads = 1}) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_I8, m, k), w = tc_input(ctx, "w", TC_I8, n, k);
    tc_tensor y = tc_matmul(tc_cast(tc_cast(x, stored), sum),
                            tc_cast(tc_transpose(tc_cast(w, stored), 0, 1), sum));
    CHECK(tc_compile_fn(TC_TENSORS(x, w), TC_TENSORS(tc_cast(y, TC_F64)), NULL, &f) == TC_OK);
    CHECK(tc_run(f, TC_BUFS(TC_BUF(a, m * k), TC_BUF(b, n * k)), TC_BUFS(TC_BUF(got, m * n))) ==
          TC_OK);
    for (int i = 0; i < m * n; i++) {
        int64_t want = 0;
        for (int j = 0; j < k; j++) {
            want += a[i / n * k + j] * b[i % n * k + j];
        }
        CHECK_MSG(got[i] == (double)want, "dtypes %d, %d, %d x %d x %d: number %d is %g, not %lld",
                  stored, sum, m, n, k, i, got[i], (long long)want);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    free(a);
    free(b);
    free(got);
}

TEST(few_rows_and_long_sums_of_all_dtypes)
{
    static const tc_dtype pairs[][2] = {{TC_F64, TC_F64}, {TC_I8, TC_I32},  {TC_I64, TC_I64},
                                        {TC_I32, TC_I64}, {TC_I8, TC_I16},  {TC_F32, TC_F64},
                                        {TC_F64, TC_F32}, {TC_BF16, TC_F32}};
    for (int i = 0; i < (int)(sizeof(pairs) / sizeof(pairs[0])); i++) {
        check_whole_numbers(pairs[i][0], pairs[i][1], 1, 37, 601);
        check_whole_numbers(pairs[i][0], pairs[i][1], 3, 64, 300);
        check_whole_numbers(pairs[i][0], pairs[i][1], 2, 2, 70001);
    }
}

TEST(many_threads_take_short_ranges)
{
    static const product p = {"512", 512, 512, 512, B_TURNED, 0};
    tc_options options = {.threads = 16, .fallback = TC_FALLBACK_REFUSE};
    tc_ctx *ctx;
    REQUIRE(tc_ctx_make(&ctx, &options) == TC_OK);
    tc_program *f = compile_product(ctx, p, NULL, &options);
    REQUIRE(f);
    const tci_run_step *step = f->steps + f->code->n_init;
    CHECK_EQ_INT(step->threads, 16);
    CHECK_MSG(2 * step->least <= step->n_tasks / 16, "%lld of %lld tasks at a time",
              (long long)step->least, (long long)step->n_tasks);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST_MAIN
