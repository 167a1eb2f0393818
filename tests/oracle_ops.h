/* tests/oracle_ops.h - the table: oracle op name -> signature of its arguments -> tc calls.
 *
 * A row has either a tc function that takes its operands as they come, or an adapter. Argument
 * names that only say how torch lays out memory are in the signatures and otherwise ignored. An
 * elementwise op of tc's own table that has the same name there needs no row here. An op without
 * either is one that tc does not have. */
#ifndef TC_TEST_ORACLE_OPS_H
#define TC_TEST_ORACLE_OPS_H

#include "../src/ops/table.h"
#include "oracle_scatter.h"

typedef struct orc_row {
    const char *op, *signature;
    void (*adapter)(orc_case *c);                       /* or one of: */
    tc_tensor (*unary)(tc_arg a, tc_site here);
    tc_tensor (*binary)(tc_arg a, tc_arg b, tc_site here);
} orc_row;

#define ORC_NN "nn.functional."
#define ORC_UNARY(op, call) {op, "input inplace memory_format", NULL, call, NULL}
#define ORC_BINARY(op, call) {op, "input other", NULL, NULL, call}
#define ORC_ROW(op, signature, adapter) {op, signature, adapter, NULL, NULL}

#define ORC_REDUCE "input dim keepdim dtype"
#define ORC_VAR "input dim unbiased keepdim correction"
#define ORC_SOFTMAX "input dim dtype mask"
#define ORC_CONV "input weight bias stride padding dilation groups"
#define ORC_POOL "input kernel_size stride padding dilation ceil_mode return_indices"
#define ORC_MADE "dtype device requires_grad layout memory_format"
#define ORC_LOSS "input target reduction weight beta delta"

