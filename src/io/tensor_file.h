/* io/tensor_file.h - internal interface of the readers and writers of tensor files (npy, npz, pt,
 * gguf, safetensors): the open file, bounds-checked reads, dtype names.
 *
 * A format is a row of TCI_IO_READERS, which lists arrays, and of TCI_IO_WRITERS. Readers access
 * the file through tci_io_read alone, which refuses offsets outside of the file. They own nothing
 * outside the scratch memory of the file: on invalid input they longjmp (tci_scratch_fail). */
#ifndef TCI_IO_TENSOR_FILE_H
#define TCI_IO_TENSOR_FILE_H

#include "../api/internal.h"
#include "../api/io.h"

/* X(name). ORDER formats: asked in turn whether a file is theirs; the last one takes what is
 * left. */
#define TCI_IO_READERS(X) X(npy) X(pt) X(npz) X(gguf) X(safetensors)
/* X(name, has_names, has_metadata): paths of files that are written end in ".name". Without names a
 * file has exactly one array. */
#define TCI_IO_WRITERS(X) X(npy, false, false) X(npz, true, false) X(safetensors, true, true)

/* Names of dtypes: X(dtype, in safetensors, letter in NumPy, number in GGUF or -1, code in DLPack).
 * NumPy and DLPack add the size; NumPy has no bf16 but takes void for it. */
#define TCI_IO_TYPES(X)                                                                            \
    X(TC_BOOL, "BOOL", 'b', -1, 6)                                                                 \
    X(TC_U8, "U8", 'u', -1, 1)                                                                     \
    X(TC_U16, "U16", 'u', -1, 1)                                                                   \
    X(TC_U32, "U32", 'u', -1, 1)                                                                   \
    X(TC_U64, "U64", 'u', -1, 1)                                                                   \
    X(TC_I8, "I8", 'i', 24, 0)                                                                     \
    X(TC_I16, "I16", 'i', 25, 0)                                                                   \
    X(TC_I32, "I32", 'i', 26, 0)                                                                   \
    X(TC_I64, "I64", 'i', 27, 0)                                                                   \
    X(TC_F16, "F16", 'f', 1, 2)                                                                    \
    X(TC_BF16, "BF16", 'V', 30, 4)                                                                 \
    X(TC_F32, "F32", 'f', 0, 2)                                                                    \
    X(TC_F64, "F64", 'f', 28, 2)
typedef struct tci_io_type {
    tc_dtype dtype;
    char name[5];
    char letter;
    int8_t ggml;
    uint8_t dlpack;
} tci_io_type;
TCI_FN const tci_io_type *tci_io_types(void); /* TCI_DTYPE_N of them */

enum {
    TCI_IO_WINDOW = 1 << 14,
    TCI_IO_HEADER_MAX = 100000000, /* bytes of a file's headers: what safetensors allows */
    TCI_IO_ARRAYS_MAX = 1 << 20,   /* so that a small file cannot ask for much memory */
    TCI_IO_RANK_MAX = 64,          /* axes of an array, as in NumPy 2 */
    TCI_IO_ALIGN = 64              /* where data begins that we write */
};

typedef struct tci_io_array {
    tc_array seen;
    int64_t at, held; /* the bytes of the file that it has; of a type whose size is unknown 0 */
    int64_t bytes;    /* of its elements; of an unknown type 0 */
    /* Elements from one index of an axis to the next, of the axes of a dense array in some order;
     * NULL: row-major. tci_io_add copies them. */
    const int64_t *strides;
    bool swapped;  /* elements are big-endian */
    bool shares;   /* others may have the same bytes, as tensors of one storage do */
    bool deflated; /* what the file holds is a deflate stream, of */
    int64_t skip;  /* this many bytes and then the elements, with */
    uint32_t crc;  /* this CRC-32 */
} tci_io_array;
/* A part of the file whose array could not be listed, and why. */
typedef struct tci_io_other {
    const char *name, *why;
} tci_io_other;
typedef struct tci_io_pair {
    const char *key, *value;
} tci_io_pair;

struct tc_file {
    tci_owner owner; /* of borrowed storages; the handle has one count, and each of them */
    int32_t refs;    /* atomic */
    int fd;
    int64_t bytes;    /* when it was opened */
    char *map;        /* all of it */
    const char *path; /* as it was given, in the scratch */
    tci_scratch s;    /* everything below and what it points to; not changed once it is open */
    tci_io_array *arrays;
    int n_arrays, cap_arrays; /* by name */
    tci_io_pair *pairs;
    int n_pairs, cap_pairs; /* by key */
    tci_io_other *others;
    int n_others, cap_others;
    int64_t front_bytes;          /* that tci_io_front has given out */
    struct tci_io_window *window; /* while it is being opened */
};

