/* tests/cpu/test_export.c - tc_export_c: files that a plain C99 compiler takes without a word, and
 * that compute what tc computes, bit for bit. */
#define _GNU_SOURCE
#include "tc.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tc_test.h"

enum { MOST = 3, ROOM = 1 << 16 };

static char folder[] = "/tmp/tc-test-export-XXXXXX";
static _Alignas(64) char in[MOST][ROOM], got[MOST][ROOM], expected[MOST][ROOM];

typedef int (*function)(void *, void *, void *, void *, void *, void *, void *);
typedef struct exported {
    void *handle;
    function run;
    void (*prepare)(void *);
    void *workspace;
} exported;

static const char *path_of(const char *name, const char *ending)
{
    static char path[2][128];
    static int turn;
    turn = !turn;
    if (!strcmp(folder + strlen(folder) - 6, "XXXXXX") && !mkdtemp(folder)) {
        tct_fail(__FILE__, __LINE__, "no folder");
    }
    snprintf(path[turn], sizeof(path[turn]), "%s/%s%s", folder, name, ending);
    return path[turn];
}

static char *read_text(const char *path)
{
    static char text[1 << 20];
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    text[n] = 0;
    if (file) {
        fclose(file);
    }
    return text;
}

#ifdef __x86_64__
static const bool is_x86 = true;
#else
static const bool is_x86 = false;
#endif

static bool is_found(const char *program)
{
    char command[80];
    snprintf(command, sizeof(command), "command -v %s >/dev/null 2>&1", program);
    return !system(command);
}

static const char *compiler(void)
{
    const char *cc = getenv("TC_TEST_CC");
    return cc ? cc : "cc";
}

#define WARNINGS                                                                                   \
    "-Wall -Wextra -Wconversion -Wsign-conversion -Wshadow -Wfloat-equal -Wcast-qual -Wundef "     \
    "-Werror"

/* With warnings as errors, as a library that leaves nothing undefined, and without libm; flags: of
 * the processor. */
static exported load(const char *name, const char *with, const char *flags)
{
    exported x = {0};
    char command[512], symbol[80];
    unlink(path_of(name, ".so"));
    snprintf(command, sizeof(command),
             "%s -std=c99 -O1 " WARNINGS " %s -shared -fPIC -nostdlib "
             "-Wl,-z,defs %s -o %s -lgcc -lc",
             with, flags, path_of(name, ".c"), path_of(name, ".so"));
    CHECK_MSG(!system(command), "%s", command);
    x.handle = dlopen(path_of(name, ".so"), RTLD_NOW | RTLD_LOCAL);
    CHECK_MSG(x.handle != NULL, "%s", dlerror());
    snprintf(symbol, sizeof(symbol), "%s_prepare", name);
    if (x.handle) {
        *(void **)&x.run = dlsym(x.handle, name);
        *(void **)&x.prepare = dlsym(x.handle, symbol);
    }
    const char *line = strstr(read_text(path_of(name, ".c")), "_workspace ");
    size_t bytes = line ? (size_t)atoll(line + 11) : 0;
    x.workspace = malloc(bytes + 1 + 8);
    CHECK(x.run && x.prepare && x.workspace);
    return x;
}

static void unload(exported *x)
{
    if (x->handle) {
        dlclose(x->handle);
    }
    free(x->workspace);
}

/* Pointers all: inputs, outputs, the workspace. */
static int call(exported *x, int n_in, int n_out)
{
    void *p[7] = {0};
    int n = 0;
    for (int i = 0; i < n_in; i++) {
        p[n++] = in[i];
    }
    for (int i = 0; i < n_out; i++) {
        p[n++] = got[i];
    }
    p[n] = (char *)x->workspace + 8; /* aligned for nothing much */
    return x->run(p[0], p[1], p[2], p[3], p[4], p[5], p[6]);
}

static void fill(tc_tensor t, char *to, int seed)
{
    for (int64_t i = 0; i < tc_count(t); i++) {
        double value = sin((double)(i * 7 + seed)) * 2;
        switch (tc_dtype_of(t)) {
        case TC_F32: ((float *)(void *)to)[i] = (float)value; break;
        case TC_F64: ((double *)(void *)to)[i] = value; break;
        case TC_I32: ((int32_t *)(void *)to)[i] = (int32_t)(i * 5 % 8); break;
        case TC_F16:
        case TC_BF16: /* from 0.01 to 2, by bits */
            ((uint16_t *)(void *)to)[i] = (uint16_t)((tc_dtype_of(t) == TC_F16 ? 0x2100 : 0x3c00) +
                                                     i * 517 % 0x400);
            break;
        default: to[i] = (char)(i * 5 % 8);
        }
    }
}

