/* graph/build.h - node constructors with shape and dtype rules: one function per op or family, used
 * by the public calls (api/), composites and rewrites.
 *
 * A NULL operand gives NULL. On invalid arguments g->error and g->message are set (given, expected;
 * the caller adds the name of the op, file and line) and the result is NULL. For a 0-d tensor axis
 * 0 or -1 is its one element, in movement ops and reductions, as in PyTorch. */
#ifndef TCI_GRAPH_BUILD_H
#define TCI_GRAPH_BUILD_H

#include "../ops/communicator.h"
#include "node.h"

/* Working memory of a builder: on the stack for ordinary ranks, from the graph's memory beyond. It
 * is a list of one type at a time, that of the call which got it. */
typedef struct tci_words {
    union {
        int64_t words[48];
        tci_dim dims[48];
        int ints[48];
        bool flags[48];
        tci_node *nodes[48];
    } own;
    void *items;
    int n;
} tci_words;
/* Zeroed; NULL: out of memory. */
TCI_FN int64_t *tci_words_get(tci_graph *g, tci_words *w, int n);
TCI_FN tci_dim *tci_words_dims(tci_graph *g, tci_words *w, int n);
TCI_FN int *tci_words_ints(tci_graph *g, tci_words *w, int n);
TCI_FN bool *tci_words_flags(tci_graph *g, tci_words *w, int n);
TCI_FN tci_node **tci_words_nodes(tci_graph *g, tci_words *w, int n);
TCI_FN tci_node *tci_words_put(tci_graph *g, tci_words *w, tci_node *result); /* gives it back */

/* "[3, 4]", for messages; lives as long as the full expression that contains it. */
typedef struct tci_shape_text {
    char text[120];
} tci_shape_text;
TCI_FN tci_shape_text tci_shape_text_of(int rank, const tci_dim *shape);
#define TCI_SHAPE_TEXT(x) (tci_shape_text_of((x)->rank, (x)->shape).text)
/* Name and location of a node, for messages: "tc_while (made at net.c:12)"; lives as long.
 * TCI_MAKER: the name is that of the public call that made it, else of its op. */
typedef struct tci_made_text {
    char text[240];
} tci_made_text;
TCI_FN tci_made_text tci_build_made(const tci_node *n, const char *name);
#define TCI_MADE_AT(n, name) (tci_build_made((n), (name)).text)
#define TCI_MAKER(n) TCI_MADE_AT(n, (n)->call ? (n)->call : tci_op_name((n)->op))
struct tc_conv;
struct tc_pool;
struct tc_interpolation;

/* For the end of a message that says that two sizes are unequal, or that `size` may be less than
 * needed: what a symbol has to do with it; else "". */
#ifdef TC_DYNAMIC_SHAPES
TCI_FN tci_shape_text tci_build_unequal_note(tci_dim a, tci_dim b);
TCI_FN tci_shape_text tci_build_least_note(tci_dim size, int64_t needed);
#define TCI_UNEQUAL_NOTE(a, b) (tci_build_unequal_note(a, b).text)
#define TCI_LEAST_NOTE(size, needed) (tci_build_least_note(size, needed).text)
#else
#define TCI_UNEQUAL_NOTE(a, b) ""
#define TCI_LEAST_NOTE(size, needed) ""
#endif

/* ---- collective.c ---- */
TCI_FN tci_node *tci_build_collective(tci_graph *g, const tci_comm_step *c, tci_node *x);
/* Another one on n's communicator, with n's peer, and its reduction if it is the same verb. */
TCI_FN tci_node *tci_build_collective_like(tci_graph *g, const tci_node *n, tc_comm_verb verb,
                                           tci_node *x);
TCI_FN tci_comm_step tci_build_comm_step(const tci_node *n);

/* ---- build.c: elementwise (promotes, broadcasts) and reductions ---- */
TCI_FN tci_node *tci_build_ew(tci_graph *g, int op, tci_node *const *operands);
TCI_FN tci_node *tci_build_where(tci_graph *g, tci_node *c, tci_node *a, tci_node *b);
TCI_FN tci_node *tci_build_cast(tci_graph *g, tci_node *x, tc_dtype to);
TCI_FN tci_node *tci_build_bitcast(tci_graph *g, tci_node *x, tc_dtype to);
/* n_axes 0 with all = true: every axis. Negative axes count from the end. */
TCI_FN tci_node *tci_build_reduce(tci_graph *g, int op, tci_node *x, tc_axes axes, bool keepdims);
/* For a result that is only read where x has elements: it may be of an axis without. */
TCI_FN tci_node *tci_build_reduce_some(tci_graph *g, int op, tci_node *x, tc_axes axes,
                                       bool keepdims);
