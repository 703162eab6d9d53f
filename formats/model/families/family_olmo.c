/* family_olmo.c - olmo2: no norm before a block, one behind it. */
#include "formats/model/family.h"

const apr_family apr_family_olmo2 = {.name = "olmo2", .types = {{"olmo2", "Olmo2ForCausalLM"}}, .ggml = "olmo2"};
