/* program_gemma.c - gemma; gemma2 and gemma3: norms before and after each block, embeddings times sqrt(hidden), sliding and full layers with
 * separate rotary tables. gemma4 also has layers of different widths, shared keys and values, per-layer inputs, and experts. */
#include "runtime/program/blocks.h"
#include "runtime/program/families.h"

#include <math.h>

static int embeddings(apr_emitter *e)
{
    return apr_emit_scale(e, apr_emit_embeddings(e), sqrt((double)e->hparams->hidden_size), "embeddings.scaled");
}

static int sandwich(apr_emitter *e, int x, const apr_attention *a)
{
    const apr_feed_forward f = apr_feed_forward_of(e, "mlp");
    int y = apr_emit_attention(e, apr_emit_norm(e, x, "input_layernorm.weight", "attention.normed"), a);

    x = apr_emit_add(e, x, apr_emit_norm(e, y, "post_attention_layernorm.weight", "o.normed"), "attention.out");
    y = apr_emit_feed_forward(e, apr_emit_norm(e, x, "pre_feedforward_layernorm.weight", "mlp.normed"), &f);
    return apr_emit_layer_out(e, x, apr_emit_norm(e, y, "post_feedforward_layernorm.weight", "down.normed"));
}

static int gemma2_layer(apr_emitter *e, int x)
{
    const apr_attention a = apr_attention_of(e);
    return sandwich(e, x, &a);
}

static int gemma3_layer(apr_emitter *e, int x)
{
    apr_attention a = apr_attention_of(e);
    a.qk_norm = APR_QK_NORM_HEADS;
    return sandwich(e, x, &a);
}

static void emit_gemma(apr_emitter *e, apr_layer_fn layer)
{
    apr_emit_head(e, apr_emit_layers(e, embeddings(e), layer), "model.norm.weight");
}

/* Norms before attention and feed-forward only. */
static int gemma_layer(apr_emitter *e, int x)
{
    const apr_attention a = apr_attention_of(e);
    const apr_feed_forward f = apr_feed_forward_of(e, "mlp");

    x = apr_emit_add(e, x, apr_emit_attention(e, apr_emit_norm(e, x, "input_layernorm.weight", "attention.normed"), &a), "attention.out");
    return apr_emit_layer_out(e, x, apr_emit_feed_forward(e, apr_emit_norm(e, x, "post_attention_layernorm.weight", "mlp.normed"), &f));
}

void apr_emit_gemma(apr_emitter *e) { emit_gemma(e, gemma_layer); }
void apr_emit_gemma2(apr_emitter *e) { emit_gemma(e, gemma2_layer); }
void apr_emit_gemma3(apr_emitter *e) { emit_gemma(e, gemma3_layer); }

/* --- gemma4 --- */

/* This layer and those after it have no keys and values of their own. */
static int64_t first_shared(const apr_hparams *h) { return h->num_layers - h->num_kv_shared_layers; }

static apr_attention attention_of(apr_emitter *e)
{
    const apr_hparams *const h = e->hparams;
    apr_attention a = apr_attention_of(e);

    a.qk_norm = APR_QK_NORM_HEADS;
    a.scale = 1.0;
    if (a.window > 0) return a;
    if (h->global_head_dim > 0) a.head_dim = h->global_head_dim;
    if (h->num_global_kv_heads > 0) a.n_kv_heads = h->num_global_kv_heads;
    return a;
}

static int head_norm(apr_emitter *e, int x, const apr_attention *a, const char *weight, const char *out)
{
    apr_norm_facts facts = e->norm;
    facts.weight = weight;
    facts.chunk = a->head_dim;
    return apr_emit_norm_of(e, x, &facts, out);
}

/* Keys have a norm and rope. Values have a norm without weights; without v_proj they use k_proj's output. */
static int own_state(apr_emitter *e, int n, const apr_attention *a)
{
    const int64_t width = a->n_kv_heads * a->head_dim;
    const bool same = e->hparams->attention_k_eq_v && a->window == 0;
    int k = apr_emit_projection(e, n, a, "k_proj", width, a->bias);
    const int v = same ? k : apr_emit_projection(e, n, a, "v_proj", width, a->bias);
    const int values = head_norm(e, v, a, NULL, "v.normed");

    k = apr_emit_rope(e, head_norm(e, k, a, a->k_norm, "k.normed"), a->rotary, a->rope_mode, a->head_dim, 0, "k.rotated");
    return apr_emit_kv_state(e, k, values, a);
}

/* The state of the last layer of the same kind that has its own keys and values. */
static int shared_state(apr_emitter *e)
{
    const apr_hparams *const h = e->hparams;
    const apr_layer_kind kind = apr_layer_kind_of(h, e->layer);
    int64_t source = first_shared(h) - 1;

    while (source >= 0 && apr_layer_kind_of(h, source) != kind) source--;
    for (size_t i = 0; e->status == APR_OK && i < e->program->n_states; i++)
        if (e->program->states[i].layer == source) return (int)i;
    apr_emit_fail(e, APR_E_DAMAGED, "layer %d has no keys and values, and no earlier layer of its kind has any", e->layer);
    return -1;
}

