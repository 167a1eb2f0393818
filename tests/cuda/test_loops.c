/* tests/cuda/test_loops.c - repetitions, loops and branches where steps are launches: on the
 * emulated CUDA dialect, and on a GPU where there is one. */
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"

#include <pthread.h>

#include "emulate.h"
#include "loop_cases.h"

/* The emulation, which records; of a loop two rounds, and where it looks whether it goes on. */
typedef struct sequence {
    tc_launch *launches;
    void **buffers;
    int n;
    bool is_loop;
    tc_backend_loop loop;
} sequence;
static int n_recorded, n_loops, n_rounds, n_replayed, n_live;
static bool no_loops;

static sequence *copy_of(const tc_launch *launches, int n)
{
    int n_buffers = 0;
    for (int i = 0; i < n; i++) {
        n_buffers += launches[i].n_buffers;
    }
    sequence *q = calloc(1, sizeof(*q));
    q->launches = malloc(sizeof(*launches) * (size_t)(n + 1));
    q->buffers = malloc(sizeof(void *) * (size_t)(n_buffers + 1));
    q->n = n;
    n_buffers = 0;
    for (int i = 0; i < n; i++) {
        q->launches[i] = launches[i];
        q->launches[i].buffers = q->buffers + n_buffers;
        memcpy(q->buffers + n_buffers, launches[i].buffers,
               sizeof(void *) * (size_t)launches[i].n_buffers);
        n_buffers += launches[i].n_buffers;
    }
    n_live++;
    return q;
}

static tc_status record(void *user, const tc_launch *launches, int n, void **made)
{
    (void)user;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < launches[i].n_after; k++) {
            CHECK(launches[i].after[k] >= 0 && launches[i].after[k] < i);
        }
    }
    n_recorded++;
    *made = copy_of(launches, n);
    return TC_OK;
}

static tc_status record_loop(void *user, const tc_backend_loop *loop, void **made)
{
    (void)user;
    if (no_loops) {
        return TC_ERR_UNSUPPORTED;
    }
    tc_launch *both = malloc(sizeof(*both) * 2 * (size_t)loop->n);
    for (int i = 0; i < 2 * loop->n; i++) {
        both[i] = loop->rounds[i / loop->n][i % loop->n];
    }
    sequence *q = copy_of(both, 2 * loop->n);
    free(both);
    q->is_loop = true;
    q->loop = *loop;
    n_loops++;
    *made = q;
    return TC_OK;
}

/* ---- memory of a step's own ---- */

enum { OWN_WORDS = 25, OWN_MOST = 64 };
static bool has_own; /* kernels were told to ask for it, and do not use it */
static int n_own;
static struct {
    const int32_t *memory;
    int launches;
} own[OWN_MOST];

/* All words say how often the step was launched. */
static void check_own(int32_t *memory)
{
    int i = 0, wrong = 0;
    while (i < n_own && own[i].memory != memory) {
        i++;
    }
    REQUIRE(i < OWN_MOST);
    if (i == n_own) {
        own[n_own++].memory = memory;
    }
    for (int w = 0; w < OWN_WORDS; w++) {
        wrong += memory[w]++ != own[i].launches;
    }
    CHECK_MSG(wrong == 0, "%d words are not as launch %d left them", wrong, own[i].launches);
    own[i].launches++;
}

static tc_status launch(void *user, const tc_launch *given)
{
    tc_launch without = *given;
    if (has_own) {
        without.n_buffers--;
        check_own(given->buffers[without.n_buffers]);
    }
    return emulation()->launch(user, &without);
}

/* Memory of the emulated device is the host's. */
static bool another_round(const sequence *q, int64_t round)
{
    return round < q->loop.most && *(const uint8_t *)q->loop.go[round % 2];
}

static tc_status replay(void *user, void *made)
{
    const sequence *q = made;
    tc_status status = TC_OK;
    int64_t round = 0;
    for (int i = 0; !q->is_loop && i < q->n && !status; i++) {
        status = launch(user, &q->launches[i]);
    }
    for (; q->is_loop && !status && another_round(q, round); round++) {
        for (int i = 0; i < q->loop.n && !status; i++) {
            status = launch(user, &q->launches[round % 2 * q->loop.n + i]);
        }
    }
    if (q->is_loop) {
        memcpy(q->loop.done, &round, sizeof(round));
        n_rounds += (int)round;
    } else {
        n_replayed++;
    }
    return status;
}