/* Squared deviations over max(count - correction, 0). */
TCI_FN tci_node *tci_build_var(tci_graph *g, tci_node *x, tc_axes axes, double correction,
                               bool keepdims);
TCI_FN tci_node *tci_build_scan(tci_graph *g, tci_node *x, int axis, bool reverse, tci_mode mode);
/* Of a SCAN of MIN or MAX: the position of the last element that is the result so far. */
TCI_FN tci_node *tci_build_running_place(tci_graph *g, tci_node *scan);
/* Indices of the first k elements of an axis in sorted order: i64, x's shape but k along the
 * axis. */
TCI_FN tci_node *tci_build_topk(tci_graph *g, tci_node *x, int axis, tci_dim k, bool largest);

/* A size, or a difference of such, as a 0-d tensor. */
TCI_FN tci_node *tci_build_size_value(tci_graph *g, tci_dim size, tc_dtype dtype);

/* An effect: param takes value, which broadcasts to its shape, when a program has run. */
TCI_FN tci_node *tci_build_param_assign(tci_graph *g, tci_node *param, tci_node *value);

/* ---- movement.c ---- */
/* One size may be -1: what is left. */
TCI_FN tci_node *tci_build_reshape(tci_graph *g, tci_node *x, int rank, const tci_dim *shape);
TCI_FN tci_node *tci_build_permute(tci_graph *g, tci_node *x, int n, const int *axes);
TCI_FN tci_node *tci_build_transpose(tci_graph *g, tci_node *x, int axis_a, int axis_b);
/* -1 keeps a size. */
TCI_FN tci_node *tci_build_expand(tci_graph *g, tci_node *x, int rank, const tci_dim *shape);
TCI_FN tci_node *tci_build_squeeze(tci_graph *g, tci_node *x, int axis);
TCI_FN tci_node *tci_build_unsqueeze(tci_graph *g, tci_node *x, int axis);
TCI_FN tci_node *tci_build_slice(tci_graph *g, tci_node *x, int axis, tci_dim start, tci_dim stop,
                                 tci_dim step);
TCI_FN tci_node *tci_build_flip(tci_graph *g, tci_node *x, int axis);
TCI_FN tci_node *tci_build_pad(tci_graph *g, tci_node *x, int axis, tci_dim before, tci_dim after,
                               tci_node *fill);
TCI_FN tci_node *tci_build_cat(tci_graph *g, tci_node *const *xs, int n, int axis);
TCI_FN tci_node *tci_build_gather(tci_graph *g, tci_node *x, int axis, tci_node *index);
TCI_FN bool tci_build_check_index(tci_graph *g, const tci_node *index); /* of integers */
/* x, with one more element of 0 at the end of an axis that may have none: then there is an element
 * at index 0 to read, whatever a run's sizes are. */
TCI_FN tci_node *tci_build_readable(tci_graph *g, tci_node *x, int axis);
TCI_FN bool tci_build_can_read(tci_graph *g, const char *what, const tci_node *x, int axis,
                               tci_dim reads); /* else an error: the axis is, or may be, empty */
TCI_FN tci_node *tci_build_index_select(tci_graph *g, tci_node *x, int axis, tci_node *index);
/* x with the elements of src put by `mode` to where index says along the axis; of f16 and bf16 sums
 * are made in f32. */
TCI_FN tci_node *tci_build_scatter(tci_graph *g, tci_node *x, int axis, tci_node *index,
                                   tci_node *src, tci_mode mode);
/* The same for whole slices of x, which a 1-d index names. */
TCI_FN tci_node *tci_build_index_put(tci_graph *g, tci_node *x, int axis, tci_node *index,
                                     tci_node *src, tci_mode mode);
TCI_FN tci_node *tci_build_window(tci_graph *g, tci_node *x, int n,
                                  const tci_dim *axis_kernel_stride_dilation);
TCI_FN tci_node *tci_build_iota(tci_graph *g, tci_dim n);
/* before and after: an entry for each axis. */
TCI_FN tci_node *tci_build_pad_axes(tci_graph *g, tci_node *x, const tci_dim *before,
                                    const tci_dim *after, tci_node *fill);

