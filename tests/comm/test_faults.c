/* tests/comm/test_faults.c - ranks that differ, die, hang or come late: what the others are told,
 * within the time limit, and that no rank hangs. Shared memory, processes as ranks. */
#include "tc_comm.h"

#include "tc_test.h"

#include <pthread.h>

#include "ranks.h"
#include "verbs.h"

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A program of one all_reduce. */
static tc_program *reducer(tc_ctx *ctx, tc_comm *comm, int64_t n)
{
    tc_program *f = NULL;
    tc_tensor x = tc_input(ctx, "x", TC_F32, n);
    CHECK_EQ_INT(tc_compile(tc_comm_all_reduce(comm, x, TC_COMM_SUM), &f), TC_OK);
    return f;
}

static tc_status reduce(tc_program *f, int64_t n)
{
    static float in[1 << 20], out[1 << 20];
    return tc_run(f, TC_BUFS(TC_BUF(in, n)), TC_BUFS(TC_BUF(out, n)));
}

static bool says(const char *text, const char *word)
{
    bool has = strstr(text, word) != NULL;
    if (!has) {
        printf("'%s' does not say '%s'\n", text, word);
    }
    return has;
}

/* ---- programs that differ ---- */

/* Other sizes, another graph, other options; after each the communicator goes on. */
static void differ(tc_comm *comm)
{
    int rank = tc_comm_rank(comm);
    float in[6] = {0}, out[6];
    tc_ctx *ctx = verbs_begin(false);
    tc_program *f = reducer(ctx, comm, rank ? 5 : 6);
    CHECK_EQ_INT(reduce(f, rank ? 5 : 6), TC_ERR_COMM);
    CHECK(says(tc_error(f), rank ? "all_reduce sum of 5 f32 at tests/comm/test_faults.c:"
                                 : "all_reduce sum of 6 f32 at tests/comm/test_faults.c:"));
    CHECK(says(tc_error(f), rank ? "all_reduce sum of 6" : "all_reduce sum of 5"));
    CHECK(says(tc_error(f), "on rank"));
    tc_program_free(f);

    tc_tensor x = tc_input(ctx, "x", TC_F32, 6);
    tc_tensor y = tc_comm_all_reduce(comm, rank ? tc_exp(x) : tc_sin(x), TC_COMM_SUM);
    CHECK_EQ_INT(tc_compile(y, &f), TC_OK);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 6)), TC_BUFS(TC_BUF(out, 6))), TC_ERR_COMM);
    CHECK(says(tc_error(f), "exp at tests/comm/test_faults.c:"));
    CHECK(says(tc_error(f), "sin at tests/comm/test_faults.c:"));
    tc_program_free(f);

    tc_ctx *other = verbs_begin(rank == 1);
    tc_tensor z = tc_input(other, "x", TC_F64, 6); /* a sum that options do not change */
    CHECK_EQ_INT(tc_compile(tc_comm_broadcast(comm, z, 0), &f), TC_OK);
    double wide[6] = {0}, to[6];
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(wide, 6)), TC_BUFS(TC_BUF(to, 6))), TC_ERR_COMM);
    CHECK(says(tc_error(f), "options"));
    tc_program_free(f);

    f = reducer(ctx, comm, 6);
    CHECK_EQ_INT(reduce(f, 6), TC_OK);
    tc_program_free(f);
    tc_ctx_free(other);
    tc_ctx_free(ctx);
}

TEST(programs_that_differ_are_told_with_both_lines)
{
    CHECK(ranks_run(2, 10000, differ));
}
TEST(programs_of_three_ranks_that_differ)
{
    CHECK(ranks_run(3, 10000, differ));
}

/* Runs of programs in another order. */
static void disorder(tc_comm *comm)
{
    tc_ctx *ctx = verbs_begin(false);
    tc_program *f = reducer(ctx, comm, 5), *g = reducer(ctx, comm, 7);
    CHECK_EQ_INT(reduce(f, 5), TC_OK);
    CHECK_EQ_INT(reduce(g, 7), TC_OK);
    tc_program *next = tc_comm_rank(comm) ? f : g;
    CHECK_EQ_INT(reduce(next, tc_comm_rank(comm) ? 5 : 7), TC_ERR_COMM);
    CHECK(says(tc_error(next), "of 7 f32 at") && says(tc_error(next), "of 5 f32 at"));
    CHECK_EQ_INT(reduce(f, 5), TC_ERR_COMM); /* the positions of ranks are unknown from here on */
    CHECK(says(tc_error(f), "failed before"));
    tc_program_free(f);
    tc_program_free(g);
    tc_ctx_free(ctx);
}

