/* base/object_loader.h - declares the loader of shared objects compiled from generated code: checks
 * that the bytes are complete, then loads them from a sealed copy in memory. */
#ifndef TCI_BASE_OBJECT_LOADER_H
#define TCI_BASE_OBJECT_LOADER_H

#include "os.h"

/* The last line of every source. Linkers write data after code, so an object that holds these
 * words is not cut short. */
#define TCI_OBJECT_MARK_1 0xb5297a4d68e31da4ull
#define TCI_OBJECT_MARK_2 0x1b56c4e97a3d10f2ull
#define TCI_OBJECT_END_LINE_(first, second)                                                        \
    "unsigned long long tc_end[2] = {" #first ", " #second "};\n"
#define TCI_OBJECT_END_LINE_OF(first, second) TCI_OBJECT_END_LINE_(first, second)
#define TCI_OBJECT_END_LINE TCI_OBJECT_END_LINE_OF(TCI_OBJECT_MARK_1, TCI_OBJECT_MARK_2)

/* Whether the bytes are all of an object: what its headers tell of is within them, and so is
 * the end mark. *why (static text): what is wrong. */
TCI_FN bool tci_object_is_whole(const void *bytes, size_t n, const char **why);
/* Loads the object that the bytes are, from a sealed copy in memory: what was checked is what runs.
 * Where the system makes no such copies, from `path`, which has them too; named: rather from
 * there, as a debugger or profiler then finds the file. NULL: why says why. End it with
 * tci_os_dlclose. */
TCI_FN void *tci_object_load(const void *bytes, size_t n, const char *path, bool named,
                             char why[256]);

#endif
