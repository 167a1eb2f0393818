/* compile/jit.c - JIT driver: kernels to functions through source files, compiler processes and
 * object files.
 *
 * In: the kernels of all programs of a batch. Out: for each a function in a loaded module.
 *
 * Design: the canonical text of a kernel is its identity. Equal kernels are compiled once; kernels
 * that an earlier program compiled are found again (in this process or on disk); only the rest is
 * printed to new source. This is one file or, where that would take long, several of equal
 * estimated compile time (compile/build_cost.c), compiled concurrently, as many as there are CPUs.
 *
 * Invariants: is_found or loop is set once the kernel is scheduled; after tci_jit_compile all are
 * found. The prelude is printed after the kernels, since printing them determines what they need.
 * All files have the same prelude; compilers drop its unused definitions. */
#include "jit.h"

#include <stdlib.h>
#include <string.h>

#include "../base/env.h"
#include "../base/temp_dir.h"
#include "../debug/log.h"
#include "../loop/ir.h"
#include "backend_registry.h"
#include "build_cost.h"
#include "schedule_file.h"

enum {
    TCI_JIT_FILE_COST = 1000, /* statements: for less another process does not pay */
    TCI_JIT_UNIT_COST = 1000, /* statements that take as long as a main loop on a matrix unit */
    TCI_JIT_FILES_MOST = 64,
    TCI_JIT_DEFAULT_TIMEOUT_S = 120,
    TCI_JIT_LOG_BYTES = 3000,
    TCI_JIT_OBJECT_MOST = 1 << 30 /* bytes */
};

#define TCI_JIT_COUNT(field, n)                                                                    \
    __atomic_add_fetch(&tci_counters_get()->field, (n), __ATOMIC_RELAXED)

TCI_FN void tci_jit_begin(tci_jit *j, tci_scratch *s, const tc_options *o,
                          const tci_backend *backend, const tci_disk *disk)
{
    static const tci_mutex unlocked = TCI_MUTEX_INIT;
    memset(j, 0, sizeof(*j));
    j->progress_lock = unlocked;
    j->s = s;
    j->options = o;
    j->backend = backend;
    j->disk = disk;
    if (!tci_forced_read(&j->forced, o)) {
        tci_log(o, "compile", "no schedules: '%s' cannot be read", o->schedule);
    }
}

TCI_FN void tci_jit_end(tci_jit *j)
{
    for (int i = 0; i < j->n_kernels; i++) {
        if (j->kernels[i].is_found) {
            tci_module_release(j->kernels[i].found.module);
        }
    }
    j->n_kernels = 0;
    tci_str_free(&j->said);
    tci_str_free(&j->forced);
}

/* ---- identity ---- */

/* The slot of that key in the table: its entry, or the free slot where it belongs. */
static int32_t *tci_jit_slot(const tci_jit *j, tci_hash hash, const char *key, size_t key_bytes)
{
    uint32_t mask = (uint32_t)j->table_size - 1;
    for (uint32_t at = (uint32_t)hash.lo & mask;; at = (at + 1) & mask) {
        int32_t *slot = &j->table[at];
        if (!*slot) {
            return slot;
        }
        const tci_jit_kernel *k = &j->kernels[*slot - 1];
        if (k->hash.lo == hash.lo && k->hash.hi == hash.hi && k->key_bytes == key_bytes &&
            !memcmp(k->key, key, key_bytes)) {
            return slot;
        }
    }
}

static void tci_jit_grow_table(tci_jit *j)
{
    j->table_size = TCI_MAX(2 * j->table_size, 32);
    j->table = TCI_NEW_ARRAY(j->s, int32_t, j->table_size);
    for (int i = 0; i < j->n_kernels; i++) {
        const tci_jit_kernel *k = &j->kernels[i];
        *tci_jit_slot(j, k->hash, k->key, k->key_bytes) = i + 1;
    }
}

TCI_FN bool tci_jit_takes(const tci_jit *j, const tci_kernel *k)
{
    return !k->call ||
           (k->call->op && k->call->op->op.cuda && !strcmp(j->backend->calls->dialect, "cuda"));
}

