/* interp/lower_to_linear.h - declares the value nodes (the interpreter's intermediate DAG between
 * kernel IR and linear IR), and the state that its lowering passes share.
 *
 * A node is one value: an operation over storage bits (bools are lane masks), a load, an index.
 * Nodes are in the order of the instructions, so that a node follows its operands; equal ones are
 * one. The files run in the order lower_to_value_nodes and legalize, hoist, access, linear_ir and
 * reductions, value_memory. Private to interp/. */
#ifndef TCI_INTERP_LOWER_TO_LINEAR_H
#define TCI_INTERP_LOWER_TO_LINEAR_H

#include "linear_ir.h"

typedef enum tci_prep_kind {
    TCI_PREP_CONST,
    TCI_PREP_LIT,
    TCI_PREP_LOAD,
    TCI_PREP_INDEX,
    TCI_PREP_GUARD,
    TCI_PREP_OP,
    TCI_PREP_LANE,
    TCI_PREP_RED,
    TCI_PREP_LEFT, /* part c of what reduction ref joins: only in the section that does so */
    TCI_PREP_RIGHT,
    TCI_PREP_FAULT
} tci_prep_kind;

/* Zeroed before it is filled, so that equal nodes have equal bytes. */
typedef struct tci_prep_node {
    uint8_t kind, prim;
    int8_t dtype, to; /* OP: dtype of operands and result */
    uint8_t bytes, n_args, unused[2];
    int32_t args[3];
    int32_t ref; /* operand, literal slot, helper, reduction */
    int32_t x, guard, n_guards;
    int32_t chain; /* next node of the hash bucket, + 1 */
    int64_t c;
    uint64_t bits;
} tci_prep_node;

/* Element of a reduction, -1 for none, and the parts of two combined tuples. */
typedef struct tci_prep_red {
    int32_t in[TCI_PARTS], joined[TCI_PARTS];
} tci_prep_red;

typedef struct tci_prep_store {
    int32_t node, stage, operand, x;
} tci_prep_store;

enum { TCI_PREP_BUCKETS = 1024 };

typedef struct tci_prep {
    tci_scratch *s;
    const tci_kernel *k;
    tci_interp *p;
    tci_prep_node *nodes;
    int n_nodes, cap_nodes;
    int32_t buckets[TCI_PREP_BUCKETS];
    int32_t *inst_node;        /* node of each instruction */
    int32_t *index_node;       /* instruction used by a KX_VALUE: its value as i64, else -1 */
    struct tci_prep_red *reds; /* the nodes of each reduction */
    tci_prep_store *stores;
    /* Dependence: row of n_axes + n_stages flags a node or kx: axes, then stages whose results it
     * uses. */
    int width;
    uint8_t *deps, *kx_deps, *kx_done;
    int32_t *kx_seen, stamp;          /* marks of one traversal over index expressions */
    uint8_t *need_outer, *need_stage; /* by node; by stage * n_nodes + node */
    /* value of each node: at the outer level; in the stage at hand */
    int32_t *outer_value, *stage_value;
    tci_interp_value *values;
    int n_values, cap_values;
    int n_sections;
    /* the section being filled */
    tci_interp_section *section;
    int section_id, stage;  /* stage: -1 at the outer level */
    tci_interp_addr **addr; /* by kx, in this section */
    int32_t *block;         /* by kx: value with x per lane, -1 none yet */
} tci_prep;

/* interp/legalize.c */
TCI_FN int tci_prep_add(tci_prep *b, tci_prep_node n);
TCI_FN tci_prep_node tci_prep_blank(tci_prep_kind kind, int bytes);
TCI_FN int tci_prep_bytes(tc_dtype t);
TCI_FN int tci_prep_const(tci_prep *b, uint64_t bits, int bytes);
TCI_FN uint64_t tci_prep_bits(tc_dtype t, tci_value v);
TCI_FN int tci_prep_op(tci_prep *b, int prim, tc_dtype dtype, tc_dtype to, int bytes, int a0,
                       int a1, int a2);
