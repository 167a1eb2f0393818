/* plan/horizontal_fusion.c - implements horizontal fusion: merges independent small kernels of a
 * run into one launch.
 *
 * In: the steps of a run, in order. Out: the same, some of them merged into one step, whose kernel
 * (a joint, kernel/ir.h) has theirs as members.
 *
 * Design: the distance of a step is the length of the longest chain of steps after it. Steps of
 * equal distance are independent, and merging them creates no cycle, however many merges there
 * are. So the updates of all parameters, which nothing follows, merge, wherever their gradients
 * were computed.
 *
 * Merged are kernels that take little time next to a launch and lose nothing by it; on CPUs, where
 * a launch costs nothing, those that take little time next to waking a thread, if together they
 * are worth several threads. On CPUs they may be GEMMs: products of one operand, such as q, k and
 * v, are one parallel region, each with its own epilogue. (Concatenated weights would cost a copy
 * and break the epilogues.) A merged kernel holds the memory of all members at once: if the
 * workspace grows by more than a fraction of its size plus the largest traffic allowed for one
 * member, only smaller kernels are merged, or none. */
#include "fusion_groups.h"

#include <string.h>

enum {
    TCI_HORIZONTAL_WORDS = 480, /* operands and literals of a merged kernel: the most that a launch
                                 * can be given */
    TCI_HORIZONTAL_BOXES =
        16384, /* other shared bytes: those of the definitions of a block's exchanges */
    TCI_HORIZONTAL_STEPS = 4096, /* of a plan that is looked at */
    TCI_HORIZONTAL_TRIES = 3,    /* limits of a member's size, */
    TCI_HORIZONTAL_SMALLER = 16, /* each this many times smaller than the one before */
    TCI_HORIZONTAL_TURNED = 16,  /* a transposed array's bytes count so often */
    TCI_HORIZONTAL_REUSE = 8,    /* flops of a GEMM in the time of a byte */
    TCI_HORIZONTAL_GROWTH = 32   /* part by which the workspace may grow */
};
/* The most time of a member, in times of a launch, or of waking a thread; where launches cost
 * nothing, the least time of all members of a merged kernel together. */
#define TCI_HORIZONTAL_MOST 4.0
#define TCI_HORIZONTAL_LEAST 4.0

typedef struct tci_horizontal {
    tci_scratch *s;
    const tci_plan *p;
    bool blocks;
    double most, least;      /* bytes or operations of a member; of a merged kernel */
    int64_t shared;          /* blocks: bytes that all members may share */
    const int32_t *distance; /* per step */
    int32_t *writers;        /* per buffer */
    int32_t *unit;
    int n_units; /* per step: which step it becomes */
} tci_horizontal;

/* ---- which steps ---- */

/* True if a GEMM, which has work memory on a CPU, is in the kernel. */
static bool tci_horizontal_multiplies(const tci_kernel *k)
{
    bool any = false;
    for (int r = 0; r < k->n_reds; r++) {
        any = any || k->reds[r].op == TCI_RED_DOT;
    }
    return any;
}

static double tci_horizontal_work(const tci_kernel *k)
{
    int64_t flops = tci_horizontal_multiplies(k) ? k->flops / TCI_HORIZONTAL_REUSE : k->flops;
    return (double)TCI_MAX(k->bytes, flops);
}

/* No values along inner axes but sums of them: such a kernel needs no memory of its own. Nor that
 * of a block of threads, where it traverses one row once. */
static bool tci_horizontal_stages_fit(const tci_horizontal *b, const tci_kernel *k)
{
    bool fit = k->n_stages > 0;
    int walks = 0;
    for (int i = 0; i < k->n_stages; i++) {
        const tci_kstage *stage = &k->stages[i];
        bool map = stage->kind == TCI_STAGE_MAP && stage->n_axes == 0;
        bool sums = stage->kind == TCI_STAGE_REDUCE && stage->n_kept == 0;
        walks += sums;
        fit = fit && (map || sums);
    }
    if (b->blocks && walks) {
        fit = fit && walks == 1 && k->vector == TCI_VEC_INNER;
    }
    for (int r = 0; r < k->n_reds; r++) {
        bool plain = k->reds[r].order != TCI_ORDER_MATRIX;
        fit = fit && (k->reds[r].op != TCI_RED_DOT || (!b->blocks && plain));
    }
    return fit;
}

