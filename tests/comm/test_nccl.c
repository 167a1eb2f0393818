/* tests/comm/test_nccl.c - NCCL: on GPUs, where there are two, everything that the other engines
 * do; and on a driver and an NCCL that only count, which stream waits for what. */
#ifndef __clang__
#pragma GCC optimize("O0") /* the whole library is in this file */
#endif
#define TC_CUDA
#define TCI_KEEP_OPTIMIZE
#define TC_IMPLEMENTATION
#include "tc_comm.h"

#include "tc_test.h"

#include "../cuda/fake_driver.h"
#include "ranks.h"
#include "verbs.h"

/* ---- two GPUs ---- */

enum { NO_GPUS = 77 };

/* Before anything else looks for GPUs. */
static void see_one_gpu(int rank)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", rank);
    setenv("CUDA_VISIBLE_DEVICES", text, 1);
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    verbs_backend = "cuda";
}

static void on_gpus(tc_comm *base)
{
    tc_comm *comm = NULL;
    void *memory = NULL;
    int rank = tc_comm_rank(base);
    see_one_gpu(rank);
    if (tc_cuda_alloc_on(0, 64, &memory) != TC_OK) {
        tct_exit(NO_GPUS);
    }
    tc_cuda_free(memory);
    const tc_comm_options o = {.timeout_ms = 20000};
    if (tc_comm_nccl(base, 0, &o, &comm)) {
        printf("rank %d: %s\n", rank, tc_comm_error(NULL));
        tct_exit(strstr(tc_comm_error(NULL), "cannot be opened") ? NO_GPUS : 3);
    }
    verbs_check(comm);
    tc_ctx *ctx = verbs_begin(true); /* in the order of ranks */
    float in[1] = {rank ? 1e8f : 1.0f}, out[1];
    tc_tensor x = tc_input(ctx, "x", TC_F32, 1);
    CHECK_EQ_INT(verbs_run(tc_comm_all_reduce(comm, x, TC_COMM_SUM), TC_BUFS(TC_BUF(in, 1)),
                           TC_BUFS(TC_BUF(out, 1))),
                 TC_OK);
    CHECK(out[0] == 1.0f + 1e8f);
    /* a program of the GPU with a communicator of the host's memory */
    CHECK_EQ_INT(verbs_run(tc_comm_all_reduce(base, x, TC_COMM_SUM), TC_BUFS(TC_BUF(in, 1)),
                           TC_BUFS(TC_BUF(out, 1))),
                 TC_OK);
    CHECK(out[0] == 1.0f + 1e8f);
    tc_ctx_free(ctx);
    tc_comm_free(comm);
}

/* Rank 1 dies: rank 0 is told, and its GPU works on. */
static void on_gpus_until(tc_comm *base)
{
    tc_comm *comm = NULL;
    int rank = tc_comm_rank(base);
    see_one_gpu(rank);
    const tc_comm_options o = {.timeout_ms = 3000};
    if (tc_comm_nccl(base, 0, &o, &comm)) {
        tct_exit(NO_GPUS);
    }
    tc_ctx *ctx = verbs_begin(false);
    float in[4] = {1, 2, 3, 4}, out[4];
    tc_tensor x = tc_input(ctx, "x", TC_F32, 4);
    tc_program *f = NULL;
    CHECK_EQ_INT(tc_compile(tc_comm_all_reduce(comm, x, TC_COMM_SUM), &f), TC_OK);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 4)), TC_BUFS(TC_BUF(out, 4))), TC_OK);
    if (rank == 1) {
        raise(SIGKILL);
    }
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 4)), TC_BUFS(TC_BUF(out, 4))), TC_ERR_COMM);
    printf("told: %s\n", tc_error(f));
    CHECK(strstr(tc_error(f), "rank 1") != NULL);
    CHECK_EQ_INT(verbs_run(tc_mul(x, 2), TC_BUFS(TC_BUF(in, 4)), TC_BUFS(TC_BUF(out, 4))), TC_OK);
    CHECK(out[3] == 8);
    tc_program_free(f);
    tc_ctx_free(ctx);
    tc_comm_free(comm);
}

