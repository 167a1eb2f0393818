/* tests/fuzz/sums.h - random programs of float sums: contractions, convolutions, products of bytes,
 * statistics, norms, softmax, pools, running sums and their gradients, between movement and
 * elementwise ops. A program follows from its seed alone.
 * After tc.h and tc_test.h. */
#ifndef TESTS_FUZZ_SUMS_H
#define TESTS_FUZZ_SUMS_H

enum { MOST_VALUES = 24, MOST_INPUTS = 24, MOST_OUTPUTS = 4, BATCH = 50 };
enum { MOST_ELEMENTS = 40000, MOST_ELEMENTS_LARGE = 400000 };

typedef struct program {
    uint64_t seed, state;
    bool large; /* sizes that blocks of threads share out, and halves */
    bool fast;  /* to be computed by TC_MATH_FAST */
    tc_ctx *ctx;
    tc_tensor values[MOST_VALUES], inputs[MOST_INPUTS], outputs[MOST_OUTPUTS];
    void *data[MOST_INPUTS], *want[MOST_OUTPUTS], *got[MOST_OUTPUTS];
    int n_values, n_inputs, n_outputs;
    char text[400]; /* the calls */
    size_t at;
} program;

static int below(program *p, int n)
{
    uint64_t z = p->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (int)((z ^ (z >> 31)) % (uint64_t)n);
}

static int64_t size_of(program *p)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 33, 49, 64, 65, 100};
    static const int64_t large[] = {2,   3,   7,   16,   32,   48,   64,   100,
                                    128, 257, 300, 1024, 1500, 5000, 40000};
    return p->large ? large[below(p, 15)] : sizes[below(p, 17)];
}

/* Elements of a value. */
static int64_t most(const program *p)
{
    return p->large ? MOST_ELEMENTS_LARGE : MOST_ELEMENTS;
}

/* A size for either axis of a matrix. */
static int64_t side_of(program *p)
{
    int64_t n = size_of(p);
    return n > 300 ? 300 : n;
}

/* Numbers between -1 and 1, or a byte of any value. */
static void fill(program *p, tc_tensor x, void *to)
{
    tc_dtype t = tc_dtype_of(x);
    for (int64_t i = 0; i < tc_count(x); i++) {
        double unit = (double)(below(p, 1 << 30)) * 0x1p-29 - 1;
        if (t == TC_F32) {
            ((float *)to)[i] = (float)unit;
        } else if (t == TC_F64) {
            ((double *)to)[i] = unit;
        } else if (t == TC_BF16 || t == TC_F16) {
            float number = (float)unit;
            uint32_t bits;
            memcpy(&bits, &number, sizeof(bits));
            uint16_t f16 = (uint16_t)((bits >> 16 & 0x8000) | (0x3000 + (bits >> 13 & 0x7ff)));
            ((uint16_t *)to)[i] = t == TC_BF16 ? (uint16_t)(bits >> 16) : f16;
        } else {
            ((uint8_t *)to)[i] = (uint8_t)below(p, 256);
        }
    }
}

static tc_tensor input(program *p, tc_dtype t, int rank, const int64_t *sizes)
{
    char name[16];
    snprintf(name, sizeof(name), "x%d", p->n_inputs);
    if (p->n_inputs == MOST_INPUTS) {
        return TC_NONE;
    }
    int64_t words[8] = {t};
    memcpy(words + 1, sizes, sizeof(*sizes) * (size_t)rank);
    tc_tensor x = tc_input_at(p->ctx, name, rank + 1, words, TC_HERE);
    p->data[p->n_inputs] = malloc((size_t)tc_nbytes(x) + 1);
    fill(p, x, p->data[p->n_inputs]);
    return p->inputs[p->n_inputs++] = x;
}

static tc_tensor leaf(program *p)
{
    int64_t sizes[4], all = 1;
    int rank = 1 + below(p, 4);
    for (int i = 0; i < rank; i++) {
        sizes[i] = size_of(p);
        sizes[i] = all * sizes[i] > most(p) / 4 ? 2 : sizes[i];
        all *= sizes[i];
    }
    if (p->large && below(p, 3) == 0) {
        return input(p, below(p, 3) ? TC_BF16 : TC_F16, rank, sizes);
    }
    return input(p, below(p, 12) ? TC_F32 : TC_F64, rank, sizes);
}

static tc_tensor any(program *p)
{
    int late = p->n_values < 3 ? p->n_values : 3;
    int at = below(p, 3) ? p->n_values - 1 - below(p, late) : below(p, p->n_values);
    return p->values[at];
}

