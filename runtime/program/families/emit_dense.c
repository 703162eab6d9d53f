/* emit_dense.c - programs of dense families, llama and its kin; and the parts that other families share. */
#include "runtime/program/emit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int apr_emit_norm(apr_emitter *e, int x, const char *weight, const char *out)
{
    const int64_t width = e->hparams->hidden_size;
    apr_op op = apr_no_op;

    op.kind = APR_OP_RMSNORM;
    op.in[0] = x;
    op.weight[0] = apr_emit_vector(e, weight, width, false);
    op.chunk = width;
    op.eps = e->hparams->rms_norm_eps > 0.0 ? (float)e->hparams->rms_norm_eps : 1e-6f;
    op.out = apr_emit_value(e, out, width);
    apr_emit_op(e, op);
    return op.out;
}

int apr_emit_head_norm(apr_emitter *e, int x, int64_t head_dim, const char *weight, const char *out)
{
    if (e->status != APR_OK) return -1;
    apr_op op = apr_no_op;
    op.kind = APR_OP_RMSNORM;
    op.in[0] = x;
    op.weight[0] = apr_emit_vector(e, weight, head_dim, false);
    op.chunk = head_dim;
    op.eps = e->hparams->rms_norm_eps > 0.0 ? (float)e->hparams->rms_norm_eps : 1e-6f;
    op.out = apr_emit_value(e, out, e->status == APR_OK ? e->program->values[x].width : 0);
    apr_emit_op(e, op);
    return op.out;
}

int apr_emit_linear(apr_emitter *e, int x, int weight, int bias, const char *out)
{
    if (e->status != APR_OK) return -1;
    apr_op op = apr_no_op;
    op.kind = APR_OP_LINEAR;
    op.in[0] = x;
    op.weight[0] = weight;
    op.weight[1] = bias;
    op.out = apr_emit_value(e, out, e->program->weights[weight].dims[0]);
    apr_emit_op(e, op);
    return op.out;
}

int apr_emit_pair(apr_emitter *e, apr_op_kind kind, int a, int b, const char *out)
{
    if (e->status != APR_OK) return -1;
    apr_op op = apr_no_op;
    op.kind = kind;
    op.in[0] = a;
    op.in[1] = b;
    op.out = apr_emit_value(e, out, e->program->values[a].width);
    apr_emit_op(e, op);
    return op.out;
}

int apr_emit_add(apr_emitter *e, int a, int b, const char *out) { return apr_emit_pair(e, APR_OP_ADD, a, b, out); }
int apr_emit_glu(apr_emitter *e, int gate, int up, const char *out) { return apr_emit_pair(e, APR_OP_GLU, gate, up, out); }

apr_layer_kind apr_emit_layer_kind(const apr_emitter *e)
{
    return e->hparams->layer_kinds != NULL && e->layer >= 0 ? (apr_layer_kind)e->hparams->layer_kinds[e->layer] : APR_LAYER_FULL;
}

apr_stream apr_emit_start(apr_emitter *e)
{
    const apr_hparams *const h = e->hparams;
    apr_op embed = apr_no_op, angles = apr_no_op;
    apr_stream s;

    embed.kind = APR_OP_EMBED;
    embed.weight[0] = apr_emit_weight(e, "model.embed_tokens.weight", APR_ROLE_EMBEDDING, h->vocab_size, h->hidden_size);
    s.x = embed.out = apr_emit_value(e, "embeddings", h->hidden_size);
    apr_emit_op(e, embed);
    apr_emit_tap(e, s.x);

    /* llama.cpp writes llama 3's scaling as divisors of the frequencies; who states the scaling itself needs them not */
    const int divisors = h->rope.kind == APR_ROPE_PLAIN ? apr_emit_vector(e, "rope_freqs.weight", h->rotary_dim / 2, true) : -1;
    angles.kind = APR_OP_ANGLES;
    angles.rope = apr_emit_rope(e, divisors);
    s.angles = angles.out = apr_emit_value(e, "angles", h->rotary_dim);
    apr_emit_op(e, angles);
    return s;
}

static int emit_rope(apr_emitter *e, int x, int angles, int64_t n_heads, const char *out)
{
    apr_op op = apr_no_op;
    op.kind = APR_OP_ROPE;
    op.in[0] = x;
    op.in[1] = angles;
    op.n_heads = n_heads;
    op.head_dim = e->hparams->head_dim;
    op.rope = 0;
    op.out = apr_emit_value(e, out, n_heads * e->hparams->head_dim);
    apr_emit_op(e, op);
    return op.out;
}

/* q, k or v of the normed hidden state n. */
static int emit_projection(apr_emitter *e, int n, const char *which, int64_t width, bool require_bias)
{
    char weight[64], bias[64];

    snprintf(weight, sizeof weight, "self_attn.%s_proj.weight", which);
    snprintf(bias, sizeof bias, "self_attn.%s_proj.bias", which);
    const int weight_slot = apr_emit_weight(e, weight, APR_ROLE_ATTENTION, width, e->hparams->hidden_size);
    const int bias_slot = apr_emit_vector(e, bias, width, !require_bias);
    return apr_emit_linear(e, n, weight_slot, bias_slot, which);
}

