/* tests/comm/test_partition.c - tc_shard and tc_partition: a network over whole tensors trained on
 * several ranks, each with its parts, against one process with all of them; which collectives were
 * put in; each op on parts against the op on the whole. */
#include "tc_comm.h"

#include "tc_test.h"

#include "ranks.h"
#include "verbs.h"

enum { BATCH = 4, TOKENS = 6, VOCAB = 24, WIDTH = 16, HEADS = 4, HIDDEN = 32, BLOCKS = 2, STEPS = 3,
       PER_BLOCK = 8, PARAMS = 2 + PER_BLOCK * BLOCKS };

static float noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) * 0x1p-23f - 1;
}

static tc_tensor weight(tc_ctx *ctx, uint32_t *seed, int64_t rows, int64_t columns)
{
    float *data = malloc(sizeof(float) * (size_t)(rows * columns));
    for (int64_t i = 0; i < rows * columns; i++) {
        data[i] = 0.3f * noise(seed);
    }
    tc_tensor w = columns > 1 ? tc_param(ctx, data, TC_F32, rows, columns)
                              : tc_param(ctx, data, TC_F32, rows);
    free(data);
    return w;
}

static void make_params(tc_ctx *ctx, tc_tensor *p)
{
    uint32_t seed = 3;
    p[0] = weight(ctx, &seed, VOCAB, WIDTH);
    p[1] = weight(ctx, &seed, WIDTH, VOCAB);
    for (int b = 0; b < BLOCKS; b++) {
        tc_tensor *w = p + 2 + PER_BLOCK * b;
        w[0] = weight(ctx, &seed, WIDTH, 1);
        for (int i = 1; i < 5; i++) {
            w[i] = weight(ctx, &seed, WIDTH, WIDTH);
        }
        w[5] = weight(ctx, &seed, WIDTH, HIDDEN);
        w[6] = weight(ctx, &seed, HIDDEN, 1);
        w[7] = weight(ctx, &seed, HIDDEN, WIDTH);
    }
}

static tc_ctx *context;

static tc_tensor heads(tc_tensor x, tc_tensor w)
{
    tc_tensor y = tc_reshape(tc_matmul(x, w), BATCH, TOKENS, HEADS, WIDTH / HEADS);
    return tc_permute(y, 0, 2, 1, 3);
}

static tc_tensor attention(tc_tensor x, const tc_tensor *w)
{
    tc_tensor q = heads(x, w[1]), k = heads(x, w[2]), v = heads(x, w[3]);
    tc_tensor s = tc_mul(tc_matmul(q, tc_transpose(k, -1, -2)), 0.5);
    tc_tensor i = tc_arange(context, 0, TOKENS, 1, TC_I64);
    s = tc_where(tc_ge(tc_unsqueeze(i, 1), tc_unsqueeze(i, 0)), s, -1e30);
    tc_tensor y = tc_permute(tc_matmul(tc_softmax(s, -1), v), 0, 2, 1, 3);
    return tc_matmul(tc_reshape(y, BATCH, TOKENS, WIDTH), w[4]);
}

static tc_tensor network(tc_tensor tokens, const tc_tensor *p)
{
    tc_tensor x = tc_reshape(tc_index_select(p[0], 0, tc_reshape(tokens, BATCH * TOKENS)), BATCH,
                             TOKENS, WIDTH);
    for (int b = 0; b < BLOCKS; b++) {
        const tc_tensor *w = p + 2 + PER_BLOCK * b;
        x = tc_add(x, attention(tc_layer_norm(x, TC_AXES(-1), w[0], TC_NONE, 1e-5), w));
        tc_tensor h = tc_gelu(tc_add(tc_matmul(x, w[5]), w[6]));
        x = tc_add(x, tc_matmul(h, w[7]));
    }
    return tc_matmul(x, p[1]);
}

static tc_tensor loss_of(tc_tensor tokens, tc_tensor targets, const tc_tensor *p)
{
    tc_tensor y = tc_reshape(network(tokens, p), BATCH * TOKENS, VOCAB);
    return tc_cross_entropy(y, tc_reshape(targets, BATCH * TOKENS));
}

/* Megatron-LM: the vocabulary, columns and rows over communicator 0. */
static void mark_tensor(const tc_mesh *m, tc_tensor *p)
{
    p[0] = tc_shard(p[0], m, TC_OVER(0, TC_WHOLE));
    p[1] = tc_shard(p[1], m, TC_OVER(TC_WHOLE, 0));
    for (int b = 0; b < BLOCKS; b++) {
        tc_tensor *w = p + 2 + PER_BLOCK * b;
        for (int i = 1; i < 4; i++) {
            w[i] = tc_shard(w[i], m, TC_OVER(TC_WHOLE, 0));
        }
        w[4] = tc_shard(w[4], m, TC_OVER(0, TC_WHOLE));
        w[5] = tc_shard(w[5], m, TC_OVER(TC_WHOLE, 0));
        w[6] = tc_shard(w[6], m, TC_OVER(0));
        w[7] = tc_shard(w[7], m, TC_OVER(0, TC_WHOLE));
    }
}

