/* hparams.h - the hyperparameters of a model in one struct, whatever file format they came from.
 *
 * One list gives each number's key in APR metadata, in config.json and in GGUF (without the "ARCH." prefix), so that reading and writing
 * all three are loops over one table. 0 means "the file does not state it". All sizes are in elements. */
#ifndef APR_FORMATS_HPARAMS_H
#define APR_FORMATS_HPARAMS_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* X(field, INT | REAL, key in config.json, key in GGUF without the architecture prefix; "" where the format has none). The key in APR
 * metadata is the field's name. A family that uses another key says so in its spec (formats/shape/family.h). */
#define APR_HPARAM_LIST(X)                                                                                                              \
    X(hidden_size, INT, "hidden_size", "embedding_length")                                                                              \
    X(num_layers, INT, "num_hidden_layers", "block_count") /* layers that are run; GGUF also counts multi-token prediction */           \
    X(num_heads, INT, "num_attention_heads", "attention.head_count")                                                                    \
    X(num_kv_heads, INT, "num_key_value_heads", "attention.head_count_kv")                                                              \
    X(head_dim, INT, "head_dim", "attention.key_length")                                                                                \
    X(vocab_size, INT, "vocab_size", "vocab_size")                                                                                      \
    X(intermediate_size, INT, "intermediate_size", "feed_forward_length") /* of dense feed-forwards */                                  \
    X(max_position_embeddings, INT, "max_position_embeddings", "context_length")                                                        \
    X(rms_norm_eps, REAL, "rms_norm_eps", "attention.layer_norm_rms_epsilon") /* of every norm, whatever its kind */                    \
    X(rope_theta, REAL, "rope_theta", "rope.freq_base")                                                                                 \
    X(rotary_dim, INT, "", "rope.dimension_count")                          /* config.json: partial_rotary_factor x head_dim */         \
    X(rope_theta_local, REAL, "rope_local_base_freq", "rope.freq_base_swa") /* of sliding layers; 0: as the others */                   \
    X(sliding_window, INT, "sliding_window", "attention.sliding_window")                                                                \
    X(attention_chunk_size, INT, "attention_chunk_size", "attention.chunk_size")                                                        \
    X(attention_multiplier, REAL, "attention_multiplier", "attention.scale") /* of scores; 0: 1 / sqrt(head_dim) */                     \
    X(query_pre_attn_scalar, REAL, "query_pre_attn_scalar", "")              /* of scores: its inverse square root */                   \
    X(attn_logit_softcapping, REAL, "attn_logit_softcapping", "attn_logit_softcapping")                                                 \
    X(final_logit_softcapping, REAL, "final_logit_softcapping", "final_logit_softcapping")                                              \
    X(embedding_multiplier, REAL, "embedding_multiplier", "embedding_scale")                                                            \
    X(residual_multiplier, REAL, "residual_multiplier", "residual_scale")                                                               \
    X(logits_scaling, REAL, "logits_scaling", "")      /* logits are divided by it (granite; there GGUF calls it logit_scale) */        \
    X(logit_scale, REAL, "logit_scale", "logit_scale") /* logits are multiplied by it (cohere) */                                       \
    X(attention_in_multiplier, REAL, "attention_in_multiplier", "") /* falcon_h1: 0 is 1, for all of them */                            \
    X(attention_out_multiplier, REAL, "attention_out_multiplier", "")                                                                   \
    X(key_multiplier, REAL, "key_multiplier", "")                                                                                       \
    X(ssm_in_multiplier, REAL, "ssm_in_multiplier", "")                                                                                 \
    X(ssm_out_multiplier, REAL, "ssm_out_multiplier", "")                                                                               \
    X(ssm_z_multiplier, REAL, "", "") /* config.json: ssm_multipliers, one for each part of in_proj's output */                         \
    X(ssm_x_multiplier, REAL, "", "")                                                                                                   \
    X(ssm_b_multiplier, REAL, "", "")                                                                                                   \
    X(ssm_c_multiplier, REAL, "", "")                                                                                                   \
    X(ssm_dt_multiplier, REAL, "", "")                                                                                                  \
    X(mlp_gate_multiplier, REAL, "", "") /* config.json: mlp_multipliers */                                                             \
    X(mlp_down_multiplier, REAL, "", "")                                                                                                \
    X(attn_temperature, REAL, "attn_scale", "attention.temperature_scale") /* queries: x 1 + this * ln(1 + floor(position / length)) */ \
    X(attn_temperature_length, REAL, "floor_scale", "attention.temperature_length")                                                     \
    X(q_lora_rank, INT, "q_lora_rank", "attention.q_lora_rank")    /* latent attention; 0: no latent for queries */                     \
    X(kv_lora_rank, INT, "kv_lora_rank", "attention.kv_lora_rank") /* 0: no latent attention */                                         \
    X(qk_nope_head_dim, INT, "qk_nope_head_dim", "")               /* GGUF: key_length_mla - rope.dimension_count */                    \
    X(qk_rope_head_dim, INT, "qk_rope_head_dim", "")               /* GGUF: rope.dimension_count */                                     \
    X(v_head_dim, INT, "v_head_dim", "attention.value_length_mla")                                                                      \
    X(num_experts, INT, "num_experts", "expert_count") /* also num_local_experts, n_routed_experts, moe_num_experts */                  \
    X(num_experts_per_tok, INT, "num_experts_per_tok", "expert_used_count")              /* also moe_k, moe_topk, top_k_experts */      \
    X(moe_intermediate_size, INT, "moe_intermediate_size", "expert_feed_forward_length") /* of one expert */                            \
    X(shared_expert_intermediate_size, INT, "shared_expert_intermediate_size",                                                          \
      "expert_shared_feed_forward_length") /* of all shared experts together */                                                         \
    X(num_shared_experts, INT, "n_shared_experts", "expert_shared_count")                                                               \
    X(num_expert_groups, INT, "n_group", "expert_group_count")                                                                          \
    X(num_expert_groups_used, INT, "topk_group", "expert_group_used_count")                                                             \
    X(routed_scaling_factor, REAL, "routed_scaling_factor", "expert_weights_scale")                                                     \
    X(moe_norm_min, REAL, "moe_norm_min", "")                     /* least sum that weights of chosen experts are divided by */         \
    X(moe_latent_size, INT, "moe_latent_size", "moe_latent_size") /* width that experts work in; 0: hidden_size */                      \
    X(swiglu_limit, REAL, "swiglu_limit", "")                                                                                           \
    X(swiglu_alpha, REAL, "swiglu_alpha", "")                                                                                           \
    X(index_n_heads, INT, "index_n_heads", "attention.indexer.head_count") /* sparse attention: heads that score positions */           \
    X(index_head_dim, INT, "index_head_dim", "attention.indexer.key_length")                                                            \
    X(index_topk, INT, "index_topk", "attention.indexer.top_k")                    /* positions that a token attends to; 0: all */      \
    X(linear_num_key_heads, INT, "linear_num_key_heads", "ssm.group_count")        /* Mamba: n_groups */                                \
    X(linear_num_value_heads, INT, "linear_num_value_heads", "ssm.time_step_rank") /* Mamba: heads */                                   \
    X(linear_key_head_dim, INT, "linear_key_head_dim", "ssm.state_size")           /* Mamba: state size */                              \
    X(linear_value_head_dim, INT, "linear_value_head_dim", "")                     /* Mamba: head dim; GGUF: inner_size / heads */      \
    X(linear_conv_kernel_dim, INT, "linear_conv_kernel_dim", "ssm.conv_kernel")    /* also conv_L_cache, shortconv.l_cache */           \
    X(kda_bound, REAL, "", "") /* logarithms of its decays are above minus this; 0: any */                                              \
    X(full_attention_interval, INT, "full_attention_interval", "full_attention_interval")                                               \
    X(num_kv_shared_layers, INT, "num_kv_shared_layers",                                                                                \
      "attention.shared_kv_layers")                               /* the last ones attend to keys and values of earlier ones */         \
    X(global_head_dim, INT, "global_head_dim", "")                /* of full layers where sliding ones have head_dim (gemma4) */        \
    X(num_global_kv_heads, INT, "num_global_key_value_heads", "") /* the same of key/value heads */                                     \
    X(per_layer_input_size, INT, "hidden_size_per_layer_input", "embedding_length_per_layer_input")                                     \
    X(per_layer_vocab_size, INT, "",                                                                                                    \
      "") /* config.json: vocab_size_per_layer_input; the table's rows where they are fewer than vocab_size */                          \
    X(altup_num_inputs, INT, "altup_num_inputs", "altup.num_inputs") /* streams of hidden states (gemma3n); 0: no AltUp */              \
    X(altup_active_idx, INT, "altup_active_idx", "altup.active_idx") /* the stream that layers compute */                               \
    X(laurel_rank, INT, "laurel_rank", "")                           /* of the learned residual next to attention (gemma3n) */          \
    X(num_sparse_layers, INT, "", "")    /* config.json: activation_sparsity_pattern; the first layers, where this share ... */         \
    X(activation_sparsity, REAL, "", "") /* ... of a feed-forward's gates would be 0, if they had a normal distribution */              \
    X(num_nextn_layers, INT, "num_nextn_predict_layers", "nextn_predict_layers") /* multi-token prediction: kept, not run */            \
    X(mrope_time, INT, "", "")   /* pairs of a head that images rotate by time, height and width (mrope_section); */                    \
    X(mrope_height, INT, "", "") /* the three positions of text are equal, so it does not use them; GGUF: rope.dimension_sections */    \
    X(mrope_width, INT, "", "")                                                                                                         \
    X(num_deepstack_layers, INT, "", "n_deepstack_layers") /* the first ones, to which images are added; unused by text */

