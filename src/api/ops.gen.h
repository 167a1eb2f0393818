/* api/ops.gen.h - declarations of the public elementwise ops and reductions. Generated
 * from ops/table.h by tools/amalgamate.c: edit the table, not this file. */

/* ---- elementwise: operands are tensors or C numbers ----
 * Shapes broadcast (else TC_ERR_SHAPE); the result has the dtype in which the operands
 * meet unless its line says: bool; float (a float dtype stays, others give f32); not of
 * bool, of integers (else TC_ERR_DTYPE). Integers wrap; a float function is NaN where
 * it has no value and infinite at a pole. TC_ERR_HANDLE: no operand is a tensor;
 * TC_ERR_DTYPE: a number that the integer dtype does not hold. */
/* -a; not of bool */
TC_API tc_tensor tc_neg_at(tc_arg a, tc_site here);
#define tc_neg(a) TCI_WITH_1(tc_neg_at, a)
/* |a|; not of bool */
TC_API tc_tensor tc_abs_at(tc_arg a, tc_site here);
#define tc_abs(a) TCI_WITH_1(tc_abs_at, a)
/* e to the a; float */
TC_API tc_tensor tc_exp_at(tc_arg a, tc_site here);
#define tc_exp(a) TCI_WITH_1(tc_exp_at, a)
/* natural logarithm; float */
TC_API tc_tensor tc_log_at(tc_arg a, tc_site here);
#define tc_log(a) TCI_WITH_1(tc_log_at, a)
/* square root; float */
TC_API tc_tensor tc_sqrt_at(tc_arg a, tc_site here);
#define tc_sqrt(a) TCI_WITH_1(tc_sqrt_at, a)
/* 1 / sqrt(a); float */
TC_API tc_tensor tc_rsqrt_at(tc_arg a, tc_site here);
#define tc_rsqrt(a) TCI_WITH_1(tc_rsqrt_at, a)
/* 1 / a; float */
TC_API tc_tensor tc_reciprocal_at(tc_arg a, tc_site here);
#define tc_reciprocal(a) TCI_WITH_1(tc_reciprocal_at, a)
/* a * a */
TC_API tc_tensor tc_square_at(tc_arg a, tc_site here);
#define tc_square(a) TCI_WITH_1(tc_square_at, a)
/* sine of a in radians; float */
TC_API tc_tensor tc_sin_at(tc_arg a, tc_site here);
#define tc_sin(a) TCI_WITH_1(tc_sin_at, a)
/* cosine of a in radians; float */
TC_API tc_tensor tc_cos_at(tc_arg a, tc_site here);
#define tc_cos(a) TCI_WITH_1(tc_cos_at, a)
/* hyperbolic tangent; float */
TC_API tc_tensor tc_tanh_at(tc_arg a, tc_site here);
#define tc_tanh(a) TCI_WITH_1(tc_tanh_at, a)
/* 1 / (1 + exp(-a)); float */
TC_API tc_tensor tc_sigmoid_at(tc_arg a, tc_site here);
#define tc_sigmoid(a) TCI_WITH_1(tc_sigmoid_at, a)
/* a * sigmoid(a); float */
TC_API tc_tensor tc_silu_at(tc_arg a, tc_site here);
#define tc_silu(a) TCI_WITH_1(tc_silu_at, a)
/* error function; float */
TC_API tc_tensor tc_erf_at(tc_arg a, tc_site here);
#define tc_erf(a) TCI_WITH_1(tc_erf_at, a)
/* a * (1 + erf(a / sqrt 2)) / 2, -0 at -inf (arXiv 1606.08415); float */
TC_API tc_tensor tc_gelu_at(tc_arg a, tc_site here);
#define tc_gelu(a) TCI_WITH_1(tc_gelu_at, a)
/* max(a, 0), NaN stays; not of bool */
TC_API tc_tensor tc_relu_at(tc_arg a, tc_site here);
#define tc_relu(a) TCI_WITH_1(tc_relu_at, a)
/* largest integer not above; not of bool */
TC_API tc_tensor tc_floor_at(tc_arg a, tc_site here);
#define tc_floor(a) TCI_WITH_1(tc_floor_at, a)
/* smallest integer not below; not of bool */
TC_API tc_tensor tc_ceil_at(tc_arg a, tc_site here);
#define tc_ceil(a) TCI_WITH_1(tc_ceil_at, a)
/* towards zero; not of bool */
TC_API tc_tensor tc_trunc_at(tc_arg a, tc_site here);
#define tc_trunc(a) TCI_WITH_1(tc_trunc_at, a)
/* nearest integer, ties to even; not of bool */
TC_API tc_tensor tc_round_at(tc_arg a, tc_site here);
#define tc_round(a) TCI_WITH_1(tc_round_at, a)
/* tangent of a in radians; float */
TC_API tc_tensor tc_tan_at(tc_arg a, tc_site here);
#define tc_tan(a) TCI_WITH_1(tc_tan_at, a)
/* angle in [-pi/2, pi/2] whose sine is a; float */
TC_API tc_tensor tc_asin_at(tc_arg a, tc_site here);
#define tc_asin(a) TCI_WITH_1(tc_asin_at, a)
/* angle in [0, pi] whose cosine is a; float */
TC_API tc_tensor tc_acos_at(tc_arg a, tc_site here);
#define tc_acos(a) TCI_WITH_1(tc_acos_at, a)
/* angle in [-pi/2, pi/2] whose tangent is a; float */
TC_API tc_tensor tc_atan_at(tc_arg a, tc_site here);
#define tc_atan(a) TCI_WITH_1(tc_atan_at, a)
/* hyperbolic sine; float */
TC_API tc_tensor tc_sinh_at(tc_arg a, tc_site here);
#define tc_sinh(a) TCI_WITH_1(tc_sinh_at, a)
/* hyperbolic cosine; float */
TC_API tc_tensor tc_cosh_at(tc_arg a, tc_site here);
#define tc_cosh(a) TCI_WITH_1(tc_cosh_at, a)
/* inverse of sinh; float */
TC_API tc_tensor tc_asinh_at(tc_arg a, tc_site here);
#define tc_asinh(a) TCI_WITH_1(tc_asinh_at, a)
/* inverse of cosh, at least 0; float */
TC_API tc_tensor tc_acosh_at(tc_arg a, tc_site here);
#define tc_acosh(a) TCI_WITH_1(tc_acosh_at, a)
/* inverse of tanh; float */
TC_API tc_tensor tc_atanh_at(tc_arg a, tc_site here);
#define tc_atanh(a) TCI_WITH_1(tc_atanh_at, a)
/* e to the a, less 1; float */
TC_API tc_tensor tc_expm1_at(tc_arg a, tc_site here);
#define tc_expm1(a) TCI_WITH_1(tc_expm1_at, a)
/* 2 to the a; float */
TC_API tc_tensor tc_exp2_at(tc_arg a, tc_site here);
#define tc_exp2(a) TCI_WITH_1(tc_exp2_at, a)
/* log(1 + a); float */
TC_API tc_tensor tc_log1p_at(tc_arg a, tc_site here);
#define tc_log1p(a) TCI_WITH_1(tc_log1p_at, a)
/* log(1 + exp(a)); float */
TC_API tc_tensor tc_log1pexp_at(tc_arg a, tc_site here);
#define tc_log1pexp(a) TCI_WITH_1(tc_log1pexp_at, a)
/* logarithm to base 2; float */
TC_API tc_tensor tc_log2_at(tc_arg a, tc_site here);
#define tc_log2(a) TCI_WITH_1(tc_log2_at, a)
/* logarithm to base 10; float */
TC_API tc_tensor tc_log10_at(tc_arg a, tc_site here);
#define tc_log10(a) TCI_WITH_1(tc_log10_at, a)
/* 1 - erf(a); float */
TC_API tc_tensor tc_erfc_at(tc_arg a, tc_site here);
#define tc_erfc(a) TCI_WITH_1(tc_erfc_at, a)
/* inverse of erf; float */
TC_API tc_tensor tc_erfinv_at(tc_arg a, tc_site here);
#define tc_erfinv(a) TCI_WITH_1(tc_erfinv_at, a)
/* log of the absolute gamma function; float */
TC_API tc_tensor tc_lgamma_at(tc_arg a, tc_site here);
#define tc_lgamma(a) TCI_WITH_1(tc_lgamma_at, a)
/* derivative of lgamma; float */
TC_API tc_tensor tc_digamma_at(tc_arg a, tc_site here);
#define tc_digamma(a) TCI_WITH_1(tc_digamma_at, a)
/* derivative of digamma; float */
TC_API tc_tensor tc_trigamma_at(tc_arg a, tc_site here);
#define tc_trigamma(a) TCI_WITH_1(tc_trigamma_at, a)
/* sin(pi a) / (pi a), 1 at 0; float */
TC_API tc_tensor tc_sinc_at(tc_arg a, tc_site here);
#define tc_sinc(a) TCI_WITH_1(tc_sinc_at, a)
/* -1, 0 or 1; 0 of NaN */
TC_API tc_tensor tc_sign_at(tc_arg a, tc_site here);
#define tc_sign(a) TCI_WITH_1(tc_sign_at, a)
/* a < 0, or a is -0; of NaN either; bool */
TC_API tc_tensor tc_signbit_at(tc_arg a, tc_site here);
#define tc_signbit(a) TCI_WITH_1(tc_signbit_at, a)
/* a - trunc(a); not of bool */
TC_API tc_tensor tc_frac_at(tc_arg a, tc_site here);
#define tc_frac(a) TCI_WITH_1(tc_frac_at, a)
/* a is an infinity; bool */
TC_API tc_tensor tc_isinf_at(tc_arg a, tc_site here);
#define tc_isinf(a) TCI_WITH_1(tc_isinf_at, a)
/* a is neither an infinity nor NaN; bool */
TC_API tc_tensor tc_isfinite_at(tc_arg a, tc_site here);
#define tc_isfinite(a) TCI_WITH_1(tc_isfinite_at, a)
/* a is NaN; bool */
TC_API tc_tensor tc_isnan_at(tc_arg a, tc_site here);
#define tc_isnan(a) TCI_WITH_1(tc_isnan_at, a)
/* a == 0; bool */
TC_API tc_tensor tc_logical_not_at(tc_arg a, tc_site here);
#define tc_logical_not(a) TCI_WITH_1(tc_logical_not_at, a)
/* a + b */
TC_API tc_tensor tc_add_at(tc_arg a, tc_arg b, tc_site here);
#define tc_add(a, b) TCI_WITH_2(tc_add_at, a, b)
/* a - b; not of bool */
TC_API tc_tensor tc_sub_at(tc_arg a, tc_arg b, tc_site here);
#define tc_sub(a, b) TCI_WITH_2(tc_sub_at, a, b)
/* a * b */
TC_API tc_tensor tc_mul_at(tc_arg a, tc_arg b, tc_site here);
#define tc_mul(a, b) TCI_WITH_2(tc_mul_at, a, b)
/* a / b, always in floats; float */
TC_API tc_tensor tc_div_at(tc_arg a, tc_arg b, tc_site here);
#define tc_div(a, b) TCI_WITH_2(tc_div_at, a, b)
/* a to the b; of integers, a negative b: truncated, and 0 of 0; not of bool */
TC_API tc_tensor tc_pow_at(tc_arg a, tc_arg b, tc_site here);
#define tc_pow(a, b) TCI_WITH_2(tc_pow_at, a, b)
/* a * b + c; of f32 and f64 rounded once; not of bool */
TC_API tc_tensor tc_fma_at(tc_arg a, tc_arg b, tc_arg c, tc_site here);
#define tc_fma(a, b, c) TCI_WITH_3(tc_fma_at, a, b, c)
/* the larger; NaN if either is */
TC_API tc_tensor tc_maximum_at(tc_arg a, tc_arg b, tc_site here);
#define tc_maximum(a, b) TCI_WITH_2(tc_maximum_at, a, b)
/* the smaller; NaN if either is */
TC_API tc_tensor tc_minimum_at(tc_arg a, tc_arg b, tc_site here);
#define tc_minimum(a, b) TCI_WITH_2(tc_minimum_at, a, b)
/* a - b * floor(a / b): sign of b, also of a zero; integers: a % 0 = 0; not of bool */
TC_API tc_tensor tc_remainder_at(tc_arg a, tc_arg b, tc_site here);
#define tc_remainder(a, b) TCI_WITH_2(tc_remainder_at, a, b)
/* floor(a / b) of the exact quotient; integers stay integers, a / 0 = 0; not of bool */
TC_API tc_tensor tc_floor_divide_at(tc_arg a, tc_arg b, tc_site here);
#define tc_floor_divide(a, b) TCI_WITH_2(tc_floor_divide_at, a, b)
/* the larger; the other where one is NaN */
TC_API tc_tensor tc_fmax_at(tc_arg a, tc_arg b, tc_site here);
#define tc_fmax(a, b) TCI_WITH_2(tc_fmax_at, a, b)
/* the smaller; the other where one is NaN */
TC_API tc_tensor tc_fmin_at(tc_arg a, tc_arg b, tc_site here);
#define tc_fmin(a, b) TCI_WITH_2(tc_fmin_at, a, b)
/* a - b * trunc(a / b), exactly: sign of a; integers: 0 where b is; not of bool */
TC_API tc_tensor tc_fmod_at(tc_arg a, tc_arg b, tc_site here);
#define tc_fmod(a, b) TCI_WITH_2(tc_fmod_at, a, b)
/* angle in [-pi, pi] of the point (b, a); float */
TC_API tc_tensor tc_atan2_at(tc_arg a, tc_arg b, tc_site here);
#define tc_atan2(a, b) TCI_WITH_2(tc_atan2_at, a, b)
/* sqrt(a * a + b * b); float */
TC_API tc_tensor tc_hypot_at(tc_arg a, tc_arg b, tc_site here);
#define tc_hypot(a, b) TCI_WITH_2(tc_hypot_at, a, b)
/* |a| with the sign of b, either of NaN; float */
TC_API tc_tensor tc_copysign_at(tc_arg a, tc_arg b, tc_site here);
#define tc_copysign(a, b) TCI_WITH_2(tc_copysign_at, a, b)
/* 0 below 0, b at 0, 1 above */
TC_API tc_tensor tc_heaviside_at(tc_arg a, tc_arg b, tc_site here);
#define tc_heaviside(a, b) TCI_WITH_2(tc_heaviside_at, a, b)
/* a * 2 to the b; 0 where a is; float */
TC_API tc_tensor tc_ldexp_at(tc_arg a, tc_arg b, tc_site here);
#define tc_ldexp(a, b) TCI_WITH_2(tc_ldexp_at, a, b)
/* log(exp(a) + exp(b)); float */
TC_API tc_tensor tc_logaddexp_at(tc_arg a, tc_arg b, tc_site here);
#define tc_logaddexp(a, b) TCI_WITH_2(tc_logaddexp_at, a, b)
/* log2(exp2(a) + exp2(b)); float */
TC_API tc_tensor tc_logaddexp2_at(tc_arg a, tc_arg b, tc_site here);
#define tc_logaddexp2(a, b) TCI_WITH_2(tc_logaddexp2_at, a, b)
/* a * log(b), 0 where a is; float */
TC_API tc_tensor tc_xlogy_at(tc_arg a, tc_arg b, tc_site here);
#define tc_xlogy(a, b) TCI_WITH_2(tc_xlogy_at, a, b)
/* one is nonzero, the other not; bool */
TC_API tc_tensor tc_logical_xor_at(tc_arg a, tc_arg b, tc_site here);
#define tc_logical_xor(a, b) TCI_WITH_2(tc_logical_xor_at, a, b)
/* greatest common divisor, at least 0; of integers */
TC_API tc_tensor tc_gcd_at(tc_arg a, tc_arg b, tc_site here);
#define tc_gcd(a, b) TCI_WITH_2(tc_gcd_at, a, b)
/* least common multiple, at least 0; of integers */
TC_API tc_tensor tc_lcm_at(tc_arg a, tc_arg b, tc_site here);
#define tc_lcm(a, b) TCI_WITH_2(tc_lcm_at, a, b)
/* a == b; bool */
TC_API tc_tensor tc_eq_at(tc_arg a, tc_arg b, tc_site here);
#define tc_eq(a, b) TCI_WITH_2(tc_eq_at, a, b)
/* a != b; bool */
TC_API tc_tensor tc_ne_at(tc_arg a, tc_arg b, tc_site here);
#define tc_ne(a, b) TCI_WITH_2(tc_ne_at, a, b)
/* a < b; bool */
TC_API tc_tensor tc_lt_at(tc_arg a, tc_arg b, tc_site here);
#define tc_lt(a, b) TCI_WITH_2(tc_lt_at, a, b)
/* a <= b; bool */
TC_API tc_tensor tc_le_at(tc_arg a, tc_arg b, tc_site here);
#define tc_le(a, b) TCI_WITH_2(tc_le_at, a, b)
/* a > b; bool */
TC_API tc_tensor tc_gt_at(tc_arg a, tc_arg b, tc_site here);
#define tc_gt(a, b) TCI_WITH_2(tc_gt_at, a, b)
/* a >= b; bool */
TC_API tc_tensor tc_ge_at(tc_arg a, tc_arg b, tc_site here);
#define tc_ge(a, b) TCI_WITH_2(tc_ge_at, a, b)
/* both nonzero; bool */
TC_API tc_tensor tc_logical_and_at(tc_arg a, tc_arg b, tc_site here);
#define tc_logical_and(a, b) TCI_WITH_2(tc_logical_and_at, a, b)
/* either nonzero; bool */
TC_API tc_tensor tc_logical_or_at(tc_arg a, tc_arg b, tc_site here);
#define tc_logical_or(a, b) TCI_WITH_2(tc_logical_or_at, a, b)
/* ~a; of integers and bool */
TC_API tc_tensor tc_bitwise_not_at(tc_arg a, tc_site here);
#define tc_bitwise_not(a) TCI_WITH_1(tc_bitwise_not_at, a)
/* a & b; of integers and bool */
TC_API tc_tensor tc_bitwise_and_at(tc_arg a, tc_arg b, tc_site here);
#define tc_bitwise_and(a, b) TCI_WITH_2(tc_bitwise_and_at, a, b)
/* a | b; of integers and bool */
TC_API tc_tensor tc_bitwise_or_at(tc_arg a, tc_arg b, tc_site here);
#define tc_bitwise_or(a, b) TCI_WITH_2(tc_bitwise_or_at, a, b)
/* a ^ b; of integers and bool */
TC_API tc_tensor tc_bitwise_xor_at(tc_arg a, tc_arg b, tc_site here);
#define tc_bitwise_xor(a, b) TCI_WITH_2(tc_bitwise_xor_at, a, b)
/* a << b; 0 where b is negative or no less than the width; of integers */
TC_API tc_tensor tc_bitwise_left_shift_at(tc_arg a, tc_arg b, tc_site here);
#define tc_bitwise_left_shift(a, b) TCI_WITH_2(tc_bitwise_left_shift_at, a, b)
/* a >> b; 0, of a negative a -1, where b is negative or no less than the width; of integers */
TC_API tc_tensor tc_bitwise_right_shift_at(tc_arg a, tc_arg b, tc_site here);
#define tc_bitwise_right_shift(a, b) TCI_WITH_2(tc_bitwise_right_shift_at, a, b)
/* the high half of the exact product a * b; of integers */
TC_API tc_tensor tc_mul_high_at(tc_arg a, tc_arg b, tc_site here);
#define tc_mul_high(a, b) TCI_WITH_2(tc_mul_high_at, a, b)

