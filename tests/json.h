/* tests/json.h - a small JSON reader for test data.
 *
 * In: a text of json_parse, which must outlive the result. Out: a tree of json values, freed as a
 * whole by json_free. A value remembers the text it was read from, so that a tool can copy it out
 * verbatim. Invariants: children hang from `first` by `next`, in the order of the text; keys and
 * strings are unescaped and NUL-terminated (\u escapes beyond ASCII become '?': names in test data
 * are ASCII). */
#ifndef TC_TEST_JSON_H
#define TC_TEST_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum json_kind {
    JSON_NULL,
    JSON_BOOL,
    JSON_NUMBER,
    JSON_STRING,
    JSON_LIST,
    JSON_OBJECT
} json_kind;

typedef struct json {
    json_kind kind;
    char *key;                 /* in an object */
    struct json *first, *next; /* children of a list or object; the next sibling */
    int n;                     /* children */
    bool is_integer;           /* JSON_NUMBER written without point and exponent */
    int64_t integer;           /* also 0 or 1 of JSON_BOOL */
    double number;
    char *string;
    const char *text; /* where it starts, in the parsed text */
    size_t text_bytes;
    struct json *allocated; /* every value of the tree: how json_free finds them */
} json;

enum { JSON_MAX_DEPTH = 200 }; /* of lists and objects: a hostile text must not use up the stack */

typedef struct json_reader {
    const char *at;
    json *values;
    int depth;
    bool failed;
} json_reader;

static json *json_read_value(json_reader *r);

static void json_skip_blanks(json_reader *r)
{
    while (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t') {
        r->at++;
    }
}

static json *json_make(json_reader *r)
{
    json *v = (json *)calloc(1, sizeof(*v));
    if (!v) {
        r->failed = true;
        return NULL;
    }
    v->allocated = r->values;
    r->values = v;
    v->text = r->at;
    return v;
}

/* One character after a backslash; -1 when it is none that JSON knows. */
static int json_unescape(json_reader *r)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = *r->at;
    if (c == 'u') {
        unsigned code = 0;
        for (int i = 1; i <= 4; i++) {
            char digit[2] = {r->at[i], 0};
            if (!digit[0] || !strchr("0123456789abcdefABCDEF", digit[0])) {
                return -1;
            }
            code = code * 16 + (unsigned)strtoul(digit, NULL, 16);
        }
        r->at += 5;
        return code && code < 128 ? (int)code : '?';
    }
    const char *found = c ? strchr(from, c) : NULL;
    if (!found) {
        return -1;
    }
    r->at++;
    return to[found - from];
}

static char *json_read_string(json_reader *r)
{
    if (*r->at != '"') {
        r->failed = true;
        return NULL;
    }
    const char *end = ++r->at;
    while (*end && *end != '"') {
        end += *end == '\\' && end[1] ? 2 : 1;
    }
    char *text = (char *)malloc((size_t)(end - r->at) + 1);
    if (!text || !*end) {
        free(text);
        r->failed = true;
        return NULL;
    }
    size_t n = 0;
    while (*r->at != '"') {
        int c = (unsigned char)*r->at++;
        if (c == '\\') {
            c = json_unescape(r);
        }
        if (c < 0) {
            r->failed = true;
            break;
        }
        text[n++] = (char)c;
    }
    r->at += !r->failed;
    text[n] = 0;
    return text;
}

static void json_read_number(json_reader *r, json *v)
{
    char *end;
    v->kind = JSON_NUMBER;
    v->number = strtod(r->at, &end);
    size_t bytes = (size_t)(end - r->at);
    v->is_integer = bytes > 0 && strcspn(r->at, ".eE") >= bytes;
    if (v->is_integer) {
        v->integer = strtoll(r->at, NULL, 10);
    }
    r->failed = r->failed || bytes == 0;
    r->at = end;
}

