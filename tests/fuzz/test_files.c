/* tests/fuzz/test_files.c - hostile files of arrays: valid ones of each format with bytes changed,
 * cut, moved, and numbers in them replaced by others that hurt. Whatever comes of it is refused
 * with a text, or read without touching a byte that is not the file's (a sanitizer watches);
 * nothing is left behind. */
#include "inside.h"

#include "io.h"

#define DATA "tests/data/io/"

/* A copy of `from` with one to four changes. */
static io_bytes changed(const io_bytes *from)
{
    static const uint64_t hurting[] = {0,
                                       1,
                                       2,
                                       0x7f,
                                       0xff,
                                       0xffff,
                                       0x7fffffff,
                                       0xffffffff,
                                       0x100000000,
                                       0x5a7d000000000000,
                                       INT64_MAX,
                                       UINT64_MAX,
                                       (uint64_t)INT64_MAX + 1,
                                       1ull << 61,
                                       (1ull << 62) + 8};
    io_bytes b = {malloc(from->n * 2 + 64), from->n};
    REQUIRE(b.at != NULL);
    memcpy(b.at, from->at, from->n);
    for (int left = 1 + tct_random_below(4); left > 0 && b.n > 8; left--) {
        /* half of the changes where headers are */
        size_t room = tct_random_below(2) ? b.n : b.n < 400 ? b.n : 400;
        size_t at = (size_t)tct_random_below((int)room), to = (size_t)tct_random_below((int)b.n);
        at = tct_random_below(8) ? at : b.n - 1 - at; /* archives end in theirs */
        size_t width = (size_t)1 << tct_random_below(4), most = b.n - (at > to ? at : to);
        uint64_t number = hurting[tct_random_below(15)];
        number = tct_random_below(3) ? number : b.n + (uint64_t)tct_random_below(5) - 2;
        switch (tct_random_below(7)) {
        case 0: /* a bit */ b.at[at] ^= (unsigned char)(1 << tct_random_below(8)); break;
        case 1: /* a byte */
            b.at[at] = (unsigned char)"0129-.,:[](){}'\"\\u\xff\x80 AFN"[tct_random_below(25)];
            break;
        case 2: /* cut short */
            b.n = tct_random_below(3) ? at : b.n - 1 - (size_t)tct_random_below(8);
            break;
        case 3: /* a number */
            width = width < b.n - at ? width : b.n - at;
            memcpy(b.at + at, &number, width);
            break;
        case 4: /* a stretch over another */
            most = most < 40 ? most : 40;
            memmove(b.at + to, b.at + at, most);
            break;
        case 5: /* two numbers change places */
            if (most >= 8) {
                unsigned char t[8];
                memcpy(t, b.at + at, width);
                memmove(b.at + at, b.at + to, width);
                memcpy(b.at + to, t, width);
            }
            break;
        default: /* longer by zeros */
            if (b.n < from->n + 32) {
                memset(b.at + b.n, 0, 16);
                b.n += 16;
            }
        }
    }
    return b;
}

static unsigned use_all(tc_ctx *ctx, tc_file *file)
{
    static unsigned char room[1 << 16];
    unsigned sum = 0;
    const tc_array *a;
    for (int i = 0; (a = tc_file_array(file, i)) != NULL; i++) {
        CHECK(a->rank >= 0 && tc_file_find(file, a->name) == a);
        for (int k = 0; k < 2; k++) {
            tc_tensor t = k ? tc_file_borrow(ctx, file, a->name)
                            : tc_file_copy_in(ctx, file, a->name);
            int64_t n = tc_nbytes(t);
            CHECK_MSG(!tc_status_of(t) || *tc_error(t), "a failure without a text");
            CHECK((tc_status_of(t) == TC_OK) == (n >= 0));
            if (n >= 0 && n <= (int64_t)sizeof(room)) {
                CHECK_EQ_INT(tc_read(t, (void *)room, n), TC_OK);
                for (int64_t j = 0; j < n; j++) {
                    sum += room[j];
                }
            }
        }
    }
    (void)tc_file_metadata(file, "format");
    return sum;
}

