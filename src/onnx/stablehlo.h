/* onnx/stablehlo.h - text of a StableHLO module being written (stablehlo.c, stablehlo_scalar.c).
 *
 * A value is its SSA name. Sizes are numbers everywhere: symbols have the values that the caller
 * gave (tci_hlo_size). */
#ifndef TCI_ONNX_STABLEHLO_H
#define TCI_ONNX_STABLEHLO_H

#include "export.h"

typedef struct tci_hlo {
    tci_ox_walk *walk;
    tci_str out;       /* statements so far */
    int n_values;
    tci_dim *symbols, *values; int n_symbols; /* symbolic sizes and what they are */
} tci_hlo;

/* The shape of the values of one elementwise computation. */
typedef struct tci_hlo_shape {
    int rank;
    const int64_t *sizes;
    const char *text; /* "2x3x", "" of rank 0 */
} tci_hlo_shape;

TCI_FN int64_t tci_hlo_size(const tci_hlo *h, tci_dim d);
TCI_FN tci_hlo_shape tci_hlo_shape_of(const tci_hlo *h, int rank, const tci_dim *sizes);
TCI_FN tci_hlo_shape tci_hlo_shape_known(const tci_hlo *h, int rank, const int64_t *sizes);
/* "tensor<2x3xf32>" */
TCI_FN const char *tci_hlo_type(const tci_hlo *h, tc_dtype dtype, const tci_hlo_shape *shape);
TCI_FN const char *tci_hlo_node_type(const tci_hlo *h, const tci_node *n);
/* "[1, 2]" */
TCI_FN const char *tci_hlo_list(const tci_hlo *h, int n, const int64_t *items);
/* A new value: its name, and "  %name = format...\n" is added. */
TCI_FN const char *tci_hlo_let(tci_hlo *h, const char *format, ...) TCI_PRINTF(2, 3);
TCI_FN const char *tci_hlo_name(tci_hlo *h);
/* A constant, the same in every element. */
TCI_FN const char *tci_hlo_splat(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, tci_value v);
TCI_FN const char *tci_hlo_float(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, double v);
TCI_FN const char *tci_hlo_whole(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, int64_t v);
/* Conversion as StableHLO has it, for values that the dtype holds. */
TCI_FN const char *tci_hlo_convert(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype from,
                                   tc_dtype to, const char *x);
TCI_FN const char *tci_hlo_binary(tci_hlo *h, const char *op, const tci_hlo_shape *shape,
                                  tc_dtype t, const char *a, const char *b);
/* how: "EQ", "LT", ... of operands of dtype t. */
TCI_FN const char *tci_hlo_compare(tci_hlo *h, const char *how, const tci_hlo_shape *shape,
                                   tc_dtype t, const char *a, const char *b);
TCI_FN const char *tci_hlo_select(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, const char *c,
                                  const char *a, const char *b);
/* x, of `from`, in a shape of more axes: axis i of x is axis axes[i] there. */
TCI_FN const char *tci_hlo_broadcast(tci_hlo *h, tc_dtype t, const tci_hlo_shape *from,
                                     const tci_hlo_shape *to, const int64_t *axes, const char *x);

/* ---- stablehlo_scalar.c ---- */
/* The value of an elementwise op, WHERE, CAST, BITCAST or RANDOM, with tc's meaning of every scalar
 * operation: the node is lowered as a kernel lowers it, and the instructions leave one by one. */
TCI_FN const char *tci_hlo_scalar_out(tci_hlo *h, tci_node *n, const char *const *in);

#endif
