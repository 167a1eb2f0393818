/* loop/cycle_estimate.c - estimates the cycles of a loop nest on a CPU: those of each statement
 * times its trip count (static cycle estimate).
 *
 * In: the loop IR of one CPU kernel. Out: nanoseconds of one thread. The roofline of
 * loop/kernel_facts.c knows how much a kernel computes and moves, but not what its accesses
 * become: masks, index divisions, lanes loaded one by one, vectors along an axis of two elements.
 * In the loop IR these are explicit statements, so they can be counted.
 *
 * Each loop is evaluated once, at the middle of its range, so that expressions of an outer index
 * have typical values. The body of an IF counts if its condition holds there or is unknown. Common
 * subexpressions, which the C compiler merges, count once. A core issues TCI_COUNT_WIDTH
 * instructions per cycle, at most one on vectors for each vector port. An iteration takes
 * at least the latency of what it carries to the next one, and an iteration too long for
 * out-of-order execution at least the latency of its chain; a vector load of lanes stored one by
 * one waits for these stores. Cache lines come from the cache that still holds them when a loop
 * reads them again. The constants were fitted to pads, concatenations, slices, upsampling,
 * transposes and gathers on one core (bench/results/fusion.md). */
#include <string.h>

#include "../base/hash.h"
#include "cycle_estimate.h"

enum { TCI_COUNT_SLOTS = 64, TCI_COUNT_DEPTH = 16, TCI_COUNT_STREAMS = 128 };

/* A loop around the statement at hand. */
typedef struct tci_count_loop {
    int64_t rounds, step;
} tci_count_loop;

/* Accesses of one operand whose address changes alike from round to round of each loop. */
typedef struct tci_count_stream {
    int32_t base;
    int64_t at;                    /* byte of the first one */
    int64_t step[TCI_COUNT_DEPTH]; /* bytes, per loop */
} tci_count_stream;

typedef struct tci_count {
    const tci_loop *l;
    int64_t *indices;
    bool *known;   /* per index */
    int8_t *truth; /* per value, of conditions: -1 not known */
    int32_t *same; /* per value: the first one that is computed alike, itself if there is none */
    const tci_lstmt **made; /* per value that is the first: its statement */
    int32_t *latest; /* per slot of a hash table: the first value last put there, -1: none; */
    int32_t *before; /* per value: the one in its slot before */
    double *depth;   /* per value: cycles since the loop at hand read what it carries; -1: none */
    double carried;  /* the most cycles of what it carries to its next round */
    double *ready;   /* per value: cycles from the begin of the round at hand until it is there, */
    int32_t *round;  /* if it is of that round (what n_rounds was) */
    int32_t n_rounds, last_round;
    double path;   /* cycles from the begin of the round to its end, */
    double looped; /* and to the end of the last loop in it */
    bool open;     /* some trip count is not known */
    const tc_machine *machine;
    tci_count_loop loops[TCI_COUNT_DEPTH];
    int n_loops;       /* around the statement, outermost first */
    int32_t *made_of;  /* per index: the expression that it was set to; -1: a loop counts it */
    uint32_t *depends; /* per index: bits of the loops that it depends on */
    tci_count_stream *streams;
    int n_streams;
    double lines[2]; /* of memory that come from the second cache, and again from behind it */
} tci_count;

/* Instructions, and of them those of the vector ports. */
typedef struct tci_counted {
    double all, vector;
} tci_counted;

enum {
    TCI_COUNT_DIVIDE = 3,   /* a division of an index by a number */
    TCI_COUNT_ROUND = 2,    /* of a loop, for each round, */
    TCI_COUNT_ENTER = 4,    /* and once */
    TCI_COUNT_MASK = 2,     /* a mask of the first lanes, or an access of some lanes */
    TCI_COUNT_APART = 2,    /* of the vector ports, for a lane that is loaded or stored alone */
    TCI_COUNT_NEAR = 4,     /* a stride whose elements span this many vectors is no gather */
    TCI_COUNT_LATENCY = 4,  /* cycles of an operation until its result is there, */
    TCI_COUNT_ACROSS = 3,   /* cycles of a step between lanes, */
    TCI_COUNT_CALL = 9,     /* instructions of a function of the math library at least: a chain */
    TCI_COUNT_CHAIN = 6,    /* of this many cycles for each of them */
    TCI_COUNT_DIVIDES = 12, /* of a division */
    TCI_COUNT_FORWARD = 12, /* a load of what several stores have just written */
    TCI_COUNT_WINDOW = 512, /* instructions that a core looks ahead */
    TCI_COUNT_WIDTH = 6,    /* instructions that a core begins in a cycle */
    TCI_COUNT_LINE = 64,    /* bytes of a line, */
    TCI_COUNT_WAYS = 8,     /* lines that a set of a cache holds, */
    TCI_COUNT_LINE_NEAR = 2 /* cycles in which the second cache gives one */
};

