/* api/expr.c - evaluates tensor expressions given as text: a stack machine that executes the
 * parser's bytecode by calling the public ops.
 *
 * In: a text, and values of its names. Out: the tensor that the same C calls make, or a poisoned
 * handle whose text marks the position with a caret.
 *
 * Design: a stack machine. Numbers are computed at once; an operator or call with a tensor operand
 * is a call by name (api/op_by_name.c), so ops, parameters and defaults are those of
 * api/op_signatures.h. Invariants: nothing is called before the whole text is parsed; the stack has
 * room for every step; lists are in a pool that only grows, so values may be copied. */
#include "expr.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "expr_bytecode.h"
#include "op_by_name.h"

typedef enum tci_expr_kind {
    TCI_EXPR_IS_ARG, /* a tensor or a number */
    TCI_EXPR_IS_DTYPE,
    TCI_EXPR_IS_TEXT,
    TCI_EXPR_IS_LIST,  /* n values of the pool, from `first` */
    TCI_EXPR_IS_SLICE, /* three: start, stop, step */
    TCI_EXPR_IS_NONE,
    TCI_EXPR_IS_ELLIPSIS
} tci_expr_kind;

typedef struct tci_expr_value {
    uint8_t kind;
    int at, length;      /* its position in the text */
    int key, key_length; /* of its keyword; length 0: none */
    int first, n;
    tc_arg arg;
    const char *text;
} tci_expr_value;

typedef struct tci_expr_machine {
    tci_frame f;
    tci_expr_code code;
    tc_ctx *ctx;
    tc_attrs names;
    const char *spelled;  /* of TC_EXPR: the names, separated by commas, or NULL */
    const tc_arg *values; /* and theirs */
    char *words;          /* a copy of the text, whose texts in quotes end with 0 */
    tci_expr_value *stack;
    int top;
    tci_expr_value *pool;
    int n_pool, cap_pool;
    int64_t *ints;
    int n_ints, cap_ints; /* lists of one call */
    tc_tensor *tensors;
    int n_tensors, cap_tensors;
} tci_expr_machine;

/* ---- what is wrong ---- */

enum { TCI_EXPR_WINDOW = 72, TCI_EXPR_SHOW_ROOM = 2 * TCI_EXPR_WINDOW + 32 };

/* The line with that position and a caret below it: "\n  softmax(x @ w)\n  ^~~~~~~". */
static void tci_expr_show(const tci_expr_code *code, int at, int length, char *room)
{
    int begin = at, end = at, n = 0;
    while (begin > 0 && code->text[begin - 1] != '\n' && at - begin < TCI_EXPR_WINDOW / 2) {
        begin--;
    }
    while (end < code->bytes && code->text[end] != '\n' && end - begin < TCI_EXPR_WINDOW) {
        end++;
    }
    room[n++] = '\n';
    memset(room + n, ' ', 2);
    n += 2;
    for (int i = begin; i < end; i++) {
        char c = code->text[i];
        room[n++] = c >= ' ' && c < 127 ? c : c == '\t' ? ' ' : '?';
    }
    room[n++] = '\n';
    memset(room + n, ' ', (size_t)(2 + at - begin));
    n += 2 + at - begin;
    room[n++] = '^';
    for (int i = 1; i < length && at + i < end; i++) {
        room[n++] = '~';
    }
    room[n] = 0;
}

static void tci_expr_fail(tci_expr_machine *m, int at, int length, const char *format, ...)
    TCI_PRINTF(4, 5);
static void tci_expr_fail(tci_expr_machine *m, int at, int length, const char *format, ...)
{
    char what[400], shown[TCI_EXPR_SHOW_ROOM];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    tci_expr_show(&m->code, at, length, shown);
    tci_frame_fail(&m->f, TC_ERR_ARGUMENT, "%s%s", what, shown);
}

/* A failed call of an op: its own text, and the position. */
static void tci_expr_fail_call(tci_expr_machine *m, int at, int length, tc_tensor bad)
{
    char shown[TCI_EXPR_SHOW_ROOM];
    tc_site nowhere = {NULL, 0};
    tci_expr_show(&m->code, at, length, shown);
    if (!bad.ctx && bad.id == TCI_NULL_NUMBERS) {
        tci_expr_fail(
            m, at, length,
            "all arguments are numbers: expected a tensor among them, as full(2, f32, ())");
    } else if (!bad.ctx) {
        tci_frame_fail(&m->f, tc_status_of(bad), "%s%s", tc_tensor_error(bad), shown);
    } else if (!m->f.failed) {
        m->f.failed = true;
        m->f.bad = tci_poison(m->f.ctx, NULL, nowhere, tc_status_of(bad), "%.700s%s",
                              tc_tensor_error(bad), shown);
    }
}

static bool tci_expr_memory(tci_expr_machine *m, bool got)
{
    if (!got) {
        tci_frame_fail(&m->f, TC_ERR_MEMORY, "out of memory");
    }
    return got;
}

