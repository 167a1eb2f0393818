/* ops/communicator.h - declares communicators of collective operations (all-reduce, send, receive):
 * the registry of this process, reference counts, and claiming one for a run.
 *
 * A communicator has a number, 1, 2, ... in the order in which this process made them, which is
 * part of nodes, keys and code. Ranks that make their communicators in the same order therefore
 * share compiled code. Invariants: a number is never reused; a communicator that programs hold
 * stays, with its engine, until the last of them is freed; the engine of one that is held by a run
 * (busy) is called by that run alone. */
#ifndef TCI_OPS_COMMUNICATOR_H
#define TCI_OPS_COMMUNICATOR_H

#include "../api/comm.h"
#include "../base/os.h"

struct tc_comm {
    struct tc_comm *next; /* in the list of all; guarded by its lock, as refs and is_open */
    int64_t number;
    int32_t refs;   /* the user's, and one for each program */
    bool is_open;   /* not freed by the user */
    int32_t busy;   /* atomic: a run, or a user call, has it */
    int32_t failed; /* atomic: an operation failed, so ranks are no longer in step */
    int rank, size;
    int64_t process; /* that made it: a child made by fork cannot use it */
    const tc_comm_engine *engine;
    void *state;
    tc_comm_options options;
    tc_link link; /* assumed, or measured */
    bool link_measured;
    char error[512]; /* of the first failure */
};

/* The words of a COLLECTIVE node. */
typedef enum tci_collective_word {
    TCI_COLLECTIVE_VERB,
    TCI_COLLECTIVE_HOW,
    TCI_COLLECTIVE_COMM,
    TCI_COLLECTIVE_RANKS,
    TCI_COLLECTIVE_PEER,
    TCI_COLLECTIVE_NUMBER,
    TCI_COLLECTIVE_WORDS
} tci_collective_word;

/* A collective as a step of a program: begun by one step, waited for by a later one. */
typedef enum tci_comm_phase { TCI_COMM_NONE, TCI_COMM_START, TCI_COMM_WAIT } tci_comm_phase;
typedef struct tci_comm_step {
    uint8_t phase, verb, how; /* tci_comm_phase, tc_comm_verb, tc_comm_how */
    int32_t ranks, peer, number;
    int64_t comm;
} tci_comm_step;

TCI_FN const char *tci_comm_verb_name(int verb); /* "all_reduce" */
TCI_FN const char *tci_comm_how_name(int how);   /* "sum" */
static inline bool tci_comm_verb_reduces(int verb)
{
    return verb == TC_COMM_ALL_REDUCE || verb == TC_COMM_REDUCE_SCATTER;
}
static inline bool tci_comm_verb_is_pair(int verb)
{
    return verb == TC_COMM_SEND || verb == TC_COMM_RECV;
}

enum { TCI_COMM_TIMEOUT_MS = 5 * 60 * 1000, TCI_COMM_FIRST_MS = 60 * 60 * 1000 }; /* defaults */
static inline int64_t tci_comm_limit_ns(int64_t ms)
{
    return ms < INT64_MAX / 1000000 ? ms * 1000000 : INT64_MAX;
}
/* Sets the text of tc_comm_error(NULL) on this thread: why no communicator was made. */
TCI_FN void tci_comm_tell(const char *why);

/* The communicator of that number with a count more; NULL: it has been freed by all. */
TCI_FN tc_comm *tci_comm_retain(int64_t number);
TCI_FN void tci_comm_release(tc_comm *c);
/* A user handle; NULL: it is none, or was freed. */
TCI_FN tc_comm *tci_comm_of(const tc_comm *handle);
/* The same with a count more. */
TCI_FN tc_comm *tci_comm_hold(const tc_comm *handle);
/* Takes it for a run: TC_OK, TC_ERR_BUSY, or TC_ERR_COMM with the reason in `why`. */
TCI_FN tc_status tci_comm_claim(tc_comm *c, char why[512]);
/* The same for the engine alone, also where the user has freed the communicator. */
TCI_FN tc_status tci_comm_claim_engine(tc_comm *c, char why[512]);
TCI_FN void tci_comm_unclaim(tc_comm *c);
/* Marks the communicator as failed, here and, as far as the engine can, on other ranks. The first
 * reason is kept. */
TCI_FN void tci_comm_fail(tc_comm *c, const char *why);

#endif
