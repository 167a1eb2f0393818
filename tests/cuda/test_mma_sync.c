/* Contractions by the matrix units of warps (mma.sync) without such a card: their text is run by
 * the emulation (unit.h) and compared with the interpreter, within the class's bound; a machine
 * without such a unit, or where it is refused, has none of it. */
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"

#include "emulate.h"
#include "nvrtc_text.h"

/* ---- the machines ---- */

static tc_status target_of(int unit, tc_backend_target *target)
{
    tc_status status = emu_target(NULL, 0, target);
    snprintf(target->features, sizeof(target->features), "emulated warps %d", unit);
    target->matrix_units = 0;
    target->warp_unit = unit;
    return status;
}
static tc_status target_75(void *user, int bits, tc_backend_target *target)
{
    (void)user, (void)bits;
    return target_of(TC_WARP_HALVES | TC_WARP_BYTES, target);
}
static tc_status target_80(void *user, int bits, tc_backend_target *target)
{
    (void)user, (void)bits;
    return target_of(TC_WARP_HALVES | TC_WARP_SINGLES | TC_WARP_BYTES | TC_WARP_DOUBLES, target);
}
/* Hopper, whose matrix units take what they take. */
static tc_status target_90(void *user, int bits, tc_backend_target *target)
{
    (void)user, (void)bits;
    tc_status status = target_of(TC_WARP_BYTES | TC_WARP_DOUBLES, target);
    target->matrix_units = 2;
    return status;
}

static tc_ctx *context_of(const char *backend, tc_options o)
{
    static tc_backend sm75, sm80, sm90;
    tc_ctx *ctx = NULL;
    if (!sm75.name) {
        sm75 = sm80 = sm90 = *emulation();
        sm75.name = "sm75";
        sm75.target = target_75;
        sm80.name = "sm80";
        sm80.target = target_80;
        tc_register_backend(&sm75);
        tc_register_backend(&sm80);
        sm90.name = "sm90";
        sm90.target = target_90;
        tc_register_backend(&sm90);
    }
    o.backend = backend;
    o.fallback = TC_FALLBACK_REFUSE;
    o.no_disk_cache = true;
    o.verify = true;
    return tc_ctx_make(&ctx, &o) ? NULL : ctx;
}

static bool can_emulate(void)
{
    tc_backend_target target;
    memset(&target, 0, sizeof(target));
    emu_target(NULL, 0, &target);
    return target.usable;
}

/* ---- cases ---- */

/* An expression that is linear in a and in b, so that of their sizes it is the size of its sums. */
typedef tc_tensor (*expression)(tc_tensor a, tc_tensor b);

static tc_tensor nn(tc_tensor a, tc_tensor b)
{
    return tc_matmul(a, b);
}
static tc_tensor nt(tc_tensor a, tc_tensor b)
{
    return tc_matmul(a, tc_transpose(b, -1, -2));
}
static tc_tensor tn(tc_tensor a, tc_tensor b)
{
    return tc_matmul(tc_transpose(a, -1, -2), b);
}
static tc_tensor tt(tc_tensor a, tc_tensor b)
{
    return tc_matmul(tc_transpose(a, -1, -2), tc_transpose(b, -1, -2));
}

/* Every first factor of the batch, the same second one; and what follows a product, by pieces that
 * have no larger differences than their arguments. */
