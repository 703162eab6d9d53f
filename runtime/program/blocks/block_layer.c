/* block_layer.c - the layer of most families, and its norms. */
#include "runtime/program/blocks.h"

int apr_emit_mixer_norm(apr_emitter *e, int x) { return apr_emit_norm(e, x, "input_layernorm.weight", "attention.normed"); }
int apr_emit_feed_forward_norm(apr_emitter *e, int x) { return apr_emit_norm(e, x, "post_attention_layernorm.weight", "mlp.normed"); }

int apr_emit_usual_layer(apr_emitter *e, int x, const apr_attention *a, const apr_feed_forward *f)
{
    x = apr_emit_residual(e, x, apr_emit_attention(e, apr_emit_mixer_norm(e, x), a), "attention.out");
    return apr_emit_layer_out(e, x, apr_emit_feed_forward(e, apr_emit_feed_forward_norm(e, x), f));
}
