/* convert.c - plans a conversion: view, recipe, layout. Reads no weights, except small ones that are computed. */
#include "convert/convert.h"

#include "convert/ggml_location.h"
#include "convert/naming.h"
#include "convert/packed.h"
#include "formats/base/text.h"
#include "formats/shape/text_part.h"
#include "formats/tensor/composed.h"
#include "formats/tensor/kv_copy.h"
#include "formats/tensor/library_type.h"
#include "formats/tensor/packed_weights.h"
#include "kernels/rows.h"
#include "kernels/transcode.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the view ---- */

static apr_recipe_limits limits_of(const apr_conversion *c)
{
    const apr_container *const to = c->container;
    const bool keeps_vectors = c->view.origin.format == c->options.format;
    return (apr_recipe_limits){
        .allows = to->holds, .container = to->name, .vectors_f32 = to->vectors_f32 && !keeps_vectors, .plain_fallback = to->few_types};
}

/* aprender and realizar do not support tied heads: the embedding is written again as lm_head.weight, in place of an unused head. */
static apr_status add_tied_head(apr_model *view, apr_error *err)
{
    const apr_tensor *const embedding = apr_model_find(view, "model.embed_tokens.weight"), *const own =
                                                                                               apr_model_find(view, "lm_head.weight");
    if (embedding == NULL || (own != NULL && !view->hparams.tie_word_embeddings)) return APR_OK;
    apr_tensor *const head = own != NULL ? &view->tensors[own - view->tensors] : &view->tensors[view->n_tensors++];
    *head = *embedding;
    head->name = "lm_head.weight";
    head->origin_name =
        embedding->origin_name != NULL ? embedding->origin_name : embedding->name; /* so that restoring recognizes the copy */
    return apr_model_index_names(view, err);
}

/* The layout of packed weights that aprkit cannot read, or NULL. A view in parts also shows readable packings, so it is not used here. */
static apr_status find_unread(const apr_model *source, const apr_model *canonical, const char **layout, apr_error *err)
{
    apr_model values;

    *layout = NULL;
    if (source->n_packings == 0) {
        (void)apr_find_packed(canonical, layout);
        return APR_OK;
    }
    const apr_status status = apr_canonical(&values, source, err);
    if (status == APR_OK) (void)apr_find_packed(&values, layout);
    apr_model_close(&values);
    return status;
}

/* Packed matrices stay in their several tensors if the output can hold them, no type is asked for, and no adapter is merged. */
static bool keeps_parts(const apr_convert_options *options, const apr_container *to)
{
    return to->no_packed == NULL && options->recipe.mixture == NULL && options->recipe.n_overrides == 0 && options->n_adapters == 0;
}

static apr_status name_for(const apr_container *to, apr_model *view, const apr_model *canonical, apr_error *err)
{
    if (to->renames) return apr_translate(view, canonical, to->naming, err);
    APR_TRY(apr_view_copy(view, canonical, 1, err));
    return to->tied_head ? add_tied_head(view, err) : APR_OK;
}

/* `packed`: the layout of packed weights that aprkit cannot read, or NULL. */
static apr_status make_view(apr_conversion *c, const char **packed, apr_error *err)
{
    const apr_convert_options *const options = &c->options;
    const apr_container *const to = c->container;
    apr_model canonical;
    apr_status status = (keeps_parts(options, to) ? apr_canonical_packed : apr_canonical)(&canonical, c->source, err);

    if (status == APR_OK) status = apr_merge_adapters(&canonical, options->adapters, options->n_adapters, err);
    if (status == APR_OK) status = find_unread(c->source, &canonical, packed, err);
    if (status == APR_OK && to->no_packed != NULL) status = apr_refuse_packed(&canonical, to->no_packed, err);
    if (status == APR_OK) status = name_for(to, &c->view, &canonical, err);
    if (status != APR_OK) {
        apr_model_close(&canonical);
        return status;
    }
    /* names and provenance live in the canonical view's arena: move it to the view */
    apr_arena_adopt(&c->view.arena, &canonical.arena);
    return APR_OK;
}

/* ---- computed values ---- */

