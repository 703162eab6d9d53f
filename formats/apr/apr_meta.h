/* apr_meta.h - the metadata of an APR file: converts a model to one JSON object and back. For apr_read.c and apr_write.c only.
 *
 *   "model_type", "name", ..., "hidden_size", ..., "tokenizer.vocabulary", ...    keys that aprender and realizar read
 *   "aprkit": {                                                                   everything else
 *     "version": 1, "dialect": "hf" | "ggml" | "meta",
 *     "origin": {"format", "gguf_version", "big_endian" (left out: false), "requantized", "order": [name, ...],
 *                "gaps": {"tensors": n, "places": [{"place", "bytes", "encoding": "zeros" | ..., "data"}, ...]}},
 *     "kv": {"n_items", "bytes", "encoding", "data"}                              GGUF's binary form (kv.h)
 *     "hparams": {...}, "vocab": {...},                                           what the standard keys cannot express
 *     "tensors": [{"name", "origin", "step": "pairs_to_halves:14", ..., "scale", "scale_rows", "scale_columns"}, ...]
 *     "files": [{"name", "bytes", "encoding": "text" | "zstd+base64", "data"}, ...]
 *     "crc32": "0123abcd..."                                                      8 digits a tensor, in the order of the index
 *   }
 *
 * Names in "order" are the origin's own, such as a GGUF's; the index has canonical names. */
#ifndef APR_FORMATS_APR_META_H
#define APR_FORMATS_APR_META_H

#include "formats/base/json.h"
#include "formats/tensor/model.h"

enum { APR_META_VERSION = 1, APR_META_CRC_CHARS = 8 };

/* Limits for decompressed bytes: for all together, and for the compression ratio of anything larger than 1 MiB. No model file is larger or
 * compresses better, so a reader rejects it as hostile. The writer stores such data as uncompressed base64. */
static const uint64_t apr_meta_max_unpacked = (uint64_t)1 << 30, apr_meta_always_unpacked = (uint64_t)1 << 20, apr_meta_max_ratio = 2000;

/* The JSON, malloc'ed. crc_at is the offset of the n_tensors * 8 digits ('0') reserved for the CRCs, or 0 in a plain file. */
apr_status apr_meta_write(const apr_model *layout, char **text, size_t *n_bytes, size_t *crc_at, apr_error *err);

/* Call before the tensors are read: hyperparameters, naming as far as stated, the origin's format. */
apr_status apr_meta_read_shape(apr_model *model, const cJSON *root, apr_error *err);
/* Call after the tensors are read: origin, names, steps, scales, kv, files, vocabulary. */
apr_status apr_meta_read_rest(apr_model *model, const cJSON *root, apr_error *err);

/* True for a name that is safe to create in a user's folder: no path, and not a weight file. */
bool apr_meta_is_file_name(const char *name);
/* The "aprkit" object, or NULL if another program wrote the file. */
const cJSON *apr_meta_aprkit(const cJSON *root);

#endif
