/* tests/comm/ranks.h - processes that are the ranks of a test.
 *
 *     static void sums(tc_comm *comm) { ... CHECK(...) ... }
 *     TEST(ranks_sum) { CHECK(ranks_run(2, 0, sums)); }
 *
 * Each rank is a child made by fork, with the variables that torchrun sets. What it checks is
 * counted there; the parent learns whether all of it held. */
#ifndef TESTS_RANKS_H
#define TESTS_RANKS_H

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tc_comm.h"

enum { RANKS_MOST = 8, RANKS_SECONDS = 60 };
typedef void (*ranks_function)(tc_comm *comm);

/* The variables of a rank's process. group: a number that no other ranks of the parent have. */
static void ranks_name(int rank, int size, int group)
{
    char text[64];
    snprintf(text, sizeof(text), "%d", rank);
    setenv("RANK", text, 1);
    snprintf(text, sizeof(text), "%d", size);
    setenv("WORLD_SIZE", text, 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    snprintf(text, sizeof(text), "%d.%d", (int)getppid(), group);
    setenv("TORCHELASTIC_RUN_ID", text, 1);
    setenv("TC_COMM", "shm", 1);
    alarm(RANKS_SECONDS);
}

TCT_UNUSED static pid_t ranks_start(int rank, int size, int64_t timeout_ms, ranks_function f)
{
    static int group;
    group += rank == 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0) {
        return pid;
    }
    tc_comm *comm = NULL;
    tc_comm_options o = {.timeout_ms = timeout_ms};
    tct_failures = 0;
    ranks_name(rank, size, group);
    tc_status status = tc_comm_from_env_with(&o, &comm);
    if (status) {
        printf("rank %d: %s\n", rank, tc_comm_error(NULL));
        tct_exit(3);
    }
    f(comm);
    tc_comm_free(comm);
    fflush(NULL);
    tct_exit(tct_failures > 0);
}

/* All ranks, until they end. True: all of them held. */
TCT_UNUSED static bool ranks_run(int size, int64_t timeout_ms, ranks_function f)
{
    pid_t pids[RANKS_MOST];
    bool held = true;
    for (int r = 0; r < size; r++) {
        pids[r] = ranks_start(r, size, timeout_ms, f);
    }
    for (int r = 0; r < size; r++) {
        int state = 0;
        waitpid(pids[r], &state, 0);
        held = held && WIFEXITED(state) && WEXITSTATUS(state) == 0;
        if (!WIFEXITED(state)) {
            printf("rank %d ended by signal %d\n", r, WTERMSIG(state));
        }
    }
    return held;
}

#endif
