/* family_lfm2.c - lfm2 and lfm2_moe: gated short convolutions between attention layers. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"
#include "formats/shape/hf_config_values.h"

#define L "model.layers.{}."

#define B "blk.{}."

#define FFN L "feed_forward."

/* The final norm is called after the embedding in both naming schemes. */
static const apr_tensor_rule tensors[] = {
    {"model.embedding_norm.weight", "token_embd_norm.weight", APR_TENSOR_ROLE_SMALL},
    {L "operator_norm.weight", B "attn_norm.weight", APR_TENSOR_ROLE_SMALL},
    {L "ffn_norm.weight", B "ffn_norm.weight", APR_TENSOR_ROLE_SMALL},
    {L "self_attn.out_proj.weight", B "attn_output.weight", APR_TENSOR_ROLE_ATTN_OUT},
    {L "self_attn.q_layernorm.weight", B "attn_q_norm.weight", APR_TENSOR_ROLE_SMALL},
    {L "self_attn.k_layernorm.weight", B "attn_k_norm.weight", APR_TENSOR_ROLE_SMALL},
    {L "conv.conv.weight", B "shortconv.conv.weight", APR_TENSOR_ROLE_SMALL, {APR_CONVOLUTION}},
    {L "conv.conv.bias", B "shortconv.conv.bias", APR_TENSOR_ROLE_SMALL},
    {L "conv.in_proj.weight", B "shortconv.in_proj.weight", APR_TENSOR_ROLE_MATRIX},
    {L "conv.out_proj.weight", B "shortconv.out_proj.weight", APR_TENSOR_ROLE_MATRIX},
    {FFN "w1.weight", B "ffn_gate.weight", APR_TENSOR_ROLE_FFN_GATE},
    {FFN "w3.weight", B "ffn_up.weight", APR_TENSOR_ROLE_FFN_UP},
    {FFN "w2.weight", B "ffn_down.weight", APR_TENSOR_ROLE_FFN_DOWN},
    {FFN "gate.weight", B "ffn_gate_inp.weight", APR_TENSOR_ROLE_ROUTER},
    {FFN "expert_bias", B "exp_probs_b.bias", APR_TENSOR_ROLE_SMALL},
    {FFN "experts.*.w1.weight", B "ffn_gate_exps.weight", APR_TENSOR_ROLE_FFN_GATE},
    {FFN "experts.*.w3.weight", B "ffn_up_exps.weight", APR_TENSOR_ROLE_FFN_UP},
    {FFN "experts.*.w2.weight", B "ffn_down_exps.weight", APR_TENSOR_ROLE_FFN_DOWN},
};

static const apr_tensor_form forms[] = {
    {APR_NAMING_HF, APR_FORM_READ, FFN "experts.gate_up_proj", NULL, APR_W1_AND_W3(FFN "experts.*.")},
    {APR_NAMING_HF, APR_FORM_READ, FFN "experts.down_proj", NULL, {{FFN "experts.*.w2.weight", {{0}}}}},
    {APR_NAMING_GGML, APR_FORM_READ, B "ffn_gate_up_exps.weight", NULL, APR_W1_AND_W3(FFN "experts.*.")},
    {APR_NAMING_GGML, APR_FORM_READ, B "exp_probs_b", NULL, {{FFN "expert_bias", {{0}}}}},
};

#define CONFIG                                                                                                         \
    .activation = "silu", .activation_key = "", .layer_types = APR_NAMES("full_attention", "conv"), .num_kv_heads = 8, \
    .max_position_embeddings = 128000, .rms_norm_eps = 1e-5, .rope_theta = 1e6

#define SPELLINGS                                                                               \
    {APR_FIELD(rms_norm_eps), "norm_eps"}, {APR_FIELD(linear_conv_kernel_dim), "conv_L_cache"}, \
        {APR_FIELD(tie_word_embeddings), "tie_word_embeddings"},                                \
    {                                                                                           \
        APR_FIELD(tie_word_embeddings), "tie_embedding"                                         \
    }
#define IN_GGUF .spellings = {{APR_KEY(linear_conv_kernel_dim), "shortconv.l_cache"}}

/* lfm2: the width is two thirds of the stated one, times a factor, rounded up to a multiple of block_multiple_of, unless
 * block_auto_adjust_ff_dim is false. */
