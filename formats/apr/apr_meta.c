/* apr_meta.c - an APR file's metadata, read and written: each canonical key once, and the same bytes for the same model. */
#include "formats/apr/apr_meta.h"
#include "formats/base/base64.h"
#include "formats/base/text.h"
#include "formats/files/checkpoint_names.h"
#include "formats/packed/fp8_scales.h"
#include "formats/packed/hf_quantization.h"
#include "formats/packed/packings.h"
#include "formats/shape/apr_meta_hparams.h"
#include "formats/shape/family.h"
#include "formats/shape/gguf_hparams.h"
#include "formats/shape/hf_config.h"
#include "formats/shape/meta_params.h"
#include "formats/shape/text_part.h"
#include "formats/vocab/apr_meta_vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

/* The JSON values for an origin's format and for a naming scheme. */
static const char *const origins[] = {
    [APR_FORMAT_GGUF] = "gguf", [APR_FORMAT_SAFETENSORS] = "safetensors", [APR_FORMAT_CONSOLIDATED] = "consolidated"};
static const char *const namings[] = {[APR_NAMING_HF] = "hf", [APR_NAMING_GGML] = "ggml", [APR_NAMING_META] = "meta"};
enum { N_ORIGINS = sizeof origins / sizeof *origins, N_NAMINGS = sizeof namings / sizeof *namings };

/* NULL: the format is not one of an origin. */
static const char *origin_name(apr_format format) { return (size_t)format < N_ORIGINS ? origins[format] : NULL; }

/* The index of the word; -1: none. */
static int find_word(const char *word, const char *const *words, int n)
{
    for (int i = 0; word != NULL && i < n; i++)
        if (words[i] != NULL && strcmp(words[i], word) == 0) return i;
    return -1;
}

/* --- a tensor's provenance: how it was made from the tensors of its origin
 *
 *     "origin": "blk.0.attn_q.weight"          its name in the origin, if different
 *     "origins": ["...", "..."]                instead of "origin": the tensors that were stacked or concatenated
 *     "lengths": [2048, 512]                   their lengths along the axis of concatenation
 *     "steps": ["", "unsqueeze:0"]             steps applied to each of them before, if any
 *     "step": "pairs_to_halves:14"             the chain of steps (formats/tensor/step.h) applied to the origin
 *     "kept": "..."                            the tensor that keeps the origin's bytes, if the chain has no exact inverse --- */

static void write_string(apr_json_text *out, const char *key, const char *text)
{
    if (text != NULL && *text != '\0') apr_json_cstring(out, key, text);
}

static bool has_provenance(const apr_tensor *t)
{
    return t->origin_name != NULL || t->origin_chain.n_steps > 0 || t->origins != NULL || t->origin_kept != NULL;
}

static void write_provenance(apr_json_text *out, const apr_tensor *t)
{
    const apr_origins *const several = t->origins;
    char steps[APR_CHAIN_TEXT];

    write_string(out, "origin", t->origin_name);
    if (several != NULL) {
        apr_json_open(out, "origins", '[');
        for (size_t i = 0; i < several->n; i++) write_string(out, NULL, several->names[i]);
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
            apr_json_cstring(out, NULL, steps);
        }
        apr_json_close(out, ']');
    }
    write_string(out, "step", apr_chain_text(&t->origin_chain, steps));
    write_string(out, "kept", t->origin_kept);
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

static apr_status read_provenance(apr_model *model, const cJSON *record, apr_tensor *t, apr_error *err)
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

/* --- keys with a meaning --- */

enum { MAX_FILES = 1000 };

const cJSON *apr_meta_aprkit(const cJSON *root)
{
    const cJSON *const kit = apr_json_get(root, "aprkit");
    return cJSON_IsObject(kit) ? kit : NULL;
}

/* Alternative keys that realizar accepts for a hyperparameter; ends with NULL. */
static const char *const *aliases_of(const char *key)
{
    static const struct {
        const char *key, *aliases[5];
    } groups[] = {
        {"hidden_size", {"hidden_dim", "d_model", "n_embd"}},
        {"num_layers", {"n_layers", "num_hidden_layers", "n_layer"}},
        {"num_heads", {"n_heads", "num_attention_heads", "n_head"}},
        {"num_kv_heads", {"n_kv_heads", "num_key_value_heads"}},
        {"vocab_size", {"n_vocab"}},
        {"intermediate_size", {"ffn_dim", "intermediate_dim", "n_inner"}},
        {"max_position_embeddings", {"max_seq_len", "context_length", "n_ctx"}},
        {"rms_norm_eps", {"layer_norm_eps", "norm_eps"}},
    };
    static const char *const none[] = {NULL};

    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (strcmp(groups[i].key, key) == 0) return groups[i].aliases;
    return none;
}

/* True for a top-level key with a defined meaning, which cannot hold free metadata. */
static bool is_reserved(const char *key)
{
    static const char *const others[] = {"aprkit",    "architecture",   "hf_architecture", "hf_model_type",
                                         "rope_type", "norm_topk_prob", "chat_template",   "tied_embeddings"};

    if (strncmp(key, "tokenizer.", strlen("tokenizer.")) == 0 || find_word(key, others, sizeof others / sizeof *others) >= 0) return true;
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        if (strcmp(apr_hparam_fields[i].name, key) == 0) return true;
        for (const char *const *alias = aliases_of(apr_hparam_fields[i].name); *alias != NULL; alias++)
            if (strcmp(*alias, key) == 0) return true;
    }
    return false;
}

/* Copies the string under `key`; NULL if it is absent. False: no memory. */
static bool copy_string(apr_model *model, const cJSON *object, const char *key, const char **copy)
{
    const char *const text = apr_json_get_string(object, key);
    *copy = text != NULL ? apr_arena_copy(&model->arena, text, strlen(text)) : NULL;
    return text == NULL || *copy != NULL;
}

/* --- binary data in JSON --- */

