/* family_gemma4.c - gemma4: sliding and full layers of different widths, shared keys and values, per-layer inputs, experts beside the
 * feed-forward. */
#include "formats/model/family.h"

static const apr_hparams supposes = {.rope_theta_local = 10000, .norm_topk_prob = true};

const apr_family apr_family_gemma4 = {.name = "gemma4",
                                      .types = {{"gemma4_text", "Gemma4ForCausalLM"}, {"gemma4", "Gemma4ForConditionalGeneration"}},
                                      .ggml = "gemma4",
                                      .gguf = {.more_keys = " final_logit_softcapping attention.sliding_window attention.shared_kv_layers!"
                                                            " embedding_length_per_layer_input! attention.sliding_window_pattern"
                                                            " attention.key_length_swa attention.value_length_swa"
                                                            " expert_feed_forward_length rope.dimension_count rope.dimension_count_swa ",
                                               .supposes = &supposes,
                                               .takes_divisors = true,
                                               .has_window = true},
                                      .text_prefix = "model.language_model."};
