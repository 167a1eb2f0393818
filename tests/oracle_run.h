/* tests/oracle_run.h - replays the cases of an oracle manifest through the public calls.
 *
 * In: a manifest and its arrays (../shared/oracles/README.md and the manifest's own `doc` say how
 * they are written), a backend, a regex of op names. Out: a line per op and the totals.
 * The idea: cases are built as graphs of one context and compiled ORC_BATCH at a time by one
 * tc_compile_many, then run and compared: |got - want| <= max(1e-5, 8 * ferr) * (S + |want|), S the
 * root mean square of the wanted tensor held within [1e-3, 1]; NaN equals NaN, infinities are
 * exact. */
#ifndef TC_TEST_ORACLE_RUN_H
#define TC_TEST_ORACLE_RUN_H

#include <regex.h>

#include "oracle_grad.h"

enum { ORC_BATCH = 400 };

typedef struct orc_tally {
    const char *op;
    bool in_table;
    int passed, failed, skipped;
} orc_tally;

typedef struct orc_pending orc_pending;
typedef struct orc_run orc_run;
struct orc_run {
    const json *manifest;
    const st_file *arrays;
    const char *backend, *cc; /* NULL: the default */
    regex_t *filter;          /* NULL: every op */
    bool quiet;               /* no line for what passed or was skipped */
    bool silent;              /* no line at all */
    bool grad;                /* then replay the gradients too */
    bool differentiate;       /* that is under way */
    int every;                /* each so many cases of a list; 0: all */
    bool first_of_op;         /* of each op the first case with elements; they follow each other */
    bool may_refuse;          /* the backend is an engine: what it refuses is skipped */
    bool symbolic;            /* under TC_DYNAMIC_SHAPES: inputs have symbolic sizes */
    orc_tally tallies[1024];
    int n_tallies;
    int passed, failed, skipped;
    /* Judges built cases by other means than tc's programs (tests/elsewhere.h); NULL: none */
    void (*elsewhere)(orc_run *r, orc_pending *pending, int n);
    /* Why a failure of this case is none: the backend's rules are others; NULL: it is one */
    const char *(*unlike)(const orc_run *r, const json *spec);
};

struct orc_pending {
    orc_case c;
    tc_program *program;
    bool must_fail;
};

static orc_tally *orc_tally_get(orc_run *r, const char *op)
{
    for (int i = 0; i < r->n_tallies; i++) {
        if (!strcmp(r->tallies[i].op, op)) {
            return &r->tallies[i];
        }
    }
    orc_tally *t = &r->tallies[r->n_tallies < 1023 ? r->n_tallies++ : 1023];
    t->op = op;
    orc_row row;
    t->in_table = orc_row_find(op, &row);
    return t;
}

/* ---- verdicts ---- */

static void orc_print_case(const json *spec)
{
    const json *id = json_get(spec, "id"), *args = json_get(spec, "args"),
               *keywords = json_get(spec, "kwargs");
    printf("%s%s%s", json_string(spec, "op"), json_string(spec, "variant")[0] ? "." : "",
           json_string(spec, "variant"));
    if (id) {
        printf(" #%lld", (long long)id->integer);
    }
    for (int i = 0; i < 2; i++) {
        const json *v = i ? keywords : args;
        size_t room = i ? 200 : 300;
        if (v) {
            printf(" %.*s", (int)(v->text_bytes < room ? v->text_bytes : room), v->text);
        }
    }
}

static void orc_pass(orc_run *r, const json *spec)
{
    orc_tally_get(r, json_string(spec, "op"))->passed++;
}

static void orc_skipped(orc_run *r, const json *spec, const char *reason)
{
    orc_tally_get(r, json_string(spec, "op"))->skipped++;
    if (!r->quiet) {
        printf("  skip %s%s%s: %s\n", json_string(spec, "op"),
               json_string(spec, "variant")[0] ? "." : "", json_string(spec, "variant"), reason);
    }
}

__attribute__((format(printf, 3, 4))) static void orc_fail(orc_run *r, const json *spec,
                                                           const char *format, ...)
{
    va_list args;
    const char *why = r->unlike ? r->unlike(r, spec) : NULL;
    if (why) {
        orc_skipped(r, spec, why);
        return;
    }
    orc_tally_get(r, json_string(spec, "op"))->failed++;
    if (r->silent) {
        return;
    }
    printf("  FAIL ");
    orc_print_case(spec);
    printf("\n       ");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
}

