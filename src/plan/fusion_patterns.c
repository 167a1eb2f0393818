/* plan/fusion_patterns.c - fuses groups that match a pattern (attention, norms) into one kernel.
 *
 * In: the groups, the machine. Out: fewer groups. Each pattern is a row of tci_patterns: what it
 * matches around a group, and whether it is profitable. All matches are found first and tried in
 * the order of bytes saved, most first. A match is built (plan/merge_groups.c) only if it is legal
 * and profitable, so nothing is ever undone; the reason of a rejected match is recorded.
 *
 * Attention over x[rows, keys] is one group made of three:
 *
 *     root                         domain            outer_of   inner_of
 *     CONTRACT s = q k             rows, keys | d    0, -1, -1  -1, 0, 1
 *     REDUCE   m, l of s           rows | keys       0, -1      -1, 0
 *     VALUE    y = exp(s - m) / l  rows, keys        0, -1      -1, 0
 *     CONTRACT y v                 rows, dv | keys   0, -1, -1  -1, 2, 0
 *
 * Each value has the same bits as in separate groups: rows along the last axis have class LANES in
 * both cases, unless they are shorter than TCI_PATTERN_ROW; those are not fused. */
#include <math.h>

#include "../kernel/match_attention.h"
#include "fusion_cost.h"
#include "merge_groups.h"

enum {
    TCI_PATTERN_ROW = 16,        /* elements of a row, at least */
    TCI_PATTERN_ROWS = 8,        /* rows, at least: what packing asks (loop/back_to_back_gemm.c) */
    TCI_PATTERN_BYTES = 1 << 17, /* of the rows that one outer point keeps, at most */
    TCI_PATTERN_NEAR = 1 << 17,  /* bytes of rows that a thread works on at once, at least, */
    TCI_PATTERN_TILE = 128,      /* and how many, at most */
    TCI_PATTERN_PACKS = 4,       /* rows whose products take as long as packing for them */
    TCI_PATTERN_WALK = 512,      /* groups visited before a cycle is assumed */
    TCI_PATTERN_BLOCKS = 8,      /* of threads, that a processor runs at once */
    TCI_PATTERN_STEP_NS = 5      /* of a chain whose factors are in the nearest cache */
};

typedef struct tci_pattern_match {
    const struct tci_pattern *pattern;
    int32_t group[3]; /* by tci_join_part */
    double saved;     /* bytes that no longer go to memory and back */
} tci_pattern_match;

typedef struct tci_pattern_state {
    tci_fusion *f;
    tci_machine machine;
    int32_t *reader;  /* per group: the one group that reads it; -1 none, -2 several */
    int32_t *sibling; /* per group: the first reader over the same outer space; -1 none */
    bool *is_output;  /* per group: some root is an output of the program */
    int32_t *into;    /* per group: where it was joined to, itself: nowhere */
    bool *is_shared;  /* per group: part of it has readers other than the one it was joined to */
} tci_pattern_state;

typedef struct tci_pattern {
    const char *name;
    bool keeps, on_unit;
    bool further; /* INTO keeps rows by then */
    /* Fills m->group of a pattern around group g (INTO). */
    bool (*match)(const tci_pattern_state *p, int g, tci_pattern_match *m);
    /* Whether the joined group, which is legal and saves this many bytes, is faster; else why not.
     */
    bool (*pays)(const tci_pattern_state *p, const tci_join *j, double saved, tci_why *why);
} tci_pattern;

/* ---- who reads what ---- */

static bool tci_pattern_has_space(const tci_group *a, const tci_group *b)
{
    bool same = a->n_outer == b->n_outer;
    for (int o = 0; o < a->n_outer && same; o++) {
        same = a->outer[o] == b->outer[o];
    }
    return same;
}

