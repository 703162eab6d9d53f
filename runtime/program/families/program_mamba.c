/* program_mamba.c - Mamba 2 alone (mamba2), between attention layers (bamba), and in parallel with attention (falcon_h1). */
#include "runtime/program/blocks.h"
#include "runtime/program/families.h"

static int mamba2_layer(apr_emitter *e, int x)
{
    return apr_emit_layer_out(e, x, apr_emit_mamba(e, apr_emit_norm(e, x, "norm.weight", "normed"), "mixer"));
}

/* The hidden states of transformers' class are those after each layer and after the last norm, without the embeddings. */
void apr_emit_mamba2(apr_emitter *e)
{
    e->root = "backbone.";
    int x = apr_emit_embed(e, "backbone.embeddings.weight", e->hparams->hidden_size, "embeddings");
    for (e->layer = 0; e->layer < e->hparams->num_layers && e->status == APR_OK; e->layer++) x = mamba2_layer(e, x);
    e->layer = -1;
    e->program->n_taps++; /* of the last norm */
    apr_emit_head(e, x, "backbone.norm_f.weight");
}

/* The feed-forward after its norm, added to x. */
static int with_feed_forward(apr_emitter *e, int x)
{
    apr_feed_forward f = apr_feed_forward_of(e, "feed_forward");

    f.gate_scale = e->hparams->mlp_gate_multiplier;
    f.down_scale = e->hparams->mlp_down_multiplier;
    return apr_emit_layer_out(e, x, apr_emit_feed_forward(e, apr_emit_norm(e, x, "pre_ff_layernorm.weight", "mlp.normed"), &f));
}

static int bamba_mixer(apr_emitter *e, int n)
{
    const apr_layer_kind kind = apr_layer_kind_of(e->hparams, e->layer);
    const apr_attention a = apr_attention_of(e);

    if (kind == APR_LAYER_MAMBA) return apr_emit_mamba(e, n, "mamba");
    if (kind != APR_LAYER_FULL) apr_emit_unknown_layer(e);
    return apr_emit_attention(e, n, &a);
}

static int bamba_layer(apr_emitter *e, int x)
{
    const int n = apr_emit_norm(e, x, "input_layernorm.weight", "mixer.normed");
    return with_feed_forward(e, apr_emit_residual(e, x, bamba_mixer(e, n), "mixer.out"));
}

void apr_emit_bamba(apr_emitter *e)
{
    apr_emit_head(e, apr_emit_layers(e, apr_emit_embeddings(e), bamba_layer), "model.final_layernorm.weight");
}

static int scaled(apr_emitter *e, int x, double factor, const char *out) { return factor > 0.0 ? apr_emit_scale(e, x, factor, out) : x; }

static int falcon_h1_layer(apr_emitter *e, int x)
{
    const apr_hparams *const h = e->hparams;
    const apr_mamba m = {.prefix = "mamba",
                         .without_norm = !h->mamba_rms_norm,
                         .norm_first = h->mamba_norm_before_gate,
                         .z = h->ssm_z_multiplier,
                         .x = h->ssm_x_multiplier,
                         .b = h->ssm_b_multiplier,
                         .c = h->ssm_c_multiplier,
                         .dt = h->ssm_dt_multiplier};
    apr_attention a = apr_attention_of(e);

    a.key_scale = h->key_multiplier;
    const int n = apr_emit_norm(e, x, "input_layernorm.weight", "normed");
    const int mixed =
        scaled(e, apr_emit_mamba_of(e, scaled(e, n, h->ssm_in_multiplier, "mamba.in"), &m), h->ssm_out_multiplier, "mamba.out");
    const int attended = scaled(e, apr_emit_attention(e, scaled(e, n, h->attention_in_multiplier, "attention.in"), &a),
                                h->attention_out_multiplier, "attention.out");
    return with_feed_forward(e, apr_emit_residual(e, x, apr_emit_add(e, mixed, attended, "both"), "mixers.out"));
}

void apr_emit_falcon_h1(apr_emitter *e)
{
    apr_emit_head(e, apr_emit_layers(e, apr_emit_embeddings(e), falcon_h1_layer), "model.final_layernorm.weight");
}
