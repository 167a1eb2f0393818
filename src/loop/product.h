/* loop/product.h - contractions on a block of threads: shared panels, tiles in registers. */
#ifndef TCI_LOOP_PRODUCT_H
#define TCI_LOOP_PRODUCT_H

#include "stage.h"

enum { TCI_PRODUCT_SIDE = 16, TCI_PRODUCT_THREADS = TCI_PRODUCT_SIDE * TCI_PRODUCT_SIDE };

/* One factor of the contraction, along the rows or along the columns of the result. */
typedef struct tci_product_side {
    int axis, inst;
    int64_t extent;   /* of a block's tile along the axis */
    int64_t size;     /* of the axis */
    bool along_depth; /* memory runs along the contracted axis rather than along this one */
} tci_product_side;

typedef struct tci_product {
    tci_product_side rows, columns;
    int64_t depth;    /* of the contracted axis */
} tci_product;

#ifdef TC_CUDA
/* False: not such a kernel, or too small for its tiles. */
TCI_FN bool tci_product_plan(const tci_kernel *k, int row_axis, int vec_axis, tci_product *p);
/* The tile with these numbers along the two axes; the other outer axes are bound. */
TCI_FN void tci_product_emit(tci_build *b, const tci_product *p, tci_lin row, tci_lin column);
#else
#define tci_product_plan(k, row_axis, vec_axis, p) false
#define tci_product_emit(b, p, row, column) ((void)(p))
#endif

#endif
