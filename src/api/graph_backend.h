/* api/graph_backend.h - interface of graph-level backends: engines that compile and run whole
 * graphs.
 *
 * A tc_backend (api/backend.h) runs kernels that tc generates. A tc_graph_backend gets the graph
 * itself, as a model in a format that it reads, and executes it with its own kernels. Its programs
 * are ordinary tc_programs: tc_run, strided buffers, parameters, symbolic sizes. Results are those
 * of the engine, not bit-identical to tc's. tc_engines.h has backends for onnxruntime, OpenVINO and
 * XLA; tests/engines/test_seam.c is the smallest example. */
#ifndef TC_API_GRAPH_BACKEND_H
#define TC_API_GRAPH_BACKEND_H

#include "custom_op.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TC_GRAPH_TEXT = 512 }; /* bytes of the messages that functions of a graph backend write */

/* A writer of models: tc_onnx_format, tc_stablehlo_format (tc_onnx.h). */
typedef struct tc_graph_format tc_graph_format;

/* An input or output of a model: its dtype and sizes; a symbolic size is -1. */
typedef struct tc_graph_port {
    const char *name;
    tc_dtype dtype;
    int rank;
    const int64_t *sizes;
} tc_graph_port;

/* A graph to compile, borrowed for the call. Memory of tc_borrow and tc_copy_in and the values of
 * numbers are part of the model; parameters (tc_param) are inputs after those of the user, as their
 * values change. */
typedef struct tc_graph_model {
    const void *bytes; /* in the backend's format */
    size_t n;
    const tc_graph_port *inputs, *outputs;
    int n_inputs, n_outputs;
    const char *option; /* what follows ':' in options.backend: "cuda" of "onnxrt:cuda"; or "" */
    int threads;        /* that the engine may use, at least 1 */
    const void *blob;   /* n_blob bytes that `blob` returned for the same model and version, or
                         * NULL */
    size_t n_blob;
} tc_graph_model;

/* A graph backend. `user` is the struct's own pointer, option as in tc_graph_model. Functions may
 * be called from any thread, several at once; they must not abort, exit or print. A function that
 * fails writes the cause to its text, with the engine's message if there is one. */
typedef struct tc_graph_backend {
    const char *name;                       /* required; under 16 characters, without ':' */
    const tc_graph_format *(*format)(void); /* required: format of the models for compile */
    void *user;
    /* Required. True if the engine is installed; text: the library ("libfoo.so.1.2"), or else what
     * is missing and how to get it. Must not load the engine: tc_backend_at calls it for every
     * backend. */
    bool (*find)(void *user, const char *option, char text[TC_GRAPH_TEXT]);
    /* Required. Loads the engine; text: its name, version and device ("onnxruntime 1.32.0, CPU").
     * TC_ERR_BACKEND: it cannot be loaded, or lacks required functions. */
    tc_status (*version)(void *user, const char *option, char text[TC_GRAPH_TEXT]);
    /* Optional. False: the engine does not support this op (a name of tc_op_name) with a result of
     * that dtype; tc computes it. NULL: it supports whatever the format can express. */
    bool (*supports)(void *user, const char *op, tc_dtype dtype);
    /* Required. *compiled belongs to tc until `free`. TC_ERR_BACKEND: the engine rejects it. */
    tc_status (*compile)(void *user, const tc_graph_model *model, void **compiled,
                         char text[TC_GRAPH_TEXT]);
    /* Required. Arrays are dense, in the model's order, with the sizes of this run; the data of
     * inputs must not be written. Blocks until the outputs are computed. */
    tc_status (*run)(void *user, void *compiled, const tc_custom_array *inputs, int n_inputs,
                     tc_custom_array *outputs, int n_outputs, char text[TC_GRAPH_TEXT]);
    /* Required. No run of it is in progress. */
    void (*free)(void *user, void *compiled);
    /* Optional. Bytes from which compile makes the same program faster, borrowed from compiled;
     * stored in the disk cache. NULL: there are none. */
    const void *(*blob)(void *user, void *compiled, size_t *n);
    /* Optional. True: the engine has wrong results for symbolic axes that a run gives the size 0
     * (sums over no elements that are not 0). tc computes each node that may read an array without
     * elements and has some itself. Of known sizes 0 tc computes these nodes for every engine. */
    bool needs_elements;
} tc_graph_backend;

/* ---- backends of whole graphs: docs/backends.md ---- */

/* Registers a graph backend under its name (options.backend, TC_BACKEND, tc_list_backends); the
 * struct is borrowed for the rest of the process. TC_ERR_ARGUMENT: a required member is missing, or
 * the name is taken or malformed; TC_ERR_LIMIT: there are 16 already.
 *
 *     static const tc_graph_backend mine = {.name = "mine", .format = tc_onnx_format, ...};
 *     tc_register_graph_backend(&mine);
 *     tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), &(tc_options){.backend = "mine"}, &f);
 *
 * A graph that the engine rejects is partitioned: the engine runs the parts that it supports, tc's
 * default backend the rest; if the engine is missing or supports nothing, tc runs everything
 * (tc_explain and the log report it). With options.fallback TC_FALLBACK_REFUSE this is
 * TC_ERR_BACKEND or TC_ERR_UNSUPPORTED. A failing run is TC_ERR_BACKEND with the engine's message.
 * Models contain copies of captured memory, made when they are compiled: after tc_touch a program
 * must be compiled again, and its runs fail until then. TC_STANCE_LATER compiles immediately. */
TC_API tc_status tc_register_graph_backend(const tc_graph_backend *backend);

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
