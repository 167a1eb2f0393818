/* tests/oracle_case.h - one case of an oracle manifest: its arguments bound to names, and what an
 * adapter (oracle_ops.h) asks of them.
 *
 * In: the JSON of a case and a signature such as "input dim keepdim dtype". orc_bind puts
 * positional arguments, keyword arguments and bound ones under those names and makes a tc_input of
 * every tensor. Out: the tensors that the adapter hands to orc_out, or a reason why the case is
 * skipped. The first reason wins; adapters need not check for it, as every getter gives something
 * harmless. */
#ifndef TC_TEST_ORACLE_CASE_H
#define TC_TEST_ORACLE_CASE_H

#include <math.h>
#include <stdarg.h>

#include "safetensors.h"

enum { ORC_MAX_ARGS = 24, ORC_MAX_TENSORS = 64, ORC_MAX_RANK = 16 };

typedef struct orc_case {
    const json *spec;
    tc_ctx *ctx;
    const char *names[ORC_MAX_ARGS]; /* of the signature; borrowed from `signature` */
    const json *values[ORC_MAX_ARGS];
    int n_names;
    char signature[256];
    const json *input_specs[ORC_MAX_TENSORS];
    tc_tensor inputs[ORC_MAX_TENSORS];
    int n_inputs;
    tc_tensor outputs[ORC_MAX_TENSORS];
    bool is_index[ORC_MAX_TENSORS]; /* an output of positions: not compared where values tie */
    int n_outputs;
    bool gradients; /* the outputs are the gradients of the case's results */
    bool symbolic;  /* sizes of the inputs are symbols, but for those that are 1 and broadcast */
    int64_t sizes[ORC_MAX_RANK + 1]; /* scratch of the adapter */
    char skip[160];
} orc_case;

/* ---- dtypes ---- */

typedef struct orc_dtype {
    const char *name, *stored;
    tc_dtype dtype;
    size_t bytes;
} orc_dtype;
static const orc_dtype orc_dtypes[] = {
    {"b8", "BOOL", TC_BOOL, 1}, {"u8", "U8", TC_U8, 1},       {"u16", "U16", TC_U16, 2},
    {"u32", "U32", TC_U32, 4},  {"u64", "U64", TC_U64, 8},    {"i8", "I8", TC_I8, 1},
    {"i16", "I16", TC_I16, 2},  {"i32", "I32", TC_I32, 4},    {"i64", "I64", TC_I64, 8},
    {"f16", "F16", TC_F16, 2},  {"bf16", "BF16", TC_BF16, 2}, {"f32", "F32", TC_F32, 4},
    {"f64", "F64", TC_F64, 8},
};
enum { ORC_DTYPE_COUNT = sizeof(orc_dtypes) / sizeof(orc_dtypes[0]) };

/* NULL: no such dtype here (complex numbers). */
static const orc_dtype *orc_dtype_find(const char *name)
{
    for (int i = 0; i < ORC_DTYPE_COUNT; i++) {
        if (!strcmp(orc_dtypes[i].name, name)) {
            return &orc_dtypes[i];
        }
    }
    return NULL;
}

static const orc_dtype *orc_dtype_get(tc_dtype t)
{
    for (int i = 0; i < ORC_DTYPE_COUNT; i++) {
        if (orc_dtypes[i].dtype == t) {
            return &orc_dtypes[i];
        }
    }
    return &orc_dtypes[0];
}

static bool orc_is_float(tc_dtype t)
{
    return t == TC_F16 || t == TC_BF16 || t == TC_F32 || t == TC_F64;
}

/* ---- reasons ---- */

__attribute__((format(printf, 2, 3))) static void orc_skip(orc_case *c, const char *format, ...)
{
    va_list args;
    if (!c->skip[0]) {
        va_start(args, format);
        vsnprintf(c->skip, sizeof(c->skip), format, args);
        va_end(args);
    }
}

/* "argument dims=[0, 1]" */
static void orc_skip_argument(orc_case *c, const char *name, const json *v)
{
    orc_skip(c, "argument %s=%.*s", name, v ? (int)(v->text_bytes < 60 ? v->text_bytes : 60) : 4,
             v ? v->text : "none");
}

/* ---- binding ---- */

static bool orc_is_tensor(const json *v)
{
    return v && json_get(v, "t") != NULL;
}