static tc_bufs bufs_of(const tc_tensor *list, int n, char (*memory)[ROOM], tc_buf *bufs)
{
    for (int i = 0; i < n; i++) {
        CHECK(tc_nbytes(list[i]) <= ROOM);
        bufs[i] = (tc_buf){.data = memory[i], .n = tc_nbytes(list[i]), .dtype = -1};
    }
    return TC_BUFS_N(bufs, n);
}

/* As `with` compiles it, the file computes what is expected, twice in one workspace. */
static void check_with(const char *name, tc_tensors ins, tc_tensors outs, const char *with,
                       const char *flags)
{
    exported x = load(name, with, flags);
    if (x.run && x.prepare) {
        x.prepare((char *)x.workspace + 8);
        for (int round = 0; round < 2; round++) {
            memset(got, 0xee, sizeof(got));
            CHECK_EQ_INT(call(&x, ins.n, outs.n), 0);
            for (int i = 0; i < outs.n; i++) {
                CHECK_MSG(!memcmp(got[i], expected[i], (size_t)tc_nbytes(outs.items[i])),
                          "%s: output %d differs in run %d of %s", name, i, round, with);
            }
        }
    }
    unload(&x);
}

static void check_cxx(const char *name, const char *with, const char *flags)
{
    char command[512];
    snprintf(command, sizeof(command), "%s -x c++ -fsyntax-only " WARNINGS " %s %s", with, flags,
             path_of(name, ".c"));
    CHECK_MSG(!is_found(with) || !system(command), "%s", command);
}

/* The file `name`.c of these computes what a run does, and is C++ too. */
static void check_same(const char *name, tc_tensors ins, tc_tensors outs, const tc_options *options,
                       const char *flags)
{
    tc_program *f = NULL;
    tc_buf a[MOST], b[MOST];
    REQUIRE(ins.n <= MOST && outs.n <= MOST);
    for (int i = 0; i < ins.n; i++) {
        fill(ins.items[i], in[i], i);
    }
    CHECK_MSG(tc_export_c(ins, outs, options, path_of(name, ".c")) == TC_OK, "%s: %s", name,
              tc_error(outs.items[0]));
    CHECK_MSG(tc_compile_fn(ins, outs, NULL, &f) == TC_OK, "%s", tc_error(outs.items[0]));
    if (f) {
        tc_bufs from = bufs_of(ins.items, ins.n, in, a);
        CHECK_EQ_INT(tc_run(f, from, bufs_of(outs.items, outs.n, expected, b)), TC_OK);
        check_with(name, ins, outs, compiler(), flags);
        for (int level = 0; level < 2 && is_x86 && !*flags; level++) {
            char limit[40];
            snprintf(limit, sizeof(limit), "-O0 -DTC_LEVELS=%d", level);
            check_with(name, ins, outs, compiler(), limit);
        }
        if (is_found("clang")) {
            check_with(name, ins, outs, "clang", flags);
        }
        check_cxx(name, "g++", flags);
        check_cxx(name, "clang++", flags);
    }
    tc_program_free(f);
}

static tc_ctx *begin(void)
{
    tc_ctx *ctx = NULL;
    tc_options options = {.no_disk_cache = true};
    CHECK_EQ_INT(tc_ctx_make(&ctx, &options), TC_OK);
    return ctx;
}

/* ---- values ---- */

/* A layer with weights of every kind: borrowed, with strides, a parameter with its newest value, a
 * number; a part of it is computed once. */
static tc_tensor layer(tc_ctx *ctx, tc_tensor x)
{
    static float w[20 * 12], shift[12];
    for (int i = 0; i < 20 * 12; i++) {
        w[i] = (float)sin(i);
    }
    shift[3] = INFINITY;
    tc_tensor weight = tc_borrow(ctx, w, TC_F32, 20, 12);
    int64_t twelve = 12, back = -1;
    tc_tensor turned = tc_borrow_strided(ctx, shift + 11, TC_F32, 1, &twelve, &back);
    tc_tensor scale = tc_param_from(tc_full(ctx, 0.5, TC_F32, 12));
    float three[12];
    for (int i = 0; i < 12; i++) {
        three[i] = (float)i;
    }
    CHECK_EQ_INT(tc_param_write(scale, three, 12), TC_OK);
    tc_tensor y = tc_add(tc_matmul(x, tc_tanh(weight)), turned);
    return tc_softmax(tc_minimum(tc_mul(y, scale), 1.25), 1);
}

