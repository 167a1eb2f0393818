/* api/jit.c - tc_jit: a C function compiled once for each signature it is called with.
 *
 * In: a function that records a graph, buffers and static integers. Out: runs of the specialization
 * that serves them (run/specializations.h); a missing one is recorded in a private context and
 * compiled.
 *
 * Design: a known signature costs a lookup without a lock and a run as in tc_run. All other
 * operations (recording, compiling, dropping) hold the lock of the tc_jit. A call that
 * specializes counts as a reader from before its lookup until its run ends, so its specialization
 * cannot be freed meanwhile. */
#include "../run/specializations.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../base/alloc.h"
#include "../debug/log.h"
#include "../debug/recompile.h"
#include "../run/shape_instances.h"
#include "../run/async_compile.h"
#include "../run/hot_sizes.h"
#include "shape_bucketing.h"
#include "compile.h"
#include "internal.h"
#include "auto_dynamic_shapes.h"
#include "recording_compare.h"
#include "specialization_trial.h"

enum {
    TCI_SPEC_VARIANTS = 8,          /* in all, unless the options say */
    TCI_SPEC_HOT = 4,               /* likewise, of sizes that keep coming */
    TCI_SPEC_MOST_STATICS = 1 << 16 /* and inputs: more is taken for a wrong number */
};
static const int64_t tci_spec_most_size = (int64_t)1 << 60; /* numbers above may be symbols */

struct tc_jit {
    tci_variants variants;
    tc_jit_build build;
    void *user;
    tc_ctx *ctx;
    tc_site site; /* of tc_jit_make */
    char name[64];
    tci_build_trace trace; /* of its context */
    tc_stance stance;      /* atomic */
    int n_outputs, max_variants, max_hot;
    tc_beyond beyond;
    tci_general general;
    bool check;
    bool limited;     /* max_variants was reached, and the log said so */
    tci_mutex lock;   /* of recording, the table's writer, and `ctx` */
    uint64_t builder; /* atomic: tci_os_thread_id of who has it; 0: none */
    tci_mutex errors_lock;
    tci_thread_errors errors;
};

/* One call on a tc_jit. */
typedef struct tci_spec_call {
    tc_jit *fn;
    const char *op;
    tc_site here;
    tci_signature sig;
    tci_variant *made; /* the specialization that is being made */
    int64_t begin_ns;  /* of recording */
    char text[1024];   /* of its failure */
} tci_spec_call;

/* ---- errors ---- */

static tc_status tci_spec_fail(tci_spec_call *c, tc_status why, const char *format, ...)
    TCI_PRINTF(3, 4);
static tc_status tci_spec_fail(tci_spec_call *c, tc_status why, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->text, sizeof(c->text), format, args);
    va_end(args);
    return why;
}

/* The end of a call that failed: tc_jit_error has the message. */
static tc_status tci_spec_record(tci_spec_call *c, tc_status why, const char *text)
{
    char op[480];
    if (c->here.file) {
        snprintf(op, sizeof(op), "%.400s:%d: %s of %s", c->here.file, c->here.line, c->op,
                 c->fn->name);
    } else {
        snprintf(op, sizeof(op), "%s of %s", c->op, c->fn->name);
    }
    tci_errors_record(&c->fn->errors, &c->fn->errors_lock, why, op, text);
    return why;
}

/* ---- signatures ---- */

/* "f32[8, 64] i32[8], statics 3, 4" as far as there is room. */
static void tci_spec_print(const tci_signature *sig, char *text, size_t room)
{
    size_t n = 0;
    text[0] = 0;
    for (int i = 0; i < sig->inputs->n && n + 1 < room; i++) {
        const tc_buf *b = &sig->inputs->items[i];
        const int64_t *sizes = tci_variants_sizes(b);
        n += (size_t)snprintf(text + n, room - n, "%s%s[", i ? " " : "",
                              tc_dtype_name((tc_dtype)b->dtype));
        for (int a = 0; a < tci_variants_rank(b) && n + 1 < room; a++) {
            n += (size_t)snprintf(text + n, room - n, "%s%lld", a ? ", " : "", (long long)sizes[a]);
        }
        n += n + 1 < room ? (size_t)snprintf(text + n, room - n, "]") : 0;
    }
    for (int i = 0; sig->statics && i < sig->statics->n && n + 1 < room; i++) {
        n += (size_t)snprintf(text + n, room - n, "%s%lld", i ? ", " : ", statics ",
                              (long long)sig->statics->items[i]);
    }
}

/* The signature that a specialization serves. */
static void tci_spec_print_variant(const tci_variant *x, char *text, size_t room)
{
    const tci_variant_kind *k = x->kind;
    const tci_variant_guard *g = x->guards;
    size_t n = 0;
    text[0] = 0;
    for (int i = 0; i < k->n_inputs && n + 1 < room; i++) {
        n += (size_t)snprintf(text + n, room - n, "%s%s[", i ? " " : "",
                              tc_dtype_name((tc_dtype)k->dtypes[i]));
        for (int a = 0; a < k->ranks[i] && n + 1 < room; a++, g++) {
            const char *comma = a ? ", " : "";
            if (g->least == g->most) {
                n += (size_t)snprintf(text + n, room - n, "%s%lld", comma, (long long)g->least);
            } else if (g->same_input >= 0) {
                n += (size_t)snprintf(text + n, room - n, "%sas %d.%d", comma, g->same_input,
                                      g->same_axis);
            } else {
                n += (size_t)snprintf(text + n, room - n, "%s%lld..%lld", comma,
                                      (long long)g->least, (long long)g->most);
            }
        }
        n += n + 1 < room ? (size_t)snprintf(text + n, room - n, "]") : 0;
    }
    for (int i = 0; i < k->n_statics && n + 1 < room; i++) {
        n += (size_t)snprintf(text + n, room - n, "%s%lld", i ? ", " : ", statics ",
                              (long long)k->statics[i]);
    }
}

