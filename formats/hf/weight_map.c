/* weight_map.c - sorts the index's entries by name, and compares them with the tensors. */
#include "formats/hf/weight_map.h"
#include "formats/base/text.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    const char *name;
    size_t shard;
    bool is_there, is_in_other_shard; /* in its shard, in another one */
} entry;

typedef struct entries {
    entry *items; /* [n] by name */
    size_t n;
} entries;

static int by_name(const void *a, const void *b) { return strcmp(((const entry *)a)->name, ((const entry *)b)->name); }
static apr_status list_entries(entries *e, const cJSON *index, const apr_shards *shards, apr_error *err)
{
    const cJSON *const map = apr_json_get(index, "weight_map"), *item;

    e->items = calloc((size_t)cJSON_GetArraySize(map) + 1, sizeof *e->items);
    if (e->items == NULL) return apr_no_memory(err, "the index");
    cJSON_ArrayForEach(item, map)
    {
        const char *const file = item->valuestring;
        const char **const shard = bsearch(&file, shards->names, shards->n, sizeof *shards->names, apr_compare_texts);
        e->items[e->n++] = (entry){.name = item->string, .shard = (size_t)(shard - shards->names)};
    }
    qsort(e->items, e->n, sizeof *e->items, by_name);
    return APR_OK;
}

static entry *find(const entries *e, const char *name)
{
    const entry wanted = {.name = name};
    return e->n > 0 ? bsearch(&wanted, e->items, e->n, sizeof *e->items, by_name) : NULL;
}

static void look_for_all(const entries *e, const apr_model *model, const apr_shards *shards)
{
    for (size_t s = 0; s < shards->n; s++)
        for (size_t i = shards->first_tensor[s]; i < shards->first_tensor[s + 1]; i++) {
            entry *const it = find(e, model->tensors[i].name);
            if (it != NULL) *(it->shard == s ? &it->is_there : &it->is_in_other_shard) = true;
        }
}

static void drop_copies(const entries *e, apr_model *model, const apr_shards *shards)
{
    size_t n = 0;

    for (size_t s = 0; s < shards->n; s++)
        for (size_t i = shards->first_tensor[s]; i < shards->first_tensor[s + 1]; i++) {
            const entry *const it = find(e, model->tensors[i].name);
            if (it == NULL || it->shard == s) model->tensors[n++] = model->tensors[i];
        }
    model->n_tensors = n;
}

static apr_status note_missing(const entries *e, apr_model *model, apr_error *err)
{
    const char *const before = model->not_copied, *first = NULL;
    size_t n = 0;

    for (size_t i = 0; i < e->n; i++) {
        if (e->items[i].is_there || e->items[i].is_in_other_shard) continue;
        if (n++ == 0) first = e->items[i].name;
    }
    if (n == 0) return APR_OK;
    model->not_copied =
        apr_arena_print(&model->arena, "%s%s%zu name%s in the index that no file has (%.100s%s)", before != NULL ? before : "",
                        before != NULL ? ", " : "", n, n == 1 ? "" : "s", first, n == 1 ? "" : ", ...");
    return model->not_copied != NULL ? APR_OK : apr_no_memory(err, "the index");
}

static apr_status apply(const entries *e, apr_model *model, const apr_shards *shards, const char *where, apr_error *err)
{
    look_for_all(e, model, shards);
    for (size_t i = 0; i < e->n; i++)
        if (!e->items[i].is_there && e->items[i].is_in_other_shard)
            return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%s' should be in %s, but is not", where, e->items[i].name,
                            shards->names[e->items[i].shard]);
    drop_copies(e, model, shards);
    return note_missing(e, model, err);
}

apr_status apr_weight_map_apply(apr_model *model, const cJSON *index, const apr_shards *shards, const char *where, apr_error *err)
{
    entries e = {0};

    apr_status status = list_entries(&e, index, shards, err);
    if (status == APR_OK) status = apply(&e, model, shards, where, err);
    free(e.items);
    return status;
}

bool apr_weight_map_has_others(const cJSON *index, const char *name)
{
    const cJSON *item;
    cJSON_ArrayForEach(item,
                       apr_json_get(index, "weight_map")) if (cJSON_IsString(item) && strcmp(item->valuestring, name) != 0) return true;
    return false;
}
