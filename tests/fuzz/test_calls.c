/* Every public call, drawn by its name: what is drawn for its parameters is of the right kind, and
 * often fits. A call that is refused has a text; of those that are not, native code and the
 * interpreter give the same bits, for the results and for the gradients of all of them by all
 * inputs that are floats. Operands may be constants that have a value, and constants that a call
 * may make for itself are evaluated at random moments.
 *
 * Names, parameters and their kinds are those that tc_op_name and tc_op_params tell, so a call that
 * is new is drawn too; one that is never accepted is a failure here, and gets a line in `likings`.
 *
 * The same calls with symbols for sizes: the same draw with numbers for the symbols is another
 * program, which must be accepted too and have the same bits, at 0, 1 and 2 of each symbol.
 * TC_TEST_SOAK=1 draws more of each. */
#define TC_DYNAMIC_SHAPES
#include "inside.h"

#include "tc_test.h"

#include "same.h"

enum { MOST_INPUTS = 12, MOST_ATTRS = 12, MOST_RESULTS = 4, MOST_OUTPUTS = 16, MOST_LIST = 5 };
enum { ACCEPTED = 1, ACCEPTED_SOAK = 40, TRIES = 1500, BATCH = 64, ROOM = 4096 };
enum { N_SYMBOLS = 2, SWEPT = 2, SWEPT_SOAK = 8, SWEEP_TRIES = 300, SWEEP_MOST = 5 };

/* ---- what a call likes ---- */

/* For calls that take what is rarely drawn: the shapes of their operands, and for each an f for
 * floats or the bound of an index. */
typedef struct liking {
    const char *name, *shapes, *dtypes;
} liking;

static const liking likings[] = {
    {"lstm", "3x2x4 1x2x3 1x2x3 12x4 12x3 12 12", "fffffff"},
    {"gru", "3x2x4 1x2x3 9x4 9x3 9 9", "ffffff"},
    {"ssm_scan", "2x5x3 2x5x3 3x4 2x5x4 2x5x4 3", "ffffff"},
    {"ctc_loss", "5x2x4 2x2 2 2", "f322"},
    {"coo_matmul", "4 4 4 3x2", "33ff"},
    {"csr_matmul", "4 3 3 3x2", "12ff"},
    {"grid_sample", "2x3x4x5 2x2x3x2", "ff"},
    {"rope", "2x3x4 3x4 3x4", "fff"},
    {"embedding_bag", "2x3 5x4", "5f"},
    {"batch_norm", "2x3x4 3 3 3 3", "fffff"},
    {"group_norm", "2x4x3 4 4", "fff"},
    {"col2im", "1x12x6", "f"},
    {"conv3d", "1x2x3x3x3 2x2x2x2x2 2", "fff"},
    {"conv_transpose3d", "1x2x3x3x3 2x2x2x2x2 2", "fff"},
};

static const liking *liking_of(const char *name)
{
    for (size_t i = 0; i < sizeof(likings) / sizeof(likings[0]); i++) {
        if (!strcmp(likings[i].name, name)) {
            return &likings[i];
        }
    }
    return NULL;
}

/* Word number `at` of the text, or NULL. */
static const char *word_at(const char *text, int at)
{
    for (; at > 0 && text; at--) {
        text = strchr(text, ' ');
        text = text ? text + 1 : NULL;
    }
    return text;
}

/* ---- a call that is drawn ---- */

/* Symbols, or their values in a run, from which sizes are drawn; liked sizes of `like[i]` are
 * symbol number i. */
typedef struct sweep {
    bool on;
    int64_t least[N_SYMBOLS], sizes[N_SYMBOLS], like[N_SYMBOLS];
} sweep;

static sweep swept;

typedef struct drawn {
    tc_ctx *ctx;
    const char *name;
    const liking *likes;
    int rank;                 /* of the operands, more or less, */
    int64_t sizes[MOST_LIST]; /* which are of this shape, */
    tc_dtype dtype;           /* and of this dtype */
    tc_tensor operands[MOST_INPUTS], inputs[MOST_INPUTS];
    double bound[MOST_INPUTS]; /* of an index; 0: any value */
    bool sorted[MOST_INPUTS];  /* rows in ascending order */
    int n_operands, n_inputs;
    tc_attr attrs[MOST_ATTRS];
    int64_t lists[MOST_ATTRS][MOST_LIST];
    int n_attrs;
    tc_tensor outputs[MOST_OUTPUTS];
    int n_outputs;
    void *memory[MOST_INPUTS], *got[2][MOST_OUTPUTS];
    tc_program *programs[2];
    tc_status status[2];
} drawn;