/* True if the kernel transposes an array, so that neighbours in the result are read some elements
 * apart. A block would exchange square tiles through shared memory (loop/smem_transpose.c), which a
 * member does not have. */
static bool tci_horizontal_turns(const tci_horizontal *b, const tci_kernel *k)
{
    tci_dim base, *coef = TCI_NEW_ARRAY(b->s, tci_dim, k->n_axes + 1);
    int last = k->n_outer - 1;
    bool turns = false;
    for (int i = 0; i < k->n_insts && b->blocks && last >= 0; i++) {
        bool linear = k->insts[i].op == TCI_K_LOAD && tci_kx_affine(k, k->insts[i].x, coef, &base);
        turns = turns || (linear && tci_dim_lt(1, coef[last]));
    }
    return turns;
}

static bool tci_horizontal_fits(const tci_horizontal *b, int t)
{
    const tci_step *step = &b->p->steps[t];
    const tci_kernel *k = b->p->kernels[step->kernel];
    bool fits = !k->call && !k->is_repeat && tci_horizontal_stages_fit(b, k) &&
                tci_horizontal_work(k) * (tci_horizontal_turns(b, k) ? TCI_HORIZONTAL_TURNED : 1) <=
                    b->most;
    for (int a = 0; a < k->n_axes; a++) {
        fits = fits && tci_dim_is_known(k->axes[a].size);
    }
    for (int o = 0; o < k->n_operands; o++) {
        fits = fits && tci_dim_is_known(k->operands[o].n) &&
               (!k->operands[o].is_output || b->writers[step->operands[o]] == 1);
    }
    return fits;
}

static int tci_horizontal_words(const tci_kernel *k)
{
    return k->n_operands + k->n_literals;
}

/* Bytes that a block of threads shares to exchange what it sums up, at most. */
static int64_t tci_horizontal_shared(const tci_horizontal *b, const tci_kernel *k)
{
    int64_t bytes = 0;
    for (int r = 0; r < k->n_reds && b->blocks; r++) {
        bytes += (int64_t)tci_kernel_lanes(k) * tci_red_parts(k->reds[r].op) *
                 tci_dtype_get((tc_dtype)k->reds[r].dtype)->bytes;
    }
    return bytes;
}

/* True if the kernel of steps[at] is one of those from `first` on. */
static bool tci_horizontal_is_there(const tci_horizontal *b, const int32_t *steps, int first,
                                    int at)
{
    while (first < at && b->p->steps[steps[first]].kernel != b->p->steps[steps[at]].kernel) {
        first++;
    }
    return first < at;
}

/* Steps of one distance, from `first`: as many as one launch takes are one unit from now on, if
 * that pays. Returns the next one, after them. */
static int tci_horizontal_one(tci_horizontal *b, const int32_t *steps, int first, int n)
{
    int words = 0, operands = 0, end = first;
    bool works = false;
    int64_t shared = 0;
    double work = 0;
    for (; end < n && b->distance[steps[end]] == b->distance[steps[first]]; end++) {
        const tci_kernel *k = b->p->kernels[b->p->steps[steps[end]].kernel];
        words += tci_horizontal_words(k);
        operands += k->n_operands;
        works = works || tci_horizontal_multiplies(k);
        if (!tci_horizontal_is_there(b, steps, first, end)) {
            shared += tci_horizontal_shared(b, k);
        }
        bool full = words > TCI_HORIZONTAL_WORDS || (works && operands > TCI_WORK_OPERANDS);
        if (full || (end > first && shared > b->shared)) {
            break;
        }
        work += tci_horizontal_work(k);
    }
    for (int i = first; i < end && work >= b->least; i++) {
        b->unit[steps[i]] = b->unit[steps[first]];
    }
    return TCI_MAX(end, first + 1);
}

