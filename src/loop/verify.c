/* loop/verify.c - checks the invariants of loop/ir.h; a violation aborts the compile with
 * TC_ERR_INTERNAL.
 *
 * One traversal in execution order. A name counts as defined from its statement to the end of its
 * block: `state` is 0 before, 1 inside, 2 after. */
#include "ir.h"

typedef struct tci_loop_verify_walk {
    tci_scratch *s;
    const tci_loop *l;
    uint8_t *values, *indices, *locals;
} tci_loop_verify_walk;

static void tci_loop_verify_lx(const tci_loop_verify_walk *v, int x)
{
    TCI_ASSERT(v->s, x >= 0 && x < v->l->n_lx);
    const tci_lx *e = &v->l->lx[x];
    if (e->op == TCI_LX_VAR) {
        TCI_ASSERT(v->s, e->a >= 0 && e->a < v->l->n_indices && v->indices[e->a] == 1);
        return;
    }
    if (e->a >= 0) {
        tci_loop_verify_lx(v, e->a);
    }
    if (e->op == TCI_LX_ADD || e->op == TCI_LX_MIN || e->op == TCI_LX_MAX) {
        tci_loop_verify_lx(v, e->b);
    }
    bool divides = e->op == TCI_LX_DIV || e->op == TCI_LX_MOD;
    TCI_ASSERT(v->s, !divides || !tci_dim_le(e->c, 0));
    TCI_ASSERT(v->s, tci_dim_is_valid(e->c));
    TCI_ASSERT(v->s, e->op != TCI_LX_HEAD || (e->b >= 0 && e->b < v->l->n_operands));
}

static const tci_lvalue *tci_loop_verify_use(const tci_loop_verify_walk *v, int value)
{
    TCI_ASSERT(v->s, value >= 0 && value < v->l->n_values);
    TCI_ASSERT(v->s, v->values[value] == 1);
    return &v->l->values[value];
}

static void tci_loop_verify_define(tci_loop_verify_walk *v, int value)
{
    TCI_ASSERT(v->s, value >= 0 && value < v->l->n_values && v->values[value] == 0);
    v->values[value] = 1;
}

static void tci_loop_verify_prim(tci_loop_verify_walk *v, const tci_lstmt *st)
{
    const tci_prim_info *p = tci_prim_get((tci_prim)st->prim);
    const tci_lvalue *to = &v->l->values[st->dst];
    for (int i = 0; i < 3; i++) {
        bool present = st->args[i] >= 0;
        TCI_ASSERT(v->s, present || i > 0);
        if (!present) {
            continue;
        }
        const tci_lvalue *arg = tci_loop_verify_use(v, st->args[i]);
        bool mask = st->prim == TCI_P_LANE1 && i == 1;
        TCI_ASSERT(v->s, i < p->arity && arg->lanes == to->lanes);
        bool condition = mask || (st->prim == TCI_P_SELECT && i == 0);
        const tci_lvalue *like = &v->l->values[st->args[st->prim == TCI_P_SELECT ? 1 : 0]];
        TCI_ASSERT(v->s, arg->dtype == (condition ? TC_BOOL : like->dtype));
        TCI_ASSERT(v->s, p->result != 'S' || condition || arg->dtype == to->dtype);
    }
    TCI_ASSERT(v->s, p->result != 'B' || to->dtype == TC_BOOL);
    tci_loop_verify_define(v, st->dst);
}

static void tci_loop_verify_address(const tci_loop_verify_walk *v, const tci_lstmt *st,
                                    unsigned uses)
{
    bool writes = (uses & TCI_LMEM_WRITES) != 0;
    if (st->base < 0) {
        TCI_ASSERT(v->s, ~st->base < v->l->n_locals && v->locals[~st->base] == 1);
    } else {
        TCI_ASSERT(v->s, st->base < v->l->n_operands);
        const tci_koperand *o = &v->l->operands[st->base];
        TCI_ASSERT(v->s, st->mem == TCI_MEM_PREFETCH || o->is_output == writes || o->is_updated);
    }
    tci_loop_verify_lx(v, st->x);
}

