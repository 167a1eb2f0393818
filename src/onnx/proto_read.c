/* onnx/proto_read.c - reads the wire format of ONNX files (onnx/proto_read.h).
 *
 * Design: a cursor over a message, each advance of which is checked against the end, and a function
 * for each message that takes the fields it knows and skips the rest. Lists of numbers are packed
 * or not (models before 2020), or mixed: both are appended. */
#include "proto_read.h"

#include "../api/operand_macros.h"

#include <inttypes.h>
#include <string.h>

#include "../base/system_headers.h"

enum { TCI_PB_DEEPEST = 32, TCI_PB_RANK_MAX = 64 };

typedef struct tci_pb {
    const unsigned char *at, *end;
    tci_scratch *s;
    int depth; /* graphs within graphs */
} tci_pb;

/* A field; wire 0: number, 1 and 5: number of 8 and 4 bytes, 2: bytes. */
typedef struct tci_pb_field {
    uint64_t id, value;
    int wire;
    tci_pb bytes;
} tci_pb_field;

static void tci_pb_bad(const tci_pb *p, const char *what)
{
    tci_scratch_fail(p->s, TC_ERR_IO, "it is damaged, or no ONNX model: %s", what);
}

static uint64_t tci_pb_varint(tci_pb *p)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (p->at == p->end) {
            tci_pb_bad(p, "it ends within a number");
        }
        unsigned char c = *p->at++;
        v |= (uint64_t)(c & 0x7f) << shift;
        if (!(c & 0x80)) {
            return v;
        }
    }
    tci_pb_bad(p, "a number has more than 64 bits");
    return 0;
}

static uint64_t tci_pb_fixed(tci_pb *p, int bytes)
{
    uint64_t v = 0;
    if (p->end - p->at < bytes) {
        tci_pb_bad(p, "it ends within a number");
    }
    for (int i = 0; i < bytes; i++) {
        v |= (uint64_t)p->at[i] << 8 * i;
    }
    p->at += bytes;
    return v;
}

/* False at the end of the message. */
static bool tci_pb_next(tci_pb *p, tci_pb_field *f)
{
    if (p->at == p->end) {
        return false;
    }
    uint64_t key = tci_pb_varint(p);
    f->id = key >> 3;
    f->wire = (int)(key & 7);
    f->bytes = *p;
    if (f->id == 0) { /* protobuf has none: a range of zeros would be fields without end */
        tci_pb_bad(p, "a field has the number 0");
    } else if (f->wire == 0) {
        f->value = tci_pb_varint(p);
    } else if (f->wire == 1 || f->wire == 5) {
        f->value = tci_pb_fixed(p, f->wire == 1 ? 8 : 4);
    } else if (f->wire == 2) {
        f->value = tci_pb_varint(p);
        if (f->value > (uint64_t)(p->end - p->at)) {
            tci_pb_bad(p, "a part of it is longer than the whole");
        }
        f->bytes.at = p->at;
        f->bytes.end = p->at = p->at + f->value;
    } else {
        tci_pb_bad(p, "an unknown kind of field");
    }
    return true;
}

/* The field's bytes, which must be such. */
static tci_pb *tci_pb_bytes(tci_pb_field *f)
{
    if (f->wire != 2) {
        tci_pb_bad(&f->bytes, "a number where text or a message is expected");
    }
    return &f->bytes;
}

static const char *tci_pb_text(tci_pb_field *f)
{
    tci_pb *p = tci_pb_bytes(f);
    size_t n = (size_t)(p->end - p->at);
    char *text = tci_scratch_get(p->s, n + 1);
    memcpy(text, p->at, n);
    if (memchr(text, 0, n)) {
        tci_pb_bad(p, "a name with a NUL in it");
    }
    return text;
}

static int64_t tci_pb_int(tci_pb_field *f)
{
    if (f->wire == 2) {
        tci_pb_bad(&f->bytes, "text where a number is expected");
    }
    return (int64_t)f->value;
}

