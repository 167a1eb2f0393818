/* plan/memory.c - plans memory: step order, lifetimes (liveness), arena, outputs in place.
 *
 * A temporary lives from the first step that writes it to the last step that reads it. An output
 * may share the memory of an input if nothing reads that input later, and the step that writes the
 * output reads, for each point, only the elements that it writes there. */
#include "fusion_groups.h"

static void tci_memory_lifetimes(tci_plan *p)
{
    for (int b = 0; b < p->n_buffers; b++) {
        p->buffers[b].first = p->n_steps;
        p->buffers[b].last = -1;
    }
    for (int t = 0; t < p->n_steps; t++) {
        const tci_kernel *k = p->kernels[p->steps[t].kernel];
        for (int o = 0; o < k->n_operands; o++) {
            tci_buffer *b = &p->buffers[p->steps[t].operands[o]];
            b->first = TCI_MIN(b->first, t);
            b->last = TCI_MAX(b->last, t);
        }
    }
}

/* ---- what comes after what ---- */

enum { TCI_MEMORY_MANY = 4096 }; /* steps from which all are taken to run side by side */

static void tci_memory_join(uint64_t *set, const uint64_t *more, int n_words)
{
    for (int w = 0; w < n_words; w++) {
        set[w] |= more[w];
    }
}

/* The steps that each comes after, as sets of n_words words: it reads what they wrote, or writes
 * what they read or wrote, or they come after such ones. */
static uint64_t *tci_memory_before(tci_scratch *s, const tci_plan *p, int n_words)
{
    size_t words = (size_t)n_words;
    uint64_t *before = TCI_NEW_ARRAY(s, uint64_t, words *(size_t)p->n_steps + 1);
    uint64_t *written = TCI_NEW_ARRAY(s, uint64_t, words *(size_t)p->n_buffers + 1);
    uint64_t *read = TCI_NEW_ARRAY(s, uint64_t, words *(size_t)p->n_buffers + 1);
    for (int t = 0; t < p->n_steps; t++) {
        const tci_kernel *k = p->kernels[p->steps[t].kernel];
        uint64_t *mine = before + words * (size_t)t;
        for (int o = 0; o < k->n_operands; o++) {
            size_t at = words * (size_t)p->steps[t].operands[o];
            tci_memory_join(mine, written + at, n_words);
            if (k->operands[o].is_output) {
                tci_memory_join(mine, read + at, n_words);
            }
        }
        for (int o = 0; o < k->n_operands; o++) {
            uint64_t *set = k->operands[o].is_output ? written : read;
            set += words * (size_t)p->steps[t].operands[o];
            tci_memory_join(set, mine, n_words);
            set[t / 64] |= (uint64_t)1 << t % 64;
        }
    }
    return before;
}

/* Per step the last one that need not come after it. */
static int32_t *tci_memory_last_concurrent(tci_scratch *s, const tci_plan *p)
{
    int32_t *last = TCI_NEW_ARRAY(s, int32_t, p->n_steps + 1);
    int n_words = p->n_steps / 64 + 1;
    bool many = p->n_steps > TCI_MEMORY_MANY;
    const uint64_t *before = many ? NULL : tci_memory_before(s, p, n_words);
    for (int t = 0; t < p->n_steps; t++) {
        last[t] = many ? p->n_steps - 1 : t;
        for (int x = 0; x < t && !many; x++) {
            if (!(before[(size_t)n_words * (size_t)t + (size_t)x / 64] >> x % 64 & 1)) {
                last[x] = t;
            }
        }
    }
    return last;
}

/* A buffer is alone until all steps come after all that use it. */
static void tci_memory_alone(tci_scratch *s, const tci_plan *p, tci_life *lives)
{
    const int32_t *last = tci_memory_last_concurrent(s, p);
    for (int t = 0; t < p->n_steps; t++) {
        const tci_kernel *k = p->kernels[p->steps[t].kernel];
        for (int o = 0; o < k->n_operands; o++) {
            int32_t *alone = &lives[p->steps[t].operands[o]].alone;
            *alone = TCI_MAX(*alone, last[t]);
        }
    }
}

/* Where a size is symbolic the positions are found anew for the sizes of a run
 * (run/shape_instances.c). */
