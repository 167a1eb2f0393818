/* compile/serialize.h - declares the serialization of compiled programs: one function per struct
 * both writes and reads it. */
#ifndef TCI_COMPILE_SERIALIZE_H
#define TCI_COMPILE_SERIALIZE_H

#include "memory_cache.h"

/* Bytes that are written or read. Every function takes the value to write and returns the one that
 * was read, or does so in place; when writing both are the same. */
typedef struct tci_wire {
    tci_str *out;            /* writing; NULL: reading */
    const uint8_t *at, *end; /* reading */
    tci_code *memory;        /* reading: what arrays and texts come from */
    bool bad;                /* a breach or no memory: all that follows is void */
    bool no_memory;          /* the entry itself may be good */
    const tci_dim *symbols;  /* reading: those of the entry, by number */
    int32_t n_symbols;
} tci_wire;

TCI_FN void tci_wire_bytes(tci_wire *w, void *bytes, size_t n);
TCI_FN int64_t tci_wire_word(tci_wire *w, int64_t v);
/* A number in [lo, hi]. */
TCI_FN int64_t tci_wire_range(tci_wire *w, int64_t v, int64_t lo, int64_t hi);
/* A count of items that take at least item_bytes each. */
TCI_FN int32_t tci_wire_count(tci_wire *w, int64_t n, size_t item_bytes);
/* The array of a list: `items` when writing, fresh memory of the code when reading. */
TCI_FN void *tci_wire_array(tci_wire *w, void *items, int32_t n, size_t item_bytes);
TCI_FN char *tci_wire_text(tci_wire *w, char *text);
TCI_FN void tci_wire_hash(tci_wire *w, tci_hash *h);
/* Writes a key, or compares it with the one that is read. */
TCI_FN bool tci_wire_key(tci_wire *w, const void *key, size_t n);
#ifdef TC_DYNAMIC_SHAPES
/* A number in [lo, hi], or an expression over the symbols. */
TCI_FN tci_dim tci_wire_dim(tci_wire *w, tci_dim d, int64_t lo, int64_t hi);
TCI_FN void tci_wire_dims(tci_wire *w, tci_dim **dims, int32_t *n);
/* Symbols by their ranges; dims that follow are over these. */
TCI_FN void tci_wire_symbols(tci_wire *w, tci_dim **symbols, int32_t *n);
#else
#define tci_wire_dim tci_wire_range
#endif
/* The whole of a code but its key and modules. */
TCI_FN void tci_wire_code(tci_wire *w, tci_code *c, int32_t n_modules);

#endif
