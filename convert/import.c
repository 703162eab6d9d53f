/* import.c - makes canonical views: tensors are cut and renamed, with their provenance recorded. A tensor that holds several canonical ones
 * (stacked experts, gate and up in one) is cut into views. Touches no weight. */
#include "convert/naming.h"

#include "convert/provenance.h"
#include "formats/base/text.h"
#include "formats/shape/family.h"
#include "formats/shape/meta_names.h"
#include "formats/shape/tensor_names.h"
#include "formats/shape/text_part.h"
#include "formats/tensor/packing.h"
#include "kernels/rows.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_EXPERTS = 65536 };

/* The canonical table under construction. */
typedef struct importer {
    apr_model *view;
    const apr_family *family;
    apr_naming from;
    const apr_tensor *old; /* [n_old] */
    size_t n_old;
    const bool *keep_unchanged; /* [n_old], or NULL */
    apr_tensor *tensors;
    size_t n_tensors;
    apr_error *err;
} importer;

static apr_tensor *append(importer *e, const apr_tensor *from)
{
    apr_tensor *const t = &e->tensors[e->n_tensors++];
    *t = *from;
    return t;
}

static bool has_record(const apr_tensor *t) { return t->origin_name != NULL || t->origins != NULL || t->origin_chain.n_steps > 0; }

/* How many canonical tensors a part of the tensor becomes: one, or one for each matrix of a stack. */
static size_t count_experts(const importer *e, const apr_tensor *t, const char *whole, const char *part)
{
    const bool is_stack = apr_is_stack_of(whole, part) && apr_stack_length(&e->view->hparams, part) > 0 && t->rank > 0;
    const bool is_sane = is_stack && t->n_bytes > 0 && t->dims[0] <= MOST_EXPERTS;
    return is_sane ? (size_t)t->dims[0] : 1;
}

/* Finds the rule or form for a tensor; false: it stays unchanged. */
static bool find_match(const importer *e, const apr_tensor *t, apr_name_match *match)
{
    if (e->keep_unchanged != NULL && apr_table_has(e->old, e->n_old, t) && e->keep_unchanged[t - e->old]) return false;
    return !has_record(t) && apr_match_tensor(e->family, e->from, t->name, match);
}

static size_t count_pieces(const importer *e, const apr_tensor *t)
{
    apr_name_match match;
    size_t n = 0;

    if (e->from == APR_NAMING_META || !find_match(e, t, &match)) return 1;
    if (match.rule != NULL) return e->from == APR_NAMING_GGML ? count_experts(e, t, match.rule->ggml, match.rule->hf) : 1;
    for (int i = 0; i < APR_FORM_PARTS && match.form->parts[i].name != NULL; i++)
        n += count_experts(e, t, match.form->name, match.form->parts[i].name);
    return n;
}

/* A stack must have as many matrices as the model has experts (or AltUp projections). */
static apr_status check_stack(const importer *e, const apr_tensor *t, const char *whole, const char *part)
{
    const int64_t n = apr_stack_length(&e->view->hparams, part);
    const char *const what = strstr(part, "experts") != NULL ? "experts" : "matrices";
    if (!apr_is_stack_of(whole, part)) return APR_OK;
    if (t->rank > 1 && t->dims[0] == n && n > 0 && n <= MOST_EXPERTS && t->n_bytes > 0) return APR_OK;
    return apr_fail(e->err, APR_E_DAMAGED, "%s: tensor '%s' is a stack of %lld %s, but the model has %lld", e->view->path, t->name,
                    t->rank > 0 ? (long long)t->dims[0] : 1LL, what, (long long)n);
}

/* ---- tensors without an exact inverse ---- */

