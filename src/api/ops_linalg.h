/* api/ops_linalg.h - declares matrix products, sparse products, linear solves, factorizations,
 * Fourier transforms and complex numbers. Conventions: api/ops_elementwise.h. */
#ifndef TC_API_OPS_LINALG_H
#define TC_API_OPS_LINALG_H

#include "operand_macros.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- contractions: in the promoted dtype of the operands; products accumulate in f32 for f16,
 * bf16 and f32, in f64 for f64; integers wrap; not of bool ---- */
/* [..., i, k] times [..., k, j] is [..., i, j], as NumPy: 1-d operands count as a row and a column
 * and lose that axis; leading axes broadcast. TC_ERR_SHAPE: the k differ, or one is 0-d. */
TC_API tc_tensor tc_matmul_at(tc_tensor a, tc_tensor b, tc_site here);
#define tc_matmul(a, b) tc_matmul_at((a), (b), TC_HERE)
/* [n, i, k] times [n, k, j]: [n, i, j]; no other ranks. */
TC_API tc_tensor tc_bmm_at(tc_tensor a, tc_tensor b, tc_site here);
#define tc_bmm(a, b) tc_bmm_at((a), (b), TC_HERE)
/* tc_einsum("bij,bjk->bik", TC_TENSORS(a, b)): one letter an axis, a repeated letter is a diagonal,
 * letters that the result lacks are summed, "..." matches leading axes; without "->" the result has
 * the letters that occur once, in alphabetical order. The dtype is that of the operands, also
 * for sums of one operand (tc_sum widens integers). Any number of operands, contracted from left to
 * right. TC_ERR_ARGUMENT: the spec does not parse, or is NULL; TC_ERR_SHAPE: a letter has two
 * sizes. */
TC_API tc_tensor tc_einsum_at(const char *spec, tc_tensors xs, tc_site here);
#define tc_einsum(spec, xs) tc_einsum_at((spec), (xs), TC_HERE)

/* Linear layer: x [..., in] times the transpose of weight [out, in], plus bias [out] or TC_NONE:
 * [..., out]. */
TC_API tc_tensor tc_linear_at(tc_tensor x, tc_tensor weight, tc_tensor bias, tc_site here);
#define tc_linear(x, weight, bias) tc_linear_at((x), (weight), (bias), TC_HERE)
/* Rows of weight [n, width] named by an index (integers, any shape): [..., width]. */
TC_API tc_tensor tc_embedding_at(tc_tensor index, tc_tensor weight, tc_site here);
#define tc_embedding(index, weight) tc_embedding_at((index), (weight), TC_HERE)
/* One-hot code: a new last axis of `classes` (0 or more), 1 at the index (integers), else 0.
 * Result: i64. */
TC_API tc_tensor tc_one_hot_at(tc_tensor index, int64_t classes, tc_site here);
#define tc_one_hot(index, classes) tc_one_hot_at((index), (classes), TC_HERE)

/* Vectors: outer product a[i] b[j], [n, m]; inner product, 0-d (TC_ERR_SHAPE: different sizes). */
TC_API tc_tensor tc_outer_at(tc_tensor a, tc_tensor b, tc_site here);
#define tc_outer(a, b) tc_outer_at((a), (b), TC_HERE)
TC_API tc_tensor tc_dot_at(tc_tensor a, tc_tensor b, tc_site here);
#define tc_dot(a, b) tc_dot_at((a), (b), TC_HERE)
/* Sums of products along pairs of axes, one of a and one of b each: tc_tensordot(a, b,
 * TC_AXES(-1), TC_AXES(0)). The result has the other axes of a, then those of b. TC_ERR_AXIS: the
 * lists have not as many axes, or one twice; TC_ERR_LIMIT: more than 52 axes. */
TC_API tc_tensor tc_tensordot_at(tc_tensor a, tc_tensor b, tc_axes axes_a, tc_axes axes_b,
                                 tc_site here);
#define tc_tensordot(a, b, axes_a, axes_b)                                                         \
    tc_tensordot_at((a), (b), (axes_a), (axes_b), TC_HERE)

/* ---- sparse matrices: lists [elements], times dense [k, n] ----
 * The result is [rows, n] in the promoted dtype of values and dense. Indices are integers, and one
 * out of range fails the run with TC_ERR_INDEX; elements at the same position are summed; the
 * gradients are those of values and dense. TC_ERR_SHAPE: a list is not 1-d or they differ in
 * length, or dense is no matrix. */
/* COO format: values[e] is at (rows[e], columns[e]) of [n_rows, k]. */
TC_API tc_tensor tc_coo_matmul_at(tc_tensor rows, tc_tensor columns, tc_tensor values,
                                  int64_t n_rows, tc_tensor dense, tc_site here);
