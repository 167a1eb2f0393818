/* plan/loop_in_kernel.c - turns a loop with little work per iteration into one kernel that
 * contains the loop (a persistent kernel on a GPU).
 *
 * In: a plan whose loops (REPEAT) are ranges of steps. Out: the same plan; each range that
 * qualifies is one step, whose kernel (tci_kloop, kernel/ir.h) has the kernels of those steps as
 * members and the iterations as tasks; the steps that set the carries come first. Inner loops were
 * converted first, so a member may be a loop. Members of a merged kernel become members of the
 * loop.
 *
 * The gain: an iteration needs no calls through pointers and no operand updates, and its
 * temporaries and small carries are local scalars, which the C compiler keeps in registers. The
 * loss: the loop runs on one thread, or one thread block. So an iteration must take less than
 * TCI_FLOOP_ROUND_NS under the cost model.
 *
 * Invariants: in other ranges only step numbers, moves and turns change; the loop has one operand
 * per buffer, starting at the buffer's first byte; no step refers to a buffer that became a local
 * scalar. */
#include "fusion_groups.h"

#include <string.h>

enum {
    TCI_FLOOP_CALLS = 16,       /* members of a loop, at most */
    TCI_FLOOP_ROUNDS = 1 << 14, /* of a loop on blocks, at most */
    TCI_FLOOP_CARRY = 4,        /* elements of a carry in local scalars, at most, */
    TCI_FLOOP_CELL = 2048,      /* bytes of a temporary in local scalars, */
    TCI_FLOOP_CELLS = 16384,    /* and of all local scalars; */
    TCI_FLOOP_SHARED = 4096     /* of blocks, which share them, where a barrier costs as much */
};
/* Half of what is worth a second thread (run/program.c). */
#define TCI_FLOOP_ROUND_NS 10000.0

typedef struct tci_floop {
    tci_scratch *s;
    tci_plan *p;
    tci_machine machine;
    tci_span *span;
    int64_t cell_bytes;  /* of all local scalars so far */
    int32_t *operand_of; /* per buffer: the loop's operand + 1, */
    int32_t *cell_of;    /* or its scalar's number + 1; 0: none yet */
    tci_kernel *kernel;
    tci_kloop *loop;
    tci_step step;
    int cap_places, cap_operands, cap_offsets, cap_literals, cap_members, cap_origins, n_buffers;
} tci_floop;

/* ---- which spans ---- */

/* Time that one thread, or one block, takes for all of kernel k. Negative: no schedule of it can be
 * part of a loop. */
static double tci_floop_ns(const tci_floop *f, const tci_kernel *k)
{
    tci_launch launch;
    bool blocks = f->machine.block_threads > 0;
    if (k->call || k->is_repeat || tci_kernel_earlier(k) || (k->n_members && !k->loop)) {
        return -1;
    }
    if (blocks && (k->loop || k->n_axes > k->n_outer)) {
        return -1;
    }
    tci_machine machine = tci_loop_member_machine(k, f->machine);
    tci_loop_schedule(f->s, k, machine, &launch);
    double tasks = (double)tci_dim_hint(launch.n_tasks);
    bool fits = !blocks || (launch.work_bytes == 0 && tasks <= TCI_FLOOP_CALLS);
    return fits ? launch.call_ns + tasks * launch.task_ns : -1;
}

/* The kernels that step t runs: the members of a merged one, else its own. */
static int tci_floop_kernels(const tci_floop *f, int t, tci_kernel *const **kernels)
{
    tci_kernel *const *own = &f->p->kernels[f->p->steps[t].kernel];
    bool joint = (*own)->n_members && !(*own)->loop;
    *kernels = joint ? (*own)->members : own;
    return joint ? (*own)->n_members : 1;
}

