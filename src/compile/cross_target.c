/* compile/cross_target.c - cross compilation: descriptions of machines as text, and backends that
 * compile for machines other than this one.
 *
 * In: a name of the table below, or a file that tc_machine_write wrote; the functions of a backend.
 * Out: a target; functions that compile but do not run.
 *
 * Design: such a backend is the real one with stubs for the functions that load and run code. All
 * stages, both caches and saved programs work as they do for this machine; only a run returns an
 * error. */
#include <stddef.h>
#include <string.h>

#include "backend_registry.h"

#define TCI_FOREIGN_HEAD "tc machine 1"

/* ---- the text ---- */

/* X(name, kind, member of tc_backend_target): kind i int, b bool, l int64_t, d double. */
#define TCI_FOREIGN_ROWS(X)                                                                        \
    X(vector_bytes, 'i', vector_bytes)                                                             \
    X(block_threads, 'i', block_threads)                                                           \
    X(matrix_units, 'i', matrix_units)                                                             \
    X(int_points, 'i', int_points)                                                                 \
    X(has_pairs, 'b', has_pairs)                                                                   \
    X(unit_bytes, 'b', unit_bytes)                                                                 \
    X(warp_unit, 'i', warp_unit)                                                                   \
    X(processors, 'i', machine.processors)                                                         \
    X(ghz, 'd', machine.ghz)                                                                       \
    X(ports, 'i', machine.ports)                                                                   \
    X(registers, 'i', machine.registers)                                                           \
    X(cache1_bytes, 'l', machine.cache_bytes[0])                                                   \
    X(cache2_bytes, 'l', machine.cache_bytes[1])                                                   \
    X(cache3_bytes, 'l', machine.cache_bytes[2])                                                   \
    X(near_bytes, 'd', machine.near_bytes)                                                         \
    X(far_bytes, 'd', machine.far_bytes)                                                           \
    X(all_bytes, 'd', machine.all_bytes)                                                           \
    X(one_gbs, 'd', machine.one_gbs)                                                               \
    X(memory_gbs, 'd', machine.memory_gbs)                                                         \
    X(subgroup, 'i', machine.subgroup)                                                             \
    X(shared_bytes, 'l', machine.shared_bytes)                                                     \
    X(shared_most, 'l', machine.shared_most)                                                       \
    X(matrix_flops, 'd', machine.matrix_flops)                                                     \
    X(launch_ns, 'd', machine.launch_ns)                                                           \
    X(wake_ns, 'd', machine.wake_ns)

typedef struct tci_foreign_row {
    const char *name;
    char kind;
    size_t at;
} tci_foreign_row;

static const tci_foreign_row tci_foreign_rows[] = {
#define TCI_ROW(name, kind, member) {#name, kind, offsetof(tc_backend_target, member)},
    TCI_FOREIGN_ROWS(TCI_ROW)
#undef TCI_ROW
};

/* Records that come with tc. Rates that are not known stay 0: careful values take their place. */
static const struct {
    const char *name, *text;
} tci_foreign_known[] = {
    {"x86-64-v2", TCI_FOREIGN_HEAD "\nbackend cpu\nfeatures sse42 vector=16\n"
                                   "vector_bytes 16\nprocessors 16\n"},
    {"x86-64-v3", TCI_FOREIGN_HEAD "\nbackend cpu\nfeatures avx2,fma,f16c vector=32\n"
                                   "vector_bytes 32\nint_points 2\nprocessors 16\n"},
    {"x86-64-v4", TCI_FOREIGN_HEAD
     "\nbackend cpu\nfeatures avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c vector=64\n"
     "vector_bytes 64\nint_points 2\nprocessors 16\n"},
    {"x86-64-amx", TCI_FOREIGN_HEAD
     "\nbackend cpu\nfeatures avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,amx,bytes,vnni "
     "vector=64\nvector_bytes 64\nmatrix_units 1\nint_points 4\nunit_bytes 1\nprocessors 16\n"
     "cache1_bytes 32768\ncache2_bytes 2097152\ncache3_bytes 33554432\n"},
    {"sm_80", TCI_FOREIGN_HEAD
     "\nbackend cuda\nfeatures cuda sm_80, 108 processors, driver 0\nvector_bytes 16\n"
     "block_threads 512\nwarp_unit 15\nmatrix_flops 2048\nprocessors 108\nghz 1.41\n"
     "registers 65536\ncache3_bytes 41943040\nmemory_gbs 1555\nsubgroup 32\n"
     "shared_bytes 49152\nshared_most 166912\n"},
    {"sm_90", TCI_FOREIGN_HEAD
     "\nbackend cuda\nfeatures cuda sm_90, 132 processors, driver 0\nvector_bytes 16\n"
     "block_threads 512\nmatrix_units 132\nwarp_unit 12\nprocessors 132\nghz 1.98\n"
     "registers 65536\ncache3_bytes 52428800\nmemory_gbs 3350\nsubgroup 32\n"
     "shared_bytes 49152\nshared_most 232448\n"},
};

