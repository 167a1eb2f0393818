/* api/expr_parse.c - parser of text expressions: a lexer, and a precedence-climbing parser that
 * emits postfix bytecode.
 *
 * In: arbitrary bytes. Out: the steps of api/expr_bytecode.h, or the first error and its position.
 *
 * Design: an operand is parsed, then operators that bind at least as tightly as requested, each
 * with a right operand that binds more tightly. A step is added after its operands, so steps are in
 * postfix order and a long sum needs no deep stack; only brackets recur. Invariants: after the
 * first error the lexer returns only the end token, so every loop ends; the depth of recursion is
 * bounded. */
#include "expr_bytecode.h"

#include <stdarg.h>
#include <string.h>

enum { TCI_EXPR_BYTES_MOST = 1 << 16, TCI_EXPR_DEPTH_MOST = 100, TCI_EXPR_MARK = 256 };

/* A token is one of these, an operator (its tci_expr_op), or TCI_EXPR_MARK + a character. */
enum {
    TCI_EXPR_END = TCI_EXPR_OPS,
    TCI_EXPR_NUMBER,
    TCI_EXPR_IDENTIFIER,
    TCI_EXPR_TEXT,
    TCI_EXPR_DOTS
};

typedef struct tci_expr_parser {
    tci_expr_code *code;
    int token, at, length; /* the next token */
    int depth;             /* brackets that are open */
    tci_expr_step nowhere; /* a step that is not added, after a mistake */
} tci_expr_parser;

TCI_FN bool tci_expr_room(tci_graph *g, void *list, int *cap, int n, size_t item_bytes)
{
    void *items;
    memcpy(&items, list, sizeof(items));
    if (n <= *cap) {
        return true;
    }
    int more = TCI_MAX(n, TCI_MAX(2 * *cap, 16));
    items = tci_graph_resize(g, items, (size_t)*cap * item_bytes, (size_t)more * item_bytes);
    if (items) {
        memcpy(list, &items, sizeof(items));
        *cap = more;
    }
    return items != NULL;
}

TCI_FN void tci_expr_code_free(tci_expr_code *code)
{
    tci_graph_resize(code->g, code->steps, (size_t)code->cap_steps * sizeof(*code->steps), 0);
    code->steps = NULL;
    code->n_steps = code->cap_steps = 0;
}

/* ---- mistakes ---- */

static void tci_expr_wrong(tci_expr_parser *p, tc_status why, const char *format, ...)
    TCI_PRINTF(3, 4);
static void tci_expr_wrong(tci_expr_parser *p, tc_status why, const char *format, ...)
{
    tci_expr_code *code = p->code;
    if (!code->status) {
        va_list args;
        va_start(args, format);
        vsnprintf(code->message, sizeof(code->message), format, args);
        va_end(args);
        code->status = why;
        code->wrong = p->at;
        code->wrong_length = p->length;
    }
    p->token = TCI_EXPR_END;
}

/* "expected ')'": given is the next token. */
static void tci_expr_expected(tci_expr_parser *p, const char *what)
{
    int n = TCI_MIN(p->length, 20);
    if (p->token == TCI_EXPR_END) {
        tci_expr_wrong(p, TC_ERR_ARGUMENT, "the text ends: expected %s", what);
    } else {
        tci_expr_wrong(p, TC_ERR_ARGUMENT, "given '%.*s', expected %s", n, p->code->text + p->at,
                       what);
    }
}

/* ---- tokens ---- */

static bool tci_expr_is_letter(char c)
{
    return ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_';
}

static bool tci_expr_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool tci_expr_is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

TCI_FN bool tci_expr_is_name(const char *text, int n)
{
    bool is = n > 0 && tci_expr_is_letter(text[0]);
    for (int i = 1; i < n; i++) {
        is = is && (tci_expr_is_letter(text[i]) || tci_expr_is_digit(text[i]));
    }
    return is;
}

/* The byte at i, 0 at the end. */
static char tci_expr_byte(const tci_expr_parser *p, int i)
{
    return i < p->code->bytes ? p->code->text[i] : 0;
}

