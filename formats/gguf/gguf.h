/* gguf.h - reads GGUF v2 and v3 (little- and big-endian, split files) and writes v3 or the origin's version.
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

/* True: the layout's keys come from a GGUF and are written unchanged. False: the keys are made from hyperparameters and tokenizer. */
bool apr_gguf_keeps_keys(const apr_model *layout);
/* Lists what keys made from hyperparameters and tokenizer cannot express. */
apr_status apr_gguf_losses(const apr_model *layout, apr_losses *losses, apr_error *err);

#endif
