/* run/pool.c - the worker pool: fork-join over independent tasks, and the floating-point
 * environment.
 *
 * In: a body and a range of tasks. Out: every task done, once. The range is cut into `threads`
 * equal parts by arithmetic alone; the caller does part 0 and worker i part i.
 *
 * The one idea: a run is announced by one 64-bit ticket (generation, number of parts). A worker
 * whose index is not below that number reads nothing else, and the caller waits for all others, so
 * the job's plain fields never change under a reader. `busy` makes one caller the owner at a time;
 * whoever finds the pool busy (another caller, or a body that calls back) does all its parts alone:
 * same results.
 *
 * Sleeping: a worker sets `asleep` under the lock, then looks at the ticket again; the owner writes
 * the ticket, then looks at `asleep` (both sequentially consistent), so no wake-up is lost. The
 * owner's own wait for the last worker works the same way round. Workers block all signals. In a
 * child made by fork no worker exists (of OpenMP neither): the child works alone. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include "../base/alloc.h"
#include "../base/env.h"
#include "../base/os.h"
#include "pool.h"

#define TCI_POOL_SPIN_NS 50000

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

typedef struct tci_pool_job {
    tci_pool_body body;
    void *arg;
    int64_t n;
    int threads;
} tci_pool_job;

/* First task of part i: the parts differ by one task at most, and no product can overflow. */
static int64_t tci_pool_cut(const tci_pool_job *job, int i)
{
    int64_t share = job->n / job->threads;
    int64_t rest = job->n % job->threads;
    return share * i + TCI_MIN(i, rest);
}

static void tci_pool_do_part(const tci_pool_job *job, int i)
{
    tci_fpenv saved = tci_fpenv_enter();
    job->body(job->arg, i, tci_pool_cut(job, i), tci_pool_cut(job, i + 1));
    tci_fpenv_leave(saved);
}

static void tci_pool_do_alone(const tci_pool_job *job)
{
    for (int i = 0; i < job->threads; i++) {
        tci_pool_do_part(job, i);
    }
}

/* The shape of a task in tc_options.parallel_for. */
static void tci_pool_host_task(void *arg, int i)
{
    tci_pool_do_part(arg, i);
}

/* ---- the pool ---- */

typedef struct tci_pool_worker {
    pthread_t thread;
    int index;        /* its part; >= 1 */
    uint64_t seen;    /* ticket that was current when it was made */
    int32_t asleep;   /* atomic; written by the worker under the lock */
    tci_cond wake;
} tci_pool_worker;

static struct {
    tci_mutex lock;             /* of the sleeping only; the fast path takes none */
    tci_cond done;              /* the owner sleeps here */
    int32_t users;              /* atomic: contexts and programs */
    int32_t busy;               /* atomic: 1 while somebody owns the fields below */
    int32_t alone;              /* atomic: 1 in a forked child for ever */
    int32_t cpus;               /* atomic: threads this process may use; 0 = not asked yet */
    tci_pool_worker **workers;  /* workers[i] does part i + 1 */
    int n_workers, cap_workers;
    tci_pool_job job;
    uint64_t ticket;            /* atomic: generation << 32 | parts; 0 parts: workers leave */
    int32_t pending;            /* atomic: workers that have not finished the job */
    int32_t owner_asleep;       /* atomic */
    int64_t spin_ns;            /* atomic */
} tci_pool = {.lock = TCI_MUTEX_INIT, .done = TCI_COND_INIT, .spin_ns = TCI_POOL_SPIN_NS};

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
    pthread_mutex_lock(&tci_pool.lock);
    __atomic_store_n(&w->asleep, 1, __ATOMIC_SEQ_CST);
    while ((ticket = __atomic_load_n(&tci_pool.ticket, __ATOMIC_SEQ_CST)) == seen) {
        pthread_cond_wait(&w->wake, &tci_pool.lock);
    }
    __atomic_store_n(&w->asleep, 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&tci_pool.lock);
    return ticket;
}

static void *tci_pool_worker_main(void *arg)
{
    tci_pool_worker *w = arg;
    uint64_t seen = w->seen;
    for (;;) {
        seen = tci_pool_wait_ticket(w, seen);
        uint32_t parts = (uint32_t)seen;
        if (!parts) {
            return NULL;
        }
        if ((uint32_t)w->index >= parts) {
            continue;
        }
        tci_pool_do_part(&tci_pool.job, w->index);
        if (__atomic_sub_fetch(&tci_pool.pending, 1, __ATOMIC_SEQ_CST) == 0 &&
            __atomic_load_n(&tci_pool.owner_asleep, __ATOMIC_SEQ_CST)) {
            pthread_mutex_lock(&tci_pool.lock);
            pthread_cond_signal(&tci_pool.done);
            pthread_mutex_unlock(&tci_pool.lock);
        }
    }
}