/* Trains with updates in place until rank 1 is killed within a run: rank 0 is told, and each of its
 * parameters is that before or that after the run, the same for all of them. */
enum { KILLED_PARAMS = 6, KILLED_SIZE = 1 << 20, KILLED_ROUNDS = 30000 };

/* Parameter i after so many runs: each adds the sum over two ranks of x + i, which is exact. */
static int check_trained(const tc_tensor *p, int *runs)
{
    static float now[KILLED_SIZE];
    int wrong = 0;
    for (int i = 0; i < KILLED_PARAMS; i++) {
        CHECK_EQ_INT(tc_read(p[i], now, KILLED_SIZE), TC_OK);
        *runs = i == 0 ? (int)(now[0] / 2) : *runs;
        for (int k = 0; k < KILLED_SIZE; k++) {
            wrong += now[k] != (float)(*runs * 2 * (i + 1));
        }
    }
    return wrong;
}

static void trained_on_gpus_until(tc_comm *base)
{
    static float ones[KILLED_SIZE];
    tc_comm *comm = NULL;
    tc_tensor p[KILLED_PARAMS], g[KILLED_PARAMS], effects[KILLED_PARAMS];
    tc_program *f = NULL;
    int rank = tc_comm_rank(base), done = 0, runs = 0;
    see_one_gpu(rank);
    const tc_comm_options o = {.timeout_ms = 5000};
    if (tc_comm_nccl(base, 0, &o, &comm)) {
        tct_exit(NO_GPUS);
    }
    tc_ctx *ctx = verbs_begin(false);
    tc_tensor x = tc_input(ctx, "x", TC_F32, KILLED_SIZE);
    for (int i = 0; i < KILLED_PARAMS; i++) {
        p[i] = tc_param(ctx, NULL, TC_F32, KILLED_SIZE);
        g[i] = tc_mul(x, i + 1);
    }
    for (int k = 0; k < KILLED_SIZE; k++) {
        ones[k] = 1;
    }
    const tc_buckets buckets = {.bytes = 8 << 20, .sum = true};
    CHECK_EQ_INT(tc_all_reduce_grads(comm, g, KILLED_PARAMS, &buckets, g), TC_OK);
    for (int i = 0; i < KILLED_PARAMS; i++) {
        effects[i] = tc_assign(p[i], tc_add(p[i], g[i]));
    }
    CHECK_EQ_INT(tc_compile_fn(TC_TENSORS(x), (tc_tensors){effects, KILLED_PARAMS}, NULL, &f),
                 TC_OK);
    int last_wait = 0;
    for (int i = 0; i < f->code->n_steps; i++) {
        last_wait = f->steps[i].call ? i : last_wait;
    }
    CHECK(f->commit > last_wait && f->effects[0].over_old); /* updates are in place */
    tc_status status = TC_OK;
    pid_t killer = rank == 1 ? fork() : 1;
    if (killer == 0) { /* while its parent connects, records or replays */
        usleep((useconds_t)(tct_random() % 800000));
        kill(getppid(), SIGKILL);
        _exit(0);
    }
    while (!status && done < KILLED_ROUNDS) {
        status = tc_run(f, TC_BUFS(TC_BUF(ones, KILLED_SIZE)), (tc_bufs){NULL, 0});
        done += !status;
    }
    CHECK_EQ_INT(status, TC_ERR_COMM);
    printf("told after %d runs: %s\n", done, tc_error(f));
    CHECK(strstr(tc_error(f), "rank 1") != NULL);
    CHECK_EQ_INT(check_trained(p, &runs), 0);
    CHECK_EQ_INT(runs, done); /* the run that failed changed nothing */
    tc_program_free(f);
    tc_ctx_free(ctx);
    tc_comm_free(comm);
}

