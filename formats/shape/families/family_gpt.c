/* family_gpt.c - layer norms with biases and a feed-forward without a gate: starcoder2, gpt_neox, gpt2, opt. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"
#include "formats/shape/hf_config_values.h"

#include <math.h>

#define L "model.layers.{}."
#define B "blk.{}."

/* One field states the biases of attention and feed-forward. */
static apr_status settle_biases(const apr_config_reading *r)
{
    r->h->mlp_bias = r->h->attention_bias;
    return APR_OK;
}

/* --- starcoder2: rotary positions, shared key/value heads --- */

static const apr_tensor_rule starcoder2_tensors[] = {
    {L "mlp.c_fc.weight", B "ffn_up.weight", APR_TENSOR_ROLE_FFN_UP},
    {L "mlp.c_fc.bias", B "ffn_up.bias", APR_TENSOR_ROLE_SMALL},
    {L "mlp.c_proj.weight", B "ffn_down.weight", APR_TENSOR_ROLE_FFN_DOWN},
    {L "mlp.c_proj.bias", B "ffn_down.bias", APR_TENSOR_ROLE_SMALL},
};

static const apr_family_config starcoder2 = {
    .activation = "gelu_pytorch_tanh",
    .window = APR_WINDOW_ALL,
    .attention_bias = APR_BIAS_WHEN_STATED,
    .mlp_bias = APR_BIAS_WHEN_STATED,
    .spellings = {{APR_FIELD(rms_norm_eps), "norm_epsilon"}, {APR_FIELD(attention_bias), "use_bias"}, {APR_FIELD(mlp_bias), ""}},
    .accepts = {{"norm_type", APR_NAMES("layer_norm")}, {"mlp_type", APR_NAMES("default")}},
    .flags_on = APR_FLAG(attention_bias) | APR_FLAG(tie_word_embeddings),
    .num_kv_heads = 2,
    .max_position_embeddings = 4096,
    .rms_norm_eps = 1e-5,
    .defaults = {.num_heads = 24, .intermediate_size = 12288, .vocab_size = 49152},
    .settle = settle_biases};

const apr_family apr_family_starcoder2 = {
    .name = "starcoder2",
    .types = {{"starcoder2", "Starcoder2ForCausalLM"}},
    .ggml = "starcoder2",
    .gguf = {.more_keys = {APR_NO_KEYS}, .eps = APR_EPS_LAYER, .omits_head_dim = true},
    .config = &starcoder2,
    APR_OWN_TENSORS(starcoder2_tensors),
    .sets = {&apr_tensors_ends, &apr_tensors_norm_biases, &apr_tensors_attention, &apr_tensors_ffn_norm},
    .translates = true};

/* --- gpt_neox: in checkpoints each head has its query, its key and its value in turn; ggml stores all queries first --- */

#define NEOX "gpt_neox.layers.{}."

static const apr_tensor_rule gpt_neox_tensors[] = {
    {"gpt_neox.embed_in.weight", "token_embd.weight", APR_TENSOR_ROLE_EMBEDDING},
    {"gpt_neox.final_layer_norm.weight", "output_norm.weight", APR_TENSOR_ROLE_SMALL},
    {"gpt_neox.final_layer_norm.bias", "output_norm.bias", APR_TENSOR_ROLE_SMALL},
    {"embed_out.weight", "output.weight", APR_TENSOR_ROLE_HEAD},
    {NEOX "input_layernorm.weight", B "attn_norm.weight", APR_TENSOR_ROLE_SMALL},
    {NEOX "input_layernorm.bias", B "attn_norm.bias", APR_TENSOR_ROLE_SMALL},
    {NEOX "attention.qkv_proj.weight", B "attn_qkv.weight", APR_TENSOR_ROLE_ATTN_QKV},
    {NEOX "attention.qkv_proj.bias", B "attn_qkv.bias", APR_TENSOR_ROLE_SMALL},
    {NEOX "attention.dense.weight", B "attn_output.weight", APR_TENSOR_ROLE_ATTN_OUT},
    {NEOX "attention.dense.bias", B "attn_output.bias", APR_TENSOR_ROLE_SMALL},
    {NEOX "post_attention_layernorm.weight", B "ffn_norm.weight", APR_TENSOR_ROLE_SMALL},
    {NEOX "post_attention_layernorm.bias", B "ffn_norm.bias", APR_TENSOR_ROLE_SMALL},
    {NEOX "mlp.dense_h_to_4h.weight", B "ffn_up.weight", APR_TENSOR_ROLE_FFN_UP},
    {NEOX "mlp.dense_h_to_4h.bias", B "ffn_up.bias", APR_TENSOR_ROLE_SMALL},
    {NEOX "mlp.dense_4h_to_h.weight", B "ffn_down.weight", APR_TENSOR_ROLE_FFN_DOWN},
    {NEOX "mlp.dense_4h_to_h.bias", B "ffn_down.bias", APR_TENSOR_ROLE_SMALL},
};

