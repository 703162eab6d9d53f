/* block_latent.c - multi-head latent attention: the cache holds one latent per token, shared by all heads.
 *
 * W_k and W_v are a head's halves of kv_b_proj, and c is the latent of a key's position:
 *     score = q_nope . (W_k c) + q_rope . k_rope = (W_k^T q_nope) . c + q_rope . k_rope;   output = W_v (sum of weights * c)
 * So queries are projected to the latent space and outputs back from it; keys and values are never expanded. A cached key is [c |
 * k_rope], and its value is the first part of it. */
#include "runtime/program/blocks.h"

#include <math.h>
#include <stdio.h>

typedef struct latent {
    int64_t n_heads, q_rank, rank, nope, rope, value;
} latent;

/* What differs between families. */
typedef struct names_of {
    const char *prefix, *output, *gate; /* gate NULL: none */
    const apr_rope_mode *index_mode;    /* NULL: no indexer */
} names_of;

typedef struct full_name {
    char text[96];
} full_name;

static const char *in(full_name *name, const char *prefix, const char *rest)
{
    snprintf(name->text, sizeof name->text, "%s.%s", prefix, rest);
    return name->text;
}

static latent latent_of(apr_emitter *e)
{
    const apr_hparams *const h = e->hparams;
    const latent m = {.n_heads = h->num_heads,
                      .q_rank = h->q_lora_rank,
                      .rank = h->kv_lora_rank,
                      .nope = h->qk_nope_head_dim,
                      .rope = h->qk_rope_head_dim,
                      .value = h->v_head_dim};
    if (m.rank <= 0 || m.nope <= 0 || m.rope <= 0 || m.value <= 0)
        apr_emit_fail(e, APR_E_DAMAGED, "the model does not state the sizes of its latent attention");
    return m;
}

static int inner_norm(apr_emitter *e, int x, const apr_attention *a, const char *weight, const char *out)
{
    apr_norm_facts facts = e->norm;
    full_name name;

    facts.weight = in(&name, a->prefix, weight);
    facts.eps = 1e-6f; /* as in transformers' class, whatever rms_norm_eps is */
    return apr_emit_norm_of(e, x, &facts, out);
}

/* Multiplies each head by its own part of a weight. */
static int emit_heads(apr_emitter *e, int x, int weight, apr_linear_heads heads, int64_t n_out, const char *out)
{
    apr_op op = apr_no_op;

    op.kind = APR_OP_LINEAR;
    op.in[0] = x;
    op.weight[0] = weight;
    op.args.linear.heads = heads;
    op.out = apr_emit_value(e, out, heads.n * n_out);
    apr_emit_op(e, op);
    return op.out;
}

typedef struct up_projections {
    int keys, values; /* slots; equal where both are one weight */
    apr_linear_heads of_keys, of_values;
} up_projections;

/* Hugging Face stores one weight: for each head the rows of keys, then those of values. ggml stores two, with the keys transposed. */
static up_projections emit_up_projections(apr_emitter *e, const apr_attention *a, const latent *m)
{
    full_name name;
    up_projections up = {.of_keys = {.n = m->n_heads}, .of_values = {.n = m->n_heads}};

    if (e->hparams->split_kv_b) {
        up.keys = apr_emit_stacked(e, in(&name, a->prefix, "k_b_proj.weight"), APR_ROLE_ATTENTION, m->n_heads, m->rank, m->nope);
        up.values = apr_emit_stacked(e, in(&name, a->prefix, "v_b_proj.weight"), APR_ROLE_ATTENTION, m->n_heads, m->value, m->rank);
        up.of_keys.rows = m->rank;
        up.of_values.rows = m->value;
        return up;
    }
    const int64_t rows = m->nope + m->value;
    up.keys = up.values = apr_emit_weight(e, in(&name, a->prefix, "kv_b_proj.weight"), APR_ROLE_ATTENTION, m->n_heads * rows, m->rank);
    up.of_keys.rows = up.of_values.rows = rows;
    up.of_keys.transposed = true;
    up.of_values.first = m->nope;
    return up;
}

/* *from: the value that the queries are projected from; *kv: the projection of n to the latent, right after that of n to the queries, so
 * that both are one product. */
static int emit_queries(apr_emitter *e, int n, const apr_attention *a, const latent *m, int *from, int *kv)
{
    const int64_t width = m->n_heads * (m->nope + m->rope);
    const bool is_low = m->q_rank > 0;

    *from = n;
    const int low = is_low ? apr_emit_projection(e, n, a, "q_a_proj", m->q_rank, a->bias)
                           : apr_emit_projection(e, n, a, "q_proj", width, APR_MAY_HAVE_BIAS);
    *kv = apr_emit_projection(e, n, a, "kv_a_proj_with_mqa", m->rank + m->rope, a->bias);
    if (!is_low) return low;
    *from = inner_norm(e, low, a, "q_a_layernorm.weight", "q.latent");
    return apr_emit_projection(e, *from, a, "q_b_proj", width, APR_NO_BIAS);
}

/* --- the indexer: its own query heads, one key per position, one weight per head --- */

static int layer_norm(apr_emitter *e, int x, const char *weight, const char *bias, const char *out)
{
    const apr_norm_facts facts = {.weight = weight, .bias = bias, .kind = APR_NORM_LAYER, .eps = 1e-6f};
    return apr_emit_norm_of(e, x, &facts, out);
}

