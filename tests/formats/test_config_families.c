/* formats/shape/hf_config*.c: what a config.json of each family says, field by field: as transformers 5 writes it, as the hub has it, and
 * with everything left out that its class assumes. What is read can be written, into a config.json and into an APR file. */
#include "formats/apr/apr_meta.h"
#include "formats/gguf/gguf.h"
#include "formats/hf/safetensors.h"
#include "formats/shape/family.h"
#include "formats/shape/gguf_hparams.h"
#include "formats/shape/hf_config.h"
#include "formats/tensor/losses.h"
#include "tests/support/config_facts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct expected_row {
    const char *name, *facts;
} expected_row;

#define SMALL "hidden_size=32 num_heads=4 vocab_size=148 "

/* By hand of the files themselves and of design notes that transformers' own logits prove; no value is from this program. */
static const expected_row expected[] = {
    {"cohere2", SMALL "num_layers=4 num_kv_heads=2 head_dim=8 intermediate_size=56 max_position_embeddings=512 "
                      "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=8 sliding_window=8 logit_scale=0.25 layers=sssf "
                      "tie_word_embeddings no_rope=0001"},
    {"deepseek_v2", SMALL "num_layers=4 num_kv_heads=4 head_dim=24 intermediate_size=56 max_position_embeddings=512 "
                          "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=8 q_lora_rank=40 kv_lora_rank=24 qk_nope_head_dim=16 "
                          "qk_rope_head_dim=8 v_head_dim=20 num_experts=8 num_experts_per_tok=3 moe_intermediate_size=20 "
                          "num_shared_experts=2 num_expert_groups=4 num_expert_groups_used=2 routed_scaling_factor=1.5 rope=yarn "
                          "factor=4 beta_fast=32 beta_slow=1 mscale=0.707 mscale_all_dim=0.707 original_context=32 "
                          "attention_factor=1 ffn=deee"},
    {"deepseek_v3", SMALL "num_layers=4 num_kv_heads=4 head_dim=24 intermediate_size=56 max_position_embeddings=512 "
                          "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=8 q_lora_rank=40 kv_lora_rank=24 qk_nope_head_dim=16 "
                          "qk_rope_head_dim=8 v_head_dim=20 num_experts=8 num_experts_per_tok=3 moe_intermediate_size=20 "
                          "num_shared_experts=1 num_expert_groups=4 num_expert_groups_used=2 routed_scaling_factor=2.5 rope=yarn "
                          "factor=4 beta_fast=32 beta_slow=1 mscale=1 mscale_all_dim=1 original_context=32 attention_factor=1 "
                          "ffn=deee norm_topk_prob"},
    {"ernie4_5_moe", SMALL "num_layers=4 num_kv_heads=2 head_dim=8 intermediate_size=56 max_position_embeddings=512 "
                           "rms_norm_eps=1e-05 rope_theta=500000 rotary_dim=8 num_experts=6 num_experts_per_tok=3 "
                           "moe_intermediate_size=20 num_shared_experts=2 moe_norm_min=1e-12 ffn=deee norm_topk_prob "
                           "tie_word_embeddings"},
    {"gemma2", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                     "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=12 sliding_window=8 query_pre_attn_scalar=20 "
                     "attn_logit_softcapping=5 final_logit_softcapping=3 layers=sfsf tie_word_embeddings"},
    {"gemma3", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                     "rms_norm_eps=1e-06 rope_theta=1000000 rotary_dim=12 rope_theta_local=10000 sliding_window=8 "
                     "query_pre_attn_scalar=20 layers=sssf tie_word_embeddings"},
    {"gemma3n", "vocab_size=257 hidden_size=64 num_heads=4 num_layers=4 num_kv_heads=2 head_dim=32 intermediate_size=96 "
                "max_position_embeddings=512 rms_norm_eps=1e-06 rope_theta=1000000 rotary_dim=32 rope_theta_local=10000 "
                "sliding_window=9 final_logit_softcapping=30 num_kv_shared_layers=1 per_layer_input_size=8 "
                "per_layer_vocab_size=247 altup_num_inputs=3 laurel_rank=8 num_sparse_layers=1 activation_sparsity=0.5 "
                "layers=sfsf tie_word_embeddings"},
    {"gemma4", SMALL "num_layers=6 num_kv_heads=2 head_dim=16 intermediate_size=56 max_position_embeddings=512 "
                     "rms_norm_eps=1e-06 rope_theta=1000000 rotary_dim=16 rope_theta_local=10000 sliding_window=8 "
                     "final_logit_softcapping=3 num_kv_shared_layers=3 global_head_dim=24 per_layer_input_size=8 "
                     "rope=proportional partial_rotary_factor=0.25 layers=ssfssf norm_topk_prob use_double_wide_mlp "
                     "tie_word_embeddings"},
    {"gemma4_moe", SMALL "num_layers=4 num_kv_heads=2 head_dim=16 intermediate_size=56 max_position_embeddings=512 "
                         "rms_norm_eps=1e-06 rope_theta=1000000 rotary_dim=16 rope_theta_local=10000 sliding_window=8 "
                         "final_logit_softcapping=3 num_experts=6 num_experts_per_tok=3 moe_intermediate_size=20 "
                         "global_head_dim=24 num_global_kv_heads=1 rope=proportional partial_rotary_factor=0.25 layers=sssf "
                         "norm_topk_prob attention_k_eq_v enable_moe_block tie_word_embeddings"},
    {"glm4", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                   "rms_norm_eps=1.5625e-07 rope_theta=10000 rotary_dim=6 attention_bias"},
    {"glm4_moe", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                       "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=6 num_experts=8 num_experts_per_tok=3 "
                       "moe_intermediate_size=20 num_shared_experts=1 num_expert_groups=1 num_expert_groups_used=1 "
                       "routed_scaling_factor=1.5 ffn=deee norm_topk_prob use_qk_norm attention_bias"},
    {"glm4_moe_lite", SMALL "num_layers=4 num_kv_heads=4 head_dim=24 intermediate_size=56 max_position_embeddings=512 "
                            "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=8 q_lora_rank=40 kv_lora_rank=24 qk_nope_head_dim=16 "
                            "qk_rope_head_dim=8 v_head_dim=20 num_experts=8 num_experts_per_tok=3 moe_intermediate_size=20 "
                            "num_shared_experts=1 num_expert_groups=1 num_expert_groups_used=1 routed_scaling_factor=1.8 ffn=deee "
                            "norm_topk_prob"},
    {"gpt_oss", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=20 max_position_embeddings=512 "
                      "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=12 sliding_window=8 num_experts=6 num_experts_per_tok=3 "
                      "swiglu_limit=7 swiglu_alpha=1.702 rope=yarn factor=4 beta_fast=32 beta_slow=1 original_context=32 "
                      "no_truncate layers=sfsf attention_bias"},
    {"granite", SMALL "num_layers=4 num_kv_heads=2 head_dim=8 intermediate_size=56 max_position_embeddings=512 "
                      "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=8 attention_multiplier=0.0625 embedding_multiplier=12 "
                      "residual_multiplier=0.22 logits_scaling=8"},
    {"granitemoehybrid", SMALL "num_layers=4 num_kv_heads=2 head_dim=8 intermediate_size=20 max_position_embeddings=512 "
                               "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=8 attention_multiplier=0.0625 embedding_multiplier=12 "
                               "residual_multiplier=0.22 logits_scaling=8 num_experts=6 num_experts_per_tok=3 "
                               "shared_expert_intermediate_size=36 linear_num_key_heads=1 linear_num_value_heads=8 "
                               "linear_key_head_dim=12 linear_value_head_dim=8 linear_conv_kernel_dim=4 layers=mmfm no_rope=1111"},
    {"hunyuan_v1_moe", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=20 max_position_embeddings=512 "
                             "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=12 num_experts=6 num_experts_per_tok=3 "
                             "num_shared_experts=1 norm_topk_prob"},
    {"lfm2", SMALL "num_layers=4 num_kv_heads=2 head_dim=8 intermediate_size=56 max_position_embeddings=512 "
                   "rms_norm_eps=1e-05 rope_theta=1000000 rotary_dim=8 linear_conv_kernel_dim=3 layers=vfvv "
                   "tie_word_embeddings"},
    {"lfm2_moe", SMALL "num_layers=4 num_kv_heads=2 head_dim=8 intermediate_size=56 max_position_embeddings=512 "
                       "rms_norm_eps=1e-05 rope_theta=1000000 rotary_dim=8 num_experts=6 num_experts_per_tok=3 "
                       "moe_intermediate_size=20 routed_scaling_factor=1 linear_conv_kernel_dim=3 layers=vfvv ffn=deee "
                       "norm_topk_prob tie_word_embeddings"},
    {"llama", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                    "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=12"},
    {"llama4", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                     "rms_norm_eps=1e-05 rope_theta=500000 rotary_dim=12 attention_chunk_size=16 attn_temperature=0.1 "
                     "attn_temperature_length=16 num_experts=6 num_experts_per_tok=1 moe_intermediate_size=20 "
                     "shared_expert_intermediate_size=20 layers=cccf ffn=dede use_qk_norm no_rope=0001"},
    {"minimax_m2", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=20 max_position_embeddings=512 "
                         "rms_norm_eps=1e-06 rope_theta=5000000 rotary_dim=8 num_experts=6 num_experts_per_tok=3 norm_topk_prob "
                         "use_qk_norm"},
    {"ministral3", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                         "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=12 attn_temperature=0.1 attn_temperature_length=16 "
                         "rope=yarn factor=4 beta_fast=32 beta_slow=1 mscale=1 mscale_all_dim=1 original_context=16 "
                         "attention_factor=1"},
    {"mistral", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                      "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=12 sliding_window=8 layers=ssss"},
    {"mistral4", SMALL "num_layers=4 num_kv_heads=4 head_dim=24 intermediate_size=56 max_position_embeddings=512 "
                       "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=8 attn_temperature=0.1 attn_temperature_length=16 "
                       "q_lora_rank=40 kv_lora_rank=24 qk_nope_head_dim=16 qk_rope_head_dim=8 v_head_dim=20 num_experts=8 "
                       "num_experts_per_tok=3 moe_intermediate_size=20 num_shared_experts=1 num_expert_groups=1 "
                       "num_expert_groups_used=1 routed_scaling_factor=1 rope=yarn factor=4 beta_fast=32 beta_slow=1 mscale=1 "
                       "mscale_all_dim=1 original_context=16 attention_factor=1 norm_topk_prob"},
    {"mixtral", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=20 max_position_embeddings=512 "
                      "rms_norm_eps=1e-05 rope_theta=1000000 rotary_dim=12 num_experts=6 num_experts_per_tok=3 norm_topk_prob"},
    {"nemotron_h", SMALL "num_layers=6 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                         "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=12 num_experts=8 num_experts_per_tok=3 "
                         "moe_intermediate_size=20 shared_expert_intermediate_size=36 num_shared_experts=1 num_expert_groups=1 "
                         "num_expert_groups_used=1 routed_scaling_factor=2.5 moe_latent_size=24 linear_num_key_heads=2 "
                         "linear_num_value_heads=8 linear_key_head_dim=12 linear_value_head_dim=8 linear_conv_kernel_dim=4 "
                         "layers=mnfnmn norm_topk_prob ffn=nenene no_rope=111111"},
    {"olmo2", SMALL "num_layers=4 num_kv_heads=2 head_dim=8 intermediate_size=56 max_position_embeddings=512 "
                    "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=8"},
    {"phi3", SMALL "num_layers=4 num_kv_heads=2 head_dim=8 intermediate_size=56 max_position_embeddings=256 "
                   "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=6 rope=longrope original_context=64 "
                   "short_factor=1,1.1,1.2 long_factor=2,3,4"},
    {"qwen2", SMALL "num_layers=4 num_kv_heads=2 head_dim=8 intermediate_size=56 max_position_embeddings=512 "
                    "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=8 layers=ffff"},
    {"qwen2_moe", SMALL "num_layers=4 num_kv_heads=2 head_dim=8 intermediate_size=56 max_position_embeddings=512 "
                        "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=8 num_experts=6 num_experts_per_tok=3 "
                        "moe_intermediate_size=20 shared_expert_intermediate_size=36 layers=ffff"},
    {"qwen3", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                    "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=12 layers=ffff"},
    {"qwen3_5", SMALL "num_layers=4 num_kv_heads=2 head_dim=24 intermediate_size=56 max_position_embeddings=512 "
                      "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=12 linear_num_key_heads=2 linear_num_value_heads=6 "
                      "linear_key_head_dim=16 linear_value_head_dim=8 linear_conv_kernel_dim=4 layers=lllf"},
    {"qwen3_5_moe", SMALL "num_layers=4 num_kv_heads=2 head_dim=24 intermediate_size=56 max_position_embeddings=512 "
                          "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=12 num_experts=6 num_experts_per_tok=3 "
                          "moe_intermediate_size=20 shared_expert_intermediate_size=36 linear_num_key_heads=2 "
                          "linear_num_value_heads=6 linear_key_head_dim=16 linear_value_head_dim=8 linear_conv_kernel_dim=4 "
                          "layers=lllf norm_topk_prob"},
    {"qwen3_moe", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                        "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=12 num_experts=6 num_experts_per_tok=3 "
                        "moe_intermediate_size=20 norm_topk_prob"},
    {"qwen3_next", SMALL "num_layers=4 num_kv_heads=2 head_dim=24 intermediate_size=56 max_position_embeddings=512 "
                         "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=6 num_experts=6 num_experts_per_tok=3 "
                         "moe_intermediate_size=20 shared_expert_intermediate_size=36 linear_num_key_heads=2 "
                         "linear_num_value_heads=6 linear_key_head_dim=16 linear_value_head_dim=8 linear_conv_kernel_dim=4 "
                         "layers=lllf norm_topk_prob"},
    {"seed_oss", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                       "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=12 attention_bias"},
    {"smollm3", SMALL "num_layers=4 num_kv_heads=2 head_dim=8 intermediate_size=56 max_position_embeddings=512 "
                      "rms_norm_eps=1e-06 rope_theta=2000000 rotary_dim=8 layers=ffff tie_word_embeddings no_rope=0001"},
    {"afmoe", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                    "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=12 sliding_window=8 num_experts=8 "
                    "num_experts_per_tok=3 moe_intermediate_size=20 num_shared_experts=1 routed_scaling_factor=1.3 "
                    "layers=sssf ffn=deee norm_topk_prob use_qk_norm scales_embeddings no_rope=0001"},
    {"arcee", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                    "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=12 "
                    "rope=yarn factor=4 beta_fast=32 beta_slow=1 original_context=32"},
    {"dots1", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                    "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=12 sliding_window=4096 num_experts=8 "
                    "num_experts_per_tok=3 moe_intermediate_size=20 num_shared_experts=1 num_expert_groups=4 "
                    "num_expert_groups_used=2 routed_scaling_factor=2.5 layers=ffff ffn=deee norm_topk_prob "
                    "use_qk_norm"},
    {"ernie4_5", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                       "rms_norm_eps=1e-05 rope_theta=500000 rotary_dim=12 tie_word_embeddings"},
    {"exaone4", SMALL "num_layers=4 num_kv_heads=2 head_dim=8 intermediate_size=56 max_position_embeddings=512 "
                      "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=8 sliding_window=8 "
                      "rope=llama3 factor=8 low_freq_factor=1 high_freq_factor=4 original_context=64 layers=sssf "
                      "no_rope=0001"},
    {"exaone_moe", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                         "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=12 sliding_window=8 num_experts=8 "
                         "num_experts_per_tok=3 moe_intermediate_size=20 num_shared_experts=1 num_expert_groups=4 "
                         "num_expert_groups_used=2 routed_scaling_factor=2.5 layers=sssf ffn=deee norm_topk_prob "
                         "use_qk_norm no_rope=0001"},
    {"gemma", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                    "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=12 tie_word_embeddings"},
    {"granitemoe", SMALL "num_layers=4 num_kv_heads=2 head_dim=8 intermediate_size=20 max_position_embeddings=512 "
                         "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=8 attention_multiplier=0.0625 "
                         "embedding_multiplier=12 residual_multiplier=0.22 logits_scaling=8 num_experts=6 "
                         "num_experts_per_tok=3"},
    {"granitemoeshared", SMALL "num_layers=4 num_kv_heads=2 head_dim=8 intermediate_size=20 max_position_embeddings=512 "
                               "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=8 attention_multiplier=0.0625 "
                               "embedding_multiplier=12 residual_multiplier=0.22 logits_scaling=8 num_experts=6 "
                               "num_experts_per_tok=3 shared_expert_intermediate_size=36"},
    {"hunyuan_v1_dense", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                               "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=12"},
    {"hy_v3", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                    "rms_norm_eps=1e-05 rope_theta=11158840 rotary_dim=12 num_experts=8 num_experts_per_tok=3 "
                    "moe_intermediate_size=20 num_shared_experts=1 routed_scaling_factor=2.826 ffn=deee "
                    "norm_topk_prob use_qk_norm"},
    {"internlm3", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                        "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=12"},
    {"iquestcoder", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                          "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=12"},
    {"mellum", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                     "rms_norm_eps=1e-06 rope_theta=500000 rotary_dim=12 rope_theta_local=10000 sliding_window=8 "
                     "num_experts=6 num_experts_per_tok=3 moe_intermediate_size=20 layers=sssf norm_topk_prob"},
    {"ministral", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                        "rms_norm_eps=1e-06 rope_theta=10000 rotary_dim=12 sliding_window=8 layers=sssf"},
    {"olmo3", SMALL "num_layers=4 num_kv_heads=2 head_dim=8 intermediate_size=56 max_position_embeddings=512 "
                    "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=8 rope_theta_local=10000 sliding_window=8 "
                    "rope=yarn factor=4 beta_fast=32 beta_slow=1 original_context=32 layers=sssf"},
    {"olmoe", SMALL "num_layers=4 num_kv_heads=2 head_dim=8 intermediate_size=20 max_position_embeddings=512 "
                    "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=8 num_experts=6 num_experts_per_tok=3"},
    {"solar_open", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                         "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=12 num_experts=8 num_experts_per_tok=3 "
                         "moe_intermediate_size=20 num_shared_experts=1 num_expert_groups=1 num_expert_groups_used=1 "
                         "routed_scaling_factor=1.5 rope=yarn factor=4 beta_fast=32 beta_slow=1 original_context=32 "
                         "norm_topk_prob"},
    {"starcoder2", SMALL "num_layers=4 num_kv_heads=2 head_dim=8 intermediate_size=56 max_position_embeddings=512 "
                         "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=8 sliding_window=8 layers=ssss attention_bias mlp_bias "
                         "tie_word_embeddings"},
    {"phi", SMALL "num_layers=4 num_kv_heads=4 head_dim=8 intermediate_size=56 max_position_embeddings=512 "
                  "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=4"},
    {"gpt_neox", SMALL "num_layers=4 num_kv_heads=4 head_dim=8 intermediate_size=56 max_position_embeddings=512 "
                       "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=4 attention_bias parallel_residual"},
    {"gpt2", SMALL "num_layers=4 num_kv_heads=4 head_dim=8 intermediate_size=128 max_position_embeddings=512 "
                   "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=8 tie_word_embeddings"},
    {"opt", SMALL "num_layers=4 num_kv_heads=4 head_dim=8 intermediate_size=56 max_position_embeddings=512 "
                  "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=8 attention_bias mlp_bias tie_word_embeddings"},
    {"cohere", SMALL "num_layers=4 num_kv_heads=2 head_dim=8 intermediate_size=56 max_position_embeddings=512 "
                     "rms_norm_eps=1e-05 rope_theta=500000 rotary_dim=8 logit_scale=0.4 use_qk_norm tie_word_embeddings"},
    {"bamba", SMALL "num_layers=4 num_kv_heads=2 head_dim=8 intermediate_size=56 max_position_embeddings=512 "
                    "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=4 linear_num_key_heads=1 linear_num_value_heads=8 "
                    "linear_key_head_dim=12 linear_value_head_dim=8 linear_conv_kernel_dim=4 layers=mmfm"},
    {"falcon_h1", SMALL "num_layers=4 num_kv_heads=2 head_dim=12 intermediate_size=56 max_position_embeddings=512 "
                        "rms_norm_eps=1e-05 rope_theta=10000 rotary_dim=12 embedding_multiplier=5 logit_scale=0.3 "
                        "attention_in_multiplier=1.1 attention_out_multiplier=0.8 key_multiplier=0.6 ssm_in_multiplier=1.2 "
                        "ssm_out_multiplier=0.9 ssm_z_multiplier=0.5 ssm_x_multiplier=0.8 ssm_b_multiplier=0.9 "
                        "ssm_c_multiplier=1.1 ssm_dt_multiplier=0.7 mlp_gate_multiplier=0.9 mlp_down_multiplier=0.6 "
                        "linear_num_key_heads=2 linear_num_value_heads=8 linear_key_head_dim=12 linear_value_head_dim=8 "
                        "linear_conv_kernel_dim=4 mamba_norm_before_gate"},
    {"mamba2", "hidden_size=32 vocab_size=148 num_layers=4 max_position_embeddings=512 rms_norm_eps=1e-05 rope_theta=10000 "
               "linear_num_key_heads=2 linear_num_value_heads=8 linear_key_head_dim=12 linear_value_head_dim=8 "
               "linear_conv_kernel_dim=4 layers=mmmm no_rope=1111"},
    {"kimi_linear",
     SMALL "num_layers=4 num_kv_heads=4 head_dim=24 intermediate_size=56 max_position_embeddings=512 rms_norm_eps=1e-05 "
           "rope_theta=10000 rotary_dim=8 kv_lora_rank=24 qk_nope_head_dim=16 "
           "qk_rope_head_dim=8 v_head_dim=20 num_experts=8 num_experts_per_tok=3 moe_intermediate_size=20 num_shared_experts=1 "
           "num_expert_groups=4 num_expert_groups_used=2 routed_scaling_factor=2.5 linear_num_key_heads=4 linear_num_value_heads=4 "
           "linear_key_head_dim=12 linear_value_head_dim=12 linear_conv_kernel_dim=4 layers=llfl ffn=deee no_rope=1111 norm_topk_prob"},
    {"bailing_hybrid",
     SMALL "num_layers=4 num_kv_heads=4 head_dim=24 intermediate_size=56 max_position_embeddings=512 rms_norm_eps=1e-06 "
           "rope_theta=6000000 rotary_dim=8 kv_lora_rank=24 qk_nope_head_dim=16 "
           "qk_rope_head_dim=8 v_head_dim=20 num_experts=8 num_experts_per_tok=3 moe_intermediate_size=20 num_shared_experts=1 "
           "num_expert_groups=4 num_expert_groups_used=2 routed_scaling_factor=2.5 linear_num_key_heads=4 linear_num_value_heads=4 "
           "linear_key_head_dim=12 linear_value_head_dim=12 linear_conv_kernel_dim=4 kda_bound=5 num_nextn_layers=1 layers=lflf ffn=deee "
           "norm_topk_prob"},
};

