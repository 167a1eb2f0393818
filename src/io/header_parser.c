/* io/header_parser.c - parses the text headers of tensor files: JSON (safetensors) and Python
 * literals (.npy).
 *
 * In: bytes of a file. Out: words, numbers, strings in the file's scratch memory. Each function
 * either consumes the whole item that it names or fails through tci_io_bad with the offset in the
 * header, so callers only state what they expect next. */
#include "header_parser.h"

#include <inttypes.h>
#include <string.h>

static void tci_head_blanks(tci_head *s)
{
    while (s->at < s->end && (*s->at == ' ' || (*s->at >= '\t' && *s->at <= '\r'))) {
        s->at++;
    }
}

static void tci_head_expected(tci_head *s, const char *what)
{
    tci_io_name left = tci_io_show(
        s->at < s->end
            ? tci_scratch_printf(&s->file->s, "%.*s", (int)TCI_MIN(s->end - s->at, 12), s->at)
            : "");
    tci_io_bad(s->file, "its header is damaged: expected %s before %s", what, left.text);
}

TCI_FN bool tci_head_take(tci_head *s, char c)
{
    tci_head_blanks(s);
    bool is_next = s->at < s->end && *s->at == c;
    s->at += is_next;
    return is_next;
}

TCI_FN void tci_head_need(tci_head *s, char c)
{
    char what[4] = {'\'', c, '\'', 0};
    if (!tci_head_take(s, c)) {
        tci_head_expected(s, what);
    }
}

TCI_FN bool tci_head_word(tci_head *s, const char *word)
{
    size_t n = strlen(word);
    tci_head_blanks(s);
    bool is_next = (size_t)(s->end - s->at) >= n && !memcmp(s->at, word, n);
    s->at += is_next ? n : 0;
    return is_next;
}

TCI_FN int64_t tci_head_size(tci_head *s)
{
    int64_t value = 0;
    tci_head_blanks(s);
    const char *first = s->at;
    for (; s->at < s->end && *s->at >= '0' && *s->at <= '9'; s->at++) {
        int digit = *s->at - '0';
        if (value > (INT64_MAX - digit) / 10) {
            tci_io_bad(s->file, "its header has a number that no memory can hold");
        }
        value = 10 * value + digit;
    }
    if (s->at == first || (*first == '0' && s->at > first + 1)) {
        s->at = first;
        tci_head_expected(s, "a number of 0 or more");
    }
    return value;
}

TCI_FN int tci_head_sizes(tci_head *s, char open, char close, const int64_t **sizes)
{
    int64_t *list = NULL;
    int n = 0, cap = 0;
    tci_head_need(s, open);
    bool more = !tci_head_take(s, close);
    while (more) {
        int64_t size = tci_head_size(s);
        s->at += close == ')' && s->at < s->end && *s->at == 'L'; /* a long of Python 2 */
        if (n == TCI_IO_RANK_MAX) {
            tci_io_bad(s->file, "its header has a list of more than %d sizes", TCI_IO_RANK_MAX);
        }
        TCI_PUSH(&s->file->s, list, n, cap, size);
        bool comma = tci_head_take(s, ',');
        /* Python ends a tuple with a comma if it likes, JSON does not */
        more = comma ? close != ')' || !tci_head_take(s, close) : false;
        if (!comma) {
            tci_head_need(s, close);
        }
    }
    *sizes = list;
    return n;
}

TCI_FN void tci_head_end(tci_head *s)
{
    tci_head_blanks(s);
    if (s->at < s->end) {
        tci_head_expected(s, "its end");
    }
}

TCI_FN const char *tci_head_python(tci_head *s)
{
    tci_head_blanks(s);
    char quote = s->at < s->end ? *s->at : 0;
    const char *first = s->at + 1;
    if (quote != '\'' && quote != '"') {
        tci_head_expected(s, "a string");
    }
    for (s->at++; s->at < s->end && *s->at != quote && *s->at != '\\'; s->at++) {
    }
    size_t n = (size_t)(s->at - first);
    if (s->at == s->end || *s->at != quote || memchr(first, 0, n)) {
        tci_head_expected(s, "the end of a string");
    }
    s->at++;
    char *text = tci_scratch_get(&s->file->s, n + 1);
    memcpy(text, first, n);
    return text;
}

/* ---- strings of JSON ---- */

/* Four hexadecimal digits. */
static uint32_t tci_head_unit(tci_head *s)
{
    uint32_t code = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        char c = s->at < s->end ? *s->at : 0;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0) {
            tci_head_expected(s, "four hexadecimal digits");
        }
        code = code << 4 | (uint32_t)digit;
    }
    return code;
}

/* Code point after "\u": one unit, or two of a surrogate pair. */
static uint32_t tci_head_code(tci_head *s)
{
    uint32_t code = tci_head_unit(s);
    if (code >= 0xd800 && code < 0xdc00) {
        bool pair = s->end - s->at >= 2 && s->at[0] == '\\' && s->at[1] == 'u';
        s->at += pair ? 2 : 0;
        uint32_t low = pair ? tci_head_unit(s) : 0;
        code = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00)
                                             : 0;
    }
    if (!code || (code >= 0xdc00 && code < 0xe000)) {
        tci_head_expected(s, "a character");
    }
    return code;
}

static char *tci_head_put(char *to, uint32_t code)
{
    static const uint8_t first[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    int n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, code >>= 6) {
        to[i] = (char)(0x80 | (code & 0x3f));
    }
    to[0] = (char)(first[n] | code);
    return to + n;
}

/* Behind a backslash. */
static char *tci_head_escape(tci_head *s, char *to)
{
    static const char from[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    char c = s->at < s->end ? *s->at : 0;
    const char *known = c ? strchr(from, c) : NULL;
    if (c == 'u') {
        s->at++;
        return tci_head_put(to, tci_head_code(s));
    }
    if (!known) {
        tci_head_expected(s, "an escape");
    }
    s->at++;
    *to = means[known - from];
    return to + 1;
}

TCI_FN const char *tci_head_json(tci_head *s)
{
    tci_head_need(s, '"');
    const char *last = memchr(s->at, '"', (size_t)(s->end - s->at));
    while (last && last[-1] == '\\') { /* at least as long as what it is; its end is found below */
        last = memchr(last + 1, '"', (size_t)(s->end - last - 1));
    }
    char *text = tci_scratch_get(&s->file->s, (size_t)((last ? last : s->end) - s->at) + 1);
    char *to = text;
    while (s->at < s->end && *s->at != '"') {
        unsigned char c = (unsigned char)*s->at++;
        if (c < ' ') {
            tci_head_expected(s, "no control character");
        }
        if (c == '\\') {
            to = tci_head_escape(s, to);
        } else {
            *to++ = (char)c;
        }
    }
    tci_head_need(s, '"');
    if (!tci_io_is_utf8(text, (size_t)(to - text))) {
        tci_io_bad(s->file, "its header has a string that is not UTF-8");
    }
    return text;
}
