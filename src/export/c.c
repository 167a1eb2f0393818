/* export/c.c - tc_export_c: a program as one standalone file of C.
 *
 * In: tensors, as tc_compile_fn takes them. Out: the file and, on request, a header and a file of
 * weights, each complete or absent.
 *
 * Design: a program is a list of launches (compile/compiled_code.h), and the C dialect prints its
 * kernels as usual. The rest of a run is written out: captured memory as arrays, each launch as a
 * call with its operands, the steps of a repetition as a loop whose index moves them. The init
 * section is a function of its own.
 *
 * The program is compiled once for each level of x86-64 (tci_export_levels): scalar code first,
 * then code for AVX2 and for AVX-512, selected by target pragmas. The code of a level has a tag in
 * its names (tc_add becomes tc_avx2_add). The public function chooses the level once per process by
 * the features of the processor. All levels compute the same bits.
 *
 * A parameter that the program assigns is an argument. Its new value overwrites the old one where
 * tc_run would do so; otherwise it is written to the workspace and copied if no fault occurred.
 *
 * Symbolic sizes are arguments: offsets, sizes in bytes and trip counts are printed as expressions
 * of them. The arena cannot be planned then; temporaries share slots if no two are live at once,
 * and a slot has the size of the largest of them.
 *
 * The workspace holds the results of the init section, new values of parameters, the arena, and
 * scratch memory of kernels. `w` is its first address that is a multiple of 64. */
#include <stdarg.h>
#include <string.h>

#include "../api/compile_jobs.h"
#include "../api/io.h"
#include "../base/posix.h"
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
    int64_t *init_at; /* where a temporary of the init list is; symbolic sizes */
    int64_t bytes;    /* of the workspace of fixed sizes, of all levels */
    int64_t weights_bytes;
    tci_hash weights_hash;
    tci_param_held *held;       /* of each captured leaf */
    tci_str head, tail, header; /* before the arrays, and after; the header; scratch */
    tci_os_fresh to;
} tci_export;

static bool tci_export_is_word(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && c >= '0' && c <= '9');
}

/* The text, with the level's tag in each name that begins with tc_ or TC_. */
static void tci_export_tagged(const tci_export *e, tci_str *out, const char *text)
{
    const char *tag = e->level->tag;
    for (const char *at = text; *at;) {
        size_t n = 0;
        while (tci_export_is_word(at[n], false)) {
            n++;
        }
        bool own = n > 3 && *tag && (!strncmp(at, "tc_", 3) || !strncmp(at, "TC_", 3));
        if (own) {
            tci_str_printf(out, "%.3s%s_", at, tag);
        }
        size_t skip = own ? 3 : 0, take = n ? n : 1;
        tci_str_add_n(out, at + skip, take - skip);
        at += take;
    }
}

/* ---- operands ---- */

static int64_t tci_export_round(int64_t bytes)
{
    return (bytes + TCI_EXPORT_ALIGN - 1) / TCI_EXPORT_ALIGN * TCI_EXPORT_ALIGN;
}

/* Bytes of captured leaf i. */
static int64_t tci_export_held(const tci_export *e, int i)
{
    return tci_dim_known(e->code->inputs[e->code->n_user_inputs + i].bytes);
}

static const tci_code_buffer *tci_export_buffer(const tci_export *e, int t, int o)
{
    return &e->code->buffers[e->code->steps[t].operands[o]];
}

/* The parameter that the captured leaf is, or a view of; -1: none that is assigned. */
static int tci_export_param_of(const tci_export *e, int captured)
{
    const tci_node *const *leaves = (const tci_node *const *)e->request->captured;
    int i = e->n_params - 1;
    while (i >= 0 && leaves[e->params[i].captured]->storage != leaves[captured]->storage) {
        i--;
    }
    return i;
}

/* Writes where captured leaf i begins, and returns the offset that is to be added. */
static int64_t tci_export_captured(const tci_export *e, tci_str *out, int i)
{
    int param = tci_export_param_of(e, i);
    if (param >= 0) {
        tci_str_printf(out, "(char *)param%d", param);
        return tci_program_lowest(e->request->captured[i]);
    }
    if (e->how.weights) {
        tci_str_add(out, "(char *)weights");
        int64_t at = TCI_EXPORT_HEAD;
        for (int k = 0; k < i; k++) {
            at += tci_export_param_of(e, k) < 0 ? tci_export_round(tci_export_held(e, k)) : 0;
        }
        return at;
    }
    tci_str_printf(out, "(char *)%s_data%d", e->name, i);
    return 0;
}

static int64_t tci_export_output(const tci_export *e, tci_str *out, int i)
{
    int param = i - e->code->n_user_outputs;
    if (param >= 0 && e->params[param].staged_at >= 0) {
        tci_str_add(out, "w");
        return e->params[param].staged_at;
    }
    if (param >= 0) {
        return tci_export_captured(e, out, e->params[param].captured);
    }
    tci_str_printf(out, "(char *)out%d", i);
    return 0;
}

static bool tci_export_is_symbolic(const tci_export *e)
{
    return e->code->n_symbols > 0;
}

static void tci_export_dim(const tci_export *e, tci_str *out, tci_dim d)
{
    tci_dim_print_c(out, d, e->name);
}

/* Writes where a temporary begins, and returns the offset that is to be added. */
static int64_t tci_export_temporary(const tci_export *e, tci_str *out, int buffer)
{
    tci_str_add(out, "w");
    if (!tci_export_is_symbolic(e)) {
        return e->arena_at + e->code->buffers[buffer].offset;
    }
    if (e->slots[buffer] >= 0) {
        tci_str_printf(out, " + a%d", (int)e->slots[buffer]);
        return 0;
    }
    return e->init_at[buffer];
}

/* Operand o of launch t, as the address of chars; within its repetitions. */
static void tci_export_operand(const tci_export *e, tci_str *out, int t, int o)
{
    const tci_code_buffer *b = tci_export_buffer(e, t, o);
    tci_dim step_offset = e->code->steps[t].offsets[o];
    int64_t offset = tci_dim_is_known(step_offset) ? tci_dim_known(step_offset) : 0;
    switch ((tci_buffer_kind)b->kind) {
    case TCI_BUF_INPUT:
        if (b->index < e->code->n_user_inputs) {
            tci_str_printf(out, "(char *)in%d", (int)b->index);
        } else {
            offset += tci_export_captured(e, out, (int)b->index - e->code->n_user_inputs);
        }
        break;
    case TCI_BUF_OUTPUT: offset += tci_export_output(e, out, (int)b->index); break;
    case TCI_BUF_TEMP:
        offset += tci_export_temporary(e, out, (int)e->code->steps[t].operands[o]);
        break;
    case TCI_BUF_KEPT:
        tci_str_add(out, "w");
        offset += b->offset;
        break;
    }
    if (offset) {
        tci_str_printf(out, " + %lld", (long long)offset);
    }
    if (!tci_dim_is_known(step_offset)) {
        tci_str_add(out, " + ");
        tci_export_dim(e, out, step_offset);
    }
    for (int i = 0; i < e->code->n_repeats; i++) {
        const tci_code_repeat *r = &e->code->repeats[i];
        for (int m = 0; m < r->n_moves; m++) {
            const tci_move *x = &r->moves[m];
            if (x->step == t && x->operand == o) {
                tci_str_printf(out, " + r%d%s * (", i, x->back ? " % 2" : "");
                tci_export_dim(e, out, x->by);
                tci_str_add(out, ")");
            }
        }
    }
}

