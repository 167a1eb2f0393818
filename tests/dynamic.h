/* tests/dynamic.h - programs whose sizes may be symbols or numbers, and what they are fed with:
 * built by the same lines, so that a run of the one can be held against the other. */
#ifndef DYNAMIC_H
#define DYNAMIC_H

#include "tc_test.h"
#include "same.h"

enum { DYN_INPUTS = 3, DYN_CASES = 13 };

static const int64_t dyn_sizes[7] = {0, 1, 2, 3, 31, 64, 4097};

typedef struct dyn_case {
    const char *name;
    bool has_height; /* the second size is used */
    bool same_order; /* as the static program of any size: reductions in the same order */
    tc_tensor (*build)(tc_ctx *ctx, int64_t batch, int64_t height, tc_tensor in[DYN_INPUTS]);
    /* elements of inputs; of the output */
    int64_t (*count)(int input, int64_t batch, int64_t height);
    int64_t (*out)(int64_t batch, int64_t height);
    /* sizes of input 0, where numbers of elements are not enough; its rank */
    int (*sizes)(int64_t batch, int64_t height, int64_t sizes[4]);
} dyn_case;

/* ---- pointwise ---- */

static tc_tensor dyn_pointwise(tc_ctx *ctx, int64_t batch, int64_t height, tc_tensor in[DYN_INPUTS])
{
    (void)height;
    in[0] = tc_input(ctx, "x", TC_F32, batch, 7);
    in[1] = tc_input(ctx, "y", TC_F32, batch, 1);
    in[2] = tc_input(ctx, "z", TC_F32, 7);
    return tc_add(tc_mul(tc_sin(in[0]), in[1]), tc_exp(tc_mul(in[2], 0.25)));
}

static int64_t dyn_pointwise_count(int input, int64_t batch, int64_t height)
{
    (void)height;
    return input == 0 ? batch * 7 : input == 1 ? batch : 7;
}

static int64_t dyn_pointwise_out(int64_t batch, int64_t height)
{
    (void)height;
    return batch * 7;
}

/* ---- softmax(x @ w + b) ---- */

static tc_tensor dyn_layer(tc_ctx *ctx, int64_t batch, int64_t height, tc_tensor in[DYN_INPUTS])
{
    (void)height;
    in[0] = tc_input(ctx, "x", TC_F32, batch, 24);
    in[1] = tc_input(ctx, "w", TC_F32, 24, 10);
    in[2] = tc_input(ctx, "b", TC_F32, 10);
    return tc_softmax(tc_add(tc_matmul(in[0], in[1]), in[2]), -1);
}

static int64_t dyn_layer_count(int input, int64_t batch, int64_t height)
{
    (void)height;
    return input == 0 ? batch * 24 : input == 1 ? 240 : 10;
}

static int64_t dyn_layer_out(int64_t batch, int64_t height)
{
    (void)height;
    return batch * 10;
}

/* ---- x @ w ---- */

static tc_tensor dyn_matmul(tc_ctx *ctx, int64_t batch, int64_t height, tc_tensor in[DYN_INPUTS])
{
    (void)height;
    in[0] = tc_input(ctx, "x", TC_F32, batch, 65);
    in[1] = tc_input(ctx, "w", TC_F32, 65, 33);
    in[2] = tc_input(ctx, "b", TC_F32, 33);
    return tc_add(tc_matmul(in[0], in[1]), in[2]);
}

static int64_t dyn_matmul_count(int input, int64_t batch, int64_t height)
{
    (void)height;
    return input == 0 ? batch * 65 : input == 1 ? 65 * 33 : 33;
}

static int64_t dyn_matmul_out(int64_t batch, int64_t height)
{
    (void)height;
    return batch * 33;
}

/* ---- conv2d, stride 2, with relu: batch and height ---- */

enum { DYN_WIDTH = 6 };

static tc_tensor dyn_conv(tc_ctx *ctx, int64_t batch, int64_t height, tc_tensor in[DYN_INPUTS])
{
    in[0] = tc_input(ctx, "x", TC_F32, batch, 3, height, DYN_WIDTH);
    in[1] = tc_input(ctx, "w", TC_F32, 4, 3, 3, 3);
    in[2] = tc_input(ctx, "b", TC_F32, 4);
    return tc_relu(tc_conv2d(in[0], in[1], in[2], &(tc_conv){.stride = {2, 2}, .padding = {1, 1}}));
}

