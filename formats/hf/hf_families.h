/* hf_families.h - what transformers' class of each model_type supposes where a config.json is silent, and which biases it has.
 *
 * Only families whose configuration is understood are in the table; of others a config.json gives its numbers and no more. */
#ifndef APR_FORMATS_HF_FAMILIES_H
#define APR_FORMATS_HF_FAMILIES_H

#include <stdbool.h>
#include <stdint.h>

/* Which layers attend within sliding_window when there are no layer_types. */
typedef enum {
    APR_WINDOW_NONE,
    APR_WINDOW_ALL,
    APR_WINDOW_EVEN,      /* layers 0, 2, 4, ... */
    APR_WINDOW_FROM_LAYER /* from max_window_layers on, and none at all unless use_sliding_window is true */
} apr_window_rule;

typedef enum {
    APR_BIAS_NEVER,       /* the class has none, whatever config.json says */
    APR_BIAS_WHEN_STATED, /* attention_bias: q, k, v and o; mlp_bias: gate, up and down */
    APR_BIAS_QKV_ALWAYS   /* q, k and v, without a field for it */
} apr_bias_rule;

typedef struct apr_hf_family {
    const char *architecture; /* model_type */
    const char *hf_class;     /* class written when the model does not name its own */
    const char *experts_key;  /* what num_experts is called */
    const char *activation;
    apr_window_rule window;
    apr_bias_rule attention_bias, mlp_bias;
    /* Defaults of fields that are absent; 0: none, or the general rule of apr_hparams_complete */
    int64_t num_kv_heads, head_dim, max_position_embeddings, sliding_window, max_window_layers;
    double rms_norm_eps, rope_theta, partial_rotary_factor;
} apr_hf_family;

/* NULL when unknown. */
const apr_hf_family *apr_hf_family_find(const char *architecture);

#endif