/* ---- launches ---- */

static void tci_export_line(tci_str *out, int depth)
{
    tci_str_printf(out, "%*s", TCI_EXPORT_INDENT * depth, "");
}

/* True if the kernel has work memory. */
static bool tci_export_works(const tci_code_kernel *k)
{
    return !tci_dim_is_known(k->work_bytes) || tci_dim_known(k->work_bytes) > 0;
}

/* An array of the block that a launch is: its operands, or its literals. */
static void tci_export_operands(const tci_export *e, tci_str *out, int t, int depth)
{
    const tci_code_kernel *k = &e->code->kernels[e->code->steps[t].kernel];
    tci_export_line(out, depth);
    tci_str_add(out, "void *p[] = {");
    for (int o = 0; o < k->n_operands; o++) {
        tci_str_add(out, o ? ", " : "");
        tci_export_operand(e, out, t, o);
    }
    if (tci_export_works(k)) {
        tci_str_add(out, tci_export_is_symbolic(e) ? ", w + a_work" : ", w");
        if (!tci_export_is_symbolic(e)) {
            tci_str_printf(out, " + %lld", (long long)e->work_at);
        }
    }
    tci_str_add(out, "};\n");
}

/* Literals, and after them the sizes that the kernel computes with. */
static void tci_export_literals(const tci_export *e, tci_str *out, int t, int depth)
{
    const tci_code_step *step = &e->code->steps[t];
    const tci_code_kernel *k = &e->code->kernels[step->kernel];
    tci_export_line(out, depth);
    tci_str_add(out, "const long long l[] = {");
    for (int i = 0; i < k->n_literals; i++) {
        int64_t word = e->request->literals[step->literals[i]]->value.i;
        tci_str_printf(out, "%s(long long)%lluull", i ? ", " : "", (unsigned long long)word);
    }
    for (int i = 0; i < k->n_dims; i++) {
        tci_str_add(out, i + k->n_literals ? ", " : "");
        tci_export_dim(e, out, k->dims[i]);
    }
    tci_str_add(out, "};\n");
}

/* Each launch is a block: C++ has no array literals whose address could be taken in the call. */
static void tci_export_launches(const tci_export *e, tci_str *out, int begin, int end, int depth)
{
    for (int t = begin; t < end; t++) {
        const tci_code_kernel *k = &e->code->kernels[e->code->steps[t].kernel];
        tci_export_line(out, depth);
        tci_str_add(out, "{\n");
        tci_export_operands(e, out, t, depth + 1);
        bool has_words = k->n_literals + k->n_dims > 0;
        if (has_words) {
            tci_export_literals(e, out, t, depth + 1);
        }
        tci_export_line(out, depth + 1);
        tci_export_tagged(e, out, k->symbol);
        tci_str_printf(out, "(p, %s, &fault, 0, ", has_words ? "l" : "0");
        tci_export_dim(e, out, k->n_tasks);
        tci_str_add(out, ");\n");
        tci_export_line(out, depth);
        tci_str_add(out, "}\n");
    }
}

/* Carries of a repetition that stops, after an odd number of rounds: from the second row to the
 * first. */
static void tci_export_settle(const tci_export *e, tci_str *out, int i, int depth)
{
    const tci_code_repeat *r = &e->code->repeats[i];
    for (int k = 0; k < r->n_turns; k++) {
        const tci_turn *turn = &r->turns[k];
        tci_export_line(out, depth);
        tci_str_printf(out, "for (long long i = 0; i < r%d %% 2 * ", i);
        tci_export_dim(e, out, turn->bytes);
        tci_str_add(out, "; i++) {\n");
        tci_export_line(out, depth + 1);
        tci_str_add(out, "char *row = ");
        tci_export_operand(e, out, turn->step, turn->operand);
        tci_str_printf(out, ";\n%*srow[i] = row[i + ", TCI_EXPORT_INDENT * (depth + 1), "");
        tci_export_dim(e, out, turn->bytes);
        tci_str_add(out, "];\n");
        tci_export_line(out, depth);
        tci_str_add(out, "}\n");
    }
}

static void tci_export_while(const tci_export *e, tci_str *out, int i, int depth)
{
    const tci_code_repeat *r = &e->code->repeats[i];
    tci_export_line(out, depth);
    tci_str_printf(out, "long long r%d;\n", i);
    tci_export_line(out, depth);
    tci_str_printf(out, "for (r%d = 0; r%d < ", i, i);
    tci_export_dim(e, out, r->rounds);
    if (r->stops >= 0) {
        const tci_turn *stop = &r->turns[r->stops];
        tci_str_add(out, " && *(");
        tci_export_operand(e, out, stop->step, stop->operand);
        tci_str_printf(out, " + r%d %% 2 * ", i);
        tci_export_dim(e, out, stop->bytes);
        tci_str_add(out, ")");
    }
    tci_str_printf(out, "; r%d++) {\n", i);
}

/* Launches [begin, end), with the repetitions from `first` to before `last` among them. */
static void tci_export_rounds(const tci_export *e, tci_str *out, int begin, int end, int first,
                              int last, int depth)
{
    for (int i = first; i < last;) {
        const tci_code_repeat *r = &e->code->repeats[i];
        tci_export_launches(e, out, begin, r->first, depth);
        tci_export_while(e, out, i, depth);
        tci_export_rounds(e, out, r->first, r->last, i + 1, i + 1 + r->n_within, depth + 1);
        tci_export_line(out, depth);
        tci_str_add(out, "}\n");
        tci_export_settle(e, out, i, depth);
        begin = r->last;
        i += 1 + r->n_within;
    }
    tci_export_launches(e, out, begin, end, depth);
}

/* ---- functions ---- */

static const char *tci_export_ctype(const tci_code_port *port)
{
    return tci_dtype_get((tc_dtype)port->dtype)->ctype;
}

