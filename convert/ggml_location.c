/* ggml_location.c - finds where ggml stores a canonical matrix, by the family's rules. */
#include "convert/ggml_location.h"

#include "formats/shape/tensor_names.h"
#include "formats/tensor/composed.h"
#include "kernels/rows.h"

#include <stdlib.h>
#include <string.h>

/* Collects the steps that reorder the numbers of a row. False: the columns change in another way. */
static bool add_column_steps(const apr_chain *to_ggml, apr_chain *columns)
{
    for (int i = 0; i < to_ggml->n_steps; i++) {
        const apr_step *const step = &to_ggml->steps[i];
        const apr_step_facts *const facts = &apr_step_kinds[step->kind];
        const bool has_inverse = facts->has_axis && facts->inverse != APR_STEP_NONE;
        const bool permutes = has_inverse && apr_step_reach(step) == APR_REACH_ELEMENTS; /* along axis 0 */
        if (permutes ? !apr_chain_append(columns, *step) : !apr_step_keeps_columns(step)) return false;
    }
    return true;
}

apr_status apr_ggml_location_of(apr_ggml_location *place, const apr_model *model, const char *name, apr_arena *arena, apr_error *err)
{
    const apr_family *const family = model->naming == APR_NAMING_HF ? apr_family_translated(model->hparams.architecture) : NULL;
    apr_name_match match;
    apr_chain to_ggml = {0};

    *place = (apr_ggml_location){.name = name, .matrix = -1};
    if (family == NULL) return APR_OK;
    place->name = NULL;
    if (!apr_match_target(family, APR_NAMING_GGML, name, false, model->hparams.num_experts > 0, &match)) return APR_OK;
    if (match.rule != NULL && !apr_rule_to_ggml(match.rule, family, &model->hparams, model->hparams.tiled_value_heads, &to_ggml))
        return APR_OK;
    if (match.form != NULL) {
        const apr_shape shape = {.dtype = APR_F32, .rank = 2, .dims = {1, 1}}; /* only the kinds and axes of the steps are used */
        if (!apr_part_chain(match.form, match.part, &model->hparams, &shape, false, -1, &to_ggml)) return APR_OK;
    }
    if (!add_column_steps(&to_ggml, &place->columns) || (match.form != NULL && place->columns.n_steps > 0)) return APR_OK;
    if (match.is_stack) place->matrix = match.expert;
    place->name = apr_fill_name(match.holder, &match, match.expert, arena);
    return place->name != NULL ? APR_OK : apr_no_memory(err, "a tensor's name");
}

/* Applies the column steps to a row of column numbers. */
apr_status apr_ggml_columns(const apr_ggml_location *place, int64_t n, int64_t *order, apr_error *err)
{
    float *const numbers = malloc((size_t)n * 2 * sizeof *numbers + 1), *const moved = numbers + n;
    apr_arena arena = {0};
    apr_status status = APR_OK;

    if (numbers == NULL) return apr_no_memory(err, "the order of columns");
    for (int64_t j = 0; j < n; j++) order[j] = j, numbers[j] = (float)j;
    if (place->columns.n_steps > 0 && n < 1 << 24) {
        apr_tensor row = {.name = place->name, .dtype = APR_F32, .rank = 2, .dims = {1, n}};
        row.data = (const uint8_t *)numbers;
        status = apr_tensor_size(&row, "imatrix", err);
        if (status == APR_OK) status = apr_tensor_append_steps(&row, &place->columns, &arena, "imatrix", err);
        if (status == APR_OK) apr_decode_rows(&row, 0, 1, moved);
        else memcpy(moved, numbers, (size_t)n * sizeof *moved);
        for (int64_t j = 0; j < n; j++) order[j] = (int64_t)moved[j];
    }
    apr_arena_close(&arena);
    free(numbers);
    return status;
}
