/* base/spawn.c - runs another program and collects what it prints. See tci_os_run in base/os.h.
 *
 * In: an argument vector, a time limit, a size limit. Out: the text, the exit code, and one of four
 * results: OK (ended with code 0), FAILED (ended otherwise: its code, or 128 + signal; -1 when it
 * could not be started), MISSING, TIMEOUT. The one idea: the child leads its own process group and
 * writes into one pipe. We read until the pipe ends or the child does, whichever is first, so
 * neither a child that closes its output nor a grandchild that keeps it open can hold us; past the
 * time limit the whole group is killed.
 *
 * A host that reaps all children itself (SIGCHLD ignored, or a handler that waits for any) takes
 * the exit code from us. Such a run counts as OK with code 0: the caller looks at the output
 * file. */
#include "os.h"
#include "posix.h"

#if defined(__GLIBC__) && defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 34)
#define TCI_SPAWN_CLOSEFROM
extern int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t *actions, int from);
#endif
#endif

enum { TCI_SPAWN_SLICE_MS = 20 }; /* how often a child that prints nothing is looked at */

typedef struct tci_spawn_child {
    pid_t pid;
    int from;         /* our end of the pipe; -1 once it ended */
    bool ended;
    bool code_known;  /* false: the host reaped it */
    int code;
} tci_spawn_child;

/* A close-on-exec pipe whose ends are not 0, 1 or 2, even in a host that closed those. */
static bool tci_spawn_pipe(int ends[2])
{
    int raw[2];
#if defined(__linux__)
    if (pipe2(raw, O_CLOEXEC)) {
        return false;
    }
#else
    if (pipe(raw)) {
        return false;
    }
#endif
    for (int i = 0; i < 2; i++) {
        ends[i] = fcntl(raw[i], F_DUPFD_CLOEXEC, 3);
    }
    close(raw[0]);
    close(raw[1]);
    if (ends[0] < 0 || ends[1] < 0) {
        close(TCI_MAX(ends[0], ends[1]));
        return false;
    }
    return true;
}

/* Where the libc cannot close "all from 3", closes what is open now. */
static bool tci_spawn_close_rest(posix_spawn_file_actions_t *actions)
{
#ifdef TCI_SPAWN_CLOSEFROM
    return posix_spawn_file_actions_addclosefrom_np(actions, 3) == 0;
#else
    long limit = sysconf(_SC_OPEN_MAX);
    limit = limit < 0 || limit > 4096 ? 4096 : limit;
    for (int fd = 3; fd < (int)limit; fd++) {
        int flags = fcntl(fd, F_GETFD);
        if (flags >= 0 && !(flags & FD_CLOEXEC) && posix_spawn_file_actions_addclose(actions, fd)) {
            return false;
        }
    }
    return true;
#endif
}

static bool tci_spawn_actions(posix_spawn_file_actions_t *actions, int to)
{
    return posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0) == 0
           && posix_spawn_file_actions_adddup2(actions, to, 1) == 0
           && posix_spawn_file_actions_adddup2(actions, to, 2) == 0
           && tci_spawn_close_rest(actions);
}

/* Own process group, no signal blocked, every signal at its default. */
static bool tci_spawn_attributes(posix_spawnattr_t *attributes)
{
    sigset_t all, none;
    sigfillset(&all);
    sigdelset(&all, SIGKILL);
    sigdelset(&all, SIGSTOP);
    sigemptyset(&none);
    short flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP;
    return posix_spawnattr_setsigdefault(attributes, &all) == 0
           && posix_spawnattr_setsigmask(attributes, &none) == 0
           && posix_spawnattr_setpgroup(attributes, 0) == 0
           && posix_spawnattr_setflags(attributes, flags) == 0;
}

