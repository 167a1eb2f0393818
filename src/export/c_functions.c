/* export/c_functions.c - prints the functions of a program that is exported as C: for each level of
 * x86-64 the kernels, and the function that calls them with its workspace; and the choice of a
 * level.
 *
 * In: compiled code, the C dialect's text of its kernels. Out: C source in the export's strings. */
#include <string.h>

#include "c_export.h"

TCI_FN bool tci_export_is_word(char c, bool first)
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

TCI_FN int64_t tci_export_round(int64_t bytes)
{
    return (bytes + TCI_EXPORT_ALIGN - 1) / TCI_EXPORT_ALIGN * TCI_EXPORT_ALIGN;
}

/* Bytes of captured leaf i. */
TCI_FN int64_t tci_export_held(const tci_export *e, int i)
{
    return tci_dim_known(e->code->inputs[e->code->n_user_inputs + i].bytes);
}

static const tci_code_buffer *tci_export_buffer(const tci_export *e, int t, int o)
{
    return &e->code->buffers[e->code->steps[t].operands[o]];
}

/* The parameter that the captured leaf is, or a view of; -1: none that is assigned. */
TCI_FN int tci_export_param_of(const tci_export *e, int captured)
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

TCI_FN bool tci_export_is_symbolic(const tci_export *e)
{
    return e->code->n_symbols > 0;
}

TCI_FN void tci_export_dim(const tci_export *e, tci_str *out, tci_dim d)
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

/* Operand o of launch t, as the address of chars; within its loops. */
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

/* Carries of a loop with early exit, after an odd number of rounds: from the second row to the
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

/* Launches [begin, end), with the loops from `first` to before `last` among them. */
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
TCI_FN void tci_export_sizes(const tci_export *e, tci_str *out, bool typed, const char *after)
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
TCI_FN void tci_export_signature(const tci_export *e, tci_str *out, const char *tag)
{
    tci_str_printf(out, "%sint %s%s%s(", *tag ? "static " : "", e->name, *tag ? "_" : "", tag);
    tci_export_arguments(e, out, true);
    tci_str_add(out, ")");
}

TCI_FN void tci_export_prepare_signature(const tci_export *e, tci_str *out, const char *tag)
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

/* Of symbolic sizes: variables a0, a1, ... for where slots begin, and a_work after the last. */
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
TCI_FN void tci_export_level_functions(const tci_export *e, tci_str *out, const char *tag)
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

TCI_FN int tci_export_n_levels(const tci_export *e)
{
    return 1 + e->job.n_forms;
}

/* Code of a level, between what makes compilers build its functions for its processors. */
TCI_FN void tci_export_level_code(const tci_export *e, tci_str *out, int i)
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
TCI_FN void tci_export_level_limit(const tci_export *e, tci_str *out)
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

TCI_FN void tci_export_chosen(const tci_export *e, tci_str *out)
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
TCI_FN void tci_export_size_helpers(const tci_export *e, tci_str *out)
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
TCI_FN void tci_export_workspace(const tci_export *e, tci_str *out)
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
