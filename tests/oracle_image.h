/* tests/oracle_image.h - torch's ops over images: convolutions, pools, patches, other sizes. */
#ifndef TC_TEST_ORACLE_IMAGE_H
#define TC_TEST_ORACLE_IMAGE_H

#include "oracle_scatter.h"

/* The calls of one to three axes, by how many. */
#define ORC_OF_AXES(name, n, ...)                                                                  \
    ((n) == 1   ? tc_##name##1d_at(__VA_ARGS__, TC_HERE)                                           \
     : (n) == 2 ? tc_##name##2d_at(__VA_ARGS__, TC_HERE)                                           \
                : tc_##name##3d_at(__VA_ARGS__, TC_HERE))

static int orc_image_axes(const orc_case *c)
{
    const char *op = json_string(c->spec, "op");
    return strstr(op, "1d") ? 1 : strstr(op, "2d") ? 2 : 3;
}

/* "same" pads by one more at the end where it does not halve. */
static void orc_conv(orc_case *c)
{
    const int n = orc_image_axes(c);
    const bool transposed = strstr(json_string(c->spec, "op"), "transpose") != NULL;
    tc_tensor x = orc_tensor(c, "input"), weight = orc_tensor(c, "weight");
    tc_tensor bias = orc_optional(c, "bias");
    const json *padding = orc_value(c, "padding");
    tc_conv o = {.groups = orc_int(c, "groups", 1)};
    orc_per_axis(c, "stride", 1, o.stride, n);
    orc_per_axis(c, "dilation", 1, o.dilation, n);
    orc_per_axis(c, "output_padding", 0, o.output_padding, n);
    if (!padding || padding->kind != JSON_STRING) {
        orc_per_axis(c, "padding", 0, o.padding, n);
    } else if (!strcmp(padding->string, "same")) {
        for (int i = 0; i < n; i++) {
            int64_t total = o.dilation[n - 1 - i] * (orc_size(c, weight, -1 - i) - 1);
            x = tc_pad(x, -1 - i, total / 2, total - total / 2, 0);
        }
    }
    orc_out(c, transposed ? ORC_OF_AXES(conv_transpose, n, x, weight, bias, &o)
                          : ORC_OF_AXES(conv, n, x, weight, bias, &o));
}

static tc_pool orc_pool_options(orc_case *c, int n)
{
    tc_pool o = {.ceil_mode = orc_bool(c, "ceil_mode"), .divisor = orc_int(c, "divisor", 0)};
    const json *stride = orc_value(c, "stride");
    orc_per_axis(c, "kernel_size", 1, o.kernel, n);
    memcpy(o.stride, o.kernel, sizeof(o.stride));
    if (stride && (stride->kind != JSON_LIST || stride->n)) {
        orc_per_axis(c, "stride", 1, o.stride, n);
    }
    orc_per_axis(c, "padding", 0, o.padding, n);
    orc_per_axis(c, "dilation", 1, o.dilation, n);
    o.exclude_pad = orc_has(c, "count_include_pad") && !orc_bool(c, "count_include_pad");
    for (int i = 0; i < n; i++) {
        if (!o.stride[i]) {
            orc_skip(c, "argument stride=0: the kernel's size in tc");
        }
    }
    if (orc_has(c, "divisor") && !o.divisor) {
        orc_skip(c, "argument divisor_override=0: none in tc");
    }
    return o;
}

static void orc_max_pool(orc_case *c)
{
    const int n = orc_image_axes(c);
    tc_tensor x = orc_tensor(c, "input"), values, indices;
    tc_pool o = orc_pool_options(c, n);
    if (!orc_bool(c, "return_indices")) {
        orc_out(c, ORC_OF_AXES(max_pool, n, x, &o));
        return;
    }
    n == 1   ? tc_max_pool1d_with_indices(x, &o, &values, &indices)
    : n == 2 ? tc_max_pool2d_with_indices(x, &o, &values, &indices)
             : tc_max_pool3d_with_indices(x, &o, &values, &indices);
    orc_out(c, values);
    orc_out_index(c, indices);
}

static void orc_avg_pool(orc_case *c)
{
    const int n = orc_image_axes(c);
    tc_pool o = orc_pool_options(c, n);
    orc_out(c, ORC_OF_AXES(avg_pool, n, orc_tensor(c, "input"), &o));
}

/* None keeps the size of an axis. */
static void orc_adaptive_pool(orc_case *c)
{
    const int n = orc_image_axes(c);
    const json *how = orc_value(c, "output_size");
    const bool max = strstr(json_string(c->spec, "op"), "max") != NULL;
    tc_tensor x = orc_tensor(c, "input"), values, indices;
    int64_t sizes[ORC_MAX_RANK];
    int count = 0;
    if (how && how->kind == JSON_NUMBER) {
        sizes[count++] = how->integer;
    }
    for (const json *v = how && how->kind == JSON_LIST ? how->first : NULL; v; v = v->next) {
        if (v->kind == JSON_NUMBER && v->integer < 0) {
            orc_skip(c, "argument output_size=-1: x's size in tc");
        }
        sizes[count++] = v->kind == JSON_NULL ? -1 : v->integer;
    }
    if (!max) {
        orc_out(c, ORC_OF_AXES(adaptive_avg_pool, n, x, count, sizes));
    } else if (!orc_bool(c, "return_indices")) {
        orc_out(c, ORC_OF_AXES(adaptive_max_pool, n, x, count, sizes));
    } else {
        n == 1 ? tc_adaptive_max_pool1d_with_indices_at(x, &values, &indices, count, sizes, TC_HERE)
        : n == 2
            ? tc_adaptive_max_pool2d_with_indices_at(x, &values, &indices, count, sizes, TC_HERE)
            : tc_adaptive_max_pool3d_with_indices_at(x, &values, &indices, count, sizes, TC_HERE);
        orc_out(c, values);
        orc_out_index(c, indices);
    }
}

static tc_pool orc_patch_options(orc_case *c)
{
    tc_pool o = {.kernel = {1, 1}};
    orc_per_axis(c, "kernel_size", 1, o.kernel, 2);
    orc_per_axis(c, "stride", 1, o.stride, 2);
    orc_per_axis(c, "padding", 0, o.padding, 2);
    orc_per_axis(c, "dilation", 1, o.dilation, 2);
    return o;
}

static void orc_im2col(orc_case *c)
{
    tc_pool o = orc_patch_options(c);
    orc_out(c, tc_im2col(orc_tensor(c, "input"), &o));
}

static void orc_col2im(orc_case *c)
{
    tc_pool o = orc_patch_options(c);
    int64_t sizes[2];
    orc_per_axis(c, "output_size", 1, sizes, 2);
    orc_out(c, tc_col2im(orc_tensor(c, "input"), 2, sizes, &o));
}

static void orc_interpolate(orc_case *c)
{
    tc_tensor x = orc_tensor(c, "input");
    const int n = tc_rank(x) - 2 < 1 ? 1 : tc_rank(x) - 2 > 3 ? 3 : tc_rank(x) - 2;
    const json *factors = orc_value(c, "scale_factor");
    tc_interpolation o = {.mode = orc_text(c, "mode", "nearest"),
                          .align_corners = orc_bool(c, "align_corners"),
                          .recompute_scale_factor = orc_bool(c, "recompute_scale_factor")};
    if (!orc_is_float(tc_dtype_of(x)) && !strncmp(o.mode, "bi", 2)) {
        orc_skip(c, "argument input of integers: rounded once in tc, after each axis in torch");
    }
    if (orc_bool(c, "antialias")) {
        orc_skip_argument(c, "antialias", orc_value(c, "antialias"));
    }
    if (orc_has(c, "size")) {
        orc_per_axis(c, "size", 1, o.size, n);
    }
    for (int i = 0; i < n && factors; i++) {
        const json *v = factors->kind == JSON_LIST ? json_at(factors, i) : factors;
        o.scale_factor[i] = v ? orc_number_of(c, v) : 0;
    }
    orc_out(c, tc_interpolate(x, &o));
}

static void orc_grid_sample(orc_case *c)
{
    if (tc_rank(orc_tensor(c, "input")) == 5 && !strcmp(orc_text(c, "mode", ""), "bicubic")) {
        orc_skip(c, "argument mode=bicubic of three axes");
    }
    orc_out(c, tc_grid_sample(orc_tensor(c, "input"), orc_tensor(c, "grid"),
                              orc_text(c, "mode", "bilinear"), orc_text(c, "padding_mode", "zeros"),
                              orc_bool(c, "align_corners")));
}

#endif
