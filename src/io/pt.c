/* io/pt.c - reads .pt and .pth files of torch.save since PyTorch 1.6: a state_dict, or nested dicts
 * and lists of tensors.
 *
 * The format: a zip archive (io/zip.h) with PREFIX/data.pkl, a pickle (io/pickle.h) in which
 * tensors are calls of torch._utils._rebuild_tensor_v2 and similar functions, and PREFIX/data/KEY,
 * the bytes of each storage. Arrays are named by the path of keys, joined by dots:
 * "model.fc.weight"; numbers and strings become metadata under such names. Entries must be stored
 * uncompressed, as PyTorch does it, and little-endian. Tensors of one storage may share bytes. */
#include "pickle.h"
#include "zip.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Classes by module and name: X(id, module, name, dtype of elements). */
#define TCI_PT_CLASSES(X)                                                                          \
    X(ORDERED_DICT, "collections", "OrderedDict", TC_BOOL)                                         \
    X(TENSOR_V2, "torch._utils", "_rebuild_tensor_v2", TC_BOOL)                                    \
    X(TENSOR_V3, "torch._utils", "_rebuild_tensor_v3", TC_BOOL)                                    \
    X(PARAMETER, "torch._utils", "_rebuild_parameter", TC_BOOL)                                    \
    X(SIZE, "torch", "Size", TC_BOOL)                                                              \
    X(UNTYPED, "torch.storage", "UntypedStorage", TC_BOOL)                                         \
    X(BOOL_STORAGE, "torch", "BoolStorage", TC_BOOL)                                               \
    X(BYTE_STORAGE, "torch", "ByteStorage", TC_U8)                                                 \
    X(CHAR_STORAGE, "torch", "CharStorage", TC_I8)                                                 \
    X(SHORT_STORAGE, "torch", "ShortStorage", TC_I16)                                              \
    X(INT_STORAGE, "torch", "IntStorage", TC_I32)                                                  \
    X(LONG_STORAGE, "torch", "LongStorage", TC_I64)                                                \
    X(HALF_STORAGE, "torch", "HalfStorage", TC_F16)                                                \
    X(BFLOAT16_STORAGE, "torch", "BFloat16Storage", TC_BF16)                                       \
    X(FLOAT_STORAGE, "torch", "FloatStorage", TC_F32)                                              \
    X(DOUBLE_STORAGE, "torch", "DoubleStorage", TC_F64)                                            \
    X(UINT16, "torch", "uint16", TC_U16)                                                           \
    X(UINT32, "torch", "uint32", TC_U32)                                                           \
    X(UINT64, "torch", "uint64", TC_U64)

typedef enum tci_pt_class {
#define TCI_ROW(id, module, name, dtype) TCI_PT_##id,
    TCI_PT_CLASSES(TCI_ROW) TCI_PT_COUNT
#undef TCI_ROW
} tci_pt_class;

static const struct {
    const char *module, *name;
    tc_dtype dtype;
} tci_pt_classes[] = {
#define TCI_ROW(id, module, name, dtype) {module, name, dtype},
    TCI_PT_CLASSES(TCI_ROW)
#undef TCI_ROW
};

enum { TCI_PT_DEPTH = 64, TCI_PT_NAME_MAX = 1000 };

typedef struct tci_pt {
    tc_file *file;
    tci_zip_entry *entries;
    int n_entries;      /* by name */
    const char *prefix; /* "archive/", at most TCI_PT_NAME_MAX bytes */
    int visits;
    int64_t name_bytes; /* of all names */
} tci_pt;

static int tci_pt_class_of(const char *module, const char *name)
{
    for (int i = 0; i < TCI_PT_COUNT; i++) {
        if (!strcmp(tci_pt_classes[i].module, module) && !strcmp(tci_pt_classes[i].name, name)) {
            return i;
        }
    }
    return -1;
}

/* A dict, a size or a parameter is what it is made of; tensors stay calls. */
static tci_pickle_value *tci_pt_value_of(tc_file *file, int of, tci_pickle_value *arguments)
{
    if (of == TCI_PT_ORDERED_DICT && arguments->n == 0) {
        return tci_pickle_make(file, TCI_PICKLE_DICT);
    } else if ((of == TCI_PT_SIZE || of == TCI_PT_PARAMETER) && arguments->n > 0) {
        return arguments->items[0];
    } else if (of != TCI_PT_TENSOR_V2 && of != TCI_PT_TENSOR_V3) {
        tci_scratch_fail(&file->s, TC_ERR_UNSUPPORTED,
                         "its pickle calls %s.%s with arguments: "
                         "only tensors are made",
                         tci_pt_classes[of].module, tci_pt_classes[of].name);
    }
    return NULL;
}

