/* family_granite.c - granite and granitemoehybrid: multipliers on embeddings, residuals, scores and logits; Mamba 2 between attention. */
#include "formats/model/family.h"

#define KEYS      " vocab_size rope.dimension_count attention.scale embedding_scale residual_scale logit_scale "
#define SPELLINGS .spellings = {{"logits_scaling", "logit_scale"}, {"logit_scale", ""}}

const apr_family apr_family_granite = {.name = "granite",
                                       .types = {{"granite", "GraniteForCausalLM"}},
                                       .ggml = "granite",
                                       .gguf = {.more_keys = KEYS, SPELLINGS, .omits_head_dim = true, .rotates_pairs = true}};

const apr_family apr_family_granitemoehybrid = {
    .name = "granitemoehybrid",
    .types = {{"granitemoehybrid", "GraniteMoeHybridForCausalLM"}},
    .ggml = "granitehybrid",
    .gguf = {.more_keys = KEYS "expert_shared_feed_forward_length ssm.conv_kernel ssm.state_size ssm.group_count ssm.inner_size"
                               " ssm.time_step_rank rope.scaling.finetuned ",
             SPELLINGS,
             .nope = APR_NOPE_UNLESS_FINETUNED,
             .omits_head_dim = true,
             .rotates_pairs = true}};