/* Another value of x's shape. */
static tc_tensor mate(program *p, tc_tensor x)
{
    int64_t sizes[8];
    for (int i = 0; i < tc_rank(x); i++) {
        sizes[i] = below(p, 4) ? tc_size(x, i) : 1;
    }
    for (int tries = 0; tries < 4 && p->n_values > 0; tries++) {
        tc_tensor y = any(p);
        bool same = tc_rank(y) == tc_rank(x) && tc_dtype_of(y) == tc_dtype_of(x);
        for (int i = 0; i < tc_rank(x) && same; i++) {
            same = tc_size(y, i) == tc_size(x, i);
        }
        if (same) {
            return y;
        }
    }
    return input(p, tc_dtype_of(x), tc_rank(x), sizes);
}

static tc_axes some_axes(program *p, tc_tensor x, int *axes)
{
    int n = 0;
    bool images = tc_rank(x) == 4 && below(p, 2) > 0; /* as statistics of channels */
    for (int i = 0; i < tc_rank(x); i++) {
        if (images ? i != 1 : below(p, 2)) {
            axes[n++] = i;
        }
    }
    if (n == 0) {
        axes[n++] = below(p, 3) ? tc_rank(x) - 1 : below(p, tc_rank(x));
    }
    return (tc_axes){axes, n, false};
}

static tc_tensor elementwise(program *p, tc_tensor x)
{
    switch (below(p, 9)) {
    case 0: return tc_add(x, mate(p, x));
    case 1: return tc_mul(x, mate(p, x));
    case 2: return tc_sub(mate(p, x), x);
    case 3: return tc_relu(x);
    case 4: return tc_gelu(x);
    case 5: return tc_tanh(x);
    case 6: return tc_mul(x, 0.5);
    case 7: return tc_exp(tc_tanh(x));
    default: return tc_fma(x, mate(p, x), mate(p, x));
    }
}

static tc_tensor moved(program *p, tc_tensor x)
{
    int rank = tc_rank(x), axis = below(p, rank);
    int64_t order[8], sizes[8], n = tc_size(x, axis);
    for (int i = 0; i < rank; i++) {
        order[i] = i;
        sizes[i] = tc_size(x, i);
    }
    switch (below(p, 7)) {
    case 0:
    case 1:
        for (int i = rank - 1; i > 0; i--) {
            int j = below(p, i + 1);
            int64_t keep = order[i];
            order[i] = order[j];
            order[j] = keep;
        }
        return tc_permute_at(x, rank, order, TC_HERE);
    case 2: return tc_slice(x, axis, n > 2 ? 1 : 0, n, 1 + below(p, 2));
    case 3: return tc_flip(x, axis);
    case 4: return tc_pad(x, axis, below(p, 3), below(p, 3), 0);
    case 5: /* two axes as one */
        if (rank > 1) {
            axis = axis > 0 ? axis - 1 : 0;
            sizes[axis] *= sizes[axis + 1];
            memmove(sizes + axis + 1, sizes + axis + 2, sizeof(*sizes) * (size_t)(rank - axis - 2));
            return tc_reshape_at(x, rank - 1, sizes, TC_HERE);
        }
        return x;
    default: /* one axis as two */
        for (int64_t d = 2; d < n && rank < 5; d++) {
            if (n % d == 0) {
                memmove(sizes + axis + 1, sizes + axis, sizeof(*sizes) * (size_t)(rank - axis));
                sizes[axis] = d;
                sizes[axis + 1] = n / d;
                return tc_reshape_at(x, rank + 1, sizes, TC_HERE);
            }
        }
        return x;
    }
}

static tc_tensor folded(program *p, tc_tensor x)
{
    int axes[8];
    tc_axes of = some_axes(p, x, axes);
    bool keeps = below(p, 3) == 0;
    switch (below(p, 9)) {
    case 0:
    case 1: return tc_sum(x, of, keeps);
    case 2: return tc_mean(x, of, keeps);
    case 3: return tc_var(x, of, 0, keeps);
    case 4: return tc_logsumexp(x, of, keeps);
    case 5: return tc_norm(x, 2, of, keeps);
    case 6: return tc_prod(x, of, keeps);
    case 7: return tc_cumsum(x, below(p, tc_rank(x)));
    default: return tc_softmax(x, below(p, tc_rank(x)));
    }
}

