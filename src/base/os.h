/* base/os.h - operating system services: files, processes, shared objects, clock, locks, threads.
 * Nothing here depends on tensors. Every function reports failure by its result; none prints. */
#ifndef TCI_BASE_OS_H
#define TCI_BASE_OS_H

#include "str.h"

TCI_FN int64_t tci_os_now_ns(void); /* monotonic */

/* Locks: a small static-initialisable mutex and condition (pthread underneath). */
#include <pthread.h>
typedef pthread_mutex_t tci_mutex;
typedef pthread_cond_t tci_cond;
#define TCI_MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
#define TCI_COND_INIT PTHREAD_COND_INITIALIZER
/* A lock of the process that a child made by fork shall find free, whoever held it: the fork waits
 * for it. in_child (or NULL) then runs in the child. Locks that are held together are announced in
 * the order in which they are taken. Announcing one again changes nothing. */
TCI_FN void tci_os_keep_over_fork(tci_mutex *lock, void (*in_child)(void));

/* Environment variable by name through secure_getenv where there is one; NULL when unset or the
 * process is setuid. base/env.c is the only caller. */
TCI_FN const char *tci_os_getenv(const char *name);
TCI_FN bool tci_os_is_setuid(void);

/* Reads a whole regular file, refusing links (O_NOFOLLOW), owners other than us and root, and
 * group/other-writable files. False: errno-like code in *why. Text is heap memory in out. */
TCI_FN bool tci_os_read_private(const char *path, tci_str *out, int *why);
/* The same of a name in an open directory; EFBIG: it has more than `most` bytes. closed: no
 * other user may enter the directory, so group- and other-writable files are read too. */
TCI_FN bool tci_os_read_private_at(int at, const char *name, bool closed, int64_t most,
                                   tci_str *out, int *why);
TCI_FN bool tci_os_read_file(const char *path, tci_str *out, int *why); /* any regular file */
/* The descriptors of such files, to be read piece by piece; -1: errno-like code in *why. */
TCI_FN int tci_os_open_private_at(int at, const char *name, bool closed, int *why);
TCI_FN int tci_os_open_file(const char *path, int *why);
TCI_FN int64_t tci_os_file_bytes(int fd);                          /* -1: not known */
TCI_FN int tci_os_read_at(int fd, void *to, size_t n, int64_t at); /* all n; an errno, or 0 */
TCI_FN void tci_os_close(int fd);                                  /* -1 is fine */
/* ---- files that appear complete or not at all: base/atomic_file.c ---- */
/* A temporary file in the directory of `path`, renamed into place at the end if all went well.
 * After an error the rest does nothing. */
typedef struct tci_os_fresh {
    bool began;   /* and has not ended; all zero: nothing to end */
    bool users;   /* one of the user's */
    int dir, fd;  /* -1: not open */
    tci_str name; /* heap: of the file in dir, and of the temporary one */
    tci_str temporary;
    bool replaces; /* users: a file exists, whose mode and owner the new one keeps */
    unsigned mode, uid, gid;
    int code; /* errno of the first error, or 0 */
} tci_os_fresh;
/* A file of tc's own, relative to an open directory: mode 0600 whatever the umask is. A link of
 * that name is replaced. */
TCI_FN void tci_os_fresh_begin(tci_os_fresh *f, int at, const char *path);
/* A user file. A link is followed; a file that is there keeps its mode and, if the system
 * allows it, owner and group; a new one gets 0666 less the umask. Removes the temporary files that
 * dead processes left for that name. */
TCI_FN void tci_os_fresh_begin_users(tci_os_fresh *f, const char *path);
/* Only the owner may write to the file that appears, whatever the umask is. */
TCI_FN void tci_os_fresh_close_to_others(tci_os_fresh *f);
TCI_FN void tci_os_fresh_write(tci_os_fresh *f, const void *bytes, size_t n);
/* durable: written through to the disk before the rename, so that it is whole also after a crash
 * of the machine; user files always are. keep false: it goes away. Returns f->code. */
TCI_FN int tci_os_fresh_end(tci_os_fresh *f, bool keep, bool durable);
TCI_FN const char *tci_os_fresh_why(int code); /* text for f->code */
/* Writes bytes to a file of tc's own. */
TCI_FN bool tci_os_publish(const char *path, const void *bytes, size_t n, int *why);
/* The same in an open directory. */
TCI_FN bool tci_os_publish_at(int at, const char *path, const void *bytes, size_t n, bool durable,
                              int *why);

