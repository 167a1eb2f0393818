/* interp/print.c - prints a kernel in the interpreter's linear IR as text, for dumps and golden
 * tests.
 *
 * In: steps (interp/linear_ir.h). Out: the same text for the same kernel on every machine: the
 * inner-loop implementation of a step and the memory assignment of its values are omitted. One line
 * per step, in execution order; a section is indented below its stage, deeper where it runs more
 * often:
 *
 *     over 40; 50, tasks of 81 points, vectors along inner axes
 *     constants
 *       v2:4 = const 0x3f800000
 *     stage 0 REDUCE over axis 1
 *       r0 into v0 from 0x0, result v1, 64 lanes along axis 1, by add f32
 *         every point
 *           v3:4* = load operand 0 at 50 i0 + i1
 *           fold r0 v3
 *
 * A value is v, its number and the bytes of an element; * marks one with an element per lane. */
#include <inttypes.h>

#include "linear_ir.h"

static const char *tci_interp_print_kind(int kind)
{
    switch ((tci_interp_kind)kind) {
    case TCI_STEP_CONST: return "const";
    case TCI_STEP_LIT: return "literal";
    case TCI_STEP_OP: return "op";
    case TCI_STEP_LANE: return "lane";
    case TCI_STEP_INDEX: return "index";
    case TCI_STEP_DIVIDE: return "divide";
    case TCI_STEP_FLOOR: return "floor";
    case TCI_STEP_GUARD: return "guard";
    case TCI_STEP_LOAD: return "load";
    case TCI_STEP_FAULT: return "fault";
    case TCI_STEP_FOLD: return "fold";
    case TCI_STEP_ROW: return "row";
    case TCI_STEP_STORE: return "store";
    }
    return "?";
}

static const char *tci_interp_print_prim(int prim)
{
    static const char *const own[] = {"maximum", "minimum", "muladd", "from_f16", "to_f16"};
    return prim < TCI_P_COUNT ? tci_prim_get((tci_prim)prim)->name : own[prim - TCI_P_COUNT];
}

/* ---- addresses ---- */

static void tci_interp_print_times(tci_str *out, int64_t coef)
{
    if (coef != 1) {
        tci_str_printf(out, "%" PRId64 " ", coef);
    }
}

static void tci_interp_print_addr(tci_str *out, const tci_interp_addr *x)
{
    const char *plus = "";
    if (x->base || x->n_terms + x->n_atoms == 0) {
        tci_str_printf(out, "%" PRId64, x->base);
        plus = " + ";
    }
    for (int i = 0; i < x->n_terms; i++, plus = " + ") {
        tci_str_add(out, plus);
        tci_interp_print_times(out, x->terms[i].coef);
        tci_str_printf(out, "i%d", x->terms[i].axis);
    }
    for (int i = 0; i < x->n_atoms; i++, plus = " + ") {
        const tci_interp_atom *a = &x->atoms[i];
        tci_str_add(out, plus);
        tci_interp_print_times(out, a->coef);
        if (a->op == TCI_KX_VALUE) {
            tci_str_printf(out, "v%d", a->value);
        } else {
            tci_str_add(out, "(");
            tci_interp_print_addr(out, a->arg);
            tci_str_printf(out, ") %s %" PRId64, a->op == TCI_KX_DIV ? "div" : "mod", a->c);
        }
    }
}

static void tci_interp_print_guards(tci_str *out, const tci_interp_step *st)
{
    for (int i = 0; i < st->n_guards; i++) {
        const tci_interp_guard *g = &st->guards[i];
        tci_str_printf(out, "%s%" PRId64 " <= ", i ? " and " : " where ", g->lo);
        if (g->block >= 0) {
            tci_str_printf(out, "v%d", g->block);
        } else {
            tci_interp_print_addr(out, g->x);
        }
        tci_str_printf(out, " <= %" PRId64, g->hi);
    }
}

/* ---- steps ---- */

static void tci_interp_print_op(tci_str *out, const tci_interp_op *op)
{
    tci_str_printf(out, "%s %s", tci_interp_print_prim(op->prim),
                   tci_dtype_get((tc_dtype)op->dtype)->name);
    if (op->to != op->dtype) {
        tci_str_printf(out, " to %s", tci_dtype_get((tc_dtype)op->to)->name);
    }
}

/* References of a step, other than values and an address. */
static void tci_interp_print_reference(tci_str *out, const tci_interp_step *st)
{
    switch ((tci_interp_kind)st->kind) {
    case TCI_STEP_CONST: tci_str_printf(out, " 0x%" PRIx64, st->bits); break;
    case TCI_STEP_LIT: tci_str_printf(out, " %d", st->ref); break;
    case TCI_STEP_OP:
        tci_str_add(out, " ");
        tci_interp_print_op(out, &st->op);
        break;
    case TCI_STEP_LANE: tci_str_printf(out, " %s", tci_helper_get(st->ref)->name); break;
    case TCI_STEP_DIVIDE:
    case TCI_STEP_FLOOR:
        tci_str_printf(out, " %s %" PRId64, st->flag ? "mod" : "div", st->c);
        break;
    case TCI_STEP_LOAD:
    case TCI_STEP_STORE: tci_str_printf(out, " operand %d", st->ref); break;
    case TCI_STEP_FAULT: tci_str_printf(out, " size %" PRId64, st->c); break;
    case TCI_STEP_FOLD:
    case TCI_STEP_ROW: tci_str_printf(out, " r%d", st->ref); break;
    case TCI_STEP_INDEX:
    case TCI_STEP_GUARD: break;
    }
}