/* Do the steps and then their inverse give the same bits? `stored` is small: norms, decay rates. */
static apr_status round_trips(const apr_tensor *stored, const apr_tensor *made, const apr_chain *back, apr_arena *arena, bool *same,
                              const char *where, apr_error *err)
{
    const int64_t n = apr_tensor_elems(made);
    float *const values = malloc((size_t)n * sizeof *values + 1);
    uint8_t *const bytes = malloc((size_t)n * sizeof(float) + 1);
    apr_tensor there = *made;
    apr_status status = values != NULL && bytes != NULL ? APR_OK : apr_no_memory(err, "a tensor's values");

    *same = false;
    if (status == APR_OK && stored->dtype == APR_F32 && n > 0) {
        apr_read_bytes(made, 0, n, (uint8_t *)values);
        apr_tensor_set_data(&there, (const uint8_t *)values);
        status = apr_tensor_append_steps(&there, back, arena, where, err);
        if (status == APR_OK && apr_tensor_is_composed(&there) && there.n_bytes == stored->n_bytes) {
            apr_read_bytes(&there, 0, n, bytes);
            *same = memcmp(bytes, stored->data, stored->n_bytes) == 0;
        }
    }
    free(values);
    free(bytes);
    return status;
}

/* Keeps the original next to a computed tensor, unless the inverse steps give the same bits. */
static apr_status keep_original(importer *e, const apr_tensor *stored, size_t at)
{
    const apr_chain *const chain = &e->tensors[at].origin_chain;
    apr_chain back;
    bool same = false;

    if (apr_chain_exact(chain) || apr_tensor_is_composed(stored)) return APR_OK; /* a computed source is in no file */
    if (apr_chain_inverse(chain, &back) && apr_tensor_is_composed(&e->tensors[at]))
        APR_TRY(round_trips(stored, &e->tensors[at], &back, &e->view->arena, &same, e->view->path, e->err));
    if (same) return APR_OK;
    e->tensors[at].origin_kept = stored->name;
    (void)append(e, stored);
    return APR_OK;
}

/* ---- one tensor ---- */

/* Renames and applies one more chain: an existing record is extended. */
static apr_status extend(apr_tensor *tensor, const char *name, const apr_chain *chain, apr_arena *arena, const char *where, apr_error *err)
{
    APR_TRY(apr_tensor_append_steps(tensor, chain, arena, where, err));
    if (tensor->origin_name == NULL && tensor->origins == NULL) tensor->origin_name = tensor->name;
    if (!apr_chain_extend(&tensor->origin_chain, chain))
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: tensor '%s' would need too many steps", where, name);
    tensor->name = name;
    return APR_OK;
}

/* Imports one tensor, or a stack of experts, with the rule's steps undone. */
static apr_status import_by_rule(importer *e, const apr_tensor *from, const apr_name_match *match)
{
    const apr_tensor_rule *const rule = match->rule;
    const bool is_stack = apr_is_stack_of(rule->ggml, rule->hf);
    const size_t n = count_experts(e, from, rule->ggml, rule->hf);
    apr_chain chain;

    APR_TRY(check_stack(e, from, rule->ggml, rule->hf));
    for (size_t i = 0; i < n; i++) {
        const char *const name = apr_fill_name(rule->hf, match, (int64_t)i, &e->view->arena);
        if (name == NULL) return apr_no_memory(e->err, "a tensor's name");
        if (!apr_rule_from_ggml(rule, e->family, &e->view->hparams, true, is_stack ? (int64_t)i : -1, &chain))
            return apr_fail(e->err, APR_E_UNSUPPORTED, "%s: tensor '%s' would need too many steps", e->view->path, from->name);
        const size_t at = e->n_tensors;
        APR_TRY(apr_provenance_begin(append(e, from), name, &chain, &e->view->arena, e->view->path, e->err));
        APR_TRY(keep_original(e, from, at));
    }
    return APR_OK;
}

static apr_status shape_mismatch(const importer *e, const apr_tensor *t, const char *part)
{
    char dims[128];
    return apr_fail(e->err, APR_E_DAMAGED, "%s: tensor '%s' %s does not have the shape to hold '%s'", e->view->path, t->name,
                    apr_dims_text(t, dims, sizeof dims), part);
}

/* Cuts one piece out of a tensor. MXFP4 is already packed here, so the form's `scales` is cleared. */
static apr_status import_piece(importer *e, const apr_tensor *whole, const apr_name_match *match, int part, int64_t expert)
{
    const apr_tensor_form *const form = match->form;
    const apr_shape shape = apr_tensor_shape(whole);
    apr_tensor_form plain = *form;
    apr_chain chain;

    plain.scales = NULL;
    const char *const name = apr_fill_name(form->parts[part].name, match, expert, &e->view->arena);
    if (name == NULL) return apr_no_memory(e->err, "a tensor's name");
    if (!apr_part_chain(&plain, part, &e->view->hparams, &shape, true, expert, &chain))
        return shape_mismatch(e, whole, form->parts[part].name);
    return extend(append(e, whole), name, &chain, &e->view->arena, e->view->path, e->err);
}

