/* The base rooms: memory, text, hash, environment, files, processes. */
#include "inside.h"

#include "tc_test.h"

static char tct_dir[512]; /* a fresh private directory of the test that called tct_make_dir */

static void tct_make_dir(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(tct_dir, sizeof(tct_dir), "%s/tc-test-XXXXXX", base && *base ? base : "/tmp");
    REQUIRE(mkdtemp(tct_dir));
}

static const char *tct_path(const char *name) /* valid until the fourth next call */
{
    static char paths[4][1024];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", tct_dir, name);
    return path;
}

/* Entries of the test's directory whose names begin so. */
static int tct_count(const char *begins, bool dirs)
{
    tci_dir d;
    tci_dir_entry *entries = NULL;
    int n = 0;
    if (!tci_dir_open(&d, tct_dir, TCI_DIR_CODE, NULL)) {
        return -1;
    }
    int all = tci_dir_list(&d, begins, &entries);
    for (int i = 0; i < all; i++) {
        n += entries[i].is_dir == dirs;
    }
    tci_heap_free(entries);
    tci_dir_close(&d);
    return n;
}

static void tct_remove_dir(void)
{
    char command[1024];
    snprintf(command, sizeof(command), "rm -rf '%s'", tct_dir);
    CHECK_EQ_INT(system(command), 0);
}

/* ---- running ---- */

static tci_spawn tct_run(const char *const argv[], int64_t wall_ms, size_t limit, tci_str *log,
                         int *code)
{
    tci_command c = {.argv = argv, .wall_ms = wall_ms, .log_limit = limit};
    return tci_os_run(&c, log, code);
}

static tci_spawn tct_sh(const char *script, int64_t timeout_ms, size_t limit, tci_str *log,
                        int *code)
{
    const char *argv[] = {"sh", "-c", script, NULL};
    tci_str_free(log);
    return tct_run(argv, timeout_ms, limit, log, code);
}

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

/* ---- files ---- */

TEST(private_files)
{
    tci_str text = {0};
    int why = 0;
    tct_make_dir();
    const char *path = tct_path("file");
    REQUIRE(tci_os_publish(path, "content", 7, &why));
    CHECK(tci_os_read_private(path, &text, &why));
    CHECK_STR(text.text, "content");
    tci_str_free(&text);

    struct stat st;
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);

    chmod(path, 0620);
    CHECK(!tci_os_read_private(path, &text, &why));
    CHECK_EQ_INT(why, EPERM);
    CHECK(tci_os_read_file(path, &text, &why));
    tci_str_free(&text);
    chmod(path, 0602);
    CHECK(!tci_os_read_private(path, &text, &why));
    chmod(path, 0600);

    REQUIRE(symlink("file", tct_path("link")) == 0);
    CHECK(!tci_os_read_private(tct_path("link"), &text, &why));
    CHECK_EQ_INT(why, ELOOP);
    CHECK(!tci_os_read_private(tct_path("missing"), &text, &why));
    CHECK_EQ_INT(why, ENOENT);
    CHECK(!tci_os_read_private(tct_dir, &text, &why));
    REQUIRE(mkfifo(tct_path("fifo"), 0600) == 0);
    CHECK(!tci_os_read_private(tct_path("fifo"), &text, &why)); /* must not wait for a writer */
    CHECK(!tci_os_read_file("/dev/zero", &text, &why));         /* has no end */
    CHECK(why == EINVAL);
    tci_str_free(&text);
    tct_remove_dir();
}

TEST(files_of_other_users)
{
    tci_str text = {0};
    int why = 0;
    if (geteuid() != 0) {
        SKIP("only root can give a file away");
    }
    tct_make_dir();
    REQUIRE(tci_os_publish(tct_path("file"), "x", 1, &why));
    REQUIRE(chown(tct_path("file"), 65534, 65534) == 0);
    CHECK(!tci_os_read_private(tct_path("file"), &text, &why));
    CHECK_EQ_INT(why, EPERM);
    tct_remove_dir();
}

/* No other user can reach what is in a directory of mode 0700: the modes of its files, which are
 * the umask's, say nothing. Elsewhere they count. */
TEST(modes_count_only_where_others_can_come)
{
    tci_dir d, in;
    tci_str text = {0};
    int why = 0;
    tct_make_dir();
    REQUIRE(tci_dir_open(&d, tct_dir, TCI_DIR_CODE, NULL));
    REQUIRE(tci_dir_open_in(&in, &d, "in", true));
    CHECK(in.closed && !d.closed);
    REQUIRE(tci_dir_publish(&in, "file", "x", 1, false, NULL) && !chmod(tct_path("in/file"), 0666));
    CHECK(tci_dir_read(&in, "file", 10, &text, &why));
    tci_str_free(&text);
    if (geteuid() == 0) {
        REQUIRE(chown(tct_path("in/file"), 65534, 65534) == 0);
        CHECK(!tci_dir_read(&in, "file", 10, &text, &why) && why == EPERM);
    }
    REQUIRE(symlink("/etc/passwd", tct_path("in/link")) == 0);
    CHECK(!tci_dir_read(&in, "link", 1 << 20, &text, &why) && why == ELOOP);
    REQUIRE(tci_dir_publish(&d, "file", "x", 1, false, NULL) && !chmod(tct_path("file"), 0660));
    CHECK(!tci_dir_read(&d, "file", 10, &text, &why) && why == EPERM);
    tci_dir_close(&in);
    chmod(tct_path("in"), 0710);
    CHECK(!tci_dir_open_in(&in, &d, "in", false));
    tci_dir_close(&d);
    tct_remove_dir();
}