#define tc_coo_matmul(rows, columns, values, n_rows, dense)                                        \
    tc_coo_matmul_at((rows), (columns), (values), (n_rows), (dense), TC_HERE)
/* Compressed sparse rows: row i has the elements starts[i] to starts[i + 1] - 1. starts is
 * [rows + 1] and begins with 0. */
TC_API tc_tensor tc_csr_matmul_at(tc_tensor starts, tc_tensor columns, tc_tensor values,
                                  tc_tensor dense, tc_site here);
#define tc_csr_matmul(starts, columns, values, dense)                                              \
    tc_csr_matmul_at((starts), (columns), (values), (dense), TC_HERE)

/* ---- square matrices [..., n, n] of floats ----
 * n is a number of at most 4096 (else TC_ERR_LIMIT); leading axes broadcast. The size of a program
 * does not depend on n: elimination steps are a loop, from 65 columns on in blocks whose triangles
 * are solved by their inverses. A singular matrix gives inf or NaN. */
/* Solution x of a x = b by LU with partial pivoting. b: [..., n, k] or [..., n], of a's dtype
 * (else TC_ERR_DTYPE). */
TC_API tc_tensor tc_solve_at(tc_tensor a, tc_tensor b, tc_site here);
#define tc_solve(a, b) tc_solve_at((a), (b), TC_HERE)
/* Solution x of a x = b for a triangular matrix a, or of x a = b with b [..., k, n] if not left. b
 * is a matrix. Only the upper or lower triangle of a is read; unitriangular takes its diagonal
 * as 1. */
TC_API tc_tensor tc_solve_triangular_at(tc_tensor a, tc_tensor b, bool upper, bool left,
                                        bool unitriangular, tc_site here);
#define tc_solve_triangular(a, b, upper, left, unitriangular)                                      \
    tc_solve_triangular_at((a), (b), (upper), (left), (unitriangular), TC_HERE)
/* Cholesky factor of a symmetric positive definite x: lower l with l l^T = x, or upper u with
 * u^T u = x. */
TC_API tc_tensor tc_cholesky_at(tc_tensor x, bool upper, tc_site here);
#define tc_cholesky(x, upper) tc_cholesky_at((x), (upper), TC_HERE)
/* The inverse, [..., n, n]. */
TC_API tc_tensor tc_inv_at(tc_tensor x, tc_site here);
#define tc_inv(x) tc_inv_at((x), TC_HERE)
/* Determinant [...]; its sign, and the logarithm of its absolute value (NULL: not wanted). */
TC_API tc_tensor tc_det_at(tc_tensor x, tc_site here);
#define tc_det(x) tc_det_at((x), TC_HERE)
TC_API void tc_slogdet_at(tc_tensor x, tc_tensor *sign, tc_tensor *logabsdet, tc_site here);
#define tc_slogdet(x, sign, logabsdet) tc_slogdet_at((x), (sign), (logabsdet), TC_HERE)
/* x to the power n: n factors, the inverse's if n is negative, the identity if n is 0. */
TC_API tc_tensor tc_matrix_power_at(tc_tensor x, int64_t n, tc_site here);
#define tc_matrix_power(x, n) tc_matrix_power_at((x), (n), TC_HERE)

/* LU decomposition with partial pivoting: x = p l u, with p a permutation matrix, l lower
 * triangular with ones on the diagonal, u upper triangular, each [..., n, n]. NULL: not wanted. */
TC_API void tc_lu_at(tc_tensor x, tc_tensor *p, tc_tensor *l, tc_tensor *u, tc_site here);
#define tc_lu(x, p, l, u) tc_lu_at((x), (p), (l), (u), TC_HERE)
/* log(det(x)), [...]: -inf where the determinant is 0, NaN where it is negative. */
TC_API tc_tensor tc_logdet_at(tc_tensor x, tc_site here);
#define tc_logdet(x) tc_logdet_at((x), TC_HERE)
/* The matrix exponential, by scaling and squaring with a Pade approximant (Higham 2005); accurate
 * for 1-norms up to 1e10. */
TC_API tc_tensor tc_matrix_exp_at(tc_tensor x, tc_site here);
#define tc_matrix_exp(x) tc_matrix_exp_at((x), TC_HERE)
/* The given matrices (1-d: one row, 0-d: one element) along the diagonal of one matrix, 0
 * elsewhere: tc_block_diag(TC_TENSORS(a, b)). TC_ERR_SHAPE: more than two axes. */
TC_API tc_tensor tc_block_diag_at(tc_tensors xs, tc_site here);
#define tc_block_diag(xs) tc_block_diag_at((xs), TC_HERE)