static void tci_expr_lex_number(tci_expr_parser *p)
{
    int i = p->at, hex = (tci_expr_byte(p, i + 1) | 32) == 'x';
    for (;; i++) {
        char c = tci_expr_byte(p, i), before = i > p->at ? tci_expr_byte(p, i - 1) : 0;
        bool sign = (c == '+' || c == '-') && !hex && (before | 32) == 'e';
        if (!sign && c != '.' && !tci_expr_is_letter(c) && !tci_expr_is_digit(c)) {
            break;
        }
    }
    p->token = TCI_EXPR_NUMBER;
    p->length = i - p->at;
}

static void tci_expr_lex_text(tci_expr_parser *p)
{
    char quote = tci_expr_byte(p, p->at), c;
    int i = p->at + 1;
    for (; (c = tci_expr_byte(p, i)) != quote; i++) {
        if (c == '\\' || c == '\n' || i >= p->code->bytes) {
            tci_expr_wrong(p, TC_ERR_ARGUMENT,
                           c == '\\' ? "a text has a backslash: expected plain characters"
                                     : "a text does not end: expected its closing quote");
            return;
        }
    }
    p->token = TCI_EXPR_TEXT;
    p->length = i + 1 - p->at;
}

/* The longest operator that is spelled there, or TCI_EXPR_OPS. Signs are those of two operands. */
static int tci_expr_lex_operator(const tci_expr_parser *p, int *length)
{
    int best = TCI_EXPR_OPS;
    *length = 0;
    for (int op = 0; op < TCI_EXPR_OPS; op++) {
        int n = (int)strlen(tci_expr_op_get(op)->spelling), same = 0;
        while (same < n && tci_expr_byte(p, p->at + same) == tci_expr_op_get(op)->spelling[same]) {
            same++;
        }
        if (same == n && n > *length) {
            best = op;
            *length = n;
        }
    }
    return best;
}

static void tci_expr_lex_name(tci_expr_parser *p)
{
    int i = p->at + 1, length;
    while (tci_expr_is_letter(tci_expr_byte(p, i)) || tci_expr_is_digit(tci_expr_byte(p, i))) {
        i++;
    }
    int op = tci_expr_lex_operator(p, &length);
    p->length = i - p->at;
    p->token = op < TCI_EXPR_OPS && length == p->length ? op : TCI_EXPR_IDENTIFIER;
}

static void tci_expr_lex_sign(tci_expr_parser *p)
{
    char c = tci_expr_byte(p, p->at);
    int op = tci_expr_lex_operator(p, &p->length);
    if (c == '.' && tci_expr_byte(p, p->at + 1) == '.' && tci_expr_byte(p, p->at + 2) == '.') {
        p->token = TCI_EXPR_DOTS;
        p->length = 3;
    } else if (op < TCI_EXPR_OPS) {
        p->token = op;
    } else {
        p->length = 1;
        p->token = TCI_EXPR_MARK + (unsigned char)c;
        if (!strchr("()[],:=.", c)) {
            bool shown = c > ' ' && c < 127;
            tci_expr_wrong(p, TC_ERR_ARGUMENT,
                           shown ? "'%c' has no meaning here" : "byte 0x%02x has no meaning here",
                           (unsigned char)c);
        }
    }
}

static void tci_expr_next(tci_expr_parser *p)
{
    p->at += p->length;
    while (tci_expr_is_space(tci_expr_byte(p, p->at))) {
        p->at++;
    }
    char c = tci_expr_byte(p, p->at);
    p->length = 0;
    if (p->code->status || p->at >= p->code->bytes) {
        p->token = TCI_EXPR_END;
    } else if (tci_expr_is_letter(c)) {
        tci_expr_lex_name(p);
    } else if (tci_expr_is_digit(c) ||
               (c == '.' && tci_expr_is_digit(tci_expr_byte(p, p->at + 1)))) {
        tci_expr_lex_number(p);
    } else if (c == '"' || c == '\'') {
        tci_expr_lex_text(p);
    } else {
        tci_expr_lex_sign(p);
    }
}

static bool tci_expr_is(const tci_expr_parser *p, char mark)
{
    return p->token == TCI_EXPR_MARK + mark;
}

static bool tci_expr_skip(tci_expr_parser *p, char mark)
{
    bool is = tci_expr_is(p, mark);
    if (is) {
        tci_expr_next(p);
    }
    return is;
}

