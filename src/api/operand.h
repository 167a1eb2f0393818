/* api/operand.h - converts the operands of a public op (tensor handles and C numbers) to graph
 * nodes, within its call frame.
 *
 * C numbers exist only in public calls; below them they are 0-d nodes. Functions that return a node
 * return NULL when the frame, or the graph, has an error. */
#ifndef TCI_API_OPERAND_H
#define TCI_API_OPERAND_H

#include "api_call.h"

enum { TCI_OPS_BOOL = 1, TCI_OPS_INT = 2, TCI_OPS_FLOAT = 3 }; /* tc_arg.kind */

enum { TCI_OPS_MOST = 5 }; /* operands of an elementwise or built op */
static const char *const tci_ops_nth[TCI_OPS_MOST] = {"operand 1", "operand 2", "operand 3",
                                                      "operand 4", "operand 5"};

/* ---- numbers ---- */

/* The dtype in which tensors of dtype t (TC_DTYPE_COUNT: there are none) meet a number of this
 * kind. */
TCI_FN tc_dtype tci_ops_weak(tc_promotion how, tc_dtype t, int kind);
/* tc_arg.i of an unsigned number above INT64_MAX reads negative; its f does not. */
TCI_FN bool tci_ops_is_huge(const tc_arg *a);
/* Of integers. */
TCI_FN bool tci_ops_is_less(const tc_arg *a, const tc_arg *b);
/* A symbolic size used as an operand: its value in a run. */
TCI_FN bool tci_ops_is_symbol(const tc_arg *a);
/* Neither a fault of tc_dim_add and the like nor what C arithmetic made of a symbolic size. */
TCI_FN bool tci_ops_check_number(tci_frame *f, const tc_arg *a);
/* Whether the number is exact in an integer dtype. */
TCI_FN bool tci_ops_fits(const tc_arg *a, tc_dtype t);
/* NULL: the frame or the graph has the error. */
TCI_FN tci_node *tci_ops_number(tci_frame *f, const tc_arg *a, tc_dtype to, const char *what);
/* A tc_arg may come from another language, so its kind may be any number. */
TCI_FN bool tci_ops_check_kind(tci_frame *f, const tc_arg *a, const char *what);
/* The node of an operand that may be a number, which then takes dtype `to`. */
TCI_FN tci_node *tci_ops_either(tci_frame *f, const tc_arg *a, tc_dtype to, const char *what);
/* An integer, as a number in dtype t or as a tensor. */
TCI_FN tci_node *tci_ops_whole(tci_frame *f, const tc_arg *a, tc_dtype t, const char *what);

/* Nodes of the operands: tensors as they are, numbers in their weak dtype. op < 0: no op's rule.
 * names: of the operands, for messages. */
TCI_FN bool tci_ops_operands(tci_frame *f, int op, const tc_arg *args, int n,
                             const char *const *names, tci_node **nodes);
/* Finds the context among the operands; numbers alone have none. */
TCI_FN tci_frame tci_ops_begin(const char *name, const tc_arg *args, int n, tc_site here);

/* ---- tensors ---- */

/* Begins a frame and finds the node of its one tensor; NULL when it failed. */
TCI_FN tci_node *tci_ops_one(tci_frame *f, const char *name, tc_tensor x, tc_site here);
/* The same for calls with a list of axes. */
TCI_FN tci_node *tci_ops_over(tci_frame *f, const char *name, tc_tensor x, tc_axes axes,
                              tc_site here);
/* The same for calls with a list of sizes or of axes in order. */
TCI_FN tci_node *tci_ops_shaped(tci_frame *f, const char *name, tc_tensor x, int n,
                                const int64_t *list, const char *what, tc_site here);
/* The nodes of a list, in w (freed by tci_words_put); NULL when the frame failed. */
TCI_FN tci_node **tci_ops_list(tci_frame *f, tc_tensors xs, tci_words *w);

/* ---- calls that are one builder ---- */

/* A builder of one tensor and what comes after it. */
#define TCI_OPS_ONE(name, takes, build, ...)                                                       \
    TC_API tc_tensor tc_##name##_at takes                                                          \
    {                                                                                              \
        tci_frame f;                                                                               \
        tci_node *node = tci_ops_one(&f, "tc_" #name, x, here);                                    \
        return tci_frame_end(&f, node ? build(&f.ctx->graph, __VA_ARGS__) : NULL);                 \
    }
/* The same of two tensors. */
#define TCI_OPS_BOTH(name, a, b, takes, build, ...)                                                \
    TC_API tc_tensor tc_##name##_at takes                                                          \
    {                                                                                              \
        tci_frame f = tci_frame_begin("tc_" #name, here);                                          \
        tci_frame_use(&f, a);                                                                      \
        tci_frame_use(&f, b);                                                                      \
        tci_node *node = tci_frame_node(&f, a, tci_ops_nth[0]);                                    \
        tci_node *other = tci_frame_node(&f, b, tci_ops_nth[1]);                                   \
        return tci_frame_end(&f, f.failed ? NULL : build(&f.ctx->graph, __VA_ARGS__));             \
    }
/* One of the results of a call on `node`, if it is wanted. */
#define TCI_OPS_STORE(to, name, built)                                                             \
    if (to) {                                                                                      \
        tci_frame f;                                                                               \
        tci_node *node = tci_ops_one(&f, name, x, here);                                           \
        tci_graph *g = node ? &f.ctx->graph : NULL;                                                \
        *(to) = tci_frame_end(&f, node ? (built) : NULL);                                          \
    }

#endif
