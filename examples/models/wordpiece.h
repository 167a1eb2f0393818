/* wordpiece.h - texts to the numbers that BERT's networks take (transformers: BertTokenizer, the
 * uncased form), by the list of words that lies beside their weights (vocab.txt).
 *
 * A text is cut at blanks and around each punctuation mark and Chinese sign, letters become small
 * and lose their accents; a word is then the longest piece of the list, and the longest next one
 * ("##ing"), to its end, or [UNK] where there is none. Letters that are neither Latin up to
 * U+017F, modern Greek nor Cyrillic up to U+045F stay as they are. */
#ifndef WORDPIECE_H
#define WORDPIECE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WP_WORD = 100, WP_BYTES = 4 * WP_WORD + 8 }; /* longer words are [UNK] */

typedef struct wp_words {
    char *text;             /* of the file; each word ends in a 0 */
    const char **words;     /* by number */
    int32_t *table;         /* by hash: number + 1; 0: free */
    int n, size;            /* size: of the table, a power of two */
    int unknown, start, end;
} wp_words;

static inline uint32_t wp_hash(const char *word, size_t n)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ (unsigned char)word[i]) * 16777619u;
    }
    return h;
}

/* The number of a word of n bytes; -1: it is not in the list. */
static inline int wp_find(const wp_words *w, const char *word, size_t n)
{
    for (uint32_t at = wp_hash(word, n);; at++) {
        int32_t i = w->table[at & (uint32_t)(w->size - 1)];
        if (!i) {
            return -1;
        }
        if (!strncmp(w->words[i - 1], word, n) && !w->words[i - 1][n]) {
            return i - 1;
        }
    }
}

static inline void wp_close(wp_words *w)
{
    free(w->text);
    free((void *)w->words);
    free(w->table);
}

static inline bool wp_index(wp_words *w)
{
    for (w->size = 16; w->size < 2 * w->n; w->size *= 2) {
    }
    w->words = malloc(sizeof(*w->words) * (size_t)(w->n + 1));
    w->table = calloc((size_t)w->size, sizeof(*w->table));
    char *word = w->text;
    for (int i = 0; w->words && w->table && i < w->n; i++) {
        size_t n = strcspn(word, "\n");
        w->words[i] = word;
        uint32_t at = wp_hash(word, n);
        while (w->table[at & (uint32_t)(w->size - 1)]) {
            at++;
        }
        w->table[at & (uint32_t)(w->size - 1)] = i + 1;
        word[n] = 0;
        word += n + 1;
    }
    return w->words && w->table;
}

/* A word a line. False: it cannot be read, or is no such list; the caller closes it either way. */
static inline bool wp_open(wp_words *w, const char *path)
{
    FILE *file = fopen(path, "rb");
    *w = (wp_words){0};
    if (!file || fseek(file, 0, SEEK_END) || ftell(file) < 1) {
        if (file) {
            fclose(file);
        }
        return false;
    }
    size_t n = (size_t)ftell(file);
    rewind(file);
    w->text = malloc(n + 2);
    bool whole = w->text && fread(w->text, 1, n, file) == n;
    fclose(file);
    if (!whole || memchr(w->text, 0, n)) {
        return false;
    }
    n += w->text[n - 1] != '\n';
    w->text[n - 1] = '\n';
    w->text[n] = 0;
    for (size_t i = 0; i < n; i++) {
        w->n += w->text[i] == '\n';
    }
    if (!wp_index(w)) {
        return false;
    }
    w->unknown = wp_find(w, "[UNK]", 5);
    w->start = wp_find(w, "[CLS]", 5);
    w->end = wp_find(w, "[SEP]", 5);
    return w->unknown >= 0 && w->start >= 0 && w->end >= 0;
}

/* ---- letters ---- */

/* The next one of UTF-8 at *at; bytes that are none are U+FFFD. */
static inline uint32_t wp_next(const char **at)
{
    const unsigned char *p = (const unsigned char *)*at;
    int more = *p < 0x80 ? 0 : *p < 0xc2 ? -1 : *p < 0xe0 ? 1 : *p < 0xf0 ? 2 : *p < 0xf5 ? 3 : -1;
    uint32_t c = more <= 0 ? *p : *p & (0x3fu >> more);
    for (int i = 1; i <= more; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            more = -1;
        } else {
            c = c << 6 | (p[i] & 0x3f);
        }
    }
    *at += more > 0 ? more + 1 : 1;
    return more < 0 ? 0xfffd : c;
}

static inline int wp_put(char *to, uint32_t c)
{
    int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
    to[0] = (char)(first[more] | c >> (6 * more));
    for (int i = 1; i <= more; i++) {
        to[i] = (char)(0x80 | (c >> (6 * (more - i)) & 0x3f));
    }
    return more + 1;
}