static tci_counted tci_count_make(double all, double vector)
{
    tci_counted n = {all, vector};
    return n;
}

static tci_counted tci_count_sum(tci_counted a, double times, tci_counted b)
{
    return tci_count_make(a.all + times * b.all, a.vector + times * b.vector);
}

static bool tci_count_value(const tci_count *c, int x, int64_t *v)
{
    const tci_lx *e = &c->l->lx[x];
    int64_t b = 0;
    switch (e->op) {
    case TCI_LX_CONST: *v = tci_dim_hint(e->c); return true;
    case TCI_LX_VAR: *v = c->indices[e->a]; return c->known[e->a];
    case TCI_LX_TASK_BEGIN: *v = 0; return true;
    case TCI_LX_TASK_END: *v = tci_dim_hint(c->l->n_tasks); return true;
    case TCI_LX_THREAD:
    case TCI_LX_ROW:
    case TCI_LX_HEAD:
    case TCI_LX_GIVEN: return false;
    default: break;
    }
    if (!tci_count_value(c, e->a, v) || (e->b >= 0 && !tci_count_value(c, e->b, &b))) {
        return false;
    }
    int64_t n = tci_dim_hint(e->c);
    *v = e->op == TCI_LX_ADD   ? *v + b
         : e->op == TCI_LX_MIN ? TCI_MIN(*v, b)
         : e->op == TCI_LX_MAX ? TCI_MAX(*v, b)
         : e->op == TCI_LX_MUL ? *v * n
         : n < 1               ? 0
         : e->op == TCI_LX_DIV ? *v / n
                               : *v % n;
    return true;
}

/* Instructions of an index expression. */
static double tci_count_index(const tci_count *c, int x)
{
    const tci_lx *e = &c->l->lx[x];
    bool divides = e->op == TCI_LX_DIV || e->op == TCI_LX_MOD;
    bool pair = e->op == TCI_LX_ADD || e->op == TCI_LX_MIN || e->op == TCI_LX_MAX;
    if (!pair && !divides && e->op != TCI_LX_MUL) {
        return 0;
    }
    return tci_count_index(c, e->a) + (pair ? tci_count_index(c, e->b) : 0) +
           (divides ? TCI_COUNT_DIVIDE : 1);
}

/* The same of all of an access. */
static double tci_count_offset(const tci_count *c, const tci_lstmt *st)
{
    return (st->x >= 0 ? tci_count_index(c, st->x) : 0) +
           (st->n >= 0 ? tci_count_index(c, st->n) : 0);
}

/* ---- cache lines ---- */

/* Bits of the loops that an index expression depends on. */
static uint32_t tci_count_depends(const tci_count *c, int x)
{
    const tci_lx *e = &c->l->lx[x];
    switch (e->op) {
    case TCI_LX_VAR: return c->depends[e->a];
    case TCI_LX_ADD:
    case TCI_LX_MIN:
    case TCI_LX_MAX: return tci_count_depends(c, e->a) | tci_count_depends(c, e->b);
    case TCI_LX_MUL:
    case TCI_LX_DIV:
    case TCI_LX_MOD: return tci_count_depends(c, e->a);
    default: return 0;
    }
}

/* By how much an index expression changes from a round of loop `at` to the next one, in the middle
 * of all ranges. */
