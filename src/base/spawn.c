/* base/spawn.c - runs another program and collects its output (tci_os_run in base/os.h).
 *
 * In: a command with its limits. Out: the text, the exit code, and how it ended.
 *
 * Design: the child leads its own process group and writes to one pipe. The parent reads until the
 * pipe closes or the child ends, whichever is first, so neither a child that closes its output nor
 * a grandchild that keeps the pipe open can block it. When the child has ended, or its time limit
 * has expired, the whole group is killed; the group is released before the child is reaped, since
 * its number may be reused afterwards.
 *
 * The time limit is CPU time, which the kernel counts per process (RLIMIT_CPU), so a busy
 * machine does not make a compiler fail; the wall clock only ends processes that wait forever. The
 * limit is set from outside, since posix_spawn cannot set it; where that is impossible only the
 * wall clock counts.
 *
 * A host that reaps all children itself (SIGCHLD ignored, or a handler that waits for any child)
 * takes the exit code away. The run then counts as OK with code 0, and the caller checks the output
 * file. The group is then killed only while a member of it still holds the pipe, which shows that
 * its number is still in use. */
#include "os.h"
#include "system_headers.h"

#if defined(__GLIBC__) && defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 34)
#define TCI_SPAWN_CLOSEFROM
extern int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t *actions, int from);
#endif
#endif

enum {
    TCI_SPAWN_SLICE_MS = 20, /* how often a child that prints nothing is looked at */
    TCI_SPAWN_LIMITS = 10,   /* looks after which all that it starts have inherited its limit */
    TCI_SPAWN_DEPTH = 8      /* of processes below it */
};

typedef struct tci_spawn_child {
    pid_t pid;
    int from; /* our end of the pipe; -1 once it ended */
    bool ended;
    bool reaped; /* by the host: no code is known, and pid may be another's by now */
    int code;
    int64_t used_ns; /* by the child and all that it waited for */
    int looks;
    int64_t cpu_s;
    size_t log_limit;
    tci_str *log;
} tci_spawn_child;

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
    return posix_spawn_file_actions_addopen(actions, 0, "/dev/null", O_RDONLY, 0) == 0 &&
           posix_spawn_file_actions_adddup2(actions, to, 1) == 0 &&
           posix_spawn_file_actions_adddup2(actions, to, 2) == 0 && tci_spawn_close_rest(actions);
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
    return posix_spawnattr_setsigdefault(attributes, &all) == 0 &&
           posix_spawnattr_setsigmask(attributes, &none) == 0 &&
           posix_spawnattr_setpgroup(attributes, 0) == 0 &&
           posix_spawnattr_setflags(attributes, flags) == 0;
}

/* ---- the environment ---- */

typedef struct tci_spawn_environment {
    char **list; /* heap, as are the texts below; ends in NULL */
    tci_str path, temp_dir;
} tci_spawn_environment;

static void tci_spawn_free_environment(tci_spawn_environment *e)
{
    tci_heap_free(e->list);
    tci_str_free(&e->path);
    tci_str_free(&e->temp_dir);
}

/* PATH without what depends on the current directory: the compiler looks for its parts there. at
 * NULL: there is no PATH. */
static void tci_spawn_clean_path(tci_str *clean, const char *at)
{
    tci_str_add(clean, "PATH=");
    while (at) {
        size_t length = strcspn(at, ":");
        if (*at == '/') {
            tci_str_add(clean, clean->text && clean->n > 5 ? ":" : "");
            tci_str_add_n(clean, at, length);
        }
        at = at[length] ? at + length + 1 : NULL;
    }
    if (clean->n == 5) {
        tci_str_add(clean, TCI_OS_USUAL_PATH);
    }
}

