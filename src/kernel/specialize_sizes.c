/* kernel/specialize_sizes.c - replaces the symbolic sizes of a kernel by their values (shape
 * specialization).
 *
 * In: a kernel, a value for each symbol. Out: an ordinary kernel, for the interpreter. Design:
 * every number of the kernel is evaluated and passed through the constructors of kernel/ir.c
 * again, in the order of the instructions. What those simplify for known sizes is simplified here
 * as well, and nothing else changes: axes, operands, stages and reductions keep their numbers, and
 * every reduction keeps its order.
 *
 * Stages, and reductions with them, come before the instructions, because the dependencies of a
 * RED are derived from them; the values that a reduction folds are filled in afterwards. */
#include "specialize_sizes.h"

#ifdef TC_DYNAMIC_SHAPES

#include <string.h>

/* ---- keeping ---- */

typedef struct tci_concrete_keep {
    void *(*get)(void *arg, size_t bytes);
    void *arg;
    bool failed;
} tci_concrete_keep;

static void *tci_concrete_copy(tci_concrete_keep *c, const void *items, int n, size_t item_bytes)
{
    size_t bytes = (size_t)n * item_bytes;
    void *copy = c->failed ? NULL : c->get(c->arg, TCI_MAX(bytes, (size_t)1));
    c->failed = !copy;
    return copy && bytes ? memcpy(copy, items, bytes) : copy;
}

/* The members of a merged kernel or in-kernel loop, and its loop. */
static void tci_concrete_keep_members(tci_concrete_keep *c, tci_kernel *to, const tci_kernel *k)
{
    to->members = tci_concrete_copy(c, k->members, k->n_members, sizeof(*k->members));
    for (int i = 0; i < k->n_members && !c->failed; i++) {
        int same = tci_kernel_first_same(k, i);
        to->members[i] = same < i ? to->members[same]
                                  : tci_kernel_keep(c->get, c->arg, k->members[i]);
        c->failed = !to->members[i];
    }
    if (k->loop) {
        tci_kloop *loop = tci_concrete_copy(c, k->loop, 1, sizeof(*loop));
        tci_kplace *places = tci_concrete_copy(c, k->loop->places, k->loop->n_places,
                                               sizeof(*places));
        tci_kcell *cells = tci_concrete_copy(c, k->loop->cells, k->loop->n_cells, sizeof(*cells));
        tci_kcarry *carries = tci_concrete_copy(c, k->loop->carries, k->loop->n_carries,
                                                sizeof(*carries));
        if (!c->failed) {
            loop->places = places;
            loop->cells = cells;
            loop->carries = carries;
            to->loop = loop;
        }
    }
}

TCI_FN tci_kernel *tci_kernel_keep(void *(*get)(void *arg, size_t bytes), void *arg,
                                   const tci_kernel *k)
{
    tci_concrete_keep c = {get, arg, false};
    tci_kernel *to = tci_concrete_copy(&c, k, 1, sizeof(*k));
    if (!to) {
        return NULL;
    }
    to->s = NULL;
    to->kx_hash = to->inst_hash = NULL;
    to->n_kx_hash = to->n_inst_hash = 0;
    to->axes = tci_concrete_copy(&c, k->axes, k->n_axes, sizeof(*k->axes));
    to->kx = tci_concrete_copy(&c, k->kx, k->n_kx, sizeof(*k->kx));
    to->insts = tci_concrete_copy(&c, k->insts, k->n_insts, sizeof(*k->insts));
    to->guards = tci_concrete_copy(&c, k->guards, k->n_guards, sizeof(*k->guards));
    to->reds = tci_concrete_copy(&c, k->reds, k->n_reds, sizeof(*k->reds));
    to->stores = tci_concrete_copy(&c, k->stores, k->n_stores, sizeof(*k->stores));
    to->operands = tci_concrete_copy(&c, k->operands, k->n_operands, sizeof(*k->operands));
    to->stages = tci_concrete_copy(&c, k->stages, k->n_stages, sizeof(*k->stages));
    for (int t = 0; t < k->n_stages && !c.failed; t++) {
        const tci_kstage *stage = &k->stages[t];
        to->stages[t].axes = tci_concrete_copy(&c, stage->axes, stage->n_axes,
                                               sizeof(*stage->axes));
    }
    if (k->n_members) {
        tci_concrete_keep_members(&c, to, k);
    }
    return c.failed ? NULL : to;
}

/* ---- evaluating ---- */

