/* show_json.c - aprconv show --json: the same as show's text, but complete. */
#include "formats/gguf/gguf_endian.h"
#include "runtime/template/chat.h"
#include "tools/conv/show.h"

#include "formats/tensor/sink.h"
#include "tools/conv/kv_text.h"

#include <stdlib.h>
#include <string.h>

/* Absent strings are left out. */
static void put_string(apr_json_text *out, const char *key, const char *text)
{
    if (text != NULL) apr_json_string(out, key, text, strlen(text));
}

static void put_header(const apr_model *model, const apr_model_facts *facts, apr_json_text *out)
{
    put_string(out, "path", model->path);
    put_string(out, "container", apr_format_name(model->format));
    put_string(out, "names", apr_naming_name(model->naming));
    if (model->other_weights != NULL) put_string(out, "not_read", model->other_weights);
    apr_json_uint(out, "file_bytes", facts->file_bytes);
    apr_json_uint(out, "tensor_bytes", facts->tensor_bytes);
    apr_json_uint(out, "n_tensors", model->n_tensors);
    apr_json_int(out, "n_weights", facts->n_weights);
    apr_json_real(out, "bits_per_weight", apr_bits_per_weight(facts->tensor_bytes, facts->n_weights));
    apr_json_open(out, "origin", '{');
    put_string(out, "format", apr_format_name(model->origin.format));
    if (model->origin.format == APR_FORMAT_GGUF) apr_json_uint(out, "gguf_version", apr_gguf_version_number(model->origin.gguf_version));
    if (apr_gguf_is_big_endian(model->origin.gguf_version)) apr_json_bool(out, "big_endian", true);
    apr_json_bool(out, "requantized", model->origin.requantized);
    apr_json_uint(out, "n_reordered", facts->n_reordered);
    apr_json_close(out, '}');
}

static void put_factors(apr_json_text *out, const char *key, const double *factors, int64_t n)
{
    if (n == 0) return;
    apr_json_open(out, key, '[');
    for (int64_t i = 0; i < n; i++) apr_json_real(out, NULL, factors[i]);
    apr_json_close(out, ']');
}

static void put_rope(const char *key, const apr_rope_scaling *rope, apr_json_text *out)
{
    apr_json_open(out, key, '{');
    put_string(out, "kind", apr_rope_name(rope->kind));
    if (rope->kind != APR_ROPE_PLAIN) {
        apr_json_real(out, "factor", rope->factor);
        apr_json_real(out, "low_freq_factor", rope->low_freq_factor);
        apr_json_real(out, "high_freq_factor", rope->high_freq_factor);
        apr_json_int(out, "original_context", rope->original_context);
        apr_json_real(out, "beta_fast", rope->beta_fast);
        apr_json_real(out, "beta_slow", rope->beta_slow);
        apr_json_real(out, "attention_factor", rope->attention_factor);
        apr_json_bool(out, "truncate", !rope->no_truncate);
        apr_json_real(out, "mscale", rope->mscale);
        apr_json_real(out, "mscale_all_dim", rope->mscale_all_dim);
        apr_json_real(out, "alpha", rope->alpha);
        apr_json_real(out, "partial_rotary_factor", rope->partial_rotary_factor);
        put_factors(out, "short_factor", rope->short_factor, rope->n_factors);
        put_factors(out, "long_factor", rope->long_factor, rope->n_factors);
    }
    apr_json_close(out, '}');
}

/* A name for each layer; left out if all layers are of the same kind. */
static void put_layers(apr_json_text *out, const char *key, const uint8_t *kinds, int64_t n, const char *(*name_of)(uint8_t kind))
{
    if (kinds == NULL) return;
    apr_json_open(out, key, '[');
    for (int64_t i = 0; i < n; i++) put_string(out, NULL, name_of(kinds[i]));
    apr_json_close(out, ']');
}

/* Three flags are always printed, the others only if they are true. */
static void put_flags(apr_json_text *out, apr_hparams *h)
{
    apr_json_bool(out, "tie_word_embeddings", h->tie_word_embeddings);
    apr_json_bool(out, "attention_bias", h->attention_bias);
    apr_json_bool(out, "norm_topk_prob", h->norm_topk_prob);
    for (size_t i = 0; i < apr_n_hflag_fields; i++) {
        const bool *const flag = apr_hflag(h, &apr_hflag_fields[i]);
        const bool is_there = flag == &h->tie_word_embeddings || flag == &h->attention_bias || flag == &h->norm_topk_prob;
        if (!is_there && *flag) apr_json_bool(out, apr_hflag_fields[i].name, true);
    }
}