enum { N_EXPECTED = sizeof expected / sizeof *expected };

/* --- configs --- */

static const char *facts_of(const char *name)
{
    for (size_t i = 0; i < N_EXPECTED; i++)
        if (strcmp(expected[i].name, name) == 0) return expected[i].facts;
    fail_msg("%s is not expected", name);
    return NULL;
}

static void read_json(const cJSON *config, const char *where, apr_hparams *h, apr_arena *arena)
{
    char *const text = cJSON_PrintUnformatted(config);
    read_fact_config(text, where, h, arena);
    cJSON_free(text);
}

/* Calls `visit` with each of them, read and unread. */
static void for_each(void (*visit)(const expected_row *row, cJSON *config, const apr_hparams *h))
{
    cJSON *const all = fact_configs();

    for (size_t i = 0; i < N_EXPECTED; i++) {
        cJSON *const config = cJSON_GetObjectItemCaseSensitive(all, expected[i].name);
        apr_arena arena = {0};
        apr_hparams h;
        read_json(config, expected[i].name, &h, &arena);
        visit(&expected[i], config, &h);
        apr_arena_close(&arena);
    }
    cJSON_Delete(all);
}

static void visit_read(const expected_row *row, cJSON *config, const apr_hparams *h)
{
    (void)config;
    assert_facts(*h, row->facts, row->name);
    if (h->unknown_fields != NULL) fail_msg("%s: %s are not known", row->name, h->unknown_fields);
}