static int gemma4_attention(apr_emitter *e, int n)
{
    const apr_attention a = attention_of(e);
    int q = apr_emit_projection(e, n, &a, "q_proj", a.n_heads * a.head_dim, a.bias);

    q = apr_emit_rope(e, head_norm(e, q, &a, a.q_norm, "q.normed"), a.rotary, a.rope_mode, a.head_dim, 0, "q.rotated");
    const int state = e->layer < first_shared(e->hparams) ? own_state(e, n, &a) : shared_state(e);
    return apr_emit_projection(e, apr_emit_attend(e, q, state, &a), &a, a.output, e->hparams->hidden_size, a.output_bias);
}

/* The feed-forward, and in parallel the experts on the same residual. The router has its own norm. */
static int gemma4_feed_forward(apr_emitter *e, int r)
{
    const apr_hparams *const h = e->hparams;
    apr_feed_forward f = apr_feed_forward_of(e, "mlp");
    apr_experts x = apr_experts_of(e);

    if (h->use_double_wide_mlp && e->layer >= first_shared(h)) f.width *= 2;
    const int dense = apr_emit_feed_forward(e, apr_emit_norm(e, r, "pre_feedforward_layernorm.weight", "mlp.normed"), &f);
    if (!h->enable_moe_block) return dense;
    x.router = "router.proj";
    x.expert_scale = "router.per_expert_scale";
    x.prefix = "experts";
    x.route.normalise = true;
    const int scored =
        apr_emit_scale(e, apr_emit_norm(e, r, "router.scale", "router.normed"), 1.0 / sqrt((double)h->hidden_size), "router.in");
    const int routed = apr_emit_experts(e, apr_emit_norm(e, r, "pre_feedforward_layernorm_2.weight", "experts.normed"), scored, &x);
    return apr_emit_add(e, apr_emit_norm(e, dense, "post_feedforward_layernorm_1.weight", "dense.out"),
                        apr_emit_norm(e, routed, "post_feedforward_layernorm_2.weight", "experts.out"), "both");
}

/* The inputs of all layers: rows looked up by token plus a projection of the embedding, times sqrt(1/2). */
static int layer_inputs(apr_emitter *e, int x)
{
    const apr_hparams *const h = e->hparams;
    const int64_t each = h->per_layer_input_size, all = h->num_layers * each;
    apr_norm_facts norm = e->norm;

    norm.weight = "model.per_layer_projection_norm.weight";
    norm.chunk = each;
    /* This is the largest tensor of the small models, but its rows are less than a thousandth of a token's reads. */
    const int rows = apr_emit_embed_from_host(e, "model.embed_tokens_per_layer.weight", all, "inputs.rows");
    int made = apr_emit_linear(e, x, "model.per_layer_model_projection", APR_ROLE_EMBEDDING, all, APR_NO_BIAS, "inputs.made");
    made = apr_emit_norm_of(e, apr_emit_scale(e, made, 1.0 / sqrt((double)h->hidden_size), "inputs.scaled"), &norm, "inputs.normed");
    const int both = apr_emit_add(e, apr_emit_scale(e, rows, sqrt((double)each), "rows.scaled"), made, "inputs.both");
    return apr_emit_scale(e, both, sqrt(0.5), "inputs");
}

/* x + norm(proj(gelu(gate x) * input of this layer)) */
static int with_layer_input(apr_emitter *e, int x, int inputs)
{
    const apr_hparams *const h = e->hparams;
    const int64_t each = h->per_layer_input_size;
    const apr_glu_shape gelu = {.activation = APR_ACT_GELU_TANH};

    const int gate = apr_emit_linear(e, x, "per_layer_input_gate", APR_ROLE_FEED_FORWARD, each, APR_NO_BIAS, "input.gate");
    const int own = apr_emit_slice(e, inputs, 1, e->layer * each, each, "input");
    const int made = apr_emit_linear(e, apr_emit_glu(e, gate, own, gelu, "input.gated"), "per_layer_projection", APR_ROLE_FEED_FORWARD,
                                     h->hidden_size, APR_NO_BIAS, "input.made");
    return apr_emit_add(e, x, apr_emit_norm(e, made, "post_per_layer_input_norm.weight", "input.normed"), "input.out");
}

static int gemma4_layer(apr_emitter *e, int x, int inputs)
{
    const int y = gemma4_attention(e, apr_emit_norm(e, x, "input_layernorm.weight", "attention.normed"));

    x = apr_emit_add(e, x, apr_emit_norm(e, y, "post_attention_layernorm.weight", "o.normed"), "attention.out");
    x = apr_emit_add(e, x, apr_emit_norm(e, gemma4_feed_forward(e, x), "post_feedforward_layernorm.weight", "down.normed"), "mlp.out");
    if (inputs >= 0) x = with_layer_input(e, x, inputs);
    x = apr_emit_mul_vector(e, x, "layer_scalar", 1, "out");
    apr_emit_tap(e, x);
    return x;
}

void apr_emit_gemma4(apr_emitter *e)
{
    int x = embeddings(e);
    const int inputs = e->hparams->per_layer_input_size > 0 ? layer_inputs(e, x) : -1;

    apr_emit_tap(e, x);
    for (e->layer = 0; e->layer < e->hparams->num_layers && e->status == APR_OK; e->layer++) x = gemma4_layer(e, x, inputs);
    e->layer = -1;
    apr_emit_head(e, x, "model.norm.weight");
}