static int pick(int n)
{
    return (int)tct_random_below((uint64_t)n);
}

static bool chance(int percent)
{
    return pick(100) < percent;
}

static bool is_float(tc_dtype t)
{
    return t >= TC_F16 && t <= TC_F64;
}

static int64_t draw_size(int most)
{
    bool symbol = swept.on && chance(70);
    int64_t size = swept.sizes[pick(N_SYMBOLS)], number = 1 + pick(most);
    return symbol ? size : number;
}

static void draw_shape(drawn *d)
{
    static const tc_dtype often[] = {TC_F32, TC_F32, TC_F32,  TC_F64,
                                     TC_I64, TC_I32, TC_BOOL, TC_BF16};
    d->rank = chance(80) ? 1 + pick(4) : pick(MOST_LIST + 1);
    int64_t same = draw_size(5);
    bool square = chance(50);
    for (int i = 0; i < d->rank; i++) {
        d->sizes[i] = square ? same : chance(5) ? 0 : draw_size(5);
    }
    d->dtype = chance(85) ? often[pick(8)] : (tc_dtype)(TC_BOOL + pick(TC_DTYPE_COUNT - TC_BOOL));
}

static tc_tensor new_input(drawn *d, tc_dtype t, int rank, const int64_t *sizes, double bound)
{
    int64_t list[MOST_LIST + 1] = {t};
    if (d->n_inputs == MOST_INPUTS) {
        return TC_NONE;
    }
    memcpy(list + 1, sizes, sizeof(*sizes) * (size_t)rank);
    tc_tensor x = tc_input_at(d->ctx, "x", rank + 1, list, TC_HERE);
    d->bound[d->n_inputs] = bound;
    d->inputs[d->n_inputs++] = x;
    return x;
}

static tc_arg number(double v, bool whole)
{
    tc_arg a = {{NULL, UINT32_MAX, 0}, whole ? 2 : 3, whole ? (int64_t)v : 0, whole ? 0 : v};
    return a;
}

/* A constant that has a value. */
static tc_tensor evaluated(drawn *d, tc_dtype t, int rank, const int64_t *sizes)
{
    static const double numbers[] = {0, 1, -1, 2, 0.5, 0.25};
    int64_t list[MOST_LIST + 1] = {t};
    memcpy(list + 1, sizes, sizeof(*sizes) * (size_t)rank);
    bool is_unsigned = t == TC_U8 || t == TC_U16 || t == TC_U32 || t == TC_U64;
    double value = numbers[pick(6)];
    value = is_unsigned ? fabs(value) : value;
    tc_tensor x = tc_full_at(d->ctx, number(value, false), rank + 1, list, TC_HERE);
    CHECK_MSG(!tc_eval(x), "%s", tc_error(x));
    return x;
}

static void random_moment(drawn *d)
{
    while (!swept.on && chance(40)) { /* a symbolic size has no value before a run */
        evaluated(d, chance(50) ? d->dtype : TC_F32, chance(50) ? d->rank : 0, d->sizes);
    }
}

static tc_tensor liked_tensor(drawn *d, const char *shape)
{
    int64_t sizes[MOST_LIST];
    int rank = 0;
    char *end = NULL;
    for (; rank < MOST_LIST && *shape && *shape != ' '; shape = *end == 'x' ? end + 1 : end) {
        sizes[rank] = strtoll(shape, &end, 10);
        int like = swept.on && sizes[rank] == swept.like[0]   ? 0
                   : swept.on && sizes[rank] == swept.like[1] ? 1
                                                              : -1;
        sizes[rank] = like < 0 ? sizes[rank] : swept.sizes[like];
        rank++;
    }
    char kind = d->likes->dtypes[d->n_operands];
    if (kind == 'f' && !swept.on && chance(15)) {
        return evaluated(d, TC_F32, rank, sizes);
    }
    return new_input(d, kind == 'f' ? TC_F32 : TC_I64, rank, sizes, kind == 'f' ? 0 : kind - '0');
}

