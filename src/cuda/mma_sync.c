/* cuda/mma_sync.c - writes the CUDA source of the GEMM on mma.sync, the warp-level tensor-core
 * instruction (sm_75 and later).
 *
 * In: the statements for warp-level tensor-core instructions (loop/intrinsics.h). Out: their text,
 * in two layers: functions of one PTX instruction each, which tests that run the text without a GPU
 * define for themselves (TC_NO_PTX), and the statements built from them.
 *
 * Layouts of the PTX ISA, lane = g * 4 + t: an operand of 16 rows of 32 bytes is four words, word
 * j number t + 4 (j / 2) of row g + 8 (j % 2). That is the result of ldmatrix.x4 for four matrices
 * of 8 rows of 16 bytes, where lanes 8 j .. 8 j + 7 give the rows of matrix j; it is the first
 * operand of m16n8k16 (k8 of f32, k32 of 8-bit integers). A second operand is two of 8 columns,
 * words 0, 1 and words 2, 3, in adjacent registers: word j is number t + 4 (j % 2) of row g + 8 (j
 * / 2). The results are accumulators 0 .. 3 and 4 .. 7: rows g, g, g + 8, g + 8, columns 2 t, 2 t +
 * 1, twice. A word of f64 is one element, number 2 t + j / 2 of the row in place of number t + 4 (j
 * / 2): both operands use that order, so that two are contiguous in memory. Smaller instructions
 * take one part of these after the other: sm_75 multiplies eight f16 of the depth at once, words 0,
 * 1 by the first of a second operand's two, then 2, 3 by the other, and 8 rows of 16 bytes; sm_80 8
 * rows of four f64. */
#include "mma_sync.h"

