/* tests/unit/test_io.c - arrays in files. Files of tests/data/io were written by NumPy 2.4,
 * safetensors 0.8 and gguf 0.19 for Python: an array named after a dtype has sizes [2, 3, 4] and
 * element i, row-major, v = i * 7 % 11 of unsigned integers, v - 3 of signed ones, (v - 3) / 4 of
 * floats, v % 2 of bool. */
#include "inside.h"

#include "io.h"

#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define DATA "tests/data/io/"

static tc_ctx *ctx;

static void begin(void)
{
    tc_options o = {.backend = "interp", .threads = 1, .no_disk_cache = true, .verify = true};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

static void end(void)
{
    tc_ctx_free(ctx);
    io_clean();
}

static tc_file *open_file(const char *path)
{
    tc_file *file = NULL;
    CHECK_MSG(tc_file_open(ctx, path, &file) == TC_OK, "%s", tc_error(ctx));
    REQUIRE(file != NULL);
    return file;
}

static bool starts(const char *name, char c)
{
    return name[0] == c;
}

static double expected(const char *dtype, int i)
{
    int v = i * 7 % 11;
    if (!strcmp(dtype, "bool")) {
        return v % 2;
    }
    return starts(dtype, 'u') ? v : starts(dtype, 'i') ? v - 3 : (v - 3) / 4.0;
}

/* The elements are those that every file has for the dtype. */
static void check_values(tc_tensor t, const char *what)
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

static bool is_borrowed(tc_tensor t)
{
    const tci_node *n = tci_handle_node(t);
    return n && n->storage && n->storage->borrowed;
}

/* Of every dtype that tc has, by both ways in. */
static void check_dtypes(tc_file *file, const char *path)
{
    char what[200];
    for (int d = TC_BOOL; d < TC_DTYPE_COUNT; d++) {
        const char *name = tc_dtype_name((tc_dtype)d);
        const tc_array *a = tc_file_find(file, name);
        snprintf(what, sizeof(what), "%s of %s", name, path);
        CHECK_MSG(a != NULL, "%s is missing", what);
        if (a) {
            CHECK(a->dtype == (tc_dtype)d && a->rank == 3);
            CHECK(a->sizes[0] == 2 && a->sizes[1] == 3 && a->sizes[2] == 4);
            check_values(tc_file_borrow(ctx, file, name), what);
            check_values(tc_file_copy_in(ctx, file, name), what);
        }
    }
}

/* ---- files of others ---- */

TEST(numpy_npz)
{
    begin();
    tc_file *file = open_file(DATA "numpy.npz");
    check_dtypes(file, "numpy.npz");
    check_values(tc_file_borrow(ctx, file, "fortran"), "fortran");
    check_values(tc_file_copy_in(ctx, file, "fortran"), "fortran");
    tc_tensor scalar = tc_file_borrow(ctx, file, "scalar"), none;
    CHECK_EQ_INT(tc_rank(scalar), 0);
    check_values(scalar, "scalar");
    none = tc_file_borrow(ctx, file, "empty");
    CHECK(tc_count(none) == 0 && tc_size(none, 1) == 4 && tc_dtype_of(none) == TC_I16);
    int n = 0;
    for (const tc_array *a; (a = tc_file_array(file, n)) != NULL; n++) {
        CHECK(!n || strcmp(tc_file_array(file, n - 1)->name, a->name) < 0);
    }
    CHECK_EQ_INT(n, 16);
    CHECK(!tc_file_array(file, -1) && !tc_file_find(file, "nothing") && !tc_file_find(file, NULL));
    CHECK(!tc_file_metadata(file, "format"));
    tc_file_close(file);
    end();
}

/* The same arrays deflated at each level of zlib, some stored, some big-endian (Python 3, NumPy
 * 2.4.6). */
TEST(deflated_npz)
{
    begin();
    tc_file *file = open_file(DATA "deflated.npz"), *plain = open_file(DATA "numpy.npz");
    int n = 0, swapped = 0;
    for (const tc_array *a; (a = tc_file_array(file, n)) != NULL; n++) {
        tc_tensor wanted = tc_file_copy_in(ctx, plain, a->name);
        tc_tensor copied = tc_file_copy_in(ctx, file, a->name);
        tc_tensor borrowed = tc_file_borrow(ctx, file, a->name);
        CHECK_MSG(!tc_status_of(copied), "%s", tc_error(copied));
        CHECK(tc_dtype_of(copied) == tc_dtype_of(wanted) && tc_rank(copied) == tc_rank(wanted));
        if (tc_nbytes(wanted) > 0) {
            char x[1024], y[1024];
            CHECK_EQ_INT(tc_read(wanted, (void *)x, tc_nbytes(wanted)), TC_OK);
            CHECK_EQ_INT(tc_read(copied, (void *)y, tc_nbytes(wanted)), TC_OK);
            CHECK_MSG(!memcmp(x, y, (size_t)tc_nbytes(wanted)), "%s", a->name);
        }
        if (a->type[0] == '>') {
            swapped++;
            CHECK_EQ_INT(tc_status_of(borrowed), TC_ERR_UNSUPPORTED);
            CHECK_HAS(tc_error(borrowed), "big-endian: tc_file_copy_in swaps its bytes");
        } else {
            CHECK_EQ_INT(tc_status_of(borrowed), TC_OK);
        }
    }
    CHECK(n == 16 && swapped >= 3);
    tc_tensor kept = tc_file_borrow(ctx, file, "f32"); /* a copy: the file may go */
    tc_file_close(file);
    tc_file_close(plain);
    check_values(kept, "f32");
    end();
}

/* Parameters come from deflated and big-endian arrays too. */
TEST(deflated_npz_is_loaded)
{
    begin();
    tc_tensor p = tc_named(tc_param_from(tc_full(ctx, 0, TC_F32, 2, 3, 4)), "a");
    CHECK_MSG(!tc_load(ctx, DATA "compressed.npz"), "%s", tc_error(ctx));
    check_values(p, "compressed.npz");
    end();
}

TEST(damaged_data_of_a_deflated_array)
{
    begin();
    io_bytes b = io_slurp(DATA "compressed.npz");
    size_t last = b.n - 22, first = last - (b.at[last + 12] | (size_t)b.at[last + 13] << 8);
    b.at[first - 3] ^= 16;
    io_spill(io_path("damaged.npz"), b.at, b.n);
    tc_file *file = open_file(io_path("damaged.npz"));
    tc_tensor t = tc_file_copy_in(ctx, file, "a");
    CHECK_EQ_INT(tc_status_of(t), TC_ERR_IO);
    CHECK_HAS(tc_error(t), "'a' is damaged: its compressed data is not what its checksum says");
    tc_file_close(file);
    b.at[first + 27] = 1; /* 16 MB and more */
    io_spill(io_path("bomb.npz"), b.at, b.n);
    file = NULL;
    CHECK_EQ_INT(tc_file_open(ctx, io_path("bomb.npz"), &file), TC_ERR_IO);
    CHECK_HAS(tc_error(ctx), "compressed ones");
    free(b.at);
    end();
}

/* Sizes and places in fields of 64 bits, as beyond 4 GiB (Python's zipfile). */
TEST(a_zip64_archive)
{
    begin();
    tc_file *file = open_file(DATA "wide.npz");
    float a[5];
    CHECK_EQ_INT(tc_read(tc_file_copy_in(ctx, file, "a"), a, 5), TC_OK);
    CHECK(a[0] == 0 && a[4] == 4);
    tc_file_close(file);
    end();
}

/* Of torch.save of PyTorch 2.15 (tests/data/io/make_torch.py). */
TEST(a_state_dict_of_pytorch)
{
    begin();
    tc_file *file = open_file(DATA "torch.pt");
    check_dtypes(file, "torch.pt");
    check_values(tc_file_borrow(ctx, file, "fortran"), "fortran");
    check_values(tc_file_copy_in(ctx, file, "scalar"), "scalar");
    tc_tensor none = tc_file_borrow(ctx, file, "empty");
    CHECK(tc_count(none) == 0 && tc_size(none, 1) == 4 && tc_dtype_of(none) == TC_I16);
    CHECK(is_borrowed(tc_file_borrow(ctx, file, "f32")));
    CHECK(!strcmp(tc_file_find(file, "f32")->type, "FloatStorage"));
    tc_file_close(file);
    end();
}

TEST(a_checkpoint_of_pytorch)
{
    begin();
    tc_file *file = open_file(DATA "checkpoint.pth");
    float w[12], tied[12], b[3], tail[12], turned[24], ones[2];
    CHECK_EQ_INT(tc_read(tc_file_borrow(ctx, file, "model.0.weight"), w, 12), TC_OK);
    CHECK_EQ_INT(tc_read(tc_file_copy_in(ctx, file, "model.tied"), tied, 12), TC_OK);
    CHECK_EQ_INT(tc_read(tc_file_copy_in(ctx, file, "model.0.bias"), b, 3), TC_OK);
    CHECK_EQ_INT(tc_read(tc_file_copy_in(ctx, file, "tail"), tail, 12), TC_OK);
    CHECK_EQ_INT(tc_read(tc_file_copy_in(ctx, file, "transposed"), turned, 24), TC_OK);
    CHECK_EQ_INT(tc_read(tc_file_copy_in(ctx, file, "list.0"), ones, 2), TC_OK);
    for (int i = 0; i < 12; i++) {
        CHECK(w[i] == (float)i && tied[i] == w[i] && tail[i] == (float)(12 + i));
    }
    CHECK(b[2] == 1 && ones[1] == 1 && turned[1] == 6 && turned[4] == 1);
    CHECK(tc_file_find(file, "parameter") && tc_file_find(file, "model.1.num_batches_tracked"));
    CHECK(!strcmp(tc_file_metadata(file, "epoch"), "3"));
    CHECK(!strcmp(tc_file_metadata(file, "rate"), "0.125"));
    CHECK(!strcmp(tc_file_metadata(file, "name"), "net"));
    CHECK(!strcmp(tc_file_metadata(file, "size.1"), "6"));
    tc_tensor strided = tc_file_copy_in(ctx, file, "strided");
    CHECK_EQ_INT(tc_status_of(strided), TC_ERR_UNSUPPORTED);
    CHECK_HAS(tc_error(strided), "is a view with strides");
    tc_file_close(file);
    end();
}

TEST(pickles_that_call_anything_are_refused)
{
    static const struct {
        const char *path;
        tc_status status;
        const char *text;
    } rows[] = {
        {DATA "calls.pt", TC_ERR_UNSUPPORTED, "__builtin__.print"},
        {DATA "bigendian.pt", TC_ERR_UNSUPPORTED, "not little-endian"},
        {DATA "old.pt", TC_ERR_UNSUPPORTED, "before PyTorch 1.6"},
    };
    begin();
    for (int i = 0; i < 3; i++) {
        tc_file *file = NULL;
        CHECK_EQ_INT(tc_file_open(ctx, rows[i].path, &file), rows[i].status);
        CHECK_HAS(tc_error(ctx), rows[i].text);
        CHECK(!file);
    }
    end();
}

/* An .npz of NumPy 2.4.6 and zipfile with a text, bytes that are no array, records and objects. */
TEST(an_npz_with_entries_that_are_no_arrays)
{
    static const char *const others[][2] = {{"readme.txt", "'readme.txt' is no .npy"},
                                            {"notes", "'notes' is no array"},
                                            {"records", "'records' has records, not numbers"},
                                            {"objects", "'|O'"}};
    begin();
    tc_file *file = open_file(DATA "foreign.npz");
    float a[5];
    int32_t z[6];
    CHECK_EQ_INT(tc_read(tc_file_borrow(ctx, file, "a"), a, 5), TC_OK);
    CHECK_EQ_INT(tc_read(tc_file_copy_in(ctx, file, "z"), z, 6), TC_OK);
    CHECK(a[0] == 0 && a[4] == 4 && z[0] == 0 && z[5] == 5);
    for (int i = 0; i < 4; i++) {
        tc_tensor t = tc_file_copy_in(ctx, file, others[i][0]);
        CHECK_EQ_INT(tc_status_of(t), TC_ERR_UNSUPPORTED);
        CHECK_HAS(tc_error(t), others[i][1]);
    }
    CHECK(!tc_file_find(file, "readme.txt") && tc_file_array(file, 2) && !tc_file_array(file, 3));
    CHECK_EQ_INT(tc_status_of(tc_file_copy_in(ctx, file, "nothing")), TC_ERR_ARGUMENT);
    tc_file_close(file);
    end();
}

/* What numpy.dtype(text) is (NumPy 2.4.6). */
TEST(dtypes_as_numpy_reads_them)
{
    static const struct {
        const char *text;
        tc_dtype dtype;
        bool swapped;
    } rows[] = {{"=f4", TC_F32, false},
                {"f4", TC_F32, false},
                {"|f4", TC_F32, false},
                {"float32", TC_F32, false},
                {"<f", TC_F32, false},
                {"<l", TC_I64, false},
                {"<q", TC_I64, false},
                {"int64", TC_I64, false},
                {"?", TC_BOOL, false},
                {"b1", TC_BOOL, false},
                {"i1", TC_I8, false},
                {"=i1", TC_I8, false},
                {">i1", TC_I8, false},
                {">u1", TC_U8, false},
                {"<?", TC_BOOL, false},
                {"b", TC_I8, false},
                {"B", TC_U8, false},
                {">q", TC_I64, true},
                {">H", TC_U16, true},
                {"half", TC_F16, false},
                {"e", TC_F16, false},
                {">f8", TC_F64, true},
                {"double", TC_F64, false},
                {"uint16", TC_U16, false},
                {"bool", TC_BOOL, false},
                {"L", TC_U64, false},
                {"float", TC_F64, false},
                {">V2", TC_BF16, false},
                {"|V2", TC_BF16, false},
                {"<float32", TC_DTYPE_COUNT, false},
                {"c8", TC_DTYPE_COUNT, false},
                {"<U3", TC_DTYPE_COUNT, false},
                {"f16", TC_DTYPE_COUNT, false},
                {"<<f4", TC_DTYPE_COUNT, false},
                {"", TC_DTYPE_COUNT, false},
                {">", TC_DTYPE_COUNT, false}};
    begin();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        unsigned char bytes[256] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0}, got[8] = {0};
        int n = snprintf((char *)bytes + 10, 200,
                         "{'descr': '%s', 'fortran_order': False, "
                         "'shape': (1L,), }",
                         rows[i].text);
        int width = rows[i].dtype == TC_DTYPE_COUNT ? 8 : (int)tc_dtype_size(rows[i].dtype);
        bytes[8] = (unsigned char)n;
        bytes[10 + n] = 1; /* 1, or 1 in the highest byte */
        io_spill(io_path("a.npy"), bytes, (size_t)(10 + n + width));
        tc_file *file = open_file(io_path("a.npy"));
        CHECK_MSG(tc_file_array(file, 0)->dtype == rows[i].dtype, "%s", rows[i].text);
        tc_tensor t = tc_file_copy_in(ctx, file, NULL);
        if (rows[i].dtype != TC_DTYPE_COUNT) {
            CHECK_EQ_INT(tc_read(t, (void *)got, width), TC_OK);
            CHECK_MSG(got[rows[i].swapped ? width - 1 : 0] == 1, "%s", rows[i].text);
        } else {
            CHECK_EQ_INT(tc_status_of(t), TC_ERR_UNSUPPORTED);
        }
        tc_file_close(file);
    }
    end();
}

