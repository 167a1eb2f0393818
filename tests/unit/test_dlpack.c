/* tests/unit/test_dlpack.c - tensors of other libraries: memory has one owner, which is told once.
 * The structs below are those of dlpack.h, version 1. */
#include "inside.h"

#include "tc_test.h"

typedef struct {
    int32_t device_type;
    int32_t device_id;
} DLDevice;
typedef struct {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
} DLDataType;
typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} DLTensor;
typedef struct DLManagedTensor {
    DLTensor dl_tensor;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;
typedef struct DLManagedTensorVersioned {
    struct {
        uint32_t major, minor;
    } version;
    void *manager_ctx;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    DLTensor dl_tensor;
} DLManagedTensorVersioned;

#define SAME(a, b, theirs, ours)                                                                   \
    CHECK_EQ_INT(offsetof(a, theirs), offsetof(b, ours))

TEST(the_layout_is_theirs)
{
    SAME(DLTensor, tc_dlpack_tensor, device, device_type);
    SAME(DLTensor, tc_dlpack_tensor, ndim, ndim);
    SAME(DLTensor, tc_dlpack_tensor, dtype, code);
    SAME(DLTensor, tc_dlpack_tensor, dtype.lanes, lanes);
    SAME(DLTensor, tc_dlpack_tensor, strides, strides);
    SAME(DLTensor, tc_dlpack_tensor, byte_offset, byte_offset);
    SAME(DLManagedTensor, tc_dlpack_unversioned, deleter, deleter);
    SAME(DLManagedTensorVersioned, tc_dlpack, manager_ctx, manager);
    SAME(DLManagedTensorVersioned, tc_dlpack, flags, flags);
    SAME(DLManagedTensorVersioned, tc_dlpack, dl_tensor, tensor);
    CHECK(sizeof(DLManagedTensorVersioned) == sizeof(tc_dlpack));
    CHECK(sizeof(DLManagedTensor) == sizeof(tc_dlpack_unversioned));
}

static tc_ctx *ctx;

static void begin(void)
{
    tc_options o = {.backend = "interp", .threads = 1, .no_disk_cache = true};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
}

/* A tensor of a library, which counts how often it was ended. */
typedef struct foreign {
    tc_dlpack versioned;
    tc_dlpack_unversioned plain;
    int64_t shape[2], strides[2];
    int deleted;
    float data[8];
} foreign;

static void foreign_deleter(tc_dlpack *dl)
{
    ((foreign *)dl->manager)->deleted++;
}
static void foreign_deleter_plain(tc_dlpack_unversioned *dl)
{
    ((foreign *)dl->manager)->deleted++;
}

/* [2, 3], by columns, from the second element on. */
static void make(foreign *f)
{
    tc_dlpack_tensor t = {.data = f->data,
                          .device_type = 1,
                          .ndim = 2,
                          .code = 2,
                          .bits = 32,
                          .lanes = 1,
                          .shape = f->shape,
                          .strides = f->strides,
                          .byte_offset = 4};
    *f = (foreign){.shape = {2, 3}, .strides = {1, 2}, .data = {9, 1, 4, 2, 5, 3, 6}};
    f->versioned = (tc_dlpack){.major = 1, .manager = f, .deleter = foreign_deleter, .tensor = t};
    f->plain = (tc_dlpack_unversioned){.tensor = t, .manager = f, .deleter = foreign_deleter_plain};
}

static void check_rows(tc_tensor t)
{
    float got[6] = {0};
    CHECK_MSG(tc_read(t, got, 6) == TC_OK, "%s", tc_error(t));
    for (int i = 0; i < 6; i++) {
        CHECK_EQ_INT((int)got[i], i + 1);
    }
}

TEST(in_and_ended_once)
{
    for (int form = 0; form < 2; form++) {
        begin();
        foreign f;
        make(&f);
        CHECK_EQ_INT(tc_scope_begin(ctx), TC_OK);
        tc_tensor t = form ? tc_from_dlpack(ctx, &f.versioned)
                           : tc_from_dlpack_unversioned(ctx, &f.plain);
        check_rows(t);
        CHECK(tci_handle_node(t)->storage->borrowed);
        tc_program *program;
        REQUIRE(tc_compile(tc_add(t, tc_input(ctx, "x", TC_F32, 3)), &program) == TC_OK);
        CHECK_EQ_INT(tc_scope_end(ctx), TC_OK);
        CHECK_EQ_INT(f.deleted, 0);
        tc_ctx_free(ctx);
        CHECK_EQ_INT(f.deleted, 0);
        float x[3] = {1, 1, 1}, y[6];
        CHECK_EQ_INT(tc_run(program, TC_BUFS(TC_BUF(x, 3)), TC_BUFS(TC_BUF(y, 6))), TC_OK);
        CHECK(y[0] == 2 && y[5] == 7);
        tc_program_free(program);
        CHECK_EQ_INT(f.deleted, 1);
    }
}

TEST(in_of_other_forms)
{
    begin();
    foreign f;
    make(&f);
    f.versioned.tensor.strides = NULL; /* row-major */
    f.versioned.tensor.byte_offset = 0;
    tc_tensor t = tc_from_dlpack(ctx, &f.versioned);
    float got[6];
    CHECK(tc_read(t, got, 6) == TC_OK && got[0] == 9 && got[5] == 3);
    foreign unaligned;
    make(&unaligned);
    memmove((char *)unaligned.data + 1, unaligned.data, 7 * sizeof(float));
    unaligned.versioned.tensor.byte_offset = 5;
    t = tc_from_dlpack(ctx, &unaligned.versioned);
    CHECK_EQ_INT(unaligned.deleted, 1); /* copied */
    check_rows(t);
    foreign none;
    make(&none);
    none.versioned.tensor.data = NULL;
    none.versioned.tensor.byte_offset = 0;
    none.shape[0] = 0;
    t = tc_from_dlpack(ctx, &none.versioned);
    CHECK(tc_count(t) == 0 && tc_status_of(t) == TC_OK);
    tc_ctx_free(ctx);
    CHECK(f.deleted == 1 && none.deleted == 1 && unaligned.deleted == 1);
}

static void check_refused(foreign *f, tc_status why, const char *text)
{
    tc_tensor t = tc_from_dlpack(ctx, &f->versioned);
    CHECK_EQ_INT(tc_status_of(t), why);
    CHECK_HAS(tc_error(t), text);
    CHECK_EQ_INT(f->deleted, 0); /* it is still ours */
    make(f);
}

TEST(refused_and_still_the_callers)
{
    begin();
    foreign f;
    make(&f);
    f.versioned.tensor.device_type = 2;
    check_refused(&f, TC_ERR_UNSUPPORTED, "device 0 of kind 2");
    f.versioned.tensor.lanes = 4;
    check_refused(&f, TC_ERR_UNSUPPORTED, "32 bits and 4 lanes");
    f.versioned.tensor.code = 5;
    check_refused(&f, TC_ERR_UNSUPPORTED, "type code 5");
    f.versioned.major = 2;
    check_refused(&f, TC_ERR_UNSUPPORTED, "version 2.0");
    f.versioned.tensor.ndim = -1;
    check_refused(&f, TC_ERR_ARGUMENT, "a list of -1");
    f.versioned.tensor.shape = NULL;
    check_refused(&f, TC_ERR_ARGUMENT, "a list of 2 at NULL");
    f.shape[1] = -3;
    check_refused(&f, TC_ERR_SHAPE, "-3");
    f.shape[0] = f.shape[1] = INT64_MAX / 2;
    check_refused(&f, TC_ERR_LIMIT, "more elements");
    f.strides[0] = INT64_MAX / 2;
    check_refused(&f, TC_ERR_LIMIT, "strides");
    f.versioned.tensor.data = NULL;
    check_refused(&f, TC_ERR_ARGUMENT, "is NULL");
    CHECK_EQ_INT(tc_status_of(tc_from_dlpack(ctx, NULL)), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_status_of(tc_from_dlpack(NULL, &f.versioned)), TC_ERR_HANDLE);
    CHECK_EQ_INT(tc_status_of(tc_from_dlpack_unversioned(NULL, &f.plain)), TC_ERR_HANDLE);
    CHECK_EQ_INT(f.deleted, 0);
    tc_ctx_free(ctx);
}

/* Out and in again; what was shown outlives its context. */
TEST(out_and_in_again)
{
    begin();
    float data[6] = {1, 4, 2, 5, 3, 6};
    int64_t sizes[2] = {2, 3}, strides[2] = {1, 2};
    tc_tensor view = tc_borrow_strided(ctx, data, TC_F32, 2, sizes, strides);
    tc_tensor sum = tc_add(view, 0);
    tc_dlpack *borrowed, *computed;
    tc_dlpack_unversioned *plain;
    CHECK_EQ_INT(tc_to_dlpack(view, &borrowed), TC_OK);
    CHECK(borrowed->tensor.data == data && borrowed->tensor.strides[1] == 2);
    CHECK(borrowed->flags == 1 && borrowed->major == 1);
    CHECK_EQ_INT(tc_to_dlpack(sum, &computed), TC_OK);
    CHECK(computed->tensor.ndim == 2 && computed->tensor.strides[0] == 3);
    CHECK(computed->tensor.code == 2 && computed->tensor.bits == 32);
    CHECK_EQ_INT(tc_to_dlpack_unversioned(view, &plain), TC_OK);
    CHECK(plain->tensor.data != data && plain->tensor.strides[0] == 3);
    tc_ctx_free(ctx);
    begin();
    CHECK(((float *)computed->tensor.data)[5] == 6 && ((float *)plain->tensor.data)[1] == 2);
    check_rows(tc_from_dlpack(ctx, borrowed));
    check_rows(tc_from_dlpack(ctx, computed));
    check_rows(tc_from_dlpack_unversioned(ctx, plain));
    tc_ctx_free(ctx);
}

TEST(out_of_a_parameter_is_a_copy)
{
    begin();
    float data[2] = {1, 2}, more[2] = {3, 4};
    tc_tensor p = tc_param(ctx, data, TC_F32, 2);
    tc_dlpack *now;
    CHECK_EQ_INT(tc_to_dlpack(p, &now), TC_OK);
    CHECK_EQ_INT(now->flags, 2);
    CHECK_EQ_INT(tc_param_write(p, more, 2), TC_OK);
    CHECK(((float *)now->tensor.data)[1] == 2);
    now->deleter(now);
    now = (tc_dlpack *)(void *)&now;
    CHECK_EQ_INT(tc_to_dlpack(tc_input(ctx, "x", TC_F32), &now), TC_ERR_ARGUMENT);
    CHECK(!now);
    CHECK_EQ_INT(tc_to_dlpack(p, NULL), TC_ERR_ARGUMENT);
    CHECK_EQ_INT(tc_to_dlpack_unversioned(p, NULL), TC_ERR_ARGUMENT);
    tc_tensor scalar = tc_full(ctx, true, TC_BOOL);
    CHECK_EQ_INT(tc_to_dlpack(scalar, &now), TC_OK);
    CHECK(now->tensor.ndim == 0 && now->tensor.code == 6 && now->tensor.bits == 8);
    now->deleter(now);
    tc_ctx_free(ctx);
}

TEST_MAIN
