/* family.h - one spec per model family: everything that is particular to the family, as data, in one place.
 *
 * Readers of a spec: formats/hf (the configuration), formats/gguf (ggml's assumptions and keys), convert/ (names and row orders), quant/
 * (roles of tensors). A new family is one file in formats/shape/families/ and one line in APR_FAMILY_LIST. Its forward pass is an
 * architecture in runtime/program/families/ (see runtime/program/families.h).
 *
 * 0, false and NULL mean that the usual rule holds. All specs and strings are static. */
#ifndef APR_FORMATS_FAMILY_H
#define APR_FORMATS_FAMILY_H

#include "formats/base/text.h"
#include "formats/shape/tensor_rules.h"

struct apr_config_reading;
struct apr_json_text;
struct apr_hparams;

/* --- configuration: the defaults of transformers' class where config.json states nothing --- */

/* Which layers use sliding-window attention when config.json has no layer_types. */
typedef enum {
    APR_WINDOW_NONE,
    APR_WINDOW_ALL,
    APR_WINDOW_EVEN,       /* layers 0, 2, 4, ... */
    APR_WINDOW_FROM_LAYER, /* from max_window_layers on, and only if use_sliding_window is true */
    APR_WINDOW_LAST,       /* from max_window_layers on */
    APR_WINDOW_PATTERN,    /* each sliding_window_pattern-th layer has full attention; without that field each full_every-th */
    APR_WINDOW_CHUNKS      /* layers with positions attend within attention_chunk_size (llama4) */
} apr_window_rule;

/* Which layers have experts, in a model that has any. */
typedef enum {
    APR_EXPERTS_EVERYWHERE,
    APR_EXPERTS_AFTER_DENSE, /* mlp_layer_types, or all layers after the first `dense_key` layers */
    APR_EXPERTS_BY_STEP,     /* each decoder_sparse_step-th layer, except mlp_only_layers */
    APR_EXPERTS_LISTED,      /* moe_layers, or each interleave_moe_layer_step-th */
    APR_EXPERTS_IN_RANGE,    /* moe_layer_start_index to moe_layer_end_index, each moe_layer_interval-th */
    APR_EXPERTS_BY_BLOCK     /* a layer is either a mixer or a feed-forward (nemotron_h's layers_block_type) */
} apr_experts_rule;

/* Which attention layers have rotary positions. */
typedef enum {
    APR_POSITIONS_EVERYWHERE,
    APR_POSITIONS_LISTED, /* no_rope_layers (1: has them), or all but each no_rope_layer_interval-th; without either, all but each fourth */
    APR_POSITIONS_SLIDING,     /* sliding layers only */
    APR_POSITIONS_WINDOW,      /* sliding layers only, or all where the model has no window */
    APR_POSITIONS_WHEN_STATED, /* position_embedding_type "rope" */
    APR_POSITIONS_NOWHERE,
    APR_POSITIONS_LEARNED /* none is rotated: positions have embeddings, which are added to those of the tokens */
} apr_positions_rule;

typedef enum {
    APR_BIAS_NEVER,          /* the class has none, whatever config.json says */
    APR_BIAS_WHEN_STATED,    /* attention_bias: q, k, v and o; mlp_bias: gate, up and down */
    APR_BIAS_ALWAYS,         /* all of them; config.json has no field for it */
    APR_BIAS_QKV_ALWAYS,     /* q, k and v; config.json has no field for it */
    APR_BIAS_QKV_WHEN_STATED /* attention_bias: q, k and v */
} apr_bias_rule;

/* APR_FIELD(rope_theta): a field of either list, the numbers first. */
#define APR_FIELD(field) APR_FIELD_##field
typedef enum apr_field {
    APR_NO_FIELD,
#define X(field, type, hf, gguf) APR_FIELD(field),
    APR_HPARAM_LIST(X)
#undef X
#define X(field, hf, gguf) APR_FIELD(field),
        APR_HFLAG_LIST(X)
#undef X
            APR_FIRST_NUMBER = APR_NO_FIELD + 1,
    APR_FIRST_FLAG = APR_FIRST_NUMBER + APR_N_NUMBERS
} apr_field;

/* The name of a field in this family's config.json. Of several spellings of a field the first is
 * written ("": the field is not written). A key that spells one field here is not read as the field that usually has that key. */
