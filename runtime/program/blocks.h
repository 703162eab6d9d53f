/* runtime/program/blocks.h - the layer blocks: attention, feed-forward, experts, recurrent mixers.
 *
 * Each block takes the normed hidden state of the current layer and returns the value that is added to the residual. A struct holds what
 * differs between families. apr_*_of fills it from the hyperparameters, and a family's architecture (families/) changes the rest. */
#ifndef APR_RUNTIME_BLOCKS_H
#define APR_RUNTIME_BLOCKS_H

#include "runtime/program/emit.h"

/* --- the whole model --- */

typedef int (*apr_layer_fn)(apr_emitter *e, int x);

/* Emits embeddings (scaled), `layer` for each layer, the final norm, and the head with its scales and cap. */
void apr_emit_model(apr_emitter *e, apr_layer_fn layer);
/* Its parts, for architectures that need more between them. */
int apr_emit_embeddings(apr_emitter *e);
int apr_emit_layers(apr_emitter *e, int x, apr_layer_fn layer);
void apr_emit_head(apr_emitter *e, int x, const char *norm);
/* With another name than "lm_head", or a bias: NAME.weight, NAME.bias. */
void apr_emit_head_of(apr_emitter *e, int x, const char *norm, const char *name, apr_bias_style bias);

/* x + residual_multiplier * y */
int apr_emit_residual(apr_emitter *e, int x, int y, const char *out);
/* x + residual_multiplier * y, which becomes the layer's output. */
int apr_emit_layer_out(apr_emitter *e, int x, int y);
void apr_emit_unknown_layer(apr_emitter *e);
/* The norms of most layers: before attention or another mixer, and before the feed-forward. */
int apr_emit_mixer_norm(apr_emitter *e, int x);
int apr_emit_feed_forward_norm(apr_emitter *e, int x);

/* --- attention --- */

typedef enum {
    APR_QK_NO_NORM,
    APR_QK_NORM_HEADS,     /* of each head, with a weight that heads share */
    APR_QK_NORM_EACH_HEAD, /* of each head, with its own weight */
    APR_QK_NORM_ROWS       /* of all heads together */
} apr_qk_norm;

typedef struct apr_attention {
    const char *prefix;          /* "self_attn" */
    const char *output;          /* "o_proj" */
    const char *q_norm, *k_norm; /* "q_norm.weight"; NULL: norms without weights */
    apr_qk_norm qk_norm;
    bool norm_after_rope;
    bool fused;       /* q, k and v are one matrix qkv_proj */
    bool gated;       /* q_proj has a gate after each head's query; the output is multiplied by its sigmoid */
    const char *gate; /* a projection of the layer's input, whose sigmoid the output is multiplied by; NULL: none */
    bool sinks;       /* a learned logit per head takes part in the softmax, without a value */
    apr_bias_style bias, output_bias;
    apr_rotary rotary;
    apr_rope_mode rope_mode;
    int64_t n_heads, n_kv_heads, head_dim;
    int64_t value_dim;            /* where values are the first value_dim numbers of keys */
    int64_t window, chunk;        /* 0: none */
    double scale, softcap;        /* of scores; softcap 0: none */
    double key_scale;             /* keys are multiplied by it before rope; 0: 1 */
    double warmth, shift, period; /* query scale by position: see apr_scale_args */
    int chosen;                   /* the value of an index; 0: attends to all positions */
} apr_attention;

apr_attention apr_attention_of(const apr_emitter *e);
int apr_emit_attention(apr_emitter *e, int n, const apr_attention *a);
/* Stores k and v as a state of the layer and returns the state. v -1: values are the first value_dim numbers of each key. */
int apr_emit_kv_state(apr_emitter *e, int k, int v, const apr_attention *a);
/* Attention of q to a state, possibly that of another layer. */
int apr_emit_attend(apr_emitter *e, int q, int state, const apr_attention *a);
/* The projection PREFIX.NAME, with `rows` outputs. */
int apr_emit_projection(apr_emitter *e, int n, const apr_attention *a, const char *name, int64_t rows, apr_bias_style bias);