static void tci_interp_print_step(tci_str *out, const tci_interp_step *st, int indent)
{
    tci_str_printf(out, "%*s", indent, "");
    if (st->out >= 0) {
        tci_str_printf(out, "v%d:%d%s = ", st->out, st->bytes, st->varies ? "*" : "");
    }
    tci_str_add(out, tci_interp_print_kind(st->kind));
    tci_interp_print_reference(out, st);
    for (int i = 0; i < TCI_PARTS; i++) {
        if (st->in[i] >= 0) {
            tci_str_printf(out, " v%d", st->in[i]);
        }
    }
    if (st->x) {
        tci_str_add(out, st->panel ? " by panels at " : " at ");
        tci_interp_print_addr(out, st->x);
    }
    tci_interp_print_guards(out, st);
    tci_str_add(out, "\n");
}

/* Nothing for a section without steps. */
static void tci_interp_print_section(tci_str *out, const tci_interp_section *section, int indent,
                                     const char *when)
{
    if (section->n) {
        tci_str_printf(out, "%*s%s\n", indent, "", when);
    }
    for (int i = 0; i < section->n; i++) {
        tci_interp_print_step(out, &section->steps[i], indent + 2);
    }
}

/* ---- reductions and stages ---- */

static void tci_interp_print_red(tci_str *out, const tci_interp *p, int red)
{
    const tci_interp_red *r = &p->reds[red];
    tci_str_printf(out, "  r%d into", red);
    for (int i = 0; i < r->n_parts; i++) {
        tci_str_printf(out, " v%d from 0x%" PRIx64, r->acc[i], r->identity[i]);
    }
    tci_str_printf(out, ", result v%d", r->result);
    if (r->inner) {
        tci_str_printf(out, ", %d lanes along axis %d", p->vlanes, r->axis);
    }
    if (r->row) {
        tci_str_printf(out, ", a row of %d", r->row);
    }
    if (r->scan) {
        tci_str_printf(out, ", blocks of %d", r->scan);
    }
    if (r->split) {
        tci_str_printf(out, ", parts of %d", r->split);
    }
    if (r->single) {
        tci_str_add(out, ", by ");
        tci_interp_print_op(out, &r->combine);
    }
    tci_str_add(out, "\n");
    if (!r->single) {
        tci_interp_print_section(out, &r->join, 4, "to join two");
    }
}

static void tci_interp_print_stage(tci_str *out, const tci_interp *p, int stage)
{
    static const char *const kinds[] = {"MAP", "REDUCE", "SCAN", "SCATTER"};
    const tci_interp_stage *s = &p->stages[stage];
    tci_interp_print_section(out, &p->before[stage], 0, "every block");
    tci_str_printf(out, "stage %d %s", stage, kinds[s->kind]);
    for (int i = 0; i < s->n_axes; i++) {
        tci_str_printf(out, "%s%d", i ? ", " : " over axis ", s->axes[i]);
    }
    if (s->from) {
        tci_str_add(out, " from ");
        tci_interp_print_addr(out, s->from);
        tci_str_add(out, " to ");
        tci_interp_print_addr(out, s->to);
    }
    tci_str_add(out, s->strip ? " in strips\n" : "\n");
    for (int i = 0; i < s->n_reds; i++) {
        tci_interp_print_red(out, p, s->reds[i]);
    }
    for (int depth = 0; depth <= s->n_axes; depth++) {
        tci_interp_print_section(out, &s->sections[depth], 2 + 2 * depth,
                                 depth ? "every point" : "once");
    }
}

TCI_FN void tci_interp_print(tci_str *out, const tci_interp *p)
{
    if (p->loop) {
        tci_str_printf(out, "%" PRId64 " rounds of\n", tci_interp_tasks(p));
    }
    for (int i = 0; i < p->n_members; i++) {
        const tci_interp_member *m = &p->members[i];
        tci_str_printf(out, "from task %" PRId64 ", operand %d: %d\n", m->first_task,
                       (int)m->operand, (int)m->first_same);
        if (m->first_same == i) {
            tci_interp_print(out, m->interp);
        }
    }
    if (p->n_members) {
        return;
    }
    tci_str_add(out, "over");
    for (int i = 0; i < p->n_axes; i++) {
        tci_str_printf(out, "%s%" PRId64,
                       i == 0            ? " "
                       : i == p->n_outer ? "; "
                                         : " x ",
                       p->sizes[i]);
    }
    tci_str_printf(out, ", tasks of %" PRId64 " points, vectors along %s\n", p->grain,
                   p->inner ? "inner axes" : "the last outer axis");
    tci_interp_print_section(out, &p->constants, 0, "constants");
    for (int i = 0; i < p->n_stages; i++) {
        tci_interp_print_stage(out, p, i);
    }
}
