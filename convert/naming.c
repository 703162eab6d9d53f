/* naming.c - makes views of a model in other names and orders; touches no weight. */
#include "convert/naming.h"

#include "convert/import_export.h"
#include "convert/rope_tensors.h"
#include "convert/provenance.h"
#include "formats/shape/family.h"
#include "formats/tensor/packed_weights.h"
#include "formats/tensor/packing.h"
#include "formats/shape/text_part.h"

#include <stdlib.h>
#include <string.h>

apr_status apr_view_copy(apr_model *view, const apr_model *source, size_t n_extra, apr_error *err)
{
    *view = *source;
    view->arena = (apr_arena){0};
    view->maps = NULL;
    view->n_maps = 0;
    view->index = NULL;
    view->tensors = apr_arena_array(&view->arena, source->n_tensors + n_extra + 1, sizeof *view->tensors);
    if (view->tensors == NULL) return apr_no_memory(err, "a table of tensors");
    for (size_t i = 0; i < source->n_tensors; i++) {
        view->tensors[i] = source->tensors[i];
        if (apr_table_has(source->tensors, source->n_tensors, source->tensors[i].scale))
            view->tensors[i].scale = view->tensors + (source->tensors[i].scale - source->tensors);
    }
    return apr_model_index_names(view, err);
}

static int by_data(const void *a, const void *b)
{
    const uint8_t *const x = *(const uint8_t *const *)a, *const y = *(const uint8_t *const *)b;
    return (x > y) - (x < y);
}

apr_status apr_drop_unused_scales(apr_model *view, const apr_tensor *old, size_t n_old, apr_error *err)
{
    const uint8_t **const scales = apr_arena_array(&view->arena, n_old + 1, sizeof *scales);
    bool *const is_used = apr_arena_array(&view->arena, view->n_tensors + 1, sizeof *is_used);
    apr_tensor **const moved = apr_arena_array(&view->arena, view->n_tensors + 1, sizeof *moved);
    const apr_tensor *const tensors = view->tensors;
    const size_t n_tensors = view->n_tensors;
    size_t n = 0;

    if (scales == NULL || is_used == NULL || moved == NULL) return apr_no_memory(err, "a table of tensors");
    for (size_t i = 0; i < n_old; i++)
        if (apr_table_has(old, n_old, old[i].scale) && old[i].scale->data != NULL) scales[n++] = old[i].scale->data;
    if (n == 0) return APR_OK;
    qsort(scales, n, sizeof *scales, by_data);
    for (size_t i = 0; i < n_tensors; i++)
        if (apr_table_has(tensors, n_tensors, tensors[i].scale)) is_used[tensors[i].scale - tensors] = true;
    view->n_tensors = 0;
    for (size_t i = 0; i < n_tensors; i++) {
        const uint8_t *const data = tensors[i].data;
        if (!is_used[i] && data != NULL && bsearch(&data, scales, n, sizeof *scales, by_data) != NULL) continue;
        moved[i] = &view->tensors[view->n_tensors++];
        *moved[i] = tensors[i];
    }
    for (size_t i = 0; i < view->n_tensors; i++)
        if (apr_table_has(tensors, n_tensors, view->tensors[i].scale)) view->tensors[i].scale = moved[view->tensors[i].scale - tensors];
    return APR_OK;
}

/* "A.weight_scale" of "B.weight" becomes "B.weight_scale": scales have no provenance and are found by their weight's name. */
static apr_status rename_scales(apr_model *view, apr_error *err)
{
    static const char ending[] = ".weight";

    for (size_t i = 0; i < view->n_tensors; i++) {
        const apr_tensor *const t = &view->tensors[i];
        if (!apr_table_has(view->tensors, view->n_tensors, t->scale)) continue;
        apr_tensor *const scale = &view->tensors[t->scale - view->tensors];
        const char *const rest = strstr(scale->name, ".weight_");
        const size_t n = strlen(t->name), m = sizeof ending - 1;
        if (rest == NULL || n <= m || strcmp(t->name + n - m, ending) != 0 || strncmp(scale->name, t->name, n) == 0) continue;
        scale->name = apr_arena_print(&view->arena, "%s%s", t->name, rest + m);
        if (scale->name == NULL) return apr_no_memory(err, "a tensor's name");
    }
    return APR_OK;
}