static const char tci_cuda_warps_text[] =
    "#ifndef TC_NO_PTX\n"
    "TC_I unsigned tc_shared_of(const void *p) {\n"
    "    return (unsigned)__cvta_generic_to_shared(p);\n"
    "}\n"
    "TC_I void tc_squares(unsigned *w, const void *row) {\n"
    "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
    "                 : \"=r\"(w[0]), \"=r\"(w[1]), \"=r\"(w[2]), \"=r\"(w[3])\n"
    "                 : \"r\"(tc_shared_of(row)) : \"memory\");\n"
    "}\n"
    "TC_I void tc_squares_turned(unsigned *w, const void *row) {\n"
    "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
    "                 : \"=r\"(w[0]), \"=r\"(w[1]), \"=r\"(w[2]), \"=r\"(w[3])\n"
    "                 : \"r\"(tc_shared_of(row)) : \"memory\");\n"
    "}\n"
    "#define TC_MULTIPLY(name, C, A, B, sum, factor, shape) \\\n"
    "TC_I void name(C *c, const A *a, B b, B d) { \\\n"
    "    asm(\"mma.sync.aligned.\" shape \" {%0, %1, %2, %3}, {%4, %5, %6, %7}, \" \\\n"
    "        \"{%8, %9}, {%0, %1, %2, %3};\" \\\n"
    "        : \"+\" sum(c[0]), \"+\" sum(c[1]), \"+\" sum(c[2]), \"+\" sum(c[3]) \\\n"
    "        : factor(a[0]), factor(a[1]), factor(a[2]), factor(a[3]), factor(b), factor(d)); \\\n"
    "}\n"
    "#define TC_MULTIPLY_8(name, C, A, B, sum, factor, shape) \\\n"
    "TC_I void name(C *c, A a, B b) { \\\n"
    "    asm(\"mma.sync.aligned.\" shape \" {%0, %1}, {%2}, {%3}, {%0, %1};\" \\\n"
    "        : \"+\" sum(c[0]), \"+\" sum(c[1]) : factor(a), factor(b)); \\\n"
    "}\n"
    "#define TC_MULTIPLY_BYTES(each, name, shape) \\\n"
    "each(name, int, int, int, \"r\", \"r\", shape \".row.col.s32.s8.s8.s32\") \\\n"
    "each(name, int, int, unsigned, \"r\", \"r\", shape \".row.col.s32.s8.u8.s32\") \\\n"
    "each(name, int, unsigned, int, \"r\", \"r\", shape \".row.col.s32.u8.s8.s32\") \\\n"
    "each(name, int, unsigned, unsigned, \"r\", \"r\", shape \".row.col.s32.u8.u8.s32\")\n"
    "#define TC_MULTIPLY_DOUBLES(each, name, shape) \\\n"
    "each(name, double, double, double, \"d\", \"d\", shape \".row.col.f64.f64.f64.f64\")\n"
    "#if __CUDA_ARCH__ >= 800\n"
    "#define TC_MULTIPLY_WORDS(name, shape) \\\n"
    "TC_MULTIPLY(name, float, unsigned, unsigned, \"f\", \"r\", shape)\n"
    "TC_MULTIPLY_WORDS(tc_multiply_f16, \"m16n8k16.row.col.f32.f16.f16.f32\")\n"
    "TC_MULTIPLY_WORDS(tc_multiply_bf16, \"m16n8k16.row.col.f32.bf16.bf16.f32\")\n"
    "TC_MULTIPLY_WORDS(tc_multiply_f32, \"m16n8k8.row.col.f32.tf32.tf32.f32\")\n"
    "TC_MULTIPLY_BYTES(TC_MULTIPLY, tc_multiply_i8, \"m16n8k32\")\n"
    "TC_I unsigned tc_tf32(unsigned x) {\n"
    "    unsigned r;\n"
    "    asm(\"cvt.rna.tf32.f32 %0, %1;\" : \"=r\"(r) : \"f\"(__int_as_float((int)x)));\n"
    "    return r;\n"
    "}\n"
    "#else\n"
    "TC_I void tc_multiply_8(float *c, unsigned a, unsigned e, unsigned b) {\n"
    "    asm(\"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, \"\n"
    "        \"{%6}, {%0, %1, %2, %3};\"\n"
    "        : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3])\n"
    "        : \"r\"(a), \"r\"(e), \"r\"(b));\n"
    "}\n"
    "TC_I void tc_multiply_f16(float *c, const unsigned *a, unsigned b, unsigned d) {\n"
    "    tc_multiply_8(c, a[0], a[1], b);\n"
    "    tc_multiply_8(c, a[2], a[3], d);\n"
    "}\n"
    "TC_MULTIPLY_BYTES(TC_MULTIPLY_8, tc_multiply_8, \"m8n8k16\")\n"
    "template <class A, class B> TC_I void tc_multiply_i8(int *c, const A *a, B b, B d) {\n"
    "    tc_multiply_8(c, a[0], b);\n"
    "    tc_multiply_8(c + 2, a[1], b);\n"
    "    tc_multiply_8(c, a[2], d);\n"
    "    tc_multiply_8(c + 2, a[3], d);\n"
    "}\n"
    "#endif\n"
    "#if __CUDA_ARCH__ >= 900\n"
    "TC_MULTIPLY_DOUBLES(TC_MULTIPLY, tc_multiply_f64, \"m16n8k8\")\n"
    "#elif __CUDA_ARCH__ >= 800\n"
    "TC_MULTIPLY_DOUBLES(TC_MULTIPLY_8, tc_multiply_8, \"m8n8k4\")\n"
    "TC_I void tc_multiply_f64(double *c, const double *a, double b, double d) {\n"
    "    tc_multiply_8(c, a[0], b);\n"
    "    tc_multiply_8(c + 2, a[1], b);\n"
    "    tc_multiply_8(c, a[2], d);\n"
    "    tc_multiply_8(c + 2, a[3], d);\n"
    "}\n"
    "#endif\n"
    "#endif\n";

