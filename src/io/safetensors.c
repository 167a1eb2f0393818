/* io/safetensors.c - reads and writes .safetensors.
 *
 * The format: 8 bytes, the length of the header; the header, a JSON object {"name": {"dtype":
 * "F32", "shape": [3, 4], "data_offsets": [begin, end]}, ..., "__metadata__": {"key": "text"}}; the
 * data, to the last byte, without gaps.
 *
 * Arrays of wide elements are written first, with padding after the header, so that every array is
 * aligned for its dtype and can be borrowed from a mapping. */
#include "header_parser.h"

#include <inttypes.h>
#include <string.h>

TCI_FN bool tci_safetensors_is(tc_file *file)
{
    (void)file;
    return true; /* the last to be asked */
}

/* ---- reading ---- */

static tc_dtype tci_safetensors_dtype(const char *name)
{
    const tci_io_type *types = tci_io_types();
    for (int i = 0; i < TCI_DTYPE_N; i++) {
        if (!strcmp(types[i].name, name)) {
            return types[i].dtype;
        }
    }
    return TC_DTYPE_COUNT;
}

static void tci_safetensors_metadata(tci_head *s)
{
    tci_head_need(s, '{');
    bool more = !tci_head_take(s, '}');
    while (more) {
        const char *key = tci_head_json(s);
        tci_head_need(s, ':');
        tci_io_add_pair(s->file, key, tci_head_json(s));
        more = tci_head_take(s, ',');
        if (!more) {
            tci_head_need(s, '}');
        }
    }
}

/* data: where the data begins. Returns how many bytes the array has. */
static int64_t tci_safetensors_array(tci_head *s, const char *name, int64_t data)
{
    const int64_t *offsets = NULL;
    tc_array a = {.name = name, .rank = -1};
    tci_head_need(s, '{');
    for (int i = 0; i < 3; i++) {
        if (i) {
            tci_head_need(s, ',');
        }
        const char *key = tci_head_json(s);
        tci_head_need(s, ':');
        if (!strcmp(key, "dtype") && !a.type) {
            a.type = tci_head_json(s);
        } else if (!strcmp(key, "shape") && a.rank < 0) {
            a.rank = tci_head_sizes(s, '[', ']', &a.sizes);
        } else if (!strcmp(key, "data_offsets") && !offsets &&
                   tci_head_sizes(s, '[', ']', &offsets) == 2) {
            continue;
        } else {
            tci_io_bad(s->file, "%s has %s: expected a dtype, a shape and two data_offsets",
                       TCI_IO_NAME(name), TCI_IO_NAME(key));
        }
    }
    tci_head_need(s, '}');
    a.dtype = tci_safetensors_dtype(a.type);
    if (offsets[0] > offsets[1] || offsets[1] > s->file->bytes - data) {
        tci_io_bad(s->file, "%s has data from %" PRId64 " to %" PRId64 " of %" PRId64,
                   TCI_IO_NAME(name), offsets[0], offsets[1], s->file->bytes - data);
    }
    int64_t bytes = offsets[1] - offsets[0];
    tci_io_add(s->file,
               &(tci_io_array){.seen = a, .at = data + offsets[0], .held = bytes, .bytes = bytes});
    return offsets[1] - offsets[0];
}

TCI_FN void tci_safetensors_read(tc_file *file)
{
    uint64_t n = file->bytes >= 8 ? tci_io_number(file, 0, 8) : 0;
    if (n < 2 || n > (uint64_t)file->bytes - 8 || n > TCI_IO_HEADER_MAX) {
        tci_io_bad(file,
                   "it is none of .npy, .npz, .gguf, nor a .safetensors, whose header would "
                   "have %" PRIu64 " of %" PRId64 " bytes (at most %d)",
                   n, file->bytes, TCI_IO_HEADER_MAX);
    }
    char *text = tci_scratch_get(&file->s, (size_t)n);
    tci_io_read(file, 8, text, (int64_t)n);
    tci_head s = {file, text, text + n};
    int64_t data = 8 + (int64_t)n, total = 0;
    tci_head_need(&s, '{');
    bool more = !tci_head_take(&s, '}');
    while (more) {
        const char *name = tci_head_json(&s);
        tci_head_need(&s, ':');
        if (strcmp(name, "__metadata__")) {
            total += tci_safetensors_array(&s, name, data);
        } else {
            tci_safetensors_metadata(&s);
        }
        more = tci_head_take(&s, ',');
        if (!more) {
            tci_head_need(&s, '}');
        }
    }
    tci_head_end(&s);
    if (total < file->bytes - data) { /* as nothing overlaps, all else has neither gap nor rest */
        tci_io_bad(file, "its arrays have %" PRId64 " of the %" PRId64 " bytes behind the header",
                   total, file->bytes - data);
    }
}