/* Counts the values of a tensor that are not finite; *first is the index of the first one. `values` has room for AT_ONCE. */
enum { AT_ONCE = 1 << 18 };
static int64_t count_not_finite(const apr_tensor *t, float *values, int64_t *first)
{
    const int64_t n = apr_tensor_elems(t);
    int64_t count = 0;

    for (int64_t at = 0; at < n; at += AT_ONCE) {
        const int64_t now = n - at < AT_ONCE ? n - at : AT_ONCE;
        apr_decode_elements(t, at, now, values);
        for (int64_t i = 0; i < now; i++)
            if (!isfinite(values[i]) && count++ == 0) *first = at + i;
    }
    return count;
}

static apr_status check_finite(const apr_tensor *t, const char *path, apr_error *err)
{
    const apr_composed *const m = t->composed;
    int64_t first = 0, ignored, n_before = 0;
    float *const values = malloc(AT_ONCE * sizeof *values);

    if (values == NULL) return apr_no_memory(err, "a tensor's values");
    const int64_t n_after = count_not_finite(t, values, &first);
    for (size_t i = 0; i < m->n_parts && n_after > 0; i++) n_before += count_not_finite(m->parts[i], values, &ignored);
    free(values);
    if (n_after <= n_before) return APR_OK;
    return apr_fail(err, APR_E_DAMAGED,
                    "%s: tensor '%s' is computed from '%s', which holds values that have no finite result (the first at index %lld); "
                    "the file it comes from is damaged",
                    path, t->name, m->parts[0]->name, (long long)first);
}

static bool has_data(const apr_composed *m)
{
    for (size_t i = 0; i < m->n_parts; i++)
        if (m->parts[i]->data == NULL) return false;
    return m->n_parts > 0;
}

/* APR_E_DAMAGED if a computed tensor of the view (such as the logarithm of a decay rate) has more values that are not finite than its inputs
 * have. Norms and decay rates are small; matrices that are multiplied are read once more. */
static apr_status check_computed(const apr_model *view, apr_error *err)
{
    for (size_t i = 0; i < view->n_tensors; i++) {
        const apr_composed *const m = view->tensors[i].composed;
        if (m != NULL && m->computes && m->merge == NULL && has_data(m)) APR_TRY(check_finite(&view->tensors[i], view->path, err));
    }
    return APR_OK;
}

/* ---- the layout ---- */

/* Adds a tensor to the layout, and the item that writes it. */
static apr_tensor *add_tensor(apr_conversion *c, const apr_tensor *tensor, const apr_pipe_item *item)
{
    apr_tensor *const t = &c->layout.tensors[c->layout.n_tensors];
    *t = *tensor;
    c->items[c->layout.n_tensors++] = *item;
    return t;
}

/* Adds the tensor of a weight's scales, each of which is for so many rows. */
static apr_status add_scales(apr_conversion *c, apr_tensor *weight, const apr_tensor *scales, int64_t rows, const apr_pipe_item *item,
                             apr_error *err)
{
    if (scales->name == NULL) return apr_no_memory(err, "a tensor's name");
    apr_tensor *const added = add_tensor(c, scales, item);
    weight->scale = added;
    weight->scale_rows = rows;
    weight->scale_columns = apr_tensor_columns(weight);
    return apr_tensor_size(added, c->view.path, err);
}

/* FP8 weights get a scale for each row: the weight's shape with one column, which for stacked experts is [experts, rows, 1]. */
static apr_status add_row_scales(apr_conversion *c, apr_tensor *weight, const apr_tensor *from, apr_error *err)
{
    apr_tensor scales = {.name = apr_arena_print(&c->layout.arena, "%s_scale", weight->name), .dtype = APR_F32, .rank = 2, .dims = {1, 1}};

    if (weight->rank > 1) {
        scales.rank = weight->rank;
        memcpy(scales.dims, weight->dims, sizeof weight->dims);
        scales.dims[weight->rank - 1] = 1;
    }
    return add_scales(c, weight, &scales, 1, &(apr_pipe_item){.from = from, .to = APR_F32, .is_scales = true}, err);
}

