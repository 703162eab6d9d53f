/* apr_meta_read.c - reads an APR file's metadata: hyperparameters, origin, steps, scales, keys, files. */
#include "formats/apr/apr_meta.h"

#include "formats/base/base64.h"
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

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { MAX_FILES = 1000 };

const char *const apr_meta_typed_keys[] = {"model_type",  "name",         "description", "author", "license",
                                           "data_source", "data_license", "version",     "source", "original_format",
                                           "created_at",  "total_size",   "param_count", NULL};

const cJSON *apr_meta_aprkit(const cJSON *root)
{
    const cJSON *const kit = apr_json_get(root, "aprkit");
    return cJSON_IsObject(kit) ? kit : NULL;
}

const char *const *apr_meta_aliases(const char *key)
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

bool apr_meta_is_reserved(const char *key)
{
    static const char *const others[] = {"aprkit",    "architecture",   "hf_architecture", "hf_model_type",
                                         "rope_type", "norm_topk_prob", "chat_template",   "tied_embeddings"};

    if (strncmp(key, "tokenizer.", strlen("tokenizer.")) == 0) return true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i], key) == 0) return true;
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        if (strcmp(apr_hparam_fields[i].name, key) == 0) return true;
        for (const char *const *alias = apr_meta_aliases(apr_hparam_fields[i].name); *alias != NULL; alias++)
            if (strcmp(*alias, key) == 0) return true;
    }
    return false;
}

static apr_status bad(const apr_model *model, apr_error *err, const char *key)
{
    return apr_fail(err, APR_E_DAMAGED, "%s: metadata '%s' is malformed", model->path, key);
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

    if (!apr_json_get_int(object, "bytes", &n) || n < 0 || encoding == NULL || data == NULL) return bad(r->model, r->err, what);
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
    const size_t n = strlen(name), n_ending = strlen(".safetensors");

    size_t n_name;

    if (apr_template_name(name, &n_name) != NULL) return true;
    if (n == 0 || n > 255 || strchr(name, '/') != NULL || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return false;
    return n < n_ending || strcmp(name + n - n_ending, ".safetensors") != 0;
}

static apr_status read_files(blob_reader *r, const cJSON *kit)
{
    apr_model *const model = r->model;
    const cJSON *const files = apr_json_get(kit, "files"), *file;
    size_t n = 0;

    if (files == NULL) return APR_OK;
    if (!cJSON_IsArray(files) || cJSON_GetArraySize(files) > MAX_FILES) return bad(model, r->err, "aprkit.files");
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

    if (!apr_json_get_int(packed, "n_items", &n_items) || n_items < 0) return bad(model, r->err, "aprkit.kv");
    APR_TRY(read_blob(r, packed, "aprkit.kv", &bytes, &n_bytes));
    apr_cursor cursor = {.data = bytes, .n_bytes = n_bytes};
    APR_TRY(apr_kv_read(&cursor, (uint64_t)n_items, model->path, &model->kv, r->err));
    return cursor.at == n_bytes ? APR_OK : bad(model, r->err, "aprkit.kv");
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
        if (*item->string == '\0' || apr_meta_is_reserved(item->string)) continue;
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
    for (const char *const *alias = apr_meta_aliases(key); !cJSON_IsNumber(item) && *alias != NULL; alias++)
        item = apr_json_get(root, *alias);
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
    const char *const naming = apr_json_get_string(kit, "dialect"), *const format = apr_json_get_string(origin, "format");
    int64_t version = 0, gguf_version = 0;
    bool is_big_endian = false;

    if (!apr_json_get_int(kit, "version", &version) || version < 1) return bad(model, err, "aprkit.version");
    if (version > APR_META_VERSION)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: written by a newer aprkit (metadata version %lld)", model->path, (long long)version);
    if (!apr_meta_find_naming(naming, &model->naming)) return bad(model, err, "aprkit.dialect");
    if (format != NULL && !apr_meta_find_origin(format, &model->origin.format)) return bad(model, err, "aprkit.origin.format");
    if (apr_json_get_int(origin, "gguf_version", &gguf_version)) {
        if (gguf_version < 2 || gguf_version > 3) return bad(model, err, "aprkit.origin.gguf_version");
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

static int64_t divide_up(int64_t n, int64_t d) { return n / d + (n % d != 0); }

static apr_status read_scale(const apr_model *model, const cJSON *item, apr_tensor *t, apr_error *err)
{
    const char *const name = apr_json_get_string(item, "scale");
    const apr_tensor *const scale = name != NULL ? apr_model_find(model, name) : NULL;

    if (name == NULL) return APR_OK;
    if (scale == NULL || scale == t || !apr_json_get_int(item, "scale_rows", &t->scale_rows) || t->scale_rows < 1 ||
        !apr_json_get_int(item, "scale_columns", &t->scale_columns) || t->scale_columns < 1 ||
        (!apr_dtype_is_float(scale->dtype) && apr_dtypes[scale->dtype].class_of != APR_CLASS_EXPONENT) ||
        divide_up(apr_tensor_rows(t), t->scale_rows) * divide_up(apr_tensor_columns(t), t->scale_columns) != apr_tensor_elems(scale))
        return apr_fail(err, APR_E_DAMAGED, "%s: the scales of tensor '%s' do not fit it", model->path, t->name);
    t->scale = scale;
    return APR_OK;
}

static apr_status read_tensors(apr_model *model, const cJSON *kit, apr_error *err)
{
    const cJSON *const tensors = apr_json_get(kit, "tensors"), *item;

    if (tensors != NULL && !cJSON_IsArray(tensors)) return bad(model, err, "aprkit.tensors");
    cJSON_ArrayForEach(item, tensors)
    {
        const char *const name = apr_json_get_string(item, "name");
        const apr_tensor *const found = name != NULL ? apr_model_find(model, name) : NULL;
        if (found == NULL) return bad(model, err, "aprkit.tensors");
        apr_tensor *const t = &model->tensors[found - model->tensors];
        APR_TRY(apr_meta_read_provenance(model, item, t, err));
        APR_TRY(read_scale(model, item, t, err));
    }
    return APR_OK;
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static bool has_duplicates(const char *const *names, size_t n, const char **sorted)
{
    if (n > 0) memcpy(sorted, names, n * sizeof *sorted);
    if (n > 0) qsort(sorted, n, sizeof *sorted, by_text);
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
        if (!cJSON_IsString(item) || *item->valuestring == '\0') return bad(model, err, "aprkit.origin.order");
        names[n] = apr_arena_copy(&model->arena, item->valuestring, strlen(item->valuestring));
        if (names[n++] == NULL) return apr_no_memory(err, "the order of the tensors");
    }
    if (!cJSON_IsArray(order) || has_duplicates(names, n, sorted)) return bad(model, err, "aprkit.origin.order");
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
        return bad(model, r->err, "aprkit.origin.gaps");
    apr_gap *const list = apr_arena_array(&model->arena, (size_t)cJSON_GetArraySize(places), sizeof *list);
    if (list == NULL) return apr_no_memory(r->err, "the gaps of the origin");
    cJSON_ArrayForEach(item, places)
    {
        const char *const encoding = apr_json_get_string(item, "encoding");
        int64_t place, n_bytes = -1;
        size_t n_read = 0;
        if (!apr_json_get_int(item, "place", &place) || place <= last || place > n_tensors + 1 || encoding == NULL ||
            !apr_json_get_int(item, "bytes", &n_bytes) || n_bytes < 0)
            return bad(model, r->err, "aprkit.origin.gaps");
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