static void ranks_of_gpus(ranks_function f, bool first_only)
{
    int state[2] = {0};
    pid_t pids[2] = {ranks_start(0, 2, 20000, f), ranks_start(1, 2, 20000, f)};
    for (int r = 0; r < 2; r++) {
        waitpid(pids[r], &state[r], 0);
    }
    for (int r = 0; r < 2; r++) {
        if (WIFEXITED(state[r]) && WEXITSTATUS(state[r]) == NO_GPUS) {
            SKIP("there are no two GPUs with NCCL");
        }
    }
    for (int r = 0; r < (first_only ? 1 : 2); r++) {
        CHECK(WIFEXITED(state[r]) && WEXITSTATUS(state[r]) == 0);
    }
}

TEST(each_collective_of_two_gpus)
{
    ranks_of_gpus(on_gpus, false);
}
TEST(a_killed_rank_of_two_gpus_is_told)
{
    ranks_of_gpus(on_gpus_until, true);
}

TEST(a_rank_killed_in_training_of_two_gpus_leaves_parameters)
{
    ranks_of_gpus(trained_on_gpus_until, true);
}

/* ---- an NCCL that only counts ---- */

static char counted[256]; /* a letter for each call */
static void *counted_stream;
static int counted_fails, counted_busy, counted_aborts, counted_ends;

static int count(char what, void *stream)
{
    size_t n = strlen(counted);
    counted[n] = what;
    counted[n + 1] = 0;
    counted_stream = stream ? stream : counted_stream;
    return counted_fails;
}

static int count_id(tci_nccl_id *id)
{
    return id->bytes[0] = 7, 0;
}
static int count_init(void **c, int n, tci_nccl_id id, int rank)
{
    *c = &counted;
    return n == 1 && rank == 0 && id.bytes[0] == 7 ? 0 : 4;
}
/* As a nonblocking communicator: calls are in progress for so many looks. */
enum { IN_PROGRESS = 7 };
static int counted_looks;
static int count_init_config(void **c, int n, tci_nccl_id id, int rank, const tci_nccl_config *o)
{
    CHECK_EQ_INT(o->blocking, 0);
    return count_init(c, n, id, rank) ? 4 : IN_PROGRESS;
}
static int count_destroy(void *c)
{
    return counted_ends++, c != (void *)&counted;
}
/* As ncclCommAbort: kernels end, then it waits for graphs of the communicator, here for 2 s. */
static int counted_graph, counted_after, counted_frees, counted_waits;
static int count_abort(void *c)
{
    struct timespec t = {0, 1000000};
    __atomic_store_n(&counted_busy, 0, __ATOMIC_RELAXED);
    for (int i = 0; i < 2000 && counted_waits; i++) {
        if (__atomic_load_n(&counted_frees, __ATOMIC_RELAXED)) {
            __atomic_store_n(&counted_waits, 0, __ATOMIC_RELAXED);
        }
        nanosleep(&t, NULL);
    }
    return counted_aborts++, c != (void *)&counted;
}
static int count_async(void *c, int *code)
{
    counted_looks -= counted_looks > 0;
    *code = counted_looks > 0 ? IN_PROGRESS : 0;
    return c != (void *)&counted;
}
static int count_begin(void)
{
    return count('(', NULL);
}
static int count_end(void)
{
    return count(')', NULL);
}
static int count_reduce(const void *in, void *out, size_t n, int t, int op, void *c, void *stream)
{
    memmove(out, in, n * (t == 7 ? 4 : 1));
    return op > 3 || c != (void *)&counted ? 4 : count('r', stream);
}
static int count_gather(const void *in, void *out, size_t n, int t, void *c, void *stream)
{
    memcpy(out, in, n);
    return t != 1 || c != (void *)&counted ? 4 : count('g', stream);
}
static int count_cast(const void *in, void *out, size_t n, int t, int root, void *c, void *stream)
{
    memcpy(out, in, n);
    return t != 1 || root || c != (void *)&counted ? 4 : count('b', stream);
}
static int count_send(const void *in, size_t n, int t, int to, void *c, void *stream)
{
    (void)in, (void)n, (void)to;
    return t != 1 || c != (void *)&counted ? 4 : count('s', stream);
}
static int count_recv(void *out, size_t n, int t, int from, void *c, void *stream)
{
    memset(out, 0, n);
    (void)from;
    return t != 1 || c != (void *)&counted ? 4 : count('v', stream);
}
static const char *count_error(int code)
{
    return code ? "a counted failure" : "";
}
static int count_query(void *stream)
{
    return stream && __atomic_load_n(&counted_busy, __ATOMIC_RELAXED) ? 600 : 0;
}
static int count_make(void **stream, unsigned flags, int priority)
{
    CHECK(priority < 0); /* before kernels */
    return fake_cuStreamCreate(stream, flags);
}
static int count_capture(void *stream, int mode)
{
    count('[', stream);
    return mode != 2;
}
static int count_captured(void *stream, void **graph)
{
    *graph = &counted_graph;
    count(']', stream);
    return 0;
}
static int count_child(void **node, void *graph, void *const *after, size_t n, void *child)
{
    *node = (char *)graph + n + 1;
    counted_after = (int)n;
    return child != &counted_graph || (n && !after[0]) || count('c', NULL);
}
static int count_empty(void **node, void *graph, void *const *after, size_t n)
{
    *node = (char *)graph + 50;
    counted_after = (int)n;
    return (n && !after[0]) || count('e', NULL);
}
static int count_free(void *graph)
{
    __atomic_add_fetch(&counted_frees, 1, __ATOMIC_RELAXED);
    return graph != &counted_graph;
}

