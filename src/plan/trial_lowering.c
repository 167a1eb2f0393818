/* plan/trial_lowering.c - trial lowering: finds what each materialized value (root) computes and
 * reads, by lowering it on its own into a kernel that is discarded.
 *
 * In: the nodes, and those that must be materialized (`forced`). Out: a root with its domain, its
 * reads, its leaves and the nodes that it evaluates. A probe lowers the root into a kernel that is
 * thrown away. A node materialized in this round, too late to be a root in it, is a leaf for the
 * probes that follow.
 *
 * The result of a probe follows from the graph and from which of the nodes that it met were
 * materialized, in its own round or earlier. So a root that is placed again is probed again only
 * if one of these nodes was materialized in the round of its probe or later. */
#include "fusion_groups.h"

enum { TCI_ROOT_LISTED = 64 /* positions of a root, at most */ };

/* ---- roots ---- */

TCI_FN uint8_t tci_root_kind_of(const tci_node *n)
{
    if (tci_plan_is_leaf(n)) {
        return TCI_ROOT_VALUE;
    }
    return tci_op_is_reduce(n->op)                                ? TCI_ROOT_REDUCE
           : n->op == TCI_OP_CONTRACT                             ? TCI_ROOT_CONTRACT
           : n->op == TCI_OP_SCAN                                 ? TCI_ROOT_SCAN
           : n->op == TCI_OP_SCATTER                              ? TCI_ROOT_SCATTER
           : n->op == TCI_OP_SEGMENT                              ? TCI_ROOT_SCATTER
           : n->op == TCI_OP_RESULT                               ? TCI_ROOT_REPEAT
           : n->op == TCI_OP_CUSTOM || n->op == TCI_OP_COLLECTIVE ? TCI_ROOT_CUSTOM
                                                                  : TCI_ROOT_VALUE;
}

TCI_FN tci_put tci_root_puts(const tci_node *n)
{
    return n->op == TCI_OP_SEGMENT                     ? TCI_PUT_STRETCHES
           : n->op != TCI_OP_SCATTER                   ? TCI_PUT_NOTHING
           : tci_dim_known(n->attr[TCI_SCATTER_APART]) ? TCI_PUT_APART
                                                       : TCI_PUT_LINES;
}

TCI_FN bool tci_root_is_linked(const tci_node *n)
{
    return n->op == TCI_OP_SCAN && n->n_attr > TCI_SCAN_PARTS;
}

TCI_FN tci_dim tci_root_parts(const tci_node *n)
{
    return tci_root_is_linked(n)                 ? n->attr[TCI_SCAN_PARTS]
           : n->op == TCI_OP_SCAN && n->n_in > 1 ? n->in[1]->shape[tci_dim_known(n->attr[0])]
                                                 : 0;
}

/* x, or of a reversed SCAN the position that is as far from the end of n. */
static int tci_root_from_end(tci_kernel *k, int x, tci_dim n, bool reverse)
{
    int last = tci_kx_const(k, tci_dim_add(n, -1));
    return reverse ? tci_kx_add(k, last, tci_kx_mul(k, x, -1)) : x;
}

TCI_FN int tci_root_index(tci_kernel *k, const tci_root *r, const int *domain, int axis)
{
    int x = domain[r->out_axis[axis]], last = r->n_domain - 1;
    const tci_node *n = r->node;
    if (n->op != TCI_OP_SCAN || axis != n->attr[0]) {
        return x;
    }
    if (tci_root_parts(n) != 0) {
        x = tci_kx_add(k, tci_kx_mul(k, x, r->domain[last]), domain[last]);
    }
    return tci_root_from_end(k, x, n->shape[axis], n->attr[1] != 0);
}

static bool tci_root_has(const int64_t *list, int n, int64_t v)
{
    for (int i = 0; i < n; i++) {
        if (list[i] == v) {
            return true;
        }
    }
    return false;
}

/* Domain of a contraction: a size per output label, then per summed label in order of first use. */
static void tci_root_contract_domain(tci_scratch *s, tci_root *r)
{
    const tci_contraction *c = tci_contraction_of(s, r->node);
    r->domain = TCI_NEW_ARRAY(s, tci_dim, c->n_axes + 1);
    r->n_domain = c->n_axes;
    for (int i = 0; i < c->n_axes; i++) {
        r->domain[i] = c->axes[i].size;
    }
}

