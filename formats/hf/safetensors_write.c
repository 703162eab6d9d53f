/* safetensors_write.c - writes a checkpoint directory: small files, shards and their index. */
#include "formats/base/crc32.h"
#include "formats/base/json.h"
#include "formats/files/checkpoint_names.h"
#include "formats/files/out.h"
#include "formats/hf/hf_losses.h"
#include "formats/hf/safetensors.h"
#include "formats/shape/hf_config.h"
#include "formats/tensor/metadata.h"
#include "formats/vocab/hf_tokenizer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t DEFAULT_SHARD_BYTES = 5000000000u;
#define SHARD_NAME "model-%05zu-of-%05zu.safetensors"

typedef struct shard {
    char name[64];
    size_t first, n_tensors; /* of the layout */
    uint64_t n_data;
    char *header; /* JSON padded to a multiple of 8 */
    size_t n_header;
} shard;

/* A file written before the weights: an attachment, or one made from hparams and vocab. */
typedef struct small_file {
    const char *name;
    const void *data;
    size_t n_bytes;
    char *made; /* what to free */
} small_file;

enum { MAX_MADE_FILES = 6, MAX_TEMPLATES = 64 };

typedef struct safetensors_sink {
    apr_sink base;
    char *path; /* of the directory */
    const apr_model *layout;
    shard *shards;
    size_t n_shards, at_shard;
    small_file *files;
    size_t n_files;
    uint64_t total_bytes, n_put; /* n_put: data of the current shard */
    size_t at_tensor;            /* the current tensor; n_of_tensor: its bytes that are written */
    uint64_t n_of_tensor;
    apr_folder *folder;
    apr_out *out;    /* the current shard */
    apr_arena arena; /* names of made files */
} safetensors_sink;

/* May a file of this name be deleted when the directory is replaced? Only files of our own checkpoints: "model.safetensors",
 * "model-00001-of-00004.safetensors", their small files, and what is written again. */
static bool may_delete(const void *context, const char *name)
{
    const safetensors_sink *const sink = context;
    char made[sizeof((shard *)0)->name];
    unsigned at, n;

    for (size_t i = 0; i < sink->n_files; i++)
        if (strcmp(sink->files[i].name, name) == 0) return true;
    if (strcmp(name, "model.safetensors") == 0) return true;
    if (sscanf(name, "model-%5u-of-%5u.", &at, &n) == 2) {
        snprintf(made, sizeof made, SHARD_NAME, (size_t)at, (size_t)n);
        return strcmp(name, made) == 0;
    }
    const char *const dot = strrchr(name, '.');
    size_t n_name;
    if (apr_template_name(name, &n_name) != NULL) return true;
    return apr_is_checkpoint_file(name) && (dot == NULL || strcmp(dot, ".safetensors") != 0);
}

/* --- laying out --- */

static apr_status check_dtypes(const apr_model *layout, const char *path, apr_error *err)
{
    for (size_t i = 0; i < layout->n_tensors; i++) {
        const apr_tensor *const tensor = &layout->tensors[i];
        if (apr_dtypes[tensor->dtype].safetensors_name == NULL)
            return apr_fail(
                err, APR_E_UNSUPPORTED,
                "%s: tensor '%s': %s has no place in safetensors; convert with aprquant --to bf16 (or f16, fp8), or write .apr/.gguf", path,
                tensor->name, apr_dtypes[tensor->dtype].name);
    }
    return APR_OK;
}

