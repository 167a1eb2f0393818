/* base/os.c - operating system services: clock, environment, files, shared objects, processor
 * count. Directories are in base/private_dir.c, new files in base/atomic_file.c, processes in
 * base/spawn.c.
 *
 * In: paths and names. Out: results and errno codes. Nothing is printed, and errno is unspecified
 * afterwards.
 *
 * Design of the file functions: whoever can write where tc reads could plant code. A private file
 * is trusted only if its owner is this user or root, no one else may write to it, and it is not a
 * link. In a directory that no one else may enter, the mode of the file does not matter: no other
 * user can open or link it, and compilers give their files the mode that the umask leaves. */
#include "os.h"
#include "system_headers.h"

#define TCI_OS_OTHERS_WRITE (S_IWGRP | S_IWOTH)

TCI_FN int64_t tci_os_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

TCI_FN bool tci_os_is_setuid(void)
{
    return getuid() != geteuid() || getgid() != getegid();
}

TCI_FN const char *tci_os_getenv(const char *name)
{
#ifdef __linux__
    return secure_getenv(name);
#else
    return tci_os_is_setuid() ? NULL : getenv(name);
#endif
}

/* ---- fork ---- */

enum { TCI_OS_FORK_LOCKS = 32 };

static struct {
    tci_mutex lock; /* of those that announce; a fork does not take it */
    struct {
        tci_mutex *lock;
        void (*in_child)(void);
    } kept[TCI_OS_FORK_LOCKS];
    int n;    /* atomic: grows only */
    int held; /* taken for the fork under way; guarded by the first of them */
} tci_os_fork = {.lock = TCI_MUTEX_INIT};

static void tci_os_before_fork(void)
{
    int n = __atomic_load_n(&tci_os_fork.n, __ATOMIC_ACQUIRE);
    for (int i = 0; i < n; i++) {
        pthread_mutex_lock(tci_os_fork.kept[i].lock);
    }
    tci_os_fork.held = n;
}

static void tci_os_after_fork(void)
{
    for (int i = tci_os_fork.held - 1; i >= 0; i--) {
        pthread_mutex_unlock(tci_os_fork.kept[i].lock);
    }
}

static void tci_os_after_fork_in_child(void)
{
    int n = tci_os_fork.held;
    tci_os_after_fork();
    pthread_mutex_init(&tci_os_fork.lock, NULL);
    for (int i = 0; i < n; i++) {
        if (tci_os_fork.kept[i].in_child) {
            tci_os_fork.kept[i].in_child();
        }
    }
}

TCI_FN void tci_os_keep_over_fork(tci_mutex *lock, void (*in_child)(void))
{
    pthread_mutex_lock(&tci_os_fork.lock);
    int n = tci_os_fork.n;
    int i = 0;
    while (i < n && tci_os_fork.kept[i].lock != lock) {
        i++;
    }
    if (i == n && n < TCI_OS_FORK_LOCKS) {
        tci_os_fork.kept[n].lock = lock;
        tci_os_fork.kept[n].in_child = in_child;
        __atomic_store_n(&tci_os_fork.n, n + 1, __ATOMIC_RELEASE);
        if (!n) { /* out of memory: the child is then on its own, as without us */
            (void)pthread_atfork(tci_os_before_fork, tci_os_after_fork, tci_os_after_fork_in_child);
        }
    }
    pthread_mutex_unlock(&tci_os_fork.lock);
}

TCI_FN bool tci_os_pipe(int ends[2])
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

/* ---- files ---- */

static bool tci_os_why(int *why, int code)
{
    if (why) {
        *why = code;
    }
    return false;
}

TCI_FN int64_t tci_os_mtime_ns(const struct stat *st)
{
#if defined(__APPLE__)
    return (int64_t)st->st_mtimespec.tv_sec * 1000000000 + st->st_mtimespec.tv_nsec;
#elif defined(st_mtime)
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
#else
    return (int64_t)st->st_mtime * 1000000000;
#endif
}

TCI_FN bool tci_os_is_ours(const struct stat *st)
{
    return st->st_uid == geteuid() || st->st_uid == 0;
}

