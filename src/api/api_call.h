/* api/api_call.h - state of one public API call in progress (tci_frame): its name and call site,
 * the context, the first error, and the caller's floating-point environment, saved until its end.
 *
 * A call visits its operands twice: tci_frame_use for each (finds the context), then tci_frame_node
 * for each (finds the node, or fails the frame; the first cause wins). tci_frame_end makes the
 * handle; a call that returns without it calls tci_frame_leave. */
#ifndef TCI_API_API_CALL_H
#define TCI_API_API_CALL_H

#include "../run/runtime_structs.h"

typedef struct tci_frame {
    const char *op;
    tc_site here;
    tci_ctx *ctx;  /* NULL until an operand has a live one */
    tc_tensor bad; /* result when failed */
    bool failed;
    int n_errors; /* records of errors that the context had before this call */
    tci_fpenv caller;
} tci_frame;

/* Handles without a context carry the reason in their id. */
enum {
    TCI_NULL_ZERO = 0,    /* zeroed by the user */
    TCI_NULL_NUMBERS = 1, /* a call whose operands are all numbers */
    TCI_NULL_CTX = 2,     /* made on a NULL context */
    TCI_NULL_FREED = 3,   /* its context was freed */
    TCI_NULL_MEMORY = 4,  /* out of memory while the error was to be kept */
    TCI_NULL_EMPTY = 5    /* a list of tensors without any */
};

TCI_FN tci_frame tci_frame_begin(const char *op, tc_site here);
/* For calls that name the context. */
TCI_FN tci_frame tci_frame_on(const tc_ctx *ctx, const char *op, tc_site here);
TCI_FN void tci_frame_use(tci_frame *f, tc_tensor t);
/* what: "operand 1", "the weight". Fails the frame on a handle that has no node. */
TCI_FN tci_node *tci_frame_node(tci_frame *f, tc_tensor t, const char *what);
/* TC_NONE: NULL without a failure. */
TCI_FN tci_node *tci_frame_optional(tci_frame *f, tc_tensor t, const char *what);
/* Checks that a list is given (it may be NULL if n is 0). what: "the sizes". */
TCI_FN bool tci_frame_list(tci_frame *f, const void *items, int n, const char *what);
/* Checks that the first of n numbers, named after `after`, is a dtype. */
TCI_FN bool tci_frame_dtype(tci_frame *f, const char *after, const int64_t *numbers, int n);
TCI_FN void tci_frame_fail(tci_frame *f, tc_status why, const char *format, ...) TCI_PRINTF(3, 4);
/* The call's result: a handle to n, or the poison of the first failure. */
TCI_FN tc_tensor tci_frame_end(tci_frame *f, tci_node *n);
TCI_FN void tci_frame_leave(const tci_frame *f);
/* The end of a call that gives out no handle: the status of its first failure. As no handle can ask
 * for them, the records of errors that were made within it go; ctx->last keeps the last one. */
TCI_FN tc_status tci_frame_status(tci_frame *f);

/* ---- api/scope.c: user functions that a call calls ---- */
/* Sets the call's name and location aside. Until the context is taken back, nothing that was there
 * before can be ended: neither it, nor a scope, nor a kept value. */
typedef struct tci_lent {
    tc_site site;
    const char *call, *within;
    int n_scopes, floor;
} tci_lent;
TCI_FN tci_lent tci_lend(tci_ctx *ctx);
/* NULL, or what the function did that the call fails for. */
TCI_FN const char *tci_take_back(tci_ctx *ctx, tci_lent lent);
/* The same with the caller's floating-point environment. False: the frame is failed. */
TCI_FN tci_lent tci_frame_lend(const tci_frame *f);
TCI_FN bool tci_frame_take_back(tci_frame *f, tci_lent lent);

static inline bool tci_is_none(tc_tensor t)
{
    return !t.ctx && t.id == UINT32_MAX;
}

#endif
