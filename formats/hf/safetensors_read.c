/* safetensors_read.c - reads the tensors of one file's header, and a checkpoint directory into a model. Decodes no weights. */
#include "formats/base/json.h"
#include "formats/base/text.h"
#include "formats/files/checkpoint_names.h"
#include "formats/files/placeholder.h"
#include "formats/hf/attachment_links.h"
#include "formats/hf/checkpoint_files.h"
#include "formats/hf/hub_cache.h"
#include "formats/hf/lora.h"
#include "formats/hf/safetensors.h"
#include "formats/hf/weight_files.h"
#include "formats/hf/weight_map.h"
#include "formats/packed/fp8_scales.h"
#include "formats/packed/hf_quantization.h"
#include "formats/packed/packings.h"
#include "formats/shape/hf_config.h"
#include "formats/shape/meta_names.h"
#include "formats/shape/meta_params.h"
#include "formats/shape/text_part.h"
#include "formats/torch/torch.h"
#include "formats/vocab/hf_tokenizer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint64_t MAX_HEADER_BYTES = 100000000; /* the format's own limit */

/* --- one file --- */

typedef struct entry {
    const cJSON *item; /* its key is the tensor's name */
    uint64_t begin, end;
    size_t position; /* in the header: orders empty tensors with equal offsets */
} entry;

static int by_offset(const void *a, const void *b)
{
    const entry *const x = a, *const y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return x->position < y->position ? -1 : x->position > y->position;
}

static apr_status read_offsets(entry *e, const char *where, apr_error *err)
{
    const cJSON *const offsets = apr_json_get(e->item, "data_offsets");
    int64_t begin, end;

    if (!cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 || !apr_json_as_int(offsets->child, &begin) ||
        !apr_json_as_int(offsets->child->next, &end))
        return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%s' has no data_offsets [begin, end]", where, e->item->string);
    if (begin < 0 || end < begin)
        return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%s' is at bytes %" PRId64 " to %" PRId64 " of the data", where, e->item->string,
                        begin, end);
    e->begin = (uint64_t)begin;
    e->end = (uint64_t)end;
    return APR_OK;
}

/* Checks that all tensors are in the file. */
static apr_status check_end(const entry *entries, size_t n, uint64_t n_data, const char *where, apr_error *err)
{
    const entry *last = entries;

    for (size_t i = 1; i < n; i++)
        if (entries[i].end > last->end) last = &entries[i];
    if (n == 0 || last->end <= n_data) return APR_OK;
    return apr_fail(err, APR_E_DAMAGED,
                    "%s: tensor '%s' is at bytes %" PRIu64 " to %" PRIu64 " of %" PRIu64 " bytes of data: %" PRIu64
                    " bytes are missing; fetch the file again",
                    where, last->item->string, last->begin, last->end, n_data, last->end - n_data);
}

/* Keeps the metadata of the first shard; all shards have the same. */
static apr_status read_metadata(const cJSON *metadata, apr_model *model, const char *where, apr_error *err)
{
    const cJSON *item;

    if (!cJSON_IsObject(metadata)) return apr_fail(err, APR_E_DAMAGED, "%s: __metadata__ is not an object", where);
    if (model->kv.n_items > 0) return APR_OK;
    const size_t n_items = (size_t)cJSON_GetArraySize(metadata);
    model->kv.items = apr_arena_array(&model->arena, n_items, sizeof *model->kv.items);
    if (model->kv.items == NULL) return apr_no_memory(err, "metadata");
    model->kv.capacity = n_items;
    cJSON_ArrayForEach(item, metadata)
    {
        if (!cJSON_IsString(item)) return apr_fail(err, APR_E_DAMAGED, "%s: __metadata__ '%s' is not a string", where, item->string);
        const size_t n_key = strlen(item->string), n_text = strlen(item->valuestring);
        const char *const key = apr_arena_copy(&model->arena, item->string, n_key);
        const char *const text = apr_arena_copy(&model->arena, item->valuestring, n_text);
        if (key == NULL || text == NULL) return apr_no_memory(err, "metadata");
        model->kv.items[model->kv.n_items++] = (apr_kv){.key = {key, n_key}, .type = APR_KV_STRING, .value.string = {text, n_text}};
    }
    return APR_OK;
}

