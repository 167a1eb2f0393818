/* emit/c_like.c - emits loop IR as a function in a C-like language.
 *
 * In: loop IR, a dialect that names types, prims and accesses. Out: the text of one function with
 * the signature of tci_kernel_fn. Statement by statement; nothing is decided or reordered here.
 * Names: p2 operand, i5 loop variable, x7 index, v12 value, a3 mutable value, m1 local array, n0 a
 * symbolic number, whose value is passed after the literals. */
#include "../loop/ir.h"
#include "dialect.h"

typedef struct tci_c_like {
    tci_str *out;
    tci_dialect *d;
    const tci_loop *l;
    const tci_lstmt **prims; /* of a block for scores, by value: what defines it; else NULL */
} tci_c_like;

static void tci_c_indent(tci_c_like *c, int depth)
{
    for (int i = 0; i < depth; i++) {
        tci_str_add(c->out, "    ");
    }
}

/* The lanes that one thread holds of a value. */
static int tci_c_lanes(const tci_c_like *c, int lanes)
{
    return lanes > 1 ? lanes / c->l->threads : 1;
}

static const char *tci_c_type(tci_c_like *c, tc_dtype t, int lanes)
{
    return c->d->type(c->d, t, tci_c_lanes(c, lanes));
}

static void tci_c_value(tci_c_like *c, int v)
{
    tci_str_printf(c->out, "%c%d", c->l->values[v].is_mutable ? 'a' : 'v', v);
}

static void tci_c_index(tci_c_like *c, int x)
{
    tci_str_printf(c->out, "%c%d", c->l->indices[x].is_loop ? 'i' : 'x', x);
}

static void tci_c_base(tci_c_like *c, int base)
{
    tci_str_printf(c->out, "%c%d", base < 0 ? 'm' : 'p', base < 0 ? ~base : base);
}

static void tci_c_number(tci_c_like *c, tci_dim d)
{
    if (tci_dim_is_known(d)) {
        tci_str_printf(c->out, "%lld", (long long)d);
        return;
    }
    int i = 0;
    while (i < c->l->n_dims && c->l->dims[i] != d) {
        i++;
    }
    TCI_ASSERT(c->d->s, i < c->l->n_dims);
    tci_str_printf(c->out, "n%d", i);
}

static void tci_c_lx(tci_c_like *c, int x);

/* The type of indices. */
static const char *tci_c_word(tci_c_like *c)
{
    return c->l->narrow ? "int" : tci_c_type(c, TC_I64, 1);
}

static void tci_c_infix(tci_c_like *c, int a, const char *operator, int b, tci_dim constant)
{
    tci_str_add(c->out, "(");
    tci_c_lx(c, a);
    tci_str_add(c->out, operator);
    if (b >= 0) {
        tci_c_lx(c, b);
    } else {
        tci_c_number(c, constant);
    }
    tci_str_add(c->out, ")");
}

static void tci_c_smaller(tci_c_like *c, int a, const char *operator, int b)
{
    tci_str_add(c->out, "(");
    tci_c_lx(c, a);
    tci_str_add(c->out, operator);
    tci_c_lx(c, b);
    tci_str_add(c->out, " ? ");
    tci_c_lx(c, a);
    tci_str_add(c->out, " : ");
    tci_c_lx(c, b);
    tci_str_add(c->out, ")");
}

/* The dividend is not negative, so a division without signs, which is quicker, has the same
 * result. */
static void tci_c_divide(tci_c_like *c, const tci_lx *e, const char *operator)
{
    if (!c->l->narrow) {
        tci_c_infix(c, e->a, operator, - 1, e->c);
        return;
    }
    tci_str_add(c->out, "(int)((unsigned)");
    tci_c_lx(c, e->a);
    tci_str_printf(c->out, "%s%lldu)", operator,(long long) e->c);
}

/* A number that is wider where it comes from. */
static void tci_c_given(tci_c_like *c, const char *name)
{
    tci_str_printf(c->out, "%s%s", c->l->narrow ? "(int)" : "", name);
}

/* The thread's number, which a head that puts several vectors in a block calls another way. */
static const char *tci_c_thread(const tci_c_like *c)
{
    return c->l->rows > 1 ? "thread" : "TC_THREAD";
}