/* The global scale of "X.weight" is "X.scale", as in llama.cpp: one number, or one for each expert. */
static apr_status add_global_scale(apr_conversion *c, apr_tensor *weight, const apr_tensor *from, apr_error *err)
{
    const size_t stem = apr_stem_of(weight->name, ".weight");
    const char *const name = apr_arena_print(&c->layout.arena, "%.*s.scale", (int)(stem > 0 ? stem : strlen(weight->name)), weight->name);
    const apr_tensor scale = {.name = name, .dtype = APR_F32, .rank = 1, .dims = {apr_transcode_matrices(from)}};

    return add_scales(c, weight, &scale, apr_tensor_matrix_rows(weight), &(apr_pipe_item){.from = from, .to = APR_F32, .is_commons = true},
                      err);
}

/* A recipe line becomes one tensor of the layout, or two; a packed one, as many as its layout has. */
static apr_status lay_out_line(apr_conversion *c, const apr_recipe_line *line, apr_tensor **moved, apr_error *err)
{
    const apr_tensor *const from = line->tensor;
    const bool changed = line->to != from->dtype;

    if (line->is_packed) return apr_lay_out_packed(c, line, err);
    apr_tensor *const t = add_tensor(c, from,
                                     &(apr_pipe_item){.from = from,
                                                      .to = line->to,
                                                      .same_numbers = line->same_numbers,
                                                      .counts_cost = line->decoded,
                                                      .library = apr_reference_type(&c->view, from)});

    moved[from - c->view.tensors] = t;
    t->dtype = line->to;
    apr_tensor_set_data(t, NULL);
    APR_TRY(apr_tensor_size(t, c->view.path, err));
    c->layout.origin.requantized |= changed || apr_tensor_is_packed(from);
    if (!changed) return APR_OK;
    t->scale = NULL;
    if (line->same_numbers && apr_transcode_has_global_scales(from, line->to)) return add_global_scale(c, t, from, err);
    if (apr_dtypes[line->to].scales != APR_SCALES_SEPARATE || apr_tensor_elems(t) == 0) return APR_OK; /* an empty tensor has no scales */
    return add_row_scales(c, t, from, err);
}

static apr_status lay_out(apr_conversion *c, apr_error *err)
{
    apr_model *const layout = &c->layout;
    apr_arena *const arena = &layout->arena;
    const apr_recipe *const recipe = &c->recipe;

    *layout = c->view;
    layout->arena = (apr_arena){0};
    layout->index = NULL;
    layout->n_tensors = 0;
    const size_t n_most = (recipe->packed != NULL ? APR_LAYOUT_PARTS : 2) * recipe->n_lines + 1;
    layout->tensors = apr_arena_array(arena, n_most, sizeof *layout->tensors);
    c->items = apr_arena_array(arena, n_most, sizeof *c->items);
    apr_tensor **const moved = apr_arena_array(arena, c->view.n_tensors + 1, sizeof *moved); /* view -> layout, for scales that are kept */
    if (layout->tensors == NULL || c->items == NULL || moved == NULL) return apr_no_memory(err, "the layout of the output");
    for (size_t i = 0; i < recipe->n_lines; i++) APR_TRY(lay_out_line(c, &recipe->lines[i], moved, err));
    apr_move_scales(layout->tensors, layout->n_tensors, c->view.tensors, c->view.n_tensors, moved); /* of FP8 that is kept unchanged */
    return apr_model_index_names(layout, err);
}

/* ---- importance ---- */

/* Writes the means of matrix i of the entry, sums divided by count, in the tensor's order; false: no token came. */
static bool take_means(const apr_imatrix_entry *e, int64_t i, const int64_t *order, int64_t n, float *to)
{
    const bool has_matrices = e->n_columns == n; /* a .dat has all matrices in one row, and one count */
    const double count = e->counts[has_matrices ? i : 0];

    if (!(count > 0.0)) return false;
    for (int64_t j = 0; j < n; j++) to[order[j]] = (float)(e->sums[i * n + j] / count);
    return true;
}

