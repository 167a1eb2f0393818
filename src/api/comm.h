/* api/comm.h - declares collective ops (all-reduce, all-gather, send, receive), and the interface
 * of the communication engines that execute them (shared memory, MPI, NCCL, the user's).
 *
 * A communicator is a group of processes (ranks 0 .. size - 1) that run programs together. The
 * optional header tc_comm.h makes communicators over shared memory, MPI or NCCL. */
#ifndef TC_API_COMM_H
#define TC_API_COMM_H

#include "operand_macros.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(ID, name): what ranks do together. */
#define TC_COMM_VERBS(X)                                                                           \
    X(ALL_REDUCE, "all_reduce") X(ALL_GATHER, "all_gather")                                        \
    X(REDUCE_SCATTER, "reduce_scatter") X(BROADCAST, "broadcast") X(ALL_TO_ALL, "all_to_all")      \
    X(SEND, "send") X(RECV, "recv") X(BARRIER, "barrier")
typedef enum tc_comm_verb {
#define TC_ROW(id, name) TC_COMM_##id,
    TC_COMM_VERBS(TC_ROW)
#undef TC_ROW
        TC_COMM_VERB_COUNT
} tc_comm_verb;

/* ---- communicators ---- */

typedef struct tc_comm tc_comm;

/* Reduction that combines the values of all ranks. */
typedef enum tc_comm_how {
    TC_COMM_SUM,
    TC_COMM_PROD,
    TC_COMM_MIN,
    TC_COMM_MAX,
    TC_COMM_MEAN /* the sum over the number of ranks; integers and bool become f32 */
} tc_comm_how;

TC_API int tc_comm_rank(const tc_comm *comm); /* of this process; -1: no such communicator */
TC_API int tc_comm_size(const tc_comm *comm); /* ranks; 0: no such communicator */
/* "shm", "mpi", "nccl", "self", or the name of the user's engine; "": no such communicator. */
TC_API const char *tc_comm_engine_name(const tc_comm *comm);
/* The first failure of the communicator, "" if there was none; of NULL, why the last call on this
 * thread that makes communicators failed. Valid until the communicator is freed, or the next such
 * call. */
TC_API const char *tc_comm_error(const tc_comm *comm);
/* Aborts every pending operation and fails all later ones, on all ranks that the engine reaches. */
TC_API void tc_comm_abort(tc_comm *comm);
/* Splits comm: ranks with the same color, in the order of key (equal keys: of rank), form a new
 * communicator. A collective call: every rank of comm makes it. color < 0: this rank is in none,
 * and *out is NULL. TC_ERR_COMM, TC_ERR_HANDLE, TC_ERR_MEMORY; TC_ERR_UNSUPPORTED: the engine
 * cannot. */
TC_API tc_status tc_comm_split(tc_comm *comm, int color, int key, tc_comm **out);
/* Programs that were compiled with the communicator keep its engine open until they are freed;
 * later runs of them fail with TC_ERR_COMM. NULL is ignored. */
TC_API void tc_comm_free(tc_comm *comm);

/* ---- ops ----
 *
 * Each call is one operation of each run: equal calls are not merged. All ranks must run the same
 * program; the collectives of a program are compared at its first run (tc_run:
 * TC_ERR_COMM names the first difference, with the lines of both ranks). Sizes may be symbols; all
 * ranks must run with the same sizes. Gradients are those of the sum of all ranks' losses, and
 * tc_vmap adds an axis to the operand. Errors of all: TC_ERR_HANDLE, TC_ERR_COMM (the communicator
 * was freed or failed before), and those that are listed. Examples: docs/distributed.md. */

/* Elementwise reduction of x over all ranks; x's shape and dtype (MEAN: a float dtype). bool: MIN
 * and MAX only (TC_ERR_DTYPE). f16 and bf16 are summed in f32 and rounded once. Under
 * options.reproducible tc sums in the order of ranks 0, 1, 2 .., and the engine only moves data;
 * otherwise the engine chooses the order. */
