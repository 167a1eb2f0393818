/* tests/unit/test_io.c - arrays in files (io_file.h): files of other programs, files written and
 * read again, parameters, and files while other threads run. */
#include "inside.h"

#include "io_file.h"

#include <pthread.h>

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
    float w[12], tied[12], b[3], tail[12], turned[24], ones[2], borrowed[24], copied[24];
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
    CHECK_EQ_INT(tc_read(tc_file_borrow(ctx, file, "channels_last"), borrowed, 24), TC_OK);
    CHECK_EQ_INT(tc_read(tc_file_copy_in(ctx, file, "channels_last"), copied, 24), TC_OK);
    for (int i = 0; i < 24; i++) {
        CHECK(borrowed[i] == (float)i && copied[i] == (float)i);
    }
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
    printf("loaded during a training: %d of 40\n", loaded);
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

TEST_MAIN
