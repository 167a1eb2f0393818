/* onnx/export_state.h - state of an ONNX export, shared by its source files. */
#ifndef TCI_ONNX_EXPORT_STATE_H
#define TCI_ONNX_EXPORT_STATE_H

#include "export.h"
#include "find_conv.h"
#include "proto_write.h"

/* A loop that has left: the names of its results. */
typedef struct tci_ox_left_loop {
    const tci_node *repeat;
    const char **results;
} tci_ox_left_loop;

typedef struct tci_ox_out_graph {
    tci_ox_walk *walk;
    tci_ow w;
    int opset, most; /* so far, and what the caller allows */
    tci_ox_left_loop *loops;
    int n_loops, cap_loops;
} tci_ox_out_graph;

static inline const char *tci_ox_to_dtype(tci_ox_out_graph *g, const char *x, tc_dtype dtype)
{
    tci_ow_attr to = TCI_OW_INT("to", tci_onnx_type_of(dtype));
    return tci_ow_op(&g->w, "Cast", 1, &x, 1, &to);
}

/* A model is of the oldest opset that has what it needs. */
enum { TCI_OX_OPSET = 21, TCI_OX_OPSET_BITCAST = 26, TCI_OX_OPSET_LAST = 28 };

/* ---- export_scalar.c ---- */
/* Constants, 0-d. */
TCI_FN const char *tci_ox_number(tci_ox_out_graph *g, tc_dtype dtype, tci_value v);
TCI_FN const char *tci_ox_float(tci_ox_out_graph *g, tc_dtype dtype, double v);
/* The bits of a RANDOM: integers alone, so the values are tc's. */
TCI_FN const char *tci_ox_random_out(tci_ox_out_graph *g, const tci_node *n, const char *const *in);
/* A choice of two values of dtype d. */
TCI_FN const char *tci_ox_where_out(tci_ox_out_graph *g, tc_dtype d, const char *const *x);
/* A prim of a value column, or one of its words, over values of dtype d; NULL: it has no form. */
TCI_FN const char *tci_ox_word(tci_ox_out_graph *g, tc_dtype d, int word, const char *const *x);

/* ---- export_conv.c ---- */
/* True if it can leave as Conv: sizes that are not merged may be symbolic. */
TCI_FN bool tci_ox_conv_fits(const tci_ox_conv *c);
/* x with its axes in that order. */
TCI_FN const char *tci_ox_transposed(tci_ox_out_graph *g, int rank, const int64_t *axes,
                                     const char *x);
TCI_FN const char *tci_ox_conv_out(tci_ox_out_graph *g, const tci_ox_conv *c, const tci_node *n,
                                   const char *const *in);
/* NULL: it leaves as its expansion. */
TCI_FN const char *tci_ox_conv_transpose_out(tci_ox_out_graph *g, const tci_node *n,
                                             const char *const *in);
/* True if it can leave as MaxPool or AveragePool. */
TCI_FN bool tci_ox_pool_fits(const tci_ox_sliding *w, const tci_node *n);
TCI_FN const char *tci_ox_pool_out(tci_ox_out_graph *g, const tci_ox_sliding *w, const tci_node *n,
                                   const char *x);

/* ---- export_gather.c ---- */
/* A GATHER of whole slices: one list of indices, of any shape, along an axis of x. */
typedef struct tci_ox_select {
    tci_node *x, *list;
    int axis;
} tci_ox_select;
/* True if n is one, or a RESHAPE that puts the axes of the list in the place of x's. */
TCI_FN bool tci_ox_find_select(const tci_node *n, tci_ox_select *s);
/* in: the names of x and of the list. */
TCI_FN const char *tci_ox_select_out(tci_ox_out_graph *g, const tci_ox_select *s, const tci_node *n,
                                     const char *const *in);
TCI_FN const char *tci_ox_gather_out(tci_ox_out_graph *g, const tci_node *n, const char *const *in);

/* ---- export_contract.c ---- */
TCI_FN const char *tci_ox_contract_out(tci_ox_out_graph *g, const tci_node *n,
                                       const char *const *operands);

/* ---- export_loop.c ---- */
TCI_FN const char *tci_ox_repeat_out(tci_ox_out_graph *g, tci_node *n, const char *const *in);
TCI_FN const char *tci_ox_result_out(tci_ox_out_graph *g, const tci_node *n);

#endif
