/* api/named.c - ops by their names: what reads graphs from elsewhere, or binds another language,
 * calls them through this.
 *
 * In: the name of an op, its input tensors in order, parameters by name. Out: what the public call
 * of that name returns.
 * The one idea: a row of api/calls.h becomes a list of parameters, a text that shows them, and a
 * function that makes the call. What is given is sorted into the list and checked by kind, so that
 * the function finds something of the right type for each parameter. What the values mean is for
 * the call to check, which is given the caller's place. */
#include "calls.h"

#include "../graph/build.h"
#include "frame.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>

typedef enum tci_param_kind {
#define TCI_ROW(id) TCI_PARAM_##id,
    TCI_PARAM_KINDS(TCI_ROW)
#undef TCI_ROW
} tci_param_kind;

typedef struct tci_param_row {
    const char *name;
    uint8_t kind; /* tci_param_kind */
    bool needed;
    tc_arg otherwise; /* the default, where it is a number */
} tci_param_row;

enum { TCI_PARAMS_MOST = 8, TCI_LISTS_MOST = 2 }; /* of one call */

struct tci_call_row;
typedef struct tci_named {
    tci_frame f;
    const struct tci_call_row *row;
    tc_ctx *ctx;
    tc_site here;
    tc_tensors inputs, list; /* all; those of a list among them */
    tc_attr given[TCI_PARAMS_MOST]; /* without a name: left out, and the default stands there */
    tci_words words[TCI_LISTS_MOST]; /* of each list of axes, or sizes behind their dtype */
    tc_tensor *results;
} tci_named;

typedef struct tci_call_row {
    const char *name, *form; /* ", x: tensor, axis: integer" */
    const tci_param_row *params;
    int n_params, n_results;
    void (*make)(const tci_named *c);
} tci_call_row;

/* ---- what a call takes, of checked parameters ---- */

static const tc_attr *tci_named_get(const tci_named *c, const char *name)
{
    int i = 0;
    while (strcmp(c->row->params[i].name, name)) {
        i++;
    }
    return &c->given[i];
}

static tc_arg tci_named_value(const tci_named *c, const char *name)
{
    return tci_named_get(c, name)->value;
}

static double tci_named_real(const tci_named *c, const char *name)
{
    tc_arg v = tci_named_value(c, name);
    return v.kind == 3 ? v.f : (double)v.i;
}

/* What does not fit an int is no axis of any tensor: the call refuses it with the others. */
static int tci_named_axis(int64_t axis)
{
    return axis < INT_MIN || axis > INT_MAX ? INT_MAX : (int)axis;
}

/* Item i of a list, 0 behind its end; one number stands for a list of any length. */
static int64_t tci_named_item(const tci_named *c, const char *name, int i)
{
    const tc_attr *a = tci_named_get(c, name);
    return !a->items ? a->value.i : i < a->n ? a->items[i] : 0;
}

static int tci_named_count(const tci_named *c, const char *name)
{
    const tc_attr *a = tci_named_get(c, name);
    return a->items ? a->n : 1;
}

static const int64_t *tci_named_items(const tci_named *c, const char *name)
{
    const tc_attr *a = tci_named_get(c, name);
    return a->items ? a->items : &a->value.i;
}

/* Which of the words are those of a list: they are made in the order of the parameters. */
static int tci_named_list(const tci_named *c, const char *name)
{
    int lists = 0;
    for (const tci_param_row *p = c->row->params; strcmp(p->name, name); p++) {
        lists += p->kind == TCI_PARAM_axes || p->kind == TCI_PARAM_typed;
    }
    return lists;
}

static tc_axes tci_named_axes(const tci_named *c, const char *name)
{
    bool all = !tci_named_get(c, name)->name;
    const void *items = c->words[tci_named_list(c, name)].items;
    tc_axes axes = {(const int *)items, all ? 0 : tci_named_count(c, name), all};
    return axes;
}