/* Of the shape, or with an axis less, more, of another size, or turned. */
static tc_tensor draw_tensor(drawn *d, bool is_index)
{
    int64_t sizes[MOST_LIST + 1];
    int rank = d->rank;
    memcpy(sizes, d->sizes, sizeof(d->sizes));
    if (d->likes) {
        const char *shape = word_at(d->likes->shapes, d->n_operands);
        return shape ? liked_tensor(d, shape) : TC_NONE;
    }
    int how = chance(65) ? 0 : 1 + pick(5);
    if (how == 1 && rank > 0) { /* less: the last, or the first */
        rank--;
        memmove(sizes, sizes + (chance(50) && rank > 0), sizeof(*sizes) * (size_t)rank);
    } else if (how == 2) {
        rank = pick(rank + 1);
    } else if (how == 3 && rank > 0) {
        sizes[pick(rank)] = draw_size(3);
    } else if (how == 4 && rank > 1) {
        int64_t last = sizes[rank - 1];
        sizes[rank - 1] = sizes[rank - 2];
        sizes[rank - 2] = last;
    } else if (how == 5 && rank > 0) {
        rank = 1;
        sizes[0] = d->sizes[pick(d->rank)];
    }
    if (!swept.on && !is_index && is_float(d->dtype) && chance(10)) {
        return evaluated(d, d->dtype, rank, sizes);
    }
    tc_dtype t = is_index ? (chance(80) ? TC_I64 : TC_I32) : chance(93) ? d->dtype : TC_BOOL;
    return new_input(d, t, rank, sizes, is_index ? 1 + pick(3) : 0);
}

/* ---- its parameters ---- */

static void draw_list(drawn *d, tc_attr *a, int n, int least, int most)
{
    a->items = d->lists[d->n_attrs];
    a->n = n;
    for (int i = 0; i < n; i++) {
        d->lists[d->n_attrs][i] = least + pick(most - least + 1);
    }
}

static const char *draw_text(const char *name)
{
    static const char *const modes[] = {"sum",       "mean",       "max",      "nearest",
                                        "bilinear",  "bicubic",    "area",     "reflect",
                                        "replicate", "circular",   "constant", "zeros",
                                        "border",    "reflection", "linear",   "no such"};
    static const char *const specs[] = {"ij->ji",       "i->",     "ij,jk->ik", "i,i->i",
                                        "...->...",     "ij,ij->", "iii->i",    "ijk->kij",
                                        "ij,jk,kl->il", "->"};
    static const char *const norms[] = {"backward", "forward", "ortho", "none"};
    return !strcmp(name, "spec")        ? specs[pick(10)]
           : !strcmp(name, "norm")      ? norms[pick(4)]
           : !strcmp(name, "reduction") ? (const char *const[]){"mean", "sum", "none"}[pick(3)]
                                        : modes[pick(16)];
}

static bool is_kind(const char *kind, const char *name)
{
    size_t n = strlen(name);
    return !strncmp(kind, name, n) && (!kind[n] || kind[n] == ',' || kind[n] == ' ');
}

/* Indices by the names of parameters. */
static bool names_index(const char *name)
{
    static const char *const names[] = {"index",         "indices",       "target", "offsets",
                                        "rows",          "columns",       "starts", "targets",
                                        "input_lengths", "target_lengths"};
    bool found = false;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        found = found || !strcmp(names[i], name);
    }
    return found;
}

/* What is searched: of what is not in order nothing is promised. */
static bool names_sorted(const char *name)
{
    return !strcmp(name, "boundaries") || !strcmp(name, "sorted") || !strcmp(name, "starts") ||
           !strcmp(name, "p"); /* of tc_multinomial: none is negative */
}

static void draw_operand(drawn *d, const char *name, const char *kind, bool optional)
{
    bool list = is_kind(kind, "tensors");
    int n = !list ? 1 : d->likes ? MOST_INPUTS : 1 + pick(3);
    for (int i = 0; i < n && d->n_operands < MOST_INPUTS; i++) {
        tc_tensor x = optional && chance(40) && !d->likes
                          ? TC_NONE
                          : draw_tensor(d, names_index(name) && chance(85));
        if (list && !x.ctx && d->likes) {
            return;
        }
        if (x.ctx) {
            d->sorted[d->n_inputs - 1] = names_sorted(name);
        }
        d->operands[d->n_operands++] = x;
    }
}