static void tci_pattern_find_readers(tci_pattern_state *p)
{
    const tci_fusion *f = p->f;
    p->reader = TCI_NEW_ARRAY(f->s, int32_t, f->n_groups + 1);
    p->sibling = TCI_NEW_ARRAY(f->s, int32_t, f->n_groups + 1);
    p->into = TCI_NEW_ARRAY(f->s, int32_t, f->n_groups + 1);
    p->is_output = TCI_NEW_ARRAY(f->s, bool, f->n_groups + 1);
    p->is_shared = TCI_NEW_ARRAY(f->s, bool, f->n_groups + 1);
    for (int g = 0; g < f->n_groups; g++) {
        p->reader[g] = p->sibling[g] = -1;
        p->into[g] = g;
    }
    for (int i = 0; i < f->n_roots; i++) {
        const tci_root *r = &f->roots[i];
        p->is_output[r->group] |= r->is_output;
        for (int n = 0; n < tci_root_n_before(r); n++) { /* who waits for it counts as one, too */
            int from = f->roots[tci_root_before(f, r, n)].group;
            bool first = p->reader[from] == -1 || p->reader[from] == r->group;
            if (from == r->group) {
                continue;
            }
            p->reader[from] = first ? r->group : -2;
            if (n < r->n_reads && p->sibling[from] < 0 &&
                tci_pattern_has_space(&f->groups[from], &f->groups[r->group])) {
                p->sibling[from] = r->group;
            }
        }
    }
}

/* A group is where it was joined to. */
static int tci_pattern_now(const tci_pattern_state *p, int g)
{
    while (g >= 0 && p->into[g] != g) {
        g = p->into[g];
    }
    return g;
}

/* True if `into` depends on a group that depends on `makes`, which it reads. Also true if the
 * search gets long. */
static bool tci_pattern_makes_cycle(const tci_pattern_state *p, int makes, int into)
{
    tci_fusion *f = p->f;
    int32_t *stack = NULL;
    int n = 0, cap = 0, visited = 0, stamp = ++f->stamp;
    TCI_PUSH(f->s, stack, n, cap, into);
    while (n > 0) {
        int at = stack[--n];
        const tci_group *g = &f->groups[at];
        for (int i = 0; i < g->n_deps; i++) {
            int dep = tci_pattern_now(p, g->deps[i]);
            if (dep == makes ? at != into : ++visited > TCI_PATTERN_WALK) {
                return true;
            }
            if (dep != makes && dep != into && f->groups[dep].stamp != stamp) {
                f->groups[dep].stamp = stamp;
                TCI_PUSH(f->s, stack, n, cap, dep);
            }
        }
    }
    return false;
}

/* Bytes of what group `to` reads of group `from`, each value once. */
static double tci_pattern_between(tci_fusion *f, int from, int to)
{
    int stamp = ++f->stamp;
    double bytes = 0;
    for (int i = 0; i < f->groups[to].n_roots; i++) {
        const tci_root *r = &f->roots[f->groups[to].roots[i]];
        for (int n = 0; n < r->n_reads; n++) {
            const tci_root *q = &f->roots[r->reads[n].root];
            bool counts = q->group == from && tci_pnode_of(f, q->node)->met != stamp;
            bytes += counts ? tci_node_value_bytes(q->node) : 0;
            tci_pnode_of(f, q->node)->met = stamp;
        }
    }
    return bytes;
}

/* ---- rows of contractions ---- */

static bool tci_pattern_is_rows(const tci_group *g)
{
    return g->has_reduce && !g->has_contract && !g->has_scan && !g->has_scatter;
}

/* A group of one contraction and what follows it element by element. */
static bool tci_pattern_is_contraction(const tci_fusion *f, const tci_group *g)
{
    int contractions = 0;
    for (int i = 0; i < g->n_roots; i++) {
        contractions += f->roots[g->roots[i]].kind == TCI_ROOT_CONTRACT;
    }
    return contractions == 1 && !g->keeps;
}

