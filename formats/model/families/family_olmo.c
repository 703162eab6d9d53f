/* family_olmo.c - olmo2: no norm before a block, one behind it. */
#include "formats/model/family.h"

const apr_family apr_family_olmo2 = {.name = "olmo2",
                                     .types = {{"olmo2", "Olmo2ForCausalLM"}},
                                     .ggml = "olmo2",
                                     .gguf = {.more_keys = " attention.sliding_window attention.sliding_window_pattern ",
                                              .full_every = 4,
                                              .omits_head_dim = true,
                                              .has_window = true}};
