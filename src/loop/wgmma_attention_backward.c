/* loop/wgmma_attention_backward.c - schedules the gradients of fused attention on tensor cores
 * (WGMMA): tiles, pipeline stages, cost.
 *
 * In: a kernel that kernel/match_attention_backward.c matches, the machine. Out: a kernel template
 * (loop/wgmma_attention_backward.h) with its slots as loop IR. */
#include "wgmma_attention_backward.h"

#include "emit_stages.h"

enum {
    TCI_BACKWARD_BARRIERS = 256, /* bytes for them */
    TCI_BACKWARD_ALIGNED = 1024, /* the start of a box */
    TCI_BACKWARD_SLOTS = 2,      /* of rows, if those of the next tile fit too */
    TCI_BACKWARD_RINGS = 2,      /* steps that are there at once, at least, */
    TCI_BACKWARD_MOST_RINGS = 4, /* and at most */
    TCI_BACKWARD_HELD = 200,     /* registers of a thread for accumulators and pairs */
    TCI_BACKWARD_FILL = 4000,    /* cycles to a tile's first pairs, and to store accumulators; */
    TCI_BACKWARD_TURN = 1000,    /* to wait until the other consumer has left its own */
    TCI_BACKWARD_MEET = 200,     /* cycles of a step for barriers */
    TCI_BACKWARD_PAIRS = 16      /* weights, or changes, that an SM makes in a cycle */
};

/* ---- the tile ---- */

/* Bytes of so many factors of a row or step: slabs of 64 elements. */
static int64_t tci_attn_grad_bytes(const tci_attn_grad *x, int factors)
{
    int slabs = 0;
    for (int i = 0; i < factors; i++) {
        slabs += tci_attention_slabs(x->in[i].k);
    }
    return (int64_t)slabs * TCI_MATRIX_DEPTH_STEP * 2;
}

TCI_FN int64_t tci_attn_grad_rows_bytes(const tci_attn_grad *x)
{
    return x->in[0].rows * tci_attn_grad_bytes(x, x->n_in);
}

TCI_FN int64_t tci_attn_grad_step_bytes(const tci_attn_grad *x)
{
    return x->in[0].columns * tci_attn_grad_bytes(x, 2);
}

TCI_FN int64_t tci_attn_grad_values_bytes(const tci_attn_grad *x)
{
    return x->by_step ? (int64_t)x->in[0].columns * x->n_values * 4 : 0;
}

TCI_FN int64_t tci_attn_grad_staged_bytes(const tci_attn_grad *x)
{
    int64_t one = tci_matrix_staged_bytes(&x->out[0]);
    return x->n_out == 1 ? one : TCI_MAX(one, tci_matrix_staged_bytes(&x->out[1]));
}

TCI_FN int64_t tci_attn_grad_shared_bytes(const tci_attn_grad *x)
{
    int64_t step = tci_attn_grad_step_bytes(x) + tci_attn_grad_values_bytes(x);
    return TCI_BACKWARD_ALIGNED + x->slots * tci_attn_grad_rows_bytes(x) + x->rings * step +
           tci_attn_grad_staged_bytes(x) + TCI_BACKWARD_BARRIERS;
}

static void tci_attn_grad_shape(tci_matrix *x, const int64_t *tile)
{
    x->consumers = x->buffers = (int32_t)tile[0];
    x->sub_rows = 1;
    x->columns = (int32_t)tile[1];
    tci_attention_tiles(x, TCI_MATRIX_SUB * x->consumers);
}

/* A row of either product is spread over as many threads. */
TCI_FN void tci_attn_grad_columns(const tci_kernel *k, tci_attn_grad *x)
{
    int lanes = TCI_MATRIX_WARP;
    for (int i = 0; i < x->n_out; i++) {
        tci_matrix *o = &x->out[i];
        o->columns = (int32_t)tci_attn_grad_columns_of(o->n);
        o->own_columns = (int32_t)o->n;
        o->chunks = 1;
        while (lanes < o->columns) {
            lanes *= 2;
        }
    }
    for (int i = 0; i < x->n_out; i++) {
        tci_matrix *o = &x->out[i];
        o->lanes = lanes;
        o->row_threads = TCI_MIN(lanes / 4, TCI_MATRIX_WARP);
        o->staged_pitch = lanes + 8; /* rows begin in different banks */
        tci_matrix_set_groups(k, k->n_stages, o);
    }
}

