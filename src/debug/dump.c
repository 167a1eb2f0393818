/* debug/dump.c - writes the files of the dump directory (TC_DUMP, options.dump), one per stage.
 *
 * In: texts from compile/. Out: files. Nothing is written unless requested, and a failure here does
 * not affect the compile. */
#include "dump.h"

#include <string.h>

#include "../base/private_dir.h"
#include "log.h"

enum { TCI_DUMP_NAME = 80 }; /* bytes of a name of the user's in a path */

/* "graph,plan" has "plan"; "all" has everything. */
TCI_FN bool tci_dump_list_has(const char *list, const char *word)
{
    size_t n = strlen(word);
    while (list) {
        size_t length = strcspn(list, ",");
        if ((length == n && !memcmp(list, word, n)) || (length == 3 && !memcmp(list, "all", 3))) {
            return true;
        }
        list = list[length] ? list + length + 1 : NULL;
    }
    return false;
}

TCI_FN bool tci_dump_wants(const tci_dump *d, const char *stage)
{
    return d->stages && tci_dump_list_has(d->stages, stage);
}

TCI_FN void tci_dump_add_name(tci_str *path, const char *name)
{
    for (const char *c = name; *c && c - name < TCI_DUMP_NAME; c++) {
        bool plain = (*c >= '0' && *c <= '9') || (*c >= 'a' && *c <= 'z') ||
                     (*c >= 'A' && *c <= 'Z') || *c == '-' || *c == '_' || (*c == '.' && c > name);
        tci_str_printf(path, "%c", plain ? *c : '_');
    }
}

TCI_FN void tci_dump_begin(tci_dump *d, const tc_options *o)
{
    static int count;
    memset(d, 0, sizeof(*d));
    d->stages = o->dump && o->dump[0] ? o->dump : NULL;
    if (!d->stages) {
        return;
    }
    const char *base = o->dump_dir && o->dump_dir[0] ? o->dump_dir : "./tc_dump";
    int number = __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    tci_str path = {0}, why = {0};
    tci_str_add(&path, base);
    if (o->name && o->name[0]) {
        tci_str_add(&path, "/");
        tci_dump_add_name(&path, o->name);
    } else if (number > 1) {
        tci_str_printf(&path, "/%d", number);
    }
    tci_dir dir;
    if (path.failed || !tci_dir_open(&dir, path.text, TCI_DIR_NOTES, &why)) {
        tci_log(o, "compile", "no dump: %s", tci_str_text(&why));
        d->stages = NULL;
    } else { /* not kept open: a batch may be large */
        tci_str_add(&d->dir, dir.path.text);
        tci_dir_close(&dir);
    }
    tci_str_free(&path);
    tci_str_free(&why);
}

TCI_FN void tci_dump_end(tci_dump *d)
{
    tci_str_free(&d->dir);
    d->stages = NULL;
}

TCI_FN void tci_dump_file(const tci_dump *d, const char *file, const tci_str *text)
{
    tci_str path = {0};
    tci_str_printf(&path, "%s/%s", tci_str_text(&d->dir), file);
    if (!path.failed && !text->failed) {
        tci_os_publish(path.text, tci_str_text(text), text->n, NULL);
    }
    tci_str_free(&path);
}
