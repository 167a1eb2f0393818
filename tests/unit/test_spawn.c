/* Processes and loaded objects (base/spawn.c, object_loader.c), processor count and clock. */
#include "inside.h"

#include "tc_test.h"
#include "temp_dir.h"

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