TEST(runs_in_another_order_are_told)
{
    CHECK(ranks_run(2, 10000, disorder));
}

/* ---- ranks that are gone ---- */

/* Rank 1 goes, as `how` says, after the second run. */
static int gone_how;

static void gone(tc_comm *comm)
{
    tc_ctx *ctx = verbs_begin(false);
    tc_program *f = reducer(ctx, comm, 1000);
    CHECK_EQ_INT(reduce(f, 1000), TC_OK);
    CHECK_EQ_INT(reduce(f, 1000), TC_OK);
    if (tc_comm_rank(comm) == 1 && gone_how == 0) {
        raise(SIGKILL);
    } else if (tc_comm_rank(comm) == 1 && gone_how == 1) {
        raise(SIGSTOP);
    } else if (tc_comm_rank(comm) == 1) {
        tct_exit(0);
    }
    int64_t begin = now_ms();
    CHECK_EQ_INT(reduce(f, 1000), TC_ERR_COMM);
    CHECK(says(tc_error(f), "all_reduce at tests/comm/test_faults.c:"));
    CHECK(says(tc_error(f), "rank 1"));
    CHECK(now_ms() - begin < (gone_how == 1 ? 4000 : 1500));
    CHECK(tc_comm_error(comm)[0] != 0);
    tc_tensor x = tc_comm_all_reduce(comm, tc_input(ctx, "x", TC_F32, 1), TC_COMM_SUM);
    CHECK(says(tc_error(x), "failed before"));
    float in[1] = {2}, out[1]; /* the process stays usable */
    CHECK_EQ_INT(verbs_run(tc_mul(tc_input(ctx, "y", TC_F32, 1), 2), TC_BUFS(TC_BUF(in, 1)),
                           TC_BUFS(TC_BUF(out, 1))),
                 TC_OK);
    CHECK(out[0] == 4);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

static bool others_held(int how, int size)
{
    pid_t pids[RANKS_MOST];
    bool held = true;
    gone_how = how;
    for (int r = 0; r < size; r++) {
        pids[r] = ranks_start(r, size, 1000, gone);
    }
    for (int r = 0; r < size; r++) {
        int state = 0;
        if (r != 1) {
            waitpid(pids[r], &state, 0);
            held = held && WIFEXITED(state) && WEXITSTATUS(state) == 0;
        }
    }
    kill(pids[1], SIGKILL);
    waitpid(pids[1], NULL, 0);
    return held;
}

TEST(a_killed_rank_is_named)
{
    CHECK(others_held(0, 3));
}
TEST(a_rank_that_hangs_is_named_when_the_time_is_over)
{
    CHECK(others_held(1, 3));
}
TEST(a_rank_that_exits_is_named)
{
    CHECK(others_held(2, 2));
}

/* Trains until a rank is killed. */
static void until_killed(tc_comm *comm)
{
    tc_ctx *ctx = verbs_begin(false);
    tc_program *f = reducer(ctx, comm, 200000);
    tc_status status = TC_OK;
    while (!status) {
        status = reduce(f, 200000);
    }
    CHECK_EQ_INT(status, TC_ERR_COMM);
    CHECK(says(tc_error(f), "rank"));
    tc_program_free(f);
    tc_ctx_free(ctx);
}

/* kill -9 of one rank of three at a random moment, also while they join and compile. */
static void kill_one(void)
{
    pid_t pids[3];
    int victim = (int)(tct_random() % 3);
    for (int r = 0; r < 3; r++) {
        pids[r] = ranks_start(r, 3, 2000, until_killed);
    }
    usleep((useconds_t)(tct_random() % 400000));
    kill(pids[victim], SIGKILL);
    for (int r = 0; r < 3; r++) {
        int state = 0;
        waitpid(pids[r], &state, 0);
        bool held = WIFEXITED(state) && (WEXITSTATUS(state) == 0 || WEXITSTATUS(state) == 3);
        CHECK(r == victim || held); /* 3: it was killed before all had joined */
    }
}

TEST(a_rank_killed_at_any_moment_leaves_no_hang)
{
    for (int i = 0; i < (tct_soak ? 50 : 5); i++) {
        kill_one();
    }
}

TEST(a_rank_that_never_joins_is_named)
{
    pid_t pid = ranks_start(0, 2, 300, until_killed);
    int state = 0;
    waitpid(pid, &state, 0);
    CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 3);
}