/* ---- einsum.c ---- */
/* Position of label among n of them; -1: none. */
TCI_FN int tci_build_label(const int64_t *labels, int64_t n, int64_t label);
TCI_FN tci_node *tci_build_contract(tci_graph *g, tci_node *a, const int *labels_a, tci_node *b,
                                    const int *labels_b, int rank_out, const int *labels_out);
TCI_FN tci_node *tci_build_matmul(tci_graph *g, tci_node *a, tci_node *b);
/* The same, but products of bf16 or f16 give their sums as f32. Cotangents go back as f16 or
 * bf16. */
TCI_FN tci_node *tci_build_matmul_wide(tci_graph *g, tci_node *a, tci_node *b);
TCI_FN tci_node *tci_build_einsum(tci_graph *g, const char *spec, tci_node *const *xs, int n);

/* ---- rules and checks, in build.c ---- */
/* The dtype that operands meet in, by the graph's rule. TORCH: tensors among each other, then 0-d
 * ones, which count only where their kind is higher. NUMPY: all alike. */
TCI_FN tc_dtype tci_build_common_dtype(const tci_graph *g, tci_node *const *operands, int n);
/* By the op's rule: the dtype of its operands and of its result when they meet in `common`. */
TCI_FN void tci_build_ew_dtypes(tc_promotion how, int op, tc_dtype common, tc_dtype *operands,
                                tc_dtype *result);
/* x in tci_dtype_real of its dtype. NULL: x is NULL, or the graph says why. */
TCI_FN tci_node *tci_build_real(tci_graph *g, tci_node *x);
TCI_FN bool tci_build_axis(tci_graph *g, int axis, int rank, int *out); /* rank 0 counts as 1 */
TCI_FN bool tci_build_same_shape(int rank_a, const tci_dim *a, int rank_b, const tci_dim *b);
/* Checks that a size, bound or count of a user is valid; otherwise an error about `what`, with
 * status `why` if it never could be. */
TCI_FN bool tci_build_check_dim(tci_graph *g, const char *what, tci_dim d, tc_status why);
TCI_FN bool tci_build_check_shape(tci_graph *g, int rank, const tci_dim *shape, tc_dtype dtype);
TCI_FN bool tci_build_is_known(int rank, const tci_dim *shape); /* every size */
/* tci_graph_node after tci_build_check_shape. */
TCI_FN tci_node *tci_build_node(tci_graph *g, int op, tc_dtype dtype, int rank,
                                const tci_dim *shape, int n_in, tci_node *const *in, int n_attr,
                                const int64_t *attr);
TCI_FN tci_node *tci_build_broadcast(tci_graph *g, tci_node *x, int rank, const tci_dim *shape);

/* ---- ops/random.c: of a key, 0-d and of an integer dtype ---- */
/* A RANDOM node: dtype u32 or u64; stream as key. */
TCI_FN tci_node *tci_build_random(tci_graph *g, tci_node *key, tci_node *stream, tc_dtype dtype,
                                  int rank, const tci_dim *shape);
/* The same draws for each slice along the first axis of shape: keys (of u64) has one for each,
 * streams too or one for all. */
TCI_FN tci_node *tci_build_random_each(tci_graph *g, tci_node *keys, tci_node *streams,
                                       tc_dtype dtype, int rank, const tci_dim *shape);
/* Another key: of a number as key. */
TCI_FN tci_node *tci_build_fold_in(tci_graph *g, tci_node *key, tci_node *number);
TCI_FN tci_node *tci_build_random_bits(tci_graph *g, tci_node *key, tc_dtype dtype, int rank,
                                       const tci_dim *shape);
TCI_FN tci_node *tci_build_rand(tci_graph *g, tci_node *key, tc_dtype dtype, int rank,
                                const tci_dim *shape);
TCI_FN tci_node *tci_build_randn(tci_graph *g, tci_node *key, tc_dtype dtype, int rank,
                                 const tci_dim *shape);
TCI_FN tci_node *tci_build_randint(tci_graph *g, tci_node *key, tci_node *low, tci_node *high,
                                   tc_dtype dtype, int rank, const tci_dim *shape);
