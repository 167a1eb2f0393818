/* debug/source_location.c - source locations of kernels: the user's file and line, tc_ call and
 * region of each step of a program.
 *
 * In: the request that found or made a program's code. Out: line, call and region of each canonical
 * node, and their texts. Code (and the disk cache) has canonical numbers only
 * (plan/kernel_origin.c); their locations in the user's source belong to the program, so a cache
 * hit shows the lines of this program. */
#include "source_location.h"

#include <string.h>

#include "string_intern.h"

TCI_FN const char *tci_origin_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

TCI_FN void tci_origin_list(const tci_request *r, tci_origin *list)
{
    const char *file = NULL; /* of the node before: __FILE__ is mostly one address */
    uint32_t label = 0;
    for (int i = 0; i < r->n_user_inputs + r->n_nodes; i++) {
        const tci_node *n = i < r->n_user_inputs ? r->inputs[i] : r->nodes[i - r->n_user_inputs];
        if (n->site.file != file) {
            file = n->site.file;
            label = tci_label_of(file);
        }
        list[i] = (tci_origin){label, n->region, n->site.line, n->call};
    }
}

/* The program that has the origins: an instance's family. */
static const tc_program *tci_origin_owner(const tc_program *f)
{
    return f->origins ? f : f->keeper;
}

/* Of the request's node with that number in the key. */
static const tci_origin *tci_origin_numbered(const tc_program *f, int32_t number)
{
    const tc_program *owner = tci_origin_owner(f);
    bool known = owner->origins && number >= 0 && number < owner->n_origins;
    return known ? &owner->origins[number] : NULL;
}

static const tci_origin *tci_origin_at(const tc_program *f, int step, int i)
{
    return tci_origin_numbered(f, f->code->steps[step].origins[i]);
}

TCI_FN const tci_origin *tci_origin_of_buffer(const tc_program *f, int buffer)
{
    return tci_origin_numbered(f, f->code->buffers[buffer].origin - 1);
}

TCI_FN const tci_origin *tci_origin_of(const tc_program *f, int step)
{
    const tci_origin *found = NULL;
    for (int i = 0; i < f->code->steps[step].n_origins && !(found && found->file); i++) {
        found = tci_origin_at(f, step, i);
    }
    return found;
}

TCI_FN uint32_t tci_origin_region(const tc_program *f, int step)
{
    uint32_t region = 0;
    for (int i = 0; i < f->code->steps[step].n_origins && !(region & ~TCI_REGION_BACKWARD); i++) {
        const tci_origin *o = tci_origin_at(f, step, i);
        region = o && o->region ? o->region : region;
    }
    return region;
}

TCI_FN void tci_origin_line(tci_str *out, const tci_origin *o)
{
    if (o && o->file) {
        tci_str_printf(out, "%s:%d", tci_origin_base(tci_label_text(o->file)), o->line);
    }
    if (o && o->call) {
        tci_str_printf(out, "%s%s", o->file ? " " : "", o->call);
    }
}

TCI_FN void tci_origin_region_text(tci_str *out, uint32_t region)
{
    const char *name = tci_label_text(region & ~TCI_REGION_BACKWARD);
    if (region & TCI_REGION_BACKWARD) {
        tci_str_printf(out, "backward%s%s", *name ? " of " : "", name);
    } else {
        tci_str_add(out, name);
    }
}

TCI_FN void tci_origin_text(tci_str *out, const tc_program *f, int step)
{
    size_t before = out->n;
    tci_origin_line(out, tci_origin_of(f, step));
    uint32_t region = tci_origin_region(f, step);
    if (region) {
        tci_str_add(out, out->n > before ? ", " : "");
        tci_origin_region_text(out, region);
    }
}

TCI_FN const char *tci_program_name(const tc_program *f, char hex[33])
{
    const tc_program *owner = tci_origin_owner(f);
    if (owner->name) {
        return tci_label_text(owner->name);
    }
    tci_hash_hex(f->code->family ? f->code->family->hash : f->code->hash, hex);
    hex[8] = 0;
    return hex;
}

static void tci_origin_comment_line(tci_str *out, const tci_request *r, int32_t number)
{
    const tci_node *n = number < r->n_user_inputs ? r->inputs[number]
                                                  : r->nodes[number - r->n_user_inputs];
    char shape[200];
    tci_graph_print_shape(shape, sizeof(shape), n->rank, n->shape);
    const char *name = n->storage && n->storage->param ? tci_param_name_of(n->storage) : n->name;
    tci_str text = {0};
    tci_str_printf(&text, "%%%d %s%s%s %s %s", number, tci_op_name(n->op), name ? " " : "",
                   name ? name : "", tci_dtype_get((tc_dtype)n->dtype)->name, shape);
    if (n->site.file) {
        tci_str_printf(&text, "  %s:%d", tci_origin_base(n->site.file), n->site.line);
    }
    tci_str_printf(&text, "%s%s%s", n->call ? " " : "", n->call ? n->call : "",
                   n->region ? ", " : "");
    tci_origin_region_text(&text, n->region);
    for (char *c = text.text; c && *c; c++) { /* the user's names cannot end the comment */
        *c = *c == '*' || *c < ' ' ? '.' : *c;
    }
    tci_str_printf(out, " * %s\n", tci_str_text(&text));
    tci_str_free(&text);
}

TCI_FN void tci_origin_comment(tci_str *out, const tci_request *r, const int32_t *numbers, int n)
{
    tci_str_add(out, "/* computes:\n");
    for (int i = n - 1; i >= 0; i--) {
        if (numbers[i] < r->n_user_inputs + r->n_nodes) {
            tci_origin_comment_line(out, r, numbers[i]);
        }
    }
    tci_str_add(out, " */\n");
}
