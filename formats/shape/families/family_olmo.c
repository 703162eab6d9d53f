/* family_olmo.c - olmo2 and olmo3: no norm before attention and feed-forward, one after each; olmo3 also has windows. olmoe: llama's
 * layers with experts. All of them have norms of q and k that cover whole rows. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

static const apr_tensor_rule tensors[] = {
    {"model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight", APR_TENSOR_ROLE_SMALL},
};

static const apr_family_config olmo2 = {.activation = "silu",
                                        .attention_bias = APR_BIAS_WHEN_STATED,
                                        .max_position_embeddings = 2048,
                                        .rms_norm_eps = 1e-5,
                                        .defaults = {.num_heads = 32, .intermediate_size = 11008, .vocab_size = 50304}};

#define KEYS                                                                                                                              \
    .more_keys = {APR_KEY(sliding_window), APR_KEY(sliding_window_pattern)}, .full_every = 4, .omits_head_dim = true, .has_window = true, \
    .heads_fill_hidden = true

#define COMMON                                                                                                                 \
    .ggml = "olmo2", APR_OWN_TENSORS(tensors),                                                                                 \
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_qk_norm, &apr_tensors_ffn_post_norm, &apr_tensors_dense}, \
    .translates = true

const apr_family apr_family_olmo2 = {.name = "olmo2", .types = {{"olmo2", "Olmo2ForCausalLM"}}, .gguf = {KEYS}, .config = &olmo2, COMMON};

static const apr_family_config olmo3 = {.activation = "silu",
                                        .window = APR_WINDOW_PATTERN,
                                        .attention_bias = APR_BIAS_WHEN_STATED,
                                        .spellings = {{APR_FIELD(rope_theta_local), ""}},
                                        .local_rope = true,
                                        .scales_full_only = true,
                                        .max_position_embeddings = 2048,
                                        .sliding_window = 4096,
                                        .full_every = 4,
                                        .rms_norm_eps = 1e-5,
                                        .rope_theta = 500000,
                                        .defaults = {.num_heads = 32, .intermediate_size = 11008, .vocab_size = 50304}};

/* A file of ggml's olmo2 with a window is an olmo3. */
const apr_family apr_family_olmo3 = {.name = "olmo3",
                                     .types = {{"olmo3", "Olmo3ForCausalLM"}},
                                     .gguf = {KEYS, .chosen_by = {APR_KEY(sliding_window), 1, INT64_MAX}},
                                     .config = &olmo3,
                                     COMMON};

static const apr_family_config olmoe = {
    .activation = "silu",
    .attention_bias = APR_BIAS_WHEN_STATED,
    .spellings = {{APR_FIELD(num_experts), "num_experts"}, {APR_FIELD(num_experts), "num_local_experts"}},
    .ff_is_expert = true,
    .max_position_embeddings = 4096,
    .rms_norm_eps = 1e-5,
    .defaults = {.num_heads = 16, .intermediate_size = 2048, .vocab_size = 50304, .num_experts = 64, .num_experts_per_tok = 8}};

const apr_family apr_family_olmoe = {
    .name = "olmoe",
    .types = {{"olmoe", "OlmoeForCausalLM"}},
    .ggml = "olmoe",
    .gguf = {.more_keys = {APR_NO_KEYS}, .omits_head_dim = true, .heads_fill_hidden = true, .all_heads_have_keys = true},
    .config = &olmoe,
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_qk_norm, &apr_tensors_ffn_norm, &apr_tensors_experts},
    .translates = true};