static double tci_pb_float(uint64_t bits, int wire)
{
    uint32_t narrow = (uint32_t)bits;
    float x;
    double y;
    memcpy(&x, &narrow, sizeof(x));
    memcpy(&y, &bits, sizeof(y));
    return wire == 1 ? y : (double)x;
}

/* Numbers of one field, packed or not, appended to a list of 64-bit words. width: 0 for varints,
 * else bytes of each. */
typedef struct tci_pb_list {
    uint64_t *items;
    int n, cap;
} tci_pb_list;

static void tci_pb_append(tci_pb_field *f, int width, tci_pb_list *list)
{
    tci_scratch *s = f->bytes.s;
    if (f->wire != 2) {
        TCI_PUSH(s, list->items, list->n, list->cap, f->value);
        return;
    }
    tci_pb p = f->bytes;
    while (p.at < p.end) {
        uint64_t v = width ? tci_pb_fixed(&p, width) : tci_pb_varint(&p);
        TCI_PUSH(s, list->items, list->n, list->cap, v);
    }
}

/* ---- TensorProto ---- */

/* X(number, name, dtype): TensorProto.DataType. */
#define TCI_ONNX_TYPES(X)                                                                          \
    X(1, "FLOAT", TC_F32)                                                                          \
    X(2, "UINT8", TC_U8)                                                                           \
    X(3, "INT8", TC_I8)                                                                            \
    X(4, "UINT16", TC_U16)                                                                         \
    X(5, "INT16", TC_I16)                                                                          \
    X(6, "INT32", TC_I32)                                                                          \
    X(7, "INT64", TC_I64)                                                                          \
    X(8, "STRING", TC_DTYPE_COUNT)                                                                 \
    X(9, "BOOL", TC_BOOL)                                                                          \
    X(10, "FLOAT16", TC_F16)                                                                       \
    X(11, "DOUBLE", TC_F64)                                                                        \
    X(12, "UINT32", TC_U32)                                                                        \
    X(13, "UINT64", TC_U64)                                                                        \
    X(14, "COMPLEX64", TC_DTYPE_COUNT)                                                             \
    X(15, "COMPLEX128", TC_DTYPE_COUNT)                                                            \
    X(16, "BFLOAT16", TC_BF16)                                                                     \
    X(17, "FLOAT8E4M3FN", TC_DTYPE_COUNT)                                                          \
    X(18, "FLOAT8E4M3FNUZ", TC_DTYPE_COUNT)                                                        \
    X(19, "FLOAT8E5M2", TC_DTYPE_COUNT)                                                            \
    X(20, "FLOAT8E5M2FNUZ", TC_DTYPE_COUNT)                                                        \
    X(21, "UINT4", TC_DTYPE_COUNT)                                                                 \
    X(22, "INT4", TC_DTYPE_COUNT)                                                                  \
    X(23, "FLOAT4E2M1", TC_DTYPE_COUNT)                                                            \
    X(24, "FLOAT8E8M0", TC_DTYPE_COUNT)                                                            \
    X(25, "UINT2", TC_DTYPE_COUNT)                                                                 \
    X(26, "INT2", TC_DTYPE_COUNT)

typedef struct tci_onnx_type {
    int number;
    const char *name;
    tc_dtype dtype;
} tci_onnx_type;
static const tci_onnx_type tci_onnx_types[] = {
#define TCI_ROW(number, name, dtype) {number, name, dtype},
    TCI_ONNX_TYPES(TCI_ROW)
#undef TCI_ROW
};

TCI_FN tc_dtype tci_onnx_dtype(int64_t type)
{
    return type >= 1 && type <= TCI_COUNT(tci_onnx_types) ? tci_onnx_types[type - 1].dtype
                                                          : TC_DTYPE_COUNT;
}

TCI_FN int tci_onnx_type_of(tc_dtype dtype)
{
    for (int i = 0; i < TCI_COUNT(tci_onnx_types); i++) {
        if (tci_onnx_types[i].dtype == dtype) {
            return tci_onnx_types[i].number;
        }
    }
    return 0;
}

