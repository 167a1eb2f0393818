/* ops/communicator.c - registry of the communicators of a process: reference counts and failure
 * states. */
#include "communicator.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../base/alloc.h"

static tci_mutex tci_comm_lock = TCI_MUTEX_INIT;
static tc_comm *tci_comm_list;
static int64_t tci_comm_numbers;

TCI_FN const char *tci_comm_verb_name(int verb)
{
    static const char *const names[] = {
#define TCI_ROW(id, name) name,
        TC_COMM_VERBS(TCI_ROW)
#undef TCI_ROW
    };
    return verb >= 0 && verb < (int)TC_COMM_VERB_COUNT ? names[verb] : "?";
}

TCI_FN const char *tci_comm_how_name(int how)
{
    static const char *const names[] = {"sum", "prod", "min", "max", "mean"};
    return how >= 0 && how < (int)TCI_COUNT(names) ? names[how] : "?";
}

/* ---- the list ---- */

/* Caller holds the lock. */
static tc_comm *tci_comm_find(const tc_comm *handle, int64_t number)
{
    tc_comm *c = tci_comm_list;
    while (c && c != handle && c->number != number) {
        c = c->next;
    }
    return c;
}

TCI_FN tc_comm *tci_comm_retain(int64_t number)
{
    pthread_mutex_lock(&tci_comm_lock);
    tc_comm *c = tci_comm_find(NULL, number);
    if (c) {
        c->refs++;
    }
    pthread_mutex_unlock(&tci_comm_lock);
    return c;
}

/* In a child made by fork the communicator stays in the list: its engine's threads and libraries
 * are the parent's. */
TCI_FN void tci_comm_release(tc_comm *c)
{
    if (!c || c->process != (int64_t)getpid()) {
        return;
    }
    pthread_mutex_lock(&tci_comm_lock);
    bool last = --c->refs == 0;
    for (tc_comm **at = &tci_comm_list; last && *at; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            break;
        }
    }
    pthread_mutex_unlock(&tci_comm_lock);
    if (last) {
        c->engine->free(c->state);
        tci_heap_free(c);
    }
}

TCI_FN tc_comm *tci_comm_of(const tc_comm *handle)
{
    pthread_mutex_lock(&tci_comm_lock);
    tc_comm *c = handle ? tci_comm_find(handle, 0) : NULL;
    c = c && c->is_open ? c : NULL;
    pthread_mutex_unlock(&tci_comm_lock);
    return c;
}

TCI_FN tc_comm *tci_comm_hold(const tc_comm *handle)
{
    pthread_mutex_lock(&tci_comm_lock);
    tc_comm *c = handle ? tci_comm_find(handle, 0) : NULL;
    c = c && c->is_open ? c : NULL;
    if (c) {
        c->refs++;
    }
    pthread_mutex_unlock(&tci_comm_lock);
    return c;
}

/* ---- one run at a time ---- */

TCI_FN tc_status tci_comm_claim_engine(tc_comm *c, char why[512])
{
    int32_t free = 0;
    if (c->process != (int64_t)getpid()) {
        snprintf(why, 512,
                 "communicator %d was made before a fork: this child is no rank of it, "
                 "expected a communicator of its own",
                 (int)c->number);
        return TC_ERR_COMM;
    }
    if (!__atomic_compare_exchange_n(&c->busy, &free, 1, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED)) {
        snprintf(why, 512,
                 "communicator %d is in use by another thread: expected one run at a "
                 "time, or a communicator for each thread (tc_comm_split)",
                 (int)c->number);
        return TC_ERR_BUSY;
    }
    if (__atomic_load_n(&c->failed, __ATOMIC_ACQUIRE)) {
        snprintf(why, 512, "communicator %d failed before: %.440s", (int)c->number, c->error);
        tci_comm_unclaim(c);
        return TC_ERR_COMM;
    }
    return TC_OK;
}

TCI_FN tc_status tci_comm_claim(tc_comm *c, char why[512])
{
    tc_status status = tci_comm_claim_engine(c, why);
    if (!status && !tci_comm_of(c)) {
        snprintf(why, 512, "communicator %d was freed by tc_comm_free", (int)c->number);
        tci_comm_unclaim(c);
        status = TC_ERR_COMM;
    }
    return status;
}

TCI_FN void tci_comm_unclaim(tc_comm *c)
{
    __atomic_store_n(&c->busy, 0, __ATOMIC_RELEASE);
}

