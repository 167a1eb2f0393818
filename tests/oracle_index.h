/* tests/oracle_index.h - torch's reads and writes at several indices and under masks, and results
 * whose number depends on values: these get as much room as the case wants. */
#ifndef TC_TEST_ORACLE_INDEX_H
#define TC_TEST_ORACLE_INDEX_H

#include "oracle_image.h"

/* Size of axis k of result i of the case. */
static int64_t orc_want_size(const orc_case *c, int i, int k)
{
    const json *want = json_at(json_get(c->spec, "outs"), i);
    const json *size = want ? json_at(json_get(want, "s"), k) : NULL;
    return size ? size->integer : 0;
}

static tc_dtype orc_want_dtype(const orc_case *c, int i)
{
    const json *want = json_at(json_get(c->spec, "outs"), i);
    const orc_dtype *d = want ? orc_dtype_find(json_string(want, "d")) : NULL;
    return d ? d->dtype : TC_F32;
}

static void orc_nonzero(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input"), indices;
    const bool tuple = orc_bool(c, "as_tuple");
    x = tuple && !tc_rank(x) ? tc_reshape(x, 1) : x;
    tc_nonzero(x, orc_want_size(c, 0, 0), &indices, NULL);
    if (!tuple) {
        orc_out(c, indices);
        return;
    }
    for (int i = 0; i < tc_rank(x); i++) {
        orc_out(c, tc_squeeze(tc_range(indices, 1, i, i + 1), 1));
    }
}

static void orc_masked_select(orc_case *c)
{
    tc_tensor values;
    tc_masked_select(orc_tensor(c, "input"), orc_tensor(c, "mask"), orc_want_size(c, 0, 0), &values,
                     NULL);
    orc_out(c, values);
}

static void orc_repeat_interleave(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input");
    const bool flat = !orc_has(c, "dim");
    const int axis = flat ? 0 : orc_axis(x, orc_int(c, "dim", 0));
    orc_out(c, tc_repeat_interleave_at(flat ? tc_reshape(x, -1) : x, orc_arg(c, "repeats"), axis,
                                       orc_want_size(c, 0, axis), TC_HERE));
}

/* ---- sorted lists ---- */

static tc_tensor orc_found(orc_case *c, tc_tensor at)
{
    return orc_bool(c, "out_int32") ? tc_cast(at, TC_I32) : at;
}

static tc_tensor orc_values_of(orc_case *c, const char *name, tc_dtype t)
{
    const json *v = orc_value(c, name);
    return orc_is_tensor(v) ? orc_tensor(c, name)
                            : tc_cast(tc_full(c->ctx, orc_number_of(c, v), TC_F64), t);
}

static void orc_searchsorted(orc_case *c)
{
    tc_tensor sorted = orc_tensor(c, "sorted");
    tc_tensor values = orc_values_of(c, "values", tc_dtype_of(sorted));
    const bool right = orc_bool(c, "right") || !strcmp(orc_text(c, "side", "left"), "right");
    if (orc_has(c, "sorter") && c->symbolic) {
        orc_skip(c, "argument sorter of a list that may be empty");
    }
    if (orc_has(c, "sorter")) {
        sorted = tc_gather(sorted, -1, orc_tensor(c, "sorter"));
    }
    orc_out(c, orc_found(c, tc_searchsorted(sorted, values, right)));
}

static void orc_bucketize(orc_case *c)
{
    tc_tensor list = orc_tensor(c, "boundaries");
    orc_out(c, orc_found(c, tc_bucketize(orc_values_of(c, "input", tc_dtype_of(list)), list,
                                         orc_bool(c, "right"))));
}

/* ---- several indices ---- */

/* Entries of x[...] that are left once slices and new axes are taken: an index for each axis of x,
 * TC_NONE for all of one. */
typedef struct orc_indices {
    tc_tensor x, items[ORC_MAX_RANK + 1];
    int n;
} orc_indices;

static int64_t orc_bound(const json *v, int64_t otherwise)
{
    return v && v->kind == JSON_NUMBER ? v->integer : otherwise;
}

static void orc_index_push(orc_case *c, orc_indices *s, tc_tensor index)
{
    if (s->n == ORC_MAX_RANK) {
        orc_skip(c, "more than %d axes", ORC_MAX_RANK);
        return;
    }
    s->items[s->n++] = index;
}

/* Where a mask is true, as an index for each of its axes. */
static void orc_index_mask(orc_case *c, orc_indices *s, tc_tensor mask, int64_t count)
{
    tc_tensor indices;
    tc_nonzero(mask, count, &indices, NULL);
    for (int i = 0; i < tc_rank(mask); i++) {
        orc_index_push(c, s, tc_squeeze(tc_range(indices, 1, i, i + 1), 1));
    }
}

