/* io/pickle.c - a restricted reader of Python pickles (io/pickle.h).
 *
 * The format: opcodes for a machine with a stack and a memo (described by Python's pickletools.py).
 * The opcodes of protocols 2 to 5 that torch.save writes are supported; all others are refused by
 * number. Every opcode takes at most memory proportional to its own bytes and those that it moves,
 * so a pickle needs at most a multiple of its size. */
#include "pickle.h"

#include <inttypes.h>
#include <string.h>

typedef struct tci_pickle {
    tc_file *file;
    const tci_pickle_reader *reader;
    const unsigned char *bytes;
    int64_t at, n;
    tci_pickle_value **stack;
    int n_stack, cap_stack;
    tci_pickle_value **memo;
    int n_memo, cap_memo;
    int *marks;
    int n_marks, cap_marks; /* heights of the stack */
} tci_pickle;

TCI_FN tci_pickle_value *tci_pickle_make(tc_file *file, tci_pickle_kind kind)
{
    tci_pickle_value *v = TCI_NEW(&file->s, tci_pickle_value);
    v->kind = (uint8_t)kind;
    return v;
}

static void tci_pickle_bad(tci_pickle *p, const char *what)
{
    tci_io_bad(p->file, "its pickle is damaged at byte %" PRId64 ": %s", p->at, what);
}

static void tci_pickle_refuse(tci_pickle *p, const char *what, const char *name)
{
    tci_scratch_fail(&p->file->s, TC_ERR_UNSUPPORTED,
                     "its pickle has %s %s at byte %" PRId64
                     ": only dicts, lists, numbers, texts and tensors are read, and nothing is "
                     "executed (save a state_dict)",
                     what, name, p->at);
}

/* ---- bytes ---- */

static const unsigned char *tci_pickle_take(tci_pickle *p, int64_t n)
{
    if (n < 0 || n > p->n - p->at) {
        tci_pickle_bad(p, "it is cut short");
    }
    p->at += n;
    return p->bytes + p->at - n;
}

static uint64_t tci_pickle_number(tci_pickle *p, int bytes)
{
    const unsigned char *c = tci_pickle_take(p, bytes);
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--) {
        v = v << 8 | c[i];
    }
    return v;
}

static const char *tci_pickle_text(tci_pickle *p, uint64_t n)
{
    if (n > (uint64_t)(p->n - p->at)) {
        tci_pickle_bad(p, "it is cut short");
    }
    const unsigned char *c = tci_pickle_take(p, (int64_t)n);
    if (memchr(c, 0, (size_t)n)) {
        tci_pickle_bad(p, "a text has a zero in it");
    }
    char *text = tci_scratch_get(&p->file->s, (size_t)n + 1);
    memcpy(text, c, (size_t)n);
    return text;
}

/* Up to the end of the line. */
static const char *tci_pickle_line(tci_pickle *p)
{
    const unsigned char *end = memchr(p->bytes + p->at, '\n', (size_t)(p->n - p->at));
    if (!end) {
        tci_pickle_bad(p, "it is cut short");
    }
    const char *text = tci_pickle_text(p, (uint64_t)(end - (p->bytes + p->at)));
    p->at++;
    return text;
}

/* ---- the stack ---- */

static void tci_pickle_push(tci_pickle *p, tci_pickle_value *v)
{
    TCI_PUSH(&p->file->s, p->stack, p->n_stack, p->cap_stack, v);
}

static tci_pickle_value *tci_pickle_pop(tci_pickle *p)
{
    if (p->n_stack <= (p->n_marks ? p->marks[p->n_marks - 1] : 0)) {
        tci_pickle_bad(p, "its stack is empty");
    }
    return p->stack[--p->n_stack];
}

static tci_pickle_value *tci_pickle_top(tci_pickle *p)
{
    tci_pickle_value *v = tci_pickle_pop(p);
    p->n_stack++;
    return v;
}

static void tci_pickle_push_int(tci_pickle *p, tci_pickle_kind kind, int64_t i)
{
    tci_pickle_value *v = tci_pickle_make(p->file, kind);
    v->i = i;
    tci_pickle_push(p, v);
}

static void tci_pickle_push_text(tci_pickle *p, uint64_t n)
{
    tci_pickle_value *v = tci_pickle_make(p->file, TCI_PICKLE_TEXT);
    v->text = tci_pickle_text(p, n);
    tci_pickle_push(p, v);
}

/* Pops the last mark. Returns the number of values above it, from p->stack[p->n_stack] on. */
static int tci_pickle_above_mark(tci_pickle *p)
{
    if (!p->n_marks) {
        tci_pickle_bad(p, "there is no mark");
    }
    int from = p->marks[--p->n_marks], n = p->n_stack - from;
    p->n_stack = from;
    return n;
}