static bool tci_pattern_match_rows(const tci_pattern_state *p, int g, tci_pattern_match *m)
{
    const tci_group *rows = &p->f->groups[g];
    m->group[TCI_JOIN_MAKES] = m->group[TCI_JOIN_TAKES] = -1;
    for (int i = 0; i < rows->n_deps && tci_pattern_is_rows(rows); i++) {
        int dep = rows->deps[i];
        if (p->reader[dep] == g && !p->is_output[dep] &&
            tci_pattern_is_contraction(p->f, &p->f->groups[dep])) {
            m->group[TCI_JOIN_MAKES] = dep;
            return true;
        }
    }
    return false;
}

static bool tci_pattern_match_attention(const tci_pattern_state *p, int g, tci_pattern_match *m)
{
    int after = p->reader[g];
    bool fits = tci_pattern_match_rows(p, g, m) && after >= 0 && !p->is_output[g] &&
                tci_pattern_is_contraction(p->f, &p->f->groups[after]);
    m->group[TCI_JOIN_TAKES] = after;
    return fits;
}

/* A contraction that rows read in addition to one that they are merged with by then. */
static bool tci_pattern_match_further(const tci_pattern_state *p, int g, tci_pattern_match *m)
{
    int reader = p->reader[g];
    m->group[TCI_JOIN_MAKES] = g;
    m->group[TCI_JOIN_INTO] = reader;
    m->group[TCI_JOIN_TAKES] = -1;
    return reader >= 0 && !p->is_output[g] && tci_pattern_is_rows(&p->f->groups[reader]) &&
           tci_pattern_is_contraction(p->f, &p->f->groups[g]);
}

static bool tci_pattern_has_half(const tci_join *j)
{
    bool half = false;
    for (int i = 0; i < j->n_roots; i++) {
        const tci_root *r = &j->f->roots[j->roots[i]];
        for (int n = 0; n < r->n_inlined && r->kind == TCI_ROOT_CONTRACT; n++) {
            half |= tci_dtype_is_half((tc_dtype)r->inlined[n]->dtype);
        }
        half |= tci_dtype_is_half((tc_dtype)r->node->dtype);
    }
    return half;
}

/* Bytes that one outer point keeps (values take the place of what they are computed from),
 * typically; 0: its rows are too short or not of floats, or, but where `open`, too long or of
 * unknown length. */
static int64_t tci_pattern_row_bytes(const tci_join *j, bool open)
{
    double bytes = 0;
    for (int i = 0; i < j->n_roots; i++) {
        const tci_root *r = &j->f->roots[j->roots[i]];
        tc_dtype t = (tc_dtype)tci_dtype_get((tc_dtype)r->node->dtype)->compute;
        double row = tci_dtype_get(t)->bytes;
        if ((r->kind == TCI_ROOT_CONTRACT && !tci_dtype_is_float((tc_dtype)r->node->dtype)) ||
            (r->kind == TCI_ROOT_REDUCE && !tci_class_may_keep(j->f, r->node))) {
            return 0;
        }
        for (int d = 0; d < r->n_domain; d++) {
            bool folds = d >= r->n_out && r->kind == TCI_ROOT_REDUCE;
            bool inner = j->outer_of[i][d] < 0;
            if (inner && ((!open && !tci_dim_is_known(r->domain[d])) ||
                          (folds && tci_dim_lt(r->domain[d], TCI_PATTERN_ROW)))) {
                return 0;
            }
            row *= d < r->n_out && inner ? (double)TCI_MAX(tci_dim_hint(r->domain[d]), 1) : 1;
        }
        bytes += r->kind == TCI_ROOT_CONTRACT ? row : 0;
    }
    return open || bytes <= TCI_PATTERN_BYTES ? (int64_t)bytes : 0;
}

/* True if the rows may be of unknown number and length: on a CPU, which cuts strips at run time,
 * except for its matrix unit. In blocks of known rows, more indices are computed in 32 bits. */
