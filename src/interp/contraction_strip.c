/* interp/contraction_strip.c - fast path for contractions in the interpreter: one dispatch executes
 * a strip of multiply-adds along the reduction axes, like a GEMM micro-kernel with one row.
 *
 * In: a prepared kernel. Out: strips for stages that do nothing at each point but one multiply-add
 * into an accumulator of an element per lane; tci_interp_strip_run adds a range of points. Design:
 * both factors have a constant stride along each axis of the stage, so their addresses advance from
 * point to point instead of being summed from terms, and a tile of the accumulator stays in
 * registers for TCI_STRIP_POINTS points. A factor is read in place where it is one element for all
 * lanes, or contiguous vectors; else the lanes of each point are gathered into rows of the
 * workspace first. Each lane adds its products in the order of the points, so results are
 * bit-identical to those without strips. */
#include "lower_to_linear.h"

#include <math.h>
#include <string.h>

enum {
    TCI_STRIP_POINTS = 32, /* of one call of a kernel */
    TCI_STRIP_ROWS = 16    /* the same where lanes are gathered, which takes workspace */
};

/* ---- kernels: acc = x * y + acc for n points ----
 * y has a vector of lanes at each point, x too, or one element for all lanes (U). */

TCI_QUICK_BEGIN

#define TCI_STRIP_BASE(name, T, size, fma, lanes)                                                  \
    static void tci_strip_##name##_base(char *acc, int64_t groups, const char *const *x,           \
                                        const char *const *y, int n)                               \
    {                                                                                              \
        const int64_t count = groups * (TCI_INTERP_GROUP / size);                                  \
        for (int p = 0; p < n; p++) {                                                              \
            for (int64_t i = 0; i < count; i++) {                                                  \
                T a, b, c;                                                                         \
                memcpy(&a, x[p] + (lanes) * i * size, size);                                       \
                memcpy(&b, y[p] + i * size, size);                                                 \
                memcpy(&c, acc + i * size, size);                                                  \
                c = fma(a, b, c);                                                                  \
                memcpy(acc + i * size, &c, size);                                                  \
            }                                                                                      \
        }                                                                                          \
    }
TCI_STRIP_BASE(f32_u, float, 4, fmaf, 0)
TCI_STRIP_BASE(f32_v, float, 4, fmaf, 1)
TCI_STRIP_BASE(f64_u, double, 8, fma, 0)
TCI_STRIP_BASE(f64_v, double, 8, fma, 1)
#undef TCI_STRIP_BASE

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) && !defined(__TINYC__)
typedef float tci_strip_f32 __attribute__((vector_size(32), aligned(1), may_alias));
typedef double tci_strip_f64 __attribute__((vector_size(32), aligned(1), may_alias));
typedef float tci_strip_s32 __attribute__((aligned(1), may_alias));
typedef double tci_strip_s64 __attribute__((aligned(1), may_alias));

/* Tiles of 8 vectors, then of 2: as many chains as two ports need, and what is left. */
#define TCI_STRIP_8(M) M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7)
#define TCI_STRIP_2(M) M(0) M(1)
#define TCI_STRIP_LOAD(i) tci_v a##i = ((const tci_v *)(const void *)acc)[i];
#define TCI_STRIP_STORE(i) ((tci_v *)(void *)acc)[i] = a##i;
#define TCI_STRIP_STEP_U(i)                                                                        \
    a##i = TCI_STRIP_FMA(u, ((const tci_v *)(const void *)(y[p] + at))[i], a##i);
#define TCI_STRIP_STEP_V(i)                                                                        \
    a##i = TCI_STRIP_FMA(((const tci_v *)(const void *)(x[p] + at))[i],                            \
                         ((const tci_v *)(const void *)(y[p] + at))[i], a##i);
#define TCI_STRIP_U(s) const tci_v u = (tci_v){0} + *(const s *)(const void *)x[p];
#define TCI_STRIP_V(s)
#define TCI_STRIP_TILE(all, begin, step, s, bytes)                                                 \
    {                                                                                              \
        all(TCI_STRIP_LOAD) for (int p = 0; p < n; p++)                                            \
        {                                                                                          \
            begin(s) all(step)                                                                     \
        }                                                                                          \
        all(TCI_STRIP_STORE) acc += bytes;                                                         \
        at += bytes;                                                                               \
    }
