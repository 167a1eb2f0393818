/* plan/kmajor.c - copies GEMM operands to K-major order, which TF32 and int8 tensor cores need.
 *
 * In: a CONTRACT of f32 values, not both widened from half precision, under TC_MATH_FAST, or of
 * int8 operands converted to i32, on a GPU with a matrix unit. Out: the same CONTRACT of operands
 * that are contiguous along the summed axis, in aligned rows; NULL to leave it as it is. Design:
 * tensor cores transpose only 16-bit operands, so others are copied (int8 operands stay int8) if
 * each element of a copy is used often enough. Batched products are left to plan/bf16x3.c: those of
 * attention would merge into SIMT kernels, which take longer. No value changes here:
 * plan/reduction_order.c gives the class to kernels that kernel/match_matrix_unit.c accepts. */
#include "../kernel/match_matrix_unit.h"
#include "contraction_route.h"

typedef struct tci_kmajor {
    const tci_algo *a;
    const tci_node *n;
    const tci_contraction *c;
    tci_node *in[2], *source[2]; /* what is multiplied: the operands, bytes as they are given */
    const tci_contract_axis_of *along; /* of K: to be contiguous in both operands */
    bool along_k[2];
} tci_kmajor;

static bool tci_kmajor_widens(const tci_node *n)
{
    return n->op == TCI_OP_CAST && tci_dtype_is_half((tc_dtype)n->in[0]->dtype);
}

static bool tci_kmajor_look(tci_kmajor *m)
{
    const tci_node *n = m->n;
    bool fits = n->rank >= 2 && tci_build_is_known(n->rank, n->shape);
    for (int i = 0; i < 2; i++) {
        tci_node *narrow = n->dtype == TC_I32 ? tci_plan_narrow(m->a, n->in[i]) : n->in[i];
        m->in[i] = narrow ? narrow : n->in[i];
        m->source[i] = tci_below(m->in[i], TCI_THROUGH_VIEWS, NULL);
        tc_dtype t = (tc_dtype)m->source[i]->dtype;
        fits = fits && (n->dtype == TC_I32 ? t == TC_I8 || t == TC_U8 : t == TC_F32) &&
               m->source[i]->op != TCI_OP_WINDOW &&
               tci_build_is_known(n->in[i]->rank, n->in[i]->shape) &&
               tci_build_is_known(m->source[i]->rank, m->source[i]->shape) &&
               m->source[i]->rank > 0;
    }
    bool halves = tci_kmajor_widens(m->source[0]) && tci_kmajor_widens(m->source[1]);
    return fits && !halves;
}

/* ---- its layout ---- */

/* The axis of K that is contiguous in the larger one of the operands that have such an axis
 * contiguous, else the longest; false: there is none. */
static bool tci_kmajor_choose(tci_kmajor *m)
{
    int64_t most = -1, longest = 0;
    for (int i = 0; i < m->c->n_axes; i++) {
        const tci_contract_axis_of *axis = &m->c->axes[i];
        if (axis->group != TCI_AXES_K) {
            continue;
        }
        int64_t size = tci_dim_known(axis->size), held = 0;
        for (int which = 0; which < 2; which++) {
            const tci_node *x = m->in[which];
            bool along_k = tci_fastest_axis(x) == axis->at[which];
            held = along_k ? TCI_MAX(held, tci_dim_known(tci_node_count(x))) : held;
        }
        if (held > most || (held == most && size > longest)) {
            m->along = axis;
            most = held;
            longest = size;
        }
    }
    return most >= 0;
}

/* True if operand `which` is contiguous along K, in rows that the matrix unit reads. */
static bool tci_kmajor_is_along(const tci_kmajor *m, int which)
{
    const tci_node *x = m->in[which], *source = m->source[which];
    return tci_fastest_axis(x) == m->along->at[which] &&
           tci_dim_known(source->shape[source->rank - 1]) % tci_matrix_align(x->dtype) == 0;
}

