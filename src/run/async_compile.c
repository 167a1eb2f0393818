/* run/async_compile.c - asynchronous compile: one background thread and its queue of jobs.
 *
 * In: a program that is interpreted, and the request to compile it to native code. Out: a second
 * program with the same captured memory and literals, which later runs use.
 *
 * Design: the background thread compiles as any caller does (compile/compile.c), from a copy of the
 * user's nodes, since their context may change or end meanwhile. The code goes to the caches. The
 * new program is made from it and from the interpreted one, and published by one store, so a run
 * uses either the one or the other. Programs with equal keys share a job. A large program has two
 * tiers: code from a quick build is published first, then the optimized build
 * (options.quick_build). With options.background a job is a work item for the host's threads
 * instead.
 *
 * Bit-exactness: every variant gives the same bits as the program compiled synchronously, and those
 * agree except for the cases that tci_later_may_differ lists (a matrix unit, Winograd, TF32, a
 * GPU). */
#include "async_compile.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#ifdef __linux__
#include <sys/resource.h>
#endif

#include "../base/alloc.h"
#include "../debug/log.h"
#include "shape_instances.h"

/* Nodes of a program from which on a quick build comes first: seconds of compilers. */
enum { TCI_LATER_QUICK_NODES = 150 };

typedef enum tci_later_place {
    TCI_LATER_QUEUED, /* for tc's thread */
    TCI_LATER_HOSTED, /* the host has its work item, and has not begun it */
    TCI_LATER_RUNNING
} tci_later_place;

typedef struct tci_later_job tci_later_job;
/* A work item of the host's (options.background), which owns it until it is done. */
typedef struct tci_later_item {
    tci_later_job *job; /* under the lock; NULL: there is nothing to do any more */
} tci_later_item;

struct tci_later_job {
    tci_later_job *next;
    tci_later_place place;
    tci_later_item *item; /* of a HOSTED job */
    tci_scratch s;        /* of the copy, and of all that follows */
    const uint8_t *key;
    size_t key_bytes;   /* of the request, in s */
    tc_options options; /* strings in s */
    tci_node **inputs;
    int n_inputs;
    tci_node **roots;
    int n_roots;
    const char *call;
    tc_site site;
    const tc_ctx *ctx;
    int n_nodes;      /* of the request */
    tci_later *first; /* programs that wait for it */
    int cancel;       /* atomic: looked at by the compile */
};

static struct tci_later_process {
    tci_mutex lock;
    tci_cond ended;       /* of a compile */
    tci_later_job *first; /* to be done or being done, in order */
    pthread_t thread;
    bool has_thread, is_idle; /* idle: the thread ends, or has ended */
} tci_later_process = {.lock = TCI_MUTEX_INIT, .ended = TCI_COND_INIT};

/* No other thread is in the child: what they were doing, or were given, is to be done again. */
static void tci_later_after_fork(void)
{
    static const tci_cond none = TCI_COND_INIT;
    for (tci_later_job *j = tci_later_process.first; j; j = j->next) {
        j->place = TCI_LATER_QUEUED;
        j->item = NULL;
    }
    tci_later_process.has_thread = false;
    tci_later_process.ended = none;
}

static void tci_later_lock(void)
{
    tci_os_keep_over_fork(&tci_later_process.lock, tci_later_after_fork);
    pthread_mutex_lock(&tci_later_process.lock);
}

static void tci_later_unlock(void)
{
    pthread_mutex_unlock(&tci_later_process.lock);
}

/* ---- the copy of the user's nodes ---- */

static tci_node *tci_later_copy_node(tci_scratch *s, tci_graph *g, const tci_node *n,
                                     tci_node *const *copies, const tci_table *places)
{
    bool is_value = tci_node_is_value(n);
    tci_node **in = TCI_NEW_ARRAY(s, tci_node *, n->n_in);
    for (int i = 0; i < n->n_in && !is_value; i++) {
        in[i] = copies[*(const int32_t *)tci_table_item(places, n->in[i])];
    }
    tci_node *copy;
    if (n->op == TCI_OP_CONST) {
        copy = tci_graph_const(g, (tc_dtype)n->dtype, n->value);
    } else if (is_value) {
        copy = tci_graph_node(g, TCI_OP_DATA, (tc_dtype)n->dtype, n->rank, n->shape, 0, NULL, 0,
                              NULL);
        copy->storage = n->storage; /* which one it is; it is not read */
        copy->strides = n->strides
                            ? tci_scratch_copy(s, n->strides, sizeof(tci_dim) * (size_t)n->rank)
                            : NULL;
    } else {
        copy = tci_graph_node(g, n->op, (tc_dtype)n->dtype, n->rank, n->shape, n->n_in, in,
                              n->n_attr, n->attr);
    }
    copy->site = n->site;
    copy->call = n->call;
    if (n->name && n->op == TCI_OP_INPUT) {
        copy->name = tci_scratch_printf(s, "%s", n->name);
    }
    return copy;
}

