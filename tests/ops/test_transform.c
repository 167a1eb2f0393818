/* tc_jvp and tc_vmap of every op that has a gradient (grad_cases.h), and both with gradients.
 *
 * Forward mode against reverse mode, which test_grad.c holds against differences: the change of a
 * loss along fixed tangents is the sum of gradient times tangent; of the loss of second order too.
 *
 * A case over examples against the case of each: inputs are stacks of three, each along another
 * axis. All inputs have examples, and then one, while the others are the same for all. Then the
 * gradients of that, and the examples of gradients. */
#include "inside.h"
#include "tc_test.h"

#include "grad_cases.h"

enum { EXAMPLES = 3 };

static tc_ctx *make(const char *backend)
{
    tc_ctx *ctx;
    const tc_options o = {.backend = backend, .verify = true};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    return ctx;
}

static double *values_of(tc_tensor t)
{
    int64_t n = tc_count(t);
    double *to = malloc(sizeof(double) * (size_t)(n + 1));
    tc_status status = n < 0 ? TC_ERR_HANDLE : tc_read(t, to, n);
    CHECK_MSG(status == TC_OK, "%s", tc_error(t));
    if (status != TC_OK) {
        memset(to, 0, sizeof(double) * (size_t)(TCI_MAX(n, 0) + 1));
    }
    return to;
}

static void check_close(const char *name, const char *what, tc_tensor got, tc_tensor want,
                        double tolerance)
{
    bool same = tc_rank(got) == tc_rank(want);
    for (int i = 0; i < tc_rank(want); i++) {
        same = same && tc_size(got, i) == tc_size(want, i);
    }
    CHECK_MSG(same, "%s, %s: rank %d of %lld elements, expected %d of %lld%s%s", name, what,
              tc_rank(got), (long long)tc_count(got), tc_rank(want), (long long)tc_count(want),
              tc_error(got), tc_error(want));
    if (!same) {
        return;
    }
    double *a = values_of(got), *b = values_of(want);
    for (int64_t i = 0; i < tc_count(want) && same; i++) {
        same = a[i] == b[i] || fabs(a[i] - b[i]) <= tolerance * (1 + fabs(b[i])) ||
               (isnan(a[i]) && isnan(b[i]));
        CHECK_MSG(same, "%s, %s: element %lld is %.17g, expected %.17g", name, what, (long long)i,
                  a[i], b[i]);
    }
    free(a);
    free(b);
}

/* ---- forward ---- */

static tc_tensor leaf_of(tc_ctx *ctx, const grad_case *c, int input)
{
    double data[1024];
    int64_t n = 1;
    for (int i = 0; i < c->inputs[input].rank; i++) {
        n *= c->inputs[input].sizes[i];
    }
    REQUIRE(n <= TCI_COUNT(data));
    fill_case(c, input, n, data);
    return tc_copy_in_at(ctx, data, TC_F64, c->inputs[input].rank, c->inputs[input].sizes, NULL,
                         TC_HERE);
}

static void check_forward(tc_ctx *ctx, const grad_case *c, const char *name, tc_tensor loss,
                          const tc_tensor *x)
{
    tc_tensor tangents[MAX_INPUTS], grads[MAX_INPUTS], forward;
    tc_tensor dot = tc_full(ctx, 0.0, TC_F64);
    tc_status status = tc_grad(loss, x, c->n_inputs, grads);
    CHECK_MSG(status == TC_OK, "%s: %s", c->name, tc_error(grads[0]));
    for (int i = 0; i < c->n_inputs; i++) {
        tc_tensor k = tc_arange(ctx, 0, tc_count(x[i]), 1, TC_F64);
        tangents[i] = tc_add(tc_cos(tc_mul(k, 1.3 + i)), 0.25);
        dot = tc_add(dot, tc_sum(tc_mul(tc_reshape(grads[i], -1), tangents[i]), TC_ALL, false));
        tangents[i] = tc_reshape_at(tangents[i], c->inputs[i].rank, c->inputs[i].sizes, TC_HERE);
    }
    status = tc_jvp(TC_TENSORS(loss), ((tc_tensors){x, c->n_inputs}),
                    ((tc_tensors){tangents, c->n_inputs}), &forward);
    CHECK_MSG(status == TC_OK, "%s: %s", c->name, tc_error(forward));
    check_close(c->name, name, forward, dot, 1e-9);
}

TEST(forward_is_backward_transposed)
{
    tc_ctx *ctx = make("interp");
    add_all();
    for (int i = 0; i < n_cases; i++) {
        if (cases[i].repeats) {
            continue;
        }
        const grad_case *c = &cases[i];
        tc_tensor x[MAX_INPUTS], first[MAX_INPUTS], sum = tc_full(ctx, 0.0, TC_F64);
        for (int k = 0; k < c->n_inputs; k++) {
            x[k] = leaf_of(ctx, c, k);
        }
        tc_tensor loss = weighted(ctx, build_case(ctx, c, x));
        check_forward(ctx, c, "forward", loss, x);
        if (c->second) {
            tc_grad(loss, x, c->n_inputs, first);
            for (int k = 0; k < c->n_inputs; k++) {
                sum = tc_add(sum, weighted(ctx, first[k]));
            }
            check_forward(ctx, c, "forward over backward", sum, x);
        }
    }
    tc_ctx_free(ctx);
}

