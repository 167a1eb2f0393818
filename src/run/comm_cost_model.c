/* run/comm_cost_model.c - alpha-beta cost model of collectives over two levels of links (Hockney,
 * 1994; algorithms as in Thakur et al., 2005), and their overlap with a program's kernels.
 *
 * In: the list of steps of a program, times of its kernels by the model, links. Out: time of a run,
 * and how much of it kernels wait for collectives.
 *
 * Design: two clocks. Kernels advance the first; a start begins its operation when both the kernels
 * before it and the operation before it are done, and advances the second; a wait advances the
 * first up to the end of its operation, and the difference is exposed communication time. The
 * slowdown of kernels while an operation is in flight is exposed too: a fraction that is a
 * parameter of the link. */
#include "comm_cost_model.h"

#include <math.h>

#include "../base/alloc.h"
#include "../debug/summary.h"
#include "collective_info.h"

/* An operation on `bytes` over p ranks of one level, each with a link. */
static double tci_comm_level_ns(tc_comm_verb verb, double bytes, double p, const tc_link *link)
{
    const double alpha = link->latency_us * 1e3, beta = 1 / link->gb_per_s; /* ns, ns a byte */
    const double share = p > 1 ? (p - 1) / p : 0, rounds = ceil(log2(p));
    switch (verb) {
    case TC_COMM_ALL_REDUCE: return 2 * (rounds * alpha + share * bytes * beta);
    case TC_COMM_REDUCE_SCATTER:
    case TC_COMM_ALL_TO_ALL: return rounds * alpha + share * bytes * beta;
    case TC_COMM_ALL_GATHER: return rounds * alpha + (p - 1) * bytes * beta;
    case TC_COMM_BROADCAST: return rounds * alpha + (p > 1 ? bytes * beta : 0);
    case TC_COMM_SEND:
    case TC_COMM_RECV: return p > 1 ? alpha + bytes * beta : 0;
    case TC_COMM_BARRIER:
    case TC_COMM_VERB_COUNT: break;
    }
    return rounds * alpha;
}

/* Ranks of a node together first, then one share of each node with its like. */
static double tci_comm_cost_ns(tc_comm_verb verb, double bytes, int ranks, const tc_cluster *m)
{
    const int node = m->ranks_per_node > 0 ? TCI_MIN(m->ranks_per_node, ranks) : ranks;
    const double nodes = ceil((double)ranks / node);
    if (nodes <= 1) {
        return tci_comm_level_ns(verb, bytes, ranks, &m->inner);
    }
    switch (verb) {
    case TC_COMM_ALL_REDUCE:
    case TC_COMM_REDUCE_SCATTER:
        return tci_comm_level_ns(verb, bytes, node, &m->inner) +
               tci_comm_level_ns(verb, bytes / node, nodes, &m->outer);
    case TC_COMM_ALL_GATHER:
        return tci_comm_level_ns(verb, bytes, nodes, &m->outer) +
               tci_comm_level_ns(verb, bytes * nodes, node, &m->inner);
    case TC_COMM_ALL_TO_ALL: /* most of it leaves the node */
        return tci_comm_level_ns(verb, bytes / nodes, node, &m->inner) +
               tci_comm_level_ns(verb, bytes, nodes, &m->outer);
    case TC_COMM_BROADCAST:
    case TC_COMM_BARRIER:
        return tci_comm_level_ns(verb, bytes, nodes, &m->outer) +
               tci_comm_level_ns(verb, bytes, node, &m->inner);
    case TC_COMM_SEND:
    case TC_COMM_RECV:
    case TC_COMM_VERB_COUNT: break;
    }
    return tci_comm_level_ns(verb, bytes, 2, &m->outer);
}

/* Bytes from each rank: an all_gather's parts get smaller with more ranks, as their sum stays. */
static double tci_comm_model_bytes(const tci_custom_call *call, int now, int then)
{
    double bytes = (double)tci_dim_hint((tci_dim)call->arrays[0].n) *
                   (double)tc_dtype_size(call->arrays[0].dtype);
    return call->comm.verb == TC_COMM_ALL_GATHER ? bytes * now / then : bytes;
}

typedef struct tci_comm_walk {
    const tc_program *f;
    const tc_cluster *machine; /* or NULL */
    int64_t of;
    int ranks;
    double *ends; /* of each operation */
    double link;  /* when all operations so far are done */
    double busy;  /* what kernels lose until then */
    double bytes; /* of a group, which begins with its last step, */
    int n_held;   /* and its steps so far */
    tci_comm_model *m;
} tci_comm_walk;

