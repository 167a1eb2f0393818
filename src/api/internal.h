/* api/internal.h - declares functions of api/ that other files of api/, io/, comm/ and debug/ call:
 * leaves, lazy values, runs, error records. */
#ifndef TCI_API_INTERNAL_H
#define TCI_API_INTERNAL_H

#include "api_call.h"

/* ---- api/context.c ---- */
/* Whether a number of the options has no meaning; text: which, and what is expected. */
TCI_FN bool tci_options_are_wrong(const tc_options *o, char *text, size_t room);
/* A context or program went: with the last of them goes what is kept between compiles but code. */
TCI_FN void tci_ctx_tidy(void);

/* ---- errors kept by api/handle_errors.c, for api/scope.c ---- */
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

#endif
