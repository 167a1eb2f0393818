/* compile/compile.h - state of one batch of compile requests on its way through the driver
 * (compile/compile.c), shared with compile/stage_dumps.c. */
#ifndef TCI_COMPILE_COMPILE_H
#define TCI_COMPILE_COMPILE_H

#include "../debug/dump.h"
#include "../debug/log.h"
#include "backend_registry.h"
#include "memory_cache.h"
#include "disk_cache.h"
#include "graph_split.h"
#include "jit.h"

typedef enum tci_compile_state {
    TCI_COMPILE_OPEN,    /* not looked at, or another thread is compiling it */
    TCI_COMPILE_CLAIMED, /* ours to compile */
    TCI_COMPILE_DONE
} tci_compile_state;

/* One request on its way. */
typedef struct tci_compile_job {
    tci_request *request;
    tci_compile_state state;
    tci_claim claim;
    tc_status status;
    tci_code *code;
    tci_request_copy copy; /* in the batch's scratch, as are the next four */
    tci_node **roots;      /* after rewriting */
    bool intact;           /* tci_rewrite_intact */
    tci_plan *plan;
    int *units; /* plan kernel -> number in the batch's jit; -1: it is a call */
    tci_dump dump;
    tc_times times;
    tci_split split; /* of a request that has an engine */
} tci_compile_job;

typedef struct tci_compile_batch_state {
    tci_scratch scratch;
    const tc_options *options;
    const tci_backend *backend;
    tci_compile_job *jobs;
    int n_jobs;
    tci_disk disk;
    tci_jit jit;
    tci_str *log;
    bool verify;
    bool native;    /* kernels go through the jit; false: interpreted */
    char why[1024]; /* why they are interpreted though native code was wanted, or "" */
} tci_compile_batch_state;

/* ---- compile/stage_dumps.c: after each stage ---- */
TCI_FN void tci_compile_dump_graph(tci_compile_batch_state *b, tci_compile_job *job,
                                   const char *stage, const char *file, tci_node **roots);
TCI_FN void tci_compile_dump_dot(tci_compile_batch_state *b, tci_compile_job *job);
TCI_FN void tci_compile_dump_plan(tci_compile_batch_state *b, tci_compile_job *job);
TCI_FN void tci_compile_dump_code(tci_compile_batch_state *b, tci_compile_job *job);
TCI_FN void tci_compile_dump_loops(tci_compile_batch_state *b);
TCI_FN void tci_compile_dump_source(tci_compile_batch_state *b);

#endif
