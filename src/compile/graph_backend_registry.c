/* compile/graph_backend_registry.c - registry of graph-level backends.
 *
 * In: function tables (api/graph_backend.h) and names such as "onnxrt:cuda". Out: a
 * tci_backend for each requested name. Backends are never removed, so the returned pointers live as
 * long as the process. */
#include "graph_backend_registry.h"

#include <string.h>

#include "../base/os.h"

enum { TCI_GRAPH_BACKENDS = 16 };

static struct {
    tci_mutex lock;
    int n;
    const tc_graph_backend *rows[TCI_GRAPH_BACKENDS];
    struct tci_graph_entry *entries;
} tci_graph_backends = {.lock = TCI_MUTEX_INIT};

/* Caller holds the lock, as in all functions below that are static. n: length of the name. */
static const tc_graph_backend *tci_graph_backend_find(const char *name, size_t n)
{
    for (int i = 0; i < tci_graph_backends.n; i++) {
        const tc_graph_backend *b = tci_graph_backends.rows[i];
        if (strlen(b->name) == n && !memcmp(b->name, name, n)) {
            return b;
        }
    }
    return NULL;
}

static struct tci_graph_entry *tci_graph_backend_enter(const tc_graph_backend *calls,
                                                       const char *name, size_t n)
{
    struct tci_graph_entry *e = tci_graph_backends.entries;
    while (e && strcmp(e->backend.name, name)) {
        e = e->next;
    }
    size_t bytes = strlen(name) + 1;
    if (!e && (e = tci_heap_get(sizeof(*e) + bytes))) {
        char *copy = memcpy(e + 1, name, bytes);
        e->backend = (tci_backend){.name = copy, .graph = e, .target = {.arch = "c"}};
        e->calls = calls;
        e->option = copy[n] ? copy + n + 1 : "";
        e->next = tci_graph_backends.entries;
        tci_graph_backends.entries = e;
    }
    return e;
}

TCI_FN const tci_backend *tci_graph_backend_pick(const char *name)
{
    size_t n = strcspn(name, ":");
    tci_os_keep_over_fork(&tci_graph_backends.lock, NULL);
    pthread_mutex_lock(&tci_graph_backends.lock);
    const tc_graph_backend *calls = tci_graph_backend_find(name, n);
    const struct tci_graph_entry *e = calls ? tci_graph_backend_enter(calls, name, n) : NULL;
    pthread_mutex_unlock(&tci_graph_backends.lock);
    return e ? &e->backend : NULL;
}

TCI_FN const char *tci_graph_backend_name(int i)
{
    pthread_mutex_lock(&tci_graph_backends.lock);
    const char *name = i < tci_graph_backends.n ? tci_graph_backends.rows[i]->name : NULL;
    pthread_mutex_unlock(&tci_graph_backends.lock);
    return name;
}

TCI_FN const tc_backend_entry *tci_graph_backend_at(int i)
{
    static struct {
        tc_backend_entry entry;
        char text[TC_GRAPH_TEXT];
    } list[TCI_GRAPH_BACKENDS];
    tc_backend_entry *e = NULL;
    pthread_mutex_lock(&tci_graph_backends.lock);
    if (i < tci_graph_backends.n) {
        const tc_graph_backend *b = tci_graph_backends.rows[i];
        e = &list[i].entry;
        if (!e->name) {
            bool found = b->find(b->user, "", list[i].text);
            *e = (tc_backend_entry){.name = b->name,
                                    .usable = found,
                                    .found = found ? list[i].text : "",
                                    .why = found ? "" : list[i].text};
        }
    }
    pthread_mutex_unlock(&tci_graph_backends.lock);
    return e;
}

TCI_FN bool tci_graph_backend_is_complete(const tc_graph_backend *b)
{
    bool named = b && b->name && b->name[0] && strlen(b->name) < 16 && !strchr(b->name, ':');
    return named && b->format && b->find && b->version && b->compile && b->run && b->free;
}

TCI_FN tc_status tci_graph_backend_add(const tc_graph_backend *b)
{
    pthread_mutex_lock(&tci_graph_backends.lock);
    bool full = tci_graph_backends.n == TCI_GRAPH_BACKENDS;
    if (!full) {
        tci_graph_backends.rows[tci_graph_backends.n++] = b;
    }
    pthread_mutex_unlock(&tci_graph_backends.lock);
    return full ? TC_ERR_LIMIT : TC_OK;
}

TCI_FN int tci_graph_backend_threads(const tc_options *o)
{
    return o->threads > 0 ? o->threads : tci_os_cpu_count();
}

TCI_FN void tci_graph_backend_free(tci_graph_program *p)
{
    for (; p; p = p->next) {
        p->entry->calls->free(p->entry->calls->user, p->compiled);
    }
}
