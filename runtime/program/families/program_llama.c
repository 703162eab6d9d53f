/* program_llama.c - llama and close variants: attention and feed-forward, each on the normed state and added to the residual. */
#include "runtime/program/blocks.h"
#include "runtime/program/families.h"

static int feed_forward(apr_emitter *e, int n)
{
    const apr_feed_forward f = apr_feed_forward_of(e, "mlp");
    return apr_emit_feed_forward(e, n, &f);
}

static int prenorm(apr_emitter *e, int x, const apr_attention *a)
{
    const apr_feed_forward f = apr_feed_forward_of(e, "mlp");
    return apr_emit_usual_layer(e, x, a, &f);
}

static int llama_layer(apr_emitter *e, int x)
{
    const apr_attention a = apr_attention_of(e);
    return prenorm(e, x, &a);
}

/* llama.cpp rotates adjacent rows, transformers rows half a head apart. If only part of a head is rotated, these are different rows. */
static void require_whole_rotation(apr_emitter *e)
{
    if (e->hparams->rotary_dim != e->hparams->head_dim)
        apr_emit_fail(e, APR_E_UNSUPPORTED, "rotating %lld of a head's %lld dimensions is not implemented",
                      (long long)e->hparams->rotary_dim, (long long)e->hparams->head_dim);
}

static void require_dense(apr_emitter *e)
{
    if (e->hparams->num_experts > 0)
        apr_emit_fail(e, APR_E_UNSUPPORTED, "a mixture of %lld experts under this name is not implemented",
                      (long long)e->hparams->num_experts);
}

static void emit_dense(apr_emitter *e, apr_layer_fn layer)
{
    require_dense(e);
    apr_emit_model(e, layer);
}

void apr_emit_llama(apr_emitter *e)
{
    require_whole_rotation(e);
    emit_dense(e, llama_layer);
}

/* A stated window holds for every layer. */
static int mistral_layer(apr_emitter *e, int x)
{
    apr_attention a = apr_attention_of(e);
    if (e->hparams->layer_kinds == NULL) a.window = e->hparams->sliding_window;
    return prenorm(e, x, &a);
}

void apr_emit_mistral(apr_emitter *e)
{
    require_whole_rotation(e);
    emit_dense(e, mistral_layer);
}

void apr_emit_internlm3(apr_emitter *e) { apr_emit_llama(e); }
void apr_emit_iquestcoder(apr_emitter *e) { apr_emit_llama(e); }
void apr_emit_ministral(apr_emitter *e) { apr_emit_mistral(e); }
void apr_emit_ministral3(apr_emitter *e) { emit_dense(e, mistral_layer); }
void apr_emit_qwen2(apr_emitter *e) { emit_dense(e, llama_layer); }
void apr_emit_qwen2_vl(apr_emitter *e) { emit_dense(e, llama_layer); }
void apr_emit_seed_oss(apr_emitter *e) { emit_dense(e, llama_layer); }
void apr_emit_smollm3(apr_emitter *e) { emit_dense(e, llama_layer); }
void apr_emit_granite(apr_emitter *e) { emit_dense(e, llama_layer); }

static int qwen3_layer(apr_emitter *e, int x)
{
    apr_attention a = apr_attention_of(e);
    a.qk_norm = APR_QK_NORM_HEADS;
    return prenorm(e, x, &a);
}

void apr_emit_qwen3(apr_emitter *e) { emit_dense(e, qwen3_layer); }
void apr_emit_qwen3_vl(apr_emitter *e) { emit_dense(e, qwen3_layer); }

/* The feed-forward has no gate. */
static int arcee_layer(apr_emitter *e, int x)
{
    const apr_attention a = apr_attention_of(e);
    apr_feed_forward f = apr_feed_forward_of(e, "mlp");

    f.gate = NULL;
    return apr_emit_usual_layer(e, x, &a, &f);
}

void apr_emit_arcee(apr_emitter *e)
{
    require_whole_rotation(e);
    emit_dense(e, arcee_layer);
}

static int ernie4_5_layer(apr_emitter *e, int x)
{
    apr_attention a = apr_attention_of(e);
    a.rope_mode = APR_ROPE_NEIGHBOURS;
    return prenorm(e, x, &a);
}

void apr_emit_ernie4_5(apr_emitter *e) { emit_dense(e, ernie4_5_layer); }