static bool tci_pattern_is_open(const tci_join *j, tci_machine machine)
{
    bool any = false, narrow = true;
    for (int i = 0; i < j->n_roots; i++) {
        const tci_root *r = &j->f->roots[j->roots[i]];
        for (int d = 0; d < r->n_domain; d++) {
            any = any || !tci_dim_is_known(r->domain[d]);
        }
        for (int n = 0; n < r->n_inlined; n++) {
            narrow = narrow && (!tci_op_is(r->inlined[n]->op, TCI_IS_DRAWN) ||
                                tci_dim_le(tci_node_count(r->inlined[n]), UINT32_MAX));
        }
    }
    bool by_unit = machine.matrix_units > 0 && tci_pattern_has_half(j);
    return any && narrow && !by_unit && machine.block_threads == 0;
}

/* Of the contraction before. */
static double tci_pattern_products(const tci_join *j)
{
    double products = 0;
    for (int i = 0; i < j->n_roots; i++) {
        const tci_root *r = &j->f->roots[j->roots[i]];
        double points = 1;
        for (int d = 0; d < r->n_domain; d++) {
            points *= (double)tci_dim_hint(r->domain[d]);
        }
        bool makes = tci_join_is_of(j, j->roots[i], TCI_JOIN_MAKES);
        products += makes && r->kind == TCI_ROOT_CONTRACT ? points : 0;
    }
    return products;
}

/* GPUs have no form yet that packs: each lane is one chain, its loads apart from its neighbours'.
 * That is for what takes no longer than a launch, and has no class of a unit. */
static bool tci_pattern_blocks_pay(const tci_pattern_state *p, const tci_join *j, int64_t bytes)
{
    const tci_group *rows = &j->f->groups[j->group[TCI_JOIN_INTO]];
    const tc_machine *m = &p->machine.facts;
    double points = 1, steps = 0;
    for (int o = 0; o < rows->n_outer; o++) {
        points *= (double)tci_dim_hint(rows->outer[o]);
    }
    for (int i = 0; i < j->n_roots; i++) {
        const tci_root *r = &j->f->roots[j->roots[i]];
        double summed = 1, kept = 1;
        for (int d = 0; d < r->n_domain; d++) {
            kept *= d < r->n_out && j->outer_of[i][d] < 0 ? (double)tci_dim_known(r->domain[d]) : 1;
            summed *= d >= r->n_out ? (double)tci_dim_known(r->domain[d]) : 1;
        }
        bool chain = r->kind == TCI_ROOT_CONTRACT;
        if (chain && tci_plan_unit_of(j->f, r, p->machine) > TCI_ORDER_CHAIN) {
            return false;
        }
        steps += chain ? summed * ceil(kept / TCI_VLANES) : 0;
    }
    double waves = points / ((double)m->processors * TCI_PATTERN_BLOCKS);
    return bytes <= m->shared_bytes / 2 &&
           TCI_MAX(waves, 1) * steps * TCI_PATTERN_STEP_NS <= m->launch_ns;
}

/* Width of the widest value relative to the values of the contraction: the kernel has as many lanes
 * as fit the widest one, so contractions take that many times longer. */
static double tci_pattern_widens(const tci_join *j)
{
    int widest = 1, own = 8;
    for (int i = 0; i < j->n_roots; i++) {
        const tci_root *r = &j->f->roots[j->roots[i]];
        tc_dtype t = (tc_dtype)tci_dtype_get((tc_dtype)r->node->dtype)->compute;
        int bytes = tci_dtype_get(t)->bytes;
        own = r->kind == TCI_ROOT_CONTRACT ? TCI_MIN(own, bytes) : own;
        for (int n = 0; n < r->n_inlined; n++) {
            t = (tc_dtype)tci_dtype_get((tc_dtype)r->inlined[n]->dtype)->compute;
            bool none = tci_op_is(r->inlined[n]->op, TCI_IS_NUMBER) ||
                        tci_pnode_of(j->f, r->inlined[n])->index > 0; /* no lanes: a GUARD */
            bytes = none ? 1 : tci_dtype_get(t)->bytes;
            widest = TCI_MAX(widest, bytes);
        }
    }
    return TCI_MAX((double)widest / own, 1);
}

/* Compares the saved traffic with the cost of packing the other operand of the first contraction
 * again for every few rows (loop/back_to_back_gemm.c), and of fewer lanes. Scalar code loses
 * nothing. */
