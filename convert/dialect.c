/* dialect.c - views of a model under other names and orders; no weight is touched here. */
#include "convert/dialect.h"

#include "convert/way.h"
#include "formats/model/family.h"
#include "formats/model/packed_weights.h"
#include "formats/number/half.h"

#include <string.h>

apr_status apr_view_copy(apr_model *view, const apr_model *source, size_t n_extra, apr_error *err)
{
    *view = *source;
    view->arena = (apr_arena){0};
    view->maps = NULL;
    view->n_maps = 0;
    view->index = NULL;
    view->tensors = apr_arena_array(&view->arena, source->n_tensors + n_extra + 1, sizeof *view->tensors);
    if (view->tensors == NULL) return apr_no_memory(err, "a table of tensors");
    for (size_t i = 0; i < source->n_tensors; i++) {
        view->tensors[i] = source->tensors[i];
        if (source->tensors[i].scale != NULL) view->tensors[i].scale = view->tensors + (source->tensors[i].scale - source->tensors);
    }
    return apr_model_index_names(view, err);
}

apr_status apr_canonical(apr_model *view, const apr_model *source, apr_error *err)
{
    const apr_family *const family = apr_family_translated(source->hparams.architecture);

    APR_TRY(apr_view_copy(view, source, 0, err));
    if (source->dialect == APR_DIALECT_HF || family == NULL) return APR_OK;
    for (size_t i = 0; i < view->n_tensors; i++) {
        apr_tensor *const tensor = &view->tensors[i];
        const char *name = NULL;
        apr_step step;
        if (!apr_family_translate(family, APR_DIALECT_GGML, tensor->name, &source->hparams, &view->arena, &name, &step)) continue;
        if (name == NULL) return apr_no_memory(err, "a tensor's name");
        const apr_chain chain = apr_chain_of(step);
        APR_TRY(apr_way_go(tensor, name, &chain, &view->arena, source->path, err));
    }
    view->dialect = APR_DIALECT_HF;
    return apr_model_index_names(view, err);
}

/* A buffer that the target dialect's readers compute for themselves: inv_freq of old checkpoints; llama 3's rotary divisors
 * where config.json states the scaling. And what they have no use for: scales of the activations of FP8 weights, a type that GGUF
 * has not. */
static bool is_derived(const apr_model *model, const char *name, apr_dialect dialect)
{
    static const char ending[] = "rotary_emb.inv_freq";
    const size_t n = strlen(name), m = sizeof ending - 1;
    if (dialect == APR_DIALECT_GGML && model->origin.format != APR_FORMAT_GGUF && apr_is_activation_scale(name, NULL, 0)) return true;
    if (dialect == APR_DIALECT_GGML) return n >= m && strcmp(name + n - m, ending) == 0;
    return strcmp(name, "rope_freqs.weight") == 0 && model->hparams.rope.kind == APR_ROPE_LLAMA3;
}

/* Rotary divisors that no known scaling explains cannot be said in a config.json: a reader of it would compute something else. */
static apr_status check_divisors(const apr_model *model, apr_error *err)
{
    if (apr_model_find(model, "rope_freqs.weight") == NULL || model->hparams.rope.kind == APR_ROPE_LLAMA3) return APR_OK;
    return apr_fail(err, APR_E_UNSUPPORTED,
                    "%s: the rotary divisors of tensor 'rope_freqs.weight' are those of no known scaling, and a config.json cannot state "
                    "them; keep it as .apr or .gguf",
                    model->path);
}

static bool are_equal(const apr_tensor *a, const apr_tensor *b)
{
    const bool both_lie = a->made == NULL && b->made == NULL;
    return both_lie && a->dtype == b->dtype && a->n_bytes == b->n_bytes && memcmp(a->data, b->data, a->n_bytes) == 0;
}

/* The copy of a tied embedding that some readers need, made by us (it bears the embedding's story, not its own) or by aprender. */
static bool is_made_copy(const apr_model *model, const apr_tensor *tensor)
{
    const apr_tensor *const embedding = apr_model_find(model, "model.embed_tokens.weight");
    if (embedding == NULL || strcmp(tensor->name, "lm_head.weight") != 0) return false;
    if (model->origin.format == APR_FORMAT_NONE) return model->hparams.tie_word_embeddings && are_equal(tensor, embedding);
    const char *const story = embedding->origin_name != NULL ? embedding->origin_name : embedding->name;
    return tensor->origin_name != NULL && strcmp(tensor->origin_name, story) == 0;
}

bool apr_is_idle_head(const apr_model *model, const apr_tensor *tensor)
{
    static const char head[] = "lm_head.weight";
    if (!model->hparams.tie_word_embeddings || apr_model_find(model, "model.embed_tokens.weight") == NULL) return false;
    return strncmp(tensor->name, head, sizeof head - 1) == 0; /* with the scales of it */
}

/* Marks the scales of other tensors. */
static bool *find_scales(apr_model *view)
{
    bool *const is_scale = apr_arena_array(&view->arena, view->n_tensors + 1, sizeof *is_scale);
    for (size_t i = 0; i < view->n_tensors && is_scale != NULL; i++)
        if (view->tensors[i].scale != NULL) is_scale[view->tensors[i].scale - view->tensors] = true;
    return is_scale;
}