/* By distance, and in their order. */
static void tci_horizontal_sort(const tci_horizontal *b, int32_t *steps, int n)
{
    int32_t *begin = TCI_NEW_ARRAY(b->s, int32_t, b->p->n_steps + 2);
    int32_t *sorted = TCI_NEW_ARRAY(b->s, int32_t, n + 1);
    for (int i = 0; i < n; i++) {
        begin[b->distance[steps[i]] + 1]++;
    }
    for (int d = 0; d < b->p->n_steps; d++) {
        begin[d + 1] += begin[d];
    }
    for (int i = 0; i < n; i++) {
        sorted[begin[b->distance[steps[i]]]++] = steps[i];
    }
    memcpy(steps, sorted, sizeof(*steps) * (size_t)n);
}

/* False: nothing is joined. */
static bool tci_horizontal_choose(tci_horizontal *b)
{
    int32_t *steps = TCI_NEW_ARRAY(b->s, int32_t, b->p->n_steps + 1);
    int n = 0;
    for (int t = 0; t < b->p->n_steps; t++) {
        b->unit[t] = t;
        if (t >= b->p->n_init && tci_horizontal_fits(b, t)) {
            steps[n++] = t;
        }
    }
    tci_horizontal_sort(b, steps, n);
    for (int i = 0; i < n;) {
        i = tci_horizontal_one(b, steps, i, n);
    }
    bool any = false;
    for (int t = 0; t < b->p->n_steps; t++) {
        any = any || b->unit[t] != t;
    }
    return any;
}

/* ---- joints ---- */

/* The kernel of n steps, which the plan may have already. */
static int tci_horizontal_kernel(tci_scratch *s, tci_plan *p, const tci_step *steps, int n)
{
    for (int i = p->n_kernels - 1; i >= 0 && p->kernels[i]->n_members; i--) {
        bool same = p->kernels[i]->n_members == n;
        for (int m = 0; m < n && same; m++) {
            same = p->kernels[i]->members[m] == p->kernels[steps[m].kernel];
        }
        if (same) {
            return i;
        }
    }
    tci_kernel *k = tci_kernel_make(s);
    k->members = TCI_NEW_ARRAY(s, tci_kernel *, n);
    k->n_members = n;
    for (int i = 0; i < n; i++) {
        tci_kernel *m = k->members[i] = p->kernels[steps[i].kernel];
        for (int o = 0; o < m->n_operands; o++) {
            TCI_PUSH(s, k->operands, k->n_operands, k->cap_operands, m->operands[o]);
        }
        k->n_literals += m->n_literals;
        k->faults |= m->faults;
        k->flops += m->flops;
        k->bytes += m->bytes;
        k->all_flops = tci_dim_add(k->all_flops, m->all_flops);
        k->all_bytes = tci_dim_add(k->all_bytes, m->all_bytes);
    }
    snprintf(k->name, sizeof(k->name), "tc_k_joint%d_%.40s", n, k->members[0]->name + 5);
    TCI_PUSH(s, p->kernels, p->n_kernels, p->cap_kernels, k);
    return p->n_kernels - 1;
}

