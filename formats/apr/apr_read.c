/* apr_read.c - reads APR v2 files of aprender, realizar and aprkit, and checks them against the file's size. */
#include "formats/apr/apr.h"
#include "formats/apr/apr_meta.h"
#include "formats/base/bytes.h"
#include "formats/base/crc32.h"
#include "formats/files/inputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 64, HEADER_CRC_AT = 40, MIN_ENTRY_BYTES = 2 + 1 + 1 + 8 + 8, FOOTER_BYTES = 4, ALIGNMENT = 64 };

typedef struct header {
    uint32_t n_tensors, metadata_bytes;
    uint64_t metadata_at, index_at, data_at;
} header;

/* One entry of the index, before its type is checked. */
typedef struct entry {
    apr_tensor tensor;
    uint64_t offset, n_bytes;
    uint32_t number; /* in the index */
    uint8_t type_id;
} entry;

typedef struct reader {
    apr_model *model;
    apr_error *err;
    const uint8_t *bytes;
    size_t n_bytes;
    header header;
    cJSON *metadata;
    entry *entries;
    size_t n_entries; /* without dropped entries */
} reader;

/* --- header --- */

static apr_status check_magic(const reader *r)
{
    const char *const path = r->model->path;

    if (r->n_bytes < HEADER_BYTES)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: %zu bytes are too few for the 64 bytes of an APR header", path, r->n_bytes);
    if (memcmp(r->bytes, "APRN", 4) == 0 || memcmp(r->bytes, "APR1", 4) == 0)
        return apr_fail(r->err, APR_E_UNSUPPORTED, "%s: an APR v1 file; only v2 is read: convert it again from its source", path);
    if (memcmp(r->bytes, "APR\0", 4) != 0 && memcmp(r->bytes, "APR2", 4) != 0)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: not an APR file: the first bytes are %02x %02x %02x %02x", path, r->bytes[0],
                        r->bytes[1], r->bytes[2], r->bytes[3]);
    const uint32_t stated = apr_load_le32(r->bytes + HEADER_CRC_AT);
    const uint32_t crc = apr_crc32(apr_crc32(0, r->bytes, HEADER_CRC_AT), r->bytes + HEADER_CRC_AT + 4, HEADER_BYTES - HEADER_CRC_AT - 4);
    if (crc != stated && stated != 0) /* 0: not computed, as aprender's serve leaves it */
        return apr_fail(r->err, APR_E_DAMAGED, "%s: the header is damaged: its checksum at byte %d is %08x, its bytes give %08x", path,
                        HEADER_CRC_AT, stated, crc);
    if (r->bytes[4] > 2)
        return apr_fail(r->err, APR_E_UNSUPPORTED, "%s: version %u.%u of the APR format is newer than this program", path, r->bytes[4],
                        r->bytes[5]);
    return APR_OK;
}

static apr_status check_flags(const reader *r)
{
    static const struct {
        uint16_t flag;
        const char *what;
    } refused[] = {{APR_FLAG_LZ4, "compressed with LZ4"},
                   {APR_FLAG_ZSTD, "compressed with zstd"},
                   {APR_FLAG_ENCRYPTED, "encrypted"},
                   {APR_FLAG_COLUMN_MAJOR, "stored column by column"}};
    const uint16_t flags = apr_load_le16(r->bytes + 6);

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (flags & refused[i].flag)
            return apr_fail(r->err, APR_E_UNSUPPORTED, "%s: the file says (flags 0x%04x at byte 6) that it is %s, which is not supported",
                            r->model->path, flags, refused[i].what);
    return APR_OK;
}

