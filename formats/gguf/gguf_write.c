/* gguf_write.c - writes a GGUF file from a layout: the header first, then the tensors in layout order, each padded to the alignment.
 *
 * Numbers are read into little-endian order. An APR file records that its origin was big-endian, so that a GGUF exported from it equals the
 * original byte for byte. A direct GGUF-to-GGUF conversion writes little-endian. */
#include "formats/base/crc32.h"
#include "formats/files/out.h"
#include "formats/gguf/gguf.h"
#include "formats/shape/gguf_hparams.h"
#include "formats/tensor/kv_copy.h"
#include "formats/tensor/metadata.h"
#include "formats/vocab/gguf_vocab.h"

#include <stdlib.h>
#include <string.h>

/* --- big-endian files --- */

/* True: the layout is an APR file that was imported from a big-endian GGUF, and its types are unchanged. They are plain numbers: quantized
 * blocks are not read from big-endian files. */
static bool writes_big_endian(const apr_model *layout)
{
    const apr_origin *const o = &layout->origin;
    bool is_flat = true;

    for (size_t i = 0; i < layout->n_tensors; i++) is_flat &= apr_dtypes[layout->tensors[i].dtype].elems_per_block == 1;
    return layout->format == APR_FORMAT_APR && o->format == APR_FORMAT_GGUF && apr_gguf_is_big_endian(o->gguf_version) && !o->requantized &&
           is_flat;
}

/* Byte-swaps elements of `each` bytes in place. */
static void swap_numbers(uint8_t *bytes, size_t n_bytes, size_t each)
{
    for (uint8_t *at = bytes; n_bytes >= each && at <= bytes + n_bytes - each; at += each)
        for (size_t i = 0; i < each / 2; i++) {
            const uint8_t byte = at[i];
            at[i] = at[each - 1 - i];
            at[each - 1 - i] = byte;
        }
}

/* Swaps one number. Returns the byte after it. */
static uint8_t *swap_one(uint8_t *at, size_t n_bytes)
{
    swap_numbers(at, n_bytes, n_bytes);
    return at + n_bytes;
}

static uint8_t *swap_string(uint8_t *at, size_t n_text) { return swap_one(at, 8) + n_text; }

static uint8_t *swap_array(uint8_t *at, const apr_kv *item)
{
    const size_t each = apr_kv_type_bytes(item->elem_type), n = (size_t)item->n_elems;

    at = swap_one(swap_one(at, 4), 8);
    for (size_t i = 0; item->elem_type == APR_KV_STRING && i < n; i++) at = swap_string(at, item->value.strings[i].n_bytes);
    if (item->elem_type == APR_KV_STRING) return at;
    swap_numbers(at, n * each, each);
    return at + n * each;
}

static uint8_t *swap_item(uint8_t *at, const apr_kv *item)
{
    at = swap_one(swap_string(at, item->key.n_bytes), 4);
    if (item->type == APR_KV_ARRAY) return swap_array(at, item);
    if (item->type == APR_KV_STRING) return swap_string(at, item->value.string.n_bytes);
    return swap_one(at, apr_kv_type_bytes(item->type));
}

static uint8_t *swap_info(uint8_t *at, const apr_tensor *tensor)
{
    at = swap_one(swap_string(at, strlen(tensor->name)), 4);
    for (int i = 0; i < tensor->rank; i++) at = swap_one(at, 8);
    return swap_one(swap_one(at, 4), 8);
}

/* Byte-swaps everything before the data. `head` was written little-endian from these keys and tensor infos. */
static void swap_head(uint8_t *head, const apr_kv_list *kv, const apr_tensor *const *infos, size_t n_infos)
{
    uint8_t *at = swap_one(swap_one(swap_one(head + 4, 4), 8), 8);

    for (size_t i = 0; i < kv->n_items; i++) at = swap_item(at, &kv->items[i]);
    for (size_t i = 0; i < n_infos; i++) at = swap_info(at, infos[i]);
}

