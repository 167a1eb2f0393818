/* tests/comm/test_shm.c - the engine over shared memory from below: messages in any order, an abort
 * by another thread, signals, files that a killed group left, memory of channels, time limits. */
#include "inside.h"

#include "tc_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/time.h>

#include "ranks.h"

static tc_comm_job job_of(tc_comm_verb verb, int peer, int64_t n, const float *in, float *out)
{
    return (tc_comm_job){.verb = verb,
                         .dtype = TC_F32,
                         .peer = peer,
                         .n = n,
                         .in = in,
                         .out = out,
                         .site = {.file = "here.c", .line = 7},
                         .name = tci_comm_verb_name((int)verb)};
}

static tc_status start(tc_comm *comm, tc_comm_job *job)
{
    char why[TC_COMM_WHY] = "";
    tc_status status = comm->engine->start(comm->state, job, why);
    return status ? status : TC_OK;
}

static char told[TC_COMM_WHY];

static tc_status wait_for(tc_comm *comm, tc_comm_job *job)
{
    told[0] = 0;
    return comm->engine->wait(comm->state, job, told);
}

static bool says(const char *word)
{
    bool has = strstr(told, word) != NULL;
    if (!has) {
        printf("'%s' does not say '%s'\n", told, word);
    }
    return has;
}

/* ---- messages ---- */

/* Rank 0 begins a receive whose message depends on two later sends, and waits for these first. */
static void receives_first(tc_comm *comm)
{
    float in[3] = {1, 2, 3}, out[3] = {0}, a[3], b[3];
    if (tc_comm_rank(comm) == 0) {
        tc_comm_job back = job_of(TC_COMM_RECV, 1, 3, in, out);
        tc_comm_job first = job_of(TC_COMM_SEND, 1, 3, in, a);
        tc_comm_job second = job_of(TC_COMM_SEND, 1, 3, in, b);
        CHECK_EQ_INT(start(comm, &back), TC_OK);
        CHECK_EQ_INT(start(comm, &first), TC_OK);
        CHECK_EQ_INT(wait_for(comm, &first), TC_OK);
        CHECK_EQ_INT(start(comm, &second), TC_OK);
        CHECK_EQ_INT(wait_for(comm, &second), TC_OK);
        CHECK_EQ_INT(wait_for(comm, &back), TC_OK);
        CHECK(out[2] == 6);
        return;
    }
    for (int i = 0; i < 2; i++) {
        tc_comm_job get = job_of(TC_COMM_RECV, 0, 3, in, i ? b : a);
        CHECK_EQ_INT(start(comm, &get), TC_OK);
        CHECK_EQ_INT(wait_for(comm, &get), TC_OK);
    }
    for (int k = 0; k < 3; k++) {
        a[k] += b[k];
    }
    tc_comm_job put = job_of(TC_COMM_SEND, 0, 3, a, out);
    CHECK_EQ_INT(start(comm, &put), TC_OK);
    CHECK_EQ_INT(wait_for(comm, &put), TC_OK);
}

TEST(a_send_is_done_before_a_receive_that_was_begun_first)
{
    CHECK(ranks_run(2, 3000, receives_first));
}

/* Rank 1 waits for rank 0, which waits for it and for rank 2; rank 2 dies. */
static void second_peer_dies(tc_comm *comm)
{
    float in[1] = {1}, out[2];
    tc_comm_job from[2] = {job_of(TC_COMM_RECV, 1, 1, in, out),
                           job_of(TC_COMM_RECV, 2, 1, in, out + 1)};
    tc_comm_job wants = job_of(TC_COMM_RECV, 0, 1, in, out);
    if (tc_comm_rank(comm) == 2) {
        usleep(50000);
        tct_exit(0);
    }
    const int64_t begin = tci_os_now_ns();
    if (tc_comm_rank(comm) == 0) {
        CHECK(!start(comm, &from[0]) && !start(comm, &from[1]));
        CHECK_EQ_INT(wait_for(comm, &from[0]), TC_ERR_COMM);
    } else {
        CHECK_EQ_INT(start(comm, &wants), TC_OK);
        CHECK_EQ_INT(wait_for(comm, &wants), TC_ERR_COMM);
    }
    CHECK(says("rank 2 ended"));
    CHECK(tci_os_now_ns() - begin < 5000000000);
}

TEST(the_peer_of_each_message_that_is_waited_for_is_watched)
{
    CHECK(ranks_run(3, 30000, second_peer_dies));
}

/* What rank 0 sends and rank 1 receives: elements, and their dtypes. */
static int64_t sent, wanted;
static tc_dtype wanted_dtype;

