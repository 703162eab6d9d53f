/* program_deepseek.c - latent attention and many small experts: DeepSeek V2 and V3 (Kimi K2), GLM-4.7-Flash, Mistral 4. */
#include "runtime/program/blocks.h"
#include "runtime/program/families.h"

static int feed_forward(apr_emitter *e, int n, const apr_experts *x)
{
    const apr_feed_forward dense = apr_feed_forward_of(e, "mlp");
    if (apr_ffn_kind_of(e->hparams, e->layer) == APR_FFN_DENSE) return apr_emit_feed_forward(e, n, &dense);
    return apr_emit_shared(e, n, apr_emit_experts(e, n, n, x), "mlp.shared_experts", NULL);
}

static int emit_layer(apr_emitter *e, int x, const apr_experts *experts)
{
    const int n = apr_emit_norm(e, x, "input_layernorm.weight", "attention.normed");
    x = apr_emit_residual(e, x, apr_emit_latent_attention(e, n), "attention.out");
    return apr_emit_layer_out(e, x, feed_forward(e, apr_emit_norm(e, x, "post_attention_layernorm.weight", "mlp.normed"), experts));
}

/* Scores by softmax; a group is as good as its best expert; those left out count as 0, not as nothing. */
static int deepseek_v2_layer(apr_emitter *e, int x)
{
    apr_experts experts = apr_experts_of(e);

    experts.route.group_by_best = true;
    experts.route.filler = 0.0f;
    experts.route.normalise = false;
    return emit_layer(e, x, &experts);
}

void apr_emit_deepseek_v2(apr_emitter *e) { apr_emit_model(e, deepseek_v2_layer); }

/* Scores by sigmoid; chosen with a bias, weighed without it. */
static int deepseek_v3_layer(apr_emitter *e, int x)
{
    apr_experts experts = apr_experts_of(e);

    experts.choice_bias = "mlp.gate.e_score_correction_bias";
    experts.route.score = APR_SCORE_SIGMOID;
    experts.route.norm_eps = 1e-20f;
    return emit_layer(e, x, &experts);
}

void apr_emit_deepseek_v3(apr_emitter *e) { apr_emit_model(e, deepseek_v3_layer); }
void apr_emit_glm4_moe_lite(apr_emitter *e) { apr_emit_model(e, deepseek_v3_layer); }

static int mistral4_layer(apr_emitter *e, int x)
{
    apr_experts experts = apr_experts_of(e);

    experts.route.normalise = true;
    experts.route.norm_eps = 1e-20f;
    return emit_layer(e, x, &experts);
}

void apr_emit_mistral4(apr_emitter *e) { apr_emit_model(e, mistral4_layer); }