/* A new shard begins if the next tensor does not fit. */
static apr_status plan_shards(safetensors_sink *sink, uint64_t max_bytes, apr_error *err)
{
    const apr_model *const layout = sink->layout;

    sink->shards = calloc(layout->n_tensors + 1, sizeof *sink->shards);
    if (sink->shards == NULL) return apr_no_memory(err, "the shards");
    sink->n_shards = 1;
    for (size_t i = 0; i < layout->n_tensors; i++) {
        const uint64_t n_bytes = layout->tensors[i].n_bytes;
        shard *s = &sink->shards[sink->n_shards - 1];
        if (s->n_tensors > 0 && (n_bytes > max_bytes || s->n_data > max_bytes - n_bytes)) {
            s = &sink->shards[sink->n_shards++];
            s->first = i;
        }
        s->n_tensors++;
        if (__builtin_add_overflow(s->n_data, n_bytes, &s->n_data))
            return apr_fail(err, APR_E_USAGE, "%s: the tensors are larger than any disk", sink->path);
    }
    for (size_t i = 0; i < sink->n_shards; i++) {
        if (sink->n_shards == 1) snprintf(sink->shards[i].name, sizeof sink->shards[i].name, "model.safetensors");
        else snprintf(sink->shards[i].name, sizeof sink->shards[i].name, SHARD_NAME, i + 1, sink->n_shards);
    }
    return APR_OK;
}

/* Is this key of the origin copied? Of a checkpoint all are. Of a GGUF only texts about the model (name, author, licence, links): its
 * numbers are in config.json, its tokenizer in tokenizer.json. */
static bool is_copied(const apr_model *layout, const apr_kv *item)
{
    const apr_str text = item->value.string;
    if (item->type != APR_KV_STRING || !apr_str_is_utf8(text) || (text.n_bytes > 0 && memchr(text.text, '\0', text.n_bytes) != NULL))
        return false;
    return layout->origin.format == APR_FORMAT_SAFETENSORS || apr_kv_is_about(item) || apr_metadata_own_name(item) != NULL;
}

/* Writes the origin's metadata, or "format" for loaders and a GGUF's texts about the model. */
static void put_metadata(apr_json_text *out, const apr_model *layout)
{
    if (layout->origin.format == APR_FORMAT_SAFETENSORS && layout->kv.n_items == 0) return;
    apr_json_open(out, "__metadata__", '{');
    if (layout->origin.format != APR_FORMAT_SAFETENSORS) apr_json_string(out, "format", "pt", 2);
    for (size_t i = 0; i < layout->kv.n_items; i++) {
        const apr_kv *const item = &layout->kv.items[i];
        const char *const own = layout->origin.format == APR_FORMAT_GGUF ? apr_metadata_own_name(item) : NULL;
        if (is_copied(layout, item))
            apr_json_string(out, own != NULL ? own : item->key.text, item->value.string.text, item->value.string.n_bytes);
    }
    apr_json_close(out, '}');
}

static apr_status make_header(shard *s, const apr_model *layout, apr_error *err)
{
    apr_json_text out = {0};
    uint64_t at = 0;
    size_t n;

    apr_json_open(&out, NULL, '{');
    put_metadata(&out, layout);
    for (size_t i = 0; i < s->n_tensors; i++) {
        const apr_tensor *const tensor = &layout->tensors[s->first + i];
        const char *const dtype = apr_dtypes[tensor->dtype].safetensors_name;
        apr_json_open(&out, tensor->name, '{');
        apr_json_string(&out, "dtype", dtype, strlen(dtype));
        apr_json_open(&out, "shape", '[');
        for (int d = 0; d < tensor->rank; d++) apr_json_int(&out, NULL, tensor->dims[d]);
        apr_json_close(&out, ']');
        apr_json_open(&out, "data_offsets", '[');
        apr_json_uint(&out, NULL, at);
        apr_json_uint(&out, NULL, at += tensor->n_bytes);
        apr_json_close(&out, ']');
        apr_json_close(&out, '}');
    }
    apr_json_close(&out, '}');
    s->header = apr_json_text_take(&out, &n);
    if (s->header == NULL) return apr_no_memory(err, "a header");
    s->n_header = (n + 7) / 8 * 8;
    char *const longer = realloc(s->header, s->n_header + 1);
    if (longer == NULL) return apr_no_memory(err, "a header");
    s->header = longer;
    memset(s->header + n, ' ', s->n_header - n);
    return APR_OK;
}