TCI_FN const char *tci_onnx_type_name(int64_t type)
{
    return type >= 1 && type <= TCI_COUNT(tci_onnx_types) ? tci_onnx_types[type - 1].name
                                                          : "an unknown type";
}

/* The typed lists of old files as dense bytes: words narrowed to elements. */
static void tci_pb_dense(tci_pb *p, tci_onnx_tensor *t, const tci_pb_list *list)
{
    int width = tc_dtype_size(tci_onnx_dtype(t->type));
    char *data = tci_scratch_get(p->s, (size_t)list->n * (size_t)width + 1);
    for (int i = 0; i < list->n; i++) { /* little-endian */
        for (int b = 0; b < width; b++) {
            data[(int64_t)i * width + b] = (char)(list->items[i] >> 8 * b);
        }
    }
    t->data = data;
    t->bytes = (int64_t)list->n * width;
}

static void tci_pb_external(tci_pb *p, tci_onnx_tensor *t)
{
    const char *key = "", *value = "";
    tci_pb_field f;
    while (tci_pb_next(p, &f)) {
        if (f.id == 1) {
            key = tci_pb_text(&f);
        } else if (f.id == 2) {
            value = tci_pb_text(&f);
        }
    }
    if (!strcmp(key, "location")) {
        t->place = value;
    } else if (!strcmp(key, "offset") || !strcmp(key, "length")) {
        char *end;
        errno = 0;
        long long n = strtoll(value, &end, 10);
        if (*end || end == value || n < 0 || errno) {
            tci_pb_bad(p, "an offset or a length of external data is no number");
        }
        *(*key == 'o' ? &t->offset : &t->length) = n;
    }
}

/* Checks that the sizes and the data agree. */
static void tci_pb_tensor_check(tci_pb *p, tci_onnx_tensor *t, bool external)
{
    int width = tc_dtype_size(tci_onnx_dtype(t->type));
    t->count = 1;
    for (int i = 0; i < t->rank; i++) {
        if (t->sizes[i] < 0 || (t->sizes[i] && t->count > (INT64_C(1) << 48) / t->sizes[i])) {
            tci_pb_bad(p, "a tensor has a negative or too large a size");
        }
        t->count *= t->sizes[i];
    }
    if (!external) {
        t->place = NULL;
        if (width && t->bytes != t->count * width) {
            tci_scratch_fail(p->s, TC_ERR_IO,
                             "it is damaged: tensor %.60s has %" PRId64 " bytes, "
                             "its sizes need %" PRId64,
                             t->name, t->bytes, t->count * width);
        }
    } else if (!t->place) {
        tci_pb_bad(p, "external data without a location");
    }
}

static void tci_pb_tensor(tci_pb *p, tci_onnx_tensor *t)
{
    tci_pb_list sizes = {NULL, 0, 0}, data = {NULL, 0, 0};
    bool external = false;
    tci_pb_field f;
    *t = (tci_onnx_tensor){.name = "", .length = -1};
    while (tci_pb_next(p, &f)) {
        switch (f.id) {
        case 1: tci_pb_append(&f, 0, &sizes); break;
        case 2: t->type = (int)TCI_MIN(tci_pb_int(&f) & 0xffff, 0xffff); break;
        case 4: tci_pb_append(&f, 4, &data); break;  /* float_data */
        case 5:                                      /* int32_data */
        case 7:                                      /* int64_data */
        case 11: tci_pb_append(&f, 0, &data); break; /* uint64_data */
        case 10: tci_pb_append(&f, 8, &data); break; /* double_data */
        case 8: t->name = tci_pb_text(&f); break;
        case 9:
            t->data = (const char *)tci_pb_bytes(&f)->at;
            t->bytes = f.bytes.end - f.bytes.at;
            break;
        case 13: tci_pb_external(tci_pb_bytes(&f), t); break;
        case 14: external = tci_pb_int(&f) == 1; break;
        default: break;
        }
    }
    if (sizes.n > TCI_PB_RANK_MAX) {
        tci_pb_bad(p, "a tensor has more than 64 axes");
    }
    t->rank = sizes.n;
    t->sizes = (const int64_t *)(const void *)sizes.items;
    if (!t->data) {
        tci_pb_dense(p, t, &data);
    }
    tci_pb_tensor_check(p, t, external);
}