/* A number without a sign or exponent, with a point whatever the locale. False: it is none. */
static bool tci_foreign_number(const char *text, double *value)
{
    double scale = 0;
    *value = 0;
    bool good = text[0] != 0;
    for (; *text && good; text++) {
        good = (*text >= '0' && *text <= '9') || (*text == '.' && scale == 0);
        if (*text == '.') {
            scale = 1;
        } else if (good) {
            *value = *value * 10 + (*text - '0');
            scale *= 10;
        }
    }
    *value = scale > 0 ? *value / scale : *value;
    return good && *value < 1e15;
}

static bool tci_foreign_set(tc_backend_target *t, const char *name, const char *text)
{
    double value;
    for (int i = 0; i < TCI_COUNT(tci_foreign_rows); i++) {
        const tci_foreign_row *row = &tci_foreign_rows[i];
        char *at = (char *)t + row->at;
        if (strcmp(row->name, name)) {
            continue;
        }
        if (!tci_foreign_number(text, &value) || (row->kind == 'i' && value > INT32_MAX)) {
            return false;
        }
        int small = row->kind == 'i' ? (int)value : 0;
        int64_t large = (int64_t)value;
        bool flag = value != 0;
        switch (row->kind) {
        case 'i': memcpy(at, &small, sizeof(small)); break;
        case 'b': memcpy(at, &flag, sizeof(flag)); break;
        case 'l': memcpy(at, &large, sizeof(large)); break;
        default: memcpy(at, &value, sizeof(value)); break;
        }
        return true;
    }
    return false;
}

static double tci_foreign_get(const tc_backend_target *t, const tci_foreign_row *row)
{
    const char *at = (const char *)t + row->at;
    int small;
    int64_t large;
    double value;
    bool flag;
    switch (row->kind) {
    case 'i': memcpy(&small, at, sizeof(small)); return small;
    case 'b': memcpy(&flag, at, sizeof(flag)); return flag;
    case 'l': memcpy(&large, at, sizeof(large)); return (double)large;
    default: memcpy(&value, at, sizeof(value)); return value;
    }
}

/* Features reach the source as a comment, and keys as text. */
static bool tci_foreign_features(tc_backend_target *t, const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_=, ";
    size_t n = strlen(text);
    bool good = n > 0 && n < sizeof(t->features) && strspn(text, letters) == n;
    if (good) {
        memcpy(t->features, text, n + 1);
    }
    return good;
}

/* One line. False: it is not understood. */
static bool tci_foreign_line(tci_foreign_record *r, char *line)
{
    size_t n = strcspn(line, " ");
    char *value = line + n + (line[n] == ' ');
    line[n] = 0;
    if (!strcmp(line, "backend")) {
        snprintf(r->backend, sizeof(r->backend), "%s", value);
        return strlen(value) < sizeof(r->backend);
    }
    return !strcmp(line, "features") ? tci_foreign_features(&r->target, value)
                                     : tci_foreign_set(&r->target, line, value);
}

/* Reason why a machine cannot be compiled for. NULL: it can. */
static const char *tci_foreign_judge(const tci_foreign_record *r)
{
    const tc_backend_target *t = &r->target;
    int v = t->vector_bytes;
    bool vectors = v == 0 || v == 16 || v == 32 || v == 64;
    bool blocks = t->block_threads == 0 || (t->block_threads >= 32 && t->block_threads <= 1024 &&
                                            (t->block_threads & (t->block_threads - 1)) == 0);
    return !r->backend[0]    ? "it names no backend"
           : !t->features[0] ? "it has no features"
           : !vectors        ? "vector_bytes is 0, 16, 32 or 64"
           : !blocks         ? "block_threads is 0 or a power of two up to 1024"
                             : NULL;
}

static bool tci_foreign_parse(tci_foreign_record *r, char *text, tci_str *why)
{
    int number = 0;
    bool good = true;
    memset(r, 0, sizeof(*r));
    for (char *line = text; *line && good;) {
        size_t n = strcspn(line, "\r\n");
        char *next = line + n + strspn(line + n, "\r\n");
        line[n] = 0;
        number++;
        good = number == 1 ? !strcmp(line, TCI_FOREIGN_HEAD)
                           : !line[0] || line[0] == '#' || tci_foreign_line(r, line);
        if (!good) {
            tci_str_printf(why, "line %d, '%.60s', is not understood", number, line);
        }
        line = next;
    }
    const char *wrong = good ? tci_foreign_judge(r) : NULL;
    if (wrong) {
        tci_str_add(why, wrong);
    }
    if (!number) {
        tci_str_add(why, "it is empty");
    }
    return good && number && !wrong;
}