TEST(numpy_npy_of_each_version_and_order)
{
    begin();
    const char *const names[] = {"version1.npy", "version2.npy", "version3.npy", "fortran.npy"};
    for (int i = 0; i < 4; i++) {
        char path[64];
        snprintf(path, sizeof(path), DATA "%s", names[i]);
        tc_file *file = open_file(path);
        CHECK_STR(tc_file_array(file, 0)->name, "");
        CHECK_STR(tc_file_array(file, 0)->type, i < 3 ? "<f4" : "<i2");
        tc_tensor borrowed = tc_file_borrow(ctx, file, NULL), named = tc_file_borrow(ctx, file, "");
        CHECK(is_borrowed(borrowed) && is_borrowed(named));
        check_values(borrowed, path);
        check_values(tc_file_copy_in(ctx, file, NULL), path);
        tc_file_close(file);
        check_values(tc_add(named, 0), path); /* the map is there as long as it is used */
    }
    end();
}

TEST(safetensors_library)
{
    begin();
    tc_file *file = open_file(DATA "library.safetensors");
    check_dtypes(file, "library.safetensors");
    CHECK(is_borrowed(tc_file_borrow(ctx, file, "f32")));
    CHECK(is_borrowed(tc_file_borrow(ctx, file, "bf16")));
    CHECK(!is_borrowed(tc_file_borrow(ctx, file, "bool")));
    CHECK_STR(tc_file_metadata(file, "format"), "np");
    CHECK_STR(tc_file_metadata(file, "quote\""), "line\nbreak \xc3\xa9 \xf0\x9f\x98\x80");
    CHECK(!tc_file_metadata(file, "none") && !tc_file_metadata(file, NULL));
    CHECK_STR(tc_file_find(file, "bf16")->type, "BF16");
    tc_file_close(file);
    end();
}

