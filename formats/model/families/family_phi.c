/* family_phi.c - phi3: its class has no biases, and a stated window holds for every layer. */
#include "formats/model/family.h"

static const apr_family_config config = {
    .activation = "silu", .window = APR_WINDOW_ALL, .refuses = " attention_bias ", .rms_norm_eps = 1e-5};

const apr_family apr_family_phi3 = {
    .name = "phi3",
    .types = {{"phi3", "Phi3ForCausalLM"}},
    .ggml = "phi3",
    .gguf = {.keys = " rope.scaling.attn_factor context_length rope.scaling.original_context_length embedding_length feed_forward_length"
                     " block_count attention.head_count attention.head_count_kv attention.layer_norm_rms_epsilon rope.dimension_count"
                     " rope.freq_base ",
             .more_keys = " attention.sliding_window! ",
             .has_longrope = true,
             .heads_fill_hidden = true},
    .config = &config};