/* Checks that the lists are given, so that the lookup may read them. */
static tc_status tci_spec_check_lists(tci_spec_call *c)
{
    const tc_bufs *inputs = c->sig.inputs;
    const tc_statics *s = c->sig.statics;
    if (inputs->n < 0 || inputs->n > TCI_SPEC_MOST_STATICS || (inputs->n && !inputs->items)) {
        return tci_spec_fail(c, TC_ERR_ARGUMENT, "given a list of %d inputs at %p", inputs->n,
                             (const void *)inputs->items);
    }
    if (s && (s->n < 0 || s->n > TCI_SPEC_MOST_STATICS || (s->n && !s->items))) {
        return tci_spec_fail(c, TC_ERR_ARGUMENT, "given a list of %d static integers at %p", s->n,
                             (const void *)s->items);
    }
    return TC_OK;
}

/* Checks that the inputs form a signature. */
static tc_status tci_spec_check_inputs(tci_spec_call *c)
{
    for (int i = 0; i < c->sig.inputs->n; i++) {
        const tc_buf *b = &c->sig.inputs->items[i];
        if (!tci_dtype_is_valid(b->dtype)) {
            return tci_spec_fail(c, TC_ERR_BUFFER,
                                 "input %d: given memory of no type, expected "
                                 "typed memory: its dtype is part of the signature",
                                 i);
        }
        const int64_t *sizes = tci_variants_sizes(b);
        for (int a = 0; a < tci_variants_rank(b); a++) {
            if (sizes[a] < 0 || sizes[a] > tci_spec_most_size) {
                return tci_spec_fail(c, TC_ERR_BUFFER,
                                     "input %d: given size %lld on axis %d, "
                                     "expected 0 to 2^60",
                                     i, (long long)sizes[a], a);
            }
        }
    }
    return TC_OK;
}

/* The first axis of the signature that x does not serve: *input, *axis; returns how many there
 * are. */
static int tci_spec_misfits(const tci_spec_call *c, const tci_variant *x, int *input, int *axis)
{
    const tci_variant_guard *g = x->guards;
    int n = 0;
    for (int i = 0; i < c->sig.inputs->n; i++) {
        const int64_t *sizes = tci_variants_sizes(&c->sig.inputs->items[i]);
        for (int a = 0; a < x->kind->ranks[i]; a++, g++) {
            const tc_buf *same = g->same_input >= 0 ? &c->sig.inputs->items[g->same_input] : NULL;
            bool fits = sizes[a] >= g->least && sizes[a] <= g->most &&
                        (!same || tci_variants_sizes(same)[g->same_axis] == sizes[a]);
            if (!fits && !n++) {
                *input = i;
                *axis = a;
            }
        }
    }
    return n;
}

/* Number of parts of the signature (static integers, dtypes, ranks, sizes) that x does not serve;
 * `first` says which is the first of them. */
static int tci_spec_differs(const tci_spec_call *c, const tci_variant *x, char *first, size_t room)
{
    const tci_variant_kind *k = x->kind;
    const tc_statics *s = c->sig.statics;
    const tc_bufs *in = c->sig.inputs;
    int n_statics = s ? s->n : 0, n = 0, input, axis;
    bool same_ranks = k->n_inputs == in->n;
    if (!same_ranks && !n++) {
        snprintf(first, room, "the number of inputs");
    }
    for (int i = 0; i < TCI_MIN(in->n, k->n_inputs); i++) {
        bool dtype = k->dtypes[i] == in->items[i].dtype;
        bool rank = k->ranks[i] == tci_variants_rank(&in->items[i]);
        if ((!dtype || !rank) && !n++) {
            snprintf(first, room, "the %s of input %d", dtype ? "rank" : "dtype", i);
        }
        same_ranks = same_ranks && rank;
    }
    if (k->n_statics != n_statics && !n++) {
        snprintf(first, room, "the number of static integers");
    }
    for (int i = 0; i < TCI_MIN(n_statics, k->n_statics); i++) {
        if (k->statics[i] != s->items[i] && !n++) {
            snprintf(first, room, "static integer %d", i);
        }
    }
    int sizes = same_ranks ? tci_spec_misfits(c, x, &input, &axis) : 0;
    if (sizes && !n) {
        snprintf(first, room, "axis %d of input %d", axis, input);
    }
    return n + sizes;
}

/* The error: the signature asked for, and how the nearest specialization differs from it. */
static tc_status tci_spec_frozen(tci_spec_call *c)
{
    const tci_variant *near = NULL;
    char asked[300], has[300] = "", what[64], first[64] = "";
    int n_all = 0, fewest = INT32_MAX;
    uint32_t slot = 0;
    tci_spec_print(&c->sig, asked, sizeof(asked));
    for (const tci_variant_list *l; (l = tci_variants_next(c->fn->variants.table, &slot));) {
        for (int i = 0; i < l->n; i++, n_all++) {
            int n = tci_spec_differs(c, l->items[i], what, sizeof(what));
            if (n < fewest) {
                fewest = n;
                near = l->items[i];
                memcpy(first, what, sizeof(first));
            }
        }
    }
    if (!near) {
        return tci_spec_fail(c, TC_ERR_FROZEN,
                             "asked for %s: there is no specialization, and the stance allows no "
                             "compile",
                             asked);
    }
    tci_spec_print_variant(near, has, sizeof(has));
    return tci_spec_fail(c, TC_ERR_FROZEN,
                         "asked for %s: the nearest of %d specializations serves %s and differs in "
                         "%s, and the stance allows no compile",
                         asked, n_all, has, first);
}

/* ---- recording ---- */

static tc_status tci_spec_inputs(tci_spec_call *c, tc_tensor *in)
{
    const tci_variant_kind *k = c->made->kind;
    int64_t *words = tci_heap_get(sizeof(*words) * ((size_t)k->n_axes + 2) * 2);
    if (!words) {
        return tci_spec_fail(c, TC_ERR_MEMORY, "out of memory");
    }
    int64_t *dims = words, *list = words + k->n_axes + 1; /* the dtype precedes the sizes */
    tc_status status = TC_OK;
    tci_general_dims(k, c->made->guards, dims);
    for (int i = 0; i < k->n_inputs && !status; i++) {
        char name[16];
        snprintf(name, sizeof(name), "in%d", i);
        list[0] = k->dtypes[i];
        memcpy(list + 1, dims, sizeof(*list) * (size_t)k->ranks[i]);
        dims += k->ranks[i];
        in[i] = tc_input_at(c->fn->ctx, name, k->ranks[i] + 1, list, c->fn->site);
        status = tc_status_of(in[i]);
        if (status) {
            tci_spec_fail(c, status, "%.900s", tc_tensor_error(in[i]));
        }
    }
    tci_heap_free(words);
    return status;
}