/* The form for the order that the shape shows. Without a sign of it (both axes are hidden_size) nothing is guessed. */
static apr_status settle_order(const importer *e, const apr_tensor *whole, apr_name_match *match)
{
    const apr_tensor_form *const form = match->form;
    const apr_shape shape = apr_tensor_shape(whole);
    const int64_t hidden = e->view->hparams.hidden_size;
    char dims[128];

    if (form->transposed == NULL || shape.rank != 3) return APR_OK;
    const bool fits = shape.dims[2 - form->hidden_axis] == hidden, fits_transposed = shape.dims[1 + form->hidden_axis] == hidden;
    if (fits && fits_transposed)
        return apr_fail(e->err, APR_E_UNSUPPORTED,
                        "%s: tensor '%s' %s: both axes have hidden_size elements, so that its shape does not tell whether the experts are"
                        " transposed",
                        e->view->path, whole->name, apr_dims_text(whole, dims, sizeof dims));
    if (fits_transposed) match->form = form->transposed;
    return APR_OK;
}

static apr_status import_pieces(importer *e, const apr_tensor *whole, const apr_name_match *stated)
{
    apr_name_match settled = *stated;
    const apr_name_match *const match = &settled;
    APR_TRY(settle_order(e, whole, &settled));
    const apr_tensor_form *const form = match->form;

    for (int part = 0; part < APR_FORM_PARTS && form->parts[part].name != NULL; part++) {
        const bool is_stack = apr_is_stack_of(form->name, form->parts[part].name);
        const size_t n = count_experts(e, whole, form->name, form->parts[part].name);
        APR_TRY(check_stack(e, whole, form->name, form->parts[part].name));
        for (size_t i = 0; i < n; i++) APR_TRY(import_piece(e, whole, match, part, is_stack ? (int64_t)i : -1));
    }
    return APR_OK;
}

/* Joins MXFP4's nibbles and scales, stored as two tensors, into blocks. */
static apr_status pack(importer *e, const apr_tensor_form *form, const apr_tensor *blocks, const apr_tensor *scales, apr_tensor *whole)
{
    const apr_chain column = apr_chain_of((apr_step){.kind = APR_STEP_UNSQUEEZE}), join = apr_whole_chain(form);
    apr_arena *const arena = &e->view->arena;
    apr_tensor *const parts = apr_arena_array(arena, 2, sizeof *parts);

    if (parts == NULL) return apr_no_memory(e->err, "the parts of a tensor");
    parts[0] = *scales;
    parts[1] = *blocks;
    APR_TRY(apr_provenance_begin(&parts[0], scales->name, &column, arena, e->view->path, e->err));
    const apr_tensor *const both[] = {&parts[0], &parts[1]};
    *whole = (apr_tensor){.name = blocks->name};
    return apr_provenance_join(whole, both, 2, &join, arena, e->view->path, e->err);
}

/* Finds the tensor that the pattern names for the same layer, under any prefix; NULL: none. */
static apr_status find_companion(const importer *e, const char *pattern, const apr_name_match *match, const apr_tensor **found)
{
    const char *const name = apr_fill_name(pattern, match, match->expert, &e->view->arena);
    if (name == NULL) return apr_no_memory(e->err, "a tensor's name");
    *found = apr_find_text_tensor(e->view, name);
    return APR_OK;
}

static apr_status import_by_form(importer *e, const apr_tensor *from, const apr_name_match *match)
{
    const apr_tensor_form *const form = match->form;
    const apr_tensor *blocks = NULL, *scales = NULL;
    apr_tensor whole;

    if (form->scales == NULL) return import_pieces(e, from, match);
    APR_TRY(find_companion(e, form->name, match, &blocks));
    APR_TRY(find_companion(e, form->scales, match, &scales));
    if (blocks == NULL || scales == NULL)
        return apr_fail(e->err, APR_E_DAMAGED, "%s: tensor '%s': %s are missing", e->view->path, from->name,
                        blocks == NULL ? "the blocks" : "the scales");
    if (from == scales) return APR_OK; /* handled with the blocks */
    APR_TRY(pack(e, form, blocks, scales, &whole));
    return import_pieces(e, &whole, match);
}