static tc_tensor followed(tc_tensor a, tc_tensor b)
{
    tc_tensor y = tc_matmul(a, b), bias = tc_slice(b, -2, 0, 1, 1);
    return tc_maximum(tc_relu(tc_add(y, bias)), tc_sub(y, bias));
}
/* The factors are made of several operands, or computed, and rounded. */
static tc_tensor computed(tc_tensor a, tc_tensor b)
{
    tc_tensor twice = tc_mul(a, 2), rest = tc_slice(b, 0, 0, tc_size(b, 0), 1);
    return tc_matmul(tc_cast(twice, tc_dtype_of(b)), tc_relu(rest));
}
/* f32 sums of halves. */
static tc_tensor wide(tc_tensor a, tc_tensor b)
{
    return tc_matmul(tc_cast(a, TC_F32), tc_cast(b, TC_F32));
}
static tc_tensor conv(tc_tensor x, tc_tensor w)
{
    return tc_conv2d(x, w, TC_NONE, &(tc_conv){.padding = {1, 1}});
}
static tc_tensor conv_far(tc_tensor x, tc_tensor w)
{
    return tc_conv2d(x, w, TC_NONE,
                     &(tc_conv){.padding = {2, 2}, .stride = {2, 2}, .dilation = {2, 2}});
}
/* The gradients of conv: of its filters from x and g, of x from g and the filters. */
static tc_tensor conv_filters(tc_tensor x, tc_tensor g)
{
    tc_tensor made[1];
    tc_tensor w = tc_full(x.ctx, 0, tc_dtype_of(x), tc_size(g, 1), tc_size(x, 1), 3, 3);
    tc_tensor y = conv(x, w);
    tc_status status = tc_vjp(((tc_tensors){&y, 1}), ((tc_tensors){&g, 1}), &w, 1, made);
    return status ? TC_NONE : made[0];
}
static tc_tensor conv_images(tc_tensor g, tc_tensor w)
{
    tc_tensor made[1];
    tc_tensor x = tc_full(g.ctx, 0, tc_dtype_of(g), tc_size(g, 0), tc_size(w, 1), tc_size(g, 2),
                          tc_size(g, 3));
    tc_tensor y = conv(x, w);
    tc_status status = tc_vjp(((tc_tensors){&y, 1}), ((tc_tensors){&g, 1}), &x, 1, made);
    return status ? TC_NONE : made[0];
}

enum { A_MOST = 4 };
typedef struct test_case {
    expression y;
    int rank_a, rank_b;
    int64_t a[A_MOST], b[A_MOST];
    int64_t depth;
} test_case;

static uint32_t state = 1;

static float next_value(void)
{
    state = state * 1664525u + 1013904223u;
    return (float)((double)(state >> 8) / (1 << 23) - 1);
}

static int64_t count_of(int rank, const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < rank; i++) {
        n *= shape[i];
    }
    return n;
}

static tc_tensor input_of(tc_ctx *ctx, tc_dtype t, int rank, const int64_t *shape)
{
    int64_t all[A_MOST + 1] = {t};
    memcpy(all + 1, shape, (size_t)rank * sizeof(*shape));
    return tc_input_at(ctx, "x", rank + 1, all, TC_HERE);
}

static const char *forced; /* a file of schedules, or NULL */

/* What a case's factors are, and what they are cast to before; 0: nothing. */
typedef struct test_dtypes {
    tc_dtype a, b, sums;
} test_dtypes;

/* Runs the case; the results as f64, heap. *text is what tc_explain says. */
static double *run_case(const test_case *c, tc_ctx *ctx, test_dtypes t, bool sizes, const void *a,
                        const void *b, int64_t *n, char *text, size_t n_text)
{
    tc_tensor in[2] = {input_of(ctx, t.a, c->rank_a, c->a), input_of(ctx, t.b, c->rank_b, c->b)};
    tc_tensor x = t.sums ? tc_cast(in[0], t.sums) : in[0];
    tc_tensor z = t.sums ? tc_cast(in[1], t.sums) : in[1];
    tc_tensor y = tc_cast(sizes ? c->y(tc_abs(x), tc_abs(z)) : c->y(x, z), TC_F64);
    tc_program *f = NULL;
    tc_tensors ins = {in, 2}, outs = {&y, 1};
    tc_options o = {0};
    o.schedule = text ? forced : NULL;
    if (tc_compile_fn(ins, outs, &o, &f)) {
        CHECK_MSG(false, "%s", tc_error(ctx));
        return NULL;
    }
    *n = tc_count(y);
    double *out = (double *)malloc((size_t)*n * sizeof(double));
    memset(out, 0xff, (size_t)*n * sizeof(double));
    int64_t bytes[2] = {tci_dtype_get(t.a)->bytes, tci_dtype_get(t.b)->bytes};
    tc_buf bufs[2] = {TC_BUF((void *)a, count_of(c->rank_a, c->a) * bytes[0]),
                      TC_BUF((void *)b, count_of(c->rank_b, c->b) * bytes[1])};
    tc_bufs with = {bufs, 2};
    tc_status status = tc_run(f, with, TC_BUFS(TC_BUF(out, *n)));
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    FILE *file = text ? fmemopen(text, n_text, "w") : NULL;
    if (file) {
        tc_explain_as(f, file, &(tc_explain_options){.all = true});
        fclose(file);
    }
    tc_program_free(f);
    return out;
}