static void each_family_is_read_field_by_field(void **state)
{
    (void)state;
    assert_int_equal(N_EXPECTED, 66);
    for_each(visit_read);
}

/* rope_parameters as transformers 4 had them: the base and the part next to rope_scaling. */
static void make_older(cJSON *config)
{
    cJSON *const rope = cJSON_DetachItemFromObject(config, "rope_parameters");
    const char *const type = apr_json_get_string(rope, "rope_type");
    static const char *const moved[] = {"rope_theta", "partial_rotary_factor"};

    for (size_t i = 0; i < sizeof moved / sizeof *moved; i++) {
        cJSON *const item = cJSON_DetachItemFromObject(rope, moved[i]);
        if (item != NULL) cJSON_AddItemToObject(config, moved[i], item);
    }
    if (type != NULL && strcmp(type, "default") != 0) cJSON_AddItemToObject(config, "rope_scaling", rope);
    else cJSON_Delete(rope);
}

static void visit_older(const expected_row *row, cJSON *config, const apr_hparams *h)
{
    apr_arena arena = {0};
    apr_hparams older;

    (void)h;
    if (apr_json_get(apr_json_get(config, "rope_parameters"), "full_attention") != NULL) return; /* newer than that */
    make_older(config);
    read_json(config, row->name, &older, &arena);
    assert_facts(older, row->facts, row->name);
    apr_arena_close(&arena);
}