/* Norms of q and k come after rope. */
static int hunyuan_v1_dense_layer(apr_emitter *e, int x)
{
    apr_attention a = apr_attention_of(e);

    a.qk_norm = APR_QK_NORM_HEADS;
    a.norm_after_rope = true;
    a.q_norm = "self_attn.query_layernorm.weight";
    a.k_norm = "self_attn.key_layernorm.weight";
    return prenorm(e, x, &a);
}

void apr_emit_hunyuan_v1_dense(apr_emitter *e) { emit_dense(e, hunyuan_v1_dense_layer); }

/* q, k and v in one matrix, gate and up in another. */
static int phi3_layer(apr_emitter *e, int x)
{
    apr_attention a = apr_attention_of(e);
    apr_feed_forward f = apr_feed_forward_of(e, "mlp");

    a.fused = true;
    if (e->hparams->layer_kinds == NULL) a.window = e->hparams->sliding_window;
    f.gate = "gate_up_proj";
    f.fused = true;
    return apr_emit_usual_layer(e, x, &a, &f);
}

void apr_emit_phi3(apr_emitter *e) { emit_dense(e, phi3_layer); }

/* Attention and feed-forward in parallel after one layer norm. */
static int cohere2_layer(apr_emitter *e, int x)
{
    apr_attention a = apr_attention_of(e);

    a.rope_mode = APR_ROPE_NEIGHBOURS;
    const int n = apr_emit_norm(e, x, "input_layernorm.weight", "normed");
    const int both = apr_emit_add(e, apr_emit_attention(e, n, &a), feed_forward(e, n), "both");
    return apr_emit_layer_out(e, x, both);
}

void apr_emit_cohere2(apr_emitter *e)
{
    e->norm.kind = APR_NORM_LAYER;
    emit_dense(e, cohere2_layer);
}

static int cohere_layer(apr_emitter *e, int x)
{
    apr_attention a = apr_attention_of(e);

    a.rope_mode = APR_ROPE_NEIGHBOURS;
    a.qk_norm = e->hparams->use_qk_norm ? APR_QK_NORM_EACH_HEAD : APR_QK_NO_NORM;
    const int n = apr_emit_norm(e, x, "input_layernorm.weight", "normed");
    return apr_emit_layer_out(e, x, apr_emit_add(e, apr_emit_attention(e, n, &a), feed_forward(e, n), "both"));
}

void apr_emit_cohere(apr_emitter *e)
{
    e->norm.kind = APR_NORM_LAYER;
    emit_dense(e, cohere_layer);
}

/* No norm before attention and feed-forward, one after each. */
static int postnorm(apr_emitter *e, int x, apr_qk_norm qk_norm)
{
    apr_attention a = apr_attention_of(e);

    a.qk_norm = qk_norm;
    const int attended = apr_emit_norm(e, apr_emit_attention(e, x, &a), "post_attention_layernorm.weight", "attention.normed");
    x = apr_emit_residual(e, x, attended, "attention.out");
    return apr_emit_layer_out(e, x, apr_emit_norm(e, feed_forward(e, x), "post_feedforward_layernorm.weight", "mlp.normed"));
}

static int olmo2_layer(apr_emitter *e, int x) { return postnorm(e, x, APR_QK_NORM_ROWS); }
static int exaone4_layer(apr_emitter *e, int x) { return postnorm(e, x, APR_QK_NORM_HEADS); }

void apr_emit_olmo2(apr_emitter *e) { emit_dense(e, olmo2_layer); }
void apr_emit_olmo3(apr_emitter *e) { emit_dense(e, olmo2_layer); }
void apr_emit_exaone4(apr_emitter *e) { emit_dense(e, exaone4_layer); }

/* Norms before and after attention and feed-forward. */
static int glm4_layer(apr_emitter *e, int x)
{
    apr_attention a = apr_attention_of(e);
    apr_feed_forward f = apr_feed_forward_of(e, "mlp");

    a.rope_mode = APR_ROPE_NEIGHBOURS;
    f.gate = "gate_up_proj";
    f.fused = true;
    int y = apr_emit_attention(e, apr_emit_mixer_norm(e, x), &a);
    x = apr_emit_residual(e, x, apr_emit_norm(e, y, "post_self_attn_layernorm.weight", "o.normed"), "attention.out");
    y = apr_emit_feed_forward(e, apr_emit_feed_forward_norm(e, x), &f);
    return apr_emit_layer_out(e, x, apr_emit_norm(e, y, "post_mlp_layernorm.weight", "down.normed"));
}

void apr_emit_glm4(apr_emitter *e) { emit_dense(e, glm4_layer); }