static apr_status read_tensor(apr_tensor *tensor, const entry *e, const uint8_t *data, apr_arena *arena, const char *where, apr_error *err)
{
    const char *const name = e->item->string, *const dtype = apr_json_get_string(e->item, "dtype");
    const cJSON *const shape = apr_json_get(e->item, "shape"), *dim;

    if (dtype == NULL) return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%s' has no dtype", where, name);
    tensor->dtype = apr_dtype_by_safetensors_name(dtype);
    if (tensor->dtype == APR_DTYPE_COUNT || strcmp(apr_dtypes[tensor->dtype].safetensors_name, dtype) != 0)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: tensor '%s' has the unknown dtype '%.40s'", where, name, dtype);
    if (!cJSON_IsArray(shape)) return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%s' has no shape", where, name);
    cJSON_ArrayForEach(dim, shape)
    {
        if (tensor->rank == APR_MAX_RANK)
            return apr_fail(err, APR_E_UNSUPPORTED, "%s: tensor '%s' has more than %d dimensions", where, name, APR_MAX_RANK);
        if (!apr_json_as_int(dim, &tensor->dims[tensor->rank]) || tensor->dims[tensor->rank] < 0)
            return apr_fail(err, APR_E_DAMAGED, "%s: dimension %d of tensor '%s' is not a valid size", where, tensor->rank, name);
        tensor->rank++;
    }
    tensor->name = apr_arena_copy(arena, name, strlen(name));
    if (tensor->name == NULL) return apr_no_memory(err, "the names of the tensors");
    APR_TRY(apr_tensor_size(tensor, where, err));
    if (tensor->n_bytes != e->end - e->begin) {
        char dims[128];
        return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%s' %s of %s needs %" PRIu64 " bytes, its data_offsets give %" PRIu64, where, name,
                        apr_dims_text(tensor, dims, sizeof dims), dtype, tensor->n_bytes, e->end - e->begin);
    }
    tensor->data = tensor->n_bytes > 0 ? data + e->begin : NULL;
    return APR_OK;
}

/* Sorts the entries by offset and reads them. They must cover the data from the first byte to the last. */
static apr_status read_tensors(apr_model *model, entry *entries, size_t n, const uint8_t *data, uint64_t n_data, const char *where,
                               apr_error *err)
{
    uint64_t at = 0;

    APR_TRY(apr_model_grow(model, n, err));
    for (size_t i = 0; i < n; i++) APR_TRY(read_offsets(&entries[i], where, err));
    APR_TRY(check_end(entries, n, n_data, where, err));
    if (n > 0) qsort(entries, n, sizeof *entries, by_offset);
    for (size_t i = 0; i < n; i++) {
        const entry *const e = &entries[i];
        if (e->begin != at)
            return apr_fail(err, APR_E_DAMAGED,
                            "%s: tensor '%s' begins at byte %" PRIu64 " of the data, but the one before it ends at %" PRIu64, where,
                            e->item->string, e->begin, at);
        apr_tensor *const tensor = &model->tensors[model->n_tensors];
        *tensor = (apr_tensor){0};
        APR_TRY(read_tensor(tensor, e, data, &model->arena, where, err));
        model->n_tensors++;
        at = e->end;
    }
    if (at != n_data)
        return apr_fail(err, APR_E_DAMAGED, "%s: the tensors end at byte %" PRIu64 " of the data, the file at %" PRIu64, where, at, n_data);
    return APR_OK;
}

static apr_status read_header(apr_model *model, const cJSON *header, const uint8_t *data, uint64_t n_data, const char *where,
                              apr_error *err)
{
    size_t n = 0;
    const cJSON *item;

    if (!cJSON_IsObject(header)) return apr_fail(err, APR_E_DAMAGED, "%s: the header is not a JSON object", where);
    entry *const entries = calloc((size_t)cJSON_GetArraySize(header) + 1, sizeof *entries);
    if (entries == NULL) return apr_no_memory(err, "the table of tensors");
    apr_status status = APR_OK;
    cJSON_ArrayForEach(item, header)
    {
        if (strcmp(item->string, "__metadata__") != 0) {
            entries[n] = (entry){.item = item, .position = n};
            n++;
        } else if (status == APR_OK) {
            status = read_metadata(item, model, where, err);
        }
    }
    if (status == APR_OK) status = read_tensors(model, entries, n, data, n_data, where, err);
    free(entries);
    return status;
}

