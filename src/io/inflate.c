/* io/inflate.c - decompression of deflate streams (RFC 1951), and the CRC-32 of zip archives.
 *
 * In: compressed bytes of a file, which may be hostile. Out: at most as many bytes as there is room
 * for. The one idea: input and output are each touched at one place, which checks its bound
 * (tci_inflate_fill, and the copies in tci_inflate_block and tci_inflate_stored), so that a stream
 * can only end early. Code lengths that are no prefix code are refused as zlib refuses them.
 * Nothing recurses.
 *
 * A symbol is looked up by the next TCI_INFLATE_FAST bits; longer codes are decoded bit by bit in
 * canonical order: those of one length are consecutive numbers. */
#include "inflate.h"

#include <string.h>

enum {
    TCI_INFLATE_BITS = 15,      /* of the longest code */
    TCI_INFLATE_FAST = 9,
    TCI_INFLATE_LITERALS = 288, /* symbols of a code: literals, the end, lengths; */
    TCI_INFLATE_END = 256,
    TCI_INFLATE_DISTANCES = 32,
    TCI_INFLATE_MOST_LITERALS = 286,
    TCI_INFLATE_MOST_DISTANCES = 30,
    TCI_INFLATE_ORDER = 19      /* symbols of the code of code lengths */
};

typedef struct tci_inflate_code {
    uint16_t fast[1 << TCI_INFLATE_FAST]; /* symbol << 4 | bits; 0: a longer code, or none */
    uint16_t n[TCI_INFLATE_BITS + 1];     /* symbols of each length */
    uint16_t sorted[TCI_INFLATE_LITERALS];
} tci_inflate_code;

typedef struct tci_inflate_state {
    const unsigned char *from, *from_end;
    unsigned char *to;
    int64_t made, room;
    uint64_t bits;              /* read and not yet used, the next one lowest */
    int n_bits;
    tci_inflate_end end;        /* once ended is true */
    bool ended;
    tci_inflate_code literals, distances;
} tci_inflate_state;

static void tci_inflate_stop(tci_inflate_state *s, tci_inflate_end why)
{
    s->end = s->ended ? s->end : why;
    s->ended = true;
}

/* ---- bits ---- */

static void tci_inflate_fill(tci_inflate_state *s)
{
    while (s->n_bits <= 56 && s->from < s->from_end) {
        s->bits |= (uint64_t)*s->from++ << s->n_bits;
        s->n_bits += 8;
    }
}

static void tci_inflate_drop(tci_inflate_state *s, int n)
{
    s->bits >>= n;
    s->n_bits -= n;
}

/* The next n bits, at most 16, as a number; 0 where the stream has ended. */
static int tci_inflate_take(tci_inflate_state *s, int n)
{
    tci_inflate_fill(s);
    if (s->n_bits < n) {
        tci_inflate_stop(s, TCI_INFLATE_SHORT);
        return 0;
    }
    int number = (int)(s->bits & (((uint64_t)1 << n) - 1));
    tci_inflate_drop(s, n);
    return number;
}

/* ---- codes ---- */

static unsigned tci_inflate_reverse(unsigned code, int n)
{
    unsigned reversed = 0;
    for (int i = 0; i < n; i++, code >>= 1) {
        reversed = reversed << 1 | (code & 1);
    }
    return reversed;
}

/* The code of these lengths; 0: the symbol has none. False: they are too many or, but for a single
 * code of one bit or none at all, too few. */
static bool tci_inflate_make(tci_inflate_code *c, const uint8_t *lengths, int n_symbols)
{
    uint16_t at[TCI_INFLATE_BITS + 2] = {0};
    unsigned code[TCI_INFLATE_BITS + 2] = {0};
    int left = 1;
    memset(c, 0, sizeof(*c));
    for (int i = 0; i < n_symbols; i++) {
        c->n[lengths[i]]++;
    }
    int used = n_symbols - c->n[0];
    c->n[0] = 0;
    for (int k = 1; k <= TCI_INFLATE_BITS; k++) {
        left = 2 * left - c->n[k];
        if (left < 0) {
            return false;
        }
        at[k + 1] = (uint16_t)(at[k] + c->n[k]);
        code[k + 1] = (code[k] + c->n[k]) << 1;
    }
    for (int i = 0; i < n_symbols; i++) {
        int k = lengths[i];
        if (!k) {
            continue;
        }
        c->sorted[at[k]++] = (uint16_t)i;
        unsigned step = 1u << k, first = tci_inflate_reverse(code[k]++, k);
        for (unsigned j = first; k <= TCI_INFLATE_FAST && j < 1u << TCI_INFLATE_FAST; j += step) {
            c->fast[j] = (uint16_t)(i << 4 | k);
        }
    }
    return !left || !used || (used == 1 && c->n[1] == 1);
}