static const tci_nccl_api counting = {count_id,     count_init,    count_destroy,  count_abort,
                                      count_async,  count_begin,   count_end,      count_reduce,
                                      count_reduce, count_gather,  count_cast,     count_send,
                                      count_recv,   count_error,   NULL,           count_query,
                                      count_make,   count_capture, count_captured, count_child,
                                      count_empty,  count_free};

static tc_comm *counting_with(const tci_nccl_api *api, int64_t timeout_ms)
{
    tc_comm *base = NULL, *comm = NULL;
    const tc_comm_options o = {.timeout_ms = timeout_ms};
    fake_install();
    tci_nccl_use(api);
    counted[0] = 0;
    counted_fails = counted_busy = counted_aborts = counted_ends = counted_waits = 0;
    CHECK_EQ_INT(tc_comm_from_env(&base), TC_OK);
    CHECK_EQ_INT(tc_comm_nccl(base, 0, &o, &comm), TC_OK);
    tc_comm_free(base);
    REQUIRE(comm != NULL);
    return comm;
}

static tc_comm *counting_comm(int64_t timeout_ms)
{
    return counting_with(&counting, timeout_ms);
}

static tc_comm_job job_of(tc_comm_verb verb, float *in, float *out)
{
    static tc_backend device = {.name = "cuda"};
    device.queues = tci_cuda_queues();
    return (tc_comm_job){.verb = verb,
                         .dtype = TC_F32,
                         .n = 4,
                         .in = in,
                         .out = out,
                         .peer = 0,
                         .device = &device,
                         .name = tci_comm_verb_name((int)verb)};
}

TEST(a_start_waits_for_kernels_before_it_and_a_wait_for_the_operation)
{
    tc_comm *comm = counting_comm(1000);
    char why[TC_COMM_WHY] = "";
    float in[4] = {1, 2, 3, 4}, out[4] = {0};
    tc_comm_job job = job_of(TC_COMM_ALL_REDUCE, in, out);
    int at = fake_n_log;
    CHECK_EQ_INT(comm->engine->start(comm->state, &job, why), TC_OK);
    CHECK(out[3] == 4 && !strcmp(counted, "r"));
    CHECK(FAKE_LOG(at).what == 'r' && FAKE_LOG(at + 1).what == 'w');
    CHECK(FAKE_LOG(at).stream != counted_stream && FAKE_LOG(at + 1).stream == counted_stream);
    CHECK(FAKE_LOG(at).event == FAKE_LOG(at + 1).event);
    at = fake_n_log;
    CHECK_EQ_INT(comm->engine->wait(comm->state, &job, why), TC_OK);
    CHECK(FAKE_LOG(at).what == 'r' && FAKE_LOG(at + 1).what == 'w');
    CHECK(FAKE_LOG(at).stream == counted_stream && FAKE_LOG(at + 1).stream != counted_stream);
    CHECK_EQ_INT(comm->engine->finish(comm->state, why), TC_OK);
    tc_comm_free(comm);
    CHECK_EQ_INT(counted_ends, 1);
}

