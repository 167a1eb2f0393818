/* plan/kmajor.c - K-major operand copies for TF32 and int8 tensor cores.
 *
 * In: a CONTRACT of f32 values, not both widened halves, where math may be fast, or of bytes in
 * i32, on a machine of blocks with a matrix unit. Out: the same of operands in memory along what is
 * summed, in rows that begin where the unit reads them; NULL where it is left alone. The one idea:
 * a unit turns only halves on its way, so what lies otherwise is copied, bytes as bytes, and each
 * element of a copy must be multiplied often. Batched products are left to plan/bf16x3.c: those of
 * attention would join to kernels of threads, which take longer. No value is changed here:
 * plan/reduction_order.c gives the class to kernels that kernel/matrix.c, which sees them, says
 * fit. */
#include "../graph/build.h"
#include "../kernel/matrix.h"
#include "group.h"

typedef struct tci_single {
    const tci_algo *a;
    const tci_node *n;
    const int64_t *labels[2], *out;
    tci_node *in[2], *source[2]; /* what is multiplied: the operands, bytes as they are given */
    int64_t along; /* the label that both operands are to lie along */
    bool lies[2];
} tci_single;

/* The value behind an operand, below movements but for windows (plan/conv_layout.c). */
static tci_node *tci_single_source(tci_node *n)
{
    while (tci_op_is(n->op, TCI_IS_VIEW) && n->op != TCI_OP_WINDOW) {
        n = n->in[0];
    }
    return n;
}

static bool tci_single_widens(const tci_node *n)
{
    return n->op == TCI_OP_CAST && tci_dtype_is_half((tc_dtype)n->in[0]->dtype);
}

static int tci_single_axis(const tci_single *m, int which, int64_t label)
{
    return tci_build_label(m->labels[which], m->n->attr[which], label);
}

static bool tci_single_look(tci_single *m)
{
    const tci_node *n = m->n;
    bool fits = n->rank >= 2 && tci_build_is_known(n->rank, n->shape);
    for (int i = 0; i < 2; i++) {
        tci_node *narrow = n->dtype == TC_I32 ? tci_plan_narrow(m->a, n->in[i]) : n->in[i];
        m->labels[i] = n->attr + 3 + (i ? n->attr[0] : 0);
        m->in[i] = narrow ? narrow : n->in[i];
        m->source[i] = tci_single_source(m->in[i]);
        tc_dtype t = (tc_dtype)m->source[i]->dtype;
        fits = fits && (n->dtype == TC_I32 ? t == TC_I8 || t == TC_U8 : t == TC_F32) &&
               m->source[i]->op != TCI_OP_WINDOW &&
               tci_build_is_known(n->in[i]->rank, n->in[i]->shape) &&
               tci_build_is_known(m->source[i]->rank, m->source[i]->shape) &&
               m->source[i]->rank > 0;
    }
    m->out = m->labels[1] + n->attr[1];
    bool halves = tci_single_widens(m->source[0]) && tci_single_widens(m->source[1]);
    return fits && !halves;
}

/* ---- how it lies ---- */

/* The summed axis that the larger of those operands lies along that lie along any, else the
 * longest; false: nothing is summed. */
static bool tci_single_choose(tci_single *m)
{
    int64_t most = -1, longest = 0;
    for (int i = 0; i < m->n->attr[0]; i++) {
        int64_t label = m->labels[0][i];
        int at[2] = {i, tci_single_axis(m, 1, label)};
        if (at[1] < 0 || tci_build_label(m->out, m->n->rank, label) >= 0) {
            continue;
        }
        int64_t size = tci_dim_known(m->n->in[0]->shape[i]), held = 0;
        for (int which = 0; which < 2; which++) {
            const tci_node *x = m->in[which];
            bool lies = tci_plan_fastest_axis(x) == at[which];
            held = lies ? TCI_MAX(held, tci_dim_known(tci_node_count(x))) : held;
        }
        if (held > most || (held == most && size > longest)) {
            m->along = label;
            most = held;
            longest = size;
        }
    }
    return most >= 0;
}