static apr_status check_size(const apr_imatrix *m, const apr_imatrix_entry *e, const apr_tensor *t, int64_t n_matrices, bool is_stack,
                             int64_t matrix, apr_error *err)
{
    const int64_t n = apr_tensor_columns(t), n_values = e->n_matrices * e->n_columns;
    const bool has_columns = e->n_columns == n || (m->is_legacy && n > 0 && n_values % n == 0);
    const bool fits = has_columns && (is_stack ? matrix < n_values / n : n_values == n_matrices * n);

    if (fits) return APR_OK;
    return apr_fail(
        err, APR_E_DAMAGED,
        "%s: '%.200s' has %lld x %lld numbers in the imatrix, but tensor '%.200s' has %lld columns in %lld matri%s: it was made "
        "from another model",
        m->path, e->name, (long long)e->n_matrices, (long long)e->n_columns, t->name, (long long)n, (long long)n_matrices,
        n_matrices == 1 ? "x" : "ces");
}

apr_status apr_importance_of(apr_importance *importance, const apr_imatrix *m, const apr_model *view, const apr_tensor *t, apr_arena *arena,
                             apr_error *err)
{
    const int64_t n = apr_tensor_columns(t), n_matrices = t->rank > 2 ? apr_tensor_rows(t) / t->dims[t->rank - 2] : 1;
    apr_ggml_location place;

    *importance = (apr_importance){.n_matrices = n_matrices};
    if (t->rank < 2 || apr_tensor_elems(t) == 0) return APR_OK;
    APR_TRY(apr_ggml_location_of(&place, view, t->name, arena, err));
    const apr_imatrix_entry *const e = place.name != NULL ? apr_imatrix_find(m, place.name) : NULL;
    if (e == NULL) return APR_OK;
    APR_TRY(check_size(m, e, t, n_matrices, place.matrix >= 0, place.matrix, err));
    float *const columns = apr_arena_array(arena, (size_t)(n_matrices * n), sizeof *columns);
    int64_t *const order = malloc((size_t)n * sizeof *order);
    apr_status status = columns != NULL && order != NULL ? apr_ggml_columns(&place, n, order, err) : apr_no_memory(err, "importances");
    for (int64_t i = 0; i < n_matrices && status == APR_OK; i++)
        importance->n_unseen += !take_means(e, place.matrix >= 0 ? place.matrix : i, order, n, columns + i * n);
    free(order);
    importance->columns = columns;
    return status;
}

bool apr_item_uses_importance(const apr_pipe_item *item)
{
    const bool is_encoded = !item->is_scales && !item->is_commons && !item->same_numbers && item->to != item->from->dtype;
    if (item->packed != NULL) return !item->is_scales && !item->packed->same_codes && item->packed->matrix.packing.bits == 4;
    return is_encoded && apr_host_codecs()[item->to].encode_by != NULL;
}

/* Writes the same keys as llama-quantize. */
static apr_status note_imatrix(apr_model *layout, const apr_imatrix *m, apr_error *err)
{
    apr_kv_list own = {.arena = &layout->arena};
    const char *const file = apr_arena_print(&layout->arena, "%s", m->path);
    const char *const text = apr_arena_print(&layout->arena, "%s", m->n_datasets > 0 ? m->datasets[0] : "");

    if (file == NULL || text == NULL) return apr_no_memory(err, "the name of an imatrix");
    APR_TRY(apr_kv_append_all(&own, &layout->kv, err));
    APR_TRY(apr_kv_set_string(&own, "quantize.imatrix.file", apr_str_of(file), err));
    if (m->n_datasets > 0) APR_TRY(apr_kv_set_string(&own, "quantize.imatrix.dataset", apr_str_of(text), err));
    APR_TRY(apr_kv_set_int(&own, "quantize.imatrix.entries_count", APR_KV_U32, (int64_t)m->n_entries, err));
    if (m->chunk_count > 0) APR_TRY(apr_kv_set_int(&own, "quantize.imatrix.chunks_count", APR_KV_U32, m->chunk_count, err));
    layout->kv = own;
    return APR_OK;
}