TEST(gguf_library)
{
    begin();
    tc_file *file = open_file(DATA "library.gguf");
    const char *const names[] = {"f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64"};
    for (int i = 0; i < 8; i++) {
        CHECK(is_borrowed(tc_file_borrow(ctx, file, names[i])));
        check_values(tc_file_borrow(ctx, file, names[i]), names[i]);
        check_values(tc_file_copy_in(ctx, file, names[i]), names[i]);
        CHECK(tc_file_find(file, names[i])->sizes[2] == 4);
    }
    CHECK(tc_file_find(file, "q8")->dtype == TC_DTYPE_COUNT);
    CHECK_STR(tc_file_find(file, "q8")->type, "ggml type 8");
    CHECK_STR(tc_error(tc_file_borrow_at(ctx, file, "q8", (tc_site){"a.c", 7})),
              "a.c:7: tc_file_borrow: 'q8' is of type 'ggml type 8', which tc does not have");
    CHECK_EQ_INT(tc_status_of(tc_file_copy_in(ctx, file, "q8")), TC_ERR_UNSUPPORTED);
    CHECK_STR(tc_file_metadata(file, "answer"), "42");
    CHECK_STR(tc_file_metadata(file, "minus"), "-7");
    CHECK_STR(tc_file_metadata(file, "pi"), "3.25");
    CHECK_STR(tc_file_metadata(file, "yes"), "true");
    CHECK_STR(tc_file_metadata(file, "big"), "9223372036854775808");
    CHECK_STR(tc_file_metadata(file, "greeting"), "h\xc3\xa9");
    CHECK(!tc_file_metadata(file, "list") && !tc_file_metadata(file, "numbers"));
    tc_file_close(file);
    end();
}

static void check_alignment(uint32_t kind, uint32_t value, tc_status why, const char *text)
{
    static const char key[] = "general.alignment";
    struct {
        char magic[4];
        uint32_t version;
        uint64_t arrays, facts, n_key;
    } head = {{'G', 'G', 'U', 'F'}, 3, 0, 1, sizeof(key) - 1};
    unsigned char bytes[128] = {0};
    memcpy(bytes, &head, sizeof(head));
    memcpy(bytes + 32, key, sizeof(key) - 1);
    memcpy(bytes + 49, &kind, 4);
    memcpy(bytes + 53, &value, 4);
    io_spill(io_path("a.gguf"), bytes, sizeof(bytes));
    tc_file *file = NULL;
    CHECK_EQ_INT(tc_file_open(ctx, io_path("a.gguf"), &file), why);
    if (file) {
        tc_file_close(file);
    } else {
        CHECK_HAS(tc_error(ctx), text);
    }
}

TEST(the_alignment_of_a_gguf)
{
    begin();
    check_alignment(4, 64, TC_OK, "");
    check_alignment(4, 0, TC_ERR_IO, "general.alignment is 0");
    check_alignment(0, 32, TC_ERR_IO, "general.alignment is no u32");
    check_alignment(5, 32, TC_ERR_IO, "general.alignment is no u32");
    check_alignment(10, 32, TC_ERR_IO, "general.alignment is no u32");
    check_alignment(9, 4, TC_ERR_IO, "general.alignment is no u32");
    end();
}

/* ---- written and read again ---- */

static const char *const dtype_names[] = {
#define TCI_ROW(id, name, ctype, bytes, kind, compute) name,
    TCI_DTYPE_ROWS(TCI_ROW)
#undef TCI_ROW
};

