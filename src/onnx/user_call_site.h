/* onnx/user_call_site.h - redefines TC_HERE in onnx/, so that the tensors and errors that an import
 * makes carry the source location of the user's call (tc_onnx_load). Included only by .c files of
 * onnx/; a variable `o` (tci_ox_op) must be in scope. src/tc_onnx.h restores TC_HERE. */
#undef TC_HERE
#define TC_HERE (o->here)