/* X(field, key in config.json, key in GGUF): boolean hyperparameters. */
#define APR_HFLAG_LIST(X)                                                                                                                 \
    X(tie_word_embeddings, "tie_word_embeddings", "")                                                                                     \
    X(attention_bias, "attention_bias", "")         /* as config.json states it; the tensors decide what is computed */                   \
    X(attention_out_bias, "attention_out_bias", "") /* of o alone */                                                                      \
    X(scales_embeddings, "mup_enabled", "")         /* embeddings times sqrt(hidden_size) */                                              \
    X(mlp_bias, "mlp_bias", "")                                                                                                           \
    X(norm_topk_prob, "norm_topk_prob", "expert_weights_norm") /* weights of chosen experts sum to 1 */                                   \
    X(use_qk_norm, "use_qk_norm", "")                          /* for families with both kinds of models */                               \
    X(attention_k_eq_v, "attention_k_eq_v", "")                /* full layers have no v_proj: values are k_proj's output (gemma4) */      \
    X(use_double_wide_mlp, "use_double_wide_mlp", "")          /* layers with shared keys and values: twice intermediate_size (gemma4) */ \
    X(mamba_rms_norm, "mamba_rms_norm", "")                    /* falcon_h1: its Mamba layers have a norm ... */                          \
    X(mamba_norm_before_gate, "mamba_norm_before_gate", "")    /* ... before the gate, or after it */                                     \
    X(parallel_residual, "use_parallel_residual", "use_parallel_residual") /* attention and feed-forward read the same state */           \
    X(enable_moe_block, "enable_moe_block", "")                            /* experts next to the dense feed-forward (gemma4) */          \
    X(tiled_value_heads, "", "") /* ggml's order for Qwen 3.5: value head h uses key head h mod key heads */                              \
    X(split_kv_b, "", "")        /* ggml's latent attention: k_b_proj (transposed) and v_b_proj replace kv_b_proj */                      \
    X(split_qkvz, "", "")        /* ggml's qwen3_next: in_proj_qkv and in_proj_z replace in_proj_qkvz */

