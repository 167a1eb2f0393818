/* debug/kernel_check.c - options.check: finds the first kernel whose result differs from the
 * interpreter's, that produces NaN from finite inputs, or that crashes.
 *
 * In: the launches of a run. Out: the results of an unchecked run, or TC_ERR_CHECK with the kernel,
 * its line and region, the element and both values; and a file with a small program that fails in
 * the same way (debug/minify.c).
 *
 * Design: executors agree in every bit, so the first kernel whose output differs from the
 * interpreter's on the same operands is the faulty one. The operands are copied before the launch,
 * and the interpreter works on the copies. A kernel may crash, so a child process runs it first. */
#include "kernel_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/system_headers.h"
#include "source_location.h"
#include "string_intern.h"
#include "summary.h"

#ifndef TC_NO_DEBUG

#include <sys/wait.h>

TCI_FN int tci_checker_flags(const char *text, const char **odd)
{
    static const struct {
        const char *word;
        int flags;
    } words[] = {{"bits", TC_CHECK_BITS},
                 {"nan", TC_CHECK_NAN},
                 {"inf", TC_CHECK_INF},
                 {"crash", TC_CHECK_CRASH},
                 {"all", TC_CHECK_ALL},
                 {"1", TC_CHECK_ALL},
                 {"0", 0}};
    int flags = 0;
    *odd = NULL;
    while (text && *text) {
        size_t n = strcspn(text, ",");
        bool known = false;
        for (int i = 0; i < TCI_COUNT(words); i++) {
            if (strlen(words[i].word) == n && !memcmp(words[i].word, text, n)) {
                flags |= words[i].flags;
                known = true;
            }
        }
        *odd = known || *odd ? *odd : text;
        text += n + (text[n] != 0);
    }
    return flags;
}

/* ---- while compiling ---- */

TCI_FN bool tci_checker_prepare(tci_code *c, tci_code_kernel *k, const tci_kernel *from, int check)
{
    struct tci_checker_info *info = tci_code_get(c, sizeof(*info));
    int64_t *bytes = tci_code_get(c, sizeof(*bytes) * (size_t)(from->n_operands + 1));
    int8_t *dtypes = tci_code_get(c, (size_t)(from->n_operands + 1));
    if (!info || !bytes || !dtypes) {
        return false;
    }
    for (int o = 0; o < from->n_operands; o++) {
        dtypes[o] = from->operands[o].dtype;
        bytes[o] = tci_dim_known(from->operands[o].n) * tci_dtype_get((tc_dtype)dtypes[o])->bytes;
    }
    for (int r = 0; r < from->n_reds; r++) {
        info->loose |= from->reds[r].order == TCI_ORDER_MATRIX;
    }
    for (int m = 0; m < from->n_members; m++) {
        for (int r = 0; r < from->members[m]->n_reds; r++) {
            info->loose |= from->members[m]->reds[r].order == TCI_ORDER_MATRIX;
        }
    }
    for (int i = 0; i < from->n_insts; i++) {
        const tci_kinst *in = &from->insts[i];
        info->infinite |= in->op == TCI_K_CONST && tci_dtype_is_float((tc_dtype)in->dtype) &&
                          !isfinite(in->value.f);
    }
    info->bytes = bytes;
    info->dtypes = dtypes;
    k->check = info;
    if (check & TC_CHECK_BITS && !k->interp && (k->fn || k->function)) {
        k->interp = tci_interp_make(from);
        info->workspace = k->interp ? tci_interp_workspace(k->interp) : 0;
        return k->interp != NULL;
    }
    return true;
}

/* ---- elements ---- */

static double tci_checker_element(const char *data, int8_t dtype, int64_t i)
{
    const int size = tci_dtype_get((tc_dtype)dtype)->bytes;
    tci_value v = tci_value_load((tc_dtype)dtype, data + i * size);
    return tci_dtype_is_float((tc_dtype)dtype) ? v.f : dtype == TC_U64 ? (double)v.u : (double)v.i;
}

