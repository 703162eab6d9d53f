/* program_deepseek.c - latent attention and many small experts: DeepSeek V2 and V3 (Kimi K2), GLM-4.7-Flash, Mistral 4. */
#include "runtime/program/blocks.h"
#include "runtime/program/families.h"

static int feed_forward(apr_emitter *e, int n, const apr_experts *x)
{
    const apr_feed_forward dense = apr_feed_forward_of(e, "mlp");
    if (apr_ffn_kind_of(e->hparams, e->layer) == APR_FFN_DENSE) return apr_emit_feed_forward(e, n, &dense);
    return apr_emit_shared(e, n, apr_emit_experts(e, n, n, x), "mlp.shared_experts", NULL);
}

static int after_attention(apr_emitter *e, int x, int attended, const apr_experts *experts)
{
    x = apr_emit_residual(e, x, attended, "attention.out");
    return apr_emit_layer_out(e, x, feed_forward(e, apr_emit_feed_forward_norm(e, x), experts));
}

static int emit_layer(apr_emitter *e, int x, const apr_experts *experts)
{
    return after_attention(e, x, apr_emit_latent_attention(e, apr_emit_mixer_norm(e, x)), experts);
}

/* Softmax scores. A group is ranked by its best expert. Experts of groups that are not chosen get score 0 instead of -infinity. */
static int deepseek_v2_layer(apr_emitter *e, int x)
{
    apr_experts experts = apr_experts_of(e);

    experts.route.group_by_best = true;
    experts.route.filler = 0.0f;
    experts.route.normalise = false;
    return emit_layer(e, x, &experts);
}

void apr_emit_deepseek_v2(apr_emitter *e) { apr_emit_model(e, deepseek_v2_layer); }

/* Sigmoid scores. A bias is added for the choice, but not for the weights. */
static apr_experts v3_experts(apr_emitter *e)
{
    apr_experts experts = apr_experts_of(e);

    experts.choice_bias = "mlp.gate.e_score_correction_bias";
    experts.route.score = APR_SCORE_SIGMOID;
    experts.route.norm_eps = 1e-20f;
    return experts;
}

static int deepseek_v3_layer(apr_emitter *e, int x)
{
    const apr_experts experts = v3_experts(e);
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

/* --- V3.2 and GLM 5: the same, with attention to the positions that an indexer chooses --- */

static int indexed_layer(apr_emitter *e, int x, apr_rope_mode mode)
{
    const apr_experts experts = v3_experts(e);
    return after_attention(e, x, apr_emit_indexed_latent_attention(e, apr_emit_mixer_norm(e, x), mode), &experts);
}

static int deepseek_v32_layer(apr_emitter *e, int x) { return indexed_layer(e, x, APR_ROPE_HALVES); }
static int glm_moe_dsa_layer(apr_emitter *e, int x) { return indexed_layer(e, x, APR_ROPE_NEIGHBOURS); }

void apr_emit_deepseek_v32(apr_emitter *e) { apr_emit_model(e, deepseek_v32_layer); }
void apr_emit_glm_moe_dsa(apr_emitter *e) { apr_emit_model(e, glm_moe_dsa_layer); }
