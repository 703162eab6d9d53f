/* packed_choice.c - chooses the matrices that are written in a layout for servers. */
#include "quant/packed_choice.h"

#include "formats/base/text.h"
#include "formats/packed/fused_modules.h"
#include "formats/shape/text_part.h"
#include "formats/tensor/composed.h"
#include "kernels/pack.h"
#include "kernels/rows.h"

#include <stdio.h>

apr_mixture apr_packed_mixture(const apr_packed_target *target)
{
    const apr_packed_layout *const l = target->layout;
    return (apr_mixture){
        .name = l->type, .about = l->about, .base = l->dtype, .embedding = APR_DTYPE_COUNT, .head = APR_DTYPE_COUNT, .file_type = -1};
}

/* Servers would take a quantized tensor of another layout for one of this layout, so what is kept is a float. */
static void keep(apr_recipe_line *line, const char *reason)
{
    const apr_tensor *const t = line->tensor;
    const bool is_float = apr_dtype_is_float(t->dtype) && !apr_tensor_is_packed(t) && apr_default_type(t) != APR_DTYPE_COUNT;
    const bool is_weights = apr_can_decode(t->dtype) && apr_dtype_is_weights(t->dtype);

    line->is_packed = false;
    line->to = is_float ? apr_default_type(t) : is_weights ? APR_BF16 : t->dtype;
    line->reason = reason;
}

/* What servers keep as floats in every layout. */
static bool is_kept_role(apr_tensor_role role)
{
    return role == APR_TENSOR_ROLE_EMBEDDING || role == APR_TENSOR_ROLE_HEAD || role == APR_TENSOR_ROLE_ROUTER ||
           role == APR_TENSOR_ROLE_KEPT || role == APR_TENSOR_ROLE_SMALL;
}

bool apr_choose_packed(const apr_model *model, const apr_packed_target *target, apr_recipe_line *line)
{
    const apr_tensor *const t = line->tensor;
    const bool is_wanted =
        line->to == target->layout->dtype && !is_kept_role(line->role) && apr_can_decode(t->dtype) && apr_dtype_is_weights(t->dtype);

    line->is_packed = is_wanted && t->rank == 2 && apr_tensor_elems(t) > 0 && apr_stem_of(t->name, ".weight") > 0 &&
                      apr_part_of(model, t->name) == APR_PART_TEXT;
    if (line->is_packed) return true;
    if (is_wanted && t->rank > 2) keep(line, "a stack of matrices, which this layout has only as single ones: kept");
    else if (is_wanted) keep(line, "not of the text model: kept");
    else keep(line, line->to == APR_DTYPE_COUNT || line->to == apr_default_type(t) ? line->reason : "kept");
    return false;
}

/* The line of another member of the set that this tensor's module belongs to; NULL: the model has none. */
static apr_recipe_line *find_member(apr_recipe *recipe, const apr_model *model, const apr_tensor *tensor, size_t n_parent,
                                    const char *member)
{
    char name[1024];

    snprintf(name, sizeof name, "%.*s%s.weight", (int)n_parent, tensor->name, member);
    const apr_tensor *const found = apr_model_find(model, name);
    return found != NULL ? &recipe->lines[found - model->tensors] : NULL;
}

/* Keeps a matrix if one that is fused with it is kept, since servers need one scheme for all. */
static void keep_fused(apr_recipe *recipe, const apr_model *model, apr_recipe_line *line)
{
    size_t n_parent;
    const apr_fused_set *const set = apr_packed_fused(line->tensor->name, &n_parent);

    for (int i = 0; line->is_packed && set != NULL && i < APR_FUSED_MEMBERS && set->members[i] != NULL; i++) {
        const apr_recipe_line *const other = find_member(recipe, model, line->tensor, n_parent, set->members[i]);
        if (other == NULL || other->is_packed) continue;
        line->fell_back = true;
        const char *const reason =
            apr_arena_print(&recipe->arena, "%s, which servers fuse with it, is not quantized: kept", set->members[i]);
        keep(line, reason != NULL ? reason : "a matrix that servers fuse with it is not quantized: kept");
    }
}

static void keep_unloadable(apr_recipe *recipe, apr_recipe_line *line)
{
    size_t n_parent;
    const bool is_fused = apr_packed_fused(line->tensor->name, &n_parent) != NULL;
    const char *const why = apr_packed_obstacle(recipe->packed, line->tensor->dims[0], line->tensor->dims[1], is_fused, &recipe->arena);

    if (why == NULL) return;
    line->fell_back = true;
    keep(line, why);
}

/* Is it a block type, or one with an adapter merged in? */
static bool is_from_blocks(const apr_tensor *t)
{
    const apr_tensor *const base = apr_merge_base(t), *const stored = base != NULL ? base : t;
    return apr_dtypes[stored->dtype].class_of == APR_CLASS_BLOCK;
}

static apr_status find_codes(apr_recipe *recipe, apr_recipe_line *line, bool allow_requantize, apr_error *err)
{
    apr_packed_matrix matrix;

    APR_TRY(apr_packed_matrix_make(&matrix, recipe->packed, line->tensor, &recipe->arena, err));
    line->same_codes = apr_pack_can_copy(&matrix.packing, line->tensor);
    if (line->same_codes) line->reason = "holds the same codes and scales";
    if (line->same_codes || allow_requantize || !is_from_blocks(line->tensor)) return APR_OK;
    return apr_fail(err, APR_E_UNSUPPORTED,
                    "tensor '%s' is already %s, and encoding it as %s would lose precision twice; start from the original weights, or "
                    "give --allow-requantize",
                    line->tensor->name, apr_tensor_encoding(line->tensor), recipe->packed->layout->type);
}

apr_status apr_settle_packed(apr_recipe *recipe, const apr_model *model, bool allow_requantize, apr_error *err)
{
    for (size_t i = 0; i < recipe->n_lines; i++)
        if (recipe->lines[i].is_packed) keep_unloadable(recipe, &recipe->lines[i]);
    for (int round = 0; round < APR_FUSED_MEMBERS; round++) /* one member that is kept keeps all */
        for (size_t i = 0; i < recipe->n_lines; i++) keep_fused(recipe, model, &recipe->lines[i]);
    for (size_t i = 0; i < recipe->n_lines; i++)
        if (recipe->lines[i].is_packed) APR_TRY(find_codes(recipe, &recipe->lines[i], allow_requantize, err));
    return APR_OK;
}

uint64_t apr_packed_bytes(const apr_packed_target *target, const apr_tensor *tensor)
{
    apr_arena arena = {0};
    apr_packed_matrix matrix;
    apr_error err = {0};
    uint64_t n_bytes = 0;

    if (apr_packed_matrix_make(&matrix, target, tensor, &arena, &err) == APR_OK)
        for (size_t i = 0; i < matrix.packing.n_parts; i++) n_bytes += matrix.parts[i].n_bytes;
    apr_arena_close(&arena);
    return n_bytes;
}