apr_status apr_conversion_note_text(apr_conversion *c, const char *name, uint32_t crc32, int64_t n_tokens, bool loss_weighted,
                                    apr_error *err)
{
    apr_model *const layout = &c->layout;
    apr_kv_list own = {.arena = &layout->arena};
    const char *const text = apr_arena_print(&layout->arena, "%s", name), *const sum = apr_arena_print(&layout->arena, "%08" PRIx32, crc32);

    if (text == NULL || sum == NULL) return apr_no_memory(err, "the name of a text");
    APR_TRY(apr_kv_append_all(&own, &layout->kv, err));
    APR_TRY(apr_kv_set_string(&own, "quantize.calibration.text", apr_str_of(text), err));
    APR_TRY(apr_kv_set_string(&own, "quantize.calibration.crc32", apr_str_of(sum), err));
    APR_TRY(apr_kv_set_int(&own, "quantize.calibration.tokens", APR_KV_U64, n_tokens, err));
    if (loss_weighted) APR_TRY(apr_kv_set_bool(&own, "quantize.calibration.loss_weighted", true, err));
    layout->kv = own;
    return APR_OK;
}

/* Sets the importance of every item that uses it. An imatrix that covers none of them belongs to another model. */
static apr_status find_importance(apr_conversion *c, apr_error *err)
{
    const apr_imatrix *const m = c->options.imatrix;

    for (size_t i = 0; i < c->layout.n_tensors; i++) {
        apr_pipe_item *const item = &c->items[i];
        apr_importance found;
        if (!apr_item_uses_importance(item)) continue;
        APR_TRY(apr_importance_of(&found, m, &c->view, item->from, &c->layout.arena, err));
        item->importance = found.columns;
        c->cover.n_covered += found.columns != NULL;
        c->cover.n_bare += found.columns == NULL;
        c->cover.n_unseen += found.n_unseen;
    }
    if (c->cover.n_covered == 0 && c->cover.n_bare > 0)
        return apr_fail(err, APR_E_DAMAGED, "%s has no entry for any matrix that is quantized here: it was made from another model",
                        m->path);
    return note_imatrix(&c->layout, m, err);
}

/* config.json's name for a plain type; NULL for others. */
static const char *torch_name(apr_dtype dtype)
{
    return dtype == APR_F32 ? "float32" : dtype == APR_F16 ? "float16" : dtype == APR_BF16 ? "bfloat16" : NULL;
}

/* The new type of most plain weights, or NULL: then config.json keeps its torch_dtype. */
static const char *new_torch_dtype(const apr_conversion *c)
{
    int64_t elems[APR_DTYPE_COUNT] = {0};
    for (size_t i = 0; i < c->recipe.n_lines; i++) {
        const apr_recipe_line *const line = &c->recipe.lines[i];
        if (line->is_packed) continue;
        if (line->to != line->tensor->dtype || apr_tensor_is_packed(line->tensor)) elems[line->to] += apr_tensor_elems(line->tensor);
    }
    return torch_name(apr_dtype_most_common(elems));
}

static apr_status restate_types(apr_conversion *c, apr_error *err)
{
    bool makes_fp8 = false;
    if (c->recipe.packed != NULL) return apr_restate_packed(c, new_torch_dtype(c), err);
    for (size_t i = 0; i < c->layout.n_tensors; i++) makes_fp8 |= c->items[i].is_scales;
    return apr_update_types(&c->layout, &c->view, makes_fp8, new_torch_dtype(c), err);
}

/* ---- notes ---- */

/* Notes packed weights that are copied unchanged, and activation scales that the output does not have. */
static apr_status note_unread(apr_conversion *c, const char *packed, const apr_model *source, apr_error *err)
{
    const char *first = NULL;
    size_t n = 0;

    if (packed != NULL)
        APR_TRY(apr_loss_add(&c->losses, APR_NOTE, err, "copied unchanged: %s weights, which aprkit cannot read yet", packed));
    for (size_t i = 0; i < source->n_tensors; i++) {
        const char *const name = source->tensors[i].name;
        if (!apr_is_activation_scale(name, NULL, 0) || apr_model_find(&c->layout, name) != NULL) continue;
        if (n++ == 0) first = name;
    }
    if (n == 0) return APR_OK;
    return apr_loss_add(&c->losses, APR_NOTE, err, "left out: %zu activation scale%s (%s%s), used only by FP8 products", n,
                        n == 1 ? "" : "s", first, n == 1 ? "" : ", ...");
}

