/* model.h - the basic types: a tensor is a view, a model is what every reader returns.
 *
 * A model is immutable once opened. It owns its maps and its arena; every pointer in it is valid until apr_model_close. Readers check
 * counts, extents, sizes and names before they return a model. So all other code may rely on `data`, `n_bytes` and `dims` of a tensor. */
#ifndef APR_FORMATS_MODEL_H
#define APR_FORMATS_MODEL_H

#include "formats/base/arena.h"
#include "formats/base/status.h"
#include "formats/files/map.h"
#include "formats/number/dtype.h"
#include "formats/shape/hparams.h"
#include "formats/tensor/kv.h"
#include "formats/tensor/step.h"
#include "formats/vocab/vocab.h"

/* CONSOLIDATED is not a container: it is what Meta and Mistral release, in safetensors or PyTorch files. It occurs only as an origin. */
typedef enum {
    APR_FORMAT_NONE,
    APR_FORMAT_GGUF,
    APR_FORMAT_SAFETENSORS,
    APR_FORMAT_APR,
    APR_FORMAT_CONFIG,
    APR_FORMAT_PYTORCH,
    APR_FORMAT_CONSOLIDATED
} apr_format;

/* The naming scheme and row order of the tensors. HF is the canonical one: q_proj, [out, in], rotary halves. GGML is llama.cpp's:
 * attn_q, rotary pairs in llama's q and k. META is Meta's and Mistral's: attention.wq, also rotary pairs; it is only read. */
typedef enum { APR_NAMING_HF, APR_NAMING_GGML, APR_NAMING_META } apr_naming;

typedef struct apr_tensor apr_tensor;

/* Where the values of a tensor are. kernels/rows.h reads them from each. */
typedef enum {
    APR_SOURCE_IN_ORDER,  /* `data`, in the order of the rows */
    APR_SOURCE_REORDERED, /* `data` and a pending step: logical row r is at apr_tensor_row(t, r) */
    APR_SOURCE_PACKED,    /* several tensors of a checkpoint (`packing`); a pending step may permute its rows */
    APR_SOURCE_COMPOSED,  /* other tensors, by a chain of steps (`composed`) */
    APR_SOURCE_MERGED,    /* another tensor, with an adapter (`composed`) */
    APR_SOURCES
} apr_source;

/* The tensors that one was stacked or joined from, where the origin stores several. */
typedef struct apr_origins {
    const char *const *names; /* [n], in the order in which they were stacked or joined */
    const int64_t *lengths;   /* [n] along the axis that joins them; NULL when stacked */
    const apr_chain *chains;  /* [n]: steps that were applied to each before; NULL: none */
    size_t n;
} apr_origins;

struct apr_tensor {
    const char *name; /* NUL-terminated UTF-8, unique in its model */
    apr_dtype dtype;
    int rank;                   /* 0 is a scalar */
    int64_t dims[APR_MAX_RANK]; /* outermost first, [out, in]; the last one is contiguous */
    const uint8_t *data;        /* borrowed; NULL in a layout, or when n_bytes is 0 */
    uint64_t n_bytes;
    apr_step pending; /* not yet applied: logical row r is stored at apr_tensor_row(t, r) */
    /* Not NULL: data is NULL, and the elements are composed from other tensors (formats/tensor/composed.h). */
    const struct apr_composed *composed;

    /* Provenance, where name or order was changed (otherwise NULL and empty). */
    const char *origin_name;
    apr_chain origin_chain;     /* what was applied to the origin to get this tensor */
    const apr_origins *origins; /* replaces origin_name when the first step of the chain took several tensors */
    const char *origin_kept;    /* name of the tensor of this model that keeps the original, where no inverse restores the same bits */

    /* FP8: value = weight * scale[row / scale_rows][column / scale_columns]. The scale tensor belongs to the same model. It is a pointer
     * and not a step: kernels multiply by the scales while they read, and files store the two tensors separately, both unchanged. */
    const apr_tensor *scale;
    int64_t scale_rows, scale_columns;

    /* Not NULL: the values are spread over several tensors of the checkpoint (formats/tensor/packing.h). `data` is NULL then, and dtype
     * is the type that they decode to. A pending step permutes its rows as usual. */
    const struct apr_packing *packing;

