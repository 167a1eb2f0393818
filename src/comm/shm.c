/* comm/shm.c - collectives of processes on one host, over a mapped file.
 *
 * In: operations in the order that all ranks give them. Out: the results, or which rank failed.
 *
 * Design: each rank has two chunks of memory that all others can read and a counter of how
 * many it has filled (`posted`). An operation fills a chunk, raises the counter, waits until all
 * counters are as high, and reads. A rank that has raised its counter again has read what it needed
 * before, so a chunk may be filled when all counters have passed the one after it: with double
 * buffering one wait per chunk is enough. Sends have channels of their own, one for each ordered
 * pair of ranks.
 *
 * Reductions go in the order of ranks: each rank reduces its segment of a chunk, in place, and all
 * read the segments, so results have the same bits on all ranks, in each run.
 *
 * A thread of the communicator executes operations while kernels run; it exists from the first
 * start to the end of the communicator.
 *
 * Faults: each rank holds a record lock on its byte of the file, which the kernel drops when the
 * process dies, for whatever reason; a rank that waits for another checks its lock. The first rank
 * that finds a fault writes the reason into the file, where all others find it while they wait.
 * A descriptor of the current operation (tag, text) is stored next to the counters, so mismatched
 * collectives are detected.
 *
 * The file: rank 0 makes it under a name of its own and renames it to the one that follows from the
 * group; the others open that, check that rank 0 is alive, and take their slots; when all are there
 * it is removed. So a file that a killed group left behind is replaced, and never joined. */
#include "shm.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../base/alloc.h"
#include "../base/hash.h"
#include "host_reduce.h"

enum {
    TCI_SHM_CHUNK = 256 << 10, /* bytes of one of a rank's two */
    TCI_SHM_PACKET = 32 << 10, /* bytes of one of a channel's two */
    TCI_SHM_WHAT = 120,
    TCI_SHM_LINE = 64,
    TCI_SHM_SPINS = 200,       /* looks before a rank sleeps */
    TCI_SHM_LOOK_NS = 5000000, /* between two looks whether others live */
    TCI_SHM_RANKS = 64
};
#define TCI_SHM_MAGIC 0x31306d6d6f636374u /* "tccomm01" */

typedef struct tci_shm_what {
    uint64_t sequence, tag;
    char text[TCI_SHM_WHAT]; /* "all_reduce at net.c:12" */
} tci_shm_what;

typedef struct tci_shm_slot { /* of a rank */
    uint64_t posted;          /* atomic: chunks */
    uint32_t joined;          /* atomic */
    tci_shm_what what[2];     /* of operations in turns */
} tci_shm_slot;

typedef struct tci_shm_packet {
    int64_t bytes; /* of the whole message */
    int32_t dtype;
    char text[TCI_SHM_WHAT];
    char data[TCI_SHM_PACKET];
} tci_shm_packet;

typedef struct tci_shm_channel { /* from one rank to another */
    uint64_t written, read;      /* atomic: packets */
    tci_shm_packet packets[2];
} tci_shm_channel;

typedef struct tci_shm_head {
    uint64_t magic, nonce;
    int32_t size;
    uint32_t joined; /* atomic: ranks */
    uint32_t broken; /* atomic: 0, 1 while `why` is written, 2 */
    char why[TC_COMM_WHY];
} tci_shm_head;

struct tci_shm {
    int rank, size, fd;
    int64_t timeout_ms;
    char *base;
    size_t bytes;
    uint64_t posted, chunks, sequence; /* counters of this rank */
    uint64_t sends, receives;          /* ranks (bits) to and from which channels have memory */
    tci_shm_head *head;
    uint32_t stopped;      /* atomic: abort was called here */
    char why[TC_COMM_WHY]; /* ... for this reason */
    tci_mutex lock;        /* of what follows */
    tci_cond changed;
    pthread_t thread;
    bool has_thread, ends, works;
    tc_comm_job *jobs[2 * TCI_SHM_RANKS]; /* started, in order, not done */
    int n_jobs;
    tc_status status; /* of the first that failed */
    char failed[TC_COMM_WHY];
};

/* ---- places in the file ---- */

static size_t tci_shm_round(size_t n)
{
    return (n + 4095) & ~(size_t)4095;
}

static size_t tci_shm_slots_at(void)
{
    return tci_shm_round(sizeof(tci_shm_head));
}
static size_t tci_shm_chunks_at(int size)
{
    return tci_shm_slots_at() + tci_shm_round((sizeof(tci_shm_slot) + TCI_SHM_LINE) * (size_t)size);
}
static size_t tci_shm_channels_at(int size)
{
    return tci_shm_chunks_at(size) + 2 * (size_t)TCI_SHM_CHUNK * (size_t)size;
}
static size_t tci_shm_bytes(int size)
{
    return tci_shm_channels_at(size) +
           tci_shm_round(sizeof(tci_shm_channel)) * (size_t)size * (size_t)size;
}

