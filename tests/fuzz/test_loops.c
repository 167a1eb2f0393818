/* Random loops against the same steps written out: values, gradients, tangents and gradients of
 * gradients, by every tensor that a body closes over.
 *
 * A case is drawn twice from one seed: once with tc_scan, tc_while, tc_cond and tc_checkpoint, two
 * of them nested at most, in a context where constants and other tensors are evaluated at random
 * moments (before the loop is built, between that and its gradient, between two reads); and once
 * with neither loops nor early evaluation. Bodies close over leaves, parameters, constants, views
 * and computed tensors, and make views and constants of their own. Everything is f64, so the two
 * agree to rounding. A third of the loops are of three examples at once (tc_vmap), against one
 * after the other.
 *
 * TC_TEST_SEED=N begins with case N, TC_TEST_SOAK=1 draws thousands. */
#include "tc.h"

#include "tc_test.h"

enum { MOST = 3, POOL = 5, CHAIN = 3, STEPS = 3, EXAMPLES = 3, BIG = 24 };
enum { CASES = 200, CASES_SOAK = 6000 };

static const double numbers[] = {0, 1, -1, 2, 0.5, 0.3, -0.25};
enum { NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };

typedef enum form { LOOPS, WRITTEN_OUT } form;
typedef enum kind { SCAN, COND, CHECKPOINT, WHILE, KINDS } kind;

typedef struct loops_case {
    tc_ctx *ctx;
    form form;
    int n;                          /* elements of a carry: MOST or 1 */
    uint64_t poke;                  /* the random moments' own state */
    tc_tensor pool[POOL];           /* [n] */
    tc_tensor by[POOL * CHAIN + 1]; /* what is differentiated by: the pool and what it is made of */
    int n_by;
    tc_tensor flat; /* [BIG] */
    bool has_while;
} loops_case;

typedef struct drawn {
    loops_case *c;
    uint64_t seed;
    int depth;
    tc_tensor outer; /* of the body around; TC_NONE: none */
} drawn;

/* ---- numbers ---- */

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int below(uint64_t *state, int n)
{
    return (int)(next(state) % (uint64_t)n);
}

/* ---- random moments ---- */

static void evaluate(loops_case *c, tc_tensor t)
{
    double v[BIG];
    int64_t whole[BIG];
    tc_dlpack *dl = NULL;
    FILE *nowhere = NULL;
    tc_status status = TC_OK;
    bool is_float = tc_dtype_of(t) == TC_F64;
    switch (below(&c->poke, is_float ? 6 : 2)) {
    case 0: status = tc_eval(t); break;
    case 1: status = is_float ? tc_read(t, v, tc_count(t)) : tc_read(t, whole, tc_count(t)); break;
    case 2:
        nowhere = tmpfile();
        status = nowhere ? tc_print(nowhere, t) : TC_OK;
        break;
    case 3: status = tc_status_of(tc_param_from(t)); break;
    case 4: status = tc_status_of(tc_keep(tc_retain(t))); break;
    default:
        status = tc_to_dlpack(t, &dl);
        if (dl) {
            dl->deleter(dl);
        }
        break;
    }
    CHECK_MSG(!status, "%s", tc_error(t));
    if (nowhere) {
        fclose(nowhere);
    }
}

/* Some tensors that a body has, or may make again, are evaluated. */
static void random_moment(loops_case *c)
{
    while (c->form == LOOPS && below(&c->poke, 3)) {
        double v = numbers[below(&c->poke, NUMBERS)];
        switch (below(&c->poke, 4)) {
        case 0: evaluate(c, tc_full(c->ctx, v, TC_F64)); break;
        case 1: evaluate(c, tc_full(c->ctx, v, TC_F64, c->n)); break;
        case 2: evaluate(c, tc_arange(c->ctx, 0, c->n, 1, TC_I64)); break;
        default: evaluate(c, c->by[below(&c->poke, c->n_by)]); break;
        }
    }
}

/* ---- what a body closes over ---- */

static tc_tensor flat_part(const loops_case *c, int from, int n)
{
    return tc_range(c->flat, 0, from, from + n);
}