static bool tci_root_is_of_units(const tci_node *n)
{
    bool units = n->op == TCI_OP_CAT && n->n_in > 1;
    for (int i = 0; i < n->n_in && units; i++) {
        units = n->in[i]->shape[tci_dim_known(n->attr[0])] == 1;
    }
    return units;
}

static void tci_root_domain(tci_scratch *s, tci_root *r)
{
    const tci_node *n = r->node;
    r->out_axis = TCI_NEW_ARRAY(s, int32_t, n->rank + 1);
    r->n_out = n->rank;
    for (int i = 0; i < n->rank; i++) {
        r->out_axis[i] = i;
    }
    if (r->kind == TCI_ROOT_CONTRACT) {
        tci_root_contract_domain(s, r);
    } else if (r->kind == TCI_ROOT_REDUCE) {
        const tci_node *in = n->in[0];
        r->domain = TCI_NEW_ARRAY(s, tci_dim, in->rank + 1);
        r->n_domain = in->rank;
        int kept = 0, reduced = n->rank;
        for (int i = 0; i < in->rank; i++) {
            r->domain[tci_root_has(n->attr, n->n_attr, i) ? reduced++ : kept++] = in->shape[i];
        }
    } else {
        tci_dim parts = tci_root_parts(n);
        bool along = (r->kind == TCI_ROOT_SCAN && parts == 0) || tci_root_puts(n) == TCI_PUT_LINES;
        r->domain = TCI_NEW_ARRAY(s, tci_dim, n->rank + 2);
        r->n_domain = n->rank;
        for (int i = 0; i < n->rank; i++) {
            int at = i;
            if (along) { /* the node's axis comes last */
                at = i == n->attr[0] ? n->rank - 1 : i > n->attr[0] ? i - 1 : i;
                r->out_axis[i] = at;
            }
            r->domain[at] = n->shape[i];
        }
        r->n_out = along ? n->rank - 1 : n->rank;
        if (parts != 0) {
            r->domain[r->n_domain++] = tci_dim_div(r->domain[tci_dim_known(n->attr[0])], parts);
            r->domain[tci_dim_known(n->attr[0])] = parts;
        }
        if (tci_root_puts(n) == TCI_PUT_LINES) {
            r->domain[r->n_domain++] = n->in[1]->shape[tci_dim_known(n->attr[0])];
        } else if (tci_root_puts(n) == TCI_PUT_STRETCHES) {
            r->domain[r->n_domain++] = n->in[2]->shape[0];
        }
    }
    r->outer_of = TCI_NEW_ARRAY(s, int32_t, r->n_domain + 1);
}

/* A CAT of single elements along axes in front of the last one, nested or not, would ask for each
 * element which part it is of; so its positions are listed. On a CPU, where the parts that are
 * stored side by side are vectors. */
static void tci_root_list(const tci_fusion *f, tci_root *r)
{
    r->listed = TCI_NEW_ARRAY(f->s, int32_t, r->node->rank + 1);
    for (int i = 0; i < r->node->rank; i++) {
        r->listed[i] = 1;
    }
    r->n_listed = 1;
    for (const tci_node *n = r->node; tci_root_is_of_units(n) && !f->blocks; n = n->in[0]) {
        int axis = (int)tci_dim_known(n->attr[0]);
        bool fits = axis < n->rank - 1 && r->listed[axis] == 1 &&
                    r->n_listed * n->n_in <= TCI_ROOT_LISTED;
        if (!fits) {
            break;
        }
        r->listed[axis] = n->n_in;
        r->n_listed *= n->n_in;
        r->domain[r->out_axis[axis]] = 1;
    }
}

TCI_FN void tci_root_at_place(tci_kernel *k, const tci_root *r, int place, int *domain)
{
    for (int i = r->node->rank - 1; i >= 0 && r->n_listed > 1; i--) {
        if (r->listed[i] > 1) {
            domain[r->out_axis[i]] = tci_kx_const(k, place % r->listed[i]);
            place /= r->listed[i];
        }
    }
}

static tci_root tci_root_make(const tci_fusion *f, tci_node *n)
{
    tci_root r = {0};
    r.node = n;
    r.kind = tci_root_kind_of(n);
    r.is_output = tci_pnode_of(f, n)->is_output;
    r.group = -1;
    r.buffer = -1;
    tci_root_domain(f->s, &r);
    tci_root_list(f, &r);
    return r;
}

/* ---- probes ---- */

typedef struct tci_root_prober {
    tci_fusion *f;
    tci_root *r;
    int self, stamp;
} tci_root_prober;