static bool tci_pattern_strips_pay(const tci_pattern_state *p, const tci_join *j, double saved,
                                   bool fits_unit, tci_why *why)
{
    const tci_group *rows = &j->f->groups[j->group[TCI_JOIN_INTO]];
    const tc_machine *m = &p->machine.facts;
    bool open = j->group[TCI_JOIN_TAKES] >= 0 && tci_pattern_is_open(j, p->machine);
    int64_t bytes = tci_pattern_row_bytes(j, open);
    tci_dim n_rows = rows->n_outer > 0 ? rows->outer[rows->n_outer - 1] : 1;
    *why = TCI_WHY_ROW;
    if (bytes == 0 || (!open && !tci_dim_is_known(n_rows)) ||
        tci_dim_lt(n_rows, TCI_PATTERN_ROWS)) {
        return false;
    }
    *why = TCI_WHY_PRICE;
    if (p->machine.matrix_units > 0 && tci_pattern_has_half(j) && !fits_unit) {
        return false;
    }
    if (p->machine.block_threads > 0) {
        return tci_pattern_blocks_pay(p, j, bytes);
    }
    if (p->machine.vector_bytes == 0) {
        return true;
    }
    double near = (double)TCI_MAX(m->cache_bytes[1] / 2, TCI_PATTERN_NEAR);
    double at_once = TCI_MIN(near / (double)bytes, (double)TCI_MAX(tci_dim_hint(n_rows), 1));
    at_once = TCI_MIN(at_once, TCI_PATTERN_TILE);
    double rate = m->ghz * m->ports * 2 * TCI_MAX(p->machine.vector_bytes / 4, 1);
    double gbs = saved <= (double)m->cache_bytes[1]   ? m->near_bytes * m->ghz
                 : saved <= (double)m->cache_bytes[2] ? m->far_bytes * m->ghz
                                                      : m->memory_gbs / m->processors;
    double flops = 2 * tci_pattern_products(j), again = TCI_PATTERN_PACKS / TCI_MAX(at_once, 1);
    return flops * (again + 2 * (tci_pattern_widens(j) - 1)) / rate <= 2 * saved / gbs;
}

static bool tci_pattern_rows_pay(const tci_pattern_state *p, const tci_join *j, double saved,
                                 tci_why *why)
{
    return tci_pattern_strips_pay(p, j, saved, false, why);
}

/* True if the first contraction is materialized. plan/plan.c does this where the kernel does not
 * fit a matrix unit. */
static bool tci_pattern_is_forced(const tci_join *j)
{
    bool forced = false;
    for (int i = 0; i < j->n_roots; i++) {
        const tci_root *r = &j->f->roots[j->roots[i]];
        forced |= tci_join_is_of(j, j->roots[i], TCI_JOIN_MAKES) && r->kind == TCI_ROOT_CONTRACT &&
                  tci_pnode_of(j->f, r->node)->forced;
    }
    return forced;
}

/* The same of bf16 on a CPU's unit, which kernel/match_matrix_unit.c says of the kernel. */
static bool tci_pattern_kept_pays(const tci_pattern_state *p, const tci_join *j, double saved,
                                  tci_why *why)
{
    const tci_machine *m = &p->machine;
    *why = TCI_WHY_PRICE;
    return m->matrix_units > 0 && m->block_threads == 0 && m->thread_scratch && !m->reproducible &&
           tci_pattern_has_half(j) && !tci_pattern_is_forced(j) &&
           tci_pattern_strips_pay(p, j, saved, true, why);
}

/* Of the contractions of a join: both of f32, f16 or bf16, of known sizes that suit a GPU's form of
 * attention, and the first not forced into memory, as plan/plan.c does where
 * kernel/match_attention.c, which sees the kernel, says no. */
