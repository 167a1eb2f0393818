/* tests/machines.h - machines that need not be there: a laptop of two cores, a small GPU, an H200,
 * a server of 32 cores.
 * After inside.h. */
#ifndef TESTS_MACHINES_H
#define TESTS_MACHINES_H

typedef struct test_machine {
    const char *name;
    tci_machine machine;
} test_machine;

static const test_machine test_machines[] = {
    {"laptop",
     {.vector_bytes = 32,
      .thread_scratch = true,
      .facts = {.processors = 2,
                .ghz = 1.6,
                .cache_bytes = {32 << 10, 256 << 10, 4 << 20},
                .one_gbs = 8,
                .memory_gbs = 12}}},
    {"small GPU",
     {.vector_bytes = 16,
      .block_threads = 256,
      .facts = {.processors = 16,
                .ghz = 1.2,
                .subgroup = 32,
                .shared_bytes = 48 << 10,
                .shared_most = 48 << 10,
                .cache_bytes = {64 << 10, 64 << 10, 1 << 20},
                .memory_gbs = 120}}},
    {"H200",
     {.vector_bytes = 16,
      .block_threads = 512,
      .matrix_units = 132,
      .facts = {.processors = 132,
                .ghz = 1.7,
                .subgroup = 32,
                .shared_bytes = 48 << 10,
                .shared_most = 227 << 10,
                .cache_bytes = {256 << 10, 256 << 10, 50 << 20},
                .near_bytes = 64,
                .all_bytes = 6150,
                .memory_gbs = 4800}}},
    {"server",
     {.vector_bytes = 64,
      .thread_scratch = true,
      .facts = {.processors = 32,
                .ghz = 3,
                .cache_bytes = {48 << 10, 2 << 20, 32 << 20},
                .one_gbs = 12,
                .memory_gbs = 200}}},
};
enum { TEST_LAPTOP, TEST_SMALL_GPU, TEST_H200, TEST_SERVER, TEST_MACHINES };

#endif
