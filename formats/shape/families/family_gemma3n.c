/* family_gemma3n.c - gemma3n (the text part): streams of hidden states (AltUp), a low-rank residual next to attention (LAuReL), per-layer
 * inputs, shared keys and values, gates of which most are 0 in the first layers. Norms multiply by the weight, scores are not scaled. */
#include "formats/shape/families/tensor_sets.h"
#include "formats/shape/family.h"
#include "formats/shape/hf_config_values.h"

#define L "model.layers.{}."
#define B "blk.{}."

/* llama.cpp's table of per-layer inputs has a row for each token. Tokens of images and sounds, which have none, get a copy of row 0: that
 * is the row that the class reads for them. */
static const apr_tensor_rule tensors[] = {
    {"model.embed_tokens_per_layer.weight",
     "per_layer_token_embd.weight",
     APR_TENSOR_ROLE_EMBEDDING,
     {{APR_STEP_PAD, {APR_OF_LAYER_VOCAB, APR_OF_VOCAB}}}},
    {"model.per_layer_model_projection.weight", "per_layer_model_proj.weight", APR_TENSOR_ROLE_KEPT},
    {"model.per_layer_projection_norm.weight", "per_layer_proj_norm.weight", APR_TENSOR_ROLE_SMALL},
    {"model.altup_projections.*.weight", "altup_proj.weight", APR_TENSOR_ROLE_KEPT},
    {"model.altup_unembed_projections.*.weight", "altup_unembd_proj.weight", APR_TENSOR_ROLE_KEPT},
    {L "altup.correct_output_scale", B "altup_correct_scale.weight", APR_TENSOR_ROLE_SMALL},
    {L "altup.correction_coefs.weight", B "altup_correct_coef.weight", APR_TENSOR_ROLE_KEPT},
    {L "altup.prediction_coefs.weight", B "altup_predict_coef.weight", APR_TENSOR_ROLE_KEPT},
    {L "altup.modality_router.weight", B "altup_router.weight", APR_TENSOR_ROLE_KEPT},
    {L "altup.router_norm.weight", B "altup_router_norm.weight", APR_TENSOR_ROLE_SMALL},
    {L "laurel.linear_left.weight", B "laurel_l.weight", APR_TENSOR_ROLE_KEPT},
    {L "laurel.linear_right.weight", B "laurel_r.weight", APR_TENSOR_ROLE_KEPT},
    {L "laurel.post_laurel_norm.weight", B "laurel_post_norm.weight", APR_TENSOR_ROLE_SMALL},
    {L "per_layer_input_gate.weight", B "inp_gate.weight", APR_TENSOR_ROLE_MATRIX},
    {L "per_layer_projection.weight", B "proj.weight", APR_TENSOR_ROLE_MATRIX},
    {L "post_per_layer_input_norm.weight", B "post_norm.weight", APR_TENSOR_ROLE_SMALL},
};

/* [0.95, 0.95, ..., 0.0, 0.0]: the same share in the first layers, none in the others. The class's default is 0.95 in ten layers. */
static apr_status read_sparsity(const apr_config_reading *r)
{
    const cJSON *const pattern = apr_config_find(r, "activation_sparsity_pattern"), *item;
    apr_hparams *const h = r->h;
    int64_t n = 0;

    h->num_sparse_layers = pattern == NULL && h->num_layers > 10 ? 10 : 0;
    h->activation_sparsity = h->num_sparse_layers > 0 ? 0.95 : 0.0;
    if (pattern == NULL) return APR_OK;
    if (!cJSON_IsArray(pattern) || cJSON_GetArraySize(pattern) != h->num_layers)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: \"activation_sparsity_pattern\" is not a list of %lld numbers, one for each layer",
                        r->where, (long long)h->num_layers);
    cJSON_ArrayForEach(item, pattern)
    {
        const double share = cJSON_IsNumber(item) ? item->valuedouble : -1.0;
        if (!(share >= 0.0 && share < 1.0))
            return apr_fail(r->err, APR_E_DAMAGED,
                            "%s: \"activation_sparsity_pattern\" has a share that is not from 0 to below 1 (layer %lld)", r->where,
                            (long long)n);
        if (n == 0) h->activation_sparsity = share;
        if (share > 0.0 && (h->num_sparse_layers < n || share != h->activation_sparsity))
            return apr_config_refuse(r,
                                     "its \"activation_sparsity_pattern\" is not the same share in the first layers and 0 in the others");
        h->num_sparse_layers += share > 0.0;
        n++;
    }
    return APR_OK;
}

