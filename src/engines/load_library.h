/* engines/load_library.h - the shared library of an engine: located without loading it, then loaded
 * once.
 *
 * In: file names and default locations. Out: a handle, or a text that says what is missing. */
#ifndef TCI_ENGINES_LOAD_LIBRARY_H
#define TCI_ENGINES_LOAD_LIBRARY_H

#include "../base/os.h"
#include "api.h"

typedef struct tci_engine_library {
    const char *file;    /* beginning of its name: "libonnxruntime.so" */
    const char *package; /* where it is below site-packages: "onnxruntime/capi" */
    const char *get;     /* how to get it: "pip install onnxruntime" */
    const char *silence; /* a variable that keeps its log off stderr, "NAME=VALUE", or NULL */
    tci_mutex lock;      /* guards what follows */
    bool tried;
    void *handle;                       /* NULL: it could not be loaded, */
    char path[480], why[TC_GRAPH_TEXT]; /* as `why` says */
} tci_engine_library;

/* True if option is empty or a word; false if it is a path. */
TCI_FN bool tci_engine_is_word(const char *option);
/* The path of the library, of the option or as found; false: text says what is missing. */
TCI_FN bool tci_engine_find(const tci_engine_library *l, const char *option, char path[480],
                            char text[TC_GRAPH_TEXT]);
/* The library, loaded at the first call; NULL: text says why not. One process has one of each. */
TCI_FN void *tci_engine_open(tci_engine_library *l, const char *option, char text[TC_GRAPH_TEXT]);
/* A row of a table of functions: where a function's address goes, and its name. */
typedef struct tci_engine_symbol {
    void *at;
    const char *name;
} tci_engine_symbol;
/* False: the library lacks one, as text says. */
TCI_FN bool tci_engine_symbols(const tci_engine_library *l, const tci_engine_symbol *rows, int n,
                               char text[TC_GRAPH_TEXT]);
/* From begin to end the process has one more variable, "NAME=VALUE", for code of an engine that
 * reads it and has no other option. The list of variables is replaced by a copy and put back, so
 * getenv in other threads reads one or the other. Nothing changes where the user has set NAME. */
typedef struct tci_engine_variable {
    char **list, **before; /* list NULL: nothing has changed */
} tci_engine_variable;
TCI_FN tci_engine_variable tci_engine_variable_begin(const char *variable);
TCI_FN void tci_engine_variable_end(tci_engine_variable *v);
/* A file of memory without a name, closed on exec; -1: none can be made. */
TCI_FN int tci_engine_unnamed_file(void);

#endif
