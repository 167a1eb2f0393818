/* tests/unit/test_io_refused.c - files that are refused: foreign types, damaged headers, ranks and
 * archives, sizes that ask for too much memory, and that nothing is left of them. */
#include "inside.h"

#include "io_file.h"

#include <fcntl.h>

static void check_refused(const char *path, tc_status why, const char *text)
{
    tc_file *file = (tc_file *)(void *)&file;
    tc_status status = tc_file_open(ctx, path, &file);
    CHECK_MSG(status == why, "%s: status %d (%s), expected %d", path, (int)status, tc_error(ctx),
              (int)why);
    CHECK_HAS(tc_error(ctx), text);
    CHECK(file == NULL);
    if (!status) {
        tc_file_close(file);
    }
}

TEST(what_numpy_writes_and_tc_does_not_read)
{
    begin();
    check_refused(DATA "records.npy", TC_ERR_UNSUPPORTED, "records");
    const char *const types[][2] = {{"bigendian.npy", "'>f4', big-endian"},
                                    {"objects.npy", "'|O'"}};
    for (int i = 0; i < 2; i++) {
        char path[64];
        snprintf(path, sizeof(path), DATA "%s", types[i][0]);
        tc_file *file = open_file(path);
        tc_tensor t = tc_file_borrow(ctx, file, NULL);
        CHECK_EQ_INT(tc_status_of(t), TC_ERR_UNSUPPORTED);
        CHECK_HAS(tc_error(t), types[i][1]);
        if (!i) {
            check_values(tc_file_copy_in(ctx, file, NULL), "bigendian.npy");
        }
        tc_file_close(file);
    }
    end();
}

TEST(what_is_no_file_of_arrays)
{
    begin();
    check_refused("/nowhere/a.npz", TC_ERR_IO, "No such file");
    check_refused("/tmp", TC_ERR_IO, "no regular file");
    check_refused("/dev/zero", TC_ERR_IO, "no regular file");
    check_refused(NULL, TC_ERR_ARGUMENT, "the path is NULL");
    check_refused("Makefile", TC_ERR_IO, "none of .npy, .npz, .gguf, nor a .safetensors");
    io_spill(io_path("empty"), "", 0);
    check_refused(io_path("empty"), TC_ERR_IO, "it is empty");
    CHECK_EQ_INT(mkfifo(io_path("fifo"), 0600), 0);
    check_refused(io_path("fifo"), TC_ERR_IO, "no regular file");
    CHECK_EQ_INT(tc_file_open(ctx, "Makefile", NULL), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_status_of(tc_file_borrow(ctx, NULL, "a")), TC_ERR_ARGUMENT);
    CHECK(!tc_file_array(NULL, 0) && !tc_file_find(NULL, "a") && !tc_file_metadata(NULL, "a"));
    tc_file *file = open_file(DATA "numpy.npz");
    CHECK_HAS(tc_error(tc_file_borrow(ctx, file, NULL)), "the file has 16 arrays");
    CHECK_HAS(tc_error(tc_file_borrow(ctx, file, "f31\n")), "no array 'f31?'");
    tc_tensor none = tc_file_borrow(NULL, file, "f32");
    CHECK_EQ_INT(tc_status_of(none), TC_ERR_HANDLE);
    tc_file_close(file);
    tc_file *same = (tc_file *)(void *)&same;
    CHECK_EQ_INT(tc_file_open(NULL, DATA "numpy.npz", &same), TC_ERR_HANDLE);
    CHECK(!same);
    end();
}

/* A header of safetensors, and `data` bytes behind it. */
static void check_header(const char *header, size_t data, tc_status why, const char *text)
{
    size_t n = strlen(header);
    unsigned char *file = calloc(8 + n + data, 1);
    REQUIRE(file);
    for (int i = 0; i < 8; i++) {
        file[i] = (unsigned char)((uint64_t)n >> (8 * i));
    }
    memcpy(file + 8, header, n);
    io_spill(io_path("h.safetensors"), file, 8 + n + data);
    free(file);
    if (why) {
        check_refused(io_path("h.safetensors"), why, text);
    } else {
        tc_file_close(open_file(io_path("h.safetensors")));
    }
}

