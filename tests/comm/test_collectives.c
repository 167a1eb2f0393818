/* tests/comm/test_collectives.c - collectives over shared memory, with processes as ranks: each
 * against its definition, gradients against the sum of all losses, sizes that are symbols, vmap,
 * sums in tc's own order. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "tc_comm.h"

#include "tc_test.h"

#include "ranks.h"
#include "verbs.h"

TEST(each_collective_of_two_ranks)
{
    CHECK(ranks_run(2, 20000, verbs_check));
}
TEST(each_collective_of_four_ranks)
{
    CHECK(ranks_run(4, 30000, verbs_check));
}
TEST(each_collective_of_one_rank)
{
    CHECK(ranks_run(1, 5000, verbs_check));
}

/* ---- options.check ---- */

/* -1 becomes NaN in a kernel after the sum of all ranks, in every rank alike. */
static void check_kernels(tc_comm *comm)
{
    float x[8], y[8];
    tc_ctx *ctx = verbs_begin(false);
    tc_tensor in = tc_input(ctx, "x", TC_F32, 8), sum = tc_comm_all_reduce(comm, in, TC_COMM_SUM);
    tc_tensor out = tc_sqrt(tc_sub(sum, 2));
    tc_options o = {.check = TC_CHECK_NAN | TC_CHECK_NO_FILE};
    tc_program *f = NULL;
    REQUIRE(tc_compile_fn(TC_TENSORS(in), TC_TENSORS(out), &o, &f) == TC_OK);
    for (int nan = 0; nan < 2; nan++) {
        for (int i = 0; i < 8; i++) {
            x[i] = nan && i == 5 ? 0 : 1 + (float)i;
        }
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, 8)), TC_BUFS(TC_BUF(y, 8))),
                     nan ? TC_ERR_CHECK : TC_OK);
        CHECK(nan || (y[0] == 0 && y[1] == sqrtf(2)));
    }
    CHECK_HAS(tc_error(f), "element 5 of the result of tc_sqrt at test_collectives.c:");
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(kernels_among_collectives_are_checked)
{
    CHECK(ranks_run(2, 20000, check_kernels));
}

/* ---- gradients ---- */

/* What each rank makes of x of all ranks, as a loss. */
typedef tc_tensor (*loss_function)(tc_comm *comm, tc_tensor x, tc_tensor w);

static tc_tensor loss_sum(tc_comm *comm, tc_tensor x, tc_tensor w)
{
    return tc_sum(tc_mul(w, tc_square(tc_comm_all_reduce(comm, x, TC_COMM_SUM))), TC_ALL, 0);
}
static tc_tensor loss_mean(tc_comm *comm, tc_tensor x, tc_tensor w)
{
    return tc_sum(tc_mul(w, tc_square(tc_comm_all_reduce(comm, x, TC_COMM_MEAN))), TC_ALL, 0);
}
static tc_tensor loss_max(tc_comm *comm, tc_tensor x, tc_tensor w)
{
    return tc_sum(tc_mul(w, tc_square(tc_comm_all_reduce(comm, x, TC_COMM_MAX))), TC_ALL, 0);
}
static tc_tensor loss_prod(tc_comm *comm, tc_tensor x, tc_tensor w)
{
    return tc_sum(tc_mul(w, tc_comm_all_reduce(comm, x, TC_COMM_PROD)), TC_ALL, 0);
}
static tc_tensor loss_gather(tc_comm *comm, tc_tensor x, tc_tensor w)
{
    tc_tensor all = tc_comm_all_gather(comm, tc_square(x), 0);
    return tc_sum(tc_mul(tc_sum(w, TC_ALL, 0), tc_mul(all, all)), TC_ALL, 0);
}
static tc_tensor loss_scatter(tc_comm *comm, tc_tensor x, tc_tensor w)
{
    tc_tensor part = tc_comm_reduce_scatter(comm, x, 0, TC_COMM_SUM);
    return tc_sum(tc_mul(tc_sum(w, TC_ALL, 0), tc_square(part)), TC_ALL, 0);
}
static tc_tensor loss_broadcast(tc_comm *comm, tc_tensor x, tc_tensor w)
{
    return tc_sum(tc_mul(w, tc_square(tc_comm_broadcast(comm, x, 1))), TC_ALL, 0);
}
static tc_tensor loss_all_to_all(tc_comm *comm, tc_tensor x, tc_tensor w)
{
    return tc_sum(tc_mul(w, tc_square(tc_comm_all_to_all(comm, x, 0, 0))), TC_ALL, 0);
}
static tc_tensor loss_barrier(tc_comm *comm, tc_tensor x, tc_tensor w)
{
    return tc_sum(tc_mul(w, tc_square(tc_comm_barrier(comm, x))), TC_ALL, 0);
}