/* Sizes of a tensor of the manifest; returns its number of elements. */
static int64_t orc_spec_sizes(const json *v, int64_t *sizes)
{
    int64_t n = 1;
    const json *shape = json_get(v, "s");
    for (const json *size = shape ? shape->first : NULL; size; size = size->next) {
        *sizes++ = size->integer;
        n *= size->integer;
    }
    return n;
}

/* Equal sizes get one symbol: ops ask some of them to be equal. */
static int64_t orc_symbol(const orc_case *c, int64_t size)
{
#ifdef TC_DYNAMIC_SHAPES
    char name[32];
    snprintf(name, sizeof(name), "d%lld", (long long)size);
    return c->symbolic && size != 1 ? TC_DIM(name, size > 0, 1024) : size;
#else
    (void)c;
    return size;
#endif
}

/* A size that the adapter computes with: a case whose size is a symbol is left out. */
static int64_t orc_size(orc_case *c, tc_tensor x, int axis)
{
    int64_t size = tc_size(x, axis);
    if (size > (int64_t)1 << 60) {
        orc_skip(c, "a symbolic size as a number of the case");
        return 1;
    }
    return size;
}

static void orc_make_input(orc_case *c, const json *v)
{
    const orc_dtype *d = orc_dtype_find(json_string(v, "d"));
    const json *shape = json_get(v, "s");
    int64_t sizes[ORC_MAX_RANK + 1];
    int n = 1;
    if (!d) {
        orc_skip(c, "dtype %s", json_string(v, "d"));
        return;
    }
    if (c->n_inputs == ORC_MAX_TENSORS || !shape || shape->n > ORC_MAX_RANK) {
        orc_skip(c, "more than %d tensors or axes", ORC_MAX_RANK);
        return;
    }
    sizes[0] = d->dtype;
    for (const json *size = shape->first; size; size = size->next) {
        sizes[n++] = orc_symbol(c, size->integer);
    }
    tc_tensor x = tc_input_at(c->ctx, "x", n, sizes, TC_HERE);
    if (tc_status_of(x)) {
        orc_skip(c, "tensor %s: %.120s", json_string(v, "t"), tc_error(x));
        return;
    }
    c->input_specs[c->n_inputs] = v;
    c->inputs[c->n_inputs++] = x;
}

static void orc_make_inputs(orc_case *c, const json *v)
{
    if (orc_is_tensor(v)) {
        orc_make_input(c, v);
    } else if (v->kind == JSON_LIST || v->kind == JSON_OBJECT) {
        for (const json *child = v->first; child; child = child->next) {
            orc_make_inputs(c, child);
        }
    }
}

/* What torch's keywords are called in tc. */
static const char *const orc_keywords[][2] = {
    {"dim", "axis"},    {"dim", "axes"},    {"keepdim", "keepdims"},
    {"other", "b"},     {"size", "sizes"},  {"divisor_override", "divisor"},
    {"dim1", "axis_a"}, {"dim2", "axis_b"}, {"diagonal", "offset"},
    {"end", "stop"},    {"min", "low"},     {"max", "high"},
};

/* Say how torch lays out memory, and nothing of values. */
static const char *const orc_layouts[] = {"inplace", "memory_format", "layout",
                                          "device",  "requires_grad", "sparse_grad"};

static bool orc_is_layout(const char *keyword)
{
    for (size_t i = 0; i < sizeof(orc_layouts) / sizeof(orc_layouts[0]); i++) {
        if (!strcmp(orc_layouts[i], keyword)) {
            return true;
        }
    }
    return false;
}

static bool orc_is_name_of(const char *name, const char *keyword)
{
    for (size_t i = 0; i < sizeof(orc_keywords) / sizeof(orc_keywords[0]); i++) {
        if (!strcmp(orc_keywords[i][0], keyword) && !strcmp(orc_keywords[i][1], name)) {
            return true;
        }
    }
    return !strcmp(name, keyword);
}

static void orc_bind_keywords(orc_case *c, const json *keywords)
{
    for (const json *v = keywords ? keywords->first : NULL; v; v = v->next) {
        int i = 0;
        while (i < c->n_names && !orc_is_name_of(c->names[i], v->key)) {
            i++;
        }
        if (i < c->n_names) {
            c->values[i] = v;
        } else if (v->kind != JSON_NULL && !orc_is_layout(v->key)) {
            orc_skip_argument(c, v->key, v);
        }
        if (v->kind == JSON_LIST || v->kind == JSON_OBJECT) {
            orc_make_inputs(c, v);
        }
    }
}

