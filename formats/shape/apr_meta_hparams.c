/* apr_meta_hparams.c - hyperparameters that the standard keys cannot express, as the object aprkit.hparams: flags, rotary
 * scaling, and the kinds of layers as texts with one letter for each layer. */

#include "formats/shape/apr_meta_hparams.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* config.json calls it "default". It is not written. */
static const char *rope_name(int kind) { return kind == APR_ROPE_PLAIN ? "plain" : apr_rope_names[kind]; }

/* One letter for each layer. Not written if the array is NULL: then all layers are of the same kind. */
typedef struct layer_text {
    const char *key, *letters; /* indexed by the kind's number */
    size_t n_letters, offset;  /* of the const uint8_t * member in apr_hparams */
} layer_text;

static const layer_text layer_texts[] = {
    {"layer_kinds", apr_layer_letters, APR_N_LAYER_KINDS, offsetof(apr_hparams, layer_kinds)},
    {"ffn_kinds", apr_ffn_letters, APR_N_FFN_KINDS, offsetof(apr_hparams, ffn_kinds)},
    {"no_rope", "01", 2, offsetof(apr_hparams, no_rope)},
    {"shares_index", "01", 2, offsetof(apr_hparams, shares_index)},
};

enum { N_LAYER_TEXTS = sizeof layer_texts / sizeof *layer_texts };

/* "tied_embeddings" and "norm_topk_prob" are standard keys. */
static const apr_flags standard = APR_FLAG(tie_word_embeddings) | APR_FLAG(norm_topk_prob);

/* --- writing --- */

static void write_rope(apr_json_text *out, const char *key, const apr_rope_scaling *s)
{
    if (s->kind == APR_ROPE_PLAIN) return;
    apr_json_open(out, key, '{');
    apr_json_string(out, "kind", rope_name(s->kind), strlen(rope_name(s->kind)));
    for (size_t i = 0; i < apr_n_rope_fields; i++) {
        const double value = apr_rope_number(s, &apr_rope_fields[i]);
        if (value != 0.0) apr_json_real(out, apr_rope_fields[i].name, value);
    }
    if (s->original_context != 0) apr_json_int(out, "original_context", s->original_context);
    if (s->no_truncate) apr_json_bool(out, "no_truncate", true);
    if (s->n_factors > 0) {
        apr_json_reals(out, "short_factor", s->short_factor, (size_t)s->n_factors);
        apr_json_reals(out, "long_factor", s->long_factor, (size_t)s->n_factors);
    }
    apr_json_close(out, '}');
}

static void write_layers(apr_json_text *out, const layer_text *t, const apr_hparams *h)
{
    const uint8_t *kinds;

    memcpy(&kinds, (const char *)h + t->offset, sizeof kinds);
    if (kinds == NULL || h->num_layers <= 0) return;
    char *const text = calloc((size_t)h->num_layers, 1);
    if (text == NULL) out->failed = true;
    for (int64_t i = 0; text != NULL && i < h->num_layers; i++) text[i] = t->letters[kinds[i] < t->n_letters ? kinds[i] : 0];
    if (text != NULL) apr_json_string(out, t->key, text, (size_t)h->num_layers);
    free(text);
}

void apr_meta_write_hparams(apr_json_text *out, const apr_hparams *h)
{
    apr_json_open(out, "hparams", '{');
    apr_json_bool(out, "attention_bias", h->attention_bias);
    for (size_t i = 0; i < apr_n_hflag_fields; i++) {
        const apr_hflag_field *const flag = &apr_hflag_fields[i];
        const bool is_said = apr_flags_have(standard | APR_FLAG(attention_bias), i);
        if (!is_said && apr_hflag_get(h, flag)) apr_json_bool(out, flag->name, true);
    }
    if (h->torch_dtype != NULL && *h->torch_dtype != '\0') apr_json_string(out, "torch_dtype", h->torch_dtype, strlen(h->torch_dtype));
    write_rope(out, "rope", &h->rope);
    write_rope(out, "rope_local", &h->rope_local);
    for (size_t i = 0; i < N_LAYER_TEXTS; i++) write_layers(out, &layer_texts[i], h);
    apr_json_close(out, '}');
}

