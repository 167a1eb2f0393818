/* io/npy.c - reads and writes .npy, versions 1 to 3.
 *
 * The format: "\x93NUMPY", the version (2 bytes), the length of the header (2 bytes; 4 from version
 * 2 on), the header, which is a Python dictionary {'descr': '<f4', 'fortran_order': False, 'shape':
 * (3, 4)}, then the elements. NumPy has no name for bf16; as in other libraries it is the void type
 * of two bytes. */
#include "header_parser.h"

#include <inttypes.h>
#include <string.h>

static const char tci_npy_magic[6] = {'\x93', 'N', 'U', 'M', 'P', 'Y'};

TCI_FN bool tci_npy_is(tc_file *file)
{
    char magic[sizeof(tci_npy_magic)];
    if (file->bytes < (int64_t)sizeof(magic)) {
        return false;
    }
    tci_io_read(file, 0, magic, sizeof(magic));
    return !memcmp(magic, tci_npy_magic, sizeof(magic));
}

/* ---- reading ---- */

/* dtypes by their names and one-letter codes, as numpy.dtype takes them on 64-bit Linux. */
static const struct {
    const char *text;
    tc_dtype dtype;
} tci_npy_names[] = {
    {"?", TC_BOOL},        {"b", TC_I8},       {"B", TC_U8},        {"h", TC_I16},
    {"H", TC_U16},         {"i", TC_I32},      {"I", TC_U32},       {"l", TC_I64},
    {"L", TC_U64},         {"q", TC_I64},      {"Q", TC_U64},       {"p", TC_I64},
    {"P", TC_U64},         {"e", TC_F16},      {"f", TC_F32},       {"d", TC_F64},
    {"bool", TC_BOOL},     {"bool_", TC_BOOL}, {"int8", TC_I8},     {"int16", TC_I16},
    {"int32", TC_I32},     {"int64", TC_I64},  {"uint8", TC_U8},    {"uint16", TC_U16},
    {"uint32", TC_U32},    {"uint64", TC_U64}, {"float16", TC_F16}, {"float32", TC_F32},
    {"float64", TC_F64},   {"half", TC_F16},   {"single", TC_F32},  {"double", TC_F64},
    {"float", TC_F64},     {"int", TC_I64},    {"uint", TC_U64},    {"byte", TC_I8},
    {"ubyte", TC_U8},      {"short", TC_I16},  {"ushort", TC_U16},  {"intc", TC_I32},
    {"uintc", TC_U32},     {"long", TC_I64},   {"ulong", TC_U64},   {"longlong", TC_I64},
    {"ulonglong", TC_U64}, {"intp", TC_I64},   {"uintp", TC_U64},   {"bfloat16", TC_BF16}};

/* "f4": a letter and how many bytes; of bool 'b1'. */
static tc_dtype tci_npy_sized(const char *text)
{
    const tci_io_type *types = tci_io_types();
    for (int i = 0; i < TCI_DTYPE_N && text[0] && text[1] && !text[2]; i++) {
        if (text[0] == types[i].letter && text[1] - '0' == tci_dtype_get(types[i].dtype)->bytes) {
            return types[i].dtype;
        }
    }
    return TC_DTYPE_COUNT;
}

/* "<f4", "f4", "=f", "float32": an order of bytes, unless it is a name, then a size or a code.
 * *swapped: it is big-endian, and has more than a byte. */
static tc_dtype tci_npy_dtype(const char *descr, bool *swapped)
{
    bool ordered = descr[0] && strchr("<>=|", descr[0]) != NULL;
    const char *text = descr + ordered;
    tc_dtype dtype = tci_npy_sized(text);
    for (int i = 0; i < TCI_COUNT(tci_npy_names) && dtype == TC_DTYPE_COUNT; i++) {
        if (!strcmp(text, tci_npy_names[i].text) && (!ordered || !text[1])) {
            dtype = tci_npy_names[i].dtype;
        }
    }
    bool any_order = dtype == TC_BF16 || dtype == TC_DTYPE_COUNT; /* void has none */
    *swapped = descr[0] == '>' && !any_order && tci_dtype_get(dtype)->bytes > 1;
    return dtype;
}

typedef struct tci_npy_header {
    const char *descr; /* NULL: records */
    const int64_t *sizes;
    int rank;
    bool fortran;
} tci_npy_header;

static tci_npy_header tci_npy_parse(tci_head *s)
{
    tci_npy_header h = {.rank = -1};
    bool has_order = false;
    tci_head_need(s, '{');
    while (!tci_head_take(s, '}')) {
        const char *key = tci_head_python(s);
        tci_head_need(s, ':');
        if (!strcmp(key, "descr") && !h.descr) {
            if (tci_head_take(s, '[')) {
                return (tci_npy_header){.rank = -1};
            }
            h.descr = tci_head_python(s);
        } else if (!strcmp(key, "fortran_order") && !has_order) {
            has_order = true;
            h.fortran = tci_head_word(s, "True");
            if (!h.fortran && !tci_head_word(s, "False")) {
                tci_io_bad(s->file, "its fortran_order is neither True nor False");
            }
        } else if (!strcmp(key, "shape") && h.rank < 0) {
            h.rank = tci_head_sizes(s, '(', ')', &h.sizes);
        } else {
            tci_io_bad(s->file,
                       "its header has %s: expected descr, fortran_order and shape, once "
                       "each",
                       TCI_IO_NAME(key));
        }
        if (!tci_head_take(s, ',')) {
            tci_head_need(s, '}');
            break;
        }
    }
    tci_head_end(s);
    if (!h.descr || !has_order || h.rank < 0) {
        tci_io_bad(s->file, "its header lacks one of descr, fortran_order and shape");
    }
    return h;
}

