/* plan/print.c - prints groups and plans as text, for dumps, golden tests and tc_explain.
 *
 * The text is the same for the same graph in every process. The text of groups has one line per
 * group in execution order, and one for each of its roots:
 *
 *     group 0 over [64]: 11 operations, 1 operand, after none
 *       r1 = REDUCE sum f32 [64] over (0, 100), evaluates sub exp, reads x0 r0(0)
 *
 * A domain axis is an outer axis (its number) or inner (its size in parentheses, with a letter
 * where rows are kept, as two axes of one size may differ); x0 is the first leaf, r0(0) the value
 * of another root read at the domain axis 0, r0(?) at an index that is no axis. The refusals
 * follow. */
#include "../graph/build.h"
#include "fusion_groups.h"
#include "fusion_refusal.h"

/* ---- groups ---- */

/* Numbers of the leaves: of int. */
static tci_table tci_fusion_leaf_numbers(const tci_fusion *f)
{
    tci_table numbers = tci_table_in(f->s, sizeof(int));
    int n = 0;
    for (int i = 0; i < f->nodes.n; i++) {
        if (tci_plan_is_leaf(f->nodes.items[i])) {
            *(int *)tci_table_at(&numbers, f->nodes.items[i]) = n++;
        }
    }
    return numbers;
}

static void tci_fusion_print_node(tci_str *out, const tci_node *n)
{
    tci_str_printf(out, "%s %s %s", tci_op_name(n->op), tci_dtype_get((tc_dtype)n->dtype)->name,
                   tci_shape_text_of(n->rank, n->shape).text);
}

static void tci_fusion_print_domain(tci_str *out, const tci_root *r)
{
    for (int i = 0; i < r->n_domain; i++) {
        tci_str_add(out, i ? ", " : "");
        if (r->outer_of[i] >= 0) {
            tci_str_printf(out, "%d", r->outer_of[i]);
        } else {
            tci_str_add(out, tci_shape_text_of(1, &r->domain[i]).text);
            if (r->inner_of && r->inner_of[i] >= 0) {
                tci_str_printf(out, "%c", 'a' + r->inner_of[i] % 26);
            }
        }
    }
}

static void tci_fusion_print_read(tci_str *out, const tci_fusion *f, const tci_read *read)
{
    int rank = f->roots[read->root].node->rank;
    tci_str_printf(out, " r%d(", read->root);
    for (int a = 0; read->pure && a < rank; a++) {
        tci_str_add(out, a ? ", " : "");
        if (read->axes[a] >= 0) {
            tci_str_printf(out, "%d", read->axes[a]);
        } else {
            tci_str_add(out, "-"); /* of size 1 */
        }
    }
    tci_str_add(out, read->pure ? ")" : "?)");
}

static void tci_fusion_print_root(tci_str *out, const tci_fusion *f, int root, tci_table *leaves)
{
    static const char *const kinds[] = {"VALUE", "REDUCE", "CONTRACT", "SCAN", "SCATTER"};
    const tci_root *r = &f->roots[root];
    tci_str_printf(out, "  r%d = %s ", root, kinds[r->kind]);
    tci_fusion_print_node(out, r->node);
    tci_str_add(out, " over (");
    tci_fusion_print_domain(out, r);
    tci_str_add(out, ")");
    const char *before = ", evaluates";
    for (int i = 0; i < r->n_inlined; i++) {
        const tci_node *n = r->inlined[i];
        if (tci_pnode_of(f, n)->root < 0 && !tci_op_is(n->op, TCI_IS_QUIET)) {
            tci_str_printf(out, "%s %s", before, tci_op_name(n->op));
            before = "";
        }
    }
    tci_str_add(out, r->n_leaves + r->n_reads ? ", reads" : "");
    for (int i = 0; i < r->n_leaves; i++) {
        tci_str_printf(out, " x%d", *(int *)tci_table_at(leaves, r->leaves[i]));
    }
    for (int i = 0; i < r->n_reads; i++) {
        tci_fusion_print_read(out, f, &r->reads[i]);
    }
    tci_str_add(out, r->is_output ? ", an output" : r->buffer >= 0 ? ", in memory" : "");
    const tci_pnode *p = tci_pnode_of(f, r->node);
    if (p->why < TCI_WHY_COUNT) {
        tci_str_printf(out, ": %s", tci_why_text((tci_why)p->why));
    }
    tci_str_add(out, "\n");
}

static void tci_fusion_print_group(tci_str *out, const tci_fusion *f, int at, tci_table *leaves)
{
    const tci_group *g = &f->groups[at];
    tci_str_printf(out, "group %d over %s: %s%s%d operation%s, %d operand%s, after", at,
                   tci_shape_text_of(g->n_outer, g->outer).text, g->pattern ? g->pattern : "",
                   g->pattern ? ", " : "", g->weight, g->weight == 1 ? "" : "s", g->n_operands,
                   g->n_operands == 1 ? "" : "s");
    for (int i = 0; i < g->n_deps; i++) {
        tci_str_printf(out, " %d", g->deps[i]);
    }
    tci_str_add(out, g->n_deps ? "\n" : " none\n");
    for (int i = 0; i < g->n_roots; i++) {
        tci_fusion_print_root(out, f, g->roots[i], leaves);
    }
}

