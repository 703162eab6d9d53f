/* open.c - which reader a path is for, by what the file says, not by what it is called; and which writer. */
#include "formats/apr/apr.h"
#include "formats/gguf/gguf.h"
#include "formats/hf/safetensors.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

typedef apr_status (*open_fn)(apr_model *, const char *, apr_error *);

static apr_status reader_of_file(const char *path, open_fn *open, apr_error *err)
{
    unsigned char head[16] = {0};
    apr_map map;
    APR_TRY(apr_map_open(&map, path, err));
    const size_t n = map.n_bytes < sizeof head ? map.n_bytes : sizeof head;
    if (n > 0) memcpy(head, map.data, n);
    apr_map_forget(&map); /* the reader opens it again */

    if (n >= 4 && memcmp(head, "GGUF", 4) == 0) *open = apr_gguf_open;
    else if (n >= 4 && memcmp(head, "APR", 3) == 0) *open = apr_apr_open;
    else if (n >= 9 && head[8] == '{') *open = apr_safetensors_open;
    else if (n >= 1 && (head[0] == '{' || head[0] == ' ' || head[0] == '\n')) *open = apr_config_open;
    else if (n == 0) return apr_fail(err, APR_E_DAMAGED, "%s: the file is empty", path);
    else
        return apr_fail(err, APR_E_DAMAGED, "%s: neither GGUF, safetensors, APR nor a config.json (first bytes %02x %02x %02x %02x)", path,
                        head[0], head[1], head[2], head[3]);
    return APR_OK;
}

apr_status apr_model_open(apr_model *model, const char *path, apr_error *err)
{
    struct stat st;
    open_fn open = apr_safetensors_open;

    *model = (apr_model){0};
    if (stat(path, &st) != 0) return apr_fail(err, APR_E_IO, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode)) APR_TRY(reader_of_file(path, &open, err));
    return open(model, path, err);
}

apr_format apr_format_of_path(const char *path)
{
    struct stat st;
    const char *const slash = strrchr(path, '/'), *const base = slash != NULL ? slash + 1 : path, *const dot = strrchr(base, '.');

    if (*base == '\0' || (stat(path, &st) == 0 && S_ISDIR(st.st_mode))) return APR_FORMAT_SAFETENSORS;
    if (dot == NULL || dot == base) return APR_FORMAT_SAFETENSORS;
    if (strcasecmp(dot, ".apr") == 0) return APR_FORMAT_APR;
    if (strcasecmp(dot, ".gguf") == 0) return APR_FORMAT_GGUF;
    if (strcasecmp(dot, ".safetensors") == 0 || strcasecmp(dot, ".json") == 0 || strcasecmp(dot, ".bin") == 0) return APR_FORMAT_NONE;
    return APR_FORMAT_SAFETENSORS; /* "Qwen2.5-7B" ends in no file ending */
}

static bool gguf_holds(apr_dtype dtype) { return apr_dtypes[dtype].ggml_id >= 0; }
static bool safetensors_holds(apr_dtype dtype) { return apr_dtypes[dtype].safetensors_name != NULL; }

const apr_container *apr_container_of(apr_format format, apr_profile profile)
{
    static const apr_container gguf = {.name = "GGUF", .holds = gguf_holds, .vectors_f32 = true};
    static const apr_container safetensors = {.name = "safetensors", .holds = safetensors_holds};
    static const apr_container apr = {.name = "APR"};
    static const apr_container aprender = {
        .name = "the aprender profile (f32, f16, bf16, q4_k, q6_k)", .holds = apr_aprender_holds, .vectors_f32 = true, .few_types = true};
    if (format == APR_FORMAT_GGUF) return &gguf;
    if (format == APR_FORMAT_SAFETENSORS) return &safetensors;
    return profile == APR_PROFILE_APRENDER ? &aprender : &apr;
}

const char *apr_format_name(apr_format format)
{
    static const char *const names[] = {[APR_FORMAT_NONE] = "none",
                                        [APR_FORMAT_GGUF] = "GGUF",
                                        [APR_FORMAT_SAFETENSORS] = "safetensors",
                                        [APR_FORMAT_APR] = "APR",
                                        [APR_FORMAT_CONFIG] = "config.json"};
    return names[format];
}

apr_status apr_sink_losses(apr_format format, const apr_model *layout, apr_losses *losses, apr_error *err)
{
    if (layout->left_behind != NULL)
        APR_TRY(apr_loss_add(losses, APR_NOTE, err, "beside the weights lie files that are not taken along: %s", layout->left_behind));
    if (format == APR_FORMAT_GGUF) return apr_gguf_losses(layout, losses, err);
    if (format == APR_FORMAT_SAFETENSORS) return apr_hf_losses(layout, losses, err);
    return APR_OK; /* an APR file holds all of a model */
}

static apr_status refuse_losses(apr_format format, const char *path, const apr_model *layout, apr_error *err)
{
    apr_losses losses = {0};
    apr_status status = apr_sink_losses(format, layout, &losses, err);
    if (status == APR_OK) status = apr_losses_refuse(&losses, path, err);
    apr_losses_close(&losses);
    return status;
}

apr_status apr_sink_open(apr_sink **sink, apr_format format, const char *path, const apr_model *layout, const apr_sink_options *options,
                         apr_error *err)
{
    static const apr_sink_options defaults;

    *sink = NULL;
    if (options == NULL) options = &defaults;
    if (!options->allow_loss) APR_TRY(refuse_losses(format, path, layout, err));
    switch (format) {
    case APR_FORMAT_GGUF: return apr_gguf_sink_open(sink, path, layout, options, err);
    case APR_FORMAT_SAFETENSORS: return apr_safetensors_sink_open(sink, path, layout, options, err);
    case APR_FORMAT_APR: return apr_apr_sink_open(sink, path, layout, options, err);
    case APR_FORMAT_NONE:
    case APR_FORMAT_CONFIG: break;
    }
    return apr_fail(err, APR_E_USAGE, "%s: give an output ending in .apr or .gguf, or a directory", path);
}

apr_status apr_sink_put(apr_sink *sink, const void *bytes, size_t n_bytes, apr_error *err)
{
    return sink->ops->put(sink, bytes, n_bytes, err);
}
apr_status apr_sink_finish(apr_sink *sink, apr_error *err) { return sink->ops->finish(sink, err); }
uint64_t apr_sink_total_bytes(const apr_sink *sink) { return sink->ops->total_bytes(sink); }
void apr_sink_abandon(apr_sink *sink)
{
    if (sink != NULL) sink->ops->abandon(sink);
}
