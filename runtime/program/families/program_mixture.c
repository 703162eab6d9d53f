/* program_mixture.c - llama's layer with routed experts as the feed-forward. */
#include "runtime/program/blocks.h"
#include "runtime/program/families.h"

/* The blocks of a layer in one family. */
typedef struct mixture {
    apr_attention attention;
    apr_experts experts;
    apr_feed_forward dense; /* for layers without experts */
    const char *shared;     /* shared experts; NULL: none */
    const char *shared_gate;
} mixture;

static mixture usual(apr_emitter *e)
{
    return (mixture){.attention = apr_attention_of(e), .experts = apr_experts_of(e), .dense = apr_feed_forward_of(e, "mlp")};
}

static int feed_forward(apr_emitter *e, int n, const mixture *m)
{
    if (apr_ffn_kind_of(e->hparams, e->layer) == APR_FFN_DENSE) return apr_emit_feed_forward(e, n, &m->dense);
    const int routed = apr_emit_experts(e, n, n, &m->experts);
    return m->shared != NULL ? apr_emit_shared(e, n, routed, m->shared, m->shared_gate) : routed;
}

static int emit_layer(apr_emitter *e, int x, const mixture *m)
{
    x = apr_emit_residual(e, x, apr_emit_attention(e, apr_emit_mixer_norm(e, x), &m->attention), "attention.out");
    return apr_emit_layer_out(e, x, feed_forward(e, apr_emit_feed_forward_norm(e, x), m));
}

static int qwen3_moe_layer(apr_emitter *e, int x)
{
    mixture m = usual(e);
    m.attention.qk_norm = APR_QK_NORM_HEADS;
    return emit_layer(e, x, &m);
}

void apr_emit_qwen3_moe(apr_emitter *e) { apr_emit_model(e, qwen3_moe_layer); }
void apr_emit_qwen3_vl_moe(apr_emitter *e) { apr_emit_model(e, qwen3_moe_layer); }

void apr_emit_mellum(apr_emitter *e) { apr_emit_model(e, qwen3_moe_layer); }

static int olmoe_layer(apr_emitter *e, int x)
{
    mixture m = usual(e);
    m.attention.qk_norm = APR_QK_NORM_ROWS;
    return emit_layer(e, x, &m);
}

void apr_emit_olmoe(apr_emitter *e) { apr_emit_model(e, olmoe_layer); }

static int qwen2_moe_layer(apr_emitter *e, int x)
{
    mixture m = usual(e);
    m.shared = "mlp.shared_expert";
    m.shared_gate = "mlp.shared_expert_gate";
    return emit_layer(e, x, &m);
}

void apr_emit_qwen2_moe(apr_emitter *e) { apr_emit_model(e, qwen2_moe_layer); }

static int mixtral_layer(apr_emitter *e, int x)
{
    mixture m = usual(e);

    if (e->hparams->layer_kinds == NULL) m.attention.window = e->hparams->sliding_window;
    m.experts.router = "block_sparse_moe.gate";
    m.experts.prefix = "block_sparse_moe.experts";
    m.experts.gate = "w1";
    m.experts.up = "w3";
    m.experts.down = "w2";
    m.experts.route.normalise = true;
    return emit_layer(e, x, &m);
}

void apr_emit_mixtral(apr_emitter *e) { apr_emit_model(e, mixtral_layer); }

/* Norms of q and k cover whole rows. Experts have sigmoid scores and are chosen with a bias. */
static int minimax_m2_layer(apr_emitter *e, int x)
{
    mixture m = usual(e);

    m.attention.qk_norm = APR_QK_NORM_ROWS;
    m.experts.router = "block_sparse_moe.gate";
    m.experts.choice_bias = "block_sparse_moe.e_score_correction_bias";
    m.experts.prefix = "block_sparse_moe.experts";
    m.experts.gate = "w1";
    m.experts.up = "w3";
    m.experts.down = "w2";
    m.experts.route.score = APR_SCORE_SIGMOID;
    m.experts.route.normalise = true;
    return emit_layer(e, x, &m);
}

void apr_emit_minimax_m2(apr_emitter *e) { apr_emit_model(e, minimax_m2_layer); }

/* Experts have sigmoid scores and are chosen with a bias, as in DeepSeek V3. */
static mixture glm4_moe(apr_emitter *e)
{
    mixture m = usual(e);

    m.attention.qk_norm = e->hparams->use_qk_norm ? APR_QK_NORM_HEADS : APR_QK_NO_NORM;
    m.experts.choice_bias = "mlp.gate.e_score_correction_bias";
    m.experts.route.score = APR_SCORE_SIGMOID;
    m.experts.route.norm_eps = 1e-20f;
    m.shared = "mlp.shared_experts";
    return m;
}

static int glm4_moe_layer(apr_emitter *e, int x)
{
    const mixture m = glm4_moe(e);
    return emit_layer(e, x, &m);
}

