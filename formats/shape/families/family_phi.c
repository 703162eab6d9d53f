/* family_phi.c - phi (1, 1.5 and 2): layer norms with biases, attention and feed-forward in parallel, a head with a bias. phi3: the class has
 * no biases, and a stated window holds for every layer. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

/* fused in both naming schemes */
static const apr_tensor_rule tensors[] = {
    {"model.layers.{}.self_attn.qkv_proj.weight", "blk.{}.attn_qkv.weight", APR_TENSOR_ROLE_ATTN_QKV},
    {"model.layers.{}.mlp.gate_up_proj.weight", "blk.{}.ffn_up.weight", APR_TENSOR_ROLE_FFN_UP},
};

static const apr_family_config config = {.activation = "silu",
                                         .window = APR_WINDOW_ALL,
                                         .refuses = APR_NAMES("attention_bias"),
                                         .max_position_embeddings = 4096,
                                         .rms_norm_eps = 1e-5,
                                         .defaults = {.num_heads = 32, .intermediate_size = 8192, .vocab_size = 32064}};

const apr_family apr_family_phi3 = {
    .name = "phi3",
    .types = {{"phi3", "Phi3ForCausalLM"}},
    .ggml = "phi3",
    .gguf = {.keys = {APR_KEY(attn_factor), APR_KEY(max_position_embeddings), APR_KEY(original_context_length), APR_KEY(hidden_size),
                      APR_KEY(intermediate_size), APR_KEY(num_layers), APR_KEY(num_heads), APR_KEY(num_kv_heads), APR_KEY(rms_norm_eps),
                      APR_KEY(rotary_dim), APR_KEY(rope_theta)},
             .more_keys = {APR_KEY_ALWAYS(sliding_window)},
             .has_longrope = true,
             .heads_fill_hidden = true},
    .config = &config,
    APR_OWN_TENSORS(tensors),
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm, &apr_tensors_dense},
    .translates = true};

#define L "model.layers.{}."
#define B "blk.{}."

static const apr_tensor_rule phi_tensors[] = {
    {"model.final_layernorm.weight", "output_norm.weight", APR_TENSOR_ROLE_SMALL},
    {"model.final_layernorm.bias", "output_norm.bias", APR_TENSOR_ROLE_SMALL},
    {"lm_head.bias", "output.bias", APR_TENSOR_ROLE_SMALL},
    {L "self_attn.q_proj.weight", B "attn_q.weight", APR_TENSOR_ROLE_ATTN_Q},
    {L "self_attn.q_proj.bias", B "attn_q.bias", APR_TENSOR_ROLE_SMALL},
    {L "self_attn.k_proj.weight", B "attn_k.weight", APR_TENSOR_ROLE_ATTN_K},
    {L "self_attn.k_proj.bias", B "attn_k.bias", APR_TENSOR_ROLE_SMALL},
    {L "self_attn.v_proj.weight", B "attn_v.weight", APR_TENSOR_ROLE_ATTN_V},
    {L "self_attn.v_proj.bias", B "attn_v.bias", APR_TENSOR_ROLE_SMALL},
    {L "self_attn.dense.weight", B "attn_output.weight", APR_TENSOR_ROLE_ATTN_OUT},
    {L "self_attn.dense.bias", B "attn_output.bias", APR_TENSOR_ROLE_SMALL},
    {L "self_attn.q_layernorm.weight", B "attn_q_norm.weight", APR_TENSOR_ROLE_SMALL},
    {L "self_attn.q_layernorm.bias", B "attn_q_norm.bias", APR_TENSOR_ROLE_SMALL},
    {L "self_attn.k_layernorm.weight", B "attn_k_norm.weight", APR_TENSOR_ROLE_SMALL},
    {L "self_attn.k_layernorm.bias", B "attn_k_norm.bias", APR_TENSOR_ROLE_SMALL},
    {L "mlp.fc1.weight", B "ffn_up.weight", APR_TENSOR_ROLE_FFN_UP},
    {L "mlp.fc1.bias", B "ffn_up.bias", APR_TENSOR_ROLE_SMALL},
    {L "mlp.fc2.weight", B "ffn_down.weight", APR_TENSOR_ROLE_FFN_DOWN},
    {L "mlp.fc2.bias", B "ffn_down.bias", APR_TENSOR_ROLE_SMALL},
};

static const apr_family_config phi = {.activation = "gelu_pytorch_tanh",
                                      .attention_bias = APR_BIAS_ALWAYS,
                                      .mlp_bias = APR_BIAS_ALWAYS,
                                      .spellings = {{APR_FIELD(rms_norm_eps), "layer_norm_eps"},
                                                    {APR_FIELD(use_qk_norm), "qk_layernorm"},
                                                    {APR_FIELD(attention_bias), ""},
                                                    {APR_FIELD(mlp_bias), ""}},
                                      .computes = APR_NAMES("qk_layernorm"),
                                      .flags_shown = APR_FLAG(use_qk_norm),
                                      .max_position_embeddings = 2048,
                                      .rms_norm_eps = 1e-5,
                                      .partial_rotary_factor = 0.5,
                                      .defaults = {.num_heads = 32, .intermediate_size = 8192, .vocab_size = 51200}};

const apr_family apr_family_phi = {
    .name = "phi",
    .types = {{"phi", "PhiForCausalLM"}},
    .ggml = "phi2",
    .gguf = {.keys = {APR_KEY(max_position_embeddings), APR_KEY(hidden_size), APR_KEY(intermediate_size), APR_KEY(num_layers),
                      APR_KEY(num_heads), APR_KEY(num_kv_heads), APR_KEY(layer_norm_epsilon), APR_KEY(rotary_dim), APR_KEY(scaling),
                      APR_KEY(rope_theta)},
             .more_keys = {APR_NO_KEYS},
             .eps = APR_EPS_LAYER,
             .qk_norm_in_tensors = true,
             .omits_head_dim = true,
             .heads_fill_hidden = true},
    .config = &phi,
    APR_OWN_TENSORS(phi_tensors),
    .sets = {&apr_tensors_ends, &apr_tensors_norm_biases},
    .translates = true};