static tc_tensor orc_index_list(orc_case *c, const json *list)
{
    int64_t items[ORC_MAX_TENSORS];
    int n = 0;
    for (const json *v = list->first; v && v->kind == JSON_NUMBER && n < ORC_MAX_TENSORS;
         v = v->next) {
        items[n++] = v->integer;
    }
    if (n != list->n) {
        orc_skip_argument(c, "index", list);
    }
    return tc_copy_in(c->ctx, items, TC_I64, n);
}

/* One entry; rest: how many axes of x the entries behind it take. */
static void orc_index_entry(orc_case *c, orc_indices *s, const json *entry, int rest)
{
    const json *slice = json_get(entry, "slice"), *list = json_get(entry, "list");
    const int axis = s->n;
    if (entry->kind == JSON_NULL) {
        s->x = tc_unsqueeze(s->x, axis);
        orc_index_push(c, s, TC_NONE);
    } else if (json_get(entry, "ellipsis")) {
        while (s->n < tc_rank(s->x) - rest) {
            orc_index_push(c, s, TC_NONE);
        }
    } else if (slice) {
        s->x = tc_slice(s->x, axis, orc_bound(json_at(slice, 0), 0),
                        orc_bound(json_at(slice, 1), TC_END), orc_bound(json_at(slice, 2), 1));
        orc_index_push(c, s, TC_NONE);
    } else if (entry->kind == JSON_NUMBER) {
        int64_t i = entry->integer < 0 ? entry->integer + orc_size(c, s->x, axis) : entry->integer;
        s->x = tc_squeeze(tc_range(s->x, axis, i, i + 1), axis);
    } else if (list) {
        orc_index_push(c, s, orc_index_list(c, list));
    } else if (orc_is_tensor(entry) && !strcmp(json_string(entry, "d"), "b8")) {
        orc_index_mask(c, s, orc_tensor_of(c, entry), orc_want_size(c, 0, axis));
    } else if (orc_is_tensor(entry)) {
        orc_index_push(c, s, orc_tensor_of(c, entry));
    } else {
        orc_skip_argument(c, "index", entry);
    }
}

static orc_indices orc_indices_of(orc_case *c, tc_tensor x, const json *how)
{
    orc_indices s = {.x = x};
    const bool tuple = how && how->kind == JSON_LIST;
    if (!how) {
        orc_skip(c, "argument index=none");
    }
    for (const json *v = tuple ? how->first : how; v && !c->skip[0]; v = tuple ? v->next : NULL) {
        int rest = 0;
        for (const json *more = tuple ? v->next : NULL; more; more = more->next) {
            rest += more->kind != JSON_NULL;
        }
        orc_index_entry(c, &s, v, rest);
    }
    while (s.n && !s.items[s.n - 1].ctx) {
        s.n--;
    }
    return s;
}

static void orc_getitem(orc_case *c)
{
    orc_indices s = orc_indices_of(c, orc_tensor(c, "input"), orc_value(c, "index"));
    orc_out(c, s.n ? tc_index(s.x, TC_TENSORS_N(s.items, s.n)) : s.x);
}

static void orc_index_put(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input"), items[ORC_MAX_RANK];
    int n = orc_tensors(c, "indices", items, ORC_MAX_RANK);
    orc_out(c, tc_index_put(x, TC_TENSORS_N(items, n), orc_tensor(c, "values"),
                            orc_bool(c, "accumulate")));
}

/* ---- made from nothing ---- */

static void orc_linspace(orc_case *c)
{
    const json *steps = orc_value(c, "steps");
    tc_dtype t = orc_dtype_arg(c, "dtype", TC_F32);
    if (steps && steps->kind == JSON_NUMBER && !steps->is_integer) {
        orc_skip_argument(c, "steps", steps);
    }
    orc_out(c, tc_linspace_at(c->ctx, orc_arg(c, "start"), orc_arg(c, "end"),
                              orc_int(c, "steps", 0), t, TC_HERE));
}

static void orc_logspace(orc_case *c)
{
    tc_dtype t = orc_dtype_arg(c, "dtype", TC_F32);
    orc_out(c, tc_logspace_at(c->ctx, orc_arg(c, "start"), orc_arg(c, "end"),
                              orc_int(c, "steps", 0), orc_number(c, "base", 10), t, TC_HERE));
}

static void orc_triangle_indices(orc_case *c)
{
    const int64_t rows = orc_int(c, "row", 0), columns = orc_int(c, "col", 0);
    const int64_t offset = orc_int(c, "offset", 0);
    const bool lower = !strcmp(json_string(c->spec, "op"), "tril_indices");
    tc_tensor indices = lower ? tc_tril_indices(c->ctx, rows, columns, offset)
                              : tc_triu_indices(c->ctx, rows, columns, offset);
    orc_out(c, orc_in_dtype(c, indices, "dtype"));
}

#endif
