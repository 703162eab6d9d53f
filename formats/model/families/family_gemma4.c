/* family_gemma4.c - gemma4: sliding and full layers of different widths, shared keys and values, per-layer inputs, experts beside the
 * feed-forward. */
#include "formats/model/family.h"

const apr_family apr_family_gemma4 = {.name = "gemma4",
                                      .types = {{"gemma4_text", "Gemma4ForCausalLM"}, {"gemma4", "Gemma4ForConditionalGeneration"}},
                                      .ggml = "gemma4",
                                      .text_prefix = "model.language_model."};
