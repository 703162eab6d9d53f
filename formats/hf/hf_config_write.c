/* hf_config_write.c - hyperparameters to a config.json that transformers 4 and 5 read alike. */
#include "formats/base/json.h"
#include "formats/hf/hf_config.h"
#include "formats/hf/safetensors.h"

#include <math.h>
#include <string.h>

static void put_text(apr_json_text *out, const char *key, const char *text) { apr_json_string(out, key, text, strlen(text)); }

static void put_positive(apr_json_text *out, const char *key, double value)
{
    if (value > 0) apr_json_real(out, key, value);
}

/* Readers multiply it by head_dim and cut: what would come out one too small gets the next larger number. */
static double rotary_part(const apr_hparams *h)
{
    const double part = (double)h->rotary_dim / (double)h->head_dim;
    return (int64_t)(part * (double)h->head_dim) == h->rotary_dim ? part : nextafter(part, 2.0);
}

/* One object in both styles: transformers 4 finds the base beside it, transformers 5 inside it. */
static void put_rope_object(apr_json_text *out, const char *key, const apr_hparams *h, bool with_base)
{
    const apr_rope_scaling *const s = &h->rope;

    apr_json_open(out, key, '{');
    put_text(out, "rope_type", apr_rope_names[s->kind]);
    if (with_base) put_positive(out, "rope_theta", h->rope_theta);
    if (with_base && h->rotary_dim > 0 && h->rotary_dim < h->head_dim) apr_json_real(out, "partial_rotary_factor", rotary_part(h));
    if (s->kind != APR_ROPE_PLAIN) {
        put_positive(out, "factor", s->factor);
        put_positive(out, "low_freq_factor", s->low_freq_factor);
        put_positive(out, "high_freq_factor", s->high_freq_factor);
        if (s->original_context > 0) apr_json_int(out, "original_max_position_embeddings", s->original_context);
        put_positive(out, "beta_fast", s->beta_fast);
        put_positive(out, "beta_slow", s->beta_slow);
        put_positive(out, "attention_factor", s->attention_factor);
        if (s->no_truncate) apr_json_bool(out, "truncate", false);
    }
    apr_json_close(out, '}');
}

static void put_rope(apr_json_text *out, const apr_hparams *h)
{
    if (h->rope.kind != APR_ROPE_PLAIN) put_rope_object(out, "rope_scaling", h, false);
    else apr_json_null(out, "rope_scaling");
    put_rope_object(out, "rope_parameters", h, true);
    if (h->rotary_dim > 0 && h->rotary_dim < h->head_dim) apr_json_real(out, "partial_rotary_factor", rotary_part(h));
}

static void put_numbers(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    apr_hparams copy = *h; /* the table's accessors want to write */

    /* where the experts are the only feed-forward, their width is the intermediate size */
    if (copy.intermediate_size == 0 && f->ff_is_expert) copy.intermediate_size = copy.moe_intermediate_size;
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        const char *const key = apr_family_hf_key(f, field);
        if (key[0] == '\0') continue;
        if (!field->is_int) put_positive(out, key, *apr_hparam_real(&copy, field));
        else if (*apr_hparam_int(&copy, field) > 0) apr_json_int(out, key, *apr_hparam_int(&copy, field));
    }
}

/* For transformers before layer_types: from which layer on all attend within the window; -1: they do not lie so. */
static int64_t first_sliding(const apr_hparams *h)
{
    int64_t first = 0;

    while (first < h->num_layers && h->layer_kinds[first] == APR_LAYER_FULL) first++;
    for (int64_t i = first; i < h->num_layers; i++)
        if (h->layer_kinds[i] != APR_LAYER_SLIDING) return -1;
    return first;
}

/* Where a class supposes a window, none must be said. */
static void put_layers(apr_json_text *out, const apr_hparams *h, const apr_family_config *f)
{
    if (h->sliding_window == 0 && (f->window == APR_WINDOW_ALL || f->window == APR_WINDOW_EVEN) && f->sliding_window > 0)
        apr_json_null(out, "sliding_window");
    if (h->layer_kinds == NULL) return;
    if (h->sliding_window > 0) apr_json_bool(out, "use_sliding_window", true);
    if (h->sliding_window > 0 && f->window == APR_WINDOW_FROM_LAYER && first_sliding(h) >= 0)
        apr_json_int(out, "max_window_layers", first_sliding(h));
    apr_json_open(out, "layer_types", '[');
    for (int64_t i = 0; i < h->num_layers; i++) put_text(out, NULL, apr_layer_names[h->layer_kinds[i]]);
    apr_json_close(out, ']');
}

static void put_ids(apr_json_text *out, const apr_vocab *vocab)
{
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
    put_text(&out, "hidden_act", f->activation);
    put_numbers(&out, h, f);
    put_rope(&out, h);
    put_layers(&out, h, f);
    put_ids(&out, vocab);
    apr_json_bool(&out, "attention_bias", h->attention_bias);
    if (h->mlp_bias) apr_json_bool(&out, "mlp_bias", true);
    if (h->num_experts > 0) apr_json_bool(&out, "norm_topk_prob", h->norm_topk_prob);
    apr_json_bool(&out, "tie_word_embeddings", h->tie_word_embeddings);
    if (h->torch_dtype != NULL) {
        put_text(&out, "torch_dtype", h->torch_dtype);
        put_text(&out, "dtype", h->torch_dtype);
    }
    apr_json_bool(&out, "use_cache", true);
    apr_json_close(&out, '}');
    return apr_json_text_take(&out, NULL);
}