/* ---- values ---- */

static double orc_half_value(unsigned bits, int exponent_bits)
{
    int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (int)(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    double fraction = ldexp(bits & ((1u << fraction_bits) - 1), -fraction_bits);
    double value = exponent == (1 << exponent_bits) - 1 ? (fraction != 0 ? NAN : INFINITY)
                   : exponent                           ? ldexp(1 + fraction, exponent - bias)
                                                        : ldexp(fraction, 1 - bias);
    return bits >> 15 ? -value : value;
}

static double orc_load(tc_dtype t, const void *p, int64_t i)
{
    switch (t) {
    case TC_BOOL: return ((const uint8_t *)p)[i] != 0;
    case TC_U8: return ((const uint8_t *)p)[i];
    case TC_U16: return ((const uint16_t *)p)[i];
    case TC_U32: return ((const uint32_t *)p)[i];
    case TC_U64: return (double)((const uint64_t *)p)[i];
    case TC_I8: return ((const int8_t *)p)[i];
    case TC_I16: return ((const int16_t *)p)[i];
    case TC_I32: return ((const int32_t *)p)[i];
    case TC_I64: return (double)((const int64_t *)p)[i];
    case TC_F16: return orc_half_value(((const uint16_t *)p)[i], 5);
    case TC_BF16: return orc_half_value(((const uint16_t *)p)[i], 8);
    case TC_F32: return (double)((const float *)p)[i];
    default: return ((const double *)p)[i];
    }
}

static double orc_scale(tc_dtype t, const void *want, int64_t n)
{
    double sum = 0, count = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = orc_load(t, want, i);
        if (isfinite(v)) {
            sum += v * v;
            count++;
        }
    }
    double rms = count > 0 ? sqrt(sum / count) : 0;
    return rms < 1e-3 ? 1e-3 : rms > 1 ? 1 : rms;
}

static double orc_least_error = 1e-5; /* engines other than tc may need more */

/* The first element that is off, or -1. */
static int64_t orc_compare(tc_dtype t, const void *got, const void *want, int64_t n, double ferr)
{
    double tolerance = 8 * ferr > orc_least_error ? 8 * ferr : orc_least_error;
    double scale = orc_scale(t, want, n);
    if (!orc_is_float(t)) {
        size_t bytes = orc_dtype_get(t)->bytes;
        for (int64_t i = 0; i < n; i++) {
            if (memcmp((const char *)got + (size_t)i * bytes,
                       (const char *)want + (size_t)i * bytes, bytes)) {
                return i;
            }
        }
        return -1;
    }
    for (int64_t i = 0; i < n; i++) {
        double a = orc_load(t, got, i), b = orc_load(t, want, i);
        bool same = a == b || (isnan(a) && isnan(b));
        if (!same && !(isfinite(b) && fabs(a - b) <= tolerance * (scale + fabs(b)))) {
            return i;
        }
    }
    return -1;
}

/* ---- skips of whole cases ---- */

static bool orc_has_flag(const json *spec, const char *flag)
{
    const json *flags = json_get(spec, "flags");
    for (const json *f = flags ? flags->first : NULL; f; f = f->next) {
        if (f->kind == JSON_STRING && !strcmp(f->string, flag)) {
            return true;
        }
    }
    return false;
}

static bool orc_has_gradients(const json *spec)
{
    const json *grads = json_get(spec, "grads");
    return grads && grads->n > 0;
}

static bool orc_has_number(const json *args)
{
    for (const json *v = args ? args->first : NULL; v; v = v->next) {
        if (v->kind == JSON_NUMBER) {
            return true;
        }
    }
    return false;
}

/* Differences of unsigned integers, which torch takes before it makes floats of them; an index
 * without elements, which torch takes of any shape. NULL: neither. */
static const char *orc_unlike(const json *spec)
{
    static const char *const ops[] = {ORC_NN "margin_ranking_loss", ORC_NN "pairwise_distance",
                                      ORC_NN "triplet_margin_loss"};
    bool found = false;
    for (size_t i = 0; i < sizeof(ops) / sizeof(ops[0]); i++) {
        found |= !strcmp(json_string(spec, "op"), ops[i]);
    }
    if (found && !strcmp(json_string(spec, "dtype"), "u8")) {
        return "argument input of unsigned integers: wraps in torch, f32 in tc";
    }
    const json *args = json_get(spec, "args"), *x = args ? json_at(args, 0) : NULL;
    const json *index = args && args->n > 2 ? json_at(args, 2) : NULL;
    int64_t sizes[ORC_MAX_RANK + 1];
    bool none = !strcmp(json_string(spec, "op"), "gather") && index && orc_is_tensor(index) &&
                orc_is_tensor(x) && orc_spec_sizes(index, sizes) == 0;
    return none && json_get(index, "s")->n != json_get(x, "s")->n
               ? "argument index without elements, of another rank"
               : NULL;
}