#define ARRAY(dtype, shape, offsets)                                                               \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

TEST(headers_of_safetensors)
{
    static char deep[40000];
    begin();
    check_header("{\"a\":" ARRAY("F32", "[2]", "[0,8]") "}", 8, TC_OK, "");
    check_header(" {}  ", 0, TC_OK, "");
    check_header("{\"\\u00e9\\ud83d\\ude00\\n\":" ARRAY("F8_E4M3", "[2]", "[0,2]") "}", 2, TC_OK,
                 "");
    check_header("{\"a\":" ARRAY("F32", "[0,3]", "[0,0]") ",\"b\":" ARRAY("U8", "[]", "[0,1]") "}",
                 1, TC_OK, "");
    check_header("{\"a\":" ARRAY("F32", "[2]", "[0,8]") "}", 7, TC_ERR_IO, "has data from 0 to 8");
    check_header("{\"a\":" ARRAY("F32", "[2]", "[0,8]") "}", 9, TC_ERR_IO, "8 of the 9 bytes");
    check_header("{\"a\":" ARRAY("F32", "[2]", "[8,0]") "}", 8, TC_ERR_IO, "from 8 to 0");
    check_header("{\"a\":" ARRAY("F32", "[2]", "[0,4]") "}", 4, TC_ERR_IO, "its sizes make 8");
    check_header("{\"a\":" ARRAY("F32", "[-2]", "[0,8]") "}", 8, TC_ERR_IO, "0 or more");
    check_header("{\"a\":" ARRAY("F32", "[2.0]", "[0,8]") "}", 8, TC_ERR_IO, "expected ']'");
    check_header("{\"a\":" ARRAY("F32", "[02]", "[0,8]") "}", 8, TC_ERR_IO, "0 or more");
    check_header("{\"a\":" ARRAY("F32", "[2,]", "[0,8]") "}", 8, TC_ERR_IO, "0 or more");
    check_header("{\"a\":" ARRAY("F32", "[4294967296,4294967296]", "[0,8]") "}", 8, TC_ERR_IO,
                 "no memory can hold");
    check_header("{\"a\":" ARRAY("F32", "[99999999999999999999]", "[0,8]") "}", 8, TC_ERR_IO,
                 "no memory can hold");
    check_header("{\"a\":" ARRAY("F32", "[0,9223372036854775807]", "[0,0]") "}", 0, TC_ERR_IO,
                 "no memory can hold");
    check_header("{\"a\":" ARRAY("F32", "[1]", "[0,18446744073709551615]") "}", 8, TC_ERR_IO,
                 "no memory can hold");
    check_header("{\"a\":" ARRAY("F32", "[1]", "[0,4,8]") "}", 8, TC_ERR_IO, "two data_offsets");
    check_header("{\"a\":" ARRAY("F32", "[1]", "[0,4]") ",\"a\":" ARRAY("F32", "[1]", "[4,8]") "}",
                 8, TC_ERR_IO, "two arrays are named 'a'");
    check_header("{\"a\":" ARRAY("F32", "[2]", "[0,8]") ",\"b\":" ARRAY("F32", "[1]", "[4,8]") "}",
                 8, TC_ERR_IO, "the data of 'a' and of 'b' overlap");
    check_header("{\"a\":" ARRAY("F9", "[2]", "[0,8]") ",\"b\":" ARRAY("F9", "[1]", "[0,4]") "}", 8,
                 TC_ERR_IO, "overlap");
    check_header("{\"a\":" ARRAY("F9", "[2]", "[0,8]") ",\"b\":" ARRAY("U8", "[4]", "[4,8]") "}", 8,
                 TC_ERR_IO, "the data of 'a' and of 'b' overlap");
    check_header("{\"a\":" ARRAY("F32", "[1]", "[0,4]") ",\"b\":" ARRAY("F32", "[1]", "[8,12]") "}",
                 12, TC_ERR_IO, "8 of the 12 bytes");
    check_header("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[]}}", 4, TC_ERR_IO,
                 "'a' has 'dtype'");
    check_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, TC_ERR_IO, "expected ','");
    check_header("{\"a\":[]}", 0, TC_ERR_IO, "expected '{'");
    check_header("{\"a", 0, TC_ERR_IO, "expected '\"'");
    check_header("{\"a\\", 0, TC_ERR_IO, "an escape");
    check_header("{\"a\\u12", 0, TC_ERR_IO, "hexadecimal");
    check_header("{\"\\ud800\":1}", 0, TC_ERR_IO, "expected a character");
    check_header("{\"\\u0000\":1}", 0, TC_ERR_IO, "expected a character");
    check_header("{\"\\q\":1}", 0, TC_ERR_IO, "an escape");
    check_header("{\"\n\":1}", 0, TC_ERR_IO, "control character");
    check_header("{\"\xe9\":1}", 0, TC_ERR_IO, "not UTF-8");
    check_header("{\"\xc0\xaf\":1}", 0, TC_ERR_IO, "not UTF-8");
    check_header("{\"\xed\xa0\x80\":1}", 0, TC_ERR_IO, "not UTF-8");
    check_header("{}x", 0, TC_ERR_IO, "its end");
    check_header("{\"__metadata__\":{\"k\":1}}", 0, TC_ERR_IO, "expected '\"'");
    check_header("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", 0, TC_ERR_IO,
                 "two entries of the metadata are named 'k'");
    strcpy(deep, "{\"a\":");
    memset(deep + 5, '[', sizeof(deep) - 6);
    check_header(deep, 0, TC_ERR_IO, "expected '{'");
    memcpy(deep + 5, "{\"shape\":", 9);
    check_header(deep, 0, TC_ERR_IO, "0 or more");
    unsigned char large[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, '{', '}'};
    io_spill(io_path("l"), large, sizeof(large));
    check_refused(io_path("l"), TC_ERR_IO, "18446744073709551615 of 16 bytes");
    end();
}