typedef enum {
    APR_ROPE_PLAIN,
    APR_ROPE_LINEAR,
    APR_ROPE_LLAMA3,
    APR_ROPE_YARN,
    APR_ROPE_LONGROPE,
    APR_ROPE_DYNAMIC,     /* with alpha: theta * alpha^(dim / (dim - 2)) (hunyuan); without: it depends on the length of the text */
    APR_ROPE_PROPORTIONAL /* the first partial_rotary_factor of the whole head's frequencies; the others are 0 (gemma4) */
} apr_rope_kind;

/* Scaling of the rotary frequencies, named as in config.json's rope_scaling / rope_parameters. Numbers not used by the
 * kind are 0. */
typedef struct apr_rope_scaling {
    apr_rope_kind kind;
    double factor;
    double low_freq_factor, high_freq_factor; /* llama3 */
    int64_t original_context;                 /* llama3, yarn: original_max_position_embeddings */
    double beta_fast, beta_slow;
    double attention_factor;       /* yarn, longrope: factor of cosines and sines, as stated or from mscale / mscale_all_dim */
    double mscale, mscale_all_dim; /* yarn; latent attention multiplies the scale of scores by the square of mscale_all_dim's magnitude */
    double alpha;                  /* dynamic */
    double partial_rotary_factor;  /* proportional */
    bool no_truncate;              /* yarn: "truncate": false */
    const double *short_factor, *long_factor; /* longrope: [n_factors] divisors; `long` where a plan exceeds original_context */
    int64_t n_factors;
} apr_rope_scaling;

