/* loop/print.c - prints the loop IR as stable text, for dumps and golden tests.
 *
 * One statement per line, blocks indented:
 *   for i0 = 0 to 96 step 32
 *     v4 f32x16 = load p0[i0 + 16]
 *     store p1[i0], v4
 * Operands are p, locals m, loop variables i, index lets x, values v, mutable values a. */
#include "ir.h"

static void tci_lprint_lx(tci_str *out, const tci_loop *l, int x, bool nested)
{
    static const char *const signs[] =
        {[TCI_LX_ADD] = " + ", [TCI_LX_MUL] = " * ", [TCI_LX_DIV] = " / ", [TCI_LX_MOD] = " % "};
    const tci_lx *e = &l->lx[x];
    switch (e->op) {
    case TCI_LX_CONST: tci_dim_print(out, e->c); return;
    case TCI_LX_VAR:
        tci_str_printf(out, "%c%d", l->indices[e->a].is_loop ? 'i' : 'x', e->a);
        return;
    case TCI_LX_THREAD: tci_str_add(out, "thread"); return;
    case TCI_LX_ROW: tci_str_add(out, "row"); return;
    case TCI_LX_TASK_BEGIN: tci_str_add(out, "task_begin"); return;
    case TCI_LX_TASK_END: tci_str_add(out, "task_end"); return;
    case TCI_LX_GIVEN: tci_str_printf(out, "at_%lld", (long long)e->c); return;
    case TCI_LX_MIN:
    case TCI_LX_MAX:
        tci_str_add(out, e->op == TCI_LX_MIN ? "min(" : "max(");
        tci_lprint_lx(out, l, e->a, false);
        tci_str_add(out, ", ");
        tci_lprint_lx(out, l, e->b, false);
        tci_str_add(out, ")");
        return;
    case TCI_LX_HEAD:
        tci_str_printf(out, "head(p%d[", e->b);
        tci_lprint_lx(out, l, e->a, false);
        tci_str_printf(out, "], %lld)", (long long)e->c);
        return;
    default: break;
    }
    tci_str_add(out, nested ? "(" : "");
    tci_lprint_lx(out, l, e->a, true);
    tci_str_add(out, signs[e->op]);
    if (e->op == TCI_LX_ADD) {
        tci_lprint_lx(out, l, e->b, true);
    } else {
        tci_dim_print(out, e->c);
    }
    tci_str_add(out, nested ? ")" : "");
}

static void tci_lprint_value(tci_str *out, const tci_loop *l, int v)
{
    tci_str_printf(out, "%c%d", l->values[v].is_mutable ? 'a' : 'v', v);
}

static void tci_lprint_define(tci_str *out, const tci_loop *l, int v)
{
    const tci_lvalue *value = &l->values[v];
    tci_lprint_value(out, l, v);
    tci_str_printf(out, " %s", tci_dtype_get((tc_dtype)value->dtype)->name);
    if (value->lanes > 1) {
        tci_str_printf(out, "x%d", value->lanes);
    }
    tci_str_add(out, " = ");
}

