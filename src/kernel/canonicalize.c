/* kernel/canonicalize.c - canonicalizes a freshly lowered kernel: splits and merges axes, crops
 * operands, removes dead code.
 *
 *   tci_kernel_split_find  names an axis whose split makes a floor-division or remainder affine
 *   tci_kernel_crop        crops an operand to the range that is read
 *   tci_kernel_finish      copies the live part of a kernel in canonical order (stage by stage,
 *                          operands first), merging adjacent axes that every access traverses as
 *                          one; EXP of values that are never positive becomes EXPN
 * The copy makes the text of a kernel independent of how its lowering numbered things. */
#include "canonicalize.h"
#include "value_range.h"

/* ---- what is needed ---- */

/* Instructions that a store or reduction needs. */
static bool *tci_kernel_live(const tci_kernel *k)
{
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1);
    for (int r = 0; r < k->n_reds; r++) {
        for (int i = 0; i < tci_red_takes(k->reds[r].op); i++) {
            live[k->reds[r].in[i]] = true;
        }
    }
    for (int w = 0; w < k->n_stores; w++) {
        live[k->stores[w].value] = true;
        if (k->stores[w].guard >= 0) {
            live[k->stores[w].guard] = true;
        }
    }
    for (int x = 0; x < k->n_kx; x++) { /* indices inside index expressions are kept as well */
        if (k->kx[x].op == TCI_KX_VALUE) {
            live[tci_kx_number(&k->kx[x])] = true;
        }
    }
    for (int i = k->n_insts - 1; i >= 0; i--) {
        for (int a = 0; a < k->insts[i].n_args && (live[i] || k->insts[i].op == TCI_K_FAULT); a++) {
            live[k->insts[i].args[a]] = true;
        }
    }
    return live;
}

static void tci_kernel_mark_kx(const tci_kernel *k, int x, bool *live)
{
    if (x >= 0 && !live[x]) {
        live[x] = true;
        tci_kernel_mark_kx(k, k->kx[x].a, live);
        tci_kernel_mark_kx(k, k->kx[x].b, live);
    }
}

TCI_FN bool *tci_kernel_live_kx(const tci_kernel *k, bool panels)
{
    const bool *needed = tci_kernel_live(k);
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_kx + 1);
    for (int i = 0; i < k->n_insts; i++) {
        const tci_kinst *inst = &k->insts[i];
        bool is_panel = inst->op == TCI_K_LOAD && k->operands[tci_kinst_number(inst)].panel > 0;
        if (needed[i] && (panels || !is_panel)) {
            tci_kernel_mark_kx(k, inst->x, live);
            for (int g = 0; g < inst->n_guards; g++) {
                tci_kernel_mark_kx(k, k->guards[inst->guard + g].x, live);
            }
        }
    }
    for (int w = 0; w < k->n_stores; w++) {
        tci_kernel_mark_kx(k, k->stores[w].x, live);
    }
    for (int t = 0; t < k->n_stages; t++) {
        tci_kernel_mark_kx(k, k->stages[t].from, live);
        tci_kernel_mark_kx(k, k->stages[t].to, live);
    }
    return live;
}

/* ---- splitting ---- */

/* Takes the last term of the sum *x: what *coef stands before. *x: the terms before; -1: none. */
static tci_kx tci_kernel_take_term(const tci_kernel *k, int *x, tci_dim *coef)
{
    tci_kx e = k->kx[*x];
    *x = e.op == TCI_KX_ADD ? e.a : -1;
    e = e.op == TCI_KX_ADD ? k->kx[e.b] : e;
    *coef = e.op == TCI_KX_MUL ? e.c : 1;
    return e.op == TCI_KX_MUL ? k->kx[e.a] : e;
}

static tci_dim tci_kernel_term_split(const tci_kernel *k, int x, tci_dim c, int *axis)
{
    tci_dim factor = 0, coef;
    while (x >= 0) {
        tci_kx e = tci_kernel_take_term(k, &x, &coef);
        if (e.op == TCI_KX_AXIS && tci_dim_lt(0, coef) && tci_dim_divides(coef, c)) {
            tci_dim f = tci_dim_div(c, coef), size = k->axes[tci_kx_number(&e)].size;
            if (f != 1 && f != size && size != 0 && tci_dim_divides(f, size) &&
                tci_dim_most(f) > tci_dim_most(factor)) {
                factor = f;
                *axis = tci_kx_number(&e);
            }
        }
    }
    return factor;
}