typedef struct tci_concrete {
    const tci_kernel *from;
    tci_kernel *to;
    const int64_t *values;
    int *kx_to;   /* new index expression; -1: not made yet */
    int *inst_to; /* new instruction; made in order */
} tci_concrete;

static int64_t tci_concrete_number(const tci_concrete *c, tci_dim d)
{
    return tci_dim_value(d, c->values);
}

static int tci_concrete_kx(tci_concrete *c, int x)
{
    tci_kx e = c->from->kx[x];
    tci_kernel *k = c->to;
    if (c->kx_to[x] >= 0) {
        return c->kx_to[x];
    }
    int a = e.a >= 0 ? tci_concrete_kx(c, e.a) : -1, b = e.b >= 0 ? tci_concrete_kx(c, e.b) : -1;
    bool names = e.op == TCI_KX_AXIS || e.op == TCI_KX_VALUE;
    int64_t n = names ? tci_dim_known(e.c) : tci_dim_known(tci_concrete_number(c, e.c));
    int64_t divisor = TCI_MAX(n, (int64_t)1); /* of an empty axis: never evaluated */
    int made = -1;
    switch (e.op) {
    case TCI_KX_AXIS: made = tci_kx_axis(k, (int)n); break;
    case TCI_KX_ADD: made = tci_kx_add(k, a, b); break;
    case TCI_KX_MUL: made = tci_kx_mul(k, a, n); break;
    case TCI_KX_DIV: made = tci_kx_div(k, a, divisor); break;
    case TCI_KX_MOD: made = tci_kx_mod(k, a, divisor); break;
    case TCI_KX_VALUE:
        made = tci_kx_value(k, c->inst_to[n], tci_concrete_number(c, e.lo),
                            tci_concrete_number(c, e.hi));
        break;
    default: made = tci_kx_const(k, n); break;
    }
    c->kx_to[x] = made;
    return made;
}

/* The guards of an instruction; those of a load that always hold for these sizes go. */
static void tci_concrete_guards(tci_concrete *c, tci_kinst *i)
{
    tci_kernel *k = c->to;
    int first = i->guard, n = i->n_guards, begin = k->n_guards;
    for (int g = 0; g < n; g++) {
        tci_kguard guard = c->from->guards[first + g];
        guard.x = tci_concrete_kx(c, guard.x);
        guard.lo = tci_concrete_number(c, guard.lo);
        guard.hi = tci_concrete_number(c, guard.hi);
        bool holds = tci_dim_le(guard.lo, k->kx[guard.x].lo) &&
                     tci_dim_le(k->kx[guard.x].hi, guard.hi);
        if (!holds || i->op == TCI_K_GUARD) {
            TCI_PUSH(k->s, k->guards, k->n_guards, k->cap_guards, guard);
        }
    }
    i->n_guards = k->n_guards - begin;
    i->guard = i->n_guards ? begin : -1;
    for (int at = 0; at < begin && i->n_guards; at++) { /* an equal run that is already there */
        bool same = at + i->n_guards <= begin;
        for (int g = 0; same && g < i->n_guards; g++) {
            const tci_kguard *x = &k->guards[at + g], *y = &k->guards[begin + g];
            same = x->x == y->x && x->lo == y->lo && x->hi == y->hi;
        }
        if (same) {
            i->guard = at;
            k->n_guards = begin;
            return;
        }
    }
}

static void tci_concrete_inst(tci_concrete *c, int n)
{
    tci_kinst i = c->from->insts[n];
    for (int a = 0; a < i.n_args; a++) {
        i.args[a] = c->inst_to[i.args[a]];
    }
    i.x = i.x >= 0 ? tci_concrete_kx(c, i.x) : -1;
    if (i.n_guards > 0) {
        tci_concrete_guards(c, &i);
    }
    if (i.op == TCI_K_FAULT) {
        i.imm = tci_concrete_number(c, i.imm);
    }
    c->inst_to[n] = tci_kernel_inst(c->to, i);
    if (i.op == TCI_K_RED) {
        c->to->reds[tci_dim_known(i.imm)].inst = c->inst_to[n];
    }
}

