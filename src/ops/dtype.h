/* ops/dtype.h - element types: properties of each dtype, type promotion and conversion of values
 * (rows and public enum are in api/types.h). */
#ifndef TCI_OPS_DTYPE_H
#define TCI_OPS_DTYPE_H

#include "../api/types.h"
#include "../base/platform.h"

typedef enum tci_kind { TCI_KIND_BOOL, TCI_KIND_UINT, TCI_KIND_INT, TCI_KIND_FLOAT } tci_kind;

typedef struct tci_dtype_info {
    char name[8];   /* "f32"; no pointers: nothing to relocate */
    char ctype[20]; /* storage type in generated C: "float" */
    uint8_t bytes;
    uint8_t align;  /* of its storage in C */
    uint8_t kind;   /* tci_kind */
    int8_t compute; /* tc_dtype in which kernels compute: itself, except f16 and bf16 -> f32 */
} tci_dtype_info;

enum { TCI_DTYPE_N = TC_DTYPE_COUNT - TC_BOOL }; /* how many there are; all fit an int8_t */
TCI_FN const tci_dtype_info *tci_dtype_get(tc_dtype t);
static inline bool tci_dtype_is_aligned(tc_dtype t, const void *p)
{
    return !((uintptr_t)p & (uintptr_t)(tci_dtype_get(t)->align - 1));
}
/* Whether a number is one; also of what a user gave as one. */
static inline bool tci_dtype_is_valid(int64_t t)
{
    return t >= TC_BOOL && t < TC_DTYPE_COUNT;
}
static inline bool tci_dtype_is_float(tc_dtype t)
{
    return t >= TC_F16 && t <= TC_F64;
}
static inline bool tci_dtype_is_int(tc_dtype t)
{
    return t >= TC_U8 && t <= TC_I64;
}
static inline bool tci_dtype_is_signed(tc_dtype t)
{
    return t >= TC_I8 && t <= TC_F64;
}
static inline bool tci_dtype_is_byte(tc_dtype t)
{
    return t == TC_U8 || t == TC_I8;
}
static inline bool tci_dtype_is_half(tc_dtype t)
{
    return t == TC_F16 || t == TC_BF16;
}
/* ---- promotion: `how` is the context's rule (tc_options.promotion) ---- */
/* The dtype in which two tensors meet. TORCH: torch's table; u16, u32, u64 with another integer as
 * NumPy. NUMPY: numpy.result_type; bf16, which NumPy lacks, as f16 with bool, integers of one byte
 * and wider floats, f32 with f16 and integers of two bytes, else f64 (as ml_dtypes). */
TCI_FN tc_dtype tci_dtype_promote(tc_promotion how, tc_dtype a, tc_dtype b);
/* The dtype of a C number with a fraction, and of functions of integers that are made of several
 * ops (mean, softmax): t itself if it is a float, else f32 (TORCH) or f64 (NUMPY). */
TCI_FN tc_dtype tci_dtype_real(tc_promotion how, tc_dtype t);
/* The dtype of elementwise functions as sin: t if it is a float, else f32 (TORCH), or the narrowest
 * float with at least twice the bytes of t (NUMPY). */
TCI_FN tc_dtype tci_dtype_function(tc_promotion how, tc_dtype t);
/* The dtype of SUM, PROD and running sums: t if it is a float, else i64, or u64 of u16, u32, u64
 * (TORCH) or of all unsigned (NUMPY). */
TCI_FN tc_dtype tci_dtype_sum(tc_promotion how, tc_dtype t);

/* A value of any dtype in 64 bits, as literal slots, fills and constants carry it: floats as double
 * bits (also f32, f16, bf16), ints as int64 (u64 reinterpreted), bool as 0 or 1. */
typedef union tci_value {
    int64_t i;
    uint64_t u;
    double f;
} tci_value;
TCI_FN tci_value tci_value_load(tc_dtype t, const void *p);    /* storage -> value */
TCI_FN void tci_value_store(tc_dtype t, void *p, tci_value v); /* value -> storage, rounding */
TCI_FN tci_value tci_value_cast(tci_value v, tc_dtype from, tc_dtype to); /* tc's defined corners */
TCI_FN float tci_round_bf16(float x);
TCI_FN float tci_round_f16(float x);
TCI_FN uint16_t tci_f32_to_f16_bits(float x);
TCI_FN float tci_f16_bits_to_f32(uint16_t h);

#endif
