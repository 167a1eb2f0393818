/* tests/unit/interp_kernel.h - kernels of kernel IR built by hand and run by the interpreter. After
 * inside.h and tc_test.h. */
#ifndef TC_TEST_INTERP_KERNEL_H
#define TC_TEST_INTERP_KERNEL_H

/* ---- building ---- */

typedef struct tk_k {
    tci_scratch s;
    tci_kernel *k;
} tk_k;

static tk_k *tk_open(tci_kvec vector)
{
    tk_k *t = calloc(1, sizeof *t);
    tci_scratch_init(&t->s);
    t->k = tci_kernel_make(&t->s);
    t->k->vector = (uint8_t)vector;
    return t;
}

static int tk_axis(tk_k *t, int64_t size, bool inner)
{
    int axis = tci_kernel_axis(t->k, size, inner);
    t->k->n_outer = inner ? t->k->n_outer : axis + 1;
    return axis;
}

static int tk_stage(tk_k *t, tci_kstage_kind kind, int n, int a0, int a1)
{
    tci_kstage st = {(uint8_t)kind, n, TCI_NEW_ARRAY(&t->s, int32_t, 2), 0, -1, -1};
    st.axes[0] = a0;
    st.axes[1] = a1;
    TCI_PUSH(&t->s, t->k->stages, t->k->n_stages, t->k->cap_stages, st);
    return t->k->n_stages - 1;
}

static int tk_guard(tk_k *t, int x, int64_t lo, int64_t hi)
{
    tci_kguard g = {x, lo, hi};
    TCI_PUSH(&t->s, t->k->guards, t->k->n_guards, t->k->cap_guards, g);
    return t->k->n_guards - 1;
}

static int tk_load_guarded(tk_k *t, int operand, int x, int guard, int n_guards, tci_value fill)
{
    tci_kinst i = {0};
    i.op = TCI_K_LOAD;
    i.dtype = tci_dtype_get((tc_dtype)t->k->operands[operand].dtype)->compute;
    i.x = x;
    i.imm = operand;
    i.guard = guard;
    i.n_guards = n_guards;
    i.value = fill;
    return tci_kernel_inst(t->k, i);
}

static int tk_load(tk_k *t, int operand, int x)
{
    tci_value zero = {0};
    return tk_load_guarded(t, operand, x, -1, 0, zero);
}

static int tk_red(tk_k *t, tci_red_op op, tc_dtype dtype, int stage, int a, int b)
{
    bool rows = t->k->vector == TCI_VEC_INNER;
    tci_kred r = {.op = (uint8_t)op, .dtype = (int8_t)dtype, .stage = stage, .in = {a, b, -1}};
    r.part = (uint8_t)(tci_red_parts(op) - 1);
    r.order = rows ? TCI_ORDER_LANES : TCI_ORDER_CHAIN;
    r.order_n = rows ? TCI_VLANES : 0;
    TCI_PUSH(&t->s, t->k->reds, t->k->n_reds, t->k->cap_reds, r);
    tci_kinst i = {0};
    i.op = TCI_K_RED;
    i.dtype = (int8_t)tci_red_dtype(op, r.part, dtype);
    i.x = i.guard = -1;
    i.imm = t->k->n_reds - 1;
    int inst = tci_kernel_inst(t->k, i);
    t->k->reds[t->k->n_reds - 1].inst = inst;
    return inst;
}

static void tk_store(tk_k *t, int stage, int operand, int x, int value)
{
    tci_kstore st = {stage, operand, x, value, TCI_MODE_SET, -1, false};
    TCI_PUSH(&t->s, t->k->stores, t->k->n_stores, t->k->cap_stores, st);
}

static int tk_const(tk_k *t, tc_dtype dtype, double v)
{
    tci_value x = {0};
    if (tci_dtype_is_float(dtype)) {
        x.f = v;
    } else {
        x.i = (int64_t)v;
    }
    return tci_kernel_const(t->k, dtype, x);
}

static int tk_1(tk_k *t, tci_prim p, tc_dtype dtype, int a)
{
    return tci_kernel_prim(t->k, p, dtype, 1, a, -1, -1);
}

static int tk_2(tk_k *t, tci_prim p, tc_dtype dtype, int a, int b)
{
    return tci_kernel_prim(t->k, p, dtype, 2, a, b, -1);
}

static int tk_ax(tk_k *t, int axis)
{
    return tci_kx_axis(t->k, axis);
}

/* axis * scale + x */
static int tk_at(tk_k *t, int axis, int64_t scale, int x)
{
    int a = tci_kx_mul(t->k, tci_kx_axis(t->k, axis), scale);
    return x < 0 ? a : tci_kx_add(t->k, a, x);
}

/* ---- running: dirty workspace, first all tasks at once, then one by one: same bytes ---- */

static int64_t tk_fault;

static void tk_run(tk_k *t, void **bufs, const int64_t *lits, int output, size_t bytes)
{
    tci_interp *p = tci_interp_make(t->k);
    REQUIRE(p);
    size_t n = tci_interp_workspace(p);
    CHECK_EQ_INT(n % 64, 0);
    char *workspace = aligned_alloc(64, n + 64);
    memset(workspace, 0xa5, n + 64);
    char *once = malloc(bytes + 1);
    int64_t tasks = tci_interp_tasks(p);
    tk_fault = 0;
    tci_interp_run(p, workspace, bufs, lits, &tk_fault, 0, tasks);
    memcpy(once, bufs[output], bytes);
    memset(bufs[output], 0x5a, bytes);
    for (int64_t i = tasks - 1; i >= 0; i--) {
        tci_interp_run(p, workspace, bufs, lits, &tk_fault, i, i + 1);
    }
    CHECK(memcmp(once, bufs[output], bytes) == 0);
    for (int i = 0; i < 64; i++) {
        CHECK_EQ_INT((unsigned char)workspace[n + (size_t)i], 0xa5);
    }
    free(once);
    free(workspace);
    tci_interp_free(p);
}

static void tk_close(tk_k *t)
{
    tci_scratch_free(&t->s);
    free(t);
}

static uint64_t tk_state = 88172645463325252u;
static uint64_t tk_bits(void)
{
    tk_state ^= tk_state << 13;
    tk_state ^= tk_state >> 7;
    tk_state ^= tk_state << 17;
    return tk_state;
}

static float tk_float(void)
{
    return (float)((double)(tk_bits() >> 11) * 0x1p-53 * 8.0 - 4.0);
}

/* An array of exactly n elements, so that reading past it is seen by a checker. */
static float *tk_floats(int64_t n)
{
    float *a = malloc(sizeof(float) * (size_t)(n ? n : 1));
    for (int64_t i = 0; i < n; i++) {
        a[i] = tk_float();
    }
    return a;
}

static float tk_max(float acc, float v)
{
    return acc > v || acc != acc ? acc : v;
}

/* The INNER order, plainly: element j of a row to lane j % 64, then the tree. */
static float tk_lanes(const float *x, int64_t rows, int64_t row_stride, int64_t n, float identity,
                      float (*combine)(float, float))
{
    float acc[64];
    for (int i = 0; i < 64; i++) {
        acc[i] = identity;
    }
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t j = 0; j < n; j++) {
            acc[j % 64] = combine(acc[j % 64], x[r * row_stride + j]);
        }
    }
    for (int h = 32; h > 0; h /= 2) {
        for (int i = 0; i < h; i++) {
            acc[i] = combine(acc[i], acc[i + h]);
        }
    }
    return acc[0];
}

static float tk_add(float a, float b)
{
    return a + b;
}

#endif