/* A umask that takes rights from the owner does not spoil what is made under it. */
TEST(no_umask_shuts_us_out)
{
    tci_dir d;
    struct stat st;
    tct_make_dir();
    mode_t before = umask(0777);
    bool good = tci_dir_open(&d, tct_path("a/b"), TCI_DIR_CODE, NULL);
    good = good && tci_dir_publish(&d, "file", "x", 1, false, NULL);
    umask(before);
    REQUIRE(good);
    CHECK(stat(tct_path("a"), &st) == 0 && (st.st_mode & 07777) == 0700);
    CHECK(stat(tct_path("a/b"), &st) == 0 && (st.st_mode & 07777) == 0700);
    CHECK(stat(tct_path("a/b/file"), &st) == 0 && (st.st_mode & 07777) == 0600);
    tci_dir_close(&d);
    tct_remove_dir();
}

TEST(publishing_is_all_or_nothing)
{
    tci_str text = {0};
    int why = 0;
    tct_make_dir();
    CHECK(!tci_os_publish(tct_path("no/such/dir"), "x", 1, &why));
    CHECK_EQ_INT(why, ENOENT);
    CHECK(!tci_os_publish("/dev/full/x", "x", 1, &why));
    REQUIRE(mkdir(tct_path("taken"), 0700) == 0);
    CHECK(!tci_os_publish(tct_path("taken"), "x", 1, &why)); /* rename onto a directory fails */
    CHECK_EQ_INT(tct_count("", false), 0);                   /* and leaves no temporary */

    char *block = malloc(1 << 20);
    REQUIRE(block);
    pid_t writers[3];
    for (int w = 0; w < 3; w++) {
        writers[w] = fork();
        if (writers[w] == 0) {
            for (int i = 0; i < 20; i++) {
                memset(block, 'a' + w, 1 << 20);
                tci_os_publish(tct_path("file"), block, 1 << 20, &why);
            }
            _exit(0);
        }
    }
    for (int i = 0; i < 100; i++) { /* a reader sees one writer's whole text, or no file yet */
        if (tci_os_read_private(tct_path("file"), &text, &why)) {
            CHECK_EQ_INT(text.n, 1 << 20);
            CHECK(text.text[0] == text.text[text.n - 1]);
        }
        tci_str_free(&text);
    }
    for (int w = 0; w < 3; w++) {
        waitpid(writers[w], NULL, 0);
    }
    CHECK_EQ_INT(tct_count("", false), 1);
    free(block);
    tct_remove_dir();
}

/* ---- directories ---- */

/* Opens and closes. */
static bool tct_opens(const char *path, tci_dir_use use, const char *why)
{
    tci_dir d;
    tci_str text = {0};
    bool good = tci_dir_open(&d, path, use, &text);
    if (good) {
        tci_dir_close(&d);
    } else if (why) {
        CHECK_HAS(tci_str_text(&text), why);
    }
    tci_str_free(&text);
    return good;
}

/* True if files that this test makes have a group that is this user's alone. */
static bool tct_has_own_group(void)
{
    tci_str passwd = {0}, group = {0};
    struct stat st;
    bool own = !stat(tct_path(""), &st) && tci_os_read_file("/etc/passwd", &passwd, NULL) &&
               tci_os_read_file("/etc/group", &group, NULL) &&
               tci_dir_group_is_private(tci_str_text(&passwd), tci_str_text(&group), geteuid(),
                                        st.st_gid);
    tci_str_free(&passwd);
    tci_str_free(&group);
    return own;
}

TEST(private_directories)
{
    tct_make_dir();
    tci_dir d;
    REQUIRE(tci_dir_open(&d, tct_path("a/./b//c/"), TCI_DIR_CODE, NULL));
    CHECK(d.writable);
    CHECK_STR(d.path.text, tct_path("a/b/c"));
    tci_dir_close(&d);
    struct stat st;
    CHECK(stat(tct_path("a"), &st) == 0 && (st.st_mode & 0777) == 0700);
    CHECK(tct_opens(tct_path("a/b/../b/c"), TCI_DIR_CODE, NULL));
    CHECK(!tct_opens(tct_path("missing"), TCI_DIR_TEMPORARY, "missing"));
    chmod(tct_path("a/b/c"), 0772);
    CHECK(!tct_opens(tct_path("a/b/c"), TCI_DIR_CODE, "others may write"));
    chmod(tct_path("a/b/c"), 0770);
    CHECK(tct_opens(tct_path("a/b/c"), TCI_DIR_CODE, "others may write") == tct_has_own_group());
    chmod(tct_path("a/b/c"), 0500);
    REQUIRE(tci_dir_open(&d, tct_path("a/b/c"), TCI_DIR_CODE, NULL));
    CHECK(d.writable == (geteuid() == 0));
    tci_dir_close(&d);
    REQUIRE(tci_os_publish(tct_path("file"), "x", 1, NULL));
    CHECK(!tct_opens(tct_path("file"), TCI_DIR_CODE, "file"));
    CHECK(!tct_opens(tct_path("file/below"), TCI_DIR_CODE, "file"));
    CHECK(!tct_opens("", TCI_DIR_CODE, ""));
    CHECK(!tct_opens("/proc/tc", TCI_DIR_CODE, "/proc/tc"));
    char *name = malloc(300);
    memset(name, 'n', 299);
    name[299] = 0;
    CHECK(!tct_opens(tct_path(name), TCI_DIR_CODE, "long"));
    free(name);
    tct_remove_dir();
}

