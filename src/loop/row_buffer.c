/* loop/row_buffer.c - lowers reductions that keep inner axes: each row of results goes to a local
 * array that later fused stages read, one outer iteration at a time.
 *
 * In: a stage that keeps axes; the outer indices are bound. Out: its loops: vectors run along the
 * last kept axis, a few of them at once, and for each the other axes are iterated over in order, so
 * every element of the row is accumulated sequentially. The row is an array of the kept instruction
 * (tci_lkeep), from which later stages read it; its lines are whole vectors, so none is partial. */
#include "row_buffer.h"

enum { TCI_KEEP_UNROLL = 4, TCI_KEEP_LINE = 64 /* bytes of a line of the cache */ };

typedef struct tci_row_buffer_walk {
    int stage, axis; /* axis: the last kept one */
    int n_folded;    /* axes that are not kept */
} tci_row_buffer_walk;

/* ---- arrays ---- */

/* True if a product on a matrix unit reads that row. */
static bool tci_row_buffer_is_for_unit(const tci_kernel *k, const tci_kred *red)
{
    bool is = false;
    for (int r = 0; r < k->n_reds; r++) {
        bool takes = k->reds[r].in[0] == red->inst || k->reds[r].in[1] == red->inst;
        is = is || (k->reds[r].order == TCI_ORDER_MATRIX && takes);
    }
    return is;
}

/* The dtype of a row: bf16 where AMX reads it, as its values then are. */
static tc_dtype tci_row_buffer_dtype(const tci_kernel *k, const tci_kred *red)
{
    return tci_row_buffer_is_for_unit(k, red) ? TC_BF16 : (tc_dtype)k->insts[red->inst].dtype;
}

/* Elements of the row of a reduction: whole vectors; 1 where it keeps none. Sets what a step along
 * each kept axis is. Rows that a unit reads or writes, 16 at once, begin in different sets of the
 * first cache. */
static tci_dim tci_row_buffer_elements(const tci_kernel *k, const tci_kred *red, int64_t lanes,
                                       tci_dim *coef)
{
    const tci_kstage *st = &k->stages[red->stage];
    tci_dim n = 1;
    for (int i = st->n_axes - 1; i >= st->n_axes - st->n_kept; i--) {
        tci_dim size = k->axes[st->axes[i]].size;
        int64_t whole = tci_dim_is_known(size) ? lanes : TCI_KEEP_TILE * lanes;
        if (coef) {
            coef[st->axes[i]] = n;
        }
        size = i < st->n_axes - 1 ? size : tci_dim_mul(tci_dim_ceil_div(size, whole), whole);
        n = tci_dim_mul(n, size);
    }
    bool on_unit = red->order == TCI_ORDER_MATRIX || tci_row_buffer_is_for_unit(k, red);
    n = tci_dim_add(n, on_unit ? TCI_KEEP_LINE / tci_dtype_get(tci_row_buffer_dtype(k, red))->bytes
                               : 0);
    return tci_dim_max(n, 1);
}

TCI_FN tci_dim tci_row_buffer_bytes(const tci_kernel *k, int64_t lanes)
{
    tci_dim bytes = 0;
    for (int r = 0; r < k->n_reds; r++) {
        tc_dtype t = tci_row_buffer_dtype(k, &k->reds[r]);
        bytes = tci_dim_add(bytes, tci_dim_mul(tci_row_buffer_elements(k, &k->reds[r], lanes, NULL),
                                               tci_dtype_get(t)->bytes));
    }
    return bytes;
}

/* True if instruction `inst` is evaluated after stage t. */
static bool tci_row_buffer_is_read_after(const tci_kernel *k, int inst, int t)
{
    bool *live = TCI_NEW_ARRAY(k->s, bool, k->n_insts + 1), read = false;
    for (int later = t + 1; later < k->n_stages; later++) {
        tci_cost_mark(k, later, true, live);
        read |= live[inst];
    }
    return read;
}

/* True if nothing reads array `local` after stage t. Several rows may use it, one after the other.
 */