/* ---- reductions: axes is TC_AXES(...) or TC_ALL; negative axes count from the end ----
 * The axes are dropped, or stay with size 1 where keepdims. TC_ERR_AXIS: out of range,
 * or given twice; TC_ERR_SHAPE: max, min, argmax or argmin over nothing. */
/* sum over the axes; of integers and bool in i64 (u16 up: u64) */
TC_API tc_tensor tc_sum_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here);
#define tc_sum(x, axes, keepdims) tc_sum_at((x), (axes), (keepdims), TC_HERE)
/* product over the axes; of integers and bool in i64 (u16 up: u64) */
TC_API tc_tensor tc_prod_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here);
#define tc_prod(x, axes, keepdims) tc_prod_at((x), (axes), (keepdims), TC_HERE)
/* largest over the axes; NaN if any is; x's dtype */
TC_API tc_tensor tc_max_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here);
#define tc_max(x, axes, keepdims) tc_max_at((x), (axes), (keepdims), TC_HERE)
/* smallest over the axes; NaN if any is; x's dtype */
TC_API tc_tensor tc_min_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here);
#define tc_min(x, axes, keepdims) tc_min_at((x), (axes), (keepdims), TC_HERE)
/* any nonzero; bool */
TC_API tc_tensor tc_any_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here);
#define tc_any(x, axes, keepdims) tc_any_at((x), (axes), (keepdims), TC_HERE)
/* all nonzero; bool */
TC_API tc_tensor tc_all_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here);
#define tc_all(x, axes, keepdims) tc_all_at((x), (axes), (keepdims), TC_HERE)
/* sum of squared differences from the mean; of integers and bool in f32 */
TC_API tc_tensor tc_devsq_at(tc_tensor x, tc_axes axes, bool keepdims, tc_site here);
#define tc_devsq(x, axes, keepdims) tc_devsq_at((x), (axes), (keepdims), TC_HERE)
/* index of the first largest (first NaN wins); i64 */
TC_API tc_tensor tc_argmax_at(tc_tensor x, int axis, bool keepdims, tc_site here);
#define tc_argmax(x, axis, keepdims) tc_argmax_at((x), (axis), (keepdims), TC_HERE)
/* index of the first smallest (first NaN wins); i64 */
TC_API tc_tensor tc_argmin_at(tc_tensor x, int axis, bool keepdims, tc_site here);
#define tc_argmin(x, axis, keepdims) tc_argmin_at((x), (axis), (keepdims), TC_HERE)

