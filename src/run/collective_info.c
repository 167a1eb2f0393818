/* run/collective_info.c - collects metadata of the collectives of a program: communicators, source
 * lines, and the hash of the graph that ranks compare.
 *
 * In: a request. Out: a list that the program owns, and those made of it share. */
#include "collective_info.h"

#include <string.h>

#include "../base/alloc.h"

TCI_FN void tci_collectives_free(tci_collectives *l)
{
    if (!l) {
        return;
    }
    for (int i = 0; i < l->n_comms; i++) {
        tci_comm_release(l->comms[i]);
    }
    for (int i = 0; i < l->n_files; i++) {
        tci_heap_free(l->files[i]);
    }
    tci_heap_free(l->files);
    tci_heap_free(l->marks);
    tci_heap_free(l->comms);
    tci_heap_free(l->items);
    tci_heap_free(l);
}

/* The number of a file's name among those of l, 0 for NULL; -1: out of memory. */
static int tci_collectives_file(tci_collectives *l, const char *file)
{
    const char *name = file ? file : "?";
    for (int i = l->n_files - 1; i >= 0; i--) {
        if (!strcmp(l->files[i], name)) {
            return i;
        }
    }
    if (l->n_files == l->cap_files) {
        int cap = l->cap_files ? 2 * l->cap_files : 8;
        char **more = cap <= UINT16_MAX ? tci_heap_get(sizeof(*more) * (size_t)cap) : NULL;
        if (!more) {
            return -1;
        }
        for (int i = 0; i < l->n_files; i++) {
            more[i] = l->files[i];
        }
        tci_heap_free(l->files);
        l->files = more;
        l->cap_files = cap;
    }
    size_t bytes = strlen(name) + 1;
    char *copy = tci_heap_get(bytes);
    if (!copy) {
        return -1;
    }
    memcpy(copy, name, bytes);
    l->files[l->n_files] = copy;
    return l->n_files++;
}

static bool tci_collectives_mark(tci_collectives *l, const tci_request *r)
{
    l->marks = tci_heap_get(sizeof(*l->marks) * (size_t)TCI_MAX(r->n_nodes, 1));
    for (int i = 0; l->marks && i < r->n_nodes; i++) {
        const tci_node *n = r->nodes[i];
        int file = tci_collectives_file(l, n->site.file);
        if (file < 0) {
            return false;
        }
        l->marks[i] = (tci_collective_mark){r->marks[i].lo, (int32_t)n->site.line, (uint16_t)file,
                                            n->op};
        l->graph.lo = tci_hash_mix(l->graph.lo, r->marks[i].lo);
        l->graph.hi = tci_hash_mix(l->graph.hi, r->marks[i].hi);
    }
    l->n_marks = r->n_nodes;
    return l->marks != NULL;
}

/* The communicator of that number, held once. NULL: it was freed, or there is no memory. */
static tc_comm *tci_collectives_hold(tci_collectives *l, int64_t number)
{
    for (int i = 0; i < l->n_comms; i++) {
        if (l->comms[i]->number == number) {
            return l->comms[i];
        }
    }
    tc_comm *c = tci_comm_retain(number);
    if (c) {
        l->comms[l->n_comms++] = c;
    }
    return c;
}

static tc_status tci_collectives_fill(tci_collectives *l, const tci_request *r)
{
    size_t n = (size_t)r->n_collectives;
    l->items = tci_heap_get(sizeof(*l->items) * n);
    l->comms = tci_heap_get(sizeof(tc_comm *) * n);
    if (!l->items || !l->comms || !tci_collectives_mark(l, r)) {
        return TC_ERR_MEMORY;
    }
    l->n = r->n_collectives;
    for (int i = 0; i < l->n; i++) {
        const tci_node *node = r->collectives[i];
        const tci_comm_step step = tci_build_comm_step(node);
        int file = tci_collectives_file(l, node->site.file);
        l->items[i].comm = tci_collectives_hold(l, step.comm);
        if (!l->items[i].comm || file < 0) {
            return file < 0 ? TC_ERR_MEMORY : TC_ERR_COMM;
        }
        l->items[i].line = (int)node->site.line;
        l->has_pairs = l->has_pairs || tci_comm_verb_is_pair(step.verb);
    }
    for (int i = 0; i < l->n; i++) { /* the list of names does not move any more */
        l->items[i].file = l->files[tci_collectives_file(l, r->collectives[i]->site.file)];
    }
    return TC_OK;
}

TCI_FN tc_status tci_collectives_make(const tci_request *r, const tc_options *o,
                                      tci_collectives **out)
{
    *out = NULL;
    if (TCI_LIKELY(!r->n_collectives)) {
        return TC_OK;
    }
    tci_collectives *l = tci_heap_get(sizeof(*l));
    if (!l) {
        return TC_ERR_MEMORY;
    }
    l->graph.lo = (uint64_t)o->math * 2 + o->reproducible;
    tc_status status = tci_collectives_fill(l, r);
    if (status) {
        tci_collectives_free(l);
        return status;
    }
    *out = l;
    return TC_OK;
}
