/* family_afmoe.c - afmoe: norms before and after attention and feed-forward, a gate on the attention, experts as in DeepSeek V3. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

#define L "model.layers.{}."
#define B "blk.{}."

static const apr_tensor_rule tensors[] = {
    {L "self_attn.gate_proj.weight", B "attn_gate.weight", APR_TENSOR_ROLE_ATTN_GATE},
    {L "post_attention_layernorm.weight", B "post_attention_norm.weight", APR_TENSOR_ROLE_SMALL},
    {L "pre_mlp_layernorm.weight", B "ffn_norm.weight", APR_TENSOR_ROLE_SMALL},
    {L "post_mlp_layernorm.weight", B "post_ffw_norm.weight", APR_TENSOR_ROLE_SMALL},
};

static const apr_tensor_form forms[] = {
    APR_ALSO_CALLED(L "mlp.router.gate.weight", L "mlp.gate.weight"),
    APR_ALSO_CALLED(L "mlp.expert_bias", L "mlp.gate.e_score_correction_bias"),
};

/* The class sums the weights of chosen experts to 1, whatever route_norm says. */
static const apr_family_config afmoe = {.activation = "silu",
                                        .window = APR_WINDOW_PATTERN,
                                        .experts = APR_EXPERTS_AFTER_DENSE,
                                        .positions = APR_POSITIONS_SLIDING,
                                        .attention_bias = APR_BIAS_WHEN_STATED,
                                        .dense_key = "num_dense_layers",
                                        .n_dense = 1,
                                        .spellings = {{APR_FIELD(num_shared_experts), "num_shared_experts"},
                                                      {APR_FIELD(routed_scaling_factor), "route_scale"},
                                                      {APR_FIELD(num_experts), "num_experts"},
                                                      {APR_FIELD(num_experts), "num_local_experts"},
                                                      {APR_FIELD(use_qk_norm), ""}},
                                        .computes = APR_NAMES("mup_enabled"),
                                        .requires = APR_NAMES("route_norm"),
                                        .accepts = {{"score_func", APR_NAMES("sigmoid")}},
                                        .flags_always = APR_FLAG(norm_topk_prob) | APR_FLAG(use_qk_norm),
                                        .head_dim = 128,
                                        .max_position_embeddings = 16384,
                                        .sliding_window = 1024,
                                        .full_every = 4,
                                        .rms_norm_eps = 1e-5,
                                        .defaults = {.num_heads = 16,
                                                     .intermediate_size = 6144,
                                                     .vocab_size = 200192,
                                                     .num_experts = 64,
                                                     .num_experts_per_tok = 6,
                                                     .num_shared_experts = 2,
                                                     .moe_intermediate_size = 1408,
                                                     .routed_scaling_factor = 1.0}};

static const apr_hparams assumes = {.norm_topk_prob = true, .use_qk_norm = true, .scales_embeddings = true};

const apr_family apr_family_afmoe = {
    .name = "afmoe",
    .types = {{"afmoe", "AfmoeForCausalLM"}},
    .ggml = "afmoe",
    .gguf = {.more_keys = {APR_KEY(vocab_size), APR_KEY(rotary_dim), APR_KEY(num_shared_experts), APR_KEY(moe_intermediate_size),
                           APR_KEY_ALWAYS(leading_dense_block_count), APR_KEY(norm_topk_prob), APR_KEY(routed_scaling_factor),
                           APR_KEY(sliding_window)},
             .assumes = &assumes,
             .full_every = 4,
             .nope = APR_NOPE_FULL,
             .score_function = 2,
             .has_window = true},
    .config = &afmoe,
    APR_OWN_TENSORS(tensors),
    APR_OWN_FORMS(forms),
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_qk_norm, &apr_tensors_dense, &apr_tensors_experts,
             &apr_tensors_shared_experts},
    .translates = true};
