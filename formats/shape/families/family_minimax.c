/* family_minimax.c - minimax_m2: norms over the whole row of q and k; experts chosen by sigmoid and bias. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

static const apr_family_config minimax_m2 = {
    .activation = "silu",
    .spellings = {{APR_FIELD(num_experts), "num_local_experts"}, {APR_FIELD(rotary_dim), "rotary_dim"}},
    .ff_is_expert = true,
    .requires = APR_NAMES("use_qk_norm", "use_routing_bias"),
    .accepts = {{"scoring_func", APR_NAMES("sigmoid")}, {"qk_norm_type", APR_NAMES("per_layer")}},
    .flags_on = APR_FLAG(use_qk_norm),
    .flags_always = APR_FLAG(norm_topk_prob),
    .num_kv_heads = 8,
    .head_dim = 128,
    .max_position_embeddings = 196608,
    .rms_norm_eps = 1e-6,
    .rope_theta = 5e6,
    .defaults = {.num_heads = 48, .intermediate_size = 1536, .vocab_size = 200064, .num_experts = 256, .num_experts_per_tok = 8}};

static const apr_hparams assumes = {.norm_topk_prob = true, .use_qk_norm = true};

const apr_family apr_family_minimax_m2 = {
    .name = "minimax_m2",
    .types = {{"minimax_m2", "MiniMaxM2ForCausalLM"}},
    .ggml = "minimax-m2",
    .gguf = {.more_keys = {APR_KEY(moe_intermediate_size), APR_KEY(rotary_dim)}, .assumes = &assumes, .score_function = 2},
    .config = &minimax_m2,
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_qk_norm, &apr_tensors_ffn_norm, &apr_tensors_w_experts},
    .translates = true};