static void check_written(const char *ending, const char *const *metadata)
{
    char name[32];
    tc_tensor all[TCI_DTYPE_N];
    tc_file *from = open_file(DATA "numpy.npz");
    snprintf(name, sizeof(name), "again.%s", ending);
    for (int i = 0; i < TCI_DTYPE_N; i++) {
        all[i] = tc_file_borrow(ctx, from, dtype_names[i]);
    }
    tc_status status = tc_file_write(ctx, io_path(name), dtype_names,
                                     TC_TENSORS_N(all, TCI_DTYPE_N), metadata);
    CHECK_MSG(status == TC_OK, "%s", tc_error(ctx));
    tc_file_close(from);
    tc_file *file = open_file(io_path(name));
    check_dtypes(file, name);
    for (int i = 0; metadata && metadata[i]; i += 2) {
        CHECK_STR(tc_file_metadata(file, metadata[i]), metadata[i + 1]);
    }
    for (int i = 0; i < TCI_DTYPE_N && !strcmp(ending, "safetensors"); i++) {
        bool is_bool = !strcmp(dtype_names[i], "bool");
        CHECK(is_borrowed(tc_file_borrow(ctx, file, dtype_names[i])) == !is_bool);
    }
    tc_file_close(file);
    CHECK_EQ_INT(io_count_files(), 1); /* no temporary is left */
}

TEST(written_and_read_again)
{
    static const char *const metadata[] = {"a \"key\"", "a\\value\n\x01 \xc3\xa9", "", "", NULL};
    static const char *const none[] = {NULL};
    begin();
    check_written("npz", NULL);
    io_clean();
    check_written("npz", none);
    io_clean();
    check_written("safetensors", NULL);
    io_clean();
    check_written("safetensors", metadata);
    io_clean();
    for (int i = 0; i < TCI_DTYPE_N; i++) {
        tc_file *from = open_file(DATA "numpy.npz");
        tc_tensor t = tc_file_borrow(ctx, from, dtype_names[i]);
        tc_file_close(from);
        CHECK_EQ_INT(tc_file_write(ctx, io_path("a.npy"), NULL, TC_TENSORS(t), NULL), TC_OK);
        tc_file *file = open_file(io_path("a.npy"));
        check_values(tc_file_borrow(ctx, file, NULL), dtype_names[i]);
        tc_file_close(file);
    }
    end();
}

/* Computed values, views, scalars, nothing at all. */
TEST(values_of_any_kind_are_written)
{
    begin();
    float data[6] = {1, 2, 3, 4, 5, 6}, got[6] = {0}, three = 0;
    int64_t sizes[2] = {3, 2}, strides[2] = {-1, 3};
    tc_tensor turned = tc_borrow_strided(ctx, data + 2, TC_F32, 2, sizes, strides);
    tc_tensor computed = tc_add(tc_arange(ctx, 0, 6, 1, TC_F32), 0.5);
    tc_tensor list[] = {turned, computed, tc_full(ctx, 3, TC_F32), tc_full(ctx, 1, TC_I8, 0, 5)};
    const char *const names[] = {"turned", "sum/of \"two\"", "", "none"};
    const char *const files[] = {"v.safetensors", "v.npz"};
    for (int i = 0; i < 2; i++) {
        const char *path = io_path(files[i]);
        CHECK_EQ_INT(tc_file_write(ctx, path, names, TC_TENSORS_N(list, 4), NULL), TC_OK);
        tc_file *file = open_file(path);
        CHECK_EQ_INT(tc_read(tc_file_borrow(ctx, file, "turned"), got, 6), TC_OK);
        CHECK(got[0] == 3 && got[1] == 6 && got[4] == 1 && got[5] == 4);
        CHECK_EQ_INT(tc_read(tc_file_borrow(ctx, file, names[1]), got, 6), TC_OK);
        CHECK(got[0] == 0.5f && got[5] == 5.5f);
        CHECK_EQ_INT(tc_read(tc_file_copy_in(ctx, file, ""), &three, 1), TC_OK);
        CHECK(three == 3);
        CHECK_EQ_INT(tc_size(tc_file_borrow(ctx, file, "none"), 1), 5);
        tc_file_close(file);
        CHECK_EQ_INT(tc_file_write(ctx, path, NULL, TC_TENSORS_N(NULL, 0), NULL), TC_OK);
        file = open_file(path);
        CHECK(!tc_file_array(file, 0));
        tc_file_close(file);
    }
    end();
}

static void check_fails(tc_status got, tc_status why, const char *text)
{
    CHECK_EQ_INT(got, why);
    CHECK_HAS(tc_error(ctx), text);
}

TEST(what_cannot_be_written)
{
    static const char *const twice[] = {"a", "a"}, *const missing[] = {"a", NULL};
    static const char *const latin[] = {"a", "\xe9"}, *const own[] = {"a", "__metadata__"};
    static const char *const metadata[] = {"k", "v", NULL}, *const half[] = {"k", NULL};
    begin();
    tc_tensor t = tc_full(ctx, 1, TC_F32, 2), list[] = {t, t};
    tc_tensors two = {list, 2};
    tc_options o = {.backend = "interp"};
    tc_ctx *other;
    REQUIRE(tc_ctx_make(&other, &o) == TC_OK);
    const char *path = io_path("w.safetensors");
    check_fails(tc_file_write(ctx, io_path("w.txt"), twice, two, NULL), TC_ERR_ARGUMENT,
                "ends in .safetensors");
    check_fails(tc_file_write(ctx, NULL, twice, two, NULL), TC_ERR_ARGUMENT, "the path is NULL");
    check_fails(tc_file_write(ctx, path, twice, two, NULL), TC_ERR_ARGUMENT, "given twice");
    check_fails(tc_file_write(ctx, path, missing, two, NULL), TC_ERR_ARGUMENT, "name 1 is NULL");
    check_fails(tc_file_write(ctx, path, latin, two, NULL), TC_ERR_ARGUMENT, "not UTF-8");
    check_fails(tc_file_write(ctx, path, own, two, NULL), TC_ERR_ARGUMENT, "keep for themselves");
    check_fails(tc_file_write(ctx, path, NULL, two, NULL), TC_ERR_ARGUMENT, "names are NULL");
    check_fails(tc_file_write(ctx, path, twice, TC_TENSORS_N(list, 1), half), TC_ERR_ARGUMENT,
                "value 0 is NULL");
    check_fails(tc_file_write(ctx, io_path("w.npz"), twice, TC_TENSORS_N(list, 1), metadata),
                TC_ERR_ARGUMENT, "only a .safetensors");
    check_fails(tc_file_write(ctx, io_path("w.npy"), NULL, two, NULL), TC_ERR_ARGUMENT,
                "one array, given 2");
    check_fails(tc_file_write(ctx, path, twice, TC_TENSORS_N(NULL, 2), NULL), TC_ERR_ARGUMENT,
                "a list of 2 at NULL");
    check_fails(tc_file_write(ctx, path, twice, TC_TENSORS(tc_add(t, tc_full(ctx, 1, TC_F32, 3))),
                              NULL),
                TC_ERR_SHAPE, "do not broadcast");
    check_fails(tc_file_write(ctx, path, twice, TC_TENSORS(tc_input(ctx, "x", TC_F32, 2)), NULL),
                TC_ERR_ARGUMENT, "placeholder");
    check_fails(tc_file_write(ctx, path, twice, TC_TENSORS(tc_full(other, 1, TC_F32)), NULL),
                TC_ERR_HANDLE, "foreign");
    check_fails(tc_file_write(ctx, "/nowhere/at/all.npz", twice, TC_TENSORS_N(list, 1), NULL),
                TC_ERR_IO, "No such file");
    CHECK_EQ_INT(tc_file_write(NULL, path, twice, TC_TENSORS_N(list, 1), NULL), TC_ERR_HANDLE);
    CHECK_EQ_INT(io_count_files(), 0);
    tc_ctx_free(other);
    end();
}