static void sequence_free(void *user, void *made)
{
    sequence *q = made;
    (void)user;
    free(q->launches);
    free(q->buffers);
    free(q);
    n_live--;
}

static const tc_backend *recording(void)
{
    static tc_backend b;
    b = *emulation();
    b.name = "recording";
    b.launch = launch;
    b.record = record;
    b.replay = replay;
    b.sequence_free = sequence_free;
    b.record_loop = record_loop;
    return &b;
}

/* Whether it compiles and runs something. */
static bool have(const char *backend)
{
    tc_options o = {.backend = backend, .fallback = TC_FALLBACK_REFUSE};
    tc_ctx *ctx = NULL;
    float sum = 0;
    tc_register_backend(emulation());
    tc_register_backend(recording());
    bool there = tc_ctx_make(&ctx, &o) == TC_OK;
    there = there && tc_read(tc_sum(tc_full(ctx, 1, TC_F32, 3), TC_ALL, false), &sum, 1) == TC_OK;
    tc_ctx_free(ctx);
    return there && sum == 3;
}

#define NEED(backend)                                                                              \
    if (!have(backend)) {                                                                          \
        SKIP("no backend %s here", backend);                                                       \
    }

/* A thread of the emulation is slow: it does not sum what is cut in parts. */
static void compare(const char *backend, bool all)
{
    static values looped;
    for (int i = 0; i < CASES; i++) {
        if (all || strcmp(cases[i].name, "large")) {
            run_case(&cases[i], backend, false, &looped);
            check_reference(&cases[i], backend, &looped);
        }
    }
}

TEST(steps_as_launches)
{
    NEED("emulated");
    compare("emulated", tct_soak);
}

/* The second run with operands at the same places records all rounds, and the third replays them;
 * where the whole loop is one launch, the first run records it. Of loops that stop by their values
 * two rounds are recorded with the test, where that can be. */
TEST(rounds_are_recorded)
{
    static values looped;
    NEED("recording");
    int fused = 0, launched = 0;
    n_recorded = n_replayed = 0;
    for (int i = 0; i < CASES; i++) {
        if (strcmp(cases[i].name, "large")) {
            int recorded = n_recorded, replayed = n_replayed;
            run_case(&cases[i], "recording", false, &looped);
            check_reference(&cases[i], "recording", &looped);
            CHECK_EQ_INT(n_recorded - recorded, 1);
            fused += n_replayed - replayed == 3;
            launched += n_replayed - replayed == 2;
            CHECK(n_replayed - replayed == 2 || n_replayed - replayed == 3);
        }
    }
    CHECK_MSG(fused >= 2 && launched >= 2, "%d fused, %d not", fused, launched);
    int recorded = n_recorded;
    for (int i = 0; i < 2; i++) {
        no_loops = i == 1;
        n_loops = n_rounds = 0;
        check_while("recording");
        CHECK_EQ_INT(n_recorded, recorded);
        CHECK_EQ_INT(n_loops, i ? 0 : 1);
        CHECK_EQ_INT(n_rounds, i ? 0 : 178 + 111 + 0); /* of all runs but the first */
        CHECK_EQ_INT(n_live, 0);
    }
    no_loops = false;
}

static tc_status twice(void *user, const tc_tensor *carry, const tc_tensor *x, tc_tensor *next,
                       tc_tensor *y)
{
    (void)user, (void)x, (void)y;
    next[0] = tc_cumsum(tc_cumsum(carry[0], 1), 0);
    return TC_OK;
}

static tc_status is_small(void *user, const tc_tensor *carry, tc_tensor *go)
{
    (void)user;
    *go = tc_lt(tc_sum(carry[0], TC_ALL, false), 1e6);
    return TC_OK;
}

static tc_status again(void *user, const tc_tensor *carry, tc_tensor *next)
{
    return twice(user, carry, NULL, next, NULL);
}

/* What a step has for itself is zero at first, in every call, and then as its last launch left it,
 * in rounds that are launched, recorded, or ended by the device. */
