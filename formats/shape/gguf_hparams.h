/* gguf_hparams.h - GGUF's ARCH.* keys and hyperparameters: read, written, and what they cannot express. */
#ifndef APR_FORMATS_GGUF_HPARAMS_H
#define APR_FORMATS_GGUF_HPARAMS_H

#include "formats/tensor/losses.h"
#include "formats/tensor/model.h"

#include <math.h>

/* Reads the hyperparameters from GGUF's keys. Missing values stay 0 or none. */
apr_status apr_gguf_hparams(const apr_kv_list *kv, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err);
/* The rotary scalings of llama 3 and gemma 4 have no keys. llama.cpp keeps them as the f32 tensor rope_freqs.weight [rotary_dim / 2], which
 * divides the frequencies (apr_rope_divisor; 1e30 for pairs that are not rotated). Finds the scaling that gives this tensor. If none does,
 * the kind stays PLAIN. */
void apr_gguf_rope_from_divisors(const apr_tensor *divisors, apr_hparams *hparams);
/* The same for longrope: rope_factors_short.weight and rope_factors_long.weight. Tensors of another type or size are ignored. */
apr_status apr_gguf_rope_from_factors(const apr_tensor *short_, const apr_tensor *long_, apr_hparams *hparams, apr_arena *arena,
                                      apr_error *err);

/* Appends all keys: general.*, ARCH.*, aprkit.*, tokenizer.*. `file_type` is a number of llama.cpp's LlamaFileType. */
apr_status apr_gguf_keys(const apr_hparams *hparams, const apr_vocab *vocab, const char *name, int64_t file_type, apr_kv_list *kv,
                         apr_error *err);
/* Reads only aprkit.refusal: the field and value that no program here supports. An APR file has it only in its keys. */
apr_status apr_gguf_refusal_read(const apr_kv_list *kv, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err);
/* Lists the hyperparameters that the keys cannot express. */
apr_status apr_gguf_hparam_losses(const apr_model *layout, apr_losses *losses, apr_error *err);

/* --- the standard keys alone: what other readers see --- */

apr_status apr_gguf_standard_hparams(const apr_kv_list *kv, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err);
/* general.* and ARCH.*. lacks_vocab: no tokenizer's keys will say how many tokens there are. */
apr_status apr_gguf_standard_keys(const apr_hparams *hparams, bool lacks_vocab, const char *name, int64_t file_type, apr_kv_list *kv,
                                  apr_error *err);
/* ggml's architecture name for Hugging Face's model_type; an unknown name is returned unchanged. */
const char *apr_architecture_to_ggml(const char *model_type);
/* ggml's name of the model's architecture; "" when it has none. */
const char *apr_gguf_architecture(const apr_hparams *hparams);
/* The number in config.json that was rounded to f32: 1e-06, not 9.99999997e-07. */
double apr_gguf_shortest_decimal(double f32);

/* Equal but for the rounding of a float32. */
static inline bool apr_is_near(double a, double b) { return fabs(a - b) <= 1e-6 * fabs(b); }

#endif
