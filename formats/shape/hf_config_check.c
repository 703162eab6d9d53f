/* hf_config_check.c - knows which fields of a config.json change the arithmetic, and which values of unsupported ones are harmless.
 *
 * A field of `computing` is refused unless its value is neutral or the family's apr_family_config says that it is supported. A field of
 * `harmless`, or of the table of hyperparameters, is accepted. Any other field of a known family is reported to the user. */
#include "formats/shape/hf_config.h"
#include "formats/shape/hf_config_values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Neutral values: they leave the arithmetic as it is. null always does. */
typedef enum {
    OFF,
    ON,
    ONE,
    SILU,
    ACTIVATION, /* the family's */
    ROTARY,
    RMS,
    SOFTMAX,
    ALL_ONES,
    HEAD_DIM,
    INVERSE_ROOT,
    EPS,
    FULL_CONTEXT,
    EACH_LAYER,
    AS_CLASS,
    HIDDEN,
    UNLIMITED /* [0, Infinity] */
} neutral_value;

typedef struct rule {
    const char *field;
    neutral_value neutral;
    bool only_where_refused; /* checked only for families that refuse the field; false: for all that do not compute it */
} rule;

static const rule computing[] = {
    {"hidden_act", ACTIVATION},
    {"hidden_activation", ACTIVATION},
    {"activation_function", ACTIVATION},
    {"mlp_hidden_act", ACTIVATION},
    {"mamba_hidden_act", SILU},
    {"hidden_act_param", OFF},
    {"attention_bias", OFF, true}, /* their classes have no biases */
    {"mlp_bias", OFF},
    {"attention_multiplier", INVERSE_ROOT},
    {"residual_multiplier", ONE},
    {"embedding_multiplier", ONE},
    {"embedding_scale", ONE},
    {"scale_embedding", OFF},
    {"scale_emb", ONE},
    {"scale_depth", OFF},
    {"dim_model_base", OFF},
    {"logits_scaling", ONE},
    {"logits_scale", ONE},
    {"logit_scale", ONE},
    {"lm_head_multiplier", ONE},
    {"key_multiplier", ONE},
    {"attention_in_multiplier", ONE},
    {"attention_out_multiplier", ONE},
    {"mlp_multipliers", ALL_ONES},
    {"mup_width_multiplier", ONE},
    {"use_mup", OFF},
    {"final_logit_softcapping", OFF},
    {"attn_logit_softcapping", OFF},
    {"logits_soft_cap", OFF},
    {"attn_logit_softcap", OFF},
    {"query_pre_attn_scalar", HEAD_DIM},
    {"clip_qkv", OFF},
    {"qk_layernorm", OFF},
    {"use_qk_norm", OFF},
    {"qk_norm", OFF},
    {"attn_output_gate", OFF},
    {"kda_safe_gate", OFF},
    {"kda_lower_bound", OFF},
    {"layer_group_size", OFF},
    {"mla_use_nope", OFF},
    {"linear_attn_config", OFF},
    {"use_gated_attention", OFF},
    {"partial_rotary_factor", ONE, true}, /* llama.cpp's rotary pairs and ours would differ */
    {"rotary_pct", ONE},
    {"rope_pct", ONE},
    {"rotary_emb_fraction", ONE},
    {"rotary_dim", HEAD_DIM},
    {"rope_ratio", ONE},
    {"rope_interleave", OFF},
    {"rope_interleaved", OFF},
    {"rotary_interleaved", OFF},
    {"rope_local_base_freq", OFF},
    {"position_embedding_type", ROTARY},
    {"alibi", OFF},
    {"use_alibi", OFF},
    {"no_rope_layers", ALL_ONES},
    {"no_rope_layer_interval", OFF},
    {"nope_layer_interval", OFF},
    {"attn_temperature_tuning", OFF},
    {"attention_chunk_size", OFF},
    {"attention_sink_size", OFF},
    {"mup_enabled", OFF},
    {"score_func", SOFTMAX},
    {"route_norm", OFF, true},
    {"use_bidirectional_attention", OFF},
    {"is_encoder_decoder", OFF},
    {"add_cross_attention", OFF},
    {"use_parallel_residual", OFF},
    {"parallel_residual", OFF},
    {"scale_attn_weights", ON},
    {"scale_attn_by_inverse_layer_idx", OFF},
    {"do_layer_norm_before", ON},
    {"layer_norm_elementwise_affine", ON},
    {"_remove_final_layer_norm", OFF},
    {"word_embed_proj_dim", HIDDEN},
    {"parallel_attn", OFF},
    {"norm_type", RMS},
    {"normalization_type", RMS},
    {"rmsnorm", OFF},
    {"layer_norm_eps", EPS},
    {"layer_norm_epsilon", EPS},
    {"norm_eps", EPS},
    {"norm_epsilon", EPS},
    {"num_kv_shared_layers", OFF},
    {"layer_scale", OFF},
    {"decoder_sparse_step", ONE},
    {"mlp_only_layers", OFF},
    {"routed_scaling_factor", ONE},
    {"n_group", ONE},
    {"first_k_dense_replace", OFF},
    {"moe_layer_freq", ONE},
    {"mlp_layer_types", OFF},
    {"moe_layers", OFF},
    {"scoring_func", SOFTMAX},
    {"moe_router_activation_func", SOFTMAX},
    {"topk_method", OFF, true},
    {"norm_topk_prob", OFF, true}, /* deepseek_v2's class ignores it, its authors' code does not */
    {"n_shared_experts", OFF},
    {"shared_intermediate_size", OFF},
    {"moe_latent_size", OFF},
    {"use_routing_bias", OFF},
    {"use_expert_bias", OFF},
    {"use_mixed_mlp_moe", OFF},
    {"use_cla", OFF},
    {"moe_layer_num_skipped", OFF},
    {"attn_type_list", ALL_ONES},
    {"qk_norm_type", OFF},
    {"layernorm_full_attention_beta", ONE},
    {"layernorm_linear_attention_beta", ONE},
    {"layernorm_mlp_beta", ONE},
    {"per_layer_config", OFF},
    {"hidden_size_per_layer_input", OFF},
    {"altup_num_inputs", OFF},
    {"altup_correct_scale", ON},
    {"activation_sparsity_pattern", OFF},
    {"enable_moe_block", OFF},
    {"attention_k_eq_v", OFF},
    {"use_double_wide_mlp", OFF},
    {"conv_bias", OFF},
    {"mamba_proj_bias", OFF},
    {"projectors_bias", OFF},
    {"ssm_multipliers", ALL_ONES},
    {"ssm_in_multiplier", ONE},
    {"ssm_out_multiplier", ONE},
    {"mamba_rms_norm", OFF},
    {"mamba_norm_before_gate", OFF, true},
    {"time_step_limit", UNLIMITED},
    {"use_bias", OFF, true},
    {"attention_out_bias", OFF},
    {"index_topk", OFF},
    {"indexer_types", EACH_LAYER}, /* layers that share the choice of an earlier one */
    {"index_topk_freq", ONE},
    {"index_topk_pattern", OFF},
    {"kv_lora_rank", OFF},
    {"q_lora_rank", OFF},
    /* transformers' llama has no window (but its cache drops what is outside one), its mistral has only one for all layers */
    {"sliding_window", FULL_CONTEXT, true},
    {"layer_types", AS_CLASS, true},
    {"use_sliding_window", OFF, true}, /* transformers' versions disagree about which layers */
    {"num_local_experts", OFF, true},
    {"num_experts", OFF, true},
};