TCI_FN tci_node *tci_build_bernoulli(tci_graph *g, tci_node *p, tci_node *key);
TCI_FN tci_node *tci_build_exponential(tci_graph *g, tci_node *rate, tci_node *key);
TCI_FN tci_node *tci_build_geometric(tci_graph *g, tci_node *p, tci_node *key);
TCI_FN tci_node *tci_build_dropout(tci_graph *g, tci_node *x, tci_node *p, tci_node *key);

/* ---- ops/composite.c: weight and bias are NULL where left out ---- */
/* The formula of a built row over its operands, in dtype t; NULL operands give NULL. */
TCI_FN tci_node *tci_build_formula(tci_graph *g, tci_built built, tci_node *const *operands,
                                   tc_dtype t);
/* x itself, or its mean or sum over all elements. */
TCI_FN tci_node *tci_build_reduction(tci_graph *g, tci_node *x, int how);
TCI_FN tci_node *tci_build_softmax(tci_graph *g, tci_node *x, int axis, bool log);
TCI_FN tci_node *tci_build_mean(tci_graph *g, tci_node *x, tc_axes axes, bool keepdims);
TCI_FN tci_node *tci_build_layer_norm(tci_graph *g, tci_node *x, tc_axes axes, tci_node *weight,
                                      tci_node *bias, tci_node *eps);
TCI_FN tci_node *tci_build_stop_gradient(tci_graph *g, tci_node *x);
/* r, as the result of that call over n operands, with words of the call's own (ops/table.h); r
 * itself where it is no float or a leaf. */
enum { TCI_NAMED_OPERANDS = 6, TCI_NAMED_WORDS = 16 };
TCI_FN tci_node *tci_build_named(tci_graph *g, tci_call_name call, tci_node *r, int n,
                                 tci_node *const *operands, int n_words, const int64_t *words);
/* value, with the derivatives of f, of the same shape and dtype and equal to it. */
TCI_FN tci_node *tci_build_with_derivative(tci_graph *g, tci_node *f, tci_node *value);
/* x after a BARRIER that also waits for n others; sinks: its word. x itself if it is a number, or
 * a leaf where there are no others. NULL where x is. */
TCI_FN tci_node *tci_build_barrier(tci_graph *g, tci_node *x, tci_node *const *others, int n,
                                   bool sinks);
/* x by an op whose operands and value are after barriers. */
TCI_FN tci_node *tci_build_nofuse(tci_graph *g, tci_node *x);
/* Running log(sum(exp(x))) along the axis. */
TCI_FN tci_node *tci_build_logcumsumexp(tci_graph *g, tci_node *x, int axis);
TCI_FN tci_node *tci_build_cross_entropy(tci_graph *g, tci_node *logits, tci_node *target);
/* Expansion of a composite node into rows of the table (in the same graph). */
TCI_FN tci_node *tci_expand_composite(tci_graph *g, tci_node *n);

/* ---- ops/convolution_pooling.c: images of n axes, 1 to 3; those with indices give the positions
 * of the values, counted through an image ---- */
TCI_FN tci_node *tci_build_conv(tci_graph *g, int n, tci_node *x, tci_node *w, tci_node *bias,
                                const struct tc_conv *o);
TCI_FN tci_node *tci_build_max_pool(tci_graph *g, int n, tci_node *x, const struct tc_pool *o);
TCI_FN tci_node *tci_build_max_pool_indices(tci_graph *g, int n, tci_node *x,
                                            const struct tc_pool *o);
TCI_FN tci_node *tci_build_avg_pool(tci_graph *g, int n, tci_node *x, const struct tc_pool *o);
TCI_FN tci_node *tci_build_lp_pool(tci_graph *g, int n, tci_node *x, double p,
                                   const struct tc_pool *o);
/* One size for all axes, or n; -1 keeps x's. */
TCI_FN tci_node *tci_build_adaptive_avg_pool(tci_graph *g, int n, tci_node *x, int n_sizes,
                                             const tci_dim *sizes);
TCI_FN tci_node *tci_build_adaptive_max_pool(tci_graph *g, int n, tci_node *x, int n_sizes,
                                             const tci_dim *sizes);
TCI_FN tci_node *tci_build_adaptive_max_pool_indices(tci_graph *g, int n, tci_node *x, int n_sizes,
                                                     const tci_dim *sizes);
TCI_FN tci_node *tci_build_im2col(tci_graph *g, tci_node *x, const struct tc_pool *o);