static bool tci_expr_is_tensor(const tci_expr_value *v)
{
    return v->kind == TCI_EXPR_IS_ARG && !v->arg.kind;
}

static bool tci_expr_is_number(const tci_expr_value *v)
{
    return v->kind == TCI_EXPR_IS_ARG && v->arg.kind;
}

static bool tci_expr_is_whole(const tci_expr_value *v)
{
    return v->kind == TCI_EXPR_IS_ARG && v->arg.kind == TCI_OPS_INT;
}

static const char *tci_expr_kind_text(const tci_expr_value *v)
{
    switch ((tci_expr_kind)v->kind) {
    case TCI_EXPR_IS_ARG: return v->arg.kind ? "a number" : "a tensor";
    case TCI_EXPR_IS_DTYPE: return "a dtype";
    case TCI_EXPR_IS_TEXT: return "a text";
    case TCI_EXPR_IS_LIST: return "a list";
    case TCI_EXPR_IS_SLICE: return "a slice";
    case TCI_EXPR_IS_NONE: return "None";
    case TCI_EXPR_IS_ELLIPSIS: return "...";
    }
    return "nothing";
}

/* ---- the stack ---- */

static tci_expr_value *tci_expr_push(tci_expr_machine *m, const tci_expr_step *step,
                                     tci_expr_kind kind)
{
    tci_expr_value *v = &m->stack[m->top++];
    memset(v, 0, sizeof(*v));
    v->kind = (uint8_t)kind;
    v->at = step->at;
    v->length = step->length;
    return v;
}

static void tci_expr_push_arg(tci_expr_machine *m, const tci_expr_step *step, tc_arg arg)
{
    tci_expr_push(m, step, TCI_EXPR_IS_ARG)->arg = arg;
}

/* Room for n more values at the end of the pool, which is not NULL afterwards. */
static bool tci_expr_pool(tci_expr_machine *m, int n)
{
    return tci_expr_memory(m, tci_expr_room(m->code.g, &m->pool, &m->cap_pool,
                                            m->n_pool + TCI_MAX(n, 1), sizeof(*m->pool)));
}

/* The last n values become one. */
static void tci_expr_gather(tci_expr_machine *m, const tci_expr_step *step, int n,
                            tci_expr_kind kind)
{
    if (tci_expr_pool(m, n)) {
        m->top -= n;
        memcpy(m->pool + m->n_pool, m->stack + m->top, (size_t)n * sizeof(*m->pool));
        m->n_pool += n;
        tci_expr_value *v = tci_expr_push(m, step, kind);
        v->first = m->n_pool - n;
        v->n = n;
    }
}

/* ---- names ---- */

static bool tci_expr_same(const tci_expr_machine *m, int at, int length, const char *name)
{
    return name && !strncmp(name, m->code.text + at, (size_t)length) && !name[length];
}

/* Name i of TC_EXPR; false: there are no more. */
static bool tci_expr_spelled(const char **next, const char **name, int *n)
{
    const char *at = *next;
    if (!at) {
        return false;
    }
    size_t bytes = strcspn(at, ","), before = strspn(at, " ");
    *next = at[bytes] ? at + bytes + 1 : NULL;
    *name = at + TCI_MIN(before, bytes);
    *n = (int)(bytes - TCI_MIN(before, bytes));
    while (*n && (*name)[*n - 1] == ' ') {
        --*n;
    }
    return true;
}

/* The operand that the user gave for a name. */
static bool tci_expr_given(const tci_expr_machine *m, const tci_expr_step *step, tc_attr *a)
{
    const char *next = m->spelled, *name;
    int n;
    for (int i = 0; tci_expr_spelled(&next, &name, &n); i++) {
        if (n == step->length && !memcmp(name, m->code.text + step->at, (size_t)n)) {
            *a = tci_attr_value("", m->values[i]);
            return true;
        }
    }
    for (int i = 0; i < m->names.n; i++) {
        if (tci_expr_same(m, step->at, step->length, m->names.items[i].name)) {
            *a = m->names.items[i];
            return true;
        }
    }
    return false;
}

static void tci_expr_push_given(tci_expr_machine *m, const tci_expr_step *step, const tc_attr *a)
{
    char what[40];
    if (a->text) {
        tci_expr_push(m, step, TCI_EXPR_IS_TEXT)->text = a->text;
    } else if (a->items) {
        int n = TCI_MAX(a->n, 0);
        if (tci_expr_pool(m, n)) {
            tci_expr_value *v = tci_expr_push(m, step, TCI_EXPR_IS_LIST);
            v->n = n;
            v->first = m->n_pool;
            for (int i = 0; i < n; i++) {
                m->pool[m->n_pool++] = (tci_expr_value){.at = step->at,
                                                        .arg = tci_arg_int(a->items[i])};
            }
        }
    } else if (!a->value.kind && tci_is_none(a->value.tensor)) {
        tci_expr_push(m, step, TCI_EXPR_IS_NONE);
    } else {
        snprintf(what, sizeof(what), "'%.*s'", TCI_MIN(step->length, 30), m->code.text + step->at);
        if (!a->value.kind) {
            tci_frame_node(&m->f, a->value.tensor, what);
        } else if (a->value.kind < 0 || a->value.kind > TCI_OPS_FLOAT) {
            tci_expr_fail(m, step->at, step->length, "%s is neither a tensor nor a number", what);
        }
        tci_expr_push_arg(m, step, a->value);
    }
}

