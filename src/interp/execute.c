/* interp/execute.c - executes kernels in the interpreter's linear IR (interp/linear_ir.h), block by
 * block along the vector axis.
 *
 * In: a prepared kernel, operand memory, literals, a range of tasks. Out: the outputs' elements.
 * The outer iterations of the range run in the order of p->walk, chunk by chunk of its last axis,
 * in blocks along it (TCI_VEC_OUTER) or one at a time (TCI_VEC_INNER: then each stage's last axis
 * is processed in blocks). Outer iterations are independent, so the choice of that axis changes no
 * bit. All state is in the caller's workspace; nothing is allocated or locked.
 *
 * Reduction order: TCI_VEC_OUTER folds one element per lane of the block and step, so each outer
 * iteration folds its elements in row-major order. TCI_VEC_INNER blocks start at multiples of
 * TCI_VLANES, so each 64 consecutive elements are accumulated into consecutive lanes; lanes are
 * combined at the end of the stage. A BLOCK_SCAN is processed in chunks of that many elements of
 * its block; for each combining step (h = 1, 2, 4, ..) the partial results that later chunks need
 * are kept. */
#include <string.h>

#include "linear_ir.h"

#if defined(__GNUC__) || defined(__clang__)
#define TCI_EXEC_ALIAS __attribute__((may_alias))
#else
#define TCI_EXEC_ALIAS
#endif
typedef uint8_t tci_exec_b1;
typedef uint16_t TCI_EXEC_ALIAS tci_exec_b2;
typedef uint32_t TCI_EXEC_ALIAS tci_exec_b4;
typedef uint64_t TCI_EXEC_ALIAS tci_exec_b8;
typedef int64_t TCI_EXEC_ALIAS tci_exec_i64;
#undef TCI_EXEC_ALIAS

typedef struct tci_exec {
    const tci_interp *p;
    char *workspace;
    char **ptr;     /* memory of each value: its place in the workspace, or an operand */
    int64_t *axes;  /* positions; the vector axis is at the block's first lane */
    uint8_t *flags; /* per lane: all guards hold */
    char *spare;    /* TCI_VLANES elements */
    int64_t *left;  /* of each reduction in parts: products until the next part begins */
    void *const *bufs;
    const int64_t *lits;
    int64_t *fault;
    int64_t n;       /* lanes of the block at hand in the section at hand */
    int64_t outer_n; /* lanes of the outer block */
    int64_t chunk;   /* first lane of the chunk that panels have; -1: none */
} tci_exec;

TCI_QUICK_BEGIN

/* ---- small things over element sizes ---- */

static void tci_exec_fill(void *out, int bytes, uint64_t bits, int64_t n)
{
    switch (bytes) {
    case 1: memset(out, (int)(bits & 0xff), (size_t)n); break;
    case 2:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b2 *)out)[i] = (uint16_t)bits;
        }
        break;
    case 4:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b4 *)out)[i] = (uint32_t)bits;
        }
        break;
    default:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b8 *)out)[i] = bits;
        }
        break;
    }
}

static uint64_t tci_exec_peek(const void *p, int bytes)
{
    switch (bytes) {
    case 1: return *(const tci_exec_b1 *)p;
    case 2: return *(const tci_exec_b2 *)p;
    case 4: return *(const tci_exec_b4 *)p;
    default: return *(const tci_exec_b8 *)p;
    }
}

/* A group of one element. */
static void tci_exec_splat(void *out, int bytes, uint64_t bits)
{
    const uint64_t word = bytes == 1   ? (bits & 0xff) * 0x0101010101010101u
                          : bytes == 2 ? (bits & 0xffff) * 0x0001000100010001u
                          : bytes == 4 ? (bits & 0xffffffff) * 0x0000000100000001u
                                       : bits;
    for (int i = 0; i < TCI_INTERP_GROUP / 8; i++) {
        ((tci_exec_b8 *)out)[i] = word;
    }
}

/* out[i] = from[i * stride] for i < n. */
static void tci_exec_gather_strided(char *out, const char *from, int bytes, int64_t stride,
                                    int64_t n)
{
    if (stride == 1) {
        memcpy(out, from, (size_t)(n * bytes));
        return;
    }
    switch (bytes) {
    case 1:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b1 *)out)[i] = ((const tci_exec_b1 *)from)[i * stride];
        }
        break;
    case 2:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b2 *)out)[i] = ((const tci_exec_b2 *)from)[i * stride];
        }
        break;
    case 4:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b4 *)out)[i] = ((const tci_exec_b4 *)from)[i * stride];
        }
        break;
    default:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b8 *)out)[i] = ((const tci_exec_b8 *)from)[i * stride];
        }
        break;
    }
}

/* to[i * stride] = from[i], or from[0] where from does not vary. */
static void tci_exec_scatter_strided(char *to, const char *from, int bytes, int64_t stride,
                                     bool vary, int64_t n)
{
    if (stride == 1 && vary) {
        memcpy(to, from, (size_t)(n * bytes));
        return;
    }
    if (stride == 1) {
        tci_exec_fill(to, bytes, tci_exec_peek(from, bytes), n);
        return;
    }
    const int64_t step = vary;
    switch (bytes) {
    case 1:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b1 *)to)[i * stride] = ((const tci_exec_b1 *)from)[i * step];
        }
        break;
    case 2:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b2 *)to)[i * stride] = ((const tci_exec_b2 *)from)[i * step];
        }
        break;
    case 4:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b4 *)to)[i * stride] = ((const tci_exec_b4 *)from)[i * step];
        }
        break;
    default:
        for (int64_t i = 0; i < n; i++) {
            ((tci_exec_b8 *)to)[i * stride] = ((const tci_exec_b8 *)from)[i * step];
        }
        break;
    }
}

static int64_t tci_exec_floor_div(int64_t a, int64_t c)
{
    int64_t q = a / c;
    return a % c < 0 ? q - 1 : q;
}

/* ---- addresses and guards ---- */