TEST(a_layer_with_its_weights)
{
    tc_ctx *ctx = begin();
    REQUIRE(ctx);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 9, 20), y = layer(ctx, x);
    check_same("layer", TC_TENSORS(x), TC_TENSORS(y, tc_sum(y, TC_AXES(0), false)), NULL, "");
    const char *text = read_text(path_of("layer", ".c"));
    CHECK_HAS(text, "int layer(const float *in0, float *out0, float *out1, void *workspace);");
    CHECK_HAS(text, "in0: x, f32 [9, 20]");
    CHECK(!strstr(text, "include <s") || !strstr(text, "include <m"));
    const char *prepare = strstr(text, "void layer_plain_prepare(void *workspace)\n{");
    CHECK(prepare && strstr(prepare, "tanh") && strstr(prepare, "tanh") < strstr(prepare, "int l"));
    tc_ctx_free(ctx);
}

TEST(weights_that_are_packed_once)
{
#if defined(__x86_64__)
    tc_ctx *ctx = begin();
    REQUIRE(ctx);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 16, 70);
    static float numbers[100 * 70];
    for (int i = 0; i < 100 * 70; i++) {
        numbers[i] = (float)(i % 37 - 18) / 16;
    }
    tc_tensor weight = tc_param(ctx, numbers, TC_F32, 100, 70);
    tc_options wide = {.vector_bits = 256};
    check_same("packed", TC_TENSORS(x), TC_TENSORS(tc_matmul(x, tc_transpose(weight, 0, 1))), &wide,
               "-mavx2 -mfma -mf16c");
    CHECK_HAS(read_text(path_of("packed", ".c")), "columns in panels");
    tc_ctx_free(ctx);
#else
    SKIP("vectors of another processor");
#endif
}

TEST(vectors_where_they_are_asked_for)
{
#if defined(__x86_64__)
    tc_ctx *ctx = begin();
    REQUIRE(ctx);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 9, 20);
    tc_options wide = {.vector_bits = 256};
    check_same("wide", TC_TENSORS(x), TC_TENSORS(layer(ctx, x)), &wide, "-mavx2 -mfma -mf16c");
    CHECK_HAS(read_text(path_of("wide", ".c")), "vector_size(32)");
    tc_ctx_free(ctx);
#else
    SKIP("vectors of another processor");
#endif
}

TEST(types_sorts_and_indices)
{
    tc_ctx *ctx = begin();
    REQUIRE(ctx);
    tc_tensor x = tc_input(ctx, "*/ x", TC_F64, 40), i = tc_input(ctx, "i", TC_I32, 5), order;
    tc_tensor table = tc_cast(tc_exp(tc_arange(ctx, 0, 8, 1, TC_F32)), TC_BF16), sorted;
    tc_sort(x, 0, true, &sorted, &order);
    tc_tensor ins[2] = {x, i}, outs[3] = {sorted, order, tc_gather(table, 0, i)};
    check_same("types", TC_TENSORS_N(ins, 2), TC_TENSORS_N(outs, 3), NULL, "");
    exported f = load("types", compiler(), "");
    int32_t far = 8;
    memcpy(in[1], &far, sizeof(far));
    if (f.prepare) {
        f.prepare((char *)f.workspace + 8);
        CHECK_EQ_INT(call(&f, 2, 3), 1); /* an index outside */
    }
    unload(&f);
    tc_ctx_free(ctx);
}

static tc_status goes_on(void *user, const tc_tensor *carry, tc_tensor *go)
{
    (void)user;
    *go = tc_lt(tc_sum(carry[0], TC_ALL, false), 50);
    return TC_OK;
}

static tc_status grow(void *user, const tc_tensor *carry, tc_tensor *next)
{
    (void)user;
    next[0] = tc_add(tc_mul(carry[0], 1.5), 1);
    next[1] = tc_add(carry[1], 1);
    return TC_OK;
}

/* A loop that stops by its values, in a step of one of a known number. */
static tc_status add_and_grow(void *user, const tc_tensor *carry, const tc_tensor *x,
                              tc_tensor *next, tc_tensor *y)
{
    tc_tensor last[2];
    tc_tensor init[2] = {tc_abs(tc_add(carry[0], x[0])), tc_full(user, 0, TC_I32)};
    tc_status status = tc_while(TC_TENSORS_N(init, 2), 0, goes_on, grow, NULL, last);
    next[0] = tc_mul(last[0], 0.125);
    y[0] = last[1];
    y[1] = tc_cumsum(last[0], 0);
    return status;
}

TEST(loops_within_loops)
{
    tc_ctx *ctx = begin();
    REQUIRE(ctx);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 7, 6), last, ys[2];
    CHECK_EQ_INT(tc_scan(TC_TENSORS(tc_full(ctx, 0, TC_F32, 6)), TC_TENSORS(x), 0, true,
                         add_and_grow, ctx, &last, ys, 2),
                 TC_OK);
    check_same("loops", TC_TENSORS(x), TC_TENSORS(last, ys[0], ys[1]), NULL, "");
    tc_ctx_free(ctx);
}

