/* api/op_by_name.c - tc_op: calls ops by name, for model readers and language bindings.
 *
 * In: the name of an op, its input tensors in order, parameters by name. Out: the result of the
 * public call of that name.
 *
 * Design: a row of api/op_signatures.h becomes a list of parameters, its text, and a function that
 * makes the call. Given parameters are matched with the list and checked by kind, so the function
 * gets a value of the right type for each. The values are checked by the call itself, with the
 * user's call site. */
#include "op_by_name.h"

#include "../graph/build.h"
#include "api_call.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

enum { TCI_LISTS_MOST = 2 }; /* of one call */

typedef struct tci_named {
    tci_frame f;
    tci_call_row row;
    char names[TCI_PARAMS_MOST][TCI_PARAM_ROOM]; /* of its parameters */
    tc_ctx *ctx;
    tc_site here;
    tc_tensors inputs, list;         /* all; those of a list among them */
    tc_attr given[TCI_PARAMS_MOST];  /* without a name: left out, the default is used */
    tci_words words[TCI_LISTS_MOST]; /* of each list of axes, or sizes after their dtype */
    tc_tensor *results;
} tci_named;

/* ---- what a call takes, of checked parameters: parameter i ---- */

static double tci_named_real(const tci_named *c, int i)
{
    tc_arg v = c->given[i].value;
    return v.kind == 3 ? v.f : (double)v.i;
}

/* A number that does not fit an int is not an axis of any tensor: the call refuses it like any
 * other invalid axis. */
static int tci_named_axis(int64_t axis)
{
    return axis < INT_MIN || axis > INT_MAX ? INT_MAX : (int)axis;
}

static int tci_named_axis_at(const tci_named *c, int i)
{
    return tci_named_axis(c->given[i].value.i);
}

/* Item k of a list, 0 after its end; one number stands for a list of any length. */
static int64_t tci_named_item(const tci_named *c, int i, int k)
{
    const tc_attr *a = &c->given[i];
    return !a->items ? a->value.i : k < a->n ? a->items[k] : 0;
}

static int tci_named_count(const tci_named *c, int i)
{
    const tc_attr *a = &c->given[i];
    return a->items ? a->n : 1;
}

static const int64_t *tci_named_items(const tci_named *c, int i)
{
    const tc_attr *a = &c->given[i];
    return a->items ? a->items : &a->value.i;
}

/* A list of tensors; a call has at most one. */
static tc_tensors tci_named_tensors(const tci_named *c, int i)
{
    return c->given[i].name ? c->list : (tc_tensors){NULL, 0};
}

/* The range of words that belongs to a list; lists are stored in the order of the parameters. */
static int tci_named_list(const tci_named *c, int i)
{
    int lists = 0;
    for (int k = 0; k < i; k++) {
        int kind = c->row.params[k].kind;
        lists += kind == TCI_PARAM_axes || kind == TCI_PARAM_typed;
    }
    return lists;
}