/* A kernel of this many ns, a part of which is next to an operation. */
static void tci_comm_walk_kernel(tci_comm_walk *w, double ns)
{
    tci_comm_model *m = w->m;
    const double both = TCI_MAX(w->link - m->step_ns, 0), speed = 1 - TCI_MIN(w->busy, 0.99);
    const double lost = TCI_MIN(ns / speed, both) * (1 - speed);
    m->compute_ns += ns;
    m->slowed_ns += lost;
    m->exposed_ns += lost;
    m->step_ns += ns + lost;
}

/* Operations that begin together are one of all their bytes. */
static void tci_comm_walk_start(tci_comm_walk *w, int t)
{
    const tci_custom_call *call = w->f->code->kernels[w->f->code->steps[t].kernel].call;
    const tc_comm *comm = w->f->collectives->items[call->comm.number].comm;
    const tc_cluster own = {.inner = comm->link};
    const tc_cluster *machine = w->machine ? w->machine : &own;
    const int p = w->ranks > 0 && (!w->of || w->of == comm->number) ? w->ranks : comm->size;
    tci_comm_model *m = w->m;
    w->bytes += tci_comm_model_bytes(call, comm->size, p);
    w->n_held++;
    m->n++;
    if (tci_collective_is_held(w->f, &w->f->steps[t], comm)) {
        return;
    }
    double ns = tci_comm_cost_ns((tc_comm_verb)call->comm.verb, w->bytes, p, machine);
    w->link = TCI_MAX(w->link, m->step_ns) + ns;
    w->busy = machine->inner.busy;
    m->comm_ns += ns;
    m->bytes += w->bytes;
    m->n_groups++;
    for (int i = t - w->n_held + 1; i <= t; i++) {
        w->ends[w->f->steps[i].call->comm.number] = w->link;
    }
    w->bytes = 0;
    w->n_held = 0;
}

static void tci_comm_model_walk(tci_comm_walk *w)
{
    const tci_code *code = w->f->code;
    const double slow = w->machine && w->machine->compute > 0 ? w->machine->compute : 1;
    tci_comm_model *m = w->m;
    for (int t = code->n_init; t < code->n_steps; t++) {
        const tci_code_kernel *k = &code->kernels[code->steps[t].kernel];
        if (!k->call || !k->call->comm.phase) {
            tci_comm_walk_kernel(w,
                                 (double)tci_code_rounds(code, t) * tci_summary_model_ns(k) * slow);
        } else if (k->call->comm.phase == TCI_COMM_START) {
            tci_comm_walk_start(w, t);
        } else if (w->ends[k->call->comm.number] > m->step_ns) {
            m->exposed_ns += w->ends[k->call->comm.number] - m->step_ns;
            m->step_ns = w->ends[k->call->comm.number];
        }
    }
}

TCI_FN bool tci_comm_model_of(const tc_program *f, const tc_cluster *machine, int64_t of, int ranks,
                              tci_comm_model *m)
{
    const int n = f->collectives ? f->collectives->n : 0;
    double *ends = tci_heap_get(sizeof(*ends) * (size_t)(n + 1));
    *m = (tci_comm_model){.n = 0};
    if (ends) {
        tci_comm_walk w = {f, machine, of, ranks, ends, .m = m};
        tci_comm_model_walk(&w);
    }
    tci_heap_free(ends);
    return ends != NULL;
}

TCI_FN void tci_comm_model_text(tci_str *out, const tc_program *f)
{
    const tci_collectives *l = f->collectives;
    tci_comm_model m;
    if (!l || !tci_comm_model_of(f, NULL, 0, 0, &m)) {
        return;
    }
    const tc_comm *first = l->comms[0];
    const bool large = m.bytes >= 1048576;
    tci_str_printf(
        out,
        "communication: %d collectives in %d operations, %.1f %s from each rank; by the "
        "model %.1f us, of which %.1f us exposed: %.1f us kernels wait, %.1f us they are "
        "slower (links %s: %.1f us, %.1f GB/s, kernels lose %.2f)",
        m.n, m.n_groups, m.bytes / (large ? 1048576 : 1024), large ? "MiB" : "KiB", m.comm_ns / 1e3,
        m.exposed_ns / 1e3, (m.exposed_ns - m.slowed_ns) / 1e3, m.slowed_ns / 1e3,
        first->link_measured ? "measured" : "assumed", first->link.latency_us, first->link.gb_per_s,
        first->link.busy);
    const int64_t runs = f->code->device ? l->n_profiled : l->n_runs;
    if (runs) {
        tci_str_printf(out, "; measured: kernels wait %.1f us a run, of %lld %sruns",
                       (double)l->exposed_ns / 1e3 / (double)runs, (long long)runs,
                       f->code->device ? "profiled " : "");
    }
    tci_str_add(out, "\n");
}