TCI_FN const char *tci_npy_read_at(tc_file *file, const char *name, const tci_io_array *part)
{
    tci_io_array a = *part;
    a.seen.name = name;
    const unsigned char *head = NULL;
    if (part->bytes >= 12) {
        head = (const unsigned char *)tci_io_front(file, &a, 12);
    }
    if (!head || memcmp(head, tci_npy_magic, sizeof(tci_npy_magic))) {
        return "is no array";
    }
    if (head[6] < 1 || head[6] > 3) {
        tci_io_bad(file, "%s is no array of version 1 to 3", TCI_IO_NAME(name));
    }
    int wide = head[6] == 1 ? 2 : 4;
    int64_t n = head[8] | head[9] << 8;
    n |= wide == 4 ? (int64_t)head[10] << 16 | (int64_t)head[11] << 24 : 0;
    a.skip = 8 + wide + n;
    if (a.skip > part->bytes || n > TCI_IO_HEADER_MAX) {
        tci_io_bad(file,
                   "the header of %s would have %" PRId64 " of %" PRId64 " bytes (at most "
                   "%d)",
                   TCI_IO_NAME(name), n, part->bytes, TCI_IO_HEADER_MAX);
    }
    const char *text = tci_io_front(file, &a, a.skip);
    tci_head s = {file, text + 8 + wide, text + a.skip};
    tci_npy_header h = tci_npy_parse(&s);
    if (!h.descr) {
        return "has records, not numbers";
    }
    tc_dtype dtype = tci_npy_dtype(h.descr, &a.swapped);
    a.seen = (tc_array){name, h.descr, dtype, h.rank, h.sizes};
    a.bytes -= a.skip;
    a.at += a.deflated ? 0 : a.skip;
    a.held -= a.deflated ? 0 : a.skip;
    int64_t strides[TCI_IO_RANK_MAX], step = 1;
    bool turned = h.fortran && h.rank > 1 && tci_io_count(h.rank, h.sizes) > 0;
    for (int i = 0; turned && i < h.rank; i++) {
        strides[i] = step;
        step *= h.sizes[i];
    }
    a.strides = turned ? strides : NULL;
    tci_io_add(file, &a);
    return NULL;
}

TCI_FN void tci_npy_read(tc_file *file)
{
    const char *why = tci_npy_read_at(file, "",
                                      &(tci_io_array){.held = file->bytes, .bytes = file->bytes});
    if (why) {
        tci_scratch_fail(&file->s, file->bytes < 12 ? TC_ERR_IO : TC_ERR_UNSUPPORTED, "it %s", why);
    }
}

/* ---- writing ---- */

TCI_FN void tci_npy_head(tci_io_out *o, int i, tci_str *head)
{
    const tci_node *n = tci_io_node(o, i);
    const tci_io_type *type = &tci_io_types()[n->dtype - TC_BOOL];
    int bytes = tci_dtype_get(type->dtype)->bytes;
    tci_str text = {.s = &o->s};
    tci_str_printf(&text, "{'descr': '%c%c%d', 'fortran_order': False, 'shape': (",
                   bytes == 1 ? '|' : '<', type->letter, bytes);
    for (int d = 0; d < n->rank; d++) {
        tci_str_printf(&text, "%s%" PRId64 "%s", d ? " " : "", tci_dim_known(n->shape[d]),
                       d + 1 < n->rank || !d ? "," : "");
    }
    tci_str_add(&text, "), }");
    size_t front = text.n + TCI_IO_ALIGN + 10 < 65536 ? 10 : 12;
    while ((front + text.n + 1) % TCI_IO_ALIGN) {
        tci_str_add(&text, " ");
    }
    tci_str_add(&text, "\n");
    tci_str_add_n(head, tci_npy_magic, sizeof(tci_npy_magic));
    tci_str_add_n(head, front == 10 ? "\1\0" : "\2\0", 2);
    for (size_t k = 0; k < front - 8; k++) {
        char byte = (char)(text.n >> (8 * k) & 255);
        tci_str_add_n(head, &byte, 1);
    }
    tci_str_add_n(head, text.text, text.n);
}

TCI_FN void tci_npy_write(tci_io_out *o)
{
    tci_str head = {.s = &o->s};
    tci_npy_head(o, 0, &head);
    tci_io_put(o, head.text, (int64_t)head.n);
    tci_io_put(o, tci_io_value(o, 0), tci_io_bytes(o, 0));
}