static void tci_expr_close(tci_expr_parser *p, char mark)
{
    char what[16];
    snprintf(what, sizeof(what), "'%c'", mark);
    if (!tci_expr_skip(p, mark)) {
        tci_expr_expected(p, what);
    }
}

/* ---- steps ---- */

static tci_expr_step *tci_expr_add(tci_expr_parser *p, tci_expr_do what, int at, int length)
{
    tci_expr_code *code = p->code;
    if (code->status) {
        return &p->nowhere;
    }
    if (!tci_expr_room(code->g, &code->steps, &code->cap_steps, code->n_steps + 1,
                       sizeof(*code->steps))) {
        tci_expr_wrong(p, TC_ERR_MEMORY, "out of memory");
        return &p->nowhere;
    }
    tci_expr_step *step = &code->steps[code->n_steps++];
    memset(step, 0, sizeof(*step));
    step->what = (uint8_t)what;
    step->at = at;
    step->length = length;
    return step;
}

/* A step at the next token, which is read. */
static tci_expr_step *tci_expr_add_here(tci_expr_parser *p, tci_expr_do what)
{
    tci_expr_step *step = tci_expr_add(p, what, p->at, p->length);
    tci_expr_next(p);
    return step;
}

/* Fails if n brackets, prefix operators or powers, each within the one before, are too many. */
static bool tci_expr_may_nest(tci_expr_parser *p, int n)
{
    if (n > TCI_EXPR_DEPTH_MOST) {
        tci_expr_wrong(p, TC_ERR_LIMIT, "the expression is nested deeper than %d",
                       (int)TCI_EXPR_DEPTH_MOST);
    }
    return !p->code->status;
}

static void tci_expr_binary(tci_expr_parser *p, int least);

static void tci_expr_any(tci_expr_parser *p)
{
    tci_expr_binary(p, 0);
}

/* Items of a bracket that was read, up to the closing mark, which is read. Returns how many;
 * *comma: one was there. */
static int tci_expr_items(tci_expr_parser *p, char closing, void (*item)(tci_expr_parser *),
                          bool *comma)
{
    int n = 0;
    *comma = false;
    tci_expr_may_nest(p, ++p->depth);
    while (!tci_expr_is(p, closing) && !p->code->status) {
        item(p);
        n++;
        if (!tci_expr_is(p, ',')) {
            break;
        }
        *comma = true;
        tci_expr_next(p);
    }
    p->depth--;
    tci_expr_close(p, closing);
    return n;
}

/* "axis=0", or an expression. */
static void tci_expr_argument(tci_expr_parser *p)
{
    int at = p->at, length = p->length;
    bool name = p->token == TCI_EXPR_IDENTIFIER;
    tci_expr_parser before = *p;
    tci_expr_next(p);
    if (name && tci_expr_skip(p, '=')) {
        tci_expr_any(p);
        tci_expr_add(p, TCI_EXPR_DO_KEYWORD, at, length);
        return;
    }
    if (!p->code->status) { /* one token back */
        *p = before;
    }
    tci_expr_any(p);
}

/* An expression, or None where there is none. */
static void tci_expr_bound(tci_expr_parser *p)
{
    if (tci_expr_is(p, ':') || tci_expr_is(p, ',') || tci_expr_is(p, ']')) {
        tci_expr_add(p, TCI_EXPR_DO_NONE, p->at, 0);
    } else {
        tci_expr_any(p);
    }
}

/* One item of a subscript: an expression or a slice. */
static void tci_expr_subscript(tci_expr_parser *p)
{
    int at = p->at;
    if (!tci_expr_is(p, ':')) {
        tci_expr_any(p);
    }
    if (tci_expr_is(p, ':')) {
        if (p->at == at) {
            tci_expr_add(p, TCI_EXPR_DO_NONE, at, 0);
        }
        tci_expr_next(p);
        tci_expr_bound(p);
        if (tci_expr_skip(p, ':')) {
            tci_expr_bound(p);
        } else {
            tci_expr_add(p, TCI_EXPR_DO_NONE, p->at, 0);
        }
        tci_expr_add(p, TCI_EXPR_DO_SLICE, at, TCI_MAX(p->at - at, 1));
    }
}

/* The arguments of a call, after its name and parenthesis; n values before are arguments too. */
static void tci_expr_call_of(tci_expr_parser *p, int at, int length, int n)
{
    bool comma;
    tci_expr_next(p);
    n += tci_expr_items(p, ')', tci_expr_argument, &comma);
    tci_expr_add(p, TCI_EXPR_DO_CALL, at, length)->n = n;
}