static tc_status decay(void *user, const tc_tensor *carry, const tc_tensor *x, tc_tensor *next,
                       tc_tensor *y)
{
    (void)user;
    next[0] = tc_add(tc_mul(carry[0], 0.5), tc_sqrt(tc_abs(x[0])));
    y[0] = next[0];
    return TC_OK;
}

/* With every kind of code: roots, functions of both widths, halves, factors, loops, random bits,
 * images, integers, indices. */
TEST(programs_of_all_kinds)
{
    enum { KINDS = 20 };
    tc_ctx *ctx = begin();
    REQUIRE(ctx);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 12, 20), d = tc_input(ctx, "d", TC_F64, 9, 9);
    tc_tensor h = tc_input(ctx, "h", TC_F16, 40), b = tc_input(ctx, "b", TC_BF16, 40);
    tc_tensor i = tc_input(ctx, "i", TC_I32, 37), u = tc_input(ctx, "u", TC_U8, 70);
    tc_tensor image = tc_input(ctx, "image", TC_F32, 2, 3, 10, 10);
    tc_tensor square = tc_matmul(x, tc_transpose(x, 0, 1)), p[3];
    tc_tensor spd = tc_add(tc_matmul(d, tc_transpose(d, 0, 1)),
                           tc_diag(tc_full(ctx, 30, TC_F64, 9), 0));
    struct {
        tc_tensor ins[MOST], outs[MOST];
    } kinds[KINDS] = {
        {{x}, {tc_sqrt(tc_abs(x)), tc_rsqrt(tc_add(tc_abs(x), 0.5))}},
        {{d}, {tc_sqrt(tc_abs(d)), tc_log(tc_abs(d)), tc_exp(d)}},
        {{x}, {tc_add(x, tc_randn(ctx, 7, TC_F32, 12, 20)), tc_dropout(x, 0.3, 5)}},
        {{d}, {tc_cholesky(spd, false)}},
        {{x}, {tc_erfinv(tc_mul(x, 0.4)), tc_lgamma(x), tc_digamma(x)}},
        {{x}, {tc_sin(x), tc_atan2(x, tc_tan(x)), tc_pow(tc_abs(x), x)}},
        {{x}, {tc_floor(x), tc_remainder(x, 0.7), tc_fmod(x, 0.3)}},
        {{d}, {tc_tanh(d), tc_fmod(d, 0.3), tc_fma(d, d, d)}},
        {{h, b}, {tc_sqrt(tc_abs(h)), tc_exp(b), tc_add(tc_cast(h, TC_F32), b)}},
        {{image},
         {tc_conv2d(image, tc_sin(tc_reshape(tc_arange(ctx, 0, 108, 1, TC_F32), 4, 3, 3, 3)),
                    TC_NONE, &(tc_conv){.padding = {1, 1}})}},
        {{image}, {tc_max_pool2d(image, &(tc_pool){.kernel = {2, 2}}), tc_cumsum(image, 3)}},
        {{x},
         {tc_layer_norm(x, TC_AXES(-1), TC_NONE, TC_NONE, 1e-5), tc_softmax(x, 1),
          tc_std(x, TC_AXES(1), 1, false)}},
        {{d}, {tc_fft(tc_complex(d, d), 0, 0, NULL)}},
        {{u, i}, {tc_add(u, 3), tc_mul(i, i), tc_cumsum(tc_div(i, 7), 0)}},
        {{x}, {square, tc_argmax(x, 1, false), tc_where(tc_gt(x, 0), x, 0)}},
        {{x, i}, {tc_index_select(x, 0, i), tc_gt(x, 0)}},
    };
    int n = 16;
    tc_eigh(spd, &p[0], &p[1]);
    kinds[n].ins[0] = d;
    kinds[n].outs[0] = p[0];
    kinds[n++].outs[1] = p[1];
    CHECK_EQ_INT(tc_scan(TC_TENSORS(tc_full(ctx, 0, TC_F32, 20)), TC_TENSORS(x), 0, false, decay,
                         NULL, &p[0], &p[1], 1),
                 TC_OK);
    kinds[n].ins[0] = x;
    kinds[n].outs[0] = p[0];
    kinds[n++].outs[1] = p[1];
    tc_sort(x, 1, true, &p[0], &p[1]);
    kinds[n].ins[0] = x;
    kinds[n].outs[0] = p[0];
    kinds[n++].outs[1] = p[1];
    CHECK_EQ_INT(tc_grad(tc_sum(tc_gelu(square), TC_ALL, false), &x, 1, &p[0]), TC_OK);
    kinds[n].ins[0] = x;
    kinds[n++].outs[0] = p[0];
    CHECK_EQ_INT(n, KINDS);
    for (int k = 0; k < n; k++) {
        char name[40];
        int n_in = 0, n_out = 0;
        while (n_in < MOST && kinds[k].ins[n_in].ctx) {
            n_in++;
        }
        while (n_out < MOST && kinds[k].outs[n_out].ctx) {
            n_out++;
        }
        snprintf(name, sizeof(name), "kind_%d", k);
        check_same(name, TC_TENSORS_N(kinds[k].ins, n_in), TC_TENSORS_N(kinds[k].outs, n_out), NULL,
                   "");
    }
    tc_ctx_free(ctx);
}