/* Copies what the request needs. Longjmps through the job's scratch. */
static void tci_later_copy(tci_later_job *j, const tci_request *r)
{
    tci_scratch *s = &j->s;
    tci_graph *g = TCI_NEW(s, tci_graph);
    tci_table places = tci_table_in(s, sizeof(int32_t));
    int n = r->n_user_inputs + r->n_nodes;
    tci_node **copies = TCI_NEW_ARRAY(s, tci_node *, n);
    tci_graph_init(g, s, NULL);
    for (int i = 0; i < n; i++) {
        const tci_node *from = i < r->n_user_inputs ? r->inputs[i] : r->nodes[i - r->n_user_inputs];
        *(int32_t *)tci_table_at(&places, from) = i;
        copies[i] = tci_later_copy_node(s, g, from, copies, &places);
    }
    j->n_inputs = r->n_user_inputs;
    j->inputs = copies;
    j->n_roots = r->n_roots;
    j->roots = TCI_NEW_ARRAY(s, tci_node *, r->n_roots);
    for (int i = 0; i < r->n_roots; i++) {
        j->roots[i] = copies[*(const int32_t *)tci_table_item(&places, r->roots[i])];
    }
}

/* Texts are copied; the user's log is left alone, as its owner may go before the thread is done. */
static void tci_later_options(tci_later_job *j, const tc_options *o)
{
    j->options = *o;
    const char **const texts[] = {&j->options.backend,   &j->options.machine,  &j->options.cc,
                                  &j->options.cache_dir, &j->options.schedule, &j->options.dump,
                                  &j->options.dump_dir,  &j->options.trace};
    for (int i = 0; i < TCI_COUNT(texts); i++) {
        *texts[i] = *texts[i] ? tci_scratch_printf(&j->s, "%s", *texts[i]) : NULL;
    }
    j->options.stance = TC_STANCE_COMPILE;
    j->options.fallback = TC_FALLBACK_REFUSE;
    j->options.log = NULL;
}

static void tci_later_free_job(tci_later_job *j)
{
    tci_scratch_free(&j->s);
    tci_heap_free(j);
}

static tci_later_job *tci_later_make_job(const tci_request *r, const tc_options *o)
{
    tci_later_job *j = tci_heap_get(sizeof(*j));
    if (!j) {
        return NULL;
    }
    tci_scratch_init(&j->s);
    if (setjmp(j->s.escape)) {
        tci_later_free_job(j);
        return NULL;
    }
    j->key = tci_scratch_copy(&j->s, r->key, r->key_bytes);
    j->key_bytes = r->key_bytes;
    j->call = r->call ? tci_scratch_printf(&j->s, "%s", r->call) : NULL;
    j->site = r->site;
    j->site.file = r->site.file ? tci_scratch_printf(&j->s, "%s", r->site.file) : NULL;
    j->ctx = r->ctx;
    j->n_nodes = r->n_nodes;
    tci_later_options(j, o);
    tci_later_copy(j, r);
    return j;
}

/* ---- the background thread ---- */

typedef struct tci_later_result {
    tc_status status;
    tci_code *code;
    tci_str log;
} tci_later_result;

static void tci_later_compile(tci_later_job *j, const tc_options *o, tci_later_result *result)
{
    tci_scratch s;
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        result->status = s.why;
        tci_str_printf(&result->log, "%s", s.message);
    } else {
        tci_request *r = tci_request_make(&s, j->inputs, j->n_inputs, j->roots, j->n_roots, o, NULL,
                                          NULL);
        r->call = j->call;
        r->site = j->site;
        r->ctx = j->ctx;
        r->cancel = &j->cancel;
        tci_compile_requests(&s, &r, 1, o, &result->code, &result->status, &result->log);
    }
    tci_scratch_free(&s);
}

