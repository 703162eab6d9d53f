/* family_mamba.c - Mamba 2 alone (mamba2), between attention layers (bamba), and in parallel with attention (falcon_h1). */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"
#include "formats/shape/hf_config_values.h"

#include <stddef.h>

/* The tensors of a Mamba 2 mixer under `place`, "a.": those between its products, and all. */
#define MIXER_INSIDE(place)                                                                                                        \
    {place "conv1d.weight", B "ssm_conv1d.weight", APR_TENSOR_ROLE_SMALL, {APR_CONVOLUTION}},                                      \
        {place "conv1d.bias", B "ssm_conv1d.bias", APR_TENSOR_ROLE_SMALL},                                                         \
        {place "A_log", B "ssm_a", APR_TENSOR_ROLE_SMALL, {APR_DECAY, APR_AS_COLUMN}},                                             \
        {place "D", B "ssm_d", APR_TENSOR_ROLE_SMALL, {APR_AS_COLUMN}}, {place "dt_bias", B "ssm_dt.bias", APR_TENSOR_ROLE_SMALL}, \
    {                                                                                                                              \
        place "norm.weight", B "ssm_norm.weight", APR_TENSOR_ROLE_SMALL,                                                           \
        {                                                                                                                          \
            {                                                                                                                      \
                APR_STEP_UNFOLD, { 0, APR_OF_KEY_HEADS }                                                                           \
            }                                                                                                                      \
        }                                                                                                                          \
    }
#define MIXER(place)                                                                          \
    {place "in_proj.weight", B "ssm_in.weight", APR_TENSOR_ROLE_MATRIX}, MIXER_INSIDE(place), \
    {                                                                                         \
        place "out_proj.weight", B "ssm_out.weight", APR_TENSOR_ROLE_MATRIX                   \
    }

#define B "blk.{}."

#define MAMBA_KEYS                                                                                                            \
    {                                                                                                                         \
        APR_KEY(max_position_embeddings), APR_KEY(hidden_size), APR_KEY_ALWAYS(intermediate_size), APR_KEY_ALWAYS(num_heads), \
            APR_KEY(num_layers), APR_KEY(linear_conv_kernel_dim), APR_KEY(inner_size), APR_KEY(linear_key_head_dim),          \
            APR_KEY(linear_num_value_heads), APR_KEY(linear_num_key_heads), APR_KEY(rms_norm_eps)                             \
    }

/* --- mamba2 --- */

static const apr_tensor_rule mamba2_tensors[] = {
    {"backbone.embeddings.weight", "token_embd.weight", APR_TENSOR_ROLE_EMBEDDING},
    {"backbone.norm_f.weight", "output_norm.weight", APR_TENSOR_ROLE_SMALL},
    {"lm_head.weight", "output.weight", APR_TENSOR_ROLE_HEAD},
    {"backbone.layers.{}.norm.weight", B "attn_norm.weight", APR_TENSOR_ROLE_SMALL},
    MIXER("backbone.layers.{}.mixer."),
    {"backbone.layers.{}.mixer.in_proj.bias", NULL, APR_TENSOR_ROLE_SMALL},
    {"backbone.layers.{}.mixer.out_proj.bias", NULL, APR_TENSOR_ROLE_SMALL},
};

static const apr_family_config mamba2 = {.activation = "silu",
                                         .layer_types = APR_NAMES("mamba"),
                                         .mamba = true,
                                         .positions = APR_POSITIONS_NOWHERE,
                                         .spellings = {{APR_FIELD(rms_norm_eps), "layer_norm_epsilon"},
                                                       {APR_FIELD(linear_num_value_heads), "num_heads"},
                                                       {APR_FIELD(linear_value_head_dim), "head_dim"},
                                                       {APR_FIELD(linear_num_key_heads), "n_groups"},
                                                       {APR_FIELD(linear_key_head_dim), "state_size"},
                                                       {APR_FIELD(linear_conv_kernel_dim), "conv_kernel"},
                                                       {APR_FIELD(rope_theta), ""}},
                                         .max_position_embeddings = 1 << 20,
                                         .rms_norm_eps = 1e-5,
                                         .defaults = {.vocab_size = 32768,
                                                      .linear_num_value_heads = 128,
                                                      .linear_value_head_dim = 64,
                                                      .linear_num_key_heads = 8,
                                                      .linear_key_head_dim = 128,
                                                      .linear_conv_kernel_dim = 4}};