apr_status apr_provenance_undo_without_scales(apr_model *view, apr_error *err)
{
    const apr_tensor *const old = view->tensors;
    const size_t n_old = view->n_tensors;

    APR_TRY(apr_provenance_undo(view, err));
    APR_TRY(apr_drop_unused_scales(view, old, n_old, err));
    return rename_scales(view, err);
}

/* Converts to canonical names and pieces by the family's table, except the marked tensors. */
static apr_status import_tensors(apr_model *view, const apr_model *source, const bool *keep_unchanged, apr_error *err)
{
    const apr_family *const family = apr_family_translated(source->hparams.architecture);

    if (family == NULL) return APR_OK;
    const apr_tensor *const old = view->tensors;
    const size_t n_old = view->n_tensors;
    APR_TRY(apr_import_tensors(view, source, family, keep_unchanged, err));
    APR_TRY(apr_drop_unused_scales(view, old, n_old, err));
    view->naming = APR_NAMING_HF;
    return apr_model_index_names(view, err);
}

/* Packed matrices replace the first of their parts; scale pointers move along. */
static apr_status join_packed(apr_model *view, const apr_model *source, apr_error *err)
{
    const apr_tensor **const joined = apr_arena_array(&view->arena, source->n_tensors + 1, sizeof *joined);
    bool *const is_part = apr_arena_array(&view->arena, source->n_tensors + 1, sizeof *is_part);
    apr_tensor **const moved = apr_arena_array(&view->arena, source->n_tensors + 1, sizeof *moved); /* old index -> new tensor */

    if (joined == NULL || is_part == NULL || moved == NULL) return apr_no_memory(err, "a table of tensors");
    for (size_t i = 0; i < source->n_packings; i++) {
        const apr_packing *const p = source->packings[i].packing;
        for (size_t j = 0; j < p->n_parts; j++) is_part[p->parts[j] - source->tensors] = true;
        joined[p->codes - source->tensors] = &source->packings[i];
    }
    view->n_tensors = 0;
    for (size_t i = 0; i < source->n_tensors; i++) {
        if (is_part[i] && joined[i] == NULL) continue;
        moved[i] = &view->tensors[view->n_tensors++];
        *moved[i] = joined[i] != NULL ? *joined[i] : source->tensors[i];
    }
    for (size_t i = 0; i < view->n_tensors; i++)
        if (apr_table_has(source->tensors, source->n_tensors, view->tensors[i].scale))
            view->tensors[i].scale = moved[view->tensors[i].scale - source->tensors];
    view->packings = NULL;
    view->n_packings = 0;
    return apr_model_index_names(view, err);
}

apr_status apr_canonical(apr_model *view, const apr_model *source, apr_error *err)
{
    APR_TRY(apr_view_copy(view, source, 0, err));
    if (source->n_packings > 0) APR_TRY(join_packed(view, source, err));
    return import_tensors(view, source, NULL, err);
}

/* True for a stack, or for several matrices in one: it would have to be cut together with its scales, and written so. */
static bool is_cut(const apr_model *source, const apr_tensor *t)
{
    const apr_family *const family = apr_family_translated(source->hparams.architecture);
    apr_name_match match;
    return t->rank > 2 || (family != NULL && apr_match_tensor(family, source->naming, t->name, &match) && match.form != NULL);
}

apr_status apr_canonical_packed(apr_model *view, const apr_model *source, apr_error *err)
{
    APR_TRY(apr_view_copy(view, source, 0, err));
    bool *const stays = apr_arena_array(&view->arena, source->n_tensors + 1, sizeof *stays);
    if (stays == NULL) return apr_no_memory(err, "a table of tensors");
    for (size_t i = 0; i < source->n_packings; i++) {
        const apr_packing *const p = source->packings[i].packing;
        for (size_t j = 0; j < p->n_parts; j++) stays[p->parts[j] - source->tensors] = true;
    }
    for (size_t i = 0; i < source->n_tensors; i++) stays[i] |= source->tensors[i].scale != NULL && is_cut(source, &source->tensors[i]);
    view->packings = NULL; /* their parts stay in the table as separate tensors */
    view->n_packings = 0;
    return import_tensors(view, source, stays, err);
}

