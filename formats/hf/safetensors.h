/* safetensors.h - reads and writes safetensors files and the Hugging Face checkpoints made of them.
 *
 *   0   u64 n        length of the JSON header
 *   8   JSON         {"__metadata__": {string: string}, NAME: {"dtype", "shape", "data_offsets": [begin, end]}, ...}
 *   8+n data         offsets count from here; no gaps, no overlaps
 *
 * A checkpoint is a directory: config.json, generation_config.json, tokenizer files, and model.safetensors or shards named by
 * model.safetensors.index.json. All the small files become attachments of the model, byte for byte. The weights may also be in PyTorch's
 * files, have Meta's names next to a params.json (formats/hf/weight_files.h), or be in a hub's cache (formats/hf/hub_cache.h). */
#ifndef APR_FORMATS_SAFETENSORS_H
#define APR_FORMATS_SAFETENSORS_H

#include "formats/tensor/model.h"
#include "formats/tensor/sink.h"

/* Opens a directory, or a single file of weights, safetensors or PyTorch's, with the small files next to it (config.json, ...). */
apr_status apr_safetensors_open(apr_model *model, const char *path, apr_error *err);
/* Opens only the small files of a folder (or of a file's folder), and reads the tokenizer. Weights need not be there. */
apr_status apr_hf_vocab_open(apr_model *model, const char *path, apr_error *err);
/* Opens a bare config.json: hyperparameters without tensors. */
apr_status apr_config_open(apr_model *model, const char *path, apr_error *err);

/* True: a safetensors file may start with these bytes. Check it before other formats that start with binary numbers: the length of the
 * header may look like anything, also like a pickle. */
bool apr_starts_safetensors(const uint8_t *head, size_t n);
/* Parses the bytes of one file of weights, safetensors or PyTorch's. The latter changes the model's format. */
apr_status apr_weights_parse(apr_model *model, const uint8_t *data, size_t n_bytes, const char *where, apr_error *err);

/* Parses the bytes of one file: checks all of the header, and appends the tensors (in the order of their data, borrowing `data`)
 * and the metadata to the model. The caller closes the model, also on failure. */
apr_status apr_safetensors_parse(apr_model *model, const uint8_t *data, size_t n_bytes, const char *where, apr_error *err);

/* Writes a directory: shards, index if more than one, and all attachments of the layout. Missing config.json,
 * tokenizer.json, tokenizer_config.json, generation_config.json and chat_template.jinja are made from hparams and vocab. */
apr_status apr_safetensors_sink_open(apr_sink **sink, const char *path, const apr_model *layout, const apr_sink_options *options,
                                     apr_error *err);
apr_status apr_safetensors_offsets(apr_offsets *offsets, const char *path, const apr_model *layout, const apr_sink_options *options,
                                   apr_error *err);

/* Lists what a checkpoint made of the layout cannot express: see apr_sink_losses. */
apr_status apr_hf_losses(const apr_model *layout, apr_losses *losses, apr_error *err);
/* Why no tokenizer.json can be made of that vocabulary (a clause, in the arena or static), or NULL. */
apr_status apr_hf_vocab_obstacle(const apr_vocab *vocab, apr_arena *arena, const char **obstacle, apr_error *err);

#endif
