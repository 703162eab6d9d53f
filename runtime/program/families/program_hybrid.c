/* program_hybrid.c - families with a recurrent state of constant size in most layers, and attention in the others. */
#include "runtime/program/blocks.h"
#include "runtime/program/families.h"

/* --- Qwen 3.5 and Qwen3-Next: gated delta nets, gated attention --- */

static int qwen_mixer(apr_emitter *e, int n, bool fused)
{
    const apr_layer_kind kind = apr_layer_kind_of(e->hparams, e->layer);
    apr_attention a = apr_attention_of(e);

    if (kind == APR_LAYER_LINEAR) return apr_emit_delta_net(e, n, "linear_attn", fused);
    if (kind != APR_LAYER_FULL) apr_emit_unknown_layer(e);
    a.gated = true;
    a.qk_norm = APR_QK_NORM_HEADS;
    return apr_emit_attention(e, n, &a);
}

static int qwen_feed_forward(apr_emitter *e, int n, bool normalises)
{
    const apr_feed_forward dense = apr_feed_forward_of(e, "mlp");
    apr_experts x = apr_experts_of(e);

    if (apr_ffn_kind_of(e->hparams, e->layer) == APR_FFN_DENSE) return apr_emit_feed_forward(e, n, &dense);
    if (normalises) x.route.normalise = true;
    return apr_emit_shared(e, n, apr_emit_experts(e, n, n, &x), "mlp.shared_expert", "mlp.shared_expert_gate");
}

static int qwen_layer(apr_emitter *e, int x, bool is_next)
{
    x = apr_emit_residual(e, x, qwen_mixer(e, apr_emit_mixer_norm(e, x), is_next), "attention.out");
    return apr_emit_layer_out(e, x, qwen_feed_forward(e, apr_emit_feed_forward_norm(e, x), !is_next));
}

static int qwen3_5_layer(apr_emitter *e, int x) { return qwen_layer(e, x, false); }
static int qwen3_next_layer(apr_emitter *e, int x) { return qwen_layer(e, x, true); }

void apr_emit_qwen3_5(apr_emitter *e) { apr_emit_model(e, qwen3_5_layer); }
void apr_emit_qwen3_5_moe(apr_emitter *e) { apr_emit_model(e, qwen3_5_layer); }
void apr_emit_qwen3_next(apr_emitter *e) { apr_emit_model(e, qwen3_next_layer); }

/* --- Granite 4: Mamba 2 and attention; experts with a shared feed-forward, or the shared one alone --- */

static int granite_mixer(apr_emitter *e, int n)
{
    const apr_attention a = apr_attention_of(e);
    const apr_layer_kind kind = apr_layer_kind_of(e->hparams, e->layer);

    if (kind == APR_LAYER_MAMBA) return apr_emit_mamba(e, n, "mamba");
    if (kind != APR_LAYER_FULL) apr_emit_unknown_layer(e);
    return apr_emit_attention(e, n, &a);
}

static int granite_feed_forward(apr_emitter *e, int n)
{
    apr_feed_forward shared = apr_feed_forward_of(e, "shared_mlp");
    apr_experts x = apr_experts_of(e);

    shared.width = apr_shared_width(e);
    if (apr_ffn_kind_of(e->hparams, e->layer) == APR_FFN_DENSE) return apr_emit_feed_forward(e, n, &shared);
    x.router = "block_sparse_moe.router.layer";
    x.prefix = "block_sparse_moe.experts";
    x.route.score = APR_SCORE_TOPK_SOFTMAX;
    x.route.normalise = false;
    return apr_emit_shared(e, n, apr_emit_experts(e, n, n, &x), "shared_mlp", NULL);
}

static int granite_layer(apr_emitter *e, int x)
{
    x = apr_emit_residual(e, x, granite_mixer(e, apr_emit_mixer_norm(e, x)), "attention.out");
    return apr_emit_layer_out(e, x, granite_feed_forward(e, apr_emit_feed_forward_norm(e, x)));
}

void apr_emit_granitemoe(apr_emitter *e) { apr_emit_model(e, granite_layer); }
void apr_emit_granitemoehybrid(apr_emitter *e) { apr_emit_model(e, granite_layer); }

/* --- Nemotron-H: one mixer or feed-forward per layer --- */

