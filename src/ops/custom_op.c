/* ops/custom_op.c - registry of user-defined ops, and their calls in a run.
 *
 * The list only grows, at its head, so readers need no lock. */
#include "custom_op.h"

#include <string.h>

static const tci_custom *tci_custom_head; /* atomic */

static const tci_custom *tci_custom_first(void)
{
    return __atomic_load_n(&tci_custom_head, __ATOMIC_ACQUIRE);
}

static const tci_custom *tci_custom_find_from(const tci_custom *c, const char *name, int version)
{
    while (c && (c->op.version != version || strcmp(c->op.name, name) != 0)) {
        c = c->next;
    }
    return c;
}

TCI_FN const tci_custom *tci_custom_find(const char *name, int version)
{
    return tci_custom_find_from(tci_custom_first(), name, version);
}

TCI_FN const tci_custom *tci_custom_list(tci_custom *fresh)
{
    const tci_custom *head = tci_custom_first();
    for (;;) {
        const tci_custom *there = tci_custom_find_from(head, fresh->op.name, fresh->op.version);
        if (there) {
            return there;
        }
        fresh->next = head;
        fresh->number = head ? head->number + 1 : 1;
        if (__atomic_compare_exchange_n(&tci_custom_head, &head, fresh, false, __ATOMIC_RELEASE,
                                        __ATOMIC_ACQUIRE)) {
            return fresh;
        }
    }
}

TCI_FN const tci_custom *tci_custom_get(int64_t number)
{
    const tci_custom *c = tci_custom_first();
    while (c && c->number != number) {
        c = c->next;
    }
    return c;
}

TCI_FN int tci_custom_threads(const tci_custom *c)
{
    return c->op.cuda_threads ? c->op.cuda_threads : 256;
}

TCI_FN int64_t tci_custom_elements(const tci_custom *c)
{
    return c->op.cuda_elements ? c->op.cuda_elements : tci_custom_threads(c);
}

TCI_FN int64_t tci_custom_bytes(const tc_custom_array *a)
{
    return a->n * tc_dtype_size(a->dtype);
}

TCI_FN void tci_custom_run(const tci_custom_call *call, void *const *operands, int n_results)
{
    tc_custom_array arrays[TC_CUSTOM_MOST + 1];
    int n = call->n_inputs;
    for (int i = 0; i <= n; i++) {
        arrays[i] = call->arrays[i];
        arrays[i].data = operands[i];
    }
    call->op->op.run(call->op->op.user, arrays, n, &arrays[n]);
    for (int i = 1; i < n_results; i++) { /* outputs that are the same value */
        memcpy(operands[n + i], operands[n], (size_t)tci_custom_bytes(&call->arrays[n]));
    }
}