/* Python's words and the dtypes. */
static bool tci_expr_push_constant(tci_expr_machine *m, const tci_expr_step *step)
{
    static const struct {
        const char *name;
        double value;
    } reals[] = {{"inf", INFINITY}, {"nan", NAN}, {"pi", 3.14159265358979323846}};
    for (int i = 0; i < TCI_COUNT(reals); i++) {
        if (tci_expr_same(m, step->at, step->length, reals[i].name)) {
            tci_expr_push_arg(m, step, tci_arg_float(reals[i].value));
            return true;
        }
    }
    bool yes = tci_expr_same(m, step->at, step->length, "True");
    if (yes || tci_expr_same(m, step->at, step->length, "False")) {
        tci_expr_push_arg(m, step, tci_arg_bool(yes));
        return true;
    }
    if (tci_expr_same(m, step->at, step->length, "None")) {
        tci_expr_push(m, step, TCI_EXPR_IS_NONE);
        return true;
    }
    for (int i = TCI_DTYPE_BEFORE + 1; i < TC_DTYPE_COUNT; i++) {
        if (tci_expr_same(m, step->at, step->length, tc_dtype_name((tc_dtype)i))) {
            tci_expr_push(m, step, TCI_EXPR_IS_DTYPE)->arg = tci_arg_int(i);
            return true;
        }
    }
    return false;
}

static void tci_expr_name(tci_expr_machine *m, const tci_expr_step *step)
{
    tc_attr given;
    tci_call_row row;
    if (tci_expr_given(m, step, &given)) {
        tci_expr_push_given(m, step, &given);
    } else if (!tci_expr_push_constant(m, step)) {
        bool op = tci_named_find(m->code.text + step->at, (size_t)step->length, &row);
        tci_expr_fail(m, step->at, step->length, "'%.*s' is %s", TCI_MIN(step->length, 60),
                      m->code.text + step->at,
                      op ? "an op: expected its arguments in parentheses"
                         : "not among the names that are given");
    }
}

/* ---- calls ---- */

/* Calls an op whose results replace the last n values. */
static void tci_expr_make(tci_expr_machine *m, const tci_expr_step *step, int n, const char *name,
                          int n_results, tc_tensors inputs, tc_attrs attrs)
{
    tc_tensor results[8];
    tc_status why = tci_named_results(m->ctx, m->f.op, name, inputs, attrs, results, n_results,
                                      m->f.here);
    if (why) {
        tci_expr_fail_call(m, step->at, step->length, results[0]);
        return;
    }
    m->top -= n;
    if (n_results == 1) {
        tci_expr_push_arg(m, step, tci_arg_tensor(results[0]));
    } else if (tci_expr_pool(m, n_results)) {
        tci_expr_value *v = tci_expr_push(m, step, TCI_EXPR_IS_LIST);
        v->first = m->n_pool;
        v->n = n_results;
        for (int i = 0; i < n_results; i++) {
            m->pool[m->n_pool++] = (tci_expr_value){.at = step->at,
                                                    .arg = tci_arg_tensor(results[i])};
        }
    }
}

/* An operator of the last n values (1 or 2), all tensors or numbers. */
static void tci_expr_operate(tci_expr_machine *m, const tci_expr_step *step, int n)
{
    static const char *const names[] = {"a", "b"}; /* of the parameters of all operators */
    const tci_expr_op_row *op = tci_expr_op_get(step->op);
    tci_expr_value *v = &m->stack[m->top - n];
    tc_arg r = {{0}, 0, 0, 0};
    tc_attr attrs[2];
    bool tensors = false;
    for (int i = 0; i < n && !m->f.failed; i++) {
        tensors = tensors || tci_expr_is_tensor(&v[i]);
        attrs[i] = tci_attr_value(names[i], v[i].arg);
        if (v[i].kind != TCI_EXPR_IS_ARG) {
            tci_expr_fail(m, step->at, step->length,
                          "operand %d of '%s' is %s: expected a tensor "
                          "or a number",
                          i + 1, op->spelling, tci_expr_kind_text(&v[i]));
        }
    }
    if (m->f.failed) {
        return;
    }
    if (!tensors) {
        const char *why = tci_expr_fold((tci_expr_op)step->op, v[0].arg, v[n - 1].arg, &r);
        if (why) {
            tci_expr_fail(m, step->at, step->length, "%s", why);
        }
        m->top -= n;
        tci_expr_push_arg(m, step, r);
    } else if (op->name) {
        tci_expr_make(m, step, n, op->name, 1, TC_TENSORS_N(NULL, 0), TC_ATTRS_N(attrs, n));
    }
}

