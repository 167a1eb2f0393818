/* tests/comm/verbs.h - every collective on a communicator of any engine against its definition.
 * Rank r gives values that follow from r, so each rank knows what all others gave. */
#ifndef TESTS_VERBS_H
#define TESTS_VERBS_H

#include "tc_comm.h"

enum { VERBS_MOST = 1 << 17 };

static const char *verbs_backend; /* NULL: the best that is here */

static tc_ctx *verbs_begin(bool reproducible)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = verbs_backend, .threads = 1, .verify = true};
    o.reproducible = reproducible;
    return tc_ctx_make(&ctx, &o) ? NULL : ctx;
}

/* Runs y on its inputs; what went wrong is printed. */
static tc_status verbs_run(tc_tensor y, tc_bufs in, tc_bufs out)
{
    tc_program *f = NULL;
    tc_status status = tc_compile(y, &f);
    if (status) {
        printf("%s\n", tc_error(y));
        return status;
    }
    status = tc_run(f, in, out);
    if (status) {
        printf("%s\n", tc_error(f));
    }
    tc_program_free(f);
    return status;
}

/* What rank r gives at place i: small whole numbers, exact in every dtype. */
static double verbs_value(int rank, int64_t i)
{
    return (double)((i * 3 + rank * 5) % 7);
}

static double verbs_fold(tc_comm_how how, int size, int64_t i)
{
    double v = verbs_value(0, i);
    for (int r = 1; r < size; r++) {
        double w = verbs_value(r, i);
        v = how == TC_COMM_PROD  ? v * w
            : how == TC_COMM_MIN ? (w < v ? w : v)
            : how == TC_COMM_MAX ? (w > v ? w : v)
                                 : v + w;
    }
    return how == TC_COMM_MEAN ? v / size : v;
}

/* An all_reduce of `how` in a dtype, given and taken as f64. */
static void verbs_reduce(tc_comm *comm, tc_dtype t, tc_comm_how how, int64_t n)
{
    static double in[VERBS_MOST], out[VERBS_MOST];
    tc_ctx *ctx = verbs_begin(false);
    tc_tensor x = tc_cast(tc_input(ctx, "x", TC_F64, n), t);
    tc_tensor y = tc_cast(tc_comm_all_reduce(comm, x, how), TC_F64);
    int wrong = 0;
    for (int64_t i = 0; i < n; i++) {
        in[i] = verbs_value(tc_comm_rank(comm), i);
    }
    CHECK_EQ_INT(verbs_run(y, TC_BUFS(TC_BUF(in, n)), TC_BUFS(TC_BUF(out, n))), TC_OK);
    for (int64_t i = 0; i < n; i++) {
        double want = verbs_fold(how, tc_comm_size(comm), i);
        bool narrow = how == TC_COMM_MEAN && tc_dtype_size(t) <= 4; /* not exact */
        wrong += narrow ? fabs(out[i] - want) > 0.01 * fabs(want) + 0.02 : out[i] != want;
    }
    if (wrong) {
        printf("%s, reduction %d of %lld: %d wrong\n", tc_dtype_name(t), (int)how, (long long)n,
               wrong);
    }
    CHECK_EQ_INT(wrong, 0);
    tc_ctx_free(ctx);
}

static void verbs_reductions(tc_comm *comm)
{
    static const tc_dtype dtypes[] = {TC_F64, TC_F32, TC_BF16, TC_F16, TC_U8,  TC_I8,
                                      TC_U16, TC_I16, TC_U32,  TC_I32, TC_U64, TC_I64};
    for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++) {
        bool takes = strcmp(tc_comm_engine_name(comm), "nccl") != 0 ||
                     (dtypes[d] != TC_U16 && dtypes[d] != TC_I16);
        if (!takes) {
            continue;
        }
        verbs_reduce(comm, dtypes[d], TC_COMM_SUM, 37);
        verbs_reduce(comm, dtypes[d], TC_COMM_MAX, 5);
    }
    for (int how = TC_COMM_SUM; how <= TC_COMM_MEAN; how++) {
        verbs_reduce(comm, TC_F32, (tc_comm_how)how, 11);
        verbs_reduce(comm, TC_I32, (tc_comm_how)how, 11);
    }
    verbs_reduce(comm, TC_F32, TC_COMM_SUM, VERBS_MOST); /* several chunks */
    verbs_reduce(comm, TC_F32, TC_COMM_SUM, 1);
}

