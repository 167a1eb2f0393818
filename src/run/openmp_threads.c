/* run/openmp_threads.c - runs tasks on the threads of an OpenMP runtime instead of the worker pool.
 *
 * In: the function that each thread calls. Out: the threads of a team have called it, or there is
 * no team.
 *
 * Design: threads of an OpenMP runtime spin for milliseconds after their last loop, and a pool
 * competing with them gets half of each core at best (measured on 16 logical CPUs, interleaved with
 * such loops: 1.2 to 3.3 times as long). If the process has such a runtime (compiled in, or
 * brought by a library such as PyTorch), the work is given to the team that spins anyway.
 *
 * A team belongs to the calling thread, and each calling thread has its own. The runtime is
 * therefore used on the process's first thread only, where the program's own loops usually run;
 * other threads use the pool. The team is always used whole, because the runtime ends threads that
 * a smaller team leaves out and recreates them for the next. A team with less than half of the
 * requested threads (OMP_NUM_THREADS=1 is common, and meant for other code) is not used, nor is any
 * if the options set the spin time of workers. A runtime that cannot create its threads ends the
 * process, as it would in a loop of the program's own. */
#include <pthread.h>
#include <unistd.h>

#include "../base/os.h"
#include "openmp_threads.h"

#ifdef _OPENMP
TCI_FN bool tci_team_run(const tc_options *o, int threads, void (*body)(void *), void *arg)
{
    (void)o;
#pragma omp parallel num_threads(threads)
    body(arg);
    return true;
}
#else
/* A thread sanitizer would report the threads of a runtime that it does not know. */
#define TCI_TEAM_NEVER 0
#if defined(__SANITIZE_THREAD__)
#undef TCI_TEAM_NEVER
#define TCI_TEAM_NEVER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#undef TCI_TEAM_NEVER
#define TCI_TEAM_NEVER 1
#endif
#endif

/* The interface that code of `#pragma omp parallel` calls, GNU's (libgomp), which LLVM's runtime
 * has too: threads = 0 is as many as omp_get_max_threads says. */
typedef void (*tci_team_parallel)(void (*body)(void *), void *arg, unsigned threads,
                                  unsigned flags);

static struct {
    pthread_once_t once;
    tci_team_parallel parallel; /* NULL: the process has no such runtime */
    int (*max_threads)(void);
} tci_team = {.once = PTHREAD_ONCE_INIT};

/* A runtime that the process has loaded, by the name that its builder gave it (the handle is kept,
 * so it stays), or one whose names are global, as those that packages of Python rename. */
static void *tci_team_find(void)
{
    static const char *const names[] = {"libgomp.so.1", "libomp.so.5", "libiomp5.so"};
    for (int i = 0; i < (int)TCI_COUNT(names); i++) {
        void *handle = tci_os_dlopen_loaded(names[i]);
        if (handle) {
            return handle;
        }
    }
    return tci_os_dlopen_loaded(NULL);
}

static void tci_team_look(void)
{
    void *runtime = TCI_TEAM_NEVER ? NULL : tci_team_find();
    if (runtime) {
        *(void **)&tci_team.parallel = tci_os_dlsym(runtime, "GOMP_parallel");
        *(void **)&tci_team.max_threads = tci_os_dlsym(runtime, "omp_get_max_threads");
    }
}

TCI_FN bool tci_team_run(const tc_options *o, int threads, void (*body)(void *), void *arg)
{
    pthread_once(&tci_team.once, tci_team_look);
    if (!tci_team.parallel || !tci_team.max_threads || (o && o->spin_us) ||
        tci_os_thread() != (int32_t)getpid() || tci_team.max_threads() * 2 < threads) {
        return false;
    }
    tci_team.parallel(body, arg, 0, 0);
    return true;
}

#undef TCI_TEAM_NEVER
#endif
