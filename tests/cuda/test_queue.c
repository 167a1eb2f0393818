/* tests/cuda/test_queue.c - queues, events, streams of the host's, and several devices, where there
 * is a GPU: what test_driver_queues.c asks of the calls, here of the machine. */
#define TC_DYNAMIC_SHAPES
#define TC_CUDA
#include "inside.h"

#include "../async.h"

#include <dlfcn.h>

/* The calls of the driver that a host makes itself. */
typedef struct host_driver {
    int (*ctx_create)(void **, void *, unsigned, int); /* since CUDA 13; else NULL */
    int (*ctx_create_old)(void **, unsigned, int);
    int (*ctx_current)(void **);
    int (*ctx_destroy)(void *);
    int (*stream_create)(void **, unsigned);
    int (*stream_sync)(void *);
    int (*stream_destroy)(void *);
    int (*retain)(void **, int);
    int (*set_current)(void *);
    int (*to_device)(uint64_t, const void *, size_t, void *);
    int (*to_host)(void *, uint64_t, size_t, void *);
} host_driver;

static host_driver driver_of_the_host(void)
{
    host_driver d;
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    memset(&d, 0, sizeof(d));
    REQUIRE(lib != NULL);
    const struct {
        const char *name;
        void *at;
    } calls[] = {{"cuCtxCreate_v4", &d.ctx_create},         {"cuCtxCreate_v2", &d.ctx_create_old},
                 {"cuCtxGetCurrent", &d.ctx_current},       {"cuCtxDestroy_v2", &d.ctx_destroy},
                 {"cuStreamCreate", &d.stream_create},      {"cuStreamSynchronize", &d.stream_sync},
                 {"cuStreamDestroy_v2", &d.stream_destroy}, {"cuDevicePrimaryCtxRetain", &d.retain},
                 {"cuCtxSetCurrent", &d.set_current},       {"cuMemcpyHtoDAsync_v2", &d.to_device},
                 {"cuMemcpyDtoHAsync_v2", &d.to_host}};
    for (int i = 0; i < (int)(sizeof(calls) / sizeof(*calls)); i++) {
        void *symbol = dlsym(lib, calls[i].name);
        memcpy(calls[i].at, &symbol, sizeof(symbol));
    }
    return d;
}

static bool has_gpu(int index)
{
    void *memory = NULL;
    bool has = tc_cuda_alloc_on(index, 64, &memory) == TC_OK;
    tc_cuda_free(memory);
    return has;
}

static tc_ctx *context(void)
{
    if (!has_gpu(0)) {
        SKIP("there is no GPU");
    }
    return context_on("cuda");
}

/* ---- the host's own streams and contexts ---- */

enum { LONG = 1 << 22 };

/* What the host put on its stream before a run is read by the run, and what it put there after the
 * run finds the results, without a wait of the host. */
TEST(a_stream_of_the_host_is_in_order)
{
    static float in[LONG], out[LONG];
    tc_ctx *ctx = context();
    host_driver d = driver_of_the_host();
    tc_program *f = NULL;
    tc_queue *q = NULL;
    void *stream = NULL, *from = NULL, *to = NULL, *before = NULL, *primary = NULL;
    tc_tensor x = tc_input(ctx, "x", TC_F32, LONG);
    REQUIRE(tc_compile(tc_add(tc_mul(x, 3), 1), &f) == TC_OK);
    REQUIRE(tc_cuda_alloc(sizeof(in), &from) == TC_OK && tc_cuda_alloc(sizeof(in), &to) == TC_OK);
    REQUIRE(!d.ctx_current(&before) && !d.retain(&primary, 0) && !d.set_current(primary));
    REQUIRE(!d.stream_create(&stream, 1) && tc_cuda_queue(0, stream, &q) == TC_OK);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < LONG; i++) {
            in[i] = (float)(i % 1000 + round);
        }
        CHECK(!d.to_device((uint64_t)(uintptr_t)from, in, sizeof(in), stream));
        CHECK_EQ_INT(tc_run_async(f, q, TC_BUFS(TC_BUF((float *)from, LONG)),
                                  TC_BUFS(TC_BUF((float *)to, LONG)), NULL),
                     TC_OK);
        CHECK(!d.to_host(out, (uint64_t)(uintptr_t)to, sizeof(out), stream));
        CHECK(!d.stream_sync(stream));
        int wrong = 0;
        for (int i = 0; i < LONG; i++) {
            wrong += out[i] != 3 * in[i] + 1;
        }
        CHECK_EQ_INT(wrong, 0);
    }
    tc_queue_free(q);
    CHECK(!d.stream_destroy(stream) && !d.set_current(before));
    tc_cuda_free(from);
    tc_cuda_free(to);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* A host that works in a CUDA context of its own finds it current after every call. */