TCI_FN int tci_jit_add(tci_jit *j, const tci_kernel *kernel)
{
    if (2 * (j->n_kernels + 1) > j->table_size) {
        tci_jit_grow_table(j);
    }
    tci_str text = {.s = j->s};
    tci_kernel_print(&text, kernel);
    tci_hash name = tci_hash_bytes(text.text, text.n);
    const char *forced = tci_forced_find(j->s, tci_str_text(&j->forced), kernel->name, name);
    tci_str_printf(&text, "\n%s\n%s\n%s\n", j->backend->name, j->backend->target.features,
                   TCI_BUILD_FORM);
    tci_str_add(&text, j->backend->target.record);
    tci_str_printf(&text, "\n%s\n%s",
                   forced                    ? forced
                   : j->options->tune_ms > 0 ? "measured"
                                             : "",
                   j->options->quick_build ? "quick\n" : "");
    tci_hash hash = tci_hash_bytes(text.text, text.n);
    int32_t *slot = tci_jit_slot(j, hash, text.text, text.n);
    if (!*slot) {
        tci_jit_kernel k;
        memset(&k, 0, sizeof(k));
        k.kernel = kernel;
        k.name = name;
        k.forced = forced;
        k.key = text.text;
        k.key_bytes = text.n;
        k.hash = hash;
        TCI_PUSH(j->s, j->kernels, j->n_kernels, j->cap_kernels, k);
        *slot = j->n_kernels;
    }
    return *slot - 1;
}

/* A dump of loops or source shows all of a program, and TC_KEEP its sources with what debuggers
 * need, so nothing may be missing from it. */
static bool tci_jit_must_show_all(const tci_jit *j)
{
    const char *dump = j->options->dump;
    return tci_env_int(TCI_ENV_KEEP, 0) ||
           (dump && (strstr(dump, "loop") || strstr(dump, "source") || strstr(dump, "all")));
}

TCI_FN void tci_jit_find(tci_jit *j)
{
    bool look = !j->exports && !j->shows && !j->anew && !tci_jit_must_show_all(j);
    const tc_backend *calls = j->backend->calls;
    for (int i = 0; i < j->n_kernels; i++) {
        tci_jit_kernel *k = &j->kernels[i];
        k->is_found = look &&
                      tci_module_find_kernel(calls, k->key, k->key_bytes, k->hash, &k->found);
        /* A module without a file cannot become part of an entry on disk. */
        if (k->is_found && j->disk->writable && !k->found.module->stored) {
            tci_module_release(k->found.module);
            k->is_found = false;
        }
        if (look && !k->is_found) {
            k->is_found = tci_disk_load_kernel(j->disk, calls, k->key, k->key_bytes, k->hash,
                                               &k->found);
        }
        j->n_missing += !k->is_found;
        j->n_texts += !k->is_found && k->kernel->call;
    }
    TCI_JIT_COUNT(kernel_hits, j->n_kernels - j->n_missing);
}

/* ---- source ---- */

TCI_FN tc_status tci_jit_find_compiler(tci_jit *j, tci_str *log)
{
    const tc_backend *calls = j->backend->calls;
    const char *wanted = j->options->cc;
    tc_status status = calls->compiler(calls->user, wanted, &j->compiler);
    if (status != TC_OK) {
        const char *why = calls->last_error ? calls->last_error(calls->user) : "";
        tci_str_printf(log, "%s", why[0] ? why : "there is no compiler");
    }
    return status;
}