static int64_t tci_exec_addr(const tci_exec *e, const tci_interp_addr *a)
{
    int64_t x = a->base;
    for (int i = 0; i < a->n_terms; i++) {
        x += a->terms[i].coef * e->axes[a->terms[i].axis];
    }
    for (int i = 0; i < a->n_atoms; i++) {
        const tci_interp_atom *atom = &a->atoms[i];
        if (atom->op == TCI_KX_VALUE) {
            x += atom->coef * *(const tci_exec_i64 *)e->ptr[atom->value];
            continue;
        }
        int64_t y = tci_exec_addr(e, atom->arg);
        int64_t q = tci_exec_floor_div(y, atom->c);
        x += atom->coef * (atom->op == TCI_KX_DIV ? q : y - q * atom->c);
    }
    return x;
}

/* Lanes [*from, *to) of n where lo <= x + i * stride <= hi. */
static void tci_exec_interval(int64_t x, int64_t stride, int64_t lo, int64_t hi, int64_t *from,
                              int64_t *to)
{
    if (stride == 0) {
        if (x < lo || x > hi) {
            *to = *from;
        }
        return;
    }
    /* Mirrored for a negative stride: -hi <= -x + i * -stride <= -lo. */
    int64_t low = stride > 0 ? lo - x : x - hi;
    int64_t high = stride > 0 ? hi - x : x - lo;
    int64_t step = stride > 0 ? stride : -stride;
    int64_t first = -tci_exec_floor_div(-low, step);
    int64_t past = tci_exec_floor_div(high, step) + 1;
    /* Both stay within the block, also where the interval is past its last lane. */
    *from = TCI_MIN(TCI_MAX(*from, first), *to);
    *to = TCI_MAX(TCI_MIN(*to, past), *from);
}

/* Lanes [*from, *to) outside of which some guard fails. True: there, flags[] decides lane by
 * lane. */
static bool tci_exec_guards(tci_exec *e, const tci_interp_step *st, int64_t n, int64_t *from,
                            int64_t *to)
{
    bool blocks = false;
    *from = 0;
    *to = n;
    for (int g = 0; g < st->n_guards; g++) {
        const tci_interp_guard *guard = &st->guards[g];
        if (guard->block < 0) {
            tci_exec_interval(tci_exec_addr(e, guard->x), st->varies ? guard->x->stride : 0,
                              guard->lo, guard->hi, from, to);
        }
    }
    for (int g = 0; g < st->n_guards; g++) {
        const tci_interp_guard *guard = &st->guards[g];
        if (guard->block < 0) {
            continue;
        }
        const tci_exec_i64 *x = (const tci_exec_i64 *)e->ptr[guard->block];
        for (int64_t i = *from; i < *to; i++) {
            bool holds = x[i] >= guard->lo && x[i] <= guard->hi;
            e->flags[i] = holds && (!blocks || e->flags[i]);
        }
        blocks = true;
    }
    return blocks;
}

/* ---- steps ---- */

/* Where no loop exists: element by element through the scalar evaluator. */
static tci_value tci_exec_operand(const tci_interp_op *op, const void *const *in,
                                  const uint8_t *vary, int j, int64_t i)
{
    const char *p = (const char *)in[j] + (vary[j] ? i * op->in_bytes[j] : 0);
    if (op->prim == TCI_P_SELECT && j == 0) {
        tci_value mask = {.i = tci_exec_peek(p, op->in_bytes[0]) != 0};
        return mask;
    }
    return tci_value_load((tc_dtype)op->dtype, p);
}

static tci_value tci_exec_scalar(const tci_interp_op *op, const tci_value *a)
{
    tc_dtype t = (tc_dtype)op->dtype;
    tci_value v;
    switch (op->prim) {
    case TCI_IP_MAXIMUM: return a[0].f > a[1].f || a[0].f != a[0].f ? a[0] : a[1];
    case TCI_IP_MINIMUM: return a[0].f < a[1].f || a[0].f != a[0].f ? a[0] : a[1];
    case TCI_IP_MULADD: {
        tci_value sum[2] = {tci_prim_eval(TCI_P_MUL, t, t, 0, a), a[2]};
        return tci_prim_eval(TCI_P_ADD, t, t, 0, sum);
    }
    case TCI_IP_FROM_F16: v.f = tci_f16_bits_to_f32((uint16_t)a[0].u); return v;
    case TCI_IP_TO_F16: v.i = tci_f32_to_f16_bits((float)a[0].f); return v;
    default: return tci_prim_eval((tci_prim)op->prim, t, (tc_dtype)op->to, 0, a);
    }
}

static void tci_exec_eval(const tci_interp_op *op, void *out, const void *const *in,
                          const uint8_t *vary, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        tci_value a[3] = {{0}};
        for (int j = 0; j < op->n_in; j++) {
            a[j] = tci_exec_operand(op, in, vary, j, i);
        }
        tci_value v = tci_exec_scalar(op, a);
        char *to = (char *)out + i * op->bytes;
        if (op->mask) {
            tci_exec_fill(to, op->bytes, v.i != 0 ? ~(uint64_t)0 : 0, 1);
        } else {
            tci_value_store((tc_dtype)op->to, to, v);
        }
    }
}

/* n lanes of an operation; a uniform result (n = 1) becomes a whole group. */
static void tci_exec_apply(const tci_interp_op *op, void *out, const void *const *in,
                           const uint8_t *vary, int64_t n, bool varies)
{
    if (op->loop && op->group) {
        op->loop(out, in, vary, (n * op->bytes + TCI_INTERP_GROUP - 1) / TCI_INTERP_GROUP);
        return;
    }
    if (op->loop) {
        op->loop(out, in, vary, n);
    } else {
        tci_exec_eval(op, out, in, vary, n);
    }
    if (!varies) {
        tci_exec_splat(out, op->bytes, tci_exec_peek(out, op->bytes));
    }
}

static void tci_exec_op(tci_exec *e, const tci_interp_step *st)
{
    const void *in[3] = {NULL, NULL, NULL};
    for (int i = 0; i < st->op.n_in; i++) {
        in[i] = e->ptr[st->in[i]];
    }
    tci_exec_apply(&st->op, e->ptr[st->out], in, st->vary, st->varies ? e->n : 1, st->varies);
}

static uint64_t tci_exec_lane_value(const tci_helper *h, const char *a)
{
    uint64_t bits = 0;
    tci_value v = tci_value_load((tc_dtype)h->dtype, a);
    v.f = h->f32 ? (double)h->f32((float)v.f) : h->f64(v.f);
    tci_value_store((tc_dtype)h->dtype, &bits, v);
    return bits;
}

