/* tc.h and tc_cuda.h without tc_cpu.h: the program builds and runs, and the backend either works or
 * says why not. */
#include <string.h>
#define TC_CUDA
#define TC_IMPLEMENTATION
#include "tc.h"

/* 0: the values are right, by whatever runs them. */
static int square(const char *backend)
{
    tc_ctx *ctx;
    tc_options options;
    float out[4] = {0}, in[4] = {1, 2, 3, 4};
    memset(&options, 0, sizeof(options));
    options.backend = backend;
    if (tc_ctx_make(&ctx, &options)) {
        return 1;
    }
    tc_tensor x = tc_copy_in(ctx, in, TC_F32, 4);
    tc_status status = tc_read(tc_mul(x, x), out, 4);
    int good = status == TC_OK && out[0] == 1.0f && out[3] == 16.0f;
    if (!good) {
        fprintf(stderr, "%s: %s: %s\n", backend, tc_status_text(status), tc_error(ctx));
    }
    tc_ctx_free(ctx);
    return !good;
}

/* Where it cannot work, memory of the device is refused; where it can, this is such memory. */
static int allocate(void)
{
    void *memory = NULL;
    float out[2] = {0, 0}, in[2] = {5, 7};
    tc_status status = tc_cuda_alloc(8, &memory);
    if (status == TC_ERR_BACKEND) {
        return memory != NULL;
    }
    int wrong = status || tc_cuda_copy(memory, in, 8) || tc_cuda_copy(out, memory, 8);
    tc_cuda_free(memory);
    return wrong || out[1] != 7.0f;
}

int main(void)
{
    const char *names[8] = {NULL};
    int n = tc_list_backends(names, 8);
    if (n != 2 || strcmp(names[0], "interp") != 0 || strcmp(names[1], "cuda") != 0) {
        fprintf(stderr, "%d backends\n", n);
        return 2;
    }
    int wrong = square("interp") || square("cuda") || square(NULL) || allocate();
    tc_shutdown();
    return wrong ? 3 : 0;
}