    bool tiled; /* in a device copy: blocks are stored as 16-row interleaved tiles (kernels/cuda/decode_gemv_args.h) */
};

/* A file that is copied along with the weights byte for byte: config.json, tokenizer.json, chat_template.jinja, ... */
typedef struct apr_attachment {
    const char *name;
    const uint8_t *data;
    size_t n_bytes;
} apr_attachment;

/* Bytes of a GGUF between header and tensors, where they are not just zero padding up to the alignment. */
typedef struct apr_gap {
    size_t place;         /* 0: after the list of tensors; i + 1: before tensors[i]; n_tensors + 1: after the last one */
    const uint8_t *bytes; /* NULL: all zero */
    uint64_t n_bytes;
} apr_gap;

/* What the weights were before they became an APR file. For the other formats it describes the file itself. */
typedef struct apr_origin {
    apr_format format;        /* GGUF, SAFETENSORS (a checkpoint in any container) or CONSOLIDATED; NONE: built in memory */
    uint32_t gguf_version;    /* 2 or 3 */
    bool requantized;         /* the type of some tensor differs from the origin's */
    const char *const *order; /* [n_order] canonical names in the origin's order, or NULL: as in tensors[] */
    size_t n_order;
    const apr_gap *gaps; /* [n_gaps] of a GGUF with n_gap_tensors tensors, sorted by place */
    size_t n_gaps, n_gap_tensors;
} apr_origin;

typedef struct apr_model {
    const char *path;
    apr_format format; /* the container it was read from */
    apr_naming naming;
    apr_origin origin;
    apr_tensor *tensors; /* [n_tensors] in the order of their data */
    size_t n_tensors;
    const uint32_t *stated_crcs; /* [n_tensors] CRC-32 of each tensor as stated by an APR file, or NULL: none stated */
    apr_hparams hparams;
    const struct apr_quantization *quantization; /* config.json's description of quantized weights (hf_quantization.h); NULL: none */
    apr_tensor *packings;                        /* [n_packings] matrices whose parts are in `tensors` (formats/tensor/packing.h) */
    size_t n_packings;
    apr_vocab vocab;
    apr_kv_list kv; /* all metadata of the origin: GGUF's keys, safetensors' __metadata__ */
    const apr_attachment *attachments;
    size_t n_attachments;
    const char *not_copied;       /* "modeling_x.py, pytorch_model.bin": files next to the weights that are not copied, or NULL */
    bool overrules_tie;           /* config.json ties the output to the embedding, but the file has a different head, which is used */
    const char *other_weights;    /* those of not_copied that hold the same weights in another container, or NULL */
    struct apr_name_index *index; /* see apr_model_find */
    apr_arena arena;
    apr_map *maps; /* [n_maps], one per shard */
    size_t n_maps;
} apr_model;

/* Recognizes the format by content: GGUF (also the first of split files), APR, .safetensors, a folder with weights, a PyTorch file, or a
 * bare config.json (a model with hyperparameters and no tensors). */
apr_status apr_model_open(apr_model *model, const char *path, apr_error *err);
void apr_model_close(apr_model *model);
/* Checks everything but the tensors of an opened file against the checksums that it states, without reading tensors. APR_E_DAMAGED: a
 * checksum differs. Files without checksums pass. */
apr_status apr_model_check_head(const apr_model *model, apr_error *err);

/* For readers: makes space for n more tensors after n_tensors, in the model's arena. The table may be copied, so nothing may point into
 * it yet. */
apr_status apr_model_grow(apr_model *model, size_t n, apr_error *err);

/* Removes the marked tensors from the model's table, except scales that one of the others shares; those keep their order, and scales move
 * along. `old` is the table that scales point into: the model's own, or the one that it was copied from. Names must be indexed again. */
apr_status apr_model_drop(apr_model *model, const apr_tensor *old, bool *is_dropped, apr_error *err);

/* Finds a tensor by its exact name; NULL when there is none. It needs apr_model_index_names, which every reader calls last and which
 * refuses duplicate names (APR_E_DAMAGED). */