/* A thread's part of what a warp's matrix unit takes or makes, in one of these dtypes. */
static void tci_loop_verify_part(const tci_loop_verify_walk *v, int value, tc_dtype t,
                                 tc_dtype ints, tc_dtype wide, int n)
{
    const tci_lvalue *part = tci_loop_verify_use(v, value);
    TCI_ASSERT(v->s, part->dtype == t || part->dtype == ints || part->dtype == wide);
    TCI_ASSERT(v->s, part->lanes == n * v->l->threads);
}

static void tci_loop_verify_words(const tci_loop_verify_walk *v, int value)
{
    tci_loop_verify_part(v, value, TC_U32, TC_U32, TC_U32, TCI_UNIT_WORDS);
}

static void tci_loop_verify_factor(const tci_loop_verify_walk *v, int value)
{
    tci_loop_verify_part(v, value, TC_U32, TC_I32, TC_F64, TCI_UNIT_WORDS);
}

static void tci_loop_verify_sums(const tci_loop_verify_walk *v, int value)
{
    tci_loop_verify_part(v, value, TC_F32, TC_I32, TC_F64, TCI_UNIT_SUMS);
}

/* Words of 16 bytes are at multiples of that; a warp's threads ask together, so it is whole. */
static void tci_loop_verify_unit(tci_loop_verify_walk *v, const tci_lstmt *st)
{
    unsigned uses = tci_lmem_uses((tci_mem)st->mem);
    bool dot = st->mem == TCI_MEM_UNIT_DOT, sum = st->mem == TCI_MEM_UNIT_SUM;
    bool one = st->mem == TCI_MEM_STORE_UNIT;
    TCI_ASSERT(v->s, v->l->threads % TCI_WARP == 0 && v->l->rows == 1);
    if (uses & TCI_LMEM_ADDRESS) {
        int dtype = st->base < 0 ? v->l->locals[~st->base].dtype : v->l->operands[st->base].dtype;
        int64_t words = TCI_ALIGNED_BYTES / tci_dtype_get((tc_dtype)dtype)->bytes;
        tci_loop_verify_address(v, st, uses);
        TCI_ASSERT(v->s, one || tci_lx_multiple(v->l, st->x) % words == 0);
        bool strides = !(uses & TCI_LMEM_STRIDE) || tci_dim_known(st->imm) % words == 0;
        TCI_ASSERT(v->s, strides);
    }
    if (dot || sum) {
        tci_loop_verify_sums(v, st->args[0]);
        int64_t which = tci_dim_known(st->imm);
        TCI_ASSERT(v->s, dot || (which >= 0 && which < TCI_UNIT_SUMS));
    }
    for (int i = 1; i < 3 && dot; i++) {
        tci_loop_verify_factor(v, st->args[i]);
    }
    if (st->mem == TCI_MEM_STORE_WORDS) {
        tci_loop_verify_words(v, st->args[0]);
    }
    if (one || (uses & TCI_LMEM_MASK)) {
        TCI_ASSERT(v->s, tci_loop_verify_use(v, st->args[0])->lanes == 1);
    }
    if (uses & TCI_LMEM_DST) {
        bool sums = dot || st->mem == TCI_MEM_UNIT_ZERO;
        bool words = st->mem == TCI_MEM_WORDS || st->mem == TCI_MEM_WORDS_IF;
        tci_loop_verify_define(v, st->dst);
        TCI_ASSERT(v->s, !sum || v->l->values[st->dst].lanes == 1);
        if (!sum) {
            (sums    ? tci_loop_verify_sums
             : words ? tci_loop_verify_words
                     : tci_loop_verify_factor)(v, st->dst);
        }
    }
}

