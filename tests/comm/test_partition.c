/* tests/comm/test_partition.c - tc_shard and tc_partition: a network over whole tensors trained on
 * several ranks, each with its parts, against one process with all of them; which collectives were
 * put in; each op on parts against the op on the whole. */
#include "tc_comm.h"

#include "tc_test.h"

#include "ranks.h"
#include "verbs.h"

enum {
    BATCH = 4,
    TOKENS = 6,
    VOCAB = 24,
    WIDTH = 16,
    HEADS = 4,
    HIDDEN = 32,
    BLOCKS = 2,
    STEPS = 3,
    PER_BLOCK = 8,
    PARAMS = 2 + PER_BLOCK * BLOCKS
};

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

static int ahead = -1; /* of tc_prefetch; -1: not called */

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
    CHECK_EQ_INT(tc_grad(all[2], all + 3, PARAMS, g), TC_OK);
    CHECK_EQ_INT(tc_adamw(all + 3, g, PARAMS, 0.01, NULL, effects, &n), TC_OK);
    if (mesh) {
        CHECK_EQ_INT(tc_partition(all, N + n, all), TC_OK);
        if (tc_rank(all[0]) < 0) {
            printf("%s\n", tc_error(all[0]));
        }
    }
    if (mesh && ahead >= 0) {
        CHECK_EQ_INT(tc_prefetch(all + 2, N - 2 + n, ahead, all + 2), TC_OK);
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
        status = tc_run(
            f, TC_BUFS(TC_BUF(tokens, BATCH * TOKENS / of), TC_BUF(targets, BATCH * TOKENS / of)),
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
    verbs_backend = "interp";
    const tc_mesh mesh = {&comm, 1};
    check(comm, &mesh, NULL, comm, -1, -1);
}

static void fully_sharded(tc_comm *comm)
{
    const tc_mesh mesh = {&comm, 1};
    check(comm, &mesh, mark_params, comm, 0, -1);
    ahead = 1;
    check(comm, &mesh, mark_params, comm, 0, -1);
}

/* 2 x 2 ranks. */
static void tensor_and_data(tc_comm *comm)
{
    verbs_backend = "interp";
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

/* ---- which collectives ---- */

/* How often the explanation of y's program, and of its gradients, has the words. */
static int count_in(tc_tensor *ys, int n, tc_tensors inputs, const char *words)
{
    static char told[1 << 17];
    tc_program *f = NULL;
    FILE *said = tmpfile();
    int times = 0;
    CHECK_EQ_INT(tc_compile_fn(inputs, (tc_tensors){ys, n}, NULL, &f), TC_OK);
    CHECK_EQ_INT(tc_explain_as(f, said, &(tc_explain_options){.all = true}), TC_OK);
    rewind(said);
    told[fread(told, 1, sizeof(told) - 1, said)] = 0;
    fclose(said);
    for (const char *at = told; (at = strstr(at, words)) != NULL; at++) {
        times++;
    }
    tc_program_free(f);
    return times;
}

TEST(columns_and_rows_need_one_all_reduce_each_way)
{
    tc_comm *comm = NULL;
    REQUIRE(tc_comm_from_env(&comm) == TC_OK); /* one rank: messages to itself */
    const tc_mesh mesh = {&comm, 1};
    tc_ctx *ctx = context = verbs_begin(false);
    uint32_t seed = 5;
    tc_tensor x = tc_input(ctx, "x", TC_F32, BATCH, TOKENS, WIDTH), w[PER_BLOCK], ys[2], g;
    for (int i = 1; i < 5; i++) {
        w[i] = tc_shard(weight(ctx, &seed, WIDTH, WIDTH), &mesh,
                        i < 4 ? TC_OVER(TC_WHOLE, 0) : TC_OVER(0, TC_WHOLE));
    }
    w[5] = tc_shard(weight(ctx, &seed, WIDTH, HIDDEN), &mesh, TC_OVER(TC_WHOLE, 0));
    w[7] = tc_shard(weight(ctx, &seed, HIDDEN, WIDTH), &mesh, TC_OVER(0, TC_WHOLE));
    tc_tensor mlp = tc_matmul(tc_gelu(tc_matmul(x, w[5])), w[7]);
    CHECK_EQ_INT(tc_grad(tc_sum(tc_square(mlp), TC_ALL, false), &x, 1, &g), TC_OK);
    ys[0] = mlp;
    CHECK_EQ_INT(tc_partition(ys, 1, ys), TC_OK);
    CHECK_EQ_INT(count_in(ys, 1, TC_TENSORS(x), "start_all_reduce:"), 1);
    ys[0] = mlp;
    ys[1] = g;
    CHECK_EQ_INT(tc_partition(ys, 2, ys), TC_OK);
    CHECK_EQ_INT(count_in(ys, 2, TC_TENSORS(x), "start_all_reduce:"), 2);
    tc_tensor heads_out = attention(x, w);
    CHECK_EQ_INT(tc_grad(tc_sum(tc_square(heads_out), TC_ALL, false), &x, 1, &g), TC_OK);
    ys[0] = heads_out;
    CHECK_EQ_INT(tc_partition(ys, 1, ys), TC_OK);
    CHECK_EQ_INT(count_in(ys, 1, TC_TENSORS(x), "start_all_reduce:"), 1);
    ys[0] = g;
    CHECK_EQ_INT(tc_partition(ys, 1, ys), TC_OK);
    CHECK_EQ_INT(count_in(ys, 1, TC_TENSORS(x), "start_all_reduce:"), 2);
    /* sharded weights: gathered, and their gradients scattered */
    tc_tensor p = weight(ctx, &seed, WIDTH, HIDDEN), m = tc_shard(p, &mesh, TC_OVER(0, TC_WHOLE));
    tc_tensor in = tc_shard(x, &mesh, TC_OVER(0, TC_WHOLE, TC_WHOLE));
    CHECK_EQ_INT(tc_grad(tc_sum(tc_square(tc_matmul(in, m)), TC_ALL, false), &p, 1, &g), TC_OK);
    ys[0] = x;
    ys[1] = g;
    CHECK_EQ_INT(tc_partition(ys, 2, ys), TC_OK);
    CHECK_EQ_INT(count_in(ys + 1, 1, TC_TENSORS(ys[0]), "start_all_gather:"), 1);
    CHECK_EQ_INT(count_in(ys + 1, 1, TC_TENSORS(ys[0]), "start_reduce_scatter:"), 1);
    tc_ctx_free(ctx);
    tc_comm_free(comm);
}

/* Layers of sharded weights: workspace of the program of a training step, and how many gathers. */
static int64_t sharded_step(int how_far, bool trains, int *gathers)
{
    enum { LAYERS = 8, WIDE = 64 };
    tc_comm *comm = NULL;
    tc_program *f = NULL;
    tc_program_info info;
    tc_tensor p[LAYERS], g[LAYERS], all[1 + TC_EFFECTS(LAYERS)], *effects = all + 1;
    uint32_t seed = 9;
    int n = 0;
    CHECK_EQ_INT(tc_comm_from_env(&comm), TC_OK);
    const tc_mesh mesh = {&comm, 1};
    tc_ctx *ctx = verbs_begin(false);
    all[0] = tc_input(ctx, "x", TC_F32, 2, WIDE);
    tc_tensor x = tc_shard(all[0], &mesh, TC_OVER(0, TC_WHOLE));
    for (int i = 0; i < LAYERS; i++) {
        p[i] = weight(ctx, &seed, WIDE, WIDE);
        x = tc_tanh(tc_matmul(x, tc_shard(p[i], &mesh, TC_OVER(0, TC_WHOLE))));
    }
    CHECK_EQ_INT(tc_grad(tc_sum(x, TC_ALL, false), p, LAYERS, g), TC_OK);
    CHECK_EQ_INT(tc_sgd(p, g, LAYERS, 0.01, NULL, effects, &n), TC_OK);
    if (!trains) {
        n = 1;
        effects[0] = tc_sum(x, TC_ALL, false);
    }
    CHECK_EQ_INT(tc_partition(all, 1 + n, all), TC_OK);
    if (how_far >= 0) {
        CHECK_EQ_INT(tc_prefetch(effects, n, how_far, effects), TC_OK);
    }
    *gathers = count_in(effects, n, TC_TENSORS(all[0]), "start_all_gather:");
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(all[0]), (tc_tensors){effects, n}, NULL, &f), TC_OK);
    tc_program_get_info(f, &info);
    tc_program_free(f);
    tc_ctx_free(ctx);
    tc_comm_free(comm);
    return info.arena_bytes;
}

