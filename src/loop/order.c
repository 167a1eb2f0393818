/* loop/order.c - the part of a reduction's order that the kind of machine decides.
 *
 * In: a kernel, the machine. Out: fields of the kernel, set before any schedule is looked for: how
 * many virtual lanes its rows have, and whether a matrix unit makes its sums. */
#include "order.h"

#include "cost.h"
#include "loop.h"
#include "matrix.h"
#include "tiles.h"

enum { TCI_ORDER_VECTORS = 8 /* of a row that a block should hold at once, at most */ };

TCI_FN int tci_loop_threads(int64_t n, int held, int most)
{
    int threads = TCI_MIN(TCI_WARP, most);
    while (threads < most && (int64_t)threads * held < n) {
        threads *= 2;
    }
    return threads;
}

TCI_FN int tci_loop_vlanes(const tci_kernel *k, tci_machine machine)
{
    int64_t longest = 1;
    int held = TCI_MAX(machine.vector_bytes / tci_cost_widest(k), 1);
    if (machine.block_threads == 0) {
        return TCI_VLANES;
    }
    for (int t = 0; t < k->n_stages; t++) {
        const tci_kstage *st = &k->stages[t];
        int64_t row = st->n_axes ? tci_dim_hint(k->axes[st->axes[st->n_axes - 1]].size) : 1;
        longest = TCI_MAX(longest, row);
    }
    int threads = tci_loop_threads(tci_dim_ceil_div(longest, TCI_ORDER_VECTORS), held,
                                    machine.block_threads);
    return TCI_MIN(TCI_MAX(threads * held, TCI_VLANES), TCI_VLANES_MAX);
}

TCI_FN void tci_loop_choose_order(tci_kernel *k, tci_machine machine)
{
    tci_matrix x = {0};
    bool fits = machine.matrix_units > 0 && tci_matrix_find(k, &x) && tci_matrix_pays(&x);
    if (fits && machine.block_threads == 0) {
        fits = tci_tiles_fit(k, &x, machine);
    } else if (fits) {
        fits = tci_matrix_choose_tile(k, &x, machine.matrix_units);
    }
    if (fits) {
        k->reds[0].order = TCI_ORDER_MATRIX;
    }
}