static void json_read_children(json_reader *r, json *v, char close)
{
    json **link = &v->first;
    r->at++;
    r->failed = r->failed || ++r->depth > JSON_MAX_DEPTH;
    json_skip_blanks(r);
    while (!r->failed && *r->at != close) {
        char *key = NULL;
        if (v->kind == JSON_OBJECT) {
            key = json_read_string(r);
            json_skip_blanks(r);
            r->failed = r->failed || *r->at != ':';
            r->at += !r->failed;
        }
        json *child = r->failed ? NULL : json_read_value(r);
        if (!child) {
            free(key);
            r->failed = true;
            return;
        }
        child->key = key;
        *link = child;
        link = &child->next;
        v->n++;
        json_skip_blanks(r);
        bool more = *r->at == ',';
        r->failed = r->failed || (!more && *r->at != close);
        r->at += more;
        json_skip_blanks(r);
    }
    r->at += !r->failed;
    r->depth--;
}

static json *json_read_value(json_reader *r)
{
    json_skip_blanks(r);
    json *v = json_make(r);
    if (!v) {
        return NULL;
    }
    if (*r->at == '{' || *r->at == '[') {
        v->kind = *r->at == '{' ? JSON_OBJECT : JSON_LIST;
        json_read_children(r, v, *r->at == '{' ? '}' : ']');
    } else if (*r->at == '"') {
        v->kind = JSON_STRING;
        v->string = json_read_string(r);
    } else if (!strncmp(r->at, "null", 4)) {
        r->at += 4;
    } else if (!strncmp(r->at, "true", 4) || !strncmp(r->at, "false", 5)) {
        v->kind = JSON_BOOL;
        v->integer = *r->at == 't';
        v->number = (double)v->integer;
        r->at += v->integer ? 4 : 5;
    } else {
        json_read_number(r, v);
    }
    v->text_bytes = (size_t)(r->at - v->text);
    return v;
}

static void json_free_values(json *v)
{
    while (v) {
        json *next = v->allocated;
        free(v->key);
        free(v->string);
        free(v);
        v = next;
    }
}

/* Frees the tree whose root this is. NULL is fine. */
static void json_free(json *root)
{
    if (root) {
        json_free_values(root->allocated);
        root->allocated = NULL;
        json_free_values(root);
    }
}

/* NULL when the text is not one JSON value. */
static json *json_parse(const char *text)
{
    json_reader r = {text, NULL, 0, false};
    json *root = json_read_value(&r);
    json_skip_blanks(&r);
    if (r.failed || *r.at) {
        json_free_values(r.values);
        return NULL;
    }
    json **link = &r.values; /* the root keeps the list of the others */
    while (*link != root) {
        link = &(*link)->allocated;
    }
    *link = root->allocated;
    root->allocated = r.values;
    return root;
}

static const json *json_get(const json *object, const char *key)
{
    const json *v = object && object->kind == JSON_OBJECT ? object->first : NULL;
    while (v && strcmp(v->key, key)) {
        v = v->next;
    }
    return v;
}

static inline const json *json_at(const json *list, int i)
{
    const json *v = list ? list->first : NULL;
    while (v && i-- > 0) {
        v = v->next;
    }
    return v;
}

static inline const char *json_string(const json *object, const char *key)
{
    const json *v = json_get(object, key);
    return v && v->kind == JSON_STRING ? v->string : "";
}

/* The whole file with a NUL behind it, from malloc; NULL when it cannot be read. */
static inline char *json_read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    long size = -1;
    if (file && !fseek(file, 0, SEEK_END) && (size = ftell(file)) >= 0 &&
        !fseek(file, 0, SEEK_SET)) {
        text = (char *)malloc((size_t)size + 1);
    }
    if (text && fread(text, 1, (size_t)size, file) == (size_t)size) {
        text[size] = 0;
        *bytes = (size_t)size;
    } else {
        free(text);
        text = NULL;
    }
    if (file) {
        fclose(file);
    }
    return text;
}

#endif