/* A float that the target integer of a cast cannot hold: undefined in torch, saturated by tc. */
static bool orc_cast_is_undefined(const orc_run *r, const orc_case *c)
{
    const json *out = json_at(json_get(c->spec, "outs"), 0);
    const orc_dtype *to = out ? orc_dtype_find(json_string(out, "d")) : NULL;
    const st_array *a = c->n_inputs == 1 ? st_find(r->arrays, json_string(c->input_specs[0], "t"))
                                         : NULL;
    tc_dtype from = c->n_inputs == 1 ? tc_dtype_of(c->inputs[0]) : TC_BOOL;
    if (!a || !to || !orc_is_float(from) || orc_is_float(to->dtype) || to->dtype == TC_BOOL) {
        return false;
    }
    bool is_signed = to->name[0] == 'i';
    double limit = ldexp(1, (int)to->bytes * 8 - is_signed), low = is_signed ? -limit : 0;
    for (int64_t i = 0; i < (int64_t)(a->bytes / orc_dtype_get(from)->bytes); i++) {
        double v = trunc(orc_load(from, a->data, i));
        if (!(v >= low && v < limit)) {
            return true;
        }
    }
    return false;
}

/* ---- one program ---- */

static void *orc_memory(size_t bytes)
{
    return aligned_alloc(64, (bytes + 64) / 64 * 64);
}

static size_t orc_input_bytes(const orc_case *c, int i)
{
    int64_t sizes[ORC_MAX_RANK + 1];
    return (size_t)orc_spec_sizes(c->input_specs[i], sizes) *
           orc_dtype_get(tc_dtype_of(c->inputs[i]))->bytes;
}

/* The first input that is not in the data file as the manifest says; NULL: all are. */
static const json *orc_missing_array(const orc_run *r, const orc_case *c)
{
    for (int i = 0; i < c->n_inputs; i++) {
        const st_array *a = st_find(r->arrays, json_string(c->input_specs[i], "t"));
        if (!a || a->bytes != orc_input_bytes(c, i)) {
            return c->input_specs[i];
        }
    }
    return NULL;
}

/* The case's status; outputs in memory that the caller frees. */
static tc_status orc_run_program(const orc_run *r, orc_pending *p, void **outputs)
{
    orc_case *c = &p->c;
    tc_buf ins[ORC_MAX_TENSORS], outs[ORC_MAX_TENSORS];
    int64_t sizes[2 * ORC_MAX_TENSORS][ORC_MAX_RANK + 1];
    const json *wants = orc_wants(c);
    tc_bufs in = {ins, c->n_inputs}, out = {outs, c->n_outputs};
    for (int i = 0; i < c->n_inputs; i++) {
        const st_array *a = st_find(r->arrays, json_string(c->input_specs[i], "t"));
        size_t bytes = orc_input_bytes(c, i);
        void *copy = orc_memory(bytes);
        if (copy) {
            memcpy(copy, a->data, bytes);
        }
        int64_t n = orc_spec_sizes(c->input_specs[i], sizes[i]);
        tc_buf b = {copy,
                    n,
                    (int)tc_dtype_of(c->inputs[i]),
                    true,
                    c->symbolic ? tc_rank(c->inputs[i]) : 0,
                    c->symbolic ? sizes[i] : NULL,
                    NULL};
        ins[i] = b;
    }
    for (int i = 0; i < c->n_outputs; i++) {
        int64_t *shape = sizes[ORC_MAX_TENSORS + i], n = tc_count(c->outputs[i]);
        if (c->symbolic) { /* the run compares them with what it computes */
            n = orc_spec_sizes(json_at(wants, i), shape);
        }
        outputs[i] = orc_memory((size_t)n * orc_dtype_get(tc_dtype_of(c->outputs[i]))->bytes);
        tc_buf b = {outputs[i],
                    n,
                    (int)tc_dtype_of(c->outputs[i]),
                    false,
                    c->symbolic ? tc_rank(c->outputs[i]) : 0,
                    c->symbolic ? shape : NULL,
                    NULL};
        outs[i] = b;
    }
    tc_status status = tc_run(p->program, in, out);
    for (int i = 0; i < c->n_inputs; i++) {
        free(ins[i].data);
    }
    return status;
}