/* ---- entries ---- */

static int tci_pt_by_name(const void *a, const void *b)
{
    return strcmp(((const tci_zip_entry *)a)->name, ((const tci_zip_entry *)b)->name);
}

/* NULL: there is none. name: of at most TCI_PT_NAME_MAX bytes and "data/". */
static const tci_zip_entry *tci_pt_entry(const tci_pt *p, const char *name)
{
    char whole[2 * TCI_PT_NAME_MAX + 16];
    const tci_zip_entry key = {.name = whole};
    snprintf(whole, sizeof(whole), "%s%s", p->prefix, name);
    return bsearch(&key, p->entries, (size_t)p->n_entries, sizeof(key), tci_pt_by_name);
}

/* "archive/" of "archive/data.pkl"; NULL: no such entry. */
static const char *tci_pt_prefix(tc_file *file, const tci_zip_entry *entries, int n)
{
    static const char name[] = "data.pkl";
    for (int i = 0; i < n; i++) {
        size_t length = strlen(entries[i].name), front = length - (sizeof(name) - 1);
        bool ends = length >= sizeof(name) - 1 && !strcmp(entries[i].name + front, name);
        if (ends && (front == 0 || entries[i].name[front - 1] == '/')) {
            return tci_scratch_printf(&file->s, "%.*s", (int)front, entries[i].name);
        }
    }
    return NULL;
}

/* torch.save before 1.6 wrote a pickle of this number first. */
static bool tci_pt_is_old(tc_file *file)
{
    static const unsigned char magic[] = {0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20};
    unsigned char first[sizeof(magic)];
    if (file->bytes < (int64_t)sizeof(magic)) {
        return false;
    }
    tci_io_read(file, 0, first, sizeof(magic));
    return !memcmp(first, magic, sizeof(magic));
}

TCI_FN bool tci_pt_is(tc_file *file)
{
    tci_zip_entry *entries;
    if (!tci_zip_is(file)) {
        return tci_pt_is_old(file);
    }
    int n = tci_zip_list(file, &entries);
    return tci_pt_prefix(file, entries, n) != NULL;
}

/* All bytes of a stored entry; NULL: there is none. */
static unsigned char *tci_pt_bytes(tci_pt *p, const char *name, int64_t *n)
{
    const tci_zip_entry *e = tci_pt_entry(p, name);
    if (!e) {
        return NULL;
    }
    if (e->deflated) {
        tci_scratch_fail(&p->file->s, TC_ERR_UNSUPPORTED,
                         "%s is compressed: expected stored "
                         "entries, as torch.save writes them",
                         TCI_IO_NAME(e->name));
    }
    if (e->bytes > TCI_IO_HEADER_MAX) {
        tci_io_bad(p->file, "%s has more than %d bytes", TCI_IO_NAME(e->name), TCI_IO_HEADER_MAX);
    }
    unsigned char *bytes = tci_scratch_get(&p->file->s, (size_t)e->bytes + 1);
    tci_io_read(p->file, tci_zip_data(p->file, e), bytes, e->bytes);
    *n = e->bytes;
    return bytes;
}

/* ---- tensors ---- */

/* A tuple of integers; false: it is something else. */
static bool tci_pt_numbers(const tci_pickle_value *v, int64_t *to)
{
    bool are = (v->kind == TCI_PICKLE_TUPLE || v->kind == TCI_PICKLE_LIST) &&
               v->n <= TCI_IO_RANK_MAX;
    for (int i = 0; i < v->n && are; i++) {
        are = v->items[i]->kind == TCI_PICKLE_INT;
        to[i] = v->items[i]->i;
    }
    return are;
}

/* True if the strides are those of a dense array whose axes are stored in some order, such as
 * channels last: each axis larger than 1 has the elements of all faster ones as its stride. */
static bool tci_pt_is_dense(int rank, const int64_t *sizes, const int64_t *strides)
{
    int64_t step = 1, found = 1;
    while (found) {
        found = 0;
        for (int i = 0; i < rank && !found; i++) {
            found = sizes[i] > 1 && strides[i] == step ? sizes[i] : 0;
        }
        step *= found ? found : 1;
    }
    return step == tci_io_count(rank, sizes);
}

static bool tci_pt_is_row_major(int rank, const int64_t *sizes, const int64_t *strides)
{
    int64_t step = 1;
    bool is = true;
    for (int i = rank - 1; i >= 0; i--) {
        is = is && (sizes[i] == 1 || strides[i] == step);
        step *= sizes[i];
    }
    return is;
}