TEST(a_group_is_private_if_no_other_user_is_in_it)
{
    static const struct {
        const char *passwd, *group;
        bool is;
    } rows[] = {
        {"root:x:0:0::/:\nada:x:1000:1000::/home/ada:/bin/sh\n", "ada:x:1000:\n", true},
        {"ada:x:1000:1000:Ada:/home/ada:/bin/sh", "root:x:0:eve\nada:x:1000:ada", true},
        {"ada:x:1000:1000::/home/ada:/bin/sh\n", "", true},
        {"ada:x:1000:1000::/:\neve:x:1001:1000::/:\n", "ada:x:1000:\n", false},
        {"ada:x:1000:1000::/:\n", "ada:x:1000:eve\n", false},
        {"ada:x:1000:1000::/:\n", "ada:x:1000:ada,eve\n", false},
        {"ada:x:1000:1000::/:\n", "ada:x:1000:\nstaff:x:1000:eve\n", false},
        {"ada:x:1000:100::/:\n", "users:x:100:\nada:x:1000:\n", false},
        {"ada:x:1000:1000::/:\n+::::::\n", "ada:x:1000:\n", false},
        {"ada:x:1000:1000::/:\n", "ada:x:1000:\n+:::\n", false},
        {"eve:x:1001:1001::/:\n", "eve:x:1001:\n", false},
        {"ada:x:1000:1000\neve:x\n", "ada:x:1000", true},
        {"", "", false},
    };
    for (int i = 0; i < TCI_COUNT(rows); i++) {
        CHECK_MSG(tci_dir_group_is_private(rows[i].passwd, rows[i].group, 1000, 1000) == rows[i].is,
                  "row %d", i);
    }
}

/* One level up is as good as the directory itself: who may write there may swap it. */
TEST(directories_above_are_judged_too)
{
    static const struct {
        mode_t mode;
        bool code, temporary;
    } rows[] = {{0700, true, true},   {0755, true, true},   {0711, true, true},
                {0770, false, false}, {0777, false, false}, {0775, false, false},
                {01777, true, true},  {01770, true, true}};
    tct_make_dir();
    REQUIRE(mkdir(tct_path("up"), 0700) == 0 && mkdir(tct_path("up/in"), 0700) == 0);
    REQUIRE(symlink(tct_path("up/in"), tct_path("link")) == 0);
    REQUIRE(symlink("up/../up/in", tct_path("near")) == 0);
    for (int i = 0; i < TCI_COUNT(rows); i++) {
        chmod(tct_path("up"), rows[i].mode);
        bool own = tct_has_own_group() && !(rows[i].mode & S_IWOTH);
        CHECK(tct_opens(tct_path("up/in"), TCI_DIR_CODE, "/up'") == (rows[i].code || own));
        CHECK(tct_opens(tct_path("link"), TCI_DIR_CODE, "/up'") == (rows[i].code || own));
        CHECK(tct_opens(tct_path("near"), TCI_DIR_CODE, "/up'") == (rows[i].code || own));
        CHECK(tct_opens(tct_path("up"), TCI_DIR_TEMPORARY, NULL) == (rows[i].temporary || own));
        CHECK(tct_opens(tct_path("up/in"), TCI_DIR_NOTES, NULL));
    }
    chmod(tct_path("up"), 01777);
    CHECK(!tct_opens(tct_path("up"), TCI_DIR_CODE, "others may write"));
    REQUIRE(symlink("loop", tct_path("loop")) == 0);
    CHECK(!tct_opens(tct_path("loop"), TCI_DIR_CODE, "link"));
    char old[1024];
    REQUIRE(getcwd(old, sizeof(old)) && chdir(tct_path("up")) == 0);
    CHECK(tct_opens("in", TCI_DIR_CODE, NULL));
    chmod(tct_path("up"), 0777);
    CHECK(!tct_opens("in", TCI_DIR_CODE, "/up'"));
    REQUIRE(chdir(old) == 0);
    tct_remove_dir();
}

TEST(directories_of_other_users)
{
    if (geteuid() != 0) {
        SKIP("only root can give a directory away");
    }
    tct_make_dir();
    REQUIRE(mkdir(tct_path("up"), 0755) == 0 && mkdir(tct_path("up/in"), 0700) == 0);
    CHECK(tct_opens(tct_path("up/in"), TCI_DIR_CODE, NULL));
    REQUIRE(lchown(tct_path("up"), 65534, 65534) == 0);
    CHECK(!tct_opens(tct_path("up/in"), TCI_DIR_CODE, "another user"));
    CHECK(!tct_opens(tct_path("up"), TCI_DIR_TEMPORARY, "another user"));
    REQUIRE(lchown(tct_path("up"), 0, 0) == 0 && lchown(tct_path("up/in"), 65534, 65534) == 0);
    CHECK(!tct_opens(tct_path("up/in"), TCI_DIR_CODE, "another user"));
    REQUIRE(lchown(tct_path("up/in"), 0, 0) == 0 && symlink("in", tct_path("up/link")) == 0);
    CHECK(tct_opens(tct_path("up/link"), TCI_DIR_CODE, NULL));
    REQUIRE(lchown(tct_path("up/link"), 65534, 65534) == 0); /* who could point it elsewhere */
    CHECK(!tct_opens(tct_path("up/link"), TCI_DIR_CODE, "another user"));
    tct_remove_dir();
}

TEST(notes_go_where_no_other_user_chooses)
{
    tct_make_dir();
    REQUIRE(mkdir(tct_path("wide"), 0700) == 0 && chmod(tct_path("wide"), 0777) == 0);
    CHECK(tct_opens(tct_path("wide/in"), TCI_DIR_NOTES, NULL));
    CHECK(tct_opens(tct_path("wide"), TCI_DIR_NOTES, NULL));
    REQUIRE(mkdir(tct_path("ours"), 0700) == 0 && symlink("../ours", tct_path("wide/to")) == 0);
    CHECK(tct_opens(tct_path("wide/to"), TCI_DIR_NOTES, NULL));
    if (geteuid() == 0) {
        REQUIRE(lchown(tct_path("wide/to"), 65534, 65534) == 0);
        CHECK(!tct_opens(tct_path("wide/to"), TCI_DIR_NOTES, "another user"));
    }
    tct_remove_dir();
}

