/* Contractions of bf16 in pairs (class PAIRS): of every shape, layout and form the bits of the
 * interpreter, for any number of threads, from the plain C that stands in for the instruction and,
 * where this processor has it, from that too; numbers below 2^-126 may count as zero. */
#include "inside.h"

#include "tc_test.h"
#include "same.h"

/* The "cpu" backend with the instruction, which is not there. */
static tc_status imitation_target(void *user, int vector_bits, tc_backend_target *out)
{
    tci_target t;
    tci_target_detect(&t, vector_bits);
    tc_status status = tci_cpu_backend()->target(user, vector_bits, out);
    char *there = strstr(out->features, ",bf16");
    if (there) { /* the flags that come without it */
        memmove(there, there + 5, strlen(there + 5) + 1);
    }
    out->has_pairs = true;
    out->matrix_units = 0; /* which would take the same contractions */
    return status;
}

static tc_status imitation_compile(void *user, tc_build *build)
{
    const char *at = strstr(build->features, "vector=");
    int bytes = at ? atoi(at + 7) : 0;
    tci_target t;
    const char *why;
    (void)user;
    tci_target_detect(&t, bytes > 0 ? 8 * bytes : -1);
    t.n_flags -= t.has_pairs;
    return tci_cc_build(build, &t, &why);
}

static void register_imitation(void)
{
    static tc_backend imitation;
    if (!imitation.name) {
        imitation = *tci_cpu_backend();
        imitation.name = "pairs";
        imitation.target = imitation_target;
        imitation.compile = imitation_compile;
        tc_register_backend(&imitation);
    }
}

static bool has_pairs(void)
{
    tci_target t;
    tci_target_detect(&t, 0);
    return t.has_pairs;
}

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

static bool explains(const tc_program *f, const char *words)
{
    static char text[1 << 15];
    FILE *file = tmpfile();
    REQUIRE(file != NULL);
    tc_explain_as(f, file, &(tc_explain_options){.all = true});
    rewind(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = 0;
    fclose(file);
    return strstr(text, words) != NULL;
}

/* A case: what it makes of two inputs, and their shapes. */
typedef struct example {
    const char *name;
    int64_t a[4], b[4];
    int how;
} example;

enum {
    A_TURNED = 1,
    B_TURNED = 2,
    EPILOGUE = 4,
    COMPUTED = 8, /* relu of a, rounded */
    WEIGHTS = 16, /* b is the program's own */
    CONVOLUTION = 32,
    STRIDE = 64,
    GRADIENTS = 128, /* those of both */
    SINGLE = 256,    /* the result is f32 */
    SMALL = 512      /* pairs may not pay */
};

static int64_t elements(const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < 4 && shape[i] >= 0; i++) {
        n *= shape[i];
    }
    return n;
}

static tc_tensor made_of(tc_tensor a, tc_tensor b, int how)
{
    if (how & CONVOLUTION) {
        int64_t step = how & STRIDE ? 2 : 1, pad = tc_size(b, 2) / 2;
        return tc_conv2d(a, b, TC_NONE, &(tc_conv){.padding = {pad, pad}, .stride = {step, step}});
    }
    a = how & COMPUTED ? tc_relu(tc_mul(a, 1.5)) : a;
    a = how & A_TURNED ? tc_transpose(a, -2, -1) : a;
    b = how & B_TURNED ? tc_transpose(b, -2, -1) : b;
    tc_tensor y = how & SINGLE ? tc_matmul(tc_cast(a, TC_F32), tc_cast(b, TC_F32))
                               : tc_matmul(a, b);
    return how & EPILOGUE ? tc_gelu(tc_add(y, 0.25)) : y;
}

static tc_tensor input_of(tc_ctx *ctx, const char *name, const int64_t *shape)
{
    int64_t sizes[5] = {TC_BF16};
    int rank = 0;
    while (rank < 4 && shape[rank] >= 0) {
        sizes[rank + 1] = shape[rank];
        rank++;
    }
    return tc_input_at(ctx, name, rank + 1, sizes, TC_HERE);
}