/* ---- made of elementwise ops: operands are tensors or C numbers ----
 * Shapes broadcast (else TC_ERR_SHAPE); the result has the dtype in which the operands
 * meet or, where its line says float, f32 of integers. f16 and bf16 are computed in f32
 * and rounded once. TC_ERR_HANDLE: no operand is a tensor. */
/* x above 0, else x * negative_slope;
 * TC_NONE: negative_slope 0.01 */
TC_API tc_tensor tc_leaky_relu_at(
    tc_arg x, tc_arg negative_slope, tc_site here);
#define tc_leaky_relu(x, negative_slope) \
    tc_leaky_relu_at( \
        TC_ARG(x), TC_ARG(negative_slope), TC_HERE)
/* x above 0, else alpha * (exp(x) - 1) (arXiv 1511.07289); float;
 * TC_NONE: alpha 1 */
TC_API tc_tensor tc_elu_at(
    tc_arg x, tc_arg alpha, tc_site here);
#define tc_elu(x, alpha) \
    tc_elu_at( \
        TC_ARG(x), TC_ARG(alpha), TC_HERE)
/* x above 0, else alpha * (exp(x / alpha) - 1) (arXiv 1704.07483); float;
 * TC_NONE: alpha 1 */
TC_API tc_tensor tc_celu_at(
    tc_arg x, tc_arg alpha, tc_site here);
