/* tools/amalgamate.c - joins the rooms under src/ into the shipped headers.
 *
 *     amalgamate            from the project's root: writes src/api/ops.gen.h,
 *                           src/ops/formula.gen.h and the headers
 *     amalgamate --check    writes nothing; says which header is stale and which room to edit
 *
 * A quoted include is replaced by that file's text, the first time only (was_seen has exceptions);
 * includes of system headers and of another shipped header stay. Each file starts with a banner, so
 * a line of a shipped header leads back to its room. TCI_BUILD is a hash of everything joined: part
 * of every cache key. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TCI_SEPARATE /* nothing in the headers is static */
#include "../src/ops/prim.h"
#include "../src/ops/table.h"

typedef struct text {
    char *at;
    size_t n, cap;
} text;

/* In include order. */
static const char *const roots[] = {"tc.h",      "tc_cpu.h",  "tc_cuda.h",
                                    "tc_onnx.h", "tc_comm.h", "tc_engines.h"};
enum { N_ROOTS = sizeof(roots) / sizeof(roots[0]), MAX_ROOMS = 1024, MAX_PATH = 512 };

static char seen[MAX_ROOMS][MAX_PATH]; /* files joined so far, over all roots */
static int n_seen;

static void fail(const char *what, const char *path)
{
    fprintf(stderr, "amalgamate: %s: %s\n", path, what);
    exit(1);
}

static void add_n(text *t, const char *bytes, size_t n)
{
    if (t->n + n + 1 > t->cap) {
        t->cap = (t->n + n + 1) * 2;
        t->at = realloc(t->at, t->cap);
        if (!t->at) {
            fail("out of memory", "text");
        }
    }
    memcpy(t->at + t->n, bytes, n);
    t->n += n;
    t->at[t->n] = 0;
}

static void add(text *t, const char *a, const char *b, const char *c)
{
    add_n(t, a, strlen(a));
    add_n(t, b, strlen(b));
    add_n(t, c, strlen(c));
}

static bool read_file(const char *path, text *t)
{
    char block[8192];
    size_t got;
    FILE *f = fopen(path, "rb");
    t->n = 0;
    add(t, "", "", "");
    if (!f) {
        return false;
    }
    while ((got = fread(block, 1, sizeof(block), f)) > 0) {
        add_n(t, block, got);
    }
    fclose(f);
    return true;
}

/* Through a temporary, so that no reader sees half a header. A file that is already right is left
 * alone. */
static void write_file(const char *path, const text *t)
{
    char temporary[MAX_PATH + 8];
    text old = {0};
    bool same = read_file(path, &old) && old.n == t->n && !memcmp(old.at, t->at, t->n);
    free(old.at);
    if (same) {
        return;
    }
    snprintf(temporary, sizeof(temporary), "%s.tmp", path);
    FILE *f = fopen(temporary, "wb");
    if (!f || fwrite(t->at, 1, t->n, f) != t->n || fclose(f) || rename(temporary, path)) {
        fail(strerror(errno), path);
    }
    printf("amalgamate: wrote %s\n", path);
}

/* ---- src/api/ops.gen.h: the public calls that follow from op rows ---- */

static void add_elementwise(text *t, const char *name, int arity, const char *rule, const char *doc)
{
    static const char *const operands[] = {"a", "b", "c"};
    bool is_bool = !strcmp(rule, "COMPARE") || !strcmp(rule, "LOGIC");
    const char *to = is_bool                    ? "; bool"
                     : !strcmp(rule, "FLOAT")   ? "; float"
                     : !strcmp(rule, "NUMERIC") ? "; not of bool"
                     : !strcmp(rule, "INTEGER") ? "; of integers and bool"
                     : !strcmp(rule, "WORD")    ? "; of integers"
                                                : "";
    add(t, "/* ", doc, "");
    add(t, to, " */\nTC_API tc_tensor tc_", "");
    add(t, name, "_at(", "");
    for (int i = 0; i < arity; i++) {
        add(t, "tc_arg ", operands[i], ", ");
    }
    add(t, "tc_site here);\n#define tc_", name, "(");
    for (int i = 0; i < arity; i++) {
        add(t, i ? ", " : "", operands[i], "");
    }
    add(t, ") ", arity == 1 ? "TCI_WITH_1(" : arity == 2 ? "TCI_WITH_2(" : "TCI_WITH_3(", "tc_");
    add(t, name, "_at", "");
    for (int i = 0; i < arity; i++) {
        add(t, ", ", operands[i], "");
    }
    add(t, ")\n", "", "");
}

