/* family.h - one card a model family: everything that sets it apart, as data, in one place.
 *
 * Who reads which part: formats/hf the configuration, formats/gguf what ggml supposes, convert/ the names and row orders,
 * quant/ the purposes. A new family is one file in formats/model/families/ and one line in APR_FAMILY_LIST;
 * its forward pass is a page in runtime/program/families/ (see runtime/program/families.h).
 *
 * 0, false and NULL mean "nothing particular": the usual rule holds. All cards and texts are static. */
#ifndef APR_FORMATS_FAMILY_H
#define APR_FORMATS_FAMILY_H

#include "formats/model/tensor_rules.h"

/* --- configuration: what transformers' class supposes where a config.json is silent --- */

/* Which layers attend within sliding_window when there are no layer_types. */
typedef enum {
    APR_WINDOW_NONE,
    APR_WINDOW_ALL,
    APR_WINDOW_EVEN,       /* layers 0, 2, 4, ... */
    APR_WINDOW_FROM_LAYER, /* from max_window_layers on, and none at all unless use_sliding_window is true */
    APR_WINDOW_PATTERN,    /* each sliding_window_pattern-th layer attends to everything; absent: each full_every-th */
    APR_WINDOW_CHUNKS      /* layers with positions attend within attention_chunk_size (llama4) */
} apr_window_rule;

/* Which layers have experts, where a model has any. */
typedef enum {
    APR_EXPERTS_EVERYWHERE,
    APR_EXPERTS_BEHIND_DENSE, /* mlp_layer_types, or behind the first `dense_key` layers */
    APR_EXPERTS_BY_STEP,      /* each decoder_sparse_step-th layer but mlp_only_layers */
    APR_EXPERTS_LISTED,       /* moe_layers, or each interleave_moe_layer_step-th */
    APR_EXPERTS_IN_RANGE,     /* moe_layer_start_index to moe_layer_end_index, each moe_layer_interval-th */
    APR_EXPERTS_BY_BLOCK      /* a layer is one block: mixer or feed-forward (nemotron_h's layers_block_type) */
} apr_experts_rule;

/* Which layers' attention has rotary positions. */
typedef enum {
    APR_POSITIONS_EVERYWHERE,
    APR_POSITIONS_LISTED,      /* no_rope_layers (1: has them), or all but each no_rope_layer_interval-th, or fourth */
    APR_POSITIONS_SLIDING,     /* sliding layers */
    APR_POSITIONS_WHEN_STATED, /* position_embedding_type "rope" */
    APR_POSITIONS_NOWHERE
} apr_positions_rule;

typedef enum {
    APR_BIAS_NEVER,          /* the class has none, whatever config.json says */
    APR_BIAS_WHEN_STATED,    /* attention_bias: q, k, v and o; mlp_bias: gate, up and down */
    APR_BIAS_QKV_ALWAYS,     /* q, k and v, without a field for it */
    APR_BIAS_QKV_WHEN_STATED /* attention_bias: q, k and v */
} apr_bias_rule;

/* What a field of APR_HPARAM_LIST or APR_HFLAG_LIST is called in this family's config.json. The first spelling of a field is the one
 * that is written ("": none is). A name that spells one field here is not read as another that usually has it. */
typedef struct apr_spelling {
    const char *field, *hf_key; /* "num_experts", "num_local_experts" */
} apr_spelling;

/* What the class supposes of a number that config.json leaves out. */
typedef struct apr_default {
    const char *field; /* of APR_HPARAM_LIST */
    double value;
} apr_default;

/* Words that a text in config.json may be: what this family computes. */
typedef struct apr_accepted {
    const char *hf_key, *words; /* "scoring_func", " sigmoid " */
} apr_accepted;

/* The rotary scaling of a class where config.json has neither rope_parameters nor rope_scaling. */
typedef struct apr_family_rope {
    double theta, temperature; /* attn_temperature; its length is the original context */
    apr_rope_scaling scaling;
} apr_family_rope;

enum { APR_MAX_SPELLINGS = 16, APR_MAX_DEFAULTS = 24, APR_MAX_ACCEPTED = 4 };

