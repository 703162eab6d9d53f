/* family_gemma4.c - gemma4: sliding and full layers of different widths, shared keys and values, per-layer inputs, experts beside the
 * feed-forward. */
#include "formats/model/families/tensor_sets.h"
#include "formats/model/family.h"

#define L "model.layers.{}."
#define B "blk.{}."
#define GATE_AND_UP                                           \
    {                                                         \
        {L "experts.*.gate_proj.weight", {APR_FIRST_HALF}},   \
        {                                                     \
            L "experts.*.up_proj.weight", { APR_SECOND_HALF } \
        }                                                     \
    }

static const apr_tensor_rule tensors[] = {
    {"model.embed_tokens_per_layer.weight", "per_layer_token_embd.weight", APR_FOR_EMBEDDING},
    {"model.per_layer_model_projection.weight", "per_layer_model_proj.weight", APR_FOR_KEPT},
    {"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight", APR_FOR_SMALL},
    {L "layer_scalar", B "layer_output_scale.weight", APR_FOR_SMALL},
    {L "per_layer_input_gate.weight", B "inp_gate.weight", APR_FOR_MATRIX},
    {L "per_layer_projection.weight", B "proj.weight", APR_FOR_MATRIX},
    {L "post_per_layer_input_norm.weight", B "post_norm.weight", APR_FOR_SMALL},
    {L "post_feedforward_layernorm_1.weight", B "post_ffw_norm_1.weight", APR_FOR_SMALL},
    {L "post_feedforward_layernorm_2.weight", B "post_ffw_norm_2.weight", APR_FOR_SMALL},
    {L "pre_feedforward_layernorm_2.weight", B "pre_ffw_norm_2.weight", APR_FOR_SMALL},
    {L "router.proj.weight", B "ffn_gate_inp.weight", APR_FOR_ROUTER},
    {L "router.scale", B "ffn_gate_inp.scale", APR_FOR_SMALL},
    {L "router.per_expert_scale", B "ffn_down_exps.scale", APR_FOR_SMALL},
    {L "experts.*.gate_proj.weight", NULL, APR_FOR_FFN_GATE},
    {L "experts.*.up_proj.weight", NULL, APR_FOR_FFN_UP},
    {L "experts.*.down_proj.weight", B "ffn_down_exps.weight", APR_FOR_FFN_DOWN},
};

static const apr_tensor_form forms[] = {
    {APR_DIALECT_HF, APR_FORM_WRITTEN, L "experts.gate_up_proj", NULL, GATE_AND_UP},
    {APR_DIALECT_HF, APR_FORM_WRITTEN, L "experts.down_proj", NULL, {{L "experts.*.down_proj.weight", {{0}}}}},
    {APR_DIALECT_GGML, APR_FORM_WRITTEN, B "ffn_gate_up_exps.weight", NULL, GATE_AND_UP},
    {APR_DIALECT_GGML, APR_FORM_READ, B "ffn_gate_exps.weight", NULL, {{L "experts.*.gate_proj.weight", {{0}}}}},
    {APR_DIALECT_GGML, APR_FORM_READ, B "ffn_up_exps.weight", NULL, {{L "experts.*.up_proj.weight", {{0}}}}},
};

const apr_family apr_family_gemma4 = {
    .name = "gemma4",
    .types = {{"gemma4_text", "Gemma4ForCausalLM"}, {"gemma4", "Gemma4ForConditionalGeneration"}},
    .ggml = "gemma4",
    .text_prefix = "model.language_model.",
    .tensors = tensors,
    .n_tensors = sizeof tensors / sizeof *tensors,
    .forms = forms,
    .n_forms = sizeof forms / sizeof *forms,
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_qk_norm, &apr_tensors_sandwich_norms, &apr_tensors_dense},
    .translates = true};
