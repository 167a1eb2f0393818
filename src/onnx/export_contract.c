/* onnx/export_contract.c - exports contractions as ONNX Conv, MatMul or Einsum.
 *
 * In: a CONTRACT. Out: Conv where it is a convolution (onnx/find_conv.h); else MatMul, whose
 * operands are transposed and reshaped to [batch, m, k] and [batch, k, n] where they are not so;
 * else Einsum, namely if an axis of only one operand is summed, if no axis is summed, or if axes of
 * symbolic size would have to be merged. */
#include "export_state.h"

#include <stdio.h>
#include <string.h>

/* Axes of operands and result by their group, in the order that MatMul asks for. */
typedef struct tci_ox_gemm {
    const tci_contraction *c;
    int first;                          /* operand of the axes M */
    const tci_contract_axis_of **of[4]; /* batch, M, N, K */
    int count[4];
} tci_ox_gemm;

enum { TCI_OX_BATCH, TCI_OX_M, TCI_OX_N, TCI_OX_K };

/* The operand whose own axes come first in the result is first. */
static bool tci_ox_find_gemm(tci_scratch *s, const tci_node *n, tci_ox_gemm *m)
{
    *m = (tci_ox_gemm){.c = tci_contraction_of(s, n), .first = -1};
    for (int g = 0; g < 4; g++) {
        m->of[g] = TCI_NEW_ARRAY(s, const tci_contract_axis_of *, m->c->n_axes + 1);
    }
    for (int i = 0; i < m->c->n_axes; i++) { /* the result's axes, in order, then summed ones */
        const tci_contract_axis_of *a = &m->c->axes[i];
        bool own = a->group == TCI_AXES_M || a->group == TCI_AXES_N;
        if (a->group == TCI_AXES_ALONE) {
            return false;
        }
        m->first = own && m->first < 0 ? a->group == TCI_AXES_N : m->first;
        int to = a->group == TCI_AXES_BATCH             ? TCI_OX_BATCH
                 : a->group == TCI_AXES_K               ? TCI_OX_K
                 : (a->group == TCI_AXES_N) == m->first ? TCI_OX_M
                                                        : TCI_OX_N;
        m->of[to][m->count[to]++] = a;
    }
    m->first = m->first < 0 ? 0 : m->first;
    return m->count[TCI_OX_K] > 0;
}

static tci_dim tci_ox_merged(const tci_ox_gemm *m, int group)
{
    tci_dim size = 1;
    for (int i = 0; i < m->count[group]; i++) {
        size = tci_dim_mul(size, m->of[group][i]->size);
    }
    return size;
}

/* Axes one after the other, and their sizes where those of a group become one. */
typedef struct tci_ox_gemm_axes {
    int64_t *axes;
    tci_dim *sizes;
    int n, n_sizes;
    bool merges;
} tci_ox_gemm_axes;

static void tci_ox_add_axes(tci_ox_gemm_axes *to, const tci_ox_gemm *m, int group, int which,
                            bool one)
{
    for (int i = 0; i < m->count[group]; i++) {
        to->axes[to->n++] = m->of[group][i]->at[which];
        if (!one) {
            to->sizes[to->n_sizes++] = m->of[group][i]->size;
        }
    }
    if (one) {
        to->sizes[to->n_sizes++] = tci_ox_merged(m, group);
        to->merges = to->merges || m->count[group] != 1;
    }
}

/* Operand `which` as [batch, m, k] or [batch, k, n]; without axes of a batch those of M stay. */
static tci_ox_gemm_axes tci_ox_operand_axes(tci_scratch *s, const tci_ox_gemm *m, int which)
{
    tci_ox_gemm_axes a = {TCI_NEW_ARRAY(s, int64_t, m->c->n_axes + 1),
                          TCI_NEW_ARRAY(s, tci_dim, m->c->n_axes + 3), 0, 0, false};
    bool first = which == m->first, batch = m->count[TCI_OX_BATCH] > 0;
    tci_ox_add_axes(&a, m, TCI_OX_BATCH, which, false);
    tci_ox_add_axes(&a, m, first ? TCI_OX_M : TCI_OX_K, which, !first || batch);
    tci_ox_add_axes(&a, m, first ? TCI_OX_K : TCI_OX_N, which, true);
    return a;
}

