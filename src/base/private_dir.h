/* base/private_dir.h - directories held open: checked once, then used by descriptor and plain file
 * name, so that later changes along the path have no effect. */
#ifndef TCI_BASE_PRIVATE_DIR_H
#define TCI_BASE_PRIVATE_DIR_H

#include "os.h"

typedef struct tci_dir {
    int fd;       /* -1: not open */
    tci_str path; /* heap: absolute, every link resolved; for people and for other programs */
    bool writable;
    bool closed; /* only this user may enter it, so the modes of its files do not matter */
} tci_dir;

typedef enum tci_dir_use {
    /* Code is kept there. Ours or root's, closed to others, not on a noexec mount; no directory
     * above it can be changed by others. Made where it is missing (0700). */
    TCI_DIR_CODE,
    /* A private folder will be made in it: as above, but it must exist, and it may be one that
     * everybody writes to where the sticky bit keeps them from each other's files, as in /tmp. */
    TCI_DIR_TEMPORARY,
    /* For people to read: ours or root's, whoever else may write to it, whatever is above; no link
     * of another user on the way. Made. */
    TCI_DIR_NOTES
} tci_dir_use;

/* True if group gid is the private group of user uid: texts of /etc/passwd and /etc/group give it
 * to no other user, neither as a first group nor as a member. */
TCI_FN bool tci_dir_group_is_private(const char *passwd, const char *group, unsigned uid,
                                     unsigned gid);
/* False: it is not open, and *why (heap) says which directory is at fault. */
TCI_FN bool tci_dir_open(tci_dir *d, const char *path, tci_dir_use use, tci_str *why);
/* A directory in d: made (0700) if `make`, else it must be there. Ours, closed to others. */
TCI_FN bool tci_dir_open_in(tci_dir *in, const tci_dir *d, const char *name, bool make);
TCI_FN void tci_dir_close(tci_dir *d);

/* As tci_os_read_private_at, at most `most` bytes (EFBIG). */
TCI_FN bool tci_dir_read(const tci_dir *d, const char *name, int64_t most, tci_str *out, int *why);
/* As tci_os_publish; durable: written through to the disk before the rename. */
TCI_FN bool tci_dir_publish(const tci_dir *d, const char *name, const void *bytes, size_t n,
                            bool durable, int *why);
TCI_FN bool tci_dir_remove(const tci_dir *d, const char *name); /* a file or an empty directory */
TCI_FN bool tci_dir_remove_tree(const tci_dir *d, const char *name);
TCI_FN bool tci_dir_has(const tci_dir *d, const char *name, int64_t bytes); /* a file so large */
TCI_FN void tci_dir_touch(const tci_dir *d, const char *name); /* now, for LRU; may fail */

typedef struct tci_dir_entry {
    char name[256];
    bool is_dir;
    int64_t bytes, age_ns, mtime_ns;
} tci_dir_entry;
/* Regular files and directories whose names begin with `begins`, into a heap array (*entries, free
 * with tci_heap_free); -1 on failure. Links and special files are left out. */
TCI_FN int tci_dir_list(const tci_dir *d, const char *begins, tci_dir_entry **entries);

#endif
