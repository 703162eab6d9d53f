/* gguf.h - GGUF v2 and v3, read (both endians, split files) and written (v3 or the origin's version, little-endian).
 *
 *   0   "GGUF"  u32 version  u64 n_tensors  u64 n_kv
 *       n_kv    x {string key, u32 type, value}                      string = u64 length + bytes
 *       n_tensors x {string name, u32 rank, u64 dims[rank], u32 type, u64 offset}   dims: contiguous one first
 *       zeros up to general.alignment (default 32, a power of two)
 *       data: each tensor at its offset from here, padded to the alignment */
#ifndef APR_FORMATS_GGUF_H
#define APR_FORMATS_GGUF_H

#include "formats/model.h"
#include "formats/sink.h"

apr_status apr_gguf_open(apr_model *model, const char *path, apr_error *err);
apr_status apr_gguf_sink_open(apr_sink **sink, const char *path, const apr_model *layout, const apr_sink_options *options, apr_error *err);

/* Hyperparameters and tokenizer out of GGUF's keys, and keys out of them. Values that are not there stay 0 / none. */
apr_status apr_gguf_hparams(const apr_kv_list *kv, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err);
apr_status apr_gguf_vocab(const apr_kv_list *kv, apr_vocab *vocab, apr_arena *arena, const char *where, apr_error *err);
/* Appends everything llama.cpp wants to see: general.*, ARCH.*, tokenizer.*. `file_type` is llama.cpp's number of the mixture. */
apr_status apr_gguf_keys(const apr_hparams *hparams, const apr_vocab *vocab, const char *name, int64_t file_type, apr_kv_list *kv, apr_error *err);

#endif