/* a < b where b stays: the result, then b. */
static void tci_expr_link(tci_expr_machine *m, const tci_expr_step *step)
{
    tci_expr_value right = m->stack[m->top - 1];
    tci_expr_operate(m, step, 2);
    if (!m->f.failed) {
        m->stack[m->top++] = right;
    }
}

/* The arguments of a call, on their way to its parameters. */
typedef struct tci_expr_args {
    tci_call_row row;
    const tci_expr_step *step;
    char names[TCI_PARAMS_MOST][TCI_PARAM_ROOM];
    tc_attr given[TCI_PARAMS_MOST]; /* name NULL: not given */
    bool none[TCI_PARAMS_MOST];     /* given as None, which is left out */
    int first[TCI_PARAMS_MOST];     /* of its list in m->ints or m->tensors */
    int n[TCI_PARAMS_MOST];
} tci_expr_args;

/* "expected softmax(x: tensor, axis: axis)" with what is wrong before it. */
static void tci_expr_refuse(tci_expr_machine *m, const tci_expr_args *a, const tci_expr_value *v,
                            const char *what)
{
    int at = v->key_length ? v->key : v->at, n = v->key_length ? v->key_length : v->length;
    tci_expr_fail(m, at, n, "%s: expected %s(%s)", what, a->row.name, a->row.form + 2);
}

/* The parameter of that keyword, or -1. "axis" is also the name of "axes". */
static int tci_expr_parameter(const tci_expr_machine *m, const tci_expr_args *a,
                              const tci_expr_value *v)
{
    bool axis = tci_expr_same(m, v->key, v->key_length, "axis");
    int axes = -1;
    for (int i = 0; i < a->row.n_params; i++) {
        if (tci_expr_same(m, v->key, v->key_length, a->names[i])) {
            return i;
        }
        axes = axis && !strcmp(a->names[i], "axes") ? i : axes;
    }
    return axes;
}

/* Gives parameter p the items of v, or the values from v on that are items; returns how many values
 * it took. */
static int tci_expr_give_tensors(tci_expr_machine *m, tci_expr_args *a, int p,
                                 const tci_expr_value *v, int left)
{
    bool list = v->kind == TCI_EXPR_IS_LIST;
    const tci_expr_value *items = list ? m->pool + v->first : v;
    int n = list ? v->n : left, i = 0;
    a->first[p] = m->n_tensors;
    for (; i < n && (tci_expr_is_tensor(&items[i]) || items[i].kind == TCI_EXPR_IS_NONE); i++) {
        if (!list && items[i].key_length && i) {
            break;
        }
        m->tensors[m->n_tensors++] = items[i].kind == TCI_EXPR_IS_NONE ? TC_NONE
                                                                       : items[i].arg.tensor;
    }
    a->n[p] = i;
    if (list ? i < n : !i) {
        tci_expr_refuse(m, a, v, "a list of tensors has another item");
    }
    return list ? 1 : TCI_MAX(i, 1);
}

static int tci_expr_give_ints(tci_expr_machine *m, tci_expr_args *a, int p, const tci_expr_value *v,
                              int left)
{
    bool list = v->kind == TCI_EXPR_IS_LIST;
    const tci_expr_value *items = list ? m->pool + v->first : v;
    int n = list ? v->n : left, i = 0;
    a->first[p] = m->n_ints;
    for (; i < n && tci_expr_is_whole(&items[i]) && (list || !i || !items[i].key_length); i++) {
        m->ints[m->n_ints++] = items[i].arg.i;
    }
    a->n[p] = i;
    a->given[p].n = i;
    a->given[p].items = m->ints + a->first[p];
    if (list && i < n) {
        tci_expr_refuse(m, a, v, "a list has an item that is not an integer");
    }
    return list ? 1 : i;
}