static apr_status read_header(reader *r)
{
    header *const h = &r->header;
    const char *const path = r->model->path;

    APR_TRY(check_magic(r));
    APR_TRY(check_flags(r));
    h->n_tensors = apr_load_le32(r->bytes + 8);
    h->metadata_at = apr_load_le64(r->bytes + 12);
    h->metadata_bytes = apr_load_le32(r->bytes + 20);
    h->index_at = apr_load_le64(r->bytes + 24);
    h->data_at = apr_load_le64(r->bytes + 32);

    if (h->metadata_at < HEADER_BYTES || h->metadata_at > r->n_bytes || h->metadata_bytes > r->n_bytes - h->metadata_at)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: %u bytes of metadata at byte %llu do not fit the file of %zu bytes", path,
                        h->metadata_bytes, (unsigned long long)h->metadata_at, r->n_bytes);
    if (h->index_at < HEADER_BYTES || h->data_at > r->n_bytes || h->index_at > h->data_at)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: the index at byte %llu and the data at byte %llu do not fit the file of %zu bytes",
                        path, (unsigned long long)h->index_at, (unsigned long long)h->data_at, r->n_bytes);
    if (h->n_tensors > (h->data_at - h->index_at) / MIN_ENTRY_BYTES)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: %u tensors cannot be in an index of %llu bytes", path, h->n_tensors,
                        (unsigned long long)(h->data_at - h->index_at));
    return APR_OK;
}

/* --- index --- */

static apr_status read_name(reader *r, apr_cursor *cursor, entry *e)
{
    const size_t at = cursor->at;
    const uint16_t n = apr_cursor_u16(cursor);
    const char *const name = (const char *)apr_cursor_take(cursor, n);

    if (name == NULL)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: the index ends inside entry %u at byte %zu", r->model->path, e->number, at);
    if (n == 0 || memchr(name, '\0', n) != NULL || !apr_str_is_utf8((apr_str){name, n}))
        return apr_fail(r->err, APR_E_DAMAGED, "%s: the name of tensor %u at byte %zu is not UTF-8", r->model->path, e->number, at + 2);
    e->tensor.name = apr_arena_copy(&r->model->arena, name, n);
    return e->tensor.name != NULL ? APR_OK : apr_no_memory(r->err, "the names of the tensors");
}

static apr_status read_entry(reader *r, apr_cursor *cursor, entry *e)
{
    apr_tensor *const t = &e->tensor;
    const char *const path = r->model->path;
    const uint64_t data_bytes = r->n_bytes - r->header.data_at;

    APR_TRY(read_name(r, cursor, e));
    e->type_id = apr_cursor_u8(cursor);
    t->rank = apr_cursor_u8(cursor);
    if (!cursor->failed && t->rank > APR_MAX_RANK)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: tensor '%s' has %d dimensions; %d are the limit", path, t->name, t->rank, APR_MAX_RANK);
    for (int i = 0; i < t->rank && !cursor->failed; i++) {
        const uint64_t dim = apr_cursor_u64(cursor);
        if (dim > INT64_MAX) return apr_fail(r->err, APR_E_DAMAGED, "%s: tensor '%s' has an impossible dimension", path, t->name);
        t->dims[i] = (int64_t)dim;
    }
    e->offset = apr_cursor_u64(cursor);
    e->n_bytes = apr_cursor_u64(cursor);
    if (cursor->failed)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: the index ends at byte %zu, inside the entry of tensor '%s'", path, cursor->n_bytes,
                        t->name);
    if (e->offset > data_bytes || e->n_bytes > data_bytes - e->offset)
        return apr_fail(r->err, APR_E_DAMAGED,
                        "%s: tensor '%s': %llu bytes at byte %llu end outside the file of %zu bytes: is it truncated?", path, t->name,
                        (unsigned long long)e->n_bytes, (unsigned long long)(r->header.data_at + e->offset), r->n_bytes);
    return APR_OK;
}

static int by_name(const void *a, const void *b) { return strcmp(((const entry *)a)->tensor.name, ((const entry *)b)->tensor.name); }

/* aprender's serve does not sort the index; entries keep their numbers. aprkit writes it sorted. */
static apr_status sort_index(reader *r)
{
    size_t i = 1;

    while (i < r->n_entries && by_name(&r->entries[i - 1], &r->entries[i]) < 0) i++;
    if (i >= r->n_entries) return APR_OK;
    if (apr_meta_aprkit(r->metadata) != NULL && by_name(&r->entries[i - 1], &r->entries[i]) > 0)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: the index is not sorted: tensor '%s' comes after '%s'", r->model->path,
                        r->entries[i].tensor.name, r->entries[i - 1].tensor.name);
    qsort(r->entries, r->n_entries, sizeof *r->entries, by_name);
    for (i = 1; i < r->n_entries; i++)
        if (by_name(&r->entries[i - 1], &r->entries[i]) == 0)
            return apr_fail(r->err, APR_E_DAMAGED, "%s: two tensors are called '%s'", r->model->path, r->entries[i].tensor.name);
    return APR_OK;
}

