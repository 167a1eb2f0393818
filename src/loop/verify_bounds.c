/* loop/verify_bounds.c - verifies that the memory accesses of a loop nest are in bounds, by
 * evaluating their addresses at the corners of the iteration space. */
#include "ir.h"

typedef struct tci_bounds {
    tci_scratch *s;
    const tci_loop *l;
    int64_t *indices;
    bool *known;   /* per index */
    int8_t *truth; /* per value, of conditions: -1 not known */
} tci_bounds;

static bool tci_bounds_lx(const tci_bounds *w, int x, int64_t *v);

static bool tci_bounds_pair(const tci_bounds *w, const tci_lx *e, int64_t *v)
{
    int64_t b = 0;
    if (!tci_bounds_lx(w, e->a, v) || !tci_bounds_lx(w, e->b, &b)) {
        return false;
    }
    *v = e->op == TCI_LX_ADD ? *v + b : e->op == TCI_LX_MIN ? TCI_MIN(*v, b) : TCI_MAX(*v, b);
    return true;
}

/* False: it is not known. */
static bool tci_bounds_lx(const tci_bounds *w, int x, int64_t *v)
{
    const tci_lx *e = &w->l->lx[x];
    switch (e->op) {
    case TCI_LX_CONST: *v = tci_dim_known(e->c); return tci_dim_is_known(e->c);
    case TCI_LX_VAR: *v = w->indices[e->a]; return w->known[e->a];
    case TCI_LX_ADD:
    case TCI_LX_MIN:
    case TCI_LX_MAX: return tci_bounds_pair(w, e, v);
    case TCI_LX_TASK_BEGIN: *v = 0; return true;
    case TCI_LX_TASK_END: *v = tci_dim_known(w->l->n_tasks); return true;
    case TCI_LX_MUL:
    case TCI_LX_DIV:
    case TCI_LX_MOD: break;
    default: return false;
    }
    if (!tci_dim_is_known(e->c) || !tci_bounds_lx(w, e->a, v)) {
        return false;
    }
    TCI_ASSERT(w->s, e->op == TCI_LX_MUL || *v >= 0);
    int64_t c = tci_dim_known(e->c);
    *v = e->op == TCI_LX_MUL ? *v * c : e->op == TCI_LX_DIV ? *v / c : *v % c;
    return true;
}

/* Number of elements that an access touches, without imm for strided ones; 0: unknown. */
static int64_t tci_bounds_count(const tci_bounds *w, const tci_lstmt *st)
{
    unsigned uses = tci_lmem_uses((tci_mem)st->mem);
    int64_t n = w->l->lanes;
    bool one = st->mem == TCI_MEM_LOAD_ONE || st->mem == TCI_MEM_STORE_ONE ||
               st->mem == TCI_MEM_STORE_LANE || st->mem == TCI_MEM_STORE_UNIT ||
               st->mem == TCI_MEM_TAG;
    bool other = st->mem == TCI_MEM_PREFETCH || st->mem == TCI_MEM_LOAD_AT ||
                 st->mem == TCI_MEM_TILE_LOAD || st->mem == TCI_MEM_TILE_STORE ||
                 st->mem == TCI_MEM_LOAD_REPEAT ||
                 (st->mem >= TCI_MEM_WORDS && st->mem != TCI_MEM_STORE_UNIT);
    if (other || !(uses & TCI_LMEM_ADDRESS) || (uses & TCI_LMEM_MASK)) {
        return 0;
    }
    if (st->mem == TCI_MEM_TELL || st->mem == TCI_MEM_AWAIT) {
        bool known = st->mem == TCI_MEM_TELL || tci_bounds_lx(w, st->n, &n);
        int value = st->mem == TCI_MEM_TELL ? st->args[0] : st->dst;
        int words = tci_lmem_told((tc_dtype)w->l->values[value].dtype);
        return !known ? 0 : st->mem == TCI_MEM_TELL ? words : n * words;
    }
    if (uses & TCI_LMEM_COUNT) {
        return tci_bounds_lx(w, st->n, &n) ? n : 0;
    }
    if (st->mem == TCI_MEM_LOAD_PAIRS) { /* lanes of 32 bits */
        int t = st->base >= 0 ? w->l->operands[st->base].dtype : w->l->locals[~st->base].dtype;
        return n * (int)sizeof(float) / tci_dtype_get((tc_dtype)t)->bytes;
    }
    return one ? 1 : st->mem == TCI_MEM_STORE_PAIRS ? 2 * n : n;
}