static tc_tensor draw_leaf(loops_case *c, uint64_t *r)
{
    double v[MOST];
    int n = c->n;
    for (int i = 0; i < n; i++) {
        v[i] = (double)below(r, 33) / 16 - 1;
    }
    switch (below(r, 5)) {
    case 0: return tc_copy_in(c->ctx, v, TC_F64, n);
    case 1: return tc_param(c->ctx, v, TC_F64, n);
    case 2: /* a number that no gradient has: equal constants are one tensor */
        return tc_full(c->ctx, 0.8125 + (1 + 2 * below(r, 16)) / 128.0, TC_F64, n);
    case 3: return tc_mul(tc_arange(c->ctx, 1, n + 1, 1, TC_F64), 0.25);
    default: return flat_part(c, below(r, BIG - n), n);
    }
}

/* x of [n] as another tensor of [n]. */
static tc_tensor draw_view(loops_case *c, uint64_t *r, tc_tensor x)
{
    int64_t at[MOST];
    int n = c->n;
    switch (below(r, 9)) {
    case 0: return tc_flip(x, 0);
    case 1: return tc_reshape(tc_permute(tc_reshape(x, 1, n), 1, 0), n);
    case 2: return tc_expand(tc_slice(x, 0, n / 2, n / 2 + 1, 1), n);
    case 3: return tc_pad(tc_slice(x, 0, 0, n - 1, 1), 0, 1, 0, 0.7);
    case 4: return tc_cat(TC_TENSORS(tc_slice(x, 0, 1, n, 1), tc_slice(x, 0, 0, 1, 1)), 0);
    case 5: return tc_mul(x, numbers[1 + below(r, NUMBERS - 1)]);
    case 6: return tc_sin(x);
    case 7: return tc_select(tc_reshape(tc_cat(TC_TENSORS(x, x), 0), 2, n), 0, below(r, 2));
    default:
        for (int i = 0; i < n; i++) {
            at[i] = below(r, n);
        }
        return tc_index_select(x, 0, tc_copy_in(c->ctx, at, TC_I64, n));
    }
}

static void draw_pool(loops_case *c, uint64_t *r)
{
    double v[BIG];
    for (int i = 0; i < BIG; i++) {
        v[i] = (double)below(r, 65) / 32 - 1;
    }
    c->flat = below(r, 2) ? tc_param(c->ctx, v, TC_F64, BIG) : tc_copy_in(c->ctx, v, TC_F64, BIG);
    c->by[c->n_by++] = c->flat;
    for (int i = 0; i < POOL; i++) {
        tc_tensor x = draw_leaf(c, r);
        for (int k = below(r, CHAIN); k > 0; k--) {
            c->by[c->n_by++] = x;
            x = draw_view(c, r, x);
        }
        c->by[c->n_by++] = c->pool[i] = x;
    }
}

/* ---- bodies ---- */

static tc_tensor draw_loop(loops_case *c, uint64_t seed, int depth, tc_tensor x);

static tc_tensor draw_closed(const drawn *d, uint64_t *r)
{
    loops_case *c = d->c;
    int n = c->n;
    tc_tensor x = c->pool[below(r, POOL)];
    switch (below(r, 6)) {
    case 0: return flat_part(c, below(r, BIG - n), n);
    case 1: return tc_full(c->ctx, numbers[below(r, NUMBERS)], TC_F64);
    case 2: return draw_view(c, r, x);
    case 3: return d->outer.ctx ? d->outer : x;
    default: return x;
    }
}

/* What a step makes of v, and of x where there is one. */
static tc_tensor draw_step(const drawn *d, tc_tensor v, tc_tensor x)
{
    uint64_t state = d->seed, *r = &state;
    tc_ctx *ctx = d->c->ctx;
    int n = d->c->n;
    v = x.ctx ? tc_add(v, x) : v;
    for (int ops = 2 + below(r, 3); ops > 0; ops--) {
        tc_tensor w = draw_closed(d, r);
        double k = numbers[below(r, NUMBERS)];
        switch (below(r, 8)) {
        case 0: v = tc_add(v, w); break;
        case 1:
        case 2: v = tc_mul(v, w); break;
        case 3: v = tc_sub(k, v); break;
        case 4: v = tc_mul(tc_sin(v), tc_full(ctx, 1.5 + k, TC_F64, n)); break;
        case 5:
            v = tc_where(tc_lt(tc_arange(ctx, 0, n, 1, TC_I64), 1 + below(r, 2)), v,
                         tc_expand(w, n));
            break;
        case 6: v = tc_add(tc_pow(v, 2), tc_full(ctx, k, TC_F64)); break;
        default: v = d->depth > 1 ? tc_tanh(v) : draw_loop(d->c, next(r), d->depth + 1, v); break;
        }
    }
    return tc_tanh(v);
}