static tc_axes tci_named_axes(const tci_named *c, int i)
{
    bool all = !c->given[i].name;
    const void *items = c->words[tci_named_list(c, i)].items;
    tc_axes axes = {(const int *)items, all ? 0 : tci_named_count(c, i), all};
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

/* Position of a parameter, by its name, in the call that tci_at is of. */
#define TCI_AT(name) ((int)offsetof(tci_at, of_##name))
#define TCI_TAKE_tensor(name) c->given[TCI_AT(name)].value.tensor,
#define TCI_TAKE_optional(name) c->given[TCI_AT(name)].value.tensor,
#define TCI_TAKE_tensors(name) tci_named_tensors(c, TCI_AT(name)),
#define TCI_TAKE_operand(name) c->given[TCI_AT(name)].value,
#define TCI_TAKE_maybe(name) c->given[TCI_AT(name)].value,
#define TCI_TAKE_integer(name) c->given[TCI_AT(name)].value.i,
#define TCI_TAKE_axis(name) tci_named_axis_at(c, TCI_AT(name)),
#define TCI_TAKE_axes(name) tci_named_axes(c, TCI_AT(name)),
#define TCI_TAKE_sizes(name)                                                                       \
    tci_named_count(c, TCI_AT(name)), tci_named_items(c, TCI_AT(name)),
#define TCI_TAKE_single(name) {tci_named_item(c, TCI_AT(name), 0)},
#define TCI_TAKE_pair(name)                                                                        \
    {tci_named_item(c, TCI_AT(name), 0), tci_named_item(c, TCI_AT(name), 1)},
#define TCI_TAKE_triple(name)                                                                      \
    {tci_named_item(c, TCI_AT(name), 0), tci_named_item(c, TCI_AT(name), 1),                       \
     tci_named_item(c, TCI_AT(name), 2)},
#define TCI_TAKE_each(name) TCI_TAKE_triple(name)
#define TCI_TAKE_real(name) tci_named_real(c, TCI_AT(name)),
#define TCI_TAKE_factor(name)                                                                      \
    {tci_named_real(c, TCI_AT(name)), tci_named_real(c, TCI_AT(name)),                             \
     tci_named_real(c, TCI_AT(name))},
#define TCI_TAKE_flag(name) c->given[TCI_AT(name)].value.i != 0,
#define TCI_TAKE_dtype(name) (tc_dtype)c->given[TCI_AT(name)].value.i,
#define TCI_TAKE_typed(name) tci_named_count(c, TCI_AT(name)) + 1, c->words[0].items,
#define TCI_TAKE_reduction(name) tci_named_reduction(c->given[TCI_AT(name)].text),
#define TCI_TAKE_text(name) c->given[TCI_AT(name)].text,

/* ---- the rows ---- */

/* A struct for each row whose members, of one byte, are its parameters. */
#define TCI_MUST(name, kind) char of_##name;
#define TCI_MAY(name, kind, otherwise) char of_##name;
#define TCI_MUST_FIELD(name, kind) char of_##name;
#define TCI_FIELD(name, kind, otherwise) char of_##name;
#define TCI_TYPED char of_dtype; char of_sizes;
#define TCI_FIELDS(type, params) params
#define TCI_ON
#define TCI_STORED(name, at)
#define TCI_CALL(name, ...) typedef struct tci_at_##name { __VA_ARGS__ } tci_at_##name;
#define TCI_CALL_MANY(name, n, ...) TCI_CALL(name, __VA_ARGS__)
TCI_CALLS
#include "op_signatures_undef.h"

/* The calls. Calls of op rows have few lists of parameters and share a function for each. */
static void tci_named_call_1(const tci_named *c, tc_tensor (*f)(tc_arg, tc_site))
{
    *c->results = f(c->given[0].value, c->here);
}

static void tci_named_call_2(const tci_named *c, tc_tensor (*f)(tc_arg, tc_arg, tc_site))
{
    *c->results = f(c->given[0].value, c->given[1].value, c->here);
}

static void tci_named_call_3(const tci_named *c, tc_tensor (*f)(tc_arg, tc_arg, tc_arg, tc_site))
{
    *c->results = f(c->given[0].value, c->given[1].value, c->given[2].value, c->here);
}

static void tci_named_reduce(const tci_named *c,
                             tc_tensor (*f)(tc_tensor, tc_axes, bool keepdims, tc_site))
{
    *c->results = f(c->given[0].value.tensor, tci_named_axes(c, 1), c->given[2].value.i != 0,
                    c->here);
}

static void tci_named_reduce_axis(const tci_named *c,
                                  tc_tensor (*f)(tc_tensor, int axis, bool keepdims, tc_site))
{
    *c->results = f(c->given[0].value.tensor, tci_named_axis_at(c, 1), c->given[2].value.i != 0,
                    c->here);
}

#define TCI_CALL_EW(id, name, arity, ...)                                                          \
    static void tci_named_call_##name(const tci_named *c)                                          \
    {                                                                                              \
        tci_named_call_##arity(c, tc_##name##_at);                                                 \
    }
#define TCI_CALL_REDUCE(id, name, rule, ...)                                                       \
    static void tci_named_call_##name(const tci_named *c)                                          \
    {                                                                                              \
        TCI_CALL_REDUCE_##rule(c, tc_##name##_at);                                                 \
    }
#define TCI_CALL_REDUCE_SAME tci_named_reduce
#define TCI_CALL_REDUCE_SUM tci_named_reduce
#define TCI_CALL_REDUCE_BOOL tci_named_reduce
#define TCI_CALL_REDUCE_FLOAT tci_named_reduce
#define TCI_CALL_REDUCE_INDEX tci_named_reduce_axis
TCI_EW_OPS(TCI_CALL_EW)
TCI_REDUCE_OPS(TCI_CALL_REDUCE)
#undef TCI_CALL_EW
#undef TCI_CALL_REDUCE
#undef TCI_CALL_REDUCE_SAME
#undef TCI_CALL_REDUCE_SUM
#undef TCI_CALL_REDUCE_BOOL
#undef TCI_CALL_REDUCE_FLOAT
#undef TCI_CALL_REDUCE_INDEX
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
        typedef tci_at_##name tci_at;                                                              \
        *c->results = tc_##name##_at(__VA_ARGS__ c->here);                                         \
    }
