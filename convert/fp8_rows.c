/* fp8_rows.c - replaces FP8 weights with block scales by their decoded values. */
#include "convert/fp8_rows.h"

#include "formats/tensor/composed.h"

static bool has_scales(apr_dtype dtype) { return apr_dtypes[dtype].scales == APR_SCALES_SEPARATE; }

static bool encodes_fp8(const apr_recipe *recipe)
{
    for (size_t i = 0; i < recipe->n_lines; i++)
        if (has_scales(recipe->lines[i].to) && recipe->lines[i].to != recipe->lines[i].tensor->dtype) return true;
    return false;
}

/* True for block scales; false for one scale for the tensor, for each of its matrices, or for each row. */
static bool has_blocks(const apr_tensor *t)
{
    if (t->scale == NULL || !has_scales(t->dtype) || t->rank < 2 || apr_tensor_elems(t->scale) == 1) return false;
    if (t->scale_columns != apr_tensor_columns(t)) return true;
    return t->scale_rows != 1 && t->scale_rows != t->dims[t->rank - 2] && t->scale_rows != apr_tensor_rows(t);
}

static apr_status make_plain(apr_tensor *t, apr_model *view, apr_error *err)
{
    apr_tensor *const base = apr_arena_alloc(&view->arena, sizeof *base);

    if (base == NULL) return apr_no_memory(err, "a tensor");
    *base = *t;
    return apr_tensor_merge(t, base, &(apr_merge){.base = base}, &view->arena, view->path, err);
}

apr_status apr_fp8_to_row_scales(apr_model *view, const apr_recipe *recipe, size_t *n_tensors, apr_error *err)
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