/* True if any byte of a lane mask is set. */
static bool tci_exec_any(const char *mask, int64_t n)
{
    uint64_t any = 0;
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        const tci_exec_b8 *words = (const tci_exec_b8 *)(const void *)(mask + i);
        any |= words[0] | words[1] | words[2] | words[3];
    }
    for (; i < n; i++) {
        any |= (uint8_t)mask[i];
    }
    return any != 0;
}

static void tci_exec_lane(tci_exec *e, const tci_interp_step *st)
{
    const tci_helper *h = tci_helper_get(st->ref);
    const int bytes = st->bytes;
    const char *mask = e->ptr[st->in[1]];
    const int64_t n = st->varies ? e->n : 1;
    const int64_t mask_step = st->vary[1] ? bytes : 0;
    char *out = e->ptr[st->out];
    memset(out, 0, (size_t)(st->varies ? n * bytes : TCI_INTERP_GROUP));
    if (!tci_exec_any(mask, mask_step ? n * bytes : bytes)) {
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        if (mask[i * mask_step] == 0) {
            continue;
        }
        const char *a = e->ptr[st->in[0]] + (st->vary[0] ? i * bytes : 0);
        tci_exec_fill(out + i * bytes, bytes, tci_exec_lane_value(h, a), 1);
    }
    if (!st->varies) {
        tci_exec_splat(out, bytes, tci_exec_peek(out, bytes));
    }
}

static void tci_exec_index(tci_exec *e, const tci_interp_step *st)
{
    tci_exec_i64 *out = (tci_exec_i64 *)e->ptr[st->out];
    const int64_t x = tci_exec_addr(e, st->x), stride = st->x->stride;
    if (!st->varies) {
        tci_exec_splat(out, 8, (uint64_t)x);
        return;
    }
    for (int64_t i = 0; i < e->n; i++) {
        out[i] = x + i * stride;
    }
}

/* Quotient and remainder of x + i * stride by c, carried from lane to lane without a division. */
static void tci_exec_divide(tci_exec *e, const tci_interp_step *st)
{
    tci_exec_i64 *out = (tci_exec_i64 *)e->ptr[st->out];
    const int64_t x = tci_exec_addr(e, st->x), stride = st->x->stride, c = st->c;
    const int64_t q_step = tci_exec_floor_div(stride, c), r_step = stride - q_step * c;
    int64_t q = tci_exec_floor_div(x, c), r = x - q * c;
    for (int64_t i = 0; i < e->n; i++) {
        out[i] = st->flag ? r : q;
        q += q_step;
        r += r_step;
        if (r >= c) {
            r -= c;
            q++;
        }
    }
}

static void tci_exec_floor(tci_exec *e, const tci_interp_step *st)
{
    tci_exec_i64 *out = (tci_exec_i64 *)e->ptr[st->out];
    const tci_exec_i64 *in = (const tci_exec_i64 *)e->ptr[st->in[0]];
    for (int64_t i = 0; i < e->n; i++) {
        int64_t q = tci_exec_floor_div(in[i], st->c);
        out[i] = st->flag ? in[i] - q * st->c : q;
    }
}

static void tci_exec_guard(tci_exec *e, const tci_interp_step *st)
{
    char *out = e->ptr[st->out];
    int64_t from, to, n = st->varies ? e->n : 1;
    bool blocks = tci_exec_guards(e, st, n, &from, &to);
    if (!st->varies) {
        tci_exec_splat(out, 1, from < to && (!blocks || e->flags[0]) ? 0xff : 0);
        return;
    }
    memset(out, 0, (size_t)n);
    memset(out + from, 0xff, (size_t)(to - from));
    for (int64_t i = from; blocks && i < to; i++) {
        out[i] = e->flags[i] ? (char)-1 : 0;
    }
}

/* Lanes whose guard fails, or whose offset is not linear: one at a time. */
static void tci_exec_load_lanes(tci_exec *e, const tci_interp_step *st, bool flags, int64_t from,
                                int64_t to)
{
    char *out = e->ptr[st->out];
    const char *memory = e->bufs[st->ref];
    const int bytes = st->bytes;
    const tci_exec_i64 *at = st->x ? NULL : (const tci_exec_i64 *)e->ptr[st->in[0]];
    const int64_t x = st->x ? tci_exec_addr(e, st->x) : 0, stride = st->x ? st->x->stride : 0;
    if (at && !flags && bytes == 4) {
        for (int64_t i = from; i < to; i++) {
            ((tci_exec_b4 *)out)[i] = ((const tci_exec_b4 *)memory)[at[i]];
        }
        return;
    }
    for (int64_t i = from; i < to; i++) {
        int64_t offset = at ? at[i] : x + i * stride;
        bool holds = !flags || e->flags[i];
        tci_exec_fill(out + i * bytes, bytes,
                      holds ? tci_exec_peek(memory + offset * bytes, bytes) : st->bits, 1);
    }
}

/* The panel's lanes from the one at hand on, for the point at hand of its stage's axes. */
static char *tci_exec_panel(const tci_exec *e, const tci_interp_panel *panel, int bytes)
{
    const int64_t lane = e->axes[e->p->walk[e->p->n_outer - 1]] - e->chunk;
    return e->workspace + panel->offset + (tci_exec_addr(e, &panel->at) + lane) * bytes;
}

static void tci_exec_load(tci_exec *e, const tci_interp_step *st)
{
    const int bytes = st->bytes;
    const int64_t n = st->varies ? e->n : 1;
    const char *memory = e->bufs[st->ref];
    char *own = e->workspace + e->p->values[st->out].offset;
    int64_t from = 0, to = n;
    if (st->panel) {
        e->ptr[st->out] = tci_exec_panel(e, st->panel, bytes);
        return;
    }
    bool flags = st->n_guards > 0 && tci_exec_guards(e, st, n, &from, &to);
    if (e->p->operand_n[st->ref] == 0) {
        to = from; /* an empty operand: an index into it was reported as a fault */
    }
    e->ptr[st->out] = own;
    if (st->flag && !flags && from == 0 && to == n && n % TCI_INTERP_GROUP == 0) {
        e->ptr[st->out] = (char *)(uintptr_t)(memory + tci_exec_addr(e, st->x) * bytes);
        return;
    }
    if (!st->varies) {
        bool holds = from < to && (!flags || e->flags[0]);
        tci_exec_splat(own, bytes,
                       holds ? tci_exec_peek(memory + tci_exec_addr(e, st->x) * bytes, bytes)
                             : st->bits);
        return;
    }
    tci_exec_fill(own, bytes, st->bits, from);
    tci_exec_fill(own + to * bytes, bytes, st->bits, n - to);
    if (flags || !st->x) {
        tci_exec_load_lanes(e, st, flags, from, to);
    } else if (from < to) {
        int64_t x = tci_exec_addr(e, st->x) + from * st->x->stride;
        tci_exec_gather_strided(own + from * bytes, memory + x * bytes, bytes, st->x->stride,
                                to - from);
    }
}

