/* gguf_endian.h - byte-swaps big-endian GGUF files, and says which outputs are big-endian again.
 *
 * Numbers are read into little-endian order. An APR file records that its origin was big-endian, so that a GGUF exported from it equals the
 * original byte for byte. A direct GGUF-to-GGUF conversion writes little-endian. */
#ifndef APR_FORMATS_GGUF_ENDIAN_H
#define APR_FORMATS_GGUF_ENDIAN_H

#include "formats/tensor/kv.h"
#include "formats/tensor/model.h"

/* True: the layout is an APR file that was imported from a big-endian GGUF, and its types are unchanged. They are plain numbers: quantized
 * blocks are not read from big-endian files. */
bool apr_gguf_writes_big_endian(const apr_model *layout);

/* Byte-swaps elements of `each` bytes in place. */
void apr_gguf_swap(uint8_t *bytes, size_t n_bytes, size_t each);
/* Byte-swaps everything before the data. `head` was written little-endian from these keys and tensor infos. */
void apr_gguf_swap_head(uint8_t *head, const apr_kv_list *kv, const apr_tensor *const *infos, size_t n_infos);

#endif