static void tci_memory_place(tci_scratch *s, tci_plan *p, bool apart)
{
    tci_life *lives = TCI_NEW_ARRAY(s, tci_life, p->n_buffers + 1);
    bool known = true;
    for (int b = 0; b < p->n_buffers; b++) {
        const tci_buffer *buffer = &p->buffers[b];
        bool is_temp = buffer->kind == TCI_BUF_TEMP;
        lives[b].first = buffer->first;
        lives[b].last = is_temp ? buffer->last : -1;
        lives[b].bytes = tci_dim_known(buffer->bytes);
        known = known && (!is_temp || tci_dim_is_known(buffer->bytes));
    }
    if (!known) {
        return;
    }
    if (apart) {
        tci_memory_alone(s, p, lives);
    }
    p->arena_least = tci_plan_least(s, lives, p->n_buffers, p->n_steps);
    p->arena_bytes = tci_plan_place(s, lives, p->n_buffers, p->n_steps, apart);
    for (int b = 0; b < p->n_buffers; b++) {
        if (lives[b].last >= 0) {
            p->buffers[b].offset = lives[b].offset;
        }
    }
}

/* ---- outputs on top of inputs ---- */

/* The latest stage in which instruction i may be evaluated: that of its last user. */
static int32_t *tci_memory_last_use(tci_scratch *s, const tci_kernel *k)
{
    int32_t *last = TCI_NEW_ARRAY(s, int32_t, k->n_insts + 1);
    for (int r = 0; r < k->n_reds; r++) {
        for (int i = 0; i < tci_red_takes(k->reds[r].op); i++) {
            int32_t *at = &last[k->reds[r].in[i]];
            *at = TCI_MAX(*at, k->reds[r].stage);
        }
    }
    for (int w = 0; w < k->n_stores; w++) {
        last[k->stores[w].value] = TCI_MAX(last[k->stores[w].value], k->stores[w].stage);
        if (k->stores[w].guard >= 0) {
            last[k->stores[w].guard] = TCI_MAX(last[k->stores[w].guard], k->stores[w].stage);
        }
    }
    for (int i = k->n_insts - 1; i >= 0; i--) {
        for (int a = 0; a < k->insts[i].n_args; a++) {
            last[k->insts[i].args[a]] = TCI_MAX(last[k->insts[i].args[a]], last[i]);
        }
    }
    return last;
}

/* Stores of one point after its reductions: what they need is read once, before the first. */
static bool tci_memory_of_point(const tci_kernel *k, int store, int other)
{
    int stage = k->stores[store].stage;
    return k->stores[other].stage == stage && k->stages[stage].n_axes == 0;
}

/* Per instruction: does anything but that store, and those of the same point, need it? */
static bool *tci_memory_needed_elsewhere(tci_scratch *s, const tci_kernel *k, int store)
{
    bool *needed = TCI_NEW_ARRAY(s, bool, k->n_insts + 1);
    for (int r = 0; r < k->n_reds; r++) {
        for (int i = 0; i < tci_red_takes(k->reds[r].op); i++) {
            needed[k->reds[r].in[i]] = true;
        }
    }
    for (int w = 0; w < k->n_stores; w++) {
        if (w != store && !tci_memory_of_point(k, store, w)) {
            needed[k->stores[w].value] = true;
            needed[TCI_MAX(k->stores[w].guard, 0)] |= k->stores[w].guard >= 0;
        }
    }
    for (int i = k->n_insts - 1; i >= 0; i--) {
        for (int a = 0; a < k->insts[i].n_args; a++) {
            needed[k->insts[i].args[a]] |= needed[i];
        }
    }
    return needed;
}

/* The one store to `out`, or the first, over which a SCATTER stores; -1: there are others. */
static int tci_memory_first_store(const tci_kernel *k, int out)
{
    int store = -1;
    for (int w = 0; w < k->n_stores; w++) {
        const tci_kstore *other = &k->stores[w];
        bool over = k->stages[other->stage].kind == TCI_STAGE_SCATTER;
        if (other->operand == out && store >= 0 && !over) {
            return -1;
        }
        store = other->operand == out && store < 0 ? w : store;
    }
    return store;
}

static bool tci_memory_elementwise(tci_scratch *s, const tci_kernel *k, int out, int in)
{
    if (k->call) {
        return false; /* the order of its reads and writes is unknown */
    }
    int store = tci_memory_first_store(k, out), from, to;
    if (store < 0) {
        return false; /* a body writes it */
    }
    bool faults = k->faults && !tci_kernel_copies(k, k->stores[store].stage, &from, &to);
    int32_t *last = tci_memory_last_use(s, k);
    const bool *needed_elsewhere = tci_memory_needed_elsewhere(s, k, store);
    for (int i = 0; i < k->n_insts; i++) {
        const tci_kinst *load = &k->insts[i];
        bool reads = load->op == TCI_K_LOAD && load->imm == in;
        if (reads && (load->x != k->stores[store].x || load->n_guards > 0 ||
                      last[i] > k->stores[store].stage || faults)) {
            return false;
        }
        /* a rolled row or tile: every point must be read before it is written, by its own store
         * alone, which one thread does */
        if (reads && k->n_stages > 1 && needed_elsewhere[i]) {
            uint64_t all = k->n_axes >= 63 ? ~(uint64_t)0 : ((uint64_t)1 << k->n_axes) - 1;
            if ((load->axes & all) != all) {
                return false;
            }
        }
    }
    return true;
}

