/* emit_hybrid.c - programs of qwen3_5 and qwen3_5_moe: gated delta-net layers between layers of gated attention. They can
 * be planned; no backend has the delta rule. */
#include "runtime/program/emit.h"

/* in_proj_NAME of the linear attention. */
static int emit_in_proj(apr_emitter *e, int n, const char *name, int64_t width, const char *out)
{
    return apr_emit_linear(e, n, apr_emit_weight(e, name, APR_ROLE_ATTENTION, width, e->hparams->hidden_size), -1, out);
}

/* q, k and v mixed over the last few tokens of each channel. */
static int emit_conv(apr_emitter *e, int qkv, int64_t width)
{
    const int64_t n_taps = e->hparams->linear_conv_kernel_dim;
    apr_op op = apr_no_op;

    op.kind = APR_OP_CONV;
    op.in[0] = qkv;
    op.weight[0] = apr_emit_stacked(e, "linear_attn.conv1d.weight", APR_ROLE_ATTENTION, width, 1, n_taps);
    op.state = apr_emit_state(e, (apr_state){.kind = APR_STATE_CONV, .n_floats = (n_taps - 1) * width});
    op.out = apr_emit_value(e, "qkv.mixed", width);
    apr_emit_op(e, op);
    return op.out;
}

static int emit_delta_rule(apr_emitter *e, int qkv, int decay, int rate)
{
    const apr_hparams *const h = e->hparams;
    const int64_t n_floats = h->linear_num_value_heads * h->linear_key_head_dim * h->linear_value_head_dim;
    apr_op op = apr_no_op;

    op.kind = APR_OP_DELTA_RULE;
    op.in[0] = qkv;
    op.in[1] = decay;
    op.in[2] = rate;
    op.weight[0] = apr_emit_vector(e, "linear_attn.A_log", h->linear_num_value_heads, false);
    op.weight[1] = apr_emit_vector(e, "linear_attn.dt_bias", h->linear_num_value_heads, false);
    op.state = apr_emit_state(e, (apr_state){.kind = APR_STATE_DELTA, .n_floats = n_floats});
    op.n_heads = h->linear_num_value_heads;
    op.n_kv_heads = h->linear_num_key_heads;
    op.head_dim = h->linear_value_head_dim;
    op.out = apr_emit_value(e, "delta", h->linear_num_value_heads * h->linear_value_head_dim);
    apr_emit_op(e, op);
    return op.out;
}

static void emit_linear_attention(apr_emitter *e, apr_stream *s)
{
    const apr_hparams *const h = e->hparams;
    const int64_t k_width = h->linear_num_key_heads * h->linear_key_head_dim,
                  v_width = h->linear_num_value_heads * h->linear_value_head_dim;
    const int64_t qkv_width = 2 * k_width + v_width;

    if (k_width <= 0 || v_width <= 0 || h->linear_conv_kernel_dim <= 0)
        apr_emit_fail(e, APR_E_DAMAGED, "the model does not say the sizes of its linear attention");
    const int n = apr_emit_norm(e, s->x, "input_layernorm.weight", "attention.normed");
    const int qkv = emit_conv(e, emit_in_proj(e, n, "linear_attn.in_proj_qkv.weight", qkv_width, "qkv"), qkv_width);
    const int z = emit_in_proj(e, n, "linear_attn.in_proj_z.weight", v_width, "z");
    const int rate = emit_in_proj(e, n, "linear_attn.in_proj_b.weight", h->linear_num_value_heads, "b");
    const int decay = emit_in_proj(e, n, "linear_attn.in_proj_a.weight", h->linear_num_value_heads, "a");
    const int delta = emit_delta_rule(e, qkv, decay, rate);
    const int normed = apr_emit_head_norm(e, delta, h->linear_value_head_dim, "linear_attn.norm.weight", "delta.normed");
    const int gated = apr_emit_glu(e, z, normed, "delta.gated");
    const int weight = apr_emit_weight(e, "linear_attn.out_proj.weight", APR_ROLE_ATTENTION, h->hidden_size, v_width);
    s->x = apr_emit_add(e, s->x, apr_emit_linear(e, gated, weight, -1, "o"), "attention.out");
}

/* Routed experts, and one that every token visits, scaled by a gate of its own. */
static void emit_shared_mixture(apr_emitter *e, apr_stream *s)
{
    const apr_hparams *const h = e->hparams;
    const int n = apr_emit_norm(e, s->x, "post_attention_layernorm.weight", "mlp.normed");
    int sum = apr_emit_experts(e, n);

    if (h->shared_expert_intermediate_size > 0) {
        const int shared = apr_emit_mlp_of(e, n, "mlp.shared_expert", h->shared_expert_intermediate_size, APR_NO_BIAS);
        const int gate = apr_emit_linear(
            e, n, apr_emit_weight(e, "mlp.shared_expert_gate.weight", APR_ROLE_FEED_FORWARD, 1, h->hidden_size), -1, "shared.gate");
        sum = apr_emit_add(e, sum, apr_emit_pair(e, APR_OP_GATE, shared, gate, "shared"), "mlp.out");
    }
    s->x = apr_emit_add(e, s->x, sum, "out");
    apr_emit_tap(e, s->x);
}

void apr_emit_hybrid(apr_emitter *e)
{
    apr_stream s = apr_emit_start(e);
    for (e->layer = 0; e->layer < e->hparams->num_layers && e->status == APR_OK; e->layer++) {
        if (apr_emit_layer_kind(e) == APR_LAYER_LINEAR) emit_linear_attention(e, &s);
        else apr_emit_attention(e, &s);
        if (e->family->program.router != NULL) emit_shared_mixture(e, &s);
        else apr_emit_mlp(e, &s, e->hparams->intermediate_size, APR_NO_BIAS);
    }
    apr_emit_end(e, &s);
}