static apr_status read_index(reader *r)
{
    apr_cursor cursor = {.data = r->bytes, .n_bytes = (size_t)r->header.data_at, .at = (size_t)r->header.index_at};

    r->entries = calloc((size_t)r->header.n_tensors + 1, sizeof *r->entries);
    if (r->entries == NULL) return apr_no_memory(r->err, "the index of tensors");
    for (uint32_t i = 0; i < r->header.n_tensors; i++) {
        entry *const e = &r->entries[i];
        e->number = i;
        APR_TRY(read_entry(r, &cursor, e));
    }
    r->n_entries = r->header.n_tensors;
    return sort_index(r);
}

static entry *find_entry(const reader *r, const char *name)
{
    size_t first = 0, last = r->n_entries;
    while (first < last) {
        const size_t middle = first + (last - first) / 2;
        const int order = strcmp(r->entries[middle].tensor.name, name);
        if (order == 0) return &r->entries[middle];
        if (order < 0) first = middle + 1;
        else last = middle;
    }
    return NULL;
}

/* --- types and shapes --- */

/* Type ids with a different meaning for different writers: the first meaning whose size fits is used. Other ids have one meaning. */
static const struct {
    uint8_t id;
    apr_dtype meanings[2];
} ambiguous_ids[] = {
    {2, {APR_Q4_0, APR_Q4_0}},  {3, {APR_F64, APR_Q4_1}},    {6, {APR_I8, APR_Q5_0}},
    {7, {APR_U8, APR_Q5_1}},    {8, {APR_Q8_0, APR_APR_Q4}}, {9, {APR_APR_Q8, APR_APR_Q8}},
    {10, {APR_Q2_K, APR_Q2_K}}, {11, {APR_Q3_K, APR_Q3_K}},  {13, {APR_Q5_K, APR_Q5_K}},
};

/* Fallback for an id: the ggml type of that number, as in aprender's newest table. */
static apr_dtype type_by_ggml_id(uint8_t id)
{
    const apr_dtype dtype = apr_dtype_by_ggml_id(id);
    return dtype != APR_DTYPE_COUNT && apr_dtypes[dtype].class_of == APR_CLASS_BLOCK ? dtype : APR_DTYPE_COUNT;
}

/* True if the size fits after padding each row to whole blocks, as aprender's matrix quantizer does. */
static bool has_padded_rows(const entry *e, apr_dtype dtype)
{
    const int64_t block = apr_dtypes[dtype].elems_per_block, columns = apr_tensor_columns(&e->tensor);
    apr_tensor padded = e->tensor;

    if (block == 1 || padded.rank == 0 || columns % block == 0 || columns > INT64_MAX - block) return false;
    padded.dtype = dtype;
    padded.dims[padded.rank - 1] = (columns / block + 1) * block;
    return apr_tensor_size(&padded, "", NULL) == APR_OK && padded.n_bytes == e->n_bytes;
}

static bool fits(const entry *e, apr_dtype dtype)
{
    apr_tensor t = e->tensor;
    t.dtype = dtype;
    return apr_tensor_size(&t, "", NULL) == APR_OK && t.n_bytes == e->n_bytes;
}

