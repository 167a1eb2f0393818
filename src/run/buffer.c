/* run/buffer.c - reference-counted tensor memory.
 *
 * In: sizes, or user memory. Out: tci_storage, shared by graph nodes and programs.
 *
 * Design: whoever keeps a storage holds one reference, and counts are atomic, because a program
 * that captured a leaf may be freed on another thread than its context's. All other fields are
 * changed by the context's thread alone (version by tc_touch), except device copies
 * (run/device_residency.c) and the values of parameters (run/param.c).
 *
 * Owned memory is one aligned block: the header in its first 64 bytes, then the data, so data is
 * 64-byte aligned and never NULL, even for zero bytes. Borrowed memory is only referenced. */
#include "../base/alloc.h"
#include "runtime_structs.h"

#define TCI_BUFFER_HEADER ((size_t)64)
_Static_assert(sizeof(tci_storage) <= 64, "the header must fit in front of the data");

/* Storages have no versions in common, so a version and an address name the bytes of one. */
static uint64_t tci_buffer_version(void)
{
    static uint32_t serial; /* atomic */
    return (uint64_t)__atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED) << 32;
}

TCI_FN tci_storage *tci_storage_make(int64_t bytes)
{
    if (bytes < 0 || (uint64_t)bytes > SIZE_MAX / 2) {
        return NULL;
    }
    tci_storage *s = tci_heap_get_aligned(TCI_BUFFER_HEADER + (size_t)bytes);
    if (s) {
        *s = (tci_storage){.refs = 1,
                           .data = (char *)s + TCI_BUFFER_HEADER,
                           .bytes = bytes,
                           .version = tci_buffer_version()};
    }
    return s;
}

TCI_FN tci_storage *tci_storage_borrow(const void *data, int64_t bytes)
{
    tci_storage *s = tci_heap_get(sizeof(*s));
    if (s) {
        *s = (tci_storage){.refs = 1,
                           .borrowed = true,
                           .data = (void *)(uintptr_t)data,
                           .bytes = bytes,
                           .version = tci_buffer_version()};
    }
    return s;
}

TCI_FN void tci_storage_retain(tci_storage *s)
{
    __atomic_add_fetch(&s->refs, 1, __ATOMIC_RELAXED);
}

TCI_FN void tci_storage_release(tci_storage *s)
{
    if (!s || __atomic_sub_fetch(&s->refs, 1, __ATOMIC_ACQ_REL) > 0) {
        return;
    }
    tci_copies_free(s);
    tci_param_free(s);
    if (s->owner) {
        s->owner->release(s->owner);
    }
    if (s->borrowed) {
        tci_heap_free(s);
    } else {
        tci_heap_free_aligned(s);
    }
}

#undef TCI_BUFFER_HEADER
