/* program_gemma.c - gemma; gemma2 and gemma3: norms before and after each block, embeddings times sqrt(hidden), sliding and full layers with
 * separate rotary tables. gemma4 also has layers of different widths, shared keys and values, per-layer inputs, and experts. gemma3n has
 * shared keys and values, per-layer inputs, and several streams of hidden states, of which each layer computes one. */
#include "runtime/program/blocks.h"
#include "runtime/program/families.h"

#include <math.h>
#include <stdio.h>

static int embeddings(apr_emitter *e)
{
    return apr_emit_scale(e, apr_emit_embeddings(e), sqrt((double)e->hparams->hidden_size), "embeddings.scaled");
}

static int sandwich(apr_emitter *e, int x, const apr_attention *a)
{
    const apr_feed_forward f = apr_feed_forward_of(e, "mlp");
    int y = apr_emit_attention(e, apr_emit_mixer_norm(e, x), a);

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
    return apr_emit_usual_layer(e, x, &a, &f);
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
    const int64_t n_rows = h->per_layer_vocab_size > 0 ? h->per_layer_vocab_size : h->vocab_size;
    const int rows = apr_emit_embed_from_host(e, "model.embed_tokens_per_layer.weight", n_rows, all, "inputs.rows");
    int made = apr_emit_linear(e, x, "model.per_layer_model_projection", APR_ROLE_EMBEDDING, all, APR_NO_BIAS, "inputs.made");
    made = apr_emit_norm_of(e, apr_emit_scale(e, made, 1.0 / sqrt((double)h->hidden_size), "inputs.scaled"), &norm, "inputs.normed");
    const int both = apr_emit_add(e, apr_emit_scale(e, rows, sqrt((double)each), "rows.scaled"), made, "inputs.both");
    return apr_emit_scale(e, both, sqrt(0.5), "inputs");
}

/* norm(proj(gelu(gate x) * input of this layer)) */
static int layer_input(apr_emitter *e, int x, int inputs)
{
    const apr_hparams *const h = e->hparams;
    const int64_t each = h->per_layer_input_size;
    const apr_glu_shape gelu = {.activation = APR_ACT_GELU_TANH};

    const int gate = apr_emit_linear(e, x, "per_layer_input_gate", APR_ROLE_FEED_FORWARD, each, APR_NO_BIAS, "input.gate");
    const int own = apr_emit_slice(e, inputs, 1, e->layer * each, each, "input");
    const int made = apr_emit_linear(e, apr_emit_glu(e, gate, own, gelu, "input.gated"), "per_layer_projection", APR_ROLE_FEED_FORWARD,
                                     h->hidden_size, APR_NO_BIAS, "input.made");
    return apr_emit_norm(e, made, "post_per_layer_input_norm.weight", "input.normed");
}