/* ---- ranks ---- */

/* The text "{before}1,1,...,1{after}" of so many sizes. The caller frees it. */
static char *sizes_text(const char *before, int rank, const char *after)
{
    char *text = malloc(strlen(before) + 2 * (size_t)rank + strlen(after) + 1), *at = text;
    REQUIRE(text);
    at += sprintf(at, "%s", before);
    for (int i = 0; i < rank; i++) {
        at += sprintf(at, i + 1 < rank ? "1," : "1");
    }
    strcpy(at, after);
    return text;
}

static void check_npy_of_rank(int rank, bool fits)
{
    char *header = sizes_text("{'descr': '<f4', 'fortran_order': True, 'shape': (", rank, ")}");
    size_t n = strlen(header);
    unsigned char *file = calloc(n + 16, 1);
    REQUIRE(file);
    memcpy(file, "\x93NUMPY\2\0", 8);
    for (int i = 0; i < 4; i++) {
        file[8 + i] = (unsigned char)(n >> 8 * i);
    }
    memcpy(file + 12, header, n);
    io_spill(io_path("r.npy"), file, n + 16);
    if (fits) {
        float got = 1;
        tc_file *f = open_file(io_path("r.npy"));
        tc_tensor t = tc_file_copy_in(ctx, f, NULL);
        CHECK_EQ_INT(tc_rank(t), rank);
        CHECK(tc_read(t, &got, 1) == TC_OK && got == 0);
        tc_file_close(f);
    } else {
        check_refused(io_path("r.npy"), TC_ERR_IO, "more than 64 sizes");
    }
    free(file);
    free(header);
}