TEST(sends_and_receives_are_one_group)
{
    tc_comm *comm = counting_comm(1000);
    char why[TC_COMM_WHY] = "";
    float in[4] = {1, 2, 3, 4}, out[4], got[4];
    tc_comm_job send = job_of(TC_COMM_SEND, in, out), recv = job_of(TC_COMM_RECV, in, got);
    tc_comm_job all = job_of(TC_COMM_ALL_GATHER, in, out),
                parts = job_of(TC_COMM_ALL_TO_ALL, in, out);
    CHECK_EQ_INT(comm->engine->start(comm->state, &send, why), TC_OK);
    CHECK_EQ_INT(comm->engine->start(comm->state, &recv, why), TC_OK);
    CHECK(!strcmp(counted, ""));
    CHECK_EQ_INT(comm->engine->wait(comm->state, &send, why), TC_OK);
    CHECK(!strcmp(counted, "(sv)"));
    CHECK_EQ_INT(comm->engine->start(comm->state, &send, why), TC_OK);
    CHECK_EQ_INT(comm->engine->start(comm->state, &all, why), TC_OK);
    CHECK_EQ_INT(comm->engine->start(comm->state, &parts, why), TC_OK);
    CHECK(!strcmp(counted, "(sv)(s)g(sv)"));
    tc_comm_free(comm);
}

TEST(operations_that_begin_together_are_one_group)
{
    tc_comm *comm = counting_comm(1000);
    char why[TC_COMM_WHY] = "", graph[64];
    float in[4] = {1, 2, 3, 4}, out[4] = {0}, other[4] = {0};
    void *node = NULL;
    tc_comm_job first = job_of(TC_COMM_ALL_REDUCE, in, out);
    tc_comm_job second = job_of(TC_COMM_ALL_GATHER, in, other);
    CHECK(comm->engine->groups);
    second.with = &first;
    CHECK_EQ_INT(comm->engine->start(comm->state, &second, why), TC_OK);
    CHECK(!strcmp(counted, "(gr)") && out[3] == 4 && other[3] == 4);
    CHECK_EQ_INT(comm->engine->node(comm->state, &second, graph, NULL, 0, &node), TC_OK);
    CHECK(!strcmp(counted, "(gr)[(gr)]c"));
    first.dtype = TC_I16; /* the mistake of one fails all */
    CHECK_EQ_INT(comm->engine->start(comm->state, &second, why), TC_ERR_COMM);
    CHECK(strstr(why, "i16") != NULL);
    tc_comm_free(comm);
}

static tc_status comm_node(void *comm, tc_comm_job *job, void *graph, void *const *after, size_t n,
                           void **node)
{
    return comm || job || graph || after || n || node ? TC_OK : TC_ERR_INTERNAL;
}

/* Launches 0 and 1 compute what 2 and 3 send as one operation, 4 and 5 wait; 6 reads the result of
 * 2, and 7 nothing of theirs. */