/* Under the lock. l is of no job from here on. */
static void tci_later_settle(tci_later *l, tc_status status, const char *text)
{
    l->why = status;
    snprintf(l->text, sizeof(l->text), "%s", text);
    l->job = NULL;
    tci_later_state state = !status                      ? TCI_LATER_READY
                            : status == TC_ERR_CANCELLED ? TCI_LATER_CANCELLED
                                                         : TCI_LATER_FAILED;
    __atomic_store_n(&l->state, state, __ATOMIC_RELEASE);
}

/* The program's native form from now on. Under the lock. */
static tc_status tci_later_swap(tci_later *l, tci_code *code)
{
    tc_program *native = NULL;
    tc_status status = tci_program_make_like(code, l->program, &native);
    if (!status) {
        l->quick = l->native;
        __atomic_store_n(&l->native, native, __ATOMIC_RELEASE);
    }
    return status;
}

/* Takes the job out of the list; under the lock. */
static void tci_later_unlist(tci_later_job *j)
{
    tci_later_job **at = &tci_later_process.first;
    while (*at != j) {
        at = &(*at)->next;
    }
    *at = j->next;
    if (j->item) {
        j->item->job = NULL;
    }
}

/* Every program that waits for the job gets its native form. Under the lock. */
static void tci_later_deliver(tci_later_job *j, const tci_later_result *result)
{
    for (tci_later *l = j->first, *next; l; l = next) {
        tc_status status = result->status ? result->status : tci_later_swap(l, result->code);
        next = l->next;
        tci_later_settle(l, status, status ? tci_str_text((tci_str *)(uintptr_t)&result->log) : "");
    }
    j->first = NULL;
    pthread_cond_broadcast(&tci_later_process.ended);
}

/* Whether a quick build is worth its time: the program is large, and its compiler has one. */
static bool tci_later_is_quick(const tci_later_job *j)
{
    const tci_backend *b = tci_backend_pick(&j->options);
    tc_backend_compiler compiler = {.has_quick = false};
    return j->n_nodes >= TCI_LATER_QUICK_NODES && !j->options.quick_build && b && b->calls &&
           b->calls->compiler && !b->calls->compiler(b->calls->user, j->options.cc, &compiler) &&
           compiler.has_quick;
}

/* The first tier of a large program: code from a quick build serves while the usual one goes on. A
 * failure is told by the second tier, if that fails too. */
static void tci_later_do_quick(tci_later_job *j)
{
    tci_later_result result = {TC_OK, NULL, {0}};
    tc_options quick = j->options;
    quick.quick_build = true;
    quick.progress = NULL;
    tci_later_compile(j, &quick, &result);
    tci_later_lock();
    for (tci_later *l = j->first; l && !result.status; l = l->next) {
        tci_later_swap(l, result.code);
    }
    tci_later_unlock();
    tci_code_release(result.code);
    tci_str_free(&result.log);
}

static void tci_later_do(tci_later_job *j)
{
    tci_later_result result = {TC_OK, NULL, {0}};
    if (tci_later_is_quick(j)) {
        tci_later_do_quick(j);
    }
    if (!__atomic_load_n(&j->cancel, __ATOMIC_RELAXED)) {
        tci_later_compile(j, &j->options, &result);
    }
    tci_later_lock();
    if (__atomic_load_n(&j->cancel, __ATOMIC_RELAXED)) {
        result.status = TC_ERR_CANCELLED;
    }
    bool says = result.status && result.status != TC_ERR_CANCELLED;
    tci_later_unlist(j);
    tci_later_deliver(j, &result);
    tci_later_unlock();
    if (says) {
        tci_log(&j->options, "compile", "in the background: %s: %.2000s; the interpreter goes on",
                tc_status_text(result.status), tci_str_text(&result.log));
    }
    tci_code_release(result.code);
    tci_str_free(&result.log);
    tci_later_free_job(j);
}

static void *tci_later_main(void *none)
{
#ifdef __linux__
    setpriority(PRIO_PROCESS, (id_t)tci_os_thread(), 5); /* its compilers inherit it */
#endif
    (void)none;
    for (;;) {
        tci_later_lock();
        tci_later_job *j = tci_later_process.first;
        while (j && j->place != TCI_LATER_QUEUED) {
            j = j->next;
        }
        tci_later_process.is_idle = j == NULL;
        if (j) {
            j->place = TCI_LATER_RUNNING;
        }
        tci_later_unlock();
        if (!j) {
            return NULL;
        }
        tci_later_do(j);
    }
}

