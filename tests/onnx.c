/* tests/onnx.c - runs an ONNX model on arrays from a file.
 *
 *     onnx MODEL.onnx INPUTS.safetensors OUTPUTS.safetensors [--backend NAME]
 *
 * Inputs and outputs are named as those of the graph. 0: done; 77: not supported, and the last
 * line of stderr says why; 1: another failure. Built with TC_IMPLEMENTATION, by `make onnx`. */
#include "tc_onnx.h"

#include <stdlib.h>
#include <string.h>

enum { MAX = 256 };

static tc_ctx *ctx;

static int failed(tc_status status, const char *what)
{
    fprintf(stderr, "%s\n", what);
    return status == TC_ERR_UNSUPPORTED ? 77 : 1;
}

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
        inputs[n] = (tc_onnx_input){.name = a->name, .rank = a->rank, .sizes = a->sizes,
                                    .value = value};
    }
    return n;
}

static const void *find_value(const tc_onnx_input *inputs, int n, const char *name)
{
    for (int i = 0; i < n; i++) {
        if (!strcmp(inputs[i].name, name)) {
            return inputs[i].value;
        }
    }
    return NULL;
}

/* Runs the program; results[i], with those elements only that are valid. */
static int run(tc_onnx_model *m, const tc_onnx_input *inputs, int n, tc_tensor *results)
{
    tc_tensor outputs[2 * MAX];
    tc_buf in[MAX], out[2 * MAX];
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
        const void *value = find_value(inputs, n, m->input_names[i]);
        if (!value) {
            fprintf(stderr, "input %s is not in the file\n", m->input_names[i]);
            return 1;
        }
        in[i] = TC_BUF(value, tc_nbytes(m->inputs[i]));
    }
    for (int i = 0; i < n_out; i++) {
        out[i] = TC_BUF((void *)malloc((size_t)tc_nbytes(outputs[i]) + 1), tc_nbytes(outputs[i]));
    }
    if (tc_run(f, TC_BUFS_N(in, m->n_inputs), TC_BUFS_N(out, n_out)) != TC_OK) {
        fprintf(stderr, "%s\n", tc_error(f));
        return 1;
    }
    for (int i = 0; i < m->n_outputs; i++) {
        int64_t sizes[64];
        int rank = tc_rank(outputs[i]);
        for (int d = 0; d < rank; d++) {
            sizes[d] = tc_size(outputs[i], d);
        }
        results[i] = tc_copy_in_at(ctx, out[i].data, tc_dtype_of(outputs[i]), rank, sizes, NULL,
                                   TC_HERE);
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
    tc_options options = {.backend = argc == 6 ? argv[5] : NULL};
    tc_file *file = NULL;
    tc_onnx_model *m = NULL;
    if (argc != 4 && (argc != 6 || strcmp(argv[4], "--backend"))) {
        fprintf(stderr, "usage: onnx MODEL INPUTS OUTPUTS [--backend NAME]\n");
        return 2;
    }
    if (tc_ctx_make(&ctx, &options) != TC_OK) {
        return failed(TC_ERR_MEMORY, "no context");
    }
    if (tc_file_open(ctx, argv[2], &file) != TC_OK) {
        return failed(TC_ERR_IO, tc_error(ctx));
    }
    int n = read_inputs(file, inputs);
    if (n < 0) {
        return failed(TC_ERR_IO, tc_error(ctx));
    }
    tc_onnx_options o = {.inputs = inputs, .n_inputs = n};
    tc_status status = tc_onnx_load(ctx, argv[1], &o, &m);
    if (status != TC_OK) {
        return failed(status, tc_error(ctx));
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
