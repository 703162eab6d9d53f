/* apr_write.c - writes APR v2: sorted index, 64-byte alignment, checksums of the header, each tensor and the file. */
#include "formats/apr/apr.h"
#include "formats/apr/apr_meta.h"
#include "formats/base/bytes.h"
#include "formats/base/crc32.h"
#include "formats/files/out.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_BYTES = 64, HEADER_CRC_AT = 40, FOOTER_BYTES = 4, ALIGNMENT = 64, MAX_NAME_BYTES = 256, MAX_APRENDER_HEAD_BYTES = 256 << 20 };

typedef struct writer {
    apr_sink base;
    apr_out *out;
    const apr_model *layout;
    uint32_t *index_of; /* [n_tensors] position in the index of each tensor of the layout */
    uint32_t *crcs;     /* [n_tensors] in index order */
    uint8_t *head;      /* everything before the data */
    size_t head_bytes;  /* a multiple of 64 */
    size_t crc_at;      /* in the metadata; 0: the file states no tensor CRCs */
    uint64_t total_bytes;
    size_t at; /* the tensor being written; n_put: its bytes so far; crc: their CRC */
    uint64_t n_put;
    uint32_t crc;
    uint32_t data_crc; /* of all finished tensors and their padding */
} writer;

typedef struct index_entry {
    const apr_tensor *tensor;
    uint64_t offset;
} index_entry;

static uint64_t padding_of(uint64_t n_bytes) { return apr_align_up(n_bytes, ALIGNMENT) - n_bytes; }

/* --- layout --- */

static apr_status check_tensor(const apr_tensor *t, const char *path, apr_error *err)
{
    apr_tensor sized = *t;

    if (*t->name == '\0' || strlen(t->name) > MAX_NAME_BYTES || !apr_str_is_utf8(apr_str_of(t->name)))
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: the name '%.80s' of %zu bytes is not 1 to %d bytes of UTF-8, as APR requires", path,
                        t->name, strlen(t->name), MAX_NAME_BYTES);
    APR_TRY(apr_tensor_size(&sized, path, err));
    if (sized.n_bytes != t->n_bytes)
        return apr_fail(err, APR_E_USAGE, "%s: tensor '%s' is laid out with %llu bytes, its type and shape take %llu", path, t->name,
                        (unsigned long long)t->n_bytes, (unsigned long long)sized.n_bytes);
    return APR_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const index_entry *)a)->tensor->name, ((const index_entry *)b)->tensor->name);
}

/* Fills the index, sorted by name; data_bytes is the size of the data section, padding included. */
static apr_status lay_out(const apr_model *layout, const char *path, index_entry *entries, uint64_t *data_bytes, apr_error *err)
{
    const uint64_t limit = INT64_MAX / 2;

    *data_bytes = 0;
    for (size_t i = 0; i < layout->n_tensors; i++) {
        const apr_tensor *const t = &layout->tensors[i];
        APR_TRY(check_tensor(t, path, err));
        if (t->n_bytes > limit - *data_bytes) return apr_fail(err, APR_E_UNSUPPORTED, "%s: more than 4 EiB of tensors", path);
        entries[i] = (index_entry){t, *data_bytes};
        *data_bytes += apr_align_up(t->n_bytes, ALIGNMENT);
    }
    qsort(entries, layout->n_tensors, sizeof *entries, by_name);
    for (size_t i = 1; i < layout->n_tensors; i++)
        if (by_name(&entries[i - 1], &entries[i]) == 0)
            return apr_fail(err, APR_E_USAGE, "%s: two tensors would be called '%s'", path, entries[i].tensor->name);
    return APR_OK;
}

static size_t index_bytes(const apr_model *layout)
{
    size_t n = 0;
    for (size_t i = 0; i < layout->n_tensors; i++)
        n += 2 + strlen(layout->tensors[i].name) + 1 + 1 + 8 * (size_t)layout->tensors[i].rank + 8 + 8;
    return n;
}