static int64_t tci_count_step(const tci_count *c, int x, int at)
{
    const tci_lx *e = &c->l->lx[x];
    int64_t n = tci_dim_hint(e->c), v = 0, b = 0;
    if (!(tci_count_depends(c, x) >> at & 1)) {
        return 0;
    }
    switch (e->op) {
    case TCI_LX_VAR:
        return c->made_of[e->a] >= 0 ? tci_count_step(c, c->made_of[e->a], at) : c->loops[at].step;
    case TCI_LX_ADD: return tci_count_step(c, e->a, at) + tci_count_step(c, e->b, at);
    case TCI_LX_MUL: return tci_count_step(c, e->a, at) * n;
    case TCI_LX_MIN:
    case TCI_LX_MAX:
        if (!tci_count_value(c, e->a, &v) || !tci_count_value(c, e->b, &b)) {
            return 0;
        }
        return tci_count_step(c, (v < b) == (e->op == TCI_LX_MIN) ? e->a : e->b, at);
    default: break;
    }
    int64_t step = tci_count_step(c, e->a, at);
    if (n < 1 || !tci_count_value(c, e->a, &v)) {
        return step;
    }
    return e->op == TCI_LX_DIV ? (v + step) / n - v / n : (v + step) % n - v % n;
}

/* True if another access meets the lines of this one, in the same round or in another one. */
static bool tci_count_is_met(tci_count *c, const tci_count_stream *s)
{
    for (int i = 0; i < c->n_streams; i++) {
        const tci_count_stream *q = &c->streams[i];
        int64_t apart = q->at < s->at ? s->at - q->at : q->at - s->at;
        bool met = q->base == s->base &&
                   !memcmp(q->step, s->step, sizeof(s->step[0]) * (size_t)c->n_loops);
        bool near = apart < TCI_COUNT_LINE;
        for (int at = 0; at < c->n_loops && met && !near; at++) {
            int64_t step = s->step[at] < 0 ? -s->step[at] : s->step[at];
            near = step > 0 && apart % step < TCI_COUNT_LINE && apart / step < c->loops[at].rounds;
        }
        if (met && near) {
            return true;
        }
    }
    if (c->n_streams < TCI_COUNT_STREAMS) {
        c->streams[c->n_streams++] = *s;
    }
    return false;
}

/* Lines of a cache of this many bytes that an access keeps, half of all, where its lines are
 * `stride` bytes apart, or a multiple of it: those of few sets where that is a power of two. */
static double tci_count_room(int64_t bytes, int64_t stride)
{
    int64_t sets = TCI_MAX(bytes / (TCI_COUNT_LINE * TCI_COUNT_WAYS), 1);
    int64_t apart = stride % TCI_COUNT_LINE == 0 ? TCI_MAX(stride / TCI_COUNT_LINE, 1) : 1;
    while (apart % 2 == 0 && sets % 2 == 0) {
        apart /= 2;
        sets /= 2;
    }
    return (double)(sets * TCI_COUNT_WAYS) / 2;
}

/* Lines that the accesses of st, over all loops around it, find in no cache nearer than the second
 * (0), and that come back from behind it (1): the first time is the roofline's. A loop meets lines
 * of its round before again if these fit. */
static void tci_count_lines(tci_count *c, const tci_lstmt *st, int64_t lane_step, double lanes,
                            bool writes)
{
    const tci_loop *l = c->l;
    const tci_koperand *o = &l->operands[st->base];
    int bytes = tci_dtype_get((tc_dtype)o->dtype)->bytes;
    tci_count_stream s = {.base = st->base};
    int64_t at = 0, stride = lane_step * bytes;
    if (st->x >= 0 && tci_count_value(c, st->x, &at)) {
        s.at = at * bytes;
    }
    for (int i = 0; i < c->n_loops && st->x >= 0; i++) {
        s.step[i] = tci_count_step(c, st->x, i) * bytes;
    }
    if (tci_count_is_met(c, &s)) {
        return;
    }
    double all = (double)TCI_MAX(tci_dim_hint(o->n), 1) * bytes / TCI_COUNT_LINE;
    double each = (double)TCI_MIN(stride, TCI_COUNT_LINE) / TCI_COUNT_LINE;
    double held = TCI_MAX(lanes * each, 1), moved[2] = {held, held};
    stride = stride < TCI_COUNT_LINE ? 0 : stride;
    for (int i = c->n_loops - 1; i >= 0; i--) {
        int64_t step = s.step[i] < 0 ? -s.step[i] : s.step[i];
        double rounds = (double)c->loops[i].rounds;
        double fresh = (double)TCI_MIN(step, TCI_COUNT_LINE) / TCI_COUNT_LINE;
        for (int cache = 0; cache < 2; cache++) {
            bool fits = held <= tci_count_room(c->machine->cache_bytes[cache], stride);
            moved[cache] *= fits ? 1 + (rounds - 1) * fresh : rounds;
        }
        held = TCI_MIN(held * (1 + (rounds - 1) * fresh), TCI_MAX(all, 1));
        stride = step >= TCI_COUNT_LINE ? tci_lx_gcd(stride, step) : stride;
    }
    c->lines[0] += moved[0] * (writes ? 2 : 1);
    c->lines[1] += TCI_MAX(moved[1] - held, 0) * (writes ? 2 : 1);
}