/* Fields of transformers, trainers and hubs that no logit depends on. pretraining_tp splits products
 * into sums of the same value. Biases are found by their tensors. */
static const char harmless[] =
    " architectures model_type text_config vision_config audio_config transformers_version torch_dtype dtype auto_map name_or_path"
    " bos_token_id eos_token_id pad_token_id sep_token_id unk_token_id mask_token_id eod_token_id decoder_start_token_id"
    " tokenizer_class image_token_id video_token_id audio_token_id image_token_index vision_start_token_id vision_end_token_id"
    " vision_token_id use_cache initializer_range initializer_std attention_dropout attn_dropout hidden_dropout hidden_dropout_prob"
    " resid_pdrop embd_pdrop attn_pdrop residual_dropout attention_probs_dropout_prob attention_dropout_prob mlp_dropout dropout"
    " classifier_dropout output_attentions output_hidden_states return_dict return_dict_in_generate torchscript use_bfloat16"
    " tf_legacy_loss pruned_heads tie_encoder_decoder is_decoder cross_attention_hidden_size chunk_size_feed_forward finetuning_task"
    " id2label label2id task_specific_params problem_type prefix num_labels max_length min_length do_sample early_stopping num_beams"
    " num_beam_groups diversity_penalty temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size"
    " encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores forced_bos_token_id forced_eos_token_id"
    " remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens output_router_logits"
    " router_aux_loss_coef router_jitter_noise router_z_loss_coef aux_loss_alpha seq_aux pretraining_tp quantization_config"
    " compression_config attn_implementation cache_implementation unsloth_fixed unsloth_version model_max_length seq_length"
    " max_seq_len seq_len max_sequence_length original_max_position_embeddings rope_scaling rope_parameters use_mrope mrope_section"
    " mrope_interleaved max_window_layers qkv_bias bias use_qkv_bias attention_qkv_bias attention_o_bias attn_bias add_bias_linear"
    " n_routed_experts mtp_num_hidden_layers mtp_use_dedicated_embeddings num_mtp_layers num_mtp_modules language_model_only use_mtp"
    " mtp_transformer_layers mtp_layers_block_type mtp_hybrid_override_pattern moe_layer_start_index moe_layer_end_index"
    " moe_layer_interval num_dense_layers interleave_moe_layer_step layers_block_type hybrid_override_pattern full_attn_idxs"
    " sliding_window_pattern global_attn_every_n_layers vocab_size_per_layer_input altup_coef_clip altup_lr_multiplier qk_head_dim "
    "mamba_expand expand mamba_chunk_size "
    "chunk_size mamba_conv_bias"
    " use_conv_bias use_mamba_kernels mamba_ssm_cache_dtype time_step_rank z_loss_coefficient attn_layer_indices mamba_d_ssm time_step_min "
    "time_step_max time_step_floor residual_in_fp32"
    " rescale_prenorm_residual num_logits_to_keep moe_shared_expert_overlap normalization_function init_method block_multiple_of"
    " block_ffn_dim_multiplier block_auto_adjust_ff_dim block_dim block_ff_dim block_mlp_init_scale block_norm_eps"
    " block_out_init_scale block_use_swiglu block_use_xavier_init conv_dim conv_dim_out conv_use_xavier_init for_llm_class use_pos_enc"
    " boi_token_index eoi_token_index mm_tokens_per_image spatial_merge_size vision_feature_layer multimodal_projector_bias"
    " projector_hidden_act mamba_ssm_dtype gradient_checkpointing use_flash_attn use_flash_attention use_flash_attention_2 flash_attn"
    " training_args mtp_loss_scaling_factor use_grouped_topk short_conv_kernel_size ep_size hidden_size_per_head torch_compile "
    "experts_per_token"
    " index_skip_topk_offset initial_context_length n_ctx reorder_and_upcast_attn summary_type summary_use_proj summary_activation "
    "summary_first_dropout"
    " summary_proj_to_labels embedding_dropout activation_dropout layerdrop init_std ";

