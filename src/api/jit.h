/* api/jit.h - declares tc_jit: a C function that records a graph, compiled once for each signature
 * it is called with. */
#ifndef TC_API_JIT_H
#define TC_API_JIT_H

#include "program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- functions that are compiled for each signature ---- */

/* Records one specialization: in[0 .. n_in) are tc_input leaves of ctx with the dtypes and sizes
 * of a call; the function sets out[0 .. n_out), all tensors of ctx, and returns TC_OK, or a
 * status that the call then returns. It runs under the lock of the tc_jit, within a scope of its
 * own, on the thread whose call needs the specialization, and must record the same graph
 * whenever it is given the same sizes and static integers. It may read `user`, but what it reads
 * there is fixed in the specialization. It must not leave by longjmp or a C++ exception: the
 * lock would stay taken. */
typedef tc_status (*tc_jit_build)(tc_ctx *ctx, const tc_tensor *in, int n_in, tc_tensor *out,
                                  int n_out, void *user);

/* Integers that select a specialization (number of layers, a flag). NULL where a tc_statics * is
 * expected means none. */
typedef struct tc_statics {
    const int64_t *items;
    int n;
} tc_statics;

/* Axis `axis` of input `input`; -1 is the last axis. */
typedef struct tc_jit_axis {
    int input, axis;
} tc_jit_axis;

/* Signatures beyond max_variants. GENERAL: a program of symbolic sizes (TC_DYNAMIC_SHAPES) takes
 * the place of specializations whose sizes it covers; where build allows none or it would cover
 * none, the interpreter serves. INTERPRET: the interpreter. FAIL: TC_ERR_LIMIT. */
typedef enum tc_beyond { TC_BEYOND_GENERAL, TC_BEYOND_INTERPRET, TC_BEYOND_FAIL } tc_beyond;

/* POW2: sizes that are not of options.fixed_axes are rounded up to a power of two. Inputs are
 * copied and padded with zeros after their elements; outputs are cut out of larger ones, to the
 * sizes of their buffers (TC_BUF_ND), and tc_jit_output_size is TC_ERR_UNSUPPORTED. Ops that mix
 * elements along such an axis (a sum, a softmax) see the zeros: name these axes in fixed_axes,
 * or mask them. Sizes are then no symbols. */
typedef enum tc_bucket { TC_BUCKET_NONE, TC_BUCKET_POW2 } tc_bucket;

/* Options of one tc_jit; zero in every field means the defaults, as does NULL. */
typedef struct tc_jit_options {
    const tc_options *options; /* of the private context; strings are copied. NULL: defaults */
    int n_outputs; /* that build sets, each tc_assign included, which takes no buffer. 0: 1 */
    /* Compiled specializations that there are at once, of all dtypes, ranks, sizes and static
     * integers; those of max_hot are not counted. 0: 8. Beyond it `beyond` says what serves, and
     * the log says so once under "recompiles", with the way to fewer */
    int max_variants;
    tc_beyond beyond;
    /* Axes whose sizes never become symbols, as build computes with them as numbers. Copied */
    const tc_jit_axis *fixed_axes;
    int n_fixed_axes;
    tc_bucket bucket;
    /* Records each specialization twice and fails with TC_ERR_ARGUMENT if the graphs differ, or
     * numbers or contents of memory in them; tc_error names the line */
    bool check;
    /* Specializations of known sizes for sizes that keep coming while a symbolic program serves
     * them. 0: 4; -1: none. See tc_jit_run */
    int max_hot;
    const char *name; /* in reports and errors; copied. NULL: "tc_jit" */
} tc_jit_options;

/* Makes a function that specializes itself; the caller frees it with tc_jit_free. build is first
 * called by the first run. TC_ERR_ARGUMENT: build or fn is NULL, or a number is negative;
 * TC_ERR_MEMORY; *fn is then NULL.
 *
 *     static tc_status scale(tc_ctx *ctx, const tc_tensor *in, int n_in, tc_tensor *out, int n_out,
 *                            void *user)
 *     {
 *         out[0] = tc_mul(in[0], 2);
 *         return TC_OK;
 *     }
 *     tc_jit *fn;
 *     if (tc_jit_make(scale, NULL, NULL, &fn) == TC_OK) {
 *         tc_jit_run(fn, NULL, TC_BUFS(TC_BUF_ND(x, 3, 4)), TC_BUFS(TC_BUF(y, 12)));
 *         tc_jit_free(fn);
 *     }
 */
TC_API tc_status tc_jit_make_at(tc_jit_build build, void *user, const tc_jit_options *options,
                                tc_jit **fn, tc_site here);
#define tc_jit_make(build, user, options, fn)                                                      \
    tc_jit_make_at((build), (user), (options), (fn), TC_HERE)
/* No other call on fn may be under way. NULL is fine. */
TC_API void tc_jit_free(tc_jit *fn);