/* Calls build once; out is set. */
static tc_status tci_spec_build(tci_spec_call *c, const tc_tensor *in, tc_tensor *out)
{
    tc_jit *fn = c->fn;
    tci_ctx *ctx = tci_ctx_of(fn->ctx);
    for (int i = 0; i < fn->n_outputs; i++) {
        out[i] = TC_NONE;
    }
    fn->trace.statics = c->sig.statics;
    ctx->last.text[0] = 0;
    tci_lent lent = tci_lend(ctx);
    tc_status status = fn->build(fn->ctx, in, c->sig.inputs->n, out, fn->n_outputs, fn->user);
    const char *why = tci_take_back(ctx, lent);
    fn->trace.statics = NULL;
    if (status) {
        return tci_spec_fail(c, status, "build returns '%s'%s%.800s", tc_status_text(status),
                             ctx->last.text[0] ? ": " : "", ctx->last.text);
    }
    if (why) {
        return tci_spec_fail(c, TC_ERR_ARGUMENT, "build: %s", why);
    }
    for (int i = 0; i < fn->n_outputs; i++) {
        if (tci_is_none(out[i])) {
            return tci_spec_fail(c, TC_ERR_HANDLE, "build left output %d of %d unset", i,
                                 fn->n_outputs);
        }
        if (out[i].ctx && out[i].ctx != fn->ctx) {
            return tci_spec_fail(c, TC_ERR_HANDLE,
                                 "build set output %d to a tensor of another "
                                 "context, expected one of the context it is given",
                                 i);
        }
    }
    return TC_OK;
}

/* Records a second time; the graphs, their numbers and their constants must be equal. */
static tc_status tci_spec_check_twice(tci_spec_call *c, const tc_tensor *in, const tc_tensor *out)
{
    int n = c->fn->n_outputs;
    tc_tensor *again = tci_heap_get((size_t)n * sizeof(*again));
    tc_status status = again ? tci_spec_build(c, in, again)
                             : tci_spec_fail(c, TC_ERR_MEMORY, "out of memory");
    if (!status) {
        const tc_tensor *outs[2] = {out, again};
        status = tci_recording_compare(tci_ctx_of(c->fn->ctx), outs, n, c->text, sizeof(c->text));
    }
    tci_heap_free(again);
    return status;
}

/* Records and compiles the signature within a scope. */
static tc_status tci_spec_compile(tci_spec_call *c, tc_tensor *in, tc_program **program)
{
    tc_jit *fn = c->fn;
    tc_tensor *out = in + c->sig.inputs->n;
    tc_status status = tci_spec_inputs(c, in);
    status = status ? status : tci_spec_build(c, in, out);
    if (!status && fn->check) {
        status = tci_spec_check_twice(c, in, out);
    }
    if (!status) {
        tc_tensors inputs = {in, c->sig.inputs->n}, outputs = {out, fn->n_outputs};
        status = tc_compile_fn_at(inputs, outputs, NULL, program, fn->site);
        if (status) {
            tci_spec_fail(c, status, "%.1000s", tc_ctx_error(fn->ctx));
        }
    }
    return status;
}

static tc_status tci_spec_program(tci_spec_call *c, tc_program **program)
{
    tc_jit *fn = c->fn;
    size_t n = (size_t)c->sig.inputs->n + (size_t)fn->n_outputs;
    tc_tensor *tensors = tci_heap_get(n * sizeof(*tensors));
    *program = NULL;
    c->begin_ns = tci_os_now_ns();
    tc_status status = tensors ? tc_scope_begin_at(fn->ctx, fn->site) : TC_ERR_MEMORY;
    if (status) {
        tci_spec_fail(c, status, "out of memory");
    } else {
        status = tci_spec_compile(c, tensors, program);
        tc_scope_end_at(fn->ctx, fn->site);
    }
    tci_heap_free(tensors);
    return status;
}

/* ---- specializations ---- */

/* c->made, whose guards are set, gets its program. */
static tc_status tci_spec_try(tci_spec_call *c, bool symbolic)
{
    tc_program *program;
    tc_status status = tci_spec_program(c, &program);
    if (!status) {
        tci_variant *x = c->made;
        x->program = program;
        x->compile_ns = tci_os_now_ns() - c->begin_ns;
        x->symbolic = symbolic;
        x->interpreted = strcmp(program->code->backend, "interp") == 0;
        tc_stance stance = tci_ctx_of(c->fn->ctx)->options.stance;
        x->interim = x->interpreted && stance == TC_STANCE_INTERPRET;
    }
    return status;
}

/* A specialization that options.max_variants counts. */
static bool tci_spec_counts(const tci_variant *x)
{
    return !x->hot && !x->beyond;
}

/* Number of specializations that count, or (beyond) of those that the interpreter serves since
 * there are max_variants of these; *oldest is the first of them. */
static int tci_spec_count(const tci_variants *v, bool beyond, const tci_variant **oldest)
{
    int n = 0;
    uint32_t slot = 0;
    for (const tci_variant_list *l; (l = tci_variants_next(v->table, &slot));) {
        for (int i = 0; i < l->n; i++) {
            if (beyond ? l->items[i]->beyond : tci_spec_counts(l->items[i])) {
                *oldest = n++ && (*oldest)->id < l->items[i]->id ? *oldest : l->items[i];
            }
        }
    }
    return n;
}

/* The specializations whose sizes c->made serves too, into `covered` (or NULL): those that count,
 * or those beyond max_variants. Returns how many there are. */