static void tci_exec_store(tci_exec *e, const tci_interp_step *st)
{
    const int bytes = st->bytes;
    const char *from = e->ptr[st->in[0]];
    char *memory = e->bufs[st->ref];
    const int64_t n = st->varies ? e->n : 1;
    if (st->x) {
        char *to = memory + tci_exec_addr(e, st->x) * bytes;
        tci_exec_scatter_strided(to, from, bytes, st->x->stride, st->vary[0], n);
        return;
    }
    const tci_exec_i64 *at = (const tci_exec_i64 *)e->ptr[st->in[1]];
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = tci_exec_peek(from + (st->vary[0] ? i * bytes : 0), bytes);
        tci_exec_fill(memory + at[i] * bytes, bytes, bits, 1);
    }
}

static void tci_exec_fault(tci_exec *e, const tci_interp_step *st)
{
    tci_exec_i64 *out = (tci_exec_i64 *)e->ptr[st->out];
    const tci_exec_i64 *in = (const tci_exec_i64 *)e->ptr[st->in[0]];
    bool outside = false;
    for (int64_t i = 0; i < (st->varies ? e->n : 1); i++) {
        int64_t x = in[i] < 0 ? in[i] + st->c : in[i];
        if (x < 0 || x >= st->c) {
            x = x < 0 || st->c == 0 ? 0 : st->c - 1;
            outside = true;
        }
        out[i] = x;
    }
    if (!st->varies) {
        tci_exec_splat(out, 8, (uint64_t)out[0]);
    }
    if (outside && e->fault) { /* tasks of other threads may write it too; any one will do */
#if defined(__GNUC__) || defined(__clang__)
        __atomic_store_n(e->fault, st->c + 1, __ATOMIC_RELAXED);
#else
        *e->fault = st->c + 1;
#endif
    }
}

/* ---- reductions ---- */

static void tci_exec_section(tci_exec *e, const tci_interp_section *section);

/* The first m lanes of acc = combine(acc, v); group loops write past m, so through the spare
 * lanes. */
static void tci_exec_combine(tci_exec *e, const tci_interp_red *r, char *acc, const char *v,
                             bool vary, int64_t m)
{
    const void *in[3] = {acc, v, NULL};
    const uint8_t varies[3] = {1, vary, 0};
    char *out = m == TCI_VLANES ? acc : e->spare;
    tci_exec_apply(&r->combine, out, in, varies, m, true);
    if (out != acc) {
        memcpy(acc, out, (size_t)(m * r->bytes[0]));
    }
}

/* The first m lanes of the tuple at acc take in those of the tuple at v, by the reduction's own
 * section; what does not vary is spread over the lanes first. */
static void tci_exec_join(tci_exec *e, const tci_interp_red *r, char *const *acc, char *const *v,
                          const uint8_t *vary, int64_t m)
{
    const int64_t n = e->n;
    for (int i = 0; i < r->n_parts; i++) {
        e->ptr[r->left[i]] = acc[i];
    }
    for (int i = 0; i < r->n_takes; i++) {
        const tci_interp_value *right = &e->p->values[r->right[i]];
        e->ptr[r->right[i]] = vary[i] ? v[i] : e->workspace + right->offset;
        if (!vary[i]) {
            tci_exec_fill(e->ptr[r->right[i]], right->bytes, tci_exec_peek(v[i], right->bytes), m);
        }
    }
    e->n = m;
    tci_exec_section(e, &r->join);
    e->n = n;
    for (int i = 0; i < r->n_parts; i++) {
        memcpy(acc[i], e->ptr[r->joined[i]], (size_t)(m * r->bytes[i]));
    }
}

/* The n values of a tuple, `lane` lanes on. */
static void tci_exec_parts(tci_exec *e, const int32_t *values, int n, const uint8_t *vary,
                           int64_t lane, char *parts[TCI_PARTS])
{
    for (int i = 0; i < n; i++) {
        parts[i] = e->ptr[values[i]] + (vary[i] ? lane * e->p->values[values[i]].bytes : 0);
    }
}

static void tci_exec_fold_lanes(tci_exec *e, const tci_interp_step *st, const tci_interp_red *r)
{
    static const uint8_t all[TCI_PARTS] = {1, 1, 1, 1};
    int64_t begin = r->axis >= 0 ? e->axes[r->axis] : 0;
    for (int64_t j = 0, n = e->n; j < n; j += TCI_VLANES) {
        int64_t m = TCI_MIN(n - j, (int64_t)TCI_VLANES), lane = (begin + j) % e->p->vlanes;
        char *acc[TCI_PARTS], *v[TCI_PARTS];
        tci_exec_parts(e, r->acc, r->n_parts, all, lane, acc);
        tci_exec_parts(e, st->in, r->n_takes, st->vary, j, v);
        if (r->single) {
            tci_exec_combine(e, r, acc[0], v[0], st->vary[0], m);
        } else {
            tci_exec_join(e, r, acc, v, st->vary, m);
        }
    }
}

/* Lanes of a reduction's accumulator. */
static int64_t tci_exec_red_lanes(const tci_exec *e, const tci_interp_red *r, int part)
{
    bool varies = e->p->values[r->acc[part]].varies;
    return r->scan > 0  ? (int64_t)e->p->values[r->acc[part]].lanes
           : r->row > 0 ? r->row
           : r->inner   ? e->p->vlanes
           : varies     ? e->outer_n
                        : TCI_INTERP_GROUP / r->bytes[part];
}

