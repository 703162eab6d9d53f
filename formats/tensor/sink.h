/* sink.h - a writer of model files: begin(layout), put(bytes) in layout order, then finish or abandon.
 *
 * The layout is an apr_model whose tensors have name, dtype, dims and n_bytes; their data is not read. The layout and all it borrows from
 * must outlive the sink. The output grows under a temporary name (formats/files/out.h). finish writes checksums, calls fsync and renames it.
 * Before that nothing exists under the final name, and abandon leaves nothing.
 *
 * A sink may be one of several runs that make one output (apr_sink_work). It then wants only some of the tensors, and the caller skips the
 * others.
 *
 * A sink writes what the layout states, in its own container. Names and row orders must already be those of the container
 * (convert/naming.h does that). Metadata comes from layout->kv (GGUF, __metadata__), hparams, vocab and attachments. */
#ifndef APR_FORMATS_SINK_H
#define APR_FORMATS_SINK_H

#include "formats/files/out.h"
#include "formats/files/resume.h"
#include "formats/tensor/losses.h"
#include "formats/tensor/model.h"

typedef enum { APR_PROFILE_DEFAULT, APR_PROFILE_APRENDER } apr_profile;

/* An output that is made in several runs: see formats/files/resume.h. */
typedef struct apr_sink_work {
    apr_resume_part part;  /* which tensors this run makes, and whether it completes the output: the whole does, {0, 0} completes it and
                            * makes none */
    const char *terms;     /* lines that must be equal in every run; the sink adds its own */
    const bool *continues; /* [n_tensors] true: this tensor is made together with the one before it */
} apr_sink_work;

typedef struct apr_sink_options {
    apr_profile profile;           /* APR only: see apr-format.md section 10 and formats/apr/apr.h */
    bool overwrite;                /* replace an existing output; otherwise an existing output is APR_E_IO */
    uint64_t max_shard_bytes;      /* safetensors: start a new shard above this; 0 is 5 GB */
    bool allow_loss;               /* also write what the format cannot express completely; otherwise that is APR_E_UNSUPPORTED */
    int64_t file_type;             /* GGUF: general.file_type, llama.cpp's number of the mixture; 0: from the type of most weights */
    const apr_sink_work *work;     /* NULL: one run makes everything. Must outlive the sink */
    apr_out_reader reader;         /* see apr_out_verify; NULL: apr_sink_open uses one that opens the output as a model */
    const apr_resume *resume_from; /* set by a sink of several runs for the sink that completes the output: its tensors are there already */
} apr_sink_options;

typedef struct apr_sink apr_sink;

/* Lists what a file of that format cannot express of the layout. apr_sink_open refuses losses unless the options allow them. Reads no
 * weights. */
apr_status apr_sink_losses(apr_format format, const apr_model *layout, apr_losses *losses, apr_error *err);

/* Computes the file's layout, refuses forbidden targets, checks the disk's free space, and writes what comes before the data. `path` is
 * the final name. */
apr_status apr_sink_open(apr_sink **sink, apr_format format, const char *path, const apr_model *layout, const apr_sink_options *options,
                         apr_error *err);

/* Writes the next n bytes of tensor data, in layout order. The sink finds tensor boundaries and pads on its own. More bytes than the
 * layout has are a bug of the caller (APR_E_USAGE). */
apr_status apr_sink_put(apr_sink *sink, const void *bytes, size_t n_bytes, apr_error *err);

/* For threads that write ranges of one tensor concurrently, in any order (formats/files/out.h). Returns the extent of the next tensor
 * that has bytes. When all its bytes are written, call apr_sink_pass, with the CRC if the extent wants one; put nothing else before.
 * *has_extent is false if the sink takes bytes in order only. */
apr_status apr_sink_extent(apr_sink *sink, apr_extent *extent, bool *has_extent, apr_error *err);
apr_status apr_sink_pass(apr_sink *sink, uint32_t crc, apr_error *err);

/* What this run does with a tensor. */
typedef enum {
    APR_TENSOR_WANTED,      /* put its bytes, then call apr_sink_done */
    APR_TENSOR_DONE_BEFORE, /* made by an earlier run, and verified: skip it */
    APR_TENSOR_ELSEWHERE    /* belongs to another part: skip it */
} apr_tensor_state;

/* A sink that is the only run wants all tensors. */
apr_tensor_state apr_sink_state(const apr_sink *sink, size_t tensor);
/* The note of the run that made it; "" for none. */
const char *apr_sink_note(const apr_sink *sink, size_t tensor);
/* All bytes of the tensor were put. The note is one line without '#', shorter than APR_NOTE_BYTES. */
apr_status apr_sink_done(apr_sink *sink, size_t tensor, const char *note, apr_error *err);

/* Progress over several runs. */
typedef struct apr_sink_progress {
    const char *folder; /* NULL: this is the only run. Owned by the sink */
    int n_parts;
    size_t n_there, n_done, n_elsewhere; /* tensors made by earlier runs, by this run, and of other parts */
    size_t n_damaged;                    /* those of n_done that an earlier run made, but whose bytes have changed since */
} apr_sink_progress;

apr_sink_progress apr_sink_progress_of(const apr_sink *sink);

