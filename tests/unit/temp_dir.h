/* tests/unit/temp_dir.h - a fresh private directory of a test, and commands that it runs. After
 * inside.h and tc_test.h. */
#ifndef TC_TEST_TEMP_DIR_H
#define TC_TEST_TEMP_DIR_H

static char tct_dir[512]; /* a fresh private directory of the test that called tct_make_dir */

TCT_UNUSED static void tct_make_dir(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(tct_dir, sizeof(tct_dir), "%s/tc-test-XXXXXX", base && *base ? base : "/tmp");
    REQUIRE(mkdtemp(tct_dir));
}

TCT_UNUSED static const char *tct_path(const char *name) /* valid until the fourth next call */
{
    static char paths[4][1024];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", tct_dir, name);
    return path;
}

/* Entries of the test's directory whose names begin so. */
TCT_UNUSED static int tct_count(const char *begins, bool dirs)
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

TCT_UNUSED static void tct_remove_dir(void)
{
    char command[1024];
    snprintf(command, sizeof(command), "rm -rf '%s'", tct_dir);
    CHECK_EQ_INT(system(command), 0);
}

/* ---- running ---- */

TCT_UNUSED static tci_spawn tct_run(const char *const argv[], int64_t wall_ms, size_t limit,
                                    tci_str *log, int *code)
{
    tci_command c = {.argv = argv, .wall_ms = wall_ms, .log_limit = limit};
    return tci_os_run(&c, log, code);
}

TCT_UNUSED static tci_spawn tct_sh(const char *script, int64_t timeout_ms, size_t limit,
                                   tci_str *log, int *code)
{
    const char *argv[] = {"sh", "-c", script, NULL};
    tci_str_free(log);
    return tct_run(argv, timeout_ms, limit, log, code);
}

#endif