typedef struct blob_reader {
    apr_model *model;
    apr_error *err;
    uint64_t n_unpacked; /* bytes of all blobs so far */
} blob_reader;

static apr_status unpack(blob_reader *r, const uint8_t *packed, size_t n_packed, const char *what, uint8_t *bytes, size_t n_bytes)
{
    const size_t n = ZSTD_decompress(bytes, n_bytes, packed, n_packed);
    if (ZSTD_isError(n) || n != n_bytes)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: metadata '%s' does not unpack to %zu bytes", r->model->path, what, n_bytes);
    return APR_OK;
}

/* Checks that the sizes in the frame and in the JSON agree and are within the limits before allocating. */
static apr_status unpack_base64(blob_reader *r, const char *text, uint64_t n_bytes, const char *what, uint8_t **bytes)
{
    const size_t n_chars = strlen(text), n_packed = apr_base64_bytes(text, n_chars);
    uint8_t *const packed = malloc(n_packed + 1);

    if (packed == NULL) return apr_no_memory(r->err, what);
    apr_status status = APR_OK;
    if (!apr_base64_decode(text, n_chars, packed))
        status = apr_fail(r->err, APR_E_DAMAGED, "%s: metadata '%s' is not base64", r->model->path, what);
    else if (ZSTD_getFrameContentSize(packed, n_packed) != n_bytes || ZSTD_findFrameCompressedSize(packed, n_packed) != n_packed)
        status = apr_fail(r->err, APR_E_DAMAGED, "%s: metadata '%s' is not one zstd frame of the %llu bytes stated", r->model->path, what,
                          (unsigned long long)n_bytes);
    else if (n_bytes > apr_meta_max_unpacked - r->n_unpacked ||
             (n_bytes > apr_meta_always_unpacked && n_bytes / n_packed > apr_meta_max_ratio))
        status = apr_fail(r->err, APR_E_DAMAGED, "%s: metadata '%s' would unpack from %zu to %llu bytes, more than any model file needs",
                          r->model->path, what, n_packed, (unsigned long long)n_bytes);
    else if ((*bytes = apr_arena_alloc(&r->model->arena, (size_t)n_bytes + 1)) == NULL) status = apr_no_memory(r->err, what);
    if (status == APR_OK) status = unpack(r, packed, n_packed, what, *bytes, (size_t)n_bytes);
    if (status == APR_OK) r->n_unpacked += n_bytes;
    free(packed);
    return status;
}

static apr_status copy_base64(blob_reader *r, const char *text, uint64_t n_bytes, const char *what, uint8_t **bytes)
{
    const size_t n_chars = strlen(text);

    if (apr_base64_bytes(text, n_chars) != n_bytes || n_bytes > apr_meta_max_unpacked - r->n_unpacked)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: metadata '%s' is not base64 of %llu bytes", r->model->path, what,
                        (unsigned long long)n_bytes);
    *bytes = apr_arena_alloc(&r->model->arena, (size_t)n_bytes + 1);
    if (*bytes == NULL) return apr_no_memory(r->err, what);
    if (!apr_base64_decode(text, n_chars, *bytes))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: metadata '%s' is not base64", r->model->path, what);
    r->n_unpacked += n_bytes;
    return APR_OK;
}

/* Reads an object {"bytes", "encoding", "data"}. */
static apr_status read_blob(blob_reader *r, const cJSON *object, const char *what, const uint8_t **bytes, size_t *n_bytes)
{
    const char *const encoding = apr_json_get_string(object, "encoding"), *const data = apr_json_get_string(object, "data");
    int64_t n = -1;
    uint8_t *copy = NULL;

    if (!apr_json_get_int(object, "bytes", &n) || n < 0 || encoding == NULL || data == NULL)
        return apr_meta_malformed(r->model, r->err, what);
    if (strcmp(encoding, "text") == 0) {
        if (strlen(data) != (uint64_t)n)
            return apr_fail(r->err, APR_E_DAMAGED, "%s: metadata '%s' has %zu bytes, not the %lld stated", r->model->path, what,
                            strlen(data), (long long)n);
        copy = (uint8_t *)apr_arena_copy(&r->model->arena, data, (size_t)n);
        if (copy == NULL) return apr_no_memory(r->err, what);
    } else if (strcmp(encoding, "zstd+base64") == 0) {
        APR_TRY(unpack_base64(r, data, (uint64_t)n, what, &copy));
    } else if (strcmp(encoding, "base64") == 0) {
        APR_TRY(copy_base64(r, data, (uint64_t)n, what, &copy));
    } else {
        return apr_fail(r->err, APR_E_UNSUPPORTED, "%s: metadata '%s' is encoded as '%.40s', which this program does not know",
                        r->model->path, what, encoding);
    }
    *bytes = copy;
    *n_bytes = (size_t)n;
    return APR_OK;
}

