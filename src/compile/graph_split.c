/* compile/graph_split.c - partitions a graph between an engine and tc.
 *
 * In: a request whose engine refused the graph as a whole. Out: a copy of the graph in which each
 * part that the engine runs is one CUSTOM node, and the programs of these parts. Later stages see a
 * graph with calls of host functions.
 *
 * Design: the level of a node is the number of changes of side (tc, engine) on the longest path to
 * it: even for tc, odd for the engine. The engine's nodes of one level form one part. A path from
 * one of them to another through a node of tc would have raised the level, so parts are convex and
 * as large as their level allows (as in TVM's MergeCompilerRegions). Nodes that do not depend on a
 * user input have no side: each part has its own copies, which its engine folds.
 *
 * A node can be refused in three ways: the engine does not support its op (supports) or sizes; the
 * node cannot be expressed in the engine's format; or the engine refuses the model of a part, and
 * then the model of a single node of that part, or else the whole part. After each refusal the
 * levels are computed again. A loop (REPEAT node) and its results are on one side; effects, the
 * user's functions and collectives belong to tc. */
#include "graph_split.h"

#include <string.h>

#include "../graph/loop_node.h"

enum {
    TCI_SPLIT_ROUNDS = 64, /* refusals after which tc takes the graph */
    TCI_SPLIT_WHYS = 4     /* refusals that tc_explain names */
};

/* Facts of a node. */
enum {
    TCI_SPLIT_OUTER = 1 << 0,  /* of no body */
    TCI_SPLIT_VARIES = 1 << 1, /* an input of the user reaches it */
    TCI_SPLIT_REFUSED = 1 << 2,
    TCI_SPLIT_FREE = 1 << 3, /* has no side: it does not vary, and a model can have it */
    TCI_SPLIT_ENGINE = 1 << 4,
    TCI_SPLIT_PROBED = 1 << 5 /* its like was given to the engine by itself */
};

typedef struct tci_splitting {
    tci_scratch *s;
    const tci_request *r;
    tci_split *out;
    tci_graph_making base; /* what all parts have in common */
    int n;                 /* nodes with a number (tci_request_number) */
    uint8_t *facts;
    int32_t *levels;
    int top; /* the highest level */
    tci_graph_making *parts;
    int n_parts, cap_parts;
    int32_t *part_levels, *part_nodes; /* level of each part, and how many nodes it has */
    tci_node *at;                      /* the node that is being written */
    const char *whys[TCI_SPLIT_WHYS];
    int n_whys;
} tci_splitting;

static tci_node *tci_split_node(const tci_splitting *p, int i)
{
    int n_user = p->r->n_user_inputs;
    return i < n_user ? p->r->inputs[i] : p->r->nodes[i - n_user];
}

/* Operands of a leaf, or of memory, are none. */
static int tci_split_n_in(const tci_node *n)
{
    return tci_node_is_value(n) ? 0 : tci_node_n_outside(n);
}

static uint8_t tci_split_facts(const tci_splitting *p, const tci_node *n)
{
    return p->facts[tci_request_number(p->r, n)];
}

/* ---- refusals ---- */

static void tci_split_refuse(tci_splitting *p, int i, const char *why)
{
    const tci_node *n = tci_split_node(p, i);
    i = n->op == TCI_OP_RESULT ? tci_request_number(p->r, n->in[0]) : i;
    if (!(p->facts[i] & TCI_SPLIT_REFUSED) && why && p->n_whys < TCI_SPLIT_WHYS) {
        p->whys[p->n_whys++] = tci_scratch_printf(p->s, "%s", why);
    }
    p->facts[i] |= TCI_SPLIT_REFUSED;
}

/* The user's nodes above others come first from the back. */
static void tci_split_find_outer(tci_splitting *p)
{
    for (int i = 0; i < p->r->n_roots; i++) {
        p->facts[tci_request_number(p->r, p->r->roots[i])] |= TCI_SPLIT_OUTER;
    }
    for (int i = p->n - 1; i >= 0; i--) {
        const tci_node *n = tci_split_node(p, i);
        for (int k = 0; k < tci_split_n_in(n) && (p->facts[i] & TCI_SPLIT_OUTER); k++) {
            p->facts[tci_request_number(p->r, n->in[k])] |= TCI_SPLIT_OUTER;
        }
    }
}

