/* tests/cpu/test_export_symbolic.c - tc_export_c of programs whose sizes are symbols: one file
 * serves every size, with the bits of tc_run. Needs a compiler. */
#define _GNU_SOURCE
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include <dlfcn.h>
#include <unistd.h>

#include "dynamic.h"

enum { BATCH_MOST = 4097, HEIGHT_MOST = 64 };

static char folder[] = "/tmp/tc-test-symbolic-XXXXXX";

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

static bool is_found(const char *program)
{
    char command[80];
    snprintf(command, sizeof(command), "command -v %s >/dev/null 2>&1", program);
    return !system(command);
}

typedef struct exported {
    void *handle, *run, *prepare, *workspace;
    bool has_height, height_first; /* which sizes it takes */
} exported;

static exported load(const char *name, const char *with, const char *flags)
{
    exported x = {0};
    char command[512], symbol[80], text[4096];
    snprintf(command, sizeof(command),
             "%s -std=c99 -O1 %s -Wall -Wextra -Wconversion -Werror "
             "-shared -fPIC -nostdlib -Wl,-z,defs %s -o %s -lgcc -lc",
             with, flags, path_of(name, ".c"), path_of(name, ".so"));
    unlink(path_of(name, ".so"));
    CHECK_MSG(!system(command), "%s", command);
    x.handle = dlopen(path_of(name, ".so"), RTLD_NOW | RTLD_LOCAL);
    CHECK_MSG(x.handle != NULL, "%s", dlerror());
    if (x.handle) {
        snprintf(symbol, sizeof(symbol), "%s_prepare", name);
        x.run = dlsym(x.handle, name);
        x.prepare = dlsym(x.handle, symbol);
        snprintf(symbol, sizeof(symbol), "%s_workspace", name);
        x.workspace = dlsym(x.handle, symbol);
    }
    FILE *file = fopen(path_of(name, ".c"), "r");
    text[file ? fread(text, 1, sizeof(text) - 1, file) : 0] = 0;
    if (file) {
        fclose(file);
    }
    x.has_height = strstr(text, ": height, 1 to 64\n") != NULL;
    x.height_first = strstr(text, "s0: height") != NULL;
    CHECK(x.run && x.prepare && x.workspace);
    return x;
}

static int64_t workspace_of(const exported *x, int64_t batch, int64_t height)
{
    if (!x->has_height) {
        return ((long long (*)(long long))x->workspace)(batch);
    }
    return x->height_first ? ((long long (*)(long long, long long))x->workspace)(height, batch)
                           : ((long long (*)(long long, long long))x->workspace)(batch, height);
}

static int run_at(const exported *x, int64_t batch, int64_t height, dyn_memory *m, void *workspace)
{
    typedef int (*one)(long long, const void *, const void *, const void *, void *, void *);
    typedef int (*two)(long long, long long, const void *, const void *, const void *, void *,
                       void *);
    if (!x->has_height) {
        return ((one)x->run)(batch, m->in[0], m->in[1], m->in[2], m->out, workspace);
    }
    return ((two)x->run)(x->height_first ? height : batch, x->height_first ? batch : height,
                         m->in[0], m->in[1], m->in[2], m->out, workspace);
}

/* All sizes, in one workspace that is large enough for each. */
static void check_with(const dyn_case *c, tc_program *f, const char *name, const char *with,
                       const char *flags)
{
    exported x = load(name, with, flags);
    if (!x.run || !x.prepare || !x.workspace) {
        return;
    }
    int64_t room = workspace_of(&x, BATCH_MOST, HEIGHT_MOST);
    char *workspace = malloc((size_t)(room < 0 ? 0 : room) + 1);
    CHECK(room >= 0 && workspace);
    ((void (*)(void *))x.prepare)(workspace);
    for (int i = 0; i < 7 && workspace; i++) {
        int64_t batch = dyn_sizes[i], height = c->has_height ? 1 + i * 29 % 64 : 1;
        batch = c->has_height && batch > 64 ? 64 : batch;
        int64_t bytes = workspace_of(&x, batch, height);
        char *own = malloc((size_t)(bytes < 0 ? 0 : bytes) + 1);
        dyn_memory got = dyn_fill(c, batch, height), expected = dyn_fill(c, batch, height);
        CHECK(bytes >= 0 && own);
        CHECK_EQ_INT(dyn_run(f, &expected), TC_OK);
        for (int round = 0; round < 2 && own; round++) { /* and in one of just that size */
            if (round) {
                ((void (*)(void *))x.prepare)(own);
            }
            memset(got.out, 0, sizeof(float) * (size_t)got.n_out);
            CHECK_EQ_INT(run_at(&x, batch, height, &got, round ? own : workspace), 0);
            CHECK_MSG(same_bits(TC_F32, got.out, expected.out, got.n_out + 1),
                      "%s at %lld, %lld differs in round %d of %s %s", c->name, (long long)batch,
                      (long long)height, round, with, flags);
        }
        free(own);
        dyn_drop(&got);
        dyn_drop(&expected);
    }
    CHECK(workspace_of(&x, BATCH_MOST + 1, 1) == -1 && workspace_of(&x, -1, 1) == -1);
    CHECK(!x.has_height || workspace_of(&x, 1, 0) == -1);
    dyn_memory none = dyn_fill(c, 1, 1);
    CHECK_EQ_INT(run_at(&x, -1, 1, &none, workspace), 2);
    CHECK_EQ_INT(run_at(&x, BATCH_MOST + 1, 1, &none, workspace), 2);
    dyn_drop(&none);
    free(workspace);
    dlclose(x.handle);
}