static int nemotron_feed_forward(apr_emitter *e, int n, const char *prefix, int64_t width)
{
    apr_feed_forward f = apr_feed_forward_of(e, prefix);
    f.gate = NULL;
    f.width = width;
    return apr_emit_feed_forward(e, n, &f);
}

/* With moe_latent_size the experts work in a narrower space. */
static int nemotron_experts(apr_emitter *e, int n)
{
    const int64_t latent = e->hparams->moe_latent_size;
    apr_experts x = apr_experts_of(e);

    x.router = "mixer.gate";
    x.choice_bias = "mixer.gate.e_score_correction_bias";
    x.prefix = "mixer.experts";
    x.gate = NULL;
    x.route.score = APR_SCORE_SIGMOID;
    x.route.norm_eps = 1e-20f;
    const int in = latent > 0 ? apr_emit_linear(e, n, "mixer.fc1_latent_proj", APR_ROLE_EXPERTS, latent, APR_NO_BIAS, "latent") : n;
    int y = apr_emit_experts(e, in, n, &x);
    if (latent > 0)
        y = apr_emit_linear(e, y, "mixer.fc2_latent_proj", APR_ROLE_EXPERTS, e->hparams->hidden_size, APR_NO_BIAS, "latent.out");
    if (apr_shared_width(e) <= 0) return y;
    return apr_emit_add(e, y, nemotron_feed_forward(e, n, "mixer.shared_experts", apr_shared_width(e)), "experts.all");
}

static int nemotron_block(apr_emitter *e, int n)
{
    const apr_layer_kind kind = apr_layer_kind_of(e->hparams, e->layer);
    const apr_ffn_kind ffn = apr_ffn_kind_of(e->hparams, e->layer);
    apr_attention a = apr_attention_of(e);

    if (kind == APR_LAYER_MAMBA && ffn == APR_FFN_NONE) return apr_emit_mamba(e, n, "mixer");
    if (kind == APR_LAYER_NONE && ffn == APR_FFN_EXPERTS) return nemotron_experts(e, n);
    if (kind == APR_LAYER_NONE && ffn == APR_FFN_DENSE) return nemotron_feed_forward(e, n, "mixer", e->hparams->intermediate_size);
    if (kind != APR_LAYER_FULL || ffn != APR_FFN_NONE) apr_emit_unknown_layer(e);
    a.prefix = "mixer";
    a.rotary = APR_ROTARY_NONE;
    return apr_emit_attention(e, n, &a);
}

static int nemotron_layer(apr_emitter *e, int x)
{
    return apr_emit_layer_out(e, x, nemotron_block(e, apr_emit_norm(e, x, "norm.weight", "normed")));
}

void apr_emit_nemotron_h(apr_emitter *e)
{
    e->root = "backbone.";
    const int x = apr_emit_embed(e, "backbone.embeddings.weight", e->hparams->hidden_size, "embeddings");
    apr_emit_head(e, apr_emit_layers(e, x, nemotron_layer), "backbone.norm_f.weight");
}

/* --- Kimi Linear, Ling: delta rules with a decay for each channel, latent attention, experts --- */

static int channel_feed_forward(apr_emitter *e, int n, apr_experts *x, const char *shared)
{
    const apr_feed_forward dense = apr_feed_forward_of(e, "mlp");

    x->route.score = APR_SCORE_SIGMOID;
    x->route.norm_eps = 1e-20f;
    if (apr_ffn_kind_of(e->hparams, e->layer) == APR_FFN_DENSE) return apr_emit_feed_forward(e, n, &dense);
    return apr_emit_shared(e, n, apr_emit_experts(e, n, n, x), shared, NULL);
}

static int kimi_mixer(apr_emitter *e, int n)
{
    static const apr_channel_delta delta = {.prefix = "self_attn", .output = "o_proj", .low_rank = true};
    const apr_layer_kind kind = apr_layer_kind_of(e->hparams, e->layer);

    if (kind == APR_LAYER_LINEAR) return apr_emit_channel_delta(e, n, &delta);
    if (kind != APR_LAYER_FULL) apr_emit_unknown_layer(e);
    return apr_emit_latent_attention(e, n);
}