static int tci_spec_covered(const tci_spec_call *c, const tci_variant_list *l, bool beyond,
                            const tci_variant **covered)
{
    int n = 0;
    for (int i = 0; i < l->n; i++) {
        const tci_variant *x = l->items[i];
        if ((beyond ? x->beyond : tci_spec_counts(x)) &&
            tci_general_covers(l->kind, c->made->guards, x)) {
            if (covered) {
                covered[n] = x;
            }
            n++;
        }
    }
    return n;
}

/* With symbols for the sizes that varied; limited: it must take the place of another one. False:
 * none are, or build does not allow it. */
static bool tci_spec_try_symbolic(tci_spec_call *c, const tci_variant_list *l, bool limited)
{
    tci_variant_kind *k = l->kind;
    const tci_general *g = &c->fn->general;
    for (int i = k->attempt; tci_general_guards(g, k, &c->sig, i, c->made->guards); i++) {
        if (limited && !tci_spec_covered(c, l, false, NULL)) {
            continue;
        }
        tc_status status = tci_spec_try(c, true);
        if (!status) {
            k->attempt = i;
            return true;
        }
        if (status == TC_ERR_MEMORY) {
            break;
        }
    }
    return false;
}

/* c->made, which is symbolic, serves in place of interpreted specializations, and, if there are
 * max_variants already (limited), of all whose sizes it covers. */
static tc_status tci_spec_replace(tci_spec_call *c, const tci_variant_list *l, bool limited)
{
    const tci_variant **drops = tci_heap_get(sizeof(*drops) * ((size_t)l->n + 1));
    bool ok = drops != NULL;
    if (ok) {
        int n = tci_spec_covered(c, l, true, drops);
        n += limited ? tci_spec_covered(c, l, false, drops + n) : 0;
        ok = !n || tci_variants_remove(&c->fn->variants, drops, n);
    }
    tci_heap_free(drops);
    return ok ? TC_OK : tci_spec_fail(c, TC_ERR_MEMORY, "out of memory");
}

static void tci_spec_say_limit(tci_spec_call *c, const tci_variant_list *l)
{
    static const char *const serves[] = {"the interpreter serves, as no symbolic program does",
                                         "the interpreter serves", "TC_ERR_LIMIT is returned"};
    char advice[800];
    tc_jit *fn = c->fn;
    if (!fn->limited) {
        fn->limited = true;
        tci_general_advice(&fn->general, &fn->variants, l, advice, sizeof(advice));
        tci_log(&tci_ctx_of(fn->ctx)->options, "recompiles",
                "%s (%.200s:%d) has %d specializations, options.max_variants: %s from now on; %s",
                fn->name, fn->site.file ? fn->site.file : "", fn->site.line, fn->max_variants,
                serves[fn->beyond], advice);
    }
}

/* Known sizes, when there are enough specializations already. */
static tc_status tci_spec_try_beyond(tci_spec_call *c, const tci_variant_list *l)
{
    tc_jit *fn = c->fn;
    const tci_variant *oldest = NULL;
    tci_spec_say_limit(c, l);
    if (fn->beyond == TC_BEYOND_FAIL) {
        return tci_spec_fail(c, TC_ERR_LIMIT,
                             "there are %d specializations: expected at most "
                             "options.max_variants",
                             fn->max_variants);
    }
    if (tci_spec_count(&fn->variants, true, &oldest) >= fn->max_variants) {
        tci_variants_remove(&fn->variants, &oldest, 1);
    }
    tc_options *o = &tci_ctx_of(fn->ctx)->options;
    const char *backend = o->backend;
    o->backend = "interp";
    tc_status status = tci_spec_try(c, false);
    o->backend = backend;
    c->made->beyond = true;
    return status;
}

static tc_status tci_spec_try_all(tci_spec_call *c, const tci_variant_list *l)
{
    tc_jit *fn = c->fn;
    const tci_variant *oldest;
    bool limited = tci_spec_count(&fn->variants, false, &oldest) >= fn->max_variants;
    if ((!limited || fn->beyond == TC_BEYOND_GENERAL) && tci_spec_try_symbolic(c, l, limited)) {
        return tci_spec_replace(c, l, limited);
    }
    tci_general_fixed(&c->sig, c->made->guards);
    return limited ? tci_spec_try_beyond(c, l) : tci_spec_try(c, false);
}

/* Makes the specialization of a signature that none serves. Under the lock. */
static tc_status tci_spec_make(tci_spec_call *c, tci_variant **made)
{
    tci_variants *v = &c->fn->variants;
    tci_variant_list *list = tci_variants_kind(v, &c->sig);
    c->made = list ? tci_variants_make(list->kind) : NULL;
    if (!c->made) {
        return tci_spec_fail(c, TC_ERR_MEMORY, "out of memory");
    }
    tci_general_learn(list->kind, &c->sig);
    tci_ctx_of(c->fn->ctx)->options.stance = __atomic_load_n(&c->fn->stance, __ATOMIC_RELAXED);
    tc_status status = tci_spec_try_all(c, list);
    if (!status && !tci_variants_add(v, c->made)) {
        status = tci_spec_fail(c, TC_ERR_MEMORY, "out of memory");
    }
    if (status) {
        tci_variants_free_one(c->made);
        return status;
    }
    *made = c->made;
    return TC_OK;
}

static void tci_spec_lock(tc_jit *fn)
{
    pthread_mutex_lock(&fn->lock);
    __atomic_store_n(&fn->builder, tci_os_thread_id(), __ATOMIC_RELAXED);
}

static void tci_spec_unlock(tc_jit *fn)
{
    __atomic_store_n(&fn->builder, 0, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&fn->lock);
}

/* The calling thread is within build. */
static bool tci_spec_is_within(tc_jit *fn)
{
    return __atomic_load_n(&fn->builder, __ATOMIC_RELAXED) == tci_os_thread_id();
}

/* No specialization serves the call: makes one, unless another thread did meanwhile. The caller is
 * a reader. */