static apr_status settle_width(const apr_config_reading *r)
{
    apr_hparams *const h = r->h;
    bool adjusts = !apr_config_has(r, "block_auto_adjust_ff_dim");
    int64_t block = 256;
    double factor = 1;

    APR_TRY(apr_config_int(r, "block_ff_dim", &h->intermediate_size));
    APR_TRY(apr_config_bool(r, "block_auto_adjust_ff_dim", &adjusts));
    APR_TRY(apr_config_int(r, "block_multiple_of", &block));
    APR_TRY(apr_config_real(r, apr_config_find(r, "block_ffn_dim_multiplier"), "block_ffn_dim_multiplier", &factor));
    if (!adjusts || h->hidden_size == 0) return APR_OK;
    if (h->intermediate_size < 0 || h->intermediate_size > (int64_t)1 << 40 || block < 1 || block > (int64_t)1 << 20 || !(factor > 0) ||
        factor > 1e3)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: \"block_multiple_of\" or \"block_ffn_dim_multiplier\" gives no valid width", r->where);
    const int64_t width = (int64_t)(factor * (double)(2 * h->intermediate_size / 3));
    h->intermediate_size = (width + block - 1) / block * block;
    return APR_OK;
}

static void put_width(apr_json_text *out, const apr_hparams *h)
{
    (void)h;
    apr_json_bool(out, "block_auto_adjust_ff_dim", false);
}

static const apr_family_config lfm2 = {
    CONFIG,
    .spellings = {SPELLINGS},
    .computes = APR_NAMES("block_auto_adjust_ff_dim"),
    .settle = settle_width,
    .put_own = put_width,
    .flags_on = APR_FLAG(tie_word_embeddings),
    .defaults = {.num_heads = 32, .intermediate_size = 12288, .vocab_size = 65536, .linear_conv_kernel_dim = 3}};

const apr_family apr_family_lfm2 = {
    .name = "lfm2",
    .types = {{"lfm2", "Lfm2ForCausalLM"}},
    .ggml = "lfm2",
    .gguf = {.more_keys = {APR_KEY(vocab_size), APR_KEY(linear_conv_kernel_dim)}, IN_GGUF, .omits_head_dim = true},
    .config = &lfm2,
    APR_OWN_TENSORS(tensors),
    APR_OWN_FORMS(forms),
    .sets = {&apr_tensors_ends, &apr_tensors_attention},
    .translates = true};

static const apr_family_config lfm2_moe = {CONFIG,
                                           .experts = APR_EXPERTS_AFTER_DENSE,
                                           .spellings = {SPELLINGS},
                                           .computes = APR_NAMES("routed_scaling_factor"),
                                           .requires = APR_NAMES("use_expert_bias"),
                                           .flags_on = APR_FLAG(tie_word_embeddings) | APR_FLAG(norm_topk_prob),
                                           .defaults = {.num_heads = 32,
                                                        .intermediate_size = 7168,
                                                        .vocab_size = 65536,
                                                        .linear_conv_kernel_dim = 3,
                                                        .num_experts = 32,
                                                        .num_experts_per_tok = 4,
                                                        .moe_intermediate_size = 1792,
                                                        .routed_scaling_factor = 1.0},
                                           .dense_key = "num_dense_layers",
                                           .n_dense = 2};

static const apr_hparams with_experts = {.norm_topk_prob = true, .routed_scaling_factor = 1};

const apr_family apr_family_lfm2_moe = {.name = "lfm2_moe",
                                        .types = {{"lfm2_moe", "Lfm2MoeForCausalLM"}},
                                        .ggml = "lfm2moe",
                                        .gguf = {.more_keys = {APR_KEY(moe_intermediate_size), APR_KEY_ALWAYS(leading_dense_block_count),
                                                               APR_KEY(vocab_size), APR_KEY(linear_conv_kernel_dim)},
                                                 IN_GGUF,
                                                 .assumes = &with_experts,
                                                 .score_function = 2,
                                                 .omits_head_dim = true},
                                        .config = &lfm2_moe,
                                        APR_OWN_TENSORS(tensors),
                                        APR_OWN_FORMS(forms),
                                        .sets = {&apr_tensors_ends, &apr_tensors_attention},
                                        .translates = true};