static void tci_split_ask(tci_splitting *p)
{
    for (int i = 0; i < p->n; i++) {
        const tci_node *n = tci_split_node(p, i);
        if (tci_node_is_value(n)) {
            continue;
        }
        if (n->op == TCI_OP_CUSTOM || n->op == TCI_OP_COLLECTIVE ||
            tci_op_is(n->op, TCI_IS_EFFECT)) {
            tci_split_refuse(p, i, NULL);
            continue;
        }
        const char *why = tci_graph_program_refusal(&p->base, n);
        if (why) {
            tci_split_refuse(p, i, why);
        }
    }
}

/* A node within a body that is refused has its loop refused, with all its results. */
static void tci_split_spread(tci_splitting *p)
{
    for (int i = 0; i < p->n; i++) {
        const tci_node *n = tci_split_node(p, i);
        int n_in = tci_node_is_value(n) ? 0 : n->n_in;
        bool within = !(p->facts[i] & TCI_SPLIT_OUTER) || n->op == TCI_OP_RESULT;
        for (int k = within ? 0 : tci_split_n_in(n); k < n_in; k++) {
            p->facts[i] |= tci_split_facts(p, n->in[k]) & TCI_SPLIT_REFUSED;
        }
    }
}

/* ---- levels ---- */

static void tci_split_level(tci_splitting *p, int i)
{
    const tci_node *n = tci_split_node(p, i);
    const bool leaf = tci_node_is_value(n) || tci_op_is(n->op, TCI_IS_LEAF);
    bool varies = n->op == TCI_OP_INPUT, is_free = true;
    int32_t level = 0;
    for (int k = 0; k < tci_split_n_in(n); k++) {
        int of = tci_request_number(p->r, n->in[k]);
        varies = varies || (p->facts[of] & TCI_SPLIT_VARIES);
        is_free = is_free && (p->facts[of] & TCI_SPLIT_FREE);
        level = TCI_MAX(level, p->levels[of]);
    }
    bool taken = !(p->facts[i] & TCI_SPLIT_REFUSED);
    bool engine = varies && taken && !leaf && (p->facts[i] & TCI_SPLIT_OUTER);
    p->facts[i] &= (uint8_t)~(TCI_SPLIT_VARIES | TCI_SPLIT_FREE | TCI_SPLIT_ENGINE);
    p->facts[i] |= (uint8_t)((varies ? TCI_SPLIT_VARIES : 0) | (engine ? TCI_SPLIT_ENGINE : 0) |
                             (!varies && taken && is_free ? TCI_SPLIT_FREE : 0));
    p->levels[i] = level + (level % 2 != (int32_t)engine);
    p->top = TCI_MAX(p->top, p->levels[i]);
}

/* ---- parts ---- */

static bool tci_split_is_in(const tci_splitting *p, const tci_node *n, int level)
{
    int i = tci_request_number(p->r, n);
    return (p->facts[i] & TCI_SPLIT_ENGINE) && p->levels[i] == level;
}

static void tci_split_push(tci_splitting *p, tci_table *met, tci_node *n, tci_node ***list,
                           int *count, int *cap)
{
    if (tci_table_add(met, n)) {
        TCI_PUSH(p->s, *list, *count, *cap, n);
    }
}

/* Adds to m what node n of the part reads from outside of it, through nodes without a side. */
static void tci_split_add_inputs(tci_splitting *p, tci_graph_making *m, tci_table *met, tci_node *n,
                                 int level, int *cap)
{
    tci_node **stack = NULL;
    int n_stack = 0, cap_stack = 0;
    TCI_PUSH(p->s, stack, n_stack, cap_stack, n);
    while (n_stack) {
        n = stack[--n_stack];
        for (int k = 0; k < tci_split_n_in(n); k++) {
            tci_node *x = n->in[k];
            const bool is_free = tci_split_facts(p, x) & TCI_SPLIT_FREE;
            const bool param = tci_node_is_value(x) && !tci_graph_backend_embeds(x);
            if ((is_free && !param) ? !tci_table_add(met, x) : tci_split_is_in(p, x, level)) {
                continue;
            }
            if (!is_free || param) {
                tci_split_push(p, met, x, &m->inputs, &m->n_inputs, cap);
            } else if (tci_node_is_value(x)) {
                tci_table_add(&m->leaves, x);
            } else {
                TCI_PUSH(p->s, stack, n_stack, cap_stack, x);
            }
        }
    }
}

