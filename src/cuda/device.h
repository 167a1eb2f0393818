/* cuda/device.h - declares the GPUs of this process: contexts, functions of modules, errors. */
#ifndef TCI_CUDA_DEVICE_H
#define TCI_CUDA_DEVICE_H

#include "driver_api.h"
#include "wgmma_gemm.h"

enum { TCI_CUDA_DEVICES = 16 };

/* One GPU; the `user` of its backend. It does not change once it is open, but
 * for `decide`. */
typedef struct tci_cuda_device {
    char name[16]; /* of its backend: "cuda", "cuda:1" */
    int index;
    bool known;    /* it was tried to open it */
    void *context; /* the primary one, retained for the rest of the process; NULL: none */
    void *stream;  /* of what is given to no other queue */
    void *decide;  /* atomic: the kernel of cuda/graph_while.c, made when first needed */
    tc_backend_target target;
} tci_cuda_device;

typedef struct tci_cuda_function {
    void *handle;
    int threads;
    bool is_skeleton; /* its argument begins with encoded tensor maps */
    tci_cuda_skeleton skeleton;
    struct tci_cuda_function *next;
} tci_cuda_function;

/* The device of that number, which may not be there; NULL: there can be none. */
TCI_FN tci_cuda_device *tci_cuda_get(int index);
/* The device behind the `user` of a call; NULL is the first. */
TCI_FN tci_cuda_device *tci_cuda_of(void *user);
/* Opens it at the first call. */
TCI_FN tc_status tci_cuda_target(void *user, int vector_bits, tc_backend_target *target);
/* Registers the fork handlers of the lock. */
TCI_FN void tci_cuda_keep_over_fork(void);
TCI_FN const tci_cu *tci_cuda_driver(void); /* of an open device */

/* Keeps the text for last_error. */
TCI_FN tc_status tci_cuda_say(const char *what, const char *detail);
/* TC_OK when the driver's code is 0. */
TCI_FN tc_status tci_cuda_check(int code, const char *what);
TCI_FN const char *tci_cuda_last_error(void *user);
/* A process made by fork has no device of its parent's, and no call of the driver may be made in
 * it. */
TCI_FN tc_status tci_cuda_check_process(void);
/* A stay in a device's context, which is this thread's from tci_cuda_enter to tci_cuda_leave. With
 * a status there is none, and no call of the driver is made; it is left all the same. */
typedef struct tci_cuda_stay {
    const tci_cuda_device *d;
    const tci_cu *cu;
    void *before; /* the context that the thread had */
    tc_status status;
} tci_cuda_stay;
TCI_FN tci_cuda_stay tci_cuda_enter(const tci_cuda_device *d);
/* The status of the stay, or else of what was done in it. */
TCI_FN tc_status tci_cuda_leave(const tci_cuda_stay *in, tc_status status);
/* A stay for one call of the driver, which `what` names where it fails. */
#define TCI_CUDA_DO(in, call, what)                                                                \
    tci_cuda_leave((in), (in)->status ? TC_OK : tci_cuda_check((call), (what)))

/* A recorded sequence: graphs, one after the other. */
typedef struct tci_cuda_graph {
    void *graph, *executable;
} tci_cuda_graph;
typedef struct tci_cuda_sequence {
    int n;
    tci_cuda_graph *graphs;
} tci_cuda_sequence;
/* cuda/queue.c: one of n graphs that are to be made; NULL: out of memory. */
TCI_FN tci_cuda_sequence *tci_cuda_sequence_make(int n);
/* nodes[i] of a graph, one for each launch from `first` on; NULL: it has no tasks, and nothing
 * waits for it. Launches before `first` are in an earlier graph. after: an array of as many
 * entries. */
TCI_FN tc_status tci_cuda_add_node(void *graph, const tc_launch *launch, void **nodes, int first,
                                   int i, void **after);
/* cuda/graph_while.c: a member of tc_backend. */
TCI_FN tc_status tci_cuda_record_loop(void *user, const tc_backend_loop *loop, void **sequence);

/* ---- cuda/memory.c ---- */
/* Memory from the driver itself, which users get; NULL: it has none. */
TCI_FN void *tci_cuda_get_memory(void *user, int64_t bytes);
TCI_FN void tci_cuda_free_memory(void *user, void *memory);
/* Members of tc_backend. */
TCI_FN void *tci_cuda_alloc(void *user, int64_t bytes);
TCI_FN void tci_cuda_free(void *user, void *memory);

/* ---- cuda/queue.c: the members of tc_backend and tc_backend_queues that give work ---- */
TCI_FN tc_status tci_cuda_launch(void *user, const tc_launch *launch);
TCI_FN tc_status tci_cuda_sync(void *user);
TCI_FN tc_status tci_cuda_record(void *user, const tc_launch *launches, int n, void **sequence);
TCI_FN tc_status tci_cuda_replay(void *user, void *sequence);
TCI_FN void tci_cuda_sequence_free(void *user, void *sequence);
TCI_FN tc_status tci_cuda_copy_within(void *user, void *to, const void *from, int64_t bytes);
/* upload, download, and between any memory of the process: returns when the bytes are there. */
TCI_FN tc_status tci_cuda_copy(void *user, void *to, const void *from, int64_t bytes);
TCI_FN const tc_backend_queues *tci_cuda_queues(void);

/* ---- cuda/backend.c ---- */
TCI_FN const tc_backend *tci_cuda_backend(void);

#endif