TEST(a_failed_write_leaves_the_old_file)
{
    static const char *const names[] = {"a", "b"};
    begin();
    tc_tensor t = tc_full(ctx, 7, TC_F32, 3);
    CHECK_EQ_INT(tc_file_write(ctx, io_path("o.npz"), names, TC_TENSORS(t), NULL), TC_OK);
    int64_t at[1] = {5};
    tc_tensor outside = tc_index_select(t, 0, tc_borrow(ctx, at, TC_I64, 1));
    CHECK_EQ_INT(tc_file_write(ctx, io_path("o.npz"), names, TC_TENSORS(t, outside), NULL),
                 TC_ERR_INDEX);
    CHECK_HAS(tc_error(ctx), "tc_file_write: index 5");
    tc_file *file = open_file(io_path("o.npz"));
    CHECK(tc_file_find(file, "a") && !tc_file_find(file, "b"));
    tc_file_close(file);
    CHECK_EQ_INT(io_count_files(), 1);
    end();
}

/* ---- the file that is replaced ---- */

static tc_status save(const char *path, float value)
{
    tc_tensor t = tc_full(ctx, value, TC_F32, 3);
    return tc_file_write(ctx, path, NULL, TC_TENSORS(t), NULL);
}

static bool holds(const char *path, float value)
{
    float got[3] = {0};
    tc_file *file = open_file(path);
    bool same = tc_read(tc_file_copy_in(ctx, file, NULL), got, 3) == TC_OK && got[2] == value;
    tc_file_close(file);
    return same;
}

static int mode_of(const char *path)
{
    struct stat st;
    return stat(path, &st) ? -1 : (int)(st.st_mode & 07777);
}

TEST(a_replaced_file_keeps_its_mode)
{
    static const mode_t modes[] = {0600, 0640, 0644, 0444, 0666, 0755}, masks[] = {0, 022, 077};
    begin();
    mode_t before = umask(022);
    for (int i = 0; i < 18; i++) {
        umask(masks[i % 3]);
        unlink(io_path("o.npy"));
        CHECK_EQ_INT(save(io_path("o.npy"), 1), TC_OK);
        CHECK_EQ_INT(mode_of(io_path("o.npy")), (int)(0666 & ~masks[i % 3]));
        CHECK_EQ_INT(chmod(io_path("o.npy"), modes[i / 3]), 0);
        CHECK_EQ_INT(save(io_path("o.npy"), (float)i), TC_OK);
        CHECK_EQ_INT(mode_of(io_path("o.npy")), (int)modes[i / 3]);
        umask(022);
        CHECK(geteuid() || holds(io_path("o.npy"), (float)i));
    }
    CHECK_EQ_INT(chmod(io_path("o.npy"), 04755), 0); /* what is written runs as nobody else */
    CHECK_EQ_INT(save(io_path("o.npy"), 1), TC_OK);
    CHECK_EQ_INT(mode_of(io_path("o.npy")), 0755);
    if (geteuid() == 0) {
        struct stat st;
        CHECK_EQ_INT(chown(io_path("o.npy"), 12345, 54321) + chmod(io_path("o.npy"), 0640), 0);
        CHECK_EQ_INT(save(io_path("o.npy"), 1), TC_OK);
        CHECK(stat(io_path("o.npy"), &st) == 0 && st.st_uid == 12345 && st.st_gid == 54321);
        CHECK_EQ_INT(st.st_mode & 07777, 0640);
    }
    CHECK_EQ_INT(io_count_files(), 1);
    umask(before);
    end();
}

/* Saves as user 12345 without groups; the code it ends with, or -1. */
static int save_as_another(const char *path)
{
    int ended = -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        _exit(setgroups(0, NULL) || setgid(12345) || setuid(12345) ? 99 : save(path, 2));
    }
    CHECK_EQ_INT(waitpid(child, &ended, 0), child);
    return WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
}

/* Rights that its group had do not pass to the group of who replaces it. */
TEST(a_group_that_cannot_be_kept_gets_no_rights)
{
    if (geteuid()) {
        SKIP("only root can become two users");
    }
    begin();
    CHECK_EQ_INT(save(io_path("o.npy"), 1), TC_OK);
    CHECK_EQ_INT(chown(io_path("o.npy"), 12345, 54321) + chmod(io_path("o.npy"), 0664), 0);
    CHECK_EQ_INT(chmod(io_dir, 0777), 0);
    CHECK_EQ_INT(save_as_another(io_path("o.npy")), TC_OK);
    CHECK_EQ_INT(mode_of(io_path("o.npy")), 0644);
    CHECK(holds(io_path("o.npy"), 2));
    end();
}

TEST(a_link_stays_and_its_target_is_replaced)
{
    begin();
    struct stat st;
    char absolute[200];
    CHECK_EQ_INT(mkdir(io_path("in"), 0755), 0);
    CHECK_EQ_INT(save(io_path("in/target.npy"), 1), TC_OK);
    CHECK_EQ_INT(chmod(io_path("in/target.npy"), 0600), 0);
    snprintf(absolute, sizeof(absolute), "%s", io_path("in/target.npy"));
    CHECK_EQ_INT(symlink(absolute, io_path("first.npy")), 0);
    CHECK_EQ_INT(symlink("../first.npy", io_path("in/second.npy")), 0);
    CHECK_EQ_INT(symlink("in/second.npy", io_path("third.npy")), 0);
    CHECK_EQ_INT(save(io_path("third.npy"), 2), TC_OK);
    CHECK(holds(absolute, 2) && mode_of(absolute) == 0600);
    CHECK(!lstat(io_path("third.npy"), &st) && S_ISLNK(st.st_mode));
    CHECK(!lstat(io_path("in/second.npy"), &st) && S_ISLNK(st.st_mode));
    CHECK(!lstat(io_path("first.npy"), &st) && S_ISLNK(st.st_mode));
    CHECK_EQ_INT(unlink(absolute), 0); /* it leads to what is not there yet */
    CHECK_EQ_INT(save(io_path("third.npy"), 3), TC_OK);
    CHECK(holds(absolute, 3));
    CHECK_EQ_INT(symlink("loop.npy", io_path("loop.npy")), 0);
    check_fails(save(io_path("loop.npy"), 1), TC_ERR_IO, "links");
    CHECK_EQ_INT(symlink("nowhere/x", io_path("broken.npy")), 0);
    check_fails(save(io_path("broken.npy"), 1), TC_ERR_IO, "No such file");
    CHECK_EQ_INT(mkdir(io_path("folder.npy"), 0755), 0);
    check_fails(save(io_path("folder.npy"), 1), TC_ERR_IO, "directory");
    CHECK_EQ_INT(mkfifo(io_path("fifo.npy"), 0600), 0);
    check_fails(save(io_path("fifo.npy"), 1), TC_ERR_IO, "not a regular file");
    tc_tensor x = tc_input(ctx, "x", TC_F32, 3), y = tc_neg(x);
    CHECK_EQ_INT(tc_export_c(TC_TENSORS(x), TC_TENSORS(y), NULL, io_path("e.c")), TC_OK);
    CHECK_EQ_INT(chmod(io_path("e.c"), 0600) + symlink("e.c", io_path("l.c")), 0);
    CHECK_EQ_INT(tc_export_c(TC_TENSORS(x), TC_TENSORS(y), NULL, io_path("l.c")), TC_OK);
    CHECK(mode_of(io_path("e.c")) == 0600 && !lstat(io_path("l.c"), &st) && S_ISLNK(st.st_mode));
    end();
}