/* Results that others need, in the order of the graph. */
static void tci_split_add_roots(tci_splitting *p, tci_graph_making *m, int level)
{
    tci_table met = tci_table_in(p->s, sizeof(bool));
    int cap = 0;
    for (int i = 0; i < p->n; i++) {
        tci_node *n = tci_split_node(p, i);
        bool reads = (p->facts[i] & TCI_SPLIT_OUTER) && !tci_split_is_in(p, n, level);
        for (int k = 0; k < tci_split_n_in(n) && reads; k++) {
            if (tci_split_is_in(p, n->in[k], level)) {
                tci_split_push(p, &met, n->in[k], &m->roots, &m->n_roots, &cap);
            }
        }
    }
    for (int i = 0; i < p->r->n_roots; i++) {
        if (tci_split_is_in(p, p->r->roots[i], level)) {
            tci_split_push(p, &met, p->r->roots[i], &m->roots, &m->n_roots, &cap);
        }
    }
}

/* Wider dtypes first, so that each result is aligned where all have one place. */
static void tci_split_sort_roots(tci_graph_making *m)
{
    for (int i = 1; i < m->n_roots; i++) {
        tci_node *n = m->roots[i];
        int k = i;
        for (; k > 0 &&
               tc_dtype_size((tc_dtype)m->roots[k - 1]->dtype) < tc_dtype_size((tc_dtype)n->dtype);
             k--) {
            m->roots[k] = m->roots[k - 1];
        }
        m->roots[k] = n;
    }
}

static void tci_split_add_part(tci_splitting *p, int level)
{
    tci_graph_making m = p->base;
    tci_table met = tci_table_in(p->s, sizeof(bool));
    int cap = 0, n_nodes = 0, n_work = 0;
    m.leaves = tci_table_in(p->s, sizeof(bool));
    m.is_part = true;
    for (int i = 0; i < p->n; i++) {
        tci_node *n = tci_split_node(p, i);
        if (tci_split_is_in(p, n, level)) {
            n_nodes++;
            n_work += !tci_op_is(n->op, TCI_IS_VIEW);
            tci_split_add_inputs(p, &m, &met, n, level, &cap);
        }
    }
    if (n_nodes && !n_work) { /* moves elements alone */
        for (int i = 0; i < p->n; i++) {
            if (tci_split_is_in(p, tci_split_node(p, i), level)) {
                tci_split_refuse(p, i, NULL);
            }
        }
    }
    if (!n_work) {
        return;
    }
    tci_split_add_roots(p, &m, level);
    tci_split_sort_roots(&m);
    p->part_levels[p->n_parts] = level;
    p->part_nodes[p->n_parts] = n_nodes;
    TCI_PUSH(p->s, p->parts, p->n_parts, p->cap_parts, m);
}

static void tci_split_find_parts(tci_splitting *p)
{
    p->top = p->n_parts = 0;
    tci_split_spread(p);
    for (int i = 0; i < p->n; i++) {
        tci_split_level(p, i);
    }
    p->part_levels = TCI_NEW_ARRAY(p->s, int32_t, p->top + 1);
    p->part_nodes = TCI_NEW_ARRAY(p->s, int32_t, p->top + 1);
    for (int level = 1; level <= p->top; level += 2) {
        tci_split_add_part(p, level);
    }
}

/* ---- programs of parts ---- */

