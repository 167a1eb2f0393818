/* tests/onnx/bytes.h - ONNX models made by tests: messages of protobuf, as bytes. */
#ifndef TESTS_ONNX_BYTES_H
#define TESTS_ONNX_BYTES_H

#include "tc_test.h"

typedef struct message {
    unsigned char at[4096];
    size_t n;
} message;

TCT_UNUSED static void add_varint(message *m, uint64_t v)
{
    for (; v >= 128; v >>= 7) {
        m->at[m->n++] = (unsigned char)(v | 128);
    }
    m->at[m->n++] = (unsigned char)v;
}

TCT_UNUSED static void add_number(message *m, int field, uint64_t v)
{
    add_varint(m, (uint64_t)field << 3);
    add_varint(m, v);
}

TCT_UNUSED static void add_bytes(message *m, int field, const void *bytes, size_t n)
{
    add_varint(m, (uint64_t)field << 3 | 2);
    add_varint(m, n);
    memcpy(m->at + m->n, bytes, n);
    m->n += n;
}

TCT_UNUSED static void add_text(message *m, int field, const char *text)
{
    add_bytes(m, field, text, strlen(text));
}

TCT_UNUSED static void add_message(message *m, int field, const message *inner)
{
    add_bytes(m, field, inner->at, inner->n);
}

/* An input or output; names of sizes, "?" for numbers below. */
TCT_UNUSED static void add_info(message *graph, int field, const char *name, int type,
                                const char *const *sizes)
{
    message shape = {.n = 0}, tensor = {.n = 0}, of = {.n = 0}, info = {.n = 0};
    for (; sizes && *sizes; sizes++) {
        message dim = {.n = 0};
        if ((*sizes)[0] >= '0' && (*sizes)[0] <= '9') {
            add_number(&dim, 1, (uint64_t)atoi(*sizes));
        } else {
            add_text(&dim, 2, *sizes);
        }
        add_message(&shape, 1, &dim);
    }
    add_number(&tensor, 1, (uint64_t)type);
    add_message(&tensor, 2, &shape);
    add_message(&of, 1, &tensor);
    add_text(&info, 1, name);
    add_message(&info, 2, &of);
    add_message(graph, field, &info);
}

/* name = v, an integer. */
TCT_UNUSED static void add_int(message *node, const char *name, int64_t v)
{
    message attr = {.n = 0};
    add_text(&attr, 1, name);
    add_number(&attr, 3, (uint64_t)v);
    add_number(&attr, 20, 2);
    add_message(node, 5, &attr);
}

/* "Op a b > c" as a node, "Op a to=7 > c" with an attribute; and name = v if name is not NULL. */
TCT_UNUSED static void add_wide_node(message *graph, const char *line, const char *name, int64_t v)
{
    char text[200], *word;
    message node = {.n = 0};
    int field = 4;
    snprintf(text, sizeof(text), "%s", line);
    for (word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        char *value = strchr(word, '=');
        if (value) {
            *value = 0;
            add_int(&node, word, atoi(value + 1));
            continue;
        }
        if (*word == '>') {
            field = 2;
            continue;
        }
        add_text(&node, field, word);
        field = field == 4 ? 1 : field;
    }
    add_text(&node, 3, "here");
    if (name) {
        add_int(&node, name, v);
    }
    add_message(graph, 1, &node);
}

/* The same, with an attribute axis if that is not below 0. */
TCT_UNUSED static void add_node(message *graph, const char *line, int64_t axis)
{
    add_wide_node(graph, line, axis >= 0 ? "axis" : NULL, axis);
}

TCT_UNUSED static void add_tensor(message *graph, const char *name, int type, int n,
                                  const void *data, size_t bytes)
{
    message t = {.n = 0};
    if (n >= 0) {
        add_number(&t, 1, (uint64_t)n);
    }
    add_number(&t, 2, (uint64_t)type);
    add_text(&t, 8, name);
    add_bytes(&t, 9, data, bytes);
    add_message(graph, 5, &t);
}

TCT_UNUSED static message model_of(const message *graph)
{
    message m = {.n = 0}, opset = {.n = 0};
    add_number(&m, 1, 10);
    add_message(&m, 7, graph);
    add_number(&opset, 2, 21);
    add_message(&m, 8, &opset);
    return m;
}

#endif