/* Elements up to the next aligned address. */
static void tci_c_head(tci_c_like *c, const tci_lx *e)
{
    int bytes = tci_dtype_get((tc_dtype)c->l->operands[e->b].dtype)->bytes;
    const char *word = tci_c_type(c, TC_I64, 1);
    tci_str_printf(c->out, "((-(%s)(p%d + ", word, e->b);
    tci_c_lx(c, e->a);
    tci_str_printf(c->out, ") & %lld) / %d)", (long long)(tci_dim_known(e->c) - 1), bytes);
}

static void tci_c_lx(tci_c_like *c, int x)
{
    const tci_lx *e = &c->l->lx[x];
    switch (e->op) {
    case TCI_LX_CONST: tci_c_number(c, e->c); break;
    case TCI_LX_VAR: tci_c_index(c, e->a); break;
    case TCI_LX_ADD: {
        const tci_lx *b = &c->l->lx[e->b];
        if (b->op == TCI_LX_CONST && tci_dim_known(b->c) < 0 && tci_dim_known(b->c) > INT64_MIN) {
            tci_c_infix(c, e->a, " - ", -1, -tci_dim_known(b->c));
        } else {
            tci_c_infix(c, e->a, " + ", e->b, 0);
        }
        break;
    }
    case TCI_LX_MUL: tci_c_infix(c, e->a, " * ", -1, e->c); break;
    case TCI_LX_DIV: tci_c_divide(c, e, " / "); break;
    case TCI_LX_MOD: tci_c_divide(c, e, " % "); break;
    case TCI_LX_MIN: tci_c_smaller(c, e->a, " < ", e->b); break;
    case TCI_LX_MAX: tci_c_smaller(c, e->a, " > ", e->b); break;
    case TCI_LX_THREAD: tci_c_given(c, tci_c_thread(c)); break;
    case TCI_LX_ROW: tci_c_given(c, "row"); break;
    case TCI_LX_TASK_BEGIN: tci_c_given(c, "task_begin"); break;
    case TCI_LX_TASK_END: tci_c_given(c, "task_end"); break;
    case TCI_LX_GIVEN:
        tci_c_given(c, "at_");
        tci_str_printf(c->out, "%lld", (long long)e->c);
        break;
    default: tci_c_head(c, e); break;
    }
}

/* ---- statements ---- */

static void tci_c_define(tci_c_like *c, int v)
{
    const tci_lvalue *value = &c->l->values[v];
    const char *type = tci_c_type(c, (tc_dtype)value->dtype, value->lanes);
    tci_str_printf(c->out, "%s%s ", value->is_mutable ? "" : "const ", type);
    tci_c_value(c, v);
    tci_str_add(c->out, " = ");
}

static bool tci_c_is_prim(const tci_c_like *c, int v, tci_prim p)
{
    return v >= 0 && c->prims[v] && c->prims[v]->prim == p;
}

/* ROUNDB16 of a product or a sum of two values that are rounded so: it at once, where the dialect
 * can; in scores alone, as what has no bits in bf16 may be rounded another way. */
static bool tci_c_rounded(tci_c_like *c, const tci_lstmt *st)
{
    const tci_lstmt *of = st->prim == TCI_P_ROUNDB16 ? c->prims[st->args[0]] : NULL;
    const char *name = of && c->d->rounded ? c->d->rounded(c->d, (tci_prim)of->prim) : NULL;
    if (!name || !tci_c_is_prim(c, of->args[0], TCI_P_ROUNDB16) ||
        !tci_c_is_prim(c, of->args[1], TCI_P_ROUNDB16)) {
        return false;
    }
    tci_c_define(c, st->dst);
    tci_str_printf(c->out, "%s(", name);
    tci_c_value(c, of->args[0]);
    tci_str_add(c->out, ", ");
    tci_c_value(c, of->args[1]);
    tci_str_add(c->out, ");\n");
    return true;
}

static void tci_c_prim(tci_c_like *c, const tci_lstmt *st)
{
    if (c->prims) {
        c->prims[st->dst] = st;
        if (tci_c_rounded(c, st)) {
            return;
        }
    }
    const tci_lvalue *values = c->l->values;
    int shape = st->prim == TCI_P_SELECT ? st->args[1] : st->args[0];
    tc_dtype t = (tc_dtype)values[shape].dtype, to = (tc_dtype)values[st->dst].dtype;
    bool converts = tci_prim_get((tci_prim)st->prim)->result == 'O';
    tci_c_define(c, st->dst);
    tci_str_printf(c->out, "%s(",
                   c->d->prim(c->d, (tci_prim)st->prim, t, converts ? to : t,
                              tci_c_lanes(c, values[st->dst].lanes), (int)tci_dim_known(st->imm)));
    for (int i = 0; i < 3 && st->args[i] >= 0; i++) {
        tci_str_add(c->out, i > 0 ? ", " : "");
        tci_c_value(c, st->args[i]);
    }
    tci_str_add(c->out, ");\n");
}