/* Text of what is wrong with output i, or "". */
static void orc_check_output(const orc_run *r, const orc_case *c, int i, const json *want,
                             const void *got, char *text, size_t room)
{
    const orc_dtype *d = orc_dtype_find(json_string(want, "d")),
                    *own = orc_dtype_get(tc_dtype_of(c->outputs[i]));
    const json *shape = json_get(want, "s");
    const st_array *a = st_find(r->arrays, json_string(want, "t"));
    text[0] = 0;
    bool fits = shape && shape->n == tc_rank(c->outputs[i]);
    for (int k = 0; fits && k < shape->n; k++) {
        const json *size = json_at(shape, k);
        fits = size->is_integer && (c->symbolic || size->integer == tc_size(c->outputs[i], k));
    }
    if (!d || !fits || d != own) {
        snprintf(text, room, "output %d is %s of rank %d, expected %s %.*s", i, own->name,
                 tc_rank(c->outputs[i]), json_string(want, "d"), shape ? (int)shape->text_bytes : 0,
                 shape ? shape->text : "");
        return;
    }
    int64_t sizes[ORC_MAX_RANK + 1], n = orc_spec_sizes(want, sizes);
    if (!a || a->bytes != (size_t)n * own->bytes) {
        snprintf(text, room, "array %s is not in the data file", json_string(want, "t"));
        return;
    }
    if (c->is_index[i] && orc_has_flag(c->spec, "ties")) {
        return;
    }
    int64_t at = orc_compare(d->dtype, got, a->data, n, orc_own_error(c));
    if (at >= 0) {
        snprintf(text, room, "output %d, element %lld is %.9g, expected %.9g", i, (long long)at,
                 orc_load(d->dtype, got, at), orc_load(d->dtype, a->data, at));
    }
}

/* Why tc takes what torch refuses; NULL: it should not. */
static const char *orc_is_legal(const json *spec)
{
    static const struct {
        const char *says, *reason; /* a part of torch's text */
    } rules[] = {
        {"inconsistent with step sign", "a ramp the other way has no elements, as NumPy's"},
        {"to have same dtype", "dtypes meet in tc"},
        {"must be an 0-dim integral Tensor", "a rule of Python's types"},
        {"could not infer output dtype", "means of integers are floats in tc"},
        {"non-positive groups", "0 is what an option is that was not given"},
        {"dilation must be greater than zero", "0 is what an option is that was not given"},
        {"not supported for strided convolutions", "the driver makes the padding of \"same\""},
        {"number of channels to be greater than 0", "of no elements the result has none"},
        {"HxW to be greater than 0", "of no elements the result has none"},
        {"same number of dimensions", "shapes broadcast in tc"},
        {"non-positive values for delta", "an operand's value is no part of a program"},
        {"tensor with <= 2", "tc has no such call to refuse it"},
        {"Input must be >= 1-d", "axis 0 of no axes is the element"},
        {"Dimension specified as 0", "axis 0 of no axes is the element"},
    };
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (strstr(json_string(spec, "regex"), rules[i].says)) {
            return rules[i].reason;
        }
    }
    return NULL;
}

/* Of a case that ran: its outputs against those that the manifest wants. */
static void orc_judge_outputs(orc_run *r, const orc_case *c, void *const *outputs)
{
    const json *wants = orc_wants(c), *want;
    char text[256] = "";
    int i = 0;
    if (!wants || wants->n != c->n_outputs) {
        orc_fail(r, c->spec, "%d outputs, expected %d", c->n_outputs, wants ? wants->n : 0);
        return;
    }
    for (want = wants->first; want && !text[0]; want = want->next, i++) {
        orc_check_output(r, c, i, want, outputs[i], text, sizeof(text));
    }
    if (text[0]) {
        orc_fail(r, c->spec, "%s", text);
    } else {
        orc_pass(r, c->spec);
    }
}