/* ---- parameters ---- */

static void keeps_parameters(tc_comm *comm)
{
    tc_ctx *ctx = verbs_begin(false);
    float start[4] = {1, 2, 3, 4}, now[4] = {0}, in[4] = {1, 1, 1, 1};
    tc_tensor p = tc_param(ctx, start, TC_F32, 4), x = tc_input(ctx, "x", TC_F32, 4);
    tc_tensor step = tc_assign(p, tc_add(p, tc_comm_all_reduce(comm, x, TC_COMM_SUM)));
    tc_program *f = NULL;
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(step), NULL, &f), TC_OK);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 4)), (tc_bufs){NULL, 0}), TC_OK);
    if (tc_comm_rank(comm) == 1) {
        tct_exit(0);
    }
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 4)), (tc_bufs){NULL, 0}), TC_ERR_COMM);
    CHECK_EQ_INT(tc_read(p, now, 4), TC_OK);
    CHECK(now[0] == 3 && now[1] == 4 && now[2] == 5 && now[3] == 6);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(a_run_that_fails_leaves_parameters)
{
    CHECK(ranks_run(2, 2000, keeps_parameters));
}

/* ---- threads, fork, order of ends ---- */

static void *run_in_thread(void *f)
{
    return (void *)(intptr_t)reduce(f, 1000);
}

static void threads(tc_comm *comm)
{
    tc_ctx *ctx = verbs_begin(false);
    tc_program *f = reducer(ctx, comm, 1000), *g = reducer(ctx, comm, 3);
    CHECK_EQ_INT(reduce(f, 1000), TC_OK);
    if (tc_comm_rank(comm) == 1) {
        usleep(300000);
        CHECK_EQ_INT(reduce(f, 1000), TC_OK);
    } else {
        pthread_t t;
        void *status = NULL;
        pthread_create(&t, NULL, run_in_thread, f);
        usleep(100000);
        CHECK_EQ_INT(reduce(g, 3), TC_ERR_BUSY);
        CHECK(says(tc_error(g), "another thread"));
        pthread_join(t, &status);
        CHECK_EQ_INT((int)(intptr_t)status, TC_OK);
    }
    CHECK_EQ_INT(reduce(g, 3), TC_OK);
    tc_program_free(f);
    tc_program_free(g);
    tc_ctx_free(ctx);
}

TEST(two_threads_on_one_communicator)
{
    CHECK(ranks_run(2, 5000, threads));
}

static void forks(tc_comm *comm)
{
    tc_ctx *ctx = verbs_begin(false);
    tc_program *f = reducer(ctx, comm, 10);
    CHECK_EQ_INT(reduce(f, 10), TC_OK);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(10);
        bool refused = reduce(f, 10) == TC_ERR_COMM && says(tc_error(f), "fork");
        tc_program_free(f);
        tc_comm_free(comm);
        tct_exit(!refused);
    }
    int state = 0;
    waitpid(pid, &state, 0);
    CHECK(WIFEXITED(state) && WEXITSTATUS(state) == 0);
    CHECK_EQ_INT(reduce(f, 10), TC_OK); /* the child took nothing away */
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(a_child_made_by_fork_is_no_rank)
{
    CHECK(ranks_run(2, 5000, forks));
}

static void ends(tc_comm *comm)
{
    tc_comm *again = NULL;
    CHECK_EQ_INT(tc_comm_split(comm, 0, 0, &again), TC_OK);
    tc_ctx *ctx = verbs_begin(false);
    tc_program *f = reducer(ctx, again, 10);
    CHECK_EQ_INT(reduce(f, 10), TC_OK);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 10);
    tc_comm_free(again); /* the program still has it */
    CHECK_EQ_INT(tc_comm_size(again), 0);
    CHECK_EQ_INT(reduce(f, 10), TC_ERR_COMM);
    CHECK(says(tc_error(f), "tc_comm_free"));
    CHECK(says(tc_error(tc_comm_all_reduce(again, x, TC_COMM_SUM)), "freed"));
    CHECK_EQ_INT(tc_comm_split(again, 0, 0, &again), TC_ERR_HANDLE);
    tc_program_free(f);
    tc_ctx_free(ctx);
}

