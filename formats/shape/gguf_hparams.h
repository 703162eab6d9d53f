/* gguf_hparams.h - GGUF's ARCH.* keys and hyperparameters: read, written, and what they cannot express. */
#ifndef APR_FORMATS_GGUF_HPARAMS_H
#define APR_FORMATS_GGUF_HPARAMS_H

#include "formats/tensor/losses.h"
#include "formats/tensor/model.h"

#include <math.h>

/* Reads the hyperparameters from GGUF's keys. Missing values stay 0 or none. */
apr_status apr_gguf_hparams(const apr_kv_list *kv, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err);
/* Appends all keys: general.*, ARCH.*, aprkit.*, tokenizer.*. `file_type` is a number of llama.cpp's LlamaFileType. */
apr_status apr_gguf_keys(const apr_hparams *hparams, const apr_vocab *vocab, const char *name, int64_t file_type, apr_kv_list *kv,
                         apr_error *err);
/* Reads only aprkit.refusal: the field and value that no program here supports. An APR file has it only in its keys. */
apr_status apr_gguf_refusal_read(const apr_kv_list *kv, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err);
/* Lists the hyperparameters that the keys cannot express. */
apr_status apr_gguf_hparam_losses(const apr_model *layout, apr_losses *losses, apr_error *err);

/* --- rotary scalings without keys ---
 *
 * llama.cpp has f32 tensors by which it divides the frequencies: rope_freqs.weight [rotary_dim / 2] for llama 3 and gemma 4
 * (apr_rope_divisor; 1e30 for pairs that are not rotated), rope_factors_long.weight and rope_factors_short.weight for longrope. The names
 * of the models must be indexed. */
#define APR_ROPE_FREQS "rope_freqs.weight"
enum { APR_GGUF_ROPE_TENSORS = 2 }; /* at most */

/* llama 3's scaling (rope->kind APR_ROPE_LLAMA3): the divisor of frequency i, of rotary_dim / 2. */
double apr_rope_divisor(const apr_rope_scaling *rope, double theta, int64_t rotary_dim, int64_t i);
/* Finds the scaling that the model's tensors give. The hyperparameters stay as they are if no scaling does, or if a tensor has another
 * type or size. */
apr_status apr_gguf_rope_read(apr_model *model, apr_error *err);
/* Is `name` one of these tensors, and are its numbers those of the stated scaling? */
bool apr_gguf_rope_holds(const apr_hparams *hparams, const char *name);
/* The tensor with the divisors of the model's scaling, of longrope the one for long texts; NULL: it has none. */
const apr_tensor *apr_gguf_rope_find(const apr_model *model);
/* Adds the tensors of the model's scaling, if they are missing. The table must have space for APR_GGUF_ROPE_TENSORS more. */
apr_status apr_gguf_rope_add(apr_model *view, apr_error *err);

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