static tci_shm_slot *tci_shm_slot_of(const tci_shm *s, int rank)
{
    size_t line = (sizeof(tci_shm_slot) + TCI_SHM_LINE) / TCI_SHM_LINE * TCI_SHM_LINE;
    return (tci_shm_slot *)(void *)(s->base + tci_shm_slots_at() + line * (size_t)rank);
}

/* The chunk that a rank fills now. */
static char *tci_shm_chunk(const tci_shm *s, int rank)
{
    size_t at = 2 * (size_t)rank + (size_t)(s->chunks % 2);
    return s->base + tci_shm_chunks_at(s->size) + at * (size_t)TCI_SHM_CHUNK;
}

static tci_shm_channel *tci_shm_channel_of(const tci_shm *s, int from, int to)
{
    size_t at = (size_t)from * (size_t)s->size + (size_t)to;
    return (tci_shm_channel *)(void *)(s->base + tci_shm_channels_at(s->size) +
                                       at * tci_shm_round(sizeof(tci_shm_channel)));
}

/* ---- faults ---- */

/* Reports to all ranks; the first reason stays, and is what the caller fails with. */
static tc_status tci_shm_break(tci_shm *s, char *why)
{
    uint32_t whole = 0;
    if (__atomic_compare_exchange_n(&s->head->broken, &whole, 1, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE)) {
        snprintf(s->head->why, sizeof(s->head->why), "%s", why);
        __atomic_store_n(&s->head->broken, 2, __ATOMIC_RELEASE);
    }
    return TC_ERR_COMM;
}

static bool tci_shm_is_broken(const tci_shm *s, char *why)
{
    if (__atomic_load_n(&s->stopped, __ATOMIC_ACQUIRE)) {
        snprintf(why, TC_COMM_WHY, "%s", s->why);
        return true;
    }
    uint32_t broken = __atomic_load_n(&s->head->broken, __ATOMIC_ACQUIRE);
    for (int i = 0; broken == 1 && i < TCI_SHM_SPINS; i++) { /* unless its writer was killed */
        const struct timespec t = {0, 50000};
        nanosleep(&t, NULL);
        broken = __atomic_load_n(&s->head->broken, __ATOMIC_ACQUIRE);
    }
    if (broken == 2) {
        snprintf(why, TC_COMM_WHY, "%s", s->head->why);
    } else if (broken) {
        snprintf(why, TC_COMM_WHY, "another rank broke off");
    }
    return broken != 0;
}