/* ---- other forms of the file ---- */

static void *whole_file(const char *path, size_t *n)
{
    FILE *file = fopen(path, "rb");
    void *bytes = malloc(1 << 20);
    *n = file && bytes ? fread(bytes, 1, 1 << 20, file) : 0;
    if (file) {
        fclose(file);
    }
    return bytes;
}

TEST(scalar_code_alone_and_code_for_each_processor)
{
    tc_ctx *ctx = begin();
    REQUIRE(ctx);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 9, 20), y = layer(ctx, x);
    check_same("scalar", TC_TENSORS(x), TC_TENSORS(y), &(tc_options){.vector_bits = -1}, "");
    CHECK(!strstr(read_text(path_of("scalar", ".c")), "vector_size"));
    CHECK(!strstr(read_text(path_of("scalar", ".c")), "TC_LEVELS"));
    check_same("levels", TC_TENSORS(x), TC_TENSORS(y), NULL, "");
    const char *text = read_text(path_of("levels", ".c"));
    CHECK_HAS(text, "vector_size(32)");
    CHECK_HAS(text, "vector_size(64)");
    CHECK_HAS(text, "__builtin_cpu_supports(\"avx512f\")");
    tc_ctx_free(ctx);
}

/* Compiler diagnostics of the file in that language, at most room - 1 bytes. */
static void said_of(const char *name, const char *with, char *said, size_t room)
{
    char command[512];
    snprintf(command, sizeof(command), "%s -Wall -c %s -o /dev/null 2>&1", with,
             path_of(name, ".c"));
    FILE *pipe = popen(command, "r");
    REQUIRE(pipe);
    said[fread(said, 1, room - 1, pipe)] = 0;
    pclose(pipe);
}

/* A row of 42 zeros is written by vectors that are wider than a register; the start values of an
 * optimizer are in the head. */
TEST(gcc_has_nothing_to_say_and_old_cxx_is_refused)
{
    char said[4000];
    tc_ctx *ctx = begin();
    REQUIRE(ctx);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 6), p = tc_named(tc_param(ctx, NULL, TC_F32, 6), "p");
    tc_tensor loss = tc_sum(tc_square(tc_sub(p, x)), TC_ALL, false), g, e[TC_EFFECTS(1) + 2];
    int n = 0;
    CHECK_EQ_INT(tc_grad(loss, &p, 1, &g), TC_OK);
    CHECK_EQ_INT(tc_adam(&p, &g, 1, 0.1, NULL, e, &n), TC_OK);
    e[n++] = tc_full(ctx, 0, TC_F32, 42);
    e[n++] = loss;
    REQUIRE(tc_export_c(TC_TENSORS(x), TC_TENSORS_N(e, n), NULL, path_of("quiet", ".c")) == TC_OK);
    const char *text = read_text(path_of("quiet", ".c"));
    CHECK_HAS(text, "p.beta1, f64 [], read and given its next value; 1 at the export\n");
    CHECK_HAS(text, "p.mean, f32 [6], read and given its next value; all 0 at the export\n");
    if (is_found("gcc")) {
        said_of("quiet", "gcc -std=c99", said, sizeof(said));
        CHECK_STR(said, "");
    }
    if (is_found("g++")) {
        said_of("quiet", "g++ -x c++ -std=gnu++11", said, sizeof(said));
        CHECK_STR(said, "");
        said_of("quiet", "g++ -x c++ -std=c++11", said, sizeof(said));
        CHECK_HAS(said, "hexadecimal floats: expected C99, C++17 or -std=gnu++11");
    }
    tc_ctx_free(ctx);
}