typedef struct apr_family_config {
    const char *activation, *activation_key; /* NULL: "hidden_act"; "": the class has no field for it */
    const char *layer_types;                 /* the words that layer_types may be; NULL: " full_attention sliding_attention " */
    bool mamba;                              /* "linear_attention" are Mamba layers */
    apr_window_rule window;
    apr_experts_rule experts;
    apr_positions_rule positions;
    apr_bias_rule attention_bias, mlp_bias;
    apr_spelling spellings[APR_MAX_SPELLINGS]; /* the first without a field ends them; so below */
    bool ff_is_expert;                         /* intermediate_size is the width of one expert */
    bool local_rope;                           /* sliding layers have a rotary base of their own */
    bool latent_part;                          /* the class is told which part of a head of latent attention turns */
    /* Fields of config.json that change the arithmetic, " a b " or NULL. `computes`: refused in other families, done (or planned) in
     * this one. `refuses`: done or meaningless elsewhere, and refused here. `requires`: must not be false. */
    const char *computes, *refuses, *requires;
    apr_accepted accepts[APR_MAX_ACCEPTED];
    const char *flags_on;     /* flags of APR_HFLAG_LIST that are true where config.json leaves them out */
    const char *flags_always; /* those that are, whatever it says */
    const char *flags_shown;  /* and those that tensors show where no config.json came along */
    /* Defaults of fields that are absent; 0: none, or the general rule of apr_hparams_complete */
    int64_t num_kv_heads, head_dim, max_position_embeddings, sliding_window, max_window_layers, full_every;
    double rms_norm_eps, rope_theta, partial_rotary_factor;
    apr_default defaults[APR_MAX_DEFAULTS];
    const apr_family_rope *rope;
    const char *dense_key; /* APR_EXPERTS_BEHIND_DENSE: "first_k_dense_replace" */
    int64_t n_dense;       /* and its default */
} apr_family_config;

/* --- what ggml supposes of the architecture without being told, and which keys llama.cpp's converter writes --- */

/* Under which key the epsilon of norms stands. */
typedef enum {
    APR_EPS_RMS,   /* attention.layer_norm_rms_epsilon */
    APR_EPS_LAYER, /* attention.layer_norm_epsilon */
    APR_EPS_BOTH
} apr_eps_rule;

/* Which attention layers have no rotary embedding: ggml has no key for that. */
typedef enum {
    APR_NOPE_NONE,
    APR_NOPE_FOURTH,           /* layers 3, 7, 11, ... */
    APR_NOPE_FULL,             /* those that attend to everything, where others slide */
    APR_NOPE_UNLESS_FINETUNED, /* all where rope.scaling.finetuned is false */
    APR_NOPE_ALL
} apr_nope_rule;

/* A field of APR_HPARAM_LIST that this architecture has another key for; "": none. */
typedef struct apr_gguf_spelling {
    const char *field, *key; /* "logits_scaling", "logit_scale" */
} apr_gguf_spelling;

enum { APR_MAX_GGUF_SPELLINGS = 2 };

/* Of the cards with one name in ggml the one whose key has a number from `least` to `most`, a missing key being 0. */
typedef struct apr_gguf_choice {
    const char *key; /* behind the architecture; NULL: the card is never chosen but as the first of its name */
    int64_t least, most;
} apr_gguf_choice;

typedef struct apr_family_gguf {
    /* What is written behind "ARCH.", in the converter's order, before and behind general.file_type: " a b! ", the keys of
     * formats/gguf/gguf_words.c; "!" also where the value is 0 or false. NULL: what most have. */
    const char *keys, *more_keys;
    apr_gguf_spelling spellings[APR_MAX_GGUF_SPELLINGS];
    const char *name_without_experts; /* ggml's architecture of models that have none, where it is another */
    apr_gguf_choice chosen_by;
    const apr_hparams *supposes; /* numbers and flags of a file that has no key for them; llama.cpp computes with these */
    int64_t full_every;          /* with a sliding window: each n-th layer attends to everything; 0: the file or nobody says */
    bool chunks;                 /* the others attend within chunks, window or not */
    apr_nope_rule nope;
    apr_eps_rule eps;
    int64_t score_function; /* expert_gating_func: 1 softmax, 2 sigmoid; 0: not written */
    double yarn_log_unit;   /* rope.scaling.yarn_log_multiplier for mscale_all_dim 1; 0: no such key */
    int64_t wide_layers;    /* query_pre_attn_scalar is head_dim, or hidden_size / heads in a model of so many layers; 0: nothing known */
    int64_t experts_without_qk_norm; /* so many experts, and use_qk_norm is false */
    bool has_longrope;               /* rope_factors_*.weight are there when rope.scaling.attn_factor is */
    bool shares_by_count;     /* shared experts are together as wide as so many experts, whatever expert_shared_feed_forward_length says */
    bool shares_one;          /* where there are experts, one more is shared */
    bool qk_norm_in_tensors;  /* use_qk_norm: there are norms of q and k */
    bool no_truncate;         /* YaRN's correction range is not rounded to whole dimensions; GGUF has no key for it */
    bool omits_head_dim;      /* key_length and value_length only where they do not follow from the rest */
    bool writes_sections;     /* rope.dimension_sections of interleaved M-RoPE; for text they do not matter, but must be there */
    bool takes_divisors;      /* llama.cpp looks for rope_freqs.weight */
    bool rotates_pairs;       /* llama.cpp turns neighbouring rows, and q and k are stored so; else halves of a head, as Hugging Face */
    bool rotates_whole_heads; /* llama.cpp refuses fewer dimensions than a head has */
    bool ranks_groups_by_two; /* llama.cpp chooses groups of experts by their two best, the family's class by the best */
    bool has_window;          /* llama.cpp's attention slides */
    bool heads_fill_hidden;   /* llama.cpp has heads of hidden_size / heads only */
} apr_family_gguf;