/* ---- AttributeProto, NodeProto ---- */

static void tci_pb_graph(tci_pb *p, tci_onnx_graph *g);

static void tci_pb_attr_value(tci_pb_field *f, tci_onnx_attr *a, tci_pb_list lists[2],
                              const char ***strings, int *n_strings, int *cap_strings)
{
    tci_scratch *s = f->bytes.s;
    switch (f->id) {
    case 2:
        a->kind = TCI_ONNX_FLOAT;
        a->f = tci_pb_float((uint64_t)tci_pb_int(f), f->wire);
        break;
    case 3:
        a->kind = TCI_ONNX_INT;
        a->i = tci_pb_int(f);
        break;
    case 4:
        a->kind = TCI_ONNX_STRING;
        a->s = tci_pb_text(f);
        break;
    case 5: {
        tci_onnx_tensor *t = TCI_NEW(s, tci_onnx_tensor);
        tci_pb_tensor(tci_pb_bytes(f), t);
        a->kind = TCI_ONNX_TENSOR;
        a->t = t;
        break;
    }
    case 6: {
        tci_onnx_graph *g = TCI_NEW(s, tci_onnx_graph);
        tci_pb_graph(tci_pb_bytes(f), g);
        a->kind = TCI_ONNX_GRAPH;
        a->g = g;
        break;
    }
    case 7: tci_pb_append(f, 4, &lists[0]); break;
    case 8: tci_pb_append(f, 0, &lists[1]); break;
    case 9: TCI_PUSH(s, *strings, *n_strings, *cap_strings, tci_pb_text(f)); break;
    default: break;
    }
}

/* Numbers of AttributeProto.AttributeType; an empty list has no field of its own. */
static const tci_onnx_kind tci_pb_kinds[] = {
    TCI_ONNX_NOTHING, TCI_ONNX_FLOAT,  TCI_ONNX_INT,  TCI_ONNX_STRING,  TCI_ONNX_TENSOR,
    TCI_ONNX_GRAPH,   TCI_ONNX_FLOATS, TCI_ONNX_INTS, TCI_ONNX_STRINGS,
};

static void tci_pb_attr(tci_pb *p, tci_onnx_attr *a)
{
    tci_pb_list lists[2] = {{NULL, 0, 0}, {NULL, 0, 0}};
    const char **strings = NULL;
    int n_strings = 0, cap_strings = 0;
    uint64_t type = 0;
    tci_pb_field f;
    *a = (tci_onnx_attr){.name = "", .s = ""};
    while (tci_pb_next(p, &f)) {
        if (f.id == 1) {
            a->name = tci_pb_text(&f);
        } else if (f.id == 20) {
            type = (uint64_t)tci_pb_int(&f);
        } else if (f.id == 21) {
            a->ref = tci_pb_text(&f);
        } else {
            tci_pb_attr_value(&f, a, lists, &strings, &n_strings, &cap_strings);
        }
    }
    double *floats = TCI_NEW_ARRAY(p->s, double, lists[0].n);
    for (int i = 0; i < lists[0].n; i++) {
        floats[i] = tci_pb_float(lists[0].items[i], 5);
    }
    if (lists[0].n) {
        a->kind = TCI_ONNX_FLOATS;
    } else if (lists[1].n) {
        a->kind = TCI_ONNX_INTS;
    } else if (n_strings) {
        a->kind = TCI_ONNX_STRINGS;
    }
    a->kind = type && type < (uint64_t)TCI_COUNT(tci_pb_kinds) ? tci_pb_kinds[type] : a->kind;
    bool broken = (a->kind == TCI_ONNX_TENSOR && !a->t) || (a->kind == TCI_ONNX_GRAPH && !a->g);
    if (broken && !a->ref) {
        tci_pb_bad(p, "an attribute without its value");
    }
    a->n = a->kind == TCI_ONNX_FLOATS ? lists[0].n
           : a->kind == TCI_ONNX_INTS ? lists[1].n
                                      : n_strings;
    a->floats = floats;
    a->ints = (const int64_t *)(const void *)lists[1].items;
    a->strings = strings;
}

