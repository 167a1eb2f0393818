/* loop/cycle_estimate.h - declares the static cycle estimate of a loop nest for a CPU: instruction
 * costs times trip counts. */
#ifndef TCI_LOOP_CYCLE_ESTIMATE_H
#define TCI_LOOP_CYCLE_ESTIMATE_H

#include "ir.h"

/* Nanoseconds of one thread for all tasks of l, from the nearest cache; 0: trip counts are not
 * known. */
TCI_FN double tci_loop_count_ns(tci_scratch *s, const tci_loop *l, const tc_machine *machine);

#endif
