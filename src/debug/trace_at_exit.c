/* debug/trace_at_exit.c - TC_TRACE: profiles a whole process, and writes the trace when the process
 * ends.
 *
 * In: a file name, of the first context that has one. Out: the file, which is an empty list until
 * tc_shutdown, the exit of the process, or a signal that ends it.
 *
 * Design: a signal handler may call almost nothing, so a thread that is created at the start waits
 * on a pipe and writes the file when a handler wakes it; the handler waits for that, and then the
 * signal ends the process as it would have. Handlers are installed only for signals that no other
 * code handles, and only if a trace is requested. If the writer cannot continue (the thread that
 * crashed holds a lock), the handler waits TCI_TRACE_WAIT_MS. SIGKILL and _exit leave the empty
 * list. */
#include "profile.h"

#include <stdlib.h>
#include <string.h>

#include "../base/system_headers.h"

#ifndef TC_NO_DEBUG

enum {
    TCI_TRACE_WAIT_MS = 20000,
    TCI_TRACE_AGAIN_MS = 500 /* timeout(1) sends a signal twice; a user who insists takes longer */
};

static struct {
    tci_mutex lock;
    tc_profile *profile; /* NULL: none */
    char *path;
    int64_t pid; /* a child made by fork writes no trace */
    bool registered;
    pthread_t writer;
    bool has_writer;
    int wake[2];          /* to the writer: 's', a signal came; 'q', it is not needed any more */
    int64_t signalled_ms; /* atomic: when the first one came; 0: none did */
    int done;             /* atomic */
} tci_trace = {.lock = TCI_MUTEX_INIT};

/* The trace ends. At most one caller gets the profile. */
static void tci_trace_write(void)
{
    pthread_mutex_lock(&tci_trace.lock);
    tc_profile *p = tci_trace.profile;
    char *path = tci_trace.path;
    tci_trace.profile = NULL;
    tci_trace.path = NULL;
    pthread_mutex_unlock(&tci_trace.lock);
    if (p) {
        tci_profile_stop(p);
        tc_profile_write(p, path);
        tci_profile_drop(p);
        tci_heap_free(path);
    }
}

/* ---- signals ---- */

#ifdef SA_SIGINFO /* else the user's file hides sigaction */

static const int tci_trace_signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT,
                                        SIGTERM, SIGINT, SIGHUP, SIGQUIT};

static void tci_trace_on_signal(int number)
{
    bool asked = number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT;
    if (tci_trace.pid == (int64_t)getpid()) {
        int64_t now = tci_os_now_ns() / 1000000, since = 0;
        bool first = __atomic_compare_exchange_n(&tci_trace.signalled_ms, &since, now, false,
                                                 __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
        bool waits = first ? write(tci_trace.wake[1], "s", 1) == 1
                           : !asked || now - since < TCI_TRACE_AGAIN_MS;
        for (int ms = 0; waits && ms < TCI_TRACE_WAIT_MS; ms += 5) {
            waits = !__atomic_load_n(&tci_trace.done, __ATOMIC_ACQUIRE);
            poll(NULL, 0, waits ? 5 : 0);
        }
    }
    signal(number, SIG_DFL);
    raise(number);
}

static void tci_trace_handle(bool on)
{
    struct sigaction is, mine;
    memset(&mine, 0, sizeof(mine));
    sigemptyset(&mine.sa_mask);
    mine.sa_handler = on ? tci_trace_on_signal : SIG_DFL;
    mine.sa_flags = SA_ONSTACK;
    void (*from)(int) = on ? SIG_DFL : tci_trace_on_signal;
    for (int i = 0; i < TCI_COUNT(tci_trace_signals); i++) {
        bool known = !sigaction(tci_trace_signals[i], NULL, &is) && !(is.sa_flags & SA_SIGINFO);
        if (known && is.sa_handler == from) {
            sigaction(tci_trace_signals[i], &mine, NULL);
        }
    }
}

#else

static void tci_trace_handle(bool on)
{
    (void)on;
}

#endif

static void *tci_trace_writer(void *none)
{
    char what = 'q';
    ssize_t n;
    (void)none;
    while ((n = read(tci_trace.wake[0], &what, 1)) < 0 && errno == EINTR) {
    }
    if (n == 1 && what == 's') {
        tci_trace_write();
        __atomic_store_n(&tci_trace.done, 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

/* Without a pipe or a thread the trace is written at an exit alone. */
static void tci_trace_begin_writer(void)
{
    sigset_t all, before;
    if (!tci_os_pipe(tci_trace.wake)) {
        return;
    }
    tci_trace.signalled_ms = 0;
    tci_trace.done = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    tci_trace.has_writer = pthread_create(&tci_trace.writer, NULL, tci_trace_writer, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (tci_trace.has_writer) {
        tci_trace_handle(true);
    } else {
        close(tci_trace.wake[0]);
        close(tci_trace.wake[1]);
    }
}

static void tci_trace_end_writer(void)
{
    if (tci_trace.has_writer) {
        tci_trace_handle(false);
        ssize_t told = write(tci_trace.wake[1], "q", 1);
        if (told == 1) {
            pthread_join(tci_trace.writer, NULL);
            close(tci_trace.wake[0]);
            close(tci_trace.wake[1]);
        }
        tci_trace.has_writer = false;
    }
}

/* ---- begin and end ---- */

static void tci_trace_at_exit(void)
{
    tci_profile_flush();
}

/* Under the lock. */
static bool tci_trace_begin(const char *path)
{
    FILE *file = fopen(path, "we");
    if (!file) {
        return false;
    }
    fputs("[]\n", file); /* until the end of the process */
    fclose(file);
    tc_status status;
    size_t bytes = strlen(path) + 1;
    tci_trace.path = tci_heap_get(bytes);
    tci_trace.profile = tci_trace.path ? tci_profile_start(NULL, &status) : NULL;
    if (!tci_trace.profile) {
        tci_heap_free(tci_trace.path);
        tci_trace.path = NULL;
        return false;
    }
    memcpy(tci_trace.path, path, bytes);
    tci_trace.pid = (int64_t)getpid();
    if (!tci_trace.registered) {
        tci_trace.registered = atexit(tci_trace_at_exit) == 0;
    }
    tci_trace_begin_writer();
    return true;
}

TCI_FN bool tci_profile_trace(const char *path)
{
    tci_os_keep_over_fork(&tci_trace.lock, NULL);
    pthread_mutex_lock(&tci_trace.lock);
    bool ok = tci_trace.profile || tci_trace_begin(path);
    pthread_mutex_unlock(&tci_trace.lock);
    return ok;
}

TCI_FN void tci_profile_flush(void)
{
    if (tci_trace.pid == (int64_t)getpid()) {
        tci_trace_end_writer();
        tci_trace_write();
    }
}

#endif
