/* kernel/window_overlap.h - declares the analysis of overlapping convolution windows: finds output
 * rows whose windows read the same input row. */
#ifndef TCI_KERNEL_WINDOW_OVERLAP_H
#define TCI_KERNEL_WINDOW_OVERLAP_H

#include "ir.h"

/* At element i of an inner axis the neighbour number j along an outer axis meets what is at
 * position j * row + i * element of an image. */
typedef struct tci_window_overlap {
    int row, element; /* > 0; any but 0. Row 0: no two neighbours meet anything */
} tci_window_overlap;

/* Of a sum of products in the order of their axes: of neighbours along outer axis `axis` and the
 * elements of inner axis `inner`, which is short, in a factor that knows outer axis `vec`. */
TCI_FN tci_window_overlap tci_window_overlap_find(const tci_kernel *k, int vec, int axis,
                                                  int inner);
/* True if the stage's last axis but one is such an inner axis, and the last one is not, in a
 * contraction one of whose operands has no outer axes of its own. */
TCI_FN bool tci_window_overlap_is_across(const tci_kernel *k, int vec);

#endif