/* Words in the step's own memory; a tag is one i64, and what it is with has 32 or 64 bits. */
static void tci_loop_verify_told(tci_loop_verify_walk *v, const tci_lstmt *st)
{
    unsigned uses = tci_lmem_uses((tci_mem)st->mem);
    bool awaits = st->mem == TCI_MEM_AWAIT, tells = st->mem == TCI_MEM_TELL;
    tci_loop_verify_address(v, st, uses);
    TCI_ASSERT(v->s, st->base < 0 && v->l->locals[~st->base].work >= 0);
    TCI_ASSERT(v->s, v->l->locals[~st->base].dtype == TC_I64 && v->l->rows == 1);
    if (awaits || tells) {
        const tci_lvalue *tag = tci_loop_verify_use(v, st->args[tells]);
        const tci_lvalue *value = tells ? tci_loop_verify_use(v, st->args[0])
                                        : &v->l->values[st->dst];
        TCI_ASSERT(v->s, tag->dtype == TC_I64 && tag->lanes == 1);
        TCI_ASSERT(v->s, tci_lmem_told((tc_dtype)value->dtype) > 0);
        TCI_ASSERT(v->s, value->lanes == (tells ? 1 : v->l->lanes));
    }
    if (uses & TCI_LMEM_COUNT) {
        tci_loop_verify_lx(v, st->n);
    }
    if (uses & TCI_LMEM_DST) {
        tci_loop_verify_define(v, st->dst);
        TCI_ASSERT(v->s, awaits || v->l->values[st->dst].dtype == TC_I64);
    }
}

static void tci_loop_verify_mem(tci_loop_verify_walk *v, const tci_lstmt *st)
{
    unsigned uses = tci_lmem_uses((tci_mem)st->mem);
    int lanes = v->l->lanes;
    TCI_ASSERT(v->s, st->mem < TCI_MEM_BARRIER || v->l->threads > 1 || v->l->rows > 1);
    TCI_ASSERT(v->s, v->l->rows == 1 || (st->mem != TCI_MEM_BARRIER && st->mem != TCI_MEM_LANE &&
                                         st->mem != TCI_MEM_LOAD_REPEAT));
    if (st->mem >= TCI_MEM_WORDS) {
        tci_loop_verify_unit(v, st);
        return;
    }
    if (st->mem >= TCI_MEM_TAG) {
        tci_loop_verify_told(v, st);
        return;
    }
    if (uses & TCI_LMEM_ADDRESS) {
        tci_loop_verify_address(v, st, uses);
    }
    if (st->mem == TCI_MEM_LOAD_ALIGNED || st->mem == TCI_MEM_STORE_ALIGNED ||
        st->mem == TCI_MEM_LOAD_IF || st->mem == TCI_MEM_LOAD_N_ALIGNED) {
        TCI_ASSERT(v->s, tci_lx_multiple(v->l, st->x) % (lanes / v->l->threads) == 0);
    }
    if (st->mem == TCI_MEM_LOAD_N_ALIGNED) {
        TCI_ASSERT(v->s, tci_lx_multiple(v->l, st->n) % (lanes / v->l->threads) == 0);
    }
    if (st->mem == TCI_MEM_STORE_PAIRS && v->l->threads > 1) {
        TCI_ASSERT(v->s, tci_lx_multiple(v->l, st->x) % 2 == 0);
    }
    if (uses & TCI_LMEM_FIRST) {
        tci_loop_verify_lx(v, st->x);
    }
    if (uses & TCI_LMEM_COUNT) {
        tci_loop_verify_lx(v, st->n);
    }
    if (uses & (TCI_LMEM_VALUE | TCI_LMEM_MASK)) {
        const tci_lvalue *value = tci_loop_verify_use(v, st->args[0]);
        bool one = st->mem == TCI_MEM_STORE_ONE || st->mem == TCI_MEM_STORE_LANE ||
                   st->mem == TCI_MEM_SPLAT || st->mem == TCI_MEM_LOAD_IF;
        TCI_ASSERT(v->s, value->lanes == (one ? 1 : lanes));
        TCI_ASSERT(v->s, !(uses & TCI_LMEM_MASK) || value->dtype == TC_BOOL);
    }
    if (uses & TCI_LMEM_SECOND) {
        TCI_ASSERT(v->s, tci_loop_verify_use(v, st->args[1])->lanes == lanes);
    }
    if (uses & TCI_LMEM_THIRD) {
        TCI_ASSERT(v->s, tci_loop_verify_use(v, st->args[2])->lanes == lanes);
    }
    if (uses & TCI_LMEM_DST) {
        bool one = st->mem == TCI_MEM_LOAD_ONE || st->mem == TCI_MEM_LANE ||
                   st->mem == TCI_MEM_LANE_REPEAT;
        tci_loop_verify_define(v, st->dst);
        TCI_ASSERT(v->s, v->l->values[st->dst].lanes == (one ? 1 : lanes));
    }
}