static const char *tci_c_mem_name(tci_c_like *c, const tci_lstmt *st, unsigned uses)
{
    const tci_lvalue *values = c->l->values;
    tc_dtype compute = TC_F32;
    int lanes = 1;
    bool lane = st->mem == TCI_MEM_LANE || st->mem == TCI_MEM_LANE_REPEAT ||
                st->mem == TCI_MEM_UNIT_SUM;
    if (lane || (uses & TCI_LMEM_WRITES)) {
        compute = (tc_dtype)values[st->args[0]].dtype;
        lanes = values[st->args[0]].lanes;
    } else if (uses & TCI_LMEM_DST) {
        compute = (tc_dtype)values[st->dst].dtype;
        lanes = values[st->dst].lanes;
    }
    tc_dtype storage = compute;
    if ((uses & TCI_LMEM_ADDRESS) && st->mem != TCI_MEM_PREFETCH) {
        storage = (tc_dtype)(st->base < 0 ? c->l->locals[~st->base].dtype
                                          : c->l->operands[st->base].dtype);
    }
    if (uses & TCI_LMEM_DTYPE) {
        storage = (tc_dtype)tci_dim_known(st->imm);
    }
    return c->d->mem(c->d, (tci_mem)st->mem, compute, storage, tci_c_lanes(c, lanes));
}

static void tci_c_mem(tci_c_like *c, const tci_lstmt *st)
{
    unsigned uses = tci_lmem_uses((tci_mem)st->mem);
    const char *comma = "";
    if (uses & TCI_LMEM_DST) {
        tci_c_define(c, st->dst);
    }
    tci_str_printf(c->out, "%s(", tci_c_mem_name(c, st, uses));
    if (uses & TCI_LMEM_ADDRESS) {
        tci_c_base(c, st->base);
        tci_str_add(c->out, " + ");
        tci_c_lx(c, st->x);
        comma = ", ";
    }
    if (uses & TCI_LMEM_FIRST) {
        tci_c_lx(c, st->x);
    }
    if (uses & TCI_LMEM_STRIDE) {
        tci_str_add(c->out, comma);
        tci_c_number(c, st->imm);
    }
    if (uses & (TCI_LMEM_VALUE | TCI_LMEM_MASK)) {
        tci_str_add(c->out, comma);
        tci_c_value(c, st->args[0]);
        comma = ", ";
    }
    if (uses & TCI_LMEM_SECOND) {
        tci_str_add(c->out, comma);
        tci_c_value(c, st->args[1]);
    }
    if (uses & TCI_LMEM_THIRD) {
        tci_str_add(c->out, comma);
        tci_c_value(c, st->args[2]);
    }
    if (uses & TCI_LMEM_COUNT) {
        tci_str_add(c->out, comma);
        tci_c_lx(c, st->n);
    }
    if (uses & TCI_LMEM_LANE) {
        tci_str_printf(c->out, ", %lld", (long long)st->imm);
    }
    tci_str_add(c->out, ");\n");
}

static void tci_c_in_range(tci_c_like *c, const tci_lstmt *st)
{
    tci_c_define(c, st->dst);
    if (st->lo == st->imm) {
        tci_c_infix(c, st->x, " == ", -1, st->imm);
    } else {
        tci_c_infix(c, st->x, " >= ", -1, st->lo);
        tci_str_add(c->out, " & ");
        tci_c_infix(c, st->x, " <= ", -1, st->imm);
    }
    tci_str_add(c->out, ";\n");
}