typedef struct apr_spelling {
    apr_field field;
    const char *hf_key; /* APR_FIELD(num_experts), "num_local_experts" */
} apr_spelling;

/* The values of a string field of config.json that this family computes; any other value is refused. */
typedef struct apr_accepted {
    const char *hf_key;
    const char *const *words; /* "scoring_func", APR_NAMES("sigmoid") */
} apr_accepted;

/* The class's default rotary scaling, where config.json has neither rope_parameters nor rope_scaling. */
typedef struct apr_family_rope {
    double theta, temperature; /* temperature: attn_temperature; attn_temperature_length is the original context */
    apr_rope_scaling scaling;
} apr_family_rope;

enum { APR_MAX_SPELLINGS = 16, APR_MAX_ACCEPTED = 4 };

typedef struct apr_family_config {
    const char *activation, *activation_key; /* NULL: "hidden_act"; "": the class has no field for it */
    const char *const *layer_types;          /* the values that layer_types may have; NULL: "full_attention", "sliding_attention" */
    bool mamba;                              /* "linear_attention" layers are Mamba layers */
    bool numbers_attention;                  /* attn_layer_indices has the numbers of the attention layers; layer_types is not written */
    apr_window_rule window;
    apr_experts_rule experts;
    apr_positions_rule positions;
    bool shares_index; /* layers may attend to the positions that an earlier layer's index chose: indexer_types, or a pattern of them */
    apr_bias_rule attention_bias, mlp_bias;
    apr_spelling spellings[APR_MAX_SPELLINGS]; /* an entry without a field ends the list; the same holds for the lists below */
    bool ff_is_expert;                         /* intermediate_size is the width of one expert */
    bool local_rope;                           /* sliding layers have their own rotary base */
    bool scales_full_only;                     /* the rotary scaling is for full layers; sliding ones have the base alone */
    bool latent_part;                          /* config.json states which part of a latent attention head is rotated */
    /* Fields of config.json that change the arithmetic, APR_NAMES("a", "b") or NULL. `computes`: computed (or planned) for this family, refused for
     * others. `refuses`: refused here, but computed or meaningless in other families. `requires`: must not be false. */
    const char *const *computes, *const *refuses, *const *requires;
    apr_accepted accepts[APR_MAX_ACCEPTED];
    apr_flags flags_on;     /* default to true */
    apr_flags flags_always; /* are true whatever config.json says */
    apr_flags flags_shown;  /* without a config.json, the tensors decide them */
    /* Defaults of absent fields; 0: none, or the general rule of apr_hparams_complete */
    int64_t num_kv_heads, head_dim, max_position_embeddings, sliding_window, max_window_layers, full_every;
    double rms_norm_eps, rope_theta, partial_rotary_factor;
    apr_hparams defaults; /* its numbers */
    const apr_family_rope *rope;
    const char *dense_key; /* APR_EXPERTS_AFTER_DENSE: "first_k_dense_replace" */
    int64_t n_dense;       /* default of dense_key */
    /* What the class derives from fields of its own; NULL: nothing. After the numbers have been read, after the kinds of the layers, and
     * when a config.json is written (formats/shape/hf_config_values.h). */
    apr_status (*settle)(const struct apr_config_reading *r);
    apr_status (*settle_layers)(const struct apr_config_reading *r);
    void (*put_own)(struct apr_json_text *out, const struct apr_hparams *h);
} apr_family_config;

/* --- what ggml assumes of the architecture without a key, and which keys llama.cpp's converter writes --- */

/* Which key holds the epsilon of the norms. */
typedef enum {
    APR_EPS_RMS,   /* attention.layer_norm_rms_epsilon */
    APR_EPS_LAYER, /* attention.layer_norm_epsilon */
    APR_EPS_BOTH
} apr_eps_rule;

/* Which attention layers have no rotary embedding. ggml has no key for it. */
typedef enum {
    APR_NOPE_NONE,
    APR_NOPE_FOURTH,           /* layers 3, 7, 11, ... */
    APR_NOPE_FULL,             /* full-attention layers, in models with sliding layers */
    APR_NOPE_UNLESS_FINETUNED, /* all layers, if rope.scaling.finetuned is false */
    APR_NOPE_ALL
} apr_nope_rule;