/* --- reading --- */

static apr_status bad(const apr_model *model, const char *key, apr_error *err)
{
    return apr_fail(err, APR_E_DAMAGED, "%s: metadata 'aprkit.hparams.%s' is malformed", model->path, key);
}

static apr_status read_factors(apr_model *model, const cJSON *rope, const char *key, const double **factors, int64_t *n, apr_error *err)
{
    const cJSON *const list = apr_json_get(rope, key), *item;

    *n = 0;
    if (list == NULL) return APR_OK;
    if (!cJSON_IsArray(list)) return bad(model, key, err);
    double *const values = apr_arena_array(&model->arena, (size_t)cJSON_GetArraySize(list) + 1, sizeof *values);
    if (values == NULL) return apr_no_memory(err, "the rotary scaling");
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble)) return bad(model, key, err);
        values[(*n)++] = item->valuedouble;
    }
    *factors = values;
    return APR_OK;
}

static apr_status read_rope(apr_model *model, const cJSON *extras, const char *key, apr_rope_scaling *s, apr_error *err)
{
    const cJSON *const rope = apr_json_get(extras, key);
    const char *const kind = apr_json_get_string(rope, "kind");
    int64_t n_long;
    int k = 0;

    if (rope == NULL) return APR_OK;
    if (kind == NULL) return bad(model, key, err);
    while (k < APR_N_ROPE_KINDS && strcmp(rope_name(k), kind) != 0) k++;
    if (k == APR_N_ROPE_KINDS)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: the rotary scaling '%.40s' is not known to this program", model->path, kind);
    s->kind = (apr_rope_kind)k;
    for (size_t i = 0; i < apr_n_rope_fields; i++) apr_json_get_real(rope, apr_rope_fields[i].name, apr_rope_real(s, &apr_rope_fields[i]));
    apr_json_get_int(rope, "original_context", &s->original_context);
    apr_json_get_bool(rope, "no_truncate", &s->no_truncate);
    APR_TRY(read_factors(model, rope, "short_factor", &s->short_factor, &s->n_factors, err));
    APR_TRY(read_factors(model, rope, "long_factor", &s->long_factor, &n_long, err));
    return n_long == s->n_factors ? APR_OK : bad(model, key, err);
}

static apr_status read_layers(apr_model *model, const cJSON *extras, const layer_text *t, apr_error *err)
{
    const char *const text = apr_json_get_string(extras, t->key);

    if (text == NULL) return APR_OK;
    const size_t n = strlen(text);
    if ((uint64_t)model->hparams.num_layers != n) return bad(model, t->key, err);
    uint8_t *const kinds = apr_arena_alloc(&model->arena, n);
    if (kinds == NULL) return apr_no_memory(err, "the kinds of the layers");
    for (size_t i = 0; i < n; i++) {
        const char *const letter = memchr(t->letters, text[i], t->n_letters);
        if (letter == NULL) return bad(model, t->key, err);
        kinds[i] = (uint8_t)(letter - t->letters);
    }
    const uint8_t *const result = kinds;
    memcpy((char *)&model->hparams + t->offset, &result, sizeof result);
    return APR_OK;
}

apr_status apr_meta_read_hparams(apr_model *model, const cJSON *extras, apr_error *err)
{
    const char *const dtype = apr_json_get_string(extras, "torch_dtype");

    for (size_t i = 0; i < apr_n_hflag_fields; i++)
        if (!apr_flags_have(standard, i))
            apr_json_get_bool(extras, apr_hflag_fields[i].name, apr_hflag(&model->hparams, &apr_hflag_fields[i]));
    model->hparams.torch_dtype = dtype != NULL ? apr_arena_copy(&model->arena, dtype, strlen(dtype)) : NULL;
    if (dtype != NULL && model->hparams.torch_dtype == NULL) return apr_no_memory(err, "the metadata");
    APR_TRY(read_rope(model, extras, "rope", &model->hparams.rope, err));
    APR_TRY(read_rope(model, extras, "rope_local", &model->hparams.rope_local, err));
    for (size_t i = 0; i < N_LAYER_TEXTS; i++) APR_TRY(read_layers(model, extras, &layer_texts[i], err));
    return APR_OK;
}
