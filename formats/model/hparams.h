/* hparams.h - what a model's shape is, in one struct, whatever file it came from.
 *
 * One list says for each number its key in APR metadata, in config.json and in GGUF (behind "ARCH."), so that reading and
 * writing all three are loops over one table. 0 means "the file does not say". All sizes are in elements. */
#ifndef APR_FORMATS_HPARAMS_H
#define APR_FORMATS_HPARAMS_H

#include "formats/base/arena.h"
#include "formats/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* X(field, INT | REAL, APR key, config.json key, GGUF key behind the architecture; "" where the format has none) */
#define APR_HPARAM_LIST(X)                                                                                             \
    X(hidden_size, INT, "hidden_size", "hidden_size", "embedding_length")                                              \
    X(num_layers, INT, "num_layers", "num_hidden_layers", "block_count")                                               \
    X(num_heads, INT, "num_heads", "num_attention_heads", "attention.head_count")                                      \
    X(num_kv_heads, INT, "num_kv_heads", "num_key_value_heads", "attention.head_count_kv")                             \
    X(head_dim, INT, "head_dim", "head_dim", "attention.key_length")                                                   \
    X(vocab_size, INT, "vocab_size", "vocab_size", "vocab_size")                                                       \
    X(intermediate_size, INT, "intermediate_size", "intermediate_size", "feed_forward_length")                         \
    X(max_position_embeddings, INT, "max_position_embeddings", "max_position_embeddings", "context_length")            \
    X(rms_norm_eps, REAL, "rms_norm_eps", "rms_norm_eps", "attention.layer_norm_rms_epsilon")                          \
    X(rope_theta, REAL, "rope_theta", "rope_theta", "rope.freq_base")                                                  \
    X(rotary_dim, INT, "rotary_dim", "", "rope.dimension_count") /* config.json: partial_rotary_factor x head_dim */   \
    X(sliding_window, INT, "sliding_window", "sliding_window", "attention.sliding_window")                             \
    X(num_experts, INT, "num_experts", "num_experts", "expert_count") /* also num_local_experts */                     \
    X(num_experts_per_tok, INT, "num_experts_per_tok", "num_experts_per_tok", "expert_used_count")                     \
    X(moe_intermediate_size, INT, "moe_intermediate_size", "moe_intermediate_size", "expert_feed_forward_length")      \
    X(shared_expert_intermediate_size, INT, "shared_expert_intermediate_size", "shared_expert_intermediate_size",      \
      "expert_shared_feed_forward_length")                                                                             \
    X(linear_num_key_heads, INT, "linear_num_key_heads", "linear_num_key_heads", "ssm.group_count")                    \
    X(linear_num_value_heads, INT, "linear_num_value_heads", "linear_num_value_heads", "ssm.time_step_rank")           \
    X(linear_key_head_dim, INT, "linear_key_head_dim", "linear_key_head_dim", "ssm.state_size")                        \
    X(linear_value_head_dim, INT, "linear_value_head_dim", "linear_value_head_dim", "") /* GGUF: inner_size / heads */ \
    X(linear_conv_kernel_dim, INT, "linear_conv_kernel_dim", "linear_conv_kernel_dim", "ssm.conv_kernel")              \
    X(full_attention_interval, INT, "full_attention_interval", "full_attention_interval", "full_attention_interval")

typedef enum { APR_ROPE_PLAIN, APR_ROPE_LINEAR, APR_ROPE_LLAMA3, APR_ROPE_YARN, APR_ROPE_LONGROPE, APR_ROPE_DYNAMIC } apr_rope_kind;

/* Scaling of the rotary frequencies, named as in config.json's rope_scaling / rope_parameters. Numbers not used by the
 * kind are 0. */
typedef struct apr_rope_scaling {
    apr_rope_kind kind;
    double factor;
    double low_freq_factor, high_freq_factor;      /* llama3 */
    int64_t original_context;                      /* llama3, yarn: original_max_position_embeddings */
    double beta_fast, beta_slow, attention_factor; /* yarn */
    bool no_truncate;                              /* yarn: "truncate": false */
} apr_rope_scaling;

typedef enum { APR_LAYER_FULL, APR_LAYER_SLIDING, APR_LAYER_LINEAR } apr_layer_kind;

typedef struct apr_hparams {
    const char *architecture; /* Hugging Face's model_type: "llama", "qwen2", "gpt_oss", "qwen3_5"; "" when unknown */
    const char *hf_class;     /* "Qwen2ForCausalLM", or NULL */
#define INT                           int64_t
#define REAL                          double
#define X(field, type, apr, hf, gguf) type field;
    APR_HPARAM_LIST(X)
#undef X
#undef INT
#undef REAL
    apr_rope_scaling rope;
    bool tie_word_embeddings;
    bool attention_bias, mlp_bias; /* as config.json says; the tensors decide what is computed */
    bool norm_topk_prob;
    const uint8_t *layer_kinds; /* num_layers entries of apr_layer_kind, or NULL: all APR_LAYER_FULL */
    const char *torch_dtype;    /* "bfloat16", or NULL */
    /* Of config.json alone, for who computes or translates: */
    const char *refusal;        /* a clause naming the field and value that no program here does, or NULL */
    const char *unknown_fields; /* "a, b": fields nobody here has heard of, which may or may not matter; or NULL */
} apr_hparams;

/* The table behind the list, for loops. The field lies `offset` bytes into apr_hparams. */
typedef struct apr_hparam_field {
    const char *name, *apr_key, *hf_key, *gguf_key;
    bool is_int;
    size_t offset;
} apr_hparam_field;

extern const apr_hparam_field apr_hparam_fields[];
extern const size_t apr_n_hparam_fields;

int64_t *apr_hparam_int(apr_hparams *hparams, const apr_hparam_field *field);
double *apr_hparam_real(apr_hparams *hparams, const apr_hparam_field *field);

/* Fields of apr_rope_scaling that are numbers, named as in config.json. */
typedef struct apr_rope_field {
    const char *name;
    size_t offset; /* of a double in apr_rope_scaling */
} apr_rope_field;

extern const apr_rope_field apr_rope_fields[];
extern const size_t apr_n_rope_fields;
extern const char *const apr_rope_names[]; /* by apr_rope_kind: "default", "linear", ..., as in config.json */
extern const char apr_layer_letters[];     /* by apr_layer_kind: 'f', 's', 'l' */
enum { APR_N_ROPE_KINDS = APR_ROPE_DYNAMIC + 1, APR_N_LAYER_KINDS = APR_LAYER_LINEAR + 1 };

/* Fills what follows from the rest: num_kv_heads = num_heads, head_dim = hidden_size / num_heads, rope_theta = 10000,
 * rotary_dim = head_dim, layer_kinds from full_attention_interval. Fails with APR_E_DAMAGED on numbers no model can have: negative, a
 * head count that does not divide, more than 10,000 layers, 2^40 for a size. `where` names the file. */
apr_status apr_hparams_complete(apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err);

/* llama 3's scaling as divisors of the frequencies, for rope->kind APR_ROPE_LLAMA3: what frequency i (of rotary_dim / 2) is
 * divided by. */
double apr_rope_divisor(const apr_rope_scaling *rope, double theta, int64_t rotary_dim, int64_t i);

#endif
