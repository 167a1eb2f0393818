/* onnx/proto_write.h - an ONNX graph being written: nodes, initializers and names of values.
 *
 * In: operators with attributes. Out: protobuf messages in growing buffers. A name represents a
 * value; it is in scratch memory. */
#ifndef TCI_ONNX_PROTO_WRITE_H
#define TCI_ONNX_PROTO_WRITE_H

#include "../base/dim.h"
#include "proto_read.h"

/* An attribute: text, a list (n >= 0), one number (n: -1 integer, -2 float), or a graph (-3). */
typedef struct tci_ow_attr {
    const char *name;
    int n;
    const int64_t *ints;
    int64_t i;
    double f;
    const char *text;
    const tci_str *graph;
} tci_ow_attr;
#define TCI_OW_INT(name, v) {(name), -1, NULL, (v), 0, NULL, NULL}
#define TCI_OW_FLOAT(name, v) {(name), -2, NULL, 0, (v), NULL, NULL}
#define TCI_OW_INTS(name, n, v) {(name), (n), (v), 0, 0, NULL, NULL}
#define TCI_OW_TEXT(name, v) {(name), 0, NULL, 0, 0, (v), NULL}
#define TCI_OW_GRAPH(name, v) {(name), -3, NULL, 0, 0, NULL, (v)}

typedef struct tci_ow {
    tci_scratch *s;
    tci_str graph;        /* GraphProto so far: nodes and initializers */
    tci_str weights;      /* of an external file */
    const char *external; /* its name, or NULL: data is in the graph */
    int n_values;
} tci_ow;

TCI_FN void tci_ow_number(tci_str *to, int field, uint64_t v);
TCI_FN void tci_ow_text(tci_str *to, int field, const char *text);
TCI_FN void tci_ow_bytes(tci_str *to, int field, const void *bytes, size_t n);
/* A node with one result, whose name it returns. */
TCI_FN const char *tci_ow_op(tci_ow *w, const char *op, int n_in, const char *const *in,
                             int n_attrs, const tci_ow_attr *attrs);
/* The same with the result's name given. */
TCI_FN void tci_ow_node(tci_ow *w, const char *op, int n_in, const char *const *in, int n_out,
                        const char *const *out, int n_attrs, const tci_ow_attr *attrs);
TCI_FN const char *tci_ow_name(tci_ow *w);
/* An initializer; name NULL: a new one. data: dense, little-endian. */
TCI_FN const char *tci_ow_tensor(tci_ow *w, const char *name, tc_dtype dtype, int rank,
                                 const int64_t *sizes, const void *data);
TCI_FN const char *tci_ow_ints(tci_ow *w, int n, const int64_t *items); /* a list, i64 */
/* ValueInfoProto as a field of the graph: a symbolic size becomes a dim_param. */
TCI_FN void tci_ow_info(tci_ow *w, int field, const char *name, tc_dtype dtype, int rank,
                        const tci_dim *sizes);

#define TCI_OW(w, op, ...)                                                                         \
    tci_ow_op((w), (op), TCI_COUNT(((const char *const[]){__VA_ARGS__})),                          \
              (const char *const[]){__VA_ARGS__}, 0, NULL)

#endif