/* x [4 * size, 3] of rank r is 100 r + place. */
static void verbs_moves(tc_comm *comm)
{
    int size = tc_comm_size(comm), rank = tc_comm_rank(comm), rows = 4 * size, n = rows * 3;
    float *in = calloc((size_t)n, 4), *out = calloc((size_t)(n * size), 4);
    tc_ctx *ctx = verbs_begin(false);
    tc_tensor x = tc_input(ctx, "x", TC_F32, rows, 3);
    tc_bufs ins = TC_BUFS(TC_BUF(in, n));
    for (int i = 0; i < n; i++) {
        in[i] = (float)(100 * rank + i);
    }
    int wrong = 0;
    /* joined along the second axis */
    CHECK_EQ_INT(verbs_run(tc_comm_all_gather(comm, x, 1), ins, TC_BUFS(TC_BUF(out, n * size))), 0);
    for (int i = 0; i < n * size; i++) {
        int row = i / (3 * size), r = i % (3 * size) / 3, column = i % 3;
        wrong += out[i] != (float)(100 * r + 3 * row + column);
    }
    CHECK_EQ_INT(wrong, 0);
    CHECK_EQ_INT(verbs_run(tc_comm_all_gather(comm, x, 0), ins, TC_BUFS(TC_BUF(out, n * size))), 0);
    for (int i = 0; i < n * size; i++) {
        wrong += out[i] != (float)(100 * (i / n) + i % n);
    }
    CHECK_EQ_INT(wrong, 0);
    /* summed, 4 rows each */
    CHECK_EQ_INT(verbs_run(tc_comm_reduce_scatter(comm, x, 0, TC_COMM_SUM), ins,
                           TC_BUFS(TC_BUF(out, 12))),
                 0);
    for (int i = 0; i < 12; i++) {
        wrong += out[i] != (float)(100 * size * (size - 1) / 2 + size * (12 * rank + i));
    }
    CHECK_EQ_INT(wrong, 0);
    CHECK_EQ_INT(verbs_run(tc_comm_reduce_scatter(comm, x, 0, TC_COMM_MAX), ins,
                           TC_BUFS(TC_BUF(out, 12))),
                 0);
    for (int i = 0; i < 12; i++) {
        wrong += out[i] != (float)(100 * (size - 1) + 12 * rank + i);
    }
    CHECK_EQ_INT(wrong, 0);
    CHECK_EQ_INT(verbs_run(tc_comm_broadcast(comm, x, size - 1), ins, TC_BUFS(TC_BUF(out, n))), 0);
    for (int i = 0; i < n; i++) {
        wrong += out[i] != (float)(100 * (size - 1) + i);
    }
    CHECK_EQ_INT(wrong, 0);
    /* rows cut, columns joined: [4, 3 * size] */
    CHECK_EQ_INT(verbs_run(tc_comm_all_to_all(comm, x, 0, 1), ins, TC_BUFS(TC_BUF(out, n))), 0);
    for (int i = 0; i < n; i++) {
        int row = i / (3 * size), r = i % (3 * size) / 3, column = i % 3;
        wrong += out[i] != (float)(100 * r + 3 * (4 * rank + row) + column);
    }
    CHECK_EQ_INT(wrong, 0);
    CHECK_EQ_INT(verbs_run(tc_comm_barrier(comm, tc_add(x, 1)), ins, TC_BUFS(TC_BUF(out, n))), 0);
    CHECK(out[0] == in[0] + 1 && out[n - 1] == in[n - 1] + 1);
    tc_ctx_free(ctx);
    free(in);
    free(out);
}

/* Around a ring, more than fits what is on the way. */
static void verbs_ring(tc_comm *comm)
{
    enum { N = 100000 };
    static float in[N], out[N], kept[N];
    int size = tc_comm_size(comm), rank = tc_comm_rank(comm);
    tc_ctx *ctx = verbs_begin(false);
    tc_tensor x = tc_input(ctx, "x", TC_F32, N);
    for (int i = 0; i < N; i++) {
        in[i] = (float)(rank * 1000 + i % 1000);
    }
    tc_tensor ys[2] = {tc_comm_send(comm, x, (rank + 1) % size),
                       tc_comm_recv(comm, x, (rank + size - 1) % size)};
    tc_program *f = NULL;
    REQUIRE(tc_compile_fn(TC_TENSORS(x), (tc_tensors){ys, 2}, NULL, &f) == TC_OK);
    for (int times = 0; times < 3; times++) {
        tc_status status = tc_run(f, TC_BUFS(TC_BUF(in, N)),
                                  TC_BUFS(TC_BUF(kept, N), TC_BUF(out, N)));
        CHECK_EQ_INT(status, TC_OK);
        if (status) {
            printf("%s\n", tc_error(f));
        }
    }
    int wrong = 0;
    for (int i = 0; i < N; i++) {
        wrong += out[i] != (float)((rank + size - 1) % size * 1000 + i % 1000) || kept[i] != in[i];
    }
    CHECK_EQ_INT(wrong, 0);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* Even and odd ranks apart, in the other order. */
static void verbs_split(tc_comm *comm)
{
    int size = tc_comm_size(comm), rank = tc_comm_rank(comm);
    tc_comm *half = NULL, *none = comm;
    CHECK_EQ_INT(tc_comm_split(comm, rank % 2, -rank, &half), TC_OK);
    REQUIRE(half != NULL);
    int of = (size + 1 - rank % 2) / 2;
    CHECK_EQ_INT(tc_comm_size(half), of);
    CHECK_EQ_INT(tc_comm_rank(half), of - 1 - rank / 2);
    tc_ctx *ctx = verbs_begin(false);
    float in[1] = {(float)rank}, out[1], want = 0;
    tc_tensor x = tc_input(ctx, "x", TC_F32, 1);
    CHECK_EQ_INT(verbs_run(tc_comm_all_reduce(half, x, TC_COMM_SUM), TC_BUFS(TC_BUF(in, 1)),
                           TC_BUFS(TC_BUF(out, 1))),
                 TC_OK);
    for (int r = rank % 2; r < size; r += 2) {
        want += (float)r;
    }
    CHECK(out[0] == want);
    tc_comm_free(half);
    CHECK_EQ_INT(tc_comm_split(comm, rank ? 0 : -1, 0, &none), TC_OK);
    CHECK((none == NULL) == (rank == 0));
    tc_comm_free(none);
    tc_ctx_free(ctx);
}

TCT_UNUSED static void verbs_check(tc_comm *comm)
{
    verbs_reductions(comm);
    verbs_moves(comm);
    if (tc_comm_size(comm) > 1) {
        verbs_ring(comm);
        if (strcmp(tc_comm_engine_name(comm), "nccl") != 0) {
            verbs_split(comm);
        }
    }
}

#endif
