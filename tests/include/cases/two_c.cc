/* The C++ one of the translation units that share an implementation in C. */
#define N 1000
#define T int
#include "tc.h"

#include <vector>

extern "C" int two_c(tc_ctx *ctx);
int operators(); /* operators.cc */

int two_c(tc_ctx *ctx)
{
    std::vector<float> in(6, 2.0f), out(3);
    long columns = 3;
    unsigned char rows = 2;
    tc_program *f = nullptr;
    tc_tensor x = tc_input(ctx, "x", TC_F32, rows, columns), s = tc_input(ctx, "s", TC_F32);
    tc_tensor y = tc_sum(tc_mul(tc_add(x, 1.0f), s), TC_AXES(0), false);
    tc_tensor none[2] = {tc_sum(x, TC_AXES(), false), tc_sum(x, TC_ALL, false)};
    const float scale = 0.5f;
    if (tc_rank(s) != 0 || tc_rank(none[0]) != 2 || tc_rank(none[1]) != 0 ||
        tc_compile_fn(TC_TENSORS(x, s), TC_TENSORS(y), NULL, &f)) {
        return 1;
    }
    tc_status status = tc_run(f, TC_BUFS(TC_BUF(in.data(), 6), TC_BUF(&scale, 1)),
                              TC_BUFS(TC_BUF(out.data(), columns)));
    bool refused = tc_run(f, TC_BUFS(), TC_BUFS()) == TC_ERR_BUFFER && *tc_error(f);
    tc_program_free(f);
    tc_tensor by_name = tc_op(ctx, "cast", TC_TENSORS(x), TC_ATTRS(TC_ATTR("dtype", TC_I32)));
    by_name = tc_op(ctx, "reshape", TC_TENSORS(by_name), TC_ATTRS(TC_ATTR_LIST("sizes", 3, rows)));
    tc_tensor twin = tc_einsum("ij->ji", TC_TENSORS(by_name));
    by_name = tc_op(ctx, "einsum", TC_TENSORS(by_name), TC_ATTRS(TC_ATTR_TEXT("spec", "ij->ji")));
    if (tc_status_of(by_name) || by_name.id != twin.id ||
        !*tc_error(tc_op(ctx, "exp", TC_TENSORS(x), TC_ATTRS(TC_ATTR("axis", 1.5))))) {
        return 4;
    }
    if (operators() || TC_STATICS(1, columns)->n != 2) {
        return 5;
    }
    tc_tensor bad = tc_reshape(x, 7);
    return status == TC_OK && out[2] == 3.0f && refused && *tc_error(bad) ? 0 : 3;
}
