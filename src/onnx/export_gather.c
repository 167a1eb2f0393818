/* onnx/export_gather.c - exports GATHER as Gather or GatherElements of ONNX.
 *
 * In: a GATHER, or the RESHAPE of one. Out: Gather, where one list of indices serves all places off
 * the axis (tc_index_select, rows of tc_embedding); else GatherElements, whose index has the shape
 * of the result. */
#include "export_state.h"

/* The axes of x, whose axis is replaced by those of the list: the shape of a Gather. */
static bool tci_ox_is_select_shape(const tci_ox_select *s, const tci_node *n)
{
    const int more = s->list->rank - 1;
    bool fits = n->rank == s->x->rank + more;
    for (int d = 0; d < n->rank && fits; d++) {
        fits = n->shape[d] == (d < s->axis           ? s->x->shape[d]
                               : d <= s->axis + more ? s->list->shape[d - s->axis]
                                                     : s->x->shape[d - more]);
    }
    return fits;
}

/* True if the index of a GATHER is the same for all places off its axis, which are all taken. */
static bool tci_ox_find_list(const tci_node *gather, tci_ox_select *s)
{
    tci_node *x = gather->in[0], *index = gather->in[1];
    const int axis = (int)gather->attr[0];
    index = index->op == TCI_OP_EXPAND && !tci_node_is_value(index) ? index->in[0] : index;
    bool one = true;
    for (int d = 0; d < gather->rank; d++) {
        one = one && (d == axis ? index->shape[d] == gather->shape[d]
                                : index->shape[d] == 1 && gather->shape[d] == x->shape[d]);
    }
    bool reshaped = index->op == TCI_OP_RESHAPE && !tci_node_is_value(index);
    *s = (tci_ox_select){.x = x, .list = reshaped ? index->in[0] : index, .axis = axis};
    return one;
}

TCI_FN bool tci_ox_find_select(const tci_node *n, tci_ox_select *s)
{
    bool reshaped = n->op == TCI_OP_RESHAPE && n->in[0]->op == TCI_OP_GATHER;
    const tci_node *gather = reshaped ? n->in[0] : n;
    return gather->op == TCI_OP_GATHER && !tci_node_is_value(gather) &&
           tci_ox_find_list(gather, s) && (!reshaped || tci_ox_is_select_shape(s, n));
}

/* An index as i64; Gather takes i32 too. */
static const char *tci_ox_index(tci_ox_out_graph *g, const tci_node *index, const char *name)
{
    bool fits = index->dtype == TC_I64 || index->dtype == TC_I32;
    return fits ? name : tci_ox_to_dtype(g, name, TC_I64);
}

TCI_FN const char *tci_ox_select_out(tci_ox_out_graph *g, const tci_ox_select *s, const tci_node *n,
                                     const char *const *in)
{
    static const int64_t line = -1;
    const tci_ow_attr axis = TCI_OW_INT("axis", s->axis);
    const char *with[] = {in[0], tci_ox_index(g, s->list, in[1])};
    if (!tci_ox_is_select_shape(s, n)) {
        with[1] = TCI_OW(&g->w, "Reshape", with[1], tci_ow_ints(&g->w, 1, &line));
    }
    return tci_ow_op(&g->w, "Gather", 2, with, 1, &axis);
}

TCI_FN const char *tci_ox_gather_out(tci_ox_out_graph *g, const tci_node *n, const char *const *in)
{
    const tci_ow_attr axis = TCI_OW_INT("axis", n->attr[0]);
    const char *with[] = {in[0], tci_ox_index(g, n->in[1], in[1])};
    return tci_ow_op(&g->w, "GatherElements", 2, with, 1, &axis);
}