/* Returns the chosen positions. */
static int emit_index(apr_emitter *e, int n, int q_from, apr_attention a, apr_rope_mode mode)
{
    const apr_hparams *const h = e->hparams;
    const int64_t dim = h->index_head_dim, heads = h->index_n_heads;
    apr_op op = apr_no_op;

    if (dim <= 0 || heads <= 0 || h->index_topk <= 0) {
        apr_emit_fail(e, APR_E_DAMAGED, "the model does not state the sizes of its indexer");
        return -1;
    }
    a.n_kv_heads = 1;
    a.value_dim = dim; /* the state of a position is its key only */
    const int q = apr_emit_projection(e, q_from, &a, "indexer.wq_b", heads * dim, APR_NO_BIAS);
    op.in[0] = apr_emit_rope(e, q, a.rotary, mode, dim, 0, "index.q");
    int k = apr_emit_projection(e, n, &a, "indexer.wk", dim, APR_NO_BIAS);
    k = layer_norm(e, k, "self_attn.indexer.k_norm.weight", "self_attn.indexer.k_norm.bias", "index.k.normed");
    op.state = apr_emit_kv_state(e, apr_emit_rope(e, k, a.rotary, mode, dim, 0, "index.k"), -1, &a);
    op.in[1] = apr_emit_projection(e, n, &a, "indexer.weights_proj", heads, APR_NO_BIAS);
    op.kind = APR_OP_INDEX;
    op.args.index = (apr_index_args){
        .n_heads = heads, .head_dim = dim, .n_chosen = h->index_topk, .scale = (float)(1.0 / (sqrt((double)dim) * sqrt((double)heads)))};
    op.out = apr_emit_value(e, "index.chosen", apr_index_row(h->index_topk));
    apr_emit_op(e, op);
    return op.out;
}

/* The positions that a layer attends to: those of its own index, or of the last one before it. */
static int chosen_of(apr_emitter *e, int n, int q_from, const apr_attention *a, apr_rope_mode mode)
{
    if (!apr_layer_shares_index(e->hparams, e->layer)) return e->chosen = emit_index(e, n, q_from, *a, mode);
    if (e->chosen <= 0) apr_emit_fail(e, APR_E_DAMAGED, "layer %d shares the index of an earlier layer, and none has one", e->layer);
    return e->chosen;
}

/* The square of YaRN's magnitude for mscale_all_dim, because it applies to queries and to keys. */
static double yarn_scale(const apr_rope_scaling *r)
{
    if (r->kind != APR_ROPE_YARN || r->mscale_all_dim == 0.0 || r->factor <= 1.0) return 1.0;
    const double magnitude = 0.1 * r->mscale_all_dim * log(r->factor) + 1.0;
    return magnitude * magnitude;
}

static int emit_attention(apr_emitter *e, int n, const names_of *names)
{
    const latent m = latent_of(e);
    apr_attention a = apr_attention_of(e);

    if (e->status != APR_OK) return -1;
    a.prefix = names->prefix;
    a.output = names->output;
    a.n_kv_heads = 1;
    a.value_dim = m.rank;
    a.rope_mode = APR_ROPE_NEIGHBOURS;
    a.scale = yarn_scale(&e->hparams->rope) / sqrt((double)(m.nope + m.rope));
    const up_projections up = emit_up_projections(e, &a, &m);

    int q_from, kv;
    int q = emit_queries(e, n, &a, &m, &q_from, &kv);
    if (names->index_mode != NULL) a.chosen = chosen_of(e, n, q_from, &a, *names->index_mode);
    q = apr_emit_rope(e, q, a.rotary, a.rope_mode, m.nope + m.rope, m.nope, "q.rotated");
    const int q_nope = apr_emit_slice(e, q, m.n_heads, 0, m.nope, "q.nope"),
              q_rope = apr_emit_slice(e, q, m.n_heads, m.nope, m.rope, "q.rope");
    q = apr_emit_join(e, emit_heads(e, q_nope, up.keys, up.of_keys, m.rank, "q.absorbed"), q_rope, m.n_heads, "q");
    q = apr_emit_query_scale(e, q, a.warmth, a.shift, a.period, "q.warmed"); /* of both parts: after what is fused */

    const int c = inner_norm(e, apr_emit_slice(e, kv, 1, 0, m.rank, "kv.latent"), &a, "kv_a_layernorm.weight", "latent");
    const int k_rope = apr_emit_rope(e, apr_emit_slice(e, kv, 1, m.rank, m.rope, "k.rope"), a.rotary, a.rope_mode, m.rope, 0, "k.rotated");
    const int state = apr_emit_kv_state(e, apr_emit_join(e, c, k_rope, 1, "k"), -1, &a);

    const int attended = apr_emit_attend(e, q, state, &a);
    int values = emit_heads(e, attended, up.values, up.of_values, m.value, "attended.values");
    if (names->gate != NULL)
        values =
            apr_emit_gate(e, values, apr_emit_projection(e, n, &a, names->gate, m.n_heads, APR_NO_BIAS), APR_ACT_SIGMOID, "attended.gated");
    return apr_emit_projection(e, values, &a, a.output, e->hparams->hidden_size, a.output_bias);
}

int apr_emit_latent_attention_of(apr_emitter *e, int n, const char *prefix, const char *output, const char *gate)
{
    return emit_attention(e, n, &(names_of){.prefix = prefix, .output = output, .gate = gate});
}

int apr_emit_latent_attention(apr_emitter *e, int n) { return apr_emit_latent_attention_of(e, n, "self_attn", "o_proj", NULL); }

int apr_emit_indexed_latent_attention(apr_emitter *e, int n, apr_rope_mode mode)
{
    return emit_attention(e, n, &(names_of){.prefix = "self_attn", .output = "o_proj", .index_mode = &mode});
}