static void tci_expr_number_token(tci_expr_parser *p)
{
    tc_arg number = {{0}, 0, 0, 0};
    const char *why = tci_expr_number(p->code->text + p->at, p->length, &number);
    if (why) {
        tci_expr_wrong(p, TC_ERR_ARGUMENT, "'%.*s' %s", TCI_MIN(p->length, 40),
                       p->code->text + p->at, why);
    } else {
        tci_expr_add_here(p, TCI_EXPR_DO_NUMBER)->number = number;
    }
}

/* "(" or "[" to its end. */
static void tci_expr_group(tci_expr_parser *p)
{
    int at = p->at;
    bool comma, square = tci_expr_is(p, '[');
    tci_expr_next(p);
    int n = tci_expr_items(p, square ? ']' : ')', tci_expr_any, &comma);
    if (square || comma || !n) {
        tci_expr_add(p, TCI_EXPR_DO_LIST, at, 1)->n = n;
    }
}

static void tci_expr_atom(tci_expr_parser *p)
{
    int at = p->at, length = p->length;
    if (p->token == TCI_EXPR_NUMBER) {
        tci_expr_number_token(p);
    } else if (p->token == TCI_EXPR_TEXT) {
        tci_expr_add_here(p, TCI_EXPR_DO_TEXT);
    } else if (p->token == TCI_EXPR_DOTS) {
        tci_expr_add_here(p, TCI_EXPR_DO_ELLIPSIS);
    } else if (p->token == TCI_EXPR_IDENTIFIER) {
        tci_expr_next(p);
        if (tci_expr_is(p, '(')) {
            tci_expr_call_of(p, at, length, 0);
        } else {
            tci_expr_add(p, TCI_EXPR_DO_NAME, at, length);
        }
    } else if (tci_expr_is(p, '(') || tci_expr_is(p, '[')) {
        tci_expr_group(p);
    } else {
        tci_expr_expected(p, "an operand");
    }
}

/* .name and .name(arguments) */
static void tci_expr_member(tci_expr_parser *p)
{
    tci_expr_next(p);
    int at = p->at, length = p->length;
    if (p->token != TCI_EXPR_IDENTIFIER) {
        tci_expr_expected(p, "the name of an op, T, mT or shape");
        return;
    }
    tci_expr_next(p);
    if (tci_expr_is(p, '(')) {
        tci_expr_call_of(p, at, length, 1);
    } else {
        tci_expr_add(p, TCI_EXPR_DO_ATTRIBUTE, at, length);
    }
}

static void tci_expr_postfix(tci_expr_parser *p)
{
    bool comma;
    tci_expr_atom(p);
    while (tci_expr_is(p, '[') || tci_expr_is(p, '.')) {
        int at = p->at;
        if (tci_expr_is(p, '.')) {
            tci_expr_member(p);
        } else {
            tci_expr_next(p);
            int n = tci_expr_items(p, ']', tci_expr_subscript, &comma);
            tci_expr_add(p, TCI_EXPR_DO_INDEX, at, 1)->n = n;
        }
    }
}

static bool tci_expr_is_sign(const tci_expr_parser *p)
{
    return p->token == TCI_EXPR_SUB || p->token == TCI_EXPR_ADD || p->token == TCI_EXPR_INVERT;
}

/* Reads a run of signs, or of "not". */
static void tci_expr_prefixes(tci_expr_parser *p, bool words)
{
    for (int n = 1; words ? p->token == TCI_EXPR_NOT : tci_expr_is_sign(p); n++) {
        if (tci_expr_may_nest(p, n)) {
            tci_expr_next(p);
        }
    }
}

/* The steps of the prefix operators between two positions, the last one first. */
static void tci_expr_add_prefixes(tci_expr_parser *p, int begin, int end)
{
    for (int at = end - 1; at >= begin; at--) {
        for (int op = TCI_EXPR_NOT; op < TCI_EXPR_OPS; op++) {
            const char *spelling = tci_expr_op_get(op)->spelling;
            if (spelling[0] == tci_expr_byte(p, at)) {
                int length = (int)strlen(spelling);
                tci_expr_add(p, TCI_EXPR_DO_UNARY, at, length)->op = (uint8_t)op;
            }
        }
    }
}

