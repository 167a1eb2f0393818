/* run/shape_instances.h - declares dynamic shapes: specializes a program with symbolic sizes for
 * the concrete sizes of each run, and caches the specializations. Only under TC_DYNAMIC_SHAPES. */
#ifndef TCI_RUN_SHAPE_INSTANCES_H
#define TCI_RUN_SHAPE_INSTANCES_H

#include "runtime_structs.h"
#include "infer_sizes.h"

#ifdef TC_DYNAMIC_SHAPES

enum { TCI_DYNAMIC_KEPT = 8 }; /* instances that a program keeps */

/* Description of one buffer when an instance was made. */
typedef struct tci_dynamic_look {
    int64_t n;
    int32_t dtype;
    bool sized;
} tci_dynamic_look;

typedef struct tci_instance {
    struct tci_instance *next; /* in the list */
    int32_t refs;              /* atomic */
    tc_program *program;
    int64_t *values;         /* of the symbols */
    tci_dynamic_look *looks; /* of the buffers: inputs, then outputs */
} tci_instance;

typedef struct tci_dynamic tci_dynamic;
struct tci_dynamic {
    tci_solver *solver;
    tci_dim *user;       /* the user's symbol for each */
    tci_instance *first; /* most recent first */
};

/* f->dynamic from the request; f is otherwise complete. False: no memory. */
TCI_FN bool tci_dynamic_make(tc_program *f, const tci_request *r);
TCI_FN void tci_dynamic_free(tc_program *f);
/* The name of a size that no buffer determines, so that no run can infer it, or NULL. */
TCI_FN const char *tci_dynamic_untold(const tc_program *f);
/* Calls of a family: they remember the instance that ran last. */
TCI_FN tc_call *tci_dynamic_call_make(tc_program *f);
TCI_FN void tci_dynamic_call_free(tc_call *c);
TCI_FN tc_status tci_dynamic_call_run(tc_call *c, tc_bufs inputs, tc_bufs outputs);
/* Its parts: *inner becomes a call of the instance that these buffers need; and what is to be told
 * of a run of it that failed. */
TCI_FN tc_status tci_dynamic_ready(tc_call *c, const tc_bufs *inputs, const tc_bufs *outputs,
                                   tc_call **inner);
TCI_FN tc_status tci_dynamic_told(tc_call *c, tc_status status, const tc_bufs *inputs,
                                  const tc_bufs *outputs);
/* Sizes of an output for these inputs: shape has room for its rank. The text of a failure is in
 * c->last. */
TCI_FN tc_status tci_dynamic_output(tc_call *c, tc_bufs inputs, int output, int64_t *shape);
/* The code of the sizes that ran last, counted; NULL: none did. */
TCI_FN tci_code *tci_dynamic_last(tc_program *f);
/* A line that names the sizes that are open, with their ranges. */
TCI_FN void tci_dynamic_explain(const tc_program *f, FILE *out);

#endif
#endif
