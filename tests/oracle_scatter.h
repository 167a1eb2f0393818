/* tests/oracle_scatter.h - torch's writes at indices: scatter, scatter_add, scatter_reduce and what
 * takes a 1-d index along an axis. What tc has no call for is made of those it has. */
#ifndef TC_TEST_ORACLE_SCATTER_H
#define TC_TEST_ORACLE_SCATTER_H

#include "oracle_shape.h"

typedef struct orc_put {
    tc_tensor x, index, src;
    int axis;
} orc_put;

/* src, which may be a number, is as large as the index. */
static orc_put orc_put_of(orc_case *c)
{
    const json *v = orc_value(c, "src");
    orc_put p = {.x = orc_tensor(c, "input"), .index = orc_tensor(c, "index")};
    p.axis = orc_axis(p.x, orc_axis_arg(c, "dim", 0));
    if (orc_is_tensor(v)) {
        p.src = orc_tensor(c, "src");
    } else {
        int64_t sizes[ORC_MAX_RANK];
        int n = orc_sizes(p.index, sizes);
        tc_tensor number = tc_cast(tc_full(c->ctx, orc_number_of(c, v), TC_F64), tc_dtype_of(p.x));
        p.src = tc_expand_at(number, n, sizes, TC_HERE);
    }
    return p;
}

/* The 1-d index as one for each element of src. */
static orc_put orc_put_rows(orc_case *c)
{
    orc_put p = orc_put_of(c);
    int64_t sizes[ORC_MAX_RANK], ones[ORC_MAX_RANK];
    int n = orc_sizes(p.src, sizes);
    for (int i = 0; i < n; i++) {
        ones[i] = i == p.axis ? sizes[i] : 1;
    }
    p.index = tc_expand_at(tc_reshape_at(p.index, n, ones, TC_HERE), n, sizes, TC_HERE);
    return p;
}

/* x with `number` where something will be stored. */
static tc_tensor orc_clear(orc_case *c, const orc_put *p, tc_tensor number)
{
    int64_t sizes[ORC_MAX_RANK];
    int n = orc_sizes(p->index, sizes);
    tc_tensor all = tc_expand_at(tc_cast(number, tc_dtype_of(p->x)), n, sizes, TC_HERE);
    (void)c;
    return tc_scatter(p->x, p->axis, p->index, all);
}

static void orc_put_mean(orc_case *c, const orc_put *p, bool own)
{
    tc_tensor zero = tc_full(c->ctx, 0, TC_F32);
    tc_tensor x = own ? p->x : orc_clear(c, p, zero);
    tc_tensor ones = tc_add(tc_mul(p->src, 0), 1), n = tc_add(tc_mul(p->x, 0), 1);
    orc_put count = {n, p->index, ones, p->axis};
    n = own ? n : orc_clear(c, &count, zero);
    tc_tensor sum = tc_scatter_add(x, p->axis, p->index, p->src);
    n = tc_scatter_add(n, p->axis, p->index, ones);
    orc_out(c, orc_is_float(tc_dtype_of(sum)) ? tc_div(sum, n) : tc_floor_divide(sum, n));
}

static void orc_put_reduce(orc_case *c, const orc_put *p)
{
    const char *how = orc_text(c, "reduce", "");
    bool own = !orc_has(c, "include_self") || orc_bool(c, "include_self");
    bool min = !strcmp(how, "amin"), max = !strcmp(how, "amax");
    tc_dtype t = tc_dtype_of(p->x);
    if (!strcmp(how, "mean")) {
        orc_put_mean(c, p, own);
    } else if (!strcmp(how, "sum") || !strcmp(how, "add")) {
        tc_tensor zero = tc_full(c->ctx, 0, TC_F32);
        orc_out(c, tc_scatter_add(own ? p->x : orc_clear(c, p, zero), p->axis, p->index, p->src));
    } else if (min || max) {
        tc_tensor none = t == TC_BOOL ? tc_full(c->ctx, min ? 1 : 0, TC_I64)
                                      : tc_full(c->ctx, min ? INFINITY : -INFINITY, TC_F64);
        tc_tensor x = own ? p->x : orc_clear(c, p, none);
        orc_out(c, min ? tc_scatter_min(x, p->axis, p->index, p->src)
                       : tc_scatter_max(x, p->axis, p->index, p->src));
    } else if (!strcmp(how, "prod") || !strcmp(how, "multiply")) {
        tc_tensor one = tc_full(c->ctx, 1, TC_F32);
        orc_out(c, tc_scatter_prod(own ? p->x : orc_clear(c, p, one), p->axis, p->index, p->src));
    } else {
        orc_skip_argument(c, "reduce", orc_value(c, "reduce"));
    }
}

static void orc_scatter(orc_case *c)
{
    orc_put p = orc_put_of(c);
    if (orc_has(c, "reduce")) {
        orc_put_reduce(c, &p);
        return;
    }
    orc_out(c, tc_scatter(p.x, p.axis, p.index, p.src));
}

static void orc_scatter_reduce(orc_case *c)
{
    orc_put p = orc_put_of(c);
    orc_put_reduce(c, &p);
}

static void orc_index_reduce(orc_case *c)
{
    orc_put p = orc_put_rows(c);
    orc_put_reduce(c, &p);
}

static void orc_index_add(orc_case *c)
{
    orc_put p = orc_put_of(c);
    tc_tensor src = p.src;
    if (orc_has(c, "alpha")) {
        src = tc_cast(tc_mul_at(TC_ARG(src), orc_arg(c, "alpha"), TC_HERE), tc_dtype_of(p.x));
    }
    orc_out(c, tc_index_add(p.x, p.axis, p.index, src));
}

static void orc_index_copy(orc_case *c)
{
    orc_put p = orc_put_rows(c);
    orc_out(c, tc_scatter(p.x, p.axis, p.index, p.src));
}

/* Places counted through all of x. */
static void orc_put_flat(orc_case *c)
{
    int64_t sizes[ORC_MAX_RANK];
    tc_tensor x = orc_tensor(c, "input"), flat = tc_reshape(x, -1);
    tc_tensor index = tc_reshape(orc_tensor(c, "index"), -1);
    tc_tensor src = tc_reshape(orc_tensor(c, "src"), -1);
    tc_tensor y = orc_bool(c, "accumulate") ? tc_scatter_add(flat, 0, index, src)
                                            : tc_scatter(flat, 0, index, src);
    orc_out(c, tc_reshape_at(y, orc_sizes(x, sizes), sizes, TC_HERE));
}

#endif