static void the_rotary_numbers_of_transformers_4_are_read(void **state)
{
    (void)state;
    for_each(visit_older);
}

/* What the hub's files say otherwise than transformers 5: fields that are gone, others that are there, the same facts but `more`. */
static const struct {
    const char *name, *gone, *instead, *more;
} hub[] = {
    {"cohere2", " layer_types head_dim rope_parameters ",
     "{\"sliding_window_pattern\":4,\"rope_theta\":10000,\"rotary_pct\":1.0,\"position_embedding_type\":\"rope_gptj\"}", ""},
    {"deepseek_v2", " head_dim qk_head_dim rope_parameters ",
     "{\"moe_layer_freq\":1,\"scoring_func\":\"softmax\",\"ep_size\":1,\"rope_theta\":10000,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":"
     "4,"
     "\"beta_fast\":32,\"beta_slow\":1,\"mscale\":0.707,\"mscale_all_dim\":0.707,\"original_max_position_embeddings\":32}}",
     ""},
    {"deepseek_v3", " head_dim qk_head_dim rope_interleave rope_parameters ",
     "{\"moe_layer_freq\":1,\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\",\"rope_theta\":10000,\"rope_scaling\":{\"type\":"
     "\"yarn\",\"factor\":4,\"beta_fast\":32,\"beta_slow\":1,\"mscale\":1.0,\"mscale_all_dim\":1.0,\"original_max_position_embeddings\":32}"
     "}",
     ""},
    {"kimi_linear", " head_dim qk_head_dim layer_types mlp_layer_types linear_head_dim linear_num_heads linear_conv_kernel_dim ",
     "{\"linear_attn_config\":{\"full_attn_layers\":[3],\"kda_layers\":[1,2,4],\"head_dim\":12,\"num_heads\":4,"
     "\"short_conv_kernel_size\":4},\"first_k_dense_replace\":1,\"mla_use_nope\":true,\"moe_router_activation_func\":\"sigmoid\","
     "\"use_grouped_topk\":true,\"moe_layer_freq\":1,\"rope_theta\":10000,\"rope_scaling\":null}",
     ""},
    {"bailing_hybrid", " head_dim layer_types mlp_layer_types linear_head_dim linear_num_heads linear_conv_kernel_dim ",
     "{\"head_dim\":12,\"short_conv_kernel_size\":4,\"first_k_dense_replace\":1}", ""},
    {"bailing_hybrid", " kda_lower_bound ", "{}", ""}, /* the class's */
    {"ernie4_5_moe", " moe_layer_end_index ", "{\"moe_layer_end_index\":-1,\"head_dim\":8}", ""},
    {"gemma2", " layer_types rope_parameters ", "{\"hidden_act\":\"gelu_pytorch_tanh\",\"rope_theta\":10000.0}", ""},
    {"gemma3", " layer_types rope_parameters _sliding_window_pattern ",
     "{\"sliding_window_pattern\":4,\"rope_theta\":1000000,\"rope_local_base_freq\":10000}", ""},
    {"gemma3", " rope_parameters ",
     "{\"rope_theta\":1000000,\"rope_local_base_freq\":10000,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8.0}}",
     " rope=linear factor=8"},
    {"gemma3", " rope_parameters ", "{\"rope_scaling\":null}", ""}, /* the class's bases */
    {"gemma3n", " rope_parameters intermediate_size ",
     "{\"rope_theta\":1000000,\"rope_local_base_freq\":10000,\"rope_scaling\":null,\"query_pre_attn_scalar\":256,"
     "\"altup_lr_multiplier\":1.0,\"intermediate_size\":96}",
     ""}, /* as published */
    {"gemma4", " per_layer_config ", "{\"global_head_dim\":24,\"num_global_key_value_heads\":null}", ""},
    {"gemma4", " per_layer_config ", "{\"global_head_dim\":24,\"num_global_key_value_heads\":1}", ""}, /* with shared keys alone */
    {"gemma4", " per_layer_config rope_parameters ", "{\"per_layer_config\":{\"02\":{\"head_dim\":24},\"05\":{\"head_dim\":24}}}", ""},
    {"gemma4_moe", " per_layer_config ",
     "{\"global_head_dim\":24,\"num_global_key_value_heads\":1,\"use_bidirectional_attention\":\"vision\"}", ""},
    {"glm4_moe", " rope_parameters ", "{\"rope_theta\":10000,\"partial_rotary_factor\":0.5}", ""},
    {"glm4_moe", " n_routed_experts rope_parameters ", "{\"num_local_experts\":8}", ""},
    {"glm4_moe_lite", " mlp_layer_types head_dim rope_interleave ",
     "{\"first_k_dense_replace\":1,\"topk_method\":\"noaux_tc\",\"partial_rotary_factor\":1.0}", ""},
    {"glm4_moe_lite", " mlp_layer_types ", "{}", ""},
    {"gpt_oss", " layer_types swiglu_alpha attention_bias ", "{\"experts_per_token\":3,\"initial_context_length\":32}", ""},
    {"granitemoehybrid", " layer_types position_embedding_type time_step_limit mamba_d_head ",
     "{\"layer_types\":[\"mamba\",\"mamba\",\"attention\",\"mamba\"],\"position_embedding_type\":\"nope\",\"mamba_d_head\":\"auto\"}", ""},
    {"hunyuan_v1_moe", " moe_topk head_dim ",
     "{\"moe_topk\":[3,3,3,3],\"num_shared_expert\":[1,1,1,1],\"attention_head_dim\":12,\"use_mixed_mlp_moe\":true,\"use_qk_norm\":true,"
     "\"use_cla\":false,\"norm_type\":\"rms\"}",
     " use_qk_norm"},
    {"hunyuan_v1_moe", " rope_parameters ", "{\"rope_scaling\":{\"type\":\"dynamic\",\"alpha\":1000.0,\"factor\":1.0}}",
     " rope=dynamic alpha=1000 factor=1"},
    {"lfm2", " layer_types intermediate_size tie_word_embeddings ", "{\"full_attn_idxs\":[1],\"block_ff_dim\":56,\"tie_embedding\":true}",
     ""},
    {"lfm2_moe", " num_dense_layers routed_scaling_factor ", "{\"num_dense_layers\":1}", ""},
    {"llama4", " layer_types moe_layers no_rope_layers use_qk_norm ",
     "{\"no_rope_layers\":[],\"attn_temperature_tuning\":4,\"attn_scale\":0.1,\"floor_scale\":16,\"for_llm_class\":false}", ""},
    {"llama4", " rope_parameters ",
     "{\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":16.0,\"low_freq_factor\":1.0,\"high_freq_factor\":1.0,"
     "\"original_max_position_embeddings\":32}}",
     " rope=llama3 factor=16 low_freq_factor=1 high_freq_factor=1 original_context=32"},
    {"minimax_m2", " rope_parameters ",
     "{\"rope_theta\":5000000,\"attn_type_list\":[1,1,1,1],\"scoring_func\":\"sigmoid\",\"use_routing_bias\":true,\"use_qk_norm\":true,"
     "\"qk_norm_type\":\"per_layer\",\"shared_intermediate_size\":0,\"num_mtp_modules\":3,\"sliding_window\":null}",
     ""},
    {"mixtral", " head_dim ", "{\"head_dim\":12,\"router_jitter_noise\":0.0}", ""},
    {"nemotron_h", " layers_block_type time_step_limit mtp_layers_block_type ",
     "{\"hybrid_override_pattern\":\"ME*EME\",\"num_hidden_layers\":6,\"time_step_limit\":[0.0,1e999]}", ""},
    {"nemotron_h", " layers_block_type n_groups conv_kernel ",
     "{\"layers_block_type\":[\"mamba\",\"moe\",\"attention\",\"moe\",\"mamba\",\"moe\"],\"mamba_n_groups\":2,\"mamba_d_conv\":4}", ""},
    {"phi3", " rope_parameters ",
     "{\"rope_theta\":10000.0,\"partial_rotary_factor\":0.75,\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1.0,1.1,1.2],"
     "\"long_factor\":[2.0,3.0,4.0]}}",
     ""},
    {"phi3", " rope_parameters ",
     "{\"partial_rotary_factor\":0.75,\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1.0,1.1,1.2],\"long_factor\":[2.0,3.0,4.0]}}",
     ""},
    {"qwen3_moe", " num_local_experts rope_parameters ", "{\"num_experts\":6,\"rope_theta\":10000.0}", ""},
    {"qwen3_moe", " mlp_only_layers ", "{\"mlp_only_layers\":[0,3]}", " ffn=deed"},
    {"qwen3_moe", " decoder_sparse_step ", "{\"decoder_sparse_step\":2}", " ffn=dede"},
    {"qwen3_next", " layer_types rope_parameters ", "{\"full_attention_interval\":4,\"partial_rotary_factor\":0.25}",
     " full_attention_interval=4"},
    {"qwen3_5_moe", " layer_types ", "{\"full_attention_interval\":4}", " full_attention_interval=4"},
    {"smollm3", " no_rope_layers rope_parameters ", "{}", ""},
    {"seed_oss", " attention_bias ", "{}", ""},
    {"hunyuan_v1_dense", " head_dim ",
     "{\"attention_head_dim\":12,\"num_experts\":1,\"use_qk_norm\":true,\"use_cla\":false,\"norm_type\":\"rms\"}", " use_qk_norm"},
    {"exaone4", " layer_types ", "{\"sliding_window_pattern\":\"LLLG\"}", ""},
    {"afmoe", " layer_types ", "{\"global_attn_every_n_layers\":4,\"route_norm\":true,\"score_func\":\"sigmoid\"}", ""},
    {"internlm3", " attention_bias mlp_bias ", "{\"qkv_bias\":false,\"bias\":false}", ""},
    {"olmo3", " rope_parameters ",
     "{\"rope_theta\":10000,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":32,"
     "\"beta_fast\":32,\"beta_slow\":1}}",
     ""},
    {"starcoder2", " hidden_act rope_parameters tie_word_embeddings ",
     "{\"activation_function\":\"gelu_pytorch_tanh\",\"rope_theta\":10000,\"mlp_type\":\"default\",\"norm_type\":\"layer_norm\"}", ""},
    {"phi", " rope_parameters num_key_value_heads ", "{\"rope_theta\":10000.0,\"partial_rotary_factor\":0.5,\"num_key_value_heads\":null}",
     ""},
    {"gpt_neox", " rope_parameters attention_bias ", "{\"rotary_pct\":0.5,\"rotary_emb_base\":10000}", ""},
    {"gpt_neox", " use_parallel_residual ", "{\"use_parallel_residual\":true}", ""},
    {"gpt2", " n_inner scale_attn_weights tie_word_embeddings ", "{\"n_ctx\":512}", ""},
    {"gpt2", " n_embd n_layer n_head n_positions ",
     "{\"hidden_size\":32,\"num_hidden_layers\":4,\"num_attention_heads\":4,\"max_position_embeddings\":512}", ""},
    {"opt", " enable_bias layer_norm_elementwise_affine _remove_final_layer_norm ", "{\"prefix\":\"</s>\"}", ""},
};

