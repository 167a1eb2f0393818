/* api/program_info.c - queries on a compiled program: errors, source, inputs and outputs, counts,
 * compile times; waiting for and cancelling a background compile. */
#include <stdio.h>
#include <string.h>

#include "../debug/recompile.h"
#include "../run/shape_instances.h"
#include "../run/async_compile.h"
#include "api_call.h"

TC_API const char *tc_program_error(const tc_program *f)
{
    return f ? tci_program_error_text((tc_program *)(uintptr_t)f)
             : "the program is NULL: its compile failed?";
}

TC_API const char *tc_call_error(const tc_call *call)
{
    return call ? call->last.text : "the call is NULL: tc_call_make failed?";
}

TC_API const char *tc_source(const tc_program *f)
{
    return f ? tci_code_source(tci_later_current((tc_program *)(uintptr_t)f)->code) : "";
}

TC_API tc_status tc_program_wait(tc_program *f, int64_t milliseconds)
{
    if (!f) {
        return TC_ERR_ARGUMENT;
    }
    if (f->later && !tci_later_wait(f->later, milliseconds)) {
        tci_program_record(f, TC_ERR_BUSY, "tc_program_wait", "it is still being compiled");
        return TC_ERR_BUSY;
    }
    tc_status status = f->later ? f->later->why : TC_OK;
    if (status) {
        tci_program_record(f, status, "tc_program_wait", f->later->text);
    }
    return status;
}

TC_API bool tc_program_ready(const tc_program *f)
{
    return f &&
           (!f->later || __atomic_load_n(&f->later->state, __ATOMIC_ACQUIRE) != TCI_LATER_WAITING);
}

TC_API void tc_program_cancel(tc_program *f)
{
    if (f && f->later) {
        tci_later_cancel(f->later);
    }
}

static tc_status tci_inspect_recompiles(const tc_ctx *ctx, FILE *out, bool json)
{
    if (!out) {
        return TC_ERR_ARGUMENT;
    }
    tci_str text = {0};
    tci_recompile_print(&text, ctx, json);
    bool whole = !text.failed;
    fputs(whole ? tci_str_text(&text) : "", out);
    tci_str_free(&text);
    return !whole ? TC_ERR_MEMORY : ferror(out) ? TC_ERR_IO : TC_OK;
}

TC_API tc_status tc_recompile_report(const tc_ctx *ctx, FILE *out)
{
    return tci_inspect_recompiles(ctx, out, false);
}

TC_API tc_status tc_recompile_report_json(const tc_ctx *ctx, FILE *out)
{
    return tci_inspect_recompiles(ctx, out, true);
}

/* Counts traffic and work of a run of that code. */
static void tci_inspect_count_run(const tci_code *code, tc_program_info *info)
{
    int64_t moved = 0;
    for (int i = code->n_init; i < code->n_steps; i++) {
        int64_t rounds = tci_code_rounds(code, i);
        moved += rounds * tci_dim_known(code->kernels[code->steps[i].kernel].bytes);
        info->flops += rounds * tci_dim_known(code->kernels[code->steps[i].kernel].flops);
    }
    for (int i = 0; i < code->n_outputs; i++) { /* parameters too */
        info->bytes_written += tci_dim_known(code->outputs[i].bytes);
    }
    info->bytes_read = TCI_MAX(0, moved - info->bytes_written);
    info->arena_bytes = tci_code_workspace(code);
}

TC_API tc_status tc_program_get_info(const tc_program *f, tc_program_info *info)
{
    if (!f || !info) {
        return TC_ERR_ARGUMENT;
    }
    const tci_later *later = f->later;
    f = tci_later_current((tc_program *)(uintptr_t)f);
    const tci_code *code = f->code;
    *info = (tc_program_info){.n_inputs = f->n_inputs,
                              .n_outputs = f->n_outputs,
                              .n_kernels = code->n_kernels,
                              .n_steps = code->n_steps,
                              .n_once = code->n_init,
                              .kept_bytes = code->kept_bytes,
                              .backend = code->backend,
                              .from_memory = f->from_memory,
                              .from_disk = f->from_disk,
                              .is_compiling = later && later->program == f &&
                                              __atomic_load_n(&later->state, __ATOMIC_ACQUIRE) ==
                                                  TCI_LATER_WAITING,
                              .may_differ = later && later->may_differ};
#ifdef TC_DYNAMIC_SHAPES
    if (f->dynamic) {
        tci_code *last = tci_dynamic_last((tc_program *)(uintptr_t)f);
        if (last) {
            tci_inspect_count_run(last, info);
            tci_code_release(last);
        }
        return TC_OK;
    }
#endif
    tci_inspect_count_run(code, info);
    return TC_OK;
}

static tc_status tci_inspect_port(const tc_program *f, int i, int begin, int n, tc_port *port)
{
    if (!f || !port || i < 0 || i >= n) {
        return TC_ERR_ARGUMENT;
    }
    *port = f->ports[begin + i];
    return TC_OK;
}

TC_API tc_status tc_program_get_input(const tc_program *f, int i, tc_port *port)
{
    return tci_inspect_port(f, i, 0, f ? f->n_inputs : 0, port);
}

TC_API tc_status tc_program_get_output(const tc_program *f, int i, tc_port *port)
{
    return tci_inspect_port(f, i, f ? f->n_inputs : 0, f ? f->n_outputs : 0, port);
}

TC_API int tc_program_find_input(const tc_program *f, const char *name)
{
    for (int i = 0; f && name && i < f->n_inputs; i++) {
        if (!strcmp(f->ports[i].name, name)) {
            return i;
        }
    }
    return -1;
}

TC_API tc_status tc_compile_times(const tc_program *f, tc_times *times)
{
    if (!f || !times) {
        return TC_ERR_ARGUMENT;
    }
    *times = f->from_memory || f->from_disk ? (tc_times){0} : f->code->times;
    return TC_OK;
}
