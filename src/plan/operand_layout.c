/* plan/operand_layout.c - copies GEMM operands into the layout that CPU and SIMT loops read, with
 * the vector axis contiguous.
 *
 * In: a CONTRACT. Out: the same CONTRACT; operands that are read often and that the kernel does
 * not pack are stored with the vector axis contiguous, in forward order; int8 operands stay
 * int8. */
#include "contraction_route.h"

enum {
    TCI_ROUTE_REUSE = 4,   /* times an operand is read before it is worth a copy */
    TCI_ROUTE_BACK = 256,  /* results that an element read backwards is for, to be copied */
    TCI_ROUTE_PACK_OPS = 4 /* operations of an operand that packing evaluates */
};

/* ADD, SUB, MUL and the like over leaves, seen through views: how many, or too many. pads: padding
 * is one of them. */
static int tci_route_cheap_ops(tci_node *n, bool pads)
{
    n = tci_below(n, TCI_THROUGH_ALL, NULL);
    bool given = tci_op_is(n->op, TCI_IS_MEMORY | TCI_IS_NUMBER);
    bool cheap = n->op == TCI_OP_ADD || n->op == TCI_OP_SUB || n->op == TCI_OP_MUL ||
                 n->op == TCI_OP_NEG || n->op == TCI_OP_RELU || (pads && n->op == TCI_OP_PAD);
    int ops = given ? 0 : cheap ? 1 : TCI_ROUTE_PACK_OPS + 1;
    for (int i = 0; cheap && i < n->n_in && ops <= TCI_ROUTE_PACK_OPS; i++) {
        ops += tci_route_cheap_ops(n->in[i], pads);
    }
    return ops;
}

/* Times that an element of operand `which` is read. blocks: the threads of a block, which read
 * neighbours together, count once. */
static double tci_route_reads(const tci_node *n, int which, bool blocks)
{
    double times = 1;
    for (int i = 0; i < n->rank; i++) {
        bool own = blocks ? i == n->rank - 1 : tci_contract_place(n, 2, i, which) >= 0;
        times *= own ? 1 : (double)tci_dim_hint(n->shape[i]);
    }
    return times;
}

/* Operand `which` of f, n's form, with its vector axis (the last axis of the result) contiguous, as
 * a stored permutation. Unchanged where it is so, or is read too few times. */
static void tci_route_operand_order(const tci_algo *a, const tci_node *n, int which,
                                    tci_contract_form *f)
{
    tci_node *x = n->in[which];
    int at = n->rank > 0 ? tci_contract_place(n, 2, n->rank - 1, which) : -1;
    if (at < 0 || at == tci_fastest_axis(x) || x->op == TCI_OP_WINDOW || x->op == TCI_OP_EXPAND ||
        n->shape[n->rank - 1] == 1 ||
        tci_route_reads(n, which, a->machine.block_threads > 0) < TCI_ROUTE_REUSE) {
        return;
    }
    int64_t *order = TCI_NEW_ARRAY(a->s, int64_t, x->rank);
    tci_relayout_last(x, at, order);
    tci_contract_turn(a->s, f, which, order);
    f->in[which] = tci_relayout(
        a, x, (tci_relayout_to){.order = order, .is_turned = true, .is_own = true});
}

/* True if operand n is read backwards, as the filters are for the gradient to an image. */
static bool tci_route_goes_back(const tci_algo *a, tci_node *n)
{
    bool back = false;
    for (const tci_node *to = tci_below(n, TCI_THROUGH_ALL, a->forced); n != to; n = n->in[0]) {
        for (int i = 0; n->op == TCI_OP_SLICE && i < n->rank; i++) {
            back = back || tci_dim_lt(n->attr[2 * i + 1], 0);
        }
    }
    return back;
}

/* Operand `which`, whose rows loops pack again for each block of columns: one that is read
 * backwards as a copy, in which what is summed is contiguous, and forwards. */
static tci_node *tci_route_rows_forward(const tci_algo *a, const tci_node *n, int which)
{
    tci_node *x = n->in[which];
    tci_node *from = tci_dtype_is_half((tc_dtype)x->dtype) ? x : tci_plan_narrow(a, x);
    if (!from || tci_contract_place(n, 2, n->rank - 1, which) >= 0 ||
        tci_route_reads(n, which, false) < TCI_ROUTE_BACK ||
        !tci_build_is_known(x->rank, x->shape) || !tci_route_goes_back(a, x)) {
        return x;
    }
    int64_t *order = TCI_NEW_ARRAY(a->s, int64_t, x->rank);
    int at = 0;
    for (int summed = 0; summed < 2; summed++) {
        for (int i = 0; i < x->rank; i++) {
            if (tci_contract_sums_axis(n, which, i) == (summed > 0)) {
                order[at++] = i;
            }
        }
    }
    const tci_relayout_to to = {.order = order, .is_own = true};
    return tci_build_cast(a->g, tci_relayout(a, from, to), (tc_dtype)x->dtype);
}

TCI_FN tci_node *tci_route_plain(const tci_algo *a, tci_node *n)
{
    const tci_machine *m = &a->machine;
    tci_node *in[2];
    if (m->block_threads == 0) {
        in[0] = tci_relayout_pad_narrow(a, n->in[0]);
        in[1] = tci_relayout_pad_narrow(a, n->in[1]);
        n = tci_contract_of(a->g, n, (tc_dtype)n->dtype, in);
        in[0] = tci_route_rows_forward(a, n, 0);
        in[1] = tci_route_rows_forward(a, n, 1);
        n = tci_contract_of(a->g, n, (tc_dtype)n->dtype, in);
    }
    const tci_contraction *c = tci_contraction_of(a->s, n);
    bool gathers = tci_route_gathers(c, m) || tci_route_spreads(c, m);
    bool packs = gathers || tci_route_packs(c, m);
    for (int i = 0; i < 2; i++) {
        if (!packs || tci_route_cheap_ops(n->in[i], gathers) > TCI_ROUTE_PACK_OPS) {
            tci_relayout_store(a, n->in[i]);
        }
    }
    if (gathers || (packs && tci_dim_is_known(n->shape[n->rank - 1]))) { /* of known columns */
        return n;
    }
    tci_contract_form f = tci_contract_form_of(n);
    tci_route_operand_order(a, n, 0, &f);
    tci_route_operand_order(a, n, 1, &f);
    return tci_contract_make(a->s, a->g, &f, (tc_dtype)n->dtype, n->shape);
}