/* Everything but instructions and index expressions. */
static tci_kernel *tci_concrete_frame(tci_scratch *s, const tci_kernel *k, const int64_t *values)
{
    tci_kernel *to = tci_kernel_make(s);
    for (int a = 0; a < k->n_axes; a++) {
        tci_kernel_axis(to, tci_dim_value(k->axes[a].size, values), k->axes[a].inner);
        tci_kx_axis(to, a); /* first of all: the order of terms follows their numbers */
    }
    for (int p = 0; p < k->n_operands; p++) {
        tci_kernel_operand(to, (tc_dtype)k->operands[p].dtype, k->operands[p].is_output,
                           tci_dim_value(k->operands[p].n, values));
        to->operands[p].panel = k->operands[p].panel;
    }
    for (int t = 0; t < k->n_stages; t++) {
        tci_kstage stage = k->stages[t];
        stage.axes = tci_scratch_copy(s, stage.axes, sizeof(*stage.axes) * (size_t)stage.n_axes);
        TCI_PUSH(s, to->stages, to->n_stages, to->cap_stages, stage);
    }
    for (int r = 0; r < k->n_reds; r++) {
        TCI_PUSH(s, to->reds, to->n_reds, to->cap_reds, k->reds[r]);
    }
    to->vector = k->vector;
    to->n_literals = k->n_literals;
    to->faults = k->faults;
    to->all_flops = to->flops = tci_dim_value(k->all_flops, values);
    to->all_bytes = to->bytes = tci_dim_value(k->all_bytes, values);
    memcpy(to->name, k->name, sizeof(to->name));
    return to;
}

static tci_kplace tci_concrete_place(tci_kplace p, const int64_t *values)
{
    p.offset = tci_dim_value(p.offset, values);
    p.by = tci_dim_value(p.by, values);
    return p;
}

static void tci_concrete_members(tci_scratch *s, tci_kernel *to, const tci_kernel *k,
                                 const int64_t *values)
{
    to->n_members = k->n_members;
    to->members = TCI_NEW_ARRAY(s, tci_kernel *, k->n_members);
    for (int i = 0; i < k->n_members; i++) {
        int same = tci_kernel_first_same(k, i);
        to->members[i] = same < i ? to->members[same] : tci_kernel_at(s, k->members[i], values);
    }
    if (k->loop) {
        tci_kloop *loop = TCI_NEW(s, tci_kloop);
        *loop = *k->loop;
        loop->rounds = tci_dim_value(loop->rounds, values);
        loop->places = TCI_NEW_ARRAY(s, tci_kplace, loop->n_places + 1);
        loop->carries = TCI_NEW_ARRAY(s, tci_kcarry, loop->n_carries + 1);
        for (int i = 0; i < loop->n_places; i++) {
            loop->places[i] = tci_concrete_place(k->loop->places[i], values);
        }
        for (int i = 0; i < loop->n_carries; i++) {
            loop->carries[i] = k->loop->carries[i];
            loop->carries[i].from = tci_concrete_place(k->loop->carries[i].from, values);
            loop->carries[i].to = tci_concrete_place(k->loop->carries[i].to, values);
            loop->carries[i].bytes = tci_dim_value(loop->carries[i].bytes, values);
        }
        to->loop = loop;
    }
}

TCI_FN tci_kernel *tci_kernel_at(tci_scratch *s, const tci_kernel *k, const int64_t *values)
{
    tci_kernel *to = tci_concrete_frame(s, k, values);
    if (k->n_members) {
        tci_concrete_members(s, to, k, values);
        return to;
    }
    tci_concrete c = {k, to, values, TCI_NEW_ARRAY(s, int, k->n_kx + 1),
                      TCI_NEW_ARRAY(s, int, k->n_insts + 1)};
    for (int x = 0; x < k->n_kx; x++) {
        c.kx_to[x] = -1;
    }
    for (int i = 0; i < k->n_insts; i++) {
        tci_concrete_inst(&c, i);
    }
    for (int r = 0; r < to->n_reds; r++) {
        for (int i = 0; i < tci_red_takes(k->reds[r].op); i++) {
            to->reds[r].in[i] = c.inst_to[k->reds[r].in[i]];
        }
    }
    for (int t = 0; t < k->n_stages; t++) {
        const tci_kstage *stage = &k->stages[t];
        to->stages[t].from = stage->from >= 0 ? tci_concrete_kx(&c, stage->from) : -1;
        to->stages[t].to = stage->to >= 0 ? tci_concrete_kx(&c, stage->to) : -1;
    }
    for (int w = 0; w < k->n_stores; w++) {
        tci_kstore store = k->stores[w];
        store.x = tci_concrete_kx(&c, store.x);
        store.value = c.inst_to[store.value];
        store.guard = store.guard >= 0 ? c.inst_to[store.guard] : -1;
        tci_kernel_store(to, store);
    }
    return to;
}

#endif