static void change(cJSON *config, const char *gone, const char *instead)
{
    cJSON *const added = cJSON_Parse(instead);
    cJSON *item = config->child;

    assert_non_null(added);
    while (item != NULL) {
        cJSON *const next = item->next;
        if (apr_has_word(gone, item->string)) cJSON_Delete(cJSON_DetachItemViaPointer(config, item));
        item = next;
    }
    while ((item = cJSON_DetachItemFromArray(added, 0)) != NULL) {
        cJSON_DeleteItemFromObjectCaseSensitive(config, item->string);
        char *const key = strdup(item->string);
        cJSON_AddItemToObject(config, key, item);
        free(key);
    }
    cJSON_Delete(added);
}

/* NaN and Infinity are beyond cJSON's printer, which writes null. */
static char *with_infinity(const cJSON *config)
{
    char *const text = cJSON_PrintUnformatted(config), *const at = strstr(text, "[0,null]");
    char *const copy = malloc(strlen(text) + 16);

    assert_non_null(copy);
    if (at == NULL) strcpy(copy, text);
    else sprintf(copy, "%.*s[0.0, Infinity]%s", (int)(at - text), text, at + strlen("[0,null]"));
    cJSON_free(text);
    return copy;
}

static void what_the_hub_spells_otherwise_means_the_same(void **state)
{
    cJSON *const all = fact_configs();

    (void)state;
    for (size_t i = 0; i < sizeof hub / sizeof *hub; i++) {
        cJSON *const config = cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(all, hub[i].name), true);
        apr_arena arena = {0};
        apr_hparams h;
        char where[200], *const same = apr_arena_print(&arena, "%s%s", facts_of(hub[i].name), hub[i].more);
        snprintf(where, sizeof where, "%s with %.150s", hub[i].name, hub[i].instead);
        change(config, hub[i].gone, hub[i].instead);
        char *const text = with_infinity(config);
        read_fact_config(text, where, &h, &arena);
        assert_facts(h, same, where);
        free(text);
        cJSON_Delete(config);
        apr_arena_close(&arena);
    }
    cJSON_Delete(all);
}