#define TCI_STRIP_BEST(name, vector, s, begin, step)                                               \
    __attribute__((target("avx2,fma"))) static void tci_strip_##name##_best(                       \
        char *acc, int64_t groups, const char *const *x, const char *const *y, int n)              \
    {                                                                                              \
        typedef vector tci_v;                                                                      \
        int64_t at = 0;                                                                            \
        for (; groups >= 4; groups -= 4) {                                                         \
            TCI_STRIP_TILE(TCI_STRIP_8, begin, step, s, 256)                                       \
        }                                                                                          \
        for (; groups > 0; groups--) {                                                             \
            TCI_STRIP_TILE(TCI_STRIP_2, begin, step, s, 64)                                        \
        }                                                                                          \
    }
#define TCI_STRIP_FMA(a, b, c) __builtin_ia32_vfmaddps256(a, b, c)
TCI_STRIP_BEST(f32_u, tci_strip_f32, tci_strip_s32, TCI_STRIP_U, TCI_STRIP_STEP_U)
TCI_STRIP_BEST(f32_v, tci_strip_f32, tci_strip_s32, TCI_STRIP_V, TCI_STRIP_STEP_V)
#undef TCI_STRIP_FMA
#define TCI_STRIP_FMA(a, b, c) __builtin_ia32_vfmaddpd256(a, b, c)
TCI_STRIP_BEST(f64_u, tci_strip_f64, tci_strip_s64, TCI_STRIP_U, TCI_STRIP_STEP_U)
TCI_STRIP_BEST(f64_v, tci_strip_f64, tci_strip_s64, TCI_STRIP_V, TCI_STRIP_STEP_V)
#undef TCI_STRIP_FMA
#undef TCI_STRIP_8
#undef TCI_STRIP_2
#undef TCI_STRIP_LOAD
#undef TCI_STRIP_STORE
#undef TCI_STRIP_STEP_U
#undef TCI_STRIP_STEP_V
#undef TCI_STRIP_U
#undef TCI_STRIP_V
#undef TCI_STRIP_TILE
#undef TCI_STRIP_BEST
#define TCI_STRIP_KERNEL(name) {tci_strip_##name##_base, tci_strip_##name##_best}
#else
#define TCI_STRIP_KERNEL(name) {tci_strip_##name##_base, tci_strip_##name##_base}
#endif

TCI_FN tci_interp_strip_fn tci_interp_strip_kernel(tc_dtype t, bool both, bool best)
{
    static const tci_interp_strip_fn kernels[2][2][2] = {
        {TCI_STRIP_KERNEL(f32_u), TCI_STRIP_KERNEL(f32_v)},
        {TCI_STRIP_KERNEL(f64_u), TCI_STRIP_KERNEL(f64_v)}};
    return kernels[t == TC_F64][both][best];
}
#undef TCI_STRIP_KERNEL

/* ---- execution ---- */

/* n lanes from `from` on, `stride` bytes apart. */
static void tci_strip_gather(char *row, const char *from, int64_t stride, int bytes, int64_t n)
{
    if (stride == bytes) {
        memcpy(row, from, (size_t)(n * bytes));
    } else if (bytes == 4) {
        for (int64_t i = 0; i < n; i++) {
            memcpy(row + i * 4, from + i * stride, 4);
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            memcpy(row + i * 8, from + i * stride, 8);
        }
    }
}

/* Positions of a point: of both factors in memory, and on the axes of the strip. */
typedef struct tci_strip_point {
    const char *at[2];
    int64_t axis[TCI_STRIP_AXES];
} tci_strip_point;

static void tci_strip_find(const tci_interp_strip *s, const char *const from[2], int64_t number,
                           tci_strip_point *point)
{
    point->at[0] = from[0];
    point->at[1] = from[1];
    for (int i = s->n_axes - 1; i >= 0; i--) {
        point->axis[i] = number % s->sizes[i];
        number /= s->sizes[i];
        for (int k = 0; k < 2; k++) {
            point->at[k] += point->axis[i] * s->step[k][i];
        }
    }
}