/* Files come from anybody: 64 axes, as in NumPy 2, are what they may have. */
TEST(files_of_many_axes_are_refused)
{
    begin();
    check_npy_of_rank(64, true);
    check_npy_of_rank(65, false);
    check_npy_of_rank(200000, false);
    for (int rank = 64; rank <= 65; rank++) {
        char *text = sizes_text("{\"a\":{\"dtype\":\"F32\",\"shape\":[", rank,
                                "],\"data_offsets\":[0,4]}}");
        check_header(text, 4, rank == 64 ? TC_OK : TC_ERR_IO, "more than 64 sizes");
        free(text);
    }
    tc_tensor t = tc_full(ctx, 3, TC_F32, 1);
    int64_t ones[65];
    for (int i = 0; i < 65; i++) {
        ones[i] = 1;
    }
    static const char *const names[] = {"a"}, *const paths[] = {"o.npy", "o.npz", "o.safetensors"};
    for (int i = 0; i < 3; i++) {
        tc_tensor most = tc_reshape_at(t, 64, ones, TC_HERE);
        tc_tensor more = tc_reshape_at(t, 65, ones, TC_HERE);
        CHECK_EQ_INT(tc_file_write(ctx, io_path(paths[i]), names, TC_TENSORS(most), NULL), TC_OK);
        tc_file *file = open_file(io_path(paths[i]));
        CHECK_EQ_INT(tc_rank(tc_file_borrow(ctx, file, NULL)), 64);
        tc_file_close(file);
        unlink(io_path(paths[i]));
        check_fails(tc_file_write(ctx, io_path(paths[i]), names, TC_TENSORS(more), NULL),
                    TC_ERR_LIMIT, "65 axes: expected at most 64");
        CHECK(access(io_path(paths[i]), F_OK) != 0);
    }
    end();
}

/* A header of 80 MB, all of it sizes, is refused at the first that is too many (it took minutes and
 * gigabytes); one of 1 MB that is fine, 30,000 pairs of text, is read at once. */
TEST(long_headers_take_no_time)
{
    begin();
    char *text = sizes_text("{\"a\":{\"dtype\":\"F32\",\"shape\":[", 40000000,
                            "],\"data_offsets\":[0,4]}}");
    int64_t before = tci_os_now_ns();
    check_header(text, 4, TC_ERR_IO, "more than 64 sizes");
    CHECK(tci_os_now_ns() - before < (int64_t)20 * 1000000000);
    free(text);
    tci_str pairs = {0};
    tci_str_add(&pairs, "{\"__metadata__\":{");
    for (int i = 0; i < 30000; i++) {
        tci_str_printf(&pairs, "%s\"%x\\\\\":\"\\\"\"", i ? "," : "", i * 7919);
    }
    tci_str_add(&pairs, "}}");
    before = tci_os_now_ns();
    check_header(pairs.text, 0, TC_OK, "");
    CHECK(tci_os_now_ns() - before < (int64_t)5 * 1000000000);
    tci_str_free(&pairs);
    end();
}

/* Little-endian numbers of so many bytes. */
static void put_number(tci_str *to, unsigned long long number, int bytes)
{
    for (int i = 0; i < bytes; i++, number >>= 8) {
        char c = (char)(number & 255);
        tci_str_add_n(to, &c, 1);
    }
}

/* An archive whose 40 entries are all one array with a header of 4 MB: what is read of a file is
 * bounded by more than its size. */
