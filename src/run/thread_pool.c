/* run/thread_pool.c - worker pool: fork-join over independent tasks with work stealing; and the
 * floating-point environment.
 *
 * In: a body and a range of tasks. Out: every task executed once. The range is cut into equal parts
 * by arithmetic alone; the caller starts with part 0 and worker i with part i. A thread without
 * work continues with the parts of others, so late, slow or missing threads do not matter. Chunks
 * shrink as in guided self-scheduling: each is a fraction of what remains of a part, so chunks are
 * long at first and short at the end, where threads wait for each other.
 *
 * Design: a run is announced by one 64-bit ticket (generation, number of threads), and entered
 * through a gate (generation, threads inside). A worker whose index is not below that number reads
 * nothing else; a late one finds the gate closed. The caller closes it when no task is left and
 * waits for the threads inside, so the job's plain fields never change under a reader. `busy` gives
 * one caller ownership at a time; a caller that finds the pool busy (another caller, or a nested
 * call) executes all tasks alone, with the same results.
 *
 * Sleeping: a worker sets `asleep` under its lock, then reads the ticket again; the owner writes
 * the ticket, then reads `asleep` (both sequentially consistent), so no wake-up is lost. The
 * owner's wait for the last worker works in the same way. Waking is expensive, so awake threads
 * wake some of the others (a tree). If other threads of the host program keep CPUs busy, such as
 * those of an OpenMP library that spin for milliseconds after their last loop, the system often
 * wakes a worker on the owner's CPU, where it competes with the owner; a sleeping worker is
 * therefore kept off that CPU before it is woken. No thread spins if threads outnumber CPUs.
 * Workers block all signals. In a child made by fork no worker exists (nor an OpenMP
 * team), and the child works alone. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "../base/alloc.h"
#include "../base/env.h"
#include "../base/os.h"
#include "../debug/profile.h"
#include "thread_pool.h"
#include "openmp_threads.h"

#define TCI_POOL_SPIN_NS 100000

enum {
    TCI_POOL_PARTS = 64,   /* at most; threads beyond share them */
    TCI_POOL_FRACTION = 2, /* of what a part has left is taken at a time */
    TCI_POOL_WAKES = 4,    /* workers that one thread wakes */
    TCI_POOL_LINE = 64     /* bytes that two CPUs do not write to at once */
};

/* ---- floating-point environment ---- */

#ifdef TCI_POOL_MXCSR
/* MXCSR: all exceptions masked, to nearest, no FTZ and DAZ. The low six bits are sticky flags, not
 * modes. */
#define TCI_POOL_MXCSR_DEFAULT 0x1f80u
#define TCI_POOL_MXCSR_FLAGS 0x3fu

TCI_FN tci_fpenv tci_fpenv_enter(void)
{
    uint32_t csr;
    __asm__ __volatile__("stmxcsr %0" : "=m"(csr) : : "memory");
    if (TCI_UNLIKELY((csr & ~TCI_POOL_MXCSR_FLAGS) != TCI_POOL_MXCSR_DEFAULT)) {
        uint32_t standard = TCI_POOL_MXCSR_DEFAULT;
        __asm__ __volatile__("ldmxcsr %0" : : "m"(standard) : "memory");
    }
    tci_fpenv saved = {.state = csr};
    return saved;
}

TCI_FN void tci_fpenv_leave(tci_fpenv saved)
{
    uint32_t csr, before = (uint32_t)saved.state;
    __asm__ __volatile__("stmxcsr %0" : "=m"(csr) : : "memory");
    if (TCI_UNLIKELY(csr != before)) { /* the flags, or the modes as well */
        __asm__ __volatile__("ldmxcsr %0" : : "m"(before) : "memory");
    }
}