/* True if an element is NaN, or infinite if that counts: eight bytes at once. The exponent of such
 * an element is all ones, so a carry out of it reaches the sign; of a NaN the mantissa is not 0, so
 * a number that fills an infinite one up to the sign has that carry too. */
static bool tci_checker_has_odd(const char *data, int64_t bytes, int8_t dtype, bool infinite)
{
    uint64_t ones = dtype == TC_F64    ? UINT64_C(0x7ff0000000000000)
                    : dtype == TC_F32  ? UINT64_C(0x7f8000007f800000)
                    : dtype == TC_BF16 ? UINT64_C(0x7f807f807f807f80)
                    : dtype == TC_F16  ? UINT64_C(0x7c007c007c007c00)
                                       : 0;
    uint64_t least = ones & ~(ones << 1), signs = (ones << 1) & ~ones;
    uint64_t units = signs >> (8 * tci_dtype_get((tc_dtype)dtype)->bytes - 1);
    uint64_t mask = infinite ? ones : ~signs, add = infinite ? least : least - units, seen = 0;
    int64_t at = 0;
    for (; at + 32 <= bytes; at += 32) {
        uint64_t words[4];
        memcpy(words, data + at, sizeof(words));
        seen |= ((words[0] & mask) + add) | ((words[1] & mask) + add) | ((words[2] & mask) + add) |
                ((words[3] & mask) + add);
    }
    for (; at < bytes; at += 8) {
        uint64_t word = 0;
        memcpy(&word, data + at, (size_t)TCI_MIN(bytes - at, (int64_t)8));
        seen |= (word & mask) + add;
    }
    return seen & signs; /* signs is 0 for a dtype without NaN */
}

/* The first such element; -1: none. */
static int64_t tci_checker_find_odd(const char *data, int64_t bytes, int8_t dtype, bool infinite)
{
    if (!tci_dtype_is_float((tc_dtype)dtype) ||
        !tci_checker_has_odd(data, bytes, dtype, infinite)) {
        return -1;
    }
    int64_t n = bytes / tci_dtype_get((tc_dtype)dtype)->bytes;
    for (int64_t i = 0; i < n; i++) {
        double x = tci_checker_element(data, dtype, i);
        if (x != x || (infinite && (x - x) != 0)) {
            return i;
        }
    }
    return -1;
}

/* The first element in which they differ: in bits, all NaN being equal, or by more than the bound
 * of sums in another order; -1: none. */
static int64_t tci_checker_compare(const char *a, const char *b, int64_t bytes, int8_t dtype,
                                   bool loose)
{
    int size = tci_dtype_get((tc_dtype)dtype)->bytes;
    bool is_float = tci_dtype_is_float((tc_dtype)dtype);
    double most = 0;
    if (!memcmp(a, b, (size_t)bytes)) {
        return -1;
    }
    for (int64_t i = 0; loose && is_float && i < bytes / size; i++) {
        double x = fabs(tci_checker_element(b, dtype, i));
        most = x > most ? x : most;
    }
    double bound = most * (size < 4 ? 0x1p-5 : 0x1p-9);
    for (int64_t i = 0; i < bytes / size; i++) {
        if (!memcmp(a + i * size, b + i * size, (size_t)size)) {
            continue;
        }
        double x = tci_checker_element(a, dtype, i), y = tci_checker_element(b, dtype, i);
        bool same = is_float && ((x != x && y != y) || (loose && fabs(x - y) <= bound));
        if (!same) {
            return i;
        }
    }
    return -1;
}

/* ---- one launch ---- */

typedef struct tci_checked {
    tc_call *c;
    int step;
    const tci_code_kernel *k;
    int n;
    void **copies; /* of operands as they are before the launch: the interpreter's. NULL: none */
    bool was_nan, was_odd; /* an operand that the launch overwrites had a NaN; or was infinite */
    char **after;          /* the outputs after it: copies of a device's, else the memory itself */
    tci_checker_found *found;
    tci_checker_launch_step launch;
} tci_checked;