/* Under the lock. One that found nothing to do has ended, or is about to. */
static bool tci_later_start_thread(void)
{
    sigset_t all, before;
    if (tci_later_process.has_thread && !tci_later_process.is_idle) {
        return true;
    }
    if (tci_later_process.has_thread) {
        pthread_join(tci_later_process.thread, NULL);
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    tci_later_process.is_idle = false;
    tci_later_process.has_thread = pthread_create(&tci_later_process.thread, NULL, tci_later_main,
                                                  NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return tci_later_process.has_thread;
}

/* ---- the host's threads ---- */

/* Body of a work item, on a thread of the host. */
static void tci_later_work(void *arg)
{
    tci_later_item *item = arg;
    tci_later_lock();
    tci_later_job *j = item->job;
    if (j) {
        j->place = TCI_LATER_RUNNING;
        j->item = NULL;
    }
    tci_later_unlock();
    tci_heap_free(item);
    if (j) {
        tci_fpenv caller = tci_fpenv_enter();
        int cancel = tci_os_no_cancel();
        tci_later_do(j);
        tci_os_may_cancel(cancel);
        tci_fpenv_leave(caller);
    }
}

/* The host does not take it, or there is no item: tc's thread does the job. */
static void tci_later_do_ourselves(tci_later_item *item)
{
    tci_later_result failed = {TC_ERR_MEMORY, NULL, {0}};
    tci_later_lock();
    tci_later_job *j = item->job;
    if (j) {
        j->place = TCI_LATER_QUEUED;
        j->item = NULL;
    }
    bool lost = j && !tci_later_start_thread();
    if (lost) {
        tci_later_unlist(j);
        tci_later_deliver(j, &failed);
    }
    tci_later_unlock();
    tci_heap_free(item);
    if (lost) {
        tci_later_free_job(j);
    }
}

/* ---- programs ---- */

/* Native code may have other bits than the interpreter: it runs on a device, or may use a matrix
 * unit, or approximates. */
static bool tci_later_may_differ(const tci_request *r, const tc_options *o)
{
    const tci_backend *b = tci_backend_pick(o);
    bool has_halves = false;
    if (o->reproducible || !b || !b->calls) {
        return false;
    }
    for (int i = 0; i < r->n_nodes && !has_halves; i++) {
        has_halves = r->nodes[i]->dtype == TC_BF16 || r->nodes[i]->dtype == TC_F16;
    }
    bool units = o->matrix >= 0 && (b->target.matrix_units || b->target.has_pairs);
    return b->calls->launch || o->math == TC_MATH_FAST || (units && has_halves);
}

static bool tci_later_is_of(const tci_later_job *j, const tci_request *r)
{
    return !__atomic_load_n(&j->cancel, __ATOMIC_RELAXED) && j->key_bytes == r->key_bytes &&
           !memcmp(j->key, r->key, r->key_bytes);
}

/* The job of the request's key; under the lock. */
static tci_later_job *tci_later_find(const tci_request *r)
{
    tci_later_job *j = tci_later_process.first;
    while (j && !tci_later_is_of(j, r)) {
        j = j->next;
    }
    return j;
}

/* l waits for the job of the request: one there is, or `made`. Under the lock. False: there is no
 * thread to do it. */
static bool tci_later_join(tci_later *l, const tci_request *r, tci_later_job **made)
{
    tci_later_job *j = tci_later_find(r);
    if (!j && *made) {
        j = *made;
        *made = NULL;
        tci_later_job **at = &tci_later_process.first;
        while (*at) {
            at = &(*at)->next;
        }
        *at = j;
    }
    if (j) {
        l->job = j;
        l->next = j->first;
        j->first = l;
    }
    return !j || j->place != TCI_LATER_QUEUED || tci_later_start_thread();
}

/* Takes l out of its job's list; under the lock. */
static void tci_later_leave(tci_later *l)
{
    tci_later **at = l->job ? &l->job->first : NULL;
    while (at && *at && *at != l) {
        at = &(*at)->next;
    }
    if (at && *at) {
        *at = l->next;
    }
    l->job = NULL;
}

static void tci_later_free(tci_later *l)
{
    tci_later_lock();
    tci_later_leave(l);
    tci_later_unlock();
    tci_program_release(l->native);
    tci_program_release(l->quick);
    tci_heap_free(l);
}

/* The work item of a job that the host is to do; NULL: tc's thread does it. */
static tci_later_item *tci_later_make_item(tci_later_job *j, const tc_options *o)
{
    j->item = o->background ? tci_heap_get(sizeof(*j->item)) : NULL;
    if (j->item) {
        j->item->job = j;
        j->place = TCI_LATER_HOSTED;
    }
    return j->item;
}

TCI_FN void tci_later_start(tc_program *f, const tci_request *r, const tc_options *o)
{
    tci_later *l = tci_heap_get(sizeof(*l));
    tci_later_job *made = NULL;
    tci_later_item *item = NULL;
    if (!l) {
        return; /* it is interpreted for ever, as where there is no compiler */
    }
    l->free = tci_later_free;
    l->program = f;
    l->may_differ = tci_later_may_differ(r, o);
    f->later = l;
    tci_later_lock();
    bool joined = tci_later_join(l, r, &made);
    tci_later_unlock();
    if (joined && !l->job && l->state == TCI_LATER_WAITING) {
        made = tci_later_make_job(r, o);
        item = made ? tci_later_make_item(made, o) : NULL;
        tci_later_lock();
        joined = made && tci_later_join(l, r, &made);
        if (!joined) {
            tci_later_settle(l, TC_ERR_MEMORY, "out of memory, or no thread, to compile it");
        }
        tci_later_unlock();
    }
    if (made) { /* another thread was first */
        tci_later_free_job(made);
        tci_heap_free(item);
    } else if (item && !o->background(o->background_user, tci_later_work, item)) {
        tci_later_do_ourselves(item);
    }
}

TCI_FN bool tci_later_wait(tci_later *l, int64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    int64_t ns = until.tv_nsec + ms % 1000 * 1000000;
    until.tv_sec += (time_t)(ms / 1000 + ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    int code = 0;
    tci_later_lock();
    while (l->state == TCI_LATER_WAITING && !code) {
        code = ms < 0 ? pthread_cond_wait(&tci_later_process.ended, &tci_later_process.lock)
                      : pthread_cond_timedwait(&tci_later_process.ended, &tci_later_process.lock,
                                               &until);
    }
    bool over = l->state != TCI_LATER_WAITING;
    tci_later_unlock();
    return over;
}

/* A job without waiters goes, or its compile ends; under the lock. Returns it if it is to be
 * freed. */
static tci_later_job *tci_later_drop(tci_later_job *j)
{
    if (j->place == TCI_LATER_RUNNING) {
        __atomic_store_n(&j->cancel, 1, __ATOMIC_RELAXED);
        return NULL;
    }
    tci_later_unlist(j);
    return j;
}

TCI_FN void tci_later_cancel(tci_later *l)
{
    tci_later_job *gone = NULL;
    tci_later_lock();
    if (l->state == TCI_LATER_WAITING) {
        tci_later_job *j = l->job;
        tci_later_leave(l);
        gone = j && !j->first ? tci_later_drop(j) : NULL;
        tci_later_settle(l, TC_ERR_CANCELLED, "the compile was cancelled");
        pthread_cond_broadcast(&tci_later_process.ended);
    }
    tci_later_unlock();
    if (gone) {
        tci_later_free_job(gone);
    }
}

TCI_FN void tci_later_rest(void)
{
    tci_later_lock();
    bool ends = tci_later_process.has_thread && tci_later_process.is_idle;
    if (ends) {
        pthread_join(tci_later_process.thread, NULL);
        tci_later_process.has_thread = false;
    }
    tci_later_unlock();
}

/* Jobs that no thread began are cancelled and put into *gone; the others end as soon as they can.
 * Under the lock. */
static void tci_later_cancel_all(tci_later_job **gone)
{
    tci_later_result cancelled = {TC_ERR_CANCELLED, NULL, {0}};
    for (tci_later_job *j = tci_later_process.first, *next; j; j = next) {
        next = j->next;
        if (j->place == TCI_LATER_RUNNING) {
            __atomic_store_n(&j->cancel, 1, __ATOMIC_RELAXED);
        } else {
            tci_later_unlist(j);
            tci_later_deliver(j, &cancelled);
            j->next = *gone;
            *gone = j;
        }
    }
}

TCI_FN void tci_later_shutdown(void)
{
    tci_later_job *gone = NULL;
    tci_later_lock();
    tci_later_cancel_all(&gone);
    while (tci_later_process.first) { /* on tc's thread or the host's */
        pthread_cond_wait(&tci_later_process.ended, &tci_later_process.lock);
    }
    bool has_thread = tci_later_process.has_thread;
    tci_later_process.has_thread = false;
    tci_later_unlock();
    if (has_thread) {
        pthread_join(tci_later_process.thread, NULL);
    }
    while (gone) {
        tci_later_job *next = gone->next;
        tci_later_free_job(gone);
        gone = next;
    }
}