#elif defined(__aarch64__)
/* FPCR: 0 is to nearest, no flushing, exceptions not trapped. FPSR has the flags. */
TCI_FN tci_fpenv tci_fpenv_enter(void)
{
    tci_fpenv saved;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(saved.state) : : "memory");
    __asm__ __volatile__("mrs %0, fpsr" : "=r"(saved.flags) : : "memory");
    if (TCI_UNLIKELY(saved.state != 0)) {
        uint64_t standard = 0;
        __asm__ __volatile__("msr fpcr, %0" : : "r"(standard) : "memory");
    }
    return saved;
}

TCI_FN void tci_fpenv_leave(tci_fpenv saved)
{
    __asm__ __volatile__("msr fpsr, %0" : : "r"(saved.flags) : "memory");
    if (TCI_UNLIKELY(saved.state != 0)) {
        __asm__ __volatile__("msr fpcr, %0" : : "r"(saved.state) : "memory");
    }
}

#else
TCI_FN tci_fpenv tci_fpenv_enter(void)
{
    tci_fpenv saved;
    feholdexcept(&saved.state);
    fesetround(FE_TONEAREST);
    return saved;
}

TCI_FN void tci_fpenv_leave(tci_fpenv saved)
{
    fesetenv(&saved.state);
}
#endif

/* ---- one job ---- */

/* Tasks [next, end) are left. */
typedef struct tci_pool_part {
    int64_t next; /* atomic */
    int64_t end;
    char apart[TCI_POOL_LINE - 2 * sizeof(int64_t)];
} tci_pool_part;

typedef struct tci_pool_job {
    tci_pool_body body;
    void *arg;
    int64_t least; /* tasks that are worth being taken */
    int threads, n_parts;
    tci_pool_part *parts;
} tci_pool_job;

/* The parts differ by one task at most, and no product can overflow. */
static void tci_pool_cut(tci_pool_job *job, int64_t n)
{
    int64_t share = n / job->n_parts, rest = n % job->n_parts;
    for (int i = 0; i < job->n_parts; i++) {
        job->parts[i].next = share * i + TCI_MIN(i, rest);
        job->parts[i].end = share * (i + 1) + TCI_MIN(i + 1, rest);
    }
}