/* n values of dtype t; heap. */
static void *values_of(tc_dtype t, int64_t n)
{
    void *data = malloc((size_t)n * 8);
    for (int64_t i = 0; i < n; i++) {
        float x = next_value();
        uint32_t bits;
        memcpy(&bits, &x, sizeof(bits));
        if (t == TC_F64) {
            ((double *)data)[i] = (double)x + (double)next_value() * 0x1p-24;
        } else if (t == TC_F32) {
            ((float *)data)[i] = x;
        } else if (t == TC_I8 || t == TC_U8) { /* the largest ones often */
            ((int8_t *)data)[i] = (int8_t)(bits % 3 ? bits >> 8 : (bits >> 8) % 2 ? 127 : 128);
        } else {
            ((uint16_t *)data)[i] = t == TC_F16 ? tci_f32_to_f16_bits(x) : (uint16_t)(bits >> 16);
        }
    }
    return data;
}

/* The case on that backend against the interpreter, whose class is the chain: how many elements
 * are outside of the bound of kernel/ir.h and a unit for roundings of results; -1: it does not
 * run. */
static int64_t count_wrong(const test_case *c, const char *backend, test_dtypes dtypes, char *text,
                           size_t n_text)
{
    tc_options o = {0}, exact = {0};
    tc_dtype t = dtypes.a;
    o.math = t == TC_F32 ? TC_MATH_FAST : TC_MATH_EXACT;
    tc_ctx *ctx = context_of(backend, o), *judge = context_of("interp", exact);
    CHECK(ctx && judge);
    if (!ctx || !judge) {
        return -1;
    }
    void *a = values_of(t, count_of(c->rank_a, c->a));
    void *b = values_of(dtypes.b, count_of(c->rank_b, c->b));
    int64_t n = 0, wrong = 0;
    double *got = run_case(c, ctx, dtypes, false, a, b, &n, text, n_text);
    double *want = run_case(c, judge, dtypes, false, a, b, &n, NULL, 0);
    double *size = run_case(c, judge, dtypes, true, a, b, &n, NULL, 0);
    double each = (3 * (double)((c->depth + 3) / 4) + 32) * 0x1p-23 + (t == TC_F32 ? 0x1p-10 : 0);
    double unit = t == TC_F16 ? 0x1p-10 : t == TC_BF16 ? 0x1p-7 : 0x1p-23;
    bool exact_sums = tci_dtype_is_int(t);
    each = exact_sums ? 0 : t == TC_F64 ? 2 * (double)c->depth * 0x1p-53 : each;
    unit = exact_sums || t == TC_F64 ? 0 : unit;
    for (int64_t i = 0; got && want && size && i < n; i++) {
        double slack = fabs(size[i]) * 1.01 * each + (fabs(want[i]) + 1) * unit;
        wrong += !(fabs(got[i] - want[i]) <= slack);
    }
    wrong = got && want && size ? wrong : -1;
    free(got), free(want), free(size), free(a), free(b);
    tc_ctx_free(ctx);
    tc_ctx_free(judge);
    return wrong;
}

static void check_dtypes(const test_case *c, const char *backend, test_dtypes t, const char *says)
{
    static char text[20000];
    memset(text, 0, sizeof(text));
    int64_t wrong = count_wrong(c, backend, t, text, sizeof(text) - 1);
    const char *name = tci_dtype_get(t.a)->name;
    CHECK_MSG(wrong == 0, "%s, %s: %d wrong\n%s", backend, name, (int)wrong, text);
    CHECK_MSG(strstr(text, says), "%s, %s: not '%s':\n%s", backend, name, says, text);
}

static void check_case(const test_case *c, const char *backend, tc_dtype t, const char *says)
{
    check_dtypes(c, backend, (test_dtypes){t, t, (tc_dtype)0}, says);
}