#define tc_celu(x, alpha) \
    tc_celu_at( \
        TC_ARG(x), TC_ARG(alpha), TC_HERE)
/* elu scaled so that mean 0 and variance 1 stay (arXiv 1706.02515); float */
TC_API tc_tensor tc_selu_at(
    tc_arg x, tc_site here);
#define tc_selu(x) \
    tc_selu_at( \
        TC_ARG(x), TC_HERE)
/* x * tanh(softplus(x)) (arXiv 1908.08681); float */
TC_API tc_tensor tc_mish_at(
    tc_arg x, tc_site here);
#define tc_mish(x) \
    tc_mish_at( \
        TC_ARG(x), TC_HERE)
/* log(1 + exp(beta * x)) / beta, x where beta * x is above the threshold; float;
 * TC_NONE: beta 1, threshold 20 */
TC_API tc_tensor tc_softplus_at(
    tc_arg x, tc_arg beta, tc_arg threshold, tc_site here);
#define tc_softplus(x, beta, threshold) \
    tc_softplus_at( \
        TC_ARG(x), TC_ARG(beta), TC_ARG(threshold), TC_HERE)
/* log(sigmoid(x)); float */
TC_API tc_tensor tc_logsigmoid_at(
    tc_arg x, tc_site here);
#define tc_logsigmoid(x) \
    tc_logsigmoid_at( \
        TC_ARG(x), TC_HERE)
