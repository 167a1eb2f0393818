/* tests/ops/test_sort.c - values by their bits, against memory itself. */
#include "inside.h"

#include "tc_test.h"

#include "same.h"

static tc_ctx *make_ctx(const char *backend)
{
    tc_ctx *ctx = NULL;
    tc_options o = {.backend = backend, .no_disk_cache = true, .verify = 1};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    return ctx;
}

static bool read_any(tc_tensor x, void *to, int64_t n)
{
    tc_status status = tc_read(x, to, n * tci_dtype_get(tc_dtype_of(x))->bytes);
    CHECK_MSG(status == TC_OK, "%s", tc_error(x));
    return status == TC_OK;
}

static const tc_dtype numbers[] = {TC_U8,  TC_I8,  TC_U16, TC_I16, TC_U32,  TC_I32,
                                   TC_U64, TC_I64, TC_F16, TC_F32, TC_BF16, TC_F64};
enum { NUMBERS = sizeof(numbers) / sizeof(numbers[0]) };

/* ---- bits ---- */

enum { PATTERNS = 65536 };

/* Of 16 bits all that there are; of others some that are random, and with corners in front. */
static void fill_patterns(tc_dtype t, void *to)
{
    static const uint64_t corners[] = {0, 1, UINT64_MAX, INT64_MIN, 0x7f800000, 0xff800000,
                                       0x80000000, 0x7ff0000000000000, 0x3f800000};
    int bytes = tci_dtype_get(t)->bytes;
    for (int i = 0; i < PATTERNS; i++) {
        uint64_t word = bytes <= 2 ? (uint64_t)i : i < 9 ? corners[i] : tct_random();
        memcpy((char *)to + i * bytes, &word, (size_t)bytes);
    }
}

/* All stay but those of a NaN of either dtype, which stay a NaN. */
static int64_t first_changed(tc_dtype from, tc_dtype to, const void *a, const void *b)
{
    int64_t i = 0, bytes = tci_dtype_get(from)->bytes;
    while (i < PATTERNS) {
        const char *x = (const char *)a + i * bytes, *y = (const char *)b + i * bytes;
        if (!same_bits(from, x, y, 1) && !same_bits(to, x, y, 1)) {
            break;
        }
        i++;
    }
    return i;
}

TEST(bits_stay)
{
    static uint64_t given[PATTERNS], got[PATTERNS];
    static const char *const backends[] = {"interp", "cpu"};
    for (int b = 0; b < 2; b++) {
        tc_ctx *ctx = make_ctx(backends[b]);
        for (int i = 0; i < NUMBERS; i++) {
            fill_patterns(numbers[i], given);
            tc_tensor x = tc_copy_in(ctx, given, numbers[i], PATTERNS);
            for (int k = 0; k < NUMBERS; k++) {
                tc_dtype to = numbers[k];
                if (tci_dtype_get(to)->bytes != tci_dtype_get(numbers[i])->bytes) {
                    continue;
                }
                tc_tensor y = tc_bitcast(x, to);
                REQUIRE(read_any(y, got, PATTERNS));
                int64_t at = first_changed(numbers[i], to, given, got);
                CHECK_MSG(at == PATTERNS, "%s: %s to %s: pattern %d", backends[b],
                          tci_dtype_get(numbers[i])->name, tci_dtype_get(to)->name, (int)at);
            }
        }
        tc_ctx_free(ctx);
    }
}

/* A value that was computed has the bits of what is stored of it. */
TEST(bits_of_computed_values)
{
    static const tc_dtype floats[] = {TC_F16, TC_BF16, TC_F32, TC_F64};
    static const tc_dtype words[] = {TC_U16, TC_U16, TC_U32, TC_U64};
    static uint64_t y[999], bits[999];
    static const char *const backends[] = {"interp", "cpu"};
    for (int i = 0; i < 8; i++) {
        tc_ctx *ctx = make_ctx(backends[i / 4]);
        tc_tensor x = tc_randn(ctx, 7, floats[i % 4], 999);
        x = tc_mul(x, tc_mul(x, x));
        tc_tensor both[2] = {tc_exp(tc_sub(0, tc_mul(x, x))), TC_NONE};
        both[1] = tc_bitcast(both[0], words[i % 4]);
        REQUIRE(read_any(both[1], bits, 999) && read_any(both[0], y, 999));
        CHECK(same_bits(floats[i % 4], y, bits, 999));
        tc_ctx_free(ctx);
    }
}

TEST_MAIN