static bool tci_floop_is_small(const tci_floop *f)
{
    double ns = 0;
    int calls = 0;
    for (int t = f->span->enter; t < f->span->last; t++) {
        tci_kernel *const *kernels;
        int n = tci_floop_kernels(f, t, &kernels);
        calls += n;
        for (int i = 0; i < n && calls <= TCI_FLOOP_CALLS; i++) {
            double one = tci_floop_ns(f, kernels[i]);
            ns += t < f->span->first ? 0 : one;
            if (one < 0 || ns > TCI_FLOOP_ROUND_NS) {
                return false;
            }
        }
    }
    return f->span->first < f->span->last && calls <= TCI_FLOOP_CALLS;
}

/* Blocks: one launch is the whole loop, which cannot be cancelled, so it must end soon by itself.
 */
static bool tci_floop_ends_soon(const tci_floop *f)
{
    return f->span->stops < 0 && tci_dim_is_known(f->span->rounds) &&
           tci_dim_known(f->span->rounds) <= TCI_FLOOP_ROUNDS;
}

/* ---- local scalars ---- */

static int tci_floop_add_cell(tci_floop *f, int8_t dtype, int64_t n)
{
    tci_kcell cell = {dtype, n};
    f->cell_bytes += n * tci_dtype_get((tc_dtype)dtype)->bytes;
    TCI_PUSH(f->s, f->loop->cells, f->loop->n_cells, f->loop->cap_cells, cell);
    return f->loop->n_cells - 1;
}

/* True if n elements fit in local scalars. */
static bool tci_floop_has_room(const tci_floop *f, int8_t dtype, tci_dim n, int64_t most)
{
    int64_t bytes = tci_dtype_get((tc_dtype)dtype)->bytes;
    int64_t all = f->machine.block_threads > 0 ? TCI_FLOOP_SHARED : TCI_FLOOP_CELLS;
    return tci_dim_is_known(n) && tci_dim_known(n) > 0 && tci_dim_known(n) <= most &&
           f->cell_bytes + 2 * tci_dim_known(n) * bytes <= all;
}

static bool tci_floop_is_carry(const tci_floop *f, int b)
{
    bool is = false;
    for (int i = 0; i < f->span->n_carries; i++) {
        is = is || f->span->carries[i].buffer == b;
    }
    return is;
}

/* Temporaries of a round. */
static void tci_floop_find_cells(tci_floop *f)
{
    for (int b = 0; b < f->p->n_buffers; b++) {
        const tci_buffer *x = &f->p->buffers[b];
        int64_t bytes = tci_dtype_get((tc_dtype)x->dtype)->bytes;
        bool within = x->kind == TCI_BUF_TEMP && x->last >= 0 && x->first >= f->span->enter &&
                      x->last < f->span->last && !tci_floop_is_carry(f, b);
        if (within && tci_floop_has_room(f, x->dtype, x->n, TCI_FLOOP_CELL / bytes)) {
            f->cell_of[b] = tci_floop_add_cell(f, x->dtype, tci_dim_known(x->n)) + 1;
        }
    }
}

/* ---- operands ---- */

/* The loop's operand that is buffer b. */
static int tci_floop_operand(tci_floop *f, int b)
{
    const tci_buffer *x = &f->p->buffers[b];
    if (!f->operand_of[b]) {
        tci_koperand operand = {x->dtype, false, false, x->n, 0};
        int n = f->kernel->n_operands;
        TCI_PUSH(f->s, f->kernel->operands, f->kernel->n_operands, f->kernel->cap_operands,
                 operand);
        TCI_PUSH(f->s, f->step.operands, f->n_buffers, f->cap_operands, b);
        f->operand_of[b] = n + 1;
    }
    return f->operand_of[b] - 1;
}

static tci_kplace tci_floop_row(tci_floop *f, const tci_span_carry *c, bool next)
{
    tci_kplace place = {tci_floop_operand(f, c->buffer),
                        !c->back     ? TCI_STEP_WALK
                        : c->settles ? TCI_STEP_ANEW
                                     : TCI_STEP_TURN,
                        next ? c->to : c->from, next && c->back ? tci_dim_neg(c->by) : c->by};
    return place;
}

