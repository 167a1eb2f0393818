/* loop/warps.h - contractions by the matrix units of warps: shared panels, sums in registers. */
#ifndef TCI_LOOP_WARPS_H
#define TCI_LOOP_WARPS_H

#include "form.h"

#endif