static char *make_index(const safetensors_sink *sink)
{
    apr_json_text out = {0};
    uint64_t total = 0;

    for (size_t i = 0; i < sink->n_shards; i++) total += sink->shards[i].n_data;
    apr_json_open(&out, NULL, '{');
    apr_json_open(&out, "metadata", '{');
    apr_json_uint(&out, "total_size", total);
    apr_json_close(&out, '}');
    apr_json_open(&out, "weight_map", '{');
    for (size_t i = 0; i < sink->n_shards; i++)
        for (size_t t = 0; t < sink->shards[i].n_tensors; t++)
            apr_json_string(&out, sink->layout->tensors[sink->shards[i].first + t].name, sink->shards[i].name,
                            strlen(sink->shards[i].name));
    apr_json_close(&out, '}');
    apr_json_close(&out, '}');
    return apr_json_text_take(&out, NULL);
}

static apr_status add_made(safetensors_sink *sink, const char *name, char *text, apr_error *err)
{
    if (text == NULL) return apr_no_memory(err, name);
    sink->files[sink->n_files++] = (small_file){name, text, strlen(text), text};
    return APR_OK;
}

/* The layout may come from an untrusted APR file: a name must stay in the folder and must not be that of a file made here. */
static apr_status add_attachment(safetensors_sink *sink, const apr_attachment *attachment, apr_error *err)
{
    const char *const name = attachment->name;
    size_t n_name;

    if (*name == '\0' || *name == '.' || strlen(name) > 200 || (strchr(name, '/') != NULL && apr_template_name(name, &n_name) == NULL))
        return apr_fail(err, APR_E_DAMAGED, "%s: an attached file is called '%.100s', which is not a valid name of a file in a checkpoint",
                        sink->path, name);
    if (strcmp(name, APR_CHECKPOINT_INDEX) == 0 || strstr(name, ".safetensors") != NULL)
        return apr_fail(err, APR_E_DAMAGED, "%s: an attached file is called '%.100s', like the weights themselves", sink->path, name);
    for (size_t i = 0; i < sink->n_files; i++)
        if (strcmp(sink->files[i].name, name) == 0)
            return apr_fail(err, APR_E_DAMAGED, "%s: two attached files are called '%s'", sink->path, name);
    sink->files[sink->n_files++] = (small_file){name, attachment->data, attachment->n_bytes, NULL};
    return APR_OK;
}

/* Adds GGUF's named chat templates, each in its file. */
static apr_status add_templates(safetensors_sink *sink, apr_error *err)
{
    const apr_kv_list *const kv = &sink->layout->kv;
    size_t n_added = 0, n_name;

    for (size_t i = 0; i < kv->n_items && n_added < MAX_TEMPLATES; i++) {
        const char *const name = apr_named_template(&kv->items[i]);
        if (name == NULL || !apr_hf_is_text(kv->items[i].value.string)) continue;
        const char *const file = apr_arena_print(&sink->arena, APR_TEMPLATE_FOLDER "/%s.jinja", name);
        if (file == NULL) return apr_no_memory(err, "the name of a template");
        if (apr_template_name(file, &n_name) == NULL || apr_model_attachment(sink->layout, file) != NULL) continue;
        APR_TRY(add_made(sink, file, strndup(kv->items[i].value.string.text, kv->items[i].value.string.n_bytes), err));
        n_added++;
    }
    return APR_OK;
}