/* The next symbol; -1: the stream has ended. */
static int tci_inflate_symbol(tci_inflate_state *s, const tci_inflate_code *c)
{
    tci_inflate_fill(s);
    int entry = c->fast[s->bits & ((1u << TCI_INFLATE_FAST) - 1)];
    if (entry && (entry & 15) <= s->n_bits) {
        tci_inflate_drop(s, entry & 15);
        return entry >> 4;
    }
    int code = 0, first = 0, index = 0;
    for (int k = 1; k <= TCI_INFLATE_BITS && k <= s->n_bits; k++) {
        code = code << 1 | (int)(s->bits >> (k - 1) & 1);
        if (code - first < c->n[k]) {
            tci_inflate_drop(s, k);
            return c->sorted[index + code - first];
        }
        index += c->n[k];
        first = (first + c->n[k]) << 1;
    }
    tci_inflate_stop(s, s->n_bits < TCI_INFLATE_BITS ? TCI_INFLATE_SHORT : TCI_INFLATE_BAD);
    return -1;
}

/* ---- blocks ---- */

static void tci_inflate_stored(tci_inflate_state *s)
{
    tci_inflate_drop(s, s->n_bits % 8);
    int n = tci_inflate_take(s, 16), inverse = tci_inflate_take(s, 16);
    if (!s->ended && (n ^ inverse) != 0xffff) {
        tci_inflate_stop(s, TCI_INFLATE_BAD);
    }
    for (; n && s->n_bits && !s->ended; n--) { /* whole bytes that were read ahead */
        if (s->made == s->room) {
            tci_inflate_stop(s, TCI_INFLATE_FULL);
            return;
        }
        s->to[s->made++] = (unsigned char)tci_inflate_take(s, 8);
    }
    if (s->ended) {
        return;
    }
    int64_t most = TCI_MIN(s->from_end - s->from, s->room - s->made), k = TCI_MIN(n, most);
    if (k) {
        memcpy(s->to + s->made, s->from, (size_t)k);
    }
    s->made += k;
    s->from += k;
    if (k < n) {
        tci_inflate_stop(s, s->made == s->room ? TCI_INFLATE_FULL : TCI_INFLATE_SHORT);
    }
}

/* `n` bytes from `distance` before the end of the output, which they may overlap. */
static void tci_inflate_repeat(tci_inflate_state *s, int n, int distance)
{
    if (distance > s->made) {
        tci_inflate_stop(s, TCI_INFLATE_BAD);
        return;
    }
    int64_t end = TCI_MIN(s->made + n, s->room);
    bool full = s->made + n > s->room;
    for (; s->made < end; s->made++) {
        s->to[s->made] = s->to[s->made - distance];
    }
    if (full) {
        tci_inflate_stop(s, TCI_INFLATE_FULL);
    }
}

/* The length or distance, less the least one, of a code whose extra bits follow. Codes come in
 * groups (of 4 for lengths, 2 for distances) with the same number of extra bits, one more in each
 * group. */
static int tci_inflate_extend(tci_inflate_state *s, int code, int group)
{
    int extra = TCI_MAX(code / group - 1, 0);
    int base = code < 2 * group ? code : (group + code % group) << extra;
    return base + tci_inflate_take(s, extra);
}

static void tci_inflate_block(tci_inflate_state *s)
{
    while (!s->ended) {
        int symbol = tci_inflate_symbol(s, &s->literals);
        if (symbol == TCI_INFLATE_END || symbol < 0) {
            return;
        }
        if (symbol < TCI_INFLATE_END) {
            if (s->made == s->room) {
                tci_inflate_stop(s, TCI_INFLATE_FULL);
                return;
            }
            s->to[s->made++] = (unsigned char)symbol;
            continue;
        }
        int code = symbol - TCI_INFLATE_END - 1; /* the last one, 28, is a length of its own */
        if (symbol >= TCI_INFLATE_MOST_LITERALS) {
            tci_inflate_stop(s, TCI_INFLATE_BAD);
            return;
        }
        int n = 3 + (code == 28 ? 255 : tci_inflate_extend(s, code, 4));
        int distance = tci_inflate_symbol(s, &s->distances);
        if (distance >= TCI_INFLATE_MOST_DISTANCES) {
            tci_inflate_stop(s, TCI_INFLATE_BAD);
        }
        if (!s->ended) {
            distance = 1 + tci_inflate_extend(s, distance, 2);
        }
        if (!s->ended) {
            tci_inflate_repeat(s, n, distance);
        }
    }
}