static int tci_attn_grad_held(const tci_attn_grad *x)
{
    int held = x->in[0].columns / 2 * x->n_in + x->in[0].columns / 4 * x->n_out;
    for (int i = 0; i < x->n_out; i++) {
        held += x->out[i].columns / 2;
    }
    return held;
}

/* Bytes of shared memory that are left, where so many consumers leave their accumulators at
 * once. */
static int64_t tci_attn_grad_room(const tci_machine *machine, tci_attn_grad *x, int buffers)
{
    for (int i = 0; i < x->n_out; i++) {
        x->out[i].buffers = buffers;
    }
    return machine->facts.shared_most - tci_attn_grad_shared_bytes(x);
}

/* The kernel with that tile; false: it does not fit. */
static bool tci_attn_grad_with(const tci_kernel *k, const tci_machine *machine, const int64_t *tile,
                               tci_attn_grad *x)
{
    bool known = (tile[0] == 1 || tile[0] == 2) && tile[1] >= 16 && tile[1] <= 128 &&
                 tile[1] % 16 == 0;
    if (!known || !tci_attn_grad_find(k, x) || !x->on_unit) {
        return false;
    }
    for (int i = 0; i < 2; i++) {
        tci_attn_grad_shape(&x->in[i], tile);
        tci_attn_grad_shape(&x->out[i], tile);
    }
    tci_attn_grad_columns(k, x);
    x->rings = TCI_BACKWARD_RINGS;
    x->slots = 1;
    int64_t step = tci_attn_grad_step_bytes(x) + tci_attn_grad_values_bytes(x);
    int64_t room = tci_attn_grad_room(machine, x, x->in[0].consumers);
    room = room < 0 ? tci_attn_grad_room(machine, x, 1) : room;
    if (room < 0 || tci_attn_grad_held(x) > TCI_BACKWARD_HELD) {
        return false;
    }
    if (room >= tci_attn_grad_rows_bytes(x) + step) {
        room -= tci_attn_grad_rows_bytes(x);
        x->slots = TCI_BACKWARD_SLOTS;
    }
    x->rings = (int32_t)TCI_MIN(x->rings + room / step, TCI_BACKWARD_MOST_RINGS);
    return true;
}

/* The fewer rows a step has, the more a product waits for its factors. */
TCI_FN int tci_attn_grad_tiles(int64_t n[TCI_FORM_CANDIDATES][TCI_FORM_NUMBERS])
{
    static const int64_t steps[TCI_BACKWARD_TILES / 2] = {128, 64, 48, 32};
    for (int i = 0; i < TCI_BACKWARD_TILES; i++) {
        n[i][0] = i < TCI_BACKWARD_TILES / 2 ? 2 : 1;
        n[i][1] = steps[i % (TCI_BACKWARD_TILES / 2)];
    }
    return TCI_BACKWARD_TILES;
}

TCI_FN double tci_attn_grad_ns(const tci_kernel *k, const tci_machine *machine, const int64_t *tile)
{
    tci_attn_grad x;
    if (!tci_attn_grad_with(k, machine, tile, &x)) {
        return -1;
    }
    const tci_matrix *s = &x.in[0];
    double steps = tci_attention_steps(&x.cut, s);
    double cells = (double)s->rows * s->columns;
    double columns = 0;
    for (int i = 0; i < 2; i++) {
        columns += i < x.n_in ? (double)x.in[i].k : 0;
        columns += i < x.n_out ? x.out[i].columns : 0;
    }
    double multiply = 2 * cells * columns / machine->facts.matrix_flops;
    double pairs = x.n_in * cells / TCI_BACKWARD_PAIRS;
    double both = s->consumers == 1 ? multiply + pairs
                                    : TCI_MAX(multiply, pairs) + 0.2 * (multiply + pairs);
    double rounds = (double)tci_dim_known(tci_dim_ceil_div(s->tiles, machine->matrix_units));
    double fill = TCI_BACKWARD_FILL + (tci_attn_grad_turns(&x) ? TCI_BACKWARD_TURN : 0);
    return rounds * (fill + steps * (TCI_BACKWARD_MEET + both)) / machine->facts.ghz;
}

