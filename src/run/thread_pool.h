/* run/thread_pool.h - the process-wide worker pool: fork-join over independent tasks.
 *
 * Created at the first parallel run, joined when the last context and program are gone (or at
 * tc_shutdown). Workers spin for a bounded time after work, then sleep on a futex-like wait. A run
 * that finds the workers busy executes its tasks alone. The threads of an OpenMP runtime in the
 * process are used instead if there is one (run/openmp_threads.h). The host's own parallel_for
 * (tc_options) replaces both. */
#ifndef TCI_RUN_THREAD_POOL_H
#define TCI_RUN_THREAD_POOL_H

#include "../api/types.h"
#include "../base/platform.h"

#if defined(__x86_64__) || (defined(__i386__) && defined(__SSE_MATH__))
#define TCI_POOL_MXCSR 1
#elif !defined(__aarch64__)
#include <fenv.h>
#endif

/* body(arg, worker, begin, end): tasks [begin, end); worker in [0, threads) numbers the caller's
 * slots (0 is the calling thread), for per-thread workspace. */
typedef void (*tci_pool_body)(void *arg, int worker, int64_t begin, int64_t end);

/* Runs tasks [0, n) on at most `threads` threads, which take ranges of at least `least` tasks until
 * none is left (a thread may call body several times), and returns when all are done. One thread:
 * calls body directly, without a lock or system call. Sets the default floating-point environment
 * around body on every thread and restores it. */
TCI_FN void tci_pool_run(const tc_options *o, int threads, int64_t n, int64_t least,
                         tci_pool_body body, void *arg);
TCI_FN int tci_pool_threads(const tc_options *o); /* how many a run with these options may use */
TCI_FN void tci_pool_retain(void);                /* a context or program exists */
TCI_FN void tci_pool_release(void);               /* the last one gone joins the workers */
TCI_FN bool tci_pool_has_users(void);             /* a context or program exists */
TCI_FN void tci_pool_shutdown(void);

/* The default floating-point environment (no FTZ and DAZ, to nearest, exceptions masked) between
 * enter and leave, which gives the caller's back: modes, traps and the flags that were raised. */
typedef struct tci_fpenv {
#if defined(TCI_POOL_MXCSR) || defined(__aarch64__)
    uint64_t state, flags;
#else
    fenv_t state;
#endif
} tci_fpenv;
TCI_FN tci_fpenv tci_fpenv_enter(void);
TCI_FN void tci_fpenv_leave(tci_fpenv saved);

#endif