/* The part at hand is whole: its sum joins those before, into `to`. */
static void tci_exec_join_part(tci_exec *e, const tci_interp_red *r, int32_t to)
{
    bool varies = e->p->values[r->acc[0]].varies;
    const void *in[3] = {e->ptr[r->total], e->ptr[r->acc[0]], NULL};
    const uint8_t vary[3] = {varies, varies, 0};
    tci_exec_apply(&r->add, e->ptr[to], in, vary, varies ? tci_exec_red_lanes(e, r, 0) : 1, varies);
}

/* SPLIT: before the first product of a part but the first; of a whole row at its begin. */
static void tci_exec_next_part(tci_exec *e, int red)
{
    const tci_interp_red *r = &e->p->reds[red];
    const tci_interp_stage *stage = &e->p->stages[r->stage];
    for (int i = stage->n_axes - stage->n_kept; i < stage->n_axes; i++) {
        if (e->axes[stage->axes[i]] > 0) {
            return;
        }
    }
    if (e->left[red] == 0) {
        tci_exec_join_part(e, r, r->total);
        tci_exec_fill(e->ptr[r->acc[0]], r->bytes[0], r->identity[0], tci_exec_red_lanes(e, r, 0));
        e->left[red] = r->split;
    }
    e->left[red]--;
}

/* ---- running values ---- */

/* The first m lanes of v take in `before`: one element (a group of it), or as many. */
static void tci_exec_scan_take(const tci_interp_red *r, char *v, const char *before, bool vary,
                               int64_t m)
{
    const void *in[3] = {NULL, NULL, NULL};
    uint8_t varies[3] = {0, 0, 0};
    for (int a = 0; a < r->combine.n_in; a++) {
        in[a] = r->source[a] == 0 ? before : v;
        varies[a] = r->source[a] == 0 ? vary : 1;
    }
    tci_exec_apply(&r->combine, v, in, varies, m, true);
}

/* Step h, below TCI_VLANES, of m lanes from a multiple of TCI_VLANES on. */
static void tci_exec_scan_step(tci_exec *e, const tci_interp_red *r, char *v, int64_t h, int64_t m)
{
    const int bytes = r->bytes[0];
    for (int64_t i = 0; i < m; i += h) {
        uint64_t bits = i & h ? tci_exec_peek(v + (i - 1) * bytes, bytes) : r->identity[0];
        tci_exec_fill(e->spare + i * bytes, bytes, bits, TCI_MIN(h, m - i));
    }
    tci_exec_scan_take(r, v, e->spare, true, m);
}

/* m lanes, those of the axis from `at`, a multiple of TCI_VLANES, on. */
static void tci_exec_scan_lanes(tci_exec *e, const tci_interp_red *r, char *v, int64_t at,
                                int64_t m)
{
    const int bytes = r->bytes[0];
    char *carry = e->ptr[r->acc[0]], *end = carry + TCI_INTERP_GROUP;
    const char *last = v + (m - 1) * bytes;
    for (int64_t h = 1; h < TCI_VLANES; h *= 2) {
        tci_exec_scan_step(e, r, v, h, m);
    }
    for (int64_t h = TCI_VLANES; h < r->scan; h *= 2, end += TCI_INTERP_GROUP) {
        if (at & h) {
            tci_exec_scan_take(r, v, end, false, m);
        } else if ((at + TCI_VLANES) % h == 0) {
            tci_exec_splat(end, bytes, tci_exec_peek(last, bytes));
        }
    }
    tci_exec_scan_take(r, v, carry, false, m);
    if ((at + m) % r->scan == 0) {
        tci_exec_splat(carry, bytes, tci_exec_peek(last, bytes));
    }
}

static void tci_exec_fold_scan(tci_exec *e, const tci_interp_step *st, const tci_interp_red *r)
{
    const int bytes = r->bytes[0];
    const char *from = e->ptr[st->in[0]];
    char *to = e->ptr[r->result];
    if (st->vary[0]) {
        memcpy(to, from, (size_t)(e->n * bytes));
    } else {
        tci_exec_fill(to, bytes, tci_exec_peek(from, bytes), e->n);
    }
    int64_t begin = r->axis >= 0 ? e->axes[r->axis] : 0;
    for (int64_t j = 0; j < e->n; j += TCI_VLANES) {
        tci_exec_scan_lanes(e, r, to + j * bytes, begin + j,
                            TCI_MIN(e->n - j, (int64_t)TCI_VLANES));
    }
}

/* ---- steps of reductions ---- */

static void tci_exec_fold(tci_exec *e, const tci_interp_step *st)
{
    static const uint8_t all[TCI_PARTS] = {1, 1, 1, 1};
    const tci_interp_red *r = &e->p->reds[st->ref];
    if (r->inner || r->scan > 0) {
        if (r->scan > 0) {
            tci_exec_fold_scan(e, st, r);
        } else {
            tci_exec_fold_lanes(e, st, r);
        }
        return;
    }
    const int64_t n = st->varies ? e->n : 1;
    if (r->split > 0) {
        tci_exec_next_part(e, st->ref);
    }
    if (r->single) {
        const void *in[3] = {NULL, NULL, NULL};
        char *acc = e->ptr[r->acc[0]] + (st->x ? tci_exec_addr(e, st->x) * r->bytes[0] : 0);
        uint8_t vary[3] = {0, 0, 0};
        for (int a = 0; a < r->combine.n_in; a++) {
            int from = r->source[a];
            in[a] = from == 0 ? acc : e->ptr[st->in[from - 1]];
            vary[a] = from == 0 ? st->varies : st->vary[from - 1];
        }
        tci_exec_apply(&r->combine, acc, in, vary, n, st->varies);
        return;
    }
    char *acc[TCI_PARTS], *v[TCI_PARTS];
    tci_exec_parts(e, r->acc, r->n_parts, all, 0, acc);
    tci_exec_parts(e, st->in, r->n_takes, all, 0, v);
    tci_exec_join(e, r, acc, v, st->vary, n);
    for (int i = 0; i < r->n_parts && !st->varies; i++) {
        tci_exec_splat(acc[i], r->bytes[i], tci_exec_peek(acc[i], r->bytes[i]));
    }
}