static bool tci_pattern_unit_pays(const tci_pattern_state *p, const tci_join *j, double saved,
                                  tci_why *why)
{
    const tci_machine *m = &p->machine;
    bool fits = tci_attention_has_threads(*m) && !m->reproducible;
    (void)saved;
    *why = TCI_WHY_PRICE;
    for (int i = 0; i < j->n_roots && fits; i++) {
        const tci_root *r = &j->f->roots[j->roots[i]];
        for (int d = 0; d < r->n_domain; d++) {
            fits = fits && tci_dim_is_known(r->domain[d]);
        }
        if (r->kind == TCI_ROOT_CONTRACT && fits) {
            int64_t rows = tci_dim_known(r->domain[r->n_out - 2]);
            bool makes = tci_join_is_of(j, j->roots[i], TCI_JOIN_MAKES);
            fits = !(makes && tci_pnode_of(j->f, r->node)->forced) && r->n_domain == r->n_out + 1 &&
                   rows >= TCI_MATRIX_ROWS;
        }
    }
    return fits;
}

/* ---- one space ---- */

/* A group that one other reads, or several, one of them over its space, with no contraction and no
 * running sum to hold it apart. */
static bool tci_pattern_match_space(const tci_pattern_state *p, int g, tci_pattern_match *m)
{
    const tci_fusion *f = p->f;
    const tci_group *makes = &f->groups[g];
    int reader = p->reader[g] == -2 ? p->sibling[g] : p->reader[g];
    m->group[TCI_JOIN_MAKES] = g;
    m->group[TCI_JOIN_INTO] = reader;
    m->group[TCI_JOIN_TAKES] = -1;
    return reader >= 0 && !makes->has_contract && !makes->has_scan && !makes->has_scatter &&
           !f->groups[reader].has_scan && !f->groups[reader].has_scatter &&
           !f->groups[reader].keeps;
}

static bool tci_pattern_always_pays(const tci_pattern_state *p, const tci_join *j, double saved,
                                    tci_why *why)
{
    (void)p, (void)j, (void)saved, (void)why;
    return true;
}

/* Of matches that save as much the earlier row is tried first. */
static const tci_pattern tci_patterns[] = {
    {"attention of a GPU", true, true, false, tci_pattern_match_attention, tci_pattern_unit_pays},
    {"attention of a processor's unit", true, true, false, tci_pattern_match_attention,
     tci_pattern_kept_pays},
    {"a contraction of rows of a contraction", true, false, false, tci_pattern_match_attention,
     tci_pattern_rows_pay},
    {"rows of a contraction", true, false, false, tci_pattern_match_rows, tci_pattern_rows_pay},
    {"rows of contractions", true, false, true, tci_pattern_match_further, tci_pattern_rows_pay},
    {"groups over one space", false, false, false, tci_pattern_match_space,
     tci_pattern_always_pays},
};

/* ---- trying ---- */

/* The reason of the pattern takes the place of the one that the round has found. */
static void tci_pattern_say(tci_fusion *f, const tci_node *reader, const tci_node *source,
                            tci_why why)
{
    for (int i = 0; i < f->n_refusals; i++) {
        if (f->refusals[i].reader == reader && f->refusals[i].source == source) {
            f->refusals[i].why = (uint8_t)why;
            return;
        }
    }
    tci_group_refuse(f, reader, source, why);
}

/* Why the first root of INTO that reads MAKES is apart from it. */
static void tci_pattern_refuse(const tci_join *j, tci_why why)
{
    tci_fusion *f = j->f;
    for (int i = 0; i < j->n_roots; i++) {
        const tci_root *r = &f->roots[j->roots[i]];
        for (int n = 0; n < r->n_reads; n++) {
            if (tci_join_is_of(j, j->roots[i], TCI_JOIN_INTO) &&
                tci_join_is_of(j, r->reads[n].root, TCI_JOIN_MAKES)) {
                tci_pattern_say(f, r->node, f->roots[r->reads[n].root].node, why);
                return;
            }
        }
    }
}