/* x nearer to 0 by lambd, 0 within it;
 * TC_NONE: lambd 0.5 */
TC_API tc_tensor tc_softshrink_at(
    tc_arg x, tc_arg lambd, tc_site here);
#define tc_softshrink(x, lambd) \
    tc_softshrink_at( \
        TC_ARG(x), TC_ARG(lambd), TC_HERE)
/* x, 0 within lambd of 0;
 * TC_NONE: lambd 0.5 */
TC_API tc_tensor tc_hardshrink_at(
    tc_arg x, tc_arg lambd, tc_site here);
#define tc_hardshrink(x, lambd) \
    tc_hardshrink_at( \
        TC_ARG(x), TC_ARG(lambd), TC_HERE)
/* x - tanh(x); float */
TC_API tc_tensor tc_tanhshrink_at(
    tc_arg x, tc_site here);
#define tc_tanhshrink(x) \
    tc_tanhshrink_at( \
        TC_ARG(x), TC_HERE)
/* x above the threshold, else value */
TC_API tc_tensor tc_threshold_at(
    tc_arg x, tc_arg threshold, tc_arg value, tc_site here);
#define tc_threshold(x, threshold, value) \
    tc_threshold_at( \
        TC_ARG(x), TC_ARG(threshold), TC_ARG(value), TC_HERE)
