/* comm/nccl.h - declares NCCL as a table of functions, opened at run time. Values: nccl.h of 2.28.
 */
#ifndef TCI_COMM_NCCL_H
#define TCI_COMM_NCCL_H

#include "../ops/communicator.h"

typedef struct tci_nccl_id {
    char bytes[128];
} tci_nccl_id; /* ncclUniqueId, passed by value */

/* ncclConfig_t as of 2.17; later versions take it by its size and version. */
enum {
    TCI_NCCL_MAGIC = (int)0xcafebeef,
    TCI_NCCL_CONFIG_VERSION = 21700,
    TCI_NCCL_UNDEFINED = INT32_MIN
};
typedef struct tci_nccl_config {
    size_t size;
    int magic, version, blocking, cluster, min_blocks, max_blocks;
    const char *network;
} tci_nccl_config;

/* X(field, symbol, arguments) */
#define TCI_NCCL_ROWS(X)                                                                           \
    X(get_id, "ncclGetUniqueId", (tci_nccl_id *))                                                  \
    X(init, "ncclCommInitRank", (void **, int, tci_nccl_id, int))                                  \
    X(destroy, "ncclCommDestroy", (void *))                                                        \
    X(cancel, "ncclCommAbort", (void *))                                                           \
    X(async_error, "ncclCommGetAsyncError", (void *, int *))                                       \
    X(group_start, "ncclGroupStart", (void))                                                       \
    X(group_end, "ncclGroupEnd", (void))                                                           \
    X(all_reduce, "ncclAllReduce", (const void *, void *, size_t, int, int, void *, void *))       \
    X(reduce_scatter, "ncclReduceScatter",                                                         \
      (const void *, void *, size_t, int, int, void *, void *))                                    \
    X(all_gather, "ncclAllGather", (const void *, void *, size_t, int, void *, void *))            \
    X(broadcast, "ncclBroadcast", (const void *, void *, size_t, int, int, void *, void *))        \
    X(send, "ncclSend", (const void *, size_t, int, int, void *, void *))                          \
    X(recv, "ncclRecv", (void *, size_t, int, int, void *, void *))

typedef struct tci_nccl_api {
#define TCI_ROW(field, symbol, arguments) int (*field) arguments;
    TCI_NCCL_ROWS(TCI_ROW)
#undef TCI_ROW
    const char *(*error)(int code);
    /* NULL before 2.17 */
    int (*init_config)(void **comm, int ranks, tci_nccl_id id, int rank,
                       const tci_nccl_config *config);
    /* of the driver */
    int (*stream_query)(void *stream);
    int (*stream_make)(void **stream, unsigned flags, int priority);
    int (*capture_begin)(void *stream, int mode);
    int (*capture_end)(void *stream, void **graph);
    int (*graph_add_child)(void **node, void *graph, void *const *after, size_t n, void *child);
    int (*graph_add_empty)(void **node, void *graph, void *const *after, size_t n);
    int (*graph_free)(void *graph);
} tci_nccl_api;

#ifdef TCI_HAS_CUDA
/* Opens it at the first call. NULL: `why` has the reason (TC_COMM_WHY bytes). */
TCI_FN const tci_nccl_api *tci_nccl_open(char *why);
/* For tests: what tci_nccl_open gives from now on. */
TCI_FN void tci_nccl_use(const tci_nccl_api *api);
#endif

#endif