/* Names of kernels end in eight digits of their hash; two that agree in all get more digits. */
static void tci_jit_name_kernels(tci_jit *j)
{
    int size = 32;
    while (size < 2 * j->n_kernels) {
        size *= 2;
    }
    int32_t *seen = TCI_NEW_ARRAY(j->s, int32_t, size);
    for (int i = 0; i < j->n_kernels; i++) {
        tci_jit_kernel *k = &j->kernels[i];
        char hex[33];
        if (k->is_found) {
            continue;
        }
        tci_hash_hex(k->hash, hex);
        uint32_t at = (uint32_t)(k->hash.hi >> 32) & (uint32_t)(size - 1);
        bool clash = false;
        for (; seen[at]; at = (at + 1) & (uint32_t)(size - 1)) {
            clash |= j->kernels[seen[at] - 1].hash.hi >> 32 == k->hash.hi >> 32;
        }
        seen[at] = i + 1;
        hex[clash ? 32 : 8] = 0;
        k->symbol = tci_scratch_printf(j->s, "%s_%s", k->kernel->name, hex);
    }
}

TCI_FN tci_machine tci_jit_machine(const tci_jit *j)
{
    tci_machine machine = tci_backend_machine(j->backend, j->options);
    machine.vector_bytes = TCI_MIN(machine.vector_bytes, j->compiler.vector_bytes);
    return machine;
}

TCI_FN tci_dialect *tci_jit_dialect(const tci_jit *j)
{
    int vector_bytes = TCI_MIN(j->backend->target.vector_bytes, j->compiler.vector_bytes);
    tci_dialect *d = tci_dialect_make(j->s, j->backend->calls->own_dialect, vector_bytes);
    if (j->exports) {
        tci_dialect_hide(d);
    }
    return d;
}

static void tci_jit_schedule_one(tci_jit *j, tci_jit_kernel *k, tci_machine machine)
{
    char hex[33];
    tci_str why = {.s = j->s};
    k->loop = tci_loop_schedule_as(j->s, k->kernel, machine, k->forced ? k->forced : k->measured,
                                   &why, &k->launch);
    tci_hash_hex(k->name, hex);
    if (why.n) {
        tci_log(j->options, "compile", "%s (%.8s) is not scheduled as '%s': %s", k->kernel->name,
                hex, k->forced, why.text);
    }
    k->note = tci_scratch_printf(j->s, "%s\nschedule %.8s: %s%s", k->launch.note, hex,
                                 k->launch.why, k->measured_note ? k->measured_note : "");
}

/* Symbolic sizes of a call, each once, as words of its launch. */
static void tci_jit_add_dim(tci_jit *j, tci_launch *launch, int *room, tci_dim d)
{
    for (int i = 0; i < launch->n_dims; i++) {
        if (launch->dims[i] == d) {
            return;
        }
    }
    if (!tci_dim_is_known(d)) {
        TCI_PUSH(j->s, launch->dims, launch->n_dims, *room, d);
    }
}

/* A custom op source has no schedule but its blocks. */
static void tci_jit_schedule_call(tci_jit *j, tci_jit_kernel *k)
{
    const tci_custom_call *call = k->kernel->call;
    const tc_custom_array *result = &call->arrays[call->n_inputs];
    int64_t elements = tci_custom_elements(call->op);
    int room = 0;
    k->launch.n_tasks = tci_dim_ceil_div((tci_dim)result->n, (tci_dim)elements);
    for (int i = 0; i <= call->n_inputs; i++) {
        const tc_custom_array *a = &call->arrays[i];
        for (int d = 0; d < a->rank; d++) {
            tci_jit_add_dim(j, &k->launch, &room, tci_dim_list(a->sizes)[d]);
        }
        tci_jit_add_dim(j, &k->launch, &room, (tci_dim)a->n);
    }
    k->note = tci_scratch_printf(j->s,
                                 "the user's text of '%.60s', blocks of %d threads, each for "
                                 "%lld elements",
                                 call->op->op.name, tci_custom_threads(call->op),
                                 (long long)elements);
}

/* For tci_forced_check: whether one of the kernels has the name or hash, or the word names a
 * contraction (plan/contraction_route.c), as no kernel is named. */
