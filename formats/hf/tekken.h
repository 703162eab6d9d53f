/* tekken.h - Mistral's tekken.json as a vocabulary: byte-level, joined by rank.
 *
 *   "config": {"pattern", "default_vocab_size", "default_num_special_tokens"}
 *   "vocab": [{"rank", "token_bytes": base64}, ...]           id = rank + the number of special tokens; what is beyond the size goes
 *   "special_tokens": [{"rank", "token_str"}, ...] or null    id = rank; those that are not listed are <SPECIAL_n> */
#ifndef APR_FORMATS_TEKKEN_H
#define APR_FORMATS_TEKKEN_H

#include "formats/model/model.h"

/* Fills the vocabulary but for stop ids other than </s>. APR_E_DAMAGED: a field is missing or lies. `where` names the file. */
apr_status apr_tekken_read(const apr_attachment *file, apr_vocab *vocab, apr_arena *arena, const char *where, apr_error *err);

#endif
