/* gguf.h - reads GGUF v2 and v3 (little- and big-endian, split files) and writes v3 or the origin's version (gguf_endian.h).
 *
 *   0   "GGUF"  u32 version  u64 n_tensors  u64 n_kv
 *       n_kv    x {string key, u32 type, value}                      string = u64 length + bytes
 *       n_tensors x {string name, u32 rank, u64 dims[rank], u32 type, u64 offset}   dims: innermost first
 *       zeros up to general.alignment (default 32, a power of two)
 *       data: each tensor at its offset from here, padded to the alignment */
#ifndef APR_FORMATS_GGUF_H
#define APR_FORMATS_GGUF_H

#include "formats/tensor/adapter.h"
#include "formats/tensor/losses.h"
#include "formats/tensor/model.h"
#include "formats/tensor/sink.h"

/* Opens a file, or any shard of a split model (PREFIX-00001-of-00005.gguf) with all its siblings. On failure the model is closed.
 * tensors[] are sorted by data offset. If the file lists them in another order, origin.order keeps that order. Numbers of a big-endian
 * file are byte-swapped into the arena; quantized blocks in such a file are refused. */
apr_status apr_gguf_open(apr_model *model, const char *path, apr_error *err);
/* The same from memory. The caller sets model->path and maps[0..n_maps), all shards in order, and leaves the rest zero. The caller closes
 * the model, also on failure. Before that it sets n_maps to 0 if the maps were not made by apr_map_open. */
apr_status apr_gguf_parse(apr_model *model, apr_error *err);
/* Opens a file that may be cut off anywhere after its tensor infos, such as the first megabytes of a download. Names, types and sizes are
 * those of the whole file. Tensors that are not there in full read as zeros. *is_whole: all tensors are there. */
apr_status apr_gguf_open_head(apr_model *model, const char *path, bool *is_whole, apr_error *err);

/* Opens a file with general.type "adapter" and adapter.type "lora" (gguf_adapter.c). On failure the adapter is closed. */
apr_status apr_gguf_adapter_open(apr_adapter *adapter, const char *path, apr_error *err);

/* Writes the header (apr_gguf_keeps_keys says which keys) and the tensors in layout order, each padded to general.alignment. The tensor
 * infos have the order of origin.order if that names exactly the layout's tensors. APR_E_UNSUPPORTED: a type that ggml does not have, or
 * more than 4 dimensions. */
apr_status apr_gguf_sink_open(apr_sink **sink, const char *path, const apr_model *layout, const apr_sink_options *options, apr_error *err);
apr_status apr_gguf_offsets(apr_offsets *offsets, const char *path, const apr_model *layout, const apr_sink_options *options,
                            apr_error *err);

/* A gap is what a file has around its tensors other than zeros up to the alignment. Fills origin.gaps of a model that was read from one
 * file. offsets[i]: of tensors[i], from the start of the data. head_at: the first byte after the tensor infos. */
apr_status apr_gguf_find_gaps(apr_model *model, const uint64_t *offsets, uint64_t head_at, uint64_t alignment, apr_error *err);
/* The gap that the layout's origin had at that place (apr_gap). NULL: the usual padding, or the tensors have changed since. */
const apr_gap *apr_gguf_gap(const apr_model *layout, size_t place);

/* Total bytes of the gaps that a GGUF of this layout gets. */
uint64_t apr_gguf_gap_bytes(const apr_model *layout);

/* The most zero bytes that are kept as gaps: 4 MiB plus the bytes of all tensors. An APR file of a few KB must not become a GGUF that
 * fills a disk. */
uint64_t apr_gguf_max_zeros(const apr_model *model);

enum { APR_GGUF_MAX_KEY_BYTES = 65535 };
/* Fails with `status` at a key that GGUF does not allow: empty, or longer than APR_GGUF_MAX_KEY_BYTES. */
apr_status apr_gguf_check_keys(const apr_kv_list *kv, const char *where, apr_status status, apr_error *err);

/* True: the layout's keys come from a GGUF and are written unchanged. False: the keys are made from hyperparameters and tokenizer. */
bool apr_gguf_keeps_keys(const apr_model *layout);
/* Lists what keys made from hyperparameters and tokenizer cannot express. */
apr_status apr_gguf_losses(const apr_model *layout, apr_losses *losses, apr_error *err);
apr_status apr_gguf_hparam_losses(const apr_model *layout, apr_losses *losses, apr_error *err); /* hyperparameters only */
/* Why a GGUF cannot hold this tokenizer (a clause, allocated in the arena), or NULL. */
apr_status apr_gguf_vocab_obstacle(const apr_vocab *vocab, apr_arena *arena, const char **obstacle, apr_error *err);

/* Read the hyperparameters and the tokenizer from GGUF's keys. Missing values stay 0 or none. */
apr_status apr_gguf_hparams(const apr_kv_list *kv, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err);
apr_status apr_gguf_vocab(const apr_kv_list *kv, apr_vocab *vocab, apr_arena *arena, const char *where, apr_error *err);
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
/* Writes the named chat templates of tokenizer_config.json and of additional_chat_templates/. */
apr_status apr_gguf_put_templates(const apr_model *layout, apr_kv_list *kv, apr_error *err);
/* Appends the tokenizer's keys. What GGUF has no key for is kept under tokenizer.aprkit.*. */
apr_status apr_gguf_vocab_keys(const apr_vocab *vocab, apr_kv_list *kv, apr_error *err);

#endif