static tc_status tci_spec_miss(tci_spec_call *c, tci_variant **x)
{
    tc_jit *fn = c->fn;
    tc_status status = tci_spec_check_inputs(c);
    if (status) {
        return status;
    }
    if (tci_spec_is_within(fn)) {
        return tci_spec_fail(c, TC_ERR_BUSY, "build calls the function that it records");
    }
    tci_fpenv caller = tci_fpenv_enter();
    int cancel = tci_os_no_cancel();
    tci_spec_lock(fn);
    *x = tci_variants_find(&fn->variants, &c->sig);
    status = *x ? TC_OK : tci_spec_make(c, x);
    status = status == TC_ERR_FROZEN ? tci_spec_frozen(c) : status;
    tci_spec_unlock(fn);
    tci_os_may_cancel(cancel);
    tci_fpenv_leave(caller);
    return status;
}

/* ---- sizes that keep coming ---- */

#ifdef TC_DYNAMIC_SHAPES

static const double tci_spec_worth = 0.9; /* of the fixed form's speed: above it symbols serve on */

static void tci_spec_say_hot(const tci_spec_call *c, const char *format, double speed)
{
    const tc_options *o = &tci_ctx_of(c->fn->ctx)->options;
    if (tci_log_wants(o, "recompiles")) {
        char sizes[300], text[200];
        tci_spec_print(&c->sig, sizes, sizeof(sizes));
        snprintf(text, sizeof(text), format, speed);
        tci_log(o, "recompiles", "%s (%.200s:%d): %s %s", c->fn->name,
                c->fn->site.file ? c->fn->site.file : "", c->fn->site.line, sizes, text);
    }
}

/* A window of samples is over: those that had few runs in it go; the rest begin anew. */
static void tci_spec_drop_cold(tci_spec_call *c, const tci_variant_list *l)
{
    for (int i = 0; i < l->n; i++) {
        tci_variant *x = l->items[i];
        int64_t hits = x->hot ? tci_variants_hits(x) : 0;
        bool cold = x->hot && hits - x->hits_before < TCI_HOT_LEAST;
        x->hits_before = hits;
        const tci_variant *drop = x;
        if (cold && tci_variants_remove(&c->fn->variants, &drop, 1)) {
            tci_log(&tci_ctx_of(c->fn->ctx)->options, "recompiles",
                    "%s (%.200s:%d): specialization %lld for sizes that kept coming is dropped, as "
                    "they no longer do",
                    c->fn->name, c->fn->site.file ? c->fn->site.file : "", c->fn->site.line,
                    (long long)x->id);
            return; /* the list is another one now */
        }
    }
}

/* Compiles the fixed form, which then waits for its trial. False: it is not to be had. */
static bool tci_spec_make_candidate(tci_spec_call *c, tci_variant_kind *kind)
{
    c->made = tci_variants_make(kind);
    if (!c->made) {
        return false;
    }
    tci_general_fixed(&c->sig, c->made->guards);
    tci_ctx_of(c->fn->ctx)->options.stance = __atomic_load_n(&c->fn->stance, __ATOMIC_RELAXED);
    if (tci_spec_try(c, false)) {
        tci_variants_free_one(c->made);
        return false;
    }
    c->made->hot = true;
    kind->hot->candidate = c->made;
    return true;
}

/* The candidate, whose compile is over, serves from now on, or is not worth it. */
static tci_variant *tci_spec_judge_candidate(tci_spec_call *c, tci_variant *x)
{
    tci_hot_sizes *h = x->kind->hot;
    tci_variant *fixed = h->candidate;
    double speed = 0;
    bool ran = tc_program_wait(fixed->program, 0) == TC_OK &&
               tci_hot_trial(tci_later_current(x->program), tci_later_current(fixed->program),
                             c->sig.inputs, &speed);
    h->candidate = NULL;
    tci_hot_sizes_forget(h, &c->sig);
    bool serves = ran && speed * tci_spec_worth > 1;
    if (ran) {
        tci_recompile_hot(fixed->program->code->hash, speed, serves);
    }
    if (serves && tci_variants_add(&c->fn->variants, fixed)) {
        tci_spec_say_hot(c,
                         "kept coming: a program of these sizes serves them from now on, at %.2f "
                         "times the speed of the symbolic one",
                         speed);
        return fixed;
    }
    h->n_refused++;
    tci_variants_free_one(fixed);
    tci_spec_say_hot(c,
                     "kept coming: a program of these sizes, at %.2f times the speed of the "
                     "symbolic one, is not worth its place",
                     speed);
    return x;
}

/* Number of hot specializations, including those with a candidate. */
static int tci_spec_count_hot(const tci_variant_list *l)
{
    int n = 0;
    for (int i = 0; i < l->n; i++) {
        n += l->items[i]->hot;
    }
    return n + (l->kind->hot->candidate != NULL);
}

static bool tci_spec_is_native(const tc_program *f)
{
    return strcmp(tci_later_current((tc_program *)(uintptr_t)f)->code->backend, "interp") != 0 &&
           tc_program_ready(f);
}

/* Under the lock. Returns which specialization serves the call. */
static tci_variant *tci_spec_note_sizes(tci_spec_call *c, tci_variant *x)
{
    tc_jit *fn = c->fn;
    tci_variant_list *l = tci_variants_kind(&fn->variants, &c->sig);
    tci_hot_sizes *h = l ? tci_hot_sizes_of(l->kind) : NULL;
    if (!h) {
        return x;
    }
    int count = tci_hot_sizes_note(h, &c->sig), input, axis;
    if (h->n_samples >= TCI_HOT_WINDOW) {
        h->n_samples = 0;
        tci_spec_drop_cold(c, l);
        return x;
    }
    if (!h->candidate && count >= TCI_HOT_COUNT && tci_spec_count_hot(l) < fn->max_hot &&
        !tci_spec_make_candidate(c, l->kind)) {
        h->n_refused++;
        tci_hot_sizes_forget(h, &c->sig);
    }
    bool judges = h->candidate && tci_spec_misfits(c, h->candidate, &input, &axis) == 0 &&
                  tc_program_ready(h->candidate->program);
    return judges ? tci_spec_judge_candidate(c, x) : x;
}

/* One call in some: whether a program of known sizes should serve it instead of x, which is
 * symbolic. Does not wait for other threads. The caller is a reader. */