TEST(entries_that_share_a_header)
{
    enum { ENTRIES = 40, HEADER = 4 << 20 };
    static const char dictionary[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}";
    begin();
    tci_str zip = {0};
    char *header = malloc(HEADER);
    REQUIRE(header);
    memset(header, ' ', HEADER);
    memcpy(header, dictionary, strlen(dictionary));
    const unsigned long long bytes = 12 + HEADER + 4;
    put_number(&zip, 0x04034b50, 4);
    put_number(&zip, 0, 26);
    tci_str_add_n(&zip, "\x93NUMPY\2\0", 8);
    put_number(&zip, HEADER, 4);
    tci_str_add_n(&zip, header, HEADER);
    put_number(&zip, 0, 4);
    size_t directory = zip.n;
    for (int i = 0; i < ENTRIES; i++) {
        put_number(&zip, 0x02014b50, 4);
        put_number(&zip, 0, 16);
        put_number(&zip, bytes, 4);
        put_number(&zip, bytes, 4);
        put_number(&zip, 6, 2);
        put_number(&zip, 0, 16);
        tci_str_printf(&zip, "%02d.npy", i);
    }
    size_t end_at = zip.n;
    put_number(&zip, 0x06054b50, 4);
    put_number(&zip, 0, 4);
    put_number(&zip, ENTRIES, 2);
    put_number(&zip, ENTRIES, 2);
    put_number(&zip, end_at - directory, 4);
    put_number(&zip, directory, 4);
    put_number(&zip, 0, 2);
    io_spill(io_path("z.npz"), zip.text, zip.n);
    check_refused(io_path("z.npz"), TC_ERR_IO, "for all arrays");
    tci_str_free(&zip);
    free(header);
    end();
}

/* A line of an archive's directory, of an entry that is stored at the start of the file. */
static void put_entry(tci_str *zip, const char *prefix, const char *name, size_t bytes)
{
    put_number(zip, 0x02014b50, 4);
    put_number(zip, 0, 16);
    put_number(zip, bytes, 4);
    put_number(zip, bytes, 4);
    put_number(zip, strlen(prefix) + strlen(name), 2);
    put_number(zip, 0, 16);
    tci_str_add(zip, prefix);
    tci_str_add(zip, name);
}

/* A checkpoint of one tensor, which stands `shared` ^ 4 times in nested tuples below a key. */
static void write_shared_checkpoint(const char *path, const char *prefix, const char *key,
                                    int shared)
{
    static const char tensor[] = "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storage"
                                 "ctorch\nFloatStorage\nX\1\0\0\0"
                                 "0X\3\0\0\0cpuK\1tQK\0))\x89)tRq";
    tci_str zip = {0};
    put_number(&zip, 0x04034b50, 4);
    put_number(&zip, 0, 26);
    tci_str_add_n(&zip, "\x80\2}X", 4);
    put_number(&zip, strlen(key), 4);
    tci_str_add(&zip, key);
    tci_str_add(&zip, "((((");
    tci_str_add_n(&zip, tensor, sizeof(tensor) - 1);
    put_number(&zip, 0, 1);
    for (int level = 0; level < 4; level++) {
        for (int i = 1; i < shared; i++) {
            tci_str_add(&zip, "h");
            put_number(&zip, (unsigned)level, 1);
        }
        tci_str_add(&zip, "tq");
        put_number(&zip, (unsigned)level + 1, 1);
    }
    tci_str_add(&zip, "s.");
    size_t directory = zip.n;
    put_entry(&zip, prefix, "data.pkl", directory - 30);
    put_entry(&zip, prefix, "data/0", 4);
    size_t end_at = zip.n;
    put_number(&zip, 0x06054b50, 4);
    put_number(&zip, 0, 4);
    put_number(&zip, 2, 2);
    put_number(&zip, 2, 2);
    put_number(&zip, end_at - directory, 4);
    put_number(&zip, directory, 4);
    put_number(&zip, 0, 2);
    io_spill(path, zip.text, zip.n);
    tci_str_free(&zip);
}