/* X(name, key): GGUF's keys without the "ARCH." prefix, beyond those of APR_HPARAM_LIST and APR_HFLAG_LIST. */
#define APR_GGUF_KEY_LIST(X)                                           \
    X(activation_sparsity_scale, "activation_sparsity_scale")          \
    X(key_length_mla, "attention.key_length_mla")                      \
    X(key_length_swa, "attention.key_length_swa")                      \
    X(value_length, "attention.value_length")                          \
    X(value_length_swa, "attention.value_length_swa")                  \
    X(layer_norm_epsilon, "attention.layer_norm_epsilon")              \
    X(sliding_window_pattern, "attention.sliding_window_pattern")      \
    X(indexer_types, "attention.indexer.types")                        \
    X(expert_gating_func, "expert_gating_func")                        \
    X(interleave_moe_layer_step, "interleave_moe_layer_step")          \
    X(leading_dense_block_count, "leading_dense_block_count")          \
    X(inner_size, "ssm.inner_size")                                    \
    X(dimension_count_swa, "rope.dimension_count_swa")                 \
    X(dimension_sections, "rope.dimension_sections")                   \
    X(scaling, "rope.scaling") /* a group of the following keys */     \
    X(scaling_type, "rope.scaling.type")                               \
    X(scaling_factor, "rope.scaling.factor")                           \
    X(attn_factor, "rope.scaling.attn_factor")                         \
    X(original_context_length, "rope.scaling.original_context_length") \
    X(yarn_beta_fast, "rope.scaling.yarn_beta_fast")                   \
    X(yarn_beta_slow, "rope.scaling.yarn_beta_slow")                   \
    X(yarn_attn_factor, "rope.scaling.yarn_attn_factor")               \
    X(yarn_log_multiplier, "rope.scaling.yarn_log_multiplier")         \
    X(finetuned, "rope.scaling.finetuned")

/* APR_KEY(num_layers): the GGUF key of that field, or of that name in APR_GGUF_KEY_LIST. */
#define APR_KEY(name)        APR_KEY_##name
#define APR_KEY_ALWAYS(name) (APR_KEY_##name | APR_KEY_EVEN_ZERO) /* written even if the value is 0 or false */
enum {
    APR_KEYS_END, /* ends a list */
#define X(field, type, hf, gguf) APR_KEY(field),
    APR_HPARAM_LIST(X)
#undef X
#define X(field, hf, gguf) APR_KEY(field),
        APR_HFLAG_LIST(X)
#undef X
#define X(name, key) APR_KEY(name),
            APR_GGUF_KEY_LIST(X)
#undef X
                APR_NO_KEYS, /* a list that is empty, where an absent one is not */
    APR_FIRST_NUMBER_KEY = APR_KEYS_END + 1,
    APR_FIRST_FLAG_KEY = APR_FIRST_NUMBER_KEY + APR_N_NUMBERS,
    APR_KEY_EVEN_ZERO = 1 << 15
};

/* This architecture's own name for a key; "": it has none. */
typedef struct apr_gguf_spelling {
    uint16_t key;
    const char *name; /* APR_KEY(logits_scaling), "logit_scale" */
} apr_gguf_spelling;

enum { APR_MAX_GGUF_SPELLINGS = 2, APR_MAX_GGUF_KEYS = 32 };

/* Chooses among specs with the same ggml name: the one whose key holds a number from `least` to `most`. A missing key counts as 0. */
typedef struct apr_gguf_choice {
    uint16_t key; /* 0: the spec is chosen only as the first one of its name */
    int64_t least, most;
} apr_gguf_choice;