TCI_FN void tci_os_close(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

/* Reads what is left of fd and closes it. */
static bool tci_os_read_rest(int fd, int64_t most, tci_str *out, int *why)
{
    char block[16384];
    int code = 0;
    tci_str_add_n(out, "", 0); /* an empty file gives "" */
    for (;;) {
        ssize_t got = read(fd, block, sizeof(block));
        if (got > 0) {
            tci_str_add_n(out, block, (size_t)got);
            code = out->failed ? ENOMEM : (int64_t)out->n > most ? EFBIG : 0;
        } else if (got < 0 && errno != EINTR) {
            code = errno;
        }
        if (code || got == 0) {
            break;
        }
    }
    close(fd);
    return code ? tci_os_why(why, code) : true;
}

typedef enum tci_os_trust {
    TCI_OS_ANY_FILE,    /* the user named it */
    TCI_OS_OUR_FILE,    /* in a directory that no other user may enter */
    TCI_OS_PRIVATE_FILE /* anywhere */
} tci_os_trust;

static int tci_os_judge_file(int fd, tci_os_trust trust, int64_t most)
{
    struct stat st;
    if (fstat(fd, &st)) {
        return errno;
    }
    if (S_ISDIR(st.st_mode)) {
        return EISDIR;
    }
    if (!S_ISREG(st.st_mode)) { /* a device may have no end */
        return EINVAL;
    }
    if (trust == TCI_OS_ANY_FILE) {
        return 0;
    }
    if (!tci_os_is_ours(&st) ||
        (trust == TCI_OS_PRIVATE_FILE && (st.st_mode & TCI_OS_OTHERS_WRITE))) {
        return EPERM;
    }
    return st.st_size > most ? EFBIG : 0;
}

/* -1: *why says what is wrong with it. */
static int tci_os_open(int at, const char *path, tci_os_trust trust, int64_t most, int *why)
{
    /* O_NONBLOCK: opening a planted FIFO must not wait for a writer. */
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | (trust != TCI_OS_ANY_FILE ? O_NOFOLLOW : 0);
    int fd = openat(at, path, flags);
    int code = fd < 0 ? errno : tci_os_judge_file(fd, trust, most);
    if (code) {
        tci_os_close(fd);
        tci_os_why(why, code);
        return -1;
    }
    return fd;
}

static bool tci_os_read(int at, const char *path, tci_os_trust trust, int64_t most, tci_str *out,
                        int *why)
{
    int fd = tci_os_open(at, path, trust, most, why);
    return fd >= 0 && tci_os_read_rest(fd, most, out, why);
}

TCI_FN int tci_os_open_private_at(int at, const char *name, bool closed, int *why)
{
    tci_os_trust trust = closed ? TCI_OS_OUR_FILE : TCI_OS_PRIVATE_FILE;
    return tci_os_open(at, name, trust, INT64_MAX, why);
}

TCI_FN int tci_os_open_file(const char *path, int *why)
{
    return tci_os_open(AT_FDCWD, path, TCI_OS_ANY_FILE, INT64_MAX, why);
}

TCI_FN int64_t tci_os_file_bytes(int fd)
{
    struct stat st;
    return fstat(fd, &st) ? -1 : (int64_t)st.st_size;
}

TCI_FN int tci_os_read_at(int fd, void *to, size_t n, int64_t at)
{
    char *next = to;
    while (n) {
        ssize_t got = pread(fd, next, TCI_MIN(n, (size_t)1 << 30), (off_t)at);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return got ? errno : EIO; /* it has become shorter */
        }
        if (got > 0) {
            next += got;
            at += got;
            n -= (size_t)got;
        }
    }
    return 0;
}

TCI_FN bool tci_os_read_private_at(int at, const char *name, bool closed, int64_t most,
                                   tci_str *out, int *why)
{
    return tci_os_read(at, name, closed ? TCI_OS_OUR_FILE : TCI_OS_PRIVATE_FILE, most, out, why);
}

TCI_FN bool tci_os_read_private(const char *path, tci_str *out, int *why)
{
    return tci_os_read(AT_FDCWD, path, TCI_OS_PRIVATE_FILE, INT64_MAX, out, why);
}

TCI_FN bool tci_os_read_file(const char *path, tci_str *out, int *why)
{
    return tci_os_read(AT_FDCWD, path, TCI_OS_ANY_FILE, INT64_MAX, out, why);
}

TCI_FN uint64_t tci_os_random(void)
{
    uint64_t bits = 0;
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, &bits, sizeof(bits)) != (ssize_t)sizeof(bits)) {
            bits = 0;
        }
        close(fd);
    }
    if (!bits) {
        static _Atomic uint64_t count;
        bits = (uint64_t)tci_os_now_ns() ^ (uint64_t)getpid() << 40 ^ ++count << 24;
    }
    return bits;
}