TEST(a_group_is_one_node_and_kernels_behind_it_do_not_come_before)
{
    static const int32_t a0[] = {0}, a1[] = {1}, a2[] = {2}, a3[] = {3}, a4[] = {4};
    float in[4], out[4];
    tc_comm_job jobs[2] = {job_of(TC_COMM_ALL_REDUCE, in, out),
                           job_of(TC_COMM_ALL_REDUCE, in, out)};
    tc_launch l[8] = {{.n_buffers = 0}};
    const int32_t *after[8] = {NULL, NULL, a0, a1, a2, a3, a4, NULL};
    jobs[1].with = &jobs[0];
    for (int i = 0; i < 8; i++) {
        l[i].task_end = 1;
        l[i].after = after[i];
        l[i].n_after = after[i] != NULL;
        l[i].node = i >= 2 && i < 6 ? comm_node : NULL;
    }
    l[2].job = &jobs[0];
    l[3].job = &jobs[1];
    tci_scratch s;
    tci_scratch_init(&s);
    tci_collectives_chain(&s, l, 8);
    CHECK(l[2].task_end == 0 && l[4].task_end == 0 && l[5].task_end == 0); /* no nodes */
    CHECK(l[3].task_end == 1 && l[3].n_after == 2);
    CHECK(l[3].after[0] + l[3].after[1] == 1); /* 0 and 1 */
    CHECK(l[6].n_after == 2 && l[6].after[0] == 3 && l[6].after[1] == 1);
    CHECK(l[7].n_after == 1 && l[7].after[0] == 1);
    tci_scratch_free(&s);
}

TEST(recorded_operations_are_nodes_one_after_the_other)
{
    tc_comm *comm = counting_comm(1000);
    float in[4] = {1, 2, 3, 4}, out[4];
    char graph[64];
    void *node[3] = {NULL};
    tc_comm_job job = job_of(TC_COMM_ALL_REDUCE, in, out);
    counted_frees = 0;
    CHECK_EQ_INT(comm->engine->node(comm->state, &job, graph, NULL, 0, &node[0]), TC_OK);
    CHECK_EQ_INT(counted_after, 0);
    CHECK_EQ_INT(comm->engine->node(comm->state, NULL, graph, node, 1, &node[1]), TC_OK);
    CHECK_EQ_INT(counted_after, 1);
    CHECK(!strcmp(counted, "[r]ce"));
    tc_comm_free(comm);
    CHECK_EQ_INT(counted_frees, 1);

    static const int32_t first[] = {0}; /* launch 2 already comes after 0 */
    tc_launch launches[5] = {{.n_buffers = 0}};
    launches[0].node = launches[1].node = launches[2].node = launches[4].node = comm_node;
    launches[0].job = launches[2].job = launches[4].job = &job;
    launches[2].after = first;
    launches[2].n_after = 1;
    tci_scratch s;
    tci_scratch_init(&s);
    tci_collectives_chain(&s, launches, 5);
    CHECK(launches[0].n_after == 0 && launches[1].n_after == 0 && launches[3].n_after == 0);
    CHECK(launches[2].n_after == 1 && launches[2].after[0] == 0);
    CHECK(launches[4].n_after == 1 && launches[4].after[0] == 2);
    tci_scratch_free(&s);
}

TEST(an_operation_that_fails_or_takes_too_long_aborts)
{
    tc_comm *comm = counting_comm(50);
    char why[TC_COMM_WHY] = "";
    float in[4] = {1, 2, 3, 4}, out[4];
    tc_comm_job job = job_of(TC_COMM_ALL_REDUCE, in, out);
    counted_fails = 3;
    CHECK_EQ_INT(comm->engine->start(comm->state, &job, why), TC_ERR_COMM);
    CHECK(strstr(why, "a counted failure") != NULL);
    counted_fails = 0;
    counted_busy = 1;
    CHECK_EQ_INT(comm->engine->start(comm->state, &job, why), TC_OK);
    CHECK_EQ_INT(comm->engine->finish(comm->state, why), TC_ERR_COMM);
    CHECK(strstr(why, "within 50 ms") != NULL);
    job.dtype = TC_I16;
    CHECK_EQ_INT(comm->engine->start(comm->state, &job, why), TC_ERR_COMM);
    CHECK(strstr(why, "i16") != NULL);
    tc_comm_abort(comm);
    tc_comm_free(comm);
    CHECK_EQ_INT(counted_aborts, 1);
    CHECK_EQ_INT(counted_ends, 0);
}