/* ---- writing ---- */

static void tci_safetensors_string(tci_str *to, const char *text)
{
    tci_str_add(to, "\"");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < ' ' || c == '"' || c == '\\') {
            tci_str_printf(to, "\\u%04x", c);
        } else {
            tci_str_add_n(to, text, 1);
        }
    }
    tci_str_add(to, "\"");
}

static void tci_safetensors_entry(const tci_io_out *o, int i, int64_t begin, tci_str *to)
{
    const tci_node *n = tci_io_node(o, i);
    tci_safetensors_string(to, o->names[i]);
    tci_str_printf(to, ":{\"dtype\":\"%s\",\"shape\":[", tci_io_types()[n->dtype - TC_BOOL].name);
    for (int d = 0; d < n->rank; d++) {
        tci_str_printf(to, "%s%" PRId64, d ? "," : "", tci_dim_known(n->shape[d]));
    }
    tci_str_printf(to, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", begin,
                   begin + tci_io_bytes(o, i));
}

static int tci_safetensors_width(const tci_io_out *o, int i)
{
    return tci_dtype_get((tc_dtype)tci_io_node(o, i)->dtype)->bytes;
}

/* The numbers of the values, wide elements first, else in their order. */
static const int *tci_safetensors_order(tci_io_out *o)
{
    int *order = TCI_NEW_ARRAY(&o->s, int, o->n), n = 0;
    for (int width = 8; width; width /= 2) {
        for (int i = 0; i < o->n; i++) {
            if (tci_safetensors_width(o, i) == width) {
                order[n++] = i;
            }
        }
    }
    return order;
}

static void tci_safetensors_header(const tci_io_out *o, const int *order, tci_str *to)
{
    const char *between = "";
    int64_t begin = 0;
    tci_str_add(to, "{");
    for (const char *const *m = o->metadata; m && *m; m += 2) {
        tci_str_add(to, m == o->metadata ? "\"__metadata__\":{" : ",");
        tci_safetensors_string(to, m[0]);
        tci_str_add(to, ":");
        tci_safetensors_string(to, m[1]);
        between = "},";
    }
    for (int i = 0; i < o->n; i++) {
        tci_str_add(to, between);
        tci_safetensors_entry(o, order[i], begin, to);
        begin += tci_io_bytes(o, order[i]);
        between = ",";
    }
    tci_str_add(to, o->n || !*between ? "}" : "}}");
    while ((to->n + 8) % TCI_IO_ALIGN) {
        tci_str_add(to, " ");
    }
}

TCI_FN void tci_safetensors_write(tci_io_out *o)
{
    tci_str header = {.s = &o->s};
    unsigned char length[8];
    const int *order = tci_safetensors_order(o);
    tci_safetensors_header(o, order, &header);
    if (header.n > TCI_IO_HEADER_MAX) {
        tci_scratch_fail(&o->s, TC_ERR_LIMIT, "the names make a header of %zu bytes: expected %d",
                         header.n, TCI_IO_HEADER_MAX);
    }
    for (int i = 0; i < 8; i++) {
        length[i] = (unsigned char)((uint64_t)header.n >> (8 * i));
    }
    tci_io_put(o, length, 8);
    tci_io_put(o, header.text, (int64_t)header.n);
    for (int i = 0; i < o->n; i++) {
        tci_io_put(o, tci_io_value(o, order[i]), tci_io_bytes(o, order[i]));
    }
}