static int tci_os_write_on(int fd, const char *at, size_t n)
{
    while (n) {
        ssize_t put = write(fd, at, n);
        if (put < 0 && errno != EINTR) {
            return errno;
        }
        if (put > 0) {
            at += put;
            n -= (size_t)put;
        }
    }
    return 0;
}

/* Beyond the limit of a file's size (ulimit -f) the system sends a signal, which would end the
 * process, in addition to the error; it is held back here, and taken in. */
TCI_FN int tci_os_write_all(int fd, const void *bytes, size_t n)
{
    sigset_t limit, before, waiting;
    int sig;
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    sigemptyset(&waiting);
    pthread_sigmask(SIG_BLOCK, &limit, &before);
    int why = tci_os_write_on(fd, bytes, n);
    if (why == EFBIG && !sigismember(&before, SIGXFSZ) && !sigpending(&waiting) &&
        sigismember(&waiting, SIGXFSZ)) { /* not so where it is ignored */
        sigwait(&limit, &sig);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return why;
}

TCI_FN bool tci_os_stat(const char *path, int64_t *bytes, int64_t *mtime_ns)
{
    struct stat st;
    if (stat(path, &st)) {
        return false;
    }
    if (bytes) {
        *bytes = st.st_size;
    }
    if (mtime_ns) {
        *mtime_ns = tci_os_mtime_ns(&st);
    }
    return true;
}

static bool tci_os_is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

TCI_FN bool tci_os_find_program(const char *name, tci_str *path)
{
    path->n = 0;
    if (!*name) {
        return false;
    }
    if (strchr(name, '/')) {
        tci_str_add(path, name);
        return !path->failed && tci_os_is_program(path->text);
    }
    const char *at = tci_os_getenv("PATH");
    if (!at) {
        at = TCI_OS_USUAL_PATH;
    }
    while (at) {
        size_t length = strcspn(at, ":");
        if (*at == '/') { /* others depend on the current directory: anybody's */
            path->n = 0;
            tci_str_add_n(path, at, length);
            tci_str_printf(path, "/%s", name);
            if (!path->failed && tci_os_is_program(path->text)) {
                return true;
            }
        }
        at = at[length] ? at + length + 1 : NULL;
    }
    return false;
}

/* ---- shared objects ---- */

TCI_FN void *tci_os_dlopen(const char *path, char why[256])
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    why[0] = 0;
    if (!handle) {
        const char *text = dlerror();
        snprintf(why, 256, "%s", text ? text : "unknown dlopen failure");
    }
    return handle;
}

TCI_FN void *tci_os_dlopen_loaded(const char *name)
{
    return dlopen(name, RTLD_NOW | (name ? RTLD_NOLOAD : 0));
}

TCI_FN void *tci_os_dlsym(void *handle, const char *name)
{
    return dlsym(handle, name);
}

TCI_FN void tci_os_dlclose(void *handle)
{
    if (handle) {
        dlclose(handle);
    }
}

/* ---- threads ---- */

TCI_FN int tci_os_no_cancel(void)
{
    int state = 0;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    return state;
}

TCI_FN void tci_os_may_cancel(int state)
{
    (void)pthread_setcancelstate(state, NULL);
}

/* ---- CPUs ---- */

/* Where CPUs have masks: 65,536 of them. */
#if defined(__linux__) && defined(SYS_sched_getaffinity) && defined(SYS_gettid)
#define TCI_OS_MASK_WORDS 1024
#define TCI_OS_MASK_BITS (8 * (int)sizeof(unsigned long))

static int tci_os_mask_count(const unsigned long *mask, long bytes)
{
    int n = 0;
    for (size_t i = 0; bytes > 0 && i < (size_t)bytes / sizeof(mask[0]); i++) {
        for (unsigned long bits = mask[i]; bits; bits &= bits - 1) {
            n++;
        }
    }
    return n;
}
#endif

