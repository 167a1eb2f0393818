/* kernel/print.c - prints the canonical text of a kernel: equal text means equal kernel (names
 * apart). It is the kernel's cache key and the text of dumps and golden tests. Its only numbers
 * are those that constructors assign in order of first use. */
#include "ir.h"

static const char *const tci_kernel_modes[] = {
#define TCI_ROW(id, word, fold, pair) word,
    "=", TCI_COMBINE_MODES(TCI_ROW)
#undef TCI_ROW
};

/* dim, then text */
static void tci_kernel_print_dim(tci_str *out, tci_dim d, const char *text)
{
    tci_dim_print(out, d);
    tci_str_add(out, text);
}

static void tci_kernel_print_kx(tci_str *out, const tci_kernel *k, int x)
{
    const tci_kx *e = &k->kx[x];
    switch (e->op) {
    case TCI_KX_CONST: tci_dim_print(out, e->c); break;
    case TCI_KX_AXIS: tci_str_printf(out, "a%lld", (long long)e->c); break;
    case TCI_KX_ADD:
        tci_kernel_print_kx(out, k, e->a);
        tci_str_add(out, " + ");
        tci_kernel_print_kx(out, k, e->b);
        break;
    case TCI_KX_MUL:
        tci_kernel_print_kx(out, k, e->a);
        tci_str_add(out, "*");
        tci_dim_print(out, e->c);
        break;
    case TCI_KX_VALUE:
        tci_str_printf(out, "[v%lld in ", (long long)e->c);
        tci_kernel_print_dim(out, e->lo, "..");
        tci_kernel_print_dim(out, e->hi, "]");
        break;
    default:
        tci_str_add(out, "(");
        tci_kernel_print_kx(out, k, e->a);
        tci_str_add(out, e->op == TCI_KX_DIV ? ")//" : ")%");
        tci_dim_print(out, e->c);
        break;
    }
}

static void tci_kernel_print_guards(tci_str *out, const tci_kernel *k, const tci_kinst *i)
{
    for (int g = 0; g < i->n_guards; g++) {
        const tci_kguard *guard = &k->guards[i->guard + g];
        tci_str_add(out, g ? " and " : "");
        tci_kernel_print_dim(out, guard->lo, " <= ");
        tci_kernel_print_kx(out, k, guard->x);
        tci_str_add(out, " <= ");
        tci_dim_print(out, guard->hi);
    }
}

static void tci_kernel_print_value(tci_str *out, tc_dtype t, tci_value v)
{
    if (tci_dtype_is_float(t)) {
        tci_str_printf(out, "%a", v.f);
    } else {
        tci_str_printf(out, "%lld", (long long)v.i);
    }
}

static void tci_kernel_print_inst(tci_str *out, const tci_kernel *k, int index)
{
    const tci_kinst *i = &k->insts[index];
    tci_str_printf(out, "  v%d: %s = ", index, tci_dtype_get((tc_dtype)i->dtype)->name);
    switch (i->op) {
    case TCI_K_CONST:
        tci_str_add(out, "const ");
        tci_kernel_print_value(out, (tc_dtype)i->dtype, i->value);
        break;
    case TCI_K_LIT: tci_str_printf(out, "literal %lld", (long long)i->imm); break;
    case TCI_K_LOAD:
        tci_str_printf(out, "load p%lld[", (long long)i->imm);
        tci_kernel_print_kx(out, k, i->x);
        tci_str_add(out, "]");
        if (i->n_guards > 0) {
            tci_str_add(out, " if ");
            tci_kernel_print_guards(out, k, i);
            tci_str_add(out, " else ");
            tci_kernel_print_value(out, (tc_dtype)i->dtype, i->value);
        }
        break;
    case TCI_K_INDEX:
        tci_str_add(out, "index ");
        tci_kernel_print_kx(out, k, i->x);
        break;
    case TCI_K_GUARD:
        tci_str_add(out, "guard ");
        tci_kernel_print_guards(out, k, i);
        break;
    case TCI_K_RED: tci_str_printf(out, "red %lld", (long long)i->imm); break;
    case TCI_K_FAULT:
        tci_str_printf(out, "checked v%d of ", i->args[0]);
        tci_dim_print(out, i->imm);
        break;
    default:
        tci_str_add(out, tci_prim_get((tci_prim)i->prim)->name);
        for (int a = 0; a < i->n_args; a++) {
            tci_str_printf(out, "%s v%d", a ? "," : "", i->args[a]);
        }
        if (i->prim == TCI_P_LANE1) {
            tci_str_printf(out, " helper %lld", (long long)i->imm);
        }
        break;
    }
    tci_str_add(out, "\n");
}

