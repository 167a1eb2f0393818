/* run/collective_info.h - declares metadata of the collectives of a program: communicators, source
 * lines, and the hash of the graph that ranks compare. */
#ifndef TCI_RUN_COLLECTIVE_INFO_H
#define TCI_RUN_COLLECTIVE_INFO_H

#include "runtime_structs.h"

/* A collective of a program, by its number; and of the run under way. */
typedef struct tci_collective {
    tc_comm *comm;
    const char *file; /* of the user's call, or NULL */
    int line;
    tc_comm_job job;
    char *copies;     /* host memory of an operation on a device, or NULL */
    int64_t begin_ns; /* of its start */
} tci_collective;

/* Data of a node that ranks compare. */
typedef struct tci_collective_mark {
    uint64_t hash;
    int32_t line;
    uint16_t file, op; /* of tci_collectives.files */
} tci_collective_mark;

/* True if the operation of a start begins with that of the next step. */
TCI_FN bool tci_collective_is_held(const tc_program *f, const tci_run_step *step,
                                   const tc_comm *comm);

struct tci_collectives {
    tci_collective *items;
    int n;
    tc_comm **comms;
    int n_comms; /* each once, counted */
    tci_collective_mark *marks;
    int n_marks;
    char **files;
    int n_files, cap_files;
    tci_hash graph;
    bool has_pairs;              /* sends and receives, in which ranks differ */
    tc_comm_job *held;           /* of the run under way: begin with the next one (job.with) */
    int64_t exposed_ns, done_ns; /* time in steps of collectives, of all runs; end of the last */
    int64_t n_runs, n_profiled;  /* n_profiled: of a device, whose times exposed_ns has */
    uint64_t agreed[64];
    int n_agreed; /* operations that were compared, this many at the end */
};

#endif