/* A pickle may hold one value many times, each under a name of its own: names are bounded. */
TEST(a_small_checkpoint_does_not_ask_for_much_memory)
{
    begin();
    static char prefix[60000], key[900];
    memset(key, 'k', sizeof(key) - 1);
    memset(prefix, 'p', sizeof(prefix) - 2);
    prefix[sizeof(prefix) - 2] = '/';
    write_shared_checkpoint(io_path("c.pt"), "p/", "k", 3);
    tc_file *file = open_file(io_path("c.pt"));
    CHECK(tc_file_array(file, 80) && !tc_file_array(file, 81));
    CHECK(tc_file_find(file, "k.2.0.1.2") != NULL);
    tc_file_close(file);
    write_shared_checkpoint(io_path("p.pt"), prefix, "k", 8);
    check_refused(io_path("p.pt"), TC_ERR_IO, "too long a name");
    write_shared_checkpoint(io_path("n.pt"), "p/", key, 20);
    check_refused(io_path("n.pt"), TC_ERR_IO, "its names have more than");
    end();
}

/* A header of 1 GB in a sparse file is refused before it is read. */
TEST(headers_of_a_gigabyte)
{
    begin();
    unsigned char st[8] = {0, 0, 0, 64}, gg[24] = {'G', 'G', 'U', 'F', 3};
    unsigned char np[12] = {0x93, 'N', 'U', 'M', 'P', 'Y', 2, 0, 0, 0, 0, 64};
    memset(gg + 8, 0xff, 4); /* tensors */
    io_spill(io_path("st"), st, sizeof(st));
    io_spill(io_path("np"), np, sizeof(np));
    io_spill(io_path("gg"), gg, sizeof(gg));
    const char *const names[] = {"st", "np", "gg"};
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(truncate(io_path(names[i]), (off_t)3 << 30), 0);
        check_refused(io_path(names[i]), TC_ERR_IO,
                      i < 2 ? "at most 100000000" : "would have 4294967295 arrays");
    }
    end();
}

TEST(headers_of_npy)
{
    static const struct {
        const char *header;
        const char *text;
    } rows[] = {{"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", ""},
                {"{\"shape\":(2),'descr': '<f4', 'fortran_order': True}", ""},
                {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", "0 or more"},
                {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", "its sizes make 12"},
                {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "its sizes make 4"},
                {"{'descr': '<f4', 'fortran_order': False, 'shape': [2], }", "expected '('"},
                {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,), }", "neither True nor False"},
                {"{'descr': '<f4', 'fortran_order': False, }", "lacks one of"},
                {"{'descr': '<f4', 'descr': '<f4', 'shape': (2,), }", "has 'descr'"},
                {"{'descr': '<f4', 'x': False, 'shape': (2,), }", "has 'x'"},
                {"{'descr': '<f\\x34', }", "the end of a string"},
                {"{'descr': '<f4", "the end of a string"},
                {"{'descr': ((((((((((((", "expected a string"},
                {"", "expected '{'"},
                {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), } x",
                 "expected its end"}};
    begin();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        unsigned char file[256] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
        size_t n = strlen(rows[i].header);
        file[8] = (unsigned char)n;
        memcpy(file + 10, rows[i].header, n);
        io_spill(io_path("a.npy"), file, 10 + n + 8);
        if (*rows[i].text) {
            check_refused(io_path("a.npy"), TC_ERR_IO, rows[i].text);
        } else {
            tc_file_close(open_file(io_path("a.npy")));
        }
    }
    end();
}

/* An .npz of NumPy with bytes changed at a place of its directory or its end. */
static void check_zip(const char *what, size_t from_end, const char *bytes, size_t n, tc_status why,
                      const char *text)
{
    io_bytes b = io_slurp(DATA "numpy.npz");
    size_t directory = b.at[b.n - 6] | (size_t)b.at[b.n - 5] << 8;
    size_t at = from_end ? b.n - from_end : directory;
    (void)what;
    memcpy(b.at + at, bytes, n);
    io_spill(io_path("z.npz"), b.at, b.n);
    free(b.at);
    check_refused(io_path("z.npz"), why, text);
}