TEST(gathered_parameters_are_free_between_uses)
{
    enum { WEIGHT = 64 * 64 * 4 };
    int once, twice;
    int64_t kept = sharded_step(-1, false, &once), freed = sharded_step(1, false, &twice);
    int64_t far = sharded_step(3, false, &twice);
    CHECK(once == 8 && twice == 8);
    CHECK(kept >= 8 * WEIGHT && freed < far && far < kept && freed < 4 * WEIGHT);
    kept = sharded_step(-1, true, &once);
    freed = sharded_step(1, true, &twice);
    CHECK_EQ_INT(once, 8);
    CHECK(twice > 12 && twice <= 16); /* the last layers keep theirs */
    CHECK(freed < kept - 5 * WEIGHT); /* on one rank parts of gradients are whole */
    if (tct_failures) {
        printf("workspace %lld, freed %lld\n", (long long)kept, (long long)freed);
    }
}

/* ---- prefetch ---- */

static tc_status two_layers(void *weights, const tc_tensor *carry, const tc_tensor *x,
                            tc_tensor *next, tc_tensor *y)
{
    const tc_tensor *w = weights;
    (void)x;
    (void)y;
    next[0] = tc_tanh(tc_matmul(tc_matmul(carry[0], w[0]), w[1]));
    return TC_OK;
}

