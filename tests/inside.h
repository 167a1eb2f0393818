/* tests/inside.h - the inside of the library, for tests that look there: the declarations of every
 * room (build/rooms.h, a list that make writes). The code is not in the test: the program links
 * inside.o, which is built once for each form (TC_DYNAMIC_SHAPES, TC_CUDA, defined before this
 * include) from the header under test, with the rooms' functions visible. */
#ifndef TESTS_INSIDE_H
#define TESTS_INSIDE_H

#define TCI_SEPARATE
#define TCI_TEST_ALLOC
#define TCI_HAS_CPU
#ifdef TC_CUDA
#define TCI_HAS_CUDA
#endif
#include "tc.h"

#include "rooms.h"

#endif