/* One argument: with its type, or, in a call that passes it on, without. */
static void tci_export_argument(tci_str *out, bool typed, const char *constant, const char *type,
                                const char *name, int i)
{
    if (typed) {
        tci_str_printf(out, "%s%s *", constant, type);
    }
    tci_str_printf(out, "%s%d, ", name, i);
}

/* Sizes, each followed by `after`. */
static void tci_export_sizes(const tci_export *e, tci_str *out, bool typed, const char *after)
{
    for (int i = 0; i < e->code->n_symbols; i++) {
        bool last = i == e->code->n_symbols - 1;
        tci_str_printf(out, "%ss%d%s", typed ? "long long " : "", i, last ? after : ", ");
    }
}

static void tci_export_arguments(const tci_export *e, tci_str *out, bool typed)
{
    const tci_code *c = e->code;
    tci_export_sizes(e, out, typed, ", ");
    for (int i = 0; i < c->n_user_inputs; i++) {
        tci_export_argument(out, typed, "const ", tci_export_ctype(&c->inputs[i]), "in", i);
    }
    for (int i = 0; i < c->n_user_outputs; i++) {
        tci_export_argument(out, typed, "", tci_export_ctype(&c->outputs[i]), "out", i);
    }
    for (int i = 0; i < e->n_params; i++) {
        tci_export_argument(out, typed, "", tci_export_ctype(&c->outputs[c->n_user_outputs + i]),
                            "param", i);
    }
    if (e->how.weights) {
        tci_str_add(out, typed ? "const void *weights, " : "weights, ");
    }
    tci_str_add(out, typed ? "void *workspace" : "workspace");
}

static void tci_export_prepare_arguments(const tci_export *e, tci_str *out, bool typed)
{
    if (e->how.weights) {
        tci_str_add(out, typed ? "const void *weights, " : "weights, ");
    }
    tci_str_add(out, typed ? "void *workspace" : "workspace");
}

/* "int net(...)", or that of a level: "static int net_avx2(...)". */
static void tci_export_signature(const tci_export *e, tci_str *out, const char *tag)
{
    tci_str_printf(out, "%sint %s%s%s(", *tag ? "static " : "", e->name, *tag ? "_" : "", tag);
    tci_export_arguments(e, out, true);
    tci_str_add(out, ")");
}

static void tci_export_prepare_signature(const tci_export *e, tci_str *out, const char *tag)
{
    tci_str_printf(out, "%svoid %s%s%s_prepare(", *tag ? "static " : "", e->name, *tag ? "_" : "",
                   tag);
    tci_export_prepare_arguments(e, out, true);
    tci_str_add(out, ")");
}

static void tci_export_begin(const tci_export *e, tci_str *out)
{
    tci_str_add(out, "\n{\n    char *w = (char *)workspace + (size_t)-(size_t)workspace % 64;\n"
                     "    long long fault = 0;\n    (void)w;\n");
    if (e->how.weights) {
        tci_str_add(out, "    (void)weights;\n");
    }
}

/* The largest of the bytes of a slot's temporaries, in lines of 64. */
static void tci_export_slot(const tci_export *e, tci_str *out, int slot)
{
    int depth = 0;
    tci_str_printf(out, "%s_line(", e->name);
    for (int i = 0; i < e->code->n_buffers; i++) {
        if (e->slots[i] == slot) {
            tci_str_printf(out, "%s_max(", e->name);
            tci_export_dim(e, out, e->code->buffers[i].bytes);
            tci_str_add(out, ", ");
            depth++;
        }
    }
    tci_str_add(out, "0");
    for (int i = 0; i <= depth; i++) {
        tci_str_add(out, ")");
    }
}

/* Of symbolic sizes: variables a0, a1, ... for where slots begin, and a_work behind the last. */
static void tci_export_arena(const tci_export *e, tci_str *out)
{
    for (int i = 0; i <= e->n_slots && tci_export_is_symbolic(e); i++) {
        bool last = i == e->n_slots;
        if (last) {
            tci_str_add(out, "    const long long a_work = ");
        } else {
            tci_str_printf(out, "    const long long a%d = ", i);
        }
        if (i) {
            tci_str_printf(out, "a%d + ", i - 1);
            tci_export_slot(e, out, i - 1);
        } else {
            tci_str_printf(out, "%lld", (long long)e->arena_at);
        }
        tci_str_add(out, last ? ";\n    (void)a_work;\n" : ";\n");
    }
}

/* In a function that others call: sizes that the program does not take. */
static void tci_export_refusal(const tci_export *e, tci_str *out)
{
    tci_str_printf(out, "    if (!%s_takes(", e->name);
    tci_export_sizes(e, out, false, ")) {\n        return 2;\n    }\n");
}

/* Of symbolic sizes: how large the workspace of a level is. */
static void tci_export_bytes(const tci_export *e, tci_str *out, const char *tag)
{
    tci_str_printf(out, "\nstatic long long %s%s%s_bytes(", e->name, *tag ? "_" : "", tag);
    tci_export_sizes(e, out, true, ")\n{\n");
    tci_export_arena(e, out);
    tci_str_add(out, "    long long work = 0;\n");
    for (int k = 0; k < e->code->n_kernels; k++) {
        if (tci_export_works(&e->code->kernels[k])) {
            tci_str_printf(out, "    work = %s_max(work, ", e->name);
            tci_export_dim(e, out, e->code->kernels[k].work_bytes);
            tci_str_add(out, ");\n");
        }
    }
    for (int i = 0; i < e->code->n_symbols; i++) {
        tci_str_printf(out, "    (void)s%d;\n", i);
    }
    tci_str_printf(out, "    return %s_max(a_work + work, %lld) + 63;\n}\n", e->name,
                   (long long)e->least);
}

/* New values that could not be written over the old ones. */
static void tci_export_settle_params(const tci_export *e, tci_str *out)
{
    for (int i = 0; i < e->n_params; i++) {
        const tci_export_param *p = &e->params[i];
        if (p->staged_at >= 0 && p->bytes > 0) {
            tci_str_printf(out,
                           "    for (size_t i = 0; !fault && i < %lld; i++) {\n"
                           "        ((char *)param%d)[i] = w[%lld + i];\n    }\n",
                           (long long)p->bytes, i, (long long)p->staged_at);
        }
    }
}

/* The two functions of the level, under its tag. */
static void tci_export_level_functions(const tci_export *e, tci_str *out, const char *tag)
{
    const tci_code *c = e->code;
    if (tci_export_is_symbolic(e)) {
        tci_export_bytes(e, out, tag);
    }
    tci_str_add(out, "\n");
    tci_export_prepare_signature(e, out, tag);
    tci_export_begin(e, out);
    tci_export_launches(e, out, 0, c->n_init, 1);
    tci_str_add(out, "    (void)fault;\n}\n\n");
    tci_export_signature(e, out, tag);
    tci_export_begin(e, out);
    if (tci_export_is_symbolic(e) && !*tag) {
        tci_export_refusal(e, out);
    }
    tci_export_arena(e, out);
    tci_export_rounds(e, out, c->n_init, c->n_steps, 0, c->n_repeats, 1);
    tci_export_settle_params(e, out);
    tci_str_add(out, "    return fault != 0;\n}\n");
}

