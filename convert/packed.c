/* packed.c - plans a folder in a quantized layout for servers. */
#include "convert/packed.h"

#include "formats/base/text.h"
#include "formats/packed/fused_modules.h"
#include "formats/tensor/kv_copy.h"
#include "kernels/pack.h"
#include "kernels/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

apr_status apr_packed_choose_scales(apr_conversion *c, apr_error *err)
{
    apr_packed_target *const target = apr_arena_alloc(&c->view.arena, sizeof *target);
    int64_t elems[APR_DTYPE_COUNT] = {0};

    if (target == NULL) return apr_no_memory(err, "a layout");
    *target = *c->options.recipe.packed;
    for (size_t i = 0; i < c->view.n_tensors; i++)
        if (c->view.tensors[i].rank == 2) elems[c->view.tensors[i].dtype] += apr_tensor_elems(&c->view.tensors[i]);
    target->scale16 = apr_dtype_most_common(elems) == APR_F16 ? APR_F16 : APR_BF16;
    c->options.recipe.packed = target;
    return APR_OK;
}

/* ---- tensors ---- */

static const apr_recipe_line *line_of(const apr_conversion *c, const apr_tensor *tensor)
{
    for (size_t i = 0; i < c->recipe.n_lines; i++)
        if (c->recipe.lines[i].tensor == tensor) return &c->recipe.lines[i];
    return NULL;
}

/* The matrices of the layer that are packed and fused with this one; without any, the matrix itself. */
static apr_status find_shares(apr_conversion *c, const apr_tensor *from, apr_pipe_packed *packed, apr_error *err)
{
    const apr_tensor **const shares = apr_arena_array(&c->layout.arena, APR_FUSED_MEMBERS, sizeof *shares);
    size_t n_parent = 0;
    const apr_fused_set *const set = apr_packed_fused(from->name, &n_parent);
    char name[1024];

    if (shares == NULL) return apr_no_memory(err, "a layout");
    for (int i = 0; set != NULL && i < APR_FUSED_MEMBERS && set->members[i] != NULL; i++) {
        snprintf(name, sizeof name, "%.*s%s.weight", (int)n_parent, from->name, set->members[i]);
        const apr_tensor *const found = apr_model_find(&c->view, name);
        const apr_recipe_line *const line = found != NULL ? line_of(c, found) : NULL;
        if (line != NULL && line->is_packed && !line->same_codes) shares[packed->n_shares++] = found;
    }
    if (packed->n_shares == 0) shares[packed->n_shares++] = from;
    packed->shares = shares;
    return APR_OK;
}

apr_status apr_lay_out_packed(apr_conversion *c, const apr_recipe_line *line, apr_error *err)
{
    const apr_packed_target *const target = c->recipe.packed;
    apr_pipe_packed *const packed = apr_arena_alloc(&c->layout.arena, sizeof *packed);

    if (packed == NULL) return apr_no_memory(err, "a layout");
    *packed = (apr_pipe_packed){.same_codes = line->same_codes};
    APR_TRY(apr_packed_matrix_make(&packed->matrix, target, line->tensor, &c->layout.arena, err));
    if (target->layout->shares_global_scale && !line->same_codes) APR_TRY(find_shares(c, line->tensor, packed, err));
    for (size_t i = 0; i < packed->matrix.packing.n_parts; i++) {
        c->layout.tensors[c->layout.n_tensors] = packed->matrix.parts[i];
        c->items[c->layout.n_tensors++] = (apr_pipe_item){
            .from = line->tensor, .to = packed->matrix.parts[i].dtype, .is_scales = i > 0, .packed = packed, .packed_part = (int)i};
    }
    c->layout.origin.requantized = true;
    return APR_OK;
}

/* ---- config.json ---- */

/* A linear module of the output that is not quantized. Embeddings are not linear; a bias or a norm is not a matrix. */
static bool is_ignored(const apr_recipe_line *line)
{
    const apr_tensor *const t = line->tensor;
    return !line->is_packed && t->rank == 2 && line->role != APR_TENSOR_ROLE_EMBEDDING && apr_stem_of(t->name, ".weight") > 0 &&
           apr_dtype_is_weights(t->dtype);
}