/* x cut to [min_val, max_val];
 * TC_NONE: min_val -1, max_val 1 */
TC_API tc_tensor tc_hardtanh_at(
    tc_arg x, tc_arg min_val, tc_arg max_val, tc_site here);
#define tc_hardtanh(x, min_val, max_val) \
    tc_hardtanh_at( \
        TC_ARG(x), TC_ARG(min_val), TC_ARG(max_val), TC_HERE)
/* x cut to [0, 6] */
TC_API tc_tensor tc_relu6_at(
    tc_arg x, tc_site here);
#define tc_relu6(x) \
    tc_relu6_at( \
        TC_ARG(x), TC_HERE)
/* (x + 3) / 6 cut to [0, 1]; float */
TC_API tc_tensor tc_hardsigmoid_at(
    tc_arg x, tc_site here);
#define tc_hardsigmoid(x) \
    tc_hardsigmoid_at( \
        TC_ARG(x), TC_HERE)
/* x * hardsigmoid(x) (arXiv 1905.02244); float */
TC_API tc_tensor tc_hardswish_at(
    tc_arg x, tc_site here);
#define tc_hardswish(x) \
    tc_hardswish_at( \
        TC_ARG(x), TC_HERE)
/* gelu, its normal distribution approximated by tanh (arXiv 1606.08415); float */
TC_API tc_tensor tc_gelu_tanh_at(
    tc_arg x, tc_site here);
