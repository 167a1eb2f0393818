/* Bits of results, as text: the same from every build of the implementation. */
static void bits_add(char *text, size_t room, tc_tensor t)
{
    float out[40] = {0};
    size_t n = strlen(text);
    tc_status status = tc_read(t, out, tc_count(t));
    n += (size_t)snprintf(text + n, room - n, "%s:", tc_status_text(status));
    for (int64_t i = 0; i < tc_count(t) && n + 32 < room; i++) {
        if (out[i] != out[i]) { /* any NaN equals any other */
            n += (size_t)snprintf(text + n, room - n, " nan");
        } else {
            n += (size_t)snprintf(text + n, room - n, " %a", (double)out[i]);
        }
    }
    snprintf(text + n, room - n, "\n");
}

static void bits_text(char *text, size_t room)
{
    tc_ctx *ctx;
    tc_options o;
    text[0] = 0;
    memset(&o, 0, sizeof(o));
    o.backend = "interp";
    if (tc_ctx_make(&ctx, &o)) {
        return;
    }
    tc_tensor x = tc_div(tc_sub(tc_reshape(tc_arange(ctx, 0, 36, 1, TC_F32), 6, 6), 17), 7);
    bits_add(text, room, tc_sin(tc_mul(x, 100)));
    bits_add(text, room, tc_add(tc_mul(x, x), tc_mul(x, -1.00001)));
    bits_add(text, room, tc_gelu(tc_exp(x)));
    bits_add(text, room, tc_matmul(x, tc_tanh(x)));
    bits_add(text, room, tc_softmax(x, 1));
    bits_add(text, room, tc_log(tc_neg(x)));
    bits_add(text, room, tc_sum(tc_mul(x, 1e-30), TC_ALL, 0));
    bits_add(text, room, tc_cast(tc_mul(x, 1e-39), TC_F32));
    tc_ctx_free(ctx);
}
