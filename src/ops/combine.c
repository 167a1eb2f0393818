/* ops/combine.c - compiles the combiner of a reduction (combine column of ops/table.h) to a
 * straight-line program.
 *
 * In: the words of the column, and the dtype in which the reduction accumulates. Out: instructions
 * over prims that fit that dtype: bools are combined by AND and OR, and NaN tests are constant for
 * integers. */
#include "combine.h"

#include "op_info.h"

/* ---- rows ---- */

typedef enum tci_part_dtype { TCI_PART_T, TCI_PART_INDEX, TCI_PART_COUNT } tci_part_dtype;

typedef struct tci_red_row {
    const char *name;
    uint8_t n_parts;
    uint8_t part[TCI_PARTS][2]; /* tci_part_dtype, tci_identity */
} tci_red_row;

static const tci_red_row tci_red_rows[] = {
#define TCI_P1(t0, i0) 1, {{TCI_PART_##t0, TCI_IDENTITY_##i0}}
#define TCI_P2(t0, i0, t1, i1)                                                                     \
    2, {{TCI_PART_##t0, TCI_IDENTITY_##i0}, {TCI_PART_##t1, TCI_IDENTITY_##i1}}
#define TCI_P4(t0, i0, t1, i1, t2, i2, t3, i3)                                                     \
    4, {{TCI_PART_##t0, TCI_IDENTITY_##i0},                                                        \
        {TCI_PART_##t1, TCI_IDENTITY_##i1},                                                        \
        {TCI_PART_##t2, TCI_IDENTITY_##i2},                                                        \
        {TCI_PART_##t3, TCI_IDENTITY_##i3}}
#define TCI_ROW(id, name, parts, element, combine) [TCI_RED_##id] = {#name, parts},
    TCI_COMBINES(TCI_ROW)
#undef TCI_ROW
#undef TCI_P1
#undef TCI_P2
#undef TCI_P4
};

TCI_FN const char *tci_red_name(int red)
{
    return tci_red_rows[red].name;
}

TCI_FN int tci_red_parts(int red)
{
    return tci_red_rows[red].n_parts;
}

TCI_FN int tci_red_takes(int red)
{
    return tci_formula_element(red, 0) ? tci_red_rows[red].n_parts : 2;
}

TCI_FN tc_dtype tci_red_dtype(int red, int part, tc_dtype t)
{
    int kind = tci_red_rows[red].part[part][0];
    return kind == TCI_PART_INDEX ? TC_I64 : kind == TCI_PART_COUNT ? TC_I32 : t;
}

TCI_FN tc_dtype tci_red_taken(int red, int which, tc_dtype t)
{
    return tci_formula_element(red, 0) ? tci_red_dtype(red, which, t) : t;
}

TCI_FN tci_value tci_red_identity(int red, int part, tc_dtype t)
{
    tci_identity identity = (tci_identity)tci_red_rows[red].part[part][1];
    return tci_identity_value(identity, tci_red_dtype(red, part, t));
}

/* ---- instructions ---- */

typedef struct tci_combining {
    tci_combine *c;
    int red;
    tc_dtype t;
} tci_combining;

static tc_dtype tci_combining_dtype(const tci_combining *m, int value)
{
    return value < TCI_PARTS       ? tci_red_dtype(m->red, value, m->t)
           : value < 2 * TCI_PARTS ? tci_red_taken(m->red, value - TCI_PARTS, m->t)
                                   : (tc_dtype)m->c->insts[value - 2 * TCI_PARTS].dtype;
}

static int tci_combining_add(const tci_combining *m, tci_combine_inst inst)
{
    tci_combine *c = m->c;
    for (int i = 0; i < c->n; i++) {
        const tci_combine_inst *have = &c->insts[i];
        if (have->op == inst.op && have->dtype == inst.dtype && have->value.u == inst.value.u &&
            have->args[0] == inst.args[0] && have->args[1] == inst.args[1] &&
            have->args[2] == inst.args[2]) {
            return 2 * TCI_PARTS + i;
        }
    }
    c->insts[c->n] = inst;
    return 2 * TCI_PARTS + c->n++;
}

static int tci_combining_k(const tci_combining *m, tc_dtype t, double x)
{
    tci_combine_inst inst = {.op = TCI_W_K, .from = (int8_t)t, .dtype = (int8_t)t};
    if (tci_dtype_is_float(t)) {
        inst.value.f = x;
    } else {
        inst.value.i = (int64_t)x;
    }
    return tci_combining_add(m, inst);
}

static int tci_combining_op(const tci_combining *m, int op, tc_dtype to, int n, const int *args)
{
    tci_combine_inst inst = {.op = (uint8_t)op, .n_args = (uint8_t)n, .dtype = (int8_t)to};
    inst.from = (int8_t)tci_combining_dtype(m, args[op == TCI_P_SELECT ? 1 : 0]);
    for (int i = 0; i < n; i++) {
        inst.args[i] = (int8_t)args[i];
    }
    return tci_combining_add(m, inst);
}

static int tci_combining_2(const tci_combining *m, int op, int a, int b)
{
    const int args[2] = {a, b};
    bool asks = op == TCI_P_EQ || op == TCI_P_LT || op == TCI_P_LE;
    return tci_combining_op(m, op, asks ? TC_BOOL : tci_combining_dtype(m, a), 2, args);
}

/* ---- words ---- */

/* Of operands that are all bool. */
static int tci_combining_bool(int word)
{
    switch (word) {
    case TCI_P_ADD:
    case TCI_W_MAX: return TCI_P_OR;
    case TCI_P_MUL:
    case TCI_W_MIN: return TCI_P_AND;
    default: return word;
    }
}

static int tci_combining_is_nan(const tci_combining *m, int a)
{
    int same = tci_combining_2(m, TCI_P_EQ, a, a);
    return tci_combining_op(m, TCI_P_NOT, TC_BOOL, 1, &same);
}

/* ABOVE and BELOW: a beats b; a NaN all but another. */
static int tci_combining_beats(const tci_combining *m, bool above, int a, int b)
{
    int beats = tci_combining_2(m, TCI_P_LT, above ? b : a, above ? a : b);
    if (!tci_dtype_is_float(tci_combining_dtype(m, a))) {
        return beats;
    }
    int nan = tci_combining_is_nan(m, a);
    return tci_combining_2(m, TCI_P_OR, beats,
                           tci_combining_2(m, TCI_P_AND, nan, tci_combining_2(m, TCI_P_EQ, b, b)));
}

static int tci_combining_level(const tci_combining *m, int a, int b)
{
    int level = tci_combining_2(m, TCI_P_EQ, a, b);
    if (!tci_dtype_is_float(tci_combining_dtype(m, a))) {
        return level;
    }
    int nan = tci_combining_is_nan(m, a);
    return tci_combining_2(m, TCI_P_OR, level,
                           tci_combining_2(m, TCI_P_AND, nan, tci_combining_is_nan(m, b)));
}

static int tci_combining_word(const tci_combining *m, int word, const int *args)
{
    switch (word) {
    case TCI_W_A: return 0;
    case TCI_W_A1: return 1;
    case TCI_W_A2: return 2;
    case TCI_W_A3: return 3;
    case TCI_W_B: return TCI_PARTS;
    case TCI_W_B1: return TCI_PARTS + 1;
    case TCI_W_B2: return TCI_PARTS + 2;
    case TCI_W_B3: return TCI_PARTS + 3;
    case TCI_W_ABOVE:
    case TCI_W_BELOW: return tci_combining_beats(m, word == TCI_W_ABOVE, args[0], args[1]);
    case TCI_W_LEVEL: return tci_combining_level(m, args[0], args[1]);
    case TCI_W_T: return tci_combining_op(m, TCI_P_CAST, m->t, 1, args);
    case TCI_P_SELECT: return tci_combining_op(m, word, tci_combining_dtype(m, args[1]), 3, args);
    default: break;
    }
    tc_dtype t = tci_combining_dtype(m, args[0]);
    if (word == TCI_P_FMA && t == TC_BOOL) {
        return tci_combining_2(m, TCI_P_OR, args[2],
                               tci_combining_2(m, TCI_P_AND, args[0], args[1]));
    }
    if (t == TC_BOOL) {
        word = tci_combining_bool(word);
    } else if (!tci_dtype_is_float(t)) {
        word = word == TCI_W_MAX ? (int)TCI_P_PMAX : word == TCI_W_MIN ? (int)TCI_P_PMIN : word;
    }
    int n = tci_formula_value_operands(word);
    return n == 2 ? tci_combining_2(m, word, args[0], args[1])
                  : tci_combining_op(m, word, t, n, args);
}

/* Settles the operands of a word: numbers take the dtype of the other operand. */
static void tci_combining_settle(const tci_combining *m, int n, int *args, const int *numbers)
{
    int other = -1;
    for (int i = 0; i < n; i++) {
        bool mask = args[i] >= 0 && n == 3 && i == 0; /* SELECT's */
        other = args[i] >= 0 && !mask ? args[i] : other;
    }
    for (int i = 0; i < n; i++) {
        if (args[i] < 0) {
            tc_dtype t = other < 0 ? m->t : tci_combining_dtype(m, other);
            args[i] = tci_combining_k(m, t, tci_formula_number(numbers[i]));
        }
    }
}

TCI_FN void tci_combine_make(tci_combine *c, int red, tc_dtype t)
{
    tci_combining m = {c, red, t};
    c->n = 0;
    c->n_parts = tci_red_parts(red);
    for (int part = 0; part < c->n_parts; part++) {
        int stack[TCI_FORMULA_DEPTH], numbers[TCI_FORMULA_DEPTH], n = 0;
        for (const uint8_t *w = tci_formula_combine(red, part); *w != TCI_W_END; w++) {
            int takes = tci_formula_value_operands(*w);
            n -= takes;
            tci_combining_settle(&m, takes, stack + n, numbers + n);
            numbers[n] = *w;
            stack[n] = *w >= TCI_W_K ? -1 : tci_combining_word(&m, *w, stack + n);
            n++;
        }
        c->part[part] = (int8_t)stack[0];
    }
}

TCI_FN int tci_red_cost(int red, tc_dtype t)
{
    tci_combine c;
    int cost = 0;
    tci_combine_make(&c, red, t);
    for (int i = 0; i < c.n; i++) {
        int op = c.insts[i].op;
        bool best = op == TCI_W_MAX || op == TCI_W_MIN;
        cost += best ? 1 : op == TCI_W_K ? 0 : tci_prim_get((tci_prim)op)->cost;
    }
    return cost;
}