static bool tci_jit_has(const void *jit, const char *word, size_t n)
{
    const tci_jit *j = jit;
    bool found = n > 9 && !memcmp(word, "contract_", 9) && word[9] >= '0' && word[9] <= '9';
    for (int i = 0; i < j->n_kernels && !found; i++) {
        char hex[33];
        tci_hash_hex(j->kernels[i].name, hex);
        found = tci_forced_names(word, n, j->kernels[i].kernel->name, hex);
    }
    return found;
}

TCI_FN void tci_jit_schedule(tci_jit *j, bool verify)
{
    tci_machine machine = tci_jit_machine(j);
    for (int i = 0; i < j->n_kernels; i++) {
        tci_jit_kernel *k = &j->kernels[i];
        if (!k->is_found && k->kernel->call) {
            tci_jit_schedule_call(j, k);
        } else if (!k->is_found) {
            tci_jit_schedule_one(j, k, machine);
            if (verify) {
                tci_loop_verify(j->s, k->loop);
            }
        }
    }
    tci_jit_name_kernels(j);
    tci_forced_check(j->options, tci_str_text(&j->forced), tci_jit_has, j);
}

/* A kernel that is missing, and what it takes a compiler. */
typedef struct tci_jit_weight {
    int64_t cost; /* statements */
    int kernel;
} tci_jit_weight;

static int tci_jit_heavier(const void *a, const void *b)
{
    const tci_jit_weight *x = a, *y = b;
    return x->cost != y->cost ? (x->cost < y->cost ? 1 : -1) : x->kernel - y->kernel;
}

/* The kernels of weights, which are tc's own, go to n files: the heaviest first, each to the file
 * that has the least so far. One of the user's has a file of its own after these. */
static void tci_jit_share_out(tci_jit *j, tci_jit_weight *weights, int n_weights, int n)
{
    int64_t *sums = TCI_NEW_ARRAY(j->s, int64_t, n + 1);
    int own = n;
    qsort(weights, (size_t)n_weights, sizeof(*weights), tci_jit_heavier);
    for (int i = 0; i < n_weights; i++) {
        int least = 0;
        for (int f = 1; f < n; f++) {
            least = sums[f] < sums[least] ? f : least;
        }
        j->kernels[weights[i].kernel].file = least;
        sums[least] += weights[i].cost;
    }
    for (int i = 0; i < j->n_kernels; i++) {
        tci_jit_kernel *k = &j->kernels[i];
        if (!k->is_found && k->kernel->call) {
            k->file = own++;
        }
    }
}

/* The texts of the missing kernels, by number, and the weights of tc's own; returns how many. */
static int tci_jit_print(tci_jit *j, tci_dialect *d, tci_str *texts, tci_jit_weight *weights)
{
    int n = 0;
    for (int i = 0; i < j->n_kernels; i++) {
        const tci_jit_kernel *k = &j->kernels[i];
        texts[i].s = j->s;
        if (!k->is_found && k->kernel->call) {
            d->call(d, &texts[i], k->kernel, &k->launch, k->symbol);
        } else if (!k->is_found) {
            tci_emit_kernel(&texts[i], d, k->kernel, k->loop, k->symbol);
            int64_t unit = k->loop->matrix ? TCI_JIT_UNIT_COST : 0;
            weights[n++] = (tci_jit_weight){tci_build_cost(k->loop, texts[i].n) + unit, i};
        }
    }
    return n;
}

/* Number of files for this many kernels. */
static int tci_jit_files(const tci_jit *j, const tci_jit_weight *weights, int n)
{
    int most = j->exports ? 1 : TCI_MIN(tci_os_cpu_count(), (int)TCI_JIT_FILES_MOST);
    most = j->options->compilers > 0 ? TCI_MIN(most, j->options->compilers) : most;
    int64_t total = 0;
    for (int i = 0; i < n; i++) {
        total += weights[i].cost;
    }
    return (int)TCI_MIN(total / TCI_JIT_FILE_COST + 1, (int64_t)TCI_MIN(most, n));
}