/* Fully sharded data parallel: the first axis of each parameter over the last communicator. */
static void mark_params(const tc_mesh *m, tc_tensor *p)
{
    for (int i = 0; i < PARAMS; i++) {
        int axes[2] = {m->n - 1, TC_WHOLE};
        p[i] = tc_shard(p[i], m, axes);
    }
}

/* Columns and rows over communicator 0, in addition all over 1. */
static void mark_both(const tc_mesh *m, tc_tensor *p)
{
    p[0] = tc_shard(p[0], m, TC_OVER(0, 1));
    p[1] = tc_shard(p[1], m, TC_OVER(1, 0));
    for (int b = 0; b < BLOCKS; b++) {
        tc_tensor *w = p + 2 + PER_BLOCK * b;
        for (int i = 1; i < 4; i++) {
            w[i] = tc_shard(w[i], m, TC_OVER(1, 0));
        }
        w[4] = tc_shard(w[4], m, TC_OVER(0, 1));
        w[5] = tc_shard(w[5], m, TC_OVER(1, 0));
        w[6] = tc_shard(w[6], m, TC_OVER(0));
        w[7] = tc_shard(w[7], m, TC_OVER(0, 1));
    }
}

typedef void (*marker)(const tc_mesh *m, tc_tensor *p);

typedef struct trained {
    float losses[STEPS];
    tc_tensor p[PARAMS]; /* as they are on this rank */
    tc_ctx *ctx;
} trained;

/* The rows of the batch that a rank has of `of`. */
static void fill(int32_t *tokens, int32_t *targets, int step, int part, int of)
{
    uint32_t state = (uint32_t)step + 11;
    for (int i = 0; i < BATCH * TOKENS; i++) {
        noise(&state);
        int32_t t = (int32_t)(state >> 16) % VOCAB, y = (int32_t)(state >> 20) % VOCAB;
        int at = i - part * BATCH * TOKENS / of;
        if (at >= 0 && at < BATCH * TOKENS / of) {
            tokens[at] = t;
            targets[at] = y;
        }
    }
}

/* Trains; mesh NULL: whole. data: the communicator of the batch, or NULL. */
static void train(const tc_mesh *mesh, marker mark, tc_comm *data, trained *t)
{
    enum { N = 3 + PARAMS };
    int32_t tokens[BATCH * TOKENS], targets[BATCH * TOKENS];
    tc_tensor all[N + TC_EFFECTS(PARAMS)], p[PARAMS], g[PARAMS], *effects = all + N;
    tc_program *f = NULL;
    int n = 0, of = data ? tc_comm_size(data) : 1, part = data ? tc_comm_rank(data) : 0;
    t->ctx = context = verbs_begin(false);
    make_params(t->ctx, p);
    memcpy(all + 3, p, sizeof(p));
    all[0] = tc_input(t->ctx, "tokens", TC_I32, BATCH, TOKENS);
    all[1] = tc_input(t->ctx, "targets", TC_I32, BATCH, TOKENS);
    tc_tensor in[2] = {all[0], all[1]};
    for (int i = 0; i < 2 && data; i++) {
        in[i] = tc_shard(in[i], mesh, TC_OVER(mesh->n - 1, TC_WHOLE));
    }
    if (mesh && mark) {
        mark(mesh, p);
    }
    all[2] = loss_of(in[0], in[1], p);
    CHECK_EQ_INT(tc_grad(all[2], p, PARAMS, g), TC_OK);
    CHECK_EQ_INT(tc_adamw(all + 3, g, PARAMS, 0.01, NULL, effects, &n), TC_OK);
    if (mesh) {
        CHECK_EQ_INT(tc_partition(all, N + n, all), TC_OK);
        if (tc_rank(all[0]) < 0) {
            printf("%s\n", tc_error(all[0]));
        }
    }
    memcpy(t->p, all + 3, sizeof(t->p));
    all[N - 1] = all[2];
    tc_status status = tc_compile_fn((tc_tensors){all, 2}, (tc_tensors){all + N - 1, n + 1}, NULL,
                                     &f);
    CHECK_EQ_INT(status, TC_OK);
    if (status) {
        printf("%s\n", tc_error(t->ctx));
        return;
    }
    for (int s = 0; s < STEPS; s++) {
        fill(tokens, targets, s, part, of);
        status = tc_run(f, TC_BUFS(TC_BUF(tokens, BATCH * TOKENS / of),
                                   TC_BUF(targets, BATCH * TOKENS / of)),
                        TC_BUFS(TC_BUF(&t->losses[s], 1)));
        CHECK_EQ_INT(status, TC_OK);
        if (status) {
            printf("%s\n", tc_error(f));
        }
    }
    tc_program_free(f);
}