static const char rope_fields[] =
    " rope_type type rope_theta factor low_freq_factor high_freq_factor original_max_position_embeddings beta_fast beta_slow"
    " attention_factor mscale mscale_all_dim truncate partial_rotary_factor mrope_section mrope_interleaved short_factor long_factor"
    " finetuned max_position_embeddings full_attention sliding_attention ";

static bool is_number(const cJSON *item, double value)
{
    return cJSON_IsNumber(item) && fabs(item->valuedouble - value) <= 1e-6 * fabs(value);
}

static bool is_off(const cJSON *item)
{
    if (cJSON_IsArray(item) || cJSON_IsObject(item)) return item->child == NULL;
    if (cJSON_IsString(item)) return item->valuestring[0] == '\0' || strcmp(item->valuestring, "none") == 0;
    return cJSON_IsFalse(item) || (cJSON_IsNumber(item) && item->valuedouble == 0);
}

static bool is_text_of(const cJSON *item, const char *const *list)
{
    return cJSON_IsString(item) && apr_is_any_of(item->valuestring, list);
}

static bool all_are(const cJSON *list, const char *layer_type)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, list) if (layer_type != NULL ? !is_text_of(item, APR_NAMES(layer_type)) : !is_number(item, 1.0)) return false;
    return cJSON_IsArray(list);
}

