/* family_nemotron.c - nemotron_h: one mixer a layer: Mamba 2, attention without positions, feed-forward or experts. */
#include "formats/model/family.h"

const apr_family apr_family_nemotron_h = {
    .name = "nemotron_h", .types = {{"nemotron_h", "NemotronHForCausalLM"}}, .ggml = "nemotron_h_moe"};