/* Gives v to parameter p; returns how many values were taken. */
static int tci_expr_give(tci_expr_machine *m, tci_expr_args *a, int p, const tci_expr_value *v,
                         int left)
{
    int kind = a->row.params[p].kind;
    bool sizes = kind == TCI_PARAM_sizes || kind == TCI_PARAM_typed;
    tc_attr *to = &a->given[p];
    if (to->name || a->none[p]) {
        tci_expr_refuse(m, a, v, "an argument is given twice");
        return 1;
    }
    if (v->kind == TCI_EXPR_IS_NONE && kind != TCI_PARAM_tensors) {
        a->none[p] = true;
        return 1;
    }
    *to = tci_attr_value(a->names[p], v->arg);
    if (kind == TCI_PARAM_tensors) {
        return tci_expr_give_tensors(m, a, p, v, v->key_length ? 1 : left);
    }
    if (v->kind == TCI_EXPR_IS_LIST || (sizes && tci_expr_is_whole(v))) {
        return tci_expr_give_ints(m, a, p, v, v->key_length ? 1 : left);
    }
    if (v->kind == TCI_EXPR_IS_TEXT) {
        to->text = v->text;
    } else if (v->kind != TCI_EXPR_IS_ARG && v->kind != TCI_EXPR_IS_DTYPE) {
        tci_expr_refuse(m, a, v, "a slice or ... stands outside of a subscript");
    } else if ((v->kind == TCI_EXPR_IS_DTYPE) != (kind == TCI_PARAM_dtype)) {
        tci_expr_refuse(m, a, v,
                        kind == TCI_PARAM_dtype ? "a dtype is needed, as f32" : "a dtype is given");
    }
    return 1;
}

/* Items that the lists of n values may have, and an input for each parameter. */
static bool tci_expr_call_room(tci_expr_machine *m, const tci_expr_value *v, int n)
{
    int items = n + TCI_PARAMS_MOST;
    for (int i = 0; i < n; i++) {
        items += v[i].kind == TCI_EXPR_IS_LIST ? v[i].n : 0;
    }
    m->n_ints = m->n_tensors = 0;
    return tci_expr_memory(m, tci_expr_room(m->code.g, &m->ints, &m->cap_ints, items,
                                            sizeof(*m->ints)) &&
                                  tci_expr_room(m->code.g, &m->tensors, &m->cap_tensors, 2 * items,
                                                sizeof(*m->tensors)));
}

/* Positional arguments in order, then those with a keyword. */
static void tci_expr_sort_args(tci_expr_machine *m, tci_expr_args *a, const tci_expr_value *v,
                               int n)
{
    int next = 0;
    bool keywords = false;
    for (int i = 0; i < n && !m->f.failed;) {
        int p = v[i].key_length ? tci_expr_parameter(m, a, &v[i]) : next++;
        if (keywords && !v[i].key_length) {
            tci_expr_refuse(m, a, &v[i], "a positional argument follows one with a keyword");
        } else if (p < 0 || p >= a->row.n_params) {
            tci_expr_refuse(m, a, &v[i],
                            p < 0 ? "there is no such parameter"
                                  : "there are more arguments than parameters");
        } else {
            keywords = v[i].key_length > 0;
            i += tci_expr_give(m, a, p, &v[i], n - i);
        }
    }
}

/* The operands of a call with a list of tensors are inputs, in their order. The tensors of the list
 * are in m->tensors already. */
static tc_tensors tci_expr_inputs(tci_expr_machine *m, tci_expr_args *a)
{
    int first = m->n_tensors;
    for (int i = 0; i < a->row.n_params; i++) {
        int kind = a->row.params[i].kind;
        tc_attr *given = &a->given[i];
        if (kind == TCI_PARAM_tensors) {
            memcpy(m->tensors + m->n_tensors, m->tensors + a->first[i],
                   (size_t)a->n[i] * sizeof(*m->tensors));
            m->n_tensors += a->n[i];
            given->name = NULL;
        } else if (kind == TCI_PARAM_tensor || kind == TCI_PARAM_optional ||
                   kind == TCI_PARAM_operand || kind == TCI_PARAM_maybe) {
            bool tensor = given->name && !given->value.kind && !given->items && !given->text;
            m->tensors[m->n_tensors++] = tensor ? given->value.tensor : TC_NONE;
            given->name = tensor ? NULL : given->name;
        }
    }
    return TC_TENSORS_N(m->tensors + first, m->n_tensors - first);
}

static void tci_expr_call(tci_expr_machine *m, const tci_expr_step *step)
{
    const char *name = m->code.text + step->at;
    tci_expr_value *v = &m->stack[m->top - step->n];
    tci_expr_args a = {.step = step};
    char spelled[64];
    int n = 0;
    bool listed = false;
    if (!tci_named_find(name, (size_t)step->length, &a.row)) {
        snprintf(spelled, sizeof(spelled), "%.*s", TCI_MIN(step->length, 60), name);
        const char *near = tci_named_nearest(spelled);
        tci_expr_fail(m, step->at, step->length, "there is no op '%s'%s%s", spelled,
                      near ? ": expected another name, as " : "", near ? near : "");
        return;
    }
    tci_named_params(&a.row, a.names);
    if (!tci_expr_call_room(m, v, step->n)) {
        return;
    }
    tci_expr_sort_args(m, &a, v, step->n);
    for (int i = 0; i < a.row.n_params; i++) {
        listed = listed || a.row.params[i].kind == TCI_PARAM_tensors;
    }
    tc_tensors inputs = listed ? tci_expr_inputs(m, &a) : TC_TENSORS_N(NULL, 0);
    for (int i = 0; i < a.row.n_params; i++) {
        if (a.given[i].name) {
            a.given[n++] = a.given[i];
        }
    }
    if (!m->f.failed) {
        tci_expr_make(m, step, step->n, a.row.name, a.row.n_results, inputs,
                      TC_ATTRS_N(a.given, n));
    }
}