#define TCI_CALL_MANY(name, n, ...)                                                                \
    static void tci_named_call_##name(const tci_named *c)                                          \
    {                                                                                              \
        typedef tci_at_##name tci_at;                                                              \
        tc_##name##_at(__VA_ARGS__ c->here);                                                       \
    }
TCI_BUILT_OPS(TCI_CALL_OF_BUILT)
TCI_OWN_CALLS TCI_MADE_CALLS
#include "op_signatures_undef.h"

/* Their parameters. */
#define TCI_DEFAULT_NONE 0, {0}
#define TCI_DEFAULT_integer(v) 2, {.i = (v)}
#define TCI_DEFAULT_axis(v) TCI_DEFAULT_integer(v)
#define TCI_DEFAULT_single(v) TCI_DEFAULT_integer(v)
#define TCI_DEFAULT_pair(v) TCI_DEFAULT_integer(v)
#define TCI_DEFAULT_triple(v) TCI_DEFAULT_integer(v)
#define TCI_DEFAULT_each(v) TCI_DEFAULT_integer(v)
#define TCI_DEFAULT_factor(v) TCI_DEFAULT_real(v)
#define TCI_DEFAULT_text(v) TCI_DEFAULT_NONE /* NULL, which the call takes for it */
#define TCI_DEFAULT_flag(v) TCI_DEFAULT_integer(v)
#define TCI_DEFAULT_real(v) 3, {.f = (v)}
#define TCI_DEFAULT_operand(v) (v) == (int)(v) ? 2 : 3, {.f = (v)}
#define TCI_DEFAULT_optional(v) TCI_DEFAULT_NONE
#define TCI_DEFAULT_axes(v) TCI_DEFAULT_NONE
#define TCI_DEFAULT_maybe(v) TCI_DEFAULT_NONE
#define TCI_DEFAULT_reduction(v) TCI_DEFAULT_NONE
#define TCI_MUST(name, kind) {TCI_PARAM_##kind, true, TCI_DEFAULT_NONE},
#define TCI_MAY(name, kind, otherwise) {TCI_PARAM_##kind, false, TCI_DEFAULT_##kind(otherwise)},
#define TCI_MUST_FIELD(name, kind) TCI_MUST(name, kind)
#define TCI_FIELD(name, kind, otherwise) TCI_MAY(name, kind, otherwise)
#define TCI_TYPED TCI_MUST(dtype, dtype) TCI_MUST(sizes, typed)
#define TCI_FIELDS(type, params) params
#define TCI_ON
#define TCI_STORED(name, at)
#define TCI_CALL(name, ...) __VA_ARGS__
#define TCI_CALL_MANY(name, n, ...) __VA_ARGS__
    static const tci_param_row tci_param_rows[] = {
        TCI_CALLS}; /* of all calls, one after the other */