static void check_bytes(const test_case *c, const char *backend, tc_dtype a, tc_dtype b,
                        tc_dtype sums, const char *says)
{
    check_dtypes(c, backend, (test_dtypes){a, b, sums}, says);
}

TEST(products_of_every_layout)
{
    static const test_case cases[] = {{nn, 2, 2, {128, 64}, {64, 128}, 64},
                                      {nt, 2, 2, {128, 64}, {128, 64}, 64},
                                      {tn, 2, 2, {64, 128}, {64, 128}, 64},
                                      {tt, 2, 2, {64, 128}, {128, 64}, 64}};
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    for (int i = 0; i < TCI_COUNT(cases); i++) {
        check_case(&cases[i], "sm80", TC_BF16, "matrix unit of each warp, bf16");
        check_case(&cases[i], "sm80", TC_F16, "matrix unit of each warp, f16");
        check_case(&cases[i], "sm80", TC_F32, "matrix unit of each warp, tf32");
        check_case(&cases[i], "sm75", TC_F16, "matrix unit of each warp, f16");
        check_case(&cases[i], "sm75", TC_BF16, "by ");
        check_case(&cases[i], "sm80", TC_F64, "matrix unit of each warp, f64");
        check_case(&cases[i], "sm90", TC_F64, "matrix unit of each warp, f64");
    }
}

/* Of either sign, in sums of 32 bits, and of fewer, whose last bits are those of more. */
TEST(bytes_of_every_layout)
{
    static const test_case cases[] = {{nn, 2, 2, {128, 64}, {64, 128}, 64},
                                      {nt, 2, 2, {128, 64}, {128, 64}, 64},
                                      {tn, 2, 2, {64, 128}, {64, 128}, 64},
                                      {tt, 2, 2, {64, 128}, {128, 64}, 64}};
    static const char *const units[] = {"sm75", "sm80", "sm90"};
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    for (int i = 0; i < TCI_COUNT(cases); i++) {
        const test_case *c = &cases[i];
        check_bytes(c, units[i % 3], TC_I8, TC_I8, TC_I32, "matrix unit of each warp, i8, tiles");
        check_bytes(c, "sm80", TC_U8, TC_I8, TC_I32, "matrix unit of each warp, u8 and i8");
        check_bytes(c, "sm80", TC_I8, TC_U8, TC_U32, "matrix unit of each warp, i8 and u8");
        check_bytes(c, "sm90", TC_U8, TC_U8, TC_I16, "matrix unit of each warp, u8, tiles");
        check_case(c, "sm80", TC_I8, "matrix unit of each warp, i8, tiles");
        check_bytes(c, "sm80", TC_I8, TC_I8, TC_I64, "by ");
    }
}

/* All that a tile may end with: one element more or fewer than whole, primes, one slab and less. */
TEST(products_of_every_size)
{
    static const test_case cases[] = {
        {nn, 2, 2, {129, 67}, {67, 131}, 67},        {nt, 2, 2, {127, 65}, {129, 65}, 65},
        {tn, 2, 2, {63, 257}, {63, 65}, 63},         {tt, 2, 2, {31, 191}, {193, 31}, 31},
        {nn, 2, 2, {33, 37}, {37, 1009}, 37},        {nt, 2, 2, {997, 17}, {67, 17}, 17},
        {nn, 2, 2, {136, 40}, {40, 200}, 40},        {nt, 2, 2, {136, 72}, {136, 72}, 72},
        {tn, 2, 2, {48, 264}, {48, 88}, 48},         {tt, 2, 2, {88, 136}, {104, 88}, 88},
        {nn, 3, 3, {3, 72, 136}, {3, 136, 40}, 136}, {nt, 3, 2, {5, 33, 200}, {48, 200}, 200},
        {nn, 2, 2, {128, 4096}, {4096, 64}, 4096}};
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    for (int i = 0; i < TCI_COUNT(cases); i++) {
        check_case(&cases[i], "sm80", i % 2 ? TC_F16 : TC_BF16, "matrix unit of each warp");
        check_case(&cases[i], i % 3 ? "sm80" : "sm75", i % 3 ? TC_F32 : TC_F16,
                   "matrix unit of each warp");
        check_bytes(&cases[i], i % 2 ? "sm90" : "sm80", i % 3 ? TC_I8 : TC_U8, TC_I8, TC_I32,
                    "matrix unit of each warp");
        check_case(&cases[i], i % 2 ? "sm90" : "sm80", TC_F64, "matrix unit of each warp");
    }
}