TEST(a_context_of_the_host_stays_current)
{
    static float in[N], out[N];
    tc_ctx *ctx = context();
    host_driver d = driver_of_the_host();
    void *mine = NULL, *now = NULL, *memory = NULL;
    tc_program *f = NULL;
    tc_queue *q = NULL;
    tc_event *e = NULL;
    REQUIRE(!(d.ctx_create ? d.ctx_create(&mine, NULL, 0, 0) : d.ctx_create_old(&mine, 0, 0)));
    tc_status status;
#define STAYS(call)                                                                                \
    do {                                                                                           \
        status = (call);                                                                           \
        CHECK(status == TC_OK && !d.ctx_current(&now) && now == mine);                             \
    } while (0)
    tc_tensor x = tc_input(ctx, "x", TC_F32, N);
    STAYS(tc_compile(tc_exp(x), &f));
    STAYS(tc_run(f, TC_BUFS(TC_BUF(in, N)), TC_BUFS(TC_BUF(out, N))));
    STAYS(tc_queue_make(&q));
    STAYS(tc_run_async(f, q, TC_BUFS(TC_BUF(in, N)), TC_BUFS(TC_BUF(out, N)), &e));
    STAYS(tc_event_wait(e));
    STAYS(tc_cuda_alloc(64, &memory));
    STAYS(tc_cuda_copy(memory, in, 64));
    tc_cuda_free(memory);
    tc_event_free(e);
    tc_queue_free(q);
    tc_program_free(f);
    tc_ctx_free(ctx);
    STAYS(TC_OK);
#undef STAYS
    CHECK(out[0] == 1 && !d.ctx_destroy(mine));
}

/* ---- time ---- */

