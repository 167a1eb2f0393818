/* api/recording_compare.c - compares two recordings of one function: a function that is not
 * deterministic gives two graphs, other numbers, or constants with other contents.
 *
 * In: the outputs of both. Out: whether they are equal, or what differs first.
 *
 * Design: the keys of both as compile requests hold the graphs, but neither the values of numbers
 * nor the contents of memory, as programs share code across them (compile/cache_key.c). Requests
 * with equal keys list numbers and captured leaves in the same order, which are then compared one
 * by one, memory element by element. Memory of a device that the host cannot read is compared by
 * its address. */
#include "recording_compare.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "../base/alloc.h"
#include "../compile/compiled_code.h"
#include "../run/runtime_structs.h"

typedef struct tci_recording {
    tci_scratch s;
    tci_request *requests[2];
    char *why;
    size_t room;
} tci_recording;

static tc_status tci_recording_fail(tci_recording *k, const char *what, const tci_node *n,
                                    tci_value first, tci_value second)
{
    char values[2][40], place[300] = "";
    const tci_value both[2] = {first, second};
    for (int i = 0; i < 2; i++) {
        if (tci_dtype_is_float((tc_dtype)n->dtype)) {
            snprintf(values[i], sizeof(values[i]), "%.17g", both[i].f);
        } else {
            snprintf(values[i], sizeof(values[i]), "%lld", (long long)both[i].i);
        }
    }
    if (n->site.file) {
        snprintf(place, sizeof(place), "%.200s:%d: ", n->site.file, n->site.line);
    }
    snprintf(k->why, k->room,
             "build recorded %s that was %s once, %s then (%s%s): expected the same graph, numbers "
             "and constants from the same sizes and static integers",
             what, values[0], values[1], place, n->call ? n->call : "number");
    return TC_ERR_ARGUMENT;
}

static tc_status tci_recording_compare_numbers(tci_recording *k)
{
    const tci_request *a = k->requests[0], *b = k->requests[1];
    for (int i = 0; i < a->n_literals; i++) {
        const tci_node *n = b->literals[i];
        if (a->literals[i]->value.u != n->value.u) {
            return tci_recording_fail(k, "a number", n, a->literals[i]->value, n->value);
        }
    }
    return TC_OK;
}

/* Element number `at`, in row-major order, of a leaf whose storage has its bytes at `data`. */
static const char *tci_recording_element(const tci_node *n, const char *data, int64_t at)
{
    const int64_t *sizes = tci_dim_words(n->shape);
    int64_t place = n->offset + (n->strides ? 0 : at);
    for (int a = n->rank; a-- > 0 && n->strides;) {
        place += at % sizes[a] * tci_dim_words(n->strides)[a];
        at /= sizes[a];
    }
    return data + place * (int64_t)tci_dtype_get((tc_dtype)n->dtype)->bytes;
}

/* Both memories are held. */
static tc_status tci_recording_compare_elements(tci_recording *k, const tci_node *a,
                                                const tci_node *b, const tci_param_held *held)
{
    size_t bytes = (size_t)tci_dtype_get((tc_dtype)a->dtype)->bytes;
    int64_t count = 1;
    for (int i = 0; i < a->rank; i++) {
        count *= tci_dim_words(a->shape)[i];
    }
    for (int64_t i = 0; i < count; i++) {
        const char *x = tci_recording_element(a, held[0].data, i);
        const char *y = tci_recording_element(b, held[1].data, i);
        if (memcmp(x, y, bytes) != 0) {
            char what[60];
            snprintf(what, sizeof(what), "memory with an element %lld", (long long)i);
            return tci_recording_fail(k, what, b, tci_value_load((tc_dtype)a->dtype, x),
                                      tci_value_load((tc_dtype)b->dtype, y));
        }
    }
    return TC_OK;
}

static tc_status tci_recording_compare_memory(tci_recording *k, const tci_node *a,
                                              const tci_node *b)
{
    if (a->storage->data == b->storage->data && a->offset == b->offset) {
        return TC_OK;
    }
    if (tci_backend_hides(a->storage->data) || tci_backend_hides(b->storage->data)) {
        tci_value first = {.i = (int64_t)(intptr_t)a->storage->data};
        tci_value second = {.i = (int64_t)(intptr_t)b->storage->data};
        return tci_recording_fail(k, "memory of a device at an address", b, first, second);
    }
    tci_param_held held[2] = {{.next = &held[1], .storage = a->storage}, {.storage = b->storage}};
    tc_status status = tci_param_hold(held);
    if (status) {
        snprintf(k->why, k->room, "the device that has a constant failed, or memory ran out");
        return status;
    }
    status = tci_recording_compare_elements(k, a, b, held);
    tci_param_drop(held);
    return status;
}

static tc_status tci_recording_compare_graphs(tci_recording *k)
{
    const tci_request *a = k->requests[0], *b = k->requests[1];
    if (a->key_bytes != b->key_bytes || memcmp(a->key, b->key, a->key_bytes) != 0) {
        snprintf(k->why, k->room,
                 "build recorded two graphs, of %d and %d nodes, for one signature: expected the "
                 "same graph from the same sizes and static integers",
                 a->n_nodes, b->n_nodes);
        return TC_ERR_ARGUMENT;
    }
    tc_status status = tci_recording_compare_numbers(k);
    for (int i = 0; i < a->n_captured && !status; i++) {
        status = tci_recording_compare_memory(k, a->captured[i], b->captured[i]);
    }
    return status;
}

static tc_status tci_recording_request(tci_recording *k, tci_ctx *ctx,
                                       const tc_tensor *const outputs[2], int n)
{
    if (setjmp(k->s.escape)) {
        snprintf(k->why, k->room, "%s", k->s.message);
        return k->s.why;
    }
    for (int i = 0; i < 2; i++) {
        tci_node **nodes = TCI_NEW_ARRAY(&k->s, tci_node *, n);
        for (int o = 0; o < n; o++) {
            nodes[o] = tci_handle_node(outputs[i][o]);
            if (!nodes[o]) {
                return TC_OK;
            }
        }
        k->requests[i] = tci_request_make(&k->s, NULL, 0, nodes, n, &ctx->options, NULL, NULL);
    }
    return tci_recording_compare_graphs(k);
}

TCI_FN tc_status tci_recording_compare(tci_ctx *ctx, const tc_tensor *const outputs[2], int n,
                                       char *why, size_t room)
{
    tci_recording *k = tci_heap_get(sizeof(*k));
    if (!k) {
        snprintf(why, room, "out of memory");
        return TC_ERR_MEMORY;
    }
    tci_scratch_init(&k->s);
    k->why = why;
    k->room = room;
    tc_status status = tci_recording_request(k, ctx, outputs, n);
    tci_scratch_free(&k->s);
    tci_heap_free(k);
    return status;
}
