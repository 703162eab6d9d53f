/* formats/hf/hf_config*.c: what a config.json leaves to its class, what published ones mean, what is refused by name, and what is not a
 * config. */
#include "formats/base/json.h"
#include "formats/hf/safetensors.h"
#include "formats/shape/hf_config.h"
#include "tests/support/config_facts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HIDDEN "hidden_size=15360 "

/* By transformers 5.23's configuration classes; hidden_size and the number of layers are stated, all else is not. */
static const struct {
    const char *type, *layers, *facts;
} classes[] = {
    {"cohere2", "5",
     "num_layers=5 num_heads=64 num_kv_heads=64 head_dim=240 vocab_size=256000 intermediate_size=22528 "
     "max_position_embeddings=8192 rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=240 sliding_window=4096 "
     "logit_scale=0.0625 layers=sssfs tie_word_embeddings no_rope=00010"},
    {"deepseek_v2", "4",
     "num_layers=4 num_heads=32 num_kv_heads=32 head_dim=192 vocab_size=102400 intermediate_size=11008 "
     "max_position_embeddings=2048 rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=64 q_lora_rank=1536 "
     "kv_lora_rank=512 qk_nope_head_dim=128 qk_rope_head_dim=64 v_head_dim=128 num_experts=64 "
     "moe_intermediate_size=1407 num_shared_experts=2 routed_scaling_factor=1"},
    {"deepseek_v3", "4",
     "num_layers=4 num_heads=128 num_kv_heads=128 head_dim=192 vocab_size=129280 intermediate_size=18432 "
     "max_position_embeddings=4096 rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=64 q_lora_rank=1536 "
     "kv_lora_rank=512 qk_nope_head_dim=128 qk_rope_head_dim=64 v_head_dim=128 num_experts=256 "
     "num_experts_per_tok=8 moe_intermediate_size=2048 num_shared_experts=1 num_expert_groups=8 "
     "num_expert_groups_used=4 routed_scaling_factor=2.5 ffn=ddde norm_topk_prob"},
    {"ernie4_5_moe", "4",
     "num_layers=4 num_heads=20 num_kv_heads=4 head_dim=768 vocab_size=103424 intermediate_size=12288 "
     "max_position_embeddings=131072 rms_norm_eps=1e-05 rope_theta=500000 rotary_dim=768 num_experts=64 "
     "num_experts_per_tok=6 moe_intermediate_size=1536 num_shared_experts=2 moe_norm_min=1e-12 ffn=deee "
     "norm_topk_prob tie_word_embeddings"},
    {"gemma2", "4",
     "num_layers=4 num_heads=8 num_kv_heads=4 head_dim=256 vocab_size=256000 intermediate_size=9216 "
     "max_position_embeddings=8192 rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=256 sliding_window=4096 "
     "query_pre_attn_scalar=256 attn_logit_softcapping=50 final_logit_softcapping=30 layers=sfsf "
     "tie_word_embeddings"},
    {"gemma3_text", "7",
     "num_layers=7 num_heads=8 num_kv_heads=4 head_dim=256 vocab_size=262208 intermediate_size=9216 "
     "max_position_embeddings=131072 rms_norm_eps=1e-06 rope_theta=1000000 rotary_dim=256 rope_theta_local=10000 "
     "sliding_window=4096 query_pre_attn_scalar=256 layers=sssssfs tie_word_embeddings"},
    {"gemma4_text", "8",
     "num_layers=8 num_heads=8 num_kv_heads=4 head_dim=256 vocab_size=262144 intermediate_size=9216 "
     "max_position_embeddings=131072 rms_norm_eps=1e-06 rope_theta=1000000 rotary_dim=256 rope_theta_local=10000 "
     "sliding_window=512 global_head_dim=512 per_layer_input_size=256 rope=proportional "
     "partial_rotary_factor=0.25 layers=sssssfsf norm_topk_prob tie_word_embeddings"},
    {"glm4", "3",
     "num_layers=3 num_heads=32 num_kv_heads=2 head_dim=128 vocab_size=151552 intermediate_size=13696 "
     "max_position_embeddings=131072 rms_norm_eps=1.5625e-07 rope_theta=10000 rotary_dim=64 attention_bias"},
    {"glm4_moe", "3",
     "num_layers=3 num_heads=96 num_kv_heads=8 head_dim=160 vocab_size=151552 intermediate_size=10944 "
     "max_position_embeddings=131072 rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=80 num_experts=128 "
     "num_experts_per_tok=8 moe_intermediate_size=1408 num_shared_experts=1 num_expert_groups=1 "
     "num_expert_groups_used=1 routed_scaling_factor=1 ffn=dee norm_topk_prob"},
    {"glm4_moe_lite", "3",
     "num_layers=3 num_heads=20 num_kv_heads=20 head_dim=256 vocab_size=154880 intermediate_size=10240 "
     "max_position_embeddings=202752 rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=64 q_lora_rank=768 "
     "kv_lora_rank=512 qk_nope_head_dim=192 qk_rope_head_dim=64 v_head_dim=256 num_experts=64 "
     "num_experts_per_tok=4 moe_intermediate_size=1536 num_shared_experts=1 num_expert_groups=1 "
     "num_expert_groups_used=1 routed_scaling_factor=1.8 ffn=dee norm_topk_prob"},
    {"gpt_oss", "4",
     "num_layers=4 num_heads=64 num_kv_heads=8 head_dim=64 vocab_size=201088 intermediate_size=2880 "
     "max_position_embeddings=131072 rms_norm_eps=1e-05 rope_theta=150000 rotary_dim=64 sliding_window=128 "
     "num_experts=128 num_experts_per_tok=4 swiglu_limit=7 swiglu_alpha=1.702 rope=yarn factor=32 beta_fast=32 "
     "beta_slow=1 original_context=4096 no_truncate layers=sfsf attention_bias"},
    {"granite", "3",
     "num_layers=3 num_heads=32 num_kv_heads=32 head_dim=480 vocab_size=32000 intermediate_size=11008 "
     "max_position_embeddings=2048 rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=480 attention_multiplier=1 "
     "embedding_multiplier=1 residual_multiplier=1 logits_scaling=1"},
    {"granitemoehybrid", "3",
     "num_layers=3 num_heads=32 num_kv_heads=32 head_dim=480 vocab_size=32000 intermediate_size=11008 "
     "max_position_embeddings=2048 rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=480 attention_multiplier=1 "
     "embedding_multiplier=1 residual_multiplier=1 logits_scaling=1 num_experts=8 num_experts_per_tok=2 "
     "shared_expert_intermediate_size=1024 linear_num_key_heads=1 linear_num_value_heads=128 "
     "linear_key_head_dim=256 linear_value_head_dim=240 linear_conv_kernel_dim=4 layers=mmm no_rope=111"},
    {"hunyuan_v1_moe", "3",
     "num_layers=3 num_heads=32 num_kv_heads=32 head_dim=480 vocab_size=290943 intermediate_size=11008 "
     "max_position_embeddings=2048 rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=480 num_experts=1 "
     "num_experts_per_tok=1 num_shared_experts=1 norm_topk_prob"},
    {"lfm2", "3",
     "num_layers=3 num_heads=32 num_kv_heads=8 head_dim=480 vocab_size=65536 intermediate_size=8192 "
     "max_position_embeddings=128000 rms_norm_eps=1e-05 rope_theta=1000000 rotary_dim=480 "
     "linear_conv_kernel_dim=3 layers=fff tie_word_embeddings"},
    {"lfm2_moe", "3",
     "num_layers=3 num_heads=32 num_kv_heads=8 head_dim=480 vocab_size=65536 intermediate_size=7168 "
     "max_position_embeddings=128000 rms_norm_eps=1e-05 rope_theta=1000000 rotary_dim=480 num_experts=32 "
     "num_experts_per_tok=4 moe_intermediate_size=1792 routed_scaling_factor=1 linear_conv_kernel_dim=3 ffn=dde "
     "norm_topk_prob tie_word_embeddings layers=fff"},
    {"llama4_text", "5",
     "num_layers=5 num_heads=40 num_kv_heads=8 head_dim=128 vocab_size=202048 intermediate_size=16384 "
     "max_position_embeddings=131072 rms_norm_eps=1e-05 rope_theta=500000 rotary_dim=128 "
     "attention_chunk_size=8192 attn_temperature=0.1 attn_temperature_length=8192 num_experts=16 "
     "num_experts_per_tok=1 moe_intermediate_size=8192 shared_expert_intermediate_size=8192 layers=cccfc "
     "use_qk_norm no_rope=00010"},
    {"minimax_m2", "3",
     "num_layers=3 num_heads=48 num_kv_heads=8 head_dim=128 vocab_size=200064 intermediate_size=1536 "
     "max_position_embeddings=196608 rms_norm_eps=1e-06 rope_theta=5000000 rotary_dim=128 num_experts=256 "
     "num_experts_per_tok=8 norm_topk_prob use_qk_norm"},
    {"ministral3", "3",
     "num_layers=3 num_heads=32 num_kv_heads=8 head_dim=128 vocab_size=131072 intermediate_size=14336 "
     "max_position_embeddings=262144 rms_norm_eps=1e-05 rope_theta=1000000 rotary_dim=128 attn_temperature=0.1 "
     "attn_temperature_length=16384 rope=yarn factor=16 beta_fast=32 beta_slow=1 mscale=1 mscale_all_dim=1 "
     "original_context=16384 attention_factor=1"},
    {"mistral4", "3",
     "num_layers=3 num_heads=32 num_kv_heads=32 head_dim=128 vocab_size=131072 intermediate_size=12288 "
     "max_position_embeddings=1048576 rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=64 attn_temperature=0.1 "
     "attn_temperature_length=8192 q_lora_rank=1024 kv_lora_rank=256 qk_nope_head_dim=64 qk_rope_head_dim=64 "
     "v_head_dim=128 num_experts=128 num_experts_per_tok=4 moe_intermediate_size=2048 num_shared_experts=1 "
     "num_expert_groups=1 num_expert_groups_used=1 routed_scaling_factor=1 rope=yarn factor=128 beta_fast=32 "
     "beta_slow=1 mscale=1 mscale_all_dim=1 original_context=8192 attention_factor=1 norm_topk_prob"},
    {"nemotron_h", "4,\"layers_block_type\":[\"linear_attention\",\"moe\",\"full_attention\",\"mlp\"]",
     "num_layers=4 num_heads=32 num_kv_heads=8 head_dim=128 vocab_size=131072 intermediate_size=21504 "
     "max_position_embeddings=4096 rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=128 num_experts=8 "
     "num_experts_per_tok=2 moe_intermediate_size=7688 shared_expert_intermediate_size=7688 num_shared_experts=1 "
     "num_expert_groups=1 num_expert_groups_used=1 routed_scaling_factor=1 linear_num_key_heads=8 "
     "linear_num_value_heads=128 linear_key_head_dim=128 linear_value_head_dim=64 linear_conv_kernel_dim=4 "
     "layers=mnfn norm_topk_prob ffn=nend no_rope=1111"},
    {"olmo2", "3",
     "num_layers=3 num_heads=32 num_kv_heads=32 head_dim=480 vocab_size=50304 intermediate_size=11008 "
     "max_position_embeddings=2048 rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=480"},
    {"phi3", "3",
     "num_layers=3 num_heads=32 num_kv_heads=32 head_dim=480 vocab_size=32064 intermediate_size=8192 "
     "max_position_embeddings=4096 rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=480"},
    {"mixtral", "3",
     "num_layers=3 num_heads=32 num_kv_heads=8 head_dim=480 vocab_size=32000 intermediate_size=14336 "
     "max_position_embeddings=131072 rms_norm_eps=1e-05 rope_theta=1000000 rotary_dim=480 num_experts=8 "
     "num_experts_per_tok=2 norm_topk_prob"},
    {"qwen2_moe", "3",
     "num_layers=3 num_heads=16 num_kv_heads=16 head_dim=960 vocab_size=151936 intermediate_size=5632 "
     "max_position_embeddings=32768 rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=960 num_experts=60 "
     "num_experts_per_tok=4 moe_intermediate_size=1408 shared_expert_intermediate_size=5632"},
    {"qwen3_moe", "3",
     "num_layers=3 num_heads=32 num_kv_heads=4 head_dim=480 vocab_size=151936 intermediate_size=6144 "
     "max_position_embeddings=32768 rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=480 num_experts=128 "
     "num_experts_per_tok=8 moe_intermediate_size=768"},
    {"qwen3_next", "5",
     "num_layers=5 num_heads=16 num_kv_heads=2 head_dim=256 vocab_size=151936 intermediate_size=5632 "
     "max_position_embeddings=32768 rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=64 num_experts=512 "
     "num_experts_per_tok=10 moe_intermediate_size=512 shared_expert_intermediate_size=512 "
     "linear_num_key_heads=16 linear_num_value_heads=32 linear_key_head_dim=128 linear_value_head_dim=128 "
     "linear_conv_kernel_dim=4 full_attention_interval=4 layers=lllfl norm_topk_prob"},
    {"qwen3_5_text", "5",
     "num_layers=5 num_heads=16 num_kv_heads=4 head_dim=256 vocab_size=248320 intermediate_size=12288 "
     "max_position_embeddings=32768 rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=64 linear_num_key_heads=16 "
     "linear_num_value_heads=32 linear_key_head_dim=128 linear_value_head_dim=128 linear_conv_kernel_dim=4 "
     "full_attention_interval=4 layers=lllfl"},
    {"qwen3_5_moe_text", "5",
     "num_layers=5 num_heads=16 num_kv_heads=2 head_dim=256 vocab_size=248320 max_position_embeddings=32768 "
     "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=64 num_experts=256 num_experts_per_tok=8 "
     "moe_intermediate_size=512 shared_expert_intermediate_size=512 linear_num_key_heads=16 "
     "linear_num_value_heads=32 linear_key_head_dim=128 linear_value_head_dim=128 linear_conv_kernel_dim=4 "
     "full_attention_interval=4 layers=lllfl norm_topk_prob"},
    {"seed_oss", "3",
     "num_layers=3 num_heads=80 num_kv_heads=8 head_dim=128 vocab_size=155136 intermediate_size=27648 "
     "max_position_embeddings=524288 rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=128 attention_bias"},
    {"smollm3", "5",
     "num_layers=5 num_heads=16 num_kv_heads=4 head_dim=960 vocab_size=128256 intermediate_size=11008 "
     "max_position_embeddings=32768 rms_norm_eps=1e-06 rope_theta=2000000 rotary_dim=960 tie_word_embeddings "
     "no_rope=00010"},
};