static bool tci_row_buffer_is_free(const tci_build *b, int local, int t)
{
    bool is_free = true;
    for (int j = 0; j < b->n_keeps; j++) {
        is_free = is_free && (b->keeps[j]->local != local ||
                              !tci_row_buffer_is_read_after(b->k, b->keeps[j]->inst, t));
    }
    return is_free;
}

/* A row that takes the place of an earlier one, element by element: values of one stage over the
 * axes of a row that nothing reads any more. -1: there is none. */
static int tci_row_buffer_place(const tci_build *b, const tci_kred *red)
{
    const tci_kernel *k = b->k;
    const tci_kstage *st = &k->stages[red->stage];
    for (int r = 0; r < k->n_reds && st->n_kept == st->n_axes; r++) {
        const tci_kred *old = &k->reds[r];
        const tci_kstage *from = &k->stages[old->stage];
        bool same = old->stage < red->stage && from->n_kept == st->n_kept &&
                    tci_row_buffer_dtype(k, old) == tci_row_buffer_dtype(k, red);
        for (int i = 1; same && i <= st->n_kept; i++) {
            same = from->axes[from->n_axes - i] == st->axes[st->n_axes - i];
        }
        for (int other = 0; same && other < k->n_reds; other++) { /* one row for one */
            same = &k->reds[other] == red || k->reds[other].stage != red->stage;
        }
        for (int j = 0; same && j < b->n_keeps; j++) {
            if (b->keeps[j]->inst == old->inst &&
                tci_row_buffer_is_free(b, b->keeps[j]->local, red->stage)) {
                return b->keeps[j]->local;
            }
        }
    }
    return -1;
}

static void tci_row_buffer_array(tci_build *b, const tci_kred *red, const tci_row_buffer_rows *rows)
{
    int local = tci_row_buffer_place(b, red);
    tc_dtype t = tci_row_buffer_dtype(b->k, red);
    tci_lkeep *keep = tci_build_keep(b, red->inst, local, red->stage);
    tci_dim n = tci_row_buffer_elements(b->k, red, b->l->lanes, keep->coef);
    keep->is_padded = true;
    if (rows->axis >= 0) {
        keep->coef[rows->axis] = n;
        n = tci_dim_mul(n, rows->n);
    }
    if (local >= 0) {
        return;
    }
    /* of a vector that begins in the last row, anywhere, and ends after it */
    n = tci_dim_add(n, b->l->lanes);
    keep->local = rows->thread_scratch ? tci_build_work(b, t, n)
                                       : tci_build_local(b, t, tci_dim_known(n), 0);
}

TCI_FN void tci_row_buffer_arrays(tci_build *b, tci_row_buffer_rows rows)
{
    for (int r = 0; r < b->k->n_reds && tci_kernel_keeps(b->k); r++) {
        if (rows.axis >= 0 || b->k->stages[b->k->reds[r].stage].n_kept > 0) {
            tci_row_buffer_array(b, &b->k->reds[r], &rows);
        }
    }
}

/* ---- the loops ---- */

/* Where a part of the sums ends its sum is added to those before, and the next part begins. */
static void tci_row_buffer_next_part(tci_build *b, const tci_row_buffer_walk *m,
                                     const tci_kred *red, const tci_stage_tuple *acc,
                                     const tci_stage_tuple *total, int n)
{
    tci_loop *l = b->l;
    const tci_kstage *st = &b->k->stages[m->stage];
    tci_lopen open, later;
    tci_lin at = tci_lin_const(0);
    tci_dim all = 1;
    for (int i = 0; i < m->n_folded; i++) {
        tci_dim size = b->k->axes[st->axes[i]].size;
        at = tci_lin_add(b, tci_lin_mul(b, at, size), b->bind[st->axes[i]]->at);
        all = tci_dim_mul(all, size);
    }
    int number = tci_build_lx(b, at);
    int within = tci_lx_make(l, TCI_LX_MOD, number, -1, red->order_n);
    tci_build_if(b, tci_build_in_range(b, within, 0, 0), &open);
    tci_build_if(b, tci_build_in_range(b, number, 1, all), &later);
    for (int i = 0; i < n; i++) {
        tci_stage_tuple none = tci_stage_identity(b, red);
        none.part[0] = tci_build_widen(b, none.part[0], l->lanes);
        tci_stage_assign(b, total[i], tci_stage_joined(b, red, total[i], acc[i]));
        tci_stage_assign(b, acc[i], none);
    }
    tci_build_close(b, &later);
    tci_build_close(b, &open);
}