apr_status apr_safetensors_parse(apr_model *model, const uint8_t *data, size_t n_bytes, const char *where, apr_error *err)
{
    cJSON *header;

    model->kv.arena = &model->arena;
    if (n_bytes < 8) return apr_fail(err, APR_E_DAMAGED, "%s: %zu bytes are too few for a safetensors file", where, n_bytes);
    const uint64_t n_header = apr_load_le64(data), n_left = n_bytes - 8;
    if (n_header > n_left)
        return apr_fail(err, APR_E_DAMAGED,
                        "%s: the header should have %" PRIu64 " bytes, the file has %" PRIu64 " after its first 8; is it complete?", where,
                        n_header, n_left);
    if (n_header > MAX_HEADER_BYTES)
        return apr_fail(err, APR_E_DAMAGED, "%s: the header has %" PRIu64 " bytes, the format allows %" PRIu64, where, n_header,
                        MAX_HEADER_BYTES);
    APR_TRY(apr_json_parse(&header, data + 8, (size_t)n_header, where, err));
    const apr_status status = read_header(model, header, data + 8 + n_header, n_left - n_header, where, err);
    cJSON_Delete(header);
    return status;
}

/* --- a directory --- */

/* Maps a file into the next free entry of model->maps. */
static apr_status map_file(apr_model *model, const char *folder, const char *name, const char **path, apr_error *err)
{
    *path = apr_arena_print(&model->arena, "%s/%s", folder, name);
    if (*path == NULL) return apr_no_memory(err, "a path");
    APR_TRY(apr_map_open(&model->maps[model->n_maps], *path, err));
    model->n_maps++;
    return APR_OK;
}

/* The files of weights that were read, and their index, by their names in the folder. */
typedef struct weight_files {
    const char **names;
    size_t n;
} weight_files;

/* Appends names of files that are not copied. */
static apr_status add_left_behind(apr_model *model, const char *more, apr_error *err)
{
    const char *const before = model->not_copied;
    if (more == NULL) return APR_OK;
    model->not_copied = before == NULL ? more : apr_arena_print(&model->arena, "%s, %s", before, more);
    return model->not_copied != NULL ? APR_OK : apr_no_memory(err, "the small files");
}

static apr_status read_attachments(apr_model *model, const char *folder, const weight_files *weights, apr_error *err)
{
    apr_file_list list;

    APR_TRY(apr_checkpoint_files(folder, weights->names, weights->n, &list, &model->arena, err));
    apr_attachment *const found = apr_arena_array(&model->arena, list.n, sizeof *found);
    if (found == NULL) return apr_no_memory(err, "the small files");
    model->attachments = found;
    APR_TRY(add_left_behind(model, list.not_copied, err));
    for (size_t i = 0; i < list.n; i++) {
        const char *path;
        APR_TRY(map_file(model, folder, list.names[i], &path, err));
        const apr_map *const map = &model->maps[model->n_maps - 1];
        APR_TRY(apr_refuse_placeholder(map->data, map->n_bytes, path, err));
        found[model->n_attachments++] = (apr_attachment){list.names[i], map->data, map->n_bytes};
    }
    return APR_OK;
}