TCI_FN void tci_kernel_print_order(tci_str *out, const tci_kred *red)
{
    static const char *const names[] = {"CHAIN",  "LANES", "BLOCK_SCAN", "SPLIT",
                                        "MATRIX", "STEPS", "TF32"};
    tci_str_add(out, red->op == TCI_RED_ONLINE ? "ONLINE " : "");
    tci_str_add(out, names[red->order]);
    if (red->near > 0) {
        tci_str_printf(out, "(%d/%d)", (int)red->order_n, red->near);
    } else if (red->order_n > 0) {
        tci_str_printf(out, "(%d)", (int)red->order_n);
    }
    tci_str_add(out, red->points == 2 ? " PAIRS" : red->points == 4 ? " FOURS" : "");
    if (red->earlier) {
        tci_str_printf(out, " EARLIER(%d)", red->earlier);
    }
}

static void tci_kernel_print_stage(tci_str *out, const tci_kernel *k, int index)
{
    static const char *const kinds[] = {"map", "reduce", "scan", "scatter"};
    const tci_kstage *stage = &k->stages[index];
    tci_str_printf(out, "  stage %d: %s over", index, kinds[stage->kind]);
    for (int a = 0; a < stage->n_axes; a++) {
        bool first = stage->n_kept > 0 && a == stage->n_axes - stage->n_kept;
        tci_str_printf(out, "%s a%d", first ? " keeping" : "", stage->axes[a]);
    }
    if (stage->from >= 0) {
        tci_str_add(out, " from ");
        tci_kernel_print_kx(out, k, stage->from);
        tci_str_add(out, " to ");
        tci_kernel_print_kx(out, k, stage->to);
    }
    tci_str_add(out, "\n");
    for (int r = 0; r < k->n_reds; r++) {
        const tci_kred *red = &k->reds[r];
        if (red->stage == index) {
            tci_str_printf(out, "    red %d: %s = %s v%d", r,
                           tci_dtype_get((tc_dtype)red->dtype)->name, tci_red_name(red->op),
                           red->in[0]);
            for (int i = 1; i < tci_red_takes(red->op); i++) {
                tci_str_printf(out, ", v%d", red->in[i]);
            }
            tci_str_add(out, ", ");
            tci_kernel_print_order(out, red);
            tci_str_add(out, "\n");
        }
    }
    for (int w = 0; w < k->n_stores; w++) {
        const tci_kstore *store = &k->stores[w];
        if (store->stage == index) {
            tci_str_printf(out, "    store p%d[", store->operand);
            tci_kernel_print_kx(out, k, store->x);
            tci_str_printf(out, "] %s v%d", tci_kernel_modes[store->mode], store->value);
            if (store->guard >= 0) {
                tci_str_printf(out, " if v%d", store->guard);
            }
            tci_str_add(out, store->apart ? " apart" : "");
            tci_str_add(out, "\n");
        }
    }
}

static void tci_kernel_print_call(tci_str *out, const tci_custom_call *call)
{
    const tci_comm_step *c = &call->comm;
    if (c->phase) {
        tci_str_printf(out, "  %s %s", c->phase == TCI_COMM_START ? "start" : "wait for",
                       tci_comm_verb_name(c->verb));
        tci_str_printf(out, "%s%s %d of communicator %lld, %d ranks, peer %d:",
                       tci_comm_verb_reduces(c->verb) ? " " : "",
                       tci_comm_verb_reduces(c->verb) ? tci_comm_how_name(c->how) : "",
                       (int)c->number, (long long)c->comm, (int)c->ranks, (int)c->peer);
    } else if (call->op) {
        tci_str_printf(out, "  call %s version %d:", call->op->op.name, call->op->op.version);
    } else {
        tci_str_printf(out, "  call %d of the engine:", call->split);
    }
    for (int i = 0; i <= call->n_inputs; i++) {
        const tc_custom_array *a = &call->arrays[i];
        tci_str_printf(out, "%s %s [", i == call->n_inputs ? " ->" : "", tc_dtype_name(a->dtype));
        for (int d = 0; d < a->rank; d++) {
            tci_str_printf(out, "%s%s", d ? ", " : "", TCI_DIM_TEXT(tci_dim_list(a->sizes)[d]));
        }
        tci_str_add(out, "]");
    }
    tci_str_add(out, "\n");
    const tc_custom_op *op = call->op ? &call->op->op : NULL;
    if (op && op->cuda) { /* where a device runs it, the text is the kernel */
        tci_str_printf(out, "  cuda, %d threads for %lld elements:\n%s\n",
                       tci_custom_threads(call->op), (long long)tci_custom_elements(call->op),
                       op->cuda);
    }
}

