/* tools/circles.c - circles of files by calls: files that, directly or through others, use each
 * other's functions and tables.
 *
 *     cc -E ... src/tc.h | circles MOST       fails if more than MOST files are in circles
 *     cc -E ... src/tc.h | circles --uses A B   what files with A in their path use of those with B
 *
 * In: the preprocessed library with its line markers, so macros that make functions count as what
 * they make, and no particular compiler is needed. An inline function of a header is a node of its
 * own between files, and no file; a call of debug/, whose rooms are hooks, does not count. Out:
 * every circle, and for each of its files one use that leads to another. */
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILES = 2048, MAX_NAMES = 1 << 16, MAX_NAME = 128 };

typedef struct name {
    char text[MAX_NAME];
    int file; /* that defines it; -1: none so far */
} name;

typedef struct use {
    int file, name;
} use;

static char files[MAX_FILES][MAX_NAME];
static int n_files;
static name *names;
static use *uses;
static size_t n_uses, cap_uses;
static short arrows[MAX_FILES][MAX_FILES]; /* uses; 0: none */
static int example[MAX_FILES][MAX_FILES];  /* a name */

static void fail(const char *what)
{
    fprintf(stderr, "circles: %s\n", what);
    exit(1);
}

static void *more(void *at, size_t bytes)
{
    at = realloc(at, bytes);
    if (!at) {
        fail("out of memory");
    }
    return at;
}

/* Open addressing; never full. */
static int name_of(const char *text, size_t n)
{
    unsigned h = 2166136261u;
    for (size_t i = 0; i < n; i++) {
        h = (h ^ (unsigned char)text[i]) * 16777619u;
    }
    n = n < MAX_NAME ? n : MAX_NAME - 1;
    for (h %= MAX_NAMES; names[h].text[0]; h = (h + 1) % MAX_NAMES) {
        if (!strncmp(names[h].text, text, n) && !names[h].text[n]) {
            return (int)h;
        }
    }
    memcpy(names[h].text, text, n);
    names[h].file = -1;
    return (int)h;
}

/* The file of a line marker: # 12 "src/loop/tile_schedules.c" ... -1: none of the rooms. */
static int file_of(const char *line)
{
    const char *from = strchr(line, '"'), *room = from ? strstr(from, "src/") : NULL;
    const char *dir = room ? room + 4 : NULL, *slash = dir ? strchr(dir, '/') : NULL;
    const char *end = slash ? strchr(slash, '"') : NULL;
    if (!end || end - dir >= MAX_NAME) {
        return -1;
    }
    int n = (int)(end - dir), i = 0;
    while (i < n_files && (strncmp(files[i], dir, (size_t)n) || files[i][n])) {
        i++;
    }
    if (i == n_files) {
        if (n_files == MAX_FILES) {
            fail("too many files");
        }
        snprintf(files[n_files++], MAX_NAME, "%.*s", n, dir);
    }
    return i;
}

/* The node of an inline function. */
static int node_of_inline(int file, int what)
{
    if (n_files == MAX_FILES) {
        fail("too many files");
    }
    char text[MAX_NAME];
    snprintf(text, sizeof(text), "%.60s:%.60s", files[file], names[what].text);
    memcpy(files[n_files], text, sizeof(text));
    return n_files++;
}

static bool is_header(int file)
{
    size_t n = strlen(files[file]);
    return n > 2 && !strcmp(files[file] + n - 2, ".h");
}

static void add_use(int file, int what)
{
    if (n_uses == cap_uses) {
        cap_uses = cap_uses ? 2 * cap_uses : 1 << 16;
        uses = more(uses, cap_uses * sizeof(*uses));
    }
    uses[n_uses++] = (use){file, what};
}

/* Behind a string or a character that begins at c. */
static const char *past_quote(const char *c)
{
    char quote = *c++;
    for (; *c && *c != quote; c++) {
        c += *c == '\\' && c[1];
    }
    return *c ? c + 1 : c;
}

/* What stands at the top level, and how deep the text is in braces and parentheses. */
typedef struct scan {
    int file, inner; /* inner: of the inline function around here; -1: none */
    int braces, parens;
    int last, called; /* the name before here; the first one before a parenthesis, or a table's */
    bool is_type;     /* the braces are those of a struct, a union or an enum */
} scan;

static void see_name(scan *s, const char *from, size_t n)
{
    static const char *const types[] = {"struct", "union", "enum"};
    if (s->braces == 0 && s->parens == 0) {
        for (int i = 0; i < 3; i++) {
            s->is_type |= n == strlen(types[i]) && !strncmp(from, types[i], n) && s->last < 0;
        }
    }
    int at = name_of(from, n);
    if (s->braces > 0 && s->file >= 0) {
        add_use(s->inner >= 0 ? s->inner : s->file, at);
    }
    if (s->braces == 0 && s->parens == 0 && !strncmp(from, "tc", 2)) {
        s->last = at; /* not an attribute, nor a type of C */
    }
}