/* Does operand `which` lie along it, in rows that the unit reads? */
static bool tci_single_lies(const tci_single *m, int which)
{
    const tci_node *x = m->in[which], *source = m->source[which];
    return tci_plan_fastest_axis(x) == tci_single_axis(m, which, m->along) &&
           tci_dim_known(source->shape[source->rank - 1]) % tci_matrix_align(x->dtype) == 0;
}

/* Are there rows, columns, no batch, and products enough for each element of a copy? */
static bool tci_single_pays(const tci_single *m)
{
    const tci_node *n = m->n;
    double products = tci_plan_products(n), copied = 0;
    int64_t most[2] = {0, 0};
    for (int i = 0; i < n->rank; i++) {
        bool in[2] = {tci_single_axis(m, 0, m->out[i]) >= 0, tci_single_axis(m, 1, m->out[i]) >= 0};
        int64_t size = tci_dim_known(n->shape[i]);
        if (in[0] && in[1] && size > 1) {
            return false;
        }
        most[in[1]] = TCI_MAX(most[in[1]], size);
    }
    for (int i = 0; i < 2; i++) {
        copied += m->lies[i] ? 0 : (double)tci_dim_known(tci_node_count(n->in[i]));
    }
    bool bytes = n->dtype == TC_I32;
    bool large = products >= (bytes ? TCI_SINGLE_BYTES_LEAST : TCI_SINGLE_LEAST) &&
                 products >= (bytes ? TCI_SINGLE_BYTES_REUSE : TCI_SINGLE_REUSE) * copied;
    return most[0] >= TCI_MATRIX_SINGLE && most[1] >= TCI_MATRIX_SINGLE &&
           2 * products >= TCI_MATRIX_FLOPS && (copied == 0 || large);
}

/* ---- the copies ---- */

/* Operand `which` in memory along it: as it lies, or a copy; its labels follow. */
static tci_node *tci_single_operand(const tci_single *m, int which, int64_t *labels)
{
    tci_node *x = m->in[which];
    int at = tci_single_axis(m, which, m->along), last = x->rank - 1;
    if (m->lies[which]) {
        tci_algo_force(m->a, m->source[which]);
        return m->n->in[which];
    }
    int64_t *perm = TCI_NEW_ARRAY(m->a->s, int64_t, x->rank);
    tci_dim *shape = TCI_NEW_ARRAY(m->a->s, tci_dim, x->rank);
    for (int i = 0; i < x->rank; i++) {
        perm[i] = i < at ? i : i < last ? i + 1 : at;
        shape[i] = x->shape[perm[i]];
        labels[i] = m->labels[which][perm[i]];
    }
    if (at != last) {
        x = tci_graph_node(m->a->g, TCI_OP_PERMUTE, (tc_dtype)x->dtype, x->rank, shape, 1, &x,
                           x->rank, perm);
    }
    x = tci_plan_with_pitch(m->a, x, tci_matrix_align(x->dtype));
    return tci_build_cast(m->a->g, x, (tc_dtype)m->n->dtype);
}

TCI_FN tci_node *tci_plan_single(const tci_algo *a, tci_node *n)
{
    tci_single m = {.a = a, .n = n};
    const tci_machine *machine = &a->machine;
    bool exact = n->dtype == TC_I32;
    bool unit = machine->block_threads > 0 && machine->matrix_units > 0 &&
                !machine->reproducible && (exact || (n->dtype == TC_F32 && machine->is_fast));
    if (!unit || !tci_single_look(&m) || !tci_single_choose(&m)) {
        return NULL;
    }
    m.lies[0] = tci_single_lies(&m, 0);
    m.lies[1] = tci_single_lies(&m, 1);
    if (!tci_single_pays(&m)) {
        return NULL;
    }
    int64_t *attr = tci_scratch_copy(a->s, n->attr, sizeof(int64_t) * (size_t)n->n_attr);
    tci_node *in[2] = {tci_single_operand(&m, 0, attr + 3),
                       tci_single_operand(&m, 1, attr + 3 + attr[0])};
    return in[0] == n->in[0] && in[1] == n->in[1]
               ? n
               : tci_graph_node(a->g, TCI_OP_CONTRACT, (tc_dtype)n->dtype, n->rank, n->shape, 2,
                                in, n->n_attr, attr);
}