static int tci_os_affinity_count(void)
{
#ifdef TCI_OS_MASK_WORDS
    unsigned long mask[TCI_OS_MASK_WORDS];
    int n = tci_os_mask_count(mask, syscall(SYS_sched_getaffinity, 0, sizeof(mask), mask));
    if (n) {
        return n;
    }
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

static bool tci_os_read_number(const char *path, double *value)
{
    tci_str text = {0};
    char *end = NULL;
    bool good = tci_os_read_file(path, &text, NULL) && text.n;
    if (good) {
        *value = strtod(text.text, &end);
        good = end != text.text;
    }
    tci_str_free(&text);
    return good;
}

/* CPUs' worth of time that one cgroup v2 directory grants; 0 when it sets no limit. */
static double tci_os_quota_of(const char *dir)
{
    tci_str path = {0}, text = {0};
    double quota = 0, period = 0;
    tci_str_printf(&path, "%s/cpu.max", dir);
    if (!path.failed && tci_os_read_file(path.text, &text, NULL) && text.n &&
        sscanf(text.text, "%lf %lf", &quota, &period) != 2) {
        quota = 0;
    }
    tci_str_free(&path);
    tci_str_free(&text);
    return period > 0 ? quota / period : 0;
}

/* The tightest quota of this process's cgroup and its parents; 0 when there is none. */
static double tci_os_cgroup_quota(void)
{
    double least = 0, quota, period;
    tci_str groups = {0}, dir = {0};
    if (tci_os_read_file("/proc/self/cgroup", &groups, NULL) && groups.n) {
        const char *line = strstr(groups.text, "0::/");
        if (line && (line == groups.text || line[-1] == '\n')) {
            tci_str_add(&dir, "/sys/fs/cgroup");
            size_t root = dir.n;
            tci_str_add_n(&dir, line + 3, strcspn(line + 3, "\n"));
            while (!dir.failed && dir.n >= root) {
                double here = tci_os_quota_of(dir.text);
                least = here > 0 && (least == 0 || here < least) ? here : least;
                do {
                    dir.text[--dir.n] = 0;
                } while (dir.n >= root && dir.text[dir.n - 1] != '/');
            }
        }
    }
    tci_str_free(&groups);
    tci_str_free(&dir);
    if (least == 0 && tci_os_read_number("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", &quota) &&
        tci_os_read_number("/sys/fs/cgroup/cpu/cpu.cfs_period_us", &period) && quota > 0 &&
        period > 0) {
        least = quota / period;
    }
    return least;
}

TCI_FN int tci_os_cpu_count(void)
{
    int n = tci_os_affinity_count();
    double quota = tci_os_cgroup_quota();
    if (quota > 0 && quota < n) {
        n = (int)quota; /* rounded down: a thread too many is stopped by the quota in mid-run */
    }
    return TCI_MAX(n, 1);
}

TCI_FN uint64_t tci_os_thread_id(void)
{
    static uint64_t count;
    static _Thread_local uint64_t own;
    own = own ? own : __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    return own;
}

TCI_FN bool tci_os_thread_lives(int32_t thread)
{
#if defined(__linux__) && defined(SYS_tgkill)
    return thread < 0 || syscall(SYS_tgkill, getpid(), thread, 0) == 0 || errno != ESRCH;
#else
    (void)thread;
    return true;
#endif
}

#ifdef TCI_OS_MASK_WORDS
TCI_FN int tci_os_cpu(void)
{
    return sched_getcpu();
}

TCI_FN int32_t tci_os_thread(void)
{
    return (int32_t)syscall(SYS_gettid);
}

TCI_FN void tci_os_keep_off(int32_t thread, int cpu, int before)
{
    unsigned long mask[TCI_OS_MASK_WORDS];
    long bytes = syscall(SYS_sched_getaffinity, (long)thread, sizeof(mask), mask);
    if (bytes <= 0 || cpu < 0 || TCI_MAX(cpu, before) >= 8 * bytes) {
        return;
    }
    if (before >= 0) {
        mask[before / TCI_OS_MASK_BITS] |= 1ul << (before % TCI_OS_MASK_BITS);
    }
    mask[cpu / TCI_OS_MASK_BITS] &= ~(1ul << (cpu % TCI_OS_MASK_BITS));
    if (tci_os_mask_count(mask, bytes)) {
        (void)syscall(SYS_sched_setaffinity, (long)thread, (size_t)bytes, mask);
    }
}

#undef TCI_OS_MASK_WORDS
#undef TCI_OS_MASK_BITS
#else
TCI_FN int tci_os_cpu(void)
{
    return -1;
}

TCI_FN int32_t tci_os_thread(void)
{
    return -1;
}

TCI_FN void tci_os_keep_off(int32_t thread, int cpu, int before)
{
    (void)thread, (void)cpu, (void)before;
}
#endif

#undef TCI_OS_OTHERS_WRITE