typedef struct apr_family_gguf {
    /* GGUF keys in the order of llama.cpp's converter, each an APR_KEY: `keys` before general.file_type, `more_keys` after it. Without a
     * list the usual keys are written. */
    uint16_t keys[APR_MAX_GGUF_KEYS], more_keys[APR_MAX_GGUF_KEYS];
    apr_gguf_spelling spellings[APR_MAX_GGUF_SPELLINGS];
    const char *name_without_experts; /* ggml's architecture name for models without experts, where it differs */
    apr_gguf_choice chosen_by;
    const apr_hparams *assumes; /* values of hyperparameters that a file has no key for; llama.cpp computes with them */
    const apr_hparams *fixed;   /* values that llama.cpp computes with, whatever the keys say; fields that are 0 are not fixed */
    int64_t own_kv_layers;      /* with `fixed`: in llama.cpp the first layers, this many, have keys and values of their own */
    int64_t full_every;         /* with a sliding window: each n-th layer has full attention; 0: stated by the file, or not at all */
    bool chunks;                /* the other layers attend within chunks, with or without a window */
    apr_nope_rule nope;
    apr_eps_rule eps;
    int64_t score_function; /* expert_gating_func: 1 softmax, 2 sigmoid; 0: not written */
    double yarn_log_unit;   /* rope.scaling.yarn_log_multiplier for mscale_all_dim 1; 0: no such key */
    int64_t wide_layers;    /* query_pre_attn_scalar: with this many layers hidden_size / heads, otherwise head_dim; 0: not known */
    int64_t experts_without_qk_norm; /* models with this many experts have use_qk_norm false */
    bool lists_widths;               /* feed_forward_length is a list, one for each layer, also where all are the same */
    bool has_longrope;               /* the file has rope_factors_*.weight when it has rope.scaling.attn_factor */
    bool shares_by_count;            /* the shared width is count * expert width, whatever expert_shared_feed_forward_length says */
    bool shares_one;                 /* models with experts have one shared expert */
    bool folds_multipliers;          /* the file has the weights times the model's multipliers, and no key for these */
    bool ssm_norm_in_tensors;        /* mamba_rms_norm is true if the file has norms of Mamba's outputs, after the gate */
    bool qk_norm_in_tensors;         /* use_qk_norm is true if the file has norms of q and k */
    bool no_truncate;                /* YaRN's correction range is not rounded to whole dimensions; GGUF has no key for it */
    bool omits_head_dim;             /* key_length and value_length are written only where they do not follow from other keys */
    bool writes_sections;  /* writes rope.dimension_sections also where the model does not state them: in near thirds, as interleaved
                           * M-RoPE has them. Text does not use them, but llama.cpp requires the key */
    bool reads_rope_freqs; /* llama.cpp reads rope_freqs.weight */
    bool rotates_pairs; /* llama.cpp rotates adjacent rows, and q and k are stored so; otherwise it rotates half-heads, as Hugging Face */
    bool rotates_whole_heads; /* llama.cpp refuses a rotary dimension smaller than the head */
    bool ranks_groups_by_two; /* llama.cpp ranks expert groups by their two best scores, the family's class by the best one */
    bool channel_delta;       /* linear layers have attention's heads, with keys as wide as values; no key states their number */
    bool shares_index;        /* layers may share an index; files that do not list them share as llama.cpp assumes */
    bool all_mamba;           /* all layers are Mamba layers, and no key says so */
    bool approximates_gelu;   /* llama.cpp computes GELU by its tanh approximation, the family's class by erf */
    bool has_window;          /* llama.cpp implements the sliding window */
    bool heads_fill_hidden;   /* llama.cpp supports only head_dim = hidden_size / heads */
    bool has_one_base;        /* llama.cpp rotates sliding layers with the base of the others, whatever the file has */
    bool all_heads_have_keys; /* llama.cpp supports only as many key/value heads as heads */
    int64_t qk_norm_layers;   /* llama.cpp expects norms of queries and keys from this number of layers on, and none below; 0: any */
    int64_t window_layers;    /* llama.cpp has the window only in models with this many layers; 0: in all */
    int64_t n_dense;          /* dense layers before those with experts, where the file has no leading_dense_block_count */
} apr_family_gguf;

/* --- the spec --- */

/* model_type of config.json, and the class that is written when a model does not name its own. */
typedef struct apr_family_type {
    const char *name, *hf_class;
} apr_family_type;

enum { APR_MAX_FAMILY_TYPES = 4 };

typedef struct apr_family {
    const char *name;                            /* "qwen3_5" */
    apr_family_type types[APR_MAX_FAMILY_TYPES]; /* types[0] is what ggml's name maps to; the first entry without a name ends the list */
    apr_family_type text_only;       /* what a config.json is written for, where transformers has no class of types[0] without towers */
    const char *ggml;                /* ggml's architecture; NULL: none is known */
    const apr_family_config *config; /* NULL: only the plain numbers of a config.json are read */
    apr_family_gguf gguf;
    bool norms_add_one;             /* Hugging Face multiplies by 1 + weight; GGUF stores 1 + weight */
    bool tiles_value_heads;         /* ggml stores value heads tiled, Hugging Face grouped by the key head they share (step.h) */
    const apr_tensor_rule *tensors; /* [n_tensors] the family's own rules; they are matched before those of the sets */
    size_t n_tensors;
    const apr_tensor_form *forms; /* [n_forms] */
    size_t n_forms;
    const apr_tensor_set *sets[APR_MAX_SETS]; /* the first NULL ends them (formats/shape/families/tensor_sets.h) */
    bool translates; /* all differences between the naming schemes are known; false: conversion keeps the names as they are */
} apr_family;

