/* family_phi.c - phi3: its class has no biases, and a stated window holds for every layer. */
#include "formats/model/family.h"

static const apr_family_config config = {.activation = "silu",
                                         .window = APR_WINDOW_ALL,
                                         .refuses = " attention_bias ",
                                         .max_position_embeddings = 4096,
                                         .rms_norm_eps = 1e-5,
                                         .defaults = {{"num_heads", 32}, {"intermediate_size", 8192}, {"vocab_size", 32064}}};

const apr_family apr_family_phi3 = {.name = "phi3", .types = {{"phi3", "Phi3ForCausalLM"}}, .ggml = "phi3", .config = &config};
