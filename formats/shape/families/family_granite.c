/* family_granite.c - granite and granitemoehybrid: multipliers on embeddings, residuals, scores and logits; Mamba 2 between attention. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

#define L "model.layers.{}."

#define B "blk.{}."

#define MOE L "block_sparse_moe."

#define SHARED L "shared_mlp."

/* In a model without experts the shared expert is the feed-forward. */
static const apr_tensor_rule hybrid[] = {
    {L "mamba.in_proj.weight", B "ssm_in.weight", APR_TENSOR_ROLE_MATRIX},
    {L "mamba.conv1d.weight", B "ssm_conv1d.weight", APR_TENSOR_ROLE_SMALL, {APR_CONVOLUTION}},
    {L "mamba.conv1d.bias", B "ssm_conv1d.bias", APR_TENSOR_ROLE_SMALL},
    {L "mamba.A_log", B "ssm_a", APR_TENSOR_ROLE_SMALL, {APR_DECAY, APR_AS_COLUMN}},
    {L "mamba.D", B "ssm_d", APR_TENSOR_ROLE_SMALL, {APR_AS_COLUMN}},
    {L "mamba.dt_bias", B "ssm_dt.bias", APR_TENSOR_ROLE_SMALL},
    {L "mamba.norm.weight", B "ssm_norm.weight", APR_TENSOR_ROLE_SMALL, {{APR_STEP_UNFOLD, {0, APR_OF_KEY_HEADS}}}},
    {L "mamba.out_proj.weight", B "ssm_out.weight", APR_TENSOR_ROLE_MATRIX},
    {MOE "router.layer.weight", B "ffn_gate_inp.weight", APR_TENSOR_ROLE_ROUTER},
    {MOE "experts.*.gate_proj.weight", B "ffn_gate_exps.weight", APR_TENSOR_ROLE_FFN_GATE},
    {MOE "experts.*.up_proj.weight", B "ffn_up_exps.weight", APR_TENSOR_ROLE_FFN_UP},
    {MOE "experts.*.down_proj.weight", B "ffn_down_exps.weight", APR_TENSOR_ROLE_FFN_DOWN},
    {SHARED "gate_proj.weight", B "ffn_gate_shexp.weight", APR_TENSOR_ROLE_FFN_GATE, .when = APR_WITH_EXPERTS},
    {SHARED "up_proj.weight", B "ffn_up_shexp.weight", APR_TENSOR_ROLE_FFN_UP, .when = APR_WITH_EXPERTS},
    {SHARED "down_proj.weight", B "ffn_down_shexp.weight", APR_TENSOR_ROLE_FFN_DOWN, .when = APR_WITH_EXPERTS},
    {SHARED "gate_proj.weight", B "ffn_gate.weight", APR_TENSOR_ROLE_FFN_GATE, .when = APR_WITHOUT_EXPERTS},
    {SHARED "up_proj.weight", B "ffn_up.weight", APR_TENSOR_ROLE_FFN_UP, .when = APR_WITHOUT_EXPERTS},
    {SHARED "down_proj.weight", B "ffn_down.weight", APR_TENSOR_ROLE_FFN_DOWN, .when = APR_WITHOUT_EXPERTS},
};

static const apr_tensor_form hybrid_forms[] = {
    {APR_NAMING_HF, APR_FORM_WRITTEN, MOE "input_linear.weight", NULL, APR_GATE_AND_UP(MOE "experts.*.")},
    {APR_NAMING_HF, APR_FORM_WRITTEN, MOE "output_linear.weight", NULL, {{MOE "experts.*.down_proj.weight", {{0}}}}},
    {APR_NAMING_HF, APR_FORM_WRITTEN, SHARED "input_linear.weight", NULL, APR_GATE_AND_UP(SHARED)},
    {APR_NAMING_HF, APR_FORM_WRITTEN, SHARED "output_linear.weight", NULL, {{SHARED "down_proj.weight", {{0}}}}},
    {APR_NAMING_GGML, APR_FORM_READ, B "ffn_gate_up_exps.weight", NULL, APR_GATE_AND_UP(MOE "experts.*.")},
};

#define MULTIPLIERS "attention_multiplier", "residual_multiplier", "embedding_multiplier", "logits_scaling"

#define MULTIPLIERS_ABSENT .embedding_multiplier = 1, .logits_scaling = 1, .residual_multiplier = 1, .attention_multiplier = 1

static const apr_family_config granite = {
    .activation = "silu",
    .attention_bias = APR_BIAS_WHEN_STATED,
    .computes = APR_NAMES(MULTIPLIERS),
    .max_position_embeddings = 2048,
    .rms_norm_eps = 1e-6,
    .defaults = {.num_heads = 32, .intermediate_size = 11008, .vocab_size = 32000, MULTIPLIERS_ABSENT}};