enum { MAX_RANK = 4, DEFAULT_ALIGNMENT = 32, HEAD_BYTES = 4 + 4 + 8 + 8, MAX_PADDING = 64 << 20, SWAP_BYTES = 4096 };

typedef struct gguf_sink {
    apr_sink base;
    apr_out *out;
    const char *path;
    const apr_model *layout;
    apr_kv_list kv; /* the keys of the header: the origin's, or made from hyperparameters and vocabulary */
    apr_arena arena;
    uint64_t alignment, total_bytes;
    uint64_t head_bytes;      /* up to the data, including the origin's gap before it */
    size_t i_tensor;          /* the tensor that the next byte belongs to */
    uint64_t n_put;           /* bytes of it that are written */
    const apr_tensor **infos; /* [n_tensors] in the order of the file's list */
    uint64_t *offsets;        /* [n_tensors] in layout order */
    bool is_big_endian;
    uint8_t swapped[SWAP_BYTES]; /* big-endian file: bytes not written yet, between calls less than a number */
    size_t n_swapped;
} gguf_sink;

/* --- what can be written --- */

static const char *advice_for(apr_dtype dtype)
{
    static const struct {
        apr_dtype dtype;
        const char *advice;
    } rows[] = {
        {APR_F8_E4M3, "quantize it: --to q8_0 is nearest"}, {APR_F8_E5M2, "quantize it: --to q8_0 is nearest"},
        {APR_F4, "quantize it: --to mxfp4 is nearest"},     {APR_APR_Q8, "quantize it: --to q8_0 is nearest"},
        {APR_APR_Q4, "quantize it: --to q4_0 is nearest"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].dtype == dtype) return rows[i].advice;
    return "write an .apr file or a safetensors directory instead";
}

static apr_status check_layout(const apr_model *layout, const char *path, apr_error *err)
{
    for (size_t i = 0; i < layout->n_tensors; i++) {
        const apr_tensor *const t = &layout->tensors[i];
        if (apr_dtypes[t->dtype].ggml_id < 0)
            return apr_fail(err, APR_E_UNSUPPORTED, "%s: tensor '%.200s' is %s, which has no place in GGUF; %s", path, t->name,
                            apr_dtypes[t->dtype].name, advice_for(t->dtype));
        if (t->rank > MAX_RANK)
            return apr_fail(err, APR_E_UNSUPPORTED, "%s: tensor '%.200s' has %d dimensions, GGUF allows %d; %s", path, t->name, t->rank,
                            MAX_RANK, advice_for(APR_DTYPE_COUNT));
    }
    return APR_OK;
}

/* --- the keys --- */

/* llama.cpp's number for a file whose weights are mostly of this type (LlamaFileType); other types: 1024, "guessed". */
static int64_t file_type_of(const apr_model *layout)
{
    static const struct {
        apr_dtype dtype;
        int64_t file_type;
    } rows[] = {{APR_F32, 0},     {APR_F16, 1},    {APR_BF16, 32},  {APR_Q4_0, 2},   {APR_Q4_1, 3},   {APR_Q8_0, 7},  {APR_Q5_0, 8},
                {APR_Q5_1, 9},    {APR_Q2_K, 10},  {APR_Q3_K, 12},  {APR_Q4_K, 15},  {APR_Q5_K, 17},  {APR_Q6_K, 18}, {APR_IQ4_NL, 25},
                {APR_IQ4_XS, 30}, {APR_MXFP4, 38}, {APR_NVFP4, 39}, {APR_TQ1_0, 36}, {APR_TQ2_0, 37}, {APR_Q1_0, 40}, {APR_Q2_0, 41}};
    int64_t elems[APR_DTYPE_COUNT] = {0};

    for (size_t i = 0; i < layout->n_tensors; i++) elems[layout->tensors[i].dtype] += apr_tensor_elems(&layout->tensors[i]);
    const apr_dtype most = apr_dtype_most_common(elems);
    if (most == APR_DTYPE_COUNT) return 0; /* a file without weights is all f32 */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].dtype == most) return rows[i].file_type;
    return 1024;
}

