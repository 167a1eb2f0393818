/* operators.cc - every operator of TC_OPERATORS on tensors and numbers of both sides, and the line
 * that an error names. */
#define TC_OPERATORS
#include "tc.h"

#include <cstdio>
#include <cstring>

static int wrong = 0;

static void check(tc_tensor got, double want, int line)
{
    double v = 0;
    tc_tensor wide = tc_cast(got, TC_F64);
    if (tc_read(wide, &v, 1) != TC_OK || v != want) {
        std::printf("line %d: %g, not %g %s\n", line, v, want, tc_error(wide));
        wrong++;
    }
}
#define CHECK(got, want) check((got), (want), __LINE__)

int operators();

/* How many are wrong. */
int operators()
{
    tc_ctx *ctx = nullptr;
    tc_options o = tc_options();
    o.backend = "interp";
    if (tc_ctx_make(&ctx, &o) != TC_OK) {
        return -1;
    }
    tc_tensor x = tc_full(ctx, 6, TC_F32), y = tc_full(ctx, 4, TC_F32);
    tc_tensor i = tc_full(ctx, 6, TC_I32), k = tc_full(ctx, 3, TC_I32);
    CHECK(x + y, 10); CHECK(x + 1, 7); CHECK(1.5 + x, 7.5);
    CHECK(x - y, 2); CHECK(x - 1u, 5); CHECK(1 - x, -5); CHECK(-x, -6);
    CHECK(x * y, 24); CHECK(x * 2.0f, 12); CHECK(2LL * x, 12);
    CHECK(x / y, 1.5); CHECK(x / 4, 1.5); CHECK(3 / x, 0.5);
    CHECK(x % y, 2); CHECK(7 % x, 1);
    CHECK(i & k, 2); CHECK(i | k, 7); CHECK(i ^ k, 5); CHECK(i << k, 48); CHECK(i >> 1, 3);
    CHECK(~i, -7); CHECK(!i, 0); CHECK(1 << k, 8);
    CHECK(x == y, 0); CHECK(x != y, 1); CHECK(x < y, 0); CHECK(x <= 6, 1); CHECK(5 > x, 0);
    CHECK(x >= y, 1);
    double three = 3;
    CHECK(TC_EXPR(-x ** 2 + three * (y - 1), x, y, three), -27);
    tc_tensor sum = x;
    sum += y; CHECK(sum, 10);
    sum *= 2; CHECK(sum, 20);
    sum /= x - 1; CHECK(sum, 4);
    sum -= 1; CHECK(sum, 3);
    sum %= 2; CHECK(sum, 1);
    i <<= 1; CHECK(i, 12);
    tc_tensor bad = tc_full(ctx, 0, TC_F32, 3) +
                    tc_full(ctx, 0, TC_F32, 4);
    char place[64];
    std::snprintf(place, sizeof(place), "operators.cc:%d: tc_add", __LINE__ - 3);
    char other[64];
    std::snprintf(other, sizeof(other), "operators.cc:%d: tc_add", __LINE__ - 4);
    if (!std::strstr(tc_error(bad), place) && !std::strstr(tc_error(bad), other)) {
        std::printf("%s\n", tc_error(bad));
        wrong++;
    }
    tc_ctx_free(ctx);
    return wrong;
}
