/* hf_config_write.c - writes hyperparameters as a config.json that transformers 4 and 5 read in the same way. */
#include "formats/base/json.h"
#include "formats/shape/hf_config.h"
#include "formats/shape/hf_config_reading.h"

#include <math.h>
#include <string.h>

static void put_text(apr_json_text *out, const char *key, const char *text) { apr_json_string(out, key, text, strlen(text)); }

static void put_positive(apr_json_text *out, const char *key, double value)
{
    if (value > 0) apr_json_real(out, key, value);
}

/* --- rope --- */

/* Readers multiply it by head_dim and truncate. If that would give one too few, the next larger number is written. */
static double rotary_part(const apr_hparams *h)
{
    const double part = (double)h->rotary_dim / (double)h->head_dim;
    return (int64_t)(part * (double)h->head_dim) == h->rotary_dim ? part : nextafter(part, 2.0);
}

/* True if only part of the head is rotated, or the class would assume so. Most classes of latent attention need no such field. */
static bool states_part(const apr_hparams *h, const apr_family_config *f)
{
    const bool knows_part = h->kv_lora_rank > 0 && !f->latent_part;
    const bool is_part = h->rotary_dim > 0 && h->head_dim > 0 && (h->rotary_dim < h->head_dim || f->partial_rotary_factor > 0);
    return is_part && !knows_part && h->rope.kind != APR_ROPE_PROPORTIONAL;
}

static void put_factors(apr_json_text *out, const char *key, const double *factors, int64_t n)
{
    apr_json_open(out, key, '[');
    for (int64_t i = 0; i < n; i++) apr_json_real(out, NULL, factors[i]);
    apr_json_close(out, ']');
}

static void put_scaling(apr_json_text *out, const apr_rope_scaling *s)
{
    put_text(out, "rope_type", apr_rope_names[s->kind]);
    if (s->kind == APR_ROPE_PLAIN) return;
    for (size_t i = 0; i < apr_n_rope_fields; i++) {
        double value;
        memcpy(&value, (const char *)s + apr_rope_fields[i].offset, sizeof value);
        put_positive(out, apr_rope_fields[i].name, value);
    }
    if (s->original_context > 0) apr_json_int(out, "original_max_position_embeddings", s->original_context);
    if (s->no_truncate) apr_json_bool(out, "truncate", false);
    if (s->n_factors == 0 || s->short_factor == NULL || s->long_factor == NULL) return;
    put_factors(out, "short_factor", s->short_factor, s->n_factors);
    put_factors(out, "long_factor", s->long_factor, s->n_factors);
}

/* Both styles have the same object; with_base: transformers 5 has rope_theta inside it, transformers 4 next to it. */
static void put_rope_object(apr_json_text *out, const char *key, const apr_hparams *h, const apr_family_config *f, bool with_base)
{
    apr_json_open(out, key, '{');
    put_scaling(out, &h->rope);
    if (with_base) put_positive(out, "rope_theta", h->rope_theta);
    if (with_base && states_part(h, f)) apr_json_real(out, "partial_rotary_factor", rotary_part(h));
    if (apr_has_word(f->computes, "llama_4_scaling_beta")) put_positive(out, "llama_4_scaling_beta", h->attn_temperature);
    apr_json_close(out, '}');
}

/* Writes separate objects for full and sliding layers. */
static void put_two_ropes(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    const bool differs = h->rope_theta_local > 0;

    apr_json_open(out, "rope_parameters", '{');
    put_rope_object(out, "full_attention", h, f, true);
    apr_json_open(out, "sliding_attention", '{');
    put_scaling(out, differs ? &h->rope_local : &h->rope);
    put_positive(out, "rope_theta", differs ? h->rope_theta_local : h->rope_theta);
    apr_json_close(out, '}');
    apr_json_close(out, '}');
}