static void tci_pb_node(tci_pb *p, tci_onnx_node *n, int number)
{
    tci_pb_field f;
    *n = (tci_onnx_node){.name = "", .op = "", .domain = "", .number = number};
    while (tci_pb_next(p, &f)) {
        switch (f.id) {
        case 1: TCI_PUSH(p->s, n->in, n->n_in, n->cap_in, tci_pb_text(&f)); break;
        case 2: TCI_PUSH(p->s, n->out, n->n_out, n->cap_out, tci_pb_text(&f)); break;
        case 3: n->name = tci_pb_text(&f); break;
        case 4: n->op = tci_pb_text(&f); break;
        case 5: {
            tci_onnx_attr a;
            tci_pb_attr(tci_pb_bytes(&f), &a);
            TCI_PUSH(p->s, n->attrs, n->n_attrs, n->cap_attrs, a);
            break;
        }
        case 7: n->domain = tci_pb_text(&f); break;
        default: break;
        }
    }
}

/* ---- ValueInfoProto ---- */

static void tci_pb_dim(tci_pb *p, int64_t *size, const char **param)
{
    tci_pb_field f;
    *size = -1;
    *param = "";
    while (tci_pb_next(p, &f)) {
        if (f.id == 1) {
            *size = tci_pb_int(&f);
        } else if (f.id == 2) {
            *param = tci_pb_text(&f);
        }
    }
    *size = *size < 0 ? -1 : *size;
}

static void tci_pb_shape(tci_pb *p, tci_onnx_info *v)
{
    int cap = 0, cap_params = 0, n = 0;
    tci_pb_field f;
    v->rank = 0;
    while (tci_pb_next(p, &f)) {
        if (f.id == 1) {
            int64_t size;
            const char *param;
            tci_pb_dim(tci_pb_bytes(&f), &size, &param);
            n = v->rank;
            TCI_PUSH(p->s, v->sizes, v->rank, cap, size);
            TCI_PUSH(p->s, v->params, n, cap_params, param);
        }
    }
    if (v->rank > TCI_PB_RANK_MAX) {
        tci_pb_bad(p, "a value has more than 64 axes");
    }
}

/* TypeProto.Tensor */
static void tci_pb_tensor_type(tci_pb *p, tci_onnx_info *v)
{
    tci_pb_field f;
    while (tci_pb_next(p, &f)) {
        if (f.id == 1) {
            v->type = (int)(tci_pb_int(&f) & 0xffff);
        } else if (f.id == 2) {
            tci_pb_shape(tci_pb_bytes(&f), v);
        }
    }
}

static void tci_pb_info(tci_pb *p, tci_onnx_info *v)
{
    tci_pb_field f, inner;
    *v = (tci_onnx_info){.name = "", .rank = -1};
    while (tci_pb_next(p, &f)) {
        if (f.id == 1) {
            v->name = tci_pb_text(&f);
        } else if (f.id == 2) {
            tci_pb *type = tci_pb_bytes(&f);
            while (tci_pb_next(type, &inner)) {
                if (inner.id == 1) {
                    tci_pb_tensor_type(tci_pb_bytes(&inner), v);
                }
            }
        }
    }
}

/* ---- GraphProto, FunctionProto, ModelProto ---- */