static apr_status note_adapters(apr_conversion *c, const apr_convert_options *options, apr_error *err)
{
    for (size_t i = 0; i < options->n_adapters; i++) {
        const apr_adapter *const adapter = options->adapters[i].adapter;
        if (adapter->unknown_fields != NULL)
            APR_TRY(apr_loss_add(&c->losses, APR_NOTE, err, "%s has unknown fields, which are ignored: %s", adapter->path,
                                 adapter->unknown_fields));
        if (adapter->tokenizer_files != NULL)
            APR_TRY(apr_loss_add(&c->losses, APR_NOTE, err, "%s has its own tokenizer (%s), which is not used; the model's is kept",
                                 adapter->path, adapter->tokenizer_files));
    }
    return APR_OK;
}

/* The tensors contradict config.json. */
static apr_status note_own_head(apr_conversion *c, const apr_model *source, apr_error *err)
{
    const apr_tensor *const head = source->overrules_tie ? apr_find_head(source) : NULL;

    if (head == NULL) return APR_OK;
    return apr_loss_add(&c->losses, APR_NOTE, err, "'%s' is used: it differs from the embedding, to which config.json ties the output",
                        head->name);
}

static apr_status note_idle_head(apr_conversion *c, const apr_model *source, apr_error *err)
{
    const apr_tensor *const head = apr_find_head(source);
    const bool drops = (c->container->renames && c->container->naming == APR_NAMING_GGML) || c->container->tied_head;

    if (!drops || head == NULL || source->origin.format != APR_FORMAT_SAFETENSORS || !apr_is_unused_head(source, head)) return APR_OK;
    return apr_loss_add(&c->losses, APR_NOTE, err, "'%s' is not copied: it is the embedding, to which config.json ties the output",
                        head->name);
}

static apr_status note_left_out(apr_conversion *c, const apr_model *source, apr_error *err)
{
    const char *first = NULL;
    size_t n = 0;

    for (size_t i = 0; i < source->n_tensors; i++) {
        const char *const name = source->tensors[i].name;
        if (!apr_is_omitted(source, name) || c->layout.naming == source->naming || !c->container->renames) continue;
        if (n++ == 0) first = name;
    }
    if (n == 0) return APR_OK;
    return apr_loss_add(&c->losses, APR_NOTE, err,
                        "left out: %zu tensor%s that text models do not run (%s%s): image or audio towers, multi-token prediction layers",
                        n, n == 1 ? "" : "s", first, n == 1 ? "" : ", ...");
}

static apr_status note_masks(apr_conversion *c, const apr_model *source, apr_error *err)
{
    const char *first = NULL;
    size_t n = 0;

    for (size_t i = 0; i < source->n_tensors; i++) {
        const char *const name = source->tensors[i].name;
        if (!apr_is_attention_mask(name) || apr_part_of(source, name) != APR_PART_BUFFER || apr_model_find(&c->layout, name) != NULL)
            continue;
        if (n++ == 0) first = name;
    }
    if (n == 0) return APR_OK;
    return apr_loss_add(&c->losses, APR_NOTE, err, "left out: %zu attention mask%s (%s%s), which programs make themselves", n,
                        n == 1 ? "" : "s", first, n == 1 ? "" : ", ...");
}

/* ---- the plan ---- */

static bool has_row_scales(apr_dtype dtype) { return apr_dtypes[dtype].scales == APR_SCALES_SEPARATE; }

static bool encodes_fp8(const apr_recipe *recipe)
{
    for (size_t i = 0; i < recipe->n_lines; i++)
        if (!recipe->lines[i].is_packed && has_row_scales(recipe->lines[i].to) && recipe->lines[i].to != recipe->lines[i].tensor->dtype)
            return true;
    return false;
}

/* True for block scales; false for one scale for the tensor, for each of its matrices, or for each row. */
static bool has_blocks(const apr_tensor *t)
{
    if (t->scale == NULL || !has_row_scales(t->dtype) || t->rank < 2 || apr_tensor_elems(t->scale) == 1) return false;
    if (t->scale_columns != apr_tensor_columns(t)) return true;
    return t->scale_rows != 1 && t->scale_rows != apr_tensor_matrix_rows(t) && t->scale_rows != apr_tensor_rows(t);
}