/* dst and args[0] have one type. */
static void tci_loop_verify_same(const tci_loop_verify_walk *v, const tci_lstmt *st)
{
    const tci_lvalue *from = tci_loop_verify_use(v, st->args[0]), *to = &v->l->values[st->dst];
    TCI_ASSERT(v->s, from->dtype == to->dtype && from->lanes == to->lanes);
    TCI_ASSERT(v->s, to->is_mutable == (st->op != TCI_L_COPY));
}

static void tci_loop_verify_block(tci_loop_verify_walk *v, int block, int loop_index);

static void tci_loop_verify_index(tci_loop_verify_walk *v, const tci_lstmt *st, int block)
{
    TCI_ASSERT(v->s, v->indices[st->dst] == 0 && v->l->indices[st->dst].block == block);
    v->indices[st->dst] = 1;
}

static void tci_loop_verify_stmt(tci_loop_verify_walk *v, const tci_lstmt *st, int block)
{
    bool leaf = st->op == TCI_L_CONST || st->op == TCI_L_LITERAL || st->op == TCI_L_IN_RANGE ||
                st->op == TCI_L_TO_VALUE;
    switch (st->op) {
    case TCI_L_FOR:
        tci_loop_verify_lx(v, st->x);
        tci_loop_verify_lx(v, st->n);
        TCI_ASSERT(v->s, tci_dim_is_known(st->imm) && tci_dim_known(st->imm) > 0);
        tci_loop_verify_block(v, st->body, st->dst);
        break;
    case TCI_L_IF: {
        const tci_lvalue *condition = tci_loop_verify_use(v, st->args[0]);
        TCI_ASSERT(v->s, condition->dtype == TC_BOOL && condition->lanes == 1);
        tci_loop_verify_block(v, st->body, -1);
        break;
    }
    case TCI_L_INDEX:
        tci_loop_verify_lx(v, st->x);
        tci_loop_verify_index(v, st, block);
        break;
    case TCI_L_FROM_VALUE: {
        const tci_lvalue *from = tci_loop_verify_use(v, st->args[0]);
        TCI_ASSERT(v->s, tci_dtype_is_int((tc_dtype)from->dtype) && from->lanes == 1);
        tci_loop_verify_index(v, st, block);
        break;
    }
    case TCI_L_LOCAL: v->locals[st->dst] = 1; break;
    case TCI_L_ELSEWHERE: {
        int other = (int)tci_dim_known(st->imm);
        TCI_ASSERT(v->s, st->base >= 0 && st->base < v->l->n_operands && other != st->base);
        TCI_ASSERT(v->s, other >= 0 && other < v->l->n_operands);
        TCI_ASSERT(v->s, v->l->operands[st->base].dtype == v->l->operands[other].dtype);
        tci_loop_verify_define(v, st->dst);
        break;
    }
    case TCI_L_PRIM: tci_loop_verify_prim(v, st); break;
    case TCI_L_MEM: tci_loop_verify_mem(v, st); break;
    case TCI_L_VAR:
    case TCI_L_COPY:
        tci_loop_verify_same(v, st);
        tci_loop_verify_define(v, st->dst);
        break;
    case TCI_L_SET:
        tci_loop_verify_same(v, st);
        tci_loop_verify_use(v, st->dst);
        break;
    case TCI_L_FAULT:
        TCI_ASSERT(v->s, v->l->faults && tci_loop_verify_use(v, st->args[0])->lanes ==
                                             v->l->values[st->dst].lanes);
        TCI_ASSERT(v->s, v->l->values[st->dst].lanes == 1 || v->l->threads == 1);
        tci_loop_verify_define(v, st->dst);
        break;
    default: break;
    }
    if (st->op == TCI_L_IN_RANGE || st->op == TCI_L_TO_VALUE) {
        tci_loop_verify_lx(v, st->x);
    }
    if (leaf) {
        tci_loop_verify_define(v, st->dst);
    }
}