TEST(an_open_directory_is_the_one_that_was_judged)
{
    tci_dir d;
    tci_str text = {0};
    int why = 0;
    tct_make_dir();
    REQUIRE(tci_dir_open(&d, tct_path("a"), TCI_DIR_CODE, NULL));
    REQUIRE(tci_dir_publish(&d, "file", "mine", 4, false, &why));
    REQUIRE(rename(tct_path("a"), tct_path("b")) == 0 && mkdir(tct_path("a"), 0700) == 0);
    REQUIRE(tci_os_publish(tct_path("a/file"), "theirs", 6, NULL));
    REQUIRE(tci_dir_read(&d, "file", 100, &text, &why));
    CHECK_STR(text.text, "mine");
    tci_str_free(&text);
    CHECK(!tci_dir_read(&d, "file", 3, &text, &why));
    CHECK_EQ_INT(why, EFBIG);
    CHECK(tci_dir_has(&d, "file", 4) && !tci_dir_has(&d, "file", 6));
    REQUIRE(tci_dir_publish(&d, "new", "x", 1, true, &why));
    CHECK(access(tct_path("b/new"), F_OK) == 0 && access(tct_path("a/new"), F_OK) != 0);
    CHECK(tci_dir_remove(&d, "file") && !tci_dir_remove(&d, "file"));
    CHECK(access(tct_path("a/file"), F_OK) == 0);
    tci_dir_close(&d);
    tci_str_free(&text);
    tct_remove_dir();
}

TEST(listing_and_times)
{
    tci_dir d;
    tci_dir_entry *entries = NULL;
    struct stat first, second;
    tct_make_dir();
    REQUIRE(tci_dir_open(&d, tct_dir, TCI_DIR_CODE, NULL));
    for (int i = 0; i < 100; i++) {
        char name[32];
        snprintf(name, sizeof(name), "f%d", i);
        REQUIRE(tci_dir_publish(&d, name, "12345", 5, false, NULL));
    }
    REQUIRE(mkdir(tct_path("dir"), 0700) == 0);
    REQUIRE(symlink("f1", tct_path("flink")) == 0);
    REQUIRE(mkfifo(tct_path("fifo"), 0600) == 0);
    CHECK_EQ_INT(tci_dir_list(&d, "f", &entries), 100);
    CHECK(entries && entries[0].bytes == 5 && entries[0].mtime_ns > 0 && !entries[0].is_dir);
    tci_heap_free(entries);
    CHECK_EQ_INT(tci_dir_list(&d, "", &entries), 101);
    tci_heap_free(entries);
    REQUIRE(stat(tct_path("f1"), &first) == 0);
    usleep(20000);
    tci_dir_touch(&d, "f1");
    REQUIRE(stat(tct_path("f1"), &second) == 0);
    CHECK(tci_os_mtime_ns(&second) > tci_os_mtime_ns(&first));
    REQUIRE(mkdir(tct_path("dir/deep"), 0700) == 0 && symlink("..", tct_path("dir/up")) == 0);
    REQUIRE(mkfifo(tct_path("dir/deep/fifo"), 0600) == 0);
    CHECK(!tci_dir_remove(&d, "dir") && tci_dir_remove_tree(&d, "dir"));
    CHECK_EQ_INT(tct_count("f", false), 100);
    tci_dir_close(&d);
    tct_remove_dir();
}

/* ---- folders of builds ---- */

/* A folder that a process left behind: killed, or (failed) after a failure. Returns its age set. */
static void tct_leave_folder(const char *tmp, bool failed, int age_s, bool alive)
{
    int ready[2], go[2];
    REQUIRE(pipe(ready) == 0 && pipe(go) == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        tci_workdir w;
        tci_str why = {0};
        setenv("TMPDIR", tmp, 1);
        bool good = tci_workdir_make(&w, NULL, false, &why);
        if (failed) {
            good = good && tci_dir_publish(&w.dir, TCI_WORKDIR_LOG, "x", 1, false, NULL);
        }
        good = good && tci_dir_publish(&w.dir, "tc_0.c", "x", 1, false, NULL);
        struct timespec times[2] = {{time(NULL) - age_s, 0}, {time(NULL) - age_s, 0}};
        good = good && futimens(w.dir.fd, times) == 0;
        if (!good || write(ready[1], "x", 1) != 1 || (alive && read(go[0], &good, 1) < 0)) {
            _exit(1);
        }
        raise(SIGKILL);
    }
    char byte;
    REQUIRE(read(ready[0], &byte, 1) == 1);
    if (alive) { /* what is in use stays, however old */
        tci_dir d;
        int before = tct_count("tc-b-", true);
        REQUIRE(tci_dir_open(&d, tmp, TCI_DIR_TEMPORARY, NULL));
        tci_workdir_sweep(&d, true);
        CHECK_EQ_INT(tct_count("tc-b-", true), before);
        tci_dir_close(&d);
        REQUIRE(write(go[1], "x", 1) == 1);
    }
    waitpid(child, NULL, 0);
    for (int i = 0; i < 2; i++) {
        close(ready[i]);
        close(go[i]);
    }
}