TC_API tc_tensor tc_comm_all_reduce_at(tc_comm *comm, tc_tensor x, tc_comm_how how, tc_site here);
#define tc_comm_all_reduce(comm, x, how) tc_comm_all_reduce_at((comm), (x), (how), TC_HERE)
/* Concatenation of x of all ranks along an axis in the order of ranks: the axis is `size` times as
 * long. x must have an axis (TC_ERR_AXIS). */
TC_API tc_tensor tc_comm_all_gather_at(tc_comm *comm, tc_tensor x, int axis, tc_site here);
#define tc_comm_all_gather(comm, x, axis) tc_comm_all_gather_at((comm), (x), (axis), TC_HERE)
/* tc_comm_all_reduce; then rank r keeps part r of `size` equal parts along the axis.
 * TC_ERR_SHAPE: the size of the axis is no multiple of the number of ranks, or a symbolic size that
 * is not provably one. */
TC_API tc_tensor tc_comm_reduce_scatter_at(tc_comm *comm, tc_tensor x, int axis, tc_comm_how how,
                                           tc_site here);
#define tc_comm_reduce_scatter(comm, x, axis, how)                                                 \
    tc_comm_reduce_scatter_at((comm), (x), (axis), (how), TC_HERE)
/* x of rank root; on other ranks only the shape and dtype of x are used. */
TC_API tc_tensor tc_comm_broadcast_at(tc_comm *comm, tc_tensor x, int root, tc_site here);
#define tc_comm_broadcast(comm, x, root) tc_comm_broadcast_at((comm), (x), (root), TC_HERE)
/* Part r of `size` equal parts along axis `cut` goes to rank r; the received parts are concatenated
 * along axis `join` in the order of ranks. Errors as for tc_comm_reduce_scatter. */
TC_API tc_tensor tc_comm_all_to_all_at(tc_comm *comm, tc_tensor x, int cut, int join, tc_site here);
#define tc_comm_all_to_all(comm, x, cut, join)                                                     \
    tc_comm_all_to_all_at((comm), (x), (cut), (join), TC_HERE)
/* x, which has been sent to rank `to` when it can be read. The gradient also gets what rank `to`
 * sends back: the gradient of its tc_comm_recv. */
TC_API tc_tensor tc_comm_send_at(tc_comm *comm, tc_tensor x, int to, tc_site here);
#define tc_comm_send(comm, x, to) tc_comm_send_at((comm), (x), (to), TC_HERE)
/* The value that rank `from` sends, with the shape and dtype of `like`. The value of `like` is
 * computed first but has no influence. The gradient of `like` is zero, and computing it sends the
 * gradient of the result to rank `from`. */
TC_API tc_tensor tc_comm_recv_at(tc_comm *comm, tc_tensor like, int from, tc_site here);
#define tc_comm_recv(comm, like, from) tc_comm_recv_at((comm), (like), (from), TC_HERE)
/* x, which can be read when all ranks have computed theirs. */
TC_API tc_tensor tc_comm_barrier_at(tc_comm *comm, tc_tensor x, tc_site here);
#define tc_comm_barrier(comm, x) tc_comm_barrier_at((comm), (x), TC_HERE)

/* ---- engines ---- */

/* One operation of a run. */
typedef struct tc_comm_job {
    tc_comm_verb verb;
    tc_comm_how how; /* of ALL_REDUCE, REDUCE_SCATTER; never MEAN */
    tc_dtype dtype;
    int peer;   /* root, destination, source */
    int number; /* index of the operation in its program: equal on all ranks */
    int64_t n;  /* elements of `in`. ALL_GATHER: `out` has n for each rank; REDUCE_SCATTER:
                            `out` has n / ranks; BARRIER: neither is read or written; else `out`
                            has n */
    const void *in;
    void *out;
    const struct tc_backend *device; /* whose memory these are: its own queue has what comes before
                            and after; NULL: host memory */
    tc_site site;                    /* source location of the call */
    const char *name;                /* "all_reduce" */
    bool started, done;
    void *engine_data; /* for the engine, NULL at the start */
    /* The next operation of a group that starts together with this one, or NULL (engines with
     * `groups`). Each has a wait of its own. */
    struct tc_comm_job *with;
} tc_comm_job;