static void draw_attr(drawn *d, const char *name, const char *kind, bool optional)
{
    static char names[MOST_ATTRS][40];
    tc_attr *a = &d->attrs[d->n_attrs];
    memset(a, 0, sizeof(*a));
    if (optional && chance(50)) {
        return;
    }
    snprintf(names[d->n_attrs], sizeof(names[0]), "%s", name);
    a->name = names[d->n_attrs];
    a->value = number(0, true);
    if (is_kind(kind, "axis")) {
        a->value = number(pick(2 * d->rank + 2) - d->rank - 1, true);
    } else if (is_kind(kind, "integer")) {
        a->value = number(chance(75) ? pick(5) : pick(12) - 5, true);
        a->value.i = swept.on && chance(20) ? swept.sizes[pick(N_SYMBOLS)] : a->value.i;
    } else if (is_kind(kind, "axes")) {
        draw_list(d, a, 1 + pick(2), -1, d->rank > 0 ? d->rank - 1 : 0);
    } else if (is_kind(kind, "sizes") || is_kind(kind, "typed")) {
        draw_list(d, a, chance(70) ? d->rank : 1 + pick(3), chance(20) ? -1 : 0, 5);
        for (int i = 0; i < a->n && chance(60); i++) { /* an order, or the shape */
            d->lists[d->n_attrs][i] = !strcmp(name, "order") ? a->n - 1 - i : d->sizes[i];
        }
    } else if (is_kind(kind, "single") || is_kind(kind, "pair") || is_kind(kind, "triple") ||
               is_kind(kind, "each")) {
        a->value = number(pick(4), true);
        a->value.i = swept.on && chance(30) ? swept.sizes[pick(N_SYMBOLS)] : a->value.i;
    } else if (is_kind(kind, "real") || is_kind(kind, "factor")) {
        a->value = number(chance(30) ? pick(4) : 0.25 * (1 + pick(12)), chance(30));
        a->value = a->value.kind == 2 ? number((double)a->value.i, false) : a->value;
    } else if (is_kind(kind, "flag")) {
        a->value = number(pick(2), true);
    } else if (is_kind(kind, "dtype")) {
        a->value = number(chance(70) ? d->dtype : TC_BOOL + pick(TC_DTYPE_COUNT - TC_BOOL), true);
    } else {
        a->text = draw_text(name);
    }
    d->n_attrs++;
}

/* A number for an operand. */
static void draw_number(drawn *d, const char *name)
{
    draw_attr(d, name, chance(60) ? "integer" : "real", false);
    d->operands[d->n_operands++] = TC_NONE;
}

static void draw_params(drawn *d, const char *params)
{
    while (params && *params && d->n_attrs < MOST_ATTRS && d->n_operands < MOST_INPUTS) {
        char name[40];
        const char *colon = strchr(params, ':'), *kind = colon + 2;
        const char *next = strstr(kind, ", "), *equals = strstr(kind, " = ");
        bool optional = equals && (!next || equals < next);
        snprintf(name, sizeof(name), "%.*s", (int)(colon - params), params);
        bool operand = is_kind(kind, "operand") || is_kind(kind, "maybe");
        if (operand && optional && chance(50)) {
            d->operands[d->n_operands++] = TC_NONE;
        } else if (operand && chance(40)) {
            draw_number(d, name);
        } else if (operand || is_kind(kind, "tensor") || is_kind(kind, "tensors") ||
                   is_kind(kind, "optional")) {
            draw_operand(d, name, kind, optional);
        } else {
            draw_attr(d, name, kind, optional);
        }
        params = next ? next + 2 : NULL;
    }
}

/* ---- the call ---- */

static bool call(drawn *d, int n_results)
{
    tc_tensor results[MOST_RESULTS];
    tc_tensors inputs = {d->operands, d->n_operands};
    tc_attrs attrs = {d->attrs, d->n_attrs};
    tc_status status = tc_op_results(d->ctx, d->name, inputs, attrs, results, n_results);
    d->n_outputs = 0;
    for (int i = 0; i < n_results; i++) {
        tc_status of = tc_status_of(results[i]);
        CHECK_MSG((status == TC_OK) == (of == TC_OK), "%s: %s, result %d: %s", d->name,
                  tc_status_text(status), i, tc_status_text(of));
        CHECK_MSG(of == TC_OK || (of != TC_ERR_INTERNAL && strlen(tc_error(results[i])) > 20),
                  "%s: %s", d->name, tc_error(results[i]));
        d->outputs[d->n_outputs++] = results[i];
    }
    return status == TC_OK && (swept.on || tc_count(results[0]) <= ROOM);
}

/* The first result between elements of padding: it is read under a guard. */
static void add_padded(drawn *d)
{
    tc_tensor x = d->outputs[0];
    int axis = tc_rank(x) ? pick(tc_rank(x)) : 0;
    tc_tensor y = tc_rank(x) ? tc_pad(x, axis, pick(2), 2, 1) : TC_NONE;
    if (y.ctx && !tc_status_of(y)) {
        d->outputs[d->n_outputs++] = y;
    }
}