/* Addresses of `count` points from `point` on; advances `point` past them. */
static void tci_strip_list(const tci_interp_strip *s, tci_strip_point *point, int count,
                           const char *(*list)[TCI_STRIP_POINTS])
{
    const int last = s->n_axes - 1;
    const int64_t step0 = s->step[0][last], step1 = s->step[1][last], size = s->sizes[last];
    for (int p = 0; p < count; p++) {
        list[0][p] = point->at[0];
        list[1][p] = point->at[1];
        point->at[0] += step0;
        point->at[1] += step1;
        if (++point->axis[last] < size) {
            continue;
        }
        for (int i = last; i > 0 && point->axis[i] == s->sizes[i]; i--) {
            point->axis[i] = 0;
            point->axis[i - 1]++;
            for (int k = 0; k < 2; k++) {
                point->at[k] += s->step[k][i - 1] - s->step[k][i] * s->sizes[i];
            }
        }
    }
}

/* Lanes of factor k at listed points that are not read in place go to rows. */
static void tci_strip_rows(const tci_interp_strip *s, int k, int count, const char **list,
                           char *rows, int64_t lanes)
{
    for (int p = 0; p < count; p++) {
        char *row = rows + p * s->row_bytes;
        tci_strip_gather(row, list[p], s->lane_step[k], s->bytes, lanes);
        list[p] = row;
    }
}

TCI_FN void tci_interp_strip_run(const tci_interp_strip *s, char *workspace, char *acc,
                                 const char *const from[2], int64_t lanes, int64_t begin,
                                 int64_t end)
{
    const char *list[2][TCI_STRIP_POINTS];
    const int64_t groups = (lanes * s->bytes + TCI_INTERP_GROUP - 1) / TCI_INTERP_GROUP;
    bool gathers[2], any = false;
    for (int k = 0; k < 2; k++) {
        bool whole = s->padded[k] || lanes * s->bytes % TCI_INTERP_GROUP == 0;
        gathers[k] = s->lane_step[k] && (s->lane_step[k] != s->bytes || !whole);
        any = any || gathers[k];
    }
    const int most = any ? TCI_STRIP_ROWS : TCI_STRIP_POINTS;
    const int vector = s->lane_step[1] ? 1 : 0; /* this one varies */
    const bool both = s->lane_step[0] && s->lane_step[1];
    tci_strip_point point;
    tci_strip_find(s, from, begin, &point);
    for (int64_t at = begin; at < end; at += most) {
        const int count = (int)TCI_MIN(end - at, (int64_t)most);
        tci_strip_list(s, &point, count, list);
        for (int k = 0; k < 2; k++) {
            if (gathers[k]) {
                char *rows = workspace + s->rows_offset + k * TCI_STRIP_ROWS * s->row_bytes;
                tci_strip_rows(s, k, count, list[k], rows, lanes);
            }
        }
        s->kernel[both](acc, groups, list[1 - vector], list[vector], count);
    }
}

TCI_QUICK_END

/* ---- preparation ---- */

/* The load of a section that makes a value; NULL: none does. */
static const tci_interp_step *tci_prep_strip_load(const tci_interp_section *section, int32_t value)
{
    for (int i = 0; i < section->n; i++) {
        if (section->steps[i].kind == TCI_STEP_LOAD && section->steps[i].out == value) {
            return &section->steps[i];
        }
    }
    return NULL;
}

/* The fold of a section of loads and that fold alone; NULL: it has something else. */
static const tci_interp_step *tci_prep_strip_fold(const tci_interp_section *section)
{
    const tci_interp_step *fold = NULL;
    for (int i = 0; i < section->n; i++) {
        const tci_interp_step *st = &section->steps[i];
        bool loads = st->kind == TCI_STEP_LOAD && st->x && st->n_guards == 0 && st->x->n_atoms == 0;
        if (st->kind == TCI_STEP_FOLD && !fold) {
            fold = st;
        } else if (!loads) {
            return NULL;
        }
    }
    return fold;
}

/* True if the reduction takes one multiply-add for each point and lane of an outer block. */
static bool tci_prep_strip_adds(const tci_interp *p, const tci_interp_step *fold)
{
    const tci_interp_red *r = &p->reds[fold->ref];
    return r->single && !r->inner && !r->scan && !r->row && fold->varies && !fold->x &&
           r->combine.prim == TCI_P_FMA && r->combine.n_in == 3 && r->combine.loop &&
           (r->combine.dtype == TC_F32 || r->combine.dtype == TC_F64) && r->source[0] > 0 &&
           r->source[1] > 0 && r->source[2] == 0;
}