TEST(folders_of_dead_processes_are_swept)
{
    enum { DAY = 24 * 3600 };
    tci_dir d;
    tct_make_dir();
    REQUIRE(tci_dir_open(&d, tct_dir, TCI_DIR_TEMPORARY, NULL));
    tct_leave_folder(tct_dir, false, 10 * DAY, true);
    CHECK_EQ_INT(tct_count("tc-b-", true), 1);
    tci_workdir_sweep(&d, true);
    CHECK_EQ_INT(tct_count("tc-b-", true), 0);
    tct_leave_folder(tct_dir, false, 0, false);
    tct_leave_folder(tct_dir, true, 10, false);
    tct_leave_folder(tct_dir, true, 2 * DAY, false);
    CHECK_EQ_INT(tct_count("tc-b-", true), 3);
    REQUIRE(mkdir(tct_path("tc-b-0123456789abcdef0"), 0700) == 0); /* not one of ours */
    REQUIRE(mkdir(tct_path("tc-kept-0123456789abcdef"), 0700) == 0);
    tci_workdir_sweep(&d, true);
    CHECK_EQ_INT(tct_count("tc-b-", true), 2); /* the fresh failure, and the foreign one */
    CHECK_EQ_INT(tct_count("tc-kept-", true), 1);
    for (int i = 0; i < TCI_WORKDIR_FAILURES + 3; i++) {
        tct_leave_folder(tct_dir, true, 100 + i, false);
    }
    tci_workdir_sweep(&d, true);
    CHECK_EQ_INT(tct_count("tc-b-", true), TCI_WORKDIR_FAILURES + 1);
    tci_dir_close(&d);
    tct_remove_dir();
}

TEST(builds_happen_where_others_cannot_interfere)
{
    tci_workdir w;
    tci_str why = {0};
    const char *old = getenv("TMPDIR");
    char *kept = old ? strdup(old) : NULL;
    tct_make_dir();
    REQUIRE(mkdir(tct_path("open"), 0700) == 0 && chmod(tct_path("open"), 0777) == 0);
    setenv("TMPDIR", tct_path("open"), 1);
    REQUIRE(tci_workdir_make(&w, tct_path("last"), false, &why));
    CHECK(strncmp(w.dir.path.text, tct_path("open"), strlen(tct_path("open"))));
    CHECK_HAS(tci_str_text(&why), "others may write");
    char path[1024];
    snprintf(path, sizeof(path), "%s", w.dir.path.text);
    struct stat st;
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0700);
    tci_workdir_end(&w, false);
    CHECK(access(path, F_OK) != 0);
    chmod(tct_path("open"), 01777);
    REQUIRE(tci_workdir_make(&w, NULL, true, &why));
    CHECK_EQ_INT(
        strncmp(w.dir.path.text, tct_path("open/tc-kept-"), strlen(tct_path("open/tc-kept-"))), 0);
    tci_workdir_end(&w, false);
    if (kept) {
        setenv("TMPDIR", kept, 1);
    } else {
        unsetenv("TMPDIR");
    }
    free(kept);
    tci_str_free(&why);
    tct_remove_dir();
}

TEST(programs_on_path)
{
    tci_str path = {0};
    CHECK(tci_os_find_program("sh", &path));
    CHECK_HAS(tci_str_text(&path), "/sh");
    CHECK(tci_os_find_program("/bin/sh", &path));
    CHECK(!tci_os_find_program("no-such-program-of-tc", &path));
    CHECK(!tci_os_find_program("/etc/passwd", &path));
    CHECK(!tci_os_find_program("/", &path) && !tci_os_find_program("", &path));
    tci_str_free(&path);
}

/* Entries of PATH that mean a place below the current directory are anybody's. */
TEST(relative_entries_of_path_are_not_searched)
{
    static const char *const paths[] = {".", "", ":", "bin", "./bin:", "bin::.", "../X/bin"};
    tci_str path = {0}, log = {0};
    char old[1024], *kept = strdup(getenv("PATH") ? getenv("PATH") : "/bin:/usr/bin");
    int code;
    tct_make_dir();
    REQUIRE(getcwd(old, sizeof(old)) && chdir(tct_dir) == 0 && mkdir("bin", 0700) == 0);
    REQUIRE(tci_os_publish("tc-tool", "#!/bin/sh\necho ran\n", 19, NULL));
    REQUIRE(tci_os_publish("bin/tc-tool", "#!/bin/sh\necho ran\n", 19, NULL));
    REQUIRE(chmod("tc-tool", 0700) == 0 && chmod("bin/tc-tool", 0700) == 0);
    for (int i = 0; i < TCI_COUNT(paths); i++) {
        setenv("PATH", paths[i], 1);
        CHECK_MSG(!tci_os_find_program("tc-tool", &path), "PATH=%s", paths[i]);
    }
    char list[2048];
    snprintf(list, sizeof(list), ".:%s:bin:%s::bin", kept, tct_path("bin"));
    setenv("PATH", list, 1);
    CHECK(tci_os_find_program("tc-tool", &path));
    CHECK_STR(tci_str_text(&path), tct_path("bin/tc-tool"));
    snprintf(list, sizeof(list), ".:%s:bin", kept); /* nor by what the compiler starts */
    setenv("PATH", list, 1);
    CHECK(tct_sh("tc-tool", 10000, 1000, &log, &code) == TCI_SPAWN_FAILED);
    CHECK_EQ_INT(code, 127);
    setenv("PATH", kept, 1);
    REQUIRE(chdir(old) == 0);
    free(kept);
    tci_str_free(&path);
    tci_str_free(&log);
    tct_remove_dir();
}

/* ---- processes ---- */