TCI_FN int tci_prep_resize(tci_prep *b, int a, tc_dtype from, int bytes);
TCI_FN int tci_prep_mask(tci_prep *b, int a, int bytes);
TCI_FN int tci_prep_bitwise(tci_prep *b, int prim, int a0, int a1);
TCI_FN int tci_prep_cast(tci_prep *b, int a, tc_dtype from, tc_dtype to);
TCI_FN int tci_prep_base(tci_prep *b, int prim, tc_dtype t, tc_dtype to, int imm, const int *a,
                         int n);
TCI_FN int tci_prep_recipe(tci_prep *b, int prim, tc_dtype t, const int *a);

/* interp/lower_to_value_nodes.c */
TCI_FN void tci_prep_nodes(tci_prep *b);

/* interp/hoist.c */
TCI_FN uint8_t *tci_prep_row(const tci_prep *b, int node);
TCI_FN const uint8_t *tci_prep_kx_row(tci_prep *b, int x);
TCI_FN void tci_prep_derive(tci_prep *b);
/* True if the result of a stage differs at each of its points: the running value of a SCAN, the
 * elements that a SCATTER reads where it stores. */
TCI_FN bool tci_prep_is_ordered(const tci_kstage *stage);
TCI_FN bool tci_prep_in_stage(const tci_prep *b, int node, int s);
TCI_FN void tci_prep_need(tci_prep *b, int node, int s);
TCI_FN void tci_prep_needs(tci_prep *b);

/* interp/lower_access.c */
TCI_FN tci_interp_addr *tci_prep_addr(tci_prep *b, int x);
TCI_FN int tci_prep_block(tci_prep *b, int x);
TCI_FN void tci_prep_step_guards(tci_prep *b, tci_interp_step *st, int first, int n);
TCI_FN void tci_prep_step_x(tci_prep *b, tci_interp_step *st, int x, int slot);

/* interp/linear_ir.c */
TCI_FN int tci_prep_value(tci_prep *b, int bytes, bool varies);
TCI_FN void tci_prep_step(tci_prep *b, tci_interp_step st);
TCI_FN tci_interp_step tci_prep_blank_step(tci_interp_kind kind);
TCI_FN int tci_prep_step_value(tci_prep *b, tci_interp_step st, int bytes, bool varies);
TCI_FN tci_interp_op tci_prep_make_op(int prim, tc_dtype dtype, tc_dtype to, int bytes, int n_in);
TCI_FN int tci_prep_value_of(const tci_prep *b, int node);
TCI_FN bool tci_prep_varies(const tci_prep *b, const uint8_t *row);
TCI_FN int tci_prep_emit_op(tci_prep *b, const tci_prep_node *n, const int32_t *value);
TCI_FN void tci_prep_begin(tci_prep *b, tci_interp_section *section, int stage, int vec);
TCI_FN int tci_prep_outer_vec(const tci_prep *b);
TCI_FN void tci_prep_outer(tci_prep *b, tci_interp_section *section, int which);
TCI_FN void tci_prep_stage(tci_prep *b, int s);

/* interp/lower_reductions.c */
TCI_FN int tci_prep_make_red(tci_prep *b, int red);
TCI_FN void tci_prep_need_red(tci_prep *b, int red);
TCI_FN void tci_prep_join(tci_prep *b, int red);
/* The nodes of one step of a combine row that accumulates in t: left and right, nodes of what it
 * joins, to `parts`. */
TCI_FN void tci_prep_step_nodes(tci_prep *b, int op, tc_dtype t, const int *left, const int *right,
                                int32_t *parts);
TCI_FN void tci_prep_derive_red(tci_prep *b, uint8_t *row, int red);
TCI_FN void tci_prep_reds(tci_prep *b);
TCI_FN void tci_prep_emit_fold(tci_prep *b, int red);
TCI_FN int tci_prep_emit_row(tci_prep *b, int red); /* the value of what it kept */

/* interp/pack_operands.c: makes panels, and the chunk of lanes that they are for; the points of a
 * task of a kernel that has panels. */
TCI_FN void tci_prep_panels(tci_prep *b);
TCI_FN int64_t tci_prep_panel_grain(const tci_interp *p);

/* interp/contraction_strip.c: after panels */
TCI_FN void tci_prep_strips(tci_prep *b);

/* interp/value_memory.c */
TCI_FN void tci_prep_memory(tci_prep *b);
TCI_FN void tci_prep_mark_all(tci_prep *b);

#endif