/* A C++ program that knows the header alone calls C that knows none. */
TEST(a_header)
{
    static const char user[] = "#include \"headed.h\"\nint main() {\n"
                               "    float x[4] = {1, 4, 9, 16}, y[4];\n"
                               "    static char w[headed_workspace + 1];\n"
                               "    headed_prepare(w);\n"
                               "    return headed(x, y, w) || (int)y[0] != 3 || (int)y[3] != 6;\n"
                               "}\n";
    char command[512];
    tc_ctx *ctx = begin();
    REQUIRE(ctx);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 4);
    CHECK_EQ_INT(tc_export_c_as(TC_TENSORS(x), TC_TENSORS(tc_add(tc_sqrt(x), 2)), NULL,
                                &(tc_export){.header = true}, path_of("headed", ".c")),
                 TC_OK);
    FILE *file = fopen(path_of("user", ".cpp"), "w");
    REQUIRE(file);
    fputs(user, file);
    fclose(file);
    static const char *const with[][2] = {{"g++", "gcc"}, {"clang++", "clang"}};
    for (int i = 0; i < 2; i++) {
        if (is_found(with[i][0]) && is_found(with[i][1])) {
            snprintf(command, sizeof(command),
                     "cd %s && %s -O1 " WARNINGS " -c headed.c && "
                     "%s -O1 " WARNINGS " user.cpp headed.o -o user && ./user",
                     folder, with[i][1], with[i][0]);
            CHECK_MSG(!system(command), "%s", command);
        }
    }
    snprintf(command, sizeof(command),
             "cd %s && cp user.cpp user.c && sed -i s/'()'/'(void)'/ "
             "user.c && %s -std=c99 " WARNINGS " user.c headed.c -o user && ./user",
             folder, compiler());
    CHECK_MSG(!system(command), "%s", command);
    tc_ctx_free(ctx);
}

TEST(weights_in_a_file_of_their_own)
{
    char command[512];
    tc_ctx *ctx = begin();
    REQUIRE(ctx);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 9, 20), y = layer(ctx, x);
    fill(x, in[0], 1);
    tc_program *f;
    tc_buf a[1], b[1];
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), NULL, &f) == TC_OK);
    CHECK_EQ_INT(tc_run(f, bufs_of(&x, 1, in, a), bufs_of(&y, 1, expected, b)), TC_OK);
    tc_program_free(f);
    CHECK_EQ_INT(tc_export_c_as(TC_TENSORS(x), TC_TENSORS(y), NULL,
                                &(tc_export){.header = true, .weights = true},
                                path_of("apart", ".c")),
                 TC_OK);
    CHECK(!strstr(read_text(path_of("apart", ".c")), "apart_data"));
    CHECK_HAS(read_text(path_of("apart", ".h")),
              "int apart_check(const void *weights, size_t bytes);");
    size_t n;
    char *weights = whole_file(path_of("apart", ".bin"), &n);
    CHECK(weights && n > 64 + 20 * 12 * 4 && n % 64 == 0 && !memcmp(weights, "tcweigh1", 8));
    snprintf(command, sizeof(command),
             "cd %s && %s -std=c99 -O1 " WARNINGS " -shared -fPIC "
             "apart.c -o apart.so",
             folder, compiler());
    CHECK_EQ_INT(system(command), 0);
    void *handle = dlopen(path_of("apart", ".so"), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(handle);
    int (*run)(const void *, void *, const void *, void *);
    void (*prepare)(const void *, void *);
    int (*check)(const void *, size_t);
    *(void **)&run = dlsym(handle, "apart");
    *(void **)&prepare = dlsym(handle, "apart_prepare");
    *(void **)&check = dlsym(handle, "apart_check");
    REQUIRE(run && prepare && check);
    CHECK(!check(weights, n) && check(weights, n - 64) && check(NULL, n));
    char *room = malloc(1 << 16);
    prepare(weights, room);
    CHECK_EQ_INT(run(in[0], got[0], weights, room), 0);
    CHECK(!memcmp(got[0], expected[0], (size_t)tc_nbytes(y)));
    weights[16] ^= 1; /* of another export */
    CHECK(check(weights, n) == 1);
    free(room);
    free(weights);
    dlclose(handle);
    tc_ctx_free(ctx);
}

enum { STEPS = 3, W = 20 * 12 };