bool apr_meta_is_file_name(const char *name)
{
    const size_t n = strlen(name);
    size_t n_name;

    if (apr_template_name(name, &n_name) != NULL) return true;
    if (n == 0 || n > 255 || strchr(name, '/') != NULL || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return false;
    return !apr_ends_with(name, ".safetensors");
}

static apr_status read_files(blob_reader *r, const cJSON *kit)
{
    apr_model *const model = r->model;
    const cJSON *const files = apr_json_get(kit, "files"), *file;
    size_t n = 0;

    if (files == NULL) return APR_OK;
    if (!cJSON_IsArray(files) || cJSON_GetArraySize(files) > MAX_FILES) return apr_meta_malformed(model, r->err, "aprkit.files");
    apr_attachment *const attachments = apr_arena_array(&model->arena, (size_t)cJSON_GetArraySize(files), sizeof *attachments);
    if (attachments == NULL) return apr_no_memory(r->err, "the files in the metadata");
    cJSON_ArrayForEach(file, files)
    {
        const char *const name = apr_json_get_string(file, "name");
        if (name == NULL || !apr_meta_is_file_name(name))
            return apr_fail(r->err, APR_E_DAMAGED, "%s: metadata 'aprkit.files' has a file with an impossible name", model->path);
        for (size_t i = 0; i < n; i++)
            if (strcmp(attachments[i].name, name) == 0)
                return apr_fail(r->err, APR_E_DAMAGED, "%s: metadata 'aprkit.files' has two files '%s'", model->path, name);
        apr_attachment *const attachment = &attachments[n++];
        if (!copy_string(model, file, "name", &attachment->name)) return apr_no_memory(r->err, "the name of a file");
        APR_TRY(read_blob(r, file, attachment->name, &attachment->data, &attachment->n_bytes));
    }
    model->attachments = attachments;
    model->n_attachments = n;
    return APR_OK;
}

/* --- keys --- */

static apr_status read_packed_keys(blob_reader *r, const cJSON *packed)
{
    apr_model *const model = r->model;
    const uint8_t *bytes;
    size_t n_bytes;
    int64_t n_items = -1;

    if (!apr_json_get_int(packed, "n_items", &n_items) || n_items < 0) return apr_meta_malformed(model, r->err, "aprkit.kv");
    APR_TRY(read_blob(r, packed, "aprkit.kv", &bytes, &n_bytes));
    apr_cursor cursor = {.data = bytes, .n_bytes = n_bytes};
    APR_TRY(apr_kv_read(&cursor, (uint64_t)n_items, model->path, &model->kv, r->err));
    return cursor.at == n_bytes ? APR_OK : apr_meta_malformed(model, r->err, "aprkit.kv");
}

/* Top-level strings, numbers and bools without a defined meaning. The JSON parser has rejected duplicate keys. */
static apr_status read_plain_keys(apr_model *model, const cJSON *root, apr_error *err)
{
    apr_kv_list *const list = &model->kv;
    const cJSON *item;

    cJSON_ArrayForEach(item, root) list->capacity++;
    list->items = apr_arena_array(&model->arena, list->capacity, sizeof *list->items);
    if (list->items == NULL) return apr_no_memory(err, "the metadata");
    cJSON_ArrayForEach(item, root)
    {
        apr_kv kv = {0};
        int64_t integer;
        if (*item->string == '\0' || is_reserved(item->string)) continue;
        if (cJSON_IsString(item)) {
            kv.type = APR_KV_STRING;
            kv.value.string =
                (apr_str){apr_arena_copy(&model->arena, item->valuestring, strlen(item->valuestring)), strlen(item->valuestring)};
            if (kv.value.string.text == NULL) return apr_no_memory(err, "the metadata");
        } else if (cJSON_IsBool(item)) {
            kv.type = APR_KV_BOOL;
            kv.value.bits = cJSON_IsTrue(item);
        } else if (apr_json_as_int(item, &integer)) {
            kv.type = APR_KV_I64;
            kv.value.bits = (uint64_t)integer;
        } else if (cJSON_IsNumber(item)) {
            kv.type = APR_KV_F64;
            memcpy(&kv.value.bits, &item->valuedouble, sizeof kv.value.bits);
        } else {
            continue;
        }
        kv.key = (apr_str){apr_arena_copy(&model->arena, item->string, strlen(item->string)), strlen(item->string)};
        if (kv.key.text == NULL) return apr_no_memory(err, "the metadata");
        list->items[list->n_items++] = kv;
    }
    return APR_OK;
}

/* --- hyperparameters --- */

/* The number under a hyperparameter's key or one of its aliases. Some writers leave nulls in the others. */
static const cJSON *find_number(const cJSON *root, const char *key)
{
    const cJSON *item = apr_json_get(root, key);
    for (const char *const *alias = aliases_of(key); !cJSON_IsNumber(item) && *alias != NULL; alias++) item = apr_json_get(root, *alias);
    return cJSON_IsNumber(item) ? item : NULL;
}

static apr_status read_numbers(apr_model *model, const cJSON *root, apr_error *err)
{
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        const cJSON *const item = find_number(root, field->name);
        if (item == NULL) continue;
        if (!field->is_int) *apr_hparam_real(&model->hparams, field) = item->valuedouble;
        else if (!apr_json_as_int(item, apr_hparam_int(&model->hparams, field)))
            return apr_fail(err, APR_E_DAMAGED, "%s: metadata '%s' is not an integer", model->path, item->string);
    }
    return APR_OK;
}

/* aprender keeps a checkpoint's whole config.json under "hf_config"; it has what the standard keys cannot express. */
static apr_status read_hf_config(apr_model *model, const cJSON *root, apr_error *err)
{
    const cJSON *const config = apr_json_get(root, "hf_config");
    if (!cJSON_IsObject(config)) return APR_OK;
    char *const text = cJSON_Print(config);
    apr_attachment *const attachment = apr_arena_alloc(&model->arena, sizeof *attachment);
    const char *const copy = text != NULL ? apr_arena_copy(&model->arena, text, strlen(text)) : NULL;

    free(text);
    if (copy == NULL || attachment == NULL) return apr_no_memory(err, "config.json");
    *attachment = (apr_attachment){.name = "config.json", .data = (const uint8_t *)copy, .n_bytes = strlen(copy)};
    const apr_status status = apr_hf_config_read(attachment, &model->hparams, &model->arena, model->path, NULL);
    if (status == APR_E_MEMORY) return apr_no_memory(err, "config.json");
    if (status != APR_OK) {
        model->hparams = (apr_hparams){0}; /* ignore a config.json that cannot be read */
        return APR_OK;
    }
    model->attachments = attachment;
    model->n_attachments = 1;
    return APR_OK;
}

static apr_status read_architecture(apr_model *model, const cJSON *root, apr_error *err)
{
    apr_hparams *const h = &model->hparams;
    const char *architecture, *hf_class;

    if (!copy_string(model, root, "architecture", &architecture) || !copy_string(model, root, "hf_architecture", &hf_class))
        return apr_no_memory(err, "the metadata");
    if (architecture != NULL) h->architecture = apr_meta_aprkit(root) != NULL ? architecture : apr_architecture_from_ggml(architecture);
    if (hf_class != NULL) h->hf_class = hf_class;
    if (h->architecture == NULL) h->architecture = "";
    apr_json_get_bool(root, "tied_embeddings", &h->tie_word_embeddings);
    apr_json_get_bool(root, "norm_topk_prob", &h->norm_topk_prob);
    return APR_OK;
}

