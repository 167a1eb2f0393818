/* debug/debug_ops.c - run-time debug ops: tc_print_value, tc_assert_all, tc_assert_finite.
 *
 * In: a tensor. Out: the same tensor, after a custom op (api/custom_op.h) that inspects it. The op
 * is an ordinary step of a run, in loops and on devices too. If its condition fails, it records an
 * error message for its thread, which the step's launch moves to the call (run/launch_steps.c).
 * Assertions are steps that may fault, like reads at indices: the run goes on to its CHECK step and
 * fails there, before a parameter is set. A program without debug ops has no overhead. */
#include "kernel_check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../api/debug.h"
#include "../api/api_call.h"
#include "source_location.h"

#ifndef TC_NO_DEBUG

enum { TCI_PROBE_SHOWN = 6 }; /* elements of a value that are printed */

typedef struct tci_probe {
    char *name; /* of the op, */
    char *says; /* and what it says: "h (net.c:12)" */
} tci_probe;

static double tci_probe_number(const tc_custom_array *x, int64_t i)
{
    int bytes = tci_dtype_get(x->dtype)->bytes;
    tci_value v = tci_value_load(x->dtype, (const char *)x->data + i * bytes);
    return tci_dtype_is_float(x->dtype) ? v.f : x->dtype == TC_U64 ? (double)v.u : (double)v.i;
}

static void tci_probe_copy(const tc_custom_array *x, tc_custom_array *y)
{
    memcpy(y->data, x->data, (size_t)x->n * (size_t)tci_dtype_get(x->dtype)->bytes);
}

static void tci_probe_print(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
{
    const tci_probe *p = user;
    double low = INFINITY, high = -INFINITY, sum = 0;
    int64_t odd = 0;
    (void)n;
    tci_probe_copy(in, out);
    for (int64_t i = 0; i < in->n; i++) {
        double x = tci_probe_number(in, i);
        if (!isfinite(x)) {
            odd++;
            continue;
        }
        low = x < low ? x : low;
        high = x > high ? x : high;
        sum += x;
    }
    tci_str text = {0};
    tci_str_printf(&text, "tc value %s: %s [", p->says, tci_dtype_get(in->dtype)->name);
    for (int i = 0; i < in->rank; i++) {
        tci_str_printf(&text, "%s%lld", i ? ", " : "", (long long)in->sizes[i]);
    }
    tci_str_add(&text, "]");
    if (in->n > odd) {
        tci_str_printf(&text, ", %g to %g, mean %g", low, high, sum / (double)(in->n - odd));
    }
    if (odd) {
        tci_str_printf(&text, ", %lld of %lld not finite", (long long)odd, (long long)in->n);
    }
    tci_str_add(&text, ":");
    for (int64_t i = 0; i < in->n && i < TCI_PROBE_SHOWN; i++) {
        tci_str_printf(&text, " %g", tci_probe_number(in, i));
    }
    fprintf(stderr, "%s%s\n", tci_str_text(&text), in->n > TCI_PROBE_SHOWN ? " ..." : "");
    tci_str_free(&text);
}

static void tci_probe_fail(const tci_probe *p, const char *what, int64_t at)
{
    char text[400];
    snprintf(text, sizeof(text), "%s: element %lld %s", p->says, (long long)at, what);
    tci_checker_fail(text);
}

static void tci_probe_finite(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
{
    (void)n;
    tci_probe_copy(in, out);
    for (int64_t i = 0; i < in->n; i++) {
        double x = tci_probe_number(in, i);
        if (!isfinite(x)) {
            tci_probe_fail(user, x != x ? "is NaN" : "is infinite", i);
            return;
        }
    }
}

static void tci_probe_all(void *user, const tc_custom_array *in, int n, tc_custom_array *out)
{
    (void)n;
    tci_probe_copy(in, out);
    for (int64_t i = 0; i < in[1].n; i++) {
        if (tci_probe_number(&in[1], i) == 0) {
            tci_probe_fail(user, "does not hold", i);
            return;
        }
    }
}

TCI_FN bool tci_checker_asserts(const tc_custom_op *op)
{
    return op->run == tci_probe_finite || op->run == tci_probe_all;
}

static tc_tensor tci_probe_vjp(void *user, tc_tensors inputs, tc_tensor result, tc_tensor grad,
                               int which)
{
    (void)user, (void)inputs, (void)result;
    return which == 0 ? grad : TC_NONE;
}

static char *tci_probe_text(const char *kind, const char *text, tc_site here)
{
    tci_str s = {0};
    tci_str_printf(&s, "%s%.200s%s%s", kind, text ? text : "", text && here.file ? " (" : "",
                   here.file && !text ? "" : "");
    if (here.file) {
        tci_str_printf(&s, "%s:%d%s", tci_origin_base(here.file), here.line, text ? ")" : "");
    }
    return s.failed ? NULL : s.text;
}

/* The op of that kind, text and place: a program on disk knows it by its name. */
static tc_tensor tci_probe_make(const char *kind, const char *text, tc_tensors inputs,
                                void (*run)(void *, const tc_custom_array *, int,
                                            tc_custom_array *),
                                tc_site here)
{
    char *name = tci_probe_text(kind, text, here), *says = tci_probe_text("", text, here);
    const tci_custom *known = name ? tci_custom_find(name, 1) : NULL;
    tci_probe *p = known || !name || !says ? NULL : tci_heap_get(sizeof(*p)); /* for ever, as ops */
    tc_custom_op op = {.name = name,
                       .version = 1,
                       .run = run,
                       .vjp = tci_probe_vjp,
                       .user = known ? known->op.user : p};
    if (p) {
        *p = (tci_probe){name, says};
    }
    tc_tensor y = name ? tc_custom_at(&op, inputs, here) : inputs.items[0];
    if (!p) {
        tci_heap_free(name);
        tci_heap_free(says);
    }
    return y;
}

TC_API tc_tensor tc_print_value_at(tc_tensor x, const char *name, tc_site here)
{
    return tci_probe_make("tc_print_value ", name ? name : "", (tc_tensors){&x, 1}, tci_probe_print,
                          here);
}

TC_API tc_tensor tc_assert_finite_at(tc_tensor x, tc_site here)
{
    return tci_probe_make("tc_assert_finite ", NULL, (tc_tensors){&x, 1}, tci_probe_finite, here);
}

TC_API tc_tensor tc_assert_all_at(tc_tensor x, tc_tensor mask, const char *text, tc_site here)
{
    tc_tensor both[2] = {x, mask};
    return tci_probe_make("tc_assert_all ", text ? text : "", (tc_tensors){both, 2}, tci_probe_all,
                          here);
}

#else

TCI_FN bool tci_checker_asserts(const tc_custom_op *op)
{
    (void)op;
    return false;
}

TC_API tc_tensor tc_print_value_at(tc_tensor x, const char *name, tc_site here)
{
    (void)name, (void)here;
    return x;
}

TC_API tc_tensor tc_assert_finite_at(tc_tensor x, tc_site here)
{
    (void)here;
    return x;
}

TC_API tc_tensor tc_assert_all_at(tc_tensor x, tc_tensor mask, const char *text, tc_site here)
{
    (void)mask, (void)text, (void)here;
    return x;
}

#endif