/* Momentum on two parameters, one of them by rows that indices choose, and a count. */
TEST(training_steps)
{
    static float w[W], start_w[W], start_v[W], table[6 * 3], start_table[6 * 3];
    static float got_w[W], got_v[W], got_table[6 * 3], losses[2];
    int32_t count = 5, got_count = 5, rows[4] = {1, 5, 1, 0};
    tc_ctx *ctx = begin();
    REQUIRE(ctx);
    for (int i = 0; i < W; i++) {
        start_w[i] = (float)sin(i);
        start_v[i] = (float)cos(i) / 8;
        table[i % 18] = (float)i;
    }
    memcpy(start_table, table, sizeof(table));
    tc_tensor x = tc_input(ctx, "x", TC_F32, 9, 20), i = tc_input(ctx, "rows", TC_I32, 4), g[2];
    tc_tensor p = tc_named(tc_param(ctx, start_w, TC_F32, 20, 12), "w"), fixed = layer(ctx, x);
    tc_tensor v = tc_param(ctx, start_v, TC_F32, 20, 12), t = tc_param(ctx, table, TC_F32, 6, 3);
    tc_tensor n = tc_param(ctx, &count, TC_I32, 1);
    tc_tensor loss = tc_add(tc_mean(tc_square(tc_sub(tc_matmul(x, p), fixed)), TC_ALL, false),
                            tc_sum(tc_square(tc_index_select(t, 0, i)), TC_ALL, false));
    tc_tensor of[2] = {p, t};
    CHECK_EQ_INT(tc_grad(loss, of, 2, g), TC_OK);
    tc_tensor next_v = tc_add(tc_mul(v, 0.9), g[0]);
    tc_tensor outs[5] = {tc_assign(v, next_v), loss, tc_assign(p, tc_sub(p, tc_mul(next_v, 0.1))),
                         tc_assign(t, tc_sub(t, tc_mul(g[1], 0.01))), tc_assign(n, tc_add(n, 1))};
    tc_tensor ins[2] = {x, i};
    fill(x, in[0], 1);
    CHECK_MSG(!tc_export_c(TC_TENSORS_N(ins, 2), TC_TENSORS_N(outs, 5), NULL,
                           path_of("step", ".c")),
              "%s", tc_error(loss));
    const char *text = read_text(path_of("step", ".c"));
    CHECK_HAS(text, "int step(const float *in0, const int *in1, float *out0, float *param0, "
                    "float *param1, float *param2, int *param3, void *workspace);");
    CHECK_HAS(text, "param1: w, f32 [20, 12], read and given its next value\n");
    CHECK_HAS(text, "param3: i32 [1], read and given its next value; 5 at the export\n");
    tc_program *f;
    REQUIRE(tc_compile_fn(TC_TENSORS_N(ins, 2), TC_TENSORS_N(outs, 5), NULL, &f) == TC_OK);
    static const char *const with[] = {"", "-DTC_LEVELS=0", "-DTC_LEVELS=1", "clang"};
    for (int k = 0; k < STEPS; k++) {
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF((float *)(void *)in[0], 180), TC_BUF(rows, 4)),
                            TC_BUFS(TC_BUF(&losses[0], 1))),
                     TC_OK);
    }
    for (int k = 0; k < 4; k++) {
        bool is_clang = !strcmp(with[k], "clang");
        if (is_clang && !is_found("clang")) {
            continue;
        }
        exported e = load("step", is_clang ? "clang" : compiler(), is_clang ? "" : with[k]);
        int (*step)(const void *, const void *, float *, float *, float *, float *, int *, void *);
        *(void **)&step = *(void **)&e.run;
        REQUIRE(step && e.prepare);
        memcpy(got_w, start_w, sizeof(w));
        memcpy(got_v, start_v, sizeof(w));
        memcpy(got_table, start_table, sizeof(table));
        got_count = count;
        e.prepare((char *)e.workspace + 8);
        for (int s = 0; s < STEPS; s++) {
            CHECK_EQ_INT(step(in[0], rows, &losses[1], got_v, got_w, got_table, &got_count,
                              (char *)e.workspace + 8),
                         0);
        }
        CHECK(losses[0] == losses[1] && got_count == count + STEPS);
        CHECK_EQ_INT(tc_read(p, w, W), TC_OK);
        CHECK(!memcmp(w, got_w, sizeof(w)));
        CHECK_EQ_INT(tc_read(v, w, W), TC_OK);
        CHECK(!memcmp(w, got_v, sizeof(w)));
        CHECK_EQ_INT(tc_read(t, table, 18), TC_OK);
        CHECK(!memcmp(table, got_table, sizeof(table)));
        int32_t far[4] = {1, 6, 1, 0}; /* a run that fails leaves all as it was */
        CHECK_EQ_INT(step(in[0], far, &losses[1], got_v, got_w, got_table, &got_count,
                          (char *)e.workspace + 8),
                     1);
        CHECK(!memcmp(w, got_v, sizeof(w)) && !memcmp(table, got_table, sizeof(table)) &&
              got_count == count + STEPS);
        unload(&e);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Where no index can be outside, a new value may overwrite the old one. */
TEST(a_training_step_in_place)
{
    float start[40], value[40], read[40];
    tc_ctx *ctx = begin();
    REQUIRE(ctx);
    for (int k = 0; k < 40; k++) {
        start[k] = (float)k / 8;
    }
    tc_tensor x = tc_input(ctx, "x", TC_F32, 40), p = tc_param(ctx, start, TC_F32, 40);
    tc_tensor next = tc_assign(p, tc_add(tc_mul(p, 0.5), tc_sin(x)));
    fill(x, in[0], 3);
    CHECK_EQ_INT(tc_export_c(TC_TENSORS(x), TC_TENSORS(next), NULL, path_of("place", ".c")), TC_OK);
    CHECK_HAS(read_text(path_of("place", ".c")), "workspace: 0 bytes");
    tc_program *f;
    REQUIRE(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(next), NULL, &f) == TC_OK);
    exported e = load("place", compiler(), "");
    int (*step)(const void *, float *, void *);
    *(void **)&step = *(void **)&e.run;
    memcpy(value, start, sizeof(start));
    for (int k = 0; k < STEPS && step; k++) {
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF((float *)(void *)in[0], 40)), TC_BUFS()), TC_OK);
        CHECK_EQ_INT(step(in[0], value, e.workspace), 0);
    }
    CHECK_EQ_INT(tc_read(p, read, 40), TC_OK);
    CHECK(!memcmp(read, value, sizeof(read)));
    unload(&e);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Their kernels are the same, and not visible outside. */