#define tc_gelu_tanh(x) \
    tc_gelu_tanh_at( \
        TC_ARG(x), TC_HERE)
/* log(x / (1 - x)), x cut to [eps, 1 - eps]; an eps of -1 cuts nothing; float;
 * TC_NONE: eps -1 */
TC_API tc_tensor tc_logit_at(
    tc_arg x, tc_arg eps, tc_site here);
#define tc_logit(x, eps) \
    tc_logit_at( \
        TC_ARG(x), TC_ARG(eps), TC_HERE)
/* x + weight * (end - x); float */
TC_API tc_tensor tc_lerp_at(
    tc_arg x, tc_arg end, tc_arg weight, tc_site here);
#define tc_lerp(x, end, weight) \
    tc_lerp_at( \
        TC_ARG(x), TC_ARG(end), TC_ARG(weight), TC_HERE)
/* x + value * tensor1 * tensor2;
 * TC_NONE: value 1 */
TC_API tc_tensor tc_addcmul_at(
    tc_arg x, tc_arg tensor1, tc_arg tensor2, tc_arg value, tc_site here);
#define tc_addcmul(x, tensor1, tensor2, value) \
    tc_addcmul_at( \
        TC_ARG(x), TC_ARG(tensor1), TC_ARG(tensor2), TC_ARG(value), TC_HERE)
/* x + value * tensor1 / tensor2; float;
 * TC_NONE: value 1 */
TC_API tc_tensor tc_addcdiv_at(
    tc_arg x, tc_arg tensor1, tc_arg tensor2, tc_arg value, tc_site here);
#define tc_addcdiv(x, tensor1, tensor2, value) \
    tc_addcdiv_at( \
        TC_ARG(x), TC_ARG(tensor1), TC_ARG(tensor2), TC_ARG(value), TC_HERE)
/* degrees in radians; float */
TC_API tc_tensor tc_deg2rad_at(
    tc_arg x, tc_site here);
#define tc_deg2rad(x) \
    tc_deg2rad_at( \
        TC_ARG(x), TC_HERE)
/* radians in degrees; float */
TC_API tc_tensor tc_rad2deg_at(
    tc_arg x, tc_site here);
#define tc_rad2deg(x) \
    tc_rad2deg_at( \
        TC_ARG(x), TC_HERE)

/* ---- losses of elements: operands as above, then the reduction ----
 * Tensors given as input and target have one shape or are 0-d (else TC_ERR_SHAPE), unless the line
 * says that they broadcast; operands with a default always do.
 * TC_REDUCE_MEAN or TC_REDUCE_SUM over all elements, 0-d, or TC_REDUCE_NONE, each
 * element's (else TC_ERR_ARGUMENT); in a float dtype, f32 of integers. */
/* squared error */
TC_API tc_tensor tc_mse_loss_at(
    tc_arg input, tc_arg target,
    tc_reduction reduction, tc_site here);
#define tc_mse_loss(input, target, reduction) \
    tc_mse_loss_at( \
        TC_ARG(input), TC_ARG(target), (reduction), TC_HERE)
/* absolute error */
TC_API tc_tensor tc_l1_loss_at(
    tc_arg input, tc_arg target,
    tc_reduction reduction, tc_site here);
