/* tools/readme.c - writes the generated parts of README.md and of the manual (src/api/manual.h).
 *
 *     readme            from the project's root: rewrites both
 *     readme --check    writes nothing; fails when one of them is not what the sources give
 *
 * In the manual it is the list of variables in section 16. In README.md a part stands between the
 * lines <!-- generated: NAME --> and <!-- end of NAME -->. NAME is
 *   ops          the public calls of src/api/ops.gen.h (which comes from the rows of
 *                src/ops/table.h) and src/api/ops.h: a table for each of their sections
 *   env          the rows of src/base/env.h
 *   dtypes, statuses   the rows of src/api/types.h
 * What a call does is the first sentence of the comment above its prototype, else the text of the
 * row of that name. */
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text {
    char *at;
    size_t n, cap;
} text;

static void fail(const char *path, const char *what)
{
    fprintf(stderr, "readme: %s: %s\n", path, what);
    exit(1);
}

static void add_n(text *t, const char *bytes, size_t n)
{
    if (t->n + n + 1 > t->cap) {
        t->cap = (t->n + n + 1) * 2;
        t->at = realloc(t->at, t->cap);
        if (!t->at) {
            fail("text", "out of memory");
        }
    }
    memcpy(t->at + t->n, bytes, n);
    t->n += n;
    t->at[t->n] = 0;
}

static void add(text *t, const char *s)
{
    add_n(t, s, strlen(s));
}

static text read_file(const char *path)
{
    text t = {0};
    char block[8192];
    size_t got;
    FILE *f = fopen(path, "rb");
    if (!f) {
        fail(path, strerror(errno));
    }
    add(&t, "");
    while ((got = fread(block, 1, sizeof(block), f)) > 0) {
        add_n(&t, block, got);
    }
    fclose(f);
    return t;
}

/* One cell of a table: bars escaped, space squeezed. */
static void add_cell(text *t, const char *s, size_t n)
{
    while (n && isspace((unsigned char)s[n - 1])) {
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '|') {
            add(t, "\\|");
        } else if (!isspace((unsigned char)s[i])) {
            add_n(t, s + i, 1);
        } else if (t->n && t->at[t->n - 1] != ' ') {
            add(t, " ");
        }
    }
}

/* ---- rows: X(ID, field, ..., "text") in a list macro ---- */

typedef struct span {
    const char *at;
    size_t n;
} span;
enum { MAX_FIELDS = 12 };
typedef struct row {
    span fields[MAX_FIELDS];
    int n;
} row;

/* The fields of the row that begins at X( ; returns what follows it. Quotes are taken off. */
static const char *read_row(const char *at, row *r)
{
    int depth = 1;
    char quote = 0;
    r->n = 0;
    at += 2;
    for (const char *begin = at;; at++) {
        bool ends = !quote && ((*at == ',' && depth == 1) || (*at == ')' && depth == 1));
        if (!*at) {
            return at;
        }
        if (ends && r->n < MAX_FIELDS) {
            const char *end = at;
            while (begin < end && (isspace((unsigned char)*begin) || strchr("\\\"", *begin))) {
                begin++;
            }
            while (end > begin && (isspace((unsigned char)end[-1]) || strchr("\\\"", end[-1]))) {
                end--;
            }
            r->fields[r->n++] = (span){begin, (size_t)(end - begin)};
            begin = at + 1;
        }
        if (ends && *at == ')') {
            return at + 1;
        }
        quote = quote ? (*at == quote ? 0 : quote) : *at == '"' ? '"' : 0;
        depth += !quote && *at == '(';
        depth -= !quote && *at == ')';
    }
}

/* The next row of the macro that `at` is inside of, read into *r; NULL at its end: a line without a
 * continuation. */
static const char *next_row(const char *at, row *r)
{
    while (strncmp(at, "X(", 2)) {
        if (!*at || (*at == '\n' && at[-1] != '\\')) {
            return NULL;
        }
        at++;
    }
    return read_row(at, r);
}

static const char *find_macro(const text *t, const char *path, const char *name)
{
    char head[64];
    snprintf(head, sizeof(head), "#define %s(X)", name);
    const char *at = strstr(t->at, head);
    if (!at) {
        fail(path, head);
    }
    return at + strlen(head);
}

/* ---- parts ---- */