/* The text of a record by its name or path, on the heap. */
static bool tci_foreign_text(const char *name, tci_str *text, tci_str *why)
{
    int code = 0;
    for (int i = 0; i < TCI_COUNT(tci_foreign_known); i++) {
        if (!strcmp(tci_foreign_known[i].name, name)) {
            tci_str_add(text, tci_foreign_known[i].text);
            return !text->failed;
        }
    }
    if (!strcmp(name, "x86-64")) {
        tci_str_add(why, "it has no SSE4.2, which generated code needs (x86-64-v2): such machines "
                         "interpret");
        return false;
    }
    if (!tci_os_read_file(name, text, &code)) {
        tci_str_printf(why,
                       "%s; expected a file of tc_machine_write, x86-64-v2, x86-64-v3, x86-64-v4, "
                       "x86-64-amx, sm_80 or sm_90",
                       strerror(code));
        return false;
    }
    return true;
}

TCI_FN bool tci_foreign_read(const char *name, tci_foreign_record *r, tci_str *why)
{
    tci_str text = {0};
    bool good = tci_foreign_text(name, &text, why) && text.text &&
                tci_foreign_parse(r, text.text, why);
    tci_str_free(&text);
    return good;
}

TCI_FN void tci_foreign_write(FILE *out, const tci_backend *b)
{
    const tci_target *from = &b->target;
    tc_backend_target t = {.vector_bytes = from->vector_bytes,
                           .block_threads = from->block_threads,
                           .matrix_units = from->matrix_units,
                           .int_points = from->int_points,
                           .has_pairs = from->has_pairs,
                           .unit_bytes = from->unit_bytes,
                           .warp_unit = from->warp_unit,
                           .machine = from->machine};
    fprintf(out, TCI_FOREIGN_HEAD "\nbackend %s\nfeatures %s\n", b->name, from->features);
    for (int i = 0; i < TCI_COUNT(tci_foreign_rows); i++) {
        char text[64];
        double value = tci_foreign_get(&t, &tci_foreign_rows[i]);
        bool whole = value == (double)(int64_t)value;
        snprintf(text, sizeof(text), whole ? "%.0f" : "%.12f", value);
        text[strcspn(text, ",")] = strchr(text, ',') ? '.' : 0; /* of the locale */
        fprintf(out, "%s %s\n", tci_foreign_rows[i].name, text);
    }
}

/* ---- a backend that only compiles ---- */

static tc_status tci_foreign_load(void *user, const void *bytes, size_t n, const char *path,
                                  void **module)
{
    (void)bytes, (void)n, (void)path;
    *module = user ? user : module;
    return TC_OK;
}

static void *tci_foreign_find(void *user, void *module, const char *symbol)
{
    (void)user, (void)symbol;
    return module;
}

static void tci_foreign_free_module(void *user, void *module)
{
    (void)user, (void)module;
}

static tc_status tci_foreign_launch(void *user, const tc_launch *launch)
{
    (void)user, (void)launch;
    return TC_ERR_UNSUPPORTED;
}

static tc_status tci_foreign_sync(void *user)
{
    (void)user;
    return TC_OK;
}

static void *tci_foreign_alloc(void *user, int64_t bytes)
{
    (void)user;
    return tci_heap_get_aligned((size_t)bytes);
}

static void tci_foreign_free(void *user, void *memory)
{
    (void)user;
    tci_heap_free_aligned(memory);
}

static tc_status tci_foreign_copy(void *user, void *to, const void *from, int64_t bytes)
{
    (void)user, (void)to, (void)from, (void)bytes;
    return TC_ERR_UNSUPPORTED;
}

static const char *tci_foreign_error(void *user)
{
    (void)user;
    return "the program was compiled for another machine (options.machine), which can do more than "
           "this one: save it, or export the cache";
}

static const tc_backend tci_foreign_device = {.name = "cpu",
                                              .launch = tci_foreign_launch,
                                              .sync = tci_foreign_sync,
                                              .last_error = tci_foreign_error};

TCI_FN const tc_backend *tci_foreign_refuses(const tc_backend *calls)
{
    return calls->module_find == tci_foreign_find ? &tci_foreign_device : NULL;
}

/* The real backend's compiler, and stubs. */
TCI_FN tc_backend tci_foreign_stubs(const tc_backend *real)
{
    tc_backend b = {.name = real->name,
                    .dialect = real->dialect,
                    .own_dialect = real->own_dialect,
                    .user = real->user,
                    .target = real->target,
                    .compiler = real->compiler,
                    .compile = real->compile,
                    .module_load = tci_foreign_load,
                    .module_find = tci_foreign_find,
                    .module_free = tci_foreign_free_module,
                    .last_error = tci_foreign_error};
    if (real->launch) {
        b.launch = tci_foreign_launch;
        b.sync = tci_foreign_sync;
    }
    if (real->alloc) {
        b.alloc = tci_foreign_alloc;
        b.free = tci_foreign_free;
        b.upload = b.download = tci_foreign_copy;
    }
    return b;
}

#undef TCI_FOREIGN_HEAD
