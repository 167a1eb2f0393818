/* wordpiece.h - texts to the numbers that BERT's networks take (transformers: BertTokenizer, the
 * uncased form), by the list of words stored next to their weights (vocab.txt).
 *
 * A text is cut at blanks and around each punctuation mark and Chinese sign, letters become small
 * and lose their accents; a word is then the longest piece of the list, and the longest next one
 * ("##ing"), to its end, or [UNK] where there is none. Korean syllables fall into their letters,
 * kana lose their marks. Other letters stay as they are, but for Latin up to U+017F and of U+1E00
 * to U+1EFF, modern Greek, Cyrillic up to U+045F, and alef, waw and yeh. */
#ifndef WORDPIECE_H
#define WORDPIECE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WP_WORD = 100, WP_BYTES = 4 * WP_WORD + 8 }; /* longer words are [UNK] */

typedef struct wp_words {
    char *text;         /* of the file; each word ends in a 0 */
    const char **words; /* by number */
    int32_t *table;     /* by hash: number + 1; 0: free */
    int n, size;        /* size: of the table, a power of two */
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

/* Kana without the mark that makes a k a g, or an h a p. */
static inline uint32_t wp_plain_kana(uint32_t c)
{
    uint32_t hiragana = c >= 0x30a0 ? c - 0x60 : c;
    if (hiragana == 0x3094) {
        return c - (0x3094 - 0x3046);
    }
    if ((hiragana >= 0x304b && hiragana <= 0x3062 && !(hiragana & 1)) ||
        (hiragana >= 0x3064 && hiragana <= 0x3069 && (hiragana & 1))) {
        return c - 1;
    }
    return hiragana >= 0x306f && hiragana <= 0x307d ? c - (hiragana - 0x306f) % 3 : c;
}

/* Small and without its accent. */
static inline uint32_t wp_plain(uint32_t c)
{
    static const char latin[] = /* U+00C0 to U+017F */
        "aaaaaa\0ceeeeiiii\0nooooo\0\0uuuuy\0\0aaaaaa\0ceeeeiiii\0nooooo\0\0uuuuy\0y"
        "aaaaaaccccccccdd\0\0eeeeeeeeeegggggggghh\0\0iiiiiiiii\0\0\0jjkk\0llllll\0\0\0\0"
        "nnnnnn\0\0\0oooooo\0\0rrrrrrsssssssstttt\0\0uuuuuuuuuuuuwwyyyzzzzzz\0";
    static const char more_latin[] = /* U+1E00 to U+1EFF */
        "aabbbbbbccddddddddddeeeeeeeeeeffgghhhhhhhhhhiiiikkkkkkllllllllmmmmmmnnnnnnnnoooooooopppp"
        "rrrrrrrrssssssssssttttttttuuuuuuuuuuvvvvwwwwwwwwwwxxxxyyzzzzzzhtwy\0\0\0\0\0\0"
        "aaaaaaaaaaaaaaaaaaaaaaaaeeeeeeeeeeeeeeeeiiiioooooooooooooooooooooooouuuuuuuuuuuuuuyyyyyyyy"
        "\0\0\0\0\0";
    static const uint16_t accents[][2] = {
        /* small letters with one, and without */
        {0x390, 0x3b9}, {0x3ac, 0x3b1}, {0x3ad, 0x3b5}, {0x3ae, 0x3b7}, {0x3af, 0x3b9},
        {0x3b0, 0x3c5}, {0x3ca, 0x3b9}, {0x3cb, 0x3c5}, {0x3cc, 0x3bf}, {0x3cd, 0x3c5},
        {0x3ce, 0x3c9}, {0x439, 0x438}, {0x450, 0x435}, {0x451, 0x435}, {0x453, 0x433},
        {0x457, 0x456}, {0x45c, 0x43a}, {0x45d, 0x438}, {0x45e, 0x443}, {0x1a0, 'o'},
        {0x1a1, 'o'},   {0x1af, 'u'},   {0x1b0, 'u'},   {0x1e9e, 0xdf}, {0x622, 0x627},
        {0x623, 0x627}, {0x624, 0x648}, {0x625, 0x627}, {0x626, 0x64a}};
    static const uint16_t greek[] = {0x3b1, 0, 0x3b5, 0x3b7, 0x3b9, 0, 0x3bf, 0, 0x3c5, 0x3c9};
    if (c >= 0xc0 && c < 0x180 && latin[c - 0xc0]) {
        return (uint32_t)latin[c - 0xc0];
    }
    if (c >= 0x1e00 && c < 0x1f00 && more_latin[c - 0x1e00]) {
        return (uint32_t)more_latin[c - 0x1e00];
    }
    if (c >= 0x3041 && c < 0x3100) {
        return wp_plain_kana(c);
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

/* The letters that stand for one; how many: the three or two of a Korean syllable, else one. */
static inline int wp_letters(uint32_t c, uint32_t *letters)
{
    uint32_t syllable = c - 0xac00, last = syllable % 28;
    if (c < 0xac00 || c > 0xd7a3) {
        letters[0] = wp_plain(c);
        return 1;
    }
    letters[0] = 0x1100 + syllable / 588;
    letters[1] = 0x1161 + syllable % 588 / 28;
    letters[2] = 0x11a7 + last;
    return last ? 3 : 2;
}

static inline bool wp_is_blank(uint32_t c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

/* Neither seen nor kept: control characters, what is no letter, accents on their own. */
static inline bool wp_is_nothing(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0xfffd || c == 0xfeff ||
           (c >= 0x200b && c <= 0x200f) || (c >= 0x202a && c <= 0x202e) ||
           (c >= 0x2060 && c < 0x2070) || (c >= 0x300 && c < 0x370) || (c >= 0x591 && c <= 0x5bd) ||
           (c >= 0x64b && c < 0x660) || c == 0x3099 || c == 0x309a;
}

/* A word of its own: Chinese signs, and punctuation (of ASCII all that is neither letter nor
 * number) as far as scripts in wide use have it. */
static inline bool wp_is_alone(uint32_t c)
{
    static const uint32_t ranges[][2] = {
        {0x21, 0x2f},     {0x3a, 0x40},     {0x5b, 0x60},       {0x7b, 0x7e},      {0xa1, 0xa1},
        {0xa7, 0xa7},     {0xab, 0xab},     {0xb6, 0xb7},       {0xbb, 0xbb},      {0xbf, 0xbf},
        {0x37e, 0x37e},   {0x387, 0x387},   {0x55a, 0x55f},     {0x589, 0x58a},    {0x5be, 0x5be},
        {0x5f3, 0x5f4},   {0x60c, 0x60d},   {0x61b, 0x61b},     {0x61d, 0x61f},    {0x66a, 0x66d},
        {0x6d4, 0x6d4},   {0x964, 0x965},   {0xe4f, 0xe4f},     {0xe5a, 0xe5b},    {0x2010, 0x2027},
        {0x2030, 0x2043}, {0x2045, 0x2051}, {0x2053, 0x205e},   {0x207d, 0x207e},  {0x208d, 0x208e},
        {0x3001, 0x3003}, {0x3008, 0x3011}, {0x3014, 0x301f},   {0x3030, 0x3030},  {0x303d, 0x303d},
        {0x30a0, 0x30a0}, {0x30fb, 0x30fb}, {0xfe30, 0xfe52},   {0xfe54, 0xfe61},  {0xff01, 0xff03},
        {0xff05, 0xff0a}, {0xff0c, 0xff0f}, {0xff1a, 0xff1b},   {0xff1f, 0xff20},  {0xff3b, 0xff3d},
        {0xff3f, 0xff3f}, {0xff5b, 0xff5b}, {0xff5d, 0xff5d},   {0xff5f, 0xff65},  {0x3400, 0x4dbf},
        {0x4e00, 0x9fff}, {0xf900, 0xfaff}, {0x20000, 0x2ceaf}, {0x2f800, 0x2fa1f}};
    bool alone = false;
    for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges) && !alone; i++) {
        alone = c >= ranges[i][0] && c <= ranges[i][1];
    }
    return alone;
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
        if (from > 2) { /* "##" over what is before it, and back */
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
        uint32_t plain[3];
        int many = wp_letters(c, plain);
        for (int i = 0; i < many; i++, letters++) {
            if (n + 4 <= WP_BYTES) {
                n += (size_t)wp_put(word + 2 + n, plain[i]);
            }
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