/* Rows of queries, keys and values of one head, to all heads' rows of each. */
#define BY_KIND(axis)                                                      \
    {                                                                      \
        APR_STEP_GROUPED_TO_TILED, { axis, 0, APR_OF_HEADS, APR_OF_THREE } \
    }

static const apr_tensor_form gpt_neox_forms[] = {
    {APR_NAMING_HF, APR_FORM_WRITTEN, NEOX "attention.query_key_value.weight", NULL, {{NEOX "attention.qkv_proj.weight", {BY_KIND(1)}}}},
    {APR_NAMING_HF, APR_FORM_WRITTEN, NEOX "attention.query_key_value.bias", NULL, {{NEOX "attention.qkv_proj.bias", {BY_KIND(0)}}}},
};

/* Of an odd part of the head, d numbers, the class rotates d + 1, with the frequencies theta^(-2j / d): those of d + 1 numbers with the
 * base theta^((d + 1) / d) (transformers' GPTNeoXRotaryEmbedding and apply_rotary_pos_emb). */
static apr_status settle_gpt_neox(const apr_config_reading *r)
{
    static const double usual_theta = 10000.0;
    apr_hparams *const h = r->h;
    const int64_t d = h->rotary_dim;
    const double theta = h->rope_theta > 0 ? h->rope_theta : usual_theta;

    if (d <= 0 || d % 2 == 0) return APR_OK;
    h->rotary_dim = d + 1;
    if (h->rope.kind != APR_ROPE_PLAIN)
        return apr_config_refuse(r, "its rotary part of a head is %lld numbers, which is odd, with a scaling of the frequencies",
                                 (long long)d);
    h->rope_theta = pow(theta, (double)(d + 1) / (double)d);
    return APR_OK;
}

static const apr_family_config gpt_neox = {
    .activation = "gelu",
    .positions = APR_POSITIONS_EVERYWHERE,
    .attention_bias = APR_BIAS_WHEN_STATED,
    .mlp_bias = APR_BIAS_ALWAYS,
    .spellings = {{APR_FIELD(rms_norm_eps), "layer_norm_eps"}, {APR_FIELD(rope_theta), "rotary_emb_base"}, {APR_FIELD(mlp_bias), ""}},
    .computes = APR_NAMES("rotary_pct", "use_parallel_residual"),
    .flags_on = APR_FLAG(attention_bias) | APR_FLAG(parallel_residual),
    .max_position_embeddings = 2048,
    .rms_norm_eps = 1e-5,
    .partial_rotary_factor = 0.25,
    .defaults = {.num_heads = 64, .intermediate_size = 24576, .vocab_size = 50432},
    .settle_layers = settle_gpt_neox};

const apr_family apr_family_gpt_neox = {
    .name = "gpt_neox",
    .types = {{"gpt_neox", "GPTNeoXForCausalLM"}},
    .ggml = "gptneox",
    .gguf = {.keys = {APR_KEY(max_position_embeddings), APR_KEY(hidden_size), APR_KEY(num_layers), APR_KEY(intermediate_size),
                      APR_KEY(rotary_dim), APR_KEY(num_heads), APR_KEY(parallel_residual), APR_KEY(layer_norm_epsilon), APR_KEY(scaling),
                      APR_KEY(rope_theta)},
             .more_keys = {APR_NO_KEYS},
             .eps = APR_EPS_LAYER,
             .omits_head_dim = true,
             .approximates_gelu = true,
             .heads_fill_hidden = true},
    .config = &gpt_neox,
    APR_OWN_TENSORS(gpt_neox_tensors),
    APR_OWN_FORMS(gpt_neox_forms),
    .translates = true};