static void tci_loop_verify_block(tci_loop_verify_walk *v, int block, int loop_index)
{
    const tci_loop *l = v->l;
    TCI_ASSERT(v->s, block > -1 && block < l->n_blocks);
    if (loop_index >= 0) {
        TCI_ASSERT(v->s, l->indices[loop_index].block == block && l->indices[loop_index].is_loop);
        v->indices[loop_index] = 1;
    }
    const tci_lblock *b = &l->blocks[block];
    for (int i = 0; i < b->n; i++) {
        tci_loop_verify_stmt(v, &b->stmts[i], block);
    }
    for (int i = 0; i < b->n; i++) { /* its names end here */
        const tci_lstmt *st = &b->stmts[i];
        bool index = st->op == TCI_L_INDEX || st->op == TCI_L_FROM_VALUE;
        if (index) {
            v->indices[st->dst] = 2;
        } else if (st->op == TCI_L_LOCAL) {
            v->locals[st->dst] = 2;
        } else if (st->dst >= 0 && st->op != TCI_L_SET && st->op != TCI_L_FOR) {
            v->values[st->dst] = 2;
        }
    }
    if (loop_index >= 0) {
        v->indices[loop_index] = 2;
    }
}

static void tci_loop_verify_rounds(tci_scratch *s, const tci_loop *l)
{
    for (int i = 0; i < l->n_members; i++) {
        const tci_loop_member *m = &l->members[i];
        TCI_ASSERT(s, m->first_same <= i && l->members[m->first_same].loop == m->loop);
        TCI_ASSERT(s, !m->loop->n_members || m->loop->rounds);
        TCI_ASSERT(s, m->loop->threads * m->loop->rows <= l->threads && !m->loop->matrix);
        if (m->first_same == i) {
            tci_loop_verify(s, m->loop);
        }
    }
}

/* One after the other, without gaps. */
static void tci_loop_verify_members(tci_scratch *s, const tci_loop *l)
{
    int64_t task = 0;
    int32_t operand = 0;
    for (int i = 0; i < l->n_members; i++) {
        const tci_loop_member *m = &l->members[i];
        TCI_ASSERT(s, m->first_task == task && m->operand == operand && m->first_same <= i);
        TCI_ASSERT(s, l->members[m->first_same].loop == m->loop && !m->loop->n_members);
        TCI_ASSERT(s, m->loop->threads * m->loop->rows <= l->threads);
        TCI_ASSERT(s, tci_dim_le(m->loop->work_bytes, l->work_bytes));
        task += tci_dim_known(m->loop->n_tasks);
        operand += m->kernel->n_operands;
        if (m->first_same == i) {
            tci_loop_verify(s, m->loop);
        }
    }
    TCI_ASSERT(s, task == tci_dim_known(l->n_tasks) && operand == l->n_operands);
}

TCI_FN void tci_loop_verify(tci_scratch *s, const tci_loop *l)
{
    if (l->rounds) {
        tci_loop_verify_rounds(s, l);
        return;
    }
    if (l->n_members) {
        tci_loop_verify_members(s, l);
        return;
    }
    tci_loop_verify_walk v = {s, l, NULL, NULL, NULL};
    v.values = TCI_NEW_ARRAY(s, uint8_t, l->n_values + 1);
    v.indices = TCI_NEW_ARRAY(s, uint8_t, l->n_indices + 1);
    v.locals = TCI_NEW_ARRAY(s, uint8_t, l->n_locals + 1);
    tci_loop_verify_block(&v, 0, -1);
    tci_loop_walk(s, l);
    for (int i = 0; i < l->n_scores; i++) {
        tci_loop_verify(s, l->scores[i]);
    }
}