/* Adds all attachments. A missing config.json, and a missing tokenizer with its companions, are made. */
static apr_status collect_files(safetensors_sink *sink, apr_error *err)
{
    const apr_model *const m = sink->layout;

    sink->files = calloc(m->n_attachments + MAX_MADE_FILES + MAX_TEMPLATES, sizeof *sink->files);
    if (sink->files == NULL) return apr_no_memory(err, "the small files");
    for (size_t i = 0; i < m->n_attachments; i++) APR_TRY(add_attachment(sink, &m->attachments[i], err));
    const bool lacks_config =
        apr_model_attachment(m, "config.json") == NULL && m->hparams.architecture != NULL && m->hparams.architecture[0] != '\0';
    apr_arena arena = {0};
    const char *obstacle;
    const apr_status status = apr_hf_vocab_obstacle(&m->vocab, &arena, &obstacle, err);
    const bool lacks_tokenizer =
        apr_model_attachment(m, "tokenizer.json") == NULL && m->vocab.kind != APR_VOCAB_NONE && m->vocab.n_tokens > 0 && obstacle == NULL;
    apr_arena_close(&arena);
    APR_TRY(status);
    if (lacks_config) APR_TRY(add_made(sink, "config.json", apr_hf_config_make(m), err));
    if (lacks_tokenizer) {
        APR_TRY(add_made(sink, "tokenizer.json", apr_hf_tokenizer_write(&m->vocab), err));
        if (apr_model_attachment(m, "tokenizer_config.json") == NULL)
            APR_TRY(add_made(sink, "tokenizer_config.json", apr_hf_tokenizer_config_write(&m->vocab), err));
        if (apr_model_attachment(m, "chat_template.jinja") == NULL && m->vocab.chat_template != NULL)
            APR_TRY(add_made(sink, "chat_template.jinja", strdup(m->vocab.chat_template), err));
        if (apr_model_attachment(m, "generation_config.json") == NULL)
            APR_TRY(add_made(sink, "generation_config.json", apr_hf_generation_config_write(&m->vocab), err));
    }
    if (m->origin.format == APR_FORMAT_GGUF) APR_TRY(add_templates(sink, err));
    return sink->n_shards > 1 ? add_made(sink, APR_CHECKPOINT_INDEX, make_index(sink), err) : APR_OK;
}

static apr_status lay_out(safetensors_sink *sink, uint64_t max_shard_bytes, apr_error *err)
{
    APR_TRY(check_dtypes(sink->layout, sink->path, err));
    APR_TRY(plan_shards(sink, max_shard_bytes > 0 ? max_shard_bytes : DEFAULT_SHARD_BYTES, err));
    APR_TRY(collect_files(sink, err));
    for (size_t i = 0; i < sink->n_files; i++) sink->total_bytes += sink->files[i].n_bytes;
    for (size_t i = 0; i < sink->n_shards; i++) {
        shard *const s = &sink->shards[i];
        APR_TRY(make_header(s, sink->layout, err));
        sink->total_bytes += 8 + s->n_header + s->n_data;
    }
    return APR_OK;
}

/* --- writing --- */

static apr_status write_file(const safetensors_sink *sink, const small_file *file, apr_error *err)
{
    apr_out *out;

    APR_TRY(apr_folder_file(sink->folder, file->name, file->n_bytes, &out, err));
    const apr_status status = apr_out_write(out, file->data, file->n_bytes, NULL, err);
    if (status == APR_OK) return apr_out_finish(out, err);
    apr_out_abandon(out);
    return status;
}

static apr_status open_shard(safetensors_sink *sink, apr_error *err)
{
    const shard *const s = &sink->shards[sink->at_shard];
    uint8_t length[8];

    sink->n_put = 0;
    APR_TRY(apr_folder_file(sink->folder, s->name, 8 + s->n_header + s->n_data, &sink->out, err));
    apr_store_le64(length, s->n_header);
    APR_TRY(apr_out_write(sink->out, length, sizeof length, NULL, err));
    return apr_out_write(sink->out, s->header, s->n_header, NULL, err);
}

static apr_status close_shard(safetensors_sink *sink, apr_error *err)
{
    apr_out *const out = sink->out;
    sink->out = NULL;
    sink->at_shard++;
    return apr_out_finish(out, err);
}

/* Opens the shard of the next byte. *n_left: bytes that are missing in it. */
static apr_status find_shard(safetensors_sink *sink, uint64_t *n_left, apr_error *err)
{
    for (;;) {
        *n_left = sink->shards[sink->at_shard].n_data - sink->n_put;
        if (*n_left > 0) return APR_OK;
        if (sink->at_shard + 1 == sink->n_shards) return apr_fail(err, APR_E_USAGE, "%s: more bytes than the layout has", sink->path);
        APR_TRY(close_shard(sink, err));
        APR_TRY(open_shard(sink, err));
    }
}

