/* The base files: memory, text, hash, environment. */
#include "inside.h"

#include "tc_test.h"

/* ---- memory ---- */

TEST(heap_blocks_are_zeroed_and_counted)
{
    long live = tci_test_alloc_live;
    char *p = tci_heap_get(1000);
    REQUIRE(p);
    for (int i = 0; i < 1000; i++) {
        CHECK(p[i] == 0);
    }
    p = tci_heap_resize(p, 5000);
    REQUIRE(p);
    CHECK_EQ_INT(tci_test_alloc_live, live + 1);
    CHECK(tci_heap_resize(p, 0) == NULL);
    tci_heap_free(NULL);
    CHECK_EQ_INT(tci_test_alloc_live, live);
}

TEST(aligned_blocks)
{
    size_t sizes[] = {0, 1, 63, 64, 65, 4096, (size_t)5 << 20};
    for (int i = 0; i < TCI_COUNT(sizes); i++) {
        char *p = tci_heap_get_aligned(sizes[i]);
        REQUIRE(p);
        CHECK_EQ_INT((uintptr_t)p % 64, 0);
        memset(p, 0x5a, sizes[i]);
        tci_heap_free_aligned(p);
    }
    tci_heap_free_aligned(NULL);
    CHECK(tci_heap_get_aligned(SIZE_MAX - 8) == NULL);
    CHECK_EQ_INT(tci_test_alloc_live, 0);
}

TEST(nth_request_fails)
{
    tci_test_alloc_count = 0;
    tci_test_alloc_fail_at = 2;
    void *a = tci_heap_get(8), *b = tci_heap_get(8), *c = tci_heap_get_aligned(8);
    CHECK(a && !b && c);
    tci_test_alloc_sticky = true;
    CHECK(tci_heap_get(8) == NULL);
    tci_test_alloc_fail_at = 0;
    tci_test_alloc_sticky = false;
    tci_heap_free(a);
    tci_heap_free_aligned(c);
    CHECK_EQ_INT(tci_test_alloc_live, 0);
}

static void *tct_count_resize(void *user, void *p, size_t old_bytes, size_t new_bytes)
{
    *(long *)user += (long)new_bytes - (long)old_bytes;
    return tci_heap_resize(p, new_bytes);
}

TEST(users_allocator)
{
    long bytes = 0;
    tc_allocator a = {tct_count_resize, &bytes}, none = {NULL, NULL};
    void *p = tci_alloc_resize(&a, NULL, 0, 100);
    REQUIRE(p);
    p = tci_alloc_resize(&a, p, 100, 300);
    CHECK_EQ_INT(bytes, 300);
    tci_alloc_resize(&a, p, 300, 0);
    CHECK_EQ_INT(bytes, 0);
    p = tci_alloc_resize(&none, NULL, 0, 10);
    CHECK(p);
    CHECK(tci_alloc_resize(NULL, p, 10, 0) == NULL);
}

TEST(scratch_gives_zeroed_aligned_memory)
{
    static tci_scratch s;
    tci_scratch_init(&s);
    REQUIRE(!setjmp(s.escape));
    for (int i = 0; i < 3000; i++) {
        size_t bytes = (size_t)tct_random_below(i % 100 ? 300 : 300000);
        unsigned char *p = tci_scratch_get(&s, bytes);
        bool zero = true;
        for (size_t b = 0; b < bytes; b++) {
            zero = zero && p[b] == 0;
        }
        CHECK(zero && (uintptr_t)p % 16 == 0);
        memset(p, 0xff, bytes);
    }
    CHECK_STR(tci_scratch_printf(&s, "%s %d", "text", 7), "text 7");
    CHECK_STR((char *)tci_scratch_copy(&s, "copied", 7), "copied");
    tci_scratch_free(&s);
    CHECK_EQ_INT(tci_test_alloc_live, 0);
}

TEST(scratch_lists_grow)
{
    static tci_scratch s;
    struct {
        int *items;
        int n, cap;
    } list = {NULL, 0, 0};
    tci_scratch_init(&s);
    REQUIRE(!setjmp(s.escape));
    for (int i = 0; i < 10000; i++) {
        TCI_PUSH(&s, list.items, list.n, list.cap, i * 3);
    }
    for (int i = 0; i < 10000; i++) {
        CHECK(list.items[i] == i * 3);
    }
    CHECK(list.cap >= 10000 && list.cap < 40000);
    tci_scratch_free(&s);
}

TEST(scratch_escapes)
{
    static tci_scratch s;
    tci_scratch_init(&s);
    if (!setjmp(s.escape)) {
        tci_test_alloc_count = 0;
        tci_test_alloc_fail_at = 2;
        for (;;) {
            tci_scratch_get(&s, 1000);
        }
    }
    tci_test_alloc_fail_at = 0;
    CHECK_EQ_INT(s.why, TC_ERR_MEMORY);
    CHECK_HAS(s.message, "out of memory");
    tci_scratch_free(&s);
    if (!setjmp(s.escape)) {
        TCI_ASSERT(&s, 1 + 1 == 3);
    }
    CHECK_EQ_INT(s.why, TC_ERR_INTERNAL);
    CHECK_HAS(s.message, "1 + 1 == 3");
    if (!setjmp(s.escape)) {
        tci_scratch_get(&s, SIZE_MAX - 3);
    }
    CHECK_EQ_INT(s.why, TC_ERR_LIMIT);
    tci_scratch_free(&s);
    CHECK_EQ_INT(tci_test_alloc_live, 0);
}

