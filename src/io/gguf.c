/* io/gguf.c - reads .gguf, versions 2 and 3: the weight files of llama.cpp.
 *
 * The format: "GGUF", the version, the numbers of tensors and of metadata entries; the metadata,
 * each a key, a type and a value; for each tensor its name, sizes (the fastest first), type, and
 * offset in the data, which begins at the next multiple of "general.alignment" (default 32). Arrays
 * of the types that tc has are read, the others are only listed. Numbers and strings of the
 * metadata are read, lists are skipped. */
#include "tensor_file.h"

#include <inttypes.h>
#include <string.h>

TCI_FN bool tci_gguf_is(tc_file *file)
{
    return file->bytes >= 4 && tci_io_number(file, 0, 4) == 0x46554747; /* "GGUF" */
}

typedef struct tci_gguf {
    tc_file *file;
    int64_t at;
} tci_gguf;

static uint64_t tci_gguf_take(tci_gguf *g, int bytes)
{
    if (g->at > TCI_IO_HEADER_MAX) {
        tci_io_bad(g->file, "its header has more than %d bytes", TCI_IO_HEADER_MAX);
    }
    uint64_t number = tci_io_number(g->file, g->at, bytes);
    g->at += bytes;
    return number;
}

/* So many bytes are still there. */
static int64_t tci_gguf_has(tci_gguf *g, uint64_t n, uint64_t each)
{
    if (n > (uint64_t)(g->file->bytes - g->at) / each) {
        tci_io_bad(g->file,
                   "it ends within its header: %" PRIu64 " of %" PRIu64 " bytes each at %" PRId64,
                   n, each, g->at);
    }
    return (int64_t)(n * each);
}

static const char *tci_gguf_text(tci_gguf *g)
{
    int64_t n = tci_gguf_has(g, tci_gguf_take(g, 8), 1);
    if (n > TCI_IO_HEADER_MAX) {
        tci_io_bad(g->file, "a text has %" PRId64 " bytes: expected at most %d", n,
                   TCI_IO_HEADER_MAX);
    }
    char *text = tci_scratch_get(&g->file->s, (size_t)n + 1);
    tci_io_read(g->file, g->at, text, n);
    g->at += n;
    if (!tci_io_is_utf8(text, (size_t)n)) {
        tci_io_bad(g->file, "a text is not UTF-8: %s", TCI_IO_NAME(text));
    }
    return text;
}

/* ---- facts ---- */

enum {
    TCI_GGUF_U8,
    TCI_GGUF_I8,
    TCI_GGUF_U16,
    TCI_GGUF_I16,
    TCI_GGUF_U32,
    TCI_GGUF_I32,
    TCI_GGUF_F32,
    TCI_GGUF_BOOL,
    TCI_GGUF_TEXT,
    TCI_GGUF_LIST,
    TCI_GGUF_U64,
    TCI_GGUF_I64,
    TCI_GGUF_F64,
    TCI_GGUF_KINDS
};

/* Bytes of a number of that kind; 0: it is none. */
static int tci_gguf_width(tci_gguf *g, uint64_t kind)
{
    static const uint8_t widths[TCI_GGUF_KINDS] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (kind >= TCI_GGUF_KINDS) {
        tci_io_bad(g->file, "a fact is of kind %" PRIu64 ", which there is not", kind);
    }
    return widths[kind];
}

static void tci_gguf_skip_list(tci_gguf *g)
{
    uint64_t kind = tci_gguf_take(g, 4), n = tci_gguf_take(g, 8);
    int width = tci_gguf_width(g, kind);
    if (kind == TCI_GGUF_LIST) {
        tci_scratch_fail(&g->file->s, TC_ERR_UNSUPPORTED, "it has a list of lists");
    }
    int64_t bytes = tci_gguf_has(g, n, (uint64_t)TCI_MAX(width, 1));
    for (uint64_t i = 0; !width && i < n; i++) {
        g->at += tci_gguf_has(g, tci_gguf_take(g, 8), 1);
    }
    g->at += width ? bytes : 0;
}

static const char *tci_gguf_number(tci_gguf *g, uint64_t kind)
{
    tci_scratch *s = &g->file->s;
    int width = tci_gguf_width(g, kind);
    uint64_t bits = tci_gguf_take(g, width);
    int64_t with_sign = (int64_t)(bits << (64 - 8 * width)) >> (64 - 8 * width);
    uint32_t low = (uint32_t)bits;
    float f;
    double d;
    memcpy(&f, &low, sizeof(f));
    memcpy(&d, &bits, sizeof(d));
    switch (kind) {
    case TCI_GGUF_F32: return tci_scratch_printf(s, "%.9g", (double)f);
    case TCI_GGUF_F64: return tci_scratch_printf(s, "%.17g", d);
    case TCI_GGUF_BOOL: return bits ? "true" : "false";
    case TCI_GGUF_I8:
    case TCI_GGUF_I16:
    case TCI_GGUF_I32:
    case TCI_GGUF_I64: return tci_scratch_printf(s, "%" PRId64, with_sign);
    default: return tci_scratch_printf(s, "%" PRIu64, bits);
    }
}

