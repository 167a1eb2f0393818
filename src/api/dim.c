/* api/dim.c - public calls that make symbolic sizes and compute with them.
 *
 * In: names and ranges, sizes, numbers. Out: sizes (base/dim.h), or an invalid size that encodes an
 * error. These calls have no context to store an error in, so an error is encoded as a reserved
 * size (TCI_DIM_FAULTS), and the call that takes it as a size reports it. Without TC_DYNAMIC_SHAPES
 * sizes are plain numbers under the same rules. */
#include "api_call.h"

static const int64_t tci_sizes_limit = (int64_t)1 << 60;

#ifdef TC_DYNAMIC_SHAPES
TC_API int64_t tc_dim_make(const char *name, int64_t least, int64_t most)
{
    bool valid = name && name[0] && 0 <= least && least <= most && most <= (int64_t)1 << 40;
    return (int64_t)(valid ? tci_dim_show(tci_dim_symbol(name, -1, least, most))
                           : TCI_DIM_OF_FAULT(NONE));
}
#endif

/* A number that arithmetic on another stays inside int64. */
static bool tci_sizes_is_small(int64_t v)
{
    return !tci_dim_is_known(v) || (v <= tci_sizes_limit && v >= -tci_sizes_limit);
}

/* The fault of an operand, as a result; 0: it has none. */
static int64_t tci_sizes_fault(int64_t v)
{
    if (!tci_dim_is_valid(v) || (tci_dim_is_known(v) && tci_dim_is_stray(v))) {
        return TCI_DIM_TAG + tci_dim_fault(v);
    }
    return tci_sizes_is_small(v) ? 0 : (int64_t)TCI_DIM_OF_FAULT(LARGE);
}

static int64_t tci_sizes_either_fault(int64_t a, int64_t b)
{
    int64_t fault = tci_sizes_fault(a);
    return fault ? fault : tci_sizes_fault(b);
}

static int64_t tci_sizes_result(tci_dim d)
{
    return (int64_t)(tci_sizes_is_small((int64_t)d) ? tci_dim_show(d) : TCI_DIM_OF_FAULT(LARGE));
}

TC_API int64_t tc_dim_add(int64_t a, int64_t b)
{
    int64_t fault = tci_sizes_either_fault(a, b);
    return fault ? fault : tci_sizes_result(tci_dim_add(a, b));
}

TC_API int64_t tc_dim_sub(int64_t a, int64_t b)
{
    int64_t fault = tci_sizes_either_fault(a, b);
    return fault ? fault : tci_sizes_result(tci_dim_sub(a, b));
}

TC_API int64_t tc_dim_mul(int64_t a, int64_t b)
{
    int64_t fault = tci_sizes_either_fault(a, b);
    if (!fault && tci_dim_is_known(a) && tci_dim_is_known(b) && a != 0) {
        int64_t most = tci_sizes_limit / (a < 0 ? -a : a);
        fault = b > most || b < -most ? (int64_t)TCI_DIM_OF_FAULT(LARGE) : 0;
    }
    return fault ? fault : tci_sizes_result(tci_dim_mul(a, b));
}

TC_API int64_t tc_dim_div(int64_t a, int64_t b)
{
    int64_t fault = tci_sizes_either_fault(a, b);
    if (!fault && !tci_dim_le(1, b)) {
        fault = (int64_t)TCI_DIM_OF_FAULT(DIVISOR);
    }
    return fault ? fault : tci_sizes_result(tci_dim_div(a, b));
}

TC_API int64_t tc_dim_min(int64_t a, int64_t b)
{
    int64_t fault = tci_sizes_either_fault(a, b);
    return fault ? fault : tci_sizes_result(tci_dim_min(a, b));
}

TC_API int64_t tc_dim_max(int64_t a, int64_t b)
{
    int64_t fault = tci_sizes_either_fault(a, b);
    return fault ? fault : tci_sizes_result(tci_dim_max(a, b));
}
