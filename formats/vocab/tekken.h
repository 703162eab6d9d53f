/* tekken.h - reads Mistral's tekken.json: byte-level BPE, merged by rank.
 *
 *   "config": {"pattern", "default_vocab_size", "default_num_special_tokens"}
 *   "vocab": [{"rank", "token_bytes": base64}, ...]           id = rank + number of special tokens; ranks beyond the size are ignored
 *   "special_tokens": [{"rank", "token_str"}, ...] or null    id = rank; unlisted ones are <SPECIAL_n> */
#ifndef APR_FORMATS_TEKKEN_H
#define APR_FORMATS_TEKKEN_H

#include "formats/tensor/model.h"

/* Fills the vocabulary; </s> is the only stop id. APR_E_DAMAGED: a field is missing or invalid. `where` names the file. */
apr_status apr_tekken_read(const apr_attachment *file, apr_vocab *vocab, apr_arena *arena, const char *where, apr_error *err);

#endif