/* A loop over two gathers, four gathers in one op, a copy of a parameter. */
static tc_tensor used_at_once(tc_tensor x, tc_tensor *w)
{
    tc_tensor last;
    CHECK_EQ_INT(tc_scan(TC_TENSORS(x), TC_TENSORS(), 3, false, two_layers, w, &last, NULL, 0),
                 TC_OK);
    last = tc_matmul(last, tc_cat(TC_TENSORS(w[2], w[3], w[4], w[5]), 1));
    return tc_tanh(tc_matmul(tc_reshape(last, 12, 4), w[6]));
}

static void prefetched(tc_comm *comm)
{
    enum { N = 7, SIDE = 4 };
    const tc_mesh mesh = {&comm, 1};
    float got[48], want[48], a[SIDE * SIDE], b[SIDE * SIDE];
    verbs_backend = "interp";
    for (int far = 0; far < 3; far++) {
        tc_ctx *ctx = context = verbs_begin(false);
        uint32_t seed = 5;
        tc_tensor w[N], m[N], g[N], out[2];
        tc_program *f = NULL;
        for (int i = 0; i < N; i++) {
            w[i] = weight(ctx, &seed, SIDE, SIDE);
            m[i] = tc_shard(w[i], &mesh, TC_OVER(TC_WHOLE, 0));
        }
        tc_tensor copy = weight(ctx, &seed, SIDE, SIDE), x = tc_full(ctx, 1, TC_F32, 3, SIDE);
        tc_tensor whole = used_at_once(x, w), parts = used_at_once(x, m);
        CHECK_EQ_INT(tc_grad(tc_sum(whole, TC_ALL, false), w, N, g), TC_OK);
        whole = tc_add(whole, tc_sum(tc_matmul(g[1], g[3]), TC_ALL, false));
        CHECK_EQ_INT(tc_grad(tc_sum(parts, TC_ALL, false), w, N, g), TC_OK);
        out[0] = tc_add(parts, tc_sum(tc_matmul(g[1], g[3]), TC_ALL, false));
        out[1] = tc_assign(copy, tc_shard(m[0], &mesh, TC_OVER(TC_WHOLE, TC_WHOLE)));
        CHECK_EQ_INT(tc_partition(out, 2, out), TC_OK);
        CHECK_EQ_INT(tc_prefetch(out, 2, far, out), TC_OK);
        CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(), (tc_tensors){out, 2}, NULL, &f), TC_OK);
        CHECK_EQ_INT(tc_run(f, (tc_bufs){NULL, 0}, TC_BUFS(TC_BUF(got, 48))), TC_OK);
        CHECK_EQ_INT(tc_read(whole, want, 48), TC_OK);
        for (int i = 0; i < 48; i++) {
            CHECK(fabsf(got[i] - want[i]) <= 1e-5f * (1 + fabsf(want[i])));
        }
        CHECK_EQ_INT(tc_read(copy, a, SIDE * SIDE), TC_OK);
        CHECK_EQ_INT(tc_read(w[0], b, SIDE * SIDE), TC_OK);
        CHECK(!memcmp(a, b, sizeof(a)));
        tc_program_free(f);
        tc_ctx_free(ctx);
    }
}