static void put_rope(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    /* Only transformers 5 has the proportional kind, and objects per layer type. It reads a null next to rope_parameters as an empty
     * object, so null is written only if transformers 4 would assume a scaling. */
    if (h->rope.kind != APR_ROPE_PLAIN && h->rope.kind != APR_ROPE_PROPORTIONAL) put_rope_object(out, "rope_scaling", h, f, false);
    else if (f->rope != NULL && !f->local_rope) apr_json_null(out, "rope_scaling");
    if (f->local_rope) put_two_ropes(out, h, f);
    else put_rope_object(out, "rope_parameters", h, f, true);
    if (states_part(h, f)) apr_json_real(out, "partial_rotary_factor", rotary_part(h));
    if (h->rope.n_factors > 0 && h->rope.original_context > 0) /* longrope's classes look for it here */
        apr_json_int(out, "original_max_position_embeddings", h->rope.original_context);
}

/* --- numbers --- */

/* True: an earlier field has the same key and is written. */
static bool is_written(apr_hparams *h, const apr_family_config *f, size_t n_fields, const char *key)
{
    for (size_t i = 0; i < n_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        const bool has_value = field->is_int ? *apr_hparam_int(h, field) > 0 : *apr_hparam_real(h, field) > 0;
        if (has_value && strcmp(apr_family_hf_key(f, field->name, field->hf_key), key) == 0) return true;
    }
    return false;
}

/* Overrides a default of the class for a value that the model does not have: with null if the class accepts it, otherwise with 0. Scales
 * keep the class's default, except the one of attention scores, which becomes 1 / sqrt(head_dim). */
static void deny_default(apr_json_text *out, const apr_hparam_field *field, const char *key, const apr_hparams *h)
{
    static const char nullable[] = " q_lora_rank sliding_window num_expert_groups num_expert_groups_used attn_logit_softcapping"
                                   " final_logit_softcapping attention_chunk_size num_global_kv_heads ";

    if (strcmp(field->name, "full_attention_interval") == 0) return; /* layer_types replace it */
    if (apr_has_word(nullable, field->name)) apr_json_null(out, key);
    else if (strcmp(field->name, "global_head_dim") == 0) apr_json_int(out, key, h->head_dim);
    else if (field->is_int) apr_json_int(out, key, 0);
    else if (strcmp(field->name, "attention_multiplier") == 0 && h->head_dim > 0) apr_json_real(out, key, 1.0 / sqrt((double)h->head_dim));
}

/* Some numbers are integers for transformers, which refuses 256.0. */
static void put_real(apr_json_text *out, const char *key, double value)
{
    static const char whole[] = " query_pre_attn_scalar floor_scale ";

    if (apr_has_word(whole, key) && value > 0 && value < 1e15 && value == floor(value)) apr_json_int(out, key, (int64_t)value);
    else put_positive(out, key, value);
}

static void put_numbers(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    apr_hparams copy = *h; /* the table's accessors need a writable struct */

    /* if experts are the only feed-forward, their width is the intermediate size */
    if (copy.intermediate_size == 0 && f->ff_is_expert) copy.intermediate_size = copy.moe_intermediate_size;
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        const char *const key = apr_family_hf_key(f, field->name, field->hf_key);
        const double value = field->is_int ? (double)*apr_hparam_int(&copy, field) : *apr_hparam_real(&copy, field);
        if (key[0] == '\0' || is_written(&copy, f, i, key)) continue;
        if (value <= 0 && apr_family_default(f, field->name) > 0) deny_default(out, field, key, h);
        else if (!field->is_int) put_real(out, key, value);
        else if (value > 0) apr_json_int(out, key, *apr_hparam_int(&copy, field));
    }
}

/* Writes flags that are true, and those that the class would otherwise assume. The one about experts only if there are some. */
static void put_flags(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    static const char always[] = " tie_word_embeddings attention_bias ";
    apr_hparams copy = *h;

    for (size_t i = 0; i < apr_n_hflag_fields; i++) {
        const apr_hflag_field *const field = &apr_hflag_fields[i];
        const char *const key = apr_family_hf_key(f, field->name, field->hf_key);
        const bool is_of_experts = strcmp(field->name, "norm_topk_prob") == 0, value = *apr_hflag(&copy, field);
        const bool is_said = value || apr_has_word(always, field->name) || apr_has_word(f->flags_on, field->name);
        if (key[0] != '\0' && (is_of_experts ? h->num_experts > 0 : is_said)) apr_json_bool(out, key, value);
    }
}