/* ---- ops/resample.c ---- */
TCI_FN tci_node *tci_build_interpolate(tci_graph *g, tci_node *x, const struct tc_interpolation *o);
/* NULL: the first mode of each kind. */
TCI_FN tci_node *tci_build_grid_sample(tci_graph *g, tci_node *x, tci_node *grid, const char *mode,
                                       const char *padding_mode, bool align_corners);

/* ---- grad/adjoint_ops.c ---- */
TCI_FN tci_node *tci_build_conv_transpose(tci_graph *g, int n, tci_node *x, tci_node *w,
                                          tci_node *bias, const struct tc_conv *o);
TCI_FN tci_node *tci_build_col2im(tci_graph *g, tci_node *x, int n_sizes, const tci_dim *sizes,
                                  const struct tc_pool *o);

/* x with src in the elements of a slice of it. */
TCI_FN tci_node *tci_build_slice_scatter(tci_graph *g, tci_node *x, tci_node *src, int axis,
                                         tci_dim start, tci_dim stop, tci_dim step);
TCI_FN tci_node *tci_build_select_scatter(tci_graph *g, tci_node *x, tci_node *src, int axis,
                                          tci_dim index);

/* ---- ops/composite_movement.c ---- */
/* Each element along the axis this many times. */
TCI_FN tci_node *tci_build_repeat_each(tci_graph *g, tci_node *x, int axis, tci_dim times);
TCI_FN tci_node *tci_build_roll(tci_graph *g, tci_node *x, tci_dim shift, int axis);
TCI_FN tci_node *tci_build_rot90(tci_graph *g, tci_node *x, int64_t k, int axis_a, int axis_b);
TCI_FN tci_node *tci_build_unfold(tci_graph *g, tci_node *x, int axis, tci_dim size, tci_dim step);
TCI_FN tci_node *tci_build_pad_mode(tci_graph *g, tci_node *x, int axis, tci_dim before,
                                    tci_dim after, const char *mode);
TCI_FN tci_node *tci_build_pixel_shuffle(tci_graph *g, tci_node *x, int64_t factor);
TCI_FN tci_node *tci_build_pixel_unshuffle(tci_graph *g, tci_node *x, int64_t factor);
TCI_FN tci_node *tci_build_diagonal(tci_graph *g, tci_node *x, int64_t offset, int axis_a,
                                    int axis_b);
TCI_FN tci_node *tci_build_diagonal_scatter(tci_graph *g, tci_node *x, tci_node *src,
                                            int64_t offset, int axis_a, int axis_b);
TCI_FN tci_node *tci_build_diag_embed(tci_graph *g, tci_node *x, int64_t offset, int axis_a,
                                      int axis_b);
TCI_FN tci_node *tci_build_diag(tci_graph *g, tci_node *x, int64_t offset);
/* Of the elements of a matrix: column <= row + offset, or >=. */
TCI_FN tci_node *tci_build_triangle_mask(tci_graph *g, tci_dim rows, tci_dim columns,
                                         tci_dim offset, bool lower);
TCI_FN tci_node *tci_build_triangle(tci_graph *g, tci_node *x, tci_dim offset, bool lower);
TCI_FN tci_node *tci_build_triangle_indices(tci_graph *g, tci_dim rows, tci_dim columns,
                                            int64_t offset, bool lower);
/* base 0: the ramp itself, else that power of base. */
TCI_FN tci_node *tci_build_linspace(tci_graph *g, tci_node *start, tci_node *stop, tci_dim steps,
                                    double base, tc_dtype dtype);

/* ---- ops/rank_selection.c: along an axis ---- */
/* Unsigned words, no two of which are in another order than the elements: NaN is the largest, -0 is
 * 0, and all bits are turned where the largest come first. */
TCI_FN tci_node *tci_build_order_words(tci_graph *g, tci_node *x, bool largest);
/* The word with `rank` others, i64 from 0 on, before it: [..., 1, ...]; where it stands; and which
 * elements have no higher rank (*last, if wanted: of them that one). */
TCI_FN tci_node *tci_build_word_of_rank(tci_graph *g, tci_node *words, int axis, tci_node *rank);
TCI_FN tci_node *tci_build_place_of_rank(tci_graph *g, tci_node *words, int axis, tci_node *rank);
TCI_FN tci_node *tci_build_until_rank(tci_graph *g, tci_node *words, int axis, tci_node *rank,
                                      tci_node **last);
