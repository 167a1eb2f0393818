/* tc - a header-only tensor compiler for C.
 *
 * Write tensor expressions; tc records them as a graph, fuses it, generates C for exactly these
 * shapes, has the system's compiler build it, and remembers the result in memory and on disk.
 * Without a compiler it interprets, with the same bits.
 *
 * QUICK START
 *
 *     #define TC_IMPLEMENTATION          // in one .c file of the program
 *     #include "tc.h"                    // tc_cpu.h beside it makes native code: copy both
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
 *         if (tc_run(f, TC_BUFS(TC_BUF(in, 10000)), TC_BUFS(TC_BUF(out, 10000)))) {
 *             fprintf(stderr, "%s\n", tc_error(f));
 *         }
 *         tc_program_free(f);
 *         tc_ctx_free(ctx);
 *         return 0;
 *     }
 *
 *   cc app.c -lm                         older libcs also want -ldl -lpthread
 *
 * CONTENTS
 *
 *   1 options at compile time    8 lazy form: values           15 looking inside
 *   2 contexts                   9 scopes: flat memory         16 environment
 *   3 tensors and leaves        10 state, training, random     17 symbolic sizes
 *   4 operations                11 what is promised            18 files of arrays
 *   5 numbers and dtypes        12 errors                      19 limits
 *   6 axes and shapes           13 threads
 *   7 compiled form: programs   14 caches
 *
 * In the examples x and y are f32 tensors of shape [3, 4], in and out arrays of 12 floats.
 *
 * 1 OPTIONS AT COMPILE TIME: defined before the include
 *
 *   TC_IMPLEMENTATION   the code itself comes with the declarations: in exactly one file
 *   TC_STATIC           everything is static: several files may each have their own tc
 *   TC_API              decorates the public functions (export attributes)
 *   TC_NO_CPU           leaves tc_cpu.h out even when it lies beside tc.h
 *   TC_NO_IO            leaves files, DLPack and tc_export_c out (18)
 *   TC_NO_NAMES         leaves tc_op out, calls of ops by their names
 *   TC_CUDA             brings tc_cuda.h and its declarations (backend "cuda")
 *   TC_BLOCKS           brings the schedules of blocks of threads of tc_cuda.h, for your own device
 *   TC_DYNAMIC_SHAPES   symbolic sizes (17): in every file that includes tc.h, or in none
 *   TC_MALLOC, TC_REALLOC, TC_FREE   replace libc's for memory of the process; all three or none
 *
 * The declarations are C11 and C++ from C++11 on and cost less than 0.1 s to include; the
 * implementation is C11, for gcc and clang, takes 10 to 20 s to compile and 1.8 megabytes of a
 * program (1.0 where what is not called is dropped: docs/performance.md): give it a .c file of its
 * own (a program of C++ has to). The flags and macros of that file do not matter to results, but
 * clang refuses its fast-math flag there. Only names that start with tc_ or TC_ (inner ones: tci_,
 * TCI_) are taken.
 *
 * Without tc_cpu.h everything is interpreted, many times slower. Nothing is printed: tc_explain
 * says so, and the log under "compile"; asking for the backend "cpu" is TC_ERR_BACKEND.
 *
 * 2 CONTEXTS
 *
 * A tc_ctx owns what is recorded; one thread at a time uses it. tc_options chooses backend,
 * threads, cache, allocator and more; a field left zero is a good default, NULL is all defaults:
 *
 *     tc_ctx *quiet;
 *     tc_options options = {.backend = "interp", .threads = 1, .no_disk_cache = true};
 *     if (tc_ctx_make(&quiet, &options) == TC_OK) {
 *         tc_stats stats;
 *         tc_stats(quiet, &stats);
 *         printf("%d nodes\n", (int)stats.nodes);
 *         // 0 nodes
 *         tc_ctx_free(quiet);
 *     }
 *
 * tc_ctx_free ends the context and all its tensors; programs live on. Freeing NULL, or a context
 * that was freed already, does nothing, however many were made since: a tc_ctx * is no address but
 * a number that no other context gets. Programs and calls are freed once, as with free().
 *
 * 3 TENSORS AND LEAVES
 *
 * A tc_tensor is a small value that names a node of its context: copy it freely, never free it.
 * Making one computes nothing, and the same expression written twice is one node. Leaves:
 *
 *     tc_tensor a = tc_input(ctx, "a", TC_F32, 3, 4);     // a placeholder, bound at each tc_run
 *     tc_tensor rate = tc_input(ctx, "rate", TC_F32);     // no sizes: 0-d
 *     tc_tensor b = tc_borrow(ctx, in, TC_F32, 3, 4);     // the user's memory, read at each run
 *     tc_tensor c = tc_copy_in(ctx, in, TC_F32, 3, 4);    // copied now
 *     tc_tensor d = tc_full(ctx, 0.5, TC_F32, 3, 4);
 *     tc_tensor e = tc_arange(ctx, 0, 12, 1, TC_I64);
 *
 * The memory's C type must be the dtype's (uint16_t holds f16 and bf16 too): float for TC_F64 is
 * TC_ERR_DTYPE. void *, char * and unsigned char * are memory of any dtype, whose size tc trusts.
 *
 * Borrowed memory outlives its use and is aligned as C aligns the dtype's type. When its contents
 * change, say so: what was evaluated from it is then computed anew, also what programs compute of
 * it once (a weight in another order, a folded scale: 7 below), and a device copies it anew. Any
 * strides will do, counted in elements:
 *
 *     tc_tensor whole = tc_borrow(ctx, in, TC_F32, 12);
 *     in[0] = 7;
 *     tc_touch(whole);
 *     int64_t sizes[2] = {4, 3}, strides[2] = {1, 4};
 *     tc_tensor columns = tc_borrow_strided(ctx, in, TC_F32, 2, sizes, strides);
 *
 * A list in braces within a macro call needs parentheses around it, as its commas would separate
 * arguments; a list that lies in memory is TC_TENSORS_N(items, n), TC_AXES_N or TC_BUFS_N:
 *
 *     tc_tensor three = tc_copy_in(ctx, ((float[]){1, 2, 3}), TC_F32, 3), pair[2] = {three, three};
 *     tc_eval_many(TC_TENSORS_N(pair, 2));
 *
 * 4 OPERATIONS
 *
 * Operands first, attributes after, options structs with zero as default, TC_NONE for an optional
 * tensor that is left out. Each macro tc_xxx(...) is the function tc_xxx_at(..., tc_site here) with
 * the caller's file and line; bindings of other languages call that. The declarations below
 * (api/ops.h) say shapes, dtypes and errors of each.
 *
 *     tc_tensor z = tc_where(tc_gt(x, 0), tc_exp(x), tc_mul(y, 0.1));
 *     tc_tensor rows = tc_softmax(tc_sub(z, tc_max(z, TC_AXES(-1), true)), -1);
 *     tc_tensor normal = tc_layer_norm(x, TC_AXES(-1), TC_NONE, TC_NONE, 1e-5);
 *     tc_tensor gram = tc_einsum("ik,jk->ij", TC_TENSORS(rows, normal));
 *     tc_tensor part = tc_slice(tc_flip(x, 1), 1, 0, TC_END, 2);
 *     tc_tensor tall = tc_cat(TC_TENSORS(x, y, tc_pad(x, 0, 1, -2, 0)), 0);
 *     tc_tensor image = tc_reshape(x, 1, 1, 3, 4), kernel = tc_full(ctx, 1, TC_F32, 2, 1, 3, 3);
 *     tc_tensor same = tc_conv2d(image, kernel, TC_NONE, &(tc_conv){.padding = {1, 1}});
 *     tc_tensor coarse = tc_avg_pool2d(same, &(tc_pool){.kernel = {3, 2}});
 *     tc_tensor fine = tc_interpolate(coarse, &(tc_interpolation){.size = {6, 8}});
 *     tc_tensor smooth = tc_conv_transpose2d(fine, kernel, TC_NONE, &(tc_conv){.stride = {2, 2}});
 *     tc_tensor read = tc_index_select(x, 0, tc_arange(ctx, 0, 2, 1, TC_I64));
 *     tc_tensor back = tc_index_add(x, 0, tc_arange(ctx, 0, 2, 1, TC_I64), read);
 *     tc_tensor spread, centre;                // of each row, which is read once for both
 *     tc_var_mean(x, TC_AXES(-1), 1, true, &spread, &centre);
 *     tc_tensor sample = tc_var(x, TC_AXES(0), 1, false), deviation = tc_std(x, TC_ALL, 0, false);
 *     tc_tensor best, where;                   // the two largest of each row, and where they are
 *     tc_topk(x, -1, 2, true, &best, &where);
 *     tc_sort(x, 0, false, &best, &where);
 *     tc_tensor ranked = tc_gather(y, 0, tc_argsort(x, 0, true));       // y in the order of x
 *     tc_tensor room, found;                   // for 6 that are positive, and how many there are
 *     tc_masked_select(x, tc_gt(x, 0), 6, &room, &found);
 *     tc_tensor turned = tc_roll(tc_pad_mode(x, 1, 1, 1, "circular"), 2, 0);
 *     tc_tensor running, since, kinds, each;   // the largest so far; what there is, how often
 *     tc_cummax(x, 1, &running, &since);
 *     tc_unique(tc_reshape(x, -1), 0, 12, &kinds, NULL, &each, NULL);
 *     tc_tensor factor = tc_cholesky(tc_add(gram, tc_diag(tc_full(ctx, 1, TC_F32, 3), 0)), false);
 *     tc_tensor whitened = tc_solve_triangular(factor, x, false, true, false);
 *     tc_tensor often, rows_of[2];             // the most frequent of each row; a grid of points
 *     tc_mode(x, 1, false, &often, NULL);
 *     tc_meshgrid(TC_TENSORS(often, tc_arange(ctx, 0, 5, 1, TC_F32)), false, rows_of);
 *     const int64_t of[] = {3, 2}, apart[] = {4, 1};      // columns 1 and 2 of each row
 *     tc_tensor windows = tc_as_strided(x, 2, of, apart, 1);
 *     tc_tensor drawn = tc_multinomial(tc_softmax(x, 1), 2, true, 7);
 *     tc_tensor chosen = tc_gumbel_softmax(x, 0.5, true, 1, 8); // one of each row
 *     tc_tensor bytes = tc_quantize(x, 0.05, 0, -1, TC_I8);     // for x / 0.05
 *     tc_tensor products = tc_qmatmul(bytes, 0.05, 0, tc_transpose(bytes, 0, 1), 0.05, 0);
 *     tc_tensor left, strength, right;         // x is their product; also tc_qr, tc_eigh
 *     tc_svd(x, &left, &strength, &right);
 *     tc_tensor pairs = tc_rfft(x, 0, -1, NULL);                // real and imaginary parts, last
 *     tc_tensor filtered = tc_irfft(tc_mul(pairs, 0.5), 4, -1, NULL);
 *     tc_tensor power = tc_real(tc_complex_mul(pairs, tc_conj(pairs)));   // also _div, _exp, ...
 *     tc_tensor halves[2], column[4];          // [3, 2] each, [3] each
 *     tc_chunk(x, 2, 1, halves);               // also tc_split: pieces of a size
 *     tc_unbind(x, 1, column, 4);
 *     tc_tensor joined = tc_stack(TC_TENSORS_N(column, 4), 1), wall = tc_tile(halves[0], 2, 3);
 *     tc_tensor scaled = tc_outer(column[0], column[1]), one = tc_dot(column[0], column[1]);
 *     tc_tensor folded = tc_tensordot(x, y, TC_AXES(0), TC_AXES(0));      // [4, 4]
 *     tc_tensor weights[2] = {tc_ones(ctx, TC_F32, 8, 4), tc_zeros(ctx, TC_F32, 8, 2)}, told, cell;
 *     tc_lstm(x, TC_NONE, TC_NONE, TC_TENSORS_N(weights, 2), false, false, &told, NULL, &cell);
 *     tc_tensor last = tc_range(x, 1, 2, 4), upper = tc_triu(x, 0);
 *     tc_tensor squares = tc_devsq(x, TC_AXES(0), false);       // of differences from the mean
 *     tc_tensor soft = tc_softplus(x, 1, TC_NONE);              // its threshold is the default
 *     tc_tensor cost = tc_huber_loss(soft, y, 0.5, TC_REDUCE_MEAN);
 *     tc_tensor near = tc_cosine_similarity(x, y, -1, 1e-8), far = tc_cdist(x, y, 2);
 *
 * What reads graphs from files, or binds another language, calls ops by their names: inputs in
 * order, all else by name; tc_op_name and tc_op_params list what there is. A name or a value that
 * does not fit is an error that shows what was expected:
 *
 *     tc_tensor peaks = tc_op(ctx, "max", TC_TENSORS(x), TC_ATTRS(TC_ATTR("axes", -1)));
 *     tc_tensor flat = tc_op(ctx, "reshape", TC_TENSORS(x), TC_ATTRS(TC_ATTR_LIST("sizes", -1)));
 *     tc_tensor more = tc_op(ctx, "add", TC_TENSORS(flat), TC_ATTRS(TC_ATTR("b", 2.5)));
 *     for (int i = 0; tc_op_name(i); i++) {
 *         printf("%s(%s)\n", tc_op_name(i), tc_op_params(i));
 *     }
 *
 * 5 NUMBERS AND DTYPES
 *
 * A dtype is TC_F32 or another name; none is equal to a size, so one that was forgotten before
 * sizes is an error.
 *
 * Where an operand is expected a C number will do: tc_mul(x, 2). Numbers are weak, as in NumPy 2:
 * an integer takes the tensors' dtype (beside bool: i64), a floating number too where that is a
 * float (else: f32). An integer that the dtype does not hold, u8 + 1000, is TC_ERR_DTYPE, but for
 * comparisons, which are exact. Their values are not part of a program's identity: 10,000 learning
 * rates are one compile. Only exactly 0, 1, -1, 2 and 0.5 are known to the compiler, and exponents
 * of tc_pow that are whole or half numbers up to 8, which are a few products. Tensors of different
 * dtypes meet as in PyTorch (bf16 with f16 in f32; a 0-d tensor changes the dtype only
 * when its kind - bool, integer, float - is higher). u16, u32 and u64 meet other integers as in
 * NumPy (u32 with i32 in i64, u64 with i64 in f64), and floats as all integers do: the result is
 * that float. Sums of integers are i64. tc_div is always in floats: integers become f32 first,
 * which is exact up to 2^24 only. For whole quotients there is tc_floor_divide, exact in every
 * integer dtype (not tc_floor of tc_div); for others cast to f64 first.
 *
 * options.promotion = TC_NUMPY gives a context the dtypes of NumPy 2 instead, for programs ported
 * from it: i32 with f32 is f64, a 0-d tensor counts as any other, means and quotients of integers
 * are f64, sums of unsigned integers u64 (tc_promotion below has the whole rule).
 *
 *     tc_ctx *numpy;
 *     tc_options as_numpy = {.promotion = TC_NUMPY};
 *     if (tc_ctx_make(&numpy, &as_numpy) == TC_OK) {
 *         tc_tensor i = tc_arange(numpy, 0, 3, 1, TC_I32), f = tc_ones(numpy, TC_F32, 3);
 *         tc_print(stdout, tc_div(tc_add(i, f), 3));          // f64
 *         tc_ctx_free(numpy);
 *     }
 *
 * Corners: integers wrap; tc_floor_divide and tc_remainder of an integer by 0 are 0; float to int
 * truncates and saturates, NaN gives 0; comparisons with NaN are false; max and min keep NaN.
 * tc_remainder and tc_floor_divide are Python's % and //: the remainder has the sign of b, also
 * when it is a zero. tc_gelu(-inf) is its limit, -0. tc_mul and tc_add round each; tc_fma(a, b, c)
 * is a * b + c rounded once, on every backend, so tc_fma(a, b, tc_neg(tc_mul(a, b))) is what the
 * product lost.
 *
 * Functions of one op are within 3 units in the last place, most of them within 1.5, tc_silu within
 * 4, tc_gelu of f32 within 7, tc_logaddexp and tc_logaddexp2 within 15 (of f32 32 where the result
 * is some 1e-9), tc_gelu_tanh from -12 to -5 within 500; tc_pow is exact where its result is.
 * Exceptions: results below the least normal number (tc_silu and tc_mish of f32: 52 units, of f64
 * some 350); in f64 tc_lgamma and tc_digamma lose next to their zeros below 0 what cancels there.
 * Of f32 all three gamma functions are rounded correctly. bench/results/accuracy.txt has each.
 *
 * Integers are words of bits too, and so is a float to tc_bitcast:
 *
 *     tc_tensor word = tc_bitcast(x, TC_U32), minus = tc_bitwise_xor(word, UINT32_C(1) << 31);
 *     tc_tensor negative = tc_bitcast(minus, TC_F32);           // -x
 *     tc_tensor exponent = tc_bitwise_and(tc_bitwise_right_shift(word, 23), 255);
 *     tc_tensor turned = tc_bitwise_or(tc_bitwise_left_shift(word, 8), tc_bitwise_not(exponent));
 *
 * 6 AXES AND SHAPES
 *
 * Axes are numbered from 0, or from the end with -1, -2, ... TC_AXES(0, -1) lists some, TC_ALL
 * means every one. Shapes broadcast from the right; an axis of size 1 repeats. Sizes of 0 and 0-d
 * tensors are ordinary. tc_rank, tc_size, tc_dtype_of, tc_count and tc_nbytes answer without a run.
 * Movement (reshape, permute, slice, pad, ...) copies nothing by itself. Where several elements go
 * to one place (tc_scatter_add, _min, _max, tc_scatter, tc_index_add), they do so in their order
 * along the axis, on every machine and with any number of threads.
 *
 * Steps that follow from each other are tc_scan (carries, an element of each input a step, an
 * element of each output), tc_while (until its values say that it is done) and tc_cond (one of two
 * branches): each is given functions that build a step of ordinary ops, and all steps are one
 * program, whose compile takes as long as one step's. tc_grad goes back through tc_scan and
 * tc_cond. examples/24_loops.c filters sound, draws the Mandelbrot set and swings pendulums;
 * 26_recurrent.c reads text and writes some. A branch:
 *
 *     #include "tc.h"
 *
 *     static tc_status halved(void *user, const tc_tensor *x, tc_tensor *y)
 *     {
 *         (void)user;
 *         y[0] = tc_mul(x[0], 0.5);
 *         return TC_OK;
 *     }
 *     static tc_status same(void *user, const tc_tensor *x, tc_tensor *y)
 *     {
 *         (void)user;
 *         y[0] = x[0];
 *         return TC_OK;
 *     }
 *
 *     int main(void)
 *     {
 *         tc_ctx *ctx;
 *         if (tc_ctx_make(&ctx, NULL)) {
 *             return 1;
 *         }
 *         tc_tensor x = tc_arange(ctx, 0, 4, 1, TC_F32), y;
 *         tc_tensor is_large = tc_gt(tc_max(x, TC_ALL, false), 2);    // a bool of shape []
 *         tc_cond(is_large, TC_TENSORS(x), halved, same, NULL, &y, 1);
 *         tc_print(stdout, y);
 *         // [0.  0.5 1.  1.5]
 *         tc_ctx_free(ctx);
 *         return 0;
 *     }
 *
 * 7 COMPILED FORM: PROGRAMS
 *
 * tc_compile takes the inputs that y needs in the order in which they were made; tc_compile_fn
 * states inputs, outputs and options; tc_compile_many builds many programs with one run of the
 * compiler. A program outlives its context, and is freed by the caller:
 *
 *     tc_tensor u = tc_input(ctx, "u", TC_F32, 12), v = tc_input(ctx, "v", TC_F32, 12);
 *     tc_tensor sum = tc_add(u, v), largest = tc_max(sum, TC_ALL, false);
 *     tc_program *g;
 *     float top, total[12];
 *     if (tc_compile_fn(TC_TENSORS(u, v), TC_TENSORS(sum, largest), NULL, &g)) {
 *         fprintf(stderr, "%s\n", tc_error(ctx));
 *     } else {
 *         tc_run(g, TC_BUFS(TC_BUF(in, 12), TC_BUF(out, 12)),
 *                TC_BUFS(TC_BUF(total, 12), TC_BUF(&top, 1)));
 *         tc_program_free(g);
 *     }
 *
 * A buffer whose elements do not lie side by side, as a channel of sound or a field of structs, has
 * strides:
 *
 *     const int64_t sizes_of[2] = {3, 4}, column_by_column[2] = {1, 3};
 *     tc_run(f, TC_BUFS(TC_BUF_STRIDED(in, 2, sizes_of, column_by_column)),
 *            TC_BUFS(TC_BUF(out, 12)));
 *
 * tc_run checks dtype, count, alignment and overlap of the buffers, allocates nothing once warm,
 * and may be called from any thread. TC_BUF knows the dtype from the pointer's type, or from that
 * of an array of two or three dimensions (float a[3][4]; in C++ of any number); where it does not
 * (void *, char *, arrays of more dimensions), the count is in bytes.
 * An output may be exactly an input's memory where the plan proves it safe; any other overlap is
 * TC_ERR_BUFFER. Side by side in one array is no overlap: a step may write a row straight behind
 * those that it reads (17 has a cache that grows so). What a program with inputs computes from
 * memory that it captured (3, and parameters that it does not set itself) and from no input, it
 * computes once where that pays, and keeps: tc_program_info counts it, tc_explain lists it. It is
 * computed again in the first run after tc_touch, or after another program set a parameter.
 * tc_call_make gives one caller a workspace and an error text of its own:
 *
 *     tc_call *call;
 *     if (tc_call_make(f, &call) == TC_OK) {
 *         tc_run_call(call, TC_BUFS(TC_BUF(in, 12)), TC_BUFS(TC_BUF(out, 12)));
 *         tc_call_free(call);
 *     }
 *
 * What a program takes and gives, in the order of tc_run, and inputs by name:
 *
 *     tc_port port;
 *     for (int i = 0; tc_program_get_input(f, i, &port) == TC_OK; i++) {
 *         printf("%s: %s, %d axes\n", port.name, tc_dtype_name(port.dtype), port.rank);
 *         // x: f32, 2 axes
 *     }
 *     tc_buf given[1];
 *     given[tc_program_find_input(f, "x")] = TC_BUF(in, 12);
 *     tc_run(f, TC_BUFS_N(given, 1), TC_BUFS(TC_BUF(out, 12)));
 *
 * What no op here does, a C function of yours does, called by the program between its kernels. It
 * has a name and a version, a rule for the shape of its result and, if wanted, one for gradients
 * and a text for GPUs, where it would else be called by the host with copies of its operands:
 *
 *     #include "tc.h"
 *
 *     static bool pick_shape(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
 *     {
 *         (void)user;
 *         out->rank = 0;
 *         return n == 1 && in[0].dtype == TC_F32 && in[0].n > 0;
 *     }
 *     static void pick(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
 *     {
 *         const float *x = in[0].data;
 *         (void)user;
 *         (void)n;
 *         *(float *)out->data = x[in[0].n / 2];
 *     }
 *
 *     int main(void)
 *     {
 *         static const tc_custom_op op = {.name = "pick", .version = 1, .shape = pick_shape,
 *                                         .run = pick, .cuda =
 *             "__device__ void run(const tc_custom_array *in, int n, tc_custom_array *out)\n"
 *             "{\n"
 *             "    if (threadIdx.x == 0) {\n"
 *             "        *(float *)out->data = ((const float *)in[0].data)[in[0].n / 2];\n"
 *             "    }\n"
 *             "}\n"};
 *         tc_ctx *ctx;
 *         if (tc_ctx_make(&ctx, NULL)) {
 *             return 1;
 *         }
 *         tc_tensor x = tc_arange(ctx, 0, 12, 1, TC_F32);
 *         tc_print(stdout, tc_mul(tc_custom(&op, TC_TENSORS(tc_neg(x))), 2));
 *         // -12.0
 *         tc_ctx_free(ctx);
 *         return 0;
 *     }
 *
 * 8 LAZY FORM: VALUES
 *
 * No program is needed: reading compiles on demand (remembered like any compile), runs, and keeps
 * the value at the node. Every leaf must have memory: a placeholder is an error here.
 *
 *     tc_tensor value = tc_sum(tc_copy_in(ctx, in, TC_F32, 3, 4), TC_AXES(1), false);
 *     float three[3];
 *     if (tc_read(value, three, 3) == TC_OK) {
 *         tc_print(stdout, value);      // as NumPy prints; where `in` is 0, 1, ... 11:
 *         // [ 6. 22. 38.]
 *     }
 *     tc_eval_many(TC_TENSORS(tc_exp(value), tc_log(value)));     // only computes, all at once
 *
 * 9 SCOPES: LOOPS IN FLAT MEMORY
 *
 * Tensors live in the innermost open scope and die with it; a dead handle is an error, not a read.
 * tc_keep evaluates a tensor and moves its value to the scope outside:
 *
 *     tc_tensor mean = tc_full(ctx, 0, TC_F32, 3, 4), step = tc_copy_in(ctx, in, TC_F32, 3, 4);
 *     for (int i = 0; i < 1000000; i++) {
 *         tc_scope_begin(ctx);
 *         mean = tc_keep(tc_mul(tc_add(mean, step), 0.5));
 *         tc_scope_end(ctx);
 *     }
 *
 * tc_keep remembers its values by the line of the program that calls it: a value that was kept at
 * the same line two keeps ago is dropped once its successor's computation used it. So the loop
 * above runs for ever, also with several states that read each other and are kept by one line in an
 * inner loop. But history[i] = tc_keep(next) keeps the last two alone: tc_retain(t) exempts a value
 * that is needed later, history[i] = tc_retain(tc_keep(next)).
 *
 * 10 STATE, TRAINING, RANDOM NUMBERS
 *
 * A parameter is a leaf with memory of its own that programs may change: tc_assign, as an output of
 * tc_compile_fn or given to tc_eval, sets it at the end of a run; it takes no output buffer.
 * tc_grad adds the nodes of gradients to the graph, so forward, backward and update are one
 * program:
 *
 *     tc_tensor w = tc_param(ctx, in, TC_F32, 3, 4), target = tc_input(ctx, "t", TC_F32, 3, 4);
 *     tc_tensor loss = tc_mean(tc_square(tc_sub(w, target)), TC_ALL, false), g;
 *     tc_program *train;
 *     tc_grad(loss, &w, 1, &g);
 *     tc_tensor update = tc_assign(w, tc_sub(w, tc_mul(g, 0.1)));
 *     if (tc_compile_fn(TC_TENSORS(target), TC_TENSORS(loss, update), NULL, &train) == TC_OK) {
 *         float now;
 *         for (int i = 0; i < 100; i++) {
 *             tc_run(train, TC_BUFS(TC_BUF(out, 12)), TC_BUFS(TC_BUF(&now, 1)));
 *         }
 *         tc_read(w, in, 12);
 *         tc_program_free(train);
 *     }
 *
 * tc_vjp is the same of results of any shape, given a cotangent for each, and tc_jvp goes the other
 * way: what a change of the inputs makes of the results. Gradients of gradients are gradients; the
 * Hessian times a vector v is forward over backward:
 *
 *     tc_tensor at = tc_input(ctx, "at", TC_F32, 3, 4), v = tc_input(ctx, "v", TC_F32, 3, 4);
 *     tc_tensor slope, hv;
 *     tc_grad(tc_sum(tc_exp(at), TC_ALL, false), &at, 1, &slope);
 *     tc_jvp(TC_TENSORS(slope), TC_TENSORS(at), TC_TENSORS(v), &hv);
 *
 * tc_gradcheck holds the gradients of an expression against differences in f64 and names the op at
 * fault, for a custom op's own gradient above all (examples/28_own_ops.c); tc_stop_gradient(x) is x
 * as a constant:
 *
 *     tc_tensor point = tc_copy_in(ctx, ((double[]){0.5, -1, 2}), TC_F64, 3);
 *     tc_tensor smooth_fn = tc_sum(tc_square(tc_tanh(point)), TC_ALL, false);
 *     tc_gradcheck_report found;
 *     if (tc_gradcheck(smooth_fn, TC_TENSORS(point), NULL, &found) == TC_OK) {
 *         printf("%d elements agree\n", (int)found.checked);
 *         // 3 elements agree
 *     }
 *
 * tc_vmap makes of a function that builds a graph for one example the graph for many, along any
 * axis; here the gradient of each of 10 by itself:
 *
 *     #include "tc.h"
 *
 *     static void slope_of(const tc_tensor *x, tc_tensor *y, void *user)  // x[0] [4], x[1] [3, 4]
 *     {
 *         (void)user;
 *         tc_grad(tc_sum(tc_square(tc_matmul(x[1], x[0])), TC_ALL, false), &x[1], 1, &y[0]);
 *     }
 *
 *     int main(void)
 *     {
 *         tc_ctx *ctx;
 *         if (tc_ctx_make(&ctx, NULL)) {
 *             return 1;
 *         }
 *         tc_tensor many = tc_full(ctx, 0.5, TC_F32, 10, 4), w = tc_full(ctx, 2, TC_F32, 3, 4);
 *         tc_tensor slopes;                                               // [10, 3, 4]
 *         const int axes[] = {0, TC_UNMAPPED};
 *         tc_vmap(slope_of, NULL, TC_TENSORS(many, w), axes, &slopes, NULL, 1);
 *         tc_print(stdout, tc_select(slopes, 0, 9));
 *         // [[4. 4. 4. 4.]
 *         //  [4. 4. 4. 4.]
 *         //  [4. 4. 4. 4.]]
 *         tc_ctx_free(ctx);
 *         return 0;
 *     }
 *
 * A training step keeps what its way forward made for the way back. Where memory is short,
 * options.remat = TC_REMAT_MINCUT makes activations and normalizations again instead, and
 * TC_REMAT_ALL sums and products too, of values of 64 KiB and more, but nothing that a loop's body
 * makes; tc_explain says what that saves. By hand: of what a function under tc_checkpoint makes
 * only the results are kept, and on the way back the rest is made again.
 *
 *     #include "tc.h"
 *
 *     static tc_status layer(void *w, const tc_tensor *x, tc_tensor *y)
 *     {
 *         y[0] = tc_add(x[0], tc_gelu(tc_matmul(x[0], *(tc_tensor *)w)));
 *         return TC_OK;
 *     }
 *
 *     int main(void)
 *     {
 *         tc_ctx *ctx;
 *         if (tc_ctx_make(&ctx, NULL)) {
 *             return 1;
 *         }
 *         tc_tensor w = tc_full(ctx, 0.5, TC_F32, 4, 4), x = tc_full(ctx, 1, TC_F32, 8, 4), g;
 *         for (int i = 0; i < 6; i++) {
 *             tc_checkpoint(TC_TENSORS(x), layer, &w, &x, 1);
 *         }
 *         tc_grad(tc_sum(x, TC_ALL, false), &w, 1, &g);
 *         tc_print(stdout, g);
 *         // [[11682.269 11682.269 11682.269 11682.269]
 *         //  [11682.269 11682.269 11682.269 11682.269]
 *         //  [11682.269 11682.269 11682.269 11682.269]
 *         //  [11682.269 11682.269 11682.269 11682.269]]
 *         tc_ctx_free(ctx);
 *         return 0;
 *     }
 *
 * What shares a kernel is tc's choice. Where it should not, tc_materialize(x) ends a kernel: x is
 * stored, and its users read that. tc_nofuse(x) gives the op that made x kernels of its own, and
 * behind tc_barrier nothing is computed before all of a list is:
 *
 *     tc_tensor stored = tc_materialize(tc_exp(x)), alone = tc_nofuse(tc_sin(stored)), both[2];
 *     tc_barrier(TC_TENSORS(stored, alone), both);
 *
 * Optimizers make the effects of a step: tc_sgd (momentum, Nesterov, weight decay), tc_adam,
 * tc_adamw, tc_lion and, for matrices, tc_muon. What they remember are parameters as well, named
 * after those that they change; parameters of bf16 and f16 are updated in f32. The rate is a number
 * or a 0-d tensor, so a schedule is an input:
 *
 *     tc_tensor rate = tc_input(ctx, "rate", TC_F32), slope, effects[TC_EFFECTS(1)];
 *     tc_tensor p = tc_named(tc_param(ctx, NULL, TC_F32, 3, 4), "p");
 *     int n_effects;
 *     tc_grad(tc_sum(tc_square(tc_sub(p, x)), TC_ALL, false), &p, 1, &slope);
 *     tc_clip_grads(&slope, 1, 1.0, &slope);              // by the norm of all of them
 *     if (tc_adamw(&p, &slope, 1, rate, &(tc_adam_options){.weight_decay = 0.01}, effects,
 *                  &n_effects) == TC_OK) {
 *         tc_program *step;
 *         tc_compile_fn(TC_TENSORS(x, rate), TC_TENSORS_N(effects, n_effects), NULL, &step);
 *         tc_program_free(step);
 *     }
 *
 * Gradients in f16 want a scaled loss; the scale is a parameter that moves by itself, and a step
 * whose gradients overflow sets nothing:
 *
 *     tc_tensor half = tc_param(ctx, NULL, TC_F16, 3, 4), wide = tc_cast(half, TC_F32);
 *     tc_tensor scale = tc_param_from(tc_full(ctx, 65536, TC_F32)), moves[TC_EFFECTS(1)], steep;
 *     tc_tensor off = tc_sum(tc_square(tc_sub(wide, x)), TC_ALL, false);
 *     int n_moves;
 *     tc_grad(tc_mul(off, scale), &half, 1, &steep);
 *     tc_tensor finite = tc_unscale_grads(&steep, 1, scale, &steep);
 *     tc_muon(&half, &steep, 1, 0.02, NULL, moves, &n_moves);
 *     tc_scale_effects(scale, finite, 2000, moves, &n_moves);
 *
 * Random numbers are a function of a key, an integer, and of the index of an element, and of
 * nothing else: the same on every backend, at any size, fused or not. Two draws with one key are
 * equal; tc_fold_in makes other keys of a key, tc_next_key one after the other. A key that is an
 * input, or a parameter that the program counts on itself, gives each run numbers of its own:
 *
 *     tc_tensor seed = tc_input(ctx, "seed", TC_U64);
 *     tc_keys keys = {seed, 0};
 *     tc_tensor noisy = tc_add(x, tc_mul(tc_randn(ctx, tc_next_key(&keys), TC_F32, 3, 4), 0.1));
 *     tc_tensor thinned = tc_dropout(noisy, 0.5, tc_next_key(&keys));
 *     tc_tensor dice = tc_randint(ctx, 42, 1, 7, TC_I32, 10);        // always the same ten
 *
 * 11 WHAT IS PROMISED
 *
 * The same bits from interpreter and native code, from any C compiler, vector width and thread
 * count, run after run; any NaN is the same as any other: where one is promised there is one, with
 * a sign and payload that mean nothing. A primitive rounds to its dtype, once, whether it was fused
 * or not; a composite (softmax, layer_norm, mean, ...) computes f16 and bf16 in f32 and rounds
 * once. Exceptions, each the same in every run: large products of bf16 (on a GPU also f16 and f64)
 * whose sums a matrix unit makes in an order of its own (tc_explain names them, options.matrix = -1
 * or TC_MATRIX=0 refuses them); products of bf16 by pairs (AVX512_BF16; PAIRS in tc_explain,
 * refused in the same way), for which numbers below 2^-126 are zero; a GPU reduces in more lanes,
 * and a program of symbolic sizes in an order for all of them, so their sums may differ in the last
 * bits from a processor's and from those of a program of fixed sizes. options.reproducible or
 * TC_REPRODUCIBLE=1 allows only orders that all of them share: then every backend, and programs of
 * symbolic and of fixed sizes, agree in every bit, except where a size is 0 or 1 in the run: a
 * fixed axis of one element is no axis of a sum, so the order and the sign of a zero may differ.
 * What that costs, parallel or accurate orders of long sums above all, tc_explain says.
 *
 * The library never aborts, exits or, unless TC_HELP or TC_LOG ask for it, prints. Every call that
 * computes, a fold of constants while recording as well, does it in the default floating-point
 * environment: rounding modes, FTZ and DAZ, traps and raised flags of the caller change no value
 * and are found again as they were.
 *
 * 12 ERRORS
 *
 * A call that cannot be made returns a poisoned tensor; what is computed from it is poisoned too;
 * tc_error(t) is the first cause on the way to t, with the user's file and line:
 *
 *   app.c:12: tc_add: shapes [3, 4] and [5] do not broadcast: axis 1 is 4 against 5
 *
 * A compile, evaluation or reading that fails names its own line, and that of the tensor:
 *
 *   app.c:20: tc_read: given room for 3 elements, expected 4 (the tensor was made at app.c:12)
 *
 * A run that meets an index outside its axis names the call that goes there, and the index where
 * that lies in an input or other memory that the host can read. Of several calls that read or
 * write axes of that size at computed indices it names up to three:
 *
 *   app.c:31: tc_run: index 7 (element 3 of input 1 "which") is outside axis 0 of size 6 in
 *   tc_index_select made at app.c:12: expected -6 to 5
 *
 * Functions that can fail return a tc_status; tc_error(object) has the text:
 *
 *   what failed                                            object
 *   a call that returns a tensor (also tc_file_copy_in)    that tensor
 *   a call with several results (tc_topk, tc_svd, tc_lstm,
 *   tc_scan, tc_while, tc_cond, tc_grad, tc_vmap ...)      each result
 *   tc_compile, tc_eval, tc_read, tc_print, tc_touch,
 *   tc_gradcheck, tc_param_write                           the tensor that was given
 *   tc_compile_fn, tc_compile_many, tc_eval_many           the first output; the context
 *   tc_file_open, tc_file_write, tc_save, tc_load,
 *   tc_export_c, tc_sgd, tc_adam ..., tc_scope_end         the context
 *   tc_run, tc_run_async, tc_output_size, tc_call_make     the program (of this thread)
 *   tc_run_call                                            the call
 *   tc_event_wait                                          the event
 *   tc_ctx_make, tc_queue_make, tc_register_backend        none: the status is all
 *
 * A context has the last failure that was recorded on it: of a call that could not be made, or of a
 * compile, evaluation or reading that returned a status. To compute from a poisoned tensor is no
 * new failure and leaves it alone. A program's is that of the calling thread's last failing tc_run.
 * A NULL object says that it is NULL. Texts are borrowed: they stand until the next failure there,
 * a tensor's until its scope ends. After an error everything else stays usable.
 *
 *     tc_tensor wrong = tc_add(x, tc_full(ctx, 1, TC_F32, 5));
 *     tc_tensor later = tc_exp(wrong);
 *     if (tc_status_of(later) == TC_ERR_SHAPE) {
 *         fprintf(stderr, "%s\n", tc_error(later));   // tells of tc_add
 *     }
 *
 * The statuses: TC_ERR_ARGUMENT, _SHAPE, _DTYPE, _AXIS and _HANDLE for the calls that record;
 * _BUFFER for memory given to a run or a read; _INDEX when a run met an index outside its axis
 * (its outputs are then not valid, parameters are as they were); _LIMIT for what no memory can
 * hold, or options.memory_limit forbids; _MEMORY; _COMPILER and _BACKEND where options.fallback
 * refuses the interpreter; _BACKEND also for a backend that is not there and where a device fails
 * at work; _UNSUPPORTED for a gradient that there is not; _BUSY; _CANCELLED (13); _IO; and
 * _INTERNAL, which is a defect of tc.
 *
 * 13 THREADS
 *
 * A context belongs to one thread at a time, which is not checked; programs to all, also those that
 * share parameters: a run sees them as one run left them, whatever others set meanwhile, and of two
 * runs that set the same one at once the second gets TC_ERR_BUSY. Large kernels are split over a
 * pool of workers (options.threads, TC_THREADS), small ones run on the caller; who is done goes on
 * with what others have left, so a slow thread holds up nobody, and no bit depends on how many
 * there are or who did what. At threads = 1 a run without parameters takes no lock.
 * options.parallel_for hands the work to the host's own job system. Where the process has an OpenMP
 * runtime, its threads do the work of runs on the process's first thread, or of all runs if tc is
 * compiled with -fopenmp, as two sets of threads would get half of the processors each (unless
 * options.spin_us is set, or the runtime has less than half the threads). The pool ends with the
 * last context and program; tc_shutdown() also drops cached code, for a plugin that will be
 * unloaded: no tensor, program or call may be used after it.
 *
 * A run that its caller does not wait for goes to a queue, which does its runs in order; an event
 * says when one ended, and how:
 *
 *     tc_queue *queue;
 *     tc_event *done;
 *     if (tc_queue_make(&queue) == TC_OK) {
 *         tc_run_async(f, queue, TC_BUFS(TC_BUF(in, 12)), TC_BUFS(TC_BUF(out, 12)), &done);
 *         if (tc_event_wait(done)) {         // what is found later: an index, a device
 *             fprintf(stderr, "%s\n", tc_error(done));
 *         }
 *         tc_event_free(done);
 *         tc_queue_free(queue);              // waits for all of its runs
 *     }
 *
 * Until its event is reached a run has its buffers, and memory that the program borrowed stays as
 * it is; what the checks of tc_run find is told at once. On a processor a thread of the queue does
 * the runs, beside those of other queues and of callers. On a GPU inputs go up, kernels work and
 * outputs come down on three streams, so that runs of one queue overlap where they need not wait;
 * those of a program that sets parameters follow each other. tc_cuda_queue makes a queue of a
 * stream of the host, options.device chooses among several GPUs.
 *
 * A run with a loop can be cancelled, also one that would never end: options.cancel is a flag of
 * the host's, which all runs of a context or program read before they begin and before each step of
 * a loop; tc_call_cancel ends the run of one call. Both are for any thread and for signal handlers.
 * The run returns TC_ERR_CANCELLED, its outputs are not valid, and parameters are as they were:
 *
 *     static volatile int stop;          // a handler of SIGINT sets it to 1
 *     tc_options watched = {.backend = "interp", .cancel = &stop};
 *     tc_program *stoppable;
 *     stop = 1;
 *     if (tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), &watched, &stoppable) == TC_OK) {
 *         tc_status how = tc_run(stoppable, TC_BUFS(TC_BUF(in, 12)), TC_BUFS(TC_BUF(out, 12)));
 *         puts(tc_status_text(how));
 *         // cancelled
 *         tc_program_free(stoppable);
 *     }
 *
 * 14 CACHES
 *
 * Programs and kernels are remembered in memory and, unless options or TC_NO_CACHE say otherwise,
 * in ~/.cache/tc (options.cache_dir, TC_CACHE_DIR, XDG_CACHE_HOME). The key is the graph with its
 * shapes, the options that change code and the machine's features, but not the compiler: code that
 * one compiler made serves programs that ask for another (the bits are the same; use another
 * directory to compare compilers). Entries are checked in full before they are used. A directory
 * that others could change is refused, also one within such a directory, unless that one has the
 * sticky bit; a HOME that does not exist is not made; options.log tells under "cache". The least
 * recently used files go when options.cache_bytes (256 MiB) is exceeded, code in memory that no
 * program uses when options.memory_cache_bytes (64 MiB in all) is. A cache filled elsewhere, with
 * any compiler, may be used read-only by machines that have none:
 *
 *     tc_options seeded = {.cache_dir = "/opt/app/tc-cache", .cache_read_only = true};
 *     tc_ctx *with_seed;
 *     if (tc_ctx_make(&with_seed, &seeded) == TC_OK) {
 *         tc_ctx_free(with_seed);
 *     }
 *
 * 15 LOOKING INSIDE
 *
 *     tc_program_info info;
 *     tc_times times;
 *     tc_explain(f, stdout);            // kernels, traffic, and why what was not fused was not
 *     puts(tc_source(f));               // the generated C
 *     tc_program_get_info(f, &info);
 *     tc_compile_times(f, &times);
 *     printf("%d kernels, %lld ns\n", info.n_kernels, (long long)times.total);
 *
 * tc_explain shows each kernel's schedule and those that come next, and for each contraction the
 * route that was taken and others that fit, with their prices. options.schedule (TC_SCHEDULE) is a
 * file of schedules and routes to force, options.tune_ms a time in which a compile may measure the
 * likeliest ones of the kernels that take longest; the results are the same with any of them.
 * options.fusion = -1 (TC_FUSION=0) gives every op a kernel of its own: what fusing is worth.
 *
 * TC_LOG=cache tells where each program was found, TC_LOG=recompiles which node of one that was not
 * makes it another than the nearest earlier one; TC_LOG=compile says once for each program when it
 * is interpreted for want of a compiler or a GPU, as tc_explain does.
 * options.dump (TC_DUMP) writes each stage's text to files, options.trace (TC_TRACE) a timeline of
 * compiles, runs and kernels for chrome://tracing, options.log takes what TC_LOG would print.
 *
 * 16 ENVIRONMENT: read when a context is made; a field of tc_options that is set wins
 *
 *   TC_HELP         1: print this list once to stderr
 *   TC_BACKEND      interp, cpu, cuda or a registered name
 *   TC_CC           the C compiler: a name on PATH or a path (default cc, gcc, clang, tcc)
 *   TC_NVRTC        the NVRTC library to use (default: where CUDA is usually installed)
 *   TC_CC_TIMEOUT   seconds of processor time a compiler may use (default 120)
 *   TC_CACHE_DIR    disk cache (default $XDG_CACHE_HOME/tc or ~/.cache/tc)
 *   TC_CACHE_MB     disk cache size cap in MiB (default 256)
 *   TC_MEMORY_CACHE_MB memory cache size cap in MiB (default 64; 0: none)
 *   TC_NO_CACHE     1: do not read or write the disk cache
 *   TC_KEEP         1: keep generated sources and objects, and compile with -g
 *   TC_THREADS      worker threads (default: affinity mask and cgroup quota)
 *   TC_VECTOR       bits of a vector: 0 (scalar), 128, 256, 512 (default: the machine)
 *   TC_MATRIX       0: contractions never use matrix units, or pairs of bf16
 *   TC_REPRODUCIBLE 1: the same bits on every backend and for symbolic sizes
 *   TC_FUSION       0: each op that computes has a kernel of its own
 *   TC_STANCE       what no cache has: compile,fail,interpret,later (default compile)
 *   TC_SCHEDULE     file of schedules to force: lines KERNEL: SCHEDULE, as explained
 *   TC_DUMP         to dump: graph,rewrite,groups,plan,kernel,loop,interp,source,steps,dot,html or
 *                   all
 *   TC_DUMP_DIR     where dumps go (default ./tc_dump)
 *   TC_LOG          topics logged to stderr: compile,cache,fusion,recompiles,source,kernels or all
 *   TC_EXPLAIN      file (-: stderr) for tc_explain of each program that is made
 *   TC_CHECK        1: check each kernel of a run; or some of bits,nan,inf,crash
 *   TC_VERIFY       1: verify every IR after every stage
 *   TC_TRACE        file: chrome trace of compiles, runs and kernels
 *   TC_COMM         engine of tc_comm_from_env: shm or mpi (default: what the launcher set)
 *   XDG_CACHE_HOME  base of the default cache directory
 *   HOME            base of the default cache directory when XDG_CACHE_HOME is unset
 *   TMPDIR          where private build directories are made (default /tmp)
 *
 * In a setuid process all of them read as unset, and nothing is compiled.
 *
 * 17 SYMBOLIC SIZES
 *
 * One program for many sizes: TC_DIM("batch", 0, 4096) is a size that is any number from 0 to 4096,
 * anew at each run, and stands where a size is given.
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
 *         int64_t batch = TC_DIM("batch", 0, 4096);
 *         tc_tensor x = tc_input(ctx, "x", TC_F32, batch, 512);
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
 * An array may grow under a program that reads n rows and writes row n behind them, as the cache of
 * keys and values of a decoder does (examples/09_kv_cache.c). Nothing is copied, and n may be 0:
 *
 *     #define TC_DYNAMIC_SHAPES
 *     #include "tc.h"
 *
 *     static float rows[100 * 4];
 *
 *     int main(void)
 *     {
 *         tc_ctx *ctx;
 *         tc_program *f;
 *         if (tc_ctx_make(&ctx, NULL)) {
 *             return 1;
 *         }
 *         tc_tensor seen = tc_input(ctx, "seen", TC_F32, TC_DIM("n", 0, 99), 4);
 *         if (tc_compile(tc_add(tc_sum(seen, TC_AXES(0), false), 1), &f) == TC_OK) {
 *             for (int n = 0; n < 100; n++) {
 *                 tc_run(f, TC_BUFS(TC_BUF(rows, n * 4)), TC_BUFS(TC_BUF(rows + n * 4, 4)));
 *             }
 *             tc_program_free(f);
 *         }
 *         tc_ctx_free(ctx);
 *         return 0;
 *     }
 *
 * The shape rules are the ordinary ones, and hold for every value that the symbols may have: a
 * symbolic size is equal to itself and to the same expression of it (tc_cat of two x has 2*batch
 * rows), never to a number or another symbol, and never counts as the 1 that broadcasts. Where a
 * rule could fail for some value, the call fails and names the dimension: a window of 3 over a
 * height of 0 to 640 asks for TC_DIM("height", 3, 640), and sizes of max(n - 3, 0) and n - 3 tell
 * from which n on they are equal. The same name with other ranges is another size.
 *
 * tc_size and tc_count give a symbolic size back, to be handed on as a size or bound (reshape,
 * expand, slice, pad, full, arange) or as an operand, where it stands for its value in the run:
 * tc_div(sum, tc_count(x)) is a mean. tc_dim_add, tc_dim_sub, tc_dim_mul, tc_dim_div (down),
 * tc_dim_min and tc_dim_max compute with sizes, also where none is symbolic, so that one text
 * serves both:
 *
 *     int64_t rows = tc_dim_div(tc_dim_add(tc_size(x, 0), 7), 8);
 *     int64_t missing = tc_dim_sub(tc_dim_mul(rows, 8), tc_size(x, 0));
 *     tc_tensor blocks = tc_reshape(tc_pad(x, 0, 0, missing, 0), rows, 8, -1);
 *
 * The number of steps of tc_scan may be symbolic, and so may the sizes of its carries and xs: one
 * program then takes sequences of any length.
 *
 * C arithmetic on a symbolic size makes none: n / 2, n - 1 or 1.0 / n is refused wherever it can be
 * told from a number that is meant, which for n % 2 or a cast to a short type it cannot. A bound of
 * tc_slice that is an expression never counts from the end, and so must not be negative. An
 * expression has up to 64 terms of 16 sizes each, and quotients, minima and maxima up to 64 deep; a
 * tensor whose number of elements takes more is TC_ERR_LIMIT. A program has any number of sizes.
 * tc_nbytes is -1 where a size is symbolic; memory (tc_borrow, tc_copy_in, tc_param) and values
 * without a run (tc_eval, tc_read, tc_print, tc_keep) have sizes that are numbers.
 *
 * A run finds the sizes from the numbers of elements of all its buffers. Where those leave one
 * open, as batch * 3 * height * 64 does, the run is TC_ERR_BUFFER and says which, and
 * TC_BUF_ND(pointer, 2, 3, 480, 64) in the place of TC_BUF gives the sizes of a buffer.
 * tc_output_size(f, inputs, 0, 1) and tc_output_count(f, inputs, 0) tell beforehand what an output
 * takes. What a run needs for its sizes, a plan of memory above all, is made when they are first
 * met, in microseconds, and kept for the eight that were used last; memory_limit is held against
 * each.
 *
 * 18 FILES OF ARRAYS
 *
 * .npy and .npz of NumPy, .safetensors, and the f32, f16, bf16 and other plain tensors of .gguf are
 * read, all but the last one written. A file is opened once and asked for names, sizes and dtypes,
 * by any number of threads; what it is, is told from its bytes:
 *
 *     tc_file *file;
 *     if (tc_file_open(ctx, "model.safetensors", &file)) {
 *         fprintf(stderr, "%s\n", tc_error(ctx));
 *     } else {
 *         const tc_array *a;
 *         for (int i = 0; (a = tc_file_array(file, i)) != NULL; i++) {
 *             printf("%s: %s, %d axes\n", a->name, tc_dtype_name(a->dtype), a->rank);
 *         }
 *         tc_tensor weight = tc_file_borrow(ctx, file, "fc1.weight");  // no copy: mapped memory
 *         tc_tensor bias = tc_file_copy_in(ctx, file, "fc1.bias");     // read now
 *         tc_tensor hidden = tc_add(tc_matmul(x, weight), bias);
 *         tc_file_close(file);                   // what was borrowed stays valid
 *         tc_print(stdout, hidden);
 *     }
 *     const char *names[] = {"hidden", "x"};
 *     tc_file_write(ctx, "out.npz", names, TC_TENSORS(y, x), NULL);
 *
 * Borrowed memory is the file itself, read when it is used, and shared by all processes that have
 * it open. Where an array does not lie as its dtype needs it (common in an .npz) it is copied, and
 * so are bools. A file that others cut short ends a process that has it borrowed, as any mapped
 * file does: tc_file_copy_in and tc_load fail instead.
 *
 * Parameters that have names are saved and loaded all at once. tc_load changes all of them or,
 * where the file lacks one, has others, or has other sizes or dtypes, none, and says which:
 *
 *     tc_tensor scale = tc_named(tc_param(ctx, NULL, TC_F32, 4), "scale");     // zeros
 *     tc_tensor table = tc_named(tc_param_from(tc_randn(ctx, 42, TC_F32, 3, 4)), "table");
 *     tc_save(ctx, "state.safetensors");
 *     if (tc_load(ctx, "state.safetensors")) {
 *         fprintf(stderr, "%s\n", tc_error(ctx));
 *     }
 *     tc_param_write(scale, in, 4);             // and one of them from memory, at any time
 *
 * A file is written as tc-*.tmp in the same directory and renamed, so it is never half there; what
 * it holds is one moment, also while other threads train. A file that is replaced keeps its mode
 * and, where the system permits, its owner and group; a symbolic link stays, and the file it leads
 * to is replaced; other hard links keep the old content. A tc-*.tmp that a killed process left is
 * removed by the next write of the same name. Files may come from anybody: sizes that overflow,
 * data outside of the file or of two arrays in one place, names given twice or that are not UTF-8,
 * more than 64 axes, headers of more than 100 MB are TC_ERR_IO; encrypted entries of an .npz,
 * archives beyond 4 GiB, records and Python objects are TC_ERR_UNSUPPORTED. Arrays of
 * numpy.savez_compressed are inflated into the tensor's own memory, also by tc_file_borrow, and
 * their checksum must agree; big-endian ones can only be copied. What else an .npz holds is an
 * error when it is asked for. bf16 is "<V2" in NumPy's files, as others write it.
 *
 * Tensors of other libraries in the same process come in and go out as DLPack's structs, without a
 * copy where nobody changes the memory; their deleters are called once, when the last tensor and
 * program that use it are gone:
 *
 *     tc_dlpack *shown;
 *     if (tc_to_dlpack(tc_add(y, 1), &shown) == TC_OK) {
 *         tc_tensor again = tc_from_dlpack(ctx, shown);   // ours now, also to end
 *         tc_print(stdout, again);
 *     }
 *
 * A program goes to where tc is not as one file of C99, with the memory that it captures inside and
 * nothing to link, not even libm. The functions have the file's name; the head of the file says
 * what they take:
 *
 *     tc_export_c(TC_TENSORS(x), TC_TENSORS(y), NULL, "/tmp/net.c");
 *     // int net(const float *in0, float *out0, void *workspace), after net_prepare(workspace)
 *
 * Built with plain cc -O2, it runs AVX2 or AVX-512 code on x86-64 processors that have it, else
 * scalar code, which is far slower without a fused multiply-add; the bits are the same. A header,
 * and the weights in a file that the caller maps, are written on request. Parameters that a
 * training step assigns become arguments that are read and replaced, and symbolic sizes arguments
 * before all others; the workspace's size is then a function of them:
 *
 *     tc_export_c_as(TC_TENSORS(x), TC_TENSORS(y), NULL,
 *                    &(tc_export){.header = true, .weights = true}, "/tmp/apart.c");
 *     // apart.h for C and C++; apart.bin: if (!apart_check(weights, n)) apart(in, out, weights, w)
 *     tc_tensor sum = tc_param(ctx, NULL, TC_F32);
 *     tc_tensor next = tc_assign(sum, tc_add(sum, tc_sum(x, TC_ALL, false)));
 *     tc_export_c(TC_TENSORS(x), TC_TENSORS(next), NULL, "/tmp/add.c");
 *     // int add(const float *in0, float *param0, void *workspace)
 *
 * 19 LIMITS
 *
 * There is no limit on rank, inputs, outputs, operands or nodes but memory. The elements of one
 * tensor, counted with 8 bytes or their size, fit an int64_t. A text of tc_error has at most 1023
 * bytes. Native code needs POSIX (Linux is what is tested), an x86-64 or aarch64 processor
 * with FMA, and a C compiler at run time (or a filled cache): gcc and clang give vectors, others
 * scalar code. Without symbolic sizes another shape is another program. */
