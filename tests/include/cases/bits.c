/* A program with macros of its own, and whatever flags the test gives it: tc's names stay whole,
 * the program's macros stay its own, and the printed bits are the same as in any other build. */
#include <complex.h>
#include <string.h>
#define A 2
#define B 3
#define E 2.718
#define K (1 2)
#define N 1000
#define T int
#define X 1
#define ABS(x) ((x) < 0 ? -(x) : (x))
#define ADD "add"
#define EXP (3, 4)
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define FLOAT float
#define INPUT 0
#define NONE 0
#define SIZE 64
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define TC_IMPLEMENTATION
#include "tc.h"

#include "bits.h"

#ifndef I
#error "the macro of complex.h is gone"
#endif
_Static_assert(A + B + X == 6 && N == 1000 && SIZE == 64 && NONE == 0 && INPUT == 0, "");
_Static_assert(MIN(3, 4) == 3 && MAX(3, 4) == 4 && ABS(-1) == 1 && min(3, 4) == 3, "");
_Static_assert(sizeof(T) == sizeof(int) && sizeof(ADD) == 4 && sizeof(FLOAT) == 4, "");

int main(void)
{
    static char text[40000];
    bits_text(text, sizeof(text));
    fputs(text, stdout);
    return 0;
}
