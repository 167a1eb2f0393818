/* onnx/import.h - state of an ONNX import: values, operators, and functions shared by the
 * importers.
 *
 * A value is a tensor, or is known: its elements are numbers or symbolic sizes, computed while the
 * graph is built (onnx/constant_fold.c). A known value becomes a tensor when an operator needs one.
 * Nodes are processed in order (onnx/import.c); onnx/operator_table.h names the function of each
 * operator.
 *
 * Failures longjmp (tci_ox_fail, which names node and op); the functions own nothing outside the
 * scratch memory. They build graphs with the public calls of tc.h (onnx/user_call_site.h). */
#ifndef TCI_ONNX_IMPORT_H
#define TCI_ONNX_IMPORT_H

#include "../api/api_call.h"
#include "../api/program.h"
#include "../api/control_flow.h"
#include "../api/ops.h"
#include "onnx.h"
#include "proto_read.h"

/* An element: integers and bool in i, which may be symbolic; floats in f or, if den > 0, i / den.
 * */
typedef struct tci_ox_cell {
    int64_t i, den;
    double f;
} tci_ox_cell;
typedef struct tci_ox_known {
    tc_dtype dtype;
    int rank;
    const int64_t *sizes; /* numbers */
    int64_t n;
    tci_ox_cell *cells;
} tci_ox_known;

/* Inputs of the graph on which a value depends: bit i for input i, the last for all from
 * TCI_OX_INPUTS on and for states of loops, which have no value while the graph is built. */
enum { TCI_OX_INPUTS = 63, TCI_OX_FOLD_MOST = 4096, TCI_OX_LIST_MOST = 1 << 20, TCI_OX_RANK = 64 };
#define TCI_OX_UNKNOWABLE (UINT64_C(1) << TCI_OX_INPUTS)

typedef struct tci_ox_value {
    const char *name;
    tc_tensor t;
    bool is_made;                 /* t is set */
    const tci_ox_known *known;    /* or NULL */
    tci_onnx_tensor *initializer; /* or NULL */
    uint64_t depends;
    bool is_cut; /* only the first `count` elements along `axis` are valid */
    tc_tensor count;
    int axis;
    struct tci_ox_value *next; /* in its bucket */
} tci_ox_value;

/* Names of a graph, and those around it. */
typedef struct tci_ox_names {
    const struct tci_ox_names *around;
    tci_ox_value **buckets;
    uint32_t n_buckets, n;
} tci_ox_names;

/* A mapped file, counted: by the import, and by each leaf over it. */
typedef struct tci_ox_file {
    tci_owner owner; /* first */
    int32_t refs;
    char *map;
    int64_t bytes;
    const char *place; /* as the model names it; in the scratch */
    struct tci_ox_file *next;
} tci_ox_file;

struct tci_ox_op;
typedef struct tci_ox {
    tci_scratch *s;
    /* Builds a graph within the one under way. inputs: its first n inputs; results: its outputs. */
    void (*build)(const struct tci_ox_op *o, const tci_onnx_graph *g, tci_ox_value *inputs, int n,
                  tci_ox_value **results);
    tc_ctx *ctx;
    tc_site here;
    const tc_onnx_options *options;
    const char *path; /* of the model, or NULL: it is in memory */
    tci_ox_file *files;
    const tci_onnx_proto *proto;
    uint64_t offered, fixed; /* inputs whose value the caller told, and those that are constants */
    bool again;              /* `fixed` grew: the graph is built anew */
    const tci_ox_names *names;
    const tci_onnx_node *caller; /* of the function under way, or NULL */
    const tci_onnx_function *function;
    const tci_onnx_opset *opsets;
    int n_opsets;
    int depth; /* graphs and functions within each other */
    tc_tensor *parameters;
    int n_parameters, cap_parameters;
} tci_ox;

/* An operator under way. */
typedef struct tci_ox_op {
    tci_ox *m;
    const struct tci_ox_row *row;
    tc_site here;
    tc_ctx *ctx;
    tci_scratch *s;
    const tci_onnx_node *node;
    int64_t opset;
    tci_ox_value **in, **out; /* in[i] NULL: left out */
    int n_in, n_out;
} tci_ox_op;

TCI_FN void tci_ox_fail(const tci_ox_op *o, tc_status why, const char *format, ...)
    TCI_PRINTF(3, 4);
/* ---- operands ---- */
TCI_FN bool tci_ox_has(const tci_ox_op *o, int i);
TCI_FN tc_tensor tci_ox_in(const tci_ox_op *o, int i);    /* fails where it is left out */
TCI_FN tc_tensor tci_ox_maybe(const tci_ox_op *o, int i); /* TC_NONE */
TCI_FN tc_tensor tci_ox_tensor(const tci_ox_op *o, tci_ox_value *v);
TCI_FN void tci_ox_out(const tci_ox_op *o, int i, tc_tensor t);
TCI_FN void tci_ox_out_known(const tci_ox_op *o, int i, const tci_ox_known *k);
TCI_FN bool tci_ox_wants(const tci_ox_op *o, int i); /* output i is used */
/* Elements of operand i, which must be known: computed, or read of a constant. `what` it is for. */
TCI_FN const tci_ox_known *tci_ox_need(const tci_ox_op *o, int i, const char *what);
TCI_FN const int64_t *tci_ox_need_ints(const tci_ox_op *o, int i, const char *what, int *n);
TCI_FN int64_t tci_ox_need_int(const tci_ox_op *o, int i, const char *what);
TCI_FN double tci_ox_need_real(const tci_ox_op *o, int i, const char *what);
/* The same if it is known without asking for more; else NULL. */
TCI_FN const tci_ox_known *tci_ox_known_of(const tci_ox_op *o, tci_ox_value *v);
/* Whether the elements could be had by tci_ox_need. */
TCI_FN bool tci_ox_can_know(const tci_ox_op *o, tci_ox_value *v);
/* onnx/import_counted_axis.c: makes the operator if an operand is counted (is_cut) and it can pass
 * the count on. */