/* Runs it; the bytes of the result, of both one after the other, are left at `to`. */
static int64_t run(const example *e, const tc_options *options, uint16_t *a, uint16_t *b, char *to,
                   bool *by_pairs)
{
    tc_ctx *ctx;
    tc_program *f = NULL;
    REQUIRE(tc_ctx_make(&ctx, options) == TC_OK);
    tc_tensor x = input_of(ctx, "a", e->a), y = input_of(ctx, "b", e->b), given = y;
    if (e->how & WEIGHTS) {
        y = tc_borrow(ctx, b, TC_BF16, e->b[0], e->b[1]);
    }
    tc_tensor out[2] = {made_of(x, y, e->how)};
    int n_out = 1;
    if (e->how & GRADIENTS) {
        tc_tensor both[2], of[2] = {x, y}, wide = tc_cast(out[0], TC_F32);
        REQUIRE(tc_grad(tc_sum(tc_mul(wide, wide), TC_ALL, false), of, 2, both) == TC_OK);
        out[0] = both[0];
        out[1] = both[1];
        n_out = 2;
    }
    CHECK_MSG(tc_compile_fn(TC_TENSORS(x, given), (tc_tensors){out, n_out}, options, &f) == TC_OK,
              "%s: %s", e->name, tc_error(out[0]));
    REQUIRE(f != NULL);
    tc_buf in[2] = {{.data = a, .dtype = TC_BF16, .n = elements(e->a)},
                    {.data = b, .dtype = TC_BF16, .n = elements(e->b)}};
    tc_buf outs[2];
    int64_t bytes = 0;
    for (int i = 0; i < n_out; i++) {
        int64_t n = tc_count(out[i]);
        int each = tc_dtype_of(out[i]) == TC_F32 ? 4 : 2;
        outs[i] = (tc_buf){.data = to + bytes, .dtype = tc_dtype_of(out[i]), .n = n};
        bytes += (n * each + 7) / 8 * 8;
    }
    CHECK_MSG(tc_run(f, (tc_bufs){in, 2}, (tc_bufs){outs, n_out}) == TC_OK, "%s: %s", e->name,
              tc_error(f));
    *by_pairs = explains(f, ", pairs");
    tc_program_free(f);
    tc_ctx_free(ctx);
    return bytes;
}

static void check_example(const example *e)
{
    enum { MOST = 1 << 24 };
    static char want[MOST], got[MOST];
    static const int bits[] = {0, 256, 128};
    uint16_t *a = random_halves(elements(e->a)), *b = random_halves(elements(e->b));
    bool by_pairs;
    tc_options options = {.backend = "interp", .no_disk_cache = true, .verify = true};
    memset(want, 0, sizeof(want));
    int64_t n = run(e, &options, a, b, want, &by_pairs);
    REQUIRE(n <= MOST);
    options.fallback = TC_FALLBACK_REFUSE;
    for (int i = 0; i < 8; i++) {
        bool there = i >= 6;
        options.backend = there ? "cpu" : "pairs";
        options.threads = i % 2 ? 3 : 1;
        options.vector_bits = there ? 0 : bits[i / 2];
        if (there && !has_pairs()) {
            continue;
        }
        memset(got, 0, sizeof(got));
        run(e, &options, a, b, got, &by_pairs);
        CHECK_MSG(by_pairs || (e->how & SMALL), "%s, %d bits: not by pairs", e->name,
                  options.vector_bits);
        CHECK_MSG(!memcmp(want, got, (size_t)n),
                  "%s, %s, %d threads, %d bits: other bits than interpreted", e->name,
                  options.backend, options.threads, options.vector_bits);
    }
    free(a);
    free(b);
}

TEST(products)
{
    static const example examples[] = {
        {"whole tiles", {128, 128, -1}, {128, 128, -1}, 0},
        {"tails on every side", {131, 401, -1}, {401, 333, -1}, SINGLE},
        {"one product", {32, 1, -1}, {1, 64, -1}, SINGLE | SMALL},
        {"two products", {32, 2, -1}, {2, 64, -1}, SINGLE},
        {"three products", {32, 3, -1}, {3, 64, -1}, 0},
        {"odd depth", {67, 127, -1}, {127, 129, -1}, EPILOGUE},
        {"parts of sums, odd depth", {61, 1301, -1}, {1301, 67, -1}, SINGLE},
        {"one row tile", {9, 501, -1}, {501, 640, -1}, 0},
        {"few rows, tails", {33, 301, -1}, {301, 1003, -1}, EPILOGUE},
        {"few rows, parts", {20, 1057, -1}, {1057, 512, -1}, SINGLE},
        {"turned left", {411, 133, -1}, {411, 517, -1}, A_TURNED},
        {"turned right", {133, 411, -1}, {517, 411, -1}, B_TURNED | SINGLE},
        {"few rows, turned right", {20, 600, -1}, {530, 600, -1}, B_TURNED},
        {"turned right, whole vectors", {60, 544, -1}, {101, 544, -1}, B_TURNED | SINGLE},
        {"four rows, turned right", {4, 1024, -1}, {130, 1024, -1}, B_TURNED},
        {"five rows", {5, 301, -1}, {301, 200, -1}, EPILOGUE},
        {"turned both", {500, 65, -1}, {300, 500, -1}, A_TURNED | B_TURNED | EPILOGUE},
        {"computed left", {70, 110, -1}, {110, 90, -1}, COMPUTED | SINGLE | SMALL},
        {"batched", {3, 60, 97, -1}, {3, 97, 70, -1}, 0},
        {"gradients", {65, 77, -1}, {77, 130, -1}, GRADIENTS},
    };
    register_imitation();
    for (size_t i = 0; i < sizeof(examples) / sizeof(*examples); i++) {
        check_example(&examples[i]);
    }
}