static apr_status type_tensor(const reader *r, entry *e)
{
    apr_tensor *const t = &e->tensor;
    const char *const path = r->model->path;
    char dims[128];
    apr_dtype dtype = apr_dtype_by_apr_id(e->type_id);
    if (dtype == APR_DTYPE_COUNT) dtype = type_by_ggml_id(e->type_id);

    for (size_t i = 0; i < sizeof ambiguous_ids / sizeof *ambiguous_ids; i++)
        if (ambiguous_ids[i].id == e->type_id)
            dtype = ambiguous_ids[i].meanings[!fits(e, ambiguous_ids[i].meanings[0]) && fits(e, ambiguous_ids[i].meanings[1])];
    if (dtype == APR_DTYPE_COUNT)
        return apr_fail(r->err, APR_E_UNSUPPORTED, "%s: tensor '%s' has the unknown type id %u", path, t->name, e->type_id);
    if (!fits(e, dtype) && has_padded_rows(e, dtype))
        return apr_fail(
            r->err, APR_E_UNSUPPORTED,
            "%s: tensor '%s' %s: its rows are padded to blocks of %d %s, which readers disagree about: convert it again from its source",
            path, t->name, apr_dims_text(t, dims, sizeof dims), apr_dtypes[dtype].elems_per_block, apr_dtypes[dtype].name);
    t->dtype = dtype;
    APR_TRY(apr_tensor_size(t, path, r->err));
    if (t->n_bytes != e->n_bytes)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: tensor '%s': %s %s takes %llu bytes, the index says %llu", path, t->name,
                        apr_dtypes[dtype].name, apr_dims_text(t, dims, sizeof dims), (unsigned long long)t->n_bytes,
                        (unsigned long long)e->n_bytes);
    t->data = t->n_bytes > 0 ? r->bytes + r->header.data_at + e->offset : NULL;
    return APR_OK;
}

/* Some writers copy a GGUF's dimensions in ggml order, contiguous dimension first. Two signs show it: the embedding's rows are not the
 * vocabulary, and the experts of a stack are not its slowest dimension. */
static void reverse_foreign_dims(reader *r)
{
    const apr_hparams *const h = &r->model->hparams;
    const entry *embedding = find_entry(r, "model.embed_tokens.weight");
    if (embedding == NULL) embedding = find_entry(r, "token_embd.weight");
    const bool reversed = embedding != NULL && embedding->tensor.rank == 2 && h->vocab_size > 0 &&
                          embedding->tensor.dims[0] != h->vocab_size && embedding->tensor.dims[1] == h->vocab_size;

    for (size_t i = 0; i < r->n_entries; i++) {
        int64_t *const dims = r->entries[i].tensor.dims;
        const int rank = r->entries[i].tensor.rank;
        const bool stacked = rank == 3 && h->num_experts > 0 && dims[2] == h->num_experts && dims[0] != h->num_experts;
        if (!stacked && !(reversed && rank == 2)) continue;
        const int64_t first = dims[0];
        dims[0] = dims[rank - 1];
        dims[rank - 1] = first;
    }
}

static bool has_zero_dim(const apr_tensor *t)
{
    for (int i = 0; i < t->rank; i++)
        if (t->dims[i] == 0) return true;
    return false;
}

/* aprender leaves an output head of zero bytes for tied embeddings. */
static void drop_empty_heads(reader *r)
{
    static const char *const heads[] = {"lm_head.weight", "output.weight"};

    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        entry *const head = find_entry(r, heads[i]);
        if (head == NULL || head->n_bytes > 0 || has_zero_dim(&head->tensor)) continue;
        memmove(head, head + 1, (size_t)(r->entries + r->n_entries - (head + 1)) * sizeof *head);
        r->n_entries--;
        r->model->hparams.tie_word_embeddings = true;
    }
}

/* --- order --- */