static int64_t dyn_conv_count(int input, int64_t batch, int64_t height)
{
    return input == 0 ? batch * 3 * height * DYN_WIDTH : input == 1 ? 4 * 3 * 3 * 3 : 4;
}

static int64_t dyn_conv_out(int64_t batch, int64_t height)
{
    return batch * 4 * ((height - 1) / 2 + 1) * ((DYN_WIDTH - 1) / 2 + 1);
}

static int dyn_conv_sizes(int64_t batch, int64_t height, int64_t sizes[4])
{
    sizes[0] = batch;
    sizes[1] = 3;
    sizes[2] = height;
    sizes[3] = DYN_WIDTH;
    return 4;
}

/* ---- sums of rows of open length ---- */

static tc_tensor dyn_rows(tc_ctx *ctx, int64_t batch, int64_t height, tc_tensor in[DYN_INPUTS])
{
    in[0] = tc_input(ctx, "x", TC_F32, batch, height);
    in[1] = tc_input(ctx, "y", TC_F32, height);
    in[2] = tc_input(ctx, "z", TC_F32, batch);
    tc_tensor sums = tc_sum(tc_mul(in[0], in[1]), TC_AXES(1), true);
    return tc_add(tc_sub(in[0], tc_mul(sums, 0.125)), tc_unsqueeze(in[2], 1));
}

static int64_t dyn_rows_count(int input, int64_t batch, int64_t height)
{
    return input == 0 ? batch * height : input == 1 ? height : batch;
}

static int64_t dyn_rows_out(int64_t batch, int64_t height)
{
    return batch * height;
}

/* ---- a few elements of each of four rows, whatever their length ---- */

static tc_tensor dyn_few(tc_ctx *ctx, int64_t batch, int64_t height, tc_tensor in[DYN_INPUTS])
{
    in[0] = tc_input(ctx, "x", TC_F32, 4, height);
    in[1] = tc_input(ctx, "y", TC_F32, height);
    in[2] = tc_input(ctx, "z", TC_F32, batch);
    tc_tensor few = tc_slice(tc_add(in[0], in[1]), 1, 1, 14, 3);
    return tc_cat(TC_TENSORS(tc_sum(few, TC_AXES(1), false), in[2]), 0);
}

static int64_t dyn_few_count(int input, int64_t batch, int64_t height)
{
    return input == 0 ? 4 * height : input == 1 ? height : batch;
}

static int64_t dyn_few_out(int64_t batch, int64_t height)
{
    (void)height;
    return 4 + batch;
}

/* ---- rows that there may be none of, then others: indices are divided by the batch, also where
 * that is 0 and all of them are of the others ---- */

static tc_tensor dyn_joined(tc_ctx *ctx, int64_t batch, int64_t height, tc_tensor in[DYN_INPUTS])
{
    in[0] = tc_input(ctx, "x", TC_F32, 4, batch, height);
    in[1] = tc_input(ctx, "y", TC_F32, 4, 13, height);
    in[2] = tc_input(ctx, "z", TC_F32, height);
    tc_tensor all = tc_cat(TC_TENSORS(tc_softmax(in[0], 2), tc_add(in[1], in[2])), 1);
    return tc_sum(tc_minimum(all, 0.5), TC_AXES(0, 2), false);
}

static int64_t dyn_joined_count(int input, int64_t batch, int64_t height)
{
    return input == 0 ? 4 * batch * height : input == 1 ? 4 * 13 * height : height;
}

static int64_t dyn_joined_out(int64_t batch, int64_t height)
{
    (void)height;
    return batch + 13;
}

/* ---- rows made a multiple of three, sums of three, less the mean: sizes that are computed ---- */

static tc_tensor dyn_threes(tc_ctx *ctx, int64_t batch, int64_t height, tc_tensor in[DYN_INPUTS])
{
    (void)height;
    in[0] = tc_input(ctx, "x", TC_F32, batch, 5);
    in[1] = tc_input(ctx, "y", TC_F32, 5);
    in[2] = tc_input(ctx, "z", TC_F32, 1);
    int64_t n = tc_dim_div(tc_dim_add(tc_size(in[0], 0), 2), 3);
    int64_t more = tc_dim_sub(tc_dim_mul(n, 3), batch);
    tc_tensor x = tc_pad(tc_add(in[0], in[1]), 0, 0, more, 0.5);
    tc_tensor mean = tc_div(tc_sum(in[0], TC_ALL, false), tc_dim_max(tc_count(in[0]), 1));
    tc_tensor sums = tc_sum(tc_reshape(x, n, 3, 5), TC_AXES(1), false);
    return tc_mul(tc_sub(sums, mean), in[2]);
}

