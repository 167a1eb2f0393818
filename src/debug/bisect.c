/* debug/bisect.c - localizes a wrong result: runs the program in configurations of increasing
 * optimization and reports the first whose result differs.
 *
 * In: a program and its inputs. Out: a line for each configuration, from the least optimized to the
 * program's own, and the first one whose result differs.
 *
 * Design: all configurations compute the same bits, except for sums in another order, so the first
 * that differs names the part of tc (or of the compiler) to look at. The graph is read from the key
 * (debug/captured_program.c), so the program's context is not needed. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "../api/debug.h"
#include "captured_program.h"
#include "string_intern.h"
#include "source_location.h"

#ifndef TC_NO_DEBUG

typedef struct tci_rung {
    const char *what, *backend;
    int fusion, vector_bits;
    bool verify;
    const char *blames; /* where the result changes here */
} tci_rung;

static const tci_rung tci_rungs[] = {
    {"interpreter, op by op", "interp", -1, 0, true, ""},
    {"interpreter, fused", "interp", 0, 0, true, "the fusion of ops (src/plan)"},
    {"cpu, scalar", "cpu", 0, -1, false, "generated code or the C compiler"},
    {"cpu, each op by itself", "cpu", -1, 0, false, "vectors in generated code"},
    {"cpu", "cpu", 0, 0, false, "schedules of fused kernels (src/loop)"},
    {"cuda", "cuda", 0, 0, false, "the GPU's code or NVRTC"}};

/* The largest difference over the largest number; 0: the same bits, NaN being equal. */
static double tci_triage_difference(const char *a, const char *b, const tci_case_node *n)
{
    int64_t bytes = tci_case_bytes(n), size = tci_dtype_get((tc_dtype)n->dtype)->bytes;
    double most = 0, apart = 0;
    bool is_float = tci_dtype_is_float((tc_dtype)n->dtype);
    for (int64_t at = 0; at < bytes; at += size) {
        tci_value x = tci_value_load((tc_dtype)n->dtype, a + at);
        tci_value y = tci_value_load((tc_dtype)n->dtype, b + at);
        double p = is_float ? x.f : (double)x.i, q = is_float ? y.f : (double)y.i;
        bool nan = p != p || q != q;
        double d = !memcmp(a + at, b + at, (size_t)size) || (p != p && q != q) ? 0
                   : nan                                                       ? INFINITY
                                                                               : fabs(p - q);
        most = TCI_MAX(most, nan ? 0 : fabs(q));
        apart = TCI_MAX(apart, d);
    }
    return apart > 0 ? apart / (most > 0 && isfinite(most) ? most : 1) : 0;
}

typedef struct tci_triage {
    tci_scratch *s;
    tc_program *f;
    FILE *out;
    tci_case k;
    const char *plain;   /* the first rung's result */
    const char *changed; /* what the first rung that differs blames; NULL: none does */
} tci_triage;

static void tci_triage_rung(tci_triage *t, const tci_rung *r)
{
    const tc_options *of = &t->f->options;
    const char *cc = t->f->cc ? tci_label_text(t->f->cc) : NULL;
    tc_options o = {.backend = r->backend,
                    .math = of->math,
                    .fallback = TC_FALLBACK_REFUSE,
                    .threads = 1,
                    .vector_bits = r->vector_bits ? r->vector_bits : of->vector_bits,
                    .matrix = of->matrix,
                    .reproducible = of->reproducible,
                    .fusion = r->fusion,
                    .cc = cc,
                    .no_disk_cache = true,
                    .verify = r->verify,
                    .check = TC_CHECK_NO_FILE};
    const char *result = NULL;
    tc_status status = tci_case_result(t->s, &t->k, &o, &result);
    fprintf(t->out, "%-24s ", r->what);
    if (status) {
        fprintf(t->out, "%s\n", status == TC_ERR_BACKEND ? "is not here" : tc_status_text(status));
        bool fails = status != TC_ERR_BACKEND && status != TC_ERR_UNSUPPORTED;
        t->changed = t->changed || !fails ? t->changed : r->blames;
        return;
    }
    t->plain = t->plain ? t->plain : result;
    double apart = tci_triage_difference(result, t->plain, &t->k.nodes[t->k.root]);
    if (apart > 0) {
        fprintf(t->out, "differs by %.2g of the largest element%s\n", apart,
                apart < 1e-4 ? ": as sums in another order do" : "");
        t->changed = t->changed || apart < 1e-4 ? t->changed : r->blames;
    } else {
        fputs(t->plain == result ? "ok\n" : "the same bits\n", t->out);
    }
}

