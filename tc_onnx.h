/* tc_onnx.h - generated: edit the rooms under src/ and run make. SPDX-License-Identifier: MIT */
/* ---- src/tc_onnx.h ---- */
/* src/tc_onnx.h - amalgamation root of the optional header tc_onnx.h: import and export of ONNX
 * models, and export of StableHLO. Includes tc.h, which does not depend on it. The implementation
 * is compiled where TC_IMPLEMENTATION is defined, together with that of tc.h. */
#include "tc.h"

/* ---- src/onnx/onnx.h ---- */
/* onnx/onnx.h - public API of tc_onnx.h: import and export of ONNX models, and export of StableHLO
 * text. */
#ifndef TC_ONNX_ONNX_H
#define TC_ONNX_ONNX_H


#ifdef __cplusplus
extern "C" {
#endif

/* ---- import ----
 * tc_onnx_load(ctx, "net.onnx", &options, &model) reads an ONNX model (ai.onnx, opsets 1 to 28) and
 * builds its graph as tensors of ctx; from there everything of tc applies: tc_compile_fn, tc_grad,
 * tc_export_c. Weights are leaves over the mapped file where they are aligned, else copies;
 * external data is read from files in the model's directory. Shape arithmetic (Shape, Gather,
 * Concat, Reshape, ...) is computed while the graph is built, with symbolic sizes too, so that it
 * is not part of the program. docs/onnx.md lists the operators.
 *
 *     tc_onnx_model *model = NULL;
 *     if (tc_onnx_load(ctx, "net.onnx", NULL, &model) != TC_OK) puts(tc_error(ctx));
 *     tc_program *f = NULL;
 *     tc_compile_fn(TC_TENSORS_N(model->inputs, model->n_inputs),
 *                   TC_TENSORS_N(model->outputs, model->n_outputs), NULL, &f);
 *
 * Files may be untrusted: any bytes are either rejected or read as a graph. Nothing in them is
 * executed. The file must not be written to or truncated while its weights are in use. */

/* Known sizes or values of a graph input. */
typedef struct tc_onnx_input {
    const char *name;
    int rank;
    const int64_t *sizes; /* NULL: as the model has it. Numbers, or TC_DIM */
    /* The value that the input has in every run, n elements of its dtype in row-major order, or
     * NULL. It is used if a shape, an axis or a condition depends on the input, which is then a
     * constant of the graph and no longer an input; n is the product of `sizes`. */
    const void *value;
} tc_onnx_input;
/* A size that the model names, or leaves without a name ("?" is none): "x.2" is axis 2 of input x.
 * For example {"height", tc_dim_mul(TC_DIM("rows", 1, 64), 32)}: a multiple of 32, as strided
 * networks need. */
typedef struct tc_onnx_size {
    const char *name;
    int64_t size;
} tc_onnx_size;
/* Zero in every field: defaults. */
typedef struct tc_onnx_options {
    const tc_onnx_input *inputs; /* about some or all inputs */
    int n_inputs;
    const tc_onnx_size *sizes; /* for inputs that `inputs` does not list */
    int n_sizes;
    /* A size that neither the model nor a list specifies: TC_DIM(its name, 1, largest) under
     * TC_DYNAMIC_SHAPES. 0: 65536. Without TC_DYNAMIC_SHAPES it is an error,
     * which names the input. */
    int64_t largest;
    bool parameters; /* float initializers become parameters (tc_param), named as in the model */
} tc_onnx_options;

/* One block of memory; the tensors live as long as the scope in which they were made. */
typedef struct tc_onnx_model {
    int n_inputs, n_outputs, n_parameters;
    tc_tensor *inputs, *outputs, *parameters;
    const char *const *input_names, *const *output_names; /* in the order of the graph */
    /* counts[i]: TC_NONE, or, for an output whose size follows from values (NonZero, Compress,
     * Unique), how many of its elements along axes[i] are valid, 0-d i64; the rest is 0. */
    tc_tensor *counts;
    int *axes;
    int opset; /* of ai.onnx */
} tc_onnx_model;

/* On failure *model is NULL and tc_error(ctx) has the message, with file, node and op: TC_ERR_IO
 * (the file cannot be read, or is damaged), TC_ERR_UNSUPPORTED (an op, an attribute or a dtype that
 * tc does not have, or a shape that follows from an input without a value), TC_ERR_SHAPE,
 * TC_ERR_DTYPE and the other statuses of the ops (the model is wrong), TC_ERR_MEMORY. */
TC_API tc_status tc_onnx_load_at(tc_ctx *ctx, const char *path, const tc_onnx_options *options,
                                 tc_onnx_model **model, tc_site here);
#define tc_onnx_load(ctx, path, options, model)                                                    \
    tc_onnx_load_at((ctx), (path), (options), (model), TC_HERE)
/* The same of a model in memory, whose weights are copied. External data is TC_ERR_UNSUPPORTED. */
TC_API tc_status tc_onnx_load_memory_at(tc_ctx *ctx, const void *bytes, size_t n,
                                        const tc_onnx_options *options, tc_onnx_model **model,
                                        tc_site here);
#define tc_onnx_load_memory(ctx, bytes, n, options, model)                                         \
    tc_onnx_load_memory_at((ctx), (bytes), (n), (options), (model), TC_HERE)
/* NULL is ignored. The tensors stay valid. */
TC_API void tc_onnx_free(tc_onnx_model *model);
/* ---- export ----
 * tc_export_onnx(inputs, outputs, how, "net.onnx"), with the lists as tc_compile_fn takes them,
 * writes the graph as an ONNX model of opset 21 (26 where it has tc_bitcast): calls by the
 * operator of the same meaning (Softmax, LayerNormalization, MatMul, Conv, BatchNormalization,
 * Clip, ...), loops as Loop, all else by primitive operators. Captured memory is written with its
 * current value, parameters under their names; symbolic sizes become dim_params. Files are written
 * atomically.
 *
 *     tc_export_onnx(TC_TENSORS(x), TC_TENSORS(y), NULL, "net.onnx");
 *
 * TC_ERR_UNSUPPORTED: an op that ONNX cannot express (effects of tc_assign, custom ops, symbolic
 * sizes that are not those of an input), which the message names with its source location;
 * TC_ERR_ARGUMENT: no outputs, an input that is no tc_input, an unknown opset; TC_ERR_LIMIT: more
 * than 2 GiB in one file; TC_ERR_IO; TC_ERR_MEMORY. tc_error(ctx) has the message. */
typedef struct tc_onnx_export {
    const char *const *output_names; /* of each output; NULL, or a NULL: output0, output1, ... */
    bool external; /* weights of 1 KiB and more go to PATH.data, at multiples of 64 bytes */
    /* 21 to 28; 0 is 21. From 23 on tc_rms_norm is exported as RMSNormalization and
     * tc_scaled_dot_product_attention as Attention. The model has the oldest opset from 21 on that
     * has all its operators. */
    int opset;
} tc_onnx_export;
/* how NULL: defaults. */
TC_API tc_status tc_export_onnx_at(tc_tensors inputs, tc_tensors outputs, const tc_onnx_export *how,
                                   const char *path, tc_site here);
#define tc_export_onnx(...) tc_export_onnx_at(__VA_ARGS__, TC_HERE)

/* ---- StableHLO ----
 * tc_export_stablehlo(inputs, outputs, how, "net.mlir") writes the graph as the text of a StableHLO
 * module, which XLA compiles through a PJRT plugin (CPU, CUDA, ROCm, TPU) or jax. Its function
 * @main has the inputs and outputs in the order of the lists; dtypes are the same. Captured memory
 * and parameters become constants with their current values. Shapes are static: how->sizes gives
 * the value of each TC_DIM. Loops are exported as stablehlo.while, random numbers as tc's own
 * integer arithmetic, so with the same bits.
 *
 *     tc_export_stablehlo(TC_TENSORS(x), TC_TENSORS(y), NULL, "net.mlir");
 *
 * Results differ from tc's by the engine's rounding: order of sums, exp and other functions, FMA
 * with two roundings. An index out of range is an error of a run in tc; in StableHLO it is clamped
 * (gather) or ignored (scatter).
 *
 * TC_ERR_UNSUPPORTED: an op that StableHLO cannot express (effects of tc_assign, custom ops,
 * collectives), which the message names with its source location; TC_ERR_ARGUMENT: no outputs, an
 * input that is no tc_input, a size that is not given; TC_ERR_IO; TC_ERR_MEMORY. tc_error(ctx) has
 * the message. */
typedef struct tc_stablehlo_export {
    const tc_onnx_size *sizes; /* of each TC_DIM in the sizes of inputs, by its name */
    int n_sizes;
} tc_stablehlo_export;
/* how NULL: defaults. */
TC_API tc_status tc_export_stablehlo_at(tc_tensors inputs, tc_tensors outputs,
                                        const tc_stablehlo_export *how, const char *path,
                                        tc_site here);
#define tc_export_stablehlo(...) tc_export_stablehlo_at(__VA_ARGS__, TC_HERE)

/* The formats of graph-level backends (tc_graph_backend.format): ONNX of opset 21 with its weights
 * inside, for symbolic sizes too; StableHLO as text, of known sizes. */
TC_API const tc_graph_format *tc_onnx_format(void);
TC_API const tc_graph_format *tc_stablehlo_format(void);

/* Name of operator i that tc_onnx_load supports, counted from 0, and how it is imported: NULL past
 * the last one. */
TC_API const char *tc_onnx_op_name(int i);
TC_API const char *tc_onnx_op_how(int i);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif

#if defined(TC_IMPLEMENTATION) && !defined(TC_ONNX_IMPLEMENTED)
#define TC_ONNX_IMPLEMENTED

/* ---- src/base/impl_begin.h ---- */
/* base/impl_begin.h - opens the implementation section of an amalgamated header: strict floating
 * point, silenced warnings, POSIX declarations. Closed by base/impl_end.h.
 *
 * In: any compiler flags and warnings of the user's file. Out: a region with strict floating point,
 * without warnings, and with POSIX declared. The user's macros cannot collide: words in capitals
 * that the library uses begin with TC_ or TCI_, or are only pasted or stringized.
 *
 * Bit-identical results need strict floating point under all flags. GCC: the region has its own
 * optimize options. Clang: pragmas, which cannot undo -ffast-math, so that flag is refused.
 * Machines with excess precision are refused. Clang has no pragma for -fwrapv and
 * -fno-strict-aliasing, so the code relies on neither: signed sums do not overflow (the unit tests
 * are clean under Clang's UBSan; GCC's shows nothing, since -fwrapv turns its check off), and user
 * data of any type is moved by memcpy.
 *
 * The library is compiled again with each edit of the user's file, so compile time matters, and its
 * size is the user's. At -O0 the flags stay as they are. Otherwise it is optimised for size,
 * without those passes of GCC that take long and gain little; TCI_QUICK_BEGIN marks code that works
 * on elements and is optimised further. System headers (base/system_headers.h) come before the
 * change of options, so that their inline functions keep the user's options and can still be
 * inlined into the user's code. */

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Weverything"
#elif defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Waggregate-return"
#pragma GCC diagnostic ignored "-Warith-conversion"
#pragma GCC diagnostic ignored "-Wbad-function-cast"
#pragma GCC diagnostic ignored "-Wc++-compat"
#pragma GCC diagnostic ignored "-Wcast-align"
#pragma GCC diagnostic ignored "-Wcast-qual"
#pragma GCC diagnostic ignored "-Wclobbered"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wdate-time"
#pragma GCC diagnostic ignored "-Wdeclaration-after-statement"
#pragma GCC diagnostic ignored "-Wdouble-promotion"
#pragma GCC diagnostic ignored "-Wfloat-conversion"
#pragma GCC diagnostic ignored "-Wfloat-equal"
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-truncation"
#pragma GCC diagnostic ignored "-Winline"
#pragma GCC diagnostic ignored "-Wjump-misses-init"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wmissing-declarations"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wnull-dereference"
#pragma GCC diagnostic ignored "-Woverlength-strings"
#pragma GCC diagnostic ignored "-Wpadded"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wredundant-decls"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wsuggest-attribute=const"
#pragma GCC diagnostic ignored "-Wsuggest-attribute=noreturn"
#pragma GCC diagnostic ignored "-Wsuggest-attribute=pure"
#pragma GCC diagnostic ignored "-Wswitch-default"
#pragma GCC diagnostic ignored "-Wswitch-enum"
#pragma GCC diagnostic ignored "-Wtraditional-conversion"
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wunsuffixed-float-constants"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-macros"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wvla"
#endif


/* 16 and 32 widen only what is narrower than that many bits: _Float16, where a processor has it. */
#if defined(__FLT_EVAL_METHOD__) && __FLT_EVAL_METHOD__ != 0 && __FLT_EVAL_METHOD__ != 16 &&       \
    __FLT_EVAL_METHOD__ != 32
#error "tc: float and double must be evaluated in their own type (32-bit x86: -msse2 -mfpmath=sse)"
#endif

#if defined(__clang__)
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "tc: compile the file with TC_IMPLEMENTATION without -ffast-math and -ffinite-math-only"
#endif
#pragma float_control(precise, on, push)
#ifndef TCI_KEEP_OPTIMIZE
#pragma clang attribute push(__attribute__((minsize)), apply_to = function)
#endif
#pragma STDC FP_CONTRACT OFF

#elif defined(__GNUC__)
#pragma GCC push_options
#if defined(__OPTIMIZE__) && !defined(TCI_KEEP_OPTIMIZE)
#pragma GCC optimize("Os")
#pragma GCC optimize("no-tree-pre,no-code-hoisting,no-tree-vrp,no-tree-dominator-opts")
#pragma GCC optimize("no-tree-pta,no-ivopts,no-expensive-optimizations")
#pragma GCC optimize("no-schedule-insns2,no-rerun-cse-after-loop,no-cse-follow-jumps")
#pragma GCC optimize("no-ipa-cp,no-ipa-modref,no-ipa-sra,no-ipa-icf")
#pragma GCC optimize("no-tree-loop-optimize,no-tree-reassoc,no-tree-slsr,no-tree-sink,no-dse")
#pragma GCC optimize("no-if-conversion,no-if-conversion2,no-cprop-registers,no-shrink-wrap")
#endif
#pragma GCC optimize("fp-contract=off,no-fast-math,no-unsafe-math-optimizations")
#pragma GCC optimize("no-finite-math-only,no-associative-math,no-reciprocal-math,signed-zeros")
#pragma GCC optimize("trapping-math,no-cx-limited-range,wrapv,no-strict-aliasing")
#pragma GCC optimize("no-single-precision-constant")
#endif

/* ---- src/onnx/proto_read.c ---- */
/* onnx/proto_read.c - reads the wire format of ONNX files (onnx/proto_read.h).
 *
 * Design: a cursor over a message, each advance of which is checked against the end, and a function
 * for each message that takes the fields it knows and skips the rest. Lists of numbers are packed
 * or not (models before 2020), or mixed: both are appended. */
/* ---- src/onnx/proto_read.h ---- */
/* onnx/proto_read.h - an ONNX file as structs: the protobuf wire format, read without a library.
 *
 * In: untrusted bytes. Out: the model in scratch memory; names and data point into the scratch
 * memory or into the bytes. Invalid input longjmps (tci_scratch_fail) with TC_ERR_IO. Field numbers
 * are those of onnx.proto (github.com/onnx/onnx, IR version 13). */
#ifndef TCI_ONNX_PROTO_READ_H
#define TCI_ONNX_PROTO_READ_H


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


/* ---- src/onnx/proto_read.c, continued ---- */
#include <inttypes.h>
#include <string.h>


enum { TCI_PB_DEEPEST = 32, TCI_PB_RANK_MAX = 64 };

typedef struct tci_pb {
    const unsigned char *at, *end;
    tci_scratch *s;
    int depth; /* graphs within graphs */
} tci_pb;

/* A field; wire 0: number, 1 and 5: number of 8 and 4 bytes, 2: bytes. */
typedef struct tci_pb_field {
    uint64_t id, value;
    int wire;
    tci_pb bytes;
} tci_pb_field;

static void tci_pb_bad(const tci_pb *p, const char *what)
{
    tci_scratch_fail(p->s, TC_ERR_IO, "it is damaged, or no ONNX model: %s", what);
}

static uint64_t tci_pb_varint(tci_pb *p)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (p->at == p->end) {
            tci_pb_bad(p, "it ends within a number");
        }
        unsigned char c = *p->at++;
        v |= (uint64_t)(c & 0x7f) << shift;
        if (!(c & 0x80)) {
            return v;
        }
    }
    tci_pb_bad(p, "a number has more than 64 bits");
    return 0;
}

static uint64_t tci_pb_fixed(tci_pb *p, int bytes)
{
    uint64_t v = 0;
    if (p->end - p->at < bytes) {
        tci_pb_bad(p, "it ends within a number");
    }
    for (int i = 0; i < bytes; i++) {
        v |= (uint64_t)p->at[i] << 8 * i;
    }
    p->at += bytes;
    return v;
}

/* False at the end of the message. */
static bool tci_pb_next(tci_pb *p, tci_pb_field *f)
{
    if (p->at == p->end) {
        return false;
    }
    uint64_t key = tci_pb_varint(p);
    f->id = key >> 3;
    f->wire = (int)(key & 7);
    f->bytes = *p;
    if (f->id == 0) { /* protobuf has none: a range of zeros would be fields without end */
        tci_pb_bad(p, "a field has the number 0");
    } else if (f->wire == 0) {
        f->value = tci_pb_varint(p);
    } else if (f->wire == 1 || f->wire == 5) {
        f->value = tci_pb_fixed(p, f->wire == 1 ? 8 : 4);
    } else if (f->wire == 2) {
        f->value = tci_pb_varint(p);
        if (f->value > (uint64_t)(p->end - p->at)) {
            tci_pb_bad(p, "a part of it is longer than the whole");
        }
        f->bytes.at = p->at;
        f->bytes.end = p->at = p->at + f->value;
    } else {
        tci_pb_bad(p, "an unknown kind of field");
    }
    return true;
}

/* The field's bytes, which must be such. */
static tci_pb *tci_pb_bytes(tci_pb_field *f)
{
    if (f->wire != 2) {
        tci_pb_bad(&f->bytes, "a number where text or a message is expected");
    }
    return &f->bytes;
}

static const char *tci_pb_text(tci_pb_field *f)
{
    tci_pb *p = tci_pb_bytes(f);
    size_t n = (size_t)(p->end - p->at);
    char *text = tci_scratch_get(p->s, n + 1);
    memcpy(text, p->at, n);
    if (memchr(text, 0, n)) {
        tci_pb_bad(p, "a name with a NUL in it");
    }
    return text;
}

static int64_t tci_pb_int(tci_pb_field *f)
{
    if (f->wire == 2) {
        tci_pb_bad(&f->bytes, "text where a number is expected");
    }
    return (int64_t)f->value;
}

static double tci_pb_float(uint64_t bits, int wire)
{
    uint32_t narrow = (uint32_t)bits;
    float x;
    double y;
    memcpy(&x, &narrow, sizeof(x));
    memcpy(&y, &bits, sizeof(y));
    return wire == 1 ? y : (double)x;
}

/* Numbers of one field, packed or not, appended to a list of 64-bit words. width: 0 for varints,
 * else bytes of each. */
typedef struct tci_pb_list {
    uint64_t *items;
    int n, cap;
} tci_pb_list;

static void tci_pb_append(tci_pb_field *f, int width, tci_pb_list *list)
{
    tci_scratch *s = f->bytes.s;
    if (f->wire != 2) {
        TCI_PUSH(s, list->items, list->n, list->cap, f->value);
        return;
    }
    tci_pb p = f->bytes;
    while (p.at < p.end) {
        uint64_t v = width ? tci_pb_fixed(&p, width) : tci_pb_varint(&p);
        TCI_PUSH(s, list->items, list->n, list->cap, v);
    }
}

/* ---- TensorProto ---- */

/* X(number, name, dtype): TensorProto.DataType. */
#define TCI_ONNX_TYPES(X)                                                                          \
    X(1, "FLOAT", TC_F32)                                                                          \
    X(2, "UINT8", TC_U8)                                                                           \
    X(3, "INT8", TC_I8)                                                                            \
    X(4, "UINT16", TC_U16)                                                                         \
    X(5, "INT16", TC_I16)                                                                          \
    X(6, "INT32", TC_I32)                                                                          \
    X(7, "INT64", TC_I64)                                                                          \
    X(8, "STRING", TC_DTYPE_COUNT)                                                                 \
    X(9, "BOOL", TC_BOOL)                                                                          \
    X(10, "FLOAT16", TC_F16)                                                                       \
    X(11, "DOUBLE", TC_F64)                                                                        \
    X(12, "UINT32", TC_U32)                                                                        \
    X(13, "UINT64", TC_U64)                                                                        \
    X(14, "COMPLEX64", TC_DTYPE_COUNT)                                                             \
    X(15, "COMPLEX128", TC_DTYPE_COUNT)                                                            \
    X(16, "BFLOAT16", TC_BF16)                                                                     \
    X(17, "FLOAT8E4M3FN", TC_DTYPE_COUNT)                                                          \
    X(18, "FLOAT8E4M3FNUZ", TC_DTYPE_COUNT)                                                        \
    X(19, "FLOAT8E5M2", TC_DTYPE_COUNT)                                                            \
    X(20, "FLOAT8E5M2FNUZ", TC_DTYPE_COUNT)                                                        \
    X(21, "UINT4", TC_DTYPE_COUNT)                                                                 \
    X(22, "INT4", TC_DTYPE_COUNT)                                                                  \
    X(23, "FLOAT4E2M1", TC_DTYPE_COUNT)                                                            \
    X(24, "FLOAT8E8M0", TC_DTYPE_COUNT)                                                            \
    X(25, "UINT2", TC_DTYPE_COUNT)                                                                 \
    X(26, "INT2", TC_DTYPE_COUNT)

typedef struct tci_onnx_type {
    int number;
    const char *name;
    tc_dtype dtype;
} tci_onnx_type;
static const tci_onnx_type tci_onnx_types[] = {
#define TCI_ROW(number, name, dtype) {number, name, dtype},
    TCI_ONNX_TYPES(TCI_ROW)
#undef TCI_ROW
};

TCI_FN tc_dtype tci_onnx_dtype(int64_t type)
{
    return type >= 1 && type <= TCI_COUNT(tci_onnx_types) ? tci_onnx_types[type - 1].dtype
                                                          : TC_DTYPE_COUNT;
}

TCI_FN int tci_onnx_type_of(tc_dtype dtype)
{
    for (int i = 0; i < TCI_COUNT(tci_onnx_types); i++) {
        if (tci_onnx_types[i].dtype == dtype) {
            return tci_onnx_types[i].number;
        }
    }
    return 0;
}

TCI_FN const char *tci_onnx_type_name(int64_t type)
{
    return type >= 1 && type <= TCI_COUNT(tci_onnx_types) ? tci_onnx_types[type - 1].name
                                                          : "an unknown type";
}

/* The typed lists of old files as dense bytes: words narrowed to elements. */
static void tci_pb_dense(tci_pb *p, tci_onnx_tensor *t, const tci_pb_list *list)
{
    int width = tc_dtype_size(tci_onnx_dtype(t->type));
    char *data = tci_scratch_get(p->s, (size_t)list->n * (size_t)width + 1);
    for (int i = 0; i < list->n; i++) { /* little-endian */
        for (int b = 0; b < width; b++) {
            data[(int64_t)i * width + b] = (char)(list->items[i] >> 8 * b);
        }
    }
    t->data = data;
    t->bytes = (int64_t)list->n * width;
}

static void tci_pb_external(tci_pb *p, tci_onnx_tensor *t)
{
    const char *key = "", *value = "";
    tci_pb_field f;
    while (tci_pb_next(p, &f)) {
        if (f.id == 1) {
            key = tci_pb_text(&f);
        } else if (f.id == 2) {
            value = tci_pb_text(&f);
        }
    }
    if (!strcmp(key, "location")) {
        t->place = value;
    } else if (!strcmp(key, "offset") || !strcmp(key, "length")) {
        char *end;
        errno = 0;
        long long n = strtoll(value, &end, 10);
        if (*end || end == value || n < 0 || errno) {
            tci_pb_bad(p, "an offset or a length of external data is no number");
        }
        *(*key == 'o' ? &t->offset : &t->length) = n;
    }
}

/* Checks that the sizes and the data agree. */
static void tci_pb_tensor_check(tci_pb *p, tci_onnx_tensor *t, bool external)
{
    int width = tc_dtype_size(tci_onnx_dtype(t->type));
    t->count = 1;
    for (int i = 0; i < t->rank; i++) {
        if (t->sizes[i] < 0 || (t->sizes[i] && t->count > (INT64_C(1) << 48) / t->sizes[i])) {
            tci_pb_bad(p, "a tensor has a negative or too large a size");
        }
        t->count *= t->sizes[i];
    }
    if (!external) {
        t->place = NULL;
        if (width && t->bytes != t->count * width) {
            tci_scratch_fail(p->s, TC_ERR_IO,
                             "it is damaged: tensor %.60s has %" PRId64 " bytes, "
                             "its sizes need %" PRId64,
                             t->name, t->bytes, t->count * width);
        }
    } else if (!t->place) {
        tci_pb_bad(p, "external data without a location");
    }
}

static void tci_pb_tensor(tci_pb *p, tci_onnx_tensor *t)
{
    tci_pb_list sizes = {NULL, 0, 0}, data = {NULL, 0, 0};
    bool external = false;
    tci_pb_field f;
    *t = (tci_onnx_tensor){.name = "", .length = -1};
    while (tci_pb_next(p, &f)) {
        switch (f.id) {
        case 1: tci_pb_append(&f, 0, &sizes); break;
        case 2: t->type = (int)TCI_MIN(tci_pb_int(&f) & 0xffff, 0xffff); break;
        case 4: tci_pb_append(&f, 4, &data); break;  /* float_data */
        case 5:                                      /* int32_data */
        case 7:                                      /* int64_data */
        case 11: tci_pb_append(&f, 0, &data); break; /* uint64_data */
        case 10: tci_pb_append(&f, 8, &data); break; /* double_data */
        case 8: t->name = tci_pb_text(&f); break;
        case 9:
            t->data = (const char *)tci_pb_bytes(&f)->at;
            t->bytes = f.bytes.end - f.bytes.at;
            break;
        case 13: tci_pb_external(tci_pb_bytes(&f), t); break;
        case 14: external = tci_pb_int(&f) == 1; break;
        default: break;
        }
    }
    if (sizes.n > TCI_PB_RANK_MAX) {
        tci_pb_bad(p, "a tensor has more than 64 axes");
    }
    t->rank = sizes.n;
    t->sizes = (const int64_t *)(const void *)sizes.items;
    if (!t->data) {
        tci_pb_dense(p, t, &data);
    }
    tci_pb_tensor_check(p, t, external);
}

/* ---- AttributeProto, NodeProto ---- */

static void tci_pb_graph(tci_pb *p, tci_onnx_graph *g);

static void tci_pb_attr_value(tci_pb_field *f, tci_onnx_attr *a, tci_pb_list lists[2],
                              const char ***strings, int *n_strings, int *cap_strings)
{
    tci_scratch *s = f->bytes.s;
    switch (f->id) {
    case 2:
        a->kind = TCI_ONNX_FLOAT;
        a->f = tci_pb_float((uint64_t)tci_pb_int(f), f->wire);
        break;
    case 3:
        a->kind = TCI_ONNX_INT;
        a->i = tci_pb_int(f);
        break;
    case 4:
        a->kind = TCI_ONNX_STRING;
        a->s = tci_pb_text(f);
        break;
    case 5: {
        tci_onnx_tensor *t = TCI_NEW(s, tci_onnx_tensor);
        tci_pb_tensor(tci_pb_bytes(f), t);
        a->kind = TCI_ONNX_TENSOR;
        a->t = t;
        break;
    }
    case 6: {
        tci_onnx_graph *g = TCI_NEW(s, tci_onnx_graph);
        tci_pb_graph(tci_pb_bytes(f), g);
        a->kind = TCI_ONNX_GRAPH;
        a->g = g;
        break;
    }
    case 7: tci_pb_append(f, 4, &lists[0]); break;
    case 8: tci_pb_append(f, 0, &lists[1]); break;
    case 9: TCI_PUSH(s, *strings, *n_strings, *cap_strings, tci_pb_text(f)); break;
    default: break;
    }
}

/* Numbers of AttributeProto.AttributeType; an empty list has no field of its own. */
static const tci_onnx_kind tci_pb_kinds[] = {
    TCI_ONNX_NOTHING, TCI_ONNX_FLOAT,  TCI_ONNX_INT,  TCI_ONNX_STRING,  TCI_ONNX_TENSOR,
    TCI_ONNX_GRAPH,   TCI_ONNX_FLOATS, TCI_ONNX_INTS, TCI_ONNX_STRINGS,
};

static void tci_pb_attr(tci_pb *p, tci_onnx_attr *a)
{
    tci_pb_list lists[2] = {{NULL, 0, 0}, {NULL, 0, 0}};
    const char **strings = NULL;
    int n_strings = 0, cap_strings = 0;
    uint64_t type = 0;
    tci_pb_field f;
    *a = (tci_onnx_attr){.name = "", .s = ""};
    while (tci_pb_next(p, &f)) {
        if (f.id == 1) {
            a->name = tci_pb_text(&f);
        } else if (f.id == 20) {
            type = (uint64_t)tci_pb_int(&f);
        } else if (f.id == 21) {
            a->ref = tci_pb_text(&f);
        } else {
            tci_pb_attr_value(&f, a, lists, &strings, &n_strings, &cap_strings);
        }
    }
    double *floats = TCI_NEW_ARRAY(p->s, double, lists[0].n);
    for (int i = 0; i < lists[0].n; i++) {
        floats[i] = tci_pb_float(lists[0].items[i], 5);
    }
    if (lists[0].n) {
        a->kind = TCI_ONNX_FLOATS;
    } else if (lists[1].n) {
        a->kind = TCI_ONNX_INTS;
    } else if (n_strings) {
        a->kind = TCI_ONNX_STRINGS;
    }
    a->kind = type && type < (uint64_t)TCI_COUNT(tci_pb_kinds) ? tci_pb_kinds[type] : a->kind;
    bool broken = (a->kind == TCI_ONNX_TENSOR && !a->t) || (a->kind == TCI_ONNX_GRAPH && !a->g);
    if (broken && !a->ref) {
        tci_pb_bad(p, "an attribute without its value");
    }
    a->n = a->kind == TCI_ONNX_FLOATS ? lists[0].n
           : a->kind == TCI_ONNX_INTS ? lists[1].n
                                      : n_strings;
    a->floats = floats;
    a->ints = (const int64_t *)(const void *)lists[1].items;
    a->strings = strings;
}

static void tci_pb_node(tci_pb *p, tci_onnx_node *n, int number)
{
    tci_pb_field f;
    *n = (tci_onnx_node){.name = "", .op = "", .domain = "", .number = number};
    while (tci_pb_next(p, &f)) {
        switch (f.id) {
        case 1: TCI_PUSH(p->s, n->in, n->n_in, n->cap_in, tci_pb_text(&f)); break;
        case 2: TCI_PUSH(p->s, n->out, n->n_out, n->cap_out, tci_pb_text(&f)); break;
        case 3: n->name = tci_pb_text(&f); break;
        case 4: n->op = tci_pb_text(&f); break;
        case 5: {
            tci_onnx_attr a;
            tci_pb_attr(tci_pb_bytes(&f), &a);
            TCI_PUSH(p->s, n->attrs, n->n_attrs, n->cap_attrs, a);
            break;
        }
        case 7: n->domain = tci_pb_text(&f); break;
        default: break;
        }
    }
}

/* ---- ValueInfoProto ---- */

static void tci_pb_dim(tci_pb *p, int64_t *size, const char **param)
{
    tci_pb_field f;
    *size = -1;
    *param = "";
    while (tci_pb_next(p, &f)) {
        if (f.id == 1) {
            *size = tci_pb_int(&f);
        } else if (f.id == 2) {
            *param = tci_pb_text(&f);
        }
    }
    *size = *size < 0 ? -1 : *size;
}

static void tci_pb_shape(tci_pb *p, tci_onnx_info *v)
{
    int cap = 0, cap_params = 0, n = 0;
    tci_pb_field f;
    v->rank = 0;
    while (tci_pb_next(p, &f)) {
        if (f.id == 1) {
            int64_t size;
            const char *param;
            tci_pb_dim(tci_pb_bytes(&f), &size, &param);
            n = v->rank;
            TCI_PUSH(p->s, v->sizes, v->rank, cap, size);
            TCI_PUSH(p->s, v->params, n, cap_params, param);
        }
    }
    if (v->rank > TCI_PB_RANK_MAX) {
        tci_pb_bad(p, "a value has more than 64 axes");
    }
}

/* TypeProto.Tensor */
static void tci_pb_tensor_type(tci_pb *p, tci_onnx_info *v)
{
    tci_pb_field f;
    while (tci_pb_next(p, &f)) {
        if (f.id == 1) {
            v->type = (int)(tci_pb_int(&f) & 0xffff);
        } else if (f.id == 2) {
            tci_pb_shape(tci_pb_bytes(&f), v);
        }
    }
}

static void tci_pb_info(tci_pb *p, tci_onnx_info *v)
{
    tci_pb_field f, inner;
    *v = (tci_onnx_info){.name = "", .rank = -1};
    while (tci_pb_next(p, &f)) {
        if (f.id == 1) {
            v->name = tci_pb_text(&f);
        } else if (f.id == 2) {
            tci_pb *type = tci_pb_bytes(&f);
            while (tci_pb_next(type, &inner)) {
                if (inner.id == 1) {
                    tci_pb_tensor_type(tci_pb_bytes(&inner), v);
                }
            }
        }
    }
}

/* ---- GraphProto, FunctionProto, ModelProto ---- */

static void tci_pb_graph(tci_pb *p, tci_onnx_graph *g)
{
    tci_pb_field f;
    if (++p->depth > TCI_PB_DEEPEST) {
        tci_pb_bad(p, "graphs nest more than 32 deep");
    }
    *g = (tci_onnx_graph){.name = ""};
    while (tci_pb_next(p, &f)) {
        switch (f.id) {
        case 1: {
            tci_onnx_node n;
            tci_pb_node(tci_pb_bytes(&f), &n, g->n_nodes);
            TCI_PUSH(p->s, g->nodes, g->n_nodes, g->cap_nodes, n);
            break;
        }
        case 2: g->name = tci_pb_text(&f); break;
        case 5: {
            tci_onnx_tensor t;
            tci_pb_tensor(tci_pb_bytes(&f), &t);
            TCI_PUSH(p->s, g->tensors, g->n_tensors, g->cap_tensors, t);
            break;
        }
        case 11:
        case 12: {
            tci_onnx_info v;
            tci_pb_info(tci_pb_bytes(&f), &v);
            if (f.id == 11) {
                TCI_PUSH(p->s, g->inputs, g->n_inputs, g->cap_inputs, v);
            } else {
                TCI_PUSH(p->s, g->outputs, g->n_outputs, g->cap_outputs, v);
            }
            break;
        }
        case 15: g->is_sparse = true; break;
        default: break;
        }
    }
}

static tci_onnx_opset tci_pb_opset(tci_pb *p)
{
    tci_onnx_opset o = {"", 1};
    tci_pb_field f;
    while (tci_pb_next(p, &f)) {
        if (f.id == 1) {
            o.domain = tci_pb_text(&f);
        } else if (f.id == 2) {
            o.version = tci_pb_int(&f);
        }
    }
    return o;
}

static void tci_pb_function(tci_pb *p, tci_onnx_function *u)
{
    tci_scratch *s = p->s;
    tci_pb_field f;
    *u = (tci_onnx_function){.name = "", .domain = ""};
    while (tci_pb_next(p, &f)) {
        switch (f.id) {
        case 1: u->name = tci_pb_text(&f); break;
        case 4: TCI_PUSH(s, u->in, u->n_in, u->cap_in, tci_pb_text(&f)); break;
        case 5: TCI_PUSH(s, u->out, u->n_out, u->cap_out, tci_pb_text(&f)); break;
        case 6: TCI_PUSH(s, u->params, u->n_params, u->cap_params, tci_pb_text(&f)); break;
        case 7: {
            tci_onnx_node n;
            tci_pb_node(tci_pb_bytes(&f), &n, u->n_nodes);
            TCI_PUSH(s, u->nodes, u->n_nodes, u->cap_nodes, n);
            break;
        }
        case 9:
            TCI_PUSH(s, u->opsets, u->n_opsets, u->cap_opsets, tci_pb_opset(tci_pb_bytes(&f)));
            break;
        case 10: u->domain = tci_pb_text(&f); break;
        case 11: {
            tci_onnx_attr a;
            tci_pb_attr(tci_pb_bytes(&f), &a);
            TCI_PUSH(s, u->defaults, u->n_defaults, u->cap_defaults, a);
            break;
        }
        default: break;
        }
    }
}

TCI_FN tci_onnx_proto *tci_onnx_parse(tci_scratch *s, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    tci_pb p = {at, at + n, s, 0};
    tci_onnx_proto *m = TCI_NEW(s, tci_onnx_proto);
    tci_pb_field f;
    while (tci_pb_next(&p, &f)) {
        if (f.id == 1) {
            m->ir = tci_pb_int(&f);
        } else if (f.id == 7) {
            m->graph = TCI_NEW(s, tci_onnx_graph);
            tci_pb_graph(tci_pb_bytes(&f), m->graph);
        } else if (f.id == 8) {
            TCI_PUSH(s, m->opsets, m->n_opsets, m->cap_opsets, tci_pb_opset(tci_pb_bytes(&f)));
        } else if (f.id == 25) {
            tci_onnx_function u;
            tci_pb_function(tci_pb_bytes(&f), &u);
            TCI_PUSH(s, m->functions, m->n_functions, m->cap_functions, u);
        }
    }
    if (!m->graph) {
        tci_pb_bad(&p, "it has no graph");
    }
    return m;
}
/* ---- src/onnx/known_values.c ---- */
/* onnx/known_values.c - values known while an ONNX graph is imported: small arrays of numbers and
 * symbolic sizes, and their conversion to tensors. */
/* ---- src/onnx/import.h ---- */
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
/* ---- src/onnx/user_call_site.h ---- */
/* onnx/user_call_site.h - redefines TC_HERE in onnx/, so that the tensors and errors that an import
 * makes carry the source location of the user's call (tc_onnx_load). Included only by .c files of
 * onnx/; a variable `o` (tci_ox_op) must be in scope. src/tc_onnx.h restores TC_HERE. */
#undef TC_HERE
#define TC_HERE (o->here)

/* ---- src/onnx/known_values.c, continued ---- */
#include <math.h>
#include <string.h>

TCI_FN tci_ox_known *tci_ox_known_new(tci_scratch *s, tc_dtype dtype, int rank,
                                      const int64_t *sizes)
{
    tci_ox_known *k = TCI_NEW(s, tci_ox_known);
    k->dtype = dtype;
    k->rank = rank;
    k->sizes = tci_scratch_copy(s, sizes, sizeof(*sizes) * (size_t)rank);
    k->n = 1;
    for (int i = 0; i < rank; i++) {
        k->n *= sizes[i];
    }
    k->cells = TCI_NEW_ARRAY(s, tci_ox_cell, k->n);
    return k;
}

TCI_FN tci_ox_known *tci_ox_known_ints(tci_scratch *s, int n, const int64_t *items)
{
    tci_ox_known *k = tci_ox_known_new(s, TC_I64, 1, (const int64_t[]){n});
    for (int i = 0; i < n; i++) {
        k->cells[i].i = items[i];
    }
    return k;
}

TCI_FN tci_ox_cell tci_ox_read_cell(tc_dtype dtype, const char *at)
{
    tci_ox_cell c = {0, 0, 0.0};
    uint16_t half;
    float x;
    memcpy(&half, at, tc_dtype_size(dtype) >= 2 ? 2 : 0);
    switch (dtype) {
    case TC_BOOL: c.i = *at != 0; break;
    case TC_U8: c.i = (unsigned char)*at; break;
    case TC_I8: c.i = (signed char)*at; break;
    case TC_U16: c.i = half; break;
    case TC_I16: c.i = (int16_t)half; break;
    case TC_U32: {
        uint32_t v;
        memcpy(&v, at, 4);
        c.i = v;
        break;
    }
    case TC_I32: {
        int32_t v;
        memcpy(&v, at, 4);
        c.i = v;
        break;
    }
    case TC_U64:
    case TC_I64: memcpy(&c.i, at, 8); break;
    case TC_F16: c.f = (double)tci_f16_bits_to_f32(half); break;
    case TC_BF16: {
        uint32_t bits = (uint32_t)half << 16;
        memcpy(&x, &bits, 4);
        c.f = (double)x;
        break;
    }
    case TC_F32:
        memcpy(&x, at, 4);
        c.f = (double)x;
        break;
    case TC_F64: memcpy(&c.f, at, 8); break;
    default: break;
    }
    return c;
}

TCI_FN tci_ox_known *tci_ox_known_read(tci_scratch *s, tc_dtype dtype, int rank,
                                       const int64_t *sizes, const void *data)
{
    tci_ox_known *k = tci_ox_known_new(s, dtype, rank, sizes);
    for (int64_t i = 0; i < k->n; i++) {
        k->cells[i] = tci_ox_read_cell(dtype, (const char *)data + i * tc_dtype_size(dtype));
    }
    return k;
}

/* ---- as tensors ---- */

static bool tci_ox_is_uniform(const tci_ox_known *k)
{
    for (int64_t i = 1; i < k->n; i++) {
        if (memcmp(&k->cells[i], &k->cells[0], sizeof(k->cells[0]))) {
            return false;
        }
    }
    return k->n > 0;
}

/* One element, 0-d. */
static tc_tensor tci_ox_cell_tensor(const tci_ox_op *o, tc_dtype dtype, tci_ox_cell c)
{
    if (!tci_ox_is_float(dtype)) {
        return tc_cast(tc_full(o->ctx, c.i, TC_I64), dtype);
    }
    if (c.den) {
        return tc_cast(tc_div(tc_cast(tc_full(o->ctx, c.i, TC_I64), TC_F64), (double)c.den), dtype);
    }
    return tc_full(o->ctx, c.f, dtype);
}

TCI_FN tc_tensor tci_ox_known_tensor(const tci_ox_op *o, const tci_ox_known *k)
{
    bool floats = tci_ox_is_float(k->dtype), numbers = true;
    for (int64_t i = 0; i < k->n; i++) {
        numbers = numbers && tci_ox_cell_is_number(k->cells[i]) && !k->cells[i].den;
    }
    if (tci_ox_is_uniform(k)) {
        tc_tensor one = tci_ox_cell_tensor(o, k->dtype, k->cells[0]);
        return k->rank ? tc_expand_at(one, k->rank, k->sizes, o->here) : one;
    }
    if (numbers) {
        int64_t *words = TCI_NEW_ARRAY(o->s, int64_t, k->n + 1);
        for (int64_t i = 0; i < k->n; i++) {
            if (floats) {
                memcpy(&words[i], &k->cells[i].f, 8);
            } else {
                words[i] = k->cells[i].i;
            }
        }
        return tc_cast(tc_copy_in_at(o->ctx, words, floats ? TC_F64 : TC_I64, k->rank, k->sizes,
                                     NULL, o->here),
                       k->dtype);
    }
    tc_tensor *items = TCI_NEW_ARRAY(o->s, tc_tensor, k->n);
    for (int64_t i = 0; i < k->n; i++) {
        items[i] = tci_ox_cell_tensor(o, k->dtype, k->cells[i]);
    }
    return tc_reshape_at(tc_stack(TC_TENSORS_N(items, (int)k->n), 0), k->rank, k->sizes, o->here);
}
/* ---- src/onnx/import_helpers.c ---- */
/* onnx/import_helpers.c - helpers of the ONNX importers: operands, attributes, shapes, weights in
 * files, and bodies of subgraphs.
 *
 * Calls go one way: known_values.c, this file, constant_fold.c and the operators, the table of
 * operator_table.c, import.c. An importer that builds a subgraph does so through tci_ox.build. */

#include <inttypes.h>
#include <string.h>


/* ---- failures ---- */

TCI_FN void tci_ox_fail(const tci_ox_op *o, tc_status why, const char *format, ...)
{
    char text[200];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (o->node) {
        tci_scratch_fail(o->s, why, "node %d %.40s%s(%.30s): %s", o->node->number, o->node->name,
                         *o->node->name ? " " : "", o->node->op, text);
    }
    tci_scratch_fail(o->s, why, "%s", text);
}

/* The text of a poisoned tensor, from the name of the call on. */
TCI_FN void tci_ox_fail_tensor(const tci_ox_op *o, tc_tensor t)
{
    const char *text = tc_error(t), *call = strstr(text, "tc_");
    tci_ox_fail(o, tc_status_of(t), "%s", call ? call : text);
}

/* ---- names ---- */

static uint32_t tci_ox_hash(const char *name)
{
    uint32_t h = 2166136261u;
    for (; *name; name++) {
        h = (h ^ (unsigned char)*name) * 16777619u;
    }
    return h;
}

TCI_FN tci_ox_value *tci_ox_find(const tci_ox_names *names, const char *name)
{
    uint32_t h = tci_ox_hash(name);
    for (; names; names = names->around) {
        for (tci_ox_value *v = names->buckets[h % names->n_buckets]; v; v = v->next) {
            if (!strcmp(v->name, name)) {
                return v;
            }
        }
    }
    return NULL;
}

TCI_FN tci_ox_value *tci_ox_lookup(const tci_ox_op *o, const char *name)
{
    return o->m->names ? tci_ox_find(o->m->names, name) : NULL;
}

TCI_FN tci_ox_names tci_ox_names_new(tci_scratch *s, const tci_ox_names *around, int64_t expected)
{
    tci_ox_names names = {.around = around, .n_buckets = (uint32_t)(expected * 2 + 16)};
    names.buckets = TCI_NEW_ARRAY(s, tci_ox_value *, names.n_buckets);
    return names;
}

TCI_FN void tci_ox_declare(const tci_ox_op *o, tci_ox_names *names, tci_ox_value *v)
{
    uint32_t at = tci_ox_hash(v->name) % names->n_buckets;
    for (tci_ox_value *w = names->buckets[at]; w; w = w->next) {
        if (!strcmp(v->name, w->name)) {
            tci_ox_fail(o, TC_ERR_IO, "%.60s is given twice", v->name);
        }
    }
    v->next = names->buckets[at];
    names->buckets[at] = v;
}

TCI_FN tci_ox_value *tci_ox_value_new(tci_scratch *s, const char *name)
{
    tci_ox_value *v = TCI_NEW(s, tci_ox_value);
    v->name = name;
    v->t = v->count = TC_NONE;
    return v;
}

/* ---- files ---- */

TCI_FN void tci_ox_file_release(tci_owner *owner)
{
    tci_ox_file *f = (tci_ox_file *)(void *)owner;
    if (__atomic_sub_fetch(&f->refs, 1, __ATOMIC_ACQ_REL) == 0) {
        munmap(f->map, (size_t)f->bytes);
        tci_heap_free(f);
    }
}

/* Maps it and adds it to the import's files. */
TCI_FN tci_ox_file *tci_ox_file_open(tci_ox *m, const char *path, const char *place)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool is = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0;
    const char *why = fd < 0 ? strerror(errno) : "it is empty, or no regular file";
    void *map = is ? mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    why = is && map == MAP_FAILED ? strerror(errno) : why;
    if (fd >= 0) {
        close(fd);
    }
    if (map == MAP_FAILED) {
        tci_scratch_fail(m->s, TC_ERR_IO, "%.80s cannot be read: %s", place, why);
    }
    tci_ox_file *f = tci_heap_get(sizeof(*f));
    if (!f) {
        munmap(map, (size_t)st.st_size);
        tci_scratch_fail(m->s, TC_ERR_MEMORY, "out of memory");
    }
    *f = (tci_ox_file){.owner = {tci_ox_file_release},
                       .refs = 1,
                       .map = map,
                       .bytes = (int64_t)st.st_size,
                       .place = place,
                       .next = m->files};
    m->files = f;
    return f;
}

/* External data: a file next to the model, never outside of its directory. */
static const tci_ox_file *tci_ox_external(const tci_ox_op *o, const tci_onnx_tensor *t)
{
    tci_ox *m = o->m;
    for (const tci_ox_file *f = m->files; f; f = f->next) {
        if (!strcmp(f->place, t->place)) {
            return f;
        }
    }
    if (!m->path) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED,
                    "tensor %.40s is in the file %.40s: a model in memory "
                    "has none (tc_onnx_load reads it)",
                    t->name, t->place);
    }
    if (*t->place == '/' || !strcmp(t->place, "..") || !strncmp(t->place, "../", 3) ||
        strstr(t->place, "/../")) {
        tci_ox_fail(o, TC_ERR_IO, "tensor %.40s is in %.60s, outside of the model's directory",
                    t->name, t->place);
    }
    const char *slash = strrchr(m->path, '/');
    int n = slash ? (int)(slash - m->path) + 1 : 0;
    return tci_ox_file_open(m, tci_scratch_printf(o->s, "%.*s%s", n, m->path, t->place), t->place);
}

/* Where the elements are; *file NULL: not in a file that can be borrowed from. */
static const char *tci_ox_data(const tci_ox_op *o, const tci_onnx_tensor *t,
                               const tci_ox_file **file)
{
    *file = NULL;
    if (t->place) {
        const tci_ox_file *f = tci_ox_external(o, t);
        int64_t bytes = t->count * tc_dtype_size(tci_onnx_dtype(t->type));
        if (t->offset > f->bytes || bytes > f->bytes - t->offset ||
            (t->length >= 0 && t->length != bytes)) {
            tci_ox_fail(o, TC_ERR_IO,
                        "tensor %.40s needs %" PRId64 " bytes from %" PRId64 " on of "
                        "%.40s, which has %" PRId64,
                        t->name, bytes, t->offset, t->place, f->bytes);
        }
        *file = f;
        return f->map + t->offset;
    }
    for (const tci_ox_file *f = o->m->files; f; f = f->next) {
        if (t->data >= f->map && t->data < f->map + f->bytes) {
            *file = f;
        }
    }
    return t->data;
}

/* ---- values ---- */

TCI_FN tc_dtype tci_ox_dtype(const tci_ox_op *o, int64_t type)
{
    tc_dtype d = tci_onnx_dtype(type);
    if (d == TC_DTYPE_COUNT) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "dtype %s is not supported", tci_onnx_type_name(type));
    }
    return d;
}

static tc_tensor tci_ox_borrow(const tci_ox_op *o, const tci_onnx_tensor *t, tc_dtype dtype,
                               const char *data, const tci_ox_file *file)
{
    tci_frame f = tci_frame_on(o->ctx, "tc_onnx_load", o->here);
    tci_ox_file *owner = (tci_ox_file *)(uintptr_t)file;
    __atomic_add_fetch(&owner->refs, 1, __ATOMIC_RELAXED);
    tci_node *x = f.failed
                      ? NULL
                      : tci_leaf_borrow(&f, data, dtype, t->rank, t->sizes, NULL, &owner->owner);
    if (!x) {
        tci_ox_file_release(&owner->owner);
    }
    return tci_frame_end(&f, x);
}

static tc_tensor tci_ox_copy(const tci_ox_op *o, const tci_onnx_tensor *t, tc_dtype dtype,
                             const char *data)
{
    int64_t bytes = t->count * tc_dtype_size(dtype);
    char *copy = tci_scratch_get(o->s, (size_t)bytes + 1); /* aligned */
    if (bytes) {
        memcpy(copy, data, (size_t)bytes);
    }
    for (int64_t i = 0; dtype == TC_BOOL && i < bytes; i++) {
        copy[i] = copy[i] != 0;
    }
    return tc_copy_in_at(o->ctx, copy, dtype, t->rank, t->sizes, NULL, o->here);
}

static tc_tensor tci_ox_parameter(const tci_ox_op *o, const tci_onnx_tensor *t, tc_dtype dtype,
                                  const char *data)
{
    tci_ox *m = o->m;
    int64_t *words = TCI_NEW_ARRAY(o->s, int64_t, t->rank + 1);
    words[0] = dtype;
    memcpy(words + 1, t->sizes, sizeof(*words) * (size_t)t->rank);
    char *copy = tci_scratch_get(o->s, (size_t)(t->count * tc_dtype_size(dtype)) + 1);
    memcpy(copy, data, (size_t)(t->count * tc_dtype_size(dtype)));
    tc_tensor p = tc_named(tc_param_at(o->ctx, copy, t->rank + 1, words, o->here), t->name);
    TCI_PUSH(m->s, m->parameters, m->n_parameters, m->cap_parameters, p);
    return p;
}

/* A leaf for the elements of a TensorProto. */
static tc_tensor tci_ox_leaf(const tci_ox_op *o, const tci_onnx_tensor *t, bool is_initializer)
{
    tc_dtype dtype = tci_ox_dtype(o, t->type);
    const tci_ox_file *file;
    const char *data = tci_ox_data(o, t, &file);
    if (is_initializer && o->m->options->parameters && tci_ox_is_float(dtype) && t->count > 1) {
        return tci_ox_parameter(o, t, dtype, data);
    }
    if (t->count <= 1) {
        return tci_ox_known_tensor(o, tci_ox_known_read(o->s, dtype, t->rank, t->sizes, data));
    }
    if (file && dtype != TC_BOOL && tci_dtype_is_aligned(dtype, data)) {
        return tci_ox_borrow(o, t, dtype, data, file);
    }
    return tci_ox_copy(o, t, dtype, data);
}

TCI_FN tc_tensor tci_ox_tensor(const tci_ox_op *o, tci_ox_value *v)
{
    if (v->is_cut) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED,
                    "%.60s has a size that depends on values: expected elementwise ops, movement "
                    "of other axes, a gather at it or a sum over them, or an output of the graph",
                    v->name);
    }
    if (!v->is_made) {
        if (v->known) {
            v->t = tci_ox_known_tensor(o, v->known);
        } else if (v->initializer) {
            v->t = tci_ox_leaf(o, v->initializer, true);
        } else {
            tci_ox_fail(o, TC_ERR_INTERNAL, "%.60s has no value", v->name);
        }
        v->is_made = true;
        if (tc_status_of(v->t) != TC_OK) {
            tci_ox_fail_tensor(o, v->t);
        }
    }
    return v->t;
}

TCI_FN bool tci_ox_has(const tci_ox_op *o, int i)
{
    return i < o->n_in && o->in[i];
}

TCI_FN tc_tensor tci_ox_in(const tci_ox_op *o, int i)
{
    if (!tci_ox_has(o, i)) {
        tci_ox_fail(o, TC_ERR_IO, "operand %d is left out", i);
    }
    return tci_ox_tensor(o, o->in[i]);
}

TCI_FN tc_tensor tci_ox_maybe(const tci_ox_op *o, int i)
{
    return tci_ox_has(o, i) ? tci_ox_in(o, i) : TC_NONE;
}

TCI_FN bool tci_ox_wants(const tci_ox_op *o, int i)
{
    return i < o->n_out && o->out[i];
}

TCI_FN void tci_ox_out(const tci_ox_op *o, int i, tc_tensor t)
{
    if (tc_status_of(t) != TC_OK) {
        tci_ox_fail_tensor(o, t);
    }
    if (tci_ox_wants(o, i)) {
        o->out[i]->t = t;
        o->out[i]->is_made = true;
    }
}

TCI_FN void tci_ox_out_known(const tci_ox_op *o, int i, const tci_ox_known *k)
{
    if (tci_ox_wants(o, i)) {
        o->out[i]->known = k;
        o->out[i]->depends = 0;
    }
}

/* ---- known operands ---- */

TCI_FN const tci_ox_known *tci_ox_known_of(const tci_ox_op *o, tci_ox_value *v)
{
    const tci_onnx_tensor *t = v->initializer;
    if (!v->known && t && t->count <= TCI_OX_FOLD_MOST / 4) {
        const tci_ox_file *file;
        tc_dtype dtype = tci_ox_dtype(o, t->type);
        v->known = tci_ox_known_read(o->s, dtype, t->rank, t->sizes, tci_ox_data(o, t, &file));
    }
    return v->known;
}

/* Elements of a tensor that depends on no input: computed now. */
static const tci_ox_known *tci_ox_read(const tci_ox_op *o, tci_ox_value *v)
{
    int rank;
    tc_tensor t = tci_ox_tensor(o, v);
    const int64_t *sizes = tci_ox_sizes(o, t, &rank);
    int64_t n = tc_nbytes(t);
    if (n < 0 || tc_count(t) > TCI_OX_LIST_MOST) {
        return NULL;
    }
    char *data = tci_scratch_get(o->s, (size_t)n + 1);
    tc_status status = tc_read_as_at(t, TC_BUF((void *)data, n), o->here);
    if (status == TC_ERR_ARGUMENT || status == TC_ERR_SHAPE) { /* a symbolic size is in it */
        return NULL;
    } else if (status != TC_OK) {
        tci_ox_fail(o, status, "%s", tc_error(t));
    }
    return tci_ox_known_read(o->s, tc_dtype_of(t), rank, sizes, data);
}

TCI_FN bool tci_ox_can_know(const tci_ox_op *o, tci_ox_value *v)
{
    if (!v->known && !v->initializer && !v->depends) {
        v->known = tci_ox_read(o, v);
        return v->known != NULL;
    }
    return v->known || v->initializer || !(v->depends & ~o->m->offered);
}

static void tci_ox_fail_unknown(const tci_ox_op *o, const tci_ox_value *v, const char *what)
{
    const tci_onnx_graph *g = o->m->proto->graph;
    uint64_t missing = v->depends & ~o->m->offered;
    if ((missing & TCI_OX_UNKNOWABLE) || !missing) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "%s (%.40s) follows from values that only a run knows",
                    what, v->name);
    }
    int i = 0;
    while (i < TCI_OX_INPUTS && !(missing >> i & 1)) {
        i++;
    }
    tci_ox_fail(o, TC_ERR_UNSUPPORTED,
                "%s (%.40s) follows from the value of input %.40s, which "
                "must be told (tc_onnx_options.inputs)",
                what, v->name, i < g->n_inputs ? g->inputs[i].name : "");
}

TCI_FN const tci_ox_known *tci_ox_need(const tci_ox_op *o, int i, const char *what)
{
    if (!tci_ox_has(o, i)) {
        tci_ox_fail(o, TC_ERR_IO, "%s is left out", what);
    }
    tci_ox_value *v = o->in[i];
    if (tci_ox_known_of(o, v)) {
        return v->known;
    }
    if (!v->depends) {
        v->known = tci_ox_read(o, v);
    } else if (!(v->depends & ~o->m->offered)) {
        o->m->fixed |= v->depends;
        o->m->again = true;
        tci_scratch_fail(o->s, TC_ERR_INTERNAL, "inputs become constants");
    }
    if (!v->known) {
        tci_ox_fail_unknown(o, v, what);
    }
    return v->known;
}

TCI_FN const int64_t *tci_ox_need_ints(const tci_ox_op *o, int i, const char *what, int *n)
{
    const tci_ox_known *k = tci_ox_need(o, i, what);
    int64_t *list = TCI_NEW_ARRAY(o->s, int64_t, k->n + 1);
    for (int64_t j = 0; j < k->n; j++) {
        list[j] = k->cells[j].i;
    }
    if (k->n > TCI_OX_LIST_MOST || tci_ox_is_float(k->dtype)) {
        tci_ox_fail(o, TC_ERR_DTYPE, "%s is no list of integers", what);
    }
    *n = (int)k->n;
    return list;
}

TCI_FN int64_t tci_ox_need_int(const tci_ox_op *o, int i, const char *what)
{
    int n;
    const int64_t *list = tci_ox_need_ints(o, i, what, &n);
    if (n != 1) {
        tci_ox_fail(o, TC_ERR_SHAPE, "%s has %d elements: expected one", what, n);
    }
    return list[0];
}

TCI_FN double tci_ox_need_real(const tci_ox_op *o, int i, const char *what)
{
    const tci_ox_known *k = tci_ox_need(o, i, what);
    if (k->n != 1 || k->cells[0].den || !tci_dim_is_known(k->cells[0].i)) {
        tci_ox_fail(o, TC_ERR_SHAPE, "%s is not one number", what);
    }
    return tci_ox_is_float(k->dtype) ? k->cells[0].f : (double)k->cells[0].i;
}

/* ---- attributes ---- */

TCI_FN const tci_onnx_attr *tci_ox_find_attr(const tci_onnx_attr *list, int n, const char *name)
{
    for (int i = 0; i < n; i++) {
        if (!strcmp(list[i].name, name)) {
            return &list[i];
        }
    }
    return NULL;
}

TCI_FN const tci_onnx_attr *tci_ox_attr(const tci_ox_op *o, const char *name)
{
    const tci_onnx_attr *a = tci_ox_find_attr(o->node->attrs, o->node->n_attrs, name);
    return a && a->kind != TCI_ONNX_NOTHING ? a : NULL;
}

/* NULL: not given. */
static const tci_onnx_attr *tci_ox_attr_of(const tci_ox_op *o, const char *name, tci_onnx_kind kind)
{
    const tci_onnx_attr *a = tci_ox_attr(o, name);
    if (a && a->kind != kind) {
        tci_ox_fail(o, TC_ERR_IO, "attribute %.40s has another type than the op says", name);
    }
    return a;
}

TCI_FN int64_t tci_ox_int(const tci_ox_op *o, const char *name, int64_t otherwise)
{
    const tci_onnx_attr *a = tci_ox_attr_of(o, name, TCI_ONNX_INT);
    return a ? a->i : otherwise;
}

TCI_FN double tci_ox_real(const tci_ox_op *o, const char *name, double otherwise)
{
    const tci_onnx_attr *a = tci_ox_attr_of(o, name, TCI_ONNX_FLOAT);
    return a ? a->f : otherwise;
}

TCI_FN const char *tci_ox_text(const tci_ox_op *o, const char *name, const char *otherwise)
{
    const tci_onnx_attr *a = tci_ox_attr_of(o, name, TCI_ONNX_STRING);
    return a ? a->s : otherwise;
}

TCI_FN const int64_t *tci_ox_ints(const tci_ox_op *o, const char *name, int *n)
{
    const tci_onnx_attr *a = tci_ox_attr_of(o, name, TCI_ONNX_INTS);
    static const int64_t none = 0;
    *n = a ? a->n : 0;
    return a ? a->n ? a->ints : &none : NULL;
}

TCI_FN const tci_onnx_graph *tci_ox_body(const tci_ox_op *o, const char *name)
{
    const tci_onnx_attr *a = tci_ox_attr_of(o, name, TCI_ONNX_GRAPH);
    if (!a) {
        tci_ox_fail(o, TC_ERR_IO, "graph %s is missing", name);
    }
    return a->g;
}

/* ---- shapes ---- */

TCI_FN int tci_ox_axis(const tci_ox_op *o, int64_t axis, int rank)
{
    int64_t at = axis < 0 ? axis + rank : axis;
    if (at < 0 || at >= rank) {
        tci_ox_fail(o, TC_ERR_AXIS, "axis %" PRId64 " of %d axes", axis, rank);
    }
    return (int)at;
}

TCI_FN const int64_t *tci_ox_sizes(const tci_ox_op *o, tc_tensor t, int *rank)
{
    *rank = tc_rank(t);
    if (*rank < 0) {
        tci_ox_fail_tensor(o, t);
    }
    int64_t *sizes = TCI_NEW_ARRAY(o->s, int64_t, *rank + 1);
    for (int i = 0; i < *rank; i++) {
        sizes[i] = tc_size(t, i);
    }
    return sizes;
}

TCI_FN tc_tensor tci_ox_shape_as(const tci_ox_op *o, tc_tensor t, int rank, const int64_t *sizes)
{
    return tc_reshape_at(t, rank, sizes, o->here);
}

TCI_FN tc_tensor tci_ox_move(const tci_ox_op *o, tc_tensor t, const int64_t *order)
{
    return tc_permute_at(t, tc_rank(t), order, o->here);
}

TCI_FN tc_tensor tci_ox_places(const tci_ox_op *o, int64_t n, int rank, int axis)
{
    int64_t *sizes = TCI_NEW_ARRAY(o->s, int64_t, rank + 1);
    for (int i = 0; i < rank; i++) {
        sizes[i] = i == axis ? n : 1;
    }
    return tci_ox_shape_as(o, tc_arange(o->ctx, 0, n, 1, TC_I64), rank, sizes);
}

/* ---- bodies ---- */

TCI_FN tc_status tci_ox_within(tci_ox_op *o, tci_ox_build build, void *user)
{
    jmp_buf outer;
    tci_ox *m = o->m;
    const tci_ox_names *names = m->names;
    const int depth = m->depth;
    tc_status status = TC_OK;
    memcpy(&outer, &o->s->escape, sizeof(outer));
    if (setjmp(o->s->escape)) {
        status = o->s->why;
        m->names = names;
        m->depth = depth;
    } else {
        o->s->why = TC_OK;
        build(o, user);
    }
    memcpy(&o->s->escape, &outer, sizeof(outer));
    return status;
}

TCI_FN void tci_ox_rethrow(const tci_ox_op *o, tc_status status)
{
    if (status == TC_OK) {
        return;
    }
    if (o->s->why != TC_OK) { /* the text of what left the body is still there */
        longjmp(o->s->escape, 1);
    }
    const char *text = tc_error(o->ctx), *call = strstr(text, "tc_");
    tci_ox_fail(o, status, "%s", call ? call : text);
}
/* ---- src/onnx/constant_fold.c ---- */
/* onnx/constant_fold.c - constant folding of shape arithmetic: operators whose operands are known
 * while the graph is built.
 *
 * In: small arrays of numbers and symbolic sizes. Out: the same. Integers are computed by
 * tc_dim_add and similar calls, floats in double, rounded to float for f32. A float derived from a
 * symbolic size is represented as (size / integer), so that Floor(Cast(size) / 2) stays exact.
 * Values without such a form are computed by the program. */

#include <math.h>
#include <string.h>

/* ---- elements ---- */

typedef enum tci_ox_scalar {
    TCI_OX_ADD,
    TCI_OX_SUB,
    TCI_OX_MUL,
    TCI_OX_DIV,
    TCI_OX_MOD,
    TCI_OX_MIN,
    TCI_OX_MAX,
    TCI_OX_EQ,
    TCI_OX_LT,
    TCI_OX_LE,
    TCI_OX_GT,
    TCI_OX_GE,
    TCI_OX_AND,
    TCI_OX_OR,
    TCI_OX_NOT,
    TCI_OX_NEG,
    TCI_OX_ABS,
    TCI_OX_FLOOR,
    TCI_OX_CEIL,
    TCI_OX_SQRT,
    TCI_OX_CAST,
    TCI_OX_SAME
} tci_ox_scalar;

/* Of two sizes, if it is the same for all values of the symbols. */
static bool tci_ox_compare(tci_ox_scalar op, int64_t a, int64_t b, int64_t *r)
{
    int64_t d = tc_dim_sub(a, b);
    int64_t least = tci_dim_least(d), most = tci_dim_most(d);
    bool decided = least == most || least > 0 || most < 0;
    switch (op) {
    case TCI_OX_EQ: *r = least == 0 && most == 0; break;
    case TCI_OX_LT:
        *r = most < 0;
        decided = most < 0 || least >= 0;
        break;
    case TCI_OX_LE:
        *r = most <= 0;
        decided = most <= 0 || least > 0;
        break;
    case TCI_OX_GT:
        *r = least > 0;
        decided = least > 0 || most <= 0;
        break;
    default:
        *r = least >= 0;
        decided = least >= 0 || most < 0;
        break;
    }
    return decided;
}

static bool tci_ox_fold_symbols(tci_ox_scalar op, tci_ox_cell a, tci_ox_cell b, tci_ox_cell *r)
{
    bool divides = tci_dim_is_known(b.i) && b.i > 0;
    switch (op) {
    case TCI_OX_ADD: r->i = tc_dim_add(a.i, b.i); return true;
    case TCI_OX_SUB: r->i = tc_dim_sub(a.i, b.i); return true;
    case TCI_OX_MUL: r->i = tc_dim_mul(a.i, b.i); return true;
    case TCI_OX_DIV: /* truncates: as floor of what is not negative */
        r->i = divides ? tc_dim_div(a.i, b.i) : 0;
        return divides && tci_dim_least(a.i) >= 0;
    case TCI_OX_MOD:
        r->i = divides ? tc_dim_sub(a.i, tc_dim_mul(tc_dim_div(a.i, b.i), b.i)) : 0;
        return divides;
    case TCI_OX_MIN: r->i = tc_dim_min(a.i, b.i); return true;
    case TCI_OX_MAX: r->i = tc_dim_max(a.i, b.i); return true;
    case TCI_OX_NEG: r->i = tc_dim_sub(0, a.i); return true;
    case TCI_OX_SAME: r->i = a.i; return true;
    case TCI_OX_EQ:
    case TCI_OX_LT:
    case TCI_OX_LE:
    case TCI_OX_GT:
    case TCI_OX_GE: return tci_ox_compare(op, a.i, b.i, &r->i);
    default: return false;
    }
}

static bool tci_ox_fold_ints(tci_ox_scalar op, int64_t a, int64_t b, int64_t *r)
{
    const uint64_t x = (uint64_t)a, y = (uint64_t)b;
    if ((op == TCI_OX_DIV || op == TCI_OX_MOD) && (b == 0 || b == -1)) {
        *r = op == TCI_OX_MOD ? 0 : (int64_t)(0 - x);
        return b == -1;
    }
    switch (op) {
    case TCI_OX_ADD: *r = (int64_t)(x + y); return true;
    case TCI_OX_SUB: *r = (int64_t)(x - y); return true;
    case TCI_OX_MUL: *r = (int64_t)(x * y); return true;
    case TCI_OX_DIV: *r = a / b; return true;
    case TCI_OX_MOD: *r = a % b + (a % b && (a % b < 0) != (b < 0) ? b : 0); return true;
    case TCI_OX_MIN: *r = TCI_MIN(a, b); return true;
    case TCI_OX_MAX: *r = TCI_MAX(a, b); return true;
    case TCI_OX_EQ: *r = a == b; return true;
    case TCI_OX_LT: *r = a < b; return true;
    case TCI_OX_LE: *r = a <= b; return true;
    case TCI_OX_GT: *r = a > b; return true;
    case TCI_OX_GE: *r = a >= b; return true;
    case TCI_OX_AND: *r = a && b; return true;
    case TCI_OX_OR: *r = a || b; return true;
    case TCI_OX_NOT: *r = !a; return true;
    case TCI_OX_NEG: *r = (int64_t)(0 - x); return true;
    case TCI_OX_ABS: *r = a < 0 ? (int64_t)(0 - x) : a; return true;
    case TCI_OX_SAME: *r = a; return true;
    default: return false;
    }
}

/* c as a whole number, or false. */
static bool tci_ox_whole(double c, int64_t *n)
{
    *n = c > -1e15 && c < 1e15 ? (int64_t)c : 0;
    return (double)*n == c;
}

/* Quotients of symbolic sizes by whole numbers. */
static bool tci_ox_fold_quotients(tci_ox_scalar op, tci_ox_cell a, tci_ox_cell b, tci_ox_cell *r)
{
    int64_t n;
    bool a_is = a.den > 0;
    switch (op) {
    case TCI_OX_FLOOR: *r = (tci_ox_cell){tc_dim_div(a.i, a.den), 1, 0.0}; return true;
    case TCI_OX_CEIL:
        *r = (tci_ox_cell){tc_dim_div(tc_dim_add(a.i, a.den - 1), a.den), 1, 0.0};
        return true;
    case TCI_OX_SAME: *r = a; return true;
    case TCI_OX_MUL:
        if (a.den > 0 && b.den > 0) {
            *r = (tci_ox_cell){tc_dim_mul(a.i, b.i), a.den * b.den, 0.0};
            return a.den < 1 << 20 && b.den < 1 << 20;
        }
        if (tci_ox_whole(a_is ? b.f : a.f, &n)) {
            *r = a_is ? a : b;
            r->i = tc_dim_mul(r->i, n);
            return true;
        }
        if (tci_ox_whole(1 / (a_is ? b.f : a.f), &n) && n > 0 && n < 1 << 20) {
            *r = a_is ? a : b;
            r->den *= n;
            return r->den < 1 << 20;
        }
        return false;
    case TCI_OX_DIV:
        if (a_is && b.den > 0 && a.i == b.i) {
            *r = (tci_ox_cell){0, 0, (double)b.den / (double)a.den};
            return true;
        }
        if (a_is && b.den == 0 && tci_ox_whole(b.f, &n) && n > 0 && n < 1 << 20) {
            *r = (tci_ox_cell){a.i, a.den * n, 0.0};
            return r->den < 1 << 20;
        }
        return a_is && b.den == 0 && tci_ox_whole(1 / b.f, &n) && n > 0 &&
               (*r = (tci_ox_cell){tc_dim_mul(a.i, n), a.den, 0.0}, true);
    case TCI_OX_ADD:
    case TCI_OX_SUB: {
        int64_t by = a_is ? a.den : b.den;
        tci_ox_cell whole = a_is ? b : a;
        if (whole.den > 0 ? whole.den != by : !tci_ox_whole(whole.f * (double)by, &n)) {
            return false;
        }
        int64_t other = whole.den > 0 ? whole.i : n;
        int64_t x = a_is ? a.i : other, y = a_is ? other : b.i;
        *r = (tci_ox_cell){op == TCI_OX_ADD ? tc_dim_add(x, y) : tc_dim_sub(x, y), by, 0.0};
        return true;
    }
    default: return false;
    }
}

static bool tci_ox_fold_floats(tci_ox_scalar op, double a, double b, double *r)
{
    switch (op) {
    case TCI_OX_ADD: *r = a + b; return true;
    case TCI_OX_SUB: *r = a - b; return true;
    case TCI_OX_MUL: *r = a * b; return true;
    case TCI_OX_DIV: *r = a / b; return true;
    case TCI_OX_MIN: *r = a < b || a != a ? a : b; return true;
    case TCI_OX_MAX: *r = a > b || a != a ? a : b; return true;
    case TCI_OX_NEG: *r = -a; return true;
    case TCI_OX_ABS: *r = fabs(a); return true;
    case TCI_OX_FLOOR: *r = floor(a); return true;
    case TCI_OX_CEIL: *r = ceil(a); return true;
    case TCI_OX_SQRT: *r = sqrt(a); return true;
    case TCI_OX_SAME: *r = a; return true;
    default: return false;
    }
}

static bool tci_ox_fold_tests(tci_ox_scalar op, double a, double b, int64_t *r)
{
    switch (op) {
    case TCI_OX_EQ: *r = a == b; return true;
    case TCI_OX_LT: *r = a < b; return true;
    case TCI_OX_LE: *r = a <= b; return true;
    case TCI_OX_GT: *r = a > b; return true;
    case TCI_OX_GE: *r = a >= b; return true;
    default: return false;
    }
}

static int64_t tci_ox_wrap(tc_dtype dtype, int64_t v)
{
    switch (dtype) {
    case TC_BOOL: return v != 0;
    case TC_U8: return (uint8_t)v;
    case TC_I8: return (int8_t)v;
    case TC_U16: return (uint16_t)v;
    case TC_I16: return (int16_t)v;
    case TC_U32: return (uint32_t)v;
    case TC_I32: return (int32_t)v;
    default: return v;
    }
}

static bool tci_ox_fold_cast(tc_dtype from, tc_dtype to, tci_ox_cell a, tci_ox_cell *r)
{
    bool number = tci_ox_cell_is_number(a) && !a.den;
    *r = (tci_ox_cell){0, 0, 0.0};
    if (tci_ox_is_float(to) && tci_ox_is_float(from)) {
        *r = a;
        r->f = to == TC_F32 ? (double)(float)a.f : a.f;
    } else if (tci_ox_is_float(to)) {
        r->i = number ? 0 : a.i;
        r->den = !number;
        r->f = !number ? 0 : to == TC_F32 ? (double)(float)a.i : (double)a.i;
    } else if (!number && tci_ox_is_float(from)) {
        r->i = tc_dim_div(a.i, a.den); /* truncates, and sizes are not negative */
        return to == TC_I64 || to == TC_I32;
    } else if (!number) {
        r->i = a.i;
        return to == TC_I64 || to == TC_I32;
    } else if (tci_ox_is_float(from)) {
        bool fits = a.f > -9e18 && a.f < 9e18;
        r->i = to == TC_BOOL ? a.f != 0 : fits ? (int64_t)a.f : 0;
        return to == TC_BOOL || (fits && tci_ox_wrap(to, r->i) == r->i);
    } else {
        r->i = tci_ox_wrap(to, a.i);
    }
    return true;
}

/* to: dtype of the result. */
static bool tci_ox_fold_cell(tci_ox_scalar op, tc_dtype from, tc_dtype to, tci_ox_cell a,
                             tci_ox_cell b, tci_ox_cell *r)
{
    *r = (tci_ox_cell){0, 0, 0.0};
    if (op == TCI_OX_CAST) {
        return tci_ox_fold_cast(from, to, a, r);
    }
    if (tci_ox_is_float(from)) {
        if (a.den || b.den) {
            return tci_ox_fold_quotients(op, a, b, r);
        }
        if (!tci_ox_is_float(to)) {
            return tci_ox_fold_tests(op, a.f, b.f, &r->i);
        }
        bool done = tci_ox_fold_floats(op, a.f, b.f, &r->f);
        r->f = from == TC_F32 ? (double)(float)r->f : r->f;
        return done && (from == TC_F32 || from == TC_F64 || op == TCI_OX_SAME);
    }
    if (!tci_ox_cell_is_number(a) || !tci_ox_cell_is_number(b)) {
        return tci_ox_fold_symbols(op, a, b, r);
    }
    bool done = from != TC_U64 && tci_ox_fold_ints(op, a.i, b.i, &r->i);
    r->i = tci_ox_wrap(to, r->i);
    return done || (op == TCI_OX_SAME && (r->i = a.i, true));
}

/* ---- arrays ---- */

/* The sizes that two broadcast to; false: they do not, or are too many elements. */
static bool tci_ox_broadcast(const tci_ox_known *a, const tci_ox_known *b, int *rank,
                             int64_t sizes[TCI_OX_RANK])
{
    int64_t n = 1;
    *rank = TCI_MAX(a->rank, b->rank);
    for (int i = 0; i < *rank && i < TCI_OX_RANK; i++) {
        int at_a = i - (*rank - a->rank), at_b = i - (*rank - b->rank);
        int64_t x = at_a >= 0 ? a->sizes[at_a] : 1, y = at_b >= 0 ? b->sizes[at_b] : 1;
        if (x != y && x != 1 && y != 1) {
            return false;
        }
        sizes[i] = x == 1 ? y : x;
        n *= sizes[i];
    }
    return *rank <= TCI_OX_RANK && n <= TCI_OX_FOLD_MOST;
}

/* Element of k for element `at` of an array of these sizes. */
static tci_ox_cell tci_ox_at(const tci_ox_known *k, int rank, const int64_t *sizes, int64_t at)
{
    int64_t index = 0, stride = 1;
    for (int i = rank - 1, j = k->rank - 1; i >= 0; i--, j--) {
        int64_t place = at % sizes[i];
        at /= sizes[i];
        if (j >= 0) {
            index += k->sizes[j] == 1 ? 0 : place * stride;
            stride *= k->sizes[j];
        }
    }
    return k->cells[index];
}

typedef struct tci_ox_args { /* of one folding */
    tci_ox_op *o;
    const tci_ox_known *k[8];
    int n;
    tci_ox_scalar scalar;
    bool tests; /* gives bool */
} tci_ox_args;

static bool tci_ox_fold_elements(tci_ox_args *x)
{
    const tci_ox_known *a = x->k[0];
    tc_dtype to = x->tests ? TC_BOOL : a->dtype;
    if (x->scalar == TCI_OX_CAST) {
        to = tci_onnx_dtype(tci_ox_int(x->o, "to", 0));
    }
    if (x->scalar == TCI_OX_MOD && tci_ox_int(x->o, "fmod", 0)) { /* the sign of a, not of b */
        return false;
    }
    const tci_ox_known *sum = a;
    for (int i = x->n > 1 ? 1 : 0; i < x->n; i++) {
        const tci_ox_known *b = x->k[i];
        int64_t sizes[TCI_OX_RANK];
        int rank;
        if (b->dtype != sum->dtype || to == TC_DTYPE_COUNT ||
            !tci_ox_broadcast(sum, b, &rank, sizes)) {
            return false;
        }
        tci_ox_known *r = tci_ox_known_new(x->o->s, to, rank, sizes);
        for (int64_t j = 0; j < r->n; j++) {
            if (!tci_ox_fold_cell(x->scalar, sum->dtype, to, tci_ox_at(sum, rank, sizes, j),
                                  tci_ox_at(b, rank, sizes, j), &r->cells[j])) {
                return false;
            }
        }
        sum = r;
    }
    tci_ox_out_known(x->o, 0, sum);
    return true;
}

static bool tci_ox_fold_where(tci_ox_args *x)
{
    int rank, rank_all;
    int64_t sizes[TCI_OX_RANK], all[TCI_OX_RANK];
    tci_ox_known part = {.dtype = TC_BOOL};
    if (x->n != 3 || !tci_ox_broadcast(x->k[0], x->k[1], &rank, sizes)) {
        return false;
    }
    part.rank = rank;
    part.sizes = sizes;
    if (!tci_ox_broadcast(&part, x->k[2], &rank_all, all)) {
        return false;
    }
    tci_ox_known *r = tci_ox_known_new(x->o->s, x->k[1]->dtype, rank_all, all);
    for (int64_t j = 0; j < r->n; j++) {
        r->cells[j] = tci_ox_at(x->k[tci_ox_at(x->k[0], rank_all, all, j).i ? 1 : 2], rank_all, all,
                                j);
    }
    tci_ox_out_known(x->o, 0, r);
    return true;
}

/* The same cells with other sizes, which are numbers whose product is the same. */
static bool tci_ox_fold_view(const tci_ox_op *o, const tci_ox_known *a, int rank,
                             const int64_t *sizes)
{
    tci_ox_known *r = TCI_NEW(o->s, tci_ox_known);
    *r = *a;
    r->rank = rank;
    r->sizes = tci_scratch_copy(o->s, sizes, sizeof(*sizes) * (size_t)rank);
    tci_ox_out_known(o, 0, r);
    return true;
}

/* Numbers of an operand or, before it was one, of an attribute; NULL: none, or symbols. */
static const int64_t *tci_ox_fold_list(const tci_ox_args *x, int i, const char *name, int *n)
{
    if (i >= x->n || !x->k[i]) {
        return tci_ox_ints(x->o, name, n);
    }
    int64_t *list = TCI_NEW_ARRAY(x->o->s, int64_t, x->k[i]->n + 1);
    *n = (int)x->k[i]->n;
    for (int j = 0; j < *n; j++) {
        list[j] = x->k[i]->cells[j].i;
        if (!tci_ox_cell_is_number(x->k[i]->cells[j])) {
            return NULL;
        }
    }
    return list;
}

static bool tci_ox_fold_reshape(tci_ox_args *x)
{
    int n = 0;
    int64_t sizes[TCI_OX_RANK], known = 1;
    const int64_t *want = tci_ox_fold_list(x, 1, "shape", &n);
    int open = -1;
    if (!want || n > TCI_OX_RANK) {
        return false;
    }
    for (int i = 0; i < n; i++) {
        sizes[i] = want[i] == 0 && i < x->k[0]->rank ? x->k[0]->sizes[i] : want[i];
        open = sizes[i] == -1 ? i : open;
        known *= sizes[i] == -1 ? 1 : sizes[i];
    }
    if (open >= 0 && known > 0) {
        sizes[open] = x->k[0]->n / known;
        known *= sizes[open];
    }
    return known == x->k[0]->n && tci_ox_fold_view(x->o, x->k[0], n, sizes);
}

static bool tci_ox_fold_unsqueeze(tci_ox_args *x)
{
    int n = 0, at = 0;
    int64_t sizes[TCI_OX_RANK];
    const int64_t *axes = tci_ox_fold_list(x, 1, "axes", &n);
    int rank = x->k[0]->rank + n;
    if (!axes || rank > TCI_OX_RANK) {
        return false;
    }
    for (int i = 0; i < rank; i++) {
        bool is_new = false;
        for (int j = 0; j < n; j++) {
            is_new = is_new || axes[j] == i || axes[j] + rank == i;
        }
        if (!is_new && at == x->k[0]->rank) {
            return false;
        }
        sizes[i] = is_new ? 1 : x->k[0]->sizes[at++];
    }
    return at == x->k[0]->rank && tci_ox_fold_view(x->o, x->k[0], rank, sizes);
}

static bool tci_ox_fold_squeeze(tci_ox_args *x)
{
    int n = 0, rank = 0;
    int64_t sizes[TCI_OX_RANK], count = 1;
    const int64_t *axes = tci_ox_fold_list(x, 1, "axes", &n);
    const tci_ox_known *a = x->k[0];
    for (int i = 0; i < a->rank; i++) {
        bool goes = !axes && a->sizes[i] == 1;
        for (int j = 0; j < n && axes; j++) {
            goes = goes || axes[j] == i || axes[j] + a->rank == i;
        }
        if (!goes) {
            sizes[rank++] = a->sizes[i];
            count *= a->sizes[i];
        }
    }
    return count == a->n && tci_ox_fold_view(x->o, a, rank, sizes);
}

/* Outer, along the axis, inner. */
static void tci_ox_split_axes(const tci_ox_known *k, int axis, int64_t part[3])
{
    part[0] = part[2] = 1;
    part[1] = k->sizes[axis];
    for (int i = 0; i < k->rank; i++) {
        part[i < axis ? 0 : 2] *= i == axis ? 1 : k->sizes[i];
    }
}

static bool tci_ox_fold_gather(tci_ox_args *x)
{
    const tci_ox_known *a = x->k[0], *index = x->k[1];
    if (x->n != 2 || a->rank < 1 || a->rank + index->rank - 1 > TCI_OX_RANK) {
        return false;
    }
    int axis = tci_ox_axis(x->o, tci_ox_int(x->o, "axis", 0), a->rank);
    int64_t part[3], sizes[TCI_OX_RANK];
    int rank = 0;
    tci_ox_split_axes(a, axis, part);
    for (int i = 0; i < a->rank; i++) {
        if (i != axis) {
            sizes[rank++] = a->sizes[i];
            continue;
        }
        for (int j = 0; j < index->rank; j++) {
            sizes[rank++] = index->sizes[j];
        }
    }
    if (part[0] * index->n * part[2] > TCI_OX_FOLD_MOST) {
        return false;
    }
    tci_ox_known *r = tci_ox_known_new(x->o->s, a->dtype, rank, sizes);
    for (int64_t j = 0; j < r->n; j++) {
        int64_t outer = j / (index->n * part[2]), in = j % part[2];
        int64_t at = index->cells[j / part[2] % index->n].i;
        at = tci_dim_is_known(at) && at < 0 ? at + part[1] : at;
        if (!tci_dim_is_known(at) || at < 0 || at >= part[1]) {
            return false;
        }
        r->cells[j] = a->cells[(outer * part[1] + at) * part[2] + in];
    }
    tci_ox_out_known(x->o, 0, r);
    return true;
}

static bool tci_ox_fold_concat(tci_ox_args *x)
{
    int64_t n = 0;
    if (x->k[0]->rank != 1) {
        return false;
    }
    for (int i = 0; i < x->n; i++) {
        n += x->k[i]->n;
        if (x->k[i]->rank != 1 || x->k[i]->dtype != x->k[0]->dtype) {
            return false;
        }
    }
    tci_ox_known *r = tci_ox_known_new(x->o->s, x->k[0]->dtype, 1, &n);
    for (int64_t i = 0, at = 0; i < x->n; at += x->k[i++]->n) {
        memcpy(r->cells + at, x->k[i]->cells, sizeof(*r->cells) * (size_t)x->k[i]->n);
    }
    tci_ox_out_known(x->o, 0, r);
    return true;
}

/* Of lists, by Python's rules. */
static bool tci_ox_fold_slice(tci_ox_args *x)
{
    int n = 0, m = 0;
    const int64_t *starts = tci_ox_fold_list(x, 1, "starts", &n);
    const int64_t *ends = tci_ox_fold_list(x, 2, "ends", &m);
    int64_t step = x->n > 4 && x->k[4] && x->k[4]->n == 1 ? x->k[4]->cells[0].i : 1;
    int64_t length = x->k[0]->n, count;
    if (x->k[0]->rank != 1 || !starts || !ends || n != 1 || m != 1 || step == 0 ||
        !tci_dim_is_known(step)) {
        return false;
    }
    int64_t first = step > 0 ? 0 : -1, past = step > 0 ? length : length - 1;
    int64_t a = starts[0] < 0 ? starts[0] + length : starts[0];
    int64_t b = ends[0] < 0 ? ends[0] + length : ends[0];
    a = a < first ? first : a > past ? past : a;
    b = b < first || ends[0] < -length ? first : b > past ? past : b;
    count = step > 0 ? (b - a + step - 1) / step : (a - b - step - 1) / -step;
    count = count < 0 ? 0 : count;
    tci_ox_known *r = tci_ox_known_new(x->o->s, x->k[0]->dtype, 1, &count);
    for (int64_t i = 0; i < count; i++) {
        r->cells[i] = x->k[0]->cells[a + i * step];
    }
    tci_ox_out_known(x->o, 0, r);
    return true;
}

/* The product, sum, least or largest of all elements of a list of integers. */
static bool tci_ox_fold_reduce(tci_ox_args *x)
{
    const tci_ox_known *a = x->k[0];
    bool keeps = tci_ox_int(x->o, "keepdims", 1) != 0;
    bool none = tci_ox_int(x->o, "noop_with_empty_axes", 0) != 0;
    int n = 0;
    tci_ox_fold_list(x, 1, "axes", &n);
    if (a->rank > 1 || a->n < 1 || tci_ox_is_float(a->dtype) || (n == 0 && (none || x->n > 1))) {
        return false;
    }
    tci_ox_cell sum = a->cells[0];
    for (int64_t i = 1; i < a->n; i++) {
        tci_ox_cell r;
        if (!tci_ox_fold_cell(x->scalar, a->dtype, a->dtype, sum, a->cells[i], &r)) {
            return false;
        }
        sum = r;
    }
    tci_ox_known *r = tci_ox_known_new(x->o->s, a->dtype, keeps ? a->rank : 0, (int64_t[]){1});
    r->cells[0] = sum;
    tci_ox_out_known(x->o, 0, r);
    return true;
}

static bool tci_ox_fold_range(tci_ox_args *x)
{
    if (x->n != 3 || x->k[0]->n != 1 || x->k[1]->n != 1 || x->k[2]->n != 1) {
        return false;
    }
    tci_ox_cell a = x->k[0]->cells[0], z = x->k[1]->cells[0], d = x->k[2]->cells[0];
    bool floats = tci_ox_is_float(x->k[0]->dtype);
    if (a.den || z.den || d.den || !tci_ox_cell_is_number(a) || !tci_ox_cell_is_number(z) ||
        !tci_ox_cell_is_number(d) || (floats ? d.f == 0 : d.i == 0)) {
        return false;
    }
    double count = ceil(floats ? (z.f - a.f) / d.f : ((double)z.i - (double)a.i) / (double)d.i);
    int64_t n = count > 0 ? (int64_t)count : 0;
    if (!(count <= TCI_OX_FOLD_MOST)) {
        return false;
    }
    tci_ox_known *r = tci_ox_known_new(x->o->s, x->k[0]->dtype, 1, &n);
    for (int64_t i = 0; i < n; i++) {
        r->cells[i].i = floats ? 0 : a.i + i * d.i;
        double f = a.f + (double)i * d.f;
        r->cells[i].f = !floats ? 0 : x->k[0]->dtype == TC_F32 ? (double)(float)f : f;
    }
    tci_ox_out_known(x->o, 0, r);
    return true;
}

static bool tci_ox_fold_constant_of_shape(tci_ox_args *x)
{
    int n;
    const int64_t *sizes = tci_ox_fold_list(x, 0, "", &n);
    const tci_onnx_attr *value = tci_ox_attr(x->o, "value");
    int64_t count = 1;
    for (int i = 0; sizes && i < n; i++) {
        count *= sizes[i];
        if (sizes[i] < 0 || count > TCI_OX_FOLD_MOST) {
            return false;
        }
    }
    if (!sizes || n > TCI_OX_RANK) {
        return false;
    }
    tc_dtype dtype = value && value->t ? tci_onnx_dtype(value->t->type) : TC_F32;
    if (dtype == TC_DTYPE_COUNT || (value && value->t && value->t->count != 1)) {
        return false;
    }
    tci_ox_known *r = tci_ox_known_new(x->o->s, dtype, n, sizes);
    for (int64_t i = 0; i < r->n && value && value->t; i++) {
        r->cells[i] = tci_ox_read_cell(dtype, value->t->data);
    }
    tci_ox_out_known(x->o, 0, r);
    return true;
}

static bool tci_ox_fold_expand(tci_ox_args *x)
{
    int n, rank;
    int64_t sizes[TCI_OX_RANK];
    const int64_t *want = tci_ox_fold_list(x, 1, "", &n);
    if (!want) {
        return false;
    }
    tci_ox_known shape = {.rank = n, .sizes = want};
    if (!tci_ox_broadcast(x->k[0], &shape, &rank, sizes)) {
        return false;
    }
    tci_ox_known *r = tci_ox_known_new(x->o->s, x->k[0]->dtype, rank, sizes);
    for (int64_t j = 0; j < r->n; j++) {
        r->cells[j] = tci_ox_at(x->k[0], rank, sizes, j);
    }
    tci_ox_out_known(x->o, 0, r);
    return true;
}

/* X(ONNX's name, function, scalar, whether it gives bool) */
#define TCI_OX_FOLDS(X)                                                                            \
    X(Add, elements, ADD, false)                                                                   \
    X(Sub, elements, SUB, false)                                                                   \
    X(Mul, elements, MUL, false)                                                                   \
    X(Div, elements, DIV, false)                                                                   \
    X(Mod, elements, MOD, false)                                                                   \
    X(Min, elements, MIN, false)                                                                   \
    X(Max, elements, MAX, false)                                                                   \
    X(Equal, elements, EQ, true)                                                                   \
    X(Less, elements, LT, true)                                                                    \
    X(LessOrEqual, elements, LE, true)                                                             \
    X(Greater, elements, GT, true)                                                                 \
    X(GreaterOrEqual, elements, GE, true)                                                          \
    X(And, elements, AND, true)                                                                    \
    X(Or, elements, OR, true)                                                                      \
    X(Not, elements, NOT, true)                                                                    \
    X(Neg, elements, NEG, false)                                                                   \
    X(Abs, elements, ABS, false)                                                                   \
    X(Floor, elements, FLOOR, false)                                                               \
    X(Ceil, elements, CEIL, false)                                                                 \
    X(Sqrt, elements, SQRT, false)                                                                 \
    X(Cast, elements, CAST, false)                                                                 \
    X(Identity, elements, SAME, false)                                                             \
    X(Where, where, SAME, false)                                                                   \
    X(Reshape, reshape, SAME, false)                                                               \
    X(Unsqueeze, unsqueeze, SAME, false)                                                           \
    X(Squeeze, squeeze, SAME, false)                                                               \
    X(Gather, gather, SAME, false)                                                                 \
    X(Concat, concat, SAME, false)                                                                 \
    X(Slice, slice, SAME, false)                                                                   \
    X(ReduceProd, reduce, MUL, false)                                                              \
    X(ReduceSum, reduce, ADD, false)                                                               \
    X(ReduceMin, reduce, MIN, false)                                                               \
    X(ReduceMax, reduce, MAX, false)                                                               \
    X(Range, range, SAME, false)                                                                   \
    X(ConstantOfShape, constant_of_shape, SAME, false)                                             \
    X(Expand, expand, SAME, false)

TCI_FN bool tci_ox_fold(tci_ox_op *o)
{
    static const struct {
        const char *op;
        bool (*fold)(tci_ox_args *x);
        tci_ox_scalar scalar;
        bool tests;
    } rows[] = {
#define TCI_ROW(op, fold, scalar, tests) {#op, tci_ox_fold_##fold, TCI_OX_##scalar, tests},
        TCI_OX_FOLDS(TCI_ROW)
#undef TCI_ROW
    };
    int row = 0;
    while (row < TCI_COUNT(rows) && strcmp(rows[row].op, o->node->op)) {
        row++;
    }
    if (row == TCI_COUNT(rows) || o->n_in < 1 || o->n_in > 8 || !o->in[0]) {
        return false;
    }
    tci_ox_args x = {.o = o, .n = o->n_in, .scalar = rows[row].scalar, .tests = rows[row].tests};
    for (int i = 0; i < o->n_in; i++) {
        x.k[i] = o->in[i] ? tci_ox_known_of(o, o->in[i]) : NULL;
        bool left_out = !o->in[i] && rows[row].fold == tci_ox_fold_slice;
        if (!left_out && (!x.k[i] || x.k[i]->n > TCI_OX_FOLD_MOST)) {
            return false;
        }
    }
    return rows[row].fold(&x);
}
/* ---- src/onnx/import_elementwise.c ---- */
/* onnx/import_elementwise.c - imports elementwise ONNX operators. */
/* ---- src/onnx/operator_table.h ---- */
/* onnx/operator_table.h - the table of imported ONNX operators.
 *
 * Row: X(ONNX's name, function, call, how): tci_ox_make_FUNCTION builds it, `call` selects one of
 * several ops of that function, `how` is the text for docs/onnx.md. Sorted by strcmp, for binary
 * search. */
#ifndef TCI_ONNX_OPERATOR_TABLE_H
#define TCI_ONNX_OPERATOR_TABLE_H


#define TCI_OX_ROWS(X)                                                                             \
    X(Abs, direct, "abs", "tc_abs")                                                                \
    X(Acos, direct, "acos", "tc_acos")                                                             \
    X(Acosh, direct, "acosh", "tc_acosh")                                                          \
    X(Add, binary, "add", "tc_add")                                                                \
    X(AffineGrid, affine_grid, "", "a grid of places times theta")                                 \
    X(And, binary, "logical_and", "tc_logical_and")                                                \
    X(ArgMax, arg, "argmax", "tc_argmax; the last index by tc_flip")                               \
    X(ArgMin, arg, "argmin", "tc_argmin; the last index by tc_flip")                               \
    X(Asin, direct, "asin", "tc_asin")                                                             \
    X(Asinh, direct, "asinh", "tc_asinh")                                                          \
    X(Atan, direct, "atan", "tc_atan")                                                             \
    X(Atanh, direct, "atanh", "tc_atanh")                                                          \
    X(Attention, attention, "",                                                                    \
      "tc_scaled_dot_product_attention; step by step with softcap or scores")                      \
    X(AveragePool, average_pool, "",                                                               \
      "tc_avg_pool1d to 3d; unequal padding, dilation, ceil_mode by windows")                      \
    X(BatchNormalization, batch_norm, "",                                                          \
      "tc_batch_norm; running statistics in training from opset 14")                               \
    X(BitCast, bit_cast, "", "tc_bitcast")                                                         \
    X(BitShift, shift, "", "tc_bitwise_left_shift, tc_bitwise_right_shift")                        \
    X(BitwiseAnd, binary, "bitwise_and", "tc_bitwise_and")                                         \
    X(BitwiseNot, direct, "bitwise_not", "tc_bitwise_not")                                         \
    X(BitwiseOr, binary, "bitwise_or", "tc_bitwise_or")                                            \
    X(BitwiseXor, binary, "bitwise_xor", "tc_bitwise_xor")                                         \
    X(BlackmanWindow, window, "b", "computed at import")                                           \
    X(Cast, cast, "", "tc_cast")                                                                   \
    X(CastLike, cast_like, "", "tc_cast")                                                          \
    X(CausalConvWithState, causal_conv, "", "tc_conv1d of the state and x")                        \
    X(Ceil, direct, "ceil", "tc_ceil")                                                             \
    X(Celu, celu, "", "tc_celu")                                                                   \
    X(CenterCropPad, center_crop_pad, "", "tc_slice or tc_pad")                                    \
    X(Clip, clip, "", "tc_clamp")                                                                  \
    X(Col2Im, col2im, "", "tc_scatter_add at places computed at import; 1 to 3 axes")              \
    X(Compress, compress, "", "tc_nonzero and tc_index_select; an output with a count")            \
    X(Concat, concat, "", "tc_cat")                                                                \
    X(Constant, constant, "", "a weight, or known at import")                                      \
    X(ConstantOfShape, constant_of_shape, "", "tc_full and tc_expand")                             \
    X(Conv, conv, "", "tc_conv1d to 3d; SAME of symbolic sizes by tc_pad")                         \
    X(ConvInteger, conv_integer, "", "tc_conv1d to 3d in i32")                                     \
    X(ConvTranspose, conv_transpose, "", "tc_conv_transpose1d to 3d, then cropped or padded")      \
    X(Cos, direct, "cos", "tc_cos")                                                                \
    X(Cosh, direct, "cosh", "tc_cosh")                                                             \
    X(CumProd, cumulative, "cumprod", "tc_cumprod; exclusive and reverse by tc_pad and tc_flip")   \
    X(CumSum, cumulative, "cumsum", "tc_cumsum; exclusive and reverse by tc_pad and tc_flip")      \
    X(DFT, dft, "", "tc_fft, tc_ifft, tc_rfft, tc_irfft")                                          \
    X(DeformConv, deform_conv, "", "bilinear samples at offsets, then tc_matmul; two axes")        \
    X(DepthToSpace, depth_to_space, "", "tc_reshape and tc_permute")                               \
    X(DequantizeLinear, dequantize, "", "i32 and f32 arithmetic; per axis and in blocks")          \
    X(Det, direct, "det", "tc_det")                                                                \
    X(Div, div, "", "tc_div; of integers truncating, by tc_fmod and tc_floor_divide")              \
    X(Dropout, dropout, "", "x itself; training only with ratio 0")                                \
    X(DynamicQuantizeLinear, dynamic_quantize, "", "tc_min, tc_max and f32 arithmetic")            \
    X(Einsum, einsum, "", "tc_einsum")                                                             \
    X(Elu, elu, "", "tc_elu")                                                                      \
    X(Equal, binary, "eq", "tc_eq")                                                                \
    X(Erf, direct, "erf", "tc_erf")                                                                \
    X(Exp, direct, "exp", "tc_exp")                                                                \
    X(Expand, expand, "", "tc_expand")                                                             \
    X(EyeLike, eye_like, "", "comparison of places")                                               \
    X(Flatten, flatten, "", "tc_reshape")                                                          \
    X(Floor, direct, "floor", "tc_floor")                                                          \
    X(GRU, rnn, "3", "tc_scan; both directions, lengths, activations, linear_before_reset")        \
    X(Gather, gather, "", "tc_index_select; tc_slice of a known index")                            \
    X(GatherElements, gather_elements, "", "tc_gather")                                            \
    X(GatherND, gather_nd, "", "tc_index_select of one index for all axes")                        \
    X(Gelu, gelu, "", "tc_gelu, tc_gelu_tanh")                                                     \
    X(Gemm, gemm, "", "tc_matmul, tc_mul, tc_add")                                                 \
    X(GlobalAveragePool, global_pool, "mean", "tc_mean")                                           \
    X(GlobalLpPool, global_pool, "norm", "tc_norm")                                                \
    X(GlobalMaxPool, global_pool, "max", "tc_max")                                                 \
    X(Greater, binary, "gt", "tc_gt")                                                              \
    X(GreaterOrEqual, binary, "ge", "tc_ge")                                                       \
    X(GridSample, grid_sample, "", "tc_grid_sample; cubic of two axes")                            \
    X(GroupNormalization, group_norm, "", "tc_group_norm")                                         \
    X(HammingWindow, window, "H", "computed at import")                                            \
    X(HannWindow, window, "h", "computed at import")                                               \
    X(HardSigmoid, hard_sigmoid, "", "tc_mul, tc_add, tc_clamp")                                   \
    X(HardSwish, direct, "hardswish", "tc_hardswish")                                              \
    X(Hardmax, hardmax, "", "tc_argmax and a comparison of places")                                \
    X(Identity, identity, "", "x itself")                                                          \
    X(If, if, "", "one branch where the condition is known, else tc_cond")                         \
    X(InstanceNormalization, instance_norm, "", "tc_instance_norm")                                \
    X(IsInf, is_inf, "", "tc_isinf, with the sign")                                                \
    X(IsNaN, direct, "isnan", "tc_isnan")                                                          \
    X(LRN, lrn, "", "windows of channels by tc_unfold")                                            \
    X(LSTM, rnn, "4", "tc_scan; both directions, lengths, peepholes, activations, clip")           \
    X(LayerNormalization, layer_norm, "", "tc_layer_norm; mean and 1 / deviation by tc_var_mean")  \
    X(LeakyRelu, leaky_relu, "", "tc_leaky_relu")                                                  \
    X(Less, binary, "lt", "tc_lt")                                                                 \
    X(LessOrEqual, binary, "le", "tc_le")                                                          \
    X(LinearAttention, linear_attention, "", "tc_scan")                                            \
    X(Log, direct, "log", "tc_log")                                                                \
    X(LogSoftmax, log_softmax, "", "tc_log_softmax")                                               \
    X(Loop, loop, "", "unrolled, tc_scan or tc_while; stacked results need a known count")         \
    X(LpNormalization, lp_norm, "", "tc_norm and tc_div")                                          \
    X(LpPool, lp_pool, "", "windows by tc_unfold")                                                 \
    X(MatMul, binary, "matmul", "tc_matmul")                                                       \
    X(MatMulInteger, matmul_integer, "", "tc_matmul in i32")                                       \
    X(Max, variadic, "maximum", "tc_maximum")                                                      \
    X(MaxPool, max_pool, "", "tc_max_pool1d to 3d; unequal padding and ceil_mode by tc_pad")       \
    X(MaxUnpool, max_unpool, "", "tc_scatter into zeros")                                          \
    X(Mean, mean_of, "", "tc_add and tc_div")                                                      \
    X(MeanVarianceNormalization, mean_variance, "", "tc_var_mean")                                 \
    X(MelWeightMatrix, mel, "", "computed at import")                                              \
    X(Min, variadic, "minimum", "tc_minimum")                                                      \
    X(Mish, direct, "mish", "tc_mish")                                                             \
    X(Mod, mod, "", "tc_remainder, tc_fmod")                                                       \
    X(Mul, binary, "mul", "tc_mul")                                                                \
    X(Neg, direct, "neg", "tc_neg")                                                                \
    X(NegativeLogLikelihoodLoss, nll_loss, "", "tc_gather of the target's class, weighted")        \
    X(NonZero, non_zero, "", "tc_nonzero; an output with a count")                                 \
    X(Not, direct, "logical_not", "tc_logical_not")                                                \
    X(OneHot, one_hot, "", "comparison with places")                                               \
    X(Or, binary, "logical_or", "tc_logical_or")                                                   \
    X(PRelu, prelu, "", "tc_where")                                                                \
    X(Pad, pad, "", "tc_pad, tc_pad_mode")                                                         \
    X(Pow, pow, "", "tc_pow, in the dtype of the base")                                            \
    X(QLinearConv, qlinear_conv, "", "tc_conv1d to 3d in i32, scaled in f32")                      \
    X(QLinearMatMul, qlinear_matmul, "", "tc_matmul in i32, scaled in f32")                        \
    X(QuantizeLinear, quantize, "", "f32 arithmetic, saturated; per axis and in blocks")           \
    X(RMSNormalization, rms_norm, "", "tc_rms_norm")                                               \
    X(RNN, rnn, "1", "tc_scan; both directions, lengths, activations, clip")                       \
    X(Range, range, "", "tc_arange; its numbers are known at import")                              \
    X(Reciprocal, direct, "reciprocal", "tc_reciprocal")                                           \
    X(ReduceL1, reduce, "l1", "tc_abs, tc_sum")                                                    \
    X(ReduceL2, reduce, "l2", "tc_square, tc_sum, tc_sqrt")                                        \
    X(ReduceLogSum, reduce, "log_sum", "tc_sum, tc_log")                                           \
    X(ReduceLogSumExp, reduce, "logsumexp", "tc_logsumexp")                                        \
    X(ReduceMax, reduce, "max", "tc_max")                                                          \
    X(ReduceMean, reduce, "mean", "tc_mean")                                                       \
    X(ReduceMin, reduce, "min", "tc_min")                                                          \
    X(ReduceProd, reduce, "prod", "tc_prod")                                                       \
    X(ReduceSum, reduce, "sum", "tc_sum")                                                          \
    X(ReduceSumSquare, reduce, "sum_square", "tc_square, tc_sum")                                  \
    X(Relu, direct, "relu", "tc_relu")                                                             \
    X(Reshape, reshape, "", "tc_reshape; the shape is known at import")                            \
    X(Resize, resize, "",                                                                          \
      "weighted tc_index_select along each axis; symbolic sizes nearest and linear")               \
    X(ReverseSequence, reverse_sequence, "", "tc_take_along_dim")                                  \
    X(RoiAlign, roi_align, "", "bilinear samples by tc_gather; sampling_ratio above 0")            \
    X(RotaryEmbedding, rotary, "", "tc_slice, tc_mul, tc_cat")                                     \
    X(Round, direct, "round", "tc_round")                                                          \
    X(STFT, stft, "", "tc_unfold and tc_fft")                                                      \
    X(Scan, scan, "", "tc_scan; before opset 9 one for each element of the batch")                 \
    X(Scatter, scatter_elements, "", "tc_scatter")                                                 \
    X(ScatterElements, scatter_elements, "", "tc_scatter, _add, _prod, _min, _max")                \
    X(ScatterND, scatter_nd, "", "tc_scatter and the like at one index for all axes")              \
    X(Selu, selu, "", "tc_elu and tc_mul")                                                         \
    X(Shape, shape, "", "known at import, symbolic sizes too")                                     \
    X(Shrink, shrink, "", "tc_where")                                                              \
    X(Sigmoid, direct, "sigmoid", "tc_sigmoid")                                                    \
    X(Sign, direct, "sign", "tc_sign")                                                             \
    X(Sin, direct, "sin", "tc_sin")                                                                \
    X(Sinh, direct, "sinh", "tc_sinh")                                                             \
    X(Size, size, "", "known at import, symbolic sizes too")                                       \
    X(Slice, slice, "", "tc_slice")                                                                \
    X(Softmax, softmax, "", "tc_softmax")                                                          \
    X(SoftmaxCrossEntropyLoss, cross_entropy, "",                                                  \
      "tc_log_softmax, then as NegativeLogLikelihoodLoss")                                         \
    X(Softplus, direct, "log1pexp", "tc_log1pexp")                                                 \
    X(Softsign, softsign, "", "tc_div")                                                            \
    X(SpaceToDepth, space_to_depth, "", "tc_reshape and tc_permute")                               \
    X(Split, split, "", "tc_slice")                                                                \
    X(Sqrt, direct, "sqrt", "tc_sqrt")                                                             \
    X(Squeeze, squeeze, "", "tc_reshape")                                                          \
    X(Sub, binary, "sub", "tc_sub")                                                                \
    X(Sum, variadic, "add", "tc_add")                                                              \
    X(SwiGLU, swiglu, "", "tc_silu and tc_mul")                                                    \
    X(Swish, swish, "", "tc_silu")                                                                 \
    X(Tan, direct, "tan", "tc_tan")                                                                \
    X(Tanh, direct, "tanh", "tc_tanh")                                                             \
    X(TensorScatter, tensor_scatter, "", "tc_scatter")                                             \
    X(ThresholdedRelu, thresholded_relu, "", "tc_where")                                           \
    X(Tile, tile, "", "tc_tile")                                                                   \
    X(TopK, top_k, "", "tc_topk")                                                                  \
    X(Transpose, transpose, "", "tc_permute")                                                      \
    X(Trilu, trilu, "", "tc_tril, tc_triu")                                                        \
    X(Unique, unique, "", "tc_unique; outputs with a count")                                       \
    X(Unsqueeze, unsqueeze, "", "tc_reshape")                                                      \
    X(Upsample, resize, "", "as Resize before opset 11")                                           \
    X(Where, where, "", "tc_where")                                                                \
    X(Xor, binary, "logical_xor", "tc_logical_xor")

typedef struct tci_ox_row {
    const char *name;
    void (*make)(tci_ox_op *o);
    const char *call, *how;
} tci_ox_row;

#define TCI_OX_MAKE(name) TCI_FN void tci_ox_make_##name(tci_ox_op *o)
#define TCI_ROW(name, make, call, how) TCI_OX_MAKE(make);
TCI_OX_ROWS(TCI_ROW)
#undef TCI_ROW

TCI_FN const tci_ox_row *tci_ox_rows(void);
TCI_FN int tci_ox_n_rows(void);

#endif

/* ---- src/onnx/import_elementwise.c, continued ---- */
#include <string.h>

/* Before opset 7 operand 1 had the axes of operand 0 from `axis` on, and only if `broadcast`. */
static tc_tensor tci_ox_second(const tci_ox_op *o)
{
    tc_tensor a = tci_ox_in(o, 0), b = tci_ox_in(o, 1);
    if (o->opset >= 7 || !tci_ox_int(o, "broadcast", 0) || !tci_ox_attr(o, "axis")) {
        return b;
    }
    int rank_a = tc_rank(a), rank_b;
    const int64_t *sizes = tci_ox_sizes(o, b, &rank_b);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", 0), rank_a);
    int64_t *wide = TCI_NEW_ARRAY(o->s, int64_t, rank_a + 1);
    if (axis + rank_b > rank_a) {
        tci_ox_fail(o, TC_ERR_SHAPE, "operand 1 has more axes than operand 0 from axis %d on",
                    axis);
    }
    for (int i = 0; i < rank_a - axis; i++) {
        wide[i] = i < rank_b ? sizes[i] : 1;
    }
    return tci_ox_shape_as(o, b, rank_a - axis, wide);
}

TCI_OX_MAKE(direct)
{
    tci_ox_out(o, 0, tc_op(o->ctx, o->row->call, TC_TENSORS(tci_ox_in(o, 0)), TC_ATTRS()));
}

TCI_OX_MAKE(binary)
{
    tc_tensor b = tci_ox_second(o);
    tci_ox_out(o, 0, tc_op(o->ctx, o->row->call, TC_TENSORS(tci_ox_in(o, 0), b), TC_ATTRS()));
}

/* Max, Min, Sum: of any number of operands. */
TCI_OX_MAKE(variadic)
{
    tc_tensor x = tci_ox_in(o, 0);
    for (int i = 1; i < o->n_in; i++) {
        x = tc_op(o->ctx, o->row->call, TC_TENSORS(x, tci_ox_in(o, i)), TC_ATTRS());
    }
    tci_ox_out(o, 0, x);
}

TCI_OX_MAKE(mean_of)
{
    tc_tensor x = tci_ox_in(o, 0);
    for (int i = 1; i < o->n_in; i++) {
        x = tc_add(x, tci_ox_in(o, i));
    }
    tci_ox_out(o, 0, tc_div(x, o->n_in));
}

/* Integers truncate. */
TCI_OX_MAKE(div)
{
    tc_tensor a = tci_ox_in(o, 0), b = tci_ox_second(o);
    if (tci_ox_is_float(tc_dtype_of(a))) {
        tci_ox_out(o, 0, tc_div(a, b));
    } else {
        tci_ox_out(o, 0, tc_floor_divide(tc_sub(a, tc_fmod(a, b)), b));
    }
}

TCI_OX_MAKE(mod)
{
    tc_tensor a = tci_ox_in(o, 0), b = tci_ox_in(o, 1);
    tci_ox_out(o, 0, tci_ox_int(o, "fmod", 0) ? tc_fmod(a, b) : tc_remainder(a, b));
}

/* In the dtype of the base; integers with a fraction in the exponent through f64. */
TCI_OX_MAKE(pow)
{
    tc_tensor a = tci_ox_in(o, 0), b = tci_ox_second(o);
    tc_dtype d = tc_dtype_of(a);
    if (!tci_ox_is_float(d) && tci_ox_is_float(tc_dtype_of(b))) {
        tci_ox_out(o, 0, tc_cast(tc_pow(tc_cast(a, TC_F64), tc_cast(b, TC_F64)), d));
    } else {
        tci_ox_out(o, 0, tc_cast(tc_pow(a, tc_cast(b, d)), d));
    }
}

TCI_OX_MAKE(shift)
{
    tc_tensor a = tci_ox_in(o, 0), b = tci_ox_in(o, 1);
    bool left = !strcmp(tci_ox_text(o, "direction", ""), "LEFT");
    tci_ox_out(o, 0, left ? tc_bitwise_left_shift(a, b) : tc_bitwise_right_shift(a, b));
}

/* The dtype of attribute `to`, a number or, before opset 6, a name. */
static tc_dtype tci_ox_target(const tci_ox_op *o)
{
    const tci_onnx_attr *a = tci_ox_attr(o, "to");
    for (int i = 1; a && a->kind == TCI_ONNX_STRING && i <= 16; i++) {
        if (!strcmp(tci_onnx_type_name(i), a->s)) {
            return tci_ox_dtype(o, i);
        }
    }
    return tci_ox_dtype(o, tci_ox_int(o, "to", 0));
}

TCI_OX_MAKE(cast)
{
    tci_ox_out(o, 0, tc_cast(tci_ox_in(o, 0), tci_ox_target(o)));
}

TCI_OX_MAKE(cast_like)
{
    tci_ox_out(o, 0, tc_cast(tci_ox_in(o, 0), tc_dtype_of(tci_ox_in(o, 1))));
}

TCI_OX_MAKE(bit_cast)
{
    tc_tensor x = tci_ox_in(o, 0);
    tc_dtype to = tci_ox_target(o);
    x = tc_dtype_of(x) == TC_BOOL ? tc_cast(x, TC_U8) : x;
    x = to == tc_dtype_of(x) ? x
        : to == TC_BOOL      ? tc_ne(tc_bitcast(x, TC_U8), 0)
                             : tc_bitcast(x, to);
    tci_ox_out(o, 0, x);
}

TCI_OX_MAKE(is_inf)
{
    tc_tensor x = tci_ox_in(o, 0), inf = tc_isinf(x);
    if (!tci_ox_int(o, "detect_negative", 1)) {
        inf = tc_logical_and(inf, tc_gt(x, 0));
    }
    if (!tci_ox_int(o, "detect_positive", 1)) {
        inf = tc_logical_and(inf, tc_lt(x, 0));
    }
    tci_ox_out(o, 0, inf);
}

/* ---- activations ---- */

TCI_OX_MAKE(clip)
{
    tc_tensor x = tci_ox_in(o, 0), low = tci_ox_maybe(o, 1), high = tci_ox_maybe(o, 2);
    if (tci_ox_attr(o, "min")) {
        low = tc_full(o->ctx, tci_ox_real(o, "min", 0), tc_dtype_of(x));
    }
    if (tci_ox_attr(o, "max")) {
        high = tc_full(o->ctx, tci_ox_real(o, "max", 0), tc_dtype_of(x));
    }
    low = tci_ox_given(low) ? tc_reshape_at(low, 0, NULL, o->here) : low;
    high = tci_ox_given(high) ? tc_reshape_at(high, 0, NULL, o->here) : high;
    bool any = tci_ox_given(low) || tci_ox_given(high);
    tci_ox_out(o, 0, any ? tc_clamp(x, low, high) : x);
}

TCI_OX_MAKE(leaky_relu)
{
    tci_ox_out(o, 0, tc_leaky_relu(tci_ox_in(o, 0), tci_ox_real(o, "alpha", 0.01)));
}

TCI_OX_MAKE(elu)
{
    tci_ox_out(o, 0, tc_elu(tci_ox_in(o, 0), tci_ox_real(o, "alpha", 1)));
}

TCI_OX_MAKE(celu)
{
    tci_ox_out(o, 0, tc_celu(tci_ox_in(o, 0), tci_ox_real(o, "alpha", 1)));
}

TCI_OX_MAKE(selu)
{
    const double old = o->opset < 6;
    double alpha = tci_ox_real(o, "alpha", old ? 1.6732 : 1.67326319217681884765625);
    double gamma = tci_ox_real(o, "gamma", old ? 1.0507 : 1.05070102214813232421875);
    tci_ox_out(o, 0, tc_mul(tc_elu(tci_ox_in(o, 0), alpha), gamma));
}

TCI_OX_MAKE(thresholded_relu)
{
    tc_tensor x = tci_ox_in(o, 0);
    tci_ox_out(o, 0, tc_where(tc_gt(x, tci_ox_real(o, "alpha", 1)), x, 0));
}

TCI_OX_MAKE(hard_sigmoid)
{
    tc_tensor x = tci_ox_in(o, 0);
    x = tc_add(tc_mul(x, tci_ox_real(o, "alpha", 0.2)), tci_ox_real(o, "beta", 0.5));
    tci_ox_out(o, 0, tc_clamp(x, 0, 1));
}

TCI_OX_MAKE(shrink)
{
    tc_tensor x = tci_ox_in(o, 0);
    double bias = tci_ox_real(o, "bias", 0), lambd = tci_ox_real(o, "lambd", 0.5);
    tc_tensor y = tc_where(tc_lt(x, -lambd), tc_add(x, bias),
                           tc_where(tc_gt(x, lambd), tc_sub(x, bias), 0));
    tci_ox_out(o, 0, tc_cast(y, tc_dtype_of(x)));
}

TCI_OX_MAKE(softsign)
{
    tc_tensor x = tci_ox_in(o, 0);
    tci_ox_out(o, 0, tc_div(x, tc_add(tc_abs(x), 1)));
}

TCI_OX_MAKE(gelu)
{
    tc_tensor x = tci_ox_in(o, 0);
    bool tanh = !strcmp(tci_ox_text(o, "approximate", "none"), "tanh");
    tci_ox_out(o, 0, tanh ? tc_gelu_tanh(x) : tc_gelu(x));
}

static tc_tensor tci_ox_swish_of(const tci_ox_op *o, tc_tensor x)
{
    double alpha = tci_ox_real(o, "alpha", 1);
    return alpha == 1 ? tc_silu(x) : tc_mul(x, tc_sigmoid(tc_mul(x, alpha)));
}

TCI_OX_MAKE(swish)
{
    tci_ox_out(o, 0, tci_ox_swish_of(o, tci_ox_in(o, 0)));
}

TCI_OX_MAKE(swiglu)
{
    tci_ox_out(o, 0, tc_mul(tci_ox_swish_of(o, tci_ox_in(o, 0)), tci_ox_in(o, 1)));
}

TCI_OX_MAKE(prelu)
{
    tc_tensor x = tci_ox_in(o, 0), slope = tci_ox_in(o, 1);
    int rank = tc_rank(x);
    if (o->opset < 7 && tc_rank(slope) == 1 && rank > 2 && tc_size(slope, 0) != 1) {
        int64_t *sizes = TCI_NEW_ARRAY(o->s, int64_t, rank);
        for (int i = 0; i < rank - 1; i++) {
            sizes[i] = i ? 1 : tc_size(slope, 0);
        }
        slope = tci_ox_shape_as(o, slope, rank - 1, sizes);
    }
    tci_ox_out(o, 0, tc_where(tc_lt(x, 0), tc_mul(x, slope), x));
}

TCI_OX_MAKE(where)
{
    tci_ox_out(o, 0, tc_where(tci_ox_in(o, 0), tci_ox_in(o, 1), tci_ox_in(o, 2)));
}

/* ---- along an axis ---- */

/* Before opset 13 a softmax is over all axes from `axis` on, as one. `by` takes a matrix, or the
 * tensor, and the axis. */
static void tci_ox_along(tci_ox_op *o, tc_tensor (*by)(const tci_ox_op *o, tc_tensor x, int axis))
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    int64_t axis = tci_ox_int(o, "axis", o->opset < 13 ? 1 : -1), parts[2] = {1, 1};
    if (o->opset >= 13) {
        tci_ox_out(o, 0, by(o, x, tci_ox_axis(o, axis, rank)));
        return;
    }
    axis = axis == rank ? rank : tci_ox_axis(o, axis, rank);
    for (int i = 0; i < rank; i++) {
        parts[i >= axis] = tc_dim_mul(parts[i >= axis], sizes[i]);
    }
    tci_ox_out(o, 0, tci_ox_shape_as(o, by(o, tci_ox_shape_as(o, x, 2, parts), 1), rank, sizes));
}

static tc_tensor tci_ox_softmax_by(const tci_ox_op *o, tc_tensor x, int axis)
{
    return tc_softmax(x, axis);
}

static tc_tensor tci_ox_log_softmax_by(const tci_ox_op *o, tc_tensor x, int axis)
{
    return tc_log_softmax(x, axis);
}

static tc_tensor tci_ox_hardmax_by(const tci_ox_op *o, tc_tensor x, int axis)
{
    tc_tensor place = tci_ox_places(o, tc_size(x, axis), tc_rank(x), axis);
    return tc_cast(tc_eq(tc_argmax(x, axis, true), place), tc_dtype_of(x));
}

TCI_OX_MAKE(softmax)
{
    tci_ox_along(o, tci_ox_softmax_by);
}

TCI_OX_MAKE(log_softmax)
{
    tci_ox_along(o, tci_ox_log_softmax_by);
}

TCI_OX_MAKE(hardmax)
{
    tci_ox_along(o, tci_ox_hardmax_by);
}

/* ---- products ---- */

TCI_OX_MAKE(einsum)
{
    const char *from = tci_ox_text(o, "equation", "");
    char *spec = tci_scratch_get(o->s, strlen(from) + 1), *to = spec;
    tc_tensor *xs = TCI_NEW_ARRAY(o->s, tc_tensor, o->n_in + 1);
    for (; *from; from++) {
        *to = *from;
        to += *from != ' ';
    }
    *to = 0;
    for (int i = 0; i < o->n_in; i++) {
        xs[i] = tci_ox_in(o, i);
    }
    tci_ox_out(o, 0, tc_einsum(spec, TC_TENSORS_N(xs, o->n_in)));
}

TCI_OX_MAKE(gemm)
{
    tc_tensor a = tci_ox_in(o, 0), b = tci_ox_in(o, 1), c = tci_ox_maybe(o, 2);
    double alpha = tci_ox_real(o, "alpha", 1), beta = tci_ox_real(o, "beta", 1);
    tc_dtype d = tc_dtype_of(a);
    a = tci_ox_int(o, "transA", 0) ? tc_transpose(a, 0, 1) : a;
    b = tci_ox_int(o, "transB", 0) ? tc_transpose(b, 0, 1) : b;
    tc_tensor y = tc_matmul(a, b);
    y = alpha == 1 ? y : tc_mul(y, alpha);
    if (tci_ox_given(c)) {
        y = tc_add(y, beta == 1 ? c : tc_mul(c, beta));
    }
    tci_ox_out(o, 0, tc_cast(y, d));
}
/* ---- src/onnx/import_shape.c ---- */
/* onnx/import_shape.c - imports ONNX shape, constant and movement operators (Shape, Range, Reshape,
 * Transpose, Slice, Pad, Concat). */

#include <inttypes.h>
#include <string.h>

/* ---- sizes ---- */

/* Sizes of operand 0, which need not be a tensor. */
static const int64_t *tci_ox_sizes_of(const tci_ox_op *o, int *rank)
{
    if (!tci_ox_has(o, 0)) {
        tci_ox_fail(o, TC_ERR_IO, "operand 0 is left out");
    }
    const tci_ox_value *v = o->in[0];
    if (!v->is_made && v->known) {
        *rank = v->known->rank;
        return v->known->sizes;
    }
    if (!v->is_made && v->initializer) {
        *rank = v->initializer->rank;
        return v->initializer->sizes;
    }
    return tci_ox_sizes(o, tci_ox_in(o, 0), rank);
}

TCI_OX_MAKE(shape)
{
    int rank;
    const int64_t *sizes = tci_ox_sizes_of(o, &rank);
    int64_t start = tci_ox_int(o, "start", 0), end = tci_ox_int(o, "end", rank);
    start = start < 0 ? TCI_MAX(start + rank, 0) : TCI_MIN(start, rank);
    end = end < 0 ? TCI_MAX(end + rank, 0) : TCI_MIN(end, rank);
    tci_ox_out_known(o, 0, tci_ox_known_ints(o->s, (int)TCI_MAX(end - start, 0), sizes + start));
}

TCI_OX_MAKE(size)
{
    int rank;
    const int64_t *sizes = tci_ox_sizes_of(o, &rank);
    tci_ox_known *k = tci_ox_known_new(o->s, TC_I64, 0, NULL);
    k->cells[0].i = 1;
    for (int i = 0; i < rank; i++) {
        k->cells[0].i = tc_dim_mul(k->cells[0].i, sizes[i]);
    }
    tci_ox_out_known(o, 0, k);
}

/* ---- constants ---- */

TCI_OX_MAKE(constant)
{
    const tci_onnx_attr *a = o->node->n_attrs ? &o->node->attrs[0] : NULL;
    if (a && a->kind == TCI_ONNX_TENSOR) {
        tci_ox_dtype(o, a->t->type);
        if (tci_ox_wants(o, 0)) {
            o->out[0]->initializer = tci_scratch_copy(o->s, a->t, sizeof(*a->t));
            o->out[0]->initializer->name = o->out[0]->name;
        }
        return;
    }
    bool list = a && (a->kind == TCI_ONNX_INTS || a->kind == TCI_ONNX_FLOATS);
    bool floats = a && (a->kind == TCI_ONNX_FLOATS || a->kind == TCI_ONNX_FLOAT);
    if (!a || (!list && a->kind != TCI_ONNX_INT && a->kind != TCI_ONNX_FLOAT)) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "a constant that is no dense tensor of numbers");
    }
    tci_ox_known *k = tci_ox_known_new(o->s, floats ? TC_F32 : TC_I64, list, (int64_t[]){a->n});
    for (int64_t i = 0; i < k->n; i++) {
        k->cells[i].i = floats ? 0 : list ? a->ints[i] : a->i;
        k->cells[i].f = !floats ? 0 : list ? a->floats[i] : a->f;
    }
    tci_ox_out_known(o, 0, k);
}

TCI_OX_MAKE(constant_of_shape)
{
    int n;
    const int64_t *sizes = tci_ox_need_ints(o, 0, "the shape", &n);
    const tci_onnx_attr *a = tci_ox_attr(o, "value");
    tc_tensor one = tc_full(o->ctx, 0, TC_F32);
    if (a && a->kind == TCI_ONNX_TENSOR) {
        tc_dtype dtype = tci_ox_dtype(o, a->t->type);
        if (a->t->count != 1 || a->t->place) {
            tci_ox_fail(o, TC_ERR_SHAPE, "value has not one element");
        }
        one = tci_ox_known_tensor(o, tci_ox_known_read(o->s, dtype, 0, NULL, a->t->data));
    }
    tci_ox_out(o, 0, tc_expand_at(one, n, sizes, o->here));
}

/* Floats from a known number on by 1 to a symbolic size. */
static bool tci_ox_range_symbolic(tci_ox_op *o, tc_dtype d)
{
    const tci_ox_known *limit = tci_ox_need(o, 1, "limit");
    double from = tci_ox_need_real(o, 0, "start"), by = tci_ox_need_real(o, 2, "delta");
    if (limit->n != 1 || limit->cells[0].den != 1 || from != 0 || by != 1) {
        return false;
    }
    tci_ox_out(o, 0, tc_cast(tc_arange(o->ctx, 0, limit->cells[0].i, 1, TC_I64), d));
    return true;
}

TCI_OX_MAKE(range)
{
    tc_dtype d = tc_dtype_of(tci_ox_in(o, 0));
    if (tci_ox_is_float(d) && tci_ox_range_symbolic(o, d)) {
        return;
    }
    if (tci_ox_is_float(d)) {
        double from = tci_ox_need_real(o, 0, "start"), by = tci_ox_need_real(o, 2, "delta");
        tci_ox_out(o, 0, tc_arange(o->ctx, from, tci_ox_need_real(o, 1, "limit"), by, d));
        return;
    }
    int64_t from = tci_ox_need_int(o, 0, "start"), by = tci_ox_need_int(o, 2, "delta");
    tci_ox_out(o, 0, tc_arange(o->ctx, from, tci_ox_need_int(o, 1, "limit"), by, d));
}

TCI_OX_MAKE(eye_like)
{
    tc_tensor x = tci_ox_in(o, 0);
    tc_dtype d = tci_ox_attr(o, "dtype") ? tci_ox_dtype(o, tci_ox_int(o, "dtype", 1))
                                         : tc_dtype_of(x);
    tc_tensor row = tc_add(tci_ox_places(o, tc_size(x, 0), 2, 0), tci_ox_int(o, "k", 0));
    tci_ox_out(o, 0, tc_cast(tc_eq(row, tci_ox_places(o, tc_size(x, 1), 2, 1)), d));
}

/* ---- other sizes ---- */

TCI_OX_MAKE(identity)
{
    if (tci_ox_wants(o, 0) && tci_ox_has(o, 0)) {
        const char *name = o->out[0]->name;
        *o->out[0] = *o->in[0];
        o->out[0]->name = name;
    }
}

TCI_FN const int64_t *tci_ox_list(const tci_ox_op *o, int i, const char *name, int *n)
{
    *n = 0;
    return tci_ox_has(o, i) ? tci_ox_need_ints(o, i, name, n) : tci_ox_ints(o, name, n);
}

TCI_OX_MAKE(reshape)
{
    int n, rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *want = tci_ox_list(o, 1, "shape", &n);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    int64_t *to = TCI_NEW_ARRAY(o->s, int64_t, n + 1);
    bool zero = tci_ox_int(o, "allowzero", 0) != 0;
    for (int i = 0; i < n && want; i++) {
        to[i] = want[i] == 0 && !zero && i < rank ? sizes[i] : want[i];
    }
    tci_ox_out(o, 0, tci_ox_shape_as(o, x, n, to));
}

TCI_OX_MAKE(flatten)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    int64_t axis = tci_ox_int(o, "axis", 1), parts[2] = {1, 1};
    axis = axis == rank ? rank : tci_ox_axis(o, axis, rank);
    for (int i = 0; i < rank; i++) {
        parts[i >= axis] = tc_dim_mul(parts[i >= axis], sizes[i]);
    }
    tci_ox_out(o, 0, tci_ox_shape_as(o, x, 2, parts));
}

TCI_OX_MAKE(squeeze)
{
    int n, rank, left = 0;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *axes = tci_ox_list(o, 1, "axes", &n);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    int64_t *to = TCI_NEW_ARRAY(o->s, int64_t, rank + 1);
    for (int i = 0; i < rank; i++) {
        bool goes = !axes && sizes[i] == 1;
        for (int j = 0; j < n; j++) {
            goes = goes || tci_ox_axis(o, axes[j], rank) == i;
        }
        to[left] = sizes[i];
        left += !goes;
    }
    tci_ox_out(o, 0, tci_ox_shape_as(o, x, left, to));
}

TCI_OX_MAKE(unsqueeze)
{
    int n, rank, at = 0;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *axes = tci_ox_list(o, 1, "axes", &n);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    int64_t *to = TCI_NEW_ARRAY(o->s, int64_t, rank + n + 1);
    for (int i = 0; i < rank + n; i++) {
        bool is_new = false;
        for (int j = 0; j < n; j++) {
            is_new = is_new || tci_ox_axis(o, axes[j], rank + n) == i;
        }
        to[i] = is_new || at == rank ? 1 : sizes[at++];
    }
    tci_ox_out(o, 0, tci_ox_shape_as(o, x, rank + n, to));
}

TCI_OX_MAKE(expand)
{
    int n, rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *want = tci_ox_need_ints(o, 1, "the shape", &n);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    int all = TCI_MAX(n, rank);
    int64_t *to = TCI_NEW_ARRAY(o->s, int64_t, all + 1);
    for (int i = 0; i < all; i++) {
        int64_t a = i >= all - rank ? sizes[i - (all - rank)] : 1;
        int64_t b = i >= all - n ? want[i - (all - n)] : 1;
        to[i] = b == 1 ? a : b;
    }
    tci_ox_out(o, 0, tc_expand_at(x, all, to, o->here));
}

TCI_OX_MAKE(tile)
{
    int n;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *repeats = tci_ox_need_ints(o, 1, "the repeats", &n);
    tci_ox_out(o, 0, tc_tile_at(x, n, repeats, o->here));
}

TCI_OX_MAKE(transpose)
{
    int n, rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *order = tci_ox_ints(o, "perm", &n);
    tci_ox_sizes(o, x, &rank);
    int64_t *back = TCI_NEW_ARRAY(o->s, int64_t, rank + 1);
    for (int i = 0; i < rank; i++) {
        back[i] = rank - 1 - i;
    }
    if (order && n != rank) {
        tci_ox_fail(o, TC_ERR_AXIS, "perm has %d axes of %d", n, rank);
    }
    tci_ox_out(o, 0, tci_ox_move(o, x, order ? order : back));
}

/* ---- parts ---- */

TCI_OX_MAKE(concat)
{
    int rank;
    tc_tensor *xs = TCI_NEW_ARRAY(o->s, tc_tensor, o->n_in + 1);
    for (int i = 0; i < o->n_in; i++) {
        xs[i] = tci_ox_in(o, i);
    }
    tci_ox_sizes(o, tci_ox_in(o, 0), &rank);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", 1), rank);
    tci_ox_out(o, 0, tc_cat(TC_TENSORS_N(xs, o->n_in), axis));
}

TCI_OX_MAKE(split)
{
    int n, rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *sizes = tci_ox_list(o, 1, "split", &n);
    const int64_t *all = tci_ox_sizes(o, x, &rank);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", 0), rank);
    int64_t parts = tci_ox_int(o, "num_outputs", o->n_out), at = 0;
    if (parts < 1 || (sizes && n < o->n_out)) {
        tci_ox_fail(o, TC_ERR_ARGUMENT, "%d outputs of %d parts", o->n_out, n);
    }
    int64_t each = tc_dim_div(tc_dim_add(all[axis], parts - 1), parts);
    for (int i = 0; i < o->n_out; i++) {
        int64_t end = sizes ? tc_dim_add(at, sizes[i])
                            : tc_dim_min(tc_dim_add(at, each), all[axis]);
        if (o->out[i]) {
            tci_ox_out(o, i, tc_slice(x, axis, at, end, 1));
        }
        at = end;
    }
}

/* A bound as tc_slice takes it. */
static int64_t tci_ox_bound(int64_t at, int64_t step, bool is_start)
{
    const int64_t far = INT64_C(1) << 40;
    if (!tci_dim_is_known(at) || (at < far && at > -far)) {
        return at;
    }
    if (at > 0) {
        return !is_start ? step > 0 ? TC_END : far : step > 0 ? far : -1;
    }
    return is_start ? step > 0 ? 0 : -far : step < 0 ? TC_END : 0;
}

TCI_OX_MAKE(slice)
{
    int n, n_ends, n_axes = 0, n_steps = 0, rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *starts = tci_ox_list(o, 1, "starts", &n);
    const int64_t *ends = tci_ox_list(o, 2, "ends", &n_ends);
    const int64_t *axes = tci_ox_list(o, 3, "axes", &n_axes);
    const int64_t *steps = tci_ox_list(o, 4, "steps", &n_steps);
    tci_ox_sizes(o, x, &rank);
    if (!starts || !ends || n_ends != n || (axes && n_axes != n) || (steps && n_steps != n)) {
        tci_ox_fail(o, TC_ERR_SHAPE, "starts, ends, axes and steps do not have one length");
    }
    for (int i = 0; i < n; i++) {
        int64_t step = steps ? steps[i] : 1;
        int axis = tci_ox_axis(o, axes ? axes[i] : i, rank);
        if (step < 0 && ends[i] < 0 && tci_dim_is_known(tc_size(x, axis)) &&
            ends[i] < -tc_size(x, axis)) {
            x = tc_slice(x, axis, tci_ox_bound(starts[i], step, true), TC_END, step);
            continue;
        }
        x = tc_slice(x, axis, tci_ox_bound(starts[i], step, true),
                     tci_ox_bound(ends[i], step, false), step);
    }
    tci_ox_out(o, 0, x);
}

/* Operand i as 0-d, or a number of attribute `name`. */
static tc_tensor tci_ox_pad_value(const tci_ox_op *o, tc_dtype d)
{
    if (tci_ox_has(o, 2)) {
        return tc_reshape_at(tci_ox_in(o, 2), 0, NULL, o->here);
    }
    return tc_full(o->ctx, tci_ox_real(o, "value", 0), d);
}

TCI_OX_MAKE(pad)
{
    int n, n_axes = 0, rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *pads = tci_ox_list(o, 1, o->opset < 2 ? "paddings" : "pads", &n);
    const int64_t *axes = tci_ox_has(o, 3) ? tci_ox_need_ints(o, 3, "the axes", &n_axes) : NULL;
    const char *mode = tci_ox_text(o, "mode", "constant");
    tci_ox_sizes(o, x, &rank);
    n_axes = axes ? n_axes : rank;
    if (!pads || n != 2 * n_axes) {
        tci_ox_fail(o, TC_ERR_SHAPE, "%d pads for %d axes", n, n_axes);
    }
    const char *how = !strcmp(mode, "wrap") ? "circular" : mode;
    how = !strcmp(mode, "edge") ? "replicate" : how;
    bool constant = !strcmp(mode, "constant");
    tc_tensor value = constant ? tci_ox_pad_value(o, tc_dtype_of(x)) : TC_NONE;
    for (int i = 0; i < n_axes; i++) {
        int axis = tci_ox_axis(o, axes ? axes[i] : i, rank);
        int64_t a = pads[i], b = pads[i + n_axes];
        if (a == 0 && b == 0) {
            continue;
        }
        if (constant) {
            x = tc_pad(x, axis, a, b, value);
            continue;
        }
        bool crops = (tci_dim_is_known(a) && a < 0) || (tci_dim_is_known(b) && b < 0);
        if (crops) {
            x = tc_pad(x, axis, tc_dim_min(a, 0), tc_dim_min(b, 0), 0);
        }
        x = tc_pad_mode(x, axis, crops ? tc_dim_max(a, 0) : a, crops ? tc_dim_max(b, 0) : b, how);
    }
    tci_ox_out(o, 0, x);
}

TCI_OX_MAKE(center_crop_pad)
{
    int n, n_axes, rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *want = tci_ox_need_ints(o, 1, "the shape", &n);
    const int64_t *axes = tci_ox_ints(o, "axes", &n_axes);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    for (int i = 0; i < n; i++) {
        int axis = tci_ox_axis(o, axes && i < n_axes ? axes[i] : i, rank);
        int64_t more = tc_dim_sub(want[i], sizes[axis]);
        if (tci_dim_least(more) >= 0) {
            int64_t before = tc_dim_div(more, 2);
            x = tc_pad(x, axis, before, tc_dim_sub(more, before), 0);
        } else if (tci_dim_most(more) <= 0) {
            int64_t start = tc_dim_div(tc_dim_sub(0, more), 2);
            x = tc_slice(x, axis, start, tc_dim_add(start, want[i]), 1);
        } else {
            tci_ox_fail(o, TC_ERR_UNSUPPORTED, "axis %d is cut or padded as its size says", axis);
        }
    }
    tci_ox_out(o, 0, x);
}

/* ---- blocks ---- */

TCI_OX_MAKE(depth_to_space)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *z = tci_ox_sizes(o, x, &rank), b = tci_ox_int(o, "blocksize", 0);
    if (rank != 4 || b < 1 || b > TCI_OX_LIST_MOST) {
        tci_ox_fail(o, TC_ERR_SHAPE, "%d axes in blocks of %" PRId64, rank, b);
    }
    int64_t c = tc_dim_div(z[1], b * b);
    bool crd = !strcmp(tci_ox_text(o, "mode", "DCR"), "CRD");
    tc_tensor y = crd ? tc_permute(tc_reshape(x, z[0], c, b, b, z[2], z[3]), 0, 1, 4, 2, 5, 3)
                      : tc_permute(tc_reshape(x, z[0], b, b, c, z[2], z[3]), 0, 3, 4, 1, 5, 2);
    tci_ox_out(o, 0, tc_reshape(y, z[0], c, tc_dim_mul(z[2], b), tc_dim_mul(z[3], b)));
}

TCI_OX_MAKE(space_to_depth)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *z = tci_ox_sizes(o, x, &rank), b = tci_ox_int(o, "blocksize", 0);
    if (rank != 4 || b < 1 || b > TCI_OX_LIST_MOST) {
        tci_ox_fail(o, TC_ERR_SHAPE, "%d axes in blocks of %" PRId64, rank, b);
    }
    int64_t h = tc_dim_div(z[2], b), w = tc_dim_div(z[3], b);
    tc_tensor y = tc_reshape(x, z[0], z[1], h, b, w, b);
    bool crd = !strcmp(tci_ox_text(o, "mode", "DCR"), "CRD");
    y = crd ? tc_permute(y, 0, 1, 3, 5, 2, 4) : tc_permute(y, 0, 3, 5, 1, 2, 4);
    tci_ox_out(o, 0, tc_reshape(y, z[0], tc_dim_mul(z[1], b * b), h, w));
}

TCI_OX_MAKE(trilu)
{
    tc_tensor x = tci_ox_in(o, 0);
    int64_t k = tci_ox_has(o, 1) ? tci_ox_need_int(o, 1, "k") : 0;
    tci_ox_out(o, 0, tci_ox_int(o, "upper", 1) ? tc_triu(x, k) : tc_tril(x, k));
}

TCI_OX_MAKE(dropout)
{
    tc_tensor x = tci_ox_in(o, 0);
    double ratio = tci_ox_has(o, 1) && tci_ox_has(o, 2) ? tci_ox_need_real(o, 1, "the ratio") : 0;
    if (tci_ox_has(o, 2) && tci_ox_need_int(o, 2, "training_mode") && ratio != 0) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "dropout in training draws random numbers");
    }
    tci_ox_out(o, 0, x);
    if (tci_ox_wants(o, 1)) {
        int rank;
        const int64_t *sizes = tci_ox_sizes(o, x, &rank);
        tc_dtype d = o->opset < 10 ? tc_dtype_of(x) : TC_BOOL;
        tci_ox_out(o, 1, tc_expand_at(tc_full(o->ctx, 1, d), rank, sizes, o->here));
    }
}
/* ---- src/onnx/import_reduce.c ---- */
/* onnx/import_reduce.c - imports ONNX reductions along axes: ReduceSum and its like, ArgMax,
 * CumSum, TopK. */

#include <math.h>
#include <string.h>

/* Axes of a reduction in operand 1 or, before it was one, attribute `axes`. *all: of all axes. */
static const int *tci_ox_axes(const tci_ox_op *o, int rank, int *n, bool *all)
{
    const int64_t *list = tci_ox_has(o, 1) ? tci_ox_need_ints(o, 1, "the axes", n)
                                           : tci_ox_ints(o, "axes", n);
    *n = list ? *n : 0;
    *all = *n == 0 && !tci_ox_int(o, "noop_with_empty_axes", 0);
    int *axes = TCI_NEW_ARRAY(o->s, int, *n + 1);
    for (int i = 0; i < *n; i++) {
        axes[i] = tci_ox_axis(o, list[i], rank);
    }
    return axes;
}

/* Max and Min over nothing: the least and the largest number. */
static tc_tensor tci_ox_extreme(const tci_ox_op *o, tc_tensor x, tc_axes axes, bool keeps, bool max)
{
    tc_dtype d = tc_dtype_of(x);
    int64_t n = tc_count(x);
    if (n != 0) {
        return max ? tc_max(x, axes, keeps) : tc_min(x, axes, keeps);
    }
    tc_tensor ends = tc_full(o->ctx, max ? -HUGE_VAL : HUGE_VAL, TC_F64); /* the cast saturates */
    tc_tensor shape = tc_sum(tc_cast(x, TC_F64), axes, keeps);
    return d == TC_BOOL ? tc_eq(shape, max ? 1 : 0) : tc_cast(tc_add(shape, ends), d);
}

static tc_tensor tci_ox_reduce_by(const tci_ox_op *o, const char *call, tc_tensor x, tc_axes axes,
                                  bool keeps)
{
    bool floats = tci_ox_is_float(tc_dtype_of(x));
    if (!strcmp(call, "max") || !strcmp(call, "min")) {
        return tci_ox_extreme(o, x, axes, keeps, !strcmp(call, "max"));
    } else if (!strcmp(call, "prod")) {
        return tc_prod(x, axes, keeps);
    } else if (!strcmp(call, "mean")) {
        return floats ? tc_mean(x, axes, keeps)
                      : tc_trunc(tc_mean(tc_cast(x, TC_F64), axes, keeps));
    } else if (!strcmp(call, "logsumexp")) {
        return tc_logsumexp(floats ? x : tc_cast(x, TC_F64), axes, keeps);
    } else if (!strcmp(call, "l1")) {
        return tc_sum(tc_abs(x), axes, keeps);
    } else if (!strcmp(call, "l2")) {
        return tc_sqrt(tc_sum(tc_square(floats ? x : tc_cast(x, TC_F64)), axes, keeps));
    } else if (!strcmp(call, "sum_square")) {
        return tc_sum(tc_square(x), axes, keeps);
    }
    x = tc_sum(x, axes, keeps);
    return strcmp(call, "log_sum") ? x : tc_log(floats ? x : tc_cast(x, TC_F64));
}

TCI_OX_MAKE(reduce)
{
    int n, rank;
    bool all;
    tc_tensor x = tci_ox_in(o, 0);
    tci_ox_sizes(o, x, &rank);
    const int *list = tci_ox_axes(o, rank, &n, &all);
    tc_axes axes = all ? TC_ALL : TC_AXES_N(list, n);
    bool keeps = tci_ox_int(o, "keepdims", 1) != 0;
    tci_ox_out(o, 0, tc_cast(tci_ox_reduce_by(o, o->row->call, x, axes, keeps), tc_dtype_of(x)));
}

TCI_OX_MAKE(arg)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0);
    tci_ox_sizes(o, x, &rank);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", 0), rank);
    bool keeps = tci_ox_int(o, "keepdims", 1) != 0, max = !strcmp(o->row->call, "argmax");
    bool last = tci_ox_int(o, "select_last_index", 0) != 0;
    x = last ? tc_flip(x, axis) : x;
    tc_tensor at = max ? tc_argmax(x, axis, keeps) : tc_argmin(x, axis, keeps);
    tci_ox_out(o, 0, last ? tc_sub(tc_dim_sub(tc_size(x, axis), 1), at) : at);
}

TCI_OX_MAKE(cumulative)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0);
    tc_dtype d = tc_dtype_of(x);
    tci_ox_sizes(o, x, &rank);
    int axis = tci_ox_axis(o, tci_ox_need_int(o, 1, "the axis"), rank);
    bool back = tci_ox_int(o, "reverse", 0) != 0, sum = !strcmp(o->row->call, "cumsum");
    x = back ? tc_flip(x, axis) : x;
    if (tci_ox_int(o, "exclusive", 0)) {
        x = tc_slice(x, axis, 0, tc_dim_sub(tc_size(x, axis), 1), 1);
        x = tc_pad(x, axis, 1, 0, sum ? 0 : 1);
    }
    x = sum ? tc_cumsum(x, axis) : tc_cumprod(x, axis);
    tci_ox_out(o, 0, tc_cast(back ? tc_flip(x, axis) : x, d));
}

TCI_OX_MAKE(top_k)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0), values, places;
    tci_ox_sizes(o, x, &rank);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", -1), rank);
    int64_t k = tci_ox_has(o, 1) ? tci_ox_need_int(o, 1, "k") : tci_ox_int(o, "k", 1);
    tc_topk(x, axis, k, tci_ox_int(o, "largest", 1) != 0, &values, &places);
    tci_ox_out(o, 0, values);
    tci_ox_out(o, 1, places);
}
/* ---- src/onnx/import_normalization.c ---- */
/* onnx/import_normalization.c - imports ONNX normalization layers: batch, instance, layer, RMS,
 * group and local response normalization. */

#include <inttypes.h>

TCI_OX_MAKE(batch_norm)
{
    tc_tensor x = tci_ox_in(o, 0), scale = tci_ox_in(o, 1), bias = tci_ox_in(o, 2);
    tc_tensor mean = tci_ox_in(o, 3), var = tci_ox_in(o, 4);
    double eps = tci_ox_real(o, "epsilon", 1e-5), momentum = tci_ox_real(o, "momentum", 0.9);
    tc_dtype d = tc_dtype_of(x);
    if (o->opset < 7 && !tci_ox_int(o, "is_test", 0) && tci_ox_wants(o, 1)) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "training before opset 14 is not supported");
    }
    bool training = tci_ox_int(o, "training_mode", 0) != 0;
    tci_ox_out(o, 0,
               tc_batch_norm(x, tc_cast(mean, d), tc_cast(var, d), tc_cast(scale, d),
                             tc_cast(bias, d), training, eps));
    if (training && (tci_ox_wants(o, 1) || tci_ox_wants(o, 2))) {
        int rank, n = 0;
        tc_tensor now_var, now_mean;
        tci_ox_sizes(o, x, &rank);
        int *axes = TCI_NEW_ARRAY(o->s, int, rank);
        for (int i = 0; i < rank; i++) {
            axes[n] = i;
            n += i != 1;
        }
        tc_var_mean(x, TC_AXES_N(axes, n), 0, false, &now_var, &now_mean);
        tci_ox_out(o, 1, tc_add(tc_mul(mean, momentum), tc_mul(now_mean, 1 - momentum)));
        tci_ox_out(o, 2, tc_add(tc_mul(var, momentum), tc_mul(now_var, 1 - momentum)));
    }
}

TCI_OX_MAKE(instance_norm)
{
    tc_tensor x = tci_ox_in(o, 0);
    tci_ox_out(o, 0,
               tc_instance_norm(x, tci_ox_in(o, 1), tci_ox_in(o, 2),
                                tci_ox_real(o, "epsilon", 1e-5)));
}

/* Axes from `axis` on. */
static const int *tci_ox_axes_from(const tci_ox_op *o, tc_tensor x, int *n)
{
    int rank;
    tci_ox_sizes(o, x, &rank);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", -1), rank);
    int *axes = TCI_NEW_ARRAY(o->s, int, rank);
    *n = rank - axis;
    for (int i = 0; i < *n; i++) {
        axes[i] = axis + i;
    }
    return axes;
}

TCI_OX_MAKE(layer_norm)
{
    int n;
    tc_tensor x = tci_ox_in(o, 0), scale = tci_ox_in(o, 1), bias = tci_ox_maybe(o, 2);
    const int *axes = tci_ox_axes_from(o, x, &n);
    double eps = tci_ox_real(o, "epsilon", 1e-5);
    tc_tensor y = tc_layer_norm(x, TC_AXES_N(axes, n), TC_NONE, TC_NONE, eps);
    y = tc_mul(y, scale);
    tci_ox_out(o, 0, tc_cast(tci_ox_given(bias) ? tc_add(y, bias) : y, tc_dtype_of(x)));
    if (tci_ox_wants(o, 1) || tci_ox_wants(o, 2)) {
        tc_tensor var, mean;
        tc_dtype d = tci_ox_dtype(o, tci_ox_int(o, "stash_type", 1));
        tc_var_mean(tc_cast(x, d), TC_AXES_N(axes, n), 0, true, &var, &mean);
        tci_ox_out(o, 1, mean);
        tci_ox_out(o, 2, tc_rsqrt(tc_add(var, eps)));
    }
}

TCI_OX_MAKE(rms_norm)
{
    int n;
    tc_tensor x = tci_ox_in(o, 0), scale = tci_ox_in(o, 1);
    const int *axes = tci_ox_axes_from(o, x, &n);
    tc_dtype d = tci_ox_dtype(o, tci_ox_int(o, "stash_type", 1));
    tc_tensor y = tc_rms_norm(tc_cast(x, d), TC_AXES_N(axes, n), TC_NONE,
                              tci_ox_real(o, "epsilon", 1e-5));
    tci_ox_out(o, 0, tc_mul(tc_cast(y, tc_dtype_of(x)), scale));
}

TCI_OX_MAKE(group_norm)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0), scale = tci_ox_in(o, 1), bias = tci_ox_in(o, 2);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    int64_t groups = tci_ox_int(o, "num_groups", 1);
    if (rank < 2 || groups < 1) {
        tci_ox_fail(o, TC_ERR_SHAPE, "%d axes in %" PRId64 " groups", rank, groups);
    }
    if (o->opset < 21) { /* one scale for each group */
        int64_t each = tc_dim_div(sizes[1], groups);
        scale = tc_repeat_interleave(scale, each, 0, sizes[1]);
        bias = tc_repeat_interleave(bias, each, 0, sizes[1]);
    }
    tci_ox_out(o, 0, tc_group_norm(x, groups, scale, bias, tci_ox_real(o, "epsilon", 1e-5)));
}

/* A window of channels is size - 1 - (size - 1) / 2 to the right: pools pad so on the left. */
TCI_OX_MAKE(lrn)
{
    tc_tensor x = tci_ox_in(o, 0);
    int64_t size = tci_ox_int(o, "size", 1);
    double alpha = tci_ox_real(o, "alpha", 1e-4), k = tci_ox_real(o, "bias", 1);
    if (size < 1 || size > 4096) {
        tci_ox_fail(o, TC_ERR_ARGUMENT, "size %" PRId64, size);
    }
    tc_tensor sum = tc_pad(tc_square(x), 1, (size - 1) / 2, size - 1 - (size - 1) / 2, 0);
    sum = tc_sum(tc_unfold(sum, 1, size, 1), TC_AXES(-1), false);
    sum = tc_add(tc_mul(sum, alpha / (double)size), k);
    tci_ox_out(o, 0, tc_div(x, tc_pow(sum, tci_ox_real(o, "beta", 0.75))));
}

TCI_OX_MAKE(lp_norm)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0);
    tci_ox_sizes(o, x, &rank);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", -1), rank);
    tc_tensor norm = tc_norm(x, (double)tci_ox_int(o, "p", 2), TC_AXES(axis), true);
    tci_ox_out(o, 0, tc_where(tc_eq(norm, 0), 0, tc_div(x, norm)));
}

TCI_OX_MAKE(mean_variance)
{
    int n, rank;
    tc_tensor x = tci_ox_in(o, 0), var, mean;
    const int64_t *list = tci_ox_ints(o, "axes", &n);
    static const int64_t usual[] = {0, 2, 3};
    tci_ox_sizes(o, x, &rank);
    n = list ? n : 3;
    int *axes = TCI_NEW_ARRAY(o->s, int, n + 1);
    for (int i = 0; i < n; i++) {
        axes[i] = tci_ox_axis(o, (list ? list : usual)[i], rank);
    }
    tc_var_mean(x, TC_AXES_N(axes, n), 0, true, &var, &mean);
    tci_ox_out(o, 0, tc_div(tc_sub(x, mean), tc_add(tc_sqrt(var), 1e-9)));
}
/* ---- src/onnx/import_losses.c ---- */
/* onnx/import_losses.c - imports ONNX loss functions: NegativeLogLikelihoodLoss and
 * SoftmaxCrossEntropyLoss. */

#include <string.h>

static tc_reduction tci_ox_reduction(const tci_ox_op *o)
{
    const char *r = tci_ox_text(o, "reduction", "mean");
    return !strcmp(r, "none") ? TC_REDUCE_NONE : !strcmp(r, "sum") ? TC_REDUCE_SUM : TC_REDUCE_MEAN;
}

/* Classes that do not count must be indices all the same: they become class 0 with weight 0. */
static tc_tensor tci_ox_loss(const tci_ox_op *o, tc_tensor logs)
{
    tc_tensor target = tc_cast(tci_ox_in(o, 1), TC_I64), weight = tci_ox_maybe(o, 2);
    int64_t ignored = tci_ox_int(o, "ignore_index", INT64_MIN);
    tc_reduction how = tci_ox_reduction(o);
    tc_tensor counts = tc_ne(target, ignored);
    target = tc_where(counts, target, 0);
    tc_tensor at = tc_gather(logs, 1, tc_unsqueeze(target, 1));
    at = tc_neg(tc_squeeze(at, 1));
    tc_tensor w = tc_cast(counts, tc_dtype_of(logs));
    if (tci_ox_given(weight)) {
        int rank;
        const int64_t *sizes = tci_ox_sizes(o, target, &rank);
        tc_tensor each = tc_index_select(weight, 0, tc_reshape(target, tc_count(target)));
        w = tc_mul(w, tci_ox_shape_as(o, each, rank, sizes));
    }
    tc_tensor loss = tc_mul(at, w);
    if (how == TC_REDUCE_NONE) {
        return loss;
    }
    loss = tc_sum(loss, TC_ALL, false);
    return how == TC_REDUCE_SUM ? loss : tc_div(loss, tc_sum(w, TC_ALL, false));
}

TCI_OX_MAKE(nll_loss)
{
    tci_ox_out(o, 0, tci_ox_loss(o, tci_ox_in(o, 0)));
}

TCI_OX_MAKE(cross_entropy)
{
    tc_tensor logs = tc_log_softmax(tci_ox_in(o, 0), 1);
    tci_ox_out(o, 0, tci_ox_loss(o, logs));
    tci_ox_out(o, 1, logs);
}
/* ---- src/onnx/import_indexing.c ---- */
/* onnx/import_indexing.c - imports ONNX gather and scatter operators, and those whose output size
 * depends on values. */

#include <inttypes.h>
#include <string.h>

/* One axis of all elements. */
static tc_tensor tci_ox_flat(const tci_ox_op *o, tc_tensor x)
{
    return tc_reshape(x, tc_count(x));
}

static int64_t tci_ox_product(const int64_t *sizes, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++) {
        n = tc_dim_mul(n, sizes[i]);
    }
    return n;
}

TCI_OX_MAKE(gather)
{
    int rank, rank_at, n = 0;
    tc_tensor x = tci_ox_in(o, 0), at = tci_ox_in(o, 1);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank), *places = tci_ox_sizes(o, at, &rank_at);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", 0), rank);
    int64_t *to = TCI_NEW_ARRAY(o->s, int64_t, rank + rank_at);
    for (int i = 0; i < rank; i++) {
        for (int j = 0; j < rank_at && i == axis; j++) {
            to[n++] = places[j];
        }
        if (i != axis) {
            to[n++] = sizes[i];
        }
    }
    const tci_ox_known *known = tci_ox_known_of(o, o->in[1]);
    if (known && known->n == 1 && tci_dim_is_known(known->cells[0].i)) {
        int64_t i = known->cells[0].i;
        i = i < 0 ? tc_dim_add(sizes[axis], i) : i;
        x = tc_slice(x, axis, i, tc_dim_add(i, 1), 1);
    } else {
        x = tc_index_select(x, axis, tci_ox_flat(o, at));
    }
    tci_ox_out(o, 0, tci_ox_shape_as(o, x, n, to));
}

TCI_OX_MAKE(gather_elements)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0);
    tci_ox_sizes(o, x, &rank);
    tci_ox_out(o, 0, tc_gather(x, tci_ox_axis(o, tci_ox_int(o, "axis", 0), rank), tci_ox_in(o, 1)));
}

/* Indices [..., k] into the axes of x from `first` on as one index into them as one axis. */
static tc_tensor tci_ox_flat_index(const tci_ox_op *o, tc_tensor at, const int64_t *sizes,
                                   int first, int k)
{
    tc_tensor sum = TC_NONE;
    for (int i = 0; i < k; i++) {
        tc_tensor one = tc_cast(tc_select(at, -1, i), TC_I64);
        one = tc_where(tc_lt(one, 0), tc_add(one, sizes[first + i]), one);
        one = tc_mul(one, tci_ox_product(sizes, first + i + 1, first + k));
        sum = i ? tc_add(sum, one) : one;
    }
    return sum;
}

/* How many axes an element of `at` indexes, at most `most`. */
static int tci_ox_index_size(const tci_ox_op *o, int rank_at, const int64_t *at, int most)
{
    int64_t k = rank_at > 0 ? at[rank_at - 1] : 0;
    if (!tci_dim_is_known(k) || k < 1 || k > most) {
        tci_ox_fail(o, TC_ERR_SHAPE, "indices do not fit the axes of operand 0");
    }
    return (int)k;
}

TCI_OX_MAKE(gather_nd)
{
    int rank, rank_at, n = 0;
    tc_tensor x = tci_ox_in(o, 0), at = tci_ox_in(o, 1);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank), *places = tci_ox_sizes(o, at, &rank_at);
    int64_t batches = tci_ox_int(o, "batch_dims", 0);
    if (batches < 0 || batches >= rank_at) {
        tci_ox_fail(o, TC_ERR_SHAPE, "batch_dims %" PRId64 " of indices of %d axes", batches,
                    rank_at);
    }
    int b = (int)batches, k = tci_ox_index_size(o, rank_at, places, rank - b);
    int64_t *to = TCI_NEW_ARRAY(o->s, int64_t, rank + rank_at);
    int64_t batch = tci_ox_product(sizes, 0, b), each = tci_ox_product(sizes, b, b + k);
    for (int i = 0; i < rank_at - 1; i++) {
        to[n++] = places[i];
    }
    for (int i = b + k; i < rank; i++) {
        to[n++] = sizes[i];
    }
    tc_tensor flat = tci_ox_flat_index(o, at, sizes, b, k);
    if (b) {
        flat = tc_reshape(flat, batch, -1);
        flat = tc_add(flat, tc_mul(tci_ox_places(o, batch, 2, 0), each));
    }
    x = tc_reshape(x, tc_dim_mul(batch, each), tci_ox_product(sizes, b + k, rank));
    tci_ox_out(o, 0, tci_ox_shape_as(o, tc_index_select(x, 0, tci_ox_flat(o, flat)), n, to));
}

static tc_tensor tci_ox_scatter_by(const tci_ox_op *o, tc_tensor x, int axis, tc_tensor at,
                                   tc_tensor src)
{
    const char *how = tci_ox_text(o, "reduction", "none");
    src = tc_cast(src, tc_dtype_of(x));
    return !strcmp(how, "add")   ? tc_scatter_add(x, axis, at, src)
           : !strcmp(how, "mul") ? tc_scatter_prod(x, axis, at, src)
           : !strcmp(how, "min") ? tc_scatter_min(x, axis, at, src)
           : !strcmp(how, "max") ? tc_scatter_max(x, axis, at, src)
                                 : tc_scatter(x, axis, at, src);
}

TCI_OX_MAKE(scatter_elements)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0);
    tci_ox_sizes(o, x, &rank);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", 0), rank);
    tci_ox_out(o, 0, tci_ox_scatter_by(o, x, axis, tci_ox_in(o, 1), tci_ox_in(o, 2)));
}

TCI_OX_MAKE(scatter_nd)
{
    int rank, rank_at;
    tc_tensor x = tci_ox_in(o, 0), at = tci_ox_in(o, 1), src = tci_ox_in(o, 2);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank), *places = tci_ox_sizes(o, at, &rank_at);
    int k = tci_ox_index_size(o, rank_at, places, rank);
    int64_t rows = tci_ox_product(places, 0, rank_at - 1), rest = tci_ox_product(sizes, k, rank);
    tc_tensor flat = tc_reshape(tci_ox_flat_index(o, at, sizes, 0, k), rows, 1);
    flat = tc_expand(flat, rows, rest);
    x = tc_reshape(x, tci_ox_product(sizes, 0, k), rest);
    x = tci_ox_scatter_by(o, x, 0, flat, tc_reshape(src, rows, rest));
    tci_ox_out(o, 0, tci_ox_shape_as(o, x, rank, sizes));
}

/* A cache with an update written along an axis, from an index of each batch on. */
TCI_OX_MAKE(tensor_scatter)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0), src = tci_ox_in(o, 1), from = tci_ox_maybe(o, 2);
    tci_ox_sizes(o, x, &rank);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", -2), rank);
    const int64_t *sizes = tci_ox_sizes(o, src, &rank);
    tc_tensor at = tci_ox_places(o, sizes[axis], rank, axis);
    if (tci_ox_given(from)) {
        int64_t *batch = TCI_NEW_ARRAY(o->s, int64_t, rank);
        for (int i = 0; i < rank; i++) {
            batch[i] = i ? 1 : sizes[0];
        }
        at = tc_add(at, tci_ox_shape_as(o, tc_cast(from, TC_I64), rank, batch));
    }
    if (!strcmp(tci_ox_text(o, "mode", "linear"), "circular")) {
        at = tc_remainder(at, tc_size(x, axis));
    }
    tci_ox_out(o, 0, tc_scatter(x, axis, tc_expand_at(at, rank, sizes, o->here), src));
}

TCI_OX_MAKE(one_hot)
{
    int rank;
    tc_tensor at = tc_cast(tci_ox_in(o, 0), TC_I64), values = tci_ox_in(o, 2);
    int64_t depth = (int64_t)tci_ox_need_real(o, 1, "depth");
    tci_ox_sizes(o, at, &rank);
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", -1), rank + 1);
    at = tc_unsqueeze(tc_where(tc_lt(at, 0), tc_add(at, depth), at), axis);
    tc_tensor on = tc_eq(at, tci_ox_places(o, depth, rank + 1, axis));
    tci_ox_out(o, 0, tc_where(on, tc_select(values, 0, 1), tc_select(values, 0, 0)));
}

TCI_OX_MAKE(reverse_sequence)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0), lengths = tc_cast(tci_ox_in(o, 1), TC_I64);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    int batch = tci_ox_axis(o, tci_ox_int(o, "batch_axis", 1), rank);
    int time = tci_ox_axis(o, tci_ox_int(o, "time_axis", 0), rank);
    int64_t *wide = TCI_NEW_ARRAY(o->s, int64_t, rank);
    for (int i = 0; i < rank; i++) {
        wide[i] = i == batch ? sizes[i] : 1;
    }
    lengths = tci_ox_shape_as(o, lengths, rank, wide);
    tc_tensor t = tci_ox_places(o, sizes[time], rank, time);
    t = tc_where(tc_lt(t, lengths), tc_sub(tc_sub(lengths, 1), t), t);
    tci_ox_out(o, 0, tc_take_along_dim(x, t, time));
}

/* ---- sizes that follow from values ---- */

TCI_OX_MAKE(non_zero)
{
    tc_tensor x = tci_ox_in(o, 0), at, count;
    tc_nonzero(x, tc_count(x), &at, &count);
    tci_ox_out_counted(o, 0, tc_transpose(at, 0, 1), count, 1);
}

TCI_OX_MAKE(compress)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0), condition = tci_ox_in(o, 1), at, count;
    tci_ox_sizes(o, x, &rank);
    bool flat = !tci_ox_attr(o, "axis");
    x = flat ? tci_ox_flat(o, x) : x;
    int axis = flat ? 0 : tci_ox_axis(o, tci_ox_int(o, "axis", 0), rank);
    tc_nonzero(condition, tc_count(condition), &at, &count);
    tci_ox_out_counted(o, 0, tc_index_select(x, axis, tci_ox_flat(o, at)), count, axis);
}

/* Unsorted: in the order in which the first of equal ones come. */
TCI_OX_MAKE(unique)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0), values, inverse, counts, count;
    tci_ox_sizes(o, x, &rank);
    bool flat = !tci_ox_attr(o, "axis");
    x = flat ? tci_ox_flat(o, x) : x;
    int axis = flat ? 0 : tci_ox_axis(o, tci_ox_int(o, "axis", 0), rank);
    int64_t n = tc_size(x, axis);
    tc_unique(x, axis, n, &values, &inverse, &counts, &count);
    tc_tensor first = tc_expand(tc_full(o->ctx, n, TC_I64), n);
    first = tc_scatter_min(first, 0, inverse, tci_ox_places(o, n, 1, 0));
    if (!tci_ox_int(o, "sorted", 1)) {
        tc_tensor order = tc_argsort(first, 0, false);
        values = tc_index_select(values, axis, order);
        counts = tc_index_select(counts, 0, order);
        first = tc_index_select(first, 0, order);
        inverse = tc_index_select(tc_argsort(order, 0, false), 0, inverse);
    }
    tci_ox_out_counted(o, 0, values, count, axis);
    tci_ox_out_counted(o, 1, first, count, 0);
    tci_ox_out(o, 2, inverse);
    tci_ox_out_counted(o, 3, counts, count, 0);
}
/* ---- src/onnx/import_conv_pool.c ---- */
/* onnx/import_conv_pool.c - imports ONNX sliding-window operators: convolution, pooling, unpooling,
 * col2im.
 *
 * Image axes are those after the first two. If a call of tc fits the node it is used; otherwise
 * padding is explicit, and pools reduce windows axis by axis. */

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Windows along the axes of an image. */
typedef struct tci_ox_window_args {
    int n;                /* axes */
    const int64_t *sizes; /* of all axes of x */
    int64_t kernel[3], stride[3], dilation[3], before[3], after[3];
    bool ceil;
} tci_ox_window_args;

static void tci_ox_fill(const tci_ox_op *o, const char *name, int n, int64_t *to, int64_t usual)
{
    int given;
    const int64_t *list = tci_ox_ints(o, name, &given);
    if (list && given != n) {
        tci_ox_fail(o, TC_ERR_SHAPE, "%s has %d numbers: expected %d", name, given, n);
    }
    for (int i = 0; i < n; i++) {
        to[i] = list ? list[i] : usual;
    }
}

/* kernel NULL: attribute kernel_shape. */
static tci_ox_window_args tci_ox_window_args_of(const tci_ox_op *o, tc_tensor x,
                                                const int64_t *kernel)
{
    int rank;
    tci_ox_window_args w = {.sizes = tci_ox_sizes(o, x, &rank)};
    int64_t pads[6];
    const char *pad = tci_ox_text(o, "auto_pad", "NOTSET");
    w.n = rank - 2;
    if (w.n < 1 || w.n > 3) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "windows over %d axes: expected 1 to 3", w.n);
    }
    tci_ox_fill(o, "strides", w.n, w.stride, 1);
    tci_ox_fill(o, "dilations", w.n, w.dilation, 1);
    tci_ox_fill(o, "pads", 2 * w.n, pads, 0);
    w.ceil = tci_ox_int(o, "ceil_mode", 0) != 0;
    if (kernel) {
        memcpy(w.kernel, kernel, sizeof(*kernel) * (size_t)w.n);
    } else {
        tci_ox_fill(o, "kernel_shape", w.n, w.kernel, 0);
    }
    for (int i = 0; i < w.n; i++) {
        bool same = !strncmp(pad, "SAME", 4);
        int64_t size = w.sizes[i + 2], span = (w.kernel[i] - 1) * w.dilation[i] + 1;
        w.before[i] = strcmp(pad, "VALID") ? pads[i] : 0;
        w.after[i] = strcmp(pad, "VALID") ? pads[i + w.n] : 0;
        if (w.kernel[i] < 1 || w.stride[i] < 1 || w.dilation[i] < 1 || w.kernel[i] > 1 << 20 ||
            w.stride[i] > 1 << 20 || w.dilation[i] > 1 << 20) {
            tci_ox_fail(o, TC_ERR_ARGUMENT, "a window, stride or dilation is not above 0");
        }
        if (same) {
            int64_t steps = tc_dim_div(tc_dim_add(size, w.stride[i] - 1), w.stride[i]);
            int64_t all = tc_dim_add(tc_dim_mul(tc_dim_sub(steps, 1), w.stride[i]), span);
            all = tc_dim_max(tc_dim_sub(all, size), 0);
            int64_t half = tc_dim_div(all, 2), rest = tc_dim_sub(all, half);
            w.before[i] = strcmp(pad, "SAME_LOWER") ? half : rest;
            w.after[i] = strcmp(pad, "SAME_LOWER") ? rest : half;
        }
    }
    return w;
}

static tc_tensor tci_ox_pad_windows(const tci_ox_op *o, tc_tensor x, const tci_ox_window_args *w,
                                    double value)
{
    for (int i = 0; i < w->n; i++) {
        if (w->before[i] != 0 || w->after[i] != 0) {
            x = tc_pad(x, i + 2, w->before[i], w->after[i], value);
        }
    }
    return x;
}

/* ---- convolutions ---- */

static tc_tensor tci_ox_conv_args(const tci_ox_op *o, tc_tensor x, tc_tensor weight, tc_tensor bias)
{
    int rank;
    const int64_t *sizes = tci_ox_sizes(o, weight, &rank);
    if (rank < 3 || tc_rank(x) != rank) {
        tci_ox_fail(o, TC_ERR_SHAPE, "x has %d axes, the weight %d", tc_rank(x), rank);
    }
    tci_ox_window_args w = tci_ox_window_args_of(o, x, sizes + 2);
    tc_conv c = {.groups = tci_ox_int(o, "group", 1)};
    bool plain = true;
    for (int i = 0; i < w.n; i++) {
        plain = plain && tci_dim_is_known(w.before[i]) && tci_dim_is_known(w.after[i]) &&
                w.before[i] >= 0 && w.after[i] >= w.before[i];
        c.stride[i] = w.stride[i];
        c.dilation[i] = w.dilation[i];
    }
    for (int i = 0; i < w.n && plain; i++) {
        c.padding[i] = w.before[i];
        c.end_padding[i] = w.after[i] - w.before[i];
    }
    x = plain ? x : tci_ox_pad_windows(o, x, &w, 0);
    return w.n == 1   ? tc_conv1d(x, weight, bias, &c)
           : w.n == 2 ? tc_conv2d(x, weight, bias, &c)
                      : tc_conv3d(x, weight, bias, &c);
}

TCI_OX_MAKE(conv)
{
    tci_ox_out(o, 0, tci_ox_conv_args(o, tci_ox_in(o, 0), tci_ox_in(o, 1), tci_ox_maybe(o, 2)));
}

/* A zero point of one element, or of each row of the weight, in i32. */
static tc_tensor tci_ox_minus_zero(const tci_ox_op *o, tc_tensor x, int i, bool rows)
{
    tc_tensor wide = tc_cast(x, TC_I32);
    if (!tci_ox_has(o, i)) {
        return wide;
    }
    tc_tensor zero = tc_cast(tci_ox_in(o, i), TC_I32);
    int rank = tc_rank(x);
    if (rows && tc_rank(zero) == 1) {
        int64_t *sizes = TCI_NEW_ARRAY(o->s, int64_t, rank + 1);
        for (int d = 0; d < rank; d++) {
            sizes[d] = d ? 1 : tc_size(zero, 0);
        }
        zero = tci_ox_shape_as(o, zero, rank, sizes);
    } else if (!rows) {
        zero = tc_rank(zero) == 1 && tc_size(zero, 0) == 1 ? tc_reshape_at(zero, 0, NULL, o->here)
                                                           : zero;
    }
    return tc_sub(wide, zero);
}

TCI_OX_MAKE(conv_integer)
{
    tc_tensor x = tci_ox_minus_zero(o, tci_ox_in(o, 0), 2, false);
    tc_tensor w = tci_ox_minus_zero(o, tci_ox_in(o, 1), 3, true);
    tci_ox_out(o, 0, tci_ox_conv_args(o, x, w, TC_NONE));
}

TCI_OX_MAKE(qlinear_conv)
{
    tc_tensor x = tci_ox_minus_zero(o, tci_ox_in(o, 0), 2, false);
    tc_tensor w = tci_ox_minus_zero(o, tci_ox_in(o, 3), 5, true);
    tc_tensor sum = tci_ox_conv_args(o, x, w, tci_ox_maybe(o, 8));
    tc_tensor scale = tci_ox_in(o, 4);
    int rank = tc_rank(sum);
    if (tc_rank(scale) == 1) {
        int64_t *sizes = TCI_NEW_ARRAY(o->s, int64_t, rank);
        for (int d = 0; d < rank - 1; d++) {
            sizes[d] = d ? 1 : tc_size(scale, 0);
        }
        scale = tci_ox_shape_as(o, scale, rank - 1, sizes);
    }
    scale = tc_div(tc_mul(tc_reshape_at(tci_ox_in(o, 1), 0, NULL, o->here), scale),
                   tc_reshape_at(tci_ox_in(o, 6), 0, NULL, o->here));
    tc_tensor zero = tc_reshape_at(tci_ox_in(o, 7), 0, NULL, o->here);
    tc_tensor y = tc_round(tc_mul(tc_cast(sum, TC_F32), scale));
    y = tc_add(y, tc_cast(zero, TC_F32));
    tci_ox_out(o, 0, tc_cast(y, tc_dtype_of(zero))); /* saturates */
}

/* The padding that output_shape or SAME asks for. */
static void tci_ox_transposed_pads(const tci_ox_op *o, tci_ox_window_args *w, const int64_t *extra)
{
    int given;
    const int64_t *shape = tci_ox_ints(o, "output_shape", &given);
    const char *pad = tci_ox_text(o, "auto_pad", "NOTSET");
    bool same = !strncmp(pad, "SAME", 4);
    for (int i = 0; i < w->n && (shape || same); i++) {
        int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1 + extra[i];
        int64_t full = tc_dim_add(tc_dim_mul(tc_dim_sub(w->sizes[i + 2], 1), w->stride[i]), span);
        int64_t want = shape && given >= w->n ? shape[given - w->n + i]
                                              : tc_dim_mul(w->sizes[i + 2], w->stride[i]);
        int64_t all = tc_dim_sub(full, want), half = tc_dim_div(all, 2);
        bool upper = !strcmp(pad, "SAME_UPPER");
        w->before[i] = upper ? half : tc_dim_sub(all, half);
        w->after[i] = upper ? tc_dim_sub(all, half) : half;
    }
}

TCI_OX_MAKE(conv_transpose)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0), weight = tci_ox_in(o, 1), bias = tci_ox_maybe(o, 2), y;
    const int64_t *sizes = tci_ox_sizes(o, weight, &rank);
    if (rank < 3 || tc_rank(x) != rank) {
        tci_ox_fail(o, TC_ERR_SHAPE, "x has %d axes, the weight %d", tc_rank(x), rank);
    }
    tci_ox_window_args w = tci_ox_window_args_of(o, x, sizes + 2);
    tc_conv c = {.groups = tci_ox_int(o, "group", 1)};
    int64_t extra[3];
    tci_ox_fill(o, "output_padding", w.n, extra, 0);
    tci_ox_transposed_pads(o, &w, extra);
    for (int i = 0; i < w.n; i++) {
        c.stride[i] = w.stride[i];
        c.dilation[i] = w.dilation[i];
    }
    y = w.n == 1   ? tc_conv_transpose1d(x, weight, bias, &c)
        : w.n == 2 ? tc_conv_transpose2d(x, weight, bias, &c)
                   : tc_conv_transpose3d(x, weight, bias, &c);
    for (int i = 0; i < w.n; i++) { /* crops, or pads where more is asked for than there is */
        int64_t after = tc_dim_sub(extra[i], w.after[i]), before = tc_dim_sub(0, w.before[i]);
        bool grows = tci_dim_most(after) > 0 || tci_dim_most(before) > 0;
        if (grows && tci_ox_given(bias)) {
            tci_ox_fail(o, TC_ERR_UNSUPPORTED, "output padding with a bias");
        }
        y = tc_pad(y, i + 2, before, after, 0);
    }
    tci_ox_out(o, 0, y);
}

/* ---- pools ---- */

/* With ceil_mode a last window may hang over the end: this many more elements there. */
static void tci_ox_overhang(tci_ox_window_args *w)
{
    for (int i = 0; i < w->n && w->ceil; i++) {
        int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1, s = w->stride[i];
        int64_t padded = tc_dim_add(w->sizes[i + 2], tc_dim_add(w->before[i], w->after[i]));
        int64_t room = tc_dim_sub(padded, span);
        int64_t steps = tc_dim_add(tc_dim_div(tc_dim_add(room, s - 1), s), 1);
        /* the last window must begin within the image or the padding before it */
        int64_t begun = tc_dim_div(tc_dim_sub(tc_dim_add(w->sizes[i + 2], w->before[i]), 1), s);
        steps = tc_dim_min(steps, tc_dim_add(begun, 1));
        int64_t need = tc_dim_add(tc_dim_mul(tc_dim_sub(steps, 1), s), span);
        w->after[i] = tc_dim_add(w->after[i], tc_dim_max(tc_dim_sub(need, padded), 0));
    }
}

/* A padded image reduced over windows, an axis after the other. */
static tc_tensor tci_ox_windows_reduce(const tci_ox_op *o, tc_tensor x, const tci_ox_window_args *w,
                                       bool max)
{
    for (int i = 0; i < w->n; i++) {
        int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1;
        x = tc_unfold(x, i + 2, span, w->stride[i]);
        x = w->dilation[i] > 1 ? tc_slice(x, -1, 0, TC_END, w->dilation[i]) : x;
        x = max ? tc_max(x, TC_AXES(-1), false) : tc_sum(x, TC_AXES(-1), false);
    }
    return x;
}

/* True if tc's pools do it: known, equal padding of at most half the window, and no ceil_mode. */
static bool tci_ox_is_plain_pool(const tci_ox_window_args *w, tc_pool *p)
{
    bool plain = !w->ceil;
    for (int i = 0; i < w->n; i++) {
        plain = plain && w->before[i] == w->after[i] && tci_dim_is_known(w->before[i]) &&
                w->before[i] >= 0 && 2 * w->before[i] <= w->kernel[i];
        p->kernel[i] = w->kernel[i];
        p->stride[i] = w->stride[i];
        p->dilation[i] = w->dilation[i];
        p->padding[i] = w->before[i];
    }
    return plain;
}

TCI_OX_MAKE(average_pool)
{
    tc_tensor x = tci_ox_in(o, 0), count;
    tci_ox_window_args w = tci_ox_window_args_of(o, x, NULL);
    tc_dtype d = tc_dtype_of(x);
    bool counts = tci_ox_int(o, "count_include_pad", 0) != 0, dilated = false;
    tc_pool p = {.exclude_pad = !counts};
    for (int i = 0; i < w.n; i++) {
        dilated = dilated || w.dilation[i] > 1;
    }
    if (!dilated && tci_ox_is_plain_pool(&w, &p)) {
        tci_ox_out(o, 0,
                   w.n == 1   ? tc_avg_pool1d(x, &p)
                   : w.n == 2 ? tc_avg_pool2d(x, &p)
                              : tc_avg_pool3d(x, &p));
        return;
    }
    tc_tensor ones = tc_expand_at(tc_full(o->ctx, 1, TC_F32), w.n + 2, w.sizes, o->here);
    ones = tc_slice(tc_slice(ones, 0, 0, 1, 1), 1, 0, 1, 1);
    count = counts ? tci_ox_pad_windows(o, ones, &w, 1) : ones;
    tci_ox_window_args rest = w, all;
    tci_ox_overhang(&w);
    all = w;
    for (int i = 0; i < w.n && counts; i++) { /* elements over the end never count */
        all.before[i] = 0;
        all.after[i] = tc_dim_sub(w.after[i], rest.after[i]);
    }
    count = tci_ox_windows_reduce(o, tci_ox_pad_windows(o, count, &all, 0), &w, false);
    x = tci_ox_pad_windows(o, tc_cast(x, d == TC_F64 ? d : TC_F32), &w, 0);
    tci_ox_out(o, 0, tc_cast(tc_div(tci_ox_windows_reduce(o, x, &w, false), count), d));
}

TCI_OX_MAKE(lp_pool)
{
    tc_tensor x = tci_ox_in(o, 0);
    tci_ox_window_args w = tci_ox_window_args_of(o, x, NULL);
    double p = o->opset < 2 ? tci_ox_real(o, "p", 2) : (double)tci_ox_int(o, "p", 2);
    tci_ox_overhang(&w);
    x = tci_ox_pad_windows(o, p == 2 ? tc_square(x) : tc_pow(tc_abs(x), p), &w, 0);
    x = tci_ox_windows_reduce(o, x, &w, false);
    tci_ox_out(o, 0, p == 2 ? tc_sqrt(x) : tc_pow(x, 1 / p));
}

/* Indices into the padded image as those into the image, column-major if storage_order. */
static tc_tensor tci_ox_pool_indices(const tci_ox_op *o, tc_tensor at, const tci_ox_window_args *w,
                                     int64_t padded[3], const int64_t *sizes)
{
    tc_tensor place[3], sum = TC_NONE;
    bool columns = tci_ox_int(o, "storage_order", 0) != 0;
    for (int i = w->n - 1; i >= 0; i--) {
        place[i] = tc_sub(tc_remainder(at, padded[i]), w->before[i]);
        at = tc_floor_divide(at, padded[i]);
    }
    int64_t stride = 1;
    for (int j = 0; j < w->n; j++) {
        int i = columns ? j : w->n - 1 - j;
        sum = j ? tc_add(sum, tc_mul(place[i], stride)) : place[i];
        stride = tc_dim_mul(stride, sizes[i + 2]);
    }
    /* counted over batch and channels */
    tc_tensor image = tc_add(tc_mul(tci_ox_places(o, sizes[0], w->n + 2, 0), sizes[1]),
                             tci_ox_places(o, sizes[1], w->n + 2, 1));
    return tc_add(sum, tc_mul(image, stride));
}

TCI_OX_MAKE(max_pool)
{
    tc_tensor x = tci_ox_in(o, 0), at;
    tci_ox_window_args w = tci_ox_window_args_of(o, x, NULL);
    tc_dtype d = tc_dtype_of(x);
    tc_pool p = {.ceil_mode = false};
    bool plain = tci_ox_is_plain_pool(&w, &p) && !tci_ox_wants(o, 1);
    int64_t padded[3];
    if (!plain) {
        tci_ox_overhang(&w);
        double least = tci_ox_is_float(d) ? -HUGE_VAL : d == TC_I8 ? -128 : 0;
        x = tci_ox_pad_windows(o, x, &w, least);
        for (int i = 0; i < w.n; i++) {
            p.padding[i] = 0;
            padded[i] = tc_size(x, i + 2);
        }
    }
    if (!tci_ox_wants(o, 1)) {
        tci_ox_out(o, 0,
                   w.n == 1   ? tc_max_pool1d(x, &p)
                   : w.n == 2 ? tc_max_pool2d(x, &p)
                              : tc_max_pool3d(x, &p));
        return;
    }
    tc_tensor y;
    if (w.n == 1) {
        tc_max_pool1d_with_indices(x, &p, &y, &at);
    } else if (w.n == 2) {
        tc_max_pool2d_with_indices(x, &p, &y, &at);
    } else {
        tc_max_pool3d_with_indices(x, &p, &y, &at);
    }
    tci_ox_out(o, 0, y);
    tci_ox_out(o, 1, tci_ox_pool_indices(o, at, &w, padded, w.sizes));
}

/* Global pools: over all axes of the image. */
TCI_OX_MAKE(global_pool)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0);
    tci_ox_sizes(o, x, &rank);
    int *axes = TCI_NEW_ARRAY(o->s, int, rank + 1);
    for (int i = 2; i < rank; i++) {
        axes[i - 2] = i;
    }
    tc_axes image = TC_AXES_N(axes, rank - 2);
    if (!strcmp(o->row->call, "norm")) {
        tci_ox_out(o, 0, tc_norm(x, (double)tci_ox_int(o, "p", 2), image, true));
        return;
    }
    bool max = !strcmp(o->row->call, "max");
    tci_ox_out(o, 0, max ? tc_max(x, image, true) : tc_mean(x, image, true));
}

TCI_OX_MAKE(max_unpool)
{
    int n;
    tc_tensor x = tci_ox_in(o, 0), at = tci_ox_in(o, 1);
    tci_ox_window_args w = tci_ox_window_args_of(o, x, NULL);
    int64_t *sizes = tci_scratch_copy(o->s, w.sizes, sizeof(*sizes) * (size_t)(w.n + 2)), all = 1;
    int64_t natural = 1;
    for (int i = 0; i < w.n; i++) {
        sizes[i + 2] = tc_dim_add(tc_dim_mul(tc_dim_sub(w.sizes[i + 2], 1), w.stride[i]),
                                  w.kernel[i]);
        sizes[i + 2] = tc_dim_sub(sizes[i + 2], tc_dim_add(w.before[i], w.after[i]));
    }
    int64_t *small = tci_scratch_copy(o->s, sizes, sizeof(*sizes) * (size_t)(w.n + 2));
    if (tci_ox_has(o, 2)) {
        const int64_t *want = tci_ox_need_ints(o, 2, "the output shape", &n);
        for (int i = 0; i < n && n == w.n + 2; i++) {
            sizes[i] = want[i];
        }
    }
    for (int i = 0; i < w.n + 2; i++) {
        all = tc_dim_mul(all, sizes[i]);
        natural = tc_dim_mul(natural, small[i]);
    }
    tc_tensor y = tc_expand(tc_full(o->ctx, 0, tc_dtype_of(x)), natural);
    y = tc_scatter(y, 0, tc_reshape(at, tc_count(at)), tc_reshape(x, tc_count(x)));
    y = tci_ox_shape_as(o, y, w.n + 2, small);
    for (int i = 0; i < w.n + 2; i++) {
        y = tc_pad(y, i, 0, tc_dim_sub(sizes[i], small[i]), 0);
    }
    tci_ox_out(o, 0, y);
}

/* Where element j of the window at `place` (both counted row-major) is in the padded image. */
static int64_t tci_ox_patch_place(int n, int64_t j, int64_t place, const tci_ox_window_args *w,
                                  const int64_t *steps, const int64_t *padded)
{
    int64_t at = 0, stride = 1;
    for (int i = n - 1; i >= 0; i--) {
        int64_t k = j % w->kernel[i], step = place % steps[i];
        j /= w->kernel[i];
        place /= steps[i];
        at += (step * w->stride[i] + k * w->dilation[i]) * stride;
        stride *= padded[i];
    }
    return at;
}

TCI_OX_MAKE(col2im)
{
    int n, n_block, rank;
    tc_tensor x = tci_ox_in(o, 0);
    const int64_t *image = tci_ox_need_ints(o, 1, "the image shape", &n);
    const int64_t *block = tci_ox_need_ints(o, 2, "the block shape", &n_block);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    tci_ox_window_args w = {.n = n};
    int64_t pads[6], padded[3], steps[3], kernel = 1, windows = 1, all = 1;
    if (n < 1 || n > 3 || n_block != n || rank != 3) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "an image of %d axes: expected 1 to 3", n);
    }
    tci_ox_fill(o, "pads", 2 * n, pads, 0);
    tci_ox_fill(o, "strides", n, w.stride, 1);
    tci_ox_fill(o, "dilations", n, w.dilation, 1);
    for (int i = 0; i < n; i++) {
        w.kernel[i] = block[i];
        padded[i] = image[i] + pads[i] + pads[i + n];
        int64_t room = padded[i] - w.dilation[i] * (block[i] - 1) - 1;
        steps[i] = w.stride[i] < 1 ? -1 : room / w.stride[i] + 1;
        if (block[i] < 1 || w.dilation[i] < 1 || steps[i] < 1 || steps[i] > 1 << 20 ||
            block[i] > 1 << 20) {
            tci_ox_fail(o, TC_ERR_SHAPE, "no window fits");
        }
        kernel *= block[i];
        windows *= steps[i];
        all *= padded[i];
    }
    if (kernel * windows > TCI_OX_LIST_MOST * 16 || sizes[2] != windows) {
        tci_ox_fail(o, TC_ERR_SHAPE, "there are %" PRId64 " windows", windows);
    }
    int64_t *places = TCI_NEW_ARRAY(o->s, int64_t, kernel *windows);
    for (int64_t i = 0; i < kernel * windows; i++) {
        places[i] = tci_ox_patch_place(n, i / windows, i % windows, &w, steps, padded);
    }
    int64_t channels = tc_dim_div(sizes[1], kernel), to[5] = {sizes[0], channels};
    tc_tensor at = tc_copy_in(o->ctx, (const void *)places, TC_I64, 1, 1, kernel * windows);
    at = tc_expand(at, sizes[0], channels, kernel * windows);
    tc_tensor y = tc_expand(tc_full(o->ctx, 0, tc_dtype_of(x)), sizes[0], channels, all);
    y = tc_scatter_add(y, 2, at, tc_reshape(x, sizes[0], channels, kernel * windows));
    memcpy(to + 2, padded, sizeof(*padded) * (size_t)n);
    y = tci_ox_shape_as(o, y, n + 2, to);
    for (int i = 0; i < n; i++) {
        y = tc_pad(y, i + 2, -pads[i], -pads[i + n], 0);
    }
    tci_ox_out(o, 0, y);
}
/* ---- src/onnx/import_resample.c ---- */
/* onnx/import_resample.c - imports ONNX operators that interpolate images: Resize, Upsample,
 * GridSample, AffineGrid, RoiAlign, DeformConv.
 *
 * Resize to known sizes: along each axis an element is a weighted sum of a few elements of x
 * (taps), whose positions and weights are computed here. For symbolic sizes nearest and linear
 * sampling compute them in the program. */

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { TCI_OX_TAPS = 64 };

typedef struct tci_ox_resize {
    const char *mode, *where, *nearest;
    double cubic, roi[2];
    bool exclude, antialias;
    int64_t in, out;
    double scale; /* 0: out / in */
    /* taps of each element: [tap][element] */
    int n;
    int64_t *place;
    double *weight;
    bool *outside; /* of tf_crop_and_resize */
} tci_ox_resize;

/* Where element i of the result is in x. */
static double tci_ox_source(const tci_ox_resize *r, double i)
{
    double in = (double)r->in, scale = r->scale, out = scale * in;
    if (!strcmp(r->where, "align_corners")) {
        return out == 1 ? 0 : i * (in - 1) / (out - 1);
    } else if (!strcmp(r->where, "asymmetric")) {
        return i / scale;
    } else if (!strcmp(r->where, "tf_crop_and_resize")) {
        double first = r->roi[0] * (in - 1), span = (r->roi[1] - r->roi[0]) * (in - 1);
        return first + (out == 1 ? span / 2 : i * span / (out - 1));
    } else if (!strcmp(r->where, "pytorch_half_pixel") && out == 1) {
        return -0.5;
    } else if (!strcmp(r->where, "half_pixel_symmetric")) {
        return in / 2 * (1 - (double)r->out / out) + (i + 0.5) / scale - 0.5;
    }
    return (i + 0.5) / scale - 0.5;
}

static double tci_ox_cubic(double x, double a)
{
    x = fabs(x);
    return x <= 1  ? (a + 2) * x * x * x - (a + 3) * x * x + 1
           : x < 2 ? a * x * x * x - 5 * a * x * x + 8 * a * x - 4 * a
                   : 0;
}

static void tci_ox_resize_nearest(tci_ox_resize *r, int64_t i, double at, double low)
{
    double ratio = at - low;
    bool up = !strcmp(r->nearest, "ceil")                ? ratio > 0
              : !strcmp(r->nearest, "round_prefer_ceil") ? ratio >= 0.5
              : !strcmp(r->nearest, "floor")             ? false
                                                         : ratio > 0.5;
    int64_t place = (int64_t)low + up;
    r->place[i] = place < 0 ? 0 : place >= r->in ? r->in - 1 : place;
    r->weight[i] = 1;
}

/* Weights of the taps around `at`; first: the first of them, from floor(at) on. */
static void tci_ox_resize_taps(tci_ox_resize *r, int64_t i, double at, double low, int first)
{
    double stretch = r->antialias && r->scale < 1 ? r->scale : 1, sum = 0;
    bool cubic = !strcmp(r->mode, "cubic");
    for (int k = 0; k < r->n; k++) {
        double d = (low + first + k - at) * stretch, w = 1 - fabs(d);
        int64_t place = (int64_t)low + first + k;
        w = cubic ? tci_ox_cubic(d, r->cubic) : w < 0 ? 0 : w;
        w = r->exclude && (place < 0 || place >= r->in) ? 0 : w;
        r->place[k * r->out + i] = place < 0 ? 0 : place >= r->in ? r->in - 1 : place;
        r->weight[k * r->out + i] = w;
        sum += w;
    }
    for (int k = 0; k < r->n && (r->exclude || r->antialias); k++) {
        r->weight[k * r->out + i] /= sum;
    }
}

static void tci_ox_resize_plan(const tci_ox_op *o, tci_ox_resize *r)
{
    bool nearest = !strcmp(r->mode, "nearest");
    double stretch = r->antialias && r->scale < 1 ? r->scale : 1;
    double reach = (strcmp(r->mode, "cubic") ? 1 : 2) / stretch;
    int first = (int)floor(-fmin(reach, TCI_OX_TAPS)) + 1;
    r->n = nearest ? 1 : 2 - 2 * first;
    if (r->n > TCI_OX_TAPS || r->out > TCI_OX_LIST_MOST) {
        tci_ox_fail(o, TC_ERR_LIMIT, "an axis of %" PRId64 " elements, each of %d", r->out, r->n);
    }
    r->place = TCI_NEW_ARRAY(o->s, int64_t, r->n * r->out);
    r->weight = TCI_NEW_ARRAY(o->s, double, r->n * r->out);
    r->outside = TCI_NEW_ARRAY(o->s, bool, r->out);
    for (int64_t i = 0; i < r->out; i++) {
        double at = tci_ox_source(r, (double)i), low = floor(at);
        r->outside[i] = at < 0 || at > (double)(r->in - 1);
        if (nearest) {
            tci_ox_resize_nearest(r, i, at, low);
        } else {
            tci_ox_resize_taps(r, i, at, low, first);
        }
    }
}

/* A list along one axis of x. */
static tc_tensor tci_ox_axis_list(const tci_ox_op *o, tc_tensor list, int rank, int axis)
{
    int64_t *wide = TCI_NEW_ARRAY(o->s, int64_t, rank + 1);
    for (int i = 0; i < rank; i++) {
        wide[i] = i == axis ? tc_size(list, 0) : 1;
    }
    return tci_ox_shape_as(o, list, rank, wide);
}

static tc_tensor tci_ox_resize_known(const tci_ox_op *o, tc_tensor x, int axis, tci_ox_resize *r)
{
    tc_tensor sum = TC_NONE;
    tci_ox_resize_plan(o, r);
    for (int k = 0; k < r->n; k++) {
        tc_tensor at = tc_copy_in(o->ctx, (const void *)(r->place + k * r->out), TC_I64, r->out);
        tc_tensor part = tc_index_select(x, axis, at);
        if (strcmp(r->mode, "nearest")) {
            const void *weights = r->weight + k * r->out;
            tc_tensor w = tc_copy_in(o->ctx, weights, TC_F64, r->out);
            w = tc_cast(w, tc_dtype_of(x));
            part = tc_mul(part, tci_ox_axis_list(o, w, tc_rank(x), axis));
        }
        sum = k ? tc_add(sum, part) : part;
    }
    return sum;
}

/* Sizes known in a run alone. by: elements of x for one of the result, or TC_NONE: in / out. */
static tc_tensor tci_ox_resize_symbolic(const tci_ox_op *o, tc_tensor x, int axis,
                                        const tci_ox_resize *r)
{
    bool nearest = !strcmp(r->mode, "nearest"), corners = !strcmp(r->where, "align_corners");
    bool plain = !strcmp(r->where, "asymmetric"), half = strstr(r->where, "half_pixel") != NULL;
    if ((!nearest && strcmp(r->mode, "linear")) || r->antialias || (!corners && !plain && !half)) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "mode %.20s at %.30s needs sizes that are numbers",
                    r->mode, r->where);
    }
    tc_tensor i = tc_cast(tc_arange(o->ctx, 0, r->out, 1, TC_I64), TC_F32);
    tc_tensor in = tc_cast(tc_full(o->ctx, r->in, TC_I64), TC_F32);
    tc_tensor out = tc_cast(tc_full(o->ctx, r->out, TC_I64), TC_F32);
    tc_tensor by = r->scale != 0 ? tc_full(o->ctx, 1 / r->scale, TC_F32) : tc_div(in, out);
    by = corners ? tc_div(tc_sub(in, 1), tc_maximum(tc_sub(out, 1), 1)) : by;
    tc_tensor at = half ? tc_sub(tc_mul(tc_add(i, 0.5), by), 0.5) : tc_mul(i, by), low;
    at = tc_clamp(at, 0, tc_sub(in, 1));
    if (nearest) {
        low = !strcmp(r->nearest, "floor")               ? tc_floor(at)
              : !strcmp(r->nearest, "ceil")              ? tc_ceil(at)
              : !strcmp(r->nearest, "round_prefer_ceil") ? tc_floor(tc_add(at, 0.5))
                                                         : tc_ceil(tc_sub(at, 0.5));
        return tc_index_select(x, axis, tc_cast(low, TC_I64));
    }
    low = tc_floor(at);
    tc_tensor w = tci_ox_axis_list(o, tc_cast(tc_sub(at, low), tc_dtype_of(x)), tc_rank(x), axis);
    tc_tensor high = tc_minimum(tc_add(low, 1), tc_sub(in, 1));
    tc_tensor a = tc_index_select(x, axis, tc_cast(low, TC_I64));
    tc_tensor b = tc_index_select(x, axis, tc_cast(high, TC_I64));
    return tc_add(a, tc_mul(tc_sub(b, a), w));
}

/* The size of an axis, and the scale that coordinates follow from. */
typedef struct tci_ox_resizing {
    int rank, n;
    const int64_t *in, *axes;
    int64_t *out;
    double *scale;
    bool given[TCI_OX_RANK];
} tci_ox_resizing;

/* keep_aspect_ratio_policy: one scale for all axes. */
static void tci_ox_keep_aspect(const tci_ox_op *o, tci_ox_resizing *z, const char *policy)
{
    double one = 0;
    for (int i = 0; i < z->n; i++) {
        int axis = tci_ox_axis(o, z->axes ? z->axes[i] : i, z->rank);
        double s = (double)z->out[axis] / (double)z->in[axis];
        if (!tci_dim_is_known(z->out[axis]) || !tci_dim_is_known(z->in[axis])) {
            tci_ox_fail(o, TC_ERR_UNSUPPORTED, "%.20s needs sizes that are numbers", policy);
        }
        one = i == 0 ? s : !strcmp(policy, "not_larger") ? fmin(one, s) : fmax(one, s);
    }
    for (int i = 0; i < z->n; i++) {
        int axis = tci_ox_axis(o, z->axes ? z->axes[i] : i, z->rank);
        z->scale[axis] = one;
        z->out[axis] = (int64_t)floor(one * (double)z->in[axis] + 0.5);
    }
}

/* floor(size * scale), also of a symbolic size and a scale that is a quotient of small numbers. */
static int64_t tci_ox_scaled(const tci_ox_op *o, int64_t in, double scale)
{
    if (tci_dim_is_known(in)) {
        return (int64_t)floor((double)in * scale);
    }
    for (int64_t by = 1; by <= 64; by++) {
        double up = scale * (double)by;
        if (up == floor(up) && up < 1 << 20) {
            return tc_dim_div(tc_dim_mul(in, (int64_t)up), by);
        }
    }
    tci_ox_fail(o, TC_ERR_UNSUPPORTED, "a symbolic size times %g", scale);
    return 0;
}

static tci_ox_resizing tci_ox_resizing_of(const tci_ox_op *o, tc_tensor x, int at_scales,
                                          int at_sizes)
{
    tci_ox_resizing z = {.n = 0};
    int n_axes, n = 0;
    z.in = tci_ox_sizes(o, x, &z.rank);
    if (z.rank > TCI_OX_RANK) {
        tci_ox_fail(o, TC_ERR_LIMIT, "%d axes", z.rank);
    }
    z.axes = tci_ox_ints(o, "axes", &n_axes);
    z.n = z.axes ? n_axes : z.rank;
    z.out = tci_scratch_copy(o->s, z.in, sizeof(*z.out) * (size_t)z.rank);
    z.scale = TCI_NEW_ARRAY(o->s, double, z.rank);
    const int64_t *sizes = tci_ox_has(o, at_sizes) ? tci_ox_need_ints(o, at_sizes, "the sizes", &n)
                                                   : NULL;
    const tci_onnx_attr *old = tci_ox_attr(o, "scales");
    const tci_ox_known *k = sizes || old ? NULL : tci_ox_need(o, at_scales, "the scales");
    int64_t count = sizes ? n : old ? old->n : k->n;
    if (count == 0 && tci_ox_has(o, at_sizes)) {
        count = n;
    }
    if (count != z.n) {
        tci_ox_fail(o, TC_ERR_SHAPE, "%" PRId64 " scales or sizes for %d axes", count, z.n);
    }
    for (int i = 0; i < z.n; i++) {
        int axis = tci_ox_axis(o, z.axes ? z.axes[i] : i, z.rank);
        z.given[axis] = true;
        if (sizes) {
            z.out[axis] = sizes[i];
            z.scale[axis] = 0;
            continue;
        }
        bool listed = old && old->kind == TCI_ONNX_FLOATS;
        z.scale[axis] = listed ? old->floats[i] : k ? k->cells[i].f : 1;
        if (k && k->cells[i].den) { /* a symbolic size over another */
            tci_ox_fail(o, TC_ERR_UNSUPPORTED, "a scale that follows from symbolic sizes");
        }
        z.out[axis] = tci_ox_scaled(o, z.in[axis], z.scale[axis]);
    }
    const char *policy = tci_ox_text(o, "keep_aspect_ratio_policy", "stretch");
    if (sizes && strcmp(policy, "stretch")) {
        tci_ox_keep_aspect(o, &z, policy);
    }
    return z;
}

static tc_tensor tci_ox_resize_all(const tci_ox_op *o, tci_ox_resize how, const tci_ox_resizing *z,
                                   const tci_ox_known *roi)
{
    tc_tensor x = tci_ox_in(o, 0), outside = TC_NONE;
    tc_dtype d = tc_dtype_of(x);
    bool nearest = !strcmp(how.mode, "nearest");
    x = nearest || d == TC_F64 ? x : tc_cast(x, TC_F32);
    for (int i = 0; i < z->rank; i++) {
        tci_ox_resize r = how;
        int place = i;
        r.in = z->in[i];
        r.out = z->out[i];
        r.scale = z->scale[i];
        bool crop = roi && z->given[i];
        for (int j = 0; z->axes && j < z->n; j++) {
            place = tci_ox_axis(o, z->axes[j], z->rank) == i ? j : place;
        }
        for (int j = 0; j < 2 && crop; j++) {
            r.roi[j] = place + j * z->n < roi->n ? roi->cells[place + j * z->n].f : j;
        }
        if (!crop && r.in == r.out && (r.scale == 0 || r.scale == 1)) {
            continue;
        }
        if (!tci_dim_is_known(r.in) || !tci_dim_is_known(r.out)) {
            x = tci_ox_resize_symbolic(o, x, i, &r);
            continue;
        }
        r.scale = r.scale != 0 ? r.scale : (double)r.out / (double)r.in;
        x = tci_ox_resize_known(o, x, i, &r);
        if (crop) {
            tc_tensor list = tc_copy_in(o->ctx, (const void *)r.outside, TC_BOOL, r.out);
            list = tci_ox_axis_list(o, list, z->rank, i);
            outside = tci_ox_given(outside) ? tc_logical_or(outside, list) : list;
        }
    }
    if (tci_ox_given(outside)) {
        x = tc_where(outside, tci_ox_real(o, "extrapolation_value", 0), x);
    }
    return tc_cast(x, d);
}

TCI_OX_MAKE(resize)
{
    bool old = o->opset < 11; /* operands: x, scales */
    tci_ox_resize how = {.mode = tci_ox_text(o, "mode", "nearest"), .cubic = -0.75};
    how.mode = !strcmp(how.mode, "bilinear") ? "linear" : how.mode;
    how.where = tci_ox_text(o, "coordinate_transformation_mode", old ? "asymmetric" : "half_pixel");
    how.nearest = tci_ox_text(o, "nearest_mode", old ? "floor" : "round_prefer_floor");
    how.cubic = tci_ox_real(o, "cubic_coeff_a", -0.75);
    how.exclude = tci_ox_int(o, "exclude_outside", 0) != 0;
    how.antialias = tci_ox_int(o, "antialias", 0) != 0;
    tci_ox_resizing z = tci_ox_resizing_of(o, tci_ox_in(o, 0), old ? 1 : 2, old ? 99 : 3);
    bool crop = !strcmp(how.where, "tf_crop_and_resize");
    tci_ox_out(o, 0, tci_ox_resize_all(o, how, &z, crop ? tci_ox_need(o, 1, "the roi") : NULL));
}

/* ---- GridSample, AffineGrid ---- */

TCI_OX_MAKE(grid_sample)
{
    tc_tensor x = tci_ox_in(o, 0), grid = tci_ox_in(o, 1);
    const char *mode = tci_ox_text(o, "mode", "linear");
    mode = !strcmp(mode, "linear") ? "bilinear" : !strcmp(mode, "cubic") ? "bicubic" : mode;
    tc_tensor y = tc_grid_sample(x, tc_cast(grid, tc_dtype_of(x)), mode,
                                 tci_ox_text(o, "padding_mode", "zeros"),
                                 tci_ox_int(o, "align_corners", 0) != 0);
    tci_ox_out(o, 0, y);
}

/* theta [n, 2, 3] or [n, 3, 4] times (x, y[, z], 1) of each position. */
TCI_OX_MAKE(affine_grid)
{
    int n;
    tc_tensor theta = tci_ox_in(o, 0), at[4], grid;
    const int64_t *size = tci_ox_need_ints(o, 1, "the size", &n);
    int axes = n - 2;
    bool corners = tci_ox_int(o, "align_corners", 0) != 0;
    if (axes != 2 && axes != 3) {
        tci_ox_fail(o, TC_ERR_SHAPE, "a size of %d numbers: expected 4 or 5", n);
    }
    for (int i = 0; i < axes; i++) {
        int axis = axes - 1 - i; /* x is the last axis */
        tc_tensor place = tc_cast(tci_ox_places(o, size[axis + 2], axes, axis), TC_F64);
        tc_tensor m = tc_cast(tc_full(o->ctx, size[axis + 2], TC_I64), TC_F64);
        place = corners ? tc_div(tc_mul(place, 2), tc_sub(m, 1))
                        : tc_div(tc_add(tc_mul(place, 2), 1), m);
        at[i] = tc_expand_at(tc_sub(place, 1), axes, size + 2, o->here);
    }
    at[axes] = tc_expand_at(tc_full(o->ctx, 1, TC_F64), axes, size + 2, o->here);
    grid = tc_cast(tc_stack(TC_TENSORS_N(at, axes + 1), axes), tc_dtype_of(theta));
    grid = tc_reshape(grid, 1, -1, axes + 1);
    grid = tc_matmul(grid, tc_transpose(theta, 1, 2));
    int64_t to[5] = {size[0], size[2], size[3], axes == 3 ? size[4] : axes, axes};
    tci_ox_out(o, 0, tci_ox_shape_as(o, grid, axes + 2, to));
}

/* ---- samples at computed positions of [n, c, h, w] ---- */

/* Bilinear samples at rows y and columns x [n, m] of images [n, c, h, w]; outside of them 0: [n, c,
 * m]. */
static tc_tensor tci_ox_sample(const tci_ox_op *o, tc_tensor image, tc_tensor y, tc_tensor x,
                               bool max)
{
    int64_t n = tc_size(image, 0), c = tc_size(image, 1), h = tc_size(image, 2);
    int64_t w = tc_size(image, 3), m = tc_size(y, 1);
    tc_tensor flat = tc_reshape(image, n, c, tc_dim_mul(h, w)), sum = TC_NONE;
    tc_tensor y0 = tc_floor(y), x0 = tc_floor(x);
    for (int i = 0; i < 4; i++) {
        tc_tensor yi = tc_add(y0, i / 2), xi = tc_add(x0, i % 2);
        tc_tensor wy = tc_sub(1, tc_abs(tc_sub(y, yi))), wx = tc_sub(1, tc_abs(tc_sub(x, xi)));
        tc_tensor in = tc_logical_and(tc_logical_and(tc_ge(yi, 0), tc_lt(yi, h)),
                                      tc_logical_and(tc_ge(xi, 0), tc_lt(xi, w)));
        tc_tensor at = tc_add(tc_mul(tc_cast(yi, TC_I64), w), tc_cast(xi, TC_I64));
        at = tc_expand(tc_unsqueeze(tc_where(in, at, 0), 1), n, c, m);
        tc_tensor weight = tc_cast(tc_where(in, tc_mul(wy, wx), 0), tc_dtype_of(image));
        tc_tensor part = tc_mul(tc_gather(flat, 2, at), tc_unsqueeze(weight, 1));
        sum = i == 0 ? part : max ? tc_maximum(sum, part) : tc_add(sum, part);
    }
    return sum;
}

TCI_OX_MAKE(roi_align)
{
    tc_tensor image = tci_ox_in(o, 0), rois = tci_ox_in(o, 1), batch = tci_ox_in(o, 2), at[2];
    int64_t out[2] = {tci_ox_int(o, "output_height", 1), tci_ox_int(o, "output_width", 1)};
    int64_t grid = tci_ox_int(o, "sampling_ratio", 0), n = tc_size(rois, 0), all[2];
    double scale = tci_ox_real(o, "spatial_scale", 1);
    const char *usual = o->opset < 16 ? "output_half_pixel" : "half_pixel";
    bool half = !strcmp(tci_ox_text(o, "coordinate_transformation_mode", usual), "half_pixel");
    bool max = !strcmp(tci_ox_text(o, "mode", "avg"), "max");
    if (grid < 1) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED,
                    "sampling_ratio 0: the number of samples follows from "
                    "values");
    }
    for (int d = 0; d < 2; d++) { /* rows, columns */
        int64_t size = tc_size(image, 2 + d), m = out[d] * grid;
        tc_tensor low = tc_sub(tc_mul(tc_select(rois, 1, 1 - d), scale), half ? 0.5 : 0.0);
        tc_tensor high = tc_sub(tc_mul(tc_select(rois, 1, 3 - d), scale), half ? 0.5 : 0.0);
        tc_tensor span = tc_sub(high, low);
        span = half ? span : tc_maximum(span, 1);
        tc_tensor place = tc_cast(tci_ox_places(o, m, 2, 1), tc_dtype_of(rois));
        place = tc_mul(tc_div(tc_add(place, 0.5), (double)m), tc_unsqueeze(span, 1));
        place = tc_add(place, tc_unsqueeze(low, 1));
        tc_tensor in = tc_logical_and(tc_ge(place, -1), tc_le(place, size));
        place = tc_clamp(place, 0, tc_dim_sub(size, 1));
        at[d] = tc_where(in, place, -2); /* outside: 0 */
        all[d] = m;
    }
    int64_t m = all[0] * all[1];
    tc_tensor y = tc_reshape(tc_expand(tc_unsqueeze(at[0], 2), n, all[0], all[1]), n, m);
    tc_tensor x = tc_reshape(tc_expand(tc_unsqueeze(at[1], 1), n, all[0], all[1]), n, m);
    image = tc_index_select(image, 0, batch);
    y = tci_ox_sample(o, image, y, x, max);
    y = tc_reshape(y, n, tc_size(image, 1), out[0], grid, out[1], grid);
    tci_ox_out(o, 0, max ? tc_max(y, TC_AXES(3, 5), false) : tc_mean(y, TC_AXES(3, 5), false));
}

/* Samples where offsets say, then a product with the weights. */
TCI_OX_MAKE(deform_conv)
{
    int rank, n_pads, n_strides, n_dilations;
    tc_tensor x = tci_ox_in(o, 0), w = tci_ox_in(o, 1), offset = tci_ox_in(o, 2), at[2];
    tc_tensor mask = tci_ox_maybe(o, 4), bias = tci_ox_maybe(o, 3);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank), *ws = tci_ox_sizes(o, w, &rank);
    const int64_t *pads = tci_ox_ints(o, "pads", &n_pads);
    const int64_t *strides = tci_ox_ints(o, "strides", &n_strides);
    const int64_t *dilations = tci_ox_ints(o, "dilations", &n_dilations);
    int64_t group = tci_ox_int(o, "group", 1), og = tci_ox_int(o, "offset_group", 1);
    if (rank != 4 || tc_rank(x) != 4 || tc_rank(offset) != 4 || og < 1 || group < 1) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "a weight of %d axes: expected 4", rank);
    }
    int64_t n = sizes[0], c = sizes[1], k = ws[2] * ws[3], oh = tc_size(offset, 2);
    int64_t ow = tc_size(offset, 3), each = tc_dim_div(c, og), points = tc_dim_mul(oh, ow);
    offset = tc_reshape(offset, n, og, ws[2], ws[3], 2, oh, ow);
    for (int d = 0; d < 2; d++) {
        tc_tensor place = tc_select(offset, 4, d); /* [n, og, kh, kw, oh, ow] */
        tc_tensor out = tc_mul(tci_ox_places(o, d ? ow : oh, 6, 4 + d),
                               strides && d < n_strides ? strides[d] : 1);
        tc_tensor in = tc_mul(tci_ox_places(o, ws[2 + d], 6, 2 + d),
                              dilations && d < n_dilations ? dilations[d] : 1);
        place = tc_add(place, tc_sub(tc_add(out, in), pads && d < n_pads ? pads[d] : 0));
        at[d] = tc_reshape(place, tc_dim_mul(n, og), tc_dim_mul(k, points));
    }
    tc_tensor image = tc_reshape(x, tc_dim_mul(n, og), each, sizes[2], sizes[3]);
    tc_tensor y = tci_ox_sample(o, image, at[0], at[1], false);
    y = tc_reshape(y, n, og, each, k, points);
    if (tci_ox_given(mask)) {
        y = tc_mul(y, tc_reshape(mask, n, og, 1, k, points));
    }
    y = tc_reshape(y, n, group, tc_dim_mul(tc_dim_div(c, group), k), points);
    w = tc_reshape(w, 1, group, tc_dim_div(ws[0], group), ws[1] * k);
    y = tc_reshape(tc_matmul(w, y), n, ws[0], oh, ow);
    tci_ox_out(o, 0, tci_ox_given(bias) ? tc_add(y, tc_reshape(bias, ws[0], 1, 1)) : y);
}
/* ---- src/onnx/import_quantize.c ---- */
/* onnx/import_quantize.c - imports ONNX operators on quantized integers, as arithmetic in f32 and
 * i32. */

#include <string.h>

/* A scale or zero point next to x: one element as 0-d; 1-d along an axis; or, in blocks of an axis,
 * each element repeated. */
static tc_tensor tci_ox_along_x(const tci_ox_op *o, tc_tensor x, tc_tensor v)
{
    int rank, rank_v;
    const int64_t *sizes = tci_ox_sizes(o, x, &rank), *given = tci_ox_sizes(o, v, &rank_v);
    int64_t block = tci_ox_int(o, "block_size", 0);
    if (rank_v == 0 || (rank_v == 1 && given[0] == 1)) {
        return tc_reshape_at(v, 0, NULL, o->here);
    }
    int axis = tci_ox_axis(o, tci_ox_int(o, "axis", 1), rank);
    if (rank_v == 1) {
        int64_t *wide = TCI_NEW_ARRAY(o->s, int64_t, rank);
        for (int i = 0; i < rank; i++) {
            wide[i] = i == axis ? given[0] : 1;
        }
        return tci_ox_shape_as(o, v, rank, wide);
    }
    if (block < 1) {
        tci_ox_fail(o, TC_ERR_SHAPE, "a scale of %d axes without blocks", rank_v);
    }
    v = tc_repeat_interleave(v, block, axis, tc_dim_mul(given[axis], block));
    return tc_slice(v, axis, 0, sizes[axis], 1);
}

static tc_tensor tci_ox_saturated(const tci_ox_op *o, tc_tensor x, tc_tensor zero, tc_dtype d)
{
    x = tc_round(x);
    x = tci_ox_given(zero) ? tc_add(x, tc_cast(zero, tc_dtype_of(x))) : x;
    return tc_cast(x, d);
}

TCI_OX_MAKE(quantize)
{
    tc_tensor x = tci_ox_in(o, 0), scale = tci_ox_along_x(o, x, tci_ox_in(o, 1));
    tc_tensor zero = tci_ox_maybe(o, 2);
    int64_t type = tci_ox_int(o, "output_dtype", 0);
    tc_dtype d = tci_ox_given(zero) ? tc_dtype_of(zero) : type ? tci_ox_dtype(o, type) : TC_U8;
    zero = tci_ox_given(zero) ? tci_ox_along_x(o, x, zero) : zero;
    x = tc_div(tc_cast(x, TC_F32), tc_cast(scale, TC_F32));
    tci_ox_out(o, 0, tci_ox_saturated(o, x, zero, d));
}

TCI_OX_MAKE(dequantize)
{
    tc_tensor x = tci_ox_in(o, 0), scale = tci_ox_in(o, 1), zero = tci_ox_maybe(o, 2);
    int64_t type = tci_ox_int(o, "output_dtype", 0);
    tc_dtype d = type ? tci_ox_dtype(o, type) : tc_dtype_of(scale);
    tc_tensor y = tc_cast(x, TC_I32);
    if (tci_ox_given(zero)) {
        y = tc_sub(y, tc_cast(tci_ox_along_x(o, x, zero), TC_I32));
    }
    y = tc_mul(tc_cast(y, TC_F32), tc_cast(tci_ox_along_x(o, x, scale), TC_F32));
    tci_ox_out(o, 0, tc_cast(y, d));
}

TCI_OX_MAKE(dynamic_quantize)
{
    tc_tensor x = tci_ox_in(o, 0);
    tc_tensor low = tc_minimum(tc_min(x, TC_ALL, false), 0);
    tc_tensor high = tc_maximum(tc_max(x, TC_ALL, false), 0);
    tc_tensor scale = tc_div(tc_sub(high, low), 255);
    tc_tensor zero = tc_cast(tc_round(tc_neg(tc_div(low, scale))), TC_U8);
    tci_ox_out(o, 0, tci_ox_saturated(o, tc_div(x, scale), zero, TC_U8));
    tci_ox_out(o, 1, scale);
    tci_ox_out(o, 2, zero);
}

/* x in i32 less its zero point, operand i: of one element, of each row, or of each column. */
static tc_tensor tci_ox_centred(const tci_ox_op *o, tc_tensor x, int i, bool rows)
{
    tc_tensor wide = tc_cast(x, TC_I32);
    if (!tci_ox_has(o, i)) {
        return wide;
    }
    tc_tensor zero = tc_cast(tci_ox_in(o, i), TC_I32);
    if (rows && tc_rank(zero) == 1 && tc_size(zero, 0) != 1) {
        zero = tc_unsqueeze(zero, -1);
    }
    return tc_sub(wide, zero);
}

TCI_OX_MAKE(matmul_integer)
{
    tc_tensor a = tci_ox_centred(o, tci_ox_in(o, 0), 2, true);
    tci_ox_out(o, 0, tc_matmul(a, tci_ox_centred(o, tci_ox_in(o, 1), 3, false)));
}

TCI_OX_MAKE(qlinear_matmul)
{
    tc_tensor a = tci_ox_centred(o, tci_ox_in(o, 0), 2, true);
    tc_tensor sum = tc_matmul(a, tci_ox_centred(o, tci_ox_in(o, 3), 5, false));
    tc_tensor scale = tci_ox_in(o, 1), zero = tci_ox_in(o, 7);
    if (tc_rank(scale) == 1 && tc_size(scale, 0) != 1) {
        scale = tc_unsqueeze(scale, -1);
    }
    scale = tc_mul(tc_cast(scale, TC_F32), tc_cast(tci_ox_in(o, 4), TC_F32));
    scale = tc_div(scale, tc_cast(tci_ox_in(o, 6), TC_F32));
    tc_tensor y = tc_mul(tc_cast(sum, TC_F32), scale);
    tci_ox_out(o, 0, tci_ox_saturated(o, y, zero, tc_dtype_of(zero)));
}
/* ---- src/onnx/import_signal.c ---- */
/* onnx/import_signal.c - imports ONNX signal operators: Fourier transforms, windows, mel filters.
 */

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* [..., 1] or [..., 2] as pairs. */
static tc_tensor tci_ox_pairs(const tci_ox_op *o, tc_tensor x)
{
    return tc_size(x, -1) == 1 ? tc_pad(x, -1, 0, 1, 0) : x;
}

TCI_OX_MAKE(dft)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0), y;
    tci_ox_sizes(o, x, &rank);
    int64_t axis = o->opset >= 20 ? tci_ox_has(o, 2) ? tci_ox_need_int(o, 2, "the axis") : -2
                                  : tci_ox_int(o, "axis", 1);
    int at = tci_ox_axis(o, axis, rank);
    bool inverse = tci_ox_int(o, "inverse", 0) != 0, half = tci_ox_int(o, "onesided", 0) != 0;
    int64_t n = tci_ox_has(o, 1) ? tci_ox_need_int(o, 1, "dft_length") : 0;
    if (inverse && half) {
        y = tc_unsqueeze(tc_irfft(tci_ox_pairs(o, x), n, at, NULL), -1);
    } else if (inverse) {
        y = tc_ifft(tci_ox_pairs(o, x), n, at, NULL);
    } else if (half) {
        y = tc_rfft(tc_squeeze(x, -1), n, at, NULL);
    } else {
        y = tc_fft(tci_ox_pairs(o, x), n, at, NULL);
    }
    tci_ox_out(o, 0, tc_cast(y, tc_dtype_of(x)));
}

/* [batch, n, 1 or 2] to [batch, frames, bins, 2]. */
TCI_OX_MAKE(stft)
{
    tc_tensor x = tci_ox_in(o, 0), window = tci_ox_maybe(o, 2);
    int64_t step = tci_ox_need_int(o, 1, "frame_step");
    int64_t size = tci_ox_has(o, 3)       ? tci_ox_need_int(o, 3, "frame_length")
                   : tci_ox_given(window) ? tc_size(window, 0)
                                          : 0;
    bool half = tci_ox_int(o, "onesided", 1) != 0;
    x = tc_unfold(tci_ox_pairs(o, x), 1, size, step); /* [batch, frames, 2, size] */
    x = tci_ox_given(window) ? tc_mul(x, window) : x;
    x = tc_fft(tc_transpose(x, 2, 3), size, 2, NULL);
    tci_ox_out(o, 0, half ? tc_slice(x, 2, 0, tc_dim_add(tc_dim_div(size, 2), 1), 1) : x);
}

/* a - b cos(2 pi i / n) + c cos(4 pi i / n) */
TCI_OX_MAKE(window)
{
    int64_t n = tci_ox_need_int(o, 0, "the size");
    double span = (double)(n - (tci_ox_int(o, "periodic", 1) ? 0 : 1));
    const char *kind = o->row->call;
    double a = *kind == 'h' ? 0.5 : *kind == 'H' ? 25.0 / 46.0 : 0.42;
    double b = *kind == 'H' ? 1 - a : 0.5, c = *kind == 'b' ? 0.08 : 0;
    tci_ox_known *k;
    if (n < 0 || n > TCI_OX_LIST_MOST) {
        tci_ox_fail(o, TC_ERR_LIMIT, "a window of %" PRId64 " elements", n);
    }
    k = tci_ox_known_new(o->s, TC_F64, 1, &n);
    for (int64_t i = 0; i < n; i++) {
        double angle = 2 * 3.14159265358979323846 * (double)i / span;
        k->cells[i].f = a - b * cos(angle) + c * cos(2 * angle);
    }
    tci_ox_out(o, 0,
               tc_cast(tci_ox_known_tensor(o, k),
                       tci_ox_dtype(o, tci_ox_int(o, "output_datatype", 1))));
}

TCI_OX_MAKE(mel)
{
    int64_t bins = tci_ox_need_int(o, 0, "num_mel_bins"), n = tci_ox_need_int(o, 1, "dft_length");
    double rate = tci_ox_need_real(o, 2, "sample_rate"), edge[2];
    int64_t rows = n / 2 + 1;
    if (bins < 1 || n < 1 || rows > TCI_OX_LIST_MOST / bins || !(rate > 0)) {
        tci_ox_fail(o, TC_ERR_LIMIT, "%" PRId64 " bins of %" PRId64 " points", bins, n);
    }
    for (int i = 0; i < 2; i++) {
        edge[i] = 2595 * log10(1 + tci_ox_need_real(o, 3 + i, "an edge") / 700);
    }
    int64_t *at = TCI_NEW_ARRAY(o->s, int64_t, bins + 2);
    for (int64_t i = 0; i < bins + 2; i++) {
        double mel = edge[0] + (double)i * (edge[1] - edge[0]) / (double)(bins + 2);
        at[i] = (int64_t)floor((double)(n + 1) * 700 * (pow(10, mel / 2595) - 1) / rate);
        at[i] = at[i] < 0 ? 0 : at[i] >= rows ? rows - 1 : at[i];
    }
    tci_ox_known *k = tci_ox_known_new(o->s, TC_F64, 2, (int64_t[]){rows, bins});
    for (int64_t i = 0; i < bins; i++) {
        int64_t low = at[i], mid = at[i + 1], high = at[i + 2];
        for (int64_t j = low; j <= mid; j++) {
            k->cells[j * bins + i].f = mid == low ? 1 : (double)(j - low) / (double)(mid - low);
        }
        for (int64_t j = mid; j < high; j++) {
            k->cells[j * bins + i].f = (double)(high - j) / (double)(high - mid);
        }
    }
    tci_ox_out(o, 0,
               tc_cast(tci_ox_known_tensor(o, k),
                       tci_ox_dtype(o, tci_ox_int(o, "output_datatype", 1))));
}
/* ---- src/onnx/import_attention.c ---- */
/* onnx/import_attention.c - imports ONNX operators of language models: Attention, RotaryEmbedding,
 * causal convolution with state, linear attention. */

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- Attention ---- */

/* [batch, rows, heads * width] as [batch, heads, rows, width]. */
static tc_tensor tci_ox_heads(const tci_ox_op *o, tc_tensor x, const char *heads)
{
    int64_t n = tci_ox_int(o, heads, 0);
    if (tc_rank(x) != 3) {
        return x;
    }
    if (n < 1) {
        tci_ox_fail(o, TC_ERR_ARGUMENT, "%s is missing", heads);
    }
    int64_t width = tc_dim_div(tc_size(x, 2), n);
    return tc_permute(tc_reshape(x, tc_size(x, 0), tc_size(x, 1), n, width), 0, 2, 1, 3);
}

typedef struct tci_ox_attention {
    tc_tensor q, k, v;
    tc_tensor seen; /* bool, [..., q, k], or TC_NONE: all */
    tc_tensor bias; /* added to scores, or TC_NONE */
} tci_ox_attention;

static void tci_ox_see(const tci_ox_op *o, tci_ox_attention *a, tc_tensor seen)
{
    a->seen = tci_ox_given(a->seen) ? tc_logical_and(a->seen, seen) : seen;
}

/* The mask of the node, of as many keys as there are. */
static void tci_ox_attention_mask(const tci_ox_op *o, tci_ox_attention *a, int64_t keys)
{
    tc_tensor mask = tci_ox_maybe(o, 3);
    if (!tci_ox_given(mask)) {
        return;
    }
    bool is_bool = tc_dtype_of(mask) == TC_BOOL;
    int64_t more = tc_dim_sub(keys, tc_size(mask, -1));
    if (more != 0 && tc_size(mask, -1) != 1) {
        mask = is_bool ? tc_pad(mask, -1, 0, more, 0) : tc_pad(mask, -1, 0, more, -HUGE_VAL);
    }
    if (is_bool) {
        tci_ox_see(o, a, mask);
    } else {
        a->bias = mask;
    }
}

/* Causal and window bounds, which count from the keys before the first query; and padding. */
static void tci_ox_attention_bounds(const tci_ox_op *o, tci_ox_attention *a, int64_t keys)
{
    int64_t left = tci_ox_int(o, "left_window_size", -1);
    int64_t right = tci_ox_int(o, "right_window_size", -1), rows = tc_size(a->q, 2);
    bool causal = tci_ox_int(o, "is_causal", 0) != 0, padded = tci_ox_has(o, 6);
    tc_tensor key = tci_ox_places(o, keys, 4, 3), row = tci_ox_places(o, rows, 4, 2);
    tc_tensor valid = TC_NONE;
    if (padded) {
        valid = tc_cast(tci_ox_in(o, 6), TC_I64);
        valid = tc_reshape(valid, tc_count(valid), 1, 1, 1);
        row = tc_add(row, tc_sub(valid, rows));
        tci_ox_see(o, a, tc_lt(key, valid));
    } else if (tci_ox_has(o, 4)) {
        row = tc_add(row, tc_size(tci_ox_in(o, 4), 2));
    }
    if (causal) {
        tci_ox_see(o, a, tc_le(key, row));
    }
    if (left >= 0) {
        tci_ox_see(o, a, tc_ge(key, tc_sub(row, left)));
    }
    if (right >= 0) {
        tci_ox_see(o, a, tc_le(key, tc_add(row, right)));
    }
}

static tc_tensor tci_ox_attention_out(const tci_ox_op *o, tc_tensor y)
{
    if (tc_rank(tci_ox_in(o, 0)) == 3) {
        int64_t width = tc_dim_mul(tc_size(y, 1), tc_size(y, 3));
        y = tc_reshape(tc_permute(y, 0, 2, 1, 3), tc_size(y, 0), tc_size(y, 2), width);
    }
    return y;
}

/* Step by step: scores can be capped, and looked at. */
static void tci_ox_attention_steps(const tci_ox_op *o, tci_ox_attention *a, double scale)
{
    tc_dtype d = tc_dtype_of(a->q);
    double cap = tci_ox_real(o, "softcap", 0);
    int64_t mode = tci_ox_int(o, "qk_matmul_output_mode", 0);
    int64_t heads = tc_size(a->q, 1), shared = tc_dim_div(heads, tc_size(a->k, 1));
    tc_dtype inner = tci_ox_attr(o, "softmax_precision")
                         ? tci_ox_dtype(o, tci_ox_int(o, "softmax_precision", 1))
                         : d;
    if (shared != 1) {
        a->k = tc_repeat_interleave(a->k, shared, 1, heads);
        a->v = tc_repeat_interleave(a->v, shared, 1, heads);
    }
    double root = sqrt(scale);
    tc_tensor qk = tc_matmul(tc_mul(a->q, root), tc_transpose(tc_mul(a->k, root), 2, 3));
    qk = cap > 0 ? tc_mul(tc_tanh(tc_div(qk, cap)), cap) : qk;
    tc_tensor shown = qk;
    qk = tci_ox_given(a->bias) ? tc_add(qk, a->bias) : qk;
    qk = tci_ox_given(a->seen) ? tc_where(a->seen, qk, -HUGE_VAL) : qk;
    shown = mode == 2 ? qk : shown;
    tc_tensor p = tc_softmax(tc_cast(qk, inner), 3);
    tc_tensor none = tc_eq(tc_max(qk, TC_AXES(3), true), -HUGE_VAL);
    p = tc_cast(tc_where(none, 0, p), d);
    tci_ox_out(o, 0, tci_ox_attention_out(o, tc_matmul(p, a->v)));
    tci_ox_out(o, 3, mode == 3 ? p : shown);
}

TCI_OX_MAKE(attention)
{
    tci_ox_attention a = {.seen = TC_NONE, .bias = TC_NONE};
    a.q = tci_ox_heads(o, tci_ox_in(o, 0), "q_num_heads");
    a.k = tci_ox_heads(o, tci_ox_in(o, 1), "kv_num_heads");
    a.v = tci_ox_heads(o, tci_ox_in(o, 2), "kv_num_heads");
    a.k = tci_ox_has(o, 4) ? tc_cat(TC_TENSORS(tci_ox_in(o, 4), a.k), 2) : a.k;
    a.v = tci_ox_has(o, 5) ? tc_cat(TC_TENSORS(tci_ox_in(o, 5), a.v), 2) : a.v;
    tci_ox_out(o, 1, a.k);
    tci_ox_out(o, 2, a.v);
    int64_t keys = tc_size(a.k, 2), width = tc_size(a.q, 3);
    double scale = tci_ox_real(o, "scale", 1 / sqrt(tci_dim_is_known(width) ? (double)width : 1));
    tci_ox_attention_mask(o, &a, keys);
    tci_ox_attention_bounds(o, &a, keys);
    if (tci_ox_wants(o, 3) || tci_ox_real(o, "softcap", 0) > 0 || scale == 0) {
        tci_ox_attention_steps(o, &a, scale);
        return;
    }
    tc_tensor mask = a.seen;
    if (tci_ox_given(a.bias)) {
        mask = tci_ox_given(a.seen) ? tc_where(a.seen, a.bias, -HUGE_VAL) : a.bias;
    }
    tc_tensor y = tc_scaled_dot_product_attention(a.q, a.k, a.v, mask, false, scale);
    tci_ox_out(o, 0, tci_ox_attention_out(o, y));
}

/* ---- RotaryEmbedding ---- */

/* Rows of a cache at the positions, next to x [batch, rows, heads, width]. */
static tc_tensor tci_ox_rotation(const tci_ox_op *o, int i)
{
    tc_tensor cache = tci_ox_in(o, i);
    if (tci_ox_has(o, 3)) {
        cache = tc_embedding(tci_ox_in(o, 3), cache);
    }
    return tc_unsqueeze(cache, 2);
}

TCI_OX_MAKE(rotary)
{
    int rank;
    tc_tensor x = tci_ox_in(o, 0), cosine = tci_ox_rotation(o, 1), sine = tci_ox_rotation(o, 2);
    const int64_t *sizes = tci_ox_sizes(o, x, &rank);
    int64_t heads = tci_ox_int(o, "num_heads", 0), part = tci_ox_int(o, "rotary_embedding_dim", 0);
    bool flat = rank == 3, pairs = tci_ox_int(o, "interleaved", 0) != 0;
    if (flat && heads < 1) {
        tci_ox_fail(o, TC_ERR_ARGUMENT, "num_heads is missing");
    }
    x = flat ? tc_reshape(x, sizes[0], sizes[1], heads, tc_dim_div(sizes[2], heads))
             : tc_transpose(x, 1, 2);
    int64_t width = tc_size(x, 3);
    part = part ? part : width;
    tc_tensor turned = tc_slice(x, 3, 0, part, 1), rest = tc_slice(x, 3, part, width, 1);
    int64_t half = tc_dim_div(part, 2);
    tc_tensor a = pairs ? tc_slice(turned, 3, 0, part, 2) : tc_slice(turned, 3, 0, half, 1);
    tc_tensor b = pairs ? tc_slice(turned, 3, 1, part, 2) : tc_slice(turned, 3, half, part, 1);
    tc_tensor real = tc_sub(tc_mul(cosine, a), tc_mul(sine, b));
    tc_tensor imag = tc_add(tc_mul(sine, a), tc_mul(cosine, b));
    if (pairs) {
        turned = tc_reshape(tc_stack(TC_TENSORS(real, imag), 4), tc_size(x, 0), tc_size(x, 1),
                            tc_size(x, 2), part);
    } else {
        turned = tc_cat(TC_TENSORS(real, imag), 3);
    }
    x = part == width ? turned : tc_cat(TC_TENSORS(turned, rest), 3);
    tci_ox_out(o, 0, flat ? tci_ox_shape_as(o, x, 3, sizes) : tc_transpose(x, 1, 2));
}

/* ---- states ---- */

TCI_OX_MAKE(causal_conv)
{
    tc_tensor x = tci_ox_in(o, 0), weight = tci_ox_in(o, 1), bias = tci_ox_maybe(o, 2);
    int64_t k = tc_size(weight, 2), before = tc_dim_sub(k, 1);
    const char *act = tci_ox_text(o, "activation", "none");
    tc_tensor all = tci_ox_has(o, 3) ? tc_cat(TC_TENSORS(tci_ox_in(o, 3), x), 2)
                                     : tc_pad(x, 2, before, 0, 0);
    tc_tensor y = tc_conv1d(all, weight, bias, &(tc_conv){.groups = tc_size(x, 1)});
    y = !strcmp(act, "none") ? y : tc_silu(y);
    tci_ox_out(o, 0, y);
    tci_ox_out(o, 1, tc_slice(all, 2, tc_dim_sub(tc_size(all, 2), before), tc_size(all, 2), 1));
}

/* One step of LinearAttention: carry[0] the state [batch, heads, keys, values]; x: query, key,
 * value, then decay and beta where there are such. */
typedef struct tci_ox_linear {
    tci_ox_op *o;
    bool gates, corrects;
    int64_t shared; /* heads of the query for each of the key */
    double scale;
} tci_ox_linear;

static tc_status tci_ox_linear_step(void *user, const tc_tensor *carry, const tc_tensor *x,
                                    tc_tensor *next, tc_tensor *y)
{
    const tci_ox_linear *l = user;
    const tci_ox_op *o = l->o;
    tc_tensor state = carry[0], k = tc_unsqueeze(x[1], -1), v = tc_unsqueeze(x[2], -2);
    if (l->gates) {
        state = tc_mul(state, tc_unsqueeze(tc_exp(x[3]), -1));
    }
    if (l->corrects) {
        tc_tensor was = tc_sum(tc_mul(state, k), TC_AXES(2), true);
        v = tc_mul(tc_unsqueeze(x[l->gates ? 4 : 3], -1), tc_sub(v, was));
    }
    state = tc_add(state, tc_mul(k, v));
    next[0] = state;
    tc_tensor read = l->shared == 1 ? state
                                    : tc_repeat_interleave(state, l->shared, 1, tc_size(x[0], 1));
    y[0] = tc_mul(tc_sum(tc_mul(read, tc_unsqueeze(x[0], -1)), TC_AXES(2), false), l->scale);
    return TC_OK;
}

/* [batch, steps, heads * width] as [steps, batch, heads, width] in f32. */
static tc_tensor tci_ox_steps(const tci_ox_op *o, tc_tensor x, int64_t heads)
{
    int64_t width = tc_dim_div(tc_size(x, 2), heads);
    x = tc_cast(tc_reshape(x, tc_size(x, 0), tc_size(x, 1), heads, width), TC_F32);
    return tc_transpose(x, 0, 1);
}

TCI_OX_MAKE(linear_attention)
{
    const char *rule = tci_ox_text(o, "update_rule", "gated_delta");
    int64_t q_heads = tci_ox_int(o, "q_num_heads", 0), heads = tci_ox_int(o, "kv_num_heads", 0);
    tci_ox_linear l = {.o = o,
                       .gates = !strncmp(rule, "gated", 5),
                       .corrects = strstr(rule, "delta") != NULL};
    tc_tensor q = tci_ox_in(o, 0), xs[5], last, ys, past = tci_ox_maybe(o, 3);
    int n = 3;
    if (heads < 1 || q_heads < heads || q_heads % heads) {
        tci_ox_fail(o, TC_ERR_ARGUMENT, "%" PRId64 " heads of the query for %" PRId64 " of the key",
                    q_heads, heads);
    }
    l.shared = q_heads / heads;
    xs[0] = tci_ox_steps(o, q, q_heads);
    xs[1] = tci_ox_steps(o, tci_ox_in(o, 1), heads);
    xs[2] = tci_ox_steps(o, tci_ox_in(o, 2), heads);
    if (l.gates) {
        xs[n++] = tci_ox_steps(o, tci_ox_in(o, 4), heads);
    }
    if (l.corrects) {
        tc_tensor beta = tci_ox_in(o, 5);
        xs[n++] = tci_ox_steps(o, beta, tc_size(beta, 2));
    }
    int64_t keys = tc_size(xs[1], 3), values = tc_size(xs[2], 3), batch = tc_size(q, 0);
    l.scale = tci_ox_real(o, "scale", 0);
    l.scale = l.scale != 0 ? l.scale : 1 / sqrt(tci_dim_is_known(keys) ? (double)keys : 1);
    tc_dtype kept = tci_ox_given(past) ? tc_dtype_of(past) : tc_dtype_of(q);
    tc_tensor state = tci_ox_given(past)
                          ? tc_cast(past, TC_F32)
                          : tc_expand(tc_full(o->ctx, 0, TC_F32), batch, heads, keys, values);
    tci_ox_rethrow(o, tc_scan(TC_TENSORS(state), TC_TENSORS_N(xs, n), 0, false, tci_ox_linear_step,
                              &l, &last, &ys, 1));
    ys = tc_reshape(tc_transpose(ys, 0, 1), batch, tc_size(q, 1), tc_dim_mul(q_heads, values));
    tci_ox_out(o, 0, tc_cast(ys, tc_dtype_of(q)));
    tci_ox_out(o, 1, tc_cast(last, kept));
}
/* ---- src/onnx/import_recurrent.c ---- */
/* onnx/import_recurrent.c - imports the ONNX operators RNN, GRU and LSTM as a tc_scan for each
 * direction.
 *
 * Input projections of all steps are computed up front; each step adds the recurrent projection.
 * Sequences of a batch may end early: past its end the state is carried unchanged and outputs are
 * 0. */

#include <math.h>
#include <string.h>

typedef struct tci_ox_rnn {
    const tci_ox_op *o;
    int gates; /* 1: RNN, 3: GRU, 4: LSTM */
    int64_t width;
    tc_tensor r;       /* weights of the state, transposed: [width, gates * width] */
    tc_tensor rb;      /* their bias [gates * width], or TC_NONE */
    tc_tensor peep[3]; /* of input, output and forget gate, or TC_NONE */
    tc_tensor lengths; /* [batch, 1], or TC_NONE */
    const char *act[3];
    double alpha[3], beta[3], clip;
    bool couples, linear; /* input_forget, linear_before_reset */
} tci_ox_rnn;

/* X(name, alpha, beta, value of x) */
#define TCI_OX_ACTIVATIONS(X)                                                                      \
    X(Sigmoid, 0, 0, tc_sigmoid(x))                                                                \
    X(Tanh, 0, 0, tc_tanh(x))                                                                      \
    X(Relu, 0, 0, tc_relu(x))                                                                      \
    X(Affine, 1, 0, tc_add(tc_mul(x, a), b))                                                       \
    X(LeakyRelu, 0.01, 0, tc_leaky_relu(x, a))                                                     \
    X(ThresholdedRelu, 1, 0, tc_where(tc_gt(x, a), x, 0))                                          \
    X(ScaledTanh, 1, 1, tc_mul(tc_tanh(tc_mul(x, b)), a))                                          \
    X(HardSigmoid, 0.2, 0.5, tc_clamp(tc_add(tc_mul(x, a), b), 0, 1))                              \
    X(Elu, 1, 0, tc_elu(x, a))                                                                     \
    X(Softsign, 0, 0, tc_div(x, tc_add(tc_abs(x), 1)))                                             \
    X(Softplus, 0, 0, tc_log1pexp(x))

static tc_tensor tci_ox_activate(const tci_ox_rnn *n, int i, tc_tensor x)
{
    const tci_ox_op *o = n->o;
    double a = n->alpha[i], b = n->beta[i];
    (void)a;
    (void)b;
    x = n->clip > 0 ? tc_clamp(x, -n->clip, n->clip) : x;
#define TCI_ROW(name, alpha, beta, value)                                                          \
    if (!strcmp(n->act[i], #name)) {                                                               \
        return value;                                                                              \
    }
    TCI_OX_ACTIVATIONS(TCI_ROW)
#undef TCI_ROW
    return x;
}

static tc_tensor tci_ox_gate(const tci_ox_rnn *n, tc_tensor all, int i)
{
    const tci_ox_op *o = n->o;
    return tc_slice(all, 1, tc_dim_mul(n->width, i), tc_dim_mul(n->width, i + 1), 1);
}

static tc_tensor tci_ox_peep(const tci_ox_rnn *n, tc_tensor x, int i, tc_tensor c)
{
    const tci_ox_op *o = n->o;
    return tci_ox_given(n->peep[i]) ? tc_add(x, tc_mul(n->peep[i], c)) : x;
}

/* Gates: input, output, forget, cell. */
static void tci_ox_lstm_step(const tci_ox_rnn *n, const tc_tensor *carry, tc_tensor x, tc_tensor *h,
                             tc_tensor *c)
{
    const tci_ox_op *o = n->o;
    x = tc_add(x, tc_matmul(carry[0], n->r));
    tc_tensor i = tci_ox_activate(n, 0, tci_ox_peep(n, tci_ox_gate(n, x, 0), 0, carry[1]));
    tc_tensor f = tci_ox_activate(n, 0, tci_ox_peep(n, tci_ox_gate(n, x, 2), 2, carry[1]));
    f = n->couples ? tc_sub(1, i) : f;
    tc_tensor g = tci_ox_activate(n, 1, tci_ox_gate(n, x, 3));
    *c = tc_add(tc_mul(f, carry[1]), tc_mul(i, g));
    tc_tensor q = tci_ox_activate(n, 0, tci_ox_peep(n, tci_ox_gate(n, x, 1), 1, *c));
    *h = tc_mul(q, tci_ox_activate(n, 2, *c));
}

/* Gates: update, reset, hidden. */
static void tci_ox_gru_step(const tci_ox_rnn *n, const tc_tensor *carry, tc_tensor x, tc_tensor *h)
{
    const tci_ox_op *o = n->o;
    tc_tensor was = carry[0], by = tc_matmul(was, n->r);
    by = tci_ox_given(n->rb) ? tc_add(by, n->rb) : by;
    tc_tensor z = tci_ox_activate(n, 0, tc_add(tci_ox_gate(n, x, 0), tci_ox_gate(n, by, 0)));
    tc_tensor r = tci_ox_activate(n, 0, tc_add(tci_ox_gate(n, x, 1), tci_ox_gate(n, by, 1)));
    tc_tensor hidden = tc_mul(r, tci_ox_gate(n, by, 2));
    if (!n->linear) {
        tc_tensor w = tc_slice(n->r, 1, tc_dim_mul(n->width, 2), tc_dim_mul(n->width, 3), 1);
        hidden = tc_matmul(tc_mul(r, was), w);
        hidden = tci_ox_given(n->rb) ? tc_add(hidden, tc_slice(n->rb, 0, tc_dim_mul(n->width, 2),
                                                               tc_dim_mul(n->width, 3), 1))
                                     : hidden;
    }
    hidden = tci_ox_activate(n, 1, tc_add(tci_ox_gate(n, x, 2), hidden));
    *h = tc_add(tc_mul(tc_sub(1, z), hidden), tc_mul(z, was));
}

static tc_status tci_ox_rnn_step(void *user, const tc_tensor *carry, const tc_tensor *x,
                                 tc_tensor *next, tc_tensor *y)
{
    const tci_ox_rnn *n = user;
    const tci_ox_op *o = n->o;
    if (n->gates == 4) {
        tci_ox_lstm_step(n, carry, x[0], &next[0], &next[1]);
    } else if (n->gates == 3) {
        tci_ox_gru_step(n, carry, x[0], &next[0]);
    } else {
        next[0] = tci_ox_activate(n, 0, tc_add(x[0], tc_matmul(carry[0], n->r)));
    }
    y[0] = next[0];
    if (tci_ox_given(n->lengths)) {
        tc_tensor goes = tc_lt(x[1], n->lengths);
        y[0] = tc_where(goes, next[0], 0);
        for (int i = 0; i < (n->gates == 4 ? 2 : 1); i++) {
            next[i] = tc_where(goes, next[i], carry[i]);
        }
    }
    return TC_OK;
}

/* Activations of direction d, or the usual ones. */
static void tci_ox_rnn_activations(const tci_ox_op *o, tci_ox_rnn *n, int d)
{
    static const char *const usual[5][3] = {{NULL},
                                            {"Tanh"},
                                            {NULL},
                                            {"Sigmoid", "Tanh"},
                                            {"Sigmoid", "Tanh", "Tanh"}};
    const tci_onnx_attr *names = tci_ox_attr(o, "activations");
    const tci_onnx_attr *alphas = tci_ox_attr(o, "activation_alpha");
    const tci_onnx_attr *betas = tci_ox_attr(o, "activation_beta");
    int each = n->gates == 1 ? 1 : n->gates - 1;
    bool lists = (!names || names->kind == TCI_ONNX_STRINGS) &&
                 (!alphas || alphas->kind == TCI_ONNX_FLOATS) &&
                 (!betas || betas->kind == TCI_ONNX_FLOATS);
    if (!lists) {
        tci_ox_fail(o, TC_ERR_IO, "activations of another type than the op says");
    }
    for (int i = 0; i < each; i++) {
        int at = d * each + i;
        bool known = false;
        n->act[i] = names && at < names->n ? names->strings[at] : usual[n->gates][i];
#define TCI_ROW(name, a, b, value)                                                                 \
    if (!strcmp(n->act[i], #name)) {                                                               \
        known = true;                                                                              \
        n->alpha[i] = a;                                                                           \
        n->beta[i] = b;                                                                            \
    }
        TCI_OX_ACTIVATIONS(TCI_ROW)
#undef TCI_ROW
        if (!known) {
            tci_ox_fail(o, TC_ERR_UNSUPPORTED, "activation %.40s is not supported", n->act[i]);
        }
        n->alpha[i] = alphas && at < alphas->n ? alphas->floats[at] : n->alpha[i];
        n->beta[i] = betas && at < betas->n ? betas->floats[at] : n->beta[i];
    }
}

/* Element d of the first axis, or TC_NONE of none. */
static tc_tensor tci_ox_direction(const tci_ox_op *o, int i, int d)
{
    return tci_ox_has(o, i) ? tc_select(tci_ox_in(o, i), 0, d) : TC_NONE;
}

/* x [steps, batch, inputs] through direction d. */
static void tci_ox_rnn_run(tci_ox_op *o, tci_ox_rnn *n, tc_tensor x, int d, bool reverse,
                           tc_tensor init[2], tc_tensor *ys, tc_tensor last[2])
{
    tc_tensor w = tci_ox_direction(o, 1, d), bias = tci_ox_direction(o, 3, d), xs[2];
    int64_t gates = tc_dim_mul(n->width, n->gates);
    n->r = tc_transpose(tci_ox_direction(o, 2, d), 0, 1);
    n->rb = TC_NONE;
    xs[0] = tc_matmul(x, tc_transpose(w, 0, 1));
    if (tci_ox_given(bias)) {
        tc_tensor rb = tc_slice(bias, 0, gates, tc_dim_mul(gates, 2), 1);
        xs[0] = tc_add(xs[0], tc_slice(bias, 0, 0, gates, 1));
        n->rb = n->gates == 3 ? rb : TC_NONE;
        xs[0] = n->gates == 3 ? xs[0] : tc_add(xs[0], rb);
    }
    for (int i = 0; i < 3; i++) {
        tc_tensor p = n->gates == 4 ? tci_ox_direction(o, 7, d) : TC_NONE;
        n->peep[i] = tci_ox_given(p)
                         ? tc_slice(p, 0, tc_dim_mul(n->width, i), tc_dim_mul(n->width, i + 1), 1)
                         : TC_NONE;
    }
    xs[1] = tci_ox_places(o, tc_size(x, 0), 1, 0);
    tci_ox_rnn_activations(o, n, d);
    int states = n->gates == 4 ? 2 : 1, n_xs = tci_ox_given(n->lengths) ? 2 : 1;
    tci_ox_rethrow(o, tc_scan(TC_TENSORS_N(init, states), TC_TENSORS_N(xs, n_xs), 0, reverse,
                              tci_ox_rnn_step, n, last, ys, 1));
}

/* State i before the first step, of direction d; it has batch first if `layout`. */
static tc_tensor tci_ox_rnn_init(const tci_ox_op *o, const tci_ox_rnn *n, tc_tensor x, int i, int d,
                                 bool layout)
{
    if (!tci_ox_has(o, i)) {
        return tc_expand(tc_full(o->ctx, 0, tc_dtype_of(x)), tc_size(x, 1), n->width);
    }
    return tc_select(tci_ox_in(o, i), layout ? 1 : 0, d);
}

TCI_OX_MAKE(rnn)
{
    const char *way = tci_ox_text(o, "direction", "forward");
    tci_ox_rnn n = {.o = o, .gates = o->row->call[0] - '0', .lengths = TC_NONE};
    tc_tensor x = tci_ox_in(o, 0), ys[2], last[2][2];
    bool layout = tci_ox_int(o, "layout", 0) != 0;
    int ways = strcmp(way, "bidirectional") ? 1 : 2;
    n.width = tc_size(tci_ox_in(o, 2), 2);
    n.clip = tci_ox_real(o, "clip", 0);
    n.couples = tci_ox_int(o, "input_forget", 0) != 0;
    n.linear = tci_ox_int(o, "linear_before_reset", 0) != 0;
    x = layout ? tc_transpose(x, 0, 1) : x;
    if (tci_ox_has(o, 4)) {
        n.lengths = tc_unsqueeze(tc_cast(tci_ox_in(o, 4), TC_I64), 1);
    }
    for (int d = 0; d < ways; d++) {
        bool reverse = d == 1 || !strcmp(way, "reverse");
        tc_tensor init[2] = {tci_ox_rnn_init(o, &n, x, 5, d, layout), TC_NONE};
        if (n.gates == 4) {
            init[1] = tci_ox_rnn_init(o, &n, x, 6, d, layout);
        }
        tci_ox_rnn_run(o, &n, x, d, reverse, init, &ys[d], last[d]);
    }
    tc_tensor y = tc_stack(TC_TENSORS_N(ys, ways), 1);
    tci_ox_out(o, 0, layout ? tc_permute(y, 2, 0, 1, 3) : y);
    for (int i = 0; i < (n.gates == 4 ? 2 : 1); i++) {
        tc_tensor ends[2] = {last[0][i], ways == 2 ? last[1][i] : TC_NONE};
        tci_ox_out(o, i + 1, tc_stack(TC_TENSORS_N(ends, ways), layout ? 1 : 0));
    }
}
/* ---- src/onnx/import_control_flow.c ---- */
/* onnx/import_control_flow.c - imports the ONNX control flow operators If, Loop and Scan.
 *
 * A known condition or count selects a branch or unrolls the loop; otherwise the bodies become
 * those of tc_cond, tc_scan and tc_while. Bodies see the values of the outer graph. */

#include <inttypes.h>
#include <string.h>

enum { TCI_OX_UNROLL = 64, TCI_OX_CAPTURED = 4096 };

static void tci_ox_give(const tci_ox_op *o, int i, const tci_ox_value *v)
{
    if (tci_ox_wants(o, i)) {
        const char *name = o->out[i]->name;
        *o->out[i] = *v;
        o->out[i]->name = name;
    }
}

/* ---- If ---- */

typedef struct tci_ox_branch {
    const tci_onnx_graph *g;
    tci_ox_op *o;
    tci_ox_value **captured; /* of values around, whose tensors are the operands */
    int n_captured;
    const tc_tensor *x;
    tc_tensor *y;
} tci_ox_branch;

static void tci_ox_branch_build(tci_ox_op *o, void *user)
{
    tci_ox_branch *b = user;
    tci_ox_value **results = TCI_NEW_ARRAY(o->s, tci_ox_value *, b->g->n_outputs + 1);
    tc_tensor *outer = TCI_NEW_ARRAY(o->s, tc_tensor, b->n_captured + 1);
    for (int i = 0; i < b->n_captured; i++) {
        outer[i] = b->captured[i]->t;
        b->captured[i]->t = b->x[i];
    }
    o->m->build(o, b->g, NULL, 0, results);
    for (int i = 0; i < b->g->n_outputs; i++) {
        b->y[i] = tci_ox_tensor(o, results[i]);
    }
    for (int i = 0; i < b->n_captured; i++) {
        b->captured[i]->t = outer[i];
    }
}

static tc_status tci_ox_branch_call(tci_ox_branch *b, const tc_tensor *x, tc_tensor *y)
{
    tc_tensor *outer = TCI_NEW_ARRAY(b->o->s, tc_tensor, b->n_captured + 1);
    for (int i = 0; i < b->n_captured; i++) {
        outer[i] = b->captured[i]->t;
    }
    b->x = x;
    b->y = y;
    tc_status status = tci_ox_within(b->o, tci_ox_branch_build, b);
    for (int i = 0; i < b->n_captured; i++) { /* also after a failure */
        b->captured[i]->t = outer[i];
    }
    return status;
}

static tc_status tci_ox_then(void *user, const tc_tensor *x, tc_tensor *y)
{
    return tci_ox_branch_call((tci_ox_branch *)user, x, y);
}

static tc_status tci_ox_otherwise(void *user, const tc_tensor *x, tc_tensor *y)
{
    return tci_ox_branch_call((tci_ox_branch *)user + 1, x, y);
}

/* Values around that the nodes of a graph read, which are tensors of their own. */
static void tci_ox_captures(const tci_ox_op *o, const tci_onnx_graph *g, tci_ox_branch *b)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const tci_onnx_node *n = &g->nodes[i];
        for (int j = 0; j < n->n_in; j++) {
            tci_ox_value *v = *n->in[j] ? tci_ox_lookup(o, n->in[j]) : NULL;
            bool seen = !v || !v->is_made || v->is_cut || !v->depends;
            for (int k = 0; k < b->n_captured && !seen; k++) {
                seen = b->captured[k] == v;
            }
            if (!seen && b->n_captured < TCI_OX_CAPTURED) {
                b->captured[b->n_captured++] = v;
            }
        }
        for (int j = 0; j < n->n_attrs; j++) {
            if (n->attrs[j].g) {
                tci_ox_captures(o, n->attrs[j].g, b);
            }
        }
    }
}

TCI_OX_MAKE(if)
{
    tci_ox_branch both[2] = {{.g = tci_ox_body(o, "then_branch"), .o = o},
                             {.g = tci_ox_body(o, "else_branch"), .o = o}};
    if (!tci_ox_has(o, 0)) {
        tci_ox_fail(o, TC_ERR_IO, "the condition is left out");
    }
    if (tci_ox_can_know(o, o->in[0])) {
        const tci_ox_known *k = tci_ox_need(o, 0, "the condition");
        const tci_onnx_graph *g = k->n > 0 && k->cells[0].i ? both[0].g : both[1].g;
        tci_ox_value **results = TCI_NEW_ARRAY(o->s, tci_ox_value *, g->n_outputs + 1);
        o->m->build(o, g, NULL, 0, results);
        for (int i = 0; i < g->n_outputs; i++) {
            tci_ox_give(o, i, results[i]);
        }
        return;
    }
    int n = both[0].g->n_outputs;
    if (n != both[1].g->n_outputs || n < o->n_out) {
        tci_ox_fail(o, TC_ERR_IO, "the branches have %d and %d outputs", n, both[1].g->n_outputs);
    }
    both[0].captured = TCI_NEW_ARRAY(o->s, tci_ox_value *, TCI_OX_CAPTURED);
    tci_ox_captures(o, both[0].g, &both[0]);
    tci_ox_captures(o, both[1].g, &both[0]);
    both[1].captured = both[0].captured;
    both[1].n_captured = both[0].n_captured;
    tc_tensor *xs = TCI_NEW_ARRAY(o->s, tc_tensor, both[0].n_captured + 1);
    tc_tensor *ys = TCI_NEW_ARRAY(o->s, tc_tensor, n + 1);
    for (int i = 0; i < both[0].n_captured; i++) {
        xs[i] = both[0].captured[i]->t;
    }
    tc_tensor condition = tc_reshape_at(tci_ox_in(o, 0), 0, NULL, o->here);
    tci_ox_rethrow(o, tc_cond(condition, TC_TENSORS_N(xs, both[0].n_captured), tci_ox_then,
                              tci_ox_otherwise, both, ys, n));
    for (int i = 0; i < n; i++) {
        tci_ox_out(o, i, ys[i]);
    }
}

/* ---- bodies of loops ---- */

typedef struct tci_ox_loop {
    tci_ox_op *o;
    const tci_onnx_graph *g;
    int n_carry, n_x, n_y; /* states; what a step reads; what it adds to results */
    bool counts;           /* Loop: the body begins with count and condition, and ends with one */
    const tc_tensor *carry, *x;
    tc_tensor *next, *y;
} tci_ox_loop;

/* An input of a body. */
static tci_ox_value tci_ox_bound_value(tc_tensor t)
{
    return (tci_ox_value){.name = "",
                          .t = t,
                          .is_made = true,
                          .depends = TCI_OX_UNKNOWABLE,
                          .count = TC_NONE};
}

static tci_ox_value tci_ox_known_value(const tci_ox_known *k)
{
    return (tci_ox_value){.name = "", .t = TC_NONE, .known = k, .count = TC_NONE};
}

static const tci_ox_known *tci_ox_scalar_known(const tci_ox_op *o, tc_dtype d, int64_t v)
{
    tci_ox_known *k = tci_ox_known_new(o->s, d, 0, NULL);
    k->cells[0].i = v;
    return k;
}

static void tci_ox_check_body(const tci_ox_op *o, const tci_onnx_graph *g, int in, int out)
{
    if (g->n_inputs != in || g->n_outputs != out || o->n_out > out) {
        tci_ox_fail(o, TC_ERR_IO, "its body has %d inputs and %d outputs: expected %d and %d",
                    g->n_inputs, g->n_outputs, in, out);
    }
}

/* A step of tc_scan: carries, then what each step reads. A Loop's step reads its count. */
static void tci_ox_loop_build(tci_ox_op *o, void *user)
{
    tci_ox_loop *l = user;
    int n = l->g->n_inputs, at = 0, skip = l->counts ? 1 : 0;
    tci_ox_value *in = TCI_NEW_ARRAY(o->s, tci_ox_value, n + 1);
    tci_ox_value **out = TCI_NEW_ARRAY(o->s, tci_ox_value *, l->g->n_outputs + 1);
    if (l->counts) {
        in[at++] = tci_ox_bound_value(l->x[0]);
        in[at++] = tci_ox_known_value(tci_ox_scalar_known(o, TC_BOOL, 1));
    }
    for (int i = 0; i < l->n_carry; i++) {
        in[at++] = tci_ox_bound_value(l->carry[i]);
    }
    for (int i = 0; i < l->n_x && !l->counts; i++) {
        in[at++] = tci_ox_bound_value(l->x[i]);
    }
    o->m->build(o, l->g, in, n, out);
    for (int i = 0; i < l->n_carry; i++) {
        l->next[i] = tci_ox_tensor(o, out[skip + i]);
    }
    for (int i = 0; i < l->n_y; i++) {
        l->y[i] = tci_ox_tensor(o, out[skip + l->n_carry + i]);
    }
}

static tc_status tci_ox_scan_step(void *user, const tc_tensor *carry, const tc_tensor *x,
                                  tc_tensor *next, tc_tensor *y)
{
    tci_ox_loop *l = user;
    l->carry = carry;
    l->x = x;
    l->next = next;
    l->y = y;
    return tci_ox_within(l->o, tci_ox_loop_build, l);
}

/* ---- Scan ---- */

/* xs have the axis of steps first; ys too. */
static void tci_ox_scan_run(tci_ox_op *o, tci_ox_loop *l, tc_tensor *init, tc_tensor *xs,
                            tc_tensor *last, tc_tensor *ys)
{
    tci_ox_rethrow(o, tc_scan(TC_TENSORS_N(init, l->n_carry), TC_TENSORS_N(xs, l->n_x), 0, false,
                              tci_ox_scan_step, l, last, ys, l->n_y));
}

static int64_t tci_ox_each(const tci_ox_op *o, const char *name, int i)
{
    int n;
    const int64_t *list = tci_ox_ints(o, name, &n);
    return list && i < n ? list[i] : 0;
}

/* Opset 8: operand 0 has lengths, and all others a batch as their first axis. */
static void tci_ox_scan_batches(tci_ox_op *o, tci_ox_loop *l)
{
    int n = l->n_carry + l->n_x, results = l->n_carry + l->n_y;
    int64_t batch = tc_size(tci_ox_in(o, 1), 0);
    if (tci_ox_has(o, 0) || !tci_dim_is_known(batch) || batch < 1 || batch > TCI_OX_UNROLL) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "lengths, or a batch of more than %d", TCI_OX_UNROLL);
    }
    tc_tensor *all = TCI_NEW_ARRAY(o->s, tc_tensor, batch * (results + 1));
    for (int64_t b = 0; b < batch; b++) {
        tc_tensor *in = TCI_NEW_ARRAY(o->s, tc_tensor, n + 1);
        tc_tensor *out = TCI_NEW_ARRAY(o->s, tc_tensor, results + 1);
        for (int i = 0; i < n; i++) {
            in[i] = tc_select(tci_ox_in(o, i + 1), 0, b);
            bool back = i >= l->n_carry && tci_ox_each(o, "directions", i - l->n_carry);
            in[i] = back ? tc_flip(in[i], 0) : in[i];
        }
        tci_ox_scan_run(o, l, in, in + l->n_carry, out, out + l->n_carry);
        for (int i = 0; i < results; i++) {
            all[i * batch + b] = out[i];
        }
    }
    for (int i = 0; i < results; i++) {
        tci_ox_out(o, i, tc_stack(TC_TENSORS_N(all + i * batch, (int)batch), 0));
    }
}

TCI_OX_MAKE(scan)
{
    tci_ox_loop l = {.o = o, .g = tci_ox_body(o, "body")};
    int first = o->opset < 9 ? 1 : 0;
    int64_t scanned = tci_ox_int(o, "num_scan_inputs", 0);
    if (scanned < 1 || scanned > o->n_in - first ||
        l.g->n_outputs < o->n_in - first - (int)scanned) {
        tci_ox_fail(o, TC_ERR_IO, "%d operands, %" PRId64 " of them scanned", o->n_in, scanned);
    }
    l.n_x = (int)scanned;
    l.n_carry = o->n_in - first - l.n_x;
    l.n_y = l.g->n_outputs - l.n_carry;
    tci_ox_check_body(o, l.g, l.n_carry + l.n_x, l.n_carry + l.n_y);
    if (first) {
        tci_ox_scan_batches(o, &l);
        return;
    }
    tc_tensor *in = TCI_NEW_ARRAY(o->s, tc_tensor, o->n_in + 1);
    tc_tensor *out = TCI_NEW_ARRAY(o->s, tc_tensor, l.g->n_outputs + 1);
    for (int i = 0; i < o->n_in; i++) {
        int j = i - l.n_carry;
        in[i] = tci_ox_in(o, i);
        if (j >= 0) {
            int axis = tci_ox_axis(o, tci_ox_each(o, "scan_input_axes", j), tc_rank(in[i]));
            for (; axis > 0; axis--) {
                in[i] = tc_transpose(in[i], axis, axis - 1);
            }
            in[i] = tci_ox_each(o, "scan_input_directions", j) ? tc_flip(in[i], 0) : in[i];
        }
    }
    tci_ox_scan_run(o, &l, in, in + l.n_carry, out, out + l.n_carry);
    for (int i = 0; i < l.n_carry + l.n_y; i++) {
        int j = i - l.n_carry;
        if (j >= 0) {
            int to = tci_ox_axis(o, tci_ox_each(o, "scan_output_axes", j), tc_rank(out[i]));
            out[i] = tci_ox_each(o, "scan_output_directions", j) ? tc_flip(out[i], 0) : out[i];
            for (int axis = 0; axis < to; axis++) {
                out[i] = tc_transpose(out[i], axis, axis + 1);
            }
        }
        tci_ox_out(o, i, out[i]);
    }
}

/* ---- Loop ---- */

/* A step whose count and condition are known; *goes: the condition after it, if that is known. */
static tci_ox_value **tci_ox_loop_step(const tci_ox_op *o, const tci_ox_loop *l, int64_t i,
                                       tci_ox_value *const *carry, const tci_ox_known **goes)
{
    int n = l->g->n_inputs;
    tci_ox_value *in = TCI_NEW_ARRAY(o->s, tci_ox_value, n + 1);
    tci_ox_value **out = TCI_NEW_ARRAY(o->s, tci_ox_value *, l->g->n_outputs + 1);
    in[0] = tci_ox_known_value(tci_ox_scalar_known(o, TC_I64, i));
    in[1] = tci_ox_known_value(tci_ox_scalar_known(o, TC_BOOL, 1));
    for (int j = 0; j < l->n_carry; j++) {
        in[j + 2] = *carry[j];
        in[j + 2].next = NULL;
    }
    o->m->build(o, l->g, in, n, out);
    *goes = tci_ox_known_of(o, out[0]);
    return out;
}

static void tci_ox_loop_unrolled(tci_ox_op *o, tci_ox_loop *l, int64_t most)
{
    tci_ox_value **carry = o->in + 2, **out;
    tc_tensor *ys = TCI_NEW_ARRAY(o->s, tc_tensor, (most + 1) * (l->n_y + 1));
    int64_t done = 0;
    const tci_ox_known *goes = tci_ox_scalar_known(o, TC_BOOL, 1);
    for (; done < most && goes && goes->cells[0].i; done++) {
        out = tci_ox_loop_step(o, l, done, carry, &goes);
        carry = out + 1;
        for (int i = 0; i < l->n_y; i++) {
            ys[i * most + done] = tci_ox_tensor(o, out[1 + l->n_carry + i]);
        }
        if (!goes && done + 1 < most) {
            tci_ox_fail(o, TC_ERR_UNSUPPORTED, "the number of steps follows from values");
        }
    }
    for (int i = 0; i < l->n_carry; i++) {
        tci_ox_give(o, i, carry[i]);
    }
    for (int i = 0; i < l->n_y && tci_ox_wants(o, l->n_carry + i); i++) {
        if (!done) {
            tci_ox_fail(o, TC_ERR_UNSUPPORTED, "results of no step have no shape");
        }
        tci_ox_out(o, l->n_carry + i, tc_stack(TC_TENSORS_N(ys + i * most, (int)done), 0));
    }
}

/* carry[0] the count, carry[1] whether it goes on, then the states. */
typedef struct tci_ox_while {
    tci_ox_loop l;
    tc_tensor most;
} tci_ox_while;

static tc_status tci_ox_while_test(void *user, const tc_tensor *carry, tc_tensor *go)
{
    const tci_ox_while *w = user;
    const tci_ox_op *o = w->l.o;
    *go = tci_ox_given(w->most) ? tc_logical_and(carry[1], tc_lt(carry[0], w->most)) : carry[1];
    return TC_OK;
}

static void tci_ox_while_build(tci_ox_op *o, void *user)
{
    tci_ox_loop *l = user;
    tci_ox_value *in = TCI_NEW_ARRAY(o->s, tci_ox_value, l->n_carry + 2);
    tci_ox_value **out = TCI_NEW_ARRAY(o->s, tci_ox_value *, l->n_carry + 2);
    for (int i = 0; i < l->n_carry + 2; i++) {
        in[i] = tci_ox_bound_value(l->carry[i]);
    }
    o->m->build(o, l->g, in, l->n_carry + 2, out);
    l->next[0] = tc_add(l->carry[0], 1);
    for (int i = 0; i < l->n_carry + 1; i++) {
        l->next[i + 1] = tci_ox_tensor(o, out[i]);
    }
    l->next[1] = tc_reshape_at(l->next[1], 0, NULL, o->here);
}

static tc_status tci_ox_while_step(void *user, const tc_tensor *carry, tc_tensor *next)
{
    tci_ox_while *w = user;
    w->l.carry = carry;
    w->l.next = next;
    return tci_ox_within(w->l.o, tci_ox_while_build, &w->l);
}

static void tci_ox_loop_while(tci_ox_op *o, tci_ox_loop *l)
{
    tci_ox_while w = {*l, TC_NONE};
    int n = l->n_carry + 2;
    tc_tensor *init = TCI_NEW_ARRAY(o->s, tc_tensor, n), *last = TCI_NEW_ARRAY(o->s, tc_tensor, n);
    for (int i = 0; i < l->n_y; i++) {
        if (tci_ox_wants(o, l->n_carry + i)) {
            tci_ox_fail(o, TC_ERR_UNSUPPORTED, "output %d has as many steps as values say",
                        l->n_carry + i);
        }
    }
    if (tci_ox_has(o, 0)) {
        w.most = tc_cast(tc_reshape_at(tci_ox_in(o, 0), 0, NULL, o->here), TC_I64);
    }
    init[0] = tc_full(o->ctx, 0, TC_I64);
    init[1] = tci_ox_has(o, 1) ? tc_reshape_at(tci_ox_in(o, 1), 0, NULL, o->here)
                               : tc_full(o->ctx, 1, TC_BOOL);
    for (int i = 0; i < l->n_carry; i++) {
        init[i + 2] = tci_ox_in(o, i + 2);
    }
    tci_ox_rethrow(o, tc_while(TC_TENSORS_N(init, n), 0, tci_ox_while_test, tci_ox_while_step, &w,
                               last));
    for (int i = 0; i < l->n_carry; i++) {
        tci_ox_out(o, i, last[i + 2]);
    }
}

/* `steps` times, a number or symbolic: its condition never ends it. */
static void tci_ox_loop_scan(tci_ox_op *o, tci_ox_loop *l, int64_t steps)
{
    tc_tensor *init = TCI_NEW_ARRAY(o->s, tc_tensor, l->n_carry + 1), count;
    tc_tensor *out = TCI_NEW_ARRAY(o->s, tc_tensor, l->n_carry + l->n_y + 1);
    for (int i = 0; i < l->n_carry; i++) {
        init[i] = tci_ox_in(o, i + 2);
    }
    count = tc_arange(o->ctx, 0, steps, 1, TC_I64);
    l->n_x = 1;
    l->counts = true;
    tci_ox_scan_run(o, l, init, &count, out, out + l->n_carry);
    for (int i = 0; i < l->n_carry + l->n_y; i++) {
        tci_ox_out(o, i, out[i]);
    }
}

static bool tci_ox_is_true(const tci_onnx_tensor *t)
{
    return t->count == 1 && t->bytes == 1 && t->data && t->data[0];
}

/* True if the body returns the condition that it is given, or one that is known to be true: of its
 * own constant, or of a value of the graph around it. */
static bool tci_ox_goes_on(const tci_ox_op *o, const tci_onnx_graph *g)
{
    const char *name = g->n_outputs > 0 ? g->outputs[0].name : "";
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const tci_onnx_node *n = &g->nodes[i];
        bool makes = n->n_out > 0 && !strcmp(n->out[0], name);
        if (makes && !strcmp(n->op, "Identity") && n->n_in == 1) {
            name = n->in[0];
        } else if (makes) {
            return !strcmp(n->op, "Constant") && n->n_attrs == 1 && n->attrs[0].t &&
                   tci_ox_is_true(n->attrs[0].t);
        }
    }
    for (int i = 0; i < g->n_tensors; i++) {
        if (!strcmp(g->tensors[i].name, name)) {
            return tci_ox_is_true(&g->tensors[i]);
        }
    }
    if (g->n_inputs > 1 && !strcmp(name, g->inputs[1].name)) {
        return true;
    }
    tci_ox_value *around = *name ? tci_ox_lookup(o, name) : NULL;
    const tci_ox_known *test = around ? tci_ox_known_of(o, around) : NULL;
    return test && test->n == 1 && test->cells[0].i;
}

TCI_OX_MAKE(loop)
{
    tci_ox_loop l = {.o = o, .g = tci_ox_body(o, "body")};
    bool counted = tci_ox_has(o, 0), tested = tci_ox_has(o, 1);
    const tci_ox_known *test = NULL;
    l.n_carry = TCI_MAX(o->n_in - 2, 0);
    l.n_y = l.g->n_outputs - 1 - l.n_carry;
    if (l.n_y < 0) {
        tci_ox_fail(o, TC_ERR_IO, "its body has %d outputs", l.g->n_outputs);
    }
    tci_ox_check_body(o, l.g, l.n_carry + 2, l.n_carry + l.n_y + 1);
    if (tested && tci_ox_can_know(o, o->in[1])) {
        test = tci_ox_need(o, 1, "the condition");
    }
    bool starts = !tested || (test && test->n > 0 && test->cells[0].i);
    bool endless = starts && tci_ox_goes_on(o, l.g);
    if (counted && starts && tci_ox_can_know(o, o->in[0])) {
        int64_t steps = tci_ox_need_int(o, 0, "the trip count");
        if (tci_dim_is_known(steps) && steps <= TCI_OX_UNROLL && (endless || l.n_y > 0)) {
            tci_ox_loop_unrolled(o, &l, TCI_MAX(steps, 0));
            return;
        }
        if (endless) {
            tci_ox_loop_scan(o, &l, steps);
            return;
        }
    }
    tci_ox_loop_while(o, &l);
}
/* ---- src/onnx/import_counted_axis.c ---- */
/* onnx/import_counted_axis.c - imports ONNX operators whose operands have a data-dependent size
 * (results of NonZero, Compress, Unique): padded tensors with a run-time count of valid elements.
 *
 * A counted value is a padded tensor with a count along one axis (is_cut). These operators compute
 * on the padded tensor and pass the count on: movement ops that keep the axis, elementwise ops,
 * gathering at counted indices, and sums over the axis. All other readers are refused by
 * tci_ox_tensor.
 *
 * In: an operator with a counted operand. Out: its results, with their count; elements beyond the
 * count are 0, as sums over the axis need it. */

#include <string.h>

typedef enum tci_ox_counted_rule {
    TCI_OX_COUNTED_EACH, /* elementwise, by broadcasting */
    TCI_OX_COUNTED_PERMUTE,
    TCI_OX_COUNTED_SQUEEZE,
    TCI_OX_COUNTED_UNSQUEEZE,
    TCI_OX_COUNTED_SLICE,
    TCI_OX_COUNTED_SPLIT,
    TCI_OX_COUNTED_GATHER,
    TCI_OX_COUNTED_GATHER_ND,
    TCI_OX_COUNTED_SUM
} tci_ox_counted_rule;

static const struct {
    const char *op;
    tci_ox_counted_rule rule;
} tci_ox_counted_rules[] = {
    {"Transpose", TCI_OX_COUNTED_PERMUTE},   {"Squeeze", TCI_OX_COUNTED_SQUEEZE},
    {"Unsqueeze", TCI_OX_COUNTED_UNSQUEEZE}, {"Slice", TCI_OX_COUNTED_SLICE},
    {"Split", TCI_OX_COUNTED_SPLIT},         {"Gather", TCI_OX_COUNTED_GATHER},
    {"GatherND", TCI_OX_COUNTED_GATHER_ND},  {"ReduceSum", TCI_OX_COUNTED_SUM}};

static const char tci_ox_counted_each[] =
    " Abs Add And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast Ceil Clip Cos Div Equal Erf Exp "
    "Floor Greater GreaterOrEqual Less LessOrEqual Log Max Min Mod Mul Neg Not Or Pow Reciprocal "
    "Relu Round Sigmoid Sign Sin Sqrt Sub Sum Tanh Where Xor ";

/* The rule of an operator; -1: it has none. */
static int tci_ox_counted_rule_of(const char *op)
{
    char word[24];
    for (int i = 0; i < TCI_COUNT(tci_ox_counted_rules); i++) {
        if (!strcmp(op, tci_ox_counted_rules[i].op)) {
            return (int)tci_ox_counted_rules[i].rule;
        }
    }
    snprintf(word, sizeof(word), " %.20s ", op);
    return strstr(tci_ox_counted_each, word) ? TCI_OX_COUNTED_EACH : -1;
}

static bool tci_ox_is_in(const tci_ox_op *o, const int64_t *axes, int n, int rank, int axis)
{
    bool is = false;
    for (int i = 0; i < n; i++) {
        is = is || tci_ox_axis(o, axes[i], rank) == axis;
    }
    return is;
}

/* An elementwise result of `rank` axes: all operands that reach the axis are counted in the same
 * way, or have one element along it. -1: they do not fit. */
static int tci_ox_counted_broadcast(const tci_ox_op *o, const bool *cut, int first, int rank)
{
    const tci_ox_value *c = o->in[first];
    int from_last = tc_rank(c->t) - c->axis;
    for (int i = 0; i < o->n_in; i++) {
        const tci_ox_value *v = o->in[i];
        if (!v) {
            continue;
        }
        tc_tensor t = tci_ox_in(o, i);
        int reach = tc_rank(t) - from_last;
        bool alike = cut[i] && reach == v->axis && v->count.id == c->count.id;
        if (!alike && (cut[i] || (reach >= 0 && tc_size(t, reach) != 1))) {
            return -1;
        }
    }
    return rank - from_last;
}

/* The counted axis of result 0 (of all, of Split), -1: that operator cannot keep it; *sums: the
 * result has no such axis any more. */
static int tci_ox_counted_axis(const tci_ox_op *o, int rule, const bool *cut, int first, bool *sums)
{
    const tci_ox_value *c = o->in[first];
    int rank = tc_rank(c->t), axis = c->axis, n = 0, to = -1, before = 0;
    const int64_t *list = rule == TCI_OX_COUNTED_PERMUTE ? tci_ox_ints(o, "perm", &n)
                          : rule == TCI_OX_COUNTED_SLICE ? tci_ox_list(o, 3, "axes", &n)
                          : rule == TCI_OX_COUNTED_SQUEEZE || rule == TCI_OX_COUNTED_UNSQUEEZE ||
                                  rule == TCI_OX_COUNTED_SUM
                              ? tci_ox_list(o, 1, "axes", &n)
                              : NULL;
    switch ((tci_ox_counted_rule)rule) {
    case TCI_OX_COUNTED_EACH:
        return o->out[0] ? tci_ox_counted_broadcast(o, cut, first, tc_rank(o->out[0]->t)) : -1;
    case TCI_OX_COUNTED_PERMUTE:
        for (int i = 0; i < rank; i++) {
            to = (list ? list[i] : rank - 1 - i) == axis ? i : to;
        }
        return to;
    case TCI_OX_COUNTED_SQUEEZE:
        for (int i = 0; i < axis; i++) {
            before += tci_ox_is_in(o, list, n, rank, i);
        }
        return list && !tci_ox_is_in(o, list, n, rank, axis) ? axis - before : -1;
    case TCI_OX_COUNTED_UNSQUEEZE:
        for (int i = 0; i < rank + n; i++) {
            bool is_new = tci_ox_is_in(o, list, n, rank + n, i);
            to = !is_new && before == axis ? i : to;
            before += !is_new;
        }
        return to;
    case TCI_OX_COUNTED_SLICE: return list && !tci_ox_is_in(o, list, n, rank, axis) ? axis : -1;
    case TCI_OX_COUNTED_SPLIT:
        return tci_ox_axis(o, tci_ox_int(o, "axis", 0), rank) != axis ? axis : -1;
    case TCI_OX_COUNTED_GATHER:
        return first == 1 && !cut[0]
                   ? axis + tci_ox_axis(o, tci_ox_int(o, "axis", 0), tc_rank(tci_ox_in(o, 0)))
                   : -1;
    case TCI_OX_COUNTED_GATHER_ND:
        return first == 1 && !cut[0] && axis < rank - 1 && !tci_ox_int(o, "batch_dims", 0) ? axis
                                                                                           : -1;
    case TCI_OX_COUNTED_SUM:
        *sums = n ? tci_ox_is_in(o, list, n, rank, axis)
                  : !tci_ox_int(o, "noop_with_empty_axes", 0);
        return -1;
    }
    return -1;
}

/* t with `rest`, 0 or 1, beyond the count along an axis. */
static tc_tensor tci_ox_counted_mask(const tci_ox_op *o, tc_tensor t, tc_tensor count, int axis,
                                     int rest)
{
    tc_tensor valid = tc_lt(tci_ox_places(o, tc_size(t, axis), tc_rank(t), axis), count);
    return tc_dtype_of(t) == TC_BOOL ? tc_logical_and(t, valid) : tc_where(valid, t, rest);
}

TCI_FN void tci_ox_out_counted(const tci_ox_op *o, int i, tc_tensor t, tc_tensor count, int axis)
{
    tci_ox_out(o, i, tci_ox_counted_mask(o, t, count, axis, 0));
    if (tci_ox_wants(o, i)) {
        o->out[i]->is_cut = true;
        o->out[i]->count = count;
        o->out[i]->axis = axis;
    }
}

/* The operator on padded tensors: its counted operands are copies without a count. Elementwise ops
 * read 1 in the padding, where each of them and its gradient are finite. */
static tci_ox_op tci_ox_counted_padded(const tci_ox_op *o, int rule, const bool *cut)
{
    tci_ox_op padded = *o;
    padded.in = TCI_NEW_ARRAY(o->s, tci_ox_value *, o->n_in);
    for (int i = 0; i < o->n_in; i++) {
        const tci_ox_value *v = o->in[i];
        padded.in[i] = o->in[i];
        if (cut[i]) {
            tci_ox_value *copy = tci_ox_value_new(o->s, v->name);
            *copy = *v;
            copy->is_cut = false;
            if (rule == TCI_OX_COUNTED_EACH) {
                copy->t = tci_ox_counted_mask(o, v->t, v->count, v->axis, 1);
            }
            padded.in[i] = copy;
        }
    }
    return padded;
}

TCI_FN bool tci_ox_make_counted(tci_ox_op *o)
{
    int rule = tci_ox_counted_rule_of(o->node->op), first = -1;
    bool *cut = TCI_NEW_ARRAY(o->s, bool, o->n_in + 1), sums = false;
    for (int i = o->n_in - 1; i >= 0; i--) {
        cut[i] = o->in[i] && o->in[i]->is_cut;
        first = cut[i] ? i : first;
    }
    if (first < 0 || rule < 0) {
        return false;
    }
    tci_ox_op padded = tci_ox_counted_padded(o, rule, cut);
    o->row->make(&padded);
    const tci_ox_value *from = o->in[first];
    int axis = tci_ox_counted_axis(&padded, rule, cut, first, &sums);
    if (axis < 0 && !sums) {
        tci_ox_tensor(o, o->in[first]); /* fails: it is counted */
    }
    for (int i = 0; i < o->n_out && !sums; i++) {
        if (o->out[i]) {
            tci_ox_out_counted(o, i, o->out[i]->t, from->count, axis);
        }
    }
    return true;
}
/* ---- src/onnx/operator_table.c ---- */
/* onnx/operator_table.c - builds the table of imported ONNX operators from the rows of
 * onnx/operator_table.h. */

static const tci_ox_row tci_ox_table[] = {
#define TCI_ROW(name, make, call, how) {#name, tci_ox_make_##make, call, how},
    TCI_OX_ROWS(TCI_ROW)
#undef TCI_ROW
};

TCI_FN const tci_ox_row *tci_ox_rows(void)
{
    return tci_ox_table;
}

TCI_FN int tci_ox_n_rows(void)
{
    return TCI_COUNT(tci_ox_table);
}
/* ---- src/onnx/import.c ---- */
/* onnx/import.c - imports an ONNX graph: nodes in order, functions, subgraphs, and the public
 * calls.
 *
 * Design: the graph is built once, in the order of its nodes. If a shape turns out to depend on the
 * value of an input that the caller gave, that input becomes a constant and the graph is rebuilt
 * (tci_ox.again). Shapes therefore never depend on the data of a run, and inputs stay inputs
 * wherever possible. */

#include <inttypes.h>
#include <string.h>


enum { TCI_OX_DEEPEST = 48 };

/* ---- nodes ---- */

static const tci_ox_row *tci_ox_row_of(const char *op)
{
    int low = 0, high = tci_ox_n_rows();
    while (low < high) {
        int at = (low + high) / 2, by = strcmp(op, tci_ox_rows()[at].name);
        if (by == 0) {
            return &tci_ox_rows()[at];
        }
        *(by < 0 ? &high : &low) = by < 0 ? at : at + 1;
    }
    return NULL;
}

static bool tci_ox_is_main(const char *domain)
{
    return !*domain || !strcmp(domain, "ai.onnx");
}

static int64_t tci_ox_opset(const tci_ox *m, const char *domain)
{
    for (int i = 0; i < m->n_opsets; i++) {
        bool both = tci_ox_is_main(domain) && tci_ox_is_main(m->opsets[i].domain);
        if (both || !strcmp(m->opsets[i].domain, domain)) {
            return m->opsets[i].version;
        }
    }
    return 1;
}

static const tci_onnx_function *tci_ox_function_of(const tci_ox *m, const tci_onnx_node *n)
{
    for (int i = 0; i < m->proto->n_functions; i++) {
        const tci_onnx_function *u = &m->proto->functions[i];
        bool both = tci_ox_is_main(u->domain) && tci_ox_is_main(n->domain);
        if (!strcmp(u->name, n->op) && (both || !strcmp(u->domain, n->domain))) {
            return u;
        }
    }
    return NULL;
}

/* The node with attributes of the enclosing function in place of references to them. */
static tci_onnx_node *tci_ox_resolve(const tci_ox *m, const tci_onnx_node *n)
{
    tci_onnx_node *r = tci_scratch_copy(m->s, n, sizeof(*n));
    r->attrs = tci_scratch_copy(m->s, n->attrs, sizeof(*n->attrs) * (size_t)n->n_attrs);
    for (int i = 0; i < n->n_attrs; i++) {
        if (!n->attrs[i].ref) {
            continue;
        }
        const tci_onnx_attr *a = m->caller ? tci_ox_find_attr(m->caller->attrs, m->caller->n_attrs,
                                                              n->attrs[i].ref)
                                           : NULL;
        if (!a && m->function) {
            a = tci_ox_find_attr(m->function->defaults, m->function->n_defaults, n->attrs[i].ref);
        }
        r->attrs[i] = a ? *a : (tci_onnx_attr){.kind = TCI_ONNX_NOTHING};
        r->attrs[i].name = n->attrs[i].name;
        r->attrs[i].ref = NULL;
    }
    return r;
}

static void tci_ox_nodes(const tci_ox_op *o, const tci_onnx_node *nodes, int n,
                         tci_ox_names *names);

static void tci_ox_call(tci_ox_op *o, const tci_onnx_function *u)
{
    tci_ox *m = o->m;
    tci_ox saved = *m;
    if (o->n_in > u->n_in || o->n_out > u->n_out) {
        tci_ox_fail(o, TC_ERR_IO, "function %.60s has %d inputs and %d outputs", u->name, u->n_in,
                    u->n_out);
    }
    tci_ox_names names = tci_ox_names_new(o->s, NULL, u->n_nodes);
    for (int i = 0; i < u->n_in; i++) {
        if (tci_ox_has(o, i)) {
            tci_ox_value *v = tci_scratch_copy(o->s, o->in[i], sizeof(*v));
            v->name = u->in[i];
            tci_ox_declare(o, &names, v);
        }
    }
    m->caller = o->node;
    m->function = u;
    if (u->n_opsets) {
        m->opsets = u->opsets;
        m->n_opsets = u->n_opsets;
    }
    tci_ox_nodes(o, u->nodes, u->n_nodes, &names);
    m->caller = saved.caller;
    m->function = saved.function;
    m->opsets = saved.opsets;
    m->n_opsets = saved.n_opsets;
    m->names = saved.names;
    for (int i = 0; i < o->n_out; i++) {
        const tci_ox_value *v = o->out[i] ? tci_ox_find(&names, u->out[i]) : NULL;
        if (o->out[i] && !v) {
            tci_ox_fail(o, TC_ERR_IO, "function %.60s does not make %.60s", u->name, u->out[i]);
        } else if (o->out[i]) {
            const char *name = o->out[i]->name;
            *o->out[i] = *v;
            o->out[i]->name = name;
        }
    }
}

/* Operands and results of a node as values. */
static void tci_ox_bind(tci_ox_op *o, const tci_ox_names *names)
{
    const tci_onnx_node *n = o->node;
    uint64_t depends = 0;
    o->n_in = n->n_in;
    o->n_out = n->n_out;
    o->in = TCI_NEW_ARRAY(o->s, tci_ox_value *, n->n_in + 1);
    o->out = TCI_NEW_ARRAY(o->s, tci_ox_value *, n->n_out + 1);
    for (int i = 0; i < n->n_in; i++) {
        if (!*n->in[i]) {
            continue;
        }
        o->in[i] = tci_ox_find(names, n->in[i]);
        if (!o->in[i]) {
            tci_ox_fail(o, TC_ERR_IO,
                        "it reads %.60s, which nothing before it makes: the graph is "
                        "not in order, or has a cycle",
                        n->in[i]);
        }
        depends |= o->in[i]->depends;
    }
    while (o->n_in > 0 && !o->in[o->n_in - 1]) {
        o->n_in--;
    }
    for (int i = 0; i < n->n_out; i++) {
        if (*n->out[i]) {
            o->out[i] = tci_ox_value_new(o->s, n->out[i]);
            o->out[i]->depends = depends;
        }
    }
}

static void tci_ox_node(tci_ox *m, const tci_onnx_node *n, tci_ox_names *names)
{
    tci_ox_op op = {.m = m, .here = m->here, .ctx = m->ctx, .s = m->s}, *o = &op;
    o->node = n;
    o->node = tci_ox_resolve(m, n);
    o->opset = tci_ox_opset(m, n->domain);
    tci_ox_bind(o, names);
    const tci_onnx_function *function = tci_ox_function_of(m, n);
    const tci_ox_row *row = tci_ox_is_main(n->domain) ? tci_ox_row_of(n->op) : NULL;
    if (++m->depth > TCI_OX_DEEPEST) {
        tci_ox_fail(o, TC_ERR_LIMIT, "functions and graphs nest more than %d deep", TCI_OX_DEEPEST);
    }
    if (function) {
        tci_ox_call(o, function);
    } else if (!row) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED,
                    "op %.60s of domain %.40s, opset %" PRId64 ", is not "
                    "supported",
                    n->op, *n->domain ? n->domain : "ai.onnx", o->opset);
    } else if (!tci_ox_fold(o)) {
        o->row = row;
        if (!tci_ox_make_counted(o)) {
            row->make(o);
        }
    }
    m->depth--;
    for (int i = 0; i < o->n_out; i++) {
        if (o->out[i] && !o->out[i]->is_made && !o->out[i]->known && !o->out[i]->initializer) {
            tci_ox_fail(o, TC_ERR_UNSUPPORTED, "output %d is not supported", i);
        }
        if (o->out[i]) {
            tci_ox_declare(o, names, o->out[i]);
        }
    }
}

static void tci_ox_nodes(const tci_ox_op *o, const tci_onnx_node *nodes, int n, tci_ox_names *names)
{
    tci_ox *m = o->m;
    const tci_ox_names *around = m->names;
    m->names = names;
    for (int i = 0; i < n; i++) {
        tci_ox_node(m, &nodes[i], names);
    }
    m->names = around;
}

/* ---- graphs ---- */

static void tci_ox_initializers(const tci_ox_op *o, const tci_onnx_graph *g, tci_ox_names *names)
{
    if (g->is_sparse) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "sparse initializers are not supported");
    }
    for (int i = 0; i < g->n_tensors; i++) {
        tci_ox_value *v = tci_ox_value_new(o->s, g->tensors[i].name);
        v->initializer = &g->tensors[i];
        tci_ox_declare(o, names, v);
    }
}

static void tci_ox_graph(const tci_ox_op *o, const tci_onnx_graph *g, tci_ox_value *inputs, int n,
                         tci_ox_value **results)
{
    tci_ox_names names = tci_ox_names_new(o->s, o->m->names, g->n_nodes + g->n_tensors);
    if (g->n_inputs != n) {
        tci_ox_fail(o, TC_ERR_IO, "its graph has %d inputs: expected %d", g->n_inputs, n);
    }
    for (int i = 0; i < n; i++) {
        inputs[i].name = g->inputs[i].name;
        tci_ox_declare(o, &names, &inputs[i]);
    }
    tci_ox_initializers(o, g, &names);
    tci_ox_nodes(o, g->nodes, g->n_nodes, &names);
    for (int i = 0; i < g->n_outputs; i++) {
        results[i] = tci_ox_find(&names, g->outputs[i].name);
        if (!results[i]) {
            tci_ox_fail(o, TC_ERR_IO, "its graph does not make %.60s", g->outputs[i].name);
        }
    }
}

/* ---- the model ---- */

static const tc_onnx_input *tci_ox_told(const tci_ox *m, const char *name)
{
    for (int i = 0; i < m->options->n_inputs; i++) {
        if (m->options->inputs[i].name && !strcmp(m->options->inputs[i].name, name)) {
            return &m->options->inputs[i];
        }
    }
    return NULL;
}

/* The size of an axis that the model names or leaves open. */
static int64_t tci_ox_open_size(const tci_ox_op *o, const tci_onnx_info *v, int axis)
{
    const char *name = v->params[axis];
    name = *name && strcmp(name, "?") ? name : tci_scratch_printf(o->s, "%s.%d", v->name, axis);
    for (int i = 0; i < o->m->options->n_sizes; i++) {
        if (!strcmp(o->m->options->sizes[i].name, name)) {
            return o->m->options->sizes[i].size;
        }
    }
#ifdef TC_DYNAMIC_SHAPES
    int64_t most = o->m->options->largest ? o->m->options->largest : 65536;
    return tc_dim_make(name, 1, most);
#else
    tci_ox_fail(o, TC_ERR_SHAPE,
                "axis %d of input %.60s has no size (\"%.40s\"): tell it "
                "(tc_onnx_options.sizes), or define TC_DYNAMIC_SHAPES",
                axis, v->name, name);
    return 0;
#endif
}

static void tci_ox_input(const tci_ox_op *o, int i, tci_ox_value *v)
{
    const tci_onnx_info *info = &o->m->proto->graph->inputs[i];
    const tc_onnx_input *told = tci_ox_told(o->m, info->name);
    int rank = told && told->sizes ? told->rank : info->rank;
    int64_t *words = TCI_NEW_ARRAY(o->s, int64_t, TCI_MAX(rank, 0) + 1);
    if (!info->type) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "input %.60s is no tensor", info->name);
    }
    if (rank < 0) {
        tci_ox_fail(o, TC_ERR_SHAPE,
                    "input %.60s has no shape in the model: tell it "
                    "(tc_onnx_options.inputs)",
                    info->name);
    }
    words[0] = tci_ox_dtype(o, info->type);
    bool differs = info->rank >= 0 && rank != info->rank;
    for (int d = 0; d < rank && !differs && told && told->sizes && info->rank >= 0; d++) {
        differs = info->sizes[d] >= 0 && told->sizes[d] != info->sizes[d];
    }
    if (differs) {
        tci_ox_fail(o, TC_ERR_SHAPE, "input %.60s is told other sizes than the model has",
                    info->name);
    }
    for (int d = 0; d < rank; d++) {
        words[d + 1] = told && told->sizes   ? told->sizes[d]
                       : info->sizes[d] >= 0 ? info->sizes[d]
                                             : tci_ox_open_size(o, info, d);
    }
    uint64_t bit = i < TCI_OX_INPUTS ? UINT64_C(1) << i : TCI_OX_UNKNOWABLE;
    if (told && told->value && i < TCI_OX_INPUTS) {
        o->m->offered |= bit;
    }
    if (o->m->fixed & bit) {
        tci_onnx_tensor *t = TCI_NEW(o->s, tci_onnx_tensor);
        *t = (tci_onnx_tensor){.name = info->name,
                               .type = info->type,
                               .rank = rank,
                               .count = 1,
                               .sizes = words + 1,
                               .data = told->value};
        for (int d = 0; d < rank; d++) {
            t->count *= words[d + 1];
        }
        t->bytes = t->count * tc_dtype_size((tc_dtype)words[0]);
        v->initializer = t;
        return;
    }
    v->depends = bit;
    v->t = tc_input_at(o->ctx, info->name, rank + 1, words, o->here);
    v->is_made = true;
    if (tc_status_of(v->t) != TC_OK) {
        tci_ox_fail_tensor(o, v->t);
    }
}

typedef struct tci_ox_result { /* in the scratch */
    tci_ox_value **inputs, **outputs;
    int n_inputs, n_outputs;
} tci_ox_result;

/* Declares inputs, initializers and nodes of the graph. */
static tci_ox_result tci_ox_build_main(const tci_ox_op *o)
{
    const tci_onnx_graph *g = o->m->proto->graph;
    tci_ox_result r = {TCI_NEW_ARRAY(o->s, tci_ox_value *, g->n_inputs + 1),
                       TCI_NEW_ARRAY(o->s, tci_ox_value *, g->n_outputs + 1), 0, g->n_outputs};
    tci_ox_names *names = TCI_NEW(o->s, tci_ox_names);
    *names = tci_ox_names_new(o->s, NULL, (int64_t)g->n_nodes + g->n_tensors + g->n_inputs);
    tci_ox_initializers(o, g, names);
    for (int i = 0; i < g->n_inputs; i++) {
        if (tci_ox_find(names, g->inputs[i].name)) {
            continue; /* before IR 4 initializers were inputs too */
        }
        tci_ox_value *v = tci_ox_value_new(o->s, g->inputs[i].name);
        tci_ox_input(o, i, v);
        tci_ox_declare(o, names, v);
        if (!v->initializer) {
            r.inputs[r.n_inputs++] = v;
        }
    }
    tci_ox_nodes(o, g->nodes, g->n_nodes, names);
    for (int i = 0; i < g->n_outputs; i++) {
        r.outputs[i] = tci_ox_find(names, g->outputs[i].name);
        if (!r.outputs[i]) {
            tci_ox_fail(o, TC_ERR_IO, "nothing makes output %.60s", g->outputs[i].name);
        }
        bool cut = r.outputs[i]->is_cut;
        r.outputs[i]->is_cut = false;
        tci_ox_tensor(o, r.outputs[i]);
        r.outputs[i]->is_cut = cut;
    }
    return r;
}

/* A block with the arrays and names after the struct. */
static tc_onnx_model *tci_ox_pack(const tci_ox_op *o, const tci_ox_result *r)
{
    const tci_ox *m = o->m;
    size_t n = (size_t)(r->n_inputs + r->n_outputs), text = 0;
    size_t tensors = n + (size_t)(r->n_outputs + m->n_parameters);
    for (size_t i = 0; i < n; i++) {
        const tci_ox_value *v = i < (size_t)r->n_inputs ? r->inputs[i]
                                                        : r->outputs[i - (size_t)r->n_inputs];
        text += strlen(v->name) + 1;
    }
    tc_onnx_model *out = tci_heap_get(sizeof(*out) + tensors * sizeof(tc_tensor) +
                                      n * sizeof(char *) + (size_t)r->n_outputs * sizeof(int) +
                                      text);
    if (!out) {
        tci_ox_fail(o, TC_ERR_MEMORY, "out of memory");
    }
    tc_tensor *t = (tc_tensor *)(out + 1);
    const char **names = (const char **)(t + tensors);
    out->axes = (int *)(names + n);
    char *at = (char *)(out->axes + r->n_outputs);
    out->n_inputs = r->n_inputs;
    out->n_outputs = r->n_outputs;
    out->n_parameters = m->n_parameters;
    out->inputs = t;
    out->outputs = t + r->n_inputs;
    out->counts = out->outputs + r->n_outputs;
    out->parameters = out->counts + r->n_outputs;
    out->input_names = names;
    out->output_names = names + r->n_inputs;
    out->opset = (int)tci_ox_opset(m, "");
    for (size_t i = 0; i < n; i++) {
        size_t j = i - (size_t)r->n_inputs;
        const tci_ox_value *v = i < (size_t)r->n_inputs ? r->inputs[i] : r->outputs[j];
        t[i] = v->t;
        names[i] = strcpy(at, v->name);
        at += strlen(v->name) + 1;
        if (i >= (size_t)r->n_inputs) {
            out->counts[j] = v->is_cut ? v->count : TC_NONE;
            out->axes[j] = v->axis;
        }
    }
    if (m->n_parameters) {
        memcpy(out->parameters, m->parameters, sizeof(tc_tensor) * (size_t)m->n_parameters);
    }
    return out;
}

static tc_onnx_model *tci_ox_import(tci_ox *m)
{
    tci_ox_op op = {.m = m, .here = m->here, .ctx = m->ctx, .s = m->s}, *o = &op;
    int64_t opset;
    m->opsets = m->proto->opsets;
    m->n_opsets = m->proto->n_opsets;
    m->build = tci_ox_graph;
    m->names = NULL;
    m->depth = 0;
    m->n_parameters = 0;
    m->again = false;
    m->s->why = TC_OK;
    m->offered = 0;
    opset = tci_ox_opset(m, "");
    if (opset < 1 || opset > 28) {
        tci_ox_fail(o, TC_ERR_UNSUPPORTED, "opset %" PRId64 ": expected 1 to 28", opset);
    }
    tci_ox_result r = tci_ox_build_main(o);
    return tci_ox_pack(o, &r);
}

/* ---- the public calls ---- */

/* Arguments of a load, and data that lives as long as it. */
typedef struct tci_ox_load {
    tci_scratch s;
    tci_ox m;
    const void *bytes;
    size_t n;
} tci_ox_load;

/* Parses and imports; NULL: the scratch says why. */
static tc_onnx_model *tci_ox_load_now(tci_ox_load *l)
{
    tci_ox *m = &l->m;
    if (setjmp(l->s.escape)) {
        if (!m->again) {
            return NULL;
        }
    }
    if (!m->proto) {
        if (m->path) {
            const tci_ox_file *f = tci_ox_file_open(m, m->path, m->path);
            l->bytes = f->map;
            l->n = (size_t)f->bytes;
        }
        m->proto = tci_onnx_parse(&l->s, l->bytes, l->n);
    }
    return tci_ox_import(m);
}

static tc_status tci_ox_load_all(tci_ox_load *l, const char *op, tc_onnx_model **model)
{
    static const tc_onnx_options defaults = {NULL, 0, NULL, 0, 0, false};
    tci_ox *m = &l->m;
    tci_frame f = tci_frame_on(m->ctx, op, m->here);
    if (!f.failed && m->options) {
        tci_frame_list(&f, m->options->inputs, m->options->n_inputs, "the inputs");
        tci_frame_list(&f, m->options->sizes, m->options->n_sizes, "the sizes");
    }
    if (!f.failed && !model) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "model is NULL: expected where the model goes");
    }
    if (f.failed) {
        return tci_frame_status(&f);
    }
    tci_frame_leave(&f);
    m->options = m->options ? m->options : &defaults;
    tci_scratch_init(&l->s);
    m->s = &l->s;
    *model = tci_ox_load_now(l);
    while (m->files) {
        tci_ox_file *next = m->files->next;
        tci_ox_file_release(&m->files->owner);
        m->files = next;
    }
    tc_status status = TC_OK;
    if (!*model) {
        f = tci_frame_on(m->ctx, op, m->here);
        tci_frame_fail(&f, l->s.why, "%.200s: %s", m->path ? m->path : "model", l->s.message);
        status = tci_frame_status(&f);
    }
    tci_scratch_free(&l->s);
    return status;
}

TC_API tc_status tc_onnx_load_at(tc_ctx *ctx, const char *path, const tc_onnx_options *options,
                                 tc_onnx_model **model, tc_site here)
{
    tci_ox_load l = {.m = {.ctx = ctx, .here = here, .options = options, .path = path}};
    if (!path) {
        l.m.path = "";
    }
    if (model) {
        *model = NULL;
    }
    return tci_ox_load_all(&l, "tc_onnx_load", model);
}

TC_API tc_status tc_onnx_load_memory_at(tc_ctx *ctx, const void *bytes, size_t n,
                                        const tc_onnx_options *options, tc_onnx_model **model,
                                        tc_site here)
{
    tci_ox_load l = {.m = {.ctx = ctx, .here = here, .options = options}, .bytes = bytes, .n = n};
    if (model) {
        *model = NULL;
    }
    l.n = bytes ? n : 0;
    return tci_ox_load_all(&l, "tc_onnx_load_memory", model);
}

TC_API void tc_onnx_free(tc_onnx_model *model)
{
    tci_heap_free(model);
}

TC_API const char *tc_onnx_op_name(int i)
{
    return i >= 0 && i < tci_ox_n_rows() ? tci_ox_rows()[i].name : NULL;
}

TC_API const char *tc_onnx_op_how(int i)
{
    return i >= 0 && i < tci_ox_n_rows() ? tci_ox_rows()[i].how : NULL;
}
/* ---- src/onnx/export_walk.c ---- */
/* onnx/export_walk.c - traversal of an exported graph in topological order (onnx/export_walk.h). */
/* ---- src/onnx/export_walk.h ---- */
/* onnx/export_walk.h - declares the traversal of an exported graph: operands first, each node once.
 *
 * In: a graph, the nodes that are inputs, and a function that writes one node. Out: for each node
 * its value name in the exported file. A composite that the function does not write is replaced by
 * its expansion. Shared by ONNX (export.c) and StableHLO (export_stablehlo.c), with the frames of
 * public calls, the names of inputs and the values of captured memory. */
#ifndef TCI_ONNX_EXPORT_WALK_H
#define TCI_ONNX_EXPORT_WALK_H


/* State of a node: its name, and its expansion (which may be another node when built again). NULL:
 * not yet. */
typedef struct tci_ox_left {
    const char *name;
    tci_node *expansion;
} tci_ox_left;

typedef struct tci_ox_walk tci_ox_walk;
struct tci_ox_walk {
    tci_scratch *s;
    tci_graph *graph;
    const char *format; /* "ONNX", for messages */
    tci_node *const *inputs;
    int n_inputs;                   /* named before the traversal; any nodes */
    const char *const *input_names; /* of each; NULL: tci_ox_input_name chooses */
    /* Writes n, whose operands have the names in[], and returns its name; NULL: n has no form, or
     * leaves as its expansion. */
    const char *(*leave)(tci_ox_walk *w, tci_node *n, const char *const *in);
    /* The nodes that n is written from, in the scratch, and how many: these, not n's operands, must
     * have names, and their names are `in` then. 0, or the function NULL: n's operands. */
    int (*needs)(tci_ox_walk *w, tci_node *n, tci_node *const **list);
    void *to; /* leave's own */
    /* DATA nodes as an initializer or a constant; of a user's graph tci_ox_memory_of reads them */
    tci_ctx *ctx;
    tc_site here;
    tci_ox_left *left;
    uint32_t n_left; /* by the id of a node */
    /* *at is the node of `known` that is being written, outside of loops; NULL: not asked */
    tci_node **at;
    const tci_table *known;
    int depth; /* of nested traversals */
};

/* Ends the export: n, made at its place, has no form, and why; "" is no reason. */
TCI_FN void tci_ox_refuse(const tci_ox_walk *w, const tci_node *n, const char *why);
TCI_FN const char *tci_ox_named(const tci_ox_walk *w, const tci_node *n); /* NULL: none yet */
TCI_FN void tci_ox_set_name(tci_ox_walk *w, const tci_node *n, const char *name);
/* Writes root and what it needs; returns its name. */
TCI_FN const char *tci_ox_walk_to(tci_ox_walk *w, tci_node *root);
/* True if a node of the graph reads the rows of a carry of the REPEAT: else none is stored. */
TCI_FN bool tci_ox_rows_are_read(const tci_ox_walk *w, const tci_node *repeat);
/* The name of input i: as given, else that of the tc_input where it is unlike all others, else
 * "input<i>". */
TCI_FN const char *tci_ox_input_name(const tci_ox_walk *w, int i);
/* The elements of a node with a value, dense and row-major, as they are now. */
TCI_FN const void *tci_ox_memory_of(const tci_ox_walk *w, tci_node *n, int64_t *bytes);
/* The name of a parameter; NULL: n is none, or has no name. */
TCI_FN const char *tci_ox_parameter_name(const tci_ox_walk *w, tci_node *n);
/* A file, complete or not at all. */
TCI_FN void tci_ox_put_file(const tci_ox_walk *w, const char *path, const tci_str *bytes);

/* One public call that exports: checks the lists, then calls `write` with the outputs' nodes. */
typedef struct tci_ox_export {
    const char *call, *format;
    tc_tensors inputs, outputs;
    const void *how; /* the caller's options */
    void *to;        /* of the caller, for write */
    void (*write)(tci_ox_walk *w, tci_node *const *outputs, int n, const struct tci_ox_export *e);
} tci_ox_export;
TCI_FN tc_status tci_ox_export_call(const tci_ox_export *e, tc_site here);

#endif

/* ---- src/onnx/export_walk.c, continued ---- */
#include <inttypes.h>
#include <string.h>


TCI_FN void tci_ox_refuse(const tci_ox_walk *w, const tci_node *n, const char *why)
{
    tci_scratch_fail(w->s, TC_ERR_UNSUPPORTED, "%s, made at %.60s:%d, has no form in %s%s%s",
                     n->call ? n->call : tci_op_name(n->op), n->site.file ? n->site.file : "?",
                     n->site.line, w->format, *why ? ": " : "", why);
}

/* ---- names of nodes ---- */

TCI_FN const char *tci_ox_named(const tci_ox_walk *w, const tci_node *n)
{
    return n->id < w->n_left ? w->left[n->id].name : NULL;
}

static tci_ox_left *tci_ox_left_of(tci_ox_walk *w, const tci_node *n)
{
    if (n->id >= w->n_left) {
        uint32_t room = n->id * 2 + 64;
        tci_ox_left *left = TCI_NEW_ARRAY(w->s, tci_ox_left, room);
        if (w->n_left) {
            memcpy(left, w->left, sizeof(*left) * w->n_left);
        }
        w->left = left;
        w->n_left = room;
    }
    return &w->left[n->id];
}

TCI_FN void tci_ox_set_name(tci_ox_walk *w, const tci_node *n, const char *name)
{
    tci_ox_left_of(w, n)->name = name;
}

TCI_FN const char *tci_ox_input_name(const tci_ox_walk *w, int i)
{
    const char *name = w->input_names ? w->input_names[i] : w->inputs[i]->name;
    bool clear = name && *name;
    for (int j = 0; j < w->n_inputs && clear && !w->input_names; j++) {
        clear = j == i || !w->inputs[j]->name || strcmp(name, w->inputs[j]->name);
    }
    return clear ? tci_scratch_printf(w->s, "%s", name) : tci_scratch_printf(w->s, "input%d", i);
}

TCI_FN bool tci_ox_rows_are_read(const tci_ox_walk *w, const tci_node *repeat)
{
    const tci_repeat r = tci_repeat_of(repeat);
    for (uint32_t i = 0; i < w->graph->n_slots; i++) {
        const tci_node *n = w->graph->slots[i];
        bool reads = n && n->op == TCI_OP_RESULT && n->in[0] == repeat;
        if (reads && n->attr[0] >= r.n_carry + r.n_y) {
            return true;
        }
    }
    return false;
}

/* ---- memory ---- */

TCI_FN const void *tci_ox_memory_of(const tci_ox_walk *w, tci_node *n, int64_t *bytes)
{
    tc_tensor t = tci_handle_make(w->ctx, n, w->here);
    *bytes = tc_nbytes(t);
    if (*bytes < 0) {
        tci_ox_refuse(w, n, "memory of a symbolic size");
    }
    char *data = tci_scratch_get(w->s, (size_t)*bytes + 8);
    tc_status status = tc_read_as_at(t, TC_BUF((void *)data, *bytes), w->here);
    if (status != TC_OK) {
        tci_scratch_fail(w->s, status, "%s", tc_error(t));
    }
    return data;
}

TCI_FN const char *tci_ox_parameter_name(const tci_ox_walk *w, tci_node *n)
{
    const char *name = n->storage && n->storage->param
                           ? tc_name_of(tci_handle_make(w->ctx, n, w->here))
                           : "";
    return *name ? tci_scratch_printf(w->s, "%s", name) : NULL;
}

TCI_FN void tci_ox_put_file(const tci_ox_walk *w, const char *path, const tci_str *bytes)
{
    tci_os_fresh f = {.began = false};
    tci_os_fresh_begin_users(&f, path);
    tci_os_fresh_write(&f, tci_str_text(bytes), bytes->n);
    int code = tci_os_fresh_end(&f, true, true);
    if (code) {
        tci_scratch_fail(w->s, code == ENOMEM ? TC_ERR_MEMORY : TC_ERR_IO,
                         "'%.120s' cannot be written: %s", path, tci_os_fresh_why(code));
    }
}

/* ---- traversal ---- */

/* A list of nodes whose operands must leave before them. */
typedef struct tci_ox_stack {
    tci_node **items;
    int n, cap;
} tci_ox_stack;

/* Operands within a loop's body are the loop's own matter. */
static int tci_ox_n_operands(const tci_node *n)
{
    return tci_node_is_value(n) ? 0 : tci_node_n_outside(n);
}

/* Their names, where all have one; else NULL, and those without are on the stack. */
static const char *const *tci_ox_operands(tci_ox_walk *w, tci_node *n, tci_ox_stack *stack)
{
    tci_node *const *list = n->in;
    int count = w->needs && !tci_node_is_value(n) ? w->needs(w, n, &list) : 0;
    if (!count) {
        list = n->in; /* of a NAMED that leaves as its expansion, that alone */
        count = n->op == TCI_OP_NAMED ? 1 : tci_ox_n_operands(n);
    }
    const char **names = TCI_NEW_ARRAY(w->s, const char *, count + 1);
    bool ready = true;
    for (int i = 0; i < count; i++) {
        names[i] = tci_ox_named(w, list[i]);
        if (!names[i]) {
            TCI_PUSH(w->s, stack->items, stack->n, stack->cap, list[i]);
            ready = false;
        }
    }
    return ready ? names : NULL;
}

/* An expansion leaves in place of its composite: NULL once that has its name. */
static tci_node *tci_ox_expansion(tci_ox_walk *w, tci_node *n)
{
    tci_node *to = tci_ox_left_of(w, n)->expansion;
    if (!to) {
        to = tci_op_is_composite(n->op) ? tci_expand_composite(w->graph, n) : NULL;
        tci_ox_left_of(w, n)->expansion = to;
    }
    if (!to) {
        tci_ox_refuse(w, n, "");
    } else if (tci_ox_named(w, to)) {
        tci_ox_set_name(w, n, tci_ox_named(w, to));
        return NULL;
    }
    return to;
}

static void tci_ox_note(const tci_ox_walk *w, tci_node *n)
{
    const int32_t *place = w->at && w->depth == 1 ? tci_table_find(w->known, n) : NULL;
    if (place && *place) {
        *w->at = n;
    }
}

TCI_FN const char *tci_ox_walk_to(tci_ox_walk *w, tci_node *root)
{
    tci_ox_stack stack = {NULL, 0, 0};
    TCI_PUSH(w->s, stack.items, stack.n, stack.cap, root);
    w->depth++;
    while (stack.n) {
        tci_node *n = stack.items[stack.n - 1], *to;
        if (tci_ox_named(w, n)) {
            stack.n--;
            continue;
        }
        tci_ox_note(w, n);
        const char *const *in = tci_ox_operands(w, n, &stack);
        if (!in) {
            continue;
        }
        const char *name = w->leave(w, n, in);
        if (name) {
            tci_ox_set_name(w, n, name);
        } else if ((to = tci_ox_expansion(w, n)) != NULL) {
            TCI_PUSH(w->s, stack.items, stack.n, stack.cap, to);
        }
    }
    w->depth--;
    return tci_ox_named(w, root);
}

/* ---- public calls ---- */

/* The nodes of a list of handles; false: the frame failed. */
static bool tci_ox_nodes_of(tci_frame *f, tc_tensors list, const char *what, tci_node **nodes,
                            bool are_inputs)
{
    for (int i = 0; i < list.n && !f->failed; i++) {
        nodes[i] = tci_frame_node(f, list.items[i], what);
        if (!f->failed && are_inputs && nodes[i]->op != TCI_OP_INPUT) {
            tci_frame_fail(f, TC_ERR_ARGUMENT, "input %d is no tc_input", i);
        }
    }
    return !f->failed;
}

static void tci_ox_use_all(tci_frame *f, tc_tensors list, const char *what)
{
    tci_frame_list(f, list.items, list.n, what);
    for (int i = 0; i < list.n && !f->failed; i++) {
        tci_frame_use(f, list.items[i]);
    }
}

TCI_FN tc_status tci_ox_export_call(const tci_ox_export *e, tc_site here)
{
    tci_scratch s;
    tci_frame f = tci_frame_begin(e->call, here);
    tci_ox_use_all(&f, e->outputs, "the outputs");
    tci_ox_use_all(&f, e->inputs, "the inputs");
    if (!f.failed && e->outputs.n < 1) {
        tci_frame_fail(&f, TC_ERR_ARGUMENT, "there are no outputs");
    }
    if (f.failed) {
        return tci_frame_status(&f);
    }
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        tci_frame_fail(&f, s.why, "%s", s.message);
    } else {
        tci_node **in = TCI_NEW_ARRAY(&s, tci_node *, e->inputs.n + 1);
        tci_node **out = TCI_NEW_ARRAY(&s, tci_node *, e->outputs.n + 1);
        if (tci_ox_nodes_of(&f, e->inputs, "an input", in, true) &&
            tci_ox_nodes_of(&f, e->outputs, "an output", out, false)) {
            tci_ox_walk w = {.s = &s,
                             .graph = &f.ctx->graph,
                             .format = e->format,
                             .ctx = f.ctx,
                             .here = here,
                             .inputs = in,
                             .n_inputs = e->inputs.n};
            e->write(&w, out, e->outputs.n, e);
        }
    }
    tci_scratch_free(&s);
    return tci_frame_status(&f);
}
/* ---- src/onnx/find_conv.c ---- */
/* onnx/find_conv.c - finds convolutions and pools in a graph that is exported (onnx/find_conv.h).
 *
 * In: a CONTRACT, or a reduction. Out: the operands of the equivalent convolution or pooling, with
 * kernel, stride, dilation and padding per spatial axis; false if there is none. */
/* ---- src/onnx/find_conv.h ---- */
/* onnx/find_conv.h - recognizes convolutions and pools in an exported graph: a CONTRACT or a
 * reduction of a WINDOW, described by kernel, stride, dilation and padding, as in ONNX and
 * StableHLO. */
#ifndef TCI_ONNX_FIND_CONV_H
#define TCI_ONNX_FIND_CONV_H


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

/* ---- src/onnx/find_conv.c, continued ---- */
#include <math.h>

/* ---- windows ---- */

/* The padding of the windowed axes, taken off x, where x is a PAD by `fill` along no other axis. */
static void tci_ox_take_padding(tci_ox_sliding *w, bool (*fits)(const tci_node *fill))
{
    tci_node *pad = w->x;
    if (pad->op != TCI_OP_PAD || tci_node_is_value(pad) || !fits(pad->in[1])) {
        return;
    }
    for (int d = 0; d < pad->rank; d++) {
        bool windowed = false;
        for (int i = 0; i < w->n; i++) {
            windowed = windowed || w->axis[i] == d;
        }
        if (!windowed && (tci_node_dims(pad)[d] != 0 || pad->shape[d] != pad->in[0]->shape[d])) {
            return;
        }
    }
    w->x = pad->in[0];
    for (int i = 0; i < w->n; i++) {
        w->before[i] = tci_node_dims(pad)[w->axis[i]];
    }
}

static bool tci_ox_sliding_of(const tci_node *n, tci_ox_sliding *w,
                              bool (*fits)(const tci_node *fill))
{
    if (n->op != TCI_OP_WINDOW || n->n_attr / 4 > TCI_OX_SPATIAL) {
        return false;
    }
    *w = (tci_ox_sliding){.x = n->in[0], .n = n->n_attr / 4};
    for (int i = 0; i < w->n; i++) {
        w->axis[i] = (int)n->attr[4 * i];
        w->element[i] = n->in[0]->rank + i;
        w->kernel[i] = tci_node_dims(n)[4 * i + 1];
        w->stride[i] = tci_node_dims(n)[4 * i + 2];
        w->dilation[i] = tci_node_dims(n)[4 * i + 3];
        for (int j = 0; j < i; j++) {
            if (w->axis[i] == w->axis[j]) {
                return false;
            }
        }
    }
    tci_ox_take_padding(w, fits);
    return true;
}

/* Position after the last element of axis i, for `count` windows. */
static void tci_ox_end_windows(tci_ox_sliding *w, int i, tci_dim count)
{
    tci_dim reads = tci_dim_mul(tci_dim_add(count, -1), w->stride[i]);
    reads = tci_dim_add(reads, tci_dim_mul(tci_dim_add(w->kernel[i], -1), w->dilation[i]));
    reads = tci_dim_add(reads, 1);
    w->after[i] = tci_dim_sub(reads, tci_dim_add(w->x->shape[w->axis[i]], w->before[i]));
}

/* ---- convolutions ---- */

/* The axis of a contraction with that position in operand or result `which`. */
static const tci_contract_axis_of *tci_ox_axis_at(const tci_contraction *c, int which, int place)
{
    for (int i = 0; i < c->n_axes; i++) {
        if (c->axes[i].at[which] == place) {
            return &c->axes[i];
        }
    }
    return NULL;
}

/* Spatial axis i: of a forward pass, or of a weight gradient. */
static bool tci_ox_conv_axis(const tci_contraction *of, tci_ox_conv *c, int i)
{
    tci_ox_sliding *w = &c->w;
    const tci_contract_axis_of *place = tci_ox_axis_at(of, c->which, w->axis[i]);
    const tci_contract_axis_of *element = tci_ox_axis_at(of, c->which, w->element[i]);
    int f = !c->which;
    bool forward = place->at[f] < 0 && place->at[2] >= 0 && element->at[f] >= 0 &&
                   element->at[2] < 0;
    bool weights = place->at[f] >= 0 && place->at[2] < 0 && element->at[f] < 0 &&
                   element->at[2] >= 0;
    if (weights) {
        tci_dim stride = w->stride[i];
        w->stride[i] = w->dilation[i];
        w->dilation[i] = stride;
        w->kernel[i] = place->size;
    }
    c->f_axis[i] = forward ? element->at[f] : place->at[f];
    c->out_axis[i] = forward ? place->at[2] : element->at[2];
    tci_ox_end_windows(w, i, forward ? place->size : element->size);
    return forward || weights;
}

/* An axis that no window is along goes into its list. */
static bool tci_ox_conv_list(tci_ox_conv *c, const tci_contract_axis_of *axis)
{
    bool x = axis->at[c->which] >= 0, f = axis->at[!c->which] >= 0, out = axis->at[2] >= 0;
    if (x && f && out) {
        c->groups[c->n_groups++] = axis;
    } else if (x && f) {
        c->channels[c->n_channels++] = axis;
    } else if (x && out) {
        c->batch[c->n_batch++] = axis;
    } else if (f && out) {
        c->filters[c->n_filters++] = axis;
    }
    return x + f + out > 1;
}

static bool tci_ox_is_zero(const tci_node *fill)
{
    return tci_is_zero(fill);
}

TCI_FN bool tci_ox_find_conv(tci_scratch *s, const tci_node *n, tci_ox_conv *c)
{
    *c = (tci_ox_conv){.which = 0};
    if (n->op != TCI_OP_CONTRACT || !tci_dtype_is_float((tc_dtype)n->dtype)) {
        return false;
    }
    while (c->which < 2 && !tci_ox_sliding_of(n->in[c->which], &c->w, tci_ox_is_zero)) {
        c->which++;
    }
    if (c->which == 2 || tci_node_is_value(n->in[c->which])) {
        return false;
    }
    const tci_contraction *of = tci_contraction_of(s, n);
    c->f = n->in[!c->which];
    c->batch = TCI_NEW_ARRAY(s, const tci_contract_axis_of *, of->n_axes);
    c->groups = TCI_NEW_ARRAY(s, const tci_contract_axis_of *, of->n_axes);
    c->channels = TCI_NEW_ARRAY(s, const tci_contract_axis_of *, of->n_axes);
    c->filters = TCI_NEW_ARRAY(s, const tci_contract_axis_of *, of->n_axes);
    for (int i = 0; i < c->w.n; i++) {
        if (!tci_ox_conv_axis(of, c, i)) {
            return false;
        }
    }
    for (int i = 0; i < of->n_axes; i++) {
        bool windowed = false;
        for (int k = 0; k < c->w.n; k++) {
            windowed = windowed || of->axes[i].at[c->which] == c->w.axis[k] ||
                       of->axes[i].at[c->which] == c->w.element[k];
        }
        if (!windowed && !tci_ox_conv_list(c, &of->axes[i])) {
            return false;
        }
    }
    return true;
}

/* ---- pools ---- */

static bool tci_ox_is_least(const tci_node *fill)
{
    return (fill->op == TCI_OP_CONST || fill->op == TCI_OP_LITERAL) &&
           tci_dtype_is_float((tc_dtype)fill->dtype) && isinf(fill->value.f) && fill->value.f < 0;
}

TCI_FN bool tci_ox_find_pool(const tci_node *n, tci_ox_sliding *w)
{
    bool sums = n->op == TCI_OP_SUM;
    if ((!sums && n->op != TCI_OP_MAX) || !tci_dtype_is_float((tc_dtype)n->dtype) ||
        tci_node_is_value(n->in[0]) ||
        !tci_ox_sliding_of(n->in[0], w, sums ? tci_ox_is_zero : tci_ox_is_least) ||
        n->n_attr != w->n) {
        return false;
    }
    for (int i = 0; i < w->n; i++) {
        if (n->attr[i] != w->element[i]) {
            return false;
        }
        tci_ox_end_windows(w, i, n->in[0]->shape[w->axis[i]]);
    }
    return true;
}
/* ---- src/onnx/proto_write.c ---- */
/* onnx/proto_write.c - writes the wire format of ONNX files (onnx/proto_write.h). */
/* ---- src/onnx/proto_write.h ---- */
/* onnx/proto_write.h - an ONNX graph being written: nodes, initializers and names of values.
 *
 * In: operators with attributes. Out: protobuf messages in growing buffers. A name represents a
 * value; it is in scratch memory. */
#ifndef TCI_ONNX_PROTO_WRITE_H
#define TCI_ONNX_PROTO_WRITE_H


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

/* ---- src/onnx/proto_write.c, continued ---- */
#include <string.h>

static void tci_ow_varint(tci_str *to, uint64_t v)
{
    unsigned char bytes[10];
    size_t n = 0;
    for (; v >= 128; v >>= 7) {
        bytes[n++] = (unsigned char)(v | 128);
    }
    bytes[n++] = (unsigned char)v;
    tci_str_add_n(to, bytes, n);
}

TCI_FN void tci_ow_number(tci_str *to, int field, uint64_t v)
{
    tci_ow_varint(to, (uint64_t)field << 3);
    tci_ow_varint(to, v);
}

TCI_FN void tci_ow_bytes(tci_str *to, int field, const void *bytes, size_t n)
{
    tci_ow_varint(to, (uint64_t)field << 3 | 2);
    tci_ow_varint(to, n);
    if (n) {
        tci_str_add_n(to, bytes, n);
    }
}

TCI_FN void tci_ow_text(tci_str *to, int field, const char *text)
{
    tci_ow_bytes(to, field, text, strlen(text));
}

static void tci_ow_message(tci_str *to, int field, const tci_str *inner)
{
    tci_ow_bytes(to, field, tci_str_text(inner), inner->n);
}

TCI_FN const char *tci_ow_name(tci_ow *w)
{
    return tci_scratch_printf(w->s, "v%d", w->n_values++);
}

static void tci_ow_attribute(tci_str *node, tci_scratch *s, const tci_ow_attr *a)
{
    tci_str m = {.s = s};
    tci_ow_text(&m, 1, a->name);
    if (a->text) {
        tci_ow_text(&m, 4, a->text);
        tci_ow_number(&m, 20, 3);
    } else if (a->n == -1) {
        tci_ow_number(&m, 3, (uint64_t)a->i);
        tci_ow_number(&m, 20, 2);
    } else if (a->n == -3) {
        tci_ow_message(&m, 6, a->graph);
        tci_ow_number(&m, 20, 5);
    } else if (a->n == -2) {
        float f = (float)a->f;
        tci_ow_varint(&m, 2 << 3 | 5);
        tci_str_add_n(&m, &f, sizeof(f));
        tci_ow_number(&m, 20, 1);
    } else {
        for (int i = 0; i < a->n; i++) {
            tci_ow_number(&m, 8, (uint64_t)a->ints[i]);
        }
        tci_ow_number(&m, 20, 7);
    }
    tci_ow_message(node, 5, &m);
}

TCI_FN void tci_ow_node(tci_ow *w, const char *op, int n_in, const char *const *in, int n_out,
                        const char *const *out, int n_attrs, const tci_ow_attr *attrs)
{
    tci_str node = {.s = w->s};
    for (int i = 0; i < n_in; i++) {
        tci_ow_text(&node, 1, in[i]);
    }
    for (int i = 0; i < n_out; i++) {
        tci_ow_text(&node, 2, out[i]);
    }
    tci_ow_text(&node, 4, op);
    for (int i = 0; i < n_attrs; i++) {
        tci_ow_attribute(&node, w->s, &attrs[i]);
    }
    tci_ow_message(&w->graph, 1, &node);
}

TCI_FN const char *tci_ow_op(tci_ow *w, const char *op, int n_in, const char *const *in,
                             int n_attrs, const tci_ow_attr *attrs)
{
    const char *out = tci_ow_name(w);
    tci_ow_node(w, op, n_in, in, 1, &out, n_attrs, attrs);
    return out;
}

static void tci_ow_entry(tci_str *tensor, tci_scratch *s, const char *key, const char *value)
{
    tci_str m = {.s = s};
    tci_ow_text(&m, 1, key);
    tci_ow_text(&m, 2, value);
    tci_ow_message(tensor, 13, &m);
}

TCI_FN const char *tci_ow_tensor(tci_ow *w, const char *name, tc_dtype dtype, int rank,
                                 const int64_t *sizes, const void *data)
{
    enum { TCI_OW_SMALL = 1024, TCI_OW_ALIGN = 64 };
    static const char zeros[TCI_OW_ALIGN];
    tci_str m = {.s = w->s};
    int64_t n = tc_dtype_size(dtype);
    name = name ? name : tci_ow_name(w);
    for (int i = 0; i < rank; i++) {
        tci_ow_number(&m, 1, (uint64_t)sizes[i]);
        n *= sizes[i];
    }
    tci_ow_number(&m, 2, (uint64_t)tci_onnx_type_of(dtype));
    tci_ow_text(&m, 8, name);
    if (!w->external || n < TCI_OW_SMALL) {
        tci_ow_bytes(&m, 9, data, (size_t)n);
        tci_ow_message(&w->graph, 5, &m);
        return name;
    }
    tci_str_add_n(&w->weights, zeros, (TCI_OW_ALIGN - w->weights.n % TCI_OW_ALIGN) % TCI_OW_ALIGN);
    tci_ow_entry(&m, w->s, "location", w->external);
    tci_ow_entry(&m, w->s, "offset", tci_scratch_printf(w->s, "%zu", w->weights.n));
    tci_ow_entry(&m, w->s, "length", tci_scratch_printf(w->s, "%lld", (long long)n));
    tci_ow_number(&m, 14, 1);
    tci_str_add_n(&w->weights, data, (size_t)n);
    tci_ow_message(&w->graph, 5, &m);
    return name;
}

TCI_FN const char *tci_ow_ints(tci_ow *w, int n, const int64_t *items)
{
    return tci_ow_tensor(w, NULL, TC_I64, 1, (const int64_t[]){n}, items);
}

TCI_FN void tci_ow_info(tci_ow *w, int field, const char *name, tc_dtype dtype, int rank,
                        const tci_dim *sizes)
{
    tci_str shape = {.s = w->s}, tensor = {.s = w->s}, type = {.s = w->s}, info = {.s = w->s};
    for (int i = 0; i < rank; i++) {
        tci_str dim = {.s = w->s};
        if (tci_dim_is_known(sizes[i])) {
            tci_ow_number(&dim, 1, (uint64_t)tci_dim_known(sizes[i]));
        } else {
            tci_ow_text(&dim, 2, tci_dim_text_of(sizes[i]).text);
        }
        tci_ow_message(&shape, 1, &dim);
    }
    tci_ow_number(&tensor, 1, (uint64_t)tci_onnx_type_of(dtype));
    tci_ow_message(&tensor, 2, &shape);
    tci_ow_message(&type, 1, &tensor);
    tci_ow_text(&info, 1, name);
    tci_ow_message(&info, 2, &type);
    tci_ow_message(&w->graph, field, &info);
}
/* ---- src/onnx/export_conv.c ---- */
/* onnx/export_conv.c - exports convolutions and pooling as ONNX Conv, ConvTranspose, MaxPool and
 * AveragePool.
 *
 * In: a CONTRACT or a reduction of a WINDOW (onnx/find_conv.h). Out: the operator, over x as
 * [batch, groups * channels, spatial positions] and filters as [groups * filters, channels, window
 * elements], with a Transpose and a Reshape around it where the graph has other axes. */
/* ---- src/onnx/export_state.h ---- */
/* onnx/export_state.h - state of an ONNX export, shared by its source files. */
#ifndef TCI_ONNX_EXPORT_STATE_H
#define TCI_ONNX_EXPORT_STATE_H

/* ---- src/onnx/export.h ---- */
/* onnx/export.h - declares the exporters: a graph serialized in memory as an ONNX model (protobuf
 * bytes) or as a StableHLO module (text), for the public calls and for graph-level backends. The
 * traversal w defines which nodes are inputs (also DATA and LITERAL nodes). All memory comes from
 * w's scratch arena. Errors longjmp out. */
#ifndef TCI_ONNX_EXPORT_H
#define TCI_ONNX_EXPORT_H


/* An ONNX model. weights: what belongs into a file named data_name, where how->external asks. */
TCI_FN void tci_ox_write_onnx(tci_ox_walk *w, tci_node *const *outputs, int n,
                              const tc_onnx_export *how, const char *data_name, tci_str *model,
                              tci_str *weights);
/* The text of a StableHLO module whose function @main has the inputs and outputs in their order. */
TCI_FN void tci_ox_write_stablehlo(tci_ox_walk *w, tci_node *const *outputs, int n,
                                   const tc_stablehlo_export *how, tci_str *text);

#endif

/* ---- src/onnx/export_state.h, continued ---- */
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

/* ---- src/onnx/export_conv.c, continued ---- */
/* Padding of ONNX is not negative, and no symbol. */
static bool tci_ox_windows_fit(const tci_ox_sliding *w)
{
    bool fit = true;
    for (int i = 0; i < w->n && fit; i++) {
        /* of a symbolic size what is left over follows the last window, or nothing does */
        bool open = !tci_dim_is_known(w->after[i]);
        fit = tci_dim_is_known(w->kernel[i]) && tci_dim_is_known(w->stride[i]) &&
              tci_dim_is_known(w->dilation[i]) && tci_dim_is_known(w->before[i]) &&
              tci_dim_le(0, w->before[i]) && !open;
    }
    return fit;
}

/* Elements after the last window, which Conv and pools ignore, may be cut. */
static int64_t tci_ox_after(const tci_ox_sliding *w, int i)
{
    return tci_dim_known(w->after[i]) < 0 ? 0 : tci_dim_known(w->after[i]);
}

/* True if the operator's own rule gives as many positions as there are. */
static bool tci_ox_places_follow(const tci_ox_sliding *w)
{
    bool follow = true;
    for (int i = 0; i < w->n && follow; i++) {
        follow = tci_dim_known(w->after[i]) > -tci_dim_known(w->stride[i]);
    }
    return follow;
}

TCI_FN bool tci_ox_conv_fits(const tci_ox_conv *c)
{
    bool half = tci_dtype_is_half((tc_dtype)c->f->dtype);
    bool known = tci_is_known(c->w.x) && tci_is_known(c->f);
    bool plain = c->n_batch == 1 && c->n_groups == 0 && c->n_channels == 1 && c->n_filters == 1;
    return !half && tci_ox_windows_fit(&c->w) && tci_ox_places_follow(&c->w) && (known || plain);
}

/* Axes put in order and merged into few; sizes are known, or no axis is merged. */
typedef struct tci_ox_order {
    int64_t *axes;
    tci_dim *sizes;
    int n, n_merged;
} tci_ox_order;

static tci_ox_order tci_ox_no_order(tci_ox_out_graph *g, int rank)
{
    return (tci_ox_order){TCI_NEW_ARRAY(g->walk->s, int64_t, rank + 1),
                          TCI_NEW_ARRAY(g->walk->s, tci_dim, rank + TCI_OX_SPATIAL + 3), 0, 0};
}

static void tci_ox_merge(tci_ox_order *o, int which, int n, const tci_contract_axis_of *const *list,
                         bool goes_on)
{
    tci_dim size = 1;
    for (int i = 0; i < n; i++) {
        o->axes[o->n++] = list[i]->at[which];
        size = tci_dim_mul(size, list[i]->size);
    }
    if (goes_on) {
        o->sizes[o->n_merged - 1] = tci_dim_mul(o->sizes[o->n_merged - 1], size);
    } else {
        o->sizes[o->n_merged++] = size;
    }
}

static void tci_ox_spatial(tci_ox_order *o, int n, const int *axes, const tci_dim *sizes)
{
    for (int i = 0; i < n; i++) {
        o->axes[o->n++] = axes[i];
        o->sizes[o->n_merged++] = sizes[axes[i]];
    }
}

TCI_FN const char *tci_ox_transposed(tci_ox_out_graph *g, int rank, const int64_t *axes,
                                     const char *x)
{
    bool in_order = true;
    for (int i = 0; i < rank; i++) {
        in_order = in_order && axes[i] == i;
    }
    const tci_ow_attr perm = TCI_OW_INTS("perm", rank, axes);
    return in_order ? x : tci_ow_op(&g->w, "Transpose", 1, &x, 1, &perm);
}

/* x, of sizes `from`, in other sizes; as it is where they are the same. */
static const char *tci_ox_resized(tci_ox_out_graph *g, int rank_from, const tci_dim *from, int rank,
                                  const tci_dim *to, const char *x)
{
    bool same = rank_from == rank;
    for (int i = 0; i < rank && same; i++) {
        same = from[i] == to[i];
    }
    return same ? x : TCI_OW(&g->w, "Reshape", x, tci_ow_ints(&g->w, rank, tci_dim_words(to)));
}

static const char *tci_ox_ordered(tci_ox_out_graph *g, const tci_node *n, const tci_ox_order *o,
                                  const char *x)
{
    tci_dim *moved = TCI_NEW_ARRAY(g->walk->s, tci_dim, n->rank + 1);
    for (int i = 0; i < n->rank; i++) {
        moved[i] = n->shape[o->axes[i]];
    }
    x = tci_ox_transposed(g, n->rank, o->axes, x);
    return tci_ox_resized(g, n->rank, moved, o->n_merged, o->sizes, x);
}

/* The result, [batch, groups * filters, positions], as n has its axes. */
static const char *tci_ox_as_result(tci_ox_out_graph *g, const tci_ox_conv *c, const tci_node *n,
                                    const char *y)
{
    tci_ox_order o = tci_ox_no_order(g, n->rank);
    tci_ox_merge(&o, 2, c->n_batch, c->batch, false);
    tci_ox_merge(&o, 2, c->n_groups, c->groups, false);
    tci_ox_merge(&o, 2, c->n_filters, c->filters, true);
    tci_ox_spatial(&o, c->w.n, c->out_axis, n->shape);
    tci_dim *split = TCI_NEW_ARRAY(g->walk->s, tci_dim, n->rank + 1);
    int64_t *back = TCI_NEW_ARRAY(g->walk->s, int64_t, n->rank + 1);
    for (int i = 0; i < n->rank; i++) {
        split[i] = n->shape[o.axes[i]];
        back[o.axes[i]] = i;
    }
    y = tci_ox_resized(g, o.n_merged, o.sizes, n->rank, split, y);
    return tci_ox_transposed(g, n->rank, back, y);
}

/* kernel_shape, strides, dilations, pads: four attributes. */
static void tci_ox_window_attrs(tci_ox_out_graph *g, const tci_ox_sliding *w, tci_ow_attr *to)
{
    static const char *const names[] = {"kernel_shape", "strides", "dilations", "pads"};
    for (int k = 0; k < 4; k++) {
        int64_t *list = TCI_NEW_ARRAY(g->walk->s, int64_t, 2 * w->n);
        for (int i = 0; i < w->n; i++) {
            list[i] = tci_dim_known(k == 0   ? w->kernel[i]
                                    : k == 1 ? w->stride[i]
                                    : k == 2 ? w->dilation[i]
                                             : w->before[i]);
            if (k == 3) {
                list[w->n + i] = tci_ox_after(w, i);
            }
        }
        to[k] = (tci_ow_attr)TCI_OW_INTS(names[k], k == 3 ? 2 * w->n : w->n, list);
    }
}

TCI_FN const char *tci_ox_conv_out(tci_ox_out_graph *g, const tci_ox_conv *c, const tci_node *n,
                                   const char *const *in)
{
    const tci_ox_sliding *w = &c->w;
    tci_ox_order ox = tci_ox_no_order(g, w->x->rank), of = tci_ox_no_order(g, c->f->rank);
    tci_ow_attr attrs[5];
    tci_ox_merge(&ox, c->which, c->n_batch, c->batch, false);
    tci_ox_merge(&ox, c->which, c->n_groups, c->groups, false);
    tci_ox_merge(&ox, c->which, c->n_channels, c->channels, true);
    tci_ox_spatial(&ox, w->n, w->axis, w->x->shape);
    tci_ox_merge(&of, !c->which, c->n_groups, c->groups, false);
    int64_t groups = tci_dim_known(of.sizes[0]);
    tci_ox_merge(&of, !c->which, c->n_filters, c->filters, true);
    tci_ox_merge(&of, !c->which, c->n_channels, c->channels, false);
    tci_ox_spatial(&of, w->n, c->f_axis, c->f->shape);
    const char *with[] = {tci_ox_ordered(g, w->x, &ox, in[0]), tci_ox_ordered(g, c->f, &of, in[1])};
    tci_ox_window_attrs(g, w, attrs);
    attrs[4] = (tci_ow_attr)TCI_OW_INT("group", groups);
    return tci_ox_as_result(g, c, n, tci_ow_op(&g->w, "Conv", 2, with, 5, attrs));
}

/* Padding after the last element that is negative leaves as output_padding. */
TCI_FN const char *tci_ox_conv_transpose_out(tci_ox_out_graph *g, const tci_node *n,
                                             const char *const *in)
{
    static const char *const names[] = {"kernel_shape", "strides", "dilations", "output_padding",
                                        "pads"};
    const tci_node *x = n->in[0], *w = n->in[1];
    int axes = n->rank - 2;
    int64_t *lists[5];
    tci_ow_attr attrs[6];
    for (int k = 0; k < 5; k++) {
        lists[k] = TCI_NEW_ARRAY(g->walk->s, int64_t, 2 * axes);
        attrs[k] = (tci_ow_attr)TCI_OW_INTS(names[k], k == 4 ? 2 * axes : axes, lists[k]);
    }
    attrs[5] = (tci_ow_attr)TCI_OW_INT("group", n->attr[0]);
    for (int i = 0; i < axes; i++) {
        const tci_dim *words = tci_node_dims(n) + 1 + 3 * i; /* stride, dilation, before */
        tci_dim steps = tci_dim_mul(tci_dim_sub(x->shape[2 + i], 1), words[0]);
        tci_dim reach = tci_dim_mul(tci_dim_sub(w->shape[2 + i], 1), words[1]);
        tci_dim whole = tci_dim_add(tci_dim_add(steps, reach), 1);
        tci_dim after = tci_dim_sub(tci_dim_sub(whole, words[2]), n->shape[2 + i]);
        if (n->dtype != TC_F32 || !tci_dim_is_known(w->shape[2 + i]) || !tci_dim_is_known(after)) {
            return NULL;
        }
        lists[0][i] = tci_dim_known(w->shape[2 + i]);
        lists[1][i] = tci_dim_known(words[0]);
        lists[2][i] = tci_dim_known(words[1]);
        lists[3][i] = TCI_MAX(0, -tci_dim_known(after));
        lists[4][i] = tci_dim_known(words[2]);
        lists[4][axes + i] = TCI_MAX(0, tci_dim_known(after));
    }
    return tci_ow_op(&g->w, "ConvTranspose", 2, in, 6, attrs);
}

/* ---- pools ---- */

TCI_FN bool tci_ox_pool_fits(const tci_ox_sliding *w, const tci_node *n)
{
    bool fits = w->x->rank == w->n + 2 && tci_ox_windows_fit(w) && tci_ox_places_follow(w) &&
                n->dtype == TC_F32 && w->x->dtype == TC_F32;
    for (int i = 0; i < w->n && fits; i++) {
        tci_dim half = tci_dim_div(w->kernel[i], 2);
        fits = w->axis[i] == 2 + i && tci_dim_le(w->before[i], half) &&
               tci_ox_after(w, i) <= tci_dim_known(half) &&
               (n->op == TCI_OP_MAX || w->dilation[i] == 1);
    }
    return fits;
}

/* A sum is the mean times the number of elements. */
TCI_FN const char *tci_ox_pool_out(tci_ox_out_graph *g, const tci_ox_sliding *w, const tci_node *n,
                                   const char *x)
{
    tci_ow_attr attrs[5];
    float count = 1;
    tci_ox_window_attrs(g, w, attrs);
    if (n->op == TCI_OP_MAX) {
        return tci_ow_op(&g->w, "MaxPool", 1, &x, 4, attrs);
    }
    for (int i = 0; i < w->n; i++) {
        count *= (float)tci_dim_known(w->kernel[i]);
    }
    attrs[4] = (tci_ow_attr)TCI_OW_INT("count_include_pad", 1);
    x = tci_ow_op(&g->w, "AveragePool", 1, &x, 5, attrs);
    return TCI_OW(&g->w, "Mul", x, tci_ow_tensor(&g->w, NULL, TC_F32, 0, NULL, &count));
}
/* ---- src/onnx/export_scalar.c ---- */
/* onnx/export_scalar.c - exports scalar operations as ONNX nodes: prims, math expansions, random
 * bits.
 *
 * In: operands by name. Out: nodes that compute the same for integers, and for floats by an
 * operator or by the expansion of ops/math.c, instruction by instruction; a fused multiply-add
 * becomes a product and a sum. */

/* ---- constants ---- */

TCI_FN const char *tci_ox_number(tci_ox_out_graph *g, tc_dtype dtype, tci_value v)
{
    char bytes[8];
    tci_value_store(dtype, bytes, v);
    return tci_ow_tensor(&g->w, NULL, dtype, 0, NULL, bytes);
}

TCI_FN const char *tci_ox_float(tci_ox_out_graph *g, tc_dtype dtype, double v)
{
    return tci_ox_number(g, dtype, tci_value_cast((tci_value){.f = v}, TC_F64, dtype));
}

/* Engines compute with i64 where they lack unsigned integers. A number, 0-d. */
static const char *tci_ox_i64(tci_ox_out_graph *g, int64_t v)
{
    return tci_ow_tensor(&g->w, NULL, TC_I64, 0, NULL, &v);
}

/* ---- random bits ---- */

enum { TCI_OX_WORD_BITS = 32 };

/* A number of 64 bits as two words, each in an i64. */
typedef struct tci_ox_words {
    const char *low, *high;
} tci_ox_words;

static const char *tci_ox_divided(tci_ox_out_graph *g, const char *x, int64_t by)
{
    return TCI_OW(&g->w, "Div", x, tci_ox_i64(g, by));
}

static const char *tci_ox_rest(tci_ox_out_graph *g, const char *x, int64_t of)
{
    return TCI_OW(&g->w, "Mod", x, tci_ox_i64(g, of));
}

/* The product of two words. c is cut in halves, so that no sum reaches 2^50. */
static tci_ox_words tci_ox_word_product(tci_ox_out_graph *g, const char *c, const char *f)
{
    enum { TCI_OX_HALF = 1 << 16 };
    tci_ow *w = &g->w;
    const char *below = TCI_OW(w, "Mul", tci_ox_rest(g, c, TCI_OX_HALF), f);
    const char *above = TCI_OW(w, "Mul", tci_ox_divided(g, c, TCI_OX_HALF), f);
    const char *sum = TCI_OW(w, "Add", above, tci_ox_divided(g, below, TCI_OX_HALF));
    const char *middle = TCI_OW(w, "Mul", tci_ox_rest(g, sum, TCI_OX_HALF),
                                tci_ox_i64(g, TCI_OX_HALF));
    return (tci_ox_words){TCI_OW(w, "Add", middle, tci_ox_rest(g, below, TCI_OX_HALF)),
                          tci_ox_divided(g, sum, TCI_OX_HALF)};
}

/* The words of a u64. */
static tci_ox_words tci_ox_cut(tci_ox_out_graph *g, const char *x)
{
    tci_ow *w = &g->w;
    const tci_ow_attr way = TCI_OW_TEXT("direction", "RIGHT");
    const uint64_t by = TCI_OX_WORD_BITS, mask = 0xffffffff;
    const char *in[] = {x, tci_ow_tensor(w, NULL, TC_U64, 0, NULL, &by)};
    const char *low = TCI_OW(w, "BitwiseAnd", x, tci_ow_tensor(w, NULL, TC_U64, 0, NULL, &mask));
    return (tci_ox_words){tci_ox_to_dtype(g, low, TC_I64),
                          tci_ox_to_dtype(g, tci_ow_op(w, "BitShift", 2, in, 1, &way), TC_I64)};
}

/* And back: low and high are u64. */
static const char *tci_ox_joined(tci_ox_out_graph *g, const char *low, const char *high)
{
    const tci_ow_attr way = TCI_OW_TEXT("direction", "LEFT");
    const uint64_t by = TCI_OX_WORD_BITS;
    const char *in[] = {high, tci_ow_tensor(&g->w, NULL, TC_U64, 0, NULL, &by)};
    return TCI_OW(&g->w, "BitwiseOr", low, tci_ow_op(&g->w, "BitShift", 2, in, 1, &way));
}

/* The four words of the blocks c, by Philox4x32-10 (kernel/random.c). */
static void tci_ox_philox(tci_ox_out_graph *g, const char *c[4], tci_ox_words key)
{
    const int64_t word = (int64_t)1 << TCI_OX_WORD_BITS;
    tci_ow *w = &g->w;
    for (int64_t round = 0; round < 10; round++) {
        const char *step0 = tci_ox_i64(g, round * 0x9e3779b9 % word);
        const char *step1 = tci_ox_i64(g, round * 0xbb67ae85 % word);
        const char *key0 = tci_ox_rest(g, TCI_OW(w, "Add", key.low, step0), word);
        const char *key1 = tci_ox_rest(g, TCI_OW(w, "Add", key.high, step1), word);
        tci_ox_words p = tci_ox_word_product(g, c[0], tci_ox_i64(g, 0xd2511f53));
        tci_ox_words q = tci_ox_word_product(g, c[2], tci_ox_i64(g, 0xcd9e8d57));
        c[0] = TCI_OW(w, "BitwiseXor", TCI_OW(w, "BitwiseXor", q.high, c[1]), key0);
        c[2] = TCI_OW(w, "BitwiseXor", TCI_OW(w, "BitwiseXor", p.high, c[3]), key1);
        c[1] = q.low;
        c[3] = p.low;
    }
}

TCI_FN const char *tci_ox_random_out(tci_ox_out_graph *g, const tci_node *n, const char *const *in)
{
    const int64_t word = (int64_t)1 << TCI_OX_WORD_BITS, last = 1;
    tci_ow *w = &g->w;
    const bool wide = n->dtype == TC_U64;
    const int each = wide ? 2 : 4; /* elements of a block */
    if (!tci_dim_is_known(tci_node_count(n))) {
        tci_ox_refuse(g->walk, n, "random numbers of a symbolic size");
    }
    int64_t count = tci_dim_known(tci_node_count(n)), blocks = (count + each - 1) / each;
    tci_ox_words key = tci_ox_cut(g, in[0]), stream = tci_ox_cut(g, in[1]);
    const char *block = TCI_OW(w, "Range", tci_ox_i64(g, 0), tci_ox_i64(g, blocks),
                               tci_ox_i64(g, 1));
    const char *c[4] = {tci_ox_rest(g, block, word), tci_ox_divided(g, block, word), stream.low,
                        stream.high};
    tci_ox_philox(g, c, key);
    const char *axes = tci_ow_ints(w, 1, &last), *parts[4];
    for (int i = 0; i < 4; i++) {
        parts[i] = tci_ox_to_dtype(g, TCI_OW(w, "Unsqueeze", c[i], axes), (tc_dtype)n->dtype);
    }
    for (int i = 0; i < 2 && wide; i++) {
        parts[i] = tci_ox_joined(g, parts[2 * i], parts[2 * i + 1]);
    }
    const tci_ow_attr axis = TCI_OW_INT("axis", 1);
    const int64_t minus = -1, zero = 0;
    const char *all = TCI_OW(w, "Reshape", tci_ow_op(w, "Concat", each, parts, 1, &axis),
                             tci_ow_ints(w, 1, &minus));
    all = TCI_OW(w, "Slice", all, tci_ow_ints(w, 1, &zero), tci_ow_ints(w, 1, &count));
    return TCI_OW(w, "Reshape", all, tci_ow_ints(w, n->rank, tci_dim_words(n->shape)));
}

static const char *tci_ox_mulhi_out(tci_ox_out_graph *g, tc_dtype d, const char *const *x)
{
    const int64_t word = (int64_t)1 << TCI_OX_WORD_BITS;
    tci_ow *w = &g->w;
    if (d == TC_U32) {
        const char *a = tci_ox_to_dtype(g, x[0], TC_I64), *b = tci_ox_to_dtype(g, x[1], TC_I64);
        return tci_ox_to_dtype(g, tci_ox_word_product(g, a, b).high, d);
    } else if (d != TC_U64) {
        return NULL;
    }
    tci_ox_words a = tci_ox_cut(g, x[0]), b = tci_ox_cut(g, x[1]);
    tci_ox_words ll = tci_ox_word_product(g, a.low, b.low),
                 hl = tci_ox_word_product(g, a.high, b.low);
    tci_ox_words lh = tci_ox_word_product(g, a.low, b.high),
                 hh = tci_ox_word_product(g, a.high, b.high);
    const char *middle = TCI_OW(w, "Add", ll.high, TCI_OW(w, "Add", hl.low, lh.low));
    const char *above = TCI_OW(w, "Add", hh.low, TCI_OW(w, "Add", hl.high, lh.high));
    above = TCI_OW(w, "Add", above, tci_ox_divided(g, middle, word));
    const char *top = TCI_OW(w, "Add", hh.high, tci_ox_divided(g, above, word));
    return tci_ox_joined(g, tci_ox_to_dtype(g, tci_ox_rest(g, above, word), d),
                         tci_ox_to_dtype(g, top, d));
}

/* ---- expansions ---- */

static const char *tci_ox_step(tci_ox_out_graph *g, const tci_recipe *r, const tci_step_inst *s,
                               const char *const *x)
{
    tc_dtype t = (tc_dtype)r->insts[s->args[s->prim == TCI_P_SELECT]].dtype;
    tc_dtype to = (tc_dtype)s->dtype;
    const tci_ow_attr type = TCI_OW_INT("to", tci_onnx_type_of(to));
    switch ((int)s->prim) {
    case TCI_P_CAST: return tci_ox_to_dtype(g, x[0], to);
    case TCI_P_BITS:
        g->opset = TCI_OX_OPSET_BITCAST;
        return tci_ow_op(&g->w, "BitCast", 1, x, 1, &type);
    case TCI_P_PMIN:
    case TCI_P_PMAX:
        return TCI_OW(&g->w, "Where",
                      TCI_OW(&g->w, s->prim == TCI_P_PMAX ? "Greater" : "Less", x[0], x[1]), x[0],
                      x[1]);
    default: return tci_ox_word(g, t, s->prim, x);
    }
}

static const char *tci_ox_recipe_out(tci_ox_out_graph *g, tc_dtype d, int prim,
                                     const char *const *x)
{
    const tci_recipe *r = tci_math_recipe((tci_prim)prim, d);
    const char **at = TCI_NEW_ARRAY(g->walk->s, const char *, r->n), *made = "";
    for (int i = 0; i < r->n && made; i++) {
        const tci_step_inst *s = &r->insts[i];
        const char *args[3] = {NULL, NULL, NULL};
        for (int a = 0; a < s->n_args && s->kind == TCI_RECIPE_PRIM; a++) {
            args[a] = at[s->args[a]];
        }
        made = s->kind == TCI_RECIPE_ARG     ? x[s->imm]
               : s->kind == TCI_RECIPE_CONST ? tci_ox_number(g, (tc_dtype)s->dtype, s->value)
                                             : tci_ox_step(g, r, s, args);
        at[i] = made;
    }
    return made ? at[r->n - 1] : NULL;
}

/* ---- greatest common divisors ---- */

/* Euclid's steps in i64, as many as numbers of the dtype can need: each two halve the greater. */
static const char *tci_ox_gcd_out(tci_ox_out_graph *g, tc_dtype d, const char *const *x)
{
    tci_ow *w = &g->w;
    const char *zero = tci_ox_i64(g, 0), *one = tci_ox_i64(g, 1);
    const char *a = TCI_OW(w, "Abs", tci_ox_to_dtype(g, x[0], TC_I64));
    const char *b = TCI_OW(w, "Abs", tci_ox_to_dtype(g, x[1], TC_I64));
    for (int i = 0, bits = 8 * (int)tc_dtype_size(d); i < bits + bits / 2; i++) {
        const char *ends = TCI_OW(w, "Equal", b, zero);
        const char *rest = TCI_OW(w, "Mod", a, TCI_OW(w, "Where", ends, one, b));
        a = TCI_OW(w, "Where", ends, a, b);
        b = TCI_OW(w, "Where", ends, zero, rest);
    }
    return d == TC_U64 ? NULL : tci_ox_to_dtype(g, a, d);
}

/* ---- prims ---- */

/* Of bool by its logic, which more engines have than Where of bool. */
TCI_FN const char *tci_ox_where_out(tci_ox_out_graph *g, tc_dtype d, const char *const *x)
{
    tci_ow *w = &g->w;
    return d != TC_BOOL ? TCI_OW(w, "Where", x[0], x[1], x[2])
                        : TCI_OW(w, "Or", TCI_OW(w, "And", x[0], x[1]),
                                 TCI_OW(w, "And", TCI_OW(w, "Not", x[0]), x[2]));
}

/* An order of two values: bool has one in tc, but not in ONNX. */
static const char *tci_ox_ordered_out(tci_ox_out_graph *g, const char *op, tc_dtype d,
                                      const char *const *x)
{
    const char *in[] = {x[0], x[1]};
    for (int i = 0; i < 2 && d == TC_BOOL; i++) {
        in[i] = tci_ox_to_dtype(g, x[i], TC_I32);
    }
    return tci_ow_op(&g->w, op, 2, in, 0, NULL);
}

/* BitShift is of unsigned integers and by less than their width: in u64, and the rest in i64, which
 * engines have of Where. A negative value goes right by way of its complement; too far a shift
 * gives 0, or then -1. */
static const char *tci_ox_shift_out(tci_ox_out_graph *g, tc_dtype d, bool left,
                                    const char *const *x)
{
    tci_ow *w = &g->w;
    const tci_ow_attr way = TCI_OW_TEXT("direction", left ? "LEFT" : "RIGHT");
    const char *zero = tci_ox_float(g, TC_I64, 0), *negative = NULL;
    const char *width = tci_ox_float(g, TC_I64, 8 * tc_dtype_size(d));
    const char *a = tci_ox_to_dtype(g, x[0], TC_I64), *by = tci_ox_to_dtype(g, x[1], TC_I64);
    const char *inside = TCI_OW(w, "And", TCI_OW(w, "Less", by, width),
                                TCI_OW(w, "GreaterOrEqual", by, zero));
    if (d >= TC_I8 && !left) {
        negative = TCI_OW(w, "Less", a, zero);
        a = TCI_OW(w, "Where", negative, TCI_OW(w, "BitwiseNot", a), a);
    }
    by = TCI_OW(w, "Where", inside, by, zero);
    const char *in[] = {tci_ox_to_dtype(g, a, TC_U64), tci_ox_to_dtype(g, by, TC_U64)};
    const char *y = tci_ox_to_dtype(g, tci_ow_op(w, "BitShift", 2, in, 1, &way), TC_I64);
    y = TCI_OW(w, "Where", inside, y, zero);
    y = negative ? TCI_OW(w, "Where", negative, TCI_OW(w, "BitwiseNot", y), y) : y;
    return tci_ox_to_dtype(g, y, d);
}

/* Of integers by repeated squaring in i64, since Pow of an engine may go through floats; of a
 * negative b the integer part of 1 / a^-b, 0 of 0. */
static const char *tci_ox_powi_out(tci_ox_out_graph *g, tc_dtype d, const char *const *x)
{
    tci_ow *w = &g->w;
    const char *zero = tci_ox_i64(g, 0), *one = tci_ox_i64(g, 1), *two = tci_ox_i64(g, 2);
    const char *minus = tci_ox_i64(g, -1), *a = tci_ox_to_dtype(g, x[0], TC_I64);
    const char *b = tci_ox_to_dtype(g, x[1], TC_I64), *y = one, *square = a, *first_odd = NULL;
    const char *rest = TCI_OW(w, "Abs", b);
    for (int bits = 8 * tc_dtype_size(d) - (d >= TC_I8), i = 0; i < bits; i++) {
        const char *odd = TCI_OW(w, "Equal", TCI_OW(w, "Mod", rest, two), one);
        first_odd = first_odd ? first_odd : odd;
        y = TCI_OW(w, "Where", odd, TCI_OW(w, "Mul", y, square), y);
        square = TCI_OW(w, "Mul", square, square);
        rest = TCI_OW(w, "Div", rest, two);
    }
    const char *below = TCI_OW(w, "Where", first_odd, minus, one);
    below = TCI_OW(w, "Where", TCI_OW(w, "Equal", a, minus), below, zero);
    below = TCI_OW(w, "Where", TCI_OW(w, "Equal", a, one), one, below);
    y = d < TC_I8 ? y : TCI_OW(w, "Where", TCI_OW(w, "Less", b, zero), below, y);
    return tci_ox_to_dtype(g, y, d);
}

/* Of integers, 0 where the divisor is 0: engines are killed by that, also in a branch that a Where
 * does not take. */
static const char *tci_ox_divide_out(tci_ox_out_graph *g, tc_dtype d, const char *const *x)
{
    tci_ow *w = &g->w;
    const char *zero = tci_ox_float(g, d, 0), *none = TCI_OW(w, "Equal", x[1], zero);
    const char *safe = TCI_OW(w, "Where", none, tci_ox_float(g, d, 1), x[1]);
    return TCI_OW(w, "Where", none, zero, TCI_OW(w, "Div", x[0], safe));
}

/* The sign bit, also of -0 and NaN. */
static const char *tci_ox_minus_out(tci_ox_out_graph *g, tc_dtype d, const char *x)
{
    if (tci_ox_is_float(d)) {
        tc_dtype whole = d == TC_F64 ? TC_I64 : d == TC_F32 ? TC_I32 : TC_I16;
        const tci_ow_attr to = TCI_OW_INT("to", tci_onnx_type_of(whole));
        g->opset = TCI_OX_OPSET_BITCAST;
        x = tci_ow_op(&g->w, "BitCast", 1, &x, 1, &to);
        d = whole;
    }
    return d < TC_I8 ? TCI_OW(&g->w, "Not", TCI_OW(&g->w, "Equal", x, x))
                     : TCI_OW(&g->w, "Less", x, tci_ox_float(g, d, 0));
}

TCI_FN const char *tci_ox_word(tci_ox_out_graph *g, tc_dtype d, int word, const char *const *x)
{
    tci_ow *w = &g->w;
    bool is_bool = d == TC_BOOL, floats = tci_ox_is_float(d);
    switch (word) {
    case TCI_P_ADD: return TCI_OW(w, is_bool ? "Or" : "Add", x[0], x[1]);
    case TCI_P_SUB: return TCI_OW(w, is_bool ? "Xor" : "Sub", x[0], x[1]);
    case TCI_P_MUL: return TCI_OW(w, is_bool ? "And" : "Mul", x[0], x[1]);
    case TCI_P_DIV: return floats ? TCI_OW(w, "Div", x[0], x[1]) : tci_ox_divide_out(g, d, x);
    case TCI_P_FMA: return TCI_OW(w, "Add", TCI_OW(w, "Mul", x[0], x[1]), x[2]);
    case TCI_P_NEG: return TCI_OW(w, "Neg", x[0]);
    case TCI_P_ABS: return TCI_OW(w, "Abs", x[0]);
    case TCI_P_SQRT: return TCI_OW(w, "Sqrt", x[0]);
    case TCI_P_FLOOR: return floats ? TCI_OW(w, "Floor", x[0]) : x[0];
    case TCI_P_CEIL: return floats ? TCI_OW(w, "Ceil", x[0]) : x[0];
    case TCI_P_RINT: return floats ? TCI_OW(w, "Round", x[0]) : x[0];
    case TCI_P_TRUNC: {
        const char *down = TCI_OW(w, "Floor", TCI_OW(w, "Abs", x[0]));
        return floats ? TCI_OW(w, "Mul", TCI_OW(w, "Sign", x[0]), down) : x[0];
    }
    case TCI_P_EQ: return TCI_OW(w, "Equal", x[0], x[1]);
    case TCI_P_LT: return tci_ox_ordered_out(g, "Less", d, x);
    case TCI_P_LE: return tci_ox_ordered_out(g, "LessOrEqual", d, x);
    case TCI_P_AND: return TCI_OW(w, is_bool ? "And" : "BitwiseAnd", x[0], x[1]);
    case TCI_P_OR: return TCI_OW(w, is_bool ? "Or" : "BitwiseOr", x[0], x[1]);
    case TCI_P_XOR: return TCI_OW(w, is_bool ? "Xor" : "BitwiseXor", x[0], x[1]);
    case TCI_P_NOT: return TCI_OW(w, is_bool ? "Not" : "BitwiseNot", x[0]);
    case TCI_P_SELECT: return tci_ox_where_out(g, d, x);
    case TCI_P_EXP: return TCI_OW(w, "Exp", x[0]);
    case TCI_P_LOG: return TCI_OW(w, "Log", x[0]);
    case TCI_P_SIN: return TCI_OW(w, "Sin", x[0]);
    case TCI_P_COS: return TCI_OW(w, "Cos", x[0]);
    case TCI_P_TAN: return TCI_OW(w, "Tan", x[0]);
    case TCI_P_TANH: return TCI_OW(w, "Tanh", x[0]);
    case TCI_P_SINH: return TCI_OW(w, "Sinh", x[0]);
    case TCI_P_COSH: return TCI_OW(w, "Cosh", x[0]);
    case TCI_P_ERF: return TCI_OW(w, "Erf", x[0]);
    case TCI_P_SIGMOID: return TCI_OW(w, "Sigmoid", x[0]);
    case TCI_P_GELU: return TCI_OW(w, "Gelu", x[0]);
    case TCI_P_POW: return floats ? TCI_OW(w, "Pow", x[0], x[1]) : tci_ox_powi_out(g, d, x);
    case TCI_P_EXP2: return TCI_OW(w, "Pow", tci_ox_float(g, d, 2), x[0]);
    case TCI_P_EXPM1: { /* (e^x + 1) tanh(x / 2), exact to some units where x is small */
        const char *one = tci_ox_float(g, d, 1), *half = tci_ox_float(g, d, 0.5);
        return TCI_OW(w, "Mul", TCI_OW(w, "Add", TCI_OW(w, "Exp", x[0]), one),
                      TCI_OW(w, "Tanh", TCI_OW(w, "Mul", x[0], half)));
    }
    case TCI_P_LOG1P: { /* 2 atanh(x / (x + 2)) where x is small */
        const char *one = tci_ox_float(g, d, 1), *two = tci_ox_float(g, d, 2);
        const char *small = TCI_OW(w, "Less", TCI_OW(w, "Abs", x[0]), tci_ox_float(g, d, 0.5));
        const char *ratio = TCI_OW(w, "Div", x[0], TCI_OW(w, "Add", x[0], two));
        return TCI_OW(w, "Where", small, TCI_OW(w, "Mul", TCI_OW(w, "Atanh", ratio), two),
                      TCI_OW(w, "Log", TCI_OW(w, "Add", x[0], one)));
    }
    case TCI_P_SHL:
    case TCI_P_SHR: return tci_ox_shift_out(g, d, word == TCI_P_SHL, x);
    case TCI_P_LOG2:
        return TCI_OW(w, "Mul", TCI_OW(w, "Log", x[0]), tci_ox_float(g, d, 1.4426950408889634));
    case TCI_P_LOG10:
        return TCI_OW(w, "Mul", TCI_OW(w, "Log", x[0]), tci_ox_float(g, d, 0.4342944819032518));
    case TCI_W_MAX:
    case TCI_W_MIN: {
        bool most = word == TCI_W_MAX;
        return is_bool ? TCI_OW(w, most ? "Or" : "And", x[0], x[1])
                       : TCI_OW(w, "Where", TCI_OW(w, most ? "Greater" : "Less", x[0], x[1]), x[0],
                                x[1]);
    }
    case TCI_W_MINUS: return tci_ox_minus_out(g, d, x[0]);
    case TCI_P_LOG_LOW: /* corrections below an engine's own error */
    case TCI_P_LOG2_LOW: return tci_ox_float(g, d, 0);
    case TCI_P_GCD: return tci_ox_gcd_out(g, d, x);
    case TCI_P_MULHI: return tci_ox_mulhi_out(g, d, x);
    default: {
        bool is_math = floats && word < TCI_P_COUNT && tci_prim_is_math((tci_prim)word);
        return is_math ? tci_ox_recipe_out(g, d, word, x) : NULL;
    }
    }
}
/* ---- src/onnx/export_loop.c ---- */
/* onnx/export_loop.c - exports loops (REPEAT nodes) as ONNX Loop.
 *
 * In: a REPEAT node and the names of its outer operands. Out: one Loop whose body reads the inputs
 * at the iteration number, and loop invariants by their outer names. Elements of outputs, and the
 * rows of carries, are scan outputs, in the order of the iterations. */

/* The scan outputs of a reversed loop, last step first. */
static const char *tci_ox_in_order(tci_ox_out_graph *g, const tci_repeat *r, const char *x)
{
    const int64_t start = INT64_MAX, end = INT64_MIN, axis = 0, step = -1;
    return r->reverse ? TCI_OW(&g->w, "Slice", x, tci_ow_ints(&g->w, 1, &start),
                               tci_ow_ints(&g->w, 1, &end), tci_ow_ints(&g->w, 1, &axis),
                               tci_ow_ints(&g->w, 1, &step))
                      : x;
}

/* The rows of a carry: what it was at the start, and after each step. */
static const char *tci_ox_stacked(tci_ox_out_graph *g, const tci_repeat *r, const char *init,
                                  const char *steps)
{
    const int64_t zero = 0;
    const tci_ow_attr axis = TCI_OW_INT("axis", 0);
    const char *first = TCI_OW(&g->w, "Unsqueeze", init, tci_ow_ints(&g->w, 1, &zero));
    const char *both[] = {r->reverse ? tci_ox_in_order(g, r, steps) : first,
                          r->reverse ? first : steps};
    return tci_ow_op(&g->w, "Concat", 2, both, 1, &axis);
}

/* Writes the body; `graph` is then its GraphProto. in: names of operands outside. outputs: how many
 * results it has. */
static void tci_ox_loop_body(tci_ox_out_graph *g, const tci_repeat *r, const char *const *in,
                             int outputs, tci_str *graph)
{
    tci_ox_walk *walk = g->walk;
    tci_ow *w = &g->w;
    tci_str outer = w->graph;
    tci_ox_left *left = walk->left;
    uint32_t n_left = walk->n_left;
    const char *step = tci_ow_name(w), *goes = tci_ow_name(w), *at = step;
    walk->left = NULL; /* a body is closed */
    walk->n_left = 0;
    w->graph = (tci_str){.s = walk->s};
    tci_ow_info(w, 11, step, TC_I64, 0, NULL);
    tci_ow_info(w, 11, goes, TC_BOOL, 0, NULL);
    for (int i = 0; i < r->n_carry; i++) {
        const char *name = tci_ow_name(w);
        tci_ow_info(w, 11, name, (tc_dtype)r->carry[i]->dtype, r->carry[i]->rank,
                    r->carry[i]->shape);
        tci_ox_set_name(walk, r->carry[i], name);
    }
    if (r->reverse) {
        int64_t last = tci_dim_known(r->length) - 1;
        at = TCI_OW(w, "Sub", tci_ow_tensor(w, NULL, TC_I64, 0, NULL, &last), step);
    }
    for (int i = 0; i < r->n_x; i++) {
        tci_ox_set_name(walk, r->x[i], TCI_OW(w, "Gather", in[r->n_carry + i], at));
    }
    for (int i = 0; i < r->n_held; i++) {
        tci_ox_set_name(walk, r->inner[i], in[r->n_carry + r->n_x + i]);
    }
    const char *next = r->stops >= 0 ? tci_ox_walk_to(walk, r->next[r->stops]) : goes;
    const char *name = TCI_OW(w, "Identity", next);
    tci_ow_info(w, 12, name, TC_BOOL, 0, NULL);
    for (int i = 0; i < outputs; i++) { /* carries, outputs, rows */
        const tci_node *y = i < r->n_carry            ? r->next[i]
                            : i < r->n_carry + r->n_y ? r->y[i - r->n_carry]
                                                      : r->next[i - r->n_carry - r->n_y];
        const char *from = tci_ox_walk_to(walk, (tci_node *)(uintptr_t)y);
        name = TCI_OW(w, "Identity", from);
        tci_ow_info(w, 12, name, (tc_dtype)y->dtype, y->rank, y->shape);
    }
    tci_ow_text(&w->graph, 2, "body");
    *graph = w->graph;
    w->graph = outer;
    walk->left = left;
    walk->n_left = n_left;
}

TCI_FN const char *tci_ox_repeat_out(tci_ox_out_graph *g, tci_node *n, const char *const *in)
{
    const tci_repeat r = tci_repeat_of(n);
    tci_scratch *s = g->walk->s;
    int n_rows = tci_ox_rows_are_read(g->walk, n) ? r.n_carry : 0, k = 0;
    int outputs = r.n_carry + r.n_y + n_rows;
    const char yes = 1, **with = TCI_NEW_ARRAY(s, const char *, r.n_carry + 2);
    tci_str graph;
    if (!tci_dim_is_known(r.length)) {
        tci_ox_refuse(g->walk, n, "a symbolic number of steps");
    }
    int64_t length = tci_dim_known(r.length);
    with[k++] = tci_ow_tensor(&g->w, NULL, TC_I64, 0, NULL, &length);
    with[k++] = r.stops >= 0 ? in[r.stops] : tci_ow_tensor(&g->w, NULL, TC_BOOL, 0, NULL, &yes);
    for (int i = 0; i < r.n_carry; i++) {
        with[k++] = in[i];
    }
    tci_ox_loop_body(g, &r, in, outputs, &graph);
    const tci_ow_attr body = TCI_OW_GRAPH("body", &graph);
    tci_ox_left_loop loop = {n, TCI_NEW_ARRAY(s, const char *, tci_repeat_n_results(&r) + 1)};
    for (int i = 0; i < outputs; i++) {
        loop.results[i] = tci_ow_name(&g->w);
    }
    tci_ow_node(&g->w, "Loop", k, with, outputs, loop.results, 1, &body);
    for (int i = 0; i < r.n_y; i++) {
        const char **y = &loop.results[r.n_carry + i];
        *y = tci_ox_in_order(g, &r, *y);
    }
    for (int i = 0; i < n_rows; i++) {
        const char **rows = &loop.results[r.n_carry + r.n_y + i];
        *rows = tci_ox_stacked(g, &r, in[i], *rows);
    }
    TCI_PUSH(s, g->loops, g->n_loops, g->cap_loops, loop);
    return ""; /* a loop has no value of its own */
}

TCI_FN const char *tci_ox_result_out(tci_ox_out_graph *g, const tci_node *n)
{
    for (int i = g->n_loops - 1; i >= 0; i--) {
        if (g->loops[i].repeat == n->in[0]) {
            return g->loops[i].results[n->attr[0]];
        }
    }
    return NULL;
}
/* ---- src/onnx/export_direct_ops.c ---- */
/* onnx/export_direct_ops.c - exports NAMED nodes: high-level ops that map one-to-one to an ONNX
 * operator.
 *
 * In: a NAMED node (onnx/export_direct_ops.h). Out: the operator that the table gives for the
 * call, over the operands that are tensors; numbers become attributes. Only f32, which all engines
 * have. */
/* ---- src/onnx/export_direct_ops.h ---- */
/* onnx/export_direct_ops.h - declares the export of high-level ops that map one-to-one to an ONNX
 * operator (convolution, normalization, attention), kept in the graph as NAMED nodes.
 *
 * Operands of a NAMED node after the result, and its integer attributes after the call id:
 *   built rows        operands of the row; none
 *   CONV              x, weight, bias?; groups, then stride, dilation, padding before and after of
 *                     each axis of an image
 *   BATCH_NORM        x, weight?, bias?, mean, var, eps; has weight, has bias
 *   GROUP_NORM        x, weight?, bias?, eps; has weight, has bias, groups
 *   INSTANCE_NORM     as GROUP_NORM
 *   RMS_NORM          x, weight, eps; how many of the last axes
 *   ATTENTION         query, key, value, mask?, scale; is causal, has mask. A scale of 0 is
 *                     1 / sqrt(width) */
#ifndef TCI_ONNX_EXPORT_DIRECT_OPS_H
#define TCI_ONNX_EXPORT_DIRECT_OPS_H


/* How many operands of n the operator reads, from n->in[1] on; 0: n leaves as n->in[0], as the
 * operator is newer than `opset`, or asks for other shapes or dtypes. */
TCI_FN int tci_ox_named_operands(const tci_node *n, int opset);
/* The operator, over the names of those operands. */
TCI_FN const char *tci_ox_named_out(tci_ox_out_graph *g, const tci_node *n, const char *const *in);

#endif

/* ---- src/onnx/export_direct_ops.c, continued ---- */
#include <string.h>

/* ---- operands ---- */

static const tci_node *tci_ox_named_operand(const tci_node *n, int i)
{
    return n->in[1 + i];
}

static bool tci_ox_is_number(const tci_node *x)
{
    return x->op == TCI_OP_CONST || x->op == TCI_OP_LITERAL;
}

/* The last operand of a call of api/: eps, or a scale. */
static double tci_ox_last_number(const tci_node *n)
{
    return n->in[n->n_in - 1]->value.f;
}

static bool tci_ox_is_shape_of(const tci_node *a, const tci_node *b)
{
    return tci_build_same_shape(a->rank, a->shape, b->rank, b->shape);
}

/* True if p is one element for each channel of x, as many as are known. */
static bool tci_ox_is_of_channels(const tci_node *p, const tci_node *x)
{
    return p->rank == 1 && p->shape[0] == x->shape[1] && tci_dim_is_known(p->shape[0]);
}

/* ---- calls that fit ---- */

static bool tci_ox_fits_activation(const tci_node *n)
{
    bool fits = tci_ox_is_shape_of(n, tci_ox_named_operand(n, 0));
    for (int i = 2; i < n->n_in; i++) {
        fits = fits && tci_ox_is_number(n->in[i]);
    }
    return fits;
}

static bool tci_ox_fits_softplus(const tci_node *n)
{
    return tci_ox_fits_activation(n) && tci_ox_named_operand(n, 1)->value.f == 1 &&
           tci_ox_named_operand(n, 2)->value.f >= 17; /* beyond, log(1 + exp(x)) is x */
}

/* Bounds in order: Clip leaves the others open. */
static bool tci_ox_fits_clip(const tci_node *n)
{
    return tci_ox_fits_activation(n) &&
           tci_ox_named_operand(n, 1)->value.f <= tci_ox_named_operand(n, 2)->value.f;
}

static bool tci_ox_fits_conv(const tci_node *n)
{
    return tci_build_is_known(n->rank - 2, tci_ox_named_operand(n, 1)->shape + 2);
}

static bool tci_ox_fits_norm(const tci_node *n)
{
    const tci_node *x = tci_ox_named_operand(n, 0);
    bool fits = x->rank >= 2 && tci_ox_is_shape_of(n, x) && tci_dim_is_known(x->shape[1]);
    for (int i = 1; i < n->n_in - 2 && fits; i++) {
        fits = tci_ox_is_of_channels(tci_ox_named_operand(n, i), x);
    }
    return fits;
}

static bool tci_ox_fits_rms_norm(const tci_node *n)
{
    const tci_node *x = tci_ox_named_operand(n, 0), *w = tci_ox_named_operand(n, 1);
    int axes = (int)n->attr[1];
    return tci_ox_is_shape_of(n, x) &&
           tci_build_same_shape(w->rank, w->shape, axes, x->shape + (x->rank - axes));
}

/* True if the mask has all rows and columns of the scores. */
static bool tci_ox_is_whole_mask(const tci_node *n)
{
    const tci_node *q = tci_ox_named_operand(n, 0), *k = tci_ox_named_operand(n, 1);
    const tci_node *m = tci_ox_named_operand(n, 3);
    return m->rank >= 2 && m->shape[m->rank - 2] == q->shape[q->rank - 2] &&
           m->shape[m->rank - 1] == k->shape[k->rank - 2];
}

/* Four axes, [batch, heads, rows, width], or five, whose key and value have one head for the group
 * of heads that the third axis has. */
static bool tci_ox_fits_attention(const tci_node *n)
{
    const tci_node *q = tci_ox_named_operand(n, 0), *k = tci_ox_named_operand(n, 1);
    const tci_node *v = tci_ox_named_operand(n, 2);
    bool grouped = q->rank == 5, fits = q->rank == 4 || (grouped && !n->attr[2] && tci_is_known(q));
    fits = fits && k->rank == q->rank && v->rank == q->rank &&
           tci_dim_is_known(q->shape[q->rank - 1]);
    for (int i = 0; i < q->rank - 2 && fits; i++) {
        bool one = grouped && i == 2;
        fits = (one ? k->shape[i] == 1 : k->shape[i] == q->shape[i]) && v->shape[i] == k->shape[i];
    }
    bool known = tci_dim_is_known(q->shape[q->rank - 2]) && tci_dim_is_known(k->shape[k->rank - 2]);
    return fits && (!grouped || (tci_is_known(k) && tci_is_known(v))) &&
           (!n->attr[2] || known || tci_ox_is_whole_mask(n));
}

/* ---- operators ---- */

static const char *tci_ox_activation_as(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                        const char *const *in)
{
    const tci_ow_attr alpha = TCI_OW_FLOAT("alpha", n->n_in > 2 ? n->in[2]->value.f : 0);
    return tci_ow_op(&g->w, op, 1, in, n->n_in > 2, &alpha);
}

static const char *tci_ox_plain_as(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                   const char *const *in)
{
    (void)n;
    return tci_ow_op(&g->w, op, 1, in, 0, NULL);
}

static const char *tci_ox_hardsigmoid_as(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                         const char *const *in)
{
    const tci_ow_attr attrs[] = {TCI_OW_FLOAT("alpha", 1.0 / 6), TCI_OW_FLOAT("beta", 0.5)};
    (void)n;
    return tci_ow_op(&g->w, op, 1, in, 2, attrs);
}

static const char *tci_ox_gelu_tanh_as(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                       const char *const *in)
{
    const tci_ow_attr tanh = TCI_OW_TEXT("approximate", "tanh");
    (void)n;
    return tci_ow_op(&g->w, op, 1, in, 1, &tanh);
}

static const char *tci_ox_clip_as(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                  const char *const *in)
{
    bool six = n->attr[0] == TCI_NAMED_RELU6;
    return TCI_OW(&g->w, op, in[0], tci_ox_float(g, TC_F32, six ? 0 : n->in[2]->value.f),
                  tci_ox_float(g, TC_F32, six ? 6 : n->in[3]->value.f));
}

static const char *tci_ox_conv_as(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                  const char *const *in)
{
    static const char *const names[] = {"strides", "dilations", "pads", "kernel_shape"};
    const int axes = n->rank - 2;
    const int64_t *words = n->attr + 1;
    tci_ow_attr attrs[5] = {TCI_OW_INT("group", words[0])};
    for (int k = 0; k < 4; k++) {
        int64_t *list = TCI_NEW_ARRAY(g->walk->s, int64_t, 2 * axes);
        for (int i = 0; i < axes; i++) {
            list[i] = k < 3 ? words[1 + 4 * i + k]
                            : tci_dim_known(tci_ox_named_operand(n, 1)->shape[2 + i]);
            list[axes + i] = words[1 + 4 * i + 3];
        }
        attrs[1 + k] = (tci_ow_attr)TCI_OW_INTS(names[k], k == 2 ? 2 * axes : axes, list);
    }
    return tci_ow_op(&g->w, op, n->n_in - 1, in, 5, attrs);
}

/* The next of the operands, where the call has it, else as many elements of that value. */
static const char *tci_ox_channels_or(tci_ox_out_graph *g, const tci_node *n, bool has, float value,
                                      const char *const **in)
{
    const int64_t count = tci_dim_known(tci_ox_named_operand(n, 0)->shape[1]);
    if (has) {
        return *(*in)++;
    }
    float *all = TCI_NEW_ARRAY(g->walk->s, float, count + 1);
    for (int64_t i = 0; i < count; i++) {
        all[i] = value;
    }
    return tci_ow_tensor(&g->w, NULL, TC_F32, 1, &count, all);
}

/* Batch, group and instance norm. */
static const char *tci_ox_norm_as(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                  const char *const *in)
{
    const char *with[5] = {*in++};
    with[1] = tci_ox_channels_or(g, n, n->attr[1], 1, &in);
    with[2] = tci_ox_channels_or(g, n, n->attr[2], 0, &in);
    tci_ow_attr attrs[2] = {TCI_OW_FLOAT("epsilon", tci_ox_last_number(n))};
    int n_in = 3, n_attrs = 1;
    if (n->attr[0] == TCI_NAMED_BATCH_NORM) {
        with[n_in++] = in[0];
        with[n_in++] = in[1];
    } else if (n->attr[0] == TCI_NAMED_GROUP_NORM) {
        attrs[n_attrs++] = (tci_ow_attr)TCI_OW_INT("num_groups", n->attr[3]);
    }
    return tci_ow_op(&g->w, op, n_in, with, n_attrs, attrs);
}

static const char *tci_ox_rms_norm_as(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                      const char *const *in)
{
    const tci_ow_attr attrs[] = {TCI_OW_INT("axis", -n->attr[1]),
                                 TCI_OW_FLOAT("epsilon", tci_ox_last_number(n))};
    return tci_ow_op(&g->w, op, 2, in, 2, attrs);
}

/* Of five axes the second and third as one. */
static const char *tci_ox_four_axes(tci_ox_out_graph *g, const tci_node *x, const char *name)
{
    const int64_t *s = tci_dim_words(x->shape);
    if (x->rank == 4) {
        return name;
    }
    const int64_t four[] = {s[0], s[1] * s[2], s[3], s[4]};
    return TCI_OW(&g->w, "Reshape", name, tci_ow_ints(&g->w, 4, four));
}

/* onnxruntime asks for a mask with all rows and columns of the scores. */
static const char *tci_ox_whole_mask(tci_ox_out_graph *g, const tci_node *n, const char *mask)
{
    const tci_node *q = tci_ox_named_operand(n, 0), *k = tci_ox_named_operand(n, 1);
    if (tci_ox_is_whole_mask(n)) {
        return mask;
    }
    const int64_t sizes[] = {tci_dim_known(q->shape[q->rank - 2]),
                             tci_dim_known(k->shape[k->rank - 2])};
    return TCI_OW(&g->w, "Expand", mask, tci_ow_ints(&g->w, 2, sizes));
}

static const char *tci_ox_attention_as(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                       const char *const *in)
{
    const double scale = tci_ox_last_number(n);
    const tci_ow_attr attrs[] = {TCI_OW_INT("is_causal", n->attr[1]), TCI_OW_FLOAT("scale", scale)};
    const char *with[4] = {NULL, NULL, NULL, n->attr[2] ? tci_ox_whole_mask(g, n, in[3]) : NULL};
    for (int i = 0; i < 3; i++) {
        with[i] = tci_ox_four_axes(g, tci_ox_named_operand(n, i), in[i]);
    }
    const char *y = tci_ow_op(&g->w, op, n->attr[2] ? 4 : 3, with, scale == 0 ? 1 : 2, attrs);
    return n->rank == 4
               ? y
               : TCI_OW(&g->w, "Reshape", y, tci_ow_ints(&g->w, n->rank, tci_dim_words(n->shape)));
}

/* ---- the table ---- */

/* X(call, operator, first opset, operands that are inputs of it (ALL: and the last one is, TENSORS:
 * all but the last, a number), test, writer) */
#define TCI_OX_NAMED_ROWS(X)                                                                       \
    X(LEAKY_RELU, "LeakyRelu", 16, 1, fits_activation, activation_as)                              \
    X(ELU, "Elu", 6, 1, fits_activation, activation_as)                                            \
    X(CELU, "Celu", 12, 1, fits_activation, activation_as)                                         \
    X(SELU, "Selu", 6, 1, fits_activation, plain_as)                                               \
    X(MISH, "Mish", 18, 1, fits_activation, plain_as)                                              \
    X(SOFTPLUS, "Softplus", 1, 1, fits_softplus, plain_as)                                         \
    X(HARDTANH, "Clip", 13, 1, fits_clip, clip_as)                                                 \
    X(RELU6, "Clip", 13, 1, fits_activation, clip_as)                                              \
    X(HARDSIGMOID, "HardSigmoid", 6, 1, fits_activation, hardsigmoid_as)                           \
    X(HARDSWISH, "HardSwish", 14, 1, fits_activation, plain_as)                                    \
    X(GELU_TANH, "Gelu", 20, 1, fits_activation, gelu_tanh_as)                                     \
    X(CONV, "Conv", 11, ALL, fits_conv, conv_as)                                                   \
    X(BATCH_NORM, "BatchNormalization", 15, TENSORS, fits_norm, norm_as)                           \
    X(GROUP_NORM, "GroupNormalization", 21, TENSORS, fits_norm, norm_as)                           \
    X(INSTANCE_NORM, "InstanceNormalization", 6, TENSORS, fits_norm, norm_as)                      \
    X(RMS_NORM, "RMSNormalization", 23, TENSORS, fits_rms_norm, rms_norm_as)                       \
    X(ATTENTION, "Attention", 23, TENSORS, fits_attention, attention_as)

typedef struct tci_ox_named_row {
    const char *op;
    int opset, operands;
    bool (*fits)(const tci_node *n);
    const char *(*out)(tci_ox_out_graph *g, const char *op, const tci_node *n,
                       const char *const *in);
} tci_ox_named_row;

enum { TCI_OX_NAMED_ALL = -1, TCI_OX_NAMED_TENSORS = -2 };

static const tci_ox_named_row *tci_ox_named_row_of(const tci_node *n)
{
    enum { ALL = TCI_OX_NAMED_ALL, TENSORS = TCI_OX_NAMED_TENSORS };
    static const tci_ox_named_row rows[TCI_NAMED_COUNT] = {
#define TCI_ROW(id, op, opset, operands, fits, out)                                                \
    [TCI_NAMED_##id] = {op, opset, operands, tci_ox_##fits, tci_ox_##out},
        TCI_OX_NAMED_ROWS(TCI_ROW)
#undef TCI_ROW
    };
    return &rows[n->attr[0]];
}

TCI_FN int tci_ox_named_operands(const tci_node *n, int opset)
{
    const tci_ox_named_row *row = tci_ox_named_row_of(n);
    int operands = row->operands < 0 ? n->n_in + row->operands : row->operands;
    bool fits = row->op && row->opset <= opset && n->dtype == TC_F32;
    for (int i = 0; i < operands && fits; i++) {
        tc_dtype t = (tc_dtype)tci_ox_named_operand(n, i)->dtype;
        fits = t == TC_F32 || (t == TC_BOOL && i == 3);
    }
    return fits && row->fits(n) ? operands : 0;
}

TCI_FN const char *tci_ox_named_out(tci_ox_out_graph *g, const tci_node *n, const char *const *in)
{
    const tci_ox_named_row *row = tci_ox_named_row_of(n);
    g->opset = TCI_MAX(g->opset, row->opset);
    return row->out(g, row->op, n, in);
}
/* ---- src/onnx/export_contract.c ---- */
/* onnx/export_contract.c - exports contractions as ONNX Conv, MatMul or Einsum.
 *
 * In: a CONTRACT. Out: Conv where it is a convolution (onnx/find_conv.h); else MatMul, whose
 * operands are transposed and reshaped to [batch, m, k] and [batch, k, n] where they are not so;
 * else Einsum, namely if an axis of only one operand is summed, if no axis is summed, or if axes of
 * symbolic size would have to be merged. */

#include <stdio.h>
#include <string.h>

/* Axes of operands and result by their group, in the order that MatMul asks for. */
typedef struct tci_ox_gemm {
    const tci_contraction *c;
    int first;                          /* operand of the axes M */
    const tci_contract_axis_of **of[4]; /* batch, M, N, K */
    int count[4];
} tci_ox_gemm;

enum { TCI_OX_BATCH, TCI_OX_M, TCI_OX_N, TCI_OX_K };

/* The operand whose own axes come first in the result is first. */
static bool tci_ox_find_gemm(tci_scratch *s, const tci_node *n, tci_ox_gemm *m)
{
    *m = (tci_ox_gemm){.c = tci_contraction_of(s, n), .first = -1};
    for (int g = 0; g < 4; g++) {
        m->of[g] = TCI_NEW_ARRAY(s, const tci_contract_axis_of *, m->c->n_axes + 1);
    }
    for (int i = 0; i < m->c->n_axes; i++) { /* the result's axes, in order, then summed ones */
        const tci_contract_axis_of *a = &m->c->axes[i];
        bool own = a->group == TCI_AXES_M || a->group == TCI_AXES_N;
        if (a->group == TCI_AXES_ALONE) {
            return false;
        }
        m->first = own && m->first < 0 ? a->group == TCI_AXES_N : m->first;
        int to = a->group == TCI_AXES_BATCH             ? TCI_OX_BATCH
                 : a->group == TCI_AXES_K               ? TCI_OX_K
                 : (a->group == TCI_AXES_N) == m->first ? TCI_OX_M
                                                        : TCI_OX_N;
        m->of[to][m->count[to]++] = a;
    }
    m->first = m->first < 0 ? 0 : m->first;
    return m->count[TCI_OX_K] > 0;
}

static tci_dim tci_ox_merged(const tci_ox_gemm *m, int group)
{
    tci_dim size = 1;
    for (int i = 0; i < m->count[group]; i++) {
        size = tci_dim_mul(size, m->of[group][i]->size);
    }
    return size;
}

/* Axes one after the other, and their sizes where those of a group become one. */
typedef struct tci_ox_gemm_axes {
    int64_t *axes;
    tci_dim *sizes;
    int n, n_sizes;
    bool merges;
} tci_ox_gemm_axes;

static void tci_ox_add_axes(tci_ox_gemm_axes *to, const tci_ox_gemm *m, int group, int which,
                            bool one)
{
    for (int i = 0; i < m->count[group]; i++) {
        to->axes[to->n++] = m->of[group][i]->at[which];
        if (!one) {
            to->sizes[to->n_sizes++] = m->of[group][i]->size;
        }
    }
    if (one) {
        to->sizes[to->n_sizes++] = tci_ox_merged(m, group);
        to->merges = to->merges || m->count[group] != 1;
    }
}

/* Operand `which` as [batch, m, k] or [batch, k, n]; without axes of a batch those of M stay. */
static tci_ox_gemm_axes tci_ox_operand_axes(tci_scratch *s, const tci_ox_gemm *m, int which)
{
    tci_ox_gemm_axes a = {TCI_NEW_ARRAY(s, int64_t, m->c->n_axes + 1),
                          TCI_NEW_ARRAY(s, tci_dim, m->c->n_axes + 3), 0, 0, false};
    bool first = which == m->first, batch = m->count[TCI_OX_BATCH] > 0;
    tci_ox_add_axes(&a, m, TCI_OX_BATCH, which, false);
    tci_ox_add_axes(&a, m, first ? TCI_OX_M : TCI_OX_K, which, !first || batch);
    tci_ox_add_axes(&a, m, first ? TCI_OX_K : TCI_OX_N, which, true);
    return a;
}

static bool tci_ox_gemm_merges(tci_scratch *s, const tci_ox_gemm *m)
{
    return tci_ox_operand_axes(s, m, 0).merges || tci_ox_operand_axes(s, m, 1).merges;
}

static const char *tci_ox_gemm_out(tci_ox_out_graph *g, const tci_ox_gemm *m, const tci_node *n,
                                   const char *const *in)
{
    tci_scratch *s = g->walk->s;
    const char *with[2];
    tci_ox_gemm_axes y = {TCI_NEW_ARRAY(s, int64_t, n->rank + 1),
                          TCI_NEW_ARRAY(s, tci_dim, n->rank + 3), 0, 0, false};
    for (int i = 0; i < 2; i++) {
        int which = i ? !m->first : m->first;
        const tci_ox_gemm_axes a = tci_ox_operand_axes(s, m, which);
        with[i] = tci_ox_transposed(g, a.n, a.axes, in[which]);
        with[i] = a.merges ? TCI_OW(&g->w, "Reshape", with[i],
                                    tci_ow_ints(&g->w, a.n_sizes, tci_dim_words(a.sizes)))
                           : with[i];
    }
    const char *r = tci_ow_op(&g->w, "MatMul", 2, with, 0, NULL);
    for (int group = TCI_OX_BATCH; group <= TCI_OX_N; group++) {
        bool one = group == TCI_OX_N || (group == TCI_OX_M && m->count[TCI_OX_BATCH] > 0);
        y.merges = y.merges || (one && m->count[group] != 1);
        tci_ox_add_axes(&y, m, group, 2, false);
    }
    r = y.merges ? TCI_OW(&g->w, "Reshape", r, tci_ow_ints(&g->w, n->rank, tci_dim_words(y.sizes)))
                 : r;
    int64_t *back = TCI_NEW_ARRAY(s, int64_t, n->rank + 1);
    for (int i = 0; i < n->rank; i++) {
        back[y.axes[i]] = i;
    }
    return tci_ox_transposed(g, n->rank, back, r);
}

static const char *tci_ox_einsum_out(tci_ox_out_graph *g, const tci_node *n, const char *const *in)
{
    char text[512];
    int64_t count = n->attr[0] + n->attr[1] + n->attr[2];
    size_t at = 0;
    if (count > 400) {
        tci_ox_refuse(g->walk, n, "too many axes");
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t label = n->attr[3 + i];
        at += (size_t)snprintf(text + at, 4, "%s", i == n->attr[0] ? "," : "");
        at += (size_t)snprintf(text + at, 4, "%s", i == n->attr[0] + n->attr[1] ? "->" : "");
        if (label < 0 || label >= 52) {
            tci_ox_refuse(g->walk, n, "more than 52 axes");
        }
        text[at++] = (char)(label < 26 ? 'a' + label : 'A' + label - 26);
        text[at] = 0;
    }
    if (n->attr[1] == 0) {
        tci_ox_refuse(g->walk, n, "an operand of no axes");
    }
    strcat(text, n->rank == 0 ? "->" : "");
    const tci_ow_attr spec = TCI_OW_TEXT("equation", text);
    return tci_ow_op(&g->w, "Einsum", 2, in, 1, &spec);
}

TCI_FN const char *tci_ox_contract_out(tci_ox_out_graph *g, const tci_node *n,
                                       const char *const *operands)
{
    const char *in[] = {operands[0], operands[1]};
    tci_ox_conv conv;
    tci_ox_gemm gemm;
    if (tci_ox_find_conv(g->walk->s, n, &conv) && tci_ox_conv_fits(&conv)) {
        return tci_ox_conv_out(g, &conv, n, operands);
    }
    for (int i = 0; i < 2; i++) { /* sums of f16 and bf16 are f32 */
        in[i] = n->in[i]->dtype == n->dtype ? in[i] : tci_ox_to_dtype(g, in[i], (tc_dtype)n->dtype);
    }
    bool known = tci_is_known(n) && tci_is_known(n->in[0]) && tci_is_known(n->in[1]);
    if (tci_ox_find_gemm(g->walk->s, n, &gemm) &&
        (known || !tci_ox_gemm_merges(g->walk->s, &gemm))) {
        return tci_ox_gemm_out(g, &gemm, n, in);
    }
    return tci_ox_einsum_out(g, n, in);
}
/* ---- src/onnx/export_gather.c ---- */
/* onnx/export_gather.c - exports GATHER as Gather or GatherElements of ONNX.
 *
 * In: a GATHER, or the RESHAPE of one. Out: Gather, where one list of indices serves all places off
 * the axis (tc_index_select, rows of tc_embedding); else GatherElements, whose index has the shape
 * of the result. */

/* The axes of x, whose axis is replaced by those of the list: the shape of a Gather. */
static bool tci_ox_is_select_shape(const tci_ox_select *s, const tci_node *n)
{
    const int more = s->list->rank - 1;
    bool fits = n->rank == s->x->rank + more;
    for (int d = 0; d < n->rank && fits; d++) {
        fits = n->shape[d] == (d < s->axis           ? s->x->shape[d]
                               : d <= s->axis + more ? s->list->shape[d - s->axis]
                                                     : s->x->shape[d - more]);
    }
    return fits;
}

/* True if the index of a GATHER is the same for all places off its axis, which are all taken. */
static bool tci_ox_find_list(const tci_node *gather, tci_ox_select *s)
{
    tci_node *x = gather->in[0], *index = gather->in[1];
    const int axis = (int)gather->attr[0];
    index = index->op == TCI_OP_EXPAND && !tci_node_is_value(index) ? index->in[0] : index;
    bool one = true;
    for (int d = 0; d < gather->rank; d++) {
        one = one && (d == axis ? index->shape[d] == gather->shape[d]
                                : index->shape[d] == 1 && gather->shape[d] == x->shape[d]);
    }
    bool reshaped = index->op == TCI_OP_RESHAPE && !tci_node_is_value(index);
    *s = (tci_ox_select){.x = x, .list = reshaped ? index->in[0] : index, .axis = axis};
    return one;
}

TCI_FN bool tci_ox_find_select(const tci_node *n, tci_ox_select *s)
{
    bool reshaped = n->op == TCI_OP_RESHAPE && n->in[0]->op == TCI_OP_GATHER;
    const tci_node *gather = reshaped ? n->in[0] : n;
    return gather->op == TCI_OP_GATHER && !tci_node_is_value(gather) &&
           tci_ox_find_list(gather, s) && (!reshaped || tci_ox_is_select_shape(s, n));
}

/* An index as i64; Gather takes i32 too. */
static const char *tci_ox_index(tci_ox_out_graph *g, const tci_node *index, const char *name)
{
    bool fits = index->dtype == TC_I64 || index->dtype == TC_I32;
    return fits ? name : tci_ox_to_dtype(g, name, TC_I64);
}

TCI_FN const char *tci_ox_select_out(tci_ox_out_graph *g, const tci_ox_select *s, const tci_node *n,
                                     const char *const *in)
{
    static const int64_t line = -1;
    const tci_ow_attr axis = TCI_OW_INT("axis", s->axis);
    const char *with[] = {in[0], tci_ox_index(g, s->list, in[1])};
    if (!tci_ox_is_select_shape(s, n)) {
        with[1] = TCI_OW(&g->w, "Reshape", with[1], tci_ow_ints(&g->w, 1, &line));
    }
    return tci_ow_op(&g->w, "Gather", 2, with, 1, &axis);
}

TCI_FN const char *tci_ox_gather_out(tci_ox_out_graph *g, const tci_node *n, const char *const *in)
{
    const tci_ow_attr axis = TCI_OW_INT("axis", n->attr[0]);
    const char *with[] = {in[0], tci_ox_index(g, n->in[1], in[1])};
    return tci_ow_op(&g->w, "GatherElements", 2, with, 1, &axis);
}
/* ---- src/onnx/export.c ---- */
/* onnx/export.c - tc_export_onnx: writes a graph as an ONNX file (opset 21, IR 10).
 *
 * In: tensors, as tc_compile_fn takes them. Out: the file and, on request, a file of weights, each
 * written atomically.
 *
 * Design: every op is exported as one or a few nodes, as given by the table TCI_OX_WAY_..., which
 * covers every op. Composites with an ONNX operator of the same meaning become that operator,
 * others their expansion. Elementwise ops without an operator become the formula of their row. */

#include <math.h>
#include <string.h>

enum { TCI_OX_IR = 10 };

/* ---- constants ---- */

/* Floats to integers saturate in tc, and NaN gives 0; Cast of ONNX leaves that open. */
static const char *tci_ox_cast_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    tci_ow *w = &g->w;
    tc_dtype from = (tc_dtype)n->in[0]->dtype, to = (tc_dtype)n->dtype;
    bool is_signed = to >= TC_I8;
    if (!tci_ox_is_float(from) || tci_ox_is_float(to) || to == TC_BOOL) {
        return tci_ox_to_dtype(g, x, to);
    }
    int bits = 8 * tc_dtype_size(to) - is_signed;
    double above = ldexp(1, bits), least = is_signed ? -above : 0;
    x = from == TC_F64 ? x : tci_ox_to_dtype(g, x, TC_F32);
    from = from == TC_F64 ? from : TC_F32;
    x = TCI_OW(w, "Where", TCI_OW(w, "IsNaN", x), tci_ox_float(g, from, 0), x);
    if (bits <= 16) { /* the bounds are floats */
        return tci_ox_to_dtype(
            g, TCI_OW(w, "Clip", x, tci_ox_float(g, from, least), tci_ox_float(g, from, above - 1)),
            to);
    }
    uint64_t most = ~(uint64_t)0 >> (64 - bits);
    const char *is_high = TCI_OW(w, "GreaterOrEqual", x, tci_ox_float(g, from, above));
    const char *is_low = TCI_OW(w, "Less", x, tci_ox_float(g, from, least));
    const char *high = tci_ox_number(g, to, (tci_value){.u = most});
    const char *low = tci_ox_number(g, to, (tci_value){.u = is_signed ? ~most : 0});
    const char *y = TCI_OW(w, "Where", is_high, high, tci_ox_to_dtype(g, x, to));
    return TCI_OW(w, "Where", is_low, low, y);
}

/* Memory of the graph, as it is now. */
static const char *tci_ox_memory(tci_ox_out_graph *g, tci_node *n)
{
    int64_t bytes;
    const void *data = tci_ox_memory_of(g->walk, n, &bytes);
    return tci_ow_tensor(&g->w, tci_ox_parameter_name(g->walk, n), (tc_dtype)n->dtype, n->rank,
                         tci_dim_words(n->shape), data);
}

/* ---- sizes ---- */

/* A size in the program: the axis of an input that has it. i64, [1]. */
static const char *tci_ox_size_of(tci_ox_out_graph *g, const tci_node *n, tci_dim d)
{
    if (tci_dim_is_known(d)) {
        const int64_t v = tci_dim_known(d);
        return tci_ow_ints(&g->w, 1, &v);
    }
    const tci_ox_walk *all = g->walk;
    for (int i = 0; i < all->n_inputs; i++) {
        for (int a = 0; a < all->inputs[i]->rank; a++) {
            if (all->inputs[i]->shape[a] == d) {
                const char *x = tci_ox_named(all, all->inputs[i]);
                const tci_ow_attr part[] = {TCI_OW_INT("start", a), TCI_OW_INT("end", a + 1)};
                return tci_ow_op(&g->w, "Shape", 1, &x, 2, part);
            }
        }
    }
    tci_ox_refuse(g->walk, n, "a symbolic size that is not that of an input");
    return "";
}

/* A shape as an operand: numbers, or joined of numbers and sizes of inputs. */
static const char *tci_ox_shape_of(tci_ox_out_graph *g, const tci_node *n, int rank,
                                   const tci_dim *sizes)
{
    int symbols = 0;
    for (int i = 0; i < rank; i++) {
        symbols += !tci_dim_is_known(sizes[i]);
    }
    if (!symbols) {
        return tci_ow_ints(&g->w, rank, tci_dim_words(sizes));
    }
    const char **parts = TCI_NEW_ARRAY(g->walk->s, const char *, rank);
    const tci_ow_attr axis = TCI_OW_INT("axis", 0);
    for (int i = 0; i < rank; i++) {
        parts[i] = tci_ox_size_of(g, n, sizes[i]);
    }
    return tci_ow_op(&g->w, "Concat", rank, parts, 1, &axis);
}

/* ---- movement ---- */

static const char *tci_ox_reshape_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    int64_t *to = TCI_NEW_ARRAY(g->walk->s, int64_t, n->rank + 1);
    const tci_ow_attr zeros = TCI_OW_INT("allowzero", 1);
    int open = 0;
    for (int i = 0; i < n->rank; i++) { /* 0 keeps the size of x there, -1 follows */
        const tci_node *from = n->in[0];
        bool known = tci_dim_is_known(n->shape[i]);
        bool same = i < from->rank && from->shape[i] == n->shape[i];
        to[i] = known ? tci_dim_known(n->shape[i]) : same ? 0 : -1;
        open += to[i] == -1;
        open += known && to[i] == 0 ? 2 : 0; /* an empty axis would be taken for one that stays */
    }
    if (open > 1) {
        const char *in[] = {x, tci_ox_shape_of(g, n, n->rank, n->shape)};
        return tci_ow_op(&g->w, "Reshape", 2, in, 1, &zeros);
    }
    return TCI_OW(&g->w, "Reshape", x, tci_ow_ints(&g->w, n->rank, to));
}

static const char *tci_ox_expand_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    tci_dim *to = TCI_NEW_ARRAY(g->walk->s, tci_dim, n->rank + 1);
    for (int i = 0; i < n->rank; i++) { /* 1 leaves an axis as it is */
        to[i] = n->in[0]->shape[i] == n->shape[i] ? 1 : n->shape[i];
    }
    return TCI_OW(&g->w, "Expand", x, tci_ox_shape_of(g, n, n->rank, to));
}

static const char *tci_ox_slice_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    int64_t *words = TCI_NEW_ARRAY(g->walk->s, int64_t, 4 * n->rank + 1);
    int64_t *starts = words, *ends = words + n->rank, *axes = ends + n->rank;
    int64_t *steps = axes + n->rank;
    int k = 0;
    for (int i = 0; i < n->rank; i++) {
        int64_t start = n->attr[2 * i], step = n->attr[2 * i + 1];
        tci_dim size = n->shape[i], whole = n->in[0]->shape[i];
        if (start == 0 && step == 1 && size == whole) {
            continue;
        }
        bool to_end = step == 1 && tci_dim_add(start, size) == whole;
        bool flips = step == -1 && size == whole; /* of any size */
        if (!tci_dim_is_known(step) || (!flips && !tci_dim_is_known(start)) ||
            (!flips && !to_end && !tci_dim_is_known(size))) {
            tci_ox_refuse(g->walk, n, "symbolic bounds");
        }
        starts[k] = flips ? INT64_MAX : start;
        ends[k] = flips ? INT64_MIN : to_end ? INT64_MAX : start + tci_dim_known(size) * step;
        ends[k] = step < 0 && ends[k] < 0 ? INT64_MIN : ends[k];
        axes[k] = i;
        steps[k++] = step;
    }
    return TCI_OW(&g->w, "Slice", x, tci_ow_ints(&g->w, k, starts), tci_ow_ints(&g->w, k, ends),
                  tci_ow_ints(&g->w, k, axes), tci_ow_ints(&g->w, k, steps));
}

static const char *tci_ox_pad_out(tci_ox_out_graph *g, const tci_node *n, const char *x,
                                  const char *fill)
{
    int64_t *pads = TCI_NEW_ARRAY(g->walk->s, int64_t, 2 * n->rank + 1);
    for (int i = 0; i < n->rank; i++) {
        tci_dim after = tci_dim_sub(n->shape[i], tci_dim_add(n->in[0]->shape[i], n->attr[i]));
        if (!tci_dim_is_known(n->attr[i]) || !tci_dim_is_known(after)) {
            tci_ox_refuse(g->walk, n, "symbolic padding");
        }
        pads[i] = n->attr[i];
        pads[i + n->rank] = tci_dim_known(after);
    }
    return TCI_OW(&g->w, "Pad", x, tci_ow_ints(&g->w, 2 * n->rank, pads), fill);
}

/* Windows along an axis are a Gather of positions, whose second axis then moves to the end. */
static const char *tci_ox_window_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    int windows = n->n_attr / 4, rank = n->in[0]->rank;
    for (int i = 0; i < windows; i++, rank++) {
        const int64_t *a = n->attr + 4 * i;
        int64_t axis = a[0], k = a[1];
        if (!tci_dim_is_known(n->shape[axis])) {
            tci_ox_refuse(g->walk, n, "windows over a symbolic size");
        }
        int64_t steps = tci_dim_known(n->shape[axis]);
        int64_t *places = TCI_NEW_ARRAY(g->walk->s, int64_t, steps *k + 1);
        int64_t *order = TCI_NEW_ARRAY(g->walk->s, int64_t, rank + 1);
        for (int64_t j = 0; j < steps * k; j++) {
            places[j] = j / k * a[2] + j % k * a[3];
        }
        for (int d = 0; d <= rank; d++) {
            order[d] = d <= axis ? d : d < rank ? d + 1 : axis + 1;
        }
        const int64_t grid[] = {steps, k};
        const char *in[] = {x, tci_ow_tensor(&g->w, NULL, TC_I64, 2, grid, places)};
        const tci_ow_attr along = TCI_OW_INT("axis", axis);
        const tci_ow_attr perm = TCI_OW_INTS("perm", rank + 1, order);
        x = tci_ow_op(&g->w, "Gather", 2, in, 1, &along);
        x = tci_ow_op(&g->w, "Transpose", 1, &x, 1, &perm);
    }
    return x;
}

static const char *tci_ox_iota_out(tci_ox_out_graph *g, const tci_node *n)
{
    const int64_t zero = 0, one = 1;
    if (!tci_dim_is_known(n->shape[0])) {
        const char *end = TCI_OW(&g->w, "Squeeze", tci_ox_size_of(g, n, n->shape[0]));
        return TCI_OW(&g->w, "Range", tci_ow_tensor(&g->w, NULL, TC_I64, 0, NULL, &zero), end,
                      tci_ow_tensor(&g->w, NULL, TC_I64, 0, NULL, &one));
    }
    int64_t *list = TCI_NEW_ARRAY(g->walk->s, int64_t, tci_dim_known(n->shape[0]) + 1);
    for (int64_t i = 0; i < tci_dim_known(n->shape[0]); i++) {
        list[i] = i;
    }
    return tci_ow_ints(&g->w, (int)tci_dim_known(n->shape[0]), list);
}

/* ---- reductions and contractions ---- */

static const char *tci_ox_reduce_as(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                    const char *x)
{
    const tci_ow_attr keeps = TCI_OW_INT("keepdims", 0);
    const char *in[] = {x, tci_ow_ints(&g->w, n->n_attr, n->attr)};
    if (!n->n_attr) {
        return TCI_OW(&g->w, "Identity", x);
    }
    return tci_ow_op(&g->w, op, 2, in, 1, &keeps);
}

/* Of the dtype of the result: sums of integers widen. */
static const char *tci_ox_sum_out(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                  const char *x)
{
    x = n->in[0]->dtype == n->dtype ? x : tci_ox_to_dtype(g, x, (tc_dtype)n->dtype);
    return tci_ox_reduce_as(g, op, n, x);
}

static const char *tci_ox_any_out(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                  const char *x)
{
    x = tci_ox_to_dtype(g, x, TC_BOOL); /* what is not 0 is 1 */
    x = tci_ox_reduce_as(g, op, n, tci_ox_to_dtype(g, x, TC_I32));
    /* of no elements ReduceMax is the smallest i32: false, as ReduceMin, the largest, is true */
    return TCI_OW(&g->w, "Greater", x, tci_ox_number(g, TC_I32, (tci_value){.u = 0}));
}

static const char *tci_ox_devsq_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    const tci_ow_attr keeps = TCI_OW_INT("keepdims", 1);
    x = n->in[0]->dtype == n->dtype ? x : tci_ox_to_dtype(g, x, (tc_dtype)n->dtype);
    const char *in[] = {x, tci_ow_ints(&g->w, n->n_attr, n->attr)};
    const char *mean = tci_ow_op(&g->w, "ReduceMean", 2, in, 1, &keeps);
    const char *d = TCI_OW(&g->w, "Sub", x, mean);
    return tci_ox_reduce_as(g, "ReduceSumSquare", n, d);
}

/* The mean of each channel of images, [batch, channels, places], leaves as a pool, for which
 * engines keep their own layout of images. */
static const char *tci_ox_mean_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    const tci_node *from = n->in[0];
    bool pools = n->dtype == TC_F32 && from->dtype == TC_F32 && from->rank >= 4 &&
                 from->rank <= 2 + TCI_OX_SPATIAL && n->n_attr == from->rank - 2;
    for (int i = 0; i < n->n_attr && pools; i++) {
        pools = n->attr[i] == 2 + i;
    }
    return pools ? TCI_OW(&g->w, "Squeeze", TCI_OW(&g->w, "GlobalAveragePool", x),
                          tci_ow_ints(&g->w, n->n_attr, n->attr))
                 : tci_ox_reduce_as(g, "ReduceMean", n, x);
}

/* x, of n's dtype, in a dtype that ArgMax and TopK take. */
static const char *tci_ox_ordered_type(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    return n->dtype == TC_BOOL   ? tci_ox_to_dtype(g, x, TC_I32)
           : n->dtype == TC_BF16 ? tci_ox_to_dtype(g, x, TC_F32)
                                 : x;
}

static const char *tci_ox_arg_out(tci_ox_out_graph *g, const char *op, const tci_node *n,
                                  const char *x)
{
    const tci_ow_attr attrs[] = {TCI_OW_INT("axis", n->attr[0]), TCI_OW_INT("keepdims", 0)};
    x = tci_ox_ordered_type(g, n->in[0], x);
    return tci_ow_op(&g->w, op, 1, &x, 2, attrs);
}

/* Running products and extremes: combined with the element 1, 2, 4, ... positions earlier. */
static const char *tci_ox_joined_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    static const char *const ops[] = {[TCI_MODE_ADD] = "Add",
                                      [TCI_MODE_MIN] = "Min",
                                      [TCI_MODE_MAX] = "Max",
                                      [TCI_MODE_MUL] = "Mul"};
    int64_t axis = n->attr[0], *pads = TCI_NEW_ARRAY(g->walk->s, int64_t, 2 * n->rank);
    tc_dtype t = (tc_dtype)n->dtype;
    if (!tci_dim_is_known(n->shape[axis]) || t == TC_BOOL) {
        tci_ox_refuse(g->walk, n, "a running product or extreme of a symbolic size or of bool");
    }
    for (int64_t by = 1; by < tci_dim_known(n->shape[axis]); by *= 2) {
        const tci_ow_attr mode = TCI_OW_TEXT("mode", "edge");
        pads[axis] = n->attr[1] ? -by : by;
        pads[n->rank + axis] = -pads[axis];
        /* of extremes an element may be met twice; of products the padding is 1 */
        bool extreme = n->attr[2] != TCI_MODE_MUL;
        const char *at = tci_ow_ints(&g->w, 2 * n->rank, pads), *fill = tci_ox_float(g, t, 1);
        const char *with[] = {x, at, fill};
        const char *far = tci_ow_op(&g->w, "Pad", extreme ? 2 : 3, with, extreme, &mode);
        x = TCI_OW(&g->w, ops[n->attr[2]], far, x);
    }
    return x;
}

static const char *tci_ox_scan_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    const tci_ow_attr back = TCI_OW_INT("reverse", n->attr[1]);
    const int64_t axis = n->attr[0];
    x = n->in[0]->dtype == n->dtype ? x : tci_ox_to_dtype(g, x, (tc_dtype)n->dtype);
    const char *in[] = {x, tci_ow_tensor(&g->w, NULL, TC_I64, 0, NULL, &axis)};
    return n->attr[2] == TCI_MODE_ADD ? tci_ow_op(&g->w, "CumSum", 2, in, 1, &back)
                                      : tci_ox_joined_out(g, n, x);
}

static const char *tci_ox_topk_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    const tci_ow_attr attrs[] = {TCI_OW_INT("axis", n->attr[0]), TCI_OW_INT("largest", n->attr[1])};
    const char *in[] = {tci_ox_ordered_type(g, n->in[0], x),
                        tci_ox_size_of(g, n, n->shape[n->attr[0]])};
    const char *out[] = {tci_ow_name(&g->w), tci_ow_name(&g->w)};
    tci_ow_node(&g->w, "TopK", 2, in, 2, out, 2, attrs);
    return out[1];
}

static const char *tci_ox_scatter_out(tci_ox_out_graph *g, const tci_node *n, const char *const *in)
{
    static const char *const modes[] = {[TCI_MODE_SET] = "none",
                                        [TCI_MODE_ADD] = "add",
                                        [TCI_MODE_MIN] = "min",
                                        [TCI_MODE_MAX] = "max",
                                        [TCI_MODE_MUL] = "mul"};
    const tci_ow_attr attrs[] = {TCI_OW_INT("axis", n->attr[0]),
                                 TCI_OW_TEXT("reduction", modes[n->attr[1]])};
    bool joins_bool = n->dtype == TC_BOOL && n->attr[1] != TCI_MODE_SET; /* 0 and 1 in order */
    const char *x = joins_bool ? tci_ox_to_dtype(g, in[0], TC_I32) : in[0];
    const char *src = joins_bool ? tci_ox_to_dtype(g, in[2], TC_I32) : in[2];
    const char *with[] = {x, tci_ox_to_dtype(g, in[1], TC_I64), src};
    x = tci_ow_op(&g->w, "ScatterElements", 3, with, 2, attrs);
    return joins_bool ? tci_ox_to_dtype(g, x, TC_BOOL) : x;
}

/* ---- elementwise ops ---- */

/* The value column of an elementwise row, in f32 for f16 and bf16. */
static const char *tci_ox_formula_out(tci_ox_out_graph *g, const tci_node *n, const char *const *in)
{
    const char *stack[TCI_FORMULA_DEPTH + 1], *operands[3];
    tc_dtype types[TCI_FORMULA_DEPTH + 1]; /* of the stack: d, or bool of conditions */
    tc_dtype of = (tc_dtype)n->in[0]->dtype, d = tci_dtype_is_half(of) ? TC_F32 : of;
    int top = 0;
    for (int i = 0; i < n->n_in; i++) {
        operands[i] = d == of ? in[i] : tci_ox_to_dtype(g, in[i], d);
    }
    for (const uint8_t *word = tci_formula_value(n->op); *word != TCI_W_END; word++) {
        const char *made;
        tc_dtype type = d;
        if (*word >= TCI_W_A && *word <= TCI_W_C) {
            made = operands[*word - TCI_W_A];
        } else if (*word >= TCI_W_K) {
            made = tci_ox_float(g, d, tci_formula_number(*word));
        } else {
            top -= tci_formula_value_operands(*word);
            type = types[top + (*word == TCI_P_SELECT)];
            made = tci_ox_word(g, type, *word, stack + top);
            bool asks = *word == TCI_P_EQ || *word == TCI_P_LT || *word == TCI_P_LE;
            type = asks || *word == TCI_W_MINUS ? TC_BOOL : type;
        }
        if (!made) {
            tci_ox_refuse(g->walk, n, "");
        }
        types[top] = type;
        stack[top++] = made;
    }
    return d == of || n->dtype == TC_BOOL ? stack[0] : tci_ox_to_dtype(g, stack[0], of);
}

/* The ONNX operator of an elementwise op, alike in all dtypes that it takes; NULL: the formula. */
static const char *tci_ox_operator_of(const tci_node *n)
{
    bool is_bool = n->in[0]->dtype == TC_BOOL;
    switch ((int)n->op) {
    case TCI_OP_RECIPROCAL: return "Reciprocal";
    case TCI_OP_SIGMOID: return "Sigmoid";
    case TCI_OP_GELU: return "Gelu";
    case TCI_OP_RELU: return tci_ox_is_float((tc_dtype)n->dtype) ? "Relu" : NULL;
    case TCI_OP_ASIN: return "Asin";
    case TCI_OP_ACOS: return "Acos";
    case TCI_OP_ATAN: return "Atan";
    case TCI_OP_ASINH: return "Asinh";
    case TCI_OP_ACOSH: return "Acosh";
    case TCI_OP_ATANH: return "Atanh";
    case TCI_OP_LOG1PEXP: return "Softplus";
    case TCI_OP_SIGN: return is_bool ? "Identity" : "Sign";
    case TCI_OP_MAXIMUM: return is_bool ? "Or" : "Max";
    case TCI_OP_MINIMUM: return is_bool ? "And" : "Min";
    case TCI_OP_GT: return is_bool ? NULL : "Greater";
    case TCI_OP_GE: return is_bool ? NULL : "GreaterOrEqual";
    case TCI_OP_LOGICAL_NOT: return "Not";
    case TCI_OP_LOGICAL_AND: return "And";
    case TCI_OP_LOGICAL_OR: return "Or";
    case TCI_OP_LOGICAL_XOR: return "Xor";
    default: return NULL;
    }
}

/* Of floats: what is left of a truncated division, moved to the sign of the divisor. */
static const char *tci_ox_remainder_out(tci_ox_out_graph *g, tc_dtype d, const char *const *in)
{
    tci_ow *w = &g->w;
    const tci_ow_attr fmod = TCI_OW_INT("fmod", 1);
    const char *zero = tci_ox_float(g, d, 0), *r = tci_ow_op(w, "Mod", 2, in, 1, &fmod);
    const char *below = TCI_OW(w, "Less", in[1], zero);
    const char *other = TCI_OW(w, "Xor", TCI_OW(w, "Less", r, zero), below);
    const char *moves = TCI_OW(w, "And", other, TCI_OW(w, "Not", TCI_OW(w, "Equal", r, zero)));
    return TCI_OW(w, "Where", moves, TCI_OW(w, "Add", r, in[1]), r);
}

/* Quotients and remainders of integers. ONNX leaves a division by 0 undefined, and engines are
 * killed by it and by that of the least number by -1; here it gives 0, and the latter wraps. */
static const char *tci_ox_integer_division(tci_ox_out_graph *g, const tci_node *n,
                                           const char *const *in)
{
    tci_ow *w = &g->w;
    const tci_ow_attr mode = TCI_OW_INT("fmod", n->op == TCI_OP_FMOD);
    const tc_dtype d = (tc_dtype)n->in[0]->dtype;
    const char *zero = tci_ox_float(g, d, 0), *none = TCI_OW(w, "Equal", in[1], zero),
               *turned = NULL;
    const char *safe[] = {in[0], TCI_OW(w, "Where", none, tci_ox_float(g, d, 1), in[1])};
    if (d >= TC_I8) {
        turned = TCI_OW(w, "Equal", in[1], tci_ox_float(g, d, -1));
        safe[1] = TCI_OW(w, "Where", turned, tci_ox_float(g, d, 1), safe[1]);
    }
    const char *rest = tci_ow_op(w, "Mod", 2, safe, 1, &mode); /* by 1: 0, as by 0 and -1 */
    if (n->op != TCI_OP_FLOOR_DIVIDE) {
        return rest;
    }
    const char *y = TCI_OW(w, "Div", TCI_OW(w, "Sub", in[0], rest), safe[1]);
    y = turned ? TCI_OW(w, "Where", turned, TCI_OW(w, "Sub", zero, in[0]), y) : y;
    return TCI_OW(w, "Where", none, zero, y);
}

static const char *tci_ox_elementwise_out(tci_ox_out_graph *g, const tci_node *n,
                                          const char *const *in)
{
    const tci_ow_attr fmod = TCI_OW_INT("fmod", 1);
    const char *op = tci_ox_operator_of(n);
    bool floats = tci_ox_is_float((tc_dtype)n->in[0]->dtype);
    bool divides = n->op == TCI_OP_REMAINDER || n->op == TCI_OP_FLOOR_DIVIDE;
    if (!floats && (divides || n->op == TCI_OP_FMOD)) {
        return tci_ox_integer_division(g, n, in);
    } else if (n->op == TCI_OP_FMOD) {
        return tci_ow_op(&g->w, "Mod", 2, in, 1, &fmod);
    } else if (divides) {
        if (n->op == TCI_OP_FLOOR_DIVIDE) {
            return TCI_OW(&g->w, "Floor", TCI_OW(&g->w, "Div", in[0], in[1]));
        }
        return tci_ox_remainder_out(g, (tc_dtype)n->dtype, in);
    } else if (n->op == TCI_OP_NE) {
        return TCI_OW(&g->w, "Not", TCI_OW(&g->w, "Equal", in[0], in[1]));
    } else if (n->op == TCI_OP_ISNAN && floats) {
        return TCI_OW(&g->w, "IsNaN", in[0]);
    } else if (n->op == TCI_OP_ISINF && floats) {
        return TCI_OW(&g->w, "IsInf", in[0]);
    }
    return op ? tci_ow_op(&g->w, op, n->n_in, in, 0, NULL) : tci_ox_formula_out(g, n, in);
}

/* ---- all ops ---- */

/* Export form of each special and composite op: "": as nodes, in tci_ox_special_out or
 * tci_ox_composite_out; TCI_OX_EXPANDS: as its expansion; otherwise the reason why it cannot be
 * exported. A row of ops/table.h that is missing here does not compile. */
#define TCI_OX_EXPANDS "expands"
#define TCI_OX_WAY_INPUT "an input that is not among those given"
#define TCI_OX_WAY_DATA ""
#define TCI_OX_WAY_LITERAL ""
#define TCI_OX_WAY_CONST ""
#define TCI_OX_WAY_IOTA ""
#define TCI_OX_WAY_RANDOM ""
#define TCI_OX_WAY_WHERE ""
#define TCI_OX_WAY_CAST ""
#define TCI_OX_WAY_BITCAST ""
#define TCI_OX_WAY_RESHAPE ""
#define TCI_OX_WAY_PERMUTE ""
#define TCI_OX_WAY_EXPAND ""
#define TCI_OX_WAY_SLICE ""
#define TCI_OX_WAY_PAD ""
#define TCI_OX_WAY_CAT ""
#define TCI_OX_WAY_WINDOW ""
#define TCI_OX_WAY_GATHER ""
#define TCI_OX_WAY_SCAN ""
#define TCI_OX_WAY_TOPK ""
#define TCI_OX_WAY_SCATTER ""
#define TCI_OX_WAY_SEGMENT "only plans have it"
#define TCI_OX_WAY_CONTRACT ""
#define TCI_OX_WAY_BOUND ""
#define TCI_OX_WAY_REPEAT ""
#define TCI_OX_WAY_RESULT ""
#define TCI_OX_WAY_CUSTOM "an op of the user's own"
#define TCI_OX_WAY_COLLECTIVE "collectives have a communicator of the process"
#define TCI_OX_WAY_BARRIER ""
#define TCI_OX_WAY_ASSIGN "an effect"
#define TCI_OX_WAY_SOFTMAX ""
#define TCI_OX_WAY_LOG_SOFTMAX ""
#define TCI_OX_WAY_MEAN ""
#define TCI_OX_WAY_LAYER_NORM ""
#define TCI_OX_WAY_CROSS_ENTROPY TCI_OX_EXPANDS
#define TCI_OX_WAY_LU TCI_OX_EXPANDS
#define TCI_OX_WAY_SOLVE TCI_OX_EXPANDS
#define TCI_OX_WAY_SOLVE_TRIANGULAR TCI_OX_EXPANDS
#define TCI_OX_WAY_CHOLESKY TCI_OX_EXPANDS
#define TCI_OX_WAY_STOP_GRADIENT ""
#define TCI_OX_WAY_WITH_DERIVATIVE ""
#define TCI_OX_WAY_SHARD ""
#define TCI_OX_WAY_NAMED ""
#define TCI_OX_WAY_CONV_TRANSPOSE ""

/* Of a special or composite op. */
static const char *tci_ox_way_of(int op)
{
    static const char *const ways[] = {
#define TCI_ROW(id, ...) [TCI_OP_##id - TCI_OP_REDUCE_END] = TCI_OX_WAY_##id,
        TCI_SPECIAL_OPS(TCI_ROW) TCI_COMPOSITE_OPS(TCI_ROW)
#undef TCI_ROW
    };
    return ways[op - TCI_OP_REDUCE_END];
}

static const char *tci_ox_layer_norm_out(tci_ox_out_graph *g, const tci_node *n,
                                         const char *const *in)
{
    int axes = (int)n->attr[0];
    bool has_weight = n->attr[1 + axes], has_bias = n->attr[2 + axes];
    const tci_node *eps = n->in[1], *x = n->in[0];
    bool number = eps->op == TCI_OP_CONST || eps->op == TCI_OP_LITERAL, last = has_weight;
    for (int i = 0; i < axes; i++) {
        last = last && n->attr[1 + i] == x->rank - axes + i;
    }
    if (!last || !number) {
        return NULL;
    }
    const tci_ow_attr attrs[] = {TCI_OW_INT("axis", x->rank - axes),
                                 TCI_OW_FLOAT("epsilon", eps->value.f)};
    const char *with[] = {in[0], in[2], has_bias ? in[3] : NULL};
    return tci_ow_op(&g->w, "LayerNormalization", has_bias ? 3 : 2, with, 2, attrs);
}

/* A composite by its own operator; NULL: as what it expands into. */
static const char *tci_ox_composite_out(tci_ox_out_graph *g, const tci_node *n,
                                        const char *const *in)
{
    switch ((int)n->op) {
    case TCI_OP_SOFTMAX:
    case TCI_OP_LOG_SOFTMAX: {
        const tci_ow_attr axis = TCI_OW_INT("axis", n->attr[0]);
        return tci_ow_op(&g->w, n->op == TCI_OP_SOFTMAX ? "Softmax" : "LogSoftmax", 1, in, 1,
                         &axis);
    }
    case TCI_OP_MEAN: return tci_ox_mean_out(g, n, in[0]);
    case TCI_OP_LAYER_NORM: return tci_ox_layer_norm_out(g, n, in);
    case TCI_OP_CONV_TRANSPOSE: return tci_ox_conv_transpose_out(g, n, in);
    case TCI_OP_NAMED:
        return tci_ox_named_operands(n, g->most) ? tci_ox_named_out(g, n, in) : in[0];
    case TCI_OP_STOP_GRADIENT:
    case TCI_OP_SHARD: return in[0];
    case TCI_OP_WITH_DERIVATIVE: return in[1];
    default: return NULL;
    }
}

static const char *tci_ox_special_out(tci_ox_out_graph *g, tci_node *n, const char *const *in)
{
    tci_ow *w = &g->w;
    tci_ox_select select;
    if (tci_ox_find_select(n, &select)) {
        return tci_ox_select_out(g, &select, n, in);
    }
    switch ((int)n->op) {
    case TCI_OP_DATA: return tci_ox_memory(g, n);
    case TCI_OP_LITERAL:
    case TCI_OP_CONST: return tci_ox_number(g, (tc_dtype)n->dtype, n->value);
    case TCI_OP_IOTA: return tci_ox_iota_out(g, n);
    case TCI_OP_RANDOM: return tci_ox_random_out(g, n, in);
    case TCI_OP_WHERE: return tci_ox_where_out(g, (tc_dtype)n->dtype, in);
    case TCI_OP_CAST: return tci_ox_cast_out(g, n, in[0]);
    case TCI_OP_RESHAPE: return tci_ox_reshape_out(g, n, in[0]);
    case TCI_OP_PERMUTE: {
        const tci_ow_attr perm = TCI_OW_INTS("perm", n->rank, n->attr);
        return tci_ow_op(w, "Transpose", 1, in, 1, &perm);
    }
    case TCI_OP_EXPAND: return tci_ox_expand_out(g, n, in[0]);
    case TCI_OP_SLICE: return tci_ox_slice_out(g, n, in[0]);
    case TCI_OP_PAD: return tci_ox_pad_out(g, n, in[0], in[1]);
    case TCI_OP_CAT: {
        const tci_ow_attr axis = TCI_OW_INT("axis", n->attr[0]);
        return tci_ow_op(w, "Concat", n->n_in, in, 1, &axis);
    }
    case TCI_OP_WINDOW: return tci_ox_window_out(g, n, in[0]);
    case TCI_OP_GATHER: return tci_ox_gather_out(g, n, in);
    case TCI_OP_BITCAST: {
        const tci_ow_attr to = TCI_OW_INT("to", tci_onnx_type_of((tc_dtype)n->dtype));
        g->opset = TCI_OX_OPSET_BITCAST;
        return tci_ow_op(w, "BitCast", 1, in, 1, &to);
    }
    case TCI_OP_SCAN: return tci_ox_scan_out(g, n, in[0]);
    case TCI_OP_TOPK: return tci_ox_topk_out(g, n, in[0]);
    case TCI_OP_SCATTER: return tci_ox_scatter_out(g, n, in);
    case TCI_OP_CONTRACT: return tci_ox_contract_out(g, n, in);
    case TCI_OP_REPEAT: return tci_ox_repeat_out(g, n, in);
    case TCI_OP_RESULT: return tci_ox_result_out(g, n);
    case TCI_OP_BARRIER: return in[0];
    default: return NULL;
    }
}

/* Reductions; composites and elementwise ops have functions of their own. */
static const char *tci_ox_reduction_out(tci_ox_out_graph *g, const tci_node *n, const char *x)
{
    tci_ox_sliding w;
    if (tci_ox_find_pool(n, &w) && tci_ox_pool_fits(&w, n)) {
        return tci_ox_pool_out(g, &w, n, x);
    }
    switch ((int)n->op) {
    case TCI_OP_SUM: return tci_ox_sum_out(g, "ReduceSum", n, x);
    case TCI_OP_PROD: return tci_ox_sum_out(g, "ReduceProd", n, x);
    case TCI_OP_MAX: return tci_ox_reduce_as(g, "ReduceMax", n, x);
    case TCI_OP_MIN: return tci_ox_reduce_as(g, "ReduceMin", n, x);
    case TCI_OP_ANY: return tci_ox_any_out(g, "ReduceMax", n, x);
    case TCI_OP_ALL: return tci_ox_any_out(g, "ReduceMin", n, x);
    case TCI_OP_DEVSQ: return tci_ox_devsq_out(g, n, x);
    case TCI_OP_ARGMAX: return tci_ox_arg_out(g, "ArgMax", n, x);
    case TCI_OP_ARGMIN: return tci_ox_arg_out(g, "ArgMin", n, x);
    default: return NULL; /* a row without a form */
    }
}

/* ---- the model ---- */

static bool tci_ox_is_empty(const tci_node *n)
{
    bool known = true, none = false;
    for (int i = 0; i < n->rank; i++) {
        known = known && tci_dim_is_known(n->shape[i]);
        none = none || n->shape[i] == 0;
    }
    return known && none;
}

/* True if n adds up no elements: it is all zeros. */
static bool tci_ox_adds_nothing(const tci_node *n)
{
    bool none = (n->op == TCI_OP_SUM || n->op == TCI_OP_CONTRACT) && tci_is_known(n);
    return none && (tci_ox_is_empty(n->in[0]) || tci_ox_is_empty(n->in[n->n_in - 1]));
}

/* Engines differ in what they make of empty axes, so they get what follows from them. */
static const char *tci_ox_zeros_out(tci_ox_out_graph *g, const tci_node *n)
{
    const char *zero = tci_ox_float(g, (tc_dtype)n->dtype, 0);
    return tci_ox_is_empty(n) ? tci_ow_tensor(&g->w, NULL, (tc_dtype)n->dtype, n->rank,
                                              tci_dim_words(n->shape), "")
                              : TCI_OW(&g->w, "Expand", zero,
                                       tci_ow_ints(&g->w, n->rank, tci_dim_words(n->shape)));
}

static const char *tci_ox_leave(tci_ox_walk *w, tci_node *n, const char *const *in)
{
    tci_ox_out_graph *g = (tci_ox_out_graph *)w->to;
    const char *way = n->op >= TCI_OP_REDUCE_END ? tci_ox_way_of(n->op) : "";
    if (tci_node_is_value(n)) { /* evaluated already: a constant */
        return tci_ox_memory(g, n);
    } else if (*way && strcmp(way, TCI_OX_EXPANDS)) {
        tci_ox_refuse(w, n, way);
    } else if (tci_ox_is_empty(n) || tci_ox_adds_nothing(n)) {
        return tci_ox_zeros_out(g, n);
    } else if (tci_op_is_ew(n->op)) {
        return tci_ox_elementwise_out(g, n, in);
    } else if (tci_op_is_reduce(n->op)) {
        return tci_ox_reduction_out(g, n, in[0]);
    } else if (tci_op_is_composite(n->op)) {
        return tci_ox_composite_out(g, n, in);
    }
    return tci_ox_special_out(g, n, in);
}

/* True if x is a RESHAPE that puts axes of 1 in front of others. */
static bool tci_ox_is_led_by_ones(const tci_node *x)
{
    const tci_node *from = x->op == TCI_OP_RESHAPE && !tci_node_is_value(x) ? x->in[0] : NULL;
    const int more = from ? x->rank - from->rank : -1;
    bool led = more >= 0;
    for (int i = 0; i < more; i++) {
        led = led && x->shape[i] == 1;
    }
    return led && tci_build_same_shape(from->rank, from->shape, from->rank, x->shape + more);
}

/* Operands broadcast: an EXPAND, and the axes of 1 that a RESHAPE puts in front, are left out where
 * another operand has the axis in full. Returns how many operands there are. */
static int tci_ox_unexpanded(tci_ox_walk *w, const tci_node *n, tci_node *const **list)
{
    tci_node **in = TCI_NEW_ARRAY(w->s, tci_node *, n->n_in + 1);
    bool *whole = TCI_NEW_ARRAY(w->s, bool, n->rank + 1);
    for (int i = 0; i < n->n_in; i++) {
        in[i] = n->in[i];
        bool expands = in[i]->op == TCI_OP_EXPAND && !tci_node_is_value(in[i]);
        for (int d = 0; d < n->rank && in[i]->rank == n->rank; d++) {
            whole[d] = whole[d] || (expands ? in[i]->in[0] : in[i])->shape[d] == n->shape[d];
        }
    }
    for (int d = 0; d < n->rank; d++) {
        if (!whole[d]) {
            return 0;
        }
    }
    int n_short = 0; /* one operand keeps the rank */
    for (int i = n->n_in - 1; i >= 0; i--) {
        in[i] = in[i]->op == TCI_OP_EXPAND && !tci_node_is_value(in[i]) ? in[i]->in[0] : in[i];
        if (n_short < n->n_in - 1 && tci_ox_is_led_by_ones(in[i])) {
            in[i] = in[i]->in[0];
            n_short++;
        } else if (in[i]->rank < n->rank) {
            n_short++;
        }
    }
    *list = in;
    return n->n_in;
}

/* Convolutions and pools are written from what is below windows and padding, gathers of slices from
 * the list of indices, elementwise ops from what is below broadcasts, named calls from the call's
 * operands. */
static int tci_ox_needs(tci_ox_walk *w, tci_node *n, tci_node *const **list)
{
    tci_ox_conv c;
    tci_ox_sliding p;
    tci_ox_select s;
    tci_node **two = TCI_NEW_ARRAY(w->s, tci_node *, 2);
    *list = two;
    if (tci_op_is_reduce(n->op) && tci_ox_find_pool(n, &p) && tci_ox_pool_fits(&p, n)) {
        two[0] = p.x;
        return 1;
    } else if (tci_ox_find_conv(w->s, n, &c) && tci_ox_conv_fits(&c)) {
        two[0] = c.w.x;
        two[1] = c.f;
        return 2;
    } else if (tci_ox_find_select(n, &s)) {
        two[0] = s.x;
        two[1] = s.list;
        return 2;
    } else if (n->op == TCI_OP_NAMED) {
        int count = tci_ox_named_operands(n, ((tci_ox_out_graph *)w->to)->most);
        *list = n->in + (count > 0);
        return count ? count : 1;
    } else if (tci_op_is_ew(n->op) || n->op == TCI_OP_WHERE) {
        return tci_ox_unexpanded(w, n, list);
    }
    return 0;
}

static void tci_ox_write_model(tci_ox_out_graph *g, tci_str *file)
{
    tci_str opset = {.s = g->walk->s};
    tci_ow_number(file, 1, TCI_OX_IR);
    tci_ow_text(file, 2, "tc");
    tci_ow_text(file, 3, TC_VERSION);
    tci_ow_bytes(file, 7, tci_str_text(&g->w.graph), g->w.graph.n);
    tci_ow_number(&opset, 2, (uint64_t)g->opset);
    tci_ow_bytes(file, 8, tci_str_text(&opset), opset.n);
}

static void tci_ox_export_graph(tci_ox_out_graph *g, tci_node *const *outputs, int n,
                                const tc_onnx_export *how)
{
    tci_ox_walk *w = g->walk;
    for (int i = 0; i < w->n_inputs; i++) {
        const tci_node *x = w->inputs[i];
        const char *name = tci_ox_input_name(w, i);
        tci_ox_set_name(w, x, name);
        tci_ow_info(&g->w, 11, name, (tc_dtype)x->dtype, x->rank, x->shape);
    }
    for (int i = 0; i < n; i++) {
        const char *from = tci_ox_walk_to(w, outputs[i]);
        const char *name = how && how->output_names && how->output_names[i]
                               ? how->output_names[i]
                               : tci_scratch_printf(w->s, "output%d", i);
        tci_ow_node(&g->w, "Identity", 1, &from, 1, &name, 0, NULL);
        tci_ow_info(&g->w, 12, name, (tc_dtype)outputs[i]->dtype, outputs[i]->rank,
                    outputs[i]->shape);
    }
    tci_ow_text(&g->w.graph, 2, "tc");
}

static void tci_ox_check_opset(tci_scratch *s, int opset)
{
    if (opset && (opset < TCI_OX_OPSET || opset > TCI_OX_OPSET_LAST)) {
        tci_scratch_fail(s, TC_ERR_ARGUMENT, "opset %d: expected 0 or %d to %d", opset,
                         (int)TCI_OX_OPSET, (int)TCI_OX_OPSET_LAST);
    }
}

TCI_FN void tci_ox_write_onnx(tci_ox_walk *w, tci_node *const *outputs, int n,
                              const tc_onnx_export *how, const char *data_name, tci_str *model,
                              tci_str *weights)
{
    tci_ox_out_graph g = {.walk = w,
                          .opset = TCI_OX_OPSET,
                          .most = how && how->opset ? how->opset : TCI_OX_OPSET};
    tci_ox_check_opset(w->s, g.most);
    g.w.s = g.w.graph.s = g.w.weights.s = w->s;
    g.w.external = how && how->external ? data_name : NULL;
    w->to = &g;
    w->leave = tci_ox_leave;
    w->needs = tci_ox_needs;
    tci_ox_export_graph(&g, outputs, n, how);
    tci_ox_write_model(&g, model);
    *weights = g.w.weights;
    if (model->n > INT32_MAX) {
        tci_scratch_fail(w->s, TC_ERR_LIMIT,
                         "the file would have %zu bytes: protobuf ends at 2 "
                         "GiB (tc_onnx_export.external puts weights in a file of their own)",
                         model->n);
    }
}

static void tci_ox_export_file(tci_ox_walk *w, tci_node *const *outputs, int n,
                               const tci_ox_export *e)
{
    const char *path = (const char *)e->to, *slash = path ? strrchr(path, '/') : NULL;
    const tc_onnx_export *how = (const tc_onnx_export *)e->how;
    tci_str file = {.s = w->s}, weights = {.s = w->s};
    if (!path) {
        tci_scratch_fail(w->s, TC_ERR_ARGUMENT, "the path is NULL");
    }
    const char *data_name = tci_scratch_printf(w->s, "%s.data", slash ? slash + 1 : path);
    tci_ox_write_onnx(w, outputs, n, how, data_name, &file, &weights);
    if (how && how->external) {
        tci_ox_put_file(w, tci_scratch_printf(w->s, "%s.data", path), &weights);
    }
    tci_ox_put_file(w, path, &file);
}

TC_API tc_status tc_export_onnx_at(tc_tensors inputs, tc_tensors outputs, const tc_onnx_export *how,
                                   const char *path, tc_site here)
{
    const tci_ox_export e = {"tc_export_onnx",  "ONNX", inputs, outputs, how, (void *)path,
                             tci_ox_export_file};
    return tci_ox_export_call(&e, here);
}
/* ---- src/onnx/stablehlo_builder.c ---- */
/* onnx/stablehlo_builder.c - helpers that emit StableHLO text: types, constants, and one statement
 * for each common op, shared by the export_stablehlo_* files. */
/* ---- src/onnx/export_stablehlo.h ---- */
/* onnx/export_stablehlo.h - state of a StableHLO export, shared by its source files.
 *
 * A value is its SSA name. Sizes are numbers everywhere: symbols have the values that the caller
 * gave (tci_hlo_size). */
#ifndef TCI_ONNX_EXPORT_STABLEHLO_H
#define TCI_ONNX_EXPORT_STABLEHLO_H


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

/* ---- src/onnx/stablehlo_builder.c, continued ---- */
#include <math.h>
#include <stdarg.h>
#include <string.h>

/* ---- text ---- */

TCI_FN const char *tci_hlo_dtype(tc_dtype t)
{
    static const char *const names[TCI_DTYPE_N] = {
        [TC_BOOL - TC_BOOL] = "i1",  [TC_U8 - TC_BOOL] = "ui8",    [TC_U16 - TC_BOOL] = "ui16",
        [TC_U32 - TC_BOOL] = "ui32", [TC_U64 - TC_BOOL] = "ui64",  [TC_I8 - TC_BOOL] = "i8",
        [TC_I16 - TC_BOOL] = "i16",  [TC_I32 - TC_BOOL] = "i32",   [TC_I64 - TC_BOOL] = "i64",
        [TC_F16 - TC_BOOL] = "f16",  [TC_BF16 - TC_BOOL] = "bf16", [TC_F32 - TC_BOOL] = "f32",
        [TC_F64 - TC_BOOL] = "f64"};
    return names[t - TC_BOOL];
}

TCI_FN int64_t tci_hlo_size(const tci_hlo *h, tci_dim d)
{
#ifdef TC_DYNAMIC_SHAPES
    if (!tci_dim_is_known(d)) {
        d = tci_dim_replace(d, h->n_symbols, h->symbols, h->values);
    }
    if (!tci_dim_is_known(d)) {
        const bool engine = h->walk->known != NULL; /* which is given no sizes */
        tci_scratch_fail(h->walk->s, engine ? TC_ERR_UNSUPPORTED : TC_ERR_ARGUMENT,
                         "the size %s is symbolic: StableHLO is exported for known sizes%s",
                         tci_dim_text_of(d).text,
                         engine ? "" : " (tc_stablehlo_export.sizes says what each TC_DIM is)");
    }
#endif
    (void)h;
    return tci_dim_known(d);
}

TCI_FN tci_hlo_shape tci_hlo_shape_known(const tci_hlo *h, int rank, const int64_t *sizes)
{
    tci_str text = {.s = h->walk->s};
    for (int i = 0; i < rank; i++) {
        tci_str_printf(&text, "%lldx", (long long)sizes[i]);
    }
    return (tci_hlo_shape){rank, sizes, tci_str_text(&text)};
}

TCI_FN tci_hlo_shape tci_hlo_shape_of(const tci_hlo *h, int rank, const tci_dim *sizes)
{
    int64_t *known = TCI_NEW_ARRAY(h->walk->s, int64_t, rank + 1);
    for (int i = 0; i < rank; i++) {
        known[i] = tci_hlo_size(h, sizes[i]);
    }
    return tci_hlo_shape_known(h, rank, known);
}

TCI_FN const char *tci_hlo_type(const tci_hlo *h, tc_dtype dtype, const tci_hlo_shape *shape)
{
    return tci_scratch_printf(h->walk->s, "tensor<%s%s>", shape->text, tci_hlo_dtype(dtype));
}

TCI_FN const char *tci_hlo_node_type(const tci_hlo *h, const tci_node *n)
{
    tci_hlo_shape shape = tci_hlo_shape_of(h, n->rank, n->shape);
    return tci_hlo_type(h, (tc_dtype)n->dtype, &shape);
}

TCI_FN const char *tci_hlo_list(const tci_hlo *h, int n, const int64_t *items)
{
    tci_str text = {.s = h->walk->s};
    tci_str_add(&text, "[");
    for (int i = 0; i < n; i++) {
        tci_str_printf(&text, "%s%lld", i ? ", " : "", (long long)(items ? items[i] : i));
    }
    tci_str_add(&text, "]");
    return tci_str_text(&text);
}

TCI_FN const char *tci_hlo_array(const tci_hlo *h, int n, const int64_t *items)
{
    tci_str text = {.s = h->walk->s};
    tci_str_add(&text, "array<i64");
    for (int i = 0; i < n; i++) {
        tci_str_printf(&text, "%s %lld", i ? "," : ":", (long long)items[i]);
    }
    tci_str_add(&text, ">");
    return tci_str_text(&text);
}

TCI_FN const char *tci_hlo_name(tci_hlo *h)
{
    return tci_scratch_printf(h->walk->s, "%%%d", h->n_values++);
}

TCI_FN const char *tci_hlo_let(tci_hlo *h, const char *format, ...)
{
    const char *name = tci_hlo_name(h);
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = tci_scratch_get(h->walk->s, (size_t)n + 1);
    va_start(args, format);
    vsnprintf(text, (size_t)n + 1, format, args);
    va_end(args);
    tci_str_printf(&h->out, "  %s = ", name);
    tci_str_add_n(&h->out, text, (size_t)n);
    tci_str_add(&h->out, "\n");
    return name;
}

/* ---- constants ---- */

TCI_FN const char *tci_hlo_splat(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, tci_value v)
{
    const char *type = tci_hlo_type(h, t, shape);
    uint64_t bits = 0;
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) {
        count *= shape->sizes[i];
    }
    if (!count) {
        return tci_hlo_let(h, "stablehlo.constant dense<> : %s", type);
    } else if (t == TC_BOOL) {
        return tci_hlo_let(h, "stablehlo.constant dense<%s> : %s", v.u ? "true" : "false", type);
    } else if (t == TC_U64) {
        return tci_hlo_let(h, "stablehlo.constant dense<%llu> : %s", (unsigned long long)v.u, type);
    } else if (!tci_dtype_is_float(t)) {
        return tci_hlo_let(h, "stablehlo.constant dense<%lld> : %s", (long long)v.i, type);
    }
    tci_value_store(t, &bits, v); /* floats by their bits */
    return tci_hlo_let(h, "stablehlo.constant dense<0x%0*llX> : %s", 2 * tci_dtype_get(t)->bytes,
                       (unsigned long long)bits, type);
}

TCI_FN const char *tci_hlo_float(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, double v)
{
    return tci_hlo_splat(h, shape, t, tci_value_cast((tci_value){.f = v}, TC_F64, t));
}

TCI_FN const char *tci_hlo_whole(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, int64_t v)
{
    return tci_hlo_splat(h, shape, t, tci_value_cast((tci_value){.i = v}, TC_I64, t));
}

TCI_FN const char *tci_hlo_ints(tci_hlo *h, const tci_hlo_shape *shape, const int64_t *items, int n)
{
    tci_str text = {.s = h->walk->s};
    for (int i = 0; i < n; i++) {
        tci_str_printf(&text, "%s%lld", i ? ", " : "", (long long)items[i]);
    }
    const tci_hlo_shape list = tci_hlo_shape_known(h, 1, (const int64_t[]){n});
    const char *x = tci_hlo_let(h, "stablehlo.constant dense<[%s]> : %s", tci_str_text(&text),
                                tci_hlo_type(h, TC_I64, &list));
    return tci_hlo_let(h, "stablehlo.reshape %s : (%s) -> %s", x, tci_hlo_type(h, TC_I64, &list),
                       tci_hlo_type(h, TC_I64, shape));
}

/* ---- ops on whole tensors ---- */

TCI_FN const char *tci_hlo_convert(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype from,
                                   tc_dtype to, const char *x)
{
    return from == to ? x
                      : tci_hlo_let(h, "stablehlo.convert %s : (%s) -> %s", x,
                                    tci_hlo_type(h, from, shape), tci_hlo_type(h, to, shape));
}

TCI_FN const char *tci_hlo_binary(tci_hlo *h, const char *op, const tci_hlo_shape *shape,
                                  tc_dtype t, const char *a, const char *b)
{
    return tci_hlo_let(h, "stablehlo.%s %s, %s : %s", op, a, b, tci_hlo_type(h, t, shape));
}

TCI_FN const char *tci_hlo_compare(tci_hlo *h, const char *how, const tci_hlo_shape *shape,
                                   tc_dtype t, const char *a, const char *b)
{
    const char *kind = tci_dtype_is_float(t)    ? "FLOAT"
                       : tci_dtype_is_signed(t) ? "SIGNED"
                                                : "UNSIGNED";
    const char *type = tci_hlo_type(h, t, shape);
    return tci_hlo_let(h, "stablehlo.compare %s, %s, %s, %s : (%s, %s) -> %s", how, a, b, kind,
                       type, type, tci_hlo_type(h, TC_BOOL, shape));
}

TCI_FN const char *tci_hlo_select(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, const char *c,
                                  const char *a, const char *b)
{
    return tci_hlo_let(h, "stablehlo.select %s, %s, %s : %s, %s", c, a, b,
                       tci_hlo_type(h, TC_BOOL, shape), tci_hlo_type(h, t, shape));
}

TCI_FN const char *tci_hlo_broadcast(tci_hlo *h, tc_dtype t, const tci_hlo_shape *from,
                                     const tci_hlo_shape *to, const int64_t *axes, const char *x)
{
    return tci_hlo_let(h, "stablehlo.broadcast_in_dim %s, dims = %s : (%s) -> %s", x,
                       tci_hlo_list(h, from->rank, axes), tci_hlo_type(h, t, from),
                       tci_hlo_type(h, t, to));
}

TCI_FN const char *tci_hlo_reshape(tci_hlo *h, tc_dtype t, const tci_hlo_shape *from,
                                   const tci_hlo_shape *to, const char *x)
{
    return tci_hlo_let(h, "stablehlo.reshape %s : (%s) -> %s", x, tci_hlo_type(h, t, from),
                       tci_hlo_type(h, t, to));
}

TCI_FN const char *tci_hlo_transpose(tci_hlo *h, tc_dtype t, const tci_hlo_shape *from,
                                     const int64_t *order, const char *x)
{
    int64_t *sizes = TCI_NEW_ARRAY(h->walk->s, int64_t, from->rank + 1);
    for (int i = 0; i < from->rank; i++) {
        sizes[i] = from->sizes[order[i]];
    }
    const tci_hlo_shape to = tci_hlo_shape_known(h, from->rank, sizes);
    return tci_hlo_let(h, "stablehlo.transpose %s, dims = %s : (%s) -> %s", x,
                       tci_hlo_list(h, from->rank, order), tci_hlo_type(h, t, from),
                       tci_hlo_type(h, t, &to));
}

TCI_FN const char *tci_hlo_arrange(tci_hlo *h, tc_dtype t, const tci_hlo_shape *from,
                                   const int64_t *order, const tci_hlo_shape *to, const char *x)
{
    int64_t *sizes = TCI_NEW_ARRAY(h->walk->s, int64_t, from->rank + 1);
    bool in_order = true;
    for (int i = 0; i < from->rank; i++) {
        sizes[i] = from->sizes[order[i]];
        in_order = in_order && order[i] == i;
    }
    const tci_hlo_shape moved = tci_hlo_shape_known(h, from->rank, sizes);
    x = in_order ? x : tci_hlo_transpose(h, t, from, order, x);
    bool same = moved.rank == to->rank && !strcmp(moved.text, to->text);
    return same ? x : tci_hlo_reshape(h, t, &moved, to, x);
}

/* ---- movement and orders ---- */

TCI_FN const char *tci_hlo_slice(tci_hlo *h, tc_dtype t, const tci_hlo_shape *from,
                                 const tci_hlo_shape *to, const int64_t *start, const int64_t *step,
                                 const char *x)
{
    tci_str bounds = {.s = h->walk->s};
    tci_str_add(&bounds, "[");
    for (int i = 0; i < from->rank; i++) {
        int64_t at = to->sizes[i] ? start[i] : 0;
        int64_t end = to->sizes[i] ? at + (to->sizes[i] - 1) * step[i] + 1 : 0;
        tci_str_printf(&bounds, "%s%lld:%lld:%lld", i ? ", " : "", (long long)at, (long long)end,
                       (long long)step[i]);
    }
    return tci_hlo_let(h, "stablehlo.slice %s %s] : (%s) -> %s", x, tci_str_text(&bounds),
                       tci_hlo_type(h, t, from), tci_hlo_type(h, t, to));
}

TCI_FN const char *tci_hlo_pad(tci_hlo *h, tc_dtype t, const tci_hlo_shape *from,
                               const tci_hlo_shape *to, const int64_t *before, const char *fill,
                               const char *x)
{
    int64_t *after = TCI_NEW_ARRAY(h->walk->s, int64_t, from->rank + 1);
    int64_t *none = TCI_NEW_ARRAY(h->walk->s, int64_t, from->rank + 1);
    for (int i = 0; i < from->rank; i++) {
        after[i] = to->sizes[i] - from->sizes[i] - before[i];
    }
    return tci_hlo_let(h,
                       "stablehlo.pad %s, %s, low = %s, high = %s, interior = %s : (%s, "
                       "tensor<%s>) -> %s",
                       x, fill, tci_hlo_list(h, from->rank, before),
                       tci_hlo_list(h, from->rank, after), tci_hlo_list(h, from->rank, none),
                       tci_hlo_type(h, t, from), tci_hlo_dtype(t), tci_hlo_type(h, t, to));
}

TCI_FN const char *tci_hlo_join(tci_hlo *h, int axis, int n, const char *const *parts,
                                const char *const *types, const char *type)
{
    tci_str names = {.s = h->walk->s}, of = {.s = h->walk->s};
    for (int i = 0; i < n; i++) {
        tci_str_printf(&names, "%s%s", i ? ", " : "", parts[i]);
        tci_str_printf(&of, "%s%s", i ? ", " : "", types[i]);
    }
    return tci_hlo_let(h, "stablehlo.concatenate %s, dim = %d : (%s) -> %s", tci_str_text(&names),
                       axis, tci_str_text(&of), type);
}

TCI_FN const char *tci_hlo_joins(int op, tc_dtype t)
{
    bool is_bool = t == TC_BOOL;
    switch (op) {
    case TCI_OP_SUM: return is_bool ? "or" : "add";
    case TCI_OP_PROD: return is_bool ? "and" : "multiply";
    case TCI_OP_MAX: return is_bool ? "or" : "maximum";
    case TCI_OP_MIN: return is_bool ? "and" : "minimum";
    case TCI_OP_ANY: return "or";
    case TCI_OP_ALL: return "and";
    default: return NULL;
    }
}

TCI_FN tci_value tci_hlo_identity(int op, tc_dtype t)
{
    bool is_signed = tci_dtype_is_signed(t);
    int bits = 8 * tci_dtype_get(t)->bytes;
    uint64_t most = ~(uint64_t)0 >> (64 - bits + is_signed);
    tci_value one = tci_value_cast((tci_value){.i = 1}, TC_I64, t), v = {.i = 0};
    if (op == TCI_OP_PROD || op == TCI_OP_ALL) {
        return one;
    } else if (op != TCI_OP_MAX && op != TCI_OP_MIN) {
        return v;
    } else if (t == TC_BOOL) {
        return op == TCI_OP_MIN ? one : v;
    } else if (tci_dtype_is_float(t)) {
        return (tci_value){.f = op == TCI_OP_MIN ? (double)INFINITY : -(double)INFINITY};
    }
    return (tci_value){.u = op == TCI_OP_MIN ? most : is_signed ? ~most : 0};
}

TCI_FN const char *tci_hlo_before(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, bool largest,
                                  bool nan_first, const char *a, const char *b)
{
    const char *is = tci_hlo_compare(h, largest ? "GT" : "LT", shape, t, a, b);
    if (!tci_dtype_is_float(t)) {
        return is;
    }
    const char *first = nan_first ? a : b, *other = nan_first ? b : a;
    const char *is_nan = tci_hlo_compare(h, "NE", shape, t, first, first);
    const char *number = tci_hlo_compare(h, "EQ", shape, t, other, other);
    is_nan = tci_hlo_binary(h, "and", shape, TC_BOOL, is_nan, number);
    return tci_hlo_binary(h, "or", shape, TC_BOOL, is, is_nan);
}
/* ---- src/onnx/export_stablehlo_scalar.c ---- */
/* onnx/export_stablehlo_scalar.c - exports elementwise nodes as StableHLO.
 *
 * In: a node and the names of its operands. Out: statements, and the name of the result.
 *
 * Design: kernel/lower_graph.c expresses a node in the scalar operations of ops/prim.h, corner
 * cases included (saturating casts, rounding of f16 and bf16, the sign of a remainder, Philox).
 * Each of these becomes one or a few StableHLO ops on whole tensors. A function without an op in
 * StableHLO becomes tc's own expansion (ops/math.h). Differences from tc's bits: StableHLO has no
 * fused multiply-add, so FMA rounds twice; exp, sin and other functions are the engine's own. */

#include <string.h>

/* ---- single operations ---- */

static const char *tci_hlo_unary(tci_hlo *h, const char *op, const tci_hlo_shape *shape, tc_dtype t,
                                 const char *a)
{
    return tci_hlo_let(h, "stablehlo.%s %s : %s", op, a, tci_hlo_type(h, t, shape));
}

static const char *tci_hlo_bits(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype from, tc_dtype to,
                                const char *a)
{
    return tci_hlo_let(h, "stablehlo.bitcast_convert %s : (%s) -> %s", a,
                       tci_hlo_type(h, from, shape), tci_hlo_type(h, to, shape));
}

/* Truncates, saturates, NaN gives 0. */
static const char *tci_hlo_float_to_int(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype from,
                                        tc_dtype to, const char *a)
{
    bool is_signed = tci_dtype_is_signed(to);
    int bits = 8 * tci_dtype_get(to)->bytes - is_signed;
    double above = (double)((uint64_t)1 << (bits - 1)) * 2, least = is_signed ? -above : 0;
    uint64_t most = ~(uint64_t)0 >> (64 - bits);
    const char *zero = tci_hlo_whole(h, shape, to, 0);
    const char *low = tci_hlo_whole(h, shape, to, is_signed ? (int64_t)~most : 0);
    const char *high = tci_hlo_whole(h, shape, to, (int64_t)most);
    const char *is_nan = tci_hlo_compare(h, "NE", shape, from, a, a);
    const char *is_low = tci_hlo_compare(h, "LE", shape, from, a,
                                         tci_hlo_float(h, shape, from, least));
    const char *is_high = tci_hlo_compare(h, "GE", shape, from, a,
                                          tci_hlo_float(h, shape, from, above));
    const char *y = tci_hlo_convert(h, shape, from, to, a);
    y = tci_hlo_select(h, shape, to, is_high, high, y);
    y = tci_hlo_select(h, shape, to, is_low, low, y);
    return tci_hlo_select(h, shape, to, is_nan, zero, y);
}

static const char *tci_hlo_cast(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype from, tc_dtype to,
                                const char *a)
{
    if (to == TC_BOOL) {
        return tci_hlo_compare(h, "NE", shape, from, a, tci_hlo_whole(h, shape, from, 0));
    }
    bool cuts = tci_dtype_is_float(from) && !tci_dtype_is_float(to);
    return cuts ? tci_hlo_float_to_int(h, shape, from, to, a)
                : tci_hlo_convert(h, shape, from, to, a);
}

/* DIV and REM of integers: 0 by 0; MIN by -1 without overflow. */
static const char *tci_hlo_divide(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, bool rest,
                                  const char *a, const char *b)
{
    const char *zero = tci_hlo_whole(h, shape, t, 0), *one = tci_hlo_whole(h, shape, t, 1);
    const char *by_zero = tci_hlo_compare(h, "EQ", shape, t, b, zero), *y;
    const char *by = tci_hlo_select(h, shape, t, by_zero, one, b);
    if (!tci_dtype_is_signed(t)) {
        y = tci_hlo_binary(h, rest ? "remainder" : "divide", shape, t, a, by);
        return tci_hlo_select(h, shape, t, by_zero, zero, y);
    }
    const char *negates = tci_hlo_compare(h, "EQ", shape, t, b, tci_hlo_whole(h, shape, t, -1));
    by = tci_hlo_select(h, shape, t, negates, one, by);
    y = tci_hlo_binary(h, rest ? "remainder" : "divide", shape, t, a, by);
    y = tci_hlo_select(h, shape, t, negates, rest ? zero : tci_hlo_unary(h, "negate", shape, t, a),
                       y);
    return tci_hlo_select(h, shape, t, by_zero, zero, y);
}

/* A right shift of any integers by a number of bits below the width. */
static const char *tci_hlo_shift_right(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t,
                                       const char *a, int by)
{
    return tci_hlo_binary(h,
                          tci_dtype_is_signed(t) ? "shift_right_arithmetic" : "shift_right_logical",
                          shape, t, a, tci_hlo_whole(h, shape, t, by));
}

/* The high half of the product of two u64, from those of their halves. */
static const char *tci_hlo_high_u64(tci_hlo *h, const tci_hlo_shape *shape, const char *a,
                                    const char *b)
{
    const tc_dtype t = TC_U64;
    const char *half = tci_hlo_whole(h, shape, t, 0xffffffff);
    const char *al = tci_hlo_binary(h, "and", shape, t, a, half);
    const char *bl = tci_hlo_binary(h, "and", shape, t, b, half);
    const char *ah = tci_hlo_shift_right(h, shape, t, a, 32);
    const char *bh = tci_hlo_shift_right(h, shape, t, b, 32);
    const char *low = tci_hlo_binary(h, "multiply", shape, t, al, bl);
    const char *cross = tci_hlo_binary(h, "multiply", shape, t, ah, bl);
    cross = tci_hlo_binary(h, "add", shape, t, cross, tci_hlo_shift_right(h, shape, t, low, 32));
    const char *other = tci_hlo_binary(h, "multiply", shape, t, al, bh);
    other = tci_hlo_binary(h, "add", shape, t, other,
                           tci_hlo_binary(h, "and", shape, t, cross, half));
    const char *high = tci_hlo_binary(h, "multiply", shape, t, ah, bh);
    high = tci_hlo_binary(h, "add", shape, t, high, tci_hlo_shift_right(h, shape, t, cross, 32));
    return tci_hlo_binary(h, "add", shape, t, high, tci_hlo_shift_right(h, shape, t, other, 32));
}

/* Correction of the high half of the unsigned product where a is negative. */
static const char *tci_hlo_sign_part(tci_hlo *h, const tci_hlo_shape *shape, const char *a,
                                     const char *b)
{
    const char *zero = tci_hlo_whole(h, shape, TC_I64, 0);
    const char *is = tci_hlo_compare(h, "LT", shape, TC_I64, a, zero);
    return tci_hlo_select(h, shape, TC_I64, is, b, zero);
}

static const char *tci_hlo_mulhi(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, const char *a,
                                 const char *b)
{
    int bits = 8 * tci_dtype_get(t)->bytes;
    tc_dtype wide = tci_dtype_is_signed(t) ? TC_I64 : TC_U64;
    if (t == TC_BOOL) {
        return tci_hlo_whole(h, shape, t, 0);
    } else if (bits < 64) {
        a = tci_hlo_binary(h, "multiply", shape, wide, tci_hlo_convert(h, shape, t, wide, a),
                           tci_hlo_convert(h, shape, t, wide, b));
        return tci_hlo_convert(h, shape, wide, t, tci_hlo_shift_right(h, shape, wide, a, bits));
    } else if (t == TC_U64) {
        return tci_hlo_high_u64(h, shape, a, b);
    }
    const char *high = tci_hlo_high_u64(h, shape, tci_hlo_bits(h, shape, t, TC_U64, a),
                                        tci_hlo_bits(h, shape, t, TC_U64, b));
    high = tci_hlo_bits(h, shape, TC_U64, t, high);
    high = tci_hlo_binary(h, "subtract", shape, t, high, tci_hlo_sign_part(h, shape, a, b));
    return tci_hlo_binary(h, "subtract", shape, t, high, tci_hlo_sign_part(h, shape, b, a));
}

/* a to the b of integers by repeated squaring; of b < 0 the integer part of 1 / a^-b, 0 of 0. */
static const char *tci_hlo_powi(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, const char *a,
                                const char *b)
{
    const char *zero = tci_hlo_whole(h, shape, t, 0), *one = tci_hlo_whole(h, shape, t, 1);
    const char *y = one, *square = a, *rest = b;
    for (int bits = 8 * tci_dtype_get(t)->bytes - tci_dtype_is_signed(t), i = 0; i < bits; i++) {
        const char *odd = tci_hlo_binary(h, "and", shape, t, rest, one);
        odd = tci_hlo_compare(h, "NE", shape, t, odd, zero);
        y = tci_hlo_select(h, shape, t, odd, tci_hlo_binary(h, "multiply", shape, t, y, square), y);
        square = tci_hlo_binary(h, "multiply", shape, t, square, square);
        rest = tci_hlo_shift_right(h, shape, t, rest, 1);
    }
    if (!tci_dtype_is_signed(t)) {
        return y;
    }
    const char *minus = tci_hlo_whole(h, shape, t, -1);
    const char *odd = tci_hlo_compare(h, "NE", shape, t, tci_hlo_binary(h, "and", shape, t, b, one),
                                      zero);
    const char *below = tci_hlo_select(h, shape, t, odd, minus, one);
    below = tci_hlo_select(h, shape, t, tci_hlo_compare(h, "EQ", shape, t, a, minus), below, zero);
    below = tci_hlo_select(h, shape, t, tci_hlo_compare(h, "EQ", shape, t, a, one), one, below);
    return tci_hlo_select(h, shape, t, tci_hlo_compare(h, "LT", shape, t, b, zero), below, y);
}

/* Euclid's algorithm on the magnitudes, for all elements until each has come to its end. */
static const char *tci_hlo_gcd(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, const char *a,
                               const char *b)
{
    static const tc_dtype unsigned_of[] = {TC_U8, TC_U16, TC_U32, TC_U64};
    const tci_hlo_shape point = {0, NULL, ""};
    int bytes = tci_dtype_get(t)->bytes;
    tc_dtype u = unsigned_of[bytes == 8 ? 3 : bytes / 2];
    const char *type = tci_hlo_type(h, u, shape), *bits = tci_hlo_type(h, TC_BOOL, shape);
    const char *list = tci_hlo_list(h, shape->rank, NULL);
    if (tci_dtype_is_signed(t)) {
        a = tci_hlo_bits(h, shape, t, u, tci_hlo_unary(h, "abs", shape, t, a));
        b = tci_hlo_bits(h, shape, t, u, tci_hlo_unary(h, "abs", shape, t, b));
    }
    const char *x = tci_hlo_name(h), *y = tci_hlo_name(h), *r = tci_hlo_name(h);
    tci_str_printf(&h->out, "  %s:2 = stablehlo.while(%s = %s, %s = %s) : %s, %s\n  cond {\n", r, x,
                   a, y, b, type, type);
    const char *more = tci_hlo_compare(h, "NE", shape, u, y, tci_hlo_whole(h, shape, u, 0));
    const char *none = tci_hlo_whole(h, &point, TC_BOOL, 0);
    more = tci_hlo_let(h,
                       "stablehlo.reduce(%s init: %s) applies stablehlo.or across dimensions = "
                       "%s : (%s, tensor<i1>) -> tensor<i1>",
                       more, none, list, bits);
    tci_str_printf(&h->out, "  stablehlo.return %s : tensor<i1>\n  } do {\n", more);
    const char *zero = tci_hlo_whole(h, shape, u, 0);
    const char *ended = tci_hlo_compare(h, "EQ", shape, u, y, zero);
    const char *rest = tci_hlo_divide(h, shape, u, true, x, y);
    const char *next = tci_hlo_select(h, shape, u, ended, x, y);
    tci_str_printf(&h->out, "  stablehlo.return %s, %s : %s, %s\n  }\n", next, rest, type, type);
    const char *first = tci_scratch_printf(h->walk->s, "%s#0", r);
    return tci_dtype_is_signed(t) ? tci_hlo_bits(h, shape, u, t, first) : first;
}

/* Towards zero. */
static const char *tci_hlo_trunc(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype t, const char *a)
{
    const char *below = tci_hlo_compare(h, "LT", shape, t, a, tci_hlo_whole(h, shape, t, 0));
    return tci_hlo_select(h, shape, t, below, tci_hlo_unary(h, "ceil", shape, t, a),
                          tci_hlo_unary(h, "floor", shape, t, a));
}

/* To the nearest f16 or bf16, and back. */
static const char *tci_hlo_round(tci_hlo *h, const tci_hlo_shape *shape, tc_dtype half,
                                 const char *a)
{
    return tci_hlo_convert(h, shape, half, TC_F32, tci_hlo_convert(h, shape, TC_F32, half, a));
}

/* The StableHLO op of a MATH prim; NULL: its expansion. */
static const char *tci_hlo_math_op(tci_prim p)
{
    switch ((int)p) {
    case TCI_P_EXP:
    case TCI_P_EXPN: return "exponential";
    case TCI_P_LOG: return "log";
    case TCI_P_SIN: return "sine";
    case TCI_P_COS: return "cosine";
    case TCI_P_TAN: return "tan";
    case TCI_P_TANH: return "tanh";
    case TCI_P_SIGMOID: return "logistic";
    case TCI_P_EXPM1: return "exponential_minus_one";
    case TCI_P_LOG1P: return "log_plus_one";
    default: return NULL;
    }
}

static const char *tci_hlo_prim(tci_hlo *h, const tci_hlo_shape *shape, tci_prim p, tc_dtype t,
                                tc_dtype to, const char *const *x);

/* True if a step adds a constant so large that the sum is a whole number, as expansions round. XLA
 * takes (x + c) - c for x, so what is added to must be rounded before. */
static bool tci_hlo_rounds(const tci_recipe *r, const tci_step_inst *s)
{
    int last = s->args[s->n_args - 1];
    double most = r->insts[last].dtype == TC_F32 ? 8388608.0 : 4503599627370496.0;
    return (s->prim == TCI_P_ADD || s->prim == TCI_P_FMA) &&
           r->insts[last].kind == TCI_RECIPE_CONST && r->insts[last].value.f >= most &&
           r->insts[last].value.f < 2 * most;
}

/* One step of an expansion. */
static const char *tci_hlo_step(tci_hlo *h, const tci_hlo_shape *shape, const tci_recipe *r,
                                const tci_step_inst *s, const char **x)
{
    tc_dtype t = (tc_dtype)r->insts[s->args[s->prim == TCI_P_SELECT]].dtype;
    if (!tci_hlo_rounds(r, s)) {
        return tci_hlo_prim(h, shape, (tci_prim)s->prim, t, (tc_dtype)s->dtype, x);
    }
    const char *y = s->prim == TCI_P_FMA ? tci_hlo_binary(h, "multiply", shape, t, x[0], x[1])
                                         : x[0];
    y = tci_hlo_unary(h, "round_nearest_even", shape, t, y);
    return tci_hlo_binary(h, "add", shape, t, y, x[s->n_args - 1]);
}

/* The expansion of a MATH prim, step by step. */
static const char *tci_hlo_recipe(tci_hlo *h, const tci_hlo_shape *shape, tci_prim p, tc_dtype t,
                                  const char *const *x)
{
    const tci_recipe *r = tci_math_recipe(p, t);
    const char **at = TCI_NEW_ARRAY(h->walk->s, const char *, r->n);
    for (int i = 0; i < r->n; i++) {
        const tci_step_inst *s = &r->insts[i];
        const char *args[3] = {NULL, NULL, NULL};
        for (int a = 0; a < s->n_args && s->kind == TCI_RECIPE_PRIM; a++) {
            args[a] = at[s->args[a]];
        }
        if (s->kind == TCI_RECIPE_ARG) {
            at[i] = x[s->imm];
        } else if (s->kind == TCI_RECIPE_CONST) {
            at[i] = tci_hlo_splat(h, shape, (tc_dtype)s->dtype, s->value);
        } else {
            at[i] = tci_hlo_step(h, shape, r, s, args);
        }
    }
    return at[r->n - 1];
}

static const char *tci_hlo_math(tci_hlo *h, const tci_hlo_shape *shape, tci_prim p, tc_dtype t,
                                const char *const *x)
{
    const char *op = tci_hlo_math_op(p);
    if (op) {
        return tci_hlo_unary(h, op, shape, t, x[0]);
    } else if (p == TCI_P_POW || p == TCI_P_ATAN2) {
        return tci_hlo_binary(h, p == TCI_P_POW ? "power" : "atan2", shape, t, x[0], x[1]);
    } else if (p == TCI_P_LOG_LOW || p == TCI_P_LOG2_LOW) {
        return tci_hlo_whole(h, shape, t, 0); /* a correction below the engine's own error */
    }
    return tci_hlo_recipe(h, shape, p, t, x);
}

/* One scalar operation on operands of dtype t, with a result of dtype `to` where that is another
 * one. */
static const char *tci_hlo_prim(tci_hlo *h, const tci_hlo_shape *shape, tci_prim p, tc_dtype t,
                                tc_dtype to, const char *const *x)
{
    bool whole = !tci_dtype_is_float(t);
    switch (p) {
    case TCI_P_ADD: return tci_hlo_binary(h, "add", shape, t, x[0], x[1]);
    case TCI_P_SUB: return tci_hlo_binary(h, "subtract", shape, t, x[0], x[1]);
    case TCI_P_MUL: return tci_hlo_binary(h, "multiply", shape, t, x[0], x[1]);
    case TCI_P_DIV:
    case TCI_P_REM:
        return whole ? tci_hlo_divide(h, shape, t, p == TCI_P_REM, x[0], x[1])
                     : tci_hlo_binary(h, p == TCI_P_REM ? "remainder" : "divide", shape, t, x[0],
                                      x[1]);
    case TCI_P_FMA:
        return tci_hlo_binary(h, "add", shape, t,
                              tci_hlo_binary(h, "multiply", shape, t, x[0], x[1]), x[2]);
    case TCI_P_NEG: return tci_hlo_unary(h, "negate", shape, t, x[0]);
    case TCI_P_ABS: return tci_hlo_unary(h, "abs", shape, t, x[0]);
    case TCI_P_SQRT: return tci_hlo_unary(h, "sqrt", shape, t, x[0]);
    case TCI_P_PMIN:
    case TCI_P_PMAX:
        return tci_hlo_select(
            h, shape, t, tci_hlo_compare(h, p == TCI_P_PMIN ? "LT" : "GT", shape, t, x[0], x[1]),
            x[0], x[1]);
    case TCI_P_FLOOR: return tci_hlo_unary(h, "floor", shape, t, x[0]);
    case TCI_P_CEIL: return tci_hlo_unary(h, "ceil", shape, t, x[0]);
    case TCI_P_TRUNC: return tci_hlo_trunc(h, shape, t, x[0]);
    case TCI_P_RINT: return tci_hlo_unary(h, "round_nearest_even", shape, t, x[0]);
    case TCI_P_EQ: return tci_hlo_compare(h, "EQ", shape, t, x[0], x[1]);
    case TCI_P_LT: return tci_hlo_compare(h, "LT", shape, t, x[0], x[1]);
    case TCI_P_LE: return tci_hlo_compare(h, "LE", shape, t, x[0], x[1]);
    case TCI_P_AND: return tci_hlo_binary(h, "and", shape, t, x[0], x[1]);
    case TCI_P_OR: return tci_hlo_binary(h, "or", shape, t, x[0], x[1]);
    case TCI_P_XOR: return tci_hlo_binary(h, "xor", shape, t, x[0], x[1]);
    case TCI_P_NOT: return tci_hlo_unary(h, "not", shape, t, x[0]);
    case TCI_P_SHL: return tci_hlo_binary(h, "shift_left", shape, t, x[0], x[1]);
    case TCI_P_SHR:
        return tci_hlo_binary(h,
                              tci_dtype_is_signed(t) ? "shift_right_arithmetic"
                                                     : "shift_right_logical",
                              shape, t, x[0], x[1]);
    case TCI_P_MULHI: return tci_hlo_mulhi(h, shape, t, x[0], x[1]);
    case TCI_P_POWI: return tci_hlo_powi(h, shape, t, x[0], x[1]);
    case TCI_P_GCD: return tci_hlo_gcd(h, shape, t, x[0], x[1]);
    case TCI_P_SELECT: return tci_hlo_select(h, shape, t, x[0], x[1], x[2]);
    case TCI_P_CAST: return tci_hlo_cast(h, shape, t, to, x[0]);
    case TCI_P_BITS: return tci_hlo_bits(h, shape, t, to, x[0]);
    case TCI_P_ROUND16: return tci_hlo_round(h, shape, TC_F16, x[0]);
    case TCI_P_ROUNDB16: return tci_hlo_round(h, shape, TC_BF16, x[0]);
    case TCI_P_TOINT:
        return tci_hlo_convert(h, shape, t, to, x[0]);
        TCI_MATH_PRIMS(TCI_PRIM_CASE) return tci_hlo_math(h, shape, p, t, x);
    case TCI_P_LANE1: /* slow paths of expansions that have an op: sine, cosine, tan, log */
    case TCI_P_COUNT: break;
    }
    TCI_ASSERT(h->walk->s, false);
    return "";
}

/* ---- the instructions of a node ---- */

typedef struct tci_hlo_lowering {
    const tci_node *n;
    tci_kernel *k;
} tci_hlo_lowering;

/* Operands are loads, one each; numbers that tc knows stay constants, which prims are chosen by. */
static int tci_hlo_access(tci_lower *l, tci_node *n, const int *idx, int guard)
{
    const tci_hlo_lowering *of = (const tci_hlo_lowering *)l->user;
    (void)idx;
    for (int i = 0; i < of->n->n_in; i++) {
        if (of->n->in[i] == n && tci_below(n, TCI_THROUGH_VIEWS, NULL)->op != TCI_OP_CONST) {
            return tci_lower_load(l, i, (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute,
                                  tci_kx_const(l->k, 0), guard);
        }
    }
    return -1;
}

/* An index expression, in i64. */
static const char *tci_hlo_index(tci_hlo *h, const tci_hlo_shape *shape, const tci_kernel *k, int x)
{
    const tci_kx *e = &k->kx[x];
    const char *a = e->a >= 0 ? tci_hlo_index(h, shape, k, e->a) : NULL;
    const char *c = e->op == TCI_KX_AXIS || e->op == TCI_KX_ADD
                        ? NULL
                        : tci_hlo_whole(h, shape, TC_I64, tci_hlo_size(h, e->c));
    switch (e->op) {
    case TCI_KX_CONST: return c;
    case TCI_KX_AXIS:
        return tci_hlo_let(h, "stablehlo.iota dim = %d : %s", tci_kx_number(e),
                           tci_hlo_type(h, TC_I64, shape));
    case TCI_KX_ADD:
        return tci_hlo_binary(h, "add", shape, TC_I64, a, tci_hlo_index(h, shape, k, e->b));
    case TCI_KX_MUL: return tci_hlo_binary(h, "multiply", shape, TC_I64, a, c);
    case TCI_KX_DIV: return tci_hlo_binary(h, "divide", shape, TC_I64, a, c);
    case TCI_KX_MOD: return tci_hlo_binary(h, "remainder", shape, TC_I64, a, c);
    default: TCI_ASSERT(h->walk->s, false); /* BOUND and VALUE stand in no index of these nodes */
    }
    return "";
}

/* Operand i in the compute dtype and the shape of the result. */
static const char *tci_hlo_loaded(tci_hlo *h, const tci_hlo_shape *shape, const tci_node *x,
                                  tc_dtype t, const char *name)
{
    tci_hlo_shape own = tci_hlo_shape_of(h, x->rank, x->shape);
    name = x->dtype == t ? name : tci_hlo_convert(h, &own, (tc_dtype)x->dtype, t, name);
    return x->rank == shape->rank ? name : tci_hlo_broadcast(h, t, &own, shape, NULL, name);
}

static const char *tci_hlo_inst(tci_hlo *h, const tci_hlo_shape *shape, const tci_kernel *k,
                                const tci_kinst *i, const tci_node *n, const char *const *in,
                                const char *const *values)
{
    const char *args[3];
    switch (i->op) {
    case TCI_K_CONST: return tci_hlo_splat(h, shape, (tc_dtype)i->dtype, i->value);
    case TCI_K_LOAD: {
        int operand = tci_kinst_number(i);
        return tci_hlo_loaded(h, shape, n->in[operand], (tc_dtype)i->dtype, in[operand]);
    }
    case TCI_K_INDEX:
        return tci_hlo_convert(h, shape, TC_I64, (tc_dtype)i->dtype,
                               tci_hlo_index(h, shape, k, i->x));
    case TCI_K_PRIM:
        for (int a = 0; a < i->n_args; a++) {
            args[a] = values[i->args[a]];
        }
        return tci_hlo_prim(h, shape, (tci_prim)i->prim,
                            (tc_dtype)k->insts[i->args[i->prim == TCI_P_SELECT]].dtype,
                            (tc_dtype)i->dtype, args);
    default: TCI_ASSERT(h->walk->s, false); /* no guards, reductions or literal slots in here */
    }
    return "";
}

/* Marks what the last instruction needs. */
static bool *tci_hlo_live(tci_hlo *h, const tci_kernel *k, int root)
{
    bool *live = TCI_NEW_ARRAY(h->walk->s, bool, k->n_insts);
    live[root] = true;
    for (int i = root; i >= 0; i--) {
        for (int a = 0; live[i] && a < k->insts[i].n_args; a++) {
            live[k->insts[i].args[a]] = true;
        }
    }
    return live;
}

TCI_FN const char *tci_hlo_scalar_out(tci_hlo *h, tci_node *n, const char *const *in)
{
    tci_scratch *s = h->walk->s;
    tci_hlo_shape shape = tci_hlo_shape_of(h, n->rank, n->shape);
    tci_kernel *k = tci_kernel_make(s);
    tci_hlo_lowering of = {n, k};
    tci_lower l;
    int *idx = TCI_NEW_ARRAY(s, int, n->rank + 1);
    tci_lower_init(&l, s, k);
    l.user = &of;
    l.access = tci_hlo_access;
    for (int i = 0; i < n->rank; i++) {
        idx[i] = tci_kx_axis(k, tci_kernel_axis(k, n->shape[i], false));
    }
    for (int i = 0; i < n->n_in; i++) {
        tci_kernel_operand(k, (tc_dtype)n->in[i]->dtype, false, tci_node_count(n->in[i]));
    }
    int root = tci_lower_value(&l, n, idx, 0);
    const bool *live = tci_hlo_live(h, k, root);
    const char **values = TCI_NEW_ARRAY(s, const char *, k->n_insts + 1);
    for (int i = 0; i <= root; i++) {
        values[i] = live[i] ? tci_hlo_inst(h, &shape, k, &k->insts[i], n, in, values) : NULL;
    }
    tc_dtype made = (tc_dtype)k->insts[root].dtype, to = (tc_dtype)n->dtype;
    return made == to ? values[root] : tci_hlo_convert(h, &shape, made, to, values[root]);
}
/* ---- src/onnx/export_stablehlo_index.c ---- */
/* onnx/export_stablehlo_index.c - exports gathers, scatters, sorts and scans (running reductions)
 * as StableHLO.
 *
 * In: GATHER, SCATTER, TOPK and SCAN nodes. Out: gather, scatter and sort of StableHLO; a SCAN as
 * log2(n) shifted copies that are combined (Hillis and Steele, "Data parallel algorithms", 1986).
 * An index that is EXPANDed along an axis selects whole slices there, like rows of an embedding. */

/* Layout of the axes of an index tensor. */
typedef struct tci_hlo_places {
    int axis, rank;
    tci_hlo_shape shape; /* of the index as it is indexed with: without the axes of slices */
    const char *name;    /* its name, i64, from 0 on */
    int64_t *slices;
    int n_slices; /* axes that are whole */
    int64_t *points;
    int n_points; /* the others, but `axis` */
} tci_hlo_places;

/* True if axis d of the index is an EXPANDed one as large as x's. */
static bool tci_hlo_is_slice(const tci_hlo *h, const tci_node *index, const tci_node *x, int d,
                             int axis)
{
    return d != axis && index->op == TCI_OP_EXPAND && index->in[0]->shape[d] == 1 &&
           tci_hlo_size(h, index->shape[d]) == tci_hlo_size(h, x->shape[d]);
}

static tci_hlo_places tci_hlo_places_of(tci_hlo *h, const tci_node *x, const tci_node *index,
                                        int axis, const char *name)
{
    tci_scratch *s = h->walk->s;
    tci_hlo_places p = {.axis = axis, .rank = index->rank};
    p.slices = TCI_NEW_ARRAY(s, int64_t, p.rank + 1);
    p.points = TCI_NEW_ARRAY(s, int64_t, p.rank + 1);
    int64_t *kept = TCI_NEW_ARRAY(s, int64_t, p.rank + 1);
    int n = 0;
    for (int d = 0; d < p.rank; d++) {
        bool whole = tci_hlo_is_slice(h, index, x, d, axis);
        if (whole) {
            p.slices[p.n_slices++] = d;
        } else {
            kept[n++] = tci_hlo_size(h, index->shape[d]);
        }
        if (!whole && d != axis) {
            p.points[p.n_points++] = d;
        }
    }
    p.shape = tci_hlo_shape_known(h, n, kept);
    if (p.n_slices) { /* the same elements once; other axes of size 1 may be EXPANDed too */
        const tci_node *from = index->in[0];
        tci_hlo_shape own = tci_hlo_shape_of(h, from->rank, from->shape);
        int64_t *few = TCI_NEW_ARRAY(s, int64_t, p.rank + 1);
        n = 0;
        for (int d = 0; d < p.rank; d++) {
            if (!tci_hlo_is_slice(h, index, x, d, axis)) {
                few[n++] = own.sizes[d];
            }
        }
        const tci_hlo_shape once = tci_hlo_shape_known(h, n, few);
        name = tci_hlo_reshape(h, (tc_dtype)index->dtype, &own, &once, tci_ox_named(h->walk, from));
        name = tci_hlo_broadcast(h, (tc_dtype)index->dtype, &once, &p.shape, NULL, name);
    }
    name = tci_hlo_convert(h, &p.shape, (tc_dtype)index->dtype, TC_I64, name);
    const char *below = tci_hlo_compare(h, "LT", &p.shape, TC_I64, name,
                                        tci_hlo_whole(h, &p.shape, TC_I64, 0));
    const char *size = tci_hlo_whole(h, &p.shape, TC_I64, tci_hlo_size(h, x->shape[axis]));
    const char *from_end = tci_hlo_binary(h, "add", &p.shape, TC_I64, name, size);
    p.name = tci_hlo_select(h, &p.shape, TC_I64, below, from_end, name);
    return p;
}

/* Axis of the index tensor, without those of slices, that corresponds to axis d of the node. */
static int64_t tci_hlo_index_axis(const tci_hlo_places *p, int64_t d)
{
    int64_t at = d;
    for (int i = 0; i < p->n_slices; i++) {
        at -= p->slices[i] < d;
    }
    return at;
}

/* x cut to the sizes that the index has off the axis. */
static const char *tci_hlo_cut(tci_hlo *h, const tci_node *n, const tci_hlo_shape *from,
                               const tci_hlo_shape *to, const char *x)
{
    int64_t *start = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 1);
    int64_t *step = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 1);
    bool same = true;
    for (int i = 0; i < n->rank; i++) {
        step[i] = 1;
        same = same && from->sizes[i] == to->sizes[i];
    }
    return same ? x : tci_hlo_slice(h, (tc_dtype)n->dtype, from, to, start, step, x);
}

TCI_FN const char *tci_hlo_gather_out(tci_hlo *h, const tci_node *n, const char *const *in)
{
    tci_scratch *s = h->walk->s;
    int axis = (int)n->attr[0];
    const tci_hlo_shape whole = tci_hlo_shape_of(h, n->rank, n->in[0]->shape);
    const tci_hlo_places p = tci_hlo_places_of(h, n->in[0], n->in[1], axis, in[1]);
    int64_t *sizes = TCI_NEW_ARRAY(s, int64_t, n->rank + 1);
    int64_t *slice = TCI_NEW_ARRAY(s, int64_t, n->rank + 1);
    if (!whole.sizes[axis]) { /* nothing can be read: the result is empty */
        const tci_hlo_shape none = tci_hlo_shape_of(h, n->rank, n->shape);
        return tci_hlo_whole(h, &none, (tc_dtype)n->dtype, 0);
    }
    int64_t *batch = TCI_NEW_ARRAY(s, int64_t, n->rank + 1);
    for (int d = 0; d < n->rank; d++) {
        sizes[d] = d == axis ? whole.sizes[d] : tci_hlo_size(h, n->shape[d]);
        slice[d] = 1;
    }
    for (int i = 0; i < p.n_slices; i++) {
        slice[p.slices[i]] = sizes[p.slices[i]];
    }
    for (int i = 0; i < p.n_points; i++) {
        batch[i] = tci_hlo_index_axis(&p, p.points[i]);
    }
    const tci_hlo_shape from = tci_hlo_shape_known(h, n->rank, sizes);
    const char *x = tci_hlo_cut(h, n, &whole, &from, in[0]);
    return tci_hlo_let(h,
                       "\"stablehlo.gather\"(%s, %s) <{dimension_numbers = #stablehlo.gather<"
                       "offset_dims = %s, collapsed_slice_dims = [%d], operand_batching_dims = %s, "
                       "start_indices_batching_dims = %s, start_index_map = [%d], "
                       "index_vector_dim = %d>, indices_are_sorted = false, slice_sizes = %s}> : "
                       "(%s, %s) -> %s",
                       x, p.name, tci_hlo_list(h, p.n_slices, p.slices), axis,
                       tci_hlo_list(h, p.n_points, p.points), tci_hlo_list(h, p.n_points, batch),
                       axis, p.shape.rank, tci_hlo_array(h, n->rank, slice),
                       tci_hlo_type(h, (tc_dtype)n->dtype, &from),
                       tci_hlo_type(h, TC_I64, &p.shape), tci_hlo_node_type(h, n));
}

/* The coordinates of each update: those of the axes of points, and the index. i64, [..., k]. */
static const char *tci_hlo_coordinates(tci_hlo *h, const tci_hlo_places *p, int64_t *to,
                                       tci_hlo_shape *shape)
{
    tci_scratch *s = h->walk->s;
    int rank = p->shape.rank, n = 0;
    int64_t *sizes = TCI_NEW_ARRAY(s, int64_t, rank + 2);
    const char **parts = TCI_NEW_ARRAY(s, const char *, rank + 2);
    const char **types = TCI_NEW_ARRAY(s, const char *, rank + 2);
    for (int d = 0; d < rank; d++) {
        sizes[d] = p->shape.sizes[d];
    }
    sizes[rank] = 1;
    const tci_hlo_shape one = tci_hlo_shape_known(h, rank + 1, sizes);
    for (int i = 0; i < p->n_points; i++, n++) {
        to[n] = p->points[i];
        parts[n] = tci_hlo_let(h, "stablehlo.iota dim = %lld : %s",
                               (long long)tci_hlo_index_axis(p, to[n]),
                               tci_hlo_type(h, TC_I64, &one));
    }
    to[n] = p->axis;
    parts[n++] = tci_hlo_reshape(h, TC_I64, &p->shape, &one, p->name);
    for (int i = 0; i < n; i++) {
        types[i] = tci_hlo_type(h, TC_I64, &one);
    }
    int64_t *joined = TCI_NEW_ARRAY(s, int64_t, rank + 2);
    for (int d = 0; d <= rank; d++) {
        joined[d] = d < rank ? sizes[d] : n;
    }
    *shape = tci_hlo_shape_known(h, rank + 1, joined);
    return tci_hlo_join(h, rank, n, parts, types, tci_hlo_type(h, TC_I64, shape));
}

/* The statement of a region that joins a and b by a mode. */
static const char *tci_hlo_mode(tci_hlo *h, int mode, tc_dtype t, const char *a, const char *b)
{
    static const int ops[] = {[TCI_MODE_ADD] = TCI_OP_SUM,
                              [TCI_MODE_MIN] = TCI_OP_MIN,
                              [TCI_MODE_MAX] = TCI_OP_MAX,
                              [TCI_MODE_MUL] = TCI_OP_PROD};
    const tci_hlo_shape point = {0, NULL, ""};
    return mode == TCI_MODE_SET ? b
                                : tci_hlo_binary(h, tci_hlo_joins(ops[mode], t), &point, t, a, b);
}

TCI_FN const char *tci_hlo_scatter_out(tci_hlo *h, const tci_node *n, const char *const *in)
{
    tci_scratch *s = h->walk->s;
    tc_dtype t = (tc_dtype)n->dtype;
    const tci_hlo_places p = tci_hlo_places_of(h, n, n->in[1], (int)n->attr[0], in[1]);
    int64_t *to = TCI_NEW_ARRAY(s, int64_t, n->rank + 1);
    tci_hlo_shape shape;
    const char *at = tci_hlo_coordinates(h, &p, to, &shape), *dtype = tci_hlo_dtype(t);
    const char *r = tci_hlo_name(h), *a = tci_hlo_name(h), *b = tci_hlo_name(h);
    int k = p.n_points + 1;
    int64_t *inserted = TCI_NEW_ARRAY(s, int64_t, n->rank + 1);
    for (int i = 0, d = 0; d < n->rank; d++) {
        bool whole = false;
        for (int j = 0; j < p.n_slices; j++) {
            whole = whole || p.slices[j] == d;
        }
        if (!whole) {
            inserted[i++] = d;
        }
    }
    tci_str_printf(&h->out,
                   "  %s = \"stablehlo.scatter\"(%s, %s, %s) <{scatter_dimension_numbers "
                   "= #stablehlo.scatter<update_window_dims = %s, inserted_window_dims = %s, "
                   "scatter_dims_to_operand_dims = %s, index_vector_dim = %d>, indices_are_sorted "
                   "= false, unique_indices = false}> ({\n  ^bb0(%s: tensor<%s>, %s: tensor<%s>"
                   "):\n",
                   r, in[0], at, in[2], tci_hlo_list(h, p.n_slices, p.slices),
                   tci_hlo_list(h, k, inserted), tci_hlo_list(h, k, to), shape.rank - 1, a, dtype,
                   b, dtype);
    const char *y = tci_hlo_mode(h, (int)n->attr[1], t, a, b);
    tci_str_printf(&h->out, "  stablehlo.return %s : tensor<%s>\n  }) : (%s, %s, %s) -> %s\n", y,
                   dtype, tci_hlo_node_type(h, n), tci_hlo_type(h, TC_I64, &shape),
                   tci_hlo_node_type(h, n->in[2]), tci_hlo_node_type(h, n));
    return r;
}

/* Values and positions in order, by a stable sort; then the first of the positions. */
TCI_FN const char *tci_hlo_topk_out(tci_hlo *h, const tci_node *n, const char *x)
{
    const tci_hlo_shape shape = tci_hlo_shape_of(h, n->rank, n->in[0]->shape);
    const tci_hlo_shape point = {0, NULL, ""}, to = tci_hlo_shape_of(h, n->rank, n->shape);
    tc_dtype t = (tc_dtype)n->in[0]->dtype;
    const char *type = tci_hlo_type(h, t, &shape), *places = tci_hlo_type(h, TC_I64, &shape);
    const char *at = tci_hlo_let(h, "stablehlo.iota dim = %lld : %s", (long long)n->attr[0],
                                 places);
    const char *r = tci_hlo_name(h), *a = tci_hlo_name(h), *b = tci_hlo_name(h);
    const char *dtype = tci_hlo_dtype(t);
    tci_str_printf(&h->out,
                   "  %s:2 = \"stablehlo.sort\"(%s, %s) <{dimension = %lld : i64, "
                   "is_stable = true}> ({\n  ^bb0(%s: tensor<%s>, %s: tensor<%s>, %s: tensor<i64>, "
                   "%s: tensor<i64>):\n",
                   r, x, at, (long long)n->attr[0], a, dtype, b, dtype, tci_hlo_name(h),
                   tci_hlo_name(h));
    const char *before = tci_hlo_before(h, &point, t, n->attr[1], n->attr[1], a, b);
    tci_str_printf(&h->out, "  stablehlo.return %s : tensor<i1>\n  }) : (%s, %s) -> (%s, %s)\n",
                   before, type, places, type, places);
    return tci_hlo_cut(h, n, &shape, &to, tci_scratch_printf(h->walk->s, "%s#1", r));
}

/* Combined with the element 1, 2, 4, ... positions earlier. Sums of f16 and bf16 are f32. */
TCI_FN const char *tci_hlo_scan_out(tci_hlo *h, const tci_node *n, const char *x)
{
    static const int ops[] = {[TCI_MODE_ADD] = TCI_OP_SUM,
                              [TCI_MODE_MIN] = TCI_OP_MIN,
                              [TCI_MODE_MAX] = TCI_OP_MAX,
                              [TCI_MODE_MUL] = TCI_OP_PROD};
    const tci_hlo_shape shape = tci_hlo_shape_of(h, n->rank, n->shape), point = {0, NULL, ""};
    int axis = (int)n->attr[0], op = ops[n->attr[2]];
    bool adds = op == TCI_OP_SUM || op == TCI_OP_PROD;
    tc_dtype t = adds && tci_dtype_is_half((tc_dtype)n->dtype) ? TC_F32 : (tc_dtype)n->dtype;
    const char *none = tci_hlo_splat(h, &point, t, tci_hlo_identity(op, t));
    x = tci_hlo_convert(h, &shape, (tc_dtype)n->in[0]->dtype, t, x);
    for (int64_t by = 1; by < shape.sizes[axis]; by *= 2) {
        int64_t *before = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 1);
        before[axis] = n->attr[1] ? -by : by;
        const char *far = tci_hlo_pad(h, t, &shape, &shape, before, none, x);
        x = tci_hlo_binary(h, tci_hlo_joins(op, t), &shape, t, far, x);
    }
    return tci_hlo_convert(h, &shape, t, (tc_dtype)n->dtype, x);
}
/* ---- src/onnx/export_stablehlo_while.c ---- */
/* onnx/export_stablehlo_while.c - exports tc's loops (REPEAT nodes: scan, while) as
 * stablehlo.while.
 *
 * In: a REPEAT node and the names of its outer operands. Out: one while whose state is the
 * iteration number, the carries, the inputs and loop invariants (unchanged), a buffer for each
 * output, and one for the rows of each carry if a node of the graph reads them. Nothing is
 * captured, since not all consumers of StableHLO accept captures. */

#include <string.h>

typedef struct tci_hlo_state {
    const char **names, **types; /* of the state in the body */
    int n, n_rows;               /* n_rows: 0, or one for each carry */
    int x, held, y, rows;        /* where each kind begins */
} tci_hlo_state;

/* The shape of a value stacked along a new first axis. */
static tci_hlo_shape tci_hlo_stacked(const tci_hlo *h, const tci_node *n, int64_t count)
{
    int64_t *sizes = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 2);
    sizes[0] = count;
    for (int i = 0; i < n->rank; i++) {
        sizes[i + 1] = tci_hlo_size(h, n->shape[i]);
    }
    return tci_hlo_shape_known(h, n->rank + 1, sizes);
}

/* Where the element `at` of a stack begins: its number, then zeros. */
static const char *tci_hlo_corner(tci_hlo *h, const char *at, int rank, tci_str *types)
{
    const tci_hlo_shape point = {0, NULL, ""};
    tci_str names = {.s = h->walk->s};
    const char *zero = rank ? tci_hlo_whole(h, &point, TC_I64, 0) : NULL;
    tci_str_add(&names, at);
    tci_str_add(types, "tensor<i64>");
    for (int i = 0; i < rank; i++) {
        tci_str_printf(&names, ", %s", zero);
        tci_str_add(types, ", tensor<i64>");
    }
    return tci_str_text(&names);
}

/* Element `at` of a stack; n has the element's shape. */
static const char *tci_hlo_element(tci_hlo *h, const tci_node *n, int64_t count, const char *stack,
                                   const char *at)
{
    tc_dtype t = (tc_dtype)n->dtype;
    const tci_hlo_shape all = tci_hlo_stacked(h, n, count), one = tci_hlo_stacked(h, n, 1);
    const tci_hlo_shape own = tci_hlo_shape_of(h, n->rank, n->shape);
    tci_str types = {.s = h->walk->s};
    const char *corner = tci_hlo_corner(h, at, n->rank, &types);
    const char *x = tci_hlo_let(h, "stablehlo.dynamic_slice %s, %s, sizes = %s : (%s, %s) -> %s",
                                stack, corner, tci_hlo_list(h, one.rank, one.sizes),
                                tci_hlo_type(h, t, &all), tci_str_text(&types),
                                tci_hlo_type(h, t, &one));
    return tci_hlo_reshape(h, t, &one, &own, x);
}

/* The stack with x, of n's shape, as element `at`. */
static const char *tci_hlo_put(tci_hlo *h, const tci_node *n, int64_t count, const char *stack,
                               const char *x, const char *at)
{
    tc_dtype t = (tc_dtype)n->dtype;
    const tci_hlo_shape all = tci_hlo_stacked(h, n, count), one = tci_hlo_stacked(h, n, 1);
    const tci_hlo_shape own = tci_hlo_shape_of(h, n->rank, n->shape);
    tci_str types = {.s = h->walk->s};
    const char *corner = tci_hlo_corner(h, at, n->rank, &types);
    x = tci_hlo_reshape(h, t, &own, &one, x);
    return tci_hlo_let(h, "stablehlo.dynamic_update_slice %s, %s, %s : (%s, %s, %s) -> %s", stack,
                       x, corner, tci_hlo_type(h, t, &all), tci_hlo_type(h, t, &one),
                       tci_str_text(&types), tci_hlo_type(h, t, &all));
}

/* The state before the first step. */
static tci_hlo_state tci_hlo_begin(tci_hlo *h, const tci_repeat *r, int64_t length, bool rows,
                                   const char *const *in)
{
    const tci_hlo_shape point = {0, NULL, ""};
    int outside = r->n_carry + r->n_x + r->n_held, n = 0;
    tci_hlo_state s = {.n_rows = rows ? r->n_carry : 0};
    s.x = 1 + r->n_carry;
    s.held = s.x + r->n_x;
    s.y = s.held + r->n_held;
    s.rows = s.y + r->n_y;
    s.n = s.rows + s.n_rows;
    s.names = TCI_NEW_ARRAY(h->walk->s, const char *, s.n);
    s.types = TCI_NEW_ARRAY(h->walk->s, const char *, s.n);
    s.names[n] = tci_hlo_whole(h, &point, TC_I64, 0);
    s.types[n++] = "tensor<i64>";
    for (int i = 0; i < outside; i++, n++) {
        s.names[n] = in[i];
        s.types[n] = tci_hlo_node_type(h, r->init[i]); /* init, xs and held follow each other */
    }
    for (int i = 0; i < r->n_y + s.n_rows; i++, n++) {
        bool is_row = i >= r->n_y;
        const tci_node *one = is_row ? r->next[i - r->n_y] : r->y[i];
        const tci_hlo_shape all = tci_hlo_stacked(h, one, length + is_row);
        s.names[n] = tci_hlo_whole(h, &all, (tc_dtype)one->dtype, 0);
        s.types[n] = tci_hlo_type(h, (tc_dtype)one->dtype, &all);
        if (is_row) {
            const char *at = tci_hlo_whole(h, &point, TC_I64, r->reverse ? length : 0);
            s.names[n] = tci_hlo_put(h, one, length + 1, s.names[n], in[i - r->n_y], at);
        }
    }
    return s;
}

/* The body: names of the state after a step, given those before it. */
static void tci_hlo_body(tci_hlo *h, const tci_repeat *r, int64_t length, const tci_hlo_state *s,
                         const char **names)
{
    const tci_hlo_shape point = {0, NULL, ""};
    tci_ox_walk *w = h->walk;
    tci_ox_left *outer = w->left;
    uint32_t n_outer = w->n_left;
    const char *at = names[0];
    w->left = NULL; /* a body is closed */
    w->n_left = 0;
    if (r->reverse) {
        at = tci_hlo_binary(h, "subtract", &point, TC_I64,
                            tci_hlo_whole(h, &point, TC_I64, length - 1), at);
    }
    for (int i = 0; i < r->n_carry; i++) {
        tci_ox_set_name(w, r->carry[i], names[1 + i]);
    }
    for (int i = 0; i < r->n_x; i++) {
        tci_ox_set_name(w, r->x[i], tci_hlo_element(h, r->x[i], length, names[s->x + i], at));
    }
    for (int i = 0; i < r->n_held; i++) {
        tci_ox_set_name(w, r->inner[i], names[s->held + i]);
    }
    const char *one = tci_hlo_whole(h, &point, TC_I64, 1);
    const char *above = tci_hlo_binary(h, "add", &point, TC_I64, at, one);
    for (int i = 0; i < r->n_y; i++) {
        names[s->y + i] = tci_hlo_put(h, r->y[i], length, names[s->y + i],
                                      tci_ox_walk_to(w, r->y[i]), at);
    }
    for (int i = 0; i < r->n_carry; i++) {
        names[1 + i] = tci_ox_walk_to(w, r->next[i]);
    }
    for (int i = 0; i < s->n_rows; i++) {
        names[s->rows + i] = tci_hlo_put(h, r->next[i], length + 1, names[s->rows + i],
                                         names[1 + i], r->reverse ? at : above);
    }
    names[0] = tci_hlo_binary(h, "add", &point, TC_I64, names[0], one);
    w->left = outer;
    w->n_left = n_outer;
}

/* "a, b, c" */
static const char *tci_hlo_all(const tci_hlo *h, int n, const char *const *items)
{
    tci_str text = {.s = h->walk->s};
    for (int i = 0; i < n; i++) {
        tci_str_printf(&text, "%s%s", i ? ", " : "", items[i]);
    }
    return tci_str_text(&text);
}

/* The while; s->names are then those of its results. */
static void tci_hlo_while(tci_hlo *h, const tci_repeat *r, int64_t length, tci_hlo_state *s)
{
    const tci_hlo_shape point = {0, NULL, ""};
    const char **names = TCI_NEW_ARRAY(h->walk->s, const char *, s->n), *made = tci_hlo_name(h);
    const char *types = tci_hlo_all(h, s->n, s->types);
    tci_str_printf(&h->out, "  %s:%d = stablehlo.while(", made, s->n);
    for (int i = 0; i < s->n; i++) {
        names[i] = tci_hlo_name(h);
        tci_str_printf(&h->out, "%s%s = %s", i ? ", " : "", names[i], s->names[i]);
        s->names[i] = tci_scratch_printf(h->walk->s, "%s#%d", made, i);
    }
    tci_str_printf(&h->out, ") : %s\n  cond {\n", types);
    const char *goes = tci_hlo_compare(h, "LT", &point, TC_I64, names[0],
                                       tci_hlo_whole(h, &point, TC_I64, length));
    if (r->stops >= 0) {
        goes = tci_hlo_binary(h, "and", &point, TC_BOOL, goes, names[1 + r->stops]);
    }
    tci_str_printf(&h->out, "  stablehlo.return %s : tensor<i1>\n  } do {\n", goes);
    tci_hlo_body(h, r, length, s, names);
    tci_str_printf(&h->out, "  stablehlo.return %s : %s\n  }\n", tci_hlo_all(h, s->n, names),
                   types);
}

TCI_FN const char *tci_hlo_repeat_out(tci_hlo *h, tci_node *n, const char *const *in)
{
    const tci_repeat r = tci_repeat_of(n);
    int64_t length = tci_hlo_size(h, r.length);
    bool rows = tci_ox_rows_are_read(h->walk, n);
    tci_hlo_state s = tci_hlo_begin(h, &r, length, rows, in);
    if (length > 0) {
        tci_hlo_while(h, &r, length, &s);
    }
    tci_hlo_loop loop = {n, TCI_NEW_ARRAY(h->walk->s, const char *, tci_repeat_n_results(&r))};
    for (int i = 0; i < r.n_carry; i++) {
        loop.results[i] = s.names[1 + i];
        loop.results[r.n_carry + r.n_y + i] = s.n_rows ? s.names[s.rows + i] : NULL;
    }
    for (int i = 0; i < r.n_y; i++) {
        loop.results[r.n_carry + i] = s.names[s.y + i];
    }
    TCI_PUSH(h->walk->s, h->loops, h->n_loops, h->cap_loops, loop);
    return ""; /* a loop has no value of its own */
}

TCI_FN const char *tci_hlo_result_out(tci_hlo *h, const tci_node *n)
{
    for (int i = h->n_loops - 1; i >= 0; i--) {
        if (h->loops[i].repeat == n->in[0]) {
            return h->loops[i].results[n->attr[0]];
        }
    }
    return NULL;
}
/* ---- src/onnx/export_stablehlo_conv.c ---- */
/* onnx/export_stablehlo_conv.c - exports convolutions and pools as StableHLO.
 *
 * In: a CONTRACT or a reduction of a WINDOW (onnx/find_conv.h). Out: convolution, with operands
 * arranged as [batch, groups * channels, spatial positions] and [groups * filters, channels, window
 * elements], or reduce_window. */

/* x and the filters, or x, as the list of what is needed. */
TCI_FN int tci_hlo_conv_needs(tci_hlo *h, tci_node *n, tci_node *const **list)
{
    tci_ox_conv c;
    tci_ox_sliding w;
    tci_node **two = TCI_NEW_ARRAY(h->walk->s, tci_node *, 2);
    *list = two;
    if (tci_op_is_reduce(n->op) && tci_ox_find_pool(n, &w)) {
        two[0] = w.x;
        return 1;
    } else if (tci_ox_find_conv(h->walk->s, n, &c)) {
        two[0] = c.w.x;
        two[1] = c.f;
        return 2;
    }
    return 0;
}

/* Axes being put in order, which are merged into few. */
typedef struct tci_hlo_order {
    int64_t *axes, *sizes;
    int n, n_merged;
} tci_hlo_order;

static tci_hlo_order tci_hlo_no_order(tci_hlo *h, int rank)
{
    return (tci_hlo_order){TCI_NEW_ARRAY(h->walk->s, int64_t, rank + 1),
                           TCI_NEW_ARRAY(h->walk->s, int64_t, rank + TCI_OX_SPATIAL + 3), 0, 0};
}

/* The axes of lists follow as one axis. */
static void tci_hlo_merge(tci_hlo *h, tci_hlo_order *o, int which, int n,
                          const tci_contract_axis_of *const *list, bool goes_on)
{
    int64_t size = 1;
    for (int i = 0; i < n; i++) {
        o->axes[o->n++] = list[i]->at[which];
        size *= tci_hlo_size(h, list[i]->size);
    }
    if (goes_on) {
        o->sizes[o->n_merged - 1] *= size;
    } else {
        o->sizes[o->n_merged++] = size;
    }
}

static void tci_hlo_spatial(tci_hlo_order *o, int n, const int *axes, const int64_t *sizes)
{
    for (int i = 0; i < n; i++) {
        o->axes[o->n++] = axes[i];
        o->sizes[o->n_merged++] = sizes[axes[i]];
    }
}

static const char *tci_hlo_ordered(tci_hlo *h, const tci_node *n, const tci_hlo_order *o,
                                   const char *x, tci_hlo_shape *shape)
{
    const tci_hlo_shape from = tci_hlo_shape_of(h, n->rank, n->shape);
    *shape = tci_hlo_shape_known(h, o->n_merged, o->sizes);
    return tci_hlo_arrange(h, (tc_dtype)n->dtype, &from, o->axes, shape, x);
}

/* The result, [batch, groups * filters, positions], as n has its axes. */
static const char *tci_hlo_as_result(tci_hlo *h, const tci_ox_conv *c, const tci_node *n,
                                     const tci_hlo_shape *from, const char *y)
{
    const tci_hlo_shape to = tci_hlo_shape_of(h, n->rank, n->shape);
    tci_hlo_order o = tci_hlo_no_order(h, n->rank);
    tci_hlo_merge(h, &o, 2, c->n_batch, c->batch, false);
    tci_hlo_merge(h, &o, 2, c->n_groups, c->groups, false);
    tci_hlo_merge(h, &o, 2, c->n_filters, c->filters, false);
    tci_hlo_spatial(&o, c->w.n, c->out_axis, to.sizes);
    int64_t *split = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 1);
    int64_t *back = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 1);
    for (int i = 0; i < n->rank; i++) {
        split[i] = to.sizes[o.axes[i]];
        back[o.axes[i]] = i;
    }
    const tci_hlo_shape parts = tci_hlo_shape_known(h, n->rank, split);
    bool same = from->rank == parts.rank;
    for (int i = 0; i < from->rank && same; i++) {
        same = from->sizes[i] == parts.sizes[i];
    }
    y = same ? y : tci_hlo_reshape(h, (tc_dtype)n->dtype, from, &parts, y);
    return tci_hlo_arrange(h, (tc_dtype)n->dtype, &parts, back, &to, y);
}

/* "[[1, 1], [0, 2]]" */
static const char *tci_hlo_pairs(tci_hlo *h, int n, const int64_t *a, const int64_t *b)
{
    tci_str text = {.s = h->walk->s};
    for (int i = 0; i < n; i++) {
        tci_str_printf(&text, "%s[%lld, %lld]", i ? ", " : "", (long long)a[i], (long long)b[i]);
    }
    return tci_scratch_printf(h->walk->s, "[%s]", tci_str_text(&text));
}

TCI_FN const char *tci_hlo_conv_out(tci_hlo *h, const tci_ox_conv *c, const tci_node *n,
                                    const char *const *in)
{
    const tci_ox_sliding *w = &c->w;
    int xs = c->which, fs = !c->which, k = w->n;
    int64_t groups = 1, stride[TCI_OX_SPATIAL], dilation[TCI_OX_SPATIAL], before[TCI_OX_SPATIAL];
    int64_t after[TCI_OX_SPATIAL], *made = TCI_NEW_ARRAY(h->walk->s, int64_t, k + 2);
    tci_hlo_order ox = tci_hlo_no_order(h, w->x->rank), of = tci_hlo_no_order(h, c->f->rank);
    tci_hlo_shape x_shape, f_shape;
    tci_str places = {.s = h->walk->s};
    tci_hlo_merge(h, &ox, xs, c->n_batch, c->batch, false);
    tci_hlo_merge(h, &ox, xs, c->n_groups, c->groups, false);
    tci_hlo_merge(h, &ox, xs, c->n_channels, c->channels, true);
    tci_hlo_spatial(&ox, k, w->axis, tci_hlo_shape_of(h, w->x->rank, w->x->shape).sizes);
    tci_hlo_merge(h, &of, fs, c->n_groups, c->groups, false);
    groups = of.sizes[0];
    tci_hlo_merge(h, &of, fs, c->n_filters, c->filters, true);
    tci_hlo_merge(h, &of, fs, c->n_channels, c->channels, false);
    tci_hlo_spatial(&of, k, c->f_axis, tci_hlo_shape_of(h, c->f->rank, c->f->shape).sizes);
    const char *x = tci_hlo_ordered(h, w->x, &ox, in[0], &x_shape);
    const char *f = tci_hlo_ordered(h, c->f, &of, in[1], &f_shape);
    made[0] = x_shape.sizes[0];
    made[1] = f_shape.sizes[0];
    for (int i = 0; i < k; i++) {
        stride[i] = tci_hlo_size(h, w->stride[i]);
        dilation[i] = tci_hlo_size(h, w->dilation[i]);
        before[i] = tci_hlo_size(h, w->before[i]);
        after[i] = tci_hlo_size(h, w->after[i]);
        made[2 + i] = tci_hlo_size(h, n->shape[c->out_axis[i]]);
        tci_str_printf(&places, ", %d", i);
    }
    const tci_hlo_shape to = tci_hlo_shape_known(h, k + 2, made);
    const char *at = tci_str_text(&places), *exact = w->x->dtype == TC_F32 ? "HIGHEST" : "DEFAULT";
    const char *y = tci_hlo_let(
        h,
        "stablehlo.convolution(%s, %s) dim_numbers = [b, f%s]x[o, i%s]->[b, f%s], window = "
        "{stride = %s, pad = %s, rhs_dilate = %s} {batch_group_count = 1 : i64, "
        "feature_group_count = %lld : i64, precision_config = [#stablehlo<precision %s>, "
        "#stablehlo<precision %s>]} : (%s, %s) -> %s",
        x, f, at, at, at, tci_hlo_list(h, k, stride), tci_hlo_pairs(h, k, before, after),
        tci_hlo_list(h, k, dilation), (long long)groups, exact, exact,
        tci_hlo_type(h, (tc_dtype)w->x->dtype, &x_shape),
        tci_hlo_type(h, (tc_dtype)c->f->dtype, &f_shape), tci_hlo_type(h, (tc_dtype)n->dtype, &to));
    return tci_hlo_as_result(h, c, n, &to, y);
}

TCI_FN const char *tci_hlo_pool_out(tci_hlo *h, const tci_ox_sliding *w, const tci_node *n,
                                    const char *x)
{
    const tci_hlo_shape from = tci_hlo_shape_of(h, w->x->rank, w->x->shape), point = {0, NULL, ""};
    const tci_hlo_shape to = tci_hlo_shape_of(h, n->rank, n->shape);
    tc_dtype t = n->op == TCI_OP_SUM && tci_dtype_is_half((tc_dtype)n->dtype) ? TC_F32
                                                                              : (tc_dtype)n->dtype;
    int64_t *lists[5]; /* kernel, stride, dilation, before, after */
    for (int i = 0; i < 5; i++) {
        lists[i] = TCI_NEW_ARRAY(h->walk->s, int64_t, from.rank + 1);
        for (int d = 0; d < from.rank; d++) {
            lists[i][d] = i < 3;
        }
    }
    for (int i = 0; i < w->n; i++) {
        lists[0][w->axis[i]] = tci_hlo_size(h, w->kernel[i]);
        lists[1][w->axis[i]] = tci_hlo_size(h, w->stride[i]);
        lists[2][w->axis[i]] = tci_hlo_size(h, w->dilation[i]);
        lists[3][w->axis[i]] = tci_hlo_size(h, w->before[i]);
        lists[4][w->axis[i]] = tci_hlo_size(h, w->after[i]);
    }
    x = tci_hlo_convert(h, &from, (tc_dtype)w->x->dtype, t, x);
    const char *none = tci_hlo_splat(h, &point, t, tci_hlo_identity(n->op, t));
    const char *r = tci_hlo_name(h), *a = tci_hlo_name(h), *b = tci_hlo_name(h);
    const char *dtype = tci_hlo_dtype(t);
    tci_str_printf(&h->out,
                   "  %s = \"stablehlo.reduce_window\"(%s, %s) <{window_dimensions = %s, "
                   "window_strides = %s, window_dilations = %s, padding = dense<%s> : "
                   "tensor<%dx2xi64>}> ({\n  ^bb0(%s: tensor<%s>, %s: tensor<%s>):\n",
                   r, x, none, tci_hlo_array(h, from.rank, lists[0]),
                   tci_hlo_array(h, from.rank, lists[1]), tci_hlo_array(h, from.rank, lists[2]),
                   tci_hlo_pairs(h, from.rank, lists[3], lists[4]), from.rank, a, dtype, b, dtype);
    const char *y = tci_hlo_binary(h, tci_hlo_joins(n->op, t), &point, t, a, b);
    tci_str_printf(&h->out, "  stablehlo.return %s : tensor<%s>\n  }) : (%s, tensor<%s>) -> %s\n",
                   y, dtype, tci_hlo_type(h, t, &from), dtype, tci_hlo_type(h, t, &to));
    return tci_hlo_convert(h, &to, t, (tc_dtype)n->dtype, r);
}
/* ---- src/onnx/export_stablehlo.c ---- */
/* onnx/export_stablehlo.c - tc_export_stablehlo: writes a graph as the text of a StableHLO module.
 *
 * In: tensors, as tc_compile_fn takes them, and the values of symbolic sizes. Out: the text of a
 * module with one function, @main, as XLA's PJRT plugins compile it.
 *
 * Design: every op is exported as given by the table TCI_HLO_WAY_..., which covers every op.
 * Elementwise ops, casts and random bits become the scalar operations of their kernel form
 * (export_stablehlo_scalar.c); movement ops, reductions, contractions, sorts and loops the
 * StableHLO op of the same meaning; composites their expansion, which XLA's own passes fuse. */

#include <string.h>

/* Memory of the graph: its bytes as hexadecimal digits; of bool as bytes that are compared. */
static const char *tci_hlo_memory(tci_hlo *h, tci_node *n)
{
    static const char digits[] = "0123456789ABCDEF";
    int64_t bytes;
    const unsigned char *data = (const unsigned char *)tci_ox_memory_of(h->walk, n, &bytes);
    const tci_hlo_shape shape = tci_hlo_shape_of(h, n->rank, n->shape);
    tc_dtype t = (tc_dtype)n->dtype, as = t == TC_BOOL ? TC_U8 : t;
    if (!bytes) {
        return tci_hlo_whole(h, &shape, t, 0);
    }
    const char *name = tci_hlo_name(h);
    char *text = tci_scratch_get(h->walk->s, (size_t)bytes * 2 + 1);
    for (int64_t i = 0; i < bytes; i++) {
        text[2 * i] = digits[data[i] >> 4];
        text[2 * i + 1] = digits[data[i] & 15];
    }
    tci_str_printf(&h->out, "  %s = stablehlo.constant dense<\"0x", name);
    tci_str_add_n(&h->out, text, (size_t)bytes * 2);
    tci_str_printf(&h->out, "\"> : %s\n", tci_hlo_type(h, as, &shape));
    return as == t ? name
                   : tci_hlo_compare(h, "NE", &shape, as, name, tci_hlo_whole(h, &shape, as, 0));
}

/* ---- movement ---- */

static const char *tci_hlo_slice_out(tci_hlo *h, const tci_node *n, const char *x)
{
    const tci_hlo_shape from = tci_hlo_shape_of(h, n->rank, n->in[0]->shape);
    const tci_hlo_shape to = tci_hlo_shape_of(h, n->rank, n->shape);
    int64_t *start = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 1), n_back = 0;
    int64_t *step = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 1);
    int64_t *back = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 1);
    for (int i = 0; i < n->rank; i++) {
        start[i] = tci_hlo_size(h, tci_node_dims(n)[2 * i]);
        step[i] = tci_hlo_size(h, tci_node_dims(n)[2 * i + 1]);
        if (step[i] < 0) { /* the axis is turned first */
            start[i] = from.sizes[i] - 1 - start[i];
            step[i] = -step[i];
            back[n_back++] = i;
        }
    }
    if (n_back) {
        x = tci_hlo_let(h, "stablehlo.reverse %s, dims = %s : %s", x,
                        tci_hlo_list(h, (int)n_back, back), tci_hlo_node_type(h, n->in[0]));
    }
    return tci_hlo_slice(h, (tc_dtype)n->dtype, &from, &to, start, step, x);
}

static const char *tci_hlo_pad_out(tci_hlo *h, const tci_node *n, const char *const *in)
{
    const tci_hlo_shape from = tci_hlo_shape_of(h, n->rank, n->in[0]->shape);
    const tci_hlo_shape to = tci_hlo_shape_of(h, n->rank, n->shape);
    int64_t *before = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 1);
    for (int i = 0; i < n->rank; i++) {
        before[i] = tci_hlo_size(h, tci_node_dims(n)[i]);
    }
    return tci_hlo_pad(h, (tc_dtype)n->dtype, &from, &to, before, in[1], in[0]);
}

static const char *tci_hlo_cat_out(tci_hlo *h, const tci_node *n, const char *const *in)
{
    const char **types = TCI_NEW_ARRAY(h->walk->s, const char *, n->n_in);
    for (int i = 0; i < n->n_in; i++) {
        types[i] = tci_hlo_node_type(h, n->in[i]);
    }
    return tci_hlo_join(h, (int)n->attr[0], n->n_in, in, types, tci_hlo_node_type(h, n));
}

/* The elements of x that an index names along an axis: gathered, with all other axes whole. index:
 * i64 of one axis; its axis takes the place of x's. */
static const char *tci_hlo_take(tci_hlo *h, tc_dtype t, const tci_hlo_shape *from, int axis,
                                const char *index, int64_t count, const char *x)
{
    int64_t *sizes = TCI_NEW_ARRAY(h->walk->s, int64_t, from->rank + 1), n = 0;
    int64_t *whole = TCI_NEW_ARRAY(h->walk->s, int64_t, from->rank + 1);
    int64_t *offsets = TCI_NEW_ARRAY(h->walk->s, int64_t, from->rank + 1);
    for (int i = 0; i < from->rank; i++) {
        sizes[i] = i == axis ? count : from->sizes[i];
        whole[i] = i == axis ? 1 : from->sizes[i];
        if (i != axis) {
            offsets[n++] = i;
        }
    }
    const tci_hlo_shape to = tci_hlo_shape_known(h, from->rank, sizes);
    return tci_hlo_let(h,
                       "\"stablehlo.gather\"(%s, %s) <{dimension_numbers = #stablehlo.gather<"
                       "offset_dims = %s, collapsed_slice_dims = [%d], start_index_map = [%d], "
                       "index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = %s}> : "
                       "(%s, tensor<%lldxi64>) -> %s",
                       x, index, tci_hlo_list(h, (int)n, offsets), axis, axis,
                       tci_hlo_array(h, from->rank, whole), tci_hlo_type(h, t, from),
                       (long long)count, tci_hlo_type(h, t, &to));
}

/* Windows along an axis: its elements are taken in the order of the windows, and the axis of
 * positions within a window then moves to the end. */
static const char *tci_hlo_window_out(tci_hlo *h, const tci_node *n, const char *x)
{
    tci_scratch *s = h->walk->s;
    int windows = n->n_attr / 4, rank = n->in[0]->rank;
    tci_hlo_shape at = tci_hlo_shape_of(h, rank, n->in[0]->shape);
    tc_dtype t = (tc_dtype)n->dtype;
    for (int i = 0; i < windows; i++, rank++) {
        const tci_dim *a = tci_node_dims(n) + 4 * i;
        int axis = (int)n->attr[4 * i];
        int64_t k = tci_hlo_size(h, a[1]), steps = tci_hlo_size(h, n->shape[axis]);
        int64_t stride = tci_hlo_size(h, a[2]), dilation = tci_hlo_size(h, a[3]);
        int64_t *places = TCI_NEW_ARRAY(s, int64_t, steps *k + 1);
        int64_t *flat = TCI_NEW_ARRAY(s, int64_t, rank + 2),
                *split = TCI_NEW_ARRAY(s, int64_t, rank + 2);
        int64_t *order = TCI_NEW_ARRAY(s, int64_t, rank + 1),
                *last = TCI_NEW_ARRAY(s, int64_t, rank + 2);
        for (int64_t j = 0; j < steps * k; j++) {
            places[j] = j / k * stride + j % k * dilation;
        }
        for (int d = 0; d <= rank; d++) {
            flat[d] = d == axis ? steps * k : d < rank ? at.sizes[d] : 0;
            split[d] = d == axis ? steps : d == axis + 1 ? k : at.sizes[d - (d > axis)];
            order[d] = d <= axis ? d : d < rank ? d + 1 : axis + 1;
        }
        for (int d = 0; d <= rank; d++) {
            last[d] = split[order[d]];
        }
        const tci_hlo_shape list = tci_hlo_shape_known(h, 1, (const int64_t[]){steps * k});
        const char *index = steps * k > 0 ? tci_hlo_ints(h, &list, places, (int)(steps * k))
                                          : tci_hlo_whole(h, &list, TC_I64, 0);
        x = tci_hlo_take(h, t, &at, axis, index, steps * k, x);
        const tci_hlo_shape taken = tci_hlo_shape_known(h, rank, flat);
        const tci_hlo_shape parted = tci_hlo_shape_known(h, rank + 1, split);
        x = tci_hlo_reshape(h, t, &taken, &parted, x);
        x = tci_hlo_transpose(h, t, &parted, order, x);
        at = tci_hlo_shape_known(h, rank + 1, last);
    }
    return x;
}

/* ---- reductions ---- */

/* The shape without the axes. */
static tci_hlo_shape tci_hlo_without(tci_hlo *h, const tci_hlo_shape *x, int n, const int64_t *axes)
{
    int64_t *sizes = TCI_NEW_ARRAY(h->walk->s, int64_t, x->rank + 1);
    int rank = 0;
    for (int i = 0; i < x->rank; i++) {
        bool drops = false;
        for (int a = 0; a < n; a++) {
            drops = drops || axes[a] == i;
        }
        if (!drops) {
            sizes[rank++] = x->sizes[i];
        }
    }
    return tci_hlo_shape_known(h, rank, sizes);
}

static const char *tci_hlo_reduce(tci_hlo *h, int op, tc_dtype t, const tci_hlo_shape *shape, int n,
                                  const int64_t *axes, const char *x)
{
    const tci_hlo_shape point = {0, NULL, ""}, to = tci_hlo_without(h, shape, n, axes);
    if (!n) {
        return x;
    }
    const char *start = tci_hlo_splat(h, &point, t, tci_hlo_identity(op, t));
    return tci_hlo_let(h,
                       "stablehlo.reduce(%s init: %s) applies stablehlo.%s across dimensions = "
                       "%s : (%s, tensor<%s>) -> %s",
                       x, start, tci_hlo_joins(op, t), tci_hlo_list(h, n, axes),
                       tci_hlo_type(h, t, shape), tci_hlo_dtype(t), tci_hlo_type(h, t, &to));
}

/* Sums of integers are of a wider dtype, those of f16 and bf16 are in f32, rounded once. */
static const char *tci_hlo_fold_out(tci_hlo *h, const tci_node *n, const char *x)
{
    const tci_hlo_shape shape = tci_hlo_shape_of(h, n->in[0]->rank, n->in[0]->shape);
    const tci_hlo_shape to = tci_hlo_shape_of(h, n->rank, n->shape);
    tc_dtype t = (tc_dtype)n->dtype, in = t;
    bool adds = n->op == TCI_OP_SUM || n->op == TCI_OP_PROD || n->op == TCI_OP_DEVSQ;
    in = adds && tci_dtype_is_half(t) ? TC_F32 : t;
    if (n->op == TCI_OP_ANY || n->op == TCI_OP_ALL) {
        x = n->in[0]->dtype == TC_BOOL
                ? x
                : tci_hlo_compare(h, "NE", &shape, (tc_dtype)n->in[0]->dtype, x,
                                  tci_hlo_whole(h, &shape, (tc_dtype)n->in[0]->dtype, 0));
    } else {
        x = tci_hlo_convert(h, &shape, (tc_dtype)n->in[0]->dtype, in, x);
    }
    x = tci_hlo_reduce(h, n->op, in, &shape, n->n_attr, n->attr, x);
    return tci_hlo_convert(h, &to, in, t, x);
}

/* Axes that stay when n axes of x are reduced: the positions of the result's axes in x. */
static const int64_t *tci_hlo_kept(tci_hlo *h, int rank, int n, const int64_t *axes)
{
    int64_t *kept = TCI_NEW_ARRAY(h->walk->s, int64_t, rank + 1);
    int k = 0;
    for (int i = 0; i < rank; i++) {
        bool drops = false;
        for (int a = 0; a < n; a++) {
            drops = drops || axes[a] == i;
        }
        if (!drops) {
            kept[k++] = i;
        }
    }
    return kept;
}

/* Two passes: the mean, then the squares of what differs from it. */
static const char *tci_hlo_devsq_out(tci_hlo *h, const tci_node *n, const char *x)
{
    const tci_hlo_shape shape = tci_hlo_shape_of(h, n->in[0]->rank, n->in[0]->shape);
    const tci_hlo_shape to = tci_hlo_shape_of(h, n->rank, n->shape);
    tc_dtype t = tci_dtype_is_half((tc_dtype)n->dtype) ? TC_F32 : (tc_dtype)n->dtype;
    double count = 1;
    for (int i = 0; i < n->n_attr; i++) {
        count *= (double)shape.sizes[n->attr[i]];
    }
    x = tci_hlo_convert(h, &shape, (tc_dtype)n->in[0]->dtype, t, x);
    const char *mean = tci_hlo_reduce(h, TCI_OP_SUM, t, &shape, n->n_attr, n->attr, x);
    mean = tci_hlo_binary(h, "divide", &to, t, mean, tci_hlo_float(h, &to, t, count));
    mean = tci_hlo_broadcast(h, t, &to, &shape, tci_hlo_kept(h, shape.rank, n->n_attr, n->attr),
                             mean);
    x = tci_hlo_binary(h, "subtract", &shape, t, x, mean);
    x = tci_hlo_binary(h, "multiply", &shape, t, x, x);
    x = tci_hlo_reduce(h, TCI_OP_SUM, t, &shape, n->n_attr, n->attr, x);
    return tci_hlo_convert(h, &to, t, (tc_dtype)n->dtype, x);
}

/* The first of the largest or smallest elements: values and positions reduced together. */
static const char *tci_hlo_arg_out(tci_hlo *h, const tci_node *n, const char *x)
{
    const tci_hlo_shape shape = tci_hlo_shape_of(h, n->in[0]->rank, n->in[0]->shape);
    const tci_hlo_shape point = {0, NULL, ""};
    tc_dtype t = (tc_dtype)n->in[0]->dtype;
    bool most = n->op == TCI_OP_ARGMAX;
    const char *dtype = tci_hlo_dtype(t);
    const char *at = tci_hlo_let(h, "stablehlo.iota dim = %lld : %s", (long long)n->attr[0],
                                 tci_hlo_type(h, TC_I64, &shape));
    const char *none = tci_hlo_splat(h, &point, t,
                                     tci_hlo_identity(most ? TCI_OP_MAX : TCI_OP_MIN, t));
    const char *last = tci_hlo_whole(h, &point, TC_I64, INT64_MAX);
    const char *r = tci_hlo_name(h), *a = tci_hlo_name(h), *i = tci_hlo_name(h);
    const char *b = tci_hlo_name(h), *j = tci_hlo_name(h);
    tci_str_printf(&h->out,
                   "  %s:2 = \"stablehlo.reduce\"(%s, %s, %s, %s) <{dimensions = "
                   "array<i64: %lld>}> ({\n  ^bb0(%s: tensor<%s>, %s: tensor<i64>, %s: tensor<%s>, "
                   "%s: tensor<i64>):\n",
                   r, x, at, none, last, (long long)n->attr[0], a, dtype, i, b, dtype, j);
    const char *first = tci_hlo_before(h, &point, t, most, true, a, b);
    const char *second = tci_hlo_before(h, &point, t, most, true, b, a);
    const char *level = tci_hlo_binary(h, "or", &point, TC_BOOL, first, second);
    level = tci_hlo_let(h, "stablehlo.not %s : tensor<i1>", level);
    const char *lower = tci_hlo_compare(h, "LT", &point, TC_I64, i, j);
    level = tci_hlo_binary(h, "and", &point, TC_BOOL, level, lower);
    first = tci_hlo_binary(h, "or", &point, TC_BOOL, first, level);
    const char *value = tci_hlo_select(h, &point, t, first, a, b);
    const char *place = tci_hlo_select(h, &point, TC_I64, first, i, j);
    tci_str_printf(&h->out,
                   "  stablehlo.return %s, %s : tensor<%s>, tensor<i64>\n  }) : (%s, %s, "
                   "tensor<%s>, tensor<i64>) -> (",
                   value, place, dtype, tci_hlo_type(h, t, &shape), tci_hlo_type(h, TC_I64, &shape),
                   dtype);
    const tci_hlo_shape to = tci_hlo_shape_of(h, n->rank, n->shape);
    tci_str_printf(&h->out, "%s, %s)\n", tci_hlo_type(h, t, &to), tci_hlo_type(h, TC_I64, &to));
    return tci_scratch_printf(h->walk->s, "%s#1", r);
}

static const char *tci_hlo_reduction_out(tci_hlo *h, const tci_node *n, const char *x)
{
    tci_ox_sliding w;
    if (tci_ox_find_pool(n, &w)) {
        return tci_hlo_pool_out(h, &w, n, x);
    }
    switch ((int)n->op) {
    case TCI_OP_SUM:
    case TCI_OP_PROD:
    case TCI_OP_MAX:
    case TCI_OP_MIN:
    case TCI_OP_ANY:
    case TCI_OP_ALL: return tci_hlo_fold_out(h, n, x);
    case TCI_OP_DEVSQ: return tci_hlo_devsq_out(h, n, x);
    case TCI_OP_ARGMAX:
    case TCI_OP_ARGMIN: return tci_hlo_arg_out(h, n, x);
    default: return NULL; /* a row without a form */
    }
}

/* ---- contractions ---- */

/* An operand as dot_general takes it: summed over the axes that the other and the result lack. */
static const char *tci_hlo_factor(tci_hlo *h, const tci_contraction *c, int which, const char *x,
                                  tci_hlo_shape *shape, int *at)
{
    const tci_node *n = c->in[which].node;
    int64_t *alone = TCI_NEW_ARRAY(h->walk->s, int64_t, n->rank + 1);
    tc_dtype t = (tc_dtype)n->dtype;
    int n_alone = 0;
    *shape = tci_hlo_shape_of(h, n->rank, n->shape);
    for (int d = 0; d < n->rank; d++) {
        for (int i = 0; i < c->n_axes; i++) {
            if (c->axes[i].group == TCI_AXES_ALONE && c->axes[i].at[which] == d) {
                alone[n_alone++] = d;
            }
        }
    }
    const tci_hlo_shape left = tci_hlo_without(h, shape, n_alone, alone);
    for (int i = 0; i < c->n_axes; i++) {
        at[i] = c->axes[i].at[which];
        for (int a = n_alone - 1; a >= 0; a--) {
            at[i] -= c->axes[i].at[which] > alone[a];
        }
    }
    x = tci_hlo_reduce(h, TCI_OP_SUM, t, shape, n_alone, alone, x);
    *shape = left;
    return x;
}

/* dot_general gives batch axes, then those of a, then those of b. */
static const char *tci_hlo_contract_out(tci_hlo *h, const tci_node *n, const char *const *in)
{
    tci_scratch *s = h->walk->s;
    tci_ox_conv conv;
    if (tci_ox_find_conv(s, n, &conv)) {
        return tci_hlo_conv_out(h, &conv, n, in);
    }
    const tci_contraction *c = tci_contraction_of(s, n);
    tci_hlo_shape shapes[2];
    int *at[2], n_of[TCI_AXES_COUNT] = {0}, made = 0;
    const char *x[2];
    int64_t *lists[TCI_AXES_COUNT][2], *sizes = TCI_NEW_ARRAY(s, int64_t, n->rank + 1);
    int64_t *order = TCI_NEW_ARRAY(s, int64_t, n->rank + 1);
    tc_dtype from = (tc_dtype)n->in[0]->dtype;
    for (int i = 0; i < 2; i++) {
        at[i] = TCI_NEW_ARRAY(s, int, c->n_axes + 1);
        x[i] = tci_hlo_factor(h, c, i, in[i], &shapes[i], at[i]);
        for (int g = 0; g < TCI_AXES_COUNT; g++) {
            lists[g][i] = TCI_NEW_ARRAY(s, int64_t, c->n_axes + 1);
        }
    }
    for (int i = 0; i < c->n_axes; i++) {
        int g = c->axes[i].group;
        lists[g][0][n_of[g]] = at[0][i];
        lists[g][1][n_of[g]++] = at[1][i];
    }
    for (int g = TCI_AXES_BATCH; g <= TCI_AXES_N; g++) { /* axes of M and N in their own order */
        int which = g == TCI_AXES_N, rank = shapes[which].rank;
        for (int d = 0; d < (g == TCI_AXES_BATCH ? c->n_axes : rank); d++) {
            for (int i = 0; i < c->n_axes; i++) {
                bool is = c->axes[i].group == g &&
                          (g == TCI_AXES_BATCH ? i == d : at[which][i] == d);
                if (is) {
                    sizes[made] = tci_hlo_size(h, c->axes[i].size);
                    order[c->axes[i].at[2]] = made++;
                }
            }
        }
    }
    const tci_hlo_shape to = tci_hlo_shape_known(h, n->rank, sizes);
    bool is_f32 = from == TC_F32;
    const char *y = tci_hlo_let(
        h,
        "stablehlo.dot_general %s, %s, batching_dims = %s x %s, contracting_dims = %s x %s, "
        "precision = [%s, %s] : (%s, %s) -> %s",
        x[0], x[1], tci_hlo_list(h, n_of[TCI_AXES_BATCH], lists[TCI_AXES_BATCH][0]),
        tci_hlo_list(h, n_of[TCI_AXES_BATCH], lists[TCI_AXES_BATCH][1]),
        tci_hlo_list(h, n_of[TCI_AXES_K], lists[TCI_AXES_K][0]),
        tci_hlo_list(h, n_of[TCI_AXES_K], lists[TCI_AXES_K][1]), is_f32 ? "HIGHEST" : "DEFAULT",
        is_f32 ? "HIGHEST" : "DEFAULT", tci_hlo_type(h, from, &shapes[0]),
        tci_hlo_type(h, from, &shapes[1]), tci_hlo_type(h, (tc_dtype)n->dtype, &to));
    bool in_order = true;
    for (int i = 0; i < n->rank; i++) {
        in_order = in_order && order[i] == i;
    }
    return in_order ? y : tci_hlo_transpose(h, (tc_dtype)n->dtype, &to, order, y);
}

/* ---- all ops ---- */

/* Export form of each special and composite op: "": as StableHLO ops, in tci_hlo_special_out;
 * TCI_HLO_EXPANDS: as its expansion; otherwise the reason why it cannot be exported. A row of
 * ops/table.h that is missing here does not compile. */
#define TCI_HLO_EXPANDS "expands"
#define TCI_HLO_WAY_INPUT "an input that is not among those given"
#define TCI_HLO_WAY_DATA ""
#define TCI_HLO_WAY_LITERAL ""
#define TCI_HLO_WAY_CONST ""
#define TCI_HLO_WAY_IOTA ""
#define TCI_HLO_WAY_RANDOM ""
#define TCI_HLO_WAY_WHERE ""
#define TCI_HLO_WAY_CAST ""
#define TCI_HLO_WAY_BITCAST ""
#define TCI_HLO_WAY_RESHAPE ""
#define TCI_HLO_WAY_PERMUTE ""
#define TCI_HLO_WAY_EXPAND ""
#define TCI_HLO_WAY_SLICE ""
#define TCI_HLO_WAY_PAD ""
#define TCI_HLO_WAY_CAT ""
#define TCI_HLO_WAY_WINDOW ""
#define TCI_HLO_WAY_GATHER ""
#define TCI_HLO_WAY_SCAN ""
#define TCI_HLO_WAY_TOPK ""
#define TCI_HLO_WAY_SCATTER ""
#define TCI_HLO_WAY_SEGMENT "only plans have it"
#define TCI_HLO_WAY_CONTRACT ""
#define TCI_HLO_WAY_BOUND ""
#define TCI_HLO_WAY_REPEAT ""
#define TCI_HLO_WAY_RESULT ""
#define TCI_HLO_WAY_CUSTOM "an op of the user's own"
#define TCI_HLO_WAY_COLLECTIVE "collectives have a communicator of the process"
#define TCI_HLO_WAY_BARRIER ""
#define TCI_HLO_WAY_ASSIGN "an effect"
#define TCI_HLO_WAY_SOFTMAX TCI_HLO_EXPANDS
#define TCI_HLO_WAY_LOG_SOFTMAX TCI_HLO_EXPANDS
#define TCI_HLO_WAY_MEAN TCI_HLO_EXPANDS
#define TCI_HLO_WAY_LAYER_NORM TCI_HLO_EXPANDS
#define TCI_HLO_WAY_CROSS_ENTROPY TCI_HLO_EXPANDS
#define TCI_HLO_WAY_LU TCI_HLO_EXPANDS
#define TCI_HLO_WAY_SOLVE TCI_HLO_EXPANDS
#define TCI_HLO_WAY_SOLVE_TRIANGULAR TCI_HLO_EXPANDS
#define TCI_HLO_WAY_CHOLESKY TCI_HLO_EXPANDS
#define TCI_HLO_WAY_STOP_GRADIENT TCI_HLO_EXPANDS
#define TCI_HLO_WAY_SHARD TCI_HLO_EXPANDS
#define TCI_HLO_WAY_WITH_DERIVATIVE TCI_HLO_EXPANDS
#define TCI_HLO_WAY_NAMED TCI_HLO_EXPANDS
#define TCI_HLO_WAY_CONV_TRANSPOSE TCI_HLO_EXPANDS

/* Of a special or composite op. */
static const char *tci_hlo_way_of(int op)
{
    static const char *const ways[] = {
#define TCI_ROW(id, ...) [TCI_OP_##id - TCI_OP_REDUCE_END] = TCI_HLO_WAY_##id,
        TCI_SPECIAL_OPS(TCI_ROW) TCI_COMPOSITE_OPS(TCI_ROW)
#undef TCI_ROW
    };
    return ways[op - TCI_OP_REDUCE_END];
}

static const char *tci_hlo_special_out(tci_hlo *h, tci_node *n, const char *const *in)
{
    const tci_hlo_shape shape = tci_hlo_shape_of(h, n->rank, n->shape);
    tc_dtype t = (tc_dtype)n->dtype;
    switch ((int)n->op) {
    case TCI_OP_LITERAL:
    case TCI_OP_CONST: return tci_hlo_splat(h, &shape, t, n->value);
    case TCI_OP_IOTA:
        return tci_hlo_let(h, "stablehlo.iota dim = 0 : %s", tci_hlo_type(h, t, &shape));
    case TCI_OP_RANDOM:
    case TCI_OP_WHERE:
    case TCI_OP_CAST:
    case TCI_OP_BITCAST: return tci_hlo_scalar_out(h, n, in);
    case TCI_OP_RESHAPE: {
        const tci_hlo_shape from = tci_hlo_shape_of(h, n->in[0]->rank, n->in[0]->shape);
        return tci_hlo_reshape(h, t, &from, &shape, in[0]);
    }
    case TCI_OP_PERMUTE: {
        const tci_hlo_shape from = tci_hlo_shape_of(h, n->rank, n->in[0]->shape);
        return tci_hlo_transpose(h, t, &from, n->attr, in[0]);
    }
    case TCI_OP_EXPAND: {
        const tci_hlo_shape from = tci_hlo_shape_of(h, n->rank, n->in[0]->shape);
        return tci_hlo_broadcast(h, t, &from, &shape, NULL, in[0]);
    }
    case TCI_OP_SLICE: return tci_hlo_slice_out(h, n, in[0]);
    case TCI_OP_PAD: return tci_hlo_pad_out(h, n, in);
    case TCI_OP_CAT: return tci_hlo_cat_out(h, n, in);
    case TCI_OP_WINDOW: return tci_hlo_window_out(h, n, in[0]);
    case TCI_OP_CONTRACT: return tci_hlo_contract_out(h, n, in);
    case TCI_OP_GATHER: return tci_hlo_gather_out(h, n, in);
    case TCI_OP_SCATTER: return tci_hlo_scatter_out(h, n, in);
    case TCI_OP_TOPK: return tci_hlo_topk_out(h, n, in[0]);
    case TCI_OP_SCAN: return tci_hlo_scan_out(h, n, in[0]);
    case TCI_OP_REPEAT: return tci_hlo_repeat_out(h, n, in);
    case TCI_OP_RESULT: return tci_hlo_result_out(h, n);
    case TCI_OP_BARRIER: return in[0];
    default: return NULL;
    }
}

/* ---- the module ---- */

static const char *tci_hlo_leave(tci_ox_walk *w, tci_node *n, const char *const *in)
{
    tci_hlo *h = (tci_hlo *)w->to;
    const char *way = n->op >= TCI_OP_REDUCE_END ? tci_hlo_way_of(n->op) : "";
    if (tci_node_is_value(n)) {
        return tci_hlo_memory(h, n);
    } else if (*way && strcmp(way, TCI_HLO_EXPANDS)) {
        tci_ox_refuse(w, n, way);
    } else if (tci_op_is_ew(n->op)) {
        return tci_hlo_scalar_out(h, n, in);
    } else if (tci_op_is_reduce(n->op)) {
        return tci_hlo_reduction_out(h, n, in[0]);
    }
    return tci_op_is_composite(n->op) ? NULL : tci_hlo_special_out(h, n, in);
}

static int tci_hlo_needs(tci_ox_walk *w, tci_node *n, tci_node *const **list)
{
    return tci_hlo_conv_needs((tci_hlo *)w->to, n, list);
}

/* Values of the symbols in the sizes of the inputs. */
static void tci_hlo_tell_sizes(tci_hlo *h, const tc_stablehlo_export *how)
{
    int n = how ? how->n_sizes : 0;
    h->symbols = TCI_NEW_ARRAY(h->walk->s, tci_dim, n + 1);
    h->values = TCI_NEW_ARRAY(h->walk->s, tci_dim, n + 1);
#ifdef TC_DYNAMIC_SHAPES
    for (int i = 0; i < h->walk->n_inputs; i++) {
        const tci_node *x = h->walk->inputs[i];
        for (int a = 0; a < x->rank; a++) {
            tci_dim list[16];
            int count = 0;
            tci_dim_symbols(x->shape[a], list, &count, 16);
            for (int k = 0; k < count; k++) {
                for (int j = 0; j < n; j++) {
                    if (!strcmp(tci_dim_name(list[k]), how->sizes[j].name)) {
                        h->symbols[j] = list[k];
                        h->values[j] = (tci_dim)how->sizes[j].size;
                    }
                }
            }
        }
    }
    h->n_symbols = n;
#endif
}

static void tci_hlo_signature(tci_hlo *h, tci_str *text, tci_node *const *outputs, int n)
{
    tci_ox_walk *w = h->walk;
    for (int i = 0; i < w->n_inputs; i++) {
        tci_str_printf(text, "// %%arg%d: %s\n", i, tci_ox_input_name(w, i));
    }
    tci_str_add(text, "module @tc {\n  func.func public @main(");
    for (int i = 0; i < w->n_inputs; i++) {
        const char *name = tci_scratch_printf(w->s, "%%arg%d", i);
        tci_str_printf(text, "%s%s: %s", i ? ", " : "", name, tci_hlo_node_type(h, w->inputs[i]));
        tci_ox_set_name(w, w->inputs[i], name);
    }
    tci_str_add(text, ") -> (");
    for (int i = 0; i < n; i++) {
        tci_str_printf(text, "%s%s", i ? ", " : "", tci_hlo_node_type(h, outputs[i]));
    }
    tci_str_add(text, ") {\n");
}

TCI_FN void tci_ox_write_stablehlo(tci_ox_walk *w, tci_node *const *outputs, int n,
                                   const tc_stablehlo_export *how, tci_str *text)
{
    tci_hlo h = {.walk = w, .out = {.s = w->s}};
    tci_str names = {.s = w->s}, types = {.s = w->s};
    w->to = &h;
    w->leave = tci_hlo_leave;
    w->needs = tci_hlo_needs;
    tci_hlo_tell_sizes(&h, how);
    tci_hlo_signature(&h, text, outputs, n);
    for (int i = 0; i < n; i++) {
        tci_str_printf(&names, "%s%s", i ? ", " : "", tci_ox_walk_to(w, outputs[i]));
        tci_str_printf(&types, "%s%s", i ? ", " : "", tci_hlo_node_type(&h, outputs[i]));
    }
    tci_str_add_n(text, tci_str_text(&h.out), h.out.n);
    tci_str_printf(text, "  return %s : %s\n  }\n}\n", tci_str_text(&names), tci_str_text(&types));
}

static void tci_hlo_export_file(tci_ox_walk *w, tci_node *const *outputs, int n,
                                const tci_ox_export *e)
{
    tci_str text = {.s = w->s};
    if (!e->to) {
        tci_scratch_fail(w->s, TC_ERR_ARGUMENT, "the path is NULL");
    }
    tci_ox_write_stablehlo(w, outputs, n, (const tc_stablehlo_export *)e->how, &text);
    tci_ox_put_file(w, (const char *)e->to, &text);
}

TC_API tc_status tc_export_stablehlo_at(tc_tensors inputs, tc_tensors outputs,
                                        const tc_stablehlo_export *how, const char *path,
                                        tc_site here)
{
    const tci_ox_export e = {"tc_export_stablehlo", "StableHLO",        inputs, outputs, how,
                             (void *)path,          tci_hlo_export_file};
    return tci_ox_export_call(&e, here);
}
/* ---- src/onnx/graph_backend_model.c ---- */
/* onnx/graph_backend_model.c - serializes the graph of a compile request for graph-level backends
 * (api/graph_backend.h), as an ONNX or a StableHLO model in memory.
 *
 * In: the graph of a request, with the names of its inputs and outputs. Out: a model in memory.
 * Inputs may be leaves of parameters; the output of an effect is the new value. */

typedef void (*tci_ox_model_writer)(tci_ox_walk *w, tci_node *const *outputs, int n,
                                    const char *const *names, tci_str *out);

static void tci_ox_format(tci_scratch *s, const tci_model_graph *m, const char *format,
                          tci_ox_model_writer write, tci_str *out)
{
    tci_ctx *ctx = tci_ctx_of(m->ctx);
    tci_ox_walk w = {.s = s,
                     .graph = &ctx->graph,
                     .format = format,
                     .ctx = ctx,
                     .here = m->here,
                     .inputs = m->inputs,
                     .n_inputs = m->n_inputs,
                     .at = m->at,
                     .known = m->known};
    tci_node **outputs = TCI_NEW_ARRAY(s, tci_node *, m->n_roots + 1);
    const char **names = TCI_NEW_ARRAY(s, const char *, m->n_inputs + m->n_roots + 1);
    for (int i = 0; i < m->n_inputs; i++) {
        names[i] = m->input_ports[i].name;
    }
    for (int i = 0; i < m->n_roots; i++) {
        tci_node *root = m->roots[i];
        outputs[i] = tci_op_is(root->op, TCI_IS_EFFECT) ? root->in[1] : root;
        names[m->n_inputs + i] = m->output_ports[i].name;
    }
    w.input_names = names;
    write(&w, outputs, m->n_roots, names + m->n_inputs, out);
}

static void tci_ox_format_onnx(tci_ox_walk *w, tci_node *const *outputs, int n,
                               const char *const *names, tci_str *out)
{
    tci_str weights = {.s = w->s};
    const tc_onnx_export how = {.output_names = names};
    tci_ox_write_onnx(w, outputs, n, &how, "", out, &weights);
}

/* Names do not matter: @main has inputs and outputs in their order. */
static void tci_ox_format_stablehlo(tci_ox_walk *w, tci_node *const *outputs, int n,
                                    const char *const *names, tci_str *out)
{
    (void)names;
    tci_ox_write_stablehlo(w, outputs, n, NULL, out);
}

static void tci_ox_write_as_onnx(tci_scratch *s, const tci_model_graph *m, tci_str *out)
{
    tci_ox_format(s, m, "ONNX", tci_ox_format_onnx, out);
}

static void tci_ox_write_as_stablehlo(tci_scratch *s, const tci_model_graph *m, tci_str *out)
{
    tci_ox_format(s, m, "StableHLO", tci_ox_format_stablehlo, out);
}

TC_API const tc_graph_format *tc_onnx_format(void)
{
    static const tc_graph_format format = {"ONNX", false, tci_ox_write_as_onnx};
    return &format;
}

TC_API const tc_graph_format *tc_stablehlo_format(void)
{
    static const tc_graph_format format = {"StableHLO", true, tci_ox_write_as_stablehlo};
    return &format;
}

#undef TC_HERE
#define TC_HERE (tci_here(__FILE__, __LINE__))

/* ---- src/base/impl_end.h ---- */
/* base/impl_end.h - closes the region that base/impl_begin.h opened: restores the user's compiler
 * options and warnings. */

#if defined(__clang__)
#ifndef TCI_KEEP_OPTIMIZE
#pragma clang attribute pop
#endif
#pragma float_control(pop)
#pragma clang diagnostic pop
#elif defined(__GNUC__)
#pragma GCC pop_options
#pragma GCC diagnostic pop
#endif
#endif
