/* Contractions of small integers in i32, two or four products at once in each lane: of every
 * shape, layout, sign and form the bits of the interpreter, for any number of threads, from the
 * plain C that stands in for the instruction and, where this processor has it, from that too. */
#include "inside.h"

#include "tc_test.h"

/* The "cpu" backend of a processor that takes so many products, or has a unit for bytes, without
 * VNNI and AMX. */
enum { UNIT = 64, WIDE = 512 /* bits: vectors next to a unit */ };

static tc_status imitation_target(void *user, int vector_bits, tc_backend_target *out)
{
    static const char *const flags[] = {",vnni", ",bytes", ",amx"};
    tc_status status = tci_cpu_backend()->target(NULL, vector_bits, out);
    for (int i = 0; i < 3; i++) {
        char *there = strstr(out->features, flags[i]);
        if (there) { /* the flag that comes without it */
            memmove(there, there + strlen(flags[i]), strlen(there + strlen(flags[i])) + 1);
        }
    }
    int points = *(const int *)user;
    out->unit_bytes = points == UNIT && out->vector_bytes == WIDE / 8;
    out->matrix_units = out->unit_bytes;
    out->int_points = points == UNIT ? 4 : points;
    return status;
}

static tc_status imitation_compile(void *user, tc_build *build)
{
    const char *at = strstr(build->features, "vector=");
    int bytes = at ? atoi(at + 7) : 0, n = 0;
    tci_target t;
    const char *why;
    (void)user;
    tci_target_detect(&t, bytes > 0 ? 8 * bytes : -1);
    for (int i = 0; i < t.n_flags; i++) {
        t.flags[n] = t.flags[i];
        n += strncmp(t.flags[i], "-DTC_FOURS", 10) != 0 && strncmp(t.flags[i], "-DTC_AMX", 8) != 0;
    }
    t.n_flags = n;
    return tci_cc_build(build, &t, &why);
}

static void register_imitations(void)
{
    static const char *const names[] = {"ones", "twos", "fours", "unit"};
    static const int points[] = {0, 2, 4, UNIT};
    static tc_backend imitations[4];
    for (int i = 0; i < 4 && !imitations[i].name; i++) {
        imitations[i] = *tci_cpu_backend();
        imitations[i].name = names[i];
        imitations[i].user = (void *)&points[i];
        imitations[i].target = imitation_target;
        imitations[i].compile = imitation_compile;
        tc_register_backend(&imitations[i]);
    }
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

enum {
    A_TURNED = 1,
    B_TURNED = 2,
    EPILOGUE = 4,
    ZERO_POINTS = 8, /* one for each row of a, which a run gives; of b a number */
    WEIGHTS = 16,    /* b is the program's own */
    CONVOLUTION = 32,
    STRIDE = 64,
    LEAST = 128,     /* all values are the least ones */
    QUANTIZED = 256, /* tc_qmatmul */
    SMALL = 512,     /* several products may not pay */
    NARROW = 1024    /* of a only what is not negative */
};

/* A case: what it makes of two inputs, their dtypes and shapes, and the products at once. */
typedef struct example {
    const char *name;
    tc_dtype ta, tb;
    int64_t a[4], b[4];
    int how, most;
} example;

static int64_t elements(const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < 4 && shape[i] >= 0; i++) {
        n *= shape[i];
    }
    return n;
}

static tc_tensor input_of(tc_ctx *ctx, const char *name, tc_dtype t, const int64_t *shape)
{
    int64_t sizes[5] = {t};
    int rank = 0;
    while (rank < 4 && shape[rank] >= 0) {
        sizes[rank + 1] = shape[rank];
        rank++;
    }
    return tc_input_at(ctx, name, rank + 1, sizes, TC_HERE);
}

