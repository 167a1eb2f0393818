/* tools/amalgamate.c - joins the rooms under src/ into the shipped headers.
 *
 *     amalgamate            from the project's root: writes src/api/ops.gen.h and the headers
 *     amalgamate --check    writes nothing; says which header is stale and which room to edit
 *
 * A quoted include is replaced by that file's text, the first time only; includes of system headers
 * and of another shipped header stay. Each file starts with a banner, so a line of a shipped header
 * leads back to its room. TCI_BUILD is a hash of everything joined: part of every cache key. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../src/ops/table.h"

typedef struct text {
    char *at;
    size_t n, cap;
} text;

static const char *const roots[] = {"tc.h", "tc_cpu.h", "tc_cuda.h"}; /* in include order */
enum { N_ROOTS = sizeof(roots) / sizeof(roots[0]), MAX_ROOMS = 512, MAX_PATH = 512 };

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

/* Through a temporary, so that nobody reads half a header. A file that is already right is left
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

static void add_elementwise(text *t, const char *name, int arity, const char *rule,
                            const char *doc)
{
    static const char *const operands[] = {"a", "b", "c"};
    bool is_bool = !strcmp(rule, "COMPARE") || !strcmp(rule, "LOGIC");
    const char *to = is_bool                    ? "; bool"
                     : !strcmp(rule, "FLOAT")   ? "; float"
                     : !strcmp(rule, "NUMERIC") ? "; not of bool"
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
    add(t, ") tc_", name, "_at(");
    for (int i = 0; i < arity; i++) {
        add(t, "TC_ARG(", operands[i], "), ");
    }
    add(t, "TC_HERE)\n", "", "");
}

static void add_reduce(text *t, const char *name, const char *rule, const char *doc)
{
    bool index = !strcmp(rule, "INDEX");
    const char *axes = index ? "axis" : "axes";
    const char *to = index                   ? "; i64"
                     : !strcmp(rule, "SUM")  ? "; of integers and bool in i64 (u16 up: u64)"
                     : !strcmp(rule, "BOOL") ? "; bool"
                                             : "; x's dtype";
    add(t, "/* ", doc, "");
    add(t, to, " */\nTC_API tc_tensor tc_", "");
    add(t, name, "_at(tc_tensor x, ", index ? "int axis" : "tc_axes axes");
    add(t, ", bool keepdims, tc_site here);\n#define tc_", name, "(x, ");
    add(t, axes, ", keepdims) tc_", name);
    add(t, "_at((x), (", axes, "), (keepdims), TC_HERE)\n");
}

static text make_ops(void)
{
    text t = {0};
    add(&t, "/* api/ops.gen.h - generated from the rows of ops/table.h by tools/amalgamate.c: ",
        "edit the rows.\n * Included by api/ops.h. */\n\n",
        "/* ---- elementwise: operands are tensors or C numbers ----\n"
        " * Shapes broadcast (else TC_ERR_SHAPE); the result has the dtype in which the operands\n"
        " * meet unless its line says: bool; float (a float dtype stays, others give f32); not of\n"
        " * bool (TC_ERR_DTYPE). TC_ERR_HANDLE when no operand is a tensor. */\n");
#define X(id, name, arity, rule, flags, value, gradient, doc) \
    add_elementwise(&t, #name, arity, #rule, doc);
    TCI_EW_OPS(X)
#undef X
    add(&t, "\n/* ---- reductions: axes is TC_AXES(...) or TC_ALL; negative axes count ",
        "from the end ----\n",
        " * The axes are dropped, or stay with size 1 where keepdims. TC_ERR_AXIS: out of range,\n"
        " * or given twice; TC_ERR_SHAPE: max, min, argmax or argmin over nothing. */\n");
#define X(id, name, rule, identity, gradient, doc) add_reduce(&t, #name, #rule, doc);
    TCI_REDUCE_OPS(X)
#undef X
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

static bool was_seen(const char *path)
{
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
    fprintf(stderr,
            "%s is not what the rooms give: line %d differs, it belongs to %s.\n"
            "Do not edit %s: change %s, then run make and check the result in.\n",
            path, line, strstr(path, "ops.gen") ? "src/ops/table.h" : room, path,
            strstr(path, "ops.gen") ? "src/ops/table.h" : room);
    return 1;
}

int main(int argc, char **argv)
{
    bool checking = argc > 1 && !strcmp(argv[1], "--check");
    int stale = 0;
    text ops = make_ops(), parts[N_ROOTS] = {{0}};
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    if (!checking) {
        write_file("src/api/ops.gen.h", &ops);
    } else if (check("src/api/ops.gen.h", &ops)) {
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
    free(ops.at);
    return stale != 0;
}