static tci_variant *tci_spec_sample(tci_spec_call *c, tci_variant *x)
{
    tc_jit *fn = c->fn;
    tc_stance stance = __atomic_load_n(&fn->stance, __ATOMIC_RELAXED);
    bool allows = fn->max_hot && (stance == TC_STANCE_COMPILE || stance == TC_STANCE_LATER) &&
                  tci_hot_trial_allows(x->program) && tci_spec_is_native(x->program);
    if (!allows || tci_spec_is_within(fn) || pthread_mutex_trylock(&fn->lock)) {
        return x;
    }
    __atomic_store_n(&fn->builder, tci_os_thread_id(), __ATOMIC_RELAXED);
    tci_fpenv caller = tci_fpenv_enter();
    int cancel = tci_os_no_cancel();
    const tci_hot_sizes *h = x->kind->hot;
    x = h && h->n_refused >= fn->max_hot ? x : tci_spec_note_sizes(c, x);
    tci_os_may_cancel(cancel);
    tci_fpenv_leave(caller);
    tci_spec_unlock(fn);
    return x;
}

#else

static tci_variant *tci_spec_sample(tci_spec_call *c, tci_variant *x)
{
    (void)c;
    return x;
}

#endif

static tc_status tci_spec_find(tci_spec_call *c, tci_variant **x)
{
    *x = tci_variants_find(&c->fn->variants, &c->sig);
    return TCI_LIKELY(*x != NULL) ? TC_OK : tci_spec_miss(c, x);
}

/* Frees the dropped specializations if no reader is left and no other thread frees them. */
static void tci_spec_leave(tc_jit *fn, uint32_t ticket)
{
    tci_variants_leave(&fn->variants, ticket);
    if (TCI_UNLIKELY(tci_variants_pending(&fn->variants)) && !tci_spec_is_within(fn) &&
        pthread_mutex_trylock(&fn->lock) == 0) {
        tci_variants_collect(&fn->variants);
        pthread_mutex_unlock(&fn->lock);
    }
}

/* ---- public calls ---- */

static tci_mutex tci_spec_unlocked = TCI_MUTEX_INIT;

TC_API tc_status tc_jit_make_at(tc_jit_build build, void *user, const tc_jit_options *options,
                                tc_jit **fn, tc_site here)
{
    static const tc_jit_options defaults;
    const tc_jit_options *o = options ? options : &defaults;
    if (fn) {
        *fn = NULL;
    }
    bool numbers = o->n_outputs >= 0 && o->max_variants >= 0 && o->max_hot >= -1 &&
                   o->beyond >= TC_BEYOND_GENERAL && o->beyond <= TC_BEYOND_FAIL &&
                   o->n_fixed_axes >= 0 && (!o->n_fixed_axes || o->fixed_axes);
    if (!fn || !build || !numbers) {
        return TC_ERR_ARGUMENT;
    }
    size_t fixed = sizeof(tc_jit_axis) * (size_t)o->n_fixed_axes;
    tc_jit *j = tci_heap_get_aligned(sizeof(*j) + fixed);
    if (!j) {
        return TC_ERR_MEMORY;
    }
    memset(j, 0, sizeof(*j));
    j->general.fixed = (tc_jit_axis *)(j + 1);
    j->general.n_fixed = o->n_fixed_axes;
    if (fixed) {
        memcpy(j->general.fixed, o->fixed_axes, fixed);
    }
    j->general.pads = o->bucket == TC_BUCKET_POW2;
    j->beyond = o->beyond;
    j->lock = j->errors_lock = tci_spec_unlocked;
    j->build = build;
    j->user = user;
    j->site = here;
    j->n_outputs = o->n_outputs ? o->n_outputs : 1;
    j->max_variants = o->max_variants ? o->max_variants : (int)TCI_SPEC_VARIANTS;
    j->max_hot = o->max_hot ? TCI_MAX(o->max_hot, 0) : (int)TCI_SPEC_HOT;
    j->check = o->check;
    snprintf(j->name, sizeof(j->name), "%s", o->name ? o->name : "tc_jit");
    tc_status status = tc_ctx_make(&j->ctx, o->options);
    if (status) {
        tci_heap_free_aligned(j);
        return status;
    }
    j->trace.name = j->name;
    tci_ctx_of(j->ctx)->trace = &j->trace;
    j->stance = tci_ctx_of(j->ctx)->options.stance;
    *fn = j;
    return TC_OK;
}

TC_API void tc_jit_free(tc_jit *fn)
{
    if (fn) {
        tci_variants_free(&fn->variants);
        tci_errors_free(&fn->errors);
        tc_ctx_free(fn->ctx);
        tci_heap_free_aligned(fn);
    }
}

/* Runs on a call of x's program. */
static tc_status tci_spec_run(tci_spec_call *c, tci_variant *x, tc_bufs inputs, tc_bufs outputs)
{
    tc_program *program = tci_later_current(x->program);
    tc_call *call = tci_call_take(program);
    if (TCI_UNLIKELY(!call)) {
        return tci_spec_record(c, TC_ERR_MEMORY, tci_run_no_workspace(program));
    }
    tc_status status = tci_run_through(call, inputs, outputs);
    if (TCI_UNLIKELY(status != TC_OK)) {
        tci_spec_record(c, status, call->last.text);
    }
    tci_call_give(program, call);
    return status;
}

/* Memory for padded buffers: the idle one of x, or new. */
static char *tci_spec_padded_memory(tci_variant *x, size_t bytes)
{
    char *memory = __atomic_exchange_n(&x->padded, NULL, __ATOMIC_ACQUIRE);
    return memory ? memory : tci_heap_get_aligned(TCI_MAX(bytes, (size_t)64));
}

static void tci_spec_give_padded(tci_variant *x, char *memory)
{
    char *none = NULL;
    if (!__atomic_compare_exchange_n(&x->padded, &none, memory, false, __ATOMIC_RELEASE,
                                     __ATOMIC_RELAXED)) {
        tci_heap_free_aligned(memory);
    }
}

