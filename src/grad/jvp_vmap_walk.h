/* grad/jvp_vmap_walk.h - declares the forward graph transformation shared by jvp.c and vmap.c,
 * which maps each node to its tangent (JVP) or to its batched value (vmap).
 *
 * Loops (REPEAT nodes) are visited through their bodies: a BOUND node gets a mapped BOUND node if
 * the operand that it represents is mapped. A carry is mapped if its initial value is, or if its
 * next value in the body is. The body is visited until no further carry becomes mapped (a fixed
 * point). */
#ifndef TCI_GRAD_JVP_VMAP_WALK_H
#define TCI_GRAD_JVP_VMAP_WALK_H

#include "../graph/build.h"
#include "../graph/loop_node.h"

typedef struct tci_forward tci_forward;

/* Rules of a propagation: how companions are built. */
typedef struct tci_forward_rules {
    tci_node *(*rule)(tci_forward *w, tci_node *n);  /* the companion of n, or NULL */
    tci_node *(*whole)(tci_forward *w, tci_node *n); /* of n without a companion */
    int axes;      /* in front of the axes of a companion: 0, or 1 of w->count elements */
    bool replaces; /* it stands for the node, which a body needs no more */
} tci_forward_rules;

struct tci_forward {
    tci_scratch *s;
    tci_graph *g;
    const tci_forward_rules *rules;
    tci_dim count;
    tci_table companions; /* of tci_node *; NULL: none */
    tci_table done;
    tci_table loops; /* of tci_forward_loop *, of a REPEAT */
};

TCI_FN tci_forward tci_forward_begin(tci_scratch *s, tci_graph *g, const tci_forward_rules *rules,
                                     tci_dim count);
static inline tci_node **tci_forward_of(tci_forward *w, const tci_node *n)
{
    return (tci_node **)tci_table_at(&w->companions, n);
}
/* n itself; longjmps with the graph's error on NULL. */
TCI_FN tci_node *tci_forward_built(const tci_forward *w, tci_node *n);
/* n's shape after the axes in front. */
TCI_FN tci_dim *tci_forward_shape(const tci_forward *w, const tci_node *n);
/* The companion of n, or w->rules->whole. */
TCI_FN tci_node *tci_forward_all(tci_forward *w, tci_node *n);
/* The companion of root. A rule may expand into nodes that the traversal reaches later: whoever is
 * first visits them. */
TCI_FN tci_node *tci_forward_visit(tci_forward *w, tci_node *root);

/* A REPEAT on the way: per operand outside has, and the companion of its BOUND node; per result of
 * a step its companion. */
typedef struct tci_forward_loop {
    tci_repeat r;
    bool *has;
    tci_node **bound, **made;
    int *result; /* per result: its number among those of the companion REPEAT, or -1 */
    /* a carry more, by which the companion REPEAT stops; NULL: none */
    tci_node *go_init, *go_bound, *go_next;
} tci_forward_loop;
/* all: every carry has something. */
TCI_FN tci_forward_loop *tci_forward_find_loop(tci_forward *w, tci_node *n, bool all);
/* The companion REPEAT of n; NULL: no result has a companion. */
TCI_FN tci_node *tci_forward_repeat(tci_forward *w, const tci_node *n, tci_forward_loop *loop);
TCI_FN tci_node *tci_forward_result(tci_forward *w, const tci_node *n);

#endif