/* Writes m's model; false: a node has no form in the format, and the scratch has the text. */
static bool tci_split_write(tci_splitting *p, tci_graph_making *m)
{
    jmp_buf outer;
    bool written = false;
    memcpy(&outer, &p->s->escape, sizeof(outer));
    p->at = NULL;
    if (!setjmp(p->s->escape)) {
        tci_graph_program_write(m, &p->at);
        written = true;
    }
    memcpy(&p->s->escape, &outer, sizeof(outer));
    if (!written && p->s->why != TC_ERR_UNSUPPORTED) {
        longjmp(p->s->escape, 1); /* out of memory, or an invariant: the text is there */
    }
    return written;
}

static void tci_split_refuse_part(tci_splitting *p, int level, const char *why)
{
    for (int i = 0; i < p->n; i++) {
        if (tci_split_is_in(p, tci_split_node(p, i), level)) {
            tci_split_refuse(p, i, why);
            why = NULL;
        }
    }
}

/* False: a node was refused, and the parts must be found again. */
static bool tci_split_write_all(tci_splitting *p)
{
    for (int i = 0; i < p->n_parts; i++) {
        if (tci_split_write(p, &p->parts[i])) {
            continue;
        }
        int at = p->at ? tci_request_number(p->r, p->at) : -1;
        bool told = at >= 0 && tci_split_is_in(p, p->at, p->part_levels[i]);
        bool fixed = at >= 0 && (p->facts[at] & TCI_SPLIT_FREE);
        if (told || fixed) {
            tci_split_refuse(p, at, p->s->message);
        } else {
            tci_split_refuse_part(p, p->part_levels[i], p->s->message);
        }
        return false;
    }
    return true;
}

/* The same kind of node for an engine: op, dtype, rank. */
static bool tci_split_is_like(const tci_node *a, const tci_node *b)
{
    return a->op == b->op && a->dtype == b->dtype && a->rank == b->rank &&
           (a->op == TCI_OP_RESULT) == (b->op == TCI_OP_RESULT);
}

/* True if the engine refuses node i by itself. */
static bool tci_split_probe(tci_splitting *p, int i, char text[TC_GRAPH_TEXT])
{
    tci_node *n = tci_split_node(p, i), *root[1] = {n};
    tci_graph_making m = p->base;
    tci_table met = tci_table_in(p->s, sizeof(bool));
    int cap = 0;
    if (n->op == TCI_OP_REPEAT || n->op == TCI_OP_RESULT) {
        return false;
    }
    m.leaves = tci_table_in(p->s, sizeof(bool));
    m.is_part = true;
    tci_split_add_inputs(p, &m, &met, n, -1, &cap);
    m.roots = root;
    m.n_roots = 1;
    if (!tci_split_write(p, &m)) {
        return false; /* it has a form in company */
    }
    bool refused = tci_graph_program_compile(&m, text) != TC_OK;
    if (!refused) {
        tci_graph_program *made = m.c->engine;
        m.c->engine = made->next;
        made->next = NULL;
        tci_graph_backend_free(made);
    }
    return refused;
}

/* Finds the nodes of a part that the engine refuses; if there are none, all nodes of the part. */
static void tci_split_find_refused(tci_splitting *p, int part, const char *why)
{
    char text[TC_GRAPH_TEXT];
    int level = p->part_levels[part], found = 0;
    for (int i = 0; i < p->n; i++) {
        const tci_node *n = tci_split_node(p, i);
        if (!tci_split_is_in(p, n, level) || (p->facts[i] & TCI_SPLIT_PROBED)) {
            continue;
        }
        bool refused = tci_split_probe(p, i, text);
        found += refused;
        for (int k = i; k < p->n; k++) {
            const tci_node *other = tci_split_node(p, k);
            if (tci_split_is_in(p, other, level) && tci_split_is_like(n, other)) {
                p->facts[k] |= TCI_SPLIT_PROBED;
                if (refused) {
                    tci_split_refuse(p, k, k == i ? text : NULL);
                }
            }
        }
    }
    if (!found) {
        tci_split_refuse_part(p, level, why);
    }
}

