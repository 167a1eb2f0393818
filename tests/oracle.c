/* tests/oracle.c - build/oracle MANIFEST.json DATA.safetensors [--backend NAME] [--cc COMPILER]
 *                               [--op REGEX] [--grad] [--symbolic] [--quiet]
 *
 * Replays reference cases computed elsewhere through the public calls (tests/oracle_run.h says
 * how), prints a line per op and as last line `N passed, N failed, N skipped`. Exit status: 0; 1
 * when something failed; 2 when the run could not be made.
 *
 *     build/oracle MANIFEST DATA --reduce OUT.json OUT.safetensors
 *
 * writes the part of the files whose ops tc has (tests/oracle_ops.h), without the doc
 * text, the promotion tables and the gradients: this made tests/data/opinfo.*. */
#include "tc.h"

#include "oracle_run.h"

static bool orc_in_table(const json *spec)
{
    orc_row row;
    return orc_row_find(json_string(spec, "op"), &row);
}

/* The cases (or must-fail cases) of the list that the table has, as JSON, each without these
 * members. */
static void orc_write_cases(FILE *out, const json *list)
{
    bool first = true;
    for (const json *spec = list ? list->first : NULL; spec; spec = spec->next) {
        bool first_member = true;
        if (!orc_in_table(spec)) {
            continue;
        }
        fprintf(out, first ? "\n{" : ",\n{");
        for (const json *v = spec->first; v; v = v->next) {
            if (strcmp(v->key, "grads") && strcmp(v->key, "cots") && strcmp(v->key, "gerr")) {
                fprintf(out, "%s\"%s\": %.*s", first_member ? "" : ", ", v->key, (int)v->text_bytes,
                        v->text);
                first_member = false;
            }
        }
        fprintf(out, "}");
        first = false;
    }
}

/* Marks the arrays that a value names. */
static void orc_mark(const st_file *f, const json *v, bool *used)
{
    const st_array *a = orc_is_tensor(v) ? st_find(f, json_string(v, "t")) : NULL;
    if (a) {
        used[a - f->arrays] = true;
    }
    for (const json *child = v->first; child; child = child->next) {
        if (!child->key || (strcmp(child->key, "grads") && strcmp(child->key, "cots"))) {
            orc_mark(f, child, used);
        }
    }
}

static void orc_mark_cases(const st_file *f, const json *list, bool *used)
{
    for (const json *spec = list ? list->first : NULL; spec; spec = spec->next) {
        if (orc_in_table(spec)) {
            orc_mark(f, spec, used);
        }
    }
}

static int orc_wider_first(const void *a, const void *b)
{
    const st_array *x = (const st_array *)a, *y = (const st_array *)b;
    int wide = (strstr(y->dtype, "64") != NULL) - (strstr(x->dtype, "64") != NULL);
    int narrow = (strstr(y->dtype, "32") != NULL) - (strstr(x->dtype, "32") != NULL);
    int half = (strstr(y->dtype, "16") != NULL) - (strstr(x->dtype, "16") != NULL);
    return wide ? wide : narrow ? narrow : half ? half : strcmp(x->name, y->name);
}

static int orc_reduce_files(const json *manifest, const st_file *arrays, const char *json_path,
                            const char *data_path)
{
    FILE *out = fopen(json_path, "wb");
    bool *used = (bool *)calloc((size_t)arrays->n + 1, sizeof(*used));
    st_array *kept = (st_array *)calloc((size_t)arrays->n + 1, sizeof(*kept));
    int n = 0;
    if (!out || !used || !kept) {
        fprintf(stderr, "oracle: cannot write %s\n", json_path);
        return 2;
    }
    const json *cases = json_get(manifest, "cases");
    fprintf(out, "{\"format\": 1, \"cases\": [");
    orc_write_cases(out, cases);
    fprintf(out, "],\n\"errors\": [");
    orc_write_cases(out, json_get(manifest, "errors"));
    fprintf(out, "]}\n");
    orc_mark_cases(arrays, cases, used);
    orc_mark_cases(arrays, json_get(manifest, "errors"), used);
    for (int i = 0; i < arrays->n; i++) {
        if (used[i]) {
            kept[n++] = arrays->arrays[i];
        }
    }
    qsort(kept, (size_t)n, sizeof(*kept), orc_wider_first);
    bool written = !fclose(out) && st_write(data_path, kept, n);
    free(used);
    free(kept);
    return written ? 0 : 2;
}

static int orc_usage(void)
{
    fprintf(stderr, "usage: oracle MANIFEST.json DATA.safetensors [--backend NAME] [--cc COMPILER] "
                    "[--op REGEX] [--grad] [--symbolic] [--quiet] "
                    "[--reduce OUT.json OUT.safetensors]\n");
    return 2;
}

static int orc_replay_files(orc_run *r, const char *pattern)
{
    regex_t filter;
    if (pattern) {
        if (regcomp(&filter, pattern, REG_EXTENDED | REG_NOSUB)) {
            fprintf(stderr, "oracle: %s is no regular expression\n", pattern);
            return 2;
        }
        r->filter = &filter;
    }
    bool works = orc_replay(r);
    if (pattern) {
        regfree(&filter);
    }
    if (!works) {
        fprintf(stderr, "oracle: backend %s does not work here\n",
                r->backend ? r->backend : "(default)");
        return 2;
    }
    printf("%d passed, %d failed, %d skipped\n", r->passed, r->failed, r->skipped);
    return r->failed != 0;
}

int main(int argc, char **argv)
{
    static orc_run run;
    const char *pattern = NULL, *reduce[2] = {NULL, NULL};
    if (argc < 3) {
        return orc_usage();
    }
    for (int i = 3; i < argc; i++) {
        if (!strcmp(argv[i], "--grad")) {
            run.grad = true;
        } else if (!strcmp(argv[i], "--symbolic")) {
            run.symbolic = true;
        } else if (!strcmp(argv[i], "--quiet")) {
            run.quiet = true;
        } else if (!strcmp(argv[i], "--backend") && i + 1 < argc) {
            run.backend = argv[++i];
        } else if (!strcmp(argv[i], "--cc") && i + 1 < argc) {
            run.cc = argv[++i];
        } else if (!strcmp(argv[i], "--op") && i + 1 < argc) {
            pattern = argv[++i];
        } else if (!strcmp(argv[i], "--reduce") && i + 2 < argc) {
            reduce[0] = argv[++i];
            reduce[1] = argv[++i];
        } else {
            return orc_usage();
        }
    }
    size_t bytes;
    st_file arrays;
    char *text = json_read_file(argv[1], &bytes);
    json *manifest = text ? json_parse(text) : NULL;
    if (!manifest || !st_open(&arrays, argv[2])) {
        fprintf(stderr, "oracle: %s cannot be read\n", manifest ? argv[2] : argv[1]);
        json_free(manifest);
        free(text);
        return 2;
    }
    run.manifest = manifest;
    run.arrays = &arrays;
    int status = reduce[0] ? orc_reduce_files(manifest, &arrays, reduce[0], reduce[1])
                           : orc_replay_files(&run, pattern);
    st_close(&arrays);
    json_free(manifest);
    free(text);
    return status;
}
