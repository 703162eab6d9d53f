/* convert.c - runs the stages of a conversion: view, recipe, layout, pipe. */
#include "convert/convert.h"

#include "convert/computed.h"
#include "convert/fp8_rows.h"
#include "convert/naming.h"
#include "convert/run_terms.h"
#include "formats/shape/text_part.h"
#include "formats/tensor/kv_copy.h"
#include "formats/tensor/library_type.h"
#include "formats/tensor/packed_weights.h"
#include "kernels/rows.h"
#include "kernels/transcode.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static apr_recipe_limits limits_of(const apr_convert_options *options, const apr_model *view)
{
    const apr_container *const c = apr_container_of(options->format, options->sink.profile);
    const bool keeps_vectors = options->format == APR_FORMAT_GGUF && view->origin.format == APR_FORMAT_GGUF;
    return (apr_recipe_limits){
        .allows = c->holds, .container = c->name, .vectors_f32 = c->vectors_f32 && !keeps_vectors, .plain_fallback = c->few_types};
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

/* Packed weights can be written only to containers that store the same bytes. */
static apr_status check_packed(const apr_convert_options *options, const apr_model *canonical, apr_error *err)
{
    if (options->format == APR_FORMAT_GGUF) APR_TRY(apr_refuse_packed(canonical, "written as GGUF", err));
    if (options->sink.profile == APR_PROFILE_APRENDER) APR_TRY(apr_refuse_packed(canonical, "written for aprender", err));
    return APR_OK;
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
static bool keeps_parts(const apr_convert_options *options)
{
    const bool same_types = options->recipe.mixture == NULL && options->recipe.n_overrides == 0;
    return same_types && options->n_adapters == 0 && options->format != APR_FORMAT_GGUF && options->sink.profile != APR_PROFILE_APRENDER;
}

/* `packed`: the layout of packed weights that aprkit cannot read, or NULL. */
static apr_status make_view(apr_model *view, const char **packed, const apr_model *source, const apr_convert_options *options,
                            apr_error *err)
{
    apr_model canonical;
    apr_status status = (keeps_parts(options) ? apr_canonical_packed : apr_canonical)(&canonical, source, err);

    if (status == APR_OK) status = apr_merge_adapters(&canonical, options->adapters, options->n_adapters, err);
    if (status == APR_OK) status = find_unread(source, &canonical, packed, err);
    if (status == APR_OK) status = check_packed(options, &canonical, err);
    if (status == APR_OK && options->format == APR_FORMAT_GGUF) status = apr_translate(view, &canonical, APR_NAMING_GGML, err);
    else if (status == APR_OK && options->format == APR_FORMAT_SAFETENSORS) status = apr_translate(view, &canonical, APR_NAMING_HF, err);
    else if (status == APR_OK) {
        status = apr_view_copy(view, &canonical, 1, err);
        if (status == APR_OK && options->sink.profile == APR_PROFILE_APRENDER) status = add_tied_head(view, err);
    }
    if (status != APR_OK) {
        apr_model_close(&canonical);
        return status;
    }
    /* names and provenance live in the canonical view's arena: move it to the view */
    apr_arena_adopt(&view->arena, &canonical.arena);
    return APR_OK;
}

/* Adds a tensor to the layout, and the item that writes it. */
static apr_tensor *add_tensor(apr_conversion *c, const apr_tensor *tensor, const apr_pipe_item *item)
{
    apr_tensor *const t = &c->layout.tensors[c->layout.n_tensors];
    *t = *tensor;
    c->items[c->layout.n_tensors++] = *item;
    return t;
}

/* FP8 weights get a scale for each row: the weight's shape with one column, which for stacked experts is [experts, rows, 1]. */
static apr_status add_row_scales(apr_conversion *c, apr_tensor *weight, const apr_tensor *from, apr_error *err)
{
    const char *const name = apr_arena_print(&c->layout.arena, "%s_scale", weight->name);
    apr_tensor row_scales = {.name = name, .dtype = APR_F32, .rank = 2, .dims = {apr_tensor_rows(weight), 1}};

    if (name == NULL) return apr_no_memory(err, "a tensor's name");
    if (weight->rank > 2) {
        row_scales.rank = weight->rank;
        memcpy(row_scales.dims, weight->dims, sizeof weight->dims);
        row_scales.dims[weight->rank - 1] = 1;
    }
    apr_tensor *const scale = add_tensor(c, &row_scales, &(apr_pipe_item){.from = from, .to = APR_F32, .is_scales = true});
    weight->scale = scale;
    weight->scale_rows = 1;
    weight->scale_columns = apr_tensor_columns(weight);
    return apr_tensor_size(scale, c->view.path, err);
}

/* The global scale of "X.weight" is "X.scale", as in llama.cpp: one number, or one for each expert. */
static apr_status add_global_scale(apr_conversion *c, apr_tensor *weight, const apr_tensor *from, apr_error *err)
{
    static const char ending[] = ".weight";
    const size_t n = strlen(weight->name), m = sizeof ending - 1;
    const size_t stem = n > m && strcmp(weight->name + n - m, ending) == 0 ? n - m : n;
    const char *const name = apr_arena_print(&c->layout.arena, "%.*s.scale", (int)stem, weight->name);
    const apr_tensor global_scale = {.name = name, .dtype = APR_F32, .rank = 1, .dims = {apr_transcode_matrices(from)}};

    if (name == NULL) return apr_no_memory(err, "a tensor's name");
    apr_tensor *const scale = add_tensor(c, &global_scale, &(apr_pipe_item){.from = from, .to = APR_F32, .is_commons = true});
    weight->scale = scale;
    weight->scale_rows = weight->rank >= 2 ? weight->dims[weight->rank - 2] : 1;
    weight->scale_columns = apr_tensor_columns(weight);
    return apr_tensor_size(scale, c->view.path, err);
}

/* A recipe line becomes one tensor of the layout, or two. */
static apr_status lay_out_line(apr_conversion *c, const apr_recipe_line *line, const apr_tensor **moved, apr_error *err)
{
    const apr_tensor *const from = line->tensor;
    const bool changed = line->to != from->dtype;
    apr_tensor *const t = add_tensor(c, from,
                                     &(apr_pipe_item){.from = from,
                                                      .to = line->to,
                                                      .same_numbers = line->same_numbers,
                                                      .counts_cost = line->decoded,
                                                      .library = apr_reference_type(&c->view, from)});

    moved[from - c->view.tensors] = t;
    t->dtype = line->to;
    t->data = NULL;
    t->pending = (apr_step){0};
    t->made = NULL;
    t->packing = NULL;
    APR_TRY(apr_tensor_size(t, c->view.path, err));
    c->layout.origin.requantized |= changed || apr_tensor_source(from) == APR_SOURCE_PACKED;
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
    layout->tensors = apr_arena_array(arena, 2 * recipe->n_lines + 1, sizeof *layout->tensors);
    c->items = apr_arena_array(arena, 2 * recipe->n_lines + 1, sizeof *c->items);
    const apr_tensor **const moved =
        apr_arena_array(arena, c->view.n_tensors + 1, sizeof *moved); /* view -> layout, for scales that are kept */
    if (layout->tensors == NULL || c->items == NULL || moved == NULL) return apr_no_memory(err, "the layout of the output");
    for (size_t i = 0; i < recipe->n_lines; i++) APR_TRY(lay_out_line(c, &recipe->lines[i], moved, err));
    for (size_t i = 0; i < layout->n_tensors; i++) { /* FP8 kept unchanged: point to the scale in the layout */
        const apr_tensor *const old = layout->tensors[i].scale;
        if (old >= c->view.tensors && old < c->view.tensors + c->view.n_tensors) layout->tensors[i].scale = moved[old - c->view.tensors];
    }
    return apr_model_index_names(layout, err);
}

/* ---- importance ---- */

bool apr_item_uses_importance(const apr_pipe_item *item)
{
    const bool is_encoded = !item->is_scales && !item->is_commons && !item->same_numbers && item->to != item->from->dtype;
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

apr_status apr_conversion_note_text(apr_conversion *c, const char *name, uint32_t crc32, int64_t n_tokens, apr_error *err)
{
    apr_model *const layout = &c->layout;
    apr_kv_list own = {.arena = &layout->arena};
    const char *const text = apr_arena_print(&layout->arena, "%s", name), *const sum = apr_arena_print(&layout->arena, "%08" PRIx32, crc32);

    if (text == NULL || sum == NULL) return apr_no_memory(err, "the name of a text");
    APR_TRY(apr_kv_append_all(&own, &layout->kv, err));
    APR_TRY(apr_kv_set_string(&own, "quantize.calibration.text", apr_str_of(text), err));
    APR_TRY(apr_kv_set_string(&own, "quantize.calibration.crc32", apr_str_of(sum), err));
    APR_TRY(apr_kv_set_int(&own, "quantize.calibration.tokens", APR_KV_U64, n_tokens, err));
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
        if (line->to != line->tensor->dtype || apr_tensor_source(line->tensor) == APR_SOURCE_PACKED) elems[line->to] += apr_tensor_elems(line->tensor);
    }
    return torch_name(apr_dtype_most_common(elems));
}

static apr_status restate_types(apr_conversion *c, apr_error *err)
{
    bool makes_fp8 = false;
    for (size_t i = 0; i < c->layout.n_tensors; i++) makes_fp8 |= c->items[i].is_scales;
    return apr_update_types(&c->layout, &c->view, makes_fp8, new_torch_dtype(c), err);
}

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
        if (adapter->beside != NULL)
            APR_TRY(apr_loss_add(&c->losses, APR_NOTE, err, "%s has its own tokenizer (%s), which is not used; the model's is kept",
                                 adapter->path, adapter->beside));
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
    const bool drops = c->options.format == APR_FORMAT_GGUF || c->options.sink.profile == APR_PROFILE_APRENDER;

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
        if (!apr_is_omitted(source, name) || c->layout.naming == source->naming || c->options.format == APR_FORMAT_APR) continue;
        if (n++ == 0) first = name;
    }
    if (n == 0) return APR_OK;
    return apr_loss_add(&c->losses, APR_NOTE, err,
                        "left out: %zu tensor%s that text models do not run (%s%s): image or audio towers, multi-token prediction layers",
                        n, n == 1 ? "" : "s", first, n == 1 ? "" : ", ...");
}

