/* hf_config.h - config.json and hyperparameters: read, checked, written, edited. */
#ifndef APR_FORMATS_HF_CONFIG_H
#define APR_FORMATS_HF_CONFIG_H

#include "formats/shape/family.h"

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

/* The class's default for an absent number; 0: none. `config` may be NULL. */
double apr_family_default(const apr_family_config *config, const apr_hparam_field *field);
/* The key of a field in a config.json that is written: the family's first spelling, else that of the field's list. */
const char *apr_family_hf_key(const apr_family_config *config, apr_field field);
/* Is `hf_key` one of the family's spellings of a field other than `field`? */
bool apr_family_key_is_taken(const apr_family_config *config, apr_field field, const char *hf_key);

/* If the model's bias tensors are not those that transformers' class has with these hyperparameters: a clause that names one, in the arena.
 * NULL: they agree, or the family is unknown. With want_all, biases that are missing while others of their group exist also count. */
const char *apr_hf_bias_conflict(const apr_model *model, const apr_hparams *hparams, bool want_all, apr_arena *arena);

/* Edits config.json after a change of types: only the members that change are replaced, at the top and in text_config; every other
 * byte stays. torch_dtype NULL and KEEP change nothing. APR_E_DAMAGED: not a JSON object. The text is malloc'ed, n_bytes long and
 * NUL-terminated. */
typedef enum { APR_CONFIG_KEEP, APR_CONFIG_UNQUANTIZED, APR_CONFIG_FP8_CHANNEL } apr_config_quantization;
apr_status apr_hf_config_edit(const apr_attachment *config, const char *torch_dtype, apr_config_quantization quantization, char **text,
                              size_t *n_bytes, apr_error *err);
/* The same with a quantization_config of its own: JSON text. */
apr_status apr_hf_config_set_quantization(const apr_attachment *config, const char *torch_dtype, const char *quantization_config,
                                          char **text, size_t *n_bytes, apr_error *err);

#endif