#undef TCI_CALL
#undef TCI_CALL_MANY
#define TCI_CALL(name, ...) {TCI_COUNT(((tci_param_row[]){__VA_ARGS__})), 1},
#define TCI_CALL_MANY(name, n, ...) {TCI_COUNT(((tci_param_row[]){__VA_ARGS__})), n},
static const uint8_t tci_call_counts[][2] = {TCI_CALLS}; /* parameters, results */
#include "op_signatures_undef.h"

/* Their names and what they take, as texts one after the other: name, end, ", x: tensor", end. */
#define TCI_MUST(name, kind) ", " #name ": " #kind
#define TCI_MAY(name, kind, otherwise) ", " #name ": " #kind " = " #otherwise
#define TCI_MUST_FIELD(name, kind) ", " #name ": " #kind
#define TCI_FIELD(name, kind, otherwise) ", " #name ": " #kind " = " #otherwise
#define TCI_TYPED ", dtype: dtype, sizes: sizes"
#define TCI_FIELDS(type, params) params
#define TCI_ON
#define TCI_STORED(name, at)
/* A name is pasted where it stands: handed on, it would be the user's macro of that name. */
#define TCI_CALL(name, ...) char of_##name[sizeof(#name "\0" __VA_ARGS__)];
#define TCI_CALL_MANY(name, n, ...) char of_##name[sizeof(#name "\0" __VA_ARGS__)];
typedef struct tci_call_texts {
    TCI_CALLS
} tci_call_texts;
#undef TCI_CALL
#undef TCI_CALL_MANY
#define TCI_CALL(name, ...) #name "\0" __VA_ARGS__,
#define TCI_CALL_MANY(name, n, ...) #name "\0" __VA_ARGS__,
static const tci_call_texts tci_call_text = {TCI_CALLS};
#include "op_signatures_undef.h"

/* The call of row i. */
#define TCI_CALL(name, ...) TCI_CALL_AT_##name,
#define TCI_CALL_MANY(name, n, ...) TCI_CALL_AT_##name,
enum { TCI_CALLS TCI_CALLS_N };
#undef TCI_CALL
#undef TCI_CALL_MANY
#define TCI_CALL(name, ...) case TCI_CALL_AT_##name: tci_named_call_##name(c); break;
#define TCI_CALL_MANY(name, n, ...) TCI_CALL(name, n)
static void tci_named_call(const tci_named *c)
{
    switch (c->row.i) {
        TCI_CALLS
    }
}
#undef TCI_CALL
#undef TCI_CALL_MANY

/* The row after `row`, the first after none; false: there are no more. */
static bool tci_named_next(tci_call_row *row)
{
    bool first = !row->name;
    int i = first ? 0 : row->i + 1;
    if (i >= TCI_CALLS_N) {
        return false;
    }
    row->i = i;
    row->name = first ? (const char *)&tci_call_text : row->form + strlen(row->form) + 1;
    row->form = row->name + strlen(row->name) + 1;
    row->params = first ? tci_param_rows : row->params + row->n_params;
    row->n_params = tci_call_counts[i][0];
    row->n_results = tci_call_counts[i][1];
    return true;
}

static tci_call_row tci_named_row(int i)
{
    tci_call_row row = {0};
    while (tci_named_next(&row) && row.i < i) {
    }
    return row;
}

TC_API const char *tc_op_name(int i)
{
    return i >= 0 && i < TCI_CALLS_N ? tci_named_row(i).name : NULL;
}

TC_API const char *tc_op_params(int i)
{
    return tc_op_name(i) ? tci_named_row(i).form + 2 : NULL;
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
    tci_frame_fail(&c->f, TC_ERR_ARGUMENT, "%s: expected %s(%s)", what, c->row.name,
                   c->row.form + 2);
}

