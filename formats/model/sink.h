/* sink.h - where a written model goes: begin(layout), put(bytes) in layout order, finish or abandon.
 *
 * The layout is an apr_model whose tensors have name, dtype, dims and n_bytes but whose data is not looked at; it, and all
 * it borrows from, must outlive the sink. The file or directory grows out of sight (formats/base/out.h); finish writes checksums,
 * fsyncs and gives it its name. Until then nothing exists under the final name, and abandon leaves nothing at all.
 *
 * A sink may be one of several runs that make an output (apr_sink_work): then it wants some tensors, and is passed over the others.
 *
 * A sink writes what the layout says, in its own container; names and orders must already be its dialect's
 * (convert/dialect.h does that). Metadata comes from layout->kv (GGUF, __metadata__), hparams, vocab and attachments. */
#ifndef APR_FORMATS_SINK_H
#define APR_FORMATS_SINK_H

#include "formats/base/extent.h"
#include "formats/base/out.h"
#include "formats/base/resume.h"
#include "formats/model/losses.h"
#include "formats/model/model.h"

typedef enum { APR_PROFILE_DEFAULT, APR_PROFILE_APRENDER } apr_profile;

/* An output that is made in several runs: see formats/base/resume.h. */
typedef struct apr_sink_work {
    apr_resume_part part;  /* which tensors, and whether this run completes it: the whole does, {0, 0} makes none of them */
    const char *terms;     /* lines that every run must agree with; the sink adds its own */
    const bool *continues; /* [n_tensors] this one is made together with the one before it */
} apr_sink_work;

typedef struct apr_sink_options {
    apr_profile profile;       /* APR only: see apr-format.md section 10 and formats/apr/apr.h */
    bool overwrite;            /* replace what exists under the final name; otherwise that is APR_E_IO */
    uint64_t max_shard_bytes;  /* safetensors: start a new shard above this; 0 is 5 GB */
    bool allow_loss;           /* write what the format cannot say completely, too; otherwise that is APR_E_UNSUPPORTED */
    int64_t file_type;         /* GGUF: general.file_type, llama.cpp's number of the mixture; 0: by what most weights are */
    const apr_sink_work *work; /* NULL: all in one run. It must outlive the sink */
    apr_out_reader reader;     /* see apr_out_prove; NULL: apr_sink_open takes one that opens the output */
    const apr_resume *take_up; /* set by a sink of several runs for the one that completes: tensors lie there already */
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

/* For threads that put pieces of the next tensor that has bytes at once, in any order (formats/base/extent.h): where it lies. When all
 * of it is there, apr_sink_pass, with the CRC where the extent asks for one; nothing else is put before. *has_extent: false where a
 * sink takes bytes in order only. */
apr_status apr_sink_extent(apr_sink *sink, apr_extent *extent, bool *has_extent, apr_error *err);
apr_status apr_sink_pass(apr_sink *sink, uint32_t crc, apr_error *err);

/* What becomes of each tensor in this run. */
typedef enum {
    APR_TENSOR_WANTED,   /* put its bytes, then say that it is done */
    APR_TENSOR_THERE,    /* made by a run before, and read back: pass over it */
    APR_TENSOR_ELSEWHERE /* another part's: pass over it */
} apr_tensor_state;

/* All are wanted by a sink that is the only run. */
apr_tensor_state apr_sink_state(const apr_sink *sink, size_t tensor);
/* What the run that made it said when it was done; "" where it said nothing. */
const char *apr_sink_remark(const apr_sink *sink, size_t tensor);
/* All bytes of the tensor have been put, and it is good. The remark is one line without '#', shorter than APR_REMARK_BYTES. */
apr_status apr_sink_done(apr_sink *sink, size_t tensor, const char *remark, apr_error *err);

/* What several runs have made so far. */
typedef struct apr_sink_progress {
    const char *folder; /* NULL: this is the only run. The sink's */
    int n_parts;
    size_t n_there, n_done, n_elsewhere; /* tensors: of runs before, of this one, of other parts */
    size_t n_damaged;                    /* of n_done: they were there, but not as their run had left them */
} apr_sink_progress;

apr_sink_progress apr_sink_progress_of(const apr_sink *sink);

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
    /* Where the next tensor that has bytes lies, and: all of it is there, put there or taken up (options.take_up). NULL, both:
     * a sink that takes bytes in order only. */
    apr_status (*extent)(apr_sink *sink, apr_extent *extent, apr_error *err);
    apr_status (*pass)(apr_sink *sink, uint32_t crc, apr_error *err);
    /* NULL but for a sink of several runs. */
    apr_tensor_state (*state)(const apr_sink *sink, size_t tensor);
    const char *(*remark)(const apr_sink *sink, size_t tensor);
    apr_status (*done)(apr_sink *sink, size_t tensor, const char *remark, apr_error *err);
    apr_sink_progress (*progress)(const apr_sink *sink);
} apr_sink_ops;

/* Where the bytes of a finished output lie. */
typedef struct apr_offsets {
    struct apr_offset_file {
        const char *name; /* in the folder; "": the output is one file */
        uint64_t n_bytes;
    } * files; /* [n_files] those with tensors */
    size_t n_files;
    struct apr_offset {
        size_t file;
        uint64_t offset;
    } * tensors; /* [n_tensors] */
    uint64_t total_bytes;
    uint32_t head_crc; /* of all that is known before the tensors */
    apr_arena arena;
} apr_offsets;

typedef apr_status (*apr_sink_open_fn)(apr_sink **sink, const char *path, const apr_model *layout, const apr_sink_options *options,
                                       apr_error *err);
/* Lays out and opens nothing. A failed one may be closed. */
typedef apr_status (*apr_offsets_fn)(apr_offsets *offsets, const char *path, const apr_model *layout, const apr_sink_options *options,
                                     apr_error *err);
/* Room for so many of both. */
apr_status apr_offsets_make(apr_offsets *offsets, size_t n_files, size_t n_tensors, apr_error *err);

/* The sink of one of several runs, which completes the output by a sink that takes it up. */
apr_status apr_work_sink_open(apr_sink **sink, apr_sink_open_fn open, apr_offsets_fn offsets, bool is_folder, const char *path,
                              const apr_model *layout, const apr_sink_options *options, apr_error *err);

#endif