/* ---- statements ---- */

/* Elements from lane to lane of an access; 0: it is one element, or its lanes are anywhere. No
 * vector form loads backwards: these lanes are apart too. */
static int64_t tci_count_lane_step(const tci_lstmt *st)
{
    int64_t step = tci_dim_hint(st->imm);
    switch ((int)st->mem) {
    case TCI_MEM_LOAD_ONE:
    case TCI_MEM_STORE_ONE:
    case TCI_MEM_STORE_LANE:
    case TCI_MEM_LOAD_AT: return 0;
    default: break;
    }
    return tci_lmem_uses((tci_mem)st->mem) & TCI_LMEM_STRIDE ? step : 1;
}

static tci_counted tci_count_access(tci_count *c, const tci_lstmt *st)
{
    unsigned uses = tci_lmem_uses((tci_mem)st->mem);
    int64_t step = tci_count_lane_step(st);
    double lanes = c->l->lanes;
    bool has_operand = (uses & TCI_LMEM_ADDRESS) && st->base >= 0 && st->base < c->l->n_operands;
    if (has_operand && st->mem != TCI_MEM_LOAD_AT) {
        tci_count_lines(c, st, step < 0 ? -step : step, step != 0 ? lanes : 1,
                        (uses & TCI_LMEM_WRITES) != 0);
    }
    switch ((int)st->mem) {
    case TCI_MEM_LOAD_ONE:
    case TCI_MEM_STORE_ONE:
    case TCI_MEM_STORE_LANE: return tci_count_make(1, 0);
    case TCI_MEM_FIRST_N: return tci_count_make(TCI_COUNT_MASK, 1);
    case TCI_MEM_PREFETCH:
    case TCI_MEM_FENCE: return tci_count_make(0, 0);
    case TCI_MEM_HIGH_HALF:
    case TCI_MEM_NEAR_HALF:
    case TCI_MEM_BELOW: return tci_count_make(1, 1);
    default: break;
    }
    int64_t n = 0;
    bool apart = (uses & TCI_LMEM_STRIDE) && (step < 0 || step > TCI_COUNT_NEAR);
    bool single = (uses & TCI_LMEM_COUNT) && tci_count_value(c, st->n, &n) && n == 1;
    if (apart && (single || step < 0)) { /* each of them by itself, where some are none */
        double some = (uses & TCI_LMEM_COUNT) ? 2 : 1;
        double alone = single ? 2 : some * lanes + 1;
        return tci_count_make(alone, alone);
    }
    bool one = step == 1 || !(uses & TCI_LMEM_ADDRESS); /* instruction for all lanes */
    double each = apart || st->mem == TCI_MEM_LOAD_AT ? lanes : one ? 1 : 2.0 * (double)step;
    bool some = (uses & (TCI_LMEM_MASK | TCI_LMEM_COUNT)) != 0;
    bool forwards = (uses & TCI_LMEM_DST) && (uses & TCI_LMEM_ADDRESS) && st->base < 0 &&
                    c->l->locals[~st->base].is_lane;
    double all = each + (some ? TCI_COUNT_MASK : 0) + (forwards ? TCI_COUNT_FORWARD : 0);
    return tci_count_make(all, each * (apart ? TCI_COUNT_APART : 1));
}

static tci_counted tci_count_block(tci_count *c, int block);

/* A typical round of a loop: the middle one, and of the outermost, whose tasks may be whole and
 * broken chunks in turns, the mean of it and the next. */
