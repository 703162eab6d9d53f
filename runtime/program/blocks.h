/* runtime/program/blocks.h - what layers are made of: attention, feed-forward, experts, recurrent mixers.
 *
 * Each block takes the normed hidden state of the current layer and answers what is added to the residual. What differs between
 * families is in a struct of facts; apr_*_of fills it as the hyperparameters say, and a family's page (families/) changes the rest. */
#ifndef APR_RUNTIME_BLOCKS_H
#define APR_RUNTIME_BLOCKS_H

#include "runtime/program/emit.h"

/* --- the whole model --- */

typedef int (*apr_layer_fn)(apr_emitter *e, int x);

/* Embeddings (times their multiplier), each layer's `layer`, the final norm, the head with its scales and cap. */
void apr_emit_model(apr_emitter *e, apr_layer_fn layer);
/* The parts of it, for those that have more in between. */
int apr_emit_embeddings(apr_emitter *e);
int apr_emit_layers(apr_emitter *e, int x, apr_layer_fn layer);
void apr_emit_head(apr_emitter *e, int x, const char *norm);

/* x + residual_multiplier * y */
int apr_emit_residual(apr_emitter *e, int x, int y, const char *out);
/* x + residual_multiplier * y, and that is the layer's output. */
int apr_emit_layer_out(apr_emitter *e, int x, int y);
void apr_emit_unknown_layer(apr_emitter *e);

/* --- attention --- */

typedef enum { APR_QK_NO_NORM, APR_QK_NORM_HEADS, APR_QK_NORM_ROWS } apr_qk_norm;

typedef struct apr_attention {
    const char *prefix;          /* "self_attn" */
    const char *output;          /* "o_proj" */
    const char *q_norm, *k_norm; /* "q_norm.weight"; NULL: the norms have no weights */
    apr_qk_norm qk_norm;
    bool norm_behind_rope;
    bool fused; /* q, k and v in one matrix qkv_proj */
    bool gated; /* q_proj makes, behind each head's query, a gate: what comes out is multiplied with its sigmoid */
    bool sinks; /* a learned logit for each head, in the softmax without a value */
    apr_bias_style bias, output_bias;
    apr_rotary rotary;
    apr_rope_mode rope_mode;
    int64_t n_heads, n_kv_heads, head_dim;
    int64_t value_dim;            /* where values are the first numbers of keys */
    int64_t window, chunk;        /* 0: none */
    double scale, softcap;        /* of scores; softcap 0: none */
    double warmth, shift, period; /* of queries: apr_scale_args */
} apr_attention;

apr_attention apr_attention_of(const apr_emitter *e);
int apr_emit_attention(apr_emitter *e, int n, const apr_attention *a);
/* Stores k and v as a state of the layer, and answers it. v -1: values are the first value_dim numbers of each key. */
int apr_emit_kv_state(apr_emitter *e, int k, int v, const apr_attention *a);
/* What q finds in a state, perhaps another layer's. */
int apr_emit_attend(apr_emitter *e, int q, int state, const apr_attention *a);
/* PREFIX.NAME of attention, of that many rows. */
int apr_emit_projection(apr_emitter *e, int n, const apr_attention *a, const char *name, int64_t rows, apr_bias_style bias);

/* Multi-head latent attention (DeepSeek V2), its up-projections absorbed: the cache holds latents. Epsilon of the inner norms is 1e-6
 * whatever the model's is, as in transformers. */
int apr_emit_latent_attention(apr_emitter *e, int n);
/* The same to the positions alone that an indexer scores highest (DeepSeek V3.2), whose heads are rotated by `mode`. All that it keeps
 * and multiplies is in the program; the choice itself is not, and the program says that it lacks it. */
int apr_emit_indexed_latent_attention(apr_emitter *e, int n, apr_rope_mode mode);

/* --- feed-forward --- */

typedef struct apr_feed_forward {
    const char *prefix;           /* "mlp" */
    const char *gate, *up, *down; /* "gate_proj"; gate NULL: the activation is of up alone */
    bool fused;                   /* gate and up in one matrix, called `gate` */
    int64_t width;
    apr_glu_shape glu;
    apr_bias_style bias;
    apr_role role;
} apr_feed_forward;

apr_feed_forward apr_feed_forward_of(apr_emitter *e, const char *prefix);
int apr_emit_feed_forward(apr_emitter *e, int n, const apr_feed_forward *f);

/* --- experts --- */

typedef struct apr_experts {
    const char *router;           /* "mlp.gate" */
    bool router_bias;             /* of the logits */
    const char *choice_bias;      /* of the choice alone; NULL: none */
    const char *expert_scale;     /* factors of the chosen experts' weights; NULL: none */
    const char *prefix;           /* "mlp.experts" */
    const char *gate, *up, *down; /* "gate_proj"; gate NULL: none */
    bool biases;                  /* of the matrices: PREFIX.gate_proj_bias [experts, width], ... */
    int64_t width;
    apr_route_shape route;
    apr_glu_shape glu;
    bool weight_on_input;
} apr_experts;

apr_experts apr_experts_of(apr_emitter *e);
/* The router may read another value than the experts (router_in; usually n as well). */
int apr_emit_experts(apr_emitter *e, int n, int router_in, const apr_experts *x);
/* A feed-forward that every token goes to, as wide as the model says; its sum with `routed`. gate: "mlp.shared_expert_gate", a sigmoid of
 * one number, or NULL. `routed` itself where there is none. */
int apr_emit_shared(apr_emitter *e, int n, int routed, const char *prefix, const char *gate);
int64_t apr_shared_width(const apr_emitter *e);

/* --- recurrent mixers --- */

/* Gated delta net (Qwen 3.5; Qwen3-Next, whose inputs are fused): convolution, delta rule, norm, gate. */
int apr_emit_delta_net(apr_emitter *e, int n, const char *prefix, bool fused);
/* Mamba 2 (Nemotron-H, Granite 4): convolution, state-space duality, gate, norm over groups. */
int apr_emit_mamba(apr_emitter *e, int n, const char *prefix);
/* Gated short convolution (LFM2). */
int apr_emit_short_conv(apr_emitter *e, int n, const char *prefix);

#endif