static int gemma4_layer(apr_emitter *e, int x, int inputs)
{
    const int y = gemma4_attention(e, apr_emit_mixer_norm(e, x));

    x = apr_emit_add(e, x, apr_emit_norm(e, y, "post_attention_layernorm.weight", "o.normed"), "attention.out");
    x = apr_emit_add(e, x, apr_emit_norm(e, gemma4_feed_forward(e, x), "post_feedforward_layernorm.weight", "down.normed"), "mlp.out");
    if (inputs >= 0) x = apr_emit_add(e, x, layer_input(e, x, inputs), "input.out");
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

/* --- gemma3n --- */

/* A projection of x, with the magnitude of `like`. */
static int projected_stream(apr_emitter *e, int x, int like, const char *name, int64_t i, apr_role role)
{
    static const double least_square = 1e-5;
    char text[64];

    snprintf(text, sizeof text, "model.%s.%lld", name, (long long)i);
    const int made = apr_emit_linear(e, x, text, role, e->hparams->hidden_size, APR_NO_BIAS, "stream.made");
    return apr_emit_rescale(e, made, like, least_square, "stream");
}

/* Stream 0 is the embedding, the others are projections of it. */
static int streams_of(apr_emitter *e, int x)
{
    int streams = x;
    for (int64_t i = 0; i + 1 < e->hparams->altup_num_inputs && e->status == APR_OK; i++)
        streams = apr_emit_join(e, streams, projected_stream(e, x, x, "altup_projections", i, APR_ROLE_EMBEDDING), 1, "streams");
    return streams;
}

static int stream(apr_emitter *e, int streams, int64_t i, const char *out)
{
    const int64_t width = e->hparams->hidden_size;
    return apr_emit_slice(e, streams, 1, i * width, width, out);
}

/* The mean of stream 0 and the projections of the others. */
static int merged(apr_emitter *e, int streams)
{
    const int first = stream(e, streams, 0, "stream.first");
    int sum = first;

    for (int64_t i = 0; i + 1 < e->hparams->altup_num_inputs && e->status == APR_OK; i++) {
        const int other = stream(e, streams, i + 1, "stream.other");
        sum = apr_emit_add(e, sum, projected_stream(e, other, first, "altup_unembed_projections", i, APR_ROLE_HEAD), "streams.sum");
    }
    return apr_emit_scale(e, sum, 1.0 / (double)e->hparams->altup_num_inputs, "streams.mean");
}

/* The logits that the coefficients of a mix follow from; they are divided by the width. */
static int stream_router(apr_emitter *e, int x)
{
    return apr_emit_linear(e, apr_emit_norm(e, x, "altup.router_norm.weight", "router.normed"), "altup.modality_router",
                           APR_ROLE_FEED_FORWARD, e->hparams->altup_num_inputs, APR_NO_BIAS, "router");
}

static int mix(apr_emitter *e, int streams, int y, int routed, const char *coefs, int64_t minus, double offset, const char *out)
{
    const apr_hparams *const h = e->hparams;
    const apr_altup_args args = {
        .n_streams = h->altup_num_inputs, .minus = minus, .scale = 1.0f / (float)h->hidden_size, .offset = (float)offset};
    return apr_emit_altup(e, streams, y, routed, coefs, args, out);
}

/* x + norm(right (left x)) */
static int laurel(apr_emitter *e, int x)
{
    const apr_hparams *const h = e->hparams;
    if (h->laurel_rank <= 0) apr_emit_fail(e, APR_E_DAMAGED, "the model does not state its laurel_rank");
    const int left = apr_emit_linear_of(e, x, "laurel", "linear_left", APR_ROLE_ATTENTION, h->laurel_rank, APR_NO_BIAS);
    const int right = apr_emit_linear_of(e, left, "laurel", "linear_right", APR_ROLE_ATTENTION, h->hidden_size, APR_NO_BIAS);
    return apr_emit_add(e, x, apr_emit_norm(e, right, "laurel.post_laurel_norm.weight", "laurel.normed"), "laurel.out");
}

/* What the layer makes of its stream: attention, a low-rank residual next to it, feed-forward. */
static int computed_stream(apr_emitter *e, int x)
{
    const apr_hparams *const h = e->hparams;
    apr_feed_forward f = apr_feed_forward_of(e, "mlp");
    const int n = apr_emit_mixer_norm(e, x), low_rank = laurel(e, n);

    if (e->layer < h->num_sparse_layers) f.sparsity = h->activation_sparsity;
    int y = apr_emit_norm(e, gemma4_attention(e, n), "post_attention_layernorm.weight", "o.normed");
    y = apr_emit_add(e, apr_emit_add(e, x, y, "attention.out"), low_rank, "attention.laurel");
    y = apr_emit_scale(e, y, sqrt(0.5), "attention.scaled");
    const int made = apr_emit_feed_forward(e, apr_emit_norm(e, y, "pre_feedforward_layernorm.weight", "mlp.normed"), &f);
    y = apr_emit_add(e, y, apr_emit_norm(e, made, "post_feedforward_layernorm.weight", "down.normed"), "mlp.out");
    apr_emit_tap(e, y);
    return y;
}

/* AltUp: all streams are predicted, one is computed, and all are corrected by what differs from its prediction. */
static int gemma3n_layer(apr_emitter *e, int streams, int inputs)
{
    const apr_hparams *const h = e->hparams;
    const int64_t own = h->altup_active_idx;
    apr_altup_args rest = {.n_streams = h->altup_num_inputs, .first = 1, .minus = -1, .offset = 1.0f};

    int routed = stream_router(e, stream(e, streams, own, "stream.own"));
    const int predicted = mix(e, streams, streams, routed, "altup.prediction_coefs.weight", -1, 0.0, "predicted");
    const int y = computed_stream(e, stream(e, predicted, own, "stream.predicted"));
    routed = stream_router(e, y);
    const int corrected = mix(e, predicted, y, routed, "altup.correction_coefs.weight", own, 1.0, "corrected");
    int x = stream(e, corrected, own, "stream.corrected");
    x = apr_emit_mul_vector(e, x, "altup.correct_output_scale", h->hidden_size, "stream.scaled");
    return apr_emit_altup(e, corrected, layer_input(e, x, inputs), -1, NULL, rest, "out");
}

void apr_emit_gemma3n(apr_emitter *e)
{
    const int64_t n_streams = e->hparams->altup_num_inputs;

    if (n_streams < 2 || n_streams > APR_ALTUP_STREAMS)
        apr_emit_fail(e, APR_E_DAMAGED, "altup_num_inputs is %lld; 2 to %d streams are supported", (long long)n_streams, APR_ALTUP_STREAMS);
    if (e->hparams->altup_active_idx < 0 || e->hparams->altup_active_idx >= n_streams)
        apr_emit_fail(e, APR_E_DAMAGED, "altup_active_idx is %lld; the model has %lld streams", (long long)e->hparams->altup_active_idx,
                      (long long)n_streams);
    const int x = embeddings(e), inputs = layer_inputs(e, x);
    int streams = streams_of(e, x);
    apr_emit_tap(e, x);
    for (e->layer = 0; e->layer < e->hparams->num_layers && e->status == APR_OK; e->layer++) streams = gemma3n_layer(e, streams, inputs);
    e->layer = -1;
    apr_emit_head(e, merged(e, streams), "model.norm.weight");
}