/* Completes the output; all bytes must have been put. Frees the sink whether it succeeds or not. On failure nothing is left on the disk. */
apr_status apr_sink_finish(apr_sink *sink, apr_error *err);
void apr_sink_abandon(apr_sink *sink); /* NULL is fine */

/* Size of the finished file or files in bytes. */
uint64_t apr_sink_total_bytes(const apr_sink *sink);

/* The format by the name's suffix. A name that ends in '/', is a folder, or has no known suffix means a folder. APR_FORMAT_NONE: the
 * name has another suffix that looks like a file's. */
apr_format apr_format_of_path(const char *path);
const char *apr_format_name(apr_format format);   /* "APR", "GGUF", "safetensors", ... */
const char *apr_format_suffix(apr_format format); /* ".apr"; NULL: a folder, or a format that is not written */
/* ".apr or .gguf", for messages; returns text. */
enum { APR_FORMAT_TEXT = 64 };
const char *apr_format_suffixes(char text[APR_FORMAT_TEXT]);

/* What a file of that format and profile can hold, for code that chooses types, names and layouts. */
typedef struct apr_container {
    const char *name;               /* for messages: "GGUF" */
    bool (*holds)(apr_dtype dtype); /* NULL: holds every type */
    bool vectors_f32;               /* its readers expect vectors in f32; a file of this format itself keeps the types that it has */
    bool few_types;                 /* a type that it cannot hold is replaced by a plain type, not by another block type */
    bool renames; /* its tensors have the names and orders of `naming`; false: canonical ones, with the record of their origin */
    apr_naming naming;
    const char *no_packed; /* NULL: packed weights stay in their several tensors; else completes "packed weights cannot be ..." */
    bool same_numbers;     /* packed weights that can be read are repacked into a type with the same numbers */
    bool tied_head;        /* its readers need the head of tied models: the embedding is written again as lm_head.weight */
} apr_container;

const apr_container *apr_container_of(apr_format format, apr_profile profile);

/* Updates the statements about types in attached files (config.json) to the layout's types. `before` is the model that they described,
 * and `layout` its new version. torch_dtype: the new type of plain weights, or NULL. */
apr_status apr_update_types(apr_model *layout, const apr_model *before, bool makes_fp8, const char *torch_dtype, apr_error *err);

/* What a folder for servers states about its quantization, as JSON: config.json's quantization_config, and modelopt's hf_quant_config.json
 * (NULL: the layout has none). */
typedef struct apr_quantization_texts {
    const char *quantization_config, *hf_quant_config;
} apr_quantization_texts;

/* Puts these into the layout's attached files. A config.json is made if there is none. torch_dtype: as above. */
apr_status apr_set_quantization(apr_model *layout, const apr_model *before, const char *torch_dtype, const apr_quantization_texts *texts,
                                apr_error *err);

/* --- for the writers in this module --- */

struct apr_sink {
    const struct apr_sink_ops *ops;
};

typedef struct apr_sink_ops {
    apr_status (*put)(apr_sink *sink, const void *bytes, size_t n_bytes, apr_error *err);
    apr_status (*finish)(apr_sink *sink, apr_error *err); /* frees */
    void (*abandon)(apr_sink *sink);                      /* frees */
    uint64_t (*total_bytes)(const apr_sink *sink);
    /* extent: where the next tensor that has bytes is stored. pass: all its bytes are there, either put there or taken up
     * (options.resume_from). Both are NULL in a sink that takes bytes in order only. */
    apr_status (*extent)(apr_sink *sink, apr_extent *extent, apr_error *err);
    apr_status (*pass)(apr_sink *sink, uint32_t crc, apr_error *err);
    /* NULL, except in a sink of several runs. */
    apr_tensor_state (*state)(const apr_sink *sink, size_t tensor);
    const char *(*note)(const apr_sink *sink, size_t tensor);
    apr_status (*done)(apr_sink *sink, size_t tensor, const char *note, apr_error *err);
    apr_sink_progress (*progress)(const apr_sink *sink);
} apr_sink_ops;

/* Where the tensors' bytes are in a finished output. */
typedef struct apr_offsets {
    struct apr_offset_file {
        const char *name; /* in the folder; "": the output is a single file */
        uint64_t n_bytes;
    } * files; /* [n_files] the files that hold tensors */
    size_t n_files;
    struct apr_offset {
        size_t file;
        uint64_t offset;
    } * tensors; /* [n_tensors] */
    uint64_t total_bytes;
    uint32_t head_crc; /* of everything that precedes the tensors */
    apr_arena arena;
} apr_offsets;

typedef apr_status (*apr_sink_open_fn)(apr_sink **sink, const char *path, const apr_model *layout, const apr_sink_options *options,
                                       apr_error *err);
/* Computes the offsets without opening a file. May be closed after a failure. */
typedef apr_status (*apr_offsets_fn)(apr_offsets *offsets, const char *path, const apr_model *layout, const apr_sink_options *options,
                                     apr_error *err);
/* Allocates both tables. */
apr_status apr_offsets_make(apr_offsets *offsets, size_t n_files, size_t n_tensors, apr_error *err);

/* A sink for one of several runs. The run that completes the output calls the format's sink on the existing data. */
apr_status apr_work_sink_open(apr_sink **sink, apr_sink_open_fn open, apr_offsets_fn offsets, bool is_folder, const char *path,
                              const apr_model *layout, const apr_sink_options *options, apr_error *err);

#endif