/* --- the card --- */

/* model_type as config.json has it, and the class that is written when a model does not name its own. */
typedef struct apr_family_type {
    const char *name, *hf_class;
} apr_family_type;

enum { APR_MAX_FAMILY_TYPES = 4 };

typedef struct apr_family {
    const char *name;                            /* "qwen3_5" */
    apr_family_type types[APR_MAX_FAMILY_TYPES]; /* the first is what ggml's name stands for; the first without a name ends them */
    const char *ggml;                            /* ggml's architecture; NULL: none is known */
    const apr_family_config *config;             /* NULL: a config.json gives its numbers and no more */
    apr_family_gguf gguf;
    bool norms_add_one;             /* Hugging Face multiplies with 1 + weight; GGUF has the sum as the weight */
    bool tiles_value_heads;         /* ggml has value heads dealt out in turn, Hugging Face by the key head they share (step.h) */
    const apr_tensor_rule *tensors; /* [n_tensors] of its own: they come before those of the sets */
    size_t n_tensors;
    const apr_tensor_form *forms; /* [n_forms] */
    size_t n_forms;
    const apr_tensor_set *sets[APR_MAX_SETS]; /* the first NULL ends them (formats/model/families/tensor_sets.h) */
    bool translates; /* names and orders are all that differs between the dialects; false: conversion keeps names as they are */
} apr_family;

/* All cards. Where several have the same name in ggml, the first is what it stands for. */
#define APR_FAMILY_LIST(X) \
    X(llama)               \
    X(mistral)             \
    X(mixtral)             \
    X(qwen2)               \
    X(qwen3)               \
    X(qwen2_moe)           \
    X(qwen3_moe)           \
    X(gpt_oss)             \
    X(qwen3_next)          \
    X(qwen3_5)             \
    X(qwen3_5_moe)         \
    X(phi3)                \
    X(gemma)               \
    X(gemma2)              \
    X(gemma3)              \
    X(deepseek_v3)         \
    X(gemma4)              \
    X(granite)             \
    X(granitemoehybrid)    \
    X(nemotron_h)          \
    X(lfm2)                \
    X(lfm2_moe)            \
    X(cohere2)             \
    X(glm4)                \
    X(glm4_moe)            \
    X(glm4_moe_lite)       \
    X(ministral3)          \
    X(mistral4)            \
    X(olmo2)               \
    X(smollm3)             \
    X(seed_oss)            \
    X(ernie4_5_moe)        \
    X(hunyuan_v1_moe)      \
    X(llama4)              \
    X(minimax_m2)          \
    X(deepseek_v2)         \
    X(deepseek_v32)        \
    X(glm_moe_dsa)

#define X(name) extern const apr_family apr_family_##name;
APR_FAMILY_LIST(X)
#undef X

extern const apr_family *const apr_families[];
extern const size_t apr_n_families;

/* By model_type, or by ggml's architecture; NULL when unknown (or the name is NULL). */
const apr_family *apr_family_find(const char *model_type);
const apr_family *apr_family_of_ggml(const char *ggml);
bool apr_family_is_in_ggml(const apr_family *family, const char *ggml);

/* The card of a family whose names and orders are known in both dialects; NULL: they are kept, never guessed. */
const apr_family *apr_family_translated(const char *model_type);
/* NULL when the configuration is not understood. */
const apr_family_config *apr_family_config_of(const char *model_type);
/* What ggml supposes of the family; of one that nobody knows (NULL), nothing. */
const apr_family_gguf *apr_family_gguf_of(const apr_family *family);

/* The model_type as a static text, and its class; NULL when unknown. */
const apr_family_type *apr_family_type_of(const char *model_type);
/* What a field of the tables of hyperparameters is called in a config.json that is written; config NULL: what most call it. */
const char *apr_family_hf_key(const apr_family_config *config, const char *field, const char *usual);
/* Does one of the family's spellings give this name to another field than `field`? */
bool apr_family_key_is_taken(const apr_family_config *config, const char *field, const char *hf_key);
/* What the class supposes of a field (of APR_HPARAM_LIST) that is absent; 0: nothing. */
double apr_family_default(const apr_family_config *config, const char *field);
/* Is `word` one of the words of `list`, " a b "? */
bool apr_has_word(const char *list, const char *word);

/* ggml's architecture name for Hugging Face's and back ("gpt-oss" / "gpt_oss"); the name itself when nothing else is known. */
const char *apr_architecture_from_ggml(const char *ggml);
const char *apr_architecture_to_ggml(const char *model_type);

#endif