static const orc_row orc_rows_of_table[] = {
    ORC_ROW("square", "input", orc_square),
    ORC_UNARY(ORC_NN "relu", tc_relu_at),
    ORC_UNARY(ORC_NN "silu", tc_silu_at),
    ORC_ROW("positive", "input", orc_positive),
    ORC_ROW("round", "input decimals", orc_round),
    ORC_ROW("frac", "input", orc_frac),
    ORC_ROW("isinf", "input", orc_isinf),
    ORC_ROW("isfinite", "input", orc_isfinite),
    ORC_ROW("isposinf", "input", orc_isposinf),
    ORC_ROW("isneginf", "input", orc_isneginf),
    ORC_ROW("deg2rad", "input", orc_deg2rad),
    ORC_ROW("rad2deg", "input", orc_rad2deg),
    ORC_ROW(ORC_NN "gelu", "input approximate", orc_gelu),
    ORC_ROW(ORC_NN "relu6", "input inplace", orc_relu6),
    ORC_ROW(ORC_NN "leaky_relu", "input negative_slope inplace", orc_leaky_relu),
    ORC_ROW(ORC_NN "hardtanh", "input min_val max_val inplace", orc_hardtanh),
    ORC_ROW(ORC_NN "hardsigmoid", "input inplace", orc_hardsigmoid),
    ORC_ROW(ORC_NN "hardswish", "input inplace", orc_hardswish),
    ORC_ROW(ORC_NN "softsign", "input", orc_softsign),
    ORC_ROW(ORC_NN "tanhshrink", "input", orc_tanhshrink),
    ORC_ROW(ORC_NN "threshold", "input threshold value inplace", orc_threshold),
    ORC_ROW(ORC_NN "hardshrink", "input lambd", orc_hardshrink),
    ORC_ROW(ORC_NN "glu", "input dim", orc_glu),
    ORC_ROW(ORC_NN "prelu", "input weight", orc_prelu),

    ORC_ROW("add", "input other alpha", orc_add),
    ORC_ROW("sub", "input other alpha", orc_sub),
    ORC_ROW("rsub", "input other alpha", orc_rsub),
    ORC_ROW("div", "input other rounding_mode", orc_div),
    ORC_BINARY("true_divide", tc_div_at),
    ORC_ROW("float_power", "input other", orc_float_power),
    ORC_ROW("fmax", "input other", orc_fmax),
    ORC_ROW("fmin", "input other", orc_fmin),
    ORC_ROW("logical_xor", "input other", orc_logical_xor),
    ORC_BINARY("__radd__", tc_add_at),
    ORC_ROW("__rsub__", "input other", orc_rsub),
    ORC_BINARY("__rmul__", tc_mul_at),
    ORC_ROW("__rdiv__", "input other", orc_rdiv),
    ORC_ROW("__rmod__", "input other", orc_rmod),
    ORC_ROW("__rpow__", "input other", orc_rpow),
    ORC_ROW("where", "input condition other", orc_where),
    ORC_ROW("clamp", "input min max", orc_clamp),
    ORC_ROW("clamp_min", "input min", orc_clamp),
    ORC_ROW("clamp_max", "input max", orc_clamp),
    ORC_ROW("masked_fill", "input mask value", orc_masked_fill),
    ORC_ROW("lerp", "input end weight", orc_lerp),
    ORC_ROW("addcmul", "input tensor1 tensor2 value", orc_addcmul),
    ORC_ROW("addcdiv", "input tensor1 tensor2 value", orc_addcdiv),
    ORC_ROW("float", "input memory_format", orc_cast),
    ORC_ROW("double", "input memory_format", orc_cast),
    ORC_ROW("half", "input memory_format", orc_cast),
    ORC_ROW("bfloat16", "input memory_format", orc_cast),
    ORC_ROW("int", "input memory_format", orc_cast),
    ORC_ROW("long", "input memory_format", orc_cast),
    ORC_ROW("short", "input memory_format", orc_cast),
    ORC_ROW("byte", "input memory_format", orc_cast),
    ORC_ROW("char", "input memory_format", orc_cast),
    ORC_ROW("bool", "input memory_format", orc_cast),

    ORC_ROW("sum", ORC_REDUCE, orc_sum),
    ORC_ROW("mean", ORC_REDUCE, orc_mean),
    ORC_ROW("prod", ORC_REDUCE, orc_prod),
    ORC_ROW("amax", ORC_REDUCE, orc_amax),
    ORC_ROW("amin", ORC_REDUCE, orc_amin),
    ORC_ROW("aminmax", ORC_REDUCE, orc_aminmax),
    ORC_ROW("max", "input dim keepdim other", orc_min_max),
    ORC_ROW("min", "input dim keepdim other", orc_min_max),
    ORC_ROW("argmax", "input dim keepdim", orc_argmin_argmax),
    ORC_ROW("argmin", "input dim keepdim", orc_argmin_argmax),
    ORC_ROW("any", "input dim keepdim", orc_any_all),
    ORC_ROW("all", "input dim keepdim", orc_any_all),
    ORC_ROW("var", ORC_VAR, orc_var),
    ORC_ROW("std", ORC_VAR, orc_var),
    ORC_ROW("var_mean", ORC_VAR, orc_var),
    ORC_ROW("std_mean", ORC_VAR, orc_var),
    ORC_ROW("logsumexp", "input dim keepdim", orc_logsumexp),
    ORC_ROW("nansum", ORC_REDUCE, orc_nansum),
    ORC_ROW("nanmean", ORC_REDUCE, orc_nanmean),
    ORC_ROW("count_nonzero", "input dim", orc_count_nonzero),
    ORC_ROW("linalg.vector_norm", "input ord dim keepdim dtype", orc_vector_norm),
    ORC_ROW("cumsum", "input dim dtype", orc_cumsum),
    ORC_ROW("softmax", ORC_SOFTMAX, orc_softmax),
    ORC_ROW("log_softmax", ORC_SOFTMAX, orc_softmax),
    ORC_ROW(ORC_NN "softmin", ORC_SOFTMAX, orc_softmax),
    ORC_ROW("masked.softmax", ORC_SOFTMAX, orc_softmax),
    ORC_ROW("masked.log_softmax", ORC_SOFTMAX, orc_softmax),
    ORC_ROW(ORC_NN "layer_norm", "input normalized_shape weight bias eps", orc_layer_norm),
    ORC_ROW("native_layer_norm", "input normalized_shape weight bias eps", orc_layer_norm),
    ORC_ROW(ORC_NN "rms_norm", "input normalized_shape weight eps", orc_rms_norm),
    ORC_ROW(ORC_NN "mse_loss", ORC_LOSS, orc_elementwise_loss),
    ORC_ROW(ORC_NN "l1_loss", ORC_LOSS, orc_elementwise_loss),
    ORC_ROW(ORC_NN "smooth_l1_loss", ORC_LOSS, orc_elementwise_loss),
    ORC_ROW(ORC_NN "huber_loss", ORC_LOSS, orc_elementwise_loss),
    ORC_ROW(ORC_NN "kl_div", "input target reduction log_target", orc_kl_div),
    ORC_ROW(ORC_NN "cross_entropy", "input target weight ignore_index reduction label_smoothing",
            orc_class_loss),
    ORC_ROW(ORC_NN "nll_loss", "input target weight ignore_index reduction", orc_class_loss),

    ORC_ROW("reshape", "input shape", orc_reshape),
    ORC_ROW("reshape_as", "input shape", orc_reshape),
    ORC_ROW("view", "input shape", orc_reshape),
    ORC_ROW("view_as", "input shape", orc_reshape),
    ORC_ROW("flatten", "input start_dim end_dim", orc_flatten),
    ORC_ROW("unflatten", "input dim sizes", orc_unflatten),
    ORC_ROW("ravel", "input", orc_flatten),
    ORC_ROW("permute", "input dims", orc_permute),
    ORC_ROW("transpose", "input dim0 dim1", orc_transpose),
    ORC_ROW("movedim", "input source destination", orc_movedim),
    ORC_ROW("T", "input", orc_turn),
    ORC_ROW("mT", "input", orc_turn),
    ORC_ROW("t", "input", orc_turn),
    ORC_ROW("squeeze", "input dim", orc_squeeze),
    ORC_ROW("unsqueeze", "input dim", orc_unsqueeze),
    ORC_ROW("expand", "input shape", orc_expand),
    ORC_ROW("expand_as", "input shape", orc_expand),
    ORC_ROW("broadcast_to", "input shape", orc_expand),
    ORC_ROW("broadcast_tensors", "*tensors", orc_broadcast_tensors),
    ORC_ROW("repeat", "input repeats", orc_repeat),
    ORC_ROW("tile", "input repeats", orc_repeat),
    ORC_ROW("flip", "input dims", orc_flip),
    ORC_ROW("fliplr", "input", orc_flip),
    ORC_ROW("flipud", "input", orc_flip),
    ORC_ROW("roll", "input shifts dims", orc_roll),
    ORC_ROW(ORC_NN "pad", "input pad mode value", orc_pad),
    ORC_ROW("constant_pad_nd", "input pad value", orc_pad),
    ORC_ROW("cat", "tensors dim", orc_cat),
    ORC_ROW("stack", "tensors dim", orc_cat),
    ORC_ROW("hstack", "tensors", orc_cat),
    ORC_ROW("vstack", "tensors", orc_cat),
    ORC_ROW("dstack", "tensors", orc_cat),
    ORC_ROW("column_stack", "tensors", orc_cat),
    ORC_ROW("split", "input how dim", orc_split),
    ORC_ROW("split_with_sizes", "input how dim", orc_split),
    ORC_ROW("chunk", "input how dim", orc_split),
    ORC_ROW("tensor_split", "input how dim", orc_split),
    ORC_ROW("hsplit", "input how", orc_split),
    ORC_ROW("vsplit", "input how", orc_split),
    ORC_ROW("unbind", "input dim", orc_unbind),
    ORC_ROW("narrow", "input dim start length", orc_narrow),
    ORC_ROW("select", "input dim index", orc_select),
    ORC_ROW("atleast_1d", "*tensors", orc_atleast),
    ORC_ROW("atleast_2d", "*tensors", orc_atleast),
    ORC_ROW("atleast_3d", "*tensors", orc_atleast),
    ORC_ROW("meshgrid", "*tensors indexing", orc_meshgrid),
    ORC_ROW("tril", "input diagonal", orc_triangle),
    ORC_ROW("triu", "input diagonal", orc_triangle),

    ORC_ROW("matmul", "input other", orc_matmul),
    ORC_ROW("__rmatmul__", "input other", orc_matmul),
    ORC_ROW("mm", "input other", orc_matmul),
    ORC_ROW("bmm", "input other", orc_matmul),
    ORC_ROW("mv", "input other", orc_matmul),
    ORC_ROW("dot", "input other", orc_matmul),
    ORC_ROW("vdot", "input other", orc_matmul),
    ORC_ROW("inner", "input other", orc_inner),
    ORC_ROW("outer", "input other", orc_outer),
    ORC_ROW("addmm", "input a b beta alpha", orc_add_product),
    ORC_ROW("addmv", "input a b beta alpha", orc_add_product),
    ORC_ROW("addbmm", "input a b beta alpha", orc_add_product),
    ORC_ROW("baddbmm", "input a b beta alpha", orc_add_product),
    ORC_ROW("addr", "input a b beta alpha", orc_add_product),
    ORC_ROW("einsum", "operands equation", orc_einsum),
    ORC_ROW("tensordot", "input other dims", orc_tensordot),
    ORC_ROW("linalg.multi_dot", "tensors", orc_multi_dot),
    ORC_ROW("linalg.vecdot", "input other dim", orc_vecdot),
    ORC_ROW("trace", "input", orc_trace),
    ORC_ROW(ORC_NN "linear", "input weight bias", orc_linear),
    ORC_ROW(ORC_NN "bilinear", "input1 input2 weight bias", orc_bilinear),
    ORC_ROW(ORC_NN "scaled_dot_product_attention",
            "query key value attn_mask dropout_p is_causal scale enable_gqa", orc_attention),
    ORC_ROW(ORC_NN "conv1d", ORC_CONV, orc_conv),
    ORC_ROW(ORC_NN "conv2d", ORC_CONV, orc_conv),
    ORC_ROW(ORC_NN "max_pool1d", ORC_POOL, orc_max_pool),
    ORC_ROW(ORC_NN "max_pool2d", ORC_POOL, orc_max_pool),

    ORC_ROW("gather", "input dim index sparse_grad", orc_gather),
    ORC_ROW("take_along_dim", "input index dim", orc_take_along_dim),
    ORC_ROW("take", "input index", orc_take),
    ORC_ROW("index_select", "input dim index", orc_index_select),
    ORC_ROW("scatter", "input dim index src reduce", orc_scatter),
    ORC_ROW("scatter_add", "input dim index src", orc_scatter_add),
    ORC_ROW("scatter_reduce", "input dim index src reduce include_self", orc_scatter_reduce),
    ORC_ROW("index_add", "input dim index src alpha", orc_index_add),
    ORC_ROW("index_reduce", "input dim index src reduce include_self", orc_index_reduce),
    ORC_ROW("index_copy", "input dim index src", orc_index_copy),
    ORC_ROW("put", "input index src accumulate", orc_put_flat),
    ORC_ROW("__getitem__", "input index", orc_getitem),
    ORC_ROW(ORC_NN "embedding",
            "input index padding_idx max_norm norm_type scale_grad_by_freq sparse", orc_embedding),
    ORC_ROW(ORC_NN "one_hot", "input num_classes", orc_one_hot),
    ORC_ROW("arange", "start end step " ORC_MADE, orc_arange),
    ORC_ROW("full", "size value " ORC_MADE, orc_full),
    ORC_ROW("ones", "size " ORC_MADE, orc_full),
    ORC_ROW("zeros", "size " ORC_MADE, orc_full),
    ORC_ROW("full_like", "input value " ORC_MADE, orc_full),
    ORC_ROW("ones_like", "input " ORC_MADE, orc_full),
    ORC_ROW("zeros_like", "input " ORC_MADE, orc_full),
    ORC_ROW("new_full", "input size value " ORC_MADE, orc_full),
    ORC_ROW("new_ones", "input size " ORC_MADE, orc_full),
    ORC_ROW("new_zeros", "input size " ORC_MADE, orc_full),
    ORC_ROW("eye", "n m " ORC_MADE, orc_eye),
};

