/* examples/life_plain.h - the board of 05_lazy.c, and the Game of Life in plain C loops, to check
 * against. */
#ifndef LIFE_PLAIN_H
#define LIFE_PLAIN_H

#include <stdint.h>
#include <string.h>

enum { SIZE = 256, N = SIZE * SIZE, GENERATIONS = 1000 };
static uint8_t start[N], plain[N], plain_next[N], found[N];

/* A glider in the corner, soup in the lower half. */
static inline void plain_fill(void)
{
    static const int glider[5] = {1, SIZE + 2, 2 * SIZE, 2 * SIZE + 1, 2 * SIZE + 2};
    for (int i = 0; i < 5; i++) {
        start[glider[i]] = 1;
    }
    for (int i = N / 2; i < N; i++) {
        start[i] = i % SIZE > 8 && (i * 2654435761u >> 28) < 5;
    }
    memcpy(plain, start, N);
}

static inline void plain_generation(void)
{
    for (int y = 0; y < SIZE; y++) {
        for (int x = 0; x < SIZE; x++) {
            int nine = 0;
            for (int d = 0; d < 9; d++) {
                nine += plain[(y + d / 3 + SIZE - 1) % SIZE * SIZE + (x + d % 3 + SIZE - 1) % SIZE];
            }
            plain_next[y * SIZE + x] = nine == 3 || (nine == 4 && plain[y * SIZE + x]);
        }
    }
    memcpy(plain, plain_next, N);
}

/* How many cells of `found` are not those after all generations. */
static inline int plain_wrong(void)
{
    int wrong = 0;
    for (int i = 0; i < GENERATIONS; i++) {
        plain_generation();
    }
    for (int i = 0; i < N; i++) {
        wrong += plain[i] != found[i];
    }
    return wrong;
}

#endif