TCI_FN bool tci_ox_make_counted(tci_ox_op *o);
/* Output i with a count (0-d i64) along an axis: elements beyond it become 0. */
TCI_FN void tci_ox_out_counted(const tci_ox_op *o, int i, tc_tensor t, tc_tensor count, int axis);
/* ---- attributes ---- */
TCI_FN const tci_onnx_attr *tci_ox_attr(const tci_ox_op *o, const char *name);
TCI_FN int64_t tci_ox_int(const tci_ox_op *o, const char *name, int64_t otherwise);
TCI_FN double tci_ox_real(const tci_ox_op *o, const char *name, double otherwise);
TCI_FN const char *tci_ox_text(const tci_ox_op *o, const char *name, const char *otherwise);
TCI_FN const int64_t *tci_ox_ints(const tci_ox_op *o, const char *name, int *n); /* NULL */
/* Numbers of operand i or, before it was an operand, of an attribute; NULL: neither. */
TCI_FN const int64_t *tci_ox_list(const tci_ox_op *o, int i, const char *name, int *n);
TCI_FN const tci_onnx_graph *tci_ox_body(const tci_ox_op *o, const char *name);
TCI_FN tc_dtype tci_ox_dtype(const tci_ox_op *o, int64_t type);
/* ---- shapes ---- */
TCI_FN int tci_ox_axis(const tci_ox_op *o, int64_t axis, int rank);
TCI_FN const int64_t *tci_ox_sizes(const tci_ox_op *o, tc_tensor t, int *rank); /* in the scratch */
TCI_FN tc_tensor tci_ox_shape_as(const tci_ox_op *o, tc_tensor t, int rank, const int64_t *sizes);
TCI_FN tc_tensor tci_ox_move(const tci_ox_op *o, tc_tensor t, const int64_t *order);
static inline bool tci_ox_is_float(tc_dtype d)
{
    return d >= TC_F16 && d <= TC_F64;
}
/* 0, 1, ... n - 1 along one of `rank` axes, i64. */
TCI_FN tc_tensor tci_ox_places(const tci_ox_op *o, int64_t n, int rank, int axis);
static inline bool tci_ox_given(tc_tensor t)
{
    return !tci_is_none(t);
}

/* ---- known values: onnx/known_values.c, onnx/constant_fold.c ---- */
TCI_FN tci_ox_known *tci_ox_known_new(tci_scratch *s, tc_dtype dtype, int rank,
                                      const int64_t *sizes);
TCI_FN tci_ox_known *tci_ox_known_ints(tci_scratch *s, int n, const int64_t *items);
/* Dense little-endian elements. */
TCI_FN tci_ox_known *tci_ox_known_read(tci_scratch *s, tc_dtype dtype, int rank,
                                       const int64_t *sizes, const void *data);
TCI_FN tci_ox_cell tci_ox_read_cell(tc_dtype dtype, const char *at);
static inline bool tci_ox_cell_is_number(tci_ox_cell c)
{
    return tci_dim_is_known(c.i);
}
TCI_FN tc_tensor tci_ox_known_tensor(const tci_ox_op *o, const tci_ox_known *k);
/* Computes the outputs if all operands are known and the op is one of shape arithmetic. */
TCI_FN bool tci_ox_fold(tci_ox_op *o);

/* ---- names, files and bodies: onnx/import_helpers.c ---- */
TCI_FN void tci_ox_fail_tensor(const tci_ox_op *o, tc_tensor t); /* poisoned: with its text */
TCI_FN const tci_onnx_attr *tci_ox_find_attr(const tci_onnx_attr *list, int n, const char *name);
TCI_FN tci_ox_names tci_ox_names_new(tci_scratch *s, const tci_ox_names *around, int64_t expected);
TCI_FN tci_ox_value *tci_ox_find(const tci_ox_names *names, const char *name); /* NULL: none */
TCI_FN tci_ox_value *tci_ox_value_new(tci_scratch *s, const char *name);
TCI_FN void tci_ox_declare(const tci_ox_op *o, tci_ox_names *names, tci_ox_value *v);
/* Maps it and adds it to the import's files; place: as the model names it. */
TCI_FN tci_ox_file *tci_ox_file_open(tci_ox *m, const char *path, const char *place);
TCI_FN void tci_ox_file_release(tci_owner *owner);
/* A value by its name, in the graph under way or around it; NULL. */
TCI_FN tci_ox_value *tci_ox_lookup(const tci_ox_op *o, const char *name);
/* For functions that tc calls while it builds a body: runs `build`, catching what leaves. */
typedef void (*tci_ox_build)(tci_ox_op *o, void *user);
TCI_FN tc_status tci_ox_within(tci_ox_op *o, tci_ox_build build, void *user);
/* After a call with such a function failed: leaves as the body did, or with the call's error. */
TCI_FN void tci_ox_rethrow(const tci_ox_op *o, tc_status status);

#endif