/* A spec's own rules and forms, with their number. */
#define APR_OWN_TENSORS(rules) .tensors = rules, .n_tensors = sizeof rules / sizeof *rules
#define APR_OWN_FORMS(list)    .forms = list, .n_forms = sizeof list / sizeof *list

/* All specs. Where several share a ggml name, the first one is the default for it. */
#define APR_FAMILY_LIST(X) \
    X(llama)               \
    X(mistral)             \
    X(mixtral)             \
    X(qwen2)               \
    X(qwen3)               \
    X(qwen2_vl)            \
    X(qwen3_vl)            \
    X(qwen3_vl_moe)        \
    X(qwen2_moe)           \
    X(qwen3_moe)           \
    X(gpt_oss)             \
    X(qwen3_next)          \
    X(qwen3_5)             \
    X(qwen3_5_moe)         \
    X(internlm3)           \
    X(iquestcoder)         \
    X(ministral)           \
    X(arcee)               \
    X(phi3)                \
    X(gemma)               \
    X(gemma2)              \
    X(gemma3)              \
    X(deepseek_v3)         \
    X(gemma4)              \
    X(gemma3n)             \
    X(granite)             \
    X(granitemoe)          \
    X(granitemoehybrid)    \
    X(nemotron_h)          \
    X(lfm2)                \
    X(lfm2_moe)            \
    X(cohere2)             \
    X(glm4)                \
    X(glm4_moe)            \
    X(glm4_moe_lite)       \
    X(solar_open)          \
    X(dots1)               \
    X(ministral3)          \
    X(mistral4)            \
    X(olmo2)               \
    X(olmo3)               \
    X(olmoe)               \
    X(mellum)              \
    X(exaone4)             \
    X(exaone_moe)          \
    X(afmoe)               \
    X(smollm3)             \
    X(seed_oss)            \
    X(ernie4_5)            \
    X(ernie4_5_moe)        \
    X(hunyuan_v1_dense)    \
    X(hunyuan_v1_moe)      \
    X(hy_v3)               \
    X(llama4)              \
    X(minimax_m2)          \
    X(deepseek_v2)         \
    X(deepseek_v32)        \
    X(glm_moe_dsa)         \
    X(starcoder2)          \
    X(phi)                 \
    X(gpt_neox)            \
    X(gpt2)                \
    X(opt)                 \
    X(cohere)              \
    X(mamba2)              \
    X(bamba)               \
    X(falcon_h1)           \
    X(kimi_linear)         \
    X(bailing_hybrid)

#define X(name) extern const apr_family apr_family_##name;
APR_FAMILY_LIST(X)
#undef X

extern const apr_family *const apr_families[];
extern const size_t apr_n_families;

/* By model_type, or by ggml's architecture; NULL when unknown or when the name is NULL. */
const apr_family *apr_family_find(const char *model_type);
const apr_family *apr_family_of_ggml(const char *ggml);
bool apr_family_is_in_ggml(const apr_family *family, const char *ggml);

/* The spec of a family whose names and orders are known in both naming schemes. NULL: names are kept as they are, never guessed. */
const apr_family *apr_family_translated(const char *model_type);
/* NULL when the configuration is not understood. */
const apr_family_config *apr_family_config_of(const char *model_type);
/* ggml's assumptions about the family; for NULL (an unknown family) an empty table. */
const apr_family_gguf *apr_family_gguf_of(const apr_family *family);

/* The model_type as a static text, and its class; NULL when unknown. */
const apr_family_type *apr_family_type_of(const char *model_type);

/* Hugging Face's model_type for ggml's architecture name ("gpt_oss" for "gpt-oss"); an unknown name is returned unchanged. */
const char *apr_architecture_from_ggml(const char *ggml);

#endif