enum { POINTS = 4 };

/* The sum of all ranks' losses where x of rank `who` is moved at `place`. */
static double loss_at(tc_comm *comm, tc_program *f, const double *x, const double *w, int who,
                      int place, double by)
{
    double moved[POINTS], loss[1] = {0};
    memcpy(moved, x, sizeof(moved));
    moved[place] += who == tc_comm_rank(comm) ? by : 0;
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(moved, POINTS), TC_BUF((double *)(uintptr_t)w, POINTS)),
                        TC_BUFS(TC_BUF(loss, 1))),
                 TC_OK);
    return loss[0];
}

/* Central differences: polynomials of x, so they are exact but for rounding. */
static void gradient_of(tc_comm *comm, loss_function of, const char *name)
{
    int rank = tc_comm_rank(comm), size = tc_comm_size(comm);
    double x[POINTS], w[POINTS], grad[POINTS];
    tc_ctx *ctx = verbs_begin(false);
    tc_tensor tx = tc_input(ctx, "x", TC_F64, POINTS), tw = tc_input(ctx, "w", TC_F64, POINTS);
    tc_tensor loss = of(comm, tx, tw), g;
    tc_tensor total = tc_comm_all_reduce(comm, tc_reshape(loss, 1), TC_COMM_SUM);
    tc_program *fg = NULL, *fl = NULL;
    for (int i = 0; i < POINTS; i++) {
        x[i] = 1.5 + 0.25 * i + 0.5 * ((rank + i) % 3);
        w[i] = 1 + rank + 0.5 * i;
    }
    CHECK_EQ_INT(tc_grad(loss, &tx, 1, &g), TC_OK);
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(tx, tw), TC_TENSORS(g), NULL, &fg), TC_OK);
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(tx, tw), TC_TENSORS(total), NULL, &fl), TC_OK);
    if (tct_failures) {
        printf("%s: %s\n", name, tc_error(g));
    } else {
        CHECK_EQ_INT(tc_run(fg, TC_BUFS(TC_BUF(x, POINTS), TC_BUF(w, POINTS)),
                            TC_BUFS(TC_BUF(grad, POINTS))),
                     TC_OK);
        for (int who = 0; who < size; who++) {
            for (int i = 0; i < POINTS; i++) {
                double up = loss_at(comm, fl, x, w, who, i, 1e-4);
                double down = loss_at(comm, fl, x, w, who, i, -1e-4);
                double want = (up - down) / 2e-4;
                bool right = who != rank || fabs(grad[i] - want) < 1e-5 * (1 + fabs(want));
                CHECK(right);
                if (!right) {
                    printf("%s: rank %d, place %d: %g, differences say %g\n", name, rank, i,
                           grad[i], want);
                }
            }
        }
    }
    tc_program_free(fg);
    tc_program_free(fl);
    tc_ctx_free(ctx);
}

static void gradients(tc_comm *comm)
{
    gradient_of(comm, loss_sum, "sum");
    gradient_of(comm, loss_mean, "mean");
    gradient_of(comm, loss_max, "max");
    gradient_of(comm, loss_prod, "prod");
    gradient_of(comm, loss_gather, "gather");
    gradient_of(comm, loss_scatter, "scatter");
    gradient_of(comm, loss_broadcast, "broadcast");
    gradient_of(comm, loss_all_to_all, "all_to_all");
    gradient_of(comm, loss_barrier, "barrier");
}

TEST(gradients_are_those_of_the_sum_of_all_losses)
{
    CHECK(ranks_run(2, 20000, gradients));
}

/* Stage 0 sends 3 x to stage 1, whose loss is the sum of squares of what comes: 18 x. */
static void pipeline(tc_comm *comm)
{
    int rank = tc_comm_rank(comm);
    float in[3] = {1, 2, 3}, out[3] = {0}, values[3];
    tc_ctx *ctx = verbs_begin(false);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3), g;
    tc_program *f = NULL;
    tc_tensor y = rank == 0 ? tc_mul(tc_comm_send(comm, tc_mul(x, 3), 1), 0)
                            : tc_square(tc_comm_recv(comm, x, 0));
    CHECK_EQ_INT(tc_grad(tc_sum(y, TC_ALL, 0), &x, 1, &g), TC_OK);
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y, g), NULL, &f), TC_OK);
    tc_status status = tc_run(f, TC_BUFS(TC_BUF(in, 3)),
                              TC_BUFS(TC_BUF(values, 3), TC_BUF(out, 3)));
    CHECK_EQ_INT(status, TC_OK);
    if (status) {
        printf("%s\n", tc_error(f));
    }
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT((int)out[i], rank == 0 ? 18 * (int)in[i] : 0);
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(a_gradient_goes_back_from_the_rank_that_received)
{
    CHECK(ranks_run(2, 10000, pipeline));
}