/* ---- text ---- */

TEST(text_grows_on_the_heap)
{
    tci_str b = {0};
    CHECK_STR(tci_str_text(&b), "");
    for (int i = 0; i < 1000; i++) {
        tci_str_printf(&b, "%d,", i);
        tci_str_add(&b, "x");
        tci_str_add_n(&b, "yzw", 2);
    }
    CHECK(!b.failed);
    CHECK_EQ_INT(strlen(b.text), b.n);
    CHECK(!strncmp(b.text, "0,xyz1,xyz2,xyz", 15));
    char wide[3000];
    memset(wide, 'w', sizeof(wide) - 1);
    wide[sizeof(wide) - 1] = 0;
    size_t before = b.n;
    tci_str_printf(&b, "<%s>", wide);
    CHECK_EQ_INT(b.n, before + sizeof(wide) + 1);
    tci_str_free(&b);
    CHECK_EQ_INT(tci_test_alloc_live, 0);
}

TEST(text_without_memory_fails_and_stays)
{
    tci_str b = {0};
    tci_str_add(&b, "kept");
    tci_test_alloc_count = 0;
    tci_test_alloc_fail_at = 1;
    for (int i = 0; i < 100; i++) {
        tci_str_add(&b, "0123456789");
    }
    tci_test_alloc_fail_at = 0;
    CHECK(b.failed);
    CHECK(!strncmp(b.text, "kept", 4) && strlen(b.text) == b.n);
    size_t n = b.n;
    tci_str_printf(&b, "later %d", 1);
    CHECK_EQ_INT(b.n, n);
    tci_str_free(&b);
}

TEST(text_in_scratch)
{
    static tci_scratch s;
    tci_str b = {.s = &s};
    tci_scratch_init(&s);
    REQUIRE(!setjmp(s.escape));
    for (int i = 0; i < 5000; i++) {
        tci_str_printf(&b, "%05d", i);
    }
    CHECK_EQ_INT(b.n, 25000);
    CHECK(!strcmp(b.text + 24995, "04999"));
    tci_scratch_free(&s);
}

/* ---- hash ---- */

TEST(hash_tells_inputs_apart)
{
    enum { N = 20000 };
    unsigned char bytes[600];
    uint64_t *seen = tci_heap_get(2 * N * sizeof(*seen));
    REQUIRE(seen);
    for (int i = 0; i < 600; i++) {
        bytes[i] = (unsigned char)tct_random();
    }
    for (int i = 0; i < N; i++) { /* few bits apart, of many lengths */
        size_t n = (size_t)(i % 590 + 8);
        memcpy(bytes + i % (int)(n - 7), &i, sizeof(i));
        memcpy(bytes + n - 4, &i, sizeof(i));
        tci_hash h = tci_hash_bytes(bytes, n);
        seen[2 * i] = h.lo;
        seen[2 * i + 1] = h.hi;
    }
    int same = 0;
    for (int i = 0; i < N; i += 7) {
        for (int j = 0; j < i; j++) {
            same += seen[2 * i] == seen[2 * j] || seen[2 * i + 1] == seen[2 * j + 1];
        }
    }
    CHECK_EQ_INT(same, 0);
    tci_heap_free(seen);
}

TEST(hash_of_zeros_depends_on_length)
{
    unsigned char zeros[64] = {0};
    for (size_t a = 0; a < 64; a++) {
        for (size_t b = 0; b < a; b++) {
            tci_hash x = tci_hash_bytes(zeros, a), y = tci_hash_bytes(zeros, b);
            CHECK(x.lo != y.lo && x.hi != y.hi);
        }
    }
}

TEST(hash_flips_half_of_the_bits)
{
    unsigned char bytes[48] = {0};
    tci_hash base = tci_hash_bytes(bytes, sizeof(bytes));
    long flipped = 0;
    for (int bit = 0; bit < 48 * 8; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        tci_hash h = tci_hash_bytes(bytes, sizeof(bytes));
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        int n = 0;
        for (uint64_t d = h.lo ^ base.lo; d; d &= d - 1) {
            n++;
        }
        for (uint64_t d = h.hi ^ base.hi; d; d &= d - 1) {
            n++;
        }
        CHECK_MSG(n > 30 && n < 98, "bit %d flips %d of 128", bit, n);
        flipped += n;
    }
    CHECK_CLOSE((double)flipped / (48 * 8), 64, 0.05);
}