/* False: as above. */
static bool tci_split_compile_all(tci_splitting *p)
{
    char text[TC_GRAPH_TEXT];
    for (int i = 0; i < p->n_parts; i++) {
        tc_status status = tci_graph_program_compile(&p->parts[i], text);
        if (status == TC_OK) {
            continue;
        }
        tci_graph_backend_free(p->base.c->engine);
        p->base.c->engine = NULL;
        if (status == TC_ERR_MEMORY) {
            tci_scratch_fail(p->s, status, "out of memory for a program of %s",
                             p->base.e->backend.name);
        }
        tci_split_find_refused(p, i, text);
        return false;
    }
    return true;
}

static void tci_split_find(tci_splitting *p)
{
    tci_split_find_outer(p);
    tci_split_ask(p);
    for (int round = 0; round < TCI_SPLIT_ROUNDS; round++) {
        tci_split_find_parts(p);
        if (!p->n_parts) {
            break;
        }
        if (tci_split_write_all(p) && tci_split_compile_all(p)) {
            return;
        }
    }
    tci_scratch_fail(p->s, TC_ERR_UNSUPPORTED, "%s takes no part of the graph%s%s",
                     p->base.e->backend.name, p->n_whys ? ": " : "", p->n_whys ? p->whys[0] : "");
}

/* ---- the copy ---- */

/* A CUSTOM node for the next call, whose results are to be filled in. */
static tci_node *tci_split_call_node(tci_splitting *p, tci_graph *g, tc_dtype dtype, int rank,
                                     const tci_dim *shape, int n_in, tci_node *const *in)
{
    int64_t number = TCI_CUSTOM_SPLIT + p->out->n_calls - 1;
    g->call = p->base.e->calls->name;
    tci_node *n = tci_graph_node(g, TCI_OP_CUSTOM, dtype, rank, shape, n_in, in, 1, &number);
    g->call = NULL;
    return n;
}

static tci_split_call *tci_split_add_call(tci_splitting *p, tci_custom_kind kind, int n_results)
{
    tci_split *out = p->out;
    tci_split_call call = {.kind = kind, .n_results = n_results};
    call.results = TCI_NEW_ARRAY(p->s, tci_node *, n_results);
    call.shapes = TCI_NEW_ARRAY(p->s, tci_dim *, n_results);
    TCI_PUSH(p->s, out->calls, out->n_calls, out->cap_calls, call);
    return &out->calls[out->n_calls - 1];
}

static void tci_split_set_result(tci_splitting *p, tci_split_call *call, int i, tci_node *n)
{
    call->results[i] = n;
    ((tci_dim **)(uintptr_t)call->shapes)[i] = tci_scratch_copy(
        p->s, tci_request_own_shape(p->s, p->r, n), sizeof(tci_dim) * (size_t)TCI_MAX(1, n->rank));
}

static void tci_split_unpack(tci_splitting *p, tci_graph *g, const tci_graph_making *m, int i,
                             tci_node *packed, tci_node **places)
{
    tci_split_call *call = tci_split_add_call(p, TCI_CUSTOM_UNPACK, i + 1);
    tci_node *n = m->roots[i];
    for (int k = 0; k <= i; k++) {
        tci_split_set_result(p, call, k, m->roots[(k + i) % (i + 1)]);
    }
    call->note = "one result of a part";
    places[tci_request_number(p->r, n)] = tci_split_call_node(p, g, (tc_dtype)n->dtype, n->rank,
                                                              call->shapes[0], 1, &packed);
}

