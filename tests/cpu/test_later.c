/* tests/cpu/test_later.c - asynchronous compile: the interpreter serves until native code is there.
 * Compilers are scripts that wait, fail, or call the real one. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tc_test.h"

#define REQUIRE_OK(call)                                                                           \
    do {                                                                                           \
        tc_status status_of_call = (call);                                                         \
        REQUIRE(status_of_call == TC_OK);                                                          \
    } while (0)

enum { N = 513 };
static float in[N], out[N], before[N];

enum { COMPILERS = 32 };
static char compilers[COMPILERS][64];
static int n_compilers;

static void remove_compilers(void)
{
    for (int i = 0; i < n_compilers; i++) {
        unlink(compilers[i]);
    }
}

/* A compiler that waits so long, then does what `then` says with $cc, the real one. */
static const char *make_compiler(const char *seconds, const char *then)
{
    REQUIRE(n_compilers < COMPILERS);
    if (!n_compilers) {
        atexit(remove_compilers);
    }
    char *path = compilers[n_compilers];
    snprintf(path, sizeof(compilers[0]), "/tmp/tc-later-%d-%d.sh", (int)getpid(), n_compilers++);
    FILE *f = fopen(path, "w");
    REQUIRE(f);
    fprintf(f, "#!/bin/sh\ncase \"$*\" in *tc_0.c*) sleep %s;; esac\n%s\n", seconds, then);
    fclose(f);
    REQUIRE(chmod(path, 0700) == 0);
    return path;
}

static const char *real_compiler(void)
{
    static char text[200];
    const char *cc = getenv("TC_TEST_CC");
    snprintf(text, sizeof(text), "exec %s \"$@\"", cc && *cc ? cc : "cc");
    return text;
}

static tc_ctx *make_context(const char *cc)
{
    tc_options o = {.cc = cc,
                    .backend = "cpu",
                    .no_disk_cache = true,
                    .threads = 1,
                    .stance = TC_STANCE_LATER};
    tc_ctx *ctx;
    REQUIRE_OK(tc_ctx_make(&ctx, &o));
    return ctx;
}

/* Programs of different numbers are different programs. */
static tc_tensor make_graph(tc_ctx *ctx, int number)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, N - number);
    return tc_softmax(tc_add(tc_mul(tc_sin(x), 0.37), tc_erf(x)), -1);
}

static tc_status run(tc_program *f, int number)
{
    return tc_run(f, TC_BUFS(TC_BUF(in, N - number)), TC_BUFS(TC_BUF(out, N - number)));
}

static const char *backend_of(tc_program *f)
{
    tc_program_info info;
    REQUIRE_OK(tc_program_get_info(f, &info));
    return info.backend;
}

static void fill(void)
{
    for (int i = 0; i < N; i++) {
        in[i] = (float)(i * 37 % 101) * 0.07f - 3;
    }
}