/* Announces a job of `parts` parts (0: leave) and wakes those workers it concerns. */
static void tci_pool_announce(uint32_t parts, int n_concerned)
{
    uint64_t generation = (tci_pool.ticket >> 32) + 1;
    __atomic_store_n(&tci_pool.ticket, generation << 32 | parts, __ATOMIC_SEQ_CST);
    for (int i = 0; i < n_concerned; i++) {
        tci_pool_worker *w = tci_pool.workers[i];
        if (__atomic_load_n(&w->asleep, __ATOMIC_SEQ_CST)) {
            pthread_mutex_lock(&tci_pool.lock);
            pthread_cond_signal(&w->wake);
            pthread_mutex_unlock(&tci_pool.lock);
        }
    }
}

static void tci_pool_wait_done(int64_t spin_ns)
{
    int64_t since = 0;
    int round = 0;
    do {
        if (__atomic_load_n(&tci_pool.pending, __ATOMIC_ACQUIRE) == 0) {
            return;
        }
    } while (tci_pool_may_spin(&round, &since, spin_ns));
    pthread_mutex_lock(&tci_pool.lock);
    __atomic_store_n(&tci_pool.owner_asleep, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&tci_pool.pending, __ATOMIC_SEQ_CST) != 0) {
        pthread_cond_wait(&tci_pool.done, &tci_pool.lock);
    }
    __atomic_store_n(&tci_pool.owner_asleep, 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&tci_pool.lock);
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
    pthread_cond_init(&w->wake, NULL);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&w->thread, NULL, tci_pool_worker_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        pthread_cond_destroy(&w->wake);
        tci_heap_free(w);
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

static int64_t tci_pool_spin_ns(const tc_options *o)
{
    if (!o || !o->spin_us) {
        return TCI_POOL_SPIN_NS;
    }
    return o->spin_us < 0 ? 0 : (int64_t)o->spin_us * 1000;
}

static void tci_pool_run_own(const tc_options *o, const tci_pool_job *job)
{
    if (!tci_pool_take()) {
        tci_pool_do_alone(job);
        return;
    }
    int staff = tci_pool_staff(job->threads - 1);
    tci_pool_job mine = *job;
    mine.threads = staff + 1; /* fewer workers than wanted: fewer, larger parts */
    if (staff) {
        int64_t spin_ns = tci_pool_spin_ns(o);
        int cancel = tci_os_no_cancel(); /* the workers use what lies on this stack */
        tci_pool.job = mine;
        __atomic_store_n(&tci_pool.spin_ns, spin_ns, __ATOMIC_RELAXED);
        __atomic_store_n(&tci_pool.pending, staff, __ATOMIC_RELAXED);
        tci_pool_announce((uint32_t)mine.threads, staff);
        tci_pool_do_part(&mine, 0);
        tci_pool_wait_done(spin_ns);
        tci_pool_give();
        tci_os_may_cancel(cancel);
    } else {
        tci_pool_give();
        tci_pool_do_part(&mine, 0);
    }
}

TCI_FN void tci_pool_run(const tc_options *o, int threads, int64_t n, tci_pool_body body, void *arg)
{
    tci_pool_job job = {body, arg, n, (int)TCI_MAX(1, TCI_MIN((int64_t)threads, n))};
    if (n <= 0) {
        return;
    }
    if (job.threads == 1) {
        tci_pool_do_part(&job, 0);
        return;
    }
    if (o && o->parallel_for) {
        o->parallel_for(o->parallel_user, job.threads, tci_pool_host_task, &job);
        return;
    }
    pthread_once(&tci_pool_fork_once, tci_pool_watch_fork);
    if (__atomic_load_n(&tci_pool.alone, __ATOMIC_RELAXED)) {
        tci_pool_do_alone(&job);
        return;
    }
#ifdef _OPENMP
#pragma omp parallel for num_threads(job.threads) schedule(static, 1)
    for (int i = 0; i < job.threads; i++) {
        tci_pool_do_part(&job, i);
    }
    (void)tci_pool_run_own;
#else
    tci_pool_run_own(o, &job);
#endif
}

TCI_FN int tci_pool_threads(const tc_options *o)
{
    if (o && o->threads > 0) {
        return o->threads;
    }
    int32_t cpus = __atomic_load_n(&tci_pool.cpus, __ATOMIC_RELAXED);
    if (!cpus) {
        int64_t asked = tci_env_int(TCI_ENV_THREADS, 0);
        cpus = asked > 0 && asked < 65536 ? (int32_t)asked : tci_os_cpu_count();
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
        tci_pool_announce(0, tci_pool.n_workers);
    }
    for (int i = 0; i < tci_pool.n_workers; i++) {
        pthread_join(tci_pool.workers[i]->thread, NULL);
        pthread_cond_destroy(&tci_pool.workers[i]->wake);
        tci_heap_free(tci_pool.workers[i]);
    }
    tci_heap_free(tci_pool.workers);
    tci_pool.workers = NULL;
    tci_pool.n_workers = tci_pool.cap_workers = 0;
    tci_pool_give();
    tci_os_may_cancel(cancel);
}

#undef TCI_POOL_SPIN_NS
#undef TCI_POOL_MXCSR_DEFAULT
#undef TCI_POOL_MXCSR_FLAGS