static apr_status import_from_meta(importer *e, const apr_tensor *from)
{
    apr_chain chain;
    const char *const name = apr_meta_to_canonical(from->name, &e->view->hparams, &chain, &e->view->arena);

    if (name == NULL) return apr_no_memory(e->err, "a tensor's name");
    if (strcmp(name, from->name) == 0) return (void)append(e, from), APR_OK;
    return apr_provenance_begin(append(e, from), name, &chain, &e->view->arena, e->view->path, e->err);
}

/* A tensor without a rule belongs to the text model if its name says so: scales of a matrix, multi-token prediction layers. */
static bool is_other_text(const importer *e, const apr_tensor *t)
{
    const bool stays = e->keep_unchanged != NULL && apr_table_has(e->old, e->n_old, t) && e->keep_unchanged[t - e->old];
    const apr_model_part part = apr_part_of(e->view, t->name);
    return e->from == APR_NAMING_HF && !stays && !has_record(t) && (part == APR_PART_TEXT || part == APR_PART_MTP);
}

/* The missing prefix ("model.") of a layer tensor in a model saved without its head, for names without a rule. */
static const char *root_of_layer(const importer *e, const char *name)
{
    if (!apr_begins_with(name, "layers.")) return "";
    return apr_family_rule(e->family, "backbone.embeddings.weight") != NULL ? "backbone." : "model.";
}

static apr_status import_one(importer *e, const apr_tensor *from)
{
    apr_name_match match = {.root = ""};

    if (e->from == APR_NAMING_META) return import_from_meta(e, from);
    if (!find_match(e, from, &match) && !is_other_text(e, from)) return (void)append(e, from), APR_OK;
    if (match.form != NULL) return import_by_form(e, from, &match);
    if (e->from == APR_NAMING_GGML) return import_by_rule(e, from, &match);
    apr_tensor *const t = append(e, from);
    const apr_chain nothing = {0};
    const apr_text_name text = apr_text_name_of(from->name);
    const char *const root = match.root[0] != '\0' ? match.root : text.root[0] != '\0' ? text.root : root_of_layer(e, from->name);
    if (text.rest == from->name && root[0] == '\0') return APR_OK;
    const char *const name = apr_arena_print(&e->view->arena, "%s%s", root, text.rest);
    if (name == NULL) return apr_no_memory(e->err, "a tensor's name");
    return apr_provenance_begin(t, name, &nothing, &e->view->arena, e->view->path, e->err);
}

/* ---- all tensors ---- */

/* Records what the source's naming stores differently from Hugging Face and what stays so. */
static void note_dialect(apr_model *view, const apr_family *family)
{
    apr_hparams *const h = &view->hparams;
    h->tiled_value_heads |= family->tiles_value_heads && h->linear_num_value_heads > h->linear_num_key_heads;
    for (size_t i = 0; i < view->n_tensors; i++) {
        const char *const name = view->tensors[i].name;
        h->split_kv_b |= strstr(name, ".self_attn.k_b_proj.") != NULL;
        h->split_qkvz |= family->n_forms > 0 && !family->tiles_value_heads && strstr(name, ".linear_attn.in_proj_qkv.") != NULL;
    }
}

/* Some checkpoints of tied models store the matrix only as the output head. */
static apr_status name_tied_embedding(importer *e)
{
    static const char embedding[] = "model.embed_tokens.weight", head[] = "lm_head.weight";
    apr_tensor *only = NULL;

    if (!e->view->hparams.tie_word_embeddings || apr_family_rule(e->family, embedding) == NULL) return APR_OK;
    for (size_t i = 0; i < e->n_tensors; i++) {
        if (strcmp(e->tensors[i].name, embedding) == 0) return APR_OK;
        if (strcmp(e->tensors[i].name, head) == 0) only = &e->tensors[i];
    }
    const apr_chain nothing = {0};
    return only != NULL ? extend(only, embedding, &nothing, &e->view->arena, e->view->path, e->err) : APR_OK;
}

/* `view` is a copy of `source` by apr_view_copy; its tensors become canonical, its names are not indexed yet. Value heads keep
 * their order, and tensors that ggml splits stay split; the view's hyperparameters record that. keep_unchanged: NULL, or for each
 * tensor of the view whether it is only copied. */
