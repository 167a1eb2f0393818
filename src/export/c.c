/* export/c.c - tc_export_c: a program as one file of C that needs nothing else.
 *
 * In: tensors, as tc_compile_fn takes them. Out: the file, complete or not at all.
 *
 * The one idea: a program is a list of launches (compile/code.h), and the C dialect prints its
 * kernels as ever. What else a run does is spelled out: captured memory as arrays, each launch as a
 * call with its operands, the rounds of a repetition as a loop whose number moves them. The init
 * list is a function of its own.
 *
 * The workspace holds the arena, then what the init list keeps, then the work memory of a kernel;
 * `w` is its first address that 64 divides. */
#include <stdarg.h>
#include <string.h>

#include "../api/batch.h"
#include "../base/posix.h"

enum { TCI_EXPORT_ALIGN = 64, TCI_EXPORT_NAME = 64, TCI_EXPORT_INDENT = 4 };

typedef struct tci_export {
    tci_batch_job job;              /* the first member: it leads back here */
    const char *path;
    char name[TCI_EXPORT_NAME];     /* of the function, and so of all that others see */
    const tci_code *code;
    const tci_request *request;
    int64_t kept_at, work_at, bytes; /* of the workspace */
    tci_param_held *held;           /* of each captured leaf */
    tci_str head, tail;             /* what comes before the arrays, and after; scratch */
    tci_os_fresh to;
} tci_export;

/* ---- operands ---- */

static const tci_code_buffer *tci_export_buffer(const tci_export *e, int t, int o)
{
    return &e->code->buffers[e->code->steps[t].operands[o]];
}

/* Operand o of launch t, as the address of chars; within its repetitions. */
static void tci_export_operand(const tci_export *e, tci_str *out, int t, int o)
{
    const tci_code_buffer *b = tci_export_buffer(e, t, o);
    int64_t offset = tci_dim_known(e->code->steps[t].offsets[o]);
    switch ((tci_buffer_kind)b->kind) {
    case TCI_BUF_INPUT:
        if (b->index < e->code->n_user_inputs) {
            tci_str_printf(out, "(char *)in%d", (int)b->index);
        } else {
            tci_str_printf(out, "(char *)%s_data%d", e->name,
                           (int)b->index - e->code->n_user_inputs);
        }
        break;
    case TCI_BUF_OUTPUT:
        tci_str_printf(out, "(char *)out%d", (int)b->index);
        break;
    case TCI_BUF_TEMP:
        tci_str_add(out, "w");
        offset += b->offset;
        break;
    case TCI_BUF_KEPT:
        tci_str_add(out, "w");
        offset += e->kept_at + b->offset;
        break;
    }
    if (offset) {
        tci_str_printf(out, " + %lld", (long long)offset);
    }
    for (int i = 0; i < e->code->n_repeats; i++) {
        const tci_code_repeat *r = &e->code->repeats[i];
        for (int m = 0; m < r->n_moves; m++) {
            const tci_move *x = &r->moves[m];
            if (x->step == t && x->operand == o) {
                tci_str_printf(out, " + r%d%s * (%lldll)", i, x->back ? " % 2" : "",
                               (long long)x->by);
            }
        }
    }
}

/* ---- launches ---- */

static void tci_export_line(tci_str *out, int depth)
{
    tci_str_printf(out, "%*s", TCI_EXPORT_INDENT * depth, "");
}

static void tci_export_literals(const tci_export *e, tci_str *out, int t)
{
    const tci_code_step *step = &e->code->steps[t];
    int n = e->code->kernels[step->kernel].n_literals;
    tci_str_add(out, n ? "(const long long[]){" : "0");
    for (int i = 0; i < n; i++) {
        int64_t word = e->request->literals[step->literals[i]]->value.i;
        tci_str_printf(out, "%s(long long)%lluull", i ? ", " : "", (unsigned long long)word);
    }
    tci_str_add(out, n ? "}" : "");
}

