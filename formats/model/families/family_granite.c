/* family_granite.c - granite and granitemoehybrid: multipliers on embeddings, residuals, scores and logits; Mamba 2 between attention. */
#include "formats/model/family.h"

const apr_family apr_family_granite = {.name = "granite",
                                       .types = {{"granite", "GraniteForCausalLM"}},
                                       .ggml = "granite",
                                       .gguf = {.writes_rotary_dim = true, .writes_vocab_size = true, .rotates_pairs = true}};

const apr_family apr_family_granitemoehybrid = {.name = "granitemoehybrid",
                                                .types = {{"granitemoehybrid", "GraniteMoeHybridForCausalLM"}},
                                                .ggml = "granitehybrid",
                                                .gguf = {.rotates_pairs = true}};