/* Signs, an operand, and ** with what stands after it, signs too. Powers associate to the right and
 * bind more tightly than the signs before them, so all steps follow the last operand. */
static void tci_expr_unary(tci_expr_parser *p)
{
    /* Of the signs of each operand; those after the first begin at the end of "**". */
    int begin[TCI_EXPR_DEPTH_MOST + 1], end[TCI_EXPR_DEPTH_MOST + 1], n = 0;
    begin[0] = p->at;
    for (bool more = true; more;) {
        tci_expr_prefixes(p, false);
        end[n] = p->at;
        tci_expr_postfix(p);
        more = p->token == TCI_EXPR_POW && tci_expr_may_nest(p, n + 1);
        if (more) {
            begin[++n] = p->at + p->length;
            tci_expr_next(p);
        }
    }
    for (; n > 0; n--) {
        tci_expr_add_prefixes(p, begin[n], end[n]);
        tci_expr_add(p, TCI_EXPR_DO_BINARY, begin[n] - 2, 2)->op = TCI_EXPR_POW;
    }
    tci_expr_add_prefixes(p, begin[0], end[0]);
}

static bool tci_expr_goes_on(const tci_expr_parser *p, int least)
{
    return p->token < TCI_EXPR_NOT && tci_expr_op_get(p->token)->precedence >= least;
}

/* Comparisons after their first operand: a < b < c is a < b and b < c, and b is one value. */
static void tci_expr_comparisons(tci_expr_parser *p)
{
    int links = 0;
    for (bool more = true; more && !p->code->status; links++) {
        int op = p->token, at = p->at, length = p->length;
        tci_expr_next(p);
        tci_expr_binary(p, TCI_EXPR_AT_COMPARE + 1);
        more = p->token < TCI_EXPR_NOT &&
               tci_expr_op_get(p->token)->precedence == TCI_EXPR_AT_COMPARE;
        tci_expr_do what = more ? TCI_EXPR_DO_LINK : TCI_EXPR_DO_BINARY;
        tci_expr_add(p, what, at, length)->op = (uint8_t)op;
    }
    for (; links > 1 && !p->code->status; links--) {
        const tci_expr_step *last = &p->code->steps[p->code->n_steps - 1];
        tci_expr_add(p, TCI_EXPR_DO_BINARY, last->at, last->length)->op = TCI_EXPR_AND;
    }
}

/* An expression of operators that bind at least as tightly as `least`. */
static void tci_expr_binary(tci_expr_parser *p, int least)
{
    int at = p->at, length = p->length;
    if (p->token == TCI_EXPR_NOT && least <= TCI_EXPR_AT_NOT) {
        tci_expr_prefixes(p, true);
        int end = p->at;
        tci_expr_binary(p, TCI_EXPR_AT_NOT);
        tci_expr_add_prefixes(p, at, end);
    } else {
        tci_expr_unary(p);
    }
    while (tci_expr_goes_on(p, least)) {
        int op = p->token, precedence = tci_expr_op_get(op)->precedence;
        if (precedence == TCI_EXPR_AT_COMPARE) {
            tci_expr_comparisons(p);
            continue;
        }
        at = p->at;
        length = p->length;
        tci_expr_next(p);
        tci_expr_binary(p, precedence + 1);
        tci_expr_add(p, TCI_EXPR_DO_BINARY, at, length)->op = (uint8_t)op;
    }
}

TCI_FN bool tci_expr_parse(tci_expr_code *code)
{
    tci_expr_parser p = {.code = code};
    size_t bytes = strlen(code->text);
    code->bytes = (int)TCI_MIN(bytes, (size_t)TCI_EXPR_BYTES_MOST);
    if (bytes > TCI_EXPR_BYTES_MOST) {
        tci_expr_wrong(&p, TC_ERR_LIMIT, "the text has %zu bytes: expected at most %d", bytes,
                       (int)TCI_EXPR_BYTES_MOST);
        return false;
    }
    tci_expr_next(&p);
    tci_expr_any(&p);
    if (p.token != TCI_EXPR_END) {
        tci_expr_expected(&p, tci_expr_is(&p, ',') ? "one expression" : "an operator or the end");
    }
    return !code->status;
}