/* The elementwise ops by their own names, where no row above says more. */
static const orc_row orc_rows_of_ops[] = {
#define ORC_OF_1 ORC_UNARY
#define ORC_OF_2 ORC_BINARY
#define ORC_OF_ROW(id, name, arity, ...) ORC_OF_##arity(#name, tc_##name##_at),
    TCI_EW_OPS(ORC_OF_ROW)
#undef ORC_OF_ROW
};

static const orc_row *orc_row_among(const orc_row *rows, size_t n, const char *op)
{
    for (size_t i = 0; i < n; i++) {
        if (!strcmp(rows[i].op, op)) {
            return &rows[i];
        }
    }
    return NULL;
}

/* NULL: tc has no such op. */
static const orc_row *orc_row_find(const char *op)
{
    size_t n_table = sizeof(orc_rows_of_table) / sizeof(orc_rows_of_table[0]);
    size_t n_ops = sizeof(orc_rows_of_ops) / sizeof(orc_rows_of_ops[0]);
    const orc_row *row = orc_row_among(orc_rows_of_table, n_table, op);
    return row ? row : orc_row_among(orc_rows_of_ops, n_ops, op);
}

/* Fills c->outputs or c->skip. */
static void orc_build(orc_case *c, tc_ctx *ctx, const json *spec, const orc_row *row)
{
    orc_bind(c, ctx, spec, row->signature);
    if (c->skip[0]) {
        return;
    }
    if (row->adapter) {
        row->adapter(c);
    } else if (row->unary) {
        orc_out(c, row->unary(orc_arg(c, "input"), TC_HERE));
    } else {
        orc_out(c, row->binary(orc_arg(c, "input"), orc_arg(c, "other"), TC_HERE));
    }
}

#endif