/* The gradients of all results that are floats, by all such inputs. */
static void add_gradients(drawn *d)
{
    tc_tensor of[MOST_RESULTS], ones[MOST_RESULTS], by[MOST_INPUTS], grads[MOST_INPUTS];
    int n = 0, n_by = 0;
    for (int i = 0; i < d->n_outputs; i++) {
        if (is_float(tc_dtype_of(d->outputs[i]))) {
            ones[n] = tc_add(tc_mul(tc_stop_gradient(d->outputs[i]), 0), 1);
            of[n++] = d->outputs[i];
        }
    }
    for (int i = 0; i < d->n_inputs; i++) {
        if (is_float(tc_dtype_of(d->inputs[i]))) {
            by[n_by++] = d->inputs[i];
        }
    }
    if (!n || !n_by) {
        return;
    }
    tc_tensors results = {of, n}, cotangents = {ones, n};
    tc_status status = tc_vjp(results, cotangents, by, n_by, grads);
    CHECK_MSG(status == TC_OK || (status != TC_ERR_INTERNAL && strlen(tc_error(grads[0])) > 20),
              "%s: %s", d->name, tc_error(grads[0]));
    for (int i = 0; i < n_by && !status && d->n_outputs < MOST_OUTPUTS; i++) {
        d->outputs[d->n_outputs++] = grads[i];
    }
}

/* One that is accepted, or false. n_results: as many as the call has, found out here. */
static bool draw(drawn *d, tc_ctx *ctx, int op, int *n_results)
{
    memset(d, 0, sizeof(*d));
    d->ctx = ctx;
    d->name = tc_op_name(op);
    d->likes = liking_of(d->name);
    draw_shape(d);
    draw_params(d, tc_op_params(op));
    random_moment(d);
    bool fits = call(d, *n_results);
    while (!fits && *n_results < MOST_RESULTS &&
           strstr(tc_error(d->outputs[0]), "are asked for: it has")) {
        fits = call(d, ++*n_results);
    }
    if (fits && swept.on) {
        add_padded(d);
        fits = new_input(d, TC_BOOL, N_SYMBOLS, swept.sizes, 0).ctx; /* so that a run tells both */
    }
    if (fits) {
        random_moment(d);
        add_gradients(d);
        random_moment(d);
    }
    return fits;
}

/* ---- runs ---- */

static const char *const backends[2] = {"interp", "cpu"};

static void fill(drawn *d, int input)
{
    tc_tensor x = d->inputs[input];
    tc_dtype t = tc_dtype_of(x);
    int64_t n = tc_count(x);
    double values[ROOM];
    int64_t row = tc_rank(x) ? tc_size(x, -1) : 1;
    for (int64_t i = 0; i < n && i < ROOM; i++) {
        values[i] = d->bound[input] > 0 ? (double)pick((int)d->bound[input])
                    : is_float(t)       ? (double)(pick(401) - 200) / 64
                                        : pick(5);
        values[i] = d->sorted[input] ? (double)(i % row) / 4 : values[i];
    }
    tc_tensor made = tc_cast(tc_copy_in(d->ctx, values, TC_F64, n), t);
    d->memory[input] = calloc(1, (size_t)tc_nbytes(x) + 1);
    tc_buf to = {.data = d->memory[input], .n = n, .dtype = (int)t};
    CHECK_MSG(tc_read_as(made, to) == TC_OK, "%s: %s", d->name, tc_error(made));
}

static void compile(drawn *all, int n, int way, bool reproducible)
{
    static tc_job jobs[BATCH];
    tc_options o = {.backend = backends[way],
                    .no_disk_cache = true,
                    .reproducible = reproducible,
                    .fallback = way ? TC_FALLBACK_REFUSE : TC_FALLBACK_ALLOW};
    for (int i = 0; i < n; i++) {
        drawn *d = &all[i];
        tc_job job = {{d->inputs, d->n_inputs},
                      {d->outputs, d->n_outputs},
                      &d->programs[way],
                      TC_OK};
        jobs[i] = job;
    }
    tc_compile_many(jobs, n, &o);
    for (int i = 0; i < n; i++) {
        all[i].status[way] = jobs[i].status;
        CHECK_MSG(jobs[i].status == TC_OK, "%s on %s: %s", all[i].name, backends[way],
                  jobs[i].status ? tc_error(all[i].outputs[0]) : "");
    }
}

