/* export.c - makes views in other namings of canonical tensors: restores the origin's form, or, for a naming that the model did not come
 * from, records for each tensor the provenance that it would have there, and restores that. So a family's rules state each conversion once,
 * for both directions. Touches no weight. */
#include "convert/naming.h"

#include "convert/provenance.h"
#include "formats/base/text.h"
#include "formats/shape/family.h"
#include "formats/shape/gguf_hparams.h"
#include "formats/shape/tensor_names.h"
#include "formats/shape/text_part.h"
#include "formats/tensor/packed_weights.h"
#include "kernels/rows.h"

#include <stdlib.h>
#include <string.h>

/* Rotary scalings that GGUF stores as tensors are added last. */
_Static_assert((int)APR_GGUF_ROPE_TENSORS <= (int)APR_PROVENANCE_SPARE, "apr_provenance_undo leaves enough spare entries");

/* ---- restoring the recorded form ---- */

/* "A.weight_scale" of "B.weight" becomes "B.weight_scale": scales have no provenance and are found by their weight's name. */
static apr_status rename_scales(apr_model *view, apr_error *err)
{
    static const char suffix[] = ".weight";

    for (size_t i = 0; i < view->n_tensors; i++) {
        const apr_tensor *const t = &view->tensors[i];
        if (!apr_table_has(view->tensors, view->n_tensors, t->scale)) continue;
        apr_tensor *const scale = &view->tensors[t->scale - view->tensors];
        const char *const rest = strstr(scale->name, ".weight_");
        if (rest == NULL || apr_stem_of(t->name, suffix) == 0 || apr_begins_with(scale->name, t->name)) continue;
        scale->name = apr_arena_print(&view->arena, "%s%s", t->name, rest + sizeof suffix - 1);
        if (scale->name == NULL) return apr_no_memory(err, "a tensor's name");
    }
    return APR_OK;
}

/* apr_provenance_undo, followed by apr_drop_unused_scales: scales of joined matrices (stacked experts) are not written separately. Scales of
 * renamed weights are renamed with them. */
static apr_status undo_without_scales(apr_model *view, apr_error *err)
{
    const apr_tensor *const old = view->tensors;
    const size_t n_old = view->n_tensors;

    APR_TRY(apr_provenance_undo(view, err));
    APR_TRY(apr_drop_unused_scales(view, old, n_old, err));
    return rename_scales(view, err);
}

typedef struct exporter {
    apr_model *view;
    const apr_family *family;
    apr_naming to;
    apr_error *err;
} exporter;

static apr_status no_name(const exporter *d, const apr_tensor *t)
{
    return apr_fail(d->err, APR_E_UNSUPPORTED, "%s: tensor '%s' has no name in %s naming for architecture '%s'", d->view->path, t->name,
                    d->to == APR_NAMING_GGML ? "ggml's" : "Hugging Face's", d->view->hparams.architecture);
}

static apr_status too_long(const exporter *d, const apr_tensor *t)
{
    return apr_fail(d->err, APR_E_UNSUPPORTED, "%s: tensor '%s' would need too many steps", d->view->path, t->name);
}

/* ---- tensors that are canonical only in the other naming ---- */

static apr_status split(const exporter *d, const apr_tensor *whole, const apr_name_match *match, const apr_tensor_form *form,
                        apr_tensor *parts, size_t *n)
{
    const apr_shape shape = apr_tensor_shape(whole);
    char dims[128];

    for (int i = 0; i < APR_FORM_PARTS && form->parts[i].name != NULL; i++) {
        apr_tensor *const t = &parts[(*n)++];
        const char *const name = apr_fill_name(form->parts[i].name, match, match->expert, &d->view->arena);
        apr_chain chain;
        if (name == NULL) return apr_no_memory(d->err, "a tensor's name");
        if (!apr_part_chain(form, i, &d->view->hparams, &shape, true, -1, &chain))
            return apr_fail(d->err, APR_E_DAMAGED, "%s: tensor '%s' %s does not have the shape to hold '%s'", d->view->path, whole->name,
                            apr_dims_text(whole, dims, sizeof dims), name);
        *t = *whole;
        APR_TRY(apr_tensor_append_steps(t, &chain, &d->view->arena, d->view->path, d->err));
        t->name = name;
    }
    return APR_OK;
}