static void tci_pickle_add(tci_pickle *p, tci_pickle_value *to, tci_pickle_value *item)
{
    TCI_PUSH(&p->file->s, to->items, to->n, to->cap, item);
}

/* The last n values as a tuple. */
static void tci_pickle_tuple(tci_pickle *p, int n)
{
    tci_pickle_value *t = tci_pickle_make(p->file, TCI_PICKLE_TUPLE);
    for (int i = 0; i < n; i++) {
        tci_pickle_pop(p);
    }
    for (int i = 0; i < n; i++) {
        tci_pickle_add(p, t, p->stack[p->n_stack + i]);
    }
    tci_pickle_push(p, t);
}

/* n values, which are past the end of the stack, go into the container on top. */
static void tci_pickle_extend(tci_pickle *p, int n, tci_pickle_kind kind)
{
    tci_pickle_value *to = tci_pickle_top(p);
    if (to->kind != kind || (kind == TCI_PICKLE_DICT && n % 2)) {
        tci_pickle_bad(p, "items are put into no container");
    }
    for (int i = 0; i < n; i++) {
        tci_pickle_add(p, to, p->stack[p->n_stack + i]);
    }
}

/* ---- the memo ---- */

static void tci_pickle_remember(tci_pickle *p, uint64_t at)
{
    tci_pickle_value *v = tci_pickle_top(p);
    if (at > (uint64_t)p->n_memo) {
        tci_pickle_bad(p, "its memo has a gap");
    } else if (at < (uint64_t)p->n_memo) {
        p->memo[at] = v;
    } else {
        TCI_PUSH(&p->file->s, p->memo, p->n_memo, p->cap_memo, v);
    }
}

static void tci_pickle_recall(tci_pickle *p, uint64_t at)
{
    if (at >= (uint64_t)p->n_memo) {
        tci_pickle_bad(p, "its memo has no such entry");
    }
    tci_pickle_push(p, p->memo[at]);
}

/* ---- classes and calls ---- */

static void tci_pickle_class(tci_pickle *p, const char *module, const char *name)
{
    int number = p->reader->class_of(module, name);
    if (number < 0) {
        char text[80];
        snprintf(text, sizeof(text), "%.30s.%.40s", module, name);
        tci_pickle_refuse(p, "the class or function", TCI_IO_NAME(text));
    }
    tci_pickle_push_int(p, TCI_PICKLE_CLASS, number);
}

static void tci_pickle_call(tci_pickle *p)
{
    tci_pickle_value *arguments = tci_pickle_pop(p), *of = tci_pickle_pop(p);
    if (of->kind != TCI_PICKLE_CLASS || arguments->kind != TCI_PICKLE_TUPLE) {
        tci_pickle_bad(p, "what is called is no class");
    }
    tci_pickle_value *v = p->reader->value_of(p->file, (int)of->i, arguments);
    if (!v) {
        v = tci_pickle_make(p->file, TCI_PICKLE_OBJECT);
        v->i = of->i;
        tci_pickle_add(p, v, arguments);
    }
    tci_pickle_push(p, v);
}

/* Attributes of a dict, as nn.Module gives its state_dict, are left out. */
static void tci_pickle_build(tci_pickle *p)
{
    tci_pickle_pop(p);
    if (tci_pickle_top(p)->kind != TCI_PICKLE_DICT) {
        tci_pickle_refuse(p, "attributes of", "an object");
    }
}

/* ---- opcodes ---- */

static void tci_pickle_long(tci_pickle *p)
{
    int n = (int)tci_pickle_number(p, 1);
    if (n > 8) {
        tci_pickle_refuse(p, "an integer of", "more than 64 bits");
    }
    uint64_t v = tci_pickle_number(p, n);
    bool negative = n && n < 8 && v >> (8 * n - 1) & 1;
    tci_pickle_push_int(p, TCI_PICKLE_INT, (int64_t)(negative ? v | ~(uint64_t)0 << 8 * n : v));
}

static void tci_pickle_float(tci_pickle *p)
{
    const unsigned char *c = tci_pickle_take(p, 8); /* big-endian */
    tci_pickle_value *v = tci_pickle_make(p->file, TCI_PICKLE_FLOAT);
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++) {
        bits = bits << 8 | c[i];
    }
    memcpy(&v->f, &bits, sizeof(bits));
    tci_pickle_push(p, v);
}

static void tci_pickle_outside(tci_pickle *p)
{
    tci_pickle_value *v = tci_pickle_make(p->file, TCI_PICKLE_OUTSIDE);
    tci_pickle_add(p, v, tci_pickle_pop(p));
    tci_pickle_push(p, v);
}