/* The language model of a larger one. */
static void a_nested_config_means_the_same(void **state)
{
    static const struct {
        const char *name, *outer, *architecture;
    } cases[] = {
        {"gemma3", "gemma3", "gemma3"},         {"gemma4", "gemma4", "gemma4"},         {"gemma4_moe", "gemma4", "gemma4"},
        {"llama4", "llama4", "llama4"},         {"ministral3", "mistral3", "mistral3"}, {"mistral4", "mistral3", "mistral4"},
        {"mistral", "mistral3", "mistral"},     {"qwen3_5", "qwen3_5", "qwen3_5"},      {"qwen3_5_moe", "qwen3_5_moe", "qwen3_5_moe"},
        {"deepseek_v3", "kimi_k25", "kimi_k25"}};
    cJSON *const all = fact_configs();

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cJSON *const config = cJSON_DetachItemFromObjectCaseSensitive(all, cases[i].name);
        cJSON *const outer = cJSON_CreateObject();
        apr_arena arena = {0};
        apr_hparams h;
        cJSON_AddStringToObject(outer, "model_type", cases[i].outer);
        cJSON_AddItemToObject(outer, "text_config", config);
        cJSON_AddItemToObject(outer, "vision_config", cJSON_Parse("{\"hidden_size\":77,\"num_hidden_layers\":3}"));
        read_json(outer, cases[i].name, &h, &arena);
        assert_facts(h, facts_of(cases[i].name), cases[i].name);
        assert_string_equal(h.architecture, cases[i].architecture);
        cJSON_Delete(outer);
        apr_arena_close(&arena);
    }
    cJSON_Delete(all);
}

