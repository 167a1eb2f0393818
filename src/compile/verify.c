/* compile/verify.c - checks what compile/code.h says of finished code; a broken invariant escapes
 * as an internal error. A family's sizes are not known, so nothing is said of them. */
#include "code.h"

static void tci_code_verify_port(tci_scratch *s, const tci_code_port *p)
{
    tci_dim n = 1;
    bool known = true;
    TCI_ASSERT(s, tci_dtype_is_valid(p->dtype) && p->rank >= 0);
    for (int a = 0; a < p->rank; a++) {
        known = known && tci_dim_is_known(p->shape[a]);
        n = tci_dim_mul(n, p->shape[a]);
    }
    TCI_ASSERT(s, !known || (p->n == n && tci_dim_le(0, n) && tci_dim_le(0, p->bytes)));
}

static void tci_code_verify_kernel(tci_scratch *s, const tci_code *c, const tci_code_kernel *k)
{
    int ways = (k->fn != NULL) + (k->interp != NULL) + (k->function != NULL) + (k->kernel != NULL);
    bool native = k->fn || k->function;
    TCI_ASSERT(s, ways == 1 && k->n_operands >= 0 && k->n_literals >= 0 && k->n_dims >= 0);
    TCI_ASSERT(s, !k->function || c->device);
    TCI_ASSERT(s, !native || c->family || (k->module >= 0 && k->module < c->n_modules));
    TCI_ASSERT(s, !tci_dim_is_known(k->n_tasks) || tci_dim_le(0, k->n_tasks));
    TCI_ASSERT(s, !tci_dim_is_known(k->work_bytes) || tci_dim_le(0, k->work_bytes));
}

static void tci_code_verify_buffer(tci_scratch *s, const tci_code *c, const tci_code_buffer *b)
{
    int ports = b->kind == TCI_BUF_INPUT ? c->n_inputs : c->n_outputs;
    TCI_ASSERT(s, b->kind <= TCI_BUF_TEMP);
    TCI_ASSERT(s, b->kind == TCI_BUF_TEMP || (b->index >= 0 && b->index < ports));
    if (b->kind == TCI_BUF_TEMP && c->n_symbols == 0 && b->last >= 0) {
        TCI_ASSERT(s, b->offset >= 0 && b->offset % 64 == 0);
        TCI_ASSERT(s, tci_dim_le(tci_dim_add(b->offset, b->bytes), c->arena_bytes));
    }
}

/* Buffers, within their lives, and literals. */
static void tci_code_verify_step(tci_scratch *s, const tci_code *c, int t)
{
    const tci_code_step *step = &c->steps[t];
    TCI_ASSERT(s, step->kernel >= 0 && step->kernel < c->n_kernels);
    const tci_code_kernel *k = &c->kernels[step->kernel];
    for (int o = 0; o < k->n_operands; o++) {
        TCI_ASSERT(s, step->operands[o] >= 0 && step->operands[o] < c->n_buffers);
        const tci_code_buffer *b = &c->buffers[step->operands[o]];
        TCI_ASSERT(s, b->kind != TCI_BUF_TEMP || (b->first <= t && t <= b->last));
    }
    for (int l = 0; l < k->n_literals; l++) {
        TCI_ASSERT(s, step->literals[l] >= 0 && step->literals[l] < c->n_literals);
    }
}

static void tci_code_verify_alias(tci_scratch *s, const tci_code *c, const tci_alias *a)
{
    TCI_ASSERT(s, a->output >= 0 && a->output < c->n_outputs);
    TCI_ASSERT(s, a->input >= 0 && a->input < c->n_inputs);
    TCI_ASSERT(s, c->inputs[a->input].bytes == c->outputs[a->output].bytes);
    TCI_ASSERT(s, c->inputs[a->input].dtype == c->outputs[a->output].dtype);
}

TCI_FN void tci_code_verify(tci_scratch *s, const tci_code *c)
{
    TCI_ASSERT(s, c->n_symbols > 0 || c->arena_bytes >= 0);
    for (int i = 0; i < c->n_inputs; i++) {
        tci_code_verify_port(s, &c->inputs[i]);
    }
    for (int i = 0; i < c->n_outputs; i++) {
        tci_code_verify_port(s, &c->outputs[i]);
    }
    for (int i = 0; i < c->n_kernels; i++) {
        tci_code_verify_kernel(s, c, &c->kernels[i]);
    }
    for (int i = 0; i < c->n_buffers; i++) {
        tci_code_verify_buffer(s, c, &c->buffers[i]);
    }
    for (int t = 0; t < c->n_steps; t++) {
        tci_code_verify_step(s, c, t);
    }
    for (int i = 0; i < c->n_aliases; i++) {
        tci_code_verify_alias(s, c, &c->aliases[i]);
    }
}
