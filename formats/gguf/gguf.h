/* gguf.h - GGUF v2 and v3, read (both endians, split files) and written (v3 or the origin's version; gguf_endian.h).
 *
 *   0   "GGUF"  u32 version  u64 n_tensors  u64 n_kv
 *       n_kv    x {string key, u32 type, value}                      string = u64 length + bytes
 *       n_tensors x {string name, u32 rank, u64 dims[rank], u32 type, u64 offset}   dims: contiguous one first
 *       zeros up to general.alignment (default 32, a power of two)
 *       data: each tensor at its offset from here, padded to the alignment */
#ifndef APR_FORMATS_GGUF_H
#define APR_FORMATS_GGUF_H

#include "formats/model/adapter.h"
#include "formats/model/losses.h"
#include "formats/model/model.h"
#include "formats/model/sink.h"

/* A file, or any shard of a split model (PREFIX-00001-of-00005.gguf): all its siblings are opened with it. On failure the
 * model is closed. tensors[] are in the order of their data; where the file lists them otherwise, origin.order keeps the
 * list. A big-endian file's numbers are swapped into the arena; block types in such a file are refused. */
apr_status apr_gguf_open(apr_model *model, const char *path, apr_error *err);
/* The same from memory: model->path and maps[0..n_maps), all shards in order, are set, the rest is zero. The caller closes
 * the model on failure too, and takes maps that apr_map_open did not make out of it first. */
apr_status apr_gguf_parse(apr_model *model, apr_error *err);
/* A file that may end anywhere behind its list of tensors, as the first megabytes of one do: tensors that are not there in full are zeros.
 * Names, types and sizes are as in the whole file. *is_whole: all tensors are there. */
apr_status apr_gguf_open_head(apr_model *model, const char *path, bool *is_whole, apr_error *err);

/* A file whose general.type is "adapter" and whose adapter.type is "lora" (gguf_adapter.c); on failure it is closed. */
apr_status apr_gguf_adapter_open(apr_adapter *adapter, const char *path, apr_error *err);

/* Writes layout->kv as it is, and the tensors in layout order with rows of dims reversed, padded to general.alignment. The
 * infos follow the order of a GGUF origin where it names exactly the layout's tensors. APR_E_UNSUPPORTED for types outside ggml and for
 * more than 4 dimensions. */
apr_status apr_gguf_sink_open(apr_sink **sink, const char *path, const apr_model *layout, const apr_sink_options *options, apr_error *err);
apr_status apr_gguf_offsets(apr_offsets *offsets, const char *path, const apr_model *layout, const apr_sink_options *options,
                            apr_error *err);

/* Fills origin.gaps of a model read from one file. offsets[i]: of tensors[i], behind the start of the data;
 * head_at: the byte behind the list of tensors. */
apr_status apr_gguf_find_gaps(apr_model *model, const uint64_t *offsets, uint64_t head_at, uint64_t alignment, apr_error *err);
/* What the layout's origin had at that place; NULL: the usual zeros, or another file by now. */
const apr_gap *apr_gguf_gap(const apr_model *layout, size_t place);

/* Bytes of all gaps that a GGUF of this layout gets. */
uint64_t apr_gguf_gap_bytes(const apr_model *layout);

/* Zeros that are kept as gaps for each byte of tensors, beyond 4 MiB: an APR file of a few KB must not become a GGUF that fills a disk. */
uint64_t apr_gguf_most_zeros(const apr_model *model);

enum { APR_GGUF_MAX_KEY_BYTES = 65535 };
/* A sentence and `status` for a key that GGUF does not allow: an empty one, or one that is too long. */
apr_status apr_gguf_check_keys(const apr_kv_list *kv, const char *where, apr_status status, apr_error *err);

/* Is the header made of the layout's own keys, because they are a GGUF's? Otherwise it is made of hyperparameters and tokenizer, */
bool apr_gguf_keeps_keys(const apr_model *layout);
/* and what that cannot say is listed here. */
apr_status apr_gguf_losses(const apr_model *layout, apr_losses *losses, apr_error *err);
apr_status apr_gguf_hparam_losses(const apr_model *layout, apr_losses *losses, apr_error *err); /* its part */
/* Why that tokenizer cannot stand in a GGUF at all (a clause, of the arena), or NULL. */
apr_status apr_gguf_vocab_obstacle(const apr_vocab *vocab, apr_arena *arena, const char **obstacle, apr_error *err);

/* Hyperparameters and tokenizer out of GGUF's keys, and keys out of them. Values that are not there stay 0 / none. */
apr_status apr_gguf_hparams(const apr_kv_list *kv, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err);
apr_status apr_gguf_vocab(const apr_kv_list *kv, apr_vocab *vocab, apr_arena *arena, const char *where, apr_error *err);
/* The rotary scalings of llama 3 and gemma 4 have no keys: llama.cpp keeps them as the f32 tensor rope_freqs.weight of [rotary_dim / 2]
 * divisors of the frequencies (apr_rope_divisor; 1 and, for what does not turn, 1e30). Finds the scaling behind such a tensor, and
 * leaves PLAIN where it is none of these: then only the tensor knows. */
void apr_gguf_rope_from_divisors(const apr_tensor *divisors, apr_hparams *hparams);
/* The same of longrope: rope_factors_short.weight and rope_factors_long.weight. Tensors that fit nothing are left alone. */
apr_status apr_gguf_rope_from_factors(const apr_tensor *short_, const apr_tensor *long_, apr_hparams *hparams, apr_arena *arena,
                                      apr_error *err);

/* Appends everything llama.cpp wants to see: general.*, ARCH.*, tokenizer.*. `file_type` is llama.cpp's number of the mixture. */
apr_status apr_gguf_keys(const apr_hparams *hparams, const apr_vocab *vocab, const char *name, int64_t file_type, apr_kv_list *kv,
                         apr_error *err);
/* Hyperparameters that those keys cannot say, as "aprkit.*": read last, and written for all that the keys written so far do
 * not give back. n_tokens: of the tokenizer that will follow. */
apr_status apr_gguf_extras_read(const apr_kv_list *kv, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err);
apr_status apr_gguf_extras_write(const apr_hparams *hparams, size_t n_tokens, apr_kv_list *kv, apr_error *err);
/* Of these the one that says what no program here does: an APR file has it in its keys alone. */
apr_status apr_gguf_refusal_read(const apr_kv_list *kv, apr_hparams *hparams, apr_arena *arena, const char *where, apr_error *err);
/* Templates with names, out of tokenizer_config.json's list and of additional_chat_templates/. */
apr_status apr_gguf_put_templates(const apr_model *layout, apr_kv_list *kv, apr_error *err);
/* The tokenizer's part of it. What GGUF has no key for is kept under tokenizer.aprkit.*. */
apr_status apr_gguf_vocab_keys(const apr_vocab *vocab, apr_kv_list *kv, apr_error *err);

#endif