/* ---- subscripts and attributes ---- */

/* One bound of a slice. */
static int64_t tci_expr_bound_of(tci_expr_machine *m, const tci_expr_value *v, int64_t otherwise)
{
    if (v->kind != TCI_EXPR_IS_NONE && !tci_expr_is_whole(v)) {
        tci_expr_fail(m, v->at, v->length, "a bound of a slice is %s: expected an integer",
                      tci_expr_kind_text(v));
    }
    return v->kind == TCI_EXPR_IS_NONE ? otherwise : v->arg.i;
}

static tc_tensor tci_expr_slice(tci_expr_machine *m, tc_tensor x, int axis, const tci_expr_value *v)
{
    const tci_expr_value *bounds = m->pool + v->first;
    int64_t step = tci_expr_bound_of(m, &bounds[2], 1);
    int64_t start = tci_expr_bound_of(m, &bounds[0], step < 0 ? -1 : 0);
    int64_t stop = tci_expr_bound_of(m, &bounds[1], TC_END);
    bool whole = start == 0 && stop == TC_END && step == 1;
    return m->f.failed || whole ? x : tc_slice_at(x, axis, start, stop, step, m->f.here);
}

/* Number of axes that the items of a subscript cover; fails on an invalid item. */
static int tci_expr_axes_of(tci_expr_machine *m, const tci_expr_value *items, int n)
{
    int axes = 0, dots = 0;
    for (int i = 0; i < n && !m->f.failed; i++) {
        const tci_expr_value *v = &items[i];
        bool tensor = tci_expr_is_tensor(v);
        if ((tensor && tc_dtype_of(v->arg.tensor) == TC_BOOL) ||
            (!tensor && v->kind == TCI_EXPR_IS_ARG && !tci_expr_is_whole(v)) ||
            (v->kind > TCI_EXPR_IS_ARG && v->kind < TCI_EXPR_IS_SLICE)) {
            tci_expr_fail(m, v->at, v->length,
                          "an index is %s: expected integers, slices, None, "
                          "... or tensors of integers (of a mask: where, masked_select)",
                          tensor ? "a tensor of bools" : tci_expr_kind_text(v));
        }
        axes += v->kind == TCI_EXPR_IS_ARG || v->kind == TCI_EXPR_IS_SLICE;
        dots += v->kind == TCI_EXPR_IS_ELLIPSIS;
        if (dots > 1) {
            tci_expr_fail(m, v->at, v->length, "a subscript has two '...'");
        }
    }
    return axes;
}

/* Items that are no tensors, in their order; tensors go to m->tensors at their axes of the result:
 * the first *n entries. */
static tc_tensor tci_expr_basic(tci_expr_machine *m, tc_tensor x, const tci_expr_value *items,
                                int n, int hidden, int *n_tensors)
{
    int axis = 0;
    *n_tensors = 0;
    for (int i = 0; i < n && !m->f.failed && !tc_status_of(x); i++) {
        const tci_expr_value *v = &items[i];
        if (tci_expr_is_tensor(v)) {
            m->tensors[axis++] = v->arg.tensor;
            *n_tensors = axis;
        } else if (v->kind == TCI_EXPR_IS_SLICE) {
            x = tci_expr_slice(m, x, axis++, v);
        } else if (v->kind == TCI_EXPR_IS_NONE) {
            x = tc_unsqueeze_at(x, axis++, m->f.here);
        } else if (v->kind == TCI_EXPR_IS_ELLIPSIS) {
            axis += hidden;
        } else {
            x = tc_select_at(x, axis, v->arg.i, m->f.here);
        }
    }
    return x;
}

static void tci_expr_index_tensor(tci_expr_machine *m, const tci_expr_step *step, tc_tensor x,
                                  const tci_expr_value *items)
{
    int axes = tci_expr_axes_of(m, items, step->n), rank = tc_rank(x), n_tensors;
    if (!m->f.failed && (axes > rank || !step->n)) {
        tci_expr_fail(m, step->at, step->length, "%d indices are given for a tensor of rank %d",
                      axes, rank);
    }
    int most = rank + step->n;
    if (m->f.failed || !tci_expr_memory(m, tci_expr_room(m->code.g, &m->tensors, &m->cap_tensors,
                                                         most, sizeof(*m->tensors)))) {
        return;
    }
    for (int i = 0; i < most; i++) {
        m->tensors[i] = TC_NONE;
    }
    x = tci_expr_basic(m, x, items, step->n, rank - axes, &n_tensors);
    if (!m->f.failed && !tc_status_of(x) && n_tensors) {
        x = tc_index_at(x, TC_TENSORS_N(m->tensors, n_tensors), m->f.here);
    }
    if (!m->f.failed && tc_status_of(x)) {
        tci_expr_fail_call(m, step->at, step->length, x);
    }
    m->top -= step->n + 1;
    tci_expr_push_arg(m, step, tci_arg_tensor(x));
}

