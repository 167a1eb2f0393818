/* tc - a header-only tensor compiler for C. This comment is its manual: build, defines, a first
 * program, operands, compiled and lazy form, gradients, symbolic sizes, loops, errors, threads.
 *
 * Calls of tc record tensor expressions as a graph. tc differentiates and fuses it, generates C or
 * CUDA for exactly these shapes, builds that with the system's compiler or NVRTC, and caches the
 * result in memory and on disk. Without a compiler it interprets the graph, with the same bits.
 *
 * The declarations below state shapes, dtypes, errors and ownership of each call; the last section
 * of this manual lists the pages of docs/.
 *
 * BUILD
 *
 * tc_cpu.h must be next to tc.h: it makes native code. One .c file of the program, here tc.c, has
 * the implementation; all other files include tc.h alone:
 *
 *   printf '#define TC_IMPLEMENTATION\n#include "tc.h"\n' >tc.c
 *   cc -O2 -c tc.c                             once: 10 to 20 s, gcc or clang
 *   cc app.c tc.o -lm -ldl -lpthread           newer libcs need -lm alone
 *
 * The declarations are C11 and C++11, the implementation is C11. tc_onnx.h adds ONNX models,
 * tc_comm.h training on several processes.
 *
 * DEFINES: before every include of tc.h
 *
 *   TC_IMPLEMENTATION   include the implementation: in exactly one .c file
 *   TC_STATIC           make all functions static: each file may have its own tc
 *   TC_DYNAMIC_SHAPES   symbolic sizes: in every file of the program, or in none
 *   TC_CUDA             the backend "cuda" for GPUs, from tc_cuda.h
 *   TC_OPERATORS        operators on tensors, for C++
 *   TC_BLOCKS           schedules of GPUs from tc_cuda.h, for a device backend of your own
 *   TC_NO_CPU           leave out tc_cpu.h: everything is interpreted
 *   TC_NO_IO            leave out files, DLPack and tc_export_c
 *   TC_NO_NAMES         leave out tc_op, tc_expr, TC_EXPR: calls of ops by name
 *   TC_NO_DEBUG         leave out profiles, checks and tc_triage
 *   TC_API              decorates the public functions (export attributes)
 *   TC_MALLOC, TC_REALLOC, TC_FREE    replace libc's: all three or none
 *
 * FIRST PROGRAM
 *
 *     #include "tc.h"
 *
 *     int main(void)
 *     {
 *         float in[4] = {0, 1, 2, 3}, out[4];
 *         tc_ctx *ctx;
 *         tc_program *f;
 *         if (tc_ctx_make(&ctx, NULL)) { // NULL: default options
 *             return 1;
 *         }
 *         tc_tensor x = tc_input(ctx, "x", TC_F32, 4);
 *         tc_tensor y = tc_add(tc_mul(x, x), 1);
 *         if (tc_compile(y, &f)) {
 *             fprintf(stderr, "%s\n", tc_error(y));
 *             return 1;
 *         }
 *         if (tc_run(f, TC_BUFS(TC_BUF(in, 4)), TC_BUFS(TC_BUF(out, 4)))) {
 *             fprintf(stderr, "%s\n", tc_error(f));
 *         }
 *         printf("%g %g %g %g\n", out[0], out[1], out[2], out[3]);
 *         // 1 2 5 10
 *         tc_program_free(f);
 *         tc_ctx_free(ctx);
 *         return 0;
 *     }
 *
 * A context owns its tensors. A tc_tensor is a handle: copy it, never free it. A program outlives
 * its context. In the examples below ctx is a context, x and y are f32 tensors of shape [3, 4],
 * in and out are arrays of 12 floats (in is 0, 1, ... 11).
 *
 * OPERANDS
 *
 * Leaves are placeholders or have memory. Sizes follow the dtype; without sizes a leaf is 0-d:
 *
 *     tc_tensor a = tc_input(ctx, "a", TC_F32, 3, 4);     // placeholder, bound by tc_run
 *     tc_tensor b = tc_borrow(ctx, in, TC_F32, 3, 4);     // your memory, read at each run
 *     tc_tensor c = tc_copy_in(ctx, in, TC_F32, 3, 4);    // copied now
 *     tc_tensor d = tc_full(ctx, 0.5, TC_F32, 3, 4);      // also tc_zeros, tc_ones, tc_arange
 *     in[0] = 7;
 *     tc_touch(b);                                        // tell tc that borrowed memory changed
 *
 * A C number may stand for an operand and takes the dtype of the tensors where its kind allows.
 * Another number does not cause a compile. Shapes broadcast from the right.
 *
 *     tc_tensor i = tc_arange(ctx, 0, 4, 1, TC_I32);
 *     tc_print(stdout, tc_where(tc_lt(i, 2), tc_mul(i, 0.5), 1));
 *     // [0.  0.5 1.  1. ]
 *
 * ATTRIBUTES
 *
 * Operands come first, attributes after them. Axes count from 0, or from the end with -1, -2, ...
 * An options struct may be NULL, and a field of it that is zero is the default. TC_NONE stands for
 * an optional tensor that is left out.
 *
 *     tc_tensor s = tc_softmax(x, -1);
 *     tc_tensor m = tc_mean(x, TC_AXES(0, -1), true), all = tc_sum(x, TC_ALL, false);
 *     tc_tensor n = tc_layer_norm(x, TC_AXES(-1), TC_NONE, TC_NONE, 1e-5);
 *     tc_tensor image = tc_reshape(x, 1, 1, 3, 4), filter = tc_full(ctx, 1, TC_F32, 2, 1, 3, 3);
 *     tc_tensor maps = tc_conv2d(image, filter, TC_NONE, &(tc_conv){.padding = {1, 1}});
 *
 * LISTS
 *
 * TC_TENSORS(a, b), TC_AXES(0, 1) and TC_BUFS(...) are lists, TC_TENSORS_N(items, n), TC_AXES_N and
 * TC_BUFS_N lists that are stored in arrays. A list in braces inside a macro call needs parentheses
 * around it. Calls with several results store them through pointers:
 *
 *     tc_tensor t = tc_copy_in(ctx, ((float[]){3, 1, 2}), TC_F32, 3), values, indices;
 *     tc_topk(t, 0, 2, true, &values, &indices);
 *     tc_print(stdout, tc_cat(TC_TENSORS(t, values), 0));
 *     // [3. 1. 2. 3. 2.]
 *
 * LAZY FORM
 *
 * tc_read, tc_print and tc_eval compile and run what a value needs, and keep the value. All leaves
 * must have memory. Scopes keep C loops in constant memory: tc_keep moves a value to the outer
 * scope.
 *
 *     float sums[3];
 *     tc_read(tc_sum(tc_copy_in(ctx, in, TC_F32, 3, 4), TC_AXES(1), false), sums, 3);
 *     printf("%g %g %g\n", sums[0], sums[1], sums[2]);
 *     // 6 22 38
 *     tc_tensor root = tc_full(ctx, 1, TC_F64);
 *     for (int i = 0; i < 20; i++) {
 *         tc_scope_begin(ctx);
 *         root = tc_keep(tc_mul(tc_add(root, tc_div(2, root)), 0.5));
 *         tc_scope_end(ctx);
 *     }
 *
 * COMPILED FORM
 *
 * tc_compile takes the inputs that y needs in the order in which they were made; tc_compile_fn
 * states inputs, outputs and options. TC_BUF takes the dtype from the pointer's type; of void * and
 * char * it counts bytes.
 *
 *     tc_tensor u = tc_input(ctx, "u", TC_F32, 12), largest = tc_max(u, TC_ALL, false);
 *     tc_options options = {.threads = 1}; // and .backend, .cache_dir, .log ...: see tc_options
 *     tc_program *g;
 *     float top;
 *     if (tc_compile_fn(TC_TENSORS(u), TC_TENSORS(largest), &options, &g) == TC_OK) {
 *         tc_run(g, TC_BUFS(TC_BUF(in, 12)), TC_BUFS(TC_BUF(&top, 1)));
 *         printf("%g\n", top);
 *         // 11
 *         tc_program_free(g);
 *     }
 *
 * GRADIENTS AND PARAMETERS
 *
 * A parameter is a leaf with memory of its own. tc_grad adds the gradient's nodes to the graph, and
 * tc_assign, given as an output, sets a parameter at the end of a run: forward, backward and update
 * are one program. tc_assign takes no output buffer. tc_sgd, tc_adam, tc_adamw, tc_lion and tc_muon
 * make such effects; tc_save and tc_load store named parameters.
 *
 *     tc_tensor w = tc_param(ctx, in, TC_F32, 12), target = tc_input(ctx, "t", TC_F32, 12), g;
 *     tc_tensor loss = tc_sum(tc_square(tc_sub(w, target)), TC_ALL, false);
 *     tc_grad(loss, &w, 1, &g);
 *     tc_tensor update = tc_assign(w, tc_sub(w, tc_mul(g, 0.1)));
 *     tc_program *train;
 *     if (tc_compile_fn(TC_TENSORS(target), TC_TENSORS(loss, update), NULL, &train) == TC_OK) {
 *         float now;
 *         for (int i = 0; i < 100; i++) {
 *             tc_run(train, TC_BUFS(TC_BUF(out, 12)), TC_BUFS(TC_BUF(&now, 1)));
 *         }
 *         puts(now < 1e-6 ? "converged" : "not yet");
 *         // converged
 *         tc_program_free(train);
 *     }
 *
 * SYMBOLIC SIZES
 *
 * Each set of fixed sizes is a program of its own. TC_DIM(name, least, most) is a size that each
 * run takes from its buffers; tc_dim_add, _sub, _mul, _div, _min and _max compute with it.
 *
 *     #define TC_DYNAMIC_SHAPES
 *     #include "tc.h"
 *
 *     int main(void)
 *     {
 *         static float in[64 * 512], out[64 * 512];
 *         tc_ctx *ctx;
 *         tc_program *f;
 *         if (tc_ctx_make(&ctx, NULL)) {
 *             return 1;
 *         }
 *         tc_tensor x = tc_input(ctx, "x", TC_F32, TC_DIM("batch", 0, 4096), 512);
 *         if (tc_compile(tc_softmax(x, 1), &f) == TC_OK) {
 *             for (int n = 0; n <= 64; n++) {
 *                 tc_run(f, TC_BUFS(TC_BUF(in, n * 512)), TC_BUFS(TC_BUF(out, n * 512)));
 *             }
 *             tc_program_free(f);
 *         }
 *         tc_ctx_free(ctx);
 *         return 0;
 *     }
 *
 * LOOPS
 *
 * tc_scan repeats a body for each element, tc_while until its values end it, tc_cond takes a branch
 * of two. A body is a C function that is called once and records one step:
 *
 *     #include "tc.h"
 *
 *     static tc_status step(void *user, const tc_tensor *carry, const tc_tensor *x,
 *                           tc_tensor *next, tc_tensor *y)
 *     {
 *         (void)user;
 *         y[0] = next[0] = tc_add(tc_mul(carry[0], 0.5), x[0]);
 *         return TC_OK;
 *     }
 *
 *     int main(void)
 *     {
 *         tc_ctx *ctx;
 *         if (tc_ctx_make(&ctx, NULL)) {
 *             return 1;
 *         }
 *         tc_tensor start = tc_full(ctx, 0, TC_F32), signal = tc_ones(ctx, TC_F32, 4), last, all;
 *         tc_scan(TC_TENSORS(start), TC_TENSORS(signal), 0, false, step, NULL, &last, &all, 1);
 *         tc_print(stdout, all);
 *         // [1.    1.5   1.75  1.875]
 *         tc_ctx_free(ctx);
 *         return 0;
 *     }
 *
 * ERRORS
 *
 * tc never aborts or exits, and prints only where TC_HELP or TC_LOG ask for it. A call that fails
 * returns a poisoned tensor, and so does every call on it; tc_error has the first cause, with its
 * file and line. Other functions return a tc_status; tc_error of the tensor, program, call or
 * context that was given has the text.
 *
 *     tc_tensor bad = tc_add(x, tc_full(ctx, 1, TC_F32, 5));
 *     tc_tensor later = tc_exp(bad);
 *     puts(tc_error(later));
 *     // app.c:1: tc_add: shapes [3, 4] and [5] do not broadcast: axis 1 is 4 against 5
 *     puts(tc_status_text(tc_status_of(later)));
 *     // shapes do not fit
 *
 * THREADS
 *
 * One thread at a time uses a context. Any number of threads may run the same program. The number
 * of worker threads (options.threads) does not change a result. tc_run_async runs on a queue.
 *
 * WHERE TO READ ON: docs/ in the repository
 *
 *   guide.md, ops.md       everything above in full, with examples; all operations
 *   options.md, environment.md    struct tc_options; the TC_ variables (TC_HELP=1 prints them)
 *   errors.md, numerics.md        statuses and texts; bits, rounding, dtypes of mixed operands
 *   symbolic-sizes.md, files.md   rules of TC_DIM; .safetensors, .npz, DLPack, tc_export_c
 *   debugging.md, performance.md  tc_explain, profiles, checks; what is fast, what is slow
 *   threads.md, production.md, cache-and-security.md   for servers
 *   backends.md, distributed.md, onnx.md, from-pytorch.md, limits.md, stability.md, glossary.md */
