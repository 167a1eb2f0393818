/* base/str.c - growable string buffer.
 *
 * In: pieces of text or bytes. Out: one NUL-terminated block, in scratch memory (longjmps when
 * memory runs out) or on the heap (`failed` is sticky). Capacity doubles; the NUL is always within
 * cap. */
#include "system_headers.h"
#include "str.h"

TCI_FN void tci_str_free(tci_str *b)
{
    if (!b->s) {
        tci_heap_free(b->text);
    }
    b->text = NULL;
    b->n = b->cap = 0;
    b->failed = false;
}

/* Room for `more` bytes and the NUL. False when there is none. */
static bool tci_str_reserve(tci_str *b, size_t more)
{
    if (b->failed) {
        return false;
    }
    if (more < b->cap - b->n) {
        return true;
    }
    if (more > SIZE_MAX / 4 - b->n) {
        b->failed = true;
        return false;
    }
    size_t cap = TCI_MAX(b->cap * 2, b->n + more + 1);
    cap = TCI_MAX(cap, (size_t)64);
    char *text;
    if (b->s) {
        text = tci_scratch_get(b->s, cap);
        if (b->n) {
            memcpy(text, b->text, b->n);
        }
    } else {
        text = tci_heap_resize(b->text, cap);
    }
    if (!text) {
        b->failed = true;
        return false;
    }
    b->text = text;
    b->cap = cap;
    return true;
}

TCI_FN void tci_str_add_n(tci_str *b, const void *bytes, size_t n)
{
    if (!tci_str_reserve(b, n)) {
        return;
    }
    if (n) {
        memcpy(b->text + b->n, bytes, n);
    }
    b->n += n;
    b->text[b->n] = 0;
}

TCI_FN void tci_str_add(tci_str *b, const char *text)
{
    tci_str_add_n(b, text, strlen(text));
}

TCI_FN void tci_str_add_line(tci_str *b, const char *text)
{
    for (; *text; text++) {
        bool control = (unsigned char)*text < ' ' || *text == 0x7f;
        tci_str_add_n(b, control ? "?" : text, 1);
    }
}

TCI_FN int tci_str_utf8(const char *text, size_t n)
{
    const unsigned char *c = (const unsigned char *)text;
    int more = *c < 0x80 ? 0 : *c < 0xc2 ? -1 : *c < 0xe0 ? 1 : *c < 0xf0 ? 2 : *c < 0xf5 ? 3 : -1;
    if (more < 0 || (size_t)more >= n) {
        return 0;
    }
    for (int k = 1; k <= more; k++) {
        if ((c[k] & 0xc0) != 0x80) {
            return 0;
        }
    }
    /* longer than needed, a surrogate, above the last one */
    unsigned second = more ? c[1] : 0;
    bool wrong = (*c == 0xe0 && second < 0xa0) || (*c == 0xed && second > 0x9f) ||
                 (*c == 0xf0 && second < 0x90) || (*c == 0xf4 && second > 0x8f);
    return wrong ? 0 : more + 1;
}

TCI_FN void tci_str_printf(tci_str *b, const char *format, ...)
{
    if (!tci_str_reserve(b, 64)) {
        return;
    }
    va_list args;
    va_start(args, format);
    int n = vsnprintf(b->text + b->n, b->cap - b->n, format, args);
    va_end(args);
    if (n < 0) {
        b->text[b->n] = 0;
        b->failed = true;
        return;
    }
    if ((size_t)n >= b->cap - b->n) {
        b->text[b->n] = 0;
        if (!tci_str_reserve(b, (size_t)n)) {
            return;
        }
        va_start(args, format);
        vsnprintf(b->text + b->n, b->cap - b->n, format, args);
        va_end(args);
    }
    b->n += (size_t)n;
}

TCI_FN const char *tci_str_text(const tci_str *b)
{
    return b->text ? b->text : "";
}
