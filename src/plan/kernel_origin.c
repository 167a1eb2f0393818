/* plan/kernel_origin.c - maps each kernel to the nodes of the user's graph that it computes.
 *
 * In: a group whose kernel is made. Out: canonical numbers (compile/cache_key.c) for the step, and
 * the end of each refusal line: the numbers of reader and source, and the bytes that fusing them
 * would save. Design: the copy of a request stamps each node with its canonical number
 * (tci_node.region), and tci_graph_rebuild passes the stamp on to whatever a pass makes of the
 * node, so a group only collects the stamps of its nodes. Numbers, not source lines: a program
 * found in a cache gets the lines of the request that found it (debug/source_location.c). */
#include "../ops/prim.h"
#include "fusion_groups.h"

#include <stdlib.h>
#include <string.h>

enum { TCI_ORIGINS_MOST = 64 }; /* of one kernel; the cheapest are left out */

TCI_FN double tci_plan_op_weight(int op)
{
    if (op == TCI_OP_CONTRACT || op == TCI_OP_CUSTOM || op == TCI_OP_TOPK) {
        return 1000;
    }
    if (tci_op_is_composite(op)) {
        return 500;
    }
    if (tci_op_is(op, TCI_IS_FOLD | TCI_IS_ARG) || op == TCI_OP_SCAN || op == TCI_OP_SCATTER) {
        return 300;
    }
    return tci_op_is(op, TCI_IS_QUIET) ? 0 : (double)tci_op_get(op)->cost;
}

typedef struct tci_origin_found {
    int32_t number;
    double weight;
} tci_origin_found;

static void tci_origin_take(tci_origin_found *list, int32_t *n, const tci_node *node)
{
    int32_t number = (int32_t)node->region - 1;
    double weight = tci_plan_op_weight(node->op);
    if (number < 0 || tci_op_is(node->op, TCI_IS_NUMBER)) {
        return;
    }
    for (int32_t i = 0; i < *n; i++) {
        if (list[i].number == number) {
            list[i].weight = TCI_MAX(list[i].weight, weight);
            return;
        }
    }
    if (*n < TCI_ORIGINS_MOST) {
        list[(*n)++] = (tci_origin_found){number, weight};
    }
}

static int tci_origin_compare(const void *a, const void *b)
{
    const tci_origin_found *x = a, *y = b;
    return x->weight != y->weight ? (x->weight < y->weight ? 1 : -1)
                                  : (x->number > y->number) - (x->number < y->number);
}

TCI_FN bool tci_plan_evaluates(const tci_fusion *f, const tci_node *n)
{
    const tci_pnode *p = tci_table_find(&f->known, n);
    return p && p->root < 0 && !p->forced && !tci_plan_is_leaf(n);
}

TCI_FN void tci_plan_find_origins(tci_scratch *s, const tci_fusion *f, const tci_group *g,
                                  tci_step *step)
{
    tci_origin_found list[TCI_ORIGINS_MOST];
    int32_t n = 0;
    for (int m = 0; m < g->n_roots; m++) {
        tci_origin_take(list, &n, f->roots[g->roots[m]].node);
    }
    for (int m = 0; m < g->n_roots; m++) {
        const tci_root *r = &f->roots[g->roots[m]];
        for (int i = 0; i < r->n_inlined; i++) {
            if (tci_plan_evaluates(f, r->inlined[i])) {
                tci_origin_take(list, &n, r->inlined[i]);
            }
        }
    }
    qsort(list, (size_t)n, sizeof(*list), tci_origin_compare);
    step->n_origins = n;
    step->origins = TCI_NEW_ARRAY(s, int32_t, n + 1);
    for (int32_t i = 0; i < n; i++) {
        step->origins[i] = list[i].number;
    }
}

TCI_FN void tci_why_end(tci_str *why, const tci_node *reader, const tci_node *source)
{
    /* the value is written and read once less */
    double bytes = source ? 2 * tci_node_value_bytes(source) : 0;
    tci_str_printf(why, "\t%u %u %.0f\n", reader ? (unsigned)reader->region : 0,
                   source ? (unsigned)source->region : 0, bytes);
}

TCI_FN void tci_why_plain(tci_str *out, const char *why)
{
    while (*why) {
        size_t n = strcspn(why, "\t\n");
        tci_str_add_n(out, why, n);
        tci_str_add(out, "\n");
        why += strcspn(why, "\n");
        why += *why == '\n';
    }
}