static void unlike(tc_comm *comm)
{
    float in[4] = {1, 2, 3, 4}, out[4] = {0};
    bool fits = sent == wanted && wanted_dtype == TC_F32;
    tc_comm_job job = tc_comm_rank(comm) ? job_of(TC_COMM_RECV, 0, wanted, in, out)
                                         : job_of(TC_COMM_SEND, 1, sent, in, out);
    job.dtype = tc_comm_rank(comm) ? wanted_dtype : TC_F32;
    CHECK_EQ_INT(start(comm, &job), TC_OK);
    tc_status status = wait_for(comm, &job);
    if (tc_comm_rank(comm)) {
        CHECK_EQ_INT(status, fits ? TC_OK : TC_ERR_COMM);
        CHECK(fits || (says("rank 0 sends") && says("here.c:7") && says("rank 1 receives")));
    }
}

TEST(a_message_of_another_size_or_dtype_is_told)
{
    const int64_t sizes[][2] = {{4, 4}, {4, 3}, {0, 4}, {4, 0}, {0, 0}, {4, 4}};
    for (int i = 0; i < 6; i++) {
        sent = sizes[i][0];
        wanted = sizes[i][1];
        wanted_dtype = i == 5 ? TC_I32 : TC_F32;
        CHECK(ranks_run(2, 3000, unlike));
    }
}

/* The descriptor of the file that the ranks share; -1: there is none. */
static int shared_file(void)
{
    char path[64], name[256];
    for (int fd = 3; fd < 256; fd++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, name, sizeof(name) - 1);
        name[n > 0 ? n : 0] = 0;
        if (strstr(name, "/tc-comm-")) {
            return fd;
        }
    }
    return -1;
}

/* Channels are holes of the file until they are used. */
static void few_channels(tc_comm *comm)
{
    enum { CHANNEL = 80 << 10 }; /* less than two */
    struct stat before, after;
    float in[1] = {1}, out[1];
    int fd = shared_file();
    CHECK(fstat(fd, &before) == 0);
    int rank = tc_comm_rank(comm);
    tc_comm_job job = rank == 1   ? job_of(TC_COMM_SEND, 2, 1, in, out)
                      : rank == 2 ? job_of(TC_COMM_RECV, 1, 1, in, out)
                                  : job_of(TC_COMM_BARRIER, 0, 0, in, out);
    if (rank == 1 || rank == 2) {
        CHECK(!start(comm, &job) && !wait_for(comm, &job));
        fstat(fd, &after);
        CHECK(((int64_t)after.st_blocks - (int64_t)before.st_blocks) * 512 <= CHANNEL);
    }
}

TEST(channels_get_memory_when_they_are_used)
{
    CHECK(ranks_run(4, 3000, few_channels));
}

/* ---- an abort ---- */

typedef struct waiting {
    tc_comm *comm;
    tc_comm_job *job;
    tc_status status;
    char why[TC_COMM_WHY];
} waiting;

static void *waits(void *of)
{
    waiting *w = of;
    w->status = w->comm->engine->start(w->comm->state, w->job, w->why);
    w->status = w->status ? w->status : w->comm->engine->wait(w->comm->state, w->job, w->why);
    return NULL;
}

/* Rank 1 never comes; a thread of rank 0 waits and another one aborts, at once or later. */
static int abort_after_us;

static void aborts(tc_comm *comm)
{
    float in[1] = {1}, out[1];
    tc_comm_job job = job_of(TC_COMM_ALL_REDUCE, 0, 1, in, out);
    waiting w = {comm, &job, TC_OK, ""};
    pthread_t t;
    if (tc_comm_rank(comm) == 1) {
        usleep(300000);
        return;
    }
    pthread_create(&t, NULL, waits, &w);
    if (abort_after_us) {
        usleep((useconds_t)abort_after_us);
    }
    tc_comm_abort(comm);
    pthread_join(t, NULL);
    CHECK_EQ_INT(w.status, TC_ERR_COMM);
    CHECK(strstr(w.why, "tc_comm_abort was called") != NULL);
}

TEST(an_abort_wakes_a_thread_that_waits_and_tells_why)
{
    static const int after[] = {0, 0, 0, 20, 50, 100, 300, 20000};
    for (size_t i = 0; i < sizeof(after) / sizeof(after[0]); i++) {
        abort_after_us = after[i];
        CHECK(ranks_run(2, 20000, aborts));
    }
}

/* ---- signals ---- */

static void on_alarm(int number)
{
    (void)number;
}

/* A signal each 200 us while ranks join, split and exchange messages. */
static void storm_begin(void)
{
    struct sigaction action = {.sa_handler = on_alarm}; /* no SA_RESTART */
    struct itimerval often = {{0, 200}, {0, 200}};
    sigaction(SIGPROF, &action, NULL);
    sigaction(SIGVTALRM, &action, NULL);
    setitimer(ITIMER_PROF, &often, NULL);
}