static void tci_floop_add_carries(tci_floop *f)
{
    f->loop->n_carries = f->span->n_carries;
    f->loop->carries = TCI_NEW_ARRAY(f->s, tci_kcarry, f->span->n_carries + 1);
    for (int i = 0; i < f->span->n_carries; i++) {
        const tci_span_carry *c = &f->span->carries[i];
        int8_t dtype = f->p->buffers[c->buffer].dtype;
        tci_dim n = tci_dim_div(c->bytes, tci_dtype_get((tc_dtype)dtype)->bytes);
        bool is_cell = tci_floop_has_room(f, dtype, n, TCI_FLOOP_CARRY);
        f->loop->carries[i] = (tci_kcarry){
            tci_floop_row(f, c, false), tci_floop_row(f, c, true),
            is_cell ? tci_floop_add_cell(f, dtype, tci_dim_known(n)) : -1,
            is_cell ? tci_floop_add_cell(f, dtype, tci_dim_known(n)) : -1, c->bytes};
        f->kernel->operands[f->loop->carries[i].from.base].is_output = true;
    }
}

/* The carry in whose row operand o of step t is, or NULL. */
static const tci_carried *tci_floop_carried(const tci_floop *f, int t, int o)
{
    for (int i = 0; i < f->span->n_carried; i++) {
        const tci_carried *c = &f->span->carried[i];
        if (c->step == t && c->operand == o) {
            return c;
        }
    }
    return NULL;
}

static const tci_move *tci_floop_move(const tci_floop *f, int t, int o)
{
    for (int i = 0; i < f->span->n_moves; i++) {
        const tci_move *m = &f->p->moves[f->span->first_move + i];
        if (m->step == t && m->operand == o) {
            return m;
        }
    }
    return NULL;
}

static tci_kplace tci_floop_place(tci_floop *f, int t, int o)
{
    const tci_step *step = &f->p->steps[t];
    int b = step->operands[o];
    const tci_carried *carried = tci_floop_carried(f, t, o);
    const tci_move *move = tci_floop_move(f, t, o);
    if (carried) {
        const tci_span_carry *c = &f->span->carries[carried->carry];
        const tci_kcarry *made = &f->loop->carries[carried->carry];
        tci_kplace place = carried->next ? made->to : made->from;
        if (made->cell >= 0) {
            tci_dim row = carried->next ? c->to : c->from;
            return (tci_kplace){~(carried->next ? made->next : made->cell), TCI_STEP_WALK,
                                tci_dim_sub(step->offsets[o], row), 0};
        }
        place.offset = step->offsets[o];
        return place;
    }
    if (f->cell_of[b]) {
        return (tci_kplace){~(f->cell_of[b] - 1), TCI_STEP_WALK, step->offsets[o], 0};
    }
    return (tci_kplace){tci_floop_operand(f, b), TCI_STEP_WALK, step->offsets[o],
                        move ? move->by : 0};
}

/* ---- the step ---- */

/* Kernel m becomes a member, from operand `operand` and literal `literal` of step t on. */
static void tci_floop_add_member(tci_floop *f, tci_kernel *m, int t, int operand, int literal)
{
    const tci_step *step = &f->p->steps[t];
    tci_kernel *k = f->kernel;
    TCI_PUSH(f->s, k->members, k->n_members, f->cap_members, m);
    for (int o = 0; o < m->n_operands; o++) {
        tci_kplace place = tci_floop_place(f, t, operand + o);
        if (place.base >= 0 && m->operands[o].is_output) {
            k->operands[place.base].is_output = true;
        }
        TCI_PUSH(f->s, f->loop->places, f->loop->n_places, f->cap_places, place);
    }
    for (int l = 0; l < m->n_literals; l++) {
        TCI_PUSH(f->s, f->step.literals, k->n_literals, f->cap_literals,
                 step->literals[literal + l]);
    }
    k->faults |= m->faults;
    k->flops += m->flops;
    k->bytes += m->bytes;
    k->all_flops = tci_dim_add(k->all_flops, m->all_flops);
    k->all_bytes = tci_dim_add(k->all_bytes, m->all_bytes);
}