/* Counts n_bytes as written, and skips complete and empty tensors. */
static void advance(safetensors_sink *sink, uint64_t n_bytes)
{
    const apr_model *const layout = sink->layout;

    sink->n_put += n_bytes;
    sink->n_of_tensor += n_bytes;
    for (; sink->at_tensor < layout->n_tensors && sink->n_of_tensor >= layout->tensors[sink->at_tensor].n_bytes; sink->at_tensor++)
        sink->n_of_tensor -= layout->tensors[sink->at_tensor].n_bytes;
}

static apr_status sink_put(apr_sink *base, const void *bytes, size_t n_bytes, apr_error *err)
{
    safetensors_sink *const sink = (safetensors_sink *)base;
    const uint8_t *p = bytes;
    uint64_t n_left;

    while (n_bytes > 0) {
        APR_TRY(find_shard(sink, &n_left, err));
        const size_t n = n_bytes < n_left ? n_bytes : (size_t)n_left;
        APR_TRY(apr_out_write(sink->out, p, n, NULL, err));
        advance(sink, n);
        p += n;
        n_bytes -= n;
    }
    return APR_OK;
}

/* Finds the next tensor that has bytes, and opens its shard. */
static apr_status next_tensor(safetensors_sink *sink, uint64_t *n_bytes, apr_error *err)
{
    uint64_t n_left;

    advance(sink, 0);
    if (sink->at_tensor == sink->layout->n_tensors) return apr_fail(err, APR_E_USAGE, "%s: more tensors than the layout has", sink->path);
    *n_bytes = sink->layout->tensors[sink->at_tensor].n_bytes;
    return find_shard(sink, &n_left, err);
}

static apr_status sink_extent(apr_sink *base, apr_extent *extent, apr_error *err)
{
    safetensors_sink *const sink = (safetensors_sink *)base;
    uint64_t n_bytes;

    APR_TRY(next_tensor(sink, &n_bytes, err));
    *extent = apr_out_extent(sink->out, n_bytes);
    return APR_OK;
}

static apr_status sink_pass(apr_sink *base, uint32_t crc, apr_error *err)
{
    safetensors_sink *const sink = (safetensors_sink *)base;
    uint64_t n_bytes;

    (void)crc;
    APR_TRY(next_tensor(sink, &n_bytes, err));
    apr_out_advance(sink->out, n_bytes);
    advance(sink, n_bytes);
    return APR_OK;
}

static void free_sink(safetensors_sink *sink)
{
    for (size_t i = 0; i < sink->n_files; i++) free(sink->files[i].made);
    for (size_t i = 0; sink->shards != NULL && i < sink->n_shards; i++) free(sink->shards[i].header);
    free(sink->files);
    apr_arena_close(&sink->arena);
    free(sink->shards);
    free(sink->path);
    free(sink);
}

static void sink_abandon(apr_sink *base)
{
    safetensors_sink *const sink = (safetensors_sink *)base;
    apr_out_abandon(sink->out);
    apr_folder_abandon(sink->folder);
    free_sink(sink);
}

static apr_status finish(safetensors_sink *sink, apr_error *err)
{
    for (;;) {
        const shard *const s = &sink->shards[sink->at_shard];
        if (sink->n_put != s->n_data)
            return apr_fail(err, APR_E_USAGE, "%s: %s has %" PRIu64 " of %" PRIu64 " bytes", sink->path, s->name, sink->n_put, s->n_data);
        APR_TRY(close_shard(sink, err));
        if (sink->at_shard == sink->n_shards) break;
        APR_TRY(open_shard(sink, err));
    }
    apr_folder *const folder = sink->folder;
    sink->folder = NULL; /* freed in any case */
    return apr_folder_finish(folder, err);
}

