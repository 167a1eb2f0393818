/* export/c_export.h - declares the state of an export as C, and the functions that print the
 * functions of the exported program. Private to export/. */
#ifndef TCI_EXPORT_C_EXPORT_H
#define TCI_EXPORT_C_EXPORT_H

#include "../api/compile.h"
#include "../api/io.h"
#include "../base/system_headers.h"
#include "reserved_names.h"

enum { TCI_EXPORT_ALIGN = 64, TCI_EXPORT_INDENT = 4, TCI_EXPORT_HEAD = 64 };

typedef struct tci_export_level {
    int vector_bits;
    const char *tag;
    const char *target, *gcc_target; /* for function attributes; what gcc takes in addition */
    const char *test;                /* what a processor must have */
    const char *macros;              /* that a compiler for such a processor defines; clang's pragma
                                      * does not */
} tci_export_level;

/* The scalar code of the first row is for every processor. */
static const tci_export_level tci_export_levels[] = {
    {-1, "", "", "", "", ""},
    {256, "avx2", "avx2,fma,f16c", "",
     "__builtin_cpu_supports(\"avx2\") && __builtin_cpu_supports(\"fma\")",
     " __SSE4_1__ __AVX__ __AVX2__ __FMA__ __F16C__ "},
    {512, "avx512", "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c", ",prefer-vector-width=512",
     "__builtin_cpu_supports(\"avx512f\") && __builtin_cpu_supports(\"avx512bw\") && "
     "__builtin_cpu_supports(\"avx512dq\") && __builtin_cpu_supports(\"avx512vl\") && "
     "__builtin_cpu_supports(\"fma\")",
     " __SSE4_1__ __AVX__ __AVX2__ __FMA__ __F16C__ __AVX512F__ __AVX512BW__ __AVX512DQ__ "
     "__AVX512VL__ "},
};
enum { TCI_EXPORT_LEVELS = TCI_COUNT(tci_export_levels) };

/* A parameter that the program assigns. */
typedef struct tci_export_param {
    int captured; /* the leaf */
    int64_t bytes;
    int64_t staged_at; /* of its new value in the workspace; -1: over the old one */
} tci_export_param;

typedef struct tci_export {
    tci_batch_job job; /* the first member: it leads back here */
    tci_batch_form forms[TCI_EXPORT_LEVELS - 1];
    tc_export how;
    const char *path;
    char name[TCI_EXPORT_NAME]; /* of the function, and so of all that others see */
    const tci_request *request;
    const tci_export_level *level; /* being written, with */
    const tci_code *code;          /* its code, */
    int64_t arena_at, work_at;     /* its parts of the workspace; work_at: of fixed sizes, */
    int64_t least;                 /* bytes that it needs whatever the sizes, */
    tci_export_param *params;      /* its parameters, */
    int n_params;
    int32_t *slots;
    int n_slots;      /* and, of symbolic sizes, the slot of each buffer; -1: none */
    int64_t *init_at; /* where a temporary of the init section is; symbolic sizes */
    int64_t bytes;    /* of the workspace of fixed sizes, of all levels */
    int64_t weights_bytes;
    tci_hash weights_hash;
    tci_param_held *held;       /* of each captured leaf */
    tci_str head, tail, header; /* before the arrays, and after; the header; scratch */
    tci_os_fresh to;
} tci_export;

/* ---- export/c_functions.c ---- */
TCI_FN bool tci_export_is_word(char c, bool first);
TCI_FN int64_t tci_export_round(int64_t bytes);
TCI_FN int64_t tci_export_held(const tci_export *e, int i);
TCI_FN int tci_export_param_of(const tci_export *e, int captured);
TCI_FN bool tci_export_is_symbolic(const tci_export *e);
TCI_FN void tci_export_dim(const tci_export *e, tci_str *out, tci_dim d);
TCI_FN void tci_export_sizes(const tci_export *e, tci_str *out, bool typed, const char *after);
TCI_FN void tci_export_signature(const tci_export *e, tci_str *out, const char *tag);
TCI_FN void tci_export_prepare_signature(const tci_export *e, tci_str *out, const char *tag);
TCI_FN void tci_export_level_functions(const tci_export *e, tci_str *out, const char *tag);
TCI_FN int tci_export_n_levels(const tci_export *e);
TCI_FN void tci_export_level_code(const tci_export *e, tci_str *out, int i);
TCI_FN void tci_export_level_limit(const tci_export *e, tci_str *out);
TCI_FN void tci_export_chosen(const tci_export *e, tci_str *out);
TCI_FN void tci_export_size_helpers(const tci_export *e, tci_str *out);
TCI_FN void tci_export_workspace(const tci_export *e, tci_str *out);

#endif
