/* gguf_read.c - reads GGUF files and their shards: header, keys, tensor infos, extents. Trusts no number of the file. */
#include "formats/base/text.h"
#include "formats/files/placeholder.h"
#include "formats/gguf/gguf.h"
#include "formats/shape/family.h"
#include "formats/shape/gguf_hparams.h"
#include "formats/vocab/gguf_vocab.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    MAX_RANK = 4,
    MAX_NAME_BYTES = 65535,
    DEFAULT_ALIGNMENT = 32,
    MIN_INFO_BYTES = 8 + 1 + 4 + 4 + 8, /* length, one letter, rank 0, type, offset */
    SHARD_TAIL = sizeof "-00001-of-00005.gguf" - 1
};

/* One file while it is being read. Its tensors are written to the model's table from `tensors` on. */
typedef struct shard {
    const char *path;
    apr_cursor cursor;
    uint32_t version;
    uint64_t n_tensors, alignment;
    apr_kv_list kv;
    apr_tensor *tensors;
    bool head_only; /* tensors may be after the end of the file */
} shard;

/* A tensor's offset from the start of the data. `index` is its position in the file's list. */
typedef struct place {
    uint64_t offset;
    size_t index;
} place;

static const char *const split_keys[] = {"split.no", "split.count", "split.tensors.count"};

/* --- names of split files: PREFIX-00001-of-00005.gguf --- */

static bool five_digits(const char *text, int64_t *value)
{
    *value = 0;
    for (int i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        *value = *value * 10 + (text[i] - '0');
    }
    return true;
}

/* The number of shards that the name states; 1 for any other name. */
static int64_t shards_by_name(const char *path)
{
    const size_t n = strlen(path);
    int64_t no, count;
    if (n < SHARD_TAIL) return 1;
    const char *const tail = path + n - SHARD_TAIL;
    const bool fits = tail[0] == '-' && memcmp(tail + 6, "-of-", 4) == 0 && strcmp(tail + 15, ".gguf") == 0;
    return fits && five_digits(tail + 1, &no) && five_digits(tail + 10, &count) && no >= 1 && no <= count ? count : 1;
}

static const char *shard_path(apr_arena *arena, const char *path, size_t i, size_t n_shards)
{
    const int n_prefix = (int)(strlen(path) - SHARD_TAIL);
    return apr_arena_print(arena, "%.*s-%05zu-of-%05zu.gguf", n_prefix, path, i + 1, n_shards);
}

/* --- header and keys --- */

/* In a big-endian file the version reads byte-swapped, and so do all numbers after it. */
static apr_status read_version(shard *s, apr_error *err)
{
    uint32_t version = apr_cursor_u32(&s->cursor);

    if (version > 0xffff) {
        s->cursor.big_endian = true;
        version = __builtin_bswap32(version);
    }
    s->version = version;
    if (s->cursor.failed)
        return apr_fail(err, APR_E_DAMAGED, "%s: the file ends within its header, after %zu bytes", s->path, s->cursor.n_bytes);
    if (version == 1)
        return apr_fail(err, APR_E_UNSUPPORTED,
                        "%s: GGUF version 1 (of August 2023) counts in 32 bits; convert the model again with a current tool", s->path);
    if (version == 0) return apr_fail(err, APR_E_DAMAGED, "%s: GGUF version 0 does not exist", s->path);
    if (version > 3)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: GGUF version %u is not supported; versions 2 and 3 are", s->path, version);
    return APR_OK;
}

static apr_status read_alignment(shard *s, apr_error *err)
{
    const apr_kv *const item = apr_kv_find(&s->kv, "general.alignment");

    s->alignment = DEFAULT_ALIGNMENT;
    if (item == NULL) return APR_OK;
    s->alignment = item->value.bits;
    if (item->type != APR_KV_U32)
        return apr_fail(err, APR_E_DAMAGED, "%s: general.alignment is %s, it must be u32", s->path, apr_kv_type_name(item->type));
    if (s->alignment == 0 || (s->alignment & (s->alignment - 1)) != 0)
        return apr_fail(err, APR_E_DAMAGED, "%s: general.alignment is %llu, it must be a power of two", s->path,
                        (unsigned long long)s->alignment);
    return APR_OK;
}