static void tci_kernel_print_place(tci_str *out, const tci_kplace *p)
{
    static const char *const steps[] = {"walk", "turn", "anew"};
    bool is_cell = p->base < 0;
    tci_str_printf(out, " %c%d+", is_cell ? 'c' : 'p', (int)(is_cell ? ~p->base : p->base));
    tci_dim_print(out, p->offset);
    if (p->by != 0) {
        tci_str_printf(out, " %s ", steps[p->step]);
        tci_dim_print(out, p->by);
    }
}

static void tci_kernel_print_loop(tci_str *out, const tci_kernel *k)
{
    const tci_kloop *loop = k->loop;
    tci_str_printf(out, "%s", loop->stops >= 0 ? "up to " : "");
    tci_dim_print(out, loop->rounds);
    tci_str_printf(out, " rounds, stops %d, literals %d\n", (int)loop->stops, k->n_literals);
    for (int p = 0; p < k->n_operands; p++) {
        tci_str_printf(out, "  p%d: %s %s[", p, k->operands[p].is_output ? "out" : "in",
                       tci_dtype_get((tc_dtype)k->operands[p].dtype)->name);
        tci_kernel_print_dim(out, k->operands[p].n, "]\n");
    }
    for (int i = 0; i < loop->n_cells; i++) {
        tci_str_printf(out, "  c%d: %s[%lld]\n", i,
                       tci_dtype_get((tc_dtype)loop->cells[i].dtype)->name,
                       (long long)loop->cells[i].n);
    }
    for (int i = 0; i < loop->n_carries; i++) {
        const tci_kcarry *c = &loop->carries[i];
        tci_str_printf(out, "  carry %d %d of ", (int)c->cell, (int)c->next);
        tci_dim_print(out, c->bytes);
        tci_str_add(out, ":");
        tci_kernel_print_place(out, &c->from);
        tci_str_add(out, " to");
        tci_kernel_print_place(out, &c->to);
        tci_str_add(out, "\n");
    }
    for (int i = 0, at = 0; i < k->n_members; i++) {
        tci_str_printf(out, "  %s %d:", i < loop->n_enter ? "enter" : "round",
                       tci_kernel_first_same(k, i));
        for (int o = 0; o < k->members[i]->n_operands; o++) {
            tci_kernel_print_place(out, &loop->places[at++]);
        }
        tci_str_add(out, "\n");
    }
}

/* Each kernel once, and which of them the members are. */
static void tci_kernel_print_grouped_launch(tci_str *out, const tci_kernel *k)
{
    tci_str_add(out, k->loop ? "loop of" : "joint of");
    for (int i = 0; i < k->n_members; i++) {
        tci_str_printf(out, " %d", tci_kernel_first_same(k, i));
    }
    tci_str_add(out, "\n");
    if (k->loop) {
        tci_kernel_print_loop(out, k);
    }
    for (int i = 0; i < k->n_members; i++) {
        if (tci_kernel_first_same(k, i) == i) {
            tci_str_printf(out, "%d: ", i);
            tci_kernel_print(out, k->members[i]);
        }
    }
}

TCI_FN void tci_kernel_print(tci_str *out, const tci_kernel *k)
{
    if (k->n_members) {
        tci_kernel_print_grouped_launch(out, k);
        return;
    }
    tci_str_add(out, "kernel outer");
    for (int a = 0; a < k->n_axes; a++) {
        tci_str_printf(out, "%s a%d:", a == k->n_outer ? " inner" : "", a);
        tci_dim_print(out, k->axes[a].size);
    }
    tci_str_printf(out, " vector %s literals %d\n", k->vector == TCI_VEC_INNER ? "inner" : "outer",
                   k->n_literals);
    for (int p = 0; p < k->n_operands; p++) {
        tci_str_printf(out, "  p%d: %s %s[", p, k->operands[p].is_output ? "out" : "in",
                       tci_dtype_get((tc_dtype)k->operands[p].dtype)->name);
        tci_kernel_print_dim(out, k->operands[p].n, "]");
        if (k->operands[p].panel > 0) {
            tci_str_printf(out, " panels of %d", k->operands[p].panel);
        }
        tci_str_add(out, "\n");
    }
    if (k->call) {
        tci_kernel_print_call(out, k->call);
    }
    for (int i = 0; i < k->n_insts; i++) {
        tci_kernel_print_inst(out, k, i);
    }
    for (int s = 0; s < k->n_stages; s++) {
        tci_kernel_print_stage(out, k, s);
    }
}