/* All positions, those of true elements in front, in their order. */
TCI_FN tci_node *tci_build_true_first(tci_graph *g, tci_node *truth, int axis);

/* ---- ops/indexing.c: size, where there is one, is how many results there are ---- */
/* Number of elements of sorted that are less than each value, or not greater. */
TCI_FN tci_node *tci_build_searchsorted(tci_graph *g, tci_node *sorted, tci_node *values,
                                        bool right);
TCI_FN tci_node *tci_build_true_count(tci_graph *g, tci_node *x);
TCI_FN tci_node *tci_build_nonzero(tci_graph *g, tci_node *x, tci_dim size);
TCI_FN tci_node *tci_build_masked_select(tci_graph *g, tci_node *x, tci_node *mask, tci_dim size);
TCI_FN tci_node *tci_build_masked_scatter(tci_graph *g, tci_node *x, tci_node *mask, tci_node *src);
TCI_FN tci_node *tci_build_repeat_interleave(tci_graph *g, tci_node *x, tci_node *repeats, int axis,
                                             tci_dim size);
/* x at an index for each of its first n axes; NULL: all of an axis. */
TCI_FN tci_node *tci_build_index(tci_graph *g, tci_node *x, tci_node *const *indices, int n);
TCI_FN tci_node *tci_build_index_put_many(tci_graph *g, tci_node *x, tci_node *const *indices,
                                          int n, tci_node *src, bool accumulate);
TCI_FN tci_node *tci_build_index_fill(tci_graph *g, tci_node *x, int axis, tci_node *index,
                                      tci_node *value);
TCI_FN tci_node *tci_build_take_along_dim(tci_graph *g, tci_node *x, tci_node *index, int axis);

/* ---- ops/median_histogram_unique.c: values, or their indices ---- */
TCI_FN tci_node *tci_build_kthvalue(tci_graph *g, tci_node *x, int axis, tci_dim k, bool keepdims,
                                    bool values);
TCI_FN tci_node *tci_build_median(tci_graph *g, tci_node *x, int axis, bool keepdims, bool values);
TCI_FN tci_node *tci_build_nanmedian(tci_graph *g, tci_node *x, int axis, bool keepdims,
                                     bool values);
TCI_FN tci_node *tci_build_mode(tci_graph *g, tci_node *x, int axis, bool keepdims, bool values);
TCI_FN tci_node *tci_build_bincount(tci_graph *g, tci_node *x, tci_node *weights, tci_dim size);
TCI_FN tci_node *tci_build_histc(tci_graph *g, tci_node *x, tci_dim bins, double low, double high);
TCI_FN tci_node *tci_build_isin(tci_graph *g, tci_node *x, tci_node *list);
/* which: 0 the slices, 1 the number of each slice of x, 2 how many there are of each, 3 how many
 * slices there are. */
TCI_FN tci_node *tci_build_unique(tci_graph *g, tci_node *x, int axis, tci_dim size,
                                  bool consecutive, int which);

/* ---- ops/linear_algebra.c: square matrices [..., n, n] ---- */
typedef enum tci_det { TCI_DET_VALUE, TCI_DET_SIGN, TCI_DET_LOG } tci_det;
TCI_FN tci_node *tci_build_solve(tci_graph *g, tci_node *a, tci_node *b);
/* The same, or of a's transpose, with the LU of a and operands of one dtype and batch. */
TCI_FN tci_node *tci_build_solved(tci_graph *g, tci_node *a, tci_node *lu, tci_node *b,
                                  bool transposed);
TCI_FN tci_node *tci_build_inv(tci_graph *g, tci_node *x);
TCI_FN tci_node *tci_build_det(tci_graph *g, tci_node *x, tci_det which);
/* x = P L U, each [..., n, n]: a permutation, ones on the diagonal of a lower triangle, an upper
 * triangle. */
typedef enum tci_lu_part { TCI_LU_P, TCI_LU_L, TCI_LU_U } tci_lu_part;
TCI_FN tci_node *tci_build_lu(tci_graph *g, tci_node *x, tci_lu_part part);
TCI_FN tci_node *tci_build_cholesky(tci_graph *g, tci_node *x, bool upper);
TCI_FN tci_node *tci_build_solve_triangular(tci_graph *g, tci_node *a, tci_node *b, bool upper,
                                            bool left, bool unitriangular);
TCI_FN tci_node *tci_build_matrix_power(tci_graph *g, tci_node *x, int64_t power);

#endif