/* Where positional argument i goes: to the i-th name, or to "*name" from there on; -1: nowhere. */
static int orc_place(const orc_case *c, int i)
{
    for (int k = 0; k < c->n_names && k <= i; k++) {
        if (k == i || c->names[k][0] == '*') {
            return k;
        }
    }
    return -1;
}

/* "*name" in a signature takes all positional arguments from there on; names behind it are those of
 * keywords. */
static void orc_bind(orc_case *c, tc_ctx *ctx, const json *spec, const char *signature)
{
    bool symbolic = c->symbolic;
    memset(c, 0, sizeof(*c));
    c->symbolic = symbolic;
    c->ctx = ctx;
    c->spec = spec;
    snprintf(c->signature, sizeof(c->signature), "%s", signature);
    for (char *name = strtok(c->signature, " "); name && c->n_names < ORC_MAX_ARGS;
         name = strtok(NULL, " ")) {
        c->names[c->n_names++] = name;
    }
    const json *args = json_get(spec, "args");
    int i = 0;
    for (const json *v = args ? args->first : NULL; v; v = v->next, i++) {
        int place = orc_place(c, i);
        if (place < 0) {
            orc_skip(c, "positional argument %d: %.*s", i,
                     (int)(v->text_bytes < 60 ? v->text_bytes : 60), v->text);
        } else if (!c->values[place]) {
            c->values[place] = v; /* the others of "*name" follow by ->next */
        }
        orc_make_inputs(c, v);
    }
    orc_bind_keywords(c, json_get(spec, "kwargs"));
    orc_bind_keywords(c, json_get(spec, "bound"));
}

/* ---- what adapters ask ---- */

/* NULL: not given, or None. */
static const json *orc_value(const orc_case *c, const char *name)
{
    for (int i = 0; i < c->n_names; i++) {
        if (!strcmp(c->names[i], name)) {
            return c->values[i] && c->values[i]->kind == JSON_NULL ? NULL : c->values[i];
        }
    }
    return NULL;
}

static bool orc_has(const orc_case *c, const char *name)
{
    return orc_value(c, name) != NULL;
}

static tc_tensor orc_tensor_of(orc_case *c, const json *v)
{
    for (int i = 0; i < c->n_inputs; i++) {
        if (c->input_specs[i] == v) {
            return c->inputs[i];
        }
    }
    orc_skip(c, "not a tensor where one is needed");
    return TC_NONE;
}

static tc_tensor orc_tensor(orc_case *c, const char *name)
{
    return orc_tensor_of(c, orc_value(c, name));
}

static tc_tensor orc_optional(orc_case *c, const char *name)
{
    return orc_has(c, name) ? orc_tensor(c, name) : TC_NONE;
}

static double orc_number_of(orc_case *c, const json *v)
{
    const char *text = json_string(v, "f");
    if (v->kind == JSON_NUMBER || v->kind == JSON_BOOL) {
        return v->number;
    }
    if (!text[0]) {
        orc_skip(c, "not a number where one is needed");
    }
    return !strcmp(text, "inf")    ? INFINITY
           : !strcmp(text, "-inf") ? -INFINITY
           : !strcmp(text, "nan")  ? NAN
                                   : 0;
}

static double orc_number(orc_case *c, const char *name, double otherwise)
{
    const json *v = orc_value(c, name);
    return v ? orc_number_of(c, v) : otherwise;
}

/* A tensor or a number. */
static tc_arg orc_arg_of(orc_case *c, const json *v)
{
    if (!v || orc_is_tensor(v)) {
        return tci_arg_tensor(orc_tensor_of(c, v));
    }
    if (v->kind == JSON_BOOL) {
        return tci_arg_bool(v->integer != 0);
    }
    return v->kind == JSON_NUMBER && v->is_integer ? tci_arg_int(v->integer)
                                                   : tci_arg_float(orc_number_of(c, v));
}

static tc_arg orc_arg(orc_case *c, const char *name)
{
    return orc_arg_of(c, orc_value(c, name));
}

/* The number of that name as a weak operand that stays an integer where it was written as one. */
static tc_arg orc_scalar(orc_case *c, const char *name, long long otherwise)
{
    const json *v = orc_value(c, name);
    return v ? orc_arg_of(c, v) : tci_arg_int(otherwise);
}