/* Weights are stored as the panels are, packed once. */
TEST(weights)
{
    static const example examples[] = {
        {"weights, whole panels", {131, 384, -1}, {384, 384, -1}, WEIGHTS | B_TURNED},
        {"weights, parts of sums", {64, 1300, -1}, {1300, 256, -1}, WEIGHTS | EPILOGUE},
        {"weights, odd parts", {40, 1301, -1}, {200, 1301, -1}, WEIGHTS | B_TURNED},
        {"weights, the last panel in parts", {8, 301, -1}, {1003, 301, -1}, WEIGHTS | B_TURNED},
        {"weights, one row more", {37, 129, -1}, {129, 65, -1}, WEIGHTS},
        {"weights, two rows", {2, 515, -1}, {130, 515, -1}, WEIGHTS | B_TURNED | EPILOGUE},
        {"weights, seven rows", {7, 2048, -1}, {96, 2048, -1}, WEIGHTS | B_TURNED},
        {"weights, computed left", {40, 96, -1}, {200, 96, -1}, WEIGHTS | B_TURNED | COMPUTED},
    };
    register_imitation();
    for (size_t i = 0; i < sizeof(examples) / sizeof(*examples); i++) {
        check_example(&examples[i]);
    }
}

TEST(convolutions)
{
    static const example examples[] = {
        {"3x3", {2, 16, 15, 14}, {24, 16, 3, 3}, CONVOLUTION},
        {"3x3, odd channels", {1, 7, 20, 33}, {19, 7, 3, 3}, CONVOLUTION},
        {"3x3, deep", {1, 67, 9, 20}, {32, 67, 3, 3}, CONVOLUTION},
        {"3x3, two blocks of 33 channels", {1, 66, 9, 20}, {32, 66, 3, 3}, CONVOLUTION},
        {"5x5, stride 2", {2, 3, 31, 40}, {16, 3, 5, 5}, CONVOLUTION | STRIDE},
        {"1x1", {2, 33, 14, 14}, {40, 33, 1, 1}, CONVOLUTION},
        {"gradients of 3x3", {2, 16, 14, 14}, {16, 16, 3, 3}, CONVOLUTION | GRADIENTS},
    };
    register_imitation();
    for (size_t i = 0; i < sizeof(examples) / sizeof(*examples); i++) {
        check_example(&examples[i]);
    }
}

/* One product of [m, 2] and [2, n] whose first terms are `first`, the others `second`. */
static float product_of(const char *backend, const tc_options *given, float first, float second,
                        bool *by_pairs)
{
    static const example one = {"two terms", {64, 2, -1}, {2, 64, -1}, SINGLE};
    static uint16_t a[128], b[128];
    static float y[64 * 64];
    float x[2] = {first, second};
    for (int i = 0; i < 128; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i % 2], sizeof(bits));
        a[i] = (uint16_t)(bits >> 16);
        b[i] = 0x3f80; /* 1 */
    }
    tc_options options = *given;
    options.backend = backend;
    options.no_disk_cache = options.verify = true;
    run(&one, &options, a, b, (char *)y, by_pairs);
    return y[64 * 63];
}

TEST(small_numbers_may_be_zero)
{
    bool by_pairs;
    tc_options options = {.threads = 1};
    const float tiny = 0x1p-130f, least = 0x1p-126f;
    CHECK(product_of("interp", &options, tiny, least, &by_pairs) == tiny + least);
    if (has_pairs()) {
        float got = product_of("cpu", &options, tiny, least, &by_pairs);
        CHECK(by_pairs && (got == least || got == tiny + least));
        got = product_of("cpu", &options, 0x1.8p-126f, -least, &by_pairs);
        CHECK(by_pairs && (got == 0 || got == 0x1p-127f));
    }
}

TEST(pairs_are_refused_where_bits_must_be_shared)
{
    bool by_pairs;
    tc_options refused = {.threads = 1, .matrix = -1};
    tc_options shared = {.threads = 1, .reproducible = true};
    const float tiny = 0x1p-130f, least = 0x1p-126f;
    register_imitation();
    CHECK(product_of("cpu", &refused, tiny, least, &by_pairs) == tiny + least && !by_pairs);
    CHECK(product_of("cpu", &shared, tiny, least, &by_pairs) == tiny + least && !by_pairs);
    CHECK(product_of("pairs", &refused, tiny, least, &by_pairs) == tiny + least && !by_pairs);
}

TEST_MAIN
