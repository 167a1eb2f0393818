/* tests/comm/test_data_parallel.c - training on several ranks: the same bits as one process that
 * computes all ranks' shares, with buckets of any size, and with sharded optimizer state; where
 * collectives stand among the steps. */
#include "inside.h"

#include "tc_test.h"

#include "ranks.h"
#include "verbs.h"

enum { LAYERS = 4, WIDTH = 24, ROWS = 6, PARAMS = 2 * LAYERS, STEPS = 4, RANKS = 2 };

static float weights[LAYERS][WIDTH * WIDTH], biases[LAYERS][WIDTH];

/* Numbers whose sums depend on the order. */
static float noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) * 0x1p-23f - 1;
}

static void make_params(tc_ctx *ctx, tc_tensor *p)
{
    uint32_t state = 7;
    for (int i = 0; i < LAYERS; i++) {
        for (int k = 0; k < WIDTH * WIDTH; k++) {
            weights[i][k] = 0.3f * noise(&state);
        }
        for (int k = 0; k < WIDTH; k++) {
            biases[i][k] = 0.1f * noise(&state);
        }
        p[2 * i] = tc_param(ctx, weights[i], TC_F32, WIDTH, WIDTH);
        p[2 * i + 1] = tc_param(ctx, biases[i], TC_F32, WIDTH);
    }
}

static tc_tensor loss_of(tc_tensor x, const tc_tensor *p)
{
    for (int i = 0; i < LAYERS; i++) {
        x = tc_tanh(tc_add(tc_matmul(x, p[2 * i]), p[2 * i + 1]));
    }
    return tc_mean(tc_square(x), TC_ALL, false);
}

/* The batch of a rank in a step. */
static void fill(float *x, int step, int rank)
{
    uint32_t state = (uint32_t)(1000 * step + rank);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        x[i] = noise(&state);
    }
}

static void read_all(const tc_tensor *p, float *to)
{
    for (int i = 0; i < PARAMS; i++) {
        int n = i % 2 ? WIDTH : WIDTH * WIDTH;
        CHECK_EQ_INT(tc_read(p[i], to, n), TC_OK);
        to += n;
    }
}

enum { ELEMENTS = LAYERS * (WIDTH * WIDTH + WIDTH) };

/* One process: the mean of the gradients of both shares, in the order of ranks. */
static void alone(float *result)
{
    float x[RANKS][ROWS * WIDTH];
    tc_ctx *ctx = verbs_begin(true);
    tc_tensor p[PARAMS], g[RANKS][PARAMS], mean[PARAMS], in[RANKS], effects[TC_EFFECTS(PARAMS)];
    tc_program *f = NULL;
    int n = 0;
    make_params(ctx, p);
    for (int r = 0; r < RANKS; r++) {
        in[r] = tc_input(ctx, r ? "x1" : "x0", TC_F32, ROWS, WIDTH);
        CHECK_EQ_INT(tc_grad(loss_of(in[r], p), p, PARAMS, g[r]), TC_OK);
    }
    for (int i = 0; i < PARAMS; i++) {
        mean[i] = tc_div(tc_add(g[0][i], g[1][i]), 2);
    }
    CHECK_EQ_INT(tc_adamw(p, mean, PARAMS, 0.01, NULL, effects, &n), TC_OK);
    CHECK_EQ_INT(tc_compile_fn((tc_tensors){in, RANKS}, (tc_tensors){effects, n}, NULL, &f), TC_OK);
    for (int s = 0; s < STEPS; s++) {
        fill(x[0], s, 0);
        fill(x[1], s, 1);
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x[0], ROWS * WIDTH), TC_BUF(x[1], ROWS * WIDTH)),
                            (tc_bufs){NULL, 0}),
                     TC_OK);
    }
    read_all(p, result);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* A rank: its own share. zero: each rank has a part of the optimizer's state. */