TCI_FN bool tci_kernel_split_find(const tci_kernel *k, int *axis, tci_dim *factor)
{
    const bool *live = tci_kernel_live_kx(k, false);
    for (int x = 0; x < k->n_kx; x++) {
        if (live[x] && (k->kx[x].op == TCI_KX_DIV || k->kx[x].op == TCI_KX_MOD)) {
            *factor = tci_kernel_term_split(k, k->kx[x].a, k->kx[x].c, axis);
            if (*factor != 0) {
                return true;
            }
        }
    }
    return false;
}

TCI_FN bool tci_kernel_dots_divide(const tci_kernel *k)
{
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1), divides = false;
    bool *live_kx = TCI_NEW_ARRAY(k->s, bool, k->n_kx + 1);
    for (int r = 0; r < k->n_reds; r++) {
        for (int i = 0; i < tci_red_takes(k->reds[r].op) && k->reds[r].op == TCI_RED_DOT; i++) {
            live[k->reds[r].in[i]] = true;
        }
    }
    for (int i = k->n_insts - 1; i >= 0; i--) {
        const tci_kinst *inst = &k->insts[i];
        for (int a = 0; live[i] && a < inst->n_args; a++) {
            live[inst->args[a]] = true;
        }
        if (live[i]) {
            tci_kernel_mark_kx(k, inst->x, live_kx);
        }
        for (int g = 0; live[i] && g < inst->n_guards; g++) {
            tci_kernel_mark_kx(k, k->guards[inst->guard + g].x, live_kx);
        }
    }
    for (int x = 0; x < k->n_kx; x++) {
        divides |= live_kx[x] && (k->kx[x].op == TCI_KX_DIV || k->kx[x].op == TCI_KX_MOD);
    }
    return divides;
}

/* ---- merging neighbouring axes ---- */

/* The coefficient of `axis` in the sum x, looking only at the terms of this sum. */
static tci_dim tci_kernel_coef(const tci_kernel *k, int x, int axis)
{
    tci_dim coef;
    while (x >= 0) {
        tci_kx e = tci_kernel_take_term(k, &x, &coef);
        if (e.op == TCI_KX_AXIS && e.c == axis) {
            return coef;
        }
    }
    return 0;
}

/* The sums whose axes a merge changes: whole index expressions, and what is divided inside them.
 * In order, each once; returns how many. */
static int tci_kernel_sums(const tci_kernel *k, const bool *live_inst, int *sums)
{
    const bool *live = tci_kernel_live_kx(k, true);
    bool *is_sum = TCI_NEW_ARRAY(k->s, bool, k->n_kx + 1);
    int n = 0;
    for (int i = 0; i < k->n_insts; i++) {
        const tci_kinst *inst = &k->insts[i];
        if (live_inst[i] && inst->x >= 0) {
            is_sum[inst->x] = true;
        }
        for (int g = 0; live_inst[i] && g < inst->n_guards; g++) {
            is_sum[k->guards[inst->guard + g].x] = true;
        }
    }
    for (int w = 0; w < k->n_stores; w++) {
        is_sum[k->stores[w].x] = true;
    }
    for (int t = 0; t < k->n_stages; t++) {
        if (k->stages[t].from >= 0) {
            is_sum[k->stages[t].from] = is_sum[k->stages[t].to] = true;
        }
    }
    for (int x = 0; x < k->n_kx; x++) {
        if (live[x] && (k->kx[x].op == TCI_KX_DIV || k->kx[x].op == TCI_KX_MOD)) {
            is_sum[k->kx[x].a] = true;
        }
    }
    for (int x = 0; x < k->n_kx; x++) {
        if (is_sum[x]) {
            sums[n++] = x;
        }
    }
    return n;
}