/* NCCL connects ranks at the first operation, which takes as long as the others do. */
TEST(a_call_in_progress_is_waited_for_until_the_time_is_over)
{
    tci_nccl_api slow = counting;
    slow.init_config = count_init_config;
    counted_looks = 5;
    tc_comm *comm = counting_with(&slow, 50);
    CHECK_EQ_INT(counted_looks, 0);
    char why[TC_COMM_WHY] = "", graph[64];
    float in[4] = {1, 2, 3, 4}, out[4];
    void *node = NULL;
    tc_comm_job job = job_of(TC_COMM_ALL_REDUCE, in, out);
    counted_fails = IN_PROGRESS;
    counted_looks = 3;
    CHECK_EQ_INT(comm->engine->start(comm->state, &job, why), TC_OK);
    CHECK_EQ_INT(counted_looks, 0);
    counted_looks = 1 << 30;
    CHECK_EQ_INT(comm->engine->start(comm->state, &job, why), TC_ERR_COMM);
    CHECK(strstr(why, "within 50 ms") != NULL);
    CHECK_EQ_INT(comm->engine->node(comm->state, &job, graph, NULL, 0, &node), TC_ERR_COMM);
    CHECK(strstr(tci_cuda_last_error(NULL), "all_reduce at ") != NULL);
    CHECK(strstr(tci_cuda_last_error(NULL), "within 50 ms") != NULL);
    counted_fails = counted_looks = 0;
    tc_comm_free(comm);
}

TEST(a_base_that_another_thread_uses_is_told)
{
    tc_comm *comm = counting_comm(50), *base = ((tci_nccl *)comm->state)->base;
    char why[TC_COMM_WHY] = "", mine = 1, all = 0;
    base->busy = 1;
    CHECK_EQ_INT(comm->engine->exchange(comm->state, &mine, &all, 1, 50, "", why), TC_ERR_BUSY);
    CHECK(strstr(why, "another thread") != NULL);
    base->busy = 0; /* its user has freed it, which is no obstacle */
    CHECK_EQ_INT(comm->engine->exchange(comm->state, &mine, &all, 1, 50, "", why), TC_OK);
    CHECK_EQ_INT(all, 1);
    tc_comm_free(comm);
}

/* Rank 1 has no such GPU: both are told at once, and go on with the base. */
static void without_gpu(tc_comm *base)
{
    tc_comm *comm = NULL;
    fake_install();
    tci_nccl_use(&counting);
    const int64_t begin = tci_os_now_ns();
    CHECK_EQ_INT(tc_comm_nccl(base, tc_comm_rank(base) ? -1 : 0, NULL, &comm), TC_ERR_COMM);
    bool named = strstr(tc_comm_error(NULL), "rank 1: ") != NULL;
    CHECK(named || !printf("%s\n", tc_comm_error(NULL)));
    CHECK(tci_os_now_ns() - begin < 5000000000 && !comm);
    verbs_backend = "interp";
    verbs_reduce(base, TC_F32, TC_COMM_SUM, 11);
}

TEST(a_rank_without_a_gpu_is_told_on_all_ranks)
{
    CHECK(ranks_run(2, 20000, without_gpu));
}

TEST(an_abort_returns_although_nccl_waits_for_recorded_graphs)
{
    tc_comm *comm = counting_comm(50);
    char why[TC_COMM_WHY] = "", graph[64];
    float in[4] = {1, 2, 3, 4}, out[4];
    void *node;
    tc_comm_job job = job_of(TC_COMM_ALL_REDUCE, in, out);
    CHECK_EQ_INT(comm->engine->node(comm->state, &job, graph, NULL, 0, &node), TC_OK);
    counted_busy = counted_waits = 1; /* a rank never comes */
    counted_frees = 0;
    CHECK_EQ_INT(comm->engine->finish(comm->state, why), TC_ERR_COMM);
    tc_comm_abort(comm);
    CHECK(__atomic_load_n(&counted_waits, __ATOMIC_RELAXED)); /* still */
    CHECK(!counted_busy); /* no call waits for the stream any more */
    tc_comm_free(comm);
    CHECK(!counted_waits && counted_frees == 1);
    CHECK_EQ_INT(counted_aborts, 1);
}

TEST_MAIN
