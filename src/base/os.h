/* base/os.h - the operating system: files, processes, shared objects, clock, locks, threads.
 * Nothing here knows tensors. Every function reports failure by its result; none prints. */
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
TCI_FN bool tci_os_read_file(const char *path, tci_str *out, int *why); /* any readable file */
/* Writes bytes to a fresh O_EXCL temporary beside `path` (mode 0600) and renames it into place:
 * readers see all or nothing. After a crash of the machine the file may be torn all the same. */
TCI_FN bool tci_os_publish(const char *path, const void *bytes, size_t n, int *why);
/* The same, but written through to the disk before the rename: whole also after such a crash. */
TCI_FN bool tci_os_publish_durable(const char *path, const void *bytes, size_t n, int *why);
TCI_FN bool tci_os_rename(const char *from, const char *to);
TCI_FN bool tci_os_remove(const char *path);
/* Makes `path` and its parents (0700); true only if it is then a directory of ours or root's that
 * nobody else can write or swap, and not on a noexec mount. *writable: we may write it. */
TCI_FN bool tci_os_private_dir(const char *path, bool *writable);
/* A new private directory with an unpredictable name under $TMPDIR or /tmp; heap text in out. */
TCI_FN bool tci_os_temp_dir(tci_str *out);
typedef struct tci_os_file { char name[256]; int64_t bytes, mtime_ns; } tci_os_file;
/* Regular files of a directory into a heap array (*files, free with tci_heap_free); -1 on
 * failure. */
TCI_FN int tci_os_list(const char *dir, tci_os_file **files);
TCI_FN bool tci_os_stat(const char *path, int64_t *bytes, int64_t *mtime_ns);
TCI_FN void tci_os_touch(const char *path); /* mtime = now, for LRU; failures are ignored */
TCI_FN bool tci_os_find_program(const char *name, tci_str *path); /* on PATH, or a given path */

/* Runs argv[0] (a path or a name on PATH) without a shell: posix_spawn, signals reset to default,
 * own process group, stdin from /dev/null, stdout and stderr into `log` (cut at log_limit bytes;
 * the rest is read and dropped), descriptors closed, killed as a group after timeout_ms. OK: it
 * ended with code 0; FAILED: any other end (code, 128 + signal) or not started (-1). Tolerates a
 * host that reaps children itself (SIGCHLD ignored): then success is judged by the caller from the
 * output file. */
typedef enum tci_spawn {
    TCI_SPAWN_OK,
    TCI_SPAWN_MISSING,
    TCI_SPAWN_FAILED,
    TCI_SPAWN_TIMEOUT
} tci_spawn;
TCI_FN tci_spawn tci_os_run(const char *const argv[], int64_t timeout_ms, size_t log_limit,
                            tci_str *log, int *exit_code);

/* Shared objects. Handles stay open for the process (symbols stay valid in reports) unless
 * closed. */
TCI_FN void *tci_os_dlopen(const char *path, char why[256]);
TCI_FN void *tci_os_dlsym(void *handle, const char *name);
TCI_FN void tci_os_dlclose(void *handle);

/* Threads the process may use: affinity mask and cgroup CPU quota, at least 1. */
TCI_FN int tci_os_cpu_count(void);

#endif
