/* loop/warps.h - contractions by the matrix units of warps: shared panels, sums in registers. */
#ifndef TCI_LOOP_WARPS_H
#define TCI_LOOP_WARPS_H

#include "form.h"

/* Where element i of a thread's part of 16 x 16 sums is, behind row lane / 4 and column
 * 2 (lane % 4), lane the thread's number in its warp. */
static inline int tci_warps_row(int i)
{
    return 8 * (i / 2 % 2);
}
static inline int tci_warps_column(int i)
{
    return 8 * (i / 4) + i % 2;
}

#endif
