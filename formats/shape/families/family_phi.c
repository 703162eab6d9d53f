/* family_phi.c - phi3: the class has no biases, and a stated window holds for every layer. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

/* fused in both naming schemes */
static const apr_tensor_rule tensors[] = {
    {"model.layers.{}.self_attn.qkv_proj.weight", "blk.{}.attn_qkv.weight", APR_TENSOR_ROLE_ATTN_QKV},
    {"model.layers.{}.mlp.gate_up_proj.weight", "blk.{}.ffn_up.weight", APR_TENSOR_ROLE_FFN_UP},
};

static const apr_family_config config = {.activation = "silu",
                                         .window = APR_WINDOW_ALL,
                                         .refuses = " attention_bias ",
                                         .max_position_embeddings = 4096,
                                         .rms_norm_eps = 1e-5,
                                         .defaults = {{"num_heads", 32}, {"intermediate_size", 8192}, {"vocab_size", 32064}}};

const apr_family apr_family_phi3 = {
    .name = "phi3",
    .types = {{"phi3", "Phi3ForCausalLM"}},
    .ggml = "phi3",
    .gguf = {.keys = " rope.scaling.attn_factor context_length rope.scaling.original_context_length embedding_length feed_forward_length"
                     " block_count attention.head_count attention.head_count_kv attention.layer_norm_rms_epsilon rope.dimension_count"
                     " rope.freq_base ",
             .more_keys = " attention.sliding_window! ",
             .has_longrope = true,
             .heads_fill_hidden = true},
    .config = &config,
    .tensors = tensors,
    .n_tensors = sizeof tensors / sizeof *tensors,
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm, &apr_tensors_dense},
    .translates = true};