TCI_FN void tci_comm_fail(tc_comm *c, const char *why)
{
    pthread_mutex_lock(&tci_comm_lock);
    bool first = !c->failed;
    if (first) {
        snprintf(c->error, sizeof(c->error), "%s", why);
        __atomic_store_n(&c->failed, 1, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&tci_comm_lock);
    if (first && c->process == (int64_t)getpid()) {
        c->engine->stop(c->state, why);
    }
}

/* ---- public calls ---- */

TC_API int tc_comm_rank(const tc_comm *comm)
{
    const tc_comm *c = tci_comm_of(comm);
    return c ? c->rank : -1;
}

TC_API int tc_comm_size(const tc_comm *comm)
{
    const tc_comm *c = tci_comm_of(comm);
    return c ? c->size : 0;
}

TC_API const char *tc_comm_engine_name(const tc_comm *comm)
{
    const tc_comm *c = tci_comm_of(comm);
    return c ? c->engine->name : "";
}

static __thread char tci_comm_told[512];

TCI_FN void tci_comm_tell(const char *why)
{
    snprintf(tci_comm_told, sizeof(tci_comm_told), "%s", why);
}

TC_API const char *tc_comm_error(const tc_comm *comm)
{
    const tc_comm *c = tci_comm_of(comm);
    return c ? c->error : comm ? "no such communicator, or it was freed" : tci_comm_told;
}

TC_API void tc_comm_abort(tc_comm *comm)
{
    tc_comm *c = tci_comm_hold(comm);
    if (c) {
        tci_comm_fail(c, "tc_comm_abort was called");
    }
    tci_comm_release(c);
}

TC_API tc_status tc_comm_of_engine(const tc_comm_engine *engine, void *state, int rank, int size,
                                   const tc_comm_options *options, tc_comm **out)
{
    if (!out || !engine || !engine->name || !engine->start || !engine->wait || !engine->exchange ||
        !engine->stop || !engine->free || size < 1 || rank < 0 || rank >= size) {
        return TC_ERR_ARGUMENT;
    }
    *out = NULL;
    tc_comm *c = tci_heap_get(sizeof(*c));
    if (!c) {
        return TC_ERR_MEMORY;
    }
    *c = (tc_comm){.refs = 1,
                   .is_open = true,
                   .rank = rank,
                   .size = size,
                   .process = (int64_t)getpid(),
                   .engine = engine,
                   .state = state,
                   .options = options ? *options : (tc_comm_options){0}};
    if (c->options.timeout_ms <= 0) {
        c->options.timeout_ms = TCI_COMM_TIMEOUT_MS;
    }
    c->link = engine->device ? (tc_link){3, 200, 0.55} : (tc_link){5, 5, 0};
    if (c->options.first_timeout_ms <= 0) {
        c->options.first_timeout_ms = TCI_COMM_FIRST_MS;
    }
    pthread_mutex_lock(&tci_comm_lock);
    c->number = ++tci_comm_numbers;
    c->next = tci_comm_list;
    tci_comm_list = c;
    pthread_mutex_unlock(&tci_comm_lock);
    *out = c;
    return TC_OK;
}

TC_API tc_status tc_comm_split(tc_comm *comm, int color, int key, tc_comm **out)
{
    char why[512];
    void *state = NULL;
    int rank = 0, size = 0;
    tc_comm *c = tci_comm_of(comm);
    if (!out || !c) {
        return !out ? TC_ERR_ARGUMENT : TC_ERR_HANDLE;
    }
    *out = NULL;
    if (!c->engine->split) {
        return TC_ERR_UNSUPPORTED;
    }
    tc_status status = tci_comm_claim(c, why);
    if (status) {
        tci_comm_tell(why);
        return status;
    }
    status = c->engine->split(c->state, color, key, &state, &rank, &size, why);
    if (status) {
        tci_comm_fail(c, why);
        tci_comm_tell(why);
    } else if (state) {
        status = tc_comm_of_engine(c->engine, state, rank, size, &c->options, out);
        if (status) {
            c->engine->free(state);
        }
    }
    tci_comm_unclaim(c);
    return status;
}

TC_API void tc_comm_free(tc_comm *comm)
{
    tc_comm *c = tci_comm_of(comm);
    if (c) {
        pthread_mutex_lock(&tci_comm_lock);
        c->is_open = false;
        pthread_mutex_unlock(&tci_comm_lock);
        tci_comm_release(c);
    }
}