static apr_status read_kit_head(apr_model *model, const cJSON *kit, apr_error *err)
{
    const cJSON *const origin = apr_json_get(kit, "origin");
    const char *const format = apr_json_get_string(origin, "format");
    int64_t version = 0, gguf_version = 0;
    bool is_big_endian = false;

    if (!apr_json_get_int(kit, "version", &version) || version < 1) return apr_meta_malformed(model, err, "aprkit.version");
    if (version > APR_META_VERSION)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: written by a newer aprkit (metadata version %lld)", model->path, (long long)version);
    const int naming = find_word(apr_json_get_string(kit, "dialect"), namings, N_NAMINGS), from = find_word(format, origins, N_ORIGINS);
    if (naming < 0) return apr_meta_malformed(model, err, "aprkit.dialect");
    model->naming = (apr_naming)naming;
    if (format != NULL && from < 0) return apr_meta_malformed(model, err, "aprkit.origin.format");
    if (format != NULL) model->origin.format = (apr_format)from;
    if (apr_json_get_int(origin, "gguf_version", &gguf_version)) {
        if (gguf_version < 2 || gguf_version > 3) return apr_meta_malformed(model, err, "aprkit.origin.gguf_version");
        apr_json_get_bool(origin, "big_endian", &is_big_endian);
        model->origin.gguf_version = is_big_endian ? __builtin_bswap32((uint32_t)gguf_version) : (uint32_t)gguf_version;
    }
    apr_json_get_bool(origin, "requantized", &model->origin.requantized);
    return apr_meta_read_hparams(model, apr_json_get(kit, "hparams"), err);
}

apr_status apr_meta_read_shape(apr_model *model, const cJSON *root, apr_error *err)
{
    const cJSON *const kit = apr_meta_aprkit(root);

    if (kit == NULL) APR_TRY(read_hf_config(model, root, err));
    APR_TRY(read_architecture(model, root, err));
    APR_TRY(read_numbers(model, root, err));
    if (kit != NULL) APR_TRY(read_kit_head(model, kit, err));
    else if (model->hparams.vocab_size == 0) apr_json_get_int(root, "tokenizer.vocab_size", &model->hparams.vocab_size);
    return apr_hparams_complete(&model->hparams, &model->arena, model->path, err);
}

/* --- tensors --- */

static apr_status read_scale(const apr_model *model, const cJSON *item, apr_tensor *t, apr_error *err)
{
    const char *const name = apr_json_get_string(item, "scale");
    const apr_tensor *const scale = name != NULL ? apr_model_find(model, name) : NULL;

    if (name == NULL) return APR_OK;
    if (scale == NULL || scale == t || !apr_json_get_int(item, "scale_rows", &t->scale_rows) || t->scale_rows < 1 ||
        !apr_json_get_int(item, "scale_columns", &t->scale_columns) || t->scale_columns < 1 ||
        (!apr_dtype_is_float(scale->dtype) && apr_dtypes[scale->dtype].class_of != APR_CLASS_EXPONENT) ||
        apr_div_up(apr_tensor_rows(t), t->scale_rows) * apr_div_up(apr_tensor_columns(t), t->scale_columns) != apr_tensor_elems(scale))
        return apr_fail(err, APR_E_DAMAGED, "%s: the scales of tensor '%s' do not fit it", model->path, t->name);
    t->scale = scale;
    return APR_OK;
}

static apr_status read_tensors(apr_model *model, const cJSON *kit, apr_error *err)
{
    const cJSON *const tensors = apr_json_get(kit, "tensors"), *item;

    if (tensors != NULL && !cJSON_IsArray(tensors)) return apr_meta_malformed(model, err, "aprkit.tensors");
    cJSON_ArrayForEach(item, tensors)
    {
        const char *const name = apr_json_get_string(item, "name");
        const apr_tensor *const found = name != NULL ? apr_model_find(model, name) : NULL;
        if (found == NULL) return apr_meta_malformed(model, err, "aprkit.tensors");
        apr_tensor *const t = &model->tensors[found - model->tensors];
        APR_TRY(read_provenance(model, item, t, err));
        APR_TRY(read_scale(model, item, t, err));
    }
    return APR_OK;
}

static bool has_duplicates(const char *const *names, size_t n, const char **sorted)
{
    if (n > 0) memcpy(sorted, names, n * sizeof *sorted);
    if (n > 0) qsort(sorted, n, sizeof *sorted, apr_compare_texts);
    for (size_t i = 1; i < n; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0) return true;
    return false;
}

/* Unique names of the origin's tensors. They may differ from the index: a GGUF's tensors may have been renamed, split or left out. */
static apr_status read_order(apr_model *model, const cJSON *kit, apr_error *err)
{
    const cJSON *const order = apr_json_get(apr_json_get(kit, "origin"), "order"), *item;
    size_t n = 0;

    if (order == NULL) return APR_OK;
    const size_t n_items = (size_t)cJSON_GetArraySize(order);
    const char **const names = apr_arena_array(&model->arena, n_items, sizeof *names);
    const char **const sorted = apr_arena_array(&model->arena, n_items, sizeof *sorted);
    if (names == NULL || sorted == NULL) return apr_no_memory(err, "the order of the tensors");
    cJSON_ArrayForEach(item, order)
    {
        if (!cJSON_IsString(item) || *item->valuestring == '\0') return apr_meta_malformed(model, err, "aprkit.origin.order");
        names[n] = apr_arena_copy(&model->arena, item->valuestring, strlen(item->valuestring));
        if (names[n++] == NULL) return apr_no_memory(err, "the order of the tensors");
    }
    if (!cJSON_IsArray(order) || has_duplicates(names, n, sorted)) return apr_meta_malformed(model, err, "aprkit.origin.order");
    model->origin.order = names;
    model->origin.n_order = n;
    return APR_OK;
}