static void orc_judge(orc_run *r, orc_pending *p)
{
    void *outputs[ORC_MAX_TENSORS] = {NULL};
    tc_status status = orc_run_program(r, p, outputs);
    const char *legal = p->must_fail && status == TC_OK ? orc_is_legal(p->c.spec) : NULL;
    if (legal) {
        orc_skipped(r, p->c.spec, legal);
    } else if (p->must_fail && status == TC_OK) {
        orc_fail(r, p->c.spec, "must be refused: %s", json_string(p->c.spec, "regex"));
    } else if (p->must_fail) {
        orc_pass(r, p->c.spec);
    } else if (status) {
        orc_fail(r, p->c.spec, "the run failed: %s", tc_error(p->program));
    } else {
        orc_judge_outputs(r, &p->c, outputs);
    }
    for (int i = 0; i < ORC_MAX_TENSORS; i++) {
        free(outputs[i]);
    }
}

/* ---- batches ---- */

/* The job of a case in a tc_compile_many. */
static tc_job orc_job(orc_pending *p)
{
    tc_job job = {{p->c.inputs, p->c.n_inputs}, {p->c.outputs, p->c.n_outputs}, &p->program, TC_OK};
    return job;
}

static void orc_flush(orc_run *r, tc_ctx *ctx, orc_pending *pending, int n)
{
    tc_job jobs[ORC_BATCH];
    for (int i = 0; i < n; i++) {
        jobs[i] = orc_job(&pending[i]);
    }
    tc_compile_many(jobs, n, NULL);
    for (int i = 0; i < n; i++) {
        /* once more alone: its own fault, or a neighbour's? */
        if (jobs[i].status && !pending[i].must_fail) {
            jobs[i] = orc_job(&pending[i]);
            tc_compile_many(&jobs[i], 1, NULL);
        }
        if (!jobs[i].status) {
            orc_judge(r, &pending[i]);
        } else if (pending[i].must_fail) {
            orc_pass(r, pending[i].c.spec);
        } else if (r->symbolic && jobs[i].status != TC_ERR_INTERNAL) {
            orc_skipped(r, pending[i].c.spec, "refused with symbolic sizes");
        } else if (r->may_refuse &&
                   (jobs[i].status == TC_ERR_UNSUPPORTED || jobs[i].status == TC_ERR_BACKEND)) {
            orc_skipped(r, pending[i].c.spec, tc_error(pending[i].c.outputs[0]));
        } else {
            const char *said = pending[i].c.n_outputs ? tc_error(pending[i].c.outputs[0]) : "";
            orc_fail(r, pending[i].c.spec, "does not compile (%s): %s",
                     tc_status_text(jobs[i].status), said[0] ? said : tc_error(ctx));
        }
        tc_program_free(pending[i].program);
    }
}

/* Builds the case; true when it is now pending. */
static bool orc_prepare(orc_run *r, tc_ctx *ctx, const json *spec, orc_pending *p)
{
    orc_row row;
    char reason[160];
    if (!orc_row_find(json_string(spec, "op"), &row)) {
        orc_skipped(r, spec, "tc does not have this op");
        return false;
    }
    if (p->must_fail && !json_string(spec, "regex")[0]) {
        orc_skipped(r, spec, "a rule of Python's types");
        return false;
    }
    if (p->must_fail && orc_has_number(json_get(spec, "args")) && orc_takes_numbers(&row)) {
        orc_skipped(r, spec, "a number next to a tensor is legal in tc");
        return false;
    }
    if (!p->must_fail && orc_has_flag(spec, "ill")) {
        orc_skipped(r, spec, "ill conditioned");
        return false;
    }
    const char *unlike = p->must_fail ? NULL : orc_unlike(spec);
    if (unlike) {
        orc_skipped(r, spec, unlike);
        return false;
    }
    p->c.symbolic = r->symbolic;
    orc_build(&p->c, ctx, spec, &row);
    if (!p->c.skip[0] && !p->must_fail && row.adapter == orc_cast &&
        orc_cast_is_undefined(r, &p->c)) {
        orc_skip(&p->c, "argument input with a value that the dtype cannot hold");
    }
    if (p->c.skip[0]) {
        orc_skipped(r, spec, p->c.skip);
        return false;
    }
    const json *missing = orc_missing_array(r, &p->c);
    if (missing) {
        orc_fail(r, spec, "array %s is not in the data file", json_string(missing, "t"));
        return false;
    }
    for (int i = 0; r->symbolic && i < p->c.n_outputs; i++) { /* an axis that is 1 or 0 stays */
        const json *want = json_at(json_get(spec, "outs"), i),
                   *shape = want ? json_get(want, "s") : NULL;
        if (shape && !tc_status_of(p->c.outputs[i]) && shape->n != tc_rank(p->c.outputs[i])) {
            orc_skipped(r, spec, "an axis that is dropped where its size is known");
            return false;
        }
    }
    if (r->differentiate) {
        orc_differentiate(&p->c, r->arrays);
        if (p->c.skip[0]) {
            orc_skipped(r, spec, p->c.skip);
            return false;
        }
    }
    for (int i = 0; i < p->c.n_outputs; i++) {
        if (tc_status_of(p->c.outputs[i]) && p->must_fail) {
            orc_pass(r, spec);
            return false;
        }
        if (tc_status_of(p->c.outputs[i])) {
            snprintf(reason, sizeof(reason), "%s", tc_error(p->c.outputs[i]));
            if (r->symbolic && tc_status_of(p->c.outputs[i]) != TC_ERR_INTERNAL) {
                orc_skipped(r, spec, reason);
            } else if (strstr(reason, "expected a number that")) {
                orc_skipped(r, spec, "argument of a number that the dtype does not hold");
            } else {
                orc_fail(r, spec, "refused: %s", reason);
            }
            return false;
        }
    }
    return true;
}

