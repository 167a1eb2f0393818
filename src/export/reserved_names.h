/* export/reserved_names.h - declares the check for reserved names: identifiers that the functions
 * of an exported C file must not have. */
#ifndef TCI_EXPORT_RESERVED_NAMES_H
#define TCI_EXPORT_RESERVED_NAMES_H

#include "../base/platform.h"

enum { TCI_EXPORT_NAME = 64 }; /* room for a name and its end */

/* True if it begins with _, is a word of C or C++, or a name of the C library or of a builtin. */
TCI_FN bool tci_export_is_taken(const char *name);

#endif
