/* tests/fuzz/test_expr.c - mutated expressions: texts of the corpus with bytes changed, cut, moved
 * and words of others put in. Each is a tensor, or refused with a message that shows the place; a
 * sanitizer watches the rest. TC_TEST_SOAK=1 draws more. */
#include "tc.h"

#include "tc_test.h"

#include "expression.h"

#define DATA "tests/data/expressions/"
enum { TEXTS_MOST = 1200, TEXT_ROOM = 600, DRAWN = 4000, DRAWN_SOAK = 400000 };

static char texts[TEXTS_MOST][TEXT_ROOM];
static int n_texts;

/* The first column of each line. */
static void read_texts(const char *path)
{
    FILE *file = fopen(path, "r");
    REQUIRE(file != NULL);
    while (n_texts < TEXTS_MOST && fgets(texts[n_texts], TEXT_ROOM, file)) {
        texts[n_texts][strcspn(texts[n_texts], "\t\n")] = 0;
        n_texts++;
    }
    fclose(file);
}

static void change(char *text)
{
    static const char bytes[] = "()[],:.=+-*/%@<>!&|^~'\"09eExaims_ \n\\\x80#";
    static const char *const words[] = {"None",
                                        "...",
                                        "not ",
                                        " and ",
                                        "**",
                                        "//",
                                        "1e999",
                                        "f32",
                                        "x.T",
                                        "axis=",
                                        "9223372036854775807",
                                        "(1, 2)",
                                        "[x, x]",
                                        ".shape",
                                        "-1",
                                        "sum(",
                                        "True",
                                        "nan",
                                        "::-1",
                                        "how",
                                        "axes"};
    size_t n = strlen(text), at = n ? (size_t)tct_random_below((int)n) : 0;
    const char *word = words[tct_random_below((int)(sizeof(words) / sizeof(*words)))];
    const char *other = texts[tct_random_below(n_texts)];
    size_t from = *other ? (size_t)tct_random_below((int)strlen(other)) : 0, m = strlen(word);
    switch (tct_random_below(6)) {
    case 0: /* a byte */ text[at] = n ? bytes[tct_random_below((int)sizeof(bytes) - 1)] : 0; break;
    case 1: /* a byte less */ memmove(text + at, text + at + (n > 0), n - at + (n == 0)); break;
    case 2: /* cut short */ text[at] = 0; break;
    case 3: /* a word put in */
        if (n + m < TEXT_ROOM) {
            memmove(text + at + m, text + at, n - at + 1);
            memcpy(text + at, word, m);
        }
        break;
    case 4: /* the end of another */ snprintf(text + at, TEXT_ROOM - at, "%s", other + from); break;
    default: /* a part of another put in */
        m = strlen(other + from);
        m = m ? (size_t)tct_random_below((int)m) : 0;
        if (n + m < TEXT_ROOM) {
            memmove(text + at + m, text + at, n - at + 1);
            memcpy(text + at, other + from, m);
        }
    }
}

TEST(mutated_texts)
{
    char text[TEXT_ROOM];
    REQUIRE(expression_begin() == TC_OK);
    read_texts(DATA "corpus.txt");
    read_texts(DATA "values.txt");
    read_texts(DATA "indices.txt");
    for (int i = 0; i < n_texts; i++) {
        CHECK_MSG(expression_use(texts[i]), "%s", texts[i]);
    }
    int count = tct_soak ? DRAWN_SOAK : DRAWN;
    for (int i = 0; i < count; i++) {
        memcpy(text, texts[tct_random_below(n_texts)], TEXT_ROOM);
        for (int left = 1 + tct_random_below(4); left > 0; left--) {
            change(text);
        }
        CHECK_MSG(expression_use(text), "%s", text);
    }
    tc_ctx_free(expression_ctx);
}

TEST_MAIN
