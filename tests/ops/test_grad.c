/* Gradients of every row against central finite differences in f64, on each backend; second order
 * for a few.
 *
 * A case builds an expression y of one to three f64 inputs. Its loss is sum(y * w) with fixed
 * weights; one program gives the loss and the gradients, and run at shifted inputs also the
 * differences. Second order does the same with the loss sum(gradient * w). All cases of a backend
 * share one compiler run. */
#include "inside.h"
#include "tc_test.h"

#include "grad_cases.h"

/* ---- running them ---- */

typedef struct grad_run {
    const grad_case *c;
    bool second;
    tc_tensor x[MAX_INPUTS], loss, grads[MAX_INPUTS];
    tc_program *program;
    double *data[MAX_INPUTS];
    int64_t counts[MAX_INPUTS];
} grad_run;

static void prepare(grad_run *r, tc_ctx *ctx)
{
    const grad_case *c = r->c;
    for (int i = 0; i < c->n_inputs; i++) {
        int64_t list[6] = {TC_F64};
        memcpy(list + 1, c->inputs[i].sizes, sizeof(int64_t) * (size_t)c->inputs[i].rank);
        r->x[i] = tc_input_at(ctx, "x", 1 + c->inputs[i].rank, list, TC_HERE);
        r->counts[i] = tc_count(r->x[i]);
        r->data[i] = malloc(sizeof(double) * (size_t)(r->counts[i] + 1));
        fill_case(c, i, r->counts[i], r->data[i]);
    }
    r->loss = weighted(ctx, build_case(ctx, c, r->x));
    if (r->second) {
        tc_tensor first[MAX_INPUTS], sum = tc_full(ctx, 0.0, TC_F64);
        tc_grad(r->loss, r->x, c->n_inputs, first);
        for (int i = 0; i < c->n_inputs; i++) {
            sum = tc_add(sum, weighted(ctx, first[i]));
        }
        r->loss = sum;
    }
    tc_status status = tc_grad(r->loss, r->x, c->n_inputs, r->grads);
    CHECK_MSG(status == TC_OK, "%s: %s", c->name, tc_error(r->grads[0]));
}

static bool run(grad_run *r, double *loss, double **grads)
{
    tc_buf in[MAX_INPUTS], out[1 + MAX_INPUTS];
    int n = r->c->n_inputs;
    out[0] = TC_BUF(loss, 1);
    for (int i = 0; i < n; i++) {
        in[i] = TC_BUF(r->data[i], r->counts[i]);
        out[1 + i] = TC_BUF(grads[i], r->counts[i]);
    }
    tc_status status = tc_run(r->program, (tc_bufs){in, n}, (tc_bufs){out, 1 + n});
    CHECK_MSG(status == TC_OK, "%s: %s", r->c->name, tc_error(r->program));
    return status == TC_OK;
}

static void judge(grad_run *r)
{
    const double step = 1e-5, tolerance = r->second ? 2e-6 : 1e-7;
    double loss, up, down, *grads[MAX_INPUTS], *unused[MAX_INPUTS];
    int n = r->c->n_inputs;
    bool ok = true;
    for (int i = 0; i < n; i++) {
        grads[i] = malloc(sizeof(double) * (size_t)(r->counts[i] + 1));
        unused[i] = malloc(sizeof(double) * (size_t)(r->counts[i] + 1));
    }
    ok = run(r, &loss, grads);
    for (int i = 0; i < n && ok; i++) {
        for (int64_t k = 0; k < r->counts[i] && ok; k++) {
            double at = r->data[i][k];
            r->data[i][k] = at + step;
            ok = run(r, &up, unused);
            r->data[i][k] = at - step;
            ok = ok && run(r, &down, unused);
            r->data[i][k] = at;
            double want = (up - down) / (2 * step);
            ok = ok && fabs(grads[i][k] - want) <= tolerance * (1 + fabs(want));
            CHECK_MSG(ok, "%s%s: d/d%d[%lld] is %.12g, differences say %.12g", r->c->name,
                      r->second ? ", second order" : "", i, (long long)k, grads[i][k], want);
        }
    }
    for (int i = 0; i < n; i++) {
        free(grads[i]);
        free(unused[i]);
    }
}

static void check_backend(const char *backend)
{
    tc_options o = {.backend = backend};
    tc_ctx *ctx;
    static grad_run runs[2 * MAX_CASES];
    static tc_tensor outs[2 * MAX_CASES][1 + MAX_INPUTS];
    static tc_job jobs[2 * MAX_CASES];
    int n = 0;
    if (tc_ctx_make(&ctx, &o)) {
        SKIP("no backend %s here", backend);
    }
    memset(runs, 0, sizeof(runs));
    for (int i = 0; i < n_cases; i++) {
        for (int second = 0; second <= (int)cases[i].second; second++, n++) {
            runs[n].c = &cases[i];
            runs[n].second = second;
            prepare(&runs[n], ctx);
            outs[n][0] = runs[n].loss;
            memcpy(outs[n] + 1, runs[n].grads, sizeof(runs[n].grads));
            jobs[n] = (tc_job){{runs[n].x, cases[i].n_inputs},
                               {outs[n], 1 + cases[i].n_inputs},
                               &runs[n].program,
                               TC_OK};
        }
    }
    tc_status status = tc_compile_many(jobs, n, NULL);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    for (int i = 0; i < n; i++) {
        if (runs[i].program) {
            judge(&runs[i]);
        } else {
            CHECK_MSG(false, "%s: %s", runs[i].c->name, tc_status_text(jobs[i].status));
        }
        for (int k = 0; k < runs[i].c->n_inputs; k++) {
            free(runs[i].data[k]);
        }
        tc_program_free(runs[i].program);
    }
    tc_ctx_free(ctx);
}

TEST(gradients_equal_differences_interp)
{
    add_all();
    check_backend("interp");
}

TEST(gradients_equal_differences_cpu)
{
    add_all();
    check_backend("cpu");
}

TEST_MAIN