/* --- layers --- */

/* For transformers before layer_types: the layer from which on all have a window; -1: no such layer. */
static int64_t first_sliding(const apr_hparams *h)
{
    int64_t first = 0;

    while (first < h->num_layers && h->layer_kinds[first] == APR_LAYER_FULL) first++;
    for (int64_t i = first; i < h->num_layers; i++)
        if (h->layer_kinds[i] != APR_LAYER_SLIDING) return -1;
    return first;
}

static char block_letter(const apr_hparams *h, int64_t layer)
{
    if (apr_layer_kind_of(h, layer) == APR_LAYER_MAMBA) return 'M';
    if (apr_layer_kind_of(h, layer) != APR_LAYER_NONE) return '*';
    return apr_ffn_kind_of(h, layer) == APR_FFN_EXPERTS ? 'E' : '-';
}

/* nemotron_h's older key, which transformers 5 also reads. */
static void put_pattern(apr_json_text *out, const apr_hparams *h)
{
    char letters[10001];
    const int64_t n = h->num_layers < 10000 ? h->num_layers : 10000;

    for (int64_t i = 0; i < n; i++) letters[i] = block_letter(h, i);
    apr_json_string(out, "hybrid_override_pattern", letters, (size_t)n);
}

/* Writes the kinds of the layers. */
static void put_mixers(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    if (f->experts == APR_EXPERTS_BY_BLOCK) {
        put_pattern(out, h);
        return;
    }
    if (h->layer_kinds == NULL && !f->mamba) return; /* without a list Mamba classes assume Mamba layers */
    if (h->sliding_window > 0 && f->window != APR_WINDOW_PATTERN) apr_json_bool(out, "use_sliding_window", true);
    if (h->sliding_window > 0 && f->window == APR_WINDOW_FROM_LAYER && first_sliding(h) >= 0)
        apr_json_int(out, "max_window_layers", first_sliding(h));
    apr_json_open(out, "layer_types", '[');
    for (int64_t i = 0; i < h->num_layers; i++) put_text(out, NULL, apr_config_layer_name(f, apr_layer_kind_of(h, i)));
    apr_json_close(out, ']');
}

/* Writes a list of the layers with this feed-forward. */
static void put_layers_with(apr_json_text *out, const char *key, const apr_hparams *h, apr_ffn_kind kind)
{
    apr_json_open(out, key, '[');
    for (int64_t i = 0; i < h->num_layers; i++)
        if (apr_ffn_kind_of(h, i) == kind) apr_json_int(out, NULL, i);
    apr_json_close(out, ']');
}

static int64_t n_dense_first(const apr_hparams *h)
{
    int64_t n = 0;
    while (n < h->num_layers && apr_ffn_kind_of(h, n) == APR_FFN_DENSE) n++;
    return n;
}

static void put_after_dense(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    apr_json_int(out, f->dense_key, n_dense_first(h));
    if (!apr_has_word(f->computes, "mlp_layer_types")) return;
    apr_json_open(out, "mlp_layer_types", '[');
    for (int64_t i = 0; i < h->num_layers; i++) put_text(out, NULL, apr_ffn_kind_of(h, i) == APR_FFN_DENSE ? "dense" : "sparse");
    apr_json_close(out, ']');
}

static void put_by_step(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    (void)f;
    apr_json_int(out, "decoder_sparse_step", 1);
    put_layers_with(out, "mlp_only_layers", h, APR_FFN_DENSE);
}

static void put_listed(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    (void)f;
    put_layers_with(out, "moe_layers", h, APR_FFN_EXPERTS);
}

/* Writes the first and the last layer with experts. Dense layers between them cannot be expressed. */
static void put_range(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    int64_t last = h->num_layers - 1;

    (void)f;
    while (last > 0 && apr_ffn_kind_of(h, last) == APR_FFN_DENSE) last--;
    apr_json_int(out, "moe_layer_start_index", n_dense_first(h));
    apr_json_int(out, "moe_layer_end_index", last);
    apr_json_int(out, "moe_layer_interval", 1);
}