static tc_tensor made_of(tc_tensor a, tc_tensor b, tc_tensor zero, int how)
{
    if (how & CONVOLUTION) {
        int64_t step = how & STRIDE ? 2 : 1, pad = tc_size(b, 2) / 2;
        return tc_conv2d(tc_cast(a, TC_I32), tc_cast(b, TC_I32), TC_NONE,
                         &(tc_conv){.padding = {pad, pad}, .stride = {step, step}});
    }
    a = how & A_TURNED ? tc_transpose(a, -2, -1) : a;
    b = how & B_TURNED ? tc_transpose(b, -2, -1) : b;
    if (how & QUANTIZED) {
        return how & ZERO_POINTS ? tc_qmatmul(a, 0.5, zero, b, 0.25, -3)
                                 : tc_qmatmul(a, 0.5, 0, b, 0.25, 200);
    }
    a = tc_cast(a, TC_I32);
    a = how & NARROW ? tc_relu(a) : a;
    b = tc_cast(b, TC_I32);
    if (how & ZERO_POINTS) {
        a = tc_sub(a, tc_unsqueeze(zero, -1));
        b = tc_sub(b, 1000003);
    }
    tc_tensor y = tc_matmul(a, b);
    return how & EPILOGUE ? tc_gelu(tc_mul(tc_cast(y, TC_F32), 1e-4)) : y;
}

/* Runs it; the result is left at `to`. */
static int64_t run(const example *e, const tc_options *options, void *a, void *b, int32_t *zeros,
                   char *to, int *points)
{
    tc_ctx *ctx;
    tc_program *f = NULL;
    REQUIRE(tc_ctx_make(&ctx, options) == TC_OK);
    tc_tensor x = input_of(ctx, "a", e->ta, e->a), y = input_of(ctx, "b", e->tb, e->b), given = y;
    int64_t rows = e->a[e->how & A_TURNED ? 1 : 0];
    tc_tensor zero = tc_input(ctx, "zero", TC_I32, rows);
    if (e->how & WEIGHTS) {
        y = tc_borrow(ctx, b, e->tb, e->b[0], e->b[1]);
    }
    tc_tensor out = made_of(x, y, zero, e->how);
    CHECK_MSG(tc_compile_fn(TC_TENSORS(x, given, zero), TC_TENSORS(out), options, &f) == TC_OK,
              "%s: %s", e->name, tc_error(out));
    REQUIRE(f != NULL);
    tc_buf in[3] = {{.data = a, .dtype = e->ta, .n = elements(e->a)},
                    {.data = b, .dtype = e->tb, .n = elements(e->b)},
                    {.data = zeros, .dtype = TC_I32, .n = rows}};
    tc_buf result = {.data = to, .dtype = tc_dtype_of(out), .n = tc_count(out)};
    CHECK_MSG(tc_run(f, (tc_bufs){in, 3}, (tc_bufs){&result, 1}) == TC_OK, "%s: %s", e->name,
              tc_error(f));
    *points = explains(f, ", matrix unit") ? UNIT
              : explains(f, ", fours")     ? 4
              : explains(f, ", pairs")     ? 2
                                           : 0;
    tc_program_free(f);
    tc_ctx_free(ctx);
    return 4 * result.n;
}

static void *random_bytes(int64_t n, bool least)
{
    uint8_t *p = malloc((size_t)n + 1);
    REQUIRE(p != NULL);
    for (int64_t i = 0; i < n; i++) {
        p[i] = least ? 0x80 : (uint8_t)tct_random_below(256);
    }
    return p;
}

static bool is_wide(void)
{
    tci_target t;
    tci_target_detect(&t, WIDE);
    return t.vector_bytes == 64;
}