TEST(two_files_in_one_program)
{
    char command[512];
    tc_ctx *ctx = begin();
    REQUIRE(ctx);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 9, 20), y = layer(ctx, x);
    CHECK_EQ_INT(tc_export_c(TC_TENSORS(x), TC_TENSORS(y), NULL, path_of("one", ".c")), TC_OK);
    CHECK_EQ_INT(tc_export_c(TC_TENSORS(x), TC_TENSORS(y), NULL, path_of("two", ".c")), TC_OK);
    snprintf(command, sizeof(command), "cd %s && %s -shared -fPIC one.c two.c -o both.so", folder,
             compiler());
    CHECK_EQ_INT(system(command), 0);
    snprintf(command, sizeof(command), "nm -u %s | grep -v -w -e w -e 0 -e __stack_chk_fail",
             path_of("both", ".so"));
    FILE *others = popen(command, "r");
    char line[200] = "";
    CHECK_MSG(others && !fgets(line, sizeof(line), others), "it needs '%s'", line);
    if (others) {
        pclose(others);
    }
    tc_ctx_free(ctx);
}

/* ---- mistakes ---- */

static void twice_run(void *user, const tc_custom_array *a, int n, tc_custom_array *result)
{
    (void)user;
    (void)a;
    (void)n;
    memset(result->data, 0, sizeof(float));
}

static void refuses(tc_tensors ins, tc_tensors outs, const char *path, tc_status why,
                    const char *text)
{
    struct stat st;
    CHECK_EQ_INT(tc_export_c(ins, outs, NULL, path), why);
    CHECK_HAS(tc_error(outs.items[0]), text);
    CHECK(!path || stat(path, &st));
}

TEST(what_cannot_be_exported)
{
    static const tc_custom_op twice = {.name = "twice", .run = twice_run};
    tc_ctx *ctx = begin();
    REQUIRE(ctx);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 4);
    tc_tensor y = tc_mul(x, 2);
    refuses(TC_TENSORS(x), TC_TENSORS(y), path_of("no-name", ".c"), TC_ERR_ARGUMENT,
            "test_export.c");
    refuses(TC_TENSORS(x), TC_TENSORS(y), path_of("net", ".h"), TC_ERR_ARGUMENT, "net.h");
    static const char *const taken[] = {"int",       "while",    "main",   "size_t", "_Bool",
                                        "_net",      "exp",      "expf",   "sqrtl",  "malloc",
                                        "typeof",    "NULL",     "conj",   "creal",  "cexpf",
                                        "class",     "template", "strdup", "bzero",  "isnan",
                                        "floorf64x", "finited32"};
    for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++) {
        refuses(TC_TENSORS(x), TC_TENSORS(y), path_of(taken[i], ".c"), TC_ERR_ARGUMENT,
                "no word of C or C++");
    }
    refuses(TC_TENSORS(x), TC_TENSORS(y), path_of("tc_k_mul", ".c"), TC_ERR_ARGUMENT,
            "does not have itself");
    CHECK_EQ_INT(tc_export_c(TC_TENSORS(x), TC_TENSORS(y), NULL, path_of("tc_net", ".c")), TC_OK);
    refuses(TC_TENSORS(x), TC_TENSORS(y), NULL, TC_ERR_ARGUMENT, "(NULL)");
    refuses(TC_TENSORS(x), TC_TENSORS(y), "/nowhere/net.c", TC_ERR_IO, "/nowhere/net.c");
    refuses(TC_TENSORS(y), TC_TENSORS(y), path_of("net", ".c"), TC_ERR_ARGUMENT, "placeholder");
    refuses(TC_TENSORS(x), TC_TENSORS(tc_custom(&twice, TC_TENSORS(x))), path_of("net", ".c"),
            TC_ERR_UNSUPPORTED, "a custom op");
    refuses(TC_TENSORS(x), TC_TENSORS(tc_add(x, tc_full(ctx, 0, TC_F32, 3))), path_of("net", ".c"),
            TC_ERR_SHAPE, "tc_add");
    tc_ctx_free(ctx);
}

TEST(the_folder_goes)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    CHECK_EQ_INT(system(command), 0);
}

TEST_MAIN