/* Of what is counted for one round: all rounds, where it is known how many there are. */
static void tci_floop_count(tci_floop *f)
{
    tci_kernel *k = f->kernel;
    int64_t rounds = f->loop->stops >= 0 ? 1 : tci_dim_hint(f->loop->rounds);
    int64_t most = INT64_MAX / TCI_MAX(TCI_MAX(k->flops, k->bytes), (int64_t)1);
    if (f->loop->stops < 0) {
        k->all_flops = tci_dim_mul(k->all_flops, f->loop->rounds);
        k->all_bytes = tci_dim_mul(k->all_bytes, f->loop->rounds);
    }
    k->flops *= TCI_MIN(rounds, most);
    k->bytes *= TCI_MIN(rounds, most);
}

static void tci_floop_make(tci_floop *f)
{
    const tci_kernel *largest = NULL;
    f->kernel = tci_kernel_make(f->s);
    f->kernel->loop = f->loop = TCI_NEW(f->s, tci_kloop);
    f->loop->rounds = f->span->rounds;
    f->loop->stops = f->span->stops;
    f->step = (tci_step){.kernel = f->p->n_kernels, .group = -1};
    f->operand_of = TCI_NEW_ARRAY(f->s, int32_t, f->p->n_buffers + 1);
    f->cell_of = TCI_NEW_ARRAY(f->s, int32_t, f->p->n_buffers + 1);
    tci_floop_add_carries(f);
    tci_floop_find_cells(f);
    for (int t = f->span->enter; t < f->span->last; t++) {
        tci_kernel *const *kernels;
        int n = tci_floop_kernels(f, t, &kernels), operand = 0, literal = 0;
        f->loop->n_enter += t < f->span->first ? n : 0;
        for (int i = 0; i < n; i++) {
            largest = !largest || kernels[i]->flops >= largest->flops ? kernels[i] : largest;
            tci_floop_add_member(f, kernels[i], t, operand, literal);
            operand += kernels[i]->n_operands;
            literal += kernels[i]->n_literals;
        }
        for (int i = 0; i < f->p->steps[t].n_origins; i++) {
            TCI_PUSH(f->s, f->step.origins, f->step.n_origins, f->cap_origins,
                     f->p->steps[t].origins[i]);
        }
    }
    tci_floop_count(f);
    f->step.offsets = TCI_NEW_ARRAY(f->s, tci_dim, f->kernel->n_operands + 1);
    f->step.literals = f->step.literals ? f->step.literals : TCI_NEW_ARRAY(f->s, int32_t, 1);
    snprintf(f->kernel->name, sizeof(f->kernel->name), "tc_k_loop%.40s", largest->name + 4);
}

/* True if every local scalar has its buffer, and each offset in a carry row is known. */
static bool tci_floop_is_complete(const tci_floop *f)
{
    bool holds = f->kernel->n_operands < TCI_WORK_OPERANDS;
    for (int i = 0; i < f->loop->n_places; i++) {
        const tci_kplace *p = &f->loop->places[i];
        holds = holds && (p->base >= 0 || tci_dim_is_known(p->offset));
    }
    int stops = f->loop->stops;
    return holds && (stops < 0 || f->loop->carries[stops].cell >= 0);
}

/* ---- the plan without the span ---- */

/* Takes n elements of a list of *count out, which may be NULL where it is empty. */
static void tci_floop_cut(void *list, size_t size, int *count, int first, int n)
{
    if (n > 0) {
        char *at = (char *)list + size * (size_t)first;
        memmove(at, at + size * (size_t)n, size * (size_t)(*count - first - n));
        *count -= n;
    }
}

