/* onnx/find_conv.h - recognizes convolutions and pools in an exported graph: a CONTRACT or a
 * reduction of a WINDOW, described by kernel, stride, dilation and padding, as in ONNX and
 * StableHLO. */
#ifndef TCI_ONNX_FIND_CONV_H
#define TCI_ONNX_FIND_CONV_H

#include "../graph/contraction_descriptor.h"

enum { TCI_OX_SPATIAL = 3 };

/* Windows along n axes of x. Their padding is x's own where that has the fill asked for. */
typedef struct tci_ox_sliding {
    tci_node *x;
    int n;
    int axis[TCI_OX_SPATIAL];    /* of x */
    int element[TCI_OX_SPATIAL]; /* of the WINDOW: the position within the window */
    tci_dim kernel[TCI_OX_SPATIAL], stride[TCI_OX_SPATIAL], dilation[TCI_OX_SPATIAL];
    /* Elements of padding, negative ones cut; the last window ends with the padded axis. */
    tci_dim before[TCI_OX_SPATIAL], after[TCI_OX_SPATIAL];
} tci_ox_sliding;

/* A convolution. The axes of x that no window is along, those of f and those of the result are in
 * lists, in x's order: batch (x and the result), groups (all three), channels (x and f, summed),
 * filters (f and the result). Of a weight gradient the positions are summed and the elements are
 * the result: then stride and dilation are exchanged. */
typedef struct tci_ox_conv {
    tci_ox_sliding w;
    tci_node *f;
    int f_axis[TCI_OX_SPATIAL], out_axis[TCI_OX_SPATIAL];
    const tci_contract_axis_of **batch, **groups, **channels, **filters;
    int n_batch, n_groups, n_channels, n_filters;
    int which; /* operand of the CONTRACT with the windows: at[which] is of x, at[!which] of f */
} tci_ox_conv;

TCI_FN bool tci_ox_find_conv(tci_scratch *s, const tci_node *contract, tci_ox_conv *c);
/* A reduction over the elements of windows: of max where the padding is the least value, of the sum
 * where it is 0. */
TCI_FN bool tci_ox_find_pool(const tci_node *reduce, tci_ox_sliding *w);

#endif