static tci_counted tci_count_round(tci_count *c, const tci_lstmt *st, int64_t begin, int64_t rounds,
                                   int64_t step)
{
    int32_t latest[TCI_COUNT_SLOTS];
    int64_t middle = rounds / 2, next = middle + 1 < rounds ? middle + 1 : 0;
    c->indices[st->dst] = begin + middle * step;
    memcpy(latest, c->latest, sizeof(latest));
    tci_counted body = tci_count_block(c, st->body);
    if (c->n_loops > 1 || next == middle) {
        return body;
    }
    memcpy(c->latest, latest, sizeof(latest)); /* what the first one computed is not there */
    c->path = c->looped = 0;
    c->n_rounds = ++c->last_round;
    c->indices[st->dst] = begin + next * step;
    tci_counted other = tci_count_block(c, st->body);
    return tci_count_make((body.all + other.all) / 2, (body.vector + other.vector) / 2);
}

static tci_counted tci_count_for(tci_count *c, const tci_lstmt *st)
{
    int64_t begin = 0, end = 0, step = TCI_MAX(tci_dim_hint(st->imm), 1);
    if (!tci_count_value(c, st->x, &begin) || !tci_count_value(c, st->n, &end)) {
        c->open = true;
        return tci_count_make(0, 0);
    }
    int64_t rounds = begin < end ? tci_ceil_div(end - begin, step) : 0;
    tci_counted n = tci_count_make(TCI_COUNT_ENTER + (double)rounds * TCI_COUNT_ROUND, 0);
    c->known[st->dst] = true;
    if (rounds == 0) {
        return n;
    }
    bool more = c->n_loops < TCI_COUNT_DEPTH;
    double outside = c->carried, path = c->path;
    int32_t around = c->n_rounds;
    c->carried = c->path = c->looped = 0;
    c->n_rounds = ++c->last_round;
    if (more) {
        c->depends[st->dst] = 1u << c->n_loops;
        c->loops[c->n_loops++] = (tci_count_loop){rounds, step};
    }
    tci_counted body = tci_count_round(c, st, begin, rounds, step);
    c->n_loops -= more;
    double chain = c->carried * (double)rounds, before = body.all;
    body.all = TCI_MAX(before, c->carried * TCI_COUNT_WIDTH - TCI_COUNT_WINDOW / (double)rounds);
    body.all = TCI_MAX(body.all, c->path * TCI_COUNT_WIDTH / (1 + TCI_COUNT_WINDOW / before));
    c->carried = outside;
    c->n_rounds = around;
    c->path = c->looped = path + TCI_MAX(c->path, chain);
    return tci_count_sum(n, (double)rounds, body);
}

static int8_t tci_count_in_range(const tci_count *c, const tci_lstmt *st)
{
    int64_t v = 0;
    bool known = tci_count_value(c, st->x, &v);
    return known ? tci_dim_hint(st->lo) <= v && v <= tci_dim_hint(st->imm) : -1;
}

static tci_counted tci_count_prim(tci_count *c, const tci_lstmt *st)
{
    double cost = TCI_MAX(tci_prim_get((tci_prim)st->prim)->cost, 1);
    bool vector = c->l->values[st->dst].lanes > 1;
    if (st->prim == TCI_P_AND && !vector) {
        int8_t a = c->truth[st->args[0]], b = c->truth[st->args[1]];
        c->truth[st->dst] = a == 0 || b == 0 ? 0 : a == 1 && b == 1 ? 1 : -1;
    }
    return tci_count_make(cost, vector ? cost : 0);
}

static double tci_count_latency(const tci_lstmt *st)
{
    bool across = st->op == TCI_L_MEM && (st->mem == TCI_MEM_HIGH_HALF ||
                                          st->mem == TCI_MEM_NEAR_HALF || st->mem == TCI_MEM_BELOW);
    bool divides = st->op == TCI_L_PRIM && st->prim == TCI_P_DIV;
    bool picks = st->op == TCI_L_PRIM && st->prim == TCI_P_SELECT;
    int cost = st->op == TCI_L_PRIM ? TCI_MAX(tci_prim_get((tci_prim)st->prim)->cost, 1) : 1;
    return st->op == TCI_L_COPY     ? 0
           : divides                ? TCI_COUNT_DIVIDES
           : across                 ? TCI_COUNT_ACROSS
           : picks                  ? 1
           : cost >= TCI_COUNT_CALL ? TCI_COUNT_CHAIN * cost
                                    : TCI_COUNT_LATENCY * cost;
}

