/* loop/emit_stages.c - emits the stages of a kernel (map, reduction, scan, scatter) for one
 * register tile whose outer indices are given.
 *
 * In: a tci_tile. Out: statements in the current block; vec_output_axis.c, vec_reduced_axis.c,
 * row_buffer.c and scatter.c emit one stage each. A stage that copies does so only if the copy has
 * other memory: an in-place update of few elements of a large array then costs only those. */
#include "emit_stages.h"

#include "vec_reduced_axis.h"
#include "row_buffer.h"
#include "vec_output_axis.h"
#include "simd_scan.h"
#include "scatter.h"

static void tci_stage_any(tci_build *b, const tci_tile *tile, int stage)
{
    const tci_kstage *st = &b->k->stages[stage];
    bool inner = b->k->vector == TCI_VEC_INNER;
    int next = inner && stage == tci_stage_ahead(b->k) ? tile->next_axis : -1;
    switch ((tci_kstage_kind)st->kind) {
    case TCI_STAGE_SCATTER: tci_stage_scatter(b, stage, tile); break;
    case TCI_STAGE_MAP:
        if (inner) {
            tci_stage_map_inner(b, stage, tile, next);
        } else {
            tci_stage_map_outer(b, stage, tile);
        }
        break;
    case TCI_STAGE_SCAN:
        if (inner && st->n_axes > 0) {
            tci_stage_scan_inner(b, stage, next);
        } else {
            tci_stage_reduce_outer(b, stage, tile);
        }
        break;
    case TCI_STAGE_REDUCE:
        if (st->n_kept > 0) {
            tci_row_buffer_reduce(b, stage);
        } else if (inner && st->n_axes > 0) {
            tci_stage_reduce_inner(b, stage, next);
        } else {
            tci_stage_reduce_outer(b, stage, tile);
        }
        break;
    }
}

TCI_FN void tci_stage_one(tci_build *b, const tci_tile *tile, int stage)
{
    int from, to;
    b->stage = stage;
    if (tci_kernel_copies(b->k, stage, &from, &to)) {
        tci_lopen open;
        tci_build_if(b, tci_build_elsewhere(b, from, to), &open);
        tci_stage_any(b, tile, stage);
        tci_build_close(b, &open);
    } else {
        tci_stage_any(b, tile, stage);
    }
}

TCI_FN void tci_stage_from(tci_build *b, const tci_tile *tile, int first)
{
    for (int stage = first; stage < b->k->n_stages; stage++) {
        if (stage > 0 && b->l->threads > 1 && b->n_keeps > 0) {
            tci_lstmt st = tci_loop_stmt(TCI_L_MEM);
            st.mem = TCI_MEM_BARRIER;
            tci_loop_append(b->l, b->cur, st);
        }
        tci_stage_one(b, tile, stage);
    }
}

TCI_FN void tci_stage_all(tci_build *b, const tci_tile *tile)
{
    tci_stage_from(b, tile, 0);
}