static void tci_lprint_mem(tci_str *out, const tci_loop *l, const tci_lstmt *st)
{
    static const char *const names[TCI_MEM_COUNT] = {"load",
                                                     "load_mask",
                                                     "load_n",
                                                     "load_strided",
                                                     "load_strided_n",
                                                     "load_at",
                                                     "load_one",
                                                     "store",
                                                     "store_n",
                                                     "store_stream",
                                                     "store_strided",
                                                     "store_strided_n",
                                                     "store_one",
                                                     "store_lane",
                                                     "splat",
                                                     "iota",
                                                     "first_n",
                                                     "index",
                                                     "lane",
                                                     "set_lane",
                                                     "high_half",
                                                     "below",
                                                     "swap_low",
                                                     "swap_high",
                                                     "weave_low",
                                                     "weave_high",
                                                     "prefetch",
                                                     "fence",
                                                     "tiles_begin",
                                                     "tile_zero",
                                                     "tile_load",
                                                     "tile_store",
                                                     "tile_dot",
                                                     "tile_fours",
                                                     "tiles_end",
                                                     "store_pairs",
                                                     "load_pairs",
                                                     "dot_pairs",
                                                     "dot_fours",
                                                     "near_half",
                                                     "high_first",
                                                     "barrier",
                                                     "load_aligned",
                                                     "store_aligned",
                                                     "load_if",
                                                     "load_n_aligned",
                                                     "load_repeat",
                                                     "lane_repeat",
                                                     "tag",
                                                     "tell",
                                                     "await",
                                                     "words",
                                                     "words_if",
                                                     "store_words",
                                                     "store_unit",
                                                     "unit_rows",
                                                     "unit_rows_turned",
                                                     "unit_columns",
                                                     "unit_columns_turned",
                                                     "unit_zero",
                                                     "unit_dot",
                                                     "unit_sum"};
    unsigned uses = tci_lmem_uses((tci_mem)st->mem);
    if (uses & TCI_LMEM_DST) {
        tci_lprint_define(out, l, st->dst);
    }
    tci_str_add(out, names[st->mem]);
    if (uses & TCI_LMEM_ADDRESS) {
        tci_str_printf(out, " %c%d[", st->base < 0 ? 'm' : 'p',
                       st->base < 0 ? ~st->base : st->base);
        tci_lprint_lx(out, l, st->x, false);
        tci_str_add(out, "]");
    }
    if (uses & TCI_LMEM_FIRST) {
        tci_str_add(out, " ");
        tci_lprint_lx(out, l, st->x, false);
    }
    if (uses & TCI_LMEM_STRIDE) {
        tci_str_add(out, ", stride ");
        tci_dim_print(out, st->imm);
    }
    if (uses & (TCI_LMEM_VALUE | TCI_LMEM_MASK)) {
        tci_str_add(out, (uses & TCI_LMEM_ADDRESS) ? ", " : " ");
        tci_lprint_value(out, l, st->args[0]);
    }
    if (uses & TCI_LMEM_SECOND) {
        tci_str_add(out, ", ");
        tci_lprint_value(out, l, st->args[1]);
    }
    if (uses & TCI_LMEM_THIRD) {
        tci_str_add(out, ", ");
        tci_lprint_value(out, l, st->args[2]);
    }
    if (uses & TCI_LMEM_DTYPE) {
        tc_dtype t = (tc_dtype)tci_dim_known(st->imm);
        tci_str_printf(out, ", %s", tci_dtype_get(t)->name);
    }
    if (uses & TCI_LMEM_COUNT) {
        tci_str_add(out, ", n ");
        tci_lprint_lx(out, l, st->n, false);
    }
    if (uses & TCI_LMEM_LANE) {
        tci_str_printf(out, ", %lld", (long long)st->imm);
    }
}

static void tci_lprint_args(tci_str *out, const tci_loop *l, const tci_lstmt *st)
{
    for (int i = 0; i < 3 && st->args[i] >= 0; i++) {
        tci_str_add(out, i > 0 ? ", " : "");
        tci_lprint_value(out, l, st->args[i]);
    }
}

static void tci_lprint_block(tci_str *out, const tci_loop *l, int block, int depth);

static void tci_lprint_for(tci_str *out, const tci_loop *l, const tci_lstmt *st)
{
    tci_str_printf(out, "for i%d = ", st->dst);
    tci_lprint_lx(out, l, st->x, false);
    tci_str_add(out, " to ");
    tci_lprint_lx(out, l, st->n, false);
    tci_str_printf(out, " step %lld", (long long)st->imm);
    if (st->unroll > 0) {
        tci_str_printf(out, " unroll %d", st->unroll);
    }
}

