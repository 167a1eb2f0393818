/* debug/dump.h - dumps of a compile: the files that TC_DUMP requests, one per stage. */
#ifndef TCI_DEBUG_DUMP_H
#define TCI_DEBUG_DUMP_H

#include "../api/types.h"
#include "../base/str.h"

/* Where the dumps of one compile go. */
typedef struct tci_dump {
    const char *stages; /* "graph,plan" or "all"; NULL: nothing is dumped */
    tci_str dir;        /* heap */
} tci_dump;
/* A program with options.name goes into the folder of that name; else the first of a process to the
 * dump directory itself, the n-th into its folder n. */
TCI_FN void tci_dump_begin(tci_dump *d, const tc_options *o);
TCI_FN void tci_dump_end(tci_dump *d);
/* Appends a name of the user's as the name of one file or folder, of at most 80 bytes: other
 * characters than letters, digits, '-', '_' and, but for the first, '.' become '_'. */
TCI_FN void tci_dump_add_name(tci_str *path, const char *name);
TCI_FN bool tci_dump_list_has(const char *list, const char *word); /* "all" has every word */
TCI_FN bool tci_dump_wants(const tci_dump *d, const char *stage);
/* Writes the text to DIR/file. Failures are ignored: a dump never makes a compile fail. */
TCI_FN void tci_dump_file(const tci_dump *d, const char *file, const tci_str *text);

#endif