/* "path/to/Qwen2.5-7B/" is called "Qwen2.5-7B". */
static const char *name_of(const char *path, apr_arena *arena)
{
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/') end--;
    size_t begin_at = end;
    while (begin_at > 0 && path[begin_at - 1] != '/') begin_at--;
    if (end - begin_at > 4 && memcmp(path + end - 4, ".apr", 4) == 0) end -= 4;
    return apr_arena_copy(arena, path + begin_at, end - begin_at);
}

bool apr_gguf_keeps_keys(const apr_model *layout)
{
    return layout->origin.format == APR_FORMAT_GGUF || (layout->origin.format == APR_FORMAT_NONE && layout->format != APR_FORMAT_APR);
}

/* Two texts of a checkpoint may have one key in a GGUF ("license" and "general.license"). Our own keys must be unique. */
static bool may_be_there(const apr_kv *text, const char *key)
{
    static const char own[] = APR_METADATA_PREFIX;
    return key != NULL && !apr_str_is(text->key, key) && strncmp(key, own, sizeof own - 1) != 0;
}

/* Adds texts about the model (author, licence, links, notes of training) from a checkpoint's __metadata__. */
static apr_status keep_texts(gguf_sink *s, apr_error *err)
{
    static const char *const made[] = {"general.architecture", "general.type"};
    const apr_kv_list *const kv = &s->layout->kv;
    const apr_kv_list own = {.items = s->kv.items, .n_items = s->kv.n_items}; /* the keys made so far, without the ones appended below */

    for (size_t i = 0; i < kv->n_items && s->layout->origin.format == APR_FORMAT_SAFETENSORS; i++) {
        apr_kv item = kv->items[i];
        const char *key;
        bool is_made = false;
        APR_TRY(apr_metadata_gguf_key(&item, &s->arena, &key, err));
        if (key != NULL) item.key = apr_str_of(key);
        else if (!apr_kv_is_about(&item)) continue; /* also keeps the numbers about an imatrix */
        for (size_t m = 0; m < sizeof made / sizeof *made; m++) is_made = is_made || apr_str_is(item.key, made[m]);
        const apr_kv *const there = apr_kv_find(&own, item.key.text);
        if (is_made || (there != NULL && there->type != APR_KV_STRING)) continue;
        if (there != NULL) s->kv.items[there - own.items] = item;
        else if (may_be_there(&kv->items[i], key)) APR_TRY(apr_kv_set(&s->kv, &item, err));
        else APR_TRY(apr_kv_append(&s->kv, &item, err));
    }
    return APR_OK;
}

/* A model from a GGUF keeps its keys, except general.file_type if types changed. For other models the keys are made. */
static apr_status choose_keys(gguf_sink *s, int64_t file_type, apr_error *err)
{
    const apr_model *const l = s->layout;

    if (file_type == 0) file_type = file_type_of(l);
    s->kv = (apr_kv_list){.arena = &s->arena};
    if (apr_gguf_keeps_keys(l)) {
        APR_TRY(apr_kv_append_all(&s->kv, &l->kv, err));
        if (l->origin.requantized) APR_TRY(apr_kv_set_int(&s->kv, "general.file_type", APR_KV_U32, file_type, err));
        return APR_OK;
    }
    const char *const name = name_of(l->path != NULL ? l->path : "", &s->arena);
    if (name == NULL) return apr_no_memory(err, "the name of the model");
    apr_vocab vocab = l->vocab;
    const char *obstacle;
    APR_TRY(apr_gguf_vocab_obstacle(&vocab, &s->arena, &obstacle, err));
    if (obstacle != NULL) vocab.kind = APR_VOCAB_NONE;
    APR_TRY(apr_gguf_keys(&l->hparams, &vocab, name, file_type, &s->kv, err));
    APR_TRY(keep_texts(s, err));
    return apr_gguf_put_templates(l, &s->kv, err);
}