static int64_t dyn_threes_count(int input, int64_t batch, int64_t height)
{
    (void)height;
    return input == 0 ? batch * 5 : input == 1 ? 5 : 1;
}

static int64_t dyn_threes_out(int64_t batch, int64_t height)
{
    (void)height;
    return (batch + 2) / 3 * 5;
}

/* ---- the rows that are missing to a multiple of three, and differences of neighbours: sizes that
 * go up and down, and that are 0 for no and one row ---- */

static tc_tensor dyn_saw(tc_ctx *ctx, int64_t batch, int64_t height, tc_tensor in[DYN_INPUTS])
{
    tc_tensor sums = dyn_threes(ctx, batch, height, in);
    int64_t whole = tc_dim_mul(tc_size(sums, 0), 3);
    tc_tensor all = tc_pad(in[0], 0, 0, tc_dim_sub(whole, batch), 0.25);
    tc_tensor missing = tc_slice(tc_exp(all), 0, batch, TC_END, 1);
    tc_tensor steps = tc_sub(tc_slice(in[0], 0, 1, TC_END, 1), tc_slice(in[0], 0, 0, -1, 1));
    return tc_cat(TC_TENSORS(missing, tc_mul(steps, in[1]), tc_add(in[2], missing)), 0);
}

static int64_t dyn_saw_out(int64_t batch, int64_t height)
{
    (void)height;
    return ((batch + 2) / 3 * 3 - batch) * 10 + (batch ? batch - 1 : 0) * 5;
}

/* ---- rows of x added to rows of x, and to a table; the gradient of reading them back ---- */

static tc_tensor dyn_put(tc_ctx *ctx, int64_t batch, int64_t height, tc_tensor in[DYN_INPUTS])
{
    (void)height;
    in[0] = tc_input(ctx, "x", TC_F32, batch, 7);
    in[1] = tc_input(ctx, "y", TC_F32, batch, 1);
    in[2] = tc_input(ctx, "z", TC_F32, 7);
    tc_tensor number = tc_cast(tc_floor(tc_mul(tc_reshape(in[1], batch), 64)), TC_I64), grad;
    tc_tensor own = tc_remainder(number, tc_dim_max(tc_size(in[0], 0), 1));
    tc_tensor table = tc_index_add(tc_expand(in[2], 50, 7), 0, tc_remainder(number, 50), in[0]);
    tc_tensor read = tc_square(tc_index_select(table, 0, tc_remainder(number, 9)));
    tc_tensor rows = tc_index_add(in[0], 0, own, tc_sin(in[0]));
    if (tc_grad(tc_sum(read, TC_ALL, false), in, 1, &grad)) {
        return rows;
    }
    return tc_add(rows, grad);
}

static int64_t dyn_put_out(int64_t batch, int64_t height)
{
    (void)height;
    return batch * 7;
}

/* ---- attention: any number of heads, which share a kernel; any number of queries and keys ---- */

static tc_tensor dyn_attend(tc_ctx *ctx, int64_t heads, int64_t queries, int64_t keys,
                            tc_tensor in[DYN_INPUTS])
{
    in[0] = tc_input(ctx, "q", TC_F32, heads, queries, 8);
    in[1] = tc_input(ctx, "k", TC_F32, heads, keys, 8);
    in[2] = tc_input(ctx, "v", TC_F32, heads, keys, 5);
    tc_tensor scores = tc_mul(tc_matmul(in[0], tc_transpose(in[1], -2, -1)), 0.5);
    return tc_matmul(tc_softmax(scores, -1), in[2]);
}

static tc_tensor dyn_heads(tc_ctx *ctx, int64_t batch, int64_t height, tc_tensor in[DYN_INPUTS])
{
    (void)height;
    return dyn_attend(ctx, batch, 9, 20, in);
}

