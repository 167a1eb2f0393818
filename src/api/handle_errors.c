/* api/handle_errors.c - resolves tensor handles to graph nodes, and stores the errors of poisoned
 * handles (results of failed calls).
 *
 * In: tc_tensor values as users hold them (live, poisoned, dead, zeroed, of another or a freed
 * context). Out: nodes, and error texts.
 *
 * Design: a call that fails returns a poisoned handle, whose id is above every node's and
 * identifies an error record. A call with a poisoned operand returns that same handle, so the first
 * cause propagates through the graph without further memory. Handles without a context encode the
 * reason in their id (api/api_call.h).
 *
 * A record lives as long as the scope of its call. An equal error in the same scope shares its
 * record, so a loop that fails repeatedly does not use more and more memory. A call that returns a
 * status and no handle leaves no record, only the text in ctx->last. */
#include "../debug/log.h"
#include "internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

enum { TCI_HANDLE_MANY = 100000 }; /* tensors of a context from which on the log warns */

typedef struct tci_poison_entry {
    tci_error error;
    uint32_t generation;
    int scope;
} tci_poison_entry;

#define TCI_HANDLE_DEAD \
    "the handle is dead: its scope has ended, or a later tc_keep replaced the value (tc_retain)"

TC_API const char *tc_version(void)
{
    return TC_VERSION;
}

TCI_FN tci_node *tci_handle_node(tc_tensor t)
{
    const tci_ctx *ctx = tci_ctx_of(t.ctx);
    if (!ctx || t.id >= ctx->graph.n_slots) {
        return NULL;
    }
    tci_node *n = ctx->graph.slots[t.id];
    return n && n->generation == t.generation ? n : NULL;
}

static const tci_poison_entry *tci_handle_poison(tc_tensor t)
{
    const tci_ctx *ctx = tci_ctx_of(t.ctx);
    if (!ctx || t.id < TCI_POISON_FIRST) {
        return NULL;
    }
    uint32_t at = t.id - TCI_POISON_FIRST;
    const tci_poison_entry *p = at < (uint32_t)ctx->n_poisons ? ctx->poisons[at] : NULL;
    return p && p->generation == t.generation ? p : NULL;
}

/* Why a handle without a node and without a record names nothing. */
static const char *tci_handle_reason(tc_tensor t)
{
    if (t.ctx) {
        return tci_ctx_of(t.ctx) ? TCI_HANDLE_DEAD : "the handle is dead: its context was freed";
    }
    switch (t.id) {
    case TCI_NULL_NUMBERS: return "all operands were numbers: expected at least one tensor";
    case TCI_NULL_CTX: return "the handle was made on a NULL or freed context";
    case TCI_NULL_FREED: return "the handle is dead: its context was freed";
    case TCI_NULL_MEMORY: return "out of memory while an error was to be recorded";
    case TCI_NULL_EMPTY: return "the list of tensors is empty: expected at least one";
    case UINT32_MAX: return "TC_NONE stands where a tensor is needed";
    default: return "the handle is null (zeroed, never made by a call)";
    }
}

/* The status that goes with that reason or record. */
static tc_status tci_handle_why(tc_tensor t, const tci_poison_entry *p)
{
    if (p) {
        return p->error.status;
    }
    return !t.ctx && t.id == TCI_NULL_MEMORY  ? TC_ERR_MEMORY
           : !t.ctx && t.id == TCI_NULL_EMPTY ? TC_ERR_ARGUMENT
                                              : TC_ERR_HANDLE;
}

/* ---- poison ---- */

static void tci_handle_text(tci_error *e, const char *op, tc_site here, tc_status why,
                            const char *format, va_list args)
{
    e->status = why;
    e->text[0] = 0;
    int n = 0;
    if (here.file) {
        n = snprintf(e->text, sizeof(e->text), "%.400s:%d: ", here.file, here.line);
    }
    if (op) {
        n += snprintf(e->text + n, sizeof(e->text) - (size_t)n, "%s: ", op);
    }
    vsnprintf(e->text + n, sizeof(e->text) - (size_t)n, format, args);
}

static bool tci_handle_grow_poisons(tci_ctx *ctx)
{
    if (ctx->n_poisons < ctx->cap_poisons) {
        return true;
    }
    size_t entry_bytes = sizeof(*ctx->poisons);
    size_t from = (size_t)ctx->cap_poisons, to = from ? from * 2 : 8;
    struct tci_poison_entry **list = tci_graph_resize(&ctx->graph, ctx->poisons, from * entry_bytes,
                                                      to * entry_bytes);
    if (!list) {
        return false;
    }
    ctx->poisons = list;
    ctx->cap_poisons = (int)to;
    return true;
}