static void tci_inflate_fixed(tci_inflate_state *s)
{
    uint8_t lengths[TCI_INFLATE_LITERALS];
    for (int i = 0; i < TCI_INFLATE_LITERALS; i++) {
        lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    }
    tci_inflate_make(&s->literals, lengths, TCI_INFLATE_LITERALS);
    memset(lengths, 5, TCI_INFLATE_DISTANCES);
    tci_inflate_make(&s->distances, lengths, TCI_INFLATE_DISTANCES);
}

/* Code lengths, themselves coded by s->literals: 0 to 15 is one, 16 repeats the last one, 17 and 18
 * are runs of zeros. */
static void tci_inflate_lengths(tci_inflate_state *s, uint8_t *lengths, int n)
{
    for (int i = 0; i < n && !s->ended;) {
        int symbol = tci_inflate_symbol(s, &s->literals);
        if (symbol < 16) {
            lengths[i++] = (uint8_t)TCI_MAX(symbol, 0);
            continue;
        }
        int value = symbol == 16 && i ? lengths[i - 1] : 0;
        int times = symbol == 16   ? 3 + tci_inflate_take(s, 2)
                    : symbol == 17 ? 3 + tci_inflate_take(s, 3)
                                   : 11 + tci_inflate_take(s, 7);
        if (times > n - i || (symbol == 16 && !i)) {
            tci_inflate_stop(s, TCI_INFLATE_BAD);
            return;
        }
        memset(lengths + i, value, (size_t)times);
        i += times;
    }
}

static void tci_inflate_dynamic(tci_inflate_state *s)
{
    static const uint8_t order[TCI_INFLATE_ORDER] = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                     11, 4,  12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[TCI_INFLATE_LITERALS + TCI_INFLATE_DISTANCES] = {0};
    int n = 257 + tci_inflate_take(s, 5), n_distances = 1 + tci_inflate_take(s, 5);
    int n_order = 4 + tci_inflate_take(s, 4);
    for (int i = 0; i < n_order; i++) {
        lengths[order[i]] = (uint8_t)tci_inflate_take(s, 3);
    }
    if (!tci_inflate_make(&s->literals, lengths, TCI_INFLATE_ORDER) ||
        n > TCI_INFLATE_MOST_LITERALS || n_distances > TCI_INFLATE_MOST_DISTANCES) {
        tci_inflate_stop(s, TCI_INFLATE_BAD);
    }
    memset(lengths, 0, sizeof(lengths));
    tci_inflate_lengths(s, lengths, n + n_distances);
    if (!s->ended && (!lengths[TCI_INFLATE_END] ||
                      !tci_inflate_make(&s->distances, lengths + n, n_distances) ||
                      !tci_inflate_make(&s->literals, lengths, n))) {
        tci_inflate_stop(s, TCI_INFLATE_BAD);
    }
}

TCI_FN tci_inflate_end tci_inflate(const void *from, int64_t n_from, void *to, int64_t n_to,
                                   int64_t *made)
{
    tci_inflate_state s;
    memset(&s, 0, sizeof(s));
    s.from = from;
    s.from_end = s.from + n_from;
    s.to = to;
    s.room = n_to;
    while (!s.ended) {
        bool last = tci_inflate_take(&s, 1);
        int kind = tci_inflate_take(&s, 2);
        if (s.ended) {
            break;
        }
        if (kind == 0) {
            tci_inflate_stored(&s);
        } else if (kind == 1) {
            tci_inflate_fixed(&s);
            tci_inflate_block(&s);
        } else if (kind == 2) {
            tci_inflate_dynamic(&s);
            tci_inflate_block(&s);
        } else {
            tci_inflate_stop(&s, TCI_INFLATE_BAD);
        }
        if (last) {
            tci_inflate_stop(&s, TCI_INFLATE_WHOLE);
        }
    }
    *made = s.made;
    return s.end;
}

/* ---- the checksum ---- */

TCI_FN uint32_t tci_inflate_crc(uint32_t crc, const void *bytes, int64_t n)
{
    static const uint32_t nibbles[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
        0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    const unsigned char *c = bytes;
    crc = ~crc;
    for (int64_t i = 0; i < n; i++) {
        crc ^= c[i];
        crc = crc >> 4 ^ nibbles[crc & 15];
        crc = crc >> 4 ^ nibbles[crc & 15];
    }
    return ~crc;
}
