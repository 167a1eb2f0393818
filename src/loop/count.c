/* loop/count.c - instruction count of a built loop: each statement's cycles times its trip count.
 *
 * In: the loop IR of one kernel for a processor. Out: nanoseconds of one thread. The roofline of
 * loop/sched_query.c knows how much a kernel computes and moves, but not what its accesses become:
 * masks, divisions of indices, lanes that are loaded one by one, vectors along an axis of two
 * elements. Here these are statements.
 *
 * Loops are walked once, in the middle of their range: what depends on an outer index has its
 * typical value there. The body of an IF counts where its condition holds there or is not known.
 * What the C compiler computes once (common subexpressions) counts once. A core begins
 * TCI_COUNT_WIDTH instructions a cycle, of them as many on vectors as it has ports; a round takes
 * no less than what it carries to the next one; a vector load of lanes that were stored one by one
 * waits for the stores. The numbers were fitted to pads, concatenations, slices, upsampling,
 * transposes and gathers on one core (bench/results/fusion.md). */
#include "../base/hash.h"
#include "count.h"

enum { TCI_COUNT_SLOTS = 64 };

typedef struct tci_count {
    const tci_loop *l;
    int64_t *indices;
    bool *known;    /* per index */
    int8_t *truth;  /* per value, of conditions: -1 not known */
    int32_t *same;  /* per value: the first one that is computed alike, itself if there is none */
    const tci_lstmt **made; /* per value that is the first: its statement */
    int32_t *latest; /* per slot of a hash table: the first value last put there, -1: none; */
    int32_t *before; /* per value: the one in its slot before */
    double *depth;  /* per value: cycles since the loop at hand read what it carries; -1: none */
    double carried; /* the most cycles of what it carries to its next round */
    bool open;      /* some trip count is not known */
} tci_count;

/* Instructions, and of them those of the vector ports. */
typedef struct tci_counted { double all, vector; } tci_counted;

enum {
    TCI_COUNT_DIVIDE = 3,   /* a division of an index by a number */
    TCI_COUNT_ROUND = 2,    /* of a loop, for each round, */
    TCI_COUNT_ENTER = 4,    /* and once */
    TCI_COUNT_MASK = 2,     /* a mask of the first lanes, or an access of some lanes */
    TCI_COUNT_NEAR = 4,     /* a stride whose elements lie in so many vectors is no gather */
    TCI_COUNT_LATENCY = 4,  /* cycles of an operation until its result is there, */
    TCI_COUNT_DIVIDES = 12, /* of a division */
    TCI_COUNT_FORWARD = 12, /* a load of what several stores have just written */
    TCI_COUNT_WIDTH = 6     /* instructions that a core begins in a cycle */
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

static tci_counted tci_count_access(const tci_count *c, const tci_lstmt *st)
{
    unsigned uses = tci_lmem_uses((tci_mem)st->mem);
    double lanes = c->l->lanes, each = 1;
    int64_t step = tci_dim_hint(st->imm);
    switch ((int)st->mem) {
    case TCI_MEM_LOAD_ONE:
    case TCI_MEM_STORE_ONE:
    case TCI_MEM_STORE_LANE: return tci_count_make(1, 0);
    case TCI_MEM_FIRST_N: return tci_count_make(TCI_COUNT_MASK, 1);
    case TCI_MEM_PREFETCH:
    case TCI_MEM_FENCE: return tci_count_make(0, 0);
    case TCI_MEM_LOAD_AT: each = lanes; break;
    case TCI_MEM_LOAD_STRIDED:
    case TCI_MEM_LOAD_STRIDED_N:
    case TCI_MEM_STORE_STRIDED:
    case TCI_MEM_STORE_STRIDED_N:
        step = step < 0 ? -step : step;
        each = step <= TCI_COUNT_NEAR ? 2.0 * (double)step : lanes;
        break;
    default: break;
    }
    bool some = (uses & (TCI_LMEM_MASK | TCI_LMEM_COUNT)) != 0;
    bool forwards = (uses & TCI_LMEM_DST) && (uses & TCI_LMEM_ADDRESS) && st->base < 0 &&
                    c->l->locals[~st->base].is_lane;
    double all = each + (some ? TCI_COUNT_MASK : 0) + (forwards ? TCI_COUNT_FORWARD : 0);
    return tci_count_make(all, each);
}

static tci_counted tci_count_block(tci_count *c, int block);

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
    c->indices[st->dst] = begin + rounds / 2 * step;
    if (rounds == 0) {
        return n;
    }
    double outside = c->carried;
    c->carried = 0;
    tci_counted body = tci_count_block(c, st->body);
    body.all = TCI_MAX(body.all, c->carried * TCI_COUNT_WIDTH);
    c->carried = outside;
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
        bool divides = st->op == TCI_L_PRIM && st->prim == TCI_P_DIV;
        double latency = st->op == TCI_L_COPY ? 0 : divides ? TCI_COUNT_DIVIDES : TCI_COUNT_LATENCY;
        c->depth[st->dst] = depth < 0 ? -1 : depth + latency;
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
    tci_count c = {.l = l};
    c.indices = TCI_NEW_ARRAY(s, int64_t, l->n_indices + 1);
    c.known = TCI_NEW_ARRAY(s, bool, l->n_indices + 1);
    c.truth = TCI_NEW_ARRAY(s, int8_t, l->n_values + 1);
    c.same = TCI_NEW_ARRAY(s, int32_t, l->n_values + 1);
    c.before = TCI_NEW_ARRAY(s, int32_t, l->n_values + 1);
    c.made = TCI_NEW_ARRAY(s, const tci_lstmt *, l->n_values + 1);
    c.latest = TCI_NEW_ARRAY(s, int32_t, TCI_COUNT_SLOTS);
    for (int i = 0; i < TCI_COUNT_SLOTS; i++) {
        c.latest[i] = -1;
    }
    c.depth = TCI_NEW_ARRAY(s, double, l->n_values + 1);
    for (int v = 0; v < l->n_values; v++) {
        c.truth[v] = -1;
        c.depth[v] = -1;
        c.same[v] = v;
    }
    tci_counted n = tci_count_block(&c, 0);
    double cycles = TCI_MAX(n.all / TCI_COUNT_WIDTH, n.vector / TCI_MAX(machine->ports, 1));
    return c.open ? 0 : cycles / machine->ghz;
}