/* Part k and its results: tci_request_cut.make. */
static void tci_split_make(void *user, tci_graph *g, int k, tci_node **places)
{
    tci_splitting *p = user;
    const tci_graph_making *m = &p->parts[k];
    tci_node **in = TCI_NEW_ARRAY(p->s, tci_node *, m->n_inputs);
    tci_split_call *call = tci_split_add_call(p, TCI_CUSTOM_PART, m->n_roots);
    tci_str note = {.s = p->s};
    tci_dim bytes = 0;
    for (int i = 0; i < m->n_inputs; i++) {
        in[i] = places[tci_request_number(p->r, m->inputs[i])];
    }
    for (int i = 0; i < m->n_roots; i++) {
        const tci_node *n = m->roots[i];
        tci_dim size = tc_dtype_size((tc_dtype)n->dtype);
        tci_split_set_result(p, call, i, m->roots[i]);
        for (int a = 0; a < n->rank; a++) {
            size = tci_dim_mul(size, call->shapes[i][a]);
        }
        bytes = tci_dim_add(bytes, size);
    }
    tci_str_printf(&note, "part %d, on ", k + 1);
    tci_graph_program_tell(m, &note);
    call->engine = m->made;
    call->note = tci_str_text(&note);
    g->region = (uint32_t)tci_request_number(p->r, m->roots[0]) + 1;
    if (m->n_roots == 1) {
        places[tci_request_number(p->r, m->roots[0])] = tci_split_call_node(
            p, g, (tc_dtype)m->roots[0]->dtype, m->roots[0]->rank, call->shapes[0], m->n_inputs,
            in);
        return;
    }
    tci_node *packed = tci_split_call_node(p, g, TC_U8, 1, &bytes, m->n_inputs, in);
    for (int i = 0; i < m->n_roots; i++) {
        tci_split_unpack(p, g, m, i, packed, places);
    }
}

/* Level by level: of tc its nodes, of the engine the part. */
static tci_request_cut tci_split_order(tci_splitting *p)
{
    int32_t *order = TCI_NEW_ARRAY(p->s, int32_t, p->r->n_nodes + p->n_parts + 1);
    int n = 0, part = 0;
    for (int level = 0; level <= p->top; level++) {
        for (int i = p->r->n_user_inputs; i < p->n && level % 2 == 0; i++) {
            if (p->levels[i] == level) {
                order[n++] = i - p->r->n_user_inputs;
            }
        }
        if (part < p->n_parts && p->part_levels[part] == level) {
            order[n++] = -1 - part++;
        }
    }
    return (tci_request_cut){order, n, tci_split_make, p};
}

/* Nodes that compute, on the side of tc. */
static int tci_split_count_own(const tci_splitting *p)
{
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        const tci_node *node = tci_split_node(p, i);
        bool leaf = tci_node_is_value(node) || tci_op_is(node->op, TCI_IS_LEAF);
        n += !leaf && (p->facts[i] & TCI_SPLIT_OUTER) &&
             !(p->facts[i] & (TCI_SPLIT_ENGINE | TCI_SPLIT_FREE));
    }
    return n;
}

static void tci_split_explain(tci_splitting *p)
{
    tci_str text = {.s = p->s};
    for (int i = 0; i < p->n_parts; i++) {
        const tci_graph_making *m = &p->parts[i];
        tci_str_printf(&text, "part %d of %d: %d node%s, %d input%s, %d result%s, on ", i + 1,
                       p->n_parts, p->part_nodes[i], p->part_nodes[i] == 1 ? "" : "s", m->n_inputs,
                       m->n_inputs == 1 ? "" : "s", m->n_roots, m->n_roots == 1 ? "" : "s");
        tci_graph_program_tell(m, &text);
        tci_str_add(&text, "; values have its bits\n");
    }
    int own = tci_split_count_own(p);
    tci_str_printf(&text, "the rest, %d node%s, by tc\n", own, own == 1 ? "" : "s");
    for (int i = 0; i < p->n_whys; i++) {
        tci_str_printf(&text, "  %s\n", p->whys[i]);
    }
    p->out->text = tci_str_text(&text);
    p->out->name = p->base.e->calls->name;
}

TCI_FN tci_request_copy tci_split_copy_graph(tci_scratch *s, tci_code *c, const tci_request *r,
                                             const tci_disk *d, tci_split *split)
{
    tci_splitting p = {.s = s, .r = r, .out = split, .n = r->n_user_inputs + r->n_nodes};
    p.base = (tci_graph_making){.s = s, .c = c, .r = r, .e = r->engine->graph, .d = d};
    p.facts = TCI_NEW_ARRAY(s, uint8_t, p.n + 1);
    p.levels = TCI_NEW_ARRAY(s, int32_t, p.n + 1);
    tci_graph_program_find(&p.base);
    tci_split_find(&p);
    tci_request_cut cut = tci_split_order(&p);
    tci_request_copy copy = tci_request_copy_graph(s, r, &cut);
    tci_split_explain(&p);
    return copy;
}
