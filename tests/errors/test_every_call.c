/* Every public op, called with operands that will not do: the rows of src/api/op_signatures.h make
 * a call of each. Its results tell the mistake of the operand, whichever operand it is. */
#include "tc.h"

#include "tc_test.h"

#include "../src/api/op_signatures.h"
#include "../src/ops/table.h"

static tc_ctx *ctx;
static tc_tensor good, given;                /* 4 x 4 floats; what stands for operand `at` */
static int at, operands;                     /* -1: for all of them; those of the last call */
static const int64_t one[1] = {1};           /* sizes, */
static const int64_t typed[2] = {TC_F32, 1}; /* behind their dtype */
enum { MOST_RESULTS = 4 };

/* The next operand of the call. */
static tc_tensor operand(void)
{
    int i = operands++;
    return at < 0 || i == at ? given : good;
}

static tc_tensors list(tc_tensor *room)
{
    *room = operand();
    return (tc_tensors){room, 1};
}

#define TAKE_tensor operand(),
#define TAKE_optional operand(),
#define TAKE_tensors list(&room),
#define TAKE_operand tci_arg_tensor(operand()),
#define TAKE_maybe tci_arg_tensor(operand()),
#define TAKE_integer 1,
#define TAKE_axis 0,
#define TAKE_axes TC_ALL,
#define TAKE_sizes 1, one,
#define TAKE_single {1},
#define TAKE_pair {1, 1},
#define TAKE_triple {1, 1, 1},
#define TAKE_each {1, 1, 1},
#define TAKE_real 1.0,
#define TAKE_factor {1, 1, 1},
#define TAKE_flag false,
#define TAKE_dtype TC_F32,
#define TAKE_reduction TC_REDUCE_MEAN,
#define TAKE_text "sum",
#define TCI_MUST(name, kind) TAKE_##kind
#define TCI_MAY(name, kind, otherwise) TAKE_##kind
#define TCI_MUST_FIELD(name, kind) .name = TAKE_##kind
#define TCI_FIELD(name, kind, otherwise) .name = TAKE_##kind
#define TCI_TYPED 2, typed,
#define TCI_FIELDS(type, params) &(type){params},
#define TCI_ON ctx,
#define TCI_STORED(name, at) &results[at],
#define TCI_CALL(name, ...)                                                                        \
    static void call_##name(tc_tensor *results)                                                    \
    {                                                                                              \
        tc_tensor room;                                                                            \
        (void)room;                                                                                \
        results[0] = tc_##name##_at(__VA_ARGS__ TC_HERE);                                          \
    }
#define TCI_CALL_MANY(name, n, ...)                                                                \
    static void call_##name(tc_tensor *results)                                                    \
    {                                                                                              \
        tc_tensor room;                                                                            \
        (void)room;                                                                                \
        tc_##name##_at(__VA_ARGS__ TC_HERE);                                                       \
    }
TCI_CALLS
#undef TCI_CALL
#undef TCI_CALL_MANY

typedef struct row {
    const char *name;
    int n_results;
    void (*call)(tc_tensor *results);
} row;

static const row rows[] = {
#define TCI_CALL(name, ...) {#name, 1, call_##name},
#define TCI_CALL_MANY(name, n, ...) {#name, n, call_##name},
    TCI_CALLS
#undef TCI_CALL
#undef TCI_CALL_MANY
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static void begin(void)
{
    tc_options o = {.backend = "interp", .no_disk_cache = true, .threads = 1};
    REQUIRE(tc_ctx_make(&ctx, &o) == TC_OK);
    good = tc_input(ctx, "x", TC_F32, 4, 4);
    at = -1;
}

/* Numbers alone. */
static bool takes_tensors(const row *r)
{
    return operands > 0 && strcmp(r->name, "arange");
}

/* Calls row r with `given`. All results have its status and text; where the other operands are good
 * they may tell another mistake of the call, but not what an operand is that is none. */
static void check_row(const row *r)
{
    tc_tensor results[MOST_RESULTS] = {good, good, good, good};
    char own[64];
    operands = 0;
    r->call(results);
    snprintf(own, sizeof(own), ": tc_%s: ", r->name);
    for (int i = 0; i < r->n_results && takes_tensors(r); i++) {
        const char *text = tc_error(results[i]);
        bool same = tc_status_of(results[i]) == tc_status_of(given) &&
                    !strcmp(text, tc_error(given));
        bool other = at >= 0 && tc_status_of(results[i]) != TC_OK && strstr(text, own) &&
                     !strstr(text, "rank -1") && !strstr(text, " and -1");
        CHECK_MSG(same || other, "tc_%s: operand %d: \"%s\"", r->name, at, text);
    }
}

TEST(a_mistake_passes_through_every_call)
{
    begin();
    given = tc_reshape(good, 7);
    REQUIRE(tc_status_of(given) == TC_ERR_SHAPE);
    for (int i = 0; i < ROWS; i++) {
        check_row(&rows[i]);
    }
    CHECK(ROWS > 300);
    tc_ctx_free(ctx);
}

TEST(a_mistake_passes_from_each_operand)
{
    begin();
    given = tc_reshape(good, 7);
    for (int i = 0; i < ROWS; i++) {
        int n = 0;
        at = -1;
        check_row(&rows[i]);
        for (n = operands, at = 0; at < n && n > 1; at++) {
            check_row(&rows[i]);
        }
    }
    tc_ctx_free(ctx);
}

TEST(a_null_handle_is_told_by_every_call)
{
    begin();
    memset(&given, 0, sizeof(given));
    for (int i = 0; i < ROWS; i++) {
        tc_tensor results[MOST_RESULTS] = {good, good, good, good};
        operands = 0;
        rows[i].call(results);
        for (int k = 0; k < rows[i].n_results && takes_tensors(&rows[i]); k++) {
            CHECK_MSG(tc_status_of(results[k]) == TC_ERR_HANDLE, "tc_%s: %s", rows[i].name,
                      tc_error(results[k]));
            CHECK_MSG(strstr(tc_error(results[k]), "the handle is null"), "tc_%s: \"%s\"",
                      rows[i].name, tc_error(results[k]));
        }
    }
    tc_ctx_free(ctx);
}

TEST(a_freed_context_is_told_by_every_call)
{
    begin();
    given = good;
    tc_ctx_free(ctx);
    for (int i = 0; i < ROWS; i++) {
        tc_tensor results[MOST_RESULTS];
        memset(results, 0, sizeof(results));
        operands = 0;
        rows[i].call(results);
        for (int k = 0; k < rows[i].n_results; k++) {
            CHECK_MSG(tc_status_of(results[k]) == TC_ERR_HANDLE, "tc_%s: %s", rows[i].name,
                      tc_error(results[k]));
        }
    }
}

TEST_MAIN
