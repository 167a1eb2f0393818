/* Symbolic sizes: the algebra of base/dim.h against numbers; every op's shape rule with a symbolic
 * batch and height against the same rule for numbers, shapes and values both; what is refused, and
 * what the refusal says. */
#define TC_DYNAMIC_SHAPES
#define TC_IMPLEMENTATION
#include "tc.h"

#include "tc_test.h"

static tc_ctx *ctx;

static void begin(void)
{
    tc_options o;
    memset(&o, 0, sizeof(o));
    o.backend = "interp";
    o.no_disk_cache = true;
    o.threads = 1;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

/* ---- ops: recipes ---- */

enum { N_IN = 4 };

/* X [b, 2, h, 6], Y [b, h], Z [h, 6], I [b] of 0 .. 2. */
typedef tc_tensor (*recipe_fn)(const tc_tensor *in, int64_t b, int64_t h);

#define X in[0]
#define Y in[1]
#define Z in[2]
#define I in[3]
#define RECIPES(R)                                                                                 \
    R(add_broadcast, tc_add(X, tc_reshape(Y, b, 1, h, 1)))                                         \
    R(add_row, tc_mul(X, tc_sum(Z, TC_AXES(0), false)))                                            \
    R(where, tc_where(tc_lt(Y, 0.25), Y, tc_exp(Y)))                                               \
    R(softmax_known, tc_softmax(X, -1))                                                            \
    R(softmax_height, tc_softmax(Y, 1))                                                            \
    R(softmax_batch, tc_softmax(Y, 0))                                                             \
    R(log_softmax, tc_log_softmax(X, 2))                                                           \
    R(mean_all, tc_mean(X, TC_ALL, false))                                                         \
    R(mean_batch, tc_mean(Y, TC_AXES(0), true))                                                    \
    R(mean_height, tc_mean(X, TC_AXES(2, 3), false))                                               \
    R(layer_norm, tc_layer_norm(X, TC_AXES(2, 3), Z, TC_NONE, 1e-5))                               \
    R(cross_entropy, tc_cross_entropy(Y, I))                                                       \
    R(sum_all, tc_sum(X, TC_ALL, true))                                                            \
    R(prod, tc_prod(Y, TC_AXES(1), false))                                                         \
    R(max_height, tc_max(Y, TC_AXES(1), false))                                                    \
    R(max_both, tc_max(X, TC_AXES(1, 2), false))                                                   \
    R(argmax_height, tc_argmax(Y, 1, false))                                                       \
    R(any, tc_any(tc_lt(Y, 0), TC_AXES(0), false))                                                 \
    R(cumsum_batch, tc_cumsum(Y, 0))                                                               \
    R(cumsum_height, tc_cumsum(Y, -1))                                                             \
    R(flatten_rest, tc_reshape(X, b, -1))                                                          \
    R(flatten_front, tc_reshape(X, -1, 6))                                                         \
    R(flatten_all, tc_reshape(X, -1))                                                              \
    R(split, tc_reshape(tc_reshape(X, -1), b, h, -1))                                              \
    R(reshape_size, tc_reshape(X, tc_size(X, 0), 12, tc_size(X, 2)))                               \
    R(permute, tc_permute(X, 2, 0, 3, 1))                                                          \
    R(transpose, tc_transpose(Y, 0, 1))                                                            \
    R(squeeze, tc_squeeze(tc_unsqueeze(Y, 1), 1))                                                  \
    R(expand, tc_expand(tc_sum(Y, TC_AXES(0), true), b, h))                                        \
    R(slice_step, tc_slice(Y, 0, 1, TC_END, 2))                                                    \
    R(slice_tail, tc_slice(Y, 1, -2, TC_END, 1))                                                   \
    R(slice_tail_step, tc_slice(X, 2, 1, TC_END, 2))                                               \
    R(slice_inner, tc_slice(Y, 0, -3, -1, 1))                                                      \
    R(slice_clamped, tc_slice(Z, 0, 0, 5, 1))                                                      \
    R(slice_back, tc_slice(Z, 0, TC_END, -100, -2))                                                \
    R(slice_to_size, tc_slice(tc_cat(TC_TENSORS(Y, Y), 1), 1, tc_size(Z, 0), TC_END, 1))           \
    R(slice_of_slice, tc_slice(tc_slice(Y, 1, 1, TC_END, 1), 1, 0, -1, 2))                         \
    R(flip_batch, tc_flip(Y, 0))                                                                   \
    R(flip_height, tc_flip(X, 2))                                                                  \
    R(pad_batch, tc_pad(Y, 0, 2, 1, 0.5))                                                          \
    R(crop_height, tc_pad(Y, 1, -1, -1, 0))                                                        \
    R(pad_size, tc_pad(Y, 1, 0, tc_size(Y, 0), 1))                                                 \
    R(cat_batch, tc_cat(TC_TENSORS(Y, tc_neg(Y), tc_slice(Y, 0, 0, 1, 1)), 0))                     \
    R(cat_height, tc_cat(TC_TENSORS(X, tc_slice(X, 2, 0, 2, 1)), 2))                               \
    R(gather, tc_gather(Y, 1, tc_unsqueeze(I, 1)))                                                 \
    R(gather_own, tc_gather(Y, 0, tc_cast(tc_mul(Y, 0), TC_I64)))                                  \
    R(index_select, tc_index_select(Z, 0, I))                                                      \
    R(index_select_both, tc_index_select(Y, 1, I))                                                 \
    R(matmul, tc_matmul(Y, Z))                                                                     \
    R(matmul_sums_batch, tc_matmul(tc_transpose(Y, 0, 1), Y))                                      \
    R(matmul_batched, tc_matmul(X, tc_transpose(X, 2, 3)))                                         \
    R(einsum, tc_einsum("bchw,hw->bc", TC_TENSORS(X, Z)))                                          \
    R(einsum_diagonal, tc_einsum("ii->i", TC_TENSORS(tc_matmul(tc_transpose(Y, 0, 1), Y))))        \
    R(conv, tc_conv2d(X, weights(3, 2, 3), TC_NONE, NULL))                                         \
    R(conv_strided, tc_conv2d(X, weights(3, 2, 3), TC_NONE,                                        \
                              &(tc_conv){.stride = {2, 2}, .padding = {1, 1}}))                    \
    R(conv_dilated, tc_conv2d(X, weights(4, 1, 2), TC_NONE,                                        \
                              &(tc_conv){.dilation = {2, 3}, .groups = 2, .stride = {3, 1}}))      \
    R(pool, tc_max_pool2d(X, &(tc_pool){.kernel = {2, 2}}))                                        \
    R(pool_ceil, tc_max_pool2d(X, &(tc_pool){.kernel = {3, 3}, .stride = {2, 2},                   \
                                             .padding = {1, 1}, .ceil_mode = true}))               \
    R(arange_up, tc_add(tc_arange(ctx, 0, tc_size(Y, 1), 1, TC_F32), Y))                           \
    R(arange_down, tc_arange(ctx, b, -1, -2, TC_I64))                                              \
    R(arange_from, tc_arange(ctx, 2, h, 1, TC_F32))                                                \
    R(full, tc_full(ctx, 1.5, TC_F32, b, h))                                                       \
    R(times_size, tc_mul(Y, tc_size(Y, 0)))                                                        \
    R(size_alone, tc_add(tc_sum(I, TC_ALL, false), h))

static tc_tensor weights(int64_t out, int64_t in_group, int64_t k)
{
    float data[256];
    for (int i = 0; i < 256; i++) {
        data[i] = (float)(i * 7 % 11) / 8.0f - 0.5f;
    }
    return tc_copy_in(ctx, data, TC_F32, out, in_group, k, k);
}

#define R(name, made)                                                                              \
    static tc_tensor recipe_##name(const tc_tensor *in, int64_t b, int64_t h)                      \
    {                                                                                              \
        (void)in, (void)b, (void)h;                                                                \
        return made;                                                                               \
    }
RECIPES(R)
#undef R
#undef X
#undef Y
#undef Z
#undef I
static const struct { const char *name; recipe_fn make; } recipes[] = {
#define R(name, made) {#name, recipe_##name},
    RECIPES(R)
#undef R
};

/* A recipe's graph for some sizes: the result and, of a float one, gradients of the sum of squares
 * for X, Y and Z. */
typedef struct built {
    tci_node *in[N_IN], *out[4];
    int n;
} built;

static built build(int recipe, int64_t b, int64_t h)
{
    built r = {.n = 1};
    const tc_tensor in[N_IN] = {
        tc_input(ctx, "x", TC_F32, b, 2, h, 6), tc_input(ctx, "y", TC_F32, b, h),
        tc_input(ctx, "z", TC_F32, h, 6), tc_input(ctx, "i", TC_I64, b)};
    tc_tensor out = recipes[recipe].make(in, b, h), grads[3];
    if (b == 0 && tc_status_of(out)) { /* -1 beside a 0 says nothing, but beside a batch it does */
        CHECK_HAS(tc_error(out), "0 elements of shape [0");
        r.n = 0;
        return r;
    }
    CHECK_STR(tc_error(out), "");
    if (tci_dtype_is_float(tc_dtype_of(out))) {
        tc_tensor loss = tc_sum(tc_mul(out, out), TC_ALL, false);
        tc_status status = tc_grad(loss, in, 3, grads);
        CHECK_MSG(!status, "%s: %s", recipes[recipe].name, tc_error(grads[0]));
        r.n += status ? 0 : 3;
    }
    for (int i = 0; i < N_IN; i++) {
        r.in[i] = tci_handle_node(in[i]);
    }
    for (int i = 0; i < r.n; i++) {
        r.out[i] = tci_handle_node(i ? grads[i - 1] : out);
        REQUIRE(r.out[i] != NULL);
    }
    return r;
}

/* The same graph in g with other sizes in the place of symbols. */
static built replaced(tci_scratch *s, tci_graph *g, const built *from, const tci_dim *symbols,
                      const tci_dim *values)
{
    built r = {.n = from->n};
    tci_node *roots[N_IN + 4];
    memcpy(roots, from->in, sizeof(from->in));
    memcpy(roots + N_IN, from->out, sizeof(*roots) * (size_t)from->n);
    tci_node_list list = tci_graph_sort(s, roots, N_IN + from->n);
    uint32_t most = 0;
    for (int i = 0; i < list.n; i++) {
        most = TCI_MAX(most, list.items[i]->id);
    }
    tci_node **now = TCI_NEW_ARRAY(s, tci_node *, most + 1);
    for (int i = 0; i < list.n; i++) {
        const tci_node *n = list.items[i];
        tci_node **in = TCI_NEW_ARRAY(s, tci_node *, n->n_in);
        tci_dim *shape = TCI_NEW_ARRAY(s, tci_dim, n->rank);
        int64_t *attr = TCI_NEW_ARRAY(s, int64_t, n->n_attr);
        for (int k = 0; k < n->n_in; k++) {
            in[k] = now[n->in[k]->id];
        }
        for (int k = 0; k < n->rank; k++) {
            shape[k] = tci_dim_replace(n->shape[k], 2, symbols, values);
        }
        for (int k = 0; k < n->n_attr; k++) {
            attr[k] = tci_dim_replace(n->attr[k], 2, symbols, values);
        }
        tci_node *copy = n->op == TCI_OP_CONST
                             ? tci_graph_const(g, (tc_dtype)n->dtype, n->value)
                             : tci_graph_node(g, n->op, (tc_dtype)n->dtype, n->rank, shape,
                                              n->n_in, in, n->n_attr, attr);
        copy->value = n->value;
        copy->storage = n->storage;
        now[n->id] = copy;
    }
    for (int i = 0; i < N_IN; i++) {
        r.in[i] = now[from->in[i]->id];
    }
    for (int i = 0; i < r.n; i++) {
        r.out[i] = now[from->out[i]->id];
    }
    return r;
}

enum { ROOM = 1 << 16 };

static void evaluate(const built *r, char out[4][ROOM])
{
    static float x[ROOM / 4];
    static int64_t index[64];
    const void *memory[N_IN] = {x, x + 7, x + 3, index};
    void *outputs[4];
    for (int i = 0; i < ROOM / 4; i++) {
        x[i] = (float)(i * 37 % 101) / 64.0f - 0.75f;
    }
    for (int i = 0; i < 64; i++) {
        index[i] = i * 5 % 3;
    }
    for (int i = 0; i < r->n; i++) {
        REQUIRE(tci_node_count(r->out[i]) * 8 <= ROOM);
        memset(out[i], 0, ROOM);
        outputs[i] = out[i];
    }
    CHECK_EQ_INT(tci_reference_eval(r->in, memory, N_IN, r->out, outputs, r->n, false), TC_OK);
}

static void compare(const char *name, const char *what, const built *got, const built *want,
                    const int64_t *values)
{
    static char a[4][ROOM], b[4][ROOM];
    for (int i = 0; i < want->n; i++) {
        CHECK_MSG(tci_build_same_shape(got->out[i]->rank, got->out[i]->shape, want->out[i]->rank,
                                       want->out[i]->shape),
                  "%s %s, result %d at b = %lld, h = %lld: %s, want %s", name, what, i,
                  (long long)values[0], (long long)values[1], TCI_SHAPE_TEXT(got->out[i]),
                  TCI_SHAPE_TEXT(want->out[i]));
        if (!tci_build_same_shape(got->out[i]->rank, got->out[i]->shape, want->out[i]->rank,
                                  want->out[i]->shape)) {
            return;
        }
    }
    evaluate(got, a);
    evaluate(want, b);
    for (int i = 0; i < want->n; i++) {
        CHECK_MSG(!memcmp(a[i], b[i], ROOM), "%s %s, values of result %d at b = %lld, h = %lld",
                  name, what, i, (long long)values[0], (long long)values[1]);
    }
}

static built rewritten(tci_scratch *s, tci_graph *g, built r)
{
    tci_node **simple = tci_rewrite(s, g, r.out, r.n);
    memcpy(r.out, simple, sizeof(*simple) * (size_t)r.n);
    return r;
}

static void check_recipe(int recipe)
{
    static const int64_t batches[] = {0, 1, 2, 3, 5}, heights[] = {3, 4, 5, 8};
    const tci_dim symbols[2] = {TC_DIM("batch", 0, 64), TC_DIM("height", 3, 40)};
    const tci_dim canonical[2] = {tci_dim_symbol(NULL, 0, 1, 64), tci_dim_symbol(NULL, 1, 3, 40)};
    tci_scratch s;
    tci_scratch_init(&s);
    if (setjmp(s.escape)) {
        CHECK_MSG(false, "%s: %s", recipes[recipe].name, s.message);
        tci_scratch_free(&s);
        return;
    }
    REQUIRE(tc_scope_begin(ctx) == TC_OK);
    built symbolic = build(recipe, symbols[0], symbols[1]);
    tci_graph_verify(&s, symbolic.out, symbolic.n);
    tci_graph g;
    tci_graph_init(&g, &s, NULL);
    built program = replaced(&s, &g, &symbolic, symbols, canonical);
    tci_graph_verify(&s, program.out, program.n);
    program = rewritten(&s, &g, program);
    tci_graph_verify(&s, program.out, program.n);
    for (int k = 0; k < TCI_COUNT(batches) * TCI_COUNT(heights); k++) {
        int64_t at[2] = {batches[k % TCI_COUNT(batches)], heights[k / TCI_COUNT(batches)]};
        built want = build(recipe, at[0], at[1]), got = replaced(&s, &g, &symbolic, symbols, at);
        if (!want.n) {
            continue;
        }
        compare(recipes[recipe].name, "as built", &got, &want, at);
        if (at[0] > 0) {
            got = replaced(&s, &g, &program, canonical, at);
            want = rewritten(&s, &g, replaced(&s, &g, &want, symbols, at));
            compare(recipes[recipe].name, "rewritten", &got, &want, at);
        }
    }
    CHECK_EQ_INT(tc_scope_end(ctx), TC_OK);
    tci_scratch_free(&s);
}

TEST(ops_with_symbolic_sizes)
{
    begin();
    for (int i = 0; i < TCI_COUNT(recipes); i++) {
        check_recipe(i);
    }
    tc_ctx_free(ctx);
}

TEST_MAIN
