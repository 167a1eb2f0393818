/* tools/readme.c - writes the generated parts of README.md, src/ROOMS.md and docs/.
 *
 *     readme            from the project's root: rewrites them
 *     readme --check    writes nothing; fails when one of them is not what the sources give
 *
 * A part stands between the lines <!-- generated: NAME --> and <!-- end of NAME -->. NAME is
 *   ops          the public calls of src/api/ops.gen.h (which comes from the rows of
 *                src/ops/table.h): a table for each section; and those of the other headers of
 *                src/api/: prototypes with the comments above them
 *   env          the rows of src/base/env.h
 *   options      struct tc_options of src/api/types.h
 *   dtypes, statuses   the rows of src/api/types.h
 *   rooms        in src/ROOMS.md: the files under src/ and what the head of each says first
 *   onnx         the rows of src/onnx/operator_table.h */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
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

/* A paragraph: what Markdown would take for its own marks is escaped. */
static void add_paragraph(text *t, const char *s, size_t n)
{
    text plain = {0};
    add(&plain, "");
    add_cell(&plain, s, n);
    for (const char *at = plain.at; *at; at++) {
        const bool escaped = *at == '\\' && at[1] == '|'; /* of a table only */
        if (!escaped) {
            add(t, strchr("*<", *at) ? "\\" : "");
            add_n(t, at, 1);
        }
    }
    free(plain.at);
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

/* The header whose rows are read, with each `" NAME "` in it replaced by the text that NAME is
 * defined as: string literals are joined as by a compiler. */
static text read_rows(const char *path)
{
    text t = read_file(path);
    for (char *at = strstr(t.at, "\" "); at; at = strstr(at + 1, "\" ")) {
        char name[64], head[96];
        int n = 0;
        if (sscanf(at, "\" %63[A-Z_] \"%n", name, &n) != 1 || n == 0) {
            continue;
        }
        snprintf(head, sizeof(head), "#define %s \"", name);
        const char *value = strstr(t.at, head);
        if (value) {
            value += strlen(head);
            text made = {0};
            add_n(&made, t.at, (size_t)(at - t.at));
            add_n(&made, value, strcspn(value, "\""));
            const size_t end = made.n;
            add(&made, at + n);
            free(t.at);
            t = made;
            at = t.at + end;
        }
    }
    return t;
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
    text t = read_rows(path);
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

/* With a capital letter. */
static void add_sentence(text *out, const char *begin, const char *end)
{
    text t = {0};
    add(&t, "");
    add_paragraph(&t, begin, (size_t)(end - begin));
    t.at[0] = (char)toupper((unsigned char)t.at[0]);
    add(out, t.at);
    free(t.at);
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
    const char *colon = memchr(begin, ':', (size_t)(stop - begin));
    const char *head = colon ? colon : stop; /* what follows a colon is text */
    add(out, "\n## ");
    add_sentence(out, begin, head);
    add(out, "\n\n");
    if (colon) {
        add_sentence(out, colon + 1 + strspn(colon + 1, " "), stop);
        add(out, ".\n\n");
    }
    if (stop < end) {
        const char *rest = stop + strspn(stop, "- ");
        add_paragraph(out, rest, (size_t)(end - rest));
        add(out, "\n\n");
    }
}

/* Sections and calls of ops.gen.h: a table each. */
static void add_rows_of_calls(text *out, const char *path)
{
    text t = read_file(path), doc = {0};
    for (const char *at = strstr(t.at, "/* ----"); at && *at; at += *at != 0) {
        if (!strncmp(at, "/*", 2)) {
            const char *end = strstr(at, "*/") + 2;
            free(doc.at);
            doc = bare_comment(at, end);
            if (!strncmp(doc.at, " ----", 5)) {
                add_section(out, &doc);
                add(out, "| call | result |\n|---|---|\n");
                doc.n = 0;
            }
            at = end - 1; /* its line's end may begin a call */
        } else if (!strncmp(at, "\n#define tc_", 12)) {
            add(out, "| `");
            add_cell(out, at + 9, strcspn(at + 9, ")") + 1);
            add(out, "` | ");
            add_cell(out, doc.at, doc.n);
            add(out, " |\n");
            doc.n = 0;
        }
    }
    free(doc.at);
    free(t.at);
}

/* The macro tc_name, after `at`, of the prototype "type tc_name_at(...)"; NULL: there is none, or
 * it takes "..." and calls another function with it. */
static const char *find_wrapper(const char *prototype, const char *suffix, const char *at)
{
    char head[96], call[96];
    const char *name = suffix;
    while (name > prototype && (isalnum((unsigned char)name[-1]) || name[-1] == '_')) {
        name--;
    }
    snprintf(head, sizeof(head), "#define %.*s(", (int)(suffix - name), name);
    snprintf(call, sizeof(call), " %.*s_at(", (int)(suffix - name), name);
    const char *macro = strstr(at, head), *end = macro;
    while (end && *end && (*end != '\n' || end[-1] == '\\')) {
        end++;
    }
    const bool variadic = macro && memmem(macro, strcspn(macro, ")"), "...", 3) != NULL;
    const bool calls = macro && memmem(macro, (size_t)(end - macro), call, strlen(call)) != NULL;
    return calls || !variadic ? macro : NULL;
}

/* "TC_API type tc_name_at(..., tc_site here);" as a user calls it by the macro tc_name, without the
 * line's end; where the macro takes "...", so does the list of sizes. Returns what follows the
 * prototype. */
static const char *add_prototype(text *out, const char *at)
{
    const char *end = strchr(at, ';');
    text line = {0};
    add(&line, "");
    add_cell(&line, at + 7, (size_t)(end - at - 7));
    char *suffix = strstr(line.at, "_at("), *site = strstr(line.at, "tc_site here)");
    const char *macro = suffix && site ? find_wrapper(line.at, suffix, end) : NULL;
    if (macro) {
        *suffix = 0;
        *site = 0;
        char *list = suffix + 4;
        site -= site > list && site[-1] == ' ';
        site -= site > list && site[-1] == ',';
        *site = 0;
        const bool variadic = memchr(macro, '\n', strcspn(macro, ")")) == NULL &&
                              memmem(macro, strcspn(macro, ")"), "...", 3) != NULL;
        char *n = variadic ? strstr(list, "int n, const int64_t *") : NULL;
        n = n || !variadic ? n : strstr(list, "int rank, const int64_t *");
        n = n && !strchr(strchr(n, '*'), ',') ? n : NULL; /* the list is the last operand */
        add(out, line.at);
        add(out, "(");
        if (n) {
            *n = 0;
            add(out, list);
            add(out, strchr(n + 1, '*') + 1);
            add(out, "...");
        } else {
            add(out, list);
        }
        add(out, ");");
    } else {
        add(out, line.at);
        add(out, ";");
    }
    free(line.at);
    return end + 1;
}

/* The comment behind a prototype, on its line or from there on, and the line's end. */
static const char *add_remark(text *out, const char *at)
{
    const char *remark = at + strspn(at, " ");
    const char *end = strncmp(remark, "/*", 2) ? NULL : strstr(remark, "*/") + 2;
    if (end) {
        text bare = bare_comment(remark, end);
        add(out, " /* ");
        add_cell(out, bare.at + strspn(bare.at, " "), strlen(bare.at + strspn(bare.at, " ")));
        add(out, " */");
        free(bare.at);
    }
    add(out, "\n");
    return end ? end : at;
}

/* Sections, types and calls of ops.h: the declarations below one comment, then its text. */
static void add_declarations(text *out, const char *path)
{
    text t = read_file(path), doc = {0};
    bool open = false; /* within a block of code */
    for (const char *at = strstr(t.at, "/* ----"); at && *at;) {
        const bool prototype = !strncmp(at, "TC_API", 6);
        const bool type = !strncmp(at, "typedef struct", 14) || !strncmp(at, "typedef enum", 12);
        if (!strncmp(at, "/*", 2)) {
            const char *end = strstr(at, "*/") + 2;
            if (open) {
                add(out, "```\n");
                add_paragraph(out, doc.at, doc.n);
                add(out, "\n\n");
                open = false;
            }
            free(doc.at);
            doc = bare_comment(at, end);
            if (!strncmp(doc.at, " ----", 5)) {
                add_section(out, &doc);
                doc.n = 0;
                doc.at[0] = 0;
            }
            at = end;
        } else if (prototype || type) {
            add(out, open ? "" : "```h\n");
            open = true;
            if (prototype) {
                at = add_remark(out, add_prototype(out, at));
            } else { /* as it stands, up to the line that ends it */
                const char *end = memchr(at, ';', strcspn(at, "{")) ? at : strstr(at, "\n}") + 1;
                end = strchr(end, ';');
                add_n(out, at, (size_t)(end + 1 - at));
                add(out, "\n");
                at = end + 1;
            }
        } else {
            at += strcspn(at, "\n");
            at += *at != 0;
        }
    }
    if (open) {
        add(out, "```\n");
        add_paragraph(out, doc.at, doc.n);
        add(out, "\n");
    }
    free(doc.at);
    free(t.at);
}

/* struct tc_options as it stands. */
static void make_options(text *out)
{
    static const char path[] = "src/api/types.h";
    text t = read_file(path);
    const char *at = strstr(t.at, "typedef struct tc_options");
    const char *end = strstr(t.at, "} tc_options;");
    if (!at || !end) {
        fail(path, "no struct tc_options");
    }
    add(out, "```h\n");
    add_n(out, at, (size_t)(end - at));
    add(out, "} tc_options;\n```\n");
    free(t.at);
}

/* ---- src/ROOMS.md ---- */

enum { MAX_DIRS = 64, ROOM_MOST = 300 }; /* folders; characters of a line */

/* What the head of a file says first: the text behind "file - " up to its first full stop. */
static text first_sentence(const char *path)
{
    text t = read_file(path), out = {0};
    const char *at = strstr(t.at, " - "), *end = strstr(t.at, "*/");
    add(&out, "");
    if (!at || !end || at > end) {
        fail(path, "no head: expected /* folder/file.c - what it is.");
    }
    for (at += 3; at < end; at++) {
        if (at[0] == '\n' && !strncmp(at, "\n *\n", 4)) {
            break;
        }
        if (at[0] == '\n') { /* the next line of the comment */
            at += 2;
        } else {
            add_n(&out, at, 1);
        }
        if (at[0] == '.' && isspace((unsigned char)at[1])) {
            break;
        }
    }
    while (out.n > 0 && isspace((unsigned char)out.at[out.n - 1])) {
        out.at[--out.n] = 0;
    }
    if (out.n > ROOM_MOST) {
        fail(path, "the first sentence of its head is longer than 300 characters");
    }
    free(t.at);
    return out;
}

static bool is_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f) {
        fclose(f);
    }
    return f != NULL;
}