static tc_tensor normed(program *p, tc_tensor x)
{
    int rank = tc_rank(x), axes[2] = {rank - 1, rank - 1};
    int64_t c = rank > 1 ? tc_size(x, 1) : 1;
    switch (below(p, 3)) {
    case 0:
        axes[0] -= rank > 2;
        return tc_layer_norm(x, ((tc_axes){axes, 1 + (rank > 2), false}), TC_NONE, TC_NONE, 1e-5);
    case 1: return rank < 2 ? x : tc_batch_norm(x, TC_NONE, TC_NONE, TC_NONE, TC_NONE, true, 1e-5);
    default: return rank < 3 ? x : tc_group_norm(x, c % 2 ? 1 : 2, TC_NONE, TC_NONE, 1e-5);
    }
}

static tc_tensor multiplied(program *p, tc_tensor x)
{
    int64_t k = tc_size(x, -1), sizes[2] = {k, side_of(p)};
    tc_tensor w = input(p, tc_dtype_of(x), 2, sizes);
    return below(p, 2) ? tc_matmul(x, w) : tc_matmul(tc_mul(x, mate(p, x)), w);
}

static tc_tensor bytes_multiplied(program *p)
{
    int64_t a[2] = {side_of(p), size_of(p)}, b[2] = {a[1], side_of(p)};
    a[1] = b[0] = a[1] > 5000 ? 5000 : a[1];
    tc_tensor x = input(p, TC_U8, 2, a), w = input(p, TC_I8, 2, b);
    return tc_qmatmul(x, 0.01, below(p, 2) * 3, w, 0.25, below(p, 2) * 2);
}

static tc_tensor convolved(program *p)
{
    tc_dtype t = p->large && below(p, 3) == 0 ? TC_BF16 : TC_F32;
    static const int64_t channels[] = {1, 2, 4, 8, 12, 16};
    int64_t c = channels[below(p, 6)], side = 2 + below(p, p->large ? 40 : 9);
    int64_t k = 1 + 2 * below(p, 2);
    bool depthwise = below(p, 3) == 0;
    int64_t o = depthwise ? c : channels[below(p, 6)], x[4] = {1 + below(p, 4), c, side, side};
    int64_t w[4] = {o, depthwise ? 1 : c, k, k}, stride = 1 + below(p, 2);
    return tc_conv2d(input(p, t, 4, x), input(p, t, 4, w), TC_NONE,
                     &(tc_conv){.stride = {stride, stride},
                                .padding = {k / 2, k / 2},
                                .groups = depthwise ? c : 1});
}

static tc_tensor pooled(program *p, tc_tensor x)
{
    tc_pool pool = {.kernel = {2, 2}, .stride = {1 + below(p, 2), 1 + below(p, 2)}};
    bool fits = tc_rank(x) == 4 && tc_size(x, 2) > 1 && tc_size(x, 3) > 1;
    return !fits ? x : below(p, 2) ? tc_avg_pool2d(x, &pool) : tc_max_pool2d(x, &pool);
}

static tc_tensor attended(program *p)
{
    int64_t width = 4 * (1 + below(p, 8)), keys = size_of(p), rows = size_of(p);
    int64_t q[3] = {1 + below(p, 3), rows, width}, k[3] = {q[0], keys, width};
    return tc_scaled_dot_product_attention(input(p, TC_F32, 3, q), input(p, TC_F32, 3, k),
                                           input(p, TC_F32, 3, k), TC_NONE, false, 0);
}

static tc_tensor source(program *p, const char **name)
{
    static const char *const names[] = {"leaf", "leaf",    "conv",    "conv",
                                        "conv", "qmatmul", "qmatmul", "attention"};
    int kind = below(p, 8);
    *name = names[kind];
    return kind < 2   ? leaf(p)
           : kind < 5 ? convolved(p)
           : kind < 7 ? bytes_multiplied(p)
                      : attended(p);
}

/* What is made of the value before, element by element or elsewhere. */
static tc_tensor changed(program *p, tc_tensor x, const char **name)
{
    int kind = tc_rank(x) > 0 ? below(p, 6) : 0;
    *name = kind < 3 ? "ew" : kind < 5 ? "move" : "pool";
    return kind < 3 ? elementwise(p, x) : kind < 5 ? moved(p, x) : pooled(p, x);
}

static tc_tensor summed(program *p, tc_tensor x, const char **name)
{
    int kind = tc_rank(x) > 0 ? below(p, 8) : 0;
    *name = kind < 5 ? "fold" : kind < 7 ? "norm" : "matmul";
    return tc_rank(x) == 0 ? elementwise(p, x)
           : kind < 5      ? folded(p, x)
           : kind < 7      ? normed(p, x)
                           : multiplied(p, x);
}