/* A warp's factors from a panel. Transposed bytes: a square of halves is of two columns: each
 * thread is given two neighbouring rows of them, and another one the two after them: picked apart
 * they are four rows of each column. Which rows a square has differs between threads, so that its
 * eight are in different banks. */
static const char tci_cuda_take_text[] =
    "#define TC_LANE const int lane = (int)threadIdx.x & 31\n"
    "template <class W, class S> TC_I void tc_rows(W *w, const S *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    tc_squares((unsigned *)w, p + (lane & 15) * pitch + lane / 16 * (16 / (int)sizeof(S)));\n"
    "}\n"
    "template <class W, class S> TC_I void tc_columns(W *w, const S *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    p += (lane / 16 * 8 + (lane & 7)) * pitch;\n"
    "    tc_squares((unsigned *)w, p + lane / 8 % 2 * (16 / (int)sizeof(S)));\n"
    "}\n"
    "TC_I void tc_rows_turned(unsigned *w, const unsigned short *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    tc_squares_turned(w, p + (lane / 16 * 8 + (lane & 7)) * pitch + (lane & 8));\n"
    "}\n"
    "TC_I void tc_columns_turned(unsigned *w, const unsigned short *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    tc_squares_turned(w, p + (lane & 15) * pitch + lane / 16 * 8);\n"
    "}\n"
    "TC_I void tc_rows_turned(unsigned *w, const float *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        w[i] = *(const tc_two *)(p + (lane % 4 + i / 2 * 4) * pitch + lane / 4 + i % 2 * 8);\n"
    "    }\n"
    "}\n"
    "TC_I void tc_columns_turned(unsigned *w, const float *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        w[i] = *(const tc_two *)(p + (lane % 4 + i % 2 * 4) * pitch + lane / 4 + i / 2 * 8);\n"
    "    }\n"
    "}\n"
    "template <class W, class S> TC_I void tc_rows_turned(W *w, const S *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    const int group = lane / 2 & 3, square = lane / 8;\n"
    "    const int row = square / 2 * 16 + group * 4 + ((square ^ group / 2) & 1) * 2 + lane % 2;\n"
    "    const unsigned even = lane & 2 ? 0x2064 : 0x6420;\n"
    "    unsigned x[4];\n"
    "    tc_squares_turned(x, p + row * pitch);\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        w[i] = (W)__byte_perm(x[i / 2 * 2], x[i / 2 * 2 + 1], i % 2 ? even + 0x1111 : even);\n"
    "    }\n"
    "}\n"
    "template <class W, class S> TC_I void tc_columns_turned(W *w, const S *p, tc_i64 pitch) {\n"
    "    tc_rows_turned(w, p, pitch);\n"
    "    const W x = w[1];\n"
    "    w[1] = w[2];\n"
    "    w[2] = x;\n"
    "}\n"
    "typedef tc_pack<double, 2> tc_doubles;\n"
    "TC_I tc_doubles tc_doubles_at(const double *p, tc_i64 row, tc_i64 pitch, int own) {\n"
    "    return *(const tc_doubles *)(p + row * pitch + 2 * own);\n"
    "}\n"
    "TC_I void tc_rows(double *w, const double *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        w[i] = tc_doubles_at(p, lane / 4 + i % 2 * 8, pitch, lane % 4).e[i / 2];\n"
    "    }\n"
    "}\n"
    "TC_I void tc_columns(double *w, const double *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        w[i] = tc_doubles_at(p, lane / 4 + i / 2 * 8, pitch, lane % 4).e[i % 2];\n"
    "    }\n"
    "}\n"
    "TC_I void tc_rows_turned(double *w, const double *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        w[i] = tc_doubles_at(p, lane % 4 * 2 + i / 2, pitch, lane / 4).e[i % 2];\n"
    "    }\n"
    "}\n"
    "TC_I void tc_columns_turned(double *w, const double *p, tc_i64 pitch) {\n"
    "    TC_LANE;\n"
    "    for (int i = 0; i < 4; i++) {\n"
    "        w[i] = tc_doubles_at(p, lane % 4 * 2 + i % 2, pitch, lane / 4).e[i / 2];\n"
    "    }\n"
    "}\n";