static tci_read tci_root_make_read(tci_lower *l, int root, tci_node *n, const int *idx)
{
    bool whole = ((const tci_root_prober *)l->user)->f->roots[root].n_listed == 1;
    tci_read read = {n, root, whole, false, TCI_NEW_ARRAY(l->s, int32_t, n->rank + 1)};
    for (int i = 0; i < n->rank; i++) {
        const tci_kx *x = &l->k->kx[idx[i]];
        read.axes[i] = x->op == TCI_KX_AXIS ? tci_kx_number(x) : -1;
        tci_dim size = x->op == TCI_KX_AXIS ? l->k->axes[tci_kx_number(x)].size : 1;
        read.pure &= size == n->shape[i];
        for (int j = 0; j < i; j++) {
            read.pure &= read.axes[i] < 0 || read.axes[j] != read.axes[i];
        }
    }
    return read;
}

/* Counts n among the operands of the probed root, once; true the first time. */
static bool tci_root_meets(const tci_root_prober *p, const tci_node *n)
{
    tci_pnode *pn = tci_pnode_of(p->f, n);
    bool first = pn->met != p->stamp;
    pn->met = p->stamp;
    p->r->n_operands += first;
    return first;
}

static int tci_root_access(tci_lower *l, tci_node *n, const int *idx, int guard)
{
    tci_root_prober *p = l->user;
    const tci_pnode *known = tci_pnode_of(p->f, n);
    int root = known->root;
    bool leaf = tci_plan_is_leaf(n) || (root < 0 && known->forced);
    if (!leaf && (root < 0 || root == p->self)) {
        return -1;
    }
    bool first = tci_root_meets(p, n);
    if (!leaf) {
        tci_read read = tci_root_make_read(l, root, n, idx);
        TCI_PUSH(l->s, p->r->reads, p->r->n_reads, p->r->cap_reads, read);
    } else if (first) {
        TCI_PUSH(l->s, p->r->leaves, p->r->n_leaves, p->r->cap_leaves, n);
    }
    tc_dtype t = (tc_dtype)tci_dtype_get((tc_dtype)n->dtype)->compute;
    int x = tci_lower_offset(l, n->rank, n->shape, NULL, idx);
    return tci_lower_load(l, (int)n->id, t, x, guard);
}

static int tci_root_literal(tci_lower *l, tci_node *n)
{
    (void)l;
    return (int)n->id;
}

/* The inputs of a root that its stage evaluates, with their indices over the root's domain. */
TCI_FN const int *tci_plan_input_index(tci_lower *l, const tci_root *r, int input,
                                       const int *domain)
{
    const tci_node *n = r->node, *in = n->in[input];
    int *idx = TCI_NEW_ARRAY(l->s, int, in->rank + 1);
    if (r->kind == TCI_ROOT_SCAN || r->kind == TCI_ROOT_SCATTER) {
        for (int i = 0; i < in->rank; i++) {
            bool along = tci_root_puts(n) == TCI_PUT_LINES && input > 0 && i == n->attr[0];
            bool start = input > 0 && tci_root_parts(n) != 0 && i == n->attr[0];
            idx[i] = along   ? domain[r->n_domain - 1]
                     : start ? domain[r->out_axis[i]]
                             : tci_root_index(l->k, r, domain, i);
        }
        return idx;
    }
    if (r->kind == TCI_ROOT_REDUCE) {
        int kept = 0, reduced = n->rank;
        for (int i = 0; i < in->rank; i++) {
            idx[i] = domain[tci_root_has(n->attr, n->n_attr, i) ? reduced++ : kept++];
        }
        return idx;
    }
    const tci_contraction *c = tci_contraction_of(l->s, n);
    for (int d = 0; d < c->n_axes; d++) {
        if (c->axes[d].at[input] >= 0) {
            idx[c->axes[d].at[input]] = domain[d];
        }
    }
    return idx;
}

TCI_FN tci_lower_placed tci_plan_scatter_put(tci_lower *l, const tci_root *r, const int *domain)
{
    const int *idx = tci_plan_input_index(l, r, 1, domain);
    return tci_root_puts(r->node) == TCI_PUT_STRETCHES
               ? tci_lower_segment(l, r->node, idx, domain[r->n_domain - 1])
               : tci_lower_scatter(l, r->node, idx);
}

/* ---- barriers ---- */

