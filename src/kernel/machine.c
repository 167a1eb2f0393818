/* kernel/machine.c - fills in safe defaults for unknown properties of a machine, and writes the
 * machine model as text.
 *
 * In: the properties that a backend detected. Out: a machine description without zeros. The
 * defaults are those of no particular machine: modest enough that a schedule made for them does
 * well on most. */
#include "machine.h"

#include <stdio.h>

#define TCI_MACHINE_SET(field, value) ((field) = (field) > 0 ? (field) : (value))

static void tci_machine_complete_cores(const tci_machine *m, tc_machine *f)
{
    TCI_MACHINE_SET(f->processors, 4);
    TCI_MACHINE_SET(f->ghz, 2.0);
    TCI_MACHINE_SET(f->ports, 2);
    TCI_MACHINE_SET(f->registers, m->vector_bytes == 64 ? 32 : 16);
    TCI_MACHINE_SET(f->cache_bytes[0], 32 << 10);
    TCI_MACHINE_SET(f->cache_bytes[1], 1 << 20);
    TCI_MACHINE_SET(f->cache_bytes[2], 32 << 20);
    TCI_MACHINE_SET(f->near_bytes, 32);
    TCI_MACHINE_SET(f->far_bytes, 12.5);
    TCI_MACHINE_SET(f->all_bytes, f->far_bytes * f->processors);
    TCI_MACHINE_SET(f->one_gbs, 12);
    TCI_MACHINE_SET(f->memory_gbs, f->one_gbs * (f->processors < 8 ? f->processors : 8));
    TCI_MACHINE_SET(f->matrix_flops, 1024);
    TCI_MACHINE_SET(f->wake_ns, 5000);
}

static void tci_machine_complete_device(const tci_machine *m, tc_machine *f)
{
    TCI_MACHINE_SET(f->processors, m->matrix_units > 0 ? m->matrix_units : 64);
    TCI_MACHINE_SET(f->ghz, 1.5);
    TCI_MACHINE_SET(f->ports, 128);
    TCI_MACHINE_SET(f->registers, 65536);
    TCI_MACHINE_SET(f->cache_bytes[0], 128 << 10);
    TCI_MACHINE_SET(f->cache_bytes[1], f->cache_bytes[0]);
    TCI_MACHINE_SET(f->cache_bytes[2], 16 << 20);
    TCI_MACHINE_SET(f->near_bytes, 64);
    TCI_MACHINE_SET(f->far_bytes, f->near_bytes);
    TCI_MACHINE_SET(f->all_bytes, 46 * f->processors);
    TCI_MACHINE_SET(f->one_gbs, f->near_bytes * f->ghz);
    TCI_MACHINE_SET(f->memory_gbs, 8.0 * f->processors);
    TCI_MACHINE_SET(f->subgroup, 32);
    TCI_MACHINE_SET(f->shared_bytes, 48 << 10);
    TCI_MACHINE_SET(f->shared_most, m->matrix_units > 0 ? 227 << 10 : f->shared_bytes);
    TCI_MACHINE_SET(f->matrix_flops, 4096);
    TCI_MACHINE_SET(f->launch_ns, 2000);
    TCI_MACHINE_SET(f->wake_ns, 5000);
}

TCI_FN tci_machine tci_machine_complete(tci_machine machine)
{
    if (machine.block_threads > 0) {
        tci_machine_complete_device(&machine, &machine.facts);
    } else {
        tci_machine_complete_cores(&machine, &machine.facts);
    }
    if (machine.no_shared_memory) {
        machine.facts.subgroup = 0;
        machine.facts.shared_bytes = machine.facts.shared_most = 0;
    }
    return machine;
}

TCI_FN int tci_machine_threads(const tci_machine *machine)
{
    return 2 * machine->facts.processors < TCI_MACHINE_MANY ? TCI_MACHINE_FEW : TCI_MACHINE_MANY;
}

TCI_FN void tci_machine_text(const tci_machine *machine, char *text, size_t n)
{
    tci_machine m = tci_machine_complete(*machine);
    const tc_machine *f = &m.facts;
    char blocks[120] = ""; /* how many cores there are exactly is no part of a CPU's code */
    if (m.block_threads == 0) {
        snprintf(blocks, sizeof(blocks), "about %d threads, ", tci_machine_threads(&m));
    } else {
        snprintf(blocks, sizeof(blocks),
                 "%d processors, subgroup %d, shared %lld %lld, %.4g GB/s, units of warps %d, ",
                 f->processors, f->subgroup, (long long)f->shared_bytes, (long long)f->shared_most,
                 f->memory_gbs, m.warp_unit);
    }
    snprintf(text, n,
             "%s%.3g GHz, %d ports, %d registers, caches %lld %lld %lld, bytes %.4g %.4g %.4g, "
             "%.4g GB/s, unit %.4g, wake %.4g",
             blocks, f->ghz, f->ports, f->registers, (long long)f->cache_bytes[0],
             (long long)f->cache_bytes[1], (long long)f->cache_bytes[2], f->near_bytes,
             f->far_bytes, f->all_bytes / f->processors, f->one_gbs, f->matrix_flops, f->wake_ns);
}

#undef TCI_MACHINE_SET