static void tci_pattern_try(const tci_pattern_state *p, const tci_pattern_match *m)
{
    tci_join j = {.f = p->f, .keeps = m->pattern->keeps};
    tci_why why = TCI_WHY_INDEX;
    for (int part = 0; part < 3; part++) {
        int now = tci_pattern_now(p, m->group[part]);
        bool keeps = now >= 0 && p->f->groups[now].keeps;
        bool joined = now != m->group[part] || keeps;
        bool grows = m->pattern->further && part == TCI_JOIN_INTO;
        if (grows ? !keeps || p->f->groups[now].on_unit : joined && (j.keeps || keeps)) {
            return; /* part of another pattern, or of none that grows */
        }
        j.group[part] = now;
    }
    int makes = j.group[TCI_JOIN_MAKES], into = j.group[TCI_JOIN_INTO];
    bool shared = makes >= 0 && (p->reader[m->group[TCI_JOIN_MAKES]] == -2 || p->is_shared[makes]);
    if (shared && tci_pattern_makes_cycle(p, makes, into)) {
        return;
    }
    if (tci_join_try(&j, &why) && m->pattern->pays(p, &j, m->saved, &why)) {
        tci_join_build(&j);
        p->f->groups[into].pattern = m->pattern->name;
        p->f->groups[into].on_unit = m->pattern->on_unit;
        p->is_shared[into] |= shared;
        for (int part = 0; part < 3; part++) {
            if (j.group[part] >= 0) {
                p->into[j.group[part]] = into;
            }
        }
    } else if (j.keeps) { /* the round has recorded why for the others */
        tci_pattern_refuse(&j, why);
    }
}

/* Sorts matches by saving, largest first; equal ones keep their order. */
static void tci_pattern_sort(tci_scratch *s, tci_pattern_match *m, int n)
{
    tci_pattern_match *to = TCI_NEW_ARRAY(s, tci_pattern_match, n + 1);
    for (int run = 1; run < n; run *= 2) {
        for (int begin = 0; begin < n; begin += 2 * run) {
            int a = begin, b = TCI_MIN(begin + run, n), end = TCI_MIN(begin + 2 * run, n);
            int a_end = b;
            for (int at = begin; at < end; at++) {
                bool first = b == end || (a < a_end && m[a].saved >= m[b].saved);
                to[at] = m[first ? a++ : b++];
            }
        }
        for (int i = 0; i < n; i++) {
            m[i] = to[i];
        }
    }
}

/* ---- kernels of pairs ---- */

/* True if one of the groups depends on an outside group that depends on another of them. Also true
 * if the search gets long. The search does not go further back than the groups. */
static bool tci_pattern_pairs_cycle(tci_fusion *f, const int32_t *groups, int n_groups)
{
    int32_t *stack = NULL;
    int n = 0, cap = 0, visited = 0, inside = ++f->stamp, stamp = ++f->stamp;
    int first = f->groups[groups[0]].roots[0];
    for (int i = 0; i < n_groups; i++) {
        tci_group *g = &f->groups[groups[i]];
        g->stamp = inside;
        first = TCI_MIN(first, g->roots[0]);
    }
    for (int i = 0; i < n_groups; i++) {
        TCI_PUSH(f->s, stack, n, cap, groups[i]);
    }
    while (n > 0) {
        const tci_group *g = &f->groups[stack[--n]];
        bool is_inside = g->stamp == inside;
        for (int i = 0; i < g->n_deps; i++) {
            tci_group *dep = &f->groups[g->deps[i]];
            if (dep->stamp == inside ? !is_inside : ++visited > TCI_PATTERN_WALK) {
                return true;
            }
            bool may = dep->roots[dep->n_roots - 1] > first; /* wait for one of them */
            if (dep->stamp != inside && dep->stamp != stamp && may) {
                dep->stamp = stamp;
                TCI_PUSH(f->s, stack, n, cap, g->deps[i]);
            }
        }
    }
    return false;
}