static void keep(program *p, tc_tensor x, const char *name)
{
    if (p->n_values < MOST_VALUES && !tc_status_of(x) && tc_count(x) <= most(p)) {
        p->values[p->n_values++] = x;
        p->at += (size_t)snprintf(p->text + p->at, sizeof(p->text) - p->at, "%s ", name);
        p->at = p->at < sizeof(p->text) ? p->at : sizeof(p->text) - 1;
    }
}

/* The gradients of a value by up to n inputs of floats, or the value where there are none: how
 * many. */
static int gradients(program *p, tc_tensor y, int n, tc_tensor *g)
{
    tc_tensor by[MOST_OUTPUTS];
    int n_by = 0;
    for (int i = 0; i < p->n_inputs && n_by < n; i++) {
        tc_dtype t = tc_dtype_of(p->inputs[i]);
        bool learns = t == TC_F32 || (p->large && (t == TC_BF16 || t == TC_F16));
        if (learns && below(p, 2)) {
            by[n_by++] = p->inputs[i];
        }
    }
    if (n_by == 0) {
        *g = y;
        return 1;
    }
    tc_grad(tc_sum(tc_square(tc_tanh(y)), TC_ALL, false), by, n_by, g);
    return n_by;
}

static void add_output(program *p, tc_tensor y)
{
    if (!tc_status_of(y)) {
        p->want[p->n_outputs] = malloc((size_t)tc_nbytes(y) + 1);
        p->got[p->n_outputs] = malloc((size_t)tc_nbytes(y) + 1);
        p->outputs[p->n_outputs++] = y;
    }
}

/* learns: of three values so many are given by their gradients, by up to `most` inputs at once. */
static void choose_outputs(program *p, int learns, int most)
{
    int n = 1 + below(p, 3);
    for (int i = 0; i < n && p->n_outputs < MOST_OUTPUTS; i++) {
        tc_tensor y = i == 0 ? p->values[p->n_values - 1] : any(p), g[MOST_OUTPUTS] = {y};
        int left = MOST_OUTPUTS - p->n_outputs;
        int n_g = below(p, 3) >= learns ? 1 : gradients(p, y, left < most ? left : most, g);
        for (int k = 0; k < n_g; k++) {
            add_output(p, g[k]);
        }
    }
}

static void draw(program *p, tc_ctx *ctx, uint64_t seed, bool large)
{
    memset(p, 0, sizeof(*p));
    p->large = large;
    p->seed = p->state = seed;
    p->ctx = ctx;
    const char *name;
    int parts = 1 + below(p, 3);
    for (int i = 0; i < parts || p->n_values == 0; i++) {
        bool fresh = i == 0 || below(p, 2);
        tc_tensor x = fresh || p->n_values == 0 ? source(p, &name) : changed(p, any(p), &name);
        keep(p, x, name);
        for (int k = below(p, 3); k > 0 && p->n_values > 0; k--) {
            x = changed(p, p->values[p->n_values - 1], &name);
            keep(p, x, name);
        }
        x = summed(p, p->values[p->n_values - 1], &name);
        keep(p, x, name);
        if (below(p, 2)) {
            x = changed(p, any(p), &name);
            keep(p, x, name);
        }
    }
    choose_outputs(p, 1, 1);
}

/* ---- contractions that matrix units take ---- */

static int64_t unit_size(program *p)
{
    static const int64_t sizes[] = {16, 32, 40, 48, 64, 96, 100, 128, 200, 256, 640};
    return sizes[below(p, 11)];
}

static tc_dtype unit_dtype(program *p)
{
    static const tc_dtype dtypes[] = {TC_BF16, TC_BF16, TC_F16, TC_F32, TC_F32, TC_F64};
    return dtypes[below(p, 6)];
}

/* x of a wider dtype, behind elementwise ops or movement. */
static tc_tensor unit_changed(program *p, tc_tensor x)
{
    int64_t n = tc_size(x, 0);
    switch (below(p, 9)) {
    case 0: return tc_relu(x);
    case 1: return tc_mul(x, 0.5);
    case 2: return tc_add(x, mate(p, x));
    case 3: return tc_flip(x, tc_rank(x) - 1);
    case 4: return tc_where(tc_lt(x, 0.25), x, -0.125);
    case 5: return n < 2 ? x : tc_roll(x, n / 2, 0);
    default: return x;
    }
}

