/* debug/string_intern.c - interned strings that live as long as the process.
 *
 * In: names of regions, programs and source files. Out: small ids, which nodes and programs store
 * instead of pointers: a program may outlive the context in which its regions were opened, and the
 * plugin whose __FILE__ it was made in. An open hash table over items that never move, so a string
 * is read without the lock. */
#include "string_intern.h"

#include <string.h>

#include "../base/alloc.h"
#include "../base/hash.h"
#include "../base/os.h"

enum { TCI_LABEL_CHUNK = 256, TCI_LABEL_CHUNKS = 256 }; /* items of a chunk; chunks, at most */

static struct tci_label_process {
    tci_mutex lock;
    char **chunks[TCI_LABEL_CHUNKS]; /* atomic */
    uint32_t n;                      /* labels; the first is 1 */
    uint32_t *table, n_table;        /* label, or 0 */
} tci_label_process = {.lock = TCI_MUTEX_INIT};

TCI_FN const char *tci_label_text(uint32_t label)
{
    if (!label) {
        return "";
    }
    char **chunk = __atomic_load_n(&tci_label_process.chunks[label / TCI_LABEL_CHUNK],
                                   __ATOMIC_ACQUIRE);
    return chunk ? chunk[label % TCI_LABEL_CHUNK] : "";
}

/* The place of the text in a table that has room. */
static uint32_t *tci_label_slot(uint32_t *table, uint32_t n, const char *text)
{
    uint32_t at = (uint32_t)tci_hash_bytes(text, strlen(text)).lo & (n - 1);
    while (table[at] && strcmp(tci_label_text(table[at]), text)) {
        at = (at + 1) & (n - 1);
    }
    return &table[at];
}

static bool tci_label_grow(void)
{
    struct tci_label_process *p = &tci_label_process;
    uint32_t n = p->n_table ? 2 * p->n_table : TCI_LABEL_CHUNK;
    if (2 * (p->n + 1) < p->n_table) {
        return true;
    }
    uint32_t *table = tci_heap_get(n * sizeof(*table));
    for (uint32_t label = 1; table && label <= p->n; label++) {
        *tci_label_slot(table, n, tci_label_text(label)) = label;
    }
    if (table) {
        tci_heap_free(p->table);
        p->table = table;
        p->n_table = n;
    }
    return table != NULL;
}

/* Under the lock, as the next label. */
static uint32_t tci_label_add(uint32_t *slot, const char *text)
{
    struct tci_label_process *p = &tci_label_process;
    uint32_t label = p->n + 1, at = label / TCI_LABEL_CHUNK;
    size_t bytes = strlen(text) + 1;
    if (at < TCI_LABEL_CHUNKS && !p->chunks[at]) {
        char **chunk = tci_heap_get(TCI_LABEL_CHUNK * sizeof(*chunk));
        __atomic_store_n(&p->chunks[at], chunk, __ATOMIC_RELEASE);
    }
    char *copy = at < TCI_LABEL_CHUNKS && p->chunks[at] ? tci_heap_get(bytes) : NULL;
    if (!copy) {
        return 0;
    }
    memcpy(copy, text, bytes);
    p->chunks[at][label % TCI_LABEL_CHUNK] = copy;
    p->n = *slot = label;
    return label;
}

TCI_FN uint32_t tci_label_of(const char *text)
{
    struct tci_label_process *p = &tci_label_process;
    uint32_t label = 0;
    if (!text || !*text) {
        return 0;
    }
    tci_os_keep_over_fork(&p->lock, NULL);
    pthread_mutex_lock(&p->lock);
    if (tci_label_grow()) {
        uint32_t *slot = tci_label_slot(p->table, p->n_table, text);
        label = *slot ? *slot : tci_label_add(slot, text);
    }
    pthread_mutex_unlock(&p->lock);
    return label;
}

TCI_FN void tci_label_forget(void)
{
    struct tci_label_process *p = &tci_label_process;
    pthread_mutex_lock(&p->lock);
    for (uint32_t label = 1; label <= p->n; label++) {
        tci_heap_free(p->chunks[label / TCI_LABEL_CHUNK][label % TCI_LABEL_CHUNK]);
    }
    for (int i = 0; i < TCI_LABEL_CHUNKS; i++) {
        tci_heap_free(p->chunks[i]);
        p->chunks[i] = NULL;
    }
    tci_heap_free(p->table);
    p->table = NULL;
    p->n = p->n_table = 0;
    pthread_mutex_unlock(&p->lock);
}