/* --- back --- */

static void visit_written(const expected_row *row, cJSON *config, const apr_hparams *h)
{
    char *const text = apr_hf_config_write(h, NULL);
    apr_arena arena = {0};
    apr_hparams back;

    (void)config;
    assert_non_null(text);
    read_fact_config(text, row->name, &back, &arena);
    assert_facts(back, row->facts, row->name);
    assert_string_equal(back.architecture, h->architecture);
    assert_string_equal(back.hf_class, h->hf_class);
    if (back.unknown_fields != NULL) fail_msg("%s: %s are written and not known", row->name, back.unknown_fields);
    apr_arena_close(&arena);
    free(text);
}

static void what_is_written_reads_back_the_same(void **state)
{
    (void)state;
    for_each(visit_written);
}

static size_t count_lost(const apr_model *layout, const char *where)
{
    apr_losses losses = {0};
    apr_error err = {0};

    if (apr_hf_losses(layout, &losses, &err) != APR_OK) fail_msg("%s", err.text);
    const size_t n = apr_losses_count(&losses);
    for (size_t i = 0; i < losses.n_items && n > 0; i++)
        if (strstr(losses.items[i].text, "'") == NULL) fail_msg("%s: %s", where, losses.items[i].text);
    apr_losses_close(&losses);
    return n;
}