TCI_FN void tci_fusion_print(tci_str *out, const tci_fusion *f)
{
    tci_table leaves = tci_fusion_leaf_numbers(f);
    for (int i = 0; i < f->nodes.n; i++) {
        if (tci_plan_is_leaf(f->nodes.items[i])) {
            tci_str_printf(out, "x%d = ", *(int *)tci_table_at(&leaves, f->nodes.items[i]));
            tci_fusion_print_node(out, f->nodes.items[i]);
            tci_str_add(out, "\n");
        }
    }
    for (int i = 0; i < f->n_groups; i++) {
        tci_fusion_print_group(out, f, f->order[i], &leaves);
    }
    for (int i = 0; i < f->n_refusals; i++) {
        const tci_refusal *r = &f->refusals[i];
        tci_str_printf(out, "r%d is not computed with r%d: %s\n", tci_pnode_of(f, r->reader)->root,
                       tci_pnode_of(f, r->source)->root, tci_why_text((tci_why)r->why));
    }
}

/* ---- plans ---- */

TCI_FN void tci_plan_print(tci_str *out, const tci_plan *p)
{
    static const char *const kinds[] = {"input", "output", "temp", "kept"};
    for (int t = 0; t < p->n_steps; t++) {
        const tci_step *step = &p->steps[t];
        const tci_kernel *k = p->kernels[step->kernel];
        for (int i = 0; i < p->n_spans; i++) {
            if (p->spans[i].first == t) {
                tci_str_printf(out, "steps %d to %d, %s rounds:\n", t, p->spans[i].last - 1,
                               TCI_DIM_TEXT(p->spans[i].rounds));
            }
        }
        tci_str_printf(out, "%s %d: kernel %d %s (", t < p->n_init ? "once, step" : "step", t,
                       step->kernel, k->name);
        for (int o = 0; o < k->n_operands; o++) {
            const tci_buffer *b = &p->buffers[step->operands[o]];
            tci_str_printf(out, "%s%s %s%d", o ? ", " : "",
                           k->operands[o].is_output ? "write" : "read", kinds[b->kind],
                           b->index >= 0 ? b->index : step->operands[o]);
            if (step->offsets[o] != 0) {
                tci_str_printf(out, " from %s", TCI_DIM_TEXT(step->offsets[o]));
            }
        }
        tci_str_printf(out, ") flops %lld bytes %lld\n", (long long)k->flops, (long long)k->bytes);
    }
    for (int b = 0; b < p->n_buffers; b++) {
        const tci_buffer *buffer = &p->buffers[b];
        if (buffer->index < 0) {
            tci_str_printf(out, "%s%d: %lld bytes at %lld, steps %d to %d\n", kinds[buffer->kind],
                           b, (long long)tci_dim_hint(buffer->bytes), (long long)buffer->offset,
                           buffer->first, buffer->last);
        }
    }
    for (int a = 0; a < p->n_aliases; a++) {
        tci_str_printf(out, "output %d may overlap input %d\n", p->aliases[a].output,
                       p->aliases[a].input);
    }
    tci_str_printf(out, "arena %lld bytes\n", (long long)p->arena_bytes);
    if (p->kept_bytes) {
        tci_str_printf(out, "kept %lld bytes\n", (long long)p->kept_bytes);
    }
    tci_str_add(out, tci_str_text(&p->orders));
    tci_why_plain(out, tci_str_text(&p->why));
}

TCI_FN void tci_plan_print_dot(tci_str *out, const tci_plan *p)
{
    tci_str_add(out, "digraph plan {\nnode [shape=box, fontname=monospace];\n");
    for (int t = 0; t < p->n_steps; t++) {
        const tci_step *step = &p->steps[t];
        const tci_kernel *k = p->kernels[step->kernel];
        tci_str_printf(out, "s%d [label=\"%d %s\\n%.3g flops, %.3g bytes\"];\n", t, t, k->name,
                       (double)k->flops, (double)k->bytes);
        for (int o = 0; o < k->n_operands; o++) {
            bool written = k->operands[o].is_output;
            for (int w = t - 1; w >= 0 && !written; w--) { /* from who wrote it last */
                const tci_step *by = &p->steps[w];
                const tci_kernel *from = p->kernels[by->kernel];
                for (int q = 0; q < from->n_operands && !written; q++) {
                    written = from->operands[q].is_output && by->operands[q] == step->operands[o];
                }
                if (written) {
                    tci_str_printf(out, "s%d -> s%d [label=\"%lld\"];\n", w, t,
                                   (long long)tci_dim_hint(p->buffers[step->operands[o]].bytes));
                }
            }
        }
    }
    tci_str_add(out, "}\n");
}