static int kimi_layer(apr_emitter *e, int x)
{
    apr_experts experts = apr_experts_of(e);

    experts.router = "block_sparse_moe.gate";
    experts.choice_bias = "block_sparse_moe.gate.e_score_correction_bias";
    experts.prefix = "block_sparse_moe.experts";
    experts.gate = "w1";
    experts.up = "w3";
    experts.down = "w2";
    x = apr_emit_residual(e, x, kimi_mixer(e, apr_emit_mixer_norm(e, x)), "attention.out");
    return apr_emit_layer_out(e, x, channel_feed_forward(e, apr_emit_feed_forward_norm(e, x), &experts, "block_sparse_moe.shared_experts"));
}

void apr_emit_kimi_linear(apr_emitter *e) { apr_emit_model(e, kimi_layer); }

static int ling_mixer(apr_emitter *e, int n)
{
    const apr_channel_delta delta = {.prefix = "attention", .output = "dense", .floor = -e->hparams->kda_bound};
    const apr_layer_kind kind = apr_layer_kind_of(e->hparams, e->layer);

    if (kind == APR_LAYER_LINEAR) return apr_emit_channel_delta(e, n, &delta);
    if (kind != APR_LAYER_FULL) apr_emit_unknown_layer(e);
    return apr_emit_latent_attention_of(e, n, "attention", "dense", "g_proj");
}

static int ling_layer(apr_emitter *e, int x)
{
    apr_experts experts = apr_experts_of(e);

    experts.choice_bias = "mlp.gate.expert_bias";
    x = apr_emit_residual(e, x, ling_mixer(e, apr_emit_mixer_norm(e, x)), "attention.out");
    return apr_emit_layer_out(e, x, channel_feed_forward(e, apr_emit_feed_forward_norm(e, x), &experts, "mlp.shared_experts"));
}

void apr_emit_bailing_hybrid(apr_emitter *e)
{
    const int x = apr_emit_embed(e, "model.word_embeddings.weight", e->hparams->hidden_size, "embeddings");
    apr_emit_head(e, apr_emit_layers(e, x, ling_layer), "model.norm.weight");
}

/* --- LFM2: gated short convolutions, attention --- */

static int lfm2_mixer(apr_emitter *e, int n)
{
    const apr_layer_kind kind = apr_layer_kind_of(e->hparams, e->layer);
    apr_attention a = apr_attention_of(e);

    if (kind == APR_LAYER_CONV) return apr_emit_short_conv(e, n, "conv");
    if (kind != APR_LAYER_FULL) apr_emit_unknown_layer(e);
    a.qk_norm = APR_QK_NORM_HEADS;
    a.q_norm = "self_attn.q_layernorm.weight";
    a.k_norm = "self_attn.k_layernorm.weight";
    a.output = "out_proj";
    return apr_emit_attention(e, n, &a);
}

static int lfm2_feed_forward(apr_emitter *e, int n)
{
    apr_feed_forward f = apr_feed_forward_of(e, "feed_forward");
    apr_experts x = apr_experts_of(e);

    f.gate = x.gate = "w1";
    f.up = x.up = "w3";
    f.down = x.down = "w2";
    if (apr_ffn_kind_of(e->hparams, e->layer) == APR_FFN_DENSE) return apr_emit_feed_forward(e, n, &f);
    x.router = "feed_forward.gate";
    x.choice_bias = "feed_forward.expert_bias";
    x.prefix = "feed_forward.experts";
    x.route.score = APR_SCORE_SIGMOID;
    x.route.norm_eps = 1e-6f;
    return apr_emit_experts(e, n, n, &x);
}

static int lfm2_layer(apr_emitter *e, int x)
{
    x = apr_emit_residual(e, x, lfm2_mixer(e, apr_emit_norm(e, x, "operator_norm.weight", "mixer.normed")), "mixer.out");
    return apr_emit_layer_out(e, x, lfm2_feed_forward(e, apr_emit_norm(e, x, "ffn_norm.weight", "mlp.normed")));
}

static void emit_lfm2(apr_emitter *e)
{
    apr_emit_head(e, apr_emit_layers(e, apr_emit_embeddings(e), lfm2_layer), "model.embedding_norm.weight");
}

void apr_emit_lfm2(apr_emitter *e) { emit_lfm2(e); }
void apr_emit_lfm2_moe(apr_emitter *e) { emit_lfm2(e); }
