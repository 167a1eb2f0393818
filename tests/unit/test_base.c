/* The base rooms: memory, text, hash, environment, files, processes. */
#include "inside.h"

#include "tc_test.h"

static char tct_dir[512]; /* a fresh private directory of the test that called tct_make_dir */

static void tct_make_dir(void)
{
    tci_str dir = {0};
    REQUIRE(tci_os_temp_dir(&dir));
    snprintf(tct_dir, sizeof(tct_dir), "%s", dir.text);
    tci_str_free(&dir);
}

static const char *tct_path(const char *name) /* valid until the fourth next call */
{
    static char paths[4][1024];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", tct_dir, name);
    return path;
}

static void tct_remove_dir(void)
{
    char command[1024];
    snprintf(command, sizeof(command), "rm -rf '%s'", tct_dir);
    CHECK_EQ_INT(system(command), 0);
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
    struct { int *items; int n, cap; } list = {NULL, 0, 0};
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
    tci_str_free(&text);
    tct_remove_dir();
}

TEST(files_of_other_users)
{
    tci_str text = {0};
    int why = 0;
    bool writable;
    if (geteuid() != 0) {
        SKIP("only root can give a file away");
    }
    tct_make_dir();
    REQUIRE(tci_os_publish(tct_path("file"), "x", 1, &why));
    REQUIRE(chown(tct_path("file"), 65534, 65534) == 0);
    CHECK(!tci_os_read_private(tct_path("file"), &text, &why));
    CHECK_EQ_INT(why, EPERM);
    REQUIRE(tci_os_private_dir(tct_path("dir"), &writable));
    REQUIRE(chown(tct_path("dir"), 65534, 65534) == 0);
    CHECK(!tci_os_private_dir(tct_path("dir"), &writable));
    tct_remove_dir();
}

TEST(publishing_is_all_or_nothing)
{
    tci_str text = {0};
    tci_os_file *files;
    int why = 0;
    tct_make_dir();
    CHECK(!tci_os_publish(tct_path("no/such/dir"), "x", 1, &why));
    CHECK_EQ_INT(why, ENOENT);
    CHECK(!tci_os_publish("/dev/full/x", "x", 1, &why));
    REQUIRE(mkdir(tct_path("taken"), 0700) == 0);
    CHECK(!tci_os_publish(tct_path("taken"), "x", 1, &why)); /* rename onto a directory fails */
    CHECK_EQ_INT(tci_os_list(tct_dir, &files), 0);           /* and leaves no temporary */
    tci_heap_free(files);

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
    CHECK_EQ_INT(tci_os_list(tct_dir, &files), 1);
    tci_heap_free(files);
    free(block);
    tct_remove_dir();
}

TEST(private_directories)
{
    bool writable = false;
    tct_make_dir();
    CHECK(tci_os_private_dir(tct_path("a/b/c"), &writable) && writable);
    struct stat st;
    CHECK(stat(tct_path("a"), &st) == 0 && (st.st_mode & 0777) == 0700);
    chmod(tct_path("a/b/c"), 0770);
    CHECK(!tci_os_private_dir(tct_path("a/b/c"), &writable));
    chmod(tct_path("a/b/c"), 0500);
    CHECK(tci_os_private_dir(tct_path("a/b/c"), &writable));
    CHECK(writable == (geteuid() == 0));
    chmod(tct_path("a/b"), 0777); /* anybody could swap c */
    CHECK(!tci_os_private_dir(tct_path("a/b/c"), &writable));
    chmod(tct_path("a/b"), 0700);
    REQUIRE(tci_os_publish(tct_path("file"), "x", 1, NULL));
    CHECK(!tci_os_private_dir(tct_path("file"), &writable));
    CHECK(!tci_os_private_dir(tct_path("file/below"), &writable));
    CHECK(!tci_os_private_dir("", &writable));
    CHECK(!tci_os_private_dir("/proc/tc", &writable));
    tct_remove_dir();
}

