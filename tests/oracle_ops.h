/* tests/oracle_ops.h - the table: oracle op name -> what it is in tc.
 *
 * An op of torch's (or of torch.nn.functional) that has the name, the parameters and their order in
 * common with one of tc's needs no row: it is called by its name. A row gives what differs: the
 * name or the order alone, or an adapter. What is neither is an op that tc does not have. */
#ifndef TC_TEST_ORACLE_OPS_H
#define TC_TEST_ORACLE_OPS_H

#include "oracle_sets.h"

typedef struct orc_row {
    const char *op;
    const char *call;             /* the op of tc's, or NULL: the adapter knows */
    const char *signature;        /* torch's parameters by tc's names; NULL: those of the call */
    void (*adapter)(orc_case *c); /* NULL: the call by its name, and nothing else */
} orc_row;

#define ORC_NN "nn.functional."
#define ORC_ROW(op, signature, adapter) {op, NULL, signature, adapter}
#define ORC_NAME(op, call) {op, call, NULL, NULL}
#define ORC_ORDER(op, call, signature) {op, call, signature, NULL}

#define ORC_REDUCE "input dim keepdim dtype"
#define ORC_OVER_AXES "x axes keepdims"
#define ORC_VAR "input dim unbiased keepdim correction"
#define ORC_SOFTMAX "input dim dtype mask"
#define ORC_CONV "input weight bias stride padding dilation groups"
#define ORC_POOL "input kernel_size stride padding dilation ceil_mode return_indices"
#define ORC_MEANS "input kernel_size stride padding ceil_mode count_include_pad divisor"
#define ORC_TRANSPOSE "input weight bias stride padding output_padding groups dilation"
#define ORC_ADAPTIVE "input output_size return_indices"
#define ORC_PATCHES "kernel_size dilation padding stride"
#define ORC_MADE "dtype"