static apr_status import_all(apr_model *view, const apr_model *source, const apr_family *family, const bool *keep_unchanged, apr_error *err)
{
    importer e = {.view = view,
                  .family = family,
                  .from = source->naming,
                  .old = view->tensors,
                  .n_old = view->n_tensors,
                  .keep_unchanged = keep_unchanged,
                  .err = err};
    size_t n = e.n_old + 1; /* capacity for kept originals also */
    apr_tensor **const moved = apr_arena_array(&view->arena, e.n_old + 1, sizeof *moved);

    for (size_t i = 0; i < e.n_old; i++) n += count_pieces(&e, &e.old[i]);
    e.tensors = apr_arena_array(&view->arena, n, sizeof *e.tensors);
    if (e.tensors == NULL || moved == NULL) return apr_no_memory(err, "a table of tensors");
    for (size_t i = 0; i < e.n_old; i++) {
        moved[i] = &e.tensors[e.n_tensors];
        APR_TRY(import_one(&e, &e.old[i]));
    }
    APR_TRY(name_tied_embedding(&e));
    apr_move_scales(e.tensors, e.n_tensors, e.old, e.n_old, moved);
    view->tensors = e.tensors;
    view->n_tensors = e.n_tensors;
    if (source->naming == APR_NAMING_GGML) note_dialect(view, family);
    return APR_OK;
}

/* ---- views ---- */

apr_status apr_view_copy(apr_model *view, const apr_model *source, size_t n_extra, apr_error *err)
{
    *view = *source;
    view->arena = (apr_arena){0};
    view->maps = NULL;
    view->n_maps = 0;
    view->index = NULL;
    view->tensors = apr_arena_array(&view->arena, source->n_tensors + n_extra + 1, sizeof *view->tensors);
    if (view->tensors == NULL) return apr_no_memory(err, "a table of tensors");
    for (size_t i = 0; i < source->n_tensors; i++) view->tensors[i] = source->tensors[i];
    apr_move_scales(view->tensors, view->n_tensors, source->tensors, source->n_tensors, NULL);
    return apr_model_index_names(view, err);
}

/* Converts to canonical names and pieces by the family's table, except the marked tensors. */
static apr_status import_tensors(apr_model *view, const apr_model *source, const bool *keep_unchanged, apr_error *err)
{
    const apr_family *const family = apr_family_translated(source->hparams.architecture);

    if (family == NULL) return APR_OK;
    const apr_tensor *const old = view->tensors;
    const size_t n_old = view->n_tensors;
    APR_TRY(import_all(view, source, family, keep_unchanged, err));
    APR_TRY(apr_drop_unused_scales(view, old, n_old, err));
    view->naming = APR_NAMING_HF;
    return apr_model_index_names(view, err);
}

/* Marks all parts of packed matrices. */
static void mark_parts(const apr_model *source, bool *is_part)
{
    const apr_tensor *part;
    for (size_t i = 0; i < source->n_packings; i++)
        for (size_t j = 0; (part = apr_tensor_source_at(&source->packings[i], j)) != NULL; j++) is_part[part - source->tensors] = true;
}

/* In a copy of the source, packed matrices replace their codes; the other parts go. */
static apr_status join_packed(apr_model *view, const apr_model *source, apr_error *err)
{
    bool *const is_dropped = apr_arena_array(&view->arena, source->n_tensors + 1, sizeof *is_dropped);

    if (is_dropped == NULL) return apr_no_memory(err, "a table of tensors");
    mark_parts(source, is_dropped);
    for (size_t i = 0; i < source->n_packings; i++) {
        const ptrdiff_t at = source->packings[i].packing->codes - source->tensors;
        view->tensors[at] = source->packings[i];
        is_dropped[at] = false;
    }
    APR_TRY(apr_model_drop(view, view->tensors, is_dropped, err));
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
    mark_parts(source, stays);
    for (size_t i = 0; i < source->n_tensors; i++) stays[i] |= source->tensors[i].scale != NULL && is_cut(source, &source->tensors[i]);
    view->packings = NULL; /* their parts stay in the table as separate tensors */
    view->n_packings = 0;
    return import_tensors(view, source, stays, err);
}