static void together(tc_comm *comm, int64_t bytes, bool zero, float *result)
{
    float x[ROWS * WIDTH];
    tc_ctx *ctx = verbs_begin(true);
    tc_tensor p[PARAMS], g[PARAMS], shards[PARAMS], effects[TC_EFFECTS(PARAMS) + PARAMS];
    const tc_buckets buckets = {.bytes = bytes};
    tc_program *f = NULL;
    int n = 0;
    make_params(ctx, p);
    tc_tensor in = tc_input(ctx, "x", TC_F32, ROWS, WIDTH);
    CHECK_EQ_INT(tc_grad(loss_of(in, p), p, PARAMS, g), TC_OK);
    if (zero) {
        CHECK_EQ_INT(tc_zero_shards(comm, p, PARAMS, shards), TC_OK);
        CHECK_EQ_INT(tc_zero_grads(comm, g, PARAMS, &buckets, g), TC_OK);
        CHECK_EQ_INT(tc_adamw(shards, g, PARAMS, 0.01, NULL, effects, &n), TC_OK);
        CHECK_EQ_INT(tc_zero_effects(comm, p, shards, PARAMS, &buckets, effects, &n), TC_OK);
    } else {
        CHECK_EQ_INT(tc_all_reduce_grads(comm, g, PARAMS, &buckets, g), TC_OK);
        CHECK_EQ_INT(tc_adamw(p, g, PARAMS, 0.01, NULL, effects, &n), TC_OK);
    }
    tc_status status = tc_compile_fn(TC_TENSORS(in), (tc_tensors){effects, n}, NULL, &f);
    CHECK_EQ_INT(status, TC_OK);
    if (status) {
        printf("%s\n", tc_error(ctx));
    }
    int64_t held = 0; /* bytes of parameters and of the optimizer's state on this rank */
    for (int i = 0; f && i < f->n_captured; i++) {
        held += f->captured[i]->bytes;
    }
    int64_t states = zero ? 3 * ELEMENTS / RANKS : 2 * ELEMENTS; /* of AdamW; and the own part */
    CHECK(held >= 4 * (ELEMENTS + states) && held <= 4 * (ELEMENTS + states) + 64 * PARAMS);
    for (int s = 0; s < STEPS && f; s++) {
        fill(x, s, tc_comm_rank(comm));
        status = tc_run(f, TC_BUFS(TC_BUF(x, ROWS * WIDTH)), (tc_bufs){NULL, 0});
        CHECK_EQ_INT(status, TC_OK);
        if (status) {
            printf("%s\n", tc_error(f));
        }
    }
    read_all(p, result);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

static void same_bits(tc_comm *comm)
{
    static float want[ELEMENTS], got[ELEMENTS];
    alone(want);
    together(comm, 0, false, got);
    CHECK(!memcmp(want, got, sizeof(want)));
    together(comm, 1, false, got); /* a bucket for each gradient */
    CHECK(!memcmp(want, got, sizeof(want)));
    together(comm, 4000, false, got);
    CHECK(!memcmp(want, got, sizeof(want)));
    together(comm, 4000, true, got);
    CHECK(!memcmp(want, got, sizeof(want)));
    CHECK(want[0] != weights[0][0]);
}

TEST(two_ranks_train_as_one_process_bit_by_bit)
{
    CHECK(ranks_run(RANKS, 20000, same_bits));
}

/* ---- the order of steps ---- */

/* Place of the k-th line that has a word; -1: there is none. */
static int line_of(const char *text, const char *word, int k)
{
    int line = 0;
    for (const char *at = text, *end; *at; at = *end ? end + 1 : end, line++) {
        end = at + strcspn(at, "\n");
        const char *found = strstr(at, word);
        if (found && found < end && k-- == 0) {
            return line;
        }
    }
    return -1;
}

static char *steps_of(const char *dir)
{
    char path[600];
    static char text[1 << 16];
    snprintf(path, sizeof(path), "%s/steps.txt", dir);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
    text[n] = 0;
    if (f) {
        fclose(f);
    }
    return text;
}

TEST(buckets_start_while_gradients_are_computed_and_are_waited_for_late)
{
    char dir[] = "/tmp/tc-test-comm-XXXXXX";
    tc_comm *comm = NULL;
    tc_ctx *ctx = NULL;
    tc_program *f = NULL;
    tc_tensor p[PARAMS], g[PARAMS], effects[TC_EFFECTS(PARAMS)];
    int n = 0;
    REQUIRE(mkdtemp(dir) != NULL);
    tc_options o = {.threads = 1, .dump = "steps", .dump_dir = dir};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK && tc_comm_from_env(&comm) == TC_OK);
    make_params(ctx, p);
    tc_tensor in = tc_input(ctx, "x", TC_F32, ROWS, WIDTH);
    CHECK_EQ_INT(tc_grad(loss_of(in, p), p, PARAMS, g), TC_OK);
    CHECK_EQ_INT(tc_all_reduce_grads(comm, g, PARAMS, &(tc_buckets){.bytes = 2400}, g), TC_OK);
    CHECK_EQ_INT(tc_sgd(p, g, PARAMS, 0.01, NULL, effects, &n), TC_OK);
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(in), (tc_tensors){effects, n}, NULL, &f), TC_OK);
    const char *text = steps_of(dir);
    int starts = 0, first = line_of(text, "start_all_reduce", 0);
    while (line_of(text, "start_all_reduce", starts) >= 0) {
        starts++;
    }
    CHECK(starts >= 3);
    int last = line_of(text, "start_all_reduce", starts - 1);
    int wait = line_of(text, "wait_all_reduce", 0);
    CHECK(first >= 0 && last < wait); /* no wait before the last gradient is there */
    int between = 0; /* contractions of the way back, after the first bucket started */
    for (int k = 0; line_of(text, "contract", k) >= 0; k++) {
        between += line_of(text, "contract", k) > first;
    }
    CHECK(between >= LAYERS);
    FILE *said = tmpfile(); /* what tc_explain says of buckets */
    static char told[1 << 16];
    REQUIRE(said != NULL);
    CHECK_EQ_INT(tc_explain_as(f, said, &(tc_explain_options){.all = true}), TC_OK);
    rewind(said);
    told[fread(told, 1, sizeof(told) - 1, said)] = 0;
    fclose(said);
    CHECK(strstr(told, "collective 0: all_reduce sum of 600 f32, 2400 bytes from each of 1 ranks"));
    if (tct_failures) {
        printf("%s%s", text, told);
    }
    tc_program_free(f);
    tc_comm_free(comm);
    tc_ctx_free(ctx);
    char command[700];
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    CHECK_EQ_INT(system(command), 0);
}

