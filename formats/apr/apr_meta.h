/* apr_meta.h - the metadata of an APR file: a model as one JSON object, and back. For apr_read.c and apr_write.c only.
 *
 *   "model_type", "name", ..., "hidden_size", ..., "tokenizer.vocabulary", ...    what aprender and realizar know
 *   "aprkit": {                                                                   what they do not
 *     "version": 1, "dialect": "hf" | "ggml" | "meta",
 *     "origin": {"format", "gguf_version", "big_endian" (left out: false), "requantized", "order": [name, ...],
 *                "gaps": {"tensors": n, "places": [{"place", "bytes", "encoding": "zeros" | ..., "data"}, ...]}},
 *     "kv": {"n_items", "bytes", "encoding", "data"}                              GGUF's binary form (kv.h)
 *     "hparams": {...}, "vocab": {...},                                           what the standard keys cannot say
 *     "tensors": [{"name", "origin", "step": "pairs_to_halves:14", ..., "scale", "scale_rows", "scale_columns"}, ...]
 *     "files": [{"name", "bytes", "encoding": "text" | "zstd+base64", "data"}, ...]
 *     "crc32": "0123abcd..."                                                      8 digits a tensor, in the order of the index
 *   }
 *
 * Names in "order" are the origin's: those of a GGUF, where the index has canonical ones. */
#ifndef APR_FORMATS_APR_META_H
#define APR_FORMATS_APR_META_H

#include "formats/base/json.h"
#include "formats/model/model.h"

enum { APR_META_VERSION = 1, APR_META_CRC_CHARS = 8 };

/* What packed bytes may become, all together, and how much more than they are where that is not little: no file of a model is
 * larger or shrinks more, and a reader need not believe it. The writer keeps what shrinks more as plain base64. */
static const uint64_t apr_meta_max_unpacked = (uint64_t)1 << 30, apr_meta_always_unpacked = (uint64_t)1 << 20, apr_meta_max_ratio = 2000;

/* Nothing that needs "aprkit": see apr.h. */
bool apr_meta_is_plain(const apr_model *layout);

/* The JSON, malloc'ed. crc_at is where n_tensors * 8 digits ('0') wait for the CRCs, or 0 in a plain file. */
apr_status apr_meta_write(const apr_model *layout, char **text, size_t *n_bytes, size_t *crc_at, apr_error *err);

/* Before the tensors are known: hyperparameters, dialect as far as stated, origin's format. */
apr_status apr_meta_read_shape(apr_model *model, const cJSON *root, apr_error *err);
/* After them: origin, names, steps, scales, kv, files, vocabulary. */
apr_status apr_meta_read_rest(apr_model *model, const cJSON *root, apr_error *err);

/* The hyperparameters' part (apr_meta_hparams.c) that the standard keys cannot say, and back; num_layers must have been read. */
void apr_meta_write_hparams(apr_json_text *out, const apr_hparams *hparams);
apr_status apr_meta_read_hparams(apr_model *model, const cJSON *extras, apr_error *err);

/* The vocabulary's part (apr_meta_vocab.c): the standard keys, what they cannot say, and both back. */
void apr_meta_write_vocab(apr_json_text *out, const apr_vocab *vocab);
void apr_meta_write_vocab_rules(apr_json_text *out, const apr_vocab *vocab);
apr_status apr_meta_read_vocab(apr_model *model, const cJSON *root, apr_error *err);

/* A tensor's way from its origin (apr_meta_way.c), into and out of its record. */
bool apr_meta_has_way(const apr_tensor *tensor);
void apr_meta_write_way(apr_json_text *out, const apr_tensor *tensor);
apr_status apr_meta_read_way(apr_model *model, const cJSON *record, apr_tensor *tensor, apr_error *err);

/* What a file calls where it came from, "gguf" | "safetensors" | "consolidated", and its dialect; NULL and false: no such thing. */
const char *apr_meta_origin_word(apr_format format);
bool apr_meta_find_origin(const char *word, apr_format *format);
const char *apr_meta_dialect_word(apr_dialect dialect);
bool apr_meta_find_dialect(const char *word, apr_dialect *dialect); /* word may be NULL */

/* A file of that name may be put into a folder of the user: it stays in there and replaces no weights. */
bool apr_meta_is_file_name(const char *name);
/* The aprkit object, or NULL in a file of somebody else. */
const cJSON *apr_meta_kit(const cJSON *root);
/* A top-level key that has a meaning of its own and is no free metadata. */
bool apr_meta_is_reserved(const char *key);
/* The other names that realizar takes for an hyperparameter's key; ends with NULL. */
const char *const *apr_meta_aliases(const char *key);
/* The strings that aprender types, in its order, then "total_size" and "param_count"; ends with NULL. */
extern const char *const apr_meta_typed_keys[];

#endif
