/* The code of the columns (ops/formula_bytecode.h) and the combine programs (ops/combine.h): their
 * invariants, and what a reader makes of them. That each row computes what it should is for
 * tests/ops. */
#include "inside.h"

#include <math.h>

#include "tc_test.h"

static int arity_of(int op)
{
    static const uint8_t rows[] = {
#define TCI_ROW(id, name, arity, ...) arity,
        TCI_EW_OPS(TCI_ROW)
#undef TCI_ROW
    };
    return op < TCI_OP_EW_END ? rows[op] : 1;
}

/* Whether a word may stand in the column. */
static bool fits(int word, bool value, bool reduce, int arity)
{
    if (word >= TCI_W_K) {
        return tci_formula_number(word) == tci_formula_number(word); /* read, by sanitizers too */
    }
    switch (word) {
    case TCI_W_A: return true;
    case TCI_W_B: return arity > 1;
    case TCI_W_C: return arity > 2;
    case TCI_W_Y:
    case TCI_W_G:
    case TCI_W_TETRAGAMMA:
    case TCI_W_SINC_SLOPE:
    case TCI_W_GELU_SLOPE: return !value;
    case TCI_W_MAX:
    case TCI_W_MIN:
    case TCI_W_MODULO:
    case TCI_W_FLOOR_DIVIDE:
    case TCI_W_MINUS: return value;
    case TCI_W_SPREAD:
    case TCI_W_TALLY:
    case TCI_W_OTHERS:
    case TCI_W_CENTRED: return reduce;
    default: break;
    }
    if (value) {
        return word < TCI_P_COUNT && tci_prim_get((tci_prim)word)->result != 'O' &&
               word != TCI_P_LANE1;
    }
    return word < TCI_OP_EW_END || word == TCI_OP_WHERE;
}

/* Walks a formula as a reader does; its words, or -1 where an invariant is broken. */
static int walk(const uint8_t *w, bool value, bool reduce, int arity)
{
    int depth = 0, n = 0;
    for (; *w != TCI_W_END; w++, n++) {
        int takes = value ? tci_formula_value_operands(*w) : tci_formula_gradient_operands(*w);
        if (!fits(*w, value, reduce, arity) || depth < takes) {
            return -1;
        }
        depth += 1 - takes;
        if (depth > TCI_FORMULA_DEPTH) {
            return -1;
        }
    }
    return depth == (n > 0) ? n : -1;
}

TEST(every_formula_keeps_the_invariants)
{
    int words = 0;
    for (int op = 0; op < TCI_OP_COUNT; op++) {
        bool ew = tci_op_is_ew(op), reduce = tci_op_is_reduce(op);
        bool formula = tci_formula_gradient_kind(op) == TCI_GRADIENT_FORMULA;
        int value = walk(tci_formula_value(op), true, false, arity_of(op));
        CHECK_MSG(ew ? value > 0 : value == 0, "%s: value", tci_op_name(op));
        CHECK_MSG(!formula || ew || reduce, "%s: kind", tci_op_name(op));
        words += value;
        for (int which = 0; which < 3; which++) {
            int n = walk(tci_formula_gradient(op, which), false, reduce, arity_of(op));
            CHECK_MSG(formula && which < arity_of(op) ? n > 0 : n == 0, "%s: gradient %d",
                      tci_op_name(op), which);
            words += n;
        }
    }
    CHECK(words > 300);
}

TEST(kinds_of_gradients)
{
    CHECK_EQ_INT(tci_formula_gradient_kind(TCI_OP_MUL), TCI_GRADIENT_FORMULA);
    CHECK_EQ_INT(tci_formula_gradient_kind(TCI_OP_FLOOR), TCI_GRADIENT_FLAT);
    CHECK_EQ_INT(tci_formula_gradient_kind(TCI_OP_EQ), TCI_GRADIENT_NONE);
    CHECK_EQ_INT(tci_formula_gradient_kind(TCI_OP_MAX), TCI_GRADIENT_FORMULA);
    CHECK_EQ_INT(tci_formula_gradient_kind(TCI_OP_INPUT), TCI_GRADIENT_LEAF);
    CHECK_EQ_INT(tci_formula_gradient_kind(TCI_OP_GATHER), TCI_GRADIENT_OWN);
    CHECK_EQ_INT(tci_formula_gradient_kind(TCI_OP_MEAN), TCI_GRADIENT_EXPANSION);
}

