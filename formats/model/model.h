/* model.h - the nouns: a tensor is a view, a model is what any reader returns.
 *
 * A model is immutable once opened and owns its maps and its arena; every pointer in it lives until apr_model_close.
 * Readers check everything (counts, extents, sizes, names) before they hand a model out, so that the rest of the house
 * may trust `data`, `n_bytes` and `dims` of a tensor to agree. */
#ifndef APR_FORMATS_MODEL_H
#define APR_FORMATS_MODEL_H

#include "formats/base/arena.h"
#include "formats/base/map.h"
#include "formats/base/status.h"
#include "formats/model/hparams.h"
#include "formats/model/kv.h"
#include "formats/model/step.h"
#include "formats/model/vocab.h"
#include "formats/number/dtype.h"

/* CONSOLIDATED is no container: what Meta and Mistral release, in files of safetensors or PyTorch; only ever an origin. */
typedef enum {
    APR_FORMAT_NONE,
    APR_FORMAT_GGUF,
    APR_FORMAT_SAFETENSORS,
    APR_FORMAT_APR,
    APR_FORMAT_CONFIG,
    APR_FORMAT_PYTORCH,
    APR_FORMAT_CONSOLIDATED
} apr_format;

/* Whose names and orders the tensors follow. HF is the canonical one: q_proj, [out, in], rotary halves. GGML is llama.cpp's:
 * attn_q, rotary pairs in llama's Q and K. META is Meta's and Mistral's own: attention.wq, rotary pairs too; only ever read. */
typedef enum { APR_DIALECT_HF, APR_DIALECT_GGML, APR_DIALECT_META } apr_dialect;

typedef struct apr_tensor apr_tensor;

/* The tensors that one was made of, when its origin has it in parts. */
typedef struct apr_origins {
    const char *const *names; /* [n], in the order in which they were stacked or joined */
    const int64_t *lengths;   /* [n] along the axis that joins them; NULL when stacked */
    const apr_chain *chains;  /* [n]: what was applied to each before; NULL: nothing to any */
    size_t n;
} apr_origins;

struct apr_tensor {
    const char *name; /* NUL-terminated UTF-8, unique in its model */
    apr_dtype dtype;
    int rank;                   /* 0 is a scalar */
    int64_t dims[APR_MAX_RANK]; /* outermost first, [out, in]; the last one is contiguous */
    const uint8_t *data;        /* borrowed; NULL in a layout or when n_bytes is 0 */
    uint64_t n_bytes;
    apr_step pending;            /* not yet applied: logical row r lies at apr_tensor_row(t, r) */
    const struct apr_made *made; /* not NULL: `data` is, and the elements are made of other tensors (formats/model/made.h) */

    /* Where it came from, when name or order was changed on the way (NULL and empty otherwise). */
    const char *origin_name;
    apr_chain origin_chain;     /* what was applied to the origin to get this */
    const apr_origins *origins; /* instead of origin_name, when the chain's first step took several */
    const char *origin_kept;    /* the tensor of this model that is the origin as it was, where no way leads back to the same bits */

    /* FP8: value = weight * scale[row / scale_rows][column / scale_columns]; the scale tensor is of the same model. A pointer and
     * no step: kernels multiply by the scales while they read, files keep the two tensors apart, and neither is changed. */
    const apr_tensor *scale;
    int64_t scale_rows, scale_columns;

    /* Not NULL: the values lie in several tensors of the checkpoint (formats/model/packing.h), `data` is NULL, and dtype is the type that
     * they decode to. A pending step is one of its rows, as everywhere. */
    const struct apr_packing *packing;

    bool in_items; /* of a device's copy: blocks lie in the order that kernels/cuda/flow_args.h describes */
};

/* A file that travels with the weights byte for byte: config.json, tokenizer.json, chat_template.jinja, ... */
typedef struct apr_attachment {
    const char *name;
    const uint8_t *data;
    size_t n_bytes;
} apr_attachment;

/* Bytes of a GGUF beside header and tensors, where they are not simply zeros up to the alignment. */
typedef struct apr_gap {
    size_t place;         /* 0: behind the list of tensors; i + 1: before tensors[i]; n_tensors + 1: behind the last */
    const uint8_t *bytes; /* NULL: all zero */
    uint64_t n_bytes;
} apr_gap;