static void tci_pb_graph(tci_pb *p, tci_onnx_graph *g)
{
    tci_pb_field f;
    if (++p->depth > TCI_PB_DEEPEST) {
        tci_pb_bad(p, "graphs nest more than 32 deep");
    }
    *g = (tci_onnx_graph){.name = ""};
    while (tci_pb_next(p, &f)) {
        switch (f.id) {
        case 1: {
            tci_onnx_node n;
            tci_pb_node(tci_pb_bytes(&f), &n, g->n_nodes);
            TCI_PUSH(p->s, g->nodes, g->n_nodes, g->cap_nodes, n);
            break;
        }
        case 2: g->name = tci_pb_text(&f); break;
        case 5: {
            tci_onnx_tensor t;
            tci_pb_tensor(tci_pb_bytes(&f), &t);
            TCI_PUSH(p->s, g->tensors, g->n_tensors, g->cap_tensors, t);
            break;
        }
        case 11:
        case 12: {
            tci_onnx_info v;
            tci_pb_info(tci_pb_bytes(&f), &v);
            if (f.id == 11) {
                TCI_PUSH(p->s, g->inputs, g->n_inputs, g->cap_inputs, v);
            } else {
                TCI_PUSH(p->s, g->outputs, g->n_outputs, g->cap_outputs, v);
            }
            break;
        }
        case 15: g->is_sparse = true; break;
        default: break;
        }
    }
}

static tci_onnx_opset tci_pb_opset(tci_pb *p)
{
    tci_onnx_opset o = {"", 1};
    tci_pb_field f;
    while (tci_pb_next(p, &f)) {
        if (f.id == 1) {
            o.domain = tci_pb_text(&f);
        } else if (f.id == 2) {
            o.version = tci_pb_int(&f);
        }
    }
    return o;
}

static void tci_pb_function(tci_pb *p, tci_onnx_function *u)
{
    tci_scratch *s = p->s;
    tci_pb_field f;
    *u = (tci_onnx_function){.name = "", .domain = ""};
    while (tci_pb_next(p, &f)) {
        switch (f.id) {
        case 1: u->name = tci_pb_text(&f); break;
        case 4: TCI_PUSH(s, u->in, u->n_in, u->cap_in, tci_pb_text(&f)); break;
        case 5: TCI_PUSH(s, u->out, u->n_out, u->cap_out, tci_pb_text(&f)); break;
        case 6: TCI_PUSH(s, u->params, u->n_params, u->cap_params, tci_pb_text(&f)); break;
        case 7: {
            tci_onnx_node n;
            tci_pb_node(tci_pb_bytes(&f), &n, u->n_nodes);
            TCI_PUSH(s, u->nodes, u->n_nodes, u->cap_nodes, n);
            break;
        }
        case 9:
            TCI_PUSH(s, u->opsets, u->n_opsets, u->cap_opsets, tci_pb_opset(tci_pb_bytes(&f)));
            break;
        case 10: u->domain = tci_pb_text(&f); break;
        case 11: {
            tci_onnx_attr a;
            tci_pb_attr(tci_pb_bytes(&f), &a);
            TCI_PUSH(s, u->defaults, u->n_defaults, u->cap_defaults, a);
            break;
        }
        default: break;
        }
    }
}

TCI_FN tci_onnx_proto *tci_onnx_parse(tci_scratch *s, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    tci_pb p = {at, at + n, s, 0};
    tci_onnx_proto *m = TCI_NEW(s, tci_onnx_proto);
    tci_pb_field f;
    while (tci_pb_next(&p, &f)) {
        if (f.id == 1) {
            m->ir = tci_pb_int(&f);
        } else if (f.id == 7) {
            m->graph = TCI_NEW(s, tci_onnx_graph);
            tci_pb_graph(tci_pb_bytes(&f), m->graph);
        } else if (f.id == 8) {
            TCI_PUSH(s, m->opsets, m->n_opsets, m->cap_opsets, tci_pb_opset(tci_pb_bytes(&f)));
        } else if (f.id == 25) {
            tci_onnx_function u;
            tci_pb_function(tci_pb_bytes(&f), &u);
            TCI_PUSH(s, m->functions, m->n_functions, m->cap_functions, u);
        }
    }
    if (!m->graph) {
        tci_pb_bad(&p, "it has no graph");
    }
    return m;
}
