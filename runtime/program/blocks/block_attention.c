/* block_attention.c - attention of queries to cached keys and values, with the variants of the families. */
#include "runtime/program/blocks.h"

#include <math.h>
#include <stdio.h>

/* Whether q, k and v must have biases, or o. Biases that exist but need not are added as well. */
static apr_bias_style bias_of(const apr_emitter *e, bool of_output)
{
    const apr_bias_rule rule = e->family->config != NULL ? e->family->config->attention_bias : APR_BIAS_NEVER;
    const bool stated = e->hparams->attention_bias && (rule == APR_BIAS_WHEN_STATED || (rule == APR_BIAS_QKV_WHEN_STATED && !of_output));
    const bool must =
        stated || rule == APR_BIAS_ALWAYS || (rule == APR_BIAS_QKV_ALWAYS && !of_output) || (of_output && e->hparams->attention_out_bias);
    return must ? APR_MUST_HAVE_BIAS : APR_MAY_HAVE_BIAS;
}

static double scale_of(const apr_hparams *h, int64_t head_dim)
{
    if (h->attention_multiplier > 0.0) return h->attention_multiplier;
    return 1.0 / sqrt(h->query_pre_attn_scalar > 0.0 ? h->query_pre_attn_scalar : (double)head_dim);
}

static apr_rotary rotary_of(const apr_hparams *h, int layer, bool slides)
{
    if (!apr_layer_has_rope(h, layer)) return APR_ROTARY_NONE;
    return slides && h->rope_theta_local > 0.0 ? APR_ROTARY_LOCAL : APR_ROTARY_GLOBAL;
}

apr_attention apr_attention_of(const apr_emitter *e)
{
    const apr_hparams *const h = e->hparams;
    const apr_layer_kind kind = apr_layer_kind_of(h, e->layer);
    const bool slides = kind == APR_LAYER_SLIDING;

    return (apr_attention){.prefix = "self_attn",
                           .output = "o_proj",
                           .q_norm = "self_attn.q_norm.weight",
                           .k_norm = "self_attn.k_norm.weight",
                           .bias = bias_of(e, false),
                           .output_bias = bias_of(e, true),
                           .rotary = rotary_of(h, e->layer, slides),
                           .n_heads = h->num_heads,
                           .n_kv_heads = h->num_kv_heads,
                           .head_dim = h->head_dim,
                           .window = slides ? h->sliding_window : 0,
                           .chunk = kind == APR_LAYER_CHUNKED ? h->attention_chunk_size : 0,
                           .scale = scale_of(h, h->head_dim),
                           .softcap = h->attn_logit_softcapping,
                           .warmth = h->attn_temperature,
                           .period = h->attn_temperature_length};
}

int apr_emit_projection(apr_emitter *e, int n, const apr_attention *a, const char *name, int64_t rows, apr_bias_style bias)
{
    return apr_emit_linear_of(e, n, a->prefix, name, APR_ROLE_ATTENTION, rows, bias);
}

/* Number of visible positions, including the token's own; positions before its chunk are not visible. 0: all. */
static int64_t visible(const apr_attention *a)
{
    if (a->window == 0 || a->chunk == 0) return a->window + a->chunk;
    return a->window < a->chunk ? a->window : a->chunk;
}

int apr_emit_kv_state(apr_emitter *e, int k, int v, const apr_attention *a)
{
    const int64_t value_width = v >= 0 ? apr_emit_width(e, v) : a->n_kv_heads * a->value_dim;
    const apr_layer_kind kind = apr_layer_kind_of(e->hparams, e->layer);
    apr_op op = apr_no_op;

    if (kind != APR_LAYER_FULL && kind != APR_LAYER_SLIDING && kind != APR_LAYER_CHUNKED) apr_emit_unknown_layer(e);
    if (e->status != APR_OK) return -1;
    const apr_state state = {.kind = visible(a) > 0 ? APR_STATE_KV_WINDOW : APR_STATE_KV,
                             .n_heads = a->n_kv_heads,
                             .key_dim = apr_emit_width(e, k) / a->n_kv_heads,
                             .value_dim = value_width / a->n_kv_heads,
                             .values_in_keys = v < 0,
                             .window = visible(a)};
    op.kind = APR_OP_KV_STORE;
    op.in[0] = k;
    op.in[1] = v;
    op.state = apr_emit_state(e, state);
    op.args.kv_store = (apr_kv_store_args){.n_kv_heads = state.n_heads, .key_dim = state.key_dim, .value_dim = state.value_dim};
    apr_emit_op(e, op);
    return op.state;
}

