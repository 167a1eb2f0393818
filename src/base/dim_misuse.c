/* base/dim_misuse.c - detects symbolic sizes that were used as C numbers.
 *
 * In: a number that a user passed. Out: whether it was computed from a symbolic size.
 *
 * Detection is not certain: n % 8 is a number like any other. Detected are sums with numbers and
 * with each other, as multiples of the tag; quotients; and, for the symbolic sizes that users have,
 * differences, products and truncation to int. The tolerances are so small that only 1 of 100,000
 * numbers is reported by mistake. */
#include "dim_expr.h"

#ifdef TC_DYNAMIC_SHAPES

enum { TCI_DIM_MULTIPLES = 16, TCI_DIM_QUOTIENTS = 4096, TCI_DIM_REAL_QUOTIENTS = 1024 };
static tci_dim tci_dim_shown[256]; /* those that users have: this many at the start */
static int tci_dim_n_shown;
static const uint64_t tci_dim_small = (uint64_t)1 << 20; /* below that nothing is suspected */

TCI_FN tci_dim tci_dim_show(tci_dim d)
{
    if (tci_dim_is_known(d) || !tci_dim_expr_of(d)) {
        return d;
    }
    tci_dim_take_lock();
    int at = 0, n = tci_dim_n_shown;
    while (at < n && tci_dim_shown[at] != d) {
        at++;
    }
    if (at == n && n < TCI_COUNT(tci_dim_shown)) {
        tci_dim_shown[at] = d;
        __atomic_store_n(&tci_dim_n_shown, n + 1, __ATOMIC_RELEASE);
    }
    tci_dim_give_lock();
    return d;
}

/* With the lock held: no thread has any more. */
TCI_FN void tci_dim_hide_all(void)
{
    __atomic_store_n(&tci_dim_n_shown, 0, __ATOMIC_RELEASE);
}

/* v in [first - slack, first + width + slack], modulo 2^64 */
static bool tci_dim_is_near(uint64_t v, uint64_t first, uint64_t width, uint64_t slack)
{
    return v - first + slack <= width + 2 * slack;
}

static bool tci_dim_is_of_shown(uint64_t v)
{
    int n = __atomic_load_n(&tci_dim_n_shown, __ATOMIC_ACQUIRE);
    for (int i = 0; i < n; i++) {
        uint64_t cut = (uint64_t)tci_dim_shown[i] & UINT32_MAX; /* as an int */
        if (tci_dim_is_near(v, cut, 0, 16) || tci_dim_is_near(v, cut - 1 - UINT32_MAX, 0, 16)) {
            return true;
        }
        for (int j = 0; j < n; j++) {
            uint64_t a = (uint64_t)tci_dim_shown[i], b = (uint64_t)tci_dim_shown[j];
            if ((i != j && tci_dim_is_near(v, a - b, 0, 16)) || tci_dim_is_near(v, a * b, 0, 16)) {
                return true;
            }
        }
    }
    return false;
}

TCI_FN bool tci_dim_is_stray(int64_t given)
{
    const uint64_t slack = (uint64_t)1 << 39, tag = (uint64_t)TCI_DIM_TAG;
    uint64_t v = (uint64_t)given, positive = given < 0 ? 0 - v : v;
    uint64_t highest = (uint64_t)tci_dim_highest_index();
    uint64_t width = (highest + 1) << TCI_DIM_CHECK_BITS;
    if (v - tag < TCI_DIM_FAULT_COUNT) {
        return true;
    }
    if (highest == 0 || positive < tci_dim_small ||
        (!tci_dim_is_known(given) && tci_dim_expr_of(given))) {
        return false;
    }
    for (uint64_t k = 1; k <= TCI_DIM_MULTIPLES; k++) {
        if (tci_dim_is_near(v, k * tag, k * width, slack) ||
            tci_dim_is_near(0 - v, k * tag, k * width, slack)) {
            return true;
        }
    }
    uint64_t k = positive > tag / TCI_DIM_QUOTIENTS ? (tag + positive / 2) / positive : 0;
    if (k >= 2 && tci_dim_is_near(positive, tag / k, width / k + 1, slack / k)) {
        return true;
    }
    return tci_dim_is_of_shown(v);
}

/* v or 1 / v is, as exactly as a float tells, a multiple or a part of one. */
TCI_FN bool tci_dim_is_stray_real(double v)
{
    double tag = (double)TCI_DIM_TAG, x = v < 0 ? -v : v;
    int highest = tci_dim_highest_index();
    if (highest == 0 || x == 0 || (x > 1e-10 && x < 1e10)) {
        return false;
    }
    x = x < 1 ? 1 / x : x;
    double width = 1 + 0x1p-22 + (double)(highest + 1) / (double)((int64_t)1 << 38);
    for (int k = 1; k <= TCI_DIM_REAL_QUOTIENTS; k++) {
        double part = tag / k;
        if ((x >= part * (1 - 0x1p-22) && x <= part * width) ||
            (k <= TCI_DIM_MULTIPLES && x >= tag * k * (1 - 0x1p-22) && x <= tag * k * width)) {
            return true;
        }
    }
    return false;
}

#endif
