/* family_gpt_oss.c - gpt_oss: every other layer slides, attention has learned sinks, experts have biases. Hugging Face interleaves gate
 * and up in one tensor (in MXFP4: blocks and scales); ggml has two tensors. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"

#define EXPERTS "model.layers.{}.mlp.experts."

static const apr_tensor_rule tensors[] = {
    {"model.layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight", APR_TENSOR_ROLE_SMALL},
    {"model.layers.{}.mlp.router.weight", "blk.{}.ffn_gate_inp.weight", APR_TENSOR_ROLE_ROUTER},
    {"model.layers.{}.mlp.router.bias", "blk.{}.ffn_gate_inp.bias", APR_TENSOR_ROLE_SMALL},
    {EXPERTS "*.gate_proj.weight", "blk.{}.ffn_gate_exps.weight", APR_TENSOR_ROLE_FFN_GATE},
    {EXPERTS "*.up_proj.weight", "blk.{}.ffn_up_exps.weight", APR_TENSOR_ROLE_FFN_UP},
    {EXPERTS "*.down_proj.weight", "blk.{}.ffn_down_exps.weight", APR_TENSOR_ROLE_FFN_DOWN},
    {EXPERTS "gate_proj_bias", "blk.{}.ffn_gate_exps.bias", APR_TENSOR_ROLE_SMALL},
    {EXPERTS "up_proj_bias", "blk.{}.ffn_up_exps.bias", APR_TENSOR_ROLE_SMALL},
    {EXPERTS "down_proj_bias", "blk.{}.ffn_down_exps.bias", APR_TENSOR_ROLE_SMALL},
};

/* Rows of gate and up alternate. Plain numbers are stored transposed, MXFP4 is not. */
static const apr_tensor_form forms[] = {
    {APR_NAMING_HF,
     APR_FORM_WRITTEN,
     EXPERTS "gate_up_proj_blocks",
     EXPERTS "gate_up_proj_scales",
     {{EXPERTS "*.gate_proj.weight", {APR_EVEN_ROWS}}, {EXPERTS "*.up_proj.weight", {APR_ODD_ROWS}}}},
    {APR_NAMING_HF, APR_FORM_WRITTEN, EXPERTS "down_proj_blocks", EXPERTS "down_proj_scales", {{EXPERTS "*.down_proj.weight", {{0}}}}},
    {APR_NAMING_HF,
     APR_FORM_WRITTEN,
     EXPERTS "gate_up_proj",
     NULL,
     {{EXPERTS "*.gate_proj.weight", {APR_TRANSPOSED, APR_EVEN_ROWS}}, {EXPERTS "*.up_proj.weight", {APR_TRANSPOSED, APR_ODD_ROWS}}}},
    {APR_NAMING_HF, APR_FORM_WRITTEN, EXPERTS "down_proj", NULL, {{EXPERTS "*.down_proj.weight", {APR_TRANSPOSED}}}},
    {APR_NAMING_HF,
     APR_FORM_WRITTEN,
     EXPERTS "gate_up_proj_bias",
     NULL,
     {{EXPERTS "gate_proj_bias", {{APR_STEP_TAKE, {0, APR_OF_HALF, 0, 1}}}},
      {EXPERTS "up_proj_bias", {{APR_STEP_TAKE, {0, APR_OF_HALF, 1, 1}}}}}},
};

static const apr_family_rope rope = {
    .scaling = {.kind = APR_ROPE_YARN, .factor = 32, .beta_fast = 32, .beta_slow = 1, .original_context = 4096, .no_truncate = true}};

static const apr_family_config config = {.activation = "silu",
                                         .window = APR_WINDOW_EVEN,
                                         .attention_bias = APR_BIAS_WHEN_STATED,
                                         .spellings = {{APR_FIELD(num_experts), "num_local_experts"}},
                                         .ff_is_expert = true,
                                         .flags_on = APR_FLAG(attention_bias),
                                         .num_kv_heads = 8,
                                         .head_dim = 64,
                                         .max_position_embeddings = 131072,
                                         .sliding_window = 128,
                                         .rms_norm_eps = 1e-5,
                                         .rope_theta = 150000,
                                         .defaults = {.num_heads = 64,
                                                      .intermediate_size = 2880,
                                                      .vocab_size = 201088,
                                                      .num_experts = 128,
                                                      .num_experts_per_tok = 4,
                                                      .swiglu_alpha = 1.702,
                                                      .swiglu_limit = 7},
                                         .rope = &rope};

static const apr_hparams assumes = {.swiglu_limit = 7, .swiglu_alpha = 1.702};

const apr_family apr_family_gpt_oss = {.name = "gpt_oss",
                                       .types = {{"gpt_oss", "GptOssForCausalLM"}},
                                       .ggml = "gpt-oss",
                                       .gguf = {.more_keys = {APR_KEY(sliding_window), APR_KEY(moe_intermediate_size)},
                                                .assumes = &assumes,
                                                .full_every = 2,
                                                .no_truncate = true,
                                                .has_window = true},
                                       .config = &config,
                                       APR_OWN_TENSORS(tensors),
                                       APR_OWN_FORMS(forms),
                                       .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_ffn_post_norm},
                                       .translates = true};
