/* open.c - chooses the reader by the file's first bytes, not by its name, and the writer by the format of the output. */
#include "formats/open.h"
#include "formats/apr/apr.h"
#include "formats/base/text.h"
#include "formats/files/checkpoint_names.h"
#include "formats/files/placeholder.h"
#include "formats/gguf/gguf.h"
#include "formats/hf/lora.h"
#include "formats/hf/safetensors.h"
#include "formats/torch/torch.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* --- the table: one row a format --- */

static bool starts_gguf(const uint8_t *head, size_t n) { return n >= 4 && memcmp(head, "GGUF", 4) == 0; }
static bool starts_apr(const uint8_t *head, size_t n) { return n >= 4 && memcmp(head, "APR", 3) == 0; }
static bool starts_config(const uint8_t *head, size_t n) { return n >= 1 && (head[0] == '{' || head[0] == ' ' || head[0] == '\n'); }

static bool starts_nothing(const uint8_t *head, size_t n) { return (void)head, (void)n, false; }

static bool gguf_holds(apr_dtype dtype) { return apr_dtypes[dtype].ggml_id >= 0; }
static bool safetensors_holds(apr_dtype dtype) { return apr_dtypes[dtype].safetensors_name != NULL; }

typedef struct format_row {
    apr_format format;
    const char *suffix;                            /* of output files; NULL: a folder, or never written */
    bool (*starts)(const uint8_t *head, size_t n); /* does a file with these first bytes have the format? Called in table order */
    apr_status (*open)(apr_model *, const char *, apr_error *);
    apr_sink_open_fn sink_open;                                         /* NULL: only read */
    apr_offsets_fn offsets;                                             /* NULL: cannot be written in several runs */
    apr_status (*losses)(const apr_model *, apr_losses *, apr_error *); /* NULL: holds every model without loss */
    apr_container container;
} format_row;

/* Formats with magic bytes come before config.json: the first byte of a count in a header may be '{'. */
static const format_row formats[] = {
    {.format = APR_FORMAT_APR,
     .suffix = ".apr",
     .starts = starts_apr,
     .open = apr_apr_open,
     .sink_open = apr_apr_sink_open,
     .offsets = apr_apr_offsets,
     .container = {.name = "APR"}},
    {.format = APR_FORMAT_GGUF,
     .suffix = ".gguf",
     .starts = starts_gguf,
     .open = apr_gguf_open,
     .sink_open = apr_gguf_sink_open,
     .offsets = apr_gguf_offsets,
     .losses = apr_gguf_losses,
     .container = {.name = "GGUF",
                   .holds = gguf_holds,
                   .vectors_f32 = true,
                   .renames = true,
                   .naming = APR_NAMING_GGML,
                   .no_packed = "written as GGUF",
                   .same_numbers = true}},
    {.format = APR_FORMAT_SAFETENSORS,
     .starts = apr_starts_safetensors,
     .open = apr_safetensors_open,
     .sink_open = apr_safetensors_sink_open,
     .offsets = apr_safetensors_offsets,
     .losses = apr_hf_losses,
     .container = {.name = "safetensors", .holds = safetensors_holds, .renames = true, .naming = APR_NAMING_HF}},
    {.format = APR_FORMAT_PYTORCH,
     .starts = apr_is_torch_start,
     .open = apr_safetensors_open, /* reads both, because a checkpoint may have files of either */
     .container = {.name = "PyTorch"}},
    {.format = APR_FORMAT_CONSOLIDATED, .starts = starts_nothing, .container = {.name = "consolidated files"}},
    {.format = APR_FORMAT_CONFIG, .starts = starts_config, .open = apr_config_open, .container = {.name = "config.json"}},
};
enum { N_FORMATS = sizeof formats / sizeof *formats };

/* NULL for APR_FORMAT_NONE. */
static const format_row *row_of(apr_format format)
{
    for (int i = 0; i < N_FORMATS; i++)
        if (formats[i].format == format) return &formats[i];
    return NULL;
}