/* How a layer mixes tokens. */
typedef enum {
    APR_LAYER_FULL,
    APR_LAYER_SLIDING, /* attention within sliding_window */
    APR_LAYER_LINEAR,  /* gated delta rule */
    APR_LAYER_CHUNKED, /* attention within attention_chunk_size */
    APR_LAYER_MAMBA,   /* state-space duality (Mamba 2) */
    APR_LAYER_CONV,    /* gated short convolution (LFM2) */
    APR_LAYER_NONE     /* no mixing: feed-forward only */
} apr_layer_kind;

/* The feed-forward of a layer. */
typedef enum { APR_FFN_DENSE, APR_FFN_EXPERTS, APR_FFN_NONE } apr_ffn_kind;

typedef struct apr_hparams {
    const char *architecture; /* Hugging Face's model_type: "llama", "qwen2", "gpt_oss", "qwen3_5"; "" when unknown */
    const char *hf_class;     /* "Qwen2ForCausalLM", or NULL */
#define INT                      int64_t
#define REAL                     double
#define X(field, type, hf, gguf) type field;
    APR_HPARAM_LIST(X)
#undef X
#undef INT
#undef REAL
#define X(field, hf, gguf) bool field;
    APR_HFLAG_LIST(X)
#undef X
    apr_rope_scaling rope;
    apr_rope_scaling rope_local; /* of sliding layers, where rope_theta_local > 0 */
    /* Per layer [num_layers], or NULL: the same for all layers */
    const uint8_t *layer_kinds; /* apr_layer_kind; NULL: FULL */
    const uint8_t *ffn_kinds;   /* apr_ffn_kind; NULL: EXPERTS where num_experts > 0, else DENSE */
    const uint8_t *no_rope;     /* 1: the layer's attention has no rotary embedding; NULL: all layers have it */
    /* Sparse attention. 1: the layer attends to the positions that the closest layer before it with an index chose; NULL: none does */
    const uint8_t *shares_index;
    const char *torch_dtype; /* "bfloat16", or NULL */
    /* From config.json only, for code that computes or translates: */
    const char *refusal;        /* a clause that names the field and value that no program here computes, or NULL */
    const char *unknown_fields; /* "a, b": fields that are not known here and may or may not matter; or NULL */
} apr_hparams;

enum { APR_MAX_LAYERS = 10000 }; /* apr_hparams_complete refuses more */

/* The table behind the list, for loops. `offset` is the field's offset in apr_hparams. */
typedef struct apr_hparam_field {
    const char *name, *hf_key, *gguf_key;
    bool is_int;
    size_t offset;
} apr_hparam_field;

extern const apr_hparam_field apr_hparam_fields[];
extern const size_t apr_n_hparam_fields;

typedef struct apr_hflag_field {
    const char *name, *hf_key, *gguf_key;
    size_t offset; /* of a bool in apr_hparams */
} apr_hflag_field;

extern const apr_hflag_field apr_hflag_fields[];
extern const size_t apr_n_hflag_fields;

/* Places in the two tables: apr_hparam_fields[APR_NUMBER_AT(rope_theta)]. */
#define APR_NUMBER_AT(field) APR_NUMBER_AT_##field
#define APR_FLAG_AT(field)   APR_FLAG_AT_##field
enum {
#define X(field, type, hf, gguf) APR_NUMBER_AT(field),
    APR_HPARAM_LIST(X)
#undef X
        APR_N_NUMBERS
};
enum {
#define X(field, hf, gguf) APR_FLAG_AT(field),
    APR_HFLAG_LIST(X)
#undef X
        APR_N_FLAGS
};

