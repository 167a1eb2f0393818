/* loop/instruction_count.h - instruction count of a loop nest, as a time. */
#ifndef TCI_LOOP_INSTRUCTION_COUNT_H
#define TCI_LOOP_INSTRUCTION_COUNT_H

#include "ir.h"

/* Nanoseconds of one thread for all tasks of l, from the nearest cache; 0: trip counts are not
 * known. */
TCI_FN double tci_loop_count_ns(tci_scratch *s, const tci_loop *l, const tc_machine *machine);

#endif