static uint8_t *write_entry(uint8_t *p, const index_entry *entry)
{
    const apr_tensor *const t = entry->tensor;
    const size_t n = strlen(t->name);

    apr_store_le16(p, (uint16_t)n);
    memcpy(p + 2, t->name, n);
    p += 2 + n;
    *p++ = (uint8_t)apr_dtypes[t->dtype].apr_id;
    *p++ = (uint8_t)t->rank;
    for (int i = 0; i < t->rank; i++, p += 8) apr_store_le64(p, (uint64_t)t->dims[i]);
    apr_store_le64(p, entry->offset);
    apr_store_le64(p + 8, t->n_bytes);
    return p + 16;
}

static uint16_t flags_of(const apr_model *layout)
{
    uint16_t flags = APR_FLAG_ROW_MAJOR;
    for (size_t i = 0; i < layout->n_tensors; i++)
        if (apr_dtype_is_quantized(layout->tensors[i].dtype)) flags |= APR_FLAG_QUANTIZED;
    if (layout->vocab.kind != APR_VOCAB_NONE) flags |= APR_FLAG_HAS_VOCAB;
    return flags;
}

static void write_header(uint8_t *head, const apr_model *layout, size_t metadata_bytes, uint64_t index_at, uint64_t data_at)
{
    memcpy(head, "APR\0\2\0", 6);
    apr_store_le16(head + 6, flags_of(layout));
    apr_store_le32(head + 8, (uint32_t)layout->n_tensors);
    apr_store_le64(head + 12, HEADER_BYTES);
    apr_store_le32(head + 20, (uint32_t)metadata_bytes);
    apr_store_le64(head + 24, index_at);
    apr_store_le64(head + 32, data_at);
    apr_store_le32(head + HEADER_CRC_AT,
                   apr_crc32(apr_crc32(0, head, HEADER_CRC_AT), head + HEADER_CRC_AT + 4, HEADER_BYTES - HEADER_CRC_AT - 4));
}

/* Builds header, metadata and index in memory. They are small, and are checksummed when the tensor CRCs are known. */
static apr_status make_head(writer *w, const char *path, const index_entry *entries, apr_error *err)
{
    const apr_model *const layout = w->layout;
    char *metadata;
    size_t metadata_bytes;

    APR_TRY(apr_meta_write(layout, &metadata, &metadata_bytes, &w->crc_at, err));
    const uint64_t index_at = HEADER_BYTES + apr_align_up(metadata_bytes, ALIGNMENT);
    const uint64_t data_at = index_at + apr_align_up(index_bytes(layout), ALIGNMENT);
    apr_status status = APR_OK;

    if (metadata_bytes > UINT32_MAX) {
        status =
            apr_fail(err, APR_E_UNSUPPORTED, "%s: %zu bytes of metadata are more than the 4 GiB that APR can hold", path, metadata_bytes);
    } else if ((w->head = calloc(1, (size_t)data_at)) == NULL) {
        status = apr_no_memory(err, "the head of the file");
    } else {
        memcpy(w->head + HEADER_BYTES, metadata, metadata_bytes);
        write_header(w->head, layout, metadata_bytes, index_at, data_at);
        uint8_t *p = w->head + index_at;
        for (size_t i = 0; i < layout->n_tensors; i++) p = write_entry(p, &entries[i]);
        w->head_bytes = (size_t)data_at;
        if (w->crc_at > 0) w->crc_at += HEADER_BYTES;
    }
    free(metadata);
    return status;
}

static apr_status prepare(writer *w, const char *path, apr_error *err)
{
    const size_t n = w->layout->n_tensors;
    uint64_t data_bytes = 0;
    index_entry *const entries = calloc(n + 1, sizeof *entries);

    w->index_of = calloc(n + 1, sizeof *w->index_of);
    w->crcs = calloc(n + 1, sizeof *w->crcs);
    apr_status status = APR_OK;
    if (entries == NULL || w->index_of == NULL || w->crcs == NULL) status = apr_no_memory(err, "the index of tensors");
    if (status == APR_OK) status = lay_out(w->layout, path, entries, &data_bytes, err);
    if (status == APR_OK) {
        for (size_t i = 0; i < n; i++) w->index_of[entries[i].tensor - w->layout->tensors] = (uint32_t)i;
        status = make_head(w, path, entries, err);
    }
    w->total_bytes = w->head_bytes + data_bytes + FOOTER_BYTES;
    free(entries);
    return status;
}

