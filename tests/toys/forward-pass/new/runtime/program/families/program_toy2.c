/* program_toy2.c - llama's layer with norms on q and k. */
#include "runtime/program/blocks.h"
#include "runtime/program/families.h"

static int toy2_layer(apr_emitter *e, int x)
{
    const apr_feed_forward feed_forward = apr_feed_forward_of(e, "mlp");
    apr_attention attention = apr_attention_of(e);

    attention.qk_norm = APR_QK_NORM_HEADS;
    x = apr_emit_residual(e, x, apr_emit_attention(e, apr_emit_norm(e, x, "input_layernorm.weight", "n"), &attention), "attended");
    const int n = apr_emit_norm(e, x, "post_attention_layernorm.weight", "m");
    return apr_emit_layer_out(e, x, apr_emit_feed_forward(e, n, &feed_forward));
}

void apr_emit_toy2(apr_emitter *e) { apr_emit_model(e, toy2_layer); }
