/* sizes.c - builds a skeleton model (names and shapes), and computes the size of each weight. */
#include "tools/engine/plan/sizes.h"

#include "formats/base/bytes.h"
#include "formats/base/json.h"
#include "formats/base/text.h"
#include "formats/packed/hf_quantization.h"
#include "formats/tensor/packed_weights.h"
#include "kernels/repack.h"
#include "quant/mixtures.h"

#include <stdio.h>
#include <stdlib.h>
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

/* Do the convolutions of state-space layers have biases? They do unless config.json says otherwise. */
static apr_status read_conv_biases(const apr_model *source, bool *has, apr_error *err)
{
    const apr_attachment *const file = apr_model_attachment(source, "config.json");
    cJSON *config = NULL;

    *has = true;
    if (file == NULL) return APR_OK;
    APR_TRY(apr_json_parse(&config, file->data, file->n_bytes, source->path, err));
    if (!apr_json_get_bool(config, "mamba_conv_bias", has)) apr_json_get_bool(config, "use_conv_bias", has);
    cJSON_Delete(config);
    return APR_OK;
}

/* Marks the optional slots that a checkpoint of this config has: is_present[n_weights]. */
static void find_present(const apr_program *program, bool has_conv_biases, bool *is_present)
{
    int64_t last_conv = -1; /* the latest convolution: that of a state-space layer comes before its APR_OP_SSD */

    for (size_t i = 0; i < program->n_ops; i++) {
        const apr_op *const op = &program->ops[i];
        if (op->kind == APR_OP_CONV) last_conv = (int64_t)i;
        if (op->kind != APR_OP_SSD || last_conv < 0 || !has_conv_biases) continue;
        const apr_op *const conv = &program->ops[last_conv];
        if (conv->layer == op->layer && conv->weight[1] >= 0) is_present[conv->weight[1]] = true;
    }
}

apr_status apr_skeleton_model(apr_model *model, const apr_program *program, const apr_model *source, apr_error *err)
{
    *model =
        (apr_model){.path = source->path, .format = APR_FORMAT_CONFIG, .hparams = source->hparams, .quantization = source->quantization};
    model->tensors = apr_arena_array(&model->arena, program->n_weights + 1, sizeof *model->tensors);
    bool *const is_present = apr_arena_array(&model->arena, program->n_weights + 1, sizeof *is_present), has_biases;
    if (model->tensors == NULL || is_present == NULL) return apr_no_memory(err, "a table of tensors");
    APR_TRY(read_conv_biases(source, &has_biases, err));
    find_present(program, has_biases, is_present);
    for (size_t i = 0; i < program->n_weights; i++) {
        const apr_weight_slot *const slot = &program->weights[i];
        apr_tensor *const tensor = &model->tensors[model->n_tensors];
        if (slot->optional && !is_present[i]) continue;
        *tensor = (apr_tensor){.name = slot->name, .dtype = stored_dtype(&source->hparams), .rank = slot->rank};
        for (int d = 0; d < slot->rank; d++) tensor->dims[d] = slot->dims[d];
        APR_TRY(apr_tensor_size(tensor, source->path, err));
        model->n_tensors++;
    }
    return apr_model_index_names(model, err);
}

/* Sizes of one tensor, not padded: its numbers, and its scales if they are a tensor of their own. */
typedef struct tensor_bytes {
    uint64_t numbers, scales;
    apr_dtype dtype;
} tensor_bytes;

static tensor_bytes stored_bytes(const apr_tensor *tensor, apr_dtype to)
{
    const bool new_scales = apr_dtypes[to].scales == APR_SCALES_SEPARATE && tensor->dtype != to;
    const uint64_t scales = new_scales ? (uint64_t)apr_tensor_rows(tensor) * sizeof(float) : 0;
    const uint64_t kept_scales = tensor->dtype == to && tensor->scale != NULL ? tensor->scale->n_bytes : 0;
    return (tensor_bytes){apr_recipe_bytes(tensor, to) - scales, scales + kept_scales, to};
}