static apr_status find_alignment(gguf_sink *s, apr_error *err)
{
    int64_t stated = DEFAULT_ALIGNMENT;

    apr_kv_get_int(&s->kv, "general.alignment", &stated);
    if (stated <= 0 || stated > UINT32_MAX || (stated & (stated - 1)) != 0)
        return apr_fail(err, APR_E_USAGE, "%s: general.alignment is %lld, it must be a power of two", s->path, (long long)stated);
    s->alignment = (uint64_t)stated;
    return APR_OK;
}

/* --- the header --- */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const apr_tensor *const *)a)->name, (*(const apr_tensor *const *)b)->name);
}

/* Orders the tensor infos by origin.order if that names exactly these tensors, otherwise by the layout. Readers guarantee that origin.order
 * has no name twice. */
static apr_status order_infos(gguf_sink *s, apr_error *err)
{
    const apr_model *const l = s->layout;
    const size_t n = l->n_tensors;

    for (size_t i = 0; i < n; i++) s->infos[i] = &l->tensors[i];
    if (l->origin.format != APR_FORMAT_GGUF || l->origin.order == NULL || l->origin.n_order != n || n == 0) return APR_OK;
    const apr_tensor **const sorted = malloc(n * sizeof *sorted);
    if (sorted == NULL) return apr_no_memory(err, "the list of tensors");
    memcpy(sorted, s->infos, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_name);
    bool complete = true;
    for (size_t i = 0; i < n && complete; i++) {
        const apr_tensor wanted = {.name = l->origin.order[i]}, *const key = &wanted;
        const apr_tensor *const *const found = bsearch(&key, sorted, n, sizeof *sorted, by_name);
        complete = found != NULL;
        if (complete) s->infos[i] = *found;
    }
    for (size_t i = 0; i < n && !complete; i++) s->infos[i] = &l->tensors[i];
    free(sorted);
    return APR_OK;
}

static uint64_t infos_bytes(const apr_model *layout)
{
    uint64_t n = 0;
    for (size_t i = 0; i < layout->n_tensors; i++)
        n += 8 + strlen(layout->tensors[i].name) + 4 + 8 * (uint64_t)layout->tensors[i].rank + 4 + 8;
    return n;
}

static uint8_t *write_info(uint8_t *p, const apr_tensor *t, uint64_t offset)
{
    const size_t n_name = strlen(t->name);

    apr_store_le64(p, n_name);
    memcpy(p + 8, t->name, n_name);
    p += 8 + n_name;
    apr_store_le32(p, (uint32_t)t->rank);
    p += 4;
    for (int i = t->rank - 1; i >= 0; i--, p += 8) apr_store_le64(p, (uint64_t)t->dims[i]);
    apr_store_le32(p, (uint32_t)apr_dtypes[t->dtype].ggml_id);
    apr_store_le64(p + 4, offset);
    return p + 12;
}

static void write_head(const gguf_sink *s, uint8_t *head)
{
    uint8_t *p = head;
    const apr_model *const l = s->layout;
    const uint32_t version = apr_gguf_version_number(l->origin.gguf_version) == 2 ? 2 : 3;

    memcpy(p, "GGUF", 4);
    apr_store_le32(p + 4, version);
    apr_store_le64(p + 8, l->n_tensors);
    apr_store_le64(p + 16, s->kv.n_items);
    apr_kv_write(&s->kv, p + HEAD_BYTES);
    p += HEAD_BYTES + apr_kv_bytes(&s->kv);
    for (size_t i = 0; i < l->n_tensors; i++) p = write_info(p, s->infos[i], s->offsets[s->infos[i] - l->tensors]);
    if (s->is_big_endian) swap_head(head, &s->kv, s->infos, l->n_tensors);
}

