/* comm/mpi.c - collectives through MPI, whose library is opened at run time.
 *
 * In: operations. Out: nonblocking MPI calls, and tests of their requests until the time limit.
 *
 * One binary serves three binary interfaces: Open MPI, whose handles are addresses of symbols of
 * the library; MPICH, whose handles are ints; and the standard ABI of MPI 5. An int handle is
 * passed in place of a pointer, which is the same register or stack slot in the calling
 * conventions of 64-bit Linux; where MPI writes a handle there is room for a pointer that was zero.
 * MPI has no f16 and bf16: these are gathered and summed here, in f32, in the order of ranks. For
 * all other dtypes MPI chooses the reduction order.
 *
 * MPI makes progress inside its calls, so a started operation progresses while the program waits in
 * MPI, otherwise only if the library has asynchronous progress. If a rank dies, mpirun terminates
 * all ranks.
 *
 * MPI cannot cancel a collective. After a timeout its buffers may be reused, so MPI is never called
 * again, for any communicator: any call could progress the pending operation. */
#include "mpi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "../base/alloc.h"
#include "api.h"
#include "host_reduce.h"

typedef void *tci_mpi_handle;

/* X(result, name, arguments) */
#define TCI_MPI_FUNCTIONS(X)                                                                       \
    X(Init_thread, (int *, char ***, int, int *))                                                  \
    X(Initialized, (int *))                                                                        \
    X(Finalized, (int *))                                                                          \
    X(Finalize, (void))                                                                            \
    X(Comm_rank, (tci_mpi_handle, int *))                                                          \
    X(Comm_size, (tci_mpi_handle, int *))                                                          \
    X(Comm_dup, (tci_mpi_handle, tci_mpi_handle *))                                                \
    X(Comm_split, (tci_mpi_handle, int, int, tci_mpi_handle *))                                    \
    X(Comm_free, (tci_mpi_handle *))                                                               \
    X(Comm_set_errhandler, (tci_mpi_handle, tci_mpi_handle))                                       \
    X(Error_string, (int, char *, int *))                                                          \
    X(Test, (tci_mpi_handle *, int *, void *))                                                     \
    X(Ibarrier, (tci_mpi_handle, tci_mpi_handle *))                                                \
    X(Ibcast, (void *, int, tci_mpi_handle, int, tci_mpi_handle, tci_mpi_handle *))                \
    X(Iallreduce, (const void *, void *, int, tci_mpi_handle, tci_mpi_handle, tci_mpi_handle,      \
                   tci_mpi_handle *))                                                              \
    X(Ireduce_scatter_block, (const void *, void *, int, tci_mpi_handle, tci_mpi_handle,           \
                              tci_mpi_handle, tci_mpi_handle *))                                   \
    X(Iallgather, (const void *, int, tci_mpi_handle, void *, int, tci_mpi_handle,                 \
                   tci_mpi_handle, tci_mpi_handle *))                                              \
    X(Ialltoall, (const void *, int, tci_mpi_handle, void *, int, tci_mpi_handle, tci_mpi_handle,  \
                  tci_mpi_handle *))                                                               \
    X(Isend, (const void *, int, tci_mpi_handle, int, int, tci_mpi_handle, tci_mpi_handle *))      \
    X(Irecv, (void *, int, tci_mpi_handle, int, int, tci_mpi_handle, tci_mpi_handle *))

/* The kinds of interface, and in which column of the handles below they are. */
typedef enum tci_mpi_kind { TCI_MPI_OPEN, TCI_MPI_MPICH, TCI_MPI_STANDARD } tci_mpi_kind;

