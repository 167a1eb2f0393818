#include "tc.h"
#include "tc_onnx.h"
#include "tc_comm.h"
#include <stdlib.h>
#include <string.h>
static int fragment_0(tc_ctx *ctx)
{
(void)ctx;
#line 26 "docs/from-pytorch.md"
static float in[10000], out[10000];
tc_tensor x = tc_input(ctx, "x", TC_F32, 10000);
tc_tensor y = tc_sin(tc_cos(x));
tc_program *f;
tc_program_info info;
if (tc_compile(y, &f)) {
    fprintf(stderr, "%s\n", tc_error(y));
    return 1;
}
tc_read(tc_randn(ctx, 42, TC_F32, 10000), in, 10000);
tc_run(f, TC_BUFS(TC_BUF(in, 10000)), TC_BUFS(TC_BUF(out, 10000)));
tc_program_get_info(f, &info);
printf("%d kernel: reads %d bytes, writes %d bytes\n", info.n_kernels, (int)info.bytes_read,
       (int)info.bytes_written);
tc_program_free(f);
return 0;
}
static int fragment_4(tc_ctx *ctx)
{
(void)ctx;
#line 93 "docs/from-pytorch.md"
const tc_backend_entry *e;
for (int i = 0; (e = tc_backend_at(i)); i++) {
    if (!strcmp(e->name, "interp") || !strcmp(e->name, "cpu")) {
        printf("%s %s\n", e->name, e->usable ? "is usable" : e->why);
    }
}
tc_tensor x = tc_input(ctx, "x", TC_F32, 2, 3);
tc_status status = tc_export_onnx(TC_TENSORS(x), TC_TENSORS(tc_softmax(x, 1)), NULL, "softmax.onnx");
printf("softmax.onnx: %s\n", tc_status_text(status));
remove("softmax.onnx");
return 0;
}
static int fragment_6(tc_ctx *ctx)
{
(void)ctx;
#line 121 "docs/from-pytorch.md"
char text[8000] = "";
FILE *out = fmemopen(text, sizeof(text), "w");
tc_tensor x = tc_input(ctx, "x", TC_F32, 10000);
tc_program *f;
if (tc_compile(tc_sin(tc_cos(x)), &f) == TC_OK && out) {
    tc_explain_as(f, out, &(tc_explain_options){.sort = TC_BY_BYTES});
    fclose(out);
    printf("%.9s\n", strstr(text, "tc_k_"));
    printf("%s\n", tc_status_text(tc_report(f, "/tmp/tc-sincos.html")));
    remove("/tmp/tc-sincos.html");
    tc_program_free(f);
}
return 0;
}
static int fragment_8(tc_ctx *ctx)
{
(void)ctx;
#line 152 "docs/from-pytorch.md"
#line 6 "toy.c"
tc_tensor a = tc_input(ctx, "a", TC_F32, 10), b = tc_input(ctx, "b", TC_F32, 10);
tc_tensor x = tc_div(a, tc_add(tc_abs(a), 1));
tc_tensor sum = tc_sum(b, TC_ALL, false);
tc_tensor y = tc_mul(x, tc_where(tc_lt(sum, 0), tc_neg(b), b)); /* if b.sum() < 0: b = b * -1 */
float in[10] = {1, 3}, minus[10] = {-2, -1}, result[10];
tc_program *f;
if (tc_compile(y, &f) == TC_OK) { /* one graph */
    tc_run(f, TC_BUFS(TC_BUF(in, 10), TC_BUF(minus, 10)), TC_BUFS(TC_BUF(result, 10)));
    printf("%g %g\n", result[0], result[1]);
    tc_program_free(f);
}
float total;
if (tc_read(sum, &total, 1)) { /* a graph break in PyTorch */
    printf("%s\n", tc_error(sum));
}
return 0;
}
static int fragment_10(tc_ctx *ctx)
{
(void)ctx;
#line 192 "docs/from-pytorch.md"
tc_tensor x = tc_reshape(tc_arange(ctx, 0, 12, 1, TC_F32), 3, 4);
tc_tensor i = tc_copy_in(ctx, ((int[]){2, 0}), TC_I32, 2);
tc_print(stdout, tc_slice(tc_slice(x, 0, 1, TC_END, 1), 1, 0, TC_END, 2));
tc_print(stdout, tc_index(x, TC_TENSORS(i, i)));
tc_print(stdout, tc_quantile(x, 0.9, TC_AXES(1), false, NULL));
return 0;
}
static int fragment_12(tc_ctx *ctx)
{
(void)ctx;
#line 228 "docs/from-pytorch.md"
enum { BATCH = 8, CLASSES = 3 };
tc_tensor data = tc_input(ctx, "data", TC_F32, BATCH, 4);
tc_tensor target = tc_input(ctx, "target", TC_I64, BATCH);
tc_tensor w = tc_named(tc_param_from(tc_mul(tc_randn(ctx, 1, TC_F32, 4, CLASSES), 0.1)), "fc.weight");
tc_tensor pred = tc_matmul(data, w), loss = tc_cross_entropy(pred, target), grad;
tc_tensor outputs[1 + TC_EFFECTS(1)] = {loss};
tc_program *train;
int n;
tc_grad(loss, &w, 1, &grad);
tc_sgd(&w, &grad, 1, 0.1, (&(tc_sgd_options){.weight_decay = 1e-2}), outputs + 1, &n);
if (tc_compile_fn(TC_TENSORS(data, target), TC_TENSORS_N(outputs, n + 1), NULL, &train)) {
    fprintf(stderr, "%s\n", tc_error(ctx));
    return 1;
}
float xs[BATCH * 4], first = 0, now = 0;
int64_t classes[BATCH];
for (int i = 0; i < BATCH; i++) {
    classes[i] = i % CLASSES;
    for (int j = 0; j < 4; j++) {
        xs[4 * i + j] = j == i % CLASSES ? 1 : 0.1f * (float)(i % 2);
    }
}
for (int i = 0; i < 100; i++) {
    tc_run(train, TC_BUFS(TC_BUF(xs, BATCH * 4), TC_BUF(classes, BATCH)), TC_BUFS(TC_BUF(&now, 1)));
    first = i ? first : now;
}
printf("the loss falls from %.1f to %.1f\n", first, now);
tc_program_free(train);
return 0;
}
static int fragment_14(tc_ctx *ctx)
{
(void)ctx;
#line 275 "docs/from-pytorch.md"
tc_comm *comm;
if (tc_comm_from_env(&comm)) {
    printf("%s\n", tc_comm_error(NULL));
    return 1;
}
tc_tensor x = tc_input(ctx, "x", TC_F32, 8, 4), w = tc_param(ctx, NULL, TC_F32, 4, 2), grad;
tc_tensor loss = tc_mean(tc_square(tc_sub(tc_matmul(x, w), 1)), TC_ALL, false);
tc_tensor outputs[1 + TC_EFFECTS(1)] = {tc_comm_all_reduce(comm, loss, TC_COMM_MEAN)};
tc_program *step;
float batch[32] = {1, 1, 1, 1}, mean;
int n;
if (tc_grad(loss, &w, 1, &grad) ||
    tc_all_reduce_grads(comm, &grad, 1, &(tc_buckets){.bytes = 25 << 20}, &grad) ||
    tc_sgd(&w, &grad, 1, 0.1, NULL, outputs + 1, &n) ||
    tc_compile_fn(TC_TENSORS(x), TC_TENSORS_N(outputs, n + 1), NULL, &step)) {
    printf("%s\n", tc_error(ctx));
    return 1;
}
tc_run(step, TC_BUFS(TC_BUF(batch, 32)), TC_BUFS(TC_BUF(&mean, 1)));
printf("rank %d of %d: loss %g\n", tc_comm_rank(comm), tc_comm_size(comm), mean);
tc_program_free(step);
tc_comm_free(comm);
return 0;
}
static int fragment_16(tc_ctx *ctx)
{
(void)ctx;
#line 317 "docs/from-pytorch.md"
float in[8] = {0.5f, 1, 2, 3, 4, 5, 6, 7}, result[8];
char text[4000] = "";
FILE *out = fmemopen(text, sizeof(text), "w");
tc_tensor x = tc_input(ctx, "x", TC_F32, 8);
tc_options options = {.check = TC_CHECK_ALL, .name = "wrong"};
tc_program *f;
if (tc_compile_fn(TC_TENSORS(x), TC_TENSORS(tc_exp(tc_sin(x))), &options, &f) == TC_OK && out) {
    tc_triage(f, TC_BUFS(TC_BUF(in, 8)), out);
    fclose(out);
    printf("%.27s\n%s", text, strstr(text, "in all of them"));
    tc_status status = tc_run(f, TC_BUFS(TC_BUF(in, 8)), TC_BUFS(TC_BUF(result, 8)));
    printf("each kernel checked: %s\n", tc_status_text(status));
    tc_program_free(f);
}
return 0;
}
static int fragment_18(tc_ctx *ctx)
{
(void)ctx;
#line 351 "docs/from-pytorch.md"
#line 30 "serve.c"
tc_program *first = NULL, *second = NULL;
tc_tensor x8 = tc_input(ctx, "x", TC_F32, 8, 3), x9 = tc_input(ctx, "x", TC_F32, 9, 3);
tc_times times;
tc_compile(tc_cumsum(tc_sqrt(x8), 0), &first);
tc_compile_times(first, &times);
printf("phases %s\n", times.total >= times.plan + times.compiler ? "add up" : "?");
tc_ctx_stance(ctx, TC_STANCE_FAIL); /* dynamo.run: what is compiled serves, nothing is compiled */
printf("%s\n", tc_status_text(tc_compile(tc_cumsum(tc_sqrt(x8), 0), &second)));
tc_program_free(second);
printf("%s\n", tc_status_text(tc_compile(tc_cumsum(tc_sqrt(x9), 0), &second)));
char text[4000] = "";
FILE *out = fmemopen(text, sizeof(text), "w");
tc_recompile_report(ctx, out);
fclose(out);
printf("%.34s\n", text);
tc_program_free(first);
return 0;
}
static int fragment_20(tc_ctx *ctx)
{
(void)ctx;
#line 387 "docs/from-pytorch.md"
static float in[40 * 4], out[40 * 4];
tc_tensor text = tc_input(ctx, "text", TC_F32, TC_DIM("batch", 0, 64), TC_DIM("words", 1, 512));
tc_program *f;
tc_stats stats;
int runs = 0;
if (tc_compile(tc_softmax(text, -1), &f)) {
    return 1;
}
for (int batch = 0; batch <= 40; batch += 10) {
    for (int words = 1; words <= 4; words++, runs++) {
        tc_run(f, TC_BUFS(TC_BUF_ND(in, batch, words)), TC_BUFS(TC_BUF_ND(out, batch, words)));
    }
}
tc_stats(ctx, &stats);
printf("%d shapes, %d program; 1 / 4 = %g\n", runs, (int)(stats.compiles + stats.disk_hits), out[0]);
tc_program_free(f);
return 0;
}
static int fragment_22(tc_ctx *ctx)
{
(void)ctx;
#line 419 "docs/from-pytorch.md"
tc_tensor x = tc_input(ctx, "x", TC_F32, 256, 256), h = x, w = tc_param(ctx, NULL, TC_F32, 256, 256), g;
for (int i = 0; i < 6; i++) {
    h = tc_tanh(tc_add(tc_exp(tc_matmul(h, w)), i));
}
tc_grad(tc_sum(h, TC_ALL, false), &w, 1, &g);
int64_t arena[2] = {0, 0};
for (int i = 0; i < 2; i++) {
    tc_options options = {.remat = i ? TC_REMAT_ALL : TC_REMAT_NONE};
    tc_program_info info;
    tc_program *f;
    if (tc_compile_fn(TC_TENSORS(x), TC_TENSORS(g), &options, &f) == TC_OK) {
        tc_program_get_info(f, &info);
        arena[i] = info.arena_bytes;
        tc_program_free(f);
    }
}
printf("%s\n", arena[1] < arena[0] ? "less memory" : "the same");
tc_options tight = {.memory_limit = 1000};
tc_program *refused;
printf("%s\n", tc_status_text(tc_compile_fn(TC_TENSORS(x), TC_TENSORS(g), &tight, &refused)));
return 0;
}
static int fragment_28(tc_ctx *ctx)
{
(void)ctx;
#line 584 "docs/from-pytorch.md"
static double a[1024 * 64], b[1024 * 64];
double z[1024], wanted = 0;
for (int i = 0; i < 1024 * 64; i++) {
    a[i] = i % 7;
    b[i] = i % 5;
}
for (int i = 0; i < 64 * 64; i++) {
    wanted += a[i / 64] * b[i % 64];
}
tc_tensor x = tc_borrow(ctx, a, TC_F64, 1024, 64), y = tc_borrow(ctx, b, TC_F64, 1024, 64), g;
/* np.sum(X[:, :, None] * Y[:, None, :], axis=(-2, -1)) */
tc_tensor sum = tc_sum(tc_mul(tc_unsqueeze(x, 2), tc_unsqueeze(y, 1)), TC_AXES(-2, -1), false);
tc_program *f;
tc_program_info info;
if (tc_compile(sum, &f)) {
    return 1;
}
tc_program_get_info(f, &info);
tc_run(f, TC_BUFS_N(NULL, 0), TC_BUFS(TC_BUF(z, 1024)));
printf("%d kernel, %s\n", info.n_kernels, z[0] == wanted ? "right" : "wrong");
tc_grad(tc_mean(sum, TC_ALL, false), &x, 1, &g); /* Z.backward(); X.grad */
printf("X.grad: %d x %d\n", (int)tc_size(g, 0), (int)tc_size(g, 1));
tc_program_free(f);

tc_ctx *as_numpy;
if (tc_ctx_make(&as_numpy, (&(tc_options){.promotion = TC_NUMPY})) == TC_OK) {
    tc_tensor i = tc_arange(as_numpy, 0, 3, 1, TC_I64), h = tc_full(as_numpy, 1, TC_F32, 3);
    printf("int64 + float32 = %s\n", tc_dtype_name(tc_dtype_of(tc_add(i, h))));
    tc_ctx_free(as_numpy);
}
return 0;
}
static int fragment_30(tc_ctx *ctx)
{
(void)ctx;
#line 642 "docs/from-pytorch.md"
static float in[4096], result[4096];
tc_tensor x = tc_input(ctx, "x", TC_F32, 64, 64);
tc_region_begin(ctx, "mod1");
tc_tensor y = tc_relu(tc_matmul(x, tc_param_from(tc_randn(ctx, 1, TC_F32, 64, 64))));
tc_region_end(ctx);
tc_options options = {.name = "net"};
tc_program *f;
tc_profile *prof;
if (tc_compile_fn(TC_TENSORS(x), TC_TENSORS(y), &options, &f)) {
    return 1;
}
tc_run(f, TC_BUFS(TC_BUF(in, 4096)), TC_BUFS(TC_BUF(result, 4096))); /* warm-up */
if (tc_profile_begin(NULL, &prof)) {
    return 1;
}
for (int i = 0; i < 3; i++) {
    tc_mark_begin("forward");
    tc_run(f, TC_BUFS(TC_BUF(in, 4096)), TC_BUFS(TC_BUF(result, 4096)));
    tc_mark_end();
    tc_profile_step(prof);
}
tc_profile_end(prof);
char text[4000] = "";
FILE *out = fmemopen(text, sizeof(text), "w");
tc_profile_table(prof, out, TC_BY_TIME, 5);
fclose(out);
printf("%s\n", strstr(text, "mod1") ? "mod1" : text);
printf("%s\n", tc_status_text(tc_profile_write(prof, "/tmp/tc-trace.json")));
remove("/tmp/tc-trace.json");
tc_profile_free(prof);
tc_program_free(f);
return 0;
}
int main(int argc,char**argv){tc_ctx*ctx;int n=atoi(argv[1]);int code=(int)tc_ctx_make(&ctx,NULL);(void)argc;
if(n==0)code=fragment_0(ctx);
if(n==4)code=fragment_4(ctx);
if(n==6)code=fragment_6(ctx);
if(n==8)code=fragment_8(ctx);
if(n==10)code=fragment_10(ctx);
if(n==12)code=fragment_12(ctx);
if(n==14)code=fragment_14(ctx);
if(n==16)code=fragment_16(ctx);
if(n==18)code=fragment_18(ctx);
if(n==20)code=fragment_20(ctx);
if(n==22)code=fragment_22(ctx);
if(n==28)code=fragment_28(ctx);
if(n==30)code=fragment_30(ctx);
return code;}