/* Multi-head latent attention (DeepSeek V2) with absorbed up-projections: the cache holds latents. The inner norms use epsilon 1e-6, as
 * in transformers, whatever the model's epsilon is. */
int apr_emit_latent_attention(apr_emitter *e, int n);
/* The same under other names, and with a gate: PREFIX.GATE projects the layer's input to a number for each head, whose sigmoid the head's
 * output is multiplied by. NULL: no gate. */
int apr_emit_latent_attention_of(apr_emitter *e, int n, const char *prefix, const char *output, const char *gate);
/* The same, but only to the positions that an indexer scores highest (DeepSeek V3.2). `mode` rotates the indexer's heads. */
int apr_emit_indexed_latent_attention(apr_emitter *e, int n, apr_rope_mode mode);

/* --- feed-forward --- */

typedef struct apr_feed_forward {
    const char *prefix;           /* "mlp" */
    const char *gate, *up, *down; /* "gate_proj"; gate NULL: the activation applies to up alone */
    bool fused;                   /* gate and up are one matrix, called `gate` */
    int64_t width;
    double gate_scale, down_scale; /* factors of the outputs of gate and down; 0: 1 */
    double sparsity;               /* about this share of the gates is set to 0 (Gaussian top-k); 0: none */
    apr_glu_shape glu;
    apr_bias_style bias;
    apr_role role;
} apr_feed_forward;

apr_feed_forward apr_feed_forward_of(apr_emitter *e, const char *prefix);
int apr_emit_feed_forward(apr_emitter *e, int n, const apr_feed_forward *f);
/* The layer of most families: attention and feed-forward, each on the normed state and added to it. */
int apr_emit_usual_layer(apr_emitter *e, int x, const apr_attention *a, const apr_feed_forward *f);

/* --- experts --- */

typedef struct apr_experts {
    const char *router;           /* "mlp.gate" */
    bool router_bias;             /* added to the logits */
    const char *choice_bias;      /* used for the choice only; NULL: none */
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
/* router_in: the router's input, usually n. */
int apr_emit_experts(apr_emitter *e, int n, int router_in, const apr_experts *x);
/* Emits a feed-forward that runs for every token, apr_shared_width wide, and returns its sum with `routed`. gate:
 * "mlp.shared_expert_gate", the sigmoid of one number per token, or NULL. Returns `routed` if the model has no shared experts. */
int apr_emit_shared(apr_emitter *e, int n, int routed, const char *prefix, const char *gate);
int64_t apr_shared_width(const apr_emitter *e);

/* --- recurrent mixers --- */

/* Gated delta net (Qwen 3.5; Qwen3-Next with `fused` inputs): convolution, delta rule, norm, gate. */
int apr_emit_delta_net(apr_emitter *e, int n, const char *prefix, bool fused);
/* Kimi Delta Attention: projections and a convolution for each of queries, keys and values; a decay for each channel of a key. */
typedef struct apr_channel_delta {
    const char *prefix, *output; /* "self_attn", "o_proj" */
    bool low_rank;               /* decays and gate are projected by f_b_proj(f_a_proj) and g_b_proj(g_a_proj), else by f_proj and g_proj */
    double floor;                /* bound of the decays' logarithms; 0: none */
} apr_channel_delta;
int apr_emit_channel_delta(apr_emitter *e, int n, const apr_channel_delta *d);
/* Mamba 2 (Nemotron-H, Granite 4): convolution, state-space duality, gate, norm over groups. */
int apr_emit_mamba(apr_emitter *e, int n, const char *prefix);
/* The same without norm, or with the norm before the gate, and with factors of the parts of in_proj's output (0: 1). */
typedef struct apr_mamba {
    const char *prefix;
    bool without_norm, norm_first;
    double z, x, b, c, dt;
} apr_mamba;
int apr_emit_mamba_of(apr_emitter *e, int n, const apr_mamba *m);
/* Gated short convolution (LFM2). */
int apr_emit_short_conv(apr_emitter *e, int n, const char *prefix);

#endif
