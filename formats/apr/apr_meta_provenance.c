/* apr_meta_provenance.c - reads and writes a tensor's provenance in an APR file: how it was made from the tensors of its origin.
 *
 *     "origin": "blk.0.attn_q.weight"          its name in the origin, if different
 *     "origins": ["...", "..."]                instead of "origin": the tensors that were stacked or concatenated
 *     "lengths": [2048, 512]                   their lengths along the axis of concatenation
 *     "steps": ["", "unsqueeze:0"]             steps applied to each of them before, if any
 *     "step": "pairs_to_halves:14"             the chain of steps (formats/tensor/step.h) applied to the origin
 *     "kept": "..."                            the tensor that keeps the origin's bytes, if the chain has no exact inverse */
#include "formats/apr/apr_meta.h"

#include <string.h>

static const struct {
    apr_format format;
    const char *word;
} origins[] = {{APR_FORMAT_GGUF, "gguf"}, {APR_FORMAT_SAFETENSORS, "safetensors"}, {APR_FORMAT_CONSOLIDATED, "consolidated"}};

static const char *const namings[] = {[APR_NAMING_HF] = "hf", [APR_NAMING_GGML] = "ggml", [APR_NAMING_META] = "meta"};

const char *apr_meta_origin_name(apr_format format)
{
    for (size_t i = 0; i < sizeof origins / sizeof *origins; i++)
        if (origins[i].format == format) return origins[i].word;
    return NULL;
}

bool apr_meta_find_origin(const char *word, apr_format *format)
{
    for (size_t i = 0; i < sizeof origins / sizeof *origins; i++)
        if (strcmp(origins[i].word, word) == 0) return *format = origins[i].format, true;
    return false;
}

const char *apr_meta_naming_name(apr_naming naming) { return namings[naming]; }

bool apr_meta_find_naming(const char *word, apr_naming *naming)
{
    for (size_t i = 0; word != NULL && i < sizeof namings / sizeof *namings; i++)
        if (strcmp(namings[i], word) == 0) return *naming = (apr_naming)i, true;
    return false;
}

static void write_text(apr_json_text *out, const char *key, const char *text)
{
    if (text != NULL && *text != '\0') apr_json_string(out, key, text, strlen(text));
}

bool apr_meta_has_provenance(const apr_tensor *t)
{
    return t->origin_name != NULL || t->origin_chain.n_steps > 0 || t->origins != NULL || t->origin_kept != NULL;
}

void apr_meta_write_provenance(apr_json_text *out, const apr_tensor *t)
{
    const apr_origins *const several = t->origins;
    char steps[APR_CHAIN_TEXT];

    write_text(out, "origin", t->origin_name);
    if (several != NULL) {
        apr_json_open(out, "origins", '[');
        for (size_t i = 0; i < several->n; i++) write_text(out, NULL, several->names[i]);
        apr_json_close(out, ']');
    }
    if (several != NULL && several->lengths != NULL) {
        apr_json_open(out, "lengths", '[');
        for (size_t i = 0; i < several->n; i++) apr_json_int(out, NULL, several->lengths[i]);
        apr_json_close(out, ']');
    }
    if (several != NULL && several->chains != NULL) {
        apr_json_open(out, "steps", '[');
        for (size_t i = 0; i < several->n; i++) {
            apr_chain_text(&several->chains[i], steps);
            apr_json_string(out, NULL, steps, strlen(steps));
        }
        apr_json_close(out, ']');
    }
    write_text(out, "step", apr_chain_text(&t->origin_chain, steps));
    write_text(out, "kept", t->origin_kept);
}

static apr_status bad_provenance(const apr_model *model, const apr_tensor *t, const char *what, apr_error *err)
{
    return apr_fail(err, APR_E_DAMAGED, "%s: the metadata of tensor '%s' is damaged at '%s'", model->path, t->name, what);
}

static apr_status read_name(apr_model *model, const apr_tensor *t, const cJSON *item, const char *key, const char **name, apr_error *err)
{
    if (item == NULL) return APR_OK;
    if (!cJSON_IsString(item)) return bad_provenance(model, t, key, err);
    *name = apr_arena_copy(&model->arena, item->valuestring, strlen(item->valuestring));
    return *name != NULL ? APR_OK : apr_no_memory(err, "the metadata");
}

static apr_status read_lengths(apr_model *model, const apr_tensor *t, const cJSON *list, apr_origins *several, apr_error *err)
{
    const cJSON *item;
    size_t n = 0;

    if (list == NULL) return APR_OK;
    int64_t *const lengths = apr_arena_array(&model->arena, several->n, sizeof *lengths);
    if (lengths == NULL) return apr_no_memory(err, "the metadata");
    if (!cJSON_IsArray(list)) return bad_provenance(model, t, "lengths", err);
    cJSON_ArrayForEach(item, list) if (n == several->n || !apr_json_as_int(item, &lengths[n]) ||
                                       lengths[n++] < 0) return bad_provenance(model, t, "lengths", err);
    if (n != several->n) return bad_provenance(model, t, "lengths", err);
    several->lengths = lengths;
    return APR_OK;
}