static apr_status split_wholes(const exporter *d)
{
    apr_model *const view = d->view;
    const size_t n_old = view->n_tensors;
    const apr_tensor *const old = view->tensors;
    apr_tensor *const tensors = apr_arena_array(&view->arena, n_old * APR_FORM_PARTS + 2, sizeof *tensors);
    apr_tensor **const moved = apr_arena_array(&view->arena, n_old + 1, sizeof *moved);
    size_t n = 0;

    if (tensors == NULL || moved == NULL) return apr_no_memory(d->err, "a table of tensors");
    for (size_t i = 0; i < n_old; i++) {
        apr_name_match match;
        const apr_tensor_form *const form = apr_match_whole(d->family, d->to, old[i].name, &match);
        moved[i] = &tensors[n];
        if (form == NULL) tensors[n++] = old[i];
        else APR_TRY(split(d, &old[i], &match, form, tensors, &n));
    }
    apr_move_scales(tensors, n, old, n_old, moved);
    view->tensors = tensors;
    view->n_tensors = n;
    return apr_model_index_names(view, d->err);
}

/* ---- value heads ---- */

/* Reorders value heads from ggml's order to Hugging Face's. */
static apr_status group_value_heads(const exporter *d, apr_tensor *t)
{
    apr_hparams *const h = &d->view->hparams;
    const apr_tensor_rule *const rule = apr_family_rule(d->family, t->name);
    apr_chain all, others, back = {0};

    if (rule == NULL) return APR_OK;
    if (!apr_rule_to_ggml(rule, d->family, h, false, &all) || !apr_rule_to_ggml(rule, d->family, h, true, &others)) return too_long(d, t);
    if (all.n_steps == others.n_steps) return APR_OK;
    for (int i = 0; i < all.n_steps; i++)
        if (all.steps[i].kind == APR_STEP_GROUPED_TO_TILED) back = apr_chain_of(apr_step_inverse(all.steps[i]));
    if (t->rank == 3) back.steps[0].n[0] = 2; /* the convolution has an axis of length 1 before its taps */
    return apr_tensor_append_steps(t, &back, &d->view->arena, d->view->path, d->err);
}

/* ---- provenance in the target naming ---- */

static apr_status by_rule(const exporter *d, apr_tensor *t, const apr_name_match *match)
{
    const apr_hparams *const h = &d->view->hparams;

    if (!apr_rule_from_ggml(match->rule, d->family, h, h->tiled_value_heads, match->is_stack ? match->expert : -1, &t->origin_chain))
        return too_long(d, t);
    t->origin_name = apr_fill_name(match->holder, match, match->expert, &d->view->arena);
    return t->origin_name != NULL ? APR_OK : apr_no_memory(d->err, "a tensor's name");
}

/* Fails if one of the tensors to be joined is missing. */
static apr_status check_others(const exporter *d, const apr_tensor *t, const apr_name_match *match)
{
    for (int i = 0; i < APR_FORM_PARTS && match->form->parts[i].name != NULL; i++) {
        const char *const name = apr_fill_name(match->form->parts[i].name, match, match->expert, &d->view->arena);
        if (name == NULL) return apr_no_memory(d->err, "a tensor's name");
        if (apr_model_find(d->view, name) == NULL)
            return apr_fail(d->err, APR_E_DAMAGED, "%s: tensor '%s' is present without '%s'", d->view->path, t->name, name);
    }
    return APR_OK;
}

/* Records MXFP4's two tensors: first the scales, then the nibbles. */
static apr_status record_mxfp4_parts(const exporter *d, apr_tensor *t, const apr_name_match *match)
{
    static const int64_t lengths[] = {1, 16};
    static const apr_chain chains[] = {{1, {{.kind = APR_STEP_UNSQUEEZE}}}, {0}};
    apr_arena *const arena = &d->view->arena;
    apr_origins *const several = apr_arena_alloc(arena, sizeof *several);
    const char **const names = apr_arena_array(arena, 2, sizeof *names);

    if (several == NULL || names == NULL) return apr_no_memory(d->err, "the parts of a tensor");
    names[0] = apr_fill_name(match->form->scales, match, match->expert, arena);
    names[1] = apr_fill_name(match->form->name, match, match->expert, arena);
    *several = (apr_origins){.names = names, .lengths = lengths, .chains = chains, .n = 2};
    t->origins = several;
    return names[0] != NULL && names[1] != NULL ? APR_OK : apr_no_memory(d->err, "a tensor's name");
}