/* Opcodes that make a value of their own bytes; false: it is none of these. */
static bool tci_pickle_value_op(tci_pickle *p, int op)
{
    switch (op) {
    case 'N': tci_pickle_push_int(p, TCI_PICKLE_NONE, 0); return true;
    case 0x88:
    case 0x89: tci_pickle_push_int(p, TCI_PICKLE_BOOL, op == 0x88); return true;
    case 'J': tci_pickle_push_int(p, TCI_PICKLE_INT, (int32_t)tci_pickle_number(p, 4)); return true;
    case 'K': tci_pickle_push_int(p, TCI_PICKLE_INT, (int64_t)tci_pickle_number(p, 1)); return true;
    case 'M': tci_pickle_push_int(p, TCI_PICKLE_INT, (int64_t)tci_pickle_number(p, 2)); return true;
    case 0x8a: tci_pickle_long(p); return true;
    case 'G': tci_pickle_float(p); return true;
    case 'X': tci_pickle_push_text(p, tci_pickle_number(p, 4)); return true;
    case 0x8c: tci_pickle_push_text(p, tci_pickle_number(p, 1)); return true;
    case 0x8d: tci_pickle_push_text(p, tci_pickle_number(p, 8)); return true;
    case '}': tci_pickle_push_int(p, TCI_PICKLE_DICT, 0); return true;
    case ']': tci_pickle_push_int(p, TCI_PICKLE_LIST, 0); return true;
    case ')': tci_pickle_tuple(p, 0); return true;
    default: return false;
    }
}

/* One opcode; false: it was the last one. */
static bool tci_pickle_op(tci_pickle *p)
{
    int op = (int)tci_pickle_number(p, 1), n;
    const char *module, *name;
    char text[8];
    if (tci_pickle_value_op(p, op)) {
        return true;
    }
    switch (op) {
    case '.': return false;
    case 0x80: tci_pickle_number(p, 1); break; /* protocol */
    case 0x95: tci_pickle_number(p, 8); break; /* frame */
    case '(': TCI_PUSH(&p->file->s, p->marks, p->n_marks, p->cap_marks, p->n_stack); break;
    case 't':
        n = tci_pickle_above_mark(p);
        p->n_stack += n;
        tci_pickle_tuple(p, n);
        break;
    case 0x85:
    case 0x86:
    case 0x87: tci_pickle_tuple(p, op - 0x84); break;
    case 's':
        tci_pickle_pop(p);
        tci_pickle_pop(p);
        tci_pickle_extend(p, 2, TCI_PICKLE_DICT);
        break;
    case 'u': tci_pickle_extend(p, tci_pickle_above_mark(p), TCI_PICKLE_DICT); break;
    case 'a':
        tci_pickle_pop(p);
        tci_pickle_extend(p, 1, TCI_PICKLE_LIST);
        break;
    case 'e': tci_pickle_extend(p, tci_pickle_above_mark(p), TCI_PICKLE_LIST); break;
    case 'q': tci_pickle_remember(p, tci_pickle_number(p, 1)); break;
    case 'r': tci_pickle_remember(p, tci_pickle_number(p, 4)); break;
    case 0x94: tci_pickle_remember(p, (uint64_t)p->n_memo); break;
    case 'h': tci_pickle_recall(p, tci_pickle_number(p, 1)); break;
    case 'j': tci_pickle_recall(p, tci_pickle_number(p, 4)); break;
    case 'c':
        module = tci_pickle_line(p);
        tci_pickle_class(p, module, tci_pickle_line(p));
        break;
    case 0x93: {
        const tci_pickle_value *second = tci_pickle_pop(p), *first = tci_pickle_pop(p);
        module = first->kind == TCI_PICKLE_TEXT ? first->text : "";
        name = second->kind == TCI_PICKLE_TEXT ? second->text : "";
        tci_pickle_class(p, module, name);
        break;
    }
    case 'R': tci_pickle_call(p); break;
    case 'b': tci_pickle_build(p); break;
    case 'Q': tci_pickle_outside(p); break;
    default:
        snprintf(text, sizeof(text), "0x%02x", (unsigned)op);
        tci_pickle_refuse(p, "opcode", text);
    }
    return true;
}

TCI_FN tci_pickle_value *tci_pickle_read(tc_file *file, const tci_pickle_reader *reader,
                                         const unsigned char *bytes, int64_t n)
{
    tci_pickle p = {.file = file, .reader = reader, .bytes = bytes, .n = n};
    while (tci_pickle_op(&p)) {
    }
    return tci_pickle_pop(&p);
}