TEST(listing_and_times)
{
    tci_os_file *files = NULL;
    int64_t bytes, first_ns, second_ns;
    tct_make_dir();
    for (int i = 0; i < 100; i++) {
        char name[32];
        snprintf(name, sizeof(name), "f%d", i);
        REQUIRE(tci_os_publish(tct_path(name), "12345", 5, NULL));
    }
    REQUIRE(mkdir(tct_path("dir"), 0700) == 0);
    REQUIRE(symlink("f1", tct_path("link")) == 0);
    CHECK_EQ_INT(tci_os_list(tct_dir, &files), 100);
    CHECK(files && files[0].bytes == 5 && files[0].mtime_ns > 0);
    tci_heap_free(files);
    CHECK_EQ_INT(tci_os_list(tct_path("missing"), &files), -1);
    REQUIRE(tci_os_stat(tct_path("f1"), &bytes, &first_ns));
    usleep(20000);
    tci_os_touch(tct_path("f1"));
    REQUIRE(tci_os_stat(tct_path("f1"), &bytes, &second_ns));
    CHECK(second_ns > first_ns);
    CHECK(tci_os_rename(tct_path("f1"), tct_path("g1")) && tci_os_remove(tct_path("g1")));
    CHECK(!tci_os_remove(tct_path("g1")));
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

/* ---- processes ---- */

static tci_spawn tct_sh(const char *script, int64_t timeout_ms, size_t limit, tci_str *log,
                        int *code)
{
    const char *argv[] = {"sh", "-c", script, NULL};
    tci_str_free(log);
    return tci_os_run(argv, timeout_ms, limit, log, code);
}

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
    CHECK_EQ_INT(tci_os_run(missing, 1000, 100, &log, &code), TCI_SPAWN_MISSING);
    CHECK_EQ_INT(tci_os_run(text, 1000, 100, &log, &code), TCI_SPAWN_MISSING);
    tct_make_dir();
    REQUIRE(tci_os_publish(tct_path("bad"), "\177ELF not a program", 18, NULL));
    chmod(tct_path("bad"), 0700);
    const char *bad[] = {tct_path("bad"), NULL};
    CHECK_EQ_INT(tci_os_run(bad, 1000, 100, &log, &code), TCI_SPAWN_FAILED);
    CHECK(code == -1 || code == 127); /* 127 where vfork cannot report back */
    tct_remove_dir();
    tci_str_free(&log);
}

TEST(spawn_takes_arguments_literally)
{
    const char *argv[] = {"printf", "%s|%s", "$(id) `id` ; rm *", "a\"b'c", NULL};
    tci_str log = {0};
    int code;
    CHECK_EQ_INT(tci_os_run(argv, 10000, 1000, &log, &code), TCI_SPAWN_OK);
    CHECK_STR(tci_str_text(&log), "$(id) `id` ; rm *|a\"b'c");
    tci_str_free(&log);
}

TEST(spawn_kills_a_hanging_group)
{
    tci_str log = {0};
    int code;
    int64_t start_ns = tci_os_now_ns();
    tct_make_dir();
    char script[1500];
    snprintf(script, sizeof(script), "sleep 60 & echo $! >'%s'; echo started; wait",
             tct_path("pid"));
    CHECK_EQ_INT(tct_sh(script, 400, 1000, &log, &code), TCI_SPAWN_TIMEOUT);
    CHECK((tci_os_now_ns() - start_ns) / 1000000 < 5000);
    CHECK_STR(tci_str_text(&log), "started\n");
    tci_str pid = {0};
    REQUIRE(tci_os_read_file(tct_path("pid"), &pid, NULL));
    int alive = 0; /* the grandchild is gone too (or a zombie that init has yet to reap) */
    for (int i = 0; i < 50; i++) {
        char state[1200];
        snprintf(state, sizeof(state), "ps -o stat= -p %d 2>/dev/null | grep -qv Z",
                 atoi(pid.text));
        alive = system(state) == 0;
        if (!alive) {
            break;
        }
        usleep(20000);
    }
    CHECK(!alive);
    tci_str_free(&pid);
    CHECK_EQ_INT(tct_sh("trap '' TERM INT; exec >&- 2>&-; sleep 60", 200, 10, &log, &code),
                 TCI_SPAWN_TIMEOUT);
    tci_str_free(&log);
    tct_remove_dir();
}

TEST(spawn_cuts_megabytes_of_output)
{
    tci_str log = {0};
    int code;
    CHECK_EQ_INT(tct_sh("head -c 8000000 /dev/zero | tr '\\0' x; echo; echo end", 60000, 5000,
                        &log, &code),
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

TEST(spawn_in_a_host_that_ignores_children)
{
    tci_str log = {0};
    int code;
    void (*old)(int) = signal(SIGCHLD, SIG_IGN);
    /* nobody can know the code */
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
        bool good = tct_sh("echo out; echo err >&2", 10000, 1000, &log, &code) == TCI_SPAWN_OK
                    && !strcmp(tci_str_text(&log), "out\nerr\n");
        _exit(good ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK_EQ_INT(status, 0);
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

TEST(processors_and_clock)
{
    int n = tci_os_cpu_count();
    CHECK(n >= 1 && n <= 65536);
    int64_t first_ns = tci_os_now_ns(), second_ns = tci_os_now_ns();
    CHECK(second_ns >= first_ns);
}

TEST_MAIN