static void tci_named_refuse_value(tci_named *c, int i)
{
    const tc_attr *a = &c->given[i];
    const char *name = c->names[i];
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

/* Edit distance of two names: insertions, deletions and substitutions, ignoring case (bit 32 of a
 * letter). */
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

TCI_FN const char *tci_named_nearest(const char *name)
{
    const char *nearest = NULL;
    int least = INT_MAX;
    for (tci_call_row row = {0}; tci_named_next(&row);) {
        const char *other = row.name;
        int edits = tci_named_edits(name, other);
        if (edits < least && 3 * edits <= (int)TCI_MAX(strlen(name), strlen(other))) {
            least = edits;
            nearest = other;
        }
    }
    return nearest;
}

TCI_FN void tci_named_params(const tci_call_row *row, char (*names)[TCI_PARAM_ROOM])
{
    const char *at = row->form;
    for (int i = 0; i < row->n_params; i++) {
        at += 2;
        int n = (int)strcspn(at, ":");
        snprintf(names[i], TCI_PARAM_ROOM, "%.*s", n, at);
        at = strstr(at, ", ");
    }
}

TCI_FN bool tci_named_find(const char *name, size_t n, tci_call_row *row)
{
    for (tci_call_row at = {0}; tci_named_next(&at);) {
        if (!strncmp(at.name, name, n) && !at.name[n]) {
            *row = at;
            return true;
        }
    }
    return false;
}

static void tci_named_find_row(tci_named *c, const char *name)
{
    if (name && tci_named_find(name, strlen(name), &c->row)) {
        tci_named_params(&c->row, c->names);
        return;
    }
    const char *near = name ? tci_named_nearest(name) : NULL;
    tci_frame_fail(&c->f, TC_ERR_ARGUMENT,
                   near ? "there is no op '%.60s': %s is near" : "there is no op '%.60s'",
                   name ? name : "(null)", near);
}

/* ---- what is given ---- */

static bool tci_named_is_operand(int kind)
{
    return kind == TCI_PARAM_tensor || kind == TCI_PARAM_optional || kind == TCI_PARAM_operand ||
           kind == TCI_PARAM_maybe;
}

/* Inputs are the operands, in their order. */
static void tci_named_take_inputs(tci_named *c)
{
    int n = 0, behind = 0; /* operands after a list */
    for (int i = 0; i < c->inputs.n; i++) {
        tci_frame_optional(&c->f, c->inputs.items[i], "an input");
    }
    for (int i = c->row.n_params - 1; i >= 0 && c->row.params[i].kind != TCI_PARAM_tensors; i--) {
        behind += tci_named_is_operand(c->row.params[i].kind);
    }
    for (int i = 0; i < c->row.n_params; i++) {
        const tci_param_row *p = &c->row.params[i];
        if (p->kind == TCI_PARAM_tensors) {
            c->given[i].name = c->names[i];
            c->list.items = c->inputs.items + n;
            c->list.n = TCI_MAX(c->inputs.n - behind - n, 0);
            n += c->list.n;
        } else if (tci_named_is_operand(p->kind) && n < c->inputs.n) {
            c->given[i].value = tci_arg_tensor(c->inputs.items[n]);
            c->given[i].name = tci_is_none(c->inputs.items[n++]) ? NULL : c->names[i];
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
    while (i < c->row.n_params && strcmp(c->names[i], name)) {
        i++;
    }
    if (i == c->row.n_params) {
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

static tc_arg tci_named_default(const tci_param_row *p)
{
    tc_arg v = {{NULL, UINT32_MAX, 0}, p->number, 0, 0};
    bool is_real = p->number == 3 || p->kind == TCI_PARAM_operand;
    v.f = is_real ? p->otherwise.f : 0;
    v.i = p->number != 2 ? 0 : is_real ? (int64_t)p->otherwise.f : p->otherwise.i;
    return v;
}

/* Checks that parameter i is given, of its kind, and of this context; otherwise uses its default.
 */
static void tci_named_check(tci_named *c, int i)
{
    const tci_param_row *p = &c->row.params[i];
    tc_attr *a = &c->given[i];
    if (!a->name && p->needed) {
        tci_named_refuse(c, "'%s' is missing", c->names[i]);
    } else if (!a->name) {
        a->value = tci_named_default(p);
    } else if (!tci_named_fits(a, (tci_param_kind)p->kind)) {
        tci_named_refuse_value(c, i);
    } else if (tci_named_is_operand(p->kind) && !a->value.kind) {
        tci_frame_optional(&c->f, a->value.tensor, c->names[i]);
    }
}

/* A list in the form in which the call takes it: axes as ints, sizes after their dtype. */
static bool tci_named_make_list(tci_named *c, int i)
{
    const tci_param_row *p = &c->row.params[i];
    tci_graph *g = &c->f.ctx->graph;
    tci_words *words = &c->words[tci_named_list(c, i)];
    int n = tci_named_count(c, i);
    if (p->kind == TCI_PARAM_axes) {
        int *axes = tci_words_ints(g, words, n);
        for (int k = 0; axes && k < n; k++) {
            axes[k] = tci_named_axis(tci_named_item(c, i, k));
        }
        return axes != NULL;
    }
    int64_t *sizes = tci_words_get(g, words, n + 1);
    for (int k = 0; sizes && k < n; k++) {
        sizes[k + 1] = tci_named_item(c, i, k);
    }
    if (sizes) {
        sizes[0] = c->given[i - 1].value.i; /* TCI_TYPED: after its dtype */
    }
    return sizes != NULL;
}

static void tci_named_drop_lists(tci_named *c)
{
    for (int i = 0; i < TCI_LISTS_MOST && c->words[i].items; i++) {
        tci_words_put(&c->f.ctx->graph, &c->words[i], NULL);
    }
}

/* Sorts and checks what is given; false: the frame or the graph has the error. */
static bool tci_named_take(tci_named *c, tc_attrs attrs)
{
    bool made = true;
    tci_named_take_inputs(c);
    for (int i = 0; !c->f.failed && i < attrs.n; i++) {
        tci_named_take_attr(c, &attrs.items[i]);
    }
    for (int i = 0; !c->f.failed && i < c->row.n_params; i++) {
        tci_named_check(c, i);
    }
    for (int i = 0; !c->f.failed && made && i < c->row.n_params; i++) {
        const tci_param_row *p = &c->row.params[i];
        if (p->kind == TCI_PARAM_axes || p->kind == TCI_PARAM_typed) {
            made = tci_named_make_list(c, i);
        }
    }
    return !c->f.failed && made;
}

/* ---- the calls ---- */

TCI_FN tc_status tci_named_results(tc_ctx *ctx, const char *call, const char *name,
                                   tc_tensors inputs, tc_attrs attrs, tc_tensor *results, int n,
                                   tc_site here)
{
    tci_named c = {.f = tci_frame_on(ctx, call, here), .ctx = ctx, .here = here};
    c.inputs = inputs;
    c.results = results;
    if (!c.f.failed) {
        tci_named_find_row(&c, name);
    }
    if (!c.f.failed && (n != c.row.n_results || !results)) {
        tci_frame_fail(&c.f, TC_ERR_ARGUMENT, "%d results of %s are asked for: it has %d",
                       results ? n : 0, name, c.row.n_results);
    }
    bool valid = !c.f.failed && tci_frame_list(&c.f, inputs.items, inputs.n, "the inputs") &&
                 tci_frame_list(&c.f, attrs.items, attrs.n, "the attributes") &&
                 tci_named_take(&c, attrs);
    if (valid) {
        tci_frame_leave(&c.f);
        tci_named_call(&c);
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

TC_API tc_status tc_op_results_at(tc_ctx *ctx, const char *name, tc_tensors inputs, tc_attrs attrs,
                                  tc_tensor *results, int n, tc_site here)
{
    return tci_named_results(ctx, "tc_op", name, inputs, attrs, results, n, here);
}

TC_API tc_tensor tc_op_at(tc_ctx *ctx, const char *name, tc_tensors inputs, tc_attrs attrs,
                          tc_site here)
{
    tc_tensor result;
    tc_op_results_at(ctx, name, inputs, attrs, &result, 1, here);
    return result;
}