/* The same on sizes that are rounded up. */
static tc_status tci_spec_run_padded(tci_spec_call *c, const tci_bucket_list *sized, tci_variant *x,
                                     const tc_bufs *inputs, const tc_bufs *outputs)
{
    tci_bucket_list in = *sized, out;
    for (int i = 0; i < in.n; i++) {
        in.items[i].sizes = in.sizes + (sized->items[i].sizes - sized->sizes);
        if (!inputs->items[i].data && inputs->items[i].n) {
            tci_spec_fail(c, TC_ERR_BUFFER, "input %d: given NULL", i);
            return tci_spec_record(c, TC_ERR_BUFFER, c->text);
        }
    }
    if (!tci_bucket_outputs(x->program, outputs, &out, c->text, sizeof(c->text))) {
        return tci_spec_record(c, TC_ERR_BUFFER, c->text);
    }
    char *memory = tci_spec_padded_memory(x, tci_bucket_bytes(&in) + tci_bucket_bytes(&out));
    if (!memory) {
        return tci_spec_record(c, TC_ERR_MEMORY, "out of memory for padded buffers");
    }
    char *behind = tci_bucket_place(&in, inputs, memory, true);
    tci_bucket_place(&out, outputs, behind, false);
    tc_status status = tci_spec_run(c, x, (tc_bufs){in.items, in.n}, (tc_bufs){out.items, out.n});
    if (!status) {
        tci_bucket_cut(&out, outputs);
    }
    tci_spec_give_padded(x, memory);
    return status;
}

/* The specialization of the padded sizes. */
static tc_status tci_spec_find_padded(tci_spec_call *c, tci_bucket_list *padded, tci_variant **x)
{
    const tc_bufs *inputs = c->sig.inputs;
    tc_status status = tci_spec_check_inputs(c);
    if (!status && !tci_bucket_round(&c->fn->general, inputs, padded)) {
        status = tci_spec_fail(c, TC_ERR_LIMIT,
                               "too many inputs for options.bucket: expected at "
                               "most %d, of %d axes in all",
                               TCI_BUCKET_BUFFERS, TCI_BUCKET_AXES);
    }
    const tc_bufs list = {padded->items, padded->n};
    c->sig.inputs = &list;
    status = status ? status : tci_spec_find(c, x);
    c->sig.inputs = inputs;
    return status;
}

/* A call whose inputs are padded. */
static tc_status tci_spec_run_bucket(tci_spec_call *c, const tc_bufs *inputs,
                                     const tc_bufs *outputs)
{
    tci_bucket_list padded;
    tci_variant *x;
    tc_status status = TC_OK;
    if (!status && (!outputs->items || outputs->n > TCI_BUCKET_BUFFERS)) {
        status = tci_spec_fail(c, TC_ERR_BUFFER, "given a list of %d outputs", outputs->n);
    }
    status = status ? status : tci_spec_find_padded(c, &padded, &x);
    if (status) {
        return tci_spec_record(c, status, c->text);
    }
    tci_variants_hit(x);
    return tci_spec_run_padded(c, &padded, x, inputs, outputs);
}

TC_API tc_status tc_jit_run_at(tc_jit *fn, const tc_statics *statics, tc_bufs inputs,
                               tc_bufs outputs, tc_site here)
{
    if (TCI_UNLIKELY(!fn)) {
        return TC_ERR_ARGUMENT;
    }
    tci_spec_call c;
    c.fn = fn;
    c.op = "tc_jit_run";
    c.here = here;
    c.sig = (tci_signature){statics, &inputs};
    tc_status status = tci_spec_check_lists(&c);
    if (TCI_LIKELY(!status) && TCI_UNLIKELY(outputs.n > fn->n_outputs)) {
        status = tci_spec_fail(
            &c, TC_ERR_BUFFER,
            "given %d outputs, expected at most %d (options.n_outputs of tc_jit_make)", outputs.n,
            fn->n_outputs);
    }
    if (TCI_UNLIKELY(status != TC_OK)) {
        return tci_spec_record(&c, status, c.text);
    }
    uint32_t ticket = tci_variants_enter(&fn->variants);
    tci_variant *x;
    if (TCI_UNLIKELY(fn->general.pads)) {
        status = tci_spec_run_bucket(&c, &inputs, &outputs);
        tci_spec_leave(fn, ticket);
        return status;
    }
    status = tci_spec_find(&c, &x);
    if (TCI_LIKELY(!status)) {
        x = TCI_UNLIKELY(tci_variants_hit(x)) ? tci_spec_sample(&c, x) : x;
        status = tci_spec_run(&c, x, inputs, outputs);
    } else {
        tci_spec_record(&c, status, c.text);
    }
    tci_spec_leave(fn, ticket);
    return status;
}

/* The size of the axis; -1 with c->text. */
static int64_t tci_spec_size(tci_spec_call *c, const tci_variant *x, int output, int axis,
                             tc_status *status)
{
    const tci_code_port *port = &x->program->code->outputs[output];
    int at = axis + (axis < 0 ? port->rank : 0);
    if (at < 0 || at >= port->rank) {
        *status = tci_spec_fail(c, TC_ERR_AXIS, "given axis %d of output %d, which has rank %d",
                                axis, output, port->rank);
        return -1;
    }
    tc_call *call = tci_call_take(x->program);
    int64_t *shape = tci_heap_get(sizeof(*shape) * (size_t)port->rank), size = -1;
    if (!call || !shape) {
        *status = tci_spec_fail(c, TC_ERR_MEMORY, "out of memory");
    } else {
        *status = tci_run_output_shape(call, *c->sig.inputs, output, shape);
        size = *status ? -1 : shape[at];
        if (*status) {
            tci_spec_fail(c, *status, "%.1000s", call->last.text);
        }
    }
    tci_heap_free(shape);
    if (call) {
        tci_call_give(x->program, call);
    }
    return size;
}