/* Without the instruction and with it, and, in turns with other examples, otherwise. */
static void check_example(const example *e, size_t turn)
{
    enum { MOST = 1 << 22, ZEROS = 1 << 10 };
    static char want[MOST], got[MOST];
    static int32_t zeros[ZEROS];
    static const struct {
        const char *backend;
        int bits, threads, most;
    } runs[] = {{"fours", 0, 1, 4}, {"cpu", 0, 3, 0},    {"unit", WIDE, 2, UNIT},
                {"twos", 0, 3, 2},  {"twos", 256, 1, 2}, {"fours", 128, 3, 4},
                {"cpu", 256, 1, 0}};
    enum { ALWAYS = 3, ALL = sizeof(runs) / sizeof(*runs) };
    void *a = random_bytes(2 * elements(e->a), e->how & LEAST);
    void *b = random_bytes(2 * elements(e->b), e->how & LEAST);
    int points;
    tc_options options = {.backend = "interp", .no_disk_cache = true, .verify = true};
    for (int i = 0; i < ZEROS; i++) {
        zeros[i] = (int32_t)(i * 2654435761U);
    }
    int64_t n = run(e, &options, a, b, zeros, want, &points);
    REQUIRE(n <= MOST);
    options.fallback = TC_FALLBACK_REFUSE;
    for (size_t n_run = 0; n_run <= ALWAYS; n_run++) {
        size_t i = n_run < ALWAYS ? n_run : ALWAYS + turn % (ALL - ALWAYS);
        options.backend = runs[i].backend;
        options.threads = runs[i].threads;
        options.vector_bits = runs[i].bits;
        memset(got, 0, sizeof(got));
        run(e, &options, a, b, zeros, got, &points);
        int most = runs[i].most < e->most ? runs[i].most : e->most;
        most = most == UNIT && !is_wide() ? 4 : most;
        bool any = (e->how & SMALL) || (e->most == UNIT && most < UNIT);
        CHECK_MSG(points >= most || any, "%s, %s, %d bits: %d at once", e->name, options.backend,
                  options.vector_bits, points);
        CHECK_MSG(!memcmp(want, got, (size_t)n),
                  "%s, %s, %d threads, %d bits: other bits than interpreted", e->name,
                  options.backend, options.threads, options.vector_bits);
    }
    free(a);
    free(b);
}

static void check_all(const example *examples, size_t n)
{
    register_imitations();
    for (size_t i = 0; i < n; i++) {
        check_example(&examples[i], i);
    }
}

TEST(products)
{
    static const example examples[] = {
        {"whole tiles", TC_I8, TC_I8, {128, 128, -1}, {128, 128, -1}, 0, 4},
        {"tails on every side", TC_U8, TC_I8, {131, 401, -1}, {401, 333, -1}, 0, 4},
        {"one product", TC_I8, TC_U8, {32, 1, -1}, {1, 64, -1}, SMALL, 4},
        {"three products", TC_U8, TC_U8, {32, 3, -1}, {3, 64, -1}, 0, 4},
        {"five products", TC_I8, TC_I8, {32, 5, -1}, {5, 64, -1}, 0, 4},
        {"two of a last four", TC_I8, TC_U8, {67, 126, -1}, {126, 129, -1}, EPILOGUE, 4},
        {"several blocks", TC_I8, TC_I8, {61, 1301, -1}, {1301, 67, -1}, 0, 4},
        {"several blocks, turned", TC_U8, TC_U8, {61, 1303, -1}, {67, 1303, -1}, B_TURNED, 4},
        {"one row tile", TC_U8, TC_I8, {9, 501, -1}, {501, 640, -1}, 0, 4},
        {"few rows, tails", TC_I8, TC_I8, {33, 301, -1}, {301, 1003, -1}, EPILOGUE, 4},
        {"turned left", TC_I8, TC_U8, {411, 133, -1}, {411, 317, -1}, A_TURNED, 4},
        {"turned right", TC_U8, TC_U8, {133, 411, -1}, {317, 411, -1}, B_TURNED, 4},
        {"turned right, whole vectors", TC_I8, TC_I8, {60, 576, -1}, {101, 576, -1}, B_TURNED, 4},
        {"whole vectors, unsigned", TC_U8, TC_U8, {60, 576, -1}, {101, 576, -1}, B_TURNED, 4},
        {"four rows", TC_I8, TC_I8, {4, 1024, -1}, {130, 1024, -1}, B_TURNED, 4},
        {"turned both", TC_I8, TC_I8, {300, 65, -1}, {200, 300, -1}, A_TURNED | B_TURNED, 4},
        {"batched", TC_I8, TC_I8, {3, 60, 97, -1}, {3, 97, 70, -1}, 0, 4},
        {"of 16 bits", TC_I16, TC_I8, {65, 131, -1}, {131, 67, -1}, 0, 2},
        {"of 16 bits, turned", TC_I16, TC_I16, {60, 544, -1}, {101, 544, -1}, B_TURNED, 2},
        {"of 16 bits, unsigned", TC_U16, TC_I16, {65, 131, -1}, {131, 67, -1}, SMALL, 0},
        {"not negative", TC_I8, TC_I8, {65, 131, -1}, {131, 67, -1}, NARROW, 4},
    };
    check_all(examples, sizeof(examples) / sizeof(*examples));
}

