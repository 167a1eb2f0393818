/* tests/errors/test_within.c - functions of the user's that a call calls, and that end what the
 * call still needs: its context, a scope around it. Each call fails with a text that says where,
 * the context stays as it was, and ends when it is freed behind the call. */
#include <math.h>

#include "tc.h"
#include "tc_test.h"

enum { FREES, ENDS, LEAVES, FOREIGN, N_DEEDS };

/* What the functions below do, and with which context. */
static struct deed {
    int kind;
    tc_ctx *ctx, *other;
    tc_status ended;
} deed;

static void act(void)
{
    switch (deed.kind) {
    case FREES: tc_ctx_free(deed.ctx); break;
    case ENDS: deed.ended = tc_scope_end(deed.ctx); break;
    case LEAVES: tc_scope_begin(deed.ctx); break;
    default: break;
    }
}

static tc_tensor acted(tc_tensor t)
{
    act();
    return deed.kind == FOREIGN ? tc_full(deed.other, 1, TC_F32, 4) : t;
}

static tc_status scan_body(void *user, const tc_tensor *carry, const tc_tensor *x, tc_tensor *next,
                           tc_tensor *y)
{
    (void)user;
    next[0] = acted(tc_add(carry[0], x[0]));
    y[0] = next[0];
    return TC_OK;
}

static tc_status test(void *user, const tc_tensor *carry, tc_tensor *go)
{
    *go = tc_lt(tc_sum(user ? acted(carry[0]) : carry[0], TC_ALL, false), 9);
    return TC_OK;
}

static tc_status step(void *user, const tc_tensor *carry, tc_tensor *next)
{
    next[0] = tc_add(user ? carry[0] : acted(carry[0]), 1);
    return TC_OK;
}

static tc_status branch(void *user, const tc_tensor *x, tc_tensor *y)
{
    y[0] = user ? tc_mul(x[0], 2) : acted(tc_mul(x[0], 3));
    return TC_OK;
}

static void function(const tc_tensor *x, tc_tensor *y, void *user)
{
    (void)user;
    y[0] = acted(tc_exp(x[0]));
}

static bool shape_rule(void *user, const tc_custom_array *in, int n, tc_custom_array *result)
{
    (void)in;
    (void)n;
    (void)result;
    if (user) {
        act();
    }
    return true;
}

static void run_op(void *user, const tc_custom_array *in, int n, tc_custom_array *result)
{
    (void)n;
    if (user) {
        act();
    }
    memcpy(result->data, in[0].data, sizeof(float) * (size_t)in[0].n);
}

static tc_tensor vjp_rule(void *user, tc_tensors in, tc_tensor result, tc_tensor grad, int which)
{
    (void)user;
    (void)in;
    (void)result;
    (void)which;
    return acted(grad);
}

static tc_tensor vmap_rule(void *user, tc_tensors in)
{
    (void)user;
    return acted(tc_neg(in.items[0]));
}

static void mapped(const tc_tensor *x, tc_tensor *y, void *user)
{
    y[0] = tc_custom((const tc_custom_op *)user, TC_TENSORS(x[0]));
}

/* The context of a log is the one that compiles. */
static void log_line(void *user, const char *topic, const char *text)
{
    (void)user;
    (void)topic;
    (void)text;
    if (deed.kind == FREES) {
        act();
    }
}

/* One call of each kind; *r what it gave. */
enum { SCAN, TEST_OF, STEP_OF, COND, REGION, VMAP, SHAPE, VJP, RULE, RUN, LOG, N_CALLS };

static tc_status call(int kind, tc_tensor x, tc_tensor *r)
{
    static int yes;
    tc_custom_op op = {.name = "within", .version = kind, .run = run_op};
    tc_options o = {.backend = "interp", .log = log_line, .no_disk_cache = true};
    tc_tensor row = tc_slice(x, 0, 0, 1, 1), y;
    tc_program *f = NULL;
    tc_status status;
    switch (kind) {
    case SCAN:
        return tc_scan(TC_TENSORS(tc_sum(row, TC_AXES(0), false)), TC_TENSORS(x), 0, false,
                       scan_body, NULL, NULL, r, 1);
    case TEST_OF: return tc_while(TC_TENSORS(row), 0, test, step, &yes, r);
    case STEP_OF: return tc_while(TC_TENSORS(row), 0, test, step, NULL, r);
    case COND:
        return tc_cond(tc_full(deed.ctx, 1, TC_BOOL), TC_TENSORS(row), branch, branch, NULL, r, 1);
    case REGION: return tc_checkpoint(TC_TENSORS(row), branch, NULL, r, 1);
    case VMAP: return tc_vmap(function, NULL, TC_TENSORS(x), NULL, r, NULL, 1);
    case SHAPE:
        op.user = &yes;
        op.shape = shape_rule;
        *r = tc_custom(&op, TC_TENSORS(row));
        return tc_status_of(*r);
    case VJP:
        op.vjp = vjp_rule;
        y = tc_sum(tc_custom(&op, TC_TENSORS(row)), TC_ALL, false);
        return tc_grad(y, &row, 1, r);
    case RULE: op.vmap = vmap_rule; return tc_vmap(mapped, &op, TC_TENSORS(x), NULL, r, NULL, 1);
    case RUN:
        op.user = &yes;
        *r = tc_custom(&op, TC_TENSORS(row));
        return tc_eval(*r);
    default:
        *r = tc_exp(row);
        status = tc_compile_fn(TC_TENSORS_N(r, 0), TC_TENSORS(*r), &o, &f);
        CHECK(!f == !!status);
        tc_program_free(f);
        return status;
    }
}