/* True if the first output has elements. */
static bool orc_has_elements(const json *spec)
{
    int64_t sizes[ORC_MAX_RANK + 1];
    const json *outs = json_get(spec, "outs");
    return !outs || !outs->first || orc_spec_sizes(outs->first, sizes) > 0;
}

/* False: the case is not among those that r asks for. nth: how many came before; last_op: the op of
 * the last one that was asked for. */
static bool orc_is_asked(const orc_run *r, const json *spec, const char *last_op, int nth)
{
    const char *op = json_string(spec, "op");
    return (!r->differentiate || orc_has_gradients(spec)) && !(r->every && nth % r->every) &&
           !(r->first_of_op && (!strcmp(op, last_op) || !orc_has_elements(spec))) &&
           (!r->filter || !regexec(r->filter, op, 0, NULL, 0));
}

/* false: no context (no such backend). */
static bool orc_run_list(orc_run *r, const json *list, bool must_fail)
{
    tc_options options;
    memset(&options, 0, sizeof(options));
    options.backend = r->backend;
    options.cc = r->cc;
    options.fallback = r->backend && strcmp(r->backend, "interp") ? TC_FALLBACK_REFUSE
                                                                  : TC_FALLBACK_ALLOW;
    orc_pending *pending = (orc_pending *)calloc(ORC_BATCH, sizeof(*pending));
    const json *spec = list ? list->first : NULL;
    const char *last_op = "";
    int nth = 0;
    while (spec && pending) {
        tc_ctx *ctx;
        if (tc_ctx_make(&ctx, &options)) {
            free(pending);
            return false;
        }
        int n = 0;
        for (; spec && n < ORC_BATCH; spec = spec->next) {
            bool asked = orc_is_asked(r, spec, last_op, nth);
            nth += !r->differentiate || orc_has_gradients(spec);
            if (asked) {
                last_op = json_string(spec, "op");
                memset(&pending[n], 0, sizeof(pending[n]));
                pending[n].must_fail = must_fail;
                n += orc_prepare(r, ctx, spec, &pending[n]);
            }
        }
        if (r->elsewhere) {
            r->elsewhere(r, pending, n);
        } else {
            orc_flush(r, ctx, pending, n);
        }
        tc_ctx_free(ctx);
    }
    free(pending);
    return pending != NULL;
}

static void orc_report(orc_run *r)
{
    for (int i = 0; i < r->n_tallies; i++) {
        const orc_tally *t = &r->tallies[i];
        r->passed += t->passed;
        r->failed += t->failed;
        r->skipped += t->skipped;
        if (!r->silent && (!r->quiet || t->failed)) {
            printf("%-48s %4d passed %4d failed %4d skipped%s\n", t->op, t->passed, t->failed,
                   t->skipped, t->in_table ? "" : "  (tc does not have it)");
        }
    }
}

static inline bool orc_replay(orc_run *r)
{
    const json *cases = json_get(r->manifest, "cases");
    bool works = orc_run_list(r, cases, false) &&
                 (r->symbolic || orc_run_list(r, json_get(r->manifest, "errors"), true));
    if (r->grad && works) {
        r->differentiate = true;
        works = orc_run_list(r, cases, false);
    }
    orc_report(r);
    return works;
}

#endif
