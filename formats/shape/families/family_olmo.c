/* family_olmo.c - olmo2: no norm before attention and feed-forward, one after each. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

static const apr_tensor_rule tensors[] = {
    {"model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight", APR_TENSOR_ROLE_SMALL},
};

static const apr_family_config olmo2 = {.activation = "silu",
                                        .attention_bias = APR_BIAS_WHEN_STATED,
                                        .max_position_embeddings = 2048,
                                        .rms_norm_eps = 1e-5,
                                        .defaults = {{"num_heads", 32}, {"intermediate_size", 11008}, {"vocab_size", 50304}}};

const apr_family apr_family_olmo2 = {
    .name = "olmo2",
    .types = {{"olmo2", "Olmo2ForCausalLM"}},
    .ggml = "olmo2",
    .gguf = {.more_keys = " attention.sliding_window attention.sliding_window_pattern ",
             .full_every = 4,
             .omits_head_dim = true,
             .has_window = true},
    .config = &olmo2,
    .tensors = tensors,
    .n_tensors = sizeof tensors / sizeof *tensors,
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_qk_norm, &apr_tensors_ffn_post_norm, &apr_tensors_dense},
    .translates = true};