/* A block of the row, or one element of it. */
static void tci_exec_row(tci_exec *e, const tci_interp_step *st)
{
    const tci_interp_red *r = &e->p->reds[st->ref];
    const char *from = e->ptr[r->acc[0]] + tci_exec_addr(e, st->x) * r->bytes[0];
    if (!st->varies) {
        tci_exec_splat(e->ptr[st->out], r->bytes[0], tci_exec_peek(from, r->bytes[0]));
    } else {
        tci_exec_gather_strided(e->ptr[st->out], from, r->bytes[0], st->x->stride, e->n);
    }
}

/* Products until the next part begins, from the first one that the stage adds. */
static int64_t tci_exec_begin_parts(const tci_exec *e, const tci_interp_red *r)
{
    const tci_interp_stage *stage = &e->p->stages[r->stage];
    int64_t first = stage->from ? tci_exec_addr(e, stage->from) : 0;
    return first == 0 ? r->split : (r->split - first % r->split) % r->split;
}

static void tci_exec_red_begin(tci_exec *e, int red)
{
    const tci_interp_red *r = &e->p->reds[red];
    for (int i = 0; i < r->n_parts; i++) {
        int64_t lanes = tci_exec_red_lanes(e, r, i);
        tci_exec_fill(e->ptr[r->acc[i]], r->bytes[i], r->identity[i], lanes);
        if (r->split > 0) { /* -0: the first part is added as it is */
            tci_exec_fill(e->ptr[r->total], r->bytes[i], (uint64_t)1 << 31, lanes);
            e->left[red] = tci_exec_begin_parts(e, r);
        }
    }
}

/* m lanes from i on take in those from i + h on. */
static void tci_exec_join_some(tci_exec *e, const tci_interp_red *r, int i, int h, int m)
{
    static const uint8_t all[TCI_PARTS] = {1, 1, 1, 1};
    char *low[TCI_PARTS], *high[TCI_PARTS];
    tci_exec_parts(e, r->acc, r->n_parts, all, i, low);
    tci_exec_parts(e, r->acc, r->n_parts, all, i + h, high);
    if (r->single) {
        tci_exec_combine(e, r, low[0], high[0], true, m);
    } else {
        tci_exec_join(e, r, low, high, all, m);
    }
}

/* As LANES says (kernel/ir.h). Behind those that are joined first, lanes between the first ones
 * take in what nothing reads. */
static void tci_exec_join_lanes(tci_exec *e, const tci_interp_red *r)
{
    for (int h = e->p->near / 2; h > 0; h /= 2) {
        for (int i = 0; i < e->p->vlanes; i += e->p->near) {
            tci_exec_join_some(e, r, i, h, h);
        }
    }
    for (int h = e->p->vlanes / 2; h >= TCI_MAX(e->p->near, 1); h /= 2) {
        for (int i = 0; i < h; i += TCI_VLANES) {
            tci_exec_join_some(e, r, i, h, TCI_MIN(h - i, TCI_VLANES));
        }
    }
}

/* The accumulator becomes the reduction of n totals from number `first` on. */
static void tci_exec_fold_totals(tci_exec *e, const tci_interp_red *r, int64_t first, int64_t n)
{
    const int bytes = r->bytes[0];
    const char *from = e->ptr[r->totals] + first * bytes;
    char *acc = e->ptr[r->acc[0]];
    tci_exec_fill(acc, bytes, r->identity[0], e->p->vlanes);
    for (int64_t i = 0; i < n; i += TCI_VLANES) {
        tci_exec_combine(e, r, acc + i % e->p->vlanes * bytes, from + i * bytes, true,
                         TCI_MIN(n - i, (int64_t)TCI_VLANES));
    }
    tci_exec_join_lanes(e, r);
}

/* The accumulator has the total of its part, and gets the prefix total of the preceding ones. */
static void tci_exec_earlier(tci_exec *e, const tci_interp_red *r)
{
    const int bytes = r->bytes[0];
    char *acc = e->ptr[r->acc[0]], *totals = e->ptr[r->totals];
    int64_t part = 0;
    for (int a = r->parts_axis; a < e->p->n_outer; a++) {
        part = part * e->p->sizes[a] + e->axes[a];
    }
    int64_t in_group = part % r->group, number = part / r->group;
    char *total = totals + part * bytes, *group = totals + (r->parts + number) * bytes;
    char *mates = totals + (r->parts + r->parts / r->group) * bytes;
    memcpy(total, acc, (size_t)bytes);
    tci_exec_fold_totals(e, r, part - in_group, in_group);
    if (r->group >= r->parts) {
        return;
    }
    memcpy(mates, acc, (size_t)bytes);
    if (in_group == r->group - 1) {
        tci_exec_combine(e, r, acc, total, true, 1);
        memcpy(group, acc, (size_t)bytes);
    }
    tci_exec_fold_totals(e, r, r->parts, number);
    tci_exec_combine(e, r, acc, mates, true, 1);
}

static void tci_exec_red_end(tci_exec *e, const tci_interp_red *r)
{
    if (r->split > 0) {
        tci_exec_join_part(e, r, r->acc[0]);
    }
    if (r->inner) {
        tci_exec_join_lanes(e, r);
        if (r->parts_axis >= 0) {
            tci_exec_earlier(e, r);
        }
        tci_exec_splat(e->ptr[r->result], r->bytes[r->part],
                       tci_exec_peek(e->ptr[r->acc[r->part]], r->bytes[r->part]));
    }
}

/* ---- sections and stages ---- */

static void tci_exec_section(tci_exec *e, const tci_interp_section *section)
{
    for (int i = 0; i < section->n; i++) {
        const tci_interp_step *st = &section->steps[i];
        switch (st->kind) {
        case TCI_STEP_OP: tci_exec_op(e, st); break;
        case TCI_STEP_LOAD: tci_exec_load(e, st); break;
        case TCI_STEP_STORE: tci_exec_store(e, st); break;
        case TCI_STEP_FOLD: tci_exec_fold(e, st); break;
        case TCI_STEP_ROW: tci_exec_row(e, st); break;
        case TCI_STEP_CONST: tci_exec_splat(e->ptr[st->out], st->bytes, st->bits); break;
        case TCI_STEP_LIT: {
            tci_value v = {.i = e->lits[st->ref]};
            uint64_t bits = 0;
            tci_value_store((tc_dtype)st->op.dtype, &bits, v);
            bits = st->op.dtype == TC_BOOL && v.i != 0 ? 0xff : bits;
            tci_exec_splat(e->ptr[st->out], st->bytes, bits);
            break;
        }
        case TCI_STEP_LANE: tci_exec_lane(e, st); break;
        case TCI_STEP_INDEX: tci_exec_index(e, st); break;
        case TCI_STEP_DIVIDE: tci_exec_divide(e, st); break;
        case TCI_STEP_FLOOR: tci_exec_floor(e, st); break;
        case TCI_STEP_GUARD: tci_exec_guard(e, st); break;
        default: tci_exec_fault(e, st); break;
        }
    }
}