static apr_status by_form(const exporter *d, apr_tensor *t, const apr_name_match *match)
{
    const apr_tensor_form *const form = match->form;
    const apr_shape shape = apr_tensor_shape(t);

    APR_TRY(check_others(d, t, match));
    if (!apr_part_chain(form, match->part, &d->view->hparams, &shape, false, match->is_stack ? match->expert : -1, &t->origin_chain))
        return too_long(d, t);
    if (form->scales != NULL) return record_mxfp4_parts(d, t, match);
    t->origin_name = apr_fill_name(match->holder, match, match->expert, &d->view->arena);
    return t->origin_name != NULL ? APR_OK : apr_no_memory(d->err, "a tensor's name");
}

/* A stack needs all of its matrices: every expert of the model. */
static apr_status check_expert(const exporter *d, const apr_tensor *t, const apr_name_match *match)
{
    if (!match->is_stack) return APR_OK;
    const int64_t n = apr_stack_length(&d->view->hparams, match->canonical);
    const bool is_expert = strstr(match->canonical, "experts") != NULL;

    if (n == 0) return APR_OK;
    if (match->expert >= n)
        return apr_fail(d->err, APR_E_DAMAGED, "%s: tensor '%s' belongs to %s beyond the model's %lld", d->view->path, t->name,
                        is_expert ? "an expert" : "a stream", (long long)n);
    const char *const last = apr_fill_name(match->canonical, match, n - 1, &d->view->arena);
    if (last == NULL) return apr_no_memory(d->err, "a tensor's name");
    if (apr_model_find(d->view, last) != NULL) return APR_OK;
    return apr_fail(d->err, APR_E_DAMAGED, "%s: tensor '%s' is missing: the model has %lld %s", d->view->path, last, (long long)n,
                    is_expert ? "experts" : "of them");
}

static apr_status write_record(const exporter *d, apr_tensor *t, bool is_scale)
{
    apr_name_match match;

    t->origin_name = t->origin_kept = NULL;
    t->origins = NULL;
    t->origin_chain = (apr_chain){0};
    if (!apr_match_target(d->family, d->to, t->name, t->dtype == APR_MXFP4, d->view->hparams.num_experts > 0, &match)) {
        const bool may_stay = is_scale || (d->to == APR_NAMING_HF ? !apr_begins_with(t->name, "blk.") : apr_begins_with(t->name, "rope_f"));
        return may_stay ? APR_OK : no_name(d, t);
    }
    APR_TRY(check_expert(d, t, &match));
    return match.rule != NULL ? by_rule(d, t, &match) : by_form(d, t, &match);
}

/* The weights have been multiplied, so the multipliers of what is written are 1. A tied head would need a factor of its own. */
static apr_status fold_multipliers(apr_model *view, apr_error *err)
{
    apr_hparams *const h = &view->hparams;

    if (h->tie_word_embeddings && h->logit_scale != h->embedding_multiplier)
        return apr_fail(
            err, APR_E_UNSUPPORTED,
            "%s: converting from Hugging Face's names to ggml's is not supported for a tied head whose multiplier (%g) is not that "
            "of the embeddings (%g): ggml multiplies the weights; keep it as .apr or safetensors",
            view->path, h->logit_scale, h->embedding_multiplier);
    h->embedding_multiplier = h->logit_scale = h->attention_in_multiplier = h->attention_out_multiplier = h->key_multiplier = 0;
    h->ssm_in_multiplier = h->ssm_out_multiplier = h->mlp_gate_multiplier = h->mlp_down_multiplier = 0;
    h->ssm_z_multiplier = h->ssm_x_multiplier = h->ssm_b_multiplier = h->ssm_c_multiplier = h->ssm_dt_multiplier = 0;
    return APR_OK;
}