static apr_status make_plain(apr_tensor *t, apr_model *view, apr_error *err)
{
    apr_tensor *const base = apr_arena_alloc(&view->arena, sizeof *base);

    if (base == NULL) return apr_no_memory(err, "a tensor");
    *base = *t;
    return apr_tensor_merge(t, base, &(apr_merge){.base = base}, &view->arena, view->path, err);
}

/* Weights encoded as FP8 get a scale for each row, and config.json states one layout for all FP8 weights. So if the recipe encodes any, tensors
 * that it would keep with block scales become float32 in the view. *n_tensors is how many; if it is not 0, make the recipe again. */
static apr_status fp8_to_row_scales(apr_model *view, const apr_recipe *recipe, size_t *n_tensors, apr_error *err)
{
    *n_tensors = 0;
    if (!encodes_fp8(recipe)) return APR_OK;
    for (size_t i = 0; i < recipe->n_lines; i++) {
        const apr_recipe_line *const line = &recipe->lines[i];
        if (line->to != line->tensor->dtype || !has_blocks(line->tensor)) continue;
        APR_TRY(make_plain(&view->tensors[line->tensor - view->tensors], view, err));
        ++*n_tensors;
    }
    return APR_OK;
}

/* Makes the recipe, and changes the view that it is for (FP8 block scales). */
static apr_status make_recipe(apr_conversion *c, apr_error *err)
{
    size_t n_plain;

    if (c->options.recipe.packed != NULL) APR_TRY(apr_packed_choose_scales(c, err));
    APR_TRY(apr_recipe_make(&c->recipe, &c->view, &c->options.recipe, err));
    if (c->recipe.packed != NULL) return apr_packed_notes(c, err);
    APR_TRY(fp8_to_row_scales(&c->view, &c->recipe, &n_plain, err));
    if (n_plain == 0) return APR_OK;
    apr_recipe_close(&c->recipe);
    APR_TRY(apr_recipe_make(&c->recipe, &c->view, &c->options.recipe, err));
    return apr_loss_add(&c->losses, APR_NOTE, err,
                        "%zu matri%s with FP8 block scales %s encoded again with a scale for each row, as the others: config.json "
                        "can state only one of the two",
                        n_plain, n_plain == 1 ? "x" : "ces", n_plain == 1 ? "is" : "are");
}

apr_status apr_conversion_plan(apr_conversion *c, const apr_model *source, const apr_convert_options *options, apr_error *err)
{
    const char *packed = NULL;

    *c = (apr_conversion){.options = *options, .source = source, .container = apr_container_of(options->format, options->sink.profile)};
    APR_TRY(make_view(c, &packed, err));
    APR_TRY(check_computed(&c->view, err));
    c->options.recipe.limits = limits_of(c);
    c->options.recipe.same_numbers = c->container->same_numbers;
    c->options.recipe.has_importance = c->options.imatrix != NULL;
    APR_TRY(make_recipe(c, err));
    if (c->recipe.file_type > 0) c->options.sink.file_type = c->recipe.file_type;
    APR_TRY(lay_out(c, err));
    APR_TRY(restate_types(c, err));
    if (options->imatrix != NULL) APR_TRY(find_importance(c, err));
    APR_TRY(apr_sink_losses(options->format, &c->layout, &c->losses, err));
    APR_TRY(note_unread(c, packed, source, err));
    if (c->recipe.n_by_shape > 0)
        APR_TRY(apr_loss_add(&c->losses, APR_NOTE, err, "%zu of %zu matrices have unknown names; their shapes show that they are weights",
                             c->recipe.n_by_shape, c->recipe.n_matrices));
    APR_TRY(note_own_head(c, source, err));
    APR_TRY(note_idle_head(c, source, err));
    APR_TRY(note_adapters(c, options, err));
    APR_TRY(note_left_out(c, source, err));
    APR_TRY(note_masks(c, source, err));
    return options->sink.allow_loss ? APR_OK : apr_losses_refuse(&c->losses, source->path, err);
}

void apr_conversion_close(apr_conversion *c)
{
    apr_losses_close(&c->losses);
    apr_model_close(&c->layout);
    apr_recipe_close(&c->recipe);
    apr_model_close(&c->view);
    *c = (apr_conversion){0};
}