/* A matrix unit takes registers of 16 rows, columns and fours: sizes around them, all signs. */
TEST(products_on_a_matrix_unit)
{
    static const example examples[] = {
        {"whole registers", TC_I8, TC_I8, {128, 128, -1}, {128, 128, -1}, 0, UNIT},
        {"one row", TC_I8, TC_I8, {1, 1024, -1}, {1024, 1031, -1}, SMALL, 4},
        {"two rows", TC_U8, TC_U8, {2, 1023, -1}, {1023, 1031, -1}, 0, UNIT},
        {"15 rows", TC_I8, TC_U8, {15, 1025, -1}, {1025, 127, -1}, 0, UNIT},
        {"16 rows", TC_U8, TC_I8, {16, 1021, -1}, {1021, 65, -1}, 0, UNIT},
        {"17 rows", TC_I8, TC_I8, {17, 1024, -1}, {63, 1024, -1}, B_TURNED, UNIT},
        {"15 columns", TC_I8, TC_I8, {127, 1021, -1}, {1021, 15, -1}, 0, UNIT},
        {"17 columns, turned", TC_I8, TC_U8, {127, 1027, -1}, {17, 1027, -1}, B_TURNED, UNIT},
        {"16 deep", TC_U8, TC_U8, {257, 16, -1}, {16, 263, -1}, EPILOGUE, UNIT},
        {"63 deep", TC_I8, TC_U8, {131, 63, -1}, {63, 139, -1}, 0, UNIT},
        {"64 deep, turned left", TC_I8, TC_I8, {64, 131, -1}, {64, 139, -1}, A_TURNED, UNIT},
        {"65 deep, turned left", TC_U8, TC_I8, {65, 131, -1}, {65, 139, -1}, A_TURNED, UNIT},
        {"turned both", TC_U8, TC_U8, {331, 65, -1}, {67, 331, -1}, A_TURNED | B_TURNED, UNIT},
        {"blocks of depth", TC_U8, TC_I8, {33, 2621, -1}, {2621, 33, -1}, 0, UNIT},
        {"blocks of depth, turned",
         TC_I8,
         TC_I8,
         {33, 2624, -1},
         {35, 2624, -1},
         B_TURNED | EPILOGUE,
         UNIT},
        {"blocks of columns", TC_I8, TC_I8, {31, 64, -1}, {64, 1093, -1}, EPILOGUE, UNIT},
        {"batched", TC_I8, TC_U8, {3, 60, 97, -1}, {3, 97, 70, -1}, 0, UNIT},
        {"not negative", TC_I8, TC_I8, {65, 231, -1}, {231, 71, -1}, NARROW, UNIT},
        {"zero points", TC_I8, TC_I8, {65, 231, -1}, {231, 71, -1}, ZERO_POINTS, UNIT},
        {"quantized",
         TC_U8,
         TC_I8,
         {65, 192, -1},
         {97, 192, -1},
         QUANTIZED | ZERO_POINTS | WEIGHTS | B_TURNED,
         UNIT},
        {"weights", TC_I8, TC_I8, {131, 384, -1}, {384, 384, -1}, WEIGHTS | B_TURNED, UNIT},
        {"weights, odd depth",
         TC_U8,
         TC_U8,
         {40, 301, -1},
         {203, 301, -1},
         WEIGHTS | B_TURNED,
         UNIT},
        {"weights, odd columns", TC_I8, TC_U8, {37, 1088, -1}, {1088, 101, -1}, WEIGHTS, UNIT},
        {"3x3", TC_I8, TC_I8, {2, 16, 17, 16}, {24, 16, 3, 3}, CONVOLUTION, UNIT},
        {"3x3, odd channels", TC_U8, TC_U8, {1, 17, 20, 33}, {19, 17, 3, 3}, CONVOLUTION, UNIT},
        {"5x5, stride 2", TC_U8, TC_I8, {2, 3, 61, 62}, {16, 3, 5, 5}, CONVOLUTION | STRIDE, UNIT},
    };
    if (!is_wide()) {
        SKIP("no vectors of 512 bits");
    }
    check_all(examples, sizeof(examples) / sizeof(*examples));
}