TEST(spawn_collects_output_and_code)
{
    tci_str log = {0};
    int code;
    CHECK_EQ_INT(tct_sh("echo out; echo err >&2", 10000, 1000, &log, &code), TCI_SPAWN_OK);
    CHECK_EQ_INT(code, 0);
    CHECK_STR(tci_str_text(&log), "out\nerr\n");
    CHECK_EQ_INT(tct_sh("exit 3", 10000, 1000, &log, &code), TCI_SPAWN_FAILED);
    CHECK_EQ_INT(code, 3);
    CHECK_EQ_INT(tct_sh("kill -SEGV $$", 10000, 1000, &log, &code), TCI_SPAWN_FAILED);
    CHECK_EQ_INT(code, 128 + SIGSEGV);
    CHECK_EQ_INT(tct_sh("exec >&- 2>&-; sleep 0.1; exit 5", 10000, 1000, &log, &code),
                 TCI_SPAWN_FAILED);
    CHECK_EQ_INT(code, 5);
    CHECK_EQ_INT(tct_sh("cat", 10000, 1000, &log, &code), TCI_SPAWN_OK); /* stdin is empty */
    tci_str_free(&log);
}

TEST(spawn_of_nothing)
{
    const char *missing[] = {"no-such-program-of-tc", NULL}, *text[] = {"/etc/passwd", NULL};
    tci_str log = {0};
    int code;
    CHECK_EQ_INT(tct_run(missing, 1000, 100, &log, &code), TCI_SPAWN_MISSING);
    CHECK_EQ_INT(tct_run(text, 1000, 100, &log, &code), TCI_SPAWN_MISSING);
    tct_make_dir();
    REQUIRE(tci_os_publish(tct_path("bad"), "\177ELF not a program", 18, NULL));
    chmod(tct_path("bad"), 0700);
    const char *bad[] = {tct_path("bad"), NULL};
    CHECK_EQ_INT(tct_run(bad, 1000, 100, &log, &code), TCI_SPAWN_FAILED);
    CHECK(code == -1 || code == 127); /* 127 where vfork cannot report back */
    tct_remove_dir();
    tci_str_free(&log);
}

TEST(spawn_takes_arguments_literally)
{
    const char *argv[] = {"printf", "%s|%s", "$(id) `id` ; rm *", "a\"b'c", NULL};
    tci_str log = {0};
    int code;
    CHECK_EQ_INT(tct_run(argv, 10000, 1000, &log, &code), TCI_SPAWN_OK);
    CHECK_STR(tci_str_text(&log), "$(id) `id` ; rm *|a\"b'c");
    tci_str_free(&log);
}

/* The grandchild whose number is in the file is gone (or a zombie that init has yet to reap). */
static bool tct_is_gone(const char *path)
{
    tci_str pid = {0};
    bool alive = true;
    for (int i = 0; alive && i < 50 && tci_os_read_file(path, &pid, NULL); i++) {
        char state[1200];
        snprintf(state, sizeof(state), "ps -o stat= -p %d 2>/dev/null | grep -qv Z",
                 atoi(tci_str_text(&pid)));
        alive = system(state) == 0;
        usleep(alive ? 20000 : 0);
        tci_str_free(&pid);
    }
    return !alive;
}

TEST(spawn_kills_a_hanging_group)
{
    static const char *const starts[] = {"sleep 60", "setsid sleep 60 >/dev/null 2>&1"};
    tci_str log = {0};
    int code;
    tct_make_dir();
    for (int i = 0; i < TCI_COUNT(starts); i++) { /* the second one leaves the group */
        int64_t start_ns = tci_os_now_ns();
        char script[1500];
        snprintf(script, sizeof(script), "%s & echo $! >'%s'; echo started; wait", starts[i],
                 tct_path("pid"));
        CHECK_EQ_INT(tct_sh(script, 400, 1000, &log, &code), TCI_SPAWN_TIMEOUT);
        CHECK((tci_os_now_ns() - start_ns) / 1000000 < 5000);
        CHECK_STR(tci_str_text(&log), "started\n");
        CHECK(tct_is_gone(tct_path("pid")));
        tci_str_free(&log);
        memset(&log, 0, sizeof(log));
    }
    CHECK_EQ_INT(tct_sh("trap '' TERM INT; exec >&- 2>&-; sleep 60", 200, 10, &log, &code),
                 TCI_SPAWN_TIMEOUT);
    tci_str_free(&log);
    tct_remove_dir();
}

/* Busy on a busy machine is not too slow: only its own time counts. */
TEST(spawn_limits_processor_time)
{
    tci_str log = {0};
    int code;
    const char *loop[] = {"sh", "-c", "while :; do :; done", NULL};
    const char *child[] = {"sh", "-c", "sh -c 'while :; do :; done'; exit 3", NULL};
    const char *idle[] = {"sh", "-c", "sleep 1.2", NULL};
    tci_command c = {.argv = loop, .cpu_s = 1, .wall_ms = 300000, .log_limit = 1000};
    CHECK_EQ_INT(tci_os_run(&c, &log, &code), TCI_SPAWN_FAILED);
    CHECK_EQ_INT(code, 128 + SIGXCPU);
    CHECK(c.used_ns > 200000000);
    c.argv = child; /* what it starts has the limit too */
    CHECK_EQ_INT(tci_os_run(&c, &log, &code), TCI_SPAWN_FAILED);
    CHECK_EQ_INT(code, 3);
    CHECK(c.used_ns > 200000000);
    c.argv = idle;
    CHECK_EQ_INT(tci_os_run(&c, &log, &code), TCI_SPAWN_OK);
    tci_str_free(&log);
}

TEST(spawn_gives_the_child_another_place_for_temporaries)
{
    tci_str log = {0};
    int code;
    const char *argv[] = {"sh", "-c", "echo \"$TMPDIR\"", NULL};
    tci_command c = {.argv = argv, .wall_ms = 10000, .log_limit = 1000, .temp_dir = "/a place"};
    CHECK_EQ_INT(tci_os_run(&c, &log, &code), TCI_SPAWN_OK);
    CHECK_STR(tci_str_text(&log), "/a place\n");
    tci_str_free(&log);
}