TCI_FN void tci_jit_emit(tci_jit *j)
{
    tci_dialect *d = tci_jit_dialect(j);
    tci_str *texts = TCI_NEW_ARRAY(j->s, tci_str, j->n_kernels + 1);
    tci_jit_weight *weights = TCI_NEW_ARRAY(j->s, tci_jit_weight, j->n_kernels + 1);
    if (!j->n_missing) {
        return;
    }
    int n_weights = tci_jit_print(j, d, texts, weights);
    int n = tci_jit_files(j, weights, n_weights);
    j->n_sources = n + j->n_texts;
    j->sources = TCI_NEW_ARRAY(j->s, tci_str, j->n_sources);
    tci_str *bodies = TCI_NEW_ARRAY(j->s, tci_str, j->n_sources), prelude = {.s = j->s};
    d->prelude(d, &prelude);
    for (int f = 0; f < j->n_sources; f++) {
        j->sources[f].s = bodies[f].s = j->s;
    }
    tci_jit_share_out(j, weights, n_weights, n);
    for (int i = 0; i < j->n_kernels; i++) {
        if (!j->kernels[i].is_found) {
            tci_str_add_n(&bodies[j->kernels[i].file], texts[i].text, texts[i].n);
        }
    }
    for (int f = 0; f < j->n_sources; f++) {
        tci_str *source = &j->sources[f];
        tci_str_printf(source, "/* Generated by tc for %s. */\n", j->backend->target.features);
        tci_str_add_n(source, prelude.text, f < n ? prelude.n : 0);
        tci_str_add_n(source, bodies[f].text, bodies[f].n);
        tci_dialect_finish(d, source);
    }
}

/* ---- building ---- */

/* One file of a build. */
typedef struct tci_jit_file {
    char name[32];          /* of its object, in the build's folder */
    tci_str output, object; /* heap: its path; what was read of it */
    tci_module *module;
} tci_jit_file;

/* One run of the backend's compiler. Nothing here may longjmp. */
typedef struct tci_jit_build {
    tci_workdir dir;
    tci_jit_file *files; /* heap: the jit's n_sources, and as many pointers twice */
    const char **sources, **outputs;
    int refused; /* as tc_build says */
} tci_jit_build;

static void tci_jit_say(void *arg, const char *text)
{
    tci_str *said = arg;
    tci_str_add(said, text);
    if (said->n && said->text[said->n - 1] != '\n') {
        tci_str_add(said, "\n");
    }
}

TCI_FN void tci_jit_tell_phase(tci_jit *j, tc_phase phase)
{
    const tc_options *o = j->options;
    if (o->progress) {
        pthread_mutex_lock(&j->progress_lock);
        j->progress.phase = phase;
        o->progress(o->progress_user, &j->progress);
        pthread_mutex_unlock(&j->progress_lock);
    }
}

static void tci_jit_file_is_built(void *jit)
{
    tci_jit *j = jit;
    pthread_mutex_lock(&j->progress_lock);
    j->progress.files_done++;
    j->options->progress(j->options->progress_user, &j->progress);
    pthread_mutex_unlock(&j->progress_lock);
}

static tc_status tci_jit_run_compiler(tci_jit *j, tci_jit_build *b)
{
    const tc_backend *calls = j->backend->calls;
    for (int i = 0; i < j->n_sources; i++) {
        tci_jit_file *file = &b->files[i];
        snprintf(file->name, sizeof(file->name), "tc_%d.so", i);
        tci_str_printf(&file->output, "%s/%s", b->dir.dir.path.text, file->name);
        if (file->output.failed) {
            return TC_ERR_MEMORY;
        }
        b->sources[i] = j->sources[i].text;
        b->outputs[i] = file->output.text;
    }
    tc_build build;
    memset(&build, 0, sizeof(build));
    build.n = j->n_sources;
    build.sources = b->sources;
    build.outputs = b->outputs;
    build.directory = b->dir.dir.path.text;
    build.features = j->backend->target.features;
    build.compiler = j->compiler.path;
    int64_t seconds = j->options->cc_timeout_s;
    seconds = seconds > 0 ? seconds : TCI_JIT_DEFAULT_TIMEOUT_S;
    build.timeout_ms = (int)TCI_MIN((int64_t)INT32_MAX / 2, 1000 * seconds);
    build.keep = b->dir.is_kept;
    build.quick = j->options->quick_build;
    build.say = tci_jit_say;
    build.say_arg = &j->said;
    build.refused = -1;
    build.cancel = j->cancel;
    build.built = j->options->progress ? tci_jit_file_is_built : NULL;
    build.built_arg = j;
    j->progress.files = j->n_sources;
    tci_jit_tell_phase(j, TC_PHASE_COMPILE);
    tc_status status = calls->compile(calls->user, &build);
    TCI_JIT_COUNT(compiler_runs, build.processes);
    b->refused = status == TC_ERR_COMPILER ? build.refused : -1;
    return status;
}