const apr_tensor *apr_model_find(const apr_model *model, const char *name);
apr_status apr_model_index_names(apr_model *model, apr_error *err);
const apr_attachment *apr_model_attachment(const apr_model *model, const char *name);

/* Does the table of n tensors contain this one? The scales of a part of a stack belong to no table. */
bool apr_table_has(const apr_tensor *table, size_t n, const apr_tensor *tensor);
/* Marks the tensors of a table that are the scales of others in it. */
void apr_mark_scales(const apr_tensor *tensors, size_t n, bool *is_scale);
/* After tensors were copied to another table: scales in the old one are replaced by their copies, moved[index in the old table]. moved is
 * NULL where all are at their old places. */
void apr_move_scales(apr_tensor *tensors, size_t n, const apr_tensor *old, size_t n_old, apr_tensor *const *moved);

/* Product of dims (1 for a scalar); rows = product of all but the last; columns = the last (1 for a scalar). */
int64_t apr_tensor_elems(const apr_tensor *tensor);
int64_t apr_tensor_rows(const apr_tensor *tensor);
int64_t apr_tensor_columns(const apr_tensor *tensor);
/* Rows of each matrix of a stack; 1 for a vector. */
static inline int64_t apr_tensor_matrix_rows(const apr_tensor *tensor) { return tensor->rank >= 2 ? tensor->dims[tensor->rank - 2] : 1; }

apr_source apr_tensor_source(const apr_tensor *tensor);
static inline bool apr_tensor_is_packed(const apr_tensor *tensor) { return apr_tensor_source(tensor) == APR_SOURCE_PACKED; }
/* Is `data` all there is to it: rows in order, without scales? */
static inline bool apr_tensor_is_plain(const apr_tensor *tensor)
{
    return apr_tensor_source(tensor) == APR_SOURCE_IN_ORDER && tensor->scale == NULL;
}
/* Are its rows stored as they are, perhaps in another order? Then `data` has n_bytes of its type. */
static inline bool apr_tensor_is_stored(const apr_tensor *tensor) { return apr_tensor_source(tensor) <= APR_SOURCE_REORDERED; }
/* Are its values computed or moved from other tensors when they are read? */
static inline bool apr_tensor_is_composed(const apr_tensor *tensor) { return apr_tensor_source(tensor) >= APR_SOURCE_COMPOSED; }

/* The i-th tensor that a packed or composed one is read from; NULL: there are no more. */
const apr_tensor *apr_tensor_source_at(const apr_tensor *tensor, size_t i);
/* What it is stored as, for messages: the scheme of a packed matrix, the name of the type of others. */
const char *apr_tensor_encoding(const apr_tensor *tensor);

/* Stores the rows at `data`, in order, instead of where they were before; NULL: in a layout. Type, size and scales stay. */
void apr_tensor_set_data(apr_tensor *tensor, const uint8_t *data);
/* Takes type, source and scales from a tensor of the same shape; name and provenance stay. */
void apr_tensor_take_values(apr_tensor *tensor, const apr_tensor *from);

/* Sets n_bytes from dtype and dims. APR_E_DAMAGED: a row is not a whole number of blocks, or the size overflows. `where` names the file. */
apr_status apr_tensor_size(apr_tensor *tensor, const char *where, apr_error *err);

/* Address of logical row r, after the pending step. A row has n_bytes / rows bytes. A pending step on a vector (a bias) permutes its
 * elements: treat it as one column. Not for composed tensors. */
const uint8_t *apr_tensor_row(const apr_tensor *tensor, int64_t row);

/* "[2048, 256]" into text; returns text. */
char *apr_dims_text(const apr_tensor *tensor, char *text, size_t n_bytes);

/* The most zero bytes that are kept as gaps: 4 MiB plus the bytes of all tensors. An APR file of a few KB must not become a GGUF that
 * fills a disk. */
uint64_t apr_gguf_max_zeros(const apr_model *model);

/* origin.gguf_version is what a little-endian reader sees: 2 or 3, or one of them byte-swapped. */
static inline bool apr_gguf_is_big_endian(uint32_t version) { return version > 3; }
static inline uint32_t apr_gguf_version_number(uint32_t version)
{
    return apr_gguf_is_big_endian(version) ? __builtin_bswap32(version) : version;
}

#endif