static apr_status read_head(shard *s, const apr_map *map, apr_arena *arena, apr_error *err)
{
    s->cursor = (apr_cursor){.data = map->data, .n_bytes = map->n_bytes};
    s->kv = (apr_kv_list){.arena = arena};
    const uint8_t *const magic = apr_cursor_take(&s->cursor, 4);
    if (magic == NULL || memcmp(magic, "GGUF", 4) != 0)
        return apr_fail(err, APR_E_DAMAGED, "%s: not a GGUF file: it does not begin with \"GGUF\"", s->path);
    APR_TRY(read_version(s, err));
    s->n_tensors = apr_cursor_u64(&s->cursor);
    const uint64_t n_kv = apr_cursor_u64(&s->cursor);
    if (s->cursor.failed)
        return apr_fail(err, APR_E_DAMAGED, "%s: the file ends within its header, after %zu bytes", s->path, s->cursor.n_bytes);
    APR_TRY(apr_kv_read(&s->cursor, n_kv, s->path, &s->kv, err));
    APR_TRY(apr_kv_check_keys(&s->kv, s->path, APR_E_DAMAGED, err));
    if (s->n_tensors > apr_cursor_left(&s->cursor) / MIN_INFO_BYTES)
        return apr_fail(err, APR_E_DAMAGED, "%s: %llu tensors do not fit in the %zu bytes after the keys", s->path,
                        (unsigned long long)s->n_tensors, apr_cursor_left(&s->cursor));
    return read_alignment(s, err);
}

/* --- tensor infos --- */

static apr_status read_name(shard *s, size_t i, apr_arena *arena, const char **name, apr_error *err)
{
    const size_t at = s->cursor.at;
    const uint64_t n = apr_cursor_u64(&s->cursor);
    const apr_str raw = {(const char *)apr_cursor_take(&s->cursor, n), (size_t)n};

    if (s->cursor.failed)
        return apr_fail(err, APR_E_DAMAGED,
                        "%s: the list of tensors ends early: tensor %zu at byte %zu needs more than the %zu bytes of the file", s->path, i,
                        at, s->cursor.n_bytes);
    if (n == 0 || n > MAX_NAME_BYTES)
        return apr_fail(err, APR_E_DAMAGED, "%s: the name of tensor %zu at byte %zu has %llu bytes; 1 to %d are allowed", s->path, i, at,
                        (unsigned long long)n, MAX_NAME_BYTES);
    if (memchr(raw.text, '\0', raw.n_bytes) != NULL || !apr_str_is_utf8(raw))
        return apr_fail(err, APR_E_DAMAGED, "%s: the name of tensor %zu at byte %zu is not UTF-8 text", s->path, i, at);
    *name = apr_arena_copy(arena, raw.text, raw.n_bytes);
    return *name != NULL ? APR_OK : apr_no_memory(err, "the names of the tensors");
}

/* GGUF lists dims innermost first, we outermost first. */
static apr_status read_dims(shard *s, apr_tensor *t, apr_error *err)
{
    const uint32_t rank = apr_cursor_u32(&s->cursor);

    if (rank > MAX_RANK)
        return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%.200s' has %u dimensions; GGUF allows %d", s->path, t->name, rank, MAX_RANK);
    t->rank = (int)rank;
    for (int i = t->rank - 1; i >= 0; i--) {
        const uint64_t n = apr_cursor_u64(&s->cursor);
        if (n > INT64_MAX)
            return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%.200s' has a dimension of %llu", s->path, t->name, (unsigned long long)n);
        t->dims[i] = (int64_t)n;
    }
    return APR_OK;
}

static apr_status read_info(shard *s, size_t i, apr_arena *arena, place *where, apr_error *err)
{
    apr_tensor *const t = &s->tensors[i];

    APR_TRY(read_name(s, i, arena, &t->name, err));
    APR_TRY(read_dims(s, t, err));
    const uint32_t id = apr_cursor_u32(&s->cursor);
    *where = (place){apr_cursor_u64(&s->cursor), i};
    if (s->cursor.failed)
        return apr_fail(err, APR_E_DAMAGED, "%s: the list of tensors ends early, within tensor '%.200s'", s->path, t->name);
    t->dtype = apr_dtype_by_ggml_id(id);
    if (t->dtype == APR_DTYPE_COUNT)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: tensor '%.200s' has type %u: %s", s->path, t->name, id, apr_ggml_id_reason(id));
    if (where->offset % s->alignment != 0)
        return apr_fail(err, APR_E_DAMAGED, "%s: tensor '%.200s' is at offset %llu, not a multiple of the alignment %llu", s->path, t->name,
                        (unsigned long long)where->offset, (unsigned long long)s->alignment);
    return apr_tensor_size(t, s->path, err);
}