static void tci_expr_index(tci_expr_machine *m, const tci_expr_step *step)
{
    tci_expr_value *base = &m->stack[m->top - step->n - 1];
    const tci_expr_value *items = base + 1;
    if (tci_expr_is_tensor(base)) {
        tci_expr_index_tensor(m, step, base->arg.tensor, items);
    } else if (base->kind != TCI_EXPR_IS_LIST || step->n != 1 || !tci_expr_is_whole(items)) {
        tci_expr_fail(m, step->at, step->length,
                      "%s is subscripted: expected a tensor, or a list "
                      "and an integer",
                      tci_expr_kind_text(base));
    } else if (items->arg.i < -base->n || items->arg.i >= base->n) {
        tci_expr_fail(m, items->at, items->length,
                      "the list has %d items: expected an index "
                      "within",
                      base->n);
    } else {
        int i = (int)items->arg.i;
        *base = m->pool[base->first + (i < 0 ? i + base->n : i)];
        m->top -= 1;
    }
}

/* The sizes of x, as a list. */
static void tci_expr_shape(tci_expr_machine *m, const tci_expr_step *step, tc_tensor x)
{
    int rank = tc_rank(x);
    if (tci_expr_pool(m, rank)) {
        tci_expr_value *v = tci_expr_push(m, step, TCI_EXPR_IS_LIST);
        v->first = m->n_pool;
        v->n = rank;
        for (int i = 0; i < rank; i++) {
            m->pool[m->n_pool++] = (tci_expr_value){.at = step->at,
                                                    .arg = tci_arg_int(tc_size(x, i))};
        }
    }
}

static void tci_expr_attribute(tci_expr_machine *m, const tci_expr_step *step)
{
    tci_expr_value *v = &m->stack[m->top - 1];
    tc_tensor x = v->arg.tensor, y = x;
    bool turned = tci_expr_same(m, step->at, step->length, "T");
    if (!tci_expr_is_tensor(v)) {
        tci_expr_fail(m, step->at, step->length,
                      "an attribute of %s: expected a tensor before "
                      "the point",
                      tci_expr_kind_text(v));
        return;
    }
    m->top--;
    if (tci_expr_same(m, step->at, step->length, "shape")) {
        tci_expr_shape(m, step, x);
        return;
    }
    if (turned) {
        for (int i = 0, j = tc_rank(x) - 1; i < j; i++, j--) {
            y = tc_transpose_at(y, i, j, m->f.here);
        }
    } else if (tci_expr_same(m, step->at, step->length, "mT")) {
        y = tc_transpose_at(x, -2, -1, m->f.here);
    } else {
        tci_expr_fail(m, step->at, step->length,
                      "there is no such attribute: expected T, mT, "
                      "shape or a call");
    }
    if (tc_status_of(y)) {
        tci_expr_fail_call(m, step->at, step->length, y);
    }
    tci_expr_push_arg(m, step, tci_arg_tensor(y));
}

/* ---- the steps ---- */

static void tci_expr_keyword(tci_expr_machine *m, const tci_expr_step *step)
{
    m->stack[m->top - 1].key = step->at;
    m->stack[m->top - 1].key_length = step->length;
}

static void tci_expr_step_once(tci_expr_machine *m, const tci_expr_step *step)
{
    switch ((tci_expr_do)step->what) {
    case TCI_EXPR_DO_NUMBER: tci_expr_push_arg(m, step, step->number); break;
    case TCI_EXPR_DO_TEXT:
        m->words[step->at + step->length - 1] = 0;
        tci_expr_push(m, step, TCI_EXPR_IS_TEXT)->text = m->words + step->at + 1;
        break;
    case TCI_EXPR_DO_NAME: tci_expr_name(m, step); break;
    case TCI_EXPR_DO_NONE: tci_expr_push(m, step, TCI_EXPR_IS_NONE); break;
    case TCI_EXPR_DO_ELLIPSIS: tci_expr_push(m, step, TCI_EXPR_IS_ELLIPSIS); break;
    case TCI_EXPR_DO_UNARY: tci_expr_operate(m, step, 1); break;
    case TCI_EXPR_DO_BINARY: tci_expr_operate(m, step, 2); break;
    case TCI_EXPR_DO_LINK: tci_expr_link(m, step); break;
    case TCI_EXPR_DO_LIST: tci_expr_gather(m, step, step->n, TCI_EXPR_IS_LIST); break;
    case TCI_EXPR_DO_SLICE: tci_expr_gather(m, step, 3, TCI_EXPR_IS_SLICE); break;
    case TCI_EXPR_DO_INDEX: tci_expr_index(m, step); break;
    case TCI_EXPR_DO_KEYWORD: tci_expr_keyword(m, step); break;
    case TCI_EXPR_DO_CALL: tci_expr_call(m, step); break;
    case TCI_EXPR_DO_ATTRIBUTE: tci_expr_attribute(m, step); break;
    }
}

