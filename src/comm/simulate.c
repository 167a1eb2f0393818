/* comm/simulate.c - tc_simulate, and the links of a communicator, measured.
 *
 * In: a program; a communicator. Out: times by the model (run/comm_model.c); the constants of its
 * links.
 *
 * A link is measured by what a program with CHAIN all_reduces one after the other takes more than
 * one with one: launches, and what the host does in a run, cancel. */
#include <math.h>

#include "../run/comm_model.h"
#include "api.h"

enum { TCI_LINK_CHAIN = 9, TCI_LINK_RUNS = 8, TCI_LINK_SMALL = 2, TCI_LINK_LARGE = 4 << 20 };

/* The least time of a run of n all_reduces, ns. */
static tc_status tci_link_run(tc_comm *comm, const char *backend, int64_t elements, int n,
                              double *best)
{
    tc_ctx *ctx = NULL;
    tc_program *f = NULL;
    const tc_options o = {.backend = backend};
    tc_status status = tc_ctx_make(&ctx, &o);
    tc_tensor p = tc_param(ctx, NULL, TC_F32, elements), x = p;
    for (int i = 0; i < n; i++) {
        x = tc_comm_all_reduce(comm, x, TC_COMM_MAX);
    }
    tc_tensor effect = tc_assign(p, x);
    status = status ? status : tc_compile_fn((tc_tensors){NULL, 0}, TC_TENSORS(effect), NULL, &f);
    for (int i = 0; i < TCI_LINK_RUNS && !status; i++) {
        const int64_t begin = tci_os_now_ns();
        status = tc_run(f, (tc_bufs){NULL, 0}, (tc_bufs){NULL, 0});
        const double ns = (double)(tci_os_now_ns() - begin);
        *best = i == 0 || ns < *best ? ns : *best;
    }
    tc_program_free(f);
    tc_ctx_free(ctx);
    return status;
}

static tc_status tci_link_time(tc_comm *comm, const char *backend, int64_t elements, double *ns)
{
    double one = 0, chain = 0;
    tc_status status = tci_link_run(comm, backend, elements, 1, &one);
    status = status ? status : tci_link_run(comm, backend, elements, TCI_LINK_CHAIN, &chain);
    *ns = TCI_MAX((chain - one) / (TCI_LINK_CHAIN - 1), 1);
    return status;
}

TC_API tc_status tc_comm_measure(tc_comm *comm, const char *backend, tc_link *link)
{
    tc_comm *own = tci_comm_of(comm);
    double small = 0, large = 0;
    if (!own || !link) {
        return own ? TC_ERR_ARGUMENT : TC_ERR_HANDLE;
    }
    tc_status status = tci_link_time(comm, backend, TCI_LINK_SMALL, &small);
    status = status ? status : tci_link_time(comm, backend, TCI_LINK_LARGE, &large);
    if (status) {
        return status;
    }
    const double p = own->size, rounds = TCI_MAX(ceil(log2(p)), 1);
    const double bytes = (double)TCI_LINK_LARGE * 4, moved = p > 1 ? (p - 1) / p : 1;
    own->link.latency_us = small / 1e3 / (2 * rounds);
    own->link.gb_per_s = 2 * moved * bytes / TCI_MAX(large - small, 1);
    own->link_measured = true;
    *link = own->link;
    return TC_OK;
}

TC_API tc_status tc_simulate(const tc_program *f, const tc_cluster *machine, const tc_comm *scaled,
                             int ranks, tc_simulation *out)
{
    const tc_comm *of = scaled ? tci_comm_of(scaled) : NULL;
    tci_comm_model m;
    bool rates = !machine || (machine->inner.gb_per_s > 0 &&
                              (!machine->ranks_per_node || machine->outer.gb_per_s > 0));
    if (!f || !out || ranks < 1 || !rates) {
        return TC_ERR_ARGUMENT;
    }
    if (scaled && !of) {
        return TC_ERR_HANDLE;
    }
    if (!tci_comm_model_of(f, machine, of ? of->number : 0, ranks, &m)) {
        return TC_ERR_MEMORY;
    }
    *out = (tc_simulation){m.step_ns / 1e3, m.compute_ns / 1e3, m.comm_ns / 1e3, m.exposed_ns / 1e3,
                           m.n};
    return TC_OK;
}