/* The device's clock between two events is not more than the host's around them. */
TEST(elapsed_is_the_time_of_the_device)
{
    static float in[LONG], out[LONG];
    tc_ctx *ctx = context();
    tc_program *f = NULL;
    tc_queue *q = NULL;
    tc_event *from = NULL, *to = NULL;
    struct timespec start, end;
    double ms = -1;
    tc_tensor x = tc_input(ctx, "x", TC_F32, LONG);
    REQUIRE(tc_compile(tc_sin(x), &f) == TC_OK && tc_queue_make(&q) == TC_OK);
    clock_gettime(CLOCK_MONOTONIC, &start);
    CHECK_EQ_INT(tc_run_async(f, q, TC_BUFS(TC_BUF(in, LONG)), TC_BUFS(TC_BUF(out, LONG)), &from),
                 TC_OK);
    for (int i = 0; i < 10; i++) {
        CHECK_EQ_INT(tc_run_async(f, q, TC_BUFS(TC_BUF(in, LONG)), TC_BUFS(TC_BUF(out, LONG)),
                                  i == 9 ? &to : NULL),
                     TC_OK);
    }
    CHECK_EQ_INT(tc_event_wait(to), TC_OK);
    clock_gettime(CLOCK_MONOTONIC, &end);
    double wall = (double)(end.tv_sec - start.tv_sec) * 1e3 +
                  (double)(end.tv_nsec - start.tv_nsec) * 1e-6;
    CHECK_EQ_INT(tc_event_elapsed(from, to, &ms), TC_OK);
    CHECK_MSG(ms > 0 && ms <= wall, "%g ms, the host saw %g ms", ms, wall);
    tc_event_free(from);
    tc_event_free(to);
    tc_queue_free(q);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* ---- several devices ---- */

enum { ROWS = 300, COLS = 700, ALL = ROWS * COLS };

typedef struct pair {
    tc_ctx *ctx;
    tc_program *on[2];
} pair;

/* The same results compiled for each of two GPUs. */
static pair on_both(tc_ctx *ctx, tc_tensor x, tc_tensors results)
{
    pair p = {ctx, {NULL, NULL}};
    for (int i = 0; i < 2; i++) {
        tc_options o;
        memset(&o, 0, sizeof(o));
        o.backend = "cuda";
        o.device = i;
        REQUIRE(tc_compile_fn(TC_TENSORS(x), results, &o, &p.on[i]) == TC_OK);
    }
    return p;
}

static void free_pair(pair *p)
{
    tc_program_free(p->on[0]);
    tc_program_free(p->on[1]);
    tc_ctx_free(p->ctx);
}

static tc_ctx *two_gpus(void)
{
    if (!has_gpu(1)) {
        SKIP("there are no two GPUs");
    }
    return context();
}

static float *ramp(void)
{
    static float in[ALL];
    for (int i = 0; i < ALL; i++) {
        in[i] = (float)(i % 1009) / 1009;
    }
    return in;
}

/* On one queue and on two, with captured memory, and inputs on the other GPU. */
TEST(two_devices_give_the_same_bits)
{
    static float weights[COLS], out[2][ALL];
    float *in = ramp();
    tc_ctx *ctx = two_gpus();
    tc_queue *q[2] = {NULL, NULL};
    tc_event *e[2] = {NULL, NULL};
    void *far[2] = {NULL, NULL};
    for (int i = 0; i < COLS; i++) {
        weights[i] = (float)(i % 13);
    }
    tc_tensor x = tc_input(ctx, "x", TC_F32, ROWS, COLS), w = tc_borrow(ctx, weights, TC_F32, COLS);
    pair p = on_both(ctx, x, TC_TENSORS(tc_softmax(tc_mul(x, w), 1)));
    for (int i = 0; i < 2; i++) {
        REQUIRE(tc_queue_make(&q[i]) == TC_OK);
        REQUIRE(tc_cuda_alloc_on(1 - i, ALL * 4, &far[i]) == TC_OK);
        CHECK_EQ_INT(tc_cuda_copy(far[i], in, ALL * 4), TC_OK);
    }
    for (int shared = 0; shared < 2; shared++) {
        memset(out, 0, sizeof(out));
        for (int i = 0; i < 2; i++) {
            CHECK_EQ_INT(tc_run_async(p.on[i], q[shared ? 0 : i],
                                      TC_BUFS(TC_BUF((float *)far[i], ALL)),
                                      TC_BUFS(TC_BUF(out[i], ALL)), &e[i]),
                         TC_OK);
        }
        for (int i = 0; i < 2; i++) {
            CHECK_MSG(tc_event_wait(e[i]) == TC_OK, "%s", tc_error(e[i]));
            tc_event_free(e[i]);
        }
        CHECK(!memcmp(out[0], out[1], sizeof(out[0])) && out[0][5] > 0);
    }
    for (int i = 0; i < 2; i++) {
        tc_queue_free(q[i]);
        tc_cuda_free(far[i]);
    }
    free_pair(&p);
}

/* A parameter that a program of each device changes in turn goes from one to the other. */
TEST(a_parameter_goes_from_device_to_device)
{
    static float zero[COLS], state[COLS];
    float *in = ramp();
    tc_ctx *ctx = two_gpus();
    tc_tensor x = tc_input(ctx, "x", TC_F32, ROWS, COLS), p = tc_param(ctx, zero, TC_F32, COLS);
    tc_tensor step = tc_assign(p, tc_add(tc_mul(p, 2), tc_max(x, TC_AXES(0), false)));
    pair both = on_both(ctx, x, TC_TENSORS(step));
    for (int i = 0; i < 6; i++) {
        CHECK_EQ_INT(tc_run(both.on[i % 2], TC_BUFS(TC_BUF(in, ALL)), ((tc_bufs){NULL, 0})), TC_OK);
    }
    CHECK_EQ_INT(tc_read(p, state, COLS), TC_OK);
    for (int i = 0; i < COLS; i++) {
        float most = 0, want = 0;
        for (int row = 0; row < ROWS; row++) {
            most = fmaxf(most, in[row * COLS + i]);
        }
        for (int k = 0; k < 6; k++) {
            want = 2 * want + most;
        }
        CHECK_MSG(state[i] == want, "%d: %g, expected %g", i, state[i], want);
    }
    free_pair(&both);
}

TEST_MAIN