/* Stores k and v, attends with q. */
static int emit_attend(apr_emitter *e, int q, int k, int v, bool sinks)
{
    const apr_hparams *const h = e->hparams;
    const bool slides = apr_emit_layer_kind(e) == APR_LAYER_SLIDING && h->sliding_window > 0;
    apr_op store = apr_no_op, attend = apr_no_op;

    store.kind = APR_OP_KV_STORE;
    store.in[0] = k;
    store.in[1] = v;
    store.n_kv_heads = h->num_kv_heads;
    store.head_dim = h->head_dim;
    store.state = apr_emit_state(e, (apr_state){.kind = slides ? APR_STATE_KV_WINDOW : APR_STATE_KV,
                                                .n_heads = h->num_kv_heads,
                                                .head_dim = h->head_dim,
                                                .window = slides ? h->sliding_window : 0});
    apr_emit_op(e, store);

    attend.kind = APR_OP_ATTEND;
    attend.in[0] = q;
    attend.state = store.state;
    attend.n_heads = h->num_heads;
    attend.n_kv_heads = h->num_kv_heads;
    attend.head_dim = h->head_dim;
    attend.window = slides ? h->sliding_window : 0;
    attend.scale = (float)(1.0 / sqrt((double)h->head_dim));
    if (sinks) attend.weight[0] = apr_emit_vector(e, "self_attn.sinks", h->num_heads, false);
    attend.out = apr_emit_value(e, "attended", h->num_heads * h->head_dim);
    apr_emit_op(e, attend);
    return attend.out;
}

/* The first or second half of every head of a projection that is twice as wide. */
static int emit_half(apr_emitter *e, int x, int which, const char *out)
{
    apr_op op = apr_no_op;
    op.kind = APR_OP_HALF;
    op.in[0] = x;
    op.chunk = which;
    op.n_heads = e->hparams->num_heads;
    op.head_dim = e->hparams->head_dim;
    op.out = apr_emit_value(e, out, op.n_heads * op.head_dim);
    apr_emit_op(e, op);
    return op.out;
}

/* Must q, k and v have biases, and o? Where they need not, those that are there are added all the same. */
static bool requires_bias(const apr_emitter *e, bool of_output)
{
    const apr_bias_rule rule = e->family->config->attention_bias;
    if (e->family->program.always_biased) return true;
    return rule == APR_BIAS_QKV_ALWAYS ? !of_output : rule == APR_BIAS_WHEN_STATED && e->hparams->attention_bias;
}

void apr_emit_attention(apr_emitter *e, apr_stream *s)
{
    const apr_hparams *const h = e->hparams;
    const apr_family_program *const style = &e->family->program;
    const bool biased = requires_bias(e, false);
    const int64_t q_width = h->num_heads * h->head_dim, kv_width = h->num_kv_heads * h->head_dim;
    const int n = apr_emit_norm(e, s->x, "input_layernorm.weight", "attention.normed");
    int q = emit_projection(e, n, "q", style->gated ? 2 * q_width : q_width, biased);
    int k = emit_projection(e, n, "k", kv_width, biased);
    const int v = emit_projection(e, n, "v", kv_width, biased);
    const int gate = style->gated ? emit_half(e, q, 1, "q.gate") : -1;

    if (style->gated) q = emit_half(e, q, 0, "q.query");
    if (style->qk_norm) {
        q = apr_emit_head_norm(e, q, h->head_dim, "self_attn.q_norm.weight", "q.normed");
        k = apr_emit_head_norm(e, k, h->head_dim, "self_attn.k_norm.weight", "k.normed");
    }
    q = emit_rope(e, q, s->angles, h->num_heads, "q.rotated");
    k = emit_rope(e, k, s->angles, h->num_kv_heads, "k.rotated");
    int attended = emit_attend(e, q, k, v, style->sinks);
    if (style->gated) attended = apr_emit_pair(e, APR_OP_GATE, attended, gate, "attended.gated");
    const int weight = apr_emit_weight(e, "self_attn.o_proj.weight", APR_ROLE_ATTENTION, h->hidden_size, q_width);
    const int bias = apr_emit_vector(e, "self_attn.o_proj.bias", h->hidden_size, !requires_bias(e, true));
    const int o = apr_emit_linear(e, attended, weight, bias, "o");
    s->x = apr_emit_add(e, s->x, o, "attention.out");
}