static int tci_spawn_start(const char *path, const char *const argv[], int to, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int code = posix_spawn_file_actions_init(&actions);
    if (code) {
        return code;
    }
    code = posix_spawnattr_init(&attributes);
    if (!code) {
        code = ENOMEM;
        if (tci_spawn_actions(&actions, to) && tci_spawn_attributes(&attributes)) {
            code = posix_spawn(pid, path, &actions, &attributes, (char *const *)argv, environ);
        }
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return code;
}

/* Learns whether the child ended; `block` waits for it. */
static void tci_spawn_look(tci_spawn_child *c, bool block)
{
    int status = 0;
    pid_t got;
    if (c->ended) {
        return;
    }
    do {
        got = waitpid(c->pid, &status, block ? 0 : WNOHANG);
    } while (got < 0 && errno == EINTR);
    if (got == c->pid && (WIFEXITED(status) || WIFSIGNALED(status))) {
        c->ended = true;
        c->code_known = true;
        c->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    } else if (got < 0) {
        c->ended = true; /* ECHILD: the host has reaped it */
    }
}

/* One read of the pipe; keeps at most log_limit bytes in all. */
static void tci_spawn_read(tci_spawn_child *c, size_t log_limit, tci_str *log)
{
    char block[8192];
    ssize_t got = read(c->from, block, sizeof(block));
    if (got > 0 && log && log->n < log_limit) {
        tci_str_add_n(log, block, TCI_MIN((size_t)got, log_limit - log->n));
    } else if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
        close(c->from);
        c->from = -1;
    }
}

/* Waits up to wait_ms for output and takes one block of it. False: there was none. */
static bool tci_spawn_poll(tci_spawn_child *c, int wait_ms, size_t log_limit, tci_str *log)
{
    struct pollfd p = {c->from, POLLIN, 0};
    if (c->from < 0 || poll(&p, 1, wait_ms) <= 0) {
        return false;
    }
    tci_spawn_read(c, log_limit, log);
    return true;
}

/* Until the child has ended, or false at the deadline. */
static bool tci_spawn_wait(tci_spawn_child *c, int64_t deadline_ns, size_t log_limit, tci_str *log)
{
    long pause_ns = 50000;
    while (!c->ended) {
        int64_t left_ns = deadline_ns - tci_os_now_ns();
        if (left_ns <= 0) {
            return false;
        }
        if (c->from >= 0) {
            int slice_ms = (int)TCI_MIN(left_ns / 1000000 + 1, (int64_t)TCI_SPAWN_SLICE_MS);
            if (!tci_spawn_poll(c, slice_ms, log_limit, log) || c->from < 0) {
                tci_spawn_look(c, false);
            }
        } else {
            struct timespec pause = {0, pause_ns};
            nanosleep(&pause, NULL);
            pause_ns = TCI_MIN(pause_ns * 2, 10000000L);
            tci_spawn_look(c, false);
        }
    }
    return true;
}

TCI_FN tci_spawn tci_os_run(const char *const argv[], int64_t timeout_ms, size_t log_limit,
                            tci_str *log, int *exit_code)
{
    tci_str path = {0};
    tci_spawn_child c = {-1, -1, false, false, 0};
    int ends[2];
    *exit_code = -1;
    if (!tci_os_find_program(argv[0], &path)) {
        tci_str_free(&path);
        return TCI_SPAWN_MISSING;
    }
    if (!tci_spawn_pipe(ends)) {
        tci_str_free(&path);
        return TCI_SPAWN_FAILED;
    }
    int code = tci_spawn_start(path.text, argv, ends[1], &c.pid);
    tci_str_free(&path);
    close(ends[1]);
    c.from = ends[0];
    if (code) {
        close(c.from);
        return code == ENOENT ? TCI_SPAWN_MISSING : TCI_SPAWN_FAILED;
    }
    bool in_time = tci_spawn_wait(&c, tci_os_now_ns() + timeout_ms * 1000000, log_limit, log);
    if (!in_time) {
        kill(-c.pid, SIGKILL);
        kill(c.pid, SIGKILL); /* in case it left its group */
        tci_spawn_look(&c, true);
    }
    /* What the child wrote before it ended; a grandchild that goes on writing is left behind. */
    int64_t drain_end_ns = tci_os_now_ns() + 1000000000;
    while (tci_spawn_poll(&c, 0, log_limit, log) && tci_os_now_ns() < drain_end_ns) {
    }
    if (c.from >= 0) {
        close(c.from);
    }
    if (!in_time) {
        return TCI_SPAWN_TIMEOUT;
    }
    *exit_code = c.code_known ? c.code : 0;
    return *exit_code ? TCI_SPAWN_FAILED : TCI_SPAWN_OK;
}

#undef TCI_SPAWN_CLOSEFROM