/* ---- examples ---- */

typedef struct example_run {
    tc_ctx *ctx;
    const grad_case *c;
    tc_tensor whole[MAX_INPUTS], each[EXAMPLES][MAX_INPUTS];
    int axes[MAX_INPUTS];
} example_run;

static tc_tensor stack(const tc_tensor *each, int axis)
{
    return tc_cat(TC_TENSORS(tc_unsqueeze(each[0], axis), tc_unsqueeze(each[1], axis),
                             tc_unsqueeze(each[2], axis)),
                  axis);
}

static void make_examples(example_run *r, tc_ctx *ctx, const grad_case *c, int chosen)
{
    r->ctx = ctx;
    r->c = c;
    for (int i = 0; i < c->n_inputs; i++) {
        tc_tensor first = leaf_of(ctx, c, i);
        bool differs = chosen >> i & 1;
        r->axes[i] = differs ? (i + chosen) % (c->inputs[i].rank + 1) : TC_UNMAPPED;
        for (int e = 0; e < EXAMPLES; e++) {
            r->each[e][i] = e && differs ? leaf_of(ctx, c, i) : first;
        }
        r->whole[i] = first;
        if (differs) {
            tc_tensor all[EXAMPLES] = {r->each[0][i], r->each[1][i], r->each[2][i]};
            r->whole[i] = stack(all, r->axes[i]);
            r->axes[i] -= i % 2 ? c->inputs[i].rank + 1 : 0; /* counted from the end */
        }
    }
}

static void build_value(const tc_tensor *x, tc_tensor *y, void *user)
{
    const example_run *r = user;
    y[0] = build_case(r->ctx, r->c, x);
}

static void build_gradients(const tc_tensor *x, tc_tensor *y, void *user)
{
    const example_run *r = user;
    tc_grad(weighted(r->ctx, build_case(r->ctx, r->c, x)), x, r->c->n_inputs, y);
}

/* n results of each example side by side. */
static void check_examples(example_run *r, tc_function f, const char *what, int n, tc_tensor *out)
{
    tc_tensor each[EXAMPLES][MAX_INPUTS], one[EXAMPLES];
    const tc_tensors in = {r->whole, r->c->n_inputs};
    int axes[MAX_INPUTS];
    for (int e = 0; e < EXAMPLES; e++) {
        f(r->each[e], each[e], r);
    }
    for (int k = 0; k < n; k++) {
        axes[k] = tc_rank(each[0][k]) - k % 2; /* at the end, or before it */
        axes[k] = TCI_MAX(axes[k], 0);
    }
    tc_status status = tc_vmap(f, r, in, r->axes, out, axes, n);
    CHECK_MSG(status == TC_OK, "%s, %s: %s", r->c->name, what, tc_error(out[0]));
    for (int k = 0; k < n && status == TC_OK; k++) {
        for (int e = 0; e < EXAMPLES; e++) {
            one[e] = each[e][k];
        }
        tc_tensor want = stack(one, axes[k]);
        /* an elementwise row has the same bits */
        check_close(r->c->name, what, out[k], want, r->c->row >= 0 && n == 1 ? 0 : 1e-11);
    }
}

static void check_gradients_of_examples(example_run *r, tc_tensor many)
{
    tc_tensor want[MAX_INPUTS], got[MAX_INPUTS], one[EXAMPLES][1], list[EXAMPLES];
    int n = r->c->n_inputs;
    for (int e = 0; e < EXAMPLES; e++) { /* of slices of the whole, so that they lead there */
        tc_tensor x[MAX_INPUTS];
        for (int i = 0; i < n; i++) {
            int axis = r->axes[i];
            x[i] = axis == TC_UNMAPPED ? r->whole[i]
                                       : tc_squeeze(tc_slice(r->whole[i], axis, e, e + 1, 1), axis);
        }
        build_value(x, one[e], r);
        list[e] = one[e][0];
    }
    tc_tensor stacked = stack(list, tc_rank(one[0][0]));
    tc_status status = tc_grad(weighted(r->ctx, stacked), r->whole, n, want);
    status = status ? status : tc_grad(weighted(r->ctx, many), r->whole, n, got);
    CHECK_MSG(status == TC_OK, "%s: %s", r->c->name, tc_error(r->ctx));
    for (int i = 0; i < n && status == TC_OK; i++) {
        check_close(r->c->name, "gradients of examples", got[i], want[i], 1e-9);
    }
}

TEST(examples_side_by_side)
{
    tc_ctx *ctx = make("interp");
    add_all();
    for (int i = 0; i < n_cases; i++) {
        if (cases[i].repeats) {
            continue;
        }
        int n = cases[i].n_inputs, all = (1 << n) - 1, one = 1 << i % n;
        for (int chosen = all; chosen; chosen = chosen == all && n > 1 ? one : 0) {
            example_run r;
            tc_tensor out[MAX_INPUTS];
            tc_scope_begin(ctx);
            make_examples(&r, ctx, &cases[i], chosen);
            check_examples(&r, build_value, "examples", 1, out);
            check_gradients_of_examples(&r, out[0]);
            check_examples(&r, build_gradients, "examples of gradients", cases[i].n_inputs, out);
            tc_scope_end(ctx);
        }
    }
    tc_ctx_free(ctx);
}

TEST_MAIN