TEST(what_follows_and_what_factors_are)
{
    static const test_case cases[] = {{followed, 2, 2, {130, 72}, {72, 136}, 72},
                                      {followed, 3, 2, {2, 72, 64}, {64, 136}, 64},
                                      {computed, 2, 2, {130, 72}, {72, 136}, 72},
                                      {wide, 2, 2, {136, 72}, {72, 136}, 72}};
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    for (int i = 0; i < TCI_COUNT(cases); i++) {
        check_case(&cases[i], "sm80", TC_BF16, "matrix unit of each warp");
        check_case(&cases[i], "sm80", TC_F16, "matrix unit of each warp");
        check_case(&cases[i], "sm80", TC_F32, "tf32");
        check_case(&cases[i], "sm80", TC_F64, i < 3 ? "matrix unit of each warp" : "by ");
    }
    check_bytes(&cases[0], "sm80", TC_U8, TC_I8, TC_I32, "matrix unit of each warp");
}

/* Windows, paddings and steps are the index of an element. */
TEST(convolutions_in_three_directions)
{
    static const test_case cases[] = {{conv, 4, 4, {2, 32, 14, 15}, {40, 32, 3, 3}, 288},
                                      {conv_far, 4, 4, {2, 32, 23, 21}, {48, 32, 3, 3}, 288},
                                      {conv_filters, 4, 4, {2, 32, 14, 15}, {2, 40, 14, 15}, 420},
                                      {conv_images, 4, 4, {2, 40, 14, 15}, {40, 32, 3, 3}, 360}};
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    for (int i = 0; i < TCI_COUNT(cases); i++) {
        check_case(&cases[i], "sm80", i % 2 ? TC_F16 : TC_BF16, "matrix unit of each warp");
        check_case(&cases[i], "sm80", TC_F32, "");
        check_case(&cases[i], "sm80", TC_F64, "");
    }
    check_bytes(&cases[0], "sm90", TC_U8, TC_I8, TC_I32, "matrix unit of each warp");
    check_bytes(&cases[1], "sm80", TC_I8, TC_I8, TC_I32, "matrix unit of each warp");
}

/* Who asks for the same bits everywhere, or for no unit, has threads multiply. */
TEST(the_unit_can_be_refused)
{
    static const test_case c = {nn, 2, 2, {128, 64}, {64, 128}, 64};
    for (int i = 0; i < 3; i++) {
        tc_options o = {0};
        static char text[20000];
        int64_t n = 0;
        o.matrix = i == 1 ? -1 : 0;
        o.reproducible = i == 2;
        if (!can_emulate()) {
            SKIP("there is no C++ compiler");
        }
        tc_ctx *ctx = context_of("sm80", o);
        REQUIRE(ctx);
        void *a = values_of(TC_BF16, 128 * 64), *b = values_of(TC_BF16, 128 * 64);
        memset(text, 0, sizeof(text));
        test_dtypes t = {TC_BF16, TC_BF16, (tc_dtype)0};
        free(run_case(&c, ctx, t, false, a, b, &n, text, sizeof(text) - 1));
        CHECK_MSG(!strstr(text, "matrix unit of each warp") == (i > 0), "%d:\n%s", i, text);
        free(a), free(b);
        tc_ctx_free(ctx);
    }
}