static void fuzz(const char *path, int n)
{
    tc_ctx *ctx;
    tc_options o = {.backend = "interp", .threads = 1, .no_disk_cache = true};
    io_bytes whole = io_slurp(path);
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    CHECK_EQ_INT(tc_scope_begin(ctx), TC_OK); /* what the first one makes stays */
    CHECK_EQ_INT(tc_scope_end(ctx), TC_OK);
    int opened = 0;
    unsigned sum = 0;
    long live = tci_test_alloc_live;
    for (int i = 0; i < n && tct_failures < 5; i++) {
        io_bytes b = changed(&whole);
        tc_file *file = NULL;
        io_spill(io_path("fuzzed"), b.at, b.n);
        CHECK_EQ_INT(tc_scope_begin(ctx), TC_OK);
        tc_status status = tc_file_open(ctx, io_path("fuzzed"), &file);
        CHECK((status == TC_OK) == (file != NULL));
        CHECK(status == TC_OK || status == TC_ERR_IO || status == TC_ERR_UNSUPPORTED);
        CHECK_MSG(!status || strstr(tc_error(ctx), "fuzzed': "), "no text: %s", tc_error(ctx));
        if (file) {
            sum += use_all(ctx, file);
            opened++;
            tc_file_close(file);
        }
        CHECK_EQ_INT(tc_scope_end(ctx), TC_OK);
        CHECK_MSG(tci_test_alloc_live <= live + 8, "%ld blocks, at first %ld",
                  (long)tci_test_alloc_live, live);
        free(b.at);
    }
    tc_ctx_free(ctx);
    free(whole.at);
    io_clean();
    CHECK_MSG(opened > 0 && opened < n, "%d of %d were files still", opened, n);
    printf("%s: %d of %d changed files are files still (sum %u)\n", path, opened, n, sum);
}

/* ---- deflate ---- */

static uint32_t number_at(const unsigned char *c)
{
    return c[0] | (uint32_t)c[1] << 8 | (uint32_t)c[2] << 16 | (uint32_t)c[3] << 24;
}

/* From copies of just these sizes, so that a sanitizer sees every byte outside. */
static tci_inflate_end inflate(const unsigned char *from, size_t n_from, unsigned char **to,
                               size_t n_to, int64_t *made)
{
    unsigned char *own = malloc(n_from + !n_from);
    *to = malloc(n_to + !n_to);
    REQUIRE(own && *to);
    memcpy(own, from, n_from);
    tci_inflate_end end = tci_inflate(own, (int64_t)n_from, *to, (int64_t)n_to, made);
    CHECK(*made >= 0 && *made <= (int64_t)n_to);
    free(own);
    return end;
}

/* Calls f for each stream of streams.bin, which Python's zlib made: levels 0 to 9 and strategies of
 * empty, random, repeated, text and numeric data, also in blocks that are flushed. */
typedef void (*stream_user)(const unsigned char *packed, size_t n_packed, size_t n, uint32_t crc);
static int each_stream(stream_user f)
{
    io_bytes b = io_slurp(DATA "streams.bin");
    int count = 0;
    for (size_t at = 0; at + 12 <= b.n; count++) {
        size_t n = number_at(b.at + at), n_packed = number_at(b.at + at + 4);
        f(b.at + at + 12, n_packed, n, number_at(b.at + at + 8));
        at += 12 + n_packed;
    }
    free(b.at);
    return count;
}

static void is_what_zlib_packed(const unsigned char *packed, size_t n_packed, size_t n,
                                uint32_t crc)
{
    unsigned char *to, *part;
    int64_t made;
    CHECK_EQ_INT(inflate(packed, n_packed, &to, n, &made), TCI_INFLATE_WHOLE);
    CHECK_EQ_INT(made, n);
    CHECK_EQ_INT(tci_inflate_crc(0, to, made), crc);
    for (int i = 0; i < 4 && n; i++) { /* without room for all of it, or without all of it */
        size_t room = i ? (size_t)tct_random_below((int)n) : n - 1;
        CHECK_EQ_INT(inflate(packed, n_packed, &part, room, &made), TCI_INFLATE_FULL);
        CHECK(made == (int64_t)room && !memcmp(part, to, room));
        free(part);
        size_t some = i ? (size_t)tct_random_below((int)n_packed) : n_packed - 1;
        CHECK_EQ_INT(inflate(packed, some, &part, n, &made), TCI_INFLATE_SHORT);
        CHECK(!memcmp(part, to, (size_t)made));
        free(part);
    }
    free(to);
}