#define tc_l1_loss(input, target, reduction) \
    tc_l1_loss_at( \
        TC_ARG(input), TC_ARG(target), (reduction), TC_HERE)
/* half the squared error over beta, from beta on the absolute error less beta / 2;
 * TC_NONE: beta 1 */
TC_API tc_tensor tc_smooth_l1_loss_at(
    tc_arg input, tc_arg target, tc_arg beta,
    tc_reduction reduction, tc_site here);
#define tc_smooth_l1_loss(input, target, beta, reduction) \
    tc_smooth_l1_loss_at( \
        TC_ARG(input), TC_ARG(target), TC_ARG(beta), (reduction), TC_HERE)
/* half the squared error, beyond delta the line that goes on from it (Huber, 1964);
 * TC_NONE: delta 1 */
TC_API tc_tensor tc_huber_loss_at(
    tc_arg input, tc_arg target, tc_arg delta,
    tc_reduction reduction, tc_site here);
#define tc_huber_loss(input, target, delta, reduction) \
    tc_huber_loss_at( \
        TC_ARG(input), TC_ARG(target), TC_ARG(delta), (reduction), TC_HERE)
/* -(target * log(input) + (1 - target) * log(1 - input)), each log at least -100;
 * TC_NONE: weight 1 */
TC_API tc_tensor tc_binary_cross_entropy_at(
    tc_arg input, tc_arg target, tc_arg weight,
    tc_reduction reduction, tc_site here);
#define tc_binary_cross_entropy(input, target, weight, reduction) \
    tc_binary_cross_entropy_at( \
        TC_ARG(input), TC_ARG(target), TC_ARG(weight), (reduction), TC_HERE)
/* binary cross entropy of sigmoid(input); pos_weight counts the targets of 1;
 * TC_NONE: weight 1, pos_weight 1 */
TC_API tc_tensor tc_binary_cross_entropy_with_logits_at(
    tc_arg input, tc_arg target, tc_arg weight, tc_arg pos_weight,
    tc_reduction reduction, tc_site here);
#define tc_binary_cross_entropy_with_logits(input, target, weight, pos_weight, reduction) \
    tc_binary_cross_entropy_with_logits_at( \
        TC_ARG(input), TC_ARG(target), TC_ARG(weight), TC_ARG(pos_weight), (reduction), TC_HERE)
/* (log(var) + squared error / var) / 2, var at least eps; full: 1 adds log(2 pi) / 2; broadcasts;
 * TC_NONE: full 0, eps 1e-6 */
TC_API tc_tensor tc_gaussian_nll_loss_at(
    tc_arg input, tc_arg target, tc_arg var, tc_arg full, tc_arg eps,
    tc_reduction reduction, tc_site here);
#define tc_gaussian_nll_loss(input, target, var, full, eps, reduction) \
    tc_gaussian_nll_loss_at( \
        TC_ARG(input), TC_ARG(target), TC_ARG(var), TC_ARG(full), TC_ARG(eps), (reduction), TC_HERE)
/* max(0, margin - target * (input1 - input2));
 * TC_NONE: margin 0 */
TC_API tc_tensor tc_margin_ranking_loss_at(
    tc_arg input1, tc_arg input2, tc_arg target, tc_arg margin,
    tc_reduction reduction, tc_site here);
#define tc_margin_ranking_loss(input1, input2, target, margin, reduction) \
    tc_margin_ranking_loss_at( \
        TC_ARG(input1), TC_ARG(input2), TC_ARG(target), TC_ARG(margin), (reduction), TC_HERE)
/* log(1 + exp(-target * input)) */
TC_API tc_tensor tc_soft_margin_loss_at(
    tc_arg input, tc_arg target,
    tc_reduction reduction, tc_site here);
#define tc_soft_margin_loss(input, target, reduction) \
    tc_soft_margin_loss_at( \
        TC_ARG(input), TC_ARG(target), (reduction), TC_HERE)
/* input for targets of 1, max(0, margin - input) for those of -1;
 * TC_NONE: margin 1 */
TC_API tc_tensor tc_hinge_embedding_loss_at(
    tc_arg input, tc_arg target, tc_arg margin,
    tc_reduction reduction, tc_site here);
#define tc_hinge_embedding_loss(input, target, margin, reduction) \
    tc_hinge_embedding_loss_at( \
        TC_ARG(input), TC_ARG(target), TC_ARG(margin), (reduction), TC_HERE)