/* In a directory that everybody writes to, as /tmp, who plants a link does not choose which file of
 * ours is replaced. */
TEST(a_link_of_another_user_is_not_followed_where_all_may_write)
{
    if (geteuid()) {
        SKIP("only root can give a link away");
    }
    begin();
    struct stat st;
    CHECK_EQ_INT(mkdir(io_path("wide"), 0755) + chmod(io_path("wide"), 01777), 0);
    CHECK_EQ_INT(save(io_path("ours.npy"), 1), TC_OK);
    CHECK_EQ_INT(symlink("../ours.npy", io_path("wide/l.npy")), 0);
    CHECK_EQ_INT(lchown(io_path("wide/l.npy"), 12345, 12345), 0);
    check_fails(save(io_path("wide/l.npy"), 2), TC_ERR_IO, "Permission denied");
    CHECK(holds(io_path("ours.npy"), 1));
    CHECK(!lstat(io_path("wide/l.npy"), &st) && S_ISLNK(st.st_mode));
    CHECK_EQ_INT(chmod(io_path("wide"), 0755), 0); /* only we write there: it is as good as ours */
    CHECK_EQ_INT(save(io_path("wide/l.npy"), 2), TC_OK);
    CHECK(holds(io_path("ours.npy"), 2));
    end();
}

TEST(names_of_any_length_are_written)
{
    begin();
    char path[512];
    for (size_t n = 220; n <= 256; n++) {
        snprintf(path, sizeof(path), "%s", io_path(""));
        size_t at = strlen(path);
        memset(path + at, 'n', n - 4);
        strcpy(path + at + n - 4, ".npy");
        tc_status status = save(path, (float)n);
        CHECK_EQ_INT(status, n < 256 ? TC_OK : TC_ERR_IO);
        CHECK(status || holds(path, (float)n));
        unlink(path);
    }
    CHECK_EQ_INT(io_count_files(), 0);
    end();
}

/* A process that dies while it saves, with a lock on its temporary file, as all have. */
static void die_in_a_save(const char *path)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        tci_os_fresh f;
        tci_os_fresh_begin_users(&f, path);
        tci_os_fresh_write(&f, "half", 4);
        raise(SIGKILL);
    }
    waitpid(child, NULL, 0);
}

TEST(what_a_killed_save_left_goes_at_the_next)
{
    begin();
    tci_os_fresh living[3];
    CHECK_EQ_INT(save(io_path("o.npy"), 1), TC_OK);
    die_in_a_save(io_path("o.npy"));
    CHECK_EQ_INT(io_count_files(), 2);
    die_in_a_save(io_path("other.npy"));
    for (int i = 0; i < 3; i++) { /* writers that live keep theirs */
        tci_os_fresh_begin_users(&living[i], io_path("o.npy"));
        CHECK_EQ_INT(living[i].code, 0);
        tci_os_fresh_write(&living[i], "whole", 5);
        die_in_a_save(io_path("o.npy"));
    }
    CHECK_EQ_INT(io_count_files(), 1 + 1 + 3 + 1);
    CHECK_EQ_INT(save(io_path("o.npy"), 2), TC_OK);
    CHECK_EQ_INT(io_count_files(), 1 + 1 + 3);
    CHECK(holds(io_path("o.npy"), 2));
    for (int i = 0; i < 3; i++) {
        CHECK_EQ_INT(tci_os_fresh_end(&living[i], i == 1, true), 0);
    }
    io_bytes last = io_slurp(io_path("o.npy"));
    CHECK(last.n == 5 && !memcmp(last.at, "whole", 5));
    free(last.at);
    CHECK_EQ_INT(save(io_path("other.npy"), 3), TC_OK);
    CHECK_EQ_INT(io_count_files(), 2);
    end();
}

/* Processes that save one path, some of which are killed: the file is always somebody's whole one,
 * and in the end nothing else is there. */
TEST(savers_that_are_killed_leave_whole_files)
{
    enum { SAVERS = 4 };
    begin();
    pid_t children[SAVERS];
    CHECK_EQ_INT(save(io_path("o.npy"), 0), TC_OK);
    fflush(stdout);
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < SAVERS; i++) {
            children[i] = fork();
            for (int k = 0; !children[i] && k < 1000; k++) {
                save(io_path("o.npy"), (float)i);
            }
            if (!children[i]) {
                _exit(0);
            }
        }
        usleep(3000 + 500 * (useconds_t)round);
        for (int i = 0; i < SAVERS; i++) {
            kill(children[i], SIGKILL);
        }
        for (int i = 0; i < SAVERS; i++) {
            waitpid(children[i], NULL, 0);
        }
        float got[3];
        tc_file *file = open_file(io_path("o.npy"));
        CHECK_EQ_INT(tc_read(tc_file_copy_in(ctx, file, NULL), got, 3), TC_OK);
        CHECK(got[0] == got[1] && got[1] == got[2]);
        tc_file_close(file);
    }
    CHECK_EQ_INT(save(io_path("o.npy"), 9), TC_OK);
    CHECK(holds(io_path("o.npy"), 9));
    CHECK_EQ_INT(io_count_files(), 1);
    end();
}

/* ---- parameters ---- */

static bool has_values(tc_tensor t, int n, float first, float step)
{
    float got[64];
    bool same = tc_read(t, got, n) == TC_OK;
    for (int i = 0; i < n; i++) {
        same = same && got[i] == first + step * (float)i;
    }
    return same;
}