/* Sizes [batch, rows, columns], batch 0: none; in memory so or the other way round. */
static tc_tensor unit_factor(program *p, tc_dtype t, int64_t batch, int64_t rows, int64_t columns)
{
    bool turned = below(p, 3) == 0, narrowed = below(p, 5) == 0;
    int rank = batch > 0 ? 3 : 2;
    int64_t sizes[3] = {batch, turned ? columns : rows, turned ? rows : columns};
    int64_t order[3] = {0, turned ? 2 : 1, turned ? 1 : 2};
    for (int i = 0; i < 3 && batch == 0; i++) {
        order[i] = i < 2 ? order[i + 1] - 1 : 0;
    }
    tc_tensor x = input(p, narrowed ? TC_F32 : t, rank, sizes + (batch == 0));
    x = tc_cast(unit_changed(p, x), t);
    x = turned ? tc_permute_at(x, rank, order, TC_HERE) : x;
    return below(p, 4) ? x : unit_changed(p, x);
}

static tc_tensor unit_product(program *p)
{
    int64_t batch = below(p, 3) ? 0 : 1 + below(p, 4), m = unit_size(p), n = unit_size(p);
    int64_t k = unit_size(p);
    tc_dtype t = unit_dtype(p);
    tc_tensor a = unit_factor(p, t, batch, m, k);
    tc_tensor b = unit_factor(p, t, below(p, 2) ? batch : 0, k, n);
    bool widens = (t == TC_BF16 || t == TC_F16) && below(p, 4) == 0;
    return widens ? tc_matmul(tc_cast(a, TC_F32), tc_cast(b, TC_F32)) : tc_matmul(a, b);
}

static tc_tensor unit_convolved(program *p)
{
    static const int64_t channels[] = {8, 16, 32, 40, 64};
    tc_dtype t = below(p, 4) ? TC_BF16 : TC_F32;
    int64_t c = channels[below(p, 5)], o = channels[below(p, 5)], side = 7 + below(p, 10);
    int64_t k = 1 + 2 * below(p, 2), stride = 1 + below(p, 2);
    int64_t x[4] = {1 + below(p, 4), c, side, side}, w[4] = {o, c, k, k};
    tc_tensor image = unit_changed(p, input(p, t, 4, x));
    for (int i = 0; i < 3; i++) { /* of a value that is there, half the time */
        tc_tensor y = p->n_values > 0 && below(p, 2) ? any(p) : TC_NONE;
        if (tc_rank(y) == 4 && tc_size(y, 1) == c && tc_dtype_of(y) == t) {
            image = y;
        }
    }
    return tc_conv2d(image, input(p, t, 4, w), TC_NONE,
                     &(tc_conv){.stride = {stride, stride}, .padding = {k / 2, k / 2}});
}

/* Attention, now and then with its weights as a value of their own. */
static tc_tensor unit_attended(program *p)
{
    static const int64_t widths[] = {16, 32, 64, 80};
    tc_dtype t = below(p, 3) ? TC_BF16 : TC_F32;
    int64_t width = widths[below(p, 4)], keys = unit_size(p), rows = unit_size(p);
    int64_t q[4] = {1 + below(p, 2), 1 + below(p, 3), rows, width};
    int64_t k[4] = {q[0], q[1], keys, width};
    tc_tensor queries = input(p, t, 4, q), of = input(p, t, 4, k), values = input(p, t, 4, k);
    if (below(p, 2)) {
        return tc_scaled_dot_product_attention(queries, of, values, TC_NONE, below(p, 2), 0);
    }
    tc_tensor scores = tc_mul(tc_matmul(queries, tc_transpose(of, 2, 3)), 0.125);
    tc_tensor weights = tc_softmax(scores, -1);
    if (p->n_values < MOST_VALUES && below(p, 2)) {
        p->values[p->n_values++] = below(p, 2) ? weights : scores;
    }
    return tc_matmul(weights, values);
}