/* Statements that define a value from values. */
static void tci_lprint_let(tci_str *out, const tci_loop *l, const tci_lstmt *st)
{
    tci_lprint_define(out, l, st->dst);
    switch (st->op) {
    case TCI_L_CONST:
        if (tci_dtype_is_float((tc_dtype)l->values[st->dst].dtype)) {
            tci_str_printf(out, "%a", st->value.f);
        } else {
            tci_str_printf(out, "%lld", (long long)st->value.i);
        }
        break;
    case TCI_L_LITERAL: tci_str_printf(out, "literal %lld", (long long)st->imm); break;
    case TCI_L_PRIM: tci_str_printf(out, "%s ", tci_prim_get((tci_prim)st->prim)->name); break;
    case TCI_L_IN_RANGE:
        tci_lprint_lx(out, l, st->x, false);
        tci_str_add(out, " in [");
        tci_dim_print(out, st->lo);
        tci_str_add(out, ", ");
        tci_dim_print(out, st->imm);
        tci_str_add(out, "]");
        break;
    case TCI_L_TO_VALUE: tci_lprint_lx(out, l, st->x, false); break;
    case TCI_L_ELSEWHERE:
        tci_str_printf(out, "p%d is apart from p%lld", st->base, (long long)st->imm);
        break;
    case TCI_L_FAULT:
        tci_str_add(out, "index of ");
        tci_dim_print(out, st->imm);
        tci_str_add(out, ": ");
        break;
    default: break;
    }
    tci_lprint_args(out, l, st);
}

static void tci_lprint_stmt(tci_str *out, const tci_loop *l, const tci_lstmt *st, int depth)
{
    tci_str_printf(out, "%*s", 2 * depth, "");
    switch (st->op) {
    case TCI_L_FOR: tci_lprint_for(out, l, st); break;
    case TCI_L_IF:
        tci_str_add(out, "if ");
        tci_lprint_args(out, l, st);
        break;
    case TCI_L_INDEX:
        tci_str_printf(out, "x%d = ", st->dst);
        tci_lprint_lx(out, l, st->x, false);
        break;
    case TCI_L_FROM_VALUE:
        tci_str_printf(out, "x%d = ", st->dst);
        tci_lprint_args(out, l, st);
        break;
    case TCI_L_LOCAL:
        tci_str_printf(out, "local m%d %s[", st->dst,
                       tci_dtype_get((tc_dtype)l->locals[st->dst].dtype)->name);
        tci_dim_print(out, l->locals[st->dst].n);
        tci_str_add(out, "]");
        tci_str_add(out, l->locals[st->dst].work >= 0 ? " in work memory" : "");
        tci_str_add(out, l->locals[st->dst].is_given ? " given" : "");
        break;
    case TCI_L_MEM: tci_lprint_mem(out, l, st); break;
    case TCI_L_SET:
        tci_lprint_value(out, l, st->dst);
        tci_str_add(out, " := ");
        tci_lprint_args(out, l, st);
        break;
    case TCI_L_NOTE: tci_str_printf(out, "# %s", st->text); break;
    default: tci_lprint_let(out, l, st); break;
    }
    tci_str_add(out, "\n");
    if (st->body >= 0) {
        tci_lprint_block(out, l, st->body, depth + 1);
    }
}

static void tci_lprint_block(tci_str *out, const tci_loop *l, int block, int depth)
{
    const tci_lblock *b = &l->blocks[block];
    for (int i = 0; i < b->n; i++) {
        tci_lprint_stmt(out, l, &b->stmts[i], depth);
    }
}

TCI_FN void tci_loop_print(tci_str *out, const tci_loop *l)
{
    tci_str_printf(out, "loop: %s\n", l->note);
    for (int i = 0; i < l->n_operands; i++) {
        const tci_koperand *o = &l->operands[i];
        tci_str_printf(out, "  p%d %s[", i, tci_dtype_get((tc_dtype)o->dtype)->name);
        tci_dim_print(out, o->n);
        tci_str_add(out, o->is_output ? "] output\n" : "]\n");
    }
    tci_lprint_block(out, l, 0, 1);
    for (int i = 0; i < l->n_members; i++) {
        const tci_loop_member *m = &l->members[i];
        tci_str_printf(out, "  from task %lld, p%d: loop %d\n", (long long)m->first_task,
                       (int)m->operand, (int)m->first_same);
    }
    for (int i = 0; i < l->n_members; i++) {
        if (l->members[i].first_same == i) {
            tci_str_printf(out, "%d: ", i);
            tci_loop_print(out, l->members[i].loop);
        }
    }
}