static tc_status scan_body(void *user, const tc_tensor *carry, const tc_tensor *x, tc_tensor *next,
                           tc_tensor *y)
{
    drawn d = *(const drawn *)user;
    next[0] = draw_step(&d, carry[0], x[0]);
    y[0] = tc_mul(next[0], d.c->pool[0]);
    return tc_status_of(y[0]);
}

static tc_status branch(void *user, const tc_tensor *x, tc_tensor *y)
{
    y[0] = draw_step(user, x[0], TC_NONE);
    return tc_status_of(y[0]);
}

static tc_status other_branch(void *user, const tc_tensor *x, tc_tensor *y)
{
    const drawn *d = user;
    y[0] = tc_sub(x[0], d->c->pool[1]);
    return tc_status_of(y[0]);
}

static tc_status goes_on(void *user, const tc_tensor *carry, tc_tensor *go)
{
    (void)user;
    *go = tc_lt(carry[1], STEPS);
    return TC_OK;
}

static tc_status while_body(void *user, const tc_tensor *carry, tc_tensor *next)
{
    next[0] = draw_step(user, carry[0], TC_NONE);
    next[1] = tc_add(carry[1], 1);
    return tc_status_of(next[0]);
}

/* ---- loops ---- */

static tc_tensor written_out(drawn *d, kind k, bool taken, bool reverse, tc_tensor x, tc_tensor xs)
{
    tc_tensor carry = x, sum = TC_NONE, y[2];
    if (k == COND && !taken) {
        other_branch(d, &x, y);
        return y[0];
    }
    if (k == COND || k == CHECKPOINT) {
        branch(d, &x, y);
        return y[0];
    }
    for (int i = 0; i < STEPS; i++) {
        tc_tensor at = tc_select(xs, 0, reverse ? STEPS - 1 - i : i);
        if (k == WHILE) {
            carry = draw_step(d, carry, TC_NONE);
        } else {
            scan_body(d, &carry, &at, &y[0], &y[1]);
            carry = y[0];
            sum = sum.ctx ? tc_add(sum, y[1]) : y[1];
        }
    }
    return k == WHILE ? carry : tc_add(carry, sum);
}

/* x [n] through a loop: of all kinds but tc_while where gradients are taken. */
static tc_tensor draw_loop(loops_case *c, uint64_t seed, int depth, tc_tensor x)
{
    uint64_t r = seed;
    drawn d = {c, next(&r), depth, depth ? x : TC_NONE};
    kind k = (kind)below(&r, depth && !c->has_while ? WHILE : KINDS);
    bool reverse = below(&r, 2), taken = below(&r, 2);
    int n = c->n;
    tc_tensor xs = tc_reshape(flat_part(c, below(&r, BIG - STEPS * n), STEPS * n), STEPS, n);
    tc_tensor out[2] = {TC_NONE, TC_NONE}, y;
    c->has_while |= k == WHILE;
    if (c->form == WRITTEN_OUT) {
        return written_out(&d, k, taken, reverse, x, xs);
    }
    tc_tensor go = tc_gt(tc_add(tc_mul(tc_sum(x, TC_ALL, false), 0), taken), 0.5);
    switch (k) {
    case SCAN:
        tc_scan(TC_TENSORS(x), TC_TENSORS(xs), 0, reverse, scan_body, &d, out, &y, 1);
        return tc_add(out[0], tc_sum(y, TC_AXES(0), false));
    case COND: tc_cond(go, TC_TENSORS(x), branch, other_branch, &d, out, 1); break;
    case CHECKPOINT: tc_checkpoint(TC_TENSORS(x), branch, &d, out, 1); break;
    default:
        tc_while(TC_TENSORS(x, tc_full(c->ctx, 0, TC_I32)), 0, goes_on, while_body, &d, out);
        break;
    }
    return out[0];
}

/* ---- examples ---- */

typedef struct mapped {
    loops_case *c;
    uint64_t seed;
} mapped;

static void each_example(const tc_tensor *x, tc_tensor *y, void *user)
{
    const mapped *m = user;
    y[0] = draw_loop(m->c, m->seed, 0, x[0]);
}

