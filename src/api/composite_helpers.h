/* api/composite_helpers.h - helpers that implement a public op by calls of other public ops, so
 * that errors and source locations name the outer op.
 *
 * In: tci_made_begin, with the operand that determines the context. Calls between begin and end are
 * attributed to the outer op and to the caller's source location. Out: tci_made_end, tci_made_round
 * or tci_made_fail, one of which gives the result. */
#ifndef TCI_API_COMPOSITE_HELPERS_H
#define TCI_API_COMPOSITE_HELPERS_H

#include "ops.h"

#include "../graph/build.h"
#include "api_call.h"
#include "compact_call_wrappers.h"

typedef struct tci_made {
    const char *name, *outer; /* outer: of the call that contains this one, or NULL */
    tc_site here;
    tci_ctx *ctx;
    tc_tensor bad;  /* where it cannot begin */
    tc_dtype dtype; /* of the result: that of x, f32 where that is no float */
} tci_made;

TCI_FN bool tci_made_begin(tci_made *m, const char *name, tc_tensor x, tc_site here);
/* Checks that another operand has a value; false: the call ends, and m->bad has the error. */
TCI_FN bool tci_made_operand(tci_made *m, tc_tensor t, const char *what);
TCI_FN tc_tensor tci_made_end(const tci_made *m, tc_tensor y);
TCI_FN tc_tensor tci_made_fail(const tci_made *m, tc_status why, const char *format, ...)
    TCI_PRINTF(3, 4);
/* y, as the result of that call over the operands that are given (not TC_NONE) and a number, with
 * words of the call's own (graph/build.h: tci_build_named). */
TCI_FN tc_tensor tci_made_named(const tci_made *m, tci_call_name call, tc_tensor y,
                                tc_tensors operands, double number, int n_words,
                                const int64_t *words);
/* Checks a list, as tci_frame_list; false: the call ends, and m->bad has the error. */
TCI_FN bool tci_made_list(tci_made *m, const void *items, int n, const char *what);
/* The text of a tensor's shape, "[3, 5]"; "[]" where it is none. */
TCI_FN tci_shape_text tci_made_shape(tc_tensor t);
/* x in the dtype that this computes in. */
TCI_FN tc_tensor tci_made_wide(const tci_made *m, tc_tensor x);
/* The end, rounded to the dtype of the result. */
TCI_FN tc_tensor tci_made_round(const tci_made *m, tc_tensor y);
/* The end of a loss: its elements reduced, and rounded. */
TCI_FN tc_tensor tci_made_reduced(const tci_made *m, tc_tensor loss, tc_reduction how);
TCI_FN bool tci_made_is_left_out(tc_arg a);
/* Number of elements per position along an axis. */
TCI_FN int64_t tci_made_others(tc_tensor x, int axis);
/* x broadcast to the shape of y. */
TCI_FN tc_tensor tci_made_like(tc_tensor x, tc_tensor y, tc_site here);
/* The elements of x in the shape of y. */
TCI_FN tc_tensor tci_made_shaped(tc_tensor x, tc_tensor y, tc_site here);
/* p of the channels, along axis 1 of x; TC_NONE stays. */
TCI_FN tc_tensor tci_made_channels(const tci_made *m, tc_tensor p, tc_tensor x);
/* x * weight + bias, where they are given. */
TCI_FN tc_tensor tci_made_affine(tc_tensor x, tc_tensor weight, tc_tensor bias, tc_site here);
/* value, with the derivatives of f, which has its shape, dtype and elements. */
TCI_FN tc_tensor tci_made_differentiated(tc_tensor value, tc_tensor f, tc_site here);

#endif