/* The names or the suffixes of the formats that can be written: "APR, GGUF, safetensors", ".apr or .gguf". */
static const char *list_of(char *text, size_t capacity, const char *between_last, bool suffixes)
{
    const char *words[N_FORMATS];
    size_t n_words = 0, n = 0;

    for (int i = 0; i < N_FORMATS; i++) {
        const char *const word = suffixes ? formats[i].suffix : formats[i].container.name;
        if (formats[i].sink_open != NULL && word != NULL) words[n_words++] = word;
    }
    text[0] = '\0';
    for (size_t i = 0; i < n_words && n < capacity; i++)
        n += (size_t)snprintf(text + n, capacity - n, "%s%s", i == 0 ? "" : i + 1 < n_words ? ", " : between_last, words[i]);
    return text;
}

const char *apr_format_suffixes(char text[APR_FORMAT_TEXT]) { return list_of(text, APR_FORMAT_TEXT, " or ", true); }

/* --- reading --- */

static apr_status row_of_file(const char *path, const format_row **row, apr_error *err)
{
    unsigned char head[16] = {0};
    char names[APR_FORMAT_TEXT];
    apr_map map;
    APR_TRY(apr_map_open(&map, path, err));
    const size_t n = map.n_bytes < sizeof head ? map.n_bytes : sizeof head;
    if (n > 0) memcpy(head, map.data, n);
    const apr_status status = apr_refuse_placeholder(map.data, map.n_bytes, path, err);
    apr_map_forget(&map); /* the reader opens it again */
    if (status != APR_OK) return status;

    for (*row = formats; *row < formats + N_FORMATS; ++*row)
        if ((*row)->starts(head, n)) return APR_OK;
    if (n == 0) return apr_fail(err, APR_E_DAMAGED, "%s: the file is empty", path);
    return apr_fail(err, APR_E_DAMAGED, "%s: neither %s nor a config.json (first bytes %02x %02x %02x %02x)", path,
                    list_of(names, sizeof names, ", ", false), head[0], head[1], head[2], head[3]);
}

static apr_status row_of_path(const char *path, const format_row **row, apr_error *err)
{
    struct stat st;

    *row = row_of(APR_FORMAT_SAFETENSORS);
    if (stat(path, &st) != 0) return apr_fail(err, APR_E_IO, "%s: %s", path, strerror(errno));
    return S_ISDIR(st.st_mode) ? APR_OK : row_of_file(path, row, err);
}

apr_status apr_model_open(apr_model *model, const char *path, apr_error *err)
{
    const format_row *row;

    *model = (apr_model){0};
    APR_TRY(row_of_path(path, &row, err));
    return row->open(model, path, err);
}

apr_status apr_model_open_head(apr_model *model, const char *path, bool *is_whole, apr_error *err)
{
    const format_row *row;

    *model = (apr_model){0};
    *is_whole = true;
    APR_TRY(row_of_path(path, &row, err));
    if (row->format != APR_FORMAT_GGUF) return row->open(model, path, err);
    return apr_gguf_open_head(model, path, is_whole, err);
}

apr_status apr_model_open_vocab(apr_model *model, const char *path, apr_error *err)
{
    const format_row *row;
    bool is_whole;

    *model = (apr_model){0};
    APR_TRY(row_of_path(path, &row, err));
    if (row->format == APR_FORMAT_GGUF) return apr_gguf_open_head(model, path, &is_whole, err);
    return row->format == APR_FORMAT_APR ? row->open(model, path, err) : apr_hf_vocab_open(model, path, err);
}

/* --- adapters --- */

static bool has_file(const char *folder, const char *name)
{
    char path[4096];
    struct stat st;
    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path && (stat(path, &st) == 0 || errno != ENOENT);
}

