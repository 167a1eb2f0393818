/* The info rows of the ops (src/ops/op_info.h): that their facts agree with each other, and what
 * they say of the words of nodes. */
#include "inside.h"

#include "tc_test.h"

TEST(every_op_has_a_row)
{
    for (int op = 0; op < TCI_OP_COUNT; op++) {
        const tci_op_info *row = tci_op_get(op);
        CHECK_MSG(row->name[0] && row->attrs, "op %d", op);
        CHECK_MSG(row->results == !tci_op_is(op, TCI_IS_EFFECT), "%s: results", row->name);
        CHECK_MSG((row->cost > 0) == tci_op_is(op, TCI_IS_STORABLE), "%s: cost", row->name);
    }
    CHECK(!strcmp(tci_op_name(-1), "?") && !strcmp(tci_op_name(TCI_OP_COUNT), "?"));
}

TEST(facts_agree)
{
    for (int op = 0; op < TCI_OP_COUNT; op++) {
        bool memory = tci_op_is(op, TCI_IS_MEMORY), number = tci_op_is(op, TCI_IS_NUMBER);
        bool leaf = tci_op_is(op, TCI_IS_LEAF), effect = tci_op_is(op, TCI_IS_EFFECT);
        CHECK_MSG(!(memory && number), "%s is in memory or in the node", tci_op_name(op));
        CHECK_MSG(leaf || !(memory || number), "%s is a leaf", tci_op_name(op));
        CHECK_MSG(!effect || tci_op_is(op, TCI_IS_UNIQUE), "%s is unique", tci_op_name(op));
        CHECK_MSG(leaf == (tci_formula_gradient_kind(op) == TCI_GRADIENT_LEAF), "%s: gradient",
                  tci_op_name(op));
        CHECK_MSG(!(leaf && tci_op_is(op, TCI_IS_VIEW | TCI_IS_POINTWISE | TCI_IS_STORABLE)),
                  "%s has no operands", tci_op_name(op));
        CHECK_MSG(tci_op_is_reduce(op) ? tci_op_is(op, TCI_IS_FOLD) != tci_op_is(op, TCI_IS_ARG)
                                       : !tci_op_is(op, TCI_IS_ARG),
                  "%s: kind of reduction", tci_op_name(op));
    }
}

TEST(identities)
{
    CHECK(tci_op_identity(TCI_OP_SUM, TC_F32).f == 0);
    CHECK(tci_op_identity(TCI_OP_PROD, TC_F64).f == 1);
    CHECK(tci_op_identity(TCI_OP_PROD, TC_I32).i == 1);
    CHECK(tci_op_identity(TCI_OP_ALL, TC_BOOL).i == 1);
    CHECK(tci_op_identity(TCI_OP_MAX, TC_F32).f == -INFINITY);
    CHECK(tci_op_identity(TCI_OP_ARGMIN, TC_F16).f == INFINITY);
    CHECK(tci_op_identity(TCI_OP_MAX, TC_I8).i == INT8_MIN);
    CHECK(tci_op_identity(TCI_OP_MIN, TC_I16).i == INT16_MAX);
    CHECK(tci_op_identity(TCI_OP_MAX, TC_U32).u == 0);
    CHECK(tci_op_identity(TCI_OP_MIN, TC_U64).u == UINT64_MAX);
    CHECK(tci_op_identity(TCI_OP_MIN, TC_BOOL).i == 1);
    CHECK(tci_op_identity(TCI_OP_ANY, TC_BOOL).i == 0);
    CHECK(tci_red_identity(TCI_RED_DOT, 0, TC_F32).f == 0);
    CHECK(tci_red_identity(TCI_RED_ALL, 0, TC_BOOL).i == 1);
}

/* The name of word `word` of n, "" where the list has none. */
static const char *word_of(int op, int n, int word)
{
    const tci_attr_info *a = tci_op_attr(op, n, word);
    return a ? a->name : "";
}

TEST(words_have_names)
{
    CHECK(!strcmp(word_of(TCI_OP_CAT, 1, 0), "axis"));
    CHECK(!strcmp(word_of(TCI_OP_CAT, 1, 1), ""));
    CHECK(!strcmp(word_of(TCI_OP_SUM, 2, 1), "axes"));
    CHECK(!strcmp(word_of(TCI_OP_SLICE, 4, 2), "start"));
    CHECK(!strcmp(word_of(TCI_OP_SLICE, 4, 3), "step"));
    CHECK(!strcmp(word_of(TCI_OP_WINDOW, 8, 5), "kernel"));
    CHECK(!strcmp(word_of(TCI_OP_LAYER_NORM, 5, 0), "n_axes"));
    CHECK(!strcmp(word_of(TCI_OP_LAYER_NORM, 5, 2), "axes"));
    CHECK(!strcmp(word_of(TCI_OP_LAYER_NORM, 5, 3), "has_weight"));
    CHECK(!strcmp(word_of(TCI_OP_LAYER_NORM, 5, 4), "has_bias"));
    CHECK(!strcmp(word_of(TCI_OP_CONTRACT, 6, 2), "rank_out"));
    CHECK(!strcmp(word_of(TCI_OP_CONTRACT, 6, 5), "labels"));
    CHECK(!strcmp(word_of(TCI_OP_ADD, 0, 0), ""));
}

TEST(words_are_counted)
{
    CHECK(tci_op_takes_words(TCI_OP_ADD, 0, 3) && !tci_op_takes_words(TCI_OP_ADD, 1, 3));
    CHECK(tci_op_takes_words(TCI_OP_PERMUTE, 3, 3) && !tci_op_takes_words(TCI_OP_PERMUTE, 2, 3));
    CHECK(tci_op_takes_words(TCI_OP_SLICE, 6, 3) && !tci_op_takes_words(TCI_OP_SLICE, 3, 3));
    CHECK(tci_op_takes_words(TCI_OP_WINDOW, 8, 3) && !tci_op_takes_words(TCI_OP_WINDOW, 6, 3));
    CHECK(tci_op_takes_words(TCI_OP_CAT, 1, 3) && !tci_op_takes_words(TCI_OP_CAT, 0, 3));
    CHECK(!tci_op_takes_words(TCI_OP_LAYER_NORM, 2, 3));
}

TEST_MAIN
