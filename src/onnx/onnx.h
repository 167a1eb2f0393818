/* onnx/onnx.h - public API of tc_onnx.h: import and export of ONNX models, and export of StableHLO
 * text. */
#ifndef TC_ONNX_ONNX_H
#define TC_ONNX_ONNX_H

#include "../api/graph_backend.h"

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
