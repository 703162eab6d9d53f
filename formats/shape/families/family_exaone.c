/* family_exaone.c - exaone4: norms after attention and feed-forward; exaone_moe: norms before them, experts as in DeepSeek V3. In models with
 * windows the layers with full attention have no positions. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

static const apr_tensor_rule tensors[] = {
    {"model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight", APR_TENSOR_ROLE_SMALL},
};

#define WINDOWS                                                                                                                        \
    .activation = "silu", .window = APR_WINDOW_PATTERN, .positions = APR_POSITIONS_WINDOW, .num_kv_heads = 32, .sliding_window = 4096, \
    .full_every = 4, .max_position_embeddings = 2048, .rms_norm_eps = 1e-5

#define SIZES .num_heads = 32, .intermediate_size = 16384, .vocab_size = 102400

static const apr_family_config exaone4 = {WINDOWS, .defaults = {SIZES}};

const apr_family apr_family_exaone4 = {
    .name = "exaone4",
    .types = {{"exaone4", "Exaone4ForCausalLM"}},
    .ggml = "exaone4",
    .gguf = {.more_keys = {APR_KEY(vocab_size), APR_KEY(sliding_window), APR_KEY(sliding_window_pattern)},
             .nope = APR_NOPE_FULL,
             .omits_head_dim = true,
             .reads_rope_freqs = true,
             .has_window = true,
             .window_layers = 64,
             .heads_fill_hidden = true},
    .config = &exaone4,
    APR_OWN_TENSORS(tensors),
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_qk_norm, &apr_tensors_ffn_post_norm, &apr_tensors_dense},
    .translates = true};

/* Checkpoints have the bias of the choice outside of the router. */
static const apr_tensor_form forms[] = {
    APR_ALSO_CALLED("model.layers.{}.mlp.e_score_correction_bias", "model.layers.{}.mlp.gate.e_score_correction_bias"),
};

static const apr_family_config exaone_moe = {
    WINDOWS,
    .experts = APR_EXPERTS_AFTER_DENSE,
    .dense_key = "first_k_dense_replace",
    .n_dense = 1,
    .spellings = {{APR_FIELD(num_shared_experts), "num_shared_experts"}, {APR_FIELD(use_qk_norm), ""}},
    .accepts = {{"scoring_func", APR_NAMES("sigmoid")}, {"topk_method", APR_NAMES("noaux_tc")}},
    .computes = APR_NAMES("n_group", "routed_scaling_factor", "first_k_dense_replace", "mlp_layer_types", "use_qk_norm"),
    .flags_on = APR_FLAG(norm_topk_prob),
    .flags_always = APR_FLAG(use_qk_norm),
    .defaults = {SIZES, .num_experts = 64, .num_experts_per_tok = 8, .num_shared_experts = 1, .moe_intermediate_size = 1024,
                 .num_expert_groups = 1, .num_expert_groups_used = 1, .routed_scaling_factor = 2.5}};

static const apr_hparams assumes = {.use_qk_norm = true};

const apr_family apr_family_exaone_moe = {
    .name = "exaone_moe",
    .types = {{"exaone_moe", "ExaoneMoeForCausalLM"}},
    .ggml = "exaone-moe",
    .gguf = {.more_keys = {APR_KEY(vocab_size), APR_KEY(sliding_window), APR_KEY(sliding_window_pattern), APR_KEY(moe_intermediate_size),
                           APR_KEY(num_shared_experts), APR_KEY(shared_expert_intermediate_size), APR_KEY(routed_scaling_factor),
                           APR_KEY_ALWAYS(norm_topk_prob), APR_KEY_ALWAYS(leading_dense_block_count), APR_KEY_ALWAYS(num_nextn_layers),
                           APR_KEY(scaling_type)},
             .assumes = &assumes,
             .full_every = 4,
             .nope = APR_NOPE_FULL,
             .score_function = 2,
             .shares_by_count = true,
             .reads_rope_freqs = true,
             .has_window = true},
    .config = &exaone_moe,
    APR_OWN_FORMS(forms),
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_qk_norm, &apr_tensors_ffn_norm, &apr_tensors_dense,
             &apr_tensors_experts, &apr_tensors_shared_experts},
    .translates = true};