TEST(gathers_that_one_op_a_loop_or_an_effect_uses)
{
    CHECK(ranks_run(2, 0, prefetched));
}

/* ---- programs over the same parameters ---- */

static tc_tensor layer(tc_tensor x, tc_tensor w, tc_tensor b)
{
    return tc_tanh(tc_add(tc_matmul(x, w), b));
}

static void trained_then_read(tc_comm *comm)
{
    enum { ROWS_X = 3, IN = 4, OUT = 8 };
    const tc_mesh mesh = {&comm, 1};
    float got[ROWS_X * OUT], want[ROWS_X * OUT], loss;
    verbs_backend = "interp";
    tc_ctx *ctx = context = verbs_begin(false);
    tc_tensor x = tc_full(ctx, 1, TC_F32, ROWS_X, IN), p[2][2];
    const int *columns = TC_OVER(TC_WHOLE, 0);
    for (int in_parts = 0; in_parts < 2; in_parts++) {
        tc_tensor *q = p[in_parts], g[2], all[1 + TC_EFFECTS(2)];
        tc_program *f = NULL;
        uint32_t seed = 5;
        int n = 0;
        q[0] = weight(ctx, &seed, IN, OUT);
        q[1] = weight(ctx, &seed, OUT, 1);
        all[0] = tc_sum(layer(x, in_parts ? tc_shard(q[0], &mesh, columns) : q[0], q[1]), TC_ALL,
                        false);
        CHECK_EQ_INT(tc_grad(all[0], q, 2, g), TC_OK);
        CHECK_EQ_INT(tc_sgd(q, g, 2, 0.1, NULL, all + 1, &n), TC_OK);
        if (in_parts) {
            CHECK_EQ_INT(tc_partition(all, 1 + n, all), TC_OK);
        }
        CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(), (tc_tensors){all, 1 + n}, NULL, &f), TC_OK);
        for (int s = 0; s < STEPS; s++) {
            CHECK_EQ_INT(tc_run(f, (tc_bufs){NULL, 0}, TC_BUFS(TC_BUF(&loss, 1))), TC_OK);
        }
        tc_program_free(f);
    }
    /* the bias has no mark: it was cut as its gradient */
    tc_tensor y = layer(x, tc_shard(p[1][0], &mesh, columns), p[1][1]);
    CHECK_EQ_INT(tc_partition(&y, 1, &y), TC_OK);
    CHECK_EQ_INT(verbs_run(y, (tc_bufs){NULL, 0}, TC_BUFS(TC_BUF(got, ROWS_X * OUT))), TC_OK);
    CHECK_EQ_INT(tc_read(layer(x, p[0][0], p[0][1]), want, ROWS_X * OUT), TC_OK);
    for (int i = 0; i < ROWS_X * OUT; i++) {
        CHECK(fabsf(got[i] - want[i]) <= 1e-5f);
    }
    y = layer(x, tc_shard(p[1][0], &mesh, TC_OVER(0, TC_WHOLE)), p[1][1]);
    CHECK_EQ_INT(tc_partition(&y, 1, &y), TC_ERR_ARGUMENT);
    CHECK(strstr(tc_error(y), "cut otherwise") != NULL);
    tc_ctx_free(ctx);
}

TEST(a_later_program_reads_the_parts_that_were_trained)
{
    CHECK(ranks_run(2, 0, trained_then_read));
}