/* True if all values of group g are computed from values of those groups. */
static bool tci_pattern_follows(const tci_fusion *f, int g, const int32_t *groups, int n_groups)
{
    const tci_group *own = &f->groups[g];
    bool follows = own->n_deps > 0 && own->kernel == 0 && !own->keeps;
    for (int i = 0; i < own->n_roots; i++) {
        follows = follows && f->roots[own->roots[i]].kind == TCI_ROOT_VALUE;
    }
    for (int i = 0; i < own->n_deps && follows; i++) {
        follows = false;
        for (int j = 0; j < n_groups; j++) {
            follows = follows || groups[j] == own->deps[i];
        }
    }
    return follows;
}

static bool tci_pattern_join_pairs(tci_fusion *f, tci_machine machine,
                                   const tci_scores_kernel *kernel, const int32_t *groups,
                                   int n_groups, tci_join *j)
{
    tci_why why;
    *j = (tci_join){.f = f};
    if (n_groups == 0 || tci_pattern_pairs_cycle(f, groups, n_groups) ||
        !tci_join_try_pairs(j, groups, n_groups, tci_pnode_of(f, kernel->product)->root,
                            kernel->summed, &why)) {
        return false;
    }
    tci_dim rows = j->n_outer > 0 ? j->outer[j->n_outer - 1] : 1;
    bool open = tci_pattern_is_open(j, machine);
    return tci_pattern_row_bytes(j, open) > 0 && (open || tci_dim_is_known(rows)) &&
           !tci_dim_lt(rows, TCI_PATTERN_ROWS);
}

/* The groups of kernel number `number` as one, with values made of what it stores. */
static bool tci_pattern_pairs(tci_fusion *f, tci_machine machine, int number)
{
    const tci_scores_kernel *kernel = &f->pairs->items[number - 1];
    int32_t *groups = TCI_NEW_ARRAY(f->s, int32_t, f->n_groups + 1);
    int n = 0;
    tci_join j, more;
    for (int g = 0; g < f->n_groups; g++) {
        if (f->groups[g].kernel == number) {
            groups[n++] = g;
        }
    }
    if (!tci_pattern_join_pairs(f, machine, kernel, groups, n, &j)) {
        return false;
    }
    for (int g = 0; g < f->n_groups && !f->no_fusion && !kernel->alone; g++) {
        groups[n] = g;
        if (tci_pattern_follows(f, g, groups, n) &&
            tci_pattern_join_pairs(f, machine, kernel, groups, n + 1, &more)) {
            j = more;
            n++;
        }
    }
    tci_join_build(&j);
    f->groups[groups[0]].pattern = "pairs of rows and columns";
    return true;
}

static void tci_pattern_apply_pairs(tci_fusion *f, tci_machine machine)
{
    for (int i = 0; i < f->pairs->n; i++) {
        f->joined[i] = tci_pattern_pairs(f, machine, i + 1);
        tci_join_renumber(f);
    }
}

TCI_FN void tci_pattern_apply(tci_fusion *f, tci_machine machine)
{
    tci_pattern_state p = {.f = f, .machine = tci_machine_complete(machine)};
    tci_pattern_match *list = NULL;
    int n = 0, cap = 0;
    tci_pattern_apply_pairs(f, machine);
    if (f->no_fusion) {
        return;
    }
    tci_pattern_find_readers(&p);
    for (int i = 0; i < TCI_COUNT(tci_patterns); i++) {
        for (int g = 0; g < f->n_groups; g++) {
            tci_pattern_match m = {&tci_patterns[i], {-1, g, -1}, 0};
            if (tci_patterns[i].match(&p, g, &m)) {
                int into = m.group[TCI_JOIN_INTO], takes = m.group[TCI_JOIN_TAKES];
                m.saved = tci_pattern_between(f, m.group[TCI_JOIN_MAKES], into);
                m.saved += takes >= 0 ? tci_pattern_between(f, into, takes) : 0;
                TCI_PUSH(f->s, list, n, cap, m);
            }
        }
    }
    tci_pattern_sort(f->s, list, n);
    for (int i = 0; i < n; i++) {
        tci_pattern_try(&p, &list[i]);
    }
    if (n > 0) {
        tci_join_renumber(f);
    }
}
