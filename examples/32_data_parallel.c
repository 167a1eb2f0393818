/* 32_data_parallel.c - one program on several processes: each trains on its share of a batch, and
 * gradients are averaged over all of them while the rest of them is still computed.
 *
 * Alone it is one rank. On several:
 *     for r in 0 1; do RANK=$r WORLD_SIZE=2 ./32_data_parallel & done; wait    # shared memory
 *     torchrun --no-python --nproc-per-node 2 ./32_data_parallel
 *     mpirun -n 2 ./32_data_parallel                                          # MPI
 *
 * Ranks start with equal weights (rank 0's) and see different points; the loss that is printed is
 * the mean over all of them. With options.reproducible the weights of any run have the same bits.
 *
 * Prints (rank 0) the number of ranks, the engine, losses before and after training, and the time
 * of a step.
 *
 * Build, from the project's root: cc -O2 -I. examples/32_data_parallel.c -lm -ldl -lpthread */
#define TC_IMPLEMENTATION
#include "tc_comm.h"

#include "example.h"

enum { POINTS = 128, HIDDEN = 64, LAYERS = 3, N_PARAMS = 2 * LAYERS, STEPS = 400 };
static const int widths[LAYERS + 1] = {1, HIDDEN, HIDDEN, 1};

#define CHECK_COMM(call)                                                                           \
    do {                                                                                           \
        if ((call) != TC_OK) {                                                                     \
            fprintf(stderr, "%s\n", tc_comm_error(NULL));                                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static tc_tensor network(tc_tensor x, const tc_tensor *p)
{
    for (int i = 0; i < LAYERS; i++) {
        x = tc_add(tc_matmul(x, p[2 * i]), p[2 * i + 1]);
        x = i < LAYERS - 1 ? tc_tanh(x) : x;
    }
    return x;
}

/* Every rank draws its own weights, and all take rank 0's. */
static void make_params(tc_ctx *ctx, tc_comm *comm, tc_tensor *p)
{
    for (int i = 0; i < LAYERS; i++) {
        int64_t key = 1000 * (tc_comm_rank(comm) + 1) + i;
        tc_tensor own = tc_mul(tc_randn(ctx, key, TC_F32, widths[i], widths[i + 1]),
                               i ? 1 / sqrtf((float)widths[i]) : 3.0f);
        p[2 * i] = tc_param_from(tc_comm_broadcast(comm, own, 0));
        p[2 * i + 1] = tc_param(ctx, NULL, TC_F32, widths[i + 1]);
    }
}

/* Inputs: points, values. Output: the mean loss of all ranks. */
static tc_program *compile_step(tc_ctx *ctx, tc_comm *comm, const tc_tensor *p)
{
    tc_program *f;
    tc_tensor x = tc_input(ctx, "x", TC_F32, POINTS, 1), y = tc_input(ctx, "y", TC_F32, POINTS, 1);
    tc_tensor grads[N_PARAMS], outs[1 + TC_EFFECTS(N_PARAMS)];
    tc_tensor loss = tc_mean(tc_square(tc_sub(network(x, p), y)), TC_ALL, false);
    int n;
    CHECK_OK(tc_grad(loss, p, N_PARAMS, grads), loss);
    CHECK_OK(tc_all_reduce_grads(comm, grads, N_PARAMS, &(tc_buckets){.bytes = 4096}, grads),
             grads[0]);
    CHECK_OK(tc_adamw(p, grads, N_PARAMS, 0.01, NULL, outs + 1, &n), ctx);
    outs[0] = tc_comm_all_reduce(comm, loss, TC_COMM_MEAN);
    CHECK_OK(tc_compile_fn(TC_TENSORS(x, y), (tc_tensors){outs, n + 1}, NULL, &f), ctx);
    return f;
}

int main(void)
{
    static float xs[POINTS], ys[POINTS];
    tc_ctx *ctx;
    tc_comm *comm;
    tc_tensor p[N_PARAMS];
    float loss = 0, first = 0;
    CHECK_COMM(tc_comm_from_env(&comm));
    if (tc_ctx_make(&ctx, &(tc_options){.reproducible = true})) {
        return 1;
    }
    int rank = tc_comm_rank(comm), size = tc_comm_size(comm);
    for (int i = 0; i < POINTS; i++) { /* every size-th point of the curve */
        xs[i] = 2 * (float)(i * size + rank) / (float)(POINTS * size - 1) - 1;
        ys[i] = sinf(5 * xs[i]) * expf(-xs[i] * xs[i]);
    }
    make_params(ctx, comm, p);
    tc_program *step = compile_step(ctx, comm, p);
    double begin = now_us();
    for (int i = 0; i < STEPS; i++) {
        CHECK_OK(tc_run(step, TC_BUFS(TC_BUF(xs, POINTS), TC_BUF(ys, POINTS)),
                        TC_BUFS(TC_BUF(&loss, 1))),
                 step);
        first = i ? first : loss;
    }
    if (rank == 0) {
        printf("%d rank%s over %s, %d points each: loss %.4f, after %d steps %.5f; %.0f us a "
               "step\n",
               size, size > 1 ? "s" : "", tc_comm_engine_name(comm), POINTS, first, STEPS, loss,
               (now_us() - begin) / STEPS);
    }
    tc_program_free(step);
    tc_comm_free(comm);
    tc_ctx_free(ctx);
    return loss < first / 10 ? 0 : 1;
}
