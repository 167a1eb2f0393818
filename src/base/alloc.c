/* base/alloc.c - memory allocation: the heap, the user's allocator, and the scratch arena of a
 * compile.
 *
 * In: sizes. Out: memory; on failure NULL (heap) or a longjmp (scratch).
 *
 * Design: all memory comes through tci_heap_resize (or the user's resize function), so TC_MALLOC
 * replaces libc in one place, and a test can make the n-th request fail.
 *
 * An aligned block has the pointer to free just before its data. A scratch arena is a list of
 * chunks, newest first, each twice as large as the previous one up to TCI_ALLOC_CHUNK_MAX. Data is
 * zeroed when it is handed out and not when the chunk is made, so unused space costs nothing. */
#include "alloc.h"
#include "system_headers.h"

/* TC_MALLOC, TC_REALLOC and TC_FREE come together. */
#ifndef TC_MALLOC
#define TC_MALLOC(bytes) malloc(bytes)
#define TC_REALLOC(p, bytes) realloc((p), (bytes))
#define TC_FREE(p) free(p)
#elif !defined(TC_REALLOC) || !defined(TC_FREE)
#error "tc: define TC_MALLOC, TC_REALLOC and TC_FREE together"
#endif

#define TCI_ALLOC_ALIGN ((size_t)64)
#define TCI_ALLOC_HUGE ((size_t)2 << 20)
#define TCI_ALLOC_CHUNK_MIN ((size_t)32 << 10)
#define TCI_ALLOC_CHUNK_MAX ((size_t)4 << 20)

#ifdef TCI_TEST_ALLOC
_Atomic long tci_test_alloc_count, tci_test_alloc_fail_at, tci_test_alloc_live;
_Atomic bool tci_test_alloc_sticky;

static bool tci_alloc_test_fails(void)
{
    long at = tci_test_alloc_fail_at;
    long n = ++tci_test_alloc_count;
    return at > 0 && (n == at || (n > at && tci_test_alloc_sticky));
}
#define TCI_ALLOC_TEST_FAILS() tci_alloc_test_fails()
#define TCI_ALLOC_TEST_LIVE(delta) (tci_test_alloc_live += (delta))
#else
#define TCI_ALLOC_TEST_FAILS() false
#define TCI_ALLOC_TEST_LIVE(delta) ((void)0)
#endif

TCI_FN void tci_heap_free(void *p)
{
    if (p) {
        TCI_ALLOC_TEST_LIVE(-1);
        TC_FREE(p);
    }
}

TCI_FN void *tci_heap_resize(void *p, size_t new_bytes)
{
    if (!new_bytes) {
        tci_heap_free(p);
        return NULL;
    }
    if (TCI_ALLOC_TEST_FAILS()) {
        return NULL;
    }
    void *fresh = p ? TC_REALLOC(p, new_bytes) : TC_MALLOC(new_bytes);
    if (fresh && !p) {
        TCI_ALLOC_TEST_LIVE(1);
    }
    return fresh;
}

TCI_FN void *tci_heap_get(size_t bytes)
{
    void *p = tci_heap_resize(NULL, bytes ? bytes : 1);
    if (p) {
        memset(p, 0, bytes);
    }
    return p;
}

TCI_FN void *tci_heap_get_aligned(size_t bytes)
{
    size_t room = TCI_ALLOC_ALIGN + sizeof(void *);
    if (bytes > SIZE_MAX - room) {
        return NULL;
    }
    char *base = tci_heap_resize(NULL, bytes + room);
    if (!base) {
        return NULL;
    }
    uintptr_t first = (uintptr_t)base + sizeof(void *);
    uintptr_t skip = (TCI_ALLOC_ALIGN - first % TCI_ALLOC_ALIGN) % TCI_ALLOC_ALIGN;
    char *data = base + sizeof(void *) + skip;
    memcpy(data - sizeof(void *), &base, sizeof(void *));
#ifdef MADV_HUGEPAGE
    if (bytes >= TCI_ALLOC_HUGE) {
        /* Only advice, and only for the huge pages that are wholly inside. */
        uintptr_t from = ((uintptr_t)data + TCI_ALLOC_HUGE - 1) / TCI_ALLOC_HUGE * TCI_ALLOC_HUGE;
        uintptr_t to = ((uintptr_t)data + bytes) / TCI_ALLOC_HUGE * TCI_ALLOC_HUGE;
        if (to > from) {
            (void)madvise(data + (from - (uintptr_t)data), to - from, MADV_HUGEPAGE);
        }
    }
#endif
    return data;
}

TCI_FN void tci_heap_free_aligned(void *p)
{
    if (p) {
        char *base;
        memcpy(&base, (char *)p - sizeof(void *), sizeof(void *));
        tci_heap_free(base);
    }
}

TCI_FN void *tci_alloc_resize(const tc_allocator *a, void *p, size_t old_bytes, size_t new_bytes)
{
    if (!a || !a->resize) {
        return tci_heap_resize(p, new_bytes);
    }
    if (new_bytes && TCI_ALLOC_TEST_FAILS()) {
        return NULL;
    }
    return a->resize(a->user, p, old_bytes, new_bytes);
}

