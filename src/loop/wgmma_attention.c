/* loop/wgmma_attention.c - schedules fused attention on tensor cores (WGMMA): tiles, pipeline
 * stages, cost.
 *
 * In: a kernel of class STEPS, the machine. Out: a kernel template (loop/wgmma_attention.h) with
 * two slots as loop IR: the value of a score, and the epilogue of loop/wgmma_gemm.c. */
#include "wgmma_attention.h"

#include "emit_stages.h"

enum {
    TCI_ATTENTION_BARRIERS = 512, /* bytes for them, and for words between warps */
    TCI_ATTENTION_ALIGNED = 1024, /* the start of a box */
    TCI_ATTENTION_SLOTS = 2,      /* of queries, if those of the next tile fit too */
    TCI_ATTENTION_RINGS = 2,      /* steps that are there at once, at least, */
    TCI_ATTENTION_MOST_RINGS = 4, /* and at most */
    TCI_ATTENTION_HELD = 176,     /* a thread's registers for accumulators, scores, exponentials */
    TCI_ATTENTION_FILL = 3000,    /* cycles to a tile's first scores, and to store accumulators */
    TCI_ATTENTION_MEET = 300,     /* cycles of a step for barriers, and to scale the accumulators */
    TCI_ATTENTION_POWERS = 16,    /* that an SM makes in a cycle */
    TCI_ATTENTION_ROUND = 8       /* columns of a product: a multiple of twice this */
};

TCI_FN int64_t tci_attention_queries_bytes(const tci_attention *x)
{
    return (int64_t)x->scores.rows * tci_attention_slabs(x->scores.k) * TCI_MATRIX_DEPTH_STEP * 2;
}

TCI_FN int64_t tci_attention_keys_bytes(const tci_attention *x)
{
    return (int64_t)x->scores.columns * tci_attention_slabs(x->scores.k) * TCI_MATRIX_DEPTH_STEP *
           2;
}

TCI_FN int64_t tci_attention_values_bytes(const tci_attention *x)
{
    return (int64_t)x->scores.columns * tci_attention_slabs(x->result.n) * TCI_MATRIX_DEPTH_STEP *
           2;
}

TCI_FN int64_t tci_attention_shared_bytes(const tci_attention *x)
{
    int64_t step = tci_attention_keys_bytes(x) + tci_attention_values_bytes(x);
    return TCI_ATTENTION_ALIGNED + x->slots * tci_attention_queries_bytes(x) + x->rings * step +
           tci_matrix_staged_bytes(&x->result) + TCI_ATTENTION_BARRIERS;
}

TCI_FN void tci_attention_tiles(tci_matrix *x, int rows)
{
    x->rows = rows;
    x->tiles_m = tci_dim_known(tci_dim_ceil_div(x->m, x->rows));
    x->tiles_n = 1;
    x->tiles = x->tiles_m;
    for (int i = 0; i < x->n_batch; i++) {
        x->tiles *= x->batch[i];
    }
}

/* Tile shape that both products share. */
static void tci_attention_shape(tci_matrix *x, int consumers)
{
    x->consumers = x->buffers = consumers;
    x->sub_rows = 1;
    tci_attention_tiles(x, TCI_MATRIX_SUB * consumers);
}

TCI_FN void tci_attention_columns(tci_matrix *x)
{
    int step = 2 * TCI_ATTENTION_ROUND;
    x->columns = (int32_t)((x->n + step - 1) / step * step);
    x->own_columns = (int32_t)x->n;
    x->chunks = 1;
    x->lanes = TCI_MATRIX_WARP;
    while (x->lanes < x->columns) {
        x->lanes *= 2;
    }
    x->row_threads = TCI_MIN(x->lanes / 4, TCI_MATRIX_WARP);
    x->staged_pitch = x->lanes + 8; /* rows begin in different banks */
}