static void check_own_memory(tc_ctx *ctx, tc_tensor y)
{
    float in[2][12] = {{1, 2, 3}, {4}}, out[2][12];
    tc_program *f = NULL, *g = NULL;
    tc_program_info before, info;
    tc_call *calls[2];
    REQUIRE(!tc_compile(y, &f) && !tc_program_get_info(f, &before));
    for (int i = 0; i < f->code->n_kernels; i++) {
        f->code->kernels[i].work_bytes = sizeof(int32_t) * OWN_WORDS;
    }
    REQUIRE(!tc_compile(y, &g) && g->code == f->code && !tc_program_get_info(g, &info));
    int n_steps = f->code->n_steps;
    CHECK_EQ_INT(info.arena_bytes, (before.arena_bytes + 63) / 64 * 64 + 128 * n_steps);
    has_own = true;
    n_own = 0;
    memset(own, 0, sizeof(own));
    for (int c = 0; c < 2; c++) {
        REQUIRE(!tc_call_make(g, &calls[c]));
    }
    for (int i = 0; i < 8; i++) {
        CHECK_EQ_INT(tc_run_call(calls[i % 2], TC_BUFS(TC_BUF(in[i % 2], 12)),
                                 TC_BUFS(TC_BUF(out[i % 2], 12))),
                     TC_OK);
    }
    has_own = false;
    CHECK_EQ_INT(n_own, 2 * n_steps);
    for (int c = 0; c < 2; c++) {
        tc_call_free(calls[c]);
    }
    tc_program_free(f);
    tc_program_free(g);
    tc_ctx_free(ctx);
}

TEST(steps_have_memory_of_their_own)
{
    NEED("recording");
    tc_options o = {.backend = "recording", .fallback = TC_FALLBACK_REFUSE, .no_disk_cache = true};
    tc_ctx *ctx = NULL;
    tc_tensor last;
    REQUIRE(!tc_ctx_make(&ctx, &o));
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4);
    check_own_memory(ctx, tc_cumsum(tc_cumsum(tc_cumsum(x, 1), 0), 1));
    REQUIRE(!tc_ctx_make(&ctx, &o));
    x = tc_input(ctx, "x", TC_F32, 3, 4);
    REQUIRE(!tc_scan(TC_TENSORS(x), (tc_tensors){NULL, 0}, 5, false, twice, NULL, &last, NULL, 0));
    check_own_memory(ctx, last);
    REQUIRE(!tc_ctx_make(&ctx, &o));
    x = tc_input(ctx, "x", TC_F32, 3, 4);
    REQUIRE(!tc_while(TC_TENSORS(x), 100, is_small, again, NULL, &last));
    check_own_memory(ctx, last);
}

/* ---- cancelled runs ---- */

static tc_status is_below(void *user, const tc_tensor *carry, tc_tensor *go)
{
    *go = tc_lt(carry[0], *(const tc_tensor *)user);
    return TC_OK;
}

static tc_status add_one(void *user, const tc_tensor *carry, tc_tensor *next)
{
    (void)user;
    next[0] = tc_add(carry[0], 1);
    return TC_OK;
}

/* Counts from p up to an input; p is then that. */
static tc_program *compile_count(tc_ctx *ctx, tc_tensor p)
{
    tc_tensor end = tc_input(ctx, "end", TC_I32), last;
    tc_program *f = NULL;
    REQUIRE(tc_while(TC_TENSORS(p), 0, is_below, add_one, &end, &last) == TC_OK);
    REQUIRE(tc_compile_fn(TC_TENSORS(end), TC_TENSORS(last, tc_assign(p, last)), NULL, &f) ==
            TC_OK);
    return f;
}

typedef struct canceller {
    tc_call *call;
    int after_us;
} canceller;

static void *cancel_later(void *given)
{
    const canceller *c = given;
    struct timespec t = {0, c->after_us * 1000L};
    nanosleep(&t, NULL);
    tc_call_cancel(c->call);
    return NULL;
}

/* The first run is launched round by round, the second records the loop, and the third replays it:
 * each in slices, so that a replay ends. */
