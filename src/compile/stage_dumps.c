/* compile/stage_dumps.c - TC_DUMP: writes the IR after each stage to files.
 *
 * In: a batch during compilation. Out: graph.txt, plan.txt, kernel.txt, loop.txt, source.c and
 * others in the directory of each program (debug/dump.c). The driver calls one function after each
 * stage, which writes if options.dump has the word of that stage; stages know nothing of dumps. */
#include <string.h>

#include "../debug/source_location.h"
#include "../plan/fusion_groups.h"
#include "compile.h"

TCI_FN void tci_compile_dump_graph(tci_compile_batch_state *b, tci_compile_job *job,
                                   const char *stage, const char *file, tci_node **roots)
{
    tci_str text = {.s = &b->scratch};
    if (tci_dump_wants(&job->dump, stage)) {
        tci_graph_print(&text, &b->scratch, roots, job->request->n_roots);
        tci_dump_file(&job->dump, file, &text);
    }
}

TCI_FN void tci_compile_dump_dot(tci_compile_batch_state *b, tci_compile_job *job)
{
    tci_str text = {.s = &b->scratch};
    if (tci_dump_wants(&job->dump, "dot")) {
        tci_graph_print_dot(&text, &b->scratch, job->copy.roots, job->request->n_roots);
        tci_dump_file(&job->dump, "graph.dot", &text);
    }
}

TCI_FN void tci_compile_dump_plan(tci_compile_batch_state *b, tci_compile_job *job)
{
    if (tci_dump_wants(&job->dump, "plan")) {
        tci_str text = {.s = &b->scratch};
        tci_plan_print(&text, job->plan);
        tci_dump_file(&job->dump, "plan.txt", &text);
    }
    if (tci_dump_wants(&job->dump, "dot")) {
        tci_str text = {.s = &b->scratch};
        tci_plan_print_dot(&text, job->plan);
        tci_dump_file(&job->dump, "plan.dot", &text);
    }
    if (tci_dump_wants(&job->dump, "groups")) {
        tci_str text = {.s = &b->scratch};
        tci_fusion_print(&text, job->plan->fusion);
        tci_dump_file(&job->dump, "groups.txt", &text);
    }
    if (tci_dump_wants(&job->dump, "kernel")) {
        tci_str text = {.s = &b->scratch};
        for (int i = 0; i < job->plan->n_kernels; i++) {
            tci_str_printf(&text, "%s\n", job->plan->kernels[i]->name);
            tci_kernel_print(&text, job->plan->kernels[i]);
            tci_str_add(&text, "\n");
        }
        tci_dump_file(&job->dump, "kernel.txt", &text);
    }
    if (job->plan->why.n) {
        tci_str plain = {.s = &b->scratch};
        tci_why_plain(&plain, job->plan->why.text);
        tci_log(b->options, "fusion", "%s", tci_str_text(&plain));
    }
}

TCI_FN void tci_compile_dump_code(tci_compile_batch_state *b, tci_compile_job *job)
{
    tci_str text = {.s = &b->scratch};
    if (tci_dump_wants(&job->dump, "steps")) {
        tci_code_print(&text, job->code);
        tci_dump_file(&job->dump, "steps.txt", &text);
    }
    if (tci_dump_wants(&job->dump, "interp") && !job->code->n_symbols && !b->native) {
        tci_str interp = {.s = &b->scratch};
        for (int i = 0; i < job->code->n_kernels; i++) {
            tci_str_printf(&interp, "%s\n", job->code->kernels[i].symbol);
            if (job->code->kernels[i].interp) {
                tci_interp_print(&interp, job->code->kernels[i].interp);
            }
            tci_str_add(&interp, "\n");
        }
        tci_dump_file(&job->dump, "interp.txt", &interp);
    }
}

/* Kernels are shared between the jobs of a batch: the first job's folder shows them. */
TCI_FN void tci_compile_dump_loops(tci_compile_batch_state *b)
{
    tci_str text = {.s = &b->scratch};
    if (tci_dump_wants(&b->jobs[0].dump, "loop")) {
        for (int i = 0; i < b->jit.n_kernels; i++) {
            const tci_jit_kernel *k = &b->jit.kernels[i];
            if (k->loop) {
                tci_str_printf(&text, "%s: %s\n", k->symbol, k->launch.note);
                tci_loop_print(&text, k->loop);
                tci_str_add(&text, "\n");
            }
        }
        tci_dump_file(&b->jobs[0].dump, "loop.txt", &text);
    }
}

/* Before the kernel whose definition the line begins, where it is one of a job's: its nodes. */
static void tci_compile_comment(const tci_compile_batch_state *b, tci_str *out, const char *line,
                                size_t n)
{
    const char *open = memchr(line, '(', n);
    if (!open || line[0] == ' ' || line[0] == '/' || line[0] == '#') {
        return;
    }
    for (int j = 0; j < b->n_jobs; j++) {
        const tci_compile_job *job = &b->jobs[j];
        for (int t = 0; job->plan && t < job->plan->n_steps; t++) {
            const tci_step *step = &job->plan->steps[t];
            int unit = job->units[step->kernel];
            const char *symbol = unit >= 0 ? b->jit.kernels[unit].symbol : NULL;
            size_t length = symbol ? strlen(symbol) : 0;
            if (length && (size_t)(open - line) >= length &&
                !memcmp(open - length, symbol, length)) {
                tci_origin_comment(out, job->request, step->origins, step->n_origins);
                return;
            }
        }
    }
}

/* The source with a comment before each kernel, which is in no cache. */
static void tci_compile_comment_source(tci_compile_batch_state *b, tci_str *out, const char *source)
{
    while (*source) {
        size_t n = strcspn(source, "\n");
        n += source[n] == '\n';
        tci_compile_comment(b, out, source, n);
        tci_str_add_n(out, source, n);
        source += n;
    }
}

TCI_FN void tci_compile_dump_source(tci_compile_batch_state *b)
{
    for (int i = 0; i < b->jit.n_sources; i++) {
        char file[32] = "source.c";
        if (i > 0) {
            snprintf(file, sizeof(file), "source%d.c", i + 1);
        }
        if (tci_dump_wants(&b->jobs[0].dump, "source")) {
            tci_str commented = {.s = &b->scratch};
            tci_compile_comment_source(b, &commented, b->jit.sources[i].text);
            tci_dump_file(&b->jobs[0].dump, file, &commented);
        }
        tci_log(b->options, "source", "%s", b->jit.sources[i].text);
    }
}