/* The gap at a place (see apr_gap). `at`: the bytes of header or data before it. */
static apr_gap gap_at(const gguf_sink *s, size_t place, uint64_t at)
{
    const apr_gap *const kept = apr_gguf_gap(s->layout, place);
    return kept != NULL ? *kept : (apr_gap){place, NULL, apr_align_up(at, s->alignment) - at};
}

/* Computes the offsets of the tensors and the size of the file. Gaps from an APR file must leave the tensors aligned. */
static apr_status lay_out(gguf_sink *s, uint64_t head_at, apr_error *err)
{
    static const uint64_t limit = (uint64_t)1 << 62;
    const size_t n = s->layout->n_tensors;
    uint64_t offset = 0;

    const uint64_t head_gap = gap_at(s, 0, head_at).n_bytes;
    bool fits = head_gap < limit, is_aligned = n == 0 || (head_at + head_gap) % s->alignment == 0;
    for (size_t i = 0; i < n && fits && is_aligned; i++) {
        const uint64_t gap = gap_at(s, i + 1, offset).n_bytes, n_bytes = s->layout->tensors[i].n_bytes;
        fits = gap < limit && n_bytes < limit && (offset += gap) < limit;
        is_aligned = offset % s->alignment == 0;
        s->offsets[i] = offset;
        offset += n_bytes;
    }
    const uint64_t tail = n > 0 || apr_gguf_gap(s->layout, 1) != NULL ? gap_at(s, n + 1, offset).n_bytes : 0;
    if (!fits || offset >= limit || tail >= limit)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: the tensors are too large for a file", s->path);
    if (!is_aligned)
        return apr_fail(err, APR_E_DAMAGED, "%s: the gaps recorded in the APR file do not leave the tensors at multiples of %llu", s->path,
                        (unsigned long long)s->alignment);
    s->head_bytes = head_at + head_gap;
    s->total_bytes = s->head_bytes + offset + tail;
    if (s->total_bytes - head_at > MAX_PADDING + 3 * apr_gguf_max_zeros(s->layout)) /* the tensors, their gaps and the padding */
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: general.alignment %llu makes a file of %llu bytes, most of them zeros", s->path,
                        (unsigned long long)s->alignment, (unsigned long long)s->total_bytes);
    return APR_OK;
}

static apr_status write_gap(gguf_sink *s, size_t place, uint64_t at, apr_error *err)
{
    const apr_gap gap = gap_at(s, place, at);
    if (gap.bytes != NULL) return apr_out_write(s->out, gap.bytes, (size_t)gap.n_bytes, NULL, err);
    return apr_out_zeros(s->out, (size_t)gap.n_bytes, NULL, err);
}

/* Closes complete tensors, also empty ones, by writing the gap after each. */
static apr_status close_tensors(gguf_sink *s, apr_error *err)
{
    for (; s->i_tensor < s->layout->n_tensors && s->n_put == s->layout->tensors[s->i_tensor].n_bytes; s->i_tensor++) {
        APR_TRY(write_gap(s, s->i_tensor + 2, s->offsets[s->i_tensor] + s->n_put, err));
        s->n_put = 0;
    }
    return APR_OK;
}

/* Makes the header (malloc'ed). *head_at: its bytes without the gap after it. */
static apr_status make_head(gguf_sink *s, const apr_sink_options *options, uint8_t **head, uint64_t *head_at, apr_error *err)
{
    const apr_model *const l = s->layout;

    *head = NULL;
    APR_TRY(check_layout(l, s->path, err));
    APR_TRY(choose_keys(s, options->file_type, err));
    APR_TRY(apr_kv_check_keys(&s->kv, s->path, APR_E_UNSUPPORTED, err));
    APR_TRY(find_alignment(s, err));
    APR_TRY(order_infos(s, err));
    *head_at = HEAD_BYTES + apr_kv_bytes(&s->kv) + infos_bytes(l);
    APR_TRY(lay_out(s, *head_at, err));
    *head = malloc((size_t)*head_at);
    if (*head == NULL) return apr_no_memory(err, "the header of the GGUF file");
    write_head(s, *head);
    return APR_OK;
}