/* Both axes belong to the same loop nests, b right after a, and where one is kept the other is. */
static bool tci_kernel_are_neighbours(const tci_kernel *k, int a, int b)
{
    if (k->axes[a].inner != k->axes[b].inner) {
        return false;
    }
    for (int t = 0; t < k->n_stages; t++) {
        int at_a = -2, at_b = -1;
        for (int i = 0; i < k->stages[t].n_axes; i++) {
            at_a = k->stages[t].axes[i] == a ? i : at_a;
            at_b = k->stages[t].axes[i] == b ? i : at_b;
        }
        if (k->axes[a].inner && at_a + 1 != at_b) { /* in neither: -2 + 1 == -1 */
            return false;
        }
        if (at_b >= 0 && at_b == k->stages[t].n_axes - k->stages[t].n_kept) {
            return false; /* the first one that is kept */
        }
    }
    return true;
}

/* True if an axis counts the parts of a row, which a reduction numbers (kernel/ir.h). */
static bool tci_kernel_is_of_parts(const tci_kernel *k, int axis)
{
    const tci_kred *red = tci_kernel_earlier(k);
    return red && !k->axes[axis].inner && axis >= k->n_outer - red->earlier;
}

/* True if lanes are counted along an axis so that they would be others if it were longer. */
static bool tci_kernel_has_lanes(const tci_kernel *k, int axis)
{
    bool lanes = false;
    for (int r = 0; r < k->n_reds; r++) {
        const tci_kred *red = &k->reds[r];
        const tci_kstage *st = &k->stages[red->stage];
        bool any_order = red->op == TCI_RED_ARGMAX || red->op == TCI_RED_ARGMIN ||
                         !tci_dtype_is_float((tc_dtype)red->dtype);
        bool rows = red->order == TCI_ORDER_LANES || red->order == TCI_ORDER_BLOCK_SCAN;
        bool along = rows && !any_order && st->n_axes > 0 && st->axes[st->n_axes - 1] == axis;
        lanes = lanes || (along && !tci_dim_divides(red->order_n, k->axes[axis].size));
    }
    return lanes;
}

/* All sums traverse axes a and b (b the faster) as one: coef a = coef b * size b. */
static bool tci_kernel_can_merge(const tci_kernel *k, const int *sums, int n, int a, int b)
{
    bool as_one = tci_kernel_are_neighbours(k, a, b) && !tci_kernel_is_of_parts(k, b) &&
                  !tci_kernel_has_lanes(k, b);
    for (int i = 0; i < n && as_one; i++) {
        as_one = tci_kernel_coef(k, sums[i], a) ==
                 tci_dim_mul(tci_kernel_coef(k, sums[i], b), k->axes[b].size);
    }
    return as_one;
}

/* ---- the copy ---- */

typedef struct tci_kernel_copy {
    const tci_kernel *from;
    tci_kernel *to;
    int *axis_to;       /* new axis; -1: merged into a faster one, contributes nothing */
    int *inst_to;       /* new instruction; -1: not copied yet */
    int *kx_to;         /* new index expression; -1: not copied yet */
    int *kx_seen, pass; /* pass of the last look for instructions inside it */
    int *stack;
    int n_stack, cap_stack;
} tci_kernel_copy;

static int tci_kernel_copy_kx(tci_kernel_copy *c, int x)
{
    tci_kx e = c->from->kx[x];
    if (c->kx_to[x] >= 0) {
        return c->kx_to[x];
    }
    int a = e.a >= 0 ? tci_kernel_copy_kx(c, e.a) : -1;
    int b = e.b >= 0 ? tci_kernel_copy_kx(c, e.b) : -1, made;
    switch (e.op) {
    case TCI_KX_AXIS:
        made = c->axis_to[tci_kx_number(&e)] < 0
                   ? tci_kx_const(c->to, 0)
                   : tci_kx_axis(c->to, c->axis_to[tci_kx_number(&e)]);
        break;
    case TCI_KX_ADD: made = tci_kx_add(c->to, a, b); break;
    case TCI_KX_MUL: made = tci_kx_mul(c->to, a, e.c); break;
    case TCI_KX_DIV: made = tci_kx_div(c->to, a, e.c); break;
    case TCI_KX_MOD: made = tci_kx_mod(c->to, a, e.c); break;
    case TCI_KX_VALUE: made = tci_kx_value(c->to, c->inst_to[tci_kx_number(&e)], e.lo, e.hi); break;
    default: made = tci_kx_const(c->to, e.c); break;
    }
    c->kx_to[x] = made;
    return made;
}