static const char *const texts[N_DEEDS] = {"frees the context", "", "leaves a scope open", ""};

static void check_call(int kind)
{
    static const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    tc_options o = {.backend = "interp", .no_disk_cache = true};
    tc_tensor r = {0};
    float got[8];
    REQUIRE(!tc_ctx_make(&deed.ctx, &o) && !tc_ctx_make(&deed.other, &o));
    deed.ended = TC_ERR_ARGUMENT;
    REQUIRE(!tc_scope_begin(deed.ctx));
    tc_tensor x = tc_copy_in(deed.ctx, ones, TC_F32, 2, 4);
    tc_status status = call(kind, x, &r);
    const char *text = tc_error(r);
    bool tells = status == TC_ERR_ARGUMENT && strstr(text, texts[deed.kind]);
    bool names = strstr(text, __FILE__) != NULL;
    if (deed.kind == ENDS) {
        CHECK_MSG(status == TC_OK, "call %d: %s", kind, text);
        CHECK_EQ_INT(deed.ended, TC_ERR_ARGUMENT);
    } else if (deed.kind == FOREIGN) {
        CHECK_MSG(status == TC_ERR_HANDLE && names, "call %d: %d, %s", kind, (int)status, text);
    } else {
        CHECK_MSG(tells && names, "call %d, deed %d: status %d, \"%s\"", kind, deed.kind,
                  (int)status, text);
    }
    CHECK_EQ_INT(tc_read(tc_mul(x, 3), got, 8), TC_OK);
    CHECK(got[7] == 3);
    CHECK_EQ_INT(tc_scope_end(deed.ctx), TC_OK);
    CHECK_EQ_INT(tc_scope_end(deed.ctx), TC_ERR_ARGUMENT);
    tc_ctx_free(deed.ctx);
    CHECK_HAS(tc_error(deed.ctx), "the context was freed");
    tc_ctx_free(deed.other);
}

TEST(a_context_freed_by_a_function_that_a_call_calls)
{
    deed.kind = FREES;
    for (int kind = 0; kind < N_CALLS; kind++) {
        check_call(kind);
    }
}

TEST(scopes_around_a_call_outlast_it)
{
    for (deed.kind = ENDS; deed.kind <= LEAVES; deed.kind++) {
        for (int kind = 0; kind < RUN; kind++) {
            check_call(kind);
        }
    }
}

TEST(results_of_another_context)
{
    deed.kind = FOREIGN;
    for (int kind = 0; kind < SHAPE; kind++) {
        check_call(kind);
    }
    check_call(VJP);
    check_call(RULE);
}

/* Keeps of one place that follow each other; each replaces the one of two turns before. */
static tc_status keeps(void *user, const tc_tensor *carry, const tc_tensor *x, tc_tensor *next,
                       tc_tensor *y)
{
    tc_tensor *kept = user, last = *kept;
    (void)x;
    (void)y;
    for (int i = carry ? 0 : 2; i < 3; i++) {
        tc_scope_begin(deed.ctx);
        last = tc_keep(tc_add(last, 1));
        tc_scope_end(deed.ctx);
    }
    if (carry) {
        next[0] = tc_add(carry[0], last);
    } else {
        *kept = last;
    }
    return TC_OK;
}

TEST(kept_values_that_a_call_holds_are_not_replaced_within)
{
    tc_options o = {.backend = "interp"};
    float got[4];
    REQUIRE(!tc_ctx_make(&deed.ctx, &o));
    tc_tensor kept = tc_full(deed.ctx, 1, TC_F32, 4), r;
    keeps(&kept, NULL, NULL, NULL, NULL);
    CHECK_EQ_INT(tc_scan(TC_TENSORS(kept), TC_TENSORS_N(&kept, 0), 3, false, keeps, &kept, &r, NULL,
                         0),
                 TC_OK);
    CHECK_EQ_INT(tc_read(r, got, 4), TC_OK);
    CHECK(got[3] == 2 + 3 * 5);
    CHECK_EQ_INT(tc_status_of(kept), TC_OK);
    tc_ctx_free(deed.ctx);
}

TEST_MAIN