static void what_is_absent_has_the_default_of_each_class(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        apr_arena arena = {0};
        apr_hparams h;
        char text[400], facts[900];
        snprintf(text, sizeof text, "{\"model_type\":\"%s\",\"hidden_size\":15360,\"num_hidden_layers\":%s}", classes[i].type,
                 classes[i].layers);
        snprintf(facts, sizeof facts, HIDDEN "%s", classes[i].facts);
        read_fact_config(text, classes[i].type, &h, &arena);
        assert_facts(h, facts, classes[i].type);
        apr_arena_close(&arena);
    }
}

/* --- published ones --- */

#define LLLF4  "lllflllflllflllf"
#define SF12   "sfsfsfsfsfsf"
#define FFFF12 "ffffffffffff"

/* As the hub has them (tests/data/configs.json). */
static const struct {
    const char *name, *facts;
} published[] = {
    {"llama-3.1-8b", "hidden_size=4096 num_layers=32 num_heads=32 num_kv_heads=8 head_dim=128 vocab_size=128256 intermediate_size=14336 "
                     "max_position_embeddings=131072 rms_norm_eps=1e-05 rope_theta=500000 rotary_dim=128 rope=llama3 factor=8 "
                     "low_freq_factor=1 high_freq_factor=4 original_context=8192"},
    {"qwen2.5-0.5b", "hidden_size=896 num_layers=24 num_heads=14 num_kv_heads=2 head_dim=64 vocab_size=151936 intermediate_size=4864 "
                     "max_position_embeddings=32768 rms_norm_eps=1e-06 rope_theta=1000000 rotary_dim=64 tie_word_embeddings"},
    {"qwen3-4b", "hidden_size=2560 num_layers=36 num_heads=32 num_kv_heads=8 head_dim=128 vocab_size=151936 intermediate_size=9728 "
                 "max_position_embeddings=40960 rms_norm_eps=1e-06 rope_theta=1000000 rotary_dim=128 tie_word_embeddings"},
    {"qwen3-30b-a3b", "hidden_size=2048 num_layers=48 num_heads=32 num_kv_heads=4 head_dim=128 vocab_size=151936 intermediate_size=6144 "
                      "max_position_embeddings=40960 rms_norm_eps=1e-06 rope_theta=1000000 rotary_dim=128 num_experts=128 "
                      "num_experts_per_tok=8 moe_intermediate_size=768 norm_topk_prob"},
    {"qwen3.5-35b-a3b", "hidden_size=2048 num_layers=40 num_heads=16 num_kv_heads=2 head_dim=256 vocab_size=248320 "
                        "max_position_embeddings=262144 rms_norm_eps=1e-06 rope_theta=10000000 rotary_dim=64 num_experts=256 "
                        "num_experts_per_tok=8 moe_intermediate_size=512 shared_expert_intermediate_size=512 linear_num_key_heads=16 "
                        "linear_num_value_heads=32 linear_key_head_dim=128 linear_value_head_dim=128 linear_conv_kernel_dim=4 "
                        "full_attention_interval=4 norm_topk_prob layers=" LLLF4 LLLF4 "lllflllf"},
    {"gpt-oss-20b", "hidden_size=2880 num_layers=24 num_heads=64 num_kv_heads=8 head_dim=64 vocab_size=201088 intermediate_size=2880 "
                    "max_position_embeddings=131072 rms_norm_eps=1e-05 rope_theta=150000 rotary_dim=64 sliding_window=128 num_experts=32 "
                    "num_experts_per_tok=4 swiglu_limit=7 swiglu_alpha=1.702 rope=yarn factor=32 beta_fast=32 beta_slow=1 "
                    "original_context=4096 no_truncate attention_bias layers=" SF12 SF12},
};