const apr_family apr_family_mamba2 = {.name = "mamba2",
                                      .types = {{"mamba2", "Mamba2ForCausalLM"}},
                                      .ggml = "mamba2",
                                      .gguf = {.keys = MAMBA_KEYS, .more_keys = {APR_NO_KEYS}, .nope = APR_NOPE_ALL, .all_mamba = true},
                                      .config = &mamba2,
                                      APR_OWN_TENSORS(mamba2_tensors),
                                      .translates = true};

/* --- bamba: a dense feed-forward in every layer; attention rotates half of each head. llama.cpp runs it as granitehybrid and rotates
 * adjacent rows, so that in GGUF the rotated rows of a head are pairs. (Its converter reorders whole heads; a file that it made has another
 * order than its program, and than this rule.) --- */

#define L "model.layers.{}."

/* The tensors of both families but those of attention. ffn_norm: ggml's name; gate, down: what the matrices are multiplied by. */
#define HYBRID(ffn_norm, gate, down)                                                                \
    {"model.final_layernorm.weight", "output_norm.weight", APR_TENSOR_ROLE_SMALL},                  \
        {L "pre_ff_layernorm.weight", B ffn_norm, APR_TENSOR_ROLE_SMALL},                           \
        {L "feed_forward.gate_proj.weight", B "ffn_gate.weight", APR_TENSOR_ROLE_FFN_GATE, {gate}}, \
        {L "feed_forward.gate_proj.bias", B "ffn_gate.bias", APR_TENSOR_ROLE_SMALL, {gate}},        \
        {L "feed_forward.up_proj.weight", B "ffn_up.weight", APR_TENSOR_ROLE_FFN_UP},               \
        {L "feed_forward.up_proj.bias", B "ffn_up.bias", APR_TENSOR_ROLE_SMALL},                    \
        {L "feed_forward.down_proj.weight", B "ffn_down.weight", APR_TENSOR_ROLE_FFN_DOWN, {down}}, \
    {                                                                                               \
        L "feed_forward.down_proj.bias", B "ffn_down.bias", APR_TENSOR_ROLE_SMALL, { down }         \
    }
#define NO_FACTOR \
    {             \
        0         \
    }
