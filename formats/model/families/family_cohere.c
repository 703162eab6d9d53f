/* family_cohere.c - cohere2: attention and feed-forward side by side on one layer norm; full layers have no positions. */
#include "formats/model/family.h"

const apr_family apr_family_cohere2 = {.name = "cohere2", .types = {{"cohere2", "Cohere2ForCausalLM"}}, .ggml = "cohere2"};