/* Whatever computes n comes before r. */
static void tci_root_wait(tci_fusion *f, tci_root *r, tci_node *n)
{
    int n_walk = 0, stamp = ++f->stamp;
    TCI_PUSH(f->s, f->walk, n_walk, f->cap_walk, n);
    while (n_walk > 0) {
        tci_node *u = f->walk[--n_walk];
        tci_pnode *p = tci_pnode_of(f, u);
        if (p->walked == stamp) {
            continue;
        }
        p->walked = stamp;
        if (p->root >= 0) {
            TCI_PUSH(f->s, r->waits, r->n_waits, r->cap_waits, u);
            continue;
        }
        for (int i = 0; i < u->n_in; i++) {
            TCI_PUSH(f->s, f->walk, n_walk, f->cap_walk, u->in[i]);
        }
    }
}

/* r reads through n, if that is a BARRIER. */
static void tci_root_bar(tci_fusion *f, tci_root *r, tci_node *n)
{
    if (n->op != TCI_OP_BARRIER) {
        return;
    }
    const tci_node *source = tci_plan_source(n);
    for (int i = 1; i < n->n_in; i++) {
        tci_root_wait(f, r, n->in[i]);
    }
    for (int i = 0; i < r->n_reads; i++) {
        bool barred = r->reads[i].node == source;
        r->reads[i].barred = r->reads[i].barred || barred;
        r->reads[i].pure = r->reads[i].pure && !barred;
    }
}

TCI_FN int tci_root_before(const tci_fusion *f, const tci_root *r, int i)
{
    return i < r->n_reads ? r->reads[i].root : tci_pnode_of(f, r->waits[i - r->n_reads])->root;
}

TCI_FN int tci_root_buffer_of(const tci_fusion *f, tci_node *n)
{
    const tci_node *source = tci_plan_source(n);
    const tci_pnode *known = tci_pnode_of(f, source);
    /* a leaf that is an output has a root too, which copies it: nothing waits for the copy */
    bool given = tci_plan_is_leaf(source) || known->root < 0;
    return given ? known->buffer : f->roots[known->root].buffer;
}

/* Operands of a loop, or of a user call, are materialized and read as a whole. */
static void tci_root_read_all(tci_root_prober *p, tci_lower *l)
{
    for (int i = 0; i < p->r->node->n_in; i++) {
        tci_node *in = tci_plan_source(p->r->node->in[i]);
        int *idx = TCI_NEW_ARRAY(l->s, int, in->rank + 1);
        for (int a = 0; a < in->rank; a++) {
            idx[a] = tci_kx_const(l->k, 0);
        }
        tci_root_access(l, in, idx, 0);
    }
    for (int i = 0; i < p->r->n_reads; i++) {
        p->r->reads[i].pure = false;
    }
    for (int i = 0; i < p->r->node->n_in; i++) {
        tci_root_bar(p->f, p->r, p->r->node->in[i]);
    }
}

static void tci_root_probe(tci_fusion *f, int self)
{
    tci_root *r = &f->roots[self];
    tci_kernel *k = tci_kernel_make(f->s);
    tci_lower l;
    tci_lower_init(&l, f->s, k);
    tci_root_prober p = {f, r, self, ++f->stamp};
    l.user = &p;
    l.access = tci_root_access;
    l.literal = tci_root_literal;
    int *domain = TCI_NEW_ARRAY(f->s, int, r->n_domain + 1);
    for (int i = 0; i < r->n_domain; i++) {
        int axis = tci_kernel_axis(k, r->domain[i], false);
        domain[i] = tci_kx_axis(k, axis);
    }
    if (r->kind == TCI_ROOT_REPEAT || r->kind == TCI_ROOT_CUSTOM) {
        tci_root_read_all(&p, &l);
    } else if (r->kind == TCI_ROOT_VALUE) {
        for (int i = 0; i < r->n_listed; i++) {
            tci_root_at_place(k, r, i, domain);
            tci_lower_value(&l, r->node, domain, 0);
        }
    } else if (r->kind == TCI_ROOT_SCATTER) {
        if (tci_root_puts(r->node) != TCI_PUT_APART) {
            tci_lower_value(&l, r->node->in[0], tci_plan_input_index(&l, r, 0, domain), 0);
        }
        tci_plan_scatter_put(&l, r, domain);
    } else {
        for (int i = 0; i < r->node->n_in; i++) {
            tci_lower_value(&l, r->node->in[i], tci_plan_input_index(&l, r, i, domain), 0);
        }
    }
    r->n_inlined = tci_lower_visited(&l, &r->inlined);
    for (int i = 0; i < r->n_inlined; i++) {
        r->weight += tci_store_weight(f, r, r->inlined[i]);
        tci_root_bar(f, r, r->inlined[i]);
    }
    r->round = f->round;
    f->n_probed++;
}