TEST(archives)
{
    begin();
    check_zip("number of entries", 12, "\x0f\x00", 2, TC_ERR_IO, "damaged");
    check_zip("zip64 without its record", 12, "\xff\xff", 2, TC_ERR_IO, "damaged");
    check_zip("zip64 without its record", 6, "\xff\xff\xff\xff", 4, TC_ERR_IO, "damaged");
    check_zip("place of the directory", 6, "\x00\x00\x00\x00", 4, TC_ERR_IO, "damaged");
    check_zip("several parts", 18, "\x01\x00", 2, TC_ERR_IO, "several parts");
    check_zip("end", 22, "PK\5\7", 4, TC_ERR_IO, "cut short");
    check_zip("comment", 2, "\5\0", 2, TC_ERR_IO, "cut short");
    check_zip("entry", 0, "PK\1\3", 4, TC_ERR_IO, "directory is damaged");
    check_zip("encrypted", 0, "PK\1\2\x2d\3\x2d\0\1\0", 10, TC_ERR_UNSUPPORTED, "encrypted");
    check_zip("method", 0, "PK\1\2\x2d\3\x2d\0\0\0\x0e\0", 12, TC_ERR_UNSUPPORTED, "compressed");
    io_bytes b = io_slurp(DATA "numpy.npz");
    for (size_t n = 1; n < b.n; n += 97) {
        io_spill(io_path("z.npz"), b.at, n);
        tc_file *file = NULL;
        CHECK_EQ_INT(tc_file_open(ctx, io_path("z.npz"), &file), TC_ERR_IO);
    }
    free(b.at);
    end();
}

/* Both orders of a sum that ends the same: what is read is what was there at the open. */
TEST(files_that_shrink)
{
    begin();
    static const char *const names[] = {"a"};
    CHECK_EQ_INT(tc_file_write(ctx, io_path("s.safetensors"), names,
                               TC_TENSORS(tc_full(ctx, 1, TC_F32, 1 << 16)), NULL),
                 TC_OK);
    tc_file *file = open_file(io_path("s.safetensors"));
    tc_tensor borrowed = tc_file_borrow(ctx, file, "a"), copied = tc_file_copy_in(ctx, file, "a");
    CHECK(tc_status_of(borrowed) == TC_OK && tc_status_of(copied) == TC_OK);
    CHECK_EQ_INT(truncate(io_path("s.safetensors"), 200), 0);
    CHECK_HAS(tc_error(tc_file_borrow(ctx, file, "a")), "has become shorter");
    CHECK_EQ_INT(tc_status_of(tc_file_copy_in(ctx, file, "a")), TC_ERR_IO);
    float sum = 0;
    CHECK_EQ_INT(tc_read(tc_sum(copied, TC_ALL, false), &sum, 1), TC_OK);
    CHECK(sum == 1 << 16);
    tc_file_close(file);
    end();
}

/* No descriptor, map or block is left, whatever happened. */
TEST(nothing_is_left)
{
    begin();
    long live = tci_test_alloc_live;
    int fd = open("/dev/null", O_RDONLY);
    close(fd);
    tc_file *file;
    for (int i = 0; i < 20; i++) {
        CHECK_EQ_INT(tc_file_open(ctx, DATA "records.npy", &file), TC_ERR_UNSUPPORTED);
        CHECK_EQ_INT(tc_file_open(ctx, DATA "numpy.npz", &file), TC_OK);
        tc_file_close(file);
        CHECK_EQ_INT(tc_file_open(ctx, DATA "deflated.npz", &file), TC_OK);
        tc_file_close(file);
    }
    int again = open("/dev/null", O_RDONLY);
    CHECK_EQ_INT(again, fd);
    close(again);
    CHECK(tci_test_alloc_live <= live + 4); /* the context's record of the error */
    end();
}

TEST_MAIN