/* --- gpt2: learned positions; matrices are stored as [in, out] --- */

static const apr_tensor_rule gpt2_tensors[] = {
    {"model.embed_positions.weight", "position_embd.weight", APR_TENSOR_ROLE_SMALL},
    {L "self_attn.qkv_proj.weight", B "attn_qkv.weight", APR_TENSOR_ROLE_ATTN_QKV},
    {L "self_attn.qkv_proj.bias", B "attn_qkv.bias", APR_TENSOR_ROLE_SMALL},
};

#define GPT2 "transformer.h.{}."
#define SAME(theirs, ours)                             \
    {                                                  \
        APR_NAMING_HF, APR_FORM_WRITTEN, theirs, NULL, \
        {                                              \
            {                                          \
                ours,                                  \
                {                                      \
                    {                                  \
                        0                              \
                    }                                  \
                }                                      \
            }                                          \
        }                                              \
    }
#define TURNED(theirs, ours)                           \
    {                                                  \
        APR_NAMING_HF, APR_FORM_WRITTEN, theirs, NULL, \
        {                                              \
            {                                          \
                ours, { APR_TRANSPOSED }               \
            }                                          \
        }                                              \
    }
#define NORM(theirs, ours)   SAME(theirs ".weight", ours ".weight"), SAME(theirs ".bias", ours ".bias")
#define CONV1D(theirs, ours) TURNED(GPT2 theirs ".weight", L ours ".weight"), SAME(GPT2 theirs ".bias", L ours ".bias")

static const apr_tensor_form gpt2_forms[] = {
    SAME("transformer.wte.weight", "model.embed_tokens.weight"),
    SAME("transformer.wpe.weight", "model.embed_positions.weight"),
    NORM("transformer.ln_f", "model.norm"),
    NORM(GPT2 "ln_1", L "input_layernorm"),
    NORM(GPT2 "ln_2", L "post_attention_layernorm"),
    CONV1D("attn.c_attn", "self_attn.qkv_proj"),
    CONV1D("attn.c_proj", "self_attn.o_proj"),
    CONV1D("mlp.c_fc", "mlp.up_proj"),
    CONV1D("mlp.c_proj", "mlp.down_proj"),
};

/* "n_inner": null is four times the hidden size. */
static apr_status settle_gpt2(const apr_config_reading *r)
{
    apr_hparams *const h = r->h;
    if (h->intermediate_size == 0 && h->hidden_size > 0 && h->hidden_size < (int64_t)1 << 40) h->intermediate_size = 4 * h->hidden_size;
    return APR_OK;
}

static const apr_family_config gpt2 = {.activation = "gelu_pytorch_tanh",
                                       .activation_key = "activation_function",
                                       .positions = APR_POSITIONS_LEARNED,
                                       .attention_bias = APR_BIAS_ALWAYS,
                                       .mlp_bias = APR_BIAS_ALWAYS,
                                       .spellings = {{APR_FIELD(hidden_size), "n_embd"},
                                                     {APR_FIELD(hidden_size), "hidden_size"},
                                                     {APR_FIELD(num_layers), "n_layer"},
                                                     {APR_FIELD(num_layers), "num_hidden_layers"},
                                                     {APR_FIELD(num_heads), "n_head"},
                                                     {APR_FIELD(num_heads), "num_attention_heads"},
                                                     {APR_FIELD(intermediate_size), "n_inner"},
                                                     {APR_FIELD(max_position_embeddings), "n_positions"},
                                                     {APR_FIELD(max_position_embeddings), "max_position_embeddings"},
                                                     {APR_FIELD(max_position_embeddings), "n_ctx"},
                                                     {APR_FIELD(rms_norm_eps), "layer_norm_epsilon"},
                                                     {APR_FIELD(rope_theta), ""},
                                                     {APR_FIELD(attention_bias), ""},
                                                     {APR_FIELD(mlp_bias), ""}},
                                       .flags_on = APR_FLAG(tie_word_embeddings),
                                       .max_position_embeddings = 1024,
                                       .rms_norm_eps = 1e-5,
                                       .defaults = {.num_heads = 12, .vocab_size = 50257},
                                       .settle = settle_gpt2};

