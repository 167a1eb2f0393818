/* tests/cuda/test_onnx.c - ONNX models by the CUDA dialect's text, run by emulation on the CPU. */
#define TC_DYNAMIC_SHAPES
#define TC_CUDA
#include "inside.h"

#include "../onnx/cases.h"
#include "matrix_context.h"

TEST(kept_cases_give_their_outputs_emulated)
{
    register_emulation();
    if (!can_emulate()) {
        SKIP("no C++ compiler");
    }
    begin("emulated");
    CHECK(judge_kept(tct_soak ? 1 : 31, false) >= 10);
    end();
}

TEST(cases_of_the_onnx_project_give_their_outputs_emulated)
{
    if (!tct_soak) {
        SKIP("only in soak");
    }
    register_emulation();
    if (!can_emulate()) {
        SKIP("no C++ compiler");
    }
    judge_project("emulated");
}

TEST_MAIN
