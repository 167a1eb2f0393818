/* base/object_loader.c - checks and loads shared objects made from generated code. See
 * base/object_loader.h.
 *
 * In: the bytes of an object. Out: a handle. Design: the dynamic loader trusts a file and crashes
 * on a truncated one (it maps what the headers promise, and touching a page past the end raises
 * SIGBUS). So the bytes are checked first, and then exactly those bytes are loaded: a sealed copy
 * in memory (memfd) that no process can change.
 *
 * The dynamic loader identifies objects by path, and a second one of the same path is taken for the
 * first. A memfd's only name is /proc/self/fd/N, and N may be reused by the next one, of this copy
 * of tc or another in the process (inside a shared library); so each path is spelled differently:
 * "/." or "//." per bit of the inode number, which is unique while the object is loaded. The
 * descriptor is closed after loading; a high number is used, so that a debugger that looks up the
 * name does not find a different file. */
#include "object_loader.h"
#include "system_headers.h"

#if defined(__linux__) || defined(__ELF__)

typedef struct tci_object_form {
    size_t word;                   /* bytes of an address */
    size_t header, ph_at, sh_at;   /* ELF header: its size; where the offsets of the tables are */
    size_t counts_at;              /* sizes and numbers of their entries, index of the names */
    size_t ph, ph_offset, ph_size; /* entry of the table of segments */
    size_t sh, sh_offset, sh_size; /* of sections */
} tci_object_form;

static const tci_object_form tci_object_form_64 = {8, 64, 32, 40, 54, 56, 8, 32, 64, 24, 32};
static const tci_object_form tci_object_form_32 = {4, 52, 28, 32, 42, 32, 4, 16, 40, 16, 20};

typedef struct tci_object {
    const uint8_t *bytes;
    size_t n;
    const tci_object_form *form;
    uint64_t segments, sections; /* offsets */
    uint16_t n_segments, n_sections, names;
} tci_object;

static uint64_t tci_object_number(const tci_object *o, uint64_t at, size_t width)
{
    uint16_t half;
    uint32_t word;
    uint64_t wide;
    if (width == sizeof(half)) {
        memcpy(&half, o->bytes + at, sizeof(half));
        return half;
    }
    if (width == sizeof(word)) {
        memcpy(&word, o->bytes + at, sizeof(word));
        return word;
    }
    memcpy(&wide, o->bytes + at, sizeof(wide));
    return wide;
}

static bool tci_object_has(const tci_object *o, uint64_t at, uint64_t bytes)
{
    return at <= o->n && bytes <= o->n - at;
}

static bool tci_object_open(tci_object *o, const void *bytes, size_t n)
{
    const uint16_t one = 1;
    const uint8_t low_first = *(const uint8_t *)&one;
    const tci_object_form *f = sizeof(void *) == 8 ? &tci_object_form_64 : &tci_object_form_32;
    memset(o, 0, sizeof(*o));
    o->bytes = bytes;
    o->n = n;
    o->form = f;
    if (n < f->header || memcmp(bytes, "\177ELF", 4) || o->bytes[4] != f->word / 4 ||
        o->bytes[5] != (low_first ? 1 : 2)) {
        return false;
    }
    o->segments = tci_object_number(o, f->ph_at, f->word);
    o->sections = tci_object_number(o, f->sh_at, f->word);
    uint16_t counts[5];
    for (int i = 0; i < TCI_COUNT(counts); i++) {
        counts[i] = (uint16_t)tci_object_number(o, f->counts_at + 2 * (size_t)i, 2);
    }
    o->n_segments = counts[1];
    o->n_sections = counts[3];
    o->names = counts[4];
    return counts[0] == f->ph && counts[2] == f->sh;
}

/* The mark is in the last segment with bytes of its own. */
static bool tci_object_has_mark(const tci_object *o, uint64_t at, uint64_t bytes)
{
    static const uint64_t mark[2] = {TCI_OBJECT_MARK_1, TCI_OBJECT_MARK_2};
    for (uint64_t i = 0; i + sizeof(mark) <= bytes; i++) {
        if (o->bytes[at + i] == *(const uint8_t *)mark &&
            !memcmp(o->bytes + at + i, mark, sizeof(mark))) {
            return true;
        }
    }
    return false;
}