static const tc_backend *tci_checker_device(const tci_checked *t)
{
    const tc_backend *device = t->c->program->code->device;
    return device && device->alloc ? device : NULL;
}

static char *tci_checker_memory(const tci_checked *t, int o)
{
    return t->c->slots[t->c->program->steps[t->step].first_slot + o];
}

/* True if the launch writes memory that it reads as operand o. */
static bool tci_checker_is_overwritten(const tci_checked *t, int o)
{
    uintptr_t begin = (uintptr_t)tci_checker_memory(t, o);
    bool meets = false;
    for (int w = 0; w < t->n; w++) {
        uintptr_t at = (uintptr_t)tci_checker_memory(t, w);
        meets = meets || (t->k->writes[w] && at < begin + (uintptr_t)t->k->check->bytes[o] &&
                          begin < at + (uintptr_t)t->k->check->bytes[w]);
    }
    return meets;
}

static void *tci_checker_copy(const tci_checked *t, int o)
{
    const tc_backend *device = tci_checker_device(t);
    size_t bytes = (size_t)t->k->check->bytes[o];
    const void *from = tci_checker_memory(t, o);
    char *copy = tci_heap_get_aligned(bytes + 64);
    if (copy && bytes && from) {
        if (!device) {
            memcpy(copy, from, bytes);
        } else if (device->download(device->user, copy, from, (int64_t)bytes)) {
            tci_heap_free_aligned(copy);
            copy = NULL;
        }
    }
    return copy;
}

/* A child runs the kernel on its copy of all memory. The signal that ends it; 0: none did. */
static int tci_checker_in_child(const tci_checked *t)
{
    const tc_program *f = t->c->program;
    const tci_run_step *step = &f->steps[t->step];
    int ended = 0;
    pid_t child = fork();
    if (child == 0) {
        int64_t fault = 0;
        static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP};
        for (int i = 0; i < TCI_COUNT(signals); i++) {
            signal(signals[i], SIG_DFL);
        }
        step->fn(t->c->slots + step->first_slot, step->literals, &fault, 0, step->n_tasks);
        raise(SIGKILL); /* it went well: this ends the child alone, without its exit handlers */
    }
    while (child > 0 && waitpid(child, &ended, 0) < 0 && errno == EINTR) {
    }
    int number = child > 0 && WIFSIGNALED(ended) ? WTERMSIG(ended) : SIGKILL;
    return number == SIGKILL ? 0 : number;
}

static void tci_checker_interpret(const tci_checked *t)
{
    const tci_run_step *step = &t->c->program->steps[t->step];
    char *workspace = tci_heap_get_aligned(t->k->check->workspace + 64);
    int64_t fault = 0;
    if (workspace) {
        tci_interp_run(t->k->interp, workspace, t->copies, step->literals, &fault, 0,
                       tci_interp_tasks(t->k->interp));
    }
    tci_heap_free_aligned(workspace);
}

/* "the result of tc_mul at net.c:40"; "output 1 of the kernel" where the op is unknown. */
static void tci_checker_result(tci_str *out, const tci_checked *t, int o)
{
    const tc_program *f = t->c->program;
    const tci_origin *of = tci_origin_of_buffer(f, f->code->steps[t->step].operands[o]);
    int output = 0;
    for (int before = 0; before < o; before++) {
        output += t->k->writes[before];
    }
    if (!of || !of->call) {
        tci_str_printf(out, "output %d of the kernel", output);
        return;
    }
    tci_str_printf(out, "the result of %s", of->call);
    if (of->file) {
        tci_str_printf(out, " at %s:%d", tci_origin_base(tci_label_text(of->file)), of->line);
    }
}