/* [0, Infinity], whose end transformers 5 writes as {"__float__": "Infinity"}. */
static bool is_unlimited(const cJSON *item)
{
    const cJSON *const begin = cJSON_GetArrayItem(item, 0), *const end = cJSON_GetArrayItem(item, 1);
    const char *const text = apr_json_get_string(end, "__float__");

    if (!cJSON_IsArray(item) || !cJSON_IsNumber(begin) || begin->valuedouble != 0) return false;
    return (cJSON_IsNumber(end) && end->valuedouble > 1e300) || (text != NULL && strcmp(text, "Infinity") == 0);
}

/* silu is also called swish, and gelu's approximation has two names. */
static bool is_activation(const cJSON *item, const char *activation)
{
    if (activation == NULL) return false;
    if (strcmp(activation, "silu") == 0) return is_text_of(item, APR_NAMES("silu", "swish"));
    if (strcmp(activation, "gelu_pytorch_tanh") == 0) return is_text_of(item, APR_NAMES("gelu_pytorch_tanh", "gelu_new"));
    return cJSON_IsString(item) && strcmp(item->valuestring, activation) == 0;
}

static bool is_neutral(const apr_config_reading *r, const apr_family_config *f, const cJSON *item, neutral_value value)
{
    const apr_hparams *const h = r->h;
    const bool slides = f->window != APR_WINDOW_NONE && h->sliding_window > 0;
    const int64_t head_dim = h->head_dim > 0 ? h->head_dim : h->num_heads > 0 ? h->hidden_size / h->num_heads : 0;

    switch (value) {
    case OFF: return is_off(item);
    case ON: return cJSON_IsTrue(item);
    case ONE: return is_number(item, 1.0);
    case SILU: return is_activation(item, "silu");
    case ACTIVATION: return is_activation(item, f->activation);
    case ROTARY: return is_text_of(item, APR_NAMES("rope", "rotary", "absolute"));
    case RMS: return is_text_of(item, APR_NAMES("rms", "rms_norm", "rmsnorm", "RMSNorm"));
    case SOFTMAX: return is_text_of(item, APR_NAMES("softmax"));
    case ALL_ONES: return is_off(item) || all_are(item, NULL);
    case HEAD_DIM: return is_number(item, (double)head_dim);
    case INVERSE_ROOT: return head_dim > 0 && is_number(item, 1.0 / sqrt((double)head_dim));
    case EPS: return is_number(item, h->rms_norm_eps);
    case FULL_CONTEXT:
        return is_off(item) ||
               (cJSON_IsNumber(item) && h->max_position_embeddings > 0 && item->valuedouble >= (double)h->max_position_embeddings);
    case AS_CLASS: return is_off(item) || all_are(item, slides ? "sliding_attention" : "full_attention");
    case EACH_LAYER: return is_off(item) || all_are(item, "full");
    case HIDDEN: return is_number(item, (double)h->hidden_size);
    case UNLIMITED: return is_unlimited(item);
    }
    return false;
}

/* True: a hyperparameter is read from this field in this family. */
static bool is_spelling(const apr_family_config *f, const char *field)
{
    for (size_t i = 0; i < APR_MAX_SPELLINGS && f->spellings[i].field != APR_NO_FIELD; i++)
        if (strcmp(f->spellings[i].hf_key, field) == 0) return true;
    return false;
}

static const char *const *accepted_words(const apr_family_config *f, const char *field)
{
    for (size_t i = 0; i < APR_MAX_ACCEPTED && f->accepts[i].hf_key != NULL; i++)
        if (strcmp(f->accepts[i].hf_key, field) == 0) return f->accepts[i].words;
    return NULL;
}

/* True: the field's value is neutral, or this family's program supports it. */
static bool is_done(const apr_config_reading *r, const apr_family_config *f, const rule *one, const cJSON *item)
{
    const char *const *const words = accepted_words(f, one->field);

    if (words != NULL) return is_off(item) || is_text_of(item, words);
    if (apr_is_any_of(one->field, f->requires)) return is_neutral(r, f, item, ON);
    if (one->only_where_refused && !apr_is_any_of(one->field, f->refuses)) return true;
    if (!one->only_where_refused && (apr_is_any_of(one->field, f->computes) || is_spelling(f, one->field))) return true;
    return is_neutral(r, f, item, one->neutral);
}

