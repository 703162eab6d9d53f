/* family_gpt_oss.c - gpt_oss: every other layer slides, learned sinks, experts with biases, gate and up interleaved in one tensor
 * in Hugging Face's dialect (in MXFP4 as blocks and scales) and two in ggml's. */
#include "formats/model/family.h"

static const apr_tensor_rule tensors[] = {
    {"model.embed_tokens.weight", "token_embd.weight", APR_FOR_EMBEDDING},
    {"model.norm.weight", "output_norm.weight", APR_FOR_SMALL},
    {"lm_head.weight", "output.weight", APR_FOR_HEAD},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", APR_FOR_SMALL},
    {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight", APR_FOR_ATTN_Q},
    {"model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias", APR_FOR_SMALL},
    {"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight", APR_FOR_ATTN_K},
    {"model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias", APR_FOR_SMALL},
    {"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight", APR_FOR_ATTN_V},
    {"model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias", APR_FOR_SMALL},
    {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight", APR_FOR_ATTN_OUT},
    {"model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias", APR_FOR_SMALL},
    {"model.layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight", APR_FOR_SMALL},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight", APR_FOR_SMALL},
    {"model.layers.{}.mlp.router.weight", "blk.{}.ffn_gate_inp.weight", APR_FOR_ROUTER},
    {"model.layers.{}.mlp.router.bias", "blk.{}.ffn_gate_inp.bias", APR_FOR_SMALL},
    {"model.layers.{}.mlp.experts.gate_up_proj", NULL, APR_FOR_FFN_UP},
    {"model.layers.{}.mlp.experts.gate_up_proj_bias", NULL, APR_FOR_OTHER},
    {NULL, "blk.{}.ffn_gate_exps.weight", APR_FOR_FFN_GATE},
    {NULL, "blk.{}.ffn_gate_exps.bias", APR_FOR_OTHER},
    {NULL, "blk.{}.ffn_up_exps.weight", APR_FOR_FFN_UP},
    {NULL, "blk.{}.ffn_up_exps.bias", APR_FOR_OTHER},
    {"model.layers.{}.mlp.experts.down_proj", "blk.{}.ffn_down_exps.weight", APR_FOR_FFN_DOWN},
    {"model.layers.{}.mlp.experts.down_proj_bias", "blk.{}.ffn_down_exps.bias", APR_FOR_OTHER},
};

static const apr_family_config config = {.activation = "silu",
                                         .window = APR_WINDOW_EVEN,
                                         .attention_bias = APR_BIAS_WHEN_STATED,
                                         .spellings = {{"num_experts", "num_local_experts"}},
                                         .ff_is_expert = true,
                                         .num_kv_heads = 8,
                                         .head_dim = 64,
                                         .max_position_embeddings = 131072,
                                         .sliding_window = 128,
                                         .rms_norm_eps = 1e-5,
                                         .rope_theta = 150000};

static const apr_hparams supposes = {.swiglu_limit = 7, .swiglu_alpha = 1.702};

const apr_family apr_family_gpt_oss = {
    .name = "gpt_oss",
    .types = {{"gpt_oss", "GptOssForCausalLM"}},
    .ggml = "gpt-oss",
    .gguf = {.more_keys = " attention.sliding_window expert_feed_forward_length ",
             .supposes = &supposes,
             .full_every = 2,
             .no_truncate = true,
             .has_window = true},
    .config = &config,
    .tensors = tensors,
    .n_tensors = sizeof tensors / sizeof *tensors,
    .program = {APR_PROGRAM_mixture, .sinks = true, .always_biased = true, .router = "mlp.router", .stacked = true, .expert_biases = true}};
