/* run/signature.c - builds the signature of a program: names, dtypes and sizes of inputs and
 * outputs.
 *
 * In: a request, when a program is made. Out: the user's ports, in the order of tc_run, in the
 * program's own memory. They come from the user's nodes and not from the code, which has no names
 * and its own symbols. */
#include <string.h>

#include "runtime_structs.h"

static void tci_port_add(tci_port_room *room, const tci_node *n)
{
    const char *name = n->op == TCI_OP_INPUT && n->name ? n->name : "";
    size_t n_name = strlen(name) + 1;
    if (room->ports) {
        int64_t *sizes = room->sizes + room->n_sizes;
        for (int i = 0; i < n->rank; i++) {
            sizes[i] = (int64_t)tci_dim_show(n->shape[i]);
        }
        room->ports[room->n_ports] = (tc_port){.name = memcpy(room->text + room->n_text, name,
                                                              n_name),
                                               .dtype = (tc_dtype)n->dtype,
                                               .rank = n->rank,
                                               .sizes = sizes};
    }
    room->n_ports++;
    room->n_sizes += (size_t)n->rank;
    room->n_text += n_name;
}

TCI_FN void tci_port_list(const tci_request *r, tci_port_room *room)
{
    for (int i = 0; i < r->n_user_inputs; i++) {
        tci_port_add(room, r->inputs[i]);
    }
    for (int i = 0; i < r->n_roots - r->n_effects; i++) {
        tci_port_add(room, r->roots[i]);
    }
}