static int64_t dyn_heads_count(int input, int64_t batch, int64_t height)
{
    (void)height;
    return batch * (input == 0 ? 9 * 8 : input == 1 ? 20 * 8 : 20 * 5);
}

static int64_t dyn_heads_out(int64_t batch, int64_t height)
{
    (void)height;
    return batch * 9 * 5;
}

static tc_tensor dyn_keys(tc_ctx *ctx, int64_t batch, int64_t height, tc_tensor in[DYN_INPUTS])
{
    return dyn_attend(ctx, 2, batch, height, in);
}

static int64_t dyn_keys_count(int input, int64_t batch, int64_t height)
{
    return 2 * (input == 0 ? batch * 8 : height * (input == 1 ? 8 : 5));
}

static int64_t dyn_keys_out(int64_t batch, int64_t height)
{
    (void)height;
    return 2 * batch * 5;
}

static int dyn_keys_sizes(int64_t batch, int64_t height, int64_t sizes[4])
{
    (void)height;
    sizes[0] = 2;
    sizes[1] = batch;
    sizes[2] = 8;
    return 3;
}

/* ---- parts of contractions: columns of a product, the gradient of a strided convolution ---- */

enum { DYN_SIDE = 7, DYN_IMAGE = 2 * DYN_SIDE * DYN_SIDE };

static tc_tensor dyn_parts(tc_ctx *ctx, int64_t batch, int64_t height, tc_tensor in[DYN_INPUTS])
{
    (void)height;
    in[0] = tc_input(ctx, "x", TC_F32, batch, 2, DYN_SIDE, DYN_SIDE);
    in[1] = tc_input(ctx, "w", TC_F32, 4, 2, 3, 3);
    in[2] = tc_input(ctx, "z", TC_F32, DYN_IMAGE, 9);
    tc_tensor y = tc_conv2d(in[0], in[1], TC_NONE, &(tc_conv){.stride = {2, 2}, .padding = {1, 1}});
    tc_tensor loss = tc_sum(tc_mul(y, y), TC_ALL, false), grad;
    tc_grad(loss, in, 1, &grad);
    tc_tensor rows = tc_reshape(in[0], batch, DYN_IMAGE);
    tc_tensor columns = tc_slice(tc_matmul(rows, in[2]), 1, 2, 8, 1);
    return tc_cat(TC_TENSORS(tc_reshape(grad, batch, DYN_IMAGE), columns), 1);
}

static int64_t dyn_parts_count(int input, int64_t batch, int64_t height)
{
    (void)height;
    return input == 0 ? batch * DYN_IMAGE : input == 1 ? 4 * 2 * 3 * 3 : DYN_IMAGE * 9;
}

static int64_t dyn_parts_out(int64_t batch, int64_t height)
{
    (void)height;
    return batch * (DYN_IMAGE + 6);
}

static const dyn_case dyn_cases[DYN_CASES] = {
    {"pointwise", false, true, dyn_pointwise, dyn_pointwise_count, dyn_pointwise_out, NULL},
    {"softmax(x @ w + b)", false, false, dyn_layer, dyn_layer_count, dyn_layer_out, NULL},
    {"x @ w + b", false, true, dyn_matmul, dyn_matmul_count, dyn_matmul_out, NULL},
    {"conv2d", true, true, dyn_conv, dyn_conv_count, dyn_conv_out, dyn_conv_sizes},
    {"rows", true, false, dyn_rows, dyn_rows_count, dyn_rows_out, NULL},
    {"few of each row", true, false, dyn_few, dyn_few_count, dyn_few_out, NULL},
    {"joined", true, false, dyn_joined, dyn_joined_count, dyn_joined_out, NULL},
    {"threes", false, false, dyn_threes, dyn_threes_count, dyn_threes_out, NULL},
    {"attention of heads", false, true, dyn_heads, dyn_heads_count, dyn_heads_out, NULL},
    {"attention of keys", true, false, dyn_keys, dyn_keys_count, dyn_keys_out, dyn_keys_sizes},
    {"saw", false, true, dyn_saw, dyn_threes_count, dyn_saw_out, NULL},
    {"at indices", false, true, dyn_put, dyn_pointwise_count, dyn_put_out, NULL},
    {"parts of products", false, true, dyn_parts, dyn_parts_count, dyn_parts_out, NULL},
};

/* ---- running ---- */