/* Our environment, with that PATH, and with the command's TMPDIR. False: out of memory. */
static bool tci_spawn_make_environment(tci_spawn_environment *e, const char *temp_dir)
{
    int n = 0;
    memset(e, 0, sizeof(*e));
    while (environ && environ[n]) {
        n++;
    }
    e->list = tci_heap_get(sizeof(*e->list) * (size_t)(n + 3));
    if (!e->list) {
        return false;
    }
    const char *path = NULL;
    int kept = 0;
    for (int i = 0; i < n; i++) {
        char *row = environ[i];
        if (!strncmp(row, "PATH=", 5)) {
            path = path ? path : row + 5;
        } else if (!temp_dir || strncmp(row, "TMPDIR=", 7)) {
            e->list[kept++] = row;
        }
    }
    tci_spawn_clean_path(&e->path, path);
    e->list[kept++] = e->path.text;
    if (temp_dir) {
        tci_str_printf(&e->temp_dir, "TMPDIR=%s", temp_dir);
        e->list[kept] = e->temp_dir.text;
    }
    return !e->path.failed && !e->temp_dir.failed;
}

/* ---- start ---- */

static int tci_spawn_start(const char *path, const tci_command *c, int to, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    tci_spawn_environment environment;
    int code = posix_spawn_file_actions_init(&actions);
    if (code) {
        return code;
    }
    code = posix_spawnattr_init(&attributes);
    if (!code) {
        code = ENOMEM;
        if (tci_spawn_make_environment(&environment, c->temp_dir) &&
            tci_spawn_actions(&actions, to) && tci_spawn_attributes(&attributes)) {
            code = posix_spawn(pid, path, &actions, &attributes, (char *const *)c->argv,
                               environment.list);
        }
        tci_spawn_free_environment(&environment);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&actions);
    return code;
}

/* For the process and those below it: limits their CPU time, which what they start from now
 * on inherits; or, with cpu_s < 0, ends them. A process is stopped before its children are read, so
 * that it reaps none of them and their numbers stay theirs. */
static void tci_spawn_tree(pid_t pid, int64_t cpu_s, int depth)
{
#if defined(__linux__) && defined(SYS_prlimit64)
    uint64_t limit[2] = {(uint64_t)cpu_s, (uint64_t)cpu_s + 1}; /* a signal, then the other one */
    char path[64];
    tci_str children = {0};
    if (cpu_s < 0) {
        kill(pid, SIGSTOP);
    } else {
        (void)syscall(SYS_prlimit64, pid, RLIMIT_CPU, limit, NULL);
    }
    snprintf(path, sizeof(path), "/proc/%ld/task/%ld/children", (long)pid, (long)pid);
    if (depth < TCI_SPAWN_DEPTH && tci_os_read_file(path, &children, NULL)) {
        const char *at = tci_str_text(&children); /* "" also without memory */
        char *end;
        for (long child = strtol(at, &end, 10); end != at; child = strtol(at, &end, 10)) {
            tci_spawn_tree((pid_t)child, cpu_s, depth + 1);
            at = end;
        }
    }
    tci_str_free(&children);
#else
    (void)depth;
#endif
    if (cpu_s < 0) {
        kill(pid, SIGKILL);
    }
}

/* ---- wait ---- */

/* Learns whether the child ended, without letting its number go. */
static void tci_spawn_look(tci_spawn_child *c)
{
    int got;
#ifdef __linux__
    long info[32] = {0}; /* siginfo_t, which a strict libc hides */
    const int by_pid = 1, exited = 4, no_hang = 1, no_wait = 0x01000000;
    do {
        got = (int)syscall(SYS_waitid, by_pid, c->pid, info, exited | no_hang | no_wait, NULL);
    } while (got < 0 && errno == EINTR);
    bool found = got == 0 && info[0] != 0; /* si_signo */
#else
    siginfo_t info;
    memset(&info, 0, sizeof(info));
    do {
        got = waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT);
    } while (got < 0 && errno == EINTR);
    bool found = got == 0 && info.si_pid == c->pid;
#endif
    c->ended = found || got < 0;
    c->reaped = got < 0;
    if (!c->ended && c->cpu_s > 0 && c->looks++ < TCI_SPAWN_LIMITS) {
        tci_spawn_tree(c->pid, c->cpu_s, 0); /* it may have started others before the first time */
    }
}

/* Takes the end of the child; waits for it. */
static void tci_spawn_reap(tci_spawn_child *c)
{
    struct rusage used;
    int status = 0;
    pid_t got;
    memset(&used, 0, sizeof(used));
    do {
        got = wait4(c->pid, &status, 0, &used);
    } while (got < 0 && errno == EINTR);
    c->reaped = got != c->pid;
    if (!c->reaped) {
        c->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        int64_t seconds = (int64_t)used.ru_utime.tv_sec + used.ru_stime.tv_sec;
        int64_t rest_us = (int64_t)used.ru_utime.tv_usec + used.ru_stime.tv_usec;
        c->used_ns = seconds * 1000000000 + rest_us * 1000;
    }
}