static void put_feed_forwards(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    static void (*const rules[])(apr_json_text *, const apr_hparams *,
                                 const apr_family_config *) = {[APR_EXPERTS_AFTER_DENSE] = put_after_dense,
                                                               [APR_EXPERTS_BY_STEP] = put_by_step,
                                                               [APR_EXPERTS_LISTED] = put_listed,
                                                               [APR_EXPERTS_IN_RANGE] = put_range,
                                                               [APR_EXPERTS_BY_BLOCK] = NULL};

    if (h->num_experts > 0 && rules[f->experts] != NULL) rules[f->experts](out, h, f);
}

static void put_positions(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    if (f->positions == APR_POSITIONS_WHEN_STATED) put_text(out, "position_embedding_type", apr_layer_has_rope(h, 0) ? "rope" : "nope");
    if (f->positions != APR_POSITIONS_LISTED) return;
    apr_json_open(out, "no_rope_layers", '[');
    for (int64_t i = 0; i < h->num_layers; i++) apr_json_int(out, NULL, apr_layer_has_rope(h, i));
    apr_json_close(out, ']');
}

/* --- the rest --- */

/* Writes fields that only some classes need. */
static void put_choices(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    const char *const activation_key = f->activation_key != NULL ? f->activation_key : "hidden_act";

    if (activation_key[0] != '\0') put_text(out, activation_key, f->activation);
    if (apr_has_word(f->computes, "topk_method"))
        put_text(out, "topk_method", h->num_expert_groups > 0 ? "group_limited_greedy" : "greedy");
    if (apr_has_word(f->computes, "attn_temperature_tuning")) apr_json_bool(out, "attn_temperature_tuning", h->attn_temperature > 0);
    if (h->per_layer_input_size > 0) apr_json_int(out, "vocab_size_per_layer_input", h->vocab_size);
    if (apr_has_word(f->computes, "block_auto_adjust_ff_dim")) apr_json_bool(out, "block_auto_adjust_ff_dim", false);
}

static void put_ids(apr_json_text *out, const apr_vocab *vocab)
{
    /* a class may assume a padding token that the vocabulary does not have, and read its row of the embedding */
    if (vocab == NULL || vocab->n_tokens == 0 || vocab->pad_id < 0) apr_json_null(out, "pad_token_id");
    if (vocab == NULL || vocab->n_tokens == 0) return;
    if (vocab->bos_id >= 0) apr_json_int(out, "bos_token_id", vocab->bos_id);
    if (vocab->eos_id >= 0) apr_json_int(out, "eos_token_id", vocab->eos_id);
    if (vocab->pad_id >= 0) apr_json_int(out, "pad_token_id", vocab->pad_id);
}

char *apr_hf_config_write(const apr_hparams *h, const apr_vocab *vocab)
{
    static const apr_family_config other = {.activation = "silu"};
    apr_json_text out = {0};
    const apr_family_config *const known = apr_family_config_of(h->architecture), *const f = known != NULL ? known : &other;
    const apr_family_type *const type = apr_family_type_of(h->architecture);
    const char *const hf_class = h->hf_class != NULL || type == NULL ? h->hf_class : type->hf_class;

    apr_json_open(&out, NULL, '{');
    if (hf_class != NULL) {
        apr_json_open(&out, "architectures", '[');
        put_text(&out, NULL, hf_class);
        apr_json_close(&out, ']');
    }
    if (h->architecture[0] != '\0') put_text(&out, "model_type", h->architecture);
    put_choices(&out, h, f);
    put_numbers(&out, h, f);
    put_rope(&out, h, f);
    put_mixers(&out, h, f);
    put_feed_forwards(&out, h, f);
    put_positions(&out, h, f);
    put_ids(&out, vocab);
    put_flags(&out, h, f);
    if (h->torch_dtype != NULL) {
        put_text(&out, "torch_dtype", h->torch_dtype);
        put_text(&out, "dtype", h->torch_dtype);
    }
    apr_json_bool(&out, "use_cache", true);
    apr_json_close(&out, '}');
    return apr_json_text_take(&out, NULL);
}
