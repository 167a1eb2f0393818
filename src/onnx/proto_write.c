/* onnx/proto_write.c - writes the wire format of ONNX files (onnx/proto_write.h). */
#include "../api/operand_macros.h"
#include "proto_write.h"

#include <string.h>

static void tci_ow_varint(tci_str *to, uint64_t v)
{
    unsigned char bytes[10];
    size_t n = 0;
    for (; v >= 128; v >>= 7) {
        bytes[n++] = (unsigned char)(v | 128);
    }
    bytes[n++] = (unsigned char)v;
    tci_str_add_n(to, bytes, n);
}

TCI_FN void tci_ow_number(tci_str *to, int field, uint64_t v)
{
    tci_ow_varint(to, (uint64_t)field << 3);
    tci_ow_varint(to, v);
}

TCI_FN void tci_ow_bytes(tci_str *to, int field, const void *bytes, size_t n)
{
    tci_ow_varint(to, (uint64_t)field << 3 | 2);
    tci_ow_varint(to, n);
    if (n) {
        tci_str_add_n(to, bytes, n);
    }
}

TCI_FN void tci_ow_text(tci_str *to, int field, const char *text)
{
    tci_ow_bytes(to, field, text, strlen(text));
}

static void tci_ow_message(tci_str *to, int field, const tci_str *inner)
{
    tci_ow_bytes(to, field, tci_str_text(inner), inner->n);
}

TCI_FN const char *tci_ow_name(tci_ow *w)
{
    return tci_scratch_printf(w->s, "v%d", w->n_values++);
}

static void tci_ow_attribute(tci_str *node, tci_scratch *s, const tci_ow_attr *a)
{
    tci_str m = {.s = s};
    tci_ow_text(&m, 1, a->name);
    if (a->text) {
        tci_ow_text(&m, 4, a->text);
        tci_ow_number(&m, 20, 3);
    } else if (a->n == -1) {
        tci_ow_number(&m, 3, (uint64_t)a->i);
        tci_ow_number(&m, 20, 2);
    } else if (a->n == -3) {
        tci_ow_message(&m, 6, a->graph);
        tci_ow_number(&m, 20, 5);
    } else if (a->n == -2) {
        float f = (float)a->f;
        tci_ow_varint(&m, 2 << 3 | 5);
        tci_str_add_n(&m, &f, sizeof(f));
        tci_ow_number(&m, 20, 1);
    } else {
        for (int i = 0; i < a->n; i++) {
            tci_ow_number(&m, 8, (uint64_t)a->ints[i]);
        }
        tci_ow_number(&m, 20, 7);
    }
    tci_ow_message(node, 5, &m);
}

TCI_FN void tci_ow_node(tci_ow *w, const char *op, int n_in, const char *const *in, int n_out,
                        const char *const *out, int n_attrs, const tci_ow_attr *attrs)
{
    tci_str node = {.s = w->s};
    for (int i = 0; i < n_in; i++) {
        tci_ow_text(&node, 1, in[i]);
    }
    for (int i = 0; i < n_out; i++) {
        tci_ow_text(&node, 2, out[i]);
    }
    tci_ow_text(&node, 4, op);
    for (int i = 0; i < n_attrs; i++) {
        tci_ow_attribute(&node, w->s, &attrs[i]);
    }
    tci_ow_message(&w->graph, 1, &node);
}

TCI_FN const char *tci_ow_op(tci_ow *w, const char *op, int n_in, const char *const *in,
                             int n_attrs, const tci_ow_attr *attrs)
{
    const char *out = tci_ow_name(w);
    tci_ow_node(w, op, n_in, in, 1, &out, n_attrs, attrs);
    return out;
}

static void tci_ow_entry(tci_str *tensor, tci_scratch *s, const char *key, const char *value)
{
    tci_str m = {.s = s};
    tci_ow_text(&m, 1, key);
    tci_ow_text(&m, 2, value);
    tci_ow_message(tensor, 13, &m);
}

TCI_FN const char *tci_ow_tensor(tci_ow *w, const char *name, tc_dtype dtype, int rank,
                                 const int64_t *sizes, const void *data)
{
    enum { TCI_OW_SMALL = 1024, TCI_OW_ALIGN = 64 };
    static const char zeros[TCI_OW_ALIGN];
    tci_str m = {.s = w->s};
    int64_t n = tc_dtype_size(dtype);
    name = name ? name : tci_ow_name(w);
    for (int i = 0; i < rank; i++) {
        tci_ow_number(&m, 1, (uint64_t)sizes[i]);
        n *= sizes[i];
    }
    tci_ow_number(&m, 2, (uint64_t)tci_onnx_type_of(dtype));
    tci_ow_text(&m, 8, name);
    if (!w->external || n < TCI_OW_SMALL) {
        tci_ow_bytes(&m, 9, data, (size_t)n);
        tci_ow_message(&w->graph, 5, &m);
        return name;
    }
    tci_str_add_n(&w->weights, zeros, (TCI_OW_ALIGN - w->weights.n % TCI_OW_ALIGN) % TCI_OW_ALIGN);
    tci_ow_entry(&m, w->s, "location", w->external);
    tci_ow_entry(&m, w->s, "offset", tci_scratch_printf(w->s, "%zu", w->weights.n));
    tci_ow_entry(&m, w->s, "length", tci_scratch_printf(w->s, "%lld", (long long)n));
    tci_ow_number(&m, 14, 1);
    tci_str_add_n(&w->weights, data, (size_t)n);
    tci_ow_message(&w->graph, 5, &m);
    return name;
}

TCI_FN const char *tci_ow_ints(tci_ow *w, int n, const int64_t *items)
{
    return tci_ow_tensor(w, NULL, TC_I64, 1, (const int64_t[]){n}, items);
}

TCI_FN void tci_ow_info(tci_ow *w, int field, const char *name, tc_dtype dtype, int rank,
                        const tci_dim *sizes)
{
    tci_str shape = {.s = w->s}, tensor = {.s = w->s}, type = {.s = w->s}, info = {.s = w->s};
    for (int i = 0; i < rank; i++) {
        tci_str dim = {.s = w->s};
        if (tci_dim_is_known(sizes[i])) {
            tci_ow_number(&dim, 1, (uint64_t)tci_dim_known(sizes[i]));
        } else {
            tci_ow_text(&dim, 2, tci_dim_text_of(sizes[i]).text);
        }
        tci_ow_message(&shape, 1, &dim);
    }
    tci_ow_number(&tensor, 1, (uint64_t)tci_onnx_type_of(dtype));
    tci_ow_message(&tensor, 2, &shape);
    tci_ow_message(&type, 1, &tensor);
    tci_ow_text(&info, 1, name);
    tci_ow_message(&info, 2, &type);
    tci_ow_message(&w->graph, field, &info);
}