static void add_reduce(text *t, const char *name, const char *rule, const char *doc)
{
    bool index = !strcmp(rule, "INDEX");
    const char *axes = index ? "axis" : "axes";
    const char *to = index                    ? "; i64"
                     : !strcmp(rule, "SUM")   ? "; of integers and bool in i64 (u16 up: u64)"
                     : !strcmp(rule, "BOOL")  ? "; bool"
                     : !strcmp(rule, "FLOAT") ? "; of integers and bool in f32"
                                              : "; x's dtype";
    add(t, "/* ", doc, "");
    add(t, to, " */\nTC_API tc_tensor tc_", "");
    add(t, name, "_at(tc_tensor x, ", index ? "int axis" : "tc_axes axes");
    add(t, ", bool keepdims, tc_site here);\n#define tc_", name, "(x, ");
    add(t, axes, ", keepdims) tc_", name);
    add(t, "_at((x), (", axes, "), (keepdims), TC_HERE)\n");
}

static bool is_loss(const char *kind)
{
    return !strncmp(kind, "LOSS", 4);
}

/* operands: TCI_GIVEN(x) TCI_ELSE(alpha, 1) ... as text. */
static void add_built(text *t, const char *name, const char *kind, const char *operands,
                      const char *doc)
{
    bool loss = is_loss(kind);
    text takes = {0}, names = {0}, gives = {0}, none = {0};
    add(&none, "", "", "");
    add(&takes, "", "", "");
    add(&names, "", "", "");
    add(&gives, "", "", "");
    for (const char *at = strchr(operands, '('); at; at = strchr(at + 1, '(')) {
        char operand[64];
        snprintf(operand, sizeof(operand), "%.*s", (int)strcspn(at + 1, ",)"), at + 1);
        add(&takes, takes.n ? ", tc_arg " : "tc_arg ", operand, "");
        add(&names, names.n ? ", " : "", operand, "");
        add(&gives, "TC_ARG(", operand, "), ");
        if (at[strcspn(at, ",)")] == ',') { /* TCI_ELSE(operand, number) */
            const char *number = at + strcspn(at, ",") + 2;
            add(&none, none.n ? ", " : ";\n * TC_NONE: ", operand, " ");
            add_n(&none, number, strcspn(number, ")"));
        }
    }
    const char *note = !strcmp(kind, "FLOAT")       ? "; float"
                       : !strcmp(kind, "LOSS_WIDE") ? "; broadcasts"
                                                    : "";
    add(t, "/* ", doc, note);
    add(t, none.at, " */\n", "");
    add(t, "TC_API tc_tensor tc_", name, "_at(\n    ");
    add(t, takes.at, loss ? ",\n    tc_reduction reduction" : "", ", tc_site here);\n");
    add(t, "#define tc_", name, "(");
    add(t, names.at, loss ? ", reduction" : "", ") \\\n    tc_");
    add(t, name, "_at( \\\n        ", gives.at);
    add(t, loss ? "(reduction), " : "", "TC_HERE)", "\n");
    free(none.at);
    free(takes.at);
    free(names.at);
    free(gives.at);
}