/* Lists the shards that the index names. A name must not lead out of the folder. */
static apr_status list_shards(const cJSON *index, const char *where, apr_arena *arena, apr_shards *shards, apr_error *err)
{
    const cJSON *const map = apr_json_get(index, "weight_map"), *item;
    size_t n = 0;

    if (!cJSON_IsObject(map)) return apr_fail(err, APR_E_DAMAGED, "%s: weight_map is missing", where);
    const size_t n_entries = (size_t)cJSON_GetArraySize(map);
    shards->names = apr_arena_array(arena, n_entries + 1, sizeof *shards->names);
    if (shards->names == NULL) return apr_no_memory(err, "the names of the shards");
    cJSON_ArrayForEach(item, map)
    {
        const char *const name = cJSON_IsString(item) ? item->valuestring : "";
        if (*name == '\0' || *name == '.' || strlen(name) > 255 || strpbrk(name, "/\\") != NULL)
            return apr_fail(err, APR_E_DAMAGED,
                            "%s: the file of tensor '%s' is called '%.100s', which is not the name of a file in the same folder", where,
                            item->string, name);
        if (n == 0 || strcmp(shards->names[n - 1], name) != 0) shards->names[n++] = name;
    }
    if (n > 0) qsort(shards->names, n, sizeof *shards->names, apr_compare_texts);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(shards->names[shards->n - 1], shards->names[i]) != 0) shards->names[shards->n++] = shards->names[i];
    shards->first_tensor = apr_arena_array(arena, shards->n + 1, sizeof *shards->first_tensor);
    return shards->first_tensor != NULL ? APR_OK : apr_no_memory(err, "the names of the shards");
}

/* Lists the shards by the name of the first one: "model-00001-of-00003.safetensors". */
static apr_status list_numbered(const char *first, apr_arena *arena, apr_shards *shards, apr_error *err)
{
    APR_TRY(apr_numbered_names(first, &shards->names, &shards->n, arena, err));
    shards->first_tensor = apr_arena_array(arena, shards->n + 1, sizeof *shards->first_tensor);
    return shards->first_tensor != NULL ? APR_OK : apr_no_memory(err, "the names of the shards");
}

/* Allocates maps for n weight files and all attachments. */
static apr_status allocate_maps(apr_model *model, size_t n, apr_error *err)
{
    model->maps = apr_arena_array(&model->arena, n + APR_MAX_CHECKPOINT_FILES, sizeof *model->maps);
    return model->maps != NULL ? APR_OK : apr_no_memory(err, "the table of files");
}

bool apr_starts_safetensors(const uint8_t *head, size_t n) { return n >= 9 && head[8] == '{'; }

apr_status apr_weights_parse(apr_model *model, const uint8_t *data, size_t n_bytes, const char *where, apr_error *err)
{
    if (apr_starts_safetensors(data, n_bytes) || !apr_is_torch_start(data, n_bytes))
        return apr_safetensors_parse(model, data, n_bytes, where, err);
    model->format = APR_FORMAT_PYTORCH;
    return apr_torch_parse(model, data, n_bytes, where, err);
}

static apr_status read_weights(apr_model *model, const char *folder, const char *name, apr_error *err)
{
    const char *path;
    APR_TRY(map_file(model, folder, name, &path, err));
    const apr_map *const map = &model->maps[model->n_maps - 1];
    APR_TRY(apr_refuse_placeholder(map->data, map->n_bytes, path, err));
    return apr_weights_parse(model, map->data, map->n_bytes, path, err);
}

/* index: NULL if the shards are known by their numbers. */
static apr_status read_shards(apr_model *model, const char *folder, const cJSON *index, const char *where, weight_files *weights,
                              apr_error *err)
{
    apr_shards shards = {0};

    if (index != NULL) APR_TRY(list_shards(index, where, &model->arena, &shards, err));
    else APR_TRY(list_numbered(weights->names[0], &model->arena, &shards, err));
    APR_TRY(allocate_maps(model, shards.n, err));
    const char **const names = apr_arena_array(&model->arena, shards.n + 1, sizeof *names);
    if (names == NULL) return apr_no_memory(err, "the names of the shards");
    names[0] = weights->names[0];
    weights->names = names;
    if (index == NULL) weights->n = 0; /* the first one is a shard itself */
    for (size_t i = 0; i < shards.n; i++) {
        if (!apr_folder_has(folder, shards.names[i], &model->arena))
            return apr_fail(err, APR_E_IO, "%s/%s: the file is missing, though %s, so the download is incomplete; %s", folder,
                            shards.names[i],
                            index != NULL ? apr_arena_print(&model->arena, "%s names it", weights->names[0]) : "it is one of the shards",
                            apr_hub_how_to_fetch(folder, &model->arena));
        shards.first_tensor[i] = model->n_tensors;
        names[weights->n] = apr_arena_copy(&model->arena, shards.names[i], strlen(shards.names[i])); /* the index is freed */
        if (names[weights->n++] == NULL) return apr_no_memory(err, "the names of the shards");
        APR_TRY(read_weights(model, folder, shards.names[i], err));
    }
    shards.first_tensor[shards.n] = model->n_tensors;
    if (index != NULL) APR_TRY(apr_weight_map_apply(model, index, &shards, where, err));
    return apr_model_index_names(model, err);
}