/* Numbers that the file does not state are left out. */
static void put_hparams(const apr_model *model, apr_json_text *out)
{
    apr_hparams hparams = model->hparams; /* a copy, because the table's accessors return pointers to non-const */

    apr_json_open(out, "hyperparameters", '{');
    put_string(out, "architecture", hparams.architecture);
    put_string(out, "hf_class", hparams.hf_class);
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        if (field->is_int && *apr_hparam_int(&hparams, field) != 0) apr_json_int(out, field->name, *apr_hparam_int(&hparams, field));
        if (!field->is_int && *apr_hparam_real(&hparams, field) != 0.0) apr_json_real(out, field->name, *apr_hparam_real(&hparams, field));
    }
    put_rope("rope_scaling", &hparams.rope, out);
    if (hparams.rope_theta_local > 0) put_rope("rope_scaling_local", &hparams.rope_local, out);
    put_flags(out, &hparams);
    put_string(out, "torch_dtype", hparams.torch_dtype);
    put_layers(out, "layer_kinds", hparams.layer_kinds, hparams.num_layers, apr_layer_kind_name);
    put_layers(out, "ffn_kinds", hparams.ffn_kinds, hparams.num_layers, apr_ffn_kind_name);
    put_layers(out, "positions", hparams.no_rope, hparams.num_layers, apr_position_name);
    apr_json_close(out, '}');
}

static void put_id(apr_json_text *out, const char *key, int32_t id)
{
    if (id < 0) apr_json_null(out, key);
    else apr_json_int(out, key, id);
}

/* Without the tokens themselves, which are in a GGUF's metadata or in tokenizer.json. */
static void put_vocab(const apr_vocab *vocab, apr_json_text *out)
{
    apr_chat_stops stops;

    apr_json_open(out, "tokenizer", '{');
    put_string(out, "kind", apr_vocab_kind_name(vocab->kind));
    put_string(out, "pre", vocab->pre);
    put_string(out, "pattern", vocab->pattern);
    apr_json_uint(out, "n_tokens", vocab->n_tokens);
    apr_json_uint(out, "n_merges", vocab->n_merges);
    put_id(out, "bos_id", vocab->bos_id);
    put_id(out, "eos_id", vocab->eos_id);
    put_id(out, "pad_id", vocab->pad_id);
    put_id(out, "unk_id", vocab->unk_id);
    apr_json_bool(out, "add_bos", vocab->add_bos);
    apr_json_bool(out, "add_eos", vocab->add_eos);
    apr_json_open(out, "stop_ids", '[');
    for (size_t i = 0; i < vocab->n_stop_ids; i++) apr_json_int(out, NULL, vocab->stop_ids[i]);
    apr_json_close(out, ']');
    if (apr_chat_stops_of(vocab, &stops, NULL) == APR_OK && stops.added >= 0) put_id(out, "turn_end_id", stops.added);
    put_string(out, "chat_template", vocab->chat_template);
    apr_json_close(out, '}');
}

static void put_metadata(const apr_kv_list *list, apr_json_text *out)
{
    apr_json_open(out, "metadata", '[');
    for (size_t i = 0; i < list->n_items; i++) {
        const apr_kv *const kv = &list->items[i];
        apr_json_open(out, NULL, '{');
        apr_json_string(out, "key", kv->key.text, kv->key.n_bytes);
        put_string(out, "type", apr_kv_type_name(kv->type));
        if (kv->type == APR_KV_ARRAY) put_string(out, "elem_type", apr_kv_type_name(kv->elem_type));
        apr_kv_json(out, "value", kv);
        apr_json_close(out, '}');
    }
    apr_json_close(out, ']');
}

static void put_types(const apr_model_facts *facts, apr_json_text *out)
{
    apr_json_open(out, "types", '[');
    for (int d = 0; d < APR_DTYPE_COUNT; d++) {
        const apr_type_share *const share = &facts->types[d];
        if (share->n_tensors == 0) continue;
        apr_json_open(out, NULL, '{');
        put_string(out, "dtype", apr_dtypes[d].name);
        apr_json_int(out, "n_tensors", share->n_tensors);
        apr_json_int(out, "n_weights", share->n_weights);
        apr_json_uint(out, "n_bytes", share->n_bytes);
        apr_json_close(out, '}');
    }
    apr_json_close(out, ']');
}

static void put_shape(const apr_tensor *tensor, apr_json_text *out)
{
    apr_json_open(out, "shape", '[');
    for (int i = 0; i < tensor->rank; i++) apr_json_int(out, NULL, tensor->dims[i]);
    apr_json_close(out, ']');
}

