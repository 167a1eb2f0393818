/* tests/cpu/broken_backend.h - a backend "broken": the cpu backend with a bug of tc's own, an
 * invariant that does not hold when the emitter comes to a tanh. BROKEN_IS_MENDED in the
 * environment takes the bug away. For what is written of internal errors.
 *
 * Include after the inside of the library: tests/inside.h, or tc.h with its implementation. */
#ifndef TC_TEST_BROKEN_BACKEND_H
#define TC_TEST_BROKEN_BACKEND_H

#include <stdlib.h>

static const char *(*broken_prim)(tci_dialect *d, tci_prim p, tc_dtype t, tc_dtype to, int lanes,
                                  int imm);

static const char *broken_name(tci_dialect *d, tci_prim p, tc_dtype t, tc_dtype to, int lanes,
                               int imm)
{
    const bool is_tanh = p == TCI_P_TANH;
    TCI_ASSERT(d->s, !is_tanh || getenv("BROKEN_IS_MENDED"));
    return broken_prim(d, p, t, to, lanes, imm);
}

static tci_dialect *broken_make(tci_scratch *s, int vector_bytes)
{
    tci_dialect *d = tci_dialect_make(s, NULL, vector_bytes);
    broken_prim = d->prim;
    d->prim = broken_name;
    return d;
}

static void broken_register(void)
{
    static const tc_dialect words = {.make = broken_make};
    static tc_backend broken;
    broken = *tci_cpu_backend();
    broken.name = "broken";
    broken.dialect = "broken";
    broken.own_dialect = &words;
    (void)tc_register_backend(&broken);
}

#endif
