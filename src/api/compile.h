/* api/compile.h - declares the batch of compile jobs of one public call (tc_compile,
 * tc_compile_many, exports): resolves handles, compiles the requests, makes programs, reports
 * errors. */
#ifndef TCI_API_COMPILE_H
#define TCI_API_COMPILE_H

#include "api_call.h"

/* The code of an export for vectors of another width than the options say. */
typedef struct tci_batch_form {
    int vector_bits;
    tci_code *code; /* counted; set when the export is taken */
} tci_batch_form;

typedef struct tci_batch_job {
    tc_tensors inputs, outputs;
    bool find_inputs; /* inputs are the INPUT leaves in use, by creation */
    tc_program **program;
    tc_status status;
    tc_tensor about; /* its first output */
    tc_site site;    /* where that was made */
    tci_request *request;
    tci_code *code;      /* counted */
    const char *instead; /* why it is not compiled by the engine that was asked for; NULL */
    tci_request *later;  /* of the native form, which is made in the background; NULL: none */
    tci_batch_form *forms;
    int n_forms; /* of an export; none where the options say a width */
} tci_batch_job;

typedef struct tci_batch {
    const tci_frame *f; /* the public call */
    tc_tensor about;    /* live: of its context, and what errors without a job concern */
    tci_ctx *ctx;       /* that context */
    const tc_options *options;
    /* Takes the code of the one job, which is for others then; NULL: each becomes a program. */
    tc_status (*exports)(struct tci_batch *b, tci_batch_job *job);
    tci_batch_job *jobs;
    int n;
    tci_scratch s;
    tci_request **requests; /* of the jobs that have one, as tci_compile_requests takes them */
    tci_code **codes;
    tc_status *statuses;
    int n_requests;
    tc_status first;       /* of the first job that failed, */
    tc_tensor first_on;    /* what it concerned */
    tci_error first_error; /* and its text; both set when `first` is */
} tci_batch;

typedef tc_status (*tci_batch_body)(tci_batch *b, tci_batch_job *job);

/* Sets the context's error, "app.c:12: tc_compile: ... (the tensor was made at app.c:10)", so that
 * tc_error(about) has it too. about: of a live context. made: where what it concerns was made, or
 * NULL. */
TCI_FN tc_status tci_batch_fail(const tci_frame *f, tc_tensor about, const tc_site *made,
                                tc_status why, const char *format, ...) TCI_PRINTF(5, 6);
/* The live node of t. NULL: *status says why, as does the error of `about`, or of t where that has
 * no context. */
TCI_FN tci_node *tci_batch_node(const tci_frame *f, tc_tensor about, tc_tensor t,
                                tc_status *status);
/* Nodes of a list of handles, all of the batch's context. */
TCI_FN tc_status tci_batch_nodes(tci_batch *b, const tci_batch_job *job, const tc_tensors *list,
                                 tci_node **nodes);
/* Runs `body` with the scratch armed; a longjmp becomes a status and a text. */
TCI_FN tc_status tci_batch_armed(tci_batch *b, tci_batch_job *job, tci_batch_body body);
/* Fails the call if a log callback or custom op of the user misused the context that compiled or
 * ran, unless it failed with `status` already. */
TCI_FN tc_status tci_batch_take_back(tci_batch *b, tci_lent lent, tc_status status);
/* Compiles every job that has a request; each gets its code, counted, or its status. */
TCI_FN void tci_batch_compile(tci_batch *b);
/* One job whose code is not to run here but is taken by `exports`: scalar code of the C dialect,
 * or of the width that the options say. */
TCI_FN tc_status tci_batch_export(const tci_frame *f, tci_batch_job *job, const tc_options *options,
                                  tci_batch_body exports);
/* *job->program from its code. */
TCI_FN tc_status tci_batch_make_program(tci_batch *b, tci_batch_job *job);

#endif
