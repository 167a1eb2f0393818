/* base/system_headers.h - includes the system headers of the implementation, and declares the POSIX
 * functions that libc hides under -std=c11.
 *
 * Under -std=c11 libc declares no POSIX. Requesting it here affects headers that were not included
 * yet (glibc decides once, in features.h, so the request is repeated). Declarations that headers
 * included earlier by the user's file still hide are written below, one by one, with the types and
 * values of the Linux libcs. Redeclaring a visible function is legal and changes nothing. */
#ifndef TCI_BASE_SYSTEM_HEADERS_H
#define TCI_BASE_SYSTEM_HEADERS_H

#if defined(__linux__) && !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE 1
#if defined(__GLIBC__) && !defined(__USE_MISC)
#undef _FEATURES_H
#include <features.h>
#endif
#endif

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#ifdef __linux__
#include <sys/syscall.h>

extern char *secure_getenv(const char *name);
extern char *realpath(const char *path, char *resolved);
extern int clock_gettime(int clock, struct timespec *now);
extern int dirfd(DIR *dir);
extern DIR *fdopendir(int fd);
extern int faccessat(int dir, const char *path, int mode, int flags);
extern int fchmod(int fd, mode_t mode);
extern int fchmodat(int dir, const char *path, mode_t mode, int flags);
extern int fchown(int fd, uid_t owner, gid_t group);
extern int fstatvfs(int fd, struct statvfs *fs);
extern int mkdirat(int dir, const char *path, mode_t mode);
extern int openat(int dir, const char *path, int flags, ...);
extern int renameat(int from_dir, const char *from, int to_dir, const char *to);
extern ssize_t pread(int fd, void *to, size_t n, off_t at);
extern ssize_t readlinkat(int dir, const char *path, char *to, size_t room);
extern int unlinkat(int dir, const char *path, int flags);
extern int fstatat(int dir, const char *path, struct stat *st, int flags);
extern int kill(pid_t pid, int sig);
extern int lstat(const char *path, struct stat *st);
extern int madvise(void *start, size_t bytes, int advice);
extern int nanosleep(const struct timespec *wanted, struct timespec *left);
extern int pipe2(int ends[2], int flags);
extern int pthread_condattr_setclock(pthread_condattr_t *attributes, int clock);
extern int pthread_sigmask(int how, const sigset_t *set, sigset_t *old);
extern int sched_getcpu(void);
extern int sigaddset(sigset_t *set, int sig);
extern int sigdelset(sigset_t *set, int sig);
extern int sigemptyset(sigset_t *set);
extern int sigfillset(sigset_t *set);
extern int sigismember(const sigset_t *set, int sig);
extern int sigpending(sigset_t *set);
extern int sigwait(const sigset_t *set, int *sig);
extern int utimensat(int dir, const char *path, const struct timespec times[2], int flags);
extern long syscall(long number, ...);
extern pid_t wait4(pid_t pid, int *status, int flags, struct rusage *used);

#ifndef AT_FDCWD
#define AT_FDCWD (-100)
#endif
#ifndef AT_REMOVEDIR
#define AT_REMOVEDIR 0x200
#endif
#ifndef AT_SYMLINK_NOFOLLOW
#define AT_SYMLINK_NOFOLLOW 0x100
#endif
#ifndef CLOCK_MONOTONIC
#define CLOCK_MONOTONIC 1
#endif
#ifndef CLOCK_REALTIME
#define CLOCK_REALTIME 0
#endif
#ifndef F_DUPFD_CLOEXEC
#define F_DUPFD_CLOEXEC 1030
#endif
#ifndef MADV_HUGEPAGE
#define MADV_HUGEPAGE 14
#endif
#ifndef O_CLOEXEC
#define O_CLOEXEC __O_CLOEXEC
#endif
#ifndef O_DIRECTORY
#define O_DIRECTORY __O_DIRECTORY
#endif
#if !defined(O_PATH) && defined(__O_PATH)
#define O_PATH __O_PATH
#endif
#ifndef O_NOFOLLOW
#define O_NOFOLLOW __O_NOFOLLOW
#endif
#ifndef S_ISVTX
#define S_ISVTX 01000
#endif
#ifndef SIG_SETMASK
#define SIG_BLOCK 0
#define SIG_UNBLOCK 1
#define SIG_SETMASK 2
#endif
#ifndef ST_NOEXEC /* glibc hides it behind _GNU_SOURCE */
#define ST_NOEXEC 8
#endif
#ifndef WNOHANG /* a stdlib.h included earlier can keep sys/wait.h from defining these */
#define WNOHANG 1
#endif
#ifndef WIFEXITED
#define WTERMSIG(status) ((status) & 0x7f)
#define WEXITSTATUS(status) (((status) >> 8) & 0xff)
#define WIFEXITED(status) (WTERMSIG(status) == 0)
#define WIFSIGNALED(status) (WTERMSIG(status) != 0 && WTERMSIG(status) != 0x7f)
#endif
#endif

#ifdef O_PATH
#define TCI_O_PASS O_PATH /* a directory that may be passed through, though not listed */
#else
#define TCI_O_PASS O_RDONLY
#endif

#endif
