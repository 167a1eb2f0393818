/* compile/autotune.h - autotuning: schedules are measured in addition to the model
 * (tc_options.tune_ms). */
#ifndef TCI_COMPILE_AUTOTUNE_H
#define TCI_COMPILE_AUTOTUNE_H

#include "jit.h"

/* Measures the cheapest schedules of the kernels that are about to be compiled, the dearest kernels
 * first, until tune_ms are over, and sets `measured` and `measured_note` of those where it could.
 * The compiler is known. Whatever fails leaves the model's choice. Escapes when scratch runs
 * out. */
TCI_FN void tci_tune(tci_jit *j);

#endif
