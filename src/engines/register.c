/* engines/register.c - registers the graph-level backends (onnxruntime, OpenVINO, XLA, TVM) before
 * main, so that TC_BACKEND can name them. */
#include "onnxrt.h"
#include "openvino.h"
#include "openxla.h"
#include "tvm.h"

__attribute__((constructor)) static void tci_engines_register(void)
{
    (void)tc_register_graph_backend(tci_onnxrt_backend());
    (void)tc_register_graph_backend(tci_openvino_backend());
    (void)tc_register_graph_backend(tci_openxla_backend());
    (void)tc_register_graph_backend(tci_tvm_backend());
}
