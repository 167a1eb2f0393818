/* A device of the user's that runs blocks of threads needs TC_BLOCKS (and tc_cuda.h), and a dialect
 * that has them. Prints the plan of a program for processors, which is the same with and without
 * TC_BLOCKS, and then why this device, which has no such dialect, is not used. */
#include <string.h>
#define TC_IMPLEMENTATION
#include "tc.h"

#include "../../null_backend.c"

static tc_status blocks_target(void *user, int vector_bits, tc_backend_target *target)
{
    tc_status status = null_target(user, vector_bits, target);
    target->block_threads = 256;
    target->vector_bytes = 16;
    return status;
}

/* Convolution, attention with a mask, sorted writes, and a transpose. */
static tc_tensor results(tc_ctx *ctx, tc_tensor image, tc_tensor rows)
{
    tc_tensor filters = tc_ones(ctx, TC_F32, 8, 4, 3, 3);
    tc_tensor y = tc_sum(tc_conv2d(image, filters, TC_NONE, NULL), TC_ALL, false);
    tc_tensor weights = tc_softmax(tc_matmul(rows, tc_permute(rows, 1, 0)), -1);
    tc_tensor places = tc_argsort(rows, 0, false);
    tc_tensor sums = tc_scatter_add(tc_zeros(ctx, TC_F32, 64, 32), 0, places, rows);
    return tc_add(tc_add(tc_matmul(weights, rows), tc_mul(sums, y)), tc_cumsum(rows, 0));
}

static int explain(const char *backend, bool simple)
{
    tc_ctx *ctx;
    tc_options options;
    tc_program *program = NULL;
    memset(&options, 0, sizeof(options));
    options.backend = backend;
    options.no_disk_cache = true;
    if (tc_ctx_make(&ctx, &options)) {
        printf("%s\n", tc_error(ctx));
        return 1;
    }
    tc_tensor image = tc_input(ctx, "image", TC_F32, 2, 4, 16, 16);
    tc_tensor rows = tc_input(ctx, "rows", TC_F32, 64, 32);
    tc_tensor y = simple ? tc_neg(rows) : results(ctx, image, rows);
    int failed = tc_compile(y, &program) != TC_OK;
    if (failed) {
        printf("%s\n", tc_error(ctx));
    } else {
        tc_explain(program, stdout);
        tc_program_free(program);
    }
    tc_ctx_free(ctx);
    return failed;
}

int main(void)
{
    tc_backend blocks = null_backend;
    blocks.name = "blocks";
    blocks.target = blocks_target;
    int failed = explain("interp", false) || tc_register_backend(&blocks) != TC_OK;
    printf("== the device\n");
    failed = failed || explain("blocks", true);
    tc_shutdown();
    return failed;
}
