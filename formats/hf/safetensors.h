/* safetensors.h - safetensors files and the Hugging Face checkpoints made of them, read and written.
 *
 *   0   u64 n        length of the JSON header
 *   8   JSON         {"__metadata__": {string: string}, NAME: {"dtype", "shape", "data_offsets": [begin, end]}, ...}
 *   8+n data         offsets count from here; no gaps, no overlaps
 *
 * A checkpoint is a directory: config.json, generation_config.json, tokenizer files, and model.safetensors or shards named by
 * model.safetensors.index.json. All the small files become attachments of the model, byte for byte. Its weights may as well lie in
 * PyTorch's files, under Meta's names beside a params.json (formats/hf/weight_files.h), or in a hub's cache (formats/hf/hub_cache.h). */
#ifndef APR_FORMATS_SAFETENSORS_H
#define APR_FORMATS_SAFETENSORS_H

#include "formats/model/model.h"
#include "formats/model/sink.h"

/* A directory, or a single file of weights, safetensors or PyTorch's (with what lies beside it: config.json, tokenizer.json, ...). */
apr_status apr_safetensors_open(apr_model *model, const char *path, apr_error *err);
/* The small files alone, in a folder or next to a file of it, and the tokenizer in them: no weights are opened, and there need not be any. */
apr_status apr_hf_vocab_open(apr_model *model, const char *path, apr_error *err);
/* A bare config.json: hyperparameters, no tensors. */
apr_status apr_config_open(apr_model *model, const char *path, apr_error *err);

/* Is this how a file of safetensors starts? Ask it before any other format that has binary numbers in front: the length of the header
 * may look like anything, also like a pickle. */
bool apr_starts_safetensors(const uint8_t *head, size_t n);
/* The bytes of one file of weights, safetensors or PyTorch's, whichever it is. The latter changes the model's format. */
apr_status apr_weights_parse(apr_model *model, const uint8_t *data, size_t n_bytes, const char *where, apr_error *err);

/* The bytes of one file: checks all of the header and appends the tensors (in the order of their data, borrowing `data`)
 * and the metadata to the model. What is left of a failed model is for apr_model_close. */
apr_status apr_safetensors_parse(apr_model *model, const uint8_t *data, size_t n_bytes, const char *where, apr_error *err);

/* Writes a directory: shards, index if more than one, and all attachments of the layout. Missing config.json,
 * tokenizer.json, tokenizer_config.json, generation_config.json and chat_template.jinja are made from hparams and vocab. */
apr_status apr_safetensors_sink_open(apr_sink **sink, const char *path, const apr_model *layout, const apr_sink_options *options,
                                     apr_error *err);
apr_status apr_safetensors_offsets(apr_offsets *offsets, const char *path, const apr_model *layout, const apr_sink_options *options,
                                   apr_error *err);

/* config.json (old style rope_theta/rope_scaling, new style rope_parameters, nested text_config) to hyperparameters and back.
 * What is damaged fails; what is merely not done here becomes hparams->refusal, so that such a model can still be shown and carried. */
apr_status apr_hf_config_read(const apr_attachment *config, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err);
/* For hyperparameters that came another way (an APR file's): checks config.json as above and fills refusal and unknown_fields alone. */
apr_status apr_hf_config_judge(const apr_attachment *config, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err);
/* Does config.json, or the class that it names, tie the output to the embedding? False where it cannot be read. */
bool apr_hf_config_ties(const apr_attachment *config);
char *apr_hf_config_write(const apr_hparams *hparams, const apr_vocab *vocab); /* malloc'ed JSON, NULL: no memory */
/* The same for a whole model, with what its tensors show: biases, and the type of the weights where nothing states it. */
char *apr_hf_config_make(const apr_model *model);

/* What a checkpoint made of the layout cannot say: see apr_sink_losses. */
apr_status apr_hf_losses(const apr_model *layout, apr_losses *losses, apr_error *err);
/* Why no tokenizer.json can be made of that vocabulary (a clause, of the arena or static), or NULL. */
apr_status apr_hf_vocab_obstacle(const apr_vocab *vocab, apr_arena *arena, const char **obstacle, apr_error *err);

/* Where the model's bias tensors are not those that transformers' class has under these hyperparameters: a clause that names one;
 * NULL when they agree, or when the family is unknown. With want_all, those that are missing
 * beside others of their group count, too. In the arena. */
const char *apr_hf_bias_conflict(const apr_model *model, const apr_hparams *hparams, bool want_all, apr_arena *arena);

/* config.json after a change of types: only the members that change are touched, at the top and in text_config; every other
 * byte stays. torch_dtype NULL and KEEP leave theirs as they are. APR_E_DAMAGED when it is no JSON object. The text is
 * malloc'ed, n_bytes long and NUL-terminated. */
typedef enum { APR_CONFIG_KEEP, APR_CONFIG_UNQUANTIZED, APR_CONFIG_FP8_CHANNEL } apr_config_quantization;
apr_status apr_hf_config_edit(const apr_attachment *config, const char *torch_dtype, apr_config_quantization quantization, char **text,
                              size_t *n_bytes, apr_error *err);

/* tokenizer.json and its companions to a vocabulary; missing companions are fine. Without one: tekken.json, or tokenizer.model. */
apr_status apr_hf_vocab_read(const apr_model *model, apr_vocab *vocab, apr_arena *arena, apr_error *err);
/* A tokenizer.json that the `tokenizers` library loads and that encodes the same. malloc'ed; NULL: no memory. */
char *apr_hf_tokenizer_write(const apr_vocab *vocab);
char *apr_hf_tokenizer_config_write(const apr_vocab *vocab);
char *apr_hf_generation_config_write(const apr_vocab *vocab);

/* Binds each FP8 weight X.weight to its X.weight_scale_inv or X.weight_scale, with the block size that config.json's
 * quantization_config states (never derived from shapes). Every reader calls it. */
apr_status apr_bind_scales(apr_model *model, const apr_attachment *config, apr_error *err);

#endif