/* An object file into the cache, and from there (else from where it is) into the process. */
static tc_status tci_jit_load(tci_jit *j, tci_jit_build *b, int i)
{
    tci_jit_file *file = &b->files[i];
    const tci_str *object = &file->object;
    char why[256] = "";
    int code = 0;
    tci_str path = {0};
    if (!tci_dir_read(&b->dir.dir, file->name, TCI_JIT_OBJECT_MOST, &file->object, &code)) {
        tci_str_printf(&j->said, "the compiler left no object file: %s\n", strerror(code));
        return TC_ERR_COMPILER;
    }
    tci_hash sum = tci_hash_bytes(object->text, object->n);
    bool stored = tci_disk_store_object(j->disk, sum, object, &j->sources[i], &path);
    const char *from = stored ? path.text : file->output.text;
    file->module = tci_module_load(j->backend->calls, from, object, sum, why);
    if (file->module) {
        file->module->stored = stored;
        if (!stored) {
            tci_module_hold(file->module, object);
        }
        j->written_bytes += stored ? (int64_t)(object->n + j->sources[i].n) : 0;
    } else {
        tci_str_printf(&j->said, "'%s' cannot be loaded: %s\n", file->output.text, why);
        if (stored) {
            tci_disk_remove_object(j->disk, sum);
        }
    }
    tci_str_free(&path);
    return file->module ? TC_OK : TC_ERR_COMPILER;
}

TCI_FN tci_kernel_record tci_jit_record(const tci_jit_kernel *k)
{
    const tci_launch *l = &k->launch;
    tci_kernel_record record = {.symbol = k->symbol,
                                .note = k->note,
                                .n_tasks = l->n_tasks,
                                .task_ns = l->task_ns,
                                .call_ns = l->call_ns,
                                .work_bytes = l->work_bytes,
                                .dims = l->dims,
                                .n_dims = l->n_dims};
    return record;
}

/* Finds the functions of file i's kernels and offers them to later compiles. */
static tc_status tci_jit_bind(tci_jit *j, tci_module *m, int file)
{
    const tc_backend *calls = j->backend->calls;
    for (int i = 0; i < j->n_kernels; i++) {
        tci_jit_kernel *k = &j->kernels[i];
        if (k->is_found || k->file != file) {
            continue;
        }
        void *function = calls->module_find(calls->user, m->handle, k->symbol);
        if (!function) {
            tci_str_printf(&j->said, "'%s' is not in its object file\n", k->symbol);
            return TC_ERR_COMPILER;
        }
        tci_kernel_record record = tci_jit_record(k);
        tci_module_offer(m, k->key, k->key_bytes, k->hash, &record, function);
        tci_module_kernel built = {
            k->hash, (const uint8_t *)k->key, k->key_bytes, record, function, m, NULL};
        tci_module_retain(m);
        k->found = built;
        k->is_found = true;
        tci_disk_store_kernel(j->disk, &built, &j->compiler);
        TCI_JIT_COUNT(kernels_built, 1);
    }
    return TC_OK;
}