/* `view` holds canonical tensors, indexed by name. */
static apr_status export_to(apr_model *view, const apr_family *family, apr_naming naming, apr_error *err)
{
    const exporter d = {view, family, naming, err};
    const bool groups = naming == APR_NAMING_HF && view->hparams.tiled_value_heads;

    const apr_tensor *const old = view->tensors;
    const size_t n_old = view->n_tensors;
    APR_TRY(split_wholes(&d));
    APR_TRY(apr_drop_unused_scales(view, old, n_old, err));
    APR_TRY(apr_model_index_names(view, err));
    bool *const is_scale = apr_arena_array(&view->arena, view->n_tensors + 1, sizeof *is_scale);
    if (is_scale == NULL) return apr_no_memory(err, "a table of tensors");
    apr_mark_scales(view->tensors, view->n_tensors, is_scale);
    for (size_t i = 0; i < view->n_tensors; i++) {
        if (groups) APR_TRY(group_value_heads(&d, &view->tensors[i]));
        APR_TRY(write_record(&d, &view->tensors[i], is_scale[i]));
    }
    if (groups) view->hparams.tiled_value_heads = false;
    view->hparams.split_kv_b = view->hparams.split_qkvz = false;
    if (naming == APR_NAMING_GGML && family->gguf.folds_multipliers) APR_TRY(fold_multipliers(view, err));
    return undo_without_scales(view, err);
}

/* ---- tensors that are left out ---- */

/* The file format that uses this naming. */
static apr_format format_of_naming(apr_naming naming) { return naming == APR_NAMING_GGML ? APR_FORMAT_GGUF : APR_FORMAT_SAFETENSORS; }

/* True for tensors that the target does not need: buffers that its readers compute (inv_freq and masks of old checkpoints; rotary divisors if
 * config.json states the scaling), activation scales of FP8 weights, a type that GGUF does not have, and tensors outside the
 * text model. */
static bool is_derived(const apr_model *model, const char *name, apr_naming naming)
{
    if (model->origin.format == format_of_naming(naming)) return false;
    if (apr_is_omitted(model, name)) return true;
    if (apr_is_attention_mask(name)) return apr_part_of(model, name) == APR_PART_BUFFER;
    if (naming == APR_NAMING_HF) return apr_gguf_rope_holds(&model->hparams, name);
    if (apr_ends_with(name, "rotary_emb.inv_freq")) return true;
    return apr_is_activation_scale(name, NULL, 0);
}

/* Rotary divisors that match no known scaling cannot be written in a config.json: its readers would compute something else. */
static apr_status check_divisors(const apr_model *model, apr_error *err)
{
    if (apr_model_find(model, APR_ROPE_FREQS) == NULL || apr_gguf_rope_holds(&model->hparams, APR_ROPE_FREQS)) return APR_OK;
    return apr_fail(err, APR_E_UNSUPPORTED,
                    "%s: the rotary divisors of tensor '" APR_ROPE_FREQS "' match no known scaling, so a config.json cannot state "
                    "them; keep it as .apr or .gguf",
                    model->path);
}

/* The copy of a tied embedding that some readers need, made by aprkit (it has the embedding's provenance) or by aprender. */
static bool is_tied_copy(const apr_model *model, const apr_tensor *tensor)
{
    const apr_tensor *const embedding = apr_model_find(model, "model.embed_tokens.weight");
    if (embedding == NULL || strcmp(tensor->name, "lm_head.weight") != 0) return false;
    if (model->origin.format == APR_FORMAT_NONE) return model->hparams.tie_word_embeddings && apr_same_bytes(tensor, embedding);
    const char *const original_name = embedding->origin_name != NULL ? embedding->origin_name : embedding->name;
    return tensor->origin_name != NULL && strcmp(tensor->origin_name, original_name) == 0;
}

bool apr_is_unused_head(const apr_model *model, const apr_tensor *tensor)
{
    if (!model->hparams.tie_word_embeddings || apr_find_embedding(model) == NULL) return false;
    return apr_begins_with(apr_text_name_of(tensor->name).rest, "lm_head.weight"); /* a prefix, so that its scales match also */
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

/* Drops tensors that the target does not keep. The view is a copy of the canonical model. */
static apr_status drop_tensors(apr_model *view, const apr_model *canonical, apr_naming naming, apr_error *err)
{
    bool *const is_dropped = apr_arena_array(&view->arena, canonical->n_tensors + 1, sizeof *is_dropped);
    size_t n_left_out = 0;

    if (is_dropped == NULL) return apr_no_memory(err, "a table of tensors");
    if (canonical->origin.format != format_of_naming(naming)) find_originals(canonical, is_dropped);
    for (size_t i = 0; i < canonical->n_tensors; i++) {
        const apr_tensor *const tensor = &canonical->tensors[i];
        const bool is_idle = naming == APR_NAMING_GGML && apr_is_unused_head(canonical, tensor);
        n_left_out += canonical->origin.format != format_of_naming(naming) && apr_is_omitted(canonical, tensor->name);
        is_dropped[i] |= is_tied_copy(canonical, tensor) || is_idle || is_derived(canonical, tensor->name, naming);
    }
    if (n_left_out > 0) view->hparams.num_nextn_layers = 0; /* the file must not announce layers that it does not have */
    return apr_model_drop(view, view->tensors, is_dropped, err);
}

/* ---- views ---- */

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
    APR_TRY(export_to(view, family, naming, err));
    APR_TRY(apr_model_index_names(view, err));
    return is_ggml ? apr_gguf_rope_add(view, err) : APR_OK;
}