/* ---- each op on parts ---- */

enum { OPS = 31, ROWS = 8, COLUMNS = 4 };

/* An op of x [8, 4] and w [4, 8]; i [8, 4] are indices below 4. */
static tc_tensor op_of(int op, tc_tensor x, tc_tensor w, tc_tensor i)
{
    switch (op) {
    case 0: return tc_sum(x, TC_AXES(0), false);
    case 1: return tc_max(x, TC_AXES(1), true);
    case 2: return tc_min(x, TC_ALL, false);
    case 3: return tc_any(tc_gt(x, 0.5), TC_AXES(0), false);
    case 4: return tc_all(tc_gt(x, -0.5), TC_AXES(1), false);
    case 5: return tc_var(x, TC_AXES(0), 1, false);
    case 6: return tc_argmax(x, 0, false);
    case 7: return tc_prod(x, TC_AXES(1), false);
    case 8: return tc_softmax(x, 0);
    case 9: return tc_log_softmax(x, 1);
    case 10: return tc_layer_norm(x, TC_AXES(-1), TC_NONE, TC_NONE, 1e-5);
    case 11: return tc_cumsum(x, 0);
    case 12: return tc_cat(TC_TENSORS(x, tc_mul(x, 2)), 0);
    case 13: return tc_cat(TC_TENSORS(x, tc_mul(x, 2)), 1);
    case 14: return tc_slice(x, 0, 1, 7, 2);
    case 15: return tc_pad(x, 1, 1, 2, 3.0);
    case 16: return tc_flip(x, 0);
    case 17: return tc_reshape(x, 4, 2, 4);
    case 18: return tc_reshape(tc_reshape(x, 2, 16), 32);
    case 19: return tc_mul(tc_transpose(x, 0, 1), tc_add(w, 1));
    case 20: return tc_matmul(x, w);
    case 21: return tc_matmul(w, x);
    case 22: return tc_gather(x, 0, i);
    case 23: return tc_gather(x, 1, tc_remainder(tc_sub(i, 8), 4));
    case 24: return tc_index_select(x, 0, tc_reshape(tc_slice(i, 1, 0, 1, 1), ROWS));
    case 25:
        return tc_scatter_add(tc_mul(tc_sum(x, TC_ALL, false), tc_cast(tc_ne(x, x), TC_F32)), 0, i,
                              x);
    case 26: return tc_expand(tc_unsqueeze(tc_mean(x, TC_AXES(0), false), 0), 3, COLUMNS);
    case 27: {
        tc_tensor values, places;
        tc_sort(x, 0, false, &values, &places);
        return values;
    }
    case 28: return tc_cross_entropy(x, tc_reshape(tc_slice(i, 1, 0, 1, 1), ROWS));
    case 29: return tc_where(tc_gt(x, tc_mean(x, TC_ALL, false)), x, tc_transpose(w, 0, 1));
    default: return tc_mul(x, tc_rand(context, 7, TC_F32, ROWS, COLUMNS));
    }
}

