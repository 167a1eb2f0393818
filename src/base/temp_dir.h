/* base/temp_dir.h - private temporary directory for one run of the C compiler. */
#ifndef TCI_BASE_TEMP_DIR_H
#define TCI_BASE_TEMP_DIR_H

#include "private_dir.h"

typedef struct tci_workdir {
    tci_dir base;  /* holds it: under $TMPDIR, /tmp, or the last resort */
    tci_dir dir;   /* locked: in use as long as this process lives and has it open */
    char name[32]; /* of dir in base */
    bool is_kept;
} tci_workdir;

/* Makes one under $TMPDIR, else /tmp, else the directory `last` (NULL: none): the first where
 * others cannot interfere. is_kept: the user asked for it (TC_KEEP), so it stays for good. Sweeps
 * what dead processes left there. False: why (heap) says why each place will not do. */
TCI_FN bool tci_workdir_make(tci_workdir *w, const char *last, bool is_kept, tci_str *why);
/* Removes it with all that is in it; or, after a failure, leaves it for the user to look into:
 * TCI_WORKDIR_LOG must be in it then. The newest TCI_WORKDIR_FAILURES of those stay, for a day. */
TCI_FN void tci_workdir_end(tci_workdir *w, bool failed);
#define TCI_WORKDIR_LOG "build.log"
enum { TCI_WORKDIR_FAILURES = 16 };
/* Removes from d what no living process uses. Once a process and directory, but for `again`. */
TCI_FN void tci_workdir_sweep(const tci_dir *d, bool again);

#endif