/* The op of whose text a source is; NULL: of none. */
static const tc_custom_op *tci_jit_op_of(const tci_jit *j, int source)
{
    for (int i = 0; i < j->n_kernels; i++) {
        const tci_jit_kernel *k = &j->kernels[i];
        if (k->kernel->call && !k->is_found && k->file == source) {
            return &k->kernel->call->op->op;
        }
    }
    return NULL;
}

static void tci_jit_tell(const tci_jit *j, const tci_jit_build *b, tci_str *log)
{
    size_t n = j->said.n;
    const tc_custom_op *op = tci_jit_op_of(j, b->refused);
    if (op) {
        tci_str_printf(log, "the CUDA source of custom op '%.60s' does not compile:\n", op->name);
    } else {
        tci_str_add(log, "compiling the generated code failed:\n");
    }
    tci_str_add_n(log, tci_str_text(&j->said), TCI_MIN(n, (size_t)TCI_JIT_LOG_BYTES));
    if (n > TCI_JIT_LOG_BYTES) {
        tci_str_printf(log, "\n... %zu more bytes\n", n - TCI_JIT_LOG_BYTES);
    }
    const tci_dir *dir = &b->dir.dir;
    if (dir->fd >= 0) {
        tci_dir_publish(dir, TCI_WORKDIR_LOG, tci_str_text(&j->said), n, false, NULL);
        tci_str_printf(log, "source and log are kept in %s", dir->path.text);
    }
}

static tc_status tci_jit_build_all(tci_jit *j, tci_jit_build *b)
{
    const char *last = j->disk->writable ? j->disk->dir.path.text : NULL;
    tci_str why = {0};
    if (!tci_workdir_make(&b->dir, last, tci_env_int(TCI_ENV_KEEP, 0) != 0, &why)) {
        tci_str_printf(&j->said, "no private directory can be made under $TMPDIR or /tmp: %s\n",
                       tci_str_text(&why));
        tci_str_free(&why);
        return TC_ERR_IO;
    }
    if (why.n) {
        tci_log(j->options, "compile", "building in %s: %s", b->dir.dir.path.text, why.text);
    }
    tci_str_free(&why);
    tc_status status = tci_jit_run_compiler(j, b);
    for (int i = 0; i < j->n_sources && status == TC_OK; i++) {
        status = tci_jit_load(j, b, i);
    }
    for (int i = 0; i < j->n_sources && status == TC_OK; i++) {
        status = tci_jit_bind(j, b->files[i].module, i);
    }
    return status;
}

static bool tci_jit_begin_build(tci_jit_build *b, int n)
{
    memset(b, 0, sizeof(*b));
    b->dir.dir.fd = b->dir.base.fd = b->refused = -1;
    b->files = tci_heap_get((size_t)n * (sizeof(*b->files) + 2 * sizeof(char *)));
    b->sources = b->files ? (const char **)(b->files + n) : NULL;
    b->outputs = b->files ? b->sources + n : NULL;
    return b->files != NULL;
}

static void tci_jit_end_build(tci_jit_build *b, int n)
{
    for (int i = 0; i < n; i++) {
        if (b->files[i].module) {
            tci_module_release(b->files[i].module);
        }
        tci_str_free(&b->files[i].output);
        tci_str_free(&b->files[i].object);
    }
    tci_heap_free(b->files);
}

TCI_FN tc_status tci_jit_compile(tci_jit *j, tci_str *log)
{
    tci_jit_build b;
    if (!j->n_missing) {
        return TC_OK;
    }
    if (!tci_jit_begin_build(&b, j->n_sources)) {
        return TC_ERR_MEMORY;
    }
    tc_status status = tci_jit_build_all(j, &b);
    if (status != TC_OK) {
        tci_jit_tell(j, &b, log);
        status = tci_jit_op_of(j, b.refused) ? TC_ERR_ARGUMENT : status;
    } else if (b.dir.is_kept) {
        tci_log(j->options, "compile", "kept: %s", b.dir.dir.path.text);
    }
    tci_workdir_end(&b.dir, status != TC_OK);
    tci_jit_end_build(&b, j->n_sources);
    return status;
}

#undef TCI_JIT_COUNT