static void tci_checker_say(const tci_checked *t, int kind, int o, int64_t element,
                            const char *format, double a, double b)
{
    tci_checker_found *found = t->found;
    const tci_code *code = t->c->program->code;
    const tci_code_buffer *buffer = &code->buffers[code->steps[t->step].operands[o]];
    tci_str result = {0}, shape = {0};
    found->kind = kind;
    found->step = t->step;
    found->element = element;
    tci_checker_result(&result, t, o);
    tci_summary_shape(&shape, buffer->dtype, buffer->rank, buffer->shape);
    int n = snprintf(found->what, sizeof(found->what), "element %lld of %.160s (%.80s) is ",
                     (long long)element, tci_str_text(&result), tci_str_text(&shape));
    tci_str_free(&result);
    tci_str_free(&shape);
    a = a != a ? fabs(a) : a; /* "nan", whatever its sign is */
    b = b != b ? fabs(b) : b;
    snprintf(found->what + n, sizeof(found->what) - (size_t)n, format, a, b);
}

/* An operand that the launch overwrites is looked at before it. */
static tc_status tci_checker_look(tci_checked *t, int o)
{
    char *data = tci_checker_device(t) ? tci_checker_copy(t, o) : tci_checker_memory(t, o);
    int64_t bytes = t->k->check->bytes[o];
    if (!data && bytes) {
        return TC_ERR_MEMORY;
    }
    t->was_odd |= tci_checker_find_odd(data, bytes, t->k->check->dtypes[o], true) >= 0;
    t->was_nan |= tci_checker_find_odd(data, bytes, t->k->check->dtypes[o], false) >= 0;
    tci_heap_free_aligned(tci_checker_device(t) ? data : NULL);
    return TC_OK;
}

/* True if an operand that was read had what is not wanted in an output, or a number of the program
 * is. An operand without a copy that is not overwritten is as it was before the launch. */
static bool tci_checker_had_odd(const tci_checked *t, bool infinite, tc_status *status)
{
    const tci_run_step *step = &t->c->program->steps[t->step];
    const tci_code *code = t->c->program->code;
    if (infinite ? t->was_odd : t->was_nan) {
        return true;
    }
    for (int o = 0; o < t->n; o++) {
        if (t->k->writes[o] || (!t->copies[o] && tci_checker_is_overwritten(t, o))) {
            continue;
        }
        char *data = t->copies[o]            ? t->copies[o]
                     : tci_checker_device(t) ? tci_checker_copy(t, o)
                                             : tci_checker_memory(t, o);
        bool odd = data && tci_checker_find_odd(data, t->k->check->bytes[o], t->k->check->dtypes[o],
                                                infinite) >= 0;
        *status = data || !t->k->check->bytes[o] ? *status : TC_ERR_MEMORY;
        tci_heap_free_aligned(!t->copies[o] && tci_checker_device(t) ? data : NULL);
        if (odd) {
            return true;
        }
    }
    for (int l = 0; l < t->k->n_literals; l++) {
        int slot = code->steps[t->step].literals[l];
        tci_value v = {.i = step->literals[l]};
        if (tci_dtype_is_float((tc_dtype)code->literal_dtypes[slot]) && !isfinite(v.f)) {
            return true;
        }
    }
    return infinite && t->k->check->infinite;
}

static tc_status tci_checker_numbers(const tci_checked *t, int check)
{
    bool infinite = check & TC_CHECK_INF;
    tc_status status = TC_OK;
    for (int o = 0; o < t->n && !t->found->kind; o++) {
        int8_t dtype = t->k->check->dtypes[o];
        int64_t bytes = t->k->check->bytes[o];
        bool writes = t->k->writes[o] != 0;
        int64_t at = writes ? tci_checker_find_odd(t->after[o], bytes, dtype, infinite) : -1;
        if (at >= 0) {
            double x = tci_checker_element(t->after[o], dtype, at);
            bool is_nan = x != x;
            if (!tci_checker_had_odd(t, !is_nan, &status)) {
                bool of_infinite = is_nan && tci_checker_had_odd(t, true, &status);
                tci_checker_say(t, is_nan ? TC_CHECK_NAN : TC_CHECK_INF, o, at,
                                of_infinite ? "%g, made of infinite numbers"
                                            : "%g, made of finite numbers",
                                x, 0);
            }
        }
    }
    return status;
}

