/* family_llama4.c - llama4: attention in chunks, experts that weigh their input, norms without weights behind the rotation. */
#include "formats/model/family.h"

const apr_family apr_family_llama4 = {.name = "llama4",
                                      .types = {{"llama4_text", "Llama4ForCausalLM"}, {"llama4", "Llama4ForConditionalGeneration"}},
                                      .ggml = "llama4",
                                      .text_prefix = "language_model.model."};
