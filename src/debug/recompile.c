/* debug/recompile.c - which part of a program's signature made it another program.
 *
 * In: the graph's text of each program that no cache had. Out: a line to the log.
 * The one idea: that text has a line for each node and the same for the same graph, so the nearest
 * earlier program is the one with the most equal lines, and the first that differs is the cause: a
 * size, a dtype, an op, a constant. Only the newest few are remembered, and only while somebody
 * listens. */
#include "recompile.h"

#include <string.h>

#include "../base/os.h"

#define TCI_RECOMPILE_KEPT 16
#define TCI_RECOMPILE_MOST ((size_t)1 << 16) /* bytes of a text that is worth keeping */

typedef struct tci_recompile_past {
    char name[9];
    char *graph; /* heap */
} tci_recompile_past;

static struct tci_recompile_process {
    tci_mutex lock;
    tci_recompile_past past[TCI_RECOMPILE_KEPT];
    unsigned n; /* so far; the n-th lies at n % KEPT */
} tci_recompile_process = {.lock = TCI_MUTEX_INIT};

/* How many lines of two texts are equal, and where the first others begin. */
typedef struct tci_recompile_match {
    int equal, lines;
    bool as_long;            /* as many lines: likely the same ops */
    const char *here, *there; /* NULL: none */
} tci_recompile_match;

static int tci_recompile_line(const char *text)
{
    return (int)strcspn(text, "\n");
}

static tci_recompile_match tci_recompile_compare(const char *here, const char *there)
{
    tci_recompile_match m = {0, 0, true, NULL, NULL};
    while (*here || *there) {
        int n = tci_recompile_line(here), n_there = tci_recompile_line(there);
        bool same = *here && n == n_there && !memcmp(here, there, (size_t)n);
        if (!same && !m.here) {
            m.here = here;
            m.there = there;
        }
        m.as_long = m.as_long && *here && *there;
        m.equal += same;
        m.lines++;
        here += n + (here[n] == '\n');
        there += n_there + (there[n_there] == '\n');
    }
    return m;
}

static void tci_recompile_log(const tc_options *o, const char *name, const char *past,
                              const tci_recompile_match *m)
{
    if (!past) {
        tci_log(o, "recompiles", "%s: no earlier program resembles it", name);
    } else if (!m->here) {
        tci_log(o, "recompiles",
                "%s: the graph of %s again: options, strides, constants or the machine differ, or "
                "it was dropped",
                name, past);
    } else {
        tci_log(o, "recompiles",
                "%s: %d of %d lines are those of %s; the first other: %.*s; was: %.*s", name,
                m->equal, m->lines, past, tci_recompile_line(m->here), m->here,
                tci_recompile_line(m->there), m->there);
    }
}

/* Under the lock. */
static void tci_recompile_keep(const char *name, const tci_str *graph)
{
    tci_recompile_past *p = &tci_recompile_process.past[tci_recompile_process.n++ %
                                                        TCI_RECOMPILE_KEPT];
    tci_heap_free(p->graph);
    p->graph = tci_heap_get(graph->n + 1);
    if (p->graph) {
        memcpy(p->graph, graph->text, graph->n);
        snprintf(p->name, sizeof(p->name), "%.8s", name);
    }
}

TCI_FN void tci_recompile_say(const tc_options *o, const char *name, const tci_str *graph)
{
    char near[9] = "";
    tci_recompile_match best = {-1, 0, false, NULL, NULL};
    if (graph->failed || !graph->n || graph->n > TCI_RECOMPILE_MOST) {
        return;
    }
    tci_os_keep_over_fork(&tci_recompile_process.lock, NULL);
    pthread_mutex_lock(&tci_recompile_process.lock);
    for (unsigned i = 0; i < TCI_RECOMPILE_KEPT; i++) {
        unsigned newest_first = tci_recompile_process.n - 1 - i;
        const tci_recompile_past *p =
            &tci_recompile_process.past[newest_first % TCI_RECOMPILE_KEPT];
        if (!p->graph) {
            continue;
        }
        tci_recompile_match m = tci_recompile_compare(graph->text, p->graph);
        bool nearer = m.equal > best.equal && (m.as_long || m.equal);
        if (nearer) {
            best = m;
            memcpy(near, p->name, sizeof(near));
        }
    }
    tci_recompile_log(o, name, near[0] ? near : NULL, &best);
    tci_recompile_keep(name, graph);
    pthread_mutex_unlock(&tci_recompile_process.lock);
}

TCI_FN void tci_recompile_forget(void)
{
    pthread_mutex_lock(&tci_recompile_process.lock);
    for (unsigned i = 0; i < TCI_RECOMPILE_KEPT; i++) {
        tci_heap_free(tci_recompile_process.past[i].graph);
        tci_recompile_process.past[i].graph = NULL;
    }
    pthread_mutex_unlock(&tci_recompile_process.lock);
}

#undef TCI_RECOMPILE_KEPT
#undef TCI_RECOMPILE_MOST