/* The file format that uses this naming. */
static apr_format format_of_naming(apr_naming naming) { return naming == APR_NAMING_GGML ? APR_FORMAT_GGUF : APR_FORMAT_SAFETENSORS; }

/* True for tensors that the target does not need: buffers that its readers compute (inv_freq of old checkpoints; rotary divisors if
 * config.json states the scaling), activation scales of FP8 weights, a type that GGUF does not have, and tensors outside the
 * text model. */
static bool is_derived(const apr_model *model, const char *name, apr_naming naming)
{
    static const char ending[] = "rotary_emb.inv_freq";
    const size_t n = strlen(name), m = sizeof ending - 1;
    if (model->origin.format == format_of_naming(naming)) return false;
    if (apr_is_omitted(model, name)) return true;
    if (naming == APR_NAMING_HF) return apr_is_rope_tensor(model, name);
    if (n >= m && strcmp(name + n - m, ending) == 0) return true;
    return apr_is_activation_scale(name, NULL, 0);
}

/* Rotary divisors that match no known scaling cannot be written in a config.json: its readers would compute something else. */
static apr_status check_divisors(const apr_model *model, apr_error *err)
{
    static const char name[] = "rope_freqs.weight";
    if (apr_model_find(model, name) == NULL || apr_is_rope_tensor(model, name)) return APR_OK;
    return apr_fail(err, APR_E_UNSUPPORTED,
                    "%s: the rotary divisors of tensor 'rope_freqs.weight' match no known scaling, so a config.json cannot state "
                    "them; keep it as .apr or .gguf",
                    model->path);
}

static bool are_equal(const apr_tensor *a, const apr_tensor *b)
{
    const bool both_stored = a->made == NULL && b->made == NULL && a->packing == NULL && b->packing == NULL;
    return both_stored && a->dtype == b->dtype && a->n_bytes == b->n_bytes && memcmp(a->data, b->data, a->n_bytes) == 0;
}

/* The copy of a tied embedding that some readers need, made by aprkit (it has the embedding's provenance) or by aprender. */
static bool is_tied_copy(const apr_model *model, const apr_tensor *tensor)
{
    const apr_tensor *const embedding = apr_model_find(model, "model.embed_tokens.weight");
    if (embedding == NULL || strcmp(tensor->name, "lm_head.weight") != 0) return false;
    if (model->origin.format == APR_FORMAT_NONE) return model->hparams.tie_word_embeddings && are_equal(tensor, embedding);
    const char *const original_name = embedding->origin_name != NULL ? embedding->origin_name : embedding->name;
    return tensor->origin_name != NULL && strcmp(tensor->origin_name, original_name) == 0;
}

bool apr_is_unused_head(const apr_model *model, const apr_tensor *tensor)
{
    static const char head[] = "lm_head.weight";
    if (!model->hparams.tie_word_embeddings || apr_find_embedding(model) == NULL) return false;
    return strncmp(apr_text_name_of(tensor->name).rest, head, sizeof head - 1) == 0; /* a prefix, so that its scales match also */
}

/* Marks originals that are kept only to restore another tensor. */
static void find_originals(const apr_model *canonical, bool *is_original)
{
    for (size_t i = 0; i < canonical->n_tensors; i++) {
        const char *const name = canonical->tensors[i].origin_kept;
        const apr_tensor *const kept = name != NULL ? apr_model_find(canonical, name) : NULL;
        if (kept != NULL) is_original[kept - canonical->tensors] = true;
    }
}