/* ---- levels ---- */

static int tci_export_n_levels(const tci_export *e)
{
    return 1 + e->job.n_forms;
}

/* Code of a level, between what makes compilers build its functions for its processors. */
static void tci_export_level_code(const tci_export *e, tci_str *out, int i)
{
    const tci_export_level *l = e->level;
    char macro[24];
    int n;
    if (!i) {
        tci_export_tagged(e, out, e->code->source);
        return;
    }
    tci_str_printf(out,
                   "\n#if TC_LEVELS >= %d\n#if defined(__clang__)\n#pragma clang attribute "
                   "push(__attribute__((target(\"%s\"))), apply_to = function)\n#else\n"
                   "#pragma GCC push_options\n#pragma GCC target(\"%s%s\")\n#endif\n",
                   i, l->target, l->target, l->gcc_target);
    for (const char *at = l->macros; sscanf(at, " %23s%n", macro, &n) == 1; at += n) {
        tci_str_printf(out, "#ifndef %s\n#define %s 1\n#define TC_SET%s\n#endif\n", macro, macro,
                       macro);
    }
    tci_export_tagged(e, out, "#define TC_ERRNO 1\n");
    tci_export_tagged(e, out, e->code->source);
    for (const char *at = l->macros; sscanf(at, " %23s%n", macro, &n) == 1; at += n) {
        tci_str_printf(out, "#ifdef TC_SET%s\n#undef TC_SET%s\n#undef %s\n#endif\n", macro, macro,
                       macro);
    }
    tci_str_add(out, "#if defined(__clang__)\n#pragma clang attribute pop\n#else\n"
                     "#pragma GCC pop_options\n#endif\n#endif\n");
}

/* Limits the levels to those that the compiler can build; the user may limit them further. */
static void tci_export_level_limit(const tci_export *e, tci_str *out)
{
    if (tci_export_n_levels(e) > 1) {
        tci_str_printf(out,
                       "/* Code for other processors than this is compiled for: 1 AVX2, 2 "
                       "AVX-512 too, 0 none. */\n#ifndef TC_LEVELS\n"
                       "#if defined(__x86_64__) && !defined(__TINYC__) && "
                       "(defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 8))\n"
                       "#define TC_LEVELS %d\n#else\n#define TC_LEVELS 0\n#endif\n#endif\n\n",
                       tci_export_n_levels(e) - 1);
    }
}

/* The level of this processor, asked for once; two threads that ask find the same. */
static void tci_export_level_choice(const tci_export *e, tci_str *out)
{
    tci_str_printf(out,
                   "\nstatic int %s_level(void)\n{\n#if TC_LEVELS\n"
                   "    static int level = -1;\n"
                   "    int known = __atomic_load_n(&level, __ATOMIC_RELAXED);\n"
                   "    if (known < 0) {\n        __builtin_cpu_init();\n        known = 0;\n",
                   e->name);
    for (int i = 1; i < tci_export_n_levels(e); i++) {
        tci_str_printf(out, "#if TC_LEVELS >= %d\n        known = %s ? %d : known;\n#endif\n", i,
                       tci_export_levels[i].test, i);
    }
    tci_str_add(out, "        __atomic_store_n(&level, known, __ATOMIC_RELAXED);\n    }\n"
                     "    return known;\n#else\n    return 0;\n#endif\n}\n");
}

/* The body of one of the two functions that others call. */
static void tci_export_dispatch(const tci_export *e, tci_str *out, const char *ending,
                                const char *result,
                                void (*arguments)(const tci_export *e, tci_str *out, bool typed))
{
    tci_str_add(out, "\n{\n");
    if (tci_export_is_symbolic(e) && *result && !*ending) {
        tci_export_refusal(e, out);
    }
    tci_str_printf(out, "    switch (%s_level()) {\n", e->name);
    for (int i = tci_export_n_levels(e) - 1; i >= 0; i--) {
        const char *tag = i ? tci_export_levels[i].tag : "plain";
        if (i) {
            tci_str_printf(out, "#if TC_LEVELS >= %d\n    case %d:\n", i, i);
        } else {
            tci_str_add(out, "    default:\n");
        }
        tci_str_printf(out, "        %s%s_%s%s(", result, e->name, tag, ending);
        arguments(e, out, false);
        tci_str_add(out, *result ? ");\n" : ");\n        break;\n");
        tci_str_add(out, i ? "#endif\n" : "");
    }
    tci_str_add(out, "    }\n}\n");
}

static void tci_export_workspace_arguments(const tci_export *e, tci_str *out, bool typed)
{
    tci_export_sizes(e, out, typed, "");
}

static void tci_export_chosen(const tci_export *e, tci_str *out)
{
    tci_export_level_choice(e, out);
    if (tci_export_is_symbolic(e)) {
        tci_str_printf(out, "\nstatic long long %s_bytes_here(", e->name);
        tci_export_sizes(e, out, true, ")");
        tci_export_dispatch(e, out, "_bytes", "return ", tci_export_workspace_arguments);
    }
    tci_str_add(out, "\n");
    tci_export_prepare_signature(e, out, "");
    tci_export_dispatch(e, out, "_prepare", "", tci_export_prepare_arguments);
    tci_str_add(out, "\n");
    tci_export_signature(e, out, "");
    tci_export_dispatch(e, out, "", "return ", tci_export_arguments);
}

/* ---- symbolic sizes ---- */