/* One step of every chain of the stage, for n vectors. */
static void tci_row_buffer_step(tci_build *b, const tci_row_buffer_walk *m, int n,
                                const tci_bind **vecs, const tci_stage_tuple *acc)
{
    for (int i = 0; i < n; i++) {
        tci_build_set(b, m->axis, vecs[i]);
        for (int r = 0; r < b->k->n_reds; r++) {
            const tci_kred *red = &b->k->reds[r];
            if (red->stage == m->stage) {
                tci_stage_tuple at = acc[r * n + i];
                tci_stage_assign(b, at, tci_stage_combine(b, red, at, tci_stage_operands(b, red)));
            }
        }
    }
}

/* True if the stage keeps values rather than sums: each is the maximum of one element. */
static bool tci_row_buffer_has_values(const tci_kernel *k, const tci_row_buffer_walk *m)
{
    bool values = m->n_folded == 0;
    for (int r = 0; r < k->n_reds; r++) {
        values = values && (k->reds[r].stage != m->stage || k->reds[r].op == TCI_RED_MAX);
    }
    return values;
}

/* Values at these vectors: all are loaded before any is stored, since a store may overwrite what
 * another reads. */
static void tci_row_buffer_values(tci_build *b, const tci_row_buffer_walk *m, int n,
                                  const tci_bind **vecs)
{
    const tci_kernel *k = b->k;
    int *values = TCI_NEW_ARRAY(b->s, int, k->n_reds *n + 1);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n * k->n_reds; i++) {
            const tci_kred *red = &k->reds[i % k->n_reds];
            if (red->stage == m->stage) {
                tci_build_set(b, m->axis, vecs[i / k->n_reds]);
                if (pass == 0) {
                    values[i] = tci_build_value(b, red->in[0]);
                } else {
                    tci_build_leave(b, red->inst, values[i]);
                }
            }
        }
    }
}

/* The row's elements at these vectors, from the first to the last step. */
static void tci_row_buffer_body(tci_build *b, void *arg, int n, const tci_bind **vecs)
{
    const tci_row_buffer_walk *m = arg;
    const tci_kernel *k = b->k;
    const tci_kstage *st = &k->stages[m->stage];
    if (tci_row_buffer_has_values(k, m)) {
        tci_row_buffer_values(b, m, n, vecs);
        return;
    }
    tci_stage_tuple *acc = TCI_NEW_ARRAY(b->s, tci_stage_tuple, k->n_reds * n + 1);
    tci_stage_tuple *total = TCI_NEW_ARRAY(b->s, tci_stage_tuple, k->n_reds * n + 1);
    for (int i = 0; i < n * k->n_reds; i++) {
        if (k->reds[i / n].stage == m->stage) {
            acc[i] = tci_stage_accumulator(b, &k->reds[i / n], b->l->lanes);
            total[i] = tci_stage_total(b, &k->reds[i / n], b->l->lanes);
        }
    }
    tci_lopen *open = tci_stage_open(b, st->axes, m->n_folded);
    for (int r = 0; r < k->n_reds; r++) {
        if (k->reds[r].stage == m->stage && k->reds[r].order == TCI_ORDER_SPLIT) {
            tci_row_buffer_next_part(b, m, &k->reds[r], &acc[r * n], &total[r * n], n);
        }
    }
    tci_row_buffer_step(b, m, n, vecs, acc);
    tci_stage_close(b, st->axes, m->n_folded, open);
    for (int i = 0; i < n * k->n_reds; i++) {
        const tci_kred *red = &k->reds[i / n];
        if (red->stage == m->stage && red->order == TCI_ORDER_SPLIT) {
            tci_stage_assign(b, acc[i], tci_stage_joined(b, red, total[i], acc[i]));
        }
    }
    for (int i = 0; i < n; i++) {
        tci_build_set(b, m->axis, vecs[i]);
        for (int r = 0; r < k->n_reds; r++) {
            if (k->reds[r].stage == m->stage) {
                tci_build_leave(b, k->reds[r].inst, tci_build_copy(b, acc[r * n + i].part[0]));
            }
        }
    }
}