static bool tci_root_holds(const tci_fusion *f, const tci_root *r)
{
    for (int i = 0; i < r->n_inlined; i++) {
        const tci_node *n = r->inlined[i];
        if (n != r->node && tci_pnode_of(f, n)->forced_in >= r->round) {
            return false;
        }
    }
    return true;
}

/* True if what a probe found of root r, in an earlier round or fusion of the same graph, is what it
 * would find now: the same values are evaluated, and the same ones are roots or are in memory.
 * Inputs come before r, so they are decided. */
static bool tci_root_is_as(tci_fusion *f, const tci_root *r)
{
    const int stamp = ++f->stamp;
    bool same = r->n_waits == 0; /* the roots below a BARRIER may be others */
    for (int i = 0; i < r->n_reads + r->n_leaves && same; i++) {
        const tci_node *n = i < r->n_reads ? r->reads[i].node : r->leaves[i - r->n_reads];
        tci_pnode *p = tci_table_find(&f->known, n);
        bool in_memory = p && (tci_plan_is_leaf(n) || (p->root < 0 && p->forced));
        same = p && (i < r->n_reads ? p->root >= 0 && !in_memory : in_memory);
        p = same ? p : tci_pnode_of(f, r->node);
        p->met = stamp;
    }
    for (int i = 0; i < r->n_inlined && same; i++) {
        const tci_pnode *p = tci_table_find(&f->known, r->inlined[i]);
        bool evaluates = p && p->root < 0 && !p->forced && !tci_plan_is_leaf(r->inlined[i]);
        same = p && (r->inlined[i] == r->node || evaluates || p->met == stamp);
    }
    return same;
}

/* Cached result for root r; NULL: a probe has to find it. */
static const tci_root *tci_root_known(tci_fusion *f, const tci_fusion *in, const tci_root *r)
{
    tci_found_root *const *first = in ? tci_table_find(&in->probes, r->node) : NULL;
    for (const tci_found_root *p = first ? *first : NULL; p; p = p->next) {
        if (p->root.kind == r->kind && tci_root_is_as(f, &p->root)) {
            return &p->root;
        }
    }
    return NULL;
}

static void tci_root_remember(tci_fusion *f, const tci_root *r)
{
    tci_found_root **first = tci_table_at(&f->probes, r->node);
    tci_found_root *found = TCI_NEW(f->s, tci_found_root);
    *found = (tci_found_root){*r, *first};
    *first = found;
}

/* Gives root r what is known of it; false: a probe has to. */
static bool tci_root_take(tci_fusion *f, tci_root *r)
{
    const tci_root *as = tci_root_known(f, f, r);
    const tci_root *other = as ? as : tci_root_known(f, f->like, r);
    if (!other) {
        return false;
    }
    r->reads = tci_scratch_copy(f->s, other->reads, sizeof(*r->reads) * (size_t)other->n_reads);
    r->n_reads = r->cap_reads = other->n_reads;
    r->leaves = other->leaves;
    r->n_leaves = r->cap_leaves = other->n_leaves;
    r->inlined = other->inlined;
    r->n_inlined = other->n_inlined;
    r->weight = other->weight;
    r->n_operands = other->n_operands;
    r->round = f->round;
    if (!as) {
        tci_root_remember(f, r);
    }
    return true;
}

TCI_FN int tci_root_add(tci_fusion *f, tci_node *n)
{
    tci_pnode *p = tci_pnode_of(f, n);
    bool holds = p->kept && tci_root_holds(f, p->kept);
    tci_root now = holds ? *p->kept : tci_root_make(f, n);
    holds = holds || tci_root_take(f, &now);
    TCI_PUSH(f->s, f->roots, f->n_roots, f->cap_roots, now);
    p->root = f->n_roots - 1;
    for (int i = 0; i < now.n_reads; i++) { /* others precede them by now */
        now.reads[i].root = tci_pnode_of(f, now.reads[i].node)->root;
    }
    if (!holds) {
        tci_root_probe(f, p->root);
        tci_root_remember(f, &f->roots[p->root]);
    }
    return p->root;
}