TEST(streams_of_zlib)
{
    CHECK_EQ_INT(each_stream(is_what_zlib_packed), 104);
}

static int n_whole, n_other;

static void is_safe_when_changed(const unsigned char *packed, size_t n_packed, size_t n,
                                 uint32_t crc)
{
    io_bytes whole = {(unsigned char *)(uintptr_t)packed, n_packed};
    unsigned char *to;
    int64_t made;
    (void)crc;
    for (int i = 0; i < (tct_soak ? 20000 : 60) && n < 10000; i++) {
        io_bytes b = changed(&whole);
        bool ended = inflate(b.at, b.n, &to, n + 100, &made) == TCI_INFLATE_WHOLE;
        n_whole += ended;
        n_other += !ended;
        free(to);
        free(b.at);
    }
}

TEST(changed_streams)
{
    (void)each_stream(is_safe_when_changed);
    CHECK(n_whole > 0 && n_other > n_whole / 8);
    printf("%d changed streams end, %d do not\n", n_whole, n_other);
    for (int i = 0; i < 20000; i++) { /* bytes of all kinds */
        unsigned char noise[200], *to;
        int64_t made;
        size_t n = (size_t)tct_random_below(200);
        for (size_t k = 0; k < n; k++) {
            noise[k] = (unsigned char)tct_random_below(256);
        }
        (void)inflate(noise, n, &to, 500, &made);
        free(to);
    }
}

/* By hand: what RFC 1951 and zlib refuse. */
TEST(streams_that_are_none)
{
    static const struct {
        unsigned char bytes[16];
        size_t n;
        tci_inflate_end end;
    } rows[] = {
        {{0}, 0, TCI_INFLATE_SHORT},
        {{0x03, 0x00}, 2, TCI_INFLATE_WHOLE},                        /* fixed, empty */
        {{0x07}, 1, TCI_INFLATE_BAD},                                /* a block of kind 3 */
        {{0x01, 0x01, 0x00, 0xfe, 0xff, 'x'}, 6, TCI_INFLATE_WHOLE}, /* stored */
        {{0x01, 0x01, 0x00, 0xfe, 0xfe, 'x'}, 6, TCI_INFLATE_BAD},   /* its length is not its own */
        {{0x01, 0x02, 0x00, 0xfd, 0xff, 'x'}, 6, TCI_INFLATE_SHORT},
        {{0x03, 0x02, 0x00}, 3, TCI_INFLATE_BAD}, /* from before the start */
        {{0x1b, 0x03}, 2, TCI_INFLATE_BAD},       /* length symbol 286 */
        {{0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 10, TCI_INFLATE_BAD},
        {{0x05, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00}, 8, TCI_INFLATE_BAD}, /* no codes */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        unsigned char *to;
        int64_t made;
        tci_inflate_end end = inflate(rows[i].bytes, rows[i].n, &to, 300, &made);
        CHECK_MSG(end == rows[i].end, "row %zu ends with %d", i, (int)end);
        free(to);
    }
}

#define ROUNDS (tct_soak ? 200000 : 1000)

TEST(npy)
{
    fuzz(DATA "version1.npy", ROUNDS / 2);
}
TEST(npy_by_columns)
{
    fuzz(DATA "fortran.npy", ROUNDS / 2);
}
TEST(npz)
{
    fuzz(DATA "numpy.npz", ROUNDS);
}
TEST(npz_deflated)
{
    fuzz(DATA "deflated.npz", ROUNDS);
}
TEST(npz_with_foreign_entries)
{
    fuzz(DATA "foreign.npz", ROUNDS / 2);
}
TEST(pytorch)
{
    fuzz(DATA "torch.pt", ROUNDS);
}
TEST(pytorch_checkpoint)
{
    fuzz(DATA "checkpoint.pth", ROUNDS);
}
TEST(safetensors)
{
    fuzz(DATA "library.safetensors", ROUNDS);
}
TEST(gguf)
{
    fuzz(DATA "library.gguf", ROUNDS);
}

TEST_MAIN
