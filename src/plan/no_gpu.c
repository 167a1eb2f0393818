/* plan/no_gpu.c - provides CPU-only stubs of the GPU passes and schedules: no GPU schedule, no GPU
 * kernel, nodes unchanged.
 *
 * In: the calls that the core makes to the files of src/tc_gpu.h. Out: the CPU answers: no
 * schedule fits, no kernel matches, no node is rewritten. This file replaces those files unless
 * TC_CUDA or TC_BLOCKS is defined, so that a program for CPUs does not contain them. Results do
 * not depend on it: on a machine without thread blocks those files give the same answers. */
#include "../kernel/match_attention.h"
#include "../kernel/match_mma_sync.h"
#include "../loop/gpu_schedules.h"
#include "contraction_route.h"

#ifdef TC_IMPLEMENTED /* compiled alone, as tools do, it would collide with the files that it
                       * replaces */

TCI_FN bool tci_blocks_are_joined(void)
{
    return false;
}

/* ---- loop/ ---- */

static const tci_form *const tci_no_forms[] = {NULL};

TCI_FN const tci_form *const *tci_block_forms(void)
{
    return tci_no_forms;
}

TCI_FN const tci_form *const *tci_mma_forms(void)
{
    return tci_no_forms;
}

TCI_FN double tci_products_least_ns(const tci_query *a)
{
    (void)a;
    return -1;
}

/* ---- kernel/ ---- */

TCI_FN bool tci_attention_fits(const tci_kernel *k, tci_machine machine)
{
    (void)k, (void)machine;
    return false;
}

TCI_FN bool tci_attention_is_simt(const tci_kernel *k)
{
    (void)k;
    return false;
}

TCI_FN void tci_attention_set_orders(tci_kernel *k, tci_machine machine)
{
    (void)k, (void)machine;
}

TCI_FN bool tci_mma_sync_takes(const tci_kernel *k, const tci_machine *machine,
                               tci_mma_sync_unit *unit)
{
    (void)k, (void)machine, (void)unit;
    return false;
}

TCI_FN bool tci_tma_find(const tci_kernel *k, tci_matrix *x)
{
    (void)k, (void)x;
    return false;
}

/* ---- plan/: nodes stay as they are ---- */

TCI_FN void tci_plan_layout(const tci_algo *a, tci_node **roots, int n_roots)
{
    (void)a, (void)roots, (void)n_roots;
}

TCI_FN tci_node *tci_plan_order(const tci_algo *a, tci_node *n)
{
    (void)a, (void)n;
    return NULL;
}

TCI_FN tci_node *tci_plan_factored_sum(const tci_algo *a, tci_node *n)
{
    (void)a, (void)n;
    return NULL;
}

TCI_FN int tci_block_routes(const tci_route **rows)
{
    (void)rows;
    return 0;
}

#endif
