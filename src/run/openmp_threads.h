/* run/openmp_threads.h - threads of an OpenMP runtime instead of the worker pool. */
#ifndef TCI_RUN_OPENMP_THREADS_H
#define TCI_RUN_OPENMP_THREADS_H

#include "../api/types.h"
#include "../base/platform.h"

/* Calls body(arg) on the caller and on as many threads of its team as there are, and returns when
 * all have returned; body has to cope with any number of calls. `threads`: how many there is work
 * for. False: nothing is done, the caller has no team. */
TCI_FN bool tci_team_run(const tc_options *o, int threads, void (*body)(void *), void *arg);

#endif