/* Axis number `depth` of the stage, and all below it. */
static void tci_exec_nest(tci_exec *e, const tci_interp_stage *st, int depth)
{
    const int32_t axis = st->axes[depth];
    const int64_t size = e->p->sizes[axis];
    const bool last = depth == st->n_axes - 1;
    const bool blocks = last && e->p->inner;
    const int64_t step = blocks ? e->p->block : 1;
    const int64_t begin = st->from ? tci_exec_addr(e, st->from) : 0;
    const int64_t end = st->to ? TCI_MIN(tci_exec_addr(e, st->to), size) : size;
    for (int64_t j = begin; j < end; j += step) {
        e->axes[axis] = j;
        e->n = blocks ? TCI_MIN(step, size - j) : e->outer_n;
        tci_exec_section(e, &st->sections[depth + 1]);
        if (!last) {
            tci_exec_nest(e, st, depth + 1);
        }
    }
    e->n = e->outer_n;
}

/* Moves to point number j of the stage's axes. */
static void tci_exec_stand_in(tci_exec *e, const tci_interp_stage *stage, int64_t j)
{
    for (int i = stage->n_axes - 1; i >= 0; i--) {
        e->axes[stage->axes[i]] = j % e->p->sizes[stage->axes[i]];
        j /= e->p->sizes[stage->axes[i]];
    }
}

/* Where factor k of a strip is at the first point of the stage's axes. */
static const char *tci_exec_strip_from(const tci_exec *e, const tci_interp_strip *s, int k)
{
    const tci_interp_step *load = s->load[k];
    return !load         ? e->ptr[s->value[k]]
           : load->panel ? tci_exec_panel(e, load->panel, s->bytes)
                         : (const char *)e->bufs[load->ref] + tci_exec_addr(e, load->x) * s->bytes;
}

/* All points of the stage; parts (class SPLIT) end as tci_exec_next_part says. */
static void tci_exec_strip(tci_exec *e, const tci_interp_stage *st)
{
    const tci_interp_strip *s = st->strip;
    const tci_interp_red *r = &e->p->reds[s->red];
    const char *from[2];
    if (s->points == 0) {
        return;
    }
    tci_exec_stand_in(e, st, 0);
    from[0] = tci_exec_strip_from(e, s, 0);
    from[1] = tci_exec_strip_from(e, s, 1);
    for (int64_t begin = 0, end; begin < s->points; begin = end) {
        end = s->points;
        if (r->split > 0 && e->left[s->red] == 0) {
            tci_exec_join_part(e, r, r->total);
            tci_exec_fill(e->ptr[r->acc[0]], r->bytes[0], r->identity[0], e->n);
            e->left[s->red] = r->split;
        }
        if (r->split > 0) {
            end = TCI_MIN(end, begin + e->left[s->red]);
            e->left[s->red] -= end - begin;
        }
        tci_interp_strip_run(s, e->workspace, e->ptr[r->acc[0]], from, e->n, begin, end);
    }
}

static void tci_exec_stage(tci_exec *e, const tci_interp_stage *st)
{
    for (int r = 0; r < st->n_reds; r++) {
        tci_exec_red_begin(e, st->reds[r]);
    }
    tci_exec_section(e, &st->sections[0]);
    bool there = st->to_operand >= 0 && e->bufs[st->from_operand] == e->bufs[st->to_operand];
    if (st->strip) {
        tci_exec_strip(e, st);
    } else if (st->n_axes > 0 && !there) {
        tci_exec_nest(e, st, 0);
    }
    for (int r = 0; r < st->n_reds; r++) {
        tci_exec_red_end(e, &e->p->reds[st->reds[r]]);
    }
}

static void tci_exec_block(tci_exec *e, int64_t n)
{
    e->n = e->outer_n = n;
    for (int s = 0; s < e->p->n_stages; s++) {
        tci_exec_section(e, &e->p->before[s]);
        tci_exec_stage(e, &e->p->stages[s]);
    }
}

/* ---- panels ---- */

/* Gathers n lanes from `chunk` on of all points, a few at a time: their cache lines stay near while
 * the next points are read from them. */
static void tci_exec_fill_panel(tci_exec *e, const tci_interp_step *st, int64_t chunk, int64_t n)
{
    enum { TCI_EXEC_FEW = 16 };
    const tci_interp_panel *panel = st->panel;
    const tci_interp_stage *stage = &e->p->stages[panel->stage];
    int64_t *lane = &e->axes[e->p->walk[e->p->n_outer - 1]];
    const int64_t at = *lane;
    const int bytes = st->bytes;
    for (int64_t i = 0; i < n; i += TCI_EXEC_FEW) {
        *lane = chunk + i;
        for (int64_t j = 0; j < panel->points; j += panel->run) {
            tci_exec_stand_in(e, stage, j);
            const char *from = (const char *)e->bufs[st->ref] + tci_exec_addr(e, st->x) * bytes;
            char *to = tci_exec_panel(e, panel, bytes);
            for (int64_t k = 0; k < panel->run; k++) {
                tci_exec_gather_strided(to + k * e->p->chunk * bytes,
                                        from + k * panel->step * bytes, bytes, st->x->stride,
                                        TCI_MIN(n - i, (int64_t)TCI_EXEC_FEW));
            }
        }
    }
    *lane = at;
}

static void tci_exec_fill_panels(tci_exec *e, int64_t chunk, int64_t n)
{
    e->chunk = chunk;
    for (int s = 0; s < e->p->n_stages; s++) {
        const tci_interp_stage *stage = &e->p->stages[s];
        const tci_interp_section *section = &stage->sections[stage->n_axes];
        for (int i = 0; i < section->n; i++) {
            if (section->steps[i].panel) {
                tci_exec_fill_panel(e, &section->steps[i], chunk, n);
            }
        }
    }
}

/* ---- outer points ---- */