/* Small and without its accent. */
static inline uint32_t wp_plain(uint32_t c)
{
    static const char latin[] = /* U+00C0 to U+017F */
        "aaaaaa\0ceeeeiiii\0nooooo\0\0uuuuy\0\0aaaaaa\0ceeeeiiii\0nooooo\0\0uuuuy\0y"
        "aaaaaaccccccccdd\0\0eeeeeeeeeegggggggghh\0\0iiiiiiiii\0\0\0jjkk\0llllll\0\0\0\0"
        "nnnnnn\0\0\0oooooo\0\0rrrrrrsssssssstttt\0\0uuuuuuuuuuuuwwyyyzzzzzz\0";
    static const uint16_t accents[][2] = { /* small letters with one, and without */
        {0x390, 0x3b9}, {0x3ac, 0x3b1}, {0x3ad, 0x3b5}, {0x3ae, 0x3b7}, {0x3af, 0x3b9},
        {0x3b0, 0x3c5}, {0x3ca, 0x3b9}, {0x3cb, 0x3c5}, {0x3cc, 0x3bf}, {0x3cd, 0x3c5},
        {0x3ce, 0x3c9}, {0x439, 0x438}, {0x450, 0x435}, {0x451, 0x435}, {0x453, 0x433},
        {0x457, 0x456}, {0x45c, 0x43a}, {0x45d, 0x438}, {0x45e, 0x443}};
    static const uint16_t greek[] = {0x3b1, 0, 0x3b5, 0x3b7, 0x3b9, 0, 0x3bf, 0, 0x3c5, 0x3c9};
    if (c >= 0xc0 && c < 0x180 && latin[c - 0xc0]) {
        return (uint32_t)latin[c - 0xc0];
    }
    if (c < 0x80) {
        return c >= 'A' && c <= 'Z' ? c + 32 : c;
    }
    if ((c >= 0xc0 && c <= 0xde && c != 0xd7) || (c >= 0x391 && c <= 0x3ab && c != 0x3a2) ||
        (c >= 0x410 && c <= 0x42f)) {
        c += 32;
    } else if (c >= 0x100 && c < 0x180 && c != 0x131 && c != 0x138 && c != 0x149 && c != 0x17f) {
        bool odd_is_small = c < 0x139 || (c > 0x148 && c < 0x178);
        c += odd_is_small ? !(c & 1) : (c & 1);
    } else if (c >= 0x386 && c <= 0x38f && greek[c - 0x386]) {
        c = greek[c - 0x386];
    } else if (c >= 0x3d8 && c <= 0x3ef) {
        c |= 1;
    } else if (c >= 0x400 && c <= 0x40f) {
        c += 80;
    }
    for (size_t i = 0; i < sizeof(accents) / sizeof(*accents); i++) {
        c = c == accents[i][0] ? accents[i][1] : c;
    }
    return c;
}

static inline bool wp_is_blank(uint32_t c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Neither seen nor kept: control characters, what is no letter, accents on their own. */
static inline bool wp_is_nothing(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0xfffd || c == 0xfeff ||
           (c >= 0x200b && c <= 0x200f) || (c >= 0x202a && c <= 0x202e) ||
           (c >= 0x300 && c < 0x370);
}

/* A word of its own: punctuation, and Chinese signs. */
static inline bool wp_is_alone(uint32_t c)
{
    bool ascii = (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
                 (c >= 123 && c <= 126);
    bool latin = c == 0xa1 || c == 0xa7 || c == 0xab || c == 0xb6 || c == 0xb7 || c == 0xbb ||
                 c == 0xbf;
    bool general = (c >= 0x2010 && c <= 0x2027) || (c >= 0x2030 && c <= 0x205e && c != 0x2044 &&
                                                     c != 0x2052) ||
                   (c >= 0x3001 && c <= 0x3003) || (c >= 0x3008 && c <= 0x3011);
    bool chinese = (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
                   (c >= 0xf900 && c <= 0xfaff) || (c >= 0x20000 && c <= 0x2ceaf) ||
                   (c >= 0x2f800 && c <= 0x2fa1f);
    return ascii || latin || general || chinese;
}

/* ---- texts ---- */

/* Pieces of a word of n bytes behind the first two of `word`, where there is room for "##": to
 * ids[at...], as far as `most`; where it ends. letters: how many it has. */
static inline int wp_pieces(const wp_words *w, char *word, size_t n, int letters, int64_t *ids,
                            int at, int most)
{
    int begin = at;
    for (size_t from = 2; from < n + 2;) {
        char *piece = word + from;
        size_t length = n + 2 - from;
        char kept[2] = {0, 0};
        if (from > 2) { /* "##" over what lies before it, and back */
            piece -= 2;
            length += 2;
            memcpy(kept, piece, 2);
            memcpy(piece, "##", 2);
        }
        int found = -1;
        size_t least = from > 2 ? 3 : 1;
        for (; length >= least && found < 0; length--) {
            found = letters > WP_WORD ? -1 : wp_find(w, piece, length);
        }
        if (from > 2) {
            memcpy(piece, kept, 2);
        }
        if (found < 0) {
            at = begin;
            if (at < most) {
                ids[at++] = w->unknown;
            }
            return at;
        }
        if (at < most) {
            ids[at++] = found;
        }
        from = (size_t)(piece - word) + length + 1;
    }
    return at;
}

/* A text in UTF-8 as up to `most` ids (at least 2), [CLS] and [SEP] at its ends; how many. */
static inline int wp_encode(const wp_words *w, const char *text, int64_t *ids, int most)
{
    char word[WP_BYTES + 2];
    size_t n = 0; /* bytes of the word so far, behind two for "##" */
    int at = 0, letters = 0;
    ids[at++] = w->start;
    for (bool more = true; more;) {
        more = *text != 0;
        uint32_t c = more ? wp_next(&text) : ' ';
        bool alone = wp_is_alone(c);
        if ((alone || wp_is_blank(c)) && n) {
            at = wp_pieces(w, word, n, letters, ids, at, most - 1);
            n = 0;
            letters = 0;
        }
        if (wp_is_blank(c) || wp_is_nothing(c)) {
            continue;
        }
        char small[4];
        int bytes = wp_put(small, wp_plain(c));
        letters++;
        if (n + (size_t)bytes <= WP_BYTES) {
            memcpy(word + 2 + n, small, (size_t)bytes);
            n += (size_t)bytes;
        }
        if (alone) {
            at = wp_pieces(w, word, n, letters, ids, at, most - 1);
            n = 0;
            letters = 0;
        }
    }
    ids[at++] = w->end;
    return at;
}

#endif