/* A GGUF of the same model: its keys say no more; an unknown key, or another value, does. */
static void visit_lost(const expected_row *row, cJSON *config, const apr_hparams *h)
{
    static const apr_vocab none = {.kind = APR_VOCAB_NONE};
    apr_arena arena = {0};
    apr_model layout = {.format = APR_FORMAT_GGUF, .hparams = *h, .kv = {.arena = &arena}};
    apr_error err = {0};
    apr_str arch;

    (void)config;
    layout.origin.format = APR_FORMAT_GGUF;
    if (apr_gguf_keys(h, &none, row->name, 1, &layout.kv, &err) != APR_OK) fail_msg("%s: %s", row->name, err.text);
    if (count_lost(&layout, row->name) != 0) fail_msg("%s: its own keys are called lost", row->name);

    assert_true(apr_kv_get_string(&layout.kv, "general.architecture", &arch));
    const char *const key = apr_arena_print(&arena, "%.*s.flux_capacity", (int)arch.n_bytes, arch.text);
    assert_int_equal(apr_kv_set_int(&layout.kv, key, APR_KV_U32, 3, &err), APR_OK);
    if (count_lost(&layout, row->name) != 1) fail_msg("%s: a key that no program reads is not called lost", row->name);
    apr_arena_close(&arena);
}

/* expert_gating_func says how a deepseek chooses; a checkpoint's class has one way. */
static void a_key_with_another_value_is_lost(void **state)
{
    static const apr_vocab none = {.kind = APR_VOCAB_NONE};
    cJSON *const all = fact_configs();
    apr_arena arena = {0};
    apr_model layout = {.format = APR_FORMAT_GGUF, .kv = {.arena = &arena}};

    (void)state;
    read_json(apr_json_get(all, "deepseek_v3"), "deepseek_v3", &layout.hparams, &arena);
    layout.origin.format = APR_FORMAT_GGUF;
    assert_int_equal(apr_gguf_keys(&layout.hparams, &none, "x", 1, &layout.kv, NULL), APR_OK);
    assert_int_equal(apr_kv_set_int(&layout.kv, "deepseek2.expert_gating_func", APR_KV_U32, 1, NULL), APR_OK);
    assert_int_equal(count_lost(&layout, "deepseek_v3"), 1);
    cJSON_Delete(all);
    apr_arena_close(&arena);
}

static void nothing_of_a_config_is_called_lost(void **state)
{
    (void)state;
    for_each(visit_lost);
}

static void visit_apr(const expected_row *row, cJSON *config, const apr_hparams *h)
{
    const apr_model layout = {.path = "x", .hparams = *h};
    apr_model back = {.path = "x.apr"};
    apr_error err = {0};
    char *text;
    size_t n_bytes, crc_at;
    cJSON *root;

    (void)config;
    assert_int_equal(apr_meta_write(&layout, &text, &n_bytes, &crc_at, &err), APR_OK);
    assert_int_equal(apr_json_parse(&root, text, n_bytes, "x.apr", &err), APR_OK);
    if (apr_meta_read_shape(&back, root, &err) != APR_OK) fail_msg("%s: %s", row->name, err.text);
    assert_facts(back.hparams, row->facts, row->name);
    assert_string_equal(back.hparams.architecture, h->architecture);
    cJSON_Delete(root);
    free(text);
    apr_arena_close(&back.arena);
}

static void an_apr_file_keeps_every_hyperparameter(void **state)
{
    (void)state;
    for_each(visit_apr);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_family_is_read_field_by_field),
        cmocka_unit_test(the_rotary_numbers_of_transformers_4_are_read),
        cmocka_unit_test(what_the_hub_spells_otherwise_means_the_same),
        cmocka_unit_test(a_nested_config_means_the_same),
        cmocka_unit_test(what_is_written_reads_back_the_same),
        cmocka_unit_test(nothing_of_a_config_is_called_lost),
        cmocka_unit_test(a_key_with_another_value_is_lost),
        cmocka_unit_test(an_apr_file_keeps_every_hyperparameter),
    };
    return cmocka_run_group_tests_name("config_families", tests, NULL, NULL);
}