/* --- data --- */

/* Pads and closes complete tensors; empty ones are complete from the start. */
static apr_status close_tensors(writer *w, apr_error *err)
{
    for (; w->at < w->layout->n_tensors && w->n_put == w->layout->tensors[w->at].n_bytes; w->at++) {
        w->crcs[w->index_of[w->at]] = w->crc;
        w->data_crc = apr_crc32_combine(w->data_crc, w->crc, w->n_put);
        APR_TRY(apr_out_zeros(w->out, (size_t)padding_of(w->n_put), &w->data_crc, err));
        w->n_put = 0;
        w->crc = 0;
    }
    return APR_OK;
}

static apr_status put(apr_sink *sink, const void *bytes, size_t n_bytes, apr_error *err)
{
    writer *const w = (writer *)sink;
    const uint8_t *p = bytes;

    while (n_bytes > 0) {
        APR_TRY(close_tensors(w, err));
        if (w->at == w->layout->n_tensors) return apr_fail(err, APR_E_USAGE, "more bytes were written than the layout has");
        const uint64_t n_left = w->layout->tensors[w->at].n_bytes - w->n_put;
        const size_t n = n_bytes < n_left ? n_bytes : (size_t)n_left;
        APR_TRY(apr_out_write(w->out, p, n, &w->crc, err));
        w->n_put += n;
        p += n;
        n_bytes -= n;
    }
    return APR_OK;
}

static apr_status extent_of(apr_sink *sink, apr_extent *extent, apr_error *err)
{
    writer *const w = (writer *)sink;

    APR_TRY(close_tensors(w, err));
    if (w->at == w->layout->n_tensors) return apr_fail(err, APR_E_USAGE, "more tensors were written than the layout has");
    *extent = apr_out_extent(w->out, w->layout->tensors[w->at].n_bytes);
    extent->wants_crc = true;
    return APR_OK;
}

static apr_status pass(apr_sink *sink, uint32_t crc, apr_error *err)
{
    writer *const w = (writer *)sink;

    APR_TRY(close_tensors(w, err));
    if (w->at == w->layout->n_tensors) return apr_fail(err, APR_E_USAGE, "more tensors were passed over than the layout has");
    w->n_put = w->layout->tensors[w->at].n_bytes;
    w->crc = crc;
    apr_out_advance(w->out, w->n_put);
    return APR_OK;
}

static void free_writer(writer *w)
{
    apr_out_abandon(w->out);
    free(w->index_of);
    free(w->crcs);
    free(w->head);
    free(w);
}

static void abandon(apr_sink *sink) { free_writer((writer *)sink); }

static apr_status patch_crcs(writer *w, apr_error *err)
{
    static const char digits[] = "0123456789abcdef";
    char *hex = (char *)w->head + w->crc_at;

    for (size_t i = 0; i < w->layout->n_tensors; i++)
        for (int shift = 28; shift >= 0; shift -= 4) *hex++ = digits[w->crcs[i] >> shift & 15];
    return apr_out_patch(w->out, w->crc_at, w->head + w->crc_at, w->layout->n_tensors * APR_META_CRC_CHARS, err);
}

/* Combines the footer's CRC from those of the head, the tensors and the padding; nothing is read again. */
static apr_status complete(writer *w, apr_error *err)
{
    uint8_t footer[FOOTER_BYTES];

    APR_TRY(close_tensors(w, err));
    if (w->at < w->layout->n_tensors)
        return apr_fail(err, APR_E_USAGE, "tensor '%s' was not written completely: %llu of %llu bytes", w->layout->tensors[w->at].name,
                        (unsigned long long)w->n_put, (unsigned long long)w->layout->tensors[w->at].n_bytes);
    if (w->crc_at > 0) APR_TRY(patch_crcs(w, err));
    const uint64_t data_bytes = w->total_bytes - w->head_bytes - FOOTER_BYTES;
    apr_store_le32(footer, apr_crc32_combine(apr_crc32(0, w->head, w->head_bytes), w->data_crc, data_bytes));
    return apr_out_write(w->out, footer, sizeof footer, NULL, err);
}