/* A number as a tensor of no axes: of two numbers torch takes the first for one. */
static tc_arg orc_lifted(orc_case *c, tc_arg a)
{
    const int64_t dtype[1] = {a.kind == 3 ? TC_F32 : a.kind == 2 ? TC_I64 : TC_BOOL};
    return a.kind ? tci_arg_tensor(tc_full_at(c->ctx, a, 1, dtype, TC_HERE)) : a;
}

static int64_t orc_int(orc_case *c, const char *name, int64_t otherwise)
{
    const json *v = orc_value(c, name);
    if (v && ((v->kind != JSON_NUMBER || !v->is_integer) && v->kind != JSON_BOOL)) {
        orc_skip_argument(c, name, v);
        return otherwise;
    }
    return v ? v->integer : otherwise;
}

/* An axis as an int; what does not fit one is no axis of any tensor either. */
static int orc_int_of(int64_t v)
{
    return v < INT16_MIN || v > INT16_MAX ? INT16_MAX : (int)v;
}

static int orc_axis_arg(orc_case *c, const char *name, int64_t otherwise)
{
    return orc_int_of(orc_int(c, name, otherwise));
}

static bool orc_bool(orc_case *c, const char *name)
{
    return orc_int(c, name, 0) != 0;
}

static const char *orc_text(orc_case *c, const char *name, const char *otherwise)
{
    const json *v = orc_value(c, name);
    if (v && v->kind != JSON_STRING) {
        orc_skip_argument(c, name, v);
        return otherwise;
    }
    return v ? v->string : otherwise;
}

/* A list of integers, or one integer as a list of one. */
static int orc_ints(orc_case *c, const char *name, int64_t *items, int room)
{
    const json *v = orc_value(c, name);
    int n = 0;
    if (v && v->kind == JSON_NUMBER && v->is_integer) {
        items[0] = v->integer;
        return 1;
    }
    for (const json *item = v && v->kind == JSON_LIST ? v->first : NULL; item; item = item->next) {
        if (n == room || item->kind != JSON_NUMBER || !item->is_integer) {
            orc_skip_argument(c, name, v);
            return n;
        }
        items[n++] = item->integer;
    }
    if (v && v->kind != JSON_LIST) {
        orc_skip_argument(c, name, v);
    }
    return n;
}

/* n numbers per axis: a list of n or of one, or one integer; `otherwise` where not given. */
static void orc_per_axis(orc_case *c, const char *name, int64_t otherwise, int64_t *items, int n)
{
    int given = orc_has(c, name) ? orc_ints(c, name, items, n) : 0;
    for (int i = given; i < n; i++) {
        items[i] = given ? items[0] : otherwise;
    }
}

/* Not given, None or an empty list: every axis. `axes` is the caller's memory. */
static tc_axes orc_axes(orc_case *c, const char *name, int *axes)
{
    int64_t items[ORC_MAX_RANK];
    int n = orc_has(c, name) ? orc_ints(c, name, items, ORC_MAX_RANK) : 0;
    tc_axes all = TC_ALL, some = {axes, n, false};
    for (int i = 0; i < n; i++) {
        axes[i] = orc_int_of(items[i]);
    }
    return n ? some : all;
}

/* The dtype of that name, or `otherwise`. */
static tc_dtype orc_dtype_arg(orc_case *c, const char *name, tc_dtype otherwise)
{
    const json *v = orc_value(c, name);
    const orc_dtype *d = v ? orc_dtype_find(json_string(v, "dtype")) : NULL;
    if (v && !d) {
        orc_skip_argument(c, name, v);
    }
    return d ? d->dtype : otherwise;
}

/* x in the dtype of that name; x itself where it is not given. */
static tc_tensor orc_in_dtype(orc_case *c, tc_tensor x, const char *name)
{
    return orc_has(c, name) ? tc_cast(x, orc_dtype_arg(c, name, TC_F32)) : x;
}

static void orc_out(orc_case *c, tc_tensor t)
{
    if (c->n_outputs == ORC_MAX_TENSORS) {
        orc_skip(c, "more than %d results", ORC_MAX_TENSORS);
        return;
    }
    c->outputs[c->n_outputs++] = t;
}

static void orc_out_index(orc_case *c, tc_tensor t)
{
    if (c->n_outputs < ORC_MAX_TENSORS) {
        c->is_index[c->n_outputs] = true;
    }
    orc_out(c, t);
}

/* Tensors of a list argument, or of "*name": all positional ones from there on, or the one list
 * that stands there. Returns how many. */