/* Moves to outer point number x; how many lanes its chunk has from there on. */
static int64_t tci_exec_stand(tci_exec *e, int64_t x)
{
    const tci_interp *p = e->p;
    if (p->n_outer == 0) {
        return 1;
    }
    const int last = p->walk[p->n_outer - 1];
    const int64_t others = p->points / p->sizes[last];
    const int64_t chunk = x / (p->chunk * others) * p->chunk;
    const int64_t wide = TCI_MIN(p->chunk, p->sizes[last] - chunk);
    int64_t rest = (x - chunk * others) / wide;
    e->axes[last] = chunk + (x - chunk * others) % wide;
    for (int i = p->n_outer - 2; i >= 0; i--) {
        int axis = p->walk[i];
        e->axes[axis] = rest % p->sizes[axis];
        rest /= p->sizes[axis];
    }
    if (p->has_panels && e->chunk != chunk) {
        tci_exec_fill_panels(e, chunk, wide);
    }
    return chunk + wide - e->axes[last];
}

static void tci_exec_points(tci_exec *e, int64_t begin, int64_t end)
{
    const tci_interp *p = e->p;
    while (begin < end) {
        int64_t n = tci_exec_stand(e, begin);
        n = p->inner ? 1 : TCI_MIN(TCI_MIN(n, end - begin), (int64_t)p->most);
        tci_exec_block(e, n);
        begin += n;
    }
}

TCI_QUICK_END

/* ---- the interface ---- */

/* Longjmps. */
static void tci_interp_join(tci_interp *p, const tci_kernel *k)
{
    tci_interp_member next = {0};
    p->members = TCI_NEW_ARRAY(&p->s, tci_interp_member, k->n_members + 1);
    for (int i = 0; i < k->n_members; i++) {
        tci_interp_member *m = &p->members[i];
        *m = next;
        m->first_same = tci_kernel_first_same(k, i);
        m->interp = m->first_same < i ? p->members[m->first_same].interp
                                      : tci_interp_make(k->members[i]);
        if (!m->interp) {
            tci_scratch_fail(&p->s, TC_ERR_MEMORY, "out of memory for an interpreted kernel");
        }
        p->n_members = i + 1;
        next.operand += k->members[i]->n_operands;
        next.literal += k->members[i]->n_literals;
        m->tasks = tci_interp_tasks(m->interp);
        next.first_task += k->loop ? 0 : m->tasks;
        p->workspace_bytes = TCI_MAX(p->workspace_bytes, m->interp->workspace_bytes);
    }
    p->members[k->n_members] = next;
}

TCI_FN tci_interp *tci_interp_make(const tci_kernel *k)
{
    tci_interp *p = tci_heap_get(sizeof *p);
    if (!p) {
        return NULL;
    }
    tci_scratch_init(&p->s);
    if (setjmp(p->s.escape)) {
        tci_interp_free(p);
        return NULL;
    }
    if (k->n_members) {
        tci_interp_join(p, k);
        if (k->loop) {
            tci_interp_prepare_loop(p, k);
        }
    } else {
        tci_interp_prepare(p, k);
    }
    return p;
}

TCI_FN void tci_interp_free(tci_interp *p)
{
    if (p) {
        for (int i = 0; i < p->n_members; i++) {
            if (p->members[i].first_same == i) {
                tci_interp_free(p->members[i].interp);
            }
        }
        tci_scratch_free(&p->s);
        tci_heap_free(p);
    }
}

TCI_FN size_t tci_interp_bytes(const tci_interp *p)
{
    size_t bytes = sizeof(*p) + tci_scratch_held(&p->s);
    for (int i = 0; i < p->n_members; i++) {
        if (p->members[i].first_same == i) {
            bytes += tci_interp_bytes(p->members[i].interp);
        }
    }
    return bytes;
}

TCI_FN int64_t tci_interp_tasks(const tci_interp *p)
{
    return p->loop        ? tci_dim_known(p->loop->of.rounds)
           : p->n_members ? p->members[p->n_members].first_task
                          : (p->points + p->grain - 1) / p->grain;
}

TCI_FN size_t tci_interp_workspace(const tci_interp *p)
{
    return ((size_t)p->workspace_bytes + 63) / 64 * 64;
}

static void tci_interp_run_grouped_launch(const tci_interp *p, void *workspace, void *const *bufs,
                                          const int64_t *lits, int64_t *fault, int64_t task_begin,
                                          int64_t task_end)
{
    for (int i = 0; i < p->n_members; i++) {
        const tci_interp_member *m = &p->members[i];
        int64_t begin = TCI_MAX(task_begin, m->first_task);
        int64_t end = TCI_MIN(task_end, m[1].first_task);
        if (begin < end) {
            tci_interp_run(m->interp, workspace, bufs + m->operand, lits + m->literal, fault,
                           begin - m->first_task, end - m->first_task);
        }
    }
}

TCI_FN void tci_interp_run(const tci_interp *p, void *workspace, void *const *bufs,
                           const int64_t *lits, int64_t *fault, int64_t task_begin,
                           int64_t task_end)
{
    tci_exec e = {.p = p,
                  .workspace = workspace,
                  .bufs = bufs,
                  .lits = lits,
                  .fault = fault,
                  .n = 1,
                  .outer_n = 1,
                  .chunk = -1};
    if (p->loop) {
        tci_interp_run_loop(p, tci_interp_run, workspace, bufs, lits, fault, task_begin, task_end);
        return;
    }
    if (p->n_members) {
        tci_interp_run_grouped_launch(p, workspace, bufs, lits, fault, task_begin, task_end);
        return;
    }
    e.ptr = workspace;
    e.axes = (int64_t *)(void *)(e.workspace + p->axes_offset);
    e.flags = (uint8_t *)e.workspace + p->flags_offset;
    e.spare = e.workspace + p->spare_offset;
    e.left = (int64_t *)(void *)(e.workspace + p->left_offset);
    for (int i = 0; i < p->n_values; i++) {
        e.ptr[i] = e.workspace + p->values[i].offset;
    }
    for (int i = 0; i < p->n_axes; i++) {
        e.axes[i] = 0;
    }
    tci_exec_section(&e, &p->constants);
    tci_exec_points(&e, task_begin * p->grain, TCI_MIN(task_end * p->grain, p->points));
}