/* Groups of vectors from index `from` up to `to`, below `whole`. */
static void tci_row_buffer_groups(tci_build *b, tci_row_buffer_walk *m, int from, int to,
                                  tci_dim whole)
{
    int64_t lanes = b->l->lanes, group = lanes * TCI_KEEP_UNROLL;
    const tci_bind *vecs[TCI_KEEP_UNROLL];
    tci_lopen open;
    tci_lin at = tci_lin_var(b, tci_build_for(b, from, to, group, &open));
    for (int u = 0; u < TCI_KEEP_UNROLL; u++) {
        vecs[u] = tci_stage_vector(b, tci_lin_plus(at, u * lanes), u * lanes,
                                   tci_dim_add(whole, (u + 1) * lanes - group - 1), -1);
    }
    tci_row_buffer_body(b, m, TCI_KEEP_UNROLL, vecs);
    tci_build_close(b, &open);
}

/* A row that is cut: groups on one side, one that may be both, groups on the other. */
static void tci_row_buffer_cut_row(tci_build *b, tci_row_buffer_walk *m, tci_dim whole)
{
    tci_loop *l = b->l;
    const tci_causal *cut = b->cut;
    int64_t group = (int64_t)l->lanes * TCI_KEEP_UNROLL;
    int at = tci_causal_at(b, cut, b->bind[cut->row_axis]->at);
    int from = tci_lx_make(l, TCI_LX_DIV, b->cut_from, -1, group);
    from = tci_lx_make(l, TCI_LX_MUL, from, -1, group);
    for (int part = 0; part < 3; part++) {
        int to = tci_lx_make(l, TCI_LX_ADD, at, tci_lx_const(l, part * (group - 1)), 0);
        to = tci_lx_make(l, TCI_LX_MUL, tci_lx_make(l, TCI_LX_DIV, to, -1, group), -1, group);
        to = tci_lx_make(l, TCI_LX_MIN, to, tci_lx_const(l, whole), 0);
        to = part < 2 ? tci_build_lx(b, tci_build_let(b, to)) : tci_lx_const(l, whole);
        bool is_masked = part == (cut->low ? 0 : 2);
        b->guard = part == 1 ? -1 : cut->guard;
        b->guard_truth = is_masked == (cut->masked == TCI_ALWAYS) ? TCI_ALWAYS : TCI_NEVER;
        b->is_one = is_masked && !cut->low ? cut->is_one : NULL;
        tci_row_buffer_groups(b, m, from, to, whole);
        from = tci_lx_make(l, TCI_LX_MAX, from, to, 0);
    }
    b->guard = -1;
    b->is_one = NULL;
}

TCI_FN void tci_row_buffer_reduce(tci_build *b, int stage)
{
    const tci_kstage *st = &b->k->stages[stage];
    int last = st->n_axes - 1, n_folded = st->n_axes - st->n_kept;
    tci_row_buffer_walk m = {stage, st->axes[last], n_folded};
    tci_lopen *open = tci_stage_open(b, st->axes + n_folded, st->n_kept - 1);
    tci_dim begin = 0, size = b->k->axes[m.axis].size;
    if (n_folded == 0 && tci_causal_is_bound(b, m.axis)) {
        int64_t group = (int64_t)b->l->lanes * TCI_KEEP_UNROLL;
        begin = tci_dim_mul(tci_dim_div(size, group), group);
        tci_row_buffer_cut_row(b, &m, begin);
    }
    tci_stage_vectors(b, begin, size, TCI_KEEP_UNROLL, tci_row_buffer_body, &m);
    tci_build_set(b, m.axis, NULL);
    tci_stage_close(b, st->axes + n_folded, st->n_kept - 1, open);
}