#define KEYS                                                                                                                              \
    APR_KEY(vocab_size), APR_KEY(rotary_dim), APR_KEY(attention_multiplier), APR_KEY(embedding_multiplier), APR_KEY(residual_multiplier), \
        APR_KEY(logits_scaling)

#define SPELLINGS .spellings = {{APR_KEY(logits_scaling), "logit_scale"}, {APR_KEY(logit_scale), ""}}

const apr_family apr_family_granite = {.name = "granite",
                                       .types = {{"granite", "GraniteForCausalLM"}},
                                       .ggml = "granite",
                                       .gguf = {.more_keys = {KEYS}, SPELLINGS, .omits_head_dim = true, .rotates_pairs = true},
                                       .config = &granite,
                                       .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm, &apr_tensors_dense},
                                       .translates = true};

/* without experts the shared expert is the only feed-forward */
static const apr_family_config granitemoehybrid = {.activation = "silu",
                                                   .layer_types = APR_NAMES("linear_attention", "full_attention", "mamba", "attention"),
                                                   .mamba = true,
                                                   .positions = APR_POSITIONS_WHEN_STATED,
                                                   .attention_bias = APR_BIAS_WHEN_STATED,
                                                   .spellings = {{APR_FIELD(num_experts), "num_local_experts"},
                                                                 {APR_FIELD(shared_expert_intermediate_size), "shared_intermediate_size"},
                                                                 {APR_FIELD(linear_num_value_heads), "mamba_n_heads"},
                                                                 {APR_FIELD(linear_num_key_heads), "mamba_n_groups"},
                                                                 {APR_FIELD(linear_key_head_dim), "mamba_d_state"},
                                                                 {APR_FIELD(linear_value_head_dim), "mamba_d_head"},
                                                                 {APR_FIELD(linear_conv_kernel_dim), "mamba_d_conv"}},
                                                   .ff_is_expert = true,
                                                   .computes = APR_NAMES(MULTIPLIERS),
                                                   .accepts = {{"position_embedding_type", APR_NAMES("rope", "nope")}},
                                                   .max_position_embeddings = 2048,
                                                   .rms_norm_eps = 1e-6,
                                                   .defaults = {.num_heads = 32,
                                                                .intermediate_size = 11008,
                                                                .vocab_size = 32000,
                                                                MULTIPLIERS_ABSENT,
                                                                .num_experts = 8,
                                                                .num_experts_per_tok = 2,
                                                                .shared_expert_intermediate_size = 1024,
                                                                .linear_num_value_heads = 128,
                                                                .linear_num_key_heads = 1,
                                                                .linear_key_head_dim = 256,
                                                                .linear_conv_kernel_dim = 4}};

const apr_family apr_family_granitemoehybrid = {
    .name = "granitemoehybrid",
    .types = {{"granitemoehybrid", "GraniteMoeHybridForCausalLM"}},
    .ggml = "granitehybrid",
    .gguf = {.more_keys = {KEYS, APR_KEY(shared_expert_intermediate_size), APR_KEY(linear_conv_kernel_dim), APR_KEY(linear_key_head_dim),
                           APR_KEY(linear_num_key_heads), APR_KEY(inner_size), APR_KEY(linear_num_value_heads), APR_KEY(finetuned)},
             SPELLINGS,
             .nope = APR_NOPE_UNLESS_FINETUNED,
             .omits_head_dim = true,
             .rotates_pairs = true},
    .config = &granitemoehybrid,
    APR_OWN_TENSORS(hybrid),
    APR_OWN_FORMS(hybrid_forms),
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm},
    .translates = true};

/* Attention in all layers, with positions. The class without a shared expert is the other one with a width of 0. */
static const apr_family_config granitemoe = {
    .activation = "silu",
    .attention_bias = APR_BIAS_WHEN_STATED,
    .spellings = {{APR_FIELD(num_experts), "num_local_experts"}, {APR_FIELD(shared_expert_intermediate_size), "shared_intermediate_size"}},
    .ff_is_expert = true,
    .computes = APR_NAMES(MULTIPLIERS),
    .max_position_embeddings = 2048,
    .rms_norm_eps = 1e-6,
    .defaults = {
        .num_heads = 32, .intermediate_size = 11008, .vocab_size = 32000, MULTIPLIERS_ABSENT, .num_experts = 8, .num_experts_per_tok = 2}};

const apr_family apr_family_granitemoe = {
    .name = "granitemoe",
    .types = {{"granitemoeshared", "GraniteMoeSharedForCausalLM"}, {"granitemoe", "GraniteMoeForCausalLM"}},
    .ggml = "granitemoe",
    .gguf = {.more_keys = {KEYS, APR_KEY(shared_expert_intermediate_size)},
             SPELLINGS,
             .omits_head_dim = true,
             .reads_rope_freqs = true,
             .rotates_pairs = true},
    .config = &granitemoe,
    APR_OWN_TENSORS(hybrid),
    APR_OWN_FORMS(hybrid_forms),
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm},
    .translates = true};
