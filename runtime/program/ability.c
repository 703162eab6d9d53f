/* ability.c - emits a small program of a family and looks at what it needs. */
#include "runtime/program/ability.h"

#include "runtime/program/op_card.h"

/* As small as a model can be that has every part its family may have. */
static apr_hparams smallest(const apr_family *family)
{
    static const uint8_t kinds[2] = {APR_LAYER_LINEAR, APR_LAYER_FULL};
    apr_hparams h = {.architecture = family->types[0].name,
                     .hidden_size = 64,
                     .num_layers = 2,
                     .num_heads = 2,
                     .num_kv_heads = 2,
                     .head_dim = 32,
                     .vocab_size = 64,
                     .intermediate_size = 64,
                     .max_position_embeddings = 64,
                     .rms_norm_eps = 1e-6,
                     .rope_theta = 10000.0,
                     .rotary_dim = 32};

    if (family->program.router != NULL) {
        h.num_experts = 4;
        h.num_experts_per_tok = 2;
        h.moe_intermediate_size = h.shared_expert_intermediate_size = 32;
    }
    if (family->program.linear_layers) {
        h.layer_kinds = kinds;
        h.linear_num_key_heads = h.linear_num_value_heads = 2;
        h.linear_key_head_dim = h.linear_value_head_dim = 32;
        h.linear_conv_kernel_dim = 4;
    }
    return h;
}

apr_ability apr_family_ability(const apr_family *family, const apr_backend *backend)
{
    const apr_hparams h = smallest(family);
    apr_program program;

    if (family->program.kind == APR_PROGRAM_NONE || apr_program_emit(&program, &h, NULL) != APR_OK) return APR_ABLE_NOTHING;
    const bool runs = apr_program_missing_op(&program, backend) == NULL;
    apr_program_close(&program);
    return runs ? APR_ABLE_RUN : APR_ABLE_PLAN;
}

/* "a, b" of the families of which just that can be done; "" when there are none, NULL without memory. */
static const char *list_of(apr_ability ability, apr_arena *arena)
{
    const char *list = "";
    for (size_t i = 0; i < apr_n_families && list != NULL; i++)
        if (apr_family_ability(apr_families[i], &apr_host_backend) == ability)
            list = apr_arena_print(arena, "%s%s%s", list, list[0] != '\0' ? ", " : "", apr_families[i]->name);
    return list;
}

const char *apr_program_families(apr_arena *arena)
{
    const char *const run = list_of(APR_ABLE_RUN, arena), *const plan = list_of(APR_ABLE_PLAN, arena);
    if (run == NULL || plan == NULL) return NULL;
    return plan[0] != '\0' ? apr_arena_print(arena, "%s; to plan also %s", run, plan) : run;
}
