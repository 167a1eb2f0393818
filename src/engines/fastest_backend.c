/* engines/fastest_backend.c - tc_best_backend: measures which backend runs a graph fastest on this
 * machine.
 *
 * In: a graph and a time budget. Out: the backends that compiled it, sorted by the median time of a
 * run. Every backend runs with the options of the graph's context, on zeros. */
#include <stdlib.h>
#include <string.h>

#include "../api/api_call.h"
#include "../base/os.h"
#include "api.h"

enum { TCI_BEST_BACKENDS = 40, TCI_BEST_RUNS = 1001, TCI_BEST_PORTS = 64 };

/* Buffers of a program, full of zeros. */
typedef struct tci_best_buffers {
    tc_buf items[TCI_BEST_PORTS];
    int n;
} tci_best_buffers;

static void tci_best_free(tci_best_buffers *b)
{
    for (int i = 0; i < b->n; i++) {
        tci_heap_free_aligned(b->items[i].data);
    }
    b->n = 0;
}

/* Of known sizes only. */
static tc_status tci_best_get(const tc_program *f, bool outputs, int n, tci_best_buffers *b)
{
    for (b->n = 0; b->n < n; b->n++) {
        tc_port port;
        tc_status status = outputs ? tc_program_get_output(f, b->n, &port)
                                   : tc_program_get_input(f, b->n, &port);
        int64_t count = 1;
        for (int a = 0; a < port.rank && !status; a++) {
            bool known = tci_dim_is_known((tci_dim)port.sizes[a]);
            status = known ? TC_OK : TC_ERR_ARGUMENT;
            count = known ? count * port.sizes[a] : 0;
        }
        size_t bytes = status ? 0 : (size_t)(count * tc_dtype_size(port.dtype));
        void *data = status ? NULL : tci_heap_get_aligned(bytes + 1);
        if (!data) {
            return status ? status : TC_ERR_MEMORY;
        }
        memset(data, 0, bytes);
        b->items[b->n] = (tc_buf){.data = data, .n = count, .dtype = (int)port.dtype};
    }
    return TC_OK;
}

static int tci_best_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median time of a run, of about `ms` milliseconds of runs after one that is not counted. */
static tc_status tci_best_measure(tc_program *f, tc_bufs in, tc_bufs out, double ms, double *us)
{
    double *times = tci_heap_get(sizeof(*times) * TCI_BEST_RUNS);
    tc_status status = times ? tc_run(f, in, out) : TC_ERR_MEMORY;
    int64_t begin = tci_os_now_ns(), now = begin;
    int n = 0;
    while (!status && n < TCI_BEST_RUNS && (n < 3 || (double)(now - begin) < ms * 1e6)) {
        int64_t at = now;
        status = tc_run(f, in, out);
        now = tci_os_now_ns();
        times[n++] = (double)(now - at) / 1e3;
    }
    if (!status) {
        qsort(times, (size_t)n, sizeof(*times), tci_best_compare);
        *us = times[n / 2];
    }
    tci_heap_free(times);
    return status;
}

static tc_status tci_best_try(tc_tensors inputs, tc_tensors outputs, double ms,
                              tc_backend_time *time, tc_site here)
{
    tc_options o = {.backend = time->name, .fallback = TC_FALLBACK_REFUSE};
    tc_program *f = NULL;
    tci_best_buffers in = {.n = 0}, out = {.n = 0};
    int64_t begin = tci_os_now_ns();
    tc_status status = tc_compile_fn_at(inputs, outputs, &o, &f, here);
    time->first_ms = (double)(tci_os_now_ns() - begin) / 1e6;
    status = status ? status : tci_best_get(f, false, inputs.n, &in);
    status = status ? status : tci_best_get(f, true, outputs.n, &out);
    status = status ? status
                    : tci_best_measure(f, (tc_bufs){in.items, in.n}, (tc_bufs){out.items, out.n},
                                       ms, &time->us);
    tci_best_free(&in);
    tci_best_free(&out);
    tc_program_free(f);
    return status;
}

static tc_status tci_best_fail(tc_tensors outputs, tc_site here, tc_status why, const char *text)
{
    return outputs.n > 0 && outputs.items
               ? tci_fail(outputs.items[0], "tc_time_backends", here, why, "%s", text)
               : why;
}

TC_API tc_status tc_time_backends_at(tc_tensors inputs, tc_tensors outputs, double ms,
                                     tc_backend_time *list, int room, int *n, tc_site here)
{
    const tc_backend_entry *e;
    tc_status last = TC_ERR_BACKEND;
    int found = 0;
    if (!(ms > 0) || !list || !n || inputs.n > TCI_BEST_PORTS || outputs.n > TCI_BEST_PORTS ||
        inputs.n < 0 || outputs.n < 1 || !outputs.items) {
        return tci_best_fail(outputs, here, TC_ERR_ARGUMENT,
                             "given no place for the result, no output, ms that is not positive, "
                             "or more than 64 inputs or outputs");
    }
    for (int i = 0; (e = tc_backend_at(i)); i++) {
        tc_backend_time time = {.name = e->name};
        tc_status status = e->usable ? tci_best_try(inputs, outputs, ms, &time, here)
                                     : TC_ERR_BACKEND;
        int at = found;
        last = e->usable ? status : last;
        if (status) {
            continue;
        }
        while (at > 0 && list[at - 1].us > time.us) {
            at--;
        }
        found = TCI_MIN(found + 1, room);
        if (at < found) {
            memmove(&list[at + 1], &list[at], sizeof(*list) * (size_t)(found - at - 1));
            list[at] = time;
        }
    }
    *n = found;
    return found ? TC_OK : last;
}

TC_API tc_status tc_best_backend_at(tc_tensors inputs, tc_tensors outputs, double ms,
                                    const char **name, tc_site here)
{
    tc_backend_time list[TCI_BEST_BACKENDS];
    int n = 0;
    if (!name) {
        return tci_best_fail(outputs, here, TC_ERR_ARGUMENT, "name is NULL");
    }
    *name = NULL;
    tc_status status = tc_time_backends_at(inputs, outputs, ms, list, TCI_BEST_BACKENDS, &n, here);
    if (!status) {
        *name = list[0].name;
    }
    return status;
}
