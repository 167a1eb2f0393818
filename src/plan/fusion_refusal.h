/* plan/fusion_refusal.h - lists the reasons not to fuse two values, one row each. */
#ifndef TCI_PLAN_FUSION_REFUSAL_H
#define TCI_PLAN_FUSION_REFUSAL_H

#define TCI_WHY_ROWS(X)                                                                            \
    X(INDEX, "it is read at another index than it is computed at")                                 \
    X(SPACE, "the iteration spaces differ")                                                        \
    X(CONTRACTION, "a contraction takes only elementwise work over its own output axes")           \
    X(ROW, "a kernel holds whole rows only of a known, medium length, and several of them")        \
    X(PRICE, "in one kernel it would take longer on this machine")                                 \
    X(SCAN, "a running sum is stored before it is read")                                           \
    X(CLASS, "their sums have different orders, which no kernel changes")                          \
    X(SCATTER, "the result of a scatter is stored before it is read, in loops of its own")         \
    X(REPEAT, "a repetition has kernels of its own, and its results are stored")                   \
    X(CUSTOM, "a function of the user's, or a collective, reads and writes memory")                \
    X(FEW, "the few points of the sums would leave most of the device idle")                       \
    X(CYCLE, "another kernel is between them")                                                     \
    X(FAR, "so many kernels depend on one of them that a cycle is not ruled out")                  \
    X(SIZE, "the joined kernel would be too large")                                                \
    X(SHARED, "several kernels read it and computing it again costs more than memory")             \
    X(AGAIN, "it would be computed again for many elements")                                       \
    X(LARGE, "the kernel would be too large, and the fewest bytes cross here")                     \
    X(DEEP, "evaluating it unrolls many reductions or moves for each of its users")                \
    X(SPLIT, "a large reduction is cut in chunks, combined by a second kernel")                    \
    X(DIVISION, "read in another shape its index would need a division for every element")         \
    X(APART, "options.fusion keeps ops apart")                                                     \
    X(BARRIER, "a barrier is between them: kernels after it read memory")                          \
    X(ONCE, "one is computed once for the program, the other in each run")                         \
    X(LATE, "one is recomputed after the memory peak, the other is computed before it")            \
    X(PAIRS, "each kernel that sums pairs of rows and columns computes them for itself")           \
    X(OPERAND, "the operand of a contraction is stored in the order the contraction reads it")
typedef enum tci_why {
#define TCI_ROW(id, text) TCI_WHY_##id,
    TCI_WHY_ROWS(TCI_ROW)
#undef TCI_ROW
        TCI_WHY_COUNT
} tci_why;

static inline const char *tci_why_text(tci_why why)
{
    static const char *const texts[] = {
#define TCI_ROW(id, text) text,
        TCI_WHY_ROWS(TCI_ROW)
#undef TCI_ROW
    };
    return texts[why];
}

#endif