TEST(hash_in_hex)
{
    char text[33];
    tci_hash h = {0x0123456789abcdefu, 0xfedcba9876543210u};
    tci_hash_hex(h, text);
    CHECK_STR(text, "fedcba98765432100123456789abcdef");
    CHECK(tci_hash_mix(1, 2) != tci_hash_mix(2, 1));
    CHECK(tci_hash_mix(0, 0) != 0);
}

/* ---- environment ---- */

TEST(environment_variables)
{
    setenv("TC_DUMP", "graph,plan", 1);
    setenv("TC_THREADS", "12", 1);
    setenv("TC_CACHE_MB", "12x", 1);
    setenv("TC_CC", "", 1);
    CHECK(tci_env_has_word(TCI_ENV_DUMP, "graph") && tci_env_has_word(TCI_ENV_DUMP, "plan"));
    CHECK(!tci_env_has_word(TCI_ENV_DUMP, "pla") && !tci_env_has_word(TCI_ENV_DUMP, "kernel"));
    setenv("TC_DUMP", "all", 1);
    CHECK(tci_env_has_word(TCI_ENV_DUMP, "kernel"));
    unsetenv("TC_DUMP");
    CHECK(!tci_env_has_word(TCI_ENV_DUMP, "kernel"));
    CHECK_EQ_INT(tci_env_int(TCI_ENV_THREADS, 3), 12);
    CHECK_EQ_INT(tci_env_int(TCI_ENV_CACHE_MB, 3), 3);
    CHECK(tci_env_get(TCI_ENV_CC) == NULL);
    unsetenv("TC_THREADS");
    CHECK_EQ_INT(tci_env_int(TCI_ENV_THREADS, 3), 3);
    unsetenv("TC_CACHE_MB");
    unsetenv("TC_CC");
}

/* Each variable that is a field of the options: its value, and the field in a context. */
static const struct {
    const char *name, *value;
    size_t at;
    int bytes;
    int64_t number;
} env_rows[] = {
#define ROW(name, value, field, number)                                                            \
    {name, value, offsetof(tc_options, field), (int)sizeof(((tc_options *)0)->field), number}
    ROW("TC_CC_TIMEOUT", "7", cc_timeout_s, 7),
    ROW("TC_CC_TIMEOUT", "0", cc_timeout_s, 1),
    ROW("TC_CACHE_MB", "3", cache_bytes, 3 << 20),
    ROW("TC_CACHE_MB", "0", cache_bytes, 1 << 20),
    ROW("TC_MEMORY_CACHE_MB", "5", memory_cache_bytes, 5 << 20),
    ROW("TC_MEMORY_CACHE_MB", "0", memory_cache_bytes, -1),
    ROW("TC_NO_CACHE", "1", no_disk_cache, 1),
    ROW("TC_NO_CACHE", "0", no_disk_cache, 0),
    ROW("TC_THREADS", "3", threads, 3),
    ROW("TC_VECTOR", "128", vector_bits, 128),
    ROW("TC_VECTOR", "0", vector_bits, -1),
    ROW("TC_MATRIX", "0", matrix, -1),
    ROW("TC_REPRODUCIBLE", "1", reproducible, 1),
    ROW("TC_REPRODUCIBLE", "2", reproducible, 1),
    ROW("TC_FUSION", "0", fusion, -1),
    ROW("TC_VERIFY", "1", verify, 1),
    ROW("TC_VERIFY", "2", verify, 1),
    ROW("TC_VERIFY", "0", verify, 0),
    ROW("TC_BACKEND", "interp", backend, 0),
    ROW("TC_CC", "mycc", cc, 0),
    ROW("TC_CACHE_DIR", "/there", cache_dir, 0),
    ROW("TC_SCHEDULE", "/file", schedule, 0),
    ROW("TC_DUMP", "graph", dump, 0),
    ROW("TC_DUMP_DIR", "/dumps", dump_dir, 0)};
#undef ROW

/* Read when the context is made, and not again. */
TEST(variables_are_fields_of_a_context)
{
    for (int i = 0; i < TCI_COUNT(env_rows); i++) {
        tc_ctx *ctx;
        const char *old = getenv(env_rows[i].name);
        char *kept = old ? strdup(old) : NULL;
        setenv(env_rows[i].name, env_rows[i].value, 1);
        REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
        setenv(env_rows[i].name, "17", 1);
        const char *field = (const char *)&tci_ctx_of(ctx)->options + env_rows[i].at;
        if (env_rows[i].bytes == sizeof(char *) && env_rows[i].number == 0) {
            CHECK_STR(*(const char *const *)(const void *)field, env_rows[i].value);
        } else {
            int64_t got = env_rows[i].bytes == 1   ? *(const bool *)field
                          : env_rows[i].bytes == 4 ? *(const int *)(const void *)field
                                                   : *(const int64_t *)(const void *)field;
            CHECK_MSG(got == env_rows[i].number, "%s=%s: %lld", env_rows[i].name, env_rows[i].value,
                      (long long)got);
        }
        tc_ctx_free(ctx);
        if (kept) {
            setenv(env_rows[i].name, kept, 1);
        } else {
            unsetenv(env_rows[i].name);
        }
        free(kept);
    }
}

TEST_MAIN