/* Size of n such tensors. A file pads each; on a device a layer's experts are one stack, padded as a whole. */
static uint64_t padded(tensor_bytes each, uint64_t n, bool stacked)
{
    const uint64_t alone = apr_saturating_add(apr_pad64(each.numbers), apr_pad64(each.scales));
    if (!stacked) return apr_saturating_mul(alone, n);
    return apr_saturating_add(apr_pad64(apr_saturating_mul(each.numbers, n)), apr_pad64(apr_saturating_mul(each.scales, n)));
}

/* --- skeletons, by quantization_config --- */

static apr_module_kind module_kind(const apr_family *family, const apr_weight_slot *slot, const apr_tensor *tensor)
{
    const apr_tensor_role role = apr_find_tensor_role(family, tensor).role;

    if (slot->role == APR_ROLE_VECTORS || role == APR_TENSOR_ROLE_EMBEDDING || role == APR_TENSOR_ROLE_ROUTER ||
        role == APR_TENSOR_ROLE_SMALL)
        return APR_MODULE_OTHER; /* no producer quantizes these */
    if (slot->role == APR_ROLE_HEAD) return APR_MODULE_HEAD;
    return slot->role == APR_ROLE_EXPERTS ? APR_MODULE_EXPERTS : APR_MODULE_LINEAR;
}

static const apr_quant_scheme *published_scheme(const apr_model *skeleton, const apr_weight_slot *slot, const apr_tensor *tensor)
{
    char module[512];
    apr_slot_name(slot, 0, module, sizeof module);
    const size_t n = apr_stem_of(module, ".weight");
    if (n > 0) module[n] = '\0';
    return apr_quantization_of(skeleton->quantization, module, module_kind(apr_family_find(skeleton->hparams.architecture), slot, tensor));
}

/* gpt-oss's codes and scales are read as MXFP4 blocks; those of other producers keep their layout. */
static apr_dtype published_dtype(const apr_model *skeleton, const apr_quant_scheme *scheme)
{
    const bool is_gpt_oss = scheme->layout == APR_QUANT_MXFP4 && strcmp(skeleton->quantization->method, "mxfp4") == 0;
    return is_gpt_oss ? APR_MXFP4 : APR_DTYPE_COUNT;
}

/* Size of all matrices of a slot: as the producer writes them, or as the one stack on a device. */
static uint64_t published_bytes(const apr_quant_scheme *scheme, const apr_weight_slot *slot, bool stacked)
{
    const int64_t n = slot->rank == 3 ? slot->dims[0] : 1, rows = slot->dims[slot->rank - 2], columns = slot->dims[slot->rank - 1];
    if (stacked) return apr_quant_device_bytes(scheme, n * slot->count, rows, columns);
    return apr_saturating_mul(apr_pad64(apr_quant_bytes(scheme, n, rows, columns)), (uint64_t)slot->count);
}

static apr_status check_understood(const apr_model *skeleton, apr_error *err)
{
    const apr_quantization *const q = skeleton->quantization;
    if (q == NULL || q->problem == NULL) return APR_OK;
    return apr_fail(err, APR_E_UNSUPPORTED,
                    "%s: the weights are quantized by '%s', and one thing of it is not supported: %s; give --dtype TYPE to plan for "
                    "another type",
                    skeleton->path, q->method, q->problem);
}

/* --- by recipe --- */

typedef struct sizing {
    const apr_model *model;
    const apr_tensor *next;        /* skeleton: the tensor of the next slot that has one */
    const apr_recipe_line **lines; /* [n_tensors] the recipe's line of each tensor; NULL: it is left out */
    bool stacked;
} sizing;

static tensor_bytes bytes_by_recipe(const sizing *s, const apr_tensor *tensor)
{
    const apr_recipe_line *const line = tensor != NULL ? s->lines[tensor - s->model->tensors] : NULL;
    return line != NULL ? stored_bytes(tensor, line->to) : (tensor_bytes){0, 0, APR_DTYPE_COUNT};
}