static void published_configs_mean_what_their_models_are(void **state)
{
    cJSON *const all = fact_configs();

    (void)state;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        apr_arena arena = {0};
        apr_hparams h;
        char *const text = cJSON_PrintUnformatted(apr_json_get(all, published[i].name));
        read_fact_config(text, published[i].name, &h, &arena);
        assert_facts(h, published[i].facts, published[i].name);
        cJSON_free(text);
        apr_arena_close(&arena);
    }
    cJSON_Delete(all);
}

/* The largest, as far as they say more than their class: what decides size and arithmetic. */
static const struct {
    const char *text, *facts;
} large[] = {
    /* gemma-3-4b: nearly all is left to the class of the text part */
    {"{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"model_type\":\"gemma3\",\"boi_token_index\":255999,\"mm_tokens_per_image\":"
     "256,"
     "\"text_config\":{\"hidden_size\":2560,\"intermediate_size\":10240,\"model_type\":\"gemma3_text\",\"num_hidden_layers\":7,"
     "\"rope_scaling\":{\"factor\":8.0,\"rope_type\":\"linear\"},\"sliding_window\":1024}}",
     "hidden_size=2560 num_layers=7 num_heads=8 num_kv_heads=4 head_dim=256 vocab_size=262208 intermediate_size=10240 "
     "max_position_embeddings=131072 rms_norm_eps=1e-06 rope_theta=1000000 rotary_dim=256 rope_theta_local=10000 sliding_window=1024 "
     "query_pre_attn_scalar=256 rope=linear factor=8 layers=sssssfs tie_word_embeddings"},
    /* DeepSeek-V2-Lite: queries without a latent, no groups */
    {"{\"model_type\":\"deepseek_v2\",\"hidden_size\":2048,\"num_hidden_layers\":4,\"num_attention_heads\":16,\"num_key_value_heads\":16,"
     "\"q_lora_rank\":null,\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128,\"n_group\":1,"
     "\"topk_group\":1,\"topk_method\":\"greedy\",\"scoring_func\":\"softmax\",\"norm_topk_prob\":false,\"num_experts_per_tok\":6,"
     "\"n_routed_experts\":64,\"n_shared_experts\":2,\"moe_intermediate_size\":1408,\"intermediate_size\":10944,\"first_k_dense_replace\":"
     "1,"
     "\"moe_layer_freq\":1,\"routed_scaling_factor\":1.0,\"vocab_size\":102400,\"max_position_embeddings\":163840,\"rope_theta\":10000,"
     "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,\"mscale\":0.707,\"mscale_all_dim\":0.707,\"beta_fast\":32,\"beta_slow\":1,"
     "\"original_max_position_embeddings\":4096}}",
     "hidden_size=2048 num_layers=4 num_heads=16 num_kv_heads=16 head_dim=192 vocab_size=102400 intermediate_size=10944 "
     "max_position_embeddings=163840 rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=64 kv_lora_rank=512 qk_nope_head_dim=128 "
     "qk_rope_head_dim=64 v_head_dim=128 num_experts=64 num_experts_per_tok=6 moe_intermediate_size=1408 num_shared_experts=2 "
     "routed_scaling_factor=1 rope=yarn factor=40 mscale=0.707 mscale_all_dim=0.707 beta_fast=32 beta_slow=1 original_context=4096 "
     "attention_factor=1 ffn=deee"},
    /* granite-4.0-h-1b: no experts, the shared feed-forward alone */
    {"{\"model_type\":\"granitemoehybrid\",\"hidden_size\":1536,\"num_hidden_layers\":3,\"num_attention_heads\":12,\"num_key_value_heads\":"
     "4,"
     "\"layer_types\":[\"mamba\",\"mamba\",\"attention\"],\"num_local_experts\":0,\"num_experts_per_tok\":0,\"intermediate_size\":4096,"
     "\"shared_intermediate_size\":4096,\"mamba_n_heads\":48,\"mamba_d_head\":64,\"mamba_d_state\":128,\"mamba_n_groups\":1,\"mamba_d_"
     "conv\":4,"
     "\"mamba_expand\":2,\"attention_multiplier\":0.0078125,\"embedding_multiplier\":12,\"logits_scaling\":6,\"residual_multiplier\":0.22,"
     "\"position_embedding_type\":\"nope\",\"vocab_size\":100352,\"max_position_embeddings\":131072,\"rope_theta\":10000,"
     "\"rms_norm_eps\":1e-05,\"tie_word_embeddings\":true,\"normalization_function\":\"rmsnorm\"}",
     "hidden_size=1536 num_layers=3 num_heads=12 num_kv_heads=4 head_dim=128 vocab_size=100352 intermediate_size=4096 "
     "max_position_embeddings=131072 rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=128 attention_multiplier=0.0078125 "
     "embedding_multiplier=12 logits_scaling=6 residual_multiplier=0.22 shared_expert_intermediate_size=4096 linear_num_key_heads=1 "
     "linear_num_value_heads=48 linear_key_head_dim=128 linear_value_head_dim=64 linear_conv_kernel_dim=4 layers=mmf no_rope=111 "
     "tie_word_embeddings"},
    /* LFM2-1.2B: the width is made of another */
    {"{\"model_type\":\"lfm2\",\"hidden_size\":2048,\"num_hidden_layers\":3,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
     "\"block_auto_adjust_ff_dim\":true,\"block_ff_dim\":12288,\"block_ffn_dim_multiplier\":1.0,\"block_multiple_of\":256,"
     "\"conv_L_cache\":3,\"conv_bias\":false,\"full_attn_idxs\":[2],\"norm_eps\":1e-05,\"rope_theta\":1000000.0,\"vocab_size\":65536}",
     "hidden_size=2048 num_layers=3 num_heads=32 num_kv_heads=8 head_dim=64 vocab_size=65536 intermediate_size=8192 "
     "max_position_embeddings=128000 rms_norm_eps=1e-05 rope_theta=1000000 rotary_dim=64 linear_conv_kernel_dim=3 layers=vvf "
     "tie_word_embeddings"},
    /* a part of the head that is not stated is all of it */
    {"{\"model_type\":\"gemma4_text\",\"hidden_size\":64,\"num_hidden_layers\":2,\"layer_types\":[\"sliding_attention\",\"full_attention\"]"
     ","
     "\"hidden_size_per_layer_input\":0,\"rope_parameters\":{\"full_attention\":{\"rope_theta\":1000000.0,\"rope_type\":\"proportional\","
     "\"factor\":1.0},\"sliding_attention\":{\"rope_theta\":10000.0},\"rope_theta\":null,\"rope_type\":\"default\"}}",
     "hidden_size=64 num_layers=2 num_heads=8 num_kv_heads=4 head_dim=256 vocab_size=262144 intermediate_size=9216 "
     "max_position_embeddings=131072 rms_norm_eps=1e-06 rope_theta=1000000 rotary_dim=256 rope_theta_local=10000 sliding_window=512 "
     "global_head_dim=512 rope=proportional partial_rotary_factor=1 layers=sf tie_word_embeddings norm_topk_prob"},
    /* an odd part of the head: 3 of 12 numbers; 10000^(4/3) */
    {"{\"model_type\":\"gpt_neox\",\"hidden_size\":48,\"num_hidden_layers\":2,\"num_attention_heads\":4,\"rotary_pct\":0.25}",
     "hidden_size=48 num_layers=2 num_heads=4 num_kv_heads=4 head_dim=12 vocab_size=50432 intermediate_size=24576 "
     "max_position_embeddings=2048 rms_norm_eps=1e-05 rope_theta=215443.46900318822 rotary_dim=4 attention_bias "
     "parallel_residual"},
    /* Mistral-Small-3.1: a mistral in a mistral3, without the newer class's scaling */
    {"{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"mistral\",\"hidden_size\":5120,\"num_hidden_layers\":2,\"head_dim\":"
     "128,"
     "\"num_attention_heads\":32,\"intermediate_size\":32768,\"vocab_size\":131072,\"rope_theta\":1e9,\"rms_norm_eps\":1e-05,"
     "\"sliding_window\":null}}",
     "hidden_size=5120 num_layers=2 num_heads=32 num_kv_heads=8 head_dim=128 vocab_size=131072 intermediate_size=32768 "
     "max_position_embeddings=131072 rms_norm_eps=1e-05 rope_theta=1000000000 rotary_dim=128"},
};