/* Behind the last wait nothing can fail, so updates need no second copy of the parameters. */
static void in_place(tc_comm *comm)
{
    tc_ctx *ctx = verbs_begin(false);
    tc_program *f = NULL;
    tc_tensor p[PARAMS], g[PARAMS], effects[TC_EFFECTS(PARAMS)];
    int n = 0, last_wait = 0;
    make_params(ctx, p);
    tc_tensor in = tc_input(ctx, "x", TC_F32, ROWS, WIDTH);
    CHECK_EQ_INT(tc_grad(loss_of(in, p), p, PARAMS, g), TC_OK);
    CHECK_EQ_INT(tc_all_reduce_grads(comm, g, PARAMS, &(tc_buckets){.bytes = 2400}, g), TC_OK);
    CHECK_EQ_INT(tc_sgd(p, g, PARAMS, 0.01, NULL, effects, &n), TC_OK);
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(in), (tc_tensors){effects, n}, NULL, &f), TC_OK);
    for (int i = 0; i < f->code->n_steps; i++) {
        last_wait = f->steps[i].call ? i : last_wait;
    }
    CHECK(last_wait > 0 && f->commit > last_wait && f->commit < f->code->n_steps);
    for (int i = 0; i < f->n_effects; i++) {
        CHECK(f->effects[i].over_old);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(updates_are_written_over_parameters_behind_the_last_collective)
{
    CHECK(ranks_run(RANKS, 20000, in_place));
}

/* Places in `order` of a gradient: the parameters' sizes in the order of the collectives. */
static void order_of(int64_t bytes, bool groups, int64_t *sizes, int *n)
{
    static tc_comm_engine engine;
    tc_comm *base = NULL;
    REQUIRE(tc_comm_from_env(&base) == TC_OK);
    engine = *base->engine;
    engine.groups = groups;
    base->engine = &engine;
    tc_ctx *ctx = verbs_begin(false);
    tc_tensor p[4] = {tc_param(ctx, NULL, TC_F32, 300, 8), tc_param(ctx, NULL, TC_F32, 8, 8),
                      tc_param(ctx, NULL, TC_F32, 8, 9), tc_param(ctx, NULL, TC_F32, 9, 10)},
              g[4], x = tc_input(ctx, "x", TC_F32, 2, 300);
    tc_tensor y = tc_matmul(tc_tanh(tc_matmul(x, p[0])), p[1]);
    y = tc_matmul(tc_tanh(tc_matmul(tc_tanh(y), p[2])), p[3]);
    CHECK_EQ_INT(tc_grad(tc_sum(y, TC_ALL, false), p, 4, g), TC_OK);
    CHECK_EQ_INT(tc_all_reduce_grads(base, g, 4, &(tc_buckets){.bytes = bytes}, g), TC_OK);
    tc_program *f = NULL;
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(x), (tc_tensors){g, 4}, NULL, &f), TC_OK);
    *n = 0;
    for (int i = 0; i < f->code->n_steps; i++) {
        const tci_custom_call *call = f->steps[i].call;
        if (call && call->comm.phase == TCI_COMM_START) {
            sizes[(*n)++] = call->arrays[0].n;
        }
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    tc_comm_free(base);
}

TEST(a_large_gradient_that_is_ready_last_travels_while_others_are_computed)
{
    int64_t sizes[8];
    int n = 0;
    order_of(600, false, sizes, &n); /* what is ready before the large one follows it */
    CHECK(n == 3 && sizes[0] == 90 && sizes[1] == 2400 && sizes[2] == 72 + 64);
    order_of(1 << 20, true, sizes, &n); /* one bucket, which is not copied */
    CHECK(n == 4 && sizes[0] == 90 && sizes[3] == 2400);
}

TEST(lists_that_do_not_fit)
{
    tc_comm *comm = NULL;
    tc_ctx *ctx = verbs_begin(false);
    REQUIRE(tc_comm_from_env(&comm) == TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_I32, 3), y, effects[8];
    int n = 0;
    CHECK_EQ_INT(tc_all_reduce_grads(comm, NULL, 1, NULL, &y), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_all_reduce_grads(comm, &x, 0, NULL, &y), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_all_reduce_grads(comm, &x, 1, NULL, &y), TC_ERR_DTYPE);
    CHECK_EQ_INT(tc_all_reduce_grads(NULL, &x, 1, NULL, &y), TC_ERR_HANDLE);
    tc_tensor p = tc_param(ctx, NULL, TC_F32, 5), shard;
    CHECK_EQ_INT(tc_zero_shards(comm, &p, 1, &shard), TC_OK);
    CHECK_EQ_INT((int)tc_size(shard, 0), 5);
    CHECK_EQ_INT(tc_zero_effects(comm, &p, &shard, 1, NULL, effects, &n), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(n, 0);
    tc_comm_free(comm);
    tc_ctx_free(ctx);
}

TEST_MAIN