/* The sum of what the first tensors of the pool become. */
static tc_tensor draw_examples(loops_case *c, uint64_t seed)
{
    mapped m = {c, seed};
    tc_tensor y = TC_NONE, rows[EXAMPLES];
    for (int i = 0; i < EXAMPLES && c->form == WRITTEN_OUT; i++) {
        tc_tensor one = draw_loop(c, seed, 0, c->pool[i]);
        y = i ? tc_add(y, one) : one;
    }
    if (c->form == WRITTEN_OUT) {
        return y;
    }
    for (int i = 0; i < EXAMPLES; i++) {
        rows[i] = tc_unsqueeze(c->pool[i], 0);
    }
    tc_tensor all = tc_cat(TC_TENSORS_N(rows, EXAMPLES), 0);
    CHECK_MSG(!tc_vmap(each_example, &m, TC_TENSORS(all), NULL, &y, NULL, 1), "%s", tc_error(y));
    return tc_sum(y, TC_AXES(0), false);
}

/* ---- what is compared ---- */

typedef struct found {
    double v[8 + 3 * (POOL * CHAIN + 1) * BIG];
    int n;
} found;

static void take(loops_case *c, found *f, tc_tensor t)
{
    int n = (int)tc_count(t);
    REQUIRE((size_t)(f->n + n) <= sizeof(f->v) / sizeof(f->v[0]));
    tc_status status = tc_read(t, f->v + f->n, n);
    CHECK_MSG(!status, "%s", tc_error(t));
    for (int i = 0; i < n && status; i++) {
        f->v[f->n + i] = NAN;
    }
    f->n += n;
    random_moment(c);
}

static void run_case(uint64_t seed, form as, const tc_options *o, found *f)
{
    uint64_t state = seed, *r = &state;
    loops_case c = {.form = as, .poke = seed * 77};
    tc_tensor grads[POOL * CHAIN + 1], second[POOL * CHAIN + 1], tangent;
    REQUIRE(!tc_ctx_make(&c.ctx, o));
    c.n = below(r, 3) ? MOST : 1;
    draw_pool(&c, r);
    random_moment(&c);
    uint64_t of = next(r);
    tc_tensor x = c.pool[below(r, POOL)];
    tc_tensor y = below(r, 3) ? draw_loop(&c, of, 0, x) : draw_examples(&c, of);
    random_moment(&c);
    tc_tensor loss = tc_sum(tc_mul(y, tc_full(c.ctx, 1, TC_F64, c.n)), TC_ALL, false);
    f->n = 0;
    int by = below(r, c.n_by), first = below(r, c.n_by);
    tc_tensor ones = tc_add(tc_mul(tc_stop_gradient(c.by[by]), 0), 1);
    CHECK_MSG(!tc_jvp(TC_TENSORS(y), TC_TENSORS(c.by[by]), TC_TENSORS(ones), &tangent), "%s",
              tc_error(tangent));
    if (!c.has_while) {
        CHECK_MSG(!tc_grad(loss, c.by, c.n_by, grads), "%s", tc_error(grads[0]));
        tc_tensor norm = tc_sum(tc_square(grads[first]), TC_ALL, false);
        CHECK_MSG(!tc_grad(norm, c.by, c.n_by, second), "%s", tc_error(second[0]));
    }
    random_moment(&c);
    take(&c, f, y);
    take(&c, f, tangent);
    for (int i = 0; i < c.n_by && !c.has_while; i++) {
        take(&c, f, grads[i]);
        take(&c, f, second[i]);
    }
    tc_ctx_free(c.ctx);
}

static void compare(uint64_t seed, const tc_options *o)
{
    static found loops, plain;
    run_case(seed, LOOPS, o, &loops);
    run_case(seed, WRITTEN_OUT, &(tc_options){.backend = "interp", .no_disk_cache = true}, &plain);
    CHECK_EQ_INT(loops.n, plain.n);
    for (int i = 0; i < loops.n && loops.n == plain.n; i++) {
        double a = loops.v[i], b = plain.v[i];
        if (!(fabs(a - b) <= 1e-9 * (1 + fabs(b)))) {
            tct_fail(__FILE__, __LINE__, "case %llu: value %d of %d is %.17g, written out %.17g",
                     (unsigned long long)seed, i, loops.n, a, b);
            return;
        }
    }
}

TEST(loops_are_their_steps_whatever_they_close_over)
{
    for (int i = 0; i < (tct_soak ? CASES_SOAK : CASES); i++) {
        tc_options o = {.backend = "interp", .no_disk_cache = true, .verify = i % 2};
        compare(tct_seed + (uint64_t)i, &o);
    }
}

TEST(loops_in_native_code)
{
    for (int i = 0; i < (tct_soak ? 200 : 4); i++) {
        compare(tct_seed + 100000 + (uint64_t)i, &(tc_options){.backend = "cpu"});
    }
}

TEST_MAIN