/* Follows when values are there: what a loop has made is there when it ends. */
static void tci_count_ready(tci_count *c, const tci_lstmt *st)
{
    bool makes = st->op == TCI_L_PRIM || st->op == TCI_L_COPY || st->op == TCI_L_MEM;
    double from = 0;
    for (int i = 0; i < 3 && makes; i++) {
        int v = st->args[i];
        bool here = v >= 0 && c->round[v] == c->n_rounds;
        bool looped = v >= 0 && c->l->values[v].is_mutable;
        from = TCI_MAX(from, here ? c->ready[v] : looped ? c->looped : 0);
    }
    if (st->op == TCI_L_SET) {
        c->ready[st->dst] = c->round[st->args[0]] == c->n_rounds ? c->ready[st->args[0]] : 0;
        c->round[st->dst] = c->n_rounds;
    } else if (makes && st->dst >= 0) {
        c->ready[st->dst] = from + tci_count_latency(st);
        c->round[st->dst] = c->n_rounds;
        c->path = TCI_MAX(c->path, c->ready[st->dst]);
    }
}

/* Follows what a loop carries from round to round, from where it is read to where it is set. */
static void tci_count_carry(tci_count *c, const tci_lstmt *st)
{
    double depth = -1;
    for (int i = 0; i < 3; i++) {
        int v = st->args[i];
        bool is_mutable = v >= 0 && c->l->values[v].is_mutable;
        depth = TCI_MAX(depth, is_mutable ? 0 : v >= 0 ? c->depth[v] : -1);
    }
    if (st->op == TCI_L_SET) {
        c->carried = TCI_MAX(c->carried, depth);
    } else if (st->dst >= 0 && (st->op == TCI_L_PRIM || st->op == TCI_L_COPY)) {
        c->depth[st->dst] = depth < 0 ? -1 : depth + tci_count_latency(st);
    }
}

static bool tci_count_is_same(const tci_count *c, const tci_lstmt *a, const tci_lstmt *b)
{
    bool same = a->op == b->op && a->mem == b->mem && a->prim == b->prim && a->x == b->x &&
                a->n == b->n && a->lo == b->lo && a->imm == b->imm &&
                c->l->values[a->dst].dtype == c->l->values[b->dst].dtype &&
                c->l->values[a->dst].lanes == c->l->values[b->dst].lanes;
    for (int i = 0; i < 3 && same; i++) {
        same = a->args[i] < 0 ? b->args[i] < 0
                              : b->args[i] >= 0 && c->same[a->args[i]] == c->same[b->args[i]];
    }
    return same;
}

/* True if the compiler has the value of st already: the same of the same values, in a block around
 * this one. */
static bool tci_count_is_known(tci_count *c, const tci_lstmt *st)
{
    const tci_loop *l = c->l;
    bool pure = st->op == TCI_L_PRIM || st->op == TCI_L_IN_RANGE ||
                (st->op == TCI_L_MEM && !(tci_lmem_uses((tci_mem)st->mem) & TCI_LMEM_ADDRESS));
    bool is_mutable = false;
    for (int i = 0; i < 3 && pure && st->dst >= 0; i++) {
        is_mutable = is_mutable || (st->args[i] >= 0 && l->values[st->args[i]].is_mutable);
    }
    if (!pure || st->dst < 0 || is_mutable) {
        return false;
    }
    uint64_t hash = tci_hash_mix((uint64_t)st->op << 16 | (uint64_t)st->mem << 8 | st->prim,
                                 (uint64_t)(uint32_t)st->x << 32 | (uint32_t)st->n);
    for (int i = 0; i < 3; i++) {
        hash = tci_hash_mix(hash, st->args[i] < 0 ? 0 : (uint64_t)c->same[st->args[i]] + 1);
    }
    int slot = (int)(hash % TCI_COUNT_SLOTS);
    for (int v = c->latest[slot]; v >= 0; v = c->before[v]) {
        if (tci_count_is_same(c, c->made[v], st) &&
            tci_loop_encloses(l, l->values[v].block, l->values[st->dst].block)) {
            c->same[st->dst] = v;
            c->truth[st->dst] = c->truth[v];
            return true;
        }
    }
    c->made[st->dst] = st;
    c->before[st->dst] = c->latest[slot];
    c->latest[slot] = st->dst;
    return false;
}

