/* onnx/export_stablehlo.h - state of a StableHLO export, shared by its source files.
 *
 * A value is its SSA name. Sizes are numbers everywhere: symbols have the values that the caller
 * gave (tci_hlo_size). */
#ifndef TCI_ONNX_EXPORT_STABLEHLO_H
#define TCI_ONNX_EXPORT_STABLEHLO_H

#include "export.h"
#include "find_conv.h"

/* A loop that has left: the names of its results. */
typedef struct tci_hlo_loop {
    const tci_node *repeat;
    const char **results;
} tci_hlo_loop;

typedef struct tci_hlo {
    tci_ox_walk *walk;
    tci_str out; /* statements so far */
    int n_values;
    tci_dim *symbols, *values;
    int n_symbols; /* symbolic sizes and what they are */
    tci_hlo_loop *loops;
    int n_loops, cap_loops;
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

/* "f32"; "array<i64: 1, 2>" */
TCI_FN const char *tci_hlo_dtype(tc_dtype t);
TCI_FN const char *tci_hlo_array(const tci_hlo *h, int n, const int64_t *items);
/* n numbers of i64, in that shape. */
TCI_FN const char *tci_hlo_ints(tci_hlo *h, const tci_hlo_shape *shape, const int64_t *items,
                                int n);
TCI_FN const char *tci_hlo_reshape(tci_hlo *h, tc_dtype t, const tci_hlo_shape *from,
                                   const tci_hlo_shape *to, const char *x);
/* Axis i of the result is axis order[i] of x. */
TCI_FN const char *tci_hlo_transpose(tci_hlo *h, tc_dtype t, const tci_hlo_shape *from,
                                     const int64_t *order, const char *x);

TCI_FN const char *tci_hlo_join(tci_hlo *h, int axis, int n, const char *const *parts,
                                const char *const *types, const char *type);
/* A slice of x: of axis i the elements start[i], start[i] + step[i], ..., to->sizes[i] of them. */
TCI_FN const char *tci_hlo_slice(tci_hlo *h, tc_dtype t, const tci_hlo_shape *from,
                                 const tci_hlo_shape *to, const int64_t *start, const int64_t *step,
                                 const char *x);
/* before[i] elements of `fill`, 0-d, in front of axis i, and as many after it as `to` has room for;
 * negative numbers crop. */
TCI_FN const char *tci_hlo_pad(tci_hlo *h, tc_dtype t, const tci_hlo_shape *from,
                               const tci_hlo_shape *to, const int64_t *before, const char *fill,
                               const char *x);
/* Of a reduction row: the op that joins two values of dtype t, and what changes nothing. */
TCI_FN const char *tci_hlo_joins(int op, tc_dtype t);
TCI_FN tci_value tci_hlo_identity(int op, tc_dtype t);
/* True if a is sorted before b: the larger, or the smaller; a NaN first, or last. */
TCI_FN const char *tci_hlo_before(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, bool largest,
                                  bool nan_first, const char *a, const char *b);

/* ---- export_stablehlo_scalar.c ---- */
/* The value of an elementwise op, WHERE, CAST, BITCAST or RANDOM, with tc's meaning of every scalar
 * operation: the node is lowered as a kernel lowers it, and the instructions leave one by one. */
TCI_FN const char *tci_hlo_scalar_out(tci_hlo *h, tci_node *n, const char *const *in);
/* As tci_hlo_transpose and tci_hlo_reshape; x itself where nothing changes. */
TCI_FN const char *tci_hlo_arrange(tci_hlo *h, tc_dtype t, const tci_hlo_shape *from,
                                   const int64_t *order, const tci_hlo_shape *to, const char *x);

/* ---- export_stablehlo_conv.c ---- */
/* CONTRACT and reductions of windows: what they are written from (0: neither), and as what. */
TCI_FN int tci_hlo_conv_needs(tci_hlo *h, tci_node *n, tci_node *const **list);
TCI_FN const char *tci_hlo_conv_out(tci_hlo *h, const tci_ox_conv *c, const tci_node *n,
                                    const char *const *in);
TCI_FN const char *tci_hlo_pool_out(tci_hlo *h, const tci_ox_sliding *w, const tci_node *n,
                                    const char *x);
/* ---- export_stablehlo_index.c: of the ops with these names ---- */
TCI_FN const char *tci_hlo_gather_out(tci_hlo *h, const tci_node *n, const char *const *in);
TCI_FN const char *tci_hlo_scatter_out(tci_hlo *h, const tci_node *n, const char *const *in);
TCI_FN const char *tci_hlo_topk_out(tci_hlo *h, const tci_node *n, const char *x);
TCI_FN const char *tci_hlo_scan_out(tci_hlo *h, const tci_node *n, const char *x);
/* ---- stablehlo_repeat.c ---- */
TCI_FN const char *tci_hlo_repeat_out(tci_hlo *h, tci_node *n, const char *const *in);
TCI_FN const char *tci_hlo_result_out(tci_hlo *h, const tci_node *n);

#endif