static void make_env(text *out)
{
    static const char path[] = "src/base/env.h";
    text t = read_file(path);
    row r;
    add(out, "| variable | meaning |\n|---|---|\n");
    for (const char *at = next_row(find_macro(&t, path, "TCI_ENV_ROWS"), &r); at;
         at = next_row(at, &r)) {
        add(out, "| `");
        add_cell(out, r.fields[1].at, r.fields[1].n);
        add(out, "` | ");
        add_cell(out, r.fields[2].at, r.fields[2].n);
        add(out, " |\n");
    }
    free(t.at);
}

/* Field `which` of every row of a macro of api/types.h, as a list. */
static void make_list(text *out, const char *macro, int which, const char *before)
{
    static const char path[] = "src/api/types.h";
    text t = read_file(path);
    row r;
    for (const char *at = next_row(find_macro(&t, path, macro), &r), *first = at; at;
         at = next_row(at, &r)) {
        add(out, at == first ? "" : ", ");
        add(out, before);
        add_cell(out, r.fields[which].at, r.fields[which].n);
        add(out, before);
    }
    add(out, "\n");
    free(t.at);
}

/* The text of the op row of that name in table.h, into *out; nothing when there is none. */
static void add_row_text(text *out, const text *table, span name)
{
    row r;
    for (const char *at = strstr(table->at, "_OPS(X)"); at; at = strstr(at + 1, "_OPS(X)")) {
        for (const char *in = next_row(at + 7, &r); in; in = next_row(in, &r)) {
            if (r.n > 2 && r.fields[1].n == name.n && !memcmp(r.fields[1].at, name.at, name.n)) {
                add_cell(out, r.fields[r.n - 1].at, r.fields[r.n - 1].n);
                return;
            }
        }
    }
}

/* How long the first sentence is, without its full stop ("..." is none). */
static size_t sentence(const char *s, size_t n)
{
    while (n && isspace((unsigned char)s[n - 1])) {
        n--;
    }
    for (size_t i = 1; i < n; i++) {
        bool last = i + 1 == n || isspace((unsigned char)s[i + 1]);
        if (s[i] == '.' && last && s[i - 1] != '.') {
            return i;
        }
    }
    return n;
}

/* A comment without its marks and line beginnings. */
static text bare_comment(const char *at, const char *end)
{
    text t = {0};
    add(&t, "");
    for (at += 2; at < end - 2; at++) {
        if (*at == '\n') {
            add(&t, " ");
            at += 1 + strspn(at + 1, " ");
            at -= *at != '*';
        } else {
            add_n(&t, at, 1);
        }
    }
    return t;
}

/* "---- heading ---- what holds for all of them" */
static void add_section(text *out, const text *comment)
{
    const char *begin = comment->at + strspn(comment->at, "- ");
    const char *end = comment->at + comment->n;
    while (end > begin && strchr("- ", end[-1])) {
        end--;
    }
    const char *rule = strstr(begin, " ----");
    const char *stop = rule && rule < end ? rule : end;
    add(out, "\n**");
    add_cell(out, begin, (size_t)(stop - begin));
    add(out, "**\n\n");
    if (stop < end) {
        const char *rest = stop + strspn(stop, "- ");
        add_cell(out, rest, (size_t)(end - rest));
        add(out, "\n\n");
    }
    add(out, "| call | result |\n|---|---|\n");
}

/* Sections and calls of one header. */
static void add_calls(text *out, const char *path, const text *table)
{
    text t = read_file(path), doc = {0};
    for (const char *at = strstr(t.at, "/* ----"); at && *at; at += *at != 0) {
        if (!strncmp(at, "/*", 2)) {
            const char *end = strstr(at, "*/") + 2;
            free(doc.at);
            doc = bare_comment(at, end);
            if (!strncmp(doc.at, " ----", 5)) {
                add_section(out, &doc);
                doc.n = 0;
            }
            at = end - 1; /* its line's end may begin a call */
        } else if (!strncmp(at, "\n#define tc_", 12)) {
            span call = {at + 9, strcspn(at + 9, ")") + 1};
            span name = {call.at + 3, strcspn(call.at + 3, "(")};
            add(out, "| `");
            add_cell(out, call.at, call.n);
            add(out, "` | ");
            if (doc.n > 1) {
                add_cell(out, doc.at + 1, sentence(doc.at + 1, doc.n - 1));
            } else {
                add_row_text(out, table, name);
            }
            add(out, " |\n");
            doc.n = 0;
        }
    }
    free(doc.at);
    free(t.at);
}