/* ---- scratch ---- */

struct tci_chunk {
    union {
        tci_chunk *older;
        char room[8];
    } link;         /* a pointer may have 4 bytes */
    uint64_t bytes; /* of the data that follows, which is as aligned as the heap's, up to 16 */
};
_Static_assert(sizeof(struct tci_chunk) % 16 == 0, "chunk data must stay 16-aligned");

TCI_FN void tci_scratch_init(tci_scratch *s)
{
    s->chunks = NULL;
    s->next = s->end = NULL;
    s->bytes = 0;
    s->why = TC_OK;
    s->message[0] = 0;
}

TCI_FN void tci_scratch_free(tci_scratch *s)
{
    while (s->chunks) {
        tci_chunk *older = s->chunks->link.older;
        tci_heap_free(s->chunks);
        s->chunks = older;
    }
    s->next = s->end = NULL;
    s->bytes = 0;
}

TCI_FN size_t tci_scratch_held(const tci_scratch *s)
{
    size_t bytes = 0;
    for (const tci_chunk *chunk = s->chunks; chunk; chunk = chunk->link.older) {
        bytes += sizeof(*chunk) + (size_t)chunk->bytes;
    }
    return bytes;
}

TCI_FN void tci_scratch_fail(tci_scratch *s, tc_status why, const char *format, ...)
{
    va_list args;
    s->why = why;
    va_start(args, format);
    vsnprintf(s->message, sizeof(s->message), format, args);
    va_end(args);
    longjmp(s->escape, 1);
}

/* Makes room for `bytes` (a multiple of 16) in a fresh chunk. */
static void tci_scratch_add_chunk(tci_scratch *s, size_t bytes)
{
    size_t size = s->chunks ? (size_t)s->chunks->bytes * 2 : TCI_ALLOC_CHUNK_MIN;
    size = TCI_MIN(size, TCI_ALLOC_CHUNK_MAX);
    size = TCI_MAX(size, bytes);
    tci_chunk *chunk = tci_heap_resize(NULL, sizeof(tci_chunk) + size);
    if (!chunk) {
        tci_scratch_fail(s, TC_ERR_MEMORY, "out of memory: %zu bytes for a compile", size);
    }
    chunk->link.older = s->chunks;
    chunk->bytes = size;
    s->chunks = chunk;
    s->next = (char *)(chunk + 1);
    s->end = s->next + size;
}

TCI_FN void *tci_scratch_get(tci_scratch *s, size_t bytes)
{
    if (TCI_UNLIKELY(bytes > SIZE_MAX / 4)) {
        tci_scratch_fail(s, TC_ERR_LIMIT, "a request of %zu bytes is too large", bytes);
    }
    bytes = bytes ? (bytes + 15) & ~(size_t)15 : 16; /* nothing has an address too */
    if (TCI_UNLIKELY((size_t)(s->end - s->next) < bytes)) {
        tci_scratch_add_chunk(s, bytes);
    }
    void *p = s->next;
    s->next += bytes;
    s->bytes += bytes;
    memset(p, 0, bytes);
    return p;
}

TCI_FN void *tci_scratch_copy(tci_scratch *s, const void *p, size_t bytes)
{
    void *copy = tci_scratch_get(s, bytes);
    if (bytes) {
        memcpy(copy, p, bytes);
    }
    return copy;
}

TCI_FN char *tci_scratch_printf(tci_scratch *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) { /* the libc asked for memory */
        tci_scratch_fail(s, TC_ERR_MEMORY, "text cannot be formatted: %s", format);
    }
    char *text = tci_scratch_get(s, (size_t)n + 1);
    va_start(args, format);
    vsnprintf(text, (size_t)n + 1, format, args);
    va_end(args);
    return text;
}

TCI_FN void *tci_scratch_grow(tci_scratch *s, void *p, int n, int *cap, int need, size_t elem_bytes)
{
    if (need <= *cap) {
        return p;
    }
    int grown = *cap > INT32_MAX / 2 ? INT32_MAX : TCI_MAX(*cap * 2, 8);
    grown = TCI_MAX(grown, need);
    if (need < 0 || (size_t)grown > SIZE_MAX / 4 / elem_bytes) {
        tci_scratch_fail(s, TC_ERR_LIMIT, "a list of %d items is too long", grown);
    }
    void *fresh = tci_scratch_get(s, (size_t)grown * elem_bytes);
    if (n > 0) {
        memcpy(fresh, p, (size_t)n * elem_bytes);
    }
    *cap = grown;
    return fresh;
}

#undef TCI_ALLOC_ALIGN
#undef TCI_ALLOC_HUGE
#undef TCI_ALLOC_CHUNK_MIN
#undef TCI_ALLOC_CHUNK_MAX
#undef TCI_ALLOC_TEST_FAILS
#undef TCI_ALLOC_TEST_LIVE