static void published_configs_of_other_families_mean_what_their_models_are(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        apr_arena arena = {0};
        apr_hparams h;
        read_fact_config(large[i].text, large[i].text, &h, &arena);
        assert_facts(h, large[i].facts, large[i].text);
        apr_arena_close(&arena);
    }
}

/* --- what no part computes --- */

#define BASE "\"hidden_size\":64,\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":4"

static const struct {
    const char *architecture, *field, *part_of_refusal; /* NULL: none */
} asked_for[] = {
    {"cohere2", "\"hidden_act\":\"gelu\"", "\"hidden_act\" is \"gelu\""},
    {"cohere2", "\"use_qk_norm\":true", "use_qk_norm"},
    {"cohere2", "\"position_embedding_type\":\"alibi\"", "position_embedding_type"},
    {"cohere2", "\"logit_scale\":0.5", NULL},
    {"llama", "\"logit_scale\":0.5", "logit_scale"},
    {"gemma2", "\"hidden_activation\":\"gelu\"", "\"hidden_activation\" is \"gelu\""},
    {"gemma2", "\"hidden_act\":\"gelu\"", NULL}, /* its class looks at the other */
    {"gemma3_text", "\"use_bidirectional_attention\":true", "use_bidirectional_attention"},
    {"gemma4_text", "\"use_bidirectional_attention\":\"all\"", "use_bidirectional_attention"},
    {"gemma4_text", "\"use_bidirectional_attention\":\"vision\"", NULL},
    {"gemma4_text", "\"per_layer_config\":{\"3\":{\"sliding_window\":4}}", "another \"sliding_window\""},
    {"gemma4_text", "\"per_layer_config\":{\"0\":{\"head_dim\":32},\"3\":{\"head_dim\":32}}", "changes the sliding layer 0"},
    {"gemma4_text",
     "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"sliding_attention\",\"full_attention\"],"
     "\"per_layer_config\":{\"3\":{\"head_dim\":32}}",
     "leaves out layers"},
    {"gemma4_text",
     "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"sliding_attention\",\"full_attention\"],"
     "\"per_layer_config\":{\"0\":{\"head_dim\":16},\"3\":{\"head_dim\":32}}",
     "differs between layers"},
    {"llama", "\"per_layer_config\":{\"3\":{\"head_dim\":4}}", "per_layer_config"},
    {"gpt_neox", "\"rotary_pct\":0.1875,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2}",
     "its rotary part of a head is 3 numbers, which is odd, with a scaling of the frequencies"},
    {"deepseek_v32", "\"indexer_types\":[\"full\",\"shared\",\"full\",\"full\"]", "indexer_types"},
    {"glm_moe_dsa", "\"indexer_types\":[\"full\",\"none\",\"full\",\"full\"]", "the index of its layer 1 is of the unknown type \"none\""},
    {"glm_moe_dsa", "\"index_topk_pattern\":\"FSxF\"", "the index of its layer 2 is of the unknown type \"xF\""},
    {"deepseek_v3", "\"scoring_func\":\"softmax\"", "\"scoring_func\" is \"softmax\""},
    {"deepseek_v3", "\"topk_method\":\"greedy\"", "topk_method"},
    {"deepseek_v3", "\"rope_interleave\":false", "rope_interleave"},
    {"deepseek_v3", "\"attention_bias\":true", "attention_bias"},
    {"deepseek_v3", "\"moe_layer_freq\":2", "moe_layer_freq"},
    {"deepseek_v2", "\"topk_method\":\"noaux_tc\"", "topk_method"},
    {"deepseek_v2", "\"norm_topk_prob\":true", "norm_topk_prob"},
    {"qwen3_moe", "\"scoring_func\":\"sigmoid\"", "scoring_func"},
    {"qwen3_moe", "\"use_sliding_window\":true", "use_sliding_window"},
    {"qwen3_next", "\"layer_types\":[\"mamba\",\"mamba\",\"mamba\",\"full_attention\"]", "unknown type \"mamba\""},
    {"qwen2", "\"layer_types\":[\"conv\",\"conv\",\"conv\",\"full_attention\"]", "unknown type \"conv\""},
    {"ernie4_5_moe", "\"use_bias\":true", "use_bias"},
    {"granitemoehybrid", "\"mamba_proj_bias\":true", "mamba_proj_bias"},
    {"granitemoehybrid", "\"time_step_limit\":[0.0,0.5]", "time_step_limit"},
    {"granitemoehybrid", "\"position_embedding_type\":\"learned\"", "position_embedding_type"},
    {"granite", "\"mlp_bias\":true", "mlp_bias"},
    {"nemotron_h", "\"layers_block_type\":[\"mamba\",\"moe\",\"mlp\",\"attention\"],\"mlp_hidden_act\":\"silu\"", "mlp_hidden_act"},
    {"nemotron_h", "\"layers_block_type\":[\"mamba\",\"moe\",\"mlp\",\"attention\"],\"mamba_hidden_act\":\"gelu\"", "mamba_hidden_act"},
    {"nemotron_h", "\"hybrid_override_pattern\":\"ME*X\"", "its layer 3 is of the unknown type"},
    {"nemotron_h", "\"use_cache\":true", "does not say what its layers are"},
    {"lfm2", "\"conv_bias\":true", "conv_bias"},
    {"lfm2_moe", "\"use_expert_bias\":false", "use_expert_bias"},
    {"minimax_m2", "\"attn_type_list\":[0,0,0,1]", "attn_type_list"},
    {"minimax_m2", "\"qk_norm_type\":\"per_head\"", "qk_norm_type"},
    {"minimax_m2", "\"shared_intermediate_size\":64", "shared_intermediate_size"},
    {"hunyuan_v1_moe", "\"moe_topk\":[1,2,1,1]", "\"moe_topk\" differs from layer to layer"},
    {"hunyuan_v1_moe", "\"use_cla\":true", "use_cla"},
    {"hunyuan_v1_moe", "\"use_mixed_mlp_moe\":false", "use_mixed_mlp_moe"},
    {"smollm3", "\"use_sliding_window\":true", "use_sliding_window"},
    {"seed_oss", "\"attention_out_bias\":true", NULL},
    {"glm4", "\"attention_out_bias\":true", "attention_out_bias"},
    {"gemma", "\"hidden_act\":\"gelu\"", NULL},
    {"gemma", "\"hidden_act\":\"silu\"", "hidden_act"},
    {"olmoe", "\"clip_qkv\":8.0", "clip_qkv"},
    {"afmoe", "\"score_func\":\"softmax\"", "score_func"},
    {"afmoe", "\"route_norm\":false", "route_norm"},
    {"llama", "\"mup_enabled\":true", "mup_enabled"},
    {"dots1", "\"scoring_func\":\"noaux_tc\"", NULL},
    {"exaone4", "\"sliding_window\":8,\"sliding_window_pattern\":\"LLXG\"", "sliding_window_pattern"},
    {"glm4_moe_lite", "\"mlp_layer_types\":[\"dense\",\"thin\",\"sparse\",\"sparse\"]", "feed-forward 1 is of the unknown type \"thin\""},
    {"mixtral", "\"mlp_layer_types\":[\"dense\"]", "mlp_layer_types"},
    {"phi3",
     "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1,1,1,1,1,1],\"long_factor\":[1,1,1,1,1,1,1,1],\"long_mscale\":1.2}",
     "long_mscale"},
    {"gemma4_text", "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"proportional\",\"factor\":8.0},\"sliding_attention\":{}}",
     "\"proportional\" has the factor 8"},
    {"gemma3_text", "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"magic\"},\"sliding_attention\":{}}",
     "rope_type is \"magic\""},
    {"gemma3_text", "\"rope_parameters\":{\"full_attention\":{\"spin\":2},\"sliding_attention\":{}}", "\"spin\" is 2"},
};

