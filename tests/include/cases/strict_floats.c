/* Prints bits of computations that loose floating point would change, from inside the region that
 * base/impl_begin.h opens. Whatever the flags of this file are, the text must be the same. */
#include <stdio.h>
#include <stdlib.h>
#include "../../../src/base/impl_begin.h"

__attribute__((noinline)) static float contracted(float a, float b, float c)
{
    return a * b + c;
}

__attribute__((noinline)) static float reordered(const float *x, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++) {
        sum += x[i] / 3.0f;
    }
    return sum;
}

__attribute__((noinline)) static double cancelled(double x)
{
    return (x + 1e16) - 1e16;
}

__attribute__((noinline)) static int is_nan(float x)
{
    return x != x;
}

__attribute__((noinline)) static float signed_zero(float x)
{
    return x + 0.0f;
}

__attribute__((noinline)) static double constant(void)
{
    return 0.1;
}

__attribute__((noinline)) static int wraps(int x)
{
    return x + 1 < x;
}

static void print_all(void)
{
    float x[100];
    for (int i = 0; i < 100; i++) {
        x[i] = (float)i * 1.1f + 0.3f;
    }
    printf("%a\n", (double)contracted(1.0000001f, 1.0000001f, -1.0000002f));
    printf("%a\n", (double)reordered(x, 100));
    printf("%a\n", cancelled(1.5));
    printf("%d\n", is_nan((float)strtod("nan", NULL)));
    printf("%a\n", (double)signed_zero(-0.0f));
    printf("%a\n", constant());
    printf("%d\n", wraps(INT_MAX));
}

#include "../../../src/base/impl_end.h"

int main(void)
{
    print_all();
    return 0;
}
