/* tests/onnx.c - runs an ONNX model on arrays from a file.
 *
 *     onnx MODEL.onnx INPUTS.safetensors OUTPUTS.safetensors [--symbolic [SIZE=FACTOR[xLEASTxMOST]]
 *         ...]
 *
 * --symbolic: sizes that the model leaves open are TC_DIMs, so that the program is one for all
 * sizes. height=32x2x40: that named height is a multiple of 32, from 64 to 1280; height=48: it is
 * 48.
 * onnx MODEL INPUTS OUTPUT --export: writes the model anew, with the sizes of the inputs: as ONNX,
 * or as StableHLO where OUTPUT ends in .mlir.
 *
 * Inputs and outputs are named as those of the graph. 0: done; 77: not supported, and the last
 * line of stderr says why; 1: another failure. Built with TC_IMPLEMENTATION, by `make onnx`. */
#define TC_DYNAMIC_SHAPES
#include "tc_onnx.h"

#include <stdlib.h>
#include <string.h>

enum { MAX = 256 };

static tc_ctx *ctx;
static bool symbolic;

static int failed(tc_status status, const char *what)
{
    fprintf(stderr, "%s\n", what);
    return status == TC_ERR_UNSUPPORTED ? 77 : 1;
}

static const int64_t *sizes_of[MAX];

/* What the file has for the graph's inputs: sizes, and values in memory that stays. */
static int read_inputs(tc_file *file, tc_onnx_input *inputs)
{
    int n = 0;
    for (const tc_array *a; n < MAX && (a = tc_file_array(file, n)) != NULL; n++) {
        tc_tensor t = tc_file_copy_in(ctx, file, a->name);
        int64_t bytes = tc_nbytes(t);
        void *value = malloc(bytes > 0 ? (size_t)bytes : 1);
        if (bytes < 0 || !value || tc_read(t, value, bytes) != TC_OK) {
            return -1;
        }
        inputs[n] =
            (tc_onnx_input){.name = a->name, .rank = a->rank, .sizes = a->sizes, .value = value};
        sizes_of[n] = a->sizes;
    }
    return n;
}

static int find(const tc_onnx_input *inputs, int n, const char *name)
{
    int i = 0;
    while (i < n && strcmp(inputs[i].name, name)) {
        i++;
    }
    return i;
}

/* Sizes of output i in a run with these inputs; returns the number of elements. */
static int64_t output_sizes(tc_program *f, tc_bufs in, tc_tensor y, int i, int64_t *sizes)
{
    int64_t n = 1;
    for (int d = 0; d < tc_rank(y); d++) {
        sizes[d] = tc_output_size(f, in, i, d);
        if (sizes[d] < 0) {
            return -1;
        }
        n *= sizes[d];
    }
    return n;
}

/* Runs the program; results[i], with those elements only that are valid. */
static int run(tc_onnx_model *m, const tc_onnx_input *inputs, int n, tc_tensor *results)
{
    tc_tensor outputs[2 * MAX];
    tc_buf in[MAX], out[2 * MAX];
    static int64_t sizes[2 * MAX][64];
    int n_out = m->n_outputs, counts[MAX];
    tc_program *f = NULL;
    for (int i = 0; i < m->n_outputs; i++) {
        outputs[i] = m->outputs[i];
        counts[i] = m->counts[i].ctx ? n_out : 0;
        if (counts[i]) {
            outputs[n_out++] = m->counts[i];
        }
    }
    if (tc_compile_fn(TC_TENSORS_N(m->inputs, m->n_inputs), TC_TENSORS_N(outputs, n_out), NULL,
                      &f) != TC_OK) {
        return failed(tc_status_of(outputs[0]), tc_error(ctx));
    }
    for (int i = 0; i < m->n_inputs; i++) {
        int at = find(inputs, n, m->input_names[i]);
        if (at == n) {
            fprintf(stderr, "input %s is not in the file\n", m->input_names[i]);
            return 1;
        }
        in[i] = tci_buf_sized(TC_BUF(inputs[at].value, 0), inputs[at].rank, sizes_of[at]);
        in[i].dtype = tc_dtype_of(m->inputs[i]);
    }
    for (int i = 0; i < n_out; i++) {
        int64_t count = output_sizes(f, TC_BUFS_N(in, m->n_inputs), outputs[i], i, sizes[i]);
        if (count < 0) {
            fprintf(stderr, "%s\n", tc_error(f));
            return 1;
        }
        int64_t bytes = count * tc_dtype_size(tc_dtype_of(outputs[i]));
        out[i] = TC_BUF((void *)malloc((size_t)bytes + 1), bytes);
    }
    if (tc_run(f, TC_BUFS_N(in, m->n_inputs), TC_BUFS_N(out, n_out)) != TC_OK) {
        fprintf(stderr, "%s\n", tc_error(f));
        return 1;
    }
    for (int i = 0; i < m->n_outputs; i++) {
        results[i] = tc_copy_in_at(ctx, out[i].data, tc_dtype_of(outputs[i]), tc_rank(outputs[i]),
                                   sizes[i], NULL, TC_HERE);
        if (counts[i]) {
            int64_t count = *(int64_t *)out[counts[i]].data;
            results[i] = tc_slice(results[i], m->axes[i], 0, count, 1);
        }
    }
    tc_program_free(f);
    return 0;
}