/* The index is weights->names[0]. */
static apr_status read_indexed(apr_model *model, const char *folder, weight_files *weights, apr_error *err)
{
    apr_map map = {0};
    cJSON *index = NULL;
    const char *const path = apr_arena_print(&model->arena, "%s/%s", folder, weights->names[0]);

    if (path == NULL) return apr_no_memory(err, "a path");
    APR_TRY(apr_map_open(&map, path, err));
    apr_status status = apr_refuse_placeholder(map.data, map.n_bytes, path, err);
    if (status == APR_OK) status = apr_json_parse(&index, map.data, map.n_bytes, path, err);
    if (status == APR_OK) status = read_shards(model, folder, index, path, weights, err);
    cJSON_Delete(index);
    apr_map_close(&map);
    return status;
}

/* Weights with Meta's names. wants_params: there is no config.json, so params.json is read. */
static apr_status take_as_consolidated(apr_model *model, const char *folder, bool wants_params, apr_error *err)
{
    const apr_attachment *const params = apr_model_attachment(model, "params.json");
    const char *const where = apr_arena_print(&model->arena, "%s/params.json", folder);

    model->naming = APR_NAMING_META;
    model->origin.format = APR_FORMAT_CONSOLIDATED;
    if (where == NULL) return apr_no_memory(err, "a path");
    return wants_params && params != NULL ? apr_params_read(params, model, &model->hparams, &model->arena, where, err) : APR_OK;
}

/* Drops links out of the folder from the attachments: they have been read, but are not copied. */
static apr_status leave_links(apr_model *model, const char *folder, const weight_files *weights, apr_error *err)
{
    const char *const slash = strrchr(model->path, '/'), *left;
    const char *const named = slash != NULL ? slash + 1 : model->path;

    APR_TRY(apr_drop_links(model, folder, weights->n > 0 ? weights->names[weights->n - 1] : named, &left, err));
    return add_left_behind(model, left, err);
}

/* Reads the small files, and completes the model by them. */
static apr_status complete_model(apr_model *model, const char *folder, const weight_files *weights, apr_error *err)
{
    APR_TRY(read_attachments(model, folder, weights, err));
    const apr_attachment *const config = apr_model_attachment(model, "config.json");
    if (config != NULL) {
        const char *const where = apr_arena_print(&model->arena, "%s/config.json", folder);
        if (where == NULL) return apr_no_memory(err, "a path");
        APR_TRY(apr_hf_config_read(config, &model->hparams, &model->arena, where, err));
    }
    if (apr_has_meta_names(model)) APR_TRY(take_as_consolidated(model, folder, config == NULL, err));
    APR_TRY(apr_hparams_complete(&model->hparams, &model->arena, model->path, err));
    APR_TRY(apr_hf_vocab_read(model, &model->vocab, &model->arena, err));
    APR_TRY(apr_model_index_names(model, err));
    apr_resolve_tied_head(model, config != NULL && apr_family_config_of(model->hparams.architecture) != NULL);
    APR_TRY(apr_quantization_read(model, &model->arena, &model->quantization, err));
    if (config != NULL && model->hparams.refusal == NULL)
        model->hparams.refusal = apr_hf_bias_conflict(model, &model->hparams, false, &model->arena);
    APR_TRY(apr_bind_scales(model, config, err));
    APR_TRY(apr_bind_packings(model, err));
    return leave_links(model, folder, weights, err);
}