/* Helper functions of size expressions, and checks that sizes are in range and none is negative. */
static void tci_export_size_helpers(const tci_export *e, tci_str *out)
{
    const tci_code *c = e->code;
    const char *name = e->name;
    tci_str_printf(out,
                   "static long long %s_min(long long a, long long b)\n{\n"
                   "    return a < b ? a : b;\n}\n\n",
                   name);
    tci_str_printf(out,
                   "static long long %s_max(long long a, long long b)\n{\n"
                   "    return a < b ? b : a;\n}\n\n",
                   name);
    tci_str_printf(out,
                   "static long long %s_div(long long a, long long b)\n{\n"
                   "    return b == 0 ? 0 : a / b - (a %% b != 0 && (a < 0) != (b < 0));\n"
                   "}\n\n",
                   name);
    tci_str_printf(out,
                   "static long long %s_line(long long n)\n{\n"
                   "    return (n + 63) / 64 * 64;\n}\n\nstatic int %s_takes(",
                   name, name);
    tci_export_sizes(e, out, true, ")\n{\n    return ");
    for (int i = 0; i < c->n_symbols; i++) {
        tci_str_printf(out, "%ss%d >= %lldll && s%d <= %lldll", i ? " && " : "", i,
                       (long long)tci_dim_least(c->symbols[i]), i,
                       (long long)tci_dim_most(c->symbols[i]));
    }
    for (int i = 0; i < c->n_inputs + c->n_outputs; i++) {
        const tci_code_port *p = i < c->n_inputs ? &c->inputs[i] : &c->outputs[i - c->n_inputs];
        for (int a = 0; a < p->rank; a++) {
            if (tci_dim_least(p->shape[a]) < 0) {
                tci_str_add(out, " &&\n           ");
                tci_export_dim(e, out, p->shape[a]);
                tci_str_add(out, " >= 0");
            }
        }
    }
    tci_str_add(out, ";\n}\n");
}

/* The workspace's bytes for sizes; -1: it does not take them. */
static void tci_export_workspace(const tci_export *e, tci_str *out)
{
    tci_str_printf(out, "\nlong long %s_workspace(", e->name);
    tci_export_sizes(e, out, true, ")\n{\n");
    tci_str_printf(out, "    if (!%s_takes(", e->name);
    tci_export_sizes(e, out, false, ")) {\n        return -1;\n    }\n");
    if (tci_export_n_levels(e) > 1) {
        tci_str_printf(out, "    return %s_bytes_here(", e->name);
        tci_export_sizes(e, out, false, ");\n}\n");
    } else {
        tci_str_printf(out, "    return %s_bytes(", e->name);
        tci_export_sizes(e, out, false, ");\n}\n");
    }
}

/* ---- the head ---- */

/* The name, or "" where it is no word of C with dots, which could end a comment. */
static const char *tci_export_word_of(const char *name)
{
    bool is_word = name && *name;
    for (const char *at = name; is_word && *at; at++) {
        is_word = tci_export_is_word(*at, false) || *at == '.';
    }
    return is_word ? name : "";
}

/* "in0: x, f32 [2, 3]" */
static void tci_export_port(const tci_export *e, tci_str *out, const char *what, int i,
                            const char *name, const tci_code_port *port, const char *use)
{
    tci_str_printf(out, " *   %s%d: %s%s%s [", what, i, tci_export_word_of(name),
                   *tci_export_word_of(name) ? ", " : "",
                   tci_dtype_get((tc_dtype)port->dtype)->name);
    for (int d = 0; d < port->rank; d++) {
        tci_str_add(out, d ? ", " : "");
        tci_export_dim(e, out, port->shape[d]);
    }
    tci_str_printf(out, "]%s\n", use);
}

#ifdef TC_DYNAMIC_SHAPES
static void tci_export_symbols(const tci_export *e, tci_str *out)
{
    for (int i = 0; i < e->code->n_symbols; i++) {
        const char *name = tci_export_word_of(tci_dim_name(e->request->user_symbols[i]));
        tci_str_printf(out, " *   s%d: %s%s%lld to %lld\n", i, name, *name ? ", " : "",
                       (long long)tci_dim_least(e->code->symbols[i]),
                       (long long)tci_dim_most(e->code->symbols[i]));
    }
}
#else
#define tci_export_symbols(e, out) ((void)(e))
#endif

static void tci_export_ports(const tci_export *e, tci_str *out)
{
    const tci_code *c = e->code;
    tci_export_symbols(e, out);
    for (int i = 0; i < c->n_user_inputs; i++) {
        tci_export_port(e, out, "in", i, e->request->inputs[i]->name, &c->inputs[i], "");
    }
    for (int i = 0; i < c->n_user_outputs; i++) {
        tci_export_port(e, out, "out", i, NULL, &c->outputs[i], "");
    }
    for (int i = 0; i < e->n_params; i++) {
        const tci_node *leaf = e->request->captured[e->params[i].captured];
        tci_export_port(e, out, "param", i, tci_param_name_of(leaf->storage),
                        &c->outputs[c->n_user_outputs + i], ", read and given its next value");
    }
}

/* Describes the functions and their arguments in a comment. */
static void tci_export_comment(const tci_export *e, tci_str *out, const char *file)
{
    tci_str_printf(out, "/* %s - computes, made by tc.\n *\n *   ", file);
    tci_export_signature(e, out, "");
    tci_str_add(out, ";\n *   ");
    tci_export_prepare_signature(e, out, "");
    tci_str_add(out, "; once, before the first run in that workspace\n");
    if (e->how.weights) {
        tci_str_printf(out,
                       " *   int %s_check(const void *weights, size_t bytes); 0: they are "
                       "those of %s.bin\n",
                       e->name, e->name);
    }
    tci_str_add(out, " *\n");
    tci_export_ports(e, out);
    if (e->how.weights) {
        tci_str_printf(out, " *   weights: the %lld bytes of %s.bin, at a multiple of 8\n",
                       (long long)e->weights_bytes, e->name);
    }
    if (tci_export_is_symbolic(e)) {
        tci_str_printf(out, " *   workspace: %s_workspace(", e->name);
        tci_export_sizes(e, out, false, ") bytes; -1: there are no such sizes\n");
    } else {
        tci_str_printf(out, " *   workspace: %lld bytes\n", (long long)e->bytes);
    }
    tci_str_printf(out,
                   " *\n * Returns 0, or 1 where an index was outside its axis%s%s. Arrays "
                   "overlap nowhere. */\n",
                   tci_export_is_symbolic(e) ? ", 2 where a size is outside its range" : "",
                   e->n_params ? "; parameters are then as they were" : "");
}

static void tci_export_declarations(const tci_export *e, tci_str *out)
{
    tci_str_add(out, "#include <stddef.h>\n\n");
    if (!tci_export_is_symbolic(e)) {
        tci_str_printf(out, "#define %s_workspace %lldll\n", e->name, (long long)e->bytes);
    }
    if (e->how.weights) {
        tci_str_printf(out, "#define %s_weights %lldll\n", e->name, (long long)e->weights_bytes);
    }
    tci_str_add(out, "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n");
    tci_export_signature(e, out, "");
    tci_str_add(out, ";\n");
    tci_export_prepare_signature(e, out, "");
    tci_str_add(out, ";\n");
    if (tci_export_is_symbolic(e)) {
        tci_str_printf(out, "long long %s_workspace(", e->name);
        tci_export_sizes(e, out, true, ");\n");
    }
    if (e->how.weights) {
        tci_str_printf(out, "int %s_check(const void *weights, size_t bytes);\n", e->name);
    }
    tci_str_add(out, "#ifdef __cplusplus\n}\n#endif\n\n");
}