/* The last: where(b < a, 0, where(a == b, 0.5 * G, G)). */
TEST(operands_come_in_order)
{
    static const uint8_t silu[] = {TCI_W_A, TCI_W_A, TCI_P_SIGMOID, TCI_P_MUL, TCI_W_END};
    static const uint8_t sub[] = {TCI_W_A, TCI_W_B, TCI_P_SUB, TCI_W_END};
    static const uint8_t gt[] = {TCI_W_B, TCI_W_A, TCI_P_LT, TCI_W_END};
    const uint8_t *last = tci_formula_gradient(TCI_OP_MAXIMUM, 1);
    CHECK(!memcmp(tci_formula_value(TCI_OP_SILU), silu, sizeof(silu)));
    CHECK(!memcmp(tci_formula_value(TCI_OP_SUB), sub, sizeof(sub)));
    CHECK(!memcmp(tci_formula_value(TCI_OP_GT), gt, sizeof(gt)));
    REQUIRE(walk(last, false, false, 2) == 13);
    CHECK(tci_formula_number(last[3]) == 0 && tci_formula_number(last[7]) == 0.5);
    const uint8_t want[] = {TCI_W_B, TCI_W_A,      TCI_OP_LT,    last[3],  TCI_W_A,
                            TCI_W_B, TCI_OP_EQ,    last[7],      TCI_W_G,  TCI_OP_MUL,
                            TCI_W_G, TCI_OP_WHERE, TCI_OP_WHERE, TCI_W_END};
    CHECK(!memcmp(last, want, sizeof(want)));
}

/* ---- combine rows ---- */

enum { REDS = TCI_RED_DOT + 1, SIDES = 2 * TCI_PARTS };

/* The parts of two tuples joined. */
static void join(const tci_combine *c, const tci_value *a, const tci_value *b, tci_value *out)
{
    tci_value values[SIDES + TCI_COMBINE_MOST];
    for (int i = 0; i < TCI_PARTS; i++) {
        values[i] = a[i];
        values[TCI_PARTS + i] = b[i];
    }
    for (int i = 0; i < c->n; i++) {
        const tci_combine_inst *inst = &c->insts[i];
        tci_value in[3], *to = &values[SIDES + i];
        for (int j = 0; j < inst->n_args; j++) {
            in[j] = values[inst->args[j]];
        }
        if (inst->op == TCI_W_K) {
            *to = inst->value;
        } else if (inst->op == TCI_W_MAX) {
            to->f = in[0].f > in[1].f || in[0].f != in[0].f ? in[0].f : in[1].f;
        } else if (inst->op == TCI_W_MIN) {
            to->f = in[0].f < in[1].f || in[0].f != in[0].f ? in[0].f : in[1].f;
        } else {
            *to = tci_prim_eval((tci_prim)inst->op, (tc_dtype)inst->from, (tc_dtype)inst->dtype, 0,
                                in);
        }
    }
    for (int i = 0; i < c->n_parts; i++) {
        out[i] = values[c->part[i]];
    }
}

static bool same(tc_dtype t, tci_value a, tci_value b)
{
    return tci_dtype_is_float(t) ? a.f == b.f || (a.f != a.f && b.f != b.f) : a.i == b.i;
}

TEST(combine_programs_keep_the_invariants)
{
    static const tc_dtype dtypes[] = {TC_BOOL, TC_I32, TC_U8, TC_I64, TC_F32, TC_F64};
    for (int red = 0; red < REDS; red++) {
        for (int d = 0; d < TCI_COUNT(dtypes); d++) {
            tci_combine c;
            tci_combine_make(&c, red, dtypes[d]);
            CHECK(c.n > 0 && c.n <= TCI_COMBINE_MOST && c.n_parts == tci_red_parts(red));
            for (int i = 0; i < c.n; i++) {
                for (int j = 0; j < c.insts[i].n_args; j++) {
                    int at = c.insts[i].args[j];
                    CHECK(at >= 0 && at < SIDES + i && at % TCI_PARTS < TCI_PARTS);
                }
                CHECK(tci_dtype_is_float((tc_dtype)c.insts[i].from) ||
                      (c.insts[i].op != TCI_W_MAX && c.insts[i].op != TCI_W_MIN));
            }
        }
    }
}