static apr_status refuse_value(const apr_config_reading *r, const char *field, const cJSON *item)
{
    char *const value = cJSON_PrintUnformatted(item);
    if (value == NULL) return apr_no_memory(r->err, "a config");
    const apr_status status = apr_config_refuse(r, "its \"%.60s\" is %.60s%s", field, value, strlen(value) > 60 ? "..." : "");
    cJSON_free(value);
    return status;
}

static apr_status check_computing(const apr_config_reading *r, const apr_family_config *f)
{
    for (size_t i = 0; i < sizeof computing / sizeof *computing; i++) {
        const rule *const one = &computing[i];
        const cJSON *const item = apr_config_find(r, one->field);
        if (item != NULL && !is_done(r, f, one, item)) APR_TRY(refuse_value(r, one->field, item));
    }
    return APR_OK;
}

/* Every member changes the rotation, so an unknown one is refused unless it is off. */
static apr_status check_rope(const apr_config_reading *r, const cJSON *rope)
{
    const cJSON *item;

    if (!cJSON_IsObject(rope)) return APR_OK;
    cJSON_ArrayForEach(item, rope)
    {
        const bool is_known = apr_has_word(rope_fields, item->string) || apr_is_any_of(item->string, r->spec->computes);
        if (!is_known && !cJSON_IsNull(item) && !is_off(item)) APR_TRY(refuse_value(r, item->string, item));
    }
    return APR_OK;
}

/* Checks both styles, and the objects of each kind of layer. */
static apr_status check_ropes(const apr_config_reading *r)
{
    const cJSON *const parameters = apr_config_find(r, "rope_parameters");

    APR_TRY(check_rope(r, apr_config_find(r, "rope_scaling")));
    APR_TRY(check_rope(r, parameters));
    APR_TRY(check_rope(r, apr_json_get(parameters, "full_attention")));
    return check_rope(r, apr_json_get(parameters, "sliding_attention"));
}

static bool is_known_field(const apr_family_config *f, const char *name)
{
    if (name[0] == '_' || is_spelling(f, name) || apr_is_any_of(name, f->computes) || apr_is_any_of(name, f->requires) ||
        apr_has_word(harmless, name))
        return true;
    for (size_t i = 0; i < sizeof computing / sizeof *computing; i++)
        if (strcmp(computing[i].field, name) == 0) return true;
    for (size_t i = 0; i < apr_n_hparam_fields; i++)
        if (strcmp(apr_hparam_fields[i].hf_key, name) == 0) return true;
    for (size_t i = 0; i < apr_n_hflag_fields; i++)
        if (strcmp(apr_hflag_fields[i].hf_key, name) == 0) return true;
    return false;
}

/* Lists unknown fields, "a, b, c", at most MAX_NAMED of them. */
static apr_status list_unknown(const apr_config_reading *r)
{
    enum { MAX_NAMED = 12 };
    const cJSON *item;
    const char *list = NULL;
    int n = 0;

    cJSON_ArrayForEach(item, r->text)
    {
        if (is_known_field(r->spec, item->string) || cJSON_IsNull(item) || ++n > MAX_NAMED) continue;
        list = apr_arena_print(r->arena, "%s%s%.60s", list != NULL ? list : "", list != NULL ? ", " : "", item->string);
        if (list == NULL) return apr_no_memory(r->err, "a config");
    }
    if (n > MAX_NAMED) list = apr_arena_print(r->arena, "%s and %d more", list, n - MAX_NAMED);
    r->h->unknown_fields = list;
    return n == 0 || list != NULL ? APR_OK : apr_no_memory(r->err, "a config");
}

apr_status apr_config_check(const apr_config_reading *r)
{
    const apr_family_config *const f = r->spec;

    if (f == NULL) return APR_OK; /* an unknown family: no program runs it */
    APR_TRY(check_computing(r, f));
    APR_TRY(check_ropes(r));
    /* if a class has no window, one of the whole context's length is none */
    if (apr_is_any_of("sliding_window", f->refuses) && r->h->layer_kinds == NULL) r->h->sliding_window = 0;
    return list_unknown(r);
}
