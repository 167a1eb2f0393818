/* run/comm_model.c - alpha-beta model of collectives with two levels of links (Hockney, 1994;
 * algorithms as in Thakur et al., 2005), and the overlap of a program's kernels with them.
 *
 * In: the list of steps of a program, times of its kernels by the model, links. Out: time of a run,
 * and how much of it kernels wait for collectives.
 *
 * The one idea: two clocks. Kernels move the first; a start begins its operation when both the
 * kernels before it and the operation before it are done, and moves the second; a wait moves the
 * first up to the end of its operation, and that is exposed time. */
#include "comm_model.h"

#include <math.h>

#include "../base/alloc.h"
#include "../debug/summary.h"
#include "collective.h"

/* An operation on `bytes` over p ranks of one level, of which each has a link. */
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

/* Of a rank: an all_gather's parts get smaller with more ranks, as their sum stays. */
static double tci_comm_model_bytes(const tci_custom_call *call, int now, int then)
{
    double bytes = (double)tci_dim_hint((tci_dim)call->arrays[0].n) *
                   (double)tc_dtype_size(call->arrays[0].dtype);
    return call->comm.verb == TC_COMM_ALL_GATHER ? bytes * now / then : bytes;
}

/* One walk; ends has the end of each operation. */
static void tci_comm_model_walk(const tc_program *f, const tc_cluster *machine, int64_t of,
                                int ranks, double *ends, tci_comm_model *m)
{
    const tci_code *code = f->code;
    const double slow = machine && machine->compute > 0 ? machine->compute : 1;
    double link = 0;
    for (int t = code->n_init; t < code->n_steps; t++) {
        const tci_code_kernel *k = &code->kernels[code->steps[t].kernel];
        const tci_custom_call *call = k->call;
        if (!call || !call->comm.phase) {
            double ns = (double)tci_code_rounds(code, t) * tci_summary_model_ns(k) * slow;
            m->step_ns += ns;
            m->compute_ns += ns;
            continue;
        }
        const tc_comm *comm = f->collectives->items[call->comm.number].comm;
        const tc_cluster own = {.inner = comm->link};
        const int p = ranks > 0 && (!of || of == comm->number) ? ranks : comm->size;
        double *end = &ends[call->comm.number], bytes = tci_comm_model_bytes(call, comm->size, p);
        double ns = tci_comm_cost_ns((tc_comm_verb)call->comm.verb, bytes, p,
                                     machine ? machine : &own);
        if (call->comm.phase == TCI_COMM_START) {
            *end = link = TCI_MAX(link, m->step_ns) + ns;
            m->comm_ns += ns;
            m->bytes += bytes;
            m->n++;
        } else if (*end > m->step_ns) {
            m->exposed_ns += *end - m->step_ns;
            m->step_ns = *end;
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
        tci_comm_model_walk(f, machine, of, ranks, ends, m);
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
    tci_str_printf(out,
                   "communication: %d collectives, %.1f KiB from each rank; by the model "
                   "%.1f us, of which %.1f us exposed (links %s: %.1f us, %.1f GB/s)",
                   m.n, m.bytes / 1024, m.comm_ns / 1e3, m.exposed_ns / 1e3,
                   first->link_measured ? "measured" : "assumed", first->link.latency_us,
                   first->link.gb_per_s);
    if (l->n_runs && !f->code->device) {
        tci_str_printf(out, "; measured %.1f us exposed a run, of %lld runs",
                       (double)l->exposed_ns / 1e3 / (double)l->n_runs, (long long)l->n_runs);
    }
    tci_str_add(out, "\n");
}