TEST(the_identity_changes_nothing)
{
    static const double samples[] = {0, 1, -2.5, 0x1p127, -INFINITY, INFINITY, NAN};
    for (int red = 0; red < REDS; red++) {
        tci_combine c;
        tci_combine_make(&c, red, TC_F32);
        for (int i = 0; i < TCI_COUNT(samples); i++) {
            tci_value none[TCI_PARTS], one[TCI_PARTS] = {{.f = samples[i]}, {.i = 7}};
            tci_value out[TCI_PARTS];
            if (red == TCI_RED_DEVSQ) { /* count, mean, squares */
                one[0].i = 3;
                one[1].f = samples[i];
                one[2].f = 0.5;
            }
            if (red == TCI_RED_ONLINE) { /* the largest, and the sum of exp(a - largest) */
                one[1].f = samples[i] - samples[i] + 3;
            }
            if (red == TCI_RED_DOT || red == TCI_RED_ANY || red == TCI_RED_ALL) {
                continue; /* of factors; of bools */
            }
            for (int part = 0; part < c.n_parts; part++) {
                none[part] = tci_red_identity(red, part, TC_F32);
            }
            for (int turn = 0; turn < 2; turn++) {
                join(&c, turn ? none : one, turn ? one : none, out);
                for (int part = 0; part < c.n_parts; part++) {
                    CHECK_MSG(same(tci_red_dtype(red, part, TC_F32), out[part], one[part]),
                              "%s: part %d of %g", tci_red_name(red), part, samples[i]);
                }
            }
        }
    }
}

/* The first of equals, and of NaNs, whatever the order in which they are joined. */
TEST(argmax_takes_the_first)
{
    static const double v[] = {1, NAN, 5, NAN, 5};
    tci_combine c;
    tci_combine_make(&c, TCI_RED_ARGMAX, TC_F64);
    for (int i = 0; i < TCI_COUNT(v); i++) {
        for (int j = 0; j < TCI_COUNT(v); j++) {
            tci_value a[TCI_PARTS] = {{.f = v[i]}, {.i = i}};
            tci_value b[TCI_PARTS] = {{.f = v[j]}, {.i = j}}, out[TCI_PARTS];
            bool nan_i = v[i] != v[i], nan_j = v[j] != v[j];
            bool ties = v[i] == v[j] || (nan_i && nan_j);
            int want = ties ? TCI_MIN(i, j) : nan_i || v[i] > v[j] ? (nan_j ? j : i) : j;
            join(&c, a, b, out);
            CHECK_EQ_INT(out[1].i, want);
        }
    }
}

/* One element as ONLINE takes it in. */
static void online_of(double x, tci_value *one)
{
    one[0].f = x;
    one[1].f = 1 + (x - x);
}

/* Whatever the order in which elements are joined: the sum of exp(a - largest), which is NaN where
 * that is. */
TEST(online_is_the_sum_of_powers)
{
    static const double v[] = {-INFINITY, -3e38, -90, -1.5, 0, 0.25, 0.25, 80, 3e38, INFINITY, NAN};
    enum { V = TCI_COUNT(v) };
    tci_combine c;
    tci_combine_make(&c, TCI_RED_ONLINE, TC_F32);
    for (int code = 0; code < V * V * V * V; code++) {
        double x[4] = {v[code % V], v[code / V % V], v[code / V / V % V], v[code / V / V / V]};
        double most = x[0], want = 0;
        tci_value part[4][TCI_PARTS], left[TCI_PARTS], right[TCI_PARTS], out[2][TCI_PARTS];
        for (int i = 0; i < 4; i++) {
            online_of(x[i], part[i]);
            most = x[i] > most || x[i] != x[i] ? x[i] : most;
        }
        for (int i = 0; i < 4; i++) {
            want += exp((double)(float)(x[i] - most));
        }
        join(&c, part[0], part[1], left);
        join(&c, part[2], part[3], right);
        join(&c, left, right, out[0]);
        join(&c, left, part[2], right);
        join(&c, right, part[3], out[1]);
        for (int way = 0; way < 2; way++) {
            CHECK(same(TC_F32, out[way][0], (tci_value){.f = most}));
            CHECK_MSG(want != want ? out[way][1].f != out[way][1].f
                                   : fabs(out[way][1].f - want) <= 4e-7 * want,
                      "%g %g %g %g: %.9g, expected %.9g", x[0], x[1], x[2], x[3], out[way][1].f,
                      want);
        }
    }
}

TEST_MAIN