static apr_status too_many_zeros(const blob_reader *r, uint64_t n)
{
    return apr_fail(
        r->err, APR_E_DAMAGED,
        "%s: metadata 'aprkit.origin.gaps' asks for %llu bytes of zeros between the tensors, more than a GGUF with these tensors can have",
        r->model->path, (unsigned long long)n);
}

/* Places are ascending. The GGUF writer checks the lengths. */
static apr_status read_gaps(blob_reader *r, const cJSON *kit)
{
    apr_model *const model = r->model;
    const cJSON *const gaps = apr_json_get(apr_json_get(kit, "origin"), "gaps"), *const places = apr_json_get(gaps, "places"), *item;
    const uint64_t most_zeros = 2 * apr_gguf_max_zeros(model); /* twice: renamed tensors may have been left out */
    uint64_t n_zeros = 0;
    int64_t n_tensors = -1, last = -1;
    size_t n = 0;

    if (gaps == NULL) return APR_OK;
    if (!apr_json_get_int(gaps, "tensors", &n_tensors) || n_tensors < 0 || !cJSON_IsArray(places))
        return apr_meta_malformed(model, r->err, "aprkit.origin.gaps");
    apr_gap *const list = apr_arena_array(&model->arena, (size_t)cJSON_GetArraySize(places), sizeof *list);
    if (list == NULL) return apr_no_memory(r->err, "the gaps of the origin");
    cJSON_ArrayForEach(item, places)
    {
        const char *const encoding = apr_json_get_string(item, "encoding");
        int64_t place, n_bytes = -1;
        size_t n_read = 0;
        if (!apr_json_get_int(item, "place", &place) || place <= last || place > n_tensors + 1 || encoding == NULL ||
            !apr_json_get_int(item, "bytes", &n_bytes) || n_bytes < 0)
            return apr_meta_malformed(model, r->err, "aprkit.origin.gaps");
        list[n] = (apr_gap){.place = (size_t)place, .n_bytes = (uint64_t)n_bytes};
        if (strcmp(encoding, "zeros") != 0) APR_TRY(read_blob(r, item, "aprkit.origin.gaps", &list[n].bytes, &n_read));
        else if ((uint64_t)n_bytes > most_zeros - n_zeros) return too_many_zeros(r, (uint64_t)n_bytes + n_zeros);
        else n_zeros += (uint64_t)n_bytes;
        last = place;
        n++;
    }
    model->origin.gaps = list;
    model->origin.n_gaps = n;
    model->origin.n_gap_tensors = (size_t)n_tensors;
    return APR_OK;
}

/* Newer aprender versions state "tied" for some models with a separate head. If the head's first bytes differ, it is not tied. */
static void check_tie(apr_model *model)
{
    const apr_tensor *const head = apr_model_find(model, "lm_head.weight"), *const embedding =
                                                                                apr_model_find(model, "model.embed_tokens.weight");
    enum { PROBE_BYTES = 65536 };

    if (!model->hparams.tie_word_embeddings || head == NULL || embedding == NULL) return;
    const bool same_type = head->dtype == embedding->dtype && head->n_bytes == embedding->n_bytes;
    const size_t n = head->n_bytes < PROBE_BYTES ? (size_t)head->n_bytes : PROBE_BYTES;
    if (!same_type || (n > 0 && memcmp(head->data, embedding->data, n) != 0)) model->hparams.tie_word_embeddings = false;
}

/* Conversions copy config.json but take the numbers from the metadata. An edited config.json may ask for something unsupported. */
static apr_status check_config(apr_model *model, apr_error *err)
{
    const apr_attachment *const config = apr_model_attachment(model, "config.json");
    const char *const where = apr_arena_print(&model->arena, "%s: its config.json", model->path);

    if (where == NULL) return apr_no_memory(err, "a path");
    if (model->origin.format == APR_FORMAT_GGUF)
        APR_TRY(apr_gguf_refusal_read(&model->kv, &model->hparams, &model->arena, model->path, err));
    const apr_attachment *const params = apr_model_attachment(model, "params.json");
    if (config == NULL && params != NULL && model->origin.format == APR_FORMAT_CONSOLIDATED)
        return apr_params_check(params, model, &model->hparams, &model->arena, model->path, err);
    if (config == NULL) return APR_OK;
    APR_TRY(apr_hf_config_check(config, &model->hparams, &model->arena, where, err));
    model->overrules_tie = !model->hparams.tie_word_embeddings && apr_find_head(model) != NULL && apr_hf_config_ties(config);
    if (model->hparams.refusal == NULL) model->hparams.refusal = apr_hf_bias_conflict(model, &model->hparams, false, &model->arena);
    return APR_OK;
}

apr_status apr_meta_read_rest(apr_model *model, const cJSON *root, apr_error *err)
{
    const cJSON *const kit = apr_meta_aprkit(root), *const packed = apr_json_get(kit, "kv");
    blob_reader r = {.model = model, .err = err};
    bool has_scales = false;

    if (packed != NULL) APR_TRY(read_packed_keys(&r, packed));
    else if (model->origin.format == APR_FORMAT_NONE) APR_TRY(read_plain_keys(model, root, err));
    APR_TRY(read_files(&r, kit));
    if (kit != NULL) APR_TRY(check_config(model, err));
    APR_TRY(apr_quantization_read(model, &model->arena, &model->quantization, err));
    APR_TRY(read_tensors(model, kit, err));
    APR_TRY(read_order(model, kit, err));
    APR_TRY(read_gaps(&r, kit));
    const bool was_tied = model->hparams.tie_word_embeddings;
    check_tie(model);
    if (kit != NULL) model->overrules_tie |= was_tied && !model->hparams.tie_word_embeddings;
    for (size_t i = 0; i < model->n_tensors; i++) has_scales |= model->tensors[i].scale != NULL;
    if (!has_scales) APR_TRY(apr_bind_scales(model, apr_model_attachment(model, "config.json"), err));
    if (model->origin.format != APR_FORMAT_GGUF) APR_TRY(apr_bind_packings(model, err));
    return apr_meta_read_vocab(model, root, apr_meta_aprkit(root), err);
}

