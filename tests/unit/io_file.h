/* tests/unit/io_file.h - what the tests of arrays in files share: a context, and the values of
 * the files of tests/data/io. These were written by NumPy 2.4, safetensors 0.8 and gguf 0.19 for
 * Python: an array named after a dtype has sizes [2, 3, 4] and element i, row-major, v = i * 7 %
 * 11 of unsigned integers, v - 3 of signed ones, (v - 3) / 4 of floats, v % 2 of bool. */
#ifndef TESTS_UNIT_IO_FILE_H
#define TESTS_UNIT_IO_FILE_H

#include "io.h"

#define DATA "tests/data/io/"

static tc_ctx *ctx;

TCT_UNUSED static void begin(void)
{
    tc_options o = {.backend = "interp", .threads = 1, .no_disk_cache = true, .verify = true};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

TCT_UNUSED static void end(void)
{
    tc_ctx_free(ctx);
    io_clean();
}

TCT_UNUSED static tc_file *open_file(const char *path)
{
    tc_file *file = NULL;
    CHECK_MSG(tc_file_open(ctx, path, &file) == TC_OK, "%s", tc_error(ctx));
    REQUIRE(file != NULL);
    return file;
}

TCT_UNUSED static bool starts(const char *name, char c)
{
    return name[0] == c;
}

TCT_UNUSED static double expected(const char *dtype, int i)
{
    int v = i * 7 % 11;
    if (!strcmp(dtype, "bool")) {
        return v % 2;
    }
    return starts(dtype, 'u') ? v : starts(dtype, 'i') ? v - 3 : (v - 3) / 4.0;
}

/* The elements are those that every file has for the dtype. */
TCT_UNUSED static void check_values(tc_tensor t, const char *what)
{
    double got[24];
    const char *dtype = tc_dtype_name(tc_dtype_of(t));
    int n = (int)tc_count(t);
    CHECK_MSG(tc_status_of(t) == TC_OK, "%s: %s", what, tc_error(t));
    if (tc_status_of(t) || n > 24 || tc_read(tc_cast(t, TC_F64), got, n)) {
        CHECK_MSG(false, "%s cannot be read", what);
        return;
    }
    for (int i = 0; i < n; i++) {
        CHECK_MSG(got[i] == expected(dtype, i), "%s: element %d is %g, expected %g", what, i,
                  got[i], expected(dtype, i));
    }
}

TCT_UNUSED static bool is_borrowed(tc_tensor t)
{
    const tci_node *n = tci_handle_node(t);
    return n && n->storage && n->storage->borrowed;
}

TCT_UNUSED static void check_fails(tc_status got, tc_status why, const char *text)
{
    CHECK_EQ_INT(got, why);
    CHECK_HAS(tc_error(ctx), text);
}

#endif