TEST(parameters_are_saved_and_loaded_by_name)
{
    begin();
    float data[6] = {1, 2, 3, 4, 5, 6}, more[6] = {0, 10, 20, 30, 40, 50};
    tc_tensor w = tc_named(tc_param(ctx, data, TC_F32, 2, 3), "layer.w");
    tc_tensor b = tc_named(tc_param(ctx, NULL, TC_F64, 3), "layer.b");
    tc_tensor from = tc_named(tc_param_from(tc_mul(tc_arange(ctx, 0, 6, 1, TC_F32), 2)), "from");
    CHECK_STR(tc_name_of(w), "layer.w");
    CHECK(has_values(w, 6, 1, 1) && has_values(from, 6, 0, 2));
    tc_tensor twice = tc_mul(w, 2);
    CHECK(has_values(twice, 6, 2, 2));
    const char *const files[] = {"p.safetensors", "p.npz"};
    for (int i = 0; i < 2; i++) {
        CHECK_MSG(tc_save(ctx, io_path(files[i])) == TC_OK, "%s", tc_error(ctx));
        CHECK_EQ_INT(tc_param_write(w, more, 6), TC_OK);
        CHECK_EQ_INT(tc_eval(tc_assign(from, tc_full(ctx, -1, TC_F32, 6))), TC_OK);
        CHECK(has_values(w, 6, 0, 10) && has_values(twice, 6, 0, 20));
        CHECK_MSG(tc_load(ctx, io_path(files[i])) == TC_OK, "%s", tc_error(ctx));
        CHECK(has_values(w, 6, 1, 1) && has_values(twice, 6, 2, 2) && has_values(from, 6, 0, 2));
    }
    double zeros[3] = {1, 1, 1};
    CHECK(tc_read(b, zeros, 3) == TC_OK && zeros[0] == 0 && zeros[2] == 0);
    end();
}

/* Also what tc_keep moved. */
TEST(a_compiled_program_sees_what_was_loaded)
{
    begin();
    float x[2] = {1, 1}, y[3];
    tc_tensor w = tc_named(tc_param(ctx, NULL, TC_F32, 2, 3), "w");
    tc_program *f;
    REQUIRE(tc_compile(tc_matmul(tc_input(ctx, "x", TC_F32, 2), w), &f) == TC_OK);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, 2)), TC_BUFS(TC_BUF(y, 3))), TC_OK);
    CHECK(y[0] == 0);
    float six[6] = {1, 2, 3, 10, 20, 30};
    const char *const names[] = {"w"};
    tc_tensor value = tc_copy_in(ctx, six, TC_F32, 2, 3);
    CHECK_EQ_INT(tc_file_write(ctx, io_path("w.npz"), names, TC_TENSORS(value), NULL), TC_OK);
    CHECK_MSG(tc_load(ctx, io_path("w.npz")) == TC_OK, "%s", tc_error(ctx));
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(x, 2)), TC_BUFS(TC_BUF(y, 3))), TC_OK);
    CHECK(y[0] == 11 && y[1] == 22 && y[2] == 33);
    CHECK_EQ_INT(tc_scope_begin(ctx), TC_OK);
    tc_tensor inner = tc_named(tc_param(ctx, six, TC_F32, 6), "inner");
    tc_tensor kept = tc_keep(inner);
    CHECK_EQ_INT(tc_save(ctx, io_path("both.npz")), TC_OK); /* inner and kept are one */
    CHECK_EQ_INT(tc_scope_end(ctx), TC_OK);
    CHECK_STR(tc_name_of(kept), "inner");
    CHECK_EQ_INT(tc_param_write(kept, x, 2), TC_ERR_BUFFER);
    CHECK_EQ_INT(tc_load(ctx, io_path("both.npz")), TC_OK);
    tc_program_free(f);
    end();
}

TEST(arrays_by_columns_are_loaded)
{
    begin();
    tc_tensor p = tc_named(tc_param(ctx, NULL, TC_F32, 2, 3, 4), "fortran");
    CHECK_MSG(tc_load(ctx, DATA "fortran.npz") == TC_OK, "%s", tc_error(ctx));
    check_values(p, "fortran.npz");
    end();
}

TEST(what_does_not_fit_changes_nothing)
{
    begin();
    float data[6] = {1, 2, 3, 4, 5, 6};
    tc_site made = {"made.c", 5}, at = {"app.c", 9};
    int64_t f32_2_3[] = {TC_F32, 2, 3}, f32_6[] = {TC_F32, 6};
    tc_tensor w = tc_named(tc_param_at(ctx, data, 3, f32_2_3, made), "w");
    tc_tensor v = tc_param_at(ctx, data, 2, f32_6, made);
    check_fails(tc_save_at(ctx, io_path("n.npz"), at), TC_ERR_ARGUMENT,
                "the parameter made at made.c:5 has no name");
    tc_named(v, "w");
    check_fails(tc_save_at(ctx, io_path("n.npz"), at), TC_ERR_ARGUMENT,
                "two parameters are named 'w', made at made.c:5 and made.c:5");
    tc_named(v, "v");
    tc_tensor good_w = tc_full(ctx, 9, TC_F32, 2, 3), good_v = tc_full(ctx, 8, TC_F32, 6);
    tc_tensor turned = tc_full(ctx, 9, TC_F32, 3, 2), wide = tc_full(ctx, 9, TC_F64, 2, 3);
    static const char *const both[] = {"v", "w", "x"}, *const other[] = {"v", "W"};
    const char *path = io_path("n.safetensors");
    CHECK_EQ_INT(tc_file_write(ctx, path, both, TC_TENSORS(good_v), NULL), TC_OK);
    check_fails(tc_load(ctx, path), TC_ERR_ARGUMENT, "it lacks 1 of 2 parameters: 'w', and has 0");
    CHECK_EQ_INT(tc_file_write(ctx, path, both, TC_TENSORS(good_v, good_w, wide), NULL), TC_OK);
    check_fails(tc_load(ctx, path), TC_ERR_ARGUMENT, "has 1 arrays that are none: 'x'");
    CHECK_EQ_INT(tc_file_write(ctx, path, other, TC_TENSORS(good_v, good_w), NULL), TC_OK);
    check_fails(tc_load(ctx, path), TC_ERR_ARGUMENT,
                "it lacks 1 of 2 parameters: 'w', and has 1 arrays that are none: 'W'");
    CHECK_EQ_INT(tc_file_write(ctx, path, both, TC_TENSORS(good_v, turned), NULL), TC_OK);
    check_fails(tc_load(ctx, path), TC_ERR_SHAPE,
                "'w' is [3, 2], the parameter made at made.c:5 is [2, 3]");
    CHECK_EQ_INT(tc_file_write(ctx, path, both, TC_TENSORS(good_v, wide), NULL), TC_OK);
    check_fails(tc_load_at(ctx, path, at), TC_ERR_DTYPE,
                "'w' is f64, the parameter made at made.c:5 is f32");
    CHECK_HAS(tc_error(ctx), "app.c:9: tc_load: '/tmp/");
    check_fails(tc_load(ctx, NULL), TC_ERR_ARGUMENT, "the path is NULL");
    check_fails(tc_load(ctx, io_path("none.npz")), TC_ERR_IO, "No such file");
    CHECK_EQ_INT(tc_load(NULL, path), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_save(NULL, path), TC_ERR_HANDLE);
    CHECK(has_values(w, 6, 1, 1) && has_values(v, 6, 1, 1));
    CHECK_EQ_INT(tc_file_write(ctx, path, both, TC_TENSORS(good_v, good_w), NULL), TC_OK);
    CHECK_EQ_INT(tc_load(ctx, path), TC_OK);
    CHECK(has_values(w, 6, 9, 0) && has_values(v, 6, 8, 0));
    end();
}