static void run(drawn *d, int way)
{
    tc_buf in[MOST_INPUTS], out[MOST_OUTPUTS];
    for (int i = 0; i < d->n_inputs; i++) {
        tc_buf b = {.data = d->memory[i],
                    .n = tc_count(d->inputs[i]),
                    .dtype = (int)tc_dtype_of(d->inputs[i])};
        in[i] = b;
    }
    for (int i = 0; i < d->n_outputs; i++) {
        d->got[way][i] = calloc(1, (size_t)tc_nbytes(d->outputs[i]) + 1);
        tc_buf b = {.data = d->got[way][i],
                    .n = tc_count(d->outputs[i]),
                    .dtype = (int)tc_dtype_of(d->outputs[i])};
        out[i] = b;
    }
    tc_bufs ins = {in, d->n_inputs}, outs = {out, d->n_outputs};
    d->status[way] = tc_run(d->programs[way], ins, outs);
    CHECK_MSG(d->status[way] == TC_OK || d->status[way] == TC_ERR_INDEX, "%s on %s: %s", d->name,
              backends[way], tc_error(d->programs[way]));
}

static void compare(const drawn *d)
{
    CHECK_MSG(d->status[0] == d->status[1], "%s: %s, in native code %s", d->name,
              tc_status_text(d->status[0]), tc_status_text(d->status[1]));
    for (int i = 0; i < d->n_outputs && !d->status[0] && !d->status[1]; i++) {
        int64_t n = tc_count(d->outputs[i]);
        int64_t at = same_until(tc_dtype_of(d->outputs[i]), d->got[0][i], d->got[1][i], n);
        CHECK_MSG(at < 0, "%s: output %d of %d differs at element %lld of %lld", d->name, i,
                  d->n_outputs, (long long)at, (long long)n);
    }
}

static void drop(drawn *d)
{
    for (int k = 0; k < d->n_inputs; k++) {
        free(d->memory[k]);
    }
    for (int way = 0; way < 2; way++) {
        for (int k = 0; k < d->n_outputs; k++) {
            free(d->got[way][k]);
        }
        tc_program_free(d->programs[way]);
    }
}

static void run_batch(drawn *all, int n, int ways)
{
    for (int way = 0; way < ways; way++) {
        compile(all, n, way, false);
    }
    for (int i = 0; i < n; i++) {
        drawn *d = &all[i];
        for (int k = 0; k < d->n_inputs; k++) {
            fill(d, k);
        }
        for (int way = 0; way < ways && d->programs[way]; way++) {
            run(d, way);
        }
        if (ways == 2 && d->programs[0] && d->programs[1]) {
            compare(d);
        }
        drop(d);
    }
}

static bool has_compiler(void)
{
    tc_options o = {.backend = "cpu", .fallback = TC_FALLBACK_REFUSE};
    tc_ctx *ctx = NULL;
    tc_program *f = NULL;
    bool works = tc_ctx_make(&ctx, &o) == TC_OK &&
                 tc_compile(tc_neg(tc_input(ctx, "x", TC_F32, 3)), &f) == TC_OK;
    tc_program_free(f);
    tc_ctx_free(ctx);
    return works;
}

/* An effect is no result (tests/fuzz/test_fuzz.c has some). */
static bool is_drawn(const char *name)
{
    return strcmp(name, "assign") != 0;
}

/* ---- symbols ---- */

/* A call drawn with symbols, and the state of draws before it. */
typedef struct symbolic {
    drawn d;
    sweep sizes;
    uint64_t state;
    int op, n_results;
} symbolic;

static bool draw_symbolic(symbolic *s, tc_ctx *ctx, int op, int *n_results)
{
    static const char *const names[N_SYMBOLS] = {"n", "m"};
    s->sizes.on = true;
    for (int i = 0; i < N_SYMBOLS; i++) {
        s->sizes.least[i] = chance(50) ? 0 : 1 + pick(2);
        s->sizes.sizes[i] = TC_DIM(names[i], s->sizes.least[i], SWEEP_MOST);
        s->sizes.like[i] = 1 + pick(5);
    }
    s->op = op;
    s->state = tct_random_state;
    swept = s->sizes;
    bool fits = draw(&s->d, ctx, op, n_results);
    s->n_results = *n_results;
    swept.on = false;
    return fits;
}

/* With these values for the symbols. */
static bool draw_fixed(drawn *d, tc_ctx *ctx, const symbolic *s, const int64_t *values)
{
    uint64_t state = tct_random_state;
    int n_results = s->n_results;
    swept = s->sizes;
    memcpy(swept.sizes, values, sizeof(swept.sizes));
    tct_random_state = s->state;
    bool fits = draw(d, ctx, s->op, &n_results);
    tct_random_state = state;
    swept.on = false;
    CHECK_MSG(fits, "%s(%s) with n, m = %lld, %lld: accepted as symbols, as numbers: %s", d->name,
              tc_op_params(s->op), (long long)values[0], (long long)values[1],
              tc_error(d->outputs[0]));
    CHECK_MSG(!fits || d->n_outputs == s->d.n_outputs, "%s: %d results, of symbols %d", d->name,
              d->n_outputs, s->d.n_outputs);
    return fits && d->n_outputs == s->d.n_outputs;
}