/* Size of one tensor of a slot. A packed one is the sum of its parts, each padded. */
static tensor_bytes bytes_of_tensor(const sizing *s, const apr_weight_slot *slot, int64_t index)
{
    char name[512], part[576];

    apr_slot_name(slot, index, name, sizeof name);
    const size_t n_stem = apr_stem_of(name, ".weight"), n = n_stem > 0 ? n_stem : strlen(name);
    const apr_tensor *const whole = apr_model_find(s->model, name);
    tensor_bytes bytes = bytes_by_recipe(s, whole);
    const bool is_whole = whole != NULL && apr_dtype_is_weights(whole->dtype);
    for (size_t i = 0; !is_whole && apr_packed_suffixes[i] != NULL; i++) {
        snprintf(part, sizeof part, "%.*s%s", (int)n, name, apr_packed_suffixes[i]);
        bytes.numbers = apr_saturating_add(apr_pad64(bytes.numbers), padded(bytes_by_recipe(s, apr_model_find(s->model, part)), 1, false));
    }
    return bytes;
}

/* Size of a slot of a skeleton. Its tensors are in the order of the slots. */
static void skeleton_bytes(sizing *s, const apr_weight_slot *slot, const char *mixture, apr_weight_size *size)
{
    *size = (apr_weight_size){.dtype = APR_DTYPE_COUNT};
    const bool is_there = s->next < s->model->tensors + s->model->n_tensors && strcmp(s->next->name, slot->name) == 0;
    if (!is_there) return; /* it is optional, and this config has none */
    const apr_tensor *const tensor = s->next++;
    const apr_quant_scheme *const scheme = mixture == NULL ? published_scheme(s->model, slot, tensor) : NULL;
    if (scheme != NULL) {
        *size = (apr_weight_size){.bytes = published_bytes(scheme, slot, s->stacked), .dtype = published_dtype(s->model, scheme)};
        return;
    }
    const tensor_bytes each = mixture == NULL ? stored_bytes(tensor, tensor->dtype) : bytes_by_recipe(s, tensor);
    *size =
        (apr_weight_size){.bytes = padded(each, (uint64_t)slot->count, s->stacked), .is_f16 = each.dtype == APR_F16, .dtype = each.dtype};
}

/* Copies of the slot's tensors, [slot->count], if the first is packed. NULL: it is not, or no memory. The caller frees them. */
static apr_tensor *packed_tensors(const sizing *s, const apr_weight_slot *slot)
{
    char name[512];
    const apr_tensor *tensor = apr_model_find(s->model, apr_slot_name(slot, 0, name, sizeof name));
    if (tensor == NULL || !apr_tensor_is_packed(tensor)) return NULL;
    apr_tensor *const parts = calloc((size_t)slot->count, sizeof *parts);
    for (int64_t i = 0; parts != NULL && i < slot->count; i++) {
        tensor = apr_model_find(s->model, apr_slot_name(slot, i, name, sizeof name));
        if (tensor != NULL) parts[i] = *tensor;
    }
    return parts;
}

/* Size of packed matrices: their bytes in the file; on a device their canonical layout, or FP16 if they have none. False: not packed. */
static bool packed_slot_bytes(const sizing *s, const apr_weight_slot *slot, apr_weight_size *size)
{
    apr_tensor *const parts = packed_tensors(s, slot);
    apr_repack repack;

    if (parts == NULL) return false;
    *size = (apr_weight_size){.note.scheme = apr_tensor_encoding(parts), .dtype = APR_DTYPE_COUNT};
    if (!s->stacked) {
        for (int64_t i = 0; i < slot->count; i++) size->bytes = apr_saturating_add(size->bytes, apr_plan_tensor_bytes(&parts[i]));
    } else if (apr_repack_init(&repack, parts, slot->count)) {
        size->bytes = repack.offsets[APR_CANONICAL_SECTIONS];
    } else {
        size->bytes = apr_plan_slot_bytes(slot, APR_F16);
        size->is_f16 = size->note.decoded = true;
    }
    free(parts);
    return true;
}

