/* tests/fuzz/libfuzzer/expr.c - expressions for libFuzzer (make fuzz-expr, which unpacks the corpus
 * tests/data/expressions/corpus.txt, a text a line). */
#define TC_IMPLEMENTATION
#include "tc.h"

#include "../expression.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    char *text = malloc(n + 1);
    if (!text || (!expression_ctx && expression_begin())) {
        abort();
    }
    memcpy(text, bytes, n);
    text[n] = 0;
    if (!expression_use(text)) {
        abort();
    }
    free(text);
    return 0;
}