static tci_counted tci_count_stmt(tci_count *c, const tci_lstmt *st)
{
    const tci_counted one = {1, 0}, none = {0, 0};
    const tci_counted half = {0.5, 0}; /* accesses share much of their offsets */
    tci_count_carry(c, st);
    tci_count_ready(c, st);
    if (tci_count_is_known(c, st)) {
        return none;
    }
    switch ((tci_lop)st->op) {
    case TCI_L_FOR: return tci_count_for(c, st);
    case TCI_L_IF:
        return c->truth[st->args[0]] == 0 ? one
                                          : tci_count_sum(one, 1, tci_count_block(c, st->body));
    case TCI_L_INDEX:
        c->known[st->dst] = tci_count_value(c, st->x, &c->indices[st->dst]);
        c->made_of[st->dst] = st->x;
        c->depends[st->dst] = tci_count_depends(c, st->x);
        return tci_count_make(tci_count_index(c, st->x), 0);
    case TCI_L_IN_RANGE:
        c->truth[st->dst] = tci_count_in_range(c, st);
        return tci_count_make(tci_count_index(c, st->x) + 2, 0);
    case TCI_L_ELSEWHERE: c->truth[st->dst] = 1; return one;
    case TCI_L_FROM_VALUE: c->known[st->dst] = false; return one;
    case TCI_L_PRIM: return tci_count_prim(c, st);
    case TCI_L_MEM: return tci_count_sum(tci_count_access(c, st), tci_count_offset(c, st), half);
    case TCI_L_TO_VALUE:
    case TCI_L_LITERAL:
    case TCI_L_VAR:
    case TCI_L_SET:
    case TCI_L_FAULT: return one;
    case TCI_L_COPY:
    case TCI_L_CONST:
    case TCI_L_LOCAL:
    case TCI_L_NOTE: return none;
    }
    return none;
}

static tci_counted tci_count_block(tci_count *c, int block)
{
    const tci_lblock *b = &c->l->blocks[block];
    tci_counted n = {0, 0};
    for (int i = 0; i < b->n; i++) {
        n = tci_count_sum(n, 1, tci_count_stmt(c, &b->stmts[i]));
    }
    return n;
}

TCI_FN double tci_loop_count_ns(tci_scratch *s, const tci_loop *l, const tc_machine *machine)
{
    tci_count c = {.l = l, .machine = machine};
    c.indices = TCI_NEW_ARRAY(s, int64_t, l->n_indices + 1);
    c.known = TCI_NEW_ARRAY(s, bool, l->n_indices + 1);
    c.made_of = TCI_NEW_ARRAY(s, int32_t, l->n_indices + 1);
    c.depends = TCI_NEW_ARRAY(s, uint32_t, l->n_indices + 1);
    c.streams = TCI_NEW_ARRAY(s, tci_count_stream, TCI_COUNT_STREAMS);
    c.truth = TCI_NEW_ARRAY(s, int8_t, l->n_values + 1);
    c.same = TCI_NEW_ARRAY(s, int32_t, l->n_values + 1);
    c.before = TCI_NEW_ARRAY(s, int32_t, l->n_values + 1);
    c.made = TCI_NEW_ARRAY(s, const tci_lstmt *, l->n_values + 1);
    c.latest = TCI_NEW_ARRAY(s, int32_t, TCI_COUNT_SLOTS);
    for (int i = 0; i < TCI_COUNT_SLOTS; i++) {
        c.latest[i] = -1;
    }
    for (int i = 0; i < l->n_indices; i++) {
        c.made_of[i] = -1;
    }
    c.ready = TCI_NEW_ARRAY(s, double, l->n_values + 1);
    c.round = TCI_NEW_ARRAY(s, int32_t, l->n_values + 1);
    c.depth = TCI_NEW_ARRAY(s, double, l->n_values + 1);
    for (int v = 0; v < l->n_values; v++) {
        c.truth[v] = -1;
        c.depth[v] = -1;
        c.same[v] = v;
    }
    tci_counted n = tci_count_block(&c, 0);
    double cycles = TCI_MAX(n.all / TCI_COUNT_WIDTH, n.vector / TCI_MAX(machine->ports, 1));
    double near = c.lines[0] * TCI_COUNT_LINE_NEAR;
    double far = c.lines[1] * TCI_COUNT_LINE / machine->far_bytes;
    cycles = TCI_MAX(cycles, TCI_MAX(near, far));
    return c.open ? 0 : cycles / machine->ghz;
}