/* Sums of the largest products, and more of them than i32 holds. */
TEST(sums_wrap)
{
    static const example examples[] = {
        {"least bytes", TC_I8, TC_I8, {16, 140001, -1}, {140001, 16, -1}, LEAST, 2},
        {"least bytes, of 16 bits", TC_I16, TC_I16, {16, 515, -1}, {515, 16, -1}, LEAST, 2},
        {"largest bytes", TC_U8, TC_U8, {16, 140001, -1}, {16, 140001, -1}, LEAST | B_TURNED, 2},
    };
    check_all(examples, sizeof(examples) / sizeof(*examples));
    enum { K = 140001 };
    static int32_t y[16 * 16], zeros[16];
    int points;
    tc_options options = {.backend = "fours", .threads = 1, .no_disk_cache = true};
    void *a = random_bytes(16 * K, true), *b = random_bytes(16 * K, true);
    run(&examples[0], &options, a, b, zeros, (char *)y, &points);
    CHECK_EQ_INT(y[17], (int32_t)(uint32_t)(16384ULL * K));
    free(a);
    free(b);
}

/* Weights are stored as the panels are, packed once. */
TEST(weights)
{
    static const example examples[] = {
        {"whole panels", TC_I8, TC_I8, {131, 384, -1}, {384, 384, -1}, WEIGHTS | B_TURNED, 4},
        {"unsigned", TC_U8, TC_U8, {64, 1300, -1}, {1300, 256, -1}, WEIGHTS | EPILOGUE, 4},
        {"odd depth", TC_U8, TC_I8, {40, 1301, -1}, {200, 1301, -1}, WEIGHTS | B_TURNED, 4},
        {"the last panel in parts",
         TC_I8,
         TC_I8,
         {8, 301, -1},
         {1003, 301, -1},
         WEIGHTS | B_TURNED,
         4},
        {"two rows", TC_I8, TC_I8, {2, 515, -1}, {130, 515, -1}, WEIGHTS | B_TURNED | SMALL, 4},
        {"seven rows", TC_I8, TC_U8, {7, 2048, -1}, {96, 2048, -1}, WEIGHTS | B_TURNED, 4},
        {"of 16 bits", TC_I8, TC_I16, {40, 515, -1}, {200, 515, -1}, WEIGHTS | B_TURNED, 2},
    };
    check_all(examples, sizeof(examples) / sizeof(*examples));
}

TEST(zero_points)
{
    static const example examples[] = {
        {"of both", TC_I8, TC_I8, {65, 131, -1}, {131, 67, -1}, ZERO_POINTS, 4},
        {"of weights",
         TC_U8,
         TC_I8,
         {65, 131, -1},
         {97, 131, -1},
         ZERO_POINTS | WEIGHTS | B_TURNED,
         4},
        {"turned", TC_U8, TC_U8, {131, 65, -1}, {131, 97, -1}, ZERO_POINTS | A_TURNED, 4},
        {"one row", TC_I8, TC_I8, {1, 300, -1}, {300, 70, -1}, ZERO_POINTS | SMALL, 4},
        {"quantized",
         TC_U8,
         TC_I8,
         {65, 131, -1},
         {97, 131, -1},
         QUANTIZED | ZERO_POINTS | WEIGHTS | B_TURNED,
         4},
        {"quantized, batched", TC_I8, TC_I8, {3, 65, 131, -1}, {131, 67, -1}, QUANTIZED, 4},
    };
    check_all(examples, sizeof(examples) / sizeof(*examples));
}

TEST(convolutions)
{
    static const example examples[] = {
        {"3x3", TC_I8, TC_I8, {2, 16, 15, 14}, {24, 16, 3, 3}, CONVOLUTION, 4},
        {"3x3, odd channels", TC_U8, TC_I8, {1, 7, 20, 33}, {19, 7, 3, 3}, CONVOLUTION, 4},
        {"3x3, deep", TC_I8, TC_I8, {1, 67, 9, 20}, {32, 67, 3, 3}, CONVOLUTION, 4},
        {"5x5, stride 2", TC_U8, TC_U8, {2, 3, 31, 40}, {16, 3, 5, 5}, CONVOLUTION | STRIDE, 4},
        {"1x1", TC_I8, TC_I8, {2, 33, 14, 14}, {40, 33, 1, 1}, CONVOLUTION, 4},
    };
    check_all(examples, sizeof(examples) / sizeof(*examples));
}

TEST_MAIN