/* Element i of this rank's part of a parameter [rows, columns] that is cut in that many parts. */
static void check_param(tc_tensor whole, tc_tensor own, const int *part, const int *of)
{
    static float all[VOCAB * HIDDEN], mine[VOCAB * HIDDEN];
    int64_t rows = tc_size(whole, 0), columns = tc_rank(whole) > 1 ? tc_size(whole, 1) : 1;
    int64_t r = rows / of[0], c = columns / of[1], wrong = 0;
    CHECK_EQ_INT(tc_size(own, 0), r);
    CHECK_EQ_INT(tc_read(whole, all, rows * columns), TC_OK);
    CHECK_EQ_INT(tc_read(own, mine, r * c), TC_OK);
    for (int64_t i = 0; i < r * c; i++) {
        float want = all[(part[0] * r + i / c) * columns + part[1] * c + i % c];
        wrong += !(fabsf(mine[i] - want) <= 2e-4f);
    }
    CHECK_EQ_INT(wrong, 0);
}

static void check(tc_comm *comm, const tc_mesh *mesh, marker mark, tc_comm *data, int first_rows,
                  int first_columns)
{
    trained whole, parts;
    train(NULL, NULL, NULL, &whole);
    train(mesh, mark, data, &parts);
    for (int s = 0; s < STEPS; s++) {
        float off = fabsf(whole.losses[s] - parts.losses[s]);
        CHECK(off <= 2e-5f * fabsf(whole.losses[s]));
        if (off > 2e-5f * fabsf(whole.losses[s]) && !tc_comm_rank(comm)) {
            printf("step %d: %.9g, expected %.9g\n", s, parts.losses[s], whole.losses[s]);
        }
    }
    int part[2] = {0, 0}, of[2] = {1, 1};
    if (first_rows >= 0) {
        part[0] = tc_comm_rank(mesh->comms[first_rows]);
        of[0] = tc_comm_size(mesh->comms[first_rows]);
    }
    if (first_columns >= 0) {
        part[1] = tc_comm_rank(mesh->comms[first_columns]);
        of[1] = tc_comm_size(mesh->comms[first_columns]);
    }
    check_param(whole.p[0], parts.p[0], part, of);
    tc_ctx_free(whole.ctx);
    tc_ctx_free(parts.ctx);
}

static void tensor_parallel(tc_comm *comm)
{
    const tc_mesh mesh = {&comm, 1};
    check(comm, &mesh, mark_tensor, NULL, 0, -1);
}

static void data_parallel(tc_comm *comm)
{
    const tc_mesh mesh = {&comm, 1};
    check(comm, &mesh, NULL, comm, -1, -1);
}

static void fully_sharded(tc_comm *comm)
{
    const tc_mesh mesh = {&comm, 1};
    check(comm, &mesh, mark_params, comm, 0, -1);
}

/* 2 x 2 ranks. */
static void tensor_and_data(tc_comm *comm)
{
    int rank = tc_comm_rank(comm);
    tc_comm *axes[2];
    CHECK_EQ_INT(tc_comm_split(comm, rank / 2, rank, &axes[0]), TC_OK);
    CHECK_EQ_INT(tc_comm_split(comm, rank % 2, rank, &axes[1]), TC_OK);
    const tc_mesh mesh = {axes, 2};
    check(comm, &mesh, mark_tensor, axes[1], 0, -1);
    check(comm, &mesh, mark_both, axes[1], 0, 1);
    tc_comm_free(axes[0]);
    tc_comm_free(axes[1]);
}

TEST(tensor_parallel_training_is_that_of_one_process)
{
    CHECK(ranks_run(2, 0, tensor_parallel));
    CHECK(ranks_run(4, 0, tensor_parallel));
}
TEST(a_batch_in_parts_is_data_parallel) { CHECK(ranks_run(2, 0, data_parallel)); }
TEST(parameters_in_parts_are_gathered) { CHECK(ranks_run(2, 0, fully_sharded)); }
TEST(a_mesh_of_two_axes) { CHECK(ranks_run(4, 0, tensor_and_data)); }

TEST_MAIN