/* Pushes the instructions inside an index expression that are not copied yet. */
static void tci_kernel_copy_need_kx(tci_kernel_copy *c, int x)
{
    tci_kx e = c->from->kx[x];
    if (c->kx_to[x] >= 0 || c->kx_seen[x] == c->pass) {
        return;
    }
    c->kx_seen[x] = c->pass;
    if (e.op == TCI_KX_VALUE && c->inst_to[tci_kx_number(&e)] < 0) {
        TCI_PUSH(c->to->s, c->stack, c->n_stack, c->cap_stack, tci_kx_number(&e));
    }
    if (e.a >= 0) {
        tci_kernel_copy_need_kx(c, e.a);
    }
    if (e.b >= 0) {
        tci_kernel_copy_need_kx(c, e.b);
    }
}

static void tci_kernel_copy_need(tci_kernel_copy *c, const tci_kinst *i)
{
    for (int a = i->n_args - 1; a >= 0; a--) { /* pushed last, copied first */
        if (c->inst_to[i->args[a]] < 0) {
            TCI_PUSH(c->to->s, c->stack, c->n_stack, c->cap_stack, i->args[a]);
        }
    }
    c->pass++;
    if (i->x >= 0) {
        tci_kernel_copy_need_kx(c, i->x);
    }
    for (int g = 0; g < i->n_guards; g++) {
        tci_kernel_copy_need_kx(c, c->from->guards[i->guard + g].x);
    }
}

/* Guards of one instruction, sharing an equal run that is already there. */
static int tci_kernel_copy_guards(tci_kernel_copy *c, const tci_kinst *i)
{
    if (i->n_guards == 0) {
        return -1;
    }
    tci_kernel *k = c->to;
    tci_kguard *list = TCI_NEW_ARRAY(k->s, tci_kguard, i->n_guards);
    for (int g = 0; g < i->n_guards; g++) {
        list[g] = c->from->guards[i->guard + g];
        list[g].x = tci_kernel_copy_kx(c, list[g].x);
    }
    for (int first = 0; first + i->n_guards <= k->n_guards; first++) {
        bool same = true;
        for (int g = 0; same && g < i->n_guards; g++) {
            const tci_kguard *have = &k->guards[first + g];
            same = have->x == list[g].x && have->lo == list[g].lo && have->hi == list[g].hi;
        }
        if (same) {
            return first;
        }
    }
    int first = k->n_guards;
    for (int g = 0; g < i->n_guards; g++) {
        TCI_PUSH(k->s, k->guards, k->n_guards, k->cap_guards, list[g]);
    }
    return first;
}

static int tci_kernel_copy_inst(tci_kernel_copy *c, int root)
{
    if (c->inst_to[root] >= 0) {
        return c->inst_to[root];
    }
    TCI_PUSH(c->to->s, c->stack, c->n_stack, c->cap_stack, root);
    while (c->n_stack > 0) {
        int n = c->stack[c->n_stack - 1];
        int before = c->n_stack;
        if (c->inst_to[n] < 0) {
            tci_kernel_copy_need(c, &c->from->insts[n]);
        }
        if (c->n_stack > before) {
            continue;
        }
        c->n_stack--;
        if (c->inst_to[n] < 0) {
            tci_kinst i = c->from->insts[n];
            bool power = i.op == TCI_K_PRIM && i.prim == TCI_P_EXP;
            if (power && tci_kernel_is_never_above_0(c->from, i.args[0])) {
                i.prim = TCI_P_EXPN;
            }
            for (int a = 0; a < i.n_args; a++) {
                i.args[a] = c->inst_to[i.args[a]];
            }
            i.x = i.x >= 0 ? tci_kernel_copy_kx(c, i.x) : -1;
            i.guard = tci_kernel_copy_guards(c, &i);
            c->inst_to[n] = tci_kernel_inst(c->to, i);
        }
    }
    return c->inst_to[root];
}

/* The offset of a store, after the loaded indices inside it. */
static int tci_kernel_copy_offset(tci_kernel_copy *c, int x)
{
    for (;;) {
        c->pass++;
        tci_kernel_copy_need_kx(c, x);
        if (c->n_stack == 0) {
            return tci_kernel_copy_kx(c, x);
        }
        int inst = c->stack[c->n_stack - 1];
        c->n_stack = 0;
        tci_kernel_copy_inst(c, inst);
    }
}