/* True if a rank's process still holds its lock. */
static bool tci_shm_lives(const tci_shm *s, int rank)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    return rank == s->rank || fcntl(s->fd, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/* ---- waiting ---- */

typedef struct tci_shm_waiter {
    int64_t begin_ns, limit_ms, look_ns;
    int looks, turn; /* turn: looks whether others live */
} tci_shm_waiter;

static tci_shm_waiter tci_shm_wait_begin(int64_t limit_ms)
{
    int64_t now = tci_os_now_ns();
    return (tci_shm_waiter){now, limit_ms, now + TCI_SHM_LOOK_NS, 0, 0};
}

static void tci_shm_pause(tci_shm_waiter *w)
{
    w->looks++;
    if (w->looks < TCI_SHM_SPINS) {
        sched_yield();
    } else {
        struct timespec t = {0, w->looks < 2 * TCI_SHM_SPINS ? 20000 : 200000};
        nanosleep(&t, NULL);
    }
}

/* Text of the last known operation of a rank. */
static const char *tci_shm_doing(const tci_shm *s, int rank, char text[TCI_SHM_WHAT])
{
    const tci_shm_slot *slot = tci_shm_slot_of(s, rank);
    const tci_shm_what *last = &slot->what[slot->what[1].sequence > slot->what[0].sequence];
    snprintf(text, TCI_SHM_WHAT, "%.100s", last->text[0] ? last->text : "no operation yet");
    return text;
}

/* One look of a rank that waits for another. TC_OK: go on waiting; else the caller looks once more
 * for what it waits for, which came before a process ended, and breaks. */
static tc_status tci_shm_look(tci_shm *s, tci_shm_waiter *w, int rank, char *why)
{
    char doing[TCI_SHM_WHAT];
    if (tci_shm_is_broken(s, why)) {
        return TC_ERR_COMM;
    }
    int64_t now = tci_os_now_ns();
    if (now < w->look_ns) {
        return TC_OK;
    }
    w->look_ns = now + TCI_SHM_LOOK_NS;
    w->turn++;
    if (!tci_shm_lives(s, rank)) {
        snprintf(why, TC_COMM_WHY,
                 "rank %d ended (its process exited or was killed); it was last "
                 "in %s",
                 rank, tci_shm_doing(s, rank, doing));
        return TC_ERR_COMM;
    }
    if (now - w->begin_ns > tci_comm_limit_ns(w->limit_ms)) {
        snprintf(why, TC_COMM_WHY, "rank %d did not come within %lld ms; it was last in %s", rank,
                 (long long)w->limit_ms, tci_shm_doing(s, rank, doing));
        return TC_ERR_COMM;
    }
    return TC_OK;
}

/* This rank's chunk is filled. Returns when those of all are. */
static tc_status tci_shm_post(tci_shm *s, int64_t limit_ms, char *why)
{
    s->posted++;
    __atomic_store_n(&tci_shm_slot_of(s, s->rank)->posted, s->posted, __ATOMIC_RELEASE);
    tci_shm_waiter w = tci_shm_wait_begin(limit_ms);
    for (int r = 0; r < s->size; r++) {
        const tci_shm_slot *slot = tci_shm_slot_of(s, r);
        while (__atomic_load_n(&slot->posted, __ATOMIC_ACQUIRE) < s->posted) {
            tc_status status = tci_shm_look(s, &w, r, why);
            bool late = __atomic_load_n(&slot->posted, __ATOMIC_ACQUIRE) >= s->posted;
            if (status && !late) {
                return tci_shm_break(s, why);
            }
            tci_shm_pause(&w);
        }
    }
    return TC_OK;
}

/* ---- operations of all ranks ---- */

/* An operation under way. */
typedef struct tci_shm_op {
    const tc_comm_job *job;
    int64_t limit_ms;
    uint64_t tag;
    bool compared;
} tci_shm_op;

static void tci_shm_begin(tci_shm *s, tci_shm_op *op)
{
    tci_shm_what *what = &tci_shm_slot_of(s, s->rank)->what[++s->sequence % 2];
    const tc_comm_job *j = op->job;
    op->tag = tci_hash_mix(tci_hash_mix((uint64_t)j->verb, (uint64_t)j->how),
                           tci_hash_mix((uint64_t)j->n, (uint64_t)j->dtype + 1000u) +
                               (uint64_t)j->peer);
    what->tag = op->tag;
    snprintf(what->text, sizeof(what->text), "%s of %lld %s at %s:%d", j->name, (long long)j->n,
             tc_dtype_name(j->dtype), j->site.file ? j->site.file : "?", j->site.line);
    __atomic_store_n(&what->sequence, s->sequence, __ATOMIC_RELEASE);
}

/* Fills, waits for all, and at the first time compares what the others do. */
static tc_status tci_shm_meet(tci_shm *s, tci_shm_op *op, char *why)
{
    tc_status status = tci_shm_post(s, op->limit_ms, why);
    for (int r = 0; r < s->size && !status && !op->compared; r++) {
        const tci_shm_what *what = &tci_shm_slot_of(s, r)->what[s->sequence % 2];
        if (what->tag != op->tag) {
            snprintf(why, TC_COMM_WHY, "rank %d is in %s, rank %d in %s", s->rank,
                     tci_shm_slot_of(s, s->rank)->what[s->sequence % 2].text, r, what->text);
            status = tci_shm_break(s, why);
        }
    }
    op->compared = true;
    return status;
}

/* [0, n) of a chunk in one segment for each rank. */
static int64_t tci_shm_cut(const tci_shm *s, int64_t n, int rank)
{
    return n * rank / s->size;
}

/* Segment [from, to) of elements of this chunk, which all ranks have filled, reduced to `out`. */
static void tci_shm_fold(const tci_shm *s, const tc_comm_job *j, int64_t from, int64_t n, void *out)
{
    tci_comm_combine(j->how, j->dtype, out, tci_shm_chunk(s, 0) + from * tc_dtype_size(j->dtype),
                     2 * (int64_t)TCI_SHM_CHUNK, s->size, n);
}

static tc_status tci_shm_all_reduce(tci_shm *s, tci_shm_op *op, char *why)
{
    const tc_comm_job *j = op->job;
    const int64_t bytes = tc_dtype_size(j->dtype), most = TCI_SHM_CHUNK / bytes;
    tc_status status = TC_OK;
    for (int64_t at = 0; at < j->n && !status; at += most) {
        int64_t n = TCI_MIN(most, j->n - at);
        char *own = tci_shm_chunk(s, s->rank);
        memcpy(own, (const char *)j->in + at * bytes, (size_t)(n * bytes));
        status = tci_shm_meet(s, op, why);
        int64_t from = tci_shm_cut(s, n, s->rank), to = tci_shm_cut(s, n, s->rank + 1);
        if (!status) {
            tci_shm_fold(s, j, from, to - from, own + from * bytes);
            status = tci_shm_meet(s, op, why);
        }
        for (int r = 0; r < s->size && !status; r++) {
            from = tci_shm_cut(s, n, r);
            to = tci_shm_cut(s, n, r + 1);
            memcpy((char *)j->out + (at + from) * bytes, tci_shm_chunk(s, r) + from * bytes,
                   (size_t)((to - from) * bytes));
        }
        s->chunks++;
    }
    return status;
}

/* Rank r's bytes to out + r * stride of all; of a broadcast only the root's, to out. */
static tc_status tci_shm_spread(tci_shm *s, tci_shm_op *op, int64_t bytes, int root, char *why)
{
    const tc_comm_job *j = op->job;
    tc_status status = TC_OK;
    for (int64_t at = 0; at < bytes && !status; at += TCI_SHM_CHUNK) {
        size_t n = (size_t)TCI_MIN((int64_t)TCI_SHM_CHUNK, bytes - at);
        if (root < 0 || root == s->rank) {
            memcpy(tci_shm_chunk(s, s->rank), (const char *)j->in + at, n);
        }
        status = tci_shm_meet(s, op, why);
        for (int r = 0; r < s->size && !status; r++) {
            char *to = (char *)j->out + (root < 0 ? r * bytes : 0) + at;
            if (root < 0 || root == r) {
                memcpy(to, tci_shm_chunk(s, r), n);
            }
        }
        s->chunks++;
    }
    return status;
}

/* A part for each rank: reduced, or as they are. */
static tc_status tci_shm_parts(tci_shm *s, tci_shm_op *op, char *why)
{
    const tc_comm_job *j = op->job;
    const int64_t bytes = tc_dtype_size(j->dtype), part = j->n / s->size;
    const int64_t most = TCI_SHM_CHUNK / bytes / s->size;
    tc_status status = TC_OK;
    for (int64_t at = 0; at < part && !status; at += most) {
        int64_t n = TCI_MIN(most, part - at);
        for (int r = 0; r < s->size; r++) {
            memcpy(tci_shm_chunk(s, s->rank) + r * n * bytes,
                   (const char *)j->in + (r * part + at) * bytes, (size_t)(n * bytes));
        }
        status = tci_shm_meet(s, op, why);
        if (!status && j->verb == TC_COMM_REDUCE_SCATTER) {
            tci_shm_fold(s, j, s->rank * n, n, (char *)j->out + at * bytes);
        }
        for (int r = 0; r < s->size && !status && j->verb == TC_COMM_ALL_TO_ALL; r++) {
            memcpy((char *)j->out + (r * part + at) * bytes,
                   tci_shm_chunk(s, r) + s->rank * n * bytes, (size_t)(n * bytes));
        }
        s->chunks++;
    }
    return status;
}

static tc_status tci_shm_all(tci_shm *s, const tc_comm_job *j, int64_t limit_ms, char *why)
{
    tci_shm_op op = {.job = j, .limit_ms = limit_ms};
    tc_status status = TC_OK;
    tci_shm_begin(s, &op);
    switch (j->verb) {
    case TC_COMM_ALL_REDUCE: status = tci_shm_all_reduce(s, &op, why); break;
    case TC_COMM_ALL_GATHER:
        status = tci_shm_spread(s, &op, j->n * tc_dtype_size(j->dtype), -1, why);
        break;
    case TC_COMM_BROADCAST:
        status = tci_shm_spread(s, &op, j->n * tc_dtype_size(j->dtype), j->peer, why);
        break;
    case TC_COMM_REDUCE_SCATTER:
    case TC_COMM_ALL_TO_ALL: status = tci_shm_parts(s, &op, why); break;
    case TC_COMM_BARRIER:
    case TC_COMM_SEND:
    case TC_COMM_RECV:
    case TC_COMM_VERB_COUNT: break;
    }
    if (!status && !op.compared) { /* a barrier, and what has no elements */
        status = tci_shm_meet(s, &op, why);
        s->chunks++;
    }
    return status;
}

/* ---- sends ---- */

/* Allocates a range of the file: a full file system is an error here, not a SIGBUS later. */
static int tci_shm_reserve(int fd, size_t at, size_t bytes)
{
    int code = 0;
#ifdef __linux__
    do {
        code = posix_fallocate(fd, (off_t)at, (off_t)bytes);
    } while (code == EINTR);
#else
    (void)fd, (void)at, (void)bytes;
#endif
    return code;
}

/* Channels get memory when they are used first, as few are. */
static bool tci_shm_need_channel(tci_shm *s, const tc_comm_job *j, const tci_shm_channel *c,
                                 char *why)
{
    uint64_t *had = j->verb == TC_COMM_SEND ? &s->sends : &s->receives;
    const uint64_t peer = (uint64_t)1 << j->peer;
    const size_t at = (size_t)((const char *)c - s->base);
    int code = *had & peer ? 0 : tci_shm_reserve(s->fd, at, sizeof(*c));
    if (code) {
        snprintf(why, TC_COMM_WHY, "%zu bytes of shared memory for messages of ranks %d and %d: %s",
                 sizeof(*c), s->rank, j->peer, strerror(code));
    }
    *had |= code ? 0 : peer;
    return code == 0;
}

static bool tci_shm_fits(const tci_shm *s, const tc_comm_job *j, const tci_shm_packet *p, char *why)
{
    const int64_t bytes = j->n * tc_dtype_size(j->dtype);
    bool fits = p->bytes == bytes && p->dtype == (int32_t)j->dtype;
    if (!fits) {
        snprintf(why, TC_COMM_WHY, "rank %d sends %s, rank %d receives %lld bytes (%s)", j->peer,
                 p->text, s->rank, (long long)bytes, tc_dtype_name(j->dtype));
    }
    return fits;
}

static void tci_shm_copy(void *to, const void *from, int64_t bytes)
{
    if (bytes > 0) { /* else there may be no memory */
        memcpy(to, from, (size_t)bytes);
    }
}

/* Advances a send or receive, whose progress in bytes is in job->engine_data. Returns whether
 * anything was done. */
static bool tci_shm_pair_step(tci_shm *s, tc_comm_job *j, tc_status *status, char *why)
{
    bool sends = j->verb == TC_COMM_SEND;
    tci_shm_channel *c = sends ? tci_shm_channel_of(s, s->rank, j->peer)
                               : tci_shm_channel_of(s, j->peer, s->rank);
    int64_t bytes = j->n * tc_dtype_size(j->dtype), at = (int64_t)(intptr_t)j->engine_data;
    if (!tci_shm_need_channel(s, j, c, why)) {
        *status = tci_shm_break(s, why);
        return false;
    }
    uint64_t written = __atomic_load_n(&c->written, __ATOMIC_ACQUIRE);
    uint64_t read = __atomic_load_n(&c->read, __ATOMIC_ACQUIRE);
    if (sends ? written - read == 2 : written == read) {
        return false;
    }
    tci_shm_packet *p = &c->packets[(sends ? written : read) % 2];
    int64_t n = TCI_MIN((int64_t)TCI_SHM_PACKET, bytes - at);
    if (sends) {
        p->bytes = bytes;
        p->dtype = (int32_t)j->dtype;
        snprintf(p->text, sizeof(p->text), "%lld bytes (%s) at %s:%d", (long long)bytes,
                 tc_dtype_name(j->dtype), j->site.file ? j->site.file : "?", j->site.line);
        tci_shm_copy(p->data, (const char *)j->in + at, n);
        __atomic_store_n(&c->written, written + 1, __ATOMIC_RELEASE);
    } else if (!tci_shm_fits(s, j, p, why)) {
        *status = tci_shm_break(s, why);
        return false;
    } else {
        tci_shm_copy((char *)j->out + at, p->data, n);
        __atomic_store_n(&c->read, read + 1, __ATOMIC_RELEASE);
    }
    j->engine_data = (void *)(intptr_t)(at + n);
    j->done = at + n == bytes;
    if (j->done && sends) {
        tci_shm_copy(j->out, j->in, bytes);
    }
    return true;
}

/* Takes a job off the list: its memory is the caller's again. The lock is held. */
static void tci_shm_drop(tci_shm *s, const tc_comm_job *job)
{
    int at = 0;
    while (at < s->n_jobs && s->jobs[at] != job) {
        at++;
    }
    if (at < s->n_jobs) {
        s->n_jobs--;
        memmove(s->jobs + at, s->jobs + at + 1, sizeof(*s->jobs) * (size_t)(s->n_jobs - at));
    }
    pthread_cond_broadcast(&s->changed);
}

/* The sends and receives that were begun before any other operation: more may come at any time. */
static int tci_shm_take_pairs(tci_shm *s, tc_comm_job **jobs)
{
    int n = 0;
    pthread_mutex_lock(&s->lock);
    while (n < s->n_jobs && tci_comm_verb_is_pair(s->jobs[n]->verb)) {
        jobs[n] = s->jobs[n];
        n++;
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* True if none of the jobs before i is of the same channel: messages keep their order. */
static bool tci_shm_is_next(tc_comm_job *const *jobs, int i)
{
    for (int k = 0; k < i; k++) {
        if (jobs[k]->verb == jobs[i]->verb && jobs[k]->peer == jobs[i]->peer) {
            return false;
        }
    }
    return true;
}

/* These side by side until one of them is done, in any order: a rank may wait for a send while a
 * receive that was begun before it is not due. */
static tc_status tci_shm_pairs(tci_shm *s, char *why)
{
    tci_shm_waiter w = tci_shm_wait_begin(s->timeout_ms);
    tc_comm_job *jobs[2 * TCI_SHM_RANKS], *done = NULL;
    tc_status status = TC_OK, last = TC_OK;
    while (!done && !status) {
        const int n = tci_shm_take_pairs(s, jobs);
        bool moved = false;
        for (int i = 0; i < n && !status && !done; i++) {
            moved |= tci_shm_is_next(jobs, i) && tci_shm_pair_step(s, jobs[i], &status, why);
            done = jobs[i]->done ? jobs[i] : NULL;
        }
        if (moved) {
            w = tci_shm_wait_begin(s->timeout_ms);
        } else if (last) {
            status = tci_shm_break(s, why);
        } else if (!status) {
            last = tci_shm_look(s, &w, jobs[w.turn % n]->peer, why);
            tci_shm_pause(&w);
        }
        last = moved ? TC_OK : last;
    }
    pthread_mutex_lock(&s->lock);
    tci_shm_drop(s, done);
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* ---- jobs ---- */

/* Executes the first job, or one of the sends and receives at the front, and drops it. The lock is
 * held except during the execution, in which no other thread touches the job. */
static void tci_shm_do_first(tci_shm *s)
{
    tc_comm_job *job = s->jobs[0];
    const bool pair = tci_comm_verb_is_pair(job->verb);
    char why[TC_COMM_WHY] = "";
    s->works = true;
    pthread_mutex_unlock(&s->lock);
    tc_status status = pair ? tci_shm_pairs(s, why) : tci_shm_all(s, job, s->timeout_ms, why);
    pthread_mutex_lock(&s->lock);
    s->works = false;
    if (!pair) {
        job->done = true;
        tci_shm_drop(s, job);
    }
    if (status && !s->status) {
        s->status = status;
        snprintf(s->failed, sizeof(s->failed), "%s", why);
    }
    pthread_cond_broadcast(&s->changed);
}

static void *tci_shm_work(void *state)
{
    tci_shm *s = state;
    pthread_mutex_lock(&s->lock);
    while (!s->ends) {
        if (s->n_jobs && !s->status) {
            tci_shm_do_first(s);
        } else {
            pthread_cond_wait(&s->changed, &s->lock);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* Signals of the process go to other threads. Without a thread, who waits does the work. */
static void tci_shm_need_thread(tci_shm *s)
{
    sigset_t all, before;
    if (s->has_thread || s->size == 1) {
        return;
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    s->has_thread = pthread_create(&s->thread, NULL, tci_shm_work, s) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- the engine ---- */

static tc_status tci_shm_start(void *state, tc_comm_job *job, char *why)
{
    tci_shm *s = state;
    pthread_mutex_lock(&s->lock);
    tci_shm_need_thread(s);
    while (s->n_jobs == (int)TCI_COUNT(s->jobs) && !s->status && s->has_thread) {
        pthread_cond_wait(&s->changed, &s->lock);
    }
    while (s->n_jobs == (int)TCI_COUNT(s->jobs) && !s->status) {
        tci_shm_do_first(s);
    }
    tc_status status = s->status;
    if (status) {
        snprintf(why, TC_COMM_WHY, "%s", s->failed);
    } else {
        s->jobs[s->n_jobs++] = job;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

static tc_status tci_shm_wait(void *state, tc_comm_job *job, char *why)
{
    tci_shm *s = state;
    pthread_mutex_lock(&s->lock);
    bool waits = true;
    while (waits && !s->status) {
        waits = false;
        for (int i = 0; i < s->n_jobs; i++) {
            waits = waits || s->jobs[i] == job;
        }
        if (waits && s->has_thread) {
            pthread_cond_wait(&s->changed, &s->lock);
        } else if (waits) {
            tci_shm_do_first(s);
        }
    }
    tc_status status = s->status;
    if (status) {
        snprintf(why, TC_COMM_WHY, "%s", s->failed);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

static tc_status tci_shm_exchange(void *state, const void *mine, void *all, int64_t bytes,
                                  int64_t limit_ms, const char *what, char *why)
{
    tci_shm *s = state;
    tc_comm_job job = {.verb = TC_COMM_ALL_GATHER,
                       .dtype = TC_U8,
                       .n = bytes,
                       .in = mine,
                       .out = all,
                       .name = what,
                       .number = -1};
    return tci_shm_all(s, &job, limit_ms, why); /* no job is under way between runs */
}

static void tci_shm_abort(void *state, const char *why)
{
    tci_shm *s = state;
    char text[TC_COMM_WHY];
    snprintf(text, sizeof(text), "rank %d ended it: %.180s", s->rank, why);
    tci_shm_break(s, text);
    snprintf(s->why, sizeof(s->why), "%.250s", why);
    __atomic_store_n(&s->stopped, 1, __ATOMIC_RELEASE);
    pthread_mutex_lock(&s->lock);
    if (!s->status) {
        s->status = TC_ERR_COMM;
        snprintf(s->failed, sizeof(s->failed), "%s", s->why);
    }
    pthread_cond_broadcast(&s->changed); /* a job that no thread began is waited for no longer */
    while (s->works) {                   /* until the memory of its job is left alone */
        pthread_cond_wait(&s->changed, &s->lock);
    }
    s->n_jobs = 0;
    pthread_mutex_unlock(&s->lock);
}

static tc_status tci_shm_look_around(void *state, char *why)
{
    tci_shm *s = state;
    char doing[TCI_SHM_WHAT];
    for (int r = 0; r < s->size; r++) {
        if (!tci_shm_lives(s, r)) {
            snprintf(why, TC_COMM_WHY, "rank %d ended; it was last in %s", r,
                     tci_shm_doing(s, r, doing));
            return TC_ERR_COMM;
        }
    }
    return tci_shm_is_broken(s, why) ? TC_ERR_COMM : TC_OK;
}

static void tci_shm_free(void *state)
{
    tci_shm *s = state;
    if (s->has_thread) {
        pthread_mutex_lock(&s->lock);
        s->ends = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    if (s->base) {
        munmap(s->base, s->bytes);
    }
    if (s->fd >= 0) {
        close(s->fd);
    }
    tci_heap_free(s);
}

/* ---- joining ---- */

enum { TCI_SHM_PATH = 256 };

static bool tci_shm_lock(const tci_shm *s)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = s->rank, .l_len = 1};
    return fcntl(s->fd, F_SETLK, &lock) == 0;
}

static bool tci_shm_map(tci_shm *s)
{
    void *memory = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    s->base = memory == MAP_FAILED ? NULL : memory;
    s->head = (tci_shm_head *)memory;
    return s->base != NULL;
}

/* Where files go that are memory. */
static const char *tci_shm_folder(void)
{
    const char *other = tci_os_getenv("TMPDIR");
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : other && other[0] == '/' ? other : "/tmp";
}

/* False: the folder's name is too long. */
static bool tci_shm_name(char path[TCI_SHM_PATH], const char *group, char *why)
{
    tci_hash h = tci_hash_bytes(group, strlen(group));
    int n = snprintf(path, TCI_SHM_PATH, "%s/tc-comm-%ld-%016llx", tci_shm_folder(),
                     (long)geteuid(), (unsigned long long)h.lo);
    if (n >= TCI_SHM_PATH) {
        snprintf(why, TC_COMM_WHY, "TMPDIR is longer than %d bytes", TCI_SHM_PATH - 64);
    }
    return n < TCI_SHM_PATH;
}

/* Rank 0's: a new file, complete and locked before others can see it. */
static bool tci_shm_make(tci_shm *s, const char *path, char *why)
{
    char own[TCI_SHM_PATH + 32];
    snprintf(own, sizeof(own), "%s.%016llx", path, (unsigned long long)tci_os_random());
    s->fd = open(own, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int code = s->fd < 0 || ftruncate(s->fd, (off_t)s->bytes) ? errno : 0;
    code = code ? code : tci_shm_reserve(s->fd, 0, tci_shm_channels_at(s->size));
    bool made = s->fd >= 0 && !code && tci_shm_map(s) && tci_shm_lock(s);
    if (made) {
        s->head->nonce = tci_os_random();
        s->head->size = s->size;
        tci_shm_slot_of(s, 0)->joined = 1;
        s->head->joined = 1;
        __atomic_store_n(&s->head->magic, TCI_SHM_MAGIC, __ATOMIC_RELEASE);
        made = rename(own, path) == 0;
    }
    if (!made) {
        code = code ? code : errno;
        snprintf(why, TC_COMM_WHY, "%zu bytes of shared memory at %.120s: %s", s->bytes, own,
                 strerror(code));
        if (s->fd >= 0) {
            unlink(own);
        }
    }
    return made;
}

/* Lets go of a file that was not the group's. */
static void tci_shm_let_go(tci_shm *s)
{
    if (s->base) {
        munmap(s->base, s->bytes);
    }
    close(s->fd);
    s->base = NULL;
    s->fd = -1;
}

/* For ranks other than 0: true if the file is of a group that lives and whose place is free. */
static bool tci_shm_open(tci_shm *s, const char *path)
{
    struct stat st;
    s->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (s->fd < 0) {
        return false;
    }
    bool fits = fstat(s->fd, &st) == 0 && st.st_uid == geteuid() &&
                (size_t)st.st_size == s->bytes && tci_shm_map(s) &&
                __atomic_load_n(&s->head->magic, __ATOMIC_ACQUIRE) == TCI_SHM_MAGIC &&
                s->head->size == s->size && tci_shm_lives(s, 0) && tci_shm_lock(s);
    uint32_t free = 0;
    fits = fits && __atomic_compare_exchange_n(&tci_shm_slot_of(s, s->rank)->joined, &free, 1,
                                               false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
    if (!fits) {
        tci_shm_let_go(s);
        return false;
    }
    __atomic_add_fetch(&s->head->joined, 1, __ATOMIC_ACQ_REL);
    return true;
}

static void tci_shm_missing(const tci_shm *s, int64_t ms, char *why)
{
    int r = 1;
    while (s->base && r < s->size - 1 && tci_shm_slot_of(s, r)->joined) {
        r++;
    }
    r = s->base ? r : 0;
    snprintf(why, TC_COMM_WHY, "rank %d did not join within %lld ms (rank %d of %d waited)", r,
             (long long)ms, s->rank, s->size);
}

/* Waits until all are there. */
static bool tci_shm_gather(tci_shm *s, const char *path, int64_t limit_ms, char *why)
{
    tci_shm_waiter w = tci_shm_wait_begin(limit_ms);
    while (s->fd < 0 || __atomic_load_n(&s->head->joined, __ATOMIC_ACQUIRE) < (uint32_t)s->size) {
        if (tci_os_now_ns() - w.begin_ns > tci_comm_limit_ns(limit_ms)) {
            tci_shm_missing(s, limit_ms, why);
            return false;
        }
        if (s->fd < 0) {
            tci_shm_open(s, path);
        } else if (!tci_shm_lives(s, 0)) { /* it was about to end: its successor comes */
            tci_shm_let_go(s);
        }
        tci_shm_pause(&w);
    }
    return true;
}

static tci_shm *tci_shm_new(const tci_shm_group *g)
{
    tci_shm *s = tci_heap_get(sizeof(*s));
    if (s) {
        *s = (tci_shm){.rank = g->rank, .size = g->size, .fd = -1, .timeout_ms = g->timeout_ms};
        s->bytes = tci_shm_bytes(g->size);
        pthread_mutex_init(&s->lock, NULL);
        pthread_cond_init(&s->changed, NULL);
    }
    return s;
}

/* One rank has the same memory to itself. */
static bool tci_shm_alone(tci_shm *s, char *why)
{
    void *memory = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    s->base = memory == MAP_FAILED ? NULL : memory;
    s->head = (tci_shm_head *)memory;
    if (!s->base) {
        snprintf(why, TC_COMM_WHY, "out of memory");
    }
    return s->base != NULL;
}

TCI_FN tci_shm *tci_shm_join(const tci_shm_group *g, char *why)
{
    char path[TCI_SHM_PATH];
    if (g->size > TCI_SHM_RANKS) {
        snprintf(why, TC_COMM_WHY, "%d ranks in shared memory, expected at most %d: use MPI",
                 g->size, (int)TCI_SHM_RANKS);
        return NULL;
    }
    tci_shm *s = tci_shm_new(g);
    if (!s) {
        snprintf(why, TC_COMM_WHY, "out of memory");
        return NULL;
    }
    bool joined = s->size == 1                         ? tci_shm_alone(s, why)
                  : !tci_shm_name(path, g->group, why) ? false
                  : s->rank == 0                       ? tci_shm_make(s, path, why)
                                                       : true;
    if (joined && s->size > 1) {
        joined = tci_shm_gather(s, path, g->join_ms, why);
        if (s->rank == 0) {
            unlink(path);
        }
    }
    if (!joined) {
        tci_shm_free(s);
        return NULL;
    }
    return s;
}

/* ---- split ---- */

typedef struct tci_shm_choice {
    int32_t color, key;
    uint64_t nonce;
} tci_shm_choice;

/* A group of its own for each color, named by what its first rank chose at random. */
static tc_status tci_shm_split(void *state, int color, int key, void **out, int *rank, int *size,
                               char *why)
{
    tci_shm *s = state;
    tci_shm_choice mine = {color, key, tci_os_random()}, all[TCI_SHM_RANKS];
    tc_status status = tci_shm_exchange(s, &mine, all, sizeof(mine), s->timeout_ms, "tc_comm_split",
                                        why);
    int first = -1;
    *out = NULL;
    *rank = *size = 0;
    if (status || color < 0) {
        return status;
    }
    for (int r = 0; r < s->size; r++) {
        if (all[r].color == color) {
            first = first < 0 ? r : first;
            ++*size;
            *rank += all[r].key < key || (all[r].key == key && r < s->rank);
        }
    }
    char group[64];
    snprintf(group, sizeof(group), "split %016llx", (unsigned long long)all[first].nonce);
    const tci_shm_group g = {group, *rank, *size, s->timeout_ms, s->timeout_ms};
    *out = tci_shm_join(&g, why);
    return *out ? TC_OK : TC_ERR_COMM;
}

TCI_FN const tc_comm_engine *tci_shm_engine(int size)
{
#define TCI_SHM_ENGINE(name)                                                                       \
    {name,          NULL,         tci_shm_start, tci_shm_wait, tci_shm_exchange,    tci_shm_split, \
     tci_shm_abort, tci_shm_free, NULL,          NULL,         tci_shm_look_around, false}
    static const tc_comm_engine many = TCI_SHM_ENGINE("shm"), one = TCI_SHM_ENGINE("self");
#undef TCI_SHM_ENGINE
    return size == 1 ? &one : &many;
}