/* A program of such values alone, and of what is made of them. */
static void draw_units(program *p, tc_ctx *ctx, uint64_t seed)
{
    memset(p, 0, sizeof(*p));
    p->large = true;
    p->seed = p->state = seed;
    p->ctx = ctx;
    p->fast = below(p, 3) == 0;
    const char *name;
    for (int parts = 1 + below(p, 3); parts > 0 || p->n_values == 0; parts--) {
        int kind = below(p, 5);
        tc_tensor x = kind < 3 ? unit_product(p) : kind < 4 ? unit_convolved(p) : unit_attended(p);
        keep(p, x, kind < 3 ? "product" : kind < 4 ? "conv" : "attention");
        for (int k = below(p, 4); k > 0 && p->n_values > 0; k--) {
            x = changed(p, p->values[p->n_values - 1], &name);
            keep(p, x, name);
        }
        if (below(p, 2) && p->n_values > 0) {
            x = summed(p, p->values[p->n_values - 1], &name);
            keep(p, x, name);
        }
    }
    choose_outputs(p, 2, 3);
}

/* ---- attention whose scores others read ---- */

/* A loss of attention's result, now and then also of its weights or scores. */
static tc_tensor attention_loss(program *p, tc_tensor scores, tc_tensor weights, tc_tensor y)
{
    tc_tensor loss = tc_sum(tc_square(tc_tanh(y)), TC_ALL, false);
    switch (below(p, 6)) {
    case 0: return tc_add(loss, tc_sum(tc_square(weights), TC_ALL, false));
    case 1: return tc_add(loss, tc_sum(tc_tanh(scores), TC_ALL, false));
    case 2: return tc_sum(tc_square(weights), TC_ALL, false);
    default: return loss;
    }
}

/* A reader of attention's values: the value, its sum or what is made of it element by element. */
static tc_tensor attention_reader(program *p, tc_tensor scores, tc_tensor weights, tc_tensor y)
{
    tc_tensor of[] = {y, y, y, weights, scores};
    tc_tensor x = of[below(p, 5)];
    switch (below(p, 6)) {
    case 0: return tc_sum(tc_square(x), TC_AXES(3), false);
    case 1: return tc_mean(x, TC_AXES(2), false);
    case 2: return tc_relu(x);
    case 3: return tc_slice(x, 1, 0, 1, 1);
    default: return x;
    }
}

static tc_tensor attention_side(program *p, tc_dtype t, int64_t batch, int64_t rows, int64_t width)
{
    const int64_t sizes[4] = {batch, 2, rows, width};
    return input(p, t, 4, sizes);
}

/* Readers and gradients of one attention, whose values may be wider than its keys. */
static void draw_attention(program *p, tc_ctx *ctx, uint64_t seed)
{
    static const int64_t widths[] = {16, 32, 64, 80}, rows[] = {32, 40, 64, 100, 200, 256, 640};
    memset(p, 0, sizeof(*p));
    p->large = true;
    p->seed = p->state = seed;
    p->ctx = ctx;
    p->fast = below(p, 4) == 0;
    tc_dtype t = below(p, 3) ? TC_BF16 : TC_F32;
    int64_t batch = 1 + below(p, 2), d = widths[below(p, 4)], m = rows[below(p, 7)];
    int64_t n = rows[below(p, m > 256 ? 4 : 6)], dv = below(p, 2) ? d : widths[below(p, 4)];
    tc_tensor q = attention_side(p, t, batch, m, d), k = attention_side(p, t, batch, n, d);
    tc_tensor v = attention_side(p, t, batch, n, dv);
    tc_tensor scores = tc_mul(tc_matmul(q, tc_transpose(k, 2, 3)), 0.125);
    if (below(p, 3) == 0) {
        const int64_t mask[4] = {1, 1, m, n};
        scores = tc_add(scores, input(p, t, 4, mask));
    }
    tc_tensor weights = tc_softmax(scores, -1), y = tc_matmul(weights, v);
    while (p->n_outputs < 2 || (p->n_outputs < MOST_OUTPUTS && below(p, 2))) {
        if (below(p, 5) < 2) {
            add_output(p, attention_reader(p, scores, weights, y));
            continue;
        }
        tc_tensor by[3], g[3];
        int n_by = 0;
        for (int i = 0; i < 3 && p->n_outputs + n_by < MOST_OUTPUTS; i++) {
            if (below(p, 2)) {
                by[n_by++] = p->inputs[i];
            }
        }
        if (n_by > 0) {
            tc_grad(attention_loss(p, scores, weights, y), by, n_by, g);
        }
        for (int i = 0; i < n_by; i++) {
            add_output(p, g[i]);
        }
    }
}

static void drop(program *p)
{
    for (int i = 0; i < p->n_inputs; i++) {
        free(p->data[i]);
    }
    for (int i = 0; i < p->n_outputs; i++) {
        free(p->want[i]);
        free(p->got[i]);
    }
}

#endif