/* --- writing --- */

enum {
    ZSTD_LEVEL = 9,       /* fixed: the same model gives the same bytes */
    MAX_TEXT_BYTES = 4096 /* larger files are compressed */
};

/* --- typed keys, and whether a file is plain --- */

/* The fields of aprender's metadata type, in its order: strings, then integers. A string is the file's own under this key, else the origin's
 * under GGUF's, else what follows from the rest of the model. An integer does, except in a plain file. */
typedef struct typed_key {
    const char *key, *gguf_key;
    enum { NOTHING, NULL_VALUE, ARCHITECTURE, VERSION, ORIGIN, N_BYTES, N_ELEMS, N_VALUES } otherwise;
} typed_key;

static const typed_key typed_keys[] = {
    {"model_type", NULL, ARCHITECTURE},
    {"name", "general.name", ARCHITECTURE},
    {"description", "general.description", NOTHING},
    {"author", "general.author", NOTHING},
    {"license", "general.license", NULL_VALUE},
    {"data_source", NULL, NULL_VALUE},
    {"data_license", NULL, NULL_VALUE},
    {"version", NULL, VERSION},
    {"source", "general.source.url", NOTHING},
    {"original_format", NULL, ORIGIN},
    {"created_at", NULL, NOTHING},
    {"total_size", NULL, N_BYTES},
    {"param_count", NULL, N_ELEMS},
};
enum { N_TYPED_KEYS = sizeof typed_keys / sizeof *typed_keys };

static bool is_count(const typed_key *typed) { return typed->otherwise >= N_BYTES; }

/* NULL: not a typed key */
static const typed_key *find_typed(apr_str key)
{
    for (size_t i = 0; i < N_TYPED_KEYS; i++)
        if (apr_str_is(key, typed_keys[i].key)) return &typed_keys[i];
    return NULL;
}

/* True if it can be written at the top of the JSON under its own name and reads back equal. */
static bool is_free_item(const apr_kv *item)
{
    double real;

    if (!apr_meta_is_text(item->key) || item->key.n_bytes == 0) return false;
    switch (item->type) {
    case APR_KV_BOOL: break;
    case APR_KV_STRING:
        if (!apr_meta_is_text(item->value.string)) return false;
        break;
    case APR_KV_I64:
        if ((int64_t)item->value.bits > (int64_t)1 << 53 || (int64_t)item->value.bits < -((int64_t)1 << 53)) return false;
        break;
    case APR_KV_F64:
        memcpy(&real, &item->value.bits, sizeof real);
        if (!(real > -1e300 && real < 1e300)) return false;
        break;
    default: return false;
    }
    const typed_key *const typed = find_typed(item->key);
    if (typed != NULL) return item->type == (is_count(typed) ? APR_KV_I64 : APR_KV_STRING);
    char *const key = strndup(item->key.text, item->key.n_bytes);
    const bool reserved = key == NULL || is_reserved(key);
    free(key);
    return !reserved;
}

/* True if all metadata can be written at the top of the JSON, without the binary form. */
static bool has_free_keys(const apr_model *layout)
{
    if (layout->origin.format != APR_FORMAT_NONE) return false;
    for (size_t i = 0; i < layout->kv.n_items; i++)
        if (!is_free_item(&layout->kv.items[i])) return false;
    return true;
}

static bool has_hparams(const apr_hparams *h)
{
    bool any =
        (h->architecture != NULL && *h->architecture != '\0') || h->hf_class != NULL || h->tie_word_embeddings || h->torch_dtype != NULL;

    for (size_t i = 0; i < apr_n_hparam_fields && !any; i++) any = apr_hparam_number(h, &apr_hparam_fields[i]) != 0.0;
    return any;
}

/* True for a model that needs no "aprkit" object; see apr.h. */
static bool is_plain(const apr_model *layout)
{
    if (!has_free_keys(layout) || has_hparams(&layout->hparams) || layout->naming != APR_NAMING_HF) return false;
    if (layout->vocab.kind != APR_VOCAB_NONE || layout->vocab.chat_template != NULL || layout->n_attachments > 0 ||
        layout->origin.n_order > 0)
        return false;
    for (size_t i = 0; i < layout->n_tensors; i++) {
        const apr_tensor *const t = &layout->tensors[i];
        if (has_provenance(t) || t->scale != NULL) return false;
    }
    return true;
}

/* --- the head --- */

static void write_count(apr_json_text *out, const apr_model *layout, const typed_key *typed, bool plain)
{
    int64_t counts[N_VALUES] = {0};

    for (size_t i = 0; i < layout->n_tensors; i++) {
        counts[N_BYTES] += plain ? 0 : (int64_t)layout->tensors[i].n_bytes; /* plain: as aprender writes it */
        counts[N_ELEMS] += apr_tensor_elems(&layout->tensors[i]);
    }
    if (plain) apr_kv_get_int(&layout->kv, typed->key, &counts[typed->otherwise]);
    apr_json_int(out, typed->key, counts[typed->otherwise]);
}

static void write_text(apr_json_text *out, const apr_model *layout, const typed_key *typed, bool plain)
{
    const apr_format format = layout->origin.format;
    const char *const key = format == APR_FORMAT_NONE ? typed->key : format == APR_FORMAT_GGUF ? typed->gguf_key : NULL;
    const char *const values[N_VALUES] = {
        [ARCHITECTURE] = layout->hparams.architecture, [VERSION] = plain ? NULL : "1.0.0", [ORIGIN] = origin_name(format)};
    const char *const other = values[typed->otherwise];
    apr_str value;

    if (key == NULL || !apr_kv_get_string(&layout->kv, key, &value) || !apr_meta_is_text(value))
        value = apr_str_of(other != NULL ? other : "");
    if (value.n_bytes > 0) apr_json_string(out, typed->key, value.text, value.n_bytes);
    else if (typed->otherwise == NULL_VALUE) apr_json_null(out, typed->key);
}