static void tci_kernel_copy_stage(tci_kernel_copy *c, int t)
{
    const tci_kernel *from = c->from;
    tci_kernel *to = c->to;
    tci_kstage stage = {from->stages[t].kind,
                        0,
                        TCI_NEW_ARRAY(to->s, int32_t, from->stages[t].n_axes + 1),
                        0,
                        -1,
                        -1};
    if (from->stages[t].from >= 0) {
        stage.from = tci_kernel_copy_offset(c, from->stages[t].from);
        stage.to = tci_kernel_copy_offset(c, from->stages[t].to);
    }
    for (int a = 0; a < from->stages[t].n_axes; a++) {
        int axis = c->axis_to[from->stages[t].axes[a]];
        if (axis >= 0) {
            stage.axes[stage.n_axes++] = axis;
            stage.n_kept += a >= from->stages[t].n_axes - from->stages[t].n_kept;
        }
    }
    TCI_PUSH(to->s, to->stages, to->n_stages, to->cap_stages, stage);
    for (int r = 0; r < from->n_reds; r++) {
        tci_kred red = from->reds[r];
        if (red.stage != t) {
            continue;
        }
        for (int i = 0; i < tci_red_takes(red.op); i++) {
            red.in[i] = tci_kernel_copy_inst(c, red.in[i]);
        }
        TCI_PUSH(to->s, to->reds, to->n_reds, to->cap_reds, red);
        tci_kinst i = from->insts[red.inst];
        i.imm = to->n_reds - 1;
        c->inst_to[red.inst] = tci_kernel_inst(to, i);
        to->reds[to->n_reds - 1].inst = c->inst_to[red.inst];
    }
    for (int w = 0; w < from->n_stores; w++) {
        tci_kstore store = from->stores[w];
        if (store.stage == t) {
            store.value = tci_kernel_copy_inst(c, store.value);
            store.guard = store.guard >= 0 ? tci_kernel_copy_inst(c, store.guard) : -1;
            store.x = tci_kernel_copy_offset(c, store.x);
            tci_kernel_store(to, store);
        }
    }
}

/* order: all axes, as they are to follow each other. */
static tci_kernel *tci_kernel_copy_mapped(const tci_kernel *k, int *axis_to, const int *order,
                                          const tci_dim *sizes)
{
    tci_scratch *s = k->s;
    tci_kernel *to = tci_kernel_make(s);
    for (int i = 0; i < k->n_axes; i++) {
        int a = order[i];
        if (axis_to[a] >= 0) {
            axis_to[a] = tci_kernel_axis(to, sizes[a], k->axes[a].inner);
        }
    }
    /* axes first: the order of terms follows their numbers */
    for (int a = 0; a < to->n_axes; a++) {
        tci_kx_axis(to, a);
    }
    to->vector = k->vector;
    to->operands = k->operands;
    to->n_operands = k->n_operands;
    to->n_literals = k->n_literals;
    to->faults = k->faults;
    tci_kernel_copy c = {k,
                         to,
                         axis_to,
                         TCI_NEW_ARRAY(s, int, k->n_insts + 1),
                         TCI_NEW_ARRAY(s, int, k->n_kx + 1),
                         TCI_NEW_ARRAY(s, int, k->n_kx + 1),
                         0,
                         NULL,
                         0,
                         0};
    for (int i = 0; i < k->n_insts; i++) {
        c.inst_to[i] = -1;
    }
    for (int x = 0; x < k->n_kx; x++) {
        c.kx_to[x] = -1;
    }
    for (int t = 0; t < k->n_stages; t++) {
        tci_kernel_copy_stage(&c, t);
    }
    return to;
}

/* ---- a short last axis ---- */

/* Live loads that traverse an axis with stride 1. */
static int tci_kernel_unit_loads(const tci_kernel *k, const bool *live, int axis)
{
    int n = 0;
    for (int i = 0; i < k->n_insts; i++) {
        n += live[i] && k->insts[i].op == TCI_K_LOAD &&
             tci_kernel_coef(k, k->insts[i].x, axis) == 1;
    }
    return n;
}

/* Vectors go along the last outer axis. Where that is a short one, as of the phases that a store
 * interleaves, and the loads traverse the one before it, the two change places. */