/* Drops tensors that the target does not keep; scale pointers move along. */
static apr_status drop_tensors(apr_model *view, const apr_model *canonical, apr_naming naming, apr_error *err)
{
    apr_tensor **const moved = apr_arena_array(&view->arena, canonical->n_tensors + 1, sizeof *moved); /* old index -> new tensor */
    bool *const is_original = apr_arena_array(&view->arena, canonical->n_tensors + 1, sizeof *is_original);
    size_t n_left_out = 0;

    if (moved == NULL || is_original == NULL) return apr_no_memory(err, "a table of tensors");
    if (canonical->origin.format != format_of_naming(naming)) find_originals(canonical, is_original);
    view->n_tensors = 0;
    for (size_t i = 0; i < canonical->n_tensors; i++) {
        const apr_tensor *const tensor = &canonical->tensors[i];
        const bool is_idle = naming == APR_NAMING_GGML && apr_is_unused_head(canonical, tensor);
        n_left_out += canonical->origin.format != format_of_naming(naming) && apr_is_omitted(canonical, tensor->name);
        if (is_tied_copy(canonical, tensor) || is_idle || is_original[i] || is_derived(canonical, tensor->name, naming)) continue;
        moved[i] = &view->tensors[view->n_tensors++];
        *moved[i] = canonical->tensors[i];
    }
    if (n_left_out > 0) view->hparams.num_nextn_layers = 0; /* the file must not announce layers that it does not have */
    for (size_t i = 0; i < view->n_tensors; i++)
        if (apr_table_has(canonical->tensors, canonical->n_tensors, view->tensors[i].scale))
            view->tensors[i].scale = moved[view->tensors[i].scale - canonical->tensors];
    return APR_OK;
}

/* Converts a model that did not come from that naming: names, pieces and orders. */
static apr_status export_tensors(apr_model *view, const apr_model *canonical, apr_naming naming, apr_error *err)
{
    const apr_family *const family = apr_family_translated(canonical->hparams.architecture);
    const bool is_ggml = naming == APR_NAMING_GGML;

    if (family == NULL && canonical->naming == naming) return APR_OK;
    if (family == NULL || canonical->naming == APR_NAMING_GGML)
        return apr_fail(err, APR_E_UNSUPPORTED,
                        "%s: converting from %s names to %s is not supported for architecture '%s'; keep it as .apr or %s", canonical->path,
                        is_ggml ? "Hugging Face's" : "ggml's", is_ggml ? "ggml's" : "Hugging Face's", canonical->hparams.architecture,
                        is_ggml ? "safetensors" : ".gguf");
    APR_TRY(apr_model_index_names(view, err));
    APR_TRY(apr_export_tensors(view, family, naming, err));
    APR_TRY(apr_model_index_names(view, err));
    return is_ggml ? apr_add_rope_tensors(view, err) : APR_OK;
}

apr_status apr_translate(apr_model *view, const apr_model *canonical, apr_naming naming, apr_error *err)
{
    const apr_format origin_format = format_of_naming(naming);

    if (naming == APR_NAMING_HF) APR_TRY(check_divisors(canonical, err));
    APR_TRY(apr_view_copy(view, canonical, APR_N_ROPE_TENSORS, err));
    APR_TRY(drop_tensors(view, canonical, naming, err));
    if (canonical->origin.format == origin_format && canonical->naming == APR_NAMING_HF) {
        APR_TRY(apr_model_index_names(view, err));
        APR_TRY(apr_provenance_undo_without_scales(view, err));
    } else if (canonical->origin.format != origin_format) APR_TRY(export_tensors(view, canonical, naming, err));
    view->naming = naming;
    return apr_model_index_names(view, err);
}

apr_status apr_view_as_gguf(apr_model *view, apr_model *between, const apr_model *canonical, apr_error *err)
{
    *view = *between = (apr_model){0};
    APR_TRY(apr_translate(between, canonical, APR_NAMING_GGML, err));
    for (size_t i = 0; i < between->n_tensors; i++) { /* without a record: otherwise its original would be restored */
        apr_tensor *const t = &between->tensors[i];
        t->origin_name = t->origin_kept = NULL;
        t->origins = NULL;
        t->origin_chain = (apr_chain){0};
    }
    return apr_canonical(view, between, err);
}
