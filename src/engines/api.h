/* engines/api.h - declares external inference engines as backends that are selected by name: the
 * public API of tc_engines.h. */
#ifndef TC_ENGINES_API_H
#define TC_ENGINES_API_H

#include "../api/graph_backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Including this header where TC_IMPLEMENTATION is defined registers graph-level backends
 * (api/graph_backend.h) under these names, for options.backend and TC_BACKEND:
 *
 *     name      library                   options after ':'
 *     onnxrt    libonnxruntime.so 1.18+   cpu (default), cuda, tensorrt, openvino, dnnl
 *     openvino  libopenvino_c.so 2025.0+  cpu (default), gpu, npu, auto
 *     openxla   a PJRT plugin 0.50+       cpu (default), cuda, rocm, or the path of any plugin
 *     tvm       libtvm_runtime.so with    cpu (default)
 *               tvm-ffi 0.1
 *
 *     tc_options o = {.backend = "onnxrt"};
 *     if (tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), &o, &f) != TC_OK) puts(tc_error(y));
 *
 * No engine is needed to build. A library is searched for, when its name is requested, in the
 * directories of TC_ENGINES (separated by ':'), in Python's site-packages ($VIRTUAL_ENV, ~/.local,
 * /usr/local, /usr), then in the system's library directories. An option that has a '/' is the
 * path of the library ("onnxrt:/opt/ort/lib/libonnxruntime.so"). tvm compiles in a child process
 * by its Python tool, the python3 of the environment in which it was found. A library stays loaded.
 * A library that crashes while it is loaded does so in a child process, and is rejected. */

/* Compiles the graph (lists as tc_compile_fn takes them) for every backend that is usable here,
 * including engines, runs each for about `ms` milliseconds and sets *name to the fastest one, which
 * lives as long as the process. Inputs are zeros; sizes must be known. Results are not compared.
 *
 *     const char *name;
 *     if (tc_best_backend(TC_TENSORS(x), TC_TENSORS(y), 50, &name) == TC_OK) puts(name);
 *
 * TC_ERR_ARGUMENT: ms is not positive, or name is NULL; TC_ERR_SHAPE: a symbolic size;
 * TC_ERR_MEMORY; else the status of the last backend, if none compiled the graph. tc_error of an
 * output has the message. */
TC_API tc_status tc_best_backend_at(tc_tensors inputs, tc_tensors outputs, double ms,
                                    const char **name, tc_site here);
#define tc_best_backend(...) tc_best_backend_at(__VA_ARGS__, TC_HERE)
/* The same with the time of each: the entries of tc_backend_at(i) that were measured, best first,
 * into list[0..room); *n: how many there are. */
typedef struct tc_backend_time {
    const char *name;
    double us;       /* of a run: the median */
    double first_ms; /* of the compile */
} tc_backend_time;
TC_API tc_status tc_time_backends_at(tc_tensors inputs, tc_tensors outputs, double ms,
                                     tc_backend_time *list, int room, int *n, tc_site here);
#define tc_time_backends(...) tc_time_backends_at(__VA_ARGS__, TC_HERE)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
