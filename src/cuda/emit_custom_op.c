/* cuda/emit_custom_op.c - generates the CUDA source of a custom op: the user's source, and a kernel
 * that calls it.
 *
 * In: a kernel that calls a custom op given as CUDA source. Out: a separate translation unit, so
 * that names never collide. Error messages of NVRTC name the op and the line of the text. Known
 * sizes are numbers in the kernel; others are arguments of its launch. */
#include "emit_custom_op.h"

static const char tci_cuda_custom_types[] =
    "struct tc_custom_array {\n    void *data;\n    tc_dtype dtype;\n    int rank;\n"
    "    const long long *sizes;\n    long long n;\n};\n";

static void tci_cuda_custom_dtypes(tci_str *out)
{
    tci_str_add(out, "enum tc_dtype {\n");
#define TCI_ROW(id, name, ctype, bytes, kind, compute)                                             \
    tci_str_printf(out, "    %s = %d,\n", #id, (int)id);
    TCI_DTYPE_ROWS(TCI_ROW)
#undef TCI_ROW
    tci_str_add(out, "};\n");
}

static void tci_cuda_custom_number(tci_str *out, const tci_launch *l, tci_dim d)
{
    int i = 0;
    while (i < l->n_dims && l->dims[i] != d) {
        i++;
    }
    if (i < l->n_dims) {
        tci_str_printf(out, "args.lits[%d]", i);
    } else {
        tci_str_printf(out, "%lld", (long long)tci_dim_known(d));
    }
}

static void tci_cuda_custom_sizes(tci_str *out, const tci_launch *l, const tc_custom_array *a,
                                  int i)
{
    tci_str_printf(out, "    const long long sizes%d[] = {", i);
    for (int d = 0; d < a->rank; d++) {
        tci_cuda_custom_number(out, l, tci_dim_list(a->sizes)[d]);
        tci_str_add(out, ", ");
    }
    tci_str_add(out, "0};\n"); /* an array has an element */
}

static void tci_cuda_custom_array(tci_str *out, const tci_launch *l, const tc_custom_array *a,
                                  int i, int operand)
{
    tci_str_printf(out, "{args.bufs[%d], (tc_dtype)%d, %d, sizes%d, ", operand, (int)a->dtype,
                   a->rank, i);
    tci_cuda_custom_number(out, l, (tci_dim)a->n);
    tci_str_add(out, "}");
}

/* Results that are the same value are computed one after the other. */
static void tci_cuda_custom_calls(tci_str *out, const tci_kernel *k, const tci_launch *l)
{
    const tci_custom_call *call = k->call;
    int n = call->n_inputs;
    for (int i = 0; i <= n; i++) {
        tci_cuda_custom_sizes(out, l, &call->arrays[i], i);
    }
    tci_str_add(out, "    const tc_custom_array in[] = {\n");
    for (int i = 0; i < n; i++) {
        tci_str_add(out, "        ");
        tci_cuda_custom_array(out, l, &call->arrays[i], i, i);
        tci_str_add(out, ",\n");
    }
    tci_str_add(out, "    };\n");
    for (int o = n; o < k->n_operands; o++) {
        tci_str_printf(out, "    tc_custom_array out%d = ", o - n);
        tci_cuda_custom_array(out, l, &call->arrays[n], n, o);
        tci_str_printf(out, ";\n%s    run(in, %d, &out%d);\n",
                       o > n ? "    __syncthreads();\n" : "", n, o - n);
    }
}

TCI_FN void tci_cuda_custom(tci_dialect *d, tci_str *out, const tci_kernel *k, const tci_launch *l,
                            const char *symbol)
{
    const tc_custom_op *op = &k->call->op->op;
    (void)d;
    tci_cuda_custom_dtypes(out);
    tci_str_add(out, tci_cuda_custom_types);
    tci_str_add(out, "#line 1 \"");
    for (const char *c = op->name; *c; c++) { /* as a file's name */
        tci_str_printf(out, "%c", *c == '"' || *c == '\\' || *c == '\n' ? '_' : *c);
    }
    tci_str_printf(out, "\"\n%s\n#line 1 \"tc.cu\"\n", op->cuda);
    tci_str_printf(out,
                   "struct %s_args { void *bufs[%d]; long long lits[%d]; long long *fault; };\n"
                   "extern \"C\" __global__ void __launch_bounds__(%d) %s(const %s_args args)\n{\n",
                   symbol, k->n_operands, TCI_MAX(l->n_dims, 1), tci_custom_threads(k->call->op),
                   symbol, symbol);
    tci_cuda_custom_calls(out, k, l);
    tci_str_add(out, "}\n");
}
