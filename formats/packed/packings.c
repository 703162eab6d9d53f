/* packings.c - finds the tensors that hold the codes of a packed matrix, and binds the other tensors of the matrix to them. */
#include "formats/packed/packings.h"

#include "formats/base/text.h"
#include "formats/packed/packings_bind.h"

#include <string.h>

/* The first layout that fits is taken: bitsandbytes' weights may have any type. */
static const apr_packing_layout *const layouts[] = {apr_layouts_gptq, apr_layouts_bitsandbytes, apr_layouts_compressed, apr_layouts_fp4};

/* With one of these tensors the weights are not just a matrix: the inputs are scaled or rotated first (AWQ and SmoothQuant of modelopt,
 * FP-Quant), a low-rank product is added (SVDQuant), or half of the weights are zeros that are not stored (marlin's 2:4). */
static const char *const unsupported[] = {".pre_quant_scale", ".svdquant_lora_a", ".forward_hadamard_matrix", ".scale_packed"};

/* Suffixes of tensors that no layout has without codes. The codes' name has one of three others instead. */
static const char *const companions[] = {".qzeros",        ".weight_shape",     ".weight_global_scale",  ".weight_scale_2",
                                         ".weight.absmax", ".weight.quant_map", ".weight.nested_absmax", ".weight_g_idx"};

static apr_status check_companion(apr_binding *b)
{
    for (size_t i = 0; i < sizeof companions / sizeof *companions; i++) {
        b->n_stem = apr_stem_of(b->codes->name, companions[i]);
        if (b->n_stem == 0 || apr_companion(b, ".weight_packed") != NULL || apr_companion(b, ".weight") != NULL ||
            apr_companion(b, ".qweight") != NULL)
            continue;
        return apr_fail(b->err, APR_E_DAMAGED, "%s: '%s' belongs to packed weights, but the weights are missing", b->model->path,
                        b->codes->name);
    }
    return APR_OK;
}

static bool is_a_matrix(const apr_binding *b)
{
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (apr_companion(b, unsupported[i]) != NULL) return false;
    return true;
}

/* NULL: the tensor holds no codes. */
static const apr_packing_layout *find_layout(apr_binding *b)
{
    if (apr_tensor_elems(b->codes) == 0) return NULL;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (const apr_packing_layout *layout = layouts[i]; layout->suffix != NULL; layout++) {
            b->n_stem = apr_stem_of(b->codes->name, layout->suffix);
            if (b->n_stem > 0 && layout->is(b)) return is_a_matrix(b) ? layout : NULL;
        }
    return NULL;
}

/* Copies the binding's packing and matrix into the arena. */
static apr_status keep(apr_binding *b, apr_tensor *matrix)
{
    const apr_tensor **const parts = apr_arena_array(b->arena, b->packing.n_parts, sizeof *parts);
    apr_packing *const packing = apr_arena_alloc(b->arena, sizeof *packing);

    *matrix = b->matrix;
    matrix->name = apr_arena_print(b->arena, "%.*s.weight", (int)b->n_stem, b->codes->name);
    if (parts == NULL || packing == NULL || matrix->name == NULL) return apr_no_memory(b->err, "packed weights");
    memcpy(parts, b->parts, b->packing.n_parts * sizeof *parts);
    *packing = b->packing;
    packing->parts = parts;
    matrix->packing = packing;
    return apr_tensor_size(matrix, b->model->path, b->err);
}

static apr_status bind_all(apr_model *model, apr_shared_parts *shared, apr_error *err)
{
    for (size_t i = 0; i < model->n_tensors; i++) {
        apr_binding b = {.model = model, .arena = &model->arena, .err = err, .shared = shared, .codes = &model->tensors[i]};
        const apr_packing_layout *const layout = find_layout(&b);
        if (layout == NULL) {
            APR_TRY(check_companion(&b));
            continue;
        }
        b.packing = layout->packing;
        b.packing.codes = b.parts[0] = b.codes;
        b.packing.n_parts = 1;
        APR_TRY(layout->bind(&b));
        if (b.left_alone) continue;
        APR_TRY(keep(&b, &model->packings[model->n_packings]));
        model->n_packings++;
    }
    return APR_OK;
}

/* True: the layout may be foreign, so that the names of tensors have another meaning. */
static bool is_foreign(const apr_quantization *q)
{
    bool foreign = q != NULL && !q->known;
    for (size_t i = 0; q != NULL && i < q->n_schemes; i++) foreign |= q->schemes[i].foreign;
    return foreign;
}

apr_status apr_bind_packings(apr_model *model, apr_error *err)
{
    apr_shared_parts shared = {0};
    size_t n = 0;

    if (is_foreign(model->quantization)) return APR_OK;
    for (size_t i = 0; i < model->n_tensors; i++) {
        apr_binding b = {.model = model, .codes = &model->tensors[i]};
        n += find_layout(&b) != NULL;
    }
    model->packings = apr_arena_array(&model->arena, n + 1, sizeof *model->packings);
    if (model->packings == NULL) return apr_no_memory(err, "packed weights");
    const apr_status status = bind_all(model, &shared, err);
    APR_TRY(apr_quantization_check(model->quantization, err)); /* its message is set already */
    return status;
}
