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

/* config.json (old style rope_theta/rope_scaling, new style rope_parameters, nested text_config) to hyperparameters and back.
 * APR_E_DAMAGED: the file is damaged. An unsupported field becomes hparams->refusal, so that the model can still be shown and converted. */
apr_status apr_hf_config_read(const apr_attachment *config, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err);
/* For hyperparameters from another source (an APR file): checks config.json as above, but sets only refusal and unknown_fields. */
apr_status apr_hf_config_check(const apr_attachment *config, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err);
/* True: config.json, or the class that it names, ties the output to the embedding. False if it cannot be read. */
bool apr_hf_config_ties(const apr_attachment *config);
char *apr_hf_config_write(const apr_hparams *hparams, const apr_vocab *vocab); /* malloc'ed JSON, NULL: no memory */
/* The same for a whole model, with what its tensors show: biases, and the type of the weights if it is not stated. */
char *apr_hf_config_make(const apr_model *model);

/* Lists what a checkpoint made of the layout cannot express: see apr_sink_losses. */
apr_status apr_hf_losses(const apr_model *layout, apr_losses *losses, apr_error *err);
/* Why no tokenizer.json can be made of that vocabulary (a clause, in the arena or static), or NULL. */
apr_status apr_hf_vocab_obstacle(const apr_vocab *vocab, apr_arena *arena, const char **obstacle, apr_error *err);

/* If the model's bias tensors are not those that transformers' class has with these hyperparameters: a clause that names one, in the arena.
 * NULL: they agree, or the family is unknown. With want_all, biases that are missing while others of their group exist also count. */
const char *apr_hf_bias_conflict(const apr_model *model, const apr_hparams *hparams, bool want_all, apr_arena *arena);

/* Edits config.json after a change of types: only the members that change are replaced, at the top and in text_config; every other
 * byte stays. torch_dtype NULL and KEEP change nothing. APR_E_DAMAGED: not a JSON object. The text is malloc'ed, n_bytes long and
 * NUL-terminated. */
typedef enum { APR_CONFIG_KEEP, APR_CONFIG_UNQUANTIZED, APR_CONFIG_FP8_CHANNEL } apr_config_quantization;
apr_status apr_hf_config_edit(const apr_attachment *config, const char *torch_dtype, apr_config_quantization quantization, char **text,
                              size_t *n_bytes, apr_error *err);

/* Reads tokenizer.json and its companions, which may be missing. Without tokenizer.json: tekken.json, tokenizer.model, or other files. */
apr_status apr_hf_vocab_read(const apr_model *model, apr_vocab *vocab, apr_arena *arena, apr_error *err);
/* Makes a tokenizer.json that the `tokenizers` library loads and that encodes in the same way. malloc'ed; NULL: no memory. */
char *apr_hf_tokenizer_write(const apr_vocab *vocab);
char *apr_hf_tokenizer_config_write(const apr_vocab *vocab);
char *apr_hf_generation_config_write(const apr_vocab *vocab);

/* Binds each FP8 weight X.weight to its X.weight_scale_inv or X.weight_scale, with the block size that config.json's
 * quantization_config states (never derived from shapes). Every reader calls it. */
apr_status apr_bind_scales(apr_model *model, const apr_attachment *config, apr_error *err);

#endif