/* X(id, Open MPI's symbol, MPICH's handle, that of the standard) */
#define TCI_MPI_HANDLES(X)                                                                         \
    X(WORLD, "ompi_mpi_comm_world", 0x44000000, 0x101)                                             \
    X(ERRORS_RETURN, "ompi_mpi_errors_return", 0x54000001, 0x143)                                  \
    X(SUM, "ompi_mpi_op_sum", 0x58000003, 0x21)                                                    \
    X(MIN, "ompi_mpi_op_min", 0x58000002, 0x22)                                                    \
    X(MAX, "ompi_mpi_op_max", 0x58000001, 0x23)                                                    \
    X(BYTE, "ompi_mpi_byte", 0x4c00010d, 0x247)                                                    \
    X(U8, "ompi_mpi_uint8_t", 0x4c00013b, 0x241)                                                   \
    X(U16, "ompi_mpi_uint16_t", 0x4c00023c, 0x249)                                                 \
    X(U32, "ompi_mpi_uint32_t", 0x4c00043d, 0x251)                                                 \
    X(U64, "ompi_mpi_uint64_t", 0x4c00083e, 0x259)                                                 \
    X(I8, "ompi_mpi_int8_t", 0x4c000137, 0x240)                                                    \
    X(I16, "ompi_mpi_int16_t", 0x4c000238, 0x248)                                                  \
    X(I32, "ompi_mpi_int32_t", 0x4c000439, 0x250)                                                  \
    X(I64, "ompi_mpi_int64_t", 0x4c00083a, 0x258)                                                  \
    X(F32, "ompi_mpi_float", 0x4c00040a, 0x210)                                                    \
    X(F64, "ompi_mpi_double", 0x4c00080b, 0x214)
typedef enum tci_mpi_named {
#define TCI_ROW(id, symbol, mpich, standard) TCI_MPI_##id,
    TCI_MPI_HANDLES(TCI_ROW)
#undef TCI_ROW
        TCI_MPI_NAMED
} tci_mpi_named;

typedef struct tci_mpi_api {
    bool is_open, is_ours; /* this process's MPI was initialized here */
    int users;             /* communicators */
    bool is_stuck;         /* atomic: an operation was given up that MPI still has */
    void *left;            /* memory of an exchange that was given up */
    tci_mpi_kind kind;
    tci_mpi_handle named[TCI_MPI_NAMED];
#define TCI_ROW(name, arguments) int (*name) arguments;
    TCI_MPI_FUNCTIONS(TCI_ROW)
#undef TCI_ROW
} tci_mpi_api;

static tci_mpi_api tci_mpi; /* guarded by the lock until it is open */
static tci_mutex tci_mpi_lock = TCI_MUTEX_INIT;

typedef struct tci_mpi_state {
    tci_mpi_handle comm;
    int rank, size;
    int n_pending; /* operations that were started and not waited for */
    int64_t timeout_ms;
} tci_mpi_state;

/* An operation under way. */
typedef struct tci_mpi_request {
    tci_mpi_handle handle;
    char *parts; /* of all ranks, which are summed at the end; or NULL */
} tci_mpi_request;

/* ---- the library ---- */

