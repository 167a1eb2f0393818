/* comm/predict_scaling.c - tc_simulate: predicts the time of a program on many ranks, from measured
 * latency and bandwidth of a communicator's links.
 *
 * In: a program; a communicator. Out: times by the model (run/comm_cost_model.c); the constants of
 * its links.
 *
 * The time of an all_reduce is the difference between programs with CHAIN dependent all_reduces and
 * with a single one, over CHAIN - 1, so that launch overhead and host time cancel. The slowdown of
 * kernels is the extra time of a chain of matrix products with one long all_reduce next to it. */
#include <math.h>

#include "../base/alloc.h"
#include "../run/comm_cost_model.h"
#include "api.h"

enum {
    TCI_LINK_CHAIN = 9,
    TCI_LINK_RUNS = 8,
    TCI_LINK_SMALL = 2,
    TCI_LINK_LARGE = 4 << 20,
    TCI_LINK_LONG = 8,      /* times as many elements, next to kernels */
    TCI_LINK_SIDE = 2048,   /* columns of a product, twice as many rows: two tiles a processor */
    TCI_LINK_PRODUCTS = 512 /* of a chain, at most */
};

/* The program of a run: two chains next to each other. */
typedef struct tci_link_work {
    int64_t elements;
    int reduces, products;
} tci_link_work;

/* The least time of a run, ns. */
static tc_status tci_link_run(tc_comm *comm, const char *backend, tci_link_work w, double *best)
{
    tc_ctx *ctx = NULL;
    tc_program *f = NULL;
    const tc_options o = {.backend = backend};
    tc_status status = tc_ctx_make(&ctx, &o);
    tc_tensor p = tc_param(ctx, NULL, TC_F32, w.reduces ? w.elements : 1), x = p;
    const int64_t side = w.products ? TCI_LINK_SIDE : 1;
    tc_tensor q = tc_param(ctx, NULL, TC_BF16, side, side);
    tc_tensor z = tc_param(ctx, NULL, TC_BF16, 2 * side, side), y = z;
    for (int i = 0; i < w.reduces; i++) {
        x = tc_comm_all_reduce(comm, x, TC_COMM_MAX);
    }
    for (int i = 0; i < w.products; i++) {
        y = tc_matmul(y, q);
    }
    tc_tensor effects[2] = {tc_assign(p, x), tc_assign(z, y)};
    int first = w.reduces ? 0 : 1, n = (w.reduces > 0) + (w.products > 0);
    status = status
                 ? status
                 : tc_compile_fn((tc_tensors){NULL, 0}, (tc_tensors){effects + first, n}, NULL, &f);
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
    tci_link_work w = {.elements = elements, .reduces = 1};
    tc_status status = tci_link_run(comm, backend, w, &one);
    w.reduces = TCI_LINK_CHAIN;
    status = status ? status : tci_link_run(comm, backend, w, &chain);
    *ns = TCI_MAX((chain - one) / (TCI_LINK_CHAIN - 1), 1);
    return status;
}

/* Rank 0's number. */
static tc_status tci_link_agree(const tc_comm *own, double wanted, int *number)
{
    char why[TC_COMM_WHY] = "";
    double *all = tci_heap_get(sizeof(*all) * (size_t)own->size);
    tc_status status = all ? own->engine->exchange(own->state, &wanted, all, sizeof(wanted),
                                                   own->options.timeout_ms, "tc_comm_measure", why)
                           : TC_ERR_MEMORY;
    *number = status ? 0 : (int)all[0];
    tci_heap_free(all);
    return status;
}

/* The share of their speed that kernels of a device lose next to an all_reduce LONG times as long
 * as one of `ns`: products that take about half as long again, alone and next to it. Ranks may
 * differ in how many products they need, so all take rank 0's number. On the host the steps of a
 * collective take the time, and kernels lose nothing. */
static tc_status tci_link_busy(tc_comm *comm, const char *backend, double ns, double *busy)
{
    tc_comm *own = tci_comm_of(comm);
    tci_link_work w = {.elements = TCI_LINK_LONG * TCI_LINK_LARGE, .products = 1};
    double one = 0, chain = 0, alone = 0, both = 0;
    if (!own->engine->device) {
        *busy = 0;
        return TC_OK;
    }
    tc_status status = tci_link_run(comm, backend, w, &one);
    w.products = TCI_LINK_CHAIN;
    status = status ? status : tci_link_run(comm, backend, w, &chain);
    const double each = TCI_MAX((chain - one) / (TCI_LINK_CHAIN - 1), 1);
    const double most = TCI_LINK_PRODUCTS;
    const double wanted = TCI_MIN(TCI_MAX(1.5 * TCI_LINK_LONG * ns / each, TCI_LINK_CHAIN), most);
    status = status ? status : tci_link_agree(own, wanted, &w.products);
    status = status ? status : tci_link_run(comm, backend, w, &alone);
    w.reduces = 1;
    status = status ? status : tci_link_run(comm, backend, w, &both);
    *busy = TCI_MIN(TCI_MAX((both - alone) / (TCI_LINK_LONG * ns), 0), 1);
    return status;
}

TC_API tc_status tc_comm_measure(tc_comm *comm, const char *backend, tc_link *link)
{
    tc_comm *own = tci_comm_of(comm);
    double small = 0, large = 0, busy = 0;
    if (!own || !link) {
        return own ? TC_ERR_ARGUMENT : TC_ERR_HANDLE;
    }
    tc_status status = tci_link_time(comm, backend, TCI_LINK_SMALL, &small);
    status = status ? status : tci_link_time(comm, backend, TCI_LINK_LARGE, &large);
    status = status ? status : tci_link_busy(comm, backend, large, &busy);
    if (status) {
        return status;
    }
    const double p = own->size, rounds = TCI_MAX(ceil(log2(p)), 1);
    const double bytes = (double)TCI_LINK_LARGE * 4, moved = p > 1 ? (p - 1) / p : 1;
    own->link.latency_us = small / 1e3 / (2 * rounds);
    own->link.gb_per_s = 2 * moved * bytes / TCI_MAX(large - small, 1);
    own->link.busy = busy;
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
    *out = (tc_simulation){m.step_ns / 1e3,    m.compute_ns / 1e3, m.comm_ns / 1e3,
                           m.exposed_ns / 1e3, m.slowed_ns / 1e3,  m.n};
    return TC_OK;
}
