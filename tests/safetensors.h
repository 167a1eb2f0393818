/* tests/safetensors.h - reads and writes safetensors files for test data.
 *
 * The format: 8 bytes of header length (little endian), a JSON header {"name": {"dtype", "shape",
 * "data_offsets": [begin, end]}}, then the data. In: a path. Out: a file whose arrays are found by
 * name; data is borrowed from the file. Names are found through a sorted index: files hold
 * thousands. */
#ifndef TC_TEST_SAFETENSORS_H
#define TC_TEST_SAFETENSORS_H

#include "json.h"

typedef struct st_array {
    const char *name, *dtype; /* "F32" */
    const json *shape;        /* list of integers */
    const char *data;
    size_t bytes;
} st_array;

typedef struct st_file {
    char *text;        /* the whole file */
    char *header_text; /* a NUL-terminated copy */
    json *header;
    st_array *arrays; /* by name */
    int n;
} st_file;

static int st_compare(const void *a, const void *b)
{
    return strcmp(((const st_array *)a)->name, ((const st_array *)b)->name);
}

static void st_close(st_file *f)
{
    json_free(f->header);
    free(f->header_text);
    free(f->text);
    free(f->arrays);
    memset(f, 0, sizeof(*f));
}

static bool st_index(st_file *f, const char *data, size_t data_bytes)
{
    f->arrays = (st_array *)calloc((size_t)f->header->n + 1, sizeof(*f->arrays));
    for (const json *v = f->header->first; f->arrays && v; v = v->next) {
        const json *offsets = json_get(v, "data_offsets");
        if (!strcmp(v->key, "__metadata__")) {
            continue;
        }
        if (!offsets || offsets->n != 2 || !json_get(v, "shape")) {
            return false;
        }
        int64_t begin = offsets->first->integer, end = offsets->first->next->integer;
        if (begin < 0 || end < begin || (uint64_t)end > data_bytes) {
            return false;
        }
        st_array a = {v->key, json_string(v, "dtype"), json_get(v, "shape"), data + begin,
                      (size_t)(end - begin)};
        f->arrays[f->n++] = a;
    }
    if (f->arrays) {
        qsort(f->arrays, (size_t)f->n, sizeof(*f->arrays), st_compare);
    }
    return f->arrays != NULL;
}

/* false: not readable, or not such a file; then *f is empty. */
static bool st_open(st_file *f, const char *path)
{
    size_t bytes = 0;
    uint64_t header_bytes = 0;
    memset(f, 0, sizeof(*f));
    f->text = json_read_file(path, &bytes);
    for (int i = 7; f->text && bytes >= 8 && i >= 0; i--) {
        header_bytes = header_bytes << 8 | (unsigned char)f->text[i];
    }
    if (!f->text || bytes < 8 || header_bytes > bytes - 8) {
        st_close(f);
        return false;
    }
    f->header_text = (char *)calloc(1, (size_t)header_bytes + 1);
    if (f->header_text) {
        memcpy(f->header_text, f->text + 8, (size_t)header_bytes);
        f->header = json_parse(f->header_text);
    }
    bool is_object = f->header && f->header->kind == JSON_OBJECT;
    if (!is_object || !st_index(f, f->text + 8 + header_bytes, bytes - 8 - (size_t)header_bytes)) {
        st_close(f);
        return false;
    }
    return true;
}

static const st_array *st_find(const st_file *f, const char *name)
{
    st_array key = {name, NULL, NULL, NULL, 0};
    return (const st_array *)bsearch(&key, f->arrays, (size_t)f->n, sizeof(*f->arrays), st_compare);
}

/* Writes the n arrays, which may be borrowed from an open file; every one starts at a multiple of 8
 * bytes when widths descend, so sort them so. false: not written. */
static inline bool st_write(const char *path, const st_array *arrays, int n)
{
    FILE *file = fopen(path, "wb");
    if (!file) {
        return false;
    }
    uint64_t at = 0, header_bytes = 0;
    for (int pass = 0; pass < 2; pass++) { /* once for the length, then for good */
        fseek(file, 0, SEEK_SET);
        for (int i = 0; i < 8; i++) {
            fputc((int)(header_bytes >> (8 * i) & 255), file);
        }
        fputc('{', file);
        at = 0;
        for (int i = 0; i < n; i++) {
            fprintf(file, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%.*s,\"data_offsets\":[%llu,%llu]}",
                    i ? "," : "", arrays[i].name, arrays[i].dtype, (int)arrays[i].shape->text_bytes,
                    arrays[i].shape->text, (unsigned long long)at,
                    (unsigned long long)(at + arrays[i].bytes));
            at += arrays[i].bytes;
        }
        fputc('}', file);
        while (ftell(file) % 8) {
            fputc(' ', file);
        }
        header_bytes = (uint64_t)ftell(file) - 8;
    }
    for (int i = 0; i < n; i++) {
        fwrite(arrays[i].data, 1, arrays[i].bytes, file);
    }
    return fclose(file) == 0;
}

#endif
