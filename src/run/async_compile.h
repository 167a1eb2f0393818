/* run/async_compile.h - asynchronous compile: programs are interpreted until a background thread
 * has compiled them (TC_STANCE_LATER). */
#ifndef TCI_RUN_ASYNC_COMPILE_H
#define TCI_RUN_ASYNC_COMPILE_H

#include "runtime_structs.h"

typedef enum tci_later_state {
    TCI_LATER_WAITING, /* for its compile, or for the end of it */
    TCI_LATER_READY,
    TCI_LATER_FAILED,
    TCI_LATER_CANCELLED
} tci_later_state;

/* State of a program's background compile. */
typedef struct tci_later {
    void (*free)(struct tci_later *l); /* the program goes: no caller waits for its code */
    tc_program *native; /* atomic; NULL until it is there: then runs are of this one */
    tc_program *quick;  /* native before, from a quick build: runs may still use it */
    int32_t state;      /* atomic: tci_later_state; changed under the room's lock */
    bool may_differ;    /* native code may have other bits */
    tc_status why;      /* FAILED: set before the state is, with its text */
    char text[1000];
    tc_program *program;       /* that is interpreted meanwhile, and has this */
    struct tci_later_job *job; /* that makes its code, or NULL */
    struct tci_later *next;    /* of the same job */
} tci_later;

/* The program that runs: its native form once that is there. */
static inline tc_program *tci_later_current(tc_program *f)
{
    if (TCI_LIKELY(!f->later)) {
        return f;
    }
    tc_program *native = __atomic_load_n(&f->later->native, __ATOMIC_ACQUIRE);
    return native ? native : f;
}

/* f, interpreted, was made of this request, which is not for the interpreter: its native code is
 * made in the background. A failure to begin is one of the compile. */
TCI_FN void tci_later_start(tc_program *f, const tci_request *r, const tc_options *o);
/* Until the compile has ended, or this many milliseconds (-1: any). False: it has not. */
TCI_FN bool tci_later_wait(tci_later *l, int64_t ms);
TCI_FN void tci_later_cancel(tci_later *l);
/* The last context or program is gone: the thread is joined if it has nothing to do. */
TCI_FN void tci_later_rest(void);
/* tc_shutdown's part: compiles under way are cancelled, and the thread is joined. */
TCI_FN void tci_later_shutdown(void);

#endif