/* An engine executes operations. One thread at a time calls functions on one state, those of a run
 * in the order of its program, which is the same on all ranks. `why` has room for TC_COMM_WHY
 * bytes: the rank, if it is known, and the cause; tc adds operation, file and line. */
enum { TC_COMM_WHY = 256 };
typedef struct tc_comm_engine {
    const char *name;
    const char *device; /* memory of its operands: "cuda" (and "cuda:1" ..); NULL: host memory */
    /* Starts an operation; need not wait for other ranks. Memory of the job stays valid until wait
     * returns or, after a failure of any operation, until stop returns. */
    tc_status (*start)(void *state, tc_comm_job *job, char *why);
    /* Waits until `out` may be read (on a device: by later work of its own queue) and `in`
     * written. */
    tc_status (*wait)(void *state, tc_comm_job *job, char *why);
    /* All-gather of host memory, `bytes` per rank, in the order of ranks, with a timeout in ms. */
    tc_status (*exchange)(void *state, const void *mine, void *all, int64_t bytes, int64_t limit_ms,
                          const char *what, char *why);
    /* Optional. *state_out NULL where color < 0. */
    tc_status (*split)(void *state, int color, int key, void **state_out, int *rank, int *size,
                       char *why);
    /* Aborts pending operations, here and, as far as possible, on other ranks. Afterwards only free
     * is called. */
    void (*stop)(void *state, const char *why);
    void (*free)(void *state);
    /* Optional, for devices: waits until all started operations are done there, or failed. */
    tc_status (*finish)(void *state, char *why);
    /* Optional, for devices: tc_launch.node. With it programs are recorded once and replayed. */
    tc_status (*node)(void *state, tc_comm_job *job, void *graph, void *const *after,
                      size_t n_after, void **node);
    /* Optional: TC_ERR_COMM if a rank is known to be dead. Returns immediately. */
    tc_status (*look)(void *state, char *why);
    /* start and node accept a group of operations (tc_comm_job.with), at about the cost of one:
     * gradients of a bucket are then not copied. */
    bool groups;
} tc_comm_engine;

/* A link of a rank, in the alpha-beta model: a message of n bytes takes latency + n / rate. While
 * it is in flight kernels lose the fraction `busy`, from 0 to 1, of their speed: collectives use
 * SMs and memory bandwidth too. */
typedef struct tc_link {
    double latency_us, gb_per_s, busy;
} tc_link;
/* A machine for the model of tc_explain and of tc_simulate (tc_comm.h). */
typedef struct tc_cluster {
    int ranks_per_node;   /* 0: all ranks are on one node */
    tc_link inner, outer; /* within a node; between nodes, of each rank */
    double compute;       /* factor for the modelled times of kernels; 0: 1 */
} tc_cluster;

typedef struct tc_comm_options {
    int64_t timeout_ms;       /* of an operation, from when this rank waits for it; 0: 5 minutes */
    int64_t first_timeout_ms; /* of the first run, at which ranks may still compile; 0: 1 hour */
    bool may_differ;          /* programs of ranks may differ in all but their collectives */
    int processors;           /* NCCL: maximum number of SMs of an operation; 0: 16 */
} tc_comm_options;

/* Makes a communicator over a user-defined engine, which must stay valid until the process ends;
 * options NULL: defaults. The communicator frees state. TC_ERR_ARGUMENT: no engine, or rank not in
 * [0, size); TC_ERR_MEMORY; state is not freed then. */
TC_API tc_status tc_comm_of_engine(const tc_comm_engine *engine, void *state, int rank, int size,
                                   const tc_comm_options *options, tc_comm **out);
#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