/* An index: from the end when negative; outside it is brought inside and recorded. */
static void tci_c_fault(tci_c_like *c, const tci_lstmt *st, int depth)
{
    int v = st->dst, from = st->args[0], lanes = c->l->values[v].lanes;
    const char *type = tci_c_type(c, TC_I64, lanes);
    char letter = c->l->values[from].is_mutable ? 'a' : 'v';
    if (lanes > 1) {
        const char *name = c->d->mem(c->d, TCI_MEM_INDEX, TC_I64, TC_I64, lanes);
        tci_str_printf(c->out, "const %s v%d = %s(%c%d, ", type, v, name, letter, from);
        tci_c_number(c, st->imm);
        tci_str_add(c->out, ", fault);\n");
        return;
    }
    tci_str_printf(c->out, "%s v%d = %c%d < 0 ? %c%d + ", type, v, letter, from, letter, from);
    tci_c_number(c, st->imm);
    tci_str_printf(c->out, " : %c%d;\n", letter, from);
    tci_c_indent(c, depth);
    tci_str_printf(c->out, "if (v%d < 0 || v%d >= ", v, v);
    tci_c_number(c, st->imm);
    tci_str_add(c->out, ") {\n");
    tci_c_indent(c, depth + 1);
    tci_str_add(c->out, "*fault = ");
    if (tci_dim_is_known(st->imm)) { /* folded */
        tci_c_number(c, tci_dim_known(st->imm) + 1);
    } else {
        tci_c_number(c, st->imm);
        tci_str_add(c->out, " + 1");
    }
    tci_str_add(c->out, ";\n");
    tci_c_indent(c, depth + 1);
    tci_str_printf(c->out, "v%d = v%d < 0 ? 0 : ", v, v);
    if (tci_dim_is_known(st->imm)) {
        tci_c_number(c, tci_dim_known(st->imm) > 0 ? tci_dim_known(st->imm) - 1 : 0);
    } else {
        tci_c_number(c, st->imm);
        tci_str_add(c->out, " - 1");
    }
    tci_str_add(c->out, ";\n");
    tci_c_indent(c, depth);
    tci_str_add(c->out, "}\n");
}

static void tci_c_block(tci_c_like *c, int block, int depth);

static void tci_c_for(tci_c_like *c, const tci_lstmt *st, int depth)
{
    if (st->unroll > 0) {
        tci_str_printf(c->out, "TC_UNROLL(%d)\n", st->unroll);
        tci_c_indent(c, depth);
    }
    tci_str_printf(c->out, "for (%s ", tci_c_word(c));
    tci_c_index(c, st->dst);
    tci_str_add(c->out, " = ");
    tci_c_lx(c, st->x);
    tci_str_add(c->out, "; ");
    tci_c_index(c, st->dst);
    tci_str_add(c->out, " < ");
    tci_c_lx(c, st->n);
    tci_str_add(c->out, "; ");
    tci_c_index(c, st->dst);
    tci_str_printf(c->out, " += %lld) {\n", (long long)st->imm);
    tci_c_block(c, st->body, depth + 1);
    tci_c_indent(c, depth);
    tci_str_add(c->out, "}\n");
}

static void tci_c_local(tci_c_like *c, const tci_lstmt *st)
{
    const tci_llocal *m = &c->l->locals[st->dst];
    const char *ctype = tci_dtype_get((tc_dtype)m->dtype)->ctype;
    int held = c->l->threads > 1 ? c->l->lanes / c->l->threads : 0;
    if (m->is_lane && held) { /* private to the thread, addressed by the block's lane */
        tci_str_printf(c->out,
                       "%s m%d_[%d] __attribute__((aligned(16))), "
                       "*const m%d = m%d_ - %s * %d;\n",
                       ctype, st->dst, held, st->dst, st->dst, tci_c_thread(c), held);
        return;
    }
    if (m->is_given) {
        tci_str_printf(c->out, "%s *const m%d = (%s *)given;\n", ctype, st->dst, ctype);
        return;
    }
    if (m->work >= 0) {
        tci_str_printf(c->out, "%s *const m%d = (%s *)((char *)bufs[%d] + ", ctype, st->dst, ctype,
                       c->l->n_operands);
        tci_c_lx(c, m->work);
        tci_str_add(c->out, ");\n");
        return;
    }
    tci_str_printf(c->out, "%s%s m%d[%lld] __attribute__((aligned(64)));\n", c->d->local_word,
                   ctype, st->dst, (long long)tci_dim_known(m->n));
}

/* name = args[0]; */
static void tci_c_assign(tci_c_like *c, const tci_lstmt *st)
{
    if (st->op == TCI_L_SET) {
        tci_c_value(c, st->dst);
        tci_str_add(c->out, " = ");
    } else {
        tci_c_define(c, st->dst);
    }
    tci_c_value(c, st->args[0]);
    tci_str_add(c->out, ";\n");
}

static void tci_c_index_let(tci_c_like *c, const tci_lstmt *st)
{
    tci_str_printf(c->out, "const %s ", tci_c_word(c));
    tci_c_index(c, st->dst);
    tci_str_add(c->out, " = ");
    if (st->op == TCI_L_INDEX) {
        tci_c_lx(c, st->x);
    } else {
        tci_str_printf(c->out, "(%s)", tci_c_type(c, TC_I64, 1));
        tci_c_value(c, st->args[0]);
    }
    tci_str_add(c->out, ";\n");
}

