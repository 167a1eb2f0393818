/* export/c.c - tc_export_c: exports a program as one self-contained C file.
 *
 * In: tensors, as tc_compile_fn takes them. Out: the file and, on request, a header and a file of
 * weights, each written atomically.
 *
 * Design: a program is a list of launches (compile/compiled_code.h), and the C dialect prints its
 * kernels as usual. The rest of a run is written out: captured memory as arrays, each launch as a
 * call with its operands, the steps of a loop body as a C loop whose index offsets the operand
 * pointers. The init section is a function of its own.
 *
 * The program is compiled once for each level of x86-64 (tci_export_levels): scalar code first,
 * then code for AVX2 and for AVX-512, selected by target pragmas. The functions of a level have a
 * tag in their names (tc_add becomes tc_avx2_add). The public function chooses the level once per
 * process by the features of the processor. All levels compute the same bits.
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

#include "c_export.h"

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

/* The bytes of captured leaf i, while they are held. */
static const char *tci_export_data(const tci_export *e, int i)
{
    return tci_run_at(e->held[i].data, tci_program_lowest(e->request->captured[i]));
}

/* The use of an assigned parameter, and its value at the export where all elements are equal. */
static const char *tci_export_param_use(const tci_export *e, tci_scratch *s, int param)
{
    int captured = e->params[param].captured;
    tc_dtype t = (tc_dtype)e->code->inputs[e->code->n_user_inputs + captured].dtype;
    const char *data = tci_export_data(e, captured);
    int width = tci_dtype_get(t)->bytes;
    int64_t n = tci_export_held(e, captured) / width;
    bool equal = n > 0;
    for (int64_t i = 1; i < n && equal; i++) {
        equal = !memcmp(data + i * width, data, (size_t)width);
    }
    tci_str text = {.s = s};
    tci_str_add(&text, ", read and given its next value");
    if (equal) {
        tci_value v = tci_value_load(t, data);
        tci_str_add(&text, n > 1 ? "; all " : "; ");
        if (tci_dtype_is_float(t)) {
            tci_str_printf(&text, "%.17g", v.f);
        } else {
            tci_str_printf(&text, tci_dtype_is_signed(t) ? "%lld" : "%llu", (long long)v.i);
        }
        tci_str_add(&text, " at the export");
    }
    return tci_str_text(&text);
}

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
                        &c->outputs[c->n_user_outputs + i], tci_export_param_use(e, out->s, i));
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
    tci_str_add(out,
                "#if defined(__cplusplus) && __cplusplus < 201703L && \\\n"
                "    defined(__STRICT_ANSI__) && !defined(__clang__)\n"
                "#error \"hexadecimal floats: expected C99, C++17 or -std=gnu++11\"\n#endif\n\n"
                "/* Values depend on the compiler taking floats as they are written. */\n"
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

/* True if the launches and loops of the code let a run write a new value over the old one: as
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

/* Slots for temporaries of symbolic sizes: the first whose others are dead. Temporaries of the
 * init section, whose sizes are known, have places of their own. Returns where these end. */
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

/* From holding the values to dropping them nothing longjmps. */
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