static apr_status read_text(const char *text, apr_hparams *h, apr_arena *arena, apr_error *err)
{
    const apr_attachment config = {"config.json", (const uint8_t *)text, strlen(text)};
    const apr_status status = apr_hf_config_read(&config, h, arena, "config.json", err);
    return status != APR_OK ? status : apr_hparams_complete(h, arena, "config.json", err);
}

static void what_no_program_does_is_refused_by_field_and_value(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof asked_for / sizeof *asked_for; i++) {
        char text[600];
        apr_arena arena = {0};
        apr_error err = {0};
        apr_hparams h;
        snprintf(text, sizeof text, "{\"model_type\":\"%s\"," BASE ",%s}", asked_for[i].architecture, asked_for[i].field);
        if (read_text(text, &h, &arena, &err) != APR_OK) fail_msg("%s gave: %s", text, err.text);
        const char *const part = asked_for[i].part_of_refusal;
        if ((part == NULL) != (h.refusal == NULL) || (part != NULL && strstr(h.refusal, part) == NULL))
            fail_msg("%s gave: %s", text, h.refusal != NULL ? h.refusal : "no refusal");
        apr_arena_close(&arena);
    }
}

/* --- layers that share an index --- */

/* letters: 1 for a layer that shares; NULL: each layer has its own. */
static const struct {
    const char *fields, *letters;
} indexes[] = {
    {"\"index_topk\":9", NULL},
    {"\"indexer_types\":[\"full\",\"full\",\"full\",\"full\",\"full\",\"full\",\"full\",\"full\"]", NULL},
    {"\"indexer_types\":[\"full\",\"shared\",\"shared\",\"full\",\"full\",\"shared\",\"full\",\"full\"]", "01100100"},
    {"\"index_topk_freq\":4", "00111011"},                              /* the class's offset is 2 */
    {"\"index_topk_freq\":4,\"index_skip_topk_offset\":3", "00011101"}, /* GLM-5.2 */
    {"\"index_topk_freq\":4,\"index_skip_topk_offset\":0", "11101110"},
    {"\"index_topk_freq\":0,\"index_topk_pattern\":null", NULL},
    {"\"index_topk_freq\":4,\"index_topk_pattern\":\"FFSSFSFS\"", "00110101"},
    {"\"indexer_types\":null,\"index_topk_pattern\":[\"full\",\"shared\",\"full\",\"full\",\"full\",\"full\",\"full\",\"full\"]",
     "01000000"},
};

