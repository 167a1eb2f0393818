/* api/specialization_trial.h - A/B timing of a fixed-shape program against the symbolic one, on the
 * inputs of a call. */
#ifndef TCI_API_SPECIALIZATION_TRIAL_H
#define TCI_API_SPECIALIZATION_TRIAL_H

#include "../run/runtime_structs.h"

#ifdef TC_DYNAMIC_SHAPES
/* True if a run of f changes nothing but its outputs, and concerns no other process: it may be
 * repeated. */
TCI_FN bool tci_hot_trial_allows(const tc_program *f);
/* Runs both on these inputs, into memory of its own. *speed: the time of the symbolic form over
 * that of the fixed one, the best round of each. False: a run failed, or there is no memory. */
TCI_FN bool tci_hot_trial(tc_program *symbolic, tc_program *fixed, const tc_bufs *inputs,
                          double *speed);
#endif

#endif
