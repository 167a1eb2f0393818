/* tests/fuzz/libfuzzer/files.c - ONNX models and files of arrays for libFuzzer (make fuzz-files).
 * The first byte of an input says which: even, an ONNX model; odd, a file of arrays, whose format
 * tc_file_open finds. A refusal is what is expected; an internal error aborts. */
#define _GNU_SOURCE
#define TC_IMPLEMENTATION
#include "tc_onnx.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static tc_ctx *ctx;

static tc_status load_model(const uint8_t *bytes, size_t n)
{
    tc_onnx_model *m = NULL;
    tc_onnx_options o = {.largest = 8};
    tc_status status = tc_onnx_load_memory(ctx, bytes, n, &o, &m);
    tc_onnx_free(m);
    return status;
}

static tc_status open_arrays(const uint8_t *bytes, size_t n)
{
    char path[40];
    tc_file *file = NULL;
    int fd = memfd_create("arrays", 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    tc_status status = write(fd, bytes, n) == (ssize_t)n ? tc_file_open(ctx, path, &file)
                                                         : TC_ERR_IO;
    const tc_array *a;
    for (int i = 0; !status && i < 64 && (a = tc_file_array(file, i)) != NULL; i++) {
        char element[16];
        tc_tensor t = tc_file_copy_in(ctx, file, a->name);
        if (tc_nbytes(t) > 0 && tc_nbytes(t) <= (int64_t)sizeof(element)) {
            tc_read(t, element, tc_nbytes(t));
        }
    }
    tc_file_close(file);
    close(fd);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    tc_options o = {.backend = "interp", .threads = 1};
    if (!ctx && tc_ctx_make(&ctx, &o)) {
        abort();
    }
    if (n < 1 || tc_scope_begin(ctx)) {
        return 0;
    }
    tc_status status = (bytes[0] & 1 ? open_arrays : load_model)(bytes + 1, n - 1);
    if (status == TC_ERR_INTERNAL) {
        abort();
    }
    tc_scope_end(ctx);
    return 0;
}
