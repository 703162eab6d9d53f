/* gguf_endian.h - GGUF files of big-endian machines: which come back as such, and how their numbers are turned round.
 *
 * They are read into our order. An APR file remembers what they were, so that the GGUF made of it is the one that it was made of, byte for
 * byte; converted to a GGUF at once they become little-endian. */
#ifndef APR_FORMATS_GGUF_ENDIAN_H
#define APR_FORMATS_GGUF_ENDIAN_H

#include "formats/model/kv.h"
#include "formats/model/model.h"

/* origin.gguf_version is what a little-endian reader sees: 2 or 3, or one of them with its bytes turned round. */
bool apr_gguf_is_big_endian(uint32_t version);
uint32_t apr_gguf_version_number(uint32_t version);

/* Made of an APR file that came from a big-endian GGUF, with the types that it had: plain numbers, for blocks are not read from such. */
bool apr_gguf_goes_back_big_endian(const apr_model *layout);

/* Elements of `each` bytes, in place. */
void apr_gguf_turn(uint8_t *bytes, size_t n_bytes, size_t each);
/* Everything before the data, as it is written little-endian from these keys and tensors. */
void apr_gguf_turn_head(uint8_t *head, const apr_kv_list *kv, const apr_tensor *const *infos, size_t n_infos);

#endif