/* whole: the packed matrix or FP8 weight that the tensor is part of, or NULL. */
static void put_tensor(const apr_tensor *tensor, const apr_tensor *whole, apr_json_text *out)
{
    char steps[APR_CHAIN_TEXT], text[APR_SCHEME_TEXT];

    apr_json_open(out, NULL, '{');
    put_string(out, "name", tensor->name);
    put_string(out, "dtype", apr_dtypes[tensor->dtype].name);
    put_shape(tensor, out);
    apr_json_uint(out, "n_bytes", tensor->n_bytes);
    put_string(out, "origin_name", tensor->origin_name);
    const apr_chain *const chain = &tensor->origin_chain;
    if (chain->n_steps == 1) put_string(out, "step", apr_step_kinds[chain->steps[0].kind].name);
    else if (chain->n_steps > 1) put_string(out, "steps", apr_chain_text(chain, steps));
    if (tensor->scale != NULL) put_string(out, "scale", tensor->scale->name);
    if (apr_fp8_scheme(tensor, text) != NULL) put_string(out, "scheme", text);
    if (whole != NULL) put_string(out, "part_of", whole->name);
    apr_json_close(out, '}');
}

/* Schemes of packed matrices and FP8 weights; "types" has all other tensors. */
static void put_schemes(const apr_model_facts *facts, apr_json_text *out)
{
    if (facts->n_schemes == 0) return;
    apr_json_open(out, "schemes", '[');
    for (size_t i = 0; i < facts->n_schemes; i++) {
        apr_json_open(out, NULL, '{');
        put_string(out, "scheme", facts->schemes[i].scheme);
        apr_json_int(out, "n_matrices", facts->schemes[i].share.n_tensors);
        apr_json_int(out, "n_weights", facts->schemes[i].share.n_weights);
        apr_json_uint(out, "n_bytes", facts->schemes[i].share.n_bytes);
        apr_json_close(out, '}');
    }
    apr_json_close(out, ']');
}

/* dtype: the type that the matrix decodes to; n_bytes: of all parts as stored. */
static void put_matrix(const apr_tensor *matrix, apr_json_text *out)
{
    apr_json_open(out, NULL, '{');
    put_string(out, "name", matrix->name);
    put_string(out, "scheme", matrix->packing->scheme);
    put_string(out, "dtype", apr_dtypes[matrix->dtype].name);
    put_shape(matrix, out);
    apr_json_uint(out, "n_bytes", apr_matrix_bytes(matrix));
    apr_json_open(out, "parts", '[');
    for (size_t i = 0; i < matrix->packing->n_parts; i++) put_string(out, NULL, matrix->packing->parts[i]->name);
    apr_json_close(out, ']');
    apr_json_close(out, '}');
}

static void put_lists(const apr_model *model, const apr_model_facts *facts, const apr_pattern *filter, apr_json_text *out)
{
    apr_json_open(out, "tensors", '[');
    for (size_t i = 0; i < model->n_tensors; i++)
        if (apr_is_shown(filter, model->tensors[i].name))
            put_tensor(&model->tensors[i], facts->matrices[i] != NULL ? facts->matrices[i] : facts->scaled[i], out);
    apr_json_close(out, ']');
    if (model->n_packings == 0) return;
    apr_json_open(out, "matrices", '[');
    for (size_t i = 0; i < model->n_packings; i++)
        if (apr_is_shown(filter, model->packings[i].name)) put_matrix(&model->packings[i], out);
    apr_json_close(out, ']');
}

apr_status apr_show_json(const apr_model *model, const apr_show_options *options, const apr_pattern *filter, apr_json_text *out,
                         apr_error *err)
{
    apr_model_facts facts;

    APR_TRY(apr_model_count(model, &facts, err));
    put_header(model, &facts, out);
    put_hparams(model, out);
    put_vocab(&model->vocab, out);
    if (options->metadata) put_metadata(&model->kv, out);
    apr_json_open(out, "attachments", '[');
    for (size_t i = 0; i < model->n_attachments; i++) {
        apr_json_open(out, NULL, '{');
        put_string(out, "name", model->attachments[i].name);
        apr_json_uint(out, "n_bytes", model->attachments[i].n_bytes);
        apr_json_close(out, '}');
    }
    apr_json_close(out, ']');
    put_types(&facts, out);
    put_schemes(&facts, out);
    if (options->tensors) put_lists(model, &facts, filter, out);
    free(facts.matrices);
    return APR_OK;
}