#define FACTOR(name)                                  \
    {                                                 \
        APR_STEP_MULTIPLY, { APR_OF_##name##_FACTOR } \
    }
#define ROTATED(heads)                                            \
    {                                                             \
        APR_STEP_PART_TO_PAIRS, { APR_OF_##heads, APR_OF_ROTARY } \
    }

static const apr_tensor_rule bamba_tensors[] = {
    HYBRID("ffn_norm.weight", NO_FACTOR, NO_FACTOR),
    MIXER(L "mamba."),
    {L "self_attn.q_proj.weight", B "attn_q.weight", APR_TENSOR_ROLE_ATTN_Q, {ROTATED(HEADS)}},
    {L "self_attn.q_proj.bias", B "attn_q.bias", APR_TENSOR_ROLE_SMALL, {ROTATED(HEADS)}},
    {L "self_attn.k_proj.weight", B "attn_k.weight", APR_TENSOR_ROLE_ATTN_K, {ROTATED(KV_HEADS)}},
    {L "self_attn.k_proj.bias", B "attn_k.bias", APR_TENSOR_ROLE_SMALL, {ROTATED(KV_HEADS)}},
};

#define MAMBA_SPELLINGS                                                                                        \
    {APR_FIELD(linear_num_value_heads), "mamba_n_heads"}, {APR_FIELD(linear_num_key_heads), "mamba_n_groups"}, \
        {APR_FIELD(linear_key_head_dim), "mamba_d_state"}, {APR_FIELD(linear_value_head_dim), "mamba_d_head"}, \
    {                                                                                                          \
        APR_FIELD(linear_conv_kernel_dim), "mamba_d_conv"                                                      \
    }
#define MAMBA_DEFAULTS                                                                                                           \
    .num_heads = 32, .intermediate_size = 14336, .vocab_size = 128000, .linear_num_value_heads = 128, .linear_num_key_heads = 1, \
    .linear_key_head_dim = 256, .linear_conv_kernel_dim = 4

static const apr_family_config bamba = {.activation = "silu",
                                        .layer_types = APR_NAMES("linear_attention", "full_attention", "mamba", "attention"),
                                        .mamba = true,
                                        .numbers_attention = true,
                                        .attention_bias = APR_BIAS_WHEN_STATED,
                                        .mlp_bias = APR_BIAS_WHEN_STATED,
                                        .spellings = {MAMBA_SPELLINGS},
                                        .computes = APR_NAMES("mlp_bias"),
                                        .num_kv_heads = 8,
                                        .max_position_embeddings = 262144,
                                        .rms_norm_eps = 1e-5,
                                        .partial_rotary_factor = 0.5,
                                        .defaults = {MAMBA_DEFAULTS}};

const apr_family apr_family_bamba = {
    .name = "bamba",
    .types = {{"bamba", "BambaForCausalLM"}},
    .ggml = "granitehybrid",
    .gguf = {.more_keys = {APR_KEY(vocab_size), APR_KEY(rotary_dim), APR_KEY(linear_conv_kernel_dim), APR_KEY(linear_key_head_dim),
                           APR_KEY(linear_num_key_heads), APR_KEY(inner_size), APR_KEY(linear_num_value_heads), APR_KEY(finetuned)},
             .nope = APR_NOPE_UNLESS_FINETUNED,
             .omits_head_dim = true,
             .rotates_pairs = true},
    .config = &bamba,
    APR_OWN_TENSORS(bamba_tensors),
    .sets = {&apr_tensors_ends, &apr_tensors_attention},
    .translates = true};

/* --- falcon_h1: multipliers. GGUF has the weights times these, as float32, and a model that is read from there has none. --- */

/* Rows [first, first + count) of in_proj. */
#define SECTION(name, first, count)                                 \
    {                                                               \
        APR_STEP_MULTIPLY, { APR_OF_##name##_FACTOR, first, count } \
    }

static const apr_tensor_rule falcon_h1_tensors[] = {
    {"model.embed_tokens.weight", "token_embd.weight", APR_TENSOR_ROLE_EMBEDDING, {FACTOR(EMBEDDING)}},
    {"lm_head.weight", "output.weight", APR_TENSOR_ROLE_HEAD, {FACTOR(LOGIT)}},
    HYBRID("ffn_norm", FACTOR(GATE), FACTOR(DOWN)),
    {L "mamba.in_proj.weight",
     B "ssm_in.weight",
     APR_TENSOR_ROLE_MATRIX,
     {FACTOR(SSM_IN), SECTION(Z, 0, APR_OF_VALUES), SECTION(X, APR_OF_VALUES, APR_OF_VALUES), SECTION(B, APR_OF_TWICE_VALUES, APR_OF_KEYS),
      SECTION(C, APR_OF_C_PLACE, APR_OF_KEYS), SECTION(DT, APR_OF_DT_PLACE, APR_OF_VALUE_HEADS)}},
    {L "mamba.out_proj.weight", B "ssm_out.weight", APR_TENSOR_ROLE_MATRIX, {FACTOR(SSM_OUT)}},
    MIXER_INSIDE(L "mamba."),
    {L "self_attn.q_proj.weight", B "attn_q.weight", APR_TENSOR_ROLE_ATTN_Q, {FACTOR(ATTENTION_IN)}},
    {L "self_attn.k_proj.weight", B "attn_k.weight", APR_TENSOR_ROLE_ATTN_K, {FACTOR(KEY), FACTOR(ATTENTION_IN)}},
    {L "self_attn.k_proj.bias", B "attn_k.bias", APR_TENSOR_ROLE_SMALL, {FACTOR(KEY)}},
    {L "self_attn.v_proj.weight", B "attn_v.weight", APR_TENSOR_ROLE_ATTN_V, {FACTOR(ATTENTION_IN)}},
    {L "self_attn.o_proj.weight", B "attn_output.weight", APR_TENSOR_ROLE_ATTN_OUT, {FACTOR(ATTENTION_OUT)}},
    {L "self_attn.o_proj.bias", B "attn_output.bias", APR_TENSOR_ROLE_SMALL, {FACTOR(ATTENTION_OUT)}},
};

static const struct multiplier_list {
    const char *key;
    int n;
    size_t at[5]; /* of doubles in apr_hparams */
} multiplier_lists[] = {
    {"ssm_multipliers",
     5,
     {offsetof(apr_hparams, ssm_z_multiplier), offsetof(apr_hparams, ssm_x_multiplier), offsetof(apr_hparams, ssm_b_multiplier),
      offsetof(apr_hparams, ssm_c_multiplier), offsetof(apr_hparams, ssm_dt_multiplier)}},
    {"mlp_multipliers", 2, {offsetof(apr_hparams, mlp_gate_multiplier), offsetof(apr_hparams, mlp_down_multiplier)}},
};

/* A list of numbers; absent or null: all are 1. */
static apr_status read_multipliers(const apr_config_reading *r, const struct multiplier_list *l)
{
    const cJSON *const list = apr_config_find(r, l->key), *item;
    const size_t *at = l->at;

    if (list == NULL) return APR_OK;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != l->n)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: \"%s\" is not a list of %d numbers", r->where, l->key, l->n);
    cJSON_ArrayForEach(item, list) APR_TRY(apr_config_real(r, item, l->key, (double *)(void *)((char *)r->h + *at++)));
    return APR_OK;
}

static apr_status settle_falcon_h1(const apr_config_reading *r)
{
    apr_hparams *const h = r->h;
    int64_t inner = 0;

    for (size_t k = 0; k < sizeof multiplier_lists / sizeof *multiplier_lists; k++) APR_TRY(read_multipliers(r, &multiplier_lists[k]));
    APR_TRY(apr_config_int(r, "mamba_d_ssm", &inner));
    if (inner > 0 && h->linear_value_head_dim == 0 && h->linear_num_value_heads > 0)
        h->linear_value_head_dim = inner / h->linear_num_value_heads;
    return inner > 0 && inner != h->linear_value_head_dim * h->linear_num_value_heads
               ? apr_config_refuse(r, "its \"mamba_d_ssm\" is %lld, and not mamba_n_heads times mamba_d_head", (long long)inner)
               : APR_OK;
}

static void put_multipliers(apr_json_text *out, const apr_hparams *h)
{
    for (size_t k = 0; k < sizeof multiplier_lists / sizeof *multiplier_lists; k++) {
        const struct multiplier_list *const l = &multiplier_lists[k];
        apr_json_open(out, l->key, '[');
        for (int i = 0; i < l->n; i++) {
            const double value = *(const double *)(const void *)((const char *)h + l->at[i]);
            apr_json_real(out, NULL, value > 0 ? value : 1);
        }
        apr_json_close(out, ']');
    }
    apr_json_int(out, "mamba_d_ssm", h->linear_num_value_heads * h->linear_value_head_dim);
}

static const apr_family_config falcon_h1 = {.activation = "silu",
                                            .layer_types = APR_NAMES("full_attention", "hybrid"),
                                            .attention_bias = APR_BIAS_WHEN_STATED,
                                            .mlp_bias = APR_BIAS_WHEN_STATED,
                                            .spellings = {MAMBA_SPELLINGS, {APR_FIELD(logit_scale), "lm_head_multiplier"}},
                                            .computes =
                                                APR_NAMES("mlp_bias", "embedding_multiplier", "key_multiplier", "attention_in_multiplier",
                                                          "attention_out_multiplier", "mlp_multipliers", "ssm_multipliers",
                                                          "ssm_in_multiplier", "ssm_out_multiplier", "mamba_rms_norm", "projectors_bias"),
                                            .flags_on = APR_FLAG(mamba_norm_before_gate),
                                            .num_kv_heads = 8,
                                            .max_position_embeddings = 8192,
                                            .rms_norm_eps = 1e-5,
                                            .defaults = {MAMBA_DEFAULTS},
                                            .settle = settle_falcon_h1,
                                            .put_own = put_multipliers};

const apr_family apr_family_falcon_h1 = {
    .name = "falcon_h1",
    .types = {{"falcon_h1", "FalconH1ForCausalLM"}},
    .ggml = "falcon-h1",
    .gguf = {.keys = MAMBA_KEYS,
             .more_keys = {APR_KEY(vocab_size), APR_KEY(num_kv_heads), APR_KEY(head_dim), APR_KEY(value_length), APR_KEY(rope_theta)},
             .folds_multipliers = true,
             .ssm_norm_in_tensors = true},
    .config = &falcon_h1,
    APR_OWN_TENSORS(falcon_h1_tensors),
    .sets = {&apr_tensors_ends, &apr_tensors_attention},
    .translates = true};