/* The text is for tc_error(f); returns why. */
TCI_PRINTF(3, 4)
static tc_status tci_triage_refuse(tc_program *f, tc_status why, const char *format, ...)
{
    char text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    tci_program_record(f, why, "tc_triage", text);
    return why;
}

static tc_status tci_triage_input(tc_program *f, const tc_buf *b, int i)
{
    const tci_code_port *port = &f->code->inputs[i];
    if (f->code->n_symbols) {
        return tci_triage_refuse(f, TC_ERR_UNSUPPORTED,
                                 "the program has symbolic sizes: expected one that is compiled "
                                 "for the sizes of these inputs");
    }
    if (!b->data) {
        return tci_triage_refuse(f, TC_ERR_BUFFER, "input %d: given NULL, expected %lld elements",
                                 i, (long long)port->n);
    }
    if (b->n != tci_dim_known(port->n)) {
        return tci_triage_refuse(f, TC_ERR_BUFFER, "input %d: given %lld elements, expected %lld",
                                 i, (long long)b->n, (long long)port->n);
    }
    return TC_OK;
}

static tc_status tci_triage_in(tci_triage *t, const tc_bufs *inputs)
{
    const tc_program *f = t->f;
    const char **in = TCI_NEW_ARRAY(t->s, const char *, f->n_inputs + 1);
    const char **captured = TCI_NEW_ARRAY(t->s, const char *, f->n_captured + 1);
    for (int i = 0; i < f->n_inputs; i++) {
        in[i] = inputs->items[i].data;
    }
    for (int i = 0; i < f->n_captured; i++) {
        const tci_storage *s = f->captured[i];
        captured[i] = s->param ? s->data : f->captured_data[i];
    }
    tci_case_memory memory = {f->literals, in, captured};
    if (!f->key_graph ||
        !tci_case_read(t->s, f->code->key, f->code->key_bytes, f->key_graph, &memory, &t->k)) {
        return tci_triage_refuse(t->f, TC_ERR_UNSUPPORTED,
                                 "the graph of the program is not known: expected one that this "
                                 "process compiled");
    }
    t->k = tci_case_cut(t->s, &t->k, t->k.root, NULL);
    for (int i = 0; i < TCI_COUNT(tci_rungs); i++) {
        tci_triage_rung(t, &tci_rungs[i]);
    }
    fprintf(t->out, t->changed ? "the result changes with %s\n" : "%s the result is the same\n",
            t->changed ? t->changed : "in all of them");
    return TC_OK;
}

TC_API tc_status tc_triage(tc_program *f, tc_bufs inputs, FILE *out)
{
    tci_scratch s;
    if (!f) {
        return TC_ERR_ARGUMENT;
    }
    if (!out || inputs.n != f->n_inputs || (inputs.n && !inputs.items)) {
        return tci_triage_refuse(f, TC_ERR_ARGUMENT,
                                 "given %d inputs%s and %s, expected %d and an open file", inputs.n,
                                 inputs.n && !inputs.items ? " at NULL" : "",
                                 out ? "a file" : "no file", f->n_inputs);
    }
    for (int i = 0; i < inputs.n; i++) {
        tc_status refused = tci_triage_input(f, &inputs.items[i], i);
        if (refused) {
            return refused;
        }
    }
    tci_triage t = {.s = &s, .f = f, .out = out};
    tci_scratch_init(&s);
    tc_status status;
    if (setjmp(s.escape)) {
        status = tci_triage_refuse(f, s.why, "%s", s.message);
    } else {
        status = tci_triage_in(&t, &inputs);
    }
    tci_scratch_free(&s);
    bool unwritten = !status && ferror(out);
    return unwritten ? tci_triage_refuse(f, TC_ERR_IO, "the file cannot be written") : status;
}

#else

TC_API tc_status tc_triage(tc_program *f, tc_bufs inputs, FILE *out)
{
    (void)f, (void)inputs, (void)out;
    return TC_ERR_UNSUPPORTED;
}

#endif