bool apr_is_adapter(const char *path)
{
    const char *const slash = strrchr(path, '/'), *const base = slash != NULL ? slash + 1 : path;
    struct stat st;

    if (stat(path, &st) != 0) return false;
    if (!S_ISDIR(st.st_mode)) return strcmp(base, APR_LORA_WEIGHTS) == 0 || strcmp(base, APR_LORA_PICKLE) == 0;
    return has_file(path, APR_LORA_CONFIG) && !has_file(path, "model.safetensors") && !has_file(path, APR_CHECKPOINT_INDEX) &&
           !has_file(path, "pytorch_model.bin");
}

apr_status apr_adapter_open(apr_adapter *adapter, const char *path, apr_error *err)
{
    struct stat st;
    const format_row *row = row_of(APR_FORMAT_SAFETENSORS);

    *adapter = (apr_adapter){0};
    if (stat(path, &st) != 0) return apr_fail(err, APR_E_IO, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode)) APR_TRY(row_of_file(path, &row, err));
    if (row->format == APR_FORMAT_SAFETENSORS || row->open == apr_safetensors_open) return apr_lora_open(adapter, path, err);
    if (row->format == APR_FORMAT_GGUF) return apr_gguf_adapter_open(adapter, path, err);
    return apr_fail(err, APR_E_UNSUPPORTED, "%s: an adapter must be a PEFT folder with " APR_LORA_CONFIG " or a GGUF file, not %s", path,
                    row->container.name);
}

/* --- writing --- */

apr_format apr_format_of_path(const char *path)
{
    struct stat st;
    const char *const slash = strrchr(path, '/'), *const base = slash != NULL ? slash + 1 : path, *const dot = strrchr(base, '.');

    if (*base == '\0' || (stat(path, &st) == 0 && S_ISDIR(st.st_mode))) return APR_FORMAT_SAFETENSORS;
    if (dot == NULL || dot == base) return APR_FORMAT_SAFETENSORS;
    for (int i = 0; i < N_FORMATS; i++)
        if (formats[i].suffix != NULL && strcasecmp(dot, formats[i].suffix) == 0) return formats[i].format;
    if (strcasecmp(dot, ".safetensors") == 0 || strcasecmp(dot, ".json") == 0 || strcasecmp(dot, ".bin") == 0 ||
        strcasecmp(dot, ".pt") == 0 || strcasecmp(dot, ".pth") == 0)
        return APR_FORMAT_NONE;
    return APR_FORMAT_SAFETENSORS; /* "Qwen2.5-7B" has no such suffix */
}

const apr_container *apr_container_of(apr_format format, apr_profile profile)
{
    static const apr_container aprender = {.name = "the aprender profile (f32, f16, bf16, q4_k, q6_k)",
                                           .holds = apr_aprender_supports,
                                           .vectors_f32 = true,
                                           .few_types = true,
                                           .no_packed = "written for aprender",
                                           .tied_head = true};
    if (format == APR_FORMAT_APR && profile == APR_PROFILE_APRENDER) return &aprender;
    const format_row *const row = row_of(format);
    return &(row != NULL ? row : row_of(APR_FORMAT_APR))->container;
}

const char *apr_format_name(apr_format format)
{
    const format_row *const row = row_of(format);
    return row != NULL ? row->container.name : "none";
}

const char *apr_format_suffix(apr_format format)
{
    const format_row *const row = row_of(format);
    return row != NULL ? row->suffix : NULL;
}

apr_status apr_sink_losses(apr_format format, const apr_model *layout, apr_losses *losses, apr_error *err)
{
    const format_row *const row = row_of(format);
    if (layout->other_weights != NULL && apr_begins_with(layout->other_weights, APR_CHECKPOINT_INDEX))
        APR_TRY(apr_loss_add(losses, APR_NOTE, err, "the weights were read from model.safetensors; the files named in %s were ignored",
                             APR_CHECKPOINT_INDEX));
    if (layout->not_copied != NULL) APR_TRY(apr_loss_add(losses, APR_NOTE, err, "not copied: %s", layout->not_copied));
    return row != NULL && row->losses != NULL ? row->losses(layout, losses, err) : APR_OK;
}

