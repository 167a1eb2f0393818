/* cpu/machine.c - detects the processor: its caches, and how many of its cores the process may
 * use.
 *
 * In: /sys, the affinity mask. Out: a tc_machine, 0 where unknown. Sizes are rounded to a power of
 * two, so that processors of one model have equal keys. The size of a shared cache is capped
 * (TCI_CPU_SHARED_MOST). */
#include <fcntl.h>
#include <string.h>

#include "../base/os.h"
#include "../base/system_headers.h"
#include "cc.h"

enum {
    TCI_CPU_CACHES = 8,            /* entries of /sys that are looked at */
    TCI_CPU_SHARED_MOST = 32 << 20 /* bytes of the last level that are counted on */
};

/* The first line of a small file of /sys; false: there is none. */
static bool tci_cpu_read(int index, const char *name, char *text, size_t room)
{
    char path[100];
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, room - 1) : -1;
    if (fd >= 0) {
        close(fd);
    }
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* "1024K" */
static int64_t tci_cpu_size(const char *text)
{
    char *end;
    int64_t size = strtol(text, &end, 10);
    return *end == 'M' ? size << 20 : *end == 'K' ? size << 10 : size;
}

static int64_t tci_cpu_power(int64_t size)
{
    int64_t power = 1;
    while (2 * power <= size) {
        power *= 2;
    }
    return size > 0 ? power : 0;
}

TCI_FN void tci_cpu_machine(tc_machine *m)
{
    m->processors = tci_os_cpu_count();
    for (int i = 0; i < TCI_CPU_CACHES; i++) {
        char level[32], type[32], size[32];
        if (!tci_cpu_read(i, "level", level, sizeof(level)) ||
            !tci_cpu_read(i, "type", type, sizeof(type)) ||
            !tci_cpu_read(i, "size", size, sizeof(size))) {
            break;
        }
        int at = level[0] - '1';
        if (at >= 0 && at < 3 && strncmp(type, "Instruction", 11) != 0) {
            m->cache_bytes[at] = tci_cpu_power(tci_cpu_size(size));
        }
    }
    m->cache_bytes[2] = TCI_MIN(m->cache_bytes[2], (int64_t)TCI_CPU_SHARED_MOST);
}