TEST(runs_are_interpreted_until_native_code_is_there_with_the_same_bits)
{
    tc_ctx *ctx = make_context(make_compiler("0.5", real_compiler()));
    tc_program *f = NULL;
    tc_program_info info;
    fill();
    REQUIRE_OK(tc_compile(make_graph(ctx, 0), &f));
    tc_ctx_free(ctx); /* the compile needs none of it */
    REQUIRE_OK(tc_program_get_info(f, &info));
    CHECK(info.is_compiling && !info.may_differ && !tc_program_ready(f));
    CHECK_STR(info.backend, "interp");
    tc_call *call;
    REQUIRE_OK(tc_call_make(f, &call));
    REQUIRE_OK(run(f, 0));
    memcpy(before, out, sizeof(out));
    CHECK_EQ_INT(tc_program_wait(f, 0), TC_ERR_BUSY);
    CHECK_EQ_INT(tc_program_wait(f, -1), TC_OK);
    CHECK(tc_program_ready(f));
    CHECK_STR(backend_of(f), "cpu");
    memset(out, 0, sizeof(out));
    REQUIRE_OK(run(f, 0));
    CHECK(!memcmp(out, before, sizeof(out)));
    memset(out, 0, sizeof(out));
    REQUIRE_OK(tc_run_call(call, TC_BUFS(TC_BUF(in, N)), TC_BUFS(TC_BUF(out, N))));
    CHECK(!memcmp(out, before, sizeof(out)));
    CHECK(call->native != NULL);
    CHECK_EQ_INT(tc_run_call(call, TC_BUFS(TC_BUF(in, 3)), TC_BUFS(TC_BUF(out, N))), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(call), "test_later.c:");
    CHECK_HAS(tc_error(call), "given 3 elements");
    CHECK_EQ_INT(run(f, 1), TC_ERR_BUFFER);
    CHECK_HAS(tc_error(f), "test_later.c:");
    tc_program_free(f);
    tc_call_free(call);
    /* what was compiled is in memory for others */
    ctx = make_context("/no/compiler");
    REQUIRE_OK(tc_ctx_stance(ctx, TC_STANCE_FAIL));
    REQUIRE_OK(tc_compile(make_graph(ctx, 0), &f));
    CHECK_STR(backend_of(f), "cpu");
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* What tc_program_info says while f = a b in that dtype is interpreted. */
static bool may_differ(tc_dtype dtype, const tc_options *o)
{
    tc_ctx *ctx;
    tc_program *f = NULL;
    tc_program_info info = {0};
    tc_options later = *o;
    later.backend = "cpu";
    later.stance = TC_STANCE_LATER;
    later.no_disk_cache = true;
    later.cc = make_compiler("0", "false");
    REQUIRE_OK(tc_ctx_make(&ctx, &later));
    tc_tensor a = tc_input(ctx, "a", dtype, 64, 64), b = tc_input(ctx, "b", dtype, 64, 64);
    REQUIRE_OK(tc_compile(tc_matmul(a, b), &f));
    REQUIRE_OK(tc_program_get_info(f, &info));
    tc_program_cancel(f);
    tc_program_free(f);
    tc_ctx_free(ctx);
    return info.may_differ;
}

TEST(a_swap_that_may_change_bits_is_announced)
{
    const tc_options exact = {0}, fast = {.math = TC_MATH_FAST}, no_unit = {.matrix = -1};
    tc_options amx = {.machine = "x86-64-amx"}, same = amx;
    same.reproducible = true;
    CHECK(!may_differ(TC_F32, &exact));
    CHECK(may_differ(TC_F32, &fast));
    CHECK(!may_differ(TC_BF16, &no_unit));
    CHECK(may_differ(TC_BF16, &amx));
    CHECK(!may_differ(TC_F32, &amx));
    CHECK(!may_differ(TC_BF16, &same));
}

/* 240 nodes, so that a quick build comes first. */
static tc_tensor make_large_graph(tc_ctx *ctx)
{
    tc_tensor x = tc_input(ctx, "x", TC_F32, N), y = x;
    for (int i = 0; i < 60; i++) {
        y = tc_add(tc_mul(tc_sin(y), 0.3 + i), tc_div(x, 1.7 + i));
    }
    return tc_softmax(y, -1);
}

TEST(a_large_program_has_a_quick_build_first_with_the_same_bits)
{
    char path[64];
    tci_str gcc = {0};
    bool has_gcc = tci_os_find_program("gcc", &gcc);
    tci_str_free(&gcc);
    if (!has_gcc) {
        SKIP("there is no gcc");
    }
    snprintf(path, sizeof(path), "/tmp/tc-later-gcc-%d.sh", (int)getpid()); /* its kind by name */
    REQUIRE(rename(make_compiler("0", "case \"$*\" in *-Og*) ;; *) sleep 2;; esac\n"
                                      "exec gcc \"$@\""),
                   path) == 0);
    tc_ctx *ctx = make_context(path);
    tc_program *f = NULL;
    tc_call *call;
    tc_program_info info;
    fill();
    REQUIRE_OK(tc_compile(make_large_graph(ctx), &f));
    REQUIRE_OK(tc_call_make(f, &call));
    CHECK_STR(backend_of(f), "interp");
    REQUIRE_OK(run(f, 0));
    memcpy(before, out, sizeof(out));
    REQUIRE_OK(tc_run_call(call, TC_BUFS(TC_BUF(in, N)), TC_BUFS(TC_BUF(out, N))));
    for (int i = 0; i < 3000 && !strcmp(backend_of(f), "interp"); i++) {
        usleep(10000);
    }
    CHECK_STR(backend_of(f), "cpu");
    const tc_program *quick = __atomic_load_n(&f->later->native, __ATOMIC_ACQUIRE);
    if (tc_program_ready(f)) {
        unlink(path);
        SKIP("the machine is so slow that the quick build was not seen");
    }
    REQUIRE_OK(tc_program_get_info(f, &info));
    CHECK_EQ_INT(tc_program_wait(f, 0), TC_ERR_BUSY);
    memset(out, 0, sizeof(out));
    REQUIRE_OK(run(f, 0));
    CHECK(!memcmp(out, before, sizeof(out)));
    memset(out, 0, sizeof(out));
    REQUIRE_OK(tc_run_call(call, TC_BUFS(TC_BUF(in, N)), TC_BUFS(TC_BUF(out, N))));
    CHECK(!memcmp(out, before, sizeof(out)) && call->native && call->native->program == quick);
    CHECK_EQ_INT(tc_program_wait(f, -1), TC_OK);
    CHECK(f->later->native != quick && f->later->quick == quick);
    memset(out, 0, sizeof(out));
    REQUIRE_OK(run(f, 0));
    CHECK(!memcmp(out, before, sizeof(out)));
    REQUIRE_OK(tc_run_call(call, TC_BUFS(TC_BUF(in, N)), TC_BUFS(TC_BUF(out, N))));
    CHECK(!memcmp(out, before, sizeof(out)) && call->native->program == f->later->native);
    unlink(path);
    tc_call_free(call);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(programs_of_one_key_share_a_compile)
{
    tc_ctx *ctx = make_context(make_compiler("0.3", real_compiler()));
    tc_program *f[4];
    tc_stats first, last;
    tc_stats(ctx, &first);
    for (int i = 0; i < 4; i++) {
        REQUIRE_OK(tc_compile(make_graph(ctx, 1), &f[i]));
    }
    tc_program_free(f[3]); /* no thread waits for that one */
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(tc_program_wait(f[i], -1), TC_OK);
        CHECK_STR(backend_of(f[i]), "cpu");
        CHECK_EQ_INT(run(f[i], 1), TC_OK);
        tc_program_free(f[i]);
    }
    tc_stats(ctx, &last);
    CHECK_EQ_INT(last.kernels_built - first.kernels_built, 1);
    tc_ctx_free(ctx);
}

TEST(a_compile_that_fails_leaves_the_interpreter)
{
    tc_ctx *ctx = make_context(make_compiler("0", "echo no luck >&2; exit 1"));
    tc_program *f = NULL;
    REQUIRE_OK(tc_compile(make_graph(ctx, 2), &f));
    CHECK_EQ_INT(tc_program_wait(f, -1), TC_ERR_COMPILER);
    CHECK_HAS(tc_error(f), "no luck");
    CHECK(tc_program_ready(f));
    CHECK_EQ_INT(run(f, 2), TC_OK);
    CHECK_STR(backend_of(f), "interp");
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Output of the library to stderr between these two calls. */
static int stderr_before;
static FILE *stderr_now;
static void catch_stderr(void)
{
    fflush(stderr);
    stderr_now = tmpfile();
    REQUIRE(stderr_now && (stderr_before = dup(2)) >= 0 && dup2(fileno(stderr_now), 2) == 2);
}

static const char *caught_stderr(void)
{
    static char text[1 << 14];
    fflush(stderr);
    dup2(stderr_before, 2);
    close(stderr_before);
    rewind(stderr_now);
    text[fread(text, 1, sizeof(text) - 1, stderr_now)] = 0;
    fclose(stderr_now);
    return text;
}

TEST(a_compile_that_fails_is_said_once)
{
    tc_ctx *ctx = make_context(make_compiler("0", "echo no luck >&2; exit 1"));
    tc_program *f = NULL;
    tc_shutdown(); /* other compiles have been said */
    setenv("TC_LOG", "compile", 1);
    catch_stderr();
    tc_status status = tc_compile(make_graph(ctx, 12), &f);
    for (int i = 0; i < 3 && !status; i++) {
        tc_program_wait(f, -1);
        status = run(f, 12);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    tc_shutdown(); /* waits for the thread that says it */
    const char *text = caught_stderr();
    unsetenv("TC_LOG");
    CHECK_EQ_INT(status, TC_OK);
    const char *said = strstr(text, "the interpreter goes on");
    CHECK_MSG(said && !strstr(said + 1, "the interpreter goes on"), "it says: %s", text);
    CHECK_HAS(text, "no luck");
}

TEST(a_compile_can_be_cancelled)
{
    tc_ctx *ctx = make_context(make_compiler("60", real_compiler()));
    tc_program *f = NULL, *queued = NULL;
    REQUIRE_OK(tc_compile(make_graph(ctx, 3), &f));
    REQUIRE_OK(tc_compile(make_graph(ctx, 4), &queued));
    usleep(100000);
    tc_program_cancel(queued);
    CHECK_EQ_INT(tc_program_wait(queued, -1), TC_ERR_CANCELLED);
    tc_program_cancel(f);
    CHECK_EQ_INT(tc_program_wait(f, -1), TC_ERR_CANCELLED);
    CHECK_HAS(tc_error(f), "cancelled");
    CHECK_EQ_INT(run(f, 3), TC_OK);
    tc_program_cancel(f);
    tc_program_cancel(NULL);
    CHECK_EQ_INT(tc_program_wait(NULL, 0), TC_ERR_ARGUMENT);
    tc_program_free(f);
    tc_program_free(queued);
    /* a shutdown does not wait for a compiler either */
    REQUIRE_OK(tc_compile(make_graph(ctx, 5), &f));
    tc_program_free(f);
    tc_ctx_free(ctx);
    tc_shutdown();
}

TEST(parameters_are_those_of_both_forms)
{
    tc_ctx *ctx = make_context(make_compiler("0.3", real_compiler()));
    tc_program *f = NULL;
    float start[3] = {1, 2, 3}, step[3] = {1, 1, 1}, sum[3], value[3];
    tc_tensor p = tc_param(ctx, start, TC_F32, 3), x = tc_input(ctx, "x", TC_F32, 3);
    tc_tensor next = tc_add(p, tc_mul(x, 2));
    tc_tensor outputs[2] = {tc_exp(tc_neg(next)), tc_assign(p, next)};
    REQUIRE_OK(tc_compile_fn(TC_TENSORS(x), TC_TENSORS_N(outputs, 2), NULL, &f));
    for (int i = 0; i < 3; i++) {
        REQUIRE_OK(tc_run(f, TC_BUFS(TC_BUF(step, 3)), TC_BUFS(TC_BUF(sum, 3))));
        if (i == 1) {
            CHECK_STR(backend_of(f), "interp");
            CHECK_EQ_INT(tc_program_wait(f, -1), TC_OK);
        }
    }
    REQUIRE_OK(tc_read(p, value, 3));
    CHECK(value[0] == 7 && value[2] == 9);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(symbolic_sizes_are_served_by_both_forms)
{
    tc_ctx *ctx = make_context(make_compiler("0.3", real_compiler()));
    tc_program *f = NULL;
    tc_tensor x = tc_input(ctx, "x", TC_F32, TC_DIM("later_rows", 0, 100), 4);
    REQUIRE_OK(tc_compile(tc_softmax(tc_mul(x, 0.3), -1), &f));
    fill();
    for (int rows = 1; rows < 60; rows += 7) {
        REQUIRE_OK(tc_run(f, TC_BUFS(TC_BUF(in, rows * 4)), TC_BUFS(TC_BUF(before, rows * 4))));
    }
    CHECK_EQ_INT(tc_program_wait(f, -1), TC_OK);
    REQUIRE_OK(tc_run(f, TC_BUFS(TC_BUF(in, 57 * 4)), TC_BUFS(TC_BUF(out, 57 * 4))));
    CHECK(!memcmp(out, before, 57 * 4 * sizeof(float)));
    CHECK_STR(backend_of(f), "cpu");
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(lazy_values_do_not_wait_either)
{
    tc_ctx *ctx = make_context(make_compiler("0.3", real_compiler()));
    float value[3];
    for (int i = 0; i < 20; i++) {
        tc_tensor t = tc_atan(tc_mul(tc_arange(ctx, 0, 3, 1, TC_F32), (float)i + 0.25f));
        REQUIRE_OK(tc_read(t, value, 3));
        CHECK_CLOSE(value[2], atan(2 * (i + 0.25)), 1e-6);
    }
    tc_ctx_free(ctx);
    tc_shutdown();
}

/* ---- progress ---- */

typedef struct told {
    int n[TC_PHASE_FAILED + 1];
    tc_progress last;
    bool in_order;
} told;

static void tell(void *user, const tc_progress *p)
{
    told *t = user;
    t->in_order = t->in_order && p->phase >= t->last.phase && p->files_done >= t->last.files_done;
    t->n[p->phase]++;
    t->last = *p;
}

TEST(a_callback_is_told_how_far_a_compile_is)
{
    for (int fails = 0; fails < 2; fails++) {
        told t = {.in_order = true};
        tc_options o = {.cc = make_compiler("0", fails ? "exit 1" : real_compiler()),
                        .backend = "cpu",
                        .no_disk_cache = true,
                        .stance = TC_STANCE_LATER,
                        .progress = tell,
                        .progress_user = &t};
        tc_ctx *ctx;
        tc_program *f = NULL;
        REQUIRE_OK(tc_ctx_make(&ctx, &o));
        REQUIRE_OK(tc_compile(make_graph(ctx, 8 + fails), &f));
        CHECK_EQ_INT(tc_program_wait(f, -1), fails ? TC_ERR_COMPILER : TC_OK);
        CHECK(t.in_order && t.last.files == 1 && t.last.files_done == 1 && t.last.programs == 1);
        CHECK(t.n[TC_PHASE_PLAN] == 1 && t.n[TC_PHASE_SOURCE] == 1 && t.n[TC_PHASE_COMPILE] == 2);
        CHECK_EQ_INT(t.n[fails ? TC_PHASE_FAILED : TC_PHASE_DONE], 1);
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

/* ---- the host's threads ---- */

enum { ITEMS = 8 };
typedef struct host {
    bool refuses;
    int n;
    void (*work[ITEMS])(void *item);
    void *items[ITEMS];
} host;

static bool take_item(void *user, void (*work)(void *item), void *item)
{
    host *h = user;
    if (h->refuses) {
        return false;
    }
    h->work[h->n] = work;
    h->items[h->n++] = item;
    return true;
}

typedef struct worker {
    pthread_t thread;
    host *h;
    int i;
} worker;

static void *do_item(void *arg)
{
    worker *w = arg;
    w->h->work[w->i](w->h->items[w->i]);
    return NULL;
}

static tc_ctx *make_hosted(host *h, const char *cc)
{
    tc_options o = {.cc = cc,
                    .backend = "cpu",
                    .no_disk_cache = true,
                    .threads = 1,
                    .stance = TC_STANCE_LATER,
                    .background = take_item,
                    .background_user = h};
    tc_ctx *ctx;
    REQUIRE_OK(tc_ctx_make(&ctx, &o));
    return ctx;
}

TEST(threads_of_the_host_compile_side_by_side)
{
    host h = {0};
    tc_ctx *ctx = make_hosted(&h, make_compiler("0.2", real_compiler()));
    tc_program *f[3];
    worker workers[3];
    static float first[3][N];
    fill();
    for (int i = 0; i < 3; i++) {
        REQUIRE_OK(tc_compile(make_graph(ctx, 40 + i), &f[i]));
        REQUIRE_OK(run(f[i], 40 + i));
        memcpy(first[i], out, sizeof(out));
    }
    tc_program *same;
    REQUIRE_OK(tc_compile(make_graph(ctx, 40), &same)); /* shares the item of its key */
    CHECK_EQ_INT(h.n, 3);
    CHECK_EQ_INT(tc_program_wait(f[0], 100), TC_ERR_BUSY); /* no thread takes it */
    for (int i = 0; i < 3; i++) {
        workers[i] = (worker){.h = &h, .i = i};
        REQUIRE(!pthread_create(&workers[i].thread, NULL, do_item, &workers[i]));
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(workers[i].thread, NULL);
        CHECK(tc_program_ready(f[i]));
        CHECK_STR(backend_of(f[i]), "cpu");
        memset(out, 0, sizeof(out));
        REQUIRE_OK(run(f[i], 40 + i));
        CHECK(!memcmp(out, first[i], sizeof(float) * (size_t)(N - 40 - i)));
        tc_program_free(f[i]);
    }
    CHECK_STR(backend_of(same), "cpu");
    tc_program_free(same);
    tc_ctx_free(ctx);
}

TEST(what_the_host_refuses_is_compiled_by_the_thread_of_tc)
{
    host h = {.refuses = true};
    tc_ctx *ctx = make_hosted(&h, make_compiler("0", real_compiler()));
    tc_program *f;
    REQUIRE_OK(tc_compile(make_graph(ctx, 44), &f));
    CHECK_EQ_INT(tc_program_wait(f, -1), TC_OK);
    CHECK_STR(backend_of(f), "cpu");
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(items_of_cancelled_compiles_do_nothing)
{
    host h = {0};
    tc_ctx *ctx = make_hosted(&h, "/no/such/compiler");
    tc_program *f, *g;
    REQUIRE_OK(tc_compile(make_graph(ctx, 45), &f));
    REQUIRE_OK(tc_compile(make_graph(ctx, 46), &g));
    CHECK_EQ_INT(h.n, 2);
    tc_program_cancel(f);
    CHECK_EQ_INT(tc_program_wait(f, 0), TC_ERR_CANCELLED);
    h.work[0](h.items[0]);
    CHECK_EQ_INT(tc_program_wait(g, 0), TC_ERR_BUSY);
    tc_shutdown();
    CHECK_EQ_INT(tc_program_wait(g, 0), TC_ERR_CANCELLED);
    h.work[1](h.items[1]);
    CHECK_STR(backend_of(g), "interp");
    tc_program_free(f);
    tc_program_free(g);
    tc_ctx_free(ctx);
}

TEST(a_compile_has_as_many_compilers_as_the_options_say)
{
    enum { PROGRAMS = 40 };
    for (int compilers = 0; compilers < 2; compilers++) {
        told t = {.in_order = true};
        tc_options o = {.cc = make_compiler("0", "exit 1"),
                        .backend = "cpu",
                        .no_disk_cache = true,
                        .fallback = TC_FALLBACK_REFUSE,
                        .compilers = compilers,
                        .progress = tell,
                        .progress_user = &t};
        tc_ctx *ctx;
        tc_job jobs[PROGRAMS] = {{{NULL, 0}, {NULL, 0}, NULL, TC_OK}};
        tc_program *f[PROGRAMS];
        tc_tensor x[PROGRAMS], y[PROGRAMS];
        REQUIRE_OK(tc_ctx_make(&ctx, &o));
        for (int i = 0; i < PROGRAMS; i++) {
            x[i] = tc_input(ctx, "x", TC_F32, 60 + i);
            y[i] = tc_softmax(tc_add(tc_mul(tc_sin(x[i]), 0.37), tc_erf(x[i])), -1);
            jobs[i] = (tc_job){{&x[i], 1}, {&y[i], 1}, &f[i], TC_OK};
        }
        CHECK_EQ_INT(tc_compile_many(jobs, PROGRAMS, NULL), TC_ERR_COMPILER);
        CHECK(compilers ? t.last.files == 1 : t.last.files > 1 || tci_os_cpu_count() == 1);
        tc_ctx_free(ctx);
    }
}

/* The most processes at once in a file where each begins with '+' and ends with '-'. */
static int most_at_once(const char *path)
{
    FILE *f = fopen(path, "r");
    int now = 0, most = 0;
    REQUIRE(f != NULL);
    for (int c; (c = fgetc(f)) != EOF;) {
        now += (c == '+') - (c == '-');
        most = now > most ? now : most;
    }
    fclose(f);
    CHECK_EQ_INT(now, 0);
    return most;
}

TEST(no_more_compilers_work_at_once_than_the_options_say)
{
    enum { PROGRAMS = 40 };
    char path[64], script[400];
    snprintf(path, sizeof(path), "/tmp/tc-later-%d.count", (int)getpid());
    snprintf(script, sizeof(script), "echo + >>%s; sleep 0.3; echo - >>%s; exit 1", path, path);
    for (int compilers = 1; compilers <= 3; compilers++) {
        tc_options o = {.cc = make_compiler("0", script),
                        .backend = "cpu",
                        .no_disk_cache = true,
                        .fallback = TC_FALLBACK_REFUSE,
                        .compilers = compilers};
        tc_ctx *ctx;
        tc_job jobs[PROGRAMS] = {{{NULL, 0}, {NULL, 0}, NULL, TC_OK}};
        tc_program *f[PROGRAMS];
        tc_tensor x[PROGRAMS], y[PROGRAMS];
        REQUIRE_OK(tc_ctx_make(&ctx, &o));
        for (int i = 0; i < PROGRAMS; i++) {
            x[i] = tc_input(ctx, "x", TC_F32, 130 + i);
            y[i] = tc_softmax(tc_add(tc_mul(tc_sin(x[i]), 0.37), tc_erf(x[i])), -1);
            jobs[i] = (tc_job){{&x[i], 1}, {&y[i], 1}, &f[i], TC_OK};
        }
        CHECK_EQ_INT(tc_compile_many(jobs, PROGRAMS, NULL), TC_ERR_COMPILER);
        int most = most_at_once(path);
        CHECK_MSG(most >= 1 && most <= compilers, "%d compilers at once, expected at most %d", most,
                  compilers);
        unlink(path);
        tc_ctx_free(ctx);
    }
}

/* ---- bits ---- */

static void fill_random(float *p, int n)
{
    for (int i = 0; i < n; i++) {
        p[i] = (float)(2 * tct_random_unit() - 1);
    }
}

enum { CHANNELS = 64, ROWS = 28, COLUMNS = 27, PLACES = ROWS * COLUMNS, SIDE = 96 };

/* Compiles y of a reproducible context and runs it before and after the swap: the same bits. */
static void check_both_forms(tc_ctx *ctx, tc_tensor y, tc_buf a, tc_buf b, int64_t n)
{
    tc_program *f = NULL;
    tc_program_info info;
    float *results[2];
    REQUIRE_OK(tc_compile(y, &f));
    REQUIRE_OK(tc_program_get_info(f, &info));
    CHECK(info.is_compiling && !info.may_differ);
    for (int i = 0; i < 2; i++) {
        results[i] = malloc((size_t)n * sizeof(float));
        CHECK_STR(backend_of(f), i ? "cpu" : "interp");
        REQUIRE_OK(tc_run(f, TC_BUFS(a, b), TC_BUFS(TC_BUF(results[i], n))));
        CHECK_EQ_INT(tc_program_wait(f, -1), TC_OK);
    }
    int differ = 0;
    for (int64_t i = 0; i < n; i++) {
        differ += memcmp(&results[0][i], &results[1][i], sizeof(float)) != 0;
    }
    CHECK_MSG(!differ, "%d of %d elements differ", differ, (int)n);
    free(results[0]);
    free(results[1]);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

static tc_ctx *make_reproducible(void)
{
    tc_options o = {.cc = make_compiler("1", real_compiler()),
                    .backend = "cpu",
                    .no_disk_cache = true,
                    .threads = 1,
                    .math = TC_MATH_FAST,
                    .reproducible = true,
                    .stance = TC_STANCE_LATER};
    tc_ctx *ctx;
    REQUIRE_OK(tc_ctx_make(&ctx, &o));
    return ctx;
}

/* tests/cpu/test_winograd.c shows that such a convolution is Winograd's otherwise. */
TEST(a_reproducible_convolution_has_the_same_bits_before_and_after_the_swap)
{
    static float image[CHANNELS * PLACES], filter[CHANNELS * CHANNELS * 9];
    tc_ctx *ctx = make_reproducible();
    fill_random(image, CHANNELS * PLACES);
    fill_random(filter, CHANNELS * CHANNELS * 9);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 1, CHANNELS, ROWS, COLUMNS);
    tc_tensor w = tc_borrow(ctx, filter, TC_F32, CHANNELS, CHANNELS, 3, 3);
    tc_tensor scale = tc_input(ctx, "scale", TC_F32, 1);
    tc_tensor y = tc_conv2d(x, w, TC_NONE, &(tc_conv){.padding = {1, 1}});
    float one[1] = {1};
    check_both_forms(ctx, tc_mul(y, scale), TC_BUF(image, CHANNELS * PLACES), TC_BUF(one, 1),
                     CHANNELS * PLACES);
}

/* Where there is a matrix unit for bf16, it adds in an order of its own otherwise. */
TEST(a_reproducible_product_of_bf16_has_the_same_bits_before_and_after_the_swap)
{
    static uint16_t a[SIDE * SIDE], b[SIDE * SIDE];
    static float values[2][SIDE * SIDE];
    tc_ctx *ctx = make_reproducible();
    fill_random(values[0], SIDE * SIDE);
    fill_random(values[1], SIDE * SIDE);
    for (int i = 0; i < SIDE * SIDE; i++) { /* the upper half of an f32 is a bf16 */
        uint32_t bits[2];
        memcpy(&bits[0], &values[0][i], 4);
        memcpy(&bits[1], &values[1][i], 4);
        a[i] = (uint16_t)(bits[0] >> 16);
        b[i] = (uint16_t)(bits[1] >> 16);
    }
    tc_tensor x = tc_input(ctx, "a", TC_BF16, SIDE, SIDE);
    tc_tensor y = tc_input(ctx, "b", TC_BF16, SIDE, SIDE);
    void *memory[2] = {a, b};
    check_both_forms(ctx, tc_cast(tc_matmul(x, y), TC_F32), TC_BUF(memory[0], sizeof(a)),
                     TC_BUF(memory[1], sizeof(b)), SIDE * SIDE);
}

/* ---- memory ---- */

TEST(memory_that_runs_out_leaves_an_interpreted_program)
{
    tc_options o = {.cc = "/no/such/compiler",
                    .backend = "cpu",
                    .no_disk_cache = true,
                    .threads = 1,
                    .stance = TC_STANCE_LATER};
    for (long at = 1, over = 0; !over; at += 1 + at / 16) {
        long live = tci_test_alloc_live;
        tc_ctx *ctx;
        tc_program *f = NULL;
        REQUIRE_OK(tc_ctx_make(&ctx, &o));
        tc_tensor y = make_graph(ctx, 10);
        tci_test_alloc_count = 0;
        tci_test_alloc_fail_at = at;
        tc_status status = tc_compile(y, &f);
        over = tci_test_alloc_count < at;
        tc_program_wait(f, -1);
        tci_test_alloc_fail_at = 0;
        CHECK_MSG(!status || status == TC_ERR_MEMORY, "request %ld: %s", at, tc_error(ctx));
        CHECK(status || run(f, 10) == TC_OK);
        tc_program_free(f);
        tc_ctx_free(ctx);
        tc_shutdown();
        CHECK_MSG(tci_test_alloc_live <= live + 2, "request %ld: %ld blocks, expected %ld", at,
                  (long)tci_test_alloc_live, live);
    }
}

/* ---- threads ---- */

static int is_over;

static void *run_all_the_time(void *arg)
{
    float x[N], y[N], expected[N];
    long wrong = 0;
    memcpy(x, in, sizeof(x));
    memcpy(expected, before, sizeof(expected));
    while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED)) {
        wrong += tc_run(arg, TC_BUFS(TC_BUF(x, N - 6)), TC_BUFS(TC_BUF(y, N - 6))) != TC_OK;
        wrong += memcmp(y, expected, sizeof(float) * (N - 6)) != 0;
        usleep(50); /* a busy machine would never get to the compiler */
    }
    return (void *)(intptr_t)wrong;
}

TEST(the_swap_is_between_two_runs)
{
    tc_ctx *ctx = make_context(make_compiler("0.3", real_compiler()));
    tc_program *f = NULL;
    pthread_t threads[3];
    fill();
    REQUIRE_OK(tc_compile(make_graph(ctx, 6), &f));
    REQUIRE_OK(run(f, 6));
    memcpy(before, out, sizeof(out));
    is_over = 0;
    for (int i = 0; i < 3; i++) {
        REQUIRE(pthread_create(&threads[i], NULL, run_all_the_time, f) == 0);
    }
    CHECK_EQ_INT(tc_program_wait(f, -1), TC_OK);
    usleep(20000);
    __atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        CHECK_EQ_INT((intptr_t)wrong, 0);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

static tc_status build_row(tc_ctx *ctx, const tc_tensor *x, int n_in, tc_tensor *y, int n_out,
                           void *user)
{
    (void)ctx, (void)n_in, (void)n_out, (void)user;
    y[0] = tc_softmax(tc_tanh(tc_mul(x[0], 0.41)), -1);
    return TC_OK;
}

TEST(functions_that_specialize_themselves_do_not_wait)
{
    tc_options o = {.cc = make_compiler("0.3", real_compiler()),
                    .backend = "cpu",
                    .threads = 1,
                    .no_disk_cache = true,
                    .stance = TC_STANCE_LATER};
    tc_jit *fn;
    REQUIRE_OK(tc_jit_make(build_row, NULL, (&(tc_jit_options){.options = &o}), &fn));
    fill();
    tc_jit_variant list[2] = {{.interpreted = true}, {.interpreted = true}};
    int n = 0, runs = 0;
    for (; runs < 3000 && (list[0].interpreted || list[1].interpreted); runs++) {
        int rows = 1 + runs % 9;
        REQUIRE_OK(
            tc_jit_run(fn, NULL, TC_BUFS(TC_BUF_ND(in, rows, 7)), TC_BUFS(TC_BUF(out, rows * 7))));
        n = tc_jit_list(fn, list, 2);
        CHECK(runs == 0 || n == 2);
        usleep(1000);
    }
    CHECK_MSG(runs > 50 && runs < 3000, "native after %d runs", runs);
    CHECK_EQ_INT(n, 2);
    tc_jit_free(fn);
    tc_shutdown();
}

TEST_MAIN