TEST(spawn_cuts_megabytes_of_output)
{
    tci_str log = {0};
    int code;
    CHECK_EQ_INT(tct_sh("head -c 8000000 /dev/zero | tr '\\0' x; echo; echo end", 60000, 5000, &log,
                        &code),
                 TCI_SPAWN_OK);
    CHECK_EQ_INT(log.n, 5000);
    CHECK(log.cap < 20000);
    tci_str_free(&log);
}

TEST(spawn_is_not_held_by_a_grandchild)
{
    tci_str log = {0};
    int code;
    int64_t start_ns = tci_os_now_ns();
    CHECK_EQ_INT(tct_sh("echo done; sleep 5 & exit 0", 20000, 1000, &log, &code), TCI_SPAWN_OK);
    CHECK((tci_os_now_ns() - start_ns) / 1000000 < 3000);
    CHECK_STR(tci_str_text(&log), "done\n");
    tci_str_free(&log);
}

/* Also where the host reaps children: the pipe tells that some of the group live. */
TEST(spawn_leaves_no_process_behind)
{
    tci_str log = {0};
    int code;
    tct_make_dir();
    for (int ignored = 0; ignored < 2; ignored++) {
        void (*old)(int) = signal(SIGCHLD, ignored ? SIG_IGN : SIG_DFL);
        char script[1500];
        const char *fifo = tct_path(ignored ? "fifo1" : "fifo0"); /* its end: the writers' death */
        REQUIRE(mkfifo(fifo, 0600) == 0);
        int reader = open(fifo, O_RDONLY | O_NONBLOCK);
        snprintf(script, sizeof(script), "sleep 1000 9>'%s' & exec 8>'%s'; echo up; exit 0", fifo,
                 fifo);
        CHECK_EQ_INT(tct_sh(script, 20000, 1000, &log, &code), TCI_SPAWN_OK);
        CHECK_STR(tci_str_text(&log), "up\n");
        struct pollfd p = {reader, POLLIN, 0};
        CHECK(poll(&p, 1, 10000) == 1 && (p.revents & POLLHUP));
        close(reader);
        signal(SIGCHLD, old);
    }
    tci_str_free(&log);
    tct_remove_dir();
}

TEST(spawn_in_a_host_that_ignores_children)
{
    tci_str log = {0};
    int code;
    void (*old)(int) = signal(SIGCHLD, SIG_IGN);
    /* the code cannot be known */
    CHECK_EQ_INT(tct_sh("echo a; exit 3", 10000, 1000, &log, &code), TCI_SPAWN_OK);
    CHECK_STR(tci_str_text(&log), "a\n");
    CHECK_EQ_INT(tct_sh("sleep 60", 200, 1000, &log, &code), TCI_SPAWN_TIMEOUT);
    signal(SIGCHLD, old);
    tci_str_free(&log);
}

TEST(spawn_gives_a_clean_start)
{
    tci_str log = {0};
    int code;
    sigset_t blocked, old;
    tct_make_dir();
    int leak = open(tct_path("leak"), O_RDWR | O_CREAT, 0600); /* no O_CLOEXEC: the host's */
    REQUIRE(leak >= 3);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigprocmask(SIG_BLOCK, &blocked, &old);
    if (access("/proc/self/status", R_OK) == 0) {
        const char *script = "ls /proc/self/fd | wc -l; grep -E 'Sig(Blk|Ign)' /proc/self/status";
        CHECK_EQ_INT(tct_sh(script, 10000, 1000, &log, &code), TCI_SPAWN_OK);
        CHECK_HAS(tci_str_text(&log), "SigBlk:\t0000000000000000");
        const char *ignored = strstr(tci_str_text(&log), "SigIgn:");
        REQUIRE(ignored); /* 32 and 33 belong to the libc */
        CHECK_EQ_INT(strtoull(ignored + 7, NULL, 16) & ~0x180000000u, 0);
        CHECK_EQ_INT(atoi(tci_str_text(&log)), 4); /* 0, 1, 2 and the folder that ls reads */
    }
    sigprocmask(SIG_SETMASK, &old, NULL);
    signal(SIGPIPE, SIG_DFL);
    close(leak);
    tci_str_free(&log);
    tct_remove_dir();
}