/* ---- vmap ---- */

static void each(const tc_tensor *in, tc_tensor *out, void *user)
{
    tc_comm *comm = user;
    out[0] = tc_comm_all_reduce(comm, in[0], TC_COMM_SUM);
    out[1] = tc_comm_all_gather(comm, in[0], 0);
    out[2] = tc_comm_reduce_scatter(comm, in[0], 0, TC_COMM_SUM);
    out[3] = tc_comm_all_to_all(comm, in[0], 0, 0);
}

/* Three examples of [4] at once, against each by itself. */
static void examples(tc_comm *comm)
{
    static const int widths[4] = {4, 8, 2, 4};
    int rank = tc_comm_rank(comm);
    float in[12], many[24], one[8];
    tc_ctx *ctx = verbs_begin(false);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3, 4), y = tc_input(ctx, "y", TC_F32, 4);
    tc_tensor all[4], alone[4];
    for (int i = 0; i < 12; i++) {
        in[i] = (float)(i * i + 50 * rank);
    }
    CHECK_EQ_INT(tc_vmap(each, comm, TC_TENSORS(x), NULL, all, NULL, 4), TC_OK);
    each(&y, alone, comm);
    for (int o = 0; o < 4; o++) {
        CHECK_EQ_INT(verbs_run(all[o], TC_BUFS(TC_BUF(in, 12)),
                               TC_BUFS(TC_BUF(many, 3 * widths[o]))),
                     TC_OK);
        for (int e = 0; e < 3; e++) {
            CHECK_EQ_INT(verbs_run(alone[o], TC_BUFS(TC_BUF(in + 4 * e, 4)),
                                   TC_BUFS(TC_BUF(one, widths[o]))),
                         TC_OK);
            CHECK(!memcmp(many + e * widths[o], one, sizeof(float) * (size_t)widths[o]));
        }
    }
    tc_ctx_free(ctx);
}

TEST(vmap_adds_an_axis_to_what_is_sent)
{
    CHECK(ranks_run(2, 20000, examples));
}

/* ---- symbols ---- */

static void symbols(tc_comm *comm)
{
    int size = tc_comm_size(comm), rank = tc_comm_rank(comm);
    tc_ctx *ctx = verbs_begin(false);
    int64_t n = TC_DIM("n", 1, 64);
    tc_tensor x = tc_input(ctx, "x", TC_F32, n, 2);
    tc_tensor ys[2] = {tc_comm_all_gather(comm, x, 0), tc_comm_all_reduce(comm, x, TC_COMM_SUM)};
    tc_program *f = NULL;
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(x), (tc_tensors){ys, 2}, NULL, &f), TC_OK);
    for (int rows = 1; rows <= 7 && f; rows += 3) {
        float in[14], all[14 * 4], sum[14];
        for (int i = 0; i < 2 * rows; i++) {
            in[i] = (float)(10 * rank + i);
        }
        CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF_ND(in, rows, 2)),
                            TC_BUFS(TC_BUF(all, 2 * rows * size), TC_BUF(sum, 2 * rows))),
                     TC_OK);
        for (int i = 0; i < 2 * rows; i++) {
            CHECK(all[(size - 1) * 2 * rows + i] == (float)(10 * (size - 1) + i));
            CHECK(sum[i] == (float)(10 * size * (size - 1) / 2 + size * i));
        }
    }
    tc_tensor odd = tc_comm_reduce_scatter(comm, x, 0, TC_COMM_SUM); /* n may be odd */
    CHECK(size == 1 || strstr(tc_error(odd), "multiple of") != NULL);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(sizes_may_be_symbols)
{
    CHECK(ranks_run(2, 20000, symbols));
}

/* ---- the order of sums ---- */

/* Sums that any other order than ((r0 + r1) + r2) + r3 rounds to something else. */
static void reproducible(tc_comm *comm)
{
    static const float given[4] = {1.0f, 1e8f, -1e8f, 3.0f};
    int rank = tc_comm_rank(comm);
    float in[1] = {given[rank]}, out[1], want = 0;
    tc_ctx *ctx = verbs_begin(true);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 1);
    for (int r = 0; r < tc_comm_size(comm); r++) {
        want += given[r];
    }
    CHECK_EQ_INT(verbs_run(tc_comm_all_reduce(comm, x, TC_COMM_SUM), TC_BUFS(TC_BUF(in, 1)),
                           TC_BUFS(TC_BUF(out, 1))),
                 TC_OK);
    CHECK(out[0] == want);
    tc_ctx_free(ctx);
}

TEST(reproducible_sums_go_in_the_order_of_ranks)
{
    CHECK(ranks_run(4, 20000, reproducible));
}

TEST_MAIN