TEST(what_is_no_parameter)
{
    begin();
    float data[2] = {1, 2};
    double wide[2] = {1, 2};
    tc_tensor leaf = tc_copy_in(ctx, data, TC_F32, 2), p = tc_param(ctx, data, TC_F32, 2);
    CHECK_HAS(tc_error(tc_named(leaf, "x")), "expected a parameter (tc_param)");
    CHECK_HAS(tc_error(tc_named(tc_add(p, 1), "x")), "given one of tc_add (made at");
    CHECK_HAS(tc_error(tc_named(p, NULL)), "the name is NULL");
    CHECK_HAS(tc_error(tc_param_from(tc_input(ctx, "x", TC_F32, 2))), "placeholder");
    CHECK_EQ_INT(tc_status_of(tc_param_from((tc_tensor){0})), TC_ERR_HANDLE);
    check_fails(tc_param_write(leaf, data, 2), TC_ERR_ARGUMENT, "expected a parameter");
    check_fails(tc_param_write(p, data, 1), TC_ERR_BUFFER, "given 1 elements, expected 2");
    check_fails(tc_param_write(p, wide, 2), TC_ERR_BUFFER, "given memory of f64, expected f32");
    check_fails(tc_param_write(p, (void *)data, 2), TC_ERR_BUFFER, "2 bytes of untyped memory");
    check_fails(tc_param_write(p, (float *)NULL, 2), TC_ERR_BUFFER, "given NULL");
    CHECK_STR(tc_name_of(leaf), "");
    CHECK_STR(tc_name_of((tc_tensor){0}), "");
    CHECK_STR(tc_name_of(tc_input(ctx, "x", TC_F32, 2)), "x");
    CHECK(tc_dtype_size(TC_BF16) == 2 && tc_dtype_size((tc_dtype)3) == 0);
    CHECK_STR(tc_dtype_name(TC_BF16), "bf16");
    CHECK_STR(tc_dtype_name(TC_DTYPE_COUNT), "none");
    end();
}

/* ---- while others run ---- */

typedef struct trainer {
    tc_program *f;
    int busy, failed;
    bool stop;
} trainer;

static void *train(void *arg)
{
    trainer *t = arg;
    while (!__atomic_load_n(&t->stop, __ATOMIC_RELAXED)) {
        tc_status status = tc_run(t->f, TC_BUFS_N(NULL, 0), TC_BUFS_N(NULL, 0));
        t->busy += status == TC_ERR_BUSY;
        t->failed += status && status != TC_ERR_BUSY;
    }
    return NULL;
}

/* Two parameters that every run changes alike: no file has one before and one after a run. */
TEST(a_file_is_one_moment_of_a_training)
{
    enum { SIZE = 2048 };
    static float p_now[SIZE], q_now[SIZE];
    begin();
    tc_tensor p = tc_named(tc_param(ctx, NULL, TC_F32, SIZE), "p");
    tc_tensor q = tc_named(tc_param(ctx, NULL, TC_F32, SIZE), "q");
    trainer t = {0};
    REQUIRE(tc_compile_fn(TC_TENSORS_N(NULL, 0),
                          TC_TENSORS(tc_assign(p, tc_add(p, 1)), tc_assign(q, tc_add(q, 1))), NULL,
                          &t.f) == TC_OK);
    pthread_t thread;
    REQUIRE(!pthread_create(&thread, NULL, train, &t));
    int loaded = 0;
    for (int i = 0; i < 40; i++) {
        CHECK_EQ_INT(tc_save(ctx, io_path("t.safetensors")), TC_OK);
        tc_file *file = open_file(io_path("t.safetensors"));
        CHECK_EQ_INT(tc_read(tc_file_copy_in(ctx, file, "p"), p_now, SIZE), TC_OK);
        CHECK_EQ_INT(tc_read(tc_file_copy_in(ctx, file, "q"), q_now, SIZE), TC_OK);
        CHECK(p_now[0] == p_now[SIZE - 1] && !memcmp(p_now, q_now, sizeof(p_now)));
        tc_file_close(file);
        tc_status status = tc_load(ctx, io_path("t.safetensors"));
        CHECK(status == TC_OK || status == TC_ERR_BUSY);
        loaded += status == TC_OK;
    }
    __atomic_store_n(&t.stop, true, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    CHECK_EQ_INT(t.failed, 0);
    CHECK_EQ_INT(tc_load(ctx, io_path("t.safetensors")), TC_OK);
    printf("loaded beside a training: %d of 40\n", loaded);
    tc_program_free(t.f);
    end();
}

static void *read_file(void *arg)
{
    tc_ctx *own;
    tc_options o = {.backend = "interp", .threads = 1, .no_disk_cache = true};
    int64_t wrong = tc_ctx_make(&own, &o) != TC_OK;
    for (int i = 0; i < 50 && !wrong; i++) {
        float got[24];
        tc_tensor t = i % 2 ? tc_file_borrow(own, arg, "f32") : tc_file_copy_in(own, arg, "f32");
        wrong = tc_read(tc_add(t, 0), got, 24) != TC_OK || got[1] != (float)expected("f32", 1);
    }
    tc_ctx_free(own);
    return wrong ? arg : NULL;
}

TEST(threads_read_one_file)
{
    begin();
    tc_file *file = open_file(DATA "library.safetensors");
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        REQUIRE(!pthread_create(&threads[i], NULL, read_file, file));
    }
    for (int i = 0; i < 4; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        CHECK(!wrong);
    }
    tc_file_close(file);
    end();
}

/* A program that captured a borrowed array outlives file and context. */
TEST(programs_keep_the_map)
{
    begin();
    float in[24] = {0}, out[24];
    tc_file *file = open_file(DATA "library.safetensors");
    tc_tensor w = tc_file_borrow(ctx, file, "f32");
    CHECK_EQ_INT(file->refs, 2);
    tc_program *f;
    REQUIRE(tc_compile(tc_add(w, tc_input(ctx, "x", TC_F32, 2, 3, 4)), &f) == TC_OK);
    tc_file_close(file);
    tc_ctx_free(ctx);
    CHECK_EQ_INT(file->refs, 1);
    CHECK_EQ_INT(tc_run(f, TC_BUFS(TC_BUF(in, 24)), TC_BUFS(TC_BUF(out, 24))), TC_OK);
    CHECK(out[5] == (float)expected("f32", 5));
    tc_program_free(f);
    tc_file_close(NULL);
}

/* ---- refused ---- */

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