TEST(spawn_with_closed_standard_files)
{
    fflush(stdout);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        tci_str log = {0};
        int code;
        for (int fd = 0; fd < 3; fd++) {
            close(fd);
        }
        bool good = tct_sh("echo out; echo err >&2", 10000, 1000, &log, &code) == TCI_SPAWN_OK &&
                    !strcmp(tci_str_text(&log), "out\nerr\n");
        _exit(good ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK_EQ_INT(status, 0);
}

/* ulimit -f: an error, and not the end of the process. */
TEST(a_file_that_may_not_be_that_large)
{
    tct_make_dir();
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        struct rlimit most = {16, 16};
        int why = 0, other = 0;
        setrlimit(RLIMIT_FSIZE, &most);
        bool small = tci_os_publish(tct_path("small"), "0123456789", 10, &why);
        bool large = tci_os_publish(tct_path("large"), "0123456789abcdefghij", 20, &other);
        _exit(small && !large && !why && other == EFBIG ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK_EQ_INT(status, 0);
    tct_remove_dir();
}

TEST(spawn_leaves_no_descriptor)
{
    tci_str log = {0};
    int code, before = dup(0);
    close(before);
    for (int i = 0; i < 20; i++) {
        tct_sh(i % 2 ? "exit 1" : "sleep 10", 20, 100, &log, &code);
    }
    int after = dup(0);
    close(after);
    CHECK_EQ_INT(after, before);
    tci_str_free(&log);
}

TEST(shared_objects)
{
    char why[256];
    CHECK(tci_os_dlopen("/no/such/object.so", why) == NULL);
    CHECK_HAS(why, "object.so");
    tci_os_dlclose(NULL);
}

/* An object of this machine with int seven(void). False: no compiler. */
static bool tct_make_object(tci_str *object, const char *end)
{
    tci_str log = {0};
    int code;
    const char *cc = getenv("TC_TEST_CC");
    char source[1024], path[1024], text[600];
    snprintf(source, sizeof(source), "%s", tct_path("o.c"));
    snprintf(path, sizeof(path), "%s", tct_path("o.so"));
    snprintf(text, sizeof(text), "int table[500] = {1};\nint seven(void) { return 7; }\n%s", end);
    const char *argv[] = {cc && !strchr(cc, ' ') ? cc : "cc",
                          "-shared",
                          "-fPIC",
                          "-nostdlib",
                          source,
                          "-o",
                          path,
                          NULL};
    bool good = tci_os_publish(source, text, strlen(text), NULL) &&
                tct_run(argv, 60000, 1000, &log, &code) == TCI_SPAWN_OK &&
                tci_os_read_file(path, object, NULL);
    tci_str_free(&log);
    return good;
}

TEST(objects_cut_short_are_not_loaded)
{
    tci_str object = {0}, unmarked = {0};
    const char *wrong = "";
    char why[256];
    tct_make_dir();
    if (!tct_make_object(&object, TCI_OBJECT_END_LINE)) {
        tct_remove_dir();
        SKIP("no compiler");
    }
    CHECK_MSG(tci_object_is_whole(object.text, object.n, &wrong), "%s", wrong);
    int wholes = 0;
    for (size_t n = 0; n < object.n; n += n % 97 ? 1 : 7) {
        wholes += tci_object_is_whole(object.text, n, &wrong);
    }
    CHECK_EQ_INT(wholes, 0);
    char *copy = malloc(object.n);
    for (size_t n = 0; n + 64 < object.n; n += 61) { /* the room is there, but not the bytes */
        memcpy(copy, object.text, n);
        memset(copy + n, 0, object.n - n);
        CHECK_MSG(!tci_object_is_whole(copy, object.n, &wrong), "zeros from %zu on", n);
    }
    for (size_t at = 0; at < 64; at++) { /* whatever the header says, only the bytes are read */
        for (int v = 0; v < 256; v += 51) {
            memcpy(copy, object.text, object.n);
            copy[at] = (char)v;
            (void)tci_object_is_whole(copy, object.n, &wrong);
        }
    }
    free(copy);
    CHECK(tci_object_load(object.text, object.n / 2, "/nowhere", false, why) == NULL);
    CHECK(tci_object_load("garbage", 7, "/nowhere", false, why) == NULL);
    CHECK_HAS(why, "no object file");
    REQUIRE(tct_make_object(&unmarked, ""));
    CHECK(!tci_object_is_whole(unmarked.text, unmarked.n, &wrong));
    CHECK_STR(wrong, "it has no end mark");
    tci_str_free(&object);
    tci_str_free(&unmarked);
    tct_remove_dir();
}

/* The same code again, as another shared library of the process has it. */
#define tci_object_load tct_other_load
#define tci_object_is_whole tct_other_is_whole
#include "base/object_loader.c"
#undef tci_object_load
#undef tci_object_is_whole

/* The bytes are loaded, whatever file has their name; and each is an object of its own. */
TEST(objects_are_loaded_from_their_bytes)
{
    enum { MANY = 40 };
    tci_str object = {0};
    char why[256] = "";
    void *handles[MANY];
    tct_make_dir();
    if (!tct_make_object(&object, TCI_OBJECT_END_LINE)) {
        tct_remove_dir();
        SKIP("no compiler");
    }
    REQUIRE(tci_os_publish(tct_path("o.so"), "no longer there", 15, NULL));
    int before = dup(0);
    close(before);
    for (int i = 0; i < MANY; i++) {
        handles[i] = (i % 2 ? tct_other_load : tci_object_load)(object.text, object.n,
                                                                tct_path("o.so"), false, why);
        if (!handles[i] && i == 0) {
            tci_str_free(&object);
            tct_remove_dir();
            SKIP("no copies in memory here: %.100s", why);
        }
        REQUIRE(handles[i]);
        int *table = tci_os_dlsym(handles[i], "table");
        REQUIRE(table && table[0] == 1); /* not the one before, which this writes to */
        table[0] = 2;
        if (i % 3 == 0) {
            tci_os_dlclose(handles[i]);
            handles[i] = NULL;
        }
    }
    for (int i = 0; i < MANY; i++) {
        tci_os_dlclose(handles[i]);
    }
    int after = dup(0);
    close(after);
    CHECK_EQ_INT(after, before);
    REQUIRE(tci_os_publish(tct_path("o.so"), object.text, object.n, NULL));
    void *named = tci_object_load(object.text, object.n, tct_path("o.so"), true, why);
    CHECK_MSG(named, "%s", why);
    tci_str maps = {0};
    if (tci_os_read_file("/proc/self/maps", &maps, NULL)) {
        CHECK_HAS(maps.text, tct_path("o.so")); /* where a debugger looks */
    }
    tci_str_free(&maps);
    tci_os_dlclose(named);
    tci_str_free(&object);
    tct_remove_dir();
}

TEST(processors_and_clock)
{
    int n = tci_os_cpu_count();
    CHECK(n >= 1 && n <= 65536);
    int64_t first_ns = tci_os_now_ns(), second_ns = tci_os_now_ns();
    CHECK(second_ns >= first_ns);
}

TEST_MAIN