static void ops_in_parts(tc_comm *comm)
{
    static const int marks[][2] = {{0, TC_WHOLE}, {TC_WHOLE, 0}};
    float data[32], other[32], want[512], got[512];
    int32_t index[32];
    uint32_t seed = 17;
    verbs_backend = "interp";
    const tc_mesh mesh = {&comm, 1};
    for (int k = 0; k < 32; k++) {
        data[k] = noise(&seed);
        other[k] = noise(&seed);
        index[k] = (int32_t)(seed >> 20) % 4;
    }
    for (int op = 0; op < OPS; op++) {
        for (int of = 0; of < 8; of++) { /* which of the operands have which mark */
            tc_ctx *ctx = context = verbs_begin(false);
            tc_tensor x = tc_borrow(ctx, data, TC_F32, ROWS, COLUMNS);
            tc_tensor w = tc_borrow(ctx, other, TC_F32, COLUMNS, ROWS);
            tc_tensor i = tc_borrow(ctx, index, TC_I32, ROWS, COLUMNS);
            tc_tensor whole = op_of(op, x, w, i);
            int64_t n = tc_nbytes(whole) / tc_dtype_size(tc_dtype_of(whole)), wrong = 0;
            tc_tensor parts = op_of(op, tc_shard(x, &mesh, marks[of & 1]),
                                    of & 2 ? tc_shard(w, &mesh, marks[of >> 2]) : w,
                                    of & 4 ? tc_shard(i, &mesh, marks[of >> 1 & 1]) : i);
            CHECK_EQ_INT(tc_partition(&parts, 1, &parts), TC_OK);
            whole = tc_cast(whole, TC_F32);
            parts = tc_cast(parts, TC_F32);
            tc_status status = verbs_run(parts, (tc_bufs){NULL, 0}, TC_BUFS(TC_BUF(got, n)));
            CHECK_EQ_INT(status, TC_OK);
            CHECK_EQ_INT(tc_read(whole, want, n), TC_OK);
            for (int64_t k = 0; k < n; k++) {
                wrong += !(fabsf(got[k] - want[k]) <= 1e-5f * (1 + fabsf(want[k])));
            }
            if (wrong || status) {
                printf("op %d, marks %d: %d wrong; %s\n", op, of, (int)wrong, tc_error(parts));
            }
            CHECK_EQ_INT((int)wrong, 0);
            tc_ctx_free(ctx);
        }
    }
}

TEST(each_op_on_parts_is_the_op_on_the_whole)
{
    CHECK(ranks_run(2, 0, ops_in_parts));
}

TEST(marks_that_do_not_fit)
{
    tc_comm *comm = NULL;
    REQUIRE(tc_comm_from_env(&comm) == TC_OK);
    tc_comm *both[2] = {comm, comm};
    const tc_mesh mesh = {both, 2};
    tc_ctx *ctx = verbs_begin(false);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 5), y;
    CHECK_EQ_INT(tc_rank(tc_shard(x, &mesh, TC_OVER(0, TC_WHOLE))), 2);
    CHECK(strstr(tc_error(tc_shard(x, &mesh, TC_OVER(0, 2))), "mesh of 2") != NULL);
    CHECK(strstr(tc_error(tc_shard(x, &mesh, TC_OVER(0, 1))), "one communicator") != NULL);
    CHECK(strstr(tc_error(tc_shard(x, NULL, TC_OVER(0, 1))), "NULL") != NULL);
    CHECK_EQ_INT(tc_partition(NULL, 1, &y), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_partition(&x, 0, &y), TC_ERR_ARGUMENT);
    y = TC_NONE;
    CHECK(tc_partition(&y, 1, &y) != TC_OK);
    tc_tensor m = tc_shard(x, &mesh, TC_OVER(0, TC_WHOLE));
    tc_comm_free(comm);
    CHECK_EQ_INT(tc_partition(&m, 1, &y), TC_ERR_COMM);
    CHECK(strstr(tc_error(y), "was freed") != NULL);
    tc_ctx_free(ctx);
}

static void uneven(tc_comm *comm)
{
    const tc_mesh mesh = {&comm, 1};
    tc_ctx *ctx = verbs_begin(false);
    tc_tensor x = tc_shard(tc_input(ctx, "x", TC_F32, 3, 5), &mesh, TC_OVER(0, TC_WHOLE));
    CHECK(strstr(tc_error(x), "multiple of 2") != NULL);
    tc_ctx_free(ctx);
}

TEST(a_size_that_ranks_do_not_divide)
{
    CHECK(ranks_run(2, 0, uneven));
}

TEST(tensor_parallel_training_is_that_of_one_process)
{
    CHECK(ranks_run(2, 0, tensor_parallel));
    verbs_backend = "interp";
    CHECK(ranks_run(4, 0, tensor_parallel));
    verbs_backend = NULL;
}
TEST(a_batch_in_parts_is_data_parallel)
{
    CHECK(ranks_run(2, 0, data_parallel));
}
TEST(parameters_in_parts_are_gathered)
{
    CHECK(ranks_run(2, 0, fully_sharded));
}
TEST(a_mesh_of_two_axes)
{
    CHECK(ranks_run(4, 0, tensor_and_data));
}

TEST_MAIN