/* True if there are M and N axes, no batch, and enough products for each element of a copy. */
static bool tci_kmajor_pays(const tci_kmajor *m)
{
    double products = m->c->products, copied = 0;
    int64_t most[2] = {0, 0};
    for (int i = 0; i < m->n->rank; i++) {
        const tci_contract_axis_of *axis = &m->c->axes[i];
        int64_t size = tci_dim_known(axis->size);
        if (axis->group == TCI_AXES_BATCH && size > 1) {
            return false;
        }
        most[axis->at[1] >= 0] = TCI_MAX(most[axis->at[1] >= 0], size);
    }
    for (int i = 0; i < 2; i++) {
        copied += m->along_k[i] ? 0 : (double)tci_dim_known(tci_node_count(m->n->in[i]));
    }
    bool bytes = m->n->dtype == TC_I32;
    bool large = products >= (bytes ? TCI_KMAJOR_BYTES_LEAST : TCI_KMAJOR_LEAST) &&
                 products >= (bytes ? TCI_KMAJOR_BYTES_REUSE : TCI_KMAJOR_REUSE) * copied;
    return most[0] >= TCI_MATRIX_SINGLE && most[1] >= TCI_MATRIX_SINGLE &&
           2 * products >= TCI_MATRIX_FLOPS && (copied == 0 || large);
}

static bool tci_kmajor_fits(tci_offer *o)
{
    tci_kmajor *m = TCI_NEW(o->a->s, tci_kmajor);
    *m = (tci_kmajor){.a = o->a, .n = o->n, .c = o->c};
    const tci_machine *machine = &o->a->machine;
    bool exact = o->n->dtype == TC_I32;
    bool unit = machine->block_threads > 0 && machine->matrix_units > 0 &&
                (exact || (o->n->dtype == TC_F32 && machine->is_fast));
    o->found = m;
    if (!unit || !tci_kmajor_look(m) || !tci_kmajor_choose(m)) {
        return false;
    }
    m->along_k[0] = tci_kmajor_is_along(m, 0);
    m->along_k[1] = tci_kmajor_is_along(m, 1);
    return tci_kmajor_pays(m);
}

static double tci_kmajor_cost(const tci_offer *o)
{
    const tci_kmajor *m = o->found;
    tci_route_work work = tci_route_work_of(o,
                                            o->n->dtype == TC_F32 ? TCI_BY_UNIT_F32 : TCI_BY_UNIT);
    for (int i = 0; i < 2; i++) {
        work.bytes += m->along_k[i] ? 0 : 2 * o->c->in[i].bytes;
        work.launches += !m->along_k[i];
    }
    return tci_route_ns(o, work);
}

/* ---- the copies ---- */

/* Operand `which` of f with that axis contiguous: as it is in memory, or a copy. */
static void tci_kmajor_operand(const tci_kmajor *m, int which, tci_contract_form *f)
{
    tci_node *x = m->in[which];
    if (m->along_k[which]) {
        tci_algo_force(m->a, m->source[which]);
        return;
    }
    int64_t *order = TCI_NEW_ARRAY(m->a->s, int64_t, x->rank);
    tci_relayout_last(x, m->along->at[which], order);
    tci_contract_turn(m->a->s, f, which, order);
    x = tci_relayout_pitch(m->a, x, order, tci_matrix_align(x->dtype));
    f->in[which] = tci_build_cast(m->a->g, x, (tc_dtype)m->n->dtype);
}

static tci_node *tci_kmajor_build(const tci_offer *o)
{
    const tci_kmajor *m = o->found;
    tci_contract_form f = tci_contract_form_of(o->n);
    tci_kmajor_operand(m, 0, &f);
    tci_kmajor_operand(m, 1, &f);
    return tci_contract_make(o->a->s, o->a->g, &f, (tc_dtype)o->n->dtype, o->n->shape);
}

TCI_BLOCK_FN const tci_route *tci_route_kmajor(void)
{
    static const tci_route row = {
        "K-major copies", TCI_SUMS_UNIT,   TCI_ROUTE_SPLITS | TCI_ROUTE_REORDERS,
        tci_kmajor_fits,  tci_kmajor_cost, tci_kmajor_build};
    return &row;
}