/* One read of the pipe; keeps at most log_limit bytes in all. */
static void tci_spawn_read(tci_spawn_child *c)
{
    char block[8192];
    ssize_t got = read(c->from, block, sizeof(block));
    if (got > 0 && c->log->n < c->log_limit) {
        tci_str_add_n(c->log, block, TCI_MIN((size_t)got, c->log_limit - c->log->n));
    } else if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
        close(c->from);
        c->from = -1;
    }
}

/* Waits up to wait_ms for output and takes one block of it. False: there was none. */
static bool tci_spawn_poll(tci_spawn_child *c, int wait_ms)
{
    struct pollfd p = {c->from, POLLIN, 0};
    if (c->from < 0 || poll(&p, 1, wait_ms) <= 0) {
        return false;
    }
    tci_spawn_read(c);
    return true;
}

/* Until the child has ended, or false at the deadline or when it is cancelled. */
static bool tci_spawn_wait(tci_spawn_child *c, int64_t deadline_ns, const int *cancel)
{
    long pause_ns = 50000;
    while (!c->ended) {
        int64_t left_ns = deadline_ns - tci_os_now_ns();
        if (left_ns <= 0 || (cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED))) {
            return false;
        }
        if (c->from >= 0) {
            int slice_ms = (int)TCI_MIN(left_ns / 1000000 + 1, (int64_t)TCI_SPAWN_SLICE_MS);
            if (!tci_spawn_poll(c, slice_ms) || c->from < 0) {
                tci_spawn_look(c);
            }
        } else {
            struct timespec pause = {0, pause_ns};
            nanosleep(&pause, NULL);
            pause_ns = TCI_MIN(pause_ns * 2, 10000000L);
            tci_spawn_look(c);
        }
    }
    return true;
}

/* Collects the remaining output, and ends what the group may still write. */
static void tci_spawn_finish(tci_spawn_child *c)
{
    int64_t drain_end_ns = tci_os_now_ns() + 1000000000;
    while (tci_spawn_poll(c, 0) && tci_os_now_ns() < drain_end_ns) {
    }
    if (!c->reaped) {
        tci_spawn_tree(c->pid, -1, 0); /* in case one of them left the group */
    }
    if (!c->reaped || c->from >= 0) {
        kill(-c->pid, SIGKILL);
    }
    if (!c->reaped) {
        tci_spawn_reap(c);
    }
    if (c->from >= 0) {
        close(c->from);
    }
}

TCI_FN tci_spawn tci_os_run(tci_command *command, tci_str *log, int *exit_code)
{
    tci_str path = {0};
    tci_spawn_child c = {.pid = -1,
                         .from = -1,
                         .cpu_s = command->cpu_s,
                         .log_limit = command->log_limit,
                         .log = log};
    int ends[2];
    *exit_code = -1;
    if (!tci_os_find_program(command->argv[0], &path)) {
        tci_str_free(&path);
        return TCI_SPAWN_MISSING;
    }
    if (!tci_os_pipe(ends)) {
        tci_str_free(&path);
        return TCI_SPAWN_FAILED;
    }
    int code = tci_spawn_start(path.text, command, ends[1], &c.pid);
    tci_str_free(&path);
    close(ends[1]);
    c.from = ends[0];
    if (code) {
        close(c.from);
        return code == ENOENT ? TCI_SPAWN_MISSING : TCI_SPAWN_FAILED;
    }
    tci_spawn_look(&c);
    bool in_time = tci_spawn_wait(&c, tci_os_now_ns() + command->wall_ms * 1000000,
                                  command->cancel);
    tci_spawn_finish(&c);
    command->used_ns = c.used_ns;
    if (!in_time) {
        return TCI_SPAWN_TIMEOUT;
    }
    *exit_code = c.code;
    return c.code ? TCI_SPAWN_FAILED : TCI_SPAWN_OK;
}

#undef TCI_SPAWN_CLOSEFROM
