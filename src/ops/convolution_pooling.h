/* ops/convolution_pooling.h - declares the helpers shared by convolution, pooling and their
 * transposes over one to three spatial axes: batch-axis normalization, checks of options, and
 * sliding-window views. */
#ifndef TCI_OPS_CONVOLUTION_POOLING_H
#define TCI_OPS_CONVOLUTION_POOLING_H

#include "composite.h"

enum { TCI_IMAGE_AXES = 3, TCI_IMAGE_RANK = 3 + TCI_IMAGE_AXES }; /* batch, groups, channels */

/* x as [N, C, sizes of n axes]; one image of its own counts as a batch of one. */
typedef struct tci_image {
    int n;
    bool batched;
    tci_dim sizes[2 + TCI_IMAGE_AXES];
} tci_image;
TCI_FN bool tci_image_of(tci_graph *g, const tci_node *x, int n, tci_image *image);
/* r [N, C, ...] as a user gave x: without the batch axis if it had none. */
TCI_FN tci_node *tci_image_result(tci_graph *g, const tci_image *image, tci_node *r);

/* Numbers for n axes: those given, and `otherwise` where they are 0 or none are. What is negative,
 * or far too large, is refused as `name`. */
TCI_FN bool tci_window_fields(tci_graph *g, const char *name, int n, int64_t *v,
                              const int64_t *given, const int64_t *otherwise);
static const int64_t tci_window_ones[TCI_IMAGE_AXES] = {1, 1, 1};
static const int64_t tci_window_zeros[TCI_IMAGE_AXES] = {0, 0, 0};

/* x with its last n axes padded, and the kernel's appended: [..., positions, elements]. */
TCI_FN tci_node *tci_window_over(tci_graph *g, tci_node *x, int n, const int64_t *before,
                                 const tci_dim *after, tci_node *fill, const tci_dim *kernel,
                                 const int64_t *stride, const int64_t *dilation);

/* Fields of tc_conv for n axes. */
typedef struct tci_window_conv {
    int64_t stride[TCI_IMAGE_AXES], padding[TCI_IMAGE_AXES], dilation[TCI_IMAGE_AXES];
    int64_t after[TCI_IMAGE_AXES]; /* padding after the last element */
    int64_t more[TCI_IMAGE_AXES];  /* output padding */
    int64_t groups;
} tci_window_conv;
TCI_FN bool tci_window_conv_of(tci_graph *g, int n, const struct tc_conv *o, const tci_node *w,
                               tci_window_conv *c);
/* Checks x, the weight and the bias of a convolution, or of a transposed one. */
TCI_FN bool tci_window_conv_check(tci_graph *g, const tci_node *x, const tci_image *image,
                                  const tci_node *w, const tci_node *bias, int64_t groups,
                                  bool transposed);
/* [N, C, ...], or where groups are more than one [N, groups, C / groups, ...]. */
TCI_FN tci_node *tci_window_grouped(tci_graph *g, tci_node *x, int n, const tci_dim *sizes,
                                    int64_t groups);
/* The CONTRACT of windows over x [N, (groups), C / groups, ...] and w [O, C / groups, ...]: the sum
 * over channels and elements inside each group, [N, (groups), O / groups, positions]. */
TCI_FN tci_node *tci_window_contract(tci_graph *g, tci_node *windows, tci_node *w, int n,
                                     int64_t groups);
/* r [N, O, ...] in x's compute dtype with the bias, if there is one, in x's dtype. */
TCI_FN tci_node *tci_window_biased(tci_graph *g, tci_node *r, tci_node *bias, int n,
                                   tc_dtype dtype);

/* The fields of tc_pool for patches of two axes; stride 0 is 1. */
typedef struct tci_window_patch {
    int64_t kernel[2], stride[2], padding[2], dilation[2];
} tci_window_patch;
TCI_FN bool tci_window_patch_of(tci_graph *g, const struct tc_pool *o, tci_window_patch *p);

#endif