static bool tci_object_segments_fit(const tci_object *o, const char **why)
{
    enum { TCI_OBJECT_LOAD = 1 }; /* PT_... */
    const tci_object_form *f = o->form;
    uint64_t last_at = 0, last_bytes = 0;
    if (!o->n_segments || !tci_object_has(o, o->segments, (uint64_t)o->n_segments * f->ph)) {
        *why = "its table of segments is cut short";
        return false;
    }
    for (uint64_t i = 0; i < o->n_segments; i++) {
        uint64_t entry = o->segments + i * f->ph;
        uint64_t at = tci_object_number(o, entry + f->ph_offset, f->word);
        uint64_t bytes = tci_object_number(o, entry + f->ph_size, f->word);
        if (!tci_object_has(o, at, bytes)) {
            *why = "it is cut short";
            return false;
        }
        if (tci_object_number(o, entry, 4) == TCI_OBJECT_LOAD && bytes && at >= last_at) {
            last_at = at;
            last_bytes = bytes;
        }
    }
    if (!tci_object_has_mark(o, last_at, last_bytes)) {
        *why = "it has no end mark";
        return false;
    }
    return true;
}

static bool tci_object_sections_fit(const tci_object *o, const char **why)
{
    enum { TCI_OBJECT_NONE = 0, TCI_OBJECT_STRINGS = 3, TCI_OBJECT_NO_BITS = 8 }; /* SHT_... */
    const tci_object_form *f = o->form;
    *why = "its table of sections is cut short";
    if (!o->n_sections || o->names >= o->n_sections ||
        !tci_object_has(o, o->sections, (uint64_t)o->n_sections * f->sh)) {
        return false;
    }
    for (uint64_t i = 0; i < o->n_sections; i++) {
        uint64_t entry = o->sections + i * f->sh;
        uint64_t type = tci_object_number(o, entry + 4, 4);
        uint64_t at = tci_object_number(o, entry + f->sh_offset, f->word);
        uint64_t bytes = tci_object_number(o, entry + f->sh_size, f->word);
        bool has_bytes = type != TCI_OBJECT_NONE && type != TCI_OBJECT_NO_BITS;
        if (has_bytes && !tci_object_has(o, at, bytes)) {
            return false;
        }
        if (i == o->names &&
            (type != TCI_OBJECT_STRINGS || !bytes || o->bytes[at] || o->bytes[at + bytes - 1])) {
            return false;
        }
    }
    return true;
}

TCI_FN bool tci_object_is_whole(const void *bytes, size_t n, const char **why)
{
    tci_object o;
    if (!tci_object_open(&o, bytes, n)) {
        *why = "it is no object file of this machine";
        return false;
    }
    return tci_object_segments_fit(&o, why) && tci_object_sections_fit(&o, why);
}

#else

TCI_FN bool tci_object_is_whole(const void *bytes, size_t n, const char **why)
{
    *why = "it is empty";
    return bytes && n;
}

#endif

#if defined(__linux__) && defined(SYS_memfd_create)

enum { TCI_OBJECT_HIGH = 900 }; /* descriptor, where the limit allows it */

/* A sealed copy; -1: the system makes none. */
static int tci_object_copy(const void *bytes, size_t n)
{
    const int close_on_exec = 1, sealing = 2, not_a_program = 8; /* MFD_... */
    const int add_seals = 1033, all_seals = 15;                  /* F_ADD_SEALS, F_SEAL_... */
    int flags = close_on_exec | sealing;
    int fd = (int)syscall(SYS_memfd_create, "tc", flags | not_a_program);
    if (fd < 0) { /* before Linux 6.3 */
        fd = (int)syscall(SYS_memfd_create, "tc", flags);
    }
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, TCI_OBJECT_HIGH);
    if (high >= 0) {
        close(fd);
        fd = high;
    }
    if (fd >= 0 && (tci_os_write_all(fd, bytes, n) || fcntl(fd, add_seals, all_seals))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void *tci_object_load_copy(const void *bytes, size_t n)
{
    char path[256] = "/proc/self/fd", number[16], why[256];
    struct stat file;
    int fd = tci_object_copy(bytes, n);
    if (fd < 0) {
        return NULL;
    }
    uint64_t bits = fstat(fd, &file) ? 0 : file.st_ino;
    for (; bits; bits >>= 1) {
        strcat(path, bits & 1 ? "//." : "/.");
    }
    snprintf(number, sizeof(number), "/%d", fd);
    strcat(path, number);
    void *handle = tci_os_dlopen(path, why);
    close(fd);
    return handle;
}

#else

#define tci_object_load_copy(bytes, n) NULL

#endif

TCI_FN void *tci_object_load(const void *bytes, size_t n, const char *path, bool named,
                             char why[256])
{
    const char *wrong;
    if (!tci_object_is_whole(bytes, n, &wrong)) {
        snprintf(why, 256, "%s", wrong);
        return NULL;
    }
    void *handle = named ? tci_os_dlopen(path, why) : tci_object_load_copy(bytes, n);
    if (!handle) { /* the folder is noexec, say; or there are no copies */
        handle = named ? tci_object_load_copy(bytes, n) : tci_os_dlopen(path, why);
    }
    return handle;
}

#if !(defined(__linux__) && defined(SYS_memfd_create))
#undef tci_object_load_copy
#endif