static void layers_share_an_index_as_the_class_derives_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof indexes / sizeof *indexes; i++) {
        char text[400];
        apr_arena arena = {0};
        apr_hparams h;
        snprintf(text, sizeof text, "{\"model_type\":\"glm_moe_dsa\",\"hidden_size\":64,\"num_hidden_layers\":8,%s}", indexes[i].fields);
        read_fact_config(text, text, &h, &arena);
        assert_null(h.refusal);
        assert_null(h.unknown_fields);
        if ((h.shares_index != NULL) != (indexes[i].letters != NULL))
            fail_msg("%s: %s", text, h.shares_index != NULL ? "shares" : "shares not");
        for (int layer = 0; layer < 8 && indexes[i].letters != NULL; layer++)
            if (apr_layer_shares_index(&h, layer) != (indexes[i].letters[layer] == '1')) fail_msg("%s: layer %d", text, layer);
        apr_arena_close(&arena);
    }
}

/* --- what no model has --- */

static const struct {
    const char *architecture, *field, *part_of_sentence;
} absurd[] = {
    {"deepseek_v3", "\"n_group\":3,\"n_routed_experts\":8,\"num_experts_per_tok\":2", "8 experts cannot share 3 groups"},
    {"deepseek_v3", "\"n_group\":4,\"topk_group\":5", "num_expert_groups_used is 5, more than num_expert_groups (4)"},
    {"qwen3_moe", "\"num_experts\":4,\"num_experts_per_tok\":5", "num_experts_per_tok is 5, more than num_experts (4)"},
    {"gpt_neox", "\"head_dim\":15,\"rotary_pct\":1", "rotary dimension 16 does not fit a head of 15"},
    {"phi", "\"partial_rotary_factor\":0.1875", "rotary dimension 3 does not fit a head of 16"},
    {"glm_moe_dsa", "\"indexer_types\":[\"full\"]", "\"indexer_types\" has 1 entries for 4 layers"},
    {"glm_moe_dsa", "\"index_topk_pattern\":\"FFSSS\"", "\"index_topk_pattern\" has 5 entries for 4 layers"},
    {"glm_moe_dsa", "\"indexer_types\":7", "\"indexer_types\" is not a list"},
    {"qwen3_moe", "\"decoder_sparse_step\":0", "\"decoder_sparse_step\" is 0"},
    {"qwen3_moe", "\"mlp_only_layers\":[4]", "names a layer that is not one of the 4"},
    {"qwen3_moe", "\"mlp_only_layers\":[-1]", "names a layer that is not one of the 4"},
    {"qwen3_moe", "\"mlp_only_layers\":7", "\"mlp_only_layers\" is not a list"},
    {"llama4_text", "\"interleave_moe_layer_step\":-1", "\"interleave_moe_layer_step\" is -1"},
    {"llama4_text", "\"no_rope_layers\":[1,1]", "\"no_rope_layers\" has 2 entries for 4 layers"},
    {"llama4_text", "\"no_rope_layers\":[1,1,\"x\",1]", "not a list of integers"},
    {"smollm3", "\"no_rope_layer_interval\":0", "\"no_rope_layer_interval\" is 0"},
    {"cohere2", "\"sliding_window_pattern\":0", "\"sliding_window_pattern\" is 0"},
    {"glm4_moe_lite", "\"mlp_layer_types\":[\"dense\"]", "1 entries for 4 layers"},
    {"glm4_moe", "\"first_k_dense_replace\":-2", "\"first_k_dense_replace\" is -2"},
    {"lfm2", "\"full_attn_idxs\":[9]", "\"full_attn_idxs\" names a layer that does not exist"},
    {"lfm2", "\"block_multiple_of\":0", "gives no valid width"},
    {"lfm2", "\"block_ffn_dim_multiplier\":1e200", "gives no valid width"},
    {"nemotron_h", "\"layers_block_type\":\"ME*E\"", "\"layers_block_type\" is not a list"},
    {"nemotron_h", "\"hybrid_override_pattern\":\"ME\"", "2 entries for 4 layers"},
    {"granitemoehybrid", "\"mamba_n_heads\":3,\"mamba_n_groups\":2", "3 linear value heads cannot share 2 linear key heads"},
    {"granitemoehybrid", "\"mamba_n_heads\":1048576,\"mamba_d_head\":1048577", "which no model has"},
    {"gemma4_text", "\"per_layer_config\":[]", "\"per_layer_config\" is not an object"},
    {"gemma4_text", "\"per_layer_config\":{\"3\":{\"head_dim\":\"wide\"}}", "\"head_dim\" in \"per_layer_config\" is not an integer"},
    {"gemma4_text", "\"per_layer_config\":{\"7\":{\"head_dim\":32}}", "names a layer \"7\""},
    {"gemma4_text", "\"per_layer_config\":{\"x\":{\"head_dim\":32}}", "names a layer \"x\""},
    {"gemma4_text", "\"global_head_dim\":33", "global_head_dim is 33, which is odd"},
    {"gemma4_text", "\"num_kv_shared_layers\":4", "num_kv_shared_layers is 4, more than the layers before them (3)"},
    {"gemma4_text", "\"attention_k_eq_v\":true,\"num_global_key_value_heads\":3", "cannot share 3 key/value heads of full layers"},
    {"gemma4_text", "\"hidden_size_per_layer_input\":1099511627776", "per_layer_input_size is 1099511627776"},
    {"qwen3", "\"head_dim\":131072", "131072 rotary dimensions are more than any model has"},
    {"deepseek_v3", "\"qk_nope_head_dim\":1099511627776", "which no model has"},
    {"deepseek_v3", "\"kv_lora_rank\":1099511627775", "kv_lora_rank is 1099511627775, which no model has"},
    {"deepseek_v3", "\"qk_rope_head_dim\":7", "rotary dimension 7"},
    {"phi3", "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[1,2]}", "has 1 numbers and \"long_factor\" 2"},
    {"phi3", "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1],\"long_factor\":[1]}",
     "1 factors of the rotary scaling do not fit 8"},
    {"phi3", "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[0],\"long_factor\":[1]}", "number 0 of \"short_factor\""},
    {"phi3", "\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":3,\"long_factor\":[1]}", "needs a list \"short_factor\""},
    {"gemma3_text", "\"rope_parameters\":{\"full_attention\":{},\"sliding_attention\":{\"rope_type\":\"linear\"}}", "factor above 0"},
    {"gemma4_text",
     "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"proportional\",\"partial_rotary_factor\":2},\"sliding_attention\":{}}",
     "partial_rotary_factor is 2"},
    {"ministral3", "\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":4,\"llama_4_scaling_beta\":-1}", "attn_temperature is -1"},
    {"minimax_m2", "\"rotary_dim\":130", "rotary dimension 130 does not fit a head of 128"},
    {"cohere2", "\"logit_scale\":-1", "logit_scale is -1"},
    {"mistral", "\"use_qk_norm\":3", "\"use_qk_norm\" is neither true nor false"},
};

