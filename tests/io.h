/* tests/io.h - files for the tests of io/: a scratch folder, whole files as bytes. */
#ifndef TESTS_IO_H
#define TESTS_IO_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tc_test.h"

typedef struct io_bytes {
    unsigned char *at;
    size_t n;
} io_bytes;

static char io_dir[64];

/* A path in the scratch folder of this process; until the next call but three. */
static const char *io_path(const char *name)
{
    static char paths[4][160];
    static int next;
    if (!io_dir[0]) {
        strcpy(io_dir, "/tmp/tc-io-XXXXXX");
        REQUIRE(mkdtemp(io_dir) != NULL);
    }
    next = (next + 1) % 4;
    snprintf(paths[next], sizeof(paths[next]), "%s/%s", io_dir, name);
    return paths[next];
}

TCT_UNUSED static void io_clean(void)
{
    char command[96];
    if (io_dir[0]) {
        snprintf(command, sizeof(command), "rm -rf %s", io_dir);
        CHECK_EQ_INT(system(command), 0);
        io_dir[0] = 0;
    }
}

TCT_UNUSED static int io_count_files(void)
{
    char command[96];
    int n = -1;
    snprintf(command, sizeof(command), "ls -A %s | wc -l", io_dir);
    FILE *pipe = popen(command, "r");
    if (pipe) {
        CHECK_EQ_INT(fscanf(pipe, "%d", &n), 1);
        pclose(pipe);
    }
    return n;
}

/* The caller frees them. */
TCT_UNUSED static io_bytes io_slurp(const char *path)
{
    io_bytes b = {NULL, 0};
    FILE *f = fopen(path, "rb");
    if (f) {
        fseek(f, 0, SEEK_END);
        b.n = (size_t)ftell(f);
        fseek(f, 0, SEEK_SET);
        b.at = malloc(b.n + 1);
        b.n = b.at ? fread(b.at, 1, b.n, f) : 0;
        fclose(f);
    }
    CHECK_MSG(b.at != NULL, "%s cannot be read", path);
    return b;
}

TCT_UNUSED static void io_spill(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(bytes, 1, n, f) == n);
    if (f) {
        CHECK_EQ_INT(fclose(f), 0);
    }
}

#endif
