/* api/call_frame.h - frame of a public call: its name and call site, context, status so far, and
 * the caller's floating-point environment, which is saved until the call ends.
 *
 * A call visits its operands twice: tci_frame_use for each (finds the context), then tci_frame_node
 * for each (finds the node, or fails the frame; the first cause wins). tci_frame_end makes the
 * handle; a call that returns without it calls tci_frame_leave. */
#ifndef TCI_API_CALL_FRAME_H
#define TCI_API_CALL_FRAME_H

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

/* ---- api/context.c ---- */
/* A context or program went: with the last of them goes what is kept between compiles but code. */
TCI_FN void tci_ctx_tidy(void);

/* ---- errors kept by api/handle.c, for api/scope.c ---- */
TCI_FN void tci_handle_drop_poisons(tci_ctx *ctx, int scope); /* those of this scope and deeper */
TCI_FN tc_tensor tci_handle_move_poison(tc_tensor t); /* the same error in the scope outside */
/* The context's last error as a poison. */
TCI_FN tc_tensor tci_handle_keep_last(tci_ctx *ctx);

/* ---- api/run.c ---- */
/* Keeps the text for tc_error(f), with the user's place in front; returns why. */
TCI_FN tc_status tci_run_record(tc_program *f, tc_status why, const char *op, tc_site here,
                                const char *text);
/* A run of a call, with strides and with symbolic sizes; the text of a failure is in c->last. */
TCI_FN tc_status tci_run_through(tc_call *c, tc_bufs inputs, tc_bufs outputs);
/* Sizes of an output, into shape, which has room for its rank. c: a call of its program. */
TCI_FN tc_status tci_run_output_shape(tc_call *c, tc_bufs inputs, int output, int64_t *shape);
/* Why there is no call: a device may know more. */
TCI_FN const char *tci_run_no_workspace(const tc_program *f);

/* ---- api/leaf.c: leaves within another public call ---- */
/* A leaf over memory of `owner`, which is released when nothing uses it any more; NULL, with the
 * frame failed or the graph's error: the caller still has it. strides NULL: dense. */
TCI_FN tci_node *tci_leaf_borrow(tci_frame *f, const void *data, tc_dtype dtype, int rank,
                                 const int64_t *sizes, const int64_t *strides, tci_owner *owner);
/* A leaf with memory of its own; as above. */
TCI_FN tci_node *tci_leaf_copy_in(tci_frame *f, const void *data, tc_dtype dtype, int rank,
                                  const int64_t *sizes, const int64_t *strides);
/* Whether the memory holds elements of dtype, as far as its C type determines it; else the frame is
 * failed. uint16_t holds f16 and bf16, and bytes of unknown type hold anything. */
TCI_FN bool tci_leaf_is_memory_of(tci_frame *f, const tc_buf *data, tc_dtype dtype);
TCI_FN tci_node *tci_leaf_zeros(tci_frame *f, tc_dtype dtype, int rank, const int64_t *sizes);
/* Copies the elements of a strided view, whose element 0...0 is at `from`, to dense memory. */
TCI_FN void tci_leaf_copy(char *to, const char *from, size_t bytes, int rank, const int64_t *sizes,
                          const int64_t *strides);
/* A DATA node that takes over the storage (released on failure), of a shape that was checked. */
TCI_FN tci_node *tci_leaf_data(tci_graph *g, tc_dtype dtype, int rank, const int64_t *sizes,
                               tci_storage *storage, const int64_t *strides, int64_t offset);

/* ---- api/eval.c: values within another public call ---- */
/* *node: the live node of t, whose value is there if this succeeds. */
TCI_FN tc_status tci_lazy_value(const tci_frame *f, tc_tensor t, tci_node **node);
/* The same of each of ts, all computed by one program, as memory that the host can read, and that
 * stays as it is until the drop. */
typedef struct tci_lazy_held {
    tci_param_held held;
    tci_node *node;
    const char *first; /* element 0...0 */
} tci_lazy_held;
TCI_FN tc_status tci_lazy_hold(const tci_frame *f, tc_tensors ts, tci_lazy_held *m);
TCI_FN void tci_lazy_drop(tci_lazy_held *m, int n);

/* ---- api/parameters.c ---- */
/* A parameter of zeros, of the shape and dtype of another one. */
TCI_FN tc_tensor tci_state_zeros(tc_tensor like, const char *op, tc_site here);

/* ---- api/read_tensor.c ---- */
/* Copies the elements, row-major, to memory that has room for them. */
TCI_FN void tci_read_value(const tci_lazy_held *m, void *to);

static inline bool tci_is_none(tc_tensor t)
{
    return !t.ctx && t.id == UINT32_MAX;
}

#endif