/* With TC_DYNAMIC_SHAPES a size that is asked for with a second value becomes a symbol of the next
 * specialization (one symbol for all axes that had equal sizes each time), as far as build allows:
 * symbols from 0 on are tried first, then from 1 or 2 on, at last numbers. tc_size in build is then
 * a symbol, to hand on to calls that take sizes; a build that compares it or computes with it in C
 * names the axis in options.fixed_axes.
 *
 * Sizes that keep coming (about 500 runs, more than one in nine) are compiled as numbers too, up
 * to options.max_hot of them. That program and the symbolic one run in turns once, on the inputs
 * of a call, into memory of their own; if the symbolic one is below 0.9 of the speed, the other
 * serves from then on, until its sizes are less than one run in 60 of those that stay symbolic.
 * Sums may then be added in another order, unless options.reproducible is set. A program that
 * changes parameters or communicates stays symbolic. Under TC_STANCE_LATER the compile is in the
 * background, under _FAIL and _INTERPRET there is none. TC_LOG=recompiles and tc_recompile_report
 * report it.
 *
 * tc_jit_run(fn, statics, inputs, outputs) runs the specialization of the inputs' dtypes and sizes
 * and of the static integers; if there is none, it is recorded and compiled first. Inputs are
 * TC_BUF_ND buffers of typed memory (a TC_BUF without sizes is one axis of n elements); outputs are
 * checked as tc_run checks them. From any thread, any number at once; a signature that is known
 * takes no lock and no memory beyond what tc_run takes. The errors of tc_run and tc_compile, and:
 * TC_ERR_ARGUMENT: fn is NULL, or a list is; TC_ERR_BUFFER: an input has no type, or there are
 * more outputs than options.n_outputs; TC_ERR_HANDLE: build set an output that is no tensor of its
 * context; TC_ERR_BUSY: build itself calls fn; TC_ERR_FROZEN: the stance allows no compile; the
 * status that build returned. tc_error(fn) has the message, per thread. */
TC_API tc_status tc_jit_run_at(tc_jit *fn, const tc_statics *statics, tc_bufs inputs,
                               tc_bufs outputs, tc_site here);
#define tc_jit_run(fn, statics, ...) tc_jit_run_at((fn), (statics), __VA_ARGS__, TC_HERE)
/* The size of axis `axis` (-1: the last) of output `output` for such inputs, whose pointers may be
 * NULL; specializes as tc_jit_run does. -1: an error; tc_error(fn) has the message. */
TC_API int64_t tc_jit_output_size_at(tc_jit *fn, const tc_statics *statics, tc_bufs inputs,
                                     int output, int axis, tc_site here);
#define tc_jit_output_size(fn, statics, ...)                                                       \
    tc_jit_output_size_at((fn), (statics), __VA_ARGS__, TC_HERE)

/* A signature to specialize for in advance: pointers of the inputs may be NULL, dtypes and sizes
 * count. */
typedef struct tc_jit_signature {
    const tc_statics *statics; /* NULL: none */
    tc_bufs inputs;
    tc_status status; /* out */
} tc_jit_signature;
/* Makes the specializations of n signatures that are missing. Returns the first failure. */
TC_API tc_status tc_jit_warm_at(tc_jit *fn, tc_jit_signature *signatures, int n, tc_site here);
#define tc_jit_warm(fn, ...) tc_jit_warm_at((fn), __VA_ARGS__, TC_HERE)

/* One specialization, as tc_jit_list shows it. */
typedef struct tc_jit_variant {
    int64_t id;          /* of tc_jit_drop; never given twice by one tc_jit */
    int64_t hits;        /* runs that it served */
    int64_t compile_ns;  /* recording and compiling it */
    bool interpreted;    /* no native code */
    bool hot;            /* of sizes that kept coming (options.max_hot) */
    char signature[192]; /* "f32[8, 64], statics 3" */
} tc_jit_variant;
/* Writes the first `room` specializations, oldest first; returns how many there are. Waits for no
 * other thread: one that is being compiled is not listed. -1: fn is NULL. */
TC_API int tc_jit_list(tc_jit *fn, tc_jit_variant *list, int room);
/* Drops specialization `id`, or all of them with id -1, while runs go on: those under way end
 * first, then its memory is freed by a later call on fn. TC_ERR_ARGUMENT: fn is NULL, or there is
 * no such specialization. */
TC_API tc_status tc_jit_drop(tc_jit *fn, int64_t id);

/* From now on fn makes specializations as the stance says (at first as options.options->stance);
 * those that exist go on serving. Back to TC_STANCE_COMPILE drops those that the interpreter served
 * meanwhile. TC_ERR_ARGUMENT: fn is NULL, or no stance; TC_ERR_BUSY: called by build;
 * TC_ERR_MEMORY. */
TC_API tc_status tc_jit_stance(tc_jit *fn, tc_stance stance);

/* The private context. Tensors made in it outside of build, as parameters and weights that all
 * specializations share, stay until tc_jit_free; only while no other thread is in a call on fn.
 * NULL: fn is NULL. */
TC_API tc_ctx *tc_jit_ctx(tc_jit *fn);
/* Within build: static integer i of the specialization that is recorded on ctx; 0 where there is
 * none. */
TC_API int64_t tc_jit_static(const tc_ctx *ctx, int i);
TC_API int tc_jit_n_statics(const tc_ctx *ctx);
/* The last failing call on fn of the calling thread; "": none. */
TC_API const char *tc_jit_error(tc_jit *fn);

#ifdef __cplusplus
} /* extern "C" */
static inline const char *tc_error(tc_jit *fn)
{
    return tc_jit_error(fn);
}
/* Lives until the end of the full expression that contains it, as in C. */
template <size_t tci_n> struct tci_static_array {
    tci_size_array<tci_n> sizes;
    tc_statics list;
    const tc_statics *get()
    {
        list.items = sizes.items;
        list.n = static_cast<int>(tci_n);
        return &list;
    }
};
template <class... tci_t> static inline tci_static_array<sizeof...(tci_t)> tci_statics(tci_t... v)
{
    tci_static_array<sizeof...(tci_t)> r = {tci_size_list(v...), tc_statics()};
    return r;
}
#define TC_STATICS(...) (tci_statics(__VA_ARGS__).get())
#else
#define TC_STATICS(...) (&(const tc_statics){TCI_SIZES(__VA_ARGS__), TCI_SIZES_N(__VA_ARGS__)})
#endif
#endif