/* One character that is no part of a name: where a definition begins, its name is known. */
static void see_mark(scan *s, char c)
{
    if (s->braces == 0 && c == '(' && s->parens++ == 0 && s->called < 0) {
        s->called = s->last;
    } else if (s->braces == 0 && c == ')') {
        s->parens -= s->parens > 0;
    } else if (s->braces == 0 && (c == '=' || c == '[') && s->called < 0) {
        s->called = s->last; /* a table */
    } else if (c == '{') {
        if (s->braces++ == 0 && s->called >= 0 && s->file >= 0 && names[s->called].file < 0) {
            s->inner = is_header(s->file) ? node_of_inline(s->file, s->called) : -1;
            names[s->called].file = s->inner >= 0 ? s->inner : s->file;
        }
    } else if (c == '}') {
        s->braces -= s->braces > 0;
        s->inner = s->braces > 0 ? s->inner : -1;
    }
    if (s->braces == 0 && (c == ';' || c == '}')) {
        s->last = s->called = -1;
        s->parens = 0;
    }
}

static void read_all(FILE *in)
{
    static char line[1 << 20];
    scan s = {.file = -1, .inner = -1, .last = -1, .called = -1};
    while (fgets(line, sizeof(line), in)) {
        if (line[0] == '#') {
            if (isdigit((unsigned char)line[2])) {
                s.file = file_of(line);
            }
            continue;
        }
        for (const char *c = line; *c;) {
            size_t n = 0;
            while (isalnum((unsigned char)c[n]) || c[n] == '_') {
                n++;
            }
            if (n) {
                see_name(&s, c, n);
                c += n;
            } else if (*c == '"' || *c == '\'') {
                c = past_quote(c);
            } else {
                see_mark(&s, *c++);
            }
        }
    }
}

/* Rooms of debug/ are hooks that every stage may call: only their own uses count. */
static bool is_hook(int file)
{
    return !strncmp(files[file], "debug/", 6);
}

static void draw_arrows(void)
{
    for (size_t i = 0; i < n_uses; i++) {
        int to = names[uses[i].name].file, from = uses[i].file;
        if (to >= 0 && to != from && (!is_hook(to) || is_hook(from))) {
            arrows[from][to] = 1;
            example[from][to] = uses[i].name;
        }
    }
}

/* ---- strongly connected components (Tarjan) ---- */

static int index_of[MAX_FILES], low[MAX_FILES], stack[MAX_FILES], part[MAX_FILES];
static bool on_stack[MAX_FILES];
static int n_stack, n_index, n_parts;

static void visit(int v)
{
    index_of[v] = low[v] = ++n_index;
    stack[n_stack++] = v;
    on_stack[v] = true;
    for (int w = 0; w < n_files; w++) {
        if (arrows[v][w] && !index_of[w]) {
            visit(w);
            low[v] = low[w] < low[v] ? low[w] : low[v];
        } else if (arrows[v][w] && on_stack[w]) {
            low[v] = index_of[w] < low[v] ? index_of[w] : low[v];
        }
    }
    if (low[v] == index_of[v]) {
        int w;
        do {
            w = stack[--n_stack];
            on_stack[w] = false;
            part[w] = n_parts;
        } while (w != v);
        n_parts++;
    }
}

static bool is_file(int v)
{
    return !strchr(files[v], ':');
}

static int print_circles(void)
{
    int in_circles = 0;
    for (int v = 0; v < n_files; v++) {
        if (!index_of[v]) {
            visit(v);
        }
    }
    for (int p = 0; p < n_parts; p++) {
        int n = 0;
        for (int v = 0; v < n_files; v++) {
            n += part[v] == p && is_file(v);
        }
        if (n < 2) {
            continue;
        }
        in_circles += n;
        printf("circle of %d files:\n", n);
        for (int v = 0; v < n_files; v++) {
            bool told = part[v] != p || !is_file(v);
            for (int w = 0; w < n_files && !told; w++) {
                if (part[w] == p && arrows[v][w]) {
                    printf("  %s uses %s of %s\n", files[v], names[example[v][w]].text, files[w]);
                    told = true;
                }
            }
        }
    }
    return in_circles;
}

/* Each name that files of the one kind use of files of the other. */
static void print_uses(const char *from, const char *to)
{
    for (size_t i = 0; i < n_uses; i++) {
        const name *what = &names[uses[i].name];
        if (what->file >= 0 && what->file != uses[i].file && strstr(files[uses[i].file], from) &&
            strstr(files[what->file], to)) {
            printf("%s %s %s\n", files[uses[i].file], files[what->file], what->text);
        }
    }
}

int main(int argc, char **argv)
{
    names = calloc(MAX_NAMES, sizeof(*names));
    if (!names) {
        fail("out of memory");
    }
    read_all(stdin);
    if (argc == 4 && !strcmp(argv[1], "--uses")) {
        print_uses(argv[2], argv[3]);
        return 0;
    }
    draw_arrows();
    int most = argc > 1 ? atoi(argv[1]) : 0, n = print_circles();
    printf("%d files are in circles by calls; allowed: %d%s\n", n, most,
           n < most ? " (tools/lint.sh: lower it)" : "");
    return n_files < 2 || n > most;
}