apr_status apr_translate(apr_model *view, const apr_model *canonical, apr_naming naming, apr_error *err)
{
    const apr_format origin_format = format_of_naming(naming);

    if (naming == APR_NAMING_HF) APR_TRY(check_divisors(canonical, err));
    APR_TRY(apr_view_copy(view, canonical, APR_GGUF_ROPE_TENSORS, err));
    APR_TRY(drop_tensors(view, canonical, naming, err));
    if (canonical->origin.format == origin_format && canonical->naming == APR_NAMING_HF) {
        APR_TRY(apr_model_index_names(view, err));
        APR_TRY(undo_without_scales(view, err));
    } else if (canonical->origin.format != origin_format) APR_TRY(export_tensors(view, canonical, naming, err));
    view->naming = naming;
    return apr_model_index_names(view, err);
}

static void forget_provenance(apr_model *view)
{
    for (size_t i = 0; i < view->n_tensors; i++) {
        apr_tensor *const t = &view->tensors[i];
        t->origin_name = t->origin_kept = NULL;
        t->origins = NULL;
        t->origin_chain = (apr_chain){0};
    }
}

apr_status apr_view_without_provenance(apr_model *view, const apr_model *source, apr_error *err)
{
    APR_TRY(apr_view_copy(view, source, 0, err));
    forget_provenance(view);
    return APR_OK;
}

apr_status apr_view_as_gguf(apr_model *view, apr_model *between, const apr_model *canonical, apr_error *err)
{
    *view = *between = (apr_model){0};
    APR_TRY(apr_translate(between, canonical, APR_NAMING_GGML, err));
    forget_provenance(between); /* otherwise its original would be restored */
    return apr_canonical(view, between, err);
}

/* ---- for comparisons ---- */

/* Drops originals that are kept only to restore another tensor. No tensor of a GGUF has scales. */
static void drop_originals(apr_model *view, bool *is_original)
{
    size_t n = 0;

    find_originals(view, is_original);
    for (size_t i = 0; i < view->n_tensors; i++)
        if (!is_original[i]) view->tensors[n++] = view->tensors[i];
    view->n_tensors = n;
}

/* Only split tensors are joined; experts are not stacked. */
static apr_status write_whole(const exporter *d, apr_tensor *t)
{
    apr_name_match match;

    t->origin_name = t->origin_kept = NULL;
    t->origins = NULL;
    t->origin_chain = (apr_chain){0};
    if (!apr_match_target(d->family, d->to, t->name, false, true, &match) || match.form->use != APR_FORM_WHOLE) return APR_OK;
    return by_form(d, t, &match);
}

apr_status apr_view_as_checkpoint(apr_model *view, apr_error *err)
{
    apr_hparams *const h = &view->hparams;
    const exporter d = {view, apr_family_translated(h->architecture), APR_NAMING_HF, err};
    bool *const is_original = apr_arena_array(&view->arena, view->n_tensors + 1, sizeof *is_original);

    if (is_original == NULL) return apr_no_memory(err, "a table of tensors");
    if (d.family == NULL || view->origin.format != APR_FORMAT_GGUF) return APR_OK;
    drop_originals(view, is_original);
    APR_TRY(apr_model_index_names(view, err));
    APR_TRY(split_wholes(&d));
    for (size_t i = 0; i < view->n_tensors; i++) {
        if (h->tiled_value_heads) APR_TRY(group_value_heads(&d, &view->tensors[i]));
        APR_TRY(write_whole(&d, &view->tensors[i]));
    }
    h->tiled_value_heads = h->split_kv_b = h->split_qkvz = false;
    APR_TRY(apr_provenance_undo(view, err));
    return apr_model_index_names(view, err);
}