/* Keeps the error in the scope numbered `scope`. */
static tc_tensor tci_handle_keep_error(tci_ctx *ctx, const tci_error *e, int scope)
{
    tc_tensor none = {NULL, TCI_NULL_MEMORY, 0};
    for (int i = ctx->n_poisons - 1; i >= 0 && i >= ctx->n_poisons - 8; i--) {
        const tci_poison_entry *p = ctx->poisons[i];
        if (p && p->scope == scope && p->error.status == e->status &&
            !strcmp(p->error.text, e->text)) {
            tc_tensor same = {ctx->handle, TCI_POISON_FIRST + (uint32_t)i, p->generation};
            return same;
        }
    }
    if (!tci_handle_grow_poisons(ctx)) {
        return none;
    }
    tci_poison_entry *p = tci_graph_resize(&ctx->graph, NULL, 0, sizeof(*p));
    if (!p) {
        return none;
    }
    p->error = *e;
    p->generation = ++ctx->next_poison;
    p->scope = scope;
    tc_tensor t = {ctx->handle, TCI_POISON_FIRST + (uint32_t)ctx->n_poisons, p->generation};
    ctx->poisons[ctx->n_poisons++] = p;
    return t;
}

static int tci_handle_scope(const tci_ctx *ctx)
{
    return ctx->graph.n_scopes ? ctx->graph.n_scopes - 1 : 0;
}

static tc_tensor tci_handle_poison_v(tci_ctx *ctx, const char *op, tc_site here, tc_status why,
                                     const char *format, va_list args)
{
    if (!ctx) {
        tc_tensor none = {NULL, TCI_NULL_CTX, 0};
        return none;
    }
    tci_handle_text(&ctx->last, op, here, why, format, args);
    ctx->last_on = tci_handle_keep_error(ctx, &ctx->last, tci_handle_scope(ctx));
    return ctx->last_on;
}

TCI_FN tc_tensor tci_handle_keep_last(tci_ctx *ctx)
{
    ctx->last_on = tci_handle_keep_error(ctx, &ctx->last, tci_handle_scope(ctx));
    return ctx->last_on;
}

TCI_FN tc_tensor tci_poison(tci_ctx *ctx, const char *op, tc_site here, tc_status why,
                            const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tc_tensor t = tci_handle_poison_v(ctx, op, here, why, format, args);
    va_end(args);
    return t;
}

static void tci_handle_drop_poison(tci_ctx *ctx, int i)
{
    if (ctx->poisons[i]) {
        tci_graph_resize(&ctx->graph, ctx->poisons[i], sizeof(tci_poison_entry), 0);
        ctx->poisons[i] = NULL;
    }
}

static void tci_handle_trim_poisons(tci_ctx *ctx)
{
    while (ctx->n_poisons && !ctx->poisons[ctx->n_poisons - 1]) {
        ctx->n_poisons--;
    }
}

TCI_FN void tci_handle_drop_poisons(tci_ctx *ctx, int scope)
{
    for (int i = 0; i < ctx->n_poisons; i++) {
        if (ctx->poisons[i] && ctx->poisons[i]->scope >= scope) {
            tci_handle_drop_poison(ctx, i);
        }
    }
    tci_handle_trim_poisons(ctx);
}

TCI_FN tc_tensor tci_handle_move_poison(tc_tensor t)
{
    const tci_poison_entry *p = tci_handle_poison(t);
    tci_ctx *ctx = tci_ctx_of(t.ctx);
    int scope = p ? TCI_MAX(tci_handle_scope(ctx) - 1, 0) : 0;
    return !p || p->scope <= scope ? t : tci_handle_keep_error(ctx, &p->error, scope);
}

TCI_FN tc_tensor tci_handle_make(tci_ctx *ctx, tci_node *n, tc_site here)
{
    tci_frame f = tci_frame_on(ctx->handle, NULL, here);
    return tci_frame_end(&f, n);
}

/* ---- errors ---- */

TCI_FN tc_status tci_handle_error(tc_tensor t, char *text, size_t room)
{
    const tci_poison_entry *p = tci_handle_poison(t);
    if (tci_handle_node(t)) {
        snprintf(text, room, "%s", "");
        return TC_OK;
    }
    snprintf(text, room, "%s", p ? p->error.text : tci_handle_reason(t));
    return tci_handle_why(t, p);
}

