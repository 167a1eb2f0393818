/* io/inflate.c - decompresses deflate streams (RFC 1951), and computes the CRC-32 of zip archives.
 *
 * In: compressed bytes of a file, which may be hostile. Out: at most as many bytes as the buffer
 * holds.
 *
 * Design: input and output are each accessed at one place, which checks its bound
 * (tci_inflate_fill, and the copies in tci_inflate_block and tci_inflate_stored), so a bad stream
 * can only end early. Over-subscribed and incomplete Huffman codes are rejected, as in zlib.
 * Nothing recurses.
 *
 * A symbol is looked up by the next TCI_INFLATE_FAST bits. Longer codes are decoded bit by bit in
 * canonical order: codes of one length are consecutive numbers. */
#include "inflate.h"

#include <string.h>

enum {
    TCI_INFLATE_BITS = 15, /* of the longest code */
    TCI_INFLATE_FAST = 9,
    TCI_INFLATE_LITERALS = 288, /* symbols of a code: literals, the end, lengths; */
    TCI_INFLATE_END = 256,
    TCI_INFLATE_DISTANCES = 32,
    TCI_INFLATE_MOST_LITERALS = 286,
    TCI_INFLATE_MOST_DISTANCES = 30,
    TCI_INFLATE_ORDER = 19 /* symbols of the code of code lengths */
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
    uint64_t bits; /* read and not yet used, the next one lowest */
    int n_bits;
    tci_inflate_end end; /* once ended is true */
    bool ended;
    tci_inflate_code literals, distances;
} tci_inflate_state;

static void tci_inflate_stop(tci_inflate_state *s, tci_inflate_end why)
{
    s->end = s->ended ? s->end : why;
    s->ended = true;
}

TCI_QUICK_BEGIN

/* ---- bits ---- */

/* At least 56 bits, if the input has them. */
TCI_INLINE void tci_inflate_fill(tci_inflate_state *s)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (s->from_end - s->from >= 8) { /* bytes that are read beyond n_bits are read again */
        uint64_t word;
        memcpy(&word, s->from, sizeof(word));
        s->bits |= word << s->n_bits;
        s->from += (63 - s->n_bits) >> 3;
        s->n_bits |= 56;
        return;
    }
    s->bits &= ((uint64_t)1 << s->n_bits) - 1;
#endif
    while (s->n_bits < 56 && s->from < s->from_end) {
        s->bits |= (uint64_t)*s->from++ << s->n_bits;
        s->n_bits += 8;
    }
}

TCI_INLINE void tci_inflate_drop(tci_inflate_state *s, int n)
{
    s->bits >>= n;
    s->n_bits -= n;
}

/* The next n bits, at most 16, as a number; 0 where the stream has ended. */
TCI_INLINE int tci_inflate_take(tci_inflate_state *s, int n)
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
TCI_INLINE int tci_inflate_symbol(tci_inflate_state *s, const tci_inflate_code *c)
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
    if (s->ended) {
        return;
    }
    s->from -= s->n_bits / 8; /* whole bytes that were read ahead */
    s->bits = 0;
    s->n_bits = 0;
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
    int k = (int)TCI_MIN((int64_t)n, s->room - s->made);
    unsigned char *to = s->to + s->made;
    if (distance >= k) {
        memcpy(to, to - distance, (size_t)k);
    } else if (distance == 1) {
        memset(to, to[-1], (size_t)k);
    } else {
        for (int i = 0; i < k; i++) {
            to[i] = to[i - distance];
        }
    }
    s->made += k;
    if (k < n) {
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
    if (!s->ended &&
        (!lengths[TCI_INFLATE_END] || !tci_inflate_make(&s->distances, lengths + n, n_distances) ||
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

/* Four bytes at a time: table[k][b] is what byte b becomes when k bytes of zeros follow it. Made
 * anew in each call, in a few microseconds. */
TCI_FN uint32_t tci_inflate_crc(uint32_t crc, const void *bytes, int64_t n)
{
    const unsigned char *c = bytes, *end = c + n;
    uint32_t table[4][256];
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t x = b;
        for (int i = 0; i < 8; i++) {
            x = x >> 1 ^ (x & 1 ? 0xedb88320u : 0);
        }
        table[0][b] = x;
    }
    for (int k = 1; k < 4; k++) {
        for (int b = 0; b < 256; b++) {
            table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 255];
        }
    }
    crc = ~crc;
    for (; end - c >= 4; c += 4) {
        uint32_t x = c[0] | (uint32_t)c[1] << 8 | (uint32_t)c[2] << 16 | (uint32_t)c[3] << 24;
        x ^= crc;
        crc = table[3][x & 255] ^ table[2][x >> 8 & 255] ^ table[1][x >> 16 & 255] ^
              table[0][x >> 24];
    }
    for (; c < end; c++) {
        crc = crc >> 8 ^ table[0][(crc ^ *c) & 255];
    }
    return ~crc;
}

TCI_QUICK_END