/* The head is named even if it is the embedding and has no tensor. */
static apr_status list_ignored(apr_conversion *c, const char ***names, size_t *n, apr_error *err)
{
    const char **const list = apr_arena_array(&c->layout.arena, c->recipe.n_lines + 1, sizeof *list);
    bool has_head = false;

    *n = 0;
    *names = list;
    if (list == NULL) return apr_no_memory(err, "the modules that are not quantized");
    for (size_t i = 0; i < c->recipe.n_lines; i++) {
        const char *const name = c->recipe.lines[i].tensor->name;
        if (!is_ignored(&c->recipe.lines[i])) continue;
        list[*n] = apr_arena_copy(&c->layout.arena, name, apr_stem_of(name, ".weight"));
        if (list[*n] == NULL) return apr_no_memory(err, "the modules that are not quantized");
        has_head |= c->recipe.lines[i].role == APR_TENSOR_ROLE_HEAD;
        ++*n;
    }
    if (!has_head) list[(*n)++] = "lm_head";
    return APR_OK;
}

/* transformers and vLLM refuse files that do not say so. The writer says it of a model that is from another container. */
static apr_status state_framework(apr_model *layout, apr_error *err)
{
    apr_kv_list own = {.arena = &layout->arena};

    if (layout->origin.format != APR_FORMAT_SAFETENSORS) return APR_OK;
    APR_TRY(apr_kv_append_all(&own, &layout->kv, err));
    APR_TRY(apr_kv_set_string(&own, "format", apr_str_of("pt"), err));
    layout->kv = own;
    return APR_OK;
}

apr_status apr_restate_packed(apr_conversion *c, const char *torch_dtype, apr_error *err)
{
    apr_packed_config config = {.target = c->recipe.packed};
    const char **names;
    char *text, *file;

    APR_TRY(state_framework(&c->layout, err));
    APR_TRY(list_ignored(c, &names, &config.n_ignored, err));
    config.ignored = names;
    APR_TRY(apr_packed_config_text(&config, &text, &file, err));
    const apr_status status = apr_set_quantization(&c->layout, &c->view, torch_dtype, &(apr_quantization_texts){text, file}, err);
    free(text);
    free(file);
    return status;
}

/* ---- notes ---- */

static apr_status note_stacks(apr_conversion *c, apr_error *err)
{
    const char *first = NULL;
    size_t n = 0;

    for (size_t i = 0; i < c->recipe.n_lines; i++) {
        const apr_recipe_line *const line = &c->recipe.lines[i];
        if (line->tensor->rank <= 2 || line->role == APR_TENSOR_ROLE_SMALL) continue;
        if (n++ == 0) first = line->tensor->name;
    }
    if (n == 0) return APR_OK;
    return apr_loss_add(&c->losses, APR_NOTE, err, "not quantized: %zu stack%s of matrices (%s%s), which this layout has only one by one",
                        n, n == 1 ? "" : "s", first, n == 1 ? "" : ", ...");
}

static float copied_scale(const apr_tensor *t) { return apr_pack_copied_global_scale(&(apr_packing){.divides = false}, t); }

/* Counts the fused matrices whose copied global scale differs from that of the first member of their set. */
static apr_status note_global_scales(apr_conversion *c, apr_error *err)
{
    const char *first = NULL;
    size_t n = 0, n_parent;
    char name[1024];

    for (size_t i = 0; i < c->recipe.n_lines; i++) {
        const apr_recipe_line *const line = &c->recipe.lines[i];
        const apr_fused_set *const set = line->same_codes ? apr_packed_fused(line->tensor->name, &n_parent) : NULL;
        if (set == NULL || !c->recipe.packed->layout->shares_global_scale) continue;
        snprintf(name, sizeof name, "%.*s%s.weight", (int)n_parent, line->tensor->name, set->members[0]);
        const apr_tensor *const other = apr_model_find(&c->view, name);
        const apr_recipe_line *const of_other = other != NULL ? line_of(c, other) : NULL;
        if (of_other == NULL || !of_other->same_codes || copied_scale(other) == copied_scale(line->tensor)) continue;
        if (n++ == 0) first = line->tensor->name;
    }
    if (n == 0) return APR_OK;
    return apr_loss_add(
        &c->losses, APR_NOTE, err,
        "%zu matri%s (%s%s) with another global scale than the one that servers fuse with it: vLLM takes one scale for all, "
        "which loses accuracy; quantize the original weights instead",
        n, n == 1 ? "x has" : "ces have", first, n == 1 ? "" : ", ...");
}

apr_status apr_packed_notes(apr_conversion *c, apr_error *err)
{
    if (c->recipe.packed->layout->dtype == APR_MXFP4)
        APR_TRY(apr_loss_add(&c->losses, APR_NOTE, err,
                             "MXFP4 with weights only: vLLM on GPUs of compute capability 10.0 and above may take it for 4-bit activations "
                             "(vllm#56770)"));
    APR_TRY(note_stacks(c, err));
    return note_global_scales(c, err);
}
