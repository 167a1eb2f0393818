/* loop/register_tiles.h - declares the loops that cover one unit of parallel work of a loop nest
 * with register tiles of rows x vectors. */
#ifndef TCI_LOOP_REGISTER_TILES_H
#define TCI_LOOP_REGISTER_TILES_H

#include "task_nest.h"
#include "emit_stages.h"

/* Loop structure of a unit: its chunk in tiles of `unroll` vectors, and for each tile its group of
 * row tiles. */
typedef struct tci_unit {
    tci_nest *nest;
    int unroll; /* vectors of a tile */
    int rows;   /* rows of a tile, at most */
    /* The first `extra` row tiles have base + 1 rows, the others base. Where the number of rows is
     * not known all but the last have base rows, and that one what is left. */
    int64_t base, extra;
    const tci_kstore *stream; /* that bypasses the caches, NULL none */
    bool turn, weave;         /* as in tci_tile, as is */
    tci_window_overlap skew;
    int next_axis;
} tci_unit;

/* One row, one vector. */
TCI_FN tci_unit tci_unit_make(tci_nest *n);
/* Tiles of at most this many of `size` rows, as even as can be; of the nest, n_tiles. */
TCI_FN void tci_unit_tiles(tci_unit *u, tci_dim size, int most);
/* The same of an axis of the kernel, which is the nest's row axis then. */
TCI_FN void tci_unit_rows(tci_unit *u, int axis, int most);
/* The body of a nest; arg is a tci_unit. */
TCI_FN void tci_unit_walk(tci_nest *n, void *arg, const tci_nest_at *at);

#endif
