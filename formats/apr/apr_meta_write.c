/* apr_meta_write.c - writes a model's metadata for an APR file: each canonical key once, and the same bytes for the same model. */
#include "formats/apr/apr_meta.h"
#include "formats/base/base64.h"
#include "formats/shape/apr_meta_hparams.h"
#include "formats/vocab/apr_meta_vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum {
    ZSTD_LEVEL = 9,       /* fixed: the same model gives the same bytes */
    MAX_TEXT_BYTES = 4096 /* larger files are compressed */
};

/* --- plain or not --- */

static bool is_typed(apr_str key)
{
    for (const char *const *typed = apr_meta_typed_keys; *typed != NULL; typed++)
        if (apr_str_is(key, *typed)) return true;
    return false;
}

/* True if a JSON string can hold it and read back equal. */
static bool is_json_text(apr_str s) { return apr_str_is_utf8(s) && (s.n_bytes == 0 || memchr(s.text, '\0', s.n_bytes) == NULL); }

/* True if it can be written at the top of the JSON under its own name and reads back equal. */
static bool is_free_item(const apr_kv *item)
{
    double real;

    if (!is_json_text(item->key) || item->key.n_bytes == 0) return false;
    switch (item->type) {
    case APR_KV_BOOL: break;
    case APR_KV_STRING:
        if (!is_json_text(item->value.string)) return false;
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
    if (is_typed(item->key)) {
        const bool is_count = apr_str_is(item->key, "total_size") || apr_str_is(item->key, "param_count");
        return item->type == (is_count ? APR_KV_I64 : APR_KV_STRING);
    }
    char *const key = strndup(item->key.text, item->key.n_bytes);
    const bool reserved = key == NULL || apr_meta_is_reserved(key);
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
    apr_hparams copy = *h;

    for (size_t i = 0; i < apr_n_hparam_fields && !any; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        any = field->is_int ? *apr_hparam_int(&copy, field) != 0 : *apr_hparam_real(&copy, field) != 0.0;
    }
    return any;
}

bool apr_meta_is_plain(const apr_model *layout)
{
    if (!has_free_keys(layout) || has_hparams(&layout->hparams) || layout->naming != APR_NAMING_HF) return false;
    if (layout->vocab.kind != APR_VOCAB_NONE || layout->vocab.chat_template != NULL || layout->n_attachments > 0 ||
        layout->origin.n_order > 0)
        return false;
    for (size_t i = 0; i < layout->n_tensors; i++) {
        const apr_tensor *const t = &layout->tensors[i];
        if (apr_meta_has_provenance(t) || t->scale != NULL) return false;
    }
    return true;
}

/* --- typed keys --- */

static void write_string(apr_json_text *out, const char *key, const char *text)
{
    if (text != NULL && *text != '\0') apr_json_string(out, key, text, strlen(text));
}

/* The value of a typed key: the file's own, else the origin's under GGUF's name, else derived from the rest. */
static apr_str typed_value(const apr_model *layout, const char *key)
{
    static const struct {
        const char *key, *gguf_key;
    } gguf_keys[] = {{"name", "general.name"},
                     {"description", "general.description"},
                     {"author", "general.author"},
                     {"license", "general.license"},
                     {"source", "general.source.url"}};
    const char *const architecture = layout->hparams.architecture != NULL ? layout->hparams.architecture : "";
    const bool plain = apr_meta_is_plain(layout);
    apr_str value = {"", 0};

    if (layout->origin.format == APR_FORMAT_NONE && apr_kv_get_string(&layout->kv, key, &value) && is_json_text(value)) return value;
    for (size_t i = 0; i < sizeof gguf_keys / sizeof *gguf_keys; i++)
        if (layout->origin.format == APR_FORMAT_GGUF && strcmp(gguf_keys[i].key, key) == 0 &&
            apr_kv_get_string(&layout->kv, gguf_keys[i].gguf_key, &value) && is_json_text(value))
            return value;
    value = (apr_str){"", 0};
    if (strcmp(key, "model_type") == 0 || strcmp(key, "name") == 0) return apr_str_of(architecture);
    if (strcmp(key, "version") == 0 && !plain) return apr_str_of("1.0.0");
    const char *const origin = apr_meta_origin_name(layout->origin.format);
    if (strcmp(key, "original_format") == 0 && origin != NULL) return apr_str_of(origin);
    return value;
}

/* In a plain file total_size is 0, as aprender writes it; otherwise it is the bytes of all tensors. */
static void write_counts(apr_json_text *out, const apr_model *layout)
{
    const bool plain = apr_meta_is_plain(layout);
    int64_t total_size = 0, param_count = 0;

    for (size_t i = 0; i < layout->n_tensors; i++) {
        total_size += plain ? 0 : (int64_t)layout->tensors[i].n_bytes;
        param_count += apr_tensor_elems(&layout->tensors[i]);
    }
    if (plain) {
        apr_kv_get_int(&layout->kv, "total_size", &total_size);
        apr_kv_get_int(&layout->kv, "param_count", &param_count);
    }
    apr_json_int(out, "total_size", total_size);
    apr_json_int(out, "param_count", param_count);
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
        char *const key = is_typed(item->key) ? NULL : strndup(item->key.text, item->key.n_bytes);
        if (key != NULL) write_free_item(out, key, item);
        else out->failed |= !is_typed(item->key);
        free(key);
    }
}