/* The last operand of a step that is in that buffer, and is written if need be; -1: none. */
static int tci_memory_operand(const tci_kernel *k, const tci_step *step, int buffer, bool written)
{
    int o = k->n_operands - 1;
    while (o >= 0 && (step->operands[o] != buffer || (written && !k->operands[o].is_output))) {
        o--;
    }
    return o;
}

static bool tci_memory_step_in_place(tci_scratch *s, const tci_kernel *k, const tci_step *step,
                                     int out, int in)
{
    int writes = tci_memory_operand(k, step, out, true);
    int reads = tci_memory_operand(k, step, in, false);
    return writes < 0 || reads < 0 ||
           (step->offsets[reads] == 0 && tci_memory_elementwise(s, k, writes, reads));
}

/* Of the members of a merged kernel, which run in any order, only the one that writes may read. */
TCI_FN bool tci_plan_step_in_place(tci_scratch *s, const tci_plan *p, int step, int out, int in)
{
    const tci_step *joint = &p->steps[step];
    const tci_kernel *k = p->kernels[joint->kernel];
    bool writes = tci_memory_operand(k, joint, out, true) >= 0, in_place = true;
    if (!k->n_members) {
        return tci_memory_step_in_place(s, k, joint, out, in);
    }
    for (int i = 0; i < k->n_members && writes; i++) {
        const tci_kernel *m = k->members[i];
        const tci_step *of = &joint->members[i];
        bool other = tci_memory_operand(m, of, out, true) < 0;
        in_place = in_place && (other ? tci_memory_operand(m, of, in, false) < 0
                                      : tci_memory_step_in_place(s, m, of, out, in));
    }
    return in_place;
}

TCI_FN int tci_plan_port(const tci_plan *p, uint8_t kind, int index)
{
    for (int b = 0; b < p->n_buffers; b++) {
        if (p->buffers[b].kind == kind && p->buffers[b].index == index) {
            return b;
        }
    }
    return -1;
}

static bool tci_memory_uses(const tci_plan *p, int step, int buffer)
{
    const tci_kernel *k = p->kernels[p->steps[step].kernel];
    bool uses = false;
    for (int o = 0; o < k->n_operands; o++) {
        uses = uses || p->steps[step].operands[o] == buffer;
    }
    return uses;
}

static bool tci_memory_may_alias(tci_scratch *s, const tci_plan *p, int out, int in)
{
    for (int t = 0; t < p->n_steps; t++) {
        bool written = p->buffers[out].first < t;
        if (tci_memory_uses(p, t, in) && (written || !tci_plan_step_in_place(s, p, t, out, in))) {
            return false;
        }
    }
    return true;
}

static bool tci_memory_is_assign(const tci_plan *p, int output, int input)
{
    for (int i = 0; i < p->n_assigns; i++) {
        if (p->assigns[i].output == output && p->assigns[i].input == input) {
            return true;
        }
    }
    return false;
}

static void tci_memory_aliases(tci_scratch *s, tci_plan *p)
{
    for (int o = 0; o < p->n_buffers; o++) {
        for (int i = 0; i < p->n_buffers && p->buffers[o].kind == TCI_BUF_OUTPUT; i++) {
            const tci_buffer *out = &p->buffers[o], *in = &p->buffers[i];
            if (in->kind == TCI_BUF_INPUT && in->bytes == out->bytes && in->dtype == out->dtype &&
                (p->n_buffers < 256 || tci_memory_is_assign(p, out->index, in->index)) &&
                tci_memory_may_alias(s, p, o, i)) {
                tci_alias alias = {out->index, in->index};
                TCI_PUSH(s, p->aliases, p->n_aliases, p->cap_aliases, alias);
            }
        }
    }
}

TCI_FN void tci_plan_memory(tci_scratch *s, tci_plan *p, tci_machine machine)
{
    int64_t peak = tci_plan_sequence(s, p);
    tci_plan_join(s, p, machine, peak);
    tci_memory_lifetimes(p);
    tci_memory_aliases(s, p);
    tci_repeat_place(s, p);
    tci_plan_fuse_loops(s, p, machine);
    tci_memory_place(s, p, machine.block_threads > 0);
}
