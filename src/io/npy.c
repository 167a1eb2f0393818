/* io/npy.c - .npy, versions 1 to 3.
 *
 * The format: "\x93NUMPY", the version (2 bytes), the length of the header (2 bytes; 4 from version
 * 2 on), the header, a dictionary of Python {'descr': '<f4', 'fortran_order': False, 'shape': (3,
 * 4)}, then the elements. bf16 has no name there: as others do it is the void of two bytes. */
#include "head.h"

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

/* "<f4", "|u1": of little endian, or of single bytes. */
static tc_dtype tci_npy_dtype(const char *descr)
{
    const tci_io_type *types = tci_io_types();
    bool is_plain = (descr[0] == '<' || descr[0] == '|') && descr[1] && descr[2] && !descr[3];
    for (int i = 0; i < TCI_DTYPE_N && is_plain; i++) {
        int bytes = tci_dtype_get(types[i].dtype)->bytes;
        bool any_order = bytes == 1 || types[i].letter == 'V';
        if (descr[1] == types[i].letter && descr[2] - '0' == bytes &&
            (descr[0] == '<' || any_order)) {
            return types[i].dtype;
        }
    }
    return TC_DTYPE_COUNT;
}

typedef struct tci_npy_header {
    const char *descr;
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
                tci_scratch_fail(&s->file->s, TC_ERR_UNSUPPORTED, "it has records, not numbers");
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
            tci_io_bad(s->file, "its header has %s: expected descr, fortran_order and shape, once "
                       "each", TCI_IO_NAME(key));
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

TCI_FN void tci_npy_read_at(tc_file *file, const char *name, int64_t at, int64_t end)
{
    unsigned char head[8];
    if (end - at < 10) {
        tci_io_bad(file, "the array %s ends within its header", TCI_IO_NAME(name));
    }
    tci_io_read(file, at, head, sizeof(head));
    if (memcmp(head, tci_npy_magic, sizeof(tci_npy_magic)) || head[6] < 1 || head[6] > 3) {
        tci_io_bad(file, "%s is no array of version 1 to 3", TCI_IO_NAME(name));
    }
    int wide = head[6] == 1 ? 2 : 4;
    int64_t n = end - at - 8 < wide ? -1 : (int64_t)tci_io_number(file, at + 8, wide);
    int64_t data = at + 8 + wide + n;
    if (n < 0 || data > end || n > TCI_IO_HEADER_MAX - file->head_bytes) {
        tci_io_bad(file, "the header of %s would have %" PRId64 " of %" PRId64 " bytes (at most "
                   "%d, for all arrays)", TCI_IO_NAME(name), n, end - at, TCI_IO_HEADER_MAX);
    }
    file->head_bytes += n;
    char *text = tci_scratch_get(&file->s, (size_t)n);
    tci_io_read(file, at + 8 + wide, text, n);
    tci_head s = {file, text, text + n};
    tci_npy_header h = tci_npy_parse(&s);
    tc_array a = {name, h.descr, tci_npy_dtype(h.descr), h.rank, h.sizes};
    tci_io_add(file, &a, data, end - data, h.fortran && h.rank > 1);
}

TCI_FN void tci_npy_read(tc_file *file)
{
    tci_npy_read_at(file, "", 0, file->bytes);
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
