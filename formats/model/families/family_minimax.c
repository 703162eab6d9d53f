/* family_minimax.c - minimax_m2: norms over the whole row of q and k; experts chosen by sigmoid and bias. */
#include "formats/model/family.h"

static const apr_hparams supposes = {.norm_topk_prob = true, .use_qk_norm = true};

const apr_family apr_family_minimax_m2 = {
    .name = "minimax_m2",
    .types = {{"minimax_m2", "MiniMaxM2ForCausalLM"}},
    .ggml = "minimax-m2",
    .gguf = {.more_keys = " expert_feed_forward_length rope.dimension_count ", .supposes = &supposes, .score_function = 2}};