/* Bytes by which a factor moves along an axis. */
static int64_t tci_prep_strip_step(const tci_interp_addr *x, int32_t axis, int bytes)
{
    int64_t step = 0;
    for (int i = 0; x && i < x->n_terms; i++) {
        step += x->terms[i].axis == axis ? x->terms[i].coef * bytes : 0;
    }
    return step;
}

/* The axes of the stage; neighbours along which both factors move as along one are one. False:
 * there are too many. */
static bool tci_prep_strip_axes(const tci_interp *p, const tci_interp_stage *stage,
                                tci_interp_strip *s)
{
    const tci_interp_addr *x[2];
    for (int k = 0; k < 2; k++) {
        const tci_interp_step *load = s->load[k];
        x[k] = !load ? NULL : load->panel ? &load->panel->at : load->x;
    }
    s->points = 1;
    for (int i = 0; i < stage->n_axes; i++) {
        const int64_t size = p->sizes[stage->axes[i]];
        int64_t step[2];
        s->points *= size;
        for (int k = 0; k < 2; k++) {
            step[k] = tci_prep_strip_step(x[k], stage->axes[i], s->bytes);
        }
        int n = s->n_axes;
        bool joins = n > 0 && s->step[0][n - 1] == step[0] * size &&
                     s->step[1][n - 1] == step[1] * size;
        n = joins ? n - 1 : n;
        if (n == TCI_STRIP_AXES) {
            return false;
        }
        s->sizes[n] = joins ? s->sizes[n] * size : size;
        s->step[0][n] = step[0];
        s->step[1][n] = step[1];
        s->n_axes = n + 1;
    }
    return true;
}

static tci_interp_strip *tci_prep_strip_make(tci_prep *b, const tci_interp_stage *stage)
{
    tci_interp *p = b->p;
    const tci_interp_section *section = &stage->sections[stage->n_axes];
    const tci_interp_step *fold = tci_prep_strip_fold(section);
    if (!fold || !tci_prep_strip_adds(p, fold)) {
        return NULL;
    }
    const tci_interp_red *r = &p->reds[fold->ref];
    tci_interp_strip *s = TCI_NEW(b->s, tci_interp_strip);
    bool best = tci_interp_has_avx2();
    s->red = fold->ref;
    s->bytes = r->bytes[0];
    for (int k = 0; k < 2; k++) {
        s->value[k] = fold->in[r->source[k] - 1];
        s->load[k] = tci_prep_strip_load(section, s->value[k]);
        bool varies = p->values[s->value[k]].varies;
        /* a value of an enclosing section has memory of whole groups */
        s->padded[k] = !s->load[k] || s->load[k]->panel;
        s->lane_step[k] = !varies ? 0 : s->padded[k] ? s->bytes : s->load[k]->x->stride * s->bytes;
        s->kernel[k] = tci_interp_strip_kernel((tc_dtype)r->combine.dtype, k, best);
    }
    bool fits = (s->lane_step[0] || s->lane_step[1]) && tci_prep_strip_axes(p, stage, s);
    return fits ? s : NULL;
}

TCI_FN void tci_prep_strips(tci_prep *b)
{
    tci_interp *p = b->p;
    for (int i = 0; i < p->n_stages && !p->inner; i++) {
        tci_interp_stage *stage = &p->stages[i];
        bool alone = stage->n_axes > 0 && stage->n_reds == 1 && stage->n_kept == 0 &&
                     stage->to_operand < 0 && !stage->from;
        for (int d = 1; d < stage->n_axes; d++) {
            alone = alone && stage->sections[d].n == 0;
        }
        tci_interp_strip *s = alone ? tci_prep_strip_make(b, stage) : NULL;
        if (s) {
            s->row_bytes = (p->block * s->bytes + TCI_INTERP_GROUP - 1) / TCI_INTERP_GROUP *
                           TCI_INTERP_GROUP;
            s->rows_offset = (p->workspace_bytes + 63) / 64 * 64;
            bool rows = false;
            for (int k = 0; k < 2; k++) {
                rows = rows || (s->lane_step[k] && !s->padded[k]);
            }
            p->workspace_bytes = s->rows_offset +
                                 (rows ? 2 * TCI_STRIP_ROWS * (int64_t)s->row_bytes : 0);
        }
        stage->strip = s;
    }
}