int main(int argc, char **argv)
{
    static tc_onnx_input inputs[MAX];
    static tc_tensor results[MAX];
    tc_file *file = NULL;
    tc_onnx_model *m = NULL;
    symbolic = argc > 4 && !strcmp(argv[4], "--symbolic");
    bool exports = argc == 5 && !strcmp(argv[4], "--export");
    if (argc != 4 && !symbolic && !exports) {
        fprintf(stderr, "usage: onnx MODEL INPUTS OUTPUTS [--symbolic [SIZE=FACTOR]...]\n");
        return 2;
    }
    if (tc_ctx_make(&ctx, NULL) != TC_OK) {
        return failed(TC_ERR_MEMORY, "no context");
    }
    if (tc_file_open(ctx, argv[2], &file) != TC_OK) {
        return failed(TC_ERR_IO, tc_error(ctx));
    }
    int n = read_inputs(file, inputs);
    if (n < 0) {
        return failed(TC_ERR_IO, tc_error(ctx));
    }
    for (int i = 0; i < n && symbolic; i++) {
        inputs[i].sizes = inputs[i].rank ? NULL : inputs[i].sizes;
    }
    static tc_onnx_size told[MAX];
    int n_told = 0;
    for (int i = 5; i < argc; i++) {
        char *name = argv[i], *at = strrchr(name, '='), *end;
        if (!at) {
            return failed(TC_ERR_ARGUMENT, "a size is NAME=FACTOR[xLEASTxMOST]");
        }
        *at = 0;
        int64_t size = strtol(at + 1, &end, 10);
        if (*end == 'x') {
            int64_t least = strtol(end + 1, &end, 10);
            size = tc_dim_mul(TC_DIM(name, least, *end ? strtol(end + 1, NULL, 10) : 64), size);
        }
        told[n_told].name = name;
        told[n_told++].size = size;
    }
    tc_onnx_options o = {.sizes = told, .n_sizes = n_told, .inputs = inputs, .n_inputs = n};
    tc_status status = tc_onnx_load(ctx, argv[1], &o, &m);
    if (status != TC_OK) {
        return failed(status, tc_error(ctx));
    }
    if (exports) {
        tc_onnx_export how = {.output_names = m->output_names};
        tc_tensors in = TC_TENSORS_N(m->inputs, m->n_inputs);
        tc_tensors out = TC_TENSORS_N(m->outputs, m->n_outputs);
        status = strstr(argv[3], ".mlir") ? tc_export_stablehlo(in, out, NULL, argv[3])
                                          : tc_export_onnx(in, out, &how, argv[3]);
        return status == TC_OK ? 0 : failed(status, tc_error(ctx));
    }
    int code = m->n_inputs > MAX || m->n_outputs > MAX ? failed(TC_ERR_LIMIT, "too many inputs")
                                                       : run(m, inputs, n, results);
    if (!code && tc_file_write(ctx, argv[3], m->output_names, TC_TENSORS_N(results, m->n_outputs),
                               NULL) != TC_OK) {
        code = failed(TC_ERR_IO, tc_error(ctx));
    }
    tc_onnx_free(m);
    tc_file_close(file);
    tc_ctx_free(ctx);
    return code;
}