static void make_part(text *out, const char *name)
{
    if (!strcmp(name, "ops")) {
        text table = read_file("src/ops/table.h");
        add_calls(out, "src/api/ops.gen.h", &table);
        add_calls(out, "src/api/ops.h", &table);
        add(out, "\n");
        free(table.at);
    } else if (!strcmp(name, "env")) {
        make_env(out);
    } else if (!strcmp(name, "dtypes")) {
        make_list(out, "TCI_DTYPE_ROWS", 1, "");
    } else if (!strcmp(name, "statuses")) {
        make_list(out, "TCI_STATUS_ROWS", 0, "`");
    } else {
        fail("README.md: no such part", name);
    }
}

static text make_readme(const text *old)
{
    static const char mark[] = "<!-- generated: ";
    text made = {0};
    const char *at = old->at;
    add(&made, "");
    for (const char *part = strstr(at, mark); part; part = strstr(at, mark)) {
        char name[32], end[64];
        if (sscanf(part + sizeof(mark) - 1, "%31[a-z]", name) != 1) {
            fail("README.md", "a part without a name");
        }
        snprintf(end, sizeof(end), "<!-- end of %s -->", name);
        const char *body = strchr(part, '\n'), *stop = strstr(part, end);
        if (!body || !stop) {
            fail("README.md", end);
        }
        add_n(&made, at, (size_t)(body + 1 - at));
        make_part(&made, name);
        at = stop;
    }
    add(&made, at);
    return made;
}

/* ---- the manual ---- */

enum { WIDTH = 100, TEXT_AT = 21 }; /* columns; where the second one of the list begins */

/* A line of the list, broken between words where it is too long. */
static void add_variable(text *t, const row *r)
{
    char line[256];
    int at = snprintf(line, sizeof(line), " *   %-*.*s ", TEXT_AT - 6, (int)r->fields[1].n,
                      r->fields[1].at);
    add(t, line);
    const char *word = r->fields[2].at, *end = word + r->fields[2].n;
    while (word < end) {
        const char *stop = word;
        while (stop < end && *stop != ' ') {
            stop++;
        }
        int n = (int)(stop - word);
        if (at + n > WIDTH) {
            at = snprintf(line, sizeof(line), "\n *%*s", TEXT_AT - 2, "") - 1;
            add(t, line);
        }
        add_n(t, word, (size_t)n);
        at += n + 1;
        word = stop + 1;
        add(t, word < end && at < WIDTH ? " " : "");
    }
    add(t, "\n");
}

static text make_manual(const text *old)
{
    static const char env[] = "src/base/env.h", path[] = "src/api/manual.h";
    const char *head = strstr(old->at, " * 16 ENVIRONMENT");
    const char *end = strstr(old->at, " * In a setuid");
    const char *begin = head ? strstr(head, " *\n") : NULL;
    if (!begin || !end || begin > end) {
        fail(path, "no list of variables in section 16");
    }
    text t = read_file(env), made = {0};
    row r;
    add_n(&made, old->at, (size_t)(begin + 3 - old->at));
    for (const char *at = next_row(find_macro(&t, env, "TCI_ENV_ROWS"), &r); at;
         at = next_row(at, &r)) {
        add_variable(&made, &r);
    }
    add(&made, " *\n");
    add(&made, end);
    free(t.at);
    return made;
}

/* Writes or compares a file whose text should be `made`. False: it differs, or differed. */
static bool settle(const char *path, text *old, text *made, bool checking)
{
    bool same = old->n == made->n && !memcmp(old->at, made->at, old->n);
    if (checking && !same) {
        fprintf(stderr, "%s is not what the sources give: run make readme headers.\n", path);
    } else if (!same) {
        char temporary[64];
        snprintf(temporary, sizeof(temporary), "%s.tmp", path);
        FILE *f = fopen(temporary, "wb");
        if (!f || fwrite(made->at, 1, made->n, f) != made->n || fclose(f) ||
            rename(temporary, path)) {
            fail(path, strerror(errno));
        }
        printf("readme: wrote %s\n", path);
    }
    free(old->at);
    free(made->at);
    return same;
}

int main(int argc, char **argv)
{
    bool checking = argc > 1 && !strcmp(argv[1], "--check");
    text readme = read_file("README.md"), manual = read_file("src/api/manual.h");
    text new_readme = make_readme(&readme), new_manual = make_manual(&manual);
    bool same = settle("README.md", &readme, &new_readme, checking);
    same = settle("src/api/manual.h", &manual, &new_manual, checking) && same;
    return checking && !same;
}
