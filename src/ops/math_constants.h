/* ops/math_constants.h - constants of the exp and log expansions that both widths use
 * (ops/math_f32.c, ops/math_f64.c). */
#ifndef TCI_OPS_MATH_CONSTANTS_H
#define TCI_OPS_MATH_CONSTANTS_H

/* 1.5 * 2^23 */
static const double tci_math_log2e = 0x1.715476p+0;
static const double tci_math_ln2 = 0x1.62e43p-1; /* ln 2 - 1.9e-9 */
static const double tci_math_ln2_rest = -0x1.05c61p-29;
/* e^r on |r| <= 0.347 without the leading 1 + r, relative error 2^-28.2: coefficients of r^6 ..
 * r^2 */
static const double tci_math_exp_c[] = {0x1.6a4508p-10, 0x1.1239aap-7, 0x1.5558b8p-5, 0x1.555492p-3,
                                        0x1.fffffcp-2};
/* log(1 + f) - f over f^2, f in [sqrt(1/2) - 1, sqrt(2) - 1], error of the log 2^-27.8: f^8 ..
 * f^0 */
static const double tci_math_log_c[] = {-0x1.39c1f4p-4, 0x1.08ceeep-3,  -0x1.0f277cp-3,
                                        0x1.225a62p-3,  -0x1.542652p-3, 0x1.99a52cp-3,
                                        -0x1.000434p-2, 0x1.55554ep-2,  -0x1.fffff8p-2};

#endif