/* One matrix of the feed-forward, with its bias where the family has one. */
static int emit_mlp_linear(apr_emitter *e, int n, const char *prefix, const char *which, int64_t rows, int64_t columns,
                           apr_bias_style biases)
{
    char name[96];

    snprintf(name, sizeof name, "%s.%s_proj.weight", prefix, which);
    const int weight = apr_emit_weight(e, name, APR_ROLE_FEED_FORWARD, rows, columns);
    snprintf(name, sizeof name, "%s.%s_proj.bias", prefix, which);
    const int bias = biases == APR_NO_BIAS ? -1 : apr_emit_vector(e, name, rows, biases == APR_MAY_HAVE_BIAS);
    return apr_emit_linear(e, n, weight, bias, which);
}

int apr_emit_mlp_of(apr_emitter *e, int n, const char *prefix, int64_t width, apr_bias_style biases)
{
    const int64_t hidden = e->hparams->hidden_size;

    if (width <= 0) apr_emit_fail(e, APR_E_DAMAGED, "the model does not say its intermediate_size");
    const int gate = emit_mlp_linear(e, n, prefix, "gate", width, hidden, biases);
    const int up = emit_mlp_linear(e, n, prefix, "up", width, hidden, biases);
    return emit_mlp_linear(e, apr_emit_glu(e, gate, up, "gated"), prefix, "down", hidden, width, biases);
}

void apr_emit_mlp(apr_emitter *e, apr_stream *s, int64_t width, apr_bias_style biases)
{
    const int n = apr_emit_norm(e, s->x, "post_attention_layernorm.weight", "mlp.normed");
    const int down = apr_emit_mlp_of(e, n, "mlp", width, biases);
    s->x = apr_emit_add(e, s->x, down, "out");
    apr_emit_tap(e, s->x);
}

void apr_emit_end(apr_emitter *e, apr_stream *s)
{
    const apr_hparams *const h = e->hparams;

    e->layer = -1;
    s->x = apr_emit_norm(e, s->x, "model.norm.weight", "normed");
    if (e->status != APR_OK) return;
    /* the last row of the hidden states is the normed one: it takes the place of the last layer's own output */
    for (size_t i = 0; i < e->program->n_values; i++)
        if (e->program->values[i].tap == (int)h->num_layers) e->program->values[i].tap = -1;
    e->program->values[s->x].tap = (int)h->num_layers;
    /* a tied head is the embedding table, stored once: its slot is the first */
    const int head = h->tie_word_embeddings ? 0 : apr_emit_weight(e, "lm_head.weight", APR_ROLE_HEAD, h->vocab_size, h->hidden_size);
    const int logits = apr_emit_linear(e, s->x, head, -1, "logits");
    if (logits >= 0) e->program->values[logits].is_logits = true;
}

/* llama.cpp turns neighbours, transformers rows half a head apart: in a part of the head these are not the same rows. */
static void require_whole_rotation(apr_emitter *e)
{
    if (e->hparams->rotary_dim != e->hparams->head_dim)
        apr_emit_fail(e, APR_E_UNSUPPORTED, "rotating %lld of a head's %lld dimensions is not done here", (long long)e->hparams->rotary_dim,
                      (long long)e->hparams->head_dim);
}

static apr_bias_style mlp_biases(const apr_emitter *e)
{
    if (e->family->config->mlp_bias != APR_BIAS_WHEN_STATED) return APR_NO_BIAS;
    return e->hparams->mlp_bias ? APR_MUST_HAVE_BIAS : APR_MAY_HAVE_BIAS;
}

/* A stated window holds for every layer, where the class has no other rule and config.json no layer_types. */
static void slide_everywhere(apr_emitter *e, apr_hparams *hparams)
{
    if (e->family->config->window != APR_WINDOW_ALL || hparams->sliding_window <= 0 || hparams->layer_kinds != NULL) return;
    uint8_t *const kinds = apr_arena_alloc(&e->program->arena, (size_t)hparams->num_layers);
    if (kinds == NULL) {
        e->status = apr_no_memory(e->err, "the program of the model");
        return;
    }
    memset(kinds, APR_LAYER_SLIDING, (size_t)hparams->num_layers);
    hparams->layer_kinds = kinds;
}

void apr_emit_dense(apr_emitter *e)
{
    const apr_hparams *const stated = e->hparams;
    apr_hparams hparams = *stated;

    slide_everywhere(e, &hparams);
    e->hparams = &hparams;
    if (e->family->gguf.rotates_pairs) require_whole_rotation(e);
    if (hparams.num_experts > 0)
        apr_emit_fail(e, APR_E_UNSUPPORTED, "a mixture of %lld experts under this name is not done here", (long long)hparams.num_experts);
    apr_stream s = apr_emit_start(e);
    for (e->layer = 0; e->layer < hparams.num_layers && e->status == APR_OK; e->layer++) {
        apr_emit_attention(e, &s);
        apr_emit_mlp(e, &s, hparams.intermediate_size, mlp_biases(e));
    }
    apr_emit_end(e, &s);
    e->hparams = stated;
}
