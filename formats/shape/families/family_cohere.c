/* family_cohere.c - attention and feed-forward in parallel after one layer norm. cohere: q and k may have a layer norm with a weight for
 * each head. cohere2: full-attention layers have no positions. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

static const apr_family_config cohere2 = {
    .activation = "silu",
    .window = APR_WINDOW_PATTERN,
    .positions = APR_POSITIONS_SLIDING,
    .attention_bias = APR_BIAS_WHEN_STATED,
    .spellings = {{APR_FIELD(rms_norm_eps), "layer_norm_eps"}},
    .computes = APR_NAMES("logit_scale"),
    .accepts = {{"position_embedding_type", APR_NAMES("rope_gptj")}},
    .flags_on = APR_FLAG(tie_word_embeddings),
    .max_position_embeddings = 8192,
    .sliding_window = 4096,
    .full_every = 4,
    .rms_norm_eps = 1e-5,
    .defaults = {.logit_scale = 0.0625, .num_heads = 64, .intermediate_size = 22528, .vocab_size = 256000}};

const apr_family apr_family_cohere2 = {
    .name = "cohere2",
    .types = {{"cohere2", "Cohere2ForCausalLM"}},
    .ggml = "cohere2",
    .gguf = {.more_keys = {APR_KEY(logit_scale), APR_KEY(sliding_window), APR_KEY(vocab_size), APR_KEY(rotary_dim), APR_KEY(scaling_type)},
             .full_every = 4,
             .nope = APR_NOPE_FULL,
             .eps = APR_EPS_LAYER,
             .has_window = true},
    .config = &cohere2,
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_dense},
    .translates = true};

static const apr_family_config cohere = {
    .activation = "silu",
    .attention_bias = APR_BIAS_WHEN_STATED,
    .spellings = {{APR_FIELD(rms_norm_eps), "layer_norm_eps"}},
    .computes = APR_NAMES("logit_scale", "use_qk_norm"),
    .flags_on = APR_FLAG(tie_word_embeddings),
    .flags_shown = APR_FLAG(use_qk_norm),
    .max_position_embeddings = 8192,
    .rms_norm_eps = 1e-5,
    .rope_theta = 500000,
    .defaults = {.logit_scale = 0.0625, .num_heads = 64, .intermediate_size = 22528, .vocab_size = 256000}};

const apr_family apr_family_cohere = {.name = "cohere",
                                      .types = {{"cohere", "CohereForCausalLM"}},
                                      .ggml = "command-r",
                                      .gguf = {.more_keys = {APR_KEY(logit_scale), APR_KEY(scaling_type)},
                                               .eps = APR_EPS_LAYER,
                                               .qk_norm_in_tensors = true,
                                               .omits_head_dim = true,
                                               .qk_norm_layers = 64},
                                      .config = &cohere,
                                      .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_qk_norm, &apr_tensors_dense},
                                      .translates = true};
