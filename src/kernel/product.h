/* kernel/product.h - contractions as rows times columns, whatever their factors are, and which of
 * them the matrix units of warps take. */
#ifndef TCI_KERNEL_PRODUCT_H
#define TCI_KERNEL_PRODUCT_H

#include "ir.h"
#include "machine.h"

/* A factor, and the outer axes that it has and the other factor lacks, counted as one in row-major
 * order. */
typedef struct tci_product_axes {
    int inst;
    int n_axes, *axes;
    int64_t size;     /* of all axes */
} tci_product_axes;

typedef struct tci_product_sides {
    tci_product_axes rows, columns; /* the columns have the last axis */
    int64_t depth;                  /* of the contracted axes, counted as one */
} tci_product_sides;

/* A kernel whose first stage is a DOT of two factors and whose others are pointwise, of sizes that
 * are ints. */
TCI_FN bool tci_product_find(const tci_kernel *k, tci_product_sides *p);
/* The dtype of the factors by which a warp's matrix unit makes the sums: TC_F16, TC_BF16, or
 * TC_F32, which is rounded (TF32). False: by threads. */
TCI_FN bool tci_product_by_warps(const tci_kernel *k, const tci_machine *machine, tc_dtype *t);

#endif