static const orc_row orc_table[] = {
    ORC_NAME("true_divide", "div"),
    ORC_NAME("__radd__", "add"),
    ORC_NAME("__rmul__", "mul"),
    ORC_ORDER("__rdiv__", "div", "b a"),
    ORC_ORDER("__rmod__", "remainder", "b a"),
    ORC_ORDER("__rpow__", "pow", "b a"),
    ORC_ORDER("where", "where", "a c b"), /* the sample's input stands where the condition holds */
    ORC_NAME("clamp_min", "clamp"),
    ORC_ORDER("clamp_max", "clamp", "x max"),
    ORC_NAME("linalg.cross", "cross"),
    ORC_ORDER(ORC_NN "group_norm", "group_norm", "x groups weight bias eps"),
    ORC_NAME("amax", "max"),
    ORC_NAME("amin", "min"),
    ORC_NAME("reshape_as", "reshape"),
    ORC_NAME("view", "reshape"),
    ORC_NAME("view_as", "reshape"),
    ORC_NAME("expand_as", "expand"),
    ORC_NAME("broadcast_to", "expand"),
    ORC_NAME("repeat", "tile"),
    ORC_NAME("vdot", "dot"),
    ORC_NAME("mm", "matmul"),
    ORC_NAME("mv", "matmul"),
    ORC_ORDER("__rmatmul__", "matmul", "b a"),
    ORC_ORDER("einsum", "einsum", "xs spec"),

    ORC_ROW("square", "input", orc_square),
    ORC_ROW("positive", "input", orc_positive),
    ORC_ROW("round", "input decimals", orc_round),
    ORC_ROW("isposinf", "input", orc_isposinf),
    ORC_ROW("isneginf", "input", orc_isneginf),
    ORC_ROW(ORC_NN "gelu", "input approximate", orc_gelu),
    ORC_ROW(ORC_NN "softshrink", "x lambd", orc_softshrink),
    ORC_ROW(ORC_NN "gaussian_nll_loss", "input target var full eps reduction", orc_gaussian),
    ORC_ROW(ORC_NN "hardtanh", "input min_val max_val", orc_hardtanh),
    ORC_ROW(ORC_NN "softsign", "input", orc_softsign),
    ORC_ROW(ORC_NN "prelu", "input weight", orc_prelu),

    ORC_ROW("add", "input other alpha", orc_add),
    ORC_ROW("sub", "input other alpha", orc_sub),
    ORC_ROW("rsub", "input other alpha", orc_rsub),
    ORC_ROW("div", "input other rounding_mode", orc_div),
    ORC_ROW("float_power", "input other", orc_float_power),
    ORC_ROW("__rsub__", "input other", orc_rsub),
    ORC_ROW("masked_fill", "input mask value", orc_masked_fill),
    ORC_ROW("float", "input", orc_cast),
    ORC_ROW("double", "input", orc_cast),
    ORC_ROW("half", "input", orc_cast),
    ORC_ROW("bfloat16", "input", orc_cast),
    ORC_ROW("int", "input", orc_cast),
    ORC_ROW("long", "input", orc_cast),
    ORC_ROW("short", "input", orc_cast),
    ORC_ROW("byte", "input", orc_cast),
    ORC_ROW("char", "input", orc_cast),
    ORC_ROW("bool", "input", orc_cast),

    ORC_ROW("aminmax", ORC_OVER_AXES, orc_aminmax),
    ORC_ROW("max", ORC_OVER_AXES " other", orc_min_max),
    ORC_ROW("min", ORC_OVER_AXES " other", orc_min_max),
    ORC_ROW("any", ORC_OVER_AXES, orc_any_all),
    ORC_ROW("all", ORC_OVER_AXES, orc_any_all),
    ORC_ROW("argmax", "input dim keepdim", orc_argmin_argmax),
    ORC_ROW("argmin", "input dim keepdim", orc_argmin_argmax),
    ORC_ROW("sort", "input dim descending stable", orc_sort),
    ORC_ROW("argsort", "input dim descending stable", orc_sort),
    ORC_ROW("msort", "input", orc_sort),
    ORC_ROW("topk", "input k dim largest sorted", orc_topk),
    ORC_ROW("kthvalue", "input k dim keepdim", orc_kthvalue),
    ORC_ROW("median", "input dim keepdim", orc_median),
    ORC_ROW("nanmedian", "input dim keepdim", orc_median),
    ORC_ROW("mode", "input dim keepdim", orc_mode),
    ORC_ROW("as_strided", "input size stride storage_offset", orc_as_strided),
    ORC_ROW("cummax", "input dim", orc_running_extreme),
    ORC_ROW("cummin", "input dim", orc_running_extreme),
    ORC_ROW("cumprod", "input dim dtype", orc_cumprod),
    ORC_ORDER("histc", "histc", "x bins low high"),
    ORC_ROW("bincount", "input weights minlength", orc_bincount),
    ORC_ROW("isin", "input test assume_unique invert", orc_isin),
    ORC_ROW("unique", "input sorted return_inverse return_counts dim", orc_unique),
    ORC_ROW("unique_consecutive", "input return_inverse return_counts dim", orc_unique),
    ORC_ROW("diff", "input n dim prepend append", orc_diff),
    ORC_ROW("trapezoid", "input x dx dim", orc_trapezoid),
    ORC_ROW("cumulative_trapezoid", "input x dx dim", orc_trapezoid),
    ORC_ROW("kron", "input other", orc_kron),
    ORC_ROW("cross", "input other dim", orc_cross),
    ORC_ROW("linalg.cross", "input other dim", orc_cross),
    ORC_NAME("linalg.cholesky", "cholesky"),
    ORC_NAME("linalg.det", "det"),
    ORC_NAME("linalg.inv", "inv"),
    ORC_NAME("linalg.matrix_power", "matrix_power"),
    ORC_NAME("linalg.solve_triangular", "solve_triangular"),
    ORC_ROW("linalg.slogdet", "input", orc_slogdet),
    ORC_ROW("linalg.solve", "input b left", orc_solve),
    ORC_ROW("var", ORC_VAR, orc_var),
    ORC_ROW("std", ORC_VAR, orc_var),
    ORC_ROW("var_mean", ORC_VAR, orc_var),
    ORC_ROW("std_mean", ORC_VAR, orc_var),
    ORC_ROW("nansum", ORC_REDUCE, orc_nansum),
    ORC_ROW("nanmean", ORC_REDUCE, orc_nanmean),
    ORC_ROW("count_nonzero", "input dim", orc_count_nonzero),
    ORC_ROW("linalg.vector_norm", "input ord dim keepdim dtype", orc_norm),
    ORC_ROW("norm", "input ord dim keepdim dtype", orc_norm),
    ORC_ROW(ORC_NN "local_response_norm", "x size alpha beta k", orc_local_response_norm),
    ORC_ROW(ORC_NN "embedding_bag",
            "weight index offsets max_norm norm_type scale_grad_by_freq mode sparse "
            "per_sample_weights include_last_offset padding_idx",
            orc_embedding_bag),
    ORC_ROW("cdist", "input other p compute_mode", orc_cdist),
    ORC_ROW(ORC_NN "batch_norm", "input mean var weight bias training momentum eps",
            orc_batch_norm),
    ORC_ROW("native_batch_norm", "input weight bias mean var training momentum eps",
            orc_batch_norm),
    ORC_ROW(ORC_NN "instance_norm",
            "input running_mean running_var weight bias use_input_stats momentum eps",
            orc_instance_norm),
    ORC_ROW(ORC_NN "softmin", ORC_SOFTMAX, orc_softmax),
    ORC_ROW("masked.softmax", ORC_SOFTMAX, orc_softmax),
    ORC_ROW("masked.log_softmax", ORC_SOFTMAX, orc_softmax),
    ORC_ROW(ORC_NN "layer_norm", "input normalized_shape weight bias eps", orc_layer_norm),
    ORC_ROW("native_layer_norm", "input normalized_shape weight bias eps", orc_layer_norm),
    ORC_ROW(ORC_NN "rms_norm", "input normalized_shape weight eps", orc_rms_norm),
    ORC_ROW(ORC_NN "kl_div", "input target reduction log_target", orc_kl_div),
    ORC_ROW(ORC_NN "cross_entropy", "input target weight ignore_index reduction label_smoothing",
            orc_class_loss),
    ORC_ROW(ORC_NN "ctc_loss",
            "input target input_lengths target_lengths blank reduction "
            "zero_infinity",
            orc_ctc_loss),
    ORC_ROW(ORC_NN "nll_loss", "input target weight ignore_index reduction", orc_class_loss),

    ORC_ROW("flatten", "input start_dim end_dim", orc_flatten),
    ORC_ROW("unflatten", "input dim sizes", orc_unflatten),
    ORC_ROW("ravel", "input", orc_flatten),
    ORC_ROW("movedim", "input source destination", orc_movedim),
    ORC_ROW("T", "input", orc_turn),
    ORC_ROW("mT", "input", orc_turn),
    ORC_ROW("t", "input", orc_turn),
    ORC_ROW("squeeze", "input dim", orc_squeeze),
    ORC_ROW("broadcast_tensors", "*tensors", orc_broadcast_tensors),
    ORC_ROW("flip", "input dims", orc_flip),
    ORC_ROW("fliplr", "input", orc_flip),
    ORC_ROW("flipud", "input", orc_flip),
    ORC_ROW("roll", "input shifts dims", orc_roll),
    ORC_ROW("rot90", "input k dims", orc_rot90),
    ORC_ROW(ORC_NN "pad", "input pad mode value", orc_pad),
    ORC_ROW("constant_pad_nd", "input pad value", orc_pad),
    ORC_ROW("cat", "tensors dim", orc_cat),
    ORC_ROW("hstack", "tensors", orc_cat),
    ORC_ROW("vstack", "tensors", orc_cat),
    ORC_ROW("dstack", "tensors", orc_cat),
    ORC_ROW("column_stack", "tensors", orc_cat),
    ORC_ROW("split", "input how dim", orc_split),
    ORC_ROW("split_with_sizes", "input how dim", orc_split),
    ORC_ROW("chunk", "input how dim", orc_split),
    ORC_ROW("tensor_split", "input how dim", orc_tensor_split),
    ORC_ROW("hsplit", "input how", orc_tensor_split),
    ORC_ROW("vsplit", "input how", orc_tensor_split),
    ORC_ROW("unbind", "input dim", orc_unbind),
    ORC_ROW("narrow", "input dim start length", orc_narrow),
    ORC_ROW("atleast_1d", "*tensors", orc_atleast),
    ORC_ROW("atleast_2d", "*tensors", orc_atleast),
    ORC_ROW("atleast_3d", "*tensors", orc_atleast),
    ORC_ROW("meshgrid", "*tensors indexing", orc_meshgrid),

    ORC_ROW("inner", "input other", orc_inner),
    ORC_ROW("addmm", "input a b beta alpha", orc_add_product),
    ORC_ROW("addmv", "input a b beta alpha", orc_add_product),
    ORC_ROW("addbmm", "input a b beta alpha", orc_add_product),
    ORC_ROW("baddbmm", "input a b beta alpha", orc_add_product),
    ORC_ROW("addr", "input a b beta alpha", orc_add_product),
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
    ORC_ROW(ORC_NN "conv3d", ORC_CONV, orc_conv),
    ORC_ROW(ORC_NN "conv_transpose1d", ORC_TRANSPOSE, orc_conv),
    ORC_ROW(ORC_NN "conv_transpose2d", ORC_TRANSPOSE, orc_conv),
    ORC_ROW(ORC_NN "conv_transpose3d", ORC_TRANSPOSE, orc_conv),
    ORC_ROW(ORC_NN "max_pool1d", ORC_POOL, orc_max_pool),
    ORC_ROW(ORC_NN "max_pool2d", ORC_POOL, orc_max_pool),
    ORC_ROW(ORC_NN "max_pool3d", ORC_POOL, orc_max_pool),
    ORC_ROW(ORC_NN "avg_pool1d", ORC_MEANS, orc_avg_pool),
    ORC_ROW(ORC_NN "avg_pool2d", ORC_MEANS, orc_avg_pool),
    ORC_ROW(ORC_NN "avg_pool3d", ORC_MEANS, orc_avg_pool),
    ORC_ROW(ORC_NN "adaptive_avg_pool1d", ORC_ADAPTIVE, orc_adaptive_pool),
    ORC_ROW(ORC_NN "adaptive_avg_pool2d", ORC_ADAPTIVE, orc_adaptive_pool),
    ORC_ROW(ORC_NN "adaptive_avg_pool3d", ORC_ADAPTIVE, orc_adaptive_pool),
    ORC_ROW(ORC_NN "adaptive_max_pool1d", ORC_ADAPTIVE, orc_adaptive_pool),
    ORC_ROW(ORC_NN "adaptive_max_pool2d", ORC_ADAPTIVE, orc_adaptive_pool),
    ORC_ROW(ORC_NN "adaptive_max_pool3d", ORC_ADAPTIVE, orc_adaptive_pool),
    ORC_ROW(ORC_NN "unfold", "input " ORC_PATCHES, orc_im2col),
    ORC_ROW(ORC_NN "fold", "input output_size " ORC_PATCHES, orc_col2im),
    ORC_ROW(ORC_NN "interpolate",
            "input size scale_factor mode align_corners recompute_scale_factor antialias",
            orc_interpolate),
    ORC_ROW(ORC_NN "grid_sample", "input grid mode padding_mode align_corners", orc_grid_sample),

    ORC_ROW("take_along_dim", "x index axis", orc_take_along_dim),
    ORC_ROW("take", "input index", orc_take),
    ORC_ROW("scatter", "input dim index src reduce", orc_scatter),
    ORC_ROW("scatter_reduce", "input dim index src reduce include_self", orc_scatter_reduce),
    ORC_ROW("index_add", "input dim index src alpha", orc_index_add),
    ORC_ROW("index_reduce", "input dim index src reduce include_self", orc_index_reduce),
    ORC_ROW("index_copy", "input dim index src", orc_index_copy),
    ORC_ROW("put", "input index src accumulate", orc_put_flat),
    ORC_ROW("__getitem__", "input index", orc_getitem),
    ORC_ROW("index_put", "input indices values accumulate", orc_index_put),
    ORC_ROW("nonzero", "input as_tuple", orc_nonzero),
    ORC_ROW("argwhere", "input", orc_nonzero),
    ORC_ROW("masked_select", "input mask", orc_masked_select),
    ORC_ROW("repeat_interleave", "input repeats dim output_size", orc_repeat_interleave),
    ORC_ROW("searchsorted", "sorted values out_int32 right side sorter", orc_searchsorted),
    ORC_ROW("bucketize", "input boundaries out_int32 right", orc_bucketize),
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
    ORC_ROW("linspace", "start end steps " ORC_MADE, orc_linspace),
    ORC_ROW("logspace", "start end steps base " ORC_MADE, orc_logspace),
    ORC_ROW("tril_indices", "row col offset " ORC_MADE, orc_triangle_indices),
    ORC_ROW("triu_indices", "row col offset " ORC_MADE, orc_triangle_indices),
};

/* The row of an op; false: tc has no such op. */
static bool orc_row_find(const char *op, orc_row *row)
{
    for (size_t i = 0; i < sizeof(orc_table) / sizeof(orc_table[0]); i++) {
        if (!strcmp(orc_table[i].op, op)) {
            *row = orc_table[i];
            return true;
        }
    }
    memset(row, 0, sizeof(*row));
    row->call = strncmp(op, ORC_NN, strlen(ORC_NN)) ? op : op + strlen(ORC_NN);
    return orc_params(row->call) != NULL;
}

/* True if numbers may be mixed with tensors in tc. */
static bool orc_takes_numbers(const orc_row *row)
{
    return row->call && strstr(orc_params(row->call), "b: operand") != NULL;
}

/* Fills c->outputs or c->skip. */
static void orc_build(orc_case *c, tc_ctx *ctx, const json *spec, const orc_row *row)
{
    char signature[256];
    orc_bind(c, ctx, spec, row->signature ? row->signature : orc_signature(row->call, signature));
    if (c->skip[0]) {
        return;
    }
    if (row->adapter) {
        row->adapter(c);
    } else {
        orc_call(c, row->call);
    }
}

#endif