/* Makes the recipe, and changes the view that it is for (FP8 block scales). */
static apr_status make_recipe(apr_conversion *c, apr_error *err)
{
    size_t n_plain;

    APR_TRY(apr_recipe_make(&c->recipe, &c->view, &c->options.recipe, err));
    APR_TRY(apr_fp8_to_row_scales(&c->view, &c->recipe, &n_plain, err));
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

    *c = (apr_conversion){.options = *options, .source = source};
    APR_TRY(make_view(&c->view, &packed, source, options, err));
    APR_TRY(apr_check_computed(&c->view, err));
    c->options.recipe.limits = limits_of(options, &c->view);
    c->options.recipe.same_numbers = options->format == APR_FORMAT_GGUF;
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
    return options->sink.allow_loss ? APR_OK : apr_losses_refuse(&c->losses, source->path, err);
}

static apr_status run_pipe(apr_conversion *c, apr_sink *sink, apr_error *err)
{
    const apr_pipe_options pipe = {.source = c->source,
                                   .saturate = c->options.saturate,
                                   .want_metrics = c->options.want_metrics,
                                   .progress = c->options.progress,
                                   .maker = c->options.maker,
                                   .codecs = c->options.codecs,
                                   .devices = c->options.devices,
                                   .n_devices = c->options.n_devices};
    const apr_status status = apr_pipe_run(sink, c->items, c->layout.n_tensors, &pipe, err);

    if (status == APR_OK) {
        c->progress = apr_sink_progress_of(sink);
        if (c->progress.folder != NULL) c->progress.folder = apr_arena_print(&c->layout.arena, "%s", c->progress.folder);
        return apr_sink_finish(sink, err);
    }
    apr_sink_abandon(sink);
    return status;
}

