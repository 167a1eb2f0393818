/* emit/target_features.h - declares the code generation target: ISA and vector width of a CPU,
 * block size and matrix units of a GPU, compiler flags, and the text that enters cache keys. */
#ifndef TCI_EMIT_TARGET_FEATURES_H
#define TCI_EMIT_TARGET_FEATURES_H

#include "../api/backend.h"
#include "../base/str.h"

typedef struct tci_target {
    char arch[16];         /* "x86-64", "aarch64", or "c" (scalar code only) */
    int vector_bytes;      /* 64, 32, 16, or 0: scalar code */
    int block_threads;     /* of a device: most threads of a block; 0: a CPU */
    int matrix_units;      /* of a device: processors with a matrix unit; of a CPU: 1; 0: none */
    int int_points;        /* of a CPU: as in tci_machine */
    bool has_pairs;        /* of a CPU: as in tci_machine */
    bool unit_bytes;       /* likewise */
    int warp_unit;         /* of a device: bits of tc_warp_unit */
    bool no_shared_memory; /* of a device: as in tci_machine */
    tc_machine machine;    /* what the backend knows of it */
    bool usable;           /* native code can be made for it */
    char features[128];    /* canonical text, part of every cache key */
    char record[320];      /* and so is this: what schedules go by (tci_machine_text) */
    const char *flags[24];
    int n_flags; /* -m options for gcc and clang */
} tci_target;

#endif