static apr_status finish(apr_sink *sink, apr_error *err)
{
    writer *const w = (writer *)sink;
    apr_status status = complete(w, err);

    if (status == APR_OK) {
        status = apr_out_finish(w->out, err); /* frees it */
        w->out = NULL;
    }
    free_writer(w);
    return status;
}

static uint64_t total_bytes(const apr_sink *sink) { return ((const writer *)sink)->total_bytes; }

static apr_status check_layout(const apr_model *layout, const char *path, apr_profile profile, apr_error *err)
{
    if (layout->n_tensors > UINT32_MAX)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: %zu tensors are more than APR can hold", path, layout->n_tensors);
    for (size_t i = 0; i < layout->n_attachments; i++)
        if (!apr_meta_is_file_name(layout->attachments[i].name))
            return apr_fail(err, APR_E_UNSUPPORTED, "%s: a file called '%.80s' cannot be stored in an APR file", path,
                            layout->attachments[i].name);
    return profile == APR_PROFILE_APRENDER ? apr_check_aprender(layout, err) : APR_OK;
}

/* Makes a writer with its layout computed and its head in memory. */
static apr_status new_writer(writer **made, const char *path, const apr_model *layout, apr_profile profile, apr_error *err)
{
    static const apr_sink_ops ops = {
        .put = put, .finish = finish, .abandon = abandon, .total_bytes = total_bytes, .extent = extent_of, .pass = pass};

    APR_TRY(check_layout(layout, path, profile, err));
    writer *const w = calloc(1, sizeof *w);
    if (w == NULL) return apr_no_memory(err, "an APR writer");
    w->base.ops = &ops;
    w->layout = layout;
    apr_status status = prepare(w, path, err);
    if (status == APR_OK && profile == APR_PROFILE_APRENDER && w->head_bytes > MAX_APRENDER_HEAD_BYTES)
        status = apr_fail(err, APR_E_UNSUPPORTED, "%s: metadata and index take %zu bytes, more than the %d that aprender reads", path,
                          w->head_bytes, MAX_APRENDER_HEAD_BYTES);
    if (status == APR_OK) *made = w;
    else free_writer(w);
    return status;
}

apr_status apr_apr_sink_open(apr_sink **sink, const char *path, const apr_model *layout, const apr_sink_options *options, apr_error *err)
{
    static const apr_sink_options defaults;
    apr_status status;
    writer *w;

    *sink = NULL;
    if (options == NULL) options = &defaults;
    APR_TRY(new_writer(&w, path, layout, options->profile, err));
    if (options->resume_from != NULL) status = apr_out_resume(&w->out, options->resume_from, path, w->total_bytes, options->overwrite, err);
    else status = apr_out_open(&w->out, path, w->total_bytes, options->overwrite, err);
    if (status == APR_OK) apr_out_verify(w->out, options->reader);
    if (status == APR_OK) status = apr_out_write(w->out, w->head, w->head_bytes, NULL, err);
    if (status != APR_OK) {
        free_writer(w);
        return status;
    }
    *sink = &w->base;
    return APR_OK;
}

apr_status apr_apr_offsets(apr_offsets *offsets, const char *path, const apr_model *layout, const apr_sink_options *options, apr_error *err)
{
    writer *w;

    *offsets = (apr_offsets){0};
    APR_TRY(new_writer(&w, path, layout, options->profile, err));
    const apr_status status = apr_offsets_make(offsets, 1, layout->n_tensors, err);
    if (status == APR_OK) {
        offsets->files[0] = (struct apr_offset_file){"", w->total_bytes};
        offsets->total_bytes = w->total_bytes;
        offsets->head_crc = apr_crc32(0, w->head, w->head_bytes);
        uint64_t at = w->head_bytes;
        for (size_t i = 0; i < layout->n_tensors; i++) {
            offsets->tensors[i].offset = at;
            at += apr_align_up(layout->tensors[i].n_bytes, ALIGNMENT);
        }
    }
    free_writer(w);
    return status;
}