typedef struct dyn_memory {
    float *in[DYN_INPUTS];
    float *out;
    int64_t n_in[DYN_INPUTS], n_out, sizes[4];
    int rank; /* 0: no sizes are given */
} dyn_memory;

static dyn_memory dyn_fill(const dyn_case *c, int64_t batch, int64_t height)
{
    dyn_memory m;
    m.rank = c->sizes ? c->sizes(batch, height, m.sizes) : 0;
    for (int i = 0; i < DYN_INPUTS; i++) {
        m.n_in[i] = c->count(i, batch, height);
        m.in[i] = malloc(sizeof(float) * (size_t)(m.n_in[i] + 1));
        for (int64_t j = 0; j < m.n_in[i]; j++) {
            m.in[i][j] = (float)((j * 37 + 11 * i) % 101 - 50) / 64;
        }
    }
    m.n_out = c->out(batch, height);
    m.out = malloc(sizeof(float) * (size_t)(m.n_out + 1));
    for (int64_t j = 0; j <= m.n_out; j++) {
        m.out[j] = -77;
    }
    return m;
}

static void dyn_drop(dyn_memory *m)
{
    for (int i = 0; i < DYN_INPUTS; i++) {
        free(m->in[i]);
    }
    free(m->out);
}

static tc_status dyn_run(tc_program *f, const dyn_memory *m)
{
    tc_buf x = TC_BUF(m->in[0], m->n_in[0]);
    x.rank = m->rank;
    x.sizes = m->rank ? m->sizes : NULL;
    return tc_run(f, TC_BUFS(x, TC_BUF(m->in[1], m->n_in[1]), TC_BUF(m->in[2], m->n_in[2])),
                  TC_BUFS(TC_BUF(m->out, m->n_out)));
}

static tc_program *dyn_compile(tc_ctx *ctx, const dyn_case *c, int64_t batch, int64_t height)
{
    tc_tensor in[DYN_INPUTS];
    tc_program *f = NULL;
    tc_tensor y = c->build(ctx, batch, height, in);
    tc_status status = tc_compile_fn(TC_TENSORS(in[0], in[1], in[2]), TC_TENSORS(y), NULL, &f);
    CHECK_MSG(status == TC_OK, "%s: %s", c->name, tc_error(ctx));
    return f;
}

static tc_ctx *dyn_ctx(const char *backend, int threads, const char *cache_dir)
{
    tc_ctx *ctx = NULL;
    static int n; /* every other one as users run it */
    tc_options o = {.backend = backend, .threads = threads, .verify = n++ % 2 == 0};
    o.no_disk_cache = !cache_dir;
    o.cache_dir = cache_dir;
    return tc_ctx_make(&ctx, &o) ? NULL : ctx;
}

/* Runs f at these sizes and holds it against a program compiled for them alone. */
static void dyn_check_at(tc_ctx *ctx, const dyn_case *c, tc_program *f, int64_t batch,
                         int64_t height)
{
    dyn_memory got = dyn_fill(c, batch, height), expected = dyn_fill(c, batch, height);
    tc_program *fixed = dyn_compile(ctx, c, batch, height);
    tc_status status = dyn_run(f, &got);
    CHECK_MSG(status == TC_OK, "%s at %lld, %lld: %s", c->name, (long long)batch, (long long)height,
              tc_error(f));
    if (fixed && !status && dyn_run(fixed, &expected) == TC_OK) {
        int64_t worst = 0;
        double error = 0;
        for (int64_t j = 0; j <= got.n_out; j++) { /* the one behind is never written */
            double e = fabs((double)got.out[j] - (double)expected.out[j]);
            worst = e > error || isnan(e) ? j : worst;
            error = e > error || isnan(e) ? e : error;
        }
        bool same = same_bits(TC_F32, got.out, expected.out, got.n_out + 1);
        CHECK_MSG(same || (!c->same_order && error < 2e-5),
                  "%s at %lld, %lld: element %lld is %.9g, expected %.9g", c->name,
                  (long long)batch, (long long)height, (long long)worst, (double)got.out[worst],
                  (double)expected.out[worst]);
    } else {
        CHECK_MSG(status || !fixed, "%s: %s", c->name, fixed ? tc_error(fixed) : "");
    }
    tc_program_free(fixed);
    dyn_drop(&got);
    dyn_drop(&expected);
}

#endif
