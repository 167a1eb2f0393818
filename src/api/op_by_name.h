/* api/op_by_name.h - op schemas for calls by name: names, kinds and defaults of the parameters of
 * every public op, generated from api/op_signatures.h. api/op_by_name.c has the tables and makes
 * the calls. */
#ifndef TCI_API_OP_BY_NAME_H
#define TCI_API_OP_BY_NAME_H

#include "../ops/table.h"
#include "op_signatures.h"
#include "api_call.h"

typedef enum tci_param_kind {
#define TCI_ROW(id) TCI_PARAM_##id,
    TCI_PARAM_KINDS(TCI_ROW)
#undef TCI_ROW
} tci_param_kind;

/* No pointers: tables of these need no work when a program starts, and stay shared. */
typedef struct tci_param_row {
    uint8_t kind; /* tci_param_kind */
    bool needed;
    uint8_t number; /* the default's tc_arg.kind, where it is a number; 0: none */
    union {
        int64_t i;
        double f;
    } otherwise; /* the default; of an operand always f */
} tci_param_row;

/* A member for each row, one byte longer than its parameters are many. */
#define TCI_MUST(name, kind) +1
#define TCI_MAY(name, kind, otherwise) +1
#define TCI_MUST_FIELD(name, kind) +1
#define TCI_FIELD(name, kind, otherwise) +1
#define TCI_TYPED +2
#define TCI_FIELDS(type, params) params
#define TCI_ON
#define TCI_STORED(name, at)
#define TCI_CALL(name, ...) char of_##name[1 __VA_ARGS__];
#define TCI_CALL_MANY(name, n, ...) char of_##name[1 __VA_ARGS__];
typedef union tci_param_counts {
    TCI_CALLS
} tci_param_counts;
#include "op_signatures_undef.h"

enum {
    TCI_PARAMS_MOST = sizeof(tci_param_counts) - 1, /* of one call */
    TCI_PARAM_ROOM = 32                             /* of a parameter's name, with its end */
};

/* A row of api/op_signatures.h, as tci_named_row finds it in the tables. */
typedef struct tci_call_row {
    const char *name, *form; /* ", x: tensor, axis: integer" */
    const tci_param_row *params;
    int i, n_params, n_results;
} tci_call_row;

/* The row of the op whose name is the n bytes at `name`; false: there is none. */
TCI_FN bool tci_named_find(const char *name, size_t n, tci_call_row *row);
/* The op whose name is spelled most like it, or NULL. */
TCI_FN const char *tci_named_nearest(const char *name);
/* The names of a row's parameters, in their order. */
TCI_FN void tci_named_params(const tci_call_row *row, char (*names)[TCI_PARAM_ROOM]);
/* tc_op_results_at for the public call `call`, which errors name. */
TCI_FN tc_status tci_named_results(tc_ctx *ctx, const char *call, const char *name,
                                   tc_tensors inputs, tc_attrs attrs, tc_tensor *results, int n,
                                   tc_site here);

#endif
