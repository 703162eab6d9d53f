/* hf_families.c - one row a model_type: the defaults of transformers' configuration classes; it reads no file. */
#include "formats/hf/hf_families.h"

#include <stddef.h>
#include <string.h>

#define SILU .experts_key = "num_experts", .activation = "silu"
#define GELU .experts_key = "num_experts", .activation = "gelu_pytorch_tanh"
#define QWEN35                                                                                                             \
    SILU, .attention_bias = APR_BIAS_WHEN_STATED, .head_dim = 256, .max_position_embeddings = 32768, .rms_norm_eps = 1e-6, \
          .partial_rotary_factor = 0.25

static const apr_hf_family families[] = {
    {"llama", "LlamaForCausalLM", SILU, .attention_bias = APR_BIAS_WHEN_STATED, .mlp_bias = APR_BIAS_WHEN_STATED,
     .max_position_embeddings = 2048, .rms_norm_eps = 1e-6},
    {"mistral", "MistralForCausalLM", SILU, .window = APR_WINDOW_ALL, .num_kv_heads = 8, .max_position_embeddings = 131072,
     .sliding_window = 4096, .rms_norm_eps = 1e-6},
    {"mixtral", "MixtralForCausalLM", "num_local_experts", "silu", .window = APR_WINDOW_ALL, .num_kv_heads = 8,
     .max_position_embeddings = 131072, .rms_norm_eps = 1e-5, .rope_theta = 1e6},
    {"qwen2", "Qwen2ForCausalLM", SILU, .window = APR_WINDOW_FROM_LAYER, .attention_bias = APR_BIAS_QKV_ALWAYS,
     .max_position_embeddings = 32768, .sliding_window = 4096, .max_window_layers = 28, .rms_norm_eps = 1e-6},
    {"qwen2_moe", "Qwen2MoeForCausalLM", SILU, .window = APR_WINDOW_FROM_LAYER, .attention_bias = APR_BIAS_QKV_ALWAYS, .num_kv_heads = 16,
     .max_position_embeddings = 32768, .sliding_window = 4096, .max_window_layers = 28, .rms_norm_eps = 1e-6},
    {"qwen3", "Qwen3ForCausalLM", SILU, .window = APR_WINDOW_FROM_LAYER, .attention_bias = APR_BIAS_WHEN_STATED, .head_dim = 128,
     .max_position_embeddings = 32768, .sliding_window = 4096, .max_window_layers = 28, .rms_norm_eps = 1e-6},
    {"qwen3_moe", "Qwen3MoeForCausalLM", SILU, .window = APR_WINDOW_FROM_LAYER, .attention_bias = APR_BIAS_WHEN_STATED, .num_kv_heads = 4,
     .max_position_embeddings = 32768, .sliding_window = 4096, .max_window_layers = 28, .rms_norm_eps = 1e-6},
    {"qwen3_next", "Qwen3NextForCausalLM", QWEN35},
    {"qwen3_5", "Qwen3_5ForConditionalGeneration", QWEN35},
    {"qwen3_5_text", "Qwen3_5ForCausalLM", QWEN35},
    {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", QWEN35},
    {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", QWEN35},
    {"gpt_oss", "GptOssForCausalLM", "num_local_experts", "silu", .window = APR_WINDOW_EVEN, .attention_bias = APR_BIAS_WHEN_STATED,
     .num_kv_heads = 8, .head_dim = 64, .max_position_embeddings = 131072, .sliding_window = 128, .rms_norm_eps = 1e-5,
     .rope_theta = 150000},
    {"phi3", "Phi3ForCausalLM", SILU, .window = APR_WINDOW_ALL, .rms_norm_eps = 1e-5},
    {"gemma", "GemmaForCausalLM", GELU},
    {"gemma2", "Gemma2ForCausalLM", GELU, .window = APR_WINDOW_EVEN},
    {"gemma3_text", "Gemma3ForCausalLM", GELU},
};

const apr_hf_family *apr_hf_family_find(const char *architecture)
{
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].architecture, architecture) == 0) return &families[i];
    return NULL;
}