static void tci_export_launches(const tci_export *e, tci_str *out, int begin, int end, int depth)
{
    for (int t = begin; t < end; t++) {
        const tci_code_kernel *k = &e->code->kernels[e->code->steps[t].kernel];
        bool works = tci_dim_known(k->work_bytes) > 0;
        tci_export_line(out, depth);
        tci_str_printf(out, "%s((void *[]){", k->symbol);
        for (int o = 0; o < k->n_operands; o++) {
            tci_str_add(out, o ? ", " : "");
            tci_export_operand(e, out, t, o);
        }
        if (works) {
            tci_str_printf(out, ", w + %lld", (long long)e->work_at);
        }
        tci_str_add(out, "}, ");
        tci_export_literals(e, out, t);
        tci_str_printf(out, ", &fault, 0, %lld);\n", (long long)tci_dim_known(k->n_tasks));
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
        tci_str_printf(out, "for (long long i = 0; i < r%d %% 2 * %lldll; i++) {\n", i,
                       (long long)turn->bytes);
        tci_export_line(out, depth + 1);
        tci_str_add(out, "char *row = ");
        tci_export_operand(e, out, turn->step, turn->operand);
        tci_str_printf(out, ";\n%*srow[i] = row[i + %lld];\n", TCI_EXPORT_INDENT * (depth + 1), "",
                       (long long)turn->bytes);
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
    tci_str_printf(out, "for (r%d = 0; r%d < %lldll", i, i, (long long)r->rounds);
    if (r->stops >= 0) {
        const tci_turn *stop = &r->turns[r->stops];
        tci_str_add(out, " && *(");
        tci_export_operand(e, out, stop->step, stop->operand);
        tci_str_printf(out, " + r%d %% 2 * %lldll)", i, (long long)stop->bytes);
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

static void tci_export_signature(const tci_export *e, tci_str *out)
{
    const tci_code *c = e->code;
    tci_str_printf(out, "int %s(", e->name);
    for (int i = 0; i < c->n_user_inputs; i++) {
        tci_str_printf(out, "const %s *in%d, ",
                       tci_dtype_get((tc_dtype)c->inputs[i].dtype)->ctype, i);
    }
    for (int i = 0; i < c->n_user_outputs; i++) {
        tci_str_printf(out, "%s *out%d, ", tci_dtype_get((tc_dtype)c->outputs[i].dtype)->ctype, i);
    }
    tci_str_add(out, "void *workspace)");
}

static void tci_export_functions(tci_export *e)
{
    const tci_code *c = e->code;
    tci_str *out = &e->tail;
    const char *begin = "\n{\n    char *w = (char *)workspace + (size_t)-(size_t)workspace % 64;\n"
                        "    long long fault = 0;\n    (void)w;\n";
    tci_str_printf(out, "\nvoid %s_prepare(void *workspace)%s", e->name, begin);
    tci_export_launches(e, out, 0, c->n_init, 1);
    tci_str_add(out, "    (void)fault;\n}\n\n");
    tci_export_signature(e, out);
    tci_str_add(out, begin);
    tci_export_rounds(e, out, c->n_init, c->n_steps, 0, c->n_repeats, 1);
    tci_str_add(out, "    return fault != 0;\n}\n\n#if defined(__clang__)\n"
                     "#pragma clang diagnostic pop\n#elif defined(__GNUC__)\n"
                     "#pragma GCC pop_options\n#pragma GCC diagnostic pop\n#endif\n");
}

/* ---- the head ---- */

static bool tci_export_is_word(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && c >= '0' && c <= '9');
}

/* "in0: x, f32 [2, 3]"; names that are no words of C are left out. */
static void tci_export_port(tci_str *out, const char *what, int i, const char *name,
                            const tci_code_port *port)
{
    bool is_word = name && *name;
    for (const char *at = name; is_word && *at; at++) {
        is_word = tci_export_is_word(*at, false) || *at == '.';
    }
    tci_str_printf(out, " *   %s%d: %s%s%s [", what, i, is_word ? name : "", is_word ? ", " : "",
                   tci_dtype_get((tc_dtype)port->dtype)->name);
    for (int d = 0; d < port->rank; d++) {
        tci_str_printf(out, d ? ", %lld" : "%lld", (long long)tci_dim_known(port->shape[d]));
    }
    tci_str_add(out, "]\n");
}

static void tci_export_head(tci_export *e)
{
    const tci_code *c = e->code;
    tci_str *out = &e->head;
    tci_str_printf(out, "/* %s.c - computes, made by tc.\n *\n *   ", e->name);
    tci_export_signature(e, out);
    tci_str_printf(out, ";\n *   void %s_prepare(void *workspace); once, before the first run in "
                        "that workspace\n *\n", e->name);
    for (int i = 0; i < c->n_user_inputs; i++) {
        tci_export_port(out, "in", i, e->request->inputs[i]->name, &c->inputs[i]);
    }
    for (int i = 0; i < c->n_user_outputs; i++) {
        tci_export_port(out, "out", i, NULL, &c->outputs[i]);
    }
    tci_str_printf(out, " *   workspace: %lld bytes\n *\n * Returns 0, or 1 where an index was "
                        "outside its axis. Arrays overlap nowhere. */\n#include <stddef.h>\n\n"
                        "#define %s_workspace %lldll\n\n",
                   (long long)e->bytes, e->name, (long long)e->bytes);
    tci_export_signature(e, out);
    tci_str_printf(out, ";\nvoid %s_prepare(void *workspace);\n\n", e->name);
    tci_str_add(out,
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
                "#pragma GCC push_options\n"
                "#pragma GCC optimize(\"fp-contract=off,wrapv,no-strict-aliasing\")\n#endif\n\n");
    tci_str_add(out, c->source);
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
    const tci_node *leaf = e->request->captured[i];
    const char *data = tci_run_at(e->held[i].data, tci_program_lowest(leaf));
    int width = tci_dtype_get((tc_dtype)port->dtype)->bytes;
    int64_t n = tci_dim_known(port->bytes) / width;
    tci_export_text(e, "\n#if defined(__GNUC__)\n__attribute__((aligned(64)))\n#endif\n"
                       "static const unsigned %s %s_data%d[%lld] = {", tci_export_word(width),
                    e->name, i, (long long)TCI_MAX(n, (int64_t)1));
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

/* ---- the file ---- */

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

/* From holding the values to dropping them nothing escapes. */
static tc_status tci_export_write(tci_batch *b, tci_export *e)
{
    tc_status status = tci_export_hold(e, &b->s);
    if (status) {
        return tci_batch_fail(b->f, e->job.about, NULL, status, "%s", tc_status_text(status));
    }
    tci_os_fresh_begin(&e->to, AT_FDCWD, e->path, 0666);
    tci_os_fresh_write(&e->to, e->head.text, e->head.n);
    for (int i = 0; i < e->request->n_captured; i++) {
        tci_export_array(e, i);
    }
    tci_os_fresh_write(&e->to, e->tail.text, e->tail.n);
    int code = tci_os_fresh_end(&e->to, true, false);
    if (e->request->n_captured) {
        tci_param_drop(e->held);
    }
    if (code) {
        return tci_batch_fail(b->f, e->job.about, NULL, code == ENOMEM ? TC_ERR_MEMORY : TC_ERR_IO,
                              "'%.300s': it cannot be written: %s", e->path, strerror(code));
    }
    return TC_OK;
}

static int64_t tci_export_round(int64_t bytes)
{
    return (bytes + TCI_EXPORT_ALIGN - 1) / TCI_EXPORT_ALIGN * TCI_EXPORT_ALIGN;
}

static void tci_export_measure(tci_export *e)
{
    const tci_code *c = e->code;
    int64_t work = 0;
    for (int i = 0; i < c->n_kernels; i++) {
        work = TCI_MAX(work, tci_dim_known(c->kernels[i].work_bytes));
    }
    e->kept_at = tci_export_round(c->arena_bytes);
    e->work_at = e->kept_at + tci_export_round(c->kept_bytes);
    e->bytes = e->work_at + work;
    e->bytes += e->bytes ? TCI_EXPORT_ALIGN - 1 : 0;
}

/* Has the kernels' text a function, type or macro of the file's name? All begin with tc_ or TC_. */
static bool tci_export_meets(const tci_export *e)
{
    const char *text = e->code->source;
    size_t n = strncmp(e->name, "tc_", 3) && strncmp(e->name, "TC_", 3) ? 0 : strlen(e->name);
    for (const char *at = strstr(text, e->name); n && at; at = strstr(at + 1, e->name)) {
        if ((at == text || !tci_export_is_word(at[-1], false)) &&
            !tci_export_is_word(at[n], false)) {
            return true;
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
    e->code = job->code;
    e->request = job->request;
    const char *why = e->code->calls ? "a custom op, which is a function of this process" :
                      e->request->n_effects ? "an update of a parameter" : NULL;
    if (why) {
        const int op = e->code->calls ? TCI_OP_CUSTOM : TCI_OP_ASSIGN;
        return tci_batch_fail(b->f, job->about, tci_export_site(e, op), TC_ERR_UNSUPPORTED,
                              "given %s, expected a program that can be written as C", why);
    }
    if (e->code->n_symbols) {
        return tci_batch_fail(b->f, job->about, &job->site, TC_ERR_SHAPE,
                              "given symbolic sizes, expected sizes that are known");
    }
    if (tci_export_meets(e)) {
        return tci_batch_fail(b->f, job->about, &job->site, TC_ERR_ARGUMENT,
                              "given the path '%.200s', expected a name that the code in it does "
                              "not have itself", e->path);
    }
    e->head.s = e->tail.s = &b->s;
    tci_export_measure(e);
    tci_export_head(e);
    tci_export_functions(e);
    return tci_export_write(b, e);
}

/* Words that no function of a program may be named by: those of the language, and what the C
 * library has under them, of which a second one would take the place. */
static const char tci_export_taken[] =
    " alignas alignof asm auto bool break case char complex const constexpr continue default "
    "do double else enum extern false float for fortran goto if imaginary inline int linux "
    "long main nullptr register restrict return short signed sizeof static static_assert "
    "struct switch thread_local true typedef typeof typeof_unqual union unix unsigned void "
    "volatile while NULL max_align_t offsetof ptrdiff_t size_t wchar_t abort abs accept "
    "access atexit atof atoi atol atoll bind bsearch calloc chdir clock close connect dup "
    "environ errno execv exit fclose feof ferror fflush fgetc fgets fopen fork fprintf fputc "
    "fputs fread free fscanf fseek ftell fwrite getc getchar getenv gets index isalnum "
    "isalpha iscntrl isdigit isgraph islower isprint ispunct isspace isupper isxdigit kill "
    "labs link listen llabs localeconv longjmp lseek malloc memchr memcmp memcpy memmove "
    "memset mktime open perror pipe printf putc putchar puts qsort raise rand read realloc "
    "recv remove rename rewind rindex scanf select send setjmp setlocale signal sleep "
    "snprintf socket sprintf srand sscanf stat strcat strchr strcmp strcpy strcspn strerror "
    "strlen strncat strncmp strncpy strpbrk strrchr strspn strstr strtod strtok strtol "
    "strtoll strtoul strxfrm system time tmpfile tolower toupper ungetc unlink vfprintf "
    "vprintf wait write ";
/* ... also with an f or l behind. */
static const char tci_export_math[] =
    " acos acosh asin asinh atan atan2 atanh cabs cbrt ceil copysign cos cosh erf erfc exp "
    "exp10 exp2 expm1 fabs fdim floor fma fmax fmin fmod frexp gamma hypot ilogb j0 j1 jn "
    "ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan nearbyint "
    "nextafter nexttoward pow remainder remquo rint round scalb scalbln scalbn significand "
    "sin sincos sinh sqrt tan tanh tgamma trunc y0 y1 yn ";

static bool tci_export_lists(const char *words, const char *name, size_t n)
{
    char word[TCI_EXPORT_NAME + 2];
    snprintf(word, sizeof(word), " %.*s ", (int)n, name);
    return strstr(words, word) != NULL;
}

static bool tci_export_is_taken(const char *name)
{
    size_t n = strlen(name);
    bool suffix = n && (name[n - 1] == 'f' || name[n - 1] == 'l');
    return name[0] == '_' || tci_export_lists(tci_export_taken, name, n) ||
           tci_export_lists(tci_export_math, name, n) ||
           (suffix && tci_export_lists(tci_export_math, name, n - 1));
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

TC_API tc_status tc_export_c_at(tc_tensors inputs, tc_tensors outputs, const tc_options *options,
                                const char *path, tc_site here)
{
    tci_frame f = tci_frame_begin("tc_export_c", here);
    tci_export e = {.job = {.inputs = inputs, .outputs = outputs}, .path = path};
    e.to.fd = -1;
    tc_status status = TC_ERR_ARGUMENT;
    if (tci_export_name(&e)) {
        status = tci_batch_export(&f, &e.job, options, tci_export_take);
    } else if (outputs.n > 0 && outputs.items && tci_ctx_of(outputs.items[0].ctx)) {
        tci_batch_fail(&f, outputs.items[0], NULL, status, "given the path '%.200s', expected one "
                       "that ends in \".c\" behind a name of C, which is no word of the language "
                       "or its library, nor begins with _", path ? path : "(NULL)");
    }
    tci_frame_leave(&f);
    return status;
}