/* ---- the slots ---- */

/* The rows of one of the last products, as a function of its own. */
static tci_loop *tci_attn_grad_rows_hole(tci_build *of, const tci_matrix *x, int stage)
{
    tci_loop *l = tci_loop_make(of->s, of->k);
    tci_build *b = tci_build_make(of->s, of->k, l);
    l->lanes = x->lanes;
    l->threads = x->row_threads;
    l->matrix = x;
    tci_matrix_hole(b, x, stage);
    l->narrow = tci_loop_is_narrow(of->s, l);
    return l;
}

TCI_FN void tci_attn_grad_holes(tci_build *b, tci_attn_grad *x)
{
    const tci_kernel *k = b->k;
    tci_loop *l = b->l;
    l->lanes = x->out[0].lanes;
    l->threads = x->out[0].row_threads;
    l->matrix = &x->out[0];
    l->backward = x;
    uint64_t batch = 0, query = (uint64_t)1 << (x->by_step ? x->in[0].n_axis : x->in[0].m_axis);
    for (int i = 0; i < x->in[0].n_batch; i++) {
        batch |= (uint64_t)1 << x->in[0].batch_axis[i];
    }
    uint64_t all = batch | (uint64_t)1 << x->in[0].m_axis | (uint64_t)1 << x->in[0].n_axis;
    int32_t given[TCI_BACKWARD_VALUES + 2] = {x->weight, x->changes};
    for (int i = 2; i < x->n_values; i++) {
        given[i] = x->values[i];
    }
    const tci_matrix *m = &x->in[0];
    const int32_t *product = &x->scores;
    l->scores[l->n_scores++] = tci_attention_hole(b, m, batch | query, NULL, 0, x->values,
                                                  x->n_values);
    if (x->cut.is_cut) {
        l->scores[l->n_scores++] = tci_attention_hole(b, m, 0, NULL, 0, &x->cut.off, 1);
    }
    l->scores[l->n_scores++] = tci_attention_hole(b, m, all, product, 1, &x->score, 1);
    if (x->cut.is_cut) {
        l->scores[l->n_scores++] = tci_attention_hole(b, m, all, product, 1, &x->cut.seen, 1);
    }
    if (x->n_in > 1) {
        l->scores[l->n_scores++] = tci_attention_hole(b, m, all, given, x->n_values, &x->change, 1);
    }
    int stage = 0; /* the last one that reduces */
    for (int r = 0; r < k->n_reds; r++) {
        stage = TCI_MAX(stage, k->reds[r].stage);
    }
    if (x->n_out > 1) {
        l->scores[l->n_scores++] = tci_attn_grad_rows_hole(b, &x->out[1], stage);
    }
    tci_matrix_hole(b, &x->out[0], stage);
}

/* ---- the whole ---- */

TCI_FN void tci_attn_grad_emit(tci_build *b, const tci_machine *machine, const int64_t *tile,
                               tci_launch *launch)
{
    tci_attn_grad *x = TCI_NEW(b->s, tci_attn_grad);
    bool fits = tci_attn_grad_with(b->k, machine, tile, x);
    TCI_ASSERT(b->s, fits);
    tci_attn_grad_holes(b, x);
    launch->n_tasks = TCI_MIN(x->in[0].tiles, machine->matrix_units);
    launch->task_ns = tci_attn_grad_ns(b->k, machine, tile);
}