/* What the weights were before they became an APR file; for the other formats it describes the file itself. */
typedef struct apr_origin {
    apr_format format;        /* GGUF, SAFETENSORS (a checkpoint, whatever its container) or CONSOLIDATED; NONE when made from nothing */
    uint32_t gguf_version;    /* 2 or 3 */
    bool requantized;         /* some tensor's type is no longer the origin's */
    const char *const *order; /* [n_order] canonical names in the origin's order, or NULL: as in tensors[] */
    size_t n_order;
    const apr_gap *gaps; /* [n_gaps] of a GGUF with n_gap_tensors tensors, in the order of their places */
    size_t n_gaps, n_gap_tensors;
} apr_origin;

typedef struct apr_model {
    const char *path;
    apr_format format; /* the container it was read from */
    apr_dialect dialect;
    apr_origin origin;
    apr_tensor *tensors; /* [n_tensors] in the order of their data */
    size_t n_tensors;
    const uint32_t *stated_crcs; /* [n_tensors] CRC-32 of each tensor as an APR file states it, or NULL: it states none */
    apr_hparams hparams;
    const struct apr_quantization *quantization; /* what config.json says of quantized weights (hf_quantization.h); NULL: nothing */
    apr_tensor *packings;                        /* [n_packings] matrices whose parts are among the tensors (formats/model/packing.h) */
    size_t n_packings;
    apr_vocab vocab;
    apr_kv_list kv; /* all metadata of the origin: GGUF's keys, safetensors' __metadata__ */
    const apr_attachment *attachments;
    size_t n_attachments;
    const char *left_behind;   /* "modeling_x.py, pytorch_model.bin": files next to the weights that are not attachments, or NULL */
    bool overrules_tie;        /* config.json ties the output to the embedding, and the file has a head of other numbers, which is used */
    const char *other_weights; /* of those what holds the same weights again, in another container, or NULL */
    struct apr_name_index *index; /* see apr_model_find */
    apr_arena arena;
    apr_map *maps; /* [n_maps], one a shard */
    size_t n_maps;
} apr_model;

/* Recognises the format by content: GGUF (also the first of split files), APR, .safetensors, a directory with
 * weights in it, a file of PyTorch's, or a bare config.json (a model with hyperparameters and no tensors). */
apr_status apr_model_open(apr_model *model, const char *path, apr_error *err);
void apr_model_close(apr_model *model);
/* Of an opened file that states checksums of its tensors: is everything else in it, and what it states, as it was written? APR_E_DAMAGED: it
 * is not. Reads no tensors. Files without checksums are taken as they are. */
apr_status apr_model_check_head(const apr_model *model, apr_error *err);

/* For readers: room for n more tensors behind n_tensors, in the model's arena. A table that was there is copied, so nothing may point into
 * it yet. */
apr_status apr_model_grow(apr_model *model, size_t n, apr_error *err);

/* By exact name; NULL when there is none. Needs apr_model_index_names, which every reader calls last and which refuses
 * duplicates (APR_E_DAMAGED). */
const apr_tensor *apr_model_find(const apr_model *model, const char *name);
apr_status apr_model_index_names(apr_model *model, apr_error *err);
const apr_attachment *apr_model_attachment(const apr_model *model, const char *name);

/* Is it one of the n tensors of that table? Scales of a part of a stack are of none. */
bool apr_table_has(const apr_tensor *table, size_t n, const apr_tensor *tensor);

/* Product of dims (1 for a scalar); rows = product of all but the last; columns = the last (1 for a scalar). */
int64_t apr_tensor_elems(const apr_tensor *tensor);
int64_t apr_tensor_rows(const apr_tensor *tensor);
int64_t apr_tensor_columns(const apr_tensor *tensor);

/* Sets n_bytes from dtype and dims. APR_E_DAMAGED when rows are no whole blocks or the size overflows; `where` names the file. */
apr_status apr_tensor_size(apr_tensor *tensor, const char *where, apr_error *err);

/* Address of logical row r, the pending step taken into account. Row length in bytes is n_bytes / rows. A pending step on
 * a vector (a bias) permutes its elements: treat it as one column. Not for tensors that are made. */
const uint8_t *apr_tensor_row(const apr_tensor *tensor, int64_t row);

/* "[2048, 256]" into text; returns text. */
char *apr_dims_text(const apr_tensor *tensor, char *text, size_t n_bytes);

#endif
