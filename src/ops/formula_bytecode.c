/* ops/formula_bytecode.c - accessors of the formula bytecode: the formula of an op or reduction,
 * the operand count of an opcode, the constant pool. */
#include "formula_bytecode.h"

#include "formula.gen.h"

_Static_assert((int)TCI_P_COUNT <= (int)TCI_W_A, "prims and words of their own overlap");
_Static_assert((int)TCI_OP_WHERE < (int)TCI_W_A, "ops and words of their own overlap");
_Static_assert((int)TCI_W_OWN_END <= (int)TCI_W_K, "words of their own and numbers overlap");
_Static_assert((int)TCI_FORMULA_DEEPEST <= (int)TCI_FORMULA_DEPTH, "a formula is too deep");
_Static_assert(TCI_W_K + TCI_COUNT(tci_formula_numbers) <= TCI_W_END, "too many numbers");

TCI_FN const uint8_t *tci_formula_value(int op)
{
    return tci_formula_words + tci_formula_rows[op].value;
}

TCI_FN const uint8_t *tci_formula_gradient(int op, int which)
{
    return tci_formula_words + tci_formula_rows[op].operand[which];
}

TCI_FN const uint8_t *tci_formula_built(tci_built built)
{
    return tci_formula_words + tci_built_rows[built];
}

TCI_FN tci_gradient tci_formula_gradient_kind(int op)
{
    return (tci_gradient)tci_formula_rows[op].gradient;
}

TCI_FN const uint8_t *tci_formula_element(int red, int part)
{
    int at = tci_combine_rows[red].element[part];
    return at ? tci_formula_words + at : NULL;
}

TCI_FN const uint8_t *tci_formula_combine(int red, int part)
{
    int at = tci_combine_rows[red].part[part];
    return at ? tci_formula_words + at : NULL;
}

static int tci_formula_own_operands(int word)
{
    static const uint8_t own[] = {
#define TCI_ROW(id, operands, where) operands,
        TCI_COLUMN_WORDS(TCI_ROW)
#undef TCI_ROW
    };
    return word < TCI_W_K ? own[word - TCI_W_A] : 0;
}

TCI_FN int tci_formula_value_operands(int word)
{
    return word < TCI_W_A ? tci_prim_get((tci_prim)word)->arity : tci_formula_own_operands(word);
}

TCI_FN int tci_formula_gradient_operands(int word)
{
    static const uint8_t rows[] = {
#define TCI_ROW(id, name, arity, rule, cost, value, gradient, doc) arity,
        TCI_EW_OPS(TCI_ROW)
#undef TCI_ROW
    };
    if (word < TCI_W_A) {
        return word < TCI_OP_EW_END ? rows[word] : 3; /* WHERE */
    }
    return tci_formula_own_operands(word);
}

TCI_FN double tci_formula_number(int word)
{
    return tci_formula_numbers[word - TCI_W_K];
}