static text make_ops(void)
{
    text t = {0};
    add(&t,
        "/* api/ops.gen.h - declarations of the public elementwise ops and reductions. Generated\n",
        " * from ops/table.h by tools/amalgamate.c: edit the table, not this file. */\n\n",
        "/* ---- elementwise: operands are tensors or C numbers ----\n"
        " * Shapes broadcast (else TC_ERR_SHAPE); the result has the dtype in which the operands\n"
        " * meet unless its line says: bool; float (a float dtype stays, others give f32); not of\n"
        " * bool, of integers (else TC_ERR_DTYPE). Integers wrap; a float function is NaN where\n"
        " * it has no value and infinite at a pole. TC_ERR_HANDLE: no operand is a tensor;\n"
        " * TC_ERR_DTYPE: a number that the integer dtype does not hold. */\n");
#define X(id, name, arity, rule, cost, value, gradient, doc) \
    add_elementwise(&t, #name, arity, #rule, doc);
    TCI_EW_OPS(X)
#undef X
    add(&t, "\n/* ---- reductions: axes is TC_AXES(...) or TC_ALL; negative axes count ",
        "from the end ----\n",
        " * The axes are dropped, or stay with size 1 where keepdims. TC_ERR_AXIS: out of range,\n"
        " * or given twice; TC_ERR_SHAPE: max, min, argmax or argmin over nothing. */\n");
#define X(id, name, rule, combine, part, gradient, doc) add_reduce(&t, #name, #rule, doc);
    TCI_REDUCE_OPS(X)
#undef X
    for (int loss = 0; loss < 2; loss++) {
        add(&t,
            loss ? "\n/* ---- losses of elements: operands as above, then the reduction ----\n"
                   " * Tensors given as input and target have one shape or are 0-d (else "
                   "TC_ERR_SHAPE), unless "
                   "the line\n * says that they broadcast; operands with a default always do.\n"
                 : "\n/* ---- made of elementwise ops: operands are tensors or C numbers ----\n",
            loss ? " * TC_REDUCE_MEAN or TC_REDUCE_SUM over all elements, 0-d, or TC_REDUCE_NONE, "
                   "each\n * element's (else TC_ERR_ARGUMENT); in a float dtype, f32 of integers. "
                   "*/\n"
                 : " * Shapes broadcast (else TC_ERR_SHAPE); the result has the dtype in which the "
                   "operands\n * meet or, where its line says float, f32 of integers. f16 and bf16 "
                   "are computed in f32\n * and rounded once. TC_ERR_HANDLE: no operand is a "
                   "tensor. */\n",
            "");
#define X(id, name, arity, kind, operands, formula, doc)                                          \
    if (loss == is_loss(#kind)) {                                                                 \
        add_built(&t, #name, #kind, #operands, doc);                                              \
    }
        TCI_BUILT_OPS(X)
#undef X
    }
    return t;
}

/* ---- src/ops/formula.gen.h: the columns of the rows as code (src/ops/formula_bytecode.h) ---- */

#define TABLE "src/ops/table.h"

typedef struct word {
    const char *id;
    int operands;
    const char *where; /* a column of src/ops/table.h's words; PRIM, ROW */
    const char *code;  /* what its enumerator begins with */
} word;

/* Prims whose result is of the operands' dtype or bool, and that need no more than operands. */
static const word words[] = {
#define X(id, name, arity, result, cost) {#id, arity, #result[0] == 'O' ? "" : "PRIM", "TCI_P_"},
    TCI_BASE_PRIMS(X) TCI_MATH_PRIMS(X)
#undef X
#define X(id, name, arity, rule, cost, value, gradient, doc) {#id, arity, "ROW", "TCI_OP_"},
        TCI_EW_OPS(X)
#undef X
            {"WHERE", 3, "ROW", "TCI_OP_"},
#define X(id, operands, where) {#id, operands, #where, "TCI_W_"},
    TCI_COLUMN_WORDS(X)
#undef X
};

/* A place in the text of table.h, and what is being compiled there. */
typedef struct reader {
    const char *at;
    int line;
    char row[64];
    int arity;
    bool value, reduce, combine, built; /* the column, and the kind of row */
    int deepest;
    text *code, *numbers;
    int n_code, n_numbers;
} reader;

static void wrong(const reader *r, const char *token, const char *what)
{
    fprintf(stderr, "amalgamate: " TABLE ":%d: row %s, %s column: %s: %s\n", r->line, r->row,
            r->value ? "value" : "gradient", token, what);
    exit(1);
}

/* The next token, which stays where it is: a name, a number, a string or one character. */
static size_t peek(reader *r, char token[64])
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
                                  "0123456789.";
    size_t n;
    for (; *r->at == ' ' || *r->at == '\\' || *r->at == '\n'; r->at++) {
        r->line += *r->at == '\n';
    }
    if (!*r->at) {
        wrong(r, "", "the file ends here");
    }
    n = strspn(r->at, letters);
    if (*r->at == '-') {
        n = 1 + strspn(r->at + 1, letters);
    } else if (*r->at == '"') {
        n = strcspn(r->at + 1, "\"") + 2;
    }
    n = n ? n : 1;
    snprintf(token, 64, "%.*s", (int)n, r->at);
    return n;
}

static void next(reader *r, char token[64])
{
    r->at += peek(r, token);
}

static bool skips(reader *r, const char *what)
{
    char token[64];
    size_t n = peek(r, token);
    bool is = !strcmp(token, what);
    r->at += is ? n : 0;
    return is;
}

static void expect(reader *r, const char *what)
{
    char token[64];
    char message[96];
    if (!skips(r, what)) {
        peek(r, token);
        snprintf(message, sizeof(message), "expected %s here", what);
        wrong(r, token, message);
    }
}

static void emit(reader *r, const char *prefix, const char *id)
{
    add(r->code, prefix, id, ", ");
    r->n_code++;
}

/* K(x): x is one of the pool's numbers, which are told apart by their text. */
static void compile_number(reader *r)
{
    char token[64], item[80], index[32], *end;
    expect(r, "(");
    next(r, token);
    strtod(token, &end);
    if (*end || end == token) {
        wrong(r, token, "K takes a number");
    }
    expect(r, ")");
    snprintf(item, sizeof(item), " %s,", token);
    const char *have = strstr(r->numbers->at, item);
    int i = 0; /* how many stand before it */
    for (const char *c = r->numbers->at; have && c < have; c++) {
        i += *c == ',';
    }
    if (!have) {
        i = r->n_numbers++;
        add(r->numbers, item, "", "");
    }
    snprintf(index, sizeof(index), "%d", i);
    emit(r, "TCI_W_K + ", index);
}

static const word *find_word(const reader *r, const char *id)
{
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const word *w = &words[i];
        bool here = !strcmp(w->where, "BOTH") || (r->built && !strcmp(w->where, "BUILT")) ||
                    (r->combine && !strcmp(w->where, "COMBINE")) ||
                    (r->value ? !strcmp(w->where, "VALUE") || !strcmp(w->where, "PRIM")
                              : (!r->built && !strcmp(w->where, "GRADIENT")) ||
                                    !strcmp(w->where, "ROW") ||
                                    (r->reduce && !strcmp(w->where, "REDUCE")));
        bool plain = strcmp(w->where, "PRIM") || strcmp(id, "LANE1");
        if (here && plain && !strcmp(w->id, id)) {
            return w;
        }
    }
    return NULL;
}

/* One call with its operands; `depth` values are below its own. */
static void compile_call(reader *r, int depth)
{
    char token[64];
    next(r, token);
    r->deepest = depth + 1 > r->deepest ? depth + 1 : r->deepest;
    if (!strcmp(token, "K")) {
        compile_number(r);
        return;
    }
    const word *w = find_word(r, token);
    if (!w) {
        wrong(r, token, "no such word in this column");
    }
    if (token[0] > 'A' && token[0] <= 'E' && !token[1] && token[0] - 'A' >= r->arity) {
        wrong(r, token, "the row has no such operand");
    }
    if (w->operands || !strcmp(w->where, "REDUCE")) {
        expect(r, "(");
        for (int i = 0; i < w->operands; i++) {
            if (i) {
                expect(r, ",");
            }
            compile_call(r, depth + i);
        }
        expect(r, ")");
    }
    emit(r, w->code, token);
}

/* A formula, closed by its end; where it begins. */
static int compile_formula(reader *r)
{
    int at = r->n_code;
    compile_call(r, 0);
    add(r->code, "TCI_W_END,", "", "");
    r->n_code++;
    return at;
}

static void add_row(text *rows, const reader *r, const char *gradient, const int at[4])
{
    char line[128];
    snprintf(line, sizeof(line), "    [TCI_OP_%s] = {TCI_GRADIENT_%s, %d, {%d, %d, %d}},\n", r->row,
             gradient, at[0], at[1], at[2], at[3]);
    add(rows, line, "", "");
}

/* The gradient column of an elementwise or a reduce row: D and the letters of those operands that
 * take something. */
static void compile_gradient(reader *r, text *rows, int at[4])
{
    static const char *const letters = "ABC", *const names[] = {", a */ ", ", b */ ", ", c */ "};
    char token[64];
    r->value = false;
    next(r, token);
    if (!strcmp(token, "FLAT") || !strcmp(token, "NONE")) {
        add_row(rows, r, token, at);
        return;
    }
    int n = (int)strlen(token) - 1;
    if (*token != 'D' || n < 1 || n > r->arity || strncmp(token + 1, letters, (size_t)n)) {
        wrong(r, token,
              "expected FLAT, NONE, or DA(...), DAB(..., ...), DABC(..., ..., ...) for "
              "no more operands than there are");
    }
    for (int i = 0; i < n; i++) {
        expect(r, i ? "," : "(");
        add(r->code, "\n    /* ", r->row, names[i]);
        at[1 + i] = compile_formula(r);
    }
    expect(r, ")");
    add_row(rows, r, "FORMULA", at);
}

/* The gradient column of a special or a composite row: a word. */
static void compile_kind(reader *r, text *rows, const int at[4])
{
    static const char *const kinds[] = {"OWN", "LEAF", "NONE", "EXPANSION", "FLAT"};
    char token[64];
    next(r, token);
    r->value = false;
    for (int i = 0; i < 5; i++) {
        if (!strcmp(token, kinds[i])) {
            add_row(rows, r, token, at);
            return;
        }
    }
    wrong(r, token, "expected OWN, LEAF, NONE, EXPANSION or FLAT");
}

/* Over n columns to the one behind them. */
static void skip_columns(reader *r, int n)
{
    char token[64];
    while (n > 0) {
        next(r, token);
        n -= *token == ',';
    }
}

/* Goes to the rows of a list. */
static void find_list(reader *r, const char *table, const char *list)
{
    char head[80];
    snprintf(head, sizeof(head), "#define %s(X)", list);
    r->at = strstr(table, head);
    if (!r->at) {
        fail("has no such list", list);
    }
    r->at += strlen(head);
    r->line = 1;
    for (const char *c = table; c < r->at; c++) {
        r->line += *c == '\n';
    }
}

/* E(...) or C(...): where the formula of each part begins. Gives their number. */
static int compile_parts(reader *r, const char *what, int at[4])
{
    int n = 0;
    expect(r, what);
    expect(r, "(");
    do {
        if (n == 4) {
            wrong(r, what, "more than four parts");
        }
        add(r->code, "\n    /* ", r->row, " */ ");
        at[n++] = compile_formula(r);
    } while (skips(r, ","));
    expect(r, ")");
    return n;
}

/* The combine rows: X(ID, name, TCI_Pn(...), E(...) or PAIR, C(...)). */
static void compile_combines(reader *r, const char *table, text *rows)
{
    char token[64], line[128];
    find_list(r, table, "TCI_COMBINES");
    r->value = r->combine = true;
    r->arity = 2;
    while (skips(r, "X")) {
        int element[4] = {0}, part[4] = {0};
        expect(r, "(");
        next(r, r->row);
        expect(r, ",");
        skip_columns(r, 1);
        next(r, token);
        int n = token[strlen(token) - 1] - '0';
        while (!skips(r, ")")) {
            next(r, token);
        }
        expect(r, ",");
        if (!skips(r, "PAIR") && compile_parts(r, "E", element) != n) {
            wrong(r, "E", "not as many parts as the row has");
        }
        expect(r, ",");
        if (compile_parts(r, "C", part) != n) {
            wrong(r, "C", "not as many parts as the row has");
        }
        expect(r, ")");
        snprintf(line, sizeof(line), "    [TCI_RED_%s] = {{%d, %d, %d, %d}, {%d, %d, %d, %d}},\n",
                 r->row, element[0], element[1], element[2], element[3], part[0], part[1], part[2],
                 part[3]);
        add(rows, line, "", "");
    }
    r->combine = false;
}

/* The rows of one list: each begins with X(ID, name. */
static void compile_list(reader *r, const char *table, const char *list, text *rows)
{
    char token[64];
    bool elementwise = !strcmp(list, "TCI_EW_OPS");
    r->reduce = !strcmp(list, "TCI_REDUCE_OPS");
    find_list(r, table, list);
    while (skips(r, "X")) {
        int at[4] = {0};
        expect(r, "(");
        next(r, r->row);
        expect(r, ",");
        skip_columns(r, 1);
        r->arity = 1;
        if (elementwise) {
            next(r, token);
            r->arity = atoi(token);
            skip_columns(r, 3);
            r->value = true;
            add(r->code, "\n    /* ", r->row, " */ ");
            at[0] = compile_formula(r);
            expect(r, ",");
        } else {
            skip_columns(r, r->reduce ? 3 : strcmp(list, "TCI_COMPOSITE_OPS") ? 4 : 3);
        }
        if (elementwise || r->reduce) {
            compile_gradient(r, rows, at);
        } else {
            compile_kind(r, rows, at);
        }
        expect(r, ",");
        next(r, token); /* the doc */
        expect(r, ")");
    }
}

/* The built rows: X(ID, name, arity, kind, operands, formula, doc). */
static void compile_built(reader *r, const char *table, text *rows)
{
    char token[64], line[96];
    find_list(r, table, "TCI_BUILT_OPS");
    r->built = true;
    r->reduce = r->value = false;
    while (skips(r, "X")) {
        expect(r, "(");
        next(r, r->row);
        expect(r, ",");
        skip_columns(r, 1);
        next(r, token);
        r->arity = atoi(token);
        skip_columns(r, 2);
        while (skips(r, "TCI_GIVEN") || skips(r, "TCI_ELSE")) {
            while (!skips(r, ")")) {
                next(r, token);
            }
        }
        expect(r, ",");
        add(r->code, "\n    /* ", r->row, " */ ");
        snprintf(line, sizeof(line), "    [TCI_BUILT_%s] = %d,\n", r->row, compile_formula(r));
        add(rows, line, "", "");
        expect(r, ",");
        next(r, token); /* the doc */
        expect(r, ")");
    }
    r->built = false;
}

/* code, with lines that end before column 100. */
static void add_wrapped(text *t, const char *code)
{
    size_t column = 0, n;
    for (; *code; code += n) {
        n = *code == '\n' ? 1 : strcspn(code + 1, " \n") + 1;
        if (column + n > 96 && *code == ' ') {
            add(t, "\n       ", "", "");
            column = 7;
        }
        add_n(t, code, n);
        column = *code == '\n' ? 0 : column + n;
    }
}

static text make_formulas(void)
{
    text t = {0}, table = {0}, rows = {0}, combines = {0}, built = {0}, code = {0}, numbers = {0};
    char deepest[64];
    if (!read_file(TABLE, &table)) {
        fail("cannot be read", TABLE);
    }
    add(&code, "    TCI_W_END, /* no formula */", "", "");
    add(&numbers, "", "", "");
    reader r = {.code = &code, .numbers = &numbers, .n_code = 1};
    compile_list(&r, table.at, "TCI_EW_OPS", &rows);
    compile_list(&r, table.at, "TCI_REDUCE_OPS", &rows);
    compile_list(&r, table.at, "TCI_SPECIAL_OPS", &rows);
    compile_list(&r, table.at, "TCI_COMPOSITE_OPS", &rows);
    compile_combines(&r, table.at, &combines);
    compile_built(&r, table.at, &built);
    snprintf(deepest, sizeof(deepest), "enum { TCI_FORMULA_DEEPEST = %d };\n", r.deepest);
    add(&t,
        "/* ops/formula.gen.h - formulas of ops/table.h (value, gradient, combine, built rows) "
        "as\n",
        " * postfix bytecode (ops/formula_bytecode.h). Generated by tools/amalgamate.c: edit the "
        "table,\n",
        " * not this file. */\n\n");
    add(&t, deepest, "static const double tci_formula_numbers[] = {\n   ", "");
    add_wrapped(&t, numbers.at);
    add(&t, "\n};\nstatic const uint8_t tci_formula_words[] = {\n", "", "");
    add_wrapped(&t, code.at);
    add(&t, "\n};\n", "", "");
    add(&t, "static const tci_formula_row tci_formula_rows[TCI_OP_COUNT] = {\n", rows.at, "};\n");
    add(&t, "static const tci_combine_row tci_combine_rows[] = {\n", combines.at, "};\n");
    add(&t, "static const uint16_t tci_built_rows[] = {\n", built.at, "};\n");
    free(table.at);
    free(combines.at);
    free(built.at);
    free(rows.at);
    free(code.at);
    free(numbers.at);
    return t;
}

/* ---- joining ---- */

/* dir(from)/name with "x/.." taken out. */
static void resolve(const char *from, const char *name, size_t name_n, char path[MAX_PATH])
{
    const char *slash = strrchr(from, '/');
    int dir_n = slash ? (int)(slash - from) + 1 : 0;
    snprintf(path, MAX_PATH, "%.*s%.*s", dir_n, from, (int)name_n, name);
    for (char *up = strstr(path, "/../"); up; up = strstr(path, "/../")) {
        char *before = up;
        while (before > path && before[-1] != '/') {
            before--;
        }
        memmove(before, up + 4, strlen(up + 4) + 1);
    }
}

/* Whether a line that begins inside a block comment (or not) ends inside one. */
static bool ends_in_comment(const char *line, const char *end, bool inside)
{
    char quote = 0;
    for (const char *c = line; c < end; c++) {
        if (inside) {
            inside = !(c[0] == '*' && c + 1 < end && c[1] == '/');
            c += !inside;
        } else if (quote) {
            c += *c == '\\';
            quote = *c == quote ? 0 : quote;
        } else if (*c == '"' || *c == '\'') {
            quote = *c;
        } else if (c[0] == '/' && c + 1 < end && c[1] == '/') {
            return false;
        } else if (c[0] == '/' && c + 1 < end && c[1] == '*') {
            inside = true;
            c++;
        }
    }
    return inside;
}

static bool is_root(const char *path)
{
    for (int i = 0; i < N_ROOTS; i++) {
        if (!strncmp(path, "src/", 4) && !strcmp(path + 4, roots[i])) {
            return true;
        }
    }
    return false;
}

/* base/impl_begin.h and base/impl_end.h are around the code of each root that is no part of tc.h;
 * a list of #undef (..._undef.h) is joined wherever it is included. */
static bool was_seen(const char *path)
{
    if (strstr(path, "base/impl_") || strstr(path, "_undef.h")) {
        return false;
    }
    for (int i = 0; i < n_seen; i++) {
        if (!strcmp(seen[i], path)) {
            return true;
        }
    }
    if (n_seen == MAX_ROOMS) {
        fail("too many rooms", path);
    }
    snprintf(seen[n_seen++], MAX_PATH, "%s", path);
    return false;
}

static void join(text *out, const char *path)
{
    text in = {0};
    bool comment = false; /* inside a block comment */
    bool away = false;    /* an inlined file stands between our last line and here */
    if (was_seen(path)) {
        return;
    }
    if (!read_file(path, &in)) {
        fail("cannot be read", path);
    }
    add(out, "/* ---- ", path, " ---- */\n");
    for (const char *line = in.at, *end; *line; line = end) {
        end = strchr(line, '\n');
        end = end ? end + 1 : in.at + in.n;
        if (!comment && !strncmp(line, "#include \"", 10)) {
            char other[MAX_PATH];
            resolve(path, line + 10, strcspn(line + 10, "\""), other);
            if (!is_root(other)) {
                size_t before = out->n;
                join(out, other);
                away = away || out->n != before;
                continue;
            }
        }
        if (away && line[0] != '\n' && !is_root(path)) {
            add(out, "/* ---- ", path, ", continued ---- */\n");
        }
        away = away && line[0] == '\n';
        comment = ends_in_comment(line, end, comment);
        add_n(out, line, (size_t)(end - line));
    }
    if (in.n && in.at[in.n - 1] != '\n') {
        add(out, "\n", "", "");
    }
    free(in.at);
}

/* ---- output ---- */

static int check(const char *path, const text *want)
{
    text have = {0};
    char room[MAX_PATH] = "src/";
    int line = 1;
    size_t i = 0, start = 0;
    if (read_file(path, &have) && have.n == want->n && !memcmp(have.at, want->at, have.n)) {
        return 0;
    }
    for (; i < have.n && i < want->n && have.at[i] == want->at[i]; i++) {
        if (want->at[i] == '\n') {
            sscanf(want->at + start, "/* ---- %500[^ ,]", room);
            start = i + 1;
            line++;
        }
    }
    const char *from = strstr(path, ".gen.h") ? "src/ops/table.h" : room;
    fprintf(stderr,
            "%s is not what the rooms give: line %d differs, it belongs to %s.\n"
            "Do not edit %s: change %s, then run make and check the result in.\n",
            path, line, from, path, from);
    return 1;
}

/* A generated room. Not 0: checked, and stale. */
static int generate(const char *path, text t, bool checking)
{
    int stale = 0;
    if (checking) {
        stale = check(path, &t);
    } else {
        write_file(path, &t);
    }
    free(t.at);
    return stale;
}

int main(int argc, char **argv)
{
    bool checking = argc > 1 && !strcmp(argv[1], "--check");
    int stale = 0;
    text parts[N_ROOTS] = {{0}};
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    if (generate("src/ops/formula.gen.h", make_formulas(), checking) ||
        generate("src/api/ops.gen.h", make_ops(), checking)) {
        return 1;
    }
    for (int i = 0; i < N_ROOTS; i++) {
        char path[MAX_PATH];
        snprintf(path, sizeof(path), "src/%s", roots[i]);
        join(&parts[i], path);
        for (size_t b = 0; b < parts[i].n; b++) {
            hash = (hash ^ (unsigned char)parts[i].at[b]) * 0x100000001b3u;
        }
    }
    for (int i = 0; i < N_ROOTS; i++) {
        text out = {0};
        char build[64];
        snprintf(build, sizeof(build), "#define TCI_BUILD \"%016llx\"\n", (unsigned long long)hash);
        add(&out, "/* ", roots[i], " - generated: edit the rooms under src/ and run make. ");
        add(&out, "SPDX-License-Identifier: MIT */\n", i ? "" : build, "");
        add_n(&out, parts[i].at, parts[i].n);
        if (checking) {
            stale += check(roots[i], &out);
        } else {
            write_file(roots[i], &out);
        }
        free(out.at);
        free(parts[i].at);
    }
    return stale != 0;
}
