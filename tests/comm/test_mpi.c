/* tests/comm/test_mpi.c - the same collectives through MPI, started by mpirun: Open MPI's and
 * MPICH's libraries with one binary. The program starts itself: in a rank a constructor does the
 * test. */
#include "tc_comm.h"

#include "tc_test.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "verbs.h"

extern char **environ;

/* A communicator of the environment, a second one over its halves, everything on both. */
__attribute__((constructor)) static void be_a_rank(void)
{
    const char *wanted = getenv("TC_TEST_MPI_RANK");
    tc_comm *comm = NULL;
    if (!wanted) {
        return;
    }
    alarm(100);
    if (tc_comm_from_env(&comm)) {
        printf("%s\n", tc_comm_error(NULL));
        fflush(NULL);
        tct_exit(3);
    }
    CHECK(!strcmp(tc_comm_engine_name(comm), "mpi"));
    CHECK_EQ_INT(tc_comm_size(comm), atoi(wanted));
    verbs_check(comm);
    tc_comm_free(comm);
    fflush(NULL);
    tct_exit(tct_failures > 0);
}

/* mpirun of that name with n ranks of this program; -1: it is not installed. */
static int mpirun(const char *name, int n)
{
    char path[64], self[1024], count[16];
    snprintf(path, sizeof(path), "/usr/bin/%s", name);
    snprintf(count, sizeof(count), "%d", n);
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (access(path, X_OK) || bytes < 0) {
        return -1;
    }
    self[bytes] = 0;
    setenv("TC_TEST_MPI_RANK", count, 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 1);
    char *argv[] = {path, (char *)(uintptr_t)"-n", count, self, NULL};
    pid_t pid;
    int state = 0;
    fflush(NULL);
    bool started = posix_spawn(&pid, path, NULL, NULL, argv, environ) == 0;
    unsetenv("TC_TEST_MPI_RANK");
    if (!started) {
        return -1;
    }
    waitpid(pid, &state, 0);
    return WIFEXITED(state) ? WEXITSTATUS(state) : 128;
}

static void under(const char *name, int n)
{
    int code = mpirun(name, n);
    if (code < 0) {
        SKIP("%s is not installed", name);
    }
    CHECK_EQ_INT(code, 0);
}

TEST(open_mpi_with_two_ranks)
{
    under("mpirun.openmpi", 2);
}
TEST(open_mpi_with_four_ranks)
{
    under("mpirun.openmpi", 4);
}
TEST(mpich_with_two_ranks)
{
    under("mpirun.mpich", 2);
}
TEST(mpich_with_four_ranks)
{
    under("mpirun.mpich", 4);
}

TEST(a_communicator_of_mpi_needs_mpi)
{
    tc_comm *comm = NULL;
    int handle = 0;
    CHECK_EQ_INT(tc_comm_of_mpi(&handle, NULL, &comm), TC_ERR_COMM);
    CHECK(strstr(tc_comm_error(NULL), "MPI") != NULL);
    CHECK_EQ_INT(tc_comm_of_mpi(NULL, NULL, &comm), TC_ERR_ARGUMENT);
}

TEST_MAIN