const apr_family apr_family_gpt2 = {
    .name = "gpt2",
    .types = {{"gpt2", "GPT2LMHeadModel"}},
    .ggml = "gpt2",
    .gguf = {.keys = {APR_KEY(num_layers), APR_KEY(max_position_embeddings), APR_KEY(hidden_size), APR_KEY(intermediate_size),
                      APR_KEY(num_heads), APR_KEY(layer_norm_epsilon)},
             .more_keys = {APR_NO_KEYS},
             .eps = APR_EPS_LAYER,
             .omits_head_dim = true,
             .heads_fill_hidden = true},
    .config = &gpt2,
    APR_OWN_TENSORS(gpt2_tensors),
    APR_OWN_FORMS(gpt2_forms),
    .sets = {&apr_tensors_ends, &apr_tensors_norm_biases, &apr_tensors_attention, &apr_tensors_ffn_norm, &apr_tensors_dense},
    .translates = true};

/* --- opt: learned positions that begin at row 2; llama.cpp has no such architecture --- */

#define OPT "model.decoder.layers.{}."

static const apr_tensor_rule opt_tensors[] = {
    {"model.decoder.embed_tokens.weight", NULL, APR_TENSOR_ROLE_EMBEDDING},
    {"model.decoder.embed_positions.weight", NULL, APR_TENSOR_ROLE_SMALL},
    {"model.decoder.final_layer_norm.weight", NULL, APR_TENSOR_ROLE_SMALL},
    {"model.decoder.final_layer_norm.bias", NULL, APR_TENSOR_ROLE_SMALL},
    {"lm_head.weight", NULL, APR_TENSOR_ROLE_HEAD},
    {OPT "self_attn_layer_norm.weight", NULL, APR_TENSOR_ROLE_SMALL},
    {OPT "self_attn_layer_norm.bias", NULL, APR_TENSOR_ROLE_SMALL},
    {OPT "self_attn.q_proj.weight", NULL, APR_TENSOR_ROLE_ATTN_Q},
    {OPT "self_attn.q_proj.bias", NULL, APR_TENSOR_ROLE_SMALL},
    {OPT "self_attn.k_proj.weight", NULL, APR_TENSOR_ROLE_ATTN_K},
    {OPT "self_attn.k_proj.bias", NULL, APR_TENSOR_ROLE_SMALL},
    {OPT "self_attn.v_proj.weight", NULL, APR_TENSOR_ROLE_ATTN_V},
    {OPT "self_attn.v_proj.bias", NULL, APR_TENSOR_ROLE_SMALL},
    {OPT "self_attn.out_proj.weight", NULL, APR_TENSOR_ROLE_ATTN_OUT},
    {OPT "self_attn.out_proj.bias", NULL, APR_TENSOR_ROLE_SMALL},
    {OPT "final_layer_norm.weight", NULL, APR_TENSOR_ROLE_SMALL},
    {OPT "final_layer_norm.bias", NULL, APR_TENSOR_ROLE_SMALL},
    {OPT "fc1.weight", NULL, APR_TENSOR_ROLE_FFN_UP},
    {OPT "fc1.bias", NULL, APR_TENSOR_ROLE_SMALL},
    {OPT "fc2.weight", NULL, APR_TENSOR_ROLE_FFN_DOWN},
    {OPT "fc2.bias", NULL, APR_TENSOR_ROLE_SMALL},
};

static const apr_family_config opt = {.activation = "relu",
                                      .activation_key = "activation_function",
                                      .positions = APR_POSITIONS_LEARNED,
                                      .attention_bias = APR_BIAS_WHEN_STATED,
                                      .mlp_bias = APR_BIAS_WHEN_STATED,
                                      .spellings = {{APR_FIELD(intermediate_size), "ffn_dim"},
                                                    {APR_FIELD(attention_bias), "enable_bias"},
                                                    {APR_FIELD(mlp_bias), ""},
                                                    {APR_FIELD(rope_theta), ""}},
                                      .flags_on = APR_FLAG(attention_bias) | APR_FLAG(tie_word_embeddings),
                                      .max_position_embeddings = 2048,
                                      .rms_norm_eps = 1e-5,
                                      .defaults = {.num_heads = 12, .intermediate_size = 3072, .vocab_size = 50272},
                                      .settle = settle_biases};

const apr_family apr_family_opt = {
    .name = "opt", .types = {{"opt", "OPTForCausalLM"}}, .config = &opt, APR_OWN_TENSORS(opt_tensors), .translates = false};
