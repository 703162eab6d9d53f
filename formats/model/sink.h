/* sink.h - where a written model goes: begin(layout), put(bytes) in layout order, finish or abandon.
 *
 * The layout is an apr_model whose tensors have name, dtype, dims and n_bytes but whose data is not looked at; it, and all
 * it borrows from, must outlive the sink. The file or directory grows out of sight (formats/base/out.h); finish writes checksums,
 * fsyncs and gives it its name. Until then nothing exists under the final name, and abandon leaves nothing at all.
 *
 * A sink writes what the layout says, in its own container; names and orders must already be its dialect's
 * (convert/dialect.h does that). Metadata comes from layout->kv (GGUF, __metadata__), hparams, vocab and attachments. */
#ifndef APR_FORMATS_SINK_H
#define APR_FORMATS_SINK_H

#include "formats/model/losses.h"
#include "formats/model/model.h"

typedef enum { APR_PROFILE_DEFAULT, APR_PROFILE_APRENDER } apr_profile;

typedef struct apr_sink_options {
    apr_profile profile;      /* APR only: see apr-format.md section 10 and formats/apr/apr.h */
    bool overwrite;           /* replace what exists under the final name; otherwise that is APR_E_IO */
    uint64_t max_shard_bytes; /* safetensors: start a new shard above this; 0 is 5 GB */
    bool allow_loss;          /* write what the format cannot say completely, too; otherwise that is APR_E_UNSUPPORTED */
    int64_t file_type;        /* GGUF: general.file_type, llama.cpp's number of the mixture; 0: by what most weights are */
} apr_sink_options;

typedef struct apr_sink apr_sink;

/* What a file of that format cannot say of the layout: apr_sink_open refuses it unless options allow it. Reads no weights. */
apr_status apr_sink_losses(apr_format format, const apr_model *layout, apr_losses *losses, apr_error *err);

/* Lays the file out, refuses what may not be a target, checks that the disk has room for all of it, writes what comes before
 * the data. `path` is the final name. */
apr_status apr_sink_open(apr_sink **sink, apr_format format, const char *path, const apr_model *layout, const apr_sink_options *options,
                         apr_error *err);

/* The next n bytes of tensor data, in layout order; the sink finds the boundaries and pads by itself. More bytes than the
 * layout has is a bug of the caller (APR_E_USAGE). */
apr_status apr_sink_put(apr_sink *sink, const void *bytes, size_t n_bytes, apr_error *err);

/* All bytes must have been put. Frees the sink whether it succeeds or not; on failure nothing is left behind. */
apr_status apr_sink_finish(apr_sink *sink, apr_error *err);
void apr_sink_abandon(apr_sink *sink); /* NULL is fine */

/* Bytes the finished file(s) will have. */
uint64_t apr_sink_total_bytes(const apr_sink *sink);

/* By its ending, or a directory (a name that ends in '/', is a directory, or has no known ending): APR_FORMAT_NONE when
 * the name ends in something else that looks like a file ending. */
apr_format apr_format_of_path(const char *path);
const char *apr_format_name(apr_format format);   /* "APR", "GGUF", "safetensors", ... */
const char *apr_format_ending(apr_format format); /* ".apr"; NULL: a folder, or not written at all */
/* ".apr or .gguf", for sentences; returns text. */
enum { APR_FORMAT_TEXT = 64 };
const char *apr_format_endings(char text[APR_FORMAT_TEXT]);

/* What a file of that format and profile can hold, for whoever decides types. */
typedef struct apr_container {
    const char *name;               /* for sentences: "GGUF" */
    bool (*holds)(apr_dtype dtype); /* NULL: everything */
    bool vectors_f32;               /* its readers want vectors in f32 */
    bool few_types;                 /* what does not fit becomes plain at once: there is hardly another block type */
} apr_container;

const apr_container *apr_container_of(apr_format format, apr_profile profile);

/* What is said of the weights' types in files that travel (config.json) is made to say what the layout's types are now. What
 * was said before is in `before`, of which `layout` is the new version; torch_dtype: the new type of plain weights, or NULL. */
apr_status apr_restate_types(apr_model *layout, const apr_model *before, bool makes_fp8, const char *torch_dtype, apr_error *err);

/* --- for the writers in this room --- */

struct apr_sink {
    const struct apr_sink_ops *ops;
};

typedef struct apr_sink_ops {
    apr_status (*put)(apr_sink *sink, const void *bytes, size_t n_bytes, apr_error *err);
    apr_status (*finish)(apr_sink *sink, apr_error *err); /* frees */
    void (*abandon)(apr_sink *sink);                      /* frees */
    uint64_t (*total_bytes)(const apr_sink *sink);
} apr_sink_ops;

#endif