TCI_FN tc_status tci_fail(tc_tensor t, const char *op, tc_site here, tc_status why,
                          const char *format, ...)
{
    tci_ctx *ctx = tci_ctx_of(t.ctx);
    if (ctx && !tci_handle_poison(t)) {
        va_list args;
        va_start(args, format);
        tci_handle_text(&ctx->last, op, here, why, format, args);
        va_end(args);
        ctx->last_on = t;
    }
    return why;
}

TC_API tc_status tc_status_of(tc_tensor t)
{
    return tci_handle_node(t) ? TC_OK : tci_handle_why(t, tci_handle_poison(t));
}

TC_API const char *tc_tensor_error(tc_tensor t)
{
    const tci_poison_entry *p = tci_handle_poison(t);
    if (p) {
        return p->error.text;
    }
    if (!tci_handle_node(t)) {
        return tci_handle_reason(t);
    }
    const tci_ctx *ctx = tci_ctx_of(t.ctx);
    bool mine = ctx->last.status != TC_OK && ctx->last_on.id == t.id &&
                ctx->last_on.generation == t.generation;
    return mine ? ctx->last.text : "";
}

TC_API const char *tc_ctx_error(const tc_ctx *ctx)
{
    const tci_ctx *c = tci_ctx_of(ctx);
    if (!c) {
        return ctx ? "the context was freed" : "the context is NULL";
    }
    return c->last.text;
}

/* ---- queries ---- */

TC_API int tc_rank(tc_tensor t)
{
    const tci_node *n = tci_handle_node(t);
    return n ? n->rank : -1;
}

TC_API int64_t tc_size(tc_tensor t, int axis)
{
    const tci_node *n = tci_handle_node(t);
    if (!n || axis < -n->rank || axis >= n->rank) {
        return -1;
    }
    return (int64_t)tci_dim_show(n->shape[axis < 0 ? axis + n->rank : axis]);
}

TC_API tc_dtype tc_dtype_of(tc_tensor t)
{
    const tci_node *n = tci_handle_node(t);
    return n ? (tc_dtype)n->dtype : TC_DTYPE_COUNT;
}

TC_API int64_t tc_count(tc_tensor t)
{
    const tci_node *n = tci_handle_node(t);
    return n ? (int64_t)tci_dim_show(tci_node_count(n)) : -1;
}

TC_API int64_t tc_nbytes(tc_tensor t)
{
    const tci_node *n = tci_handle_node(t);
    bool known = n && tci_build_is_known(n->rank, n->shape);
    int64_t bytes = n ? tci_dtype_get((tc_dtype)n->dtype)->bytes : 0;
    return known ? tci_dim_known(tci_node_count(n)) * bytes : -1;
}

/* ---- frames ---- */

TCI_FN tci_frame tci_frame_begin(const char *op, tc_site here)
{
    tci_frame f = {.op = op, .here = here, .caller = tci_fpenv_enter()};
    return f;
}

/* Names this call, or the one on whose behalf it is made, in the nodes made from here on. */
static void tci_frame_name(tci_frame *f)
{
    f->op = f->ctx->within ? f->ctx->within : f->op;
    f->n_errors = f->ctx->n_poisons;
    (void)tci_dim_take_lost(); /* that of an earlier call */
    f->ctx->graph.site = f->here;
    f->ctx->graph.region = f->ctx->region;
    f->ctx->graph.call = f->op ? f->op : f->ctx->graph.call; /* NULL: within another call */
}

TCI_FN tci_frame tci_frame_on(const tc_ctx *ctx, const char *op, tc_site here)
{
    tci_frame f = tci_frame_begin(op, here);
    f.ctx = tci_ctx_of(ctx);
    if (f.ctx) {
        tci_frame_name(&f);
    } else {
        f.failed = true;
        f.bad.id = TCI_NULL_CTX;
    }
    return f;
}

TCI_FN void tci_frame_use(tci_frame *f, tc_tensor t)
{
    if (!f->ctx) {
        f->ctx = tci_ctx_of(t.ctx);
        if (f->ctx) {
            tci_frame_name(f);
        }
    }
}

TCI_FN void tci_frame_fail(tci_frame *f, tc_status why, const char *format, ...)
{
    if (f->failed) {
        return;
    }
    va_list args;
    va_start(args, format);
    f->bad = tci_handle_poison_v(f->ctx, f->op, f->here, why, format, args);
    f->failed = true;
    va_end(args);
}