TCI_FN void tci_cuda_warps_prelude(tci_str *out)
{
    tci_str_add(out, tci_cuda_warps_text);
    tci_str_add(out, tci_cuda_take_text);
}

/* Words are stored through a pack of them, as they may be anything's; f32 is rounded where it is
 * stored, once for all warps that take it. */
#define TCI_CUDA_SIXTEEN "tc_pack<tc_two, 4>"
#define TCI_CUDA_TAKE(how)                                                                         \
    "TC_I $T $n(const $S *p, tc_i64 pitch) {\n    $T r;\n    " how "(r.v, p, pitch);\n"            \
    "    return r;\n}\n"
static const tci_cuda_row tci_cuda_warps_rows[] = {
    {TCI_MEM_WORDS, "words",
     "TC_I $T $n(const $S *p) {\n    $T r;\n"
     "    const " TCI_CUDA_SIXTEEN " w = *(const " TCI_CUDA_SIXTEEN " *)p;\n"
     "    TC_LANES(r) {\n        r.v[i] = w.e[i];\n    }\n    return r;\n}\n"},
    {TCI_MEM_WORDS_IF, "words_if",
     "TC_I $T $n(const $S *p, bool m) {\n    $T r;\n    " TCI_CUDA_SIXTEEN " w = {};\n"
     "    if (m) {\n        w = *(const " TCI_CUDA_SIXTEEN " *)p;\n    }\n"
     "    TC_LANES(r) {\n        r.v[i] = w.e[i];\n    }\n    return r;\n}\n"},
    {TCI_MEM_STORE_WORDS, "store_words",
     "TC_I void $n($S *p, $T x) {\n    " TCI_CUDA_SIXTEEN " w;\n    TC_LANES(x) {\n"
     "        w.e[i] = $U(x.v[i]);\n    }\n    *(" TCI_CUDA_SIXTEEN " *)p = w;\n}\n"},
    {TCI_MEM_STORE_UNIT, "store_unit", "TC_I void $n($S *p, $E x) {\n    $W(p, $X);\n}\n"},
    {TCI_MEM_UNIT_ROWS, "unit_rows", TCI_CUDA_TAKE("tc_rows")},
    {TCI_MEM_UNIT_COLUMNS, "unit_columns", TCI_CUDA_TAKE("tc_columns")},
    {TCI_MEM_UNIT_ROWS_TURNED, "unit_rows_turned", TCI_CUDA_TAKE("tc_rows_turned")},
    {TCI_MEM_UNIT_COLUMNS_TURNED, "unit_columns_turned", TCI_CUDA_TAKE("tc_columns_turned")},
    {TCI_MEM_UNIT_ZERO, "unit_zero", "TC_I $T $n() {\n    return {};\n}\n"},
    {TCI_MEM_UNIT_DOT, "unit_dot",
     "template <class A, class B> TC_I $T $n($T c, const A &a, const B &b) {\n"
     "    tc_multiply_$D(c.v, a.v, b.v[0], b.v[1]);\n"
     "    tc_multiply_$D(c.v + 4, a.v, b.v[2], b.v[3]);\n    return c;\n}\n"},
    {TCI_MEM_UNIT_SUM, "unit_sum", "TC_I $E $n(const $T &c, int i) {\n    return c.v[i];\n}\n"},
};

TCI_FN const tci_cuda_row *tci_cuda_warps_row(tci_mem m)
{
    for (int i = 0; i < TCI_COUNT(tci_cuda_warps_rows); i++) {
        if (tci_cuda_warps_rows[i].mem == m) {
            return &tci_cuda_warps_rows[i];
        }
    }
    return NULL;
}

#undef TCI_CUDA_SIXTEEN
#undef TCI_CUDA_TAKE