static void write_free_item(apr_json_text *out, const char *key, const apr_kv *item)
{
    double real;

    if (item->type == APR_KV_STRING) apr_json_string(out, key, item->value.string.text, item->value.string.n_bytes);
    else if (item->type == APR_KV_BOOL) apr_json_bool(out, key, item->value.bits != 0);
    else if (item->type == APR_KV_I64) apr_json_int(out, key, (int64_t)item->value.bits);
    else {
        memcpy(&real, &item->value.bits, sizeof real);
        apr_json_real(out, key, real);
    }
}

static void write_free_keys(apr_json_text *out, const apr_model *layout)
{
    if (!has_free_keys(layout)) return;
    for (size_t i = 0; i < layout->kv.n_items; i++) {
        const apr_kv *const item = &layout->kv.items[i];
        if (find_typed(item->key) != NULL) continue;
        char *const key = strndup(item->key.text, item->key.n_bytes);
        if (key != NULL) write_free_item(out, key, item);
        else out->failed = true;
        free(key);
    }
}

static void write_head(apr_json_text *out, const apr_model *layout, bool plain)
{
    for (size_t i = 0; i < N_TYPED_KEYS; i++) (is_count(&typed_keys[i]) ? write_count : write_text)(out, layout, &typed_keys[i], plain);
    write_free_keys(out, layout);
}

/* --- hyperparameters --- */

static void write_hparams(apr_json_text *out, const apr_model *layout)
{
    const apr_hparams *const h = &layout->hparams;
    /* only llama.cpp's converter makes rotary pairs adjacent (interleaved), and only for llama */
    const bool pairs = layout->naming == APR_NAMING_GGML && h->architecture != NULL && strcmp(h->architecture, "llama") == 0;

    write_string(out, "architecture", h->architecture);
    write_string(out, "hf_architecture", h->hf_class);
    write_string(out, "hf_model_type", h->architecture);
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        if (apr_hparam_number(h, field) == 0.0) continue;
        if (field->is_int) apr_json_int(out, field->name, apr_hparam_get_int(h, field));
        else apr_json_real(out, field->name, apr_hparam_get_real(h, field));
    }
    if (h->num_heads > 0) apr_json_int(out, "rope_type", pairs ? 0 : 2);
    if (h->num_experts > 0 || h->norm_topk_prob) apr_json_bool(out, "norm_topk_prob", h->norm_topk_prob);
    if (h->tie_word_embeddings) apr_json_bool(out, "tied_embeddings", true);
}

/* --- binary data --- */

static void write_quoted_base64(apr_json_text *out, const void *bytes, size_t n_bytes)
{
    const size_t n_chars = apr_base64_chars(n_bytes);
    char *const text = malloc(n_chars + 2);

    if (text == NULL) {
        out->failed = true;
        return;
    }
    text[0] = text[n_chars + 1] = '"'; /* nothing in base64 needs an escape */
    apr_base64_encode(bytes, n_bytes, text + 1);
    apr_json_raw(out, "data", text, n_chars + 2);
    free(text);
}

/* Writes zstd + base64, or base64 alone if the reader would reject the compression ratio. */
static void write_packed(apr_json_text *out, const void *bytes, size_t n_bytes)
{
    const size_t bound = ZSTD_compressBound(n_bytes);
    uint8_t *const packed = malloc(bound);
    const size_t n_packed = packed != NULL ? ZSTD_compress(packed, bound, bytes, n_bytes, ZSTD_LEVEL) : 0;
    const bool packs = packed != NULL && !ZSTD_isError(n_packed);
    const bool is_accepted = packs && (n_bytes <= apr_meta_always_unpacked || n_bytes / n_packed <= apr_meta_max_ratio);

    apr_json_uint(out, "bytes", n_bytes);
    write_string(out, "encoding", is_accepted ? "zstd+base64" : "base64");
    if (packs) write_quoted_base64(out, is_accepted ? packed : bytes, is_accepted ? n_packed : n_bytes);
    else out->failed = true;
    free(packed);
}

/* --- origin, steps, scales --- */

static bool order_is_data_order(const apr_model *layout)
{
    const apr_origin *const origin = &layout->origin;
    if (origin->n_order != layout->n_tensors) return origin->n_order == 0;
    for (size_t i = 0; i < origin->n_order; i++)
        if (strcmp(origin->order[i], layout->tensors[i].name) != 0) return false;
    return true;
}

static bool is_zero(const apr_gap *gap)
{
    uint64_t i = 0;
    while (gap->bytes != NULL && i < gap->n_bytes && gap->bytes[i] == 0) i++;
    return gap->bytes == NULL || i == gap->n_bytes;
}

/* Writes the gaps between the origin's tensors; most of them are zeros. */
static void write_gaps(apr_json_text *out, const apr_origin *origin)
{
    if (origin->n_gaps == 0 || origin->requantized) return;
    apr_json_open(out, "gaps", '{');
    apr_json_uint(out, "tensors", origin->n_gap_tensors);
    apr_json_open(out, "places", '[');
    for (size_t i = 0; i < origin->n_gaps; i++) {
        const apr_gap *const gap = &origin->gaps[i];
        apr_json_open(out, NULL, '{');
        apr_json_uint(out, "place", gap->place);
        if (is_zero(gap)) {
            apr_json_uint(out, "bytes", gap->n_bytes);
            write_string(out, "encoding", "zeros");
        } else {
            write_packed(out, gap->bytes, (size_t)gap->n_bytes);
        }
        apr_json_close(out, '}');
    }
    apr_json_close(out, ']');
    apr_json_close(out, '}');
}

