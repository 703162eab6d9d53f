/* ability.c - emits small programs of a family, one for each kind of layer, and checks which operations they need. */
#include "runtime/program/ability.h"

#include "runtime/program/families.h"
#include "runtime/program/op_spec.h"

/* The smallest model that has every part a family may have. */
static const apr_hparams smallest = {.hidden_size = 64,
                                     .num_layers = 1,
                                     .num_heads = 2,
                                     .num_kv_heads = 2,
                                     .head_dim = 32,
                                     .vocab_size = 64,
                                     .intermediate_size = 64,
                                     .max_position_embeddings = 64,
                                     .rms_norm_eps = 1e-6,
                                     .rope_theta = 10000.0,
                                     .rotary_dim = 32,
                                     .sliding_window = 16,
                                     .attention_chunk_size = 16,
                                     .attn_temperature_length = 16.0,
                                     .q_lora_rank = 32,
                                     .kv_lora_rank = 32,
                                     .qk_nope_head_dim = 32,
                                     .qk_rope_head_dim = 32,
                                     .v_head_dim = 32,
                                     .num_experts_per_tok = 2,
                                     .moe_intermediate_size = 32,
                                     .shared_expert_intermediate_size = 32,
                                     .moe_latent_size = 32,
                                     .linear_num_key_heads = 2,
                                     .linear_num_value_heads = 2,
                                     .linear_key_head_dim = 32,
                                     .linear_value_head_dim = 32,
                                     .linear_conv_kernel_dim = 4,
                                     .per_layer_input_size = 32,
                                     .altup_num_inputs = 2,
                                     .laurel_rank = 32,
                                     .num_sparse_layers = 1,
                                     .activation_sparsity = 0.7,
                                     .index_n_heads = 2,
                                     .index_head_dim = 32,
                                     .index_topk = 16};

/* The ability for a single layer with this mixer and feed-forward; APR_ABLE_NOTHING where the family has no such layer. */
static apr_ability ability_of_layer(const apr_family *family, const apr_backend *backend, uint8_t mixer, uint8_t ffn)
{
    apr_hparams h = smallest;
    apr_program program;

    h.architecture = family->types[0].name;
    h.layer_kinds = &mixer;
    h.ffn_kinds = &ffn;
    h.num_experts = ffn == APR_FFN_EXPERTS ? 4 : 0;
    if (apr_program_emit(&program, &h, NULL) != APR_OK) return APR_ABLE_NOTHING;
    const bool runs = apr_program_missing_op(&program, backend) == NULL;
    apr_program_close(&program);
    return runs ? APR_ABLE_RUN : APR_ABLE_PLAN;
}

apr_ability apr_family_ability(const apr_family *family, const apr_backend *backend)
{
    apr_ability least = APR_ABLE_NOTHING;

    if (apr_family_program_of(family) == NULL) return APR_ABLE_NOTHING;
    for (uint8_t mixer = 0; mixer < APR_N_LAYER_KINDS; mixer++)
        for (uint8_t ffn = 0; ffn < APR_N_FFN_KINDS; ffn++) {
            const apr_ability able = ability_of_layer(family, backend, mixer, ffn);
            if (able != APR_ABLE_NOTHING && (least == APR_ABLE_NOTHING || able < least)) least = able;
        }
    return least;
}