static void tci_bounds_access(const tci_bounds *w, const tci_lstmt *st)
{
    bool strided = (tci_lmem_uses((tci_mem)st->mem) & TCI_LMEM_STRIDE) != 0;
    int64_t count = tci_bounds_count(w, st), at = 0;
    if (count <= 0 || !tci_bounds_lx(w, st->x, &at) || (strided && !tci_dim_is_known(st->imm))) {
        return;
    }
    tci_dim n = st->base >= 0 ? w->l->operands[st->base].n : w->l->locals[~st->base].n;
    int64_t reach = (count - 1) * (strided ? tci_dim_known(st->imm) : 1);
    TCI_ASSERT(w->s, !tci_dim_is_known(n) || at + TCI_MIN(reach, 0) >= 0);
    TCI_ASSERT(w->s, !tci_dim_is_known(n) || at + TCI_MAX(reach, 0) < tci_dim_known(n));
}

static void tci_bounds_block(tci_bounds *w, int block);

static void tci_bounds_for(tci_bounds *w, const tci_lstmt *st)
{
    int64_t begin = 0, end = 0, step = tci_dim_known(st->imm);
    if (!tci_bounds_lx(w, st->x, &begin) || !tci_bounds_lx(w, st->n, &end) || begin >= end) {
        return;
    }
    int64_t last = begin + (end - 1 - begin) / step * step;
    w->known[st->dst] = true;
    w->indices[st->dst] = begin;
    tci_bounds_block(w, st->body);
    if (last > begin) {
        w->indices[st->dst] = last;
        tci_bounds_block(w, st->body);
    }
}

static int8_t tci_bounds_in_range(const tci_bounds *w, const tci_lstmt *st)
{
    int64_t v = 0;
    bool known = tci_bounds_lx(w, st->x, &v) && tci_dim_is_known(st->lo) &&
                 tci_dim_is_known(st->imm);
    return known ? tci_dim_known(st->lo) <= v && v <= tci_dim_known(st->imm) : -1;
}

static void tci_bounds_stmt(tci_bounds *w, const tci_lstmt *st)
{
    switch (st->op) {
    case TCI_L_FOR: tci_bounds_for(w, st); break;
    case TCI_L_IF:
        if (w->truth[st->args[0]] == 1) {
            tci_bounds_block(w, st->body);
        }
        break;
    case TCI_L_INDEX: w->known[st->dst] = tci_bounds_lx(w, st->x, &w->indices[st->dst]); break;
    case TCI_L_FROM_VALUE: w->known[st->dst] = false; break;
    case TCI_L_ELSEWHERE: w->truth[st->dst] = 1; break;
    case TCI_L_IN_RANGE: w->truth[st->dst] = tci_bounds_in_range(w, st); break;
    case TCI_L_PRIM: {
        const int32_t *args = st->args;
        bool both = st->prim == TCI_P_AND && w->truth[args[0]] == 1 && w->truth[args[1]] == 1;
        w->truth[st->dst] = both ? 1 : -1;
        break;
    }
    case TCI_L_MEM: tci_bounds_access(w, st); break;
    default: break;
    }
}

static void tci_bounds_block(tci_bounds *w, int block)
{
    const tci_lblock *b = &w->l->blocks[block];
    for (int i = 0; i < b->n; i++) {
        tci_bounds_stmt(w, &b->stmts[i]);
    }
}

TCI_FN void tci_loop_walk(tci_scratch *s, const tci_loop *l)
{
    tci_bounds w = {.s = s, .l = l};
    w.indices = TCI_NEW_ARRAY(s, int64_t, l->n_indices + 1);
    w.known = TCI_NEW_ARRAY(s, bool, l->n_indices + 1);
    w.truth = TCI_NEW_ARRAY(s, int8_t, l->n_values + 1);
    for (int v = 0; v < l->n_values; v++) {
        w.truth[v] = -1;
    }
    if (!l->matrix && tci_dim_is_known(l->n_tasks)) {
        tci_bounds_block(&w, 0);
    }
}
