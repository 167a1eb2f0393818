// 11_cplusplus.cc - tc from C++17: the declarations are C++, the implementation stays C.
//
// Put the implementation into a C file of its own, as tests/tc_impl.c is, and link the two:
//
//     cc -O2 -I. -c tests/tc_impl.c -o tc.o
//     c++ -std=c++17 -O2 -I. examples/11_cplusplus.cc tc.o -lm -ldl -lpthread
//
// Prints the curve's start, middle and end, the number of kernels and the backend.
//
// Handles are small values, so with TC_OPERATORS ordinary operators stand for the calls; what must
// be freed is held by unique_ptr; lists are written as in C.
#define TC_OPERATORS // before every include of tc.h that wants them
#include "tc.h"

#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

namespace {

struct free_context { void operator()(tc_ctx *c) const { tc_ctx_free(c); } };
struct free_program { void operator()(tc_program *f) const { tc_program_free(f); } };
using context = std::unique_ptr<tc_ctx, free_context>;
using program = std::unique_ptr<tc_program, free_program>;

context make_context()
{
    tc_ctx *c = nullptr;
    if (tc_ctx_make(&c, nullptr) != TC_OK) {
        throw std::runtime_error("no context");
    }
    return context(c);
}

program compile(tc_tensor y)
{
    tc_program *f = nullptr;
    if (tc_compile(y, &f) != TC_OK) {
        throw std::runtime_error(tc_error(y)); // with this file and the line of the mistake
    }
    return program(f);
}

// From a to b as t goes from 0 to 1, without a corner at either end.
tc_tensor smooth_mix(tc_tensor a, tc_tensor b, tc_tensor t)
{
    tc_tensor s = t * t * (3 - 2 * t);
    return a + (b - a) * s;
}

int run()
{
    constexpr int n = 4096;
    std::vector<float> a(n, 1.0f), b(n, 3.0f), t(n), out(n);
    for (int i = 0; i < n; i++) {
        t[static_cast<size_t>(i)] = static_cast<float>(i) / (n - 1);
    }
    context ctx = make_context();
    // A program takes its inputs in the order in which they were made: one statement each.
    tc_tensor x = tc_input(ctx.get(), "a", TC_F32, n);
    tc_tensor y = tc_input(ctx.get(), "b", TC_F32, n);
    tc_tensor s = tc_input(ctx.get(), "t", TC_F32, n);
    program f = compile(smooth_mix(x, y, s));
    if (tc_run(f.get(), TC_BUFS(TC_BUF(a.data(), n), TC_BUF(b.data(), n), TC_BUF(t.data(), n)),
               TC_BUFS(TC_BUF(out.data(), n))) != TC_OK) {
        throw std::runtime_error(tc_error(f.get()));
    }
    tc_program_info info;
    tc_program_get_info(f.get(), &info);
    std::printf("%g at the start, %g in the middle, %g at the end; %d kernel on %s\n",
                static_cast<double>(out.front()), static_cast<double>(out[n / 2]),
                static_cast<double>(out.back()), info.n_kernels, info.backend);
    bool right = out.front() == 1.0f && out.back() == 3.0f && std::fabs(out[n / 2] - 2.0f) < 1e-3f;
    return right && info.n_kernels == 1 ? 0 : 1;
}

} // namespace

int main()
{
    try {
        return run();
    } catch (const std::exception &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