/* --- extents --- */

static int by_offset(const void *a, const void *b)
{
    const place *const x = a, *const y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Sorts the tensors by data offset. *was_sorted: the file listed them in that order. */
static apr_status sort_tensors(shard *s, place *places, bool *was_sorted, apr_error *err)
{
    const size_t n = (size_t)s->n_tensors;

    *was_sorted = true;
    for (size_t i = 1; i < n; i++)
        if (places[i].offset < places[i - 1].offset) *was_sorted = false;
    if (*was_sorted) return APR_OK;
    apr_tensor *const as_listed = malloc(n * sizeof *as_listed);
    if (as_listed == NULL) return apr_no_memory(err, "the list of tensors");
    memcpy(as_listed, s->tensors, n * sizeof *as_listed);
    qsort(places, n, sizeof *places, by_offset);
    for (size_t i = 0; i < n; i++) s->tensors[i] = as_listed[places[i].index];
    free(as_listed);
    return APR_OK;
}

/* Copies a big-endian tensor's numbers to little-endian. Quantized blocks are refused: no known program writes such files. */
static apr_status swap_tensor(const shard *s, apr_tensor *t, apr_arena *arena, apr_error *err)
{
    const apr_dtype_facts *const facts = &apr_dtypes[t->dtype];
    const size_t n_each = (size_t)facts->bytes_per_block, n_bytes = (size_t)t->n_bytes;

    if (facts->elems_per_block > 1)
        return apr_fail(err, APR_E_UNSUPPORTED,
                        "%s: tensor '%.200s' holds big-endian %s blocks; only plain numbers are read from a big-endian file", s->path,
                        t->name, facts->name);
    if (n_each == 1) return APR_OK;
    uint8_t *const swapped = apr_arena_alloc(arena, n_bytes);
    if (swapped == NULL) return apr_no_memory(err, "the tensors of a big-endian file");
    for (size_t i = 0; i < n_bytes; i += n_each)
        for (size_t k = 0; k < n_each; k++) swapped[i + k] = t->data[i + n_each - 1 - k];
    t->data = swapped;
    return APR_OK;
}

/* Gives each tensor its bytes. `places` are in the order of the tensors, that is by offset. */
static apr_status place_tensors(const shard *s, const place *places, apr_arena *arena, apr_error *err)
{
    const uint64_t start = apr_align_up(s->cursor.at, s->alignment), n_file = s->cursor.n_bytes;
    const uint64_t n_data = n_file > start ? n_file - start : 0;
    uint64_t end = 0; /* of the previous tensor */
    const char *before = NULL;

    for (size_t i = 0; i < s->n_tensors; i++) {
        apr_tensor *const t = &s->tensors[i];
        const uint64_t offset = places[i].offset;
        const bool is_there = offset <= n_data && t->n_bytes <= n_data - offset;
        if (!is_there && (!s->head_only || t->n_bytes > UINT64_MAX - offset))
            return apr_fail(err, APR_E_DAMAGED,
                            "%s: tensor '%.200s' needs %llu bytes at offset %llu of the data, which has only %llu; the file is cut short "
                            "or its header is wrong",
                            s->path, t->name, (unsigned long long)t->n_bytes, (unsigned long long)offset, (unsigned long long)n_data);
        if (t->n_bytes == 0) continue;
        if (before != NULL && offset < end)
            return apr_fail(err, APR_E_DAMAGED, "%s: tensors '%.200s' and '%.200s' overlap", s->path, before, t->name);
        before = t->name;
        end = offset + t->n_bytes;
        if (is_there) t->data = s->cursor.data + start + offset;
        if (is_there && s->cursor.big_endian) APR_TRY(swap_tensor(s, t, arena, err));
    }
    return APR_OK;
}

/* `order` gets the names in the file's order, `offsets` the data offsets in ascending order. */
static apr_status read_tensors(shard *s, apr_arena *arena, const char **order, bool *was_sorted, uint64_t *offsets, apr_error *err)
{
    const size_t n = (size_t)s->n_tensors;
    apr_status status = APR_OK;

    *was_sorted = true;
    if (n == 0) return APR_OK;
    place *const places = calloc(n, sizeof *places);
    if (places == NULL) return apr_no_memory(err, "the list of tensors");
    for (size_t i = 0; i < n && status == APR_OK; i++) {
        status = read_info(s, i, arena, &places[i], err);
        order[i] = s->tensors[i].name;
    }
    if (status == APR_OK) status = sort_tensors(s, places, was_sorted, err);
    if (status == APR_OK) status = place_tensors(s, places, arena, err);
    for (size_t i = 0; i < n && status == APR_OK; i++) offsets[i] = places[i].offset;
    free(places);
    return status;
}

/* --- the model --- */

/* The shard number and count in the keys must agree with the file's name. */
static apr_status check_split(const shard *s, size_t i, size_t n_shards, apr_error *err)
{
    int64_t no = 0, count = 1;

    apr_kv_get_int(&s->kv, "split.no", &no);
    apr_kv_get_int(&s->kv, "split.count", &count);
    if (count <= 1 && n_shards == 1) return APR_OK;
    if (n_shards == 1)
        return apr_fail(err, APR_E_IO,
                        "%s: this is shard %lld of %lld; the others are found only by names of the form PREFIX-%05lld-of-%05lld.gguf",
                        s->path, (long long)no + 1, (long long)count, (long long)no + 1, (long long)count);
    if (no != (int64_t)i || count != (int64_t)n_shards)
        return apr_fail(err, APR_E_DAMAGED, "%s: the file says it is shard %lld of %lld; its name says %zu of %zu", s->path,
                        (long long)no + 1, (long long)count, i + 1, n_shards);
    return APR_OK;
}

static apr_status read_heads(apr_model *model, shard *shards, bool head_only, apr_error *err)
{
    int64_t stated;

    for (size_t i = 0; i < model->n_maps; i++) {
        shards[i].head_only = head_only;
        shards[i].path = model->n_maps == 1 ? model->path : shard_path(&model->arena, model->path, i, model->n_maps);
        if (shards[i].path == NULL) return apr_no_memory(err, "a path");
        APR_TRY(read_head(&shards[i], &model->maps[i], &model->arena, err));
        APR_TRY(check_split(&shards[i], i, model->n_maps, err));
        model->n_tensors += (size_t)shards[i].n_tensors;
    }
    if (model->n_maps > 1 && apr_kv_get_int(&shards[0].kv, "split.tensors.count", &stated) && stated != (int64_t)model->n_tensors)
        return apr_fail(err, APR_E_DAMAGED, "%s: the shards hold %zu tensors, split.tensors.count says %lld", model->path, model->n_tensors,
                        (long long)stated);
    model->kv = shards[0].kv;
    if (model->n_maps > 1)
        for (size_t i = 0; i < sizeof split_keys / sizeof *split_keys; i++) apr_kv_remove(&model->kv, split_keys[i]);
    return APR_OK;
}

static apr_status read_shards(apr_model *model, shard *shards, bool head_only, apr_error *err)
{
    bool all_sorted = true, was_sorted;
    size_t n_done = 0;

    APR_TRY(read_heads(model, shards, head_only, err));
    model->tensors = apr_arena_array(&model->arena, model->n_tensors, sizeof *model->tensors);
    const char **const order = apr_arena_array(&model->arena, model->n_tensors, sizeof *order);
    uint64_t *const offsets = apr_arena_array(&model->arena, model->n_tensors, sizeof *offsets);
    if (model->tensors == NULL || order == NULL || offsets == NULL) return apr_no_memory(err, "the list of tensors");
    for (size_t i = 0; i < model->n_maps; i++) {
        shards[i].tensors = model->tensors + n_done;
        APR_TRY(read_tensors(&shards[i], &model->arena, order + n_done, &was_sorted, offsets + n_done, err));
        all_sorted = all_sorted && was_sorted;
        n_done += (size_t)shards[i].n_tensors;
    }
    model->origin = (apr_origin){.format = APR_FORMAT_GGUF, .gguf_version = shards[0].version};
    if (shards[0].cursor.big_endian) model->origin.gguf_version = __builtin_bswap32(shards[0].version);
    if (!all_sorted) {
        model->origin.order = order;
        model->origin.n_order = model->n_tensors;
    }
    const bool is_plain = !head_only && model->n_maps == 1;
    return is_plain ? apr_gguf_find_gaps(model, offsets, shards[0].cursor.at, shards[0].alignment, err) : APR_OK;
}

/* gemma 4: full layers may have no value projection and use the keys' one (attention_k_eq_v). */
static bool lacks_values(const apr_model *model)
{
    char name[40];

    for (int64_t i = 0; i < model->hparams.num_layers; i++) {
        snprintf(name, sizeof name, "blk.%lld.attn_k.weight", (long long)i);
        if (apr_layer_kind_of(&model->hparams, i) != APR_LAYER_FULL || apr_model_find(model, name) == NULL) continue;
        snprintf(name, sizeof name, "blk.%lld.attn_v.weight", (long long)i);
        return apr_model_find(model, name) == NULL;
    }
    return false;
}

/* Reads the hyperparameters that have no keys from the tensors. */
static apr_status read_from_tensors(apr_model *model, apr_error *err)
{
    const apr_tensor *const laurel = apr_model_find(model, "blk.0.laurel_l.weight"); /* no key states its rows */
    apr_hparams *const h = &model->hparams;
    const apr_family_gguf *const facts = apr_family_gguf_of(apr_family_find(h->architecture));

    if (facts->ssm_norm_in_tensors) h->mamba_rms_norm = h->mamba_rms_norm || apr_model_find(model, "blk.0.ssm_norm.weight") != NULL;
    if (facts->qk_norm_in_tensors) h->use_qk_norm = h->use_qk_norm || apr_model_find(model, "blk.0.attn_q_norm.weight") != NULL;
    if (laurel != NULL && laurel->rank == 2) h->laurel_rank = laurel->dims[0];
    if (h->global_head_dim > 0) h->attention_k_eq_v = h->attention_k_eq_v || lacks_values(model);
    return apr_gguf_rope_read(model, err);
}

/* NVFP4 has one more scale per matrix in addition to the block scales: "X.scale" for "X.weight", a single one or one per expert. */
static void bind_scales(apr_model *model)
{
    char name[512];

    for (size_t i = 0; i < model->n_tensors; i++) {
        apr_tensor *const t = &model->tensors[i];
        const size_t n = apr_stem_of(t->name, ".weight");
        if (t->dtype != APR_NVFP4 || t->rank < 2 || n == 0 || strlen(t->name) + 1 > sizeof name) continue;
        snprintf(name, sizeof name, "%.*s.scale", (int)n, t->name);
        const apr_tensor *const scale = apr_model_find(model, name);
        const int64_t rows = apr_tensor_matrix_rows(t), n_matrices = rows > 0 ? apr_tensor_rows(t) / rows : 0;
        if (scale == NULL || scale->dtype != APR_F32 || apr_tensor_elems(t) == 0) continue;
        if (apr_tensor_elems(scale) != 1 && apr_tensor_elems(scale) != n_matrices) continue;
        t->scale = scale;
        t->scale_rows = apr_tensor_elems(scale) == 1 ? apr_tensor_rows(t) : rows;
        t->scale_columns = apr_tensor_columns(t);
    }
}

static apr_status parse(apr_model *model, bool head_only, apr_error *err)
{
    model->format = APR_FORMAT_GGUF;
    model->naming = APR_NAMING_GGML;
    shard *const shards = calloc(model->n_maps, sizeof *shards);
    if (shards == NULL) return apr_no_memory(err, "the shards");
    const apr_status status = read_shards(model, shards, head_only, err);
    free(shards);
    if (status != APR_OK) return status;

    APR_TRY(apr_model_index_names(model, err));
    bind_scales(model);
    APR_TRY(apr_gguf_hparams(&model->kv, &model->hparams, &model->arena, model->path, err));
    const apr_tensor *const embedding = apr_model_find(model, "token_embd.weight");
    model->hparams.tie_word_embeddings = embedding != NULL && apr_model_find(model, "output.weight") == NULL;
    if (model->hparams.vocab_size == 0 && embedding != NULL && embedding->rank == 2) model->hparams.vocab_size = embedding->dims[0];
    APR_TRY(apr_hparams_complete(&model->hparams, &model->arena, model->path, err));
    APR_TRY(read_from_tensors(model, err));
    return apr_gguf_vocab(&model->kv, &model->vocab, &model->arena, model->path, err);
}

apr_status apr_gguf_parse(apr_model *model, apr_error *err) { return parse(model, false, err); }

/* The number of shards that the keys of the opened file state. Files whose names are not those of shards count as one. */
static apr_status count_shards(const apr_model *model, size_t *n_shards, apr_error *err)
{
    const int64_t by_name = shards_by_name(model->path);
    int64_t by_keys = 1;
    apr_arena arena = {0};
    shard s = {.path = model->path};

    *n_shards = 1;
    if (by_name <= 1) return APR_OK;
    const apr_status status = read_head(&s, &model->maps[0], &arena, err);
    if (status == APR_OK) apr_kv_get_int(&s.kv, "split.count", &by_keys);
    if (by_keys == by_name) *n_shards = (size_t)by_name;
    apr_arena_close(&arena);
    return status;
}

static apr_status open_shards(apr_model *model, size_t n_shards, apr_error *err)
{
    apr_map_close(&model->maps[0]);
    model->maps = apr_arena_array(&model->arena, n_shards, sizeof *model->maps);
    model->n_maps = 0;
    if (model->maps == NULL) return apr_no_memory(err, "the shards");
    for (size_t i = 0; i < n_shards; i++) {
        const char *const path = shard_path(&model->arena, model->path, i, n_shards);
        if (path == NULL) return apr_no_memory(err, "a path");
        apr_map *const map = &model->maps[model->n_maps];
        APR_TRY(apr_map_open(map, path, err));
        model->n_maps++;
        APR_TRY(apr_refuse_placeholder(map->data, map->n_bytes, path, err));
    }
    return APR_OK;
}

static apr_status open_files(apr_model *model, apr_error *err)
{
    size_t n_shards;

    model->maps = apr_arena_alloc(&model->arena, sizeof *model->maps);
    if (model->maps == NULL) return apr_no_memory(err, "a file");
    APR_TRY(apr_map_open(model->maps, model->path, err));
    model->n_maps = 1;
    APR_TRY(count_shards(model, &n_shards, err));
    return n_shards > 1 ? open_shards(model, n_shards, err) : APR_OK;
}

static apr_status open_model(apr_model *model, const char *path, bool head_only, apr_error *err)
{
    *model = (apr_model){0};
    model->path = apr_arena_copy(&model->arena, path, strlen(path));
    apr_status status = model->path != NULL ? open_files(model, err) : apr_no_memory(err, "a path");
    if (status == APR_OK) status = parse(model, head_only, err);
    if (status != APR_OK) apr_model_close(model);
    return status;
}

apr_status apr_gguf_open(apr_model *model, const char *path, apr_error *err) { return open_model(model, path, false, err); }

/* All missing tensors share one mapping of zeros. */
static apr_status fill_missing(apr_model *model, bool *is_whole, apr_error *err)
{
    uint64_t most = 0;

    for (size_t i = 0; i < model->n_tensors; i++)
        if (model->tensors[i].data == NULL && model->tensors[i].n_bytes > most) most = model->tensors[i].n_bytes;
    *is_whole = most == 0;
    if (*is_whole) return APR_OK;
    apr_map *const maps = apr_arena_array(&model->arena, model->n_maps + 1, sizeof *maps);
    if (maps == NULL) return apr_no_memory(err, "the shards");
    memcpy(maps, model->maps, model->n_maps * sizeof *maps);
    APR_TRY(apr_map_zeros(&maps[model->n_maps], most, err));
    model->maps = maps;
    model->n_maps++;
    for (size_t i = 0; i < model->n_tensors; i++)
        if (model->tensors[i].data == NULL) model->tensors[i].data = maps[model->n_maps - 1].data;
    return APR_OK;
}

apr_status apr_gguf_open_head(apr_model *model, const char *path, bool *is_whole, apr_error *err)
{
    APR_TRY(open_model(model, path, true, err));
    const apr_status status = fill_missing(model, is_whole, err);
    if (status != APR_OK) apr_model_close(model);
    return status;
}