static void tci_kernel_order(const tci_kernel *k, const bool *live, const int *axis_to,
                             const tci_dim *sizes, int *order)
{
    int last = -1, before = -1;
    for (int a = 0; a < k->n_axes; a++) {
        order[a] = a;
        if (axis_to[a] >= 0 && !k->axes[a].inner) {
            before = last;
            last = a;
        }
    }
    bool maps = before >= 0 && k->n_outer == k->n_axes && k->n_reds == 0;
    if (!maps || tci_dim_hint(sizes[last]) > TCI_KERNEL_SHORT ||
        tci_dim_hint(sizes[before]) <= TCI_KERNEL_SHORT) {
        return;
    }
    int units = tci_kernel_unit_loads(k, live, before);
    if (units > 0 && units >= tci_kernel_unit_loads(k, live, last)) {
        for (int a = last; a > before; a--) {
            order[a] = order[a - 1];
        }
        order[before] = last;
    }
}

TCI_FN tci_kernel *tci_kernel_finish(const tci_kernel *k)
{
    bool *live = tci_kernel_live(k);
    int *axis_to = TCI_NEW_ARRAY(k->s, int, k->n_axes + 1);
    int *order = TCI_NEW_ARRAY(k->s, int, k->n_axes + 1);
    int *sums = TCI_NEW_ARRAY(k->s, int, k->n_kx + 1), n_sums = tci_kernel_sums(k, live, sums);
    tci_dim *sizes = TCI_NEW_ARRAY(k->s, tci_dim, k->n_axes + 1);
    for (int a = 0; a < k->n_axes; a++) {
        sizes[a] = k->axes[a].size;
        axis_to[a] = a;
    }
    for (int a = 0; a + 1 < k->n_axes; a++) {
        /* pairwise along a run: a into a+1, that into a+2 ... */
        if (tci_kernel_can_merge(k, sums, n_sums, a, a + 1)) {
            sizes[a + 1] = tci_dim_mul(sizes[a + 1], sizes[a]);
            axis_to[a] = -1;
        }
    }
    tci_kernel_order(k, live, axis_to, sizes, order);
    return tci_kernel_copy_mapped(k, axis_to, order, sizes);
}

/* ---- the range of an operand that is read ---- */

/* The offsets [*lo, *hi] of operand p that its loads touch; false where that is not known. */
static bool tci_kernel_stretch(const tci_kernel *k, int p, int64_t *lo, int64_t *hi)
{
    tci_dim n = k->operands[p].n;
    bool known = tci_dim_is_known(n);
    *lo = INT64_MAX;
    *hi = -1;
    for (int i = 0; i < k->n_insts && known; i++) {
        const tci_kinst *inst = &k->insts[i];
        if (inst->op == TCI_K_LOAD && tci_kinst_number(inst) == p) {
            const tci_kx *x = &k->kx[inst->x];
            known = inst->n_guards == 0 && tci_dim_is_known(x->lo) && tci_dim_is_known(x->hi);
            *lo = known ? TCI_MIN(*lo, tci_dim_known(x->lo)) : 0;
            *hi = known ? TCI_MAX(*hi, tci_dim_known(x->hi)) : 0;
        }
    }
    return known && 0 <= *lo && *lo <= *hi && *hi < tci_dim_known(n); /* not: no point, no load */
}

TCI_FN tci_kernel *tci_kernel_crop(tci_kernel *k, tci_dim *offsets)
{
    int64_t lo, hi;
    bool moved = false;
    for (int p = 0; p < k->n_operands; p++) {
        offsets[p] = 0;
        bool whole = k->operands[p].is_output || k->operands[p].panel > 0;
        if (whole || !tci_kernel_stretch(k, p, &lo, &hi)) {
            continue;
        }
        int bytes = tci_dtype_get((tc_dtype)k->operands[p].dtype)->bytes;
        lo -= lo % (TCI_ALIGNED_BYTES / bytes);
        offsets[p] = lo * bytes;
        k->operands[p].n = hi + 1 - lo;
        moved |= lo > 0;
        for (int i = 0; i < k->n_insts && lo > 0; i++) {
            tci_kinst *inst = &k->insts[i];
            if (inst->op == TCI_K_LOAD && tci_kinst_number(inst) == p) {
                inst->x = tci_kx_add(k, inst->x, tci_kx_const(k, -lo));
            }
        }
    }
    return moved ? tci_kernel_finish(k) : k;
}