/* The kernel with that tile; false: it does not fit. */
static bool tci_attention_with(const tci_kernel *k, const tci_machine *machine, const int64_t *tile,
                               tci_attention *x)
{
    bool known = (tile[0] == 1 || tile[0] == 2) && (tile[1] == 64 || tile[1] == 128) &&
                 (tile[2] == 0 || (tile[2] == 1 && tile[0] == 2));
    if (!known || !tci_attention_find(k, x) || !x->on_unit) {
        return false;
    }
    tci_attention_shape(&x->scores, (int)tile[0]);
    tci_attention_shape(&x->result, (int)tile[0]);
    tci_attention_columns(&x->result);
    x->scores.columns = (int32_t)tile[1];
    tci_matrix_set_groups(k, k->reds[k->n_reds - 1].stage + 1, &x->result);
    x->rings = TCI_ATTENTION_RINGS;
    x->slots = 1;
    int64_t step = tci_attention_keys_bytes(x) + tci_attention_values_bytes(x);
    int64_t room = machine->facts.shared_most - tci_attention_shared_bytes(x);
    int held = x->result.columns / 2 + x->scores.columns * 3 / 4;
    if (room < 0 || held > TCI_ATTENTION_HELD) {
        return false;
    }
    if (room >= tci_attention_queries_bytes(x)) {
        room -= tci_attention_queries_bytes(x);
        x->slots = TCI_ATTENTION_SLOTS;
    }
    x->rings = (int32_t)TCI_MIN(x->rings + room / step, TCI_ATTENTION_MOST_RINGS);
    x->turns = tile[2];
    return true;
}

/* Cycles of a step. Of two consumers one multiplies while the other computes exponentials; turns
 * keep them so, but cost more than they give if all products are short. */
static double tci_attention_step(const tci_attention *x, double multiply, double powers)
{
    bool is_short = x->scores.k + x->result.n <= 2 * TCI_MATRIX_DEPTH_STEP && !x->cut.is_cut;
    double bare = !x->turns ? 0.2 : is_short ? 0.22 : 0.15; /* of both */
    double both = TCI_MAX(multiply, powers) + bare * (multiply + powers);
    return TCI_ATTENTION_MEET + (x->scores.consumers == 1 ? multiply + powers : both);
}

TCI_FN double tci_attention_ns(const tci_kernel *k, const tci_machine *machine, const int64_t *tile)
{
    tci_attention x;
    if (!tci_attention_with(k, machine, tile, &x)) {
        return -1;
    }
    double steps = tci_attention_steps(&x.cut, &x.scores);
    double cells = (double)x.scores.rows * x.scores.columns;
    double multiply = 2 * cells * (double)(x.scores.k + x.result.n) / machine->facts.matrix_flops;
    double powers = cells / TCI_ATTENTION_POWERS;
    double rounds = (double)tci_dim_known(tci_dim_ceil_div(x.scores.tiles, machine->matrix_units));
    double step = tci_attention_step(&x, multiply, powers);
    return rounds * (TCI_ATTENTION_FILL + steps * step) / machine->facts.ghz;
}

/* ---- the slots of a point ---- */

TCI_FN tci_loop *tci_attention_hole(tci_build *of, const tci_matrix *x, uint64_t axes,
                                    const int32_t *given, int n_given, const int32_t *makes,
                                    int n_makes)
{
    const tci_kernel *k = of->k;
    tci_loop *l = tci_loop_make(of->s, k);
    tci_build *b = tci_build_make(of->s, k, l);
    l->matrix = x;
    int local = tci_build_local(b, TC_F32, TCI_MAX(n_given, n_makes), 0);
    l->locals[local].is_given = true;
    for (int i = 0; i < n_given; i++) {
        tci_build_keep(b, given[i], local, 0)->base = tci_lin_const(i);
    }
    for (int a = 0; a < k->n_axes; a++) {
        if (axes >> a & 1) {
            tci_lin at = tci_build_let(b, tci_lx_make(l, TCI_LX_GIVEN, -1, -1, a));
            tci_build_set(b, a,
                          tci_build_bind(b, at, 0, tci_dim_known(k->axes[a].size) - 1, false, -1));
        }
    }
    b->stage = k->n_stages;
    for (int i = 0; i < n_makes; i++) {
        tci_lstmt store = tci_loop_stmt(TCI_L_MEM);
        store.mem = TCI_MEM_STORE_ONE;
        store.base = ~local;
        store.x = tci_lx_const(l, i);
        store.args[0] = tci_build_value(b, makes[i]);
        tci_loop_append(l, 0, store);
    }
    l->narrow = tci_loop_is_narrow(of->s, l);
    return l;
}