/* A difference says more than a NaN, so it is told instead of one. */
static void tci_checker_outputs(const tci_checked *t)
{
    bool differs = false;
    tci_checker_interpret(t);
    for (int o = 0; o < t->n && !differs; o++) {
        int8_t dtype = t->k->check->dtypes[o];
        int64_t at = t->k->writes[o]
                         ? tci_checker_compare(t->after[o], t->copies[o], t->k->check->bytes[o],
                                               dtype, t->k->check->loose)
                         : -1;
        differs = at >= 0;
        if (differs) {
            tci_checker_say(t, TC_CHECK_BITS, o, at, "%.9g, the interpreter's is %.9g",
                            tci_checker_element(t->after[o], dtype, at),
                            tci_checker_element(t->copies[o], dtype, at));
        }
    }
}

static tc_status tci_checker_launch(tci_checked *t)
{
    const tc_backend *device = t->c->program->code->device;
    tc_status status = t->launch(t->c, t->step);
    return status || !device ? status : device->sync(device->user);
}

static tc_status tci_checker_in(tci_checked *t, int check)
{
    bool crash = check & TC_CHECK_CRASH && !t->c->program->code->device &&
                 t->c->program->steps[t->step].fn;
    for (int o = 0; o < t->n; o++) {
        bool numbers = check & (TC_CHECK_NAN | TC_CHECK_INF) && !t->k->writes[o];
        bool compares = check & TC_CHECK_BITS;
        t->copies[o] = compares ? tci_checker_copy(t, o) : NULL;
        if ((compares && !t->copies[o]) ||
            (!compares && numbers && tci_checker_is_overwritten(t, o) && tci_checker_look(t, o))) {
            return TC_ERR_MEMORY;
        }
    }
    int signal_number = crash ? tci_checker_in_child(t) : 0;
    if (signal_number) {
        t->found->kind = TC_CHECK_CRASH;
        t->found->step = t->step;
        const char *name = signal_number == SIGSEGV   ? ", a bad address"
                           : signal_number == SIGBUS  ? ", a bad address"
                           : signal_number == SIGFPE  ? ", a division"
                           : signal_number == SIGILL  ? ", an instruction that is not there"
                           : signal_number == SIGABRT ? ", abort"
                                                      : "";
        snprintf(t->found->what, sizeof(t->found->what), "it ends with signal %d%s", signal_number,
                 name);
        return TC_OK;
    }
    tc_status status = tci_checker_launch(t);
    for (int o = 0; o < t->n && !status; o++) {
        if (t->k->writes[o] && tci_checker_device(t)) {
            t->after[o] = tci_checker_copy(t, o);
            status = t->after[o] ? TC_OK : TC_ERR_MEMORY;
        } else {
            t->after[o] = t->k->writes[o] ? tci_checker_memory(t, o) : NULL;
        }
    }
    if (!status && check & (TC_CHECK_NAN | TC_CHECK_INF)) {
        status = tci_checker_numbers(t, check); /* before the interpreter works on the copies */
    }
    if (!status && check & TC_CHECK_BITS && t->k->interp && (t->k->fn || t->k->function)) {
        tci_checker_outputs(t);
    }
    return status;
}

static tc_status tci_checker_step(tc_call *c, int step, tci_checker_launch_step launch,
                                  tci_checker_found *found)
{
    const tci_code *code = c->program->code;
    tci_checked t = {.c = c,
                     .step = step,
                     .k = &code->kernels[code->steps[step].kernel],
                     .found = found,
                     .launch = launch};
    if (!t.k->check) { /* a user function */
        return tci_checker_launch(&t);
    }
    t.n = t.k->n_operands;
    t.copies = tci_heap_get(sizeof(void *) * (size_t)(t.n + 1));
    t.after = tci_heap_get(sizeof(char *) * (size_t)(t.n + 1));
    tc_status status = t.copies && t.after ? tci_checker_in(&t, c->program->options.check)
                                           : TC_ERR_MEMORY;
    for (int o = 0; o < t.n; o++) {
        tci_heap_free_aligned(t.copies ? t.copies[o] : NULL);
        tci_heap_free_aligned(t.after && tci_checker_device(&t) ? t.after[o] : NULL);
    }
    tci_heap_free(t.copies);
    tci_heap_free(t.after);
    return status;
}

