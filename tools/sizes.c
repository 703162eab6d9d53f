/* sizes.c - a model of names and shapes, and its weights' sizes by recipe. */
#include "tools/sizes.h"

#include <stdio.h>
#include <string.h>

static apr_dtype stored_dtype(const apr_hparams *hparams)
{
    static const struct {
        const char *name;
        apr_dtype dtype;
    } names[] = {{"float32", APR_F32}, {"float16", APR_F16}, {"bfloat16", APR_BF16}};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (hparams->torch_dtype != NULL && strcmp(hparams->torch_dtype, names[i].name) == 0) return names[i].dtype;
    return APR_BF16;
}

apr_status apr_skeleton_model(apr_model *model, const apr_program *program, const apr_hparams *hparams, apr_error *err)
{
    *model = (apr_model){.path = "config.json", .format = APR_FORMAT_CONFIG, .hparams = *hparams};
    model->tensors = apr_arena_array(&model->arena, program->n_weights + 1, sizeof *model->tensors);
    if (model->tensors == NULL) return apr_no_memory(err, "a table of tensors");
    for (size_t i = 0; i < program->n_weights; i++) {
        const apr_weight_slot *const slot = &program->weights[i];
        apr_tensor *const tensor = &model->tensors[model->n_tensors];
        if (slot->optional) continue; /* a config that means it says so: the slot is then required */
        *tensor = (apr_tensor){.name = slot->name, .dtype = stored_dtype(hparams), .rank = slot->rank};
        for (int d = 0; d < slot->rank; d++) tensor->dims[d] = slot->dims[d];
        APR_TRY(apr_tensor_size(tensor, "config.json", err));
        model->n_tensors++;
    }
    return apr_model_index_names(model, err);
}

static uint64_t pad(uint64_t n_bytes) { return apr_align_up(n_bytes, 64); }

/* Weights and FP8 row scales are two tensors of the file. */
static uint64_t stored_bytes(const apr_tensor *tensor, apr_dtype to)
{
    const bool new_scales = to == APR_F8_E4M3 && tensor->dtype != to;
    const uint64_t scales = new_scales ? (uint64_t)apr_tensor_rows(tensor) * sizeof(float) : 0;
    const uint64_t kept_scales = tensor->dtype == to && tensor->scale != NULL ? tensor->scale->n_bytes : 0;
    return pad(apr_recipe_bytes(tensor, to) - scales) + pad(scales) + pad(kept_scales);
}

/* Bytes of the tensor called `name` + `ending` once the recipe is done with it; 0 when there is none. */
static uint64_t bytes_by_name(const apr_model *model, const apr_recipe *recipe, const char *name, const char *ending)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", name, ending);
    const apr_tensor *const tensor = apr_model_find(model, whole);
    for (size_t i = 0; tensor != NULL && i < recipe->n_lines; i++)
        if (recipe->lines[i].tensor == tensor) return stored_bytes(tensor, recipe->lines[i].to);
    return 0;
}

apr_status apr_weight_sizes(const apr_model *model, const apr_program *program, const char *mixture, uint64_t *bytes, apr_error *err)
{
    const apr_recipe_options options = {.mixture = mixture, .allow_requantize = true, .limits = {.container = "APR"}};
    apr_recipe recipe;
    apr_status status = apr_recipe_make(&recipe, model, &options, err);

    if (status != APR_OK) return status;
    for (size_t i = 0; i < program->n_weights && status == APR_OK; i++) {
        const apr_weight_slot *const slot = &program->weights[i];
        bytes[i] = bytes_by_name(model, &recipe, slot->name, "");
        /* gpt-oss keeps the codes and the scales of its experts apart */
        if (bytes[i] == 0)
            bytes[i] = bytes_by_name(model, &recipe, slot->name, "_blocks") + bytes_by_name(model, &recipe, slot->name, "_scales");
        if (bytes[i] == 0 && !slot->optional)
            status = apr_fail(err, APR_E_UNSUPPORTED, "%s: no tensor '%s', which a %s model has; plan from its config.json instead",
                              model->path, slot->name, program->architecture);
    }
    apr_recipe_close(&recipe);
    return status;
}