/* Names and pending steps of tensors that never were in ggml's dialect. */
static apr_status to_ggml(apr_model *view, const apr_model *canonical, apr_error *err)
{
    const apr_family *const family = apr_family_translated(canonical->hparams.architecture);
    const bool *const is_scale = find_scales(view);

    if (is_scale == NULL) return apr_no_memory(err, "a table of tensors");
    for (size_t i = 0; i < view->n_tensors; i++) {
        apr_tensor *const tensor = &view->tensors[i];
        const char *name = tensor->name;
        apr_step step = {0};
        if (family == NULL)
            return apr_fail(
                err, APR_E_UNSUPPORTED,
                "%s: the way from Hugging Face's names to ggml's is not known for architecture '%s'; keep it as .apr or safetensors",
                canonical->path, canonical->hparams.architecture);
        if (!apr_family_translate(family, APR_DIALECT_HF, tensor->name, &canonical->hparams, &view->arena, &name, &step) && !is_scale[i] &&
            strcmp(tensor->name, "rope_freqs.weight") != 0)
            return apr_fail(err, APR_E_UNSUPPORTED, "%s: tensor '%s' has no name in ggml's dialect for architecture '%s'", canonical->path,
                            tensor->name, canonical->hparams.architecture);
        if (name == NULL) return apr_no_memory(err, "a tensor's name");
        const apr_chain chain = apr_chain_of(step);
        APR_TRY(apr_way_go(tensor, name, &chain, &view->arena, canonical->path, err));
    }
    return APR_OK;
}

/* Removes what the target dialect does not keep; scale pointers move along. */
static apr_status drop_tensors(apr_model *view, const apr_model *canonical, apr_dialect dialect, apr_error *err)
{
    apr_tensor **const moved = apr_arena_array(&view->arena, canonical->n_tensors + 1, sizeof *moved); /* old place -> new place */
    if (moved == NULL) return apr_no_memory(err, "a table of tensors");
    view->n_tensors = 0;
    for (size_t i = 0; i < canonical->n_tensors; i++) {
        const apr_tensor *const tensor = &canonical->tensors[i];
        const bool is_idle = dialect == APR_DIALECT_GGML && apr_is_idle_head(canonical, tensor);
        if (is_made_copy(canonical, tensor) || is_idle || is_derived(canonical, tensor->name, dialect)) continue;
        moved[i] = &view->tensors[view->n_tensors++];
        *moved[i] = canonical->tensors[i];
    }
    for (size_t i = 0; i < view->n_tensors; i++)
        if (view->tensors[i].scale != NULL) view->tensors[i].scale = moved[view->tensors[i].scale - canonical->tensors];
    return APR_OK;
}

/* ggml has no key for llama 3's rotary scaling: the divisors of the frequencies travel as a tensor. */
static apr_status add_rope_divisors(apr_model *view, apr_error *err)
{
    const apr_hparams *const h = &view->hparams;
    if (h->rope.kind != APR_ROPE_LLAMA3 || h->rotary_dim < 2 || apr_model_find(view, "rope_freqs.weight") != NULL) return APR_OK;
    float *const divisors = apr_arena_array(&view->arena, (size_t)h->rotary_dim / 2, sizeof *divisors);
    if (divisors == NULL) return apr_no_memory(err, "rotary divisors");
    for (int64_t i = 0; i < h->rotary_dim / 2; i++) {
        const float divisor = (float)apr_rope_divisor(&h->rope, h->rope_theta, h->rotary_dim, i);
        apr_store_le32(&divisors[i], apr_f32_bits(divisor));
    }
    apr_tensor *const tensor = &view->tensors[view->n_tensors++];
    *tensor = (apr_tensor){
        .name = "rope_freqs.weight", .dtype = APR_F32, .rank = 1, .dims = {h->rotary_dim / 2}, .data = (const uint8_t *)divisors};
    return apr_tensor_size(tensor, view->path, err);
}

apr_status apr_translate(apr_model *view, const apr_model *canonical, apr_dialect dialect, apr_error *err)
{
    if (dialect == APR_DIALECT_HF) APR_TRY(check_divisors(canonical, err));
    APR_TRY(apr_view_copy(view, canonical, 1, err));
    APR_TRY(drop_tensors(view, canonical, dialect, err));
    if (canonical->dialect == dialect) return apr_model_index_names(view, err);
    if (dialect == APR_DIALECT_HF)
        return apr_fail(err, APR_E_UNSUPPORTED,
                        "%s: the way from ggml's names to Hugging Face's is not known for architecture '%s'; keep it as .apr or .gguf",
                        canonical->path, canonical->hparams.architecture);
    if (canonical->origin.format == APR_FORMAT_GGUF) {
        APR_TRY(apr_model_index_names(view, err));
        APR_TRY(apr_way_back(view, err));
    } else {
        APR_TRY(to_ggml(view, canonical, err));
        APR_TRY(add_rope_divisors(view, err));
    }
    view->dialect = dialect;
    return apr_model_index_names(view, err);
}