TCI_FN bool tci_frame_list(tci_frame *f, const void *items, int n, const char *what)
{
    if (n < 0 || (n && !items)) {
        tci_frame_fail(f, TC_ERR_ARGUMENT, "%s: given a list of %d at %s, expected %s", what, n,
                       items ? "an address" : "NULL",
                       n < 0 ? "0 or more" : "as many items as it says");
    }
    return !f->failed;
}

TCI_FN bool tci_frame_dtype(tci_frame *f, const char *after, const int64_t *numbers, int n)
{
    if (f->failed) {
        return false;
    }
    if (n < 1 || !numbers) {
        tci_frame_fail(f, TC_ERR_ARGUMENT, "the dtype is missing after %s", after);
    } else if (!tci_dtype_is_valid(numbers[0])) {
        tci_frame_fail(f, TC_ERR_DTYPE,
                       "given %" PRId64 " after %s, which is not a dtype: expected TC_F32 or "
                       "another, then the sizes",
                       numbers[0], after);
    }
    return !f->failed;
}

TCI_FN tci_node *tci_frame_node(tci_frame *f, tc_tensor t, const char *what)
{
    tci_node *n = tci_handle_node(t);
    if (f->failed || (n && t.ctx == f->ctx->handle)) {
        return f->failed ? NULL : n;
    }
    if (!f->ctx) {
        /* No live context to keep an error in: the handle's own reason goes on. */
        tc_tensor freed = {NULL, TCI_NULL_FREED, 0};
        f->bad = t.ctx ? freed : t;
        f->failed = true;
    } else if (tci_ctx_of(t.ctx) && t.ctx != f->ctx->handle) {
        tci_frame_fail(f, TC_ERR_HANDLE,
                       "%s is foreign: it belongs to another context than the operands before it",
                       what);
    } else if (tci_handle_poison(t)) {
        f->bad = t;
        f->failed = true;
    } else {
        tci_frame_fail(f, tci_handle_why(t, NULL), "%s: %s", what, tci_handle_reason(t));
    }
    return NULL;
}

TCI_FN tci_node *tci_frame_optional(tci_frame *f, tc_tensor t, const char *what)
{
    return tci_is_none(t) ? NULL : tci_frame_node(f, t, what);
}

TCI_FN void tci_frame_leave(const tci_frame *f)
{
    tci_fpenv_leave(f->caller);
}

TCI_FN tc_status tci_frame_status(tci_frame *f)
{
    tc_status status = f->failed ? tc_status_of(f->bad) : TC_OK;
    const tci_poison_entry *cause = f->failed && f->ctx ? tci_handle_poison(f->bad) : NULL;
    if (cause && f->bad.id - TCI_POISON_FIRST < (uint32_t)f->n_errors) { /* of an earlier call */
        f->ctx->last = cause->error;
        f->ctx->last_on = f->bad;
    }
    for (int i = f->n_errors; f->ctx && i < f->ctx->n_poisons; i++) {
        tci_handle_drop_poison(f->ctx, i);
    }
    if (f->ctx) {
        tci_handle_trim_poisons(f->ctx);
    }
    tci_frame_leave(f);
    return status;
}

/* Many tensors are alive: most likely those of a loop whose results are not read. Said once for a
 * context. */
static void tci_frame_warn(const tci_frame *f)
{
    f->ctx->many_said = true;
    tci_log(&f->ctx->options, "compile",
            "%s:%d: %u tensors are alive in this context: expected tc_eval, tc_read or tc_keep of "
            "what a loop makes, within tc_scope_begin and tc_scope_end; until then nothing is "
            "computed and all are kept",
            f->here.file ? f->here.file : "?", f->here.line, f->ctx->graph.n_nodes);
}

TCI_FN tc_tensor tci_frame_end(tci_frame *f, tci_node *n)
{
    if (!f->failed && !n) {
        tci_graph *g = &f->ctx->graph;
        tc_status why = g->error ? g->error : TC_ERR_INTERNAL;
        tci_frame_fail(f, why, "%s", g->error ? g->message : "failed without a reason");
        g->error = TC_OK;
    }
    tci_frame_leave(f);
    if (f->failed) {
        return f->bad;
    }
    if (TCI_UNLIKELY(f->ctx->graph.n_nodes > TCI_HANDLE_MANY && !f->ctx->many_said)) {
        tci_frame_warn(f);
    }
    tc_tensor t = {f->ctx->handle, n->id, n->generation};
    return t;
}
#undef TCI_HANDLE_DEAD
