/* family_llama4.c - llama4: attention in chunks, routing weights applied to the experts' input, norms without weights after rope. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"
#include "formats/shape/hf_config_values.h"

#define FFN "model.layers.{}.feed_forward."

#define B "blk.{}."

static const apr_tensor_rule tensors[] = {
    {FFN "gate_proj.weight", B "ffn_gate.weight", APR_TENSOR_ROLE_FFN_GATE},
    {FFN "up_proj.weight", B "ffn_up.weight", APR_TENSOR_ROLE_FFN_UP},
    {FFN "down_proj.weight", B "ffn_down.weight", APR_TENSOR_ROLE_FFN_DOWN},
    {FFN "router.weight", B "ffn_gate_inp.weight", APR_TENSOR_ROLE_ROUTER},
    {FFN "experts.*.gate_proj.weight", B "ffn_gate_exps.weight", APR_TENSOR_ROLE_FFN_GATE},
    {FFN "experts.*.up_proj.weight", B "ffn_up_exps.weight", APR_TENSOR_ROLE_FFN_UP},
    {FFN "experts.*.down_proj.weight", B "ffn_down_exps.weight", APR_TENSOR_ROLE_FFN_DOWN},
    {FFN "shared_expert.gate_proj.weight", B "ffn_gate_shexp.weight", APR_TENSOR_ROLE_FFN_GATE},
    {FFN "shared_expert.up_proj.weight", B "ffn_up_shexp.weight", APR_TENSOR_ROLE_FFN_UP},
    {FFN "shared_expert.down_proj.weight", B "ffn_down_shexp.weight", APR_TENSOR_ROLE_FFN_DOWN},
};

/* Checkpoints store the experts transposed. */
static const apr_tensor_form forms[] = {
    {APR_NAMING_HF,
     APR_FORM_WRITTEN,
     FFN "experts.gate_up_proj",
     NULL,
     {{FFN "experts.*.gate_proj.weight", {APR_TRANSPOSED, APR_FIRST_HALF}},
      {FFN "experts.*.up_proj.weight", {APR_TRANSPOSED, APR_SECOND_HALF}}}},
    {APR_NAMING_HF, APR_FORM_WRITTEN, FFN "experts.down_proj", NULL, {{FFN "experts.*.down_proj.weight", {APR_TRANSPOSED}}}},
};

/* attn_scale and floor_scale count only with attn_temperature_tuning, which is a number in older files. */
static apr_status settle_temperature(const apr_config_reading *r)
{
    const cJSON *const tuning = apr_config_find(r, "attn_temperature_tuning");
    const bool is_on = tuning != NULL ? cJSON_IsTrue(tuning) || (cJSON_IsNumber(tuning) && tuning->valuedouble != 0)
                                      : !apr_config_has(r, "attn_temperature_tuning");

    if (!is_on) r->h->attn_temperature = r->h->attn_temperature_length = 0;
    return APR_OK;
}

static void put_temperature(apr_json_text *out, const apr_hparams *h)
{
    apr_json_bool(out, "attn_temperature_tuning", h->attn_temperature > 0);
}

static const apr_family_config llama4 = {.activation = "silu",
                                         .layer_types = APR_NAMES("full_attention", "chunked_attention"),
                                         .window = APR_WINDOW_CHUNKS,
                                         .experts = APR_EXPERTS_LISTED,
                                         .positions = APR_POSITIONS_LISTED,
                                         .attention_bias = APR_BIAS_WHEN_STATED,
                                         .spellings = {{APR_FIELD(intermediate_size), "intermediate_size_mlp"},
                                                       {APR_FIELD(moe_intermediate_size), "intermediate_size"},
                                                       {APR_FIELD(shared_expert_intermediate_size), "intermediate_size"},
                                                       {APR_FIELD(num_experts), "num_local_experts"}},
                                         .computes = APR_NAMES("use_qk_norm", "attn_temperature_tuning", "attention_chunk_size",
                                                               "no_rope_layers", "no_rope_layer_interval", "moe_layers"),
                                         .settle = settle_temperature,
                                         .put_own = put_temperature,
                                         .flags_on = APR_FLAG(use_qk_norm),
                                         .num_kv_heads = 8,
                                         .head_dim = 128,
                                         .max_position_embeddings = 131072,
                                         .rms_norm_eps = 1e-5,
                                         .rope_theta = 500000,
                                         .defaults = {.num_heads = 40,
                                                      .intermediate_size = 16384,
                                                      .vocab_size = 202048,
                                                      .moe_intermediate_size = 8192,
                                                      .shared_expert_intermediate_size = 8192,
                                                      .num_experts = 16,
                                                      .num_experts_per_tok = 1,
                                                      .attention_chunk_size = 8192,
                                                      .attn_temperature = 0.1,
                                                      .attn_temperature_length = 8192}};

static const apr_hparams assumes = {
    .attention_chunk_size = 8192, .attn_temperature = 0.1, .attn_temperature_length = 8192, .use_qk_norm = true};

const apr_family apr_family_llama4 = {
    .name = "llama4",
    .types = {{"llama4_text", "Llama4ForCausalLM"}, {"llama4", "Llama4ForConditionalGeneration"}},
    .ggml = "llama4",
    .gguf = {.more_keys = {APR_KEY(vocab_size), APR_KEY(rotary_dim), APR_KEY(interleave_moe_layer_step), APR_KEY(moe_intermediate_size)},
             .assumes = &assumes,
             .full_every = 4,
             .chunks = true,
             .nope = APR_NOPE_FOURTH,
             .experts_without_qk_norm = 128,
             .shares_one = true,
             .reads_rope_freqs = true,
             .has_window = true},
    .config = &llama4,
    APR_OWN_TENSORS(tensors),
    APR_OWN_FORMS(forms),
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_norm},
    .translates = true};