static bool holds_only_adapter(const char *folder, apr_arena *arena)
{
    const bool has_model = apr_folder_has(folder, "model.safetensors", arena) || apr_folder_has(folder, APR_CHECKPOINT_INDEX, arena);
    return !has_model && apr_folder_has(folder, APR_LORA_CONFIG, arena);
}

/* Does not list an index among other_weights if it names only the file that is read. */
static apr_status forget_same_index(apr_model *model, const char *folder, apr_weights_choice *choice, apr_error *err)
{
    static const char index_name[] = APR_CHECKPOINT_INDEX;
    const char *const others = choice->others;
    const size_t n = sizeof index_name - 1;
    apr_map map = {0};
    cJSON *index = NULL;

    if (others == NULL || strcmp(choice->name, "model.safetensors") != 0 || strncmp(others, index_name, n) != 0) return APR_OK;
    const char *const path = apr_arena_print(&model->arena, "%s/%s", folder, index_name);
    if (path == NULL) return apr_no_memory(err, "a path");
    const bool is_same = apr_map_open(&map, path, NULL) == APR_OK && apr_json_parse(&index, map.data, map.n_bytes, path, NULL) == APR_OK &&
                         !apr_weight_map_has_others(index, choice->name);
    cJSON_Delete(index);
    apr_map_close(&map);
    if (is_same) model->other_weights = others[n] == ',' ? others + n + 2 : NULL;
    return APR_OK;
}

static apr_status read_folder(apr_model *model, const char *folder, apr_error *err)
{
    apr_weights_choice choice;
    weight_files weights = {&choice.name, 1};

    if (holds_only_adapter(folder, &model->arena))
        return apr_fail(
            err, APR_E_USAGE,
            "%s: this is an adapter, not a model; merge it into the one that it was trained on: aprconv convert --lora %s IN OUT", folder,
            folder);
    APR_TRY(apr_choose_weights(folder, &choice, &model->arena, err));
    model->other_weights = choice.others;
    APR_TRY(forget_same_index(model, folder, &choice, err));
    if (choice.is_index) {
        APR_TRY(read_indexed(model, folder, &weights, err));
    } else if (choice.is_numbered) {
        APR_TRY(read_shards(model, folder, NULL, folder, &weights, err));
    } else {
        APR_TRY(allocate_maps(model, 1, err));
        APR_TRY(read_weights(model, folder, choice.name, err));
    }
    return complete_model(model, folder, &weights, err);
}

/* Folder and name of a path, in the arena. */
static apr_status split_path(const char *path, apr_arena *arena, const char **folder, const char **name, apr_error *err)
{
    const char *const slash = strrchr(path, '/');
    *folder = slash == NULL ? "." : slash == path ? "" : apr_arena_copy(arena, path, (size_t)(slash - path));
    *name = slash == NULL ? path : slash + 1;
    return *folder != NULL ? APR_OK : apr_no_memory(err, "a path");
}

static apr_status start_model(apr_model *model, const char *path, apr_format format, apr_error *err)
{
    *model = (apr_model){.format = format, .naming = APR_NAMING_HF};
    if (format == APR_FORMAT_SAFETENSORS) model->origin.format = APR_FORMAT_SAFETENSORS;
    model->kv.arena = &model->arena;
    model->path = apr_arena_copy(&model->arena, path, strlen(path));
    return model->path != NULL ? APR_OK : apr_no_memory(err, "a path");
}

/* The folder of a checkpoint, and the name of the file in it; *name NULL: `path` is the folder. */
static apr_status find_folder(const char *path, apr_arena *arena, const char **folder, const char **name, apr_error *err)
{
    const char *const inside = apr_arena_print(arena, "%s/.", path); /* exists when `path` is a folder */
    size_t n = strlen(path);

    if (inside == NULL) return apr_no_memory(err, "a path");
    if (access(inside, F_OK) != 0) return split_path(path, arena, folder, name, err);
    while (n > 1 && path[n - 1] == '/') n--;
    *folder = apr_arena_copy(arena, path, n);
    *name = NULL;
    return *folder != NULL ? apr_hub_resolve(folder, arena, err) : apr_no_memory(err, "a path");
}

