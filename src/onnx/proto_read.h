/* onnx/proto_read.h - an ONNX file as structs: the protobuf wire format, read without a library.
 *
 * In: untrusted bytes. Out: the model in scratch memory; names and data point into the scratch
 * memory or into the bytes. Invalid input longjmps (tci_scratch_fail) with TC_ERR_IO. Field numbers
 * are those of onnx.proto (github.com/onnx/onnx, IR version 13). */
#ifndef TCI_ONNX_PROTO_READ_H
#define TCI_ONNX_PROTO_READ_H

#include "../base/alloc.h"

struct tci_onnx_graph;

/* TensorProto. data: dense, little-endian; NULL with `place` set: in another file. */
typedef struct tci_onnx_tensor {
    const char *name, *place;
    int type; /* TensorProto.DataType */
    int rank;
    const int64_t *sizes;
    int64_t count, bytes;   /* bytes: of data */
    int64_t offset, length; /* in that file; length -1: to its end */
    const char *data;
} tci_onnx_tensor;

typedef enum tci_onnx_kind {
    TCI_ONNX_NOTHING,
    TCI_ONNX_FLOAT,
    TCI_ONNX_INT,
    TCI_ONNX_STRING,
    TCI_ONNX_TENSOR,
    TCI_ONNX_GRAPH,
    TCI_ONNX_FLOATS,
    TCI_ONNX_INTS,
    TCI_ONNX_STRINGS
} tci_onnx_kind;

typedef struct tci_onnx_attr {
    const char *name;
    const char *ref; /* attribute of the enclosing function that it stands for, or NULL */
    tci_onnx_kind kind;
    double f;
    int64_t i;
    const char *s;
    const tci_onnx_tensor *t;
    const struct tci_onnx_graph *g;
    int n; /* of the list */
    const double *floats;
    const int64_t *ints;
    const char *const *strings;
} tci_onnx_attr;

typedef struct tci_onnx_node {
    const char *name, *op, *domain;
    const char **in, **out; /* "": left out */
    tci_onnx_attr *attrs;
    int n_in, n_out, n_attrs;
    int cap_in, cap_out, cap_attrs;
    int number; /* in its graph */
} tci_onnx_node;

/* ValueInfoProto of a tensor. rank -1: not told. */
typedef struct tci_onnx_info {
    const char *name;
    int type, rank; /* type 0: no tensor */
    int64_t *sizes; /* -1: `params` has its name, or "" */
    const char **params;
} tci_onnx_info;

typedef struct tci_onnx_graph {
    const char *name;
    tci_onnx_node *nodes;
    int n_nodes, cap_nodes;
    tci_onnx_tensor *tensors;
    int n_tensors, cap_tensors;
    tci_onnx_info *inputs;
    int n_inputs, cap_inputs;
    tci_onnx_info *outputs;
    int n_outputs, cap_outputs;
    bool is_sparse; /* has a sparse initializer */
} tci_onnx_graph;

typedef struct tci_onnx_opset {
    const char *domain;
    int64_t version;
} tci_onnx_opset;

typedef struct tci_onnx_function {
    const char *name, *domain;
    const char **in, **out, **params; /* params: attributes without a default */
    tci_onnx_attr *defaults;
    tci_onnx_node *nodes;
    tci_onnx_opset *opsets;
    int n_in, n_out, n_params, n_defaults, n_nodes, n_opsets;
    int cap_in, cap_out, cap_params, cap_defaults, cap_nodes, cap_opsets;
} tci_onnx_function;

typedef struct tci_onnx_proto {
    int64_t ir;
    tci_onnx_graph *graph;
    tci_onnx_function *functions;
    int n_functions, cap_functions;
    tci_onnx_opset *opsets;
    int n_opsets, cap_opsets;
} tci_onnx_proto;

/* Bytes of an element of a TensorProto.DataType that tc has, and its dtype; TC_DTYPE_COUNT and 0
 * of others. */
TCI_FN tc_dtype tci_onnx_dtype(int64_t type);
TCI_FN int tci_onnx_type_of(tc_dtype dtype);         /* and back */
TCI_FN const char *tci_onnx_type_name(int64_t type); /* "FLOAT8E4M3FN" */
TCI_FN tci_onnx_proto *tci_onnx_parse(tci_scratch *s, const void *bytes, size_t n);

#endif
