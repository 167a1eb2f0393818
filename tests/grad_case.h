/* tests/grad_case.h - a case of the gradient tests: an expression, its inputs, and their values.
 * After inside.h and tc_test.h. */
#ifndef TC_TEST_GRAD_CASE_H
#define TC_TEST_GRAD_CASE_H

enum { MAX_INPUTS = 5, MAX_CASES = 400 };

typedef struct grad_input {
    int rank;
    int64_t sizes[5];
    double low, high; /* elements have either sign, with a size in this range */
    bool positive;
} grad_input;

typedef struct grad_case {
    const char *name;
    int row; /* elementwise row; -1: build, or without that the op by its name */
    tc_tensor (*build)(tc_ctx *ctx, const tc_tensor *x);
    grad_input inputs[MAX_INPUTS];
    int n_inputs;
    bool second;  /* second order too */
    bool repeats; /* made of repetitions, for which there is no tc_jvp and no tc_vmap */
} grad_case;

static grad_case cases[MAX_CASES];
static int n_cases;

/* ---- the cases ---- */

static grad_case *add_case(const char *name, tc_tensor (*build)(tc_ctx *, const tc_tensor *))
{
    grad_case *c = &cases[n_cases < MAX_CASES - 1 ? n_cases++ : n_cases];
    c->name = name;
    c->row = -1;
    c->build = build;
    return c;
}

static void add_input(grad_case *c, int rank, const int64_t *sizes)
{
    grad_input *in = &c->inputs[c->n_inputs++];
    in->rank = rank;
    for (int i = 0; i < rank; i++) {
        in->sizes[i] = sizes[i];
    }
    in->low = 0.2;
    in->high = 0.95;
}

#define SIZES(...) ((const int64_t[]){__VA_ARGS__})
#define N_OF(...) ((int)(sizeof(SIZES(__VA_ARGS__)) / sizeof(int64_t)))
#define IN(c, ...) add_input(c, N_OF(__VA_ARGS__), SIZES(__VA_ARGS__))

#define FN(name) static tc_tensor name(tc_ctx *ctx, const tc_tensor *x)
#define UNUSED (void)ctx

static tc_tensor index_of(tc_ctx *ctx, int n, const int64_t *values, int rank, const int64_t *sizes)
{
    (void)n;
    return tc_copy_in_at(ctx, values, TC_I64, rank, sizes, NULL, TC_HERE);
}

static tc_tensor build_row(int row, const tc_tensor *x)
{
    switch (row) {
#define CALL_1(row_name) tc_##row_name##_at(tci_arg_tensor(x[0]), TC_HERE)
#define CALL_2(row_name) tc_##row_name##_at(tci_arg_tensor(x[0]), tci_arg_tensor(x[1]), TC_HERE)
#define CALL_3(row_name)                                                                           \
    tc_##row_name##_at(tci_arg_tensor(x[0]), tci_arg_tensor(x[1]), tci_arg_tensor(x[2]), TC_HERE)
#define TCI_ROW(id, row_name, arity, rule, cost, value, gradient, doc)                             \
    case TCI_OP_##id:                                                                              \
        return CALL_##arity(row_name);
        TCI_EW_OPS(TCI_ROW)
#undef TCI_ROW
    default: return TC_NONE;
    }
}

/* sum(y * w), w = 1, -0.5, 1.5, ... in a fixed disorder */
static tc_tensor weighted(tc_ctx *ctx, tc_tensor y)
{
    tc_tensor i = tc_arange(ctx, 0, tc_count(y), 1, TC_F64);
    tc_tensor w = tc_add(tc_sin(tc_mul(i, 1.7)), 0.4);
    return tc_sum(tc_mul(tc_reshape(y, -1), w), TC_ALL, false);
}

static tc_tensor build_case(tc_ctx *ctx, const grad_case *c, const tc_tensor *x)
{
    const tc_tensors operands = {x, c->n_inputs};
    return c->row >= 0 ? build_row(c->row, x)
           : c->build  ? c->build(ctx, x)
                       : tc_op(ctx, c->name, operands, TC_ATTRS());
}

/* n values for an input: distinct, so that nothing ties within a step of differences. */
TCT_UNUSED static void fill_case(const grad_case *c, int input, int64_t n, double *to)
{
    const grad_input *in = &c->inputs[input];
    for (int64_t i = 0; i < n; i++) {
        double part = ((double)((i * 7 + input * 3) % n) + 0.3 * tct_random_unit()) / (double)n;
        double size = in->low + (in->high - in->low) * part;
        to[i] = in->positive || tct_random_below(2) ? size : -size;
    }
}

#endif