static apr_status open_out(gguf_sink *s, const apr_sink_options *options, apr_error *err)
{
    if (options->resume_from != NULL)
        return apr_out_resume(&s->out, options->resume_from, s->path, s->total_bytes, options->overwrite, err);
    return apr_out_open(&s->out, s->path, s->total_bytes, options->overwrite, err);
}

static apr_status begin(gguf_sink *s, const apr_sink_options *options, apr_error *err)
{
    const apr_model *const l = s->layout;
    uint64_t head_at;
    uint8_t *head;

    APR_TRY(make_head(s, options, &head, &head_at, err));
    apr_status status = open_out(s, options, err);
    if (status == APR_OK) apr_out_verify(s->out, options->reader);
    if (status == APR_OK) status = apr_out_write(s->out, head, (size_t)head_at, NULL, err);
    free(head);
    if (status == APR_OK) status = write_gap(s, 0, head_at, err);
    if (status == APR_OK && (l->n_tensors > 0 || apr_gguf_gap(l, 1) != NULL)) status = write_gap(s, 1, 0, err);
    return status == APR_OK ? close_tensors(s, err) : status;
}

/* --- the data --- */

/* Writes bytes of the current tensor in the file's byte order. A call may end in the middle of a number. */
static apr_status write_numbers(gguf_sink *s, const uint8_t *bytes, size_t n_bytes, apr_error *err)
{
    const size_t each = (size_t)apr_dtypes[s->layout->tensors[s->i_tensor].dtype].bytes_per_block;

    if (!s->is_big_endian) return apr_out_write(s->out, bytes, n_bytes, NULL, err);
    while (n_bytes > 0) {
        const size_t n_free = SWAP_BYTES - s->n_swapped, n = n_bytes < n_free ? n_bytes : n_free;
        memcpy(s->swapped + s->n_swapped, bytes, n);
        s->n_swapped += n;
        bytes += n;
        n_bytes -= n;
        const size_t whole = s->n_swapped / each * each;
        swap_numbers(s->swapped, whole, each);
        APR_TRY(apr_out_write(s->out, s->swapped, whole, NULL, err));
        s->n_swapped -= whole;
        memmove(s->swapped, s->swapped + whole, s->n_swapped);
    }
    return APR_OK;
}

static apr_status gguf_put(apr_sink *sink, const void *bytes, size_t n_bytes, apr_error *err)
{
    gguf_sink *const s = (gguf_sink *)sink;
    const uint8_t *p = bytes;

    while (n_bytes > 0) {
        if (s->i_tensor == s->layout->n_tensors) return apr_fail(err, APR_E_USAGE, "%s: more bytes than the layout has", s->path);
        const uint64_t n_tensor = s->layout->tensors[s->i_tensor].n_bytes, n_left = n_tensor - s->n_put;
        const size_t n = n_bytes < n_left ? n_bytes : (size_t)n_left;
        APR_TRY(write_numbers(s, p, n, err));
        s->n_put += n;
        p += n;
        n_bytes -= n;
        APR_TRY(close_tensors(s, err));
    }
    return APR_OK;
}

/* The current tensor has bytes: close_tensors skips empty ones. */
static apr_status gguf_extent(apr_sink *sink, apr_extent *extent, apr_error *err)
{
    const gguf_sink *const s = (const gguf_sink *)sink;

    if (s->i_tensor == s->layout->n_tensors) return apr_fail(err, APR_E_USAGE, "%s: more tensors than the layout has", s->path);
    *extent = apr_out_extent(s->out, s->layout->tensors[s->i_tensor].n_bytes);
    return APR_OK;
}