static apr_status sink_finish(apr_sink *base, apr_error *err)
{
    safetensors_sink *const sink = (safetensors_sink *)base;
    const apr_status status = finish(sink, err);
    if (status == APR_OK) free_sink(sink);
    else sink_abandon(base);
    return status;
}

static uint64_t sink_total_bytes(const apr_sink *base) { return ((const safetensors_sink *)base)->total_bytes; }

static apr_status new_sink(safetensors_sink **made, const char *path, const apr_model *layout, const apr_sink_options *options,
                           apr_error *err)
{
    static const apr_sink_ops ops = {.put = sink_put,
                                     .finish = sink_finish,
                                     .abandon = sink_abandon,
                                     .total_bytes = sink_total_bytes,
                                     .extent = sink_extent,
                                     .pass = sink_pass};
    safetensors_sink *const sink = calloc(1, sizeof *sink);
    if (sink == NULL) return apr_no_memory(err, "an output folder");
    sink->base.ops = &ops;
    sink->layout = layout;
    sink->path = strdup(path);
    const apr_status status = sink->path != NULL ? lay_out(sink, options->max_shard_bytes, err) : apr_no_memory(err, "a path");
    if (status != APR_OK) sink_abandon(&sink->base);
    else *made = sink;
    return status;
}

apr_status apr_safetensors_sink_open(apr_sink **sink_ptr, const char *path, const apr_model *layout, const apr_sink_options *options,
                                     apr_error *err)
{
    safetensors_sink *sink;
    apr_status status;

    *sink_ptr = NULL;
    APR_TRY(new_sink(&sink, path, layout, options, err));
    const apr_folder_rule rule = {may_delete, sink};
    if (options->resume_from != NULL) status = apr_folder_resume(&sink->folder, options->resume_from, path, options->overwrite, rule, err);
    else status = apr_folder_open(&sink->folder, path, sink->total_bytes, options->overwrite, rule, err);
    if (status == APR_OK) apr_folder_verify(sink->folder, options->reader);
    for (size_t i = 0; status == APR_OK && i < sink->n_files; i++) status = write_file(sink, &sink->files[i], err);
    if (status == APR_OK) status = open_shard(sink, err);
    if (status != APR_OK) sink_abandon(&sink->base);
    else *sink_ptr = &sink->base;
    return status;
}

static apr_status fill_offsets(apr_offsets *offsets, const safetensors_sink *sink, apr_error *err)
{
    APR_TRY(apr_offsets_make(offsets, sink->n_shards, sink->layout->n_tensors, err));
    offsets->total_bytes = sink->total_bytes;
    for (size_t i = 0; i < sink->n_files; i++)
        offsets->head_crc = apr_crc32(offsets->head_crc, sink->files[i].data, sink->files[i].n_bytes);
    for (size_t i = 0; i < sink->n_shards; i++) {
        const shard *const s = &sink->shards[i];
        uint64_t at = 8 + s->n_header;
        const char *const name = apr_arena_copy(&offsets->arena, s->name, strlen(s->name));
        if (name == NULL) return apr_no_memory(err, "the name of a file");
        offsets->files[i] = (struct apr_offset_file){name, at + s->n_data};
        offsets->head_crc = apr_crc32(offsets->head_crc, s->header, s->n_header);
        for (size_t t = s->first; t < s->first + s->n_tensors; t++) {
            offsets->tensors[t] = (struct apr_offset){i, at};
            at += sink->layout->tensors[t].n_bytes;
        }
    }
    return APR_OK;
}

apr_status apr_safetensors_offsets(apr_offsets *offsets, const char *path, const apr_model *layout, const apr_sink_options *options,
                                   apr_error *err)
{
    safetensors_sink *sink;

    *offsets = (apr_offsets){0};
    APR_TRY(new_sink(&sink, path, layout, options, err));
    const apr_status status = fill_offsets(offsets, sink, err);
    sink_abandon(&sink->base);
    return status;
}
