/* debug/recompile.h - explains why a program was compiled again: TC_LOG=recompiles,
 * tc_recompile_report, and the message of TC_ERR_FROZEN. */
#ifndef TCI_DEBUG_RECOMPILE_H
#define TCI_DEBUG_RECOMPILE_H

#include "../base/hash.h"
#include "../base/str.h"

/* A program that is not in memory. Strings are copied. */
typedef struct tci_recompile_asked {
    tci_hash hash;    /* of its key */
    const char *call; /* "tc_compile" */
    tc_site site;     /* of that call */
    const tc_ctx *ctx;
    const tci_str *graph; /* text of tci_graph_print, or NULL: too long to be worth it */
} tci_recompile_asked;
/* Remembers it and logs in which node the graph differs from the nearest of those before.
 * from_disk: it was found there. */
TCI_FN void tci_recompile_note(const tc_options *o, const tci_recompile_asked *asked,
                               bool from_disk);
/* Its compile took so long. */
TCI_FN void tci_recompile_took(tci_hash hash, int64_t ns);
/* A compile found it in memory. */
TCI_FN void tci_recompile_hit(tci_hash hash);
/* Records a program for frequent sizes, with its speedup over the symbolic program; serves: it is
 * kept. */
TCI_FN void tci_recompile_hot(tci_hash hash, double speed, bool serves);
/* Writes the difference from the nearest existing program; nothing is recorded. */
TCI_FN void tci_recompile_differs(tci_str *out, const tci_recompile_asked *asked);
/* By line of the call: programs, milliseconds, what differed, what to write. ctx NULL: of all
 * contexts. */
TCI_FN void tci_recompile_print(tci_str *out, const tc_ctx *ctx, bool json);
TCI_FN void tci_recompile_forget(void);

enum { TCI_RECOMPILE_NODES = 1500 }; /* of a graph whose text is compared without a listener */

#endif
