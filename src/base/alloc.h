/* base/alloc.h - memory allocation: the allocator hook, and the scratch arena of a compile.
 *
 * tci_scratch is a bump arena that never returns NULL. When memory runs out, or an internal
 * invariant fails, it jumps to the one setjmp of its owner (compile/compile.c), which frees the
 * arena and returns a status. Functions that take a tci_scratch must therefore own nothing outside
 * of it. Code that outlives a compile uses tci_alloc and checks for NULL. */
#ifndef TCI_BASE_ALLOC_H
#define TCI_BASE_ALLOC_H

#include <setjmp.h>

#include "../api/types.h"
#include "platform.h"

/* Process-wide memory (code cache, worker pool, programs): TC_MALLOC family or libc. */
TCI_FN void *tci_heap_resize(void *p, size_t new_bytes); /* p NULL: get; 0 bytes: free -> NULL */
TCI_FN void *tci_heap_get(size_t bytes);                 /* zeroed, or NULL */
TCI_FN void tci_heap_free(void *p);
/* Tensor data: aligned to 64 bytes, huge pages advised past 2 MiB; NULL when out of memory. */
TCI_FN void *tci_heap_get_aligned(size_t bytes);
TCI_FN void tci_heap_free_aligned(void *p);

/* A context's memory: the user's tc_allocator, or the heap. */
TCI_FN void *tci_alloc_resize(const tc_allocator *a, void *p, size_t old_bytes, size_t new_bytes);

/* Tests: the request number tci_test_alloc_fail_at (counted from 1 since the count was cleared)
 * finds no memory, and with `sticky` every later one too. live counts the blocks not yet freed. */
#ifdef TCI_TEST_ALLOC
extern _Atomic long tci_test_alloc_count, tci_test_alloc_fail_at, tci_test_alloc_live;
extern _Atomic bool tci_test_alloc_sticky;
#endif

typedef struct tci_chunk tci_chunk;
typedef struct tci_scratch {
    tci_chunk *chunks; /* newest first */
    char *next, *end;  /* free part of the newest chunk */
    size_t bytes;      /* given out in all */
    jmp_buf escape;    /* set by the owner before first use */
    tc_status why;     /* status that the longjmp carries */
    char message[256]; /* text for it */
} tci_scratch;

TCI_FN void tci_scratch_init(tci_scratch *s); /* the owner then does: if (setjmp(s->escape)) ... */
TCI_FN void tci_scratch_free(tci_scratch *s);
TCI_FN size_t tci_scratch_held(const tci_scratch *s);       /* bytes taken from the heap */
TCI_FN void *tci_scratch_get(tci_scratch *s, size_t bytes); /* zeroed, 16-aligned, never NULL */
TCI_FN void *tci_scratch_copy(tci_scratch *s, const void *p, size_t bytes);
TCI_FN char *tci_scratch_printf(tci_scratch *s, const char *format, ...) TCI_PRINTF(2, 3);
/* Grow an array kept in scratch: returns room for cap' >= need elements (old contents copied). */
TCI_FN void *tci_scratch_grow(tci_scratch *s, void *p, int n, int *cap, int need,
                              size_t elem_bytes);
/* Leaves the compile with a status and text; never returns. */
TCI_FN void tci_scratch_fail(tci_scratch *s, tc_status why, const char *format, ...)
    TCI_PRINTF(3, 4);

#define TCI_NEW(s, type) ((type *)tci_scratch_get((s), sizeof(type)))
#define TCI_NEW_ARRAY(s, type, n) ((type *)tci_scratch_get((s), sizeof(type) * (size_t)(n)))
/* Appends to struct { type *items; int n, cap; } kept in scratch: TCI_PUSH(s, list.items, list.n,
 * list.cap, v) */
#define TCI_PUSH(s, items, n, cap, value)                                                          \
    do {                                                                                           \
        if ((n) == (cap)) {                                                                        \
            (items) = tci_scratch_grow((s), (items), (n), &(cap), (n) + 1, sizeof(*(items)));      \
        }                                                                                          \
        (items)[(n)++] = (value);                                                                  \
    } while (0)
/* Our own invariants: becomes TC_ERR_INTERNAL, never a signal. */
#define TCI_ASSERT(s, condition)                                                                   \
    do {                                                                                           \
        if (TCI_UNLIKELY(!(condition))) {                                                          \
            tci_scratch_fail((s), TC_ERR_INTERNAL, "%s:%d: %s", __FILE__, __LINE__, #condition);   \
        }                                                                                          \
    } while (0)

#endif
