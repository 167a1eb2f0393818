/* The code of the value and gradient columns (ops/formula.h): its invariants, and what a reader
 * makes of it. That each row computes what it should is for tests/ops. */
#include "inside.h"

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
    case TCI_W_B: return arity == 2;
    case TCI_W_Y:
    case TCI_W_G: return !value;
    case TCI_W_MAX:
    case TCI_W_MIN:
    case TCI_W_MODULO:
    case TCI_W_FLOOR_DIVIDE: return value;
    case TCI_W_SPREAD:
    case TCI_W_TALLY:
    case TCI_W_OTHERS: return reduce;
    default: break;
    }
    if (value) {
        return word < TCI_P_COUNT && tci_prim_get((tci_prim)word)->result != 'O' &&
               tci_prim_get((tci_prim)word)->arity <= 2 && word != TCI_P_LANE1;
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
        for (int which = 0; which < 2; which++) {
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
    const uint8_t want[] = {TCI_W_B, TCI_W_A, TCI_OP_LT, last[3], TCI_W_A, TCI_W_B, TCI_OP_EQ,
                            last[7], TCI_W_G, TCI_OP_MUL, TCI_W_G, TCI_OP_WHERE, TCI_OP_WHERE,
                            TCI_W_END};
    CHECK(!memcmp(last, want, sizeof(want)));
}

TEST_MAIN