/* Takes tasks [*begin, *end) of a part; false: none is left. */
static bool tci_pool_take_tasks(const tci_pool_job *job, tci_pool_part *part, int64_t *begin,
                                int64_t *end)
{
    *begin = __atomic_load_n(&part->next, __ATOMIC_RELAXED);
    do {
        int64_t left = part->end - *begin;
        if (left <= 0) {
            return false;
        }
        int64_t n = TCI_MAX(tci_ceil_div(left, TCI_POOL_FRACTION), job->least);
        *end = left - n < job->least ? part->end : *begin + n;
    } while (!__atomic_compare_exchange_n(&part->next, begin, *end, true, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return true;
}

/* As thread i of the job, until no part has a task left. */
static void tci_pool_do_tasks(const tci_pool_job *job, int i)
{
    int64_t begin, end;
    tci_fpenv saved = tci_fpenv_enter();
    for (int skip = 0; skip < job->n_parts; skip++) {
        tci_pool_part *part = &job->parts[(i + skip) % job->n_parts];
        while (tci_pool_take_tasks(job, part, &begin, &end)) {
            job->body(job->arg, i, begin, end);
        }
    }
    tci_fpenv_leave(saved);
}

static void tci_pool_do_alone(tci_pool_body body, void *arg, int64_t n)
{
    tci_fpenv saved = tci_fpenv_enter();
    body(arg, 0, 0, n);
    tci_fpenv_leave(saved);
}

/* The shape of a task in tc_options.parallel_for. */
static void tci_pool_host_task(void *arg, int i)
{
    tci_pool_do_tasks(arg, i);
}

/* ---- the pool ---- */

typedef struct tci_pool_worker {
    pthread_t thread;
    int index;      /* >= 1; of its part too */
    uint64_t seen;  /* ticket that was current when it was made */
    tci_mutex lock; /* of its sleep */
    int32_t asleep; /* atomic; written by the worker under the lock */
    int32_t id;     /* the system's, after the first sleep; under the lock */
    int32_t off;    /* the CPU it is kept off, or -1; under the lock */
    tci_cond wake;
} tci_pool_worker;

static struct {
    tci_mutex lock;            /* of the owner's sleep only; the fast path takes none */
    tci_cond done;             /* the owner sleeps here */
    int32_t users;             /* atomic: contexts and programs */
    int32_t busy;              /* atomic: 1 while a thread owns the fields below */
    int32_t alone;             /* atomic: 1 in a forked child for ever */
    int32_t cpus;              /* atomic: threads of a run, unless it says; 0 = not asked yet */
    int32_t cores;             /* atomic: CPUs; 0 = not asked yet */
    tci_pool_worker **workers; /* workers[i] has index i + 1 */
    int n_workers, cap_workers;
    tci_pool_job job;
    uint64_t ticket;      /* atomic: generation << 32 | threads; 0 threads: workers leave */
    uint64_t gate;        /* atomic: generation << 32 | shut | workers inside */
    int32_t owner_asleep; /* atomic */
    int32_t owner_cpu;    /* where it runs; -1: not known, or workers may run there too */
    int64_t spin_ns;      /* atomic */
} tci_pool = {.lock = TCI_MUTEX_INIT, .done = TCI_COND_INIT, .spin_ns = TCI_POOL_SPIN_NS};

#define TCI_POOL_SHUT ((uint64_t)1 << 31)

static pthread_once_t tci_pool_fork_once = PTHREAD_ONCE_INIT;

static void tci_pool_after_fork(void)
{
    __atomic_store_n(&tci_pool.alone, 1, __ATOMIC_RELAXED);
}

static void tci_pool_watch_fork(void)
{
    if (pthread_atfork(NULL, NULL, tci_pool_after_fork) != 0) {
        tci_pool_after_fork(); /* no way to notice a fork: never make workers */
    }
}

static bool tci_pool_take(void)
{
    int32_t free_state = 0;
    return __atomic_compare_exchange_n(&tci_pool.busy, &free_state, 1, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

static void tci_pool_give(void)
{
    __atomic_store_n(&tci_pool.busy, 0, __ATOMIC_RELEASE);
}

static void tci_pool_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __asm__ __volatile__("pause");
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* True while a spin that began at *since (0: now) may go on; the clock is read every 32nd round. */
static bool tci_pool_may_spin(int *round, int64_t *since, int64_t spin_ns)
{
    if (spin_ns <= 0) {
        return false;
    }
    tci_pool_relax();
    if (++*round & 31) {
        return true;
    }
    int64_t now = tci_os_now_ns();
    if (!*since) {
        *since = now;
    }
    return now - *since < spin_ns;
}

/* Returns the next ticket after `seen`. */
static uint64_t tci_pool_wait_ticket(tci_pool_worker *w, uint64_t seen)
{
    int64_t spin_ns = __atomic_load_n(&tci_pool.spin_ns, __ATOMIC_RELAXED);
    int64_t since = 0;
    int round = 0;
    uint64_t ticket;
    do {
        ticket = __atomic_load_n(&tci_pool.ticket, __ATOMIC_ACQUIRE);
        if (ticket != seen) {
            return ticket;
        }
    } while (tci_pool_may_spin(&round, &since, spin_ns));
    pthread_mutex_lock(&w->lock);
    w->id = w->id ? w->id : tci_os_thread();
    __atomic_store_n(&w->asleep, 1, __ATOMIC_SEQ_CST);
    while ((ticket = __atomic_load_n(&tci_pool.ticket, __ATOMIC_SEQ_CST)) == seen) {
        pthread_cond_wait(&w->wake, &w->lock);
    }
    __atomic_store_n(&w->asleep, 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&w->lock);
    return ticket;
}

/* The worker's lock is held. */
static void tci_pool_keep_off(tci_pool_worker *w, int cpu)
{
    if (w->id > 0 && cpu >= 0 && cpu != w->off) {
        tci_os_keep_off(w->id, cpu, w->off);
        w->off = cpu;
    }
}

static void tci_pool_wake(tci_pool_worker *w)
{
    if (__atomic_load_n(&w->asleep, __ATOMIC_SEQ_CST)) {
        pthread_mutex_lock(&w->lock);
        tci_pool_keep_off(w, tci_pool.owner_cpu);
        pthread_cond_signal(&w->wake);
        pthread_mutex_unlock(&w->lock);
    }
}

/* Wakes the threads below thread i in the tree of a job of this many threads; the owner is its
 * root.
 */
static void tci_pool_wake_below(int i, int threads)
{
    for (int64_t j = (int64_t)i * TCI_POOL_WAKES + 1;
         j <= ((int64_t)i + 1) * TCI_POOL_WAKES && j < threads; j++) {
        tci_pool_wake(tci_pool.workers[j - 1]);
    }
}

/* False: the run that the ticket announced is over. */
static bool tci_pool_enter(uint64_t ticket)
{
    uint64_t gate = __atomic_load_n(&tci_pool.gate, __ATOMIC_RELAXED);
    do {
        if (gate >> 32 != ticket >> 32 || gate & TCI_POOL_SHUT) {
            return false;
        }
    } while (!__atomic_compare_exchange_n(&tci_pool.gate, &gate, gate + 1, true, __ATOMIC_ACQUIRE,
                                          __ATOMIC_RELAXED));
    return true;
}

static void tci_pool_leave(void)
{
    uint64_t gate = __atomic_sub_fetch(&tci_pool.gate, 1, __ATOMIC_SEQ_CST);
    if ((uint32_t)gate == TCI_POOL_SHUT &&
        __atomic_load_n(&tci_pool.owner_asleep, __ATOMIC_SEQ_CST)) {
        pthread_mutex_lock(&tci_pool.lock);
        pthread_cond_signal(&tci_pool.done);
        pthread_mutex_unlock(&tci_pool.lock);
    }
}

static void *tci_pool_worker_main(void *arg)
{
    tci_pool_worker *w = arg;
    uint64_t seen = w->seen;
    tci_profile_role("tc worker", w->index);
    for (;;) {
        seen = tci_pool_wait_ticket(w, seen);
        uint32_t threads = (uint32_t)seen;
        if (!threads) {
            return NULL;
        }
        if ((uint32_t)w->index < threads && tci_pool_enter(seen)) {
            tci_pool_wake_below(w->index, (int)threads);
            tci_pool_do_tasks(&tci_pool.job, w->index);
            tci_pool_leave();
        }
    }
}

/* Announces a job of this many threads; 0: leave. */
static void tci_pool_announce(uint32_t threads)
{
    uint64_t generation = (tci_pool.ticket >> 32) + 1;
    __atomic_store_n(&tci_pool.gate, generation << 32, __ATOMIC_RELEASE);
    __atomic_store_n(&tci_pool.ticket, generation << 32 | threads, __ATOMIC_SEQ_CST);
}

static bool tci_pool_is_empty(void)
{
    return (uint32_t)__atomic_load_n(&tci_pool.gate, __ATOMIC_SEQ_CST) == TCI_POOL_SHUT;
}

/* No thread comes in any more; waits for those inside. */
static void tci_pool_shut(int64_t spin_ns)
{
    int64_t since = 0;
    int round = 0;
    __atomic_or_fetch(&tci_pool.gate, TCI_POOL_SHUT, __ATOMIC_SEQ_CST);
    do {
        if (tci_pool_is_empty()) {
            return;
        }
    } while (tci_pool_may_spin(&round, &since, spin_ns));
    pthread_mutex_lock(&tci_pool.lock);
    __atomic_store_n(&tci_pool.owner_asleep, 1, __ATOMIC_SEQ_CST);
    while (!tci_pool_is_empty()) {
        pthread_cond_wait(&tci_pool.done, &tci_pool.lock);
    }
    __atomic_store_n(&tci_pool.owner_asleep, 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&tci_pool.lock);
}

static void tci_pool_drop_worker(tci_pool_worker *w)
{
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    tci_heap_free(w);
}

static bool tci_pool_add_worker(void)
{
    if (tci_pool.n_workers == tci_pool.cap_workers) {
        int cap = TCI_MAX(8, tci_pool.cap_workers * 2);
        void *grown = tci_heap_resize(tci_pool.workers, (size_t)cap * sizeof(*tci_pool.workers));
        if (!grown) {
            return false;
        }
        tci_pool.workers = grown;
        tci_pool.cap_workers = cap;
    }
    tci_pool_worker *w = tci_heap_get(sizeof(*w));
    if (!w) {
        return false;
    }
    w->index = tci_pool.n_workers + 1;
    w->seen = tci_pool.ticket;
    w->off = -1;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&w->thread, NULL, tci_pool_worker_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        tci_pool_drop_worker(w);
        return false;
    }
    tci_pool.workers[tci_pool.n_workers++] = w;
    return true;
}

/* The caller owns the pool. Returns how many workers of the `wanted` there are; makes missing
 * ones. */
static int tci_pool_staff(int wanted)
{
    while (tci_pool.n_workers < wanted && tci_pool_add_worker()) {
    }
    return TCI_MIN(wanted, tci_pool.n_workers);
}

/* CPUs that this process may use. */
static int tci_pool_cores(void)
{
    int32_t cores = __atomic_load_n(&tci_pool.cores, __ATOMIC_RELAXED);
    if (!cores) {
        cores = tci_os_cpu_count();
        __atomic_store_n(&tci_pool.cores, cores, __ATOMIC_RELAXED);
    }
    return cores;
}

static int64_t tci_pool_spin_ns(const tc_options *o, int threads)
{
    if (threads > tci_pool_cores() || (o && o->spin_us < 0)) {
        return 0;
    }
    return !o || !o->spin_us ? TCI_POOL_SPIN_NS : (int64_t)o->spin_us * 1000;
}

/* False: nothing is done, there is no thread to help. */
static bool tci_pool_run_own(const tc_options *o, const tci_pool_job *job)
{
    if (!tci_pool_take()) {
        return false;
    }
    int staff = tci_pool_staff(job->threads - 1);
    if (staff) {
        int64_t spin_ns = tci_pool_spin_ns(o, staff + 1);
        int cancel = tci_os_no_cancel(); /* the workers use objects of this stack */
        tci_pool.job = *job;
        tci_pool.owner_cpu = staff < tci_pool_cores() ? tci_os_cpu() : -1;
        __atomic_store_n(&tci_pool.spin_ns, spin_ns, __ATOMIC_RELAXED);
        tci_pool_announce((uint32_t)staff + 1);
        tci_pool_wake_below(0, staff + 1);
        tci_pool_do_tasks(job, 0);
        tci_pool_shut(spin_ns);
        tci_pool_give();
        tci_os_may_cancel(cancel);
    } else {
        tci_pool_give();
    }
    return staff > 0;
}

typedef struct tci_pool_shared {
    const tci_pool_job *job;
    int n_inside; /* atomic: threads of the team that have come */
} tci_pool_shared;

/* The shape of what a team calls: threads that there is no part for leave at once. */
static void tci_pool_team_task(void *arg)
{
    tci_pool_shared *shared = arg;
    int i = __atomic_fetch_add(&shared->n_inside, 1, __ATOMIC_RELAXED);
    if (i < shared->job->threads) {
        tci_pool_do_tasks(shared->job, i);
    }
}

/* False: nothing is done, the caller has no team. */
static bool tci_pool_run_team(const tc_options *o, const tci_pool_job *job)
{
    tci_pool_shared shared = {.job = job};
    int cancel = tci_os_no_cancel(); /* the team uses objects of this stack */
    bool ran = tci_team_run(o, job->threads, tci_pool_team_task, &shared);
    tci_os_may_cancel(cancel);
    return ran;
}

TCI_FN void tci_pool_run(const tc_options *o, int threads, int64_t n, int64_t least,
                         tci_pool_body body, void *arg)
{
    tci_pool_part parts[TCI_POOL_PARTS];
    least = TCI_MAX(least, 1);
    threads = (int)TCI_MAX(1, TCI_MIN((int64_t)threads, n / least));
    if (n <= 0) {
        return;
    }
    if (threads == 1) {
        tci_pool_do_alone(body, arg, n);
        return;
    }
    tci_pool_job job = {body, arg, least, threads, TCI_MIN(threads, TCI_POOL_PARTS), parts};
    tci_pool_cut(&job, n);
    if (o && o->parallel_for) {
        o->parallel_for(o->parallel_user, threads, tci_pool_host_task, &job);
        return;
    }
    pthread_once(&tci_pool_fork_once, tci_pool_watch_fork);
    if (__atomic_load_n(&tci_pool.alone, __ATOMIC_RELAXED)) {
        tci_pool_do_alone(body, arg, n);
        return;
    }
    if (!tci_pool_run_team(o, &job) && !tci_pool_run_own(o, &job)) {
        tci_pool_do_alone(body, arg, n);
    }
}

TCI_FN int tci_pool_threads(const tc_options *o)
{
    if (o && o->threads > 0) {
        return o->threads;
    }
    int32_t cpus = __atomic_load_n(&tci_pool.cpus, __ATOMIC_RELAXED);
    if (!cpus) {
        int64_t asked = tci_env_int(TCI_ENV_THREADS, 0);
        cpus = asked > 0 && asked < 65536 ? (int32_t)asked : tci_pool_cores();
        __atomic_store_n(&tci_pool.cpus, cpus, __ATOMIC_RELAXED);
    }
    return cpus;
}

/* ---- life ---- */

TCI_FN void tci_pool_retain(void)
{
    __atomic_add_fetch(&tci_pool.users, 1, __ATOMIC_RELAXED);
}

TCI_FN void tci_pool_release(void)
{
    if (__atomic_sub_fetch(&tci_pool.users, 1, __ATOMIC_ACQ_REL) == 0) {
        tci_pool_shutdown();
    }
}

TCI_FN bool tci_pool_has_users(void)
{
    return __atomic_load_n(&tci_pool.users, __ATOMIC_ACQUIRE) != 0;
}

/* Runs meanwhile find the pool busy and work alone; a later run makes new workers. */
TCI_FN void tci_pool_shutdown(void)
{
    if (__atomic_load_n(&tci_pool.alone, __ATOMIC_RELAXED)) {
        return;
    }
    while (!tci_pool_take()) {
        sched_yield();
    }
    int cancel = tci_os_no_cancel();
    if (tci_pool.n_workers) {
        tci_pool_announce(0);
    }
    for (int i = 0; i < tci_pool.n_workers; i++) {
        tci_pool_wake(tci_pool.workers[i]);
    }
    for (int i = 0; i < tci_pool.n_workers; i++) {
        pthread_join(tci_pool.workers[i]->thread, NULL);
        tci_pool_drop_worker(tci_pool.workers[i]);
    }
    tci_heap_free(tci_pool.workers);
    tci_pool.workers = NULL;
    tci_pool.n_workers = tci_pool.cap_workers = 0;
    tci_pool_give();
    tci_os_may_cancel(cancel);
}

#undef TCI_POOL_SPIN_NS
#undef TCI_POOL_SHUT
#undef TCI_POOL_MXCSR_DEFAULT
#undef TCI_POOL_MXCSR_FLAGS