static tc_buf shaped(tc_tensor x, void *memory, int64_t *sizes)
{
    tc_buf b = {.data = memory,
                .n = tc_count(x),
                .dtype = (int)tc_dtype_of(x),
                .rank = tc_rank(x),
                .sizes = sizes};
    for (int i = 0; i < tc_rank(x); i++) {
        sizes[i] = tc_size(x, i);
    }
    return b;
}

/* The symbolic program on the memory of the fixed one. */
static void run_symbolic(drawn *d, tc_program *f)
{
    static int64_t sizes[MOST_INPUTS + MOST_OUTPUTS][MOST_LIST + 4];
    tc_buf in[MOST_INPUTS], out[MOST_OUTPUTS];
    for (int i = 0; i < d->n_inputs; i++) {
        in[i] = shaped(d->inputs[i], d->memory[i], sizes[i]);
    }
    for (int i = 0; i < d->n_outputs; i++) {
        d->got[1][i] = calloc(1, (size_t)tc_nbytes(d->outputs[i]) + 1);
        out[i] = shaped(d->outputs[i], d->got[1][i], sizes[MOST_INPUTS + i]);
    }
    tc_bufs ins = {in, d->n_inputs}, outs = {out, d->n_outputs};
    d->status[1] = tc_run(f, ins, outs);
}

static double float_at(tc_dtype t, const void *p, int64_t i)
{
    uint16_t half = 0;
    uint32_t single;
    float value;
    if (t == TC_F64) {
        return ((const double *)p)[i];
    }
    if (t == TC_F32) {
        return (double)((const float *)p)[i];
    }
    memcpy(&half, (const uint16_t *)p + i, sizeof(half));
    if (t == TC_BF16) {
        single = (uint32_t)half << 16;
        memcpy(&value, &single, sizeof(value));
        return (double)value;
    }
    int exponent = half >> 10 & 31, rest = half & 1023;
    double size = exponent == 31 ? (rest ? (double)NAN : (double)INFINITY)
                  : exponent     ? ldexp(1024 + rest, exponent - 25)
                                 : ldexp(rest, -24);
    return half >> 15 ? -size : size;
}

/* Where output i of both ways is not the same in bits, or -1. Not strict: floats may be apart as
 * sums in another order are, as an axis of one element is none of a sum. */
static int64_t differs_at(const drawn *d, int i, bool strict)
{
    tc_dtype t = tc_dtype_of(d->outputs[i]);
    int64_t n = tc_count(d->outputs[i]);
    if (strict || !is_float(t)) {
        return same_until(t, d->got[0][i], d->got[1][i], n);
    }
    double eps = t == TC_F64 ? 1e-12 : t == TC_F32 ? 1e-5 : 2e-2;
    for (int64_t k = 0; k < n; k++) {
        double x = float_at(t, d->got[0][i], k), y = float_at(t, d->got[1][i], k);
        if (!(x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= eps * (1 + fabs(x)))) {
            return k;
        }
    }
    return -1;
}

/* Both programs with these values. */
static void check_point(drawn *d, tc_program *f, const char *params, const int64_t *values)
{
    bool has_index = false;
    for (int i = 0; i < d->n_inputs; i++) {
        fill(d, i);
        has_index = has_index || d->bound[i] > 0; /* may be outside; told where it is read */
    }
    run(d, 0);
    run_symbolic(d, f);
    bool same = d->status[0] == d->status[1];
    CHECK_MSG(same || (has_index && d->status[1] == TC_ERR_INDEX),
              "%s(%s) at n, m = %lld, %lld: %s, with symbols %s: %s", d->name, params,
              (long long)values[0], (long long)values[1], tc_status_text(d->status[0]),
              tc_status_text(d->status[1]), tc_error(f));
    for (int i = 0; i < d->n_outputs && !d->status[0] && !d->status[1]; i++) {
        int64_t at = differs_at(d, i, values[0] >= 2 && values[1] >= 2);
        CHECK_MSG(at < 0,
                  "%s(%s) at n, m = %lld, %lld: output %d of %d differs at element %lld of "
                  "%lld",
                  d->name, params, (long long)values[0], (long long)values[1], i, d->n_outputs,
                  (long long)at, (long long)tc_count(d->outputs[i]));
    }
}