static int is_room(const struct dirent *entry)
{
    const char *end = strrchr(entry->d_name, '.');
    return end && (!strcmp(end, ".c") || !strcmp(end, ".h"));
}

/* One line for a .c and the header of its name; a .c that says "see" its header has its line. */
static void add_room(text *out, const char *dir, const char *name)
{
    char path[600], header[600];
    snprintf(path, sizeof(path), "src/%s/%s", dir, name);
    snprintf(header, sizeof(header), "src/%s/%.*sc", dir, (int)strlen(name) - 1, name);
    bool is_header = name[strlen(name) - 1] == 'h';
    if (is_header && is_file(header)) {
        return; /* told with its .c */
    }
    snprintf(header, sizeof(header), "src/%s/%.*sh", dir, (int)strlen(name) - 1, name);
    bool pair = !is_header && is_file(header);
    text says = first_sentence(path);
    if (pair && !strncmp(says.at, "see ", 4)) {
        free(says.at);
        says = first_sentence(header);
    }
    add(out, "- `");
    add(out, name);
    add(out, pair ? "`, `.h`: " : "`: ");
    add(out, says.at);
    add(out, "\n");
    free(says.at);
}

static void add_folder(text *out, const char *dir)
{
    char path[300];
    struct dirent **entries = NULL;
    snprintf(path, sizeof(path), "src/%s", dir);
    int n = scandir(path, &entries, is_room, alphasort);
    if (n < 0) {
        fail(path, strerror(errno));
    }
    add(out, "\n## ");
    add(out, dir);
    add(out, "/\n\n");
    for (int i = 0; i < n; i++) {
        add_room(out, dir, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
}

/* Folders in the order in which the roots first name them, src/tc.h before the others. */
static void add_root(text *out, const char *path, char done[][64], int *n_done)
{
    text t = read_file(path);
    for (const char *at = strstr(t.at, "#include \""); at; at = strstr(at + 1, "#include \"")) {
        char dir[64];
        int i = 0;
        if (sscanf(at, "#include \"%63[a-z]/", dir) != 1 || at[10 + strlen(dir)] != '/') {
            continue;
        }
        while (i < *n_done && strcmp(done[i], dir)) {
            i++;
        }
        if (i == *n_done && i < MAX_DIRS) {
            strcpy(done[(*n_done)++], dir);
            add_folder(out, dir);
        }
    }
    free(t.at);
}

static int is_root(const struct dirent *entry)
{
    return !strncmp(entry->d_name, "tc_", 3) && is_room(entry);
}

static void make_rooms(text *out)
{
    char done[MAX_DIRS][64];
    int n_done = 0;
    struct dirent **entries = NULL;
    add_root(out, "src/tc.h", done, &n_done);
    int n = scandir("src", &entries, is_root, alphasort);
    for (int i = 0; i < n; i++) {
        char path[300];
        snprintf(path, sizeof(path), "src/%.250s", entries[i]->d_name);
        add_root(out, path, done, &n_done);
        free(entries[i]);
    }
    free(entries);
}

/* ONNX operators: name, and how each is made. */
static void make_onnx(text *out)
{
    text t = read_file("src/onnx/operator_table.h");
    const char *at = strstr(t.at, "#define TCI_OX_ROWS(X)");
    const char *end = at ? strstr(at, "\n\n") : NULL;
    row r;
    if (!end) {
        fail("src/onnx/operator_table.h", "no TCI_OX_ROWS");
    }
    add(out, "| operator | as |\n|---|---|\n");
    at = strstr(at + 22, "X(");
    while (at && at < end) {
        at = read_row(at, &r);
        add(out, "| ");
        add_cell(out, r.fields[0].at, r.fields[0].n);
        add(out, " | ");
        add_cell(out, r.fields[3].at, r.fields[3].n);
        add(out, " |\n");
        at = strstr(at, "X(");
    }
    free(t.at);
}

/* Headers of calls in the order of docs/ops.md: the operations, then the rest of the API. */
static const char *const call_headers[] = {"src/api/ops_elementwise.h",
                                           "src/api/ops_creation.h",
                                           "src/api/ops_reduce.h",
                                           "src/api/ops_shape.h",
                                           "src/api/ops_linalg.h",
                                           "src/api/ops_nn.h",
                                           "src/api/parameters.h",
                                           "src/api/ops_grad_vmap.h",
                                           "src/api/ops.h",
                                           "src/api/optim.h",
                                           "src/api/control_flow.h",
                                           "src/api/expr.h",
                                           "src/api/custom_op.h",
                                           "src/api/context.h",
                                           "src/api/program.h",
                                           "src/api/jit.h",
                                           "src/api/debug.h",
                                           "src/api/comm.h",
                                           "src/api/io.h",
                                           "src/api/backend.h",
                                           "src/api/graph_backend.h",
                                           "src/api/cuda.h"};

static void make_part(text *out, const char *name)
{
    if (!strcmp(name, "ops")) {
        add_rows_of_calls(out, "src/api/ops.gen.h");
        for (size_t i = 0; i < sizeof(call_headers) / sizeof(*call_headers); i++) {
            add_declarations(out, call_headers[i]);
        }
    } else if (!strcmp(name, "options")) {
        make_options(out);
    } else if (!strcmp(name, "onnx")) {
        make_onnx(out);
    } else if (!strcmp(name, "env")) {
        make_env(out);
    } else if (!strcmp(name, "dtypes")) {
        make_list(out, "TCI_DTYPE_ROWS", 1, "");
    } else if (!strcmp(name, "rooms")) {
        make_rooms(out);
    } else if (!strcmp(name, "statuses")) {
        make_list(out, "TCI_STATUS_ROWS", 0, "`");
    } else {
        fail("no such generated part", name);
    }
}

static text make_document(const char *path, const text *old)
{
    static const char mark[] = "<!-- generated: ";
    text made = {0};
    const char *at = old->at;
    add(&made, "");
    for (const char *part = strstr(at, mark); part; part = strstr(at, mark)) {
        char name[32], end[64];
        if (sscanf(part + sizeof(mark) - 1, "%31[a-z]", name) != 1) {
            fail(path, "a part without a name");
        }
        snprintf(end, sizeof(end), "<!-- end of %s -->", name);
        const char *body = strchr(part, '\n'), *stop = strstr(part, end);
        if (!body || !stop) {
            fail(path, end);
        }
        add_n(&made, at, (size_t)(body + 1 - at));
        make_part(&made, name);
        at = stop;
    }
    add(&made, at);
    return made;
}

/* Writes or compares a file whose text should be `made`. False: it differs, or differed. */
static bool settle(const char *path, text *old, text *made, bool checking)
{
    bool same = old->n == made->n && !memcmp(old->at, made->at, old->n);
    if (checking && !same) {
        fprintf(stderr, "%s is not what the sources give: run make readme headers.\n", path);
    } else if (!same) {
        char temporary[320];
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

static bool settle_document(const char *path, bool checking)
{
    text old = read_file(path), made = make_document(path, &old);
    return settle(path, &old, &made, checking);
}

int main(int argc, char **argv)
{
    bool checking = argc > 1 && !strcmp(argv[1], "--check");
    bool same = settle_document("README.md", checking);
    same = settle_document("src/ROOMS.md", checking) && same;
    DIR *docs = opendir("docs");
    for (struct dirent *entry; docs && (entry = readdir(docs)) != NULL;) {
        const size_t n = strlen(entry->d_name);
        if (n > 3 && !strcmp(entry->d_name + n - 3, ".md")) {
            char path[300];
            snprintf(path, sizeof(path), "docs/%s", entry->d_name);
            same = settle_document(path, checking) && same;
        }
    }
    if (docs) {
        closedir(docs);
    }
    return checking && !same;
}