static void check_cancelled(const char *backend)
{
    tc_options o = {.backend = backend, .fallback = TC_FALLBACK_REFUSE, .no_disk_cache = true};
    tc_ctx *ctx = NULL;
    tc_call *call = NULL;
    int32_t never = INT32_MAX, end = 5, out = 0, at = 0;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    tc_tensor p = tc_param(ctx, &at, TC_I32);
    tc_program *f = compile_count(ctx, p);
    REQUIRE(tc_call_make(f, &call) == TC_OK);
    for (int run = 0; run < 4; run++) {
        canceller c = {call, 20000};
        pthread_t thread;
        pthread_create(&thread, NULL, cancel_later, &c);
        CHECK_EQ_INT(tc_run_call(call, TC_BUFS(TC_BUF(&never, 1)), TC_BUFS(TC_BUF(&out, 1))),
                     TC_ERR_CANCELLED);
        CHECK_HAS(tc_error(call), "the run was cancelled");
        pthread_join(thread, NULL);
        REQUIRE(tc_read(p, &at, 1) == TC_OK);
        CHECK_EQ_INT(at, run * 5);
        end = at + 5;
        CHECK_EQ_INT(tc_run_call(call, TC_BUFS(TC_BUF(&end, 1)), TC_BUFS(TC_BUF(&out, 1))), TC_OK);
        CHECK_EQ_INT(out, end);
    }
    tc_call_free(call);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(loops_of_a_device_are_cancelled)
{
    NEED("emulated");
    check_cancelled("emulated");
    check_cancelled("recording");
    CHECK_EQ_INT(n_live, 0);
    if (have("cuda")) {
        check_cancelled("cuda");
    }
}

/* Of an even and an odd number of rounds, of fewer, of as many, and of more than a replay does. */
TEST(a_recorded_loop_is_replayed_in_slices)
{
    NEED("recording");
    tc_options o = {.backend = "recording", .fallback = TC_FALLBACK_REFUSE, .no_disk_cache = true};
    const int32_t counts[] = {7, 8, 1 << 14, (1 << 14) + 1, (1 << 15) + 3};
    for (int most = 0; most < 2; most++) {
        tc_ctx *ctx = NULL;
        tc_call *call = NULL;
        tc_program *f = NULL;
        tc_tensor last;
        REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
        tc_tensor end = tc_input(ctx, "end", TC_I32), start = tc_input(ctx, "start", TC_I32);
        REQUIRE(tc_while(TC_TENSORS(start), most ? 20001 : 0, is_below, add_one, &end, &last) ==
                TC_OK);
        REQUIRE(tc_compile_fn(TC_TENSORS(start, end), TC_TENSORS(last), NULL, &f) == TC_OK);
        REQUIRE(tc_call_make(f, &call) == TC_OK);
        n_loops = n_rounds = 0;
        int rounds = 0;
        for (int i = 0; i < 7; i++) {
            int32_t from = 3, to = 3 + counts[i % 5], out = 0;
            int32_t n = most && to - from > 20001 ? 20001 : to - from;
            rounds += i == 0 ? 0 : most && n > 1 << 14 ? 1 << 14 : n; /* the host does the rest */
            CHECK_EQ_INT(tc_run_call(call, TC_BUFS(TC_BUF(&from, 1), TC_BUF(&to, 1)),
                                     TC_BUFS(TC_BUF(&out, 1))),
                         TC_OK);
            CHECK_EQ_INT(out, from + n);
        }
        CHECK_EQ_INT(n_loops, 1);
        CHECK_EQ_INT(n_rounds, rounds);
        tc_call_free(call);
        tc_program_free(f);
        tc_ctx_free(ctx);
        CHECK_EQ_INT(n_live, 0);
    }
}

TEST(loops_and_branches_as_launches)
{
    NEED("emulated");
    check_while("emulated");
    check_branch("emulated", false);
    check_branch("emulated", true);
}

TEST(gradients_as_launches)
{
    NEED("emulated");
    compare_gradients("emulated", false);
}

TEST(loops_on_a_gpu)
{
    NEED("cuda");
    compare("cuda", true);
    check_while("cuda");
    check_branch("cuda", false);
    check_branch("cuda", true);
    compare_gradients("cuda", true);
}

TEST_MAIN