static void tci_c_stmt(tci_c_like *c, const tci_lstmt *st, int depth)
{
    tci_c_indent(c, depth);
    switch (st->op) {
    case TCI_L_FOR: tci_c_for(c, st, depth); break;
    case TCI_L_IF:
        tci_str_add(c->out, "if (");
        tci_c_value(c, st->args[0]);
        tci_str_add(c->out, ") {\n");
        tci_c_block(c, st->body, depth + 1);
        tci_c_indent(c, depth);
        tci_str_add(c->out, "}\n");
        break;
    case TCI_L_INDEX:
    case TCI_L_FROM_VALUE: tci_c_index_let(c, st); break;
    case TCI_L_LOCAL: tci_c_local(c, st); break;
    case TCI_L_CONST:
        tci_c_define(c, st->dst);
        tci_str_printf(c->out, "%s;\n",
                       c->d->constant(c->d, (tc_dtype)c->l->values[st->dst].dtype, st->value));
        break;
    case TCI_L_LITERAL:
        tci_c_define(c, st->dst);
        tci_str_printf(c->out, "lits[%lld];\n", (long long)st->imm);
        break;
    case TCI_L_PRIM: tci_c_prim(c, st); break;
    case TCI_L_MEM: tci_c_mem(c, st); break;
    case TCI_L_IN_RANGE: tci_c_in_range(c, st); break;
    case TCI_L_TO_VALUE:
        tci_c_define(c, st->dst);
        tci_c_lx(c, st->x);
        tci_str_add(c->out, ";\n");
        break;
    case TCI_L_ELSEWHERE:
        tci_c_define(c, st->dst);
        tci_c_base(c, st->base);
        tci_str_add(c->out, " != ");
        tci_c_base(c, (int)tci_dim_known(st->imm));
        tci_str_add(c->out, ";\n");
        break;
    case TCI_L_FAULT: tci_c_fault(c, st, depth); break;
    case TCI_L_NOTE: tci_str_printf(c->out, "/* %s */\n", st->text); break;
    default: tci_c_assign(c, st); break;
    }
}

static void tci_c_block(tci_c_like *c, int block, int depth)
{
    const tci_lblock *b = &c->l->blocks[block];
    for (int i = 0; i < b->n; i++) {
        tci_c_stmt(c, &b->stmts[i], depth);
    }
}

TCI_FN void tci_emit_kernel(tci_str *out, tci_dialect *d, const tci_kernel *k, const tci_loop *l,
                            const char *symbol)
{
    tci_c_like c = {out, d, l, NULL};
    if (l->rounds) {
        tci_emit_kloop(out, d, k, l, symbol);
        return;
    }
    if (l->n_members) {
        tci_emit_grouped_launch(out, d, k, l, symbol);
        return;
    }
    tci_str_printf(out, "/* %s: %s */\n", k->name, l->note);
    d->head(d, out, symbol, l, k->n_literals + l->n_dims);
    for (int i = 0; i < l->n_dims; i++) {
        tci_str_printf(out, "    const %s n%d = lits[%d];\n", d->type(d, TC_I64, 1), i,
                       k->n_literals + i);
    }
    for (int i = 0; i < l->n_operands; i++) {
        const tci_koperand *o = &l->operands[i];
        const char *type = tci_dtype_get((tc_dtype)o->dtype)->ctype;
        const char *qualifier = o->is_output ? "" : "const ";
        const char *space = d->words->space;
        tci_str_printf(out, "    %s%s%s *const p%d = (%s%s%s *)", space, qualifier, type, i, space,
                       qualifier, type);
        tci_dialect_number(out, d->words->operand, i);
        tci_str_add(out, ";\n");
    }
    for (int i = 0; i < l->n_scores; i++) {
        const tci_loop *of = l->scores[i];
        bool scalar = of->lanes == 1;
        tci_c_like score = {out, d, of, NULL};
        score.prims = scalar ? TCI_NEW_ARRAY(d->s, const tci_lstmt *, of->n_values + 1) : NULL;
        d->score_head(d, out, symbol, l, i);
        tci_c_block(&score, 0, 1);
        d->score_tail(d, out, symbol, l, i);
    }
    tci_c_block(&c, 0, 1);
    d->tail(d, out, symbol, l);
}
