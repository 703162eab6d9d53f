/* gguf_hparams.h - GGUF's ARCH.* keys and hyperparameters: read, written, and what they cannot express. */
#ifndef APR_FORMATS_GGUF_HPARAMS_H
#define APR_FORMATS_GGUF_HPARAMS_H

#include "formats/tensor/losses.h"
#include "formats/tensor/model.h"

/* Reads the hyperparameters from GGUF's keys. Missing values stay 0 or none. */
apr_status apr_gguf_hparams(const apr_kv_list *kv, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err);
/* The rotary scalings of llama 3 and gemma 4 have no keys. llama.cpp keeps them as the f32 tensor rope_freqs.weight [rotary_dim / 2], which
 * divides the frequencies (apr_rope_divisor; 1e30 for pairs that are not rotated). Finds the scaling that gives this tensor. If none does,
 * the kind stays PLAIN. */
void apr_gguf_rope_from_divisors(const apr_tensor *divisors, apr_hparams *hparams);
/* The same for longrope: rope_factors_short.weight and rope_factors_long.weight. Tensors of another type or size are ignored. */
apr_status apr_gguf_rope_from_factors(const apr_tensor *short_, const apr_tensor *long_, apr_hparams *hparams, apr_arena *arena,
                                      apr_error *err);

/* Appends all keys that llama.cpp needs: general.*, ARCH.*, tokenizer.*. `file_type` is a number of llama.cpp's LlamaFileType. */
apr_status apr_gguf_keys(const apr_hparams *hparams, const apr_vocab *vocab, const char *name, int64_t file_type, apr_kv_list *kv,
                         apr_error *err);
/* Hyperparameters that those keys cannot express, as "aprkit.*" keys. They are read last. They are written for each value that the keys
 * written so far do not give back. n_tokens: of the tokenizer whose keys come next. */
apr_status apr_gguf_aprkit_keys_read(const apr_kv_list *kv, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err);
apr_status apr_gguf_aprkit_keys_write(const apr_hparams *hparams, size_t n_tokens, apr_kv_list *kv, apr_error *err);
/* Reads only aprkit.refusal: the field and value that no program here supports. An APR file has it only in its keys. */
apr_status apr_gguf_refusal_read(const apr_kv_list *kv, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err);
/* Lists the hyperparameters that the keys cannot express. */
apr_status apr_gguf_hparam_losses(const apr_model *layout, apr_losses *losses, apr_error *err);

#endif