/* Reads the output as every later reader will: opens it and makes the canonical view. */
static apr_status read_canonical(const char *path, apr_error *err)
{
    apr_model model, view = {0};

    APR_TRY(apr_model_open(&model, path, err));
    const apr_status status = apr_canonical(&view, &model, err);
    apr_model_close(&view);
    apr_model_close(&model);
    return status;
}

apr_status apr_conversion_run(apr_conversion *c, const char *path, uint64_t *file_bytes, apr_error *err)
{
    apr_sink_options options = c->options.sink;
    apr_sink_work work = {0};
    apr_sink *sink;

    options.reader = read_canonical;
    if (c->options.part != NULL) {
        work.part = *c->options.part;
        APR_TRY(apr_run_terms_make(&work, c, err));
        options.work = &work;
    }
    if (c->source->stated_crcs != NULL) APR_TRY(apr_model_check_head(c->source, err));
    apr_status status = apr_sink_open(&sink, c->options.format, path, &c->layout, &options, err);
    if (status == APR_OK) {
        if (file_bytes != NULL) *file_bytes = apr_sink_total_bytes(sink);
        status = run_pipe(c, sink, err);
    }
    return status;
}

void apr_conversion_close(apr_conversion *c)
{
    apr_losses_close(&c->losses);
    apr_model_close(&c->layout);
    apr_recipe_close(&c->recipe);
    apr_model_close(&c->view);
    *c = (apr_conversion){0};
}