static tc_status tci_checker_tell(tc_call *c, const tci_checker_found *found)
{
    const tc_program *f = c->program;
    char hex[33];
    tci_str from = {0};
    const char *symbol = f->code->kernels[f->code->steps[found->step].kernel].symbol;
    tci_origin_text(&from, f, found->step);
    c->check_kind = found->kind;
    c->check_step = found->step;
    tc_status status = tci_call_refuse(c, TC_ERR_CHECK, "check: %s, kernel %d %s (%s): %s",
                                       tci_program_name(f, hex), found->step + 1,
                                       symbol ? symbol : "", tci_str_text(&from), found->what);
    tci_str_free(&from);
    return status;
}

TCI_FN void tci_checker_end(tc_call *c)
{
    int n = c->program->n_inputs;
    for (int i = 0; c->check_inputs && i < n; i++) {
        tci_heap_free_aligned(c->check_inputs[n + i]);
    }
    tci_heap_free(c->check_inputs);
    c->check_inputs = NULL;
}

/* True if an output of the run meets the bytes at data. */
static bool tci_checker_is_written(const tc_program *f, const tci_run *r, const void *data,
                                   size_t bytes)
{
    bool meets = false;
    for (int i = 0; i < f->n_outputs; i++) {
        uintptr_t from = (uintptr_t)data, at = (uintptr_t)r->outputs->items[i].data;
        size_t room = (size_t)tci_dim_hint(f->code->outputs[i].bytes);
        meets = meets || (at < from + bytes && from < at + room);
    }
    return meets;
}

/* Input i as it is before the run: the user's memory, or a copy of memory that the host cannot read
 * or the run writes. */
static bool tci_checker_input(tc_call *c, const tci_run *r, int i)
{
    const tc_program *f = c->program;
    const tc_backend *device = f->code->device;
    void *from = r->inputs->items[i].data, **copy = &c->check_inputs[f->n_inputs + i];
    size_t bytes = (size_t)tci_dim_hint(f->code->inputs[i].bytes);
    bool on_device = from && device && device->is_device && device->is_device(device->user, from);
    c->check_inputs[i] = from;
    if (!from || !(on_device || tci_checker_is_written(f, r, from, bytes))) {
        return true;
    }
    c->check_inputs[i] = *copy = tci_heap_get_aligned(bytes + 64);
    if (*copy && on_device) {
        device->download(device->user, *copy, from, (int64_t)bytes);
    } else if (*copy) {
        memcpy(*copy, from, bytes);
    }
    return *copy != NULL;
}

/* Each page of a buffer read, and written as it is if `writes`; the signal that ends that; 0: none.
 */
static int tci_checker_touch(volatile char *data, int64_t bytes, bool writes)
{
    int ended = 0;
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        for (int64_t at = 0; at < bytes + 4095; at += 4096) {
            volatile char *byte = data + TCI_MIN(at, bytes - 1);
            char same = *byte;
            *(writes ? byte : &same) = same;
        }
        raise(SIGKILL); /* as in tci_checker_in_child */
    }
    while (child > 0 && waitpid(child, &ended, 0) < 0 && errno == EINTR) {
    }
    int number = child > 0 && WIFSIGNALED(ended) ? WTERMSIG(ended) : SIGKILL;
    return number == SIGKILL ? 0 : number;
}