static bool tci_ox_gemm_merges(tci_scratch *s, const tci_ox_gemm *m)
{
    return tci_ox_operand_axes(s, m, 0).merges || tci_ox_operand_axes(s, m, 1).merges;
}

static const char *tci_ox_gemm_out(tci_ox_out_graph *g, const tci_ox_gemm *m, const tci_node *n,
                                   const char *const *in)
{
    tci_scratch *s = g->walk->s;
    const char *with[2];
    tci_ox_gemm_axes y = {TCI_NEW_ARRAY(s, int64_t, n->rank + 1),
                          TCI_NEW_ARRAY(s, tci_dim, n->rank + 3), 0, 0, false};
    for (int i = 0; i < 2; i++) {
        int which = i ? !m->first : m->first;
        const tci_ox_gemm_axes a = tci_ox_operand_axes(s, m, which);
        with[i] = tci_ox_transposed(g, a.n, a.axes, in[which]);
        with[i] = a.merges ? TCI_OW(&g->w, "Reshape", with[i],
                                    tci_ow_ints(&g->w, a.n_sizes, tci_dim_words(a.sizes)))
                           : with[i];
    }
    const char *r = tci_ow_op(&g->w, "MatMul", 2, with, 0, NULL);
    for (int group = TCI_OX_BATCH; group <= TCI_OX_N; group++) {
        bool one = group == TCI_OX_N || (group == TCI_OX_M && m->count[TCI_OX_BATCH] > 0);
        y.merges = y.merges || (one && m->count[group] != 1);
        tci_ox_add_axes(&y, m, group, 2, false);
    }
    r = y.merges ? TCI_OW(&g->w, "Reshape", r, tci_ow_ints(&g->w, n->rank, tci_dim_words(y.sizes)))
                 : r;
    int64_t *back = TCI_NEW_ARRAY(s, int64_t, n->rank + 1);
    for (int i = 0; i < n->rank; i++) {
        back[y.axes[i]] = i;
    }
    return tci_ox_transposed(g, n->rank, back, r);
}

static const char *tci_ox_einsum_out(tci_ox_out_graph *g, const tci_node *n, const char *const *in)
{
    char text[512];
    int64_t count = n->attr[0] + n->attr[1] + n->attr[2];
    size_t at = 0;
    if (count > 400) {
        tci_ox_refuse(g->walk, n, "too many axes");
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t label = n->attr[3 + i];
        at += (size_t)snprintf(text + at, 4, "%s", i == n->attr[0] ? "," : "");
        at += (size_t)snprintf(text + at, 4, "%s", i == n->attr[0] + n->attr[1] ? "->" : "");
        if (label < 0 || label >= 52) {
            tci_ox_refuse(g->walk, n, "more than 52 axes");
        }
        text[at++] = (char)(label < 26 ? 'a' + label : 'A' + label - 26);
        text[at] = 0;
    }
    if (n->attr[1] == 0) {
        tci_ox_refuse(g->walk, n, "an operand of no axes");
    }
    strcat(text, n->rank == 0 ? "->" : "");
    const tci_ow_attr spec = TCI_OW_TEXT("equation", text);
    return tci_ow_op(&g->w, "Einsum", 2, in, 1, &spec);
}

TCI_FN const char *tci_ox_contract_out(tci_ox_out_graph *g, const tci_node *n,
                                       const char *const *operands)
{
    const char *in[] = {operands[0], operands[1]};
    tci_ox_conv conv;
    tci_ox_gemm gemm;
    if (tci_ox_find_conv(g->walk->s, n, &conv) && tci_ox_conv_fits(&conv)) {
        return tci_ox_conv_out(g, &conv, n, operands);
    }
    for (int i = 0; i < 2; i++) { /* sums of f16 and bf16 are f32 */
        in[i] = n->in[i]->dtype == n->dtype ? in[i] : tci_ox_to_dtype(g, in[i], (tc_dtype)n->dtype);
    }
    bool known = tci_is_known(n) && tci_is_known(n->in[0]) && tci_is_known(n->in[1]);
    if (tci_ox_find_gemm(g->walk->s, n, &gemm) &&
        (known || !tci_ox_gemm_merges(g->walk->s, &gemm))) {
        return tci_ox_gemm_out(g, &gemm, n, in);
    }
    return tci_ox_einsum_out(g, n, in);
}