static int orc_tensors(orc_case *c, const char *name, tc_tensor *items, int room)
{
    const json *v = orc_value(c, name);
    int n = 0;
    if (v && v->kind == JSON_LIST) {
        v = v->first;
    } else if (v && name[0] != '*') {
        orc_skip_argument(c, name, v);
        return 0;
    }
    for (; v && n < room; v = v->next) {
        items[n++] = orc_tensor_of(c, v);
    }
    return n;
}

/* Axis as a number of its own: negative ones count from the end. Clamped, so that it indexes
 * safely. */
static int orc_axis(tc_tensor x, int64_t axis)
{
    int rank = tc_rank(x);
    int64_t a = axis < 0 ? axis + (rank > 0 ? rank : 1) : axis;
    return (int)(a < 0 ? -1 : a > rank ? rank : a);
}

static int orc_sizes(tc_tensor x, int64_t *sizes)
{
    int rank = tc_rank(x);
    for (int i = 0; i < rank && i < ORC_MAX_RANK; i++) {
        sizes[i] = tc_size(x, i);
    }
    return rank < ORC_MAX_RANK ? rank : ORC_MAX_RANK;
}

/* ---- ops by their names ---- */

/* What tc says that the op of that name takes, or NULL. */
static const char *orc_params(const char *call)
{
    int i = 0;
    while (tc_op_name(i) && strcmp(tc_op_name(i), call)) {
        i++;
    }
    return tc_op_params(i);
}

/* "x: tensor, axis: axis" as a signature: "x axis dtype", as torch's ops may be given a dtype. */
static const char *orc_signature(const char *call, char *text)
{
    int n = 0;
    for (const char *at = orc_params(call); at; at = strstr(at, ", ")) {
        at += *at == ',' ? 2 : 0;
        n += sprintf(text + n, "%.*s ", (int)strcspn(at, ":"), at);
    }
    sprintf(text + n, "dtype");
    return text;
}

/* The value of a case as a parameter; lists of integers go to `items`. A tensor for sizes stands
 * for its own, and no axes at all are all of them. False: the parameter is left out. */
static bool orc_attr(orc_case *c, int i, tc_attr *a, int64_t *items)
{
    const json *v = orc_value(c, c->names[i]);
    bool sizes = !strcmp(c->names[i], "sizes");
    memset(a, 0, sizeof(*a));
    a->name = c->names[i];
    if (!v || !strcmp(a->name, "dtype")) {
        return false;
    }
    if (v->kind == JSON_STRING) {
        a->text = v->string;
    } else if (v->kind == JSON_LIST || (sizes && orc_is_tensor(v))) {
        a->items = items;
        a->n = v->kind == JSON_LIST ? orc_ints(c, a->name, items, ORC_MAX_RANK)
                                    : orc_sizes(orc_tensor_of(c, v), items);
        return a->n || strcmp(a->name, "axes");
    } else {
        a->value = orc_arg_of(c, v);
    }
    return true;
}

/* The op of tc's of that name, whose parameters are the names of the case. A dtype is that of the
 * first operand and of the result. */
static void orc_call(orc_case *c, const char *call)
{
    tc_tensor list[ORC_MAX_TENSORS];
    tc_tensors inputs = {list, 0};
    tc_attr attrs[ORC_MAX_ARGS];
    int64_t items[ORC_MAX_ARGS][ORC_MAX_RANK];
    int n = 0, tensors = 0;
    for (int i = 0; i < c->n_names; i++) {
        const json *v = orc_value(c, c->names[i]);
        tensors += v && orc_is_tensor(v->kind == JSON_LIST ? v->first : v);
        if (v && v->kind == JSON_LIST && orc_is_tensor(v->first)) {
            inputs.n = orc_tensors(c, c->names[i], list, ORC_MAX_TENSORS);
        } else if (orc_attr(c, i, &attrs[n], items[n])) {
            n++;
        }
    }
    if (n && !tensors) {
        attrs[0].value = orc_lifted(c, attrs[0].value);
    }
    if (n && !attrs[0].value.kind && orc_has(c, "dtype")) {
        attrs[0].value.tensor = orc_in_dtype(c, attrs[0].value.tensor, "dtype");
    }
    tc_tensor y = tc_op(c->ctx, call, inputs, TC_ATTRS_N(attrs, n));
    orc_out(c, orc_in_dtype(c, y, "dtype"));
}

#endif
