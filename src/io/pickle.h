/* io/pickle.h - a restricted reader of Python pickles: dicts, lists, tuples, numbers, strings, and
 * classes that the caller lists by name. Nothing is executed or imported. */
#ifndef TCI_IO_PICKLE_H
#define TCI_IO_PICKLE_H

#include "tensor_file.h"

typedef enum tci_pickle_kind {
    TCI_PICKLE_NONE,
    TCI_PICKLE_BOOL,
    TCI_PICKLE_INT,
    TCI_PICKLE_FLOAT,
    TCI_PICKLE_TEXT,
    TCI_PICKLE_TUPLE,
    TCI_PICKLE_LIST,
    TCI_PICKLE_DICT,   /* items: key, value, key, value, ... */
    TCI_PICKLE_CLASS,  /* i: the caller's number for it */
    TCI_PICKLE_OBJECT, /* a call of class i with items[0], a tuple, as arguments */
    TCI_PICKLE_OUTSIDE /* an object that is stored outside of the pickle: items[0] names it */
} tci_pickle_kind;

typedef struct tci_pickle_value tci_pickle_value;
struct tci_pickle_value {
    uint8_t kind;
    int64_t i;
    double f;
    const char *text;
    tci_pickle_value **items;
    int n, cap;
};

/* The value of the pickle in n bytes, in the file's scratch; values may have several users, and a
 * dict may hold itself. class_of: the caller's number of a class, or -1, which is refused by name;
 * value_of: what a call of it is (also made by the caller), or NULL for an OBJECT. Longjmps. */
typedef struct tci_pickle_reader {
    int (*class_of)(const char *module, const char *name);
    tci_pickle_value *(*value_of)(tc_file *file, int class_number, tci_pickle_value *arguments);
} tci_pickle_reader;
TCI_FN tci_pickle_value *tci_pickle_read(tc_file *file, const tci_pickle_reader *reader,
                                         const unsigned char *bytes, int64_t n);
TCI_FN tci_pickle_value *tci_pickle_make(tc_file *file, tci_pickle_kind kind);

#endif