static void tci_export_pragmas(tci_str *out)
{
    tci_str_add(out, "/* Values depend on the compiler taking floats as they are written. */\n"
                     "#if defined(__clang__)\n#pragma clang diagnostic push\n"
                     "#pragma clang diagnostic ignored \"-Weverything\"\n"
                     "#pragma STDC FP_CONTRACT OFF\n"
                     "#elif defined(__GNUC__)\n"
                     "/* To the end of the file, which vectors never leave. */\n"
                     "#pragma GCC diagnostic ignored \"-Wpsabi\"\n"
                     "#pragma GCC diagnostic push\n"
                     "#pragma GCC diagnostic ignored \"-Wunused-function\"\n"
                     "#pragma GCC diagnostic ignored \"-Wunused-variable\"\n"
                     "#pragma GCC diagnostic ignored \"-Wunused-but-set-variable\"\n"
                     "#pragma GCC diagnostic ignored \"-Wunused-parameter\"\n"
                     "#pragma GCC diagnostic ignored \"-Wcast-qual\"\n"
                     "#pragma GCC diagnostic ignored \"-Wpedantic\"\n"
                     "#pragma GCC diagnostic ignored \"-Wconversion\"\n"
                     "#pragma GCC diagnostic ignored \"-Wsign-conversion\"\n"
                     "#pragma GCC diagnostic ignored \"-Wfloat-conversion\"\n"
                     "#pragma GCC diagnostic ignored \"-Wfloat-equal\"\n"
                     "#pragma GCC diagnostic ignored \"-Wdouble-promotion\"\n"
                     "#pragma GCC diagnostic ignored \"-Wunused-macros\"\n"
                     "#ifdef __cplusplus\n#pragma GCC diagnostic ignored \"-Wnarrowing\"\n#endif\n"
                     "#pragma GCC push_options\n"
                     "#pragma GCC optimize(\"fp-contract=off,wrapv,no-strict-aliasing\")\n#endif\n"
                     "#define TC_ERRNO 1\n\n");
}

/* ---- arrays ---- */

static const char *tci_export_word(int bytes)
{
    return bytes == 1 ? "char" : bytes == 2 ? "short" : bytes == 4 ? "int" : "long long";
}

static void tci_export_text(tci_export *e, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    tci_os_fresh_write(&e->to, text, (size_t)n);
}

/* The bytes of captured leaf i, while they are held. */
static const char *tci_export_data(const tci_export *e, int i)
{
    return tci_run_at(e->held[i].data, tci_program_lowest(e->request->captured[i]));
}

/* The bytes of a captured leaf as words of its dtype's size. Takes no scratch. */
static void tci_export_array(tci_export *e, int i)
{
    const tci_code_port *port = &e->code->inputs[e->code->n_user_inputs + i];
    const char *data = tci_export_data(e, i);
    int width = tci_dtype_get((tc_dtype)port->dtype)->bytes;
    int64_t n = tci_export_held(e, i) / width;
    tci_export_text(e,
                    "\n#if defined(__GNUC__)\n__attribute__((aligned(64)))\n#endif\n"
                    "static const unsigned %s %s_data%d[%lld] = {",
                    tci_export_word(width), e->name, i, (long long)TCI_MAX(n, (int64_t)1));
    for (int64_t at = 0; at < n; at += 8) {
        char line[8 * 24], *end = line;
        for (int64_t j = at; j < at + 8 && j < n; j++) {
            uint64_t word = 0; /* of a little-endian machine, as tc's are */
            memcpy(&word, data + j * width, (size_t)width);
            end += snprintf(end, (size_t)(line + sizeof(line) - end), "0x%llx,",
                            (unsigned long long)word);
        }
        tci_export_text(e, "\n");
        tci_os_fresh_write(&e->to, line, (size_t)(end - line));
    }
    tci_export_text(e, n ? "};\n" : "0};\n");
}

/* ---- weights in a file of their own ---- */

/* Header of the weights file: a word that identifies the format, the size, a hash of the arrays. */
static void tci_export_weights_head(const tci_export *e, uint64_t head[4])
{
    memcpy(&head[0], "tcweigh1", sizeof(head[0]));
    head[1] = (uint64_t)e->weights_bytes;
    head[2] = e->weights_hash.lo;
    head[3] = e->weights_hash.hi;
}

/* The arrays are held. */
static void tci_export_measure_weights(tci_export *e)
{
    uint64_t lo = 0, hi = 0;
    e->weights_bytes = TCI_EXPORT_HEAD;
    for (int i = 0; i < e->request->n_captured; i++) {
        if (tci_export_param_of(e, i) < 0) {
            tci_hash h = tci_hash_bytes(tci_export_data(e, i), (size_t)tci_export_held(e, i));
            lo = tci_hash_mix(lo, h.lo);
            hi = tci_hash_mix(hi, h.hi);
            e->weights_bytes += tci_export_round(tci_export_held(e, i));
        }
    }
    e->weights_hash = (tci_hash){lo, hi};
}

static void tci_export_check(const tci_export *e, tci_str *out)
{
    uint64_t head[4];
    tci_export_weights_head(e, head);
    tci_str_printf(out,
                   "\nint %s_check(const void *weights, size_t bytes)\n{\n"
                   "    static const unsigned long long head[4] = {",
                   e->name);
    for (int i = 0; i < 4; i++) {
        tci_str_printf(out, "%s0x%llxull", i ? ", " : "", (unsigned long long)head[i]);
    }
    tci_str_printf(out,
                   "};\n    int bad = !weights || bytes != %lld;\n"
                   "    for (int i = 0; i < 32 && !bad; i++) {\n"
                   "        bad = ((const unsigned char *)weights)[i] !=\n"
                   "              (unsigned char)(head[i / 8] >> (i %% 8 * 8));\n    }\n"
                   "    return bad;\n}\n",
                   (long long)e->weights_bytes);
}

/* ---- the files ---- */

static tc_status tci_export_hold(tci_export *e, tci_scratch *s)
{
    int n = e->request->n_captured;
    e->held = TCI_NEW_ARRAY(s, tci_param_held, n + 1);
    for (int i = 0; i < n; i++) {
        e->held[i].storage = e->request->captured[i]->storage;
        e->held[i].next = i + 1 < n ? &e->held[i + 1] : NULL;
    }
    return n ? tci_param_hold(e->held) : TC_OK;
}

/* "some/net.c" with another ending. */
static const char *tci_export_sibling(const tci_export *e, tci_scratch *s, const char *ending)
{
    return tci_scratch_printf(s, "%.*s%s", (int)strlen(e->path) - 2, e->path, ending);
}