/* ---- the values of a row ---- */

/* Largest score and sum of the rows at hand, where the main loop has left them: after the columns
 * of what is staged. */
static void tci_attention_keep_row(tci_build *b, const tci_matrix *x, int inst, int at, int stage)
{
    int floats = tci_dtype_get((tc_dtype)x->staged)->bytes == 4 ? 1 : 2; /* elements to a float */
    int local = tci_build_local(b, TC_F32, x->group_rows * x->staged_pitch / floats, 0);
    b->l->locals[local].is_given = true;
    tci_lkeep *keep = tci_build_keep(b, inst, local, stage);
    keep->base = tci_lin_const(x->lanes / floats + at);
    keep->coef[x->m_axis] = x->staged_pitch / floats;
    keep->origin[x->m_axis] = tci_matrix_given(b, x->m_axis);
}

static void tci_attention_tell_rows(tci_build *b, const tci_attention *a)
{
    const tci_matrix *x = &a->result;
    const tci_kernel *k = b->k;
    int stage = k->reds[k->n_reds - 1].stage;
    tci_attention_keep_row(b, x, a->most, 0, stage);
    tci_attention_keep_row(b, x, a->sum, 1, stage);
    tci_lin at = tci_matrix_given(b, x->m_axis);
    for (int i = 0; i < x->n_batch; i++) {
        tci_build_set(b, x->batch_axis[i],
                      tci_build_bind(b, tci_matrix_given(b, x->batch_axis[i]), 0, x->batch[i] - 1,
                                     false, -1));
    }
    b->stage = stage + 1;
    for (int r = 0; r < x->group_rows; r++) {
        tci_build_set(b, x->m_axis,
                      tci_build_bind(b, tci_lin_plus(at, r), r, x->m - x->group_rows + r, false,
                                     -1));
        for (int i = 0; i < k->n_stores; i++) {
            if (k->stages[k->stores[i].stage].n_axes == 0) {
                tci_build_store(b, &k->stores[i], tci_build_value(b, k->stores[i].value), false);
            }
        }
    }
}

/* ---- the whole ---- */

TCI_FN void tci_attention_holes(tci_build *b, tci_attention *x)
{
    b->l->lanes = x->result.lanes;
    b->l->threads = x->result.row_threads;
    b->l->matrix = &x->result;
    b->l->attention = x;
    const tci_matrix *s = &x->scores;
    const int32_t *product = &b->k->reds[0].inst, score[2] = {x->score, x->cut.seen};
    uint64_t axes = (((uint64_t)1 << b->k->n_outer) - 1) | (uint64_t)1 << s->n_axis;
    for (int i = 0; i < 1 + x->cut.is_cut; i++) {
        b->l->scores[b->l->n_scores++] = tci_attention_hole(b, s, axes, product, 1, &score[i], 1);
    }
    if (x->tells) {
        tci_attention_tell_rows(b, x);
    }
    if (!x->is_rows) {
        tci_matrix_hole(b, &x->result, b->k->reds[b->k->n_reds - 1].stage);
    }
}

TCI_FN void tci_attention_emit(tci_build *b, const tci_machine *machine, const int64_t *tile,
                               tci_launch *launch)
{
    tci_attention *x = TCI_NEW(b->s, tci_attention);
    bool fits = tci_attention_with(b->k, machine, tile, x);
    TCI_ASSERT(b->s, fits);
    tci_attention_holes(b, x);
    launch->n_tasks = TCI_MIN(x->scores.tiles, machine->matrix_units);
    launch->task_ns = tci_attention_ns(b->k, machine, tile);
}