static bool tci_mpi_load(void *library, const char *name, char *why)
{
    static const struct {
        const char *symbol;
        intptr_t mpich, standard;
    } rows[] = {
#define TCI_ROW(id, symbol, mpich, standard) {symbol, mpich, standard},
        TCI_MPI_HANDLES(TCI_ROW)
#undef TCI_ROW
    };
    tci_mpi.kind = tci_os_dlsym(library, "ompi_mpi_comm_world") ? TCI_MPI_OPEN
                   : strstr(name, "mpi_abi")                    ? TCI_MPI_STANDARD
                                                                : TCI_MPI_MPICH;
    bool whole = true;
    for (int i = 0; i < (int)TCI_MPI_NAMED; i++) {
        tci_mpi.named[i] = tci_mpi.kind == TCI_MPI_OPEN    ? tci_os_dlsym(library, rows[i].symbol)
                           : tci_mpi.kind == TCI_MPI_MPICH ? (void *)rows[i].mpich
                                                           : (void *)rows[i].standard;
        whole = whole && tci_mpi.named[i];
    }
#define TCI_ROW(function, arguments)                                                               \
    *(void **)&tci_mpi.function = tci_os_dlsym(library, "MPI_" #function);                         \
    whole = whole && tci_mpi.function;
    TCI_MPI_FUNCTIONS(TCI_ROW)
#undef TCI_ROW
    if (!whole) {
        snprintf(why, TC_COMM_WHY, "%s lacks functions of MPI 3", name);
    }
    return whole;
}

/* The library that the launcher wants comes first: of two that are installed only that one can find
 * the other ranks. */
static bool tci_mpi_find(char *why)
{
    const char *names[3] = {"libmpi.so.40", "libmpich.so.12", "libmpi_abi.so"};
    char reason[256] = "";
    void *library = NULL;
    int i = 0;
    if (!tci_os_getenv("OMPI_COMM_WORLD_RANK")) {
        names[0] = "libmpich.so.12";
        names[1] = "libmpi_abi.so";
        names[2] = "libmpi.so.40";
    }
    for (int k = 0; k < 3 && !library; k++) { /* what the process has already */
        library = tci_os_dlopen_loaded(names[k]);
        i = library ? k : i;
    }
    for (int k = 0; k < 3 && !library; k++) { /* its plugins look for its symbols: global */
        library = dlopen(names[k], RTLD_NOW | RTLD_GLOBAL);
        i = library ? k : i;
    }
    if (!library) {
        snprintf(reason, sizeof(reason), "%s", dlerror());
        snprintf(why, TC_COMM_WHY,
                 "MPI is not installed: none of libmpi.so.40, libmpich.so.12 and "
                 "libmpi_abi.so can be opened (%.120s)",
                 reason);
        return false;
    }
    return tci_mpi_load(library, names[i], why);
}

/* Opens the library once. */
static bool tci_mpi_open(char *why)
{
    pthread_mutex_lock(&tci_mpi_lock);
    tci_mpi.is_open = tci_mpi.is_open || tci_mpi_find(why);
    bool open = tci_mpi.is_open;
    pthread_mutex_unlock(&tci_mpi_lock);
    return open;
}

static tc_status tci_mpi_judge(int code, const char *what, char *why)
{
    char text[8192] = "";
    int n = 0;
    if (code == 0) {
        return TC_OK;
    }
    tci_mpi.Error_string(code, text, &n);
    snprintf(why, TC_COMM_WHY, "%s: %.180s", what, text);
    return TC_ERR_COMM;
}

static void tci_mpi_give_up(void)
{
    __atomic_store_n(&tci_mpi.is_stuck, true, __ATOMIC_RELEASE);
}

/* May MPI be called? */
static tc_status tci_mpi_may_go(char *why)
{
    if (!__atomic_load_n(&tci_mpi.is_stuck, __ATOMIC_ACQUIRE)) {
        return TC_OK;
    }
    snprintf(why, TC_COMM_WHY,
             "MPI still has an operation that failed before, which it cannot "
             "take back: expected that this process ends");
    return TC_ERR_COMM;
}

/* ---- operations ---- */

static tci_mpi_handle tci_mpi_dtype(tc_dtype t)
{
    switch (t) {
#define TCI_CASE(id) case TC_##id: return tci_mpi.named[TCI_MPI_##id];
        TCI_CASE(U8)
        TCI_CASE(U16)
        TCI_CASE(U32)
        TCI_CASE(U64)
        TCI_CASE(I8)
        TCI_CASE(I16)
        TCI_CASE(I32)
        TCI_CASE(I64)
        TCI_CASE(F32)
        TCI_CASE(F64)
#undef TCI_CASE
    case TC_BOOL: return tci_mpi.named[TCI_MPI_U8];
    case TC_F16:
    case TC_BF16:
    case TCI_DTYPE_BEFORE:
    case TC_DTYPE_COUNT: break;
    }
    return NULL;
}

static tci_mpi_handle tci_mpi_op(tc_comm_how how)
{
    return tci_mpi.named[how == TC_COMM_SUM   ? TCI_MPI_SUM
                         : how == TC_COMM_MIN ? TCI_MPI_MIN
                                              : TCI_MPI_MAX];
}

/* Halves: those of all ranks. */
static int tci_mpi_gather_parts(const tci_mpi_state *s, const tc_comm_job *j, tci_mpi_request *r)
{
    const tci_mpi_handle byte = tci_mpi.named[TCI_MPI_BYTE];
    bool all = j->verb == TC_COMM_ALL_REDUCE;
    int bytes = (int)(j->n * tc_dtype_size(j->dtype)), part = all ? bytes : bytes / s->size;
    return all ? tci_mpi.Iallgather(j->in, part, byte, r->parts, part, byte, s->comm, &r->handle)
               : tci_mpi.Ialltoall(j->in, part, byte, r->parts, part, byte, s->comm, &r->handle);
}

static int tci_mpi_call(const tci_mpi_state *s, const tc_comm_job *j, tci_mpi_request *r)
{
    const tci_mpi_handle byte = tci_mpi.named[TCI_MPI_BYTE], t = tci_mpi_dtype(j->dtype);
    const int n = (int)j->n, bytes = (int)(j->n * tc_dtype_size(j->dtype)), part = bytes / s->size;
    switch (j->verb) {
    case TC_COMM_ALL_REDUCE:
        return r->parts ? tci_mpi_gather_parts(s, j, r)
                        : tci_mpi.Iallreduce(j->in, j->out, n, t, tci_mpi_op(j->how), s->comm,
                                             &r->handle);
    case TC_COMM_REDUCE_SCATTER:
        return r->parts ? tci_mpi_gather_parts(s, j, r)
                        : tci_mpi.Ireduce_scatter_block(j->in, j->out, n / s->size, t,
                                                        tci_mpi_op(j->how), s->comm, &r->handle);
    case TC_COMM_ALL_GATHER:
        return tci_mpi.Iallgather(j->in, bytes, byte, j->out, bytes, byte, s->comm, &r->handle);
    case TC_COMM_ALL_TO_ALL:
        return tci_mpi.Ialltoall(j->in, part, byte, j->out, part, byte, s->comm, &r->handle);
    case TC_COMM_BROADCAST:
        if (s->rank == j->peer) {
            memcpy(j->out, j->in, (size_t)bytes);
        }
        return tci_mpi.Ibcast(j->out, bytes, byte, j->peer, s->comm, &r->handle);
    case TC_COMM_SEND:
        memcpy(j->out, j->in, (size_t)bytes);
        return tci_mpi.Isend(j->in, bytes, byte, j->peer, 1, s->comm, &r->handle);
    case TC_COMM_RECV: return tci_mpi.Irecv(j->out, bytes, byte, j->peer, 1, s->comm, &r->handle);
    case TC_COMM_BARRIER:
    case TC_COMM_VERB_COUNT: break;
    }
    return tci_mpi.Ibarrier(s->comm, &r->handle);
}

static tc_status tci_mpi_start(void *state, tc_comm_job *job, char *why)
{
    tci_mpi_state *s = state;
    int64_t bytes = job->n * tc_dtype_size(job->dtype);
    bool sums = tci_comm_verb_reduces(job->verb) && tci_dtype_is_half(job->dtype);
    int64_t parts = job->verb == TC_COMM_ALL_REDUCE ? bytes * s->size : bytes;
    tc_status status = tci_mpi_may_go(why);
    if (status) {
        return status;
    }
    if (bytes > INT32_MAX) {
        snprintf(why, TC_COMM_WHY,
                 "%lld bytes in one operation, expected less than 2 GiB: MPI "
                 "counts in int",
                 (long long)bytes);
        return TC_ERR_COMM;
    }
    tci_mpi_request *r = tci_heap_get(sizeof(*r));
    if (r) {
        *r = (tci_mpi_request){.parts = sums ? tci_heap_get((size_t)parts + 1) : NULL};
    }
    if (!r || (sums && !r->parts)) {
        tci_heap_free(r);
        snprintf(why, TC_COMM_WHY, "out of memory");
        return TC_ERR_COMM;
    }
    status = tci_mpi_judge(tci_mpi_call(s, job, r), "MPI refused the operation", why);
    if (status) {
        tci_heap_free(r->parts);
        tci_heap_free(r);
        return status;
    }
    job->engine_data = r;
    s->n_pending++;
    return TC_OK;
}

/* The sums of f16 and bf16. */
static void tci_mpi_finish(const tci_mpi_state *s, const tc_comm_job *j, const tci_mpi_request *r)
{
    const int64_t n = j->verb == TC_COMM_ALL_REDUCE ? j->n : j->n / s->size;
    if (r->parts) {
        tci_comm_combine(j->how, j->dtype, j->out, r->parts, n * tc_dtype_size(j->dtype), s->size,
                         n);
    }
}

/* Until the request is done or the time is over. */
static tc_status tci_mpi_until(tci_mpi_request *r, int64_t limit_ms, char *why)
{
    char mpi_status[256]; /* larger than any MPI's */
    int64_t begin = tci_os_now_ns();
    int done = 0, looks = 0;
    while (!done) {
        tc_status status = tci_mpi_judge(tci_mpi.Test(&r->handle, &done, mpi_status), "MPI failed",
                                         why);
        if (status) {
            return status;
        }
        if (!done && tci_os_now_ns() - begin > tci_comm_limit_ns(limit_ms)) {
            snprintf(why, TC_COMM_WHY,
                     "another rank did not come within %lld ms (MPI does not "
                     "tell which)",
                     (long long)limit_ms);
            return TC_ERR_COMM;
        }
        if (!done && ++looks > 1000) {
            struct timespec t = {0, 50000};
            nanosleep(&t, NULL);
        }
    }
    return TC_OK;
}

static tc_status tci_mpi_wait(void *state, tc_comm_job *job, char *why)
{
    tci_mpi_state *s = state;
    tci_mpi_request *r = job->engine_data;
    tc_status status = tci_mpi_until(r, s->timeout_ms, why);
    if (!status) { /* else MPI may still write there */
        s->n_pending--;
        tci_mpi_finish(s, job, r);
        tci_heap_free(r->parts);
        tci_heap_free(r);
        job->engine_data = NULL;
    }
    return status;
}

/* In memory of its own, which MPI keeps if the time is over. */
static tc_status tci_mpi_exchange(void *state, const void *mine, void *all, int64_t bytes,
                                  int64_t limit_ms, const char *what, char *why)
{
    tci_mpi_state *s = state;
    const tci_mpi_handle byte = tci_mpi.named[TCI_MPI_BYTE];
    const size_t whole = (size_t)bytes * (size_t)s->size;
    tci_mpi_request r = {NULL, NULL};
    tc_status status = tci_mpi_may_go(why);
    if (status) {
        return status;
    }
    char *copy = bytes > INT32_MAX ? NULL : tci_heap_get(whole + (size_t)bytes + 1);
    if (!copy) {
        snprintf(why, TC_COMM_WHY, "no memory for %lld bytes of each of %d ranks, or above 2 GiB",
                 (long long)bytes, s->size);
        return TC_ERR_COMM;
    }
    memcpy(copy + whole, mine, (size_t)bytes);
    status = tci_mpi_judge(tci_mpi.Iallgather(copy + whole, (int)bytes, byte, copy, (int)bytes,
                                              byte, s->comm, &r.handle),
                           what, why);
    if (!status && tci_mpi_until(&r, limit_ms, why)) {
        tci_mpi.left = copy;
        tci_mpi_give_up();
        return TC_ERR_COMM;
    }
    if (!status) {
        memcpy(all, copy, whole);
    }
    tci_heap_free(copy);
    return status;
}

/* ---- communicators ---- */

/* Takes over `comm`, which is freed on failure. */
static tci_mpi_state *tci_mpi_state_of(tci_mpi_handle comm, int64_t timeout_ms)
{
    tci_mpi_state *s = tci_heap_get(sizeof(*s));
    if (!s) {
        tci_mpi.Comm_free(&comm);
        return NULL;
    }
    *s = (tci_mpi_state){.comm = comm, .timeout_ms = timeout_ms};
    tci_mpi.Comm_set_errhandler(comm, tci_mpi.named[TCI_MPI_ERRORS_RETURN]);
    tci_mpi.Comm_rank(comm, &s->rank);
    tci_mpi.Comm_size(comm, &s->size);
    pthread_mutex_lock(&tci_mpi_lock);
    tci_mpi.users++;
    pthread_mutex_unlock(&tci_mpi_lock);
    return s;
}

static tc_status tci_mpi_split(void *state, int color, int key, void **out, int *rank, int *size,
                               char *why)
{
    tci_mpi_state *s = state, *made;
    tci_mpi_handle comm = NULL;
    tc_status status = tci_mpi_may_go(why);
    status = status ? status
                    : tci_mpi_judge(tci_mpi.Comm_split(s->comm, color < 0 ? -32766 : color, key,
                                                       &comm),
                                    "MPI_Comm_split", why);
    *out = NULL;
    if (status || color < 0) {
        return status;
    }
    made = tci_mpi_state_of(comm, s->timeout_ms);
    if (!made) {
        snprintf(why, TC_COMM_WHY, "out of memory");
        return TC_ERR_COMM;
    }
    *out = made;
    *rank = made->rank;
    *size = made->size;
    return TC_OK;
}

static void tci_mpi_abort(void *state, const char *why)
{
    tci_mpi_state *s = state;
    (void)why;
    if (s->n_pending) {
        tci_mpi_give_up();
    }
    s->timeout_ms = 0;
}

/* The last communicator of an MPI that was initialized here ends it. */
static void tci_mpi_free(void *state)
{
    tci_mpi_state *s = state;
    char why[TC_COMM_WHY];
    int over = 0;
    tci_mpi.Finalized(&over);
    over = over || tci_mpi_may_go(why);
    pthread_mutex_lock(&tci_mpi_lock);
    bool last = --tci_mpi.users == 0 && tci_mpi.is_ours;
    pthread_mutex_unlock(&tci_mpi_lock);
    if (!over && s->timeout_ms > 0) {
        tci_mpi.Comm_free(&s->comm);
        if (last) {
            tci_mpi.Finalize();
        }
    }
    tci_heap_free(s);
}

static const tc_comm_engine tci_mpi_engine = {
    "mpi",         NULL,          tci_mpi_start, tci_mpi_wait, tci_mpi_exchange,
    tci_mpi_split, tci_mpi_abort, tci_mpi_free,  NULL,         NULL,
    NULL,          false};

static tc_status tci_mpi_make(tci_mpi_handle of, const tc_comm_options *options, tc_comm **out,
                              char *why)
{
    tci_mpi_handle comm = NULL;
    int64_t limit = options && options->timeout_ms > 0 ? options->timeout_ms : TCI_COMM_TIMEOUT_MS;
    tc_status status = tci_mpi_may_go(why);
    status = status ? status : tci_mpi_judge(tci_mpi.Comm_dup(of, &comm), "MPI_Comm_dup", why);
    if (status) {
        return status;
    }
    tci_mpi_state *s = tci_mpi_state_of(comm, limit);
    status = s ? tc_comm_of_engine(&tci_mpi_engine, s, s->rank, s->size, options, out)
               : TC_ERR_MEMORY;
    if (status && s) {
        tci_mpi_free(s);
    }
    if (status) {
        snprintf(why, TC_COMM_WHY, "out of memory");
    }
    return status;
}

static bool tci_mpi_is_up(char *why)
{
    int up = 0, over = 0;
    tci_mpi.Initialized(&up);
    tci_mpi.Finalized(&over);
    if (over) {
        snprintf(why, TC_COMM_WHY, "MPI was finalized, and cannot be initialized again");
    } else if (!up) {
        snprintf(why, TC_COMM_WHY, "MPI is not initialized: expected MPI_Init_thread before");
    }
    return up && !over;
}

TCI_FN tc_status tci_mpi_world(const tc_comm_options *options, tc_comm **out, char *why)
{
    int up = 0, given = 0;
    tc_status status = TC_OK;
    if (!tci_mpi_open(why)) {
        return TC_ERR_COMM;
    }
    pthread_mutex_lock(&tci_mpi_lock);
    tci_mpi.Initialized(&up);
    if (!up) {
        status = tci_mpi_judge(tci_mpi.Init_thread(NULL, NULL, 3, &given), "MPI_Init_thread", why);
        tci_mpi.is_ours = !status;
    }
    pthread_mutex_unlock(&tci_mpi_lock);
    if (status) {
        return status;
    }
    return tci_mpi_is_up(why) ? tci_mpi_make(tci_mpi.named[TCI_MPI_WORLD], options, out, why)
                              : TC_ERR_COMM;
}

TC_API tc_status tc_comm_of_mpi(const void *mpi_comm, const tc_comm_options *options, tc_comm **out)
{
    char why[TC_COMM_WHY] = "";
    tci_mpi_handle comm = NULL;
    if (!mpi_comm || !out) {
        return TC_ERR_ARGUMENT;
    }
    *out = NULL;
    tc_status status = TC_ERR_COMM;
    if (tci_mpi_open(why) && tci_mpi_is_up(why)) {
        memcpy(&comm, mpi_comm, tci_mpi.kind == TCI_MPI_MPICH ? sizeof(int) : sizeof(comm));
        status = tci_mpi_make(comm, options, out, why);
    }
    tci_comm_tell(status ? why : "");
    return status;
}