/* Every tile of the form, though the model takes few of them here. */
TEST(tiles_of_every_shape)
{
    static const char *const tiles[] = {"128 128 2 2", "128 128 2 4", "128 64 4 2", "64 128 2 4",
                                        "64 64 2 2",   "32 128 1 4",  "128 32 4 1", "32 64 1 2"};
    static const char *const kernels[] = {"contract",          "contract_permute",
                                          "cast_contract",     "cast_contract_permute",
                                          "cast_add_contract", "cast_add_contract_permute"};
    static const test_case cases[] = {{nn, 2, 2, {130, 72}, {72, 136}, 72},
                                      {tt, 2, 2, {72, 136}, {136, 72}, 72}};
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    for (int i = 0; i < TCI_COUNT(tiles); i++) {
        int n[4];
        char path[] = "/tmp/tc-test-warps-XXXXXX", says[80];
        int file = mkstemp(path);
        REQUIRE(file >= 0 && sscanf(tiles[i], "%d %d %d %d", &n[0], &n[1], &n[2], &n[3]) == 4);
        FILE *out = fdopen(file, "w");
        for (int k = 0; k < TCI_COUNT(kernels); k++) {
            fprintf(out, "tc_k_%s: warps rows=%d columns=%d row_warps=%d column_warps=%d\n",
                    kernels[k], n[0], n[1], n[2], n[3]);
        }
        fclose(out);
        snprintf(says, sizeof(says), "tiles %dx%d by %d threads", n[0], n[1], 32 * n[2] * n[3]);
        forced = path;
        check_case(&cases[i % 2], "sm80", TC_BF16, says);
        check_case(&cases[1 - i % 2], "sm80", TC_F32, says);
        check_bytes(&cases[1 - i % 2], "sm80", TC_I8, TC_I8, TC_I32, says);
        check_case(&cases[i % 2], "sm80", TC_F64, i > 1 ? says : ""); /* 128x128 have no room */
        forced = NULL;
        remove(path);
    }
}

TEST(nvrtc_takes_the_text)
{
    static const struct {
        const char *architecture, *backend;
        tc_dtype a, b;
    } cards[] = {{"--gpu-architecture=sm_75", "sm75", TC_F16, TC_F16},
                 {"--gpu-architecture=sm_80", "sm80", TC_BF16, TC_BF16},
                 {"--gpu-architecture=sm_80", "sm80", TC_F32, TC_F32},
                 {"--gpu-architecture=sm_89", "sm80", TC_F16, TC_F16},
                 {"--gpu-architecture=sm_100", "sm80", TC_BF16, TC_BF16},
                 {"--gpu-architecture=sm_120", "sm80", TC_F32, TC_F32},
                 {"--gpu-architecture=sm_75", "sm75", TC_U8, TC_I8},
                 {"--gpu-architecture=sm_80", "sm80", TC_I8, TC_I8},
                 {"--gpu-architecture=sm_80", "sm80", TC_F64, TC_F64},
                 {"--gpu-architecture=sm_90a", "sm90", TC_I8, TC_U8},
                 {"--gpu-architecture=sm_90a", "sm90", TC_F64, TC_F64},
                 {"--gpu-architecture=sm_120", "sm80", TC_U8, TC_U8}};
    static const expression layouts[] = {nn, tt};
    const char *why = "";
    if (!tci_nvrtc_get(&why)) {
        SKIP("NVRTC cannot be opened: %s", why);
    }
    if (!can_emulate()) {
        SKIP("there is no C++ compiler");
    }
    for (int i = 0; i < 2 * TCI_COUNT(cards); i++) {
        tc_options o = {0};
        const int64_t shape[2] = {136, 136};
        tc_dtype t = cards[i / 2].a, u = cards[i / 2].b;
        bool bytes = tci_dtype_is_int(t);
        o.math = t == TC_F32 ? TC_MATH_FAST : TC_MATH_EXACT;
        tc_ctx *ctx = context_of(cards[i / 2].backend, o);
        REQUIRE(ctx);
        tc_tensor in[2] = {input_of(ctx, t, 2, shape), input_of(ctx, u, 2, shape)};
        tc_tensor y = layouts[i % 2](bytes ? tc_cast(in[0], TC_I32) : in[0],
                                     bytes ? tc_cast(in[1], TC_I32) : in[1]);
        tc_program *f = NULL;
        tc_tensors ins = {in, 2}, outs = {&y, 1};
        REQUIRE(!tc_compile_fn(ins, outs, NULL, &f));
        CHECK(strstr(tc_source(f), "tc_multiply_"));
        check_text_by_nvrtc(f, cards[i / 2].architecture);
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

TEST_MAIN
