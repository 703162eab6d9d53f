/* family_ministral.c - ministral3 and mistral4: query scale (temperature) grows with the position; mistral4 has latent attention and
 * experts. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

#define YARN(times, original)                                                                                                     \
    .kind = APR_ROPE_YARN, .factor = times, .original_context = original, .beta_fast = 32, .beta_slow = 1, .attention_factor = 1, \
    .mscale = 1, .mscale_all_dim = 1

static const apr_family_rope ministral3_rope = {.theta = 1e6, .temperature = 0.1, .scaling = {YARN(16, 16384)}};

static const apr_family_config ministral3 = {.activation = "silu",
                                             .window = APR_WINDOW_ALL,
                                             .computes = APR_NAMES("llama_4_scaling_beta"),
                                             .refuses = APR_NAMES("attention_bias", "layer_types"),
                                             .num_kv_heads = 8,
                                             .head_dim = 128,
                                             .max_position_embeddings = 262144,
                                             .rms_norm_eps = 1e-5,
                                             .spellings = {{APR_FIELD(attn_temperature), ""}, {APR_FIELD(attn_temperature_length), ""}},
                                             .defaults = {.num_heads = 32, .intermediate_size = 14336, .vocab_size = 131072},
                                             .rope = &ministral3_rope};

const apr_family apr_family_ministral3 = {
    .name = "ministral3",
    .types = {{"ministral3", "Ministral3ForCausalLM"}, {"mistral3", "Mistral3ForConditionalGeneration"}},
    .ggml = "mistral3",
    .gguf = {.more_keys = {APR_KEY(vocab_size), APR_KEY(rotary_dim), APR_KEY(yarn_log_multiplier), APR_KEY(attn_temperature)},
             .yarn_log_unit = 1,
             .rotates_pairs = true},
    .config = &ministral3,
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm, &apr_tensors_dense},
    .translates = true};

static const apr_family_rope mistral4_rope = {.theta = 1e4, .temperature = 0.1, .scaling = {YARN(128, 8192)}};

static const apr_family_config mistral4 = {.activation = "silu",
                                           .latent_part = true,
                                           .experts = APR_EXPERTS_AFTER_DENSE,
                                           .spellings = {{APR_FIELD(num_experts), "n_routed_experts"},
                                                         {APR_FIELD(num_experts), "num_local_experts"},
                                                         {APR_FIELD(head_dim), ""},
                                                         {APR_FIELD(attn_temperature), ""},
                                                         {APR_FIELD(attn_temperature_length), ""}},
                                           .computes = APR_NAMES("llama_4_scaling_beta", APR_LATENT_FIELDS),
                                           .refuses = APR_NAMES("attention_bias"),
                                           .requires = APR_NAMES("rope_interleave"),
                                           .flags_on = APR_FLAG(norm_topk_prob),
                                           .num_kv_heads = 32,
                                           .max_position_embeddings = 1048576,
                                           .rms_norm_eps = 1e-6,
                                           .defaults = {.num_heads = 32,
                                                        .intermediate_size = 12288,
                                                        .vocab_size = 131072,
                                                        .q_lora_rank = 1024,
                                                        .kv_lora_rank = 256,
                                                        .qk_nope_head_dim = 64,
                                                        .qk_rope_head_dim = 64,
                                                        .v_head_dim = 128,
                                                        .num_experts = 128,
                                                        .num_experts_per_tok = 4,
                                                        .moe_intermediate_size = 2048,
                                                        .num_shared_experts = 1,
                                                        .num_expert_groups = 1,
                                                        .num_expert_groups_used = 1,
                                                        .routed_scaling_factor = 1.0},
                                           .rope = &mistral4_rope,
                                           .dense_key = "first_k_dense_replace"};

/* The keys of the temperature belong to Mistral's own format; llama.cpp's converter does not write them for a config.json. */
#define L       "model.layers.{}."
#define B       "blk.{}."
#define EXPERTS L "mlp.experts.*."

/* Both naming schemes stack the experts, with gate and up in one tensor. */
static const apr_tensor_rule fused_experts[] = {
    {L "mlp.gate.weight", B "ffn_gate_inp.weight", APR_TENSOR_ROLE_ROUTER},
    {EXPERTS "gate_proj.weight", NULL, APR_TENSOR_ROLE_FFN_GATE},
    {EXPERTS "up_proj.weight", NULL, APR_TENSOR_ROLE_FFN_UP},
    {EXPERTS "down_proj.weight", B "ffn_down_exps.weight", APR_TENSOR_ROLE_FFN_DOWN},
};
static const apr_tensor_form fused_forms[] = {
    {APR_NAMING_HF, APR_FORM_WRITTEN, L "mlp.experts.gate_up_proj", NULL, APR_GATE_AND_UP(EXPERTS)},
    {APR_NAMING_HF, APR_FORM_WRITTEN, L "mlp.experts.down_proj", NULL, {{EXPERTS "down_proj.weight", {{0}}}}},
    {APR_NAMING_GGML, APR_FORM_WRITTEN, B "ffn_gate_up_exps.weight", NULL, APR_GATE_AND_UP(EXPERTS)},
    {APR_NAMING_GGML, APR_FORM_READ, B "ffn_gate_exps.weight", NULL, {{EXPERTS "gate_proj.weight", {{0}}}}},
    {APR_NAMING_GGML, APR_FORM_READ, B "ffn_up_exps.weight", NULL, {{EXPERTS "up_proj.weight", {{0}}}}},
};
static const apr_tensor_set fused = {fused_experts, sizeof fused_experts / sizeof *fused_experts, fused_forms,
                                     sizeof fused_forms / sizeof *fused_forms};

const apr_family apr_family_mistral4 = {
    .name = "mistral4",
    .types = {{"mistral4", "Mistral4ForCausalLM"}},
    .ggml = "mistral4",
    .gguf = {.more_keys = {APR_LATENT_KEYS, APR_KEY(attn_temperature), APR_KEY(attn_temperature_length)}, .yarn_log_unit = 0.1},
    .config = &mistral4,
    .sets = {&apr_tensors_ends, &apr_tensors_latent, &apr_tensors_ffn_norm, &apr_tensors_dense, &fused, &apr_tensors_shared_experts},
    .translates = true};
