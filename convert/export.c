/* export.c - export: converts canonical tensors to a naming that the model did not come from. */
#include "convert/naming.h"
#include "convert/import_export.h"
#include "convert/provenance.h"
#include "formats/shape/text_part.h"

#include <stdlib.h>
#include <string.h>

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
    size_t *const places = apr_arena_array(&view->arena, n_old + 1, sizeof *places), n = 0;

    if (tensors == NULL || places == NULL) return apr_no_memory(d->err, "a table of tensors");
    for (size_t i = 0; i < n_old; i++) {
        apr_name_match match;
        const apr_tensor_form *const form = apr_match_whole(d->family, d->to, old[i].name, &match);
        places[i] = n;
        if (form == NULL) tensors[n++] = old[i];
        else APR_TRY(split(d, &old[i], &match, form, tensors, &n));
    }
    for (size_t i = 0; i < n; i++)
        if (tensors[i].scale >= old && tensors[i].scale < old + n_old) tensors[i].scale = &tensors[places[tensors[i].scale - old]];
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
    const apr_tensor_rule *const rule = match->rule;
    const bool is_stack = apr_is_stack_of(rule->ggml, rule->hf);
    apr_chain to_ggml, back, chain = {0};

    if (!apr_rule_to_ggml(rule, d->family, &d->view->hparams, d->view->hparams.tiled_value_heads, &to_ggml) ||
        !apr_chain_inverse(&to_ggml, &back))
        return too_long(d, t);
    if (is_stack) chain = apr_chain_of((apr_step){APR_STEP_PICK, {(int32_t)match->expert}});
    if (!apr_chain_extend(&chain, &back)) return too_long(d, t);
    t->origin_name = apr_fill_name(rule->ggml, match, match->expert, &d->view->arena);
    t->origin_chain = chain;
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

/* The form's name in the naming: ggml's name may be in the rule of the whole tensor. */
static const char *form_name(const exporter *d, const apr_tensor_form *form)
{
    const apr_tensor_rule *const rule =
        form->use == APR_FORM_WHOLE && d->to == APR_NAMING_GGML ? apr_rule_of_pattern(d->family, form->name) : NULL;
    return rule != NULL && rule->ggml != NULL ? rule->ggml : form->name;
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
    const bool is_stack = apr_is_stack_of(form->name, form->parts[match->part].name);
    const apr_shape shape = apr_tensor_shape(t);

    APR_TRY(check_others(d, t, match));
    if (!apr_part_chain(form, match->part, &d->view->hparams, &shape, false, is_stack ? match->expert : -1, &t->origin_chain))
        return too_long(d, t);
    if (form->scales != NULL) return record_mxfp4_parts(d, t, match);
    t->origin_name = apr_fill_name(form_name(d, form), match, match->expert, &d->view->arena);
    return t->origin_name != NULL ? APR_OK : apr_no_memory(d->err, "a tensor's name");
}

/* A stack needs every expert of the model. */
static apr_status check_expert(const exporter *d, const apr_tensor *t, const apr_name_match *match)
{
    const int64_t n = d->view->hparams.num_experts;
    const char *const whole = match->rule != NULL ? match->rule->ggml : match->form->name;
    const char *const part = match->rule != NULL ? match->rule->hf : match->form->parts[match->part].name;

    if (!apr_is_stack_of(whole, part) || n == 0) return APR_OK;
    if (match->expert >= n)
        return apr_fail(d->err, APR_E_DAMAGED, "%s: tensor '%s' belongs to an expert beyond the model's %lld", d->view->path, t->name,
                        (long long)n);
    const char *const last = apr_fill_name(part, match, n - 1, &d->view->arena);
    if (last == NULL) return apr_no_memory(d->err, "a tensor's name");
    if (apr_model_find(d->view, last) != NULL) return APR_OK;
    return apr_fail(d->err, APR_E_DAMAGED, "%s: tensor '%s' is missing: the model has %lld experts", d->view->path, last, (long long)n);
}

static apr_status write_record(const exporter *d, apr_tensor *t, bool is_scale)
{
    apr_name_match match;

    t->origin_name = t->origin_kept = NULL;
    t->origins = NULL;
    t->origin_chain = (apr_chain){0};
    if (!apr_match_target(d->family, d->to, t->name, t->dtype == APR_MXFP4, d->view->hparams.num_experts > 0, &match)) {
        const bool may_stay = d->to == APR_NAMING_HF ? strncmp(t->name, "blk.", 4) != 0 : is_scale || strncmp(t->name, "rope_f", 6) == 0;
        return may_stay ? APR_OK : no_name(d, t);
    }
    APR_TRY(check_expert(d, t, &match));
    return match.rule != NULL ? by_rule(d, t, &match) : by_form(d, t, &match);
}

apr_status apr_export_tensors(apr_model *view, const apr_family *family, apr_naming naming, apr_error *err)
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
    for (size_t i = 0; i < view->n_tensors; i++)
        if (apr_table_has(view->tensors, view->n_tensors, view->tensors[i].scale)) is_scale[view->tensors[i].scale - view->tensors] = true;
    for (size_t i = 0; i < view->n_tensors; i++) {
        if (groups) APR_TRY(group_value_heads(&d, &view->tensors[i]));
        APR_TRY(write_record(&d, &view->tensors[i], is_scale[i]));
    }
    if (groups) view->hparams.tiled_value_heads = false;
    view->hparams.split_kv_b = view->hparams.split_qkvz = false;
    return apr_provenance_undo_without_scales(view, err);
}

/* ---- for comparisons ---- */

/* Drops originals that are kept only to restore another tensor. No tensor of a GGUF has scales. */
static void drop_originals(apr_model *view, bool *is_original)
{
    size_t n = 0;
    for (size_t i = 0; i < view->n_tensors; i++) {
        const char *const name = view->tensors[i].origin_kept;
        const apr_tensor *const kept = name != NULL ? apr_model_find(view, name) : NULL;
        if (kept != NULL) is_original[kept - view->tensors] = true;
    }
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

/* ---- tensors that are left out ---- */

bool apr_is_omitted(const apr_model *model, const char *name)
{
    const apr_model_part part = apr_part_of(model, name);
    return part == APR_PART_TOWER || part == APR_PART_MTP;
}