static apr_status settle(const apr_config_reading *r)
{
    apr_hparams *const h = r->h;
    int64_t n_rows = 262144;

    APR_TRY(apr_config_int(r, "vocab_size_per_layer_input", &n_rows));
    if (n_rows <= 0) return apr_fail(r->err, APR_E_DAMAGED, "%s: \"vocab_size_per_layer_input\" is %lld", r->where, (long long)n_rows);
    h->per_layer_vocab_size = n_rows < h->vocab_size ? n_rows : 0;
    h->query_pre_attn_scalar = 0; /* old files state it, and the class does not read it */
    if (h->altup_num_inputs > 0 && (h->altup_active_idx < 0 || h->altup_active_idx >= h->altup_num_inputs))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: \"altup_active_idx\" is %lld, and there are %lld streams", r->where,
                        (long long)h->altup_active_idx, (long long)h->altup_num_inputs);
    return read_sparsity(r);
}

static void put_sparsity(apr_json_text *out, const apr_hparams *h)
{
    apr_json_open(out, "activation_sparsity_pattern", '[');
    for (int64_t i = 0; i < h->num_layers; i++) apr_json_real(out, NULL, i < h->num_sparse_layers ? h->activation_sparsity : 0.0);
    apr_json_close(out, ']');
}

static const apr_family_config gemma3n = {.settle = settle,
                                          .put_own = put_sparsity,
                                          .activation = "gelu_pytorch_tanh",
                                          .activation_key = "hidden_activation",
                                          .window = APR_WINDOW_PATTERN,
                                          .attention_bias = APR_BIAS_WHEN_STATED,
                                          .local_rope = true,
                                          .computes = APR_NAMES("hidden_act", "final_logit_softcapping", "rope_local_base_freq",
                                                                "num_kv_shared_layers", "hidden_size_per_layer_input",
                                                                "query_pre_attn_scalar", "altup_num_inputs", "activation_sparsity_pattern"),
                                          .requires = APR_NAMES("altup_correct_scale"),
                                          .flags_on = APR_FLAG(tie_word_embeddings),
                                          .num_kv_heads = 2,
                                          .head_dim = 256,
                                          .max_position_embeddings = 32768,
                                          .sliding_window = 512,
                                          .full_every = 5,
                                          .rms_norm_eps = 1e-6,
                                          .rope_theta = 1e6,
                                          .defaults = {.hidden_size = 2048,
                                                       .num_layers = 35,
                                                       .num_heads = 8,
                                                       .intermediate_size = 16384,
                                                       .vocab_size = 262400,
                                                       .final_logit_softcapping = 30,
                                                       .num_kv_shared_layers = 15,
                                                       .per_layer_input_size = 256,
                                                       .altup_num_inputs = 4,
                                                       .laurel_rank = 64,
                                                       .rope_theta_local = 1e4}};

static const apr_hparams assumes = {.rope_theta_local = 10000, .laurel_rank = 64};

/* Those of E2B and E4B. */
static const apr_hparams fixed = {
    .per_layer_input_size = 256, .altup_num_inputs = 4, .laurel_rank = 64, .num_sparse_layers = 10, .activation_sparsity = 0.95};

const apr_family apr_family_gemma3n = {
    .name = "gemma3n",
    .types = {{"gemma3n_text", "Gemma3nForCausalLM"}, {"gemma3n", "Gemma3nForConditionalGeneration"}},
    .ggml = "gemma3n",
    .gguf = {.more_keys = {APR_KEY(final_logit_softcapping), APR_KEY(sliding_window), APR_KEY_ALWAYS(altup_active_idx),
                           APR_KEY_ALWAYS(altup_num_inputs), APR_KEY_ALWAYS(per_layer_input_size), APR_KEY_ALWAYS(num_kv_shared_layers),
                           APR_KEY(activation_sparsity_scale), APR_KEY(sliding_window_pattern)},
             .assumes = &assumes,
             .fixed = &fixed,
             .own_kv_layers = 20,
             .lists_widths = true,
             .has_window = true},
    .config = &gemma3n,
    APR_OWN_TENSORS(tensors),
    .sets = {&apr_tensors_ends, &apr_tensors_attention, &apr_tensors_qk_norm, &apr_tensors_sandwich_norms, &apr_tensors_dense},
    .translates = true};