static apr_status read_chains(apr_model *model, const apr_tensor *t, const cJSON *list, apr_origins *several, apr_error *err)
{
    const cJSON *item;
    size_t n = 0;

    if (list == NULL) return APR_OK;
    apr_chain *const chains = apr_arena_array(&model->arena, several->n, sizeof *chains);
    if (chains == NULL) return apr_no_memory(err, "the metadata");
    if (!cJSON_IsArray(list)) return bad_provenance(model, t, "steps", err);
    cJSON_ArrayForEach(item, list)
    {
        if (n == several->n || !cJSON_IsString(item)) return bad_provenance(model, t, "steps", err);
        if (item->valuestring[0] != '\0' && !apr_chain_parse(&chains[n], item->valuestring)) return bad_provenance(model, t, "steps", err);
        n++;
    }
    if (n != several->n) return bad_provenance(model, t, "steps", err);
    several->chains = chains;
    return APR_OK;
}

static apr_status read_origins(apr_model *model, const cJSON *record, apr_tensor *t, apr_error *err)
{
    const cJSON *const list = apr_json_get(record, "origins"), *item;
    size_t n = 0;

    if (list == NULL) return APR_OK;
    if (!cJSON_IsArray(list) || list->child == NULL) return bad_provenance(model, t, "origins", err);
    cJSON_ArrayForEach(item, list) n++;
    apr_origins *const several = apr_arena_alloc(&model->arena, sizeof *several);
    const char **const names = apr_arena_array(&model->arena, n, sizeof *names);
    if (several == NULL || names == NULL) return apr_no_memory(err, "the metadata");
    *several = (apr_origins){.names = names, .n = n};
    n = 0;
    cJSON_ArrayForEach(item, list) APR_TRY(read_name(model, t, item, "origins", &names[n++], err));
    t->origins = several;
    APR_TRY(read_lengths(model, t, apr_json_get(record, "lengths"), several, err));
    return read_chains(model, t, apr_json_get(record, "steps"), several, err);
}

/* Do the lengths of the concatenated tensors add up to the dimension? */
static bool parts_fit(const apr_step *step, const apr_shape *shape, const apr_origins *several)
{
    const int at = shape->rank - 1 - step->n[0];
    int64_t length = 0;

    if (several == NULL) return false;
    if (step->kind == APR_STEP_STACK) return shape->rank > 0 && several->lengths == NULL && shape->dims[0] == (int64_t)several->n;
    if (step->n[0] < 0 || at < 0 || step->n[1] < 1 || several->lengths == NULL) return false;
    for (size_t i = 0; i < several->n; i++)
        if (several->lengths[i] % step->n[1] != 0 || __builtin_add_overflow(length, several->lengths[i], &length)) return false;
    return length == shape->dims[at];
}

/* Can the chain have ended in this shape? Checks it backwards while the steps have inverses, with any type, because a weight's type may
 * have changed since. Exporting checks the rest. */
static bool fits(const apr_chain *chain, const apr_tensor *t)
{
    apr_shape shape = {.rank = t->rank};
    apr_move move;

    memcpy(shape.dims, t->dims, sizeof shape.dims);
    for (int i = chain->n_steps; i-- > 0;) {
        const apr_step inverse = apr_step_inverse(chain->steps[i]);
        if (apr_step_kinds[chain->steps[i].kind].of_several) return i == 0 && parts_fit(&chain->steps[0], &shape, t->origins);
        if (inverse.kind == APR_STEP_NONE) return true;
        shape.dtype = APR_F32;
        if (!apr_step_kinds[inverse.kind].plan(&inverse, &shape, &move)) return false;
    }
    return true;
}

apr_status apr_meta_read_provenance(apr_model *model, const cJSON *record, apr_tensor *t, apr_error *err)
{
    const char *const steps = apr_json_get_string(record, "step");

    APR_TRY(read_name(model, t, apr_json_get(record, "origin"), "origin", &t->origin_name, err));
    APR_TRY(read_name(model, t, apr_json_get(record, "kept"), "kept", &t->origin_kept, err));
    APR_TRY(read_origins(model, record, t, err));
    if (steps != NULL && (!apr_chain_parse(&t->origin_chain, steps) || !fits(&t->origin_chain, t)))
        return apr_fail(err, APR_E_DAMAGED, "%s: the step '%.60s' does not fit tensor '%s'", model->path, steps, t->name);
    const bool of_several = t->origin_chain.n_steps > 0 && apr_step_kinds[t->origin_chain.steps[0].kind].of_several;
    if (of_several != (t->origins != NULL)) return bad_provenance(model, t, "origins", err);
    return APR_OK;
}