static apr_status slot_bytes(const sizing *s, const apr_weight_slot *slot, apr_weight_size *size, apr_error *err)
{
    tensor_bytes first = {0, 0, APR_DTYPE_COUNT};
    bool same_dtype = true;
    uint64_t numbers = 0, scales = 0, alone = 0;

    *size = (apr_weight_size){.dtype = APR_DTYPE_COUNT};
    for (int64_t i = 0; i < slot->count; i++) {
        const tensor_bytes each = bytes_of_tensor(s, slot, i);
        char name[512];
        if (each.numbers == 0 && !slot->optional)
            return apr_fail(err, APR_E_UNSUPPORTED, "%s: tensor '%s' of a %s model is missing; plan from its config.json instead",
                            s->model->path, apr_slot_name(slot, i, name, sizeof name), s->model->hparams.architecture);
        if (i == 0) first = each;
        same_dtype &= each.dtype == first.dtype;
        numbers = apr_saturating_add(numbers, each.numbers);
        scales = apr_saturating_add(scales, each.scales);
        alone = apr_saturating_add(alone, padded(each, 1, false));
    }
    size->bytes = s->stacked ? padded((tensor_bytes){numbers, scales, first.dtype}, 1, false) : alone;
    size->is_f16 = first.dtype == APR_F16;
    size->dtype = same_dtype ? first.dtype : APR_DTYPE_COUNT;
    return APR_OK;
}

apr_status apr_weight_sizes(const apr_model *model, const apr_program *program, const char *mixture, bool stacked, apr_weight_size *sizes,
                            apr_error *err)
{
    const apr_recipe_options options = {.mixture = mixture, .allow_requantize = true, .limits = {.container = "APR"}};
    apr_recipe recipe;
    sizing s = {.model = model, .next = model->tensors, .stacked = stacked};
    const bool is_skeleton = model->format == APR_FORMAT_CONFIG;

    if (is_skeleton && mixture == NULL) APR_TRY(check_understood(model, err));
    APR_TRY(apr_recipe_make(&recipe, model, &options, err));
    apr_status status = APR_OK;
    s.lines = apr_arena_array(&recipe.arena, model->n_tensors + 1, sizeof *s.lines);
    if (s.lines == NULL) status = apr_no_memory(err, "the sizes of the weights");
    for (size_t i = 0; status == APR_OK && i < recipe.n_lines; i++) s.lines[recipe.lines[i].tensor - model->tensors] = &recipe.lines[i];
    for (size_t i = 0; status == APR_OK && i < program->n_weights; i++) {
        if (is_skeleton) skeleton_bytes(&s, &program->weights[i], mixture, &sizes[i]);
        else if (mixture != NULL || !packed_slot_bytes(&s, &program->weights[i], &sizes[i]))
            status = slot_bytes(&s, &program->weights[i], &sizes[i], err);
    }
    if (status == APR_OK && is_skeleton && mixture == NULL) status = apr_quantization_check(model->quantization, err);
    apr_recipe_close(&recipe);
    return status;
}

/* No matrix gets fewer bits than the mixture's base type; other tensors keep their type or get more bits. */
/* The bits of the smallest type that a mixture gives: its base, or one of its rules'. */
static double least_bits(const apr_mixture *m)
{
    double least = apr_dtype_bits(m->base);
    for (const apr_mixture_rule *rule = m->rules; rule != NULL && rule->to != APR_DTYPE_COUNT; rule++)
        if (apr_dtype_bits(rule->to) < least) least = apr_dtype_bits(rule->to);
    return least;
}

uint64_t apr_weight_bytes_lower_bound(const apr_program *program, const char *mixture)
{
    const apr_mixture *const m = apr_mixture_find(mixture);
    double n_elems = 0.0;

    if (m == NULL) return 0;
    for (size_t i = 0; i < program->n_weights; i++) {
        const apr_weight_slot *const slot = &program->weights[i];
        if (slot->optional || slot->rank < 2 || apr_slot_is_read_on_host(slot)) continue;
        n_elems += (double)apr_slot_elems(slot);
    }
    return (uint64_t)(n_elems * least_bits(m) / 8.0 * 0.999); /* for the rounding of this sum */
}