static apr_status refuse_losses(apr_format format, const char *path, const apr_model *layout, apr_error *err)
{
    apr_losses losses = {0};
    apr_status status = apr_sink_losses(format, layout, &losses, err);
    if (status == APR_OK) status = apr_losses_refuse(&losses, path, err);
    apr_losses_close(&losses);
    return status;
}

apr_status apr_model_check_head(const apr_model *model, apr_error *err) { return apr_apr_check_head(model, err); }

/* Reads a finished output back before it gets its final name. A file that our own reader refuses is deleted. */
static apr_status read_back(const char *path, apr_error *err)
{
    apr_model model;

    APR_TRY(apr_model_open(&model, path, err));
    apr_model_close(&model);
    return APR_OK;
}

apr_status apr_sink_open(apr_sink **sink, apr_format format, const char *path, const apr_model *layout, const apr_sink_options *options,
                         apr_error *err)
{
    static const apr_sink_options defaults;
    const format_row *const row = row_of(format);
    char suffixes[APR_FORMAT_TEXT];
    apr_sink_options settings = options != NULL ? *options : defaults;

    *sink = NULL;
    if (settings.reader == NULL) settings.reader = read_back;
    options = &settings;
    if (!options->allow_loss) APR_TRY(refuse_losses(format, path, layout, err));
    if (options->work != NULL && row != NULL && row->offsets != NULL)
        return apr_work_sink_open(sink, row->sink_open, row->offsets, row->suffix == NULL, path, layout, options, err);
    if (options->work != NULL && row != NULL)
        return apr_fail(err, APR_E_UNSUPPORTED, "%s: %s cannot be written in several runs", path, row->container.name);
    if (row != NULL && row->sink_open != NULL) return row->sink_open(sink, path, layout, options, err);
    return apr_fail(err, APR_E_USAGE, "%s: give an output ending in %s, or a directory", path, apr_format_suffixes(suffixes));
}

apr_status apr_sink_put(apr_sink *sink, const void *bytes, size_t n_bytes, apr_error *err)
{
    return sink->ops->put(sink, bytes, n_bytes, err);
}
apr_status apr_sink_extent(apr_sink *sink, apr_extent *extent, bool *has_extent, apr_error *err)
{
    *has_extent = sink->ops->extent != NULL;
    return *has_extent ? sink->ops->extent(sink, extent, err) : APR_OK;
}
apr_status apr_sink_pass(apr_sink *sink, uint32_t crc, apr_error *err) { return sink->ops->pass(sink, crc, err); }
apr_tensor_state apr_sink_state(const apr_sink *sink, size_t tensor)
{
    return sink->ops->state != NULL ? sink->ops->state(sink, tensor) : APR_TENSOR_WANTED;
}
const char *apr_sink_note(const apr_sink *sink, size_t tensor) { return sink->ops->note != NULL ? sink->ops->note(sink, tensor) : ""; }
apr_status apr_sink_done(apr_sink *sink, size_t tensor, const char *note, apr_error *err)
{
    return sink->ops->done != NULL ? sink->ops->done(sink, tensor, note, err) : APR_OK;
}
apr_sink_progress apr_sink_progress_of(const apr_sink *sink)
{
    return sink->ops->progress != NULL ? sink->ops->progress(sink) : (apr_sink_progress){0};
}
apr_status apr_sink_finish(apr_sink *sink, apr_error *err) { return sink->ops->finish(sink, err); }
uint64_t apr_sink_total_bytes(const apr_sink *sink) { return sink->ops->total_bytes(sink); }
void apr_sink_abandon(apr_sink *sink)
{
    if (sink != NULL) sink->ops->abandon(sink);
}