TC_API int64_t tc_jit_output_size_at(tc_jit *fn, const tc_statics *statics, tc_bufs inputs,
                                     int output, int axis, tc_site here)
{
    if (!fn) {
        return -1;
    }
    tci_spec_call c = {.fn = fn,
                       .op = "tc_jit_output_size",
                       .here = here,
                       .sig = {statics, &inputs}};
    int64_t size = -1;
    tc_status status = tci_spec_check_lists(&c);
    if (!status && fn->general.pads) {
        status = tci_spec_fail(&c, TC_ERR_UNSUPPORTED,
                               "with options.bucket programs know padded "
                               "sizes alone");
    }
    if (!status && (output < 0 || output >= fn->n_outputs)) {
        status = tci_spec_fail(&c, TC_ERR_ARGUMENT, "given output %d, expected 0 to %d", output,
                               fn->n_outputs - 1);
    }
    if (!status) {
        uint32_t ticket = tci_variants_enter(&fn->variants);
        tci_variant *x;
        status = tci_spec_find(&c, &x);
        size = status ? -1 : tci_spec_size(&c, x, output, axis, &status);
        tci_spec_leave(fn, ticket);
    }
    if (status) {
        tci_spec_record(&c, status, c.text);
    }
    return size;
}

TC_API tc_status tc_jit_warm_at(tc_jit *fn, tc_jit_signature *signatures, int n, tc_site here)
{
    if (!fn || n < 0 || (n && !signatures)) {
        return TC_ERR_ARGUMENT;
    }
    tc_status first = TC_OK;
    for (int i = 0; i < n; i++) {
        tc_jit_signature *s = &signatures[i];
        tci_spec_call c = {.fn = fn,
                           .op = "tc_jit_warm",
                           .here = here,
                           .sig = {s->statics, &s->inputs}};
        uint32_t ticket = tci_variants_enter(&fn->variants);
        tci_variant *x;
        s->status = tci_spec_check_lists(&c);
        if (!s->status) {
            tci_bucket_list padded;
            s->status = fn->general.pads ? tci_spec_find_padded(&c, &padded, &x)
                                         : tci_spec_find(&c, &x);
        }
        tci_spec_leave(fn, ticket);
        if (s->status) {
            tci_spec_record(&c, s->status, c.text);
        }
        first = first ? first : s->status;
    }
    return first;
}

TC_API int tc_jit_list(tc_jit *fn, tc_jit_variant *list, int room)
{
    if (!fn) {
        return -1;
    }
    room = list ? TCI_MAX(room, 0) : 0;
    tci_variant **all = tci_heap_get(sizeof(*all) * (size_t)TCI_MAX(room, 1));
    uint32_t ticket = tci_variants_enter(&fn->variants);
    int n = tci_variants_all(&fn->variants, all, all ? room : 0);
    for (int i = 0; i < TCI_MIN(n, room) && all; i++) {
        const tci_variant *x = all[i];
        list[i] = (tc_jit_variant){.id = x->id,
                                   .hits = tci_variants_hits(x),
                                   .compile_ns = x->compile_ns,
                                   .hot = x->hot,
                                   .interpreted = x->interpreted &&
                                                  tci_later_current(x->program) == x->program};
        tci_spec_print_variant(x, list[i].signature, sizeof(list[i].signature));
    }
    tci_spec_leave(fn, ticket);
    tci_heap_free(all);
    return all ? n : 0;
}

/* Specializations to drop: one id, all (-1), or those that the interpreter serves meanwhile (-2).
 * Under the lock. */
enum { TCI_SPEC_ALL = -1, TCI_SPEC_INTERIM = -2 };
static bool tci_spec_goes(const tci_variant *x, int64_t id)
{
    return id == TCI_SPEC_ALL || x->id == id || (id == TCI_SPEC_INTERIM && x->interim);
}

static tc_status tci_spec_drop(tc_jit *fn, int64_t id)
{
    int n = tci_variants_all(&fn->variants, NULL, 0), n_drops = 0;
    tci_variant **all = tci_heap_get(sizeof(*all) * (size_t)TCI_MAX(n, 1));
    if (!all) {
        return TC_ERR_MEMORY;
    }
    tci_variants_all(&fn->variants, all, n);
    for (int i = 0; i < n; i++) {
        if (tci_spec_goes(all[i], id)) {
            all[n_drops++] = all[i];
        }
    }
    tc_status status = id >= 0 && !n_drops ? TC_ERR_ARGUMENT : TC_OK;
    if (n_drops && !tci_variants_remove(&fn->variants, (const tci_variant *const *)all, n_drops)) {
        status = TC_ERR_MEMORY;
    }
    tci_heap_free(all);
    return status;
}

TC_API tc_status tc_jit_drop(tc_jit *fn, int64_t id)
{
    if (!fn || id < TCI_SPEC_ALL) {
        return TC_ERR_ARGUMENT;
    }
    if (tci_spec_is_within(fn)) {
        return TC_ERR_BUSY;
    }
    pthread_mutex_lock(&fn->lock);
    tc_status status = tci_spec_drop(fn, id);
    pthread_mutex_unlock(&fn->lock);
    return status;
}

TC_API tc_status tc_jit_stance(tc_jit *fn, tc_stance stance)
{
    if (!fn || stance < TC_STANCE_COMPILE || stance > TC_STANCE_LATER) {
        return TC_ERR_ARGUMENT;
    }
    if (tci_spec_is_within(fn)) {
        return TC_ERR_BUSY;
    }
    __atomic_store_n(&fn->stance, stance, __ATOMIC_RELAXED);
    if (stance != TC_STANCE_COMPILE) {
        return TC_OK;
    }
    pthread_mutex_lock(&fn->lock);
    tc_status status = tci_spec_drop(fn, TCI_SPEC_INTERIM);
    pthread_mutex_unlock(&fn->lock);
    return status;
}

TC_API tc_ctx *tc_jit_ctx(tc_jit *fn)
{
    return fn ? fn->ctx : NULL;
}

TC_API int tc_jit_n_statics(const tc_ctx *ctx)
{
    const tci_ctx *c = tci_ctx_of(ctx);
    return c && c->trace && c->trace->statics ? c->trace->statics->n : 0;
}

TC_API int64_t tc_jit_static(const tc_ctx *ctx, int i)
{
    int n = tc_jit_n_statics(ctx);
    return i >= 0 && i < n ? tci_ctx_of(ctx)->trace->statics->items[i] : 0;
}

TC_API const char *tc_jit_error(tc_jit *fn)
{
    return fn ? tci_errors_text(&fn->errors, &fn->errors_lock) : "";
}