/* ---- factorizations of matrices [..., m, n] of floats, k = min(m, n), a number from 1 to 4096
 * (else TC_ERR_LIMIT); NULL: not wanted; after a mistake all results are poisoned ---- */
/* QR decomposition x = q r: q [..., m, k] with orthonormal columns, r [..., k, n] upper
 * triangular. */
TC_API void tc_qr_at(tc_tensor x, tc_tensor *q, tc_tensor *r, tc_site here);
#define tc_qr(x, q, r) tc_qr_at((x), (q), (r), TC_HERE)
/* Eigenvalues (ascending, [..., n]) and eigenvectors (columns, [..., n, n]) of (x + x^T) / 2.
 * Vectors of equal eigenvalues are any orthonormal ones; they have no gradient. Up to 128 rows by
 * Jacobi rotations, more by divide and conquer (Cuppen, 1981). */
TC_API void tc_eigh_at(tc_tensor x, tc_tensor *values, tc_tensor *vectors, tc_site here);
#define tc_eigh(x, values, vectors) tc_eigh_at((x), (values), (vectors), TC_HERE)
/* Singular value decomposition x = u diag(s) vh: u [..., m, k], s [..., k] descending, vh [...,
 * k, n]. Of f64 matrices one-sided Jacobi rotations (Hestenes, 1958) up to k = 128, else the
 * eigenvectors of the symmetric polar factor; of shorter dtypes the eigenvectors of x^T x in f64,
 * whose values are as exact as f32 is. */
TC_API void tc_svd_at(tc_tensor x, tc_tensor *u, tc_tensor *s, tc_tensor *vh, tc_site here);
#define tc_svd(x, u, s, vh) tc_svd_at((x), (u), (s), (vh), TC_HERE)
/* Moore-Penrose pseudo-inverse [..., n, m]: singular values of at most rcond times the largest
 * count as 0 (negative: the dtype's epsilon times the larger of m and n). The first two derivatives
 * are those of matrices of the same rank. */
TC_API tc_tensor tc_pinv_at(tc_tensor x, double rcond, tc_site here);
#define tc_pinv(x, rcond) tc_pinv_at((x), (rcond), TC_HERE)
/* Least squares: the x [..., n, k] of smallest norm among those that minimize |a x - b|, with a
 * [..., m, n] and b [..., m, k], or [..., m] for x [..., n]; one dtype. rcond and gradient as
 * tc_pinv.
 *     tc_tensor line = tc_lstsq(tc_stack(TC_TENSORS(t, tc_ones(ctx, TC_F32, 100)), 1), y, -1); */
TC_API tc_tensor tc_lstsq_at(tc_tensor a, tc_tensor b, double rcond, tc_site here);
#define tc_lstsq(a, b, rcond) tc_lstsq_at((a), (b), (rcond), TC_HERE)

/* ---- Fourier transforms along an axis of a known size ----
 * 1 to 2^30 points (else TC_ERR_ARGUMENT), as n log n (Cooley and Tukey; large primes by
 * Bluestein). A complex number is a pair of real and imaginary part, so that complex x is [..., 2];
 * `axis` does not count that last axis. n points, or 0 for the size of the axis: the axis is
 * truncated, or padded with zeros. norm: "backward" (NULL) divides by n in the inverse, "forward"
 * by n in the forward transform, "ortho" by its square root in both. Integers count as f32. */
/* result[k] = sum of x[j] exp(-2 pi i j k / n), [..., n, 2], and back. */
TC_API tc_tensor tc_fft_at(tc_tensor x, int64_t n, int axis, const char *norm, tc_site here);
#define tc_fft(x, n, axis, norm) tc_fft_at((x), (n), (axis), (norm), TC_HERE)
TC_API tc_tensor tc_ifft_at(tc_tensor x, int64_t n, int axis, const char *norm, tc_site here);
#define tc_ifft(x, n, axis, norm) tc_ifft_at((x), (n), (axis), (norm), TC_HERE)
/* Real transforms: x without pairs to bins 0 to n / 2, [..., n / 2 + 1, 2] (the others mirror
 * these), and back to n real numbers (0: 2 * (size - 1)). */
