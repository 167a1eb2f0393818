/* tc - a tensor compiler for C in one header.
 *
 * Write tensor expressions; tc records them as a graph, fuses it, generates C for exactly these
 * shapes, has the system's compiler build it, and remembers the result in memory and on disk.
 * Without a compiler it interprets, with the same bits.
 *
 * QUICK START
 *
 *     #define TC_IMPLEMENTATION          // in one .c file of the program
 *     #include "tc.h"                    // tc_cpu.h beside it adds native code
 *
 *     int main(void)
 *     {
 *         static float in[10000], out[10000];
 *         tc_ctx *ctx;
 *         tc_program *f;
 *         if (tc_ctx_make(&ctx, NULL)) {
 *             return 1;
 *         }
 *         tc_tensor x = tc_input(ctx, "x", TC_F32, 10000);
 *         tc_tensor y = tc_sin(tc_cos(x));
 *         if (tc_compile(y, &f)) {
 *             fprintf(stderr, "%s\n", tc_error(y));
 *             return 1;
 *         }
 *         tc_run(f, TC_BUFS(TC_BUF(in, 10000)), TC_BUFS(TC_BUF(out, 10000)));
 *         tc_program_free(f);
 *         tc_ctx_free(ctx);
 *         return 0;
 *     }
 *
 *     cc app.c -lm                       // older libcs also want -ldl -lpthread
 *
 * CONTENTS
 *
 *     1 options at compile time     5 numbers and dtypes     9 scopes: loops in flat memory
 *     2 contexts and tensors        6 axes and shapes       10 errors
 *     3 compile and run             7 what is promised      11 threads
 *     4 evaluate, read, print       8 the two caches        12 looking inside
 *
 * The declarations follow in reading order: types.h (dtypes, options, statuses), tensor.h
 * (contexts, leaves, scopes), ops.h (the operations), compile.h (compile, run, evaluate, inspect),
 * backend.h.
 *
 * 1 OPTIONS AT COMPILE TIME: defined before the include
 *
 *     TC_IMPLEMENTATION   the code itself comes with the declarations: in exactly one file
 *     TC_STATIC           everything is static: several files may each have their own tc
 *     TC_API              decorates the public functions (export attributes)
 *     TC_NO_CPU           leaves tc_cpu.h out even when it lies beside tc.h
 *     TC_MALLOC, TC_REALLOC, TC_FREE   replace libc's for memory of the process
 *
 * The declarations are C11 and C++17; the implementation is C11. The flags of the file with the
 * implementation do not matter to results, but clang refuses its fast-math flag there.
 *
 * 2 CONTEXTS AND TENSORS
 *
 * A tc_ctx owns what is recorded; one thread at a time uses it. A tc_tensor is a small value that
 * names a node of it: copy it freely, never free it. Making a tensor computes nothing. The same
 * expression written twice is one node. Leaves:
 *
 *     tc_input(ctx, "x", TC_F32, 3, 4)   a placeholder, bound at each tc_run; without sizes it is
 * 0-d tc_borrow(ctx, p, TC_F32, 3, 4)    reads the user's memory at each run; tc_touch says it
 * changed tc_copy_in(ctx, p, TC_F32, 3, 4)   copies it now tc_full(ctx, 0.5, TC_F32, 3, 4)
 * tc_arange(ctx, 0, 10, 1, TC_I64)
 *
 * A list written in braces within a macro call needs parentheses around it, as its commas would
 * separate arguments: tc_copy_in(ctx, ((float[]){1, 2, 3}), TC_F32, 3).
 *
 * 3 COMPILE AND RUN
 *
 * tc_compile(y, &f) takes the inputs that y needs in the order in which they were made;
 * tc_compile_fn(TC_TENSORS(ins), TC_TENSORS(outs), &options, &f) states inputs and outputs;
 * tc_compile_many builds many programs with one run of the compiler. A program outlives its
 * context. tc_run checks dtype, count and overlap of the buffers, allocates nothing once warm, and
 * may be called from any thread. An output may be exactly an input's memory where the plan proves
 * it safe; any other overlap is TC_ERR_BUFFER. tc_call_make gives a caller a workspace of its own.
 *
 * 4 EVALUATE, READ, PRINT
 *
 * The lazy form needs no program: tc_read(t, p, n) and tc_print(stdout, t) compile on demand
 * (remembered like any compile), run and keep the value at the node; tc_eval only does that.
 *
 * 5 NUMBERS AND DTYPES
 *
 * Where an operand is expected a C number will do: tc_mul(x, 2). Numbers are weak, as in NumPy 2:
 * an integer takes the tensors' dtype (beside bool: i64), a floating number too where that is a
 * float (else: f32). Their values are not part of a program's identity: 10,000 learning rates are
 * one compile. Only exactly 0, 1, -1, 2 and 0.5 are known to the compiler. Tensors of different
 * dtypes meet as in PyTorch (bf16 with f16 in f32; a 0-d tensor changes the dtype only when its
 * kind - bool, integer, float - is higher). Sums of integers are i64. A division is always in
 * floats. Corners: integers wrap; x / 0 and x % 0 are 0 for integers inside remainder; float to int
 * truncates and saturates, NaN gives 0; comparisons with NaN are false; max and min keep NaN.
 *
 * 6 AXES AND SHAPES
 *
 * Axes are numbered from 0, or from the end with -1, -2, ... TC_AXES(0, -1) lists some, TC_ALL
 * means every one. Shapes broadcast from the right; an axis of size 1 repeats. Sizes of 0 and 0-d
 * tensors are ordinary. Rank is not limited. tc_rank, tc_size, tc_dtype_of, tc_count and tc_nbytes
 * answer without a run. Movement (reshape, permute, slice, pad, ...) copies nothing by itself.
 *
 * 7 WHAT IS PROMISED
 *
 * The same bits from interpreter and native code, from any C compiler, vector width and thread
 * count, run after run. A primitive rounds to its dtype whether it was fused or not; a composite
 * (softmax, layer_norm, mean, ...) computes f16 and bf16 in f32 and rounds once.
 *
 * 8 THE TWO CACHES
 *
 * In memory and, unless options or TC_NO_CACHE say otherwise, in ~/.cache/tc (TC_CACHE_DIR). The
 * key is the graph with its shapes, the options that matter and the machine's features; entries are
 * checked in full. A cache filled elsewhere may be used read-only by machines without a compiler.
 *
 * 9 SCOPES: LOOPS IN FLAT MEMORY
 *
 * Tensors live in the innermost open scope and die with it; a dead handle is an error, not a read.
 * tc_keep evaluates a tensor and moves its value to the scope outside:
 *
 *     for (int i = 0; i < steps; i++) {
 *         tc_scope_begin(ctx);
 *         x = tc_keep(tc_mul(tc_add(x, step), 0.5));
 *         tc_scope_end(ctx);
 *     }
 *
 * A value that was kept at the same line two keeps ago is dropped once its successor's computation
 * used it, so the loop above runs for ever; tc_retain(t) exempts a value.
 *
 * 10 ERRORS
 *
 * Nothing aborts, exits or prints. A call that cannot be made returns a poisoned tensor; what is
 * computed from it is poisoned too; tc_error(t) is the first cause on the way to t:
 *
 *     app.c:12: tc_add: shapes [3, 4] and [5] do not broadcast: axis 1 is 4 against 5
 *
 * Functions that can fail return a tc_status; tc_error also takes contexts, programs and calls.
 * After an error everything else stays usable.
 *
 * 11 THREADS
 *
 * A context belongs to one thread at a time; programs to all. Large kernels are split over a pool
 * of workers (options.threads, TC_THREADS), small ones run on the caller. options.parallel_for
 * hands the work to the host's own job system. The pool ends with the last context and program.
 *
 * 12 LOOKING INSIDE
 *
 * tc_explain(f, stdout) lists kernels, traffic, and why what was not fused was not; tc_source(f) is
 * the generated C; tc_stats counts compiles, compiler runs and hits. TC_HELP=1 prints every
 * environment variable: TC_DUMP (each stage's text), TC_LOG, TC_TRACE, TC_BACKEND, TC_CC, ... */