TCI_FN void tci_plan_drop_kernels(tci_scratch *s, tci_plan *p)
{
    int32_t *now = TCI_NEW_ARRAY(s, int32_t, p->n_kernels + 1);
    int n = 0;
    for (int t = 0; t < p->n_steps; t++) {
        now[p->steps[t].kernel] = 1;
    }
    for (int i = 0; i < p->n_kernels; i++) {
        if (now[i]) {
            p->kernels[n] = p->kernels[i];
            now[i] = n++;
        }
    }
    p->n_kernels = n;
    for (int t = 0; t < p->n_steps; t++) {
        p->steps[t].kernel = now[p->steps[t].kernel];
    }
}

static int32_t tci_floop_now(const tci_span *span, int32_t t)
{
    return t < span->enter ? t : t < span->last ? span->enter : t - (span->last - span->enter - 1);
}

static void tci_floop_drop_span(tci_floop *f)
{
    tci_plan *p = f->p;
    const tci_span gone = *f->span;
    int at = (int)(f->span - p->spans);
    for (int i = 0; i < p->n_spans; i++) {
        tci_span *x = &p->spans[i];
        x->enter = tci_floop_now(&gone, x->enter);
        x->first = tci_floop_now(&gone, x->first);
        x->last = tci_floop_now(&gone, x->last);
        for (int c = 0; c < x->n_carried; c++) {
            x->carried[c].step = tci_floop_now(&gone, x->carried[c].step);
        }
        x->first_move -= x->first_move > gone.first_move ? gone.n_moves : 0;
        x->first_turn -= x->first_turn > gone.first_turn ? gone.n_turns : 0;
    }
    memmove(f->span, f->span + 1, sizeof(gone) * (size_t)(p->n_spans - at - 1));
    p->n_spans--;
    tci_floop_cut(p->moves, sizeof(*p->moves), &p->n_moves, gone.first_move, gone.n_moves);
    tci_floop_cut(p->turns, sizeof(*p->turns), &p->n_turns, gone.first_turn, gone.n_turns);
    for (int i = 0; i < p->n_moves; i++) {
        p->moves[i].step = tci_floop_now(&gone, p->moves[i].step);
    }
    for (int i = 0; i < p->n_turns; i++) {
        p->turns[i].step = tci_floop_now(&gone, p->turns[i].step);
    }
}

static void tci_floop_apply(tci_floop *f)
{
    tci_plan *p = f->p;
    const tci_span gone = *f->span;
    TCI_PUSH(f->s, p->kernels, p->n_kernels, p->cap_kernels, f->kernel);
    f->step.group = gone.group;
    p->steps[gone.enter] = f->step;
    memmove(p->steps + gone.enter + 1, p->steps + gone.last,
            sizeof(*p->steps) * (size_t)(p->n_steps - gone.last));
    p->n_steps -= gone.last - gone.enter - 1;
    for (int b = 0; b < p->n_buffers; b++) {
        tci_buffer *x = &p->buffers[b];
        x->first = tci_floop_now(&gone, x->first);
        x->last = f->cell_of[b] ? -1 : x->last < 0 ? x->last : tci_floop_now(&gone, x->last);
    }
    tci_floop_drop_span(f);
    tci_plan_drop_kernels(f->s, p);
}

TCI_FN void tci_plan_fuse_loops(tci_scratch *s, tci_plan *p, tci_machine machine)
{
    for (int i = p->n_spans - 1; i >= 0 && machine.loops && !machine.no_fusion; i--) {
        tci_floop f = {.s = s, .p = p, .machine = machine, .span = &p->spans[i]};
        bool outer = f.span->group >= 0 && f.span->n_within == 0;
        bool ends = machine.block_threads == 0 || tci_floop_ends_soon(&f);
        if (outer && ends && tci_floop_is_small(&f)) {
            tci_floop_make(&f);
            if (tci_floop_is_complete(&f)) {
                tci_floop_apply(&f);
            }
        }
    }
}

#undef TCI_FLOOP_ROUND_NS
