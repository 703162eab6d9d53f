/* tensor_sets.h - rules for tensors that many families share. A family's spec lists its sets; its own rules are matched first. */
#ifndef APR_FORMATS_TENSOR_SETS_H
#define APR_FORMATS_TENSOR_SETS_H

#include "formats/shape/tensor_rules.h"

extern const apr_tensor_set apr_tensors_ends;           /* embedding, last norm, head; the norm before each layer's mixer */
extern const apr_tensor_set apr_tensors_norm_biases;    /* of the norms before the mixer, before the feed-forward and before the head */
extern const apr_tensor_set apr_tensors_attention;      /* q, k, v and o, with biases where there are any */
extern const apr_tensor_set apr_tensors_qk_norm;        /* self_attn.{q,k}_norm */
extern const apr_tensor_set apr_tensors_ffn_norm;       /* post_attention_layernorm: ffn_norm */
extern const apr_tensor_set apr_tensors_ffn_post_norm;  /* the same tensor where ggml calls it post_attention_norm */
extern const apr_tensor_set apr_tensors_sandwich_norms; /* gemma's norms: before and after the feed-forward, after the attention */
extern const apr_tensor_set apr_tensors_dense;          /* mlp.{gate,up,down}_proj, with biases */
extern const apr_tensor_set apr_tensors_experts;        /* mlp.gate, mlp.experts: single tensors on the hub, stacked in other checkpoints */
extern const apr_tensor_set apr_tensors_w_experts;      /* block_sparse_moe: gate, experts.*.w1, w2, w3 */
extern const apr_tensor_set apr_tensors_shared_expert;  /* mlp.shared_expert with its gate */
extern const apr_tensor_set apr_tensors_shared_experts; /* mlp.shared_experts; the bias that is added to choose experts */
extern const apr_tensor_set apr_tensors_latent;         /* latent attention */

/* What DeepSeek V3 and the families after it state in GGUF, and compute of a config.json: latent attention, and experts in groups. */
#define APR_LATENT_KEYS                                                                                                                   \
    APR_KEY_ALWAYS(leading_dense_block_count), APR_KEY(vocab_size), APR_KEY(q_lora_rank), APR_KEY(kv_lora_rank), APR_KEY(key_length_mla), \
        APR_KEY(v_head_dim), APR_KEY(moe_intermediate_size), APR_KEY_ALWAYS(num_shared_experts), APR_KEY(routed_scaling_factor),          \
        APR_KEY(norm_topk_prob), APR_KEY(rotary_dim), APR_KEY(yarn_log_multiplier)
#define APR_LATENT_FIELDS \
    "kv_lora_rank", "q_lora_rank", "n_group", "routed_scaling_factor", "first_k_dense_replace", "mlp_layer_types", "n_shared_experts"

/* Steps of rules, from Hugging Face's order to ggml's. */
#define APR_ROTARY(heads)                            \
    {                                                \
        APR_STEP_HALVES_TO_PAIRS, { APR_OF_##heads } \
    }
#define APR_PLUS_ONE        \
    {                       \
        APR_STEP_ADD, { 1 } \
    }
#define APR_CONVOLUTION         \
    {                           \
        APR_STEP_SQUEEZE, { 1 } \
    }
#define APR_AS_COLUMN             \
    {                             \
        APR_STEP_UNSQUEEZE, { 0 } \
    }
#define APR_DECAY           \
    {                       \
        APR_STEP_NEGATE_EXP \
    }
/* Tiles value heads along an axis, starting at `first`. */
#define APR_TILED(axis, first)                                                           \
    {                                                                                    \
        APR_STEP_GROUPED_TO_TILED, { axis, first, APR_OF_KEY_HEADS, APR_OF_VALUES_EACH } \
    }

/* Parts of a form: the first half of the rows, the second half, or every other row. */
#define APR_FIRST_HALF                          \
    {                                           \
        APR_STEP_TAKE, { 1, 1, 0, APR_OF_HALF } \
    }
#define APR_SECOND_HALF                                   \
    {                                                     \
        APR_STEP_TAKE, { 1, 1, APR_OF_HALF, APR_OF_HALF } \
    }
#define APR_EVEN_ROWS                           \
    {                                           \
        APR_STEP_TAKE, { 1, APR_OF_HALF, 0, 1 } \
    }
#define APR_ODD_ROWS                            \
    {                                           \
        APR_STEP_TAKE, { 1, APR_OF_HALF, 1, 1 } \
    }
/* Two matrices of `place`, stored one after the other. */
#define APR_STACKED(place, first, second)     \
    {                                         \
        {place first, {APR_FIRST_HALF}},      \
        {                                     \
            place second, { APR_SECOND_HALF } \
        }                                     \
    }
#define APR_GATE_AND_UP(place) APR_STACKED(place, "gate_proj.weight", "up_proj.weight")
#define APR_W1_AND_W3(place)   APR_STACKED(place, "w1.weight", "w3.weight")
/* A form that renames: checkpoints have another name than transformers' class, whose name is the canonical one. */
#define APR_ALSO_CALLED(stored, canonical)             \
    {                                                  \
        APR_NAMING_HF, APR_FORM_WRITTEN, stored, NULL, \
        {                                              \
            {                                          \
                canonical,                             \
                {                                      \
                    {                                  \
                        0                              \
                    }                                  \
                }                                      \
            }                                          \
        }                                              \
    }
#define APR_TRANSPOSED     \
    {                      \
        APR_STEP_TRANSPOSE \
    }

#endif