/* If an empty tensor and another one share an offset, the empty one was written first. */
static int by_offset(const void *pa, const void *pb)
{
    const entry *const a = pa, *const b = pb;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    if ((a->n_bytes == 0) != (b->n_bytes == 0)) return a->n_bytes == 0 ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

/* Two tensors may share all of their bytes, but must not overlap partially. */
static apr_status check_overlaps(const reader *r)
{
    const entry *last = NULL;

    for (size_t i = 0; i < r->n_entries; i++) {
        const entry *const e = &r->entries[i];
        if (e->n_bytes == 0) continue;
        const bool shared = last != NULL && last->offset == e->offset && last->n_bytes == e->n_bytes;
        if (last != NULL && !shared && e->offset - last->offset < last->n_bytes)
            return apr_fail(r->err, APR_E_DAMAGED, "%s: tensors '%s' and '%s' overlap at byte %llu", r->model->path, last->tensor.name,
                            e->tensor.name, (unsigned long long)(r->header.data_at + e->offset));
        last = e;
    }
    return APR_OK;
}

static apr_status read_hex(const char *hex, uint32_t *value)
{
    *value = 0;
    for (int i = 0; i < APR_META_CRC_CHARS; i++) {
        const char c = hex[i];
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return APR_E_DAMAGED;
        *value = *value << 4 | (uint32_t)digit;
    }
    return APR_OK;
}

static apr_status read_crcs(reader *r)
{
    const cJSON *const kit = apr_meta_aprkit(r->metadata);
    const char *const hex = apr_json_get_string(kit, "crc32");
    bool good = hex != NULL && strlen(hex) == (size_t)r->header.n_tensors * APR_META_CRC_CHARS;

    if (apr_json_get(kit, "crc32") == NULL) return APR_OK;
    uint32_t *const crcs = apr_arena_array(&r->model->arena, r->n_entries, sizeof *crcs);
    if (crcs == NULL) return apr_no_memory(r->err, "the checksums of the tensors");
    for (size_t i = 0; i < r->n_entries && good; i++)
        good = read_hex(hex + (size_t)r->entries[i].number * APR_META_CRC_CHARS, &crcs[i]) == APR_OK;
    if (!good)
        return apr_fail(r->err, APR_E_DAMAGED, "%s: metadata 'aprkit.crc32' is not 8 digits for each of %u tensors", r->model->path,
                        r->header.n_tensors);
    r->model->stated_crcs = crcs;
    return APR_OK;
}

static apr_status place_tensors(reader *r)
{
    apr_model *const model = r->model;

    for (size_t i = 0; i < r->n_entries; i++) APR_TRY(type_tensor(r, &r->entries[i]));
    qsort(r->entries, r->n_entries, sizeof *r->entries, by_offset);
    APR_TRY(check_overlaps(r));
    APR_TRY(read_crcs(r));
    model->tensors = apr_arena_array(&model->arena, r->n_entries, sizeof *model->tensors);
    if (model->tensors == NULL) return apr_no_memory(r->err, "the tensors");
    for (size_t i = 0; i < r->n_entries; i++) model->tensors[i] = r->entries[i].tensor;
    model->n_tensors = r->n_entries;
    return apr_model_index_names(model, r->err);
}

/* --- the whole file --- */

/* The offset after the last tensor. */
static uint64_t data_end(const apr_model *model, const uint8_t *bytes, uint64_t data_at)
{
    uint64_t end = data_at;
    for (size_t i = 0; i < model->n_tensors; i++) {
        const apr_tensor *const t = &model->tensors[i];
        if (t->n_bytes > 0 && (uint64_t)(t->data - bytes) + t->n_bytes > end) end = (uint64_t)(t->data - bytes) + t->n_bytes;
    }
    return end;
}

static apr_status read_all(reader *r)
{
    apr_model *const model = r->model;

    APR_TRY(read_header(r));
    const char *const where = apr_arena_print(&model->arena, "%s: metadata", model->path);
    if (where == NULL) return apr_no_memory(r->err, "a path");
    APR_TRY(apr_json_parse(&r->metadata, r->bytes + r->header.metadata_at, r->header.metadata_bytes, where, r->err));
    if (!cJSON_IsObject(r->metadata)) return apr_fail(r->err, APR_E_DAMAGED, "%s: the metadata is not a JSON object", model->path);
    APR_TRY(read_index(r));
    APR_TRY(apr_meta_read_shape(model, r->metadata, r->err));
    const bool foreign = apr_meta_aprkit(r->metadata) == NULL;
    if (foreign) {
        if (find_entry(r, "token_embd.weight") != NULL) model->naming = APR_NAMING_GGML;
        reverse_foreign_dims(r);
        drop_empty_heads(r);
    }
    APR_TRY(place_tensors(r));
    if (!foreign) {
        if (apr_load_le32(r->bytes + HEADER_CRC_AT) == 0)
            return apr_fail(r->err, APR_E_DAMAGED, "%s: the header is damaged: it states no checksum, but aprkit always writes one",
                            model->path);
        const uint64_t end = data_end(model, r->bytes, r->header.data_at), whole = apr_align_up(end, ALIGNMENT) + FOOTER_BYTES;
        if (r->n_bytes != whole)
            return apr_fail(r->err, APR_E_DAMAGED, "%s: is %zu bytes long, but must be %llu: is it truncated?", model->path, r->n_bytes,
                            (unsigned long long)whole);
    }
    return apr_meta_read_rest(model, r->metadata, r->err);
}

/* `model` holds nothing but the map, if any. */
static apr_status read_model(apr_model *model, const uint8_t *bytes, size_t n_bytes, const char *path, apr_error *err)
{
    reader r = {.model = model, .err = err, .bytes = bytes, .n_bytes = n_bytes};

    model->format = APR_FORMAT_APR;
    model->kv.arena = &model->arena;
    model->path = apr_arena_copy(&model->arena, path, strlen(path));
    const apr_status status = model->path != NULL ? read_all(&r) : apr_no_memory(err, "a path");
    cJSON_Delete(r.metadata);
    free(r.entries);
    if (status != APR_OK) apr_model_close(model);
    return status;
}

apr_status apr_apr_read(apr_model *model, const uint8_t *bytes, size_t n_bytes, const char *path, apr_error *err)
{
    *model = (apr_model){0};
    return read_model(model, bytes, n_bytes, path, err);
}

apr_status apr_apr_open(apr_model *model, const char *path, apr_error *err)
{
    *model = (apr_model){0};
    model->maps = apr_arena_array(&model->arena, 1, sizeof *model->maps);
    if (model->maps == NULL) return apr_no_memory(err, "a map");
    model->n_maps = 1;
    const apr_status status = apr_map_open(&model->maps[0], path, err);
    if (status != APR_OK) {
        apr_model_close(model);
        return status;
    }
    return read_model(model, model->maps[0].data, model->maps[0].n_bytes, path, err);
}

bool apr_apr_stated_crc(const apr_model *model, const char *name, uint32_t *crc)
{
    const apr_tensor *const t = apr_model_find(model, name);
    if (t == NULL || model->stated_crcs == NULL) return false;
    *crc = model->stated_crcs[t - model->tensors];
    return true;
}

apr_footer apr_apr_check_footer(const apr_model *model)
{
    if (model->format != APR_FORMAT_APR || model->n_maps == 0) return APR_FOOTER_MISSING;
    const apr_map *const map = &model->maps[0];
    const uint64_t data_at = apr_load_le64(map->data + 32), end = data_end(model, map->data, data_at);
    const uint64_t n_after = map->n_bytes - end, n_padding = apr_align_up(end, ALIGNMENT) - end;
    /* writers with an unaligned data section pad relative to its start */
    const uint64_t own_padding = apr_align_up(end - data_at, ALIGNMENT) - (end - data_at);

    if (n_after >= FOOTER_BYTES) {
        const size_t n = map->n_bytes - FOOTER_BYTES;
        if (apr_crc32(0, map->data, n) == apr_load_le32(map->data + n)) return APR_FOOTER_GOOD;
    }
    return n_after == 0 || n_after == n_padding || n_after == own_padding ? APR_FOOTER_MISSING : APR_FOOTER_BAD;
}

/* A range of the file with a known CRC. */
typedef struct known_run {
    uint64_t at, n_bytes;
    uint32_t crc;
} known_run;

static int by_offset_in_file(const void *a, const void *b)
{
    const uint64_t x = ((const known_run *)a)->at, y = ((const known_run *)b)->at;
    return (x > y) - (x < y);
}

/* The CRC of the first n bytes; uses the known CRCs of the runs and reads only the bytes between them. */
static uint32_t crc_around(const uint8_t *bytes, uint64_t n, const known_run *runs, size_t n_runs)
{
    uint32_t crc = 0;
    uint64_t at = 0;

    for (size_t i = 0; i < n_runs; i++) {
        if (runs[i].at < at) continue; /* overlapping runs: the footer cannot match */
        crc = apr_map_crc32(crc, bytes + at, (size_t)(runs[i].at - at));
        crc = apr_crc32_combine(crc, runs[i].crc, runs[i].n_bytes);
        at = runs[i].at + runs[i].n_bytes;
    }
    return apr_map_crc32(crc, bytes + at, (size_t)(n - at));
}

apr_status apr_apr_check_head(const apr_model *model, apr_error *err)
{
    if (model->format != APR_FORMAT_APR || model->stated_crcs == NULL || model->n_maps == 0) return APR_OK;
    const apr_map *const map = &model->maps[0];
    const uint64_t n = map->n_bytes - FOOTER_BYTES;
    known_run *const runs = calloc(model->n_tensors + 1, sizeof *runs);
    size_t n_runs = 0;

    if (runs == NULL) return apr_no_memory(err, "checksums");
    for (size_t i = 0; i < model->n_tensors; i++) {
        const apr_tensor *const t = &model->tensors[i];
        if (t->n_bytes > 0) runs[n_runs++] = (known_run){(uint64_t)(t->data - map->data), t->n_bytes, model->stated_crcs[i]};
    }
    qsort(runs, n_runs, sizeof *runs, by_offset_in_file);
    uint8_t stated[FOOTER_BYTES];
    apr_map_read(stated, map->data + n, FOOTER_BYTES);
    const bool is_good = crc_around(map->data, n, runs, n_runs) == apr_load_le32(stated);
    free(runs);
    if (is_good) return APR_OK;
    APR_TRY(apr_inputs_check(err)); /* bytes that could not be read count as changed */
    return apr_fail(err, APR_E_DAMAGED,
                    "%s: the file has changed since it was written: its checksum does not match its header, metadata and "
                    "tensors; get it again",
                    model->path);
}

/* Is the index sorted by name? It was checked before, so the cursor does not fail. */
static bool is_index_sorted(const uint8_t *bytes)
{
    apr_cursor cursor = {.data = bytes, .n_bytes = (size_t)apr_load_le64(bytes + 32), .at = (size_t)apr_load_le64(bytes + 24)};
    apr_str before = {0};

    for (uint32_t n = apr_load_le32(bytes + 8), i = 0; i < n && !cursor.failed; i++) {
        const uint16_t n_name = apr_cursor_u16(&cursor);
        const apr_str name = {(const char *)apr_cursor_take(&cursor, n_name), n_name};
        if (name.text == NULL) break;
        const size_t n_same = name.n_bytes < before.n_bytes ? name.n_bytes : before.n_bytes;
        const int order = n_same > 0 ? memcmp(before.text, name.text, n_same) : 0;
        if (order > 0 || (order == 0 && before.n_bytes > name.n_bytes)) return false;
        before = name;
        apr_cursor_u8(&cursor);
        apr_cursor_take(&cursor, 8 * (size_t)apr_cursor_u8(&cursor) + 16);
    }
    return true;
}

char *apr_apr_missing(const apr_model *model, char *text, size_t n_bytes)
{
    const bool is_apr = model->format == APR_FORMAT_APR && model->n_maps > 0;
    const uint8_t *const bytes = is_apr ? model->maps[0].data : NULL;
    size_t n = 0;

    text[0] = '\0';
    if (!is_apr) return text;
    const bool no_crc = apr_load_le32(bytes + HEADER_CRC_AT) == 0, unsorted = !is_index_sorted(bytes);
    const bool unaligned = apr_load_le64(bytes + 32) % ALIGNMENT != 0;
    const char *const parts[] = {no_crc ? "the header's checksum" : NULL, unsorted ? "a sorted index" : NULL,
                                 unaligned ? "data at a multiple of 64" : NULL};
    for (size_t i = 0; i < sizeof parts / sizeof *parts && n < n_bytes; i++)
        if (parts[i] != NULL) n += (size_t)snprintf(text + n, n_bytes - n, "%s%s", n > 0 ? ", " : "", parts[i]);
    return text;
}