static int tci_export_write_weights(tci_export *e, const char *path)
{
    static const char zeros[TCI_EXPORT_ALIGN];
    uint64_t head[TCI_EXPORT_HEAD / 8] = {0};
    tci_export_weights_head(e, head);
    tci_os_fresh_begin_users(&e->to, path);
    tci_os_fresh_write(&e->to, head, sizeof(head));
    for (int i = 0; i < e->request->n_captured; i++) {
        if (tci_export_param_of(e, i) < 0) {
            int64_t n = tci_export_held(e, i);
            tci_os_fresh_write(&e->to, tci_export_data(e, i), (size_t)n);
            tci_os_fresh_write(&e->to, zeros, (size_t)(tci_export_round(n) - n));
        }
    }
    return tci_os_fresh_end(&e->to, true, true);
}

static int tci_export_write_header(tci_export *e, const char *path)
{
    tci_os_fresh_begin_users(&e->to, path);
    tci_os_fresh_write(&e->to, e->header.text, e->header.n);
    return tci_os_fresh_end(&e->to, true, true);
}

static int tci_export_write_code(tci_export *e)
{
    tci_os_fresh_begin_users(&e->to, e->path);
    tci_os_fresh_write(&e->to, e->head.text, e->head.n);
    for (int i = 0; i < e->request->n_captured && !e->how.weights; i++) {
        if (tci_export_param_of(e, i) < 0) {
            tci_export_array(e, i);
        }
    }
    tci_os_fresh_write(&e->to, e->tail.text, e->tail.n);
    return tci_os_fresh_end(&e->to, true, true);
}

/* ---- one export ---- */

/* True if the launches and repetitions of the code let a run write a new value over the old one: as
 * tc_run decides, but that a run which faults must not have written any. */
static bool tci_export_over_old(const tci_export *e, int param)
{
    const tci_code *c = e->code;
    int captured = e->params[param].captured;
    for (int i = 0; i < c->n_kernels; i++) {
        if (c->kernels[i].faults) {
            return false;
        }
    }
    for (int i = 0; i < e->request->n_captured; i++) { /* another view of the same parameter */
        if (i != captured && tci_export_param_of(e, i) == param) {
            return false;
        }
    }
    for (int i = 0; i < c->n_aliases; i++) {
        if (c->aliases[i].output == c->n_user_outputs + param &&
            c->aliases[i].input == c->n_user_inputs + captured) {
            return true;
        }
    }
    return false;
}

/* Slots for temporaries of symbolic sizes: the first whose others are dead. Those of the init list,
 * whose sizes are known, have places of their own. Returns where these end. */
static int64_t tci_export_place(tci_export *e, tci_scratch *s)
{
    const tci_code *c = e->code;
    int64_t end = e->arena_at;
    e->slots = TCI_NEW_ARRAY(s, int32_t, c->n_buffers + 1);
    e->init_at = TCI_NEW_ARRAY(s, int64_t, c->n_buffers + 1);
    e->n_slots = 0;
    for (int i = 0; i < c->n_buffers; i++) {
        const tci_code_buffer *b = &c->buffers[i];
        e->slots[i] = -1;
        if (b->kind != TCI_BUF_TEMP || b->last < 0) {
            continue;
        }
        if (b->last < c->n_init) {
            e->init_at[i] = end;
            end += tci_export_round(tci_dim_known(b->bytes));
            continue;
        }
        bool free = false;
        for (int slot = 0; slot < e->n_slots && !free; slot++) {
            free = true;
            for (int k = 0; k < i; k++) {
                const tci_code_buffer *other = &c->buffers[k];
                free = free &&
                       (e->slots[k] != slot || other->last < b->first || b->last < other->first);
            }
            e->slots[i] = free ? slot : -1;
        }
        e->slots[i] = free ? e->slots[i] : e->n_slots++;
    }
    return end;
}

/* Turns to a level: where the parts of its workspace are. */
static void tci_export_turn(tci_export *e, tci_scratch *s, int i)
{
    e->level = &tci_export_levels[i];
    e->code = i ? e->forms[i - 1].code : e->job.code;
    const tci_code *c = e->code;
    int64_t work = 0, at = tci_export_round(c->kept_bytes);
    for (int p = 0; p < e->n_params; p++) {
        e->params[p].captured = e->request->effects[p];
        e->params[p].bytes = tci_dim_known(c->outputs[c->n_user_outputs + p].bytes);
    }
    for (int p = 0; p < e->n_params; p++) {
        bool over_old = tci_export_over_old(e, p);
        e->params[p].staged_at = over_old ? -1 : at;
        at += over_old ? 0 : tci_export_round(e->params[p].bytes);
    }
    e->arena_at = at;
    if (tci_export_is_symbolic(e)) {
        e->least = tci_export_place(e, s);
        return;
    }
    e->work_at = at + tci_export_round(c->arena_bytes);
    for (int k = 0; k < c->n_kernels; k++) {
        work = TCI_MAX(work, tci_dim_known(c->kernels[k].work_bytes));
    }
    at = e->work_at + work;
    e->bytes = TCI_MAX(e->bytes, at + (at ? TCI_EXPORT_ALIGN - 1 : 0));
}

/* All texts. The values are held. */
static tc_status tci_export_print(tci_batch *b, tci_batch_job *job)
{
    tci_export *e = (tci_export *)(void *)job;
    int n = tci_export_n_levels(e);
    e->head.s = e->tail.s = e->header.s = &b->s;
    for (int i = n - 1; i >= 0; i--) {
        tci_export_turn(e, &b->s, i);
    }
    if (e->how.weights) {
        tci_export_measure_weights(e);
    }
    tci_export_comment(e, &e->head, tci_scratch_printf(&b->s, "%s.c", e->name));
    tci_export_declarations(e, &e->head);
    tci_export_pragmas(&e->head);
    tci_export_level_limit(e, &e->head);
    if (tci_export_is_symbolic(e)) {
        tci_export_size_helpers(e, &e->head);
    }
    for (int i = 0; i < n; i++) {
        const char *tag = i ? tci_export_levels[i].tag : n > 1 ? "plain" : "";
        tci_export_turn(e, &b->s, i);
        tci_export_level_code(e, &e->head, i);
        tci_str_printf(&e->tail, i ? "\n#if TC_LEVELS >= %d" : "", i);
        tci_export_level_functions(e, &e->tail, tag);
        tci_str_add(&e->tail, i ? "#endif\n" : "");
    }
    tci_export_turn(e, &b->s, 0);
    if (n > 1) {
        tci_export_chosen(e, &e->tail);
    }
    if (tci_export_is_symbolic(e)) {
        tci_export_workspace(e, &e->tail);
    }
    if (e->how.weights) {
        tci_export_check(e, &e->tail);
    }
    tci_str_add(&e->tail, "\n#if defined(__clang__)\n#pragma clang diagnostic pop\n"
                          "#elif defined(__GNUC__)\n#pragma GCC pop_options\n"
                          "#pragma GCC diagnostic pop\n#endif\n");
    tci_export_comment(e, &e->header, tci_scratch_printf(&b->s, "%s.h", e->name));
    tci_str_printf(&e->header, "#ifndef TC_EXPORT_%s_H\n#define TC_EXPORT_%s_H\n\n", e->name,
                   e->name);
    tci_export_declarations(e, &e->header);
    tci_str_add(&e->header, "#endif\n");
    return TC_OK;
}