static void in_a_storm(tc_comm *comm)
{
    static float in[100000], out[100000];
    tc_comm *half = NULL;
    storm_begin();
    for (int i = 0; i < 20; i++) {
        CHECK_EQ_INT(tc_comm_split(comm, 0, tc_comm_rank(comm), &half), TC_OK);
        tc_comm_job job = job_of(TC_COMM_ALL_REDUCE, 0, 100000, in, out);
        in[i] = 1;
        CHECK(!start(half, &job) && !wait_for(half, &job));
        CHECK(out[i] == 2);
        tc_comm_job message = tc_comm_rank(comm) ? job_of(TC_COMM_RECV, 0, 100000, in, out)
                                                 : job_of(TC_COMM_SEND, 1, 100000, in, out);
        CHECK(!start(half, &message) && !wait_for(half, &message));
        tc_comm_free(half);
    }
}

TEST(signals_do_not_interrupt_operations)
{
    CHECK(ranks_run(2, 10000, in_a_storm));
}

/* ---- files ---- */

/* True if the group of that name has a file. Files of other groups come and go meanwhile. */
static bool has_file(const char *group)
{
    DIR *d = opendir(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    bool has = false;
    char name[64];
    snprintf(name, sizeof(name), "tc-comm-%ld-%016llx", (long)geteuid(),
             (unsigned long long)tci_hash_bytes(group, strlen(group)).lo);
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        has = has || !strcmp(e->d_name, name);
    }
    if (d) {
        closedir(d);
    }
    return has;
}

/* Rank `rank` of a group of that name. Exits with 0 if a sum came out right. */
static pid_t named_rank(const char *name, int rank, int64_t join_ms)
{
    pid_t pid = fork();
    if (pid) {
        return pid;
    }
    char why[TC_COMM_WHY] = "";
    const tci_shm_group g = {name, rank, 2, join_ms, 5000};
    alarm(20);
    tci_shm *s = tci_shm_join(&g, why);
    float in[1] = {(float)rank + 1}, out[1] = {0};
    tc_comm_job job = job_of(TC_COMM_ALL_REDUCE, 0, 1, in, out);
    const tc_comm_engine *e = tci_shm_engine(2);
    bool held = s && !e->start(s, &job, why) && !e->wait(s, &job, why) && out[0] == 3;
    if (s) {
        e->free(s);
    }
    _exit(held ? 0 : 1);
}

TEST(what_a_killed_group_left_is_replaced_and_no_file_stays)
{
    char name[64];
    int state[2] = {1, 1};
    snprintf(name, sizeof(name), "test of %d", (int)getpid());
    pid_t killed = named_rank(name, 0, 20000); /* waits for rank 1 */
    for (int i = 0; i < 400 && !has_file(name); i++) {
        usleep(5000);
    }
    CHECK(has_file(name));
    kill(killed, SIGKILL);
    waitpid(killed, NULL, 0);
    pid_t late = named_rank(name, 1, 20000); /* sees the file of the dead rank 0 */
    usleep(50000);
    pid_t again = named_rank(name, 0, 20000);
    waitpid(late, &state[0], 0);
    waitpid(again, &state[1], 0);
    CHECK(WIFEXITED(state[0]) && WEXITSTATUS(state[0]) == 0);
    CHECK(WIFEXITED(state[1]) && WEXITSTATUS(state[1]) == 0);
    CHECK(!has_file(name));
}

static void is_private(tc_comm *comm)
{
    struct stat st;
    int fd = shared_file();
    CHECK_EQ_INT(tc_comm_size(comm), 2);
    for (int i = 0; i < 400 && fstat(fd, &st) == 0 && st.st_nlink > 0; i++) {
        usleep(5000); /* rank 0 removes it when all are there */
    }
    CHECK(fstat(fd, &st) == 0 && (st.st_mode & 0777) == 0600 && st.st_nlink == 0);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

TEST(the_file_is_of_this_user_alone_and_has_no_name)
{
    umask(0);
    CHECK(ranks_run(2, 3000, is_private));
}

/* ---- time ---- */

static void without_limit(tc_comm *comm)
{
    float in[1] = {1}, out[1] = {0};
    tc_comm_job job = job_of(TC_COMM_ALL_REDUCE, 0, 1, in, out);
    if (tc_comm_rank(comm)) {
        usleep(50000);
    }
    CHECK(!start(comm, &job) && !wait_for(comm, &job) && out[0] == 2);
}

TEST(the_largest_time_limit_is_none)
{
    CHECK(ranks_run(2, INT64_MAX, without_limit));
}

TEST_MAIN
