/* cuda/warps.c - see cuda/warps.h: mma.sync, which cards have from sm_75 on.
 *
 * In: the unit's statements (loop/mem.h). Out: their text, in two layers: functions of one PTX
 * instruction each, which tests that run the text without a GPU define for themselves (TC_NO_PTX),
 * and what the statements make of them.
 *
 * Layouts of the PTX ISA, lane = g * 4 + t: a factor of 16 rows of 32 bytes is four words, word j
 * number t + 4 (j / 2) of row g + 8 (j % 2). That is how ldmatrix.x4 hands out four squares of
 * 8 rows of 16 bytes, to which lanes 8 j .. 8 j + 7 give square j's rows; it is the first factor of
 * m16n8k16 (k8 of f32). A second factor is two of 8 columns, words 0, 1 and words 2, 3, neighbours
 * as the instruction wants registers: word j is number t + 4 (j % 2) of row g + 8 (j / 2). The
 * results are sums 0 .. 3 and 4 .. 7: rows g, g, g + 8, g + 8, columns 2 t, 2 t + 1, and so again.
 * sm_75 multiplies f16 alone, eight of the depth at once: words 0, 1 by the first of a second
 * factor's two, then 2, 3 by the other. */
#include "warps.h"

static const char tci_cuda_warps_text[] =
    "#ifndef TC_NO_PTX\n"
    "TC_I unsigned tc_shared_of(const void *p) {\n"
    "    return (unsigned)__cvta_generic_to_shared(p);\n}\n"
    "TC_I void tc_squares(unsigned *w, const void *row) {\n"
    "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
    "                 : \"=r\"(w[0]), \"=r\"(w[1]), \"=r\"(w[2]), \"=r\"(w[3])\n"
    "                 : \"r\"(tc_shared_of(row)) : \"memory\");\n}\n"
    "TC_I void tc_squares_turned(unsigned *w, const void *row) {\n"
    "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
    "                 : \"=r\"(w[0]), \"=r\"(w[1]), \"=r\"(w[2]), \"=r\"(w[3])\n"
    "                 : \"r\"(tc_shared_of(row)) : \"memory\");\n}\n"
    "#define TC_MULTIPLY(name, shape) \\\n"
    "TC_I void name(float *c, const unsigned *a, unsigned b, unsigned d) { \\\n"
    "    asm(\"mma.sync.aligned.\" shape \" {%0, %1, %2, %3}, {%4, %5, %6, %7}, \" \\\n"
    "        \"{%8, %9}, {%0, %1, %2, %3};\" \\\n"
    "        : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3]) \\\n"
    "        : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b), \"r\"(d)); \\\n}\n"
    "#if __CUDA_ARCH__ >= 800\n"
    "TC_MULTIPLY(tc_multiply_f16, \"m16n8k16.row.col.f32.f16.f16.f32\")\n"
    "TC_MULTIPLY(tc_multiply_bf16, \"m16n8k16.row.col.f32.bf16.bf16.f32\")\n"
    "TC_MULTIPLY(tc_multiply_f32, \"m16n8k8.row.col.f32.tf32.tf32.f32\")\n"
    "TC_I unsigned tc_tf32(unsigned x) {\n    unsigned r;\n"
    "    asm(\"cvt.rna.tf32.f32 %0, %1;\" : \"=r\"(r) : \"f\"(__int_as_float((int)x)));\n"
    "    return r;\n}\n"
    "#else\n"
    "TC_I void tc_multiply_8(float *c, unsigned a, unsigned e, unsigned b) {\n"
    "    asm(\"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, \"\n"
    "        \"{%6}, {%0, %1, %2, %3};\"\n"
    "        : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3]) : \"r\"(a), \"r\"(e), "
    "\"r\"(b));\n}\n"
    "TC_I void tc_multiply_f16(float *c, const unsigned *a, unsigned b, unsigned d) {\n"
    "    tc_multiply_8(c, a[0], a[1], b);\n    tc_multiply_8(c, a[2], a[3], d);\n}\n"
    "#endif\n"
    "#endif\n";

TCI_FN void tci_cuda_warps_prelude(tci_str *out)
{
    tci_str_add(out, tci_cuda_warps_text);
}

/* Words are stored through a pack of them, as they may be anything's; f32 is rounded where it is
 * stored, once for all warps that take it. */
#define TCI_CUDA_SIXTEEN "tc_pack<tc_two, 4>"
#define TCI_CUDA_LANE                                                                              \
    "TC_I $T $n(const $S *p, tc_i64 pitch) {\n    $T r;\n"                                         \
    "    const int lane = (int)threadIdx.x & 31;\n"
/* A lane's row of the squares, and where in it. */
#define TCI_CUDA_TAKE(row, at)                                                                     \
    TCI_CUDA_LANE                                                                                  \
    "    tc_squares(r.v, p + (" row ") * pitch + " at ");\n    return r;\n}\n"
/* f32, which ldmatrix cannot turn, word by word. */
#define TCI_CUDA_TURN(row, at, depth, own)                                                         \
    TCI_CUDA_LANE                                                                                  \
    "    if (sizeof($S) == 2) {\n"                                                                 \
    "        tc_squares_turned(r.v, p + (" row ") * pitch + " at ");\n        return r;\n    }\n"  \
    "    TC_LANES(r) {\n        r.v[i] = *(const tc_two *)(p + (lane % 4 + " depth ") * pitch + "  \
    "lane / 4 + " own ");\n    }\n    return r;\n}\n"
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
    {TCI_MEM_STORE_UNIT, "store_unit",
     "TC_I void $n($S *p, $E x) {\n    $W(p, $X);\n}\n"},
    {TCI_MEM_UNIT_ROWS, "unit_rows", TCI_CUDA_TAKE("lane & 15", "lane / 16 * (16 / sizeof($S))")},
    {TCI_MEM_UNIT_COLUMNS, "unit_columns",
     TCI_CUDA_TAKE("lane / 16 * 8 + (lane & 7)", "(lane & 8) / (sizeof($S) / 2)")},
    {TCI_MEM_UNIT_ROWS_TURNED, "unit_rows_turned",
     TCI_CUDA_TURN("lane / 16 * 8 + (lane & 7)", "(lane & 8)", "i / 2 * 4", "i % 2 * 8")},
    {TCI_MEM_UNIT_COLUMNS_TURNED, "unit_columns_turned",
     TCI_CUDA_TURN("lane & 15", "lane / 16 * 8", "i % 2 * 4", "i / 2 * 8")},
    {TCI_MEM_UNIT_ZERO, "unit_zero", "TC_I $T $n() {\n    return {};\n}\n"},
    {TCI_MEM_UNIT_DOT, "unit_dot",
     "template <class W> TC_I $T $n($T c, const W &a, const W &b) {\n"
     "    tc_multiply_$D(c.v, a.v, b.v[0], b.v[1]);\n"
     "    tc_multiply_$D(c.v + 4, a.v, b.v[2], b.v[3]);\n    return c;\n}\n"},
    {TCI_MEM_UNIT_SUM, "unit_sum",
     "TC_I $E $n(const $T &c, int i) {\n    return c.v[i];\n}\n"},
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
#undef TCI_CUDA_LANE
#undef TCI_CUDA_TAKE
#undef TCI_CUDA_TURN