static void write_head(apr_json_text *out, const apr_model *layout)
{
    for (const char *const *key = apr_meta_typed_keys; strcmp(*key, "total_size") != 0; key++) {
        const apr_str value = typed_value(layout, *key);
        const bool always = strcmp(*key, "license") == 0 || strcmp(*key, "data_source") == 0 || strcmp(*key, "data_license") == 0;
        if (value.n_bytes > 0) apr_json_string(out, *key, value.text, value.n_bytes);
        else if (always) apr_json_null(out, *key);
    }
    write_counts(out, layout);
    write_free_keys(out, layout);
}

/* --- hyperparameters --- */

static void write_hparams(apr_json_text *out, const apr_model *layout)
{
    apr_hparams h = layout->hparams;
    /* only llama.cpp's converter makes rotary pairs adjacent (interleaved), and only for llama */
    const bool pairs = layout->naming == APR_NAMING_GGML && h.architecture != NULL && strcmp(h.architecture, "llama") == 0;

    write_string(out, "architecture", h.architecture);
    write_string(out, "hf_architecture", h.hf_class);
    write_string(out, "hf_model_type", h.architecture);
    for (size_t i = 0; i < apr_n_hparam_fields; i++) {
        const apr_hparam_field *const field = &apr_hparam_fields[i];
        if (field->is_int && *apr_hparam_int(&h, field) != 0) apr_json_int(out, field->name, *apr_hparam_int(&h, field));
        if (!field->is_int && *apr_hparam_real(&h, field) != 0.0) apr_json_real(out, field->name, *apr_hparam_real(&h, field));
    }
    if (h.num_heads > 0) apr_json_int(out, "rope_type", pairs ? 0 : 2);
    if (h.num_experts > 0 || h.norm_topk_prob) apr_json_bool(out, "norm_topk_prob", h.norm_topk_prob);
    if (h.tie_word_embeddings) apr_json_bool(out, "tied_embeddings", true);
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
    write_string(out, "format", apr_meta_origin_name(origin->format));
    if (origin->gguf_version != 0) apr_json_uint(out, "gguf_version", apr_gguf_version_number(origin->gguf_version));
    if (apr_gguf_is_big_endian(origin->gguf_version)) apr_json_bool(out, "big_endian", true);
    apr_json_bool(out, "requantized", origin->requantized);
    if (!order_is_data_order(layout)) {
        apr_json_open(out, "order", '[');
        for (size_t i = 0; i < origin->n_order; i++) apr_json_string(out, NULL, origin->order[i], strlen(origin->order[i]));
        apr_json_close(out, ']');
    }
    write_gaps(out, origin);
    apr_json_close(out, '}');
}

static void write_tensor(apr_json_text *out, const apr_tensor *t)
{
    apr_json_open(out, NULL, '{');
    write_string(out, "name", t->name);
    apr_meta_write_provenance(out, t);
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
        if (!apr_meta_has_provenance(t) && t->scale == NULL) continue;
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
    write_string(out, "dialect", apr_meta_naming_name(layout->naming));
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
    const bool plain = apr_meta_is_plain(layout);
    apr_json_text out = {0};

    if (unpacked_bytes(layout) > apr_meta_max_unpacked)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: keys, files and gaps of more than %llu MiB cannot be stored in an APR file",
                        layout->path != NULL ? layout->path : "", (unsigned long long)(apr_meta_max_unpacked >> 20));
    apr_json_open(&out, NULL, '{');
    write_head(&out, layout);
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