/* A tensor as a call has it. */
typedef struct tci_pt_tensor {
    tc_dtype dtype;
    const char *type, *key;
    int64_t offset;
    int rank;
    int64_t sizes[TCI_IO_RANK_MAX], strides[TCI_IO_RANK_MAX];
} tci_pt_tensor;

/* ("storage", class, key, location, elements), in a call's arguments. */
static bool tci_pt_storage(const tci_pickle_value *v, tci_pt_tensor *t, int *of)
{
    const tci_pickle_value *id = v->kind == TCI_PICKLE_OUTSIDE ? v->items[0] : NULL;
    bool is = id && id->kind == TCI_PICKLE_TUPLE && id->n >= 5 &&
              id->items[0]->kind == TCI_PICKLE_TEXT && !strcmp(id->items[0]->text, "storage") &&
              id->items[1]->kind == TCI_PICKLE_CLASS && id->items[2]->kind == TCI_PICKLE_TEXT;
    *of = is ? (int)id->items[1]->i : -1;
    t->key = is ? id->items[2]->text : NULL;
    return is && *of >= TCI_PT_UNTYPED;
}

static void tci_pt_parse(tci_pt *p, const char *name, const tci_pickle_value *v, tci_pt_tensor *t)
{
    const tci_pickle_value *a = v->items[0];
    bool is_v3 = v->i == TCI_PT_TENSOR_V3;
    int64_t strides[TCI_IO_RANK_MAX + 1];
    int of = -1;
    bool fits = a->n >= (is_v3 ? 7 : 6) && tci_pt_storage(a->items[0], t, &of) &&
                a->items[1]->kind == TCI_PICKLE_INT && tci_pt_numbers(a->items[2], t->sizes) &&
                tci_pt_numbers(a->items[3], strides) && a->items[2]->n == a->items[3]->n;
    if (fits && is_v3) {
        fits = a->items[6]->kind == TCI_PICKLE_CLASS;
        of = fits ? (int)a->items[6]->i : -1;
    }
    if (!fits || of <= TCI_PT_UNTYPED) {
        tci_io_bad(p->file, "the tensor %s is not made as torch.save does it", TCI_IO_NAME(name));
    }
    t->dtype = tci_pt_classes[of].dtype;
    t->type = tci_pt_classes[of].name;
    t->offset = a->items[1]->i;
    t->rank = a->items[2]->n;
    memcpy(t->strides, strides, sizeof(*strides) * (size_t)t->rank);
}

static void tci_pt_add_tensor(tci_pt *p, const char *name, const tci_pickle_value *v)
{
    tci_pt_tensor t;
    tci_pt_parse(p, name, v, &t);
    char key[TCI_PT_NAME_MAX + 6];
    if (strlen(t.key) > TCI_PT_NAME_MAX) {
        tci_io_bad(p->file, "the storage of %s has too long a name", TCI_IO_NAME(name));
    }
    snprintf(key, sizeof(key), "data/%s", t.key);
    const tci_zip_entry *e = tci_pt_entry(p, key);
    int64_t count = tci_io_count(t.rank, t.sizes), size = tci_dtype_get(t.dtype)->bytes;
    if (!e) {
        tci_io_bad(p->file, "the storage of %s is not in the archive", TCI_IO_NAME(name));
    } else if (e->deflated) {
        tci_io_add_other(p->file, tci_scratch_printf(&p->file->s, "%s", name),
                         "is compressed: expected stored entries, as torch.save writes them");
        return;
    } else if (count < 0 || t.offset < 0 || t.offset > e->bytes / size ||
               count > e->bytes / size - t.offset) {
        tci_io_bad(p->file, "%s is not all in its storage of %" PRId64 " bytes", TCI_IO_NAME(name),
                   e->bytes);
    }
    bool rows = !count || tci_pt_is_row_major(t.rank, t.sizes, t.strides);
    if (!rows && !tci_pt_is_dense(t.rank, t.sizes, t.strides)) {
        tci_io_add_other(p->file, tci_scratch_printf(&p->file->s, "%s", name),
                         "is a view with strides: expected a contiguous tensor "
                         "(Tensor.contiguous before torch.save)");
        return;
    }
    tci_io_array array = {.seen = {name, t.type, t.dtype, t.rank, t.sizes},
                          .at = tci_zip_data(p->file, e) + t.offset * size,
                          .held = count * size,
                          .bytes = count * size,
                          .strides = rows ? NULL : t.strides,
                          .shares = true};
    tci_io_add(p->file, &array);
}