static apr_status read_checkpoint(apr_model *model, const char *path, apr_error *err)
{
    const char *folder, *name;

    APR_TRY(find_folder(path, &model->arena, &folder, &name, err));
    if (name == NULL) return read_folder(model, folder, err);
    APR_TRY(allocate_maps(model, 1, err));
    APR_TRY(read_weights(model, folder, name, err));
    return complete_model(model, folder, &(weight_files){0}, err);
}

apr_status apr_safetensors_open(apr_model *model, const char *path, apr_error *err)
{
    apr_status status = start_model(model, path, APR_FORMAT_SAFETENSORS, err);
    if (status == APR_OK) status = read_checkpoint(model, path, err);
    if (status != APR_OK) apr_model_close(model);
    return status;
}

static apr_status read_vocab_files(apr_model *model, const char *path, apr_error *err)
{
    const char *folder, *name;

    APR_TRY(find_folder(path, &model->arena, &folder, &name, err));
    APR_TRY(allocate_maps(model, 0, err));
    APR_TRY(read_attachments(model, folder, &(weight_files){0}, err));
    return apr_hf_vocab_read(model, &model->vocab, &model->arena, err);
}

apr_status apr_hf_vocab_open(apr_model *model, const char *path, apr_error *err)
{
    apr_status status = start_model(model, path, APR_FORMAT_SAFETENSORS, err);
    if (status == APR_OK) status = read_vocab_files(model, path, err);
    if (status != APR_OK) apr_model_close(model);
    return status;
}

/* modelopt describes the quantization in a file next to config.json. */
static apr_status read_quantization_file(apr_model *model, const char *config_path, apr_attachment *file, apr_error *err)
{
    static const char quantization[] = "hf_quant_config.json";
    const char *folder, *name, *path;

    APR_TRY(split_path(config_path, &model->arena, &folder, &name, err));
    if (strcmp(name, "config.json") != 0 || !apr_folder_has(folder, quantization, &model->arena)) return APR_OK;
    APR_TRY(map_file(model, folder, quantization, &path, err));
    const apr_map *const map = &model->maps[model->n_maps - 1];
    *file = (apr_attachment){quantization, map->data, map->n_bytes};
    model->n_attachments++;
    return APR_OK;
}

static apr_status read_config(apr_model *model, const char *path, apr_error *err)
{
    apr_attachment *const config = apr_arena_array(&model->arena, 2, sizeof *config);
    if (config == NULL) return apr_no_memory(err, "a config");
    APR_TRY(allocate_maps(model, 1, err));
    APR_TRY(apr_map_open(&model->maps[0], path, err));
    model->n_maps = 1;
    *config = (apr_attachment){"config.json", model->maps[0].data, model->maps[0].n_bytes};
    model->attachments = config;
    model->n_attachments = 1;
    APR_TRY(read_quantization_file(model, path, &config[1], err));
    APR_TRY(apr_hf_config_read(config, &model->hparams, &model->arena, path, err));
    if (model->hparams.hidden_size == 0 && model->hparams.architecture[0] != '\0' && apr_family_find(model->hparams.architecture) == NULL)
        return apr_fail(err, APR_E_UNSUPPORTED,
                        "%s: unknown architecture '%.60s'; a folder with its weights can still be converted and quantized", path,
                        model->hparams.architecture);
    if (model->hparams.hidden_size == 0)
        return apr_fail(err, APR_E_DAMAGED, "%s: hidden_size is missing: not the config.json of a model", path);
    APR_TRY(apr_hparams_complete(&model->hparams, &model->arena, path, err));
    APR_TRY(apr_quantization_read(model, &model->arena, &model->quantization, err));
    return apr_model_index_names(model, err);
}

apr_status apr_config_open(apr_model *model, const char *path, apr_error *err)
{
    apr_status status = start_model(model, path, APR_FORMAT_CONFIG, err);
    if (status == APR_OK) status = read_config(model, path, err);
    if (status != APR_OK) apr_model_close(model);
    return status;
}