static tci_step tci_horizontal_step(tci_scratch *s, tci_plan *p, const tci_step *steps, int n)
{
    tci_step joint = {.kernel = tci_horizontal_kernel(s, p, steps, n), .group = -1};
    const tci_kernel *k = p->kernels[joint.kernel];
    int operand = 0, literal = 0, room = 0;
    for (int i = 0; i < n; i++) {
        room += steps[i].n_origins;
    }
    joint.origins = TCI_NEW_ARRAY(s, int32_t, room + 1);
    joint.members = tci_scratch_copy(s, steps, sizeof(*steps) * (size_t)n);
    joint.operands = TCI_NEW_ARRAY(s, int32_t, k->n_operands + 1);
    joint.offsets = TCI_NEW_ARRAY(s, tci_dim, k->n_operands + 1);
    joint.literals = TCI_NEW_ARRAY(s, int32_t, k->n_literals + 1);
    for (int i = 0; i < n; i++) {
        const tci_kernel *m = k->members[i];
        for (int o = 0; o < m->n_operands; o++, operand++) {
            joint.operands[operand] = steps[i].operands[o];
            joint.offsets[operand] = steps[i].offsets[o];
        }
        for (int l = 0; l < m->n_literals; l++) {
            joint.literals[literal++] = steps[i].literals[l];
        }
        for (int k = 0; k < steps[i].n_origins; k++) {
            joint.origins[joint.n_origins++] = steps[i].origins[k];
        }
    }
    return joint;
}

/* The plan with the steps of each unit as one. */
static tci_plan tci_horizontal_apply(const tci_horizontal *b)
{
    tci_scratch *s = b->s;
    const int n = b->p->n_steps;
    tci_plan q = *b->p;
    const int32_t *order = tci_plan_unit_order(s, b->p, b->unit);
    tci_step *members = TCI_NEW_ARRAY(s, tci_step, n + 1);
    q.kernels = tci_scratch_copy(s, q.kernels, sizeof(*q.kernels) * (size_t)q.n_kernels);
    q.cap_kernels = q.n_kernels;
    q.steps = NULL;
    q.n_steps = q.cap_steps = 0;
    for (int i = 0; i < n;) {
        int n_members = 0, unit = b->unit[order[i]];
        for (; i < n && b->unit[order[i]] == unit; i++) {
            members[n_members++] = b->p->steps[order[i]];
        }
        tci_step step = n_members == 1 ? members[0]
                                       : tci_horizontal_step(s, &q, members, n_members);
        TCI_PUSH(s, q.steps, q.n_steps, q.cap_steps, step);
    }
    tci_plan_drop_kernels(s, &q);
    return q;
}

TCI_FN void tci_plan_join(tci_scratch *s, tci_plan *p, tci_machine machine, int64_t peak)
{
    tci_horizontal b = {.s = s, .p = p, .blocks = machine.block_threads > 0};
    if (!machine.groups_launches || machine.no_fusion || p->n_steps > TCI_HORIZONTAL_STEPS) {
        return;
    }
    const tc_machine *f = &machine.facts;
    b.shared = b.blocks ? f->shared_bytes - TCI_HORIZONTAL_BOXES : 0;
    double one = f->one_gbs * f->wake_ns; /* what a thread moves while another is woken */
    b.most = TCI_HORIZONTAL_MOST *
             (b.blocks ? f->memory_gbs * f->launch_ns : one * tci_machine_threads(&machine));
    b.least = b.blocks ? 0 : TCI_HORIZONTAL_LEAST * one;
    b.distance = tci_plan_distances(s, p);
    b.unit = TCI_NEW_ARRAY(s, int32_t, p->n_steps + 1);
    b.writers = TCI_NEW_ARRAY(s, int32_t, p->n_buffers + 1);
    for (int t = 0; t < p->n_steps; t++) {
        const tci_kernel *k = p->kernels[p->steps[t].kernel];
        for (int o = 0; o < k->n_operands; o++) {
            b.writers[p->steps[t].operands[o]] += k->operands[o].is_output;
        }
    }
    const int64_t room = peak + peak / TCI_HORIZONTAL_GROWTH + (int64_t)b.most;
    for (int i = 0; i < TCI_HORIZONTAL_TRIES && tci_horizontal_choose(&b); i++) {
        tci_plan q = tci_horizontal_apply(&b);
        if (tci_plan_sequence(s, &q) <= room) {
            *p = q;
            return;
        }
        b.most /= TCI_HORIZONTAL_SMALLER;
    }
}

#undef TCI_HORIZONTAL_MOST
#undef TCI_HORIZONTAL_LEAST