/* ---- the tree ---- */

static void tci_pt_list(tci_pt *p, const char *name, const tci_pickle_value *v, int depth);

static void tci_pt_list_item(tci_pt *p, const char *name, const tci_pickle_value *key, int64_t i,
                             const tci_pickle_value *v, int depth)
{
    const char *dot = *name ? "." : "";
    const char *text = key && key->kind == TCI_PICKLE_TEXT ? key->text : NULL;
    if (strlen(name) + (text ? strlen(text) : 0) > TCI_PT_NAME_MAX) {
        tci_io_bad(p->file, "a name has more than %d bytes: %s", TCI_PT_NAME_MAX,
                   TCI_IO_NAME(text ? text : name));
    }
    i = key && key->kind == TCI_PICKLE_INT ? key->i : i;
    p->name_bytes += (int64_t)(strlen(name) + (text ? strlen(text) : 0));
    if (p->name_bytes > TCI_IO_HEADER_MAX) {
        tci_io_bad(p->file, "its names have more than %d bytes", TCI_IO_HEADER_MAX);
    }
    name = text ? tci_scratch_printf(&p->file->s, "%s%s%s", name, dot, text)
                : tci_scratch_printf(&p->file->s, "%s%s%" PRId64, name, dot, i);
    tci_pt_list(p, name, v, depth + 1);
}

/* Lists the tensors in v, and its numbers and texts as metadata. */
static void tci_pt_list(tci_pt *p, const char *name, const tci_pickle_value *v, int depth)
{
    tci_scratch *s = &p->file->s;
    if (depth > TCI_PT_DEPTH || ++p->visits > TCI_IO_ARRAYS_MAX) {
        tci_io_bad(p->file, "its dicts are nested more than %d deep, or have more than %d values",
                   TCI_PT_DEPTH, TCI_IO_ARRAYS_MAX);
    }
    switch ((tci_pickle_kind)v->kind) {
    case TCI_PICKLE_DICT:
        for (int i = 0; i + 1 < v->n; i += 2) {
            tci_pt_list_item(p, name, v->items[i], i / 2, v->items[i + 1], depth);
        }
        break;
    case TCI_PICKLE_LIST:
    case TCI_PICKLE_TUPLE:
        for (int i = 0; i < v->n; i++) {
            tci_pt_list_item(p, name, NULL, i, v->items[i], depth);
        }
        break;
    case TCI_PICKLE_OBJECT: tci_pt_add_tensor(p, name, v); break;
    case TCI_PICKLE_TEXT: tci_io_add_pair(p->file, name, v->text); break;
    case TCI_PICKLE_INT:
    case TCI_PICKLE_BOOL:
        tci_io_add_pair(p->file, name, tci_scratch_printf(s, "%" PRId64, v->i));
        break;
    case TCI_PICKLE_FLOAT:
        tci_io_add_pair(p->file, name, tci_scratch_printf(s, "%.17g", v->f));
        break;
    case TCI_PICKLE_NONE:
    case TCI_PICKLE_CLASS:
    case TCI_PICKLE_OUTSIDE: break;
    }
}

TCI_FN void tci_pt_read(tc_file *file)
{
    const tci_pickle_reader reader = {tci_pt_class_of, tci_pt_value_of};
    tci_pt p = {.file = file};
    int64_t n = 0, n_order = 0;
    if (!tci_zip_is(file)) {
        tci_scratch_fail(&file->s, TC_ERR_UNSUPPORTED,
                         "it is of torch.save before PyTorch 1.6: "
                         "expected a zip archive (load it in PyTorch and save it again)");
    }
    p.n_entries = tci_zip_list(file, &p.entries);
    p.prefix = tci_pt_prefix(file, p.entries, p.n_entries);
    if (strlen(p.prefix) > TCI_PT_NAME_MAX) {
        tci_io_bad(file, "its folder has too long a name: %s", TCI_IO_NAME(p.prefix));
    }
    qsort(p.entries, (size_t)p.n_entries, sizeof(*p.entries), tci_pt_by_name);
    const unsigned char *order = tci_pt_bytes(&p, "byteorder", &n_order);
    if (order && (n_order != 6 || memcmp(order, "little", 6))) {
        tci_scratch_fail(&file->s, TC_ERR_UNSUPPORTED,
                         "it is not little-endian: its byteorder is "
                         "%s",
                         TCI_IO_NAME((const char *)order));
    }
    const unsigned char *pickle = tci_pt_bytes(&p, "data.pkl", &n);
    tci_pt_list(&p, "", tci_pickle_read(file, &reader, pickle, n), 0);
}