static apr_status gguf_pass(apr_sink *sink, uint32_t crc, apr_error *err)
{
    gguf_sink *const s = (gguf_sink *)sink;

    (void)crc;
    if (s->i_tensor == s->layout->n_tensors) return apr_fail(err, APR_E_USAGE, "%s: more tensors than the layout has", s->path);
    s->n_put = s->layout->tensors[s->i_tensor].n_bytes;
    apr_out_advance(s->out, s->n_put);
    return close_tensors(s, err);
}

static void gguf_abandon(apr_sink *sink)
{
    gguf_sink *const s = (gguf_sink *)sink;
    apr_out_abandon(s->out);
    free(s->infos);
    free(s->offsets);
    apr_arena_close(&s->arena);
    free(s);
}

static apr_status gguf_finish(apr_sink *sink, apr_error *err)
{
    gguf_sink *const s = (gguf_sink *)sink;
    apr_status status;

    if (apr_out_position(s->out) != s->total_bytes) {
        status = apr_fail(err, APR_E_USAGE, "%s: only %llu of %llu bytes were given", s->path, (unsigned long long)apr_out_position(s->out),
                          (unsigned long long)s->total_bytes);
    } else {
        status = apr_out_finish(s->out, err);
        s->out = NULL; /* freed in any case */
    }
    gguf_abandon(sink);
    return status;
}

static uint64_t gguf_total_bytes(const apr_sink *sink) { return ((const gguf_sink *)sink)->total_bytes; }

static gguf_sink *new_sink(const char *path, const apr_model *layout, bool is_big_endian)
{
    static const apr_sink_ops ops = {.put = gguf_put,
                                     .finish = gguf_finish,
                                     .abandon = gguf_abandon,
                                     .total_bytes = gguf_total_bytes,
                                     .extent = gguf_extent,
                                     .pass = gguf_pass};
    static const apr_sink_ops in_order = {.put = gguf_put, .finish = gguf_finish, .abandon = gguf_abandon, .total_bytes = gguf_total_bytes};
    const size_t n = layout->n_tensors > 0 ? layout->n_tensors : 1;
    gguf_sink *const s = calloc(1, sizeof *s);

    if (s == NULL) return NULL;
    s->base.ops = is_big_endian ? &in_order : &ops;
    s->is_big_endian = is_big_endian;
    s->path = path;
    s->layout = layout;
    s->infos = calloc(n, sizeof *s->infos);
    s->offsets = calloc(n, sizeof *s->offsets);
    if (s->infos != NULL && s->offsets != NULL) return s;
    gguf_abandon(&s->base);
    return NULL;
}

apr_status apr_gguf_sink_open(apr_sink **sink, const char *path, const apr_model *layout, const apr_sink_options *options, apr_error *err)
{
    *sink = NULL;
    gguf_sink *const s = new_sink(path, layout, options->resume_from == NULL && writes_big_endian(layout));
    if (s == NULL) return apr_no_memory(err, "an output file");
    const apr_status status = begin(s, options, err);
    if (status != APR_OK) gguf_abandon(&s->base);
    else *sink = &s->base;
    return status;
}

apr_status apr_gguf_offsets(apr_offsets *offsets, const char *path, const apr_model *layout, const apr_sink_options *options,
                            apr_error *err)
{
    uint64_t head_at;
    uint8_t *head = NULL;

    *offsets = (apr_offsets){0};
    gguf_sink *const s = new_sink(path, layout, false); /* several runs write little-endian, at the offsets */
    if (s == NULL) return apr_no_memory(err, "an output file");
    apr_status status = make_head(s, options, &head, &head_at, err);
    if (status == APR_OK) status = apr_offsets_make(offsets, 1, layout->n_tensors, err);
    if (status == APR_OK) {
        offsets->files[0] = (struct apr_offset_file){"", s->total_bytes};
        offsets->total_bytes = s->total_bytes;
        offsets->head_crc = apr_crc32(0, head, (size_t)head_at);
        for (size_t i = 0; i < layout->n_tensors; i++) offsets->tensors[i].offset = s->head_bytes + s->offsets[i];
    }
    free(head);
    gguf_abandon(&s->base);
    return status;
}