/* TC_CHECK_CRASH: user buffers that are not there, before anything reads them. */
static tc_status tci_checker_buffers(tc_call *c, const tci_run *r)
{
    const tc_program *f = c->program;
    char hex[33];
    int n = f->n_inputs + f->n_outputs;
    for (int i = 0; i < n && !f->code->device; i++) {
        bool out = i >= f->n_inputs;
        int at = out ? i - f->n_inputs : i;
        const tc_buf *b = out ? &r->outputs->items[at] : &r->inputs->items[at];
        int64_t bytes = tci_dim_hint((out ? f->code->outputs : f->code->inputs)[at].bytes);
        int number = b->data && bytes ? tci_checker_touch(b->data, bytes, out) : 0;
        if (number) {
            return tci_call_refuse(c, TC_ERR_CHECK,
                                   "check: %s: %s %d: %s its %lld bytes at %p ends with signal "
                                   "%d; expected memory that lives until the run is done",
                                   tci_program_name(f, hex), out ? "output" : "input", at,
                                   out ? "writing" : "reading", (long long)bytes, b->data, number);
        }
    }
    return TC_OK;
}

TCI_FN tc_status tci_checker_begin(tc_call *c, const tci_run *r)
{
    const tc_program *f = c->program;
    tci_checker_end(c);
    c->check_kind = 0;
    tc_status status = f->options.check & TC_CHECK_CRASH ? tci_checker_buffers(c, r) : TC_OK;
    if (!status && f->options.check & TC_CHECK_NO_FILE) {
        return TC_OK; /* nothing is written of them */
    }
    if (status) {
        return status;
    }
    c->check_inputs = tci_heap_get(sizeof(void *) * 2 * (size_t)(f->n_inputs + 1));
    bool ok = c->check_inputs != NULL;
    for (int i = 0; i < f->n_inputs && ok; i++) {
        ok = tci_checker_input(c, r, i);
    }
    return ok ? TC_OK : TC_ERR_MEMORY;
}

TCI_FN tc_status tci_checker_steps(tc_call *c, int begin, int end, tci_checker_launch_step launch)
{
    for (int i = begin; i < end; i++) {
        tci_checker_found found = {0};
        tc_status status = tci_checker_step(c, i, launch, &found);
        if (status) {
            return status == TC_ERR_MEMORY
                       ? tci_call_refuse(c, status, "no memory to copy a kernel's operands")
                       : status;
        }
        if (found.kind) {
            return tci_checker_tell(c, &found);
        }
    }
    return TC_OK;
}

static _Thread_local char tci_checker_failure[400];

TCI_FN void tci_checker_fail(const char *text)
{
    if (!tci_checker_failure[0]) {
        snprintf(tci_checker_failure, sizeof(tci_checker_failure), "%s", text);
    }
}

TCI_FN bool tci_checker_failed(char *text, size_t room)
{
    bool failed = tci_checker_failure[0] != 0;
    if (failed) {
        snprintf(text, room, "%s", tci_checker_failure);
        tci_checker_failure[0] = 0;
    }
    return failed;
}

#else

TCI_FN tc_status tci_checker_begin(tc_call *c, const tci_run *r)
{
    (void)c, (void)r;
    return TC_OK;
}

TCI_FN void tci_checker_end(tc_call *c)
{
    (void)c;
}

TCI_FN int tci_checker_flags(const char *text, const char **odd)
{
    (void)text;
    *odd = NULL;
    return 0;
}

TCI_FN bool tci_checker_prepare(tci_code *c, tci_code_kernel *k, const tci_kernel *from, int check)
{
    (void)c, (void)k, (void)from, (void)check;
    return true;
}

TCI_FN tc_status tci_checker_steps(tc_call *c, int begin, int end, tci_checker_launch_step launch)
{
    (void)c, (void)begin, (void)end, (void)launch;
    return TC_ERR_UNSUPPORTED;
}

TCI_FN void tci_checker_fail(const char *text)
{
    (void)text;
}

TCI_FN bool tci_checker_failed(char *text, size_t room)
{
    (void)text, (void)room;
    return false;
}

#endif