static void numbers_that_no_model_has_give_one_sentence(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        char text[600];
        apr_arena arena = {0};
        apr_error err = {0};
        apr_hparams h;
        snprintf(text, sizeof text, "{\"model_type\":\"%s\"," BASE ",%s}", absurd[i].architecture, absurd[i].field);
        const apr_status status = read_text(text, &h, &arena, &err);
        if (status != APR_E_DAMAGED || strstr(err.text, absurd[i].part_of_sentence) == NULL)
            fail_msg("%s gave %d: %s", text, status, err.text);
        apr_arena_close(&arena);
    }
}

/* --- biases --- */

/* As LLaVA 1.5 states it. A config.json of text alone without its size is damaged as before: it has no hidden_size. */
static void the_part_of_a_larger_model_may_leave_out_its_size(void **state)
{
    (void)state;
    static const char part[] = "\"model_type\":\"llama\",\"max_position_embeddings\":4096,\"rms_norm_eps\":1e-05,\"vocab_size\":32064";
    char text[400];
    apr_arena arena = {0};
    apr_error err = {0};
    apr_hparams h;

    snprintf(text, sizeof text, "{\"model_type\":\"llava\",\"text_config\":{%s},\"vision_config\":{\"hidden_size\":1024}}", part);
    assert_int_equal(read_text(text, &h, &arena, &err), APR_OK);
    assert_string_equal(h.architecture, "llama");
    assert_int_equal(h.hidden_size, 4096);
    assert_int_equal(h.num_layers, 32);
    assert_int_equal(h.num_heads, 32);
    assert_int_equal(h.num_kv_heads, 32);
    assert_int_equal(h.head_dim, 128);
    assert_int_equal(h.intermediate_size, 11008);
    assert_int_equal(h.vocab_size, 32064);
    snprintf(text, sizeof text, "{%s}", part);
    assert_int_equal(read_text(text, &h, &arena, &err), APR_OK);
    assert_int_equal(h.hidden_size, 0);
    apr_arena_close(&arena);
}