/* Returns the alignment, where it is this fact that tells it; else 0. */
static uint64_t tci_gguf_fact(tci_gguf *g)
{
    const char *key = tci_gguf_text(g);
    uint64_t kind = tci_gguf_take(g, 4);
    int64_t at = g->at;
    bool is_alignment = !strcmp(key, "general.alignment");
    if (is_alignment && (kind != TCI_GGUF_U32 || !tci_io_number(g->file, at, 4))) {
        tci_io_bad(g->file, "its general.alignment is %s", kind == TCI_GGUF_U32 ? "0" : "no u32");
    }
    if (kind == TCI_GGUF_LIST) {
        tci_gguf_skip_list(g);
        return 0;
    }
    tci_io_add_pair(g->file, key,
                    kind == TCI_GGUF_TEXT ? tci_gguf_text(g) : tci_gguf_number(g, kind));
    return is_alignment ? tci_io_number(g->file, at, 4) : 0;
}

/* ---- tensors ---- */

typedef struct tci_gguf_array {
    tc_array seen;
    uint64_t offset;
} tci_gguf_array;

static tci_gguf_array tci_gguf_next(tci_gguf *g)
{
    tci_scratch *s = &g->file->s;
    const tci_io_type *types = tci_io_types();
    tci_gguf_array a = {.seen = {.name = tci_gguf_text(g), .dtype = TC_DTYPE_COUNT}};
    uint64_t rank = tci_gguf_take(g, 4);
    if (rank > TCI_IO_RANK_MAX) {
        tci_io_bad(g->file, "%s would have %" PRIu64 " axes: expected at most %d",
                   TCI_IO_NAME(a.seen.name), rank, TCI_IO_RANK_MAX);
    }
    int64_t *sizes = TCI_NEW_ARRAY(s, int64_t, rank);
    for (uint64_t d = rank; d-- > 0;) {
        sizes[d] = (int64_t)tci_gguf_take(g, 8); /* above INT64_MAX: negative, and refused */
    }
    uint64_t type = tci_gguf_take(g, 4);
    for (int i = 0; i < TCI_DTYPE_N; i++) {
        if (types[i].ggml >= 0 && (uint64_t)types[i].ggml == type) {
            a.seen.dtype = types[i].dtype;
        }
    }
    a.seen.type = a.seen.dtype == TC_DTYPE_COUNT ? tci_scratch_printf(s, "ggml type %" PRIu64, type)
                                                 : types[a.seen.dtype - TC_BOOL].name;
    a.seen.rank = (int)rank;
    a.seen.sizes = sizes;
    a.offset = tci_gguf_take(g, 8);
    return a;
}

static void tci_gguf_add(tc_file *file, const tci_gguf_array *a, int64_t data)
{
    int64_t bytes = 0;
    bool fits = data <= file->bytes && a->offset <= (uint64_t)(file->bytes - data);
    if (!fits) {
        tci_io_bad(file, "the data of %s begins behind its end", TCI_IO_NAME(a->seen.name));
    }
    if (a->seen.dtype != TC_DTYPE_COUNT) { /* it tells no bytes: those that the sizes make */
        int64_t count = tci_io_count(a->seen.rank, a->seen.sizes);
        bytes = TCI_MAX(count, (int64_t)0) * tci_dtype_get(a->seen.dtype)->bytes;
    }
    tci_io_add(file, &(tci_io_array){.seen = a->seen,
                                     .at = data + (int64_t)a->offset,
                                     .held = bytes,
                                     .bytes = bytes});
}

TCI_FN void tci_gguf_read(tc_file *file)
{
    tci_gguf g = {file, 4};
    uint64_t version = tci_gguf_take(&g, 4), alignment = 32;
    if (version < 2 || version > 3) {
        tci_scratch_fail(&file->s, TC_ERR_UNSUPPORTED,
                         "it is of version %" PRIu64 " of GGUF: expected 2 or 3", version);
    }
    uint64_t n_tensors = tci_gguf_take(&g, 8), n_facts = tci_gguf_take(&g, 8);
    if (n_tensors > TCI_IO_ARRAYS_MAX || n_facts > TCI_IO_ARRAYS_MAX) {
        tci_io_bad(file,
                   "it would have %" PRIu64 " arrays and %" PRIu64 " facts: expected at most "
                   "%d",
                   n_tensors, n_facts, TCI_IO_ARRAYS_MAX);
    }
    for (uint64_t i = 0; i < n_facts; i++) {
        uint64_t told = tci_gguf_fact(&g);
        alignment = told ? told : alignment;
    }
    tci_gguf_array *list = NULL;
    int n = 0, cap = 0;
    for (uint64_t i = 0; i < n_tensors; i++) {
        tci_gguf_array next = tci_gguf_next(&g);
        TCI_PUSH(&file->s, list, n, cap, next);
    }
    int64_t data = (g.at + (int64_t)alignment - 1) / (int64_t)alignment * (int64_t)alignment;
    for (int i = 0; i < n; i++) {
        tci_gguf_add(file, &list[i], data);
    }
}