void apr_emit_glm4_moe(apr_emitter *e) { apr_emit_model(e, glm4_moe_layer); }
void apr_emit_solar_open(apr_emitter *e) { apr_emit_model(e, glm4_moe_layer); }
void apr_emit_dots1(apr_emitter *e) { apr_emit_model(e, glm4_moe_layer); }
void apr_emit_exaone_moe(apr_emitter *e) { apr_emit_model(e, glm4_moe_layer); }
void apr_emit_hy_v3(apr_emitter *e) { apr_emit_model(e, glm4_moe_layer); }

/* The same between norms, with a gate on the attention. */
static int afmoe_layer(apr_emitter *e, int x)
{
    mixture m = glm4_moe(e);

    m.attention.gate = "gate_proj";
    int y = apr_emit_attention(e, apr_emit_mixer_norm(e, x), &m.attention);
    x = apr_emit_residual(e, x, apr_emit_norm(e, y, "post_attention_layernorm.weight", "o.normed"), "attention.out");
    y = feed_forward(e, apr_emit_norm(e, x, "pre_mlp_layernorm.weight", "mlp.normed"), &m);
    return apr_emit_layer_out(e, x, apr_emit_norm(e, y, "post_mlp_layernorm.weight", "down.normed"));
}

void apr_emit_afmoe(apr_emitter *e) { apr_emit_model(e, afmoe_layer); }

static int ernie4_5_moe_layer(apr_emitter *e, int x)
{
    mixture m = usual(e);

    m.attention.rope_mode = APR_ROPE_NEIGHBOURS;
    m.experts.choice_bias = "mlp.moe_statics.e_score_correction_bias";
    m.experts.route.normalise = true;
    m.experts.route.norm_min = (float)e->hparams->moe_norm_min;
    m.shared = "mlp.shared_experts";
    return emit_layer(e, x, &m);
}

void apr_emit_ernie4_5_moe(apr_emitter *e) { apr_emit_model(e, ernie4_5_moe_layer); }

/* Norms of q and k come after rope. */
static int hunyuan_v1_moe_layer(apr_emitter *e, int x)
{
    mixture m = usual(e);

    m.attention.qk_norm = APR_QK_NORM_HEADS;
    m.attention.norm_after_rope = true;
    m.attention.q_norm = "self_attn.query_layernorm.weight";
    m.attention.k_norm = "self_attn.key_layernorm.weight";
    m.experts.router = "mlp.gate.wg";
    m.experts.route.normalise = true;
    m.shared = "mlp.shared_mlp";
    return emit_layer(e, x, &m);
}

void apr_emit_hunyuan_v1_moe(apr_emitter *e) { apr_emit_model(e, hunyuan_v1_moe_layer); }

/* Biases everywhere, attention sinks, and a clamped gate: (up + 1) * gate * sigmoid(alpha * gate). */
static int gpt_oss_layer(apr_emitter *e, int x)
{
    const apr_hparams *const h = e->hparams;
    mixture m = usual(e);

    m.attention.sinks = true;
    m.attention.bias = m.attention.output_bias = APR_MUST_HAVE_BIAS;
    m.experts.router = "mlp.router";
    m.experts.router_bias = m.experts.biases = true;
    m.experts.route.score = APR_SCORE_TOPK_SOFTMAX;
    m.experts.route.normalise = false; /* this softmax already sums to 1 */
    m.experts.glu = (apr_glu_shape){.activation = APR_ACT_SILU,
                                    .limit = (float)(h->swiglu_limit > 0.0 ? h->swiglu_limit : 7.0),
                                    .alpha = (float)(h->swiglu_alpha > 0.0 ? h->swiglu_alpha : 1.702),
                                    .up_offset = 1.0f};
    return emit_layer(e, x, &m);
}

void apr_emit_gpt_oss(apr_emitter *e) { apr_emit_model(e, gpt_oss_layer); }

/* Layers with rope attend within chunks. Layers without rope attend to all positions and scale their queries by position. One expert per
 * token; its weight is applied to its input. */
static int llama4_layer(apr_emitter *e, int x)
{
    const bool has_rope = apr_layer_has_rope(e->hparams, e->layer);
    mixture m = usual(e);

    m.attention.rope_mode = APR_ROPE_NEIGHBOURS;
    m.attention.chunk = has_rope ? e->hparams->attention_chunk_size : 0;
    m.attention.qk_norm = has_rope && e->hparams->use_qk_norm ? APR_QK_NORM_HEADS : APR_QK_NO_NORM;
    m.attention.norm_after_rope = true;
    m.attention.q_norm = m.attention.k_norm = NULL;
    m.attention.warmth = has_rope ? 0.0 : e->hparams->attn_temperature;
    m.attention.shift = 1.0;
    m.experts.router = "feed_forward.router";
    m.experts.prefix = "feed_forward.experts";
    m.experts.route.score = APR_SCORE_TOPK_SIGMOID;
    m.experts.route.normalise = false;
    m.experts.weight_on_input = true;
    m.shared = "feed_forward.shared_expert";
    m.dense.prefix = "feed_forward";
    return emit_layer(e, x, &m);
}

void apr_emit_llama4(apr_emitter *e) { apr_emit_model(e, llama4_layer); }
