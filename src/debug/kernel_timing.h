/* debug/kernel_timing.h - measures the time of individual kernels of a program, on memory of their
 * own. */
#ifndef TCI_DEBUG_KERNEL_TIMING_H
#define TCI_DEBUG_KERNEL_TIMING_H

#include "summary.h"

/* Sets ns of each row to measured times, in `ms` milliseconds for all together; a kernel that
 * cannot be run so (a user function, no memory, unknown sizes) gets 0. */
TCI_FN void tci_measure_rows(const tc_program *f, tci_summary_row *rows, int n, int ms);

#endif