TC_API tc_tensor tc_rfft_at(tc_tensor x, int64_t n, int axis, const char *norm, tc_site here);
#define tc_rfft(x, n, axis, norm) tc_rfft_at((x), (n), (axis), (norm), TC_HERE)
TC_API tc_tensor tc_irfft_at(tc_tensor x, int64_t n, int axis, const char *norm, tc_site here);
#define tc_irfft(x, n, axis, norm) tc_irfft_at((x), (n), (axis), (norm), TC_HERE)
/* Short-time Fourier transform: n_fft, 1 or more, is required; other zero fields mean defaults. */
typedef struct tc_stft_options {
    int64_t n_fft;        /* elements of a frame, and points of its transform */
    int64_t hop_length;   /* elements from one frame to the next; 0: n_fft / 4 */
    int64_t win_length;   /* elements of the window, in the middle of a frame; 0: n_fft */
    bool uncentered;      /* frame t begins at t hop_length; else it is centred there */
    const char *pad_mode; /* at both ends if centred, as of tc_pad_mode; NULL: "reflect" */
    bool normalized;      /* the transform is multiplied by n_fft^-1/2 */
    bool two_sided;       /* n_fft bins; else n_fft / 2 + 1, as of tc_rfft */
    int64_t length;       /* tc_istft: elements of the result; 0: what the frames span */
} tc_stft_options;
/* x [..., n] of real numbers to [..., bins, frames, 2] pairs, as torch.stft: each frame times the
 * window [win_length] (TC_NONE: ones), transformed. The size n may be symbolic. TC_ERR_ARGUMENT: a
 * size that is not a number from 1 on, a window longer than a frame; TC_ERR_SHAPE: a window of
 * another size.
 *     tc_tensor s = tc_stft(x, window, &(tc_stft_options){.n_fft = 512}); */
TC_API tc_tensor tc_stft_at(tc_tensor x, tc_tensor window, const tc_stft_options *options,
                            tc_site here);
#define tc_stft(x, window, ...) tc_stft_at((x), (window), (__VA_ARGS__), TC_HERE)
/* The inverse, [..., bins, frames, 2] to [..., n], by overlap-add divided by the sum of the squared
 * windows: with the same window and options it reconstructs x. NaN or inf where no window covers an
 * element. */
TC_API tc_tensor tc_istft_at(tc_tensor x, tc_tensor window, const tc_stft_options *options,
                             tc_site here);
#define tc_istft(x, window, ...) tc_istft_at((x), (window), (__VA_ARGS__), TC_HERE)

/* ---- complex numbers, which are such pairs (TC_ERR_SHAPE: the last axis is not 2); shapes before
 * the last axis broadcast. A gradient is that of a function of both parts ---- */
/* From real and imaginary parts; from magnitude and angle, in radians; and the parts, the magnitude
 * and the angle, in [-pi, pi], of each number, without the last axis. */
TC_API tc_tensor tc_complex_at(tc_tensor real, tc_tensor imag, tc_site here);
#define tc_complex(real, imag) tc_complex_at((real), (imag), TC_HERE)
TC_API tc_tensor tc_polar_at(tc_tensor abs, tc_tensor angle, tc_site here);
#define tc_polar(abs, angle) tc_polar_at((abs), (angle), TC_HERE)
TC_API tc_tensor tc_real_at(tc_tensor x, tc_site here);
#define tc_real(x) tc_real_at((x), TC_HERE)
TC_API tc_tensor tc_imag_at(tc_tensor x, tc_site here);
#define tc_imag(x) tc_imag_at((x), TC_HERE)
TC_API tc_tensor tc_complex_abs_at(tc_tensor x, tc_site here);
#define tc_complex_abs(x) tc_complex_abs_at((x), TC_HERE)
TC_API tc_tensor tc_angle_at(tc_tensor x, tc_site here);
#define tc_angle(x) tc_angle_at((x), TC_HERE)
/* Complex conjugate. */
TC_API tc_tensor tc_conj_at(tc_tensor x, tc_site here);
#define tc_conj(x) tc_conj_at((x), TC_HERE)
/* Product and quotient, e to the x, and its principal logarithm; the matrix product of pairs
 * [..., i, k, 2] and [..., k, j, 2]. tc_add and tc_sub are those of the pairs. */
TC_API tc_tensor tc_complex_mul_at(tc_tensor a, tc_tensor b, tc_site here);
#define tc_complex_mul(a, b) tc_complex_mul_at((a), (b), TC_HERE)
TC_API tc_tensor tc_complex_div_at(tc_tensor a, tc_tensor b, tc_site here);
#define tc_complex_div(a, b) tc_complex_div_at((a), (b), TC_HERE)
TC_API tc_tensor tc_complex_exp_at(tc_tensor x, tc_site here);
#define tc_complex_exp(x) tc_complex_exp_at((x), TC_HERE)
TC_API tc_tensor tc_complex_log_at(tc_tensor x, tc_site here);
#define tc_complex_log(x) tc_complex_log_at((x), TC_HERE)
TC_API tc_tensor tc_complex_matmul_at(tc_tensor a, tc_tensor b, tc_site here);
#define tc_complex_matmul(a, b) tc_complex_matmul_at((a), (b), TC_HERE)

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