/* A symbolic program at the least, the next and the second next value of each symbol. */
static void check_symbolic(const symbolic *s, tc_program *f)
{
    enum { POINTS = 9 };
    static drawn fixed[POINTS];
    int64_t values[POINTS][N_SYMBOLS];
    int n = 0;
    tc_options o = {.backend = "interp"};
    tc_ctx *ctx = NULL;
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    for (int i = 0; i < POINTS; i++) {
        values[n][0] = s->sizes.least[0] + i % 3;
        values[n][1] = s->sizes.least[1] + i / 3;
        n += draw_fixed(&fixed[n], ctx, s, values[n]);
    }
    compile(fixed, n, 0, true);
    for (int i = 0; i < n; i++) {
        if (fixed[i].programs[0]) {
            check_point(&fixed[i], f, tc_op_params(s->op), values[i]);
        }
        drop(&fixed[i]);
    }
    tc_ctx_free(ctx);
}

static void check_batch(symbolic *all, int n, int way)
{
    static drawn drawns[BATCH];
    for (int i = 0; i < n; i++) {
        drawns[i] = all[i].d;
    }
    compile(drawns, n, way, true);
    for (int i = 0; i < n; i++) {
        if (drawns[i].programs[way]) {
            check_symbolic(&all[i], drawns[i].programs[way]);
        }
        drop(&drawns[i]);
    }
}

/* The rank of a squeeze follows from which sizes are 1, which no symbol is. */
static bool depends_on_ones(const char *name)
{
    return !strcmp(name, "squeeze");
}

static void sweep_calls(int way, int accepted_most)
{
    static symbolic all[BATCH];
    int n = 0, calls = 0, programs = 0;
    tc_ctx *ctx = NULL;
    for (int op = 0; tc_op_name(op); op++) {
        int accepted = 0, n_results = 1;
        bool swept_too = is_drawn(tc_op_name(op)) && !depends_on_ones(tc_op_name(op));
        int most = accepted_most * (strstr(tc_op_params(op), "text") ? 6 : 1); /* modes */
        for (int t = 0; t < SWEEP_TRIES && accepted < most && swept_too; t++) {
            if (!ctx) {
                REQUIRE(tc_ctx_make(&ctx, NULL) == TC_OK);
            }
            bool fits = draw_symbolic(&all[n], ctx, op, &n_results);
            accepted += fits;
            n += fits;
            if (n == BATCH) {
                check_batch(all, n, way);
                programs += n;
                n = 0;
                tc_ctx_free(ctx);
                ctx = NULL;
            }
        }
        calls += accepted > 0;
    }
    check_batch(all, n, way);
    tc_ctx_free(ctx);
    printf("fuzz/%s: %d calls, %d programs\n", tct_name, calls, programs + n);
    CHECK(calls > 250);
}

TEST(calls_by_name)
{
    static drawn all[BATCH];
    int ways = has_compiler() ? 2 : 1, n = 0, calls = 0, programs = 0;
    tc_ctx *ctx = NULL;
    for (int op = 0; tc_op_name(op); op++) {
        int accepted = 0, n_results = 1, most = tct_soak ? ACCEPTED_SOAK : ACCEPTED;
        for (int t = 0; t < TRIES && accepted < most && is_drawn(tc_op_name(op)); t++) {
            if (!ctx) {
                REQUIRE(tc_ctx_make(&ctx, &(tc_options){.backend = "interp"}) == TC_OK);
            }
            if (draw(&all[n], ctx, op, &n_results)) {
                accepted++;
                n++;
            }
            if (n == BATCH) {
                run_batch(all, n, ways);
                programs += n;
                n = 0;
                tc_ctx_free(ctx);
                ctx = NULL;
            }
        }
        calls++;
        CHECK_MSG(accepted > 0 || !is_drawn(tc_op_name(op)), "%s(%s) was never accepted",
                  tc_op_name(op), tc_op_params(op));
    }
    run_batch(all, n, ways);
    tc_ctx_free(ctx);
    printf("fuzz/%s: %d calls, %d programs\n", tct_name, calls, programs + n);
}

TEST(symbols_against_numbers)
{
    sweep_calls(0, tct_soak ? SWEPT_SOAK : SWEPT);
}

TEST(symbols_against_numbers_natively)
{
    if (!tct_soak || !has_compiler()) {
        SKIP("%s", tct_soak ? "no compiler" : "long: with TC_TEST_SOAK=1");
    }
    sweep_calls(1, SWEPT_SOAK / 4);
}

TEST_MAIN
