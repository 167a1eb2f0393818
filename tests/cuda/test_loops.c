/* tests/cuda/test_loops.c - repetitions, loops and branches where steps are launches: on the
 * emulated CUDA dialect, and on a GPU where there is one. */
#define TC_CUDA
#include "inside.h"

#include "tc_test.h"

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
        status = emulation()->launch(user, &q->launches[i]);
    }
    for (; q->is_loop && !status && another_round(q, round); round++) {
        for (int i = 0; i < q->loop.n && !status; i++) {
            status = emulation()->launch(user, &q->launches[round % 2 * q->loop.n + i]);
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

/* The second run with operands at the same places records all rounds, and the third replays them.
 * Of loops that stop by their values two rounds are recorded with the test, where that can be. */
TEST(rounds_are_recorded)
{
    static values looped;
    NEED("recording");
    n_recorded = n_replayed = 0;
    for (int i = 0; i < CASES; i++) {
        if (strcmp(cases[i].name, "large")) {
            int recorded = n_recorded, replayed = n_replayed;
            run_case(&cases[i], "recording", false, &looped);
            check_reference(&cases[i], "recording", &looped);
            CHECK_EQ_INT(n_recorded - recorded, 1);
            CHECK_EQ_INT(n_replayed - replayed, 2);
        }
    }
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