TEST(a_communicator_may_end_before_its_programs)
{
    CHECK(ranks_run(2, 5000, ends));
}

/* ---- calls ---- */

static void calls(tc_comm *comm)
{
    tc_ctx *ctx = verbs_begin(false);
    tc_tensor x = tc_input(ctx, "x", TC_F32, 5, 3), b = tc_input(ctx, "b", TC_BOOL, 2);
    CHECK(says(tc_error(tc_comm_reduce_scatter(comm, x, 0, TC_COMM_SUM)), "multiple of 2"));
    CHECK(says(tc_error(tc_comm_all_to_all(comm, x, 1, 0)), "multiple of 2"));
    CHECK(says(tc_error(tc_comm_all_gather(comm, x, 2)), "axis 2"));
    CHECK(says(tc_error(tc_comm_broadcast(comm, x, 2)), "rank 2"));
    CHECK(says(tc_error(tc_comm_send(comm, x, tc_comm_rank(comm))), "another rank"));
    CHECK(says(tc_error(tc_comm_recv(comm, x, -1)), "rank -1"));
    CHECK(says(tc_error(tc_comm_all_reduce(comm, b, TC_COMM_SUM)), "bool"));
    CHECK(says(tc_error(tc_comm_all_reduce(comm, x, (tc_comm_how)9)), "tc_comm_how"));
    CHECK(says(tc_error(tc_comm_barrier(NULL, x)), "NULL"));
    CHECK_EQ_INT(tc_comm_split(comm, 0, 0, NULL), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_comm_rank(NULL), -1);
    tc_tensor y = tc_comm_all_reduce(comm, x, TC_COMM_SUM);
    CHECK_EQ_INT(tc_export_c(TC_TENSORS(x), TC_TENSORS(y), NULL, "never.c"), TC_ERR_UNSUPPORTED);
    CHECK(says(tc_error(y), "a collective"));
    tc_ctx_free(ctx);
}

TEST(calls_that_do_not_fit)
{
    CHECK(ranks_run(2, 5000, calls));
}

TEST(variables_that_are_half_set_or_no_numbers)
{
    tc_comm *comm = NULL;
    setenv("RANK", "one", 1);
    setenv("WORLD_SIZE", "2", 1);
    CHECK_EQ_INT(tc_comm_from_env(&comm), TC_ERR_ARGUMENT);
    CHECK(says(tc_comm_error(NULL), "RANK is 'one'"));
    setenv("RANK", "2", 1);
    CHECK_EQ_INT(tc_comm_from_env(&comm), TC_ERR_ARGUMENT);
    CHECK(says(tc_comm_error(NULL), "below the size"));
    setenv("RANK", "0", 1);
    setenv("MASTER_ADDR", "10.1.2.3", 1);
    CHECK_EQ_INT(tc_comm_from_env(&comm), TC_ERR_COMM);
    CHECK(says(tc_comm_error(NULL), "one host"));
    unsetenv("MASTER_ADDR");
    setenv("LOCAL_WORLD_SIZE", "3", 1);
    CHECK_EQ_INT(tc_comm_from_env(&comm), TC_ERR_ARGUMENT);
    CHECK(says(tc_comm_error(NULL), "LOCAL_WORLD_SIZE is 3 and WORLD_SIZE is 2"));
    unsetenv("LOCAL_WORLD_SIZE");
    unsetenv("WORLD_SIZE");
    CHECK_EQ_INT(tc_comm_from_env(&comm), TC_ERR_ARGUMENT);
    CHECK(says(tc_comm_error(NULL), "WORLD_SIZE is not set"));
    unsetenv("RANK");
    setenv("WORLD_SIZE", "2", 1);
    CHECK_EQ_INT(tc_comm_from_env(&comm), TC_ERR_ARGUMENT);
    CHECK(says(tc_comm_error(NULL), "RANK is not set"));
    unsetenv("WORLD_SIZE");
    setenv("TC_COMM", "carrier pigeon", 1);
    CHECK_EQ_INT(tc_comm_from_env(&comm), TC_ERR_COMM);
    CHECK(says(tc_comm_error(NULL), "carrier pigeon"));
    unsetenv("TC_COMM");
    CHECK_EQ_INT(tc_comm_from_env(&comm), TC_OK);
    CHECK(tc_comm_size(comm) == 1 && !strcmp(tc_comm_engine_name(comm), "self"));
    tc_comm_free(comm);
}

TEST_MAIN