static void write_origin(apr_json_text *out, const apr_model *layout)
{
    const apr_origin *const origin = &layout->origin;

    apr_json_open(out, "origin", '{');
    write_string(out, "format", origin_name(origin->format));
    if (origin->gguf_version != 0) apr_json_uint(out, "gguf_version", apr_gguf_version_number(origin->gguf_version));
    if (apr_gguf_is_big_endian(origin->gguf_version)) apr_json_bool(out, "big_endian", true);
    apr_json_bool(out, "requantized", origin->requantized);
    if (!order_is_data_order(layout)) {
        apr_json_open(out, "order", '[');
        for (size_t i = 0; i < origin->n_order; i++) apr_json_cstring(out, NULL, origin->order[i]);
        apr_json_close(out, ']');
    }
    write_gaps(out, origin);
    apr_json_close(out, '}');
}

static void write_tensor(apr_json_text *out, const apr_tensor *t)
{
    apr_json_open(out, NULL, '{');
    write_string(out, "name", t->name);
    write_provenance(out, t);
    if (t->scale != NULL) {
        write_string(out, "scale", t->scale->name);
        apr_json_int(out, "scale_rows", t->scale_rows);
        apr_json_int(out, "scale_columns", t->scale_columns);
    }
    apr_json_close(out, '}');
}

/* Records in the order of the data; a tensor without provenance or scale has none. */
static void write_tensors(apr_json_text *out, const apr_model *layout)
{
    bool any = false;

    for (size_t i = 0; i < layout->n_tensors; i++) {
        const apr_tensor *const t = &layout->tensors[i];
        if (!has_provenance(t) && t->scale == NULL) continue;
        if (!any) apr_json_open(out, "tensors", '[');
        any = true;
        write_tensor(out, t);
    }
    if (any) apr_json_close(out, ']');
}

static void write_kv(apr_json_text *out, const apr_model *layout)
{
    const size_t n_bytes = (size_t)apr_kv_bytes(&layout->kv);
    if (layout->kv.n_items == 0 || has_free_keys(layout)) return;
    uint8_t *const bytes = malloc(n_bytes + 1);

    if (bytes == NULL) {
        out->failed = true;
        return;
    }
    apr_kv_write(&layout->kv, bytes);
    apr_json_open(out, "kv", '{');
    apr_json_uint(out, "n_items", layout->kv.n_items);
    write_packed(out, bytes, n_bytes);
    apr_json_close(out, '}');
    free(bytes);
}

static void write_files(apr_json_text *out, const apr_model *layout)
{
    if (layout->n_attachments == 0) return;
    apr_json_open(out, "files", '[');
    for (size_t i = 0; i < layout->n_attachments; i++) {
        const apr_attachment *const file = &layout->attachments[i];
        const apr_str text = {(const char *)file->data, file->n_bytes};
        const bool is_text = file->n_bytes <= MAX_TEXT_BYTES &&
                             (file->n_bytes == 0 || (apr_str_is_utf8(text) && memchr(text.text, '\0', text.n_bytes) == NULL));
        apr_json_open(out, NULL, '{');
        write_string(out, "name", file->name);
        if (is_text) {
            apr_json_uint(out, "bytes", file->n_bytes);
            write_string(out, "encoding", "text");
            apr_json_string(out, "data", text.text, text.n_bytes);
        } else {
            write_packed(out, file->data, file->n_bytes);
        }
        apr_json_close(out, '}');
    }
    apr_json_close(out, ']');
}

/* --- the "aprkit" object --- */

static void write_kit(apr_json_text *out, const apr_model *layout)
{
    const size_t n_chars = layout->n_tensors * APR_META_CRC_CHARS;
    char *const zeros = malloc(n_chars + 1);

    if (zeros == NULL) {
        out->failed = true;
        return;
    }
    memset(zeros, '0', n_chars);
    apr_json_open(out, "aprkit", '{');
    apr_json_int(out, "version", APR_META_VERSION);
    write_string(out, "dialect", namings[layout->naming]);
    write_origin(out, layout);
    write_kv(out, layout);
    if (has_hparams(&layout->hparams)) apr_meta_write_hparams(out, &layout->hparams);
    apr_meta_write_vocab_rules(out, &layout->vocab);
    write_tensors(out, layout);
    write_files(out, layout);
    apr_json_string(out, "crc32", zeros, n_chars);
    apr_json_close(out, '}');
    free(zeros);
}

/* Total bytes that a reader decompresses. */
static uint64_t unpacked_bytes(const apr_model *layout)
{
    uint64_t n = apr_kv_bytes(&layout->kv);
    for (size_t i = 0; i < layout->n_attachments; i++) n += layout->attachments[i].n_bytes;
    for (size_t i = 0; i < layout->origin.n_gaps; i++) n += is_zero(&layout->origin.gaps[i]) ? 0 : layout->origin.gaps[i].n_bytes;
    return n;
}

apr_status apr_meta_write(const apr_model *layout, char **text, size_t *n_bytes, size_t *crc_at, apr_error *err)
{
    const bool plain = is_plain(layout);
    apr_json_text out = {0};

    if (unpacked_bytes(layout) > apr_meta_max_unpacked)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: keys, files and gaps of more than %llu MiB cannot be stored in an APR file",
                        layout->path != NULL ? layout->path : "", (unsigned long long)(apr_meta_max_unpacked >> 20));
    apr_json_open(&out, NULL, '{');
    write_head(&out, layout, plain);
    if (!plain) {
        write_hparams(&out, layout);
        apr_meta_write_vocab(&out, &layout->vocab);
        write_kit(&out, layout);
    }
    apr_json_close(&out, '}');
    *text = apr_json_text_take(&out, n_bytes);
    if (*text == NULL) return apr_no_memory(err, "the metadata");
    const size_t n_after = strlen("\"}}");
    *crc_at = plain ? 0 : *n_bytes - n_after - layout->n_tensors * APR_META_CRC_CHARS;
    return APR_OK;
}