/* The part of the file that was read last. */
struct tci_io_window {
    int64_t at, n;
    char bytes[TCI_IO_WINDOW];
};

/* Bytes [at, at + n) of the file, which are in it. False: they are not there any more. */
TCI_FN bool tci_io_read_now(const tc_file *file, int64_t at, void *to, int64_t n);

/* ---- reader_helpers.c: for readers of formats, on a file that is being opened ---- */
TCI_FN void tci_io_read(tc_file *file, int64_t at, void *to, int64_t n);
TCI_FN uint64_t tci_io_number(tc_file *file, int64_t at, int bytes); /* little endian */
/* The file is damaged: TC_ERR_IO with this text. Never returns. */
TCI_FN void tci_io_bad(tc_file *file, const char *format, ...) TCI_PRINTF(2, 3);
/* Elements that the sizes make; -1: a size is negative, or they are more than a file can hold. */
TCI_FN int64_t tci_io_count(int rank, const int64_t *sizes);
/* Lists an array; name, type and sizes are copied. Of a known dtype, sizes and dtype must make
 * a->bytes, and a->held unless it is deflated. */
TCI_FN void tci_io_add(tc_file *file, const tci_io_array *a);
/* An array that cannot be read, which is told when it is asked for. `why` follows its name. */
TCI_FN void tci_io_add_other(tc_file *file, const char *name, const char *why);
/* The first n bytes of what an array's part of the file holds, inflated if they are deflated, in
 * the scratch. There are at least this many. */
TCI_FN const char *tci_io_front(tc_file *file, const tci_io_array *a, int64_t n);
TCI_FN void tci_io_add_pair(tc_file *file, const char *key, const char *value); /* in the scratch */
/* A name for a message: short, and without what a terminal would act on. */
typedef struct tci_io_name {
    char text[80];
} tci_io_name;
TCI_FN tci_io_name tci_io_show(const char *name);
#define TCI_IO_NAME(name) (tci_io_show(name).text)
TCI_FN bool tci_io_is_utf8(const char *text, size_t n);

/* ---- for writers of formats: everything is put out in order ---- */
typedef struct tci_io_out {
    tci_ctx *ctx;
    const char *path;
    int n;                       /* of the lists that follow */
    const tc_tensor *tensors;    /* of one context */
    const char *const *names;    /* all different; NULL: none is needed */
    const char *const *metadata; /* key, value, ..., NULL; or NULL */
    tci_lazy_held *values;       /* held while `holds` */
    bool holds;
    tci_os_fresh to;
    tci_scratch s;
} tci_io_out;
TCI_FN void tci_io_put(tci_io_out *o, const void *bytes, int64_t n);
static inline const tci_node *tci_io_node(const tci_io_out *o, int i)
{
    return o->values[i].node;
}
static inline int64_t tci_io_bytes(const tci_io_out *o, int i)
{
    const tci_node *n = tci_io_node(o, i);
    return tci_dim_known(tci_node_count(n)) * tci_dtype_get((tc_dtype)n->dtype)->bytes;
}
/* The elements of value i, row-major, as long as the scratch. */
TCI_FN const void *tci_io_value(tci_io_out *o, int i);

/* ---- for other calls ---- */
/* Writes what o says; list, or NULL, fills in tensors and names within the scratch. Ends the frame
 * with that status. */
typedef void (*tci_io_lister)(tci_io_out *o);
TCI_FN tc_status tci_io_write(tci_io_out *o, tci_frame *f, tci_io_lister list);
/* NULL: the frame failed. Freed by tc_file_close. */
TCI_FN tc_file *tci_io_open_file(tci_frame *f, const char *path);
/* The elements in the order of the file, little-endian. Else the reason, which follows the name,
 * and *status. */
TCI_FN const char *tci_io_read_array(const tc_file *file, const tci_io_array *a, void *to,
                                     tc_status *status);

/* ---- the formats ---- */
#define TCI_ROW(name)                                                                              \
    TCI_FN bool tci_##name##_is(tc_file *file);                                                    \
    TCI_FN void tci_##name##_read(tc_file *file);
TCI_IO_READERS(TCI_ROW)
#undef TCI_ROW
#define TCI_ROW(name, has_names, has_metadata) TCI_FN void tci_##name##_write(tci_io_out *o);
TCI_IO_WRITERS(TCI_ROW)
#undef TCI_ROW
/* Lists the array whose .npy is at part->at, with part->bytes bytes. The reason why it is none that
 * tc reads, or NULL. */
TCI_FN const char *tci_npy_read_at(tc_file *file, const char *name, const tci_io_array *part);
/* Writes the header before the elements of value i. */
TCI_FN void tci_npy_head(tci_io_out *o, int i, tci_str *head);

#endif
