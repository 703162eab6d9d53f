/* program_gpt.c - layer norms with biases and feed-forwards without a gate: GPT-2, OPT, GPT-NeoX (Pythia), StarCoder 2, Phi (1, 1.5 and 2). */
#include "runtime/program/blocks.h"
#include "runtime/program/families.h"

/* Activation(x * up) * down. */
static apr_feed_forward ungated(apr_emitter *e, const char *prefix, const char *up, const char *down)
{
    apr_feed_forward f = apr_feed_forward_of(e, prefix);
    f.gate = NULL;
    f.up = up;
    f.down = down;
    return f;
}

static void use_layer_norms(apr_emitter *e)
{
    e->norm.kind = APR_NORM_LAYER;
    e->norm.biased = true;
}

/* --- StarCoder 2 --- */

static int starcoder2_layer(apr_emitter *e, int x)
{
    const apr_feed_forward f = ungated(e, "mlp", "c_fc", "c_proj");
    apr_attention a = apr_attention_of(e);
    if (e->hparams->layer_kinds == NULL) a.window = e->hparams->sliding_window;
    return apr_emit_usual_layer(e, x, &a, &f);
}

void apr_emit_starcoder2(apr_emitter *e)
{
    use_layer_norms(e);
    apr_emit_model(e, starcoder2_layer);
}

/* --- Phi: attention and feed-forward in parallel after one norm --- */

static int phi_layer(apr_emitter *e, int x)
{
    const apr_feed_forward f = ungated(e, "mlp", "fc1", "fc2");
    apr_attention a = apr_attention_of(e);

    a.output = "dense";
    a.qk_norm = e->hparams->use_qk_norm ? APR_QK_NORM_HEADS : APR_QK_NO_NORM;
    a.q_norm = "self_attn.q_layernorm.weight";
    a.k_norm = "self_attn.k_layernorm.weight";
    const int n = apr_emit_norm(e, x, "input_layernorm.weight", "normed");
    return apr_emit_layer_out(e, x, apr_emit_add(e, apr_emit_attention(e, n, &a), apr_emit_feed_forward(e, n, &f), "both"));
}

void apr_emit_phi(apr_emitter *e)
{
    use_layer_norms(e);
    const int x = apr_emit_layers(e, apr_emit_embeddings(e), phi_layer);
    apr_emit_head_of(e, x, "model.final_layernorm.weight", "lm_head", APR_MUST_HAVE_BIAS);
}

/* --- GPT-NeoX: in parallel, each after its own norm, or one after the other --- */

static int gpt_neox_layer(apr_emitter *e, int x)
{
    const apr_feed_forward f = ungated(e, "mlp", "dense_h_to_4h", "dense_4h_to_h");
    apr_attention a = apr_attention_of(e);

    a.prefix = "attention";
    a.output = "dense";
    a.fused = true;
    if (!e->hparams->parallel_residual) return apr_emit_usual_layer(e, x, &a, &f);
    const int attended = apr_emit_attention(e, apr_emit_mixer_norm(e, x), &a);
    const int mlp = apr_emit_feed_forward(e, apr_emit_feed_forward_norm(e, x), &f);
    return apr_emit_layer_out(e, x, apr_emit_add(e, attended, mlp, "both"));
}

void apr_emit_gpt_neox(apr_emitter *e)
{
    use_layer_norms(e);
    e->root = "gpt_neox.";
    const int x = apr_emit_embed(e, "gpt_neox.embed_in.weight", e->hparams->hidden_size, "embeddings");
    apr_emit_head_of(e, apr_emit_layers(e, x, gpt_neox_layer), "gpt_neox.final_layer_norm.weight", "embed_out", APR_NO_BIAS);
}

/* --- learned positions: row `first` of `table` is that of position 0 --- */

static int positioned(apr_emitter *e, int x, const char *table, int64_t first)
{
    const apr_hparams *const h = e->hparams;
    const int positions = apr_emit_positions(e, table, h->max_position_embeddings + first, first, h->hidden_size, "positions");
    return apr_emit_add(e, x, positions, "embeddings.positioned");
}

static int gpt2_layer(apr_emitter *e, int x)
{
    const apr_feed_forward f = ungated(e, "mlp", "up_proj", "down_proj");
    apr_attention a = apr_attention_of(e);

    a.fused = true;
    a.rotary = APR_ROTARY_NONE;
    return apr_emit_usual_layer(e, x, &a, &f);
}

void apr_emit_gpt2(apr_emitter *e)
{
    use_layer_norms(e);
    const int x = positioned(e, apr_emit_embeddings(e), "model.embed_positions.weight", 0);
    apr_emit_head(e, apr_emit_layers(e, x, gpt2_layer), "model.norm.weight");
}

static int opt_layer(apr_emitter *e, int x)
{
    apr_feed_forward f = apr_feed_forward_of(e, "");
    apr_attention a = apr_attention_of(e);

    a.output = "out_proj";
    a.rotary = APR_ROTARY_NONE;
    x = apr_emit_residual(e, x, apr_emit_attention(e, apr_emit_norm(e, x, "self_attn_layer_norm.weight", "attention.normed"), &a),
                          "attention.out");
    const int n = apr_emit_norm(e, x, "final_layer_norm.weight", "mlp.normed");
    const int up = apr_emit_linear(e, n, "fc1", f.role, f.width, f.bias, "up");
    return apr_emit_layer_out(
        e, x, apr_emit_linear(e, apr_emit_glu(e, up, -1, f.glu, "activated"), "fc2", f.role, e->hparams->hidden_size, f.bias, "down"));
}

void apr_emit_opt(apr_emitter *e)
{
    use_layer_norms(e);
    e->root = "model.decoder.";
    const int x = positioned(e, apr_emit_embeddings(e), "model.decoder.embed_positions.weight", 2);
    apr_emit_head(e, apr_emit_layers(e, x, opt_layer), "model.decoder.final_layer_norm.weight");
}