TEST(one_file_for_every_size)
{
    const char *cc = getenv("TC_TEST_CC");
    for (int k = 0; k < DYN_CASES; k++) {
        const dyn_case *c = &dyn_cases[k];
        tc_ctx *ctx = dyn_ctx("cpu", 1, NULL);
        tc_tensor in[DYN_INPUTS];
        char name[40];
        REQUIRE(ctx);
        snprintf(name, sizeof(name), "any_%d", k);
        tc_program *f = dyn_compile(ctx, c, TC_DIM("batch", 0, BATCH_MOST),
                                    TC_DIM("height", 1, HEIGHT_MOST));
        tc_tensor y = c->build(ctx, TC_DIM("batch", 0, BATCH_MOST),
                               TC_DIM("height", 1, HEIGHT_MOST), in);
        CHECK_MSG(!tc_export_c(TC_TENSORS_N(in, DYN_INPUTS), TC_TENSORS(y), NULL,
                               path_of(name, ".c")),
                  "%s: %s", c->name, tc_error(y));
        if (f) {
            check_with(c, f, name, cc ? cc : "cc", "");
            check_with(c, f, name, cc ? cc : "cc", "-O0 -DTC_LEVELS=0");
            check_with(c, f, name, cc ? cc : "cc", "-O0 -DTC_LEVELS=1");
            if (is_found("clang")) {
                check_with(c, f, name, "clang", "");
            }
        }
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

static tc_status step(void *user, const tc_tensor *carry, const tc_tensor *x, tc_tensor *next,
                      tc_tensor *y)
{
    next[0] = tc_tanh(tc_add(tc_mul(carry[0], 0.5), tc_matmul(x[0], *(const tc_tensor *)user)));
    y[0] = tc_sum(next[0], TC_ALL, false);
    return TC_OK;
}

/* A sequence of any length through weights that are packed once, in a file of their own, and a
 * parameter that counts: all forms at once, with a header. */
TEST(a_sequence_of_any_length)
{
    enum { MOST = 9, WIDE = 24 };
    static float w[WIDE * WIDE], x[MOST * WIDE], last[2][WIDE], sums[2][MOST];
    const char *cc = getenv("TC_TEST_CC");
    char command[512];
    tc_ctx *ctx = dyn_ctx("cpu", 1, NULL);
    REQUIRE(ctx);
    for (int i = 0; i < WIDE * WIDE; i++) {
        w[i] = (float)sin(i) / 4;
        x[i % (MOST * WIDE)] = (float)cos(i);
    }
    tc_tensor weight = tc_borrow(ctx, w, TC_F32, WIDE, WIDE);
    tc_tensor n = tc_param_from(tc_full(ctx, 3, TC_F32, 1)), end, each;
    tc_tensor in = tc_input(ctx, "x", TC_F32, TC_DIM("length", 0, MOST), WIDE);
    tc_tensor square = tc_matmul(weight, weight);
    CHECK_EQ_INT(tc_scan(TC_TENSORS(tc_full(ctx, 0.25, TC_F32, WIDE)), TC_TENSORS(in), 0, false,
                         step, &square, &end, &each, 1),
                 TC_OK);
    tc_tensors ins = TC_TENSORS(in), outs = TC_TENSORS(end, each, tc_assign(n, tc_mul(n, 2)));
    CHECK_MSG(!tc_export_c_as(ins, outs, NULL, &(tc_export){.header = true, .weights = true},
                              path_of("sequence", ".c")),
              "%s", tc_error(end));
    tc_program *f = NULL;
    CHECK_EQ_INT(tc_compile_fn(ins, outs, NULL, &f), TC_OK);
    snprintf(command, sizeof(command),
             "cd %s && %s -std=c99 -O1 -Wall -Wextra -Werror -shared "
             "-fPIC -include sequence.h sequence.c -o sequence.so",
             folder, cc ? cc : "cc");
    CHECK_EQ_INT(system(command), 0);
    void *handle = dlopen(path_of("sequence", ".so"), RTLD_NOW | RTLD_LOCAL);
    REQUIRE(handle && f);
    int (*run)(long long, const float *, float *, float *, float *, const void *, void *);
    void (*prepare)(const void *, void *);
    long long (*bytes)(long long);
    *(void **)&run = dlsym(handle, "sequence");
    *(void **)&prepare = dlsym(handle, "sequence_prepare");
    *(void **)&bytes = dlsym(handle, "sequence_workspace");
    REQUIRE(run && prepare && bytes);
    FILE *file = fopen(path_of("sequence", ".bin"), "rb");
    char *weights = malloc(1 << 16), *room = malloc((size_t)bytes(MOST) + 1);
    CHECK(file && fread(weights, 1, 1 << 16, file) > sizeof(w));
    fclose(file);
    prepare(weights, room);
    float count[2] = {3, 3};
    for (int length = 0; length <= MOST; length++) {
        memset(sums, 0, sizeof(sums));
        CHECK_EQ_INT(run(length, x, last[0], sums[0], count, weights, room), 0);
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, length * WIDE)),
                            TC_BUFS(TC_BUF(last[1], WIDE), TC_BUF(sums[1], length))),
                     TC_OK);
        CHECK(!memcmp(last[0], last[1], sizeof(last[0])));
        CHECK(!memcmp(sums[0], sums[1], sizeof(sums[0])));
        CHECK_EQ_INT(tc_read(n, count + 1, 1), TC_OK);
        CHECK_CLOSE(count[0], count[1], 0);
    }
    CHECK_EQ_INT(run(MOST + 1, x, last[0], sums[0], count, weights, room), 2);
    CHECK_CLOSE(count[0], count[1], 0);
    free(weights);
    free(room);
    dlclose(handle);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(the_folder_goes)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    CHECK_EQ_INT(system(command), 0);
}

TEST_MAIN