/* The node that the whole text is. */
static tci_node *tci_expr_value_of(tci_expr_machine *m)
{
    size_t bytes = (size_t)m->code.bytes + 1;
    size_t room = (size_t)(m->code.n_steps + 1) * sizeof(*m->stack);
    m->words = tci_graph_resize(m->code.g, NULL, 0, bytes);
    m->stack = tci_graph_resize(m->code.g, NULL, 0, room);
    if (tci_expr_memory(m, m->words && m->stack)) {
        memcpy(m->words, m->code.text, bytes);
        for (int i = 0; i < m->code.n_steps && !m->f.failed; i++) {
            tci_expr_step_once(m, &m->code.steps[i]);
        }
    }
    tc_tensor result = TC_NONE;
    if (!m->f.failed && !tci_expr_is_tensor(&m->stack[0])) {
        tci_expr_fail(m, 0, m->code.bytes, "the expression is %s: expected a tensor",
                      tci_expr_kind_text(&m->stack[0]));
    } else if (!m->f.failed) {
        result = m->stack[0].arg.tensor;
    }
    tci_node *node = m->f.failed ? NULL : tci_frame_node(&m->f, result, "the result");
    tci_graph_resize(m->code.g, m->words, m->words ? bytes : 0, 0);
    tci_graph_resize(m->code.g, m->stack, m->stack ? room : 0, 0);
    tci_graph_resize(m->code.g, m->pool, (size_t)m->cap_pool * sizeof(*m->pool), 0);
    tci_graph_resize(m->code.g, m->ints, (size_t)m->cap_ints * sizeof(*m->ints), 0);
    tci_graph_resize(m->code.g, m->tensors, (size_t)m->cap_tensors * sizeof(*m->tensors), 0);
    return node;
}

static tc_tensor tci_expr_run(tci_expr_machine *m, const char *text)
{
    tci_node *node = NULL;
    char shown[TCI_EXPR_SHOW_ROOM];
    if (!m->f.failed && !text) {
        tci_frame_fail(&m->f, TC_ERR_ARGUMENT, "the text is NULL");
    }
    if (!m->f.failed) {
        m->code.g = &m->f.ctx->graph;
        m->code.text = text;
        if (tci_expr_parse(&m->code)) {
            node = tci_expr_value_of(m);
        } else {
            tci_expr_show(&m->code, m->code.wrong, m->code.wrong_length, shown);
            tci_frame_fail(&m->f, m->code.status, "%s%s", m->code.message,
                           m->code.status == TC_ERR_MEMORY ? "" : shown);
        }
        tci_expr_code_free(&m->code);
    }
    return tci_frame_end(&m->f, node);
}

TC_API tc_tensor tc_expr_at(tc_ctx *ctx, const char *text, tc_attrs names, tc_site here)
{
    tci_expr_machine m = {.f = tci_frame_on(ctx, "tc_expr", here), .ctx = ctx, .names = names};
    if (!m.f.failed) {
        tci_frame_list(&m.f, names.items, names.n, "the names");
    }
    return tci_expr_run(&m, text);
}

TC_API tc_tensor tc_expr_named_at(const char *text, const char *names, const tc_arg *values, int n,
                                  tc_site here)
{
    tci_expr_machine m = {.f = tci_frame_begin("TC_EXPR", here),
                          .spelled = names,
                          .values = values};
    const char *next = names, *name;
    int length, i = 0;
    for (int k = 0; values && k < n; k++) {
        if (!values[k].kind) {
            tci_frame_use(&m.f, values[k].tensor);
        }
    }
    if (!m.f.ctx) { /* no tensor has a live context */
        m.f.failed = true;
        m.f.bad = (tc_tensor){NULL, TCI_NULL_NUMBERS, 0};
        for (int k = 0; values && k < n; k++) {
            m.f.bad = values[k].kind || tci_is_none(values[k].tensor) ? m.f.bad : values[k].tensor;
        }
        tci_frame_leave(&m.f);
        return m.f.bad;
    }
    m.ctx = m.f.ctx->handle;
    for (; tci_expr_spelled(&next, &name, &length); i++) {
        if (!tci_expr_is_name(name, length)) {
            tci_frame_fail(&m.f, TC_ERR_ARGUMENT,
                           "operand %d is '%.*s': expected an identifier, "
                           "or tc_expr with a name for the value",
                           i + 1, TCI_MIN(length, 60), name);
        }
    }
    if (i != n) {
        tci_frame_fail(&m.f, TC_ERR_ARGUMENT, "%d names are given for %d values", i, n);
    }
    return tci_expr_run(&m, text);
}