/* M-RoPE's sections and the layers that images are added to go into GGUF alone. */
static void what_images_need_is_read(void **state)
{
    (void)state;
    static const char text[] = "{\"model_type\":\"qwen3_vl\",\"text_config\":{\"model_type\":\"qwen3_vl_text\"," BASE
                               ",\"rope_scaling\":{\"mrope_interleaved\":true,\"mrope_section\":[24,20,20],\"rope_type\":\"default\"}},"
                               "\"vision_config\":{\"deepstack_visual_indexes\":[8,16,24]}}";
    apr_arena arena = {0};
    apr_error err = {0};
    apr_hparams h;

    assert_int_equal(read_text(text, &h, &arena, &err), APR_OK);
    assert_null(h.refusal);
    assert_string_equal(h.architecture, "qwen3_vl");
    assert_int_equal(h.mrope_time, 24);
    assert_int_equal(h.mrope_height, 20);
    assert_int_equal(h.mrope_width, 20);
    assert_int_equal(h.num_deepstack_layers, 3);
    apr_arena_close(&arena);
}

static void biases_are_where_the_class_has_them(void **state)
{
    static const char *const all[] = {"model.layers.0.self_attn.q_proj.bias", "model.layers.0.self_attn.k_proj.bias",
                                      "model.layers.0.self_attn.v_proj.bias", "model.layers.0.self_attn.o_proj.bias"};
    static const struct {
        const char *architecture;
        bool stated;
        size_t n_biases; /* of those above */
        const char *conflict;
    } cases[] = {
        {"cohere2", true, 4, NULL},
        {"cohere2", true, 3, "none called '*.self_attn.o_proj.bias'"},
        {"cohere2", false, 4, "computes without it"},
        {"glm4", true, 3, NULL},
        {"glm4", true, 4, "has no place for"},
        {"glm4", false, 3, "computes without it"},
        {"seed_oss", true, 3, NULL},
        {"glm4_moe", true, 2, "none called '*.self_attn.v_proj.bias'"},
        {"qwen2_moe", false, 3, NULL},
        {"minimax_m2", true, 3, "has no place for"},
        {"glm4", false, 0, NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_tensor tensors[4] = {{.name = all[0]}, {.name = all[1]}, {.name = all[2]}, {.name = all[3]}};
        const apr_model model = {.tensors = tensors, .n_tensors = cases[i].n_biases};
        const apr_hparams h = {.architecture = cases[i].architecture, .attention_bias = cases[i].stated};
        apr_arena arena = {0};
        const char *const conflict = apr_hf_bias_conflict(&model, &h, true, &arena);
        if ((conflict == NULL) != (cases[i].conflict == NULL) || (conflict != NULL && strstr(conflict, cases[i].conflict) == NULL))
            fail_msg("%s, %zu biases: %s", cases[i].architecture, cases[i].n_biases, conflict);
        apr_arena_close(&arena);
    }
}

/* --- made of tensors --- */

static void a_written_config_says_what_the_tensors_show(void **state)
{
    static const struct {
        const char *architecture, *tensor, *said;
    } cases[] = {
        {"glm4_moe", "model.layers.0.self_attn.q_norm.weight", "\"use_qk_norm\":true"},
        {"glm4_moe", "model.layers.0.self_attn.q_proj.bias", "\"attention_bias\":true"},
        {"gemma4_text", "model.layers.0.router.proj.weight", "\"enable_moe_block\":true"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        apr_tensor tensor = {.name = "model.norm.weight"};
        const apr_model model = {.hparams = {.architecture = cases[i].architecture, .hidden_size = 8}, .tensors = &tensor, .n_tensors = 1};
        char *text = apr_hf_config_make(&model);
        assert_null(strstr(text, cases[i].said));
        free(text);
        tensor.name = cases[i].tensor;
        text = apr_hf_config_make(&model);
        if (strstr(text, cases[i].said) == NULL) fail_msg("%s with '%s': %s", cases[i].architecture, cases[i].tensor, text);
        free(text);
    }
}

/* Classes that suppose layers of Mamba where no list is: a model without any says so. */
static void a_written_config_lists_layers_that_are_all_attention(void **state)
{
    static const struct {
        const char *architecture, *said;
    } cases[] = {
        {"granitemoehybrid", "\"layer_types\":["},
        {"nemotron_h", "\"hybrid_override_pattern\":\"*"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const apr_model model = {.hparams = {.architecture = cases[i].architecture,
                                             .hidden_size = 8,
                                             .num_layers = 3,
                                             .num_heads = 2,
                                             .num_kv_heads = 2,
                                             .head_dim = 4,
                                             .intermediate_size = 8,
                                             .vocab_size = 16}};
        char *const text = apr_hf_config_make(&model);
        const apr_attachment file = {"config.json", (const uint8_t *)text, strlen(text)};
        apr_arena arena = {0};
        apr_error err = {0};
        apr_hparams h;
        if (strstr(text, cases[i].said) == NULL) fail_msg("%s: %s", cases[i].architecture, text);
        if (apr_hf_config_read(&file, &h, &arena, "made", &err) != APR_OK) fail_msg("%s", err.text);
        for (int64_t layer = 0; layer < 3 && i == 0; layer++) assert_int_equal(apr_layer_kind_of(&h, layer), APR_LAYER_FULL);
        apr_arena_close(&arena);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_absent_has_the_default_of_each_class),
        cmocka_unit_test(published_configs_mean_what_their_models_are),
        cmocka_unit_test(published_configs_of_other_families_mean_what_their_models_are),
        cmocka_unit_test(what_no_program_does_is_refused_by_field_and_value),
        cmocka_unit_test(layers_share_an_index_as_the_class_derives_it),
        cmocka_unit_test(numbers_that_no_model_has_give_one_sentence),
        cmocka_unit_test(the_part_of_a_larger_model_may_leave_out_its_size),
        cmocka_unit_test(what_images_need_is_read),
        cmocka_unit_test(biases_are_where_the_class_has_them),
        cmocka_unit_test(a_written_config_says_what_the_tensors_show),
        cmocka_unit_test(a_written_config_lists_layers_that_are_all_attention),
    };
    return cmocka_run_group_tests_name("config_classes", tests, NULL, NULL);
}