/* ---- more of files ---- */
/* Writes all n bytes; an errno code, or 0. */
TCI_FN int tci_os_write_all(int fd, const void *bytes, size_t n);
struct stat;
TCI_FN bool tci_os_is_ours(const struct stat *st); /* owned by this user or root */
TCI_FN int64_t tci_os_mtime_ns(const struct stat *st);
/* 64 bits that cannot be guessed; when the system has none to give, at least no two are equal. */
TCI_FN uint64_t tci_os_random(void);
TCI_FN bool tci_os_stat(const char *path, int64_t *bytes, int64_t *mtime_ns);
/* A path as given, or a name on PATH, in its absolute entries only. */
#define TCI_OS_USUAL_PATH "/usr/local/bin:/usr/bin:/bin" /* where PATH is unset */
TCI_FN bool tci_os_find_program(const char *name, tci_str *path);

/* ---- processes: base/spawn.c ---- */
typedef struct tci_command {
    const char *const *argv; /* argv[0]: a path, or a name on PATH */
    int64_t cpu_s;           /* CPU time that each of its processes may use; 0: no limit */
    int64_t wall_ms;         /* until all of it is killed */
    size_t log_limit;        /* bytes of output that are kept; the rest is read and dropped */
    const char *temp_dir;    /* its TMPDIR; NULL: ours */
    const int *cancel;       /* atomic: all of it is killed once this is not 0; or NULL */
    int64_t used_ns;         /* out: CPU time of it and all that it waited for */
} tci_command;
/* OK: it ended with code 0; FAILED: any other end (code, 128 + signal) or not started (-1). OK also
 * where the code cannot be known, as the host reaps children itself (SIGCHLD ignored): success is
 * then judged by the caller from the output file. */
typedef enum tci_spawn {
    TCI_SPAWN_OK,
    TCI_SPAWN_MISSING,
    TCI_SPAWN_FAILED,
    TCI_SPAWN_TIMEOUT
} tci_spawn;
/* Runs without a shell: posix_spawn, signals reset to default, own process group, stdin from
 * /dev/null, stdout and stderr into `log` (heap), descriptors closed, PATH without entries that are
 * no absolute path (TCI_OS_USUAL_PATH if none is left). Nothing of its group is alive when this
 * returns. */
TCI_FN tci_spawn tci_os_run(tci_command *c, tci_str *log, int *exit_code);

/* ---- shared objects: of other projects; ours are loaded by base/object_loader.c ---- */
TCI_FN void *tci_os_dlopen(const char *path, char why[256]);
/* One that the process has loaded already; NULL for a name: all whose names are global. */
TCI_FN void *tci_os_dlopen_loaded(const char *name);
TCI_FN void *tci_os_dlsym(void *handle, const char *name);
TCI_FN void tci_os_dlclose(void *handle);

/* From here to tci_os_may_cancel(state) the thread cannot be cancelled. */
TCI_FN int tci_os_no_cancel(void);
TCI_FN void tci_os_may_cancel(int state);

/* A close-on-exec pipe whose ends are not 0, 1 or 2, even in a host that closed those. */
TCI_FN bool tci_os_pipe(int ends[2]);

/* Threads the process may use: affinity mask and cgroup CPU quota, at least 1. */
TCI_FN int tci_os_cpu_count(void);
/* The CPU that the calling thread runs on at the moment, and the system's number of the
 * thread; -1 where the system has none. */
TCI_FN int tci_os_cpu(void);
TCI_FN int32_t tci_os_thread(void);
/* The calling thread's own number: 1, 2, ... in the order in which threads ask first. Unlike a
 * pthread_t or the system's number it is never another thread's later. */
TCI_FN uint64_t tci_os_thread_id(void);
/* False: no thread of this process has that system's number any more. -1, and where the system does
 * not report it: true. */
TCI_FN bool tci_os_thread_lives(int32_t thread);
/* Takes a CPU from those that a thread may run on, if others are left, and gives back the one
 * that was taken before (-1: none was). */
TCI_FN void tci_os_keep_off(int32_t thread, int cpu, int before);

#endif