int apr_emit_attend(apr_emitter *e, int q, int state, const apr_attention *a)
{
    apr_op op = apr_no_op;
    char sinks[96];

    if (e->status != APR_OK) return -1;
    const apr_state *const s = &e->program->states[state];
    op.kind = APR_OP_ATTEND;
    op.in[0] = q;
    if (a->chosen > 0) op.in[1] = a->chosen;
    op.state = state;
    op.args.attend = (apr_attend_args){.n_heads = a->n_heads,
                                       .n_kv_heads = s->n_heads,
                                       .key_dim = s->key_dim,
                                       .value_dim = s->value_dim,
                                       .window = a->window,
                                       .chunk = a->chunk,
                                       .scale = (float)a->scale,
                                       .softcap = (float)a->softcap,
                                       .n_chosen = a->chosen > 0 ? e->hparams->index_topk : 0};
    snprintf(sinks, sizeof sinks, "%s.sinks", a->prefix);
    if (a->sinks) op.weight[0] = apr_emit_vector(e, sinks, a->n_heads, false);
    op.out = apr_emit_value(e, "attended", a->n_heads * op.args.attend.value_dim);
    apr_emit_op(e, op);
    return op.out;
}

static int emit_qk_norm(apr_emitter *e, int x, const apr_attention *a, const char *weight, const char *out)
{
    apr_norm_facts facts = e->norm;
    facts.weight = weight;
    facts.chunk = a->qk_norm == APR_QK_NORM_ROWS ? 0 : a->head_dim;
    facts.row_weight = a->qk_norm == APR_QK_NORM_EACH_HEAD;
    return a->qk_norm == APR_QK_NO_NORM ? x : apr_emit_norm_of(e, x, &facts, out);
}

/* Norm and rope of queries or keys, in the family's order. */
static int emit_positioned(apr_emitter *e, int x, const apr_attention *a, const char *norm, const char *normed, const char *rotated)
{
    if (!a->norm_after_rope) x = emit_qk_norm(e, x, a, norm, normed);
    x = apr_emit_rope(e, x, a->rotary, a->rope_mode, a->head_dim, 0, rotated);
    return a->norm_after_rope ? emit_qk_norm(e, x, a, norm, normed) : x;
}

typedef struct qkv {
    int q, k, v, gate; /* gate -1: none */
} qkv;

static qkv emit_qkv(apr_emitter *e, int n, const apr_attention *a)
{
    const int64_t q_width = a->n_heads * a->head_dim, kv_width = a->n_kv_heads * a->head_dim;
    qkv x = {.gate = -1};

    if (a->fused) {
        const int all = apr_emit_projection(e, n, a, "qkv_proj", q_width + 2 * kv_width, a->bias);
        x.q = apr_emit_slice(e, all, 1, 0, q_width, "q");
        x.k = apr_emit_slice(e, all, 1, q_width, kv_width, "k");
        x.v = apr_emit_slice(e, all, 1, q_width + kv_width, kv_width, "v");
        return x;
    }
    x.q = apr_emit_projection(e, n, a, "q_proj", a->gated ? 2 * q_width : q_width, a->bias);
    x.k = apr_emit_projection(e, n, a, "k_proj", kv_width, a->bias);
    x.v = apr_emit_projection(e, n, a, "v_proj", kv_width, a->bias);
    if (a->gate != NULL) x.gate = apr_emit_projection(e, n, a, a->gate, q_width, APR_NO_BIAS);
    if (!a->gated) return x;
    x.gate = apr_emit_slice(e, x.q, a->n_heads, a->head_dim, a->head_dim, "q.gate");
    x.q = apr_emit_slice(e, x.q, a->n_heads, 0, a->head_dim, "q.query");
    return x;
}

int apr_emit_attention(apr_emitter *e, int n, const apr_attention *a)
{
    qkv x = emit_qkv(e, n, a);

    if (a->key_scale > 0.0) x.k = apr_emit_scale(e, x.k, a->key_scale, "k.scaled");
    x.q = emit_positioned(e, x.q, a, a->q_norm, "q.normed", "q.rotated");
    x.k = emit_positioned(e, x.k, a, a->k_norm, "k.normed", "k.rotated");
    x.q = apr_emit_query_scale(e, x.q, a->warmth, a->shift, a->period, "q.warmed");
    int attended = apr_emit_attend(e, x.q, apr_emit_kv_state(e, x.k, x.v, a), a);
    if (x.gate >= 0) attended = apr_emit_gate(e, attended, x.gate, APR_ACT_SIGMOID, "attended.gated");
    return apr_emit_projection(e, attended, a, a->output, e->hparams->hidden_size, a->output_bias);
}