/* A set of flags: APR_FLAG(norm_topk_prob) | APR_FLAG(use_qk_norm). */
typedef uint32_t apr_flags;
#define APR_FLAG(field) ((apr_flags)1 << APR_FLAG_AT(field))
static inline bool apr_flags_have(apr_flags flags, size_t at) { return (flags >> at & 1) != 0; }

int64_t *apr_hparam_int(apr_hparams *hparams, const apr_hparam_field *field);
double *apr_hparam_real(apr_hparams *hparams, const apr_hparam_field *field);
bool *apr_hflag(apr_hparams *hparams, const apr_hflag_field *field);
/* The same for reading; 0 for a field of the other type. */
int64_t apr_hparam_get_int(const apr_hparams *hparams, const apr_hparam_field *field);
double apr_hparam_get_real(const apr_hparams *hparams, const apr_hparam_field *field);
double apr_hparam_number(const apr_hparams *hparams, const apr_hparam_field *field); /* of either type */
bool apr_hflag_get(const apr_hparams *hparams, const apr_hflag_field *field);

/* Properties of one layer. */
apr_layer_kind apr_layer_kind_of(const apr_hparams *hparams, int64_t layer);
apr_ffn_kind apr_ffn_kind_of(const apr_hparams *hparams, int64_t layer);
bool apr_layer_has_rope(const apr_hparams *hparams, int64_t layer);
bool apr_layer_shares_index(const apr_hparams *hparams, int64_t layer);

/* Which layers share an index, where a file does not list them. The first n_first layers have their own. After them every own_every-th
 * layer has its own, counted from the last of the first ones. */
typedef struct apr_index_layers {
    int64_t n_first, own_every;
} apr_index_layers;

bool apr_layer_has_own_index(apr_index_layers index, int64_t layer);

/* Which layers have sliding-window attention, where a file does not list them. The first n_full_first layers have full attention. Of the
 * layers after them every full_every-th has full attention, and the others slide. */
typedef struct apr_window_layers {
    int64_t n_full_first; /* layers at the start with full attention */
    int64_t full_every;   /* period of full attention after them; 1: all layers are full, none slides; 0: all slide */
} apr_window_layers;

/* Layers count from 0. */
bool apr_layer_slides(apr_window_layers window, int64_t layer);

/* Fields of apr_rope_scaling that are numbers, named as in config.json. */
typedef struct apr_rope_field {
    const char *name;
    size_t offset; /* of a double in apr_rope_scaling */
} apr_rope_field;

extern const apr_rope_field apr_rope_fields[];
extern const size_t apr_n_rope_fields;
double *apr_rope_real(apr_rope_scaling *rope, const apr_rope_field *field);
double apr_rope_number(const apr_rope_scaling *rope, const apr_rope_field *field);
/* Equal but for the factors of longrope. */
bool apr_rope_is_same(const apr_rope_scaling *a, const apr_rope_scaling *b);
extern const char *const apr_rope_names[]; /* by apr_rope_kind: "default", "linear", ..., as in config.json */
extern const char apr_layer_letters[];     /* by apr_layer_kind: 'f', 's', 'l', 'c', 'm', 'v', 'n' */
extern const char apr_ffn_letters[];       /* by apr_ffn_kind: 'd', 'e', 'n' */
enum { APR_N_ROPE_KINDS = APR_ROPE_PROPORTIONAL + 1, APR_N_LAYER_KINDS = APR_LAYER_NONE + 1, APR_N_FFN_KINDS = APR_FFN_NONE + 1 };

/* Fills in what follows from other values: num_kv_heads = num_heads, head_dim = hidden_size / num_heads, rope_theta = 10000, rotary_dim
 * = head_dim, layer_kinds from full_attention_interval. APR_E_DAMAGED: a number is impossible. These are negative numbers, head or group
 * counts that do not divide, more choices than there are candidates, more than 10,000 layers, a size or a width (a product of two
 * numbers) above 2^40, and rotary factors that do not fit the frequencies. `where` names the file. */
apr_status apr_hparams_complete(apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err);

/* The standard normal distribution: z such that `share` (above 0, below 1) of it is below z; and the share below z. */
double apr_normal_quantile(double share);
double apr_normal_share(double z);
/* The quantile with the roundings of transformers: sqrt(2) erfinv(2 share - 1), each step in float32. */
float apr_sparsity_quantile(double share);

#endif