/* Its row's word in order; what is no word is none of the enumerators. */
static int tci_named_reduction_at(const char *text)
{
    static const char *const words[] = {"mean", "sum", "none"};
    int i = 0;
    while (i < TCI_COUNT(words) && strcmp(words[i], text)) {
        i++;
    }
    return i;
}

/* NULL: left out. */
static tc_reduction tci_named_reduction(const char *text)
{
    return (tc_reduction)(text ? tci_named_reduction_at(text) : TC_REDUCE_MEAN);
}

#define TCI_TAKE_tensor(name) tci_named_value(c, #name).tensor,
#define TCI_TAKE_optional(name) tci_named_value(c, #name).tensor,
#define TCI_TAKE_tensors(name) c->list,
#define TCI_TAKE_operand(name) tci_named_value(c, #name),
#define TCI_TAKE_maybe(name) tci_named_value(c, #name),
#define TCI_TAKE_integer(name) tci_named_value(c, #name).i,
#define TCI_TAKE_axis(name) tci_named_axis(tci_named_value(c, #name).i),
#define TCI_TAKE_axes(name) tci_named_axes(c, #name),
#define TCI_TAKE_sizes(name) tci_named_count(c, #name), tci_named_items(c, #name),
#define TCI_TAKE_single(name) {tci_named_item(c, #name, 0)},
#define TCI_TAKE_pair(name) {tci_named_item(c, #name, 0), tci_named_item(c, #name, 1)},
#define TCI_TAKE_triple(name)                                                                      \
    {tci_named_item(c, #name, 0), tci_named_item(c, #name, 1), tci_named_item(c, #name, 2)},
#define TCI_TAKE_each(name) TCI_TAKE_triple(name)
#define TCI_TAKE_real(name) tci_named_real(c, #name),
#define TCI_TAKE_factor(name)                                                                      \
    {tci_named_real(c, #name), tci_named_real(c, #name), tci_named_real(c, #name)},
#define TCI_TAKE_flag(name) tci_named_value(c, #name).i != 0,
#define TCI_TAKE_dtype(name) (tc_dtype)tci_named_value(c, #name).i,
#define TCI_TAKE_typed(name) tci_named_count(c, #name) + 1, c->words[0].items,
#define TCI_TAKE_reduction(name) tci_named_reduction(tci_named_get(c, #name)->text),
#define TCI_TAKE_text(name) tci_named_get(c, #name)->text,

/* ---- the rows ---- */

/* The calls. */
#define TCI_MUST(name, kind) TCI_TAKE_##kind(name)
#define TCI_MAY(name, kind, otherwise) TCI_TAKE_##kind(name)
#define TCI_MUST_FIELD(name, kind) .name = TCI_TAKE_##kind(name)
#define TCI_FIELD(name, kind, otherwise) .name = TCI_TAKE_##kind(name)
#define TCI_TYPED TCI_TAKE_typed(sizes)
#define TCI_FIELDS(type, params) &(type){params},
#define TCI_ON c->ctx,
#define TCI_STORED(name, at) &c->results[at],
#define TCI_CALL(name, ...)                                                                        \
    static void tci_named_call_##name(const tci_named *c)                                          \
    {                                                                                              \
        *c->results = tc_##name##_at(__VA_ARGS__ c->here);                                         \
    }
#define TCI_CALL_MANY(name, n, ...)                                                                \
    static void tci_named_call_##name(const tci_named *c)                                          \
    {                                                                                              \
        tc_##name##_at(__VA_ARGS__ c->here);                                                       \
    }
TCI_CALLS
#undef TCI_MUST
#undef TCI_MAY
#undef TCI_MUST_FIELD
#undef TCI_FIELD
#undef TCI_TYPED
#undef TCI_FIELDS
#undef TCI_ON
#undef TCI_STORED
#undef TCI_CALL
#undef TCI_CALL_MANY

/* Their parameters. */
#define TCI_DEFAULT_NONE {{NULL, UINT32_MAX, 0}, 0, 0, 0.0}
#define TCI_DEFAULT_integer(v) {{NULL, UINT32_MAX, 0}, 2, (v), 0.0}
#define TCI_DEFAULT_axis(v) TCI_DEFAULT_integer(v)
#define TCI_DEFAULT_single(v) TCI_DEFAULT_integer(v)
#define TCI_DEFAULT_pair(v) TCI_DEFAULT_integer(v)
#define TCI_DEFAULT_triple(v) TCI_DEFAULT_integer(v)
#define TCI_DEFAULT_each(v) TCI_DEFAULT_integer(v)
#define TCI_DEFAULT_factor(v) TCI_DEFAULT_real(v)
#define TCI_DEFAULT_text(v) TCI_DEFAULT_NONE /* NULL, which the call takes for it */
#define TCI_DEFAULT_flag(v) TCI_DEFAULT_integer(v)
#define TCI_DEFAULT_real(v) {{NULL, UINT32_MAX, 0}, 3, 0, (v)}
#define TCI_DEFAULT_operand(v)                                                                     \
    {{NULL, UINT32_MAX, 0}, (v) == (int)(v) ? 2 : 3, (int)(v), (v)}
#define TCI_DEFAULT_optional(v) TCI_DEFAULT_NONE
#define TCI_DEFAULT_axes(v) TCI_DEFAULT_NONE
#define TCI_DEFAULT_axis(v) TCI_DEFAULT_integer(v)
#define TCI_DEFAULT_maybe(v) TCI_DEFAULT_NONE
#define TCI_DEFAULT_reduction(v) TCI_DEFAULT_NONE
#define TCI_MUST(name, kind) {#name, TCI_PARAM_##kind, true, TCI_DEFAULT_NONE},
#define TCI_MAY(name, kind, otherwise)                                                             \
    {#name, TCI_PARAM_##kind, false, TCI_DEFAULT_##kind(otherwise)},
#define TCI_MUST_FIELD(name, kind) TCI_MUST(name, kind)
#define TCI_FIELD(name, kind, otherwise) TCI_MAY(name, kind, otherwise)
#define TCI_TYPED TCI_MUST(dtype, dtype) TCI_MUST(sizes, typed)
#define TCI_FIELDS(type, params) params
#define TCI_ON
#define TCI_STORED(name, at)
#define TCI_CALL(name, ...) static const tci_param_row tci_params_of_##name[] = {__VA_ARGS__};
#define TCI_CALL_MANY(name, n, ...)                                                                \
    static const tci_param_row tci_params_of_##name[] = {__VA_ARGS__};
TCI_CALLS
#undef TCI_MUST
#undef TCI_MAY
#undef TCI_MUST_FIELD
#undef TCI_FIELD
#undef TCI_TYPED
#undef TCI_CALL
#undef TCI_CALL_MANY

/* The rows: what they take as a text, and what was made above. */
#define TCI_MUST(name, kind) ", " #name ": " #kind
#define TCI_MAY(name, kind, otherwise) ", " #name ": " #kind " = " #otherwise
#define TCI_MUST_FIELD(name, kind) ", " #name ": " #kind
#define TCI_FIELD(name, kind, otherwise) ", " #name ": " #kind " = " #otherwise
#define TCI_TYPED ", dtype: dtype, sizes: sizes"
/* A name is pasted where it stands: handed on, it would be the user's macro of that name. */
#define TCI_CALL_ROW(name, takes, params, n, call)                                                 \
    {name, takes, params, TCI_COUNT(params), n, call},
#define TCI_CALL(name, takes)                                                                      \
    TCI_CALL_ROW(#name, takes, tci_params_of_##name, 1, tci_named_call_##name)
#define TCI_CALL_MANY(name, n, takes)                                                              \
    TCI_CALL_ROW(#name, takes, tci_params_of_##name, n, tci_named_call_##name)
static const tci_call_row tci_call_rows[] = {TCI_CALLS};
#undef TCI_MUST
#undef TCI_MAY
#undef TCI_MUST_FIELD
#undef TCI_FIELD
#undef TCI_TYPED
#undef TCI_FIELDS
#undef TCI_ON
#undef TCI_STORED
#undef TCI_CALL
#undef TCI_CALL_ROW
#undef TCI_CALL_MANY

TC_API const char *tc_op_name(int i)
{
    return i >= 0 && i < TCI_COUNT(tci_call_rows) ? tci_call_rows[i].name : NULL;
}

TC_API const char *tc_op_params(int i)
{
    return tc_op_name(i) ? tci_call_rows[i].form + 2 : NULL;
}

/* ---- what is wrong ---- */

/* "'axis' is 0.5: expected softmax(x: tensor, axis: axis)" */
static void tci_named_refuse(tci_named *c, const char *format, ...) TCI_PRINTF(2, 3);
static void tci_named_refuse(tci_named *c, const char *format, ...)
{
    char what[160];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    tci_frame_fail(&c->f, TC_ERR_ARGUMENT, "%s: expected %s(%s)", what, c->row->name,
                   c->row->form + 2);
}

static void tci_named_refuse_value(tci_named *c, int i)
{
    const tc_attr *a = &c->given[i];
    const char *name = c->row->params[i].name;
    if (a->text) {
        tci_named_refuse(c, "'%s' is the text \"%.40s\"", name, a->text);
    } else if (a->items) {
        tci_named_refuse(c, "'%s' is a list of %d", name, a->n);
    } else if (a->value.kind == 0) {
        tci_named_refuse(c, "'%s' is a tensor", name);
    } else if (a->value.kind == 3) {
        tci_named_refuse(c, "'%s' is %g", name, a->value.f);
    } else {
        tci_named_refuse(c, "'%s' is %" PRId64, name, a->value.i);
    }
}

enum { TCI_NAME_ROOM = 64 };

/* How many letters to put in, take out or change until one name is the other. A letter's case, its
 * bit 32, does not count. */
static int tci_named_edits(const char *a, const char *b)
{
    int best[TCI_NAME_ROOM], n = (int)strlen(b);
    for (int k = 0; k <= n; k++) {
        best[k] = k;
    }
    for (int i = 0; a[i]; i++) {
        int corner = best[0]++; /* of a[0..i) and b[0..k) */
        for (int k = 0; k < n; k++) {
            int change = corner + ((a[i] | 32) != (b[k] | 32));
            corner = best[k + 1];
            best[k + 1] = TCI_MIN(change, TCI_MIN(best[k], corner) + 1);
        }
    }
    return best[n];
}

/* NULL: no name is near. */
static const char *tci_named_nearest(const char *name)
{
    const char *nearest = NULL;
    int least = INT_MAX;
    for (int i = 0; i < TCI_COUNT(tci_call_rows); i++) {
        const char *other = tci_call_rows[i].name;
        int edits = tci_named_edits(name, other);
        if (edits < least && 3 * edits <= (int)TCI_MAX(strlen(name), strlen(other))) {
            least = edits;
            nearest = other;
        }
    }
    return nearest;
}

static void tci_named_find_row(tci_named *c, const char *name)
{
    for (int i = 0; name && i < TCI_COUNT(tci_call_rows); i++) {
        if (!strcmp(tci_call_rows[i].name, name)) {
            c->row = &tci_call_rows[i];
            return;
        }
    }
    const char *near = name ? tci_named_nearest(name) : NULL;
    tci_frame_fail(&c->f, TC_ERR_ARGUMENT, near ? "there is no op '%.60s': %s is near"
                                                : "there is no op '%.60s'",
                   name ? name : "(null)", near);
}

/* ---- what is given ---- */

static bool tci_named_is_operand(int kind)
{
    return kind == TCI_PARAM_tensor || kind == TCI_PARAM_optional ||
           kind == TCI_PARAM_operand || kind == TCI_PARAM_maybe;
}

/* Inputs are the operands, in their order. */
static void tci_named_take_inputs(tci_named *c)
{
    int n = 0, behind = 0; /* operands behind a list */
    for (int i = 0; i < c->inputs.n; i++) {
        tci_frame_optional(&c->f, c->inputs.items[i], "an input");
    }
    for (int i = c->row->n_params - 1; i >= 0 && c->row->params[i].kind != TCI_PARAM_tensors; i--) {
        behind += tci_named_is_operand(c->row->params[i].kind);
    }
    for (int i = 0; i < c->row->n_params; i++) {
        const tci_param_row *p = &c->row->params[i];
        if (p->kind == TCI_PARAM_tensors) {
            c->given[i].name = p->name;
            c->list.items = c->inputs.items + n;
            c->list.n = TCI_MAX(c->inputs.n - behind - n, 0);
            n += c->list.n;
        } else if (tci_named_is_operand(p->kind) && n < c->inputs.n) {
            c->given[i].value = tci_arg_tensor(c->inputs.items[n]);
            c->given[i].name = tci_is_none(c->inputs.items[n++]) ? NULL : p->name;
        }
    }
    if (n < c->inputs.n) {
        tci_named_refuse(c, "%d inputs are given", c->inputs.n);
    }
}

static void tci_named_take_attr(tci_named *c, const tc_attr *a)
{
    const char *name = a->name ? a->name : "(null)";
    int i = 0;
    while (i < c->row->n_params && strcmp(c->row->params[i].name, name)) {
        i++;
    }
    if (i == c->row->n_params) {
        tci_named_refuse(c, "there is no '%.60s'", name);
    } else if (c->given[i].name) {
        tci_named_refuse(c, "'%s' is given twice", name);
    } else {
        c->given[i] = *a;
    }
}

static bool tci_named_fits(const tc_attr *a, tci_param_kind kind)
{
    bool value = !a->items && !a->text, number = value && a->value.kind;
    bool whole = number && a->value.kind == 2, list = whole || (a->items && a->n >= 0);
    switch (kind) {
    case TCI_PARAM_tensor:
    case TCI_PARAM_optional: return value && !number;
    case TCI_PARAM_tensors: return true;
    case TCI_PARAM_operand:
    case TCI_PARAM_maybe: return value;
    case TCI_PARAM_integer:
    case TCI_PARAM_axis: return whole;
    case TCI_PARAM_axes:
    case TCI_PARAM_sizes:
    case TCI_PARAM_typed: return list;
    case TCI_PARAM_single: return whole || (a->items && a->n == 1);
    case TCI_PARAM_pair: return whole || (a->items && a->n == 2);
    case TCI_PARAM_triple: return whole || (a->items && a->n == 3);
    case TCI_PARAM_each: return whole || (a->items && a->n >= 1 && a->n <= 3);
    case TCI_PARAM_real:
    case TCI_PARAM_factor: return number;
    case TCI_PARAM_flag: return number && (a->value.i == 0 || a->value.i == 1) && a->value.kind < 3;
    case TCI_PARAM_dtype: return whole && tci_dtype_is_valid(a->value.i);
    case TCI_PARAM_reduction: return a->text && tci_named_reduction_at(a->text) <= TC_REDUCE_NONE;
    case TCI_PARAM_text: return a->text != NULL;
    }
    return false;
}

/* That parameter i is there and of its kind, and of this context; else its default. */
static void tci_named_check(tci_named *c, int i)
{
    const tci_param_row *p = &c->row->params[i];
    tc_attr *a = &c->given[i];
    if (!a->name && p->needed) {
        tci_named_refuse(c, "'%s' is missing", p->name);
    } else if (!a->name) {
        a->value = p->otherwise;
    } else if (!tci_named_fits(a, (tci_param_kind)p->kind)) {
        tci_named_refuse_value(c, i);
    } else if (tci_named_is_operand(p->kind) && !a->value.kind) {
        tci_frame_optional(&c->f, a->value.tensor, p->name);
    }
}

/* A list in the form in which the call takes it: axes as ints, sizes behind their dtype. */
static bool tci_named_make_list(tci_named *c, const tci_param_row *p)
{
    tci_graph *g = &c->f.ctx->graph;
    tci_words *words = &c->words[tci_named_list(c, p->name)];
    int n = tci_named_count(c, p->name);
    if (p->kind == TCI_PARAM_axes) {
        int *axes = tci_words_ints(g, words, n);
        for (int i = 0; axes && i < n; i++) {
            axes[i] = tci_named_axis(tci_named_item(c, p->name, i));
        }
        return axes != NULL;
    }
    int64_t *sizes = tci_words_get(g, words, n + 1);
    for (int i = 0; sizes && i < n; i++) {
        sizes[i + 1] = tci_named_item(c, p->name, i);
    }
    if (sizes) {
        sizes[0] = tci_named_value(c, "dtype").i;
    }
    return sizes != NULL;
}

static void tci_named_drop_lists(tci_named *c)
{
    for (int i = 0; i < TCI_LISTS_MOST && c->words[i].items; i++) {
        tci_words_put(&c->f.ctx->graph, &c->words[i], NULL);
    }
}

/* Sorts and checks what is given; false: the frame or the graph tells why it will not do. */
static bool tci_named_take(tci_named *c, tc_attrs attrs)
{
    bool made = true;
    tci_named_take_inputs(c);
    for (int i = 0; !c->f.failed && i < attrs.n; i++) {
        tci_named_take_attr(c, &attrs.items[i]);
    }
    for (int i = 0; !c->f.failed && i < c->row->n_params; i++) {
        tci_named_check(c, i);
    }
    for (int i = 0; !c->f.failed && made && i < c->row->n_params; i++) {
        const tci_param_row *p = &c->row->params[i];
        if (p->kind == TCI_PARAM_axes || p->kind == TCI_PARAM_typed) {
            made = tci_named_make_list(c, p);
        }
    }
    return !c->f.failed && made;
}

/* ---- the calls ---- */

TC_API tc_status tc_op_results_at(tc_ctx *ctx, const char *name, tc_tensors inputs, tc_attrs attrs,
                                  tc_tensor *results, int n, tc_site here)
{
    tci_named c = {.f = tci_frame_on(ctx, "tc_op", here), .ctx = ctx, .here = here};
    c.inputs = inputs;
    c.results = results;
    if (!c.f.failed) {
        tci_named_find_row(&c, name);
    }
    if (!c.f.failed && (n != c.row->n_results || !results)) {
        tci_frame_fail(&c.f, TC_ERR_ARGUMENT, "%d results of %s are asked for: it has %d",
                       results ? n : 0, name, c.row->n_results);
    }
    bool valid = !c.f.failed && tci_frame_list(&c.f, inputs.items, inputs.n, "the inputs") &&
                 tci_frame_list(&c.f, attrs.items, attrs.n, "the attributes") &&
                 tci_named_take(&c, attrs);
    if (valid) {
        tci_frame_leave(&c.f);
        c.row->make(&c);
        tci_named_drop_lists(&c);
        return tc_status_of(*results);
    }
    tci_named_drop_lists(&c);
    tc_tensor bad = tci_frame_end(&c.f, NULL);
    for (int i = 0; results && i < n; i++) {
        results[i] = bad;
    }
    return tc_status_of(bad);
}

TC_API tc_tensor tc_op_at(tc_ctx *ctx, const char *name, tc_tensors inputs, tc_attrs attrs,
                          tc_site here)
{
    tc_tensor result;
    tc_op_results_at(ctx, name, inputs, attrs, &result, 1, here);
    return result;
}
