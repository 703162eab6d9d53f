/* family_llama4.c - llama4: attention in chunks, experts that weigh their input, norms without weights behind the rotation. */
#include "formats/model/family.h"

static const apr_hparams supposes = {
    .attention_chunk_size = 8192, .attn_temperature = 0.1, .attn_temperature_length = 8192, .use_qk_norm = true};

const apr_family apr_family_llama4 = {.name = "llama4",
                                      .types = {{"llama4_text", "Llama4ForCausalLM"}, {"llama4", "Llama4ForConditionalGeneration"}},
                                      .ggml = "llama4",
                                      .gguf = {.more_keys = " vocab_size rope.dimension_count interleave_moe_layer_step"
                                                            " expert_feed_forward_length ",
                                               .supposes = &supposes,
                                               .full_every = 4,
                                               .chunks = true,
                                               .nope = APR_NOPE_FOURTH,
                                               .experts_without_qk_norm = 128,
                                               .shares_one = true,
                                               .takes_divisors = true,
                                               .has_window = true},
                                      .text_prefix = "language_model.model."};