/* From holding the values to dropping them nothing escapes. */
static tc_status tci_export_write(tci_batch *b, tci_export *e)
{
    const char *weights = tci_export_sibling(e, &b->s, ".bin");
    const char *header = tci_export_sibling(e, &b->s, ".h"), *path = e->path;
    tc_status status = tci_export_hold(e, &b->s);
    if (status) {
        return tci_batch_fail(b->f, e->job.about, NULL, status, "%s", tc_status_text(status));
    }
    status = tci_batch_armed(b, &e->job, tci_export_print);
    int code = 0;
    if (!status && e->how.weights) {
        path = weights;
        code = tci_export_write_weights(e, path);
    }
    if (!status && !code && e->how.header) {
        path = header;
        code = tci_export_write_header(e, path);
    }
    if (!status && !code) {
        path = e->path;
        code = tci_export_write_code(e);
    }
    if (e->request->n_captured) {
        tci_param_drop(e->held);
    }
    if (code) {
        return tci_batch_fail(b->f, e->job.about, NULL, code == ENOMEM ? TC_ERR_MEMORY : TC_ERR_IO,
                              "'%.300s': it cannot be written: %s", path, tci_os_fresh_why(code));
    }
    return status;
}

/* True if the kernels' text has a function, type or macro with the file's name. All begin with tc_
 * or TC_. */
static bool tci_export_meets(const tci_export *e)
{
    size_t n = strncmp(e->name, "tc_", 3) && strncmp(e->name, "TC_", 3) ? 0 : strlen(e->name);
    for (int i = 0; i < tci_export_n_levels(e) && n; i++) {
        const char *tag = tci_export_levels[i].tag, *name = e->name + 3;
        bool tagged = !strncmp(name, tag, strlen(tag)) && (!*tag || name[strlen(tag)] == '_');
        name += tagged && *tag ? strlen(tag) + 1 : 0;
        const char *text = i ? e->forms[i - 1].code->source : e->job.code->source;
        size_t k = strlen(name);
        for (const char *at = strstr(text, name); tagged && at; at = strstr(at + 1, name)) {
            if (at - text >= 3 && !strncmp(at - 3, e->name, 3) &&
                (at - text == 3 || !tci_export_is_word(at[-4], false)) &&
                !tci_export_is_word(at[k], false)) {
                return true;
            }
        }
    }
    return false;
}

/* Where the user made the first node of this op; else where the job's first output was made. */
static const tc_site *tci_export_site(const tci_export *e, int op)
{
    for (int i = 0; i < e->request->n_nodes; i++) {
        if (e->request->nodes[i]->op == op) {
            return &e->request->nodes[i]->site;
        }
    }
    return &e->job.site;
}

/* A tci_batch_body: the job has its code. */
static tc_status tci_export_take(tci_batch *b, tci_batch_job *job)
{
    tci_export *e = (tci_export *)(void *)job;
    e->request = job->request;
    if (job->code->calls) {
        bool joins = e->request->n_collectives > 0;
        const tc_site *site = tci_export_site(e, joins ? TCI_OP_COLLECTIVE : TCI_OP_CUSTOM);
        return tci_batch_fail(b->f, job->about, site, TC_ERR_UNSUPPORTED,
                              "given %s of this process, expected a program that can be written "
                              "as C",
                              joins ? "a collective, which has a communicator"
                                    : "a custom op, which is a function");
    }
    if (tci_export_meets(e)) {
        return tci_batch_fail(b->f, job->about, &job->site, TC_ERR_ARGUMENT,
                              "given the path '%.200s', expected a name that the code in it does "
                              "not have itself",
                              e->path);
    }
    e->n_params = e->request->n_effects;
    e->params = TCI_NEW_ARRAY(&b->s, tci_export_param, e->n_params);
    return tci_export_write(b, e);
}

/* "some/where/net.c" gives "net". False: that is no name in C. */
static bool tci_export_name(tci_export *e)
{
    const char *slash = e->path ? strrchr(e->path, '/') : NULL;
    const char *name = slash ? slash + 1 : e->path;
    size_t n = name ? strlen(name) : 0;
    bool good = n > 2 && n - 2 < sizeof(e->name) && !strcmp(name + n - 2, ".c");
    for (size_t i = 0; good && i < n - 2; i++) {
        good = tci_export_is_word(name[i], i == 0);
        e->name[i] = name[i];
    }
    return good && !tci_export_is_taken(e->name);
}

TC_API tc_status tc_export_c_as_at(tc_tensors inputs, tc_tensors outputs, const tc_options *options,
                                   const tc_export *how, const char *path, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_export_c", here);
    tci_export e = {.job = {.inputs = inputs, .outputs = outputs}, .path = path};
    e.how = how ? *how : e.how;
    e.to.fd = -1;
    e.job.forms = e.forms;
    e.job.n_forms = TCI_COUNT(e.forms);
    for (int i = 0; i < e.job.n_forms; i++) {
        e.forms[i].vector_bits = tci_export_levels[i + 1].vector_bits;
    }
    tc_status status = TC_ERR_ARGUMENT;
    if (tci_export_name(&e)) {
        status = tci_batch_export(&f, &e.job, options, tci_export_take);
    } else if (outputs.n > 0 && outputs.items && tci_ctx_of(outputs.items[0].ctx)) {
        tci_batch_fail(&f, outputs.items[0], NULL, status,
                       "given the path '%.200s', expected one "
                       "that ends in \".c\" after a name for a function: letters, digits and _, "
                       "at most %d, neither _ nor a digit first, and no word of C or C++, nor a "
                       "name of the C library or of a builtin",
                       path ? path : "(NULL)", TCI_EXPORT_NAME - 1);
    }
    tci_frame_leave(&f);
    return status;
}

TC_API tc_status tc_export_c_at(tc_tensors inputs, tc_tensors outputs, const tc_options *options,
                                const char *path, tc_site here)
{
    return tc_export_c_as_at(inputs, outputs, options, NULL, path, here);
}
